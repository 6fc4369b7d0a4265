/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient sets: counters beyond 2^32, waits of which nothing comes, sets with threads that fork,
 * are compared or divided anew, a commit that one rank refuses, and the assignment to reducers. */
#include "lib/base/balance.h"
#include "lib/comm/comm.h"
#include "lib/train/gradients.h"
#include "tests/support/gradient_sets.h"
#include "tests/support/unit.h"

#define WAITS_TENSORS 3u
#define WAITS_COUNT   1024u /* elements, a segment of 4 KiB */
#define WAITS_STEPS   12u

static bool waits_add(struct twill_test_set *r)
{
    for (unsigned t = 0; t < WAITS_TENSORS; t++)
        TWILL_REQUIRE(twill_test_set_add(r, t, WAITS_COUNT, TWILL_F32, NULL, NULL));
    return true;
}

static bool waits_mark(struct twill_test_set *r, int rank, unsigned step)
{
    for (unsigned t = 0; t < WAITS_TENSORS; t++) {
        float *memory = twill_gradients_memory(r->set, (int)t);
        for (unsigned i = 0; i < WAITS_COUNT; i++)
            memory[i] = (float)(i % 7 + t + 4 * step + 2 * (unsigned)rank);
        TWILL_REQUIRE(twill_gradients_ready(r->set, (int)t) == TWILL_OK);
    }
    return true;
}

/* Check the averages of 2 ranks. */
static bool waits_verify(struct twill_test_set *r, unsigned step)
{
    for (unsigned t = 0; t < WAITS_TENSORS; t++) {
        const float *result = twill_gradients_result(r->set, (int)t);
        for (unsigned i = 0; i < WAITS_COUNT; i++)
            TWILL_REQUIRE(result[i] == (float)(i % 7 + t + 4 * step + 1));
    }
    return true;
}

/* --- counters -------------------------------------------------------------------------------- */

/* Pretend that `steps` steps are complete. */
static void pretend_steps(struct twill_gradients *set, uint32_t steps)
{
    struct twill_bucket *bucket = &set->bucket[0];
    atomic_store(&set->step, steps);
    for (uint32_t t = 0; t < set->tensors; t++)
        atomic_store(&set->tensor[t].marked, steps);
    atomic_store(&bucket->arrived, (uint64_t)steps * bucket->tensors);
    atomic_store(&bucket->filled, steps);
    atomic_store(&bucket->reduced, steps);
    atomic_store(&bucket->ended, (uint64_t)steps * bucket->segments);
    bucket->agreed = steps;
    bucket->started = (uint64_t)steps * bucket->segments;
}

TWILL_TEST_SETS(test_counters, ranks, TWILL_LAYOUTS("2"), *c, TWILL_TEST_HASTY,
                "TWILL_GRADIENTS=order=priority,segment=4096")
{
    TWILL_CHECK(waits_add(r));
    TWILL_CHECK(twill_test_set_commit(r));
    TWILL_CHECK(r->set->buckets == 1 && r->set->bucket[0].segments == 3);
    pretend_steps(r->set, UINT32_MAX / 3 - 1); /* 3 of these are 2^32 - 4 */
    for (unsigned step = 0; step < 4; step++) {
        TWILL_CHECK(waits_mark(r, rank, step));
        TWILL_CHECK(twill_gradients_wait_all(r->set) == TWILL_OK);
        TWILL_CHECK(waits_verify(r, step));
    }
}

/* --- nothing comes --------------------------------------------------------------------------- */

static const char *const missing[] = {"TWILL_GRADIENTS=bucket=0,threads=1",
                                      "TWILL_GRADIENTS=bucket=0"};

TWILL_TEST_SETS(test_missing, ranks, missing, "1", "TWILL_TIMEOUT=1", *c)
{
    TWILL_CHECK(waits_add(r));
    TWILL_CHECK(twill_test_set_commit(r));
    TWILL_CHECK(twill_gradients_ready(r->set, 0) == TWILL_OK);
    TWILL_CHECK(twill_gradients_ready(r->set, 2) == TWILL_OK);
    TWILL_CHECK(twill_gradients_wait(r->set, 0) == TWILL_ERR_TIMEOUT);
    TWILL_CHECK(twill_test_set_says(r, "tensor 'tensor1' was not marked ready"));
}

static const char *const awaited[] = {"TWILL_GRADIENTS=bucket=0,order=priority",
                                      "TWILL_GRADIENTS=bucket=0,order=priority,threads=1"};

