/* SPDX-License-Identifier: Apache-2.0 */
/* Sets with an optimizer: parameters against a serial oracle in f64, on any number of ranks. */
#include "tests/support/gradient_sets.h"
#include "tests/support/unit.h"

#define UPDATE_TENSORS 10u
#define UPDATE_STEPS   4u
#define UPDATE_COUNT   5000u /* most elements of a tensor */
#define UPDATE_WORLDS  4u

struct update_case {
    const char *world; /* its ranks */
    const char *settings;
    twill_optimizer optimizer;
    twill_type type;
    bool own;      /* every second tensor has gradients of its own, every third parameters */
    float *oracle; /* [UPDATE_TENSORS][UPDATE_COUNT] results, by the main thread */
    double norm;   /* of the gradients of the last step */
};

static const char *const update_worlds[UPDATE_WORLDS] = {"1", "2", "3", "2x2"};

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
static double update_mean(const struct update_case *c, unsigned tensor, unsigned step, double *mean)
{
    int size = twill_test_size(c->world);
    double squares = 0;
    for (size_t i = 0; i < update_counts[tensor]; i++) {
        mean[i] = 0;
        for (int r = 0; r < size; r++)
            mean[i] += gradient_of(r, tensor, i, step);
        mean[i] /= size;
        squares += mean[i] * mean[i];
    }
    return squares;
}

/* Compute the results of a case. */
static void run_oracle(struct update_case *c)
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
                         const struct update_case *c)
{
    const char *const settings[] = {TWILL_TEST_PATIENT, c->settings, NULL};
    TWILL_REQUIRE(twill_test_begin(&r->s.comm, bootstrap, c->world, settings));
    r->s.context = twill_comm_context(r->s.comm);
    TWILL_REQUIRE(twill_gradients_create(&r->s.set, r->s.comm, NULL) == TWILL_OK);
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
static bool is_late(const struct update_case *c)
{
    return strstr(c->settings, "late=1") != NULL;
}

/* Let the update of the step before end, where it is late: the parameters that the caller reads
 * stay as they are. */
static bool parameters_stay(struct update_ranks *r, const struct update_case *c)
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

static bool update_run_step(struct update_ranks *r, const struct update_case *c, int rank,
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

static bool update_is_right(struct update_ranks *r, const struct update_case *c)
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

/* Train as a rank, and compare with the oracle. */
static void update_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct update_case *c = user;
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

/* --- tests --------------------------------------------------------------------------------------
 */

static const char *const update_settings[] = {
    "TWILL_GRADIENTS=", "TWILL_GRADIENTS=bucket=0", "TWILL_GRADIENTS=bucket=16K,first=1K",
    "TWILL_GRADIENTS=order=priority,bucket=32K,first=4K,segment=4K",
    "TWILL_GRADIENTS=compress=f16,order=priority,bucket=16K,first=1K,segment=4K"};
/* Is the case run with compression, too? Quotients by three have no exact f16. */
static bool may_compress(const twill_optimizer *optimizer, twill_type type, unsigned world)
{
    return type == TWILL_F32 && twill_test_size(update_worlds[world]) != 3 &&
           (optimizer->rule == TWILL_OPTIMIZER_SGD || optimizer->rule == TWILL_OPTIMIZER_LAMB);
}

static void run_rule(const twill_optimizer *optimizer, twill_type type)
{
    float *oracle = calloc(UPDATE_TENSORS * UPDATE_COUNT, sizeof(*oracle));
    for (unsigned w = 0; w < UPDATE_WORLDS; w++)
        for (unsigned s = 0; s < (may_compress(optimizer, type, w) ? 3 : 2); s++) {
            unsigned settings = s == 2 ? 4 : (w + 2 * s + (unsigned)optimizer->rule) % 4;
            struct update_case c = {update_worlds[w],        update_settings[settings],
                                    .optimizer = *optimizer, .type = type,
                                    .own = (w + s) % 2 == 0, .oracle = oracle};
            if (s == 0)
                run_oracle(&c);
            twill_test_run_ranks(twill_test_size(c.world), update_rank, &c);
        }
    free(oracle);
}

TWILL_TEST(rules_equal_the_oracle)
{
    for (int rule = 0; rule < TWILL_OPTIMIZER_COUNT; rule++) {
        twill_optimizer o;
        twill_optimizer_defaults(&o, (twill_optimizer_rule)rule);
        o.rate = 0.01;
        o.weight_decay = 0.02;
        o.epsilon = 1e-3; /* a root near zero would amplify the rounding of f32 */
        if (rule == TWILL_OPTIMIZER_SGD || rule == TWILL_OPTIMIZER_LARS)
            o.momentum = 0.9;
        o.nesterov = rule == TWILL_OPTIMIZER_SGD;
        run_rule(&o, TWILL_F32);
    }
}

TWILL_TEST(narrow_parameters_have_master_weights)
{
    twill_optimizer o;
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_ADAMW);
    o.epsilon = 1e-3;
    run_rule(&o, TWILL_BF16);
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_LAMB);
    o.epsilon = 1e-3;
    run_rule(&o, TWILL_BF16);
}

