/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads and their oracle.
 *
 * Integers use all their bits, since wrap-around is exact (avg: small enough not to wrap).
 * Floating-point sums use small integers and products powers of two, so that every order of
 * reduction gives the same exact result up to a number of ranks that depends on the type; only
 * beyond it, or when an average divides by no power of two, a tolerance is granted. */
#include "bench/payload.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define CHUNK 512

static const struct type_facts {
    bool integer;
    unsigned bits;     /* of an element */
    int mantissa;      /* bits, the hidden one included */
    int64_t magnitude; /* of values in sum, min, max and avg */
} facts[TWILL_TYPE_COUNT] = {
    [TWILL_F32] = {false, 32, 24, 1 << 15}, [TWILL_F64] = {false, 64, 53, INT64_C(1) << 40},
    [TWILL_I32] = {true, 32, 31, 1 << 20},  [TWILL_I64] = {true, 64, 63, INT64_C(1) << 40},
    [TWILL_F16] = {false, 16, 11, 31},      [TWILL_BF16] = {false, 16, 8, 7},
};

static uint64_t mix(unsigned round, int rank, uint64_t position)
{
    uint64_t x =
        position + UINT64_C(0x9E3779B97F4A7C15) * ((uint64_t)round * 65537 + (uint64_t)rank + 1);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static bool is_reduction(const struct twill_bench_payload *payload)
{
    return payload->root < 0;
}

/* A rank's value as an integer; for a floating-point product it is the exponent of two. */
static int64_t value(const struct twill_bench_payload *payload, int rank, uint64_t position)
{
    const struct type_facts *fact = &facts[payload->type];
    uint64_t bits = mix(payload->round, rank, position);
    if (fact->integer && (!is_reduction(payload) || payload->op != TWILL_AVG))
        return fact->bits == 32 ? (int32_t)bits : (int64_t)bits;
    if (is_reduction(payload) && payload->op == TWILL_PROD)
        return rank < 12 ? (int64_t)(bits % 3) - 1 : 0;
    return (int64_t)(bits % (uint64_t)(2 * fact->magnitude + 1)) - fact->magnitude;
}

static uint16_t encode_16(double x, int exponent_bits, int mantissa_bits)
{
    if (x == 0)
        return 0;
    int exponent;
    double fraction = frexp(fabs(x), &exponent); /* in [0.5, 1) */
    int biased = exponent - 1 + (1 << (exponent_bits - 1)) - 1;
    unsigned mantissa = (unsigned)ldexp(fraction, mantissa_bits + 1) & ((1u << mantissa_bits) - 1);
    return (uint16_t)((x < 0 ? 0x8000u : 0) | (unsigned)biased << mantissa_bits | mantissa);
}

static double decode_16(uint16_t bits, int exponent_bits, int mantissa_bits)
{
    int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    int mantissa = bits & ((1 << mantissa_bits) - 1);
    int bias = (1 << (exponent_bits - 1)) - 1;
    double x;
    if (exponent == (1 << exponent_bits) - 1)
        x = mantissa ? NAN : INFINITY;
    else if (exponent == 0)
        x = ldexp(mantissa, 1 - bias - mantissa_bits);
    else
        x = ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
    return bits & 0x8000 ? -x : x;
}

static void store(twill_type type, void *buffer, size_t i, int64_t integer, double x)
{
    switch (type) {
    case TWILL_F32:
        ((float *)buffer)[i] = (float)x;
        break;
    case TWILL_F64:
        ((double *)buffer)[i] = x;
        break;
    case TWILL_I32:
        ((int32_t *)buffer)[i] = (int32_t)integer;
        break;
    case TWILL_I64:
        ((int64_t *)buffer)[i] = integer;
        break;
    case TWILL_F16:
        ((uint16_t *)buffer)[i] = encode_16(x, 5, 10);
        break;
    default:
        ((uint16_t *)buffer)[i] = encode_16(x, 8, 7);
    }
}

static double load(twill_type type, const void *buffer, size_t i)
{
    switch (type) {
    case TWILL_F32:
        return ((const float *)buffer)[i];
    case TWILL_F64:
        return ((const double *)buffer)[i];
    case TWILL_F16:
        return decode_16(((const uint16_t *)buffer)[i], 5, 10);
    default:
        return decode_16(((const uint16_t *)buffer)[i], 8, 7);
    }
}

static double real(const struct twill_bench_payload *payload, int64_t v)
{
    return is_reduction(payload) && payload->op == TWILL_PROD ? ldexp(1, (int)v) : (double)v;
}

void twill_bench_fill(const struct twill_bench_payload *payload, int rank, void *buffer,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int64_t v = value(payload, rank, i);
        bool integer = facts[payload->type].integer;
        store(payload->type, buffer, i, v, integer ? 0 : real(payload, v));
    }
}

