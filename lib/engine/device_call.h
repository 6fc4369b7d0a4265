/* SPDX-License-Identifier: Apache-2.0 */
/* Calls on memory of a CUDA device (TWILL_WITH_CUDA), which are bounced through host memory. */
#ifndef TWILL_DEVICE_CALL_H
#define TWILL_DEVICE_CALL_H

#include "lib/engine/request.h"

#include <string.h>

#ifdef TWILL_WITH_CUDA
/* Redirect the sides of a collective that are device memory to the request's bounce memory, and
 * copy src there. If dst may have gaps, copy it there, as well. If sides have moved and there is a
 * plan, lay the request out again. Returns TWILL_OK, also if there is no device memory, or the
 * error. */
twill_status twill_request_bounce_in(struct twill_request *request);
/* Reserve bounce memory for the buffers of a point-to-point call that are device memory, set
 * buffers.device.copied[] to it, and copy there what is sent. Returns TWILL_OK, also if there is no
 * device memory, or the error. */
twill_status twill_point_bounce_in(struct twill_request *request);
/* Copy the result in bounce memory, if any, to device memory. Does nothing on the root of a
 * broadcast whose src is its dst. Returns TWILL_OK or the error. */
twill_status twill_request_bounce_out(struct twill_request *request);
/* Copy `bytes` bytes from call.src of a fused collective, which may be device memory, to `to`.
 * Returns TWILL_OK or the error. */
twill_status twill_request_read(struct twill_request *request, void *to, size_t bytes);
/* Copy `bytes` bytes from `from` to call.dst of a fused collective, which may be device memory.
 * Returns TWILL_OK or the error. */
twill_status twill_request_write(struct twill_request *request, const void *from, size_t bytes);
#else
/* Copy `bytes` bytes from call.src of a collective that is fused into another to `to`. Returns
 * TWILL_OK. */
static inline twill_status twill_request_read(struct twill_request *request, void *to, size_t bytes)
{
    memcpy(to, request->call.src, bytes);
    return TWILL_OK;
}
/* Copy `bytes` bytes from `from` to call.dst of a collective that is fused into another. Returns
 * TWILL_OK. */
static inline twill_status twill_request_write(struct twill_request *request, const void *from,
                                               size_t bytes)
{
    memcpy(request->call.dst, from, bytes);
    return TWILL_OK;
}
/* Do nothing, as no buffer is device memory. Returns TWILL_OK. */
static inline twill_status twill_no_device(struct twill_request *request)
{
    (void)request;
    return TWILL_OK;
}
#define twill_point_bounce_in    twill_no_device
#define twill_request_bounce_in  twill_no_device
#define twill_request_bounce_out twill_no_device
#endif

#endif
