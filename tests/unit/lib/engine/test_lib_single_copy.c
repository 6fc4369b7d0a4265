/* SPDX-License-Identifier: Apache-2.0 */
/* Plain malloc'd memory of other ranks: fetched by process_vm_readv, between processes and threads,
 * and zero-copy by XPMEM with a double of its library (tests/doubles/xpmem), between threads. All
 * collectives, forms and kinds of memory; refusals at set-up and later, deaths, memory that is not
 * there; which regions stay attached and which are released. XPMEM has not been run on hardware. */
#include "lib/comm/comm.h"
#include "lib/engine/plan.h"
#include "tests/doubles/xpmem/xpmem_double.h"
#include "tests/support/plans.h"
#include "tests/support/unit.h"

#define ALL_AS(protocol)                                                                           \
    "TWILL_ALGORITHM=allreduce[4K-]:direct@" protocol ";broadcast[4K-]:direct@" protocol           \
    ";allgather[4K-]:direct@" protocol ";reduce_scatter[4K-]:direct@" protocol                     \
    ";alltoall[4K-]:direct@" protocol ";gather[4K-]:direct@" protocol                              \
    ";scatter[4K-]:direct@" protocol
#define MAPPED_ALL       ALL_AS("mapped")
#define FETCHED_ALL      ALL_AS("fetched")
#define REACH_MOST_BYTES ((size_t)1 << 19)
#define SAMPLED          (TEST_TSAN && !test_whole() ? 2u : 1u) /* one in this many calls, by the day */

/* Settings by TWILL_REACH and an algorithm. */
#define REACH_SETTINGS(reach, algorithm)                                                           \
    twill_test_text("TWILL_TUNE=heap_limit=16M,reach=%s", reach), algorithm, "TWILL_LOG=none",     \
        TWILL_TEST_PATIENT

struct buffer_scene {
    const char *single_copy; /* TWILL_REACH */
    const char *algorithm;   /* a setting */
    bool mixed;              /* rank 0's memory is from twill_alloc() */
    const char *says;        /* expected note about other ranks' memory */
};

/* Check the note in twill_context_describe(). */
static const char *how_of(twill_context *context)
{
    static const char head[] = "memory of other ranks: ";
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(context, i)) != NULL; i++)
        if (strncmp(line, head, sizeof(head) - 1) == 0)
            return line + sizeof(head) - 1;
    return "";
}

static bool check_calls(twill_comm *comm, const struct test_buffers *buffers, bool requested,
                        bool mixed)
{
    static const size_t counts[] = {3, 2500, TEST_TSAN ? 4099 : 12345};
    static const enum twill_collective collectives[] = {
        TWILL_ALLREDUCE, TWILL_BROADCAST, TWILL_ALLGATHER, TWILL_REDUCE_SCATTER,
        TWILL_ALLTOALL,  TWILL_GATHER,    TWILL_SCATTER};
    enum { COLLECTIVES = TWILL_ARRAY_LENGTH(collectives), COUNTS = TWILL_ARRAY_LENGTH(counts) };
    for (unsigned i = (unsigned)(test_seed() % SAMPLED);
         i < COLLECTIVES * COUNTS * 2 * TEST_FORM_COUNT; i += SAMPLED) {
        struct test_call call = {.collective = collectives[i % COLLECTIVES],
                                 .type = TWILL_F32,
                                 .op = TWILL_SUM,
                                 .count = counts[i / COLLECTIVES % COUNTS],
                                 .in_place = i / COLLECTIVES / COUNTS % 2 != 0,
                                 .form = (enum test_form)(i / COLLECTIVES / COUNTS / 2)};
        /* In place, the source is bounced, so the requested algorithm cannot be used. */
        if (requested && call.collective == TWILL_ALLTOALL && call.in_place)
            continue;
        TWILL_REQUIRE(mixed ? test_call_check(&call, comm, buffers)
                            : test_plan_check(&call, comm, buffers, false));
    }
    return true;
}

static void calling_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct buffer_scene *scene = user;
    bool heap = scene->mixed && rank == 0, requested = strchr(scene->algorithm, '@') != NULL;
    struct test_buffers buffers;
    twill_comm *comm;
    TWILL_CHECK(twill_test_open(&comm, bootstrap, "",
                                REACH_SETTINGS(scene->single_copy, scene->algorithm)));
    twill_context *context = twill_comm_context(comm);
    TWILL_CHECK(test_buffers_get(&buffers, context, REACH_MOST_BYTES, 0, heap));
    TWILL_CHECK(TWILL_SAYS(how_of(context), scene->says));
    TWILL_CHECK(check_calls(comm, &buffers, requested, scene->mixed));
    test_buffers_put(&buffers, context, heap);
    twill_test_close(comm);
}

