/* SPDX-License-Identifier: Apache-2.0 */
/* What libtwill-heap.so, loaded before a program that knows nothing of twill_alloc(), offers to the
 * libtwill of the same process. libtwill finds it by name at run time and works without it.
 *
 * Until a context asks for it the library hands every call on to the next malloc: processes without
 * a context, and forks before there is one, are as they were. */
#ifndef TWILL_MALLOC_INTERFACE_H
#define TWILL_MALLOC_INTERFACE_H

#include "lib/base.h"

#define TWILL_PRELOAD_LIBRARY "libtwill-heap.so"
#define TWILL_PRELOAD_SYMBOL  "twill_preload_heap" /* a const struct twill_preload */
#define TWILL_PRELOAD_VERSION 1

/* Shared memory that large blocks are taken from. One per process, kept until it ends: blocks
 * outlive contexts. */
struct twill_preload_region {
    int fd;
    void *mapping; /* of its maker */
    unsigned char *base;
    size_t bytes;
};

struct twill_preload {
    uint32_t version;
    /* The region of this process; NULL: none yet, or this is a child of the one that has it. */
    const struct twill_preload_region *(*region)(void);
    /* Make this the region; returns the one there is, which is another's if that was first. NULL:
     * no memory, or a child. */
    const struct twill_preload_region *(*offer)(const struct twill_preload_region *mine);
    /* From now on blocks of at least so many bytes come from the region, and at most `keep` bytes
     * of freed ones stay in memory; of several contexts' wishes the widest holds, until the last
     * one has said rest(). */
    void (*serve)(size_t least, size_t keep);
    void (*rest)(void);
    /* A block of the region; NULL when there is no room. */
    void *(*alloc)(size_t bytes, size_t alignment);
    void (*release)(void *block);
};

#endif
