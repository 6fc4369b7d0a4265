/* SPDX-License-Identifier: Apache-2.0 */
/* Prices that several choosers share: each is computed once, the choices are those of a chooser
 * that computes all by itself, and an override has only its own algorithm priced. */
#include "algorithms/select/candidates.h"
#include "tests/support/schedules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST 512u

/* What ask() answers for a key that nobody has given. */
enum others { COMPUTE, ABANDONED, BEING_COMPUTED };

struct records {
    enum others mode;
    unsigned given, asked, count;
    struct {
        uint64_t key, words[TWILL_PRICE_WORDS];
    } record[MOST];
};

static enum twill_price_record ask(void *user, uint64_t key, bool wait,
                                   uint64_t words[TWILL_PRICE_WORDS])
{
    struct records *records = user;
    records->asked++;
    assert_int_not_equal(key, 0);
    for (unsigned i = 0; i < records->count; i++)
        if (records->record[i].key == key) {
            memcpy(words, records->record[i].words, sizeof(records->record[i].words));
            return TWILL_RECORD_THERE;
        }
    if (records->mode == BEING_COMPUTED)
        return wait ? TWILL_RECORD_NONE : TWILL_RECORD_THEIRS;
    return records->mode == COMPUTE ? TWILL_RECORD_MINE : TWILL_RECORD_NONE;
}

static void give(void *user, uint64_t key, const uint64_t words[TWILL_PRICE_WORDS])
{
    struct records *records = user;
    assert_non_null(words);
    assert_true(records->count < MOST);
    records->given++;
    records->record[records->count].key = key;
    memcpy(records->record[records->count++].words, words, sizeof(records->record[0].words));
}

/* Compare all candidates of a chooser that shares prices with those of one that does not. */
static void compare_choosers(const struct twill_world *world, struct records *records,
                             uint32_t rank, const struct twill_select_request *request)
{
    const struct twill_candidates *all[2];
    struct twill_chooser *chooser[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(twill_chooser_create(&chooser[i], world, NULL, NULL, NULL), TWILL_OK);
        if (i == 0)
            twill_chooser_share(chooser[0],
                                &(struct twill_price_records){ask, give, records, rank});
        assert_int_equal(twill_chooser_candidates(chooser[i], request, NULL, &all[i], NULL),
                         TWILL_OK);
    }
    assert_int_equal(all[0]->count, all[1]->count);
    for (size_t i = 0; i < all[0]->count; i++)
        assert_memory_equal(&all[0]->candidate[i], &all[1]->candidate[i],
                            sizeof(all[0]->candidate[i]));
    twill_chooser_destroy(chooser[0]);
    twill_chooser_destroy(chooser[1]);
}

static const struct twill_select_request requests[] = {
    {.collective = TWILL_ALLREDUCE, .bytes = 4},
    {.collective = TWILL_ALLREDUCE, .bytes = 4, .type = TWILL_F16, .narrow = true},
    {.collective = TWILL_ALLREDUCE, .bytes = 4, .order = TWILL_ORDER_LEFT},
    {.collective = TWILL_ALLGATHER, .bytes = 1 << 20, .vector = true},
    {.collective = TWILL_BROADCAST, .bytes = 1 << 20},
    {.collective = TWILL_BARRIER},
};

static void test_computed_once(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {2, 5, 16, 24};
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(sizes); s++) {
        struct twill_world world;
        struct records *records = calloc(1, sizeof(*records));
        uint32_t label[24];
        assert_non_null(records);
        for (uint32_t r = 0; r < sizes[s]; r++)
            label[r] = r / 12;
        assert_int_equal(twill_world_create(&world, sizes[s], label, NULL), TWILL_OK);
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(requests); i++) {
            unsigned before = records->given, first;
            compare_choosers(&world, records, 0, &requests[i]);
            first = records->given;
            assert_true(first > before); /* other requests have other prices */
            compare_choosers(&world, records, 3, &requests[i]);
            assert_int_equal(records->given, first); /* nothing is computed again */
        }
        for (unsigned i = 0; i < records->count; i++)
            for (unsigned j = 0; j < i; j++)
                assert_true(records->record[i].key != records->record[j].key);
        twill_world_destroy(&world);
        free(records);
    }
}

/* Ranks that do not get on with a price, or fail, change nothing. */
static void test_without_others(void **state)
{
    (void)state;
    struct twill_world world;
    uint32_t label[6] = {0};
    assert_int_equal(twill_world_create(&world, 6, label, NULL), TWILL_OK);
    for (enum others mode = ABANDONED; mode <= BEING_COMPUTED; mode++) {
        struct records *records = calloc(1, sizeof(*records));
        assert_non_null(records);
        records->mode = mode;
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(requests); i++)
            compare_choosers(&world, records, 1, &requests[i]);
        assert_true(records->asked > 0 && records->given == 0);
        free(records);
    }
    twill_world_destroy(&world);
}

static void test_override_prices_its_own(void **state)
{
    (void)state;
    static const struct {
        const char *requested;
        unsigned most; /* prices */
    } rows[] = {{"recursive_doubling", 0}, {"direct@staged", 0},
                {"multi_ring=2", 0},       {"direct", TWILL_PROTOCOL_COUNT},
                {"multi_ring", 4},         {"broadcast:direct;ring", 0}};
    struct twill_world world;
    uint32_t label[64] = {0};
    assert_int_equal(twill_world_create(&world, 64, label, NULL), TWILL_OK);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++) {
        struct records *records = calloc(1, sizeof(*records));
        struct twill_chooser *chooser;
        struct twill_choice choice;
        assert_non_null(records);
        assert_int_equal(twill_chooser_create(&chooser, &world, NULL, rows[i].requested, NULL),
                         TWILL_OK);
        twill_chooser_share(chooser, &(struct twill_price_records){ask, give, records, 0});
        assert_int_equal(twill_select(&choice, chooser, &requests[0], NULL), TWILL_OK);
        assert_true(choice.requested);
        if (records->given > rows[i].most)
            fail_msg("%s: %u prices, not %u", rows[i].requested, records->given, rows[i].most);
        assert_true((records->given > 0) == (rows[i].most > 0));
        twill_chooser_destroy(chooser);
        free(records);
    }
    twill_world_destroy(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_computed_once),
        cmocka_unit_test(test_without_others),
        cmocka_unit_test(test_override_prices_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
