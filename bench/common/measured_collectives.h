/* SPDX-License-Identifier: Apache-2.0 */
/* The list of what the tools call collectives. It makes their names and facts.
 * X(NOUN, name, src, dst, bus, properties...) declares TWILL_BENCH_NOUN. `src` and `dst` say who
 * has which shards in the two buffers (TWILL_BENCH_src, TWILL_BENCH_dst), `bus` is its bus
 * bandwidth (TWILL_BENCH_BUS_bus), and the properties are members of struct twill_bench_facts that
 * are not zero. sendrecv sends to the next rank and receives from the previous one. */
#ifndef TWILL_MEASURED_COLLECTIVES_H
#define TWILL_MEASURED_COLLECTIVES_H

/* collectives of a whole buffer */
#define TWILL_MEASURED_WHOLE(X)                                                                    \
    X(ALLREDUCE, "allreduce", EVERYTHING, EVERYTHING, TWICE, .reduces = true)                      \
    X(BROADCAST, "broadcast", ROOT, EVERYTHING, ONE, .rooted = true)                               \
    X(BARRIER, "barrier", NOTHING, NOTHING, NONE, .sharded = false)                                \
    X(REDUCE, "reduce", EVERYTHING, ROOT, ONE, .reduces = true, .rooted = true)                    \
    X(SENDRECV, "sendrecv", EVERYTHING, EVERYTHING, ONE, .out_of_place = true)
/* collectives of one shard per rank, of equal size or (below) of uneven sizes */
#define TWILL_MEASURED_SHARDS(X)                                                                   \
    X(ALLGATHER, "allgather", OWN, EVERYTHING, MOST, .sharded = true)                              \
    X(REDUCE_SCATTER, "reduce_scatter", EVERYTHING, OWN, MOST, .reduces = true, .sharded = true)   \
    X(GATHER, "gather", OWN, ROOT, MOST, .rooted = true, .sharded = true)                          \
    X(SCATTER, "scatter", ROOT, OWN, MOST, .rooted = true, .sharded = true)                        \
    X(ALLTOALL, "alltoall", EVERYTHING, EVERYTHING, MOST, .sharded = true)
#define TWILL_MEASURED_UNEVEN(X)                                                                   \
    X(ALLGATHERV, "allgatherv", OWN, EVERYTHING, MOST, .sharded = true, .vector = true)            \
    X(REDUCE_SCATTERV, "reduce_scatterv", EVERYTHING, OWN, MOST, .reduces = true, .sharded = true, \
      .vector = true)                                                                              \
    X(GATHERV, "gatherv", OWN, ROOT, MOST, .rooted = true, .sharded = true, .vector = true)        \
    X(SCATTERV, "scatterv", ROOT, OWN, MOST, .rooted = true, .sharded = true, .vector = true)      \
    X(ALLTOALLV, "alltoallv", EVERYTHING, EVERYTHING, MOST, .sharded = true, .vector = true,       \
      .out_of_place = true)
#define TWILL_MEASURED_COLLECTIVES(X)                                                              \
    TWILL_MEASURED_WHOLE(X)                                                                        \
    TWILL_MEASURED_SHARDS(X)                                                                       \
    TWILL_MEASURED_UNEVEN(X)

enum twill_bench_collective {
#define TWILL_BENCH_ENUMERATOR(NOUN, ...) TWILL_BENCH_##NOUN,
    TWILL_MEASURED_COLLECTIVES(TWILL_BENCH_ENUMERATOR) TWILL_BENCH_COLLECTIVE_COUNT
};

#endif
