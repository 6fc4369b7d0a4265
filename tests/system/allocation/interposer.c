/* SPDX-License-Identifier: Apache-2.0 */
/* A malloc interposer (LD_PRELOAD): while enabled, counts every call that allocates or frees
 * memory, and every opened file. glibc's own allocator does the work, under its second names. */
#include "interposer.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void *memory);

static atomic_bool counting;
static atomic_ulong ours, network;
static _Atomic(const char *) first;
static void *_Atomic caller;
static _Thread_local bool inside; /* calls made by counting itself are not counted */

static bool begins(const char *path, const char *const *names)
{
    const char *slash = strrchr(path, '/');
    const char *name = slash != NULL ? slash + 1 : path;
    for (; *names != NULL; names++)
        if (strncmp(name, *names, strlen(*names)) == 0)
            return true;
    return false;
}

/* libfabric and its dependencies. */
static const char *const network_libraries[] = {
    "libfabric", "libibverbs", "librdmacm", "libpsm", "libinfinipath", "libefa",
    "libmlx",    "libnl",      "librxe",    "libucp", "libuct",        NULL,
};
/* These only pass calls on. */
static const char *const passing_on[] = {"libc.", "libc-", "ld-linux", "libpthread", NULL};

/* Count one call, for the innermost object that is neither this one nor libc. */
static void allocation_note(const char *function)
{
    void *frames[32];
    Dl_info self, info;
    if (!atomic_load(&counting) || inside)
        return;
    inside = true;
    int saved = errno;
    int depth = backtrace(frames, 32);
    dladdr((void *)allocation_note, &self);
    bool theirs = false;
    void *origin = NULL;
    for (int i = 0; i < depth && origin == NULL; i++) {
        if (dladdr(frames[i], &info) == 0 || info.dli_fbase == self.dli_fbase ||
            begins(info.dli_fname, passing_on))
            continue;
        origin = frames[i];
        theirs = begins(info.dli_fname, network_libraries);
    }
    if (theirs) {
        atomic_fetch_add(&network, 1);
    } else if (atomic_fetch_add(&ours, 1) == 0) {
        atomic_store(&first, function);
        atomic_store(&caller, origin);
    }
    errno = saved;
    inside = false;
}

void allocation_begin(void)
{
    void *warm[2];
    inside = true;
    (void)backtrace(warm, 2); /* loads the unwinder, which allocates */
    inside = false;
    atomic_store(&ours, 0);
    atomic_store(&network, 0);
    atomic_store(&first, NULL);
    atomic_store(&counting, true);
}

void allocation_end(struct allocation_count *result)
{
    atomic_store(&counting, false);
    *result = (struct allocation_count){atomic_load(&ours), atomic_load(&network),
                                        atomic_load(&first), atomic_load(&caller)};
}

void *malloc(size_t bytes)
{
    allocation_note("malloc");
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    allocation_note("calloc");
    return __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    allocation_note("realloc");
    return __libc_realloc(memory, bytes);
}

void free(void *memory)
{
    if (memory != NULL)
        allocation_note("free");
    __libc_free(memory);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    allocation_note("aligned_alloc");
    return __libc_memalign(alignment, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    allocation_note("memalign");
    return __libc_memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    allocation_note("posix_memalign");
    *memory = __libc_memalign(alignment, bytes);
    return *memory != NULL ? 0 : ENOMEM;
}

void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    allocation_note("mmap");
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

void *mmap64(void *at, size_t bytes, int protection, int flags, int fd, off64_t offset)
{
    allocation_note("mmap64");
    return (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

int munmap(void *at, size_t bytes)
{
    allocation_note("munmap");
    return (int)syscall(SYS_munmap, at, bytes);
}

static int open_at(const char *function, const char *path, int flags, va_list arguments)
{
    bool creates = (flags & (O_CREAT | __O_TMPFILE)) != 0;
    int mode = creates ? va_arg(arguments, int) : 0;
    allocation_note(function);
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int fd = open_at("open", path, flags, arguments);
    va_end(arguments);
    return fd;
}

int open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int fd = open_at("open64", path, flags, arguments);
    va_end(arguments);
    return fd;
}
