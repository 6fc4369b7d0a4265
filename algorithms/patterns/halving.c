/* SPDX-License-Identifier: Apache-2.0 */
/* Reduce-scatter and allgather on a circulant graph. halving_doubling.c explains the idea. */
#include "algorithms/collectives/cores.h"

#include <stdlib.h>

/* The shards that one step sends to `peer` (`out`) or receives from it. They belong to the
 * positions base + from to base + to - 1 of the group, modulo its size. This rank already has
 * partials of those less than `partials` after `base`, and of the others only its raw data. */
struct shard_range {
    uint32_t base, from, to, partials, peer; /* `peer` is a rank */
    bool out, reduces, ends; /* `reduces` in a reduce-scatter, `ends` where the result is FINAL */
};

/* Append one message of `blocks` blocks from `block` on, which sends to the peer of the step or
 * receives from it. `partial` says that the message is a partial. `own` says that this rank has a
 * partial of the blocks already, with which a received message is reduced. */
static void emit_blocks(struct twill_emitter *e, const struct shard_range *s, uint32_t block,
                        uint32_t blocks, bool partial, bool own)
{
    unsigned flags = partial ? TWILL_STEP_PARTIAL : 0;
    enum twill_space mine = !s->reduces ? TWILL_DST : TWILL_TMP;
    if (s->out)
        twill_emit_send(e, s->peer, data_at(s->reduces && !partial ? TWILL_SRC : mine, block),
                        blocks, flags);
    else if (!s->reduces)
        twill_emit_recv(e, s->peer, data_at(TWILL_DST, block), blocks, 0);
    else
        twill_emit_recv_reduce(e, s->peer, data_at(s->ends ? TWILL_DST : mine, block),
                               data_at(own ? TWILL_TMP : TWILL_SRC, block), blocks,
                               flags | TWILL_STEP_FIRST | (own ? TWILL_STEP_PARTIAL_OWN : 0) |
                                   (s->ends ? TWILL_STEP_FINAL : 0));
}

/* Append the messages of a step, one per run of consecutive blocks that are all partials or all
 * raw. The farthest shards go first, because what was received last is sent last. In a receive that
 * reduces, `distance` is how far the sender is to the left, else 0. */
static void emit_shards(struct twill_emitter *e, const struct twill_group *g,
                        const struct shard_range *s, uint32_t distance)
{
    uint32_t each = g->blocks / g->size;
    for (uint32_t end = s->to, first; end > s->from; end = first) {
        bool partial = end - 1 + distance < s->partials;
        first = s->from;
        if (!partial && s->partials > first + distance)
            first = s->partials - distance;
        if (s->base + end > g->size) /* not past the last shard */
            first = (uint32_t)twill_max(first, s->base < g->size ? g->size - s->base : 0);
        emit_blocks(e, s, twill_group_block(g, s->base + first), (end - first) * each, partial,
                    end - 1 < s->partials);
    }
}

/* Return the length of skip number `number` in a group of `size` members. Skip 0 is `size`, and
 * each further one is half of the preceding one, rounded up, down to 1. */
static uint32_t skip_length(uint32_t size, uint32_t number)
{
    for (; number > 0; number--)
        size = (size + 1) / 2;
    return size;
}

void twill_emit_circulant_reduce_scatter(struct twill_emitter *e, const struct twill_group *g,
                                         enum twill_space from, enum twill_space to)
{
    uint32_t size = g->size;
    for (uint32_t s = size, next; s > 1; s = next) {
        next = (s + 1) / 2;
        /* From TMP everything is a partial, as every position is nearer than this. */
        uint32_t partials = from == TWILL_TMP ? 2 * size : s == size ? 0 : size / 2;
        struct shard_range out = {.base = g->me,
                                  .from = next,
                                  .to = s,
                                  .partials = partials,
                                  .peer = g->rank[(g->me + next) % size],
                                  .out = true,
                                  .reduces = true};
        struct shard_range in = {.base = g->me,
                                 .to = s - next,
                                 .partials = partials,
                                 .peer = g->rank[(g->me + size - next) % size],
                                 .reduces = true,
                                 .ends = next == 1 && to == TWILL_DST};
        size_t mark = twill_emit_mark(e);
        emit_shards(e, g, &in, next);
        emit_shards(e, g, &out, 0);
        twill_emit_insert_wait(e, mark);
    }
    twill_emit_wait(e);
}

