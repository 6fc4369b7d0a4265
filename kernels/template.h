/* SPDX-License-Identifier: Apache-2.0 */
/* The reductions of one element type. An instruction set includes this file for each type (no
 * include guard), with these macros set:
 *
 *     ELEMENT        how an element is stored: f32 f64 i8 u8 ... f16 bf16 f8e4m3 f8e5m2
 *     MATH           the type it is reduced in: ELEMENT, or f32 for floats of 8 and 16 bits
 *     OPS(X, with)   X(NOUN, stem, with) for each operation to instantiate
 *     LOGIC          for unsigned integers: it has bitwise and logical operations
 *     HOT            for common types: separate loops for 2, 3 and 4 sources, and kernels that
 *                    store the result to several destinations
 *     NARROW         for floats of 8 and 16 bits: make widen_ELEMENT and narrow_ELEMENT
 *     FINITE         for common floats: make finite_ELEMENT
 *     STORED         optional: the suffix of load_ and store_ for reductions, if registers need
 *                    not hold elements in their order
 *
 * and with these primitives in scope:
 *
 *     TWILL_REGISTERS                 registers that a batch fills from each source
 *     TWILL_STREAM_REGISTERS          the same when streaming
 *     TWILL_ALIGN_FROM                bytes from which on dst is aligned first
 *     vector_MATH, lanes_MATH         a register and the number of elements in it
 *     add_ mul_ min_ max_MATH(a, b)   min and max: NaN wins, -0 < +0
 *     div_MATH(v, divisor)            true division, of integers towards zero
 *     canonical_MATH(v)               any NaN becomes the one quiet NaN
 *     is_finite_MATH(v)               with FINITE: whether no element is a NaN or infinity
 *     and_ or_ xor_MATH(a, b)         with LOGIC: bitwise
 *     truth_MATH(v)                   with LOGIC: 1 where an element is not 0
 *     load_ store_ stream_ELEMENT     a register from or to memory, widening or rounding
 *     load_tail_ store_tail_ELEMENT   the first 1 .. lanes-1 elements, touching nothing beyond
 *     stream_end()                    orders streamed stores before what follows
 *
 * It makes reduce_sum_ELEMENT, reduce_prod_ELEMENT, ... of type twill_reduce_fn, and with HOT
 * spread_sum_ELEMENT, ... of type twill_spread_fn. With FINITE it makes finite_ELEMENT of type
 * twill_finite_fn. */

#ifndef STORED
#define STORED ELEMENT
#endif

#define NAME(stem) TWILL_PASTE(stem, ELEMENT)
#define VALUE      NAME(element)
#define VECTOR     TWILL_PASTE(vector, MATH)
#define LANES      ((size_t)TWILL_PASTE(lanes, MATH))

#ifdef LOGIC
/* Return `a op b` for two registers. An average is a sum until NAME(finish)() divides it. Logical
 * AND and OR only give zero or nonzero here, by a minimum and by a bitwise OR. NAME(finish)() later
 * makes that 0 or 1. */
TWILL_INLINE VECTOR NAME(apply)(VECTOR a, VECTOR b, twill_op op)
{
    switch (op) {
    case TWILL_MIN:
    case TWILL_LAND:
        return TWILL_PASTE(min, MATH)(a, b);
    case TWILL_MAX:
        return TWILL_PASTE(max, MATH)(a, b);
    case TWILL_BAND:
        return TWILL_PASTE(and, MATH)(a, b);
    case TWILL_BOR:
    case TWILL_LOR:
        return TWILL_PASTE(or, MATH)(a, b);
    case TWILL_BXOR:
        return TWILL_PASTE(xor, MATH)(a, b);
    case TWILL_LXOR:
        return TWILL_PASTE(xor, MATH)(TWILL_PASTE(truth, MATH)(a), TWILL_PASTE(truth, MATH)(b));
    default:
        return TWILL_PASTE(add, MATH)(a, b);
    }
}

