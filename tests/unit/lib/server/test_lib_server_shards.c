/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of a server: each runs on the PU that the description names, and has its memory in
 * that PU's NUMA node. */
#include "lib/server/shard/shard.h"
#include "numa/memory.h"
#include "tests/support/placement.h"
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

enum { SHARDS_THREADS = 2 };

/* Check the lines of the shards. */
static bool shards_are_bound(twill_server *server, int bound_to)
{
    unsigned named = 0;
    const char *line;
    for (size_t i = 2; (line = twill_server_describe(server, i)) != NULL; i++) {
        int pu = -1;
        const char *at = strstr(line, "thread on PU ");
        TWILL_REQUIRE(at != NULL && sscanf(at, "thread on PU %d", &pu) == 1);
        TWILL_REQUIRE(pu != bound_to &&
                      twill_test_threads_on("twill-server", pu) == SHARDS_THREADS);
        named++;
    }
    return TWILL_NOTE(named == SHARDS_THREADS, "%u shards", named);
}

/* Bind the rank to the first PU of two, and expect the threads on the other one. */
static void rank_serves(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const int *pus = user;
    twill_comm *comm;
    twill_server *server;
    twill_server_options options;
    twill_test_bind(pus[0]);
    TWILL_CHECK(twill_test_open(&comm, bootstrap, "", TWILL_TEST_PATIENT));
    twill_server_defaults(&options);
    options.threads = SHARDS_THREADS;
    TWILL_CHECK(twill_test_server_open(&server, comm, &options, TWILL_TEST_WEIGHTS(100000)));
    TWILL_CHECK(shards_are_bound(server, pus[0]));
    twill_server_destroy(server);
    twill_test_close(comm);
}

TWILL_TEST(threads_run_where_no_rank_does)
{
    int pus[2];
    if (!twill_test_two_pus(pus))
        skip(); /* no PU is left on such a machine */
    twill_test_run_processes(1, rank_serves, pus);
}

/* On made machines: the PUs of a rank's threads differ, and are in the NUMA node of the rank. */
TWILL_TEST(memory_is_in_the_node_of_the_thread)
{
    struct twill_error error = {0};
    struct twill_topology *topology = NULL;
    struct twill_cpus rank[2] = {{.word = {0x0f}}, {.word = {0xf00}}}; /* half of each package */
    bool own = false;
    assert_int_equal(
        twill_topology_open(&topology, "pack:2 [numa(memory=1GB)] core:8 pu:1", &error), TWILL_OK);
    for (unsigned me = 0; me < 2; me++) {
        int first = twill_topology_helper(topology, rank, 2, me, 2, 0, &own),
            second = twill_topology_helper(topology, rank, 2, me, 2, 1, &own);
        assert_int_not_equal(first, second);
        assert_int_equal(first / 8, (int)me);
        assert_int_equal(second / 8, (int)me);
        assert_int_equal(twill_shard_numa_node(topology, first), (int)me);
        assert_int_equal(twill_shard_numa_node(topology, second), (int)me);
    }
    assert_int_equal(twill_shard_numa_node(topology, -1), -1);
    twill_topology_close(topology);
    assert_int_equal(twill_topology_open(&topology, "pack:1 core:4 pu:1", &error), TWILL_OK);
    assert_int_equal(twill_shard_numa_node(topology, 1), -1); /* one node: nothing is moved */
    twill_topology_close(topology);
}

TWILL_TEST(pages_are_moved)
{
    uint64_t pages[TWILL_MAX_NUMA] = {0};
    const size_t bytes = 16 * 4096;
    if (!can_mbind())
        skip();
    unsigned char *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    memset(memory, 1, bytes);
    assert_int_equal(twill_memory_near(memory + 5, bytes - 5, 0), 0);
    assert_int_equal(test_memory_where(memory, bytes, pages), 16);
    assert_int_equal(pages[0], 16);
    assert_int_equal(twill_memory_near(memory, bytes, TWILL_MAX_NUMA), EINVAL);
    assert_int_equal(twill_memory_near(memory + 1, 4096, 0), 0); /* no whole page */
    assert_int_equal(twill_memory_near(memory, bytes, -1), 0);
    munmap(memory, bytes);
}
