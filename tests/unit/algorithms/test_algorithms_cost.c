/* SPDX-License-Identifier: Apache-2.0 */
/* Exact costs of algorithms: rounds, messages, bytes. */
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

static struct test_costs cost_of(const char *name, struct twill_world *world,
                                 enum twill_collective collective, enum twill_protocol protocol,
                                 size_t count)
{
    struct twill_shape shape = {.collective = collective, .protocol = protocol};
    return test_cost_of(name, world, &shape, count);
}

TWILL_TEST(test_ring)
{
    for (uint32_t p = 2; p <= 40; p++) {
        struct twill_world world;
        size_t count = (size_t)16 * p, n = 4 * count;
        test_grid(&world, p, 1);
        struct test_costs c = cost_of("ring", &world, TWILL_ALLREDUCE, 0, count);
        assert_int_equal(c.most.rounds, 2 * (p - 1));
        assert_int_equal(c.sum.rounds, p * 2 * (p - 1));
        assert_int_equal(c.most.messages, 2 * (p - 1));
        assert_int_equal(c.most.bytes_sent, 2 * n * (p - 1) / p);
        assert_int_equal(c.sum.bytes_sent, 2 * n * (p - 1));
        assert_int_equal(c.sum.bytes_reduced, n * (p - 1));
        assert_int_equal(c.most.bytes_reduced, n * (p - 1) / p);
        assert_int_equal(c.most.peers, p == 2 ? 1 : 2);
        assert_int_equal(c.most.signals, 0);
        /* An odd count: the same total, individual blocks differ by one cache line at most. */
        c = cost_of("ring", &world, TWILL_ALLREDUCE, 0, 1000003);
        assert_int_equal(c.sum.bytes_sent, (uint64_t)2 * 4 * 1000003 * (p - 1));
        assert_true(c.most.bytes_sent <= (uint64_t)2 * (4 * 1000003 / p + 128) * (p - 1));
        twill_world_destroy(&world);
    }
}

/* The ring leaves each node once, however ranks are placed. */
TWILL_TEST(test_ring_crossings)
{
    for (uint32_t size = 2; size <= 64; size++) {
        for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
            struct twill_world world;
            if (!test_world(&world, size, placement, 9))
                continue;
            struct test_costs c = cost_of("ring", &world, TWILL_ALLREDUCE, 0, 100000);
            assert_int_equal(c.crossing, world.nodes == 1 ? 0 : world.nodes);
            twill_world_destroy(&world);
        }
    }
}

TWILL_TEST(test_recursive_doubling)
{
    for (uint32_t p = 2; p <= 70; p++) {
        struct twill_world world;
        uint64_t n = 4000;
        uint32_t log = test_floor_log(p), extra = p - (1u << log);
        test_grid(&world, p, 1);
        struct test_costs c = cost_of("recursive_doubling", &world, TWILL_ALLREDUCE, 0, n / 4);
        assert_int_equal(c.most.rounds, log + (extra ? 2 : 0));
        assert_int_equal(c.most.bytes_sent, n * (log + (extra ? 1 : 0)));
        assert_int_equal(c.sum.bytes_sent, n * (((uint64_t)log << log) + 2 * extra));
        assert_int_equal(c.sum.messages, (log << log) + 2 * extra);
        assert_int_equal(c.most.peers, log + (extra ? 1 : 0));
        c = cost_of("recursive_doubling", &world, TWILL_BARRIER, 0, 0);
        assert_int_equal(c.sum.messages, (log << log) + 2 * extra);
        assert_int_equal(c.sum.bytes_sent + c.sum.bytes_reduced, 0);
        twill_world_destroy(&world);
    }
}

TWILL_TEST(test_direct)
{
    for (uint32_t l = 2; l <= 70; l++) {
        struct twill_world world;
        uint64_t n = (uint64_t)64 * l;
        test_grid(&world, 1, l);
        for (unsigned f = 0; f < TWILL_PROTOCOL_COUNT; f++) {
            bool sharded = f >= TWILL_PROTOCOL_STAGED;
            struct test_costs c =
                cost_of("direct", &world, TWILL_ALLREDUCE, (enum twill_protocol)f, n / 4);
            assert_int_equal(c.sum.messages, 0);
            /* Shards are read from memory that its owner could change: one more synchronisation. */
            unsigned barriers = f == TWILL_PROTOCOL_FETCHED ? 3 : sharded ? 2 : 1;
            assert_int_equal(c.most.signals, barriers);
            assert_int_equal(c.sum.signals, barriers * l);
            assert_int_equal(c.most.bytes_shared, sharded ? 2 * n * (l - 1) / l : n * (l - 1));
            assert_int_equal(c.sum.bytes_shared, l * c.most.bytes_shared);
            assert_int_equal(c.sum.bytes_reduced, n * (l - 1) * (sharded ? 1 : l));
        }
        struct test_costs c = cost_of("direct", &world, TWILL_BARRIER, 0, 0);
        assert_int_equal(c.sum.signals, l);
        twill_world_destroy(&world);
    }
}

