/* SPDX-License-Identifier: Apache-2.0 */
/* Zero-copy: ranks of a node publish where their buffers lie in the shared heap and read the
 * others'. Who has none needs to wait for nobody: the answer is no.
 *
 * Lines are used by every other call. One is free again when everybody has begun the call before
 * the last, and so read its votes: that is waited for, which takes no time where calls are not
 * eager, because the executor asks for a call only when a place in the window is free. */
#include "lib/comm.h"

static bool has(enum twill_holder holder, const struct twill_run *run, uint32_t rank)
{
    return holder == TWILL_HOLDS_ALL || holder == TWILL_HOLDS_OWN ||
           (holder == TWILL_HOLDS_ROOT && rank == run->call.root);
}

/* Of a broadcast only the root's source is shared: a representative hands it on, out of its own
 * buffer. */
static bool needs(const struct twill_run *run, unsigned side, uint32_t rank)
{
    const struct twill_collective_facts *facts = twill_collective_facts(run->call.collective);
    if (side == TWILL_SRC)
        return has(facts->src, run, rank);
    return run->call.collective != TWILL_BROADCAST && has(facts->dst, run, rank);
}

static size_t bytes_of(const struct twill_run *run, unsigned side)
{
    const struct twill_collective_facts *facts = twill_collective_facts(run->call.collective);
    enum twill_holder holder = side == TWILL_SRC ? facts->src : facts->dst;
    size_t parts = facts->parts && holder != TWILL_HOLDS_OWN ? run->comm->world->size : 1;
    return parts * run->call.count * run->element;
}

static const struct twill_vote_line *vote_of(const struct twill_run *run, uint32_t local)
{
    const struct twill_vote_line *line = &run->comm->node->area[local]->vote[run->sequence % 2];
    bool there = atomic_load_explicit(&line->sequence, memory_order_acquire) == run->sequence;
    return there ? line : NULL;
}

static uint64_t place_of(const struct twill_run *run, unsigned side)
{
    const struct twill_side *s = &run->side[side];
    if (!needs(run, side, run->comm->rank))
        return 0;
    if (s->staged)
        return TWILL_HEAP_NOWHERE;
    return twill_heap_offset(&run->comm->context->heap, s->base, bytes_of(run, side));
}

/* Does this rank vote, and is it for it? */
static bool publish(struct twill_run *run)
{
    struct twill_comm *comm = run->comm;
    struct twill_vote_line *line = &comm->node->area[comm->local]->vote[run->sequence % 2];
    uint64_t src = place_of(run, TWILL_SRC), dst = place_of(run, TWILL_DST);
    atomic_store_explicit(&line->src, src, memory_order_relaxed);
    atomic_store_explicit(&line->dst, dst, memory_order_relaxed);
    atomic_store_explicit(&line->signature, run->signature, memory_order_relaxed);
    atomic_store_explicit(&line->sequence, run->sequence, memory_order_release);
    twill_node_ring_all(comm->node);
    return src != TWILL_HEAP_NOWHERE && dst != TWILL_HEAP_NOWHERE;
}

static void take(struct twill_run *run, uint32_t local, const struct twill_vote_line *line)
{
    struct twill_comm *comm = run->comm;
    uint32_t rank = comm->node->rank[local];
    uint64_t src = atomic_load_explicit(&line->src, memory_order_relaxed);
    uint64_t dst = atomic_load_explicit(&line->dst, memory_order_relaxed);
    if (src == TWILL_HEAP_NOWHERE || dst == TWILL_HEAP_NOWHERE) {
        run->mapped = false;
        return;
    }
    struct twill_heap_view *view = &comm->view[local];
    run->peer_src[local] = needs(run, TWILL_SRC, rank) ? view->base + src : NULL;
    run->peer_dst[local] = needs(run, TWILL_DST, rank) ? view->base + dst : NULL;
    if (local == comm->local)
        return;
    if (run->peer_src[local] != NULL)
        twill_heap_view_touch(view, src, bytes_of(run, TWILL_SRC));
    if (run->peer_dst[local] != NULL && dst != src)
        twill_heap_view_touch(view, dst, bytes_of(run, TWILL_DST));
}

static bool votes(const struct twill_run *run, uint32_t local)
{
    uint32_t rank = run->comm->node->rank[local];
    return needs(run, TWILL_SRC, rank) || needs(run, TWILL_DST, rank);
}

int twill_run_vote(struct twill_run *run)
{
    struct twill_comm *comm = run->comm;
    if (run->counted)
        return 1;
    if (!run->voted) {
        if (!twill_comm_has_met(comm, comm->epoch - TWILL_WINDOW))
            return 0;
        run->voted = true;
        run->mapped = true;
        run->next_vote = 0;
        if (votes(run, comm->local) && !publish(run)) {
            run->mapped = false;
            run->counted = true;
            return 1;
        }
    }
    for (; run->next_vote < comm->local_size; run->next_vote++) {
        if (!votes(run, run->next_vote))
            continue;
        const struct twill_vote_line *line = vote_of(run, run->next_vote);
        if (line == NULL)
            return 0;
        if (atomic_load_explicit(&line->signature, memory_order_relaxed) != run->signature)
            TWILL_TRY(&comm->error, twill_comm_check_peer(comm, comm->node->rank[run->next_vote]));
        take(run, run->next_vote, line);
    }
    run->counted = true;
    return 1;
}

unsigned twill_run_votes_missing(const struct twill_run *run, uint32_t *ranks, unsigned most)
{
    unsigned n = 0;
    if (!run->voted || run->counted)
        return 0;
    for (uint32_t l = run->next_vote; l < run->comm->local_size && n < most; l++)
        if (votes(run, l) && vote_of(run, l) == NULL)
            ranks[n++] = run->comm->node->rank[l];
    return n;
}
