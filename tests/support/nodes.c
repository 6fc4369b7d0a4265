/* SPDX-License-Identifier: Apache-2.0 */
/* Whole nodes from recorded topologies. */
#include "tests/support/nodes.h"
#include "algorithms/schedule/traffic.h"
#include "lib/job/find_levels.h"
#include "tests/support/machines.h"

#include <stdlib.h>
#include <string.h>

static const struct test_machine machines[] = {
    {"x86-Intel-Skylake-2xXeon6140.xml", 36, {36, 2, 2, 2}, TWILL_LEVEL_PACKAGE},
    {"x86-AMD-19h-Zen3-2xEpyc-7763.xml", 128, {128, 16, 2, 2}, TWILL_LEVEL_PACKAGE},
    {"linux-memorysidecaches.xml", 40, {40, 4, 4, 2}, TWILL_LEVEL_PACKAGE}, /* 2 Xeons, SNC2 */
    {"linux-40intel64-2g2n4c+pci.xml", 40, {40, 4, 4, 4}, TWILL_LEVEL_PACKAGE},
    {"linux-32amd64-4s2n4c-cgroup2.xml", 6, {6, 2, 2, 1}, TWILL_LEVEL_NUMA},
    /* 16 packages, 4 to a NUMA node: see struct twill_units */
    {"96em64t-4n4d3ca2co-pci.xml", 96, {48, 16, 4, 4}, TWILL_LEVEL_PACKAGE},
    {"vm-knl-snc4-flat.xml", 8, {8, 4, 4, 1}, TWILL_LEVEL_NUMA},
    {"vm-knl-quadrant-flat.xml", 4, {4, 1, 1, 1}, TWILL_LEVEL_TILE},
    {"linux-64intel64-fakeKNL-A2A-cache.xml", 16, {8, 0, 1, 1}, TWILL_LEVEL_TILE},
    {"x86-Intel-KnightsLanding-XeonPhi-7210.xml", 64, {32, 0, 1, 1}, TWILL_LEVEL_TILE},
    /* not recorded: EPYC with four NUMA nodes to a package, and a whole KNL in SNC4 */
    {"pack:2 numa:4 l3:2 l2:8 core:1 pu:1", 128, {128, 16, 8, 2}, TWILL_LEVEL_PACKAGE},
    {"pack:1 numa:4 l2:8 core:2 pu:1", 64, {32, 0, 4, 1}, TWILL_LEVEL_NUMA},
};

/* A core, and its index inside its slow unit. */
struct core {
    char cpus[64];
    struct twill_level_info info;
    unsigned unit, place;
};

static void read_cores(struct twill_context *c, const struct test_machine *machine,
                       struct core *core)
{
    struct twill_error error = {.status = TWILL_OK};
    unsigned units = 0, count[TEST_MOST_CORES] = {0};
    for (unsigned i = 0; i < machine->cores; i++) {
        unsigned of = 0;
        assert_int_equal(twill_topology_locate(c->machine.topology, NULL, &error), TWILL_OK);
        assert_int_equal(twill_topology_advise(c->machine.topology, i, machine->cores, core[i].cpus,
                                               sizeof(core[i].cpus), &error),
                         TWILL_OK);
        assert_int_equal(twill_topology_locate(c->machine.topology, core[i].cpus, &error),
                         TWILL_OK);
        twill_levels_describe(c->machine.topology, NULL, &core[i].info);
        while (of < i && core[of].info.unit[machine->slow] != core[i].info.unit[machine->slow])
            of++;
        core[i].unit = of < i ? core[of].unit : units++;
        core[i].place = count[core[i].unit]++;
    }
    assert_int_equal(units, machine->units[machine->slow]);
}

/* Store the core of each rank; return the number of ranks. */
static uint32_t lay_out_ranks(const struct test_machine *machine, const struct core *core,
                              enum test_layout layout, unsigned *at)
{
    unsigned units = machine->units[machine->slow];
    uint32_t ranks = 0;
    uint64_t draw = 7;
    for (unsigned i = 0; i < machine->cores; i++)
        if (layout == EACH_CORE || layout == SHUFFLED ||
            (layout == UNEVEN && (core[i].unit + 1 == units || core[i].place % 3 == 0)))
            at[ranks++] = i;
    for (unsigned place = 0; place < (layout == ONE_A_UNIT ? 1 : machine->cores); place++)
        for (unsigned i = 0; i < machine->cores; i++)
            if ((layout == ROUND_ROBIN || layout == ONE_A_UNIT) && core[i].place == place)
                at[ranks++] = i;
    for (uint32_t r = ranks; r > 1 && layout == SHUFFLED; r--) {
        uint32_t other = test_draw(&draw, r);
        unsigned mine = at[r - 1];
        at[r - 1] = at[other];
        at[other] = mine;
    }
    return ranks;
}

