/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: many in progress, of all kinds, waited for in another order on every rank; persistent
 * ones started repeatedly; misuse; and failures, which complete all of them. */
#include "lib/comm/comm.h"
#include "lib/twill_recover.h"
#include "tests/support/collectives.h"
#include "tests/support/unit.h"

#define REQUEST_FLIGHT 24u /* calls in progress at a time */
#define ROUNDS         (TEST_FEWER ? 2u : 6u)
#define REQUEST_BYTES  ((size_t)64 << 10)
#define REQUEST_SETTINGS                                                                           \
    TWILL_TEST_PATIENT, "TWILL_TUNE=heap_limit=16M,segment=4K,segment_net=8K,slot=64"

static const char *const worlds[] = {"1",
                                     "2",
                                     "4",
                                     "2x2",
                                     "3x1",
                                     "3+2",
                                     "4 delay=3,reorder=1,again=20",
                                     "2x2 delay=5,reorder=1,chunk=64"};

static uint64_t hash(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* The k-th call of a round, the same on all ranks. */
static struct test_call call_from_seed(uint64_t seed, unsigned k, int size)
{
    static const size_t counts[] = {0, 1, 5, 12, 300, 1500};
    static const twill_type types[] = {TWILL_I32, TWILL_F64, TWILL_BF16, TWILL_U8};
    struct test_call call;
    for (uint64_t i = 0;; i++) {
        uint64_t h = hash(seed * 1000003 + k * 977 + i * 31 + 1);
        call = (struct test_call){
            .collective = (enum twill_collective)(h % TWILL_COLLECTIVE_COUNT),
            .vector = h >> 8 & 1,
            .type = types[h >> 16 & 3],
            .op = h >> 20 & 1 ? TWILL_SUM : TWILL_MAX,
            .count = counts[(h >> 24) % TWILL_ARRAY_LENGTH(counts)],
            .root = (int)((h >> 32) % (uint64_t)size),
            .in_place = h >> 40 & 1,
            .form = TEST_STARTED,
        };
        if (call.collective == TWILL_BARRIER)
            call.vector = call.in_place = false;
        if (test_call_exists(&call) && test_call_bytes(&call, size) <= REQUEST_BYTES)
            return call;
    }
}

/* Wait for one of the remaining requests, in a way that varies. Returns its index. */
static unsigned wait_for_one(twill_request **request, unsigned left, uint64_t chance, bool *ok)
{
    int index = (int)((chance >> 8) % left), done = 0;
    twill_status status = TWILL_OK;
    if (chance % 3 == 0) {
        status = twill_wait_any(left, request, &index);
    } else if (chance % 3 == 1) {
        status = twill_wait(&request[index]);
    } else {
        while (status == TWILL_OK && !done) {
            status = twill_test(&request[index], &done);
            if (!done)
                usleep(10);
        }
    }
    *ok = status == TWILL_OK && index >= 0 && request[index] == NULL;
    return (unsigned)index;
}

static bool one_round(twill_comm *comm, uint64_t seed, struct test_buffers *buffers)
{
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    twill_request *request[REQUEST_FLIGHT];
    unsigned number[REQUEST_FLIGHT];
    for (unsigned k = 0; k < REQUEST_FLIGHT; k++) {
        struct test_call call = call_from_seed(seed, k, size);
        test_call_fill(&call, rank, size, &buffers[k]);
        TWILL_REQUIRE(
            twill_test_fine(comm, test_call_begin(&call, comm, &buffers[k], &request[k])));
        TWILL_REQUIRE(request[k] != NULL);
        number[k] = k;
    }
    for (unsigned left = REQUEST_FLIGHT; left > 0; left--) {
        bool ok;
        uint64_t chance = hash(seed * 31 + (uint64_t)rank * 7919 + left);
        unsigned i = wait_for_one(request, left, chance, &ok);
        TWILL_REQUIRE(ok, "wait: %s", twill_comm_message(comm));
        struct test_call call = call_from_seed(seed, number[i], size);
        if (!test_call_compare(&call, rank, size, &buffers[number[i]]))
            return false;
        request[i] = request[left - 1];
        number[i] = number[left - 1];
    }
    return true;
}

TWILL_TEST_ON(many_in_flight, ranks, worlds, REQUEST_SETTINGS)
{
    twill_context *context = twill_comm_context(comm);
    struct test_buffers buffers[REQUEST_FLIGHT];
    for (unsigned k = 0; k < REQUEST_FLIGHT; k++)
        TWILL_CHECK(test_buffers_get(&buffers[k], context, REQUEST_BYTES, 0, k % 2));
    for (uint64_t seed = 1; seed <= ROUNDS; seed++)
        TWILL_CHECK(one_round(comm, seed, buffers));
    for (unsigned k = 0; k < REQUEST_FLIGHT; k++)
        test_buffers_put(&buffers[k], context, k % 2);
}

/* --- persistent ------------------------------------------------------------------------------ */

#define REQUEST_PERSISTENT 6
#define REQUEST_COUNT      2000

struct persistent {
    int32_t *src[REQUEST_PERSISTENT], *dst[REQUEST_PERSISTENT];
    twill_request *request[REQUEST_PERSISTENT];
};

static bool prepare_calls(twill_comm *comm, struct persistent *p)
{
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    for (int i = 0; i < REQUEST_PERSISTENT; i++) {
        void *memory[2];
        for (int m = 0; m < 2; m++)
            TWILL_REQUIRE(twill_alloc(twill_comm_context(comm), &memory[m],
                                      (size_t)size * REQUEST_COUNT * sizeof(int32_t)) == TWILL_OK);
        p->src[i] = memory[0];
        p->dst[i] = memory[1];
    }
    TWILL_REQUIRE(twill_allreduce_init(comm, p->src[0], p->dst[0], REQUEST_COUNT, TWILL_I32,
                                       TWILL_SUM, &p->request[0]) == TWILL_OK);
    TWILL_REQUIRE(twill_allgather_init(comm, p->src[1], p->dst[1], REQUEST_COUNT, TWILL_I32,
                                       &p->request[1]) == TWILL_OK);
    TWILL_REQUIRE(twill_broadcast_init(comm, p->src[2], p->dst[2], REQUEST_COUNT, TWILL_I32,
                                       size - 1, &p->request[2]) == TWILL_OK);
    TWILL_REQUIRE(twill_allreduce_init(comm, p->src[3], p->dst[3], 3, TWILL_I32, TWILL_MAX,
                                       &p->request[3]) == TWILL_OK);
    TWILL_REQUIRE(twill_alltoall_init(comm, p->src[4], p->dst[4], 7, TWILL_I32, &p->request[4]) ==
                  TWILL_OK);
    TWILL_REQUIRE(twill_sendrecv_init(comm, p->src[5], REQUEST_COUNT, (rank + 1) % size, p->dst[5],
                                      REQUEST_COUNT, (rank + size - 1) % size, TWILL_I32,
                                      &p->request[5]) == TWILL_OK);
    return true;
}

static int32_t source_value(int rank, int time, int what)
{
    return rank * 1000 + time * 10 + what;
}

static bool is_right(twill_comm *comm, const struct persistent *p, int time)
{
    int n = twill_comm_size(comm), before = (twill_comm_rank(comm) + n - 1) % n;
    int32_t sum = 0;
    for (int r = 0; r < n; r++)
        sum += source_value(r, time, 0);
    for (int i = 0; i < REQUEST_COUNT; i++) {
        TWILL_REQUIRE(p->dst[0][i] == sum);
        TWILL_REQUIRE(p->dst[2][i] == source_value(n - 1, time, 2));
        TWILL_REQUIRE(p->dst[5][i] == source_value(before, time, 5));
        for (int r = 0; r < n; r++)
            TWILL_REQUIRE(p->dst[1][r * REQUEST_COUNT + i] == source_value(r, time, 1));
    }
    for (int i = 0; i < 3; i++)
        TWILL_REQUIRE(p->dst[3][i] == source_value(n - 1, time, 3));
    for (int i = 0; i < 7 * n; i++)
        TWILL_REQUIRE(p->dst[4][i] == source_value(i / 7, time, 4));
    return true;
}

TWILL_TEST_ON(persistent_ones_start_again, ranks, worlds, REQUEST_SETTINGS)
{
    struct persistent p;
    int done = 0;
    TWILL_CHECK(prepare_calls(comm, &p));
    TWILL_CHECK(twill_test(&p.request[0], &done) == TWILL_OK && done); /* it was never started */
    for (int time = 0; time < (TEST_FEWER ? 6 : 20); time++) {
        for (int i = 0; i < REQUEST_PERSISTENT; i++) {
            for (int k = 0; k < size * REQUEST_COUNT; k++)
                p.src[i][k] = source_value(rank, time, i);
            TWILL_CHECK(twill_test_fine(comm, twill_request_start(p.request[i])));
        }
        TWILL_CHECK(twill_test_fine(comm, twill_wait_all(REQUEST_PERSISTENT, p.request)));
        TWILL_CHECK(is_right(comm, &p, time));
    }
    for (int i = 0; i < REQUEST_PERSISTENT; i++)
        TWILL_CHECK(twill_request_free(&p.request[i]) == TWILL_OK && p.request[i] == NULL);
}

/* --- several communicators, misuse, failure -------------------------------------------------- */

TWILL_TEST_ON(communicators_apart, ranks, worlds, REQUEST_SETTINGS)
{
    int32_t x[3][2000], index;
    twill_comm *comms[3] = {comm};
    twill_request *request[3];
    TWILL_CHECK(twill_comm_dup(&comms[1], comm) == TWILL_OK);
    TWILL_CHECK(twill_comm_dup(&comms[2], comm) == TWILL_OK);
    for (int time = 0; time < 10; time++) {
        for (int k = 0; k < 3; k++) {
            int own = (k + rank) % 3; /* in another order on each rank */
            for (int i = 0; i < 2000; i++)
                x[own][i] = rank + own + i;
            TWILL_CHECK(twill_allreduce_start(comms[own], x[own], x[own], 2000, TWILL_I32,
                                              TWILL_SUM, &request[own]) == TWILL_OK);
        }
        for (int left = 3; left > 0; left--) {
            TWILL_CHECK(twill_wait_any(3, request, &index) == TWILL_OK && index >= 0);
            for (int i = 0; i < 2000; i++)
                TWILL_CHECK(x[index][i] == size * (size - 1) / 2 + size * (index + i));
        }
        TWILL_CHECK(twill_wait_any(3, request, &index) == TWILL_OK && index == -1);
    }
    twill_comm_destroy(comms[2]);
    twill_comm_destroy(comms[1]);
}

TWILL_TEST_ON(misuse_is_refused, ranks, TWILL_LAYOUTS("2"), REQUEST_SETTINGS)
{
    int32_t x[4] = {0}, y[4];
    twill_request *request = NULL, *other = NULL;
    TWILL_CHECK(twill_wait(&request) == TWILL_OK && twill_request_free(&request) == TWILL_OK);
    TWILL_CHECK(twill_barrier_start(comm, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_sendrecv_init(comm, x, 4, (rank + 1) % size, y, 4, (rank + 1) % size,
                                    TWILL_I32, &request) == TWILL_OK);
    TWILL_CHECK(twill_barrier_start(comm, &other) == TWILL_OK);
    TWILL_CHECK(TWILL_ENDS(comm, twill_request_start(other), TWILL_ERR_ARGUMENT, "not persistent"));
    TWILL_CHECK(twill_request_free(&other) == TWILL_ERR_ARGUMENT && other != NULL);
    TWILL_CHECK(twill_wait(&other) == TWILL_OK && other == NULL);
    (void)twill_test_barrier(bootstrap);
    if (rank == 0) {
        TWILL_CHECK(twill_request_start(request) == TWILL_OK);
        TWILL_CHECK(twill_request_start(request) == TWILL_ERR_ARGUMENT);
        TWILL_CHECK(twill_request_free(&request) == TWILL_ERR_ARGUMENT && request != NULL);
    }
    (void)twill_test_barrier(bootstrap);
    if (rank == 1)
        TWILL_CHECK(twill_request_start(request) == TWILL_OK);
    TWILL_CHECK(twill_wait(&request) == TWILL_OK && request != NULL);
    TWILL_CHECK(twill_request_free(&request) == TWILL_OK && request == NULL);
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK); /* misuse has not broken the communicator */
}

TWILL_TEST_ON(failures_end_all, ranks, worlds, REQUEST_SETTINGS)
{
    int32_t x[5][64] = {{0}};
    twill_request *request[5] = {NULL};
    if (size == 1)
        return;
    for (int k = 0; k < 5; k++) { /* the fourth has another count on the last rank */
        size_t count = k == 3 && rank == size - 1 ? 63 : 64;
        TWILL_CHECK(k != 3 || twill_test_barrier(bootstrap));
        twill_status status =
            twill_allreduce_start(comm, x[k], x[k], count, TWILL_I32, TWILL_SUM, &request[k]);
        TWILL_CHECK(status == TWILL_OK || k >= 3); /* others may have broken it */
    }
    twill_status status = twill_wait_all(5, request);
    TWILL_CHECK(status != TWILL_OK && TWILL_SAYS(twill_comm_message(comm), "rank"));
    for (int k = 0; k < 5; k++)
        TWILL_CHECK(request[k] == NULL);
    TWILL_CHECK(twill_barrier(comm) == TWILL_ERR_BROKEN);
    TWILL_CHECK(twill_barrier_start(comm, &request[0]) == TWILL_ERR_BROKEN);
}

/* --- deadlines -------------------------------------------------------------------------------- */

/* Deadlines of communicators and requests, and the bounds that are stated for them. Rank 1 does not
 * come to the call in which the others wait; TWILL_TIMEOUT would be much longer. */

#define SHORT         0.3
#define LATE_SETTINGS TWILL_TEST_PATIENT, "TWILL_PROVIDER=tcp"

static twill_status start_sum(twill_comm *comm, float *x, twill_request **request)
{
    return twill_allreduce_start(comm, x, x, 4, TWILL_F32, TWILL_SUM, request);
}

/* The call must have ended by the short deadline: not before it, and long before TWILL_TIMEOUT. */
static bool was_short(uint64_t since)
{
    uint64_t took = twill_now() - since;
    return took >= (uint64_t)(SHORT * 0.99e9) && took < TWILL_TEST_PATIENCE / 2;
}

/* A bound is a little above what it is made of. */
static bool is_near(double bound, double seconds)
{
    return bound > seconds && bound < seconds + 2;
}

TWILL_TEST_ON(deadline_of_comm, ranks, TWILL_LAYOUTS("1x3", "2+1"), LATE_SETTINGS)
{
    twill_comm *copy = NULL;
    twill_bounds bounds;
    TWILL_CHECK(twill_comm_set_timeout(comm, SHORT) == TWILL_OK);
    TWILL_CHECK(twill_comm_bounds(comm, &bounds) == TWILL_OK && is_near(bounds.silent, SHORT));
    TWILL_CHECK(twill_comm_set_timeout(comm, 0) == TWILL_OK);
    TWILL_CHECK(twill_comm_bounds(comm, &bounds) == TWILL_OK && bounds.silent > 100);
    TWILL_CHECK(twill_comm_dup(&copy, comm) == TWILL_OK);
    TWILL_CHECK(twill_comm_bounds(copy, &bounds) == TWILL_OK && bounds.silent > 100);
    twill_comm_leave(copy);
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 0)
        TWILL_CHECK(twill_comm_set_timeout(comm, SHORT) == TWILL_OK);
    uint64_t since = twill_now();
    if (rank != 1) /* rank 2's own deadline has not expired */
        TWILL_CHECK(TWILL_ENDS(comm, twill_barrier(comm), TWILL_ERR_TIMEOUT, ""));
    TWILL_CHECK(rank != 0 || was_short(since));
    (void)twill_test_barrier(bootstrap);
    twill_comm_leave(comm);
}

