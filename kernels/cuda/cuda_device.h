/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of CUDA devices: is a pointer of that kind, and copies between it and the host. Compiled
 * only with TWILL_WITH_CUDA. Needs no CUDA to build or to link: the driver's library is opened at
 * run time. Written to the driver API's documentation and tried with a double; not run on a GPU. */
#ifndef TWILL_CUDA_DEVICE_H
#define TWILL_CUDA_DEVICE_H

#include "lib/base.h"

struct twill_device; /* the driver of this process */

/* Open a driver library (NULL: libcuda.so.1). A driver that is missing or does not work is no
 * error: *device is NULL, and `how` says why; otherwise `how` says what was found. CUDA is not
 * initialised: a process that has not done so itself has no device pointers either. */
twill_status twill_device_open(struct twill_device **device, const char *library, char *how,
                               size_t how_bytes, struct twill_error *error);
void twill_device_close(struct twill_device *device); /* NULL is allowed */

/* Is this memory that the host cannot read? Managed and pinned memory it can. */
twill_status twill_device_is(const struct twill_device *device, const void *pointer, bool *is,
                             struct twill_error *error);

/* Copy, and return when the copy is complete. The calling thread needs no current context, unless
 * the memory is of a pool (cuMemAllocAsync), which belongs to none. Work that the caller has
 * queued on non-blocking streams is not waited for. */
twill_status twill_device_to_host(const struct twill_device *device, void *host,
                                  const void *pointer, size_t bytes, struct twill_error *error);
twill_status twill_device_from_host(const struct twill_device *device, void *pointer,
                                    const void *host, size_t bytes, struct twill_error *error);

#endif