static void open_node(struct test_node *node, const struct test_machine *machine,
                      enum test_layout layout)
{
    struct twill_context *c = &node->context;
    struct twill_error error = {.status = TWILL_OK};
    struct core core[TEST_MOST_CORES];
    struct twill_level_info info[TEST_MOST_CORES];
    unsigned at[TEST_MOST_CORES];
    static const uint32_t one_node[TEST_MOST_CORES];
    memset(node, 0, sizeof(*node));
    node->machine = machine;
    node->world = &c->job.world;
    if (strchr(machine->text, ' ') == NULL)
        c->machine.topology = open_recorded(machine->text);
    else
        assert_int_equal(twill_topology_open(&c->machine.topology, machine->text, &error),
                         TWILL_OK);
    assert_int_equal(twill_topology_machine(c->machine.topology)->cores, machine->cores);
    read_cores(c, machine, core);
    uint32_t ranks = lay_out_ranks(machine, core, layout, at);
    for (uint32_t r = 0; r < ranks; r++)
        info[r] = core[at[r]].info;
    c->config = &node->config;
    assert_int_equal(twill_config_load(c->config, NULL, &error), TWILL_OK);
    assert_int_equal(twill_world_create(&c->job.world, ranks, one_node, &error), TWILL_OK);
    assert_int_equal(twill_levels_find(&c->job.world, info, &error), TWILL_OK);
}

static void close_node(struct test_node *node)
{
    twill_world_destroy(&node->context.job.world);
    twill_config_destroy(node->context.config);
    twill_topology_close(node->context.machine.topology);
}

uint32_t test_units(const struct test_node *node, unsigned level)
{
    const struct twill_world *world = node->world;
    uint32_t units = 0;
    for (uint32_t r = 0; world->unit[level] != NULL && r < world->size; r++)
        units = (uint32_t)twill_max(units, world->unit[level][r] + 1);
    return units;
}

void test_each_node(void (*fn)(struct test_node *node, enum test_layout layout, void *user),
                    void *user)
{
    for (size_t m = 0; m < TWILL_ARRAY_LENGTH(machines); m++) {
        for (unsigned layout = 0; layout < LAYOUT_COUNT; layout++) {
            struct test_node node;
            if (TEST_FEWER &&
                (machines[m].cores > 64 || (layout != EACH_CORE && layout != SHUFFLED)))
                continue;
            open_node(&node, &machines[m], (enum test_layout)layout);
            fn(&node, (enum test_layout)layout, user);
            close_node(&node);
        }
    }
}

struct by_link {
    uint64_t *bytes;
    uint32_t units;
    const uint32_t *unit;
};

static void add_to_link(void *user, uint32_t from, uint32_t to, uint64_t bytes)
{
    struct by_link *t = user;
    t->bytes[(size_t)t->unit[from] * t->units + t->unit[to]] += bytes;
}

void test_traffic_by_link(uint64_t *bytes, uint32_t units, const uint32_t *unit,
                          const struct twill_schedule *schedule, uint32_t rank, size_t count,
                          struct twill_element_kind elements)
{
    struct by_link t = {.bytes = bytes, .units = units, .unit = unit};
    twill_traffic_each(schedule, rank, count, elements, add_to_link, &t);
}

struct test_crossing test_cross(const struct test_node *node, unsigned level,
                                const struct twill_schedule *schedules, size_t bytes)
{
    uint32_t units = test_units(node, level);
    struct test_crossing sum = {0, 0};
    uint64_t *link = calloc((size_t)units * units, sizeof(*link));
    assert_non_null(link);
    for (uint32_t r = 0; r < node->world->size; r++)
        test_traffic_by_link(link, units, node->world->unit[level], &schedules[r], r, bytes / 4,
                             twill_wide_elements(TWILL_F32));
    for (uint32_t i = 0; i < units; i++) {
        uint64_t in = 0, out = 0;
        for (uint32_t j = 0; j < units; j++) {
            in += i != j ? link[(size_t)j * units + i] : 0;
            out += i != j ? link[(size_t)i * units + j] : 0;
        }
        sum.all += out;
        sum.most = twill_max(sum.most, twill_max(in, out));
    }
    free(link);
    return sum;
}

void test_choose(struct test_case *test, size_t bytes, struct twill_chooser *chooser)
{
    struct twill_choice choice;
    const struct twill_select_request request = {.collective = test->shape.collective,
                                                 .bytes = bytes,
                                                 .root = test->shape.root,
                                                 .mapped =
                                                     test->shape.protocol == TWILL_PROTOCOL_MAPPED,
                                                 .type = TWILL_F32};
    assert_int_equal(twill_select(&choice, chooser, &request, NULL), TWILL_OK);
    test->algorithm = choice.algorithm;
    test->shape = choice.shape;
}
