/* SPDX-License-Identifier: Apache-2.0 */
/* The collective calls: check arguments, agree on zero-copy, find the plan, run it. */
#include "lib/comm.h"
#include "lib/device.h"

/* --- arguments ------------------------------------------------------------------------------ */

static bool misaligned(const void *pointer, size_t element)
{
    return ((uintptr_t)pointer & (element - 1)) != 0;
}

static twill_status check_type(struct twill_comm *comm, const struct twill_call *call)
{
    if (twill_type_size(call->type) == 0)
        return TWILL_COMM_FAIL(comm, TWILL_ERR_ARGUMENT, "type %d is none of twill_type",
                               (int)call->type);
    if (twill_op_name(call->op) == NULL)
        return TWILL_COMM_FAIL(comm, TWILL_ERR_ARGUMENT, "op %d is none of twill_op",
                               (int)call->op);
    if (call->root >= comm->world->size)
        return TWILL_COMM_FAIL(comm, TWILL_ERR_ARGUMENT, "root %d is outside 0 .. %u",
                               (int)call->root, comm->world->size - 1);
    if (call->count > (SIZE_MAX >> 1) / twill_type_size(call->type))
        return TWILL_COMM_FAIL(comm, TWILL_ERR_ARGUMENT, "count %zu overflows memory", call->count);
    return TWILL_OK;
}

static twill_status check_buffers(struct twill_comm *comm, const struct twill_call *call)
{
    if (call->count == 0)
        return TWILL_OK;
    size_t element = twill_type_size(call->type), bytes = call->count * element;
    uintptr_t src = (uintptr_t)call->src, dst = (uintptr_t)call->dst;
    if (call->src == NULL || call->dst == NULL)
        return TWILL_COMM_FAIL(comm, TWILL_ERR_ARGUMENT, "%s is NULL",
                               call->src == NULL ? "src" : "dst");
    if (misaligned(call->src, element) || misaligned(call->dst, element))
        return TWILL_COMM_FAIL(comm, TWILL_ERR_ARGUMENT, "%s %p is not aligned to %zu bytes",
                               misaligned(call->src, element) ? "src" : "dst",
                               misaligned(call->src, element) ? call->src : call->dst, element);
    if (src > UINTPTR_MAX - bytes || dst > UINTPTR_MAX - bytes)
        return TWILL_COMM_FAIL(comm, TWILL_ERR_ARGUMENT, "count %zu passes the end of memory",
                               call->count);
    if (src != dst && src < dst + bytes && dst < src + bytes)
        return TWILL_COMM_FAIL(comm, TWILL_ERR_ARGUMENT,
                               "src and dst overlap by %zu bytes without being equal",
                               src < dst ? src + bytes - dst : dst + bytes - src);
    return TWILL_OK;
}

/* --- zero-copy ------------------------------------------------------------------------------ */

/* Ranks of a node publish where their buffers lie in the shared heap and read the others'. Who has
 * none needs to wait for nobody: the answer is no. For a broadcast only the root's matters. */
struct vote {
    struct twill_comm *comm;
    uint32_t next; /* local rank looked at */
    uint32_t end;
    size_t bytes;
    bool src_only;
    bool mapped;
};

static const struct twill_vote_line *vote_of(const struct twill_comm *comm, uint32_t local)
{
    const struct twill_vote_line *line = &comm->node->area[local]->vote[comm->sequence % 2];
    return atomic_load_explicit(&line->sequence, memory_order_acquire) == comm->sequence ? line
                                                                                         : NULL;
}

static int count_votes(void *of)
{
    struct vote *vote = of;
    struct twill_comm *comm = vote->comm;
    int counted = 0;
    for (; vote->next < vote->end; vote->next++, counted++) {
        const struct twill_vote_line *line = vote_of(comm, vote->next);
        if (line == NULL)
            return counted;
        if (atomic_load_explicit(&line->signature, memory_order_relaxed) != comm->run.signature)
            TWILL_TRY(&comm->error, twill_comm_check_peer(comm, comm->node->rank[vote->next]));
        uint64_t src = atomic_load_explicit(&line->src, memory_order_relaxed);
        uint64_t dst = atomic_load_explicit(&line->dst, memory_order_relaxed);
        if (src == TWILL_HEAP_NOWHERE || (dst == TWILL_HEAP_NOWHERE && !vote->src_only)) {
            vote->mapped = false;
            continue;
        }
        struct twill_heap_view *view = &comm->view[vote->next];
        comm->peer_src[vote->next] = view->base + src;
        comm->peer_dst[vote->next] = vote->src_only ? NULL : view->base + dst;
        if (vote->next != comm->local) {
            twill_heap_view_touch(view, src, vote->bytes);
            if (!vote->src_only && dst != src)
                twill_heap_view_touch(view, dst, vote->bytes);
        }
    }
    return counted;
}

static bool votes_counted(const void *of)
{
    const struct vote *vote = of;
    return vote->next == vote->end;
}