TWILL_TEST_SETS(test_awaited, ranks, awaited, "2", "TWILL_TIMEOUT=1", *c)
{
    TWILL_CHECK(waits_add(r));
    TWILL_CHECK(twill_test_set_commit(r));
    TWILL_CHECK(twill_gradients_ready(r->set, 2) == TWILL_OK);
    TWILL_CHECK(twill_gradients_ready(r->set, 1 - rank) == TWILL_OK); /* never the same one */
    if (rank == 0) {
        TWILL_CHECK(twill_gradients_wait(r->set, 1) == TWILL_ERR_TIMEOUT);
        TWILL_CHECK(twill_test_set_says(r, "'tensor1'"));
        TWILL_CHECK(twill_test_set_says(r, "on another rank"));
    } else {
        int done;
        uint64_t until = twill_now() + TWILL_TEST_SOON;
        while (twill_now() < until && twill_gradients_test(r->set, -1, &done) == TWILL_OK)
            (void)sched_yield();
    }
}

/* Rank 0's reducer waits for rank 1, and is interrupted all the time: its wait times out all the
 * same.
 */
TWILL_TEST_SETS(test_interrupted, ranks, TWILL_LAYOUTS("2"), *c, TWILL_TEST_PATIENT,
                "TWILL_GRADIENTS=bucket=0,threads=1")
{
    TWILL_CHECK(waits_add(r));
    TWILL_CHECK(twill_test_set_commit(r));
    if (rank == 0) {
        struct twill_reducer *reducer = &r->set->reducer[0];
        const uint64_t until = twill_now() + TWILL_TEST_PATIENCE / 2;
        reducer->comm->tuning.timeout_ns = UINT64_C(1000000000);
        TWILL_CHECK(waits_mark(r, rank, 0));
        while (!atomic_load(&r->set->broken) && twill_now() < until) {
            twill_reducer_interrupt(reducer);
            twill_reducer_unlock(reducer);
            (void)usleep(20000);
        }
        TWILL_CHECK(atomic_load(&r->set->broken) && twill_test_set_says(r, "within 1.0 s"));
    }
}

/* --- a commit that one rank refuses ---------------------------------------------------------- */

TWILL_TEST_SETS(test_refusing, ranks, TWILL_LAYOUTS("2"), *c, TWILL_TEST_HASTY)
{
    static float memory[2][16];
    twill_optimizer optimizer;
    TWILL_CHECK(waits_add(r));
    const twill_tensor tensor = {.name = "bad",
                                 .count = 4,
                                 .type = TWILL_F32,
                                 .gradient = memory[rank],
                                 .parameters = memory[rank] + (rank == 0 ? 8 : 2)};
    TWILL_CHECK(twill_gradients_add(r->set, &tensor, NULL) == TWILL_OK);
    twill_optimizer_defaults(&optimizer, TWILL_OPTIMIZER_SGD);
    TWILL_CHECK(twill_gradients_set_optimizer(r->set, &optimizer) == TWILL_OK);
    TWILL_CHECK(twill_gradients_commit(r->set) < 0);
    TWILL_CHECK(twill_test_set_says(r, "'bad'"));
    TWILL_CHECK(twill_test_set_says(r, "overlap"));
    TWILL_CHECK(twill_barrier(r->comm) == TWILL_OK); /* it is the caller's, and unharmed */
}

static const struct empty_set {
    const char *ranks, *setting;
} empty_sets[] = {{"2", "TWILL_GRADIENTS="},
                  {"2", "TWILL_GRADIENTS=threads=2,order=priority,autotune=1"},
                  {"1", "TWILL_GRADIENTS=late=1,compress=int8"}};

TWILL_TEST_SETS(test_empty, ranks, empty_sets, c->ranks, TWILL_TEST_HASTY, c->setting)
{
    TWILL_CHECK(waits_add(r));
    twill_gradients_destroy(r->set); /* never committed */
    r->set = NULL;
    TWILL_CHECK(twill_gradients_create(&r->set, r->comm, NULL) == TWILL_OK);
    TWILL_CHECK(twill_gradients_commit(r->set) == TWILL_OK);
    TWILL_CHECK(twill_gradients_ready(r->set, 0) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_test_set_says(r, "the set has 0"));
    TWILL_CHECK(twill_gradients_wait_all(r->set) == TWILL_OK);
    TWILL_CHECK(twill_gradients_check(r->set) == TWILL_OK);
}

/* --- threads --------------------------------------------------------------------------------- */

