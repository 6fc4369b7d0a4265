/* SPDX-License-Identifier: Apache-2.0 */
/* Sets that run one step late: results, the cool-down, a rank that is delayed, searches, bad
 * calls. */
#include "lib/train/gradients.h"
#include "tests/support/gradient_sets.h"
#include "tests/support/unit.h"

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
            TWILL_REQUIRE(result[i] >= right && result[i] <= right,
                          "step %d tensor %u element %zu: %g, not %g", step, t, i,
                          (double)result[i], (double)right);
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
    return twill_test_set_ok(&r->s, twill_gradients_set_late(r->s.set, 0));
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
        (void)TWILL_NOTE(r.sum >= sum && r.sum <= sum, "the results of all steps are %g, not %g",
                         r.sum, sum);
    (void)twill_test_barrier(bootstrap);
    late_stop(&r);
}

TWILL_TEST(results_are_those_of_the_step_before)
{
    static const char *const settings[] = {
        "TWILL_GRADIENTS=", "TWILL_GRADIENTS=order=priority,bucket=8K,first=1K,segment=4K",
        "TWILL_GRADIENTS=bucket=0", "TWILL_GRADIENTS=threads=2,bucket=4K,first=1K"};
    static const struct late_case cases[] = {{.size = 1, .nodes = ""},
                                             {.size = 2, .nodes = "", .own = true},
                                             {.size = 3, .nodes = ""},
                                             {.size = 4, .nodes = "2x2", .own = true}};
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
    (void)TWILL_NOTE(ok, "%s", twill_gradients_message(r.s.set));
    (void)twill_test_barrier(bootstrap);
    late_stop(&r);
}

TWILL_TEST(a_delayed_rank_stalls_no_late_step)
{
    for (int s = 0; s < 2; s++) {
        struct late_case c = {.size = 2,
                              .nodes = "",
                              .settings = s == 0 ? "TWILL_GRADIENTS="
                                                 : "TWILL_GRADIENTS=order=priority,segment=4K"};
        twill_test_run_ranks(2, rank_delayed, &c);
    }
}

/* --- searches of the first steps ------------------------------------------------------------- */

/* Search for sizes or compression in late steps: every step delivers the result of the one before,
 * also where buckets were divided anew in between. */
static void rank_searches(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct late_case *c = user;
    struct late_ranks r = {0};
    bool ok = late_start(&r, bootstrap, c);
    const struct twill_step_search *sizes = &r.s.set->searches->sizes,
                                   *trial = &r.s.set->searches->codes;
    unsigned step = 0, divided = 0;
    for (; ok && (!twill_search_is_over(sizes) || !twill_search_is_over(trial)); step++) {
        ok = mark_step(&r, rank, step);
        if (ok && step % 4 == 2) /* the result that is outstanding, carried or not */
            ok = twill_gradients_wait(r.s.set, 0) == TWILL_OK;
        ok = ok && twill_gradients_wait_all(r.s.set) == TWILL_OK &&
             result_is(&r, size, (int)step - 1);
        divided += r.s.set->late.carried;
    }
    ok = ok && twill_gradients_drain(r.s.set) == TWILL_OK && result_is(&r, size, (int)step - 1);
    (void)TWILL_NOTE(ok && divided > 1, "step %u, divided %u times: %s", step, divided,
                     twill_gradients_message(r.s.set));
    (void)twill_test_barrier(bootstrap);
    late_stop(&r);
}

TWILL_TEST(searches_lose_no_late_result)
{
    static const char *const settings[] = {"TWILL_GRADIENTS=autotune=1",
                                           "TWILL_GRADIENTS=autotune=1,order=priority",
                                           "TWILL_GRADIENTS=autotune=1,threads=2",
                                           "TWILL_GRADIENTS=autotune=1,compress=f16,automatic=1"};
    for (unsigned s = 0; s < TWILL_ARRAY_LENGTH(settings); s++) {
        struct late_case c = {.size = 2, .nodes = "", .own = s != 1, .settings = settings[s]};
        twill_test_run_ranks(c.size, rank_searches, &c);
    }
}

/* Two sets with an optimizer, of which one searches for sizes. Half of the parameters are in the
 * caller's memory. */
struct late_updates {
    twill_comm *comm;
    twill_gradients *set[2];
    float own[2][LATE_TENSORS][3000];
};

