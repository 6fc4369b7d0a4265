/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads and their expected results.
 * Integers use all their bits, as wrap-around is exact (with avg they are too small to wrap).
 * Floating-point sums use integers, and products powers of two, so that every order of reduction
 * gives the same exact result in f32. 8- and 16-bit floats are also reduced in f32 and rounded
 * once, as here. Only f32 and f64 over very many ranks have a tolerance. */
#include "bench/tools/bench/bench_collective.h"

#include <math.h>
#include <string.h>

#define PAYLOAD_BATCH 512

/* The values that an element type can have, a constant for each type. */
static const struct type_facts {
    bool integer, is_signed;
    unsigned bits;     /* of an element */
    int exponent;      /* bits */
    int mantissa;      /* bits, without the hidden one */
    int64_t magnitude; /* largest value in sum, min, max and avg */
    int factors;       /* ranks that contribute factors other than 1 to a product */
} facts[] = {
    [TWILL_F32] = {false, true, 32, 8, 23, 1 << 15, 12},
    [TWILL_F64] = {false, true, 64, 11, 52, INT64_C(1) << 40, 12},
    [TWILL_I32] = {true, true, 32, 0, 0, 1 << 20, 0},
    [TWILL_I64] = {true, true, 64, 0, 0, INT64_C(1) << 40, 0},
    [TWILL_F16] = {false, true, 16, 5, 10, 1000, 12},
    [TWILL_BF16] = {false, true, 16, 8, 7, 120, 12},
    [TWILL_I8] = {true, true, 8, 0, 0, 1, 0},
    [TWILL_U8] = {true, false, 8, 0, 0, 1, 0},
    [TWILL_I16] = {true, true, 16, 0, 0, 1 << 8, 0},
    [TWILL_U16] = {true, false, 16, 0, 0, 1 << 8, 0},
    [TWILL_U32] = {true, false, 32, 0, 0, 1 << 20, 0},
    [TWILL_U64] = {true, false, 64, 0, 0, INT64_C(1) << 40, 0},
    [TWILL_F8E4M3] = {false, true, 8, 4, 3, 3, 6},
    [TWILL_F8E5M2] = {false, true, 8, 5, 2, 3, 12},
};
_Static_assert(sizeof(facts) / sizeof(*facts) == TWILL_TYPE_COUNT, "facts of each");

/* Return whether an operation is bitwise or logical. */
static bool is_bitwise(twill_op op)
{
    return op >= TWILL_BAND && op <= TWILL_LXOR;
}

bool twill_bench_op_takes(twill_op op, twill_type type)
{
    return op <= TWILL_AVG || (is_bitwise(op) && facts[type].integer);
}

