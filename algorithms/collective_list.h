/* SPDX-License-Identifier: Apache-2.0 */
/* The list of collectives and their properties. It makes enum twill_collective and the names and
 * facts of collectives. A barrier is an allreduce of no elements. X(NOUN, name, src, dst,
 * properties...) declares TWILL_NOUN. SRC and DST have the shards TWILL_HOLDS_src and
 * TWILL_HOLDS_dst. Properties are members of struct twill_collective_facts that are not zero. */
#ifndef TWILL_COLLECTIVE_LIST_H
#define TWILL_COLLECTIVE_LIST_H

#define TWILL_COLLECTIVES(X)                                                                       \
    X(ALLREDUCE, allreduce, ALL, ALL, .reduces = true, .joins = true)                              \
    X(BROADCAST, broadcast, ROOT, ALL, .rooted = true)                                             \
    X(BARRIER, barrier, NOTHING, NOTHING, .joins = true)                                           \
    X(REDUCE, reduce, ALL, ROOT, .reduces = true, .rooted = true)                                  \
    X(ALLGATHER, allgather, OWN, ALL, .sharded = true, .joins = true)                              \
    X(REDUCE_SCATTER, reduce_scatter, ALL, OWN, .reduces = true, .sharded = true, .joins = true)   \
    X(GATHER, gather, OWN, ROOT, .rooted = true, .sharded = true)                                  \
    X(SCATTER, scatter, ROOT, OWN, .rooted = true, .sharded = true)                                \
    X(ALLTOALL, alltoall, ALL, ALL, .sharded = true, .joins = true)

enum twill_collective {
#define TWILL_COLLECTIVE_ENUMERATOR(NOUN, ...) TWILL_##NOUN,
    TWILL_COLLECTIVES(TWILL_COLLECTIVE_ENUMERATOR) TWILL_COLLECTIVE_COUNT
};

#endif
