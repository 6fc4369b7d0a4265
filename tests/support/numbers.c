/* SPDX-License-Identifier: Apache-2.0 */
/* The reference of reductions. It shares no arithmetic with the kernels: values are 128-bit floats,
 * rounded here after each operation. Their 113 bits of mantissa are more than twice those of f64
 * plus two, so that rounding twice equals rounding once. */
#include "tests/support/numbers.h"
#include "kernels/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SIZEOF_FLOAT128__)
typedef __float128 wide;
#else
typedef long double wide;
#endif
typedef __int128 huge;

static const struct twill_test_layout layouts[] = {
    [TWILL_F32] = {32, 23, 127, false, false}, [TWILL_F64] = {64, 52, 1023, false, false},
    [TWILL_F16] = {16, 10, 15, false, false},  [TWILL_BF16] = {16, 7, 127, false, false},
    [TWILL_F8E4M3] = {8, 3, 7, false, true},   [TWILL_F8E5M2] = {8, 2, 15, false, false},
    [TWILL_I8] = {8, 0, 0, false, false},      [TWILL_U8] = {8, 0, 0, true, false},
    [TWILL_I16] = {16, 0, 0, false, false},    [TWILL_U16] = {16, 0, 0, true, false},
    [TWILL_I32] = {32, 0, 0, false, false},    [TWILL_U32] = {32, 0, 0, true, false},
    [TWILL_I64] = {64, 0, 0, false, false},    [TWILL_U64] = {64, 0, 0, true, false}};
_Static_assert(TWILL_ARRAY_LENGTH(layouts) == TWILL_TYPE_COUNT, "a layout for each");

/* An element: its value's bits and, in a pair, its index. */
struct number {
    uint64_t bits;
    int32_t index;
};

const struct twill_test_layout *twill_test_layout(twill_type type)
{
    return &layouts[type];
}

static bool in_pairs(twill_op op)
{
    return op == TWILL_MINLOC || op == TWILL_MAXLOC;
}

bool twill_test_takes(twill_type type, twill_op op)
{
    switch (op) {
    case TWILL_SUM:
    case TWILL_PROD:
    case TWILL_MIN:
    case TWILL_MAX:
    case TWILL_AVG:
        return true;
    case TWILL_MINLOC:
    case TWILL_MAXLOC:
        return type == TWILL_F32 || type == TWILL_F64 || type == TWILL_I16 || type == TWILL_I32 ||
               type == TWILL_I64;
    default:
        return layouts[type].mantissa == 0;
    }
}

/* Return the type of a partial result. */
static twill_type partial_type(twill_type type, twill_op op)
{
    bool rounds = op == TWILL_SUM || op == TWILL_PROD || op == TWILL_AVG;
    return rounds && layouts[type].mantissa && layouts[type].bits < 32 ? TWILL_F32 : type;
}

size_t twill_test_element(twill_type type, twill_op op, bool partial)
{
    if (in_pairs(op))
        return layouts[type].bits == 64 ? 16 : 8;
    return layouts[partial ? partial_type(type, op) : type].bits / 8;
}

uint64_t twill_test_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u; /* splitmix64 */
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t twill_test_get(twill_type type, const void *array, size_t index)
{
    uint64_t bits = 0;
    size_t size = layouts[type].bits / 8;
    memcpy(&bits, (const char *)array + index * size, size); /* little endian */
    return bits;
}

void twill_test_put(twill_type type, void *array, size_t index, uint64_t bits)
{
    size_t size = layouts[type].bits / 8;
    memcpy((char *)array + index * size, &bits, size);
}

float twill_test_float(twill_type type, const void *array, size_t index)
{
    uint64_t bits = twill_test_get(type, array, index);
    return twill_f32_from_bits(
        (uint32_t)(type == TWILL_F32 ? bits : twill_test_convert(TWILL_F32, type, bits)));
}

void twill_test_put_float(twill_type type, void *array, size_t index, float value)
{
    uint32_t bits = twill_f32_bits(value);
    twill_test_put(type, array, index,
                   type == TWILL_F32 ? bits : twill_test_convert(type, TWILL_F32, bits));
}

const struct twill_kernels *twill_test_next_table(size_t *index)
{
    const struct twill_kernels *kernels;
    while ((kernels = twill_kernels_at((*index)++)) != NULL && !kernels->supported())
        continue;
    return kernels;
}

bool twill_test_next_cell(twill_type *type, twill_op *op, int *index)
{
    while (*index < TWILL_TYPE_COUNT * TWILL_OP_COUNT) {
        *type = (twill_type)(*index / TWILL_OP_COUNT);
        *op = (twill_op)(*index % TWILL_OP_COUNT);
        ++*index;
        if (twill_test_takes(*type, *op))
            return true;
    }
    return false;
}

