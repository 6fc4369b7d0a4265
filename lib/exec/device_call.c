/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory in calls: copied to the host as a whole, the call run there, the result copied
 * back.
 */
#include "lib/exec/device_call.h"

#ifdef TWILL_WITH_CUDA
#include "kernels/cuda/cuda_device.h"

twill_status twill_context_open_device(struct twill_context *context)
{
    const char *library = twill_config_text(&context->config, TWILL_VARIABLE_CUDA_LIBRARY);
    char how[200];
    TWILL_TRY(&context->error, twill_device_open(&context->machine.device, library, how,
                                                 sizeof(how), &context->error));
    const char *found = context->machine.device != NULL ? "staged through the host" : "unavailable";
    twill_context_note(context, "device memory: %s: %s", found, how);
    /* A user who names a library expects it to be used. */
    bool unavailable = context->machine.device == NULL && library != NULL;
    if (unavailable)
        twill_say(&context->log, TWILL_LOG_WARN, "device memory: %s: %s", found, how);
    return TWILL_OK;
}

void twill_context_close_device(struct twill_context *context)
{
    twill_device_close(context->machine.device);
    context->machine.device = NULL;
}

/* Record the driver's error with this rank and call, which need not be the first one under way. */
static twill_status record_error(const struct twill_request *request, twill_status status,
                                 const struct twill_error *said)
{
    struct twill_comm *comm = request->comm;
    if (status == TWILL_OK)
        return TWILL_OK;
    if (request->is_point)
        return TWILL_FAIL(&comm->error, status, "%s", said->message);
    comm->issue.call = request->run.call;
    comm->issue.sequence = request->run.sequence;
    return TWILL_COMM_FAIL(comm, status, "%s", said->message);
}

static twill_status is_on_device(const struct twill_request *request, unsigned side, bool *is)
{
    struct twill_error said = {0};
    return record_error(request,
                        twill_device_is(request->comm->context->machine.device,
                                        request->run.buffers.side[side].base, is, &said),
                        &said);
}

/* Copy a side to the host. */
static twill_status copy_side_in(struct twill_request *request, unsigned side, unsigned char *to)
{
    struct twill_comm *comm = request->comm;
    struct twill_error said = {0};
    size_t bytes = request->run.buffers.side[side].bytes;
    const void *from = request->run.buffers.side[side].base;
    twill_counter_add(&comm->usage.counters.bytes_copied, bytes);
    return record_error(request,
                        twill_device_to_host(comm->context->machine.device, to, from, bytes, &said),
                        &said);
}

/* Bounce memory has the layout of the caller's buffer. If dst may have gaps between its shards it
 * is copied in, too, because all of it is copied back. */
