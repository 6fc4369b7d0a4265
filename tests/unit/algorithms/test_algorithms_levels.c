/* SPDX-License-Identifier: Apache-2.0 */
/* The composer on machines of many levels, regular and ragged; the syntax of "levels=...". */
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

struct levels_sweep {
    uint32_t window;
    unsigned verified, steps;
};

static void verify_case(const struct test_case *test, void *user)
{
    struct levels_sweep *sweep = user;
    if (strcmp(test->algorithm->name, "levels") != 0)
        return;
    struct twill_schedule *schedules = test_emit(test);
    for (int in_place = 0; in_place < 2; in_place++) {
        struct twill_error error = {.status = TWILL_OK};
        if (twill_schedule_verify_window(schedules, test->world, &test->shape, in_place != 0,
                                         sweep->window, &error) != TWILL_OK)
            fail_msg("%s: %s", test->name, error.message);
        sweep->verified++;
    }
    for (uint32_t r = 0; r < test->world->size; r++)
        sweep->steps += schedules[r].count;
    test_schedules_destroy(schedules, test->world->size);
}

TWILL_TEST(test_regular)
{
    static const char *const worlds[] = {
        "groups=1,nodes=1,packages=1,numa=2,tiles=2,ranks=2",
        "nodes=1,numa=2,l3=2,tiles=2,ranks=2",
        "groups=1,nodes=2,packages=2,numa=2,l3=1,tiles=2,ranks=2",
        "groups=2,nodes=2,packages=2,numa=2,tiles=2,ranks=2",
        "groups=2,nodes=3,numa=4,ranks=4",
        "groups=1,nodes=3,packages=1,tiles=3,ranks=3",
        "groups=1,nodes=1,packages=1,tiles=9,ranks=2",
        "groups=1,nodes=2,tiles=2,ranks=12",
        "groups=3,nodes=5,packages=1,numa=1,l3=1,tiles=1,ranks=1",
        "groups=1,nodes=4,packages=1,numa=2,tiles=2,ranks=2",
        "groups=1,nodes=2,numa=1,tiles=2,ranks=10",
    };
    struct levels_sweep sweep = {.window = 1};
    for (size_t i = TEST_FEWER ? test_seed() % 4 : 0; i < TWILL_ARRAY_LENGTH(worlds);
         i += TEST_FEWER ? 4 : 1) {
        struct twill_world world;
        assert_int_equal(twill_world_declare(&world, worlds[i], NULL), TWILL_OK);
        test_each_case(&world, 2, verify_case, &sweep);
        twill_world_destroy(&world);
    }
    print_message("%u verified\n", sweep.verified);
    assert_true(sweep.verified > 0);
}

/* With every level known, ranks synchronise once at each on the way down and once on the way up,
 * and read one partner at each. */
TWILL_TEST(test_all_levels_are_used)
{
    struct twill_world world;
    assert_int_equal(
        twill_world_declare(&world, "groups=1,nodes=3,packages=2,numa=2,tiles=2,ranks=2", NULL),
        TWILL_OK);
    struct test_case test = {.algorithm = test_algorithm_find("levels"), .world = &world};
    test.shape.protocol = TWILL_PROTOCOL_MAPPED;
    struct twill_schedule *schedules = test_emit(&test);
    for (uint32_t r = 0; r < world.size; r++) {
        unsigned count[TWILL_STEP_OP_COUNT] = {0};
        for (uint32_t i = 0; i < schedules[r].count; i++)
            count[schedules[r].steps[i].op]++;
        assert_int_equal(schedules[r].blocks, 16 * 3);
        assert_int_equal(count[TWILL_STEP_SIGNAL], 8);
        assert_int_equal(count[TWILL_STEP_AWAIT], 8);
        assert_int_equal(count[TWILL_STEP_REDUCE], 4); /* of 8, 4, 2 and 1 consecutive shards */
        assert_int_equal(count[TWILL_STEP_COPY], 4);
        assert_int_equal(count[TWILL_STEP_SEND], 2 * 2);
    }
    test_schedules_destroy(schedules, world.size);
    twill_world_destroy(&world);
}

static bool random_world(struct twill_world *world, uint32_t size, unsigned placement,
                         uint64_t *state)
{
    static const twill_level settable[] = {TWILL_LEVEL_GROUP, TWILL_LEVEL_PACKAGE, TWILL_LEVEL_NUMA,
                                           TWILL_LEVEL_L3, TWILL_LEVEL_TILE};
    if (!test_world(world, size, placement, size))
        return false;
    uint32_t *label = calloc(size, sizeof(*label));
    assert_non_null(label);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(settable); i++) {
        uint32_t units = 1 + test_draw(state, 4);
        for (uint32_t r = 0; r < size; r++)
            label[r] = test_draw(state, 3) > 0 ? r * units / size : test_draw(state, units);
        if (test_draw(state, 4) > 0)
            assert_int_equal(twill_world_set_level(world, settable[i], label, NULL), TWILL_OK);
    }
    free(label);
    return true;
}

static void sweep_random(uint32_t from, uint32_t to, uint32_t step, uint32_t window)
{
    struct levels_sweep sweep = {.window = window};
    uint64_t seed = test_seed();
    for (uint32_t size = from; size <= to; size += step) {
        for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
            struct twill_world world;
            if (!random_world(&world, size, placement, &seed))
                continue;
            test_each_case(&world, 2, verify_case, &sweep);
            twill_world_destroy(&world);
        }
    }
    print_message("%u to %u ranks, window %u: %u verified, %u steps\n", from, to, window,
                  sweep.verified, sweep.steps);
    assert_true(sweep.verified > 0);
}

TWILL_TEST(test_random)
{
    sweep_random(1, test_whole() ? 64 : 24, TEST_FEWER ? 7 : 1, 1);
}

TWILL_TEST(test_random_two_in_flight)
{
    sweep_random(2, TEST_FEWER ? 6 : 14, 1, 2);
}

static bool reads(const char *text)
{
    uint16_t parameter[TWILL_PARAMETERS] = {0};
    return test_algorithm_find("levels")->parse(text, strlen(text), parameter);
}

TWILL_TEST(test_parse)
{
    static const char *const good[] = {"node:direct", "tile:ring/all:recursive_doubling",
                                       "tile:direct/numa:direct/node:direct/group:ring"};
    static const char *const bad[] = {
        "",
        "node",
        "node:",
        ":direct",
        "node:direct/",
        "/node:direct",
        "node:direct/tile:direct",
        "node:direct/node:ring",
        "group:direct",
        "all:direct",
        "nodes:direct",
        "nod:direct",
        "node:directly",
        "node:rin",
        "tile:direct/numa:direct/package:direct/node:direct/all:ring"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(good); i++)
        if (!reads(good[i]))
            fail_msg("\"%s\" is refused", good[i]);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++)
        if (reads(bad[i]))
            fail_msg("\"%s\" is read", bad[i]);
}
