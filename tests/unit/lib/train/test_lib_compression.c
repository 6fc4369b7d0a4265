/* SPDX-License-Identifier: Apache-2.0 */
/* Compressed gradient sets: the same bits on all ranks, errors within what the codes allow, error
 * feedback that loses nothing, the automatic choice, values that are not finite. */
#include "lib/train/gradients.h"
#include "tests/support/gradient_sets.h"
#include "tests/support/unit.h"

enum {
    RANKS_MOST = 5,
    TENSORS = 10,
    WIDE = 8,   /* index of a tensor of f64 */
    EXEMPT = 9, /* of one that is registered as uncompressed */
    COUNT = 30000
};

static const size_t tensor_counts[TENSORS] = {1, 7, 1000, 64, 20000, 3, 300, 5000, 100, 500};

struct coding {
    const char *settings; /* TWILL_GRADIENTS=... */
    double unit;          /* most error of a rounding of values up to 1; 0: sparse */
};

static const struct coding codings[] = {
    {"compress=f16", 0x1p-11},
    {"compress=bf16", 0x1p-8},
    {"compress=int8", 0.501 / 127},
    {"compress=f8e4m3", 0x1p-4},
    {"compress=f8e5m2", 0x1p-3},
    {"compress=top_k,ratio=0.05", 0},
    {"compress=threshold,threshold=0.9,ratio=0.2", 0},
};

static const char *const worlds[] = {"1", "2", "2x2", "3x1", "3 delay=3,reorder=1"};

struct compression_case {
    const char *world; /* its ranks */
    const struct coding *coding;
    const char *more;   /* entries of TWILL_GRADIENTS */
    const char *tuning; /* TWILL_TUNING=..., or NULL */
    unsigned steps;
    bool own;     /* every second tensor has memory of its own */
    bool threads; /* two threads mark tensors, and three of the rank's encode and decode */
    bool broken;  /* step 0 has some values that are not finite, */
    bool flooded; /* or more than a list holds */
};

/* What the ranks of a run share. */
static struct {
    double delivered[RANKS_MOST][COUNT], residual[RANKS_MOST][COUNT], truth[COUNT];
    unsigned char bits[RANKS_MOST][COUNT * sizeof(float)];
    enum twill_wire_choice choice[RANKS_MOST];
} shared;

static size_t first_of(unsigned tensor)
{
    size_t first = 0;
    for (unsigned t = 0; t < tensor; t++)
        first += tensor_counts[t];
    return first;
}

/* A value in -1 .. 1. */
static float value_of(int rank, unsigned tensor, size_t i, unsigned step)
{
    uint64_t hash = twill_hash_mix(twill_hash_mix((uint64_t)rank, tensor), i);
    hash = twill_hash_mix(hash, step);
    return (float)((double)(hash >> 40) / (1 << 23) - 1);
}

static double mean_of(int size, unsigned tensor, size_t i, unsigned step)
{
    double sum = 0;
    for (int r = 0; r < size; r++)
        sum += value_of(r, tensor, i, step);
    return sum / size;
}

struct rank_means {
    const struct compression_case *c;
    int rank, size;
    twill_bootstrap *bootstrap;
    struct twill_test_set s;
    twill_gradients *set; /* that of s */
    void *own[TENSORS];
};

static twill_type type_of(unsigned tensor)
{
    return tensor == WIDE ? TWILL_F64 : TWILL_F32;
}

static bool start_set(struct rank_means *m)
{
    const struct compression_case *c = m->c;
    const char *const settings[] = {
        TWILL_TEST_PATIENT, twill_test_text("TWILL_GRADIENTS=%s%s", c->coding->settings, c->more),
        c->threads ? "TWILL_THREADS=3" : c->tuning,
        c->threads ? "TWILL_TUNE=thread_bytes=16K" : NULL, NULL};
    TWILL_REQUIRE(twill_test_begin(&m->s.comm, m->bootstrap, c->world, settings));
    m->s.context = twill_comm_context(m->s.comm);
    TWILL_REQUIRE(twill_gradients_create(&m->s.set, m->s.comm, NULL) == TWILL_OK);
    m->set = m->s.set;
    for (unsigned t = 0; t < TENSORS; t++) {
        if (c->own && t % 2 == 0)
            m->own[t] = malloc(tensor_counts[t] * twill_type_size(type_of(t)));
        const twill_tensor tensor = {.name = twill_test_text("tensor%u", t),
                                     .count = tensor_counts[t],
                                     .type = type_of(t),
                                     .gradient = m->own[t],
                                     .priority = (int)t,
                                     .uncompressed = t == EXEMPT};
        TWILL_REQUIRE(twill_gradients_add(m->set, &tensor, NULL) == TWILL_OK);
    }
    return twill_test_set_commit(&m->s);
}

