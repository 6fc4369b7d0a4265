/* SPDX-License-Identifier: Apache-2.0 */
/* Whole nodes of machines that are not at hand, from recorded topologies: the levels that are
 * found, how many synchronisations of small messages cross between units in a row, and how often a
 * ring crosses. Costs of large messages are in test_algorithms_traffic.c. Not run on hardware. */
#include "tests/support/nodes.h"
#include "tests/support/unit.h"

/* --- levels ----------------------------------------------------------------------------------- */

static void check_levels(struct test_node *node, enum test_layout layout, void *user)
{
    for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++) {
        uint32_t units = test_units(node, level), expected = node->machine->units[level];
        bool all = layout != ONE_A_UNIT && layout != UNEVEN; /* number of cores with ranks */
        if (all ? units != expected : units > expected)
            fail_msg("%s: %u units of level %u, not %u", node->machine->text, units, level,
                     expected);
    }
    assert_int_equal(test_units(node, node->machine->slow),
                     node->machine->units[node->machine->slow]);
}

TWILL_TEST(test_levels)
{
    test_each_node(check_levels, NULL);
}

/* --- small messages --------------------------------------------------------------------------- */

/* Return the step at which a rank raises the flag that is awaited. */
static uint32_t raising(const struct twill_schedule *schedule, const struct twill_step *await)
{
    unsigned op = (await->flags & TWILL_STEP_IMM) != 0 ? TWILL_STEP_PUT_IMM : TWILL_STEP_SIGNAL;
    unsigned left = op == TWILL_STEP_PUT_IMM ? 1 : await->ordinal;
    for (uint32_t i = 0; i < schedule->count; i++)
        if (schedule->steps[i].op == op && --left == 0)
            return i;
    fail_msg("awaits a flag that is never raised");
    return 0;
}

/* Return the SEND that matches a RECV of rank r, by its number in the channel. */
static uint32_t sending(const struct twill_schedule *schedules, uint32_t r, uint32_t recv)
{
    uint32_t peer = schedules[r].steps[recv].peer[0], before = 0;
    for (uint32_t i = 0; i < recv; i++) {
        const struct twill_step *step = &schedules[r].steps[i];
        before += (step->op == TWILL_STEP_RECV || step->op == TWILL_STEP_RECV_REDUCE) &&
                  step->peer[0] == peer;
    }
    for (uint32_t i = 0; i < schedules[peer].count; i++) {
        const struct twill_step *step = &schedules[peer].steps[i];
        if (step->op == TWILL_STEP_SEND && step->peer[0] == r && before-- == 0)
            return i;
    }
    fail_msg("receives a message that is never sent");
    return 0;
}

struct turns {
    const uint32_t *unit;
    const struct twill_schedule *schedules;
    uint32_t depth[TEST_MOST_CORES][1024]; /* after each step */
};

static uint32_t turn_after(const struct turns *t, uint32_t r, uint32_t peer, uint32_t step)
{
    return t->depth[peer][step] + (t->unit[peer] != t->unit[r]);
}

/* Return the number of synchronisations between units in the longest chain that leads to a step. */
static uint32_t depth_at(const struct turns *t, uint32_t r, uint32_t i)
{
    const struct twill_step *step = &t->schedules[r].steps[i];
    uint32_t now = i > 0 ? t->depth[r][i - 1] : 0;
    for (unsigned p = 0; p < step->nsrc && step->op == TWILL_STEP_AWAIT; p++) {
        uint32_t raised = raising(&t->schedules[step->peer[p]], step);
        now = (uint32_t)twill_max(now, turn_after(t, r, step->peer[p], raised));
    }
    for (uint32_t j = i; step->op == TWILL_STEP_WAIT && j-- > 0;) {
        const struct twill_step *posted = &t->schedules[r].steps[j];
        if (posted->op == TWILL_STEP_WAIT)
            break;
        if (posted->op == TWILL_STEP_RECV || posted->op == TWILL_STEP_RECV_REDUCE)
            now = (uint32_t)twill_max(
                now, turn_after(t, r, posted->peer[0], sending(t->schedules, r, j)));
    }
    return now;
}

