/* SPDX-License-Identifier: Apache-2.0 */
/* The largest elements, by a radix selection on the bits of magnitudes, which sort as numbers. */
#include "kernels/convert.h"
#include "kernels/isa.h"
#include "kernels/training/quantize.h"
#include "kernels/training/training.h"

/* Bins of the first pass have 2^20 neighbouring magnitudes, those of the next 2^10, then one. */
#define FIRST_SHIFT 20
#define NEXT_BITS   10
#define BINS        ((size_t)2048)
#define LAST_BITS   0x7fffffffu
/* Count below which a sample does not pay, and the size of a sample. */
#define SAMPLE_FROM ((size_t)1 << 16)
#define SAMPLES     ((size_t)4096)

/* The bound between chosen magnitudes and the others. Those above `bits`, which are the bits of a
 * float without its sign, are chosen, and the first `equals` of those equal to it. */
struct cut {
    uint32_t bits;
    size_t equals;
};

/* Find the bin with the (*k)-th element from the top, and deduct from *k those above that bin.
 * Returns BINS if there are fewer than *k. */
static size_t bin_of(const uint32_t *bins, size_t *k)
{
    for (size_t bin = BINS; bin-- > 0; *k -= bins[bin])
        if (bins[bin] >= *k)
            return bin;
    return BINS;
}

/* Return a magnitude that probably somewhat more than k of the values reach, as a sample shows. It
 * is the bits of a float without its sign. Return 0 if the values are too few, or k is too large,
 * for a sample to pay. bins[BINS] is scratch. */
static uint32_t sampled_bound(const float *values, size_t count, size_t k, uint32_t *bins)
{
    if (count < SAMPLE_FROM)
        return 0;
    size_t expected = k / (count / SAMPLES) + 1, wanted = expected + expected / 2 + 16;
    if (wanted >= SAMPLES / 2)
        return 0;
    memset(bins, 0, BINS * sizeof(*bins));
    for (size_t i = 0; i < SAMPLES; i++)
        bins[(twill_f32_bits(values[i * (count / SAMPLES)]) & LAST_BITS) >> FIRST_SHIFT]++;
    return (uint32_t)bin_of(bins, &wanted) << FIRST_SHIFT;
}

/* Find the magnitude that separates the k (1 to count) largest from the others. */
static struct cut find_cut(const struct twill_training_kernels *kernels, const float *values,
                           size_t count, size_t k)
{
    uint32_t bins[BINS], last = LAST_BITS, low = sampled_bound(values, count, k, bins);
    size_t bin = BINS;
    for (unsigned shift = FIRST_SHIFT;; shift -= NEXT_BITS) {
        size_t left = k;
        memset(bins, 0, sizeof(bins));
        kernels->histogram(values, count, low, last, shift, bins);
        bin = bin_of(bins, &left);
        if (bin == BINS) { /* the sample misled */
            low = 0;
            shift += NEXT_BITS;
            continue;
        }
        k = left;
        low += (uint32_t)bin << shift;
        if (shift == 0 || bins[bin] == k)
            break;
        last = low + ((1u << shift) - 1);
    }
    return (struct cut){low, k};
}

size_t twill_select_largest(const struct twill_kernels *kernels, float *values, size_t count,
                            size_t k, struct twill_sparse chosen)
{
    const struct twill_training_kernels *training = kernels->training;
    if (k == 0)
        return 0;
    struct cut cut = {0, count};
    if (k < count)
        cut = find_cut(training, values, count, k);
    return training->collect(values, count, cut.bits, cut.equals, chosen);
}

size_t twill_select_above(const struct twill_kernels *kernels, float *values, size_t count,
                          float threshold, size_t most, struct twill_sparse chosen)
{
    const struct twill_training_kernels *training = kernels->training;
    uint32_t bits = twill_f32_bits(threshold) & LAST_BITS;
    if (training->count(values, count, bits) > most)
        return twill_select_largest(kernels, values, count, most, chosen);
    return training->collect(values, count, bits, count, chosen);
}

bool twill_scatter_add(void *dst, size_t count, const uint32_t *index, const float *value, size_t n,
                       float scale)
{
    element_f32 *sum = dst;
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = index[i] > largest ? index[i] : largest;
    if (n > 0 && largest >= count)
        return false;
    unsigned modes = twill_environment_enter(true);
    for (size_t i = 0; i < n; i++)
        sum[index[i]] += scale * value[i];
    twill_environment_leave(modes);
    return true;
}