static void check_nothing_left(void)
{
    struct xpmem_double now;
    xpmem_double_count(&now);
    assert_int_equal(now.attachments, 0);
    assert_int_equal(now.permits, 0);
    assert_int_equal(now.segments, 0);
}

TWILL_TEST(test_mapped)
{
    static const int sizes[] = {2, 3, 9};
    for (unsigned i = 0; i < 2 * TWILL_ARRAY_LENGTH(sizes); i++) {
        struct buffer_scene scene = {.single_copy = i % 2 == 0 ? "xpmem" : "auto",
                                     .algorithm = MAPPED_ALL,
                                     .mixed = i % 2 != 0,
                                     .says = "xpmem: yes"};
        struct xpmem_double now;
        int size = sizes[i / 2];
        xpmem_double_reset(XPMEM_DOUBLE_NEVER);
        twill_test_run_ranks(size, calling_rank, &scene);
        xpmem_double_count(&now);
        /* The probe's page of each pair, then buffers of each pair: attached once, not per call. */
        assert_true(now.attaches > 2 * size * (size - 1) && now.attaches < 16 * size * (size - 1));
        check_nothing_left();
    }
}

/* No access: disabled by TWILL_REACH, refused by the system, or impossible between processes. Calls
 * then work as without it, and a request for "@mapped" is refused. */
TWILL_TEST(test_closed)
{
    struct buffer_scene scene = {
        .single_copy = "xpmem", .algorithm = "TWILL_ALGORITHM=", .says = "xpmem: none (rank"};
    for (int allowed = 0; allowed < 4; allowed += 3) {
        xpmem_double_reset(allowed);
        twill_test_run_ranks(3, calling_rank, &scene);
        check_nothing_left();
    }
    xpmem_double_reset(XPMEM_DOUBLE_NEVER);
    twill_test_run_processes(2, calling_rank, &scene);
    scene.single_copy = "cma";
    scene.says = "xpmem: not requested";
    twill_test_run_ranks(2, calling_rank, &scene);
    scene.single_copy = "none";
    scene.says = "none (TWILL_TUNE=reach)";
    twill_test_run_ranks(2, calling_rank, &scene);
}

static const bool fetched_or_mapped[] = {false, true};

TWILL_TEST_CASES(test_needed, ranks, fetched_or_mapped, "2",
                 REACH_SETTINGS("none", *c ? FETCHED_ALL : MAPPED_ALL))
{
    float data[4096] = {0};
    TWILL_CHECK(TWILL_ENDS(comm, twill_allreduce(comm, data, data, 4096, TWILL_F32, TWILL_SUM),
                           TWILL_ERR_CONFIG, *c ? "TWILL_TUNE=reach" : "twill_alloc"));
}

/* Access is refused after set-up: an error on every rank, with the cause, and no hang. */
static void late_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_comm *comm;
    float data[4096] = {0};
    TWILL_CHECK(twill_test_open(&comm, bootstrap, "", REACH_SETTINGS("xpmem", MAPPED_ALL)));
    TWILL_CHECK(twill_test_fine(comm, twill_barrier(comm)));
    if (rank == 0)
        xpmem_double_reset(0);
    TWILL_CHECK(twill_test_fine(comm, twill_barrier(comm)));
    TWILL_CHECK(TWILL_ENDS(comm, twill_allreduce(comm, data, data, 4096, TWILL_F32, TWILL_SUM),
                           TWILL_ERR_SYSTEM, "could not be attached"));
    TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), "of rank "));
    TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), "TWILL_TUNE=reach"));
    (void)twill_test_barrier(bootstrap);
    twill_test_close(comm);
}

TWILL_TEST(test_late)
{
    xpmem_double_reset(XPMEM_DOUBLE_NEVER);
    twill_test_run_ranks(3, late_rank, NULL);
    check_nothing_left();
}

