/* SPDX-License-Identifier: Apache-2.0 */
/* Heap of twill_alloc(): one sparse region per rank, mapped by all ranks of the node, so that an
 * allocation is local and yet visible to them at once; private memory if the rank is alone on its
 * node. With TWILL_HEAP=shared malloc() is served from the same region. */
#ifndef TWILL_HEAP_H
#define TWILL_HEAP_H

#include "fabric/shm/shared_region.h"
#include "fabric/transport.h"
#include "numa/memory.h"

#define TWILL_HEAP_NOWHERE UINT64_MAX

struct twill_preload;
struct twill_extent; /* a range of the region, free or taken, or an allocation outside it */

/* The heap of a context, whose lock protects it. */
struct twill_heap {
    struct twill_shm_region *region; /* NULL: private memory only */
    struct twill_memory *memory;
    const struct twill_preload *preload; /* manages the region; NULL: this heap does */
    unsigned char *base;                 /* of the region */
    size_t bytes;
    size_t limit;   /* TWILL_TUNE=heap_limit: most bytes, private memory included; 0: no limit */
    size_t outside; /* bytes taken from the malloc library or as private memory */
    unsigned char *chunk;         /* of each 2 MiB from base on: enum twill_chunk_state */
    bool fenced;                  /* twill_heap_fence(): the region is private memory now */
    struct twill_extent *extents; /* by address; those outside the region first */
};

/* Initialise the heap over this rank's part of `region`, or, if that is NULL, over at most `limit`
 * bytes of private memory (0: no limit). Without a limit private memory is also used when the
 * region is full. preload may be NULL. */
void twill_heap_init(struct twill_heap *heap, struct twill_shm_region *region, uint32_t rank,
                     struct twill_memory *memory, const struct twill_preload *preload,
                     size_t limit);
/* Free all allocations; region and memory belong to the caller. */
void twill_heap_destroy(struct twill_heap *heap);
/* Allocate bytes aligned to a cache line, or to TWILL_HUGE_PAGE if that large. Returns
 * TWILL_ERR_MEMORY if neither region nor private memory suffices. */
twill_status twill_heap_alloc(struct twill_heap *heap, void **pointer, size_t bytes,
                              struct twill_error *error);
/* Free an allocation. Returns TWILL_ERR_ARGUMENT if the heap has none at this address. */
twill_status twill_heap_free(struct twill_heap *heap, void *pointer, struct twill_error *error);
/* Move the heap to pages that no other process has, at the same addresses, with their contents: a
 * rank that others go on without may still write to the old ones. From then on it is private
 * memory. No thread may write to it meanwhile. Returns TWILL_ERR_UNSUPPORTED if the malloc library
 * manages it, TWILL_ERR_MEMORY. */
twill_status twill_heap_fence(struct twill_heap *heap, struct twill_error *error);
/* A peer's heap as it is mapped here; belongs to a communicator. */
struct twill_heap_view {
    unsigned char *base;
    uint64_t *seen; /* bitmap of TWILL_HUGE_PAGE ranges that have been populated */
};
/* Open a view of the heap of `rank`; it stays empty if there is no region. */
twill_status twill_heap_view_open(struct twill_heap_view *view, const struct twill_heap *heap,
                                  uint32_t rank, struct twill_error *error);
void twill_heap_view_close(struct twill_heap_view *view);
/* Populate the page tables of a range of a peer's heap before its first access: page faults one by
 * one cost several times as much. bytes > 0. */
void twill_heap_view_touch(struct twill_heap_view *view, uint64_t offset, size_t bytes);
/* Offset of [pointer, pointer + bytes) in this rank's region, or TWILL_HEAP_NOWHERE. */
uint64_t twill_heap_offset(const struct twill_heap *heap, const void *pointer, size_t bytes);

/* --- lib/job/malloc_heap.c --- */

/* TWILL_HEAP=shared: the heap of a context is the region that libtwill-heap.so serves malloc()
 * from, so that peers access malloc'd buffers as they access those of twill_alloc(). */

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

/* --- a context's memory --- */

/* Memory of twill_alloc() (user) and of the library. What is allocated is protected by
 * context->lock. */
struct twill_context_memory {
    struct twill_memory *user, *library;
    struct twill_memory_policy user_policy, library_policy;
    struct twill_preloaded preloaded;
    struct twill_heap heap;
    bool spilled; /* has said that the heap is full and twill_alloc() uses private memory */
    struct twill_persistent_region *regions; /* lib/job/registration.c */
    struct twill_persistent persistent;
    size_t pinned; /* bytes of regions */
};

#endif
