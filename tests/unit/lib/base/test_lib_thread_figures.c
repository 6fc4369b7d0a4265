/* SPDX-License-Identifier: Apache-2.0 */
/* The rule by which a rank chooses how many threads share a piece of work. */
#include "lib/base/thread_figures.h"
#include "tests/support/unit.h"

/* A machine where 2, 4 and 6 threads take 1, 2 and 3 us to fork and join, and memory limits 6. */
static const struct twill_thread_figures six = {
    .most = 6,
    .of = {{0, {100000, 200000}},
           {1000000, {50000, 100000}},
           {2000000, {25000, 50000}},
           {3000000, {24000, 34000}}},
};

TWILL_TEST(counts_of_figures)
{
    static const unsigned counts[] = {1, 1, 2, 3, 3, 4};
    for (unsigned most = 0; most < TWILL_ARRAY_LENGTH(counts); most++) {
        const struct twill_thread_figures figures = {.most = most};
        assert_int_equal(twill_threads_count(&figures), counts[most]);
        assert_int_equal(twill_threads_of(&figures, counts[most] - 1), most > 1 ? most : 1);
    }
    const struct twill_thread_figures most = {.most = TWILL_THREADS_MOST};
    assert_int_equal(twill_threads_count(&most), TWILL_THREAD_FIGURES);
    assert_int_equal(twill_threads_of(&six, 2), 4);
    assert_int_equal(twill_threads_of(&six, 3), 6);
}

/* Each number is taken from the size on at which it has repaid its fork and join, and more bytes
 * never take fewer threads here. */
TWILL_TEST(threads_are_taken_where_they_pay)
{
    static const struct {
        enum twill_thread_work work;
        uint64_t kib;
        unsigned figure;
    } rows[] = {{TWILL_WORK_COPY, 0, 0},    {TWILL_WORK_COPY, 20, 0},   {TWILL_WORK_COPY, 21, 1},
                {TWILL_WORK_COPY, 40, 1},   {TWILL_WORK_COPY, 41, 2},   {TWILL_WORK_COPY, 1000, 2},
                {TWILL_WORK_COPY, 1001, 3}, {TWILL_WORK_REDUCE, 10, 0}, {TWILL_WORK_REDUCE, 11, 1},
                {TWILL_WORK_REDUCE, 64, 3}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++)
        assert_int_equal(twill_threads_choose(&six, rows[i].work, rows[i].kib << 10),
                         rows[i].figure);
    const struct twill_thread_figures none = {.most = 0};
    assert_int_equal(twill_threads_choose(&none, TWILL_WORK_COPY, UINT64_C(1) << 40), 0);
}

/* What is chosen is never slower than any other number of threads. */
TWILL_TEST(chosen_threads_take_least_time)
{
    for (uint64_t bytes = 1; bytes < UINT64_C(1) << 34; bytes = bytes * 5 / 4 + 1)
        for (unsigned w = 0; w < TWILL_WORK_KINDS; w++)
            for (unsigned i = 0; i < twill_threads_count(&six); i++) {
                enum twill_thread_work work = (enum twill_thread_work)w;
                unsigned chosen = twill_threads_choose(&six, work, bytes);
                assert_true(twill_threads_time(&six, work, bytes, chosen) <=
                            twill_threads_time(&six, work, bytes, i));
            }
}
