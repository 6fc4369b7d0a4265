/* SPDX-License-Identifier: Apache-2.0 */
/* Device memory in collectives: copied to the host, run there in one piece, copied back. */
#include "lib/device.h"

#ifdef TWILL_WITH_CUDA
#include "kernels/cuda/device.h"

twill_status twill_context_open_device(struct twill_context *context)
{
    const char *library = twill_config_text(&context->config, TWILL_VARIABLE_CUDA_LIBRARY);
    char how[200];
    TWILL_TRY(&context->error,
              twill_device_open(&context->device, library, how, sizeof(how), &context->error));
    const char *found = context->device != NULL ? "staged through the host" : "unavailable";
    twill_context_note(context, "device memory: %s: %s", found, how);
    /* Who named a library wants it used. */
    bool disappoints = context->device == NULL && library != NULL;
    twill_say(&context->log, disappoints ? TWILL_LOG_WARN : TWILL_LOG_INFO, "device memory: %s: %s",
              found, how);
    return TWILL_OK;
}

void twill_context_close_device(struct twill_context *context)
{
    twill_device_close(context->device);
    context->device = NULL;
}

/* What the driver said, with rank and call. */
static twill_status pass(struct twill_comm *comm, twill_status status,
                         const struct twill_error *said)
{
    if (status == TWILL_OK)
        return TWILL_OK;
    return TWILL_COMM_FAIL(comm, status, "%s", said->message);
}

static twill_status is_on_device(struct twill_comm *comm, const void *pointer, bool *is)
{
    struct twill_error said = {0};
    return pass(comm, twill_device_is(comm->context->device, pointer, is, &said), &said);
}

twill_status twill_comm_stage(struct twill_comm *comm, const struct twill_call *call,
                              struct twill_call *host)
{
    size_t bytes = call->count * twill_type_size(call->type);
    bool src, dst;
    *host = *call;
    if (bytes == 0)
        return TWILL_OK;
    TWILL_TRY(&comm->error, is_on_device(comm, call->src, &src));
    dst = src;
    if (call->dst != call->src)
        TWILL_TRY(&comm->error, is_on_device(comm, call->dst, &dst));
    if (dst) {
        TWILL_TRY(&comm->error, twill_comm_grow(comm, &comm->staging, &comm->staging_bytes, bytes));
        host->dst = comm->staging;
    }
    if (!src)
        return TWILL_OK;
    host->src = host->dst; /* in place */
    if (call->collective == TWILL_BROADCAST && comm->rank != call->root)
        return TWILL_OK; /* has nothing to give */
    struct twill_error said = {0};
    comm->counters.bytes_copied += bytes;
    return pass(comm,
                twill_device_to_host(comm->context->device, host->dst, call->src, bytes, &said),
                &said);
}

twill_status twill_comm_unstage(struct twill_comm *comm, const struct twill_call *call,
                                const struct twill_call *host)
{
    size_t bytes = call->count * twill_type_size(call->type);
    bool root = call->collective == TWILL_BROADCAST && comm->rank == call->root;
    if (host->dst == call->dst || (root && call->src == call->dst)) /* a root's src is not ours */
        return TWILL_OK;
    struct twill_error said = {0};
    comm->counters.bytes_copied += bytes;
    return pass(comm,
                twill_device_from_host(comm->context->device, call->dst, host->dst, bytes, &said),
                &said);
}

#else

twill_status twill_context_open_device(struct twill_context *context)
{
    const char *library = twill_config_text(&context->config, TWILL_VARIABLE_CUDA_LIBRARY);
    if (library != NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_CONFIG,
                          "TWILL_CUDA_LIBRARY=%s: this library was built without TWILL_WITH_CUDA",
                          library);
    return TWILL_OK;
}

void twill_context_close_device(struct twill_context *context)
{
    (void)context;
}

#endif