static twill_status copy_sides_in(struct twill_request *request, const bool on[TWILL_SIDES])
{
    struct twill_comm *comm = request->comm;
    struct twill_run *run = &request->run;
    size_t bytes = run->buffers.side[TWILL_DST].bytes;
    size_t dst_at =
        on[0] ? twill_round_up(run->buffers.side[TWILL_SRC].bytes, TWILL_CACHE_LINE) : 0;
    TWILL_TRY(&comm->error,
              twill_comm_reserve(comm, &request->bounce_memory, &request->bounce_memory_bytes,
                                 dst_at + (on[1] ? bytes : 0)));
    if (on[0])
        TWILL_TRY(&comm->error, copy_side_in(request, TWILL_SRC, request->bounce_memory));
    if (on[1] && run->buffers.side[TWILL_DST].count != NULL)
        TWILL_TRY(&comm->error, copy_side_in(request, TWILL_DST, request->bounce_memory + dst_at));
    for (unsigned i = 0; i < TWILL_SIDES; i++)
        if (on[i])
            run->buffers.side[i].base = request->bounce_memory + (i == TWILL_DST ? dst_at : 0);
    if (on[1]) {
        request->on_device = request->run.call.dst;
        request->result = request->bounce_memory + dst_at;
        request->result_bytes = bytes;
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
    twill_run_describe(run);
    bool on[TWILL_SIDES] = {false, false};
    for (unsigned i = 0; i < TWILL_SIDES; i++)
        if (run->buffers.side[i].bytes > 0)
            TWILL_TRY(&comm->error, is_on_device(request, i, &on[i]));
    if (on[0] || on[1])
        TWILL_TRY(&comm->error, copy_sides_in(request, on));
    /* The sides have moved: lay the run out again. */
    run->exchange.before = NULL;
    return run->plan != NULL ? twill_run_lay_out(run) : TWILL_OK;
}

twill_status twill_point_bounce_in(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    const struct twill_device *device = comm->context->machine.device;
    const struct twill_point *p = &request->point;
    request->on_device = request->bounced[0] = request->bounced[1] = NULL;
    if (TWILL_LIKELY(device == NULL))
        return TWILL_OK;
    const void *at[2] = {p->sends ? p->src : NULL, p->receives ? p->dst : NULL};
    size_t element = twill_type_size(p->type);
    size_t bytes[2] = {p->src_count * element, p->dst_count * element};
    bool on[2] = {false, false};
    struct twill_error said = {0};
    for (unsigned i = 0; i < 2; i++)
        if (at[i] != NULL && bytes[i] > 0)
            TWILL_TRY(&comm->error,
                      record_error(request, twill_device_is(device, at[i], &on[i], &said), &said));
    size_t in_at = on[0] ? twill_round_up(bytes[0], TWILL_CACHE_LINE) : 0;
    TWILL_TRY(&comm->error,
              twill_comm_reserve(comm, &request->bounce_memory, &request->bounce_memory_bytes,
                                 in_at + (on[1] ? bytes[1] : 0)));
    if (on[0]) {
        twill_counter_add(&comm->usage.counters.bytes_copied, bytes[0]);
        request->bounced[0] = request->bounce_memory;
        TWILL_TRY(&comm->error, record_error(request,
                                             twill_device_to_host(device, request->bounce_memory,
                                                                  at[0], bytes[0], &said),
                                             &said));
    }
    if (on[1]) {
        request->on_device = p->dst;
        request->result = request->bounced[1] = request->bounce_memory + in_at;
        request->result_bytes = bytes[1];
    }
    return TWILL_OK;
}

twill_status twill_request_bounce_out(struct twill_request *request)
{
    struct twill_comm *comm = request->comm;
    if (TWILL_LIKELY(comm->context->machine.device == NULL || request->on_device == NULL))
        return TWILL_OK;
    bool root = !request->is_point && request->run.call.collective == TWILL_BROADCAST &&
                comm->rank == request->run.call.root;
    if (root && request->run.call.src ==
                    request->run.call.dst) /* the root's buffer is its source: leave it alone */
        return TWILL_OK;
    struct twill_error said = {0};
    twill_counter_add(&comm->usage.counters.bytes_copied, request->result_bytes);
    return record_error(request,
                        twill_device_from_host(comm->context->machine.device, request->on_device,
                                               request->result, request->result_bytes, &said),
                        &said);
}

twill_status twill_context_check_host(struct twill_context *context, const char *call,
                                      const void *memory, struct twill_error *error)
{
    bool is = false;
    if (context->machine.device != NULL)
        TWILL_TRY(error, twill_device_is(context->machine.device, memory, &is, error));
    if (is)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "%s: %p is memory of a device, which is staged through the host: it "
                          "cannot be registered with a network",
                          call, memory);
    return TWILL_OK;
}

#else

twill_status twill_context_open_device(struct twill_context *context)
{
    const char *library = twill_config_text(&context->config, TWILL_VARIABLE_CUDA_LIBRARY);
    if (library != NULL)
        return TWILL_FAIL(
            &context->error, TWILL_ERR_CONFIG,
            "TWILL_TUNE=cuda_library=%s: this library was built without TWILL_WITH_CUDA", library);
    return TWILL_OK;
}

void twill_context_close_device(struct twill_context *context)
{
    (void)context;
}

#endif