static void stop_set(struct rank_means *m)
{
    twill_test_set_close(&m->s, m->bootstrap);
    for (unsigned t = 0; t < TENSORS; t++)
        free(m->own[t]);
}

/* --- a step ----------------------------------------------------------------------------------- */

struct compression_marking {
    struct rank_means *m;
    unsigned step, first, by;
    bool ok;
};

/* Fill and mark every by-th tensor, backward. */
static void *mark_tensors(void *argument)
{
    struct compression_marking *marking = argument;
    struct rank_means *m = marking->m;
    marking->ok = true;
    for (unsigned i = marking->first; i < TENSORS; i += marking->by) {
        unsigned t = TENSORS - 1 - i;
        void *memory = twill_gradients_memory(m->set, (int)t);
        for (size_t e = 0; e < tensor_counts[t]; e++) {
            float value = value_of(m->rank, t, e, marking->step);
            if (type_of(t) == TWILL_F64)
                ((double *)memory)[e] = value;
            else
                ((float *)memory)[e] = value;
        }
        if (m->c->broken && marking->step == 0 && m->rank == m->size - 1 && t == 4) {
            ((float *)memory)[77] = INFINITY;
            ((float *)memory)[5000] = NAN;
            for (size_t e = 0; m->c->flooded && e < tensor_counts[t]; e++)
                ((float *)memory)[e] = NAN;
        }
        if (m->c->broken && marking->step == 0 && m->rank == 0 && t == 6)
            ((float *)memory)[tensor_counts[t] - 1] = -INFINITY; /* before a gap */
        marking->ok &= twill_gradients_ready(m->set, (int)t) == TWILL_OK;
    }
    return NULL;
}

