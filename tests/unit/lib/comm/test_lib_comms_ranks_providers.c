/* SPDX-License-Identifier: Apache-2.0 */
/* A sweep: every layer works on communicators whose ranks are not 0 .. n-1 of the job in that
 * order, over every transport. Layers: collectives, messages, duplicates, gradient sets with and
 * without threads, parameter servers, the agreement of survivors. TEST_WHOLE: more transports,
 * layouts, kinds, and every collective with every root. */
#include "lib/comm/comm.h"
#include "lib/twill_recover.h"
#include "lib/twill_server.h"
#include "lib/twill_train.h"
#include "tests/support/collectives.h"
#include "tests/support/scene.h"
#include "tests/support/unit.h"

enum { SWEEP_RANKS = 4, SWEEP_TENSORS = 3, SWEEP_STEPS = 2 };
static const size_t sweep_counts[SWEEP_TENSORS] = {7, 3000, 40000};

/* A transport between nodes, and where the ranks are. */
struct sweep_way {
    const char *provider; /* TWILL_PROVIDER */
    const char *nodes;
    int threads;  /* most of a set: each needs an endpoint, of which some providers have few */
    bool doubled; /* by tests/doubles/provider */
    bool rarely;  /* with TEST_WHOLE only */
};
static const struct sweep_way sweep_ways[] = {
    {"", "", 2, false, false},           {"tcp", "4x1", 2, false, false},
    {"ofi:tcp", "4x1", 2, false, false}, /* one endpoint for all communicators */
    {"net", "4x1", 2, false, false},     /* each has its own */
    {"cxi", "4x1", 2, true, false},      /* memory is registered */
    {"tcp", "2x2", 2, false, true},      {"tcp", "1+2+1", 2, false, true},
    {"ofi:tcp", "2x2", 2, false, true},  {"ofi:tcp", "3+1", 2, false, true},
    {"gni", "4x1", 1, true, true},       {"psm2", "4x1", 0, true, true},
    {"opx", "4x1", 0, true, true},       {"efa", "4x1", 2, true, true},
};

/* Communicators, each made out of the one before, from that of all ranks on. Members are ranks of
 * the job. */
struct sweep_kind {
    const char *name;
    struct twill_test_group chain[3]; /* a size of 0 ends it */
    bool rarely;
};
static const struct sweep_kind sweep_kinds[] = {
    {"without the first", {{3, {1, 2, 3}}}, false},
    {"reversed", {{4, {3, 2, 1, 0}}}, false},
    {"nested", {{4, {1, 2, 3, 0}}, {3, {0, 3, 2}}}, false},
    {"same", {{4, {0, 1, 2, 3}}}, true},
    {"rotated", {{4, {1, 2, 3, 0}}}, true},
    {"pair", {{2, {3, 1}}}, true},
    {"alone", {{1, {2}}}, true},
    {"the first two", {{2, {0, 1}}}, true},
    {"nested deeper", {{3, {3, 1, 0}}, {3, {1, 0, 3}}, {2, {3, 1}}}, true},
};

/* --- layers ---------------------------------------------------------------------------------- */

/* Every collective, with a payload of its own for each rank and place. */
static bool sweep_collectives(twill_comm *comm)
{
    int size = twill_comm_size(comm);
    for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT; c++)
        for (int root = test_whole() ? 0 : size - 1; root < size; root++) {
            struct test_call call = {.collective = (enum twill_collective)c,
                                     .type = TWILL_I32,
                                     .op = TWILL_SUM,
                                     .count = 3000,
                                     .root = root,
                                     .form = (enum test_form)((c + (unsigned)root) % 3),
                                     .turn = c};
            struct test_buffers b;
            TWILL_REQUIRE(test_buffers_get(&b, NULL, test_call_bytes(&call, size), 0, false));
            TWILL_REQUIRE(!test_call_exists(&call) || test_call_check(&call, comm, &b));
            test_buffers_put(&b, NULL, false);
        }
    return true;
}

