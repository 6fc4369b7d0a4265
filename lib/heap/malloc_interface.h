/* SPDX-License-Identifier: Apache-2.0 */
/* Interface of libtwill-heap.so, which is preloaded into programs that call malloc(), to libtwill
 * in the same process. libtwill looks it up by name at run time and works without it. Until a
 * context calls serve(), libtwill-heap.so forwards every call to the next malloc. So processes
 * without a context, and children forked before there is one, are not affected. */
#ifndef TWILL_MALLOC_INTERFACE_H
#define TWILL_MALLOC_INTERFACE_H

#include "lib/base/base.h"

#define TWILL_PRELOAD_LIBRARY "libtwill-heap.so"
#define TWILL_PRELOAD_SYMBOL  "twill_preload_heap" /* a const struct twill_preload */
#define TWILL_PRELOAD_VERSION 2

/* The shared memory from which a process serves large blocks, mapped at base[bytes]. There is one
 * per process. libtwill makes it and offers it (offer()). As blocks outlive contexts, it is never
 * freed once it is accepted. */
struct twill_preload_region {
    int fd;
    void *mapping; /* struct twill_mapping of the libtwill that created it */
    unsigned char *base;
    size_t bytes;
};

typedef void twill_preload_freeing(void *memory, size_t bytes, bool keeps);

/* The functions of libtwill-heap.so. Any thread may call them. */
struct twill_preload {
    uint32_t version;
    /* Return the region of this process, or NULL if there is none yet or this is a forked child. */
    const struct twill_preload_region *(*region)(void);
    /* Make `mine` the region unless there is one. Returns the region, or NULL on failure. */
    const struct twill_preload_region *(*offer)(const struct twill_preload_region *mine);
    /* Serve blocks from `least` bytes on from the region, and keep up to `keep` bytes of freed ones
     * resident. The least and the largest of all contexts apply, until each has called stop(). */
    void (*serve)(size_t least, size_t keep);
    void (*stop)(void);
    /* Return a block of the region, or NULL if none fits. */
    void *(*alloc)(size_t bytes, size_t alignment);
    void (*release)(void *block);
    /* Call `freeing` with memory of at least `least` bytes before the program frees, unmaps, moves
     * or resizes it. `keeps` is false if its contents are then lost. unwatch() ends one watch().
     * Returns false, and does nothing, if other copies of libtwill watch already. */
    bool (*watch)(twill_preload_freeing *freeing, size_t least);
    void (*unwatch)(twill_preload_freeing *freeing);
};

#endif
