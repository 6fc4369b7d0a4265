/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer steps: hyperparameters, the constants of a step, and ranges for threads. */
#include "kernels/training/optimizer.h"
#include "kernels/isa.h"
#include "kernels/training/training.h"

#define RULE(NOUN)   (1u << TWILL_OPTIMIZER_##NOUN)
#define WITH_MOMENTS (RULE(ADAM) | RULE(ADAMW) | RULE(LAMB))

static const char *const rule_names[] = {
    [TWILL_OPTIMIZER_SGD] = "sgd",   [TWILL_OPTIMIZER_ADAGRAD] = "adagrad",
    [TWILL_OPTIMIZER_ADAM] = "adam", [TWILL_OPTIMIZER_ADAMW] = "adamw",
    [TWILL_OPTIMIZER_LARS] = "lars", [TWILL_OPTIMIZER_LAMB] = "lamb"};

const char *twill_optimizer_name(twill_optimizer_rule rule)
{
    return (unsigned)rule < TWILL_OPTIMIZER_COUNT ? rule_names[rule] : NULL;
}

void twill_optimizer_defaults(twill_optimizer *optimizer, twill_optimizer_rule rule)
{
    twill_optimizer o = {.bytes = sizeof(o),
                         .rule = rule,
                         .rate = 1e-3,
                         .beta1 = 0.9,
                         .beta2 = 0.999,
                         .epsilon = 1e-8};
    if (rule == TWILL_OPTIMIZER_ADAGRAD) {
        o.rate = 1e-2;
        o.epsilon = 1e-10;
    } else if (rule == TWILL_OPTIMIZER_ADAMW || rule == TWILL_OPTIMIZER_LAMB) {
        o.weight_decay = 1e-2;
    } else if (rule == TWILL_OPTIMIZER_LARS) {
        o.momentum = 0.9;
        o.weight_decay = 5e-4;
        o.trust_coefficient = 1e-3;
    }
    if (rule == TWILL_OPTIMIZER_LAMB)
        o.epsilon = 1e-6;
    if (optimizer != NULL)
        *optimizer = o;
}

twill_status twill_optimizer_check(const twill_optimizer *optimizer, struct twill_error *error)
{
    const double most = 3e38, under_one = 1 - 0x1p-24;
    const struct {
        const char *name;
        unsigned rules;
        double value, low, high;
    } ranges[] = {
        {"rate", ~0u, optimizer->rate, 0, most},
        {"weight_decay", ~0u, optimizer->weight_decay, 0, most},
        {"momentum", RULE(SGD) | RULE(LARS), optimizer->momentum, 0, under_one},
        {"dampening", RULE(SGD), optimizer->dampening, 0, 1},
        {"rate_decay", RULE(ADAGRAD), optimizer->rate_decay, 0, most},
        {"beta1", WITH_MOMENTS, optimizer->beta1, 0, under_one},
        {"beta2", WITH_MOMENTS, optimizer->beta2, 0, under_one},
        {"epsilon", WITH_MOMENTS | RULE(ADAGRAD), optimizer->epsilon, 0x1p-126, 1},
        {"clip_norm", ~0u, optimizer->clip_norm, 0, most},
        {"trust_coefficient", RULE(LARS), optimizer->trust_coefficient, 0x1p-126, most},
    };
    if ((unsigned)optimizer->rule >= TWILL_OPTIMIZER_COUNT)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "optimizer: there is no rule %d",
                          (int)optimizer->rule);
    const char *rule = rule_names[optimizer->rule];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(ranges); i++)
        if (ranges[i].rules >> optimizer->rule & 1 &&
            !(ranges[i].value >= ranges[i].low && ranges[i].value <= ranges[i].high))
            return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "%s: %s is %g, must be in %g .. %.9g",
                              rule, ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high);
    if (optimizer->rule == TWILL_OPTIMIZER_SGD && optimizer->nesterov &&
        !(optimizer->momentum > 0 && optimizer->dampening <= 0))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "sgd: nesterov needs momentum above 0 and no dampening");
    return TWILL_OK;
}

unsigned twill_optimizer_states(const twill_optimizer *optimizer)
{
    if (optimizer->rule == TWILL_OPTIMIZER_SGD)
        return optimizer->momentum > 0;
    return WITH_MOMENTS >> optimizer->rule & 1 ? 2 : 1;
}

bool twill_optimizer_takes_norms(twill_optimizer_rule rule)
{
    return (RULE(LARS) | RULE(LAMB)) >> rule & 1;
}

/* Return base to the power of n. Unlike pow(), the same bits with every C library. */
static double power(double base, uint64_t n)
{
    double result = 1;
    for (; n > 0; n >>= 1) {
        if (n & 1)
            result *= base;
        base *= base;
    }
    return result;
}

/* Compute the constants of a step. `trust` is read for LARS and LAMB. It is 0 in their first pass,
 * which needs no rate. */
