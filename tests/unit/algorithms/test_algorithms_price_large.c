/* SPDX-License-Identifier: Apache-2.0 */
/* Prices computed without running every rank: near to those of running every rank on worlds small
 * enough for both; and properties of prices and choices on worlds of any size. One case in two is
 * checked, or one in eight under sanitizers, whose turn it is by TEST_SEED; all with TEST_WHOLE. */
#include "algorithms/schedule/traffic.h"
#include "algorithms/select/candidates.h"
#include "algorithms/select/price_internal.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

#define KIB (size_t)1024
#define MIB (KIB * KIB)

struct priced_shape {
    uint32_t nodes, each;
};

typedef void (*each_shape_fn)(const struct twill_world *world, const struct twill_algorithm *a,
                              const struct twill_shape *shape, void *user);

/* Call fn for every algorithm, protocol and parameter that is a candidate without mapped buffers.
 * `like` has the collective, the order and whether shards differ in size. */
static void each_shape(const struct twill_world *world, const struct twill_shape *like,
                       each_shape_fn fn, void *user)
{
    static const uint16_t tried[] = {0, 2, 4, 8};
    const struct twill_algorithm *a;
    for (size_t i = 0; (a = twill_algorithm_at(i)) != NULL; i++) {
        unsigned protocols = a->protocols != 0 ? TWILL_PROTOCOL_MAPPED : 1;
        unsigned values = a->parameters == 1 && a->parse == NULL ? TWILL_ARRAY_LENGTH(tried) : 1;
        for (unsigned f = 0; f < protocols * values; f++) {
            struct twill_shape shape = *like;
            shape.protocol = (enum twill_protocol)(f / values);
            shape.parameter[0] = tried[f % values];
            if (twill_algorithm_applies(a, world, &shape))
                fn(world, a, &shape, user);
        }
    }
}

/* Return the built-in machine at this index, after the last one Theta with 64 threads a rank, then
 * NULL. */
static const struct twill_machine_model *machine_at(size_t index)
{
    static struct twill_machine_model threaded;
    if (twill_machine_model_at(index) != NULL || index == 0)
        return twill_machine_model_at(index);
    threaded = *twill_machine_model_find("theta");
    threaded.threads = 64;
    return twill_machine_model_at(index - 1) != NULL ? &threaded : NULL;
}

/* Return whether to skip a case. The worlds have no groups, so an oversubscribed fat tree is like
 * the whole one. */
static bool left_out(size_t machine, size_t number)
{
    const struct twill_machine_model *model = machine_at(machine);
    if (model->link[TWILL_LINK_NETWORK].gap != model->link[TWILL_LINK_GROUP].gap &&
        strncmp(model->name, "fattree", 7) == 0)
        return true;
    return !test_whole() && (machine + number + test_seed()) % (TEST_SLOW ? 8 : 2) != 0;
}

static struct twill_candidates *candidates_of(const struct twill_world *world,
                                              enum twill_collective collective,
                                              const struct twill_machine_model *model)
{
    struct twill_tuning tuning = {.model = *model};
    struct twill_select_request request = {.collective = collective, .type = TWILL_F32};
    struct twill_candidates *all;
    struct twill_error error = {.status = TWILL_OK};
    if (twill_candidates_create(&all, world, &tuning, &request, NULL, NULL, &error) != TWILL_OK)
        fail_msg("%s", error.message);
    return all;
}

/* Return what is chosen without mapped buffers. */
static const struct twill_candidate *chosen(const struct twill_candidates *all, size_t bytes)
{
    const struct twill_candidate *best = test_cheapest(all, bytes, 0);
    assert_non_null(best);
    return best;
}

/* --- near what all ranks take ----------------------------------------------------------------- */

static const size_t sizes[] = {512, 8 * KIB, 512 * KIB, 16 * MIB};
enum { PRICE_LARGE_SIZES = TWILL_ARRAY_LENGTH(sizes) };

