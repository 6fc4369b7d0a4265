/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient sets: results, fusion, orders of readiness, copies, threads, bad input and failures. */
#include "tests/support/gradient_sets.h"
#include "tests/support/unit.h"

#define SET_TENSORS 24u
#define SET_STEPS   3u

static const char *const set_worlds[] = {"1", "2", "3", "2x2", "3 delay=3,reorder=1"};

struct set_case {
    const char *world;    /* its ranks */
    const char *settings; /* TWILL_GRADIENTS=... */
    bool own;             /* every second tensor has memory of its own */
    bool shuffled;        /* ranks mark tensors in different orders */
    bool threads;         /* two threads mark them */
};

static const size_t set_counts[] = {1, 7, 1000, 64, 20000, 3, 300, 5000};

static size_t count_of(unsigned tensor)
{
    return set_counts[tensor % TWILL_ARRAY_LENGTH(set_counts)] + tensor;
}

/* Every fourth tensor is of f64, so that buckets of two types alternate. */
static twill_type type_of(unsigned tensor)
{
    return tensor % 4 == 3 ? TWILL_F64 : TWILL_F32;
}

static double value_of(int rank, unsigned tensor, size_t i, unsigned step)
{
    return (double)((i * 7 + tensor * 3 + step) % 11) + rank;
}

static double mean_of(int size, unsigned tensor, size_t i, unsigned step)
{
    return value_of(0, tensor, i, step) + (size - 1) / 2.0;
}

struct set_ranks {
    struct twill_test_set s;
    twill_gradients *set; /* that of s */
    void *own[SET_TENSORS];
};

static bool set_start(struct set_ranks *r, twill_bootstrap *bootstrap, const struct set_case *c)
{
    const char *const settings[] = {TWILL_TEST_PATIENT, c->settings, NULL};
    TWILL_REQUIRE(twill_test_begin(&r->s.comm, bootstrap, c->world, settings));
    r->s.context = twill_comm_context(r->s.comm);
    TWILL_REQUIRE(twill_gradients_create(&r->s.set, r->s.comm, NULL) == TWILL_OK);
    r->set = r->s.set;
    for (unsigned t = 0; t < SET_TENSORS; t++) {
        if (c->own && t % 2 == 0)
            r->own[t] = malloc(count_of(t) * twill_type_size(type_of(t)));
        TWILL_REQUIRE(twill_test_set_add(&r->s, t, count_of(t), type_of(t), r->own[t], NULL));
    }
    return twill_test_set_commit(&r->s);
}

static void set_stop(struct set_ranks *r, twill_bootstrap *bootstrap)
{
    twill_test_set_close(&r->s, bootstrap);
    for (unsigned t = 0; t < SET_TENSORS; t++)
        free(r->own[t]);
}

static void fill_tensor(struct set_ranks *r, int rank, unsigned tensor, unsigned step)
{
    void *memory = twill_gradients_memory(r->set, (int)tensor);
    for (size_t i = 0; i < count_of(tensor); i++)
        if (type_of(tensor) == TWILL_F64)
            ((double *)memory)[i] = value_of(rank, tensor, i, step);
        else
            ((float *)memory)[i] = (float)value_of(rank, tensor, i, step);
}

static bool tensor_is_right(struct set_ranks *r, int size, unsigned tensor, unsigned step)
{
    const void *memory = twill_gradients_memory(r->set, (int)tensor);
    for (size_t i = 0; i < count_of(tensor); i++) {
        double is = type_of(tensor) == TWILL_F64 ? ((const double *)memory)[i]
                                                 : (double)((const float *)memory)[i];
        double difference = is - mean_of(size, tensor, i, step);
        if (difference > 1e-5 || difference < -1e-5)
            return false;
    }
    return true;
}

/* --- steps ----------------------------------------------------------------------------------- */

struct marking {
    struct set_ranks *r;
    int rank;
    unsigned step, first, by;
    bool shuffled, ok;
};

