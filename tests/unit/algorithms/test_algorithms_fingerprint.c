/* SPDX-License-Identifier: Apache-2.0 */
/* Verify every algorithm in large worlds by fingerprint: grids of up to 4,392 nodes, and worlds
 * whose nodes are the machines of the topology files. The cost of a case is estimated first, and
 * too large cases are skipped: the report says how far each algorithm came. TEST_WHOLE raises the
 * limit and takes every case; with TEST_ALGORITHM=NAME there is none (minutes, and up to some 30 GB
 * of memory). */
#include "algorithms/schedule/step_table.h"
#include "tests/support/mutants.h"
#include "tests/support/unit.h"

#define FINGERPRINT_MOST_RANKS 8192
#define THOUSAND               1024 /* number of ranks that every algorithm must be verified with */

struct fingerprint_row {
    unsigned verified, left, failed;
    uint32_t largest, largest_nodes;
    uint64_t steps;
};

struct large {
    struct fingerprint_row row[TEST_ALGORITHMS];
    uint64_t random, limit;
    unsigned mutants;
    uint32_t one_in;
    bool once; /* only algorithms not yet verified with THOUSAND ranks, one case each */
};

/* Estimate the steps and blocks of all ranks from three of them. */
static uint64_t estimate(const struct test_case *test)
{
    uint32_t size = test->world->size;
    const uint32_t some[] = {0, size / 2, size - 1, test->shape.root};
    uint64_t most = 0;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(some); i++) {
        struct twill_schedule one;
        struct twill_error error = {.status = TWILL_OK};
        if (twill_schedule_emit(&one, test->algorithm, test->world, some[i], &test->shape,
                                &error) != TWILL_OK)
            return 0; /* the full attempt reports the error */
        uint64_t moved = 0;
        for (uint32_t s = 0; s < one.count; s++)
            moved += 1u + one.steps[s].blocks;
        uint64_t cost = moved / 4 + one.count + one.blocks + one.tmp_blocks + one.shared_blocks;
        most = cost > most ? cost : most;
        twill_schedule_destroy(&one);
    }
    return most * size;
}

/* Drop a step that moves data or sends an empty message, and expect that the verifier notices. */
static void drop_step(struct large *large, const struct test_case *test,
                      struct twill_schedule *schedules)
{
    struct twill_schedule *one = &schedules[test_draw(&large->random, test->world->size)];
    struct twill_error error = {.status = TWILL_OK};
    uint32_t at = one->count > 0 ? test_draw(&large->random, one->count) : 0;
    while (at < one->count &&
           (one->steps[at].op == TWILL_STEP_WAIT || one->steps[at].op == TWILL_STEP_SIGNAL ||
            one->steps[at].op == TWILL_STEP_AWAIT))
        at++;
    if (at == one->count)
        return;
    test_mutate(one, test->world, at, DROP, 0);
    twill_schedule_derive(one);
    large->mutants++;
    if (twill_schedule_verify_fingerprint(schedules, test->world, &test->shape, false, &error) ==
        TWILL_OK)
        fail_msg("%s: step %u of rank %u is needless", test->name, at, (uint32_t)(one - schedules));
}

static void verify_large(const struct test_case *test, void *user)
{
    struct large *large = user;
    struct fingerprint_row *row = &large->row[test_algorithm_index(test->algorithm)];
    struct twill_error error = {.status = TWILL_OK};
    if (test->shape.parameter[0] != 0 && !test_whole())
        return;
    bool drawn = test_draw(&large->random, large->one_in) == 0;
    if (large->once ? row->largest >= THOUSAND
                    : !drawn && row->verified > 0) /* each at least once, whatever is drawn */
        return;
    if (estimate(test) > large->limit) {
        row->left++;
        return;
    }
    struct twill_schedule *schedules = test_try_emit(test, &error);
    bool in_place = test_draw(&large->random, 2) == 0;
    if (schedules == NULL || twill_schedule_verify_fingerprint(schedules, test->world, &test->shape,
                                                               in_place, &error) != TWILL_OK) {
        if (row->failed++ < 3)
            print_error("%s, in place %d: %s\n", test->name, in_place, error.message);
    } else {
        row->verified++;
        for (uint32_t r = 0; r < test->world->size; r++)
            row->steps += schedules[r].count;
        if (test->world->size > row->largest) {
            row->largest = test->world->size;
            row->largest_nodes = test->world->nodes;
        }
        if (test_draw(&large->random, 8) == 0)
            drop_step(large, test, schedules);
    }
    if (schedules != NULL)
        test_schedules_destroy(schedules, test->world->size);
}

