/* SPDX-License-Identifier: Apache-2.0 */
/* Whole nodes that we do not have, from recorded topologies, on paper: which levels are found, and
 * what crosses the slow links of each. Not run on hardware: bytes are counted from schedules.
 *
 * The least that has to cross, for messages of n bytes and d units (packages, or NUMA domains, or
 * what else the largest part of the node is), all links between units together:
 *
 *   broadcast       (d-1) n    every unit but the root's gets the message once
 *   allgather       (d-1) n    every part (n in all) gets to every unit but its own
 *   reduce_scatter  (d-1) n    every part is folded from d units' partials: d-1 of them move
 *   allreduce      2(d-1) n    every byte is folded so, and then told to d-1 units. With two units
 * n goes into and out of each; with d, where all units do alike, 2n(d-1)/d
 *
 * whatever the number of ranks in each. Where every rank reads all others' memory, what crosses is
 * that times the ranks of a unit. */
#include "algorithms/traffic.h"
#include "algorithms/tuning.h"
#include "lib/levels.h"
#include "tests/support/machines.h"
#include "tests/support/schedules.h"

#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1 << 20)

/* Units of each level that hwloc shows, with a rank on each core; 0: not known. `slow` is the
 * largest below the node that there are several of. */
static const struct machine {
    const char *text, *what;                 /* a recorded file, or hwloc's synthetic description */
    unsigned cores, units[TWILL_LEVEL_NODE]; /* tiles, L3 caches, NUMA domains, packages */
    twill_level slow;
} machines[] = {
    {"x86-Intel-Skylake-2xXeon6140.xml", "2 Xeon", 36, {36, 2, 2, 2}, TWILL_LEVEL_PACKAGE},
    {"x86-AMD-19h-Zen3-2xEpyc-7763.xml", "2 EPYC", 128, {128, 16, 2, 2}, TWILL_LEVEL_PACKAGE},
    {"linux-memorysidecaches.xml", "2 Xeon, SNC2", 40, {40, 4, 4, 2}, TWILL_LEVEL_PACKAGE},
    {"linux-40intel64-2g2n4c+pci.xml", "4 Xeon", 40, {40, 4, 4, 4}, TWILL_LEVEL_PACKAGE},
    {"linux-32amd64-4s2n4c-cgroup2.xml", "Opteron, 6 cores", 6, {6, 2, 2, 1}, TWILL_LEVEL_NUMA},
    /* 16 packages, 4 to a NUMA domain: see struct twill_units */
    {"96em64t-4n4d3ca2co-pci.xml", "4 x 4 Xeon", 96, {48, 16, 4, 4}, TWILL_LEVEL_PACKAGE},
    {"vm-knl-snc4-flat.xml", "KNL, SNC4, 8 cores", 8, {8, 4, 4, 1}, TWILL_LEVEL_NUMA},
    {"vm-knl-quadrant-flat.xml", "KNL, 4 cores", 4, {4, 1, 1, 1}, TWILL_LEVEL_TILE},
    {"linux-64intel64-fakeKNL-A2A-cache.xml", "KNL, A2A", 16, {8, 0, 1, 1}, TWILL_LEVEL_TILE},
    {"x86-Intel-KnightsLanding-XeonPhi-7210.xml", "KNL 7210", 64, {32, 0, 1, 1}, TWILL_LEVEL_TILE},
    /* not recorded: EPYC with four NUMA domains to a package, and a whole KNL in SNC4 */
    {"pack:2 numa:4 l3:2 l2:8 core:1 pu:1",
     "2 EPYC, NPS4",
     128,
     {128, 16, 8, 2},
     TWILL_LEVEL_PACKAGE},
    {"pack:1 numa:4 l2:8 core:2 pu:1", "KNL, SNC4", 64, {32, 0, 4, 1}, TWILL_LEVEL_NUMA},
};
enum { MOST_CORES = 128 };

/* How ranks are laid out: core by core; core by core of each unit in turn; one a unit; all cores of
 * the last unit and every third of others; on cores drawn by chance. */
enum layout { EACH_CORE, ROUND_ROBIN, ONE_A_UNIT, UNEVEN, SHUFFLED, LAYOUT_COUNT };

struct node {
    struct twill_context context; /* its topology, config and world only */
    struct twill_world *world;
    const struct machine *machine;
};

/* Of a core: where it is, and the how manieth core of its slow unit. */
struct core {
    char cpus[64];
    struct twill_level_card card;
    unsigned unit, place;
};

