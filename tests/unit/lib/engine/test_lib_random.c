/* SPDX-License-Identifier: Apache-2.0 */
/* Real-valued payloads, for which every order of reduction rounds differently: the result is within
 * the error bound of a long double oracle, and has the same bits on all ranks. Includes NaN and
 * infinities. */
#include "algorithms/algorithms.h"
#include "kernels/convert.h"
#include "tests/support/numbers.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

#define ROUNDING_OPS (TWILL_AVG + 1u) /* sum, prod, min, max, avg */
/* Elements: short messages, and one of several segments. */
static const size_t counts[] = {1, 257, 5003};
static const twill_type types[] = {TWILL_F32, TWILL_F64, TWILL_F16, TWILL_BF16};

struct random_run {
    int size;
    const char *nodes; /* TWILL_NODES, or "" */
    const char *algorithm;
    uint64_t seed;
};

/* One of many calls; rank 0 keeps the results of all ranks. */
struct random_call {
    const struct random_run *run;
    twill_type type;
    twill_op op;
    size_t count;
};

static void store_array(twill_type type, void *array, size_t i, double value)
{
    if (type == TWILL_F64)
        ((double *)array)[i] = value;
    else if (type == TWILL_F32)
        ((float *)array)[i] = (float)value;
    else
        twill_test_put(type, array, i,
                       type == TWILL_F16 ? twill_f16_from_f32((float)value)
                                         : twill_bf16_from_f32((float)value));
}

static double load_array(twill_type type, const void *array, size_t i)
{
    if (type == TWILL_F64)
        return ((const double *)array)[i];
    if (type == TWILL_F32)
        return (double)((const float *)array)[i];
    uint16_t bits = (uint16_t)twill_test_get(type, array, i);
    return (double)(type == TWILL_F16 ? twill_f32_from_f16(bits) : twill_f32_from_bf16(bits));
}

/* Infinities and NaN: one rank has one, or two ranks have infinities of opposite signs. */
static bool special_value(int rank, int size, size_t i, double *value)
{
    int first = (int)(i / 17 % (size_t)size), second = (first + 1) % size;
    static const struct {
        double first, second; /* 0: an ordinary number */
    } table[17] = {[3] = {NAN, 0},
                   [5] = {INFINITY, 0},
                   [8] = {-INFINITY, 0},
                   [11] = {INFINITY, -INFINITY},
                   [14] = {NAN, INFINITY}};
    *value = rank == first ? table[i % 17].first : rank == second ? table[i % 17].second : 0;
    return *value != 0;
}

/* Numbers of both signs and many magnitudes; near one if they are multiplied. */
static double payload(const struct random_call *call, int rank, size_t i)
{
    uint64_t state = call->run->seed * 1000003 + (uint64_t)rank * 65537 + i * 31 + call->count;
    uint64_t bits = twill_test_random(&state);
    double value, fraction = (double)(bits >> 12) * 0x1p-52;
    if (special_value(rank, call->run->size, i, &value))
        return value;
    value = call->op == TWILL_PROD ? 15.0 / 16 + fraction / 8
                                   : ldexp(1 + fraction, (int)(bits >> 1 & 7) - 4);
    return bits & 1 ? -value : value;
}

/* Compute the exact result and the bound of the rounding error: gamma(n) times the sum of
 * magnitudes, where n is the most roundings that an element can undergo. */
static long double oracle(const struct random_call *call, size_t i, long double *bound)
{
    int size = call->run->size;
    long double value = 0, magnitude = 0;
    for (int r = 0; r < size; r++) {
        double element; /* as the type has it */
        store_array(call->type, &element, 0, payload(call, r, i));
        long double x = (long double)load_array(call->type, &element, 0);
        magnitude += fabsl(x);
        if (r == 0)
            value = x;
        else if (call->op == TWILL_PROD)
            value *= x;
        else if (call->op == TWILL_MIN || call->op == TWILL_MAX)
            value = isnan(x) || isnan(value)                 ? (long double)NAN
                    : (x < value) == (call->op == TWILL_MIN) ? x
                                                             : value;
        else
            value += x;
    }
    /* 16 bits: the roundings of f32 add less than one more; an average divides. */
    const struct twill_test_layout *layout = twill_test_layout(call->type);
    long double n = size - 1 + (layout->bits == 16) + (call->op == TWILL_AVG);
    long double nu = n * ldexpl(1, -(int)layout->mantissa - 1);
    long double gamma = nu / (1 - nu) + size * 0x1p-63L; /* the oracle rounds too */
    if (call->op == TWILL_AVG) {
        value /= size;
        magnitude /= size;
    }
    *bound = call->op == TWILL_PROD ? gamma * fabsl(value) : gamma * magnitude;
    if (call->op == TWILL_MIN || call->op == TWILL_MAX)
        *bound = 0;
    *bound += ldexpl(1, 1 - layout->bias - (int)layout->mantissa); /* a denormal */
    return value;
}

