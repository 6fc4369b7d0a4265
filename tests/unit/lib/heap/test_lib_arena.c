/* SPDX-License-Identifier: Apache-2.0 */
/* The allocator of libtwill-heap.so against a page-by-page record of its blocks: they never
 * overlap, are aligned, are zero if reported so, and merge into one extent once all are free. */
#include "lib/heap/arena.h"
#include "tests/support/numbers.h"
#include "tests/support/unit.h"

#define ARENA_PAGES  8192
#define ARENA_BYTES  ((size_t)ARENA_PAGES * TWILL_ARENA_PAGE)
#define ARENA_BLOCKS 64
#define ARENA_STEPS  40000

/* Not mapped: the allocator only computes addresses. */
#define BASE ((unsigned char *)((uintptr_t)0x7e0000000000 + 3 * TWILL_ARENA_PAGE))

struct block {
    unsigned char *at;
    size_t pages;
};

struct record {
    struct twill_arena arena;
    uint8_t owner[ARENA_PAGES];   /* 1 + block, or 0 */
    uint8_t touched[ARENA_PAGES]; /* since its pages were last freed */
    struct block block[ARENA_BLOCKS];
    size_t taken; /* pages */
    uint64_t seed;
};

static size_t page_of(const unsigned char *at)
{
    return (size_t)(at - BASE) / TWILL_ARENA_PAGE;
}

static size_t pages_of(size_t bytes)
{
    return (bytes + TWILL_ARENA_PAGE - 1) / TWILL_ARENA_PAGE;
}

static void pages_own(struct record *record, unsigned b, size_t from, size_t to, bool zero)
{
    for (size_t p = from; p < to; p++) {
        assert_int_equal(record->owner[p], 0);
        if (zero)
            assert_int_equal(record->touched[p], 0);
        record->owner[p] = (uint8_t)(b + 1);
        record->touched[p] = 1;
    }
    record->taken += to - from;
}

static void disown(struct record *record, size_t from, size_t to)
{
    memset(record->owner + from, 0, to - from);
    record->taken -= to - from;
}

static void take_block(struct record *record, unsigned b)
{
    size_t bytes = 1 + twill_test_random(&record->seed) % (600 * TWILL_ARENA_PAGE);
    size_t alignment = (size_t)1 << twill_test_random(&record->seed) % 23;
    bool zero = false;
    unsigned char *at = twill_arena_alloc(&record->arena, bytes, alignment, &zero);
    if (at == NULL)
        return;
    assert_int_equal((uintptr_t)at % alignment, 0);
    assert_true(at >= BASE && at + bytes <= BASE + ARENA_BYTES);
    assert_int_equal(twill_arena_size(&record->arena, at), pages_of(bytes) * TWILL_ARENA_PAGE);
    if (bytes > TWILL_ARENA_PAGE)
        assert_int_equal(twill_arena_size(&record->arena, at + TWILL_ARENA_PAGE), 0);
    assert_int_equal(twill_arena_size(&record->arena, at + 8), 0);
    record->block[b] = (struct block){at, pages_of(bytes)};
    pages_own(record, b, page_of(at), page_of(at) + pages_of(bytes), zero);
}

static void give_block(struct record *record, unsigned b)
{
    struct block *block = &record->block[b];
    twill_arena_free(&record->arena, block->at);
    disown(record, page_of(block->at), page_of(block->at) + block->pages);
    block->at = NULL;
}

static void resize(struct record *record, unsigned b)
{
    struct block *block = &record->block[b];
    size_t bytes = 1 + twill_test_random(&record->seed) % (700 * TWILL_ARENA_PAGE);
    size_t first = page_of(block->at), pages = pages_of(bytes);
    if (!twill_arena_resize(&record->arena, block->at, bytes)) {
        assert_true(pages > block->pages); /* only growing a block can fail */
        assert_true(first + pages > ARENA_PAGES ||
                    twill_arena_size(&record->arena, block->at) == block->pages * TWILL_ARENA_PAGE);
        return;
    }
    if (pages > block->pages)
        pages_own(record, b, first + block->pages, first + pages, false);
    else
        disown(record, first + pages, first + block->pages);
    block->pages = pages;
}

/* The longest dirty extents are picked first. */
static void give_back_block(struct record *record, size_t keep)
{
    size_t bytes;
    while (record->arena.dirty > keep) {
        unsigned char *at = twill_arena_pick(&record->arena, &bytes);
        assert_non_null(at);
        for (size_t p = page_of(at); p < page_of(at) + bytes / TWILL_ARENA_PAGE; p++) {
            assert_int_equal(record->owner[p], 0);
            record->touched[p] = 0;
        }
        twill_arena_return(&record->arena, at, true);
    }
}

TWILL_TEST(test_against_record)
{
    struct record *record = calloc(1, sizeof(*record));
    void *pages = calloc(1, twill_arena_record_bytes(ARENA_BYTES));
    bool zero = false;
    record->seed = 4;
    twill_arena_init(&record->arena, BASE, ARENA_BYTES, pages);
    for (unsigned step = 0; step < ARENA_STEPS; step++) {
        unsigned b = (unsigned)(twill_test_random(&record->seed) % ARENA_BLOCKS);
        unsigned what = (unsigned)(twill_test_random(&record->seed) % 8);
        if (record->block[b].at == NULL)
            take_block(record, b);
        else if (what < 3)
            resize(record, b);
        else
            give_block(record, b);
        assert_int_equal(record->arena.taken, record->taken * TWILL_ARENA_PAGE);
        if (step % 100 == 0)
            give_back_block(record, ARENA_BYTES / 16);
    }
    for (unsigned b = 0; b < ARENA_BLOCKS; b++)
        if (record->block[b].at != NULL)
            give_block(record, b);
    give_back_block(record, 0);
    assert_int_equal(record->arena.dirty + record->arena.taken, 0);
    assert_ptr_equal(twill_arena_alloc(&record->arena, ARENA_BYTES, 1, &zero), BASE);
    assert_true(zero);
    free(pages);
    free(record);
}

/* The block freed last is reused first, because it is cached and mapped. */
TWILL_TEST(test_warm_first)
{
    void *pages = calloc(1, twill_arena_record_bytes(ARENA_BYTES));
    struct twill_arena arena;
    bool zero = false;
    size_t bytes = (size_t)20 * TWILL_ARENA_PAGE;
    twill_arena_init(&arena, BASE, ARENA_BYTES, pages);
    void *first = twill_arena_alloc(&arena, bytes, 1, &zero);
    void *second = twill_arena_alloc(&arena, bytes, 1, &zero);
    assert_true(zero);
    twill_arena_free(&arena, first);
    for (int i = 0; i < 3; i++) {
        assert_ptr_equal(twill_arena_alloc(&arena, bytes, 1, &zero), first);
        assert_false(zero);
        twill_arena_free(&arena, first);
    }
    twill_arena_free(&arena, second);
    twill_arena_free(&arena, second); /* no longer a block: ignored */
    assert_int_equal(arena.taken, 0);
    assert_int_equal(arena.dirty, 2 * bytes);
    /* An extent whose pages could not be freed is free again, too. */
    twill_arena_return(&arena, twill_arena_pick(&arena, &bytes), false);
    assert_int_equal(arena.dirty, bytes);
    assert_null(twill_arena_alloc(&arena, ARENA_BYTES, 1, &zero));
    assert_null(twill_arena_alloc(&arena, SIZE_MAX, 1, &zero));
    assert_null(twill_arena_alloc(&arena, 1, (size_t)1 << 62, &zero));
    free(pages);
}
