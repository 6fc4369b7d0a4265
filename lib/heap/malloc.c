/* SPDX-License-Identifier: Apache-2.0 */
/* malloc() and the other functions that programs call. Large blocks come from the region and are
 * recognised by their address. The rest goes to the next malloc, of libc or another library. With
 * TWILL_HEAP=promote it gets all of them, and libtwill hears before a large one is freed or moved.
 */
#include "lib/heap/malloc_state.h"

#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#pragma GCC visibility push(default)
int posix_memalign(void **block, size_t alignment, size_t bytes);
void *reallocarray(void *block, size_t count, size_t bytes);
#pragma GCC visibility pop

/* Allocate memory that is never freed, for dlsym(), which calls calloc() in some versions of libc.
 * The size of a block is stored before it. Returns NULL, with errno, when the memory is used up. */
static void *early_alloc(size_t bytes)
{
    size_t need = twill_round_up(twill_min(bytes, TWILL_EARLY_BYTES), 16) + 16;
    size_t at = atomic_fetch_add(&twill_preload_state.early_used, need);
    if (at + need > TWILL_EARLY_BYTES) {
        errno = ENOMEM;
        return NULL;
    }
    memcpy(twill_preload_state.early + at, &bytes, sizeof(bytes));
    return twill_preload_state.early + at + 16;
}

/* Return whether a block is from early_alloc(). */
static bool is_early(const void *block)
{
    return (uintptr_t)block - (uintptr_t)twill_preload_state.early < TWILL_EARLY_BYTES;
}

/* Return the size in bytes of a block of early_alloc(). */
static size_t early_size(const void *block)
{
    size_t bytes;
    memcpy(&bytes, (const unsigned char *)block - 16, sizeof(bytes));
    return bytes;
}

/* Store the address of the next malloc's function `name` in *function, or NULL if it has none. */
static void look_up_symbol(void *function, const char *name)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof(found));
}

/* Find the next malloc, in the first call of a process. Returns true once it is known. During the
 * search it returns false, to calls from the search itself and from other threads. */
static bool find_next(void)
{
    struct twill_next *next = &twill_preload_state.next;
    int none = 0;
    if (!atomic_compare_exchange_strong(&twill_preload_state.found, &none, 1))
        return none == 2;
    look_up_symbol(&next->malloc, "malloc");
    look_up_symbol(&next->calloc, "calloc");
    look_up_symbol(&next->realloc, "realloc");
    look_up_symbol(&next->free, "free");
    look_up_symbol(&next->posix_memalign, "posix_memalign");
    look_up_symbol(&next->aligned_alloc, "aligned_alloc");
    look_up_symbol(&next->memalign, "memalign");
    look_up_symbol(&next->valloc, "valloc");
    look_up_symbol(&next->pvalloc, "pvalloc");
    look_up_symbol(&next->usable_size, "malloc_usable_size");
    atomic_store_explicit(&twill_preload_state.found, 2, memory_order_release);
    return true;
}

/* Return whether the next malloc is known. The first call looks it up. */
static inline bool has_next(void)
{
    return TWILL_LIKELY(atomic_load_explicit(&twill_preload_state.found, memory_order_acquire) ==
                        2) ||
           find_next();
}

/* Look up the next malloc and register fork handlers, when the library is loaded. */
static __attribute__((constructor(101))) void begin_preload(void)
{
    (void)has_next();
    twill_hook_forks();
}

/* Return whether a block of this size comes from the region, if that has room. Returns false while
 * no context shares memory. */
static inline bool size_is_large(size_t bytes)
{
    size_t least = atomic_load_explicit(&twill_preload_state.least, memory_order_relaxed);
    return TWILL_UNLIKELY(bytes >= least) && least > 0;
}

/* Tell the watchers of a block of the next malloc if it is large (TWILL_HEAP=promote). */
static inline void tell_of_block(void *block, bool keeps)
{
    size_t watched = atomic_load_explicit(&twill_preload_state.watched, memory_order_relaxed);
    if (TWILL_LIKELY(watched == 0))
        return;
    size_t bytes = twill_preload_state.next.usable_size(block);
    if (bytes >= watched)
        twill_tell_watchers(block, bytes, keeps);
}

