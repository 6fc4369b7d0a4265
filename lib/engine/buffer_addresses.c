/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of buffer addresses, for zero-copy and single copy. Ranks of a node publish where
 * their buffers are, in the shared heap and in their process, and collect the others' addresses. A
 * buffer in the heap, or one that can be attached, is mapped. A buffer that a system call can read
 * is fetched. A rank whose own buffers allow neither need not collect, as the result is neither.
 *
 * Each rank has two lines, which its calls use alternately. A line is free once all ranks have
 * begun the instance TWILL_WINDOW before, and so have collected from it. If schedules are not
 * eager, this takes no wait, since the executor starts the exchange only when a slot is free.
 *
 * If all ranks publish, a complete exchange proves that all of them are in the call with their
 * buffers ready. It then replaces the entry barrier of the schedule, and the first segment begins
 * behind that barrier (twill_schedule_entry_steps). Such schedules have a later barrier, which
 * proves that all ranks have completed the exchange.
 *
 * A call that repeats an earlier one publishes at once, before it is recorded. It keeps what the
 * last exchange has found of each buffer whose addresses are the same. */
#include "fabric/shm/call_records.h"
#include "fabric/shm/single_copy.h"
#include "kernels/thread_pool.h"
#include "lib/engine/engine_internal.h"
#include "lib/job/context.h"
#include "lib/job/heap.h"

#include <errno.h>
#include <string.h>

/* Return whether peers on the node access SRC or DST (`side`) of a rank. In a broadcast to several
 * nodes they access only the root's SRC, as one rank of each node forwards it from its buffer. */
static bool side_is_needed(const struct twill_request *run, unsigned side, uint32_t rank)
{
    const struct twill_collective_facts *facts = twill_collective_facts(run->call.collective);
    if (side == TWILL_SRC)
        return twill_run_holds(run, facts->src, rank);
    bool apart = run->call.collective == TWILL_BROADCAST && run->engine->world->nodes > 1;
    return !apart && twill_run_holds(run, facts->dst, rank);
}

/* Return the bytes of SRC or DST on a rank that has it. Not for vector calls. */
static size_t side_bytes(const struct twill_request *run, unsigned side)
{
    const struct twill_collective_facts *facts = twill_collective_facts(run->call.collective);
    enum twill_holder holder = side == TWILL_SRC ? facts->src : facts->dst;
    size_t shards = facts->sharded && holder != TWILL_HOLDS_OWN ? run->engine->world->size : 1;
    size_t pitch = run->call.pitch > 0 ? run->call.pitch : run->call.count;
    return ((shards - 1) * pitch + run->call.count) * run->layout.element;
}

/* Store where this rank's side lies, as an offset in its heap and an address in this process. Each
 * is TWILL_HEAP_NOWHERE if peers cannot access it there, and 0 if they need not. */
static void find_own(const struct twill_request *run, unsigned side, uint64_t *offset,
                     uint64_t *address)
{
    const struct twill_engine *engine = run->engine;
    const struct twill_side *s = &run->buffers.side[side];
    bool needed = side_is_needed(run, side, engine->rank);
    *offset = *address = needed ? TWILL_HEAP_NOWHERE : 0;
    if (needed && !s->bounced)
        *offset = twill_heap_offset(&engine->context->memory->heap, s->base, side_bytes(run, side));
    if (needed && !s->bounced && engine->links.single_copy != NULL)
        *address = (uint64_t)(uintptr_t)s->base;
}

/* Have no peer read SRC in a trial if system calls cannot, for example in memory of a device. The
 * user's @fetched is an error then. */
