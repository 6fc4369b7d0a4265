/* SPDX-License-Identifier: Apache-2.0 */
/* minloc and maxloc of pairs of a value and an index, in plain C, used by every table. */
#include "kernels/convert.h"
#include "kernels/isa.h"

#define FLOAT_NAN(a)   ((bool)__builtin_isnan(a))
#define SIGNED_NAN(a)  ((void)(a), false)
#define FLOAT_SIGN(a)  (!!__builtin_signbit(a))
#define SIGNED_SIGN(a) ((a) < 0)
/* The type of a value, and the NaN that is stored. */
#define FLOAT_VALUE(bits)  TWILL_FLOAT_##bits
#define SIGNED_VALUE(bits) int##bits##_t
#define FLOAT_ONE_NAN      __builtin_nanf("")
#define SIGNED_ONE_NAN     0

/* Pairs may have any address, so they are copied from memory and to it. wins() returns whether a
 * precedes b in a total order, so that the result does not depend on sequence or grouping. NaN
 * comes first, then the value, then the lower index, then the sign, as -0 and +0 are equal as
 * values. put() stores a pair with zeroed padding and the canonical NaN. */
#define PAIR(type, bits, kind)                                                                     \
    struct pair_##type {                                                                           \
        kind##_VALUE(bits) value;                                                                  \
        int32_t index;                                                                             \
    };                                                                                             \
    TWILL_INLINE bool wins_##type(struct pair_##type a, struct pair_##type b, bool greatest)       \
    {                                                                                              \
        bool a_nan = kind##_NAN(a.value), b_nan = kind##_NAN(b.value);                             \
        if (a_nan != b_nan)                                                                        \
            return a_nan;                                                                          \
        if (!a_nan && a.value != b.value)                                                          \
            return (a.value < b.value) != greatest;                                                \
        if (a.index != b.index)                                                                    \
            return a.index < b.index;                                                              \
        return !a_nan && kind##_SIGN(a.value) != kind##_SIGN(b.value) &&                           \
               kind##_SIGN(b.value) == greatest;                                                   \
    }                                                                                              \
    TWILL_INLINE struct pair_##type get_##type(const void *base, size_t i)                         \
    {                                                                                              \
        struct pair_##type pair;                                                                   \
        memcpy(&pair, (const char *)base + i * sizeof(pair), sizeof(pair));                        \
        return pair;                                                                               \
    }                                                                                              \
    TWILL_INLINE void put_##type(void *base, size_t i, struct pair_##type pair)                    \
    {                                                                                              \
        struct pair_##type stored;                                                                 \
        memset(&stored, 0, sizeof(stored));                                                        \
        stored.value = kind##_NAN(pair.value) ? kind##_ONE_NAN : pair.value;                       \
        stored.index = pair.index;                                                                 \
        memcpy((char *)base + i * sizeof(stored), &stored, sizeof(stored));                        \
    }                                                                                              \
    TWILL_INLINE void reduce_##type(void *dst, const void *const *src, unsigned nsrc,              \
                                    size_t count, bool greatest)                                   \
    {                                                                                              \
        for (size_t i = 0; i < count; i++) {                                                       \
            struct pair_##type best = get_##type(src[0], i);                                       \
            for (unsigned s = 1; s < nsrc; s++) {                                                  \
                struct pair_##type next = get_##type(src[s], i);                                   \
                if (wins_##type(next, best, greatest))                                             \
                    best = next;                                                                   \
            }                                                                                      \
            put_##type(dst, i, best);                                                              \
        }                                                                                          \
    }

#define LOCATE(stem, type, greatest)                                                               \
    void twill_##stem##_##type(void *dst, const void *const *src, unsigned nsrc, size_t count,     \
                               uint32_t divisor, unsigned flags)                                   \
    {                                                                                              \
        (void)divisor;                                                                             \
        (void)flags;                                                                               \
        reduce_##type(dst, src, nsrc, count, greatest);                                            \
    }

#define MAKE_ALONE(type, bits, kind)
#define MAKE_PAIRED(type, bits, kind)                                                              \
    PAIR(type, bits, kind)                                                                         \
    LOCATE(minloc, type, false)                                                                    \
    LOCATE(maxloc, type, true)
#define MAKE(NOUN, type, bits, kind, pairs, with) MAKE_##pairs(type, bits, kind)
TWILL_TYPES(MAKE, )
