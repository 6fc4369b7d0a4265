/* SPDX-License-Identifier: Apache-2.0 */
/* What twill-bench knows of each collective: which shards of the buffers each rank has, how its
 * three forms are called, how its bandwidth is computed. */
#ifndef TWILL_BENCH_COLLECTIVE_H
#define TWILL_BENCH_COLLECTIVE_H

#include "bench/common/measured_collectives.h"
#include "lib/twill.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Which shards of a buffer a rank has: none, all, its own, or all on the root only. */
enum twill_bench_holder {
    TWILL_BENCH_NOTHING,
    TWILL_BENCH_EVERYTHING,
    TWILL_BENCH_OWN,
    TWILL_BENCH_ROOT
};

struct twill_bench_facts {
    const char *name;
    bool reduces, rooted;
    bool sharded; /* one shard for each rank: sizes are those of all shards together */
    bool vector; /* uneven shards: every other one is half as large again, the rest half as large */
    bool out_of_place; /* has no in-place form */
    enum twill_bench_holder src, dst;
    enum {
        TWILL_BENCH_BUS_NONE,
        TWILL_BENCH_BUS_ONE,
        TWILL_BENCH_BUS_MOST,
        TWILL_BENCH_BUS_TWICE
    } bus;
};

const struct twill_bench_facts *twill_bench_facts(enum twill_bench_collective collective);
/* Return the collective of this name, or -1. */
int twill_bench_find_collective(const char *name);
/* Return bus bandwidth over algorithm bandwidth, as nccl-tests defines it. */
double twill_bench_bus_factor(enum twill_bench_collective collective, int ranks);

/* One call to measure. */
struct twill_bench_subject {
    enum twill_bench_collective collective;
    twill_type type;
    twill_op op;
    twill_op called; /* op, or what stands for it: --narrow, --reduce-delay */
    int rank, ranks;
    int root;      /* -1: no root */
    size_t count;  /* elements of a shard */
    size_t bytes;  /* of all shards, as tables and bandwidths count them */
    size_t offset; /* into the buffers, bytes */
    bool in_place;
};

/* Return the elements of a shard, and its first element in a buffer of all shards. For alltoallv
 * the shard is what `rank` and rank `shard` exchange; both see the same length. */
size_t twill_bench_shard_count(const struct twill_bench_subject *subject, int rank, int shard);
size_t twill_bench_shard_first(const struct twill_bench_subject *subject, int rank, int shard);
/* Return the bytes that a buffer needs for a message of `bytes`. */
size_t twill_bench_buffer_bytes(const struct twill_bench_facts *facts, size_t bytes);

/* Where the call reads and writes, given the two buffers. */
struct twill_bench_pointers {
    char *src, *dst;
};
struct twill_bench_pointers twill_bench_pointers(const struct twill_bench_subject *subject,
                                                 char *src, char *dst);
/* Fill what the call reads; count the wrong elements of what it must have written. */
void twill_bench_fill_src(const struct twill_bench_subject *subject, struct twill_bench_pointers at,
                          unsigned round);
size_t twill_bench_wrong_dst(const struct twill_bench_subject *subject,
                             struct twill_bench_pointers at, unsigned round);

enum twill_bench_form { TWILL_BENCH_BLOCKING, TWILL_BENCH_NONBLOCKING, TWILL_BENCH_PERSISTENT };
/* Counts and offsets of a vector call, one entry per rank; filled once per subject. */
struct twill_bench_vectors {
    size_t *src_count, *src_first, *dst_count, *dst_first;
};
void twill_bench_describe(const struct twill_bench_subject *subject,
                          const struct twill_bench_vectors *vectors);
/* Make the call; *request is set by the forms other than BLOCKING. */
twill_status twill_bench_begin(const struct twill_bench_subject *subject, twill_comm *comm,
                               struct twill_bench_pointers at,
                               const struct twill_bench_vectors *vectors,
                               enum twill_bench_form form, twill_request **request);

#endif
