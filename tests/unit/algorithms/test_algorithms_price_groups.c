/* SPDX-License-Identifier: Apache-2.0 */
/* Prices where the links between groups of nodes are fewer than the nodes. What they charge follows
 * from the bytes that share these links, and not from the number of messages that cross them. */
#include "algorithms/schedule/emit.h"
#include "algorithms/schedule/traffic.h"
#include "algorithms/select/candidates.h"
#include "algorithms/select/price_internal.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

#define KIB (size_t)1024
#define MIB (KIB * KIB)

static const struct twill_shape allreduce = {.collective = TWILL_ALLREDUCE};

static struct twill_world declared(const char *text)
{
    struct twill_world world;
    struct twill_error error = {.status = TWILL_OK};
    if (twill_world_declare(&world, text, &error) != TWILL_OK)
        fail_msg("%s: %s", text, error.message);
    return world;
}

/* Return the price of an allreduce when at most `steps` steps are run. */
static uint64_t price_of(const struct twill_world *world, const struct twill_algorithm *algorithm,
                         const struct twill_shape *shape, const struct twill_machine_model *model,
                         size_t bytes, uint64_t steps)
{
    struct twill_pricing *pricing;
    struct twill_error error = {.status = TWILL_OK};
    if (twill_pricing_create(&pricing, algorithm, world, shape, steps, &error) != TWILL_OK)
        return TWILL_PRICE_NEVER;
    uint64_t price = twill_pricing_at(pricing, model, bytes, twill_wide_elements(TWILL_F32));
    twill_pricing_destroy(pricing);
    return price;
}

/* Where only bytes cost. A ring crosses the links of a group once in each direction, so it fills
 * one link however many there are. In two of the four rounds of recursive doubling all four nodes
 * of a group send out of it, over `4 / ratio` links. */
TWILL_TEST(test_exact)
{
    struct twill_machine_model model = {.segment = 1 << 18, .segment_net = 1 << 22, .window = 4};
    struct twill_world world = declared("groups=4,nodes=4,ranks=1");
    const uint64_t once = 1000 * (MIB / KIB);
    model.link[TWILL_LINK_NETWORK].gap = model.link[TWILL_LINK_GROUP].gap = 1000;
    for (uint64_t ratio = 1; ratio <= 16; ratio *= 2) {
        uint64_t slower = ratio > 4 ? 4 : ratio; /* a group has one link at least */
        model.link[TWILL_LINK_GROUP].port = ratio * 1000;
        assert_int_equal(
            price_of(&world, test_algorithm_find("ring"), &allreduce, &model, MIB, UINT64_MAX),
            2 * once * 15 / 16);
        assert_int_equal(price_of(&world, test_algorithm_find("recursive_doubling"), &allreduce,
                                  &model, MIB, UINT64_MAX),
                         (2 + 2 * slower) * once);
    }
    twill_world_destroy(&world);
}

/* The bytes that leave each group, and that enter it. */
struct crossing {
    const uint32_t *group;
    uint64_t out[64], in[64];
};

static void add_crossing(void *user, uint32_t from, uint32_t to, uint64_t bytes)
{
    struct crossing *c = user;
    if (c->group[from] != c->group[to]) {
        c->out[c->group[from]] += bytes;
        c->in[c->group[to]] += bytes;
    }
}

/* Return the picoseconds in which the bytes of a call pass the links of the busiest group. */
static uint64_t least_time(const struct twill_world *world, const struct twill_candidate *candidate,
                           const struct twill_machine_model *model, size_t bytes)
{
    struct crossing c = {.group = world->unit[TWILL_LEVEL_GROUP]};
    uint32_t nodes[64] = {0};
    uint64_t most = 0;
    for (uint32_t n = 0; n < world->nodes; n++)
        nodes[c.group[twill_world_member(world, n, 0)]]++;
    for (uint32_t rank = 0; rank < world->size; rank++) {
        struct twill_schedule schedule;
        assert_int_equal(twill_schedule_emit_unchecked(&schedule, candidate->algorithm, world, rank,
                                                       &candidate->shape, NULL),
                         TWILL_OK);
        twill_traffic_each(&schedule, rank, bytes / 4, twill_wide_elements(TWILL_F32), add_crossing,
                           &c);
        twill_schedule_destroy(&schedule);
    }
    for (size_t g = 0; g < TWILL_ARRAY_LENGTH(nodes) && nodes[g] > 0; g++) {
        const struct twill_link_cost *link = &model->link[TWILL_LINK_GROUP];
        uint64_t rate = twill_min(link->port / nodes[g], link->gap);
        most = twill_max(most, twill_rate_time(rate, twill_max(c.out[g], c.in[g])));
    }
    return most;
}

