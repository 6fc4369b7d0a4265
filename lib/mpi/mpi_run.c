/* SPDX-License-Identifier: Apache-2.0 */
/* Binds a call's arguments and runs it on twill. */
#include "lib/mpi/mpi_call.h"

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
    atomic_store_explicit(&b->comm->refusal.calls, b->comm->refusal.calls + 1,
                          memory_order_relaxed);
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
    bound->shared = false;
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

enum twill_mpi_why twill_mpi_run_blocking(const struct twill_mpi_call *call,
                                          struct twill_mpi_comm *comm, twill_status *status)
{
    struct twill_mpi_bound bound;
    enum twill_mpi_why why = twill_mpi_bind(call, TWILL_MPI_BLOCKING, comm, &bound);
    if (why != TWILL_MPI_WHY_TAKEN)
        return why;
    twill_mpi_pack(&bound);
    atomic_store_explicit(&comm->refusal.waits_in, (int)call->kind, memory_order_relaxed);
    *status = twill_mpi_issue(&bound, NULL);
    atomic_store_explicit(&comm->refusal.waits_in, -1, memory_order_relaxed);
    if (*status == TWILL_OK)
        *status = twill_mpi_unpack(&bound);
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
    if (call->form == TWILL_MPI_BLOCKING && comm->quicker[call->kind].most != 0 &&
        twill_mpi_quicker_below(call, comm))
        return TWILL_MPI_WHY_QUICKER;
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
