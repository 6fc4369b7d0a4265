/* SPDX-License-Identifier: Apache-2.0 */
/* Splits the time of a communicator's calls into three parts: waiting for the last rank to enter,
 * waiting for data after that, and the rest (copying, reducing, sending and bookkeeping).
 *
 * Each rank notes when it enters a call. Ranks of its node read that in the node memory
 * (twill_node_note_entry()). Messages to other nodes say how long ago the last rank known to the
 * sender has entered. At the end of a call, this rank compares the latest of these entries with its
 * own. A call shorter than TWILL_SPLIT_TICKS is split only if its number is a multiple of
 * TWILL_SPLIT_EVERY, and counts TWILL_SPLIT_EVERY times then. Such waits are not split. */
#ifndef TWILL_TIME_SPLIT_H
#define TWILL_TIME_SPLIT_H

#include "fabric/entry_times.h"

struct twill_engine;
/* The cost of one rank's late entries for this rank, in a struct twill_time_split. */
struct twill_lateness {
    uint64_t calls; /* number in which it was last and this rank waited */
    uint64_t ticks; /* that this rank waited in them */
};

/* Sums over the calls of a communicator. All but `calls` and the bytes sent are in ticks. `spent`
 * is the time within calls, and `blocked` the part in which they waited. `waiting` is the part of
 * that until the last rank entered the call. The holder adds, any thread reads. */
struct twill_split_sums {
    uint64_t calls, bytes, spent, waiting, blocked;
};

/* The two readers of the split are the program, by twill_comm_times(), and the log, by
 * TWILL_REPORT. Each reads the time since its own last twill_split_begin(). */
enum twill_split_reader { TWILL_SPLIT_PROGRAM, TWILL_SPLIT_REPORTS, TWILL_SPLIT_READERS };

/* The split of a communicator's time. The communicator has one, which its holder alone uses. */
struct twill_time_split {
    struct twill_split_sums now; /* only waiting and blocked, as the others are in the counters */
    struct twill_split_sums start[TWILL_SPLIT_READERS]; /* at the start of each reader's period */
    struct twill_lateness *late; /* [1 + readers][size]: since creation, and at those starts */
    uint64_t report_every;       /* calls between two reports (TWILL_REPORT); 0 if not rank 0 */
    uint64_t *observed;          /* where waiting is also added, for metrics, or NULL */
    char line[256];              /* text that twill_comm_times() returns */
};
/* Allocate what engine->split contains, and read TWILL_REPORT, which counts only on rank 0. Returns
 * TWILL_OK or TWILL_ERR_MEMORY. */
twill_status twill_split_open(struct twill_engine *engine);
/* Free what engine->split contains. Before that, on rank 0, log a line on all calls of the
 * communicator, if TWILL_REPORT is set. */
void twill_split_close(struct twill_engine *engine);
/* Log one line, which begins with the text `what`, on the calls since the last report. It says
 * which share of their time went into waiting for the last rank, waiting for data, and the rest. It
 * also names the rank for which this one waited longest. Begin the next report period, but not that
 * of twill_comm_times(). The communicator is held. */
void twill_split_report(struct twill_engine *engine, const char *what);
/* Log a line as twill_split_report() does, but on all calls since the communicator was made, if
 * there were any. Begin the next report period. The communicator is held. */
void twill_split_report_all(struct twill_engine *engine, const char *what);
/* Raise *last to the latest entry into call number `sequence` among the ranks of this node that
 * have published theirs. Returns whether all have. */
bool twill_split_look(const struct twill_engine *engine, uint64_t sequence,
                      struct twill_last_entry *last);
/* Return line `index` of twill_comm_times(), valid until the next call, or NULL past the last. Line
 * 0 says where the time went, and line i is about the rank waited for i-th longest. */
const char *twill_split_line(struct twill_engine *engine, size_t index);
/* Begin a new period of `reader`, whose next lines cover only the time from now on. */
void twill_split_begin(struct twill_engine *engine, enum twill_split_reader reader);

#endif
