/* SPDX-License-Identifier: Apache-2.0 */
/* Linear. The root itself exchanges messages with all other ranks, a few at a time (=k for k),
 * starting with the rank after its own. This is a tree of one level. The root has P-1 messages, the
 * others one, of n bytes each. In a gather or scatter each has one shard, n(P-1)/P bytes in total.
 * (MPI libraries call it "basic linear". The corresponding alltoall is `pairwise`.)
 *
 *     0 -> 1, 0 -> 2, 0 -> 3, ...      a reduce receives in this order, by rank from the left
 *
 * With =k, at most k ranks of a gather or reduce send at once. The others wait for a message
 * without data from the root, which is one more latency per k ranks. Where many senders overflow
 * the queue in front of the link of the root (incast), that costs much less than it saves. Without
 * =k the window of the root limits what is received at once, not what is sent. Every message is a
 * shard of the buffers of sender and receiver, so shards may have any sizes. */
#include "algorithms/collectives/cores.h"

/* Return whether the parameter, the number of ranks that may send at once, is at most 64. The
 * default, 0, is allowed and lets all send at once. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)world;
    return shape->parameter[0] <= 64;
}

/* Append the steps of this rank for the shape's collective. The root exchanges messages directly
 * with all other ranks, and they only with the root. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    twill_tree_emit(e, shape, (uint32_t)twill_max(e->world->size, 2), shape->parameter[0]);
}

const struct twill_algorithm twill_algorithm_linear = {
    .name = "linear",
    .help =
        "the root with all others, a few at a time, =k: no more than k send at once (16 received): "
        "P-1 messages there, n bytes each, or a shard in a gather or scatter",
    .collectives =
        1u << TWILL_BROADCAST | 1u << TWILL_REDUCE | 1u << TWILL_GATHER | 1u << TWILL_SCATTER,
    .parameters = 1,
    .applies = applies,
    .emit = emit,
};
