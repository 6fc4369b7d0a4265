/* SPDX-License-Identifier: Apache-2.0 */
/* Included by training_template.h: passes over an array that look for elements by the bits of their
 * magnitude. Most registers have none of them. */

/* Return a bit for each element of the register at `at` whose magnitude is in [low, last]. */
TWILL_INLINE unsigned hits_at(const float *values, size_t at, size_t count, uint32_t low,
                              uint32_t last)
{
    size_t n = part_at(at, count);
    unsigned hits = lanes_in(magnitude_of(fetch_f32(values, at, n)), low, last);
    return n ? hits & ((1u << n) - 1) : hits;
}

static uint32_t magnitude_at(const float *values, size_t i)
{
    return twill_f32_bits(values[i]) & MAGNITUDE;
}

static void histogram_f32(const float *values, size_t count, uint32_t low, uint32_t last,
                          unsigned shift, uint32_t *bins)
{
    for (size_t at = 0; at < count; at += STEP_LANES)
        for (unsigned hits = hits_at(values, at, count, low, last); hits; hits &= hits - 1)
            bins[(magnitude_at(values, at + (unsigned)__builtin_ctz(hits)) - low) >> shift]++;
}

static size_t count_f32(const float *values, size_t count, uint32_t low)
{
    size_t found = 0;
    for (size_t at = 0; at < count; at += STEP_LANES)
        found += lanes_count(hits_at(values, at, count, low, MAGNITUDE));
    return found;
}

static size_t collect_f32(float *values, size_t count, uint32_t bits, size_t equals,
                          struct twill_sparse chosen)
{
    size_t found = 0;
    for (size_t at = 0; at < count; at += STEP_LANES)
        for (unsigned hits = hits_at(values, at, count, bits, MAGNITUDE); hits; hits &= hits - 1) {
            size_t i = at + (unsigned)__builtin_ctz(hits);
            if (magnitude_at(values, i) == bits && equals-- == 0) {
                equals = 0;
                continue;
            }
            chosen.index[found] = (uint32_t)i;
            chosen.value[found++] = values[i];
            values[i] = 0;
        }
    return found;
}