/* A message around the ring, in one segment and in several. */
static bool sweep_messages(twill_comm *comm, const struct twill_test_group *group)
{
    int size = group->size, self = twill_comm_rank(comm), to = (self + 1) % size,
        from = (self + size - 1) % size;
    int64_t *data = calloc(80000, sizeof(*data));
    TWILL_REQUIRE(data != NULL);
    for (size_t count = 1; count <= 40000; count *= 40000) {
        for (size_t i = 0; i < count; i++)
            data[i] = group->rank[self] * 100000 + (int64_t)i;
        TWILL_REQUIRE(twill_test_fine(
            comm, twill_sendrecv(comm, data, count, to, data + count, count, from, TWILL_I64)));
        for (size_t i = 0; i < count; i++)
            TWILL_REQUIRE(data[count + i] == group->rank[from] * 100000 + (int64_t)i);
    }
    free(data);
    return true;
}

static float sweep_gradient(int rank, size_t i, int step)
{
    return (float)((i * 5 + (size_t)rank * 3 + (size_t)step) % 11) - 4;
}

static float sweep_sum(const struct twill_test_group *group, size_t i, int step)
{
    float sum = 0;
    for (int r = 0; r < group->size; r++)
        sum += sweep_gradient(group->rank[r], i, step);
    return sum;
}

static bool sweep_set_steps(twill_gradients *set, const struct twill_test_group *group, int me,
                            bool updates)
{
    for (int step = 0; step < SWEEP_STEPS; step++) {
        for (int t = SWEEP_TENSORS; t-- > 0;) {
            float *gradient = twill_gradients_memory(set, t);
            for (size_t i = 0; i < sweep_counts[t]; i++)
                gradient[i] = sweep_gradient(me, i, step);
            TWILL_REQUIRE(twill_gradients_ready(set, t) == TWILL_OK);
        }
        twill_status status = twill_gradients_wait_all(set);
        TWILL_REQUIRE(status == TWILL_OK, "%s", twill_gradients_message(set));
        for (int t = 0; t < SWEEP_TENSORS; t++) {
            const float *result =
                updates ? twill_gradients_parameters(set, t) : twill_gradients_result(set, t);
            for (size_t i = 0; i < sweep_counts[t]; i++) {
                float want = sweep_sum(group, i, step);
                for (int before = 0; updates && before < step; before++)
                    want += sweep_sum(group, i, before);
                TWILL_REQUIRE(result[i] == (updates ? -want : want));
            }
        }
    }
    return true;
}

/* A set with this many threads, which reduces or updates. */
static bool sweep_set(twill_comm *comm, const struct twill_test_group *group, int me, int threads,
                      bool updates)
{
    static const char *const names[SWEEP_TENSORS] = {"first", "second", "third"};
    twill_gradients_options options;
    twill_optimizer sgd;
    twill_gradients *set;
    twill_gradients_defaults(&options);
    twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
    sgd.rate = 1;
    options.op = TWILL_SUM;
    options.threads = threads;
    options.bucket_bytes = 16384;
    if (!updates)
        options.order = TWILL_BUCKETS_BY_PRIORITY;
    TWILL_REQUIRE(twill_test_fine(comm, twill_gradients_create(&set, comm, &options)));
    twill_status status = updates ? twill_gradients_set_optimizer(set, &sgd) : TWILL_OK;
    for (int t = 0; status == TWILL_OK && t < SWEEP_TENSORS; t++) {
        const twill_tensor tensor = {
            .name = names[t], .count = sweep_counts[t], .type = TWILL_F32, .priority = t};
        status = twill_gradients_add(set, &tensor, NULL);
    }
    if (status == TWILL_OK)
        status = twill_gradients_commit(set);
    TWILL_REQUIRE(status == TWILL_OK, "threads=%d: %s", threads, twill_gradients_message(set));
    TWILL_REQUIRE(sweep_set_steps(set, group, me, updates));
    TWILL_REQUIRE(twill_test_fine(comm, twill_barrier(comm)));
    twill_gradients_destroy(set);
    return true;
}

