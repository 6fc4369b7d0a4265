/* SPDX-License-Identifier: Apache-2.0 */
/* The composer (compose.c), up the levels: final shards from their owners to all ranks. */
#include "algorithms/compose/compose.h"

#include <stdlib.h>

/* Return whether owners store shards into the receivers' memory. Otherwise (STAGED, without
 * contributions whose cache lines could be reused: intra_node.c) they publish them in their own
 * SHARED, where the others fetch them. */
static bool stores(const struct twill_compose *c)
{
    return c->mapped || c->down;
}

/* Return whether this rank has published the final shard at a higher level. */
static bool is_published(const struct twill_compose *c, uint32_t level, uint32_t s)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    if (c->broadcasts && c->e.rank == c->root)
        return true;
    for (uint32_t j = level + 1; j < l->scatters; j++)
        if (l->level[j].choice.how == TWILL_BY_DIRECT && l->level[j].fanout > 1 &&
            twill_hierarchy_owns(l, j + 1, s))
            return true;
    return false;
}

/* Publish those of the shards that are not published yet. */
static void publish_shards(struct twill_compose *c, uint32_t level, uint32_t s, uint32_t run,
                           enum twill_space from)
{
    uint32_t first = s, end = s + run;
    for (; s <= end; s++) {
        if (s < end && !is_published(c, level, s))
            continue;
        if (s > first)
            twill_emit_copy(&c->e, data_at(TWILL_SHARED, twill_compose_block(c, first)),
                            data_at(from, twill_compose_block(c, first)), 0, (s - first) * c->each,
                            0);
        first = s + 1;
    }
}

/* One level up, at the owner of `run` shards from s on. */
static void distribute_shards(struct twill_compose *c, uint32_t level, uint32_t s, uint32_t run,
                              enum twill_space from)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *r = &l->level[level];
    uint32_t first = twill_compose_block(c, s), blocks = run * c->each;
    unsigned to = (c->mapped ? TWILL_DST : TWILL_SHARED) | TWILL_PEER;
    if (!stores(c))
        publish_shards(c, level, s, run, from);
    if (from != TWILL_DST)
        twill_emit_copy(&c->e, data_at(TWILL_DST, first), data_at(from, first), 0, blocks, 0);
    for (uint32_t i = 1; i < r->fanout && stores(c); i++) {
        uint32_t peer = twill_hierarchy_owner_rank(l, level, c->e.rank, (r->me + i) % r->fanout, s);
        if (!c->broadcasts || peer != c->root) /* the root has it already */
            twill_emit_copy(&c->e, data_at(to, first), data_at(from, first), peer, blocks, 0);
    }
}

/* Wait until the peers have started: their DST may be written then. */
static void await_started(struct twill_compose *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *r = &l->level[level];
    for (uint32_t s = 0; s < l->shards; s++)
        for (uint32_t m = 0; m < r->fanout && twill_hierarchy_owns(l, level + 1, s); m++)
            c->marked[twill_hierarchy_owner_rank(l, level, c->e.rank, m, s)] = m != r->me;
    twill_compose_await(c, l->count, true);
}

/* STAGED: copy what the owners have stored or published. */
static void fetch(struct twill_compose *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    unsigned from = stores(c) ? TWILL_SHARED : TWILL_SHARED | TWILL_PEER;
    for (uint32_t s = 0, run = 1; s < l->shards; s += run) {
        run = 1;
        if (!twill_hierarchy_owns(l, level, s))
            continue;
        run = twill_compose_run(c, level, s);
        uint32_t owner = twill_hierarchy_owner(l, level, s), first = twill_compose_block(c, s);
        if (owner != l->level[level].me)
            twill_emit_copy(&c->e, data_at(TWILL_DST, first), data_at(from, first),
                            twill_hierarchy_owner_rank(l, level, c->e.rank, owner, s),
                            run * c->each, 0);
    }
}