static void read_cores(struct twill_context *c, const struct machine *machine, struct core *core)
{
    struct twill_error error = {.status = TWILL_OK};
    unsigned units = 0, count[MOST_CORES] = {0};
    for (unsigned i = 0; i < machine->cores; i++) {
        unsigned of = 0;
        assert_int_equal(twill_topology_locate(c->topology, NULL, &error), TWILL_OK);
        assert_int_equal(twill_topology_advise(c->topology, i, machine->cores, core[i].cpus,
                                               sizeof(core[i].cpus), &error),
                         TWILL_OK);
        assert_int_equal(twill_topology_locate(c->topology, core[i].cpus, &error), TWILL_OK);
        twill_levels_describe(c, &core[i].card);
        while (of < i && core[of].card.unit[machine->slow] != core[i].card.unit[machine->slow])
            of++;
        core[i].unit = of < i ? core[of].unit : units++;
        core[i].place = count[core[i].unit]++;
    }
    assert_int_equal(units, machine->units[machine->slow]);
}

/* Which core each rank is on; returns how many ranks. */
static uint32_t lay_out(const struct machine *machine, const struct core *core, enum layout layout,
                        unsigned *at)
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

static void open_node(struct node *node, const struct machine *machine, enum layout layout)
{
    struct twill_context *c = &node->context;
    struct twill_error error = {.status = TWILL_OK};
    struct core core[MOST_CORES];
    struct twill_level_card card[MOST_CORES];
    unsigned at[MOST_CORES];
    static const uint32_t one_node[MOST_CORES];
    memset(node, 0, sizeof(*node));
    node->machine = machine;
    node->world = &c->world;
    if (strchr(machine->text, ' ') == NULL)
        c->topology = open_recorded(machine->text);
    else
        assert_int_equal(twill_topology_open(&c->topology, machine->text, &error), TWILL_OK);
    assert_int_equal(twill_topology_machine(c->topology)->cores, machine->cores);
    read_cores(c, machine, core);
    uint32_t ranks = lay_out(machine, core, layout, at);
    for (uint32_t r = 0; r < ranks; r++)
        card[r] = core[at[r]].card;
    assert_int_equal(twill_config_load(&c->config, NULL, &error), TWILL_OK);
    assert_int_equal(twill_world_create(&c->world, ranks, one_node, &error), TWILL_OK);
    assert_int_equal(twill_levels_set(c, card), TWILL_OK);
}

static void close_node(struct node *node)
{
    twill_world_destroy(&node->context.world);
    twill_config_destroy(&node->context.config);
    twill_topology_close(node->context.topology);
}

static uint32_t units_of(const struct twill_world *world, unsigned level)
{
    uint32_t units = 0;
    for (uint32_t r = 0; world->unit[level] != NULL && r < world->size; r++)
        units = (uint32_t)twill_max(units, world->unit[level][r] + 1);
    return units;
}

static void each_node(void (*fn)(struct node *node, enum layout layout, void *user), void *user)
{
    for (size_t m = 0; m < TWILL_ARRAY_LENGTH(machines); m++) {
        for (unsigned layout = 0; layout < LAYOUT_COUNT; layout++) {
            struct node node;
            open_node(&node, &machines[m], (enum layout)layout);
            fn(&node, (enum layout)layout, user);
            close_node(&node);
        }
    }
}

/* --- levels ----------------------------------------------------------------------------------- */

static void check_levels(struct node *node, enum layout layout, void *user)
{
    (void)user;
    for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++) {
        uint32_t units = units_of(node->world, level), wanted = node->machine->units[level];
        bool all = layout != ONE_A_UNIT && layout != UNEVEN; /* cores have ranks */
        if (all ? units != wanted : units > wanted)
            fail_msg("%s: %u units of level %u, not %u", node->machine->text, units, level, wanted);
    }
    assert_int_equal(units_of(node->world, node->machine->slow),
                     node->machine->units[node->machine->slow]);
}

static void test_levels(void **state)
{
    (void)state;
    each_node(check_levels, NULL);
}

/* --- the counter itself ----------------------------------------------------------------------- */

