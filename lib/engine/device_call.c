/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory in calls: copied to the host as a whole, the call run there, the result copied
 * back. It is copied to the heap of twill_alloc(), where the ranks of the node read and write it in
 * place, and into pages that are pinned, which the device copies to and from by itself. */
#include "lib/engine/device_call.h"

#ifdef TWILL_WITH_CUDA
#include "kernels/cuda/cuda_device.h"

#include <string.h>

/* Record the driver's error with this rank and call, which need not be the first one under way. */
static twill_status record_error(const struct twill_request *request, twill_status status,
                                 const struct twill_error *said)
{
    struct twill_comm *comm = request->comm;
    if (TWILL_LIKELY(status == TWILL_OK))
        return TWILL_OK;
    if (request->is_point)
        return TWILL_FAIL(&comm->error, status, "%s", said->message);
    comm->issue.call = request->run.call;
    comm->issue.sequence = request->run.sequence;
    return TWILL_COMM_FAIL(comm, status, "%s", said->message);
}

/* --- which memory it is ---------------------------------------------------------------------- */

/* Look up a buffer. Memory of twill_alloc() is never a device's. Memory that CUDA, once
 * initialised, does not know is read by a system call the first time: it may be freed memory of a
 * device. */
static twill_status find_buffer(struct twill_request *request, unsigned side, const void *at,
                                size_t bytes, struct twill_device_memory *found)
{
    const struct twill_context *context = request->comm->context;
    struct twill_error said;
    found->is_device = false;
    if (context->machine.device == NULL ||
        twill_heap_offset(&context->memory.heap, at, bytes) != TWILL_HEAP_NOWHERE)
        return TWILL_OK;
    twill_error_clear(&said);
    twill_status status = twill_device_find(context->machine.device, at, found, &said);
    if (status == TWILL_OK && found->is_unknown && at != request->readable[side] &&
        !twill_memory_is_readable(at, bytes))
        status = TWILL_FAIL(&said, TWILL_ERR_ARGUMENT,
                            "%s: %zu bytes at %p are not memory that this process can read "
                            "(memory of a device that has been freed?)",
                            side == TWILL_SRC ? "src" : "dst", bytes, at);
    request->readable[side] = status == TWILL_OK && found->is_unknown ? at : NULL;
    return record_error(request, status, &said);
}

/* --- bounce memory --------------------------------------------------------------------------- */

/* Bounce memory begins with its first whole page: what is pinned shares no page with other memory.
 */
static unsigned char *bounce_pages(const struct twill_request *request)
{
    return (unsigned char *)twill_round_up((uintptr_t)request->bounce_memory, TWILL_DEVICE_PAGE);
}

/* Pin the bounce memory and note that, in one step: a fence of another thread between the two would
 * leave the device with the pages that it replaces. */
static void pin_bounce(struct twill_request *request, const struct twill_device_memory *memory)
{
    struct twill_context *context = request->comm->context;
    twill_context_lock(context);
    if (twill_device_pin(context->machine.device, bounce_pages(request),
                         request->bounce_memory_bytes - TWILL_DEVICE_PAGE, memory))
        twill_context_set_pinned(context, request->bounce_memory);
    twill_context_unlock(context);
}

/* Grow the bounce memory to at least `bytes`; contents are not preserved. It is pinned when it is
 * used for the second time, because pinning takes about as long as a call's copies. */
static twill_status reserve_bounce(struct twill_request *request, size_t bytes,
                                   const struct twill_device_memory *memory)
{
    struct twill_context *context = request->comm->context;
    size_t pages = twill_round_up(bytes, TWILL_DEVICE_PAGE);
    if (pages + TWILL_DEVICE_PAGE > request->bounce_memory_bytes) {
        void *grown;
        twill_context_give_shared(context, request->bounce_memory, request->bounce_memory_bytes);
        request->bounce_memory = NULL;
        request->bounce_memory_bytes = 0;
        request->bounce_uses = 0;
        TWILL_TRY(&request->comm->error,
                  twill_context_take_shared(context, &grown, pages + TWILL_DEVICE_PAGE,
                                            &request->comm->error));
        request->bounce_memory = grown;
        request->bounce_memory_bytes = pages + TWILL_DEVICE_PAGE;
    }
    if (request->bounce_uses < 2 && ++request->bounce_uses == 2)
        pin_bounce(request, memory);
    return TWILL_OK;
}

