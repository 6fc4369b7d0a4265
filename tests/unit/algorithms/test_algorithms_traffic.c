/* SPDX-License-Identifier: Apache-2.0 */
/* Traffic on whole nodes of machines that are not at hand, from recorded topologies: bytes that
 * cross the slow links of each, counted from schedules. Not run on hardware.
 *
 * The minimum that crosses all links between units together, for messages of n bytes and d units
 * (packages, NUMA nodes, or whichever is the largest division of the node):
 *
 *   broadcast       (d-1) n    every unit but the root's receives the message once
 *   allgather       (d-1) n    every shard (n in all) reaches every unit but its own
 *   reduce_scatter  (d-1) n    every shard is reduced from d units' partials: d-1 of them move
 *   allreduce      2(d-1) n    every byte is reduced so, and then sent to d-1 units
 *
 * With two units n enters and leaves each; with d equal units 2n(d-1)/d, whatever the number of
 * ranks in each. Where every rank reads all others' memory, that times the ranks of a unit crosses.
 */
#include "algorithms/schedule/traffic.h"
#include "algorithms/select/tuning_file.h"
#include "tests/support/nodes.h"
#include "tests/support/unit.h"

#define MIB ((size_t)1 << 20)

/* --- the counter itself ----------------------------------------------------------------------- */

