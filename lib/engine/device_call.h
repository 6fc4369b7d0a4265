/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on memory of a CUDA device (TWILL_WITH_CUDA): bounced through host memory. */
#ifndef TWILL_DEVICE_CALL_H
#define TWILL_DEVICE_CALL_H

#include "lib/comm/comm.h"

#include <string.h>

/* Load the CUDA driver and note what was found; context->machine.device stays NULL without one. In
 * a library built without TWILL_WITH_CUDA, naming a driver library is an error. */
twill_status twill_context_open_device(struct twill_context *context);
void twill_context_close_device(struct twill_context *context);

#ifdef TWILL_WITH_CUDA
/* Redirect sides that are device memory to the request's bounce memory, and copy src there. */
twill_status twill_request_bounce_in(struct twill_request *request);
/* Do that for a point-to-point request. */
twill_status twill_point_bounce_in(struct twill_request *request);
/* Copy the result to the caller's device memory. */
twill_status twill_request_bounce_out(struct twill_request *request);
/* Copy run.call.src or .dst of a collective that is not run by itself, on a device or not. */
twill_status twill_request_read(struct twill_request *request, void *to, size_t bytes);
twill_status twill_request_write(struct twill_request *request, const void *from, size_t bytes);
/* Undo the pinning of bounce memory, before its pages go: lib/job/registration.c. */
void twill_context_unpin(struct twill_context *context, void *memory);
/* Return an error if this is device memory. `call`: the public function, for the message. */
twill_status twill_context_check_host(struct twill_context *context, const char *call,
                                      const void *memory, struct twill_error *error);
#else
static inline twill_status twill_request_read(struct twill_request *request, void *to, size_t bytes)
{
    memcpy(to, request->run.call.src, bytes);
    return TWILL_OK;
}
static inline twill_status twill_request_write(struct twill_request *request, const void *from,
                                               size_t bytes)
{
    memcpy(request->run.call.dst, from, bytes);
    return TWILL_OK;
}
static inline void twill_context_unpin(struct twill_context *context, void *memory)
{
    (void)context, (void)memory;
}
static inline twill_status twill_point_bounce_in(struct twill_request *request)
{
    (void)request;
    return TWILL_OK;
}
static inline twill_status twill_context_check_host(struct twill_context *context, const char *call,
                                                    const void *memory, struct twill_error *error)
{
    (void)context, (void)call, (void)memory, (void)error;
    return TWILL_OK;
}
static inline twill_status twill_request_bounce_in(struct twill_request *request)
{
    (void)request;
    return TWILL_OK;
}
static inline twill_status twill_request_bounce_out(struct twill_request *request)
{
    (void)request;
    return TWILL_OK;
}
#endif

#endif