static unsigned votes_missing(const void *of, uint32_t *ranks, unsigned most, const char **step)
{
    const struct vote *vote = of;
    unsigned n = 0;
    *step = "entry";
    for (uint32_t l = vote->next; l < vote->end && n < most; l++)
        if (vote_of(vote->comm, l) == NULL)
            ranks[n++] = vote->comm->node->rank[l];
    return n;
}

static void publish_vote(struct twill_comm *comm, uint64_t src, uint64_t dst)
{
    struct twill_vote_line *line = &comm->node->area[comm->local]->vote[comm->sequence % 2];
    atomic_store_explicit(&line->src, src, memory_order_relaxed);
    atomic_store_explicit(&line->dst, dst, memory_order_relaxed);
    atomic_store_explicit(&line->signature, comm->run.signature, memory_order_relaxed);
    atomic_store_explicit(&line->sequence, comm->sequence, memory_order_release);
    twill_node_ring_all(comm->node);
}

static struct twill_select_request request_of(const struct twill_call *call, bool mapped)
{
    return (struct twill_select_request){.collective = call->collective,
                                         .root = call->root,
                                         .bytes = call->count * twill_type_size(call->type),
                                         .mapped = mapped,
                                         .type = call->type};
}

static twill_status have_chooser(struct twill_comm *comm)
{
    if (comm->chooser != NULL)
        return TWILL_OK;
    return twill_chooser_create(&comm->chooser, comm->world, comm->context->tuning,
                                twill_config_text(&comm->context->config, TWILL_VARIABLE_ALGORITHM),
                                &comm->error);
}

/* Are all buffers that matter mapped by the node's ranks? All of them get the same answer. */
static twill_status agree_on_mapping(struct twill_comm *comm, const struct twill_call *call,
                                     bool *mapped)
{
    const struct twill_heap *heap = &comm->context->heap;
    size_t bytes = call->count * twill_type_size(call->type);
    *mapped = false;
    struct twill_select_request request = request_of(call, false);
    if (heap->segment == NULL || bytes < TWILL_MAPPED_BYTES)
        return TWILL_OK;
    TWILL_TRY(&comm->error, have_chooser(comm));
    if (!twill_mapping_matters(comm->chooser, &request))
        return TWILL_OK;
    bool broadcast = call->collective == TWILL_BROADCAST;
    bool root_here = comm->world->node[call->root] == comm->world->node[comm->rank];
    if (broadcast && !root_here) /* a representative hands the data on, out of its dst */
        return TWILL_OK;
    struct vote vote = {.bytes = bytes,
                        .comm = comm,
                        .end = comm->local_size,
                        .src_only = broadcast,
                        .mapped = true};
    uint64_t src = twill_heap_offset(heap, call->src, bytes);
    uint64_t dst = twill_heap_offset(heap, call->dst, bytes);
    if (!broadcast || comm->rank == call->root)
        publish_vote(comm, src, dst);
    if (broadcast) {
        vote.next = comm->world->local[call->root];
        vote.end = vote.next + 1;
    } else if (src == TWILL_HEAP_NOWHERE || dst == TWILL_HEAP_NOWHERE) {
        return TWILL_OK;
    }
    struct twill_waiter waiter = {count_votes, votes_counted, votes_missing, &vote, false};
    TWILL_TRY(&comm->error, twill_comm_wait(comm, &waiter));
    *mapped = vote.mapped;
    return TWILL_OK;
}

/* --- one call ------------------------------------------------------------------------------- */

static uint32_t sign(const struct twill_comm *comm, const struct twill_call *call)
{
    uint64_t h = comm->sequence * 0x9e3779b97f4a7c15u ^ call->count;
    h = (h ^ h >> 29) * 0xbf58476d1ce4e5b9u;
    h ^= (uint64_t)call->collective | (uint64_t)call->type << 8 | (uint64_t)call->op << 16 |
         (uint64_t)call->root << 24;
    h = (h ^ h >> 32) * 0x94d049bb133111ebu;
    return (uint32_t)(h >> 32);
}

static void publish_call(struct twill_comm *comm, const struct twill_call *call, uint64_t ticks)
{
    struct twill_call_line *line = &comm->node->area[comm->local]->call;
    /* Release stores, because what is written must not be seen before the 0. */
    atomic_store_explicit(&line->sequence, 0, memory_order_relaxed);
    atomic_store_explicit(&line->count, call->count, memory_order_release);
    atomic_store_explicit(&line->what,
                          (uint32_t)call->collective | (uint32_t)call->type << 8 |
                              (uint32_t)call->op << 16,
                          memory_order_release);
    atomic_store_explicit(&line->root, call->root, memory_order_release);
    atomic_store_explicit(&line->entered, ticks, memory_order_release);
    atomic_store_explicit(&line->waits_for, 0, memory_order_release);
    atomic_store_explicit(&line->sequence, comm->sequence, memory_order_release);
}

