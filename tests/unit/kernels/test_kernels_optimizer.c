/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer steps: the scalar table against formulae in f64, every other table against the scalar
 * one, bit for bit. */
#include "kernels/training/optimizer.h"
#include "tests/support/numbers.h"
#include "tests/support/pool.h"

#define MOST    ((size_t)300)
#define PAD     ((size_t)8) /* elements before and behind that must stay */
#define SOURCES 8

/* All arrays of a step, larger than it needs; an offset moves where they start. */
struct arrays {
    float weights[MOST + 2 * PAD], state[2][MOST + 2 * PAD];
    float parameter[MOST + 2 * PAD]; /* narrow ones use a half */
    float gradient[SOURCES][MOST + 2 * PAD];
};

static const struct rule_variant {
    const char *name;
    twill_optimizer optimizer;
} variants[] = {
    {"sgd", {.rule = TWILL_OPTIMIZER_SGD, .rate = 0.1}},
    {"sgd, decay", {.rule = TWILL_OPTIMIZER_SGD, .rate = 0.1, .weight_decay = 0.02}},
    {"sgd, momentum",
     {.rule = TWILL_OPTIMIZER_SGD,
      .rate = 0.1,
      .weight_decay = 0.02,
      .momentum = 0.9,
      .dampening = 0.3}},
    {"sgd, nesterov",
     {.rule = TWILL_OPTIMIZER_SGD, .rate = 0.1, .momentum = 0.9, .nesterov = true}},
    {"adagrad",
     {.rule = TWILL_OPTIMIZER_ADAGRAD,
      .rate = 0.1,
      .weight_decay = 0.02,
      .rate_decay = 0.1,
      .epsilon = 1e-10}},
    {"adam",
     {.rule = TWILL_OPTIMIZER_ADAM,
      .rate = 0.1,
      .weight_decay = 0.02,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .epsilon = 1e-8}},
    {"adamw",
     {.rule = TWILL_OPTIMIZER_ADAMW,
      .rate = 0.1,
      .weight_decay = 0.02,
      .beta1 = 0.8,
      .beta2 = 0.99,
      .epsilon = 1e-8}},
    {"lars",
     {.rule = TWILL_OPTIMIZER_LARS,
      .rate = 0.1,
      .weight_decay = 0.02,
      .momentum = 0.9,
      .trust_coefficient = 0.02}},
    {"lamb",
     {.rule = TWILL_OPTIMIZER_LAMB,
      .rate = 0.1,
      .weight_decay = 0.02,
      .beta1 = 0.9,
      .beta2 = 0.999,
      .epsilon = 1e-6}},
};

static const twill_type types[] = {TWILL_F32, TWILL_F16, TWILL_BF16};

static size_t bytes_of(twill_type type)
{
    return twill_test_element(type, TWILL_SUM, false);
}

/* Fill with numbers in (-1, 1). */
static void fill_numbers(twill_type type, void *array, size_t count, uint64_t seed)
{
    uint64_t state = seed;
    for (size_t i = 0; i < count; i++)
        twill_test_put_float(type, array, i,
                             (float)((double)(int64_t)twill_test_random(&state) * 0x1p-63));
}

/* Fill with such numbers, or with difficult bits. */
static void fill(struct arrays *arrays, twill_type gradient, uint64_t seed, bool difficult)
{
    void (*by)(twill_type, void *, size_t, uint64_t) = difficult ? twill_test_fill : fill_numbers;
    by(TWILL_F32, arrays, sizeof(*arrays) / sizeof(float), seed);
    by(gradient, arrays->gradient, sizeof(arrays->gradient) / bytes_of(gradient), seed + 1);
}

/* A step over arrays that start `offset` elements further on. Keep it and the pointers together. */
struct step_call {
    struct twill_optimizer_step step;
    const void *gradient[SOURCES];
    size_t count;
};

