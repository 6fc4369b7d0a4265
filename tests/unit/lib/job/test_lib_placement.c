/* SPDX-License-Identifier: Apache-2.0 */
/* Placement under TWILL_MEMORY=mcdram:bind,mcdram:bind, as move_pages() reports it: memory of
 * twill_alloc(), of the library and what communicators share is on the NUMA nodes of each rank. On
 * machines without MCDRAM or HBM (tests/system/vm/knl.sh emulates some) MEMKIND_HBW_NODES makes
 * NUMA node 0 stand in for it. */
#include "fabric/shm/node_memory.h"
#include "fabric/shm/shared_region.h"
#include "lib/comm/comm.h"
#include "lib/job/context.h"
#include "lib/job/heap.h"
#include "numa/memory.h"
#include "numa/topology.h"
#include "tests/support/placement.h"
#include "tests/support/unit.h"

#define PLACE_RANKS 4
#define PLACE_BIND  "TWILL_MEMORY=mcdram:bind,mcdram:bind"

struct placed_job {
    twill_context *context;
    twill_comm *comm;
    uint64_t nodes[PLACE_RANKS]; /* expected for the memory of each rank */
};

/* Bind ranks to CPUs as far apart as possible: in SNC4 mode each to its own cluster. */
static void bind_rank(int rank, int size)
{
    cpu_set_t all, one;
    int n = 0;
    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        return;
    int expected = rank * CPU_COUNT(&all) / size;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && n++ == expected)
            CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
}

static bool job_open(struct placed_job *job, int rank, int size, twill_bootstrap *bootstrap,
                     const char *memory, const char *budget)
{
    char tune[64];
    snprintf(tune, sizeof(tune), "TWILL_TUNE=heap_limit=16M,memory_budget=%s", budget);
    bind_rank(rank, size);
    TWILL_REQUIRE(twill_test_join(&job->context, &job->comm, bootstrap, "", TWILL_TEST_PATIENT,
                                  memory, tune));
    uint64_t mine = job->context->memory->library_policy.nodes;
    TWILL_REQUIRE(mine == 0 || job->context->memory->user_policy.nodes == mine);
    TWILL_REQUIRE(twill_allgather(job->comm, &mine, job->nodes, 1, TWILL_I64) == TWILL_OK);
    return true;
}

static void job_close(struct placed_job *job)
{
    twill_test_disconnect(job->comm, job->context);
}

/* Is it bound to exactly these nodes, with some pages present and all of those on them? */
static bool is_bound(const char *what, const void *at, size_t bytes, twill_numa_set nodes)
{
    uint64_t bound = 0, pages[TWILL_MAX_NUMA];
    int mode = policy_at(at, &bound);
    long found = test_memory_where(at, bytes, pages), right = 0;
    for (unsigned i = 0; i < TWILL_MAX_NUMA; i++)
        right += nodes >> i & 1 ? (long)pages[i] : 0;
    return TWILL_NOTE(mode == MPOL_BIND && bound == nodes && found > 0 && right == found,
                      "%s: policy %d, nodes %#llx instead of %#llx, %ld of %ld pages there", what,
                      mode, (unsigned long long)bound, (unsigned long long)nodes, right, found);
}

static void stats_of(const struct placed_job *job, struct twill_memory_stats *library)
{
    struct twill_memory_stats user;
    twill_context_memory_stats(job->context, &user, library);
}

/* Touch all memory that a communicator shares: flags, and the areas of small and large messages. */
static bool exchange_memory(const struct placed_job *job, void *placed)
{
    static float plain[1 << 16];
    for (size_t count = 1; count <= TWILL_ARRAY_LENGTH(plain); count *= 16) {
        for (size_t i = 0; i < count; i++)
            plain[i] = 1;
        TWILL_REQUIRE(twill_allreduce(job->comm, plain, plain, count, TWILL_F32, TWILL_SUM) ==
                      TWILL_OK);
        TWILL_REQUIRE(plain[0] == PLACE_RANKS && plain[count - 1] == PLACE_RANKS);
        TWILL_REQUIRE(twill_allreduce(job->comm, placed, placed, count, TWILL_F32, TWILL_MAX) ==
                      TWILL_OK);
    }
    return true;
}

