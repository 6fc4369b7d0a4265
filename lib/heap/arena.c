/* SPDX-License-Identifier: Apache-2.0 */
/* Extents with boundary tags (Knuth) in size bins like those of TLSF, four to a power of two. So
 * freeing, merging and finding a fit search no taken extents. The last freed is reused first. */
#include "lib/heap/arena.h"

#define NONE        UINT32_MAX
#define TAKEN       3u
#define STATE(kind) ((uint32_t)(kind) + 1)

/* Return the number of the bin for free extents of this length. */
static unsigned bin_of(uint32_t pages)
{
    if (pages < 4)
        return pages;
    unsigned log = 31 - (unsigned)__builtin_clz(pages);
    return 4 * log + (pages >> (log - 2) & 3);
}

/* Return the length in pages of the extent whose first page is `first`. */
static uint32_t pages_at(const struct twill_arena *arena, uint32_t first)
{
    return arena->page[first].head >> 2;
}

/* Write an extent's records. `state` is TAKEN or STATE(kind). */
static void set_pages(struct twill_arena *arena, uint32_t first, uint32_t pages, uint32_t state)
{
    arena->page[first].head = pages << 2 | state;
    arena->page[first + pages - 1].back = pages;
}

/* Make an extent free, first in its bin, without merging it with its neighbours. */
static void link_in(struct twill_arena *arena, uint32_t first, uint32_t pages,
                    enum twill_arena_kind kind)
{
    unsigned bin = bin_of(pages);
    uint32_t after = arena->bin[kind][bin];
    set_pages(arena, first, pages, STATE(kind));
    arena->page[first].prev = NONE;
    arena->page[first].next = after;
    if (after != NONE)
        arena->page[after].prev = first;
    arena->bin[kind][bin] = first;
    arena->used[kind][bin / 64] |= UINT64_C(1) << bin % 64;
    if (kind == TWILL_ARENA_DIRTY)
        arena->dirty += (size_t)pages * TWILL_ARENA_PAGE;
}

/* Take a free extent out of its bin. Its record keeps its length and state. */
static void link_out(struct twill_arena *arena, uint32_t first, enum twill_arena_kind kind)
{
    uint32_t pages = pages_at(arena, first);
    unsigned bin = bin_of(pages);
    uint32_t next = arena->page[first].next, prev = arena->page[first].prev;
    if (next != NONE)
        arena->page[next].prev = prev;
    if (prev != NONE)
        arena->page[prev].next = next;
    else
        arena->bin[kind][bin] = next;
    if (arena->bin[kind][bin] == NONE)
        arena->used[kind][bin / 64] &= ~(UINT64_C(1) << bin % 64);
    if (kind == TWILL_ARENA_DIRTY)
        arena->dirty -= (size_t)pages * TWILL_ARENA_PAGE;
}

/* Put a free extent into its bin, merged with its neighbours of the same kind. */
static void put_extent(struct twill_arena *arena, uint32_t first, uint32_t pages,
                       enum twill_arena_kind kind)
{
    uint32_t after = first + pages;
    arena->page[first].head = 0;
    if (after < arena->pages && (arena->page[after].head & 3) == STATE(kind)) {
        pages += pages_at(arena, after);
        link_out(arena, after, kind);
        arena->page[after].head = 0;
    }
    uint32_t before = first == 0 ? NONE : first - arena->page[first - 1].back;
    if (before != NONE && (arena->page[before].head & 3) == STATE(kind)) {
        pages += pages_at(arena, before);
        link_out(arena, before, kind);
        first = before;
    }
    link_in(arena, first, pages, kind);
}

size_t twill_arena_record_bytes(size_t bytes)
{
    return bytes / TWILL_ARENA_PAGE * sizeof(struct twill_arena_page);
}

void twill_arena_init(struct twill_arena *arena, void *base, size_t bytes, void *records)
{
    size_t pages = twill_min(bytes / TWILL_ARENA_PAGE, (UINT32_MAX >> 2) - 1);
    *arena = (struct twill_arena){.base = base, .pages = (uint32_t)pages, .page = records};
    for (unsigned kind = 0; kind < TWILL_ARENA_KINDS; kind++)
        for (unsigned bin = 0; bin < TWILL_ARENA_BINS; bin++)
            arena->bin[kind][bin] = NONE;
    link_in(arena, 0, arena->pages, TWILL_ARENA_CLEAN);
}

/* Return how many pages from `first` on must be skipped to reach the next aligned address. */
static uint32_t skip_of(const struct twill_arena *arena, uint32_t first, size_t alignment)
{
    uintptr_t at = (uintptr_t)arena->base + (uintptr_t)first * TWILL_ARENA_PAGE;
    return (uint32_t)((twill_round_up(at, alignment) - at) / TWILL_ARENA_PAGE);
}

/* Return the first bin from `bin` on that is not empty, or TWILL_ARENA_BINS. */
static unsigned next_bin(const struct twill_arena *arena, enum twill_arena_kind kind, unsigned bin)
{
    for (; bin < TWILL_ARENA_BINS; bin = (bin | 63) + 1) {
        uint64_t rest = arena->used[kind][bin / 64] >> bin % 64;
        if (rest != 0)
            return bin + (unsigned)__builtin_ctzll(rest);
    }
    return TWILL_ARENA_BINS;
}