static void check_readable(struct twill_request *run, uint64_t *address)
{
    if (*address == 0 || *address == TWILL_HEAP_NOWHERE || run->exchange.fetch.trial == NULL ||
        (run->exchange.allowed & TWILL_ACCESS_FETCHED) == 0)
        return;
    const void *memory = run->buffers.side[TWILL_SRC].base;
    const size_t bytes = side_bytes(run, TWILL_SRC);
    struct twill_readable *known = twill_fetch_readable(run, memory);
    if (known->memory == memory && known->bytes >= bytes)
        return;
    if (twill_memory_is_readable(memory, bytes))
        *known = (struct twill_readable){.memory = memory, .bytes = bytes};
    else
        *address = TWILL_HEAP_NOWHERE;
}

/* Remove from exchange.allowed, the ways in which ranks may access each other's buffers, those that
 * one rank's SRC or DST does not allow. `offset` is where that buffer is in the rank's heap, and
 * `address` where it is in the rank's process, as find_own() sets them. */
static void restrict_access(struct twill_request *run, uint64_t offset, uint64_t address)
{
    bool reachable = address != TWILL_HEAP_NOWHERE;
    bool attachable = reachable && twill_single_copy_maps(run->engine->links.single_copy);
    if (offset == TWILL_HEAP_NOWHERE && !attachable)
        run->exchange.allowed &= ~(unsigned)TWILL_ACCESS_MAPPED;
    if (!reachable)
        run->exchange.allowed &= ~(unsigned)TWILL_ACCESS_FETCHED;
}

void twill_addresses_assume(struct twill_request *run, bool in_heap)
{
    const struct twill_engine *engine = run->engine;
    const struct twill_side *side = run->buffers.side;
    bool bounced = side[TWILL_SRC].bounced || side[TWILL_DST].bounced;
    bool offset = in_heap && !bounced && engine->context->memory->heap.region != NULL;
    bool address = !bounced && engine->links.single_copy != NULL;
    run->exchange.allowed = run->exchange.access & ~(unsigned)TWILL_ACCESS_TRIED;
    restrict_access(run, offset ? 0 : TWILL_HEAP_NOWHERE, address ? 0 : TWILL_HEAP_NOWHERE);
}

/* Set *own to where this rank's SRC and DST are, as find_own() does, or to what the last exchange
 * of the call has found if it had the same buffers. */
static void find_both(struct twill_request *run, struct twill_buffer_addresses *own)
{
    struct twill_address_exchange *exchange = &run->exchange;
    struct twill_peer_buffers *known = &run->buffers.peer[run->engine->local];
    const struct twill_side *side = run->buffers.side;
    const bool fenced = run->engine->context->memory->heap.fenced;
    if (!exchange->keeps || exchange->fenced != fenced ||
        exchange->known[TWILL_SRC] != side[TWILL_SRC].base ||
        exchange->known[TWILL_DST] != side[TWILL_DST].base) {
        find_own(run, TWILL_SRC, &known->offset[TWILL_SRC], &known->address[TWILL_SRC]);
        find_own(run, TWILL_DST, &known->offset[TWILL_DST], &known->address[TWILL_DST]);
        exchange->keeps = false;
        exchange->fenced = fenced;
        exchange->known[TWILL_SRC] = side[TWILL_SRC].base;
        exchange->known[TWILL_DST] = side[TWILL_DST].base;
    }
    own->src = known->offset[TWILL_SRC];
    own->dst = known->offset[TWILL_DST];
    own->src_at = known->address[TWILL_SRC];
    own->dst_at = known->address[TWILL_DST];
}

/* Publish in node memory where this rank's SRC and DST of the call are. Remove from
 * exchange.allowed the ways of access that these do not allow. Returns whether at least one way
 * remains. */
static bool publish_addresses(struct twill_request *run)
{
    struct twill_buffer_addresses own = {.signature = run->signature};
    find_both(run, &own);
    check_readable(run, &own.src_at);
    twill_fetch_costs(run, own.cost);
    twill_node_put_addresses(run->engine->node, run->sequence, &own);
    restrict_access(run, own.src, own.src_at);
    restrict_access(run, own.dst, own.dst_at);
    return run->exchange.allowed != 0;
}