static bool takes(const struct twill_algorithm *a, const struct twill_shape *shape, size_t bytes)
{
    return a->protocols == 0 || shape->protocol != TWILL_PROTOCOL_IMM || bytes <= TWILL_IMM_BYTES;
}

/* Every shape of a collective on a world, with its prices when all ranks are run. */
struct brute {
    const struct twill_machine_model *model;
    size_t count;
    struct exact {
        const struct twill_algorithm *algorithm;
        struct twill_shape shape;
        uint64_t price[PRICE_LARGE_SIZES];
    } of[128];
    uint64_t best[PRICE_LARGE_SIZES];
};

static void run_whole(const struct twill_world *world, const struct twill_algorithm *a,
                      const struct twill_shape *shape, void *user)
{
    struct brute *b = user;
    struct twill_pricing *pricing;
    /* These schedules are so long that running all ranks takes minutes. */
    if (world->size > 200 &&
        (strstr(a->name, "ring") == a->name || strstr(a->name, "multi") != NULL ||
         strstr(a->name, "pairwise") != NULL || strstr(a->name, "allgather_") != NULL))
        return;
    struct exact *e = &b->of[b->count++];
    assert_true(b->count <= TWILL_ARRAY_LENGTH(b->of));
    *e = (struct exact){.algorithm = a, .shape = *shape};
    assert_int_equal(twill_pricing_create(&pricing, a, world, shape, UINT64_MAX, NULL), TWILL_OK);
    for (size_t i = 0; i < PRICE_LARGE_SIZES; i++) {
        e->price[i] = takes(a, shape, sizes[i]) ? twill_pricing_at(pricing, b->model, sizes[i],
                                                                   twill_wide_elements(TWILL_F32))
                                                : TWILL_PRICE_NEVER;
        b->best[i] = e->price[i] < b->best[i] ? e->price[i] : b->best[i];
    }
    twill_pricing_destroy(pricing);
}

static void brute_force(struct brute *b, const struct twill_world *world,
                        enum twill_collective collective, const struct twill_machine_model *model)
{
    b->model = model;
    b->count = 0;
    memset(b->best, 0xff, sizeof(b->best));
    each_shape(world, &(struct twill_shape){.collective = collective}, run_whole, b);
}

/* Return whether a range of blocks may pass the end of a ring, and is two messages then. */
static bool wraps(const struct twill_algorithm *a)
{
    return strstr(a->name, "halving") != NULL || strstr(a->name, "bruck") != NULL;
}

/* Price with few steps allowed, as on a large world: prices below 1.5 times the best, exact or
 * estimated, are off by at most `percent`; where one node stands for all by at most 2 percent, or 8
 * where nodes split messages at different blocks. */
static void check_near(const struct brute *b, const struct twill_world *world, unsigned percent,
                       size_t *modes)
{
    for (size_t s = 0; s < b->count; s++) {
        const struct exact *e = &b->of[s];
        struct twill_pricing *pricing;
        if (twill_pricing_create(&pricing, e->algorithm, world, &e->shape, 900, NULL) != TWILL_OK)
            continue;
        modes[pricing->unit]++;
        const struct twill_pricing *sample = pricing->scale.sample[0];
        bool alone = (sample != NULL ? sample : pricing)->unit == TWILL_PRICE_RANKS;
        unsigned most_off = pricing->unit != TWILL_PRICE_NODE ? percent
                            : wraps(e->algorithm)             ? 8
                                                              : 2;
        for (size_t i = 0; i < PRICE_LARGE_SIZES && e->price[i] != TWILL_PRICE_NEVER; i++) {
            uint64_t price =
                twill_pricing_at(pricing, b->model, sizes[i], twill_wide_elements(TWILL_F32));
            uint64_t exact = e->price[i], off = price > exact ? price - exact : exact - price;
            uint64_t most = b->best[i] / 2 * 3;
            bool matters = !alone && (exact < most || price < most);
            if (matters && off > exact / 100 * most_off)
                fail_msg("%s on %ux%u, %s, %s=%u@%s of %zu bytes: %.1f us, all ranks run %.1f",
                         twill_collective_name(e->shape.collective), world->nodes,
                         world->size / world->nodes, b->model->name, e->algorithm->name,
                         e->shape.parameter[0], twill_protocol_name(e->shape.protocol), sizes[i],
                         (double)price / 1e6, (double)exact / 1e6);
        }
        twill_pricing_destroy(pricing);
    }
}

