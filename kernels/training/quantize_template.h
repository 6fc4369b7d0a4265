/* SPDX-License-Identifier: Apache-2.0 */
/* Included by training_template.h: the functions of quantize.h for one instruction set. */

/* A block whose largest magnitude is below TINY_BITS gets no scale. */
#define TINY_BITS     ((127 - 100) << 23)
#define INFINITY_BITS 0x7f800000

/* 1.5 * 2^23. Adding it to a number up to 2^22 rounds that to an integer, in the lowest bits. */
#define ROUNDER 12582912.0f

/* Load prescale * src + residual. residual may be NULL. */
TWILL_INLINE vector_f32 fetch_compensated(const struct twill_encoding *encoding, const void *src,
                                          const float *residual, size_t at, size_t n)
{
    vector_f32 v = fetch_any(encoding->plain, src, at, n) * splat_f32(encoding->factor);
    if (residual)
        v = v + fetch_f32(residual, at, n);
    return v;
}

/* Store a register's elements, up to 127 in magnitude, as rounded int8 codes. */
TWILL_INLINE void put_code_i8(unsigned char *codes, size_t at, vector_f32 v)
{
    store_low_bytes(codes + at, bits_of_f32(v + splat_f32(ROUNDER)));
}
#define fetch_code_i8(codes, at)      widen_bytes((codes) + (at))
#define put_code_f8e4m3(codes, at, v) put_f8e4m3(codes, at, v, 0)
#define fetch_code_f8e4m3(codes, at)  fetch_f8e4m3(codes, at, 0)
#define put_code_f8e5m2(codes, at, v) put_f8e5m2(codes, at, v, 0)
#define fetch_code_f8e5m2(codes, at)  fetch_f8e5m2(codes, at, 0)

/* Store prescale * src + residual of `count` elements to value[], where prescale is
 * encoding->factor. Store zeros behind them up to the size of a block, encoding->format.elements.
 * Returns the bits of the largest magnitude. `residual` may be NULL. */
TWILL_INLINE uint32_t collect_values(const struct twill_encoding *encoding, float *value,
                                     const void *src, const float *residual, size_t count)
{
    uint32_t lane[lanes_f32], most = 0;
    vector_i32 largest = splat_i32(0);
    size_t at = 0, end = encoding->format.elements;
    for (; at < count; at += STEP_LANES) {
        vector_f32 v = fetch_compensated(encoding, src, residual, at, part_at(at, count));
        largest = max_i32(largest, magnitude_of(v));
        store_f32(value + at, v);
    }
    if (at < end)
        memset(value + at, 0, (end - at) * sizeof(*value));
    store_i32((element_i32 *)lane, largest);
    for (unsigned i = 0; i < lanes_f32; i++)
        most = lane[i] > most ? lane[i] : most;
    return most;
}

/* Write a block with zeros as its `elements` codes. If `finite`, value[count] is tiny, so the scale
 * is 0 and all of value[] becomes the residual, unless that is NULL. Otherwise a value is NaN or
 * infinite, so the scale is NaN and the residual stays. */
static void encode_none(unsigned char *block, const float *value, float *residual, size_t count,
                        size_t elements, bool finite)
{
    const uint32_t scale = finite ? 0 : TWILL_NAN_F32;
    memcpy(block, &scale, sizeof(scale));
    memset(block + sizeof(scale), 0, elements);
    if (residual && finite)
        memcpy(residual, value, count * sizeof(*value));
}

#define BLOCKS(type, most)                                                                         \
    static void encode_##type(const struct twill_encoding *encoding, unsigned char *block,         \
                              const void *src, float *residual, size_t count)                      \
    {                                                                                              \
        float value[TWILL_BLOCK_MOST] TWILL_ALIGNED(64);                                           \
        const size_t elements = encoding->format.elements;                                         \
        unsigned char *codes = block + sizeof(float);                                              \
        uint32_t bits = collect_values(encoding, value, src, residual, count);                     \
        if (bits < TINY_BITS || bits >= INFINITY_BITS) {                                           \
            encode_none(block, value, residual, count, elements, bits < TINY_BITS);                \
            return;                                                                                \
        }                                                                                          \
        const float largest = twill_f32_from_bits(bits), scale = largest / (most);                 \
        const vector_f32 by = splat_f32((most) / largest), step = splat_f32(scale);                \
        memcpy(block, &scale, sizeof(scale));                                                      \
        for (size_t at = 0; at < elements; at += STEP_LANES)                                       \
            put_code_##type(codes, at, load_f32(value + at) * by);                                 \
        for (size_t at = 0; residual && at < count; at += STEP_LANES) {                            \
            vector_f32 lost = load_f32(value + at) - fetch_code_##type(codes, at) * step;          \
            put_f32(residual, at, lost, part_at(at, count));                                       \
        }                                                                                          \
    }                                                                                              \
    TWILL_INLINE vector_f32 decoded_##type(const unsigned char *block, size_t at)                  \
    {                                                                                              \
        float scale;                                                                               \
        memcpy(&scale, block, sizeof(scale));                                                      \
        return fetch_code_##type(block + sizeof(scale), at) * splat_f32(scale);                    \
    }                                                                                              \
    static void decode_##type(const struct twill_encoding *encoding, void *dst,                    \
                              const unsigned char *const *blocks, unsigned sources, size_t count)  \
    {                                                                                              \
        const vector_f32 factor = splat_f32(encoding->factor);                                     \
        for (size_t at = 0; at < count; at += STEP_LANES) {                                        \
            vector_f32 sum = decoded_##type(blocks[0], at);                                        \
            for (unsigned s = 1; s < sources; s++)                                                 \
                sum = sum + decoded_##type(blocks[s], at);                                         \
            put_any(encoding->plain, dst, at, canonical_f32(sum *factor), part_at(at, count));     \
        }                                                                                          \
    }