/* Return the first page of a free extent with room for the aligned pages, or NONE. */
static uint32_t find_extent(const struct twill_arena *arena, enum twill_arena_kind kind,
                            uint32_t pages, size_t alignment)
{
    unsigned bin = next_bin(arena, kind, bin_of(pages));
    for (; bin < TWILL_ARENA_BINS; bin = next_bin(arena, kind, bin + 1))
        for (uint32_t e = arena->bin[kind][bin]; e != NONE; e = arena->page[e].next)
            if (pages_at(arena, e) >= (uint64_t)skip_of(arena, e, alignment) + pages)
                return e;
    return NONE;
}

void *twill_arena_alloc(struct twill_arena *arena, size_t bytes, size_t alignment, bool *zero)
{
    if (bytes > (size_t)arena->pages * TWILL_ARENA_PAGE ||
        alignment > (size_t)arena->pages * TWILL_ARENA_PAGE)
        return NULL;
    uint32_t pages = (uint32_t)(twill_round_up(twill_max(bytes, 1), (size_t)TWILL_ARENA_PAGE) /
                                TWILL_ARENA_PAGE);
    enum twill_arena_kind kind = TWILL_ARENA_DIRTY;
    alignment = twill_max(alignment, (size_t)TWILL_ARENA_PAGE);
    uint32_t first = find_extent(arena, kind, pages, alignment);
    if (first == NONE) {
        kind = TWILL_ARENA_CLEAN;
        first = find_extent(arena, kind, pages, alignment);
    }
    if (first == NONE)
        return NULL;
    uint32_t skip = skip_of(arena, first, alignment), length = pages_at(arena, first);
    link_out(arena, first, kind);
    if (skip > 0)
        link_in(arena, first, skip, kind);
    if (length > skip + pages)
        link_in(arena, first + skip + pages, length - skip - pages, kind);
    set_pages(arena, first + skip, pages, TAKEN);
    arena->taken += (size_t)pages * TWILL_ARENA_PAGE;
    *zero = kind == TWILL_ARENA_CLEAN;
    return arena->base + (size_t)(first + skip) * TWILL_ARENA_PAGE;
}

/* Return the number of the first page of the taken block at address `block`, or NONE. */
static uint32_t block_at(const struct twill_arena *arena, const void *block)
{
    size_t offset = (size_t)((const unsigned char *)block - arena->base);
    uint32_t first = (uint32_t)(offset / TWILL_ARENA_PAGE);
    if (offset / TWILL_ARENA_PAGE >= arena->pages || offset % TWILL_ARENA_PAGE != 0 ||
        (arena->page[first].head & 3) != TAKEN)
        return NONE;
    return first;
}

size_t twill_arena_size(const struct twill_arena *arena, const void *block)
{
    uint32_t first = block_at(arena, block);
    return first == NONE ? 0 : (size_t)pages_at(arena, first) * TWILL_ARENA_PAGE;
}

void twill_arena_return(struct twill_arena *arena, void *extent, bool clean)
{
    uint32_t first = block_at(arena, extent);
    if (first == NONE)
        return;
    uint32_t pages = pages_at(arena, first);
    arena->taken -= (size_t)pages * TWILL_ARENA_PAGE;
    put_extent(arena, first, pages, clean ? TWILL_ARENA_CLEAN : TWILL_ARENA_DIRTY);
}

void twill_arena_free(struct twill_arena *arena, void *block)
{
    twill_arena_return(arena, block, false);
}

bool twill_arena_resize(struct twill_arena *arena, void *block, size_t bytes)
{
    uint32_t first = block_at(arena, block);
    if (first == NONE || bytes == 0 || bytes > (size_t)arena->pages * TWILL_ARENA_PAGE)
        return false;
    uint32_t old = pages_at(arena, first), after = first + old;
    uint32_t pages = (uint32_t)(twill_round_up(bytes, (size_t)TWILL_ARENA_PAGE) / TWILL_ARENA_PAGE);
    if (pages > old) {
        uint32_t state = after < arena->pages ? arena->page[after].head & 3 : TAKEN;
        if (state == TAKEN || pages_at(arena, after) < pages - old)
            return false;
        enum twill_arena_kind kind =
            state == STATE(TWILL_ARENA_CLEAN) ? TWILL_ARENA_CLEAN : TWILL_ARENA_DIRTY;
        uint32_t rest = pages_at(arena, after) - (pages - old);
        link_out(arena, after, kind);
        arena->page[after].head = 0;
        if (rest > 0)
            link_in(arena, first + pages, rest, kind);
    }
    set_pages(arena, first, pages, TAKEN);
    if (pages < old)
        put_extent(arena, first + pages, old - pages, TWILL_ARENA_DIRTY);
    arena->taken += ((size_t)pages - old) * TWILL_ARENA_PAGE;
    return true;
}

void *twill_arena_pick(struct twill_arena *arena, size_t *bytes)
{
    for (unsigned bin = TWILL_ARENA_BINS; bin-- > 0;) {
        uint32_t first = arena->bin[TWILL_ARENA_DIRTY][bin];
        if (first == NONE)
            continue;
        uint32_t pages = pages_at(arena, first);
        link_out(arena, first, TWILL_ARENA_DIRTY);
        set_pages(arena, first, pages, TAKEN);
        *bytes = (size_t)pages * TWILL_ARENA_PAGE;
        arena->taken += *bytes;
        return arena->base + (size_t)first * TWILL_ARENA_PAGE;
    }
    return NULL;
}