/* Check that the choice takes at most 5 percent longer than the best, by prices of all ranks. */
static void check_choice(const struct brute *b, const struct twill_world *world,
                         enum twill_collective collective)
{
    struct twill_candidates *all = candidates_of(world, collective, b->model);
    for (size_t i = 0; i < PRICE_LARGE_SIZES; i++) {
        const struct twill_candidate *c = chosen(all, sizes[i]);
        uint64_t price = TWILL_PRICE_NEVER;
        for (size_t s = 0; s < b->count; s++)
            if (b->of[s].algorithm == c->algorithm &&
                b->of[s].shape.protocol == c->shape.protocol &&
                b->of[s].shape.parameter[0] == c->shape.parameter[0])
                price = b->of[s].price[i];
        if (price > b->best[i] + b->best[i] / 20)
            fail_msg("%s of %zu bytes on %ux%u, %s: %s is chosen, %.1f us when all ranks are run, "
                     "the best %.1f",
                     twill_collective_name(collective), sizes[i], world->nodes,
                     world->size / world->nodes, b->model->name, c->algorithm->name,
                     (double)price / 1e6, (double)b->best[i] / 1e6);
    }
    twill_candidates_destroy(all);
}

/* Do this on several worlds for a set of collectives. modes: counts how prices were computed. */
static void compare_whole(const struct priced_shape *worlds, size_t count, unsigned collectives,
                          unsigned percent, size_t modes[TWILL_PRICE_SCALED + 1])
{
    struct brute *b = calloc(1, sizeof(*b));
    const struct twill_machine_model *model;
    assert_non_null(b);
    for (size_t m = 0; (model = machine_at(m)) != NULL; m++)
        for (size_t i = 0; i < count * TWILL_COLLECTIVE_COUNT; i++) {
            enum twill_collective collective = (enum twill_collective)(i % TWILL_COLLECTIVE_COUNT);
            const struct priced_shape *shape = &worlds[i / TWILL_COLLECTIVE_COUNT];
            struct twill_world world;
            if ((collectives >> collective & 1) == 0 || left_out(m, i))
                continue;
            test_grid(&world, shape->nodes, shape->each);
            brute_force(b, &world, collective, model);
            check_near(b, &world, percent, modes);
            if (world.size <= 200) /* all shapes have been run */
                check_choice(b, &world, collective);
            twill_world_destroy(&world);
        }
    free(b);
}

TWILL_TEST(test_brute_force)
{
    static const struct priced_shape worlds[] = {{4, 16}, {5, 4},  {6, 8},  {3, 12},
                                                 {12, 4}, {2, 24}, {17, 2}, {24, 2},
                                                 {31, 1}, {33, 1}, {64, 1}, {8, 8}};
    size_t modes[TWILL_PRICE_SCALED + 1] = {0};
    compare_whole(worlds, TWILL_ARRAY_LENGTH(worlds), ~(1u << TWILL_BARRIER), 5, modes);
    assert_true(modes[TWILL_PRICE_NODE] > (TEST_SLOW ? 12 : 50));
}

/* Worlds with too many ranks to run all of them in every test. */
TWILL_TEST(test_scaled)
{
    static const struct priced_shape worlds[] = {{33, 8}, {300, 1}, {72, 4}};
    size_t modes[TWILL_PRICE_SCALED + 1] = {0};
    compare_whole(worlds, TWILL_ARRAY_LENGTH(worlds),
                  1u << TWILL_ALLREDUCE | 1u << TWILL_BROADCAST | 1u << TWILL_REDUCE, 25, modes);
    assert_true(modes[TWILL_PRICE_SCALED] > (TEST_SLOW ? 2 : 10));
}

