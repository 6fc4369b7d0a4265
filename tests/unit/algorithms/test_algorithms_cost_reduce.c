/* SPDX-License-Identifier: Apache-2.0 */
/* Exact costs of allreduces by messages, one rank per node: a table with a row for each algorithm;
 * n is the message in bytes. Recursive doubling is in test_algorithms_cost.c. */
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

static uint64_t ring_rounds(uint32_t p)
{
    return 2 * (p - 1);
}

/* The default is two rings, each in its lane. */
static uint64_t two_ring_rounds(uint32_t p)
{
    return 2 * ring_rounds(p);
}

static uint64_t halving_rounds(uint32_t p)
{
    return 2 * test_ceil_log(p);
}

/* X by Y, as square as possible. */
static uint64_t torus_rounds(uint32_t p)
{
    uint32_t x = 1;
    for (uint32_t d = 1; d * d <= p; d++)
        x = p % d == 0 ? d : x;
    return 2 * (x + p / x - 2);
}

static uint64_t tree_rounds(uint32_t p)
{
    return 2 * test_ceil_log(p) + 16;
}

/* In n/P: what the rank that sends most sends. */
static uint64_t least(uint32_t p)
{
    return 2 * (p - 1);
}

static uint64_t twice(uint32_t p)
{
    return 2 * p;
}

static uint64_t everything(uint32_t p)
{
    return (uint64_t)(p - 1) * p;
}

/* In n/P: what is reduced in all. */
static uint64_t once(uint32_t p)
{
    return (uint64_t)(p - 1) * p;
}

static uint64_t everywhere(uint32_t p)
{
    return (uint64_t)(p - 1) * p * p;
}

static const struct cost_row {
    const char *name;
    uint64_t (*rounds)(uint32_t p); /* NULL: depends on how many messages are posted at once */
    uint64_t (*bytes)(uint32_t p);  /* of the rank that sends most */
    bool bound, bytes_bound;        /* these are bounds, not exact */
    uint64_t (*reduced)(uint32_t p);
    uint64_t sent; /* in all; 2n(P-1) except in the last row */
} table[] = {
    {"ring", ring_rounds, least, false, false, once, 2},
    {"multi_ring", two_ring_rounds, least, false, false, once, 2},
    {"halving_doubling", halving_rounds, least, true, false, once, 2},
    {"torus", torus_rounds, least, false, false, once, 2},
    {"double_tree", tree_rounds, twice, true, true, once, 2},
    {"chain", NULL, twice, true, true, once, 2},
    {"pairwise", NULL, least, false, false, once, 2},
    {"hub", NULL, everything, false, false, once, 2},
    {"allgather_reduce", NULL, everything, false, false, everywhere, 0},
};

static void check_row(const struct cost_row *row, uint32_t p)
{
    struct twill_world world;
    struct twill_shape shape = {.collective = TWILL_ALLREDUCE};
    const struct twill_algorithm *algorithm = twill_algorithm_find(row->name);
    assert_non_null(algorithm);
    test_grid(&world, p, 1);
    if (twill_algorithm_applies(algorithm, &world, &shape)) {
        /* A number of elements that P, blocks and rings divide. */
        uint64_t count = (uint64_t)p * 16 * 64, n = 4 * count;
        struct test_costs c = test_cost_of(row->name, &world, &shape, count);
        uint64_t bytes = row->bytes(p) * n / p, sent = row->sent * (p - 1) * n;
        /* Powers of two are exact in halving, too. */
        bool power = row->rounds == halving_rounds && (p & (p - 1)) == 0;
        bool right = row->bytes_bound ? c.most.bytes_sent <= bytes : c.most.bytes_sent == bytes;
        if (row->rounds != NULL)
            right = right && (row->bound && !power ? c.most.rounds <= row->rounds(p)
                                                   : c.most.rounds == row->rounds(p));
        right = right && c.sum.bytes_reduced == row->reduced(p) * n / p;
        right = right && c.sum.bytes_sent == (row->sent > 0 ? sent : (uint64_t)p * (p - 1) * n);
        if (!right)
            fail_msg("%s, %u ranks: %u rounds, busiest sends %llu, all %llu, reduced %llu of %llu",
                     row->name, p, c.most.rounds, (unsigned long long)c.most.bytes_sent,
                     (unsigned long long)c.sum.bytes_sent, (unsigned long long)c.sum.bytes_reduced,
                     (unsigned long long)n);
    }
    twill_world_destroy(&world);
}

TWILL_TEST(test_table)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++)
        for (uint32_t p = 2; p <= (TEST_FEWER ? 24 : 70); p++)
            check_row(&table[i], p);
}
