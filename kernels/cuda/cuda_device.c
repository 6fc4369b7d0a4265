/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA device memory, through the driver API, whose library is opened at run time. */
#include "kernels/cuda/cuda_device.h"
#include "kernels/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A driver library and its functions, constant while open. twill_device_close() frees it. */
struct twill_device {
    void *library;
    uintptr_t break_start; /* start of the memory of sbrk(), which no driver maps */
#define X(member, symbol, parameters) enum twill_cuda_result(*member) parameters;
    TWILL_CUDA_FUNCTIONS(X)
#undef X
};

/* Return CUDA's description of a result, or "no description". */
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
/* Return where sbrk()'s memory with malloc's small blocks begins, or UINTPTR_MAX if unknown. */
static uintptr_t find_break_start(void)
{
    char line[512];
    uintptr_t start = UINTPTR_MAX;
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        if (strstr(line, "[heap]") != NULL) {
            start = strtoull(line, NULL, 16);
            break;
        }
    if (maps != NULL)
        fclose(maps);
    return start;
}

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

/* Return whether the CUDA driver works. Write its library's `name` and its CUDA version to
 * how[how_bytes] or, if it does not work, the reason. */
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
    made->break_start = find_break_start();
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

/* Attributes of a pointer, on the stack. All zeros for memory that CUDA does not know. `type` is
 * TWILL_CUDA_MEMORY_HOST or _DEVICE, `managed` nonzero if host and device both access the memory,
 * and `ordinal` the number of its device. */
struct pointer_info {
    void *context; /* NULL if it has none */
    unsigned type, managed;
    int ordinal;
    bool is_uninitialised; /* the process has not initialised CUDA, or is at its end */
};

/* Get all attributes of a pointer in one call of the driver, whose result is returned. If CUDA does
 * not know the memory, set *info to zeros and return success. If CUDA is not initialised, set only
 * info->is_uninitialised and return success. */
static enum twill_cuda_result look_up_pointer(const struct twill_device *device,
                                              const void *pointer, struct pointer_info *info)
{
    enum twill_cuda_attribute which[] = {TWILL_CUDA_CONTEXT, TWILL_CUDA_MEMORY_TYPE,
                                         TWILL_CUDA_IS_MANAGED, TWILL_CUDA_DEVICE_ORDINAL};
    void *values[] = {&info->context, &info->type, &info->managed, &info->ordinal};
    *info = (struct pointer_info){0};
    enum twill_cuda_result result = device->attributes(TWILL_ARRAY_LENGTH(which), which, values,
                                                       (twill_cuda_pointer)(uintptr_t)pointer);
    switch (result) {
    case TWILL_CUDA_NOT_INITIALIZED:
    case TWILL_CUDA_DEINITIALIZED:
        *info = (struct pointer_info){.is_uninitialised = true};
        return TWILL_CUDA_SUCCESS;
    case TWILL_CUDA_INVALID_VALUE:
    case TWILL_CUDA_INVALID_CONTEXT:
        *info = (struct pointer_info){0};
        return TWILL_CUDA_SUCCESS;
    default:
        return result; /* may be the failure of work queued earlier */
    }
}

twill_status twill_device_find(const struct twill_device *device, const void *pointer,
                               struct twill_device_memory *memory, struct twill_error *error)
{
    struct pointer_info info;
    uintptr_t address = (uintptr_t)pointer;
    if (address >= device->break_start && address < (uintptr_t)sbrk(0)) {
        *memory = (struct twill_device_memory){.at = pointer};
        return TWILL_OK;
    }
    enum twill_cuda_result result = look_up_pointer(device, pointer, &info);
    if (result != TWILL_CUDA_SUCCESS)
        return DEVICE_FAIL(device, error, "cuPointerGetAttributes", result);
    *memory = (struct twill_device_memory){
        .at = pointer,
        .context = info.context,
        .ordinal = info.ordinal,
        .is_device = info.type == TWILL_CUDA_MEMORY_DEVICE && info.managed == 0,
        .is_unknown = info.type == 0 && !info.is_uninitialised,
    };
    return TWILL_OK;
}

/* --- contexts ------------------------------------------------------------------------------- */
/* A context that enter_context() has made current, on the stack of its caller, for leave_context().
 * Either flag says what that has to undo. `ordinal` is the device's. */
struct entered_context {
    bool is_pushed, is_retained;
    int ordinal;
};

/* Make the memory's context current. If it has none, the thread's own stays, or else the device's
 * primary one becomes current. leave_context() must follow. Returns NULL, or the name of the
 * failing function, with its result in *result. */
static const char *enter_context(const struct twill_device *device,
                                 const struct twill_device_memory *memory,
                                 struct entered_context *entered, enum twill_cuda_result *result)
{
    void *context = memory->context, *current = NULL;
    *entered = (struct entered_context){.ordinal = memory->ordinal};
    if (context == NULL) {
        *result = device->current(&current);
        if (*result != TWILL_CUDA_SUCCESS)
            return "cuCtxGetCurrent";
        if (current != NULL)
            return NULL;
        *result = device->retain(&context, memory->ordinal);
        if (*result != TWILL_CUDA_SUCCESS)
            return "cuDevicePrimaryCtxRetain";
        entered->is_retained = true;
    }
    *result = device->push(context);
    entered->is_pushed = *result == TWILL_CUDA_SUCCESS;
    return entered->is_pushed ? NULL : "cuCtxPushCurrent";
}