/* --- of any size ------------------------------------------------------------------------------ */

static const struct priced_shape large_worlds[] = {{4, 40},  {4, 41},   {3, 40},  {2, 64},
                                                   {16, 64}, {48, 64},  {64, 64}, {128, 64},
                                                   {384, 1}, {686, 64}, {4392, 1}};

static void check_priced(const struct twill_world *world, const struct twill_algorithm *a,
                         const struct twill_shape *shape, void *user)
{
    struct twill_pricing *pricing;
    (void)user;
    if (twill_pricing_create(&pricing, a, world, shape, TWILL_PRICE_STEPS, NULL) != TWILL_OK)
        fail_msg("%s on %ux%u: %s=%u@%s in order %d has no price",
                 twill_collective_name(shape->collective), world->nodes, world->node_size[0],
                 a->name, shape->parameter[0], twill_protocol_name(shape->protocol),
                 (int)shape->order);
    twill_pricing_destroy(pricing);
}

/* Every algorithm has a price wherever it applies. Without one it would never be chosen. */
TWILL_TEST(test_all_priced)
{
    static const struct priced_shape worlds[] = {{1, 1024}, {3, 3},    {48, 32},   {48, 64},
                                                 {97, 7},   {128, 48}, {1000, 64}, {65535, 1}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(worlds); i++) {
        struct twill_world world;
        if (left_out(0, i))
            continue;
        test_grid(&world, worlds[i].nodes, worlds[i].each);
        for (unsigned n = 0; n < TWILL_COLLECTIVE_COUNT * TWILL_ORDER_COUNT * 2; n++) {
            struct twill_shape like = {.collective =
                                           (enum twill_collective)(n % TWILL_COLLECTIVE_COUNT),
                                       .order = (enum twill_order)(n / TWILL_COLLECTIVE_COUNT / 2),
                                       .vector = n / TWILL_COLLECTIVE_COUNT % 2 != 0};
            const struct twill_collective_facts *facts = twill_collective_facts(like.collective);
            if ((facts->reduces || like.order == TWILL_ORDER_ANY) &&
                (facts->sharded || !like.vector))
                each_shape(&world, &like, check_priced, NULL);
        }
        twill_world_destroy(&world);
    }
}

struct off_node {
    const struct twill_world *world;
    uint64_t bytes;
};

static void add_off_node(void *user, uint32_t from, uint32_t to, uint64_t bytes)
{
    struct off_node *off = user;
    off->bytes += off->world->node[from] != off->world->node[to] ? bytes : 0;
}

/* Return the bytes that the ranks of the middle node send to other nodes in a call of `bytes`. */
static uint64_t off_node(const struct twill_world *world, const struct twill_candidate *c,
                         size_t bytes)
{
    struct off_node off = {.world = world};
    uint32_t node = world->nodes / 2;
    for (uint32_t l = 0; l < world->node_size[node]; l++) {
        struct twill_schedule schedule;
        uint32_t rank = twill_world_member(world, node, l);
        assert_int_equal(twill_schedule_emit(&schedule, c->algorithm, world, rank, &c->shape, NULL),
                         TWILL_OK);
        twill_traffic_each(&schedule, rank, bytes / 4, twill_wide_elements(TWILL_F32), add_off_node,
                           &off);
        twill_schedule_destroy(&schedule);
    }
    return off.bytes;
}

/* Check that with eight or more ranks a node the choice above 64 KiB is hierarchical, and that the
 * message leaves a node at most twice, or once a round while it is small enough for recursive
 * doubling. */
static void check_hierarchical(const struct twill_world *world, const struct twill_candidates *all,
                               const char *model)
{
    uint32_t rounds = 1;
    while (1u << rounds < world->nodes)
        rounds++;
    for (size_t bytes = 128 * KIB; bytes <= 256 * MIB; bytes *= 2) {
        const struct twill_candidate *c = chosen(all, bytes);
        uint64_t off = off_node(world, c, bytes);
        if (c->algorithm->protocols == 0 || off > (bytes > MIB ? 2 : rounds) * (uint64_t)bytes)
            fail_msg("%ux%u, %s: %s is chosen for %zu bytes, and sends %llu off a node",
                     world->nodes, world->node_size[0], model, c->algorithm->name, bytes,
                     (unsigned long long)off);
    }
}