static void test_counter(void **state)
{
    (void)state;
    static const uint32_t one_node[4], numa[4] = {0, 0, 1, 1};
    struct twill_world world;
    assert_int_equal(twill_world_create(&world, 4, one_node, NULL), TWILL_OK);
    assert_int_equal(twill_world_set_level(&world, TWILL_LEVEL_NUMA, numa, NULL), TWILL_OK);
    struct twill_step steps[] = {
        /* 2 blocks of 64 bytes out of the memory of ranks 0 (its own), 1, 2 and 3 */
        {.op = TWILL_STEP_REDUCE,
         .nsrc = 4,
         .blocks = 2,
         .dst = twill_operand_make(TWILL_TMP, 0),
         .src = twill_operand_make(TWILL_SHARED | TWILL_PEER, 0),
         .peer = {0, 1, 2, 3}},
        /* a block, a partial, into that of rank 3 */
        {.op = TWILL_STEP_COPY,
         .blocks = 1,
         .flags = TWILL_STEP_PARTIAL,
         .dst = twill_operand_make(TWILL_SHARED | TWILL_PEER, 1),
         .src = twill_operand_make(TWILL_TMP, 1),
         .peer = {3}},
        /* own memory, signals, what is received: nothing */
        {.op = TWILL_STEP_COPY, .blocks = 4, .dst = twill_operand_make(TWILL_DST, 0)},
        {.op = TWILL_STEP_SIGNAL},
        {.op = TWILL_STEP_AWAIT, .nsrc = 1, .ordinal = 1, .peer = {3}},
        {.op = TWILL_STEP_RECV, .blocks = 4, .dst = twill_operand_make(TWILL_DST, 0), .peer = {2}},
        {.op = TWILL_STEP_SEND, .blocks = 3, .src = twill_operand_make(TWILL_DST, 0), .peer = {1}},
    };
    struct twill_schedule schedules[4] = {{.steps = steps,
                                           .lane_first = {0, 7, 7, 7, 7},
                                           .lanes = 1,
                                           .count = TWILL_ARRAY_LENGTH(steps),
                                           .parts = 1,
                                           .blocks = 4}};
    for (unsigned r = 1; r < 4; r++)
        schedules[r] = (struct twill_schedule){.lanes = 1, .parts = 1, .blocks = 4};
    for (int narrow = 0; narrow < 2; narrow++) {
        uint64_t bytes[TWILL_LINK_COUNT], link[4];
        size_t count = narrow ? 128 : 64; /* 256 bytes */
        twill_type type = narrow ? TWILL_BF16 : TWILL_F32;
        uint64_t partial = narrow ? 128 : 64;
        twill_traffic_by_class(bytes, schedules, &world, count, type);
        assert_int_equal(bytes[TWILL_LINK_NUMA], 128 + 192);
        assert_int_equal(bytes[TWILL_LINK_NODE], 2 * 128 + partial);
        assert_int_equal(bytes[TWILL_LINK_PACKAGE], 0);
        twill_traffic_by_link(link, 2, numa, schedules, &world, count, type);
        assert_int_equal(link[0 * 2 + 0], 128 + 192);
        assert_int_equal(link[0 * 2 + 1], partial);
        assert_int_equal(link[1 * 2 + 0], 2 * 128);
        assert_int_equal(link[1 * 2 + 1], 0);
    }
    twill_world_destroy(&world);
}

static void add_up(void *user, uint32_t from, uint32_t to, uint64_t bytes)
{
    uint64_t *sum = user;
    assert_int_not_equal(from, to);
    *sum += bytes;
}

/* As much as the costs of a schedule say, whatever the schedule. */
static void check_sum(const struct test_case *test, void *user)
{
    unsigned *checked = user;
    struct twill_schedule *schedules = test_emit(test);
    for (uint32_t r = 0; r < test->world->size; r++) {
        struct twill_schedule_cost cost;
        uint64_t sum = 0;
        twill_schedule_cost(&cost, &schedules[r], test->world, r, 10080, 4);
        twill_traffic_each(&schedules[r], r, 10080, TWILL_F32, add_up, &sum);
        assert_int_equal(sum, cost.bytes_sent + cost.bytes_shared);
    }
    (*checked)++;
    test_schedules_destroy(schedules, test->world->size);
}

static void test_sums(void **state)
{
    (void)state;
    unsigned checked = 0;
    for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
        struct twill_world world;
        if (!test_world(&world, 7, placement, 7))
            continue;
        test_each_case(&world, 1, check_sum, &checked);
        twill_world_destroy(&world);
    }
    assert_true(checked > 100);
}

/* --- what is chosen --------------------------------------------------------------------------- */

/* Bytes from unit to unit of a level: all, and the most that one gets or gives. */
struct crossing {
    uint64_t all, most;
};

