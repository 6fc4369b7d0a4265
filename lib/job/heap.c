/* SPDX-License-Identifier: Apache-2.0 */
/* First fit over extents in address order, listed outside the region. Free neighbours merge. */
#include "lib/job/heap.h"

#include "fabric/shm/mapping.h"

#include "lib/heap/malloc_interface.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* A free or taken range of a heap, in its list. Extents outside the region are always taken. */
struct twill_extent {
    struct twill_extent *next;
    unsigned char *start;
    size_t bytes;
    bool taken;
    bool outside;  /* from the malloc library or twill_memory_alloc(), never merges */
    unsigned pins; /* twill_heap_pin() */
};

/* State of a chunk (TWILL_HUGE_PAGE bytes of the region). NEW means not placed yet or free again.
 * DDR and PLACED chunks are in use, PLACED ones with the policy. */
enum chunk_state { CHUNK_NEW, CHUNK_DDR, CHUNK_PLACED };

/* Return a block's alignment, TWILL_HUGE_PAGE if it has that many bytes, else a cache line. */
static size_t block_alignment(size_t bytes)
{
    return bytes >= TWILL_HUGE_PAGE ? TWILL_HUGE_PAGE : TWILL_CACHE_LINE;
}

void twill_heap_init(struct twill_heap *heap, struct twill_shm_region *region, uint32_t rank,
                     struct twill_memory *memory, const struct twill_preload *preload, size_t limit)
{
    *heap =
        (struct twill_heap){.region = region, .memory = memory, .preload = preload, .limit = limit};
    if (region != NULL) {
        heap->base = twill_shm_region_at(region, rank);
        heap->bytes = twill_shm_region_bytes(region);
    }
}

/* Return whether the extent came from the malloc library. If not, it is private memory. */
static bool is_of_preload(const struct twill_heap *heap, const struct twill_extent *extent)
{
    return heap->preload != NULL &&
           twill_heap_offset(heap, extent->start, extent->bytes) != TWILL_HEAP_NOWHERE;
}

/* Free the memory of an extent outside the region, but not the extent. */
static void free_outside(struct twill_heap *heap, const struct twill_extent *extent)
{
    if (is_of_preload(heap, extent))
        heap->preload->release(extent->start);
    else
        twill_memory_free(heap->memory, extent->start, extent->bytes);
    heap->outside -= extent->bytes;
}

/* Return the bytes of a chunk of the region, 2 MiB or, for the last, less. */
static size_t chunk_bytes(const struct twill_heap *heap, size_t chunk)
{
    return twill_min(heap->bytes - chunk * TWILL_HUGE_PAGE, TWILL_HUGE_PAGE);
}

/* Mark a chunk of the region as not placed, and give its bytes back to the budget of the heap's
 * memory. Its pages stay. */
static void unplace_chunk(struct twill_heap *heap, size_t chunk)
{
    if (heap->chunk[chunk] != CHUNK_NEW)
        twill_memory_unplace(heap->memory, chunk_bytes(heap, chunk),
                             heap->chunk[chunk] == CHUNK_PLACED);
    heap->chunk[chunk] = CHUNK_NEW;
}

void twill_heap_destroy(struct twill_heap *heap)
{
    while (heap->extents != NULL) {
        struct twill_extent *extent = heap->extents;
        heap->extents = extent->next;
        if (extent->outside)
            free_outside(heap, extent);
        free(extent);
    }
    for (size_t chunk = 0; heap->chunk != NULL && chunk * TWILL_HUGE_PAGE < heap->bytes; chunk++)
        unplace_chunk(heap, chunk);
    free(heap->chunk);
    heap->chunk = NULL;
}

/* Return a new extent whose next one is `next`, or NULL if out of memory. */
static struct twill_extent *extent_new(unsigned char *start, size_t bytes, bool taken,
                                       struct twill_extent *next)
{
    struct twill_extent *extent = calloc(1, sizeof(*extent));
    if (extent != NULL) {
        extent->start = start;
        extent->bytes = bytes;
        extent->taken = taken;
        extent->next = next;
    }
    return extent;
}

/* Split the extent after its first `bytes`, unless it has no more. The rest becomes the next
 * extent, taken or free like the first. Returns false if out of memory. */
static bool split_extent(struct twill_extent *extent, size_t bytes)
{
    if (extent->bytes == bytes)
        return true;
    struct twill_extent *rest =
        extent_new(extent->start + bytes, extent->bytes - bytes, false, extent->next);
    if (rest == NULL)
        return false;
    rest->taken = extent->taken;
    extent->next = rest;
    extent->bytes = bytes;
    return true;
}

/* Place by TWILL_MEMORY the chunks at offsets [from, to) that are not placed yet (CHUNK_NEW).
 * Returns TWILL_OK or the error. */