TWILL_TEST_ON(inherited_deadline, ranks, TWILL_LAYOUTS("1x2"), LATE_SETTINGS)
{
    twill_comm *copy = NULL;
    twill_bounds bounds;
    TWILL_CHECK(twill_comm_set_timeout(comm, SHORT * 100) == TWILL_OK);
    TWILL_CHECK(twill_comm_dup(&copy, comm) == TWILL_OK);
    TWILL_CHECK(twill_comm_bounds(copy, &bounds) == TWILL_OK &&
                is_near(bounds.silent, SHORT * 100));
    twill_comm_destroy(copy);
}

static const enum late_way {
    LATE_WAIT,
    LATE_ANY,
    LATE_TEST
} late_ways[] = {LATE_WAIT, LATE_ANY, LATE_TEST};

TWILL_TEST_CASES(deadline_of_request, ranks, late_ways, "1x3", LATE_SETTINGS)
{
    twill_request *requests[2] = {NULL, NULL};
    float x[2][4] = {{0}};
    int done = 0;
    uint64_t since = twill_now();
    if (rank != 1) {
        TWILL_CHECK(start_sum(comm, x[0], &requests[0]) == TWILL_OK);
        TWILL_CHECK(start_sum(comm, x[1], &requests[1]) == TWILL_OK);
        if (rank == 0)
            TWILL_CHECK(twill_request_set_timeout(requests[1], SHORT) == TWILL_OK);
        twill_status status = TWILL_OK;
        if (*c == LATE_WAIT)
            status = twill_wait(&requests[1]);
        else if (*c == LATE_ANY)
            status = twill_wait_any(2, requests, &done);
        while (*c == LATE_TEST && status == TWILL_OK && done == 0)
            status = twill_test(&requests[1], &done);
        TWILL_CHECK(TWILL_ENDS(comm, status, TWILL_ERR_TIMEOUT, ""));
        TWILL_CHECK(was_short(since));
        (void)twill_wait_all(2, requests);
    }
    (void)twill_test_barrier(bootstrap);
    twill_comm_leave(comm);
}

