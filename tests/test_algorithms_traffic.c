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
 *   allreduce      2(d-1) n    every byte is folded so, and then told to d-1 units. With two units n
 *                              goes into and out of each; with d, where all units do alike,
 *                              2n(d-1)/d
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

/* How ranks are laid out. */
enum layout { EACH_CORE, ROUND_ROBIN, ONE_A_UNIT, UNEVEN, LAYOUT_COUNT };
static const char *const layout_names[] = {"one a core", "round robin", "one a unit", "uneven"};

/* Units of each level with a rank on each core; 0: not known. `slow` is the largest below the node
 * that there are several of. */
static const struct machine {
    const char *file;
    unsigned ranks, units[TWILL_LEVEL_NODE];
    twill_level slow;
} machines[] = {
    {"x86-Intel-Skylake-2xXeon6140.xml", 36, {36, 2, 2, 2}, TWILL_LEVEL_PACKAGE},
    {"x86-AMD-19h-Zen3-2xEpyc-7763.xml", 128, {128, 16, 2, 2}, TWILL_LEVEL_PACKAGE},
    {"linux-memorysidecaches.xml", 40, {40, 4, 4, 2}, TWILL_LEVEL_PACKAGE},
    {"linux-40intel64-2g2n4c+pci.xml", 40, {40, 4, 4, 4}, TWILL_LEVEL_PACKAGE},
    {"linux-32amd64-4s2n4c-cgroup2.xml", 6, {6, 6, 6, 3}, TWILL_LEVEL_PACKAGE},
    {"96em64t-4n4d3ca2co-pci.xml", 96, {48, 16, 4, 4}, TWILL_LEVEL_PACKAGE},
    {"vm-knl-snc4-flat.xml", 8, {8, 4, 4, 1}, TWILL_LEVEL_NUMA},
    {"vm-knl-quadrant-flat.xml", 4, {4, 1, 1, 1}, TWILL_LEVEL_TILE},
    {"linux-64intel64-fakeKNL-A2A-cache.xml", 16, {8, 0, 1, 1}, TWILL_LEVEL_TILE},
    {"x86-Intel-KnightsLanding-XeonPhi-7210.xml", 64, {32, 0, 1, 1}, TWILL_LEVEL_TILE},
};

struct node {
    struct twill_context context; /* its topology, config and world only */
    const struct machine *machine;
    enum layout layout;
    uint32_t units;       /* of the slow level that have ranks */
    const uint32_t *unit; /* of each rank */
};

/* The core that rank r runs on, of `cores`; units of the slow level are equal runs of cores. */
static unsigned core_of(const struct node *node, unsigned r, unsigned cores)
{
    unsigned units = node->machine->units[node->machine->slow], each = cores / units;
    switch (node->layout) {
    case ROUND_ROBIN:
        return r % units * each + r / units;
    case ONE_A_UNIT:
        return r * each;
    case UNEVEN: /* all of the last unit, of the others every third */
        return r * 3 < cores - each ? r * 3 : r - (cores - each + 2) / 3 + cores - each;
    default:
        return r;
    }
}

static unsigned ranks_of(const struct machine *machine, enum layout layout)
{
    unsigned cores = machine->ranks, units = machine->units[machine->slow];
    if (layout == ONE_A_UNIT)
        return units;
    return layout == UNEVEN ? (cores - cores / units + 2) / 3 + cores / units : cores;
}

static void open_node(struct node *node, const struct machine *machine, enum layout layout)
{
    struct twill_context *c = &node->context;
    struct twill_error error = {.status = TWILL_OK};
    *node = (struct node){.machine = machine, .layout = layout};
    unsigned ranks = ranks_of(machine, layout);
    uint32_t *label = calloc(ranks, sizeof(*label));
    struct twill_level_card *card = calloc(ranks, sizeof(*card));
    assert_true(label != NULL && card != NULL);
    c->topology = open_recorded(machine->file);
    unsigned cores = twill_topology_machine(c->topology)->cores;
    assert_int_equal(cores, machine->ranks);
    assert_int_equal(twill_config_load(&c->config, NULL, &error), TWILL_OK);
    assert_int_equal(twill_world_create(&c->world, ranks, label, &error), TWILL_OK);
    for (unsigned r = 0; r < ranks; r++) {
        char cpus[256];
        unsigned core = core_of(node, r, cores);
        assert_int_equal(twill_topology_locate(c->topology, NULL, &error), TWILL_OK);
        assert_int_equal(
            twill_topology_advise(c->topology, core, cores, cpus, sizeof(cpus), &error), TWILL_OK);
        assert_int_equal(twill_topology_locate(c->topology, cpus, &error), TWILL_OK);
        twill_levels_describe(c, &card[r]);
    }
    assert_int_equal(twill_levels_set(c, card), TWILL_OK);
    node->unit = c->world.unit[machine->slow];
    assert_non_null(node->unit);
    for (unsigned r = 0; r < ranks; r++)
        node->units = (uint32_t)twill_max(node->units, node->unit[r] + 1);
    free(label);
    free(card);
}

static void close_node(struct node *node)
{
    twill_world_destroy(&node->context.world);
    twill_config_destroy(&node->context.config);
    twill_topology_close(node->context.topology);
}

int main(void)
{
    for (size_t m = 0; m < TWILL_ARRAY_LENGTH(machines); m++)
        for (int layout = 0; layout < LAYOUT_COUNT; layout++) {
            struct node node;
            open_node(&node, &machines[m], (enum layout)layout);
            printf("%s %s: %u ranks", machines[m].file, layout_names[layout], node.context.world.size);
            for (int l = 0; l < TWILL_LEVEL_NODE; l++) {
                uint32_t u = 0;
                for (uint32_t r = 0; node.context.world.unit[l] && r < node.context.world.size; r++)
                    u = (uint32_t)twill_max(u, node.context.world.unit[l][r] + 1);
                printf(" %u", u);
            }
            printf("\n");
            static const enum twill_collective cs[] = {TWILL_ALLREDUCE, TWILL_REDUCE_SCATTER, TWILL_ALLGATHER, TWILL_BROADCAST};
            for (int c = 0; c < 4; c++) for (int mapped = 0; mapped < 2; mapped++) for (size_t bytes = 8; bytes <= 64 * MIB; bytes *= 64) {
                struct twill_chooser *chooser; struct twill_choice choice; struct twill_error error = {0};
                assert_int_equal(twill_chooser_create(&chooser, &node.context.world, NULL, NULL, &error), 0);
                struct twill_select_request q = {.collective = cs[c], .bytes = bytes, .mapped = mapped};
                assert_int_equal(twill_select(&choice, chooser, &q, &error), 0);
                struct test_case t = {.algorithm = choice.algorithm, .world = &node.context.world, .shape = choice.shape};
                struct twill_schedule *s = test_emit(&t);
                uint64_t by[TWILL_LINK_COUNT];
                twill_traffic_by_class(by, s, t.world, bytes / 4, TWILL_F32);
                printf("  %s %zu %d: %s@%s", twill_collective_name(cs[c]), bytes, mapped, choice.algorithm->name, twill_flavour_name(choice.shape.flavour));
                for (int l = 0; l < TWILL_LINK_COUNT; l++) printf(" %.3f", (double)by[l] / (double)bytes);
                printf("\n");
                test_schedules_destroy(s, t.world->size);
                twill_chooser_destroy(chooser);
            }
            close_node(&node);
        }
    return 0;
}
