/* SPDX-License-Identifier: Apache-2.0 */
/* TWILL_HEAP=shared: a context whose heap is the region that libtwill-heap.so serves malloc() from,
 * so that peers reach malloc'd buffers as they reach those of twill_alloc(). */
#ifndef TWILL_MALLOC_HEAP_H
#define TWILL_MALLOC_HEAP_H

#include "fabric/shm/shared_region.h"
#include "lib/config/config.h"
#include "lib/memory/malloc/malloc_interface.h"

/* What came of the wish. Travels between ranks. */
enum twill_preloaded_outcome {
    TWILL_PRELOADED_OFF, /* not wished for */
    TWILL_PRELOADED_READY,
    TWILL_PRELOADED_ABSENT,  /* the library is not loaded */
    TWILL_PRELOADED_VERSION, /* it is of another twill */
    TWILL_PRELOADED_CHILD,   /* forked from a process that has a region */
    TWILL_PRELOADED_SMALL,   /* the region of an earlier context is smaller */
    TWILL_PRELOADED_MEMORY,  /* no memory of that kind */
    TWILL_PRELOADED_OUTCOMES
};

struct twill_preloaded {
    const struct twill_preload *library; /* NULL unless READY */
    enum twill_preloaded_outcome outcome;
    size_t least;                        /* bytes of the smallest block that is served */
    struct twill_shm_region_given given; /* the region */
    void *token;                         /* block of it */
    bool serving;
};

/* wish: TWILL_HEAP. Find the library; READY: it is there. Only a bad value of TWILL_HEAP is an
 * error. */
twill_status twill_preloaded_open(struct twill_preloaded *preloaded, const char *setting,
                                  struct twill_error *error);
/* If the library is there: find this process's region, or make one of so many bytes. What came of
 * it is the outcome; token is NULL unless it is READY. */
void twill_preloaded_make(struct twill_preloaded *preloaded, size_t bytes);
/* The region is shared by so many ranks of the node: serve from it, or do not. What is freed stays
 * in memory for the next block, up to `kept` bytes: to give pages back and take them again costs
 * more than most messages do. */
void twill_preloaded_begin(struct twill_preloaded *preloaded, size_t kept, uint32_t ranks);
/* That `vain` ranks wished for it in vain, this one being the first of them (0: it is not); and
 * that TWILL_MEMORY does not place what comes from the region. Ranks may differ in all this. */
void twill_preloaded_warn(const struct twill_preloaded *preloaded, const struct twill_log *log,
                          int vain, bool mcdram);
void twill_preloaded_close(struct twill_preloaded *preloaded);

#endif
