/* SPDX-License-Identifier: Apache-2.0 */
/* Binomial tree broadcast: who has the data passes them on, so that twice as many have them after
 * each round. Rounds ceil(lg P), bytes sent n lg P at the root; the largest subtree goes first.
 *
 *     0 -> 4, 0 -> 2, 0 -> 1      numbers count from the root; a rank's parent is its number
 *          4 -> 6, 2 -> 3         without the lowest bit
 *               4 -> 5, 6 -> 7
 *
 * Where ranks share a node none of them leaves before all have come (a SIGNAL first, AWAITs last,
 * except of those whose data it has): that is what lets collectives reuse the staging memory
 * without more ado. */
#include "algorithms/emit.h"

/* Lowest bit of a position; for the root the first power of two not below size. */
static uint32_t reach(uint32_t v, uint32_t size)
{
    uint32_t bit = 1;
    while (v == 0 ? bit < size : (v & bit) == 0)
        bit *= 2;
    return bit;
}

void twill_emit_tree_receive(struct twill_emitter *e, const struct twill_group *g, uint32_t root)
{
    uint32_t v = (g->me + g->size - root) % g->size;
    if (v == 0)
        return;
    uint32_t parent = (v - reach(v, g->size) + root) % g->size;
    twill_emit_recv(e, g->rank[parent], twill_operand_make(TWILL_DST, g->first), g->blocks, 0);
    twill_emit_wait(e);
}

bool twill_emit_tree_send(struct twill_emitter *e, const struct twill_group *g, uint32_t root,
                          enum twill_space from)
{
    uint32_t v = (g->me + g->size - root) % g->size;
    bool any = false;
    for (uint32_t bit = reach(v, g->size) / 2; bit > 0; bit /= 2) {
        if (v + bit >= g->size)
            continue;
        uint32_t child = (v + bit + root) % g->size;
        twill_emit_send(e, g->rank[child], twill_operand_make(from, g->first), g->blocks, 0);
        any = true;
    }
    return any;
}

/* Do the data of position v come by way of position a? */
static bool is_above(uint32_t a, uint32_t v, uint32_t size)
{
    while (v > a)
        v -= reach(v, size);
    return v == a;
}

/* Entry (`last` false) or exit of this rank on its node, where the tree itself does not show it. */
static void emit_node_part(struct twill_emitter *e, const struct twill_group *g, uint32_t root,
                           bool last)
{
    const struct twill_world *w = e->world;
    uint32_t mine = (g->me + g->size - root) % g->size, node = w->node[e->rank];
    bool needed = false;
    for (uint32_t i = w->node_first[node]; i < w->node_first[node + 1]; i++) {
        uint32_t v = (i + g->size - root) % g->size;
        if (v == mine)
            continue;
        needed = needed || !is_above(mine, v, g->size);
        if (last && !is_above(v, mine, g->size))
            twill_emit_await_one(e, g->rank[i], 1, 0);
    }
    if (needed && !last)
        twill_emit_signal(e);
}

static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    return shape->root < world->size;
}

static twill_status emit(struct twill_schedule *schedule, const struct twill_world *world,
                         uint32_t rank, const struct twill_shape *shape, struct twill_error *error)
{
    struct twill_emitter e;
    twill_emitter_begin(&e, world, rank, 1);
    struct twill_group g = twill_group_world(&e, 1);
    uint32_t root = world->node_first[world->node[shape->root]] + world->local[shape->root];
    emit_node_part(&e, &g, root, false);
    twill_emit_tree_receive(&e, &g, root);
    if (twill_emit_tree_send(&e, &g, root, rank == shape->root ? TWILL_SRC : TWILL_DST))
        twill_emit_wait(&e);
    if (rank == shape->root)
        twill_emit_copy(&e, twill_operand_make(TWILL_DST, 0), twill_operand_make(TWILL_SRC, 0), 0,
                        1, 0);
    emit_node_part(&e, &g, root, true);
    return twill_emitter_finish(&e, schedule, error);
}

const struct twill_algorithm twill_algorithm_tree = {
    .name = "tree",
    .help = "binomial tree: lg P rounds, n lg P bytes at the root",
    .collectives = 1u << TWILL_BROADCAST,
    .applies = applies,
    .emit = emit,
};
