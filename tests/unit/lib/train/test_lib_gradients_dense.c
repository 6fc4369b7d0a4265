/* SPDX-License-Identifier: Apache-2.0 */
/* Dense layers: gradients from the factors of all ranks, and from a reduction, against f64; kernels
 * of all instruction sets; bad input. */
#include "kernels/training/factors.h"
#include "tests/support/gradient_sets.h"
#include "tests/support/unit.h"

#define DENSE_ROWS    39u
#define DENSE_COLUMNS 83u
#define DENSE_SAMPLES 6u /* most of a rank */
#define DENSE_COUNT   (DENSE_ROWS * DENSE_COLUMNS)
#define DENSE_STEPS   3u
#define PLAIN_COUNT   100u

struct dense_case {
    int size;
    const char *nodes, *settings;
    bool updates; /* the set has an optimizer: SGD of rate 1 */
};

/* A rank has fewer samples in some steps. */
static size_t samples_of(int rank, unsigned step)
{
    if (rank == 1 && step == 1)
        return 0;
    return DENSE_SAMPLES - ((unsigned)rank + step) % 3;
}

static float error_of(int rank, unsigned step, size_t sample, size_t row)
{
    return 1.0f / (float)(3 + (row * 5 + sample * 11 + step * 3 + (size_t)rank * 7) % 29);
}

static float activation_of(int rank, unsigned step, size_t sample, size_t column)
{
    return 1.0f / (float)(5 + (column * 3 + sample * 13 + step + (size_t)rank * 17) % 31);
}

static double dense_mean(int size, unsigned step, size_t row, size_t column)
{
    double sum = 0;
    for (int r = 0; r < size; r++)
        for (size_t s = 0; s < samples_of(r, step); s++)
            sum += (double)error_of(r, step, s, row) * (double)activation_of(r, step, s, column);
    return sum / size;
}

static bool dense_start(struct twill_test_set *r, twill_bootstrap *bootstrap,
                        const struct dense_case *c)
{
    const twill_tensor layer = {.name = "dense", .count = DENSE_COUNT, .type = TWILL_F32},
                       before = {.name = "before", .count = PLAIN_COUNT, .type = TWILL_F32},
                       after = {.name = "after", .count = PLAIN_COUNT, .type = TWILL_F32};
    twill_optimizer sgd;
    twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
    sgd.rate = 1;
    TWILL_REQUIRE(
        twill_test_set_open(r, bootstrap, c->nodes, TWILL_TEST_PATIENT, c->settings, NULL));
    if (c->updates)
        TWILL_REQUIRE(twill_gradients_set_optimizer(r->set, &sgd) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_add(r->set, &before, NULL) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_add_dense(r->set, &layer, DENSE_ROWS, DENSE_COLUMNS,
                                            DENSE_SAMPLES, NULL) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_add(r->set, &after, NULL) == TWILL_OK);
    return twill_test_set_commit(r);
}

static bool mark_dense(struct twill_test_set *r, int rank, unsigned step)
{
    float errors[DENSE_SAMPLES * DENSE_ROWS], activations[DENSE_SAMPLES * DENSE_COLUMNS];
    size_t samples = samples_of(rank, step);
    for (size_t s = 0; s < samples; s++) {
        for (size_t row = 0; row < DENSE_ROWS; row++)
            errors[s * DENSE_ROWS + row] = error_of(rank, step, s, row);
        for (size_t column = 0; column < DENSE_COLUMNS; column++)
            activations[s * DENSE_COLUMNS + column] = activation_of(rank, step, s, column);
    }
    for (int t = 0; t < 3; t += 2) {
        float *plain = twill_gradients_memory(r->set, t);
        for (size_t i = 0; i < PLAIN_COUNT; i++)
            plain[i] = (float)rank;
        TWILL_REQUIRE(twill_gradients_ready(r->set, t) == TWILL_OK);
    }
    return twill_test_set_ok(r, twill_gradients_ready_factors(
                                    r->set, 1, samples > 0 ? errors : NULL, activations, samples));
}

/* Check the mean gradient of a step, or the parameters, from which those of all steps so far have
 * been subtracted. */
static bool dense_is_right(struct twill_test_set *r, const struct dense_case *c, unsigned step)
{
    const float *result =
        c->updates ? twill_gradients_parameters(r->set, 1) : twill_gradients_result(r->set, 1);
    const float *plain =
        c->updates ? twill_gradients_parameters(r->set, 2) : twill_gradients_result(r->set, 2);
    double mean = (c->size - 1) / 2.0, times = c->updates ? -(step + 1.0) : 1;
    TWILL_REQUIRE(fabs((double)plain[PLAIN_COUNT - 1] - mean * times) < 1e-5);
    for (size_t i = 0; i < DENSE_COUNT; i++) {
        double right = 0, is = result[i];
        for (unsigned s = c->updates ? 0 : step; s <= step; s++)
            right += dense_mean(c->size, s, i / DENSE_COLUMNS, i % DENSE_COLUMNS);
        if (c->updates)
            right = -right;
        TWILL_REQUIRE(fabs(is - right) <= 1e-6 * fabs(right), "step %u element %zu: %.9g, not %.9g",
                      step, i, is, right);
    }
    return twill_test_set_ok(r, twill_gradients_check(r->set));
}

