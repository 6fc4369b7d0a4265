/* SPDX-License-Identifier: Apache-2.0 */
/* The largest elements, by a radix selection on the bits of magnitudes, which sort as numbers. */
#include "kernels/convert.h"
#include "kernels/isa.h"
#include "kernels/thread_pool.h"
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

/* Most threads that share a selection. */
#define PARTS_MOST 16u

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

/* A pass over `count` values, whose parts threads share. On the stack of a selection. */
struct pass {
    const struct twill_training_kernels *kernels;
    float *values;
    size_t count;
    unsigned parts;         /* into which all passes of a selection divide the values */
    uint32_t low, last;     /* magnitudes that count */
    unsigned shift;         /* of a histogram */
    uint32_t *bins;         /* [BINS] of a histogram */
    struct cut cut;         /* of a collection */
    struct twill_sparse to; /* of a collection */
    struct {
        size_t above, equal; /* elements above cut.bits and equal to it; then how many are moved */
        size_t at;           /* where they go */
    } part[PARTS_MOST];
};

/* Set *first and *count to the values of part number `part` of a pass. Parts begin at multiples of
 * 64 values. */
static void find_part(const struct pass *pass, unsigned part, size_t *first, size_t *count)
{
    size_t each = twill_round_up((pass->count + pass->parts - 1) / pass->parts, TWILL_CACHE_LINE);
    *first = twill_min(part * each, pass->count);
    *count = twill_min(each, pass->count - *first);
}

/* Call run() for all parts of a pass, in threads of the pool unless it is in use. */
static void run_pass(struct pass *pass, twill_part_fn run, struct twill_thread_pool *pool)
{
    if (!twill_pool_run(pool, pass->parts, run, pass))
        for (unsigned part = 0; part < pass->parts; part++)
            run(pass, part, pass->parts);
}

/* Count the values of a part in bins on the stack of its thread, and add these to those of the
 * pass. Each part begins at another bin, so that threads rarely meet. */
static void count_bins(void *job, unsigned part, unsigned parts)
{
    const struct pass *pass = job;
    uint32_t bins[BINS] = {0};
    size_t first, count;
    find_part(pass, part, &first, &count);
    pass->kernels->histogram(pass->values + first, count, pass->low, pass->last, pass->shift, bins);
    for (size_t i = 0; i < BINS; i++) {
        size_t bin = (part * (BINS / parts) + i) % BINS;
        if (bins[bin] > 0)
            (void)__atomic_fetch_add(&pass->bins[bin], bins[bin], __ATOMIC_RELAXED);
    }
}

/* Count the values of all parts in pass->bins. */
static void count_all_bins(struct pass *pass, struct twill_thread_pool *pool)
{
    memset(pass->bins, 0, BINS * sizeof(*pass->bins));
    if (pass->parts > 1)
        run_pass(pass, count_bins, pool);
    else
        pass->kernels->histogram(pass->values, pass->count, pass->low, pass->last, pass->shift,
                                 pass->bins);
}

static void count_part(void *job, unsigned part, unsigned parts)
{
    struct pass *pass = job;
    uint32_t bits = pass->cut.bits;
    size_t first, count;
    (void)parts;
    find_part(pass, part, &first, &count);
    const float *values = pass->values + first;
    size_t least = pass->kernels->count(values, count, bits);
    pass->part[part].above = bits < LAST_BITS ? pass->kernels->count(values, count, bits + 1) : 0;
    pass->part[part].equal = least - pass->part[part].above;
}

static void collect_part(void *job, unsigned part, unsigned parts)
{
    struct pass *pass = job;
    size_t first, count, at = pass->part[part].at;
    (void)parts;
    find_part(pass, part, &first, &count);
    struct twill_sparse to = {pass->to.index + at, pass->to.value + at};
    size_t found = pass->kernels->collect(pass->values + first, count, pass->cut.bits,
                                          pass->part[part].equal, to);
    for (size_t i = 0; i < found; i++)
        to.index[i] += (uint32_t)first;
}

/* Move the elements that pass->cut chooses to pass->to, in their order. Several threads first count
 * theirs, so that each knows where they go. Returns how many were moved. */