/* Return the result from the combined v, divided for AVG, and 0 or 1 for logical operations. */
TWILL_INLINE VECTOR NAME(finish)(VECTOR v, twill_op op, uint32_t divisor)
{
    if (op == TWILL_AVG)
        return TWILL_PASTE(div, MATH)(v, divisor);
    return op == TWILL_LAND || op == TWILL_LOR || op == TWILL_LXOR ? TWILL_PASTE(truth, MATH)(v)
                                                                   : v;
}
#else
/* Return `a op b` for two registers. An average is a sum until NAME(finish)() divides it. */
TWILL_INLINE VECTOR NAME(apply)(VECTOR a, VECTOR b, twill_op op)
{
    switch (op) {
    case TWILL_PROD:
        return TWILL_PASTE(mul, MATH)(a, b);
    case TWILL_MIN:
        return TWILL_PASTE(min, MATH)(a, b);
    case TWILL_MAX:
        return TWILL_PASTE(max, MATH)(a, b);
    default:
        return TWILL_PASTE(add, MATH)(a, b);
    }
}

/* Return the result from the combined v, divided for AVG, with the canonical NaN for any NaN. */
TWILL_INLINE VECTOR NAME(finish)(VECTOR v, twill_op op, uint32_t divisor)
{
    if (op == TWILL_AVG)
        v = TWILL_PASTE(div, MATH)(v, divisor);
    return TWILL_PASTE(canonical, MATH)(v);
}
#endif

/* Reduce `vectors` registers of each source, from element `at` on, to acc[]. */
TWILL_INLINE void NAME(combine)(VECTOR *acc, const void *const *src, unsigned nsrc, size_t at,
                                unsigned vectors, twill_op op, uint32_t divisor)
{
    TWILL_UNROLL
    for (unsigned v = 0; v < vectors; v++)
        acc[v] = TWILL_PASTE(load, STORED)((const VALUE *)src[0] + at + v * LANES);
    for (unsigned s = 1; s < nsrc; s++) {
        TWILL_UNROLL
        for (unsigned v = 0; v < vectors; v++)
            acc[v] = NAME(apply)(
                acc[v], TWILL_PASTE(load, STORED)((const VALUE *)src[s] + at + v * LANES), op);
    }
    TWILL_UNROLL
    for (unsigned v = 0; v < vectors; v++)
        acc[v] = NAME(finish)(acc[v], op, divisor);
}

/* Store acc[], `vectors` registers, to each destination, from element `at` on. */
TWILL_INLINE void NAME(store_all)(void *const *dst, unsigned ndst, const VECTOR *acc, size_t at,
                                  unsigned vectors, bool stream)
{
    for (unsigned d = 0; d < ndst; d++) {
        TWILL_UNROLL
        for (unsigned v = 0; v < vectors; v++) {
            if (stream)
                TWILL_PASTE(stream, STORED)((VALUE *)dst[d] + at + v * LANES, acc[v]);
            else
                TWILL_PASTE(store, STORED)((VALUE *)dst[d] + at + v * LANES, acc[v]);
        }
    }
}

/* Reduce `vectors` registers of each source, from element `at` on, and store the result to each
 * destination. All loads come before the stores, as dst may be a source. */
TWILL_INLINE void NAME(batch)(void *const *dst, unsigned ndst, const void *const *src,
                              unsigned nsrc, size_t at, unsigned vectors, twill_op op,
                              uint32_t divisor, bool stream)
{
    VECTOR acc[TWILL_REGISTERS];
    NAME(combine)(acc, src, nsrc, at, vectors, op, divisor);
    NAME(store_all)(dst, ndst, acc, at, vectors, stream);
}

/* Reduce the elements from index `at` on in batches, which have `vectors` registers of each source,
 * while a whole batch ends before index `end`. Returns the index of the next element. */
TWILL_INLINE size_t NAME(batches)(void *const *dst, unsigned ndst, const void *const *src,
                                  unsigned nsrc, size_t at, size_t end, unsigned vectors,
                                  twill_op op, uint32_t divisor, bool stream)
{
    for (; end - at >= vectors * LANES; at += vectors * LANES)
        NAME(batch)(dst, ndst, src, nsrc, at, vectors, op, divisor, stream);
    return at;
}

/* Ask for the lines of n elements: of each source, from element `at` + `ahead` on, into L2, and of
 * each destination that is no source, TWILL_DESTINATION_AHEAD bytes behind `at`, to write them. */