/* Raise the highest costs of all ranks to those of a rank. What one does not know is unknown. */
static void note_costs(struct twill_fetch_try *fetch, const struct twill_buffer_addresses *theirs)
{
    for (unsigned way = 0; way < 2; way++) {
        bool known = fetch->worst[way] > 0 && theirs->cost[way] > 0;
        fetch->worst[way] = known ? twill_max(fetch->worst[way], theirs->cost[way]) : 0;
    }
}

/* Store in buffers.peer[local] where a local rank's SRC and DST are, as it has published in
 * `theirs`, unless the last exchange of the call has stored the same. If they may be accessed as
 * mapped memory and are in the heap of another rank, populate the page tables for them. */
static void store_addresses(struct twill_request *run, uint32_t local,
                            const struct twill_buffer_addresses *theirs)
{
    struct twill_engine *engine = run->engine;
    uint32_t rank = engine->node->rank[local];
    uint64_t src = theirs->src, dst = theirs->dst;
    struct twill_peer_buffers *peer = &run->buffers.peer[local];
    if (run->exchange.keeps && peer->offset[TWILL_SRC] == src && peer->offset[TWILL_DST] == dst &&
        peer->address[TWILL_SRC] == theirs->src_at && peer->address[TWILL_DST] == theirs->dst_at)
        return;
    peer->offset[TWILL_SRC] = src;
    peer->offset[TWILL_DST] = dst;
    peer->address[TWILL_SRC] = theirs->src_at;
    peer->address[TWILL_DST] = theirs->dst_at;
    struct twill_heap_view *view = &engine->links.view[local];
    bool in_src = side_is_needed(run, TWILL_SRC, rank) && src != TWILL_HEAP_NOWHERE;
    bool in_dst = side_is_needed(run, TWILL_DST, rank) && dst != TWILL_HEAP_NOWHERE;
    peer->at[TWILL_SRC] = in_src ? view->base + src : NULL;
    peer->at[TWILL_DST] = in_dst ? view->base + dst : NULL;
    if (local == engine->local || (run->exchange.allowed & TWILL_ACCESS_MAPPED) == 0)
        return;
    if (peer->at[TWILL_SRC] != NULL)
        twill_heap_view_touch(view, src, side_bytes(run, TWILL_SRC));
    if (peer->at[TWILL_DST] != NULL && dst != src)
        twill_heap_view_touch(view, dst, side_bytes(run, TWILL_DST));
}

/* Use what a local rank has published in `theirs`. Remove from exchange.allowed the ways of access
 * that its buffers do not allow. */
static void collect_addresses(struct twill_request *run, uint32_t local,
                              const struct twill_buffer_addresses *theirs)
{
    note_costs(&run->exchange.fetch, theirs);
    restrict_access(run, theirs->src, theirs->src_at);
    restrict_access(run, theirs->dst, theirs->dst_at);
    store_addresses(run, local, theirs);
}

/* Return whether peers access a buffer of a local rank, so that it publishes its addresses. */
static bool is_accessed(const struct twill_request *run, uint32_t local)
{
    uint32_t rank = run->engine->node->rank[local];
    return side_is_needed(run, TWILL_SRC, rank) || side_is_needed(run, TWILL_DST, rank);
}

/* Return whether each rank of the node publishes where its buffers are in this call, as its peers
 * access its SRC or DST. That depends only on the collective, the root and the number of nodes. */
static bool all_publish(const struct twill_request *run)
{
    bool all = true;
    for (uint32_t l = 0; l < run->engine->local_size; l++)
        all &= is_accessed(run, l);
    return all;
}

/* Return whether a local rank publishes its addresses in the exchange that has begun. */
static bool publishes(const struct twill_request *run, uint32_t local)
{
    return run->exchange.all_publish || is_accessed(run, local);
}

/* Set what an exchange needs, and publish this rank's addresses. The exchange is over if these
 * allow no access. */
