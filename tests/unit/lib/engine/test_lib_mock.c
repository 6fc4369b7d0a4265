/* SPDX-License-Identifier: Apache-2.0 */
/* The executor over a network double: if messages are late, reordered, refused as busy or cut into
 * small chunks, results are right; if it fails, every rank gets the error in time. */
#include "tests/doubles/mock_transport.h"
#include "tests/support/unit.h"

#define MOCK_CALLS 3000

/* What the network does (as twill_test_size() has it), the algorithm, and what comes of it. */
struct mischief {
    const char *layout, *algorithm;
    const char *timeout;
    twill_status expected; /* on the rank that fails; others: any failure */
    int failing;           /* rank, or -1 */
};

/* Small segments: several in flight, on several lanes. */
#define MOCK_SETTINGS(m)                                                                           \
    twill_test_text("TWILL_ALGORITHM=%s", (m)->algorithm), (m)->timeout,                           \
        "TWILL_TUNE=segment_net=4K,heap_limit=4M"

static bool reduce_once(const struct mischief *m, twill_comm *comm, int rank, int size,
                        size_t count)
{
    static const int weight = 3;
    int32_t *x = calloc(MOCK_CALLS, sizeof(*x));
    bool right = x != NULL;
    for (size_t i = 0; right && i < count; i++)
        x[i] = rank * weight + (int32_t)i;
    twill_status status = twill_allreduce(comm, x, x, count, TWILL_I32, TWILL_SUM);
    right = TWILL_NOTE(status == TWILL_OK, "%s %s: %s", m->layout, m->algorithm,
                       twill_comm_message(comm));
    for (size_t i = 0; right && i < count; i++)
        right = TWILL_NOTE(x[i] == weight * size * (size - 1) / 2 + size * (int32_t)i,
                           "%s %s: rank %d element %zu of %zu", m->layout, m->algorithm, rank, i,
                           count);
    status = right ? twill_broadcast(comm, x, x, count, TWILL_I32, size - 1) : TWILL_OK;
    right = right && TWILL_NOTE(status == TWILL_OK, "%s: %s", m->layout, twill_comm_message(comm));
    free(x);
    return right;
}

static void endure(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    static const size_t counts[] = {1, 0, 7, 500, MOCK_CALLS};
    const struct mischief *m = user;
    twill_comm *comm;
    if (!twill_test_begin(&comm, bootstrap, m->layout, TWILL_TEST_SETTINGS_OF(MOCK_SETTINGS(m))))
        return;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(counts); i++)
        if (!reduce_once(m, comm, rank, size, counts[i]))
            break;
    twill_test_close(comm);
}

TWILL_TEST(results_survive_mischief)
{
    static const char *const habits[] = {"delay=7", "delay=3,reorder=1", "again=40", "chunk=8",
                                         "delay=5,reorder=1,again=20,chunk=64"};
    static const struct {
        const char *algorithm, *layout;
    } worlds[] = {
        {"allreduce:ring", "2"},
        {"allreduce:ring", "5"},
        {"allreduce:recursive_doubling;broadcast:tree", "6"},
        {"allreduce:ring;broadcast:tree", "4x1"},
        {"allreduce:hierarchical:ring", "2x2"},
        {"allreduce:hierarchical:recursive_doubling", "3+2+1"},
    };
    for (unsigned turn = 0; turn < (TEST_FEWER ? 1 : 3); turn++)
        for (size_t w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++)
            for (size_t h = 0; h < TWILL_ARRAY_LENGTH(habits); h++) {
                unsigned seed = (unsigned)(test_seed() % 100000) * 30 + turn * 10 + (unsigned)h;
                struct mischief m = {
                    .layout = twill_test_text("%s seed=%u,%s", worlds[w].layout, seed, habits[h]),
                    .algorithm = worlds[w].algorithm,
                    .timeout = TWILL_TEST_PATIENT};
                twill_test_run_ranks(twill_test_size(m.layout), endure, &m);
            }
}

static const struct mischief failures[] = {
    {"3 fail=9:1,rank=1", "ring", TWILL_TEST_PATIENT, TWILL_ERR_FABRIC, 1},
    {"4x1 fail=9:1,rank=2", "allreduce:ring", TWILL_TEST_PATIENT, TWILL_ERR_FABRIC, 2},
    {"3 fail=9:3,rank=1", "ring", TWILL_TEST_PATIENT, TWILL_OK, 1},
    {"3 fail=9:2,rank=0", "ring", TWILL_TEST_HASTY, TWILL_OK, 0},
    {"2x1 fail=9:4,rank=0", "allreduce:recursive_doubling", TWILL_TEST_HASTY, TWILL_OK, 0},
};

/* Call until it fails, which it must. */
TWILL_TEST_CASES(failures_reach_all_ranks, ranks, failures, c->layout, MOCK_SETTINGS(c))
{
    int32_t x[64] = {0};
    twill_status status = TWILL_OK;
    for (int i = 0; i < 200 && status == TWILL_OK; i++)
        status = twill_allreduce(comm, x, x, 64, TWILL_I32, TWILL_SUM);
    bool right =
        rank == c->failing ? status == c->expected || c->expected == TWILL_OK : status != TWILL_OK;
    TWILL_CHECK(right && strstr(twill_comm_message(comm), "rank") != NULL,
                "%s: rank %d: status %d: \"%s\"", c->layout, rank, status,
                twill_comm_message(comm));
    TWILL_CHECK(twill_barrier(comm) == TWILL_ERR_BROKEN);
}

/* A script that cannot be read fails where the transport is opened, on all ranks. */
static void misread(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const char *script = user, *const settings[] = {TWILL_TEST_PATIENT, "TWILL_INTERFACE=lo", NULL};
    twill_context *context = NULL;
    twill_comm *comm = NULL;
    test_use_mock(script);
    twill_status status = twill_context_create(&context, bootstrap, settings);
    if (status == TWILL_OK)
        status = twill_comm_create(&comm, context);
    TWILL_NOTE(status == TWILL_ERR_CONFIG && strstr(twill_context_message(context), "mock: "),
               "\"%s\": status %d: %s", script, status, twill_context_message(context));
    twill_test_disconnect(comm, context);
}

TWILL_TEST(scripts_are_read_with_care)
{
    static const char *const scripts[] = {"delay",    "delay=",          "delay=x",  "sleep=3",
                                          "=3",       "delay=3;again=4", "delay=3x", "seed=,",
                                          "fail=1:5", "fail=1:x",        "chunk=12", "again=101"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(scripts); i++)
        twill_test_run_ranks(2, misread, (void *)(uintptr_t)scripts[i]);
}