static void up_direct(struct twill_compose *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    enum twill_space from = level + 1 == l->count ? c->final : TWILL_DST;
    bool has_all = c->broadcasts && c->e.rank == c->root;
    if (!c->down && c->mapped && !c->broadcasts)
        await_started(c, level);
    for (uint32_t s = 0, run = 1; s < l->shards; s += run) {
        run = 1;
        if (!twill_hierarchy_owns(l, level, s))
            continue;
        run = twill_compose_run(c, level, s);
        uint32_t owner = twill_hierarchy_owner(l, level, s);
        if (owner == l->level[level].me)
            distribute_shards(c, level, s, run, from);
        else if (!has_all)
            c->marked[twill_hierarchy_owner_rank(l, level, c->e.rank, owner, s)] = true;
    }
    twill_emit_signal(&c->e);
    twill_compose_await(c, level, true);
    if (!c->mapped && !has_all)
        fetch(c, level);
}

/* One level up, by messages: each shard goes round the unit. */
static void up_ring(struct twill_compose *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *r = &l->level[level];
    uint32_t right = (r->me + 1) % r->fanout, left = (r->me + r->fanout - 1) % r->fanout;
    uint32_t *sorted = twill_compose_sort_shards(c, level);
    for (uint32_t hop = 1; hop < r->fanout && sorted != NULL; hop++) {
        uint32_t s, mine = r->me + r->fanout - hop;
        unsigned receives;
        struct twill_compose_pair pair = twill_compose_pair_of(c, level, sorted, mine + 1, mine);
        while (twill_compose_pair_next(&pair, &s, &receives)) {
            twill_operand dst = data_at(TWILL_DST, twill_compose_block(c, s));
            if (receives)
                twill_emit_recv(&c->e, twill_hierarchy_owner_rank(l, level, c->e.rank, left, s),
                                dst, c->each, 0);
            else
                twill_emit_send(&c->e, twill_hierarchy_owner_rank(l, level, c->e.rank, right, s),
                                dst, c->each, 0);
        }
        twill_compose_insert_wait(&c->e, false);
    }
    free(sorted);
}

void twill_compose_up(struct twill_compose *c)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    for (uint32_t j = l->scatters; j-- > 0;) {
        if (l->level[j].fanout > 1 && l->level[j].choice.how == TWILL_BY_DIRECT)
            up_direct(c, j);
        else if (l->level[j].fanout > 1)
            up_ring(c, j);
    }
}

/* Begin an allgather: copy the own shard; with MAPPED signal that this rank has started, before
 * others write its DST. */
void twill_compose_begin_up(struct twill_compose *c)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    uint32_t me = c->e.rank;
    if (c->mapped && twill_hierarchy_signals(l, me, 0, l->count) > 0)
        twill_emit_signal(&c->e);
    twill_emit_copy(&c->e, data_at(TWILL_DST, me), data_at(TWILL_SRC, me), 0, 1, 0);
}

/* Begin a broadcast: when all others have signalled that they have started, the root publishes the
 * message, and the others fetch their shards below the top level. With MAPPED they signal the root
 * when they are done. */
void twill_compose_begin_broadcast(struct twill_compose *c)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_group node = twill_group_node(&c->e);
    unsigned from = (c->mapped ? TWILL_SRC : TWILL_SHARED) | TWILL_PEER;
    if (c->e.rank == c->root) {
        twill_emit_copy(&c->e, data_at(TWILL_DST, 0), data_at(TWILL_SRC, 0), 0, c->e.blocks, 0);
        if (!c->mapped)
            twill_emit_copy(&c->e, data_at(TWILL_SHARED, 0), data_at(TWILL_SRC, 0), 0, c->e.blocks,
                            0);
        twill_emit_await(&c->e, &node, 1, 0);
        twill_emit_signal(&c->e);
        return;
    }
    twill_emit_signal(&c->e);
    twill_emit_await_one(&c->e, c->root, 1, 0);
    for (uint32_t s = 0, run = 1; s < l->shards; s += run) {
        run = 1;
        if (!twill_hierarchy_owns(l, l->scatters, s))
            continue;
        while (s + run < l->shards && twill_hierarchy_owns(l, l->scatters, s + run))
            run++;
        twill_emit_copy(&c->e, data_at(TWILL_DST, twill_compose_block(c, s)),
                        data_at(from, twill_compose_block(c, s)), c->root, run * c->each, 0);
    }
    if (c->mapped)
        twill_emit_signal(&c->e);
}

/* End a broadcast; MAPPED: the root waits until all others have read its SRC. */
void twill_compose_end_broadcast(struct twill_compose *c)
{
    const struct twill_group node = twill_group_node(&c->e);
    if (c->mapped && c->e.rank == c->root)
        twill_emit_await(&c->e, &node, 2, 0);
}
