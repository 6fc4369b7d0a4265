/* SPDX-License-Identifier: Apache-2.0 */
/* Binds a call's arguments, runs it on twill, and remembers it. */
#include "lib/mpi/mpi_call.h"

#include <stdlib.h>
#include <string.h>

static twill_mpi_bind_fn *const binders[TWILL_MPI_KIND_COUNT] = {
#define BOUND_BY(name, lower) [TWILL_MPI_##name] = twill_mpi_bind_##lower,
    TWILL_MPI_TAKEN(BOUND_BY) BOUND_BY(Barrier, barrier)
#undef BOUND_BY
};

#define FORM_CALL(verb, ...)                                                                       \
    (b->form == TWILL_MPI_BLOCKING      ? twill_##verb(__VA_ARGS__)                                \
     : b->form == TWILL_MPI_NONBLOCKING ? twill_##verb##_start(__VA_ARGS__, request)               \
                                        : twill_##verb##_init(__VA_ARGS__, request))

twill_status twill_mpi_issue(const struct twill_mpi_bound *b, twill_request **request)
{
    twill_comm *comm = b->comm->comm;
    twill_mpi_begin(b->comm);
    if (TWILL_UNLIKELY((b->bounced & TWILL_MPI_FAILS) != 0))
        return FORM_CALL(barrier, comm);
    switch (b->kind) {
    case TWILL_MPI_Allreduce:
        return FORM_CALL(allreduce, comm, b->src, b->dst, b->count, b->type, b->op);
    case TWILL_MPI_Reduce:
        return FORM_CALL(reduce, comm, b->src, b->dst, b->count, b->type, b->op, b->root);
    case TWILL_MPI_Reduce_scatter_block:
        return FORM_CALL(reduce_scatter, comm, b->src, b->dst, b->count, b->type, b->op);
    case TWILL_MPI_Reduce_scatter:
        return FORM_CALL(reduce_scatterv, comm, b->src, b->dst, b->dst_counts, b->type, b->op);
    case TWILL_MPI_Bcast:
        return FORM_CALL(broadcast, comm, b->src, b->dst, b->count, b->type, b->root);
    case TWILL_MPI_Allgather:
        return FORM_CALL(allgather, comm, b->src, b->dst, b->count, b->type);
    case TWILL_MPI_Allgatherv:
        return FORM_CALL(allgatherv, comm, b->src, b->dst, b->dst_counts, b->dst_offsets, b->type);
    case TWILL_MPI_Gather:
        return FORM_CALL(gather, comm, b->src, b->dst, b->count, b->type, b->root);
    case TWILL_MPI_Gatherv:
        return FORM_CALL(gatherv, comm, b->src, b->count, b->dst, b->dst_counts, b->dst_offsets,
                         b->type, b->root);
    case TWILL_MPI_Scatter:
        return FORM_CALL(scatter, comm, b->src, b->dst, b->count, b->type, b->root);
    case TWILL_MPI_Scatterv:
        return FORM_CALL(scatterv, comm, b->src, b->src_counts, b->src_offsets, b->dst, b->count,
                         b->type, b->root);
    case TWILL_MPI_Alltoall:
        return FORM_CALL(alltoall, comm, b->src, b->dst, b->count, b->type);
    case TWILL_MPI_Alltoallv:
        return FORM_CALL(alltoallv, comm, b->src, b->src_counts, b->src_offsets, b->dst,
                         b->dst_counts, b->dst_offsets, b->type);
    default:
        return FORM_CALL(barrier, comm);
    }
}

/* Translate a call, to be run in `form`, into *bound. Returns TAKEN, or why it is passed on. */
enum twill_mpi_why twill_mpi_bind(const struct twill_mpi_call *call, enum twill_mpi_form form,
                                  struct twill_mpi_comm *comm, struct twill_mpi_bound *bound)
{
    /* Not the whole struct, which is large and of which most calls need little. */
    bound->kind = call->kind;
    bound->form = form;
    bound->comm = comm;
    bound->bounced = 0;
    bound->shared = bound->once = false;
    bound->memory = NULL;
    bound->made = NULL;
    if (binders[call->kind] == NULL)
        return TWILL_MPI_WHY_NOT_TAKEN;
    enum twill_mpi_why why = binders[call->kind](call, bound);
    if (why == TWILL_MPI_WHY_TAKEN && bound->bounced != 0 &&
        (bound->bounced & TWILL_MPI_FAILS) == 0)
        twill_mpi_bounce(bound);
    return why;
}

/* If more than TWILL_MPI_MEMOS calls alternate, one in this number replaces another. */
#define KEPT_OF 8

/* Number of each kind among those that are remembered, from 1. */
#define NUMBER(name, ...) NUMBER_##name,
#define PLACE(name, ...)  [TWILL_MPI_##name] = NUMBER_##name,
enum { NUMBER_NONE, TWILL_MPI_REMEMBERED(NUMBER) NUMBER_AFTER };
#define MEMOS_OF_ALL ((size_t)(NUMBER_AFTER - 1) * TWILL_MPI_MEMOS) /* of all kinds */
static const unsigned char places[TWILL_MPI_KIND_COUNT] = {TWILL_MPI_REMEMBERED(PLACE)};

/* Return whether the meaning of a type never changes. */
static bool is_fixed(MPI_Datatype type)
{
    return type == MPI_DATATYPE_NULL || twill_mpi_type_is_entered(type);
}

/* Return whether something must be done after each call. */
static bool calls_need_more(void)
{
    return twill_mpi.reports || atomic_load(&twill_mpi.windows.open) > 0 ||
           atomic_load(&twill_mpi.windows.messages);
}

/* Let threads make remembered calls at once. Another thread may open a window at the same time. It
 * counts the window before it sets `shared` to false, so one of the two threads sees the other. */
static void share(void)
{
    if (atomic_load_explicit(&twill_mpi.comms.shared, memory_order_relaxed))
        return;
    atomic_store(&twill_mpi.comms.shared, true);
    if (calls_need_more())
        atomic_store(&twill_mpi.comms.shared, false);
}

void twill_mpi_quick_on(struct twill_mpi_comm *own)
{
    if (calls_need_more() || twill_mpi.comms.quick.comm == own)
        return;
    if (twill_mpi.multiple) {
        share();
        return;
    }
    twill_mpi.comms.quick_before = twill_mpi.comms.quick;
    twill_mpi.comms.quick.handle = atomic_load_explicit(&own->handle, memory_order_relaxed);
    twill_mpi.comms.quick.comm = own;
}

struct twill_mpi_memo *twill_mpi_memos_of(struct twill_mpi_comm *own, enum twill_mpi_kind kind)
{
    if (own->scratch.calls.memos == NULL &&
        (own->scratch.calls.memos = malloc(MEMOS_OF_ALL * sizeof(*own->scratch.calls.memos))) !=
            NULL)
        for (size_t i = 0; i < MEMOS_OF_ALL; i++)
            own->scratch.calls.memos[i] = twill_mpi.comms.no_call;
    return own->scratch.calls.memos != NULL
               ? own->scratch.calls.memos + (places[kind] - 1) * TWILL_MPI_MEMOS
               : NULL;
}

/* Return the side of a call that has a count for each rank, or NULL if there is none or its arrays
 * are not significant on this rank. Both sides of MPI_Alltoallv have them, and the receive side is
 * returned. */
static const struct twill_mpi_end *vector_end(const struct twill_mpi_call *call, int rank)
{
    switch (call->kind) {
    case TWILL_MPI_Allgatherv:
    case TWILL_MPI_Reduce_scatter:
    case TWILL_MPI_Alltoallv:
        return &call->recv;
    case TWILL_MPI_Gatherv:
        return call->root == rank ? &call->recv : NULL;
    case TWILL_MPI_Scatterv:
        return call->root == rank ? &call->send : NULL;
    default:
        return NULL;
    }
}

/* Copy the arrays of one side, each of `size` elements, to a memo: the program's to given[2][size],
 * twill's to counts[2][size]. MPI_Reduce_scatter has no displacements and no `offsets`: its counts
 * are in both arrays of `given`. */
static void copy_arrays(int *given, size_t *counts, size_t size, const struct twill_mpi_end *end,
                        const size_t *lengths, const size_t *offsets)
{
    memcpy(given, end->counts, size * sizeof(*given));
    memcpy(counts, lengths, size * sizeof(*counts));
    memcpy(given + size, offsets != NULL ? end->displs : end->counts, size * sizeof(*given));
    if (offsets != NULL)
        memcpy(counts + size, offsets, size * sizeof(*counts));
}

/* Copy the arrays of a call, if it has any, to a memo. Returns false and leaves the memo alone if
 * there is no memory for them, or if the program gave no arrays because it moves no data. */
static bool keep_arrays(struct twill_mpi_memo *memo, const struct twill_mpi_call *call,
                        const struct twill_mpi_bound *bound)
{
    const struct twill_mpi_end *end = vector_end(call, bound->comm->rank);
    const bool all = call->kind == TWILL_MPI_Alltoallv, sent = end == &call->send;
    const size_t size = (size_t)bound->comm->size, arrays = (all ? 4 : 2) * size;
    if (end == NULL) {
        memo->given = NULL;
        return true;
    }
    if ((call->kind != TWILL_MPI_Reduce_scatter && end->displs == NULL) ||
        (all && (call->send.buffer == MPI_IN_PLACE || call->send.displs == NULL)))
        return false;
    if (memo->counts == NULL)
        memo->counts = malloc(arrays * (sizeof(*memo->counts) + sizeof(*memo->given)));
    if (memo->counts == NULL)
        return false;
    int *given = (int *)(memo->counts + arrays);
    copy_arrays(given, memo->counts, size, end, sent ? bound->src_counts : bound->dst_counts,
                sent                                     ? bound->src_offsets
                : call->kind == TWILL_MPI_Reduce_scatter ? NULL
                                                         : bound->dst_offsets);
    if (all)
        copy_arrays(given + 2 * size, memo->counts + 2 * size, size, &call->send, bound->src_counts,
                    bound->src_offsets);
    memo->given = given;
    memo->offsets = memo->counts + size;
    return true;
}

/* Return the memo for one more call, or NULL to leave all as they are. */
static struct twill_mpi_memo *memo_to_fill(struct twill_mpi_comm *own, enum twill_mpi_kind kind)
{
    struct twill_mpi_memo *first = twill_mpi_memos_of(own, kind);
    for (int i = 0; first != NULL && i < TWILL_MPI_MEMOS; i++)
        if (first[i].recv == &twill_mpi.comms.no_call)
            return &first[i];
    return first != NULL && own->refusal.calls % KEPT_OF == 0
               ? own->scratch.calls.latest[kind]->next
               : NULL;
}

void twill_mpi_memo_keep(const struct twill_mpi_call *call, const struct twill_mpi_bound *bound)
{
    struct twill_mpi_comm *own = bound->comm;
    const bool barrier = call->kind == TWILL_MPI_Barrier;
    if (places[call->kind] == 0 || call->large || bound->bounced != 0 || bound->made != NULL ||
        bound->once || (!barrier && (!is_fixed(call->send.type) || !is_fixed(call->recv.type))))
        return;
    struct twill_mpi_memo *memo = memo_to_fill(own, call->kind);
    if (memo == NULL || !keep_arrays(memo, call, bound))
        return;
    if (barrier)
        *memo = (struct twill_mpi_memo){.next = memo};
    else
        *memo = (struct twill_mpi_memo){.next = memo,
                                        .send = call->send.buffer,
                                        .recv = call->recv.buffer,
                                        .send_count = (int)call->send.count,
                                        .recv_count = (int)call->recv.count,
                                        .send_type = call->send.type,
                                        .recv_type = call->recv.type,
                                        .op = call->op,
                                        .root = call->root,
                                        .as = bound->type,
                                        .with = bound->op,
                                        .src = bound->src,
                                        .dst = bound->dst,
                                        .elements = bound->count,
                                        .given = memo->given,
                                        .counts = memo->counts,
                                        .offsets = memo->offsets};
    twill_mpi_memo_found(own, call->kind, memo);
}

void twill_mpi_memo_forget(struct twill_mpi_comm *own)
{
    if (twill_mpi.comms.quick.comm == own || twill_mpi.comms.quick_before.comm == own)
        twill_mpi_quick_off();
    for (int kind = 0; kind < TWILL_MPI_KIND_COUNT; kind++)
        own->scratch.calls.latest[kind] = &twill_mpi.comms.no_call;
    for (size_t i = 0; own->scratch.calls.memos != NULL && i < MEMOS_OF_ALL; i++)
        free(own->scratch.calls.memos[i].counts);
    free(own->scratch.calls.memos);
    own->scratch.calls.memos = NULL;
}

/* Return a remembered call as it was given. */
static struct twill_mpi_call call_of(struct twill_mpi_comm *own, enum twill_mpi_kind kind,
                                     const struct twill_mpi_memo *memo)
{
    struct twill_mpi_call call = {
        .kind = kind,
        .send = {.buffer = memo->send, .count = memo->send_count, .type = memo->send_type},
        .recv = {.buffer = memo->recv, .count = memo->recv_count, .type = memo->recv_type},
        .op = memo->op,
        .root = memo->root,
        .comm = atomic_load(&own->handle)};
    if (memo->given == NULL)
        return call;
    struct twill_mpi_end *end = kind == TWILL_MPI_Scatterv ? &call.send : &call.recv;
    end->counts = memo->given, end->displs = memo->given + own->size;
    if (kind == TWILL_MPI_Alltoallv)
        call.send.counts = memo->given + 2 * own->size,
        call.send.displs = memo->given + 3 * own->size;
    return call;
}

void twill_mpi_memo_count(struct twill_mpi_comm *own, enum twill_mpi_kind kind,
                          const struct twill_mpi_memo *memo, struct twill_mpi_clock clock)
{
    const struct twill_mpi_call call = call_of(own, kind, memo);
    twill_mpi_count(&call, TWILL_MPI_WHY_TAKEN, clock);
}

int twill_mpi_memo_failed(struct twill_mpi_comm *own, enum twill_mpi_kind kind,
                          const struct twill_mpi_memo *memo, twill_status status)
{
    const struct twill_mpi_call call = call_of(own, kind, memo);
    twill_mpi_unlock(own);
    const bool revoked = twill_mpi_is_revoked(own, status);
    twill_mpi_count(&call, revoked ? TWILL_MPI_WHY_REVOKED : TWILL_MPI_WHY_TAKEN,
                    twill_mpi_clock_start());
    return revoked ? twill_mpi_pass_on(&call) : twill_mpi_outcome(own, status);
}

enum twill_mpi_why twill_mpi_run_blocking(const struct twill_mpi_call *call,
                                          struct twill_mpi_comm *comm, twill_status *status)
{
    struct twill_mpi_bound bound;
    enum twill_mpi_why why = twill_mpi_bind(call, TWILL_MPI_BLOCKING, comm, &bound);
    if (why != TWILL_MPI_WHY_TAKEN)
        return why;
    twill_mpi_pack(&bound);
    twill_mpi_wait_in(comm, (int)call->kind);
    *status = twill_mpi_issue(&bound, NULL);
    twill_mpi_wait_in(comm, -1);
    if (*status == TWILL_OK) {
        *status = twill_mpi_unpack(&bound);
        twill_mpi_memo_keep(call, &bound);
    }
    twill_mpi_bound_free(&bound);
    return TWILL_UNLIKELY(*status != TWILL_OK) && twill_mpi_is_revoked(comm, *status)
               ? TWILL_MPI_WHY_REVOKED
               : why;
}

enum twill_mpi_why twill_mpi_run(const struct twill_mpi_call *call, MPI_Request *request, int *code)
{
    if (TWILL_UNLIKELY(twill_mpi.forked)) {
        *code = twill_mpi_refuse_child();
        return TWILL_MPI_WHY_TAKEN;
    }
    struct twill_mpi_comm *comm = twill_mpi_comm_find(call->comm);
    if (comm == NULL)
        return atomic_load_explicit(&twill_mpi.ready, memory_order_relaxed) ? TWILL_MPI_WHY_COMM
                                                                            : TWILL_MPI_WHY_OFF;
    if (comm->comm == NULL)
        return comm->why;
    if (call->form != TWILL_MPI_BLOCKING)
        return twill_mpi_is_agreement(call) ? TWILL_MPI_WHY_AGREEMENT
                                            : twill_mpi_run_request(call, comm, request, code);
    enum twill_mpi_why why;
    if (twill_mpi.multiple) {
        why = twill_mpi_run_shared(call, comm, code);
    } else {
        twill_status status;
        why = twill_mpi_run_blocking(call, comm, &status);
        if (why == TWILL_MPI_WHY_TAKEN)
            *code = twill_mpi_outcome(comm, status);
    }
    if (why == TWILL_MPI_WHY_TAKEN)
        twill_mpi_completed(comm);
    return why;
}
