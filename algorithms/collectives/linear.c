/* SPDX-License-Identifier: Apache-2.0 */
/* Linear: the root exchanges messages with all other ranks itself, a few at a time (=k: k),
 * starting with the rank after its own. It is a tree of one level: P-1 messages at the root, one at
 * the others, of n bytes each, or of one shard each in a gather or scatter: n(P-1)/P bytes, none of
 * them sent twice. (The "basic linear" of MPI libraries; the corresponding alltoall is `pairwise`.)
 *
 *     0 -> 1, 0 -> 2, 0 -> 3, ...      a reduce receives in this order, by rank from the left
 *
 * With =k, in a gather or reduce, at most k ranks send at once: the others wait for a message
 * without data from the root, one more latency per k ranks. Where many senders overflow the queue
 * before the root's link (incast), that costs much less than it saves; without =k the root's window
 * bounds what is received at once, not what is sent.
 *
 * Every message is a shard of the sender's and of the receiver's buffer, so shards may have any
 * sizes. */
#include "algorithms/collectives/cores.h"

static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)world;
    return shape->parameter[0] <= 64;
}

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