TWILL_INLINE void NAME(ask)(void *const *dst, unsigned ndst, const void *const *src, unsigned nsrc,
                            size_t at, size_t ahead, size_t n)
{
    for (unsigned s = 0; s < nsrc; s++)
        for (size_t i = at + ahead; i < at + ahead + n; i += TWILL_CACHE_LINE / sizeof(VALUE))
            __builtin_prefetch((const VALUE *)src[s] + i, 0, 2);
    for (unsigned d = 0; d < ndst; d++) {
        bool apart = true;
        for (unsigned s = 0; s < nsrc; s++)
            apart &= dst[d] != src[s];
        if (apart)
            twill_fetch_to_write((VALUE *)dst[d] + at + TWILL_DESTINATION_AHEAD / sizeof(VALUE),
                                 n * sizeof(VALUE));
    }
}

/* Do as NAME(batches)(), but stop TWILL_SOURCE_AHEAD bytes before the end, and ask for the lines of
 * the sources so far ahead, and for those of the destinations less far. None behind the end is
 * asked for, as another core may be writing there. Returns the index of the next element. */
TWILL_INLINE size_t NAME(fetching)(void *const *dst, unsigned ndst, const void *const *src,
                                   unsigned nsrc, size_t at, size_t end, unsigned vectors,
                                   twill_op op, uint32_t divisor)
{
    const size_t ahead = TWILL_SOURCE_AHEAD / sizeof(VALUE), step = vectors * LANES;
    for (; end - at >= ahead + step; at += step) {
        NAME(ask)(dst, ndst, src, nsrc, at, ahead, step);
        NAME(batch)(dst, ndst, src, nsrc, at, vectors, op, divisor, false);
    }
    return at;
}

/* Reduce n elements of each source, from element `at` on, and store the result to each destination.
 * They are fewer than a register holds. */
TWILL_INLINE void NAME(tail)(void *const *dst, unsigned ndst, const void *const *src, unsigned nsrc,
                             size_t at, size_t n, twill_op op, uint32_t divisor)
{
    VECTOR acc = TWILL_PASTE(load_tail, STORED)((const VALUE *)src[0] + at, n);
    for (unsigned s = 1; s < nsrc; s++)
        acc = NAME(apply)(acc, TWILL_PASTE(load_tail, STORED)((const VALUE *)src[s] + at, n), op);
    acc = NAME(finish)(acc, op, divisor);
    for (unsigned d = 0; d < ndst; d++)
        TWILL_PASTE(store_tail, STORED)((VALUE *)dst[d] + at, acc, n);
}

/* Return whether to stream to dst, as `flags` ask for it and dst is aligned to its elements. */
TWILL_INLINE bool NAME(streams)(const void *dst, unsigned flags)
{
    return (flags & TWILL_KERNEL_STREAM) && (uintptr_t)dst % sizeof(VALUE) == 0;
}

/* Return the number of elements before the first register boundary of dst, or 0 if aligning dst
 * would not pay or is impossible. */
TWILL_INLINE size_t NAME(head)(const void *dst, size_t count, bool stream)
{
    if ((!stream && count * sizeof(VALUE) < TWILL_ALIGN_FROM) ||
        (uintptr_t)dst % sizeof(VALUE) != 0)
        return 0;
    return (-(uintptr_t)dst % (LANES * sizeof(VALUE))) / sizeof(VALUE);
}

/* Reduce the first elements up to a register boundary of dst, and then whole batches. Returns the
 * index of the first element that is left. Hot types have loops of constant length for the usual
 * two to four sources, which keep the pointers in registers. That of two may fetch them ahead.
 * Streaming is limited by memory, so one loop for any number of sources is as fast. */
TWILL_INLINE size_t NAME(bulk)(void *to, const void *const *src, unsigned nsrc, size_t count,
                               twill_op op, uint32_t divisor, unsigned flags)
{
    const unsigned vectors = TWILL_REGISTERS;
    const bool stream = NAME(streams)(to, flags);
    void *const dst[] = {to};
    size_t at = NAME(head)(to, count, stream);
    if (at > 0)
        NAME(tail)(dst, 1, src, nsrc, 0, at, op, divisor);
    if (stream) {
        at = NAME(batches)(dst, 1, src, nsrc, at, count, TWILL_STREAM_REGISTERS, op, divisor, true);
        stream_end();
        return at;
    }
#ifdef HOT
    if (nsrc == 2) {
        const void *const two[] = {src[0], src[1]};
        if (flags & TWILL_KERNEL_FETCH)
            at = NAME(fetching)(dst, 1, two, 2, at, count, vectors, op, divisor);
        return NAME(batches)(dst, 1, two, 2, at, count, vectors, op, divisor, false);
    }
    if (nsrc == 3) {
        const void *const three[] = {src[0], src[1], src[2]};
        return NAME(batches)(dst, 1, three, 3, at, count, vectors, op, divisor, false);
    }
    if (nsrc == 4) {
        const void *const four[] = {src[0], src[1], src[2], src[3]};
        return NAME(batches)(dst, 1, four, 4, at, count, vectors, op, divisor, false);
    }
#endif
    return NAME(batches)(dst, 1, src, nsrc, at, count, vectors, op, divisor, false);
}