static void make_call(struct step_call *call, const twill_optimizer *optimizer,
                      struct arrays *arrays, twill_type parameter, twill_type gradient,
                      unsigned sources, size_t offset, size_t count)
{
    size_t at = PAD / 2 + offset;
    for (unsigned s = 0; s < sources; s++)
        call->gradient[s] = (char *)arrays->gradient[s] + at * bytes_of(gradient);
    call->count = count;
    call->step = (struct twill_optimizer_step){
        .optimizer = optimizer,
        .step = 3,
        .gradient_type = gradient,
        .sources = sources,
        .gradient = call->gradient,
        .scale = 1.0f / (float)sources,
        .parameter_type = parameter,
        .parameter = parameter == TWILL_F32 ? (void *)(arrays->weights + at)
                                            : (char *)arrays->parameter + at * bytes_of(parameter),
        .master = parameter == TWILL_F32 ? NULL : arrays->weights + at,
        .state = {arrays->state[0] + at, arrays->state[1] + at},
        .trust = 1};
}

/* Make both passes where the rule has two. Returns the norms. */
static struct twill_optimizer_norms step_all(const struct twill_kernels *kernels,
                                             struct step_call *call)
{
    struct twill_optimizer_norms norms = {0, 0};
    if (twill_optimizer_takes_norms(call->step.optimizer->rule)) {
        norms = twill_optimizer_norms(kernels, &call->step, call->count);
        call->step.trust = twill_optimizer_trust(call->step.optimizer, norms);
    }
    twill_optimizer_update(kernels, &call->step, call->count);
    return norms;
}

/* The state of an element, in f64. */
struct element {
    double w, a, b, g;
};

static double gradient_of(const struct step_call *call, size_t i)
{
    float sum = twill_test_float(call->step.gradient_type, call->gradient[0], i);
    for (unsigned s = 1; s < call->step.sources; s++)
        sum += twill_test_float(call->step.gradient_type, call->gradient[s], i);
    return (double)(sum * call->step.scale);
}

static double lamb_direction(const twill_optimizer *o, double t, struct element e)
{
    double m = e.a / (1 - pow(o->beta1, t)), v = e.b / (1 - pow(o->beta2, t));
    return m / (sqrt(v) + o->epsilon) + o->weight_decay * e.w;
}

/* The formulae of the papers. */
static struct element expected(const twill_optimizer *o, double t, double trust, struct element e)
{
    double g = e.g + o->weight_decay * e.w;
    switch (o->rule) {
    case TWILL_OPTIMIZER_SGD:
        if (o->momentum > 0) {
            e.a = o->momentum * e.a + (1 - o->dampening) * g;
            g = o->nesterov ? g + o->momentum * e.a : e.a;
        }
        e.w -= o->rate * g;
        break;
    case TWILL_OPTIMIZER_ADAGRAD:
        e.a += g * g;
        e.w -= o->rate / (1 + (t - 1) * o->rate_decay) * g / (sqrt(e.a) + o->epsilon);
        break;
    case TWILL_OPTIMIZER_LARS:
        e.a = o->momentum * e.a + o->rate * trust * g;
        e.w -= e.a;
        break;
    default:
        if (o->rule != TWILL_OPTIMIZER_ADAM)
            g = e.g;
        e.a = o->beta1 * e.a + (1 - o->beta1) * g;
        e.b = o->beta2 * e.b + (1 - o->beta2) * g * g;
        if (o->rule == TWILL_OPTIMIZER_LAMB) {
            e.w -= o->rate * trust * lamb_direction(o, t, e);
            break;
        }
        if (o->rule == TWILL_OPTIMIZER_ADAMW)
            e.w -= o->rate * o->weight_decay * e.w;
        e.w -= o->rate * (e.a / (1 - pow(o->beta1, t))) /
               (sqrt(e.b / (1 - pow(o->beta2, t))) + o->epsilon);
    }
    return e;
}

/* Assert that a value is what f64 says, within 1e-6 of the largest of what was added. */
static void assert_close(const char *what, size_t i, double got, double want, double size)
{
    if (fabs(got - want) > 1e-6 * fmax(size, fabs(want)))
        fail_msg("%s: element %zu is %.9g, should be %.9g", what, i, got, want);
}

