/* SPDX-License-Identifier: Apache-2.0 */
/* The scalar table against the oracle; every other table against the scalar one, bit for bit: all
 * types, operations and numbers of sources, lengths around every block size, misaligned, in place
 * of each source, streamed or not, and with nothing touched beyond either end. */
#include "kernels/kernels.h"
#include "tests/support/numbers.h"
#include "tests/support/unit.h"

enum {
    SOURCES = TWILL_KERNEL_MAX_SOURCES,
    MOST = 2300,    /* elements: 16-bit ones then fill more than 4096 bytes */
    MARGIN = 64,    /* bytes around an array that must not change */
    PLACEMENTS = 5, /* ways the arrays are misaligned */
    BUFFER = MOST * 16 + 4 * MARGIN + 16 * 16
};

static const uint32_t divisors[] = {1, 3, 7, 64, 1000003, 0xffffffff};

static char sources[PLACEMENTS][SOURCES][BUFFER] TWILL_ALIGNED(64);
static char target[BUFFER] TWILL_ALIGNED(64);
static char expected[BUFFER] TWILL_ALIGNED(64);

/* A type and an operation that is defined for it. */
struct cell {
    twill_type type;
    twill_op op;
    size_t element; /* bytes */
};

static bool next_cell(struct cell *cell, int *index)
{
    if (!twill_test_next_cell(&cell->type, &cell->op, index))
        return false;
    cell->element = twill_test_element(cell->type, cell->op, false);
    return true;
}

/* Return by how many bytes array `a` (sources, then the target) is misaligned to 64. In the last
 * placement no array is aligned to its elements, unless these have one byte. */
static size_t offset(const struct cell *cell, int placement, int a)
{
    const size_t offsets[PLACEMENTS - 1] = {0, a == SOURCES, (size_t)a + 1, 3};
    return placement == PLACEMENTS - 1 ? 2 * (size_t)a + 1 : offsets[placement] * cell->element;
}

static char *align_buffer(char *buffer, const struct cell *cell, int placement, int a)
{
    return buffer + MARGIN + offset(cell, placement, a);
}

/* Fill arrays with numbers that do not depend on the placement. */
static void fill_sources(const struct cell *cell, uint64_t seed)
{
    for (int s = 0; s < SOURCES; s++) {
        twill_test_fill_for(cell->type, cell->op, false, align_buffer(sources[0][s], cell, 0, s),
                            MOST, seed + (uint64_t)s);
        for (int p = 1; p < PLACEMENTS; p++)
            memcpy(align_buffer(sources[p][s], cell, p, s), align_buffer(sources[0][s], cell, 0, s),
                   MOST * cell->element);
    }
}

static void expect_cell(const struct cell *cell, const void **src, unsigned nsrc, uint32_t divisor)
{
    for (unsigned s = 0; s < nsrc; s++)
        src[s] = align_buffer(sources[0][s], cell, 0, (int)s);
    twill_kernels_at(0)->reduce[cell->type][cell->op](expected, src, nsrc, MOST, divisor, 0);
}

TWILL_TEST(scalar_equals_the_oracle)
{
    const size_t count = 250;
    const void *src[SOURCES];
    struct cell cell;
    for (int index = 0; next_cell(&cell, &index);) {
        fill_sources(&cell, 17 + (uint64_t)index);
        for (unsigned nsrc = 1; nsrc <= SOURCES; nsrc++) {
            const struct twill_reduction reduction = {
                .type = cell.type,
                .op = cell.op,
                .divisor = divisors[nsrc % TWILL_ARRAY_LENGTH(divisors)]};
            expect_cell(&cell, src, nsrc, reduction.divisor);
            twill_test_reduce(&reduction, target, src, nsrc, count);
            for (size_t i = 0; i < count * cell.element; i += cell.element)
                if (memcmp(target + i, expected + i, cell.element) != 0)
                    fail_msg("%s %s of %u, divisor %u: element %zu is %#x ..., not %#x ...",
                             twill_type_name(cell.type), twill_op_name(cell.op), nsrc,
                             reduction.divisor, i / cell.element, expected[i], target[i]);
        }
    }
}

struct variant {
    const struct twill_kernels *kernels;
    struct cell cell;
    int placement, alias; /* alias: the source dst is, or -1 */
    unsigned nsrc, flags;
    uint32_t divisor;
};

static bool untouched(const char *from, const char *to, const char *before)
{
    return memcmp(from, before, (size_t)(to - from)) == 0;
}

