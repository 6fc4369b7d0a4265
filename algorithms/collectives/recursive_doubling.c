/* SPDX-License-Identifier: Apache-2.0 */
/* Recursive doubling (Thakur, Rabenseifner and Gropp 2005), for any number of ranks. In round k a
 * rank exchanges all that it has with the rank whose number differs in bit k, and reduces. If P is
 * not a power of two but exceeds the power 2^k, the first 2(P - 2^k) ranks form pairs. The even
 * rank of a pair sends its data to the next rank before, and receives the result after. It takes lg
 * P (+2) rounds and n lg P bytes sent.
 *
 *     0 1 2 3 4      first 0 -> 1, then 1 2 3 4 exchange at distance 1 and 2:
 *      \| | | |      1-2 3-4, 1-3 2-4, then 1 -> 0
 *
 * The operand of the lower rank goes first on both sides, so all get the same bits, in the order of
 * the group. Each reduction reads one of two copies in TMP, and writes the other, or DST. */
#include "algorithms/collectives/cores.h"

/* The data that a rank has reduced so far, while recursive doubling is emitted. A local variable of
 * twill_emit_recursive_doubling(). */
struct doubling {
    twill_operand own; /* where the reduction so far is */
    bool partial;      /* `own` is a partial */
    uint32_t copy;     /* the copy of TMP that does not contain `own` */
};

/* Return the position in the group of participant p of the exchanges, counted from 0. Of each of
 * the first `extra` pairs of positions only the odd one participates. All positions after the pairs
 * participate. */
static uint32_t position(uint32_t p, uint32_t extra)
{
    return p < extra ? 2 * p + 1 : p + extra;
}

/* Post the receive of the value of position `peer`, to be reduced with `own` of `d`, and make the
 * result the new `own`. `partial` says that the peer sends a partial. With `final` the result is
 * complete and goes to DST, else to TMP. A WAIT is due afterwards. */
static void receive_partial(struct twill_emitter *e, const struct twill_group *g,
                            struct doubling *d, uint32_t peer, bool partial, bool final)
{
    twill_operand dst =
        final ? data_at(TWILL_DST, g->first) : data_at(TWILL_TMP, g->first + d->copy * e->blocks);
    unsigned flags = (peer < g->me ? TWILL_STEP_FIRST : 0) | (final ? TWILL_STEP_FINAL : 0) |
                     (partial ? TWILL_STEP_PARTIAL : 0) | (d->partial ? TWILL_STEP_PARTIAL_OWN : 0);
    /* An empty message needs no reduction, so it is a RECV. */
    if (g->blocks > 0)
        twill_emit_recv_reduce(e, g->rank[peer], dst, d->own, g->blocks, flags);
    else
        twill_emit_recv(e, g->rank[peer], dst, 0, 0);
    *d = (struct doubling){.own = dst, .partial = true, .copy = 1 - d->copy};
}

/* Post to a peer what this rank has reduced so far. */
static void send_partial(struct twill_emitter *e, const struct twill_group *g,
                         const struct doubling *d, uint32_t peer)
{
    twill_emit_send(e, g->rank[peer], d->own, g->blocks,
                    d->partial && g->blocks > 0 ? TWILL_STEP_PARTIAL : 0);
}

/* Append the steps of this rank if it is the even position of a pair, and so takes no part in the
 * exchanges. It sends its data, d->own, to the next position of the group. Then it receives the
 * result from there into DST, for which a WAIT is due. */
static void emit_extra_rank(struct twill_emitter *e, const struct twill_group *g,
                            const struct doubling *d)
{
    send_partial(e, g, d, g->me + 1);
    if (g->blocks > 0 && !d->partial) /* in place, the result overwrites the data being sent */
        twill_emit_wait(e);
    twill_emit_recv(e, g->rank[g->me + 1], data_at(TWILL_DST, g->first), g->blocks, 0);
}

bool twill_emit_recursive_doubling(struct twill_emitter *e, const struct twill_group *g,
                                   enum twill_space from)
{
    uint32_t power = 1;
    while (2 * power <= g->size)
        power *= 2;
    uint32_t extra = g->size - power;
    bool partials = from == TWILL_TMP, paired = g->me < 2 * extra;
    struct doubling d = {.own = data_at(from, g->first), .partial = partials, .copy = partials};
    if (g->size == 1) {
        twill_emit_alone(e, g, from);
        return false;
    }
    if (paired && g->me % 2 == 0) {
        emit_extra_rank(e, g, &d);
        return true;
    }
    if (paired) {
        receive_partial(e, g, &d, g->me - 1, partials, false);
        twill_emit_wait(e);
    } else if (power == 2 && !partials && g->blocks > 0) {
        /* The first reduction is the last one and would overwrite what is sent in place. */
        d.own = data_at(TWILL_TMP, g->first);
        twill_emit_copy(e, d.own, data_at(from, g->first), 0, g->blocks, 0);
    }
    uint32_t me = paired ? g->me / 2 : g->me - extra;
    for (uint32_t bit = 1; bit < power; bit *= 2) {
        uint32_t peer = position(me ^ bit, extra);
        send_partial(e, g, &d, peer);
        receive_partial(e, g, &d, peer, partials || bit > 1 || peer < 2 * extra, 2 * bit == power);
        if (paired || 2 * bit < power)
            twill_emit_wait(e);
    }
    if (paired)
        twill_emit_send(e, g->rank[g->me - 1], d.own, g->blocks, 0);
    return true;
}

/* Return whether recursive doubling supports the shape's order of operands. From four ranks on it
 * cannot reduce one operand after the other from the left (TWILL_ORDER_LEFT). */
static bool applies(const struct twill_world *world, const struct twill_shape *shape)
{
    return shape->order != TWILL_ORDER_LEFT || world->size < 4;
}

/* Append the steps of recursive doubling, for an allreduce or barrier. */
static void emit(struct twill_emitter *e, const struct twill_shape *shape)
{
    bool barrier = shape->collective == TWILL_BARRIER;
    e->tmp_blocks = barrier || e->world->size == 1 ? 0 : e->world->size < 4 ? 1 : 2;
    struct twill_group g = shape->order == TWILL_ORDER_ANY ? twill_group_world(e, barrier ? 0 : 1)
                                                           : twill_group_ranks(e, barrier ? 0 : 1);
    if (twill_emit_recursive_doubling(e, &g, TWILL_SRC))
        twill_emit_wait(e);
}

const struct twill_algorithm twill_algorithm_recursive_doubling = {
    .name = "recursive_doubling",
    .help = "exchange everything at distance 1, 2, 4, ...: lg P rounds (+2 unless P is a power of "
            "two), n lg P bytes (Thakur, Rabenseifner and Gropp 2005)",
    .collectives = 1u << TWILL_ALLREDUCE | 1u << TWILL_BARRIER,
    .applies = applies,
    .emit = emit,
};