static const char *const worlds[] = {"groups=4,nodes=6,ranks=1", "groups=2,nodes=4,ranks=4",
                                     "groups=3,nodes=12,ranks=2", "groups=16,nodes=8,ranks=1",
                                     "groups=4,nodes=24,ranks=1"};
static const char *const trees[] = {"fattree", "fattree2", "fattree4"};
static const size_t sizes[] = {64 * KIB, MIB, 16 * MIB};

/* Check one candidate. Its price, however it is computed, is not below what its bytes take on the
 * links of a group, and does not fall where links are fewer. Where lanes compete for a core it may
 * fall a little, as a message that comes later may let others go first. */
static void check_candidate(const char *text, const struct twill_world *world,
                            const struct twill_candidate *c)
{
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(sizes); s++) {
        uint64_t before = 0;
        for (size_t t = 0;
             t < TWILL_ARRAY_LENGTH(trees) && twill_candidate_competes(c, sizes[s], 0); t++) {
            const struct twill_machine_model *model = twill_machine_model_find(trees[t]);
            uint64_t price =
                price_of(world, c->algorithm, &c->shape, model, sizes[s], TWILL_PRICE_STEPS);
            uint64_t least = least_time(world, c, model, sizes[s]);
            if (price < least / 100 * 95 || price < before / 100 * 97)
                fail_msg("%s, %s: %s=%u of %zu bytes: %.1f us, with more links %.1f, the bytes "
                         "alone take %.1f",
                         text, trees[t], c->algorithm->name, c->shape.parameter[0], sizes[s],
                         (double)price / 1e6, (double)before / 1e6, (double)least / 1e6);
            before = price;
        }
    }
}

TWILL_TEST(test_bound)
{
    for (size_t w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++) {
        if (!test_whole() && (w + test_seed()) % 2 != 0)
            continue;
        struct twill_world world = declared(worlds[w]);
        struct twill_tuning tuning = {.model = *twill_machine_model_find("fattree4")};
        struct twill_select_request request = {.collective = TWILL_ALLREDUCE, .type = TWILL_F32};
        struct twill_candidates *all;
        assert_int_equal(twill_candidates_create(&all, &world, &tuning, &request, NULL, NULL, NULL),
                         TWILL_OK);
        for (size_t i = 0; i < all->count; i++)
            check_candidate(worlds[w], &world, &all->candidate[i]);
        twill_candidates_destroy(all);
        twill_world_destroy(&world);
    }
}

/* Check that a price that is computed from few ranks is near to that of running all of them. If a
 * single rank represents all, some of its messages cross groups where others' do not. */
static void check_few(const char *text, const struct twill_world *world,
                      const struct twill_algorithm *a, const char *tree)
{
    const struct twill_machine_model *model = twill_machine_model_find(tree);
    struct twill_pricing *pricing;
    if (twill_pricing_create(&pricing, a, world, &allreduce, 900, NULL) != TWILL_OK)
        return;
    unsigned percent = pricing->unit == TWILL_PRICE_NODE ? 25 : 40;
    uint64_t few = twill_pricing_at(pricing, model, MIB, twill_wide_elements(TWILL_F32));
    uint64_t whole = price_of(world, a, &allreduce, model, MIB, UINT64_MAX);
    twill_pricing_destroy(pricing);
    if (few > whole / 100 * (100 + percent) || few < whole / 100 * (100 - percent))
        fail_msg("%s, %s: %s of 1 MiB: %.1f us by few ranks, %.1f by all", text, tree, a->name,
                 (double)few / 1e6, (double)whole / 1e6);
}

TWILL_TEST(test_few)
{
    for (size_t w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++) {
        struct twill_world world = declared(worlds[w]);
        const struct twill_algorithm *a;
        for (size_t i = 0; (a = twill_algorithm_at(i)) != NULL; i++)
            for (size_t t = 0; t < TWILL_ARRAY_LENGTH(trees); t++)
                if (twill_algorithm_applies(a, &world, &allreduce) &&
                    (test_whole() || (w + t + test_seed()) % 3 == 0))
                    check_few(worlds[w], &world, a, trees[t]);
        twill_world_destroy(&world);
    }
}
