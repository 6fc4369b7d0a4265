/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/shm/mapping.h"
#include "numa/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

/* In Linux since 5.14. An older kernel refuses it, and pages fault one by one. */
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

void *twill_mapping_map(int fd, size_t bytes)
{
    int flags = MAP_SHARED | MAP_NORESERVE | (fd < 0 ? MAP_ANONYMOUS : 0);
    if (bytes < TWILL_HUGE_PAGE)
        return mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    size_t reserved = bytes + TWILL_HUGE_PAGE;
    unsigned char *range =
        mmap(NULL, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (range == MAP_FAILED)
        return MAP_FAILED;
    unsigned char *at = (unsigned char *)twill_round_up((uintptr_t)range, TWILL_HUGE_PAGE);
    if (mmap(at, bytes, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == MAP_FAILED) {
        int reason = errno;
        munmap(range, reserved);
        errno = reason;
        return MAP_FAILED;
    }
    if (at > range)
        munmap(range, (size_t)(at - range));
    munmap(at + bytes, (size_t)(range + reserved - (at + bytes)));
    (void)madvise(at, bytes, MADV_DONTDUMP);
    return at;
}

void *twill_mapping_map_part(int fd, size_t offset, size_t bytes, bool shut)
{
    int access = shut ? PROT_NONE : PROT_READ | PROT_WRITE;
    if (bytes == 0)
        return NULL;
    void *at = mmap(NULL, bytes, access, MAP_SHARED | MAP_NORESERVE, fd, (off_t)offset);
    if (at != MAP_FAILED)
        (void)madvise(at, bytes, MADV_DONTDUMP);
    return at;
}

bool twill_mapping_open(void *at, size_t bytes, bool open)
{
    return bytes == 0 || mprotect(at, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE) == 0;
}

enum twill_share_cause twill_mapping_memfd(int *fd, const char *name)
{
    *fd = memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
    if (*fd < 0 && errno == EINVAL) /* before Linux 6.3 */
        *fd = memfd_create(name, MFD_CLOEXEC);
    *fd = twill_fd_move(*fd, TWILL_FD_LEAST);
    if (*fd >= 0)
        return TWILL_SHARE_FINE;
    return errno == EMFILE || errno == ENFILE ? TWILL_SHARE_DESCRIPTORS : TWILL_SHARE_MEMFD;
}

enum twill_share_cause twill_mapping_file(int *fd, const char *name, size_t bytes)
{
    struct rlimit limit;
    *fd = -1;
    /* Beyond the limit ftruncate() would raise SIGXFSZ in the user's process. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        limit.rlim_cur < bytes)
        return TWILL_SHARE_FILE_LIMIT;
    enum twill_share_cause cause = twill_mapping_memfd(fd, name);
    if (cause != TWILL_SHARE_FINE)
        return cause;
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    (void)fcntl(*fd, F_SETLK, &lock); /* if this fails, readers do not know the owner */
    if (ftruncate(*fd, (off_t)bytes) == 0)
        return TWILL_SHARE_FINE;
    close(*fd);
    *fd = -1;
    return TWILL_SHARE_MEMFD;
}

struct twill_mapping *twill_mapping_create(int fd, size_t bytes)
{
    /* Not from malloc, as it may have to be leaked if others might still use it. */
    struct twill_mapping *mapping =
        mmap(NULL, sizeof(*mapping), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED)
        return NULL;
    mapping->at = twill_mapping_map(fd, bytes);
    if (mapping->at == MAP_FAILED) {
        int reason = errno;
        munmap(mapping, sizeof(*mapping));
        errno = reason;
        return NULL;
    }
    mapping->bytes = bytes;
    mapping->fd = -1;
    atomic_init(&mapping->users, TWILL_MAPPING_USERS_UNKNOWN);
    return mapping;
}

void twill_mapping_drop(struct twill_mapping *mapping, int64_t users)
{
    if (atomic_fetch_sub_explicit(&mapping->users, users, memory_order_acq_rel) != users)
        return;
    if (mapping->fd >= 0)
        close(mapping->fd);
    munmap(mapping->at, mapping->bytes);
    munmap(mapping, sizeof(*mapping));
}

void twill_mapping_populate(void *at, size_t bytes)
{
    size_t before = (uintptr_t)at & ((size_t)sysconf(_SC_PAGESIZE) - 1);
    (void)madvise((unsigned char *)at - before, bytes + before, MADV_POPULATE_WRITE);
}

void twill_mapping_forget(void *at, size_t bytes)
{
    (void)madvise(at, bytes, MADV_DONTNEED);
}

bool twill_mapping_discard(int fd, unsigned char *at, size_t offset, size_t bytes)
{
    if (fd >= 0) { /* looking costs far less than an attempt */
        off_t data = lseek(fd, (off_t)offset, SEEK_DATA);
        if (data < 0 ? errno == ENXIO : (size_t)data >= offset + bytes)
            return true;
    }
    return madvise(at + offset, bytes, MADV_REMOVE) == 0;
}

#if defined(__has_feature)
#define HAS_FEATURE(x) __has_feature(x)
#else
#define HAS_FEATURE(x) 0
#endif
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) ||                               \
    HAS_FEATURE(thread_sanitizer) || HAS_FEATURE(address_sanitizer)
#define SPARE_MOST ((size_t)256 << 30) /* their shadow memory leaves no more */
#else
#define SPARE_MOST ((size_t)64 << 40)
#endif
#define SPARE_SHARE 8u /* of what can be reserved, so that several contexts and the program fit */

/* Return whether the kernel makes all pages of new memory at once (mlockall(MCL_FUTURE)). */
static bool locks_new_memory(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    unsigned char resident = 1;
    void *at = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        return true;
    bool locked = mincore(at, page, &resident) != 0 || (resident & 1) != 0;
    munmap(at, page);
    return locked;
}

/* Return whether this process can map `bytes` more bytes in this way now. */
static bool can_map(size_t bytes, int access, int flags)
{
    void *at = mmap(NULL, bytes, access, flags | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at != MAP_FAILED)
        munmap(at, bytes);
    return at != MAP_FAILED;
}

/* Return the resident bytes of this process, or 0 if they are unknown. */
static size_t resident_bytes(void)
{
    unsigned long all, resident, data;
    return twill_memory_pages(&all, &resident, &data) ? resident * (size_t)sysconf(_SC_PAGESIZE)
                                                      : 0;
}

/* Return whether address space takes memory before it is touched, as in an emulator of another
 * processor that has an entry for each page (qemu before 8). Looks up to three times, at more each
 * time, as other threads may touch memory meanwhile. */
static bool space_takes_memory(void)
{
    bool takes = true;
    for (size_t bytes = (size_t)256 << 20; bytes <= (size_t)1 << 30 && takes; bytes *= 2) {
        size_t before = resident_bytes();
        takes = can_map(bytes, PROT_NONE, MAP_PRIVATE) && resident_bytes() >= before + bytes / 1024;
    }
    return takes;
}

size_t twill_mapping_spare(void)
{
    static const int limits[] = {RLIMIT_AS, RLIMIT_FSIZE};
    struct rlimit limit;
    for (unsigned i = 0; i < 2; i++)
        if (getrlimit(limits[i], &limit) != 0 || limit.rlim_cur != RLIM_INFINITY)
            return 0;
    if (locks_new_memory() || space_takes_memory())
        return 0;
    size_t bytes = SPARE_MOST;
    while (bytes > TWILL_HUGE_PAGE && !can_map(bytes, PROT_NONE, MAP_PRIVATE))
        bytes /= 2;
    bytes /= SPARE_SHARE;
    /* Shared memory without a file counts at once if the system commits only what it has. */
    return can_map(bytes, PROT_READ | PROT_WRITE, MAP_SHARED) ? bytes : 0;
}
