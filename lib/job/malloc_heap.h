/* SPDX-License-Identifier: Apache-2.0 */
/* TWILL_HEAP=shared: the heap of a context is the region that libtwill-heap.so serves malloc()
 * from, so that peers access malloc'd buffers as they access those of twill_alloc(). */
#ifndef TWILL_MALLOC_HEAP_H
#define TWILL_MALLOC_HEAP_H

#include "fabric/shm/shared_region.h"

struct twill_preload; /* lib/heap/malloc_interface.h */

/* Whether TWILL_HEAP=shared takes effect, or why not. Exchanged between ranks. */
enum twill_preloaded_outcome {
    TWILL_PRELOADED_OFF, /* not requested */
    TWILL_PRELOADED_READY,
    TWILL_PRELOADED_ABSENT,  /* the library is not loaded */
    TWILL_PRELOADED_VERSION, /* it is of another version of twill */
    TWILL_PRELOADED_CHILD,   /* forked from a process that has a region */
    TWILL_PRELOADED_SMALL,   /* the region of an earlier context is too small */
    TWILL_PRELOADED_MEMORY,  /* no memory for a region, or none left in it */
    TWILL_PRELOADED_OUTCOMES
};

/* A context's use of the preloaded library. */
struct twill_preloaded {
    const struct twill_preload *library; /* NULL unless READY */
    enum twill_preloaded_outcome outcome;
    size_t least;                        /* bytes of the smallest block that is served */
    struct twill_shm_region_given given; /* the region */
    void *token;                         /* 8 bytes allocated in it */
    bool serving;                        /* serve() has been called */
};

/* Parse TWILL_HEAP (`setting`) and, if it requests the library, find that. Returns an error only if
 * the value is bad; else see the outcome. */
twill_status twill_preloaded_open(struct twill_preloaded *preloaded, const char *setting,
                                  struct twill_error *error);
/* If the library was found, find this process's region or create one of `bytes`. token is NULL
 * unless the outcome is READY. */
void twill_preloaded_make(struct twill_preloaded *preloaded, size_t bytes);
/* Start to serve malloc() from the region if several ranks of the node share it. Up to `kept` bytes
 * of freed blocks stay resident for reuse: to free and fault pages costs more than most messages.
 */
void twill_preloaded_begin(struct twill_preloaded *preloaded, size_t kept, uint32_t ranks);
/* Warn that TWILL_HEAP has no effect on `ineffective` ranks, of which this is the first (0: it is
 * not), and, if `mcdram`, that TWILL_MEMORY does not place memory of the region. */
void twill_preloaded_warn(const struct twill_preloaded *preloaded, const struct twill_log *log,
                          int ineffective, bool mcdram);
/* Stop serving. Blocks and region stay, as they may outlive the context. */
void twill_preloaded_close(struct twill_preloaded *preloaded);

#endif
