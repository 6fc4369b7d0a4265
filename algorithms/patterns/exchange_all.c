/* SPDX-License-Identifier: Apache-2.0 */
/* Total exchanges over messages, which are the order of the turns and the reduction of what all
 * members send. Received operands are kept in TMP, in as many slots as two windows have turns. One
 * window is posted while the other is reduced into an accumulator, also in TMP, which takes the
 * operands in order. The last operand goes to DST, and the accumulator is reduced with it there. */
#include "algorithms/patterns/exchange_all.h"

/* Return the number, from 0, of the window that contains turn k of this rank. A window has
 * TWILL_EXCHANGE_WINDOW turns, which are posted at once. With `by_rank` the turns are with the
 * other members in the order of the group, else at increasing distance. */
static uint32_t window_of(const struct twill_group *g, bool by_rank, uint32_t k)
{
    return (by_rank ? g->me + k + (k >= g->me) : k) / TWILL_EXCHANGE_WINDOW;
}

/* A turn of a rank in a total exchange, in which it sends to one member and receives from one. By
 * rank, the turns are with members 0, 1, 2, ... in order. Members x and y then exchange in window
 * (x + y) / TWILL_EXCHANGE_WINDOW, the same on both. If not by rank, turn k sends k + 1 positions
 * to the right and receives from k + 1 to the left. */
struct turn {
    uint32_t to, from; /* positions in the group */
    uint32_t operand;  /* number of the received operand: by rank `from`, else k + 1 in turn k */
    bool last;         /* it is the last turn of its window */
};

/* Return turn k, from 0 on, of this rank in a total exchange. With `by_rank` its turns are with the
 * other members in the order of the group, else at increasing distance. */
static struct turn turn_at(const struct twill_group *g, bool by_rank, uint32_t k)
{
    bool last = k + 2 >= g->size || window_of(g, by_rank, k) != window_of(g, by_rank, k + 1);
    if (by_rank) {
        uint32_t peer = k + (k >= g->me);
        return (struct turn){.to = peer, .from = peer, .operand = peer, .last = last};
    }
    return (struct turn){.to = (g->me + k + 1) % g->size,
                         .from = (g->me + g->size - k - 1) % g->size,
                         .operand = k + 1,
                         .last = last};
}

void twill_emit_exchange(struct twill_emitter *e, const struct twill_group *g,
                         enum twill_space from)
{
    uint32_t each = g->blocks / g->size;
    for (uint32_t k = 0; k + 1 < g->size; k++) {
        struct turn turn = turn_at(g, false, k);
        size_t mark = twill_emit_mark(e);
        uint32_t out = twill_group_block(g, from == TWILL_SRC ? turn.to : g->me);
        twill_emit_send(e, g->rank[turn.to], data_at(from, out), each, 0);
        twill_emit_recv(e, g->rank[turn.from], data_at(TWILL_DST, twill_group_block(g, turn.from)),
                        each, 0);
        if (k % (TWILL_EMIT_POSTED / 2) == 0)
            twill_emit_insert_wait(e, mark);
    }
    if (g->size > 1)
        twill_emit_wait(e);
}

/* Return where operand number i is received. The accumulator precedes these slots in TMP. */
static twill_operand intake_operand(const struct twill_intake *in, uint32_t i)
{
    return data_at(TWILL_TMP, in->tmp + (1 + i % (2 * TWILL_EXCHANGE_WINDOW)) * in->stride);
}

/* Post the receive of operand number i from rank `from`. If it and this rank's operand, number
 * `own`, are numbers 0 and 1, it is reduced with SRC on arrival. It goes to the accumulator then or
 * if i is 0, else to its slot in TMP. With two members the result goes to DST. */
