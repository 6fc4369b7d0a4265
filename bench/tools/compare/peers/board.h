/* SPDX-License-Identifier: Apache-2.0 */
/* The board of twill-compare: a file that the driver and the ranks of one program map. The driver
 * writes what to measure next (an order), the ranks write their results. Between turns all ranks
 * sleep, so that many programs stay started and take turns without disturbing each other. For C and
 * C++, as the peers' programs are in either. */
#ifndef TWILL_BOARD_H
#define TWILL_BOARD_H

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    TWILL_COMPARE_RANKS = 64,
    TWILL_COMPARE_BATCHES = 40, /* most in a turn */
    TWILL_COMPARE_TEXT = 200,   /* most bytes of a message */
    TWILL_COMPARE_EXCHANGE = 1 << 16,
    TWILL_COMPARE_TENSORS = 1024
};

enum twill_compare_collective {
    TWILL_COMPARE_ALLREDUCE,      /* in place */
    TWILL_COMPARE_ALLREDUCE_OUT,  /* out of place */
    TWILL_COMPARE_BROADCAST,      /* one buffer per rank, root 0 */
    TWILL_COMPARE_ALLGATHER,      /* bytes: one rank's shard */
    TWILL_COMPARE_REDUCE_SCATTER, /* bytes: one rank's shard */
    TWILL_COMPARE_BARRIER,
    /* every program has those above; the others must be declared by `supports` */
    TWILL_COMPARE_COMMON,
    TWILL_COMPARE_REDUCE = TWILL_COMPARE_COMMON, /* root 0, as for the next two */
    TWILL_COMPARE_GATHER,                        /* bytes: one rank's shard */
    TWILL_COMPARE_SCATTER,                       /* bytes: one rank's shard */
    TWILL_COMPARE_ALLTOALL,                      /* bytes: the shard for one other rank */
    /* calls of one rank with itself, which twill passes on: they show what that costs */
    TWILL_COMPARE_SELF_BARRIER,
    TWILL_COMPARE_SELF_ALLREDUCE,
    TWILL_COMPARE_SELF_MESSAGE, /* isend, irecv and waitall */
    TWILL_COMPARE_COLLECTIVES
};

static inline int twill_compare_is_self(enum twill_compare_collective what)
{
    return what >= TWILL_COMPARE_SELF_BARRIER;
}

/* Return the length of a rank's source (or result) in multiples of `bytes`. 0: there is none, or
 * the result overwrites the source. */
static inline uint64_t twill_compare_shards(enum twill_compare_collective what, uint64_t ranks,
                                            int result)
{
    switch (what) {
    case TWILL_COMPARE_ALLREDUCE:
    case TWILL_COMPARE_BROADCAST:
        return result ? 0 : 1;
    case TWILL_COMPARE_ALLGATHER:
    case TWILL_COMPARE_GATHER:
        return result ? ranks : 1;
    case TWILL_COMPARE_REDUCE_SCATTER:
    case TWILL_COMPARE_SCATTER:
        return result ? 1 : ranks;
    case TWILL_COMPARE_ALLTOALL:
        return ranks;
    case TWILL_COMPARE_ALLREDUCE_OUT:
    case TWILL_COMPARE_REDUCE:
        return 1;
    default:
        return 0;
    }
}

/* How the gradients of a played training step are reduced. */
enum twill_compare_step {
    TWILL_COMPARE_NO_STEP,
    TWILL_COMPARE_BY_TENSOR, /* each on its own, nonblocking, when the backward pass yields it; by
                                twill with a gradient set */
    TWILL_COMPARE_FUSED      /* all in one call after the backward pass, in memory without gaps */
};

/* The model of played steps: its tensors, in forward order, and what computes. */
struct twill_compare_tensor {
    uint64_t elements, first; /* floats; the first among those of all tensors */
    double forward;           /* seconds of its layer; the backward pass takes twice as long */
};
struct twill_compare_model {
    uint32_t tensors;
    uint32_t device;         /* 1: a device computes, not the rank's core */
    double turns_per_second; /* of the core: played_compute.h */
    struct twill_compare_tensor tensor[TWILL_COMPARE_TENSORS];
};

/* What to measure in a turn. */
struct twill_compare_order {
    uint32_t collective;
    uint32_t check; /* check values first */
    uint32_t keep;  /* keep the buffers for the next turn of this size */
    uint32_t quit;  /* end the program */
    uint32_t least; /* batches */
    uint32_t step;  /* not TWILL_COMPARE_NO_STEP: played steps, `least` of them */
    uint32_t line;  /* measure the latency of a cache line between ranks 0 and 1 */
    uint64_t bytes;
    double batch_seconds; /* target for one batch of calls */
    double turn_seconds;  /* target for all batches together */
};

struct twill_compare_line {
    uint64_t value;
    char rest[56];
};

struct twill_compare_board {
    int32_t driver, ranks; /* pid of the driver; number of ranks */
    uint32_t core[TWILL_COMPARE_RANKS];
    uint32_t bind;     /* each rank binds itself to its core before it starts the library */
    uint64_t capacity; /* bytes of the largest buffer */

    uint32_t turn; /* futex: incremented when an order is ready */
    struct twill_compare_order order;

    struct twill_compare_model model;

    uint32_t done; /* futex: ranks that have finished the order */
    uint64_t calls, batches;
    double line_seconds;
    uint64_t line_start;                 /* value at which the measurement starts */
    uint32_t error[TWILL_COMPARE_RANKS]; /* 1: failed, see `message` */
    uint64_t wrong[TWILL_COMPARE_RANKS]; /* number of wrong values */
    double seconds[TWILL_COMPARE_RANKS][TWILL_COMPARE_BATCHES]; /* per call, mean of a batch */
    int32_t pid[TWILL_COMPARE_RANKS];
    char library[TWILL_COMPARE_TEXT];
    char message[TWILL_COMPARE_TEXT];

    /* An allgather for programs without a launcher: how many each rank has posted, and its
     * contributions to the last two. */
    uint64_t posted[TWILL_COMPARE_RANKS];
    char exchange[2][TWILL_COMPARE_RANKS][TWILL_COMPARE_EXCHANGE];

    struct twill_compare_line ping __attribute__((aligned(128))),
        pong __attribute__((aligned(128)));
};

/* Sleep until *word differs from `old`, for `seconds` at most. */
static inline void twill_compare_sleep(uint32_t *word, uint32_t old, double seconds)
{
    struct timespec limit;
    limit.tv_sec = (time_t)seconds;
    limit.tv_nsec = (long)((seconds - (double)limit.tv_sec) * 1e9);
    syscall(SYS_futex, word, FUTEX_WAIT, old, &limit, (void *)0, 0);
}

static inline void twill_compare_wake(uint32_t *word)
{
    syscall(SYS_futex, word, FUTEX_WAKE, 1 << 20, (void *)0, (void *)0, 0);
}

static inline double twill_compare_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

#endif