/* Do what libc's function does, by the next malloc. A block that is large (TWILL_HEAP=shared) comes
 * from the region if there is room. */
TWILL_EXPORTED void *malloc(size_t bytes)
{
    if (size_is_large(bytes)) {
        void *block = twill_block_alloc(bytes, 1, false);
        if (block != NULL)
            return block;
    }
    return has_next() ? twill_preload_state.next.malloc(bytes) : early_alloc(bytes);
}

/* Do what libc's function does, by the next malloc. A block that is large (TWILL_HEAP=shared) comes
 * from the region if there is room. */
TWILL_EXPORTED void *calloc(size_t count, size_t bytes)
{
    size_t all;
    bool fits = !__builtin_mul_overflow(count, bytes, &all);
    if (fits && size_is_large(all)) {
        void *block = twill_block_alloc(all, 1, true);
        if (block != NULL)
            return block;
    }
    if (has_next())
        return twill_preload_state.next.calloc(count, bytes);
    return fits ? early_alloc(all) : NULL; /* early memory is zero, as it is never reused */
}

/* Free a block of the region or of the next malloc. Does nothing for one of early_alloc(). */
TWILL_EXPORTED void free(void *block)
{
    if (block == NULL || is_early(block))
        return;
    if (twill_is_ours(block) && twill_block_free(block))
        return;
    if (!has_next())
        return;
    tell_of_block(block, false);
    twill_preload_state.next.free(block); /* reports an address inside a block of ours as invalid */
}

/* Move a block of `has` bytes to a new one, or return NULL and keep it if there is no memory. */
static void *move_block(void *block, size_t has, size_t bytes)
{
    void *moved = malloc(bytes);
    if (moved == NULL)
        return NULL;
    memcpy(moved, block, twill_min(has, bytes));
    free(block);
    return moved;
}

/* Do what libc's function does. A block stays in the region if its new size is large, or at least
 * half of the old one. Otherwise it may move between the region and the next malloc. */
TWILL_EXPORTED void *realloc(void *block, size_t bytes)
{
    if (block == NULL)
        return malloc(bytes);
    if (is_early(block))
        return move_block(block, early_size(block), bytes);
    if (twill_is_ours(block)) {
        size_t has = twill_block_size(block);
        if (has > 0 && bytes == 0) {
            free(block);
            return NULL;
        }
        /* Stay in the region if the new size is large, or at least half of the old one. */
        if (has > 0 && (size_is_large(bytes) || (bytes <= has && bytes >= has / 2)) &&
            twill_block_resize(block, bytes))
            return block;
        if (has > 0)
            return move_block(block, has, bytes);
    }
    if (!has_next())
        return NULL;
    tell_of_block(block, true);
    size_t has = size_is_large(bytes) ? twill_preload_state.next.usable_size(block) : 0;
    void *large = has > 0 ? twill_block_alloc(bytes, 1, false) : NULL;
    if (large == NULL)
        return twill_preload_state.next.realloc(block, bytes);
    memcpy(large, block, twill_min(has, bytes));
    twill_preload_state.next.free(block);
    return large;
}

/* Do what libc's function does, by realloc(). Returns NULL, with errno ENOMEM, if count * bytes
 * overflows. */
TWILL_EXPORTED void *reallocarray(void *block, size_t count, size_t bytes)
{
    size_t all;
    if (!__builtin_mul_overflow(count, bytes, &all))
        return realloc(block, all);
    errno = ENOMEM;
    return NULL;
}

/* Return an aligned block of the region of TWILL_HEAP=shared, which free() gives back to that.
 * Return NULL if the size is not large, the alignment no power of two, or no room left. The caller
 * then asks the next malloc. */
