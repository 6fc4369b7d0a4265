/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier consists of values as expressions, memory with its history, and the checker that
 * runs the schedules of all ranks. Internal to this folder. Synchronisation is deterministic,
 * because messages, signals and IMM lines are matched by number, not by arrival. One execution
 * therefore shows every ordering. Two accesses that happens-before does not order in it can happen
 * in either order. Clocks are vectors over processes. A process is a lane of a rank in one of the
 * instances in flight. A run is one execution of the schedules. */
#ifndef TWILL_VERIFY_H
#define TWILL_VERIFY_H

#include "algorithms/algorithms.h"

/* --- values (verify_value.c) ------------------------------------------------------------------ */

enum twill_value_state {
    TWILL_STATE_RAW,     /* the input of a rank */
    TWILL_STATE_PARTIAL, /* reduced, perhaps wider than an element */
    TWILL_STATE_FINAL    /* FINAL was applied */
};

/* An input of a rank, or a reduction of values, in a struct twill_values. Equal expressions have
 * equal numbers (from 1), so equal numbers mean equal bits. 0 is the number of no value. */
struct twill_value {
    uint32_t run, block;  /* its inputs are this block of SRC of ranks, in this run */
    uint32_t members;     /* number of inputs in it */
    uint32_t first, last; /* ranks of the leftmost and the rightmost input */
    uint32_t expression;  /* number of this expression in any state */
    /* The values that it reduces. An input has a `left` of 0. If only `right` is 0, it is the value
     * `left` in another state. */
    uint32_t left, right;
    uint32_t chain; /* next value with the same hash */
    uint64_t sum;   /* sum of a random number for each input */
    enum twill_value_state state;
    bool ordered;   /* the inputs are those of consecutive ranks, in order */
    bool from_left; /* starts at rank 0 and is reduced from the left one by one */
};

/* All values of one verification, from twill_values_open() to twill_values_close(). */
struct twill_values {
    uint32_t ranks, words; /* words of a set, or 0 if sums are compared instead of sets */
    enum twill_order order;
    struct twill_value *value; /* [count], [0] unused */
    uint64_t *set;             /* [count * words] ranks whose inputs are in each value */
    uint32_t count, capacity;
    uint32_t *bucket; /* [buckets] first value of each hash */
    uint32_t buckets; /* a power of two */
};

/* Prepare an empty set of values, which are inputs of `ranks` ranks and reductions of them.
 * Reductions must keep `order`. With `fingerprint`, a value has a sum of random numbers, one per
 * input, instead of the set of its ranks, which saves memory. Returns false if out of memory. Close
 * it in any case. */
bool twill_values_open(struct twill_values *v, uint32_t ranks, enum twill_order order,
                       bool fingerprint);
/* Free what twill_values_open() and later calls allocated. */
void twill_values_close(struct twill_values *v);
/* Add the input of a rank, a block of its SRC in a run. Returns its number, 0 if out of memory. */
uint32_t twill_values_input(struct twill_values *v, uint32_t run, uint32_t rank, uint32_t block);
/* Reduce `length` operands, numbers of values, from left to right. With `final`, the result must
 * contain the inputs of all ranks, and becomes a final value. Returns NULL, and the number of the
 * result in *result, or a constant text that says why they cannot be reduced. */
const char *twill_values_reduce(struct twill_values *v, const uint32_t *operand, uint32_t length,
                                bool final, uint32_t *result);

/* --- memory (verify_memory.c) ----------------------------------------------------------------- */
#define TWILL_OPEN UINT32_MAX

/* A block of a space, with its accesses. A posted operation accesses it until its WAIT, and up to
 * then the access has an open end (TWILL_OPEN). An access of a process ends at a time of that
 * process's clock. A later access of another process is ordered after it if the vector clock of
 * that process has reached that time. The struct twill_cells that it is in owns it. */
struct twill_cell {
    uint32_t value;           /* number of its struct twill_value, 0 if never written */
    uint32_t writer, written; /* process and time of the last write */
    uint32_t reads; /* index in `read` of struct twill_cells of the first read since then, or 0 */
};

/* A read of a cell by a process, with the time at which it ends. It is an element of the array
 * `read` of struct twill_cells. `next` is the index there of an earlier read of the same cell, or 0
 * if there is none. */
struct twill_read {
    uint32_t reader, time, next;
};