static twill_status copy_in(struct twill_request *request, unsigned char *to,
                            const struct twill_device_memory *from, size_t bytes)
{
    struct twill_comm *comm = request->comm;
    struct twill_error said;
    twill_error_clear(&said);
    twill_counter_add(&comm->usage.counters.bytes_copied, bytes);
    return record_error(request,
                        twill_device_to_host(comm->context->machine.device, to, from, bytes, &said),
                        &said);
}

static twill_status copy_out(struct twill_request *request, const struct twill_device_memory *to,
                             const void *from, size_t bytes)
{
    struct twill_comm *comm = request->comm;
    struct twill_error said;
    twill_error_clear(&said);
    twill_counter_add(&comm->usage.counters.bytes_copied, bytes);
    return record_error(
        request, twill_device_from_host(comm->context->machine.device, to, from, bytes, &said),
        &said);
}

/* --- collectives ----------------------------------------------------------------------------- */

/* Bounce memory has the layout of the caller's buffer. Both sides of an allreduce are one, which is
 * twice as fast as two, and so are those of other calls in place. If dst may have gaps between its
 * shards it is copied in, too, because all of it is copied back. */
static twill_status copy_sides_in(struct twill_request *request,
                                  const struct twill_device_memory found[TWILL_SIDES])
{
    struct twill_comm *comm = request->comm;
    struct twill_side *src = &request->run.buffers.side[TWILL_SRC];
    struct twill_side *dst = &request->run.buffers.side[TWILL_DST];
    bool in = found[TWILL_SRC].is_device, out = found[TWILL_DST].is_device;
    bool in_place = in && out && src->bytes == dst->bytes &&
                    (src->base == dst->base || request->run.call.collective == TWILL_ALLREDUCE);
    size_t dst_at = in && !in_place ? twill_round_up(src->bytes, TWILL_DEVICE_PAGE) : 0;
    TWILL_TRY(&comm->error, reserve_bounce(request, dst_at + (out ? dst->bytes : src->bytes),
                                           &found[in ? TWILL_SRC : TWILL_DST]));
    unsigned char *bounce = bounce_pages(request);
    if (in)
        TWILL_TRY(&comm->error, copy_in(request, bounce, &found[TWILL_SRC], src->bytes));
    if (out && !in_place && dst->count != NULL)
        TWILL_TRY(&comm->error, copy_in(request, bounce + dst_at, &found[TWILL_DST], dst->bytes));
    if (in)
        src->base = bounce;
    if (out) {
        request->on_device = dst->base;
        request->result = dst->base = bounce + dst_at;
        request->result_bytes = dst->bytes;
    }
    return TWILL_OK;
}

twill_status twill_request_bounce_in(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    struct twill_run *run = &request->run;
    request->on_device = NULL;
    if (TWILL_LIKELY(comm->context->machine.device == NULL))
        return TWILL_OK;
    run->sequence = comm->issue.started;
    bool had_moved = request->has_moved_sides;
    if (had_moved)
        twill_run_describe(run);
    const struct twill_side *side = run->buffers.side;
    struct twill_device_memory found[TWILL_SIDES];
    found[TWILL_SRC].is_device = found[TWILL_DST].is_device = false;
    if (side[TWILL_SRC].bytes > 0)
        TWILL_TRY(&comm->error, find_buffer(request, TWILL_SRC, side[TWILL_SRC].base,
                                            side[TWILL_SRC].bytes, &found[TWILL_SRC]));
    if (side[TWILL_DST].bytes > 0 && side[TWILL_DST].base == side[TWILL_SRC].base)
        found[TWILL_DST] = found[TWILL_SRC];
    else if (side[TWILL_DST].bytes > 0)
        TWILL_TRY(&comm->error, find_buffer(request, TWILL_DST, side[TWILL_DST].base,
                                            side[TWILL_DST].bytes, &found[TWILL_DST]));
    request->has_moved_sides = found[TWILL_SRC].is_device || found[TWILL_DST].is_device;
    if (TWILL_LIKELY(!request->has_moved_sides && !had_moved))
        return TWILL_OK;
    if (request->has_moved_sides)
        TWILL_TRY(&comm->error, copy_sides_in(request, found));
    /* The sides have moved: lay the run out again. */
    run->exchange.before = NULL;
    return run->plan != NULL ? twill_run_lay_out(run) : TWILL_OK;
}

