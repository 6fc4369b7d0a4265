/* SPDX-License-Identifier: Apache-2.0 */
/* How ranks of a host divide the cores that several of them may use, on recorded machines. */
#include "numa/topology.h"
#include "tests/support/machines.h"
#include "tests/support/unit.h"

enum { MOST_RANKS = 8 };

static const char *const machines[] = {"vm-knl-snc4-flat.xml", "x86-AMD-19h-Zen3-2xEpyc-7763.xml",
                                       "x86-Intel-KnightsLanding-XeonPhi-7210.xml",
                                       "x86-Intel-Skylake-2xXeon6140.xml"};

static unsigned count_cpus(const struct twill_cpus *cpus)
{
    unsigned count = 0;
    for (size_t w = 0; w < TWILL_ARRAY_LENGTH(cpus->word); w++)
        count += (unsigned)__builtin_popcountll(cpus->word[w]);
    return count;
}

/* Check that no two ranks get the same PU, that each gets `least` cores, and only PUs of its own.
 * Returns the sum of the cores. */
static unsigned check_shares(const struct twill_topology *topology, const struct twill_cpus *ranks,
                             unsigned n, unsigned least)
{
    struct twill_cpus seen = {{0}};
    unsigned sum = 0;
    for (unsigned r = 0; r < n; r++) {
        struct twill_cpus share;
        unsigned cores = twill_topology_share(topology, ranks, n, r, &share);
        assert_true(cores >= least);
        assert_true(count_cpus(&share) >= cores);
        for (size_t w = 0; w < TWILL_ARRAY_LENGTH(seen.word); w++) {
            assert_int_equal(seen.word[w] & share.word[w], 0);
            assert_int_equal(share.word[w] & ~ranks[r].word[w], 0);
            seen.word[w] |= share.word[w];
        }
        sum += cores;
    }
    return sum;
}

TWILL_TEST(unbound_ranks_get_equal_shares)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(machines); i++) {
        struct twill_topology *topology = open_recorded(machines[i]);
        struct twill_cpus ranks[MOST_RANKS];
        unsigned cores = twill_topology_cores(topology);
        for (unsigned r = 0; r < MOST_RANKS; r++)
            twill_topology_cpus(topology, &ranks[r]);
        for (unsigned n = 1; n <= MOST_RANKS; n++)
            assert_int_equal(check_shares(topology, ranks, n, cores / n), cores / n * n);
        twill_topology_close(topology);
    }
}

TWILL_TEST(bound_ranks_keep_their_cores)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(machines); i++) {
        struct twill_topology *topology = open_recorded(machines[i]);
        struct twill_cpus ranks[MOST_RANKS], share;
        for (unsigned n = 1; n <= MOST_RANKS; n *= 2) {
            assert_int_equal(twill_topology_bind(topology, n, TWILL_BOUND_TO_CORES, ranks, NULL),
                             TWILL_OK);
            for (unsigned r = 0; r < n; r++) {
                (void)twill_topology_share(topology, ranks, n, r, &share);
                assert_memory_equal(&share, &ranks[r], sizeof(share));
            }
            assert_int_equal(twill_topology_bind(topology, n, TWILL_BOUND_TO_PACKAGE, ranks, NULL),
                             TWILL_OK);
            (void)check_shares(topology, ranks, n, 1);
        }
        twill_topology_close(topology);
    }
}

/* Ranks 0 and 1 overlap in cores 2 and 3 of a machine with two PUs a core, and each gets one. */
TWILL_TEST(overlapping_ranks_divide_what_they_share)
{
    struct twill_topology *topology = open_machine("pack:1 core:6 pu:2");
    const struct twill_cpus ranks[] = {{{0x0ff}}, {{0xff0}}};
    struct twill_cpus share;
    assert_int_equal(twill_topology_share(topology, ranks, 2, 0, &share), 3);
    assert_int_equal(share.word[0], 0x03f);
    assert_int_equal(twill_topology_share(topology, ranks, 2, 1, &share), 3);
    assert_int_equal(share.word[0], 0xfc0);
    twill_topology_close(topology);
}

TWILL_TEST(too_few_cores_go_to_nobody)
{
    struct twill_topology *topology = open_machine("pack:1 core:2 pu:1");
    const struct twill_cpus ranks[] = {{{3}}, {{3}}, {{3}}};
    struct twill_cpus share;
    for (unsigned r = 0; r < 3; r++) {
        assert_int_equal(twill_topology_share(topology, ranks, 3, r, &share), 0);
        assert_int_equal(count_cpus(&share), 0);
    }
    assert_int_equal(twill_topology_share(topology, ranks, 2, 1, &share), 1);
    assert_int_equal(share.word[0], 2);
    twill_topology_close(topology);
}

/* All PUs of a core have the position of the thread on it. */
TWILL_TEST(positions_are_those_of_cores)
{
    struct twill_topology *topology = open_machine("pack:1 core:4 pu:2");
    const int pu[] = {2, 4, 7, 5};
    const uint16_t expected[] = {UINT16_MAX, UINT16_MAX, 0, 0, 1, 1, 2, 2, UINT16_MAX};
    uint16_t position[TWILL_CPUS_MOST];
    twill_topology_positions(topology, pu, TWILL_ARRAY_LENGTH(pu), position);
    assert_memory_equal(position, expected, sizeof(expected));
    assert_false(twill_topology_is_bound(topology)); /* it is not this machine */
    twill_topology_close(topology);
}

TWILL_TEST_GROUP(NULL, NULL)