static size_t collect(struct pass *pass, struct twill_thread_pool *pool)
{
    size_t at = 0, equals = pass->cut.equals;
    if (pass->parts == 1)
        return pass->kernels->collect(pass->values, pass->count, pass->cut.bits, equals, pass->to);
    run_pass(pass, count_part, pool);
    for (unsigned part = 0; part < pass->parts; part++) {
        pass->part[part].equal = twill_min(pass->part[part].equal, equals);
        pass->part[part].at = at;
        equals -= pass->part[part].equal;
        at += pass->part[part].above + pass->part[part].equal;
    }
    run_pass(pass, collect_part, pool);
    return at;
}

/* Set pass->cut to the magnitude that separates the k (1 to count) largest from the others. */
static void find_cut(struct pass *pass, size_t k, struct twill_thread_pool *pool)
{
    uint32_t bins[BINS];
    size_t bin = BINS;
    pass->bins = bins;
    pass->last = LAST_BITS;
    pass->low = sampled_bound(pass->values, pass->count, k, bins);
    for (pass->shift = FIRST_SHIFT;; pass->shift -= NEXT_BITS) {
        size_t left = k;
        count_all_bins(pass, pool);
        bin = bin_of(bins, &left);
        if (bin == BINS) { /* the sample misled */
            pass->low = 0;
            pass->shift += NEXT_BITS;
            continue;
        }
        k = left;
        pass->low += (uint32_t)bin << pass->shift;
        if (pass->shift == 0 || bins[bin] == k)
            break;
        pass->last = pass->low + ((1u << pass->shift) - 1);
    }
    pass->cut = (struct cut){pass->low, k};
}

/* Initialise the passes of a selection. */
static void begin(struct pass *pass, const struct twill_kernels *kernels, float *values,
                  size_t count, struct twill_sparse chosen, const struct twill_thread_pool *pool)
{
    size_t bytes = count * sizeof(*values);
    pass->kernels = kernels->training;
    pass->values = values;
    pass->count = count;
    pass->to = chosen;
    pass->parts = (unsigned)twill_min(twill_pool_threads(pool, bytes, bytes), PARTS_MOST);
}

size_t twill_select_largest(const struct twill_kernels *kernels, float *values, size_t count,
                            size_t k, struct twill_sparse chosen, struct twill_thread_pool *pool)
{
    struct pass pass;
    if (k == 0)
        return 0;
    begin(&pass, kernels, values, count, chosen, pool);
    pass.cut = (struct cut){0, count};
    if (k < count)
        find_cut(&pass, k, pool);
    return collect(&pass, pool);
}

size_t twill_select_above(const struct twill_kernels *kernels, float *values, size_t count,
                          float threshold, size_t most, struct twill_sparse chosen,
                          struct twill_thread_pool *pool)
{
    struct pass pass;
    begin(&pass, kernels, values, count, chosen, pool);
    pass.cut = (struct cut){twill_f32_bits(threshold) & LAST_BITS, count};
    if (pass.parts > 1)
        run_pass(&pass, count_part, pool);
    size_t found = pass.parts > 1 ? 0 : pass.kernels->count(values, count, pass.cut.bits);
    for (unsigned part = 0; pass.parts > 1 && part < pass.parts; part++)
        found += pass.part[part].above + pass.part[part].equal;
    if (found > most)
        return twill_select_largest(kernels, values, count, most, chosen, pool);
    return collect(&pass, pool);
}

void twill_scatter_add_part(void *dst, size_t first, size_t count, const uint32_t *index,
                            const float *value, size_t n, float scale)
{
    element_f32 *sum = dst;
    unsigned modes = twill_environment_enter(true);
    for (size_t i = 0; i < n; i++)
        if (index[i] - first < count) /* also not below `first`, as the difference wraps */
            sum[index[i]] += scale * value[i];
    twill_environment_leave(modes);
}

bool twill_scatter_add(void *dst, size_t count, const uint32_t *index, const float *value, size_t n,
                       float scale)
{
    uint32_t largest = 0;
    for (size_t i = 0; i < n; i++)
        largest = index[i] > largest ? index[i] : largest;
    if (n > 0 && largest >= count)
        return false;
    twill_scatter_add_part(dst, 0, count, index, value, n, scale);
    return true;
}