/* Return the longest chain to the end of any rank. */
static uint32_t count_turns(const struct test_node *node, const struct twill_schedule *schedules)
{
    uint32_t most = 0;
    struct turns *t = calloc(1, sizeof(*t));
    assert_non_null(t);
    t->unit = node->world->unit[node->machine->slow];
    t->schedules = schedules;
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t r = 0; r < node->world->size; r++) {
            assert_true(schedules[r].lanes == 1 && schedules[r].count < 1024);
            for (uint32_t i = 0; i < schedules[r].count; i++) {
                uint32_t now = depth_at(t, r, i);
                moved = moved || now != t->depth[r][i];
                t->depth[r][i] = now;
                most = (uint32_t)twill_max(most, now);
            }
        }
    }
    free(t);
    return most;
}

/* 8 bytes cross once: every rank publishes its data and reads all others'. With more than 64 ranks
 * that is dearer than reducing within each unit first, and crossing there and back; and, for a
 * barrier, dearer than messages, of which three rounds may cross. A broadcast's root must not end
 * before all ranks have started: there and back. */
static uint32_t most_turns(const struct test_node *node, enum twill_collective collective)
{
    bool many = node->world->size > 32;
    if (collective == TWILL_BARRIER)
        return many ? 3 : 1;
    return collective == TWILL_BROADCAST || (collective == TWILL_ALLREDUCE && many) ? 2 : 1;
}

static void check_small(struct test_node *node, enum test_layout layout, void *user)
{
    static const enum twill_collective small[] = {TWILL_ALLREDUCE, TWILL_ALLGATHER, TWILL_BARRIER,
                                                  TWILL_REDUCE_SCATTER, TWILL_BROADCAST};
    struct twill_chooser *chooser;
    assert_int_equal(twill_chooser_create(&chooser, node->world, NULL, NULL, NULL), TWILL_OK);
    for (size_t c = 0; c < TWILL_ARRAY_LENGTH(small); c++) {
        struct test_case test = {.world = node->world, .shape.collective = small[c]};
        test_choose(&test, small[c] == TWILL_BARRIER ? 0 : 8, chooser);
        struct twill_schedule *schedules = test_emit(&test);
        uint32_t turns = count_turns(node, schedules);
        if (turns < 1 || turns > most_turns(node, small[c]))
            fail_msg("%s: %s by %s@%s: %u synchronisations cross in a row", node->machine->text,
                     twill_collective_name(small[c]), test.algorithm->name,
                     twill_protocol_name(test.shape.protocol), turns);
        test_schedules_destroy(schedules, node->world->size);
    }
    twill_chooser_destroy(chooser);
}

TWILL_TEST(test_small)
{
    test_each_node(check_small, NULL);
}

/* --- rings ------------------------------------------------------------------------------------ */

/* A ring leaves each unit of each level once, wherever ranks are; a ring by rank crosses far more
 * often if they are shuffled. */
static void check_ring(struct test_node *node, enum test_layout layout, void *user)
{
    unsigned *better = user;
    const struct twill_world *world = node->world;
    struct test_case test = {.algorithm = test_algorithm_find("ring"), .world = node->world};
    size_t bytes = (size_t)256 * world->size;
    if (!twill_algorithm_applies(test.algorithm, world, &test.shape))
        return;
    struct twill_schedule *schedules = test_emit(&test);
    for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++) {
        uint32_t units = test_units(node, level);
        if (units < 2)
            continue;
        assert_int_equal(test_crossings(world->size, world->order, world->unit[level]), units);
        assert_int_equal(test_cross(node, level, schedules, bytes).all,
                         units * 2 * (bytes - bytes / world->size));
        uint32_t plain = test_crossings(world->size, world->member, world->unit[level]);
        assert_true(plain >= units);
        if (layout == SHUFFLED && world->size >= 8 * units) {
            assert_true(plain >= 3 * units);
            (*better)++;
        }
    }
    test_schedules_destroy(schedules, world->size);
}

TWILL_TEST(test_ring)
{
    unsigned better = 0;
    test_each_node(check_ring, &better);
    assert_true(better >= 5);
}
