/* SPDX-License-Identifier: Apache-2.0 */
/* Prices and choices that several choosers share: each is computed once, the choices are those of a
 * chooser that computes all by itself, and an override has nothing priced. Choices made without all
 * prices are those made with them; one world in four is tried, whose turn it is by TEST_SEED, and
 * all, and larger ones, with TEST_WHOLE. */
#include "algorithms/select/candidates.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

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

static struct records *records_new(enum others mode)
{
    struct records *records = calloc(1, sizeof(*records));
    assert_non_null(records);
    records->mode = mode;
    return records;
}

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

TWILL_TEST(test_computed_once)
{
    static const char *const worlds[] = {"2", "5", "12+4", "2x12"};
    for (size_t w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++) {
        struct twill_world world;
        struct records *records = records_new(COMPUTE);
        assert_int_equal(twill_world_declare(&world, worlds[w], NULL), TWILL_OK);
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
TWILL_TEST(test_without_others)
{
    struct twill_world world;
    test_grid(&world, 1, 6);
    for (enum others mode = ABANDONED; mode <= BEING_COMPUTED; mode++) {
        struct records *records = records_new(mode);
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(requests); i++)
            compare_choosers(&world, records, 1, &requests[i]);
        assert_true(records->asked > 0 && records->given == 0);
        free(records);
    }
    twill_world_destroy(&world);
}

TWILL_TEST(test_override_prices_nothing)
{
    static const char *const requested[] = {"recursive_doubling", "direct@staged",
                                            "multi_ring=2",       "direct",
                                            "multi_ring",         "broadcast:direct;ring"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(requested); i++) {
        struct records *records = records_new(COMPUTE);
        struct test_chooser c;
        test_chooser_open(&c, "64", NULL, requested[i]);
        twill_chooser_share(c.chooser, &(struct twill_price_records){ask, give, records, 0});
        assert_true(test_chooser_choice(&c, &requests[0]).requested);
        if (records->given + records->asked > 0)
            fail_msg("%s: %u prices", requested[i], records->given);
        test_chooser_close(&c);
        free(records);
    }
}

/* --- choices without all prices --------------------------------------------------------------- */

/* Compare early choices of requests like `request` at all sizes. Returns how many are decided. */
static unsigned compare_sizes(const struct twill_world *world, const struct twill_tuning *tuning,
                              struct twill_select_request request)
{
    static const size_t sizes[] = {0,    4,     300,   368,     512,      1000,   1024,
                                   4096, 10000, 65536, 1 << 20, 3u << 20, 1 << 28};
    struct twill_candidates *all;
    unsigned decisions = 0;
    assert_int_equal(twill_candidates_create(&all, world, tuning, &request, NULL, NULL, NULL),
                     TWILL_OK);
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(sizes); s++) {
        struct twill_choice choice = {.algorithm = NULL};
        bool decided;
        request.bytes = sizes[s];
        const struct twill_candidate *best = test_cheapest(
            all, twill_request_bytes(world, &request), twill_request_access(world, &request));
        assert_int_equal(twill_choose_early(&choice, &decided, world, tuning, &request, NULL, NULL),
                         TWILL_OK);
        if (!decided)
            continue;
        decisions++;
        if (best == NULL || best->algorithm != choice.algorithm ||
            best->shape.protocol != choice.shape.protocol || best->shape.parameter[0] != 0)
            fail_msg("%s of %zu bytes, %u ranks on %u nodes: early %s@%s, by all %s@%s=%u",
                     twill_collective_name(request.collective), sizes[s], world->size, world->nodes,
                     choice.algorithm->name, twill_protocol_name(choice.shape.protocol),
                     best != NULL ? best->algorithm->name : "none",
                     best != NULL ? twill_protocol_name(best->shape.protocol) : "",
                     best != NULL ? best->shape.parameter[0] : 0);
    }
    twill_candidates_destroy(all);
    return decisions;
}

static void compare_world(const struct twill_world *world, const struct twill_machine_model *model)
{
    struct twill_tuning tuning = {.model = *model};
    for (int c = 0; c < TWILL_COLLECTIVE_COUNT; c++) {
        bool reduces = twill_collective_facts((enum twill_collective)c)->reduces;
        for (int v = 0; v < (reduces ? 6 : 2); v++) {
            struct twill_select_request request = {.collective = (enum twill_collective)c,
                                                   .mapped = v % 2 == 1,
                                                   .order = (enum twill_order)(v / 2),
                                                   .type = reduces ? TWILL_F32 : TWILL_U8};
            unsigned decisions = compare_sizes(world, &tuning, request);
            assert_true(world->nodes > 1 || decisions > 0);
        }
    }
}

TWILL_TEST(test_early_choices)
{
    static const struct {
        uint32_t nodes, each;
    } worlds[] = {{1, 16}, {1, 24}, {2, 16}, {1, 32}, {16, 1}, {4, 12},  {1, 48}, {3, 16},
                  {1, 17}, {32, 1}, {1, 40}, {8, 4},  {1, 64}, {1, 100}, {2, 64}, {1, 256}};
    size_t tried = test_whole() ? TWILL_ARRAY_LENGTH(worlds) : TWILL_ARRAY_LENGTH(worlds) - 4;
    for (size_t w = 0; w < tried; w++) {
        struct twill_world world;
        if (!test_whole() && (w + test_seed()) % (TEST_SLOW ? 8 : 4) != 0)
            continue;
        test_grid(&world, worlds[w].nodes, worlds[w].each);
        compare_world(&world, twill_machine_model_at((w + test_seed()) % 2));
        twill_world_destroy(&world);
    }
}

/* One record tells another rank its choice; a program with many sizes gets all candidates. */
TWILL_TEST(test_choice_is_one_record)
{
    struct records *records = records_new(COMPUTE);
    struct test_chooser c;
    test_chooser_open(&c, "32", NULL, NULL);
    twill_chooser_share(c.chooser, &(struct twill_price_records){ask, give, records, 0});
    struct twill_choice choice = test_chooser_choice(&c, &requests[0]), again;
    assert_int_equal(records->given, 1);
    assert_int_equal(records->asked, 1);
    again = test_chooser_choice(&c, &requests[0]);
    assert_int_equal(records->asked, 1);
    assert_ptr_equal(again.algorithm, choice.algorithm);
    assert_memory_equal(&again.shape, &choice.shape, sizeof(again.shape));
    for (size_t bytes = 8; records->given < 20; bytes += 4) {
        struct twill_select_request other = requests[0];
        other.bytes = bytes;
        assert_true(bytes < 100);
        (void)test_chooser_choice(&c, &other);
    }
    unsigned given = records->given;
    again = test_chooser_choice(&c, &requests[0]);
    assert_int_equal(records->given, given);
    assert_ptr_equal(again.algorithm, choice.algorithm);
    test_chooser_close(&c);
    free(records);
}