/* a and b as the operation combines them; a floating-point product adds exponents. */
static int64_t combine(const struct twill_bench_payload *payload, int64_t a, int64_t b)
{
    switch (payload->op) {
    case TWILL_MIN:
        return a < b ? a : b;
    case TWILL_MAX:
        return a > b ? a : b;
    case TWILL_PROD:
        if (facts[payload->type].integer)
            return (int64_t)((uint64_t)a * (uint64_t)b);
        return a + b;
    default:
        return (int64_t)((uint64_t)a + (uint64_t)b);
    }
}

/* The result at n positions from `first`, before an average divides. */
static void expect(const struct twill_bench_payload *payload, size_t first, size_t n, int64_t *want)
{
    int from = is_reduction(payload) ? 0 : payload->root;
    for (size_t i = 0; i < n; i++)
        want[i] = value(payload, from, first + i);
    for (int rank = 1; is_reduction(payload) && rank < payload->ranks; rank++)
        for (size_t i = 0; i < n; i++)
            want[i] = combine(payload, want[i], value(payload, rank, first + i));
}

/* How far a result may lie from the exact one: zero wherever no order of operations rounds. */
static double tolerance(const struct twill_bench_payload *payload)
{
    const struct type_facts *fact = &facts[payload->type];
    bool sums = is_reduction(payload) && (payload->op == TWILL_SUM || payload->op == TWILL_AVG);
    if (!sums)
        return 0;
    double bound = (double)fact->magnitude * payload->ranks;
    bool exact = bound <= ldexp(1, fact->mantissa);
    bool average = payload->op == TWILL_AVG;
    if (average && (payload->ranks & (payload->ranks - 1)) != 0)
        exact = false;
    double each = ldexp(bound, -fact->mantissa); /* half a unit in the last place of the bound */
    return exact ? 0 : each * (payload->ranks + 1) / (average ? payload->ranks : 1);
}

static size_t count_wrong_integers(const struct twill_bench_payload *payload, const void *buffer,
                                   size_t first, size_t n, const int64_t *want)
{
    size_t wrong = 0;
    bool average = is_reduction(payload) && payload->op == TWILL_AVG;
    for (size_t i = 0; i < n; i++) {
        int64_t expected = average ? want[i] / payload->ranks : want[i];
        if (payload->type == TWILL_I32)
            wrong += ((const int32_t *)buffer)[first + i] != (int32_t)expected;
        else
            wrong += ((const int64_t *)buffer)[first + i] != expected;
    }
    return wrong;
}

static size_t count_wrong_reals(const struct twill_bench_payload *payload, const void *buffer,
                                size_t first, size_t n, const int64_t *want)
{
    size_t wrong = 0;
    double divisor = is_reduction(payload) && payload->op == TWILL_AVG ? payload->ranks : 1;
    double allowed = tolerance(payload);
    for (size_t i = 0; i < n; i++) {
        double expected = real(payload, want[i]) / divisor;
        /* written so that a NaN is wrong */
        wrong += !(fabs(load(payload->type, buffer, first + i) - expected) <= allowed);
    }
    return wrong;
}

size_t twill_bench_count_wrong(const struct twill_bench_payload *payload, const void *buffer,
                               size_t count)
{
    int64_t want[CHUNK];
    size_t wrong = 0;
    for (size_t first = 0; first < count; first += CHUNK) {
        size_t n = count - first < CHUNK ? count - first : CHUNK;
        expect(payload, first, n, want);
        wrong += facts[payload->type].integer
                     ? count_wrong_integers(payload, buffer, first, n, want)
                     : count_wrong_reals(payload, buffer, first, n, want);
    }
    return wrong;
}