/* More buffers than stay attached; those of persistent calls stay whatever other calls do. */
static void many_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    enum { BUFFERS = 100, PERSISTENT = 80, COUNT = 2048 };
    twill_comm *comm;
    static const size_t each = 3 * 4096; /* no two in one page */
    unsigned char *memory = aligned_alloc(4096, (BUFFERS + PERSISTENT) * each);
    twill_request *request[PERSISTENT] = {NULL};
    TWILL_CHECK(memory != NULL);
    TWILL_CHECK(twill_test_open(&comm, bootstrap, "", REACH_SETTINGS("xpmem", MAPPED_ALL)));
    for (int i = 0; i < PERSISTENT; i++) {
        float *data = (float *)(void *)(memory + (size_t)i * each);
        TWILL_CHECK(twill_test_fine(comm, twill_allreduce_init(comm, data, data, COUNT, TWILL_F32,
                                                               TWILL_SUM, &request[i])));
    }
    for (int i = 0; i < PERSISTENT + BUFFERS; i++) {
        float *data = (float *)(void *)(memory + (size_t)i * each);
        for (int e = 0; e < COUNT; e++)
            data[e] = (float)(i + e % 7);
        twill_status status = TWILL_OK;
        if (i < PERSISTENT)
            status = twill_request_start(request[i]);
        else
            status = twill_allreduce(comm, data, data, COUNT, TWILL_F32, TWILL_SUM);
        if (i < PERSISTENT && status == TWILL_OK)
            status = twill_wait(&request[i]);
        TWILL_CHECK(twill_test_fine(comm, status));
        for (int e = 0; e < COUNT; e++)
            TWILL_CHECK(data[e] == (float)(size * (i + e % 7)), "buffer %d, element %d: %f", i, e,
                        (double)data[e]);
    }
    for (int i = 0; i < PERSISTENT; i++)
        (void)twill_request_free(&request[i]);
    twill_test_close(comm);
    free(memory);
}

TWILL_TEST(test_many)
{
    struct xpmem_double now;
    xpmem_double_reset(XPMEM_DOUBLE_NEVER);
    twill_test_run_ranks(2, many_rank, NULL);
    xpmem_double_count(&now);
    assert_true(now.attaches >= 2 * 180);
    assert_in_range(now.most_attachments, 2 * 80, 2 * (80 + 2));
    check_nothing_left();
}

/* --- fetched --------------------------------------------------------------------------------- */

TWILL_TEST(test_fetched)
{
    for (int mixed = 0; mixed < 2; mixed++) {
        struct buffer_scene scene = {.single_copy = "cma",
                                     .algorithm = FETCHED_ALL,
                                     .mixed = mixed != 0,
                                     .says = "cma: yes"};
        twill_test_run_processes(mixed != 0 ? 3 : 2, calling_rank, &scene);
        twill_test_run_ranks(mixed != 0 ? 2 : 9, calling_rank, &scene);
        twill_test_run_mixed(4, 2, calling_rank, &scene);
    }
}

/* A rank dies after publishing its address: the others' messages name it. */
TWILL_TEST_ON(a_death_when_fetched, processes, TWILL_LAYOUTS("3"),
              REACH_SETTINGS("cma", FETCHED_ALL))
{
    enum { COUNT = 1 << 20 };
    float *data = calloc(COUNT, sizeof(*data));
    twill_request *request = NULL;
    int done = 0;
    TWILL_CHECK(twill_test_fine(comm, twill_barrier(comm)));
    if (rank == 1) {
        twill_test_expect_death(1);
        (void)twill_allreduce_start(comm, data, data, COUNT, TWILL_F32, TWILL_SUM, &request);
        (void)twill_test(&request, &done);
    }
    /* It has published its address, and cannot have ended: no other rank has begun. */
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 1)
        raise(SIGKILL);
    TWILL_CHECK(TWILL_ENDS(comm, twill_allreduce(comm, data, data, COUNT, TWILL_F32, TWILL_SUM),
                           TWILL_ERR_PEER, "rank 1"));
    free(data);
}

/* Part of the root's buffer is not mapped; the root itself does not read it. */
TWILL_TEST_ON(no_memory_when_fetched, processes, TWILL_LAYOUTS("3"),
              REACH_SETTINGS("cma", FETCHED_ALL))
{
    enum { BYTES = 1 << 16 };
    unsigned char *data =
        mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TWILL_CHECK(data != MAP_FAILED);
    if (rank == 0)
        TWILL_CHECK(mprotect(data + BYTES / 2, BYTES / 2, PROT_NONE) == 0);
    TWILL_CHECK(TWILL_ENDS(comm, twill_broadcast(comm, data, data, BYTES, TWILL_U8, 0),
                           TWILL_ERR_ARGUMENT, "of rank 0"));
    TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), "could not be read: Bad address"));
    munmap(data, BYTES);
}

