/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle of reductions. It shares no arithmetic with the kernels: values are 128-bit floats,
 * rounded by hand after each operation. 113 bits of mantissa are more than twice those of f64
 * plus two, so that rounding twice cannot differ from rounding once. */
#include "tests/support/numbers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SIZEOF_FLOAT128__)
typedef __float128 wide;
#else
typedef long double wide;
#endif
typedef __int128 huge;

static const struct twill_test_layout layouts[TWILL_TYPE_COUNT] = {
    [TWILL_F32] = {32, 23, 127}, [TWILL_F64] = {64, 52, 1023}, [TWILL_I32] = {32, 0, 0},
    [TWILL_I64] = {64, 0, 0},    [TWILL_F16] = {16, 10, 15},   [TWILL_BF16] = {16, 7, 127}};

const struct twill_test_layout *twill_test_layout(twill_type type)
{
    return &layouts[type];
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

static uint64_t ones(unsigned bits)
{
    return bits < 64 ? ((uint64_t)1 << bits) - 1 : UINT64_MAX;
}

static uint64_t infinity(const struct twill_test_layout *l)
{
    return ones(l->bits - 1) & ~ones(l->mantissa);
}

static uint64_t special(const struct twill_test_layout *l, uint64_t random)
{
    uint64_t top = (uint64_t)1 << (l->bits - 1), inf = infinity(l),
             one = (uint64_t)1 << l->mantissa;
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

void twill_test_fill(twill_type type, void *array, size_t count, uint64_t seed)
{
    const struct twill_test_layout *l = &layouts[type];
    for (size_t i = 0; i < count; i++) {
        uint64_t random = twill_test_random(&seed), bits = twill_test_random(&seed);
        if (random % 4 == 0)
            bits = special(l, bits);
        else if (random % 4 > 1 && l->mantissa) /* sign, an exponent near that of one, mantissa */
            bits = (bits & ~infinity(l)) | (uint64_t)(l->bias - 2 + (int)(random >> 8 & 3))
                                               << l->mantissa;
        twill_test_put(type, array, i, bits & ones(l->bits));
    }
}

static wide power(int exponent)
{
    wide result = 1, base = exponent < 0 ? (wide)0.5 : (wide)2;
    for (unsigned n = (unsigned)abs(exponent); n; n >>= 1, base *= base)
        if (n & 1)
            result *= base;
    return result;
}

static bool is_nan(const struct twill_test_layout *l, uint64_t bits)
{
    return (bits & ones(l->bits - 1)) > infinity(l);
}

static bool is_negative(const struct twill_test_layout *l, uint64_t bits)
{
    return bits >> (l->bits - 1) & 1;
}

static wide decode(const struct twill_test_layout *l, uint64_t bits)
{
    uint64_t rest = bits & ones(l->bits - 1), exponent = rest >> l->mantissa;
    wide sign = is_negative(l, bits) ? -1 : 1;
    if (rest > infinity(l))
        return (wide)NAN;
    if (rest == infinity(l))
        return sign * (wide)INFINITY;
    uint64_t mantissa = rest & ones(l->mantissa);
    if (exponent > 0)
        mantissa |= (uint64_t)1 << l->mantissa;
    else
        exponent = 1;
    return sign * (wide)mantissa * power((int)exponent - l->bias - (int)l->mantissa);
}

/* To nearest even; the one quiet NaN for any NaN. */
static uint64_t encode(const struct twill_test_layout *l, wide value)
{
    const int lowest = 1 - l->bias;
    if (value != value)
        return infinity(l) | (uint64_t)1 << (l->mantissa - 1);
    uint64_t sign = value < 0 || (value == 0 && 1 / value < 0) ? (uint64_t)1 << (l->bits - 1) : 0;
    if (value < 0)
        value = -value;
    if (value >= power(l->bias + 1))
        return sign | infinity(l);
    int exponent = lowest;
    while (value >= power(exponent + 1)) {
        int step = 1; /* the largest power of two that does not overshoot */
        while (value >= power(exponent + 2 * step))
            step *= 2;
        exponent += step;
    }
    wide scaled = value / power(exponent - (int)l->mantissa);
    uint64_t whole = (uint64_t)scaled;
    wide rest = scaled - (wide)whole;
    if (rest > (wide)0.5 || (rest == (wide)0.5 && (whole & 1)))
        whole++;
    return sign | (((uint64_t)(exponent - lowest) << l->mantissa) + whole);
}

uint64_t twill_test_convert(twill_type to, twill_type from, uint64_t bits)
{
    return encode(&layouts[to], decode(&layouts[from], bits));
}

/* The one that goes first: NaN, else the lesser, else the negative zero; or the last one. */
static uint64_t extreme(const struct twill_test_layout *l, uint64_t a, uint64_t b, bool greatest)
{
    wide x = decode(l, a), y = decode(l, b);
    if (is_nan(l, a) || is_nan(l, b))
        return encode(l, (wide)NAN);
    bool first = x < y || (x == y && is_negative(l, a));
    return first != greatest ? a : b;
}

static uint64_t reduce_float(twill_type type, twill_op op, const uint64_t *elements, unsigned nsrc,
                             uint32_t divisor)
{
    twill_type in = type == TWILL_F64 ? TWILL_F64 : TWILL_F32; /* accumulated in */
    const struct twill_test_layout *l = &layouts[in];
    uint64_t acc = twill_test_convert(in, type, elements[0]);
    for (unsigned s = 1; s < nsrc; s++) {
        uint64_t next = twill_test_convert(in, type, elements[s]);
        if (op == TWILL_MIN || op == TWILL_MAX)
            acc = extreme(l, acc, next, op == TWILL_MAX);
        else if (op == TWILL_PROD)
            acc = encode(l, decode(l, acc) * decode(l, next));
        else
            acc = encode(l, decode(l, acc) + decode(l, next));
    }
    if (op == TWILL_AVG)
        acc = encode(l, decode(l, acc) / decode(l, encode(l, (wide)divisor)));
    return twill_test_convert(type, in, acc);
}

static huge as_signed(unsigned bits, uint64_t value)
{
    return bits == 32 ? (huge)(int32_t)(uint32_t)value : (huge)(int64_t)value;
}

static uint64_t reduce_integer(unsigned bits, twill_op op, const uint64_t *elements, unsigned nsrc,
                               uint32_t divisor)
{
    huge acc = as_signed(bits, elements[0]);
    for (unsigned s = 1; s < nsrc; s++) {
        huge next = as_signed(bits, elements[s]);
        if (op == TWILL_MIN || op == TWILL_MAX)
            acc = (acc < next) == (op == TWILL_MIN) ? acc : next;
        else
            acc = as_signed(bits, (uint64_t)(op == TWILL_PROD ? acc * next : acc + next));
    }
    if (op == TWILL_AVG)
        acc /= (huge)divisor;
    return (uint64_t)acc & ones(bits);
}

uint64_t twill_test_reduce(twill_type type, twill_op op, const uint64_t *elements, unsigned nsrc,
                           uint32_t divisor)
{
    if (layouts[type].mantissa == 0)
        return reduce_integer(layouts[type].bits, op, elements, nsrc, divisor);
    return reduce_float(type, op, elements, nsrc, divisor);
}
