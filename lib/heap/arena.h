/* SPDX-License-Identifier: Apache-2.0 */
/* Allocator of large blocks, in whole pages, out of one address range. Its records lie elsewhere,
 * so that an overrun of a block cannot damage them. It makes no system call. The caller locks. */
#ifndef TWILL_ARENA_H
#define TWILL_ARENA_H

#include "lib/base/base.h"

#define TWILL_ARENA_PAGE 4096
#define TWILL_ARENA_BINS 128

/* Kinds of free memory. Clean memory is zero, as it was never touched or its pages were freed.
 * Dirty memory is resident, so its reuse causes no page faults here and in peers that map it. */
enum twill_arena_kind { TWILL_ARENA_DIRTY, TWILL_ARENA_CLEAN, TWILL_ARENA_KINDS };

/* The record of a page. An extent is a block that is taken, or a range of free pages. */
struct twill_arena_page {
    uint32_t head;       /* in the first page of an extent, its pages << 2 | state, else 0 */
    uint32_t back;       /* in the last page of an extent, the number of its pages */
    uint32_t next, prev; /* in the first page of a free extent, its neighbours in the bin */
};

/* One address range and its extents. The caller locks it, and provides and frees its memories. */
struct twill_arena {
    unsigned char *base;
    uint32_t pages;
    struct twill_arena_page *page;                     /* [pages] */
    uint32_t bin[TWILL_ARENA_KINDS][TWILL_ARENA_BINS]; /* first page of the first extent, by size */
    uint64_t used[TWILL_ARENA_KINDS][TWILL_ARENA_BINS / 64]; /* bitmap of non-empty bins */
    size_t dirty, taken; /* bytes of dirty extents, and of taken ones */
};

/* Return the bytes of the page records that an arena of `bytes` bytes needs. */
size_t twill_arena_record_bytes(size_t bytes);
/* Initialise an arena of `bytes` bytes from `base` on, both multiples of the page size. Its memory
 * must be clean, that is all zeros. `records` is zeroed memory of twill_arena_record_bytes(), which
 * the caller frees. */
void twill_arena_init(struct twill_arena *arena, void *base, size_t bytes, void *records);
/* Allocate an aligned block of whole pages, from dirty memory if that has room. *zero becomes
 * whether it is all zeros. Returns NULL if none fits. */
void *twill_arena_alloc(struct twill_arena *arena, size_t bytes, size_t alignment, bool *zero);
/* Return the bytes of the block that starts here, or 0 if none does. */
size_t twill_arena_size(const struct twill_arena *arena, const void *block);
/* Free a block. Its pages stay resident with what they contain (dirty), and are allocated again
 * before clean ones. Does nothing if no block starts here. */
void twill_arena_free(struct twill_arena *arena, void *block);
/* Resize a block in place. Returns false, and changes nothing, if none starts here, if `bytes` is
 * 0, or if the free pages behind it do not suffice. */
bool twill_arena_resize(struct twill_arena *arena, void *block, size_t bytes);
/* Allocate one of the longest free extents that are dirty, that is resident, as a block. Sets
 * *bytes to its size. Returns NULL, with *bytes unchanged, if there is none. */
void *twill_arena_pick(struct twill_arena *arena, size_t *bytes);
/* Free a block, as clean if its pages were freed, else dirty. Does nothing if none starts here. */
void twill_arena_return(struct twill_arena *arena, void *extent, bool clean);

#endif