/* Return 64 random bits that depend only on round, rank and position. */
static uint64_t mix_position(unsigned round, int rank, uint64_t position)
{
    uint64_t x =
        position + UINT64_C(0x9E3779B97F4A7C15) * ((uint64_t)round * 65537 + (uint64_t)rank + 1);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static bool is_reduction(const struct twill_bench_payload *payload)
{
    return payload->from < 0;
}

/* Return 64 bits cut to an integer type, as its value. */
static int64_t wrap(const struct type_facts *fact, uint64_t bits)
{
    unsigned unused = 64 - fact->bits;
    return fact->is_signed ? (int64_t)(bits << unused) >> unused
                           : (int64_t)(bits << unused >> unused);
}

/* Return the value of a rank as an integer, or the exponent of two for a floating-point product. */
static int64_t rank_value(const struct twill_bench_payload *payload, int rank, uint64_t position)
{
    const struct type_facts *fact = &facts[payload->type];
    uint64_t bits = mix_position(payload->round, rank, position);
    bool reduces = is_reduction(payload);
    if (reduces && payload->op >= TWILL_LAND && payload->op <= TWILL_LXOR)
        return bits % 3 == 0 ? 0 : (int64_t)(bits % 100 + 1);
    if (fact->integer && (!reduces || payload->op != TWILL_AVG))
        return wrap(fact, bits);
    if (reduces && payload->op == TWILL_PROD)
        return rank < fact->factors ? (int64_t)(bits % 3) - 1 : 0;
    int64_t v = (int64_t)(bits % (uint64_t)(2 * fact->magnitude + 1));
    return fact->is_signed ? v - fact->magnitude : v;
}

/* Return the bits of the number of a floating-point type that is nearest to x, ties to even. They
 * are meaningless if x is too large for the type, which no check needs. */
static uint64_t encode_float(const struct type_facts *fact, double x)
{
    int bias = (1 << (fact->exponent - 1)) - 1, exponent;
    uint64_t sign = signbit(x) ? UINT64_C(1) << (fact->bits - 1) : 0;
    if (x == 0)
        return sign;
    (void)frexp(fabs(x), &exponent); /* fabs(x) in [2^(exponent-1), 2^exponent) */
    int lowest = exponent - 1 > 1 - bias ? exponent - 1 : 1 - bias;
    uint64_t units = (uint64_t)nearbyint(ldexp(fabs(x), fact->mantissa - lowest));
    uint64_t biased = (uint64_t)(lowest + bias - 1) << fact->mantissa;
    return sign | (biased + units); /* the hidden bit adds one to the exponent */
}

/* Store the bits of an element as element i of a buffer. */
static void store_bits(const struct type_facts *fact, void *buffer, size_t i, uint64_t bits)
{
    size_t size = fact->bits / 8;
    memcpy((char *)buffer + i * size, &bits, size); /* little endian */
}

/* Return the bits of element i of a buffer. */
static uint64_t load_bits(const struct type_facts *fact, const void *buffer, size_t i)
{
    uint64_t bits = 0;
    size_t size = fact->bits / 8;
    memcpy(&bits, (const char *)buffer + i * size, size);
    return bits;
}

/* Return the number that the integer v means, which in a product of floats is 2 to the v. */
static double real_value(const struct twill_bench_payload *payload, int64_t v)
{
    return is_reduction(payload) && payload->op == TWILL_PROD ? ldexp(1, (int)v) : (double)v;
}

void twill_bench_fill(const struct twill_bench_payload *payload, int rank, uint64_t first,
                      void *buffer, size_t count)
{
    const struct type_facts *fact = &facts[payload->type];
    for (size_t i = 0; i < count; i++) {
        int64_t v = rank_value(payload, rank, first + i);
        store_bits(fact, buffer, i,
                   fact->integer ? (uint64_t)v : encode_float(fact, real_value(payload, v)));
    }
}

/* Return a op b for the payload's operation. Values of integers wrap around. Floats have integral
 * values, but in a product a and b are exponents of two, which are added. An average is a sum here,
 * which result_element() divides. */
static int64_t combine_operands(const struct twill_bench_payload *payload, int64_t a, int64_t b)
{
    const struct type_facts *fact = &facts[payload->type];
    bool wide = !fact->is_signed && fact->bits == 64;
    bool less = wide ? (uint64_t)a < (uint64_t)b : a < b;
    switch (payload->op) {
    case TWILL_MIN:
        return less ? a : b;
    case TWILL_MAX:
        return less ? b : a;
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
    case TWILL_PROD:
        if (fact->integer)
            return (int64_t)((uint64_t)a * (uint64_t)b);
        return a + b; /* exponents */
    default:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

/* Compute the results at n positions from `first`, before an average divides. */
static void expect_results(const struct twill_bench_payload *payload, uint64_t first, size_t n,
                           int64_t *want)
{
    int from = is_reduction(payload) ? 0 : payload->from;
    for (size_t i = 0; i < n; i++)
        want[i] = rank_value(payload, from, first + i);
    for (int rank = 1; is_reduction(payload) && rank < payload->ranks; rank++)
        for (size_t i = 0; i < n; i++)
            want[i] = combine_operands(payload, want[i], rank_value(payload, rank, first + i));
}

/* Return the bits of the expected element for `want`, a result of expect_results(). For an average,
 * divide it by the number of ranks. Integers are rounded toward 0. f64 is divided in f64, and other
 * floats in f32 and then rounded to their type. */
static uint64_t result_element(const struct twill_bench_payload *payload, int64_t want)
{
    const struct type_facts *fact = &facts[payload->type];
    int divisor = is_reduction(payload) && payload->op == TWILL_AVG ? payload->ranks : 1;
    if (fact->integer && divisor > 1)
        return (uint64_t)(wrap(fact, (uint64_t)want) / divisor);
    if (fact->integer)
        return (uint64_t)want;
    double x = real_value(payload, want);
    if (divisor > 1)
        x = payload->type == TWILL_F64 ? x / divisor : (double)((float)x / (float)divisor);
    return encode_float(fact, x);
}

/* Return whether no partial sum is ever rounded, in any order. */
static bool is_exact(const struct twill_bench_payload *payload)
{
    const struct type_facts *fact = &facts[payload->type];
    bool sums = is_reduction(payload) && (payload->op == TWILL_SUM || payload->op == TWILL_AVG);
    int bits = payload->type == TWILL_F64 ? 53 : 24;
    return fact->integer || !sums || (double)fact->magnitude * payload->ranks <= ldexp(1, bits);
}

/* Return the value of a float with these bits, for any layout, or NAN if it is not finite. A NaN of
 * f8e4m3 counts as 480 or -480. */
static double decode_float(const struct type_facts *fact, uint64_t bits)
{
    uint64_t biased = bits >> fact->mantissa & ((UINT64_C(1) << fact->exponent) - 1);
    uint64_t units = bits & ((UINT64_C(1) << fact->mantissa) - 1);
    int bias = (1 << (fact->exponent - 1)) - 1;
    if (biased == (UINT64_C(1) << fact->exponent) - 1 && fact->exponent != 4)
        return NAN;
    double x = biased == 0 ? ldexp((double)units, 1 - bias - fact->mantissa)
                           : ldexp((double)(units + (UINT64_C(1) << fact->mantissa)),
                                   (int)biased - bias - fact->mantissa);
    return bits >> (fact->bits - 1) ? -x : x;
}

/* Return whether a result is wrong, where `exact` allows no rounding errors. */
static bool is_wrong(const struct twill_bench_payload *payload, bool exact, uint64_t got,
                     int64_t want)
{
    const struct type_facts *fact = &facts[payload->type];
    uint64_t mask = fact->bits == 64 ? UINT64_MAX : (UINT64_C(1) << fact->bits) - 1;
    uint64_t expected = result_element(payload, want) & mask;
    uint64_t sign = fact->integer ? 0 : UINT64_C(1) << (fact->bits - 1);
    if (got == expected || ((got | expected) & ~sign) == 0) /* the sign of a zero is arbitrary */
        return false;
    if (exact)
        return true;
    /* half a unit in the last place of the largest partial sum, for each of them */
    double each = ldexp((double)fact->magnitude * payload->ranks, -fact->mantissa - 1);
    double allowed = each * (payload->ranks + 1) / (payload->op == TWILL_AVG ? payload->ranks : 1);
    return !(fabs(decode_float(fact, got) - decode_float(fact, expected)) <=
             allowed); /* true for a NaN */
}

size_t twill_bench_count_wrong(const struct twill_bench_payload *payload, uint64_t first,
                               const void *buffer, size_t count)
{
    const struct type_facts *fact = &facts[payload->type];
    bool exact = is_exact(payload);
    int64_t want[PAYLOAD_BATCH];
    size_t wrong = 0;
    for (size_t done = 0; done < count; done += PAYLOAD_BATCH) {
        size_t n = count - done < PAYLOAD_BATCH ? count - done : PAYLOAD_BATCH;
        expect_results(payload, first + done, n, want);
        for (size_t i = 0; i < n; i++)
            wrong += is_wrong(payload, exact, load_bits(fact, buffer, done + i), want[i]);
    }
    return wrong;
}