/* Append the ranks of one node: one per core of the machine, with the package and the L2 cache that
 * it is in. Returns the number of ranks. */
static uint32_t add_machine(const char *file, uint32_t node, uint32_t first,
                            uint32_t label[3][FINGERPRINT_MOST_RANKS])
{
    char path[256], line[4096];
    snprintf(path, sizeof(path), "topologies/%s", file);
    FILE *in = fopen(test_data(path), "r");
    assert_non_null(in);
    uint32_t rank = first, package = 0, tile = 0;
    while (fgets(line, sizeof(line), in) != NULL) {
        package +=
            strstr(line, "type=\"Package\"") != NULL || strstr(line, "type=\"Socket\"") != NULL;
        tile += strstr(line, "type=\"L2Cache\"") != NULL ||
                (strstr(line, "type=\"Cache\"") != NULL && strstr(line, "depth=\"2\"") != NULL);
        if (strstr(line, "type=\"Core\"") == NULL || rank == FINGERPRINT_MOST_RANKS)
            continue;
        label[0][rank] = node;
        label[1][rank] = node * 1000 + package;
        label[2][rank++] = node * 1000 + tile;
    }
    fclose(in);
    return rank - first;
}

/* A node for each machine, `times` times. */
static void machines_world(struct twill_world *world, uint32_t times)
{
    static const char *const files[] = {
        "96em64t-4n4d3ca2co-pci.xml",       "linux-32amd64-4s2n4c-cgroup2.xml",
        "linux-40intel64-2g2n4c+pci.xml",   "linux-64intel64-fakeKNL-A2A-cache.xml",
        "linux-memorysidecaches.xml",       "vm-knl-quadrant-cache.xml",
        "vm-knl-quadrant-flat.xml",         "vm-knl-snc4-flat.xml",
        "x86-AMD-19h-Zen3-2xEpyc-7763.xml", "x86-Intel-KnightsLanding-XeonPhi-7210.xml",
        "x86-Intel-Skylake-2xXeon6140.xml"};
    uint32_t(*label)[FINGERPRINT_MOST_RANKS] = calloc(3, sizeof(*label));
    assert_non_null(label);
    uint32_t size = 0, nodes = 0;
    for (uint32_t t = 0; t < times; t++)
        for (size_t f = 0; f < TWILL_ARRAY_LENGTH(files); f++)
            size += add_machine(files[f], nodes++, size, label);
    assert_int_equal(twill_world_create(world, size, label[0], NULL), TWILL_OK);
    assert_int_equal(twill_world_set_level(world, TWILL_LEVEL_PACKAGE, label[1], NULL), TWILL_OK);
    assert_int_equal(twill_world_set_level(world, TWILL_LEVEL_TILE, label[2], NULL), TWILL_OK);
    free(label);
}

static void grid_world(struct twill_world *world, uint32_t nodes, uint32_t ranks, bool dealt)
{
    uint32_t *label = calloc((size_t)nodes * ranks, sizeof(*label));
    assert_non_null(label);
    for (uint32_t r = 0; r < nodes * ranks; r++)
        label[r] = dealt ? r % nodes : r / ranks;
    assert_int_equal(twill_world_create(world, nodes * ranks, label, NULL), TWILL_OK);
    free(label);
}

