/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of buffer addresses, for zero-copy and single copy: ranks of a node publish where
 * their buffers are, in the shared heap and in their process, and collect the others' addresses. A
 * buffer in the heap, or one that can be attached, is mapped; one that a system call can read is
 * fetched. A rank whose own buffers allow neither need not collect: the result is neither.
 *
 * Each of a rank's two lines serves every other call. A line is free when all ranks have begun the
 * instance TWILL_WINDOW before, hence collected from it. Waiting for that takes no time where
 * schedules are not eager: the executor starts the exchange only when a slot is free.
 *
 * If all ranks publish, a complete exchange proves that all are in the call with their buffers
 * ready. It replaces the entry barrier of the schedule, whose first segment then begins behind it
 * (twill_schedule_entry_steps). Those schedules have a later barrier, which proves that all ranks
 * have completed the exchange. */
#include "fabric/shm/call_records.h"
#include "fabric/shm/single_copy.h"
#include "lib/comm/comm.h"

#include <string.h>

static bool holds_side(enum twill_holder holder, const struct twill_run *run, uint32_t rank)
{
    return holder == TWILL_HOLDS_ALL || holder == TWILL_HOLDS_OWN ||
           (holder == TWILL_HOLDS_ROOT && rank == run->call.root);
}

/* In a broadcast to several nodes only the root's source is shared: representatives forward it out
 * of their own buffers. On one node peers' destinations are shared, too. */
static bool side_is_needed(const struct twill_run *run, unsigned side, uint32_t rank)
{
    const struct twill_collective_facts *facts = twill_collective_facts(run->call.collective);
    if (side == TWILL_SRC)
        return holds_side(facts->src, run, rank);
    bool apart = run->call.collective == TWILL_BROADCAST && run->comm->world->nodes > 1;
    return !apart && holds_side(facts->dst, run, rank);
}

size_t twill_run_side_bytes(const struct twill_run *run, unsigned side)
{
    const struct twill_collective_facts *facts = twill_collective_facts(run->call.collective);
    enum twill_holder holder = side == TWILL_SRC ? facts->src : facts->dst;
    size_t shards = facts->sharded && holder != TWILL_HOLDS_OWN ? run->comm->world->size : 1;
    return shards * run->call.count * run->layout.element;
}

static uint64_t heap_offset_of(const struct twill_run *run, unsigned side)
{
    const struct twill_side *s = &run->buffers.side[side];
    if (!side_is_needed(run, side, run->comm->rank))
        return 0;
    if (s->bounced)
        return TWILL_HEAP_NOWHERE;
    return twill_heap_offset(&run->comm->context->memory.heap, s->base,
                             twill_run_side_bytes(run, side));
}

/* Return the side's address in this process; TWILL_HEAP_NOWHERE if peers cannot access it, 0 if
 * they need not. */
static uint64_t address_of(const struct twill_run *run, unsigned side)
{
    const struct twill_side *s = &run->buffers.side[side];
    if (!side_is_needed(run, side, run->comm->rank))
        return 0;
    if (s->bounced || run->comm->links.single_copy == NULL)
        return TWILL_HEAP_NOWHERE;
    return (uint64_t)(uintptr_t)s->base;
}

/* Withdraw the accesses that a side at this heap offset and address does not allow. */
static void restrict_access(struct twill_run *run, uint64_t offset, uint64_t address)
{
    bool reachable = address != TWILL_HEAP_NOWHERE;
    bool attachable = reachable && twill_single_copy_maps(run->comm->links.single_copy);
    if (offset == TWILL_HEAP_NOWHERE && !attachable)
        run->exchange.allowed &= ~(unsigned)TWILL_ACCESS_MAPPED;
    if (!reachable)
        run->exchange.allowed &= ~(unsigned)TWILL_ACCESS_FETCHED;
}

/* Publish this rank's addresses. Returns whether its own buffers allow any access. */
static bool publish_addresses(struct twill_run *run)
{
    struct twill_comm *comm = run->comm;
    struct twill_buffer_addresses own = {.src = heap_offset_of(run, TWILL_SRC),
                                         .dst = heap_offset_of(run, TWILL_DST),
                                         .src_at = address_of(run, TWILL_SRC),
                                         .dst_at = address_of(run, TWILL_DST),
                                         .signature = run->signature};
    twill_node_put_addresses(comm->node, run->sequence, &own);
    restrict_access(run, own.src, own.src_at);
    restrict_access(run, own.dst, own.dst_at);
    return run->exchange.allowed != 0;
}