static void rank_dense(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct dense_case *c = user;
    struct twill_test_set r;
    twill_gradients_counters counters = {0};
    bool ok = dense_start(&r, bootstrap, c);
    for (unsigned step = 0; ok && step < DENSE_STEPS; step++) {
        ok = mark_dense(&r, rank, step);
        ok = ok && twill_test_set_ok(&r, twill_gradients_wait_all(r.set));
        ok = ok && dense_is_right(&r, c, step);
    }
    if (ok && strstr(c->settings, "factors=gather") != NULL) {
        (void)twill_gradients_count(r.set, &counters);
        TWILL_CHECK(counters.bytes_exchanged ==
                    DENSE_STEPS * sizeof(float) *
                        ((uint64_t)2 * PLAIN_COUNT + DENSE_SAMPLES * (DENSE_ROWS + DENSE_COLUMNS)));
        TWILL_CHECK(strstr(twill_gradients_describe(r.set, 2), "factors gathered") != NULL);
    }
    twill_test_set_close(&r, bootstrap);
}

TWILL_TEST(gradients_equal_those_of_f64)
{
    static const char *const settings[] = {
        "TWILL_GRADIENTS=factors=gather", "TWILL_GRADIENTS=factors=reduce",
        "TWILL_GRADIENTS=factors=gather,order=priority,segment=4K", "TWILL_GRADIENTS=bucket=0"};
    static const struct dense_case worlds[] = {{.size = 1, .nodes = ""},
                                               {.size = 2, .nodes = ""},
                                               {.size = 3, .nodes = ""},
                                               {.size = 4, .nodes = "2x2"}};
    for (unsigned w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++)
        for (unsigned s = 0; s < TWILL_ARRAY_LENGTH(settings); s++) {
            struct dense_case c = worlds[w];
            c.settings = settings[s];
            c.updates = (w + s) % 2 == 1;
            twill_test_run_ranks(c.size, rank_dense, &c);
        }
}

/* --- kernels --------------------------------------------------------------------------------- */

TWILL_TEST(kernels_have_the_same_bits)
{
    enum { PARTS = 3, ROWS = 11, COLUMNS = 45, SAMPLES = 5, STRIDE = SAMPLES * (ROWS + COLUMNS) };
    static float memory[PARTS * STRIDE], first[ROWS * COLUMNS], other[ROWS * COLUMNS];
    for (size_t i = 0; i < PARTS * STRIDE; i++)
        memory[i] = 1.0f / (float)(1 + i * 37 % 101);
    const struct twill_factors factors = {
        memory, memory + SAMPLES * ROWS, PARTS, STRIDE, SAMPLES, ROWS, COLUMNS, 0.3f};
    twill_factors_multiply(twill_kernels_at(0), &factors, first, 0, ROWS, NULL);
    for (size_t row = 0; row < ROWS; row++)
        for (size_t column = 0; column < COLUMNS; column++) {
            double sum = 0;
            for (size_t p = 0; p < PARTS; p++)
                for (size_t s = 0; s < SAMPLES; s++)
                    sum += (double)memory[p * STRIDE + s * ROWS + row] *
                           (double)memory[p * STRIDE + SAMPLES * ROWS + s * COLUMNS + column];
            sum *= (double)0.3f;
            assert_true(fabs((double)first[row * COLUMNS + column] - sum) <= 1e-6 * fabs(sum));
        }
    for (size_t i = 0; twill_kernels_at(i) != NULL; i++) {
        if (!twill_kernels_at(i)->supported())
            continue;
        memset(other, 0, sizeof(other)); /* in two ranges of rows, the first of one */
        twill_factors_multiply(twill_kernels_at(i), &factors, other, 0, 1, NULL);
        twill_factors_multiply(twill_kernels_at(i), &factors, other, 1, ROWS - 1, NULL);
        assert_memory_equal(first, other, sizeof(first));
    }
}

/* --- bad input ------------------------------------------------------------------------------- */

#define REFUSED(set, call, words)                                                                  \
    do {                                                                                           \
        TWILL_CHECK((call) == TWILL_ERR_ARGUMENT);                                                 \
        TWILL_CHECK(TWILL_SAYS(twill_gradients_message(set), words));                              \
    } while (0)

static void rank_refused(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct twill_test_set r;
    const float factors[DENSE_COLUMNS] = {0};
    const twill_tensor wrong = {.name = "wrong", .count = 5, .type = TWILL_F32};
    twill_gradients *open = NULL;
    TWILL_CHECK(dense_start(&r, bootstrap, user) &&
                twill_gradients_create(&open, r.comm, NULL) == TWILL_OK);
    twill_gradients *set = r.set;
    REFUSED(set, twill_gradients_ready(set, 1), "'dense' is a dense layer");
    REFUSED(set, twill_gradients_ready_factors(set, 0, factors, factors, 1),
            "'before' is not a dense layer");
    REFUSED(set, twill_gradients_ready_factors(set, 1, factors, NULL, 1), "are NULL");
    REFUSED(set, twill_gradients_ready_factors(set, 1, factors, factors, 7),
            "7 samples, registered for at most 6");
    REFUSED(set, twill_gradients_ready_factors(set, 3, factors, factors, 1),
            "tensor 3: the set has 3 tensors");
    TWILL_CHECK(twill_gradients_ready_factors(set, 1, NULL, NULL, 0) == TWILL_OK);
    REFUSED(set, twill_gradients_ready_factors(set, 1, NULL, NULL, 0), "ready twice");
    REFUSED(open, twill_gradients_add_dense(open, &wrong, 2, 3, 1, NULL), "2 x 3");
    REFUSED(open, twill_gradients_add_dense(open, &wrong, 5, 1, 0, NULL), "0 samples");
    twill_gradients_destroy(open);
    twill_test_set_close(&r, bootstrap);
}

TWILL_TEST(bad_factors_are_refused)
{
    struct dense_case c = {.size = 2, .nodes = "", .settings = "TWILL_GRADIENTS=factors=gather"};
    twill_test_run_ranks(c.size, rank_refused, &c);
}
