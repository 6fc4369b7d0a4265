/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the parameter server in memory: what they read and write must be memory. */
#include "kernels/kernels.h"
#include "tests/fuzz/fuzz_server.h"

static struct twill_kernels fuzz_kernels;

void twill_kernels_copy(const struct twill_kernels *table, void *dst, const void *src, size_t bytes,
                        unsigned flags, int threads)
{
    fuzz_must(table == &fuzz_kernels && flags == 0 && threads == 1);
    memcpy(dst, src, bytes);
}

void twill_kernels_reduce(const struct twill_kernels *table,
                          const struct twill_reduction *reduction, void *dst,
                          const void *const *src, unsigned nsrc, size_t count)
{
    size_t width = twill_type_size(reduction->type);
    fuzz_must(table == &fuzz_kernels && nsrc >= 1 && nsrc <= 8 && reduction->divisor >= 1);
    for (unsigned i = 0; i < nsrc; i++)
        fuzz_must(fuzz_is_memory(src[i], count * width));
    memmove(dst, src[0], count * width);
}

void twill_kernels_scale(const struct twill_kernels *table, twill_type type, void *dst,
                         const void *src, const void *factor, bool rounds, size_t count,
                         int threads)
{
    fuzz_must(table == &fuzz_kernels && type == TWILL_F32 && !rounds && threads == 1);
    fuzz_must(fuzz_is_memory(dst, count * 4) && fuzz_is_memory(src, count * 4) &&
              fuzz_is_memory(factor, 4));
}

void twill_accumulate(const struct twill_kernels *table, float *residual, twill_type type,
                      const void *gradient, float prescale, size_t count, int threads)
{
    fuzz_must(table == &fuzz_kernels && threads == 1 &&
              fuzz_is_memory(residual, count * sizeof(float)) &&
              fuzz_is_memory(gradient, count * twill_type_size(type)));
    residual[0] += 1;
}

size_t twill_block_bytes(struct twill_block_format format)
{
    return sizeof(float) + format.elements;
}

size_t twill_block_count(struct twill_block_format format, size_t count)
{
    return (count + format.elements - 1) / format.elements;
}

void twill_dequantize(const struct twill_kernels *table, struct twill_block_format format,
                      twill_type type, void *dst, const void *const *blocks, unsigned sources,
                      float scale, size_t count, int threads)
{
    fuzz_must(table == &fuzz_kernels && type == TWILL_F32 && sources == 1 && threads == 1);
    fuzz_must(
        fuzz_is_memory(blocks[0], twill_block_count(format, count) * twill_block_bytes(format)));
    memset(dst, 0, count * sizeof(float));
}

/* Of workers, which are not here. */
void twill_narrow(const struct twill_kernels *table, twill_type narrow, void *dst, twill_type type,
                  const void *gradient, float *residual, float prescale, size_t count, int threads)
{
    fuzz_must(false);
}

void twill_quantize(const struct twill_kernels *table, struct twill_block_format format,
                    void *blocks, twill_type type, const void *gradient, float *residual,
                    float prescale, size_t count, int threads)
{
    fuzz_must(false);
}

void twill_optimizer_update(const struct twill_kernels *table,
                            const struct twill_optimizer_step *step, size_t count)
{
    fuzz_must(table == &fuzz_kernels && step->sources >= 1 && step->sources <= 8);
    for (unsigned i = 0; i < step->sources; i++)
        fuzz_must(fuzz_is_memory(step->gradient[i], count * twill_type_size(step->gradient_type)));
    memset(step->parameter, 0, count * sizeof(float));
    memset(step->state[0], 0, count * sizeof(float));
}

static uint32_t add_bytes(uint32_t crc, const void *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        crc = crc * 31 + ((const unsigned char *)data)[i];
    return crc;
}

const struct twill_kernels *fuzz_server_kernels(void)
{
    fuzz_kernels.crc32c = add_bytes;
    return &fuzz_kernels;
}
