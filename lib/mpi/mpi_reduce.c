/* SPDX-License-Identifier: Apache-2.0 */
/* Binders of reductions. All ranks decide alike, as MPI demands equal count, type and operation. */
#include "lib/mpi/mpi_call.h"

/* Return 0, or the fault TWILL_MPI_WRONG_* of the buffers of a reduction. This rank sends `given`
 * elements and receives `received`. MPI forbids one buffer for both. This is a fault only if the
 * MPI refuses it, as otherwise twill computes a result like the MPI. */
static unsigned check_buffers(const struct twill_mpi_call *call, struct twill_mpi_comm *comm,
                              size_t given, size_t received)
{
    const bool receives = call->kind != TWILL_MPI_Reduce || comm->rank == call->root;
    const bool in_place = call->send.buffer == MPI_IN_PLACE;
    if (in_place && !receives)
        return TWILL_MPI_WRONG_PLACE;
    if (receives && call->recv.buffer == MPI_IN_PLACE)
        return twill_mpi_received(TWILL_MPI_WRONG_PLACE);
    if (!in_place && given > 0 && call->send.buffer == NULL)
        return TWILL_MPI_WRONG_ADDRESS;
    if (receives && (in_place ? given : received) > 0 && call->recv.buffer == NULL)
        return twill_mpi_received(TWILL_MPI_WRONG_ADDRESS);
    if (receives && received > 0 && call->send.buffer == call->recv.buffer &&
        twill_mpi_is_refused(call, comm, TWILL_MPI_WRONG_ALIAS))
        return TWILL_MPI_WRONG_ALIAS;
    return 0;
}

/* Set *found and *bound to twill's type and operation for a reduction, and check its arguments.
 * This rank sends `given` elements and receives `received`. Returns TAKEN or the reason for passing
 * the call on. If it must fail, returns TAKEN with TWILL_MPI_FAILS set in bound->bounced. */
static enum twill_mpi_why find_reduction(const struct twill_mpi_call *call,
                                         struct twill_mpi_bound *bound,
                                         struct twill_mpi_reduction *found, size_t given,
                                         size_t received)
{
    struct twill_mpi_type storage;
    const struct twill_mpi_type *type = twill_mpi_type_find(call->recv.type, &storage);
    unsigned wrong = call->recv.count < 0                                ? TWILL_MPI_WRONG_COUNT
                     : call->root < 0 || call->root >= bound->comm->size ? TWILL_MPI_WRONG_ROOT
                     : type == NULL ? twill_mpi_wrong_type(call->recv.type)
                                    : 0;
    if (wrong != 0)
        return twill_mpi_wrong(call, bound, wrong);
    enum twill_mpi_why why = twill_mpi_reduction_find(call, type, found);
    if (why != TWILL_MPI_WHY_TAKEN)
        return why;
    bound->made = found->made;
    wrong = check_buffers(call, bound->comm, given, received);
    if (TWILL_UNLIKELY(wrong != 0)) {
        why = twill_mpi_wrong(call, bound, wrong);
        if (why != TWILL_MPI_WHY_TAKEN)
            twill_mpi_bound_free(bound);
        return why;
    }
    if (found->lacks)
        twill_mpi_bound_fail(bound, TWILL_ERR_MEMORY);
    bound->count = (size_t)call->recv.count * found->components;
    bound->type = found->type;
    bound->op = found->op;
    bound->root = call->root;
    return TWILL_MPI_WHY_TAKEN;
}

/* Return the side that consists of `elements` contiguous elements at `user`. */
static struct twill_mpi_side elements_at(const void *user, size_t elements,
                                         const struct twill_mpi_reduction *found)
{
    return (struct twill_mpi_side){.user = user,
                                   .size = (MPI_Count)found->element,
                                   .extent = (MPI_Count)found->element,
                                   .plain = true,
                                   .shards = 1,
                                   .skip = -1,
                                   .count = (MPI_Count)elements,
                                   .bytes = elements * found->element};
}

/* Set the destination of the result, `elements` elements of the program's type at `user`, each of
 * found->element bytes. If `elsewhere`, twill writes them to bounce memory, which is allocated
 * later, and bound->out describes the copy from there to `user`. Otherwise twill writes at
 * `user`. */
static void write_to(struct twill_mpi_bound *bound, void *user, size_t elements,
                     const struct twill_mpi_reduction *found, bool elsewhere)
{
    bound->dst = user;
    if (!elsewhere || elements == 0)
        return;
    bound->bounced |= TWILL_MPI_BOUNCES_OUT;
    bound->out = elements_at(user, elements, found);
}

/* Return whether the send buffer of `given` elements and the receive buffer of `received` elements
 * overlap. Each element has found->element bytes. Returns false if the call is in place. */
static bool buffers_overlap(const struct twill_mpi_call *call, size_t given, size_t received,
                            const struct twill_mpi_reduction *found)
{
    const uintptr_t from = (uintptr_t)call->send.buffer, to = (uintptr_t)call->recv.buffer;
    return call->send.buffer != MPI_IN_PLACE && from < to + received * found->element &&
           to < from + given * found->element;
}