TWILL_TEST_ON(bad_deadlines, ranks, TWILL_LAYOUTS("1x2", "2x1"), LATE_SETTINGS)
{
    static const double bad[] = {-1, 1e-9, 1e9, INFINITY, NAN};
    float x[4] = {0};
    twill_request *request = NULL;
    twill_bounds bounds;
    TWILL_CHECK(start_sum(comm, x, &request) == TWILL_OK);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++) {
        TWILL_CHECK(TWILL_ENDS(comm, twill_comm_set_timeout(comm, bad[i]), TWILL_ERR_ARGUMENT,
                               "twill_comm_set_timeout"));
        TWILL_CHECK(twill_request_set_timeout(request, bad[i]) == TWILL_ERR_ARGUMENT);
    }
    TWILL_CHECK(twill_request_set_timeout(request, 0) == TWILL_OK);
    TWILL_CHECK(twill_wait(&request) == TWILL_OK);
    TWILL_CHECK(twill_comm_set_timeout(NULL, 1) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_request_set_timeout(NULL, 1) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_bounds(NULL, &bounds) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_bounds(comm, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_bounds(comm, &bounds) == TWILL_OK);
    TWILL_CHECK(bounds.silent > 100 && bounds.death > 0 && bounds.death < 2);
    TWILL_CHECK((bounds.host > 0) == (twill_comm_nodes(comm) > 1));
    /* Eight times `silent`, which has one tick of the agreement more, for every rank in turn. */
    TWILL_CHECK(fabs(bounds.agree / (8 * size * bounds.silent) - 1) < 0.01);
    TWILL_CHECK(bounds.grow > 1.7 * (bounds.silent - 1.5)); /* three quarters of the timeout more */
    TWILL_CHECK(twill_comm_set_timeout(comm, 2) == TWILL_OK);
    TWILL_CHECK(twill_comm_bounds(comm, &bounds) == TWILL_OK);
    TWILL_CHECK(bounds.meet == 1.5 && bounds.silent > 2 && bounds.silent < 4);
    TWILL_CHECK(fabs(bounds.grow - bounds.silent - (1.5 + 0.75 + 0.1)) < 1e-6);
    TWILL_CHECK(twill_comm_set_timeout(comm, 0) == TWILL_OK);
}