static void check_count(const struct variant *v, size_t count)
{
    static char before[BUFFER];
    const void *src[SOURCES];
    const size_t bytes = count * v->cell.element, used = bytes + 3 * MARGIN + SOURCES * 16;
    char *buffer = v->alias < 0 ? target : sources[v->placement][v->alias];
    char *dst = align_buffer(buffer, &v->cell, v->placement, v->alias < 0 ? SOURCES : v->alias);
    for (unsigned s = 0; s < v->nsrc; s++)
        src[s] = align_buffer(sources[v->placement][s], &v->cell, v->placement, (int)s);
    memcpy(before, buffer, used);
    v->kernels->reduce[v->cell.type][v->cell.op](dst, src, v->nsrc, count, v->divisor, v->flags);
    if (memcmp(dst, expected, bytes) != 0 || !untouched(buffer, dst, before) ||
        !untouched(dst + bytes, buffer + used, before + (dst + bytes - buffer)))
        fail_msg("%s %s %s of %u sources, %zu elements, placement %d, in place of %d, flags %u",
                 v->kernels->isa, twill_type_name(v->cell.type), twill_op_name(v->cell.op), v->nsrc,
                 count, v->placement, v->alias, v->flags);
    memcpy(buffer, before, used);
}

static void check_isa(const struct variant *v)
{
    static const size_t large[] = {127, 128, 129, 255, 257, 1000, 1023, MOST};
    for (size_t count = 0; count <= 67; count++)
        check_count(v, count);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(large); i++)
        check_count(v, large[i]);
}

/* Check a separate destination, the first source as destination, and one more source. */
static void check_cell(const struct twill_kernels *kernels, const struct cell *cell, unsigned nsrc)
{
    const void *src[SOURCES];
    struct variant v = {.kernels = kernels, .cell = *cell, .nsrc = nsrc};
    v.divisor = divisors[(nsrc + (unsigned)cell->type) % TWILL_ARRAY_LENGTH(divisors)];
    expect_cell(cell, src, nsrc, v.divisor);
    for (v.placement = 0; v.placement < PLACEMENTS; v.placement++) {
        const int another = v.placement % (int)nsrc;
        const int aliases[] = {-1, 0, another ? another : (int)nsrc - 1};
        for (size_t a = 0; a < TWILL_ARRAY_LENGTH(aliases); a++) {
            v.alias = aliases[a];
            for (v.flags = 0; v.flags <= TWILL_KERNEL_FETCH; v.flags++)
                check_isa(&v);
        }
    }
}

/* All types and operations, or every other one by TEST_SEED under sanitizers. */
TWILL_TEST(every_table_equals_the_scalar_one)
{
    const struct twill_kernels *kernels;
    struct cell cell;
    size_t index = 0;
    while ((kernels = twill_test_next_table(&index))) {
        for (int cells = 0; next_cell(&cell, &cells);) {
            if (TEST_FEWER && ((uint64_t)cells + index + test_seed()) % 2 != 0)
                continue;
            fill_sources(&cell, 99 + (uint64_t)cells);
            for (unsigned nsrc = 1; nsrc <= SOURCES; nsrc += TEST_FEWER && nsrc > 1 ? 3 : 1)
                check_cell(kernels, &cell, nsrc);
        }
    }
}

/* Map a page between two that fault. */
static char *fenced_page(size_t page)
{
    char *memory = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(mprotect(memory + page, page, PROT_READ | PROT_WRITE), 0);
    return memory + page;
}

/* Arrays at the start or the end of mapped memory: a kernel that reads beyond them crashes. */
TWILL_TEST(nothing_beyond_the_arrays_is_read)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const struct twill_kernels *kernels;
    struct cell cell;
    char *memory[3];
    size_t index = 0;
    for (int a = 0; a < 3; a++)
        memory[a] = fenced_page(page);
    while ((kernels = twill_test_next_table(&index))) {
        for (int cells = 0; next_cell(&cell, &cells);) {
            for (int row = 0; row < 4; row++) {
                for (size_t count = 1; count <= 150; count++) {
                    size_t start = row & 1 ? 0 : page - count * cell.element;
                    const void *src[] = {memory[1] + start, memory[2] + start};
                    kernels->reduce[cell.type][cell.op](memory[0] + start, src, 2, count, 2,
                                                        row & 2 ? TWILL_KERNEL_STREAM : 0);
                }
            }
        }
    }
    for (int a = 0; a < 3; a++)
        munmap(memory[a] - page, 3 * page);
}

TWILL_TEST(copies_copy)
{
    const struct twill_kernels *kernels;
    size_t index = 0;
    twill_test_fill(TWILL_I64, sources[0][0], BUFFER / 8, 5);
    while ((kernels = twill_test_next_table(&index))) {
        for (size_t step = 0; step < 2000; step++) {
            size_t bytes = step < 1200 ? step : 13 * step - 12000; /* up to 14 KB */
            for (unsigned flags = 0; flags <= TWILL_KERNEL_FETCH; flags++) {
                size_t from = bytes % 7, to = MARGIN + bytes % 65;
                memset(target, 0x5a, bytes + 3 * MARGIN);
                kernels->copy(target + to, sources[0][0] + from, bytes, flags);
                assert_memory_equal(target + to, sources[0][0] + from, bytes);
                for (size_t i = 1; i <= MARGIN; i++) {
                    assert_int_equal(target[to - i], 0x5a);
                    assert_int_equal(target[to + bytes + i - 1], 0x5a);
                }
            }
        }
        memcpy(target, sources[0][0], 4096);
        kernels->copy(target, target, 4096, TWILL_KERNEL_STREAM);
        assert_memory_equal(target, sources[0][0], 4096);
    }
}
