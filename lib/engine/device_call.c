/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory in calls. The call runs on a copy in the heap of twill_alloc(), which the ranks of
 * the node access in place. Its pages are pinned, so the device copies without help. */
#include "lib/engine/device_call.h"
#include "lib/engine/engine_internal.h"
#include "lib/job/context.h"
#include "lib/job/heap.h"

#ifdef TWILL_WITH_CUDA
#include "kernels/cuda/cuda_device.h"

#include <string.h>

/* Return `status`. If it is an error, set the engine's error to `said`. For a collective, make it
 * the current call (issue.call), and put this rank and the call before the message. */
static twill_status record_error(const struct twill_request *request, twill_status status,
                                 const struct twill_error *said)
{
    struct twill_engine *engine = request->engine;
    if (TWILL_LIKELY(status == TWILL_OK))
        return TWILL_OK;
    if (request->is_point)
        return TWILL_FAIL(&engine->error, status, "%s", said->message);
    engine->issue.call = request->call;
    engine->issue.sequence = request->sequence;
    return TWILL_ENGINE_FAIL(engine, status, "%s", said->message);
}

/* Describe in *found the buffer `at`, which is `side` (TWILL_SRC or TWILL_DST) of the call, mainly
 * whether it is device memory. Memory of twill_alloc() is not. If CUDA does not know `at`, and it
 * is new for this side, check that it can be read. Returns TWILL_ERR_ARGUMENT if not, or the
 * driver's error. */
static twill_status find_buffer(struct twill_request *request, unsigned side, const void *at,
                                size_t bytes, struct twill_device_memory *found)
{
    const struct twill_context *context = request->engine->context;
    struct twill_error said;
    found->is_device = false;
    if (context->machine.device == NULL ||
        twill_heap_offset(&context->memory->heap, at, bytes) != TWILL_HEAP_NOWHERE)
        return TWILL_OK;
    twill_error_clear(&said);
    twill_status status = twill_device_find(context->machine.device, at, found, &said);
    if (status == TWILL_OK && found->is_unknown && at != request->buffers.device.readable[side] &&
        !twill_memory_is_readable(at, bytes))
        status = TWILL_FAIL(&said, TWILL_ERR_ARGUMENT,
                            "%s: %zu bytes at %p are not memory that this process can read "
                            "(memory of a device that has been freed?)",
                            side == TWILL_SRC ? "src" : "dst", bytes, at);
    request->buffers.device.readable[side] = status == TWILL_OK && found->is_unknown ? at : NULL;
    return record_error(request, status, &said);
}

/* Return the first whole page of the bounce memory, so that pinned pages hold nothing else. */
static unsigned char *bounce_pages(const struct twill_request *request)
{
    return (unsigned char *)twill_round_up((uintptr_t)request->buffers.device.bounce,
                                           TWILL_DEVICE_PAGE);
}

/* Pin the bounce memory for the device of `memory` and note that, in one step under the lock. If
 * another thread fenced in between, the device would keep the pages that the fence replaces. If
 * pinning fails, do nothing. */
static void pin_bounce(struct twill_request *request, const struct twill_device_memory *memory)
{
    struct twill_context *context = request->engine->context;
    twill_context_lock(context);
    if (twill_device_pin(context->machine.device, bounce_pages(request),
                         request->buffers.device.bounce_bytes - TWILL_DEVICE_PAGE, memory))
        twill_context_set_pinned(context, request->buffers.device.bounce);
    twill_context_unlock(context);
}

/* Make the bounce memory at least `bytes` long, without keeping its contents. At the second call
 * that uses it, pin it for the device of `memory`. Pinning takes about as long as the copies of a
 * call. Returns TWILL_OK or the error. */