/* All memory of all ranks in one verification, part of struct twill_checker. twill_cells_open()
 * makes its arrays, and twill_cells_close() frees them. */
struct twill_cells {
    struct twill_cell *cell;
    struct twill_read *read; /* [read_capacity], of which `reads` have been used, [0] never */
    uint32_t reads, read_capacity, free; /* `free` is the first of a list of unused reads, or 0 */
};

/* Allocate that many cells. Returns false if out of memory. Close the memory in any case. */
bool twill_cells_open(struct twill_cells *m, size_t cells);
/* Free the cells and their reads. */
void twill_cells_close(struct twill_cells *m);
/* Record that a process (a simulated lane) with this vector clock reads a cell. The read ends at
 * `time` of its own clock, or is open (TWILL_OPEN). Returns NULL, or a text if it is not ordered
 * after the last write, with *other set to the process that wrote. Also returns a text if out of
 * memory. */
const char *twill_cells_read(struct twill_cells *m, size_t cell, uint32_t process,
                             const uint32_t *clock, uint32_t time, uint32_t *other);
/* Record that a process (a simulated lane) with this vector clock writes a cell. The write ends at
 * `time` of its own clock, or is open (TWILL_OPEN). Returns NULL, or a text if it is not ordered
 * after the last write and all reads since then. *other is then the process of that access. */
const char *twill_cells_write(struct twill_cells *m, size_t cell, uint32_t process,
                              const uint32_t *clock, uint32_t time, uint32_t *other);
/* End the open access of a process to a cell at `time`, if there is one. */
void twill_cells_close_access(struct twill_cells *m, size_t cell, uint32_t process, uint32_t time);

/* --- the checker (verify_checker.c, verify_step.c) -------------------------------------------- */
/* The set of ranks that a process knows to have started. Reference-counted, copied on write. */
struct twill_known_ranks {
    uint32_t users;  /* references */
    uint64_t bits[]; /* by rank */
};

/* A message that has been sent and not received, with what its sender knew. Its channel owns it. */
struct twill_message {
    struct twill_message *next;
    struct twill_known_ranks *known; /* ranks that had started, NULL without `fingerprint` */
    uint32_t run, blocks;            /* the number of the run, and that of blocks in the message */
    uint32_t clock_size;             /* of the vector clock, 0 between nodes with `fingerprint` */
    bool partial;                    /* the step of the sender has the flag PARTIAL */
    uint32_t word[];                 /* [blocks] values, then [clock_size] clock */
};

/* The messages of a sender, receiver and lane that are in flight. The checker owns the channels. */
struct twill_channel {
    uint64_t key;            /* 0 if free */
    uint32_t sent, received; /* number of messages posted so far on each side */
    struct twill_message *first, *last;
};

/* The clocks of a process at its signals, PUT_IMM or start, in a run. The checker owns it. */
struct twill_snapshots {
    uint32_t **clock;                 /* [count] */
    struct twill_known_ranks **known; /* [count], NULL unless by fingerprint */
    uint32_t count;
};

/* One lane of one rank in one of the instances in flight, simulated. The instances are numbered by
 * `slot`, and `run` is the number of the execution of the schedules. The checker owns it. */
struct twill_process {
    uint32_t rank, slot, lane, run;
    uint32_t at, end;              /* steps, or both UINT32_MAX if idle */
    uint32_t posted;               /* first step since the last WAIT */
    uint32_t *ticket;              /* [most_posted] number of each posted message on its channel */
    uint32_t tickets;              /* number of posted messages */
    uint32_t clock_size, position; /* numbers in the clock, and index of this process in it */
    uint32_t *clock; /* [clock_size] all processes, or with `fingerprint` those of the node */
    struct twill_known_ranks *known; /* NULL without `fingerprint` */
};

/* The order of events, as clocks of processes at their signals and starts. The checker owns it. */
struct twill_checker_clocks {
    struct twill_snapshots *signal; /* [run][process] */
    struct twill_snapshots *imm;    /* [run][process] at its PUT_IMM */
    struct twill_snapshots *begin;  /* [run][process] of lane 0, one clock at the start */
    uint32_t *started; /* [runs * ranks] time of lane 0 at the start, 0 if not started */
};

/* One verification, on the stack of its function. With `fingerprint`, for large worlds, there is
 * one run, and a vector clock has only the processes of a node. It thus orders only what happens
 * between these. From processes of other nodes, a process learns only which ranks have started. */
