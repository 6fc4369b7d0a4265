/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives that twill-bench calls, and what their buffers must hold. */
#ifndef TWILL_BENCH_COLLECTIVE_H
#define TWILL_BENCH_COLLECTIVE_H

#include "bench/common/measured_collectives.h"
#include "lib/twill.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The shards of a buffer that a rank has, which are none, all, its own, or all on the root only. */
enum twill_bench_holder {
    TWILL_BENCH_NOTHING,
    TWILL_BENCH_EVERYTHING,
    TWILL_BENCH_OWN,
    TWILL_BENCH_ROOT
};

/* The properties of a collective, one constant for each. `bus` says how many times the algorithm
 * bandwidth the bus bandwidth is. With P ranks that is 0 (NONE), 1 (ONE), (P - 1) / P (MOST) or 2
 * (P - 1) / P (TWICE). */
struct twill_bench_facts {
    const char *name;
    bool reduces, rooted;
    bool sharded;      /* one shard per rank, and sizes are those of all shards together */
    bool vector;       /* every other shard is half as large again, and the rest half as large */
    bool out_of_place; /* has no in-place form */
    enum twill_bench_holder src, dst; /* the shards that a rank's source and result have */
    enum {
        TWILL_BENCH_BUS_NONE,
        TWILL_BENCH_BUS_ONE,
        TWILL_BENCH_BUS_MOST,
        TWILL_BENCH_BUS_TWICE
    } bus;
};

/* Return the constant properties of a collective. */
const struct twill_bench_facts *twill_bench_facts(enum twill_bench_collective collective);
/* Return the collective with this name, also as other programs spell it ("All_Reduce"), or -1. */
int twill_bench_find_collective(const char *name);
/* Return the bus bandwidth over the algorithm bandwidth, as nccl-tests defines it. */
double twill_bench_bus_factor(enum twill_bench_collective collective, int ranks);

/* A call to measure, as this rank makes it. */
struct twill_bench_subject {
    enum twill_bench_collective collective;
    twill_type type;
    twill_op op;
    twill_op called; /* op, or its replacement by --narrow or --reduce-delay */
    int rank, ranks;
    int root;      /* -1 if there is no root */
    size_t count;  /* elements of an even shard, or of the message if it is not sharded */
    size_t bytes;  /* bytes of all shards, as tables and bandwidths count them */
    size_t offset; /* where the elements begin in the buffers, in bytes */
    bool in_place;
};

/* Return the elements of shard `shard`. In alltoallv that is what `rank` and rank `shard` exchange,
 * and otherwise `rank` is not used. */
size_t twill_bench_shard_count(const struct twill_bench_subject *subject, int rank, int shard);
/* Return the index of the first element of a shard in a buffer that has the shards of all ranks. In
 * alltoallv, whose shards differ from rank to rank, this is the buffer of rank `rank`. */
size_t twill_bench_shard_first(const struct twill_bench_subject *subject, int rank, int shard);
/* Return the bytes that a buffer needs for a message of `bytes`, half more in vector calls. */
size_t twill_bench_buffer_bytes(const struct twill_bench_facts *facts, size_t bytes);

/* Where the call reads and writes, given the two buffers. */
struct twill_bench_pointers {
    char *src, *dst;
};
/* Return the addresses that the call reads and writes. They are in the two buffers or, in place,
 * both in `dst`. */
struct twill_bench_pointers twill_bench_pointers(const struct twill_bench_subject *subject,
                                                 char *src, char *dst);
/* Fill what the call reads with the values of a round. */
void twill_bench_fill_src(const struct twill_bench_subject *subject, struct twill_bench_pointers at,
                          unsigned round);
/* Return the number of wrong elements in what the call of this round has written. */
size_t twill_bench_wrong_dst(const struct twill_bench_subject *subject,
                             struct twill_bench_pointers at, unsigned round);

enum twill_bench_form { TWILL_BENCH_BLOCKING, TWILL_BENCH_NONBLOCKING, TWILL_BENCH_PERSISTENT };
/* Counts and offsets of a vector call in elements, an entry for each rank. Part of the memory of a
 * run, filled by twill_bench_describe() for each subject. */
struct twill_bench_vectors {
    size_t *src_count, *src_first, *dst_count, *dst_first;
};
/* Store the counts and offsets that this rank passes to a vector call in the arrays of *vectors,
 * which have an entry for each rank. */
void twill_bench_describe(const struct twill_bench_subject *subject,
                          const struct twill_bench_vectors *vectors);
/* Make the call, or start it (NONBLOCKING) or set it up (PERSISTENT) as *request. */
twill_status twill_bench_begin(const struct twill_bench_subject *subject, twill_comm *comm,
                               struct twill_bench_pointers at,
                               const struct twill_bench_vectors *vectors,
                               enum twill_bench_form form, twill_request **request);

/* The values of a buffer or result. Each depends on rank, position and round. The expected result
 * is computed serially by the same rule, never received. */
struct twill_bench_payload {
    twill_type type;
    twill_op op; /* of a reduction, else not read */
    int ranks;
    int from; /* rank from which the values come, or -1 for a reduction over all ranks */
    unsigned round;
};

/* Number of operations that can be checked, the first ones. The last two, on pairs, cannot be. */
enum { TWILL_BENCH_OPS = TWILL_MINLOC };
_Static_assert(TWILL_MAXLOC == TWILL_BENCH_OPS + 1 && TWILL_OP_COUNT == TWILL_BENCH_OPS + 2,
               "a later operation needs its own place");
/* Return whether an operation on a type can be checked. */
bool twill_bench_op_takes(twill_op op, twill_type type);

/* Write `count` elements of what a rank contributes, from position `first` on. */
void twill_bench_fill(const struct twill_bench_payload *payload, int rank, uint64_t first,
                      void *buffer, size_t count);

/* Return how many elements from position `first` on are wrong, exactly unless f32 or f64 round. */
size_t twill_bench_count_wrong(const struct twill_bench_payload *payload, uint64_t first,
                               const void *buffer, size_t count);

#endif
