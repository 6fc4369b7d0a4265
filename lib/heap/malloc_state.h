/* SPDX-License-Identifier: Apache-2.0 */
/* The state of libtwill-heap.so, which is its only writable global, because malloc() has no context
 * argument. Members that are read without the lock are atomic. */
#ifndef TWILL_MALLOC_STATE_H
#define TWILL_MALLOC_STATE_H

#include "lib/heap/arena.h"
#include "lib/heap/malloc_interface.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define TWILL_EARLY_BYTES ((size_t)32 << 10)

/* Functions of the next malloc in the search order, which serves all other blocks. Set once. */
struct twill_next {
    void *(*malloc)(size_t bytes);
    void *(*calloc)(size_t count, size_t bytes);
    void *(*realloc)(void *block, size_t bytes);
    void (*free)(void *block);
    int (*posix_memalign)(void **block, size_t alignment, size_t bytes);
    void *(*aligned_alloc)(size_t alignment, size_t bytes);
    void *(*memalign)(size_t alignment, size_t bytes);
    void *(*valloc)(size_t bytes);
    void *(*pvalloc)(size_t bytes);
    size_t (*usable_size)(void *block);
};

#define TWILL_WATCHERS 4

/* A libtwill that demotes memory before it is freed, for `users` contexts. */
struct twill_watcher {
    _Atomic(twill_preload_freeing *) freeing;
    unsigned users; /* protected by the lock */
};

/* The state of the library in this process. There is one instance, which is never freed. */
struct twill_preload_state {
    struct twill_next next;
    _Atomic int found; /* whether `next` is unknown (0), being looked up (1) or known (2) */
    _Atomic size_t early_used;
    _Alignas(16) unsigned char early[TWILL_EARLY_BYTES]; /* for allocations of dlsym() */

    _Atomic size_t least;    /* bytes of the smallest block served from the region, 0 if none is */
    _Atomic uintptr_t base;  /* start of the region */
    _Atomic uintptr_t bytes; /* size of the region, written last, 0 if there is none */
    _Atomic size_t keep;     /* most bytes of free blocks that stay resident */

    struct twill_watcher watchers[TWILL_WATCHERS];
    _Atomic size_t watched; /* bytes of the smallest memory for a watcher, 0 without one */

    pthread_mutex_t lock; /* protects the members below */
    struct twill_arena arena;
    struct twill_preload_region region;
    dev_t device; /* device and inode of region.fd */
    ino_t inode;
    unsigned users;    /* contexts that have called serve() and not stop() */
    bool child;        /* this process was forked from the region's */
    bool forks_hooked; /* the fork handlers are registered */
    _Atomic bool forking;
    _Atomic pthread_t forker; /* the thread in fork(), which holds the lock */
};

extern struct twill_preload_state twill_preload_state;

/* lib/heap/malloc_region.c: blocks of the region. Any thread may call these functions. */

/* Return whether an address lies in the one region from which this process serves large blocks. */
static inline bool twill_is_ours(const void *block)
{
    uintptr_t bytes = atomic_load_explicit(&twill_preload_state.bytes, memory_order_acquire);
    return (uintptr_t)block -
               atomic_load_explicit(&twill_preload_state.base, memory_order_relaxed) <
           bytes;
}
/* Return a block of the region, filled with zeros if `zero`, and aligned to 2 MiB if it is that
 * large and there is room. Returns NULL if none fits or this is a forked child. */
void *twill_block_alloc(size_t bytes, size_t alignment, bool zero);
/* Return the bytes of a block, or 0 if no block starts there. */
size_t twill_block_size(const void *block);
/* Resize a block in place, or return false if that is not possible. */
bool twill_block_resize(void *block, size_t bytes);
/* Free a block. If more than `keep` bytes of free ones are then resident, give pages back to the
 * system. Returns false, and does nothing, if no block starts there. */
bool twill_block_free(void *block);
/* Tell all watchers of memory that is about to be freed, moved or resized. */
void twill_tell_watchers(void *memory, size_t bytes, bool keeps);
/* Register the fork handlers, once. A region is accepted only if that succeeded. */
void twill_hook_forks(void);

#endif
