/* SPDX-License-Identifier: Apache-2.0 */
/* Sets that run one step late: results, the cool-down, a rank that is delayed, bad calls. */
#include "tests/support/gradient_sets.h"

#include <sched.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define LATE_TENSORS 6u
#define LATE_STEPS   7u /* the last two of them synchronous */
#define LATE_DRAINED 5u

struct late_case {
    int size;
    const char *nodes, *settings;
    bool own;                 /* every second tensor has memory of its own */
    _Atomic bool rank0_ahead; /* rank 0 has ended the step that rank 1 has not begun */
};

static const size_t late_counts[LATE_TENSORS] = {5, 1000, 64, 3000, 1, 700};

struct late_ranks {
    struct twill_test_set s;
    float *own[LATE_TENSORS];
    double sum; /* of all results */
};

static float late_value(int rank, unsigned tensor, size_t i, unsigned step)
{
    return (float)((i * 3 + tensor + step * 7) % 19) + (float)(4 * rank);
}

static float late_sum(int size, unsigned tensor, size_t i, unsigned step)
{
    return (float)size * late_value(0, tensor, i, step) + (float)(2 * size * (size - 1));
}

static bool late_start(struct late_ranks *r, twill_bootstrap *bootstrap, const struct late_case *c)
{
    twill_gradients_options options;
    twill_gradients_defaults(&options);
    options.op = TWILL_SUM;
    options.late = 1;
    TWILL_REQUIRE(
        twill_test_set_open(&r->s, bootstrap, c->nodes, TWILL_TEST_PATIENT, c->settings, &options));
    for (unsigned t = 0; t < LATE_TENSORS; t++) {
        if (c->own && t % 2 == 0)
            r->own[t] = calloc(late_counts[t], sizeof(float));
        TWILL_REQUIRE(twill_test_set_add(&r->s, t, late_counts[t], TWILL_F32, r->own[t], NULL));
    }
    return twill_test_set_commit(&r->s);
}

static void late_stop(struct late_ranks *r)
{
    twill_test_set_close(&r->s, NULL);
    for (unsigned t = 0; t < LATE_TENSORS; t++)
        free(r->own[t]);
}

static bool mark_step(struct late_ranks *r, int rank, unsigned step)
{
    for (unsigned i = 0; i < LATE_TENSORS; i++) {
        unsigned t = (i * 5 + (unsigned)rank + step) % LATE_TENSORS;
        float *memory = twill_gradients_memory(r->s.set, (int)t);
        for (size_t e = 0; e < late_counts[t]; e++)
            memory[e] = late_value(rank, t, e, step);
        TWILL_REQUIRE(twill_gradients_ready(r->s.set, (int)t) == TWILL_OK);
    }
    return true;
}

/* Check the delivered result: that of a step, or zeros before the first. */
static bool result_is(struct late_ranks *r, int size, int step)
{
    for (unsigned t = 0; t < LATE_TENSORS; t++) {
        const float *result = twill_gradients_result(r->s.set, (int)t);
        for (size_t i = 0; i < late_counts[t]; i++) {
            float right = step < 0 ? 0 : late_sum(size, t, i, (unsigned)step);
            r->sum += result[i];
            if (!twill_test_note(result[i] >= right && result[i] <= right, __FILE__, __LINE__,
                                 "step %d tensor %u element %zu: %g, not %g", step, t, i,
                                 (double)result[i], (double)right))
                return false;
        }
    }
    return true;
}

static bool run_late_step(struct late_ranks *r, int rank, int size, unsigned step)
{
    TWILL_REQUIRE(mark_step(r, rank, step));
    if (step == 2) /* the result of step 1, before the end of step 2 */
        for (unsigned t = 0; t < LATE_TENSORS; t++)
            TWILL_REQUIRE(twill_gradients_wait(r->s.set, (int)t) == TWILL_OK);
    for (int done = 0; step == 3 && !done && !twill_test_failed();)
        TWILL_REQUIRE(twill_gradients_test(r->s.set, -1, &done) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_wait_all(r->s.set) == TWILL_OK);
    return result_is(r, size, step < LATE_DRAINED ? (int)step - 1 : (int)step);
}

