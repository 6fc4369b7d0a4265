/* SPDX-License-Identifier: Apache-2.0 */
/* Export and import of optimizer state: a set goes on with the same bits on other ranks, with other
 * buckets, and with what a neighbour keeps for a rank that is gone. */
#include "lib/train/optimizer/update_internal.h"
#include "tests/support/gradient_sets.h"
#include "tests/support/unit.h"

#include <sys/resource.h>

#define STATE_TENSORS 5u
#define STATE_COUNT   5000u /* most elements of a tensor */
#define STATE_STEPS   2u    /* before the export, and after it */

struct state_case {
    const char *setting; /* of the first set */
    twill_optimizer_rule rule;
    twill_type type;
    bool fewer; /* the second set lacks the last rank, whose export rank 0 has; where buckets
                   change: by autotuning, not by a trial of compression */
};

static const size_t state_counts[STATE_TENSORS] = {7, STATE_COUNT, 1, 300, 2049};

/* A set, and its parameters at the export. */
struct state_ranks {
    struct twill_test_set first;
    twill_comm *fewer;
    twill_gradients *second;
    void *state[2]; /* this rank's export; on rank 0 also the last rank's */
    size_t bytes[2];
    unsigned char kept[STATE_TENSORS][STATE_COUNT * sizeof(float)];
};

/* Gradients are of rank 0 only, so that sums are those of fewer ranks, too. */
static void state_store(void *memory, twill_type type, size_t i, unsigned step, int rank)
{
    float value = rank > 0 ? 0 : (float)((i * 7 + step * 5) % 17) - 8;
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (type == TWILL_F32)
        ((float *)memory)[i] = value;
    else
        ((uint16_t *)memory)[i] = (uint16_t)(bits >> 16); /* exact in bf16 */
}

static bool state_add(twill_gradients *set, const struct state_case *c)
{
    twill_optimizer optimizer;
    twill_optimizer_defaults(&optimizer, c->rule);
    optimizer.momentum = 0.9;
    optimizer.rate = 0.01;
    struct twill_test_set s = {.set = set};
    TWILL_REQUIRE(twill_gradients_set_optimizer(set, &optimizer) == TWILL_OK);
    for (unsigned t = 0; t < STATE_TENSORS; t++)
        TWILL_REQUIRE(twill_test_set_add(&s, t, state_counts[t], c->type, NULL, NULL));
    return twill_test_set_commit(&s);
}

static bool state_steps(twill_gradients *set, const struct state_case *c, int rank, unsigned first)
{
    const struct twill_test_set s = {.set = set};
    for (unsigned step = first; step < first + STATE_STEPS; step++) {
        for (unsigned t = 0; t < STATE_TENSORS; t++) {
            for (size_t i = 0; i < state_counts[t]; i++)
                state_store(twill_gradients_memory(set, (int)t), c->type, i, step, rank);
            TWILL_REQUIRE(twill_gradients_ready(set, (int)t) == TWILL_OK);
        }
        TWILL_REQUIRE(twill_test_set_ok(&s, twill_gradients_wait_all(set)));
    }
    if (strstr(c->setting, "late=1") != NULL)
        return twill_test_set_ok(&s, twill_gradients_drain(set));
    return true;
}

static size_t parameter_bytes(const struct state_case *c, unsigned t)
{
    return state_counts[t] * twill_type_size(c->type);
}

/* Train, export, and keep the parameters; the last rank's export goes to rank 0. */
static bool state_export(struct state_ranks *r, const struct state_case *c, int rank, int size)
{
    for (unsigned t = 0; t < STATE_TENSORS; t++)
        for (size_t i = 0; i < state_counts[t]; i++)
            state_store(twill_gradients_parameters(r->first.set, (int)t), c->type, i, t, 0);
    TWILL_REQUIRE(state_steps(r->first.set, c, rank, 0));
    TWILL_REQUIRE(twill_gradients_state_bytes(r->first.set, &r->bytes[0]) == TWILL_OK);
    r->state[0] = malloc(r->bytes[0]);
    TWILL_REQUIRE(twill_gradients_state_export(r->first.set, r->state[0], r->bytes[0] - 1) ==
                  TWILL_ERR_ARGUMENT);
    TWILL_REQUIRE(twill_test_set_ok(
        &r->first, twill_gradients_state_export(r->first.set, r->state[0], r->bytes[0])));
    for (unsigned t = 0; t < STATE_TENSORS; t++)
        memcpy(r->kept[t], twill_gradients_parameters(r->first.set, (int)t), parameter_bytes(c, t));
    uint64_t bytes = r->bytes[0];
    TWILL_REQUIRE(twill_broadcast(r->first.comm, &bytes, &bytes, 1, TWILL_U64, size - 1) ==
                  TWILL_OK);
    if (rank == 0)
        r->state[1] = malloc((size_t)bytes);
    r->bytes[1] = (size_t)bytes;
    if (rank == size - 1)
        return twill_send(r->first.comm, r->state[0], (size_t)bytes, TWILL_U8, 0) == TWILL_OK;
    return rank != 0 ||
           twill_recv(r->first.comm, r->state[1], (size_t)bytes, TWILL_U8, size - 1) == TWILL_OK;
}