static struct element element_at(const struct step_call *call, const struct arrays *arrays,
                                 size_t offset, size_t i)
{
    size_t at = PAD / 2 + offset + i;
    return (struct element){(double)arrays->weights[at], (double)arrays->state[0][at],
                            (double)arrays->state[1][at], gradient_of(call, i)};
}

/* Compare a step with f64, its norms as well, and what is not part of it with what was there. */
static void check_step(const struct rule_variant *variant, const struct step_call *call,
                       const struct arrays *before, const struct arrays *after, size_t offset,
                       struct twill_optimizer_norms norms)
{
    const twill_optimizer *o = &variant->optimizer;
    double t = (double)call->step.step, weights = 0, update = 0;
    bool lamb = o->rule == TWILL_OPTIMIZER_LAMB;
    for (size_t i = 0; i < call->count; i++) {
        struct element old = element_at(call, before, offset, i);
        struct element want = expected(o, t, (double)call->step.trust, old);
        struct element got = element_at(call, after, offset, i);
        double size = fabs(old.w) + fabs(old.g);
        assert_close(variant->name, i, got.w, want.w, size + fabs(old.a));
        if (twill_optimizer_states(o) > 0)
            assert_close(variant->name, i, got.a, want.a, size + fabs(old.a));
        if (twill_optimizer_states(o) > 1)
            assert_close(variant->name, i, got.b, want.b, size);
        weights += old.w * old.w;
        want.w = old.w;
        double u = lamb ? lamb_direction(o, t, want) : old.g;
        update += u * u;
        if (call->step.parameter_type != TWILL_F32) {
            uint64_t narrow;
            twill_test_put_float(call->step.parameter_type, &narrow, 0,
                                 after->weights[PAD / 2 + offset + i]);
            assert_int_equal(twill_test_get(call->step.parameter_type, call->step.parameter, i),
                             twill_test_get(call->step.parameter_type, &narrow, 0));
        }
    }
    if (twill_optimizer_takes_norms(o->rule) && call->count > 0) {
        assert_close("|w|", 0, norms.weights, weights, weights);
        assert_close("|u|", 0, norms.update, update, update);
    }
}

/* Assert that floats outside [first, first + count) are as they were. */
static void assert_untouched(const void *before, const void *after, size_t bytes, size_t first,
                             size_t count)
{
    assert_memory_equal(before, after, first);
    assert_memory_equal((const char *)before + first + count, (const char *)after + first + count,
                        bytes - first - count);
}

static void check_outside(const struct step_call *call, const struct arrays *before,
                          const struct arrays *after, size_t offset)
{
    size_t first = (PAD / 2 + offset) * sizeof(float), count = call->count * sizeof(float);
    size_t narrow = bytes_of(call->step.parameter_type), all = sizeof(before->weights);
    unsigned states = twill_optimizer_states(call->step.optimizer);
    assert_untouched(before->weights, after->weights, all, first, count);
    for (unsigned s = 0; s < 2; s++)
        assert_untouched(before->state[s], after->state[s], all, first, s < states ? count : 0);
    if (call->step.parameter_type == TWILL_F32)
        narrow = 0;
    assert_untouched(before->parameter, after->parameter, all, (PAD / 2 + offset) * narrow,
                     call->count * narrow);
    assert_memory_equal(before->gradient, after->gradient, sizeof(before->gradient));
}

