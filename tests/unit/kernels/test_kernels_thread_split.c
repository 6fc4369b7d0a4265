/* SPDX-License-Identifier: Apache-2.0 */
/* Selecting a table, and splitting over threads. */
#include "kernels/kernels.h"
#include "tests/support/numbers.h"
#include "tests/support/pool.h"

#define SPLIT_COUNT  ((size_t)1 << 20)   /* plus or minus a few, for six threads */
#define THREAD_BYTES ((size_t)256 << 10) /* written by each thread at least */

TWILL_TEST(select_finds_tables_by_name)
{
    const struct twill_kernels *kernels, *best = NULL;
    struct twill_error error;
    for (size_t i = 0; (kernels = twill_kernels_at(i)); i++) {
        const struct twill_kernels *found = NULL;
        twill_error_clear(&error);
        if (kernels->supported()) {
            assert_int_equal(twill_kernels_select(&found, kernels->isa, &error), TWILL_OK);
            assert_ptr_equal(found, kernels);
            best = kernels;
        } else {
            assert_int_equal(twill_kernels_select(&found, kernels->isa, &error), TWILL_ERR_CONFIG);
            assert_non_null(strstr(error.message, "not on this machine"));
            print_message("%s: not on this machine, not tested\n", kernels->isa);
        }
    }
    assert_string_equal(twill_kernels_at(0)->isa, "scalar");
    assert_int_equal(twill_kernels_select(&kernels, NULL, NULL), TWILL_OK);
    assert_ptr_equal(kernels, best);
    assert_int_equal(twill_kernels_select(&kernels, "auto", NULL), TWILL_OK);
    assert_ptr_equal(kernels, best);
}

TWILL_TEST(select_refuses_an_unknown_name_and_lists_the_known)
{
    const struct twill_kernels *kernels;
    struct twill_error error;
    for (const char *const *name = (const char *const[]){"sse9", "", "AVX2", "avx", NULL}; *name;
         name++) {
        twill_error_clear(&error);
        assert_int_equal(twill_kernels_select(&kernels, *name, &error), TWILL_ERR_CONFIG);
        assert_null(kernels);
        assert_non_null(strstr(error.message, *name));
        assert_non_null(strstr(error.message, "auto, scalar"));
    }
}

TWILL_TEST(tables_are_complete)
{
    const struct twill_kernels *kernels;
    for (size_t i = 0; (kernels = twill_kernels_at(i)); i++) {
        assert_non_null(kernels->copy);
        for (int type = 0; type < TWILL_TYPE_COUNT; type++) {
            bool narrow = twill_kernels_partial((twill_type)type, TWILL_SUM) !=
                          twill_kernels_element((twill_type)type, TWILL_SUM);
            assert_int_equal(kernels->widen[type] != NULL, narrow);
            assert_int_equal(kernels->narrow[type] != NULL, narrow);
            for (int op = 0; op < TWILL_OP_COUNT; op++)
                assert_int_equal(kernels->reduce[type][op] != NULL,
                                 twill_kernels_takes((twill_type)type, (twill_op)op));
        }
    }
}

/* twill_kernels_takes() and the sizes of elements agree with the tests' own table of twill.h. */
TWILL_TEST(operations_take_what_they_should)
{
    for (int t = -1; t <= TWILL_TYPE_COUNT; t++) {
        for (int o = -1; o <= TWILL_OP_COUNT; o++) {
            twill_type type = (twill_type)t;
            twill_op op = (twill_op)o;
            bool takes = t >= 0 && t < TWILL_TYPE_COUNT && o >= 0 && o < TWILL_OP_COUNT &&
                         twill_test_takes(type, op);
            assert_int_equal(twill_kernels_takes(type, op), takes);
            assert_int_equal(twill_kernels_element(type, op),
                             takes ? twill_test_element(type, op, false) : 0);
            assert_int_equal(twill_kernels_partial(type, op),
                             takes ? twill_test_element(type, op, true) : 0);
        }
    }
    assert_false(twill_kernels_takes(TWILL_F32, TWILL_OP_CREATED));
}

/* Kernels that note the ranges they were called for. */
static struct {
    atomic_uint used;
    struct {
        const char *dst, *src[2];
        size_t bytes;
    } ranges[64];
} noted;

static void note_call(void *dst, const void *const *src, unsigned nsrc, size_t bytes)
{
    unsigned i = atomic_fetch_add(&noted.used, 1);
    assert_true(i < TWILL_ARRAY_LENGTH(noted.ranges));
    noted.ranges[i].dst = dst;
    for (unsigned s = 0; s < nsrc; s++)
        noted.ranges[i].src[s] = src[s];
    noted.ranges[i].bytes = bytes;
}

static void note_reduce(void *dst, const void *const *src, unsigned nsrc, size_t count,
                        uint32_t divisor, unsigned flags)
{
    assert_int_equal(divisor, 7);
    assert_int_equal(flags, TWILL_KERNEL_STREAM);
    note_call(dst, src, nsrc, count * 2);
}