static twill_status reserve_bounce(struct twill_request *request, size_t bytes,
                                   const struct twill_device_memory *memory)
{
    struct twill_context *context = request->engine->context;
    size_t pages = twill_round_up(bytes, TWILL_DEVICE_PAGE);
    if (pages + TWILL_DEVICE_PAGE > request->buffers.device.bounce_bytes) {
        void *grown;
        twill_context_give_shared(context, request->buffers.device.bounce,
                                  request->buffers.device.bounce_bytes);
        request->buffers.device.bounce = NULL;
        request->buffers.device.bounce_bytes = 0;
        request->buffers.device.uses = 0;
        TWILL_TRY(&request->engine->error,
                  twill_context_take_shared(context, &grown, pages + TWILL_DEVICE_PAGE,
                                            &request->engine->error));
        request->buffers.device.bounce = grown;
        request->buffers.device.bounce_bytes = pages + TWILL_DEVICE_PAGE;
    }
    if (request->buffers.device.uses < 2 && ++request->buffers.device.uses == 2)
        pin_bounce(request, memory);
    return TWILL_OK;
}

/* Copy `bytes` bytes from the device to `host`, or back if `out`. Returns TWILL_OK or the error. */
static twill_status copy_memory(struct twill_request *request, void *host,
                                const struct twill_device_memory *memory, size_t bytes, bool out)
{
    const struct twill_device *device = request->engine->context->machine.device;
    struct twill_error said;
    twill_error_clear(&said);
    twill_counter_add(&request->engine->usage.counters.bytes_copied, bytes);
    return record_error(request,
                        out ? twill_device_from_host(device, memory, host, bytes, &said)
                            : twill_device_to_host(device, host, memory, bytes, &said),
                        &said);
}

/* Copy sides on the device into bounce memory, with the same layout, and use that instead. Both
 * sides of an allreduce, or of another call in place, share it, which is twice as fast. If dst may
 * have gaps it is also copied in, as all of it is copied back. Returns TWILL_OK or the error. */
static twill_status copy_sides_in(struct twill_request *request,
                                  const struct twill_device_memory found[TWILL_SIDES])
{
    struct twill_engine *engine = request->engine;
    struct twill_side *src = &request->buffers.side[TWILL_SRC];
    struct twill_side *dst = &request->buffers.side[TWILL_DST];
    bool in = found[TWILL_SRC].is_device, out = found[TWILL_DST].is_device;
    bool in_place = in && out && src->bytes == dst->bytes &&
                    (src->base == dst->base || request->call.collective == TWILL_ALLREDUCE);
    size_t dst_at = in && !in_place ? twill_round_up(src->bytes, TWILL_DEVICE_PAGE) : 0;
    TWILL_TRY(&engine->error, reserve_bounce(request, dst_at + (out ? dst->bytes : src->bytes),
                                             &found[in ? TWILL_SRC : TWILL_DST]));
    unsigned char *bounce = bounce_pages(request);
    if (in)
        TWILL_TRY(&engine->error,
                  copy_memory(request, bounce, &found[TWILL_SRC], src->bytes, false));
    if (out && !in_place && dst->count != NULL)
        TWILL_TRY(&engine->error,
                  copy_memory(request, bounce + dst_at, &found[TWILL_DST], dst->bytes, false));
    if (in)
        src->base = bounce;
    if (out) {
        request->buffers.device.place = dst->base;
        request->buffers.device.result = dst->base = bounce + dst_at;
        request->buffers.device.result_bytes = dst->bytes;
    }
    return TWILL_OK;
}

twill_status twill_request_bounce_in(struct twill_request *request)
{
    struct twill_engine *engine = request->engine;
    request->buffers.device.place = NULL;
    if (TWILL_LIKELY(engine->context->machine.device == NULL))
        return TWILL_OK;
    request->sequence = engine->issue.started;
    bool had_moved = request->buffers.device.has_moved_sides;
    if (had_moved)
        twill_run_describe(request);
    const struct twill_side *side = request->buffers.side;
    struct twill_device_memory found[TWILL_SIDES];
    found[TWILL_SRC].is_device = found[TWILL_DST].is_device = false;
    if (side[TWILL_SRC].bytes > 0)
        TWILL_TRY(&engine->error, find_buffer(request, TWILL_SRC, side[TWILL_SRC].base,
                                              side[TWILL_SRC].bytes, &found[TWILL_SRC]));
    if (side[TWILL_DST].bytes > 0 && side[TWILL_DST].base == side[TWILL_SRC].base)
        found[TWILL_DST] = found[TWILL_SRC];
    else if (side[TWILL_DST].bytes > 0)
        TWILL_TRY(&engine->error, find_buffer(request, TWILL_DST, side[TWILL_DST].base,
                                              side[TWILL_DST].bytes, &found[TWILL_DST]));
    request->buffers.device.has_moved_sides =
        found[TWILL_SRC].is_device || found[TWILL_DST].is_device;
    if (TWILL_LIKELY(!request->buffers.device.has_moved_sides && !had_moved))
        return TWILL_OK;
    if (request->buffers.device.has_moved_sides)
        TWILL_TRY(&engine->error, copy_sides_in(request, found));
    /* Lay the request out again, as the sides have moved. */
    request->exchange.before = NULL;
    return request->plan != NULL ? twill_run_lay_out(request) : TWILL_OK;
}

