/* SPDX-License-Identifier: Apache-2.0 */
/* Selection of the largest elements against a sort, by every table; lists that are added. */
#include "kernels/convert.h"
#include "kernels/training/quantize.h"
#include "tests/support/numbers.h"
#include "tests/support/pool.h"
#include "tests/support/unit.h"

#include <pthread.h>

#define MOST ((size_t)200003) /* above the size from which a sample is taken */

static float values[MOST], left[MOST], chosen_value[MOST], first_value[MOST];
static uint32_t chosen_index[MOST], first_index[MOST];

static uint32_t magnitude_bits(float value)
{
    return twill_f32_bits(value) & 0x7fffffff;
}

/* An element to sort: by falling magnitude, then by index. */
struct by_magnitude {
    uint32_t bits, index;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct by_magnitude *x = a, *y = b;
    if (x->bits != y->bits)
        return x->bits < y->bits ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int compare_index(const void *a, const void *b)
{
    const struct by_magnitude *x = a, *y = b;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Assert that the k first of a sort were chosen, in the order of their indices, and that the others
 * were left. */
static void check_chosen(size_t count, size_t k, const struct by_magnitude *sorted)
{
    struct by_magnitude *want = malloc((k + 1) * sizeof(*want));
    assert_non_null(want);
    memcpy(want, sorted, k * sizeof(*want));
    qsort(want, k, sizeof(*want), compare_index);
    for (size_t i = 0, next = 0; i < count; i++) {
        bool was = next < k && want[next].index == i;
        float rest = was ? 0 : values[i];
        assert_memory_equal(&left[i], &rest, sizeof(rest));
        if (was) {
            assert_int_equal(chosen_index[next], i);
            assert_memory_equal(&chosen_value[next], &values[i], sizeof(float));
            next++;
        }
    }
    free(want);
}

/* Select by every table, from `values`. threshold: NAN selects k elements, else those above it. */
static void check_selection(size_t count, size_t k, float threshold)
{
    struct twill_thread_pool *pool = NULL;
    struct by_magnitude *sorted = malloc((count + 1) * sizeof(*sorted));
    const struct twill_sparse chosen = {chosen_index, chosen_value};
    const struct twill_kernels *kernels;
    size_t want = k;
    assert_non_null(sorted);
    for (size_t i = 0; i < count; i++)
        sorted[i] = (struct by_magnitude){magnitude_bits(values[i]), (uint32_t)i};
    qsort(sorted, count, sizeof(*sorted), compare_ranked);
    if (!isnan(threshold))
        for (want = 0; want < twill_min(count, k) && sorted[want].bits >= magnitude_bits(threshold);
             want++)
            ;
    for (size_t table = 0; (kernels = twill_test_next_table(&table));) {
        if (pool == NULL && table > 1) /* by one thread and by three, on parts of 256 values */
            pool = twill_test_pool(3, 1024);
        memcpy(left, values, sizeof(left));
        size_t found = isnan(threshold)
                           ? twill_select_largest(kernels, left, count, k, chosen, pool)
                           : twill_select_above(kernels, left, count, threshold, k, chosen, pool);
        assert_int_equal(found, want);
        if (table > 1) {
            assert_memory_equal(first_index, chosen_index, found * sizeof(*first_index));
            assert_memory_equal(first_value, chosen_value, found * sizeof(*first_value));
            continue;
        }
        memcpy(first_index, chosen_index, found * sizeof(*first_index));
        memcpy(first_value, chosen_value, found * sizeof(*first_value));
        check_chosen(count, found, sorted);
    }
    twill_thread_pool_close(pool);
    free(sorted);
}

/* Numbers that are mostly small, as gradients are. */
static void fill_values(size_t count, uint64_t seed)
{
    uint64_t state = seed;
    memset(values, 0, sizeof(values));
    for (size_t i = 0; i < count; i++) {
        double x = (double)(int64_t)twill_test_random(&state) * 0x1p-63;
        values[i] = (float)(x * x * x);
    }
}

TWILL_TEST(the_largest_are_those_of_a_sort)
{
    static const size_t counts[] = {1, 15, 17, 100, 1000};
    for (size_t c = 0; c < TWILL_ARRAY_LENGTH(counts); c++) {
        size_t n = counts[c], ks[] = {0, 1, n / 100, n / 3, n - 1, n};
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(ks); i++) {
            fill_values(n, c + 1);
            check_selection(n, ks[i], NAN);
            twill_test_fill(TWILL_F32, values, n, c + 1); /* NaN, infinities, zeros, denormals */
            check_selection(n, ks[i], NAN);
            for (size_t j = 0; j < n; j++) /* mostly ties */
                values[j] = (float)((int)(j % 3) - 1);
            check_selection(n, ks[i], NAN);
        }
    }
}

/* Large enough for a sample; and one that misleads, as only what it takes is large. */
TWILL_TEST(a_sample_only_saves_time)
{
    fill_values(MOST, 7);
    check_selection(MOST, MOST / 100, NAN);
    check_selection(MOST, 1, NAN);
    for (size_t i = 0; i < MOST; i++)
        values[i] = i % (MOST / 4096) == 0 ? 1000 + (float)i : (float)i / MOST;
    check_selection(MOST, 5000, NAN);
    for (size_t i = 0; i < MOST; i++)
        values[i] = 0.5f;
    check_selection(MOST, 777, NAN);
}

TWILL_TEST(a_threshold_has_a_cap)
{
    fill_values(1000, 3);
    check_selection(1000, 1000, 0.25f);
    check_selection(1000, 10, 0.25f);
    check_selection(1000, 0, 0.25f);
    check_selection(1000, 5, 2);
    check_selection(1000, 1000, 0);
    values[77] = NAN;
    check_selection(1000, 1, 0.99f);
}

static void *select_by_pool(void *pool)
{
    const struct twill_sparse chosen = {chosen_index, chosen_value};
    const struct twill_kernels *kernels = twill_kernels_at(0);
    return (void *)twill_select_largest(kernels, left, MOST, MOST / 100, chosen, pool);
}

/* Threads of a program may have small stacks, and many threads of the pool need no larger one. */
TWILL_TEST(a_small_stack_suffices)
{
    struct twill_thread_pool *pool = twill_test_pool(16, 1024);
    pthread_attr_t attributes;
    pthread_t thread;
    void *found = NULL;
    fill_values(MOST, 7);
    memcpy(left, values, sizeof(left));
    assert_int_equal(pthread_attr_init(&attributes), 0);
    assert_int_equal(pthread_attr_setstacksize(&attributes, 96 << 10), 0);
    assert_int_equal(pthread_create(&thread, &attributes, select_by_pool, pool), 0);
    assert_int_equal(pthread_join(thread, &found), 0);
    assert_int_equal((size_t)found, MOST / 100);
    pthread_attr_destroy(&attributes);
    twill_thread_pool_close(pool);
}

TWILL_TEST(lists_are_added_in_their_order)
{
    float sum[6] = {1, 1, 1, 1, 1, 1};
    const uint32_t index[] = {5, 0, 5}, beyond[] = {0, 6};
    const float value[] = {2, 4, 8}, want[] = {3, 1, 1, 1, 1, 6};
    assert_true(twill_scatter_add(sum, 6, index, value, 3, 0.5f));
    assert_memory_equal(sum, want, sizeof(sum));
    assert_false(twill_scatter_add(sum, 6, beyond, value, 2, 1));
    assert_memory_equal(sum, want, sizeof(sum));
    assert_true(twill_scatter_add(sum, 0, index, value, 0, 1));
    const float part[] = {3, 1, 1, 1, 1, 11};
    twill_scatter_add_part(sum, 1, 5, index, value, 3, 0.5f);
    assert_memory_equal(sum, part, sizeof(sum));
}

/* Accumulated, selected and scattered: what is sent and the residual are the sum of the gradients.
 */
TWILL_TEST(residual_and_lists_are_the_whole)
{
    enum { COUNT = 1003, STEPS = 5 };
    static float gradient[COUNT], residual[COUNT], sum[COUNT], all[COUNT];
    const struct twill_sparse chosen = {chosen_index, chosen_value};
    const struct twill_kernels *kernels;
    for (size_t table = 0; (kernels = twill_test_next_table(&table));) {
        memset(residual, 0, sizeof(residual));
        memset(sum, 0, sizeof(sum));
        memset(all, 0, sizeof(all));
        for (uint64_t step = 0; step < STEPS; step++) {
            uint64_t random = step;
            for (size_t i = 0; i < COUNT; i++) {
                gradient[i] = (float)(int8_t)twill_test_random(&random);
                all[i] += gradient[i] * 0.25f;
            }
            twill_accumulate(kernels, residual, TWILL_F32, gradient, 0.25f, COUNT, NULL);
            size_t k = twill_select_largest(kernels, residual, COUNT, COUNT / 50, chosen, NULL);
            assert_true(twill_scatter_add(sum, COUNT, chosen_index, chosen_value, k, 1));
        }
        for (size_t i = 0; i < COUNT; i++) /* quarters of integers: exact */
            assert_true(sum[i] + residual[i] >= all[i] && sum[i] + residual[i] <= all[i]);
    }
}
