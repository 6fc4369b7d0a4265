/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier: values as expressions, memory with its history, and the checker that runs the
 * schedules of all ranks. Internal to this folder.
 *
 * Synchronisation is deterministic: messages, signals and IMM lines are matched by number, not by
 * arrival. So one execution shows every ordering: two accesses that happens-before does not order
 * in it can happen either way round. Clocks are vectors over processes; a process is one lane of
 * one rank in one of the instances in flight. A run is one execution of the schedules. */
#ifndef TWILL_VERIFY_H
#define TWILL_VERIFY_H

#include "algorithms/algorithms.h"

/* --- values (verify_value.c) ------------------------------------------------------------------ */

enum twill_value_state {
    TWILL_STATE_RAW,     /* a rank's input */
    TWILL_STATE_PARTIAL, /* reduced, perhaps wider than an element */
    TWILL_STATE_FINAL    /* FINAL was applied */
};

/* An input of a rank, or a reduction of values. Values are numbered from 1; equal expressions get
 * equal numbers, so equal numbers mean equal bits. Number 0 means "never written". */
struct twill_value {
    uint32_t run, block;  /* run and block of SRC of the inputs */
    uint32_t members;     /* inputs in it */
    uint32_t first, last; /* ranks of the leftmost and the rightmost input */
    uint32_t expression;  /* number of this expression, whatever its state */
    uint32_t left, right; /* left 0: an input; right 0: `left` in another state */
    uint32_t chain;       /* next with the same hash */
    uint64_t sum;         /* of a random number for each input */
    enum twill_value_state state;
    bool ordered;   /* the inputs are those of consecutive ranks, in order */
    bool from_left; /* from rank 0 on, reduced from the left one by one */
};

/* All values. */
struct twill_values {
    uint32_t ranks, words; /* words of a set; 0: sums are compared in place of sets */
    enum twill_order order;
    struct twill_value *value;
    uint64_t *set; /* [count * words] ranks whose inputs are in it */
    uint32_t count, capacity;
    uint32_t *bucket; /* [buckets], a power of two */
    uint32_t buckets;
};

/* fingerprint: tell contributions apart by sums of random numbers, not by sets. Returns false if
 * out of memory. */
bool twill_values_open(struct twill_values *v, uint32_t ranks, enum twill_order order,
                       bool fingerprint);
void twill_values_close(struct twill_values *v);
/* Return a new value for a rank's input; 0 if out of memory. */
uint32_t twill_values_input(struct twill_values *v, uint32_t run, uint32_t rank, uint32_t block);
/* Reduce operands from left to right into *result. Returns NULL, or why that is wrong. */
const char *twill_values_reduce(struct twill_values *v, const uint32_t *operand, uint32_t length,
                                bool final, uint32_t *result);

/* --- memory (verify_memory.c) ----------------------------------------------------------------- */

/* A cell is a block of a space. The access of a posted operation has an open end (TWILL_OPEN) until
 * its WAIT. A process is ordered after an access if its clock has reached the access's end. */
#define TWILL_OPEN UINT32_MAX

struct twill_cell {
    uint32_t value;
    uint32_t writer, written; /* process and time of the last write */
    uint32_t reads;           /* list of the reads since then, 0: none */
};

struct twill_read {
    uint32_t reader, time, next;
};

/* All memory of all ranks. */
struct twill_cells {
    struct twill_cell *cell;
    struct twill_read *read; /* [0] unused */
    uint32_t reads, read_capacity, free;
};

bool twill_cells_open(struct twill_cells *m, size_t cells);
void twill_cells_close(struct twill_cells *m);
/* Record an access by a process with this clock that ends at `time`. Returns NULL, or what it
 * conflicts with; then *other is the process that it races with. */
const char *twill_cells_read(struct twill_cells *m, size_t cell, uint32_t process,
                             const uint32_t *clock, uint32_t time, uint32_t *other);
const char *twill_cells_write(struct twill_cells *m, size_t cell, uint32_t process,
                              const uint32_t *clock, uint32_t time, uint32_t *other);
/* End the open access of a process to a cell. */
void twill_cells_close_access(struct twill_cells *m, size_t cell, uint32_t process, uint32_t time);

/* --- the checker (verify_checker.c, verify_step.c) -------------------------------------------- */

/* The ranks that a process knows to have started; reference-counted, copied on write. */
struct twill_known_ranks {
    uint32_t users; /* references */
    uint64_t bits[];
};

struct twill_message {
    struct twill_message *next;
    struct twill_known_ranks *known; /* NULL: the clock is used */
    uint32_t run, blocks;
    uint32_t clock_size; /* 0: by fingerprint, if the receiver is on another node */
    bool partial;        /* the sender's step says PARTIAL */
    uint32_t word[];     /* [blocks] values, [clock_size] clock */
};