struct twill_checker {
    const struct twill_schedule *schedules;
    const struct twill_world *world;
    const struct twill_shape *shape;
    struct twill_error *error;
    bool in_place, fingerprint;
    /* Numbers of instances in flight, of copies of SHARED and IMM, of executions of the schedules,
     * of lanes of the rank with the most, of blocks of the message, and of processes. */
    uint32_t window, copies, runs, lanes, blocks, processes;
    uint32_t shard_blocks; /* number of blocks of a shard */
    struct twill_values values;
    struct twill_cells memory;
    size_t *base;                  /* [ranks * TWILL_SPACE_COUNT] first cell of a space */
    struct twill_process *process; /* [slot][rank][lane] */
    /* A hash table of channels by key. */
    struct twill_channels {
        struct twill_channel *at; /* [slots], a power of two */
        size_t slots, count;
    } channels;
    struct twill_checker_clocks clocks;
    uint32_t *next_run;   /* [ranks] the run that each rank starts next */
    uint32_t *lanes_left; /* [slot][rank] number of lanes of the run there that have not ended */
    uint32_t *result;     /* [runs * blocks] value that all ranks must have, 0 if unknown */
};

/* Allocate what a checker needs whose schedules, runs and blocks are set. Returns false if out of
 * memory. Close it in any case. */
bool twill_checker_open(struct twill_checker *c);
/* Free what a checker has allocated. */
void twill_checker_close(struct twill_checker *c);
/* Return the index of the process, a simulated lane, of a lane of a rank in the instance `slot`. */
static inline uint32_t twill_checker_process(const struct twill_checker *c, uint32_t slot,
                                             uint32_t rank, uint32_t lane)
{
    return (slot * c->world->size + rank) * c->lanes + lane;
}
/* Return the index of the cell of a block of `rank` in the instance of the process. */
size_t twill_checker_cell(const struct twill_checker *c, const struct twill_process *p,
                          uint32_t rank, unsigned space, uint32_t block);
/* Return the channel between two ranks in the lane of the process, which is made if it is new.
 * Returns NULL if out of memory. Invalidates pointers to other channels. */
struct twill_channel *twill_checker_channel(struct twill_checker *c, const struct twill_process *p,
                                            uint32_t from, uint32_t to);
/* Append the clock of the process to the snapshots. Returns false if out of memory. */
bool twill_checker_snapshot(const struct twill_checker *c, struct twill_snapshots *snapshots,
                            const struct twill_process *p);
/* Create the message of a SEND, with the clock of the sender and values of 0. Returns NULL if out
 * of memory. The caller frees it with twill_checker_message_free(). */
struct twill_message *twill_checker_message(const struct twill_checker *c,
                                            const struct twill_process *p,
                                            const struct twill_step *send);
/* Free a message, which is in no channel. */
void twill_checker_message_free(struct twill_message *message);
/* Merge the clock of another process, and the ranks that it knows to have started (unless NULL),
 * into that of p. Returns false if out of memory. */
bool twill_checker_join(const struct twill_checker *c, struct twill_process *p,
                        const uint32_t *clock, uint32_t clock_size,
                        const struct twill_known_ranks *known);
/* Return whether a process knows that the rank has started the run of the process. */
bool twill_checker_knows(const struct twill_checker *c, const struct twill_process *p,
                         uint32_t rank);
/* If the checker has `fingerprint`, let all lanes of a rank know only that this rank has started.
 * `p` must be the process of lane 0 of the rank. Else do nothing. Returns false if out of
 * memory. */
bool twill_checker_begin(const struct twill_checker *c, struct twill_process *p);
/* Record that the current step of the process is wrong, and return TWILL_ERR_INTERNAL. The message
 * ends with `why`. It names space (unless TWILL_SPACE_COUNT), block and rank, and as `other` the
 * process with which it races (unless TWILL_NO_RANK). */
twill_status twill_checker_fail(const struct twill_checker *c, const struct twill_process *p,
                                const char *why, unsigned space, uint32_t block, uint32_t rank,
                                uint32_t other);
/* Do the current step of the process. Returns TWILL_PENDING if it cannot be done yet. */
twill_status twill_checker_step(struct twill_checker *c, struct twill_process *p);

#endif
