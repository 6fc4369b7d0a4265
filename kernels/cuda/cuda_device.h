/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA device memory: recognising its pointers, and copies between it and the host. Compiled only
 * with TWILL_WITH_CUDA. Needs no CUDA to build or link: the driver's library is opened at run time.
 * Written to the driver API's documentation and tested with a double; not run on a GPU. */
#ifndef TWILL_CUDA_DEVICE_H
#define TWILL_CUDA_DEVICE_H

#include "lib/base.h"

/* The driver library of this process. Constant once open, so any thread may use it. */
struct twill_device;

/* Open a driver library (NULL: libcuda.so.1). A driver that is missing or does not work is no
 * error: *device is NULL, and `how` says why; otherwise `how` says what was found. Does not
 * initialise CUDA: a process that has not done so has no device pointers. */
twill_status twill_device_open(struct twill_device **device, const char *library, char *how,
                               size_t how_bytes, struct twill_error *error);
void twill_device_close(struct twill_device *device); /* NULL is allowed */

/* Set *is to whether the host cannot read this memory. It can read managed and pinned memory. */
twill_status twill_device_is(const struct twill_device *device, const void *pointer, bool *is,
                             struct twill_error *error);

/* Copy, and return when the copy is complete. The calling thread needs no current context, unless
 * the memory is from a pool (cuMemAllocAsync), which belongs to none. Does not wait for work that
 * the caller has queued on non-blocking streams. */
twill_status twill_device_to_host(const struct twill_device *device, void *host,
                                  const void *pointer, size_t bytes, struct twill_error *error);
twill_status twill_device_from_host(const struct twill_device *device, void *pointer,
                                    const void *host, size_t bytes, struct twill_error *error);

#endif