static bool check_library(struct placed_job *job)
{
    const struct twill_node *node = job->comm->node;
    size_t shared = twill_shm_region_bytes(node->region);
    struct twill_memory_stats stats;
    stats_of(job, &stats);
    TWILL_REQUIRE(stats.bytes_hbw == stats.bytes && stats.bytes >= shared && stats.fallbacks == 0);
    for (uint32_t l = 0; l < node->size; l++)
        TWILL_REQUIRE(is_bound("a communicator's", twill_shm_region_at(node->region, node->rank[l]),
                               l == node->me ? shared : node->trace_at, job->nodes[node->rank[l]]));
    void *scratch = NULL;
    size_t bytes = (size_t)3 << 20;
    TWILL_REQUIRE(twill_context_take(job->context, &scratch, bytes, &job->comm->error) == TWILL_OK);
    memset(scratch, 1, bytes);
    TWILL_REQUIRE(is_bound("the library's", scratch, bytes, job->nodes[job->comm->rank]));
    twill_context_give(job->context, scratch, bytes);
    return true;
}

static void run_bound(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct placed_job job;
    size_t bytes = (size_t)8 << 20;
    void *memory = NULL;
    TWILL_CHECK(job_open(&job, rank, size, bootstrap, PLACE_BIND, "0"));
    TWILL_CHECK(twill_alloc(job.context, &memory, bytes) == TWILL_OK);
    memset(memory, 0, bytes);
    TWILL_CHECK(is_bound("twill_alloc's", memory, bytes, job.nodes[rank]));
    TWILL_CHECK(exchange_memory(&job, memory));
    TWILL_CHECK(check_library(&job));
    struct twill_memory_stats before, with, after;
    stats_of(&job, &before);
    twill_comm *again = NULL;
    TWILL_CHECK(twill_comm_split(&again, job.comm, 0, rank) == TWILL_OK);
    TWILL_CHECK(twill_barrier(again) == TWILL_OK);
    stats_of(&job, &with);
    size_t shared = twill_node_part_bytes(again->node->shared_bytes, again->node->pair_bytes,
                                          again->node->size);
    TWILL_CHECK(with.bytes == before.bytes + shared && with.bytes_hbw == before.bytes_hbw + shared);
    twill_comm_destroy(again);
    stats_of(&job, &after);
    TWILL_CHECK(after.bytes == before.bytes && after.bytes_hbw == before.bytes_hbw);
    TWILL_CHECK(twill_free(job.context, memory) == TWILL_OK);
    job_close(&job);
}

TWILL_TEST(test_bound)
{
    if (!can_mbind())
        skip();
    twill_test_run_processes(PLACE_RANKS, run_bound, NULL);
}

/* Memory beyond the budget is in DDR and counted in memory_fallbacks. */
TWILL_TEST_OF_PROCESSES(test_beyond, PLACE_RANKS)
{
    struct placed_job job;
    twill_counters counters;
    TWILL_CHECK(job_open(&job, rank, size, bootstrap, PLACE_BIND, "1M"));
    struct twill_memory_stats stats;
    stats_of(&job, &stats);
    TWILL_CHECK(stats.bytes >= twill_shm_region_bytes(job.comm->node->region));
    TWILL_CHECK(stats.bytes_hbw <= (uint64_t)1 << 20);
    TWILL_CHECK(twill_comm_counters(job.comm, &counters) == TWILL_OK);
    TWILL_CHECK(counters.memory_fallbacks >= 1);
    TWILL_CHECK(policy_at(job.comm->node->area[job.comm->node->me], NULL) == MPOL_DEFAULT);
    job_close(&job);
}

