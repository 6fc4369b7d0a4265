/* SPDX-License-Identifier: Apache-2.0 */
/* Heap of twill_alloc(): one sparse region per rank, mapped by all ranks of the node, so that an
 * allocation is local and yet visible to them at once; private memory if the rank is alone on its
 * node. With TWILL_HEAP=shared malloc() is served from the same region. */
#ifndef TWILL_HEAP_H
#define TWILL_HEAP_H

#include "fabric/shm/shared_region.h"
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

#endif
