/* SPDX-License-Identifier: Apache-2.0 */
/* Detects whether memory is still the same mapping, without hooks or a thread. The memory is locked
 * (mlock), and as no mapping is locked by default, memory that was unmapped and mapped again is
 * not. Two system calls show it without changing anything. madvise(MADV_COLD), and MADV_DONTNEED,
 * which would replace pages, refuse locked memory. mremap() that would grow a range in place over
 * its own next page fails with another error for one mapping than for several.
 *
 * Locking by others cannot be told from ours, so memory that is locked is refused. Processes that
 * lock future mappings (MCL_FUTURE) or move parts of memory with mremap() should set
 * TWILL_TUNE=registration=off. ofi_registration.c finds blocks moved as a whole (realloc()). */
#include "fabric/ofi/ofi.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#ifndef MADV_COLD
#define MADV_COLD 20
#endif

enum lock { UNLOCKED, LOCKED, UNKNOWN };

/* Return whether a page is LOCKED or UNLOCKED, or UNKNOWN if madvise() does not say it. */
static enum lock lock_of(void *page)
{
    if (madvise(page, TWILL_PINNED_PAGE, MADV_COLD) == 0)
        return UNLOCKED;
    return errno == EINVAL ? LOCKED : UNKNOWN;
}

/* Return whether the range, except perhaps its last page, is one mapping. Growing fails where the
 * next page is mapped. If it succeeds, the page was a hole, and is unmapped again. */
static bool is_one(void *start, size_t bytes)
{
    if (bytes <= TWILL_PINNED_PAGE)
        return true;
    if (mremap(start, bytes - TWILL_PINNED_PAGE, bytes, 0) == MAP_FAILED)
        return errno == ENOMEM || errno == EAGAIN;
    (void)munmap((unsigned char *)start + bytes - TWILL_PINNED_PAGE, TWILL_PINNED_PAGE);
    return false;
}

bool twill_locked_still(const void *start, size_t bytes)
{
    void *range = (void *)(uintptr_t)start;
    int before = errno;
    bool still = lock_of(range) == LOCKED &&
                 lock_of((unsigned char *)range + bytes - TWILL_PINNED_PAGE) == LOCKED &&
                 is_one(range, bytes);
    errno = before;
    return still;
}

bool twill_locked_take(void *start, size_t bytes, bool ours)
{
    int before = errno;
    bool taken = (ours || lock_of(start) == UNLOCKED) && mlock(start, bytes) == 0;
    if (taken && !twill_locked_still(start, bytes)) { /* several mappings */
        (void)munlock(start, bytes);
        taken = false;
    }
    errno = before;
    return taken;
}

bool twill_locked_begins(const void *start)
{
    int before = errno;
    bool begins = lock_of((void *)(uintptr_t)start) == LOCKED;
    errno = before;
    return begins;
}

void twill_locked_drop(void *start, size_t bytes)
{
    int before = errno;
    (void)munlock(start, bytes);
    errno = before;
}

size_t twill_locked_bytes(void)
{
    int before = errno;
    size_t bytes = SIZE_MAX;
    char text[4096];
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    const char *line = strstr(text, "\nVmLck:");
    unsigned long long kib;
    if (line != NULL && sscanf(line + 7, "%llu kB", &kib) == 1)
        bytes = (size_t)kib << 10;
    errno = before;
    return bytes;
}

/* This tries the functions on a new mapping, also after a page of that was replaced. */
bool twill_locked_works(void)
{
    unsigned char *p = mmap(NULL, 4 * TWILL_PINNED_PAGE, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return false;
    bool works = twill_locked_take(p, 3 * TWILL_PINNED_PAGE, false) &&
                 !twill_locked_still(p, 4 * TWILL_PINNED_PAGE);
    if (works) {
        unsigned char *hole = p + TWILL_PINNED_PAGE;
        works = mmap(hole, TWILL_PINNED_PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == hole &&
                !twill_locked_still(p, 3 * TWILL_PINNED_PAGE) &&
                !twill_locked_still(hole, TWILL_PINNED_PAGE) &&
                twill_locked_still(p, TWILL_PINNED_PAGE);
    }
    (void)munmap(p, 4 * TWILL_PINNED_PAGE);
    return works;
}
