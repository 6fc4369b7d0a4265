/* SPDX-License-Identifier: Apache-2.0 */
/* Internal to kernels/: what each instruction set has for optimizer.h and quantize.h. */
#ifndef TWILL_TRAINING_H
#define TWILL_TRAINING_H

#include "kernels/training/factors.h"
#include "kernels/training/optimizer.h"
#include "kernels/training/quantize.h"

/* Lanes of sums of squares, and the stretches that are summed separately. */
#define TWILL_SQUARE_LANES     32
#define TWILL_SQUARE_STRETCHES 64

/* An optimizer's step with its constants, the same for all ranges of the step. */
struct twill_update_job {
    const struct twill_training_kernels *kernels;
    const struct twill_optimizer_step *step;
    float *weights; /* step->master, or step->parameter if that is f32 */
    bool decays, has_momentum, nesterov;
    float rate;                       /* with bias correction, or with the trust ratio */
    float decay, keep;                /* keep = 1 - rate * decay */
    float momentum, undamped;         /* undamped = 1 - dampening, 1 in the first step */
    float beta1, rest1, beta2, rest2; /* rest = 1 - beta */
    float unbias1, unbias2;           /* 1 / (1 - beta1^t), 1 / sqrt(1 - beta2^t) */
    float epsilon;
};

/* Update elements [first, first + count). */
typedef void (*twill_update_fn)(const struct twill_update_job *job, size_t first, size_t count);
/* Make the first pass of LARS or LAMB over elements [first, first + count). Return their squared
 * norms. */
typedef struct twill_optimizer_norms (*twill_norms_fn)(const struct twill_update_job *job,
                                                       size_t first, size_t count);
typedef double (*twill_squares_fn)(const void *src, size_t count);

/* How elements become codes, or codes elements. A member of a struct code_job, constant during a
 * call. */
struct twill_encoding {
    struct twill_block_format format;
    twill_type plain; /* the type of elements that are not codes */
    float factor;     /* prescale of sources, scale of destinations */
};

/* Encode `count` (1 to block size) elements as a block. `residual` may be NULL. */
typedef void (*twill_encode_fn)(const struct twill_encoding *encoding, unsigned char *block,
                                const void *src, float *residual, size_t count);
/* Add the values of `sources` blocks, multiply by the factor and store `count` elements. */
typedef void (*twill_decode_fn)(const struct twill_encoding *encoding, void *dst,
                                const unsigned char *const *blocks, unsigned sources, size_t count);
/* Round prescale * src + residual to `count` elements of the code's type. */
typedef void (*twill_narrow_fn)(const struct twill_encoding *encoding, void *dst, const void *src,
                                float *residual, size_t count);
/* Count elements whose magnitude's bits are in [low, last]: bins[(bits - low) >> shift]++. */
typedef void (*twill_histogram_fn)(const float *values, size_t count, uint32_t low, uint32_t last,
                                   unsigned shift, uint32_t *bins);
/* Return the number of elements whose magnitude's bits are at least `low`. */
typedef size_t (*twill_count_fn)(const float *values, size_t count, uint32_t low);
/* Move the elements of a magnitude above `bits`, and the first `equals` of it. Returns how many. */
typedef size_t (*twill_collect_fn)(float *values, size_t count, uint32_t bits, size_t equals,
                                   struct twill_sparse chosen);

/* Compute rows `first` to `first` + `count` - 1 of a product. */
typedef void (*twill_multiply_fn)(const struct twill_factors *factors, void *gradient, size_t first,
                                  size_t count);

/* The functions of one instruction set, a constant, to which its struct twill_kernels points. */
struct twill_training_kernels {
    twill_update_fn update[TWILL_OPTIMIZER_COUNT];
    twill_norms_fn norms[TWILL_OPTIMIZER_COUNT];
    twill_squares_fn squares[TWILL_TYPE_COUNT];
    twill_encode_fn encode[TWILL_TYPE_COUNT]; /* by the type of the code */
    twill_decode_fn decode[TWILL_TYPE_COUNT];
    twill_narrow_fn narrow[TWILL_TYPE_COUNT]; /* F32 is accumulate */
    twill_histogram_fn histogram;
    twill_count_fn count;
    twill_collect_fn collect;
    twill_multiply_fn multiply;
};

#endif