static void receive_intake(struct twill_emitter *e, const struct twill_group *g,
                           const struct twill_intake *in, uint32_t own, uint32_t i, uint32_t from)
{
    twill_operand acc = data_at(TWILL_TMP, in->tmp);
    unsigned first = i < own ? TWILL_STEP_FIRST : 0;
    if (g->size == 2)
        twill_emit_recv_reduce(e, from, data_at(TWILL_DST, in->first),
                               data_at(TWILL_SRC, in->first), in->blocks, first | TWILL_STEP_FINAL);
    else if (i + own == 1)
        twill_emit_recv_reduce(e, from, acc, data_at(TWILL_SRC, in->first), in->blocks, first);
    else
        twill_emit_recv(e, from, i == 0 ? acc : intake_operand(in, i), in->blocks, 0);
}

/* Return whether operand number i of a reduction needs no step after its arrival. Operand 0 is
 * received in the accumulator. Operand 1 is reduced with it on arrival if one of the two is that of
 * this rank, whose number is `own`. */
static bool comes_reduced(uint32_t own, uint32_t i)
{
    return i == 0 || (i == 1 && own < 2);
}

/* Reduce operands number *i to `end` - 1, at most `most` of them, into the accumulator in TMP, and
 * advance *i past them. After the last operand of all, the final result goes to DST. `own` is the
 * number of this rank's operand, which is in SRC. */
static void reduce_operands(struct twill_emitter *e, const struct twill_group *g,
                            const struct twill_intake *in, uint32_t own, uint32_t *i, uint32_t end,
                            uint32_t most)
{
    twill_operand acc = data_at(TWILL_TMP, in->tmp);
    twill_operand dst = data_at(TWILL_DST, in->first);
    for (; *i < end && g->size > 2; ++*i) {
        twill_operand src = *i == own ? data_at(TWILL_SRC, in->first) : intake_operand(in, *i);
        if (comes_reduced(own, *i))
            continue;
        if (most-- == 0)
            return;
        if (*i + 1 < g->size) {
            twill_emit_accumulate(e, acc, src, in->blocks, *i > 1 ? TWILL_STEP_PARTIAL_OWN : 0);
            continue;
        }
        twill_emit_copy(e, dst, src, 0, in->blocks, 0);
        twill_emit_accumulate(e, dst, acc, in->blocks,
                              TWILL_STEP_PARTIAL | TWILL_STEP_FIRST | TWILL_STEP_FINAL);
    }
}

void twill_emit_intake(struct twill_emitter *e, const struct twill_group *g,
                       const struct twill_intake *in)
{
    uint32_t own = in->by_rank ? g->me : 0, reduced = 0, here = 0;
    uint32_t sent = in->sends == TWILL_INTAKE_ALL ? g->blocks : g->blocks / g->size;
    enum twill_space from = TWILL_SRC;
    if (g->size == 2 && in->sends == TWILL_INTAKE_ALL) {
        /* The first reduction is the last one and would overwrite what is sent in place. */
        from = TWILL_TMP;
        twill_emit_copy(e, data_at(from, g->first), data_at(TWILL_SRC, g->first), 0, g->blocks, 0);
    }
    for (uint32_t k = 0; k + 1 < g->size; k++) {
        struct turn turn = turn_at(g, in->by_rank, k);
        uint32_t out = in->sends == TWILL_INTAKE_ALL ? g->first : twill_group_block(g, turn.to);
        if (in->sends != TWILL_INTAKE_NOTHING)
            twill_emit_send(e, g->rank[turn.to], data_at(from, out), sent, 0);
        receive_intake(e, g, in, own, turn.operand, g->rank[turn.from]);
        /* A window with nothing to reduce is merged with the next. */
        uint32_t ends = turn.operand + 1 + (turn.operand + 1 == own);
        if (k + 2 < g->size && (!turn.last || comes_reduced(own, ends - 1)))
            continue;
        reduce_operands(e, g, in, own, &reduced, here, here); /* the previous window */
        twill_emit_wait(e);
        here = ends;
        reduce_operands(e, g, in, own, &reduced, here, 1);
    }
    reduce_operands(e, g, in, own, &reduced, g->size, g->size);
}