static twill_status place_chunks(struct twill_heap *heap, size_t from, size_t to,
                                 struct twill_error *error)
{
    for (size_t first = from / TWILL_HUGE_PAGE; first * TWILL_HUGE_PAGE < to; first++) {
        size_t end = first, bytes = 0;
        for (; end * TWILL_HUGE_PAGE < to && heap->chunk[end] == CHUNK_NEW; end++)
            bytes += chunk_bytes(heap, end);
        if (bytes == 0)
            continue;
        bool placed;
        TWILL_TRY(error, twill_memory_place(heap->memory, heap->base + first * TWILL_HUGE_PAGE,
                                            bytes, &placed, error));
        memset(&heap->chunk[first], placed ? CHUNK_PLACED : CHUNK_DDR, end - first);
        first = end;
    }
    return TWILL_OK;
}

/* Place and take `bytes` bytes of a free extent from offset `skip` on, and set *pointer to them.
 * The rest of the extent stays free. Returns TWILL_OK or the error. */
static twill_status take_extent(struct twill_heap *heap, struct twill_extent *extent, size_t skip,
                                size_t bytes, void **pointer, struct twill_error *error)
{
    size_t from = (size_t)(extent->start - heap->base) + skip;
    TWILL_TRY(error, place_chunks(heap, from, from + bytes, error));
    bool done = skip == 0 || split_extent(extent, skip);
    struct twill_extent *mine = skip == 0 ? extent : extent->next;
    if (!done || !split_extent(mine, bytes))
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "twill_alloc: out of memory for bookkeeping");
    mine->taken = true;
    *pointer = mine->start;
    return TWILL_OK;
}

/* Return TWILL_ERR_MEMORY, with a message that `bytes` bytes exceed `limit`. */
static twill_status out_of_heap(size_t bytes, size_t limit, struct twill_error *error)
{
    return TWILL_FAIL(error, TWILL_ERR_MEMORY,
                      "twill_alloc: %zu bytes do not fit in the %zu bytes of TWILL_TUNE=heap_limit",
                      bytes, limit);
}

/* Set *pointer to memory that this heap does not manage. It is from the malloc library or, if that
 * has none, private. Fails if heap->limit would be exceeded or memory is short. */
static twill_status take_outside(struct twill_heap *heap, void **pointer, size_t bytes,
                                 struct twill_error *error)
{
    if (heap->limit > 0 && bytes > heap->limit - heap->outside)
        return out_of_heap(bytes, heap->limit, error);
    if (heap->preload != NULL)
        *pointer = heap->preload->alloc(bytes, block_alignment(bytes));
    if (*pointer != NULL && twill_heap_offset(heap, *pointer, bytes) == TWILL_HEAP_NOWHERE) {
        heap->preload->release(*pointer); /* outside the part that this context shares */
        *pointer = NULL;
    }
    if (*pointer == NULL)
        TWILL_TRY(error, twill_memory_alloc(heap->memory, pointer, bytes, error));
    heap->outside += bytes;
    return TWILL_OK;
}

/* Set *pointer to memory that take_outside() gets, and list it as an extent of the heap. */
static twill_status alloc_outside(struct twill_heap *heap, void **pointer, size_t bytes,
                                  struct twill_error *error)
{
    struct twill_extent *extent = extent_new(NULL, bytes, true, heap->extents);
    if (extent == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "twill_alloc: out of memory");
    twill_status status = take_outside(heap, pointer, bytes, error);
    if (status != TWILL_OK) {
        free(extent);
        return twill_error_pass(error, status, __FILE__, __LINE__);
    }
    extent->start = *pointer;
    extent->outside = true;
    heap->extents = extent;
    return TWILL_OK;
}

/* Set *pointer to memory in this rank's region. If that is full and TWILL_TUNE=heap_limit is not
 * set, use private memory instead. Returns TWILL_OK, or TWILL_ERR_MEMORY if there is no room. */
static twill_status alloc_shared(struct twill_heap *heap, void **pointer, size_t bytes,
                                 struct twill_error *error)
{
    if (heap->chunk == NULL)
        heap->chunk = calloc(heap->bytes / TWILL_HUGE_PAGE + 1, sizeof(*heap->chunk));
    if (heap->extents == NULL)
        heap->extents = extent_new(heap->base, heap->bytes, false, NULL);
    if (heap->chunk == NULL || heap->extents == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "twill_alloc: out of memory");
    size_t align = block_alignment(bytes);
    for (struct twill_extent *e = heap->extents; e != NULL; e = e->next) {
        size_t skip = twill_round_up((uintptr_t)e->start, align) - (uintptr_t)e->start;
        if (!e->taken && e->bytes >= skip && e->bytes - skip >= bytes)
            return take_extent(heap, e, skip, bytes, pointer, error);
    }
    if (heap->limit > 0)
        return out_of_heap(bytes, heap->bytes, error);
    struct twill_error outside = {0};
    if (alloc_outside(heap, pointer, bytes, &outside) == TWILL_OK)
        return TWILL_OK;
    return TWILL_FAIL(error, TWILL_ERR_MEMORY,
                      "twill_alloc: no room for %zu bytes: the %zu bytes that this rank shares are "
                      "full, and private memory fails: %s",
                      bytes, heap->bytes, outside.message);
}

