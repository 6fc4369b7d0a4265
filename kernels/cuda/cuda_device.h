/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA device memory: recognising its pointers, and copies between it and the host. Compiled only
 * with TWILL_WITH_CUDA. Needs no CUDA to build or link, as the driver's library is opened at run
 * time. docs/results/gpu.md says on which GPU it was run. */
#ifndef TWILL_CUDA_DEVICE_H
#define TWILL_CUDA_DEVICE_H

#include "lib/base/base.h"

/* The driver library of this process. Constant once open, so any thread may use it. */
struct twill_device;

/* Pinned memory begins with its first whole page, so that it shares no page with other memory. */
#define TWILL_DEVICE_PAGE ((size_t)4096)

/* Open a driver library (libcuda.so.1 if `library` is NULL). A driver that is missing or does not
 * work is no error. *device is then NULL, and `how` says why. Otherwise `how` says what was found.
 * Does not initialise CUDA, as a process that has not done so has no device pointers. Returns
 * TWILL_OK, or TWILL_ERR_MEMORY if out of memory. */
twill_status twill_device_open(struct twill_device **device, const char *library, char *how,
                               size_t how_bytes, struct twill_error *error);
void twill_device_close(struct twill_device *device); /* may be NULL */

/* Facts that the driver knows of a pointer, which twill_device_find() stores in a variable of its
 * caller. */
struct twill_device_memory {
    const void *at;
    void *context;   /* in which it was allocated, NULL for memory of a pool or unknown */
    int ordinal;     /* of the device */
    bool is_device;  /* the host cannot read it (it can read managed and pinned memory) */
    bool is_unknown; /* CUDA is initialised and does not know the pointer */
};
/* Describe in *memory what a pointer points to. Fails only if the driver reports an error. */
twill_status twill_device_find(const struct twill_device *device, const void *pointer,
                               struct twill_device_memory *memory, struct twill_error *error);

/* Copy from memory that twill_device_find() found to `host`, and return when the copy is complete.
 * The calling thread needs no current context. Work on non-blocking streams is not awaited. Returns
 * TWILL_OK, or TWILL_ERR_SYSTEM if the driver reports an error. */
twill_status twill_device_to_host(const struct twill_device *device, void *host,
                                  const struct twill_device_memory *memory, size_t bytes,
                                  struct twill_error *error);
/* Copy from host memory to memory that twill_device_find() found, and return when the copy is
 * complete. The calling thread needs no current context. Work on non-blocking streams is not
 * awaited. Returns TWILL_OK, or TWILL_ERR_SYSTEM if the driver reports an error. */
twill_status twill_device_from_host(const struct twill_device *device,
                                    const struct twill_device_memory *memory, const void *host,
                                    size_t bytes, struct twill_error *error);

/* Page-lock whole pages of host memory, which makes copies between them and `memory` several times
 * faster. Returns false if the driver refuses, and copies then work as before. */
bool twill_device_pin(const struct twill_device *device, void *host, size_t bytes,
                      const struct twill_device_memory *memory);
/* Undo twill_device_pin() before the pages are unmapped or replaced, unless their context ended. */
void twill_device_unpin(const struct twill_device *device, void *host);

#endif
