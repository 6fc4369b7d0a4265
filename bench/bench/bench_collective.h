/* SPDX-License-Identifier: Apache-2.0 */
/* What twill-bench knows of each collective: who has which parts of the buffers, how it is called
 * in its three forms, how its bandwidth is counted. */
#ifndef TWILL_BENCH_COLLECTIVE_H
#define TWILL_BENCH_COLLECTIVE_H

#include "lib/twill.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum twill_bench_collective {
    TWILL_BENCH_ALLREDUCE,
    TWILL_BENCH_BROADCAST,
    TWILL_BENCH_BARRIER,
    TWILL_BENCH_REDUCE,
    TWILL_BENCH_ALLGATHER,
    TWILL_BENCH_ALLGATHERV,
    TWILL_BENCH_REDUCE_SCATTER,
    TWILL_BENCH_REDUCE_SCATTERV,
    TWILL_BENCH_GATHER,
    TWILL_BENCH_GATHERV,
    TWILL_BENCH_SCATTER,
    TWILL_BENCH_SCATTERV,
    TWILL_BENCH_ALLTOALL,
    TWILL_BENCH_ALLTOALLV,
    TWILL_BENCH_SENDRECV, /* to the next rank, from the one before */
    TWILL_BENCH_COLLECTIVE_COUNT
};

/* Which parts of a buffer a rank has. */
enum twill_bench_holder {
    TWILL_BENCH_NOTHING,
    TWILL_BENCH_EVERYTHING,
    TWILL_BENCH_OWN,
    TWILL_BENCH_ROOT
};

struct twill_bench_facts {
    const char *name;
    bool reduces, rooted;
    bool sharded; /* a part for each rank: a size is that of all parts together */
    bool vector;  /* of uneven parts: every other one half as large again, the rest half as large */
    bool out_of_place; /* never in place */
    enum twill_bench_holder src, dst;
    enum {
        TWILL_BENCH_BUS_NONE,
        TWILL_BENCH_BUS_ONE,
        TWILL_BENCH_BUS_MOST,
        TWILL_BENCH_BUS_TWICE
    } bus;
};

const struct twill_bench_facts *twill_bench_facts(enum twill_bench_collective collective);
/* The collective of this name, or -1. */
int twill_bench_find_collective(const char *name);
/* Bus bandwidth over algorithm bandwidth, as nccl-tests defines it. */
double twill_bench_bus_factor(enum twill_bench_collective collective, int ranks);

/* One call. */
struct twill_bench_subject {
    enum twill_bench_collective collective;
    twill_type type;
    twill_op op;
    int rank, ranks;
    int root;      /* -1: has none */
    size_t count;  /* of one part */
    size_t bytes;  /* of all, as tables and bandwidths count them */
    size_t offset; /* bytes into the buffers */
    bool in_place;
};

/* Elements of part `part` between this rank and another, and where it begins in a buffer that has
 * all of them. The same on both sides. */
size_t twill_bench_shard_count(const struct twill_bench_subject *subject, int rank, int shard);
size_t twill_bench_shard_first(const struct twill_bench_subject *subject, int rank, int shard);
/* Most bytes that a buffer must have. */
size_t twill_bench_buffer_bytes(const struct twill_bench_facts *facts, size_t bytes);

/* Where the call reads and writes, given the two buffers. */
struct twill_bench_pointers {
    char *src, *dst;
};
struct twill_bench_pointers twill_bench_pointers(const struct twill_bench_subject *subject,
                                                 char *src, char *dst);
/* Fill what the call reads; count what is wrong of what it must have written. */
void twill_bench_fill_src(const struct twill_bench_subject *subject, struct twill_bench_pointers at,
                          unsigned round);
size_t twill_bench_wrong_dst(const struct twill_bench_subject *subject,
                             struct twill_bench_pointers at, unsigned round);

enum twill_bench_form { TWILL_BENCH_BLOCKING, TWILL_BENCH_NONBLOCKING, TWILL_BENCH_PERSISTENT };
/* Counts and offsets of a vector call, ranks of each; filled once per subject. */
struct twill_bench_vectors {
    size_t *src_count, *src_first, *dst_count, *dst_first;
};
void twill_bench_describe(const struct twill_bench_subject *subject,
                          const struct twill_bench_vectors *vectors);
/* Call it; *request is set by the forms other than BLOCKING. */
twill_status twill_bench_begin(const struct twill_bench_subject *subject, twill_comm *comm,
                               struct twill_bench_pointers at,
                               const struct twill_bench_vectors *vectors,
                               enum twill_bench_form form, twill_request **request);

#endif