twill_status twill_heap_alloc(struct twill_heap *heap, void **pointer, size_t bytes,
                              struct twill_error *error)
{
    *pointer = NULL;
    if (bytes > SIZE_MAX / 2)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY,
                          "twill_alloc: %zu bytes exceed the address space", bytes);
    size_t rounded = twill_round_up(twill_max(bytes, 1), TWILL_CACHE_LINE);
    if (heap->region == NULL || heap->preload != NULL)
        return alloc_outside(heap, pointer, rounded, error);
    return alloc_shared(heap, pointer, rounded, error);
}

/* Merge a free extent with the next one if both are free. */
static void merge_next(struct twill_extent *extent)
{
    struct twill_extent *next = extent->next;
    if (next == NULL || next->taken || extent->taken)
        return;
    extent->bytes += next->bytes;
    extent->next = next->next;
    free(next);
}

/* Free the pages of the block of `bytes` bytes at offset `from`, now part of the free extent
 * `unused`. Chunks that are unused as a whole become new again, to be placed next time. */
static void drop_pages(struct twill_heap *heap, const struct twill_extent *unused, size_t from,
                       size_t bytes)
{
    size_t begin = (size_t)(unused->start - heap->base), end = begin + unused->bytes;
    size_t first = from / TWILL_HUGE_PAGE, last = (from + bytes - 1) / TWILL_HUGE_PAGE;
    bool placed = false;
    if (first * TWILL_HUGE_PAGE < begin)
        first++;
    if (last * TWILL_HUGE_PAGE + chunk_bytes(heap, last) > end)
        last--;
    for (size_t chunk = first; chunk <= last; chunk++) {
        placed = placed || heap->chunk[chunk] == CHUNK_PLACED;
        unplace_chunk(heap, chunk);
    }
    size_t chunks_end = last * TWILL_HUGE_PAGE + chunk_bytes(heap, last);
    size_t to = twill_max(from + bytes, chunks_end);
    from = twill_min(from, first * TWILL_HUGE_PAGE);
    (void)madvise(heap->base + from, (to - from) & ~(size_t)4095, MADV_REMOVE);
    if (placed) /* back to the default policy, as the next block may have to be in DDR */
        (void)twill_memory_near(heap->base + first * TWILL_HUGE_PAGE,
                                chunks_end - first * TWILL_HUGE_PAGE, -1);
}

/* Free an extent. One outside the region is removed from the list. Another stays as free and is
 * merged with free neighbours, and its pages are freed if it is large. `before` is the extent
 * before it, or NULL. */
static void release_extent(struct twill_heap *heap, struct twill_extent *before,
                           struct twill_extent *extent)
{
    if (extent->outside) {
        if (before == NULL)
            heap->extents = extent->next;
        else
            before->next = extent->next;
        free_outside(heap, extent);
        free(extent);
        return;
    }
    size_t from = (size_t)(extent->start - heap->base), bytes = extent->bytes;
    bool merges = before != NULL && !before->taken && !before->outside;
    extent->taken = false;
    merge_next(extent);
    if (merges)
        merge_next(before);
    if (bytes >= TWILL_HUGE_PAGE)
        drop_pages(heap, merges ? before : extent, from, bytes);
}

twill_status twill_heap_free(struct twill_heap *heap, void *pointer, struct twill_error *error)
{
    struct twill_extent *before = NULL;
    for (struct twill_extent *e = heap->extents; e != NULL; before = e, e = e->next) {
        if (e->taken && e->start == pointer) {
            release_extent(heap, before, e);
            return TWILL_OK;
        }
    }
    return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                      "twill_free: memory %p is not from twill_alloc of this context", pointer);
}

int twill_heap_pin(struct twill_heap *heap, const void *pointer, size_t bytes, int change)
{
    const unsigned char *p = pointer;
    for (struct twill_extent *e = heap->extents; e != NULL; e = e->next)
        if (e->taken && p >= e->start && p < e->start + e->bytes &&
            bytes <= (size_t)(e->start + e->bytes - p))
            return (int)(e->pins += (unsigned)change);
    return -1;
}