static void *large_aligned(size_t alignment, size_t bytes)
{
    bool power = alignment > 0 && (alignment & (alignment - 1)) == 0;
    return power && size_is_large(bytes) ? twill_block_alloc(bytes, alignment, false) : NULL;
}

/* Do what libc's function does. A large block comes from the region of TWILL_HEAP=shared. */
TWILL_EXPORTED int posix_memalign(void **block, size_t alignment, size_t bytes)
{
    void *large = alignment % sizeof(void *) == 0 ? large_aligned(alignment, bytes) : NULL;
    if (large == NULL)
        return has_next() ? twill_preload_state.next.posix_memalign(block, alignment, bytes)
                          : ENOMEM;
    *block = large;
    return 0;
}

/* Do what libc's function does, by the next malloc. A block that is large (TWILL_HEAP=shared) comes
 * from the region if there is room. */
TWILL_EXPORTED void *aligned_alloc(size_t alignment, size_t bytes)
{
    void *large = large_aligned(alignment, bytes);
    if (large != NULL)
        return large;
    return has_next() ? twill_preload_state.next.aligned_alloc(alignment, bytes) : NULL;
}

/* Do what libc's function does, by the next malloc. A block that is large (TWILL_HEAP=shared) comes
 * from the region if there is room. */
TWILL_EXPORTED void *memalign(size_t alignment, size_t bytes)
{
    void *large = large_aligned(alignment, bytes);
    if (large != NULL)
        return large;
    return has_next() ? twill_preload_state.next.memalign(alignment, bytes) : NULL;
}

/* Do what libc's function does, by the next malloc. A block that is large (TWILL_HEAP=shared) comes
 * from the region if there is room. */
TWILL_EXPORTED void *valloc(size_t bytes)
{
    void *large = large_aligned(TWILL_ARENA_PAGE, bytes);
    if (large != NULL)
        return large;
    return has_next() ? twill_preload_state.next.valloc(bytes) : NULL;
}

/* Do what libc's function does, by the next malloc. A block that is large (TWILL_HEAP=shared) comes
 * from the region if there is room. */
TWILL_EXPORTED void *pvalloc(size_t bytes)
{
    void *large = large_aligned(TWILL_ARENA_PAGE, bytes);
    if (large != NULL)
        return large;
    return has_next() ? twill_preload_state.next.pvalloc(bytes) : NULL;
}

/* Return how many bytes of a block may be used. If it is not of this heap, the allocator that would
 * serve without this one answers. Returns 0 for NULL, or if that allocator is not known yet. */
TWILL_EXPORTED size_t malloc_usable_size(void *block)
{
    if (block == NULL)
        return 0;
    if (is_early(block))
        return early_size(block);
    size_t has = twill_is_ours(block) ? twill_block_size(block) : 0;
    if (has > 0)
        return has;
    return has_next() ? twill_preload_state.next.usable_size(block) : 0;
}

/* Do what libc's function does, after telling the watchers (TWILL_HEAP=promote). */
TWILL_EXPORTED int munmap(void *memory, size_t bytes)
{
    size_t watched = atomic_load_explicit(&twill_preload_state.watched, memory_order_relaxed);
    if (TWILL_UNLIKELY(watched > 0 && bytes >= watched))
        twill_tell_watchers(memory, bytes, false);
    return (int)syscall(SYS_munmap, memory, bytes);
}

/* Do what libc's function does, after telling the watchers (TWILL_HEAP=promote). */
TWILL_EXPORTED void *mremap(void *memory, size_t has, size_t bytes, int flags, ...)
{
    size_t watched = atomic_load_explicit(&twill_preload_state.watched, memory_order_relaxed);
    va_list more;
    va_start(more, flags);
    void *to = (flags & MREMAP_FIXED) != 0 ? va_arg(more, void *) : NULL;
    va_end(more);
    if (TWILL_UNLIKELY(watched > 0 && has >= watched))
        twill_tell_watchers(memory, has, true);
    return (void *)syscall(SYS_mremap, memory, has, bytes, flags, to); /* NOLINT: an address */
}
