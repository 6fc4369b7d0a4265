/* SPDX-License-Identifier: Apache-2.0 */
/* The payload of the sweeps and its expected results. Shares no arithmetic with the kernels. */
#include "tests/support/payload.h"
#include "tests/support/numbers.h"

#include <pthread.h>
#include <string.h>

#define PAYLOAD_PERIOD 8191u /* prime, so that no two segments are equal */

/* Facts of a type; `most` bounds summands, so that sums of eight ranks are exact in f32, and
 * `narrow_most` those that are multiplied and summed up in the type. */
static const struct type_facts_of {
    bool is_float, is_unsigned, narrow;
    int64_t most, narrow_most;
} facts[] = {
    [TWILL_F32] = {.is_float = true, .most = 1 << 19},
    [TWILL_F64] = {.is_float = true, .most = INT64_C(1) << 40},
    [TWILL_I32] = {.most = 1 << 26},
    [TWILL_I64] = {.most = INT64_C(1) << 52},
    [TWILL_F16] = {.is_float = true, .narrow = true, .most = 1023, .narrow_most = 128},
    [TWILL_BF16] = {.is_float = true, .narrow = true, .most = 127, .narrow_most = 16},
    [TWILL_I8] = {.most = 15},
    [TWILL_U8] = {.is_unsigned = true, .most = 15},
    [TWILL_I16] = {.most = 4000},
    [TWILL_U16] = {.is_unsigned = true, .most = 4000},
    [TWILL_U32] = {.is_unsigned = true, .most = 1 << 26},
    [TWILL_U64] = {.is_unsigned = true, .most = INT64_C(1) << 52},
    [TWILL_F8E4M3] = {.is_float = true, .narrow = true, .most = 15, .narrow_most = 1},
    [TWILL_F8E5M2] = {.is_float = true, .narrow = true, .most = 7, .narrow_most = 1},
};
_Static_assert(TWILL_ARRAY_LENGTH(facts) == TWILL_TYPE_COUNT, "facts of each");

bool test_payload_takes(twill_type type, twill_op op)
{
    if (op < TWILL_OP_COUNT)
        return twill_test_takes(type, op);
    if (op == TEST_OP_NARROW)
        return facts[type].narrow;
    return op != TEST_OP_AFFINE || type == TWILL_U8;
}

int test_payload_before(twill_type type, int rank)
{
    return facts[type].narrow_most > 1 ? test_payload_factor(rank) : 1;
}

size_t test_payload_element(twill_type type, twill_op op)
{
    if (op == TEST_OP_AFFINE)
        return sizeof(struct test_affine);
    return twill_test_element(type, op < TWILL_OP_COUNT ? op : TWILL_SUM, false);
}

static bool is_located(twill_op op)
{
    return op == TWILL_MINLOC || op == TWILL_MAXLOC;
}

static uint64_t mix_payload(uint64_t rank, uint64_t position)
{
    uint64_t x = (position % PAYLOAD_PERIOD) * 0x9e3779b97f4a7c15u + rank * 0xd1342543de82ef95u + 1;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    return x ^ x >> 27;
}

/* Return a rank's value as an integer; every type can hold it. */
static int64_t value(twill_type type, twill_op op, int rank, uint64_t position)
{
    const struct type_facts_of *f = &facts[type];
    uint64_t bits = mix_payload((uint64_t)rank, position);
    if (op == TEST_OP_XOR)
        return (int64_t)bits;
    switch (op) {
    case TWILL_PROD: /* at most two ranks in eight contribute a 3 */
        if ((rank + (int)(position % 5)) % 4 == 0)
            return 3;
        return f->is_unsigned || bits % 2 ? 1 : -1;
    case TWILL_BAND:
    case TWILL_BOR:
    case TWILL_BXOR:
        return (int64_t)bits;
    case TWILL_LAND:
    case TWILL_LOR:
    case TWILL_LXOR:
        return bits % 5 < 3 ? 0 : (int64_t)(bits % 100);
    case TWILL_MINLOC:
    case TWILL_MAXLOC:
        return (int64_t)(bits % 7) - 3; /* often equal */
    default: {
        int64_t most = op == TEST_OP_NARROW ? f->narrow_most : f->most;
        int64_t v = (int64_t)(bits % (uint64_t)(2 * most + 1));
        return f->is_unsigned ? v : v - most;
    }
    }
}

/* The bits of small integers in narrow floats. Filled in once per process: each conversion of the
 * reference takes some 200 ns. */
enum { PAYLOAD_SMALL = 16384 };
static uint16_t small_narrow[TWILL_TYPE_COUNT][2 * PAYLOAD_SMALL + 1];
static pthread_once_t small_narrow_once = PTHREAD_ONCE_INIT;

static uint64_t convert_narrow(twill_type type, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return twill_test_convert(type, TWILL_F32, bits);
}

static void fill_small_narrow(void)
{
    for (unsigned t = 0; t < TWILL_TYPE_COUNT; t++)
        for (int v = -PAYLOAD_SMALL; v <= PAYLOAD_SMALL && facts[t].narrow; v++)
            small_narrow[t][v + PAYLOAD_SMALL] = (uint16_t)convert_narrow((twill_type)t, (float)v);
}