static uint64_t ones(unsigned bits)
{
    return bits < 64 ? ((uint64_t)1 << bits) - 1 : UINT64_MAX;
}

static uint64_t exponent_bits(const struct twill_test_layout *l)
{
    return ones(l->bits - 1) & ~ones(l->mantissa);
}

/* Return the largest bits that are not NaN: infinity, or the largest number of finite formats. */
static uint64_t limit(const struct twill_test_layout *l)
{
    return l->finite ? ones(l->bits - 1) - 1 : exponent_bits(l);
}

static uint64_t special_bits(const struct twill_test_layout *l, uint64_t random)
{
    uint64_t top = (uint64_t)1 << (l->bits - 1), inf = limit(l), one = (uint64_t)1 << l->mantissa;
    uint64_t quiet = one >> 1, sign = random & 64 ? top : 0;
    const uint64_t integers[] = {0, 1, ones(l->bits), top, top - 1, top + 1, top >> 1, 0x10001};
    const uint64_t floats[] = {0,
                               1,
                               one - 1,
                               one,
                               (uint64_t)l->bias << l->mantissa,
                               inf - 1,
                               inf,
                               inf | 1,
                               inf | quiet,
                               inf | quiet | 5,
                               inf | (one - 1)};
    if (l->mantissa == 0)
        return integers[random % TWILL_ARRAY_LENGTH(integers)];
    return sign | floats[(random >> 8) % TWILL_ARRAY_LENGTH(floats)];
}

static uint64_t random_bits(const struct twill_test_layout *l, uint64_t *seed)
{
    uint64_t random = twill_test_random(seed), bits = twill_test_random(seed);
    if (random % 4 == 0)
        bits = special_bits(l, bits);
    else if (random % 4 > 1 && l->mantissa) /* sign, an exponent near that of 1, mantissa */
        bits = (bits & ~exponent_bits(l)) | (uint64_t)(l->bias - 2 + (int)(random >> 8 & 3))
                                                << l->mantissa;
    return bits & ones(l->bits);
}

void twill_test_fill(twill_type type, void *array, size_t count, uint64_t seed)
{
    for (size_t i = 0; i < count; i++)
        twill_test_put(type, array, i, random_bits(&layouts[type], &seed));
}

static size_t index_at(twill_type type)
{
    return layouts[type].bits == 64 ? 8 : 4;
}

static struct number load_number(twill_type type, twill_op op, const void *array, size_t i)
{
    struct number number = {0, 0};
    if (!in_pairs(op)) {
        number.bits = twill_test_get(type, array, i);
        return number;
    }
    const char *pair = (const char *)array + i * twill_test_element(type, op, false);
    memcpy(&number.bits, pair, layouts[type].bits / 8);
    memcpy(&number.index, pair + index_at(type), sizeof(number.index));
    return number;
}

static void write_number(twill_type type, twill_op op, void *array, size_t i, struct number number)
{
    if (!in_pairs(op)) {
        twill_test_put(type, array, i, number.bits);
        return;
    }
    char *pair = (char *)array + i * twill_test_element(type, op, false);
    memset(pair, 0, twill_test_element(type, op, false));
    memcpy(pair, &number.bits, layouts[type].bits / 8);
    memcpy(pair + index_at(type), &number.index, sizeof(number.index));
}

/* Fill pairs with arbitrary padding, and few different values and indices, so that they are often
 * equal. */
static void fill_pairs(twill_type type, twill_op op, void *array, size_t count, uint64_t seed)
{
    const int32_t indices[] = {0, 1, -1, 7, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < count; i++) {
        uint64_t random = twill_test_random(&seed);
        struct number n = {random_bits(&layouts[type], &seed),
                           indices[(random >> 8) % TWILL_ARRAY_LENGTH(indices)]};
        if (random % 2)
            n.bits = special_bits(&layouts[type], random >> 16) & ones(layouts[type].bits);
        char *pair = (char *)array + i * twill_test_element(type, op, false);
        memset(pair, 0xa0 + (int)(random >> 20 & 15), twill_test_element(type, op, false));
        memcpy(pair, &n.bits, layouts[type].bits / 8);
        memcpy(pair + index_at(type), &n.index, sizeof(n.index));
    }
}