static bool check_values(const struct random_call *call, const void *result, size_t index)
{
    static const uint64_t nans[TWILL_TYPE_COUNT] = {[TWILL_F32] = TWILL_NAN_F32,
                                                    [TWILL_F64] = TWILL_NAN_F64,
                                                    [TWILL_F16] = TWILL_NAN_F16,
                                                    [TWILL_BF16] = TWILL_NAN_BF16};
    for (size_t i = 0; i < call->count; i++) {
        long double bound, want = oracle(call, i, &bound);
        long double got = (long double)load_array(call->type, result, i);
        bool right = isnan(want)   ? twill_test_get(call->type, result, i) == nans[call->type]
                     : isinf(want) ? got == want
                                   : fabsl(got - want) <= bound;
        TWILL_REQUIRE(right,
                      "%d ranks (%s) %s: call %zu, %s %s count %zu element %zu: %.20Lg, not "
                      "%.20Lg (within %Lg)",
                      call->run->size, call->run->nodes, call->run->algorithm, index,
                      twill_type_name(call->type), twill_op_name(call->op), call->count, i, got,
                      want, bound);
    }
    return true;
}

/* Call with every count, type and operation; results one after the other. */
static bool call_at(const struct random_run *run, size_t index, struct random_call *call)
{
    size_t n = TWILL_ARRAY_LENGTH(types);
    *call = (struct random_call){
        .run = run, .type = types[index % n], .op = (twill_op)(index / n % ROUNDING_OPS)};
    if (index >= n * ROUNDING_OPS * TWILL_ARRAY_LENGTH(counts))
        return false;
    call->count = counts[index / n / ROUNDING_OPS];
    return true;
}

static size_t random_bytes(const struct random_call *call)
{
    return twill_round_up(call->count * twill_type_size(call->type), 8);
}

static bool run_calls(twill_comm *comm, const struct random_run *run, int rank,
                      unsigned char *results)
{
    struct random_call call;
    for (size_t k = 0; call_at(run, k, &call); results += random_bytes(&call), k++) {
        double src[5003];
        void *from = k % 2 ? (void *)results : src;
        for (size_t i = 0; i < call.count; i++)
            store_array(call.type, from, i, payload(&call, rank, i));
        twill_status status = twill_allreduce(comm, from, results, call.count, call.type, call.op);
        TWILL_REQUIRE(status == TWILL_OK, "%s: %s", run->algorithm, twill_comm_message(comm));
    }
    return true;
}

/* Check that all ranks have the same bits, and rank 0 the right ones. */
static void check_results(const struct random_run *run, const unsigned char *all, size_t bytes)
{
    struct random_call call;
    size_t at = 0;
    for (size_t k = 0; call_at(run, k, &call); at += random_bytes(&call), k++) {
        for (int r = 1; r < run->size; r++)
            TWILL_CHECK(memcmp(all + at, all + (size_t)r * bytes + at,
                               call.count * twill_type_size(call.type)) == 0,
                        "%s (%s): %s %s count %zu: rank %d of %d has other bits than rank 0",
                        run->algorithm, run->nodes, twill_type_name(call.type),
                        twill_op_name(call.op), call.count, r, run->size);
        if (!check_values(&call, all + at, k))
            return;
    }
}

static void random_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct random_run *run = user;
    size_t bytes = 0;
    struct random_call call;
    for (size_t k = 0; call_at(run, k, &call); k++)
        bytes += random_bytes(&call);
    unsigned char *results = calloc(1, bytes), *all = malloc((size_t)size * bytes);
    twill_comm *comm;
    bool ok =
        twill_test_open(&comm, bootstrap, run->nodes,
                        twill_test_text("TWILL_ALGORITHM=%s", run->algorithm),
                        "TWILL_TUNE=heap_limit=4M,segment=4K,segment_net=8K", TWILL_TEST_PATIENT) &&
        TWILL_NOTE(results != NULL && all != NULL && bytes <= TWILL_TEST_EXCHANGE_BYTES,
                   "%zu bytes of results", bytes) &&
        run_calls(comm, run, rank, results);
    if (ok && bootstrap->exchange(bootstrap->user, results, all, bytes) == 0 && rank == 0)
        check_results(run, all, bytes);
    twill_test_close(comm);
    free(results);
    free(all);
}

static bool applies(const struct twill_algorithm *algorithm, const struct random_run *run)
{
    struct twill_world world;
    struct twill_shape shape = {.collective = TWILL_ALLREDUCE};
    test_world_of_nodes(&world, run->nodes, run->size);
    bool yes = twill_algorithm_applies(algorithm, &world, &shape);
    twill_world_destroy(&world);
    return yes;
}

TWILL_TEST(test_random)
{
    static const struct random_run worlds[] = {
        {.size = 2, .nodes = ""}, {.size = 3, .nodes = ""},    {.size = 5, .nodes = ""},
        {.size = 8, .nodes = ""}, {.size = 4, .nodes = "2x2"}, {.size = 5, .nodes = "3+2"}};
    unsigned runs = 0;
    for (size_t w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++) {
        struct random_run run = worlds[w];
        const struct twill_algorithm *algorithm;
        run.algorithm = ""; /* the choice of twill_select() */
        run.seed = ++runs;
        twill_test_run_ranks(run.size, random_rank, &run);
        for (size_t a = 0; (algorithm = twill_algorithm_at(a)) != NULL; a++) {
            char name[64];
            /* Similar worlds are adjacent, so no algorithm is left out; TEST_SEED has the others
             * in turn. */
            if (!applies(algorithm, &run) ||
                (!test_whole() && (a + w + test_seed()) % (TEST_SLOW ? 4 : 2) != 0))
                continue;
            snprintf(name, sizeof(name), "allreduce:%s", algorithm->name);
            run.algorithm = name;
            run.seed = ++runs;
            twill_test_run_ranks(run.size, random_rank, &run);
        }
    }
    print_message("%u combinations of world and algorithm\n", runs);
}
