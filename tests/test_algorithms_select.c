/* SPDX-License-Identifier: Apache-2.0 */
/* What is chosen, by itself and by wish, and what is refused. */
#include "tests/support/schedules.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void make_world(struct twill_world *world, const char *nodes)
{
    uint32_t label[64], size = 0;
    struct twill_error error = {.status = TWILL_OK};
    while (++size < 64 && twill_world_parse_nodes(nodes, size, label, NULL) != TWILL_OK)
        continue;
    assert_int_equal(twill_world_create(world, size, label, &error), TWILL_OK);
}

enum { A = TWILL_ALLREDUCE, B = TWILL_BROADCAST, N = TWILL_BARRIER };
#define KIB 1024ul

static twill_status choose(struct twill_choice *choice, const struct twill_world *world,
                           enum twill_collective collective, uint32_t root, size_t bytes,
                           bool mapped, const char *wanted, struct twill_error *error)
{
    struct twill_chooser *chooser;
    struct twill_select_request request = {
        .collective = collective, .root = root, .bytes = bytes, .mapped = mapped};
    TWILL_TRY(error, twill_chooser_create(&chooser, world, NULL, wanted, error));
    twill_status status = twill_select(choice, chooser, &request, error);
    twill_chooser_destroy(chooser);
    return status;
}

/* choice: "name@flavour", without the flavour where it does not matter; or "!" and part of the
 * message. */