static void collect_addresses(struct twill_run *run, uint32_t local,
                              const struct twill_buffer_addresses *theirs)
{
    struct twill_comm *comm = run->comm;
    uint32_t rank = comm->node->rank[local];
    uint64_t src = theirs->src, dst = theirs->dst;
    uint64_t *address = &run->buffers.address[local * TWILL_SIDES];
    address[TWILL_SRC] = theirs->src_at;
    address[TWILL_DST] = theirs->dst_at;
    restrict_access(run, src, address[TWILL_SRC]);
    restrict_access(run, dst, address[TWILL_DST]);
    struct twill_heap_view *view = &comm->links.view[local];
    bool in_src = side_is_needed(run, TWILL_SRC, rank) && src != TWILL_HEAP_NOWHERE;
    bool in_dst = side_is_needed(run, TWILL_DST, rank) && dst != TWILL_HEAP_NOWHERE;
    run->buffers.peer_src[local] = in_src ? view->base + src : NULL;
    run->buffers.peer_dst[local] = in_dst ? view->base + dst : NULL;
    if (local == comm->local || (run->exchange.allowed & TWILL_ACCESS_MAPPED) == 0)
        return;
    if (run->buffers.peer_src[local] != NULL)
        twill_heap_view_touch(view, src, twill_run_side_bytes(run, TWILL_SRC));
    if (run->buffers.peer_dst[local] != NULL && dst != src)
        twill_heap_view_touch(view, dst, twill_run_side_bytes(run, TWILL_DST));
}

static bool publishes(const struct twill_run *run, uint32_t local)
{
    uint32_t rank = run->comm->node->rank[local];
    return side_is_needed(run, TWILL_SRC, rank) || side_is_needed(run, TWILL_DST, rank);
}

/* Does every rank of the node publish? */
static bool all_publish(const struct twill_run *run)
{
    bool all = true;
    for (uint32_t l = 0; l < run->comm->local_size; l++)
        all &= publishes(run, l);
    return all;
}

int twill_addresses_exchange(struct twill_run *run)
{
    struct twill_comm *comm = run->comm;
    if (twill_exchange_is_over(&run->exchange))
        return 1;
    if (run->exchange.state < TWILL_EXCHANGE_PUBLISHED) {
        if (!twill_comm_has_arrived(comm, comm->issue.epoch - TWILL_WINDOW))
            return 0;
        run->exchange.state = TWILL_EXCHANGE_PUBLISHED;
        run->exchange.allowed = run->exchange.access;
        run->exchange.next_address = 0;
        if (publishes(run, comm->local) && !publish_addresses(run)) {
            run->exchange.state = TWILL_EXCHANGE_COLLECTED;
            return 1;
        }
    }
    for (; run->exchange.next_address < comm->local_size; run->exchange.next_address++) {
        if (!publishes(run, run->exchange.next_address)) {
            memset(&run->buffers.address[run->exchange.next_address * TWILL_SIDES], 0,
                   TWILL_SIDES * sizeof(*run->buffers.address));
            continue;
        }
        struct twill_buffer_addresses theirs;
        if (!twill_node_get_addresses(comm->node, run->exchange.next_address, run->sequence,
                                      &theirs))
            return 0;
        if (TWILL_UNLIKELY(theirs.signature != run->signature)) {
            uint32_t rank = comm->node->rank[run->exchange.next_address];
            return twill_run_differs(run, rank, twill_run_is_written_down(run, rank));
        }
        collect_addresses(run, run->exchange.next_address, &theirs);
    }
    run->exchange.state = TWILL_EXCHANGE_COLLECTED;
    run->exchange.arrived = all_publish(run);
    return 1;
}

unsigned twill_addresses_missing(const struct twill_run *run, uint32_t *ranks, unsigned most)
{
    struct twill_buffer_addresses ignored;
    unsigned n = 0;
    if (run->exchange.state != TWILL_EXCHANGE_PUBLISHED)
        return 0;
    for (uint32_t l = run->exchange.next_address; l < run->comm->local_size && n < most; l++)
        if (publishes(run, l) &&
            !twill_node_get_addresses(run->comm->node, l, run->sequence, &ignored))
            ranks[n++] = run->comm->node->rank[l];
    return n;
}