enum { COST_MOST = TWILL_STEP_PEERS };

/* Accesses to SHARED: which ranks access each block, and how often. */
struct shared {
    uint32_t touched[COST_MOST][COST_MOST]; /* area, block: bits of ranks */
    uint32_t stores[2], loads[2];           /* of one rank: own, peers' */
};

static void touch_lines(struct shared *shared, const struct twill_step *step, uint32_t rank,
                        twill_operand operand, uint32_t peer, uint32_t count[2])
{
    bool of_peer = twill_operand_is_peer(operand);
    uint32_t area = of_peer ? peer : rank;
    if (twill_operand_space(operand) != TWILL_SHARED ||
        (area == rank && (step->flags & TWILL_STEP_OWN_SRC) != 0))
        return;
    for (uint32_t b = 0; b < step->blocks; b++)
        shared->touched[area][twill_operand_block(operand) + b] |= 1u << rank;
    count[of_peer] += step->blocks;
}

/* Contributions and results of a staged allreduce use the same lines: each line belongs to one pair
 * of ranks, and moves between them twice. */
TWILL_TEST(test_staged_lines)
{
    for (uint32_t l = 2; l <= COST_MOST; l++) {
        struct twill_world world;
        struct shared shared = {{{0}}, {0}, {0}};
        struct twill_shape shape = {.collective = TWILL_ALLREDUCE,
                                    .protocol = TWILL_PROTOCOL_STAGED};
        test_grid(&world, 1, l);
        for (uint32_t rank = 0; rank < l; rank++) {
            struct twill_schedule s;
            const struct twill_algorithm *direct = twill_algorithm_find("direct");
            memset(shared.stores, 0, sizeof(shared.stores));
            memset(shared.loads, 0, sizeof(shared.loads));
            assert_int_equal(twill_schedule_emit(&s, direct, &world, rank, &shape, NULL), TWILL_OK);
            for (uint32_t i = 0; i < s.count; i++) {
                const struct twill_step *step = &s.steps[i];
                if (step->op != TWILL_STEP_COPY && step->op != TWILL_STEP_REDUCE)
                    continue;
                touch_lines(&shared, step, rank, step->dst, step->peer[0], shared.stores);
                for (unsigned k = 0; k < (step->nsrc > 0 ? step->nsrc : 1); k++)
                    touch_lines(&shared, step, rank, step->src, step->peer[k], shared.loads);
            }
            for (unsigned of_peer = 0; of_peer < 2; of_peer++) {
                assert_int_equal(shared.stores[of_peer], l - 1);
                assert_int_equal(shared.loads[of_peer], l - 1);
            }
            twill_schedule_destroy(&s);
        }
        for (uint32_t area = 0; area < l; area++)
            for (uint32_t b = 0; b < l; b++)
                assert_int_equal(shared.touched[area][b], area == b ? 0 : 1u << area | 1u << b);
        twill_world_destroy(&world);
    }
}

TWILL_TEST(test_hierarchical)
{
    for (uint32_t g = 2; g <= 9; g++) {
        for (uint32_t l = 2; l <= 12; l++) {
            struct twill_world world;
            uint64_t n = (uint64_t)64 * l * g;
            uint32_t log = test_floor_log(g);
            test_grid(&world, g, l);
            struct test_costs c =
                cost_of("hierarchical:ring", &world, TWILL_ALLREDUCE, TWILL_PROTOCOL_STAGED, n / 4);
            assert_int_equal(c.most.rounds, 2 * (g - 1));
            assert_int_equal(c.most.bytes_remote, 2 * (n / l) * (g - 1) / g);
            assert_int_equal(c.sum.bytes_remote, 2 * n * (g - 1)); /* every rank the same */
            assert_int_equal(c.most.bytes_shared, 2 * n * (l - 1) / l);
            assert_int_equal(c.most.signals, 2);
            assert_int_equal(c.most.peers, g == 2 ? 1 : 2);
            assert_int_equal(c.sum.bytes_reduced, n * (g * l - 1));
            c = cost_of("hierarchical:recursive_doubling", &world, TWILL_ALLREDUCE,
                        TWILL_PROTOCOL_MAPPED, n / 4);
            bool power = g == 1u << log;
            assert_int_equal(c.most.rounds, log + (power ? 0 : 2));
            assert_int_equal(c.most.bytes_remote, (n / l) * (log + (power ? 0 : 1)));
            assert_int_equal(c.most.bytes_shared, 2 * n * (l - 1) / l);
            c = cost_of("hierarchical:tree", &world, TWILL_BROADCAST, TWILL_PROTOCOL_STAGED, n / 4);
            assert_int_equal(c.sum.messages, g - 1);
            assert_int_equal(c.sum.bytes_remote, n * (g - 1));
            assert_int_equal(c.sum.bytes_shared, n * (l - 1) * g);
            twill_world_destroy(&world);
        }
    }
}