static const struct {
    const char *nodes;
    int collective;
    size_t bytes;
    bool mapped;
    const char *wanted, *choice;
} table[] = {
    {"1", A, 8, false, NULL, "direct"},
    {"1", A, 0, false, NULL, "direct"},
    {"1", B, 1 << 20, true, NULL, "direct"},
    {"1", N, 0, false, NULL, "direct"},
    {"4", A, 0, false, NULL, "direct@imm"},
    {"4", A, 48, false, NULL, "direct@imm"},
    {"4", A, 49, false, NULL, "direct@flat"},
    {"4", A, 8 * KIB, true, NULL, "direct@flat"},
    {"4", A, 8 * KIB + 1, true, NULL, "direct@mapped"},
    {"4", A, 8 * KIB + 1, false, NULL, "direct@staged"},
    {"2", A, 4 * KIB, false, NULL, "direct@flat"},
    {"2", A, 4 * KIB + 1, false, NULL, "direct@staged"},
    {"7", A, 4 * KIB, false, NULL, "direct@flat"},
    {"7", A, 4 * KIB + 1, false, NULL, "direct@staged"},
    {"4", A, 16 * KIB, true, NULL, "direct@mapped"},
    {"4", A, 16 * KIB, false, NULL, "direct@staged"},
    {"4", A, 3221225472u, true, NULL, "direct@mapped"},
    {"4", B, 48, false, NULL, "direct@imm"},
    {"4", B, 49, false, NULL, "direct@staged"},
    {"4", B, 16 * KIB, true, NULL, "direct@mapped"},
    {"4", N, 0, false, NULL, "direct"},
    {"4x1", A, 8, false, NULL, "recursive_doubling"},
    {"4x1", A, 32 * KIB, false, NULL, "recursive_doubling"},
    {"4x1", A, 32 * KIB + 1, true, NULL, "ring"},
    {"4x1", B, 1 << 20, false, NULL, "tree"},
    {"4x1", N, 0, false, NULL, "recursive_doubling"},
    {"2x2", A, 8, false, NULL, "hierarchical:recursive_doubling@imm"},
    {"2x2", A, 4 * KIB, false, NULL, "hierarchical:recursive_doubling@flat"},
    {"2x2", A, 4 * KIB + 1, false, NULL, "hierarchical:recursive_doubling@staged"},
    {"2x2", A, 64 * KIB, false, NULL, "hierarchical:recursive_doubling@staged"},
    {"2x2", A, 64 * KIB + 4, false, NULL, "hierarchical:ring@staged"},
    {"2x2", A, 64 * KIB, true, NULL, "hierarchical:recursive_doubling@mapped"},
    {"1+3", A, 96 * KIB + 4, true, NULL, "hierarchical:ring@mapped"},
    {"2x2", B, 8, false, NULL, "hierarchical:tree@imm"},
    {"2x2", B, 800, false, NULL, "hierarchical:tree@staged"},
    {"2x2", N, 0, false, NULL, "hierarchical:recursive_doubling"},
    /* wishes */
    {"4", A, 8, false, "", "direct@imm"},
    {"4", A, 8, false, "auto", "direct@imm"},
    {"4", A, 8, false, "ring", "ring"},
    {"4", B, 8, false, "ring", "direct@imm"}, /* a ring does not broadcast: not meant */
    {"4", A, 8, false, "allreduce:ring", "ring"},
    {"4", B, 8, false, "allreduce:ring", "direct@imm"},
    {"4", A, 8, false, "allreduce:ring;broadcast:tree", "ring"},
    {"4", B, 8, false, "allreduce:ring;broadcast:tree", "tree"},
    {"4", A, 8, false, "ring;recursive_doubling", "recursive_doubling"},
    {"4", A, 8, false, "allreduce:ring;recursive_doubling", "ring"},
    {"4", N, 8, false, "allreduce:ring;recursive_doubling", "recursive_doubling"},
    {"4", A, 8, false, "recursive_doubling;allreduce:auto", "direct@imm"},
    {"4", A, 8, false, ";ring;", "ring"},
    {"4", A, 8, false, "direct@staged", "direct@staged"},
    {"4", A, 64 * KIB, true, "direct@flat", "direct@flat"},
    {"4", A, 8, true, "allreduce:direct@mapped", "direct@mapped"},
    {"2x2", A, 8, false, "hierarchical:ring", "hierarchical:ring@flat"},
    {"2x2", A, 8, false, "allreduce:hierarchical:ring@staged", "hierarchical:ring@staged"},
    {"2x2", A, 1 << 20, false, "ring", "ring"},
    /* refusals */
    {"4", A, 8, false, "rang", "!did you mean \"ring\""},
    {"4", A, 8, false, "recursive-doubling", "!did you mean \"recursive_doubling\""},
    {"4", A, 8, false, "fastest",
     "!\"fastest\" is not the name of an algorithm; for allreduce with 4 "
     "ranks on 1 nodes there are: direct, ring, recursive_doubling"},
    {"4", A, 8, false, "Ring", "!not the name"},
    {"4", A, 8, false, "allreduce:", "!not the name"},
    {"4", A, 8, false, "reduce:ring", "!not the name"},
    {"4", B, 8, false, "ring;broadcast:rinng", "!did you mean \"ring\""},
    {"4", B, 8, false, "allreduce:rinng", "!did you mean \"ring\""}, /* checked though not meant */
    {"4", B, 8, false, "broadcast:ring", "!does not apply"},
    {"2x2", A, 8, false, "direct", "!does not apply"},
    {"4", A, 8, false, "hierarchical:ring", "!does not apply"},
    {"4", A, 8, false, "direct@fast", "!unknown flavour"},
    {"4", A, 8, false, "direct@", "!unknown flavour"},
    {"4", A, 8, false, "ring@staged", "!no flavours"},
    {"4", A, 49, false, "direct@imm", "!at most 48 bytes"},
    {"4", A, 49, false, "direct@mapped", "!twill_alloc"},
    {"4", B, 49, false, "direct@flat", "!does not apply"},
    {"2x2", A, 8, false, "hierarchical:ring@imm", "!does not apply"},
};

static void test_table(void **state)
{
    (void)state;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++) {
        struct twill_world world;
        struct twill_choice choice;
        struct twill_error error = {.status = TWILL_OK};
        char got[sizeof(error.message)];
        make_world(&world, table[i].nodes);
        twill_status status = choose(&choice, &world, (enum twill_collective)table[i].collective, 0,
                                     table[i].bytes, table[i].mapped, table[i].wanted, &error);
        snprintf(got, sizeof(got), "%s", error.message);
        if (status == TWILL_OK)
            snprintf(got, sizeof(got), "%s%s%s", choice.algorithm->name,
                     strchr(table[i].choice, '@') ? "@" : "",
                     strchr(table[i].choice, '@') ? twill_flavour_name(choice.shape.flavour) : "");
        const char *refusal = table[i].choice[0] == '!' ? table[i].choice + 1 : NULL;
        bool right = refusal == NULL ? strcmp(got, table[i].choice) == 0
                                     : status == TWILL_ERR_CONFIG && strstr(got, refusal) != NULL &&
                                           strncmp(got, "TWILL_ALGORITHM", 15) == 0;
        if (!right)
            fail_msg("row %zu (%s, %s, %zu bytes, %s): %s, not %s", i, table[i].nodes,
                     twill_collective_name((enum twill_collective)table[i].collective),
                     table[i].bytes, table[i].wanted ? table[i].wanted : "-", got, table[i].choice);
        twill_world_destroy(&world);
    }
}