uint64_t twill_heap_offset(const struct twill_heap *heap, const void *pointer, size_t bytes)
{
    const unsigned char *p = pointer;
    if (heap->region == NULL || heap->fenced || p < heap->base || bytes > heap->bytes ||
        p > heap->base + (heap->bytes - bytes))
        return TWILL_HEAP_NOWHERE;
    return (uint64_t)(p - heap->base);
}

/* Replace the pages of a chunk by private ones with the same contents, or fail and keep them. */
static twill_status replace_pages(struct twill_heap *heap, size_t chunk, struct twill_error *error)
{
    unsigned char resident[TWILL_HUGE_PAGE / 4096], *at = heap->base + chunk * TWILL_HUGE_PAGE;
    size_t bytes = chunk_bytes(heap, chunk);
    bool placed = false;
    unsigned char *new = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (new == MAP_FAILED)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "mmap of %zu bytes: %s", bytes, strerror(errno));
    twill_status status = twill_memory_place(heap->memory, new, bytes, &placed, error);
    bool known = mincore(at, bytes, resident) == 0;
    for (size_t offset = 0; status == TWILL_OK && offset < bytes; offset += 4096)
        /* other pages are zero, so they are not touched */
        if (!known || (resident[offset / 4096] & 1) != 0)
            memcpy(new + offset, at + offset, 4096);
    if (status == TWILL_OK &&
        mremap(new, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at) == MAP_FAILED)
        status =
            TWILL_FAIL(error, TWILL_ERR_MEMORY, "mremap of %zu bytes: %s", bytes, strerror(errno));
    if (status != TWILL_OK) {
        munmap(new, bytes);
        return status;
    }
    unplace_chunk(heap, chunk); /* the old pages */
    heap->chunk[chunk] = placed ? CHUNK_PLACED : CHUNK_DDR;
    return TWILL_OK;
}

/* Replace the chunks first to end - 1, which are new and hold no allocation, by private memory of
 * zeros. Fails only if out of memory. */
static twill_status replace_new(struct twill_heap *heap, size_t first, size_t end,
                                struct twill_error *error)
{
    size_t from = first * TWILL_HUGE_PAGE,
           bytes = twill_min(end * TWILL_HUGE_PAGE, heap->bytes) - from;
    if (mmap(heap->base + from, bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "mmap of %zu bytes: %s", bytes, strerror(errno));
    return TWILL_OK;
}

twill_status twill_heap_fence(struct twill_heap *heap, struct twill_error *error)
{
    if (heap->region == NULL || heap->fenced)
        return TWILL_OK;
    if (heap->preload != NULL)
        return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED, "memory of malloc stays shared");
    for (size_t chunk = 0; chunk * TWILL_HUGE_PAGE < heap->bytes;) {
        size_t end = chunk;
        while (end * TWILL_HUGE_PAGE < heap->bytes &&
               (heap->chunk == NULL || heap->chunk[end] == CHUNK_NEW))
            end++;
        if (end > chunk)
            TWILL_TRY(error, replace_new(heap, chunk, end, error));
        else
            TWILL_TRY(error, replace_pages(heap, end++, error));
        chunk = end;
    }
    heap->fenced = true;
    return TWILL_OK;
}

twill_status twill_heap_view_open(struct twill_heap_view *view, const struct twill_heap *heap,
                                  uint32_t rank, struct twill_error *error)
{
    *view = (struct twill_heap_view){0};
    if (heap->region == NULL)
        return TWILL_OK;
    view->base = twill_shm_region_at(heap->region, rank);
    view->seen = calloc(heap->bytes / TWILL_HUGE_PAGE / 64 + 1, sizeof(*view->seen));
    if (view->seen == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
    return TWILL_OK;
}

void twill_heap_view_close(struct twill_heap_view *view)
{
    free(view->seen);
    view->seen = NULL;
}

void twill_heap_view_touch(struct twill_heap_view *view, uint64_t offset, size_t bytes)
{
    uint64_t end = offset + bytes;
    uint64_t last = (end - 1) / TWILL_HUGE_PAGE;
    for (uint64_t page = offset / TWILL_HUGE_PAGE; page <= last; page++) {
        uint64_t first = page;
        while (page <= last && (view->seen[page / 64] >> page % 64 & 1) == 0) {
            view->seen[page / 64] |= UINT64_C(1) << page % 64;
            page++;
        }
        if (page == first)
            continue;
        uint64_t from = twill_max(offset, first * TWILL_HUGE_PAGE);
        uint64_t to = twill_min(end, page * TWILL_HUGE_PAGE);
        twill_mapping_populate(view->base + from, to - from);
    }
}
