/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of ranks with several threads. They are exact where one thing costs, never above those of
 * fewer threads, and never below what the interface of a node takes. */
#include "algorithms/schedule/traffic.h"
#include "algorithms/select/candidates.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

#define KIB 1024ul
#define MIB (KIB * KIB)
#define US  UINT64_C(1000000)

/* Return a machine where a reduction costs 1 us a KiB, half or a quarter of it with 2 or 4 threads,
 * and only threads cost as well. */
static struct twill_machine_model reducing(uint64_t threads)
{
    struct twill_machine_model model = {
        .segment = 1 << 18,
        .segment_net = 1 << 22,
        .window = 4,
        .threads = threads,
        .thread = {{0, US, US}, {3 * US, US / 2, US / 2}, {5 * US, US / 4, US / 4}}};
    model.reduce[TWILL_F32] = US;
    return model;
}

static uint64_t price_of(const char *name, const struct twill_world *world,
                         const struct twill_machine_model *model, size_t bytes)
{
    const struct twill_shape shape = {.collective = TWILL_ALLREDUCE};
    struct twill_error error = {.status = TWILL_OK};
    uint64_t price;
    if (twill_price(&price, test_algorithm_find(name), world, &shape, model, bytes,
                    twill_wide_elements(TWILL_F32), &error) != TWILL_OK)
        fail_msg("%s: %s", name, error.message);
    return price;
}

/* Two ranks exchange and reduce the whole message once. */
TWILL_TEST(a_shared_reduction_is_exact)
{
    static const struct {
        size_t kib;
        uint64_t threads, us;
    } rows[] = {{4, 0, 4},   {4, 1, 4},   {4, 4, 4},   {8, 2, 7},    {8, 4, 7},     {64, 1, 64},
                {64, 2, 35}, {64, 4, 21}, {64, 3, 28}, {64, 64, 21}, {1024, 4, 261}};
    struct twill_world world;
    test_grid(&world, 2, 1);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++) {
        struct twill_machine_model model = reducing(rows[i].threads);
        assert_in_range(price_of("recursive_doubling", &world, &model, rows[i].kib * KIB),
                        rows[i].us * US - US / 100, rows[i].us * US + US / 100);
    }
    twill_world_destroy(&world);
}

/* With a table of 1, 2, 4 and 6 threads, 3 threads cost what 2 do, as the executor uses no other
 * number. */
TWILL_TEST(measured_rates_replace_those_of_the_model)
{
    const struct twill_thread_rates rates = {.steps = 4,
                                             .step = {{1, 0, 0, {1000, 1000}, {1000, 1000}},
                                                      {2, 1000, 9, {2000, 2000}, {2000, 2000}},
                                                      {4, 2000, 9, {4000, 4000}, {4000, 4000}},
                                                      {6, 3000, 9, {5000, 5000}, {5000, 5000}}}};
    struct twill_world world;
    test_grid(&world, 2, 1);
    for (uint64_t threads = 1; threads <= 8; threads++) {
        static const uint64_t us[] = {0, 1024, 513, 513, 258, 258, 207, 207, 207};
        struct twill_machine_model model = reducing(threads);
        twill_machine_model_measure(&model, &rates);
        uint64_t price = price_of("recursive_doubling", &world, &model, MIB);
        assert_in_range(price, (us[threads] - 1) * US, (us[threads] + 1) * US);
    }
    const struct twill_thread_rates none = {.steps = 1, .step = {{.threads = 1}}};
    struct twill_machine_model model = reducing(2), same = model;
    twill_machine_model_measure(&same, &none);
    assert_memory_equal(&same, &model, sizeof(model));
    twill_world_destroy(&world);
}

/* Threads share what a system call reads, but not the call, and the bytes that cores move between
 * nodes where they pay in copies of 1 MiB. Segments grow, so that all of them help. */
TWILL_TEST(reads_messages_and_segments_are_shared)
{
    const struct twill_shape fetched = {.collective = TWILL_BROADCAST,
                                        .protocol = TWILL_PROTOCOL_FETCHED};
    struct twill_machine_model model = {.threads = 1,
                                        .fetch = US,
                                        .segment_net = 1 << 20,
                                        .window = 2,
                                        .thread = {{0, US, US}, {3 * US, US / 2, US / 2}}};
    struct twill_world node, nodes;
    uint64_t price[2];
    test_grid(&node, 1, 2);
    test_grid(&nodes, 2, 1);
    model.link[TWILL_LINK_NODE].fetched = US;
    for (; model.threads <= 2; model.threads++)
        assert_int_equal(twill_price(&price[model.threads - 1], test_algorithm_find("direct"),
                                     &node, &fetched, &model, MIB, twill_wide_elements(TWILL_F32),
                                     NULL),
                         TWILL_OK);
    assert_int_equal(price[0], 1025 * US);
    assert_in_range(price[1], 515 * US, 517 * US);
    model.link[TWILL_LINK_NETWORK].gap = US;
    model.moves = 1;
    model.reduce[TWILL_F32] = US;
    for (size_t bytes = MIB; bytes <= 64 * MIB; bytes *= 4) {
        model.threads = 1;
        uint64_t one = price_of("ring", &nodes, &model, bytes);
        model.threads = 2;
        assert_true(price_of("ring", &nodes, &model, bytes) < one);
    }
    twill_world_destroy(&node);
    twill_world_destroy(&nodes);
}

/* --- all algorithms --------------------------------------------------------------------------- */

static const struct {
    uint32_t nodes, each;
} grids[] = {{1, 2}, {1, 8}, {2, 1}, {4, 1},  {16, 1}, {24, 1},
             {2, 2}, {4, 4}, {8, 8}, {64, 1}, {48, 32}};