static void begin_exchange(struct twill_request *run)
{
    struct twill_address_exchange *exchange = &run->exchange;
    /* Attached buffers, and those that are fetched, are looked up again. */
    exchange->keeps = exchange->before != NULL && !exchange->before->fetches &&
                      (exchange->allowed_before & TWILL_ACCESS_MAPPED) != 0 &&
                      !twill_single_copy_maps(run->engine->links.single_copy);
    if (exchange->before == NULL)
        exchange->all_publish = all_publish(run);
    exchange->state = TWILL_EXCHANGE_PUBLISHED;
    exchange->allowed = twill_fetch_begin(run);
    exchange->next_address = 0;
    exchange->fetch.worst[0] = exchange->fetch.worst[1] = 1;
    if (publishes(run, run->engine->local) && !publish_addresses(run))
        exchange->state = TWILL_EXCHANGE_COLLECTED;
}

void twill_addresses_begin(struct twill_request *run)
{
    struct twill_engine *engine = run->engine;
    if (run->exchange.before == NULL || run->exchange.state != TWILL_EXCHANGE_IDLE ||
        !twill_engine_has_arrived(engine, engine->issue.epoch - TWILL_WINDOW))
        return;
    run->sequence = engine->issue.started;
    /* From here on it is a call, which trials count (twill_fetch_begin()). */
    atomic_store_explicit(&run->state, TWILL_REQUEST_ACTIVE, memory_order_relaxed);
    begin_exchange(run);
}

int twill_addresses_exchange(struct twill_request *run)
{
    struct twill_engine *engine = run->engine;
    if (run->exchange.state == TWILL_EXCHANGE_IDLE) {
        if (!twill_engine_has_arrived(engine, engine->issue.epoch - TWILL_WINDOW))
            return 0;
        begin_exchange(run);
    }
    if (twill_exchange_is_over(&run->exchange))
        return 1;
    for (; run->exchange.next_address < engine->local_size; run->exchange.next_address++) {
        uint32_t local = run->exchange.next_address;
        if (!publishes(run, local)) {
            memset(run->buffers.peer[local].address, 0, sizeof(run->buffers.peer->address));
            continue;
        }
        struct twill_buffer_addresses theirs;
        if (!twill_node_get_addresses(engine->node, local, run->sequence, &theirs))
            return 0;
        if (TWILL_UNLIKELY(theirs.signature != run->signature)) {
            uint32_t rank = engine->node->rank[local];
            return twill_run_differs(run, rank, twill_run_is_written_down(run, rank));
        }
        collect_addresses(run, local, &theirs);
    }
    run->exchange.state = TWILL_EXCHANGE_COLLECTED;
    run->exchange.arrived = run->exchange.all_publish;
    return 1;
}

unsigned twill_addresses_missing(const struct twill_request *run, uint32_t *ranks, unsigned most)
{
    struct twill_buffer_addresses ignored;
    unsigned n = 0;
    if (run->exchange.state != TWILL_EXCHANGE_PUBLISHED)
        return 0;
    for (uint32_t l = run->exchange.next_address; l < run->engine->local_size && n < most; l++)
        if (publishes(run, l) &&
            !twill_node_get_addresses(run->engine->node, l, run->sequence, &ignored))
            ranks[n++] = run->engine->node->rank[l];
    return n;
}

/* Return the error that `bytes` bytes at `from` of a peer could not be `what` ("read", "attached"),
 * with errno `cause`. It is TWILL_ERR_PEER if the peer has died, TWILL_ERR_ARGUMENT for EFAULT,
 * else TWILL_ERR_SYSTEM. If a rank has reported a failure, return the error of that instead. */