static struct crossing cross(const struct node *node, unsigned level,
                             const struct twill_schedule *schedules, size_t bytes)
{
    uint32_t units = units_of(node->world, level);
    struct crossing sum = {0, 0};
    uint64_t *link = calloc((size_t)units * units, sizeof(*link));
    assert_non_null(link);
    twill_traffic_by_link(link, units, node->world->unit[level], schedules, node->world, bytes / 4,
                          TWILL_F32);
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

static uint64_t least(enum twill_collective collective, uint32_t units, size_t bytes)
{
    return (collective == TWILL_ALLREDUCE ? 2 : 1) * (uint64_t)(units - 1) * bytes;
}

/* A large message crosses the links of a level no more often than it must. */
static void check_least(const struct node *node, unsigned level, enum layout layout,
                        const struct test_case *test, size_t bytes)
{
    uint32_t units = units_of(node->world, level);
    enum twill_collective collective = test->shape.collective;
    struct twill_schedule *schedules = test_emit(test);
    struct crossing sum = cross(node, level, schedules, bytes);
    uint64_t wanted = least(collective, units, bytes);
    if (sum.all != wanted)
        fail_msg("%s, layout %u: %s of %zu bytes from rank %u by %s@%s: %llu bytes cross level %u, "
                 "not %llu",
                 node->machine->text, layout, twill_collective_name(collective), bytes,
                 test->shape.root, test->algorithm->name, twill_flavour_name(test->shape.flavour),
                 (unsigned long long)sum.all, level, (unsigned long long)wanted);
    /* And alike for all of them, where all have as many ranks. */
    if (level == node->machine->slow && collective == TWILL_ALLREDUCE && layout != UNEVEN &&
        node->world->size % units == 0 && node->machine->cores != 6)
        assert_true(sum.most <= wanted / units + wanted / 1000);
    test_schedules_destroy(schedules, node->world->size);
}

static const enum twill_collective collectives[] = {TWILL_ALLREDUCE, TWILL_BROADCAST,
                                                    TWILL_ALLGATHER, TWILL_REDUCE_SCATTER};

/* From each of three roots, where there is one, with memory that is mapped and memory that is not.
 */
typedef void (*large_fn)(const struct node *node, enum layout layout, struct test_case *test,
                         size_t bytes, struct twill_chooser *chooser);

static void each_large(struct node *node, enum layout layout, large_fn fn,
                       struct twill_chooser *chooser)
{
    /* What all parts divide, so that none has a byte more. */
    size_t bytes = 64 * MIB / (256 * node->world->size) * 256 * node->world->size;
    for (size_t c = 0; c < TWILL_ARRAY_LENGTH(collectives); c++) {
        unsigned roots = twill_collective_facts(collectives[c])->rooted ? 3 : 1;
        for (unsigned i = 0; i < 2 * roots; i++) {
            struct test_case test = {.world = node->world};
            test.shape = (struct twill_shape){.collective = collectives[c],
                                              .flavour = i % 2 == 0 ? TWILL_FLAVOUR_STAGED
                                                                    : TWILL_FLAVOUR_MAPPED,
                                              .root = i / 2 * (node->world->size - 1) / 2};
            fn(node, layout, &test, bytes, chooser);
        }
    }
}

/* The composer does it, for every level; a broadcast for the largest. */
static void check_composed(const struct node *node, enum layout layout, struct test_case *test,
                           size_t bytes, struct twill_chooser *chooser)
{
    (void)chooser;
    bool broadcast = test->shape.collective == TWILL_BROADCAST;
    test->algorithm = twill_algorithm_find("levels");
    bool applies = twill_algorithm_applies(test->algorithm, test->world, &test->shape);
    assert_true(applies || broadcast); /* not over one level */
    for (unsigned level = 0; level < TWILL_LEVEL_NODE && applies; level++)
        if (units_of(node->world, level) > 1 && (level == node->machine->slow || !broadcast))
            check_least(node, level, layout, test, bytes);
}

static void check_node_composed(struct node *node, enum layout layout, void *user)
{
    (void)user;
    each_large(node, layout, check_composed, NULL);
}

static void test_composed(void **state)
{
    (void)state;
    each_node(check_node_composed, NULL);
}

static void choose(struct test_case *test, size_t bytes, struct twill_chooser *chooser)
{
    struct twill_choice choice;
    const struct twill_select_request request = {.collective = test->shape.collective,
                                                 .bytes = bytes,
                                                 .root = test->shape.root,
                                                 .mapped =
                                                     test->shape.flavour == TWILL_FLAVOUR_MAPPED,
                                                 .type = TWILL_F32};
    assert_int_equal(twill_select(&choice, chooser, &request, NULL), TWILL_OK);
    test->algorithm = choice.algorithm;
    test->shape = choice.shape;
}

/* It is chosen where a unit has four ranks and more. With fewer the links are hardly narrower than
 * what the cores read, and to meet at one level more costs as much as it saves: then no more
 * crosses than when all read all. */
static void check_chosen(const struct node *node, enum layout layout, struct test_case *test,
                         size_t bytes, struct twill_chooser *chooser)
{
    uint32_t units = units_of(node->world, node->machine->slow);
    struct test_case flat = {
        .algorithm = twill_algorithm_find("direct"), .world = node->world, .shape = test->shape};
    choose(test, bytes, chooser);
    for (unsigned level = 0; level < TWILL_LEVEL_NODE && node->world->size >= 4 * units; level++)
        if (units_of(node->world, level) > 1 &&
            (level == node->machine->slow || test->shape.collective != TWILL_BROADCAST))
            check_least(node, level, layout, test, bytes);
    struct twill_schedule *chosen = test_emit(test), *all = test_emit(&flat);
    assert_true(cross(node, node->machine->slow, chosen, bytes).all <=
                cross(node, node->machine->slow, all, bytes).all);
    test_schedules_destroy(chosen, node->world->size);
    test_schedules_destroy(all, node->world->size);
}

static void check_node_chosen(struct node *node, enum layout layout, void *user)
{
    (void)user;
    struct twill_chooser *chooser;
    assert_int_equal(twill_chooser_create(&chooser, node->world, NULL, NULL, NULL), TWILL_OK);
    each_large(node, layout, check_chosen, chooser);
    twill_chooser_destroy(chooser);
}

static void test_chosen(void **state)
{
    (void)state;
    each_node(check_node_chosen, NULL);
}

/* What a reader may want to see. */
static void print_row(struct node *node, enum layout layout, void *user)
{
    (void)user;
    size_t bytes = 64 * MIB / (256 * node->world->size) * 256 * node->world->size;
    uint32_t units = units_of(node->world, node->machine->slow);
    static const char *const names[] = {"direct", "levels"};
    double gib[2], most[2];
    if (layout != EACH_CORE)
        return;
    for (unsigned i = 0; i < 2; i++) {
        struct test_case test = {.algorithm = twill_algorithm_find(names[i]), .world = node->world};
        test.shape.flavour = TWILL_FLAVOUR_MAPPED;
        struct twill_schedule *schedules = test_emit(&test);
        struct crossing sum = cross(node, node->machine->slow, schedules, bytes);
        gib[i] = (double)sum.all / (double)MIB;
        most[i] = (double)sum.most / (double)MIB;
        test_schedules_destroy(schedules, node->world->size);
    }
    print_message("%-18s %5u %-7s %3u  %8.0f %8.0f  %8.0f %8.0f\n", node->machine->what,
                  node->world->size,
                  twill_link_class_name((enum twill_link_class)node->machine->slow), units, gib[0],
                  most[0], gib[1], most[1]);
}

static void test_table(void **state)
{
    (void)state;
    print_message(
        "allreduce of 64 MiB, a rank on each core: MiB between units, and the most one way "
        "of one\n%-18s %5s %-7s %3s  %8s %8s  %8s %8s\n",
        "machine", "ranks", "unit", "", "direct", "of one", "levels", "of one");
    each_node(print_row, NULL);
}

/* --- small messages --------------------------------------------------------------------------- */

/* Where a rank raises the flag that it is awaited for. */
static uint32_t raising(const struct twill_schedule *schedule, const struct twill_step *await)
{
    unsigned op = (await->flags & TWILL_STEP_IMM) != 0 ? TWILL_STEP_PUT_IMM : TWILL_STEP_SIGNAL;
    unsigned left = op == TWILL_STEP_PUT_IMM ? 1 : await->ordinal;
    for (uint32_t i = 0; i < schedule->count; i++)
        if (schedule->steps[i].op == op && --left == 0)
            return i;
    fail_msg("awaits what nobody raises");
    return 0;
}

/* How often in a row a rank waits for one of another unit, on the longest way to the end. */
static uint32_t count_turns(const struct node *node, const struct twill_schedule *schedules)
{
    static uint32_t depth[MOST_CORES][1024]; /* after each step, plus 1 */
    const uint32_t *unit = node->world->unit[node->machine->slow];
    uint32_t most = 0, size = node->world->size;
    memset(depth, 0, sizeof(depth));
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t r = 0; r < size; r++) {
            assert_true(schedules[r].lanes == 1 && schedules[r].count < 1024);
            for (uint32_t i = 0; i < schedules[r].count; i++) {
                const struct twill_step *step = &schedules[r].steps[i];
                uint32_t now = i > 0 ? depth[r][i - 1] : 1;
                assert_true(step->op >= TWILL_STEP_REDUCE && step->op != TWILL_STEP_WAIT);
                for (unsigned p = 0; p < step->nsrc && step->op == TWILL_STEP_AWAIT; p++) {
                    uint32_t peer = step->peer[p];
                    uint32_t then = depth[peer][raising(&schedules[peer], step)];
                    now = (uint32_t)twill_max(now, then + (unit[peer] != unit[r]));
                }
                moved = moved || now != depth[r][i];
                depth[r][i] = now;
                most = (uint32_t)twill_max(most, now - 1);
            }
        }
    }
    return most;
}