TWILL_TEST(test_counter)
{
    static const uint32_t one_node[4], numa[4] = {0, 0, 1, 1};
    struct twill_world world;
    assert_int_equal(twill_world_create(&world, 4, one_node, NULL), TWILL_OK);
    assert_int_equal(twill_world_set_level(&world, TWILL_LEVEL_NUMA, numa, NULL), TWILL_OK);
    struct twill_step steps[] = {
        /* 2 blocks of 64 bytes from the memory of ranks 0 (its own), 1, 2 and 3 */
        {.op = TWILL_STEP_REDUCE,
         .nsrc = 4,
         .blocks = 2,
         .dst = twill_operand_make(TWILL_TMP, 0),
         .src = twill_operand_make(TWILL_SHARED | TWILL_PEER, 0),
         .peer = {0, 1, 2, 3}},
        /* a block, a partial, into the memory of rank 3 */
        {.op = TWILL_STEP_COPY,
         .blocks = 1,
         .flags = TWILL_STEP_PARTIAL,
         .dst = twill_operand_make(TWILL_SHARED | TWILL_PEER, 1),
         .src = twill_operand_make(TWILL_TMP, 1),
         .peer = {3}},
        /* own memory, signals, receives: nothing */
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
                                           .shards = 1,
                                           .blocks = 4}};
    for (unsigned r = 1; r < 4; r++)
        schedules[r] = (struct twill_schedule){.lanes = 1, .shards = 1, .blocks = 4};
    /* f32; bf16 with partials of f32; bf16 with narrow ones */
    for (int narrow = 0; narrow < 3; narrow++) {
        uint64_t bytes[TWILL_LINK_COUNT] = {0}, link[4] = {0};
        size_t count = narrow ? 128 : 64; /* 256 bytes */
        twill_type type = narrow ? TWILL_BF16 : TWILL_F32;
        const struct twill_element_kind elements = {type, narrow == 2};
        uint64_t partial = narrow == 1 ? 128 : 64;
        for (uint32_t r = 0; r < 4; r++) {
            twill_traffic_by_class(bytes, &schedules[r], &world, r, count, elements);
            test_traffic_by_link(link, 2, numa, &schedules[r], r, count, elements);
        }
        assert_int_equal(bytes[TWILL_LINK_NUMA], 128 + 192);
        assert_int_equal(bytes[TWILL_LINK_NODE], 2 * 128 + partial);
        assert_int_equal(bytes[TWILL_LINK_PACKAGE], 0);
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

/* The traffic equals the costs of the schedule, for every schedule. */
static void check_sum(const struct test_case *test, void *user)
{
    unsigned *checked = user;
    struct twill_schedule *schedules = test_emit(test);
    for (uint32_t r = 0; r < test->world->size; r++) {
        struct test_schedule_cost cost;
        uint64_t sum = 0;
        test_schedule_cost(&cost, &schedules[r], test->world, r, 10080, 4);
        twill_traffic_each(&schedules[r], r, 10080, twill_wide_elements(TWILL_F32), add_up, &sum);
        assert_int_equal(sum, cost.bytes_sent + cost.bytes_shared);
    }
    (*checked)++;
    test_schedules_destroy(schedules, test->world->size);
}

TWILL_TEST(test_sums)
{
    unsigned checked = 0;
    test_each_case_of(7, 7, 1, check_sum, &checked);
    assert_true(checked > 100);
}

/* --- what is chosen --------------------------------------------------------------------------- */

static uint64_t least_traffic(enum twill_collective collective, uint32_t units, size_t bytes)
{
    return (collective == TWILL_ALLREDUCE ? 2 : 1) * (uint64_t)(units - 1) * bytes;
}

/* A large message crosses the links of a level no more often than necessary. */
static void check_least(const struct test_node *node, unsigned level, enum test_layout layout,
                        const struct test_case *test, const struct twill_schedule *schedules,
                        size_t bytes)
{
    uint32_t units = test_units(node, level);
    enum twill_collective collective = test->shape.collective;
    struct test_crossing sum = test_cross(node, level, schedules, bytes);
    uint64_t expected = least_traffic(collective, units, bytes);
    if (sum.all != expected)
        fail_msg("%s, layout %u: %s of %zu bytes from rank %u by %s@%s: %llu bytes cross level %u, "
                 "not %llu",
                 node->machine->text, layout, twill_collective_name(collective), bytes,
                 test->shape.root, test->algorithm->name, twill_protocol_name(test->shape.protocol),
                 (unsigned long long)sum.all, level, (unsigned long long)expected);
    /* And equally often for all links, where all units have as many ranks. */
    if (level == node->machine->slow && collective == TWILL_ALLREDUCE && layout != UNEVEN &&
        node->world->size % units == 0 && node->machine->cores != 6)
        assert_true(sum.most <= expected / units + expected / 1000);
}

/* At every level; a broadcast at the largest. */
static void check_levels(const struct test_node *node, enum test_layout layout,
                         const struct test_case *test, const struct twill_schedule *schedules,
                         size_t bytes)
{
    for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++)
        if (test_units(node, level) > 1 &&
            (level == node->machine->slow || test->shape.collective != TWILL_BROADCAST))
            check_least(node, level, layout, test, schedules, bytes);
}

static const enum twill_collective collectives[] = {TWILL_ALLREDUCE, TWILL_BROADCAST,
                                                    TWILL_ALLGATHER, TWILL_REDUCE_SCATTER};

/* With each of three roots if rooted, with mapped and with other memory. */
typedef void (*large_fn)(const struct test_node *node, enum test_layout layout,
                         struct test_case *test, size_t bytes, struct twill_chooser *chooser);

static void each_large(struct test_node *node, enum test_layout layout, large_fn fn,
                       struct twill_chooser *chooser)
{
    /* Divisible by all numbers of shards, so that all have one size. */
    size_t bytes = 64 * MIB / (256 * node->world->size) * 256 * node->world->size;
    for (size_t c = 0; c < TWILL_ARRAY_LENGTH(collectives); c++) {
        unsigned roots = twill_collective_facts(collectives[c])->rooted ? 3 : 1;
        for (unsigned i = 0; i < 2 * roots; i++) {
            struct test_case test = {.world = node->world};
            test.shape = (struct twill_shape){.collective = collectives[c],
                                              .protocol = i % 2 == 0 ? TWILL_PROTOCOL_STAGED
                                                                     : TWILL_PROTOCOL_MAPPED,
                                              .root = i / 2 * (node->world->size - 1) / 2};
            fn(node, layout, &test, bytes, chooser);
        }
    }
}