/* Go on with a second set, and compare its parameters with those of the first, which goes on, too.
 */
static bool state_goes_on(struct state_ranks *r, const struct state_case *c, int rank)
{
    struct twill_test_set second = {.set = r->second};
    TWILL_REQUIRE(state_add(r->second, c));
    for (unsigned t = 0; t < STATE_TENSORS; t++)
        memcpy(twill_gradients_parameters(r->second, (int)t), r->kept[t], parameter_bytes(c, t));
    TWILL_REQUIRE(twill_test_set_ok(
        &second, twill_gradients_state_import(r->second, (const void *const *)r->state, r->bytes,
                                              c->fewer && rank == 0 ? 2 : 1)));
    TWILL_REQUIRE(state_steps(r->second, c, rank, STATE_STEPS));
    return true;
}

static bool state_is_equal(struct state_ranks *r, const struct state_case *c)
{
    for (unsigned t = 0; t < STATE_TENSORS; t++)
        TWILL_REQUIRE(memcmp(twill_gradients_parameters(r->first.set, (int)t),
                             twill_gradients_parameters(r->second, (int)t),
                             parameter_bytes(c, t)) == 0,
                      "tensor %u differs", t);
    return true;
}

/* Note whether all went well, and destroy the sets. Collective. */
static void state_end(struct state_ranks *r, twill_bootstrap *bootstrap, bool ok)
{
    (void)TWILL_NOTE(ok, "%s", twill_gradients_message(r->first.set));
    (void)twill_test_barrier(bootstrap);
    twill_gradients_destroy(r->second);
    twill_comm_destroy(r->fewer);
    twill_test_set_close(&r->first, NULL);
    free(r->state[0]);
    free(r->state[1]);
    free(r);
}

static void rank_goes_on(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct state_case *c = user;
    struct state_ranks *r = calloc(1, sizeof(*r));
    twill_gradients_options options;
    twill_gradients_defaults(&options);
    options.op = TWILL_SUM;
    bool ok =
        twill_test_set_open(&r->first, bootstrap, "", TWILL_TEST_PATIENT, c->setting, &options) &&
        state_add(r->first.set, c) && state_export(r, c, rank, size);
    options.bucket_bytes = 9000;
    options.first_bucket_bytes = 1000;
    bool gone = c->fewer && rank == size - 1;
    ok = ok && twill_comm_split(&r->fewer, r->first.comm, gone, rank) == TWILL_OK;
    if (ok && !gone)
        ok = twill_gradients_create(&r->second, r->fewer, &options) == TWILL_OK &&
             state_goes_on(r, c, rank);
    ok = ok && state_steps(r->first.set, c, rank, STATE_STEPS);
    if (ok && !gone)
        ok = state_is_equal(r, c);
    state_end(r, bootstrap, ok);
}

TWILL_TEST(state_moves_to_other_sets)
{
    struct state_case cases[] = {
        {"TWILL_GRADIENTS=", TWILL_OPTIMIZER_ADAM, TWILL_F32, false},
        {"TWILL_GRADIENTS=order=priority,segment=4K,bucket=16K", TWILL_OPTIMIZER_ADAMW, TWILL_BF16,
         true},
        {"TWILL_GRADIENTS=", TWILL_OPTIMIZER_SGD, TWILL_F32, true},
        {"TWILL_GRADIENTS=late=1,threads=2", TWILL_OPTIMIZER_ADAM, TWILL_F32, true},
        {"TWILL_GRADIENTS=late=1", TWILL_OPTIMIZER_LAMB, TWILL_BF16, false},
        {"TWILL_GRADIENTS=compress=top_k,ratio=0.1,bucket=9000", TWILL_OPTIMIZER_ADAM, TWILL_F32,
         false},
        {"TWILL_GRADIENTS=compress=top_k,ratio=0.1,bucket=9000", TWILL_OPTIMIZER_SGD, TWILL_F32,
         true},
    };
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        twill_test_run_ranks(3, rank_goes_on, &cases[i]);
}