static struct twill_update_job job_of(const struct twill_kernels *kernels,
                                      const struct twill_optimizer_step *step, float trust)
{
    const twill_optimizer *o = step->optimizer;
    struct twill_update_job job = {.kernels = kernels->training,
                                   .step = step,
                                   .weights = step->parameter_type == TWILL_F32 ? step->parameter
                                                                                : step->master,
                                   .decays = o->weight_decay > 0,
                                   .decay = (float)o->weight_decay,
                                   .rate = (float)o->rate,
                                   .epsilon = (float)o->epsilon};
    if (o->rule == TWILL_OPTIMIZER_SGD) {
        job.has_momentum = o->momentum > 0;
        job.nesterov = o->nesterov != 0;
        job.undamped = step->step <= 1 ? 1 : (float)(1 - o->dampening);
        job.momentum = (float)o->momentum;
    } else if (o->rule == TWILL_OPTIMIZER_ADAGRAD) {
        job.rate = (float)(o->rate / (1 + (double)(step->step - 1) * o->rate_decay));
    } else if (o->rule == TWILL_OPTIMIZER_LARS) {
        job.momentum = (float)o->momentum;
        job.rate = (float)(o->rate * (double)trust);
    } else {
        double bias1 = 1 - power(o->beta1, step->step), bias2 = 1 - power(o->beta2, step->step);
        bool lamb = o->rule == TWILL_OPTIMIZER_LAMB;
        job.beta1 = (float)o->beta1;
        job.beta2 = (float)o->beta2;
        job.rest1 = (float)(1 - o->beta1);
        job.rest2 = (float)(1 - o->beta2);
        job.unbias1 = (float)(1 / bias1);
        job.unbias2 = (float)(1 / __builtin_sqrt(bias2));
        job.keep = (float)(1 - o->rate * o->weight_decay);
        job.rate = (float)(lamb ? o->rate * (double)trust : o->rate / bias1);
    }
    return job;
}

/* Update parameters `first` to `first` + `count` - 1 of `data`, a struct twill_update_job, by the
 * optimizer's rule. Called by several threads. */
static void update_range(const void *data, size_t first, size_t count)
{
    const struct twill_update_job *job = data;
    unsigned modes = twill_environment_enter(true);
    job->kernels->update[job->step->optimizer->rule](job, first, count);
    twill_environment_leave(modes);
}

void twill_optimizer_update(const struct twill_kernels *kernels,
                            const struct twill_optimizer_step *step, size_t count)
{
    const struct twill_update_job job = job_of(kernels, step, step->trust);
    size_t states = twill_optimizer_states(step->optimizer);
    size_t read = step->sources * twill_kernels_element(step->gradient_type, TWILL_SUM) +
                  (1 + 2 * states) * sizeof(float);
    twill_split(update_range, &job, count, sizeof(float), read, step->pool);
}

/* Stretches of equal length whose squares are summed separately, and then added in their order. On
 * the stack of the caller of sum_all(), which sets `each` (elements of a stretch) and `sums` (one
 * for each stretch). `count` is the number of all elements, `element` the bytes that are
 * read for one. */
struct stretches {
    const struct twill_update_job *update; /* NULL to sum the squares of src */
    twill_squares_fn squares;
    const unsigned char *src;
    size_t element, count, each;
    struct twill_optimizer_norms *sums;
};

/* Process stretches number `first` to `first` + `count` - 1 of `data`, a struct stretches. Store in
 * sums[i] the sum of the squares of stretch i of src. With job->update, make the first pass of LARS
 * or LAMB over it instead, which for LAMB updates its moments. */
static void sum_stretches(const void *data, size_t first, size_t count)
{
    const struct stretches *job = data;
    const struct twill_update_job *update = job->update;
    unsigned modes = twill_environment_enter(true);
    for (size_t i = first; i < first + count; i++) {
        size_t at = i * job->each, n = twill_min(job->each, job->count - at);
        if (update)
            job->sums[i] = update->kernels->norms[update->step->optimizer->rule](update, at, n);
        else
            job->sums[i].weights = job->squares(job->src + at * job->element, n);
    }
    twill_environment_leave(modes);
}

/* Sum the squares of job->count elements, stretch by stretch, in member `weights` of the result.
 * With job->update, make the first pass of LARS or LAMB instead, and return its norms. */
static struct twill_optimizer_norms sum_all(struct stretches *job, struct twill_thread_pool *pool)
{
    const size_t least = 64 * (size_t)TWILL_SQUARE_LANES;
    struct twill_optimizer_norms sums[TWILL_SQUARE_STRETCHES], all = {0, 0};
    size_t each = (job->count + TWILL_SQUARE_STRETCHES - 1) / TWILL_SQUARE_STRETCHES;
    memset(sums, 0, sizeof(sums));
    job->each = twill_max(twill_round_up(each, TWILL_SQUARE_LANES), least);
    job->sums = sums;
    size_t stretches = (job->count + job->each - 1) / job->each;
    twill_split_blocks(sum_stretches, job, stretches, 0, job->each * job->element, pool);
    for (size_t i = 0; i < stretches; i++) {
        all.weights += sums[i].weights;
        all.update += sums[i].update;
    }
    return all;
}

struct twill_optimizer_norms twill_optimizer_norms(const struct twill_kernels *kernels,
                                                   const struct twill_optimizer_step *step,
                                                   size_t count)
{
    const struct twill_update_job update = job_of(kernels, step, 0);
    struct stretches job = {.update = &update, .count = count, .element = 4 * sizeof(float)};
    return sum_all(&job, step->pool);
}

double twill_kernels_sum_of_squares(const struct twill_kernels *kernels, twill_type type,
                                    const void *src, size_t count, struct twill_thread_pool *pool)
{
    struct stretches job = {.squares = kernels->training->squares[type],
                            .src = src,
                            .element = twill_kernels_element(type, TWILL_SUM),
                            .count = count};
    return sum_all(&job, pool).weights;
}

float twill_optimizer_trust(const twill_optimizer *optimizer, struct twill_optimizer_norms norms)
{
    double weights = __builtin_sqrt(norms.weights), update = __builtin_sqrt(norms.update);
    if (!(weights > 0) || !(update > 0))
        return 1;
    if (optimizer->rule == TWILL_OPTIMIZER_LARS)
        return (float)(optimizer->trust_coefficient * weights /
                       (update + optimizer->weight_decay * weights));
    return (float)(weights / update);
}