static const char *const checked[] = {
    "TWILL_GRADIENTS=late=1,check=1,bucket=0",
    "TWILL_GRADIENTS=late=1,check=1,bucket=0,order=priority,segment=4096",
    "TWILL_GRADIENTS=late=1,check=1,bucket=0,threads=2"};

/* Comparisons while the result of the last step is under way. */
TWILL_TEST_SETS(test_checks, ranks, checked, "2", TWILL_TEST_PATIENT, *c)
{
    TWILL_CHECK(waits_add(r));
    TWILL_CHECK(twill_test_set_commit(r));
    for (unsigned step = 0; step < WAITS_STEPS; step++) {
        TWILL_CHECK(waits_mark(r, rank, step));
        for (int i = 0; i < (rank + (int)step) % 2 * 50; i++)
            (void)sched_yield();
        twill_status status = twill_gradients_wait_all(r->set);
        TWILL_CHECK(status == TWILL_OK || twill_test_set_says(r, "no failure"));
        TWILL_CHECK(step == 0 || waits_verify(r, step - 1));
    }
    TWILL_CHECK(twill_gradients_drain(r->set) == TWILL_OK);
    TWILL_CHECK(waits_verify(r, WAITS_STEPS - 1));
}

struct waits_marker {
    struct twill_test_set *ranks;
    int rank;
    _Atomic unsigned step; /* the marker may mark this one */
};

#define WAITS_TUNED 68u /* steps until autotuning is over */

static void *mark_steps(void *argument)
{
    struct waits_marker *m = argument;
    for (unsigned step = 0; step < WAITS_TUNED; step++) {
        while (atomic_load(&m->step) != step && !twill_test_failed())
            (void)sched_yield();
        if (!waits_mark(m->ranks, m->rank, step))
            break;
    }
    return NULL;
}

static const char *const tuned[] = {"TWILL_GRADIENTS=autotune=1",
                                    "TWILL_GRADIENTS=autotune=1,threads=2"};

/* A thread marks tensors; it may still be in twill_gradients_ready() when buckets change. */
TWILL_TEST_SETS(test_divided_anew, ranks, tuned, "2", TWILL_TEST_PATIENT, *c)
{
    struct waits_marker marker = {r, rank, 0};
    pthread_t thread;
    TWILL_CHECK(waits_add(r));
    TWILL_CHECK(twill_test_set_commit(r));
    TWILL_CHECK(pthread_create(&thread, NULL, mark_steps, &marker) == 0);
    bool well = true;
    for (unsigned step = 0; well && step < WAITS_TUNED; step++) {
        well = twill_gradients_wait_all(r->set) == TWILL_OK && waits_verify(r, step);
        atomic_store(&marker.step, step + 1);
    }
    well = TWILL_NOTE(well, "%s", twill_gradients_message(r->set));
    pthread_join(thread, NULL);
    TWILL_CHECK(well);
}

/* --- reducers -----------------------------------------------------------------------------------
 */

/* Assign random buckets, and check that each has one reducer and no reducer has too much. */
static void check_balance(uint64_t *seed)
{
    struct twill_load weight[100];
    uint64_t load[TWILL_REDUCERS_MOST] = {0};
    size_t all = 0, largest = 0;
    bool seen[100] = {false};
    uint32_t n = (uint32_t)((*seed = twill_hash_mix(*seed, 1)) % 101),
             reducers = (uint32_t)((*seed = twill_hash_mix(*seed, 2)) % TWILL_REDUCERS_MOST) + 1;
    for (uint32_t b = 0; b < n; b++) {
        *seed = twill_hash_mix(*seed, 3);
        size_t bytes = *seed % 7 == 0 ? (*seed >> 8) % 100000000 : (*seed >> 8) % 1000;
        weight[b] = (struct twill_load){.bytes = bytes, .item = b, .bin = UINT32_MAX};
        all += bytes;
        largest = twill_max(largest, bytes);
    }
    twill_balance(weight, n, load, reducers);
    for (uint32_t i = 0; i < n; i++) {
        assert_true(weight[i].item < n && !seen[weight[i].item] && weight[i].bin < reducers);
        seen[weight[i].item] = true;
    }
    for (uint32_t l = 0; l < reducers; l++)
        assert_true(load[l] * reducers <= all + largest * reducers);
}

TWILL_TEST(test_balance)
{
    uint64_t seed = 121;
    for (unsigned i = 0; i < 2000; i++)
        check_balance(&seed);
}