/* Several threads fetch from two peers, and part of one's buffer is not mapped, which it does not
 * read itself. */
TWILL_TEST_ON(no_memory_when_threads_fetch, processes, TWILL_LAYOUTS("3"), "TWILL_THREADS=3",
              "TWILL_TUNE=heap_limit=16M,reach=cma,thread_bytes=4K", FETCHED_ALL, "TWILL_LOG=none",
              TWILL_TEST_PATIENT)
{
    enum { SHARD = 1 << 18 };
    static unsigned char mine[SHARD];
    twill_counters counters;
    unsigned char *data =
        mmap(NULL, 3 * SHARD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TWILL_CHECK(data != MAP_FAILED);
    memset(data, rank + 1, 3 * SHARD);
    TWILL_CHECK(
        twill_test_fine(comm, twill_reduce_scatter(comm, data, mine, SHARD, TWILL_U8, TWILL_SUM)));
    TWILL_CHECK(mine[0] == 6 && mine[SHARD - 1] == 6);
    TWILL_CHECK(twill_comm_counters(comm, &counters) == TWILL_OK && counters.forks > 0);
    if (rank == 2)
        TWILL_CHECK(mprotect(data + SHARD / 2, SHARD / 2, PROT_NONE) == 0);
    TWILL_CHECK(TWILL_ENDS(comm, twill_reduce_scatter(comm, data, mine, SHARD, TWILL_U8, TWILL_SUM),
                           TWILL_ERR_ARGUMENT, "of rank 2 could not be read: Bad address"));
    munmap(data, 3 * SHARD);
}

/* --- trials of fetched and staged calls ----------------------------------------------------------
 */

enum { TRIED_BYTES = 1 << 17, TRIED_CALLS = 24 /* more than are needed for the first decision */ };

static unsigned char tried_byte(size_t at, unsigned call)
{
    return (unsigned char)(at * 5 + at / 251 + call);
}

/* Broadcast from alternate roots, check the bytes, and set *fetched to how it was done. With
 * `costs`, this rank says that calls by STAGED and by FETCHED cost this. */
static bool run_tried(twill_comm *comm, unsigned char *data, const uint32_t *costs, unsigned call,
                      bool *fetched)
{
    struct twill_fetch_trial *trial = comm->issue.blocking.exchange.fetch.trial;
    uint32_t root = call % comm->world->size;
    if (costs != NULL && trial != NULL)
        memcpy(trial->cost, costs, sizeof(trial->cost));
    for (size_t i = 0; i < TRIED_BYTES; i++)
        data[i] = comm->rank == root ? tried_byte(i, call) : 0;
    TWILL_REQUIRE(
        twill_test_fine(comm, twill_broadcast(comm, data, data, TRIED_BYTES, TWILL_U8, root)));
    for (size_t i = 0; i < TRIED_BYTES; i++)
        TWILL_REQUIRE(data[i] == tried_byte(i, call), "call %u, byte %zu", call, i);
    *fetched = comm->plan_cache.last->fetches;
    return true;
}

static unsigned count_plans(const twill_comm *comm)
{
    unsigned count = 0;
    for (const struct twill_plan *plan = comm->plan_cache.plans; plan != NULL; plan = plan->next)
        count++;
    return count;
}

/* Return whether the engine counts and publishes the memory of its trials as its own. */
static bool counts_trials(twill_comm *comm)
{
    struct twill_fetch_trials *trials = comm->engine.trials;
    size_t bytes = twill_engine_bytes(&comm->engine);
    uint64_t published = comm->node->area[comm->node->me]->suspend.private_bytes;
    comm->engine.trials = NULL;
    size_t others = twill_engine_bytes(&comm->engine);
    comm->engine.trials = trials;
    return TWILL_NOTE(trials != NULL && bytes > others && published == bytes,
                      "%zu bytes, %zu without trials, %llu published", bytes, others,
                      (unsigned long long)published);
}

/* The highest costs of any rank decide. A way is left at once if it has become dearer. */
static bool check_trials(twill_comm *comm, unsigned char *data)
{
    static const uint32_t cheap[] = {100, 50}, dear[] = {100, 150};
    bool fetched, first = comm->rank == 0;
    unsigned call = 0, plans = 0, roots = comm->world->size;
    comm->tuning.crowded = 0; /* ranks that share cores try nothing */
    for (; call < TRIED_CALLS; call++) {
        TWILL_REQUIRE(run_tried(comm, data, cheap, call, &fetched));
        TWILL_REQUIRE(call > 0 || !fetched);
        if (call + 1 == roots)
            plans = count_plans(comm);
    }
    for (unsigned i = 0; i < 4; i++, call++)
        TWILL_REQUIRE(run_tried(comm, data, cheap, call, &fetched) && fetched);
    for (unsigned i = 0; i < 4; i++, call++)
        TWILL_REQUIRE(run_tried(comm, data, first ? dear : cheap, call, &fetched) && !fetched);
    TWILL_REQUIRE(count_plans(comm) == plans, "a plan was made after the first calls");
    return counts_trials(comm);
}

static void trying_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    unsigned char *data = malloc(TRIED_BYTES);
    twill_comm *comm;
    TWILL_CHECK(data != NULL);
    TWILL_CHECK(
        twill_test_open(&comm, bootstrap, "", REACH_SETTINGS("cma", "TWILL_ALGORITHM=auto")));
    TWILL_CHECK(check_trials(comm, data));
    twill_test_close(comm);
    free(data);
}