/* --- residuals ------------------------------------------------------------------------------- */

#define RESIDUALS_ROUND 1e-4 /* of their sum: they are added as f32 */

/* Add the residuals of all elements over the ranks, in units of the result. */
static bool sum_residuals(twill_gradients *set, twill_comm *comm, double *sum)
{
    *sum = 0;
    for (unsigned t = 0; t < STATE_TENSORS; t++)
        for (size_t i = 0; i < state_counts[t]; i++)
            *sum += (double)(i + 1) * (double)set->compressor->after *
                    (double)set->compressor->residual[set->tensor[t].residual + i];
    return twill_allreduce(comm, sum, sum, 1, TWILL_F64, TWILL_SUM) == TWILL_OK;
}

/* What is left on three ranks, whose gradients differ, is left on two of them after an import. */
static void rank_keeps_residuals(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct state_case *c = user;
    struct state_ranks *r = calloc(1, sizeof(*r));
    twill_gradients_options options;
    twill_gradients_defaults(&options);
    options.op = TWILL_SUM;
    double before = 0, after = 0;
    bool gone = rank == size - 1;
    bool ok =
        twill_test_set_open(&r->first, bootstrap, "", TWILL_TEST_PATIENT, c->setting, &options) &&
        state_add(r->first.set, c);
    for (unsigned t = 0; ok && t < STATE_TENSORS; t++) {
        float *gradient = twill_gradients_memory(r->first.set, (int)t);
        for (size_t i = 0; i < state_counts[t]; i++)
            gradient[i] = 1.01f * (float)((i * 7 + t) % 13 + 3 * (unsigned)rank); /* no bf16 */
        ok = twill_gradients_ready(r->first.set, (int)t) == TWILL_OK;
    }
    ok = ok && twill_test_set_ok(&r->first, twill_gradients_wait_all(r->first.set)) &&
         state_export(r, c, rank, size) && sum_residuals(r->first.set, r->first.comm, &before) &&
         twill_comm_split(&r->fewer, r->first.comm, gone, rank) == TWILL_OK;
    if (ok && !gone) {
        const void *states[] = {r->state[0], r->state[rank == 0], r->state[0]};
        const size_t bytes[] = {r->bytes[0], r->bytes[rank == 0], r->bytes[0]};
        ok = twill_gradients_create(&r->second, r->fewer, &options) == TWILL_OK &&
             state_add(r->second, c) &&
             twill_gradients_state_import(r->second, states, bytes, 3) == TWILL_OK &&
             /* a second import replaces the first */
             twill_gradients_state_import(r->second, states, bytes, 3) == TWILL_OK &&
             sum_residuals(r->second, r->fewer, &after);
        double least = fabs(before) * (1 - RESIDUALS_ROUND),
               most = fabs(before) * (1 + RESIDUALS_ROUND);
        ok = ok && TWILL_NOTE(fabs(before) > 0 && fabs(after) >= least && fabs(after) <= most &&
                                  (before < 0) == (after < 0),
                              "%s: residuals of %g, then of %g", c->setting, before, after);
    }
    state_end(r, bootstrap, ok);
}

#define EXPORT_RANKS                                                                               \
    TWILL_RESIDUAL_RANKS /* of a damaged export: an import takes 128 MiB for them */

