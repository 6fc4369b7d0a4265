/* SPDX-License-Identifier: Apache-2.0 */
/* The element types, operations and levels of twill.h, each in one list with its properties. Names,
 * sizes, sets, parsers and tables of kernels are made from these lists. base.c checks that they
 * have the values of twill.h. `with` is passed to every X, and may be empty. */
#ifndef TWILL_LISTS_H
#define TWILL_LISTS_H

#include "lib/twill.h"

#include <stdbool.h>

/* X(NOUN, name, bits, kind, pairs, with). The type is TWILL_NOUN, and `bits` those of an element.
 * `kind` is FLOAT, SIGNED, UNSIGNED or NARROW (a float of 8 or 16 bits, which is reduced in f32).
 * `pairs` is PAIRED if minloc and maxloc take the type, else ALONE. */
#define TWILL_TYPES(X, with)                                                                       \
    X(F32, f32, 32, FLOAT, PAIRED, with)                                                           \
    X(F64, f64, 64, FLOAT, PAIRED, with)                                                           \
    X(I32, i32, 32, SIGNED, PAIRED, with)                                                          \
    X(I64, i64, 64, SIGNED, PAIRED, with)                                                          \
    X(F16, f16, 16, NARROW, ALONE, with)                                                           \
    X(BF16, bf16, 16, NARROW, ALONE, with)                                                         \
    X(I8, i8, 8, SIGNED, ALONE, with)                                                              \
    X(U8, u8, 8, UNSIGNED, ALONE, with)                                                            \
    X(I16, i16, 16, SIGNED, PAIRED, with)                                                          \
    X(U16, u16, 16, UNSIGNED, ALONE, with)                                                         \
    X(U32, u32, 32, UNSIGNED, ALONE, with)                                                         \
    X(U64, u64, 64, UNSIGNED, ALONE, with)                                                         \
    X(F8E4M3, f8e4m3, 8, NARROW, ALONE, with)                                                      \
    X(F8E5M2, f8e5m2, 8, NARROW, ALONE, with)

enum twill_type_kind {
    TWILL_KIND_FLOAT,
    TWILL_KIND_NARROW,
    TWILL_KIND_SIGNED,
    TWILL_KIND_UNSIGNED
};

/* The set of types of a kind, as a constant in which type T is bit 1u << T. */
#define TWILL_TYPES_OF_KIND(kind) (0u TWILL_TYPES(TWILL_TYPE_BIT_IF, kind))
#define TWILL_TYPE_BIT_IF(NOUN, name, bits, kind, pairs, wanted)                                   \
    | (uint32_t)(TWILL_KIND_##kind == TWILL_KIND_##wanted) << TWILL_##NOUN

/* Return whether `type` is a float of 8 or 16 bits, reduced in f32 and rounded at the end. */
static inline bool twill_type_is_narrow(twill_type type)
{
    return (unsigned)type < TWILL_TYPE_COUNT && (TWILL_TYPES_OF_KIND(NARROW) >> type & 1);
}

/* X(NOUN, name, with). These four lists are for all types, integers, integers, and pairs. */
#define TWILL_OPS_ARITHMETIC(X, with)                                                              \
    X(SUM, sum, with)                                                                              \
    X(PROD, prod, with)                                                                            \
    X(MIN, min, with)                                                                              \
    X(MAX, max, with)                                                                              \
    X(AVG, avg, with)
#define TWILL_OPS_BITWISE(X, with)                                                                 \
    X(BAND, band, with)                                                                            \
    X(BOR, bor, with)                                                                              \
    X(BXOR, bxor, with)
#define TWILL_OPS_LOGICAL(X, with)                                                                 \
    X(LAND, land, with)                                                                            \
    X(LOR, lor, with)                                                                              \
    X(LXOR, lxor, with)
#define TWILL_OPS_LOCATING(X, with)                                                                \
    X(MINLOC, minloc, with)                                                                        \
    X(MAXLOC, maxloc, with)
#define TWILL_OPS(X, with)                                                                         \
    TWILL_OPS_ARITHMETIC(X, with)                                                                  \
    TWILL_OPS_BITWISE(X, with)                                                                     \
    TWILL_OPS_LOGICAL(X, with)                                                                     \
    TWILL_OPS_LOCATING(X, with)

/* X(NOUN, name, noun, with). The level TWILL_LEVEL_NOUN is `name` in settings, `noun` in texts. */
#define TWILL_LEVELS_INSIDE_NODE(X, with)                                                          \
    X(TILE, tile, "tile", with)                                                                    \
    X(L3, l3, "L3 cache", with)                                                                    \
    X(NUMA, numa, "NUMA node", with)                                                               \
    X(PACKAGE, package, "package", with)
#define TWILL_LEVELS(X, with)                                                                      \
    TWILL_LEVELS_INSIDE_NODE(X, with)                                                              \
    X(NODE, node, "node", with)                                                                    \
    X(GROUP, group, "group", with)

#endif