TWILL_TEST(test_trials)
{
    for (int size = 2; size < 4; size++) {
        twill_test_run_processes(size, trying_rank, NULL);
        twill_test_run_ranks(size, trying_rank, NULL);
    }
}

/* Nothing is tried where system calls may not read, or the user has chosen a protocol. */
static const char *const untried[] = {"none", "cma"};

TWILL_TEST_CASES(test_untried, processes, untried, "2",
                 REACH_SETTINGS(*c, strcmp(*c, "none") == 0 ? "TWILL_ALGORITHM=auto"
                                                            : "TWILL_ALGORITHM=direct@staged"))
{
    unsigned char *data = malloc(TRIED_BYTES);
    bool fetched = true;
    TWILL_CHECK(data != NULL);
    for (unsigned call = 0; call < TRIED_CALLS; call++)
        TWILL_CHECK(run_tried(comm, data, NULL, call, &fetched) && !fetched);
    TWILL_CHECK(comm->issue.blocking.exchange.fetch.trial == NULL);
    free(data);
}

/* Calls under way at once, some persistent, in trials of measured costs. */
static bool check_under_way(twill_comm *comm, unsigned char *memory)
{
    enum { AT_ONCE = 3 };
    const size_t size = comm->world->size, each = TRIED_BYTES / 2, all = size * each;
    twill_request *request[AT_ONCE] = {NULL}, *persistent;
    unsigned char *last = memory + (size_t)AT_ONCE * 2 * all;
    comm->tuning.crowded = 0; /* ranks that share cores try nothing */
    TWILL_REQUIRE(twill_test_fine(
        comm, twill_alltoall_init(comm, last, last + all, each, TWILL_U8, &persistent)));
    for (unsigned call = 0; call < 3 * TRIED_CALLS; call++) {
        for (size_t i = 0; i < (AT_ONCE + 1) * 2 * all; i++)
            memory[i] = (unsigned char)(i / each * 3 + comm->rank * 7 + call);
        for (unsigned n = 0; n < AT_ONCE; n++) {
            unsigned char *src = memory + n * 2 * all;
            TWILL_REQUIRE(twill_test_fine(
                comm, twill_alltoall_start(comm, src, src + all, each, TWILL_U8, &request[n])));
        }
        TWILL_REQUIRE(twill_test_fine(comm, twill_request_start(persistent)));
        for (unsigned n = 0; n < AT_ONCE; n++)
            TWILL_REQUIRE(twill_test_fine(comm, twill_wait(&request[n])));
        TWILL_REQUIRE(twill_test_fine(comm, twill_wait(&persistent)));
        for (size_t i = 0; i < (AT_ONCE + 1) * all; i++) {
            size_t n = i / all, from = i % all / each, shard = n * 2 * size + comm->rank;
            TWILL_REQUIRE(memory[n * 2 * all + all + i % all] ==
                              (unsigned char)(shard * 3 + from * 7 + call),
                          "call %u, byte %zu", call, i);
        }
    }
    return twill_request_free(&persistent) == TWILL_OK;
}

TWILL_TEST_ON(trials_under_way, processes, TWILL_LAYOUTS("2", "3"),
              REACH_SETTINGS("cma", "TWILL_ALGORITHM=auto"))
{
    unsigned char *memory = malloc((size_t)8 * TRIED_BYTES / 2 * (size_t)size);
    TWILL_CHECK(memory != NULL && check_under_way(comm, memory));
    free(memory);
}