/* Check that a price is no less than what the bytes leaving a node take on its interface, up to the
 * rounding of rates. */
static void check_bound(const struct twill_world *world, const struct twill_candidate *c,
                        const struct twill_machine_model *model)
{
    if (!twill_candidate_competes(c, MIB, ~0u))
        return;
    uint64_t off = off_node(world, c, MIB) / KIB;
    for (size_t bytes = MIB; twill_candidate_competes(c, bytes, ~0u) && bytes <= 256 * MIB;
         bytes *= 16)
        if (twill_candidate_cost(c, bytes) < model->interface * off / 1000 * 999 * (bytes / MIB))
            fail_msg("%ux%u, %s: %s@%d of %zu bytes costs %.1f us, its interface takes %.1f",
                     world->nodes, world->node_size[0], model->name, c->algorithm->name,
                     (int)c->shape.protocol, bytes, (double)twill_candidate_cost(c, bytes) / 1e6,
                     (double)(model->interface * off * (bytes / MIB)) / 1e6);
}

TWILL_TEST(test_interface)
{
    const struct twill_machine_model *model;
    for (size_t m = 0; (model = twill_machine_model_at(m)) != NULL; m++)
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(large_worlds); i++) {
            if (left_out(m, i))
                continue;
            struct twill_world world;
            test_grid(&world, large_worlds[i].nodes, large_worlds[i].each);
            struct twill_candidates *all = candidates_of(&world, TWILL_ALLREDUCE, model);
            if (large_worlds[i].each >= 8)
                check_hierarchical(&world, all, model->name);
            for (size_t s = 0; s < all->count; s++)
                check_bound(&world, &all->candidate[s], model);
            twill_candidates_destroy(all);
            twill_world_destroy(&world);
        }
}

static void shapes_best(uint64_t best[PRICE_LARGE_SIZES], const struct priced_shape *shape,
                        const struct twill_machine_model *model)
{
    struct twill_world world;
    test_grid(&world, shape->nodes, shape->each);
    struct twill_candidates *all = candidates_of(&world, TWILL_ALLREDUCE, model);
    for (size_t i = 0; i < PRICE_LARGE_SIZES; i++)
        best[i] = twill_candidate_cost(chosen(all, sizes[i]), sizes[i]);
    twill_candidates_destroy(all);
    twill_world_destroy(&world);
}

/* Set by how much, in percent, the price of the choice may fall and grow with one more node. Large
 * messages divided within nodes of eight ranks fall by rounding only. Otherwise prices differ from
 * one number of nodes to the next even if every rank is run: a power of two saves rounds, and a
 * number with divisors has grids. */
static void allow_margins(uint32_t nodes, uint32_t each, size_t bytes, unsigned *falls,
                          unsigned *grows)
{
    bool shared = each >= 8, large = bytes >= 512 * KIB;
    *falls = shared && large ? 2 : !large && (nodes & (nodes + 1)) == 0 ? 26 : 12;
    *grows = !large ? 0 : shared ? 10 : 20;
}

/* grows: 0 if there is no limit. */
static void check_growth(const struct twill_machine_model *model, const struct priced_shape *few,
                         const struct priced_shape *many, size_t bytes, uint64_t before,
                         uint64_t now, unsigned falls, unsigned grows)
{
    if (now < before / 100 * (100 - falls) || (grows > 0 && now > before / 100 * (100 + grows)))
        fail_msg("%s, %zu bytes: %.1f us on %ux%u, %.1f on %ux%u", model->name, bytes,
                 (double)before / 1e6, few->nodes, few->each, (double)now / 1e6, many->nodes,
                 many->each);
}