/* Rank 1 has no memory for what an import takes: it fails on all ranks, at once. */
static void rank_lacks_memory(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct state_case *c = user;
    struct twill_test_set s;
    unsigned char *state = NULL;
    size_t bytes = 0, pages = 0;
    struct twill_state_header header;
    bool ok = twill_test_set_open(&s, bootstrap, "", TWILL_TEST_PATIENT, c->setting, NULL) &&
              state_add(s.set, c) && state_steps(s.set, c, rank, 0) &&
              twill_gradients_state_bytes(s.set, &bytes) == TWILL_OK &&
              (state = malloc(bytes)) != NULL &&
              twill_gradients_state_export(s.set, state, bytes) == TWILL_OK;
    if (ok) {
        memcpy(&header, state, sizeof(header));
        header.ranks = EXPORT_RANKS;
        memcpy(state, &header, sizeof(header));
    }
    FILE *statm = fopen("/proc/self/statm", "r");
    ok = ok && statm != NULL && fscanf(statm, "%zu", &pages) == 1;
    if (statm != NULL)
        fclose(statm);
    rlim_t limit = pages * (rlim_t)sysconf(_SC_PAGESIZE) + EXPORT_RANKS * sizeof(uint64_t) / 2;
    const struct rlimit limits = {limit, RLIM_INFINITY};
    if (rank == 1)
        ok = setrlimit(RLIMIT_AS, &limits) == 0 && ok;
    const void *states[] = {state};
    ok = ok && twill_gradients_state_import(s.set, states, &bytes, 1) == TWILL_ERR_MEMORY &&
         twill_test_set_says(&s, "rank 1") &&
         twill_test_set_says(&s, "twill_gradients_state_import: out of memory");
    (void)TWILL_NOTE(ok, "rank %d: %s", rank, twill_gradients_message(s.set));
    (void)twill_test_barrier(bootstrap);
    free(state);
    twill_test_set_close(&s, NULL);
}

TWILL_TEST(missing_memory_is_known_to_all)
{
    if (TEST_ASAN || TEST_TSAN)
        skip(); /* a sanitizer reserves terabytes, and ends a program without memory */
    struct state_case c = {"TWILL_GRADIENTS=compress=bf16", TWILL_OPTIMIZER_SGD, TWILL_F32, true};
    twill_test_run_processes(2, rank_lacks_memory, &c);
}

TWILL_TEST(residuals_of_lost_ranks_are_kept)
{
    struct state_case cases[] = {
        {"TWILL_GRADIENTS=compress=top_k,ratio=0.1", TWILL_OPTIMIZER_SGD, TWILL_F32, true},
        /* its factor before encoding depends on the number of ranks */
        {"TWILL_GRADIENTS=compress=bf16", TWILL_OPTIMIZER_SGD, TWILL_F32, true},
    };
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        twill_test_run_ranks(3, rank_keeps_residuals, &cases[i]);
}

/* --- other buckets within a set -------------------------------------------------------------- */

#define ANEW_STEPS 80u /* above those that a search takes */

/* Train with two sets, of which the second divides its buckets anew several times. */
static void rank_divides_anew(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct state_case *c = user;
    struct twill_test_set s;
    twill_gradients *plain = NULL;
    twill_gradients_options options;
    twill_gradients_defaults(&options);
    bool ok = twill_test_set_open(&s, bootstrap, "", TWILL_TEST_PATIENT, c->setting, &options);
    options.bucket_bytes = 3000;
    ok = ok && twill_gradients_create(&plain, s.comm, &options) == TWILL_OK;
    options.autotune = c->fewer;
    if (!c->fewer) {
        options.compression = TWILL_COMPRESS_F16; /* which has these gradients exactly */
        options.compression_automatic = 1;
    }
    twill_gradients_destroy(s.set);
    s.set = NULL;
    ok = ok && twill_gradients_create(&s.set, s.comm, &options) == TWILL_OK &&
         state_add(s.set, c) && state_add(plain, c);
    for (unsigned step = 0; ok && step < ANEW_STEPS; step += STATE_STEPS)
        ok = state_steps(s.set, c, rank, step) && state_steps(plain, c, rank, step);
    for (unsigned t = 0; ok && t < STATE_TENSORS; t++)
        ok = TWILL_NOTE(memcmp(twill_gradients_parameters(s.set, (int)t),
                               twill_gradients_parameters(plain, (int)t),
                               parameter_bytes(c, t)) == 0,
                        "tensor %u differs", t);
    const char *line = ok ? twill_gradients_describe(s.set, 0) : "";
    (void)TWILL_NOTE(!ok || strstr(line, c->fewer ? "; autotuned" : "compress=f16") != NULL, "%s",
                     line);
    (void)twill_test_barrier(bootstrap);
    twill_gradients_destroy(plain);
    twill_test_set_close(&s, NULL);
}

