/* SPDX-License-Identifier: Apache-2.0 */
/* The composer (compose.c), down the levels: from the ranks' data to shards, each reduced by its
 * owner. */
#include "algorithms/compose/compose.h"

#include <stdlib.h>

/* Return the copy of the blocks in SHARED with the partials that a `direct` level reads. The first
 * copy of STAGED has the ranks' data and the results on the way up; MAPPED needs neither. */
static uint32_t shared_copy(const struct twill_compose *c, uint32_t level)
{
    uint32_t copy = c->mapped ? 0 : 1;
    for (uint32_t j = 1; j < level; j++)
        copy += c->hierarchy.level[j].choice.how == TWILL_BY_DIRECT;
    return copy;
}

/* Return where a level reads shard s of its members. */
static twill_operand shard_source(const struct twill_compose *c, uint32_t level, uint32_t s)
{
    if (c->hierarchy.level[level].choice.how != TWILL_BY_DIRECT)
        return data_at(level == 0 ? TWILL_SRC : TWILL_TMP, twill_compose_block(c, s));
    if (level == 0)
        return data_at(c->mapped ? TWILL_SRC : TWILL_SHARED, twill_compose_block(c, s));
    return data_at(TWILL_SHARED, shared_copy(c, level) * c->e.blocks + twill_compose_block(c, s));
}

/* Return where a level leaves shard s: where the next one reads it, or where final shards go. */
static twill_operand target_of(const struct twill_compose *c, uint32_t level, uint32_t s)
{
    if (level + 1 == c->hierarchy.count)
        return data_at(c->final, twill_compose_block(c, s));
    return shard_source(c, level + 1, s);
}

/* One level down, through memory: reduce the shards that this rank owns. */
static void down_direct(struct twill_compose *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *r = &l->level[level];
    unsigned flags = level > 0 ? TWILL_STEP_PARTIAL : c->mapped ? 0 : TWILL_STEP_OWN_SRC;
    if (level + 1 == l->count)
        flags |= TWILL_STEP_FINAL;
    for (uint32_t s = 0; s < l->shards; s++)
        for (uint32_t m = 0; m < r->fanout && twill_hierarchy_owns(l, level + 1, s); m++)
            c->marked[twill_hierarchy_owner_rank(l, level, c->e.rank, m, s)] = m != r->me;
    twill_emit_signal(&c->e);
    twill_compose_await(c, level, false);
    for (uint32_t s = 0, run = 1; s < l->shards; s += run) {
        run = 1;
        if (!twill_hierarchy_owns(l, level + 1, s))
            continue;
        run = twill_compose_run(c, level, s);
        struct twill_group g = {.rank = c->list, .size = r->fanout, .me = r->me};
        for (uint32_t m = 0; m < r->fanout; m++)
            c->list[m] = twill_hierarchy_owner_rank(l, level, c->e.rank, m, s);
        twill_emit_reduce(&c->e, &g, target_of(c, level, s),
                          shard_source(c, level, s) | (uint32_t)TWILL_PEER << TWILL_BLOCK_BITS,
                          run * c->each, flags);
    }
}

/* One level down, by messages: shard s starts at the member after its owner and goes round to it.
 */
static void down_ring(struct twill_compose *c, uint32_t level)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *r = &l->level[level];
    uint32_t right = (r->me + 1) % r->fanout, left = (r->me + r->fanout - 1) % r->fanout;
    uint32_t *sorted = twill_compose_sort_shards(c, level);
    for (uint32_t hop = 1; hop < r->fanout && sorted != NULL; hop++) {
        uint32_t s, mine = r->me + r->fanout - hop;
        unsigned receives, moved = level > 0 || hop > 1 ? TWILL_STEP_PARTIAL : 0;
        unsigned own = level > 0 ? TWILL_STEP_PARTIAL_OWN : 0;
        if (level + 1 == l->count && hop + 1 == r->fanout)
            own |= TWILL_STEP_FINAL;
        struct twill_compose_pair pair =
            twill_compose_pair_of(c, level, sorted, mine, mine + r->fanout - 1);
        while (twill_compose_pair_next(&pair, &s, &receives)) {
            twill_operand tmp = data_at(TWILL_TMP, twill_compose_block(c, s)),
                          source = shard_source(c, level, s);
            if (!receives)
                twill_emit_send(&c->e, twill_hierarchy_owner_rank(l, level, c->e.rank, right, s),
                                hop == 1 ? source : tmp, c->each, moved);
            else
                twill_emit_recv_reduce(&c->e,
                                       twill_hierarchy_owner_rank(l, level, c->e.rank, left, s),
                                       hop + 1 == r->fanout ? target_of(c, level, s) : tmp, source,
                                       c->each, moved | own | TWILL_STEP_FIRST);
        }
        twill_compose_insert_wait(&c->e, false);
    }
    free(sorted);
}

/* A unit of one member reduces nothing, but its data must be where the next level reads them. */
static void down_alone(struct twill_compose *c, uint32_t level)
{
    if (level == 0) /* all shards belong to this rank */
        twill_emit_widen(&c->e, target_of(c, 0, 0), data_at(TWILL_SRC, 0), c->e.blocks);
    for (uint32_t s = 0; s < c->hierarchy.shards && level > 0; s++) {
        twill_operand to = target_of(c, level, s), from = shard_source(c, level, s);
        if (twill_hierarchy_owns(&c->hierarchy, level + 1, s) && to != from)
            twill_emit_copy(&c->e, to, from, 0, c->each, TWILL_STEP_PARTIAL);
    }
}

/* Copy SRC into SHARED, except the shards that this rank reduces itself. */
static void copy_to_shared(struct twill_compose *c)
{
    uint32_t from = 0, shards = c->hierarchy.shards;
    for (uint32_t s = 0; s <= shards; s++) {
        if (s < shards && !twill_hierarchy_owns(&c->hierarchy, 1, s))
            continue;
        if (s > from)
            twill_emit_copy(&c->e, data_at(TWILL_SHARED, twill_compose_block(c, from)),
                            data_at(TWILL_SRC, twill_compose_block(c, from)), 0,
                            twill_compose_block(c, s - from), 0);
        from = s + 1;
    }
}

void twill_compose_down(struct twill_compose *c)
{
    const struct twill_hierarchy *l = &c->hierarchy;
    if (l->scatters > 0 && l->level[0].choice.how == TWILL_BY_DIRECT && !c->mapped)
        copy_to_shared(c);
    for (uint32_t j = 0; j < l->scatters; j++) {
        if (l->level[j].fanout == 1)
            down_alone(c, j);
        else if (l->level[j].choice.how == TWILL_BY_DIRECT)
            down_direct(c, j);
        else
            down_ring(c, j);
    }
}

/* End a reduce-scatter: move the shard to DST, and with MAPPED wait until the others have read SRC,
 * which they did at the lowest level. */
void twill_compose_end_down(struct twill_compose *c)
{
    struct twill_hierarchy *l = &c->hierarchy;
    const struct twill_hierarchy_level *low = &l->level[0];
    uint32_t me = c->e.rank;
    if (c->final != TWILL_DST)
        twill_emit_copy(&c->e, data_at(TWILL_DST, me), data_at(c->final, me), 0, 1, 0);
    if (!c->mapped || low->fanout == 1 || low->choice.how != TWILL_BY_DIRECT)
        return;
    twill_emit_signal(&c->e);
    for (uint32_t m = 0; m < low->fanout; m++)
        c->marked[twill_hierarchy_owner_rank(l, 0, me, m, 0)] = m != low->me;
    twill_compose_await(c, l->count, true);
}