static unsigned print_rows(const struct large *large)
{
    unsigned failed = 0;
    print_message("%-32s %9s %9s %9s %12s %9s %7s\n", "algorithm", "largest", "nodes", "verified",
                  "steps", "too large", "failed");
    for (size_t a = 0; twill_algorithm_at(a) != NULL; a++) {
        const struct fingerprint_row *row = &large->row[a];
        print_message("%-32s %9u %9u %9u %12llu %9u %7u\n", twill_algorithm_at(a)->name,
                      row->largest, row->largest_nodes, row->verified,
                      (unsigned long long)row->steps, row->left, row->failed);
        failed += row->failed;
    }
    return failed;
}

/* Put `nodes` nodes with consecutive ranks into each group. */
static void set_groups(struct twill_world *world, uint32_t nodes)
{
    uint32_t *label = calloc(world->size, sizeof(*label));
    assert_non_null(label);
    for (uint32_t r = 0; r < world->size; r++)
        label[r] = r / (nodes * (world->size / world->nodes));
    assert_int_equal(twill_world_set_level(world, TWILL_LEVEL_GROUP, label, NULL), TWILL_OK);
    free(label);
}

/* Algorithms whose steps grow with the square of the ranks are too large above, and have one case
 * each. So have those that need groups of nodes, which the last world has. */
static void thousand_ranks(struct large *large)
{
    static const uint32_t grids[][2] = {{THOUSAND, 1}, {16, 64}, {1, THOUSAND}, {32, 32}};
    large->once = true;
    large->limit = 48u << 20;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(grids); i++) {
        struct twill_world world;
        grid_world(&world, grids[i][0], grids[i][1], false);
        if (i + 1 == TWILL_ARRAY_LENGTH(grids))
            set_groups(&world, 8);
        test_each_case(&world, 2, verify_large, large);
        twill_world_destroy(&world);
    }
}

TWILL_TEST(test_large_worlds)
{
    static const uint32_t grids[][2] = {{24, 1},  {48, 1},   {128, 1},  {400, 1}, {4392, 1},
                                        {24, 4},  {24, 64},  {400, 2},  {48, 16}, {1, 256},
                                        {68, 64}, {2196, 2}, {12, 366}, {1, 4392}};
    struct large *large = calloc(1, sizeof(*large));
    assert_non_null(large);
    large->random = test_seed();
    large->limit = !test_whole()                      ? (TEST_SLOW ? 20000 : 500000)
                   : getenv("TEST_ALGORITHM") == NULL ? 20u << 20
                                                      : UINT64_MAX;
    large->one_in = test_whole() ? 1 : TEST_SLOW ? 12 : 8;
    /* The last two, of very wide nodes, take long. */
    const size_t count = TWILL_ARRAY_LENGTH(grids) - (test_whole() ? 0 : 2);
    for (size_t i = 0; i < 2 * count + 2; i++) {
        struct twill_world world;
        const uint32_t *grid = grids[i / 2 % count];
        bool machines = i >= 2 * count;
        if (machines)
            machines_world(&world, i % 2 == 0 ? 1 : 5);
        else if (i % 2 == 0 || (grid[0] > 1 && grid[1] > 1))
            grid_world(&world, grid[0], grid[1], i % 2 != 0);
        else
            continue;
        if (machines)
            print_message("machines: %u ranks on %u nodes\n", world.size, world.nodes);
        test_each_case(&world, 2, verify_large, large);
        twill_world_destroy(&world);
    }
    if (!TEST_FEWER)
        thousand_ranks(large);
    unsigned failed = print_rows(large), mutants = large->mutants;
    const char *never = NULL;
    for (size_t a = 0; twill_algorithm_at(a) != NULL; a++)
        if (large->row[a].largest < THOUSAND)
            never = twill_algorithm_at(a)->name;
    free(large);
    if (never != NULL && !TEST_FEWER && getenv("TEST_ALGORITHM") == NULL)
        fail_msg("%s was not verified with %u ranks", never, THOUSAND);
    assert_int_equal(failed, 0);
    assert_true(mutants > 0);
}