/* 8 bytes cross once: everybody shows what it has and looks at all others'. Of a broadcast's root
 * nobody may go before all have come: there and back. */
static void check_small(struct node *node, enum layout layout, void *user)
{
    (void)user;
    (void)layout;
    static const enum twill_collective small[] = {TWILL_ALLREDUCE, TWILL_ALLGATHER, TWILL_BARRIER,
                                                  TWILL_REDUCE_SCATTER, TWILL_BROADCAST};
    struct twill_chooser *chooser;
    assert_int_equal(twill_chooser_create(&chooser, node->world, NULL, NULL, NULL), TWILL_OK);
    for (size_t c = 0; c < TWILL_ARRAY_LENGTH(small); c++) {
        struct test_case test = {.world = node->world, .shape.collective = small[c]};
        choose(&test, small[c] == TWILL_BARRIER ? 0 : 8, chooser);
        struct twill_schedule *schedules = test_emit(&test);
        uint32_t turns = count_turns(node, schedules);
        if (turns != (small[c] == TWILL_BROADCAST ? 2 : 1))
            fail_msg("%s: %s by %s@%s: %u synchronisations cross in a row", node->machine->text,
                     twill_collective_name(small[c]), test.algorithm->name,
                     twill_flavour_name(test.shape.flavour), turns);
        test_schedules_destroy(schedules, node->world->size);
    }
    twill_chooser_destroy(chooser);
}