void twill_test_fill_for(twill_type type, twill_op op, bool partial, void *array, size_t count,
                         uint64_t seed)
{
    if (in_pairs(op)) {
        fill_pairs(type, op, array, count, seed);
        return;
    }
    twill_test_fill(partial ? partial_type(type, op) : type, array, count, seed);
    for (size_t i = 0; i < count && (op == TWILL_LAND || op == TWILL_LOR || op == TWILL_LXOR); i++)
        if ((twill_test_random(&seed) >> 8) % 2)
            twill_test_put(type, array, i, 0);
}

/* Beyond the range of double, as a product of two. */
static wide power(int exponent)
{
    if (exponent > -1000 && exponent < 1000)
        return (wide)ldexp(1, exponent);
    return (wide)ldexp(1, exponent / 2) * (wide)ldexp(1, exponent - exponent / 2);
}

/* Return the exponent of the largest power of two <= value, which may be rounded to double. */
static int exponent_of(wide value)
{
    int exponent;
    (void)frexp((double)(value * (wide)0.25), &exponent); /* avoids overflow of f64 */
    exponent++;
    return value < power(exponent) ? exponent - 1 : exponent; /* it was rounded up */
}

static bool bits_are_nan(const struct twill_test_layout *l, uint64_t bits)
{
    return (bits & ones(l->bits - 1)) > limit(l);
}

static bool is_negative(const struct twill_test_layout *l, uint64_t bits)
{
    return bits >> (l->bits - 1) & 1;
}

static wide decode(const struct twill_test_layout *l, uint64_t bits)
{
    uint64_t rest = bits & ones(l->bits - 1), exponent = rest >> l->mantissa;
    wide sign = is_negative(l, bits) ? -1 : 1;
    if (rest > limit(l))
        return (wide)NAN;
    if (rest == limit(l) && !l->finite)
        return sign * (wide)INFINITY;
    uint64_t mantissa = rest & ones(l->mantissa);
    if (exponent > 0)
        mantissa |= (uint64_t)1 << l->mantissa;
    else
        exponent = 1;
    return sign * (wide)mantissa * power((int)exponent - l->bias - (int)l->mantissa);
}

static uint64_t one_nan(const struct twill_test_layout *l)
{
    return l->finite ? limit(l) + 1 : limit(l) | (uint64_t)1 << (l->mantissa - 1);
}

/* Round to nearest even. NaNs, and overflow without infinity, give the one quiet NaN. */
static uint64_t encode(const struct twill_test_layout *l, wide value)
{
    const int lowest = 1 - l->bias;
    if (value != value)
        return one_nan(l);
    uint64_t sign = value < 0 || (value == 0 && 1 / value < 0) ? (uint64_t)1 << (l->bits - 1) : 0;
    uint64_t overflow = l->finite ? one_nan(l) : sign | limit(l);
    if (value < 0)
        value = -value;
    if (value >= power(l->bias + 2))
        return overflow;
    int exponent = value < power(lowest) ? lowest : exponent_of(value);
    wide scaled = value * power((int)l->mantissa - exponent);
    uint64_t whole = (uint64_t)scaled;
    wide rest = scaled - (wide)whole;
    if (rest > (wide)0.5 || (rest == (wide)0.5 && (whole & 1)))
        whole++;
    uint64_t code = ((uint64_t)(exponent - lowest) << l->mantissa) + whole;
    return code > limit(l) ? overflow : sign | code;
}

uint64_t twill_test_convert(twill_type to, twill_type from, uint64_t bits)
{
    return encode(&layouts[to], decode(&layouts[from], bits));
}

/* Return the minimum or maximum: NaN wins; -0 is less than +0. */
static uint64_t extreme(const struct twill_test_layout *l, uint64_t a, uint64_t b, bool greatest)
{
    wide x = decode(l, a), y = decode(l, b);
    if (bits_are_nan(l, a) || bits_are_nan(l, b))
        return encode(l, (wide)NAN);
    bool first = x < y || (x == y && is_negative(l, a));
    return first != greatest ? a : b;
}

static uint64_t apply_float(const struct twill_test_layout *l, twill_op op, uint64_t a, uint64_t b)
{
    if (op == TWILL_MIN || op == TWILL_MAX)
        return extreme(l, a, b, op == TWILL_MAX);
    if (op == TWILL_PROD)
        return encode(l, decode(l, a) * decode(l, b));
    return encode(l, decode(l, a) + decode(l, b));
}

static huge as_integer(const struct twill_test_layout *l, uint64_t bits)
{
    huge value = (huge)(bits & ones(l->bits));
    return !l->is_unsigned && is_negative(l, bits) ? value - ((huge)1 << l->bits) : value;
}

