/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the arguments of a collective before anything is sent, and copies counts and offsets. */
#include "algorithms/algorithms.h"
#include "kernels/kernels.h"
#include "lib/api/api_internal.h"
#include "lib/job/operation.h"

#include <stdlib.h>

static const char *const side_names[TWILL_SIDES] = {"src", "dst"};

/* Return TWILL_OK if the call's operation exists and takes its type, else TWILL_ERR_ARGUMENT. */
static twill_status check_operation(struct twill_comm *comm, const struct twill_call *call)
{
    const struct twill_operation *created = twill_context_operation(comm->context, call->op);
    if (created == NULL && (unsigned)call->op >= TWILL_OP_COUNT)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "op %d is not a twill_op",
                          (int)call->op);
    if (created == NULL) {
        if (!twill_kernels_takes(call->type, call->op))
            return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "op %s does not take type %s",
                              twill_op_name(call->op), twill_type_name(call->type));
        return TWILL_OK;
    }
    if ((created->scaled || created->narrow) && created->type != call->type)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "the %s sum is of type %s, not %s",
                          created->narrow ? "narrow" : "scaled", twill_type_name(created->type),
                          twill_type_name(call->type));
    if (created->element != 0 && call->type != TWILL_U8)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT,
                          "elements of %zu bytes are passed as type u8, not %s", created->element,
                          twill_type_name(call->type));
    return TWILL_OK;
}

/* Return TWILL_OK if the call's type, operation and root are valid, else TWILL_ERR_ARGUMENT. */
static twill_status type_check(struct twill_comm *comm, const struct twill_call *call)
{
    if (twill_type_size(call->type) == 0)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "type %d is not a twill_type",
                          (int)call->type);
    if (twill_collective_facts(call->collective)->reduces)
        TWILL_TRY(&comm->error, check_operation(comm, call));
    if (call->root >= comm->world->size)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "root %d is outside 0 .. %u",
                          (int)call->root, comm->world->size - 1);
    return TWILL_OK;
}

size_t twill_call_element(const struct twill_comm *comm, const struct twill_call *call)
{
    const struct twill_operation *created = twill_context_operation(comm->context, call->op);
    if (!twill_collective_facts(call->collective)->reduces || created != NULL)
        return created != NULL && created->element != 0 ? created->element
                                                        : twill_type_size(call->type);
    return twill_kernels_element(call->type, call->op);
}

twill_status twill_call_check_alike(struct twill_comm *comm, const struct twill_call *call)
{
    size_t shards = twill_collective_facts(call->collective)->sharded ? comm->world->size : 1;
    TWILL_TRY(&comm->error, type_check(comm, call));
    size_t element = twill_call_element(comm, call);
    if (call->count > (SIZE_MAX >> 1) / element / shards)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "count %zu overflows memory",
                          call->count);
    return TWILL_OK;
}

/* Copy the counts and offsets of a side into the request, with offsets of contiguous shards for
 * NULL. Returns TWILL_OK, or TWILL_ERR_ARGUMENT if the counts are NULL or overflow memory. */
static twill_status copy_counts(struct twill_request *request, unsigned side)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    struct twill_counts *counts =
        side == TWILL_SRC ? &request->call.src_counts : &request->call.dst_counts;
    uint32_t size = comm->world->size;
    size_t *count = request->buffers.counts + (size_t)side * 2 * size, *offset = count + size,
           end = 0;
    if (counts->count == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "%s counts are NULL", side_names[side]);
    for (uint32_t p = 0; p < size; p++) {
        count[p] = counts->count[p];
        offset[p] = counts->offset != NULL ? counts->offset[p] : end;
        if (count[p] > SIZE_MAX >> 13 || offset[p] > SIZE_MAX >> 13 || end > SIZE_MAX >> 13)
            return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT,
                              "%s: count %zu at offset %zu for rank %u overflows memory",
                              side_names[side], count[p], offset[p], p);
        end += count[p];
    }
    *counts = (struct twill_counts){count, offset};
    return TWILL_OK;
}

/* Return whether this rank's buffer contains the shards of all ranks. `holder` says which ranks
 * have shards in that buffer. The result is true for TWILL_HOLDS_ALL, and on the root for
 * TWILL_HOLDS_ROOT. */
static bool has_shards(const struct twill_request *run, enum twill_holder holder)
{
    return holder == TWILL_HOLDS_ALL ||
           (holder == TWILL_HOLDS_ROOT && run->engine->rank == run->call.root);
}

/* Copy the counts and offsets of all ranks' shards, as far as this rank has them, into the request.
 * For allgather and reduce-scatter, set the call's count to this rank's. Returns TWILL_OK or the
 * error, TWILL_ERR_ARGUMENT if this rank sends itself another count than it receives. */
