/* SPDX-License-Identifier: Apache-2.0 */
/* The board of twill-compare: a file that the driver and the ranks of one program map. On it the
 * driver writes what to measure next, the ranks write what they measured. Between turns all ranks
 * sleep, so that many programs stay started and take turns without disturbing each other.
 * C and C++: the programs of peers are written in either. */
#ifndef TWILL_BOARD_H
#define TWILL_BOARD_H

#include <linux/futex.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    TWILL_COMPARE_RANKS = 64,
    TWILL_COMPARE_BATCHES = 40, /* at most, in a turn */
    TWILL_COMPARE_TEXT = 200,   /* of a message */
    TWILL_COMPARE_EXCHANGE = 1 << 16
};

enum twill_compare_collective {
    TWILL_COMPARE_ALLREDUCE,      /* in place */
    TWILL_COMPARE_ALLREDUCE_OUT,  /* out of place */
    TWILL_COMPARE_BROADCAST,      /* one buffer a rank, root 0 */
    TWILL_COMPARE_ALLGATHER,      /* bytes: the part of a rank */
    TWILL_COMPARE_REDUCE_SCATTER, /* bytes: the part of a rank */
    TWILL_COMPARE_BARRIER,
    TWILL_COMPARE_COMMON, /* those before it every program has, the others it must say */
    TWILL_COMPARE_REDUCE = TWILL_COMPARE_COMMON, /* root 0, of this and the next two */
    TWILL_COMPARE_GATHER,                        /* bytes: the part of a rank */
    TWILL_COMPARE_SCATTER,                       /* likewise */
    TWILL_COMPARE_ALLTOALL,                      /* bytes: what a rank has for another */
    /* calls of one rank with itself, which twill leaves to the MPI below: what that costs */
    TWILL_COMPARE_SELF_BARRIER,
    TWILL_COMPARE_SELF_ALLREDUCE,
    TWILL_COMPARE_SELF_MESSAGE, /* begun, received, and waited for with others */
    TWILL_COMPARE_COLLECTIVES
};

static inline int twill_compare_of_self(enum twill_compare_collective what)
{
    return what >= TWILL_COMPARE_SELF_BARRIER;
}

/* How many times `bytes` a rank's source has, or its result; 0: there is none, or it is the source.
 */
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

/* What is to be measured in a turn. */
struct twill_compare_order {
    uint32_t collective;
    uint32_t check; /* values first */
    uint32_t keep;  /* the buffers, for the next turn of this size */
    uint32_t leave; /* nothing any more: end */
    uint32_t least; /* batches */
    uint32_t line;  /* measure how long a line takes from rank 0 to rank 1 */
    uint64_t bytes;
    double batch_seconds; /* as long as a batch of calls should take */
    double turn_seconds;  /* and all batches together */
};

struct twill_compare_line {
    uint64_t value;
    char rest[56];
};

struct twill_compare_board {
    int32_t driver, ranks; /* a pid; a number */
    uint32_t core[TWILL_COMPARE_RANKS];
    uint32_t bind;     /* a rank moves to its core before it starts the library */
    uint64_t capacity; /* bytes of the largest buffer */

    uint32_t turn; /* a futex: counts up when an order is there */
    struct twill_compare_order order;

    uint32_t done; /* a futex: ranks that are through with it */
    uint64_t calls, batches;
    double line_seconds;
    uint64_t line_start;                 /* the value from which it is counted */
    uint32_t error[TWILL_COMPARE_RANKS]; /* 1: the program says why */
    uint64_t wrong[TWILL_COMPARE_RANKS]; /* values */
    double seconds[TWILL_COMPARE_RANKS][TWILL_COMPARE_BATCHES]; /* of a call, mean of a batch */
    int32_t pid[TWILL_COMPARE_RANKS];
    char library[TWILL_COMPARE_TEXT];
    char message[TWILL_COMPARE_TEXT];

    /* for programs that have no launcher of their own, an allgather: how many a rank has posted,
     * and what it gave in the last and the one before */
    uint64_t posted[TWILL_COMPARE_RANKS];
    char exchange[2][TWILL_COMPARE_RANKS][TWILL_COMPARE_EXCHANGE];

    struct twill_compare_line ping __attribute__((aligned(128))),
        pong __attribute__((aligned(128)));
};

/* Sleep until *word is no longer `old`, or for so long. */
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
