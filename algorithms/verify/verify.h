/* SPDX-License-Identifier: Apache-2.0 */
/* The verifier's parts: values as expressions, memory with its history, and the machine that runs
 * the schedules of all ranks. Internal to this room.
 *
 * Synchronisation is deterministic (a message, a signal or a line is identified by its number, not
 * by who comes first), so one execution shows every ordering there is: what is not ordered by
 * happens-before in it can happen either way round. Clocks are vectors over processes; a process
 * is one lane of one rank in one of the instances in flight. */
#ifndef TWILL_VERIFY_H
#define TWILL_VERIFY_H

#include "algorithms/algorithms.h"

/* Values: number 0 is "never written". A value is an input of a rank, or a fold of values; equal
 * expressions have equal numbers, so that equal numbers mean equal bits. */
enum twill_value_state {
    TWILL_STATE_RAW,     /* somebody's input */
    TWILL_STATE_PARTIAL, /* folded, perhaps wider than an element */
    TWILL_STATE_FINAL    /* FINAL was applied */
};

struct twill_value {
    uint32_t run, block;  /* as which block of SRC it was put in */
    uint32_t members;     /* inputs in it */
    uint32_t first, last; /* ranks of the leftmost and the rightmost input */
    uint32_t expression;  /* what it is, whatever its state */
    uint32_t left, right; /* left 0: an input; right 0: left in another state */
    uint32_t chain;       /* next with the same hash */
    uint64_t sum;         /* of a random number for each input */
    enum twill_value_state state;
    bool ordered;   /* the inputs are consecutive ranks */
    bool from_left; /* the same, from rank 0 on, folded from the left one by one */
};

struct twill_values {
    uint32_t ranks, words; /* words of a set; 0: sums tell */
    enum twill_order order;
    struct twill_value *value;
    uint64_t *set; /* [count * words] ranks whose inputs are in it */
    uint32_t count, capacity;
    uint32_t *bucket; /* [buckets], a power of two */
    uint32_t buckets;
};

/* fingerprint: by sums of random numbers, not sets, are contributions told apart. */
bool twill_values_open(struct twill_values *v, uint32_t ranks, enum twill_order order,
                       bool fingerprint);
void twill_values_close(struct twill_values *v);
/* 0: no memory. */
uint32_t twill_values_input(struct twill_values *v, uint32_t run, uint32_t rank, uint32_t block);
/* The fold of operands, into *result; or why not. */
const char *twill_values_reduce(struct twill_values *v, const uint32_t *operand, uint32_t length,
                                bool final, uint32_t *result);

/* Memory: the value of each cell, its last write, and the reads since. An operation that is posted
 * has an open end (TWILL_OPEN) until its WAIT; a process is ordered after an access if its clock
 * has reached the access's end. */
#define TWILL_OPEN    UINT32_MAX
#define TWILL_NO_RANK UINT32_MAX

struct twill_cell {
    uint32_t value;
    uint32_t writer, written; /* process and time */
    uint32_t reads;           /* head of the list, 0: none */
};

struct twill_read {
    uint32_t reader, time, next;
};

struct twill_cells {
    struct twill_cell *cell;
    struct twill_read *read; /* [0] unused */
    uint32_t reads, read_capacity, free;
};

bool twill_cells_open(struct twill_cells *m, size_t cells);
void twill_cells_close(struct twill_cells *m);
/* Enter an access that ends at `time` by a process with this clock. What it conflicts with, or
 * NULL; *other is the process that it races with. */
const char *twill_cells_read(struct twill_cells *m, size_t cell, uint32_t process,
                             const uint32_t *clock, uint32_t time, uint32_t *other);
const char *twill_cells_write(struct twill_cells *m, size_t cell, uint32_t process,
                              const uint32_t *clock, uint32_t time, uint32_t *other);
/* Give open accesses of a process their end. */
void twill_cells_close_access(struct twill_cells *m, size_t cell, uint32_t process, uint32_t time);

/* The machine. */

/* Ranks that have begun, as far as a process has heard; shared until somebody hears of more. */
struct twill_known_ranks {
    uint32_t users;
    uint64_t bits[];
};

