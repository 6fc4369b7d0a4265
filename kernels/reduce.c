/* SPDX-License-Identifier: Apache-2.0 */
/* Reductions, scaling and copies: chooses the kernel and sets the floating-point environment. */
#include "kernels/isa.h"

#include <stdatomic.h>

#define NARROW_TYPES  TWILL_TYPES_OF_KIND(NARROW)
#define FLOAT_TYPES   (NARROW_TYPES | TWILL_TYPES_OF_KIND(FLOAT))
#define INTEGER_TYPES (TWILL_TYPES_OF_KIND(SIGNED) | TWILL_TYPES_OF_KIND(UNSIGNED))
/* Types whose elements may be values of pairs. */
#define PAIRED_TYPES                                    (0u TWILL_TYPES(PAIRED_BIT, ))
#define PAIRED_BIT(NOUN, name, bits, kind, pairs, with) | (uint32_t)IS_##pairs << TWILL_##NOUN
enum { IS_ALONE, IS_PAIRED };
#define OP_BIT(NOUN, name, with) | 1u << TWILL_##NOUN
#define ARITHMETIC               (0u TWILL_OPS_ARITHMETIC(OP_BIT, ))
#define LOCATING                 (0u TWILL_OPS_LOCATING(OP_BIT, ))
/* Arithmetic that rounds, as min and max do not. */
#define WIDE (1u << TWILL_SUM | 1u << TWILL_PROD | 1u << TWILL_AVG)

/* Elements that are widened at a time. Eight sources take 15 KiB of stack, which fits L1. */
#define WIDE_COUNT ((size_t)480)
/* Bytes among which a NaN is found at a time, of which the first is then looked for. */
#define FOUND_BYTES ((size_t)2048)
/* How many bytes ahead the search for a NaN fetches lines into L2. The processor's own look-ahead
 * ends with each page. */
#define FOUND_AHEAD ((size_t)4096)

/* Return whether bit `member` of a set is 1. */
static bool in(uint32_t set, unsigned member)
{
    return set >> member & 1;
}

static size_t size_of(twill_type type)
{
#define ELEMENT_SIZE(NOUN, name, ...) [TWILL_##NOUN] = sizeof(element_##name),
    static const unsigned char sizes[] = {TWILL_TYPES(ELEMENT_SIZE, )};
    return sizes[type];
}

bool twill_kernels_takes(twill_type type, twill_op op)
{
    if ((unsigned)type >= TWILL_TYPE_COUNT || (unsigned)op >= TWILL_OP_COUNT)
        return false;
    if (in(ARITHMETIC, op))
        return true;
    return in(in(LOCATING, op) ? PAIRED_TYPES : INTEGER_TYPES, type);
}

size_t twill_kernels_element(twill_type type, twill_op op)
{
    if (!twill_kernels_takes(type, op))
        return 0;
    if (in(LOCATING, op)) /* the value, and the index in the same size or in 4 bytes */
        return twill_max(2 * size_of(type), 8);
    return size_of(type);
}

size_t twill_kernels_partial(twill_type type, twill_op op)
{
    size_t element = twill_kernels_element(type, op);
    return element && in(NARROW_TYPES, type) && in(WIDE, op) ? sizeof(float) : element;
}

/* A call of twill_kernels_spread(), for all of its ranges, on its stack. */
struct reduce_job {
    const struct twill_kernels *kernels;
    const struct twill_reduction *reduction;
    twill_reduce_fn reduce; /* of the type, or of f32 */
    twill_spread_fn spread; /* of the type, or of f32, or NULL */
    void *const *dst;
    const void *const *src;
    unsigned ndst, nsrc;
    uint32_t wide;           /* bit i is set if src[i] is f32 though elements are narrow */
    size_t element, written; /* bytes of a narrow source's element, and of the destination's */
    bool buffered;           /* both narrow elements and f32 occur */
};

/* Return the bytes of an element of source s. */
static size_t source_element(const struct reduce_job *job, unsigned s)
{
    return in(job->wide, s) ? sizeof(float) : job->element;
}

