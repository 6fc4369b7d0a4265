/* SPDX-License-Identifier: Apache-2.0 */
/* twill_alloc() memory: one sparse segment per rank that the node's ranks have all mapped, so that
 * an allocation is local and yet visible to them at once; private memory when alone on the node.
 * With TWILL_HEAP=shared the segment is the one that malloc() is served from. */
#ifndef TWILL_HEAP_H
#define TWILL_HEAP_H

#include "fabric/shm/shared_region.h"
#include "numa/memory.h"

#define TWILL_HEAP_NOWHERE UINT64_MAX

struct twill_preload;
struct twill_extent; /* a piece of the segment, free or taken; or one taken elsewhere */

struct twill_heap {
    struct twill_shm_region *region; /* NULL: private memory only */
    struct twill_memory *memory;
    const struct twill_preload *lender; /* who gives out the segment, if not this heap itself */
    unsigned char *base;
    size_t bytes;
    size_t limit;                 /* TWILL_HEAP_LIMIT, of private and lent memory too; 0: none */
    size_t apart;                 /* of that, taken */
    size_t placed;                /* bytes from base whose placement is decided */
    struct twill_extent *extents; /* by address */
};

/* segment may be NULL: then at most `limit` bytes of private memory (0: no limit). lender may be.
 * Without a limit there is private memory as well when the segment is full. */
void twill_heap_init(struct twill_heap *heap, struct twill_shm_region *region, uint32_t rank,
                     struct twill_memory *memory, const struct twill_preload *lender, size_t limit);
void twill_heap_destroy(struct twill_heap *heap); /* leaves segment and memory to their owner */
twill_status twill_heap_alloc(struct twill_heap *heap, void **pointer, size_t bytes,
                              struct twill_error *error);
twill_status twill_heap_free(struct twill_heap *heap, void *pointer, struct twill_error *error);
/* A peer's heap, as it is mapped here: which pieces of it have been looked at. */
struct twill_heap_view {
    unsigned char *base;
    uint64_t *seen; /* a bit for each TWILL_HUGE_PAGE */
};
twill_status twill_heap_view_open(struct twill_heap_view *view, const struct twill_heap *heap,
                                  uint32_t rank, struct twill_error *error);
void twill_heap_view_close(struct twill_heap_view *view);
/* Map what is about to be read or written of a peer's heap at once, when it is seen for the first
 * time: page by page, faults would cost several times as much. */
void twill_heap_view_touch(struct twill_heap_view *view, uint64_t offset, size_t bytes);
/* Offset of [pointer, pointer + bytes) in the shared segment, or TWILL_HEAP_NOWHERE. */
uint64_t twill_heap_offset(const struct twill_heap *heap, const void *pointer, size_t bytes);

#endif
