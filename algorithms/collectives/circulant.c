/* SPDX-License-Identifier: Apache-2.0 */
/* Broadcast and reduce of blocks on a circulant graph in the fewest rounds (Traeff, arXiv
 * 2407.18004). In each round a rank sends a block to the rank that is a skip to its right, and
 * receives another one from the rank that is as far to its left. The skips are P, halved again and
 * again and rounded up, and are used in turn. So B blocks take B - 1 + ceil(lg P) rounds with any
 * number of ranks, and a rank sends n bytes, the root a little more. A reduction runs the rounds
 * backwards.
 *
 *     P = 5, root 0, B = 2, skips 3 1 2 3     0->3: a
 *                                             0->1: b  3->4: a
 *                                             0->2: b  4->1: a
 *                                             0->3: b  4->2: a  1->4: b */
#include "algorithms/patterns/block_schedule.h"

enum { CIRCULANT_BLOCKS = 16, CIRCULANT_MOST_BLOCKS = 4096 };

/* Return the number of blocks, as requested or CIRCULANT_BLOCKS. */
static uint32_t blocks_of(const struct twill_shape *shape)
{
    return shape->parameter[0] == 0 ? CIRCULANT_BLOCKS : shape->parameter[0];
}

/* Return whether the message may be divided into as many blocks as the shape asks for, and operands
 * may be reduced in any order. */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)world;
    return blocks_of(shape) <= CIRCULANT_MOST_BLOCKS && shape->order == TWILL_ORDER_ANY;
}

/* The arguments of circulant_knows(), a local variable of emit(). */
struct circulant {
    uint32_t root;
    bool reduces; /* it is a reduce, else a broadcast */
};

/* Return whether messages prove to `rank` that `other` has started. The root of a reduction has the
 * operands of all ranks, and all ranks of a broadcast have data of the root. */
static bool circulant_knows(const void *user, uint32_t rank, uint32_t other)
{
    const struct circulant *c = user;
    return (c->reduces ? rank : other) == c->root;
}

/* Copy blocks that the root has sent to its DST. The other ranks have received theirs there. The
 * next message is posted before, so the copy does not delay it. */
static void copy_sent(struct twill_emitter *e, uint32_t block, uint32_t count, void *user)
{
    const struct circulant *c = user;
    if (e->rank == c->root)
        twill_emit_copy(e, data_at(TWILL_DST, block), data_at(TWILL_SRC, block), 0, count, 0);
}

/* Append the steps of a broadcast or a reduce. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    const struct twill_world *world = e->world;
    struct circulant c = {.root = shape->root, .reduces = shape->collective == TWILL_REDUCE};
    e->blocks = blocks_of(shape);
    struct twill_group g = twill_group_world(e, e->blocks);
    struct twill_block_flow flow = {
        .group = &g, .root = world->position[shape->root], .blocks = e->blocks, .from = TWILL_SRC};
    if (c.reduces && world->size > 2)
        e->tmp_blocks = e->blocks;
    twill_emit_join(e, circulant_knows, &c);
    if (world->size == 1)
        twill_emit_alone(e, &g, TWILL_SRC);
    else if (c.reduces)
        twill_emit_block_reduce(e, &flow, TWILL_DST);
    else
        twill_emit_block_broadcast(e, &flow, TWILL_DST, copy_sent, &c);
    twill_emit_await_join(e, circulant_knows, &c);
}

const struct twill_algorithm twill_algorithm_circulant = {
    .name = "circulant",
    .help = "=blocks: blocks (16) on a circulant graph, a different one in each round: "
            "B - 1 + ceil(lg P) rounds, about n bytes (Traeff 2024)",
    .collectives = 1u << TWILL_REDUCE | 1u << TWILL_BROADCAST,
    .parameters = 1,
    .applies = applies,
    .emit = emit,
};