static uint64_t narrow_of(twill_type type, int64_t v, int divisor)
{
    if (divisor != 1 || v < -PAYLOAD_SMALL || v > PAYLOAD_SMALL)
        return convert_narrow(type, (float)v / (float)divisor);
    pthread_once(&small_narrow_once, fill_small_narrow);
    return small_narrow[type][v + PAYLOAD_SMALL];
}

/* Store v / divisor, divided in the precision that the library guarantees. */
static void put_payload(void *element, twill_type type, int64_t v, int divisor)
{
    float narrow = (float)v / (float)divisor;
    double real = (double)v / divisor;
    uint64_t bits = (uint64_t)(divisor == 1 ? v : v / divisor);
    uint32_t narrow_bits;
    memcpy(&narrow_bits, &narrow, sizeof(narrow));
    if (type == TWILL_F32)
        bits = narrow_bits;
    else if (facts[type].narrow)
        bits = narrow_of(type, v, divisor);
    else if (type == TWILL_F64)
        memcpy(&bits, &real, sizeof(real));
    twill_test_put(type, element, 0, bits);
}

static int32_t payload_place(int rank, uint64_t position)
{
    return (int32_t)((uint64_t)((rank * 5 + 3) % 8) + position % PAYLOAD_PERIOD * 8);
}

static void store_at(unsigned char *at, twill_type type, twill_op op, int64_t v, int divisor,
                     int32_t place)
{
    size_t element = test_payload_element(type, op);
    if (op == TEST_OP_XOR) {
        twill_test_put(type, at, 0, (uint64_t)v);
        return;
    }
    if (is_located(op)) {
        memset(at, 0, element);
        memcpy(at + element / 2, &place, sizeof(place));
    }
    put_payload(at, type, v, divisor);
}

static void reduce_affine(unsigned char *at, uint64_t position, int first, int size)
{
    struct test_affine all = {1, 0};
    for (int r = first; r < first + size; r++) {
        uint64_t bits = mix_payload((uint64_t)r, position);
        const struct test_affine next = {(uint32_t)bits | 1, (uint32_t)(bits >> 32)};
        all = (struct test_affine){all.a * next.a, all.a * next.b + all.b};
    }
    memcpy(at, &all, sizeof(all));
}

/* Return a rank's operand, scaled if the operation scales. */
static int64_t operand(twill_type type, twill_op op, int rank, uint64_t position)
{
    int64_t v = value(type, op, rank, position);
    if (op == TEST_OP_NARROW)
        return v * test_payload_before(type, rank);
    return op == TEST_OP_SCALED ? v * test_payload_factor(rank) : v;
}

static int64_t combine_payload(twill_op op, int64_t a, int64_t b)
{
    if (op == TEST_OP_XOR)
        return a ^ b;
    return (int64_t)twill_test_combine(op < TWILL_OP_COUNT ? op : TWILL_SUM, a, b);
}

static void reduce_one(unsigned char *at, uint64_t position, twill_type type, twill_op op, int size)
{
    int64_t v = operand(type, op, 0, position);
    int32_t place = payload_place(0, position);
    if (size == 1 && op >= TWILL_LAND && op <= TWILL_LXOR) {
        store_at(at, type, op, v, 1, place); /* nothing is combined: the value is unchanged */
        return;
    }
    for (int r = 1; r < size; r++) {
        int64_t x = operand(type, op, r, position);
        int32_t where = payload_place(r, position);
        if (!is_located(op)) {
            v = combine_payload(op, v, x);
            continue;
        }
        bool better = op == TWILL_MINLOC ? x < v : x > v;
        if (better || (x == v && where < place))
            place = where;
        if (better)
            v = x;
    }
    if (op == TEST_OP_NARROW)
        v *= 2;
    store_at(at, type, op, v, op == TWILL_AVG ? size : 1, place);
}

/* Positions repeat: compute one period, then copy. */
static void fill_payload(unsigned char *buffer, size_t count, uint64_t first, twill_type type,
                         twill_op op, int rank, int size)
{
    size_t element = test_payload_element(type, op), made = twill_min(count, PAYLOAD_PERIOD);
    for (size_t i = 0; i < made; i++) {
        unsigned char *at = buffer + i * element;
        if (op == TEST_OP_AFFINE)
            reduce_affine(at, first + i, rank, size > 0 ? size : 1);
        else if (size > 0)
            reduce_one(at, first + i, type, op, size);
        else
            store_at(at, type, op, value(type, op, rank, first + i), 1,
                     payload_place(rank, first + i));
    }
    for (size_t i = made; i < count; i += made)
        memcpy(buffer + i * element, buffer, twill_min(made, count - i) * element);
}

void test_payload(void *buffer, size_t count, uint64_t first, twill_type type, twill_op op,
                  int rank)
{
    fill_payload(buffer, count, first, type, op, rank, 0);
}

void test_payload_reduced(void *buffer, size_t count, uint64_t first, twill_type type, twill_op op,
                          int size)
{
    fill_payload(buffer, count, first, type, op, 0, size);
}