/* Servers on all ranks, which all work. */
static bool sweep_servers(twill_comm *comm, const struct twill_test_group *group, int me,
                          int threads)
{
    enum { COUNT = 3000 };
    float gradient[COUNT], parameters[COUNT] = {0};
    const twill_tensor tensor = {.name = "weights",
                                 .count = COUNT,
                                 .type = TWILL_F32,
                                 .gradient = gradient,
                                 .parameters = parameters};
    twill_server_options options;
    twill_server *server;
    twill_server_defaults(&options);
    options.op = TWILL_SUM;
    options.layout = TWILL_SERVER_CS;
    options.chunk_bytes = 1024;
    options.threads = threads;
    options.replicas = threads > 0 && group->size > 1 ? 2 : 1;
    TWILL_REQUIRE(twill_test_fine(comm, twill_server_create(&server, comm, &options)));
    twill_status status = twill_server_add(server, &tensor, NULL);
    if (status == TWILL_OK)
        status = twill_server_commit(server);
    for (size_t i = 0; i < COUNT; i++)
        gradient[i] = sweep_gradient(me, i, 0);
    if (status == TWILL_OK)
        status = twill_server_push_pull(server, 0);
    if (status == TWILL_OK)
        status = twill_server_wait(server, 0);
    TWILL_REQUIRE(status == TWILL_OK, "%s", twill_server_message(server));
    for (size_t i = 0; i < COUNT; i++)
        TWILL_REQUIRE(parameters[i] == sweep_sum(group, i, 0));
    TWILL_REQUIRE(twill_test_fine(comm, twill_barrier(comm)));
    twill_server_destroy(server);
    return true;
}

/* Memory that is declared anew at the same address is registered anew, also by endpoints that one
 * communicator has alone: other pages may lie there. */
static bool sweep_declared(twill_comm *all)
{
    enum { COUNT = 100000 };
    static int64_t data[2 * COUNT];
    twill_counters before, after;
    twill_comm *alone;
    int size = twill_comm_size(all), me = twill_comm_rank(all), to = (me + 1) % size,
        from = (me + size - 1) % size;
    TWILL_REQUIRE(twill_test_fine(all, twill_comm_dup_alone(&alone, all)));
    for (int turn = 0; turn < 2; turn++) {
        TWILL_REQUIRE(twill_register(twill_comm_context(all), data, sizeof(data)) == TWILL_OK);
        for (int again = 0; again < 2; again++) {
            TWILL_REQUIRE(twill_comm_counters(alone, &before) == TWILL_OK);
            TWILL_REQUIRE(
                twill_test_fine(alone, twill_sendrecv(alone, data, COUNT, to, data + COUNT, COUNT,
                                                      from, TWILL_I64)));
            TWILL_REQUIRE(twill_comm_counters(alone, &after) == TWILL_OK);
            TWILL_REQUIRE((after.registrations > before.registrations) == (again == 0));
        }
        TWILL_REQUIRE(twill_deregister(twill_comm_context(all), data) == TWILL_OK);
    }
    twill_comm_destroy(alone);
    return true;
}

static bool sweep_layers(twill_comm *comm, const struct twill_test_group *group, int me,
                         int most_threads)
{
    uint64_t flags = 6;
    twill_comm *again;
    TWILL_REQUIRE(twill_test_works(comm, group, me) && sweep_messages(comm, group));
    TWILL_REQUIRE(sweep_collectives(comm));
    for (int threads = 0; threads <= most_threads; threads++) {
        TWILL_REQUIRE(sweep_set(comm, group, me, threads, false));
        TWILL_REQUIRE(sweep_set(comm, group, me, threads, true));
        TWILL_REQUIRE(sweep_servers(comm, group, me, threads));
    }
    TWILL_REQUIRE(twill_test_fine(comm, twill_comm_agree(comm, &flags)) && flags == 6);
    TWILL_REQUIRE(twill_test_fine(comm, twill_comm_dup(&again, comm)));
    bool works = twill_test_works(again, group, me);
    twill_comm_destroy(again);
    return works;
}

/* --- communicators --------------------------------------------------------------------------- */

/* Make a communicator of group out of one of `from`: odd kinds by a split. */
static bool sweep_make(twill_comm **made, twill_comm *comm, const struct twill_test_group *from,
                       const struct twill_test_group *group, int me, bool splits)
{
    int ranks[SWEEP_RANKS], self = twill_test_place(group, me);
    *made = NULL;
    for (int r = 0; r < group->size; r++)
        ranks[r] = twill_test_place(from, group->rank[r]);
    if (splits)
        return twill_test_fine(
            comm, twill_comm_split(made, comm, self < 0 ? TWILL_COLOUR_NONE : 0, self));
    return self < 0 ||
           twill_test_fine(comm, twill_comm_create_group(made, comm, group->size, ranks));
}

