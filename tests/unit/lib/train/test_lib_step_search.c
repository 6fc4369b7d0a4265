/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient sets: what the searches of the first steps choose, with step times that the test sets,
 * and the reports every N steps. */
#include "lib/train/gradients.h"
#include "tests/support/gradient_sets.h"
#include "tests/support/unit.h"

/* Open a set of three tensors with entries of TWILL_GRADIENTS, and a setting or NULL. */
static bool search_start(struct twill_test_set *r, twill_bootstrap *bootstrap, const char *entries,
                         const char *setting)
{
    twill_gradients_options options;
    struct twill_error error = {0};
    twill_gradients_defaults(&options);
    TWILL_REQUIRE(twill_entries_apply(&options, entries, &error) == TWILL_OK);
    TWILL_REQUIRE(twill_test_set_open(r, bootstrap, "", TWILL_TEST_PATIENT, setting, &options));
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
static void rank_autotunes(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct twill_test_set r;
    TWILL_CHECK(search_start(&r, bootstrap, "autotune=1", NULL));
    struct twill_step_search *search = &r.set->searches->sizes;
    TWILL_CHECK(reach_last_step(&r, search) && search->candidates > 6);
    struct twill_bucket_sizes expected = r.set->searches->candidates[5];
    for (unsigned i = 0; i < search->candidates; i++)
        search->seconds[i] = 1;
    search->seconds[3] = rank == 0 ? 1e-9 : 1;
    search->seconds[5] = 2e-9;
    TWILL_CHECK(search_step(&r));
    TWILL_CHECK(twill_search_is_over(search));
    TWILL_CHECK(r.set->options.bucket_bytes == expected.bucket);
    TWILL_CHECK(r.set->options.first_bucket_bytes == expected.first);
    TWILL_CHECK(strstr(twill_gradients_describe(r.set, 0), "; autotuned") != NULL);
    TWILL_CHECK(search_step(&r)); /* it is over: nothing changes any more */
    TWILL_CHECK(r.set->options.bucket_bytes == expected.bucket);
    twill_test_set_close(&r, bootstrap);
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

static void rank_compresses(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct search_trial *t = user;
    struct twill_test_set r;
    TWILL_CHECK(search_start(&r, bootstrap, "compress=int8,automatic=1,bucket=4K", NULL));
    struct twill_step_search *search = &r.set->searches->codes;
    TWILL_CHECK(reach_last_step(&r, search));
    memcpy(search->seconds, t->seconds[rank], sizeof(t->seconds[rank]));
    TWILL_CHECK(search_step(&r));
    TWILL_CHECK(twill_search_is_over(search));
    TWILL_CHECK(r.set->compressor->choice == t->chosen);
    twill_test_set_close(&r, bootstrap);
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

static void rank_prices(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct search_price *p = user;
    struct twill_test_set s;
    TWILL_CHECK(twill_test_set_open(&s, bootstrap, p->nodes, TWILL_TEST_PATIENT,
                                    "TWILL_GRADIENTS=compress=int8,automatic=1", NULL));
    TWILL_CHECK(twill_test_set_add(&s, 0, p->count, TWILL_F32, NULL, NULL));
    TWILL_CHECK(twill_test_set_commit(&s));
    TWILL_CHECK(s.set->buckets == 1 && s.set->compressor->choice == TWILL_WIRE_PRICED);
    TWILL_CHECK(s.set->bucket[0].wire.used == p->pays);
    twill_test_set_close(&s, bootstrap);
}

TWILL_TEST(test_prices)
{
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(prices); i++) {
        struct search_price p = prices[i];
        twill_test_run_ranks(2, rank_prices, &p);
    }
}

TWILL_TEST(test_choices)
{
    twill_test_run_ranks(2, rank_autotunes, NULL);
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(trials); i++) {
        struct search_trial t = trials[i];
        twill_test_run_ranks(2, rank_compresses, &t);
    }
}

/* --- reports --------------------------------------------------------------------------------- */

struct search_report {
    const char *options, *end; /* what follows the number of steps */
    char setting[64];          /* TWILL_LOG_FILE */
};

static void rank_reports(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct search_report *report = user;
    struct twill_test_set r;
    TWILL_CHECK(search_start(&r, bootstrap, report->options, report->setting));
    for (int step = 0; step < 7; step++)
        TWILL_CHECK(search_step(&r));
    twill_test_set_close(&r, bootstrap);
}

static unsigned count_lines(const char *path, const char *words, const char *more)
{
    FILE *file = fopen(path, "r");
    char line[512];
    unsigned count = 0;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        count += strstr(line, words) != NULL && strstr(line, more) != NULL;
    if (file != NULL)
        fclose(file);
    return count;
}

/* Seven steps with report=3: a line after the third and the sixth one, and one for all. */
TWILL_TEST(test_reports)
{
    static const char *const options[][2] = {{"report=3", "steps: "},
                                             {"report=3,threads=2,bucket=0", "steps: reducer 1: "},
                                             {"report=3,late=1", "steps: "}};
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(options); i++) {
        struct search_report report = {.options = options[i][0], .end = options[i][1]};
        char path[] = "/tmp/twill_report.XXXXXX", every[64], all[64];
        int file = mkstemp(path);
        assert_true(file >= 0);
        close(file);
        snprintf(report.setting, sizeof(report.setting), "TWILL_LOG_FILE=%s", path);
        snprintf(every, sizeof(every), "gradient set: 3 %s", report.end);
        snprintf(all, sizeof(all), "gradient set: 7 %sin all ", report.end);
        twill_test_run_ranks(2, rank_reports, &report);
        unsigned some = count_lines(path, every, "% waiting for the last rank"),
                 end = count_lines(path, all, "% waiting for the last rank");
        unlink(path);
        assert_int_equal(some, 2);
        assert_int_equal(end, 1);
    }
}