TWILL_TEST(state_stays_when_buckets_change)
{
    struct state_case cases[] = {
        {"TWILL_TUNE=", TWILL_OPTIMIZER_ADAM, TWILL_F32, true},
        {"TWILL_TUNE=", TWILL_OPTIMIZER_ADAM, TWILL_F32, false},
        {"TWILL_TUNE=", TWILL_OPTIMIZER_SGD, TWILL_BF16, true},
    };
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        twill_test_run_ranks(2, rank_divides_anew, &cases[i]);
}

/* --- bad input ------------------------------------------------------------------------------- */

/* Import one export on every rank, which is refused on all. */
static bool import_is_refused(struct twill_test_set *s, void *state, size_t bytes, size_t count,
                              const char *words)
{
    const void *states[] = {state};
    TWILL_REQUIRE(twill_gradients_state_import(s->set, states, &bytes, count) ==
                  TWILL_ERR_ARGUMENT);
    return twill_test_set_says(s, words);
}

static bool refuse_imports(struct twill_test_set *s, const struct state_case *c, int rank,
                           unsigned char *state, size_t bytes)
{
    TWILL_REQUIRE(import_is_refused(s, state, bytes, rank == 1, "no rank has the state of tensor"));
    TWILL_REQUIRE(
        import_is_refused(s, state, rank == 0 ? bytes - 4 : bytes, 1,
                          rank == 0 ? "is not an export" : "rank 0 has state that cannot"));
    state[8 * 4] ^= (unsigned char)rank; /* the rule */
    TWILL_REQUIRE(import_is_refused(s, state, bytes, 1,
                                    rank == 0 ? "rank 1 has state" : "state 0 is of sgd"));
    state[8 * 4] ^= (unsigned char)rank;
    state[8 * 3] ^= (unsigned char)rank; /* the updates */
    TWILL_REQUIRE(import_is_refused(s, state, bytes, 1, "state of step 2 and, on rank 1, of 3"));
    state[8 * 3] ^= (unsigned char)rank;
    uint64_t steps;
    memcpy(&steps, state + 24, sizeof(steps));
    memset(state + 24, 0xff, sizeof(steps)); /* stands for none */
    TWILL_REQUIRE(import_is_refused(s, state, bytes, 1, "is not an export"));
    memcpy(state + 24, &steps, sizeof(steps));
    state[sizeof(struct twill_state_header)] ^=
        0x40; /* the first range begins outside of its tensor */
    TWILL_REQUIRE(import_is_refused(s, state, bytes, 1, "state 0 is damaged: range 0"));
    state[sizeof(struct twill_state_header)] ^= 0x40;
    TWILL_REQUIRE(twill_gradients_ready(s->set, 0) == TWILL_OK);
    TWILL_REQUIRE(import_is_refused(s, state, bytes, 1, "'tensor0' is marked ready"));
    TWILL_REQUIRE(twill_gradients_state_export(s->set, state, bytes) == TWILL_ERR_ARGUMENT);
    for (unsigned t = 1; t < STATE_TENSORS; t++)
        TWILL_REQUIRE(twill_gradients_ready(s->set, (int)t) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_wait_all(s->set) == TWILL_OK);
    return state_steps(s->set, c, rank, STATE_STEPS); /* it goes on */
}

static void rank_is_refused(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct state_case *c = user;
    struct twill_test_set s;
    size_t bytes = 0;
    unsigned char *state = NULL;
    if (twill_test_set_open(&s, bootstrap, "", TWILL_TEST_PATIENT, c->setting, NULL) &&
        state_add(s.set, c) && state_steps(s.set, c, rank, 0) &&
        twill_gradients_state_bytes(s.set, &bytes) == TWILL_OK) {
        state = malloc(bytes);
        (void)(twill_test_set_ok(&s, twill_gradients_state_export(s.set, state, bytes)) &&
               refuse_imports(&s, c, rank, state, bytes));
    }
    twill_test_set_close(&s, bootstrap);
    free(state);
}

TWILL_TEST(bad_state_is_named)
{
    struct state_case c = {"TWILL_GRADIENTS=", TWILL_OPTIMIZER_ADAGRAD, TWILL_F32, false};
    twill_test_run_ranks(2, rank_is_refused, &c);
}