/* Compute and mark every by-th tensor, backward, or in an order of this rank's own. */
static void *mark_tensors(void *argument)
{
    struct marking *m = argument;
    m->ok = true;
    for (unsigned i = m->first; i < SET_TENSORS; i += m->by) {
        unsigned tensor = SET_TENSORS - 1 - i;
        if (m->shuffled)
            tensor = (i * 5 + (unsigned)m->rank * 7 + m->step) % SET_TENSORS;
        fill_tensor(m->r, m->rank, tensor, m->step);
        m->ok &= twill_gradients_ready(m->r->set, (int)tensor) == TWILL_OK;
    }
    return NULL;
}

static bool run_step(struct set_ranks *r, const struct set_case *c, int rank, int size,
                     unsigned step)
{
    struct marking all = {r, rank, step, 0, 1, c->shuffled, false}, half[2];
    pthread_t thread[2];
    if (!c->threads) {
        mark_tensors(&all);
        TWILL_REQUIRE(all.ok);
    }
    for (unsigned i = 0; c->threads && i < 2; i++) {
        half[i] = (struct marking){r, rank, step, i, 2, c->shuffled, false};
        TWILL_REQUIRE(pthread_create(&thread[i], NULL, mark_tensors, &half[i]) == 0);
    }
    for (unsigned t = 0; step == 1 && t < SET_TENSORS; t += 3) {
        TWILL_REQUIRE(twill_gradients_wait(r->set, (int)t) == TWILL_OK);
        TWILL_REQUIRE(tensor_is_right(r, size, t, step));
    }
    for (int done = 0; step == 2 && !done && !twill_test_failed();)
        TWILL_REQUIRE(twill_gradients_test(r->set, -1, &done) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_wait_all(r->set) == TWILL_OK);
    for (unsigned i = 0; c->threads && i < 2; i++) {
        pthread_join(thread[i], NULL);
        TWILL_REQUIRE(half[i].ok);
    }
    for (unsigned t = 0; t < SET_TENSORS; t++)
        TWILL_REQUIRE(tensor_is_right(r, size, t, step));
    return true;
}

static void rank_steps(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct set_case *c = user;
    struct set_ranks r = {0};
    bool ok = set_start(&r, bootstrap, c);
    for (unsigned step = 0; ok && step < SET_STEPS; step++)
        ok = run_step(&r, c, rank, size, step);
    twill_gradients_counters counters = {0};
    twill_counters traffic = {0};
    if (ok) {
        (void)twill_gradients_count(r.set, &counters);
        TWILL_CHECK(twill_gradients_traffic(r.set, &traffic) == TWILL_OK);
        TWILL_CHECK(traffic.calls >= counters.operations);
        TWILL_CHECK(strstr(twill_gradients_times(r.set, 0), " calls, ") != NULL);
        TWILL_CHECK(counters.steps == SET_STEPS);
        TWILL_CHECK(counters.buckets > 0);
        TWILL_CHECK(c->own || counters.bytes_copied == 0);
        TWILL_CHECK(strncmp(twill_gradients_describe(r.set, 0), "TWILL_GRADIENTS=", 16) == 0);
        unsigned threads = 0;
        const char *named = strstr(twill_gradients_describe(r.set, 0), "threads=");
        TWILL_CHECK(named != NULL && sscanf(named, "threads=%u", &threads) == 1);
        for (unsigned t = 0; t < threads; t++)
            TWILL_CHECK(strncmp(twill_gradients_describe(r.set, counters.buckets + 1 + t),
                                "thread ", 7) == 0);
        TWILL_CHECK(twill_gradients_describe(r.set, counters.buckets + threads + 1) == NULL);
        const char *promotes = strstr(c->settings, "promote=");
        if (promotes != NULL) /* the set has promoted tensor 4, of 80 KB, or not */
            TWILL_CHECK(twill_demote(r.s.context, r.own[4]) ==
                        (promotes[8] == '1' ? TWILL_OK : TWILL_ERR_ARGUMENT));
    }
    set_stop(&r, bootstrap);
}

