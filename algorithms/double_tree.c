/* SPDX-License-Identifier: Apache-2.0 */
/* Double binary tree, pipelined (Sanders, Speck and Traeff, "Two-tree algorithms for full bandwidth
 * broadcast, reduction and scan", 2009).
 *
 * Half of the buffer is reduced up and broadcast down one binary tree, half another, each on a lane
 * of its own and in chunks, one behind the other. The root hangs over both; of the others each is a
 * leaf in one tree at least, so that with two children in the other it sends n/2 up, twice n/2 down
 * and n/2 as a leaf: 2n bytes at most. Rounds C + 2 ceil(lg P) - 1 for C chunks of each half.
 *
 *     P = 8, root 0:      0                     0
 *                         |                     |
 *                         4                     5
 *                       /   \                 /   \
 *                      2     6               3     7
 *                     / \   / \             / \   / \
 *                    1   3 5   7           2   4 6   1
 *
 * The first tree goes in order. The second is the same with all but the root shifted by one (P
 * even) or mirrored (P odd), which makes its leaves the others. A mirrored tree is in order too; so
 * where the order matters that is what it is, and the bytes are up to 3n if P is even. */
#include "algorithms/emit.h"

#define CHUNKS      8
#define MOST_CHUNKS 4096

/* A tree over all positions counted from the root's. In it, a rank has a node: 0 is the root, its
 * child the highest power of two, below which a binary tree goes on in order; odd nodes are leaves.
 */
struct shaping {
    uint32_t size;
    enum { PLAIN, SHIFTED, MIRRORED } kind;
};

static uint32_t node_at(const struct shaping *t, uint32_t position)
{
    if (position == 0 || t->kind == PLAIN)
        return position;
    if (t->kind == MIRRORED)
        return t->size - position;
    return position == 1 ? t->size - 1 : position - 1;
}

static uint32_t position_of(const struct shaping *t, uint32_t node)
{
    if (node == 0 || t->kind == PLAIN)
        return node;
    return t->kind == MIRRORED ? t->size - node : node % (t->size - 1) + 1;
}

static uint32_t parent_of(const struct shaping *t, uint32_t node)
{
    uint32_t bit = node & -node, up = (node ^ bit) | bit << 1;
    return up < t->size ? up : node ^ bit;
}

/* Into child; returns how many. */
static uint32_t children_of(const struct shaping *t, uint32_t node, uint32_t child[2])
{
    uint32_t bit = node & -node, count = 0;
    if (node == 0) {
        for (bit = 1; bit * 2 < t->size; bit *= 2)
            ;
        child[0] = bit;
        return t->size > 1;
    }
    if (bit > 1)
        child[count++] = node - bit / 2;
    for (bit /= 2; bit > 0 && node + bit >= t->size; bit /= 2)
        ;
    if (bit > 0)
        child[count++] = node + bit;
    return count;
}

/* The place of the group's own member in a tree from position `root`. */
static struct twill_pipe place(const struct shaping *t, const struct twill_group *g, uint32_t root)
{
    uint32_t position = (g->me + g->size - root) % g->size, child[2];
    uint32_t node = node_at(t, position);
    struct twill_pipe tree = {.children = children_of(t, node, child)};
    while ((1u << tree.height) < t->size)
        tree.height++;
    for (uint32_t up = node; up != 0; up = parent_of(t, up))
        tree.depth++;
    if (node != 0)
        tree.parent = g->rank[(position_of(t, parent_of(t, node)) + root) % g->size];
    for (uint32_t i = 0; i < tree.children; i++) {
        uint32_t at = position_of(t, child[i]);
        tree.child[i].rank = g->rank[(at + root) % g->size];
        tree.child[i].first = at < position;
        tree.child[i].partial = child[i] % 2 == 0;
    }
    return tree;
}

static uint32_t chunks_of(const struct twill_shape *shape)
{
    return shape->parameter[0] == 0 ? CHUNKS : shape->parameter[0];
}