/* --- bits ------------------------------------------------------------------------------------ */

#define BITS_COUNT 3000u

/* Make a set of one tensor, with or without an optimizer, and run a step. Returns the result. */
static const float *run_once(twill_gradients **set, twill_comm *comm, int rank,
                             const twill_optimizer *optimizer)
{
    twill_gradients_options options;
    twill_gradients_defaults(&options);
    options.op = TWILL_SUM;
    const twill_tensor tensor = {.name = "w", .count = BITS_COUNT, .type = TWILL_F32};
    if (twill_gradients_create(set, comm, &options) != TWILL_OK ||
        twill_gradients_add(*set, &tensor, NULL) != TWILL_OK ||
        (optimizer != NULL && twill_gradients_set_optimizer(*set, optimizer) != TWILL_OK) ||
        twill_gradients_commit(*set) != TWILL_OK)
        return NULL;
    float *gradient = twill_gradients_memory(*set, 0);
    for (size_t i = 0; i < BITS_COUNT; i++)
        gradient[i] = 1.0f / (float)(3 + (i * 37 + (size_t)rank * 11) % 1009);
    if (twill_gradients_ready(*set, 0) != TWILL_OK || twill_gradients_wait_all(*set) != TWILL_OK)
        return NULL;
    return optimizer != NULL ? twill_gradients_parameters(*set, 0) : gradient;
}

TWILL_TEST_ON(sums_have_the_bits_of_an_allreduce, ranks, TWILL_LAYOUTS("3", "2x2"),
              TWILL_TEST_PATIENT, "TWILL_REPRODUCIBLE=1")
{
    twill_gradients *plain = NULL, *updating = NULL;
    twill_optimizer sgd;
    twill_optimizer_defaults(&sgd, TWILL_OPTIMIZER_SGD);
    sgd.rate = 1;
    const float *sum = run_once(&plain, comm, rank, NULL),
                *parameters = run_once(&updating, comm, rank, &sgd);
    TWILL_CHECK(sum != NULL && parameters != NULL);
    for (size_t i = 0; i < BITS_COUNT; i++)
        TWILL_CHECK(-parameters[i] >= sum[i] && -parameters[i] <= sum[i], "sum %zu differs", i);
    (void)twill_test_barrier(bootstrap);
    twill_gradients_destroy(plain);
    twill_gradients_destroy(updating);
}

/* --- rates, and bad input -------------------------------------------------------------------- */

static bool refuses(twill_gradients *set, const twill_optimizer *optimizer, const char *named)
{
    return TWILL_NOTE(twill_gradients_set_optimizer(set, optimizer) == TWILL_ERR_ARGUMENT &&
                          strstr(twill_gradients_message(set), named) != NULL,
                      "'%s' is not in '%s'", named, twill_gradients_message(set));
}

static bool refuse_all(twill_gradients *set)
{
    twill_optimizer o;
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_ADAM);
    TWILL_REQUIRE(refuses(set, NULL, "optimizer is NULL"));
    o.rate = (double)NAN;
    TWILL_REQUIRE(refuses(set, &o, "adam: rate is nan"));
    o.rate = 1;
    o.rule = TWILL_OPTIMIZER_COUNT;
    TWILL_REQUIRE(refuses(set, &o, "no rule 6"));
    o.bytes = 3;
    return refuses(set, &o, "optimizer.bytes is 3");
}

/* A rate may change between steps, a rule may not. */
static bool change_rate(twill_gradients *set)
{
    twill_optimizer o;
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_ADAM);
    TWILL_REQUIRE(refuses(set, &o, "the rule is sgd since"));
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_SGD);
    o.momentum = 0.5;
    TWILL_REQUIRE(refuses(set, &o, "committed with momentum 0"));
    o.momentum = 0;
    for (int step = 0; step < 3; step++) {
        o.rate = step;
        TWILL_REQUIRE(twill_gradients_set_optimizer(set, &o) == TWILL_OK);
        *(uint16_t *)twill_gradients_memory(set, 0) = 0xbf80; /* -1 in bf16 */
        if (step == 2) { /* from 1, which the steps before have led to, to 16 */
            *(uint16_t *)twill_gradients_parameters(set, 0) = 0x4180;
            TWILL_REQUIRE(twill_gradients_reload(set) == TWILL_OK);
        }
        TWILL_REQUIRE(twill_gradients_ready(set, 0) == TWILL_OK);
        o.rate = 7;
        TWILL_REQUIRE(
            refuses(set, &o, "twill_gradients_set_optimizer: tensor 'w' is marked ready"));
        TWILL_REQUIRE(twill_gradients_wait_all(set) == TWILL_OK);
    }
    return TWILL_NOTE(*(uint16_t *)twill_gradients_parameters(set, 0) == 0x4190, "not 16 + 2 * 1");
}