/* --- messages -------------------------------------------------------------------------------- */

twill_status twill_point_bounce_in(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    const struct twill_point *p = &request->point;
    request->on_device = request->bounced[0] = request->bounced[1] = NULL;
    if (TWILL_LIKELY(comm->context->machine.device == NULL))
        return TWILL_OK;
    const void *at[2] = {p->sends ? p->src : NULL, p->receives ? p->dst : NULL};
    size_t element = twill_type_size(p->type);
    size_t bytes[2] = {p->src_count * element, p->dst_count * element};
    struct twill_device_memory found[2];
    found[0].is_device = found[1].is_device = false;
    for (unsigned i = 0; i < 2; i++)
        if (at[i] != NULL && bytes[i] > 0)
            TWILL_TRY(&comm->error, find_buffer(request, i, at[i], bytes[i], &found[i]));
    if (TWILL_LIKELY(!found[0].is_device && !found[1].is_device))
        return TWILL_OK;
    size_t in_at = found[0].is_device ? twill_round_up(bytes[0], TWILL_DEVICE_PAGE) : 0;
    TWILL_TRY(&comm->error, reserve_bounce(request, in_at + (found[1].is_device ? bytes[1] : 0),
                                           &found[found[0].is_device ? 0 : 1]));
    if (found[0].is_device) {
        request->bounced[0] = bounce_pages(request);
        TWILL_TRY(&comm->error, copy_in(request, request->bounced[0], &found[0], bytes[0]));
    }
    if (found[1].is_device) {
        request->on_device = p->dst;
        request->result = request->bounced[1] = bounce_pages(request) + in_at;
        request->result_bytes = bytes[1];
    }
    return TWILL_OK;
}

/* --- the end --------------------------------------------------------------------------------- */

twill_status twill_request_bounce_out(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    const struct twill_device *device = comm->context->machine.device;
    if (TWILL_LIKELY(device == NULL || request->on_device == NULL))
        return TWILL_OK;
    bool root = !request->is_point && request->run.call.collective == TWILL_BROADCAST &&
                comm->rank == request->run.call.root;
    if (root && request->run.call.src ==
                    request->run.call.dst) /* the root's buffer is its source: leave it alone */
        return TWILL_OK;
    struct twill_error said;
    struct twill_device_memory memory;
    twill_error_clear(&said);
    TWILL_TRY(&comm->error,
              record_error(request, twill_device_find(device, request->on_device, &memory, &said),
                           &said));
    return copy_out(request, &memory, request->result, request->result_bytes);
}

/* --- other memory ---------------------------------------------------------------------------- */

twill_status twill_request_read(struct twill_request *request, void *to, size_t bytes)
{
    struct twill_device_memory found;
    const void *src = request->run.call.src;
    TWILL_TRY(&request->comm->error, find_buffer(request, TWILL_SRC, src, bytes, &found));
    if (found.is_device)
        return copy_in(request, to, &found, bytes);
    memcpy(to, src, bytes);
    return TWILL_OK;
}

twill_status twill_request_write(struct twill_request *request, const void *from, size_t bytes)
{
    struct twill_device_memory found;
    void *dst = request->run.call.dst;
    TWILL_TRY(&request->comm->error, find_buffer(request, TWILL_DST, dst, bytes, &found));
    if (found.is_device)
        return copy_out(request, &found, from, bytes);
    memcpy(dst, from, bytes);
    return TWILL_OK;
}

#endif