/* Whatever is chosen applies, can be emitted, and takes the bytes; and it is chosen again. */
static void test_all_choices_apply(void **state)
{
    (void)state;
    static const size_t sizes[] = {0,     1,     48,    49,     2048,     4097,
                                   16383, 16384, 32768, 100000, 1u << 20, 3221225472u};
    for (uint32_t size = 1; size <= 40; size++) {
        for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
            struct twill_world world;
            if (!test_world(&world, size, placement, 2))
                continue;
            for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(sizes) * TWILL_COLLECTIVE_COUNT * 2; i++) {
                struct twill_choice choice[2];
                struct twill_schedule schedule;
                size_t bytes = sizes[i / 2 / TWILL_COLLECTIVE_COUNT];
                for (int k = 0; k < 2; k++)
                    assert_int_equal(choose(&choice[k], &world,
                                            (enum twill_collective)(i / 2 % TWILL_COLLECTIVE_COUNT),
                                            size - 1, bytes, i % 2 != 0, NULL, NULL),
                                     TWILL_OK);
                assert_memory_equal(&choice[0].shape, &choice[1].shape, sizeof(choice[0].shape));
                assert_ptr_equal(choice[0].algorithm, choice[1].algorithm);
                assert_true(twill_algorithm_applies(choice[0].algorithm, &world, &choice[0].shape));
                assert_int_equal(twill_schedule_emit(&schedule, choice[0].algorithm, &world, 0,
                                                     &choice[0].shape, NULL),
                                 TWILL_OK);
                assert_true(!schedule.uses_imm || bytes <= TWILL_IMM_BYTES);
                assert_true(i % 2 != 0 || (!schedule.uses_peer_src && !schedule.uses_peer_dst));
                twill_schedule_destroy(&schedule);
            }
            twill_world_destroy(&world);
        }
    }
}

static void test_registry(void **state)
{
    (void)state;
    const struct twill_algorithm *a;
    size_t count = 0;
    for (; (a = twill_algorithm_at(count)) != NULL; count++) {
        assert_ptr_equal(twill_algorithm_find(a->name), a);
        assert_true(strlen(a->help) > 10);
        assert_true(a->collectives != 0 && a->collectives >> TWILL_COLLECTIVE_COUNT == 0);
        assert_true(a->flavours >> TWILL_FLAVOUR_COUNT == 0);
    }
    assert_true(count >= 7);
    assert_null(twill_algorithm_find("none"));
    /* Emitting says no, it does not crash. */
    struct twill_world world;
    struct twill_schedule schedule;
    struct twill_error error = {.status = TWILL_OK};
    struct twill_shape shape = {.collective = TWILL_BROADCAST, .root = 4};
    make_world(&world, "4");
    assert_int_equal(
        twill_schedule_emit(&schedule, twill_algorithm_find("tree"), &world, 0, &shape, &error),
        TWILL_ERR_UNSUPPORTED);
    shape.root = 0;
    assert_int_equal(
        twill_schedule_emit(&schedule, twill_algorithm_find("tree"), &world, 4, &shape, NULL),
        TWILL_ERR_ARGUMENT);
    assert_int_equal(
        twill_schedule_emit(&schedule, twill_algorithm_find("ring"), &world, 0, &shape, NULL),
        TWILL_ERR_UNSUPPORTED);
    assert_null(schedule.steps);
    twill_world_destroy(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_all_choices_apply),
        cmocka_unit_test(test_registry),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
