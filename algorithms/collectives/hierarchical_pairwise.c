/* SPDX-License-Identifier: Apache-2.0 */
/* Pairwise between nodes. In an alltoall every node exchanges one message with every other, or =k
 * messages, and all ranks of a node share them. With G nodes of L ranks a node sends k(G-1)
 * messages instead of L^2 (G-1). The ranks of a node are divided into k parts of one size, so k
 * divides L. A message has what the ranks of one part have for all ranks of the other node. Without
 * =k, k is the least with which every rank has a message. (After the node-aware and locality-aware
 * alltoalls that Kinkead and Bienz compare, "Optimizing Allgather and Alltoall for Many-Core
 * Systems", 2026.)
 *
 *     node 0:  0 1 -> 0     1. Each rank stores its shards into SHARED of the rank that sends them
 *              0 1 -> 1     2. That one sorts them by destination, and sends. Here, with 5 nodes,
 *     node 1:    0 <-> 3       rank 0 exchanges with nodes 1 and 3, rank 1 with nodes 2 and 4
 *              2 3 <- 3     3. Each rank copies what is for it from SHARED of the receivers
 *
 * A rank sends n(G-1)/G bytes and copies 4n, 3n if it need not sort (a part has one rank), and 2n
 * if moreover it sends its own shards. Of node x, message s to the node d + 1 after it is number m
 * = s + k d. Local rank m mod L sends it, and local rank m mod L of the other node receives it.
 *
 * In a gather or scatter the root's node exchanges one message with each other node, and its ranks
 * share these. The first rank of each other node gathers or scatters there. The root copies n bytes
 * between SHARED and its SRC or DST, and the other ranks exchange messages meanwhile.
 *
 *     scatter from 0:  0 -> 0 1 2, then 1 -> 3, 2 -> 6, then 3 -> 3 4 5, 6 -> 6 7 8 */
#include "algorithms/patterns/node_messages.h"

/* Return whether there are several nodes, some with several ranks, and shards have one size. The
 * messages of an alltoall must have room in SHARED. A gather or scatter takes no parameter. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    if (world->nodes == 1 || twill_world_widest(world) == 1 || shape->vector)
        return false;
    return shape->collective == TWILL_ALLTOALL ? twill_node_messages_fit(world, shape->parameter[0])
                                               : shape->parameter[0] == 0;
}

/* Append the steps of a collective in which nodes exchange messages that their ranks share. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    if (shape->collective == TWILL_ALLTOALL)
        twill_emit_node_messages(e, shape->parameter[0]);
    else
        twill_emit_node_relays(e, shape->root, shape->collective == TWILL_GATHER);
}

const struct twill_algorithm twill_algorithm_hierarchical_pairwise = {
    .name = "hierarchical:pairwise",
    .help =
        "every node, or the root's, with every other one, =k messages (alltoall) that the ranks "
        "of a node share: k(G-1)/L messages a rank (Kinkead and Bienz 2026)",
    .collectives = 1u << TWILL_ALLTOALL | 1u << TWILL_GATHER | 1u << TWILL_SCATTER,
    .protocols = 1u << TWILL_PROTOCOL_STAGED,
    .parameters = 1,
    .packs = true,
    .applies = applies,
    .emit = emit,
};