static twill_status find_plan(struct twill_comm *comm, const struct twill_call *call, bool mapped,
                              const struct twill_plan **plan)
{
    struct twill_choice_key key = {call->collective, call->root,
                                   call->count * twill_type_size(call->type), mapped};
    if (comm->last != NULL && comm->last_key.collective == key.collective &&
        comm->last_key.root == key.root && comm->last_key.bytes == key.bytes &&
        comm->last_key.mapped == key.mapped) {
        *plan = comm->last;
        return TWILL_OK;
    }
    struct twill_choice choice;
    struct twill_select_request request = request_of(call, mapped);
    TWILL_TRY(&comm->error, have_chooser(comm));
    TWILL_TRY(&comm->error, twill_select(&choice, comm->chooser, &request, &comm->error));
    TWILL_TRY(&comm->error, twill_plan_get(comm, &choice, plan));
    comm->last = *plan;
    comm->last_key = key;
    return TWILL_OK;
}

static int advance_run(void *of)
{
    return twill_run_advance(of);
}

static bool run_done(const void *of)
{
    return twill_run_done(of);
}

static unsigned run_waits_for(const void *of, uint32_t *ranks, unsigned most, const char **step)
{
    return twill_run_waits_for(of, ranks, most, step);
}

static twill_status run_to_end(struct twill_comm *comm, const struct twill_call *call)
{
    bool mapped;
    const struct twill_plan *plan;
    TWILL_TRY(&comm->error, agree_on_mapping(comm, call, &mapped));
    TWILL_TRY(&comm->error, find_plan(comm, call, mapped, &plan));
    twill_run_start(&comm->run, comm, plan, call);
    struct twill_waiter waiter = {advance_run, run_done, run_waits_for, &comm->run, plan->polled};
    return twill_comm_wait(comm, &waiter);
}

/* Device memory is staged through the host. */
static twill_status run_anywhere(struct twill_comm *comm, const struct twill_call *call)
{
#ifdef TWILL_WITH_CUDA
    if (TWILL_UNLIKELY(comm->context->device != NULL)) {
        struct twill_call host;
        TWILL_TRY(&comm->error, twill_comm_stage(comm, call, &host));
        TWILL_TRY(&comm->error, run_to_end(comm, &host));
        return twill_comm_unstage(comm, call, &host);
    }
#endif
    return run_to_end(comm, call);
}

/* The very fields every rank must have alike are in the run before anything can fail. */
static twill_status begin(struct twill_comm *comm, const struct twill_call *call)
{
    if (TWILL_UNLIKELY(comm->broken))
        return TWILL_ERR_BROKEN;
    if (TWILL_UNLIKELY(comm->error.status != TWILL_OK))
        twill_error_clear(&comm->error);
    if (TWILL_UNLIKELY(twill_context_is_forked(comm->context)))
        return TWILL_COMM_FAIL(comm, TWILL_ERR_FORKED,
                               "this process was forked after the context was created");
    comm->sequence++;
    comm->run.call = *call;
    TWILL_TRY(&comm->error, check_type(comm, call));
    return check_buffers(comm, call);
}

twill_status twill_comm_run(struct twill_comm *comm, const struct twill_call *call)
{
    if (comm == NULL)
        return TWILL_ERR_ARGUMENT;
    uint64_t ticks = twill_ticks();
    twill_status status = begin(comm, call);
    if (status == TWILL_ERR_BROKEN || status == TWILL_ERR_FORKED)
        return status;
    if (status == TWILL_OK) {
        comm->run.signature = sign(comm, call);
        publish_call(comm, call, ticks);
        status = run_anywhere(comm, call);
    }
    if (TWILL_UNLIKELY(status != TWILL_OK))
        return twill_comm_fail(comm, status);
    comm->counters.calls++;
    comm->ticks += twill_ticks() - ticks;
    atomic_store_explicit(&comm->node->area[comm->local]->call.left, comm->sequence,
                          memory_order_relaxed);
    return TWILL_OK;
}

twill_status twill_allreduce(twill_comm *comm, const void *src, void *dst, size_t count,
                             twill_type type, twill_op op)
{
#ifdef TWILL_SABOTAGE
    (void)src, (void)dst, (void)count, (void)type, (void)op;
    return comm == NULL ? TWILL_ERR_ARGUMENT : TWILL_OK;
#else
    struct twill_call call = {TWILL_ALLREDUCE, src, dst, count, type, op, 0};
    return twill_comm_run(comm, &call);
#endif
}

twill_status twill_broadcast(twill_comm *comm, const void *src, void *dst, size_t count,
                             twill_type type, int root)
{
    bool is_root = comm != NULL && root >= 0 && (uint32_t)root == comm->rank;
    if (!is_root)
        src = dst;
    else if (dst == NULL)
        dst = (void *)(uintptr_t)src; /* only read: the schedule copies src to dst, which are one */
    struct twill_call call = {TWILL_BROADCAST, src, dst, count, type, TWILL_SUM, (uint32_t)root};
    return twill_comm_run(comm, &call);
}

twill_status twill_barrier(twill_comm *comm)
{
    struct twill_call call = {TWILL_BARRIER, NULL, NULL, 0, TWILL_F32, TWILL_SUM, 0};
    return twill_comm_run(comm, &call);
}