static twill_status fail_access(struct twill_request *run, uint32_t peer, const char *what,
                                uint64_t from, size_t bytes, int cause)
{
    char text[TWILL_RANK_TEXT];
    struct twill_engine *engine = run->engine;
    TWILL_TRY(&engine->error, engine->ports->poll_failures(engine));
    twill_engine_rank_text(engine, peer, text);
    if (cause == ESRCH) {
        (void)TWILL_ENGINE_FAIL(engine, TWILL_ERR_PEER, "%s has died: its memory could not be %s",
                                text, what);
        engine->error.rank = peer;
        return TWILL_ERR_PEER;
    }
    return TWILL_ENGINE_FAIL(engine, cause == EFAULT ? TWILL_ERR_ARGUMENT : TWILL_ERR_SYSTEM,
                             "%zu bytes at 0x%llx of %s could not be %s: %s (TWILL_TUNE=reach=none "
                             "avoids this)",
                             bytes, (unsigned long long)from, text, what, strerror(cause));
}

size_t twill_engine_fetch_bytes(const struct twill_engine *engine)
{
    size_t threads = twill_thread_pool_size(engine->tuning.pool);
    return TWILL_FETCH_CHUNK * twill_min(threads, TWILL_FETCH_THREADS);
}

int twill_run_try_fetch(const struct twill_request *run, uint32_t peer, void *to, const void *from,
                        size_t bytes)
{
    const struct twill_engine *engine = run->engine;
    if (bytes == 0)
        return 0;
    return twill_single_copy_fetch(engine->links.single_copy, engine->world->local[peer], to,
                                   (uint64_t)(uintptr_t)from, bytes);
}

twill_status twill_run_end_fetch(struct twill_request *run, uint32_t peer, const void *from,
                                 size_t bytes, int cause)
{
    twill_counter_add(&run->engine->usage.counters.bytes_copied, bytes);
    return cause == 0 ? TWILL_OK
                      : fail_access(run, peer, "read", (uint64_t)(uintptr_t)from, bytes, cause);
}

void twill_run_detach_peers(struct twill_request *run)
{
    if (TWILL_LIKELY(
            !twill_single_copy_maps(run->engine->links.single_copy))) /* nothing was attached */
        return;
    for (uint32_t l = 0; l < run->engine->local_size; l++)
        for (unsigned side = 0; side < TWILL_SIDES; side++) {
            twill_region_release(run->buffers.peer[l].region[side]);
            run->buffers.peer[l].region[side] = NULL;
        }
}

/* Set buffers.peer[local].at[side] to where this rank can access a peer's side. If the plan
 * fetches, that is its address in the peer's process. Otherwise it is in the peer's mapped heap,
 * where it is set already, or is attached here. Returns TWILL_OK, or the error if that fails. */
static twill_status attach_side(struct twill_request *run, uint32_t local, unsigned side)
{
    struct twill_engine *engine = run->engine;
    struct twill_peer_buffers *peer = &run->buffers.peer[local];
    uint64_t address = peer->address[side];
    if (run->plan->fetches)
        peer->at[side] = (unsigned char *)(uintptr_t)address;
    if (run->plan->fetches || peer->at[side] != NULL || address == 0)
        return TWILL_OK;
    void *at = NULL;
    size_t bytes = side_bytes(run, side);
    int cause = twill_single_copy_attach(engine->links.single_copy, local, address, bytes,
                                         &peer->region[side], &at);
    peer->at[side] = at;
    return cause == 0
               ? TWILL_OK
               : fail_access(run, engine->node->rank[local], "attached", address, bytes, cause);
}

twill_status twill_run_attach_peers(struct twill_request *run)
{
    struct twill_engine *engine = run->engine;
    const struct twill_schedule *s = &run->plan->schedule;
    bool uses = s->uses_peer_src || s->uses_peer_dst;
    if (TWILL_LIKELY(engine->links.single_copy == NULL ||
                     run->exchange.state < TWILL_EXCHANGE_PUBLISHED || !uses))
        return TWILL_OK;
    for (uint32_t l = 0; l < engine->local_size; l++) {
        if (l == engine->local)
            continue;
        TWILL_TRY(&engine->error, attach_side(run, l, TWILL_SRC));
        TWILL_TRY(&engine->error, attach_side(run, l, TWILL_DST));
    }
    return TWILL_OK;
}
