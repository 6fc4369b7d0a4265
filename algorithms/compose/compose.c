/* SPDX-License-Identifier: Apache-2.0 */
/* The composer: an allreduce over any number of levels is a reduce-scatter down the levels, an
 * allreduce at the top, and an allgather back up. Each half is a collective of its own, with one
 * shard per rank.
 *
 * The buffer is divided into shards. At each level below the top the members of a unit divide among
 * themselves the shards that they hold partials of, so that each shard has one owner in the unit;
 * at the top the owners of a shard allreduce it. Levels within a node use memory (direct): the
 * lowest reads the ranks' data (MAPPED: in SRC, STAGED: in SHARED), the next ones partials in
 * SHARED. Levels by messages pass a shard's partial round the unit to its owner (ring). The final
 * shards go back up by the same ways.
 *
 *     node 0:  0   1     node and all: shard 0 is reduced by 0, 2 and 4, shard 1 by 1, 3 and 4,
 *     node 1:  2   3     which then allreduce it among themselves and return it to their nodes
 *     node 2:  4
 *
 * A broadcast has no way down: in each unit of the highest level, also the root's, every rank
 * fetches its shards from the root, and then they go back up the levels below. The message leaves
 * the root's unit once per other unit.
 *
 * The bytes that leave a unit are its message divided by its ranks, as if it were one rank: with
 * equal nodes of L ranks 2(n/L)(G-1)/G per rank, ring on top. The division depends on the world
 * alone, so nodes may use different protocols. Ranks that own several shards handle them in
 * ascending order everywhere, so that the lowest one in progress can always proceed. */
#include "algorithms/compose/compose.h"
#include "algorithms/patterns/circulant.h"
#include "algorithms/patterns/intra_node.h"

#include <stdlib.h>

/* Return the number of the signal that a rank sends at a level on its way down, or up. Without a
 * way down, MAPPED starts with one: others write its DST. */
static uint32_t ordinal_of(const struct twill_compose *c, uint32_t level, bool up, uint32_t rank)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    if (!up)
        return twill_hierarchy_signals(l, rank, 0, level + 1);
    uint32_t before = c->mapped;
    if (c->broadcasts)
        before = 1 + (c->mapped && rank != c->root);
    else if (c->down)
        before = twill_hierarchy_signals(l, rank, 0, l->count) + !c->up;
    return before + twill_hierarchy_signals(l, rank, level, l->count);
}

void twill_compose_await(struct twill_compose *c, uint32_t level, bool up)
{
    const struct twill_group node = twill_group_node(&c->e);
    for (uint32_t ordinal = 1; ordinal <= 2 * TWILL_MAX_LEVELS; ordinal++) {
        struct twill_group g = {.rank = c->list, .size = 1};
        c->list[0] = c->e.rank;
        for (uint32_t i = 1; i < node.size; i++) {
            uint32_t peer = node.rank[(node.me + i) % node.size];
            if (c->marked[peer] && ordinal_of(c, level, up, peer) == ordinal) {
                c->list[g.size++] = peer;
                c->marked[peer] = false;
            }
        }
        twill_emit_await(&c->e, &g, ordinal, 0);
    }
}

uint32_t twill_compose_run(const struct twill_compose *c, uint32_t level, uint32_t s)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    uint32_t n = 1, fanout = l->level[level].fanout, owner = twill_hierarchy_owner(l, level, s);
    for (; !l->sharded && s + n < l->shards; n++) {
        if (!twill_hierarchy_owns(l, level, s + n) ||
            twill_hierarchy_owner(l, level, s + n) != owner)
            return n;
        for (uint32_t m = 0; m < fanout; m++)
            if (twill_hierarchy_owner_rank(l, level, c->e.rank, m, s) !=
                twill_hierarchy_owner_rank(l, level, c->e.rank, m, s + n))
                return n;
    }
    return n;
}