/* Restore the thread's context, and release a primary one. Returns NULL, or the name of the failing
 * function, with its result in *result. */
static const char *leave_context(const struct twill_device *device,
                                 const struct entered_context *entered,
                                 enum twill_cuda_result *result)
{
    void *context;
    const char *failed = NULL;
    if (entered->is_pushed && (*result = device->pop(&context)) != TWILL_CUDA_SUCCESS)
        failed = "cuCtxPopCurrent";
    if (entered->is_retained)
        (void)device->release(entered->ordinal);
    return failed;
}

/* --- copies --------------------------------------------------------------------------------- */
/* Up to this many bytes are copied to the device as two rows. */
#define ROWS_MOST ((size_t)64 << 10)

/* Copy host[bytes] to the device as two rows, for which `bytes` is even. May return before they are
 * there. cuMemcpyHtoD() sends up to 24 KiB with the commands of the engine that computes. If
 * several processes use a device, each such copy waits until that engine serves its process. The
 * engine that copies rows has no such wait. */
static enum twill_cuda_result copy_rows(const struct twill_device *device,
                                        twill_cuda_pointer pointer, const void *host, size_t bytes)
{
    const struct twill_cuda_rows rows = {.from_type = TWILL_CUDA_MEMORY_HOST,
                                         .from_host = host,
                                         .from_pitch = bytes / 2,
                                         .to_type = TWILL_CUDA_MEMORY_DEVICE,
                                         .to_device = pointer,
                                         .to_pitch = bytes / 2,
                                         .width = bytes / 2,
                                         .height = 2};
    return device->copy_rows(&rows);
}

/* Copy `bytes` bytes from the memory to `host` if `to_host`, else to the memory, in the current
 * context. Copies to the device may return before the last bytes are there, so wait for their
 * stream. Returns NULL, or the failing function's name, with its result in *result. */
static const char *copy(const struct twill_device *device, const struct twill_device_memory *memory,
                        void *host, bool to_host, size_t bytes, enum twill_cuda_result *result)
{
    twill_cuda_pointer pointer = (twill_cuda_pointer)(uintptr_t)memory->at;
    if (to_host) {
        *result = device->to_host(host, pointer, bytes);
        return *result == TWILL_CUDA_SUCCESS ? NULL : "cuMemcpyDtoH";
    }
    bool in_rows = bytes <= ROWS_MOST && bytes % 2 == 0;
    *result =
        in_rows ? copy_rows(device, pointer, host, bytes) : device->from_host(pointer, host, bytes);
    if (*result != TWILL_CUDA_SUCCESS)
        return in_rows ? "cuMemcpy2D" : "cuMemcpyHtoD";
    *result = device->synchronize(NULL);
    return *result == TWILL_CUDA_SUCCESS ? NULL : "cuStreamSynchronize";
}

/* Copy from the memory to `host` if `to_host`, else from `host`, in the memory's context. Returns
 * TWILL_OK or TWILL_ERR_SYSTEM. */
static twill_status copy_in_context(const struct twill_device *device,
                                    const struct twill_device_memory *memory, void *host,
                                    bool to_host, size_t bytes, struct twill_error *error)
{
    struct entered_context entered;
    enum twill_cuda_result result, left = TWILL_CUDA_SUCCESS;
    const char *failed = enter_context(device, memory, &entered, &result);
    if (failed == NULL)
        failed = copy(device, memory, host, to_host, bytes, &result);
    const char *failed_late = leave_context(device, &entered, &left);
    if (failed != NULL)
        return DEVICE_FAIL(device, error, failed, result);
    if (failed_late != NULL)
        return DEVICE_FAIL(device, error, failed_late, left);
    return TWILL_OK;
}

twill_status twill_device_to_host(const struct twill_device *device, void *host,
                                  const struct twill_device_memory *memory, size_t bytes,
                                  struct twill_error *error)
{
    return copy_in_context(device, memory, host, true, bytes, error);
}

twill_status twill_device_from_host(const struct twill_device *device,
                                    const struct twill_device_memory *memory, const void *host,
                                    size_t bytes, struct twill_error *error)
{
    return copy_in_context(device, memory, (void *)(uintptr_t)host, false, bytes, error);
}

/* --- page-locked host memory ----------------------------------------------------------------- */

bool twill_device_pin(const struct twill_device *device, void *host, size_t bytes,
                      const struct twill_device_memory *memory)
{
    struct entered_context entered;
    enum twill_cuda_result result, left;
    if (enter_context(device, memory, &entered, &result) == NULL)
        result = device->pin(host, bytes, TWILL_CUDA_REGISTER_PORTABLE);
    (void)leave_context(device, &entered, &left);
    return result == TWILL_CUDA_SUCCESS;
}

void twill_device_unpin(const struct twill_device *device, void *host)
{
    struct pointer_info info;
    struct entered_context entered;
    enum twill_cuda_result result = look_up_pointer(device, host, &info), left;
    if (result != TWILL_CUDA_SUCCESS || info.type != TWILL_CUDA_MEMORY_HOST || info.context == NULL)
        return;
    struct twill_device_memory memory = {.context = info.context};
    if (enter_context(device, &memory, &entered, &result) == NULL)
        (void)device->unpin(host);
    (void)leave_context(device, &entered, &left);
}
