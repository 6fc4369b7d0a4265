/* SPDX-License-Identifier: Apache-2.0 */
/* The levels of a world: with bound ranks, with ranks that are not bound, and on a described
 * machine.
 */
#include "lib/job/find_levels.h"
#include "tests/support/unit.h"

enum { LEVELS_RANKS = 6 };

/* Where six ranks of a node are, by level, and the units that must result. */
static const struct {
    int16_t info[TWILL_LEVEL_NODE][LEVELS_RANKS];
    int unit[TWILL_LEVEL_NODE][LEVELS_RANKS]; /* -1: the level is unknown */
} found[] = {
    /* no rank is bound, on a machine of one package: no tile, no L3 cache, no NUMA node */
    {{{-1, -1, -1, -1, -1, -1}, {-1, -1, -1, -1, -1, -1}, {-1, -1, -1, -1, -1, -1}, {0}},
     {{-1}, {-1}, {-1}, {0, 0, 0, 0, 0, 0}}},
    /* ranks 2 and 5 may run anywhere: each is in a unit by itself */
    {{{0, 0, -1, 1, 1, -1}, {0, 0, -1, 0, 0, -1}, {0, 0, -1, 1, 1, -1}, {0, 0, -1, 0, 0, -1}},
     {{0, 0, 1, 2, 2, 3}, {0, 0, 1, 2, 2, 3}, {0, 0, 1, 2, 2, 3}, {0, 0, 1, 0, 0, 2}}},
};

TWILL_TEST(test_found)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(found); i++) {
        static const uint32_t one_node[LEVELS_RANKS];
        struct twill_level_info info[LEVELS_RANKS] = {{.roams = false}};
        struct twill_error error = {0};
        struct twill_world world;
        assert_int_equal(twill_world_create(&world, LEVELS_RANKS, one_node, &error), TWILL_OK);
        for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++)
            for (unsigned r = 0; r < LEVELS_RANKS; r++)
                info[r].unit[level] = found[i].info[level][r];
        assert_int_equal(twill_levels_find(&world, info, &error), TWILL_OK);
        for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++) {
            bool known = found[i].unit[level][0] >= 0;
            assert_int_equal(world.unit[level] != NULL, known);
            for (unsigned r = 0; known && r < LEVELS_RANKS; r++)
                assert_int_equal(world.unit[level][r], found[i].unit[level][r]);
        }
        twill_world_destroy(&world);
    }
}

/* On a described machine ranks are where twillrun would bind them; if they do not fit, nowhere. */
static const struct described {
    const char *topology, *nodes, *hierarchy, *line;
    int ranks;
} described[] = {
    {"pack:2 l3:2 core:2 pu:2", "1x8", "hierarchy: 1 node x 2 packages x 2 L3 caches x 2 ranks",
     "      L3 cache 1 (ranks 6-7)", 8},
    {"pack:2 l3:2 core:2 pu:2", "2x4", "hierarchy: 2 nodes x 2 packages x 2 L3 caches x 1 rank",
     "    package 1", 8},
    {"pack:2 core:2 pu:1", "1x2", "hierarchy: 1 node x 2 packages x 1 rank",
     "    package 1 (rank 1)", 2},
    {"pack:2 core:2 pu:1", "1x5", "hierarchy: 1 node x 5 ranks", "  node 0 (ranks 0-4)", 5},
};

static void report_levels(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct described *d = user;
    char layout[96];
    snprintf(layout, sizeof(layout), "TWILL_LAYOUT=nodes=%s;topology=%s", d->nodes, d->topology);
    const char *const settings[] = {layout, TWILL_TEST_PATIENT, "TWILL_INTERFACE=lo", NULL};
    twill_context *context;
    const char *line;
    bool hierarchy = false, detail = false;
    twill_status status = twill_context_create(&context, bootstrap, settings);
    TWILL_NOTE(status == TWILL_OK, "%s", twill_context_message(context));
    for (size_t i = 0; (line = twill_context_describe(context, i)) != NULL; i++) {
        hierarchy = hierarchy || strcmp(line, d->hierarchy) == 0;
        detail = detail || strcmp(line, d->line) == 0;
    }
    TWILL_NOTE(hierarchy && detail, "not said: %s", d->hierarchy);
    twill_test_barrier(bootstrap);
    twill_context_destroy(context);
}

TWILL_TEST(test_described)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(described); i++) {
        struct described one = described[i];
        twill_test_run_ranks(one.ranks, report_levels, &one);
    }
}