/* The messages of one (from, to, lane) that have been sent and not received. */
struct twill_channel {
    uint64_t key;            /* 0: free */
    uint32_t sent, received; /* messages posted so far */
    struct twill_message *first, *last;
};

/* Clocks at the signals, or the one PUT_IMM, of a process in a run. */
struct twill_snapshots {
    uint32_t **clock;
    struct twill_known_ranks **known;
    uint32_t count;
};

struct twill_process {
    uint32_t rank, slot, lane, run;
    uint32_t at, end; /* steps; both UINT32_MAX: idle */
    uint32_t posted;  /* first step since the last WAIT */
    uint32_t *ticket; /* [most_posted] number of each posted message on its channel */
    uint32_t tickets;
    uint32_t clock_size, position; /* of the clock, and index of this process in it */
    uint32_t *clock; /* [clock_size] all processes; by fingerprint those of the node */
    struct twill_known_ranks *known; /* NULL unless by fingerprint */
};

/* What happens before what: the clocks of processes at their signals and starts. */
struct twill_checker_clocks {
    struct twill_snapshots *signal; /* [run][process] */
    struct twill_snapshots *imm;    /* [run][process] */
    struct twill_snapshots *begin;  /* [run][process] of lane 0: one clock, at the start */
    uint32_t *started;              /* [runs * ranks] lane 0's time of start, 0: not yet */
};

/* One verification. By fingerprint there is one run, and clocks have the processes of a node only:
 * what happens between these orders them. Through other nodes they learn only which ranks have
 * started. */
struct twill_checker {
    const struct twill_schedule *schedules;
    const struct twill_world *world;
    const struct twill_shape *shape;
    struct twill_error *error;
    bool in_place, fingerprint;
    uint32_t window, copies, runs, lanes, blocks, processes;
    uint32_t shard_blocks; /* blocks of a shard */
    struct twill_values values;
    struct twill_cells memory;
    size_t *base;                  /* [ranks * TWILL_SPACE_COUNT] first cell of a space */
    struct twill_process *process; /* [slot][rank][lane] */
    struct twill_channels {
        struct twill_channel *at; /* [slots], a power of two, by hash */
        size_t slots, count;
    } channels;
    struct twill_checker_clocks clocks;
    uint32_t *next_run;   /* [ranks] */
    uint32_t *lanes_left; /* [slot * ranks] */
    uint32_t *result;     /* [runs * blocks] value that all ranks must have, 0: unknown */
};

bool twill_checker_open(struct twill_checker *c);
void twill_checker_close(struct twill_checker *c);
static inline uint32_t twill_checker_process(const struct twill_checker *c, uint32_t slot,
                                             uint32_t rank, uint32_t lane)
{
    return (slot * c->world->size + rank) * c->lanes + lane;
}
/* Return the cell of a block of `rank`, in the process's instance. */
size_t twill_checker_cell(const struct twill_checker *c, const struct twill_process *p,
                          uint32_t rank, unsigned space, uint32_t block);
/* Get a channel of the process's lane; NULL: out of memory. Pointers to other channels become
 * invalid. */
struct twill_channel *twill_checker_channel(struct twill_checker *c, const struct twill_process *p,
                                            uint32_t from, uint32_t to);
/* Append the process's clock to the snapshots. */
bool twill_checker_snapshot(const struct twill_checker *c, struct twill_snapshots *snapshots,
                            const struct twill_process *p);
/* Create the message of a SEND with the sender's clock and values of 0. NULL: out of memory. */
struct twill_message *twill_checker_message(const struct twill_checker *c,
                                            const struct twill_process *p,
                                            const struct twill_step *send);
void twill_checker_message_free(struct twill_message *message);
/* Merge what another process knew into this one: its clock, and the ranks known to have started. */
bool twill_checker_join(const struct twill_checker *c, struct twill_process *p,
                        const uint32_t *clock, uint32_t clock_size,
                        const struct twill_known_ranks *known);
/* Return whether a process knows that the rank has started the process's run. */
bool twill_checker_knows(const struct twill_checker *c, const struct twill_process *p,
                         uint32_t rank);
/* By fingerprint: set the lanes of the rank of process `p`, its lane 0, to know of it alone. */
bool twill_checker_begin(const struct twill_checker *c, struct twill_process *p);
/* Fail at the process's current step. `why` ends the message; space (TWILL_SPACE_COUNT: none),
 * block and rank are what it is about, other (TWILL_NO_RANK: none) the process it races with. */
twill_status twill_checker_fail(const struct twill_checker *c, const struct twill_process *p,
                                const char *why, unsigned space, uint32_t block, uint32_t rank,
                                uint32_t other);
/* Do the process's current step. TWILL_PENDING: it cannot be done yet. */
twill_status twill_checker_step(struct twill_checker *c, struct twill_process *p);

#endif