/* Run one step by every table; compare the first with f64, the others with the first. */
static void check_tables(const struct rule_variant *variant, twill_type parameter,
                         twill_type gradient, unsigned sources, size_t offset, size_t count,
                         bool difficult)
{
    static struct arrays before, first, other;
    struct twill_optimizer_norms norms = {0, 0}, again;
    const struct twill_kernels *kernels;
    fill(&before, gradient, count * 31 + offset, difficult);
    for (size_t i = 0; !difficult && i < MOST + 2 * PAD; i++) {
        before.state[1][i] = fabsf(before.state[1][i]); /* a mean of squares */
        if (variant->optimizer.rule == TWILL_OPTIMIZER_ADAGRAD)
            before.state[0][i] = fabsf(before.state[0][i]);
    }
    for (size_t table = 0; (kernels = twill_test_next_table(&table));) {
        struct arrays *arrays = table == 1 ? &first : &other;
        struct step_call call;
        memcpy(arrays, &before, sizeof(before));
        make_call(&call, &variant->optimizer, arrays, parameter, gradient, sources, offset, count);
        again = step_all(kernels, &call);
        if (table > 1) {
            assert_memory_equal(&first, &other, sizeof(first));
            assert_memory_equal(&norms, &again, sizeof(norms));
            continue;
        }
        norms = again;
        check_outside(&call, &before, &first, offset);
        if (!difficult)
            check_step(variant, &call, &before, &first, offset, norms);
    }
}

TWILL_TEST(steps_are_as_in_f64_and_the_same_by_every_table)
{
    static const size_t counts[] = {0, 1, 7, 16, 31, 32, 33, 63, 65, 129, 291};
    for (const struct rule_variant *v = variants; v < variants + TWILL_ARRAY_LENGTH(variants); v++)
        for (size_t p = 0; p < TWILL_ARRAY_LENGTH(types); p++)
            for (size_t g = 0; g < TWILL_ARRAY_LENGTH(types); g++)
                for (size_t c = 0; c < TWILL_ARRAY_LENGTH(counts); c++) {
                    unsigned sources = (unsigned)(1 + (c + p) % SOURCES);
                    size_t offset = (c + g) % 4;
                    check_tables(v, types[p], types[g], sources, offset, counts[c], false);
                    if ((c + p + g) % 3 == 0)
                        check_tables(v, types[p], types[g], sources, offset, counts[c], true);
                }
}

/* w = 0 - 1 * (1 * sum) is the negated sum: that of twill_kernels_reduce() to a partial. */
TWILL_TEST(sgd_sums_as_reductions_do)
{
    static struct arrays arrays;
    float sum[MOST];
    const twill_optimizer sgd = {.rule = TWILL_OPTIMIZER_SGD, .rate = 1};
    const struct twill_kernels *kernels;
    for (size_t table = 0; (kernels = twill_test_next_table(&table));)
        for (size_t g = 0; g < TWILL_ARRAY_LENGTH(types); g++) {
            const struct twill_reduction reduction = {
                .type = types[g], .op = TWILL_SUM, .divisor = 1, .partial_result = true};
            struct step_call call;
            fill(&arrays, types[g], g, false);
            make_call(&call, &sgd, &arrays, TWILL_F32, types[g], SOURCES, 1, 283);
            call.step.scale = 1;
            memset(arrays.weights, 0, sizeof(arrays.weights));
            twill_kernels_reduce(kernels, &reduction, sum, call.gradient, SOURCES, call.count);
            step_all(kernels, &call);
            for (size_t i = 0; i < call.count; i++)
                sum[i] = -sum[i];
            assert_memory_equal(sum, call.step.parameter, call.count * sizeof(float));
        }
}

/* torch.optim.SGD has the first gradient as its first momentum, whatever the dampening. */
TWILL_TEST(first_momentum_is_not_dampened)
{
    static struct arrays arrays;
    struct step_call call;
    const twill_optimizer sgd = {
        .rule = TWILL_OPTIMIZER_SGD, .rate = 0.5, .momentum = 0.9, .dampening = 0.5};
    fill(&arrays, TWILL_F32, 5, false);
    memset(arrays.state, 0, sizeof(arrays.state));
    make_call(&call, &sgd, &arrays, TWILL_F32, TWILL_F32, 1, 0, 37);
    call.step.step = 1;
    step_all(twill_kernels_at(0), &call);
    assert_memory_equal(call.step.state[0], call.gradient[0], 37 * sizeof(float));
}

