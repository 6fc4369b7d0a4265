/* SPDX-License-Identifier: Apache-2.0 */
/* Sets with an optimizer against a serial oracle. */
#include "tests/support/update_cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const struct twill_update_world twill_update_worlds[UPDATE_WORLDS] = {
    {1, ""}, {2, ""}, {3, ""}, {4, "2x2"}};

static const size_t update_counts[UPDATE_TENSORS] = {1, 7,   1000, 64, UPDATE_COUNT,
                                                     3, 300, 2049, 31, 17};

/* Values whose sums, averages of 1, 2 and 4 ranks and bf16 forms are exact. */
static float gradient_of(int rank, unsigned tensor, size_t i, unsigned step)
{
    return (float)((int)((i * 7 + tensor * 3 + step * 5 + (size_t)rank * 11) % 17) - 8) / 8;
}

static float parameter_of(unsigned tensor, size_t i)
{
    return (float)((int)((i * 5 + tensor) % 13) - 6) / 16;
}

/* --- the oracle ------------------------------------------------------------------------------ */

struct oracle_state {
    double w[UPDATE_COUNT], a[UPDATE_COUNT], b[UPDATE_COUNT];
};

static double direction_of(const twill_optimizer *o, struct oracle_state *s, size_t i, double g,
                           double t)
{
    if (o->rule == TWILL_OPTIMIZER_SGD) {
        g += o->weight_decay * s->w[i];
        s->a[i] = t <= 1 ? g : o->momentum * s->a[i] + (1 - o->dampening) * g;
        return o->nesterov ? g + o->momentum * s->a[i] : s->a[i];
    }
    if (o->rule == TWILL_OPTIMIZER_ADAGRAD) {
        g += o->weight_decay * s->w[i];
        s->a[i] += g * g;
        return g / (1 + (t - 1) * o->rate_decay) / (sqrt(s->a[i]) + o->epsilon);
    }
    if (o->rule == TWILL_OPTIMIZER_ADAM)
        g += o->weight_decay * s->w[i];
    s->a[i] = o->beta1 * s->a[i] + (1 - o->beta1) * g;
    s->b[i] = o->beta2 * s->b[i] + (1 - o->beta2) * g * g;
    double u = s->a[i] / (1 - pow(o->beta1, t)) /
               (sqrt(s->b[i]) / sqrt(1 - pow(o->beta2, t)) + o->epsilon);
    return u + (o->rule == TWILL_OPTIMIZER_ADAM ? 0 : o->weight_decay * s->w[i]);
}

/* Update one tensor with the mean gradient of a step. */
static void oracle_step(const twill_optimizer *o, struct oracle_state *s, const double *mean,
                        size_t count, double t)
{
    static double u[UPDATE_COUNT]; /* the main thread's */
    double weights = 0, update = 0;
    bool lars = o->rule == TWILL_OPTIMIZER_LARS;
    for (size_t i = 0; i < count; i++) {
        u[i] = lars ? mean[i] : direction_of(o, s, i, mean[i], t);
        weights += s->w[i] * s->w[i];
        update += u[i] * u[i];
    }
    weights = sqrt(weights);
    update = sqrt(update);
    double trust = weights > 0 && update > 0 ? weights / update : 1;
    if (lars && weights > 0 && update > 0)
        trust = o->trust_coefficient * weights / (update + o->weight_decay * weights);
    for (size_t i = 0; i < count; i++)
        if (lars) {
            s->a[i] = o->momentum * s->a[i] + o->rate * trust * (u[i] + o->weight_decay * s->w[i]);
            s->w[i] -= s->a[i];
        } else {
            s->w[i] -= o->rate * (o->rule == TWILL_OPTIMIZER_LAMB ? trust : 1) * u[i];
        }
}

/* Fill mean[] with the mean gradient of a tensor in a step, and return its squares' sum. */
static double update_mean(const struct twill_update_case *c, unsigned tensor, unsigned step,
                          double *mean)
{
    double squares = 0;
    for (size_t i = 0; i < update_counts[tensor]; i++) {
        mean[i] = 0;
        for (int r = 0; r < c->world->size; r++)
            mean[i] += gradient_of(r, tensor, i, step);
        mean[i] /= c->world->size;
        squares += mean[i] * mean[i];
    }
    return squares;
}

