/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient sets: what the searches of the first steps choose, with step times that the test sets,
 * and the reports every N steps. */
#include "lib/train/gradients.h"
#include "tests/support/gradient_sets.h"
#include "tests/support/unit.h"

/* Add three tensors, and commit. */
static bool search_start(struct twill_test_set *r)
{
    for (unsigned t = 0; t < 3; t++)
        TWILL_REQUIRE(twill_test_set_add(r, t, 700, TWILL_F32, NULL, NULL));
    return twill_test_set_commit(r);
}

static bool search_step(struct twill_test_set *r)
{
    for (int t = 2; t >= 0; t--)
        TWILL_REQUIRE(twill_gradients_ready(r->set, t) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_wait_all(r->set) == TWILL_OK);
    return true;
}

/* Run up to the last step of a search. */
static bool reach_last_step(struct twill_test_set *r, const struct twill_step_search *search)
{
    TWILL_REQUIRE(!twill_search_is_over(search));
    while (search->at + 1 < search->candidates || search->steps + 1 < TWILL_SEARCH_STEPS)
        TWILL_REQUIRE(search_step(r));
    return true;
}

/* Of sizes 3 and 5, the first is the fastest on rank 0 only; all others take a second. */
TWILL_TEST_SETS(test_sizes, ranks, TWILL_LAYOUTS("2"), *c, TWILL_TEST_PATIENT,
                "TWILL_GRADIENTS=autotune=1")
{
    TWILL_CHECK(search_start(r));
    struct twill_step_search *search = &r->set->searches->sizes;
    TWILL_CHECK(reach_last_step(r, search) && search->candidates > 6);
    struct twill_bucket_sizes expected = r->set->searches->candidates[5];
    for (unsigned i = 0; i < search->candidates; i++)
        search->seconds[i] = 1;
    search->seconds[3] = rank == 0 ? 1e-9 : 1;
    search->seconds[5] = 2e-9;
    TWILL_CHECK(search_step(r));
    TWILL_CHECK(twill_search_is_over(search));
    TWILL_CHECK(r->set->options.bucket_bytes == expected.bucket);
    TWILL_CHECK(r->set->options.first_bucket_bytes == expected.first);
    TWILL_CHECK(strstr(twill_gradients_describe(r->set, 0), "; autotuned") != NULL);
    TWILL_CHECK(search_step(r)); /* it is over: nothing changes any more */
    TWILL_CHECK(r->set->options.bucket_bytes == expected.bucket);
}

/* Seconds of a step by choice on both ranks, and what is chosen. That of no compression is tried
 * last, so that it takes at most what is set and at most what the last step really takes. */
struct search_trial {
    double seconds[2][TWILL_WIRE_CHOICES];
    enum twill_wire_choice chosen;
};

static const struct search_trial trials[] = {
    {{{2e-9, 1, 1}, {2e-9, 1, 1}}, TWILL_WIRE_PRICED},
    {{{1, 2e-9, 1}, {1, 2e-9, 1}}, TWILL_WIRE_ALL},
    {{{1e-9, 2e-9, 1}, {1, 2e-9, 1}}, TWILL_WIRE_ALL},
    {{{2000, 1000, 1}, {2000, 1000, 1}}, TWILL_WIRE_NONE},
    {{{1e-9, 1e-9, 1}, {2000, 1000, 1}}, TWILL_WIRE_NONE},
};

TWILL_TEST_SETS(test_choices, ranks, trials, "2", TWILL_TEST_PATIENT,
                "TWILL_GRADIENTS=compress=int8,automatic=1,bucket=4K")
{
    TWILL_CHECK(search_start(r));
    struct twill_step_search *search = &r->set->searches->codes;
    TWILL_CHECK(reach_last_step(r, search));
    memcpy(search->seconds, c->seconds[rank], sizeof(c->seconds[rank]));
    TWILL_CHECK(search_step(r));
    TWILL_CHECK(twill_search_is_over(search));
    TWILL_CHECK(r->set->compressor->choice == c->chosen);
}

/* --- prices ---------------------------------------------------------------------------------- */

/* The trial begins with the buckets for which the price says that it pays: on two nodes a long one,
 * but not one of few bytes, whose messages are as many; on one node none, as encoding and decoding
 * take longer than the memory does. */
static const struct search_price {
    const char *nodes;
    size_t count;
    bool pays;
} prices[] = {{"2x1", 4u << 20, true}, {"2x1", 1, false}, {"1x2", 4u << 20, false}};

TWILL_TEST_SETS(test_prices, ranks, prices, c->nodes, TWILL_TEST_PATIENT,
                "TWILL_GRADIENTS=compress=int8,automatic=1")
{
    TWILL_CHECK(twill_test_set_add(r, 0, c->count, TWILL_F32, NULL, NULL));
    TWILL_CHECK(twill_test_set_commit(r));
    TWILL_CHECK(r->set->buckets == 1 && r->set->compressor->choice == TWILL_WIRE_PRICED);
    TWILL_CHECK(r->set->bucket[0].wire.used == c->pays);
}

/* --- reports --------------------------------------------------------------------------------- */

/* Options, and what follows the number of steps in a report. */
struct search_report {
    const char *options, *end, *log_file;
};

static void rank_reports(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct search_report *report = user;
    struct twill_test_set r = {NULL, NULL, NULL};
    TWILL_CHECK(twill_test_join(&r.context, &r.comm, bootstrap, "", TWILL_TEST_PATIENT,
                                report->options, report->log_file));
    TWILL_CHECK(twill_gradients_create(&r.set, r.comm, NULL) == TWILL_OK && search_start(&r));
    for (int step = 0; step < 7; step++)
        TWILL_CHECK(search_step(&r));
    twill_test_set_close(&r, bootstrap);
}

/* Seven steps with report=3: a line after the third and the sixth one, and one for all. */
TWILL_TEST(test_reports)
{
    static struct search_report reports[] = {
        {.options = "TWILL_GRADIENTS=report=3", .end = "steps: "},
        {.options = "TWILL_GRADIENTS=report=3,threads=2,bucket=0", .end = "steps: reducer 1: "},
        {.options = "TWILL_GRADIENTS=report=3,late=1", .end = "steps: "}};
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(reports); i++) {
        static const char waiting[] = "% waiting for the last rank";
        const char *path = twill_test_text("/tmp/twill_report.%d", (int)getpid()),
                   *end = reports[i].end;
        reports[i].log_file = twill_test_text("TWILL_LOG_FILE=%s", path);
        twill_test_run_ranks(2, rank_reports, &reports[i]);
        const char *every = twill_test_text("gradient set: 3 %s", end),
                   *all = twill_test_text("gradient set: 7 %sin all ", end);
        assert_int_equal(test_count_lines(path, every, waiting), 2);
        assert_int_equal(test_count_lines(path, all, waiting), 1);
        unlink(path);
    }
}