/* Set source and result of a reduction in which both have the same length. */
static void place_result(const struct twill_mpi_call *call, struct twill_mpi_bound *bound,
                         const struct twill_mpi_reduction *found)
{
    size_t elements = (size_t)call->recv.count;
    bool in_place = call->send.buffer == MPI_IN_PLACE;
    bound->src = in_place ? call->recv.buffer : call->send.buffer;
    write_to(bound, (void *)call->recv.buffer, elements, found,
             buffers_overlap(call, elements, elements, found));
    bound->src_at = bound->dst_at = 0;
}

/* Return whether the caller must still set the call's buffers, after find_reduction() has returned
 * `why`. False if the call is passed on to the MPI, or if it has TWILL_MPI_FAILS and is therefore
 * run as a barrier. */
static bool reduction_goes_on(const struct twill_mpi_bound *bound, enum twill_mpi_why why)
{
    return why == TWILL_MPI_WHY_TAKEN && (bound->bounced & TWILL_MPI_FAILS) == 0;
}

/* Translate MPI_Allreduce into *bound. Returns TAKEN, or why the call is passed on. */
enum twill_mpi_why twill_mpi_bind_allreduce(const struct twill_mpi_call *call,
                                            struct twill_mpi_bound *bound)
{
    struct twill_mpi_reduction found;
    const size_t elements = (size_t)call->recv.count;
    enum twill_mpi_why why = find_reduction(call, bound, &found, elements, elements);
    if (reduction_goes_on(bound, why))
        place_result(call, bound, &found);
    return why;
}

/* Translate MPI_Reduce into *bound. Returns TAKEN, or why the call is passed on. */
enum twill_mpi_why twill_mpi_bind_reduce(const struct twill_mpi_call *call,
                                         struct twill_mpi_bound *bound)
{
    struct twill_mpi_reduction found;
    const size_t elements = (size_t)call->recv.count;
    enum twill_mpi_why why = find_reduction(call, bound, &found, elements, elements);
    if (!reduction_goes_on(bound, why))
        return why;
    bound->dst = NULL;
    if (bound->comm->rank == call->root)
        place_result(call, bound, &found);
    else
        bound->src = call->send.buffer;
    return why;
}

/* Set the buffers of a reduce-scatter of `all` elements, of which this rank receives `shard`. If in
 * place, MPI wants the result at the start of the buffer, but twill leaves it at the shard's own
 * offset. The result then goes through bounce memory, as it does if buffers overlap. */
static void place_shard(const struct twill_mpi_call *call, struct twill_mpi_bound *bound,
                        const struct twill_mpi_reduction *found, size_t all, size_t shard)
{
    bool in_place = call->send.buffer == MPI_IN_PLACE;
    bound->src = in_place ? call->recv.buffer : call->send.buffer;
    write_to(bound, (void *)call->recv.buffer, shard, found,
             in_place || buffers_overlap(call, all, shard, found));
}

/* Translate MPI_Reduce_scatter_block into *bound. Returns TAKEN, or why the call is passed on. */
enum twill_mpi_why twill_mpi_bind_reduce_scatter_block(const struct twill_mpi_call *call,
                                                       struct twill_mpi_bound *bound)
{
    struct twill_mpi_reduction found;
    const size_t shard = (size_t)call->recv.count, all = shard * (size_t)bound->comm->size;
    enum twill_mpi_why why = find_reduction(call, bound, &found, all, shard);
    if (reduction_goes_on(bound, why))
        place_shard(call, bound, &found, all, shard);
    return why;
}

/* Translate MPI_Reduce_scatter into *bound. Returns TAKEN, or why the call is passed on. */
enum twill_mpi_why twill_mpi_bind_reduce_scatter(const struct twill_mpi_call *call,
                                                 struct twill_mpi_bound *bound)
{
    struct twill_mpi_reduction found;
    struct twill_mpi_comm *comm = bound->comm;
    size_t *counts = comm->scratch.numbers, all = 0;
    if (call->recv.counts == NULL)
        return twill_mpi_wrong(call, bound, twill_mpi_received(TWILL_MPI_WRONG_ARRAY));
    for (int r = 0; r < comm->size; r++) {
        MPI_Count count = twill_mpi_number(call->recv.counts, call->large, r);
        if (count < 0)
            return twill_mpi_wrong(call, bound, twill_mpi_received(TWILL_MPI_WRONG_COUNT));
        counts[r] = (size_t)count;
        all += (size_t)count;
    }
    enum twill_mpi_why why = find_reduction(call, bound, &found, all, counts[comm->rank]);
    if (!reduction_goes_on(bound, why))
        return why;
    place_shard(call, bound, &found, all, counts[comm->rank]);
    for (int r = 0; r < comm->size; r++)
        counts[r] *= found.components;
    bound->dst_counts = counts;
    return why;
}
