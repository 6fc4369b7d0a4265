/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a communicator's calls goes: waiting for the last rank to enter, waiting for
 * data once all have, and the rest: copying, reducing, sending, bookkeeping.
 *
 * Each rank notes when it enters a call: in the node memory for the ranks of its node
 * (twill_node_note_entry()), and with its messages for those of other nodes, which carry how long
 * ago the last rank known to the sender entered. At the end of a call the latest of these is
 * compared with this rank's own entry. A call shorter than TWILL_SPLIT_TICKS is split only if its
 * number is a multiple of TWILL_SPLIT_EVERY, and then counts TWILL_SPLIT_EVERY times; waits of
 * nonblocking calls that short are not split. */
#ifndef TWILL_TIME_SPLIT_H
#define TWILL_TIME_SPLIT_H

#include "fabric/entry_times.h"

struct twill_engine;

/* What one rank's late entries have cost this rank. */
struct twill_lateness {
    uint64_t calls; /* in which it was the last, and this rank waited */
    uint64_t ticks;
};

/* Sums of a communicator, in ticks; its holder adds, any thread reads. */
struct twill_split_sums {
    uint64_t calls, bytes, spent, waiting, blocked;
};

/* Who asks for the time since a moment: each has a moment of its own. */
enum twill_split_reader { TWILL_SPLIT_PROGRAM, TWILL_SPLIT_REPORTS, TWILL_SPLIT_READERS };

/* The split of a communicator's time. */
struct twill_time_split {
    struct twill_split_sums now; /* waiting and blocked only: the others are in the counters */
    struct twill_split_sums start[TWILL_SPLIT_READERS]; /* at the start of each reader's period */
    struct twill_lateness *late; /* [1 + readers][size]: since creation, and at those starts */
    uint64_t report_every;       /* calls: TWILL_REPORT */
    uint64_t *observed;          /* waiting is also added here, for metrics; or NULL */
    char line[256];              /* result of twill_comm_times() */
};

/* Allocate and free. */
twill_status twill_split_open(struct twill_engine *engine);
void twill_split_close(struct twill_engine *engine);

/* Print the shares of the reports' period that ends now on one line, after `what`, and begin the
 * next one; or those of the communicator's whole life. The period of twill_comm_times() goes on.
 * The communicator's holder calls it. */
void twill_split_report(struct twill_engine *engine, const char *what);
void twill_split_report_all(struct twill_engine *engine, const char *what);

/* Raise *last to the latest entry into a call among the ranks of this node that have published it.
 * Returns whether all have. */
bool twill_split_look(const struct twill_engine *engine, uint64_t sequence,
                      struct twill_last_entry *last);

/* Return line `index` of twill_comm_times(), NULL past the last; and begin a reader's period. */
const char *twill_split_line(struct twill_engine *engine, size_t index);
void twill_split_begin(struct twill_engine *engine, enum twill_split_reader reader);

#endif