static bool run_step(struct rank_means *m, unsigned step)
{
    struct compression_marking half[2] = {{m, step, 0, 2, false}, {m, step, 1, 2, false}};
    struct compression_marking all = {m, step, 0, 1, false};
    pthread_t thread[2];
    if (!m->c->threads) {
        mark_tensors(&all);
        return all.ok && twill_test_set_ok(&m->s, twill_gradients_wait_all(m->set));
    }
    for (unsigned i = 0; i < 2; i++)
        TWILL_REQUIRE(pthread_create(&thread[i], NULL, mark_tensors, &half[i]) == 0);
    bool ok = twill_test_set_ok(&m->s, twill_gradients_wait_all(m->set));
    for (unsigned i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    return ok && half[0].ok && half[1].ok;
}

static double element_of(struct rank_means *m, unsigned tensor, size_t i)
{
    const void *memory = twill_gradients_memory(m->set, (int)tensor);
    return type_of(tensor) == TWILL_F64 ? ((const double *)memory)[i]
                                        : (double)((const float *)memory)[i];
}

/* Check the results of a step: those of compressed tensors within `bound`. */
static bool results_are_near(struct rank_means *m, unsigned step, double bound)
{
    for (unsigned t = 0; t < TENSORS; t++)
        for (size_t i = 0; i < tensor_counts[t]; i++) {
            double is = element_of(m, t, i), must = mean_of(m->size, t, i, step);
            double error = fabs(is - must), most = t == WIDE || t == EXEMPT ? 1e-6 : bound;
            if (!(error <= most))
                return TWILL_NOTE(false, "step %u, tensor %u, element %zu is %.9g, not %.9g", step,
                                  t, i, is, must);
            shared.delivered[m->rank][first_of(t) + i] += is;
            if (m->rank == 0)
                shared.truth[first_of(t) + i] += must;
        }
    return true;
}

/* Check that all ranks have the bits of rank 0. */
static bool bits_are_equal(struct rank_means *m)
{
    for (unsigned t = 0; t < TENSORS; t++)
        if (t != WIDE)
            memcpy(shared.bits[m->rank] + first_of(t) * sizeof(float),
                   twill_gradients_memory(m->set, (int)t), tensor_counts[t] * sizeof(float));
    TWILL_REQUIRE(twill_test_barrier(m->bootstrap));
    TWILL_REQUIRE(memcmp(shared.bits[0], shared.bits[m->rank], sizeof(shared.bits[0])) == 0);
    TWILL_REQUIRE(twill_test_barrier(m->bootstrap));
    return true;
}

/* Check that what was delivered in all steps, and what is left, are the sum of the gradients. */
static bool nothing_is_lost(struct rank_means *m, double rounding)
{
    const struct twill_compressor *c = m->set->compressor;
    for (unsigned t = 0; t < WIDE; t++)
        for (size_t i = 0; i < tensor_counts[t]; i++)
            shared.residual[m->rank][first_of(t) + i] = c->residual[m->set->tensor[t].residual + i];
    TWILL_REQUIRE(twill_test_barrier(m->bootstrap));
    for (size_t i = 0; m->rank == 0 && i < first_of(WIDE); i++) {
        double sum = shared.delivered[0][i];
        for (int r = 0; r < m->size; r++)
            sum += shared.residual[r][i]; /* divided by the ranks already */
        if (!(fabs(sum - shared.truth[i]) <= rounding))
            return TWILL_NOTE(false, "element %zu: %.9g with what is left, not %.9g", i, sum,
                              shared.truth[i]);
    }
    return true;
}

static void rank_steps(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct compression_case *c = user;
    struct rank_means m = {.c = c, .rank = rank, .size = size, .bootstrap = bootstrap};
    /* A rounding on each rank, the last step's, and one each time that two partial sums are added.
     */
    double unit = c->coding->unit, bound = unit > 0 ? (size + 1) * unit * 1.05 : 100;
    bool ok = start_set(&m);
    for (unsigned step = 0; ok && step < c->steps; step++)
        ok = run_step(&m, step) && results_are_near(&m, step, bound) && bits_are_equal(&m);
    if (ok)
        (void)nothing_is_lost(&m, c->steps * ((size - 1) * unit * 1.05 + 2e-7) + 1e-6);
    stop_set(&m);
}

static void run_case(struct compression_case *c, twill_rank_fn fn)
{
    memset(&shared, 0, sizeof(shared));
    twill_test_run_ranks(twill_test_size(c->world), fn, c);
}

TWILL_TEST(test_every_coding)
{
    for (unsigned w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++)
        for (unsigned k = TEST_FEWER ? w % 3 : 0; k < TWILL_ARRAY_LENGTH(codings);
             k += TEST_FEWER ? 3 : 1) {
            struct compression_case c = {.world = worlds[w],
                                         .coding = &codings[k],
                                         .more = ",bucket=16K,first=1K",
                                         .steps = 3,
                                         .own = (w + k) % 2 == 0};
            run_case(&c, rank_steps);
        }
}

TWILL_TEST(test_priority_and_threads)
{
    for (unsigned k = 0; k < TWILL_ARRAY_LENGTH(codings); k++) {
        struct compression_case c = {.world = worlds[2],
                                     .coding = &codings[k],
                                     .more = ",order=priority,bucket=64K,segment=4K",
                                     .steps = 3,
                                     .own = k % 2 == 1,
                                     .threads = true};
        run_case(&c, rank_steps);
        c.more = ",bucket=0";
        run_case(&c, rank_steps);
    }
}

TWILL_TEST(test_autotune)
{
    for (unsigned k = 2; k < TWILL_ARRAY_LENGTH(codings); k += TEST_FEWER ? 5 : 3) {
        struct compression_case c = {.world = worlds[1],
                                     .coding = &codings[k],
                                     .more = ",autotune=1",
                                     .steps = 70,
                                     .own = true};
        run_case(&c, rank_steps);
    }
}

/* --- the automatic choice --------------------------------------------------------------------- */

/* Check that nothing is left for buckets that are not compressed any more. */
static bool nothing_is_left(const struct twill_gradients *set)
{
    for (uint32_t b = 0; b < set->buckets; b++) {
        const struct twill_bucket *bucket = &set->bucket[b];
        for (size_t i = 0; !bucket->raw && !bucket->wire.used && i < bucket->count; i++)
            TWILL_REQUIRE(bucket->wire.residual[i] == 0);
    }
    return true;
}

static void rank_automatic(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct compression_case *c = user;
    struct rank_means m = {.c = c, .rank = rank, .size = size, .bootstrap = bootstrap};
    bool ok = start_set(&m);
    for (unsigned step = 0; ok && step < c->steps; step++)
        ok = run_step(&m, step) && results_are_near(&m, step, 100) && bits_are_equal(&m);
    if (ok) {
        shared.choice[rank] = m.set->compressor->choice;
        TWILL_CHECK(twill_search_is_over(&m.set->searches->codes));
        TWILL_CHECK(nothing_is_left(m.set));
        TWILL_CHECK(twill_test_barrier(bootstrap));
        TWILL_CHECK(shared.choice[rank] == shared.choice[0]);
        TWILL_CHECK(strstr(twill_gradients_describe(m.set, 0), "trial") == NULL);
        TWILL_CHECK(strstr(twill_gradients_describe(m.set, 0), "automatic=1") != NULL);
        (void)nothing_is_lost(&m, c->steps * ((size - 1) * c->coding->unit * 1.05 + 1e-6) + 1e-5);
    }
    stop_set(&m);
}

/* Whatever is tried and chosen, residuals of compressed steps reach those without compression. */
TWILL_TEST(test_automatic)
{
    for (unsigned k = 0; k < TWILL_ARRAY_LENGTH(codings); k += TEST_FEWER ? 5 : 2)
        for (unsigned w = 1; w < 3; w++) {
            struct compression_case c = {.world = worlds[w],
                                         .coding = &codings[k],
                                         .more = ",automatic=1,bucket=32K",
                                         .steps = 18};
            run_case(&c, rank_automatic);
        }
}

/* Whether the first steps compress the largest bucket is decided by the price, before any is
 * measured: not in memory that ranks share, but over a link of 1 Gbit/s. */
static void rank_priced(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct compression_case *c = user;
    struct rank_means m = {.c = c, .rank = rank, .size = size, .bootstrap = bootstrap};
    bool used = false;
    if (start_set(&m))
        for (uint32_t b = 0; b < m.set->buckets; b++)
            used |= m.set->bucket[b].wire.used;
    TWILL_CHECK(used == (strchr(c->world, 'x') != NULL));
    stop_set(&m);
}

TWILL_TEST(test_price)
{
    const char *file = twill_test_text("/tmp/twill-compression-%d", (int)getpid()),
               *tuning = twill_test_text("TWILL_TUNING=%s", file);
    FILE *out = fopen(file, "w");
    assert_non_null(out);
    fputs("twill-tuning 1\nmachine auto\nmodel link.network.gap 8200000\n"
          "model interface 8200000\n",
          out);
    assert_int_equal(fclose(out), 0);
    for (unsigned k = 0; k < TWILL_ARRAY_LENGTH(codings); k += TEST_FEWER ? 6 : 1) {
        struct compression_case c = {
            .world = "2x1", .coding = &codings[k], .more = ",automatic=1", .tuning = tuning};
        run_case(&c, rank_priced);
        c.world = "2";
        run_case(&c, rank_priced);
    }
    assert_int_equal(unlink(file), 0);
}

/* --- values that are not finite --------------------------------------------------------------- */

static bool has_what_is_not_finite(struct rank_means *m, unsigned tensor)
{
    bool finite = true;
    for (size_t i = 0; i < tensor_counts[tensor]; i++)
        finite &= isfinite(element_of(m, tensor, i)) != 0;
    return !finite;
}

static void rank_broken(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct compression_case *c = user;
    struct rank_means m = {.c = c, .rank = rank, .size = size, .bootstrap = bootstrap};
    bool ok = start_set(&m);
    for (unsigned step = 0; ok && step < 2; step++) {
        ok = run_step(&m, step) && bits_are_equal(&m);
        if (!ok)
            break;
        if (step == 0) {
            TWILL_CHECK(has_what_is_not_finite(&m, 4));
            TWILL_CHECK(!has_what_is_not_finite(&m, EXEMPT));
            TWILL_CHECK(c->flooded || !isfinite(element_of(&m, 4, 77)));
            TWILL_CHECK(c->flooded || isnan(element_of(&m, 4, 5000)));
            TWILL_CHECK(c->flooded || !isfinite(element_of(&m, 6, tensor_counts[6] - 1)));
        }
        for (unsigned t = 0; step == 1 && t < TENSORS; t++)
            TWILL_CHECK(!has_what_is_not_finite(&m, t));
    }
    stop_set(&m);
}

/* NaN and infinity arrive on all ranks, and the next step has none: not in gaps of a bucket, nor in
 * residuals. */
TWILL_TEST(test_not_finite)
{
    for (unsigned k = 0; k < TWILL_ARRAY_LENGTH(codings); k++)
        for (unsigned w = TEST_FEWER ? 1 : 0; w < (TEST_FEWER ? 2 : 3); w++) {
            struct compression_case c = {
                .world = worlds[w], .coding = &codings[k], .more = "", .broken = true};
            run_case(&c, rank_broken);
            c.flooded = true;
            run_case(&c, rank_broken);
        }
}