static bool cool_down(struct late_ranks *r, int size)
{
    TWILL_REQUIRE(twill_gradients_set_late(r->s.set, 0) == TWILL_ERR_ARGUMENT);
    TWILL_REQUIRE(strstr(twill_gradients_message(r->s.set), "is outstanding") != NULL);
    TWILL_REQUIRE(twill_gradients_drain(r->s.set) == TWILL_OK);
    TWILL_REQUIRE(result_is(r, size, LATE_DRAINED - 1));
    TWILL_REQUIRE(twill_gradients_drain(r->s.set) == TWILL_ERR_ARGUMENT);
    TWILL_REQUIRE(strstr(twill_gradients_message(r->s.set), "no result is outstanding") != NULL);
    return twill_test_note(twill_gradients_set_late(r->s.set, 0) == TWILL_OK, __FILE__, __LINE__,
                           "%s", twill_gradients_message(r->s.set));
}

static void rank_late(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct late_case *c = user;
    struct late_ranks r = {0};
    double sum = 0;
    bool ok = late_start(&r, bootstrap, c);
    for (unsigned step = 0; ok && step < LATE_STEPS; step++) {
        ok = step != LATE_DRAINED || cool_down(&r, size);
        ok = ok && run_late_step(&r, rank, size, step);
    }
    for (unsigned step = 0; step < LATE_STEPS; step++)
        for (unsigned t = 0; t < LATE_TENSORS; t++)
            for (size_t i = 0; i < late_counts[t]; i++)
                sum += late_sum(size, t, i, step);
    if (ok)
        (void)twill_test_note(r.sum >= sum && r.sum <= sum, __FILE__, __LINE__,
                              "the results of all steps are %g, not %g", r.sum, sum);
    (void)twill_test_barrier(bootstrap);
    late_stop(&r);
}

static void results_are_those_of_the_step_before(void **state)
{
    static const char *const settings[] = {
        "TWILL_GRADIENTS=", "TWILL_GRADIENTS=order=priority,bucket=8K,first=1K,segment=4K",
        "TWILL_GRADIENTS=bucket=0", "TWILL_GRADIENTS=threads=2,bucket=4K,first=1K"};
    static const struct late_case cases[] = {{.size = 1, .nodes = ""},
                                             {.size = 2, .nodes = "", .own = true},
                                             {.size = 3, .nodes = ""},
                                             {.size = 4, .nodes = "2x2", .own = true}};
    (void)state;
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        for (unsigned s = 0; s < TWILL_ARRAY_LENGTH(settings); s++) {
            struct late_case c = {.size = cases[i].size,
                                  .nodes = cases[i].nodes,
                                  .own = cases[i].own,
                                  .settings = settings[s]};
            twill_test_run_ranks(c.size, rank_late, &c);
        }
}

/* Rank 1 begins step 1 only when rank 0 has ended it; it advances step 0 meanwhile. */
static void rank_delayed(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct late_case *c = user;
    struct late_ranks r = {0};
    bool ok = late_start(&r, bootstrap, c);
    ok = ok && run_late_step(&r, rank, size, 0);
    for (int done; ok && rank == 1 && !atomic_load(&c->rank0_ahead) && !twill_test_failed();)
        ok = twill_gradients_test(r.s.set, -1, &done) == TWILL_OK && sched_yield() == 0;
    ok = ok && run_late_step(&r, rank, size, 1);
    if (rank == 0)
        atomic_store(&c->rank0_ahead, true);
    ok = ok && twill_gradients_drain(r.s.set) == TWILL_OK && result_is(&r, size, 1);
    (void)twill_test_note(ok, __FILE__, __LINE__, "%s", twill_gradients_message(r.s.set));
    (void)twill_test_barrier(bootstrap);
    late_stop(&r);
}