void twill_compose_insert_wait(struct twill_emitter *e, bool all)
{
    const struct twill_step_list *list = &e->lanes[e->lane];
    bool waits = false;
    for (size_t i = list->count; i-- > 0 && list->steps[i].op != TWILL_STEP_WAIT && !waits;)
        waits = list->steps[i].op == TWILL_STEP_RECV ||
                list->steps[i].op == TWILL_STEP_RECV_REDUCE ||
                (all && list->steps[i].op == TWILL_STEP_SEND);
    if (waits)
        twill_emit_wait(e);
}

twill_emit_allreduce_fn twill_compose_allreduce(unsigned how)
{
    static const twill_emit_allreduce_fn allreduce[TWILL_BY_COUNT] = {
        [TWILL_BY_RING] = twill_emit_ring,
        [TWILL_BY_RECURSIVE_DOUBLING] = twill_emit_recursive_doubling,
        [TWILL_BY_HALVING_DOUBLING] = twill_emit_circulant,
        [TWILL_BY_BRUCK] = twill_emit_gather_reduce};
    return allreduce[how];
}

uint32_t twill_compose_copies(unsigned how, uint32_t members)
{
    return how == TWILL_BY_RECURSIVE_DOUBLING ? 2 : how == TWILL_BY_BRUCK ? members : 1;
}

uint32_t *twill_compose_sort_shards(struct twill_compose *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    uint32_t members = l->level[level].fanout;
    /* first[m]: where m's shards begin, behind the members + 2 numbers of `first` itself. */
    uint32_t *first = calloc((size_t)members + 2 + l->shards, sizeof(*first));
    if (first == NULL) {
        c->e.no_memory = true;
        return NULL;
    }
    for (uint32_t s = 0; s < l->shards; s++)
        first[twill_hierarchy_owner(l, level, s) + 2] += twill_hierarchy_owns(l, level, s);
    first[0] = first[1] = members + 2;
    for (uint32_t m = 0; m < members; m++)
        first[m + 2] += first[m + 1];
    for (uint32_t s = 0; s < l->shards; s++)
        if (twill_hierarchy_owns(l, level, s))
            first[first[twill_hierarchy_owner(l, level, s) + 1]++] = s;
    return first;
}

struct twill_compose_pair twill_compose_pair_of(const struct twill_compose *c, uint32_t level,
                                                const uint32_t *sorted, uint32_t a, uint32_t b)
{
    uint32_t members = c->hierarchy.level[level].fanout;
    a %= members;
    b %= members;
    return (struct twill_compose_pair){.next = {sorted + sorted[a], sorted + sorted[b]},
                                       .end = {sorted + sorted[a + 1], sorted + sorted[b + 1]}};
}

bool twill_compose_pair_next(struct twill_compose_pair *pair, uint32_t *s, unsigned *which)
{
    const uint32_t *a = pair->next[0], *b = pair->next[1];
    bool a_left = a < pair->end[0], b_left = b < pair->end[1];
    if (!a_left && !b_left)
        return false;
    *which = !a_left || (b_left && *b < *a);
    *s = *pair->next[*which]++;
    return true;
}

/* Emit the allreduce of each owned shard at the top. Its last messages may still be posted when the
 * next one starts, and its sends when the way up starts. */
static void emit_top(struct twill_compose *c)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *r = &l->level[l->count - 1];
    for (uint32_t s = 0; s < l->shards; s++) {
        if (!twill_hierarchy_owns(l, l->scatters, s))
            continue;
        struct twill_group g = {.rank = c->list,
                                .size = r->fanout,
                                .me = r->me,
                                .first = twill_compose_block(c, s),
                                .blocks = c->each};
        for (uint32_t m = 0; m < r->fanout; m++)
            c->list[m] = twill_hierarchy_owner_rank(l, l->count - 1, c->e.rank, m, s);
        twill_compose_allreduce(r->choice.how)(&c->e, &g, l->scatters == 0 ? TWILL_SRC : TWILL_TMP);
    }
    twill_compose_insert_wait(&c->e, false);
}

