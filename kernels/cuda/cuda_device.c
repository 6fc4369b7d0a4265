/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA device memory, by the driver API, whose library is opened at run time. */
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

struct twill_device {
    void *library;
#define X(member, symbol, parameters) enum twill_cuda_result(*member) parameters;
    TWILL_CUDA_FUNCTIONS(X)
#undef X
};

static const char *error_text(const struct twill_device *device, enum twill_cuda_result result)
{
    const char *text = NULL;
    (void)device->error_string(result, &text); /* a stub library has no texts */
    return text != NULL ? text : "no description";
}

#define DEVICE_FAIL(device, error, function, result)                                               \
    TWILL_FAIL(error, TWILL_ERR_SYSTEM, "%s: CUDA error %d: %s", function, (int)(result),          \
               error_text(device, result))

/* --- the library ---------------------------------------------------------------------------- */

/* Look up all symbols. Returns the name of a missing one, or NULL. */
static const char *resolve(struct twill_device *device)
{
#define X(member, symbol, parameters)                                                              \
    *(void **)&device->member = dlsym(device->library, #symbol);                                   \
    if (device->member == NULL)                                                                    \
        return #symbol;
    TWILL_CUDA_FUNCTIONS(X)
#undef X
    return NULL;
}

/* Return whether the driver works, and print what it is, or why not, into `how`. Asking for the
 * version does not initialise CUDA. */
static bool usable(struct twill_device *device, const char *name, char *how, size_t how_bytes)
{
    int version = 0;
    const char *missing = resolve(device);
    if (missing != NULL) {
        snprintf(how, how_bytes, "%s has no %s", name, missing);
        return false;
    }
    enum twill_cuda_result result = device->version(&version);
    if (result != TWILL_CUDA_SUCCESS)
        snprintf(how, how_bytes, "%s: cuDriverGetVersion: CUDA error %d: %s", name, (int)result,
                 error_text(device, result));
    else if (version <= 0)
        snprintf(how, how_bytes, "%s: no driver is installed", name);
    else
        snprintf(how, how_bytes, "%s, CUDA %d.%d", name, version / 1000, version % 1000 / 10);
    return result == TWILL_CUDA_SUCCESS && version > 0;
}

twill_status twill_device_open(struct twill_device **device, const char *library, char *how,
                               size_t how_bytes, struct twill_error *error)
{
    const char *name = library != NULL ? library : "libcuda.so.1";
    *device = NULL;
    struct twill_device *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    made->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (made->library == NULL) {
        const char *why = dlerror();
        snprintf(how, how_bytes, "%s", why != NULL ? why : name);
    } else if (usable(made, name, how, how_bytes)) {
        *device = made;
        return TWILL_OK;
    }
    twill_device_close(made);
    return TWILL_OK;
}

void twill_device_close(struct twill_device *device)
{
    if (device == NULL)
        return;
    if (device->library != NULL)
        dlclose(device->library);
    free(device);
}

/* --- pointers ------------------------------------------------------------------------------- */

struct pointer_info {
    void *context; /* NULL: none of its own */
    unsigned type, managed;
};

/* Get all attributes of a pointer in one call. What the driver does not know is host memory. */
static enum twill_cuda_result look_up_pointer(const struct twill_device *device,
                                              const void *pointer, struct pointer_info *place)
{
    enum twill_cuda_attribute which[] = {TWILL_CUDA_CONTEXT, TWILL_CUDA_MEMORY_TYPE,
                                         TWILL_CUDA_IS_MANAGED};
    void *values[] = {&place->context, &place->type, &place->managed};
    *place = (struct pointer_info){0};
    enum twill_cuda_result result = device->attributes(TWILL_ARRAY_LENGTH(which), which, values,
                                                       (twill_cuda_pointer)(uintptr_t)pointer);
    switch (result) {
    case TWILL_CUDA_INVALID_VALUE:
    case TWILL_CUDA_NOT_INITIALIZED:
    case TWILL_CUDA_DEINITIALIZED:
    case TWILL_CUDA_INVALID_CONTEXT:
        *place = (struct pointer_info){0};
        return TWILL_CUDA_SUCCESS;
    default:
        return result; /* may be the failure of work queued earlier */
    }
}

twill_status twill_device_is(const struct twill_device *device, const void *pointer, bool *is,
                             struct twill_error *error)
{
    struct pointer_info place;
    enum twill_cuda_result result = look_up_pointer(device, pointer, &place);
    if (result != TWILL_CUDA_SUCCESS)
        return DEVICE_FAIL(device, error, "cuPointerGetAttributes", result);
    *is = place.type == TWILL_CUDA_MEMORY_DEVICE && place.managed == 0;
    return TWILL_OK;
}

/* --- copies --------------------------------------------------------------------------------- */

/* Make the memory's context current; *entered: leave_context() must pop it. */
static twill_status enter_context(const struct twill_device *device, const void *pointer,
                                  bool *entered, struct twill_error *error)
{
    struct pointer_info place;
    *entered = false;
    enum twill_cuda_result result = look_up_pointer(device, pointer, &place);
    if (result != TWILL_CUDA_SUCCESS)
        return DEVICE_FAIL(device, error, "cuPointerGetAttributes", result);
    if (place.context == NULL)
        return TWILL_OK;
    result = device->push(place.context);
    if (result != TWILL_CUDA_SUCCESS)
        return DEVICE_FAIL(device, error, "cuCtxPushCurrent", result);
    *entered = true;
    return TWILL_OK;
}

/* Restore the context after a copy that returned `result`, whose failure takes precedence. */
static twill_status leave_context(const struct twill_device *device, bool entered,
                                  const char *function, enum twill_cuda_result result,
                                  struct twill_error *error)
{
    void *context;
    enum twill_cuda_result popped = entered ? device->pop(&context) : TWILL_CUDA_SUCCESS;
    if (result != TWILL_CUDA_SUCCESS)
        return DEVICE_FAIL(device, error, function, result);
    if (popped != TWILL_CUDA_SUCCESS)
        return DEVICE_FAIL(device, error, "cuCtxPopCurrent", popped);
    return TWILL_OK;
}

twill_status twill_device_to_host(const struct twill_device *device, void *host,
                                  const void *pointer, size_t bytes, struct twill_error *error)
{
    bool entered;
    TWILL_TRY(error, enter_context(device, pointer, &entered, error));
    enum twill_cuda_result result =
        device->to_host(host, (twill_cuda_pointer)(uintptr_t)pointer, bytes);
    return leave_context(device, entered, "cuMemcpyDtoH", result, error);
}

/* From pageable memory, cuMemcpyHtoD() may return before the last bytes are on the device: wait for
 * its stream. */
twill_status twill_device_from_host(const struct twill_device *device, void *pointer,
                                    const void *host, size_t bytes, struct twill_error *error)
{
    bool entered;
    TWILL_TRY(error, enter_context(device, pointer, &entered, error));
    const char *function = "cuMemcpyHtoD";
    enum twill_cuda_result result =
        device->from_host((twill_cuda_pointer)(uintptr_t)pointer, host, bytes);
    if (result == TWILL_CUDA_SUCCESS) {
        function = "cuStreamSynchronize";
        result = device->synchronize(NULL);
    }
    return leave_context(device, entered, function, result, error);
}
