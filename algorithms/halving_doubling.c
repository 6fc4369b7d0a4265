/* SPDX-License-Identifier: Apache-2.0 */
/* Halving and doubling for any number of ranks, on a circulant graph (Traeff, "Optimal,
 * Non-pipelined Reduce-scatter and Allreduce Algorithms", 2024).
 *
 * Reduce-scatter: the ranks still to be served, seen from each rank, are those up to s to its
 * right, itself included. First s = P; in a round s' = ceil(s/2), and a rank sends its partials for
 * the farther ones, s' to s-1 to the right, to the rank s' to the right, and folds what comes for
 * the nearer ones. After ceil(lg P) rounds only its own part is left, complete. Allgather: the same
 * backwards. Bytes n(P-1)/P each, the least there is, without the detour that ranks beyond a power
 * of two make elsewhere: 2 ceil(lg P) rounds and 2n(P-1)/P bytes for the allreduce. Part numbers
 * wrap round, so a round is at times two messages.
 *
 *     P = 5, rank 0:  round 0 (5 -> 3): parts 3 4 to rank 3; 0 1 from rank 2
 *                     round 1 (3 -> 2): part  2   to rank 2; 0   from rank 3
 *                     round 2 (2 -> 1): part  1   to rank 1; 0   from rank 4, complete */
#include "algorithms/emit.h"

/* The same step for all parts of ranks `from` to `to` - 1 to the right of position `base`, in
 * pieces that are consecutive blocks, and either all partials or all raw: what is `partials` or
 * farther to the right was never folded. Sends if `out`, else receives into the position of this
 * rank. */
struct span {
    uint32_t base, from, to, partials, peer;
    bool out, reduces, ends;
};

static void emit_piece(struct twill_emitter *e, const struct span *s, uint32_t block,
                       uint32_t blocks, bool partial, bool own)
{
    unsigned flags = partial ? TWILL_STEP_PARTIAL : 0;
    enum twill_space mine = !s->reduces ? TWILL_DST : TWILL_TMP;
    if (s->out)
        twill_emit_send(e, s->peer,
                        twill_operand_make(s->reduces && !partial ? TWILL_SRC : mine, block),
                        blocks, flags);
    else if (!s->reduces)
        twill_emit_recv(e, s->peer, twill_operand_make(TWILL_DST, block), blocks, 0);
    else
        twill_emit_recv_reduce(e, s->peer, twill_operand_make(s->ends ? TWILL_DST : mine, block),
                               twill_operand_make(own ? TWILL_TMP : TWILL_SRC, block), blocks,
                               flags | TWILL_STEP_FIRST | (own ? TWILL_STEP_PARTIAL_OWN : 0) |
                                   (s->ends ? TWILL_STEP_FINAL : 0));
}

/* From the farthest on: of what goes out that is what came last. distance: between the numbers of a
 * part as seen from the receiver and from the sender. */
static void emit_span(struct twill_emitter *e, const struct twill_group *g, const struct span *s,
                      uint32_t distance)
{
    uint32_t each = g->blocks / g->size;
    for (uint32_t end = s->to, first; end > s->from; end = first) {
        bool partial = end - 1 + distance < s->partials;
        first = s->from;
        if (!partial && s->partials > first + distance)
            first = s->partials - distance;
        if (s->base + end > g->size) /* not past the last part */
            first = (uint32_t)twill_max(first, s->base < g->size ? g->size - s->base : 0);
        emit_piece(e, s, twill_group_block(g, s->base + first), (end - first) * each, partial,
                   end - 1 < s->partials);
    }
}

/* Skips by number: 0 is P, then each half of the one before, rounded up, down to 1. */
static uint32_t skip(uint32_t size, uint32_t number)
{
    for (; number > 0; number--)
        size = (size + 1) / 2;
    return size;
}

static void reduce_scatter(struct twill_emitter *e, const struct twill_group *g)
{
    uint32_t size = g->size;
    for (uint32_t s = size, next; s > 1; s = next) {
        next = (s + 1) / 2;
        uint32_t partials = s == size ? 0 : size / 2;
        struct span out = {.base = g->me,
                           .from = next,
                           .to = s,
                           .partials = partials,
                           .peer = g->rank[(g->me + next) % size],
                           .out = true,
                           .reduces = true};
        struct span in = {.base = g->me,
                          .to = s - next,
                          .partials = partials,
                          .peer = g->rank[(g->me + size - next) % size],
                          .reduces = true,
                          .ends = next == 1};
        size_t mark = twill_emit_mark(e);
        emit_span(e, g, &in, next);
        emit_span(e, g, &out, 0);
        twill_emit_settle(e, mark);
    }
    twill_emit_wait(e);
}

static void allgather(struct twill_emitter *e, const struct twill_group *g)
{
    uint32_t size = g->size, rounds = 0;
    while (skip(size, rounds) > 1)
        rounds++;
    for (uint32_t k = rounds; k > 0; k--) {
        uint32_t s = skip(size, k), next = skip(size, k - 1);
        struct span out = {
            .base = g->me, .to = next - s, .peer = g->rank[(g->me + size - s) % size], .out = true};
        struct span in = {
            .base = g->me, .from = s, .to = next, .peer = g->rank[(g->me + s) % size]};
        size_t mark = twill_emit_mark(e);
        emit_span(e, g, &out, 0);
        emit_span(e, g, &in, 0);
        twill_emit_settle(e, mark);
    }
    if (rounds > 0)
        twill_emit_wait(e);
}

static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    (void)world;
    return shape->order == TWILL_ORDER_ANY && !shape->vector;
}

static twill_status emit(struct twill_schedule *schedule, const struct twill_world *world,
                         uint32_t rank, const struct twill_shape *shape, struct twill_error *error)
{
    bool parts = twill_collective_facts(shape->collective)->parts;
    bool reduces = shape->collective != TWILL_ALLGATHER;
    struct twill_emitter e;
    twill_emitter_begin(&e, world, rank, world->size);
    /* Parts by rank, to be consecutive. */
    struct twill_group g =
        parts ? twill_group_ranks(&e, e.blocks) : twill_group_world(&e, e.blocks);
    e.parts = parts ? world->size : 1;
    e.tmp_blocks = reduces && world->size > 2 ? e.blocks : 0;
    uint32_t mine = twill_group_block(&g, g.me);
    if (reduces && world->size > 1)
        reduce_scatter(&e, &g);
    else
        twill_emit_copy(&e, twill_operand_make(TWILL_DST, mine),
                        twill_operand_make(TWILL_SRC, mine), 0, 1, 0);
    if (shape->collective != TWILL_REDUCE_SCATTER)
        allgather(&e, &g);
    return twill_emitter_finish(&e, schedule, error);
}

const struct twill_algorithm twill_algorithm_halving_doubling = {
    .name = "halving_doubling",
    .help = "halve what is left round by round, then double it: 2 ceil(lg P) rounds, 2n(P-1)/P "
            "bytes for any P (Traeff 2024)",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_REDUCE_SCATTER | 1u << TWILL_ALLGATHER,
    .applies = applies,
    .emit = emit,
};