void twill_emit_circulant_allgather(struct twill_emitter *e, const struct twill_group *g)
{
    uint32_t size = g->size, rounds = 0;
    while (skip_length(size, rounds) > 1)
        rounds++;
    for (uint32_t k = rounds; k > 0; k--) {
        uint32_t s = skip_length(size, k), next = skip_length(size, k - 1);
        struct shard_range out = {
            .base = g->me, .to = next - s, .peer = g->rank[(g->me + size - s) % size], .out = true};
        struct shard_range in = {
            .base = g->me, .from = s, .to = next, .peer = g->rank[(g->me + s) % size]};
        size_t mark = twill_emit_mark(e);
        emit_shards(e, g, &out, 0);
        emit_shards(e, g, &in, 0);
        twill_emit_insert_wait(e, mark);
    }
    if (rounds > 0)
        twill_emit_wait(e);
}

/* Return the length of the longest rows into which the members can be divided, each within one
 * group of nodes, and set *whole to whether each row is a whole group. It is the number of members
 * if there are no groups. */
static uint32_t row_length(const struct twill_emitter *e, const struct twill_group *g, bool *whole)
{
    const uint32_t *group = e->world->unit[TWILL_LEVEL_GROUP];
    uint32_t length = 0, groups = 0;
    for (uint32_t first = 0, i = 1; group != NULL && i <= g->size; i++) {
        if (i < g->size && group[g->rank[i]] == group[g->rank[first]])
            continue;
        for (uint32_t rest = i - first, more; rest > 0; rest = more) { /* greatest common divisor */
            more = length % rest;
            length = rest;
        }
        first = i;
        groups++;
    }
    *whole = groups * length == g->size;
    return group == NULL ? g->size : length;
}

bool twill_rows_open(struct twill_rows *rows, struct twill_emitter *e, const struct twill_group *g,
                     bool whole)
{
    bool are_whole;
    uint32_t length = row_length(e, g, &are_whole);
    if (length == 1 || length == g->size || (whole && !are_whole))
        return false;
    struct twill_group *row = &rows->row, *column = &rows->column;
    *row = *column = *g;
    column->size = g->size / length;
    column->me = g->me / length;
    column->blocks = g->blocks / length;
    row->rank += column->me * length;
    row->size = length;
    row->me = g->me % length;
    column->first = twill_group_block(row, row->me);
    column->rank = rows->ranks = malloc(column->size * sizeof(*rows->ranks));
    e->no_memory |= rows->ranks == NULL;
    for (uint32_t i = 0; i < column->size && rows->ranks != NULL; i++)
        rows->ranks[i] = g->rank[i * length + row->me];
    return rows->ranks != NULL;
}

bool twill_emit_circulant(struct twill_emitter *e, const struct twill_group *g,
                          enum twill_space from)
{
    struct twill_rows rows;
    if (twill_rows_open(&rows, e, g, false)) {
        twill_emit_circulant_reduce_scatter(e, &rows.row, from, TWILL_TMP);
        twill_emit_circulant_reduce_scatter(e, &rows.column, TWILL_TMP, TWILL_DST);
        twill_emit_circulant_allgather(e, &rows.column);
        twill_emit_circulant_allgather(e, &rows.row);
        free(rows.ranks);
    } else if (g->size > 1) {
        twill_emit_circulant_reduce_scatter(e, g, from, TWILL_DST);
        twill_emit_circulant_allgather(e, g);
    } else {
        twill_emit_alone(e, g, from);
    }
    return false;
}