/* Make the communicators of a kind, and use those of them that this rank is in. */
static bool sweep_kind(const struct sweep_kind *kind, twill_comm *all, int threads, bool splits)
{
    int me = twill_comm_rank(all);
    struct twill_test_group from = twill_test_everyone(SWEEP_RANKS);
    twill_comm *comm[TWILL_ARRAY_LENGTH(kind->chain)] = {NULL}, *parent = all;
    size_t length = 0;
    for (; length < TWILL_ARRAY_LENGTH(comm) && kind->chain[length].size > 0 && parent != NULL;
         length++) {
        const struct twill_test_group *group = &kind->chain[length];
        TWILL_REQUIRE(sweep_make(&comm[length], parent, &from, group, me, splits));
        parent = comm[length];
        from = *group;
    }
    bool fine = parent == NULL || sweep_layers(parent, &from, me, threads);
    while (length-- > 0)
        twill_comm_destroy(comm[length]);
    return fine && twill_test_fine(all, twill_barrier(all));
}

/* What is left when the second rank has died, and that in another order. */
static bool sweep_survivors(twill_comm *all, int threads)
{
    static const struct twill_test_group left = {3, {0, 2, 3}}, turned = {3, {3, 0, 2}};
    int me = twill_comm_rank(all);
    twill_comm *smaller, *made;
    int64_t one = 1;
    if (me == 1)
        raise(SIGKILL);
    while (twill_allreduce(all, &one, &one, 1, TWILL_I64, TWILL_MAX) == TWILL_OK)
        usleep(1000);
    TWILL_REQUIRE(twill_test_fine(all, twill_comm_shrink(&smaller, all)));
    bool fine = sweep_layers(smaller, &left, me, threads) &&
                sweep_make(&made, smaller, &left, &turned, me, true) &&
                sweep_layers(made, &turned, me, threads);
    if (fine)
        twill_comm_destroy(made);
    twill_comm_destroy(smaller);
    return fine;
}

static void sweep_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct sweep_way *way = user;
    int threads = way->threads > 1 && !test_whole() ? 1 : way->threads;
    twill_comm *all;
    if (rank == 1)
        twill_test_expect_death(rank);
    bool fine = twill_test_open(&all, bootstrap, way->nodes,
                                twill_test_text("TWILL_PROVIDER=%s", way->provider),
                                "TWILL_INTERFACE=", TWILL_TEST_PATIENT,
                                "TWILL_TUNE=heap_limit=8M,segment=16K,segment_net=16K");
    for (size_t k = 0; fine && k < TWILL_ARRAY_LENGTH(sweep_kinds); k++) {
        if (sweep_kinds[k].rarely && !test_whole())
            continue;
        fine = sweep_kind(&sweep_kinds[k], all, threads, k % 2 == 1);
        if (!fine)
            fprintf(stderr, "rank %d: %s\n", rank, sweep_kinds[k].name);
    }
    if (fine && way->doubled && way->threads > 0)
        fine = sweep_declared(all);
    if (fine && !sweep_survivors(all, threads))
        fprintf(stderr, "rank %d: survivors\n", rank);
    twill_test_close(all);
}

TWILL_TEST(every_layer)
{
    setenv("ALPS_APP_PE", "0", 1);
    setenv("TEST_DOUBLE_LOCAL", "1", 1);  /* memory must be registered */
    setenv("IPATH_NO_BACKTRACE", "1", 1); /* libfabric loads psm's library, which catches signals */
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sweep_ways); i++) {
        const struct sweep_way *way = &sweep_ways[i];
        if (way->rarely && !test_whole())
            continue;
        print_message("TWILL_PROVIDER=%s, nodes %s\n", way->provider, way->nodes);
        if (way->doubled)
            setenv("FI_PROVIDER_PATH", twill_test_text("%s/%s", TEST_DOUBLES, way->provider), 1);
        else
            unsetenv("FI_PROVIDER_PATH");
        twill_test_run_processes(SWEEP_RANKS, sweep_rank, (void *)(uintptr_t)way);
    }
}
