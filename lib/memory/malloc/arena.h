/* SPDX-License-Identifier: Apache-2.0 */
/* Large blocks out of one range of addresses, in whole pages. What it knows of them lies elsewhere,
 * so that nothing of ours is between the caller's data and no overrun can break it. Not locked;
 * makes no system call. */
#ifndef TWILL_ARENA_H
#define TWILL_ARENA_H

#include "lib/base.h"

#define TWILL_ARENA_PAGE 4096
#define TWILL_ARENA_BINS 128

/* Free memory is of two kinds: clean has never been touched, or was given back to the system, and
 * is zero; dirty is in memory, and quick to use again, here and in the peers that have it mapped.
 */
enum twill_arena_kind { TWILL_ARENA_DIRTY, TWILL_ARENA_CLEAN, TWILL_ARENA_KINDS };

/* Of each page. */
struct twill_arena_page {
    uint32_t head;       /* first page of an extent: its pages << 2 | state, else 0 */
    uint32_t back;       /* last page of an extent: its pages */
    uint32_t next, prev; /* first page of a free extent: others in its bin */
};

struct twill_arena {
    unsigned char *base;
    uint32_t pages;
    struct twill_arena_page *page;
    uint32_t bin[TWILL_ARENA_KINDS][TWILL_ARENA_BINS]; /* first pages, by size */
    uint64_t used[TWILL_ARENA_KINDS][TWILL_ARENA_BINS / 64];
    size_t dirty, taken; /* bytes */
};

/* Bytes of bookkeeping, sparse and zero, for a range of so many. */
size_t twill_arena_record_bytes(size_t bytes);
/* base and bytes are multiples of the page; all clean. */
void twill_arena_init(struct twill_arena *arena, void *base, size_t bytes, void *records);
/* alignment is a power of two. *zero: the block is. NULL: no room. */
void *twill_arena_alloc(struct twill_arena *arena, size_t bytes, size_t alignment, bool *zero);
/* Bytes of the block that starts here; 0: none does. */
size_t twill_arena_size(const struct twill_arena *arena, const void *block);
void twill_arena_free(struct twill_arena *arena, void *block);
/* Make a block longer or shorter where it is; false: something is in the way. */
bool twill_arena_resize(struct twill_arena *arena, void *block, size_t bytes);
/* A dirty free extent, the longest or nearly so, now taken; NULL when there is none. The caller
 * gives its pages back to the system and says whether that worked. */
void *twill_arena_pick(struct twill_arena *arena, size_t *bytes);
void twill_arena_return(struct twill_arena *arena, void *extent, bool clean);

#endif