static twill_status take_counts(struct twill_request *request)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    const struct twill_collective_facts *facts = twill_collective_facts(request->call.collective);
    const enum twill_holder holder[TWILL_SIDES] = {facts->src, facts->dst};
    if (request->buffers.counts == NULL)
        request->buffers.counts =
            calloc(4 * (size_t)comm->world->size, sizeof(*request->buffers.counts));
    if (request->buffers.counts == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory for counts");
    for (unsigned side = 0; side < TWILL_SIDES; side++)
        if (has_shards(request, holder[side]))
            TWILL_TRY(&comm->error, copy_counts(request, side));
    const struct twill_counts *src = &request->call.src_counts, *dst = &request->call.dst_counts;
    if (request->call.collective == TWILL_ALLGATHER)
        request->call.count = dst->count[comm->rank];
    else if (request->call.collective == TWILL_REDUCE_SCATTER)
        request->call.count = src->count[comm->rank];
    bool differs = false;
    if (request->call.collective == TWILL_ALLTOALL)
        differs = src->count[comm->rank] != dst->count[comm->rank];
    else if (has_shards(request, holder[TWILL_SRC]))
        differs = src->count[comm->rank] != request->call.count;
    else if (has_shards(request, holder[TWILL_DST]))
        differs = dst->count[comm->rank] != request->call.count;
    if (differs)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT,
                          "this rank sends another count to itself than it receives");
    return TWILL_OK;
}

/* Return TWILL_ERR_ARGUMENT if buffer i is NULL or exceeds the address space, else TWILL_OK. */
static twill_status side_check(const struct twill_request *run, unsigned i)
{
    struct twill_comm *comm = twill_comm_of(run->engine);
    const struct twill_side *side = &run->buffers.side[i];
    const void *base = side->base;
    if (side->bytes == 0)
        return TWILL_OK;
    if (base == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "%s is NULL", side_names[i]);
    if ((uintptr_t)base > UINTPTR_MAX - side->bytes)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "count %zu exceeds the address space",
                          run->call.count);
    return TWILL_OK;
}

/* For src and dst that overlap, return whether a call in place allows that. A buffer that holds
 * this rank's shard only must be exactly that shard of the other buffer. If both or neither hold a
 * shard only, they must begin at one address. For whole buffers of a vector call, return false. */
static bool is_in_place(const struct twill_request *run)
{
    const struct twill_side *src = &run->buffers.side[TWILL_SRC],
                            *dst = &run->buffers.side[TWILL_DST];
    if (src->own == dst->own)
        return src->base == dst->base && (!run->call.vector || src->own);
    const struct twill_side *whole = src->own ? dst : src, *shard = src->own ? src : dst;
    uint32_t rank = run->engine->rank;
    size_t at = whole->offset != NULL ? whole->offset[rank] : rank * whole->pitch;
    return shard->base == whole->base + at * run->layout.given;
}

twill_status twill_call_check_buffers(const struct twill_request *run)
{
    struct twill_comm *comm = twill_comm_of(run->engine);
    const struct twill_side *src_side = &run->buffers.side[TWILL_SRC],
                            *dst_side = &run->buffers.side[TWILL_DST];
    TWILL_TRY(&comm->error, side_check(run, TWILL_SRC));
    TWILL_TRY(&comm->error, side_check(run, TWILL_DST));
    uintptr_t src = (uintptr_t)src_side->base, src_end = src + src_side->bytes;
    uintptr_t dst = (uintptr_t)dst_side->base, dst_end = dst + dst_side->bytes;
    if (src == src_end || dst == dst_end || src >= dst_end || dst >= src_end || is_in_place(run))
        return TWILL_OK;
    uintptr_t begin = src > dst ? src : dst;
    uintptr_t end = src_end < dst_end ? src_end : dst_end;
    return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT,
                      "src and dst overlap by %zu bytes, but are not %s", (size_t)(end - begin),
                      twill_collective_facts(run->call.collective)->sharded ? "in place" : "equal");
}

twill_status twill_call_check(struct twill_request *request)
{
    struct twill_comm *comm = twill_comm_of(request->engine);
    const struct twill_collective_facts *facts = twill_collective_facts(request->call.collective);
    request->refused_alike = true;
    TWILL_TRY(&comm->error, type_check(comm, &request->call));
    request->refused_alike = !request->call.vector;
    if (TWILL_UNLIKELY(request->call.vector))
        TWILL_TRY(&comm->error, take_counts(request));
    size_t shards = facts->sharded && !request->call.vector ? comm->world->size : 1;
    twill_run_describe(request);
    if (request->call.count > (SIZE_MAX >> 1) / request->layout.element / shards)
        return TWILL_FAIL(&comm->error, TWILL_ERR_ARGUMENT, "count %zu overflows memory",
                          request->call.count);
    request->refused_alike = false;
    return twill_call_check_buffers(request);
}