struct twill_message {
    struct twill_message *next;
    struct twill_known_ranks *known; /* NULL: the clock tells */
    uint32_t run, blocks;
    uint32_t clock_size; /* of the clock: 0 if the receiver is of another domain */
    bool partial;        /* so says the sender */
    uint32_t word[];     /* [blocks] values, [span] clock */
};

struct twill_channel {
    uint64_t key;            /* who to whom, on which lane, 0: free */
    uint64_t sent, received; /* posted so far */
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
    uint32_t at, end; /* steps; at == end: idle */
    uint32_t posted;  /* first step since the last WAIT */
    uint64_t *ticket; /* [most_posted] number of each posted message on its channel */
    uint32_t tickets;
    uint32_t clock_size, position; /* of the clock, and where this process is in it */
    uint32_t *clock;               /* [span]: all processes, or those of the domain */
    struct twill_known_ranks *known;
};

/* By fingerprint there is one run, and a clock has the processes of a node only: these know of each
 * other by what happens between them; what they hear through other nodes is who has begun. */
struct twill_verifier {
    const struct twill_schedule *schedules;
    const struct twill_world *world;
    const struct twill_shape *shape;
    struct twill_error *error;
    bool in_place, fingerprint;
    uint32_t window, copies, runs, lanes, blocks, processes;
    uint32_t shard_blocks; /* blocks of a part */
    struct twill_values values;
    struct twill_cells memory;
    size_t *base;                  /* [ranks * TWILL_SPACE_COUNT] first cell of a space */
    struct twill_process *process; /* [slot][rank][lane] */
    struct twill_channel *channel; /* [channel_slots], a power of two, by hash */
    size_t channel_slots, channels;
    struct twill_snapshots *signal; /* [run][process] */
    struct twill_snapshots *imm;    /* [run][process] */
    struct twill_snapshots *begin;  /* [run][process] of lane 0: the one clock, at the begin */
    uint32_t *started;              /* [runs * ranks] time of begin at lane 0, 0: not yet */
    uint32_t *next_run;             /* [ranks] */
    uint32_t *lanes_left;           /* [slot * ranks] */
    uint32_t *result;               /* [runs * blocks] what all must have of a reduction */
};

bool twill_machine_open(struct twill_verifier *m);
void twill_machine_close(struct twill_verifier *m);
static inline uint32_t twill_machine_process(const struct twill_verifier *m, uint32_t slot,
                                             uint32_t rank, uint32_t lane)
{
    return (slot * m->world->size + rank) * m->lanes + lane;
}
/* Cell of an operand of `rank`, as the process sees it, plus i blocks. */
size_t twill_machine_cell(const struct twill_verifier *m, const struct twill_process *p,
                          uint32_t rank, unsigned space, uint32_t block);
/* The channel of the process's lane; NULL: no memory. Others may move when one is made. */
struct twill_channel *twill_machine_channel(struct twill_verifier *m, const struct twill_process *p,
                                            uint32_t from, uint32_t to);
/* Record the process's clock. */
bool twill_machine_snapshot(const struct twill_verifier *m, struct twill_snapshots *snapshots,
                            const struct twill_process *p);
struct twill_message *twill_machine_message(const struct twill_verifier *m,
                                            const struct twill_process *p, uint32_t to,
                                            uint32_t blocks);
void twill_machine_message_free(struct twill_message *message);
/* Learn what a process knew: the first `span` times of a clock, and whom it had heard of. */
bool twill_machine_join(const struct twill_verifier *m, struct twill_process *p,
                        const uint32_t *clock, uint32_t clock_size,
                        const struct twill_known_ranks *known);
/* Does a process know that this rank has begun the run that it is in? */
bool twill_machine_knows(const struct twill_verifier *m, const struct twill_process *p,
                         uint32_t rank);
/* A process knows that its own rank has begun. */
bool twill_machine_begin(const struct twill_verifier *m, struct twill_process *p);
/* Record the failure of a process at its present step. */
twill_status twill_machine_fail(const struct twill_verifier *m, const struct twill_process *p,
                                const char *why, unsigned space, uint32_t block, uint32_t rank,
                                uint32_t other);
/* Do the step the process is at, if it can be done: TWILL_OK, TWILL_PENDING or an error. */
twill_status twill_machine_step(struct twill_verifier *m, struct twill_process *p);

#endif