/* Reduce at most WIDE_COUNT elements, widening narrow sources to f32. A partial result stays f32. A
 * final one is multiplied by *reduction->after, if that is given, and narrowed. */
static void reduce_mixed(const struct reduce_job *job, void *dst, const void *const *src, size_t n)
{
    float wide[TWILL_KERNEL_MAX_SOURCES][WIDE_COUNT] TWILL_ALIGNED(64);
    const struct twill_reduction *reduction = job->reduction;
    const void *from[TWILL_KERNEL_MAX_SOURCES];
    for (unsigned s = 0; s < job->nsrc; s++) {
        from[s] = src[s];
        if (in(job->wide, s))
            continue;
        job->kernels->widen[reduction->type](wide[s], src[s], n);
        from[s] = wide[s];
    }
    void *reduced = reduction->partial_result ? dst : wide[0];
    job->reduce(reduced, from, job->nsrc, n, reduction->divisor, 0);
    if (reduction->partial_result)
        return;
    if (reduction->after != NULL) {
        const void *both[] = {wide[0], wide[1]};
        for (size_t i = 0; i < n; i++)
            wide[1][i] = *reduction->after;
        job->kernels->reduce[TWILL_F32][TWILL_PROD](wide[0], both, 2, n, 1, 0);
    }
    job->kernels->narrow[reduction->type](dst, reduced, n);
}

/* Reduce WIDE_COUNT elements at a time to the first destination, and copy them to the others. */
static void reduce_wide(const struct reduce_job *job, unsigned char *const *dst,
                        const unsigned char *const *src, size_t count)
{
    for (size_t at = 0; at < count; at += WIDE_COUNT) {
        const void *from[TWILL_KERNEL_MAX_SOURCES];
        size_t n = twill_min(WIDE_COUNT, count - at);
        unsigned char *first = dst[0] + at * job->written;
        for (unsigned s = 0; s < job->nsrc; s++)
            from[s] = src[s] + at * source_element(job, s);
        if (job->buffered)
            reduce_mixed(job, first, from, n);
        else
            job->reduce(first, from, job->nsrc, n, job->reduction->divisor, 0);
        for (unsigned d = 1; d < job->ndst; d++)
            memcpy(dst[d] + at * job->written, first, n * job->written);
    }
}

/* Reduce a range of elements of `data`, a struct reduce_job. */
static void reduce_range(const void *data, size_t first, size_t count)
{
    const struct reduce_job *job = data;
    const struct twill_reduction *reduction = job->reduction;
    const unsigned char *src[TWILL_KERNEL_MAX_SOURCES];
    unsigned char *dst[TWILL_KERNEL_MAX_DESTINATIONS];
    for (unsigned s = 0; s < job->nsrc; s++)
        src[s] = (const unsigned char *)job->src[s] + first * source_element(job, s);
    for (unsigned d = 0; d < job->ndst; d++)
        dst[d] = (unsigned char *)job->dst[d] + first * job->written;
    unsigned modes = twill_environment_enter(in(FLOAT_TYPES, reduction->type));
    if (job->buffered || (job->ndst > 1 && job->spread == NULL))
        reduce_wide(job, dst, src, count);
    else if (job->ndst > 1)
        job->spread((void *const *)dst, job->ndst, (const void *const *)src, job->nsrc, count,
                    reduction->divisor, reduction->flags);
    else
        job->reduce(dst[0], (const void *const *)src, job->nsrc, count, reduction->divisor,
                    reduction->flags);
    twill_environment_leave(modes);
}