twill_status twill_point_bounce_in(struct twill_request *request)
{
    struct twill_engine *engine = request->engine;
    const struct twill_point *p = &request->point;
    request->buffers.device.place = request->buffers.device.copied[0] =
        request->buffers.device.copied[1] = NULL;
    if (TWILL_LIKELY(engine->context->machine.device == NULL))
        return TWILL_OK;
    const void *at[2] = {p->sends ? p->src : NULL, p->receives ? p->dst : NULL};
    size_t element = twill_type_size(p->type);
    size_t bytes[2] = {p->src_count * element, p->dst_count * element};
    struct twill_device_memory found[2];
    found[0].is_device = found[1].is_device = false;
    for (unsigned i = 0; i < 2; i++)
        if (at[i] != NULL && bytes[i] > 0)
            TWILL_TRY(&engine->error, find_buffer(request, i, at[i], bytes[i], &found[i]));
    if (TWILL_LIKELY(!found[0].is_device && !found[1].is_device))
        return TWILL_OK;
    size_t in_at = found[0].is_device ? twill_round_up(bytes[0], TWILL_DEVICE_PAGE) : 0;
    TWILL_TRY(&engine->error, reserve_bounce(request, in_at + (found[1].is_device ? bytes[1] : 0),
                                             &found[found[0].is_device ? 0 : 1]));
    if (found[0].is_device) {
        request->buffers.device.copied[0] = bounce_pages(request);
        TWILL_TRY(&engine->error, copy_memory(request, request->buffers.device.copied[0], &found[0],
                                              bytes[0], false));
    }
    if (found[1].is_device) {
        request->buffers.device.place = p->dst;
        request->buffers.device.result = request->buffers.device.copied[1] =
            bounce_pages(request) + in_at;
        request->buffers.device.result_bytes = bytes[1];
    }
    return TWILL_OK;
}

twill_status twill_request_bounce_out(struct twill_request *request)
{
    struct twill_engine *engine = request->engine;
    const struct twill_device *device = engine->context->machine.device;
    if (TWILL_LIKELY(device == NULL || request->buffers.device.place == NULL))
        return TWILL_OK;
    bool root = !request->is_point && request->call.collective == TWILL_BROADCAST &&
                engine->rank == request->call.root;
    if (root && request->call.src == request->call.dst) /* the root's buffer is its source */
        return TWILL_OK;
    struct twill_error said;
    struct twill_device_memory memory;
    twill_error_clear(&said);
    TWILL_TRY(&engine->error,
              record_error(request,
                           twill_device_find(device, request->buffers.device.place, &memory, &said),
                           &said));
    return copy_memory(request, request->buffers.device.result, &memory,
                       request->buffers.device.result_bytes, true);
}

twill_status twill_request_read(struct twill_request *request, void *to, size_t bytes)
{
    struct twill_device_memory found;
    const void *src = request->call.src;
    TWILL_TRY(&request->engine->error, find_buffer(request, TWILL_SRC, src, bytes, &found));
    if (found.is_device)
        return copy_memory(request, to, &found, bytes, false);
    memcpy(to, src, bytes);
    return TWILL_OK;
}

twill_status twill_request_write(struct twill_request *request, const void *from, size_t bytes)
{
    struct twill_device_memory found;
    void *dst = request->call.dst;
    TWILL_TRY(&request->engine->error, find_buffer(request, TWILL_DST, dst, bytes, &found));
    if (found.is_device)
        return copy_memory(request, (void *)(uintptr_t)from, &found, bytes, true);
    memcpy(dst, from, bytes);
    return TWILL_OK;
}

#endif