/* The composer achieves it. */
static void check_composed(const struct test_node *node, enum test_layout layout,
                           struct test_case *test, size_t bytes, struct twill_chooser *chooser)
{
    test->algorithm = test_algorithm_find("levels");
    if (!twill_algorithm_applies(test->algorithm, test->world, &test->shape)) {
        assert_int_equal(test->shape.collective, TWILL_BROADCAST); /* not over one level */
        return;
    }
    struct twill_schedule *schedules = test_emit(test);
    check_levels(node, layout, test, schedules, bytes);
    test_schedules_destroy(schedules, node->world->size);
}

/* Every block of an allreduce is completed once, by one rank, and equally many by each rank where
 * units are equal. */
static void check_completed(const struct test_node *node)
{
    struct test_case test = {.algorithm = test_algorithm_find("levels"), .world = node->world};
    test.shape.protocol = TWILL_PROTOCOL_MAPPED;
    struct twill_schedule *schedules = test_emit(&test);
    for (uint32_t r = 0; r < node->world->size; r++) {
        uint32_t completed = 0;
        for (uint32_t i = 0; i < schedules[r].count; i++)
            if ((schedules[r].steps[i].flags & TWILL_STEP_FINAL) != 0)
                completed += schedules[r].steps[i].blocks;
        assert_int_equal(completed, schedules[r].blocks / node->world->size);
    }
    test_schedules_destroy(schedules, node->world->size);
}

static void check_node_composed(struct test_node *node, enum test_layout layout, void *user)
{
    each_large(node, layout, check_composed, NULL);
    if (layout == EACH_CORE && node->machine->cores != 6)
        check_completed(node);
}

TWILL_TEST(test_composed)
{
    test_each_node(check_node_composed, NULL);
}

/* The composer is chosen where a unit has four ranks or more. With fewer, the links are hardly
 * slower than the cores' reads, and one more level would save no time. Then hardly more crosses
 * than if all ranks read all. */
static void check_chosen(const struct test_node *node, enum test_layout layout,
                         struct test_case *test, size_t bytes, struct twill_chooser *chooser)
{
    uint32_t units = test_units(node, node->machine->slow);
    struct test_case flat = {
        .algorithm = test_algorithm_find("direct"), .world = node->world, .shape = test->shape};
    test_choose(test, bytes, chooser);
    struct twill_schedule *chosen = test_emit(test), *all = test_emit(&flat);
    if (node->world->size >= 4 * units)
        check_levels(node, layout, test, chosen, bytes);
    uint64_t most = test_cross(node, node->machine->slow, all, bytes).all;
    assert_true(test_cross(node, node->machine->slow, chosen, bytes).all <= most + most / 16);
    test_schedules_destroy(chosen, node->world->size);
    test_schedules_destroy(all, node->world->size);
}

static void check_node_chosen(struct test_node *node, enum test_layout layout, void *user)
{
    struct twill_chooser *chooser;
    assert_int_equal(twill_chooser_create(&chooser, node->world, NULL, NULL, NULL), TWILL_OK);
    each_large(node, layout, check_chosen, chooser);
    twill_chooser_destroy(chooser);
}

TWILL_TEST(test_chosen)
{
    test_each_node(check_node_chosen, NULL);
}

/* --- groups of nodes -------------------------------------------------------------------------- */

/* Return the bytes of f32 that cross the links between groups in a call as it is chosen, or by the
 * algorithm that `requested` names. */