/* Reduce elements `at` to count-1 of the sources, and store the result to each of ndst
 * destinations. These are the elements that the loop over large batches has left, or all of them if
 * count is small. Only TWILL_AVG reads the divisor. */
TWILL_INLINE void NAME(rest)(void *const *dst, unsigned ndst, const void *const *src, unsigned nsrc,
                             size_t at, size_t count, twill_op op, uint32_t divisor)
{
    if (TWILL_REGISTERS > 1)
        at = NAME(batches)(dst, ndst, src, nsrc, at, count, 1, op, divisor, false);
    if (at < count)
        NAME(tail)(dst, ndst, src, nsrc, at, count - at, op, divisor);
}

/* The bulk is a separate function so that a small count needs no stack frame. */
#define REDUCE(NOUN, stem, with)                                                                   \
    static __attribute__((noinline)) size_t NAME(bulk_##stem)(void *dst, const void *const *src,   \
                                                              unsigned nsrc, size_t count,         \
                                                              uint32_t divisor, unsigned flags)    \
    {                                                                                              \
        return NAME(bulk)(dst, src, nsrc, count, TWILL_##NOUN, divisor, flags);                    \
    }                                                                                              \
    static void NAME(reduce_##stem)(void *dst, const void *const *src, unsigned nsrc,              \
                                    size_t count, uint32_t divisor, unsigned flags)                \
    {                                                                                              \
        void *const one[] = {dst};                                                                 \
        size_t at = 0;                                                                             \
        if (count >= TWILL_REGISTERS * LANES)                                                      \
            at = NAME(bulk_##stem)(dst, src, nsrc, count, divisor, flags);                         \
        NAME(rest)(one, 1, src, nsrc, at, count, TWILL_##NOUN, divisor);                           \
    }

OPS(REDUCE, )

#ifdef HOT
/* Reduce nsrc (1 to 8) sources and store the result to each of ndst (1 to 8) destinations. Both are
 * most often two. Streamed stores must be aligned, so the caller clears `stream` unless all
 * destinations are aligned alike. Only TWILL_AVG reads the divisor. */
TWILL_INLINE void NAME(spread)(void *const *dst, unsigned ndst, const void *const *src,
                               unsigned nsrc, size_t count, twill_op op, uint32_t divisor,
                               bool stream, bool fetch)
{
    const unsigned vectors = TWILL_REGISTERS;
    size_t at = twill_min(NAME(head)(dst[0], count, stream), count);
    if (at > 0)
        NAME(tail)(dst, ndst, src, nsrc, 0, at, op, divisor);
    if (nsrc == 2 && ndst == 2 && !stream) {
        void *const to[] = {dst[0], dst[1]};
        const void *const from[] = {src[0], src[1]};
        if (fetch)
            at = NAME(fetching)(to, 2, from, 2, at, count, vectors, op, divisor);
        at = NAME(batches)(to, 2, from, 2, at, count, vectors, op, divisor, false);
    } else if (stream) {
        at = NAME(batches)(dst, ndst, src, nsrc, at, count, TWILL_STREAM_REGISTERS, op, divisor,
                           true);
        stream_end();
    } else {
        at = NAME(batches)(dst, ndst, src, nsrc, at, count, vectors, op, divisor, false);
    }
    NAME(rest)(dst, ndst, src, nsrc, at, count, op, divisor);
}

#define SPREAD(NOUN, stem, with)                                                                   \
    static void NAME(spread_##stem)(void *const *dst, unsigned ndst, const void *const *src,       \
                                    unsigned nsrc, size_t count, uint32_t divisor, unsigned flags) \
    {                                                                                              \
        bool stream = NAME(streams)(dst[0], flags);                                                \
        for (unsigned d = 1; d < ndst; d++)                                                        \
            stream &= ((uintptr_t)dst[d] - (uintptr_t)dst[0]) % (LANES * sizeof(VALUE)) == 0;      \
        NAME(spread)                                                                               \
        (dst, ndst, src, nsrc, count, TWILL_##NOUN, divisor, stream,                               \
         (flags & TWILL_KERNEL_FETCH) != 0);                                                       \
    }
OPS(SPREAD, )
#undef SPREAD
#endif

#ifdef FINITE
/* Reduce batches from element `at` on, until one has a NaN or infinity in its result or less than a
 * whole one is left before the last `ahead` elements. Unless `ahead` is 0, ask for lines as
 * NAME(fetching)() does. Returns the index of the next element. */
TWILL_INLINE size_t NAME(finite_batches)(void *const *dst, unsigned ndst, const void *const *src,
                                         unsigned nsrc, size_t at, size_t count, twill_op op,
                                         uint32_t divisor, size_t ahead)
{
    const unsigned vectors = TWILL_REGISTERS;
    const size_t step = vectors * LANES;
    for (; count - at >= ahead + step; at += step) {
        VECTOR acc[TWILL_REGISTERS];
        bool finite = true;
        if (ahead > 0)
            NAME(ask)(dst, ndst, src, nsrc, at, ahead, step);
        NAME(combine)(acc, src, nsrc, at, vectors, op, divisor);
        TWILL_UNROLL
        for (unsigned v = 0; v < vectors; v++)
            finite &= TWILL_PASTE(is_finite, MATH)(acc[v]);
        if (TWILL_UNLIKELY(!finite))
            break;
        NAME(store_all)(dst, ndst, acc, at, vectors, false);
    }
    return at;
}

/* Reduce as many elements as twill_finite_fn says. Sources and destinations are most often two. */
TWILL_INLINE size_t NAME(finite_of)(void *const *dst, unsigned ndst, const void *const *src,
                                    unsigned nsrc, size_t count, twill_op op, uint32_t divisor,
                                    unsigned flags)
{
    size_t at = 0;
    if (nsrc != 2 || ndst != 2)
        return NAME(finite_batches)(dst, ndst, src, nsrc, at, count, op, divisor, 0);
    void *const to[] = {dst[0], dst[1]};
    const void *const from[] = {src[0], src[1]};
    if (flags & TWILL_KERNEL_FETCH)
        at = NAME(finite_batches)(to, 2, from, 2, at, count, op, divisor,
                                  TWILL_SOURCE_AHEAD / sizeof(VALUE));
    return NAME(finite_batches)(to, 2, from, 2, at, count, op, divisor, 0);
}

/* The function of type twill_finite_fn. */
static size_t NAME(finite)(void *const *dst, unsigned ndst, const void *const *src, unsigned nsrc,
                           size_t count, twill_op op, uint32_t divisor, unsigned flags)
{
    if (op == TWILL_PROD)
        return NAME(finite_of)(dst, ndst, src, nsrc, count, TWILL_PROD, divisor, flags);
    if (op == TWILL_AVG)
        return NAME(finite_of)(dst, ndst, src, nsrc, count, TWILL_AVG, divisor, flags);
    return NAME(finite_of)(dst, ndst, src, nsrc, count, TWILL_SUM, divisor, flags);
}
#endif

#ifdef NARROW
/* Convert by registers. The last elements fill only a part of one. */
#define CONVERT(stem, to, from)                                                                    \
    static void NAME(stem)(void *dst, const void *src, size_t count)                               \
    {                                                                                              \
        TWILL_PASTE(element, to) *out = dst;                                                       \
        const TWILL_PASTE(element, from) *in = src;                                                \
        size_t at = 0;                                                                             \
        for (; count - at >= lanes_f32; at += lanes_f32)                                           \
            TWILL_PASTE(store, to)(out + at, canonical_f32(TWILL_PASTE(load, from)(in + at)));     \
        if (at < count)                                                                            \
            TWILL_PASTE(store_tail, to)                                                            \
        (out + at, canonical_f32(TWILL_PASTE(load_tail, from)(in + at, count - at)), count - at);  \
    }
CONVERT(widen, f32, ELEMENT)
CONVERT(narrow, ELEMENT, f32)
#undef CONVERT
#undef NARROW
#endif

#undef REDUCE
#undef LANES
#undef VECTOR
#undef VALUE
#undef NAME
#undef HOT
#undef FINITE
#undef STORED
#undef LOGIC
#undef OPS
#undef MATH
#undef ELEMENT