void twill_update_run_oracle(struct twill_update_case *c)
{
    static struct oracle_state s;
    static double mean[UPDATE_COUNT];
    double factor[UPDATE_STEPS];
    for (unsigned step = 0; step < UPDATE_STEPS; step++) {
        double squares = 0;
        for (unsigned tensor = 0; tensor < UPDATE_TENSORS; tensor++)
            squares += update_mean(c, tensor, step, mean);
        c->norm = sqrt(squares);
        factor[step] = c->optimizer.clip_norm > 0 ? c->optimizer.clip_norm / c->norm : 1;
    }
    for (unsigned tensor = 0; tensor < UPDATE_TENSORS; tensor++) {
        memset(&s, 0, sizeof(s));
        for (size_t i = 0; i < update_counts[tensor]; i++)
            s.w[i] = parameter_of(tensor, i);
        for (unsigned step = 0; step < UPDATE_STEPS; step++) {
            (void)update_mean(c, tensor, step, mean);
            for (size_t i = 0; factor[step] < 1 && i < update_counts[tensor]; i++)
                mean[i] *= factor[step];
            oracle_step(&c->optimizer, &s, mean, update_counts[tensor], step + 1.0);
        }
        for (size_t i = 0; i < update_counts[tensor]; i++)
            c->oracle[tensor * UPDATE_COUNT + i] = (float)s.w[i];
    }
}

/* --- ranks ----------------------------------------------------------------------------------- */

struct update_ranks {
    struct twill_test_set s;
    twill_gradients *set; /* that of s */
    void *gradient[UPDATE_TENSORS], *parameters[UPDATE_TENSORS];
};

static void store(void *memory, twill_type type, size_t i, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if (type == TWILL_BF16)
        ((uint16_t *)memory)[i] = (uint16_t)(bits >> 16); /* exact for the values used */
    else
        ((float *)memory)[i] = value;
}