/* Commit a set of one tensor of a type that cannot be updated. */
static bool refuse_type(twill_comm *comm)
{
    twill_gradients *set;
    twill_optimizer o;
    const twill_tensor tensor = {.name = "counts", .count = 1, .type = TWILL_F64};
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_SGD);
    TWILL_REQUIRE(twill_gradients_create(&set, comm, NULL) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_set_optimizer(set, &o) == TWILL_OK);
    TWILL_REQUIRE(twill_gradients_add(set, &tensor, NULL) == TWILL_OK);
    bool ok = twill_gradients_commit(set) == TWILL_ERR_ARGUMENT &&
              strstr(twill_gradients_message(set), "'counts': there is no optimizer for f64");
    (void)TWILL_NOTE(ok, "%s", twill_gradients_message(set));
    twill_gradients_destroy(set);
    return ok;
}

TWILL_TEST_SETS(bad_input_is_named, ranks, TWILL_LAYOUTS("2"), *c, TWILL_TEST_PATIENT)
{
    twill_optimizer o;
    twill_optimizer_defaults(&o, TWILL_OPTIMIZER_SGD);
    const twill_tensor tensor = {.name = "w", .count = 1, .type = TWILL_BF16};
    TWILL_CHECK(refuse_all(r->set));
    TWILL_CHECK(twill_gradients_set_optimizer(r->set, &o) == TWILL_OK);
    TWILL_CHECK(twill_gradients_add(r->set, &tensor, NULL) == TWILL_OK);
    TWILL_CHECK(twill_test_set_commit(r) && change_rate(r->set));
    TWILL_CHECK(twill_test_barrier(bootstrap) && refuse_type(r->comm));
}

/* --- modes ------------------------------------------------------------------------------------ */

/* Sets with an optimizer that run one step late, have threads, or clip by the norm: their
 * parameters are those of the oracle, too. */

static const char *const update_combinations[] = {
    "TWILL_GRADIENTS=late=1,bucket=16K,first=1K",
    "TWILL_GRADIENTS=late=1,order=priority,bucket=16K,segment=4K",
    "TWILL_GRADIENTS=threads=2,bucket=16K,first=1K",
    "TWILL_GRADIENTS=late=1,threads=2,order=priority,bucket=16K,first=1K,segment=4K"};

TWILL_TEST(combinations_equal_the_oracle)
{
    static float oracle[UPDATE_TENSORS * UPDATE_COUNT];
    const struct {
        twill_optimizer_rule rule;
        twill_type type;
        double clip; /* below all norms */
    } kinds[] = {{TWILL_OPTIMIZER_ADAM, TWILL_F32, 0},
                 {TWILL_OPTIMIZER_ADAMW, TWILL_BF16, 3},
                 {TWILL_OPTIMIZER_LAMB, TWILL_F32, 2}};
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(update_combinations); i++)
        for (unsigned k = 0; k < TWILL_ARRAY_LENGTH(kinds); k++) {
            struct update_case c = {update_worlds[(i + k) % 2 + 1], update_combinations[i],
                                    .type = kinds[k].type, .own = (i + k) % 2 == 0,
                                    .oracle = oracle};
            twill_optimizer_defaults(&c.optimizer, kinds[k].rule);
            c.optimizer.rate = 0.01;
            c.optimizer.epsilon = 1e-3;
            c.optimizer.clip_norm = kinds[k].clip;
            run_oracle(&c);
            twill_test_run_ranks(twill_test_size(c.world), update_rank, &c);
        }
}

/* --- clipping -------------------------------------------------------------------------------- */

TWILL_TEST(gradients_are_clipped_by_their_norm)
{
    static float oracle[UPDATE_TENSORS * UPDATE_COUNT];
    for (unsigned i = 0; i < 6; i++) {
        const char *settings[] = {
            "TWILL_GRADIENTS=", "TWILL_GRADIENTS=order=priority,bucket=32K,first=4K,segment=4K",
            update_combinations[2]};
        struct update_case c = {update_worlds[i % 4], settings[i % 3], .type = TWILL_F32,
                                .own = i % 2 == 0, .oracle = oracle};
        twill_optimizer_defaults(&c.optimizer, TWILL_OPTIMIZER_SGD);
        c.optimizer.rate = 0.1;
        c.optimizer.clip_norm = 1.5;
        run_oracle(&c);
        twill_test_run_ranks(twill_test_size(c.world), update_rank, &c);
    }
}