BLOCKS(i8, 127.0f)
BLOCKS(f8e4m3, 448.0f)
BLOCKS(f8e5m2, 57344.0f)
#undef BLOCKS

/* Define feedback_type(), which rounds prescale * src + residual to dst[count]. residual[], unless
 * it is NULL, becomes what was lost. Where dst is not finite, it stays. */
#define FEEDBACK(type)                                                                             \
    static void feedback_##type(const struct twill_encoding *encoding, void *dst, const void *src, \
                                float *residual, size_t count)                                     \
    {                                                                                              \
        for (size_t at = 0; at < count; at += STEP_LANES) {                                        \
            size_t n = part_at(at, count);                                                         \
            vector_f32 v = canonical_f32(fetch_compensated(encoding, src, residual, at, n));       \
            put_##type(dst, at, v, n);                                                             \
            if (!residual)                                                                         \
                continue;                                                                          \
            vector_f32 value = fetch_##type(dst, at, n), old = fetch_f32(residual, at, n);         \
            vector_i32 lost = choose_less(magnitude_of(value), splat_i32(INFINITY_BITS),           \
                                          bits_of_f32(v - value), bits_of_f32(old));               \
            put_f32(residual, at, f32_of_bits(lost), n);                                           \
        }                                                                                          \
    }
FEEDBACK(f16)
FEEDBACK(bf16)
FEEDBACK(f8e4m3)
FEEDBACK(f8e5m2)
#undef FEEDBACK

/* Compute residual += prescale * src for `count` elements. This is the function for f32, where
 * nothing is rounded and the residual itself is what will be sent. `dst` is not written. */
static void feedback_f32(const struct twill_encoding *encoding, void *dst, const void *src,
                         float *residual, size_t count)
{
    (void)dst;
    for (size_t at = 0; at < count; at += STEP_LANES) {
        size_t n = part_at(at, count);
        vector_f32 v = fetch_compensated(encoding, src, residual, at, n);
        put_f32(residual, at, canonical_f32(v), n);
    }
}

/* The largest elements, by the bits of their magnitude. Most registers have none of them. */

/* Return a bit for each element of the register at `at` whose magnitude is in [low, last]. */
TWILL_INLINE unsigned hits_at(const float *values, size_t at, size_t count, uint32_t low,
                              uint32_t last)
{
    size_t n = part_at(at, count);
    unsigned hits = lanes_in(magnitude_of(fetch_f32(values, at, n)), low, last);
    return n ? hits & ((1u << n) - 1) : hits;
}

/* Return the bits of values[i] without its sign. */
static uint32_t magnitude_at(const float *values, size_t i)
{
    return twill_f32_bits(values[i]) & MAGNITUDE;
}

/* Count elements whose magnitude's bits are in [low, last]: bins[(bits - low) >> shift]++. */
static void histogram_f32(const float *values, size_t count, uint32_t low, uint32_t last,
                          unsigned shift, uint32_t *bins)
{
    for (size_t at = 0; at < count; at += STEP_LANES)
        for (unsigned hits = hits_at(values, at, count, low, last); hits; hits &= hits - 1)
            bins[(magnitude_at(values, at + (unsigned)__builtin_ctz(hits)) - low) >> shift]++;
}

/* Return the number of elements whose magnitude's bits are at least `low`. */
static size_t count_f32(const float *values, size_t count, uint32_t low)
{
    size_t found = 0;
    for (size_t at = 0; at < count; at += STEP_LANES)
        found += lanes_count(hits_at(values, at, count, low, MAGNITUDE));
    return found;
}

/* Move elements whose magnitude's bits are above `bits`, and the first `equals` that have them, to
 * `chosen`, and set them to zero in `values`. Returns how many. */
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