static struct twill_candidates *candidates_of(const struct twill_world *world,
                                              enum twill_collective collective,
                                              const struct twill_machine_model *model)
{
    struct twill_tuning tuning = {.model = *model};
    struct twill_select_request request = {.collective = collective, .type = TWILL_F32};
    struct twill_candidates *all;
    assert_int_equal(twill_candidates_create(&all, world, &tuning, &request, NULL, NULL, NULL),
                     TWILL_OK);
    return all;
}

/* Return the least cost of what competes without mapped buffers. */
static uint64_t least_cost(const struct twill_candidates *all, size_t bytes)
{
    return twill_candidate_cost(test_cheapest(all, bytes, 0), bytes);
}

/* Check that no power of four of threads costs more than the one before. Up to 6 % more is allowed:
 * prices may be extrapolated, and a message that is ready earlier may delay another (R. L. Graham,
 * Bounds on multiprocessing timing anomalies, 1969). */
static void check_monotone(const struct twill_world *world, enum twill_collective collective,
                           const struct twill_machine_model *machine)
{
    static const size_t sizes[] = {8, 8 * KIB, 512 * KIB, 4 * MIB, 64 * MIB};
    uint64_t before[TWILL_ARRAY_LENGTH(sizes)];
    memset(before, 0xff, sizeof(before));
    for (uint64_t threads = 1; threads <= 256; threads *= 4) {
        struct twill_machine_model model = *machine;
        model.threads = threads;
        struct twill_candidates *all = candidates_of(world, collective, &model);
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++) {
            uint64_t cost = least_cost(all, sizes[i]);
            if (cost / 16 * 15 > before[i])
                fail_msg("%s of %zu bytes on %ux%u, %s: %llu threads cost %.2f us, fewer %.2f",
                         twill_collective_name(collective), sizes[i], world->nodes,
                         world->node_size[0], model.name, (unsigned long long)threads,
                         (double)cost / 1e6, (double)before[i] / 1e6);
            before[i] = cost;
        }
        twill_candidates_destroy(all);
    }
}

TWILL_TEST(more_threads_never_cost_more)
{
    static const enum twill_collective collectives[] = {TWILL_ALLREDUCE, TWILL_REDUCE,
                                                        TWILL_REDUCE_SCATTER, TWILL_ALLGATHER};
    const struct twill_machine_model *machine;
    for (size_t m = 0; (machine = twill_machine_model_at(m)) != NULL; m++)
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(grids); i++)
            for (size_t c = 0; c < TWILL_ARRAY_LENGTH(collectives); c++) {
                struct twill_world world;
                if (!test_whole() && (m + i + c + test_seed()) % (TEST_SLOW ? 16 : 4) != 0)
                    continue;
                test_grid(&world, grids[i].nodes, grids[i].each);
                check_monotone(&world, collectives[c], machine);
                twill_world_destroy(&world);
            }
}

static void add_off_node(void *user, uint32_t from, uint32_t to, uint64_t bytes)
{
    if ((from == 0) != (to == 0)) /* of worlds with one rank a node */
        *(uint64_t *)user += from == 0 ? bytes : 0;
}

/* However many threads, no algorithm is faster than the interface of the first node. */
TWILL_TEST(threads_do_not_pass_the_interface)
{
    struct twill_machine_model model = *twill_machine_model_find("theta");
    model.threads = 64;
    for (uint32_t nodes = 2; nodes <= 32; nodes *= 2) {
        struct twill_world world;
        test_grid(&world, nodes, 1);
        struct twill_candidates *all = candidates_of(&world, TWILL_ALLREDUCE, &model);
        for (size_t i = 0; i < all->count; i++) {
            const struct twill_candidate *c = &all->candidate[i];
            struct twill_schedule schedule;
            uint64_t off = 0;
            if (!twill_candidate_competes(c, 16 * MIB, 0))
                continue;
            assert_int_equal(
                twill_schedule_emit(&schedule, c->algorithm, &world, 0, &c->shape, NULL), TWILL_OK);
            twill_traffic_each(&schedule, 0, 16 * MIB / 4, twill_wide_elements(TWILL_F32),
                               add_off_node, &off);
            twill_schedule_destroy(&schedule);
            assert_true(twill_candidate_cost(c, 16 * MIB) >=
                        twill_rate_time(model.interface, off) / 1000 * 998);
        }
        twill_candidates_destroy(all);
        twill_world_destroy(&world);
    }
}

/* A chooser for so many threads chooses by their prices. */
TWILL_TEST(choosers_count_threads)
{
    struct twill_tuning tuning = {.model = *twill_machine_model_find("theta")};
    const struct twill_select_request request = {
        .collective = TWILL_ALLREDUCE, .bytes = 64 * MIB, .type = TWILL_F32};
    struct twill_world world;
    uint64_t cost[3];
    test_grid(&world, 16, 1);
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(cost); i++) {
        struct twill_chooser *chooser;
        const struct twill_candidates *all;
        assert_int_equal(twill_chooser_create(&chooser, &world, &tuning, NULL, NULL), TWILL_OK);
        twill_chooser_threads(chooser, i == 0 ? 1 : 8 * i * i * i * i * i, NULL);
        assert_int_equal(twill_chooser_candidates(chooser, &request, NULL, &all, NULL), TWILL_OK);
        cost[i] = least_cost(all, request.bytes);
        twill_chooser_destroy(chooser);
    }
    assert_true(cost[1] < cost[0]);
    assert_true(cost[2] / 8 * 7 <= cost[1]);
    assert_int_equal(tuning.model.threads, 0);
    twill_world_destroy(&world);
}
