/* SPDX-License-Identifier: Apache-2.0 */
/* The one writable object of libtwill-heap.so: a malloc is called without a context, so what it
 * knows has to be in a place of its own. Whatever of it is read without the lock is atomic. */
#ifndef TWILL_MALLOC_STATE_H
#define TWILL_MALLOC_STATE_H

#include "lib/memory/malloc/arena.h"
#include "lib/memory/malloc/malloc_interface.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

#define TWILL_EARLY_BYTES ((size_t)32 << 10)

/* The malloc that was there before. */
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

struct twill_preload_state {
    struct twill_next next;
    _Atomic int found; /* next: 0 not yet, 1 being looked for, 2 there */
    _Atomic size_t early_used;
    _Alignas(16) unsigned char early[TWILL_EARLY_BYTES]; /* while dlsym() may allocate */

    _Atomic size_t least;    /* blocks from here up are ours; 0: none */
    _Atomic uintptr_t base;  /* of the region */
    _Atomic uintptr_t bytes; /* written last; 0: no region */
    _Atomic size_t keep;     /* freed bytes that stay in memory */

    pthread_mutex_t lock; /* of what follows */
    struct twill_arena arena;
    struct twill_preload_region region;
    dev_t device; /* of region.fd */
    ino_t inode;
    unsigned users;    /* contexts that want blocks from here */
    bool child;        /* of the process whose region it is */
    bool forks_hooked; /* for forks */
    _Atomic bool forking;
    _Atomic pthread_t forker; /* holds the lock during fork() */
};

extern struct twill_preload_state twill_preload_state;

/* lib/memory/malloc/malloc_region.c: blocks of the region. */
static inline bool twill_is_ours(const void *block)
{
    uintptr_t bytes = atomic_load_explicit(&twill_preload_state.bytes, memory_order_acquire);
    return (uintptr_t)block -
               atomic_load_explicit(&twill_preload_state.base, memory_order_relaxed) <
           bytes;
}
void *twill_block_alloc(size_t bytes, size_t alignment, bool zero);
size_t twill_block_size(const void *block);
bool twill_block_resize(void *block, size_t bytes);
bool twill_block_free(void *block); /* false: no block starts there */
void twill_hook_forks(void);        /* once; without it there is no region */

#endif
