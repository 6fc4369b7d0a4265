/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer steps: from gradients to parameters in one pass over memory, with the same bits by
 * every instruction set and for any number of threads.
 *
 * The gradient of an element is g = scale * (source[0] + source[1] + ...), summed in f32 in the
 * order given, as twill_kernels_reduce() sums to a partial. The formulae are those of PyTorch's
 * documentation (torch.optim), in f32. Each operation is rounded once, nothing is contracted, and
 * divisions and roots are correctly rounded. Factors that are constant in a step, including
 * reciprocals, are computed in f64 and rounded to f32. w is the weight, lr the rate, t the step.
 *
 *     SGD      g += decay w;  b = t == 1 ? g : momentum b + (1 - dampening) g;
 *              w -= lr (nesterov ? g + momentum b : momentum != 0 ? b : g)
 *     Adagrad  g += decay w;  s += g g;  w -= lr / (1 + (t - 1) rate_decay) g / (sqrt(s) + epsilon)
 *              (Duchi, Hazan and Singer 2011)
 *     Adam     g += decay w;  m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g g;
 *              w -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
 *              (Kingma and Ba 2015)
 *     AdamW    w -= lr decay w; then as Adam without decay (Loshchilov and Hutter 2019)
 *     LARS     b = momentum b + lr trust (g + decay w);  w -= b;
 *              trust = coefficient |w| / (|g| + decay |w|) (You, Gitman and Ginsburg 2017)
 *     LAMB     m and v as Adam; u = m / (1 - beta1^t) / (sqrt(v) / sqrt(1 - beta2^t) + epsilon)
 *              + decay w;  w -= lr trust u;  trust = |w| / |u| (You et al. 2020)
 *
 * A NaN that is stored is the canonical one, as in kernels.h. */
#ifndef TWILL_OPTIMIZER_H
#define TWILL_OPTIMIZER_H

#include "kernels/kernels.h"
#include "lib/twill_train.h" /* twill_optimizer, twill_optimizer_defaults() */

#define TWILL_OPTIMIZER_MAX_STATES 2

/* Return "sgd", "adagrad", "adam", "adamw", "lars" or "lamb", or NULL for other values. */
const char *twill_optimizer_name(twill_optimizer_rule rule);
/* Check that the hyperparameters are in range. TWILL_ERR_ARGUMENT names the first that is not. */
twill_status twill_optimizer_check(const twill_optimizer *optimizer, struct twill_error *error);
/* Return how many f32 values of state the rule has for each parameter, 0 to 2. Weights in f32 of
 * narrow parameters do not count. Every state starts as zeros, Adagrad's as any value >= 0. */
unsigned twill_optimizer_states(const twill_optimizer *optimizer);
/* Return whether a step needs twill_optimizer_norms() before twill_optimizer_update(). */
bool twill_optimizer_takes_norms(twill_optimizer_rule rule);

/* One step of one range of parameters, such as a tensor's part of a shard. Parameters and gradients
 * may have any alignment. No two arrays overlap, but the same gradient may be given twice. */
struct twill_optimizer_step {
    const twill_optimizer *optimizer; /* within range (twill_optimizer_check()) */
    uint64_t step;                    /* t, 1 for the first */

    /* Gradients */
    twill_type gradient_type;    /* TWILL_F32, TWILL_F16 or TWILL_BF16 */
    unsigned sources;            /* 1 .. TWILL_KERNEL_MAX_SOURCES */
    const void *const *gradient; /* `sources` arrays */
    float scale;                 /* such as 1 / ranks, perhaps times a clipping factor */

    /* Parameters */
    twill_type parameter_type; /* TWILL_F32, TWILL_F16 or TWILL_BF16 */
    void *parameter; /* f32 are read and written, narrow ones only written, rounded from `master` */
    float *master;   /* the weights in f32 if parameters are narrow, else not read */
    float *state[TWILL_OPTIMIZER_MAX_STATES]; /* twill_optimizer_states() arrays */

    float trust;                    /* for LARS and LAMB, from twill_optimizer_trust() */
    struct twill_thread_pool *pool; /* threads that share the work, or NULL */
};

/* Update `count` parameters and their states by the gradient of the step. For LARS and LAMB, call
 * twill_optimizer_norms() first and set step->trust. With LAMB that has already updated the states,
 * and the gradient is no longer read. */
void twill_optimizer_update(const struct twill_kernels *kernels,
                            const struct twill_optimizer_step *step, size_t count);

/* Squared norms of a range. The caller adds those of all ranges of one tensor, on all ranks. */
struct twill_optimizer_norms {
    double weights; /* |w|^2 */
    double update;  /* LARS |g|^2, LAMB |u|^2 */
};

/* Make the first pass of LARS and LAMB over `count` parameters, once for each step, and return the
 * norms, in the order of twill_kernels_sum_of_squares(). For LAMB also update m and v. */
struct twill_optimizer_norms twill_optimizer_norms(const struct twill_kernels *kernels,
                                                   const struct twill_optimizer_step *step,
                                                   size_t count);
/* Return the trust ratio of LARS or LAMB by a whole tensor's norms, 1 if one is zero (as in the
 * papers' code). */
float twill_optimizer_trust(const twill_optimizer *optimizer, struct twill_optimizer_norms norms);
/* Return the sum of the squares of f32, f16 or bf16 elements in f64, for clipping and norms. It is
 * NaN or infinity if an element is. Elements are summed in 32 interleaved lanes for each of up to
 * 64 stretches of equal length. Both depend on `count` alone, so the bits are the same by every
 * instruction set and for any number of threads. */
double twill_kernels_sum_of_squares(const struct twill_kernels *kernels, twill_type type,
                                    const void *src, size_t count, struct twill_thread_pool *pool);

#endif
