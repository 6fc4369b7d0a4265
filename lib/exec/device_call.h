/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on memory of a CUDA device (TWILL_WITH_CUDA): staged through host memory. */
#ifndef TWILL_DEVICE_CALL_H
#define TWILL_DEVICE_CALL_H

#include "lib/comm/comm.h"

/* Look for a driver and note what was found; context->device stays NULL without one. In a library
 * built without the option, naming one is an error. */
twill_status twill_context_open_device(struct twill_context *context);
void twill_context_close_device(struct twill_context *context);

#ifdef TWILL_WITH_CUDA
/* The call as it runs on host memory: what lies on a device is replaced by the other buffer of the
 * call, if that is on the host, or by the request's staging memory, and src is brought there. */
twill_status twill_request_bounce_in(struct twill_request *request);
/* The same for a message. */
twill_status twill_point_bounce_in(struct twill_request *request);
/* Bring the result to where the caller wants it. */
twill_status twill_request_bounce_out(struct twill_request *request);
/* The error if this is memory of a device. */
twill_status twill_context_check_host(struct twill_context *context, const char *call,
                                      const void *memory, struct twill_error *error);
#else
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