TWILL_TEST(hyperparameters_out_of_range_are_named)
{
    static const struct {
        twill_optimizer optimizer;
        const char *named;
    } wrong[] = {
        {{.rule = (twill_optimizer_rule)6, .rate = 1}, "rule 6"},
        {{.rule = TWILL_OPTIMIZER_SGD, .rate = -1}, "sgd: rate"},
        {{.rule = TWILL_OPTIMIZER_SGD, .rate = (double)NAN}, "sgd: rate"},
        {{.rule = TWILL_OPTIMIZER_SGD, .rate = 1, .weight_decay = (double)INFINITY},
         "weight_decay"},
        {{.rule = TWILL_OPTIMIZER_SGD, .rate = 1, .momentum = 1}, "momentum"},
        {{.rule = TWILL_OPTIMIZER_SGD, .rate = 1, .momentum = 0.9, .dampening = 2}, "dampening"},
        {{.rule = TWILL_OPTIMIZER_SGD, .rate = 1, .nesterov = true}, "nesterov"},
        {{.rule = TWILL_OPTIMIZER_ADAGRAD, .rate = 1}, "adagrad: epsilon"},
        {{.rule = TWILL_OPTIMIZER_ADAM, .rate = 1, .beta1 = 1, .epsilon = 1e-8}, "adam: beta1"},
        {{.rule = TWILL_OPTIMIZER_LAMB, .rate = 1, .beta2 = -0.1, .epsilon = 1e-8}, "lamb: beta2"},
        {{.rule = TWILL_OPTIMIZER_LARS, .rate = 1}, "trust_coefficient"},
    };
    struct twill_error error;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(wrong); i++) {
        twill_error_clear(&error);
        assert_int_equal(twill_optimizer_check(&wrong[i].optimizer, &error), TWILL_ERR_ARGUMENT);
        assert_non_null(strstr(error.message, wrong[i].named));
    }
    for (int rule = 0; rule < TWILL_OPTIMIZER_COUNT; rule++) {
        twill_optimizer good;
        twill_optimizer_defaults(&good, (twill_optimizer_rule)rule);
        assert_int_equal(twill_optimizer_check(&good, NULL), TWILL_OK);
        assert_non_null(twill_optimizer_name(good.rule));
        assert_true(rule != TWILL_OPTIMIZER_ADAGRAD || fabs(good.rate - 0.01) < 1e-15);
    }
    assert_null(twill_optimizer_name(TWILL_OPTIMIZER_COUNT));
}

/* Large arrays, so that threads share them. The bits are those of one thread. */
TWILL_TEST(squares_are_summed_alike_by_tables_and_threads)
{
    const size_t most = ((size_t)1 << 18) + 77;
    float *src = malloc(most * sizeof(*src));
    struct twill_thread_pool *pools[2] = {NULL, twill_test_pool(3, 1 << 14)};
    const struct twill_kernels *kernels;
    assert_non_null(src);
    for (size_t t = 0; t < TWILL_ARRAY_LENGTH(types); t++)
        for (size_t count = 0; count < most; count = count * 5 + 3) {
            size_t n = count > most / 5 ? most : count; /* the last one is the largest */
            double first = 0, want = 0;
            fill_numbers(types[t], src, n, t);
            for (size_t i = 0; i < n; i++)
                want += pow((double)twill_test_float(types[t], src, i), 2);
            for (size_t table = 0; (kernels = twill_test_next_table(&table));)
                for (int p = 0; p < 2; p++) {
                    double got = twill_kernels_sum_of_squares(kernels, types[t], src, n, pools[p]);
                    if (table == 1 && p == 0)
                        first = got;
                    assert_memory_equal(&got, &first, sizeof(got));
                    assert_close("sum of squares", n, got, want, 0);
                }
        }
    assert_true(twill_pool_forks(pools[1]) > 0);
    free(src);
    twill_thread_pool_close(pools[1]);
}