/* A range that was refused is placed when it is taken again, one that was placed is there for the
 * next block, and where that is refused it is not bound any more. */
static void run_again(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct placed_job job;
    void *memory = NULL;
    TWILL_CHECK(job_open(&job, rank, size, bootstrap, "TWILL_MEMORY=mcdram:bind,ddr", "8M"));
    uint64_t nodes = job.context->memory->user_policy.nodes;
    static const struct {
        size_t mib;
        bool fits;
    } blocks[] = {{12, false}, {4, true}, {7, true}, {5, true}, {12, false}, {8, true}};
    unsigned fallbacks = 0;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(blocks); i++) {
        size_t bytes = blocks[i].mib << 20;
        struct twill_memory_stats stats, library;
        TWILL_CHECK(twill_alloc(job.context, &memory, bytes) == TWILL_OK);
        memset(memory, 1, bytes);
        if (blocks[i].fits)
            TWILL_CHECK(is_bound("twill_alloc's", memory, bytes, nodes));
        else
            TWILL_CHECK(policy_at(memory, NULL) == MPOL_DEFAULT);
        fallbacks += !blocks[i].fits;
        twill_context_memory_stats(job.context, &stats, &library);
        TWILL_CHECK(stats.fallbacks == fallbacks);
        TWILL_CHECK(stats.bytes_hbw == (blocks[i].fits ? twill_round_up(bytes, 2u << 20) : 0));
        TWILL_CHECK(twill_free(job.context, memory) == TWILL_OK);
        twill_context_memory_stats(job.context, &stats, &library);
        TWILL_CHECK(stats.bytes == 0 && stats.bytes_hbw == 0);
    }
    job_close(&job);
}

TWILL_TEST(test_again)
{
    if (!can_mbind())
        skip();
    twill_test_run_processes(PLACE_RANKS, run_again, NULL);
}

/* Bytes of private memory that this process has touched. */
static uint64_t private_bytes(void)
{
    unsigned long long kib = 0;
    char line[128];
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "Anonymous: %llu", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return kib << 10;
}

/* By default a job touches little memory on each rank, whatever is loaded to place memory, and
 * however many CPUs there are. */
static void run_little(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct placed_job job;
    void *memory = NULL;
    uint64_t before = private_bytes();
    TWILL_CHECK(job_open(&job, rank, size, bootstrap, "TWILL_MEMORY=auto", "0"));
    TWILL_CHECK(job.context->memory->user_policy.nodes != 0);
    TWILL_CHECK(twill_alloc(job.context, &memory, 64) == TWILL_OK);
    uint64_t touched = private_bytes() - before;
    TWILL_NOTE(before > 0 && touched < (uint64_t)5 << 20, "%llu KiB of private memory are touched",
               (unsigned long long)touched >> 10);
    job_close(&job);
}

TWILL_TEST(test_little)
{
    if (TEST_SLOW)
        skip();
    twill_test_run_processes(PLACE_RANKS, run_little, NULL);
}

/* Does this machine have MCDRAM or HBM? */
static bool has_hbm(void)
{
    struct twill_topology *topology;
    struct twill_error error = {0};
    struct twill_memory_policy policy;
    if (twill_topology_open(&topology, NULL, &error) != TWILL_OK)
        return false;
    bool has = twill_memory_decide(&policy, "mcdram:bind", twill_topology_machine(topology), NULL,
                                   &error) == TWILL_OK;
    twill_topology_close(topology);
    return has;
}

static int choose_memory(void **state)
{
    if (!has_hbm())
        setenv("MEMKIND_HBW_NODES", "0", 1);
    printf("memory of a job: %s\n",
           has_hbm() ? "MCDRAM or HBM of this machine" : "NUMA node 0 stands in for MCDRAM");
    return 0;
}

TWILL_TEST_GROUP(choose_memory, NULL)
