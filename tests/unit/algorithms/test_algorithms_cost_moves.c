/* SPDX-License-Identifier: Apache-2.0 */
/* Exact costs of trees and of Bruck's algorithms: messages, bytes, rounds. */
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

#define COST_MOVES_MOST_RANKS 130
#define COST_MOVES_EACH       64u /* bytes of a shard */

typedef void (*one_size_fn)(struct twill_world *world, uint32_t p, uint64_t n);

/* One rank per node; the message has a shard of COST_MOVES_EACH bytes for every rank. */
static void each_size(one_size_fn fn)
{
    for (uint32_t p = 2; p <= COST_MOVES_MOST_RANKS; p++) {
        struct twill_world world;
        test_grid(&world, p, 1);
        fn(&world, p, (uint64_t)COST_MOVES_EACH * p);
        twill_world_destroy(&world);
    }
}

static struct test_costs cost(const char *name, struct twill_world *world,
                              enum twill_collective collective, uint16_t radix)
{
    struct twill_shape shape = {.collective = collective, .parameter = {radix}};
    return test_cost_of(name, world, &shape, (size_t)COST_MOVES_EACH / 4 * world->size);
}

/* Count the children of the root, and how often shards are sent in all: each once per level above
 * it, that is, once per non-zero digit of its number. */
static uint32_t digits(uint32_t p, uint32_t radix, uint32_t *children)
{
    uint32_t hops = 0;
    *children = 0;
    for (uint32_t v = 1; v < p; v++) {
        uint32_t own = 0;
        for (uint32_t rest = v; rest > 0; rest /= radix)
            own += rest % radix != 0;
        hops += own;
        *children += own == 1;
    }
    return hops;
}

static void check_tree(struct twill_world *world, uint32_t p, uint64_t n)
{
    static const uint16_t radix[] = {0, 2, 3, 4, 8, 64};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(radix); i++) {
        uint32_t children, k = radix[i] == 0 ? 2 : radix[i], hops = digits(p, k, &children);
        if (k == 2)
            assert_int_equal(children, test_ceil_log(p));
        struct test_costs c = cost("tree", world, TWILL_BROADCAST, radix[i]);
        assert_int_equal(c.sum.messages, p - 1);
        assert_int_equal(c.most.messages, children);
        assert_int_equal(c.most.bytes_sent, n * children);
        assert_int_equal(c.sum.bytes_sent, n * (p - 1));
        c = cost("tree", world, TWILL_REDUCE, radix[i]);
        assert_int_equal(c.sum.messages, p - 1);
        assert_int_equal(c.most.bytes_sent, n);
        assert_int_equal(c.most.bytes_reduced, n * children);
        assert_int_equal(c.sum.bytes_reduced, n * (p - 1));
        c = cost("tree", world, TWILL_GATHER, radix[i]);
        assert_int_equal(c.sum.messages, p - 1);
        assert_int_equal(c.sum.bytes_sent, (uint64_t)COST_MOVES_EACH * hops);
        c = cost("tree", world, TWILL_SCATTER, radix[i]);
        assert_int_equal(c.sum.messages, p - 1);
        assert_int_equal(c.most.bytes_sent, n - COST_MOVES_EACH);
        assert_int_equal(c.sum.bytes_sent, (uint64_t)COST_MOVES_EACH * hops);
    }
}

static void check_linear(struct twill_world *world, uint32_t p, uint64_t n)
{
    struct test_costs c = cost("linear", world, TWILL_BROADCAST, 0);
    assert_int_equal(c.most.messages, p - 1);
    assert_int_equal(c.most.bytes_sent, n * (p - 1));
    assert_int_equal(c.sum.bytes_sent, n * (p - 1));
    c = cost("linear", world, TWILL_GATHER, 0);
    assert_int_equal(c.most.messages, 1);
    assert_int_equal(c.sum.bytes_sent, n - COST_MOVES_EACH);
    c = cost("linear", world, TWILL_SCATTER, 0);
    assert_int_equal(c.most.messages, p - 1);
    assert_int_equal(c.most.bytes_sent, n - COST_MOVES_EACH);
    assert_int_equal(c.sum.bytes_sent, n - COST_MOVES_EACH);
}

static void check_bruck(struct twill_world *world, uint32_t p, uint64_t n)
{
    uint32_t log = test_ceil_log(p), low = 1u << (log - 1);
    /* The last two rounds are merged where the last one brings at most half as much. */
    bool joined = p > 2 && p - low <= low / 2;
    struct test_costs c = cost("bruck", world, TWILL_ALLGATHER, 0);
    assert_int_equal(c.most.rounds, log - joined);
    assert_int_equal(c.most.bytes_sent, n - COST_MOVES_EACH);
    assert_int_equal(c.sum.bytes_sent, p * (n - COST_MOVES_EACH));
    uint32_t shards = 0; /* shards sent: the bits of all distances */
    for (uint32_t d = 1; d < p; d++)
        shards += (uint32_t)__builtin_popcount(d);
    c = cost("bruck", world, TWILL_ALLTOALL, 0);
    assert_int_equal(c.most.rounds, log);
    assert_int_equal(c.most.messages, log);
    assert_int_equal(c.most.bytes_sent, (uint64_t)COST_MOVES_EACH * shards);
    if (p == 1u << log)
        assert_int_equal(c.most.bytes_sent, n / 2 * log);
    c = cost("dissemination", world, TWILL_BARRIER, 0);
    assert_int_equal(c.most.messages, log);
    assert_int_equal(c.sum.messages, p * log);
    assert_int_equal(c.most.rounds, log - joined);
    assert_int_equal(c.sum.bytes_sent + c.sum.signals, 0);
}

static void check_two_halves(struct twill_world *world, uint32_t p, uint64_t n)
{
    struct test_costs c;
    if (p != 2) { /* a tree sends less */
        c = cost("scatter_allgather", world, TWILL_BROADCAST, 0);
        assert_int_equal(c.most.rounds, p);
        assert_int_equal(c.most.bytes_sent, 2 * (n - COST_MOVES_EACH));
    }
    c = cost("reduce_scatter_gather", world, TWILL_REDUCE, 0);
    assert_int_equal(c.sum.bytes_reduced, n * (p - 1));
    assert_int_equal(c.most.bytes_reduced, n - COST_MOVES_EACH);
    assert_true(c.most.bytes_sent <= n - COST_MOVES_EACH + n / 2);
    if ((p & (p - 1)) == 0)
        assert_int_equal(c.most.bytes_sent, n - COST_MOVES_EACH + n / 2);
}

TWILL_TEST(test_tree)
{
    each_size(check_tree);
}

TWILL_TEST(test_linear)
{
    each_size(check_linear);
}

TWILL_TEST(test_bruck)
{
    each_size(check_bruck);
}

TWILL_TEST(test_two_halves)
{
    each_size(check_two_halves);
}