static uint64_t crossing_of_chosen(const struct twill_world *world, const char *machine,
                                   const struct twill_select_request *request,
                                   const char *requested)
{
    uint64_t by_class[TWILL_LINK_COUNT] = {0};
    struct twill_tuning tuning = {.model = *twill_machine_model_find(machine)};
    struct twill_chooser *chooser;
    struct twill_choice choice;
    assert_int_equal(twill_chooser_create(&chooser, world, &tuning, requested, NULL), TWILL_OK);
    assert_int_equal(twill_select(&choice, chooser, request, NULL), TWILL_OK);
    for (uint32_t r = 0; r < world->size; r++) {
        struct twill_schedule s;
        assert_int_equal(twill_schedule_emit(&s, choice.algorithm, world, r, &choice.shape, NULL),
                         TWILL_OK);
        twill_traffic_by_class(by_class, &s, world, r, request->bytes / 4,
                               twill_wide_elements(TWILL_F32));
        twill_schedule_destroy(&s);
    }
    twill_chooser_destroy(chooser);
    return by_class[TWILL_LINK_GROUP];
}

/* Check that what crosses is the least possible, (G-1) n with G groups in a broadcast or a reduce
 * and twice that in an allreduce, as with any other units, or at most a twentieth more. */
static void check_groups(const char *text, uint32_t groups, const char *machine,
                         const struct twill_select_request *request, const char *requested)
{
    struct twill_world world;
    unsigned times = request->collective == TWILL_ALLREDUCE ? 2 : 1;
    uint64_t least = (uint64_t)times * (groups - 1) * request->bytes;
    assert_int_equal(twill_world_declare(&world, text, NULL), TWILL_OK);
    uint64_t crossing = crossing_of_chosen(&world, machine, request, requested);
    if (crossing < least || crossing > (requested != NULL ? least : least / 20 * 21))
        fail_msg("%s on %s, %s: %llu bytes cross, at least %llu", machine, text,
                 twill_collective_name(request->collective), (unsigned long long)crossing,
                 (unsigned long long)least);
    twill_world_destroy(&world);
}

/* An allreduce crosses least, by rows within the groups or by a hierarchy. Their prices are near to
 * the best one, and the toll of these links decides. So it does in a broadcast or a reduce where
 * they are fewer than the nodes, or nodes have one rank. */
TWILL_TEST(test_groups)
{
    static const char *const machines[] = {"fattree4", "auto", "theta", "fattree"};
    static const struct {
        const char *text;
        uint32_t groups, ranks;
    } worlds[] = {{"groups=4,nodes=4,ranks=1", 4, 16},  {"groups=8,nodes=8,ranks=1", 8, 64},
                  {"groups=3,nodes=8,ranks=1", 3, 24},  {"groups=2,nodes=16,ranks=2", 2, 64},
                  {"groups=8,nodes=8,ranks=4", 8, 256}, {"groups=4,nodes=4,ranks=8", 4, 128}};
    for (size_t w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++) {
        struct twill_select_request request = {
            .collective = TWILL_ALLREDUCE, .bytes = 64 * MIB, .type = TWILL_F32};
        for (size_t m = 0; m < 2 * TWILL_ARRAY_LENGTH(machines) && worlds[w].ranks < 256; m++) {
            request.bytes = m % 2 == 0 ? MIB / 4 : 64 * MIB;
            check_groups(worlds[w].text, worlds[w].groups, machines[m / 2], &request, NULL);
        }
        request.bytes = 64 * MIB;
        for (unsigned reduces = 0; reduces < 2; reduces++) {
            request.collective = reduces != 0 ? TWILL_REDUCE : TWILL_BROADCAST;
            request.root = 0;
            check_groups(worlds[w].text, worlds[w].groups, machines[0], &request, NULL);
            request.bytes = MIB;
            if (w < 3) /* one rank on each node */
                check_groups(worlds[w].text, worlds[w].groups, "theta", &request, NULL);
            request.bytes = 64 * MIB;
            for (; request.root < worlds[w].ranks; request.root += 1 + worlds[w].ranks / 3)
                check_groups(worlds[w].text, worlds[w].groups, machines[0], &request, "groups");
        }
    }
}