static bool open_updates(struct late_updates *u, twill_optimizer_rule rule)
{
    twill_gradients_options options;
    twill_optimizer optimizer;
    twill_gradients_defaults(&options);
    twill_optimizer_defaults(&optimizer, rule);
    optimizer.momentum = 0.9;
    optimizer.rate = 0.01;
    options.late = 1;
    options.bucket_bytes = 3000;
    for (int i = 0; i < 2; i++) {
        struct twill_test_set s = {.comm = u->comm};
        options.autotune = i;
        TWILL_REQUIRE(twill_gradients_create(&u->set[i], u->comm, &options) == TWILL_OK);
        s.set = u->set[i];
        TWILL_REQUIRE(twill_gradients_set_optimizer(s.set, &optimizer) == TWILL_OK);
        for (unsigned t = 0; t < LATE_TENSORS; t++) {
            float *own = t % 2 == 0 ? u->own[i][t] : NULL;
            TWILL_REQUIRE(twill_test_set_add(&s, t, late_counts[t], TWILL_F32, NULL, own));
        }
        TWILL_REQUIRE(twill_test_set_commit(&s));
    }
    return true;
}

/* Make a step with both sets; where a result is carried, its updates are mostly complete before it
 * ends. Their parameters have the same bits. */
static bool step_alike(struct late_updates *u, int rank, unsigned step)
{
    for (int i = 0; i < 2; i++) {
        for (unsigned t = 0; t < LATE_TENSORS; t++) {
            float *memory = twill_gradients_memory(u->set[i], (int)t);
            for (size_t e = 0; e < late_counts[t]; e++)
                memory[e] = late_value(rank, t, e, step) - 9;
            TWILL_REQUIRE(twill_gradients_ready(u->set[i], (int)t) == TWILL_OK);
        }
        int looks = u->set[i]->late.carried ? 50 : 0;
        for (int done; looks > 0 && sched_yield() == 0; looks--)
            TWILL_REQUIRE(twill_gradients_test(u->set[i], -1, &done) == TWILL_OK);
        TWILL_REQUIRE(twill_gradients_wait_all(u->set[i]) == TWILL_OK);
    }
    for (unsigned t = 0; t < LATE_TENSORS; t++) {
        const float *plain = twill_gradients_parameters(u->set[0], (int)t),
                    *searched = twill_gradients_parameters(u->set[1], (int)t);
        for (size_t e = 0; e < late_counts[t]; e++)
            TWILL_REQUIRE(memcmp(&plain[e], &searched[e], sizeof(*plain)) == 0,
                          "step %u tensor %u element %zu: %g, not %g", step, t, e,
                          (double)searched[e], (double)plain[e]);
    }
    return true;
}

static void rank_searches_updates(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_context *context = NULL;
    struct late_updates *u = calloc(1, sizeof(*u));
    bool ok = u != NULL && twill_test_join(&context, &u->comm, bootstrap, "", TWILL_TEST_PATIENT) &&
              open_updates(u, *(const twill_optimizer_rule *)user);
    unsigned step = 0;
    while (ok && !twill_search_is_over(&u->set[1]->searches->sizes))
        ok = step_alike(u, rank, step++);
    for (unsigned more = 0; ok && more < 3; more++)
        ok = step_alike(u, rank, step++);
    (void)TWILL_NOTE(ok && step > 60, "only %u steps", step);
    (void)twill_test_barrier(bootstrap);
    for (int i = 0; u != NULL && i < 2; i++)
        twill_gradients_destroy(u->set[i]);
    if (u != NULL)
        twill_test_disconnect(u->comm, context);
    free(u);
}

TWILL_TEST(searches_keep_late_updates)
{
    twill_optimizer_rule rules[] = {TWILL_OPTIMIZER_ADAM, TWILL_OPTIMIZER_LAMB};
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(rules); i++)
        twill_test_run_ranks(2, rank_searches_updates, &rules[i]);
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
    (void)TWILL_NOTE(refused, "%s", twill_gradients_message(set));
    twill_gradients_destroy(set);
    return refused;
}

TWILL_TEST_SETS(bad_calls_are_explained, ranks, TWILL_LAYOUTS("1"), *c, TWILL_TEST_PATIENT)
{
    TWILL_CHECK(twill_test_set_add(r, 0, 1, TWILL_F32, NULL, NULL) && twill_test_set_commit(r));
    TWILL_CHECK(twill_gradients_set_late(r->set, 1) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_test_set_says(r, "without options.late"));
    (void)refuses_outstanding(r->comm);
}