static void run_all(bool own, bool shuffled, bool threads, const char *const *settings)
{
    for (unsigned s = 0; settings[s] != NULL; s++)
        for (unsigned w = 0; w < TWILL_ARRAY_LENGTH(set_worlds); w++) {
            if (TEST_FEWER && (s + w) % 3 != 0)
                continue;
            struct set_case c = {set_worlds[w], settings[s], own, shuffled, threads};
            twill_test_run_ranks(twill_test_size(c.world), rank_steps, &c);
        }
}

static const char *const backward[] = {"TWILL_GRADIENTS=", "TWILL_GRADIENTS=bucket=0",
                                       "TWILL_GRADIENTS=bucket=16K,first=1K", NULL};
static const char *const priority[] = {
    "TWILL_GRADIENTS=order=priority",
    "TWILL_GRADIENTS=order=priority,bucket=32K,first=4K,segment=4K", NULL};

static const char *const promotion[] = {"TWILL_GRADIENTS=bucket=16K,promote=0",
                                        "TWILL_GRADIENTS=bucket=16K,promote=1", NULL};

/* Communication threads, each with buckets of its own. */
static const char *const reducers[] = {"TWILL_GRADIENTS=threads=1",
                                       "TWILL_GRADIENTS=threads=3,bucket=16K,first=1K",
                                       "TWILL_GRADIENTS=threads=2,order=priority,segment=4K", NULL};

TWILL_TEST(test_backward)
{
    run_all(false, false, false, backward);
    run_all(true, true, false, backward);
    run_all(true, false, false, promotion);
}

TWILL_TEST(test_priority)
{
    run_all(false, false, false, priority);
    run_all(true, true, false, priority);
}

TWILL_TEST(test_threads)
{
    run_all(true, true, true, backward + 2);
    run_all(false, true, true, priority + 1);
    run_all(true, true, true, reducers);
}

/* --- a tensor of several buckets ----------------------------------------------------------------
 */

enum { CUT_RANKS = 3, CUT_COUNT = (17 << 20) / 4 + 3, CUT_MOST = 16 << 20 };

/* Two steps with one large tensor. */
struct cut_case {
    const char *settings; /* TWILL_GRADIENTS=... */
    bool updates;         /* the second step is that of another set, which imports the state */
    bool own;             /* gradients and parameters lie in the caller's memory */
    size_t bucket[2];     /* bucket_bytes of the steps */
    float *result;        /* [CUT_COUNT] of rank 0 */
};

/* Values whose sum depends on the order of the operands. */
static float cut_value(int rank, size_t i, unsigned step)
{
    return (float)((i * 2654435761u >> 9) % 10007 + step) * (rank == 1 ? -3e3f : 1e-3f);
}

/* Create a set of `bucket` bytes. Its memory is own[2][CUT_COUNT], if the case has any. */
static bool cut_open(struct twill_test_set *s, const struct cut_case *c, size_t bucket, float *own)
{
    twill_gradients_options options;
    twill_optimizer adam;
    twill_gradients_counters counters;
    twill_gradients_defaults(&options);
    options.bucket_bytes = bucket;
    TWILL_REQUIRE(twill_gradients_create(&s->set, s->comm, &options) == TWILL_OK);
    twill_optimizer_defaults(&adam, TWILL_OPTIMIZER_ADAM);
    if (c->updates)
        TWILL_REQUIRE(twill_gradients_set_optimizer(s->set, &adam) == TWILL_OK);
    TWILL_REQUIRE(twill_test_set_add(s, 0, CUT_COUNT, TWILL_F32, c->own ? own : NULL,
                                     c->own && c->updates ? own + CUT_COUNT : NULL));
    TWILL_REQUIRE(twill_test_set_commit(s));
    TWILL_REQUIRE(twill_gradients_count(s->set, &counters) == TWILL_OK);
    return TWILL_NOTE(counters.buckets == (bucket > CUT_MOST ? 1 : 2), "%llu buckets",
                      (unsigned long long)counters.buckets);
}