huge twill_test_combine(twill_op op, huge a, huge b)
{
    switch (op) {
    case TWILL_PROD:
        return (huge)((unsigned __int128)a * (unsigned __int128)b);
    case TWILL_MIN:
        return a < b ? a : b;
    case TWILL_MAX:
        return a > b ? a : b;
    case TWILL_BAND:
        return a & b;
    case TWILL_BOR:
        return a | b;
    case TWILL_BXOR:
        return a ^ b;
    case TWILL_LAND:
        return a != 0 && b != 0;
    case TWILL_LOR:
        return a != 0 || b != 0;
    case TWILL_LXOR:
        return (a != 0) != (b != 0);
    default:
        return a + b;
    }
}

static uint64_t apply_integer(const struct twill_test_layout *l, twill_op op, uint64_t a,
                              uint64_t b)
{
    huge result = twill_test_combine(op, as_integer(l, a), as_integer(l, b));
    return (uint64_t)result & ones(l->bits);
}

static bool bits_are_zero(const struct twill_test_layout *l, uint64_t bits)
{
    return (bits & ones(l->bits - 1)) == 0;
}

/* Return the winning pair: NaN, else the extreme value (-0 is +0), else the lower index, else the
 * sign: the results of two operands do not depend on their order. */
static struct number apply_pair(const struct twill_test_layout *l, twill_op op, struct number a,
                                struct number b)
{
    const bool greatest = op == TWILL_MAXLOC;
    if (l->mantissa && bits_are_nan(l, a.bits) != bits_are_nan(l, b.bits))
        return bits_are_nan(l, a.bits) ? a : b;
    const bool zeros = l->mantissa && bits_are_zero(l, a.bits) && bits_are_zero(l, b.bits);
    const bool equal = zeros || a.bits == b.bits || (l->mantissa && bits_are_nan(l, a.bits));
    if (equal && a.index != b.index)
        return a.index < b.index ? a : b;
    uint64_t wins = l->mantissa
                        ? extreme(l, a.bits, b.bits, greatest)
                        : apply_integer(l, greatest ? TWILL_MAX : TWILL_MIN, a.bits, b.bits);
    return wins == a.bits ? a : b;
}

/* Reduce elements that have been converted to the accumulation type. */
static struct number reduce_numbers(const struct twill_reduction *reduction, twill_type in,
                                    const struct number *numbers, unsigned nsrc)
{
    const struct twill_test_layout *l = &layouts[in];
    struct number acc = numbers[0];
    for (unsigned s = 1; s < nsrc; s++) {
        if (in_pairs(reduction->op))
            acc = apply_pair(l, reduction->op, acc, numbers[s]);
        else if (l->mantissa)
            acc.bits = apply_float(l, reduction->op, acc.bits, numbers[s].bits);
        else
            acc.bits = apply_integer(l, reduction->op, acc.bits, numbers[s].bits);
    }
    if (reduction->op == TWILL_LAND || reduction->op == TWILL_LOR || reduction->op == TWILL_LXOR)
        acc.bits = acc.bits != 0;
    if (reduction->op == TWILL_AVG && !reduction->partial_result)
        acc.bits =
            l->mantissa
                ? encode(l, decode(l, acc.bits) / decode(l, encode(l, (wide)reduction->divisor)))
                : (uint64_t)(as_integer(l, acc.bits) / (huge)reduction->divisor) & ones(l->bits);
    if (reduction->after != NULL && !reduction->partial_result) {
        uint32_t after;
        memcpy(&after, reduction->after, sizeof(after));
        acc.bits = apply_float(l, TWILL_PROD, acc.bits, after);
    }
    return acc;
}

void twill_test_reduce(const struct twill_reduction *reduction, void *dst, const void *const *src,
                       unsigned nsrc, size_t count)
{
    const twill_type type = reduction->type, partial = partial_type(type, reduction->op);
    const twill_type in = layouts[type].mantissa && layouts[type].bits < 32 ? TWILL_F32 : type;
    const twill_type out = reduction->partial_result ? partial : type;
    struct number *numbers = calloc(nsrc, sizeof(*numbers));
    if (numbers == NULL)
        abort();
    for (size_t i = 0; i < count; i++) {
        for (unsigned s = 0; s < nsrc; s++) {
            twill_type from = s < 32 && reduction->partial_sources >> s & 1 ? partial : type;
            numbers[s] = load_number(from, reduction->op, src[s], i);
            if (layouts[type].mantissa)
                numbers[s].bits = twill_test_convert(in, from, numbers[s].bits);
        }
        struct number result = reduce_numbers(reduction, in, numbers, nsrc);
        if (layouts[type].mantissa)
            result.bits = twill_test_convert(out, in, result.bits);
        write_number(out, reduction->op, dst, i, result);
    }
    free(numbers);
}