static void a_delayed_rank_stalls_no_late_step(void **state)
{
    (void)state;
    for (int s = 0; s < 2; s++) {
        struct late_case c = {.size = 2,
                              .nodes = "",
                              .settings = s == 0 ? "TWILL_GRADIENTS="
                                                 : "TWILL_GRADIENTS=order=priority,segment=4K"};
        twill_test_run_ranks(2, rank_delayed, &c);
    }
}

/* Lateness goes with nothing that divides buckets anew between steps. */
static bool refuses_searches(twill_comm *comm)
{
    for (int tunes = 0; tunes < 2; tunes++) {
        twill_gradients *set;
        twill_gradients_options options;
        twill_gradients_defaults(&options);
        options.late = 1;
        options.autotune = tunes;
        options.compression = TWILL_COMPRESS_INT8;
        options.compression_automatic = !tunes;
        TWILL_REQUIRE(twill_gradients_create(&set, comm, &options) == TWILL_ERR_ARGUMENT);
        const char *words = tunes ? "late with autotune, which" : "late with compression_automatic";
        TWILL_REQUIRE(twill_test_note(strstr(twill_comm_message(comm), words) != NULL, __FILE__,
                                      __LINE__, "%s", twill_comm_message(comm)));
    }
    return true;
}

/* Parameters and state are read and written while no update is outstanding. */
static bool refuses_outstanding(twill_comm *comm)
{
    twill_gradients *set;
    twill_gradients_options options;
    twill_optimizer sgd;
    const twill_tensor tensor = {.name = "w", .count = 1, .type = TWILL_F32};
    char state[8];
    twill_gradients_defaults(&options);
    options.late = 1;
    twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
    TWILL_REQUIRE(twill_gradients_create(&set, comm, &options) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_add(set, &tensor, NULL) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_set_optimizer(set, &sgd) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_commit(set) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_ready(set, 0) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_wait_all(set) == TWILL_OK);
    bool refused = twill_gradients_reload(set) == TWILL_ERR_ARGUMENT &&
                   strstr(twill_gradients_message(set), "reload: the result of the last step") &&
                   twill_gradients_state_export(set, state, sizeof(state)) == TWILL_ERR_ARGUMENT &&
                   strstr(twill_gradients_message(set), "export: the result of the last step");
    (void)twill_test_note(refused, __FILE__, __LINE__, "%s", twill_gradients_message(set));
    twill_gradients_destroy(set);
    return refused;
}

static void rank_late_refusals(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    (void)rank, (void)size, (void)user;
    const char *settings[] = {TWILL_TEST_PATIENT, NULL};
    const twill_tensor tensor = {.name = "w", .count = 1, .type = TWILL_F32};
    struct late_ranks r = {0};
    if (twill_test_connect(&r.s.context, &r.s.comm, bootstrap, "", NULL, settings) &&
        twill_gradients_create(&r.s.set, r.s.comm, NULL) == TWILL_OK &&
        twill_gradients_add(r.s.set, &tensor, NULL) == TWILL_OK &&
        twill_gradients_commit(r.s.set) == TWILL_OK) {
        (void)twill_test_note(twill_gradients_set_late(r.s.set, 1) == TWILL_ERR_ARGUMENT &&
                                  strstr(twill_gradients_message(r.s.set), "without options.late"),
                              __FILE__, __LINE__, "%s", twill_gradients_message(r.s.set));
        (void)(refuses_searches(r.s.comm) && refuses_outstanding(r.s.comm));
    }
    (void)twill_test_barrier(bootstrap);
    late_stop(&r);
}

static void bad_calls_are_explained(void **state)
{
    (void)state;
    twill_test_run_ranks(1, rank_late_refusals, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(results_are_those_of_the_step_before),
        cmocka_unit_test(a_delayed_rank_stalls_no_late_step),
        cmocka_unit_test(bad_calls_are_explained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