static void test_small(void **state)
{
    (void)state;
    each_node(check_small, NULL);
}

/* --- rings ------------------------------------------------------------------------------------ */

/* A ring leaves each unit of each level once, wherever ranks are; by rank, when they are shuffled,
 * it does so far more often. */
static void check_ring(struct node *node, enum layout layout, void *user)
{
    unsigned *better = user;
    const struct twill_world *world = node->world;
    struct test_case test = {.algorithm = twill_algorithm_find("ring"), .world = node->world};
    size_t bytes = (size_t)256 * world->size;
    if (!twill_algorithm_applies(test.algorithm, world, &test.shape))
        return;
    struct twill_schedule *schedules = test_emit(&test);
    for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++) {
        uint32_t units = units_of(world, level);
        if (units < 2)
            continue;
        assert_int_equal(twill_world_crossings(world->size, world->order, world->unit[level]),
                         units);
        assert_int_equal(cross(node, level, schedules, bytes).all,
                         units * 2 * (bytes - bytes / world->size));
        uint32_t plain = twill_world_crossings(world->size, world->member, world->unit[level]);
        assert_true(plain >= units);
        if (layout == SHUFFLED && world->size >= 8 * units) {
            assert_true(plain >= 3 * units);
            (*better)++;
        }
    }
    test_schedules_destroy(schedules, world->size);
}

static void test_ring(void **state)
{
    (void)state;
    unsigned better = 0;
    each_node(check_ring, &better);
    assert_true(better >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_levels), cmocka_unit_test(test_counter),
        cmocka_unit_test(test_sums),   cmocka_unit_test(test_composed),
        cmocka_unit_test(test_chosen), cmocka_unit_test(test_table),
        cmocka_unit_test(test_small),  cmocka_unit_test(test_ring),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