static float load(const void *memory, twill_type type, size_t i)
{
    if (type != TWILL_BF16)
        return ((const float *)memory)[i];
    uint32_t bits = (uint32_t)((const uint16_t *)memory)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static bool update_start(struct update_ranks *r, twill_bootstrap *bootstrap,
                         const struct twill_update_case *c)
{
    if (!twill_test_set_open(&r->s, bootstrap, c->world->nodes, TWILL_TEST_PATIENT, c->settings,
                             NULL))
        return false;
    r->set = r->s.set;
    TWILL_REQUIRE(twill_gradients_set_optimizer(r->set, &c->optimizer) == TWILL_OK);
    for (unsigned t = 0; t < UPDATE_TENSORS; t++) {
        size_t bytes = update_counts[t] * twill_type_size(c->type);
        if (c->own && t % 2 == 0)
            r->gradient[t] = malloc(bytes);
        if (c->own && t % 3 == 0)
            r->parameters[t] = malloc(bytes);
        TWILL_REQUIRE(twill_test_set_add(&r->s, t, update_counts[t], c->type, r->gradient[t],
                                         r->parameters[t]));
    }
    return twill_test_set_commit(&r->s);
}

static void update_stop(struct update_ranks *r, twill_bootstrap *bootstrap)
{
    twill_test_set_close(&r->s, bootstrap);
    for (unsigned t = 0; t < UPDATE_TENSORS; t++) {
        free(r->gradient[t]);
        free(r->parameters[t]);
    }
}

/* Return whether the set delivers one step late. */
static bool is_late(const struct twill_update_case *c)
{
    return strstr(c->settings, "late=1") != NULL;
}

/* Let the update of the step before end, where it is late: the parameters that the caller reads
 * stay as they are. */
static bool parameters_stay(struct update_ranks *r, const struct twill_update_case *c)
{
    static _Thread_local unsigned char before[UPDATE_COUNT * sizeof(float)];
    const unsigned tensor = 4;
    size_t bytes = update_counts[tensor] * twill_type_size(c->type);
    const void *memory = twill_gradients_parameters(r->set, (int)tensor);
    memcpy(before, memory, bytes);
    for (int done = 0; !done && !twill_test_failed();)
        TWILL_REQUIRE(twill_gradients_test(r->set, -1, &done) == TWILL_OK);
    return TWILL_NOTE(memcmp(before, memory, bytes) == 0,
                      "parameters changed while they were used");
}

static bool update_run_step(struct update_ranks *r, const struct twill_update_case *c, int rank,
                            unsigned step)
{
    if (is_late(c) && step > 0)
        TWILL_REQUIRE(parameters_stay(r, c));
    for (unsigned i = 0; i < UPDATE_TENSORS; i++) {
        unsigned t = (i * 3 + (unsigned)rank + step) % UPDATE_TENSORS;
        void *memory = twill_gradients_memory(r->set, (int)t);
        for (size_t e = 0; e < update_counts[t]; e++)
            store(memory, c->type, e, gradient_of(rank, t, e, step));
        TWILL_REQUIRE(twill_gradients_ready(r->set, (int)t) == TWILL_OK);
    }
    if (step == 1)
        TWILL_REQUIRE(twill_gradients_wait(r->set, 4) == TWILL_OK);
    return twill_test_set_ok(&r->s, twill_gradients_wait_all(r->set));
}

static bool update_is_right(struct update_ranks *r, const struct twill_update_case *c)
{
    for (unsigned t = 0; t < UPDATE_TENSORS; t++) {
        const void *memory = twill_gradients_parameters(r->set, (int)t);
        TWILL_REQUIRE(r->parameters[t] == NULL || memory == r->parameters[t]);
        for (size_t i = 0; i < update_counts[t]; i++) {
            double is = load(memory, c->type, i), right = c->oracle[t * UPDATE_COUNT + i],
                   bound = c->type == TWILL_BF16 ? 0x1p-8 * fabs(right) + 1e-6
                                                 : 1e-6 * fmax(1, fabs(right));
            TWILL_REQUIRE(fabs(is - right) <= bound, "tensor %u element %zu: %.9g, not %.9g", t, i,
                          is, right);
        }
    }
    return twill_test_set_ok(&r->s, twill_gradients_check(r->set));
}

void twill_update_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct twill_update_case *c = user;
    struct update_ranks r = {0};
    twill_gradients_counters counters = {0};
    bool ok = update_start(&r, bootstrap, c);
    for (unsigned t = 0; ok && t < UPDATE_TENSORS; t++)
        for (size_t i = 0; i < update_counts[t]; i++)
            store(twill_gradients_parameters(r.set, (int)t), c->type, i, parameter_of(t, i));
    for (unsigned step = 0; ok && step < UPDATE_STEPS; step++)
        ok = update_run_step(&r, c, rank, step);
    if (ok && is_late(c))
        ok = twill_test_set_ok(&r.s, twill_gradients_drain(r.set));
    ok = ok && update_is_right(&r, c);
    if (ok) {
        (void)twill_gradients_count(r.set, &counters);
        size_t total = 0;
        for (unsigned t = 0; t < UPDATE_TENSORS; t++)
            total += update_counts[t] * sizeof(float) * (2 + (c->type != TWILL_F32 || is_late(c)));
        /* A rank has its share of the state, but for shards that end at a cache line. */
        TWILL_CHECK(counters.state_bytes <=
                    total / (size_t)size + counters.operations * 256 + 4096);
        TWILL_CHECK(strstr(twill_gradients_describe(r.set, 0), "on shards") != NULL);
        if (c->optimizer.clip_norm > 0)
            (void)TWILL_NOTE(fabs(counters.gradient_norm - c->norm) <= 1e-5 * c->norm,
                             "norm %g, not %g", counters.gradient_norm, c->norm);
    }
    update_stop(&r, bootstrap);
}
