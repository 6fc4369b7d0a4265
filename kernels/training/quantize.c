/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks of codes, and narrow codes, with error feedback: ranges for threads. */
#include "kernels/training/quantize.h"
#include "kernels/isa.h"
#include "kernels/training/training.h"

bool twill_block_format_valid(struct twill_block_format format)
{
    return (format.code == TWILL_I8 || format.code == TWILL_F8E4M3 ||
            format.code == TWILL_F8E5M2) &&
           format.elements >= TWILL_BLOCK_LEAST && format.elements <= TWILL_BLOCK_MOST &&
           format.elements % TWILL_BLOCK_LEAST == 0;
}

size_t twill_block_bytes(struct twill_block_format format)
{
    return sizeof(float) + format.elements;
}

size_t twill_block_count(struct twill_block_format format, size_t count)
{
    return (count + format.elements - 1) / format.elements;
}

/* A call of quantize.h, for all of its blocks or elements, on its stack. */
struct code_job {
    const struct twill_training_kernels *kernels;
    struct twill_encoding encoding;
    unsigned char *dst;
    const unsigned char *src;          /* of encode and narrow */
    const unsigned char *const *coded; /* of decode and add */
    unsigned sources;
    float *residual;       /* or NULL */
    size_t element, count; /* bytes of an element that is not a code, and elements in all */
};

/* Return the elements of a block, fewer for the last one. */
static size_t elements_of(const struct code_job *job, size_t block)
{
    size_t each = job->encoding.format.elements;
    return twill_min(each, job->count - block * each);
}

/* Encode a range of blocks of `data`, a struct code_job. */
static void encode_range(const void *data, size_t first, size_t count)
{
    const struct code_job *job = data;
    const struct twill_block_format format = job->encoding.format;
    const twill_encode_fn encode = job->kernels->encode[format.code];
    unsigned modes = twill_environment_enter(true);
    for (size_t block = first; block < first + count; block++) {
        size_t at = block * format.elements;
        encode(&job->encoding, job->dst + block * twill_block_bytes(format),
               job->src + at * job->element, job->residual ? job->residual + at : NULL,
               elements_of(job, block));
    }
    twill_environment_leave(modes);
}

/* Set coded[] to this block of each source. */
static void point_at(const struct code_job *job, size_t block,
                     const unsigned char *coded[TWILL_KERNEL_MAX_SOURCES])
{
    for (unsigned s = 0; s < job->sources; s++)
        coded[s] = job->coded[s] + block * twill_block_bytes(job->encoding.format);
}

/* Decode and add a range of blocks of all sources of `data`, a struct code_job. */
static void decode_range(const void *data, size_t first, size_t count)
{
    const struct code_job *job = data;
    const struct twill_block_format format = job->encoding.format;
    const unsigned char *coded[TWILL_KERNEL_MAX_SOURCES];
    unsigned modes = twill_environment_enter(true);
    for (size_t block = first; block < first + count; block++) {
        point_at(job, block, coded);
        job->kernels->decode[format.code](&job->encoding,
                                          job->dst + block * format.elements * job->element, coded,
                                          job->sources, elements_of(job, block));
    }
    twill_environment_leave(modes);
}

/* Add a range of blocks of all sources of `data`, a struct code_job, and encode the sums. */
static void add_range(const void *data, size_t first, size_t count)
{
    const struct code_job *job = data;
    const struct twill_block_format format = job->encoding.format;
    float sum[TWILL_BLOCK_MOST] TWILL_ALIGNED(64);
    const unsigned char *coded[TWILL_KERNEL_MAX_SOURCES];
    unsigned modes = twill_environment_enter(true);
    for (size_t block = first; block < first + count; block++) {
        point_at(job, block, coded);
        job->kernels->decode[format.code](&job->encoding, sum, coded, job->sources,
                                          format.elements);
        job->kernels->encode[format.code](&job->encoding,
                                          job->dst + block * twill_block_bytes(format), sum, NULL,
                                          format.elements);
    }
    twill_environment_leave(modes);
}

/* Round a range of elements of `data`, a struct code_job, to the narrow type. */
static void narrow_range(const void *data, size_t first, size_t count)
{
    const struct code_job *job = data;
    const twill_type code = job->encoding.format.code;
    unsigned modes = twill_environment_enter(true);
    job->kernels->narrow[code](
        &job->encoding, job->dst + first * twill_kernels_element(code, TWILL_SUM),
        job->src + first * job->element, job->residual ? job->residual + first : NULL, count);
    twill_environment_leave(modes);
}

/* Return a job without its arrays. `factor` is the prescale or the scale. */
static struct code_job job_of(const struct twill_kernels *kernels, struct twill_block_format format,
                              twill_type type, float factor, size_t count)
{
    return (struct code_job){.kernels = kernels->training,
                             .encoding = {format, type, factor},
                             .element = twill_kernels_element(type, TWILL_SUM),
                             .count = count};
}

void twill_quantize(const struct twill_kernels *kernels, struct twill_block_format format,
                    void *blocks, twill_type type, const void *gradient, float *residual,
                    float prescale, size_t count, struct twill_thread_pool *pool)
{
    struct code_job job = job_of(kernels, format, type, prescale, count);
    job.dst = blocks;
    job.src = gradient;
    job.residual = residual;
    twill_split_blocks(encode_range, &job, twill_block_count(format, count),
                       format.elements * sizeof(float), format.elements * 2 * sizeof(float), pool);
}

void twill_dequantize(const struct twill_kernels *kernels, struct twill_block_format format,
                      twill_type type, void *dst, const void *const *blocks, unsigned sources,
                      float scale, size_t count, struct twill_thread_pool *pool)
{
    struct code_job job = job_of(kernels, format, type, scale, count);
    job.dst = dst;
    job.coded = (const unsigned char *const *)blocks;
    job.sources = sources;
    twill_split_blocks(decode_range, &job, twill_block_count(format, count),
                       format.elements * sizeof(float), sources * twill_block_bytes(format), pool);
}

void twill_quantized_add(const struct twill_kernels *kernels, struct twill_block_format format,
                         void *dst, const void *const *src, unsigned sources, size_t blocks,
                         struct twill_thread_pool *pool)
{
    struct code_job job = job_of(kernels, format, TWILL_F32, 1, blocks * format.elements);
    job.dst = dst;
    job.coded = (const unsigned char *const *)src;
    job.sources = sources;
    twill_split_blocks(add_range, &job, blocks, format.elements * sizeof(float),
                       sources * format.elements * sizeof(float), pool);
}

void twill_narrow(const struct twill_kernels *kernels, twill_type narrow, void *dst,
                  twill_type type, const void *gradient, float *residual, float prescale,
                  size_t count, struct twill_thread_pool *pool)
{
    const struct twill_block_format format = {.code = narrow};
    struct code_job job = job_of(kernels, format, type, prescale, count);
    job.dst = dst;
    job.src = gradient;
    job.residual = residual;
    twill_split(narrow_range, &job, count, sizeof(float), 2 * sizeof(float), pool);
}

void twill_accumulate(const struct twill_kernels *kernels, float *residual, twill_type type,
                      const void *gradient, float prescale, size_t count,
                      struct twill_thread_pool *pool)
{
    twill_narrow(kernels, TWILL_F32, residual, type, gradient, residual, prescale, count, pool);
}