static void note_copy(void *dst, const void *src, size_t bytes, unsigned flags)
{
    assert_int_equal(flags, TWILL_KERNEL_STREAM);
    note_call(dst, &src, 1, bytes);
}

/* Check that the ranges follow each other without gaps, in whole lines, and are those of every
 * array. */
static void ranges_check(const char *dst, const char *const *src, unsigned nsrc, size_t bytes,
                         unsigned threads)
{
    unsigned used = atomic_load(&noted.used);
    assert_int_equal(used, threads);
    for (size_t at = 0; at < bytes;) {
        unsigned i = 0;
        while (i < used && (noted.ranges[i].dst != dst + at || noted.ranges[i].bytes == 0))
            i++;
        assert_true(i < used);
        for (unsigned s = 0; s < nsrc; s++)
            assert_ptr_equal(noted.ranges[i].src[s], src[s] + at);
        at += noted.ranges[i].bytes;
        assert_true(at % TWILL_CACHE_LINE == 0 || at == bytes);
        assert_true(at <= bytes);
    }
    atomic_store(&noted.used, 0);
}

TWILL_TEST(ranges_cover_everything_once_on_no_more_threads_than_lent)
{
    struct twill_kernels table = {.isa = "noted", .copy = note_copy};
    char *memory = malloc(8 * SPLIT_COUNT + 64);
    const char *const src[] = {memory + 2, memory + 66};
    const void *const sources[] = {src[0], src[1]};
    assert_non_null(memory);
    table.reduce[TWILL_BF16][TWILL_AVG] = note_reduce;
    for (unsigned threads = 1; threads <= 6; threads++) {
        struct twill_thread_pool *pool = twill_test_pool(threads, THREAD_BYTES);
        for (size_t count = SPLIT_COUNT - 33; count <= SPLIT_COUNT + 33; count += 11) {
            twill_kernels_reduce_raw(&table, TWILL_BF16, TWILL_AVG, memory, sources, 2, count, 7,
                                     TWILL_KERNEL_STREAM, pool);
            ranges_check(memory, src, 2, 2 * count, threads);
            twill_kernels_copy(&table, memory, src[0], 2 * count + 1, TWILL_KERNEL_STREAM, pool);
            ranges_check(memory, src, 1, 2 * count + 1, threads);
        }
        twill_kernels_reduce_raw(&table, TWILL_BF16, TWILL_AVG, memory, sources, 2, 100, 7,
                                 TWILL_KERNEL_STREAM, pool);
        assert_int_equal(atomic_load(&noted.used), 1);
        atomic_store(&noted.used, 0);
        twill_thread_pool_close(pool);
    }
    free(memory);
}

/* Of all types and operations, or of a quarter by TEST_SEED under sanitizers. */
TWILL_TEST(any_number_of_threads_gives_the_same_bits)
{
    const struct twill_kernels *kernels;
    char *memory[5];
    struct twill_thread_pool *pools[] = {NULL, twill_test_pool(2, THREAD_BYTES),
                                         twill_test_pool(4, THREAD_BYTES),
                                         twill_test_pool(9, THREAD_BYTES / 8)};
    twill_type type;
    twill_op op;
    assert_int_equal(twill_kernels_select(&kernels, NULL, NULL), TWILL_OK);
    for (int a = 0; a < 5; a++)
        assert_non_null(memory[a] = malloc(SPLIT_COUNT + 1024));
    for (int cell = 0; twill_test_next_cell(&type, &op, &cell);) {
        if (TEST_FEWER && ((uint64_t)cell + test_seed()) % 4 != 0)
            continue;
        assert_int_equal(twill_test_layout(type)->bits / 8, twill_type_size(type));
        size_t size = twill_test_element(type, op, false), count = SPLIT_COUNT / size + 3;
        for (int a = 2; a < 4; a++)
            twill_test_fill_for(type, op, false, memory[a], count, (uint64_t)a);
        const void *src[] = {memory[2], memory[3]};
        kernels->reduce[type][op](memory[0], src, 2, count, 3, 0);
        for (unsigned p = 0; p < TWILL_ARRAY_LENGTH(pools); p++) {
            memset(memory[1], 0, count * size);
            twill_kernels_reduce_raw(kernels, type, op, memory[1], src, 2, count, 3, p & 1,
                                     pools[p]);
            assert_int_equal(memcmp(memory[0], memory[1], count * size), 0);
            const struct twill_reduction reduction = {
                .type = type, .op = op, .divisor = 3, .flags = p & 1, .pool = pools[p]};
            void *const two[] = {memory[4], memory[1]};
            memset(memory[1], 0, count * size);
            memset(memory[4], 0, count * size);
            twill_kernels_spread(kernels, &reduction, two, 2, src, 2, count);
            assert_int_equal(memcmp(memory[0], memory[1], count * size), 0);
            assert_int_equal(memcmp(memory[0], memory[4], count * size), 0);
        }
    }
    for (int a = 0; a < 5; a++)
        free(memory[a]);
    for (unsigned p = 0; p < TWILL_ARRAY_LENGTH(pools); p++)
        twill_thread_pool_close(pools[p]);
}

TWILL_TEST_GROUP(NULL, NULL)