static bool cut_step(struct twill_test_set *s, int rank, unsigned step)
{
    int done = 0;
    float *gradient = twill_gradients_memory(s->set, 0);
    for (size_t i = 0; i < CUT_COUNT; i++)
        gradient[i] = cut_value(rank, i, step);
    TWILL_REQUIRE(twill_test_set_ok(s, twill_gradients_ready(s->set, 0)));
    TWILL_REQUIRE(twill_test_set_ok(s, twill_gradients_test(s->set, 0, &done)));
    return twill_test_set_ok(s, twill_gradients_wait(s->set, 0)) &&
           twill_test_set_ok(s, twill_gradients_wait_all(s->set));
}

/* Replace the set by one with buckets of another size, which continues with its state. */
static bool cut_anew(struct twill_test_set *s, const struct cut_case *c, float *own)
{
    struct twill_test_set before = *s;
    size_t bytes = 0;
    TWILL_REQUIRE(twill_gradients_state_bytes(before.set, &bytes) == TWILL_OK);
    void *state = malloc(bytes);
    TWILL_REQUIRE(twill_gradients_state_export(before.set, state, bytes) == TWILL_OK);
    bool good = cut_open(s, c, c->bucket[1], own);
    if (good && !c->own)
        memcpy(twill_gradients_parameters(s->set, 0), twill_gradients_parameters(before.set, 0),
               CUT_COUNT * sizeof(float));
    good = good && twill_test_set_ok(s, twill_gradients_state_import(
                                            s->set, (const void *const[]){state}, &bytes, 1));
    twill_gradients_destroy(before.set);
    free(state);
    return good;
}

static void cut_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct cut_case *c = user;
    const char *const settings[] = {TWILL_TEST_PATIENT, c->settings, "TWILL_REPRODUCIBLE=1", NULL};
    struct twill_test_set s = {.comm = NULL};
    float *own = calloc(2 * (size_t)CUT_COUNT, sizeof(*own));
    bool late = strstr(c->settings, "late") != NULL;
    bool good = twill_test_begin(&s.comm, bootstrap, "", settings);
    if (good)
        s.context = twill_comm_context(s.comm);
    good = good && cut_open(&s, c, c->bucket[0], own) && cut_step(&s, rank, 0) &&
           (!c->updates || cut_anew(&s, c, own)) && cut_step(&s, rank, 1);
    if (good && late)
        good = twill_test_set_ok(&s, twill_gradients_drain(s.set));
    if (good && rank == 0)
        memcpy(c->result,
               c->updates ? twill_gradients_parameters(s.set, 0) : twill_gradients_result(s.set, 0),
               CUT_COUNT * sizeof(float));
    (void)size;
    twill_test_set_close(&s, bootstrap);
    free(own);
}

/* A large tensor is reduced and updated in parts, with the same bits as in one. */
TWILL_TEST(a_large_tensor_has_several_buckets)
{
    struct cut_case cases[] = {{"TWILL_GRADIENTS=", .own = true},
                               {"TWILL_GRADIENTS=late=1", .own = true},
                               {"TWILL_GRADIENTS=", .updates = true},
                               {"TWILL_GRADIENTS=threads=2", .updates = true, .own = true},
                               {"TWILL_GRADIENTS=order=priority", .updates = true}};
    float *result[2];
    for (unsigned r = 0; r < 2; r++)
        assert_non_null(result[r] = malloc(CUT_COUNT * sizeof(float)));
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        for (unsigned r = 0; r < 2; r++) {
            cases[i].bucket[r] = 2 * CUT_MOST;
            cases[i].bucket[1 - r] = 1 << 20;
            cases[i].result = result[r];
            twill_test_run_ranks(CUT_RANKS, cut_rank, &cases[i]);
        }
        if (memcmp(result[0], result[1], CUT_COUNT * sizeof(float)) != 0)
            fail_msg("%s: several buckets change the result", cases[i].settings);
    }
    for (unsigned r = 0; r < 2; r++)
        free(result[r]);
}