static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    bool ordered = shape->order == TWILL_ORDER_RANKS;
    return shape->root < world->size && chunks_of(shape) <= MOST_CHUNKS &&
           (shape->order == TWILL_ORDER_ANY || (ordered && shape->root == 0));
}

/* Both trees, over a group from its position `root`. */
struct trees {
    struct shaping tree[2];
    const struct twill_world *world;
    uint32_t root;
    bool ordered, up, down;
};

static struct trees trees_of(const struct twill_world *w, const struct twill_shape *shape)
{
    bool up = shape->collective != TWILL_BROADCAST;
    struct trees t = {.world = w,
                      .ordered = up && shape->order != TWILL_ORDER_ANY,
                      .up = up,
                      .down = shape->collective != TWILL_REDUCE};
    t.tree[0] = (struct shaping){.size = w->size, .kind = PLAIN};
    t.tree[1] = (struct shaping){.size = w->size,
                                 .kind = w->size % 2 == 0 && !t.ordered ? SHIFTED : MIRRORED};
    return t;
}

/* Position of a rank, counted from the root's. */
static uint32_t position_in(const struct trees *t, uint32_t rank)
{
    const struct twill_world *w = t->world;
    uint32_t at = t->ordered ? rank : w->node_first[w->node[rank]] + w->local[rank];
    return (at + w->size - t->root) % w->size;
}

static bool hears(const void *user, uint32_t rank, uint32_t other)
{
    const struct trees *t = user;
    uint32_t above = position_in(t, t->up ? rank : other);
    uint32_t below = position_in(t, t->up ? other : rank);
    for (unsigned i = 0; i < 2; i++) {
        const struct shaping *tree = &t->tree[i];
        uint32_t node = node_at(tree, below);
        while (node != 0 && node != node_at(tree, above))
            node = parent_of(tree, node);
        if (node == node_at(tree, above))
            return true;
    }
    return false;
}

static twill_status emit(struct twill_schedule *schedule, const struct twill_world *world,
                         uint32_t rank, const struct twill_shape *shape, struct twill_error *error)
{
    uint32_t chunks = chunks_of(shape), size = world->size;
    struct trees t = trees_of(world, shape);
    struct twill_emitter e;
    twill_emitter_begin(&e, world, rank, 2 * chunks);
    struct twill_group g =
        t.ordered ? twill_group_ranks(&e, e.blocks) : twill_group_world(&e, e.blocks);
    t.root = position_in(&t, shape->root);
    e.tmp_blocks = !t.up || size < 3 ? 0 : size < 4 ? e.blocks : 2 * e.blocks;
    bool joins = twill_collective_facts(shape->collective)->joins;
    if (!joins)
        twill_emit_join(&e, hears, &t);
    if (size == 1 || (!t.up && rank == shape->root))
        twill_emit_alone(&e, &g, TWILL_SRC);
    for (e.lane = 0; e.lane < 2 && size > 1; e.lane++) {
        struct twill_pipe pipe = place(&t.tree[e.lane], &g, t.root);
        twill_emit_pipeline(&e, t.up ? &pipe : NULL, t.down ? &pipe : NULL, e.lane * chunks, chunks,
                            t.up ? TWILL_DST : TWILL_SRC);
    }
    e.lane = 0;
    if (!joins)
        twill_emit_part(&e, hears, &t);
    return twill_emitter_finish(&e, schedule, error);
}

const struct twill_algorithm twill_algorithm_double_tree = {
    .name = "double_tree",
    .help = "=chunks: two binary trees, each with half of the buffer in chunks (8): C + 2 lg P "
            "rounds, up to 2n bytes (Sanders, Speck and Traeff 2009)",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_REDUCE | 1u << TWILL_BROADCAST,
    .parameters = 1,
    .applies = applies,
    .emit = emit,
};