void twill_kernels_spread(const struct twill_kernels *kernels,
                          const struct twill_reduction *reduction, void *const *dst, unsigned ndst,
                          const void *const *src, unsigned nsrc, size_t count)
{
    twill_op op =
        reduction->op == TWILL_AVG && reduction->partial_result ? TWILL_SUM : reduction->op;
    bool widens = in(NARROW_TYPES, reduction->type) && in(WIDE, op);
    uint32_t all = (1u << nsrc) - 1, wide = widens ? reduction->partial_sources & all : 0;
    bool wide_result = widens && reduction->partial_result;
    bool scales = widens && !reduction->partial_result && reduction->after != NULL;
    bool in_f32 = wide || wide_result || scales;
    twill_type type = in_f32 ? TWILL_F32 : reduction->type;
    struct reduce_job job = {.kernels = kernels,
                             .reduction = reduction,
                             .reduce = kernels->reduce[type][op],
                             .spread = kernels->spread[type][op],
                             .dst = dst,
                             .src = src,
                             .ndst = ndst,
                             .nsrc = nsrc,
                             .wide = wide,
                             .element = twill_kernels_element(reduction->type, op),
                             .buffered = in_f32 && !(wide_result && wide == all)};
    job.written = wide_result ? sizeof(float) : job.element;
    twill_split(reduce_range, &job, count, job.written, nsrc * job.element, reduction->pool);
}

size_t twill_kernels_spread_finite(const struct twill_kernels *kernels,
                                   const struct twill_reduction *reduction, void *const *dst,
                                   unsigned ndst, const void *const *src, unsigned nsrc,
                                   size_t count)
{
    const uint32_t partial_sources = reduction->partial_sources & ((1u << nsrc) - 1);
    const bool narrow = in(NARROW_TYPES, reduction->type), partial = reduction->partial_result;
    const twill_finite_fn finite = kernels->finite[reduction->type];
    if (finite == NULL || !in(WIDE, reduction->op) || reduction->pool != NULL ||
        (narrow && (partial || partial_sources != 0 || reduction->after != NULL)))
        return 0;
    const twill_op op = reduction->op == TWILL_AVG && partial ? TWILL_SUM : reduction->op;
    unsigned modes = twill_environment_enter(true);
    size_t done = finite(dst, ndst, src, nsrc, count, op, reduction->divisor, reduction->flags);
    twill_environment_leave(modes);
    return done;
}

void twill_kernels_reduce(const struct twill_kernels *kernels,
                          const struct twill_reduction *reduction, void *dst,
                          const void *const *src, unsigned nsrc, size_t count)
{
    bool partial =
        reduction->partial_result || (reduction->partial_sources & ((1u << nsrc) - 1)) != 0;
    if (reduction->pool != NULL || (partial && in(NARROW_TYPES, reduction->type)) ||
        (reduction->op == TWILL_AVG && partial) || reduction->after != NULL) {
        twill_kernels_spread(kernels, reduction, &dst, 1, src, nsrc, count);
        return;
    }
    /* Short path for small messages. */
    unsigned modes = twill_environment_enter(in(FLOAT_TYPES, reduction->type));
    kernels->reduce[reduction->type][reduction->op](dst, src, nsrc, count, reduction->divisor,
                                                    reduction->flags);
    twill_environment_leave(modes);
}

/* A call of twill_kernels_scale(), for all of its ranges, on its stack. */
struct scale_job {
    const struct twill_kernels *kernels;
    twill_type type;
    unsigned char *dst;
    const unsigned char *src;
    const void *factor;
    size_t element, written; /* bytes of an element of src, and of dst */
    bool rounds;             /* a product in f32 becomes an element */
};

/* Multiply a range of `data`, a struct scale_job, WIDE_COUNT elements at a time, by the factor. */
static void scale_range(const void *data, size_t first, size_t count)
{
    const struct scale_job *job = data;
    const bool narrow = in(NARROW_TYPES, job->type);
    const twill_reduce_fn product =
        job->kernels->reduce[narrow ? TWILL_F32 : job->type][TWILL_PROD];
    const size_t factor_bytes = narrow ? sizeof(float) : job->element;
    unsigned char factors[WIDE_COUNT * sizeof(uint64_t)] TWILL_ALIGNED(64);
    float wide[WIDE_COUNT] TWILL_ALIGNED(64);
    unsigned modes = twill_environment_enter(in(FLOAT_TYPES, job->type));
    for (size_t i = 0; i < twill_min(WIDE_COUNT, count); i++)
        memcpy(factors + i * factor_bytes, job->factor, factor_bytes);
    for (size_t at = first; at < first + count; at += WIDE_COUNT) {
        size_t n = twill_min(WIDE_COUNT, first + count - at);
        const void *both[] = {factors, job->src + at * job->element};
        if (narrow) {
            job->kernels->widen[job->type](wide, both[1], n);
            both[1] = wide;
        }
        product(job->rounds ? (void *)wide : job->dst + at * job->written, both, 2, n, 1, 0);
        if (job->rounds)
            job->kernels->narrow[job->type](job->dst + at * job->written, wide, n);
    }
    twill_environment_leave(modes);
}