/* The price of the choice does not jump at the size from which on not every rank is run. */
TWILL_TEST(test_one_node_more)
{
    static const uint32_t nodes[] = {4,  5,  6,  7,  8,   9,   10,  11,  12,   13,
                                     14, 15, 16, 17, 31,  32,  33,  47,  48,   49,
                                     63, 64, 65, 95, 127, 128, 129, 384, 4391, 4392};
    const struct twill_machine_model *model;
    for (size_t m = 0; (model = twill_machine_model_at(m)) != NULL; m++)
        for (uint32_t each = 1; each <= 8; each *= 8) {
            uint64_t before[PRICE_LARGE_SIZES], now[PRICE_LARGE_SIZES];
            struct priced_shape few = {0}, many;
            if (left_out(m, each))
                continue;
            for (size_t i = 0; i < TWILL_ARRAY_LENGTH(nodes); i++, few = many) {
                many = (struct priced_shape){nodes[i], each};
                if (nodes[i] * each > (TEST_FEWER ? 128 : 8192))
                    break;
                shapes_best(now, &many, model);
                for (size_t s = 0; s < PRICE_LARGE_SIZES && many.nodes == few.nodes + 1; s++) {
                    unsigned falls, grows;
                    allow_margins(few.nodes, each, sizes[s], &falls, &grows);
                    check_growth(model, &few, &many, sizes[s], before[s], now[s], falls, grows);
                }
                memcpy(before, now, sizeof(now));
            }
        }
}

/* With one more rank per node, or many more nodes, the price does not fall by more than the error
 * of scaled prices. (685 nodes cut shards in one more message than 686.) */
TWILL_TEST(test_more_ranks)
{
    static const struct {
        struct priced_shape few, many;
        unsigned falls, grows; /* at most, in percent; 0: no limit */
    } pairs[] = {
        {{4, 40}, {4, 41}, 1, 2},     {{3, 40}, {3, 41}, 1, 2},     {{16, 63}, {16, 64}, 10, 10},
        {{48, 63}, {48, 64}, 10, 10}, {{685, 64}, {686, 64}, 4, 1}, {{47, 64}, {49, 64}, 5, 10},
        {{384, 1}, {4392, 1}, 10, 0}, {{48, 64}, {129, 64}, 2, 0},  {{129, 64}, {686, 64}, 2, 0},
    };
    const struct twill_machine_model *model;
    for (size_t m = 0; (model = twill_machine_model_at(m)) != NULL; m++)
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(pairs); i++) {
            if (left_out(m, i))
                continue;
            uint64_t few[PRICE_LARGE_SIZES], many[PRICE_LARGE_SIZES];
            shapes_best(few, &pairs[i].few, model);
            shapes_best(many, &pairs[i].many, model);
            for (size_t s = 0; s < PRICE_LARGE_SIZES; s++)
                check_growth(model, &pairs[i].few, &pairs[i].many, sizes[s], few[s], many[s],
                             pairs[i].falls, pairs[i].grows);
        }
}

/* No call with a root costs less than what must pass the interface of the root's node. */
TWILL_TEST(test_root_interface)
{
    static const enum twill_collective rooted[] = {TWILL_GATHER, TWILL_SCATTER, TWILL_BROADCAST};
    const struct twill_machine_model *model = twill_machine_model_find("auto");
    struct twill_world world;
    test_grid(&world, 48, 16);
    for (size_t c = 0; c < TWILL_ARRAY_LENGTH(rooted); c++) {
        struct twill_candidates *all = candidates_of(&world, rooted[c], model);
        uint64_t least =
            model->interface * 16 * KIB / 48 * (rooted[c] == TWILL_BROADCAST ? 48 : 47);
        for (size_t i = 0; i < all->count; i++)
            if (twill_candidate_competes(&all->candidate[i], 16 * MIB, ~0u))
                assert_true(twill_candidate_cost(&all->candidate[i], 16 * MIB) >=
                            least / 512 * 511);
        twill_candidates_destroy(all);
    }
    twill_world_destroy(&world);
}