static void emit_all(struct twill_compose *c)
{
    if (c->hierarchy.count == 0) {
        twill_emit_copy(&c->e, data_at(TWILL_DST, 0), data_at(TWILL_SRC, 0), 0, 1, 0);
        return;
    }
    if (c->broadcasts)
        twill_compose_begin_broadcast(c);
    else if (c->down)
        twill_compose_down(c);
    else
        twill_compose_begin_up(c);
    if (c->hierarchy.scatters < c->hierarchy.count && !c->broadcasts)
        emit_top(c);
    if (c->up)
        twill_compose_up(c);
    else
        twill_compose_end_down(c);
    if (c->broadcasts)
        twill_compose_end_broadcast(c);
    twill_compose_insert_wait(&c->e, true);
}

/* Declare the schedule's blocks and scratch, equal on all ranks. */
static void declare_schedule(struct twill_compose *c, enum twill_protocol protocol)
{
    struct twill_hierarchy *l = &c->hierarchy;
    uint32_t messages = 0, shared = 0;
    for (uint32_t j = 0; j < l->count; j++) {
        bool direct = l->level[j].choice.how == TWILL_BY_DIRECT;
        messages += !direct;
        shared += direct && (j > 0 || !c->mapped) && c->down;
        c->e.uses_peer_dst = c->e.uses_peer_dst || (direct && c->mapped && c->up);
        c->e.uses_peer_src =
            c->e.uses_peer_src || (direct && c->mapped && ((j == 0 && c->down) || c->broadcasts));
    }
    if (l->count == 0)
        return;
    const struct twill_hierarchy_level *top = &l->level[l->count - 1];
    if (c->broadcasts) /* every unit of the top level gets all shards */
        twill_hierarchy_drop_top(l);
    bool direct_top = top->choice.how == TWILL_BY_DIRECT;
    if (twill_how_divides(top->choice.how) && !l->sharded)
        c->each = top->fanout;
    if (!c->mapped && messages < l->count && l->level[0].choice.how != TWILL_BY_DIRECT)
        shared++; /* the first copy is needed nevertheless: the way up uses it */
    else if (!c->mapped && messages < l->count && !c->down)
        shared = 1;
    c->e.blocks = l->shards * c->each;
    c->e.shards = l->sharded ? l->world->size : 1;
    c->e.shared_blocks = shared * c->e.blocks;
    c->final = TWILL_DST;
    if (c->down && direct_top)
        c->final = twill_node_final_space(protocol, top->fanout);
    if (twill_how_is_top(top->choice.how))
        c->e.tmp_blocks = twill_compose_copies(top->choice.how, top->widest) * c->e.blocks;
    else if (c->down && (messages > 0 || c->final == TWILL_TMP))
        c->e.tmp_blocks = c->e.blocks;
}

twill_status twill_compose(struct twill_schedule *schedule, const struct twill_world *world,
                           uint32_t rank, const struct twill_shape *shape,
                           const struct twill_level_choice *choice, uint32_t choices,
                           struct twill_error *error)
{
    struct twill_compose c = {.each = 1,
                              .down = shape->collective != TWILL_ALLGATHER &&
                                      shape->collective != TWILL_BROADCAST,
                              .broadcasts = shape->collective == TWILL_BROADCAST,
                              .root = shape->root,
                              .up = shape->collective != TWILL_REDUCE_SCATTER,
                              .mapped = shape->protocol == TWILL_PROTOCOL_MAPPED};
    bool sharded = twill_collective_facts(shape->collective)->sharded;
    twill_emitter_begin(&c.e, world, rank, 1);
    c.list = calloc((size_t)world->size + 1, sizeof(*c.list));
    c.marked = calloc(world->size, sizeof(*c.marked));
    if (c.list == NULL || c.marked == NULL ||
        !twill_hierarchy_open(&c.hierarchy, world, rank, sharded, choice, choices)) {
        c.e.no_memory = true;
    } else {
        declare_schedule(&c, shape->protocol);
        emit_all(&c);
    }
    twill_hierarchy_close(&c.hierarchy);
    free(c.list);
    free(c.marked);
    return twill_emitter_finish(&c.e, schedule, error);
}