void twill_kernels_scale(const struct twill_kernels *kernels, twill_type type, void *dst,
                         const void *src, const void *factor, bool rounds, size_t count,
                         struct twill_thread_pool *pool)
{
    const bool narrow = in(NARROW_TYPES, type);
    const struct scale_job job = {.kernels = kernels,
                                  .type = type,
                                  .dst = dst,
                                  .src = src,
                                  .factor = factor,
                                  .element = size_of(type),
                                  .written = narrow && !rounds ? sizeof(float) : size_of(type),
                                  .rounds = narrow && rounds};
    twill_split(scale_range, &job, count, job.written, job.element, pool);
}

/* A call of twill_kernels_copy(), for all of its ranges, on its stack. */
struct copy_job {
    twill_copy_fn copy;
    char *dst;
    const char *src;
    unsigned flags;
};

/* Copy a range of bytes of `data`, a struct copy_job. */
static void copy_range(const void *data, size_t first, size_t bytes)
{
    const struct copy_job *job = data;
    job->copy(job->dst + first, job->src + first, bytes, job->flags);
}

void twill_kernels_copy(const struct twill_kernels *kernels, void *dst, const void *src,
                        size_t bytes, unsigned flags, struct twill_thread_pool *pool)
{
    const struct copy_job job = {.copy = kernels->copy, .dst = dst, .src = src, .flags = flags};
    twill_split(copy_range, &job, bytes, 1, 1, pool);
}

/* A call of twill_kernels_find_nan(), for all of its ranges, on its stack. */
struct find_job {
    twill_exceeds_fn exceeds;
    const unsigned char *src;
    size_t element;
    _Atomic size_t *found; /* least index so far */
};

/* Fetch the next lines of a range that ends at `end` and has been searched up to `at`. */
static void fetch_ahead(const unsigned char *at, const unsigned char *end)
{
    const size_t left = (size_t)(end - at), to = twill_min(left, FOUND_AHEAD + FOUND_BYTES);
    for (size_t line = FOUND_AHEAD; line < to; line += TWILL_CACHE_LINE)
        __builtin_prefetch(at + line, 0, 2);
}

/* Lower *found of `data`, a struct find_job, to the first NaN or infinity in a range, if any. */
static void find_in_range(const void *data, size_t first, size_t count)
{
    const struct find_job *job = data;
    const size_t step = FOUND_BYTES / job->element;
    for (size_t at = first; at < first + count; at += step) {
        size_t end = twill_min(at + step, first + count);
        fetch_ahead(job->src + at * job->element, job->src + (first + count) * job->element);
        if (TWILL_LIKELY(!job->exceeds(job->src + at * job->element, end - at)))
            continue;
        while (!job->exceeds(job->src + at * job->element, 1))
            at++;
        size_t least = atomic_load(job->found);
        while (at < least && !atomic_compare_exchange_weak(job->found, &least, at))
            ;
        return;
    }
}

size_t twill_kernels_find_nan(const struct twill_kernels *kernels, twill_type type, const void *src,
                              size_t count, struct twill_thread_pool *pool)
{
    _Atomic size_t found = count;
    const struct find_job job = {kernels->exceeds[type], src, size_of(type), &found};
    if (job.exceeds != NULL)
        twill_split(find_in_range, &job, count, job.element, 1, pool);
    return found;
}
