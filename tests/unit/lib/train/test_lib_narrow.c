/* SPDX-License-Identifier: Apache-2.0 */
/* twill_op_create_narrow(): every algorithm and protocol moves exactly half of f32's bytes, gives
 * all ranks the same bits, and stays within the error that twill(7) states. */
#include "algorithms/algorithms.h"
#include "fabric/shm/single_copy.h"
#include "lib/comm/comm.h"
#include "lib/job/context.h"
#include "tests/support/numbers.h"
#include "tests/support/unit.h"

enum {
    NARROW_RANKS = 8,
    /* Even blocks of whole cache lines, for 2 to 8 ranks, of both widths: with odd ones a byte more
     * or less would go to another rank. */
    NARROW_COUNT = 960 * 32,
    NARROW_FEW = 8 /* elements per rank that fit IMM */
};

static const char *const worlds[] = {"1x2", "1x3", "1x4", "1x5", "1x8", "2x2", "2x3", "5x1"};

/* A type under test: unit roundoff, half of the distance of its denormals, and the distance of
 * input values. */
static const struct narrow_type {
    twill_type type;
    float unit, tiny, step;
} types[] = {
    {TWILL_F16, 0x1p-11F, 0x1p-25F, 0x1p-10F},
    {TWILL_BF16, 0x1p-8F, 0x1p-134F, 0x1p-7F},
    {TWILL_F8E4M3, 0x1p-4F, 0x1p-10F, 0x1p-3F},
    {TWILL_F8E5M2, 0x1p-3F, 0x1p-17F, 0x1p-2F},
};

/* What the ranks of a run share: inputs, their exact sums, and rank 0's results. */
static struct {
    const struct narrow_type *of;
    float factor; /* of inputs, and of the sum */
    float input[NARROW_RANKS][NARROW_COUNT];
    double sum[NARROW_COUNT], magnitude[NARROW_COUNT];
    unsigned char bits[NARROW_RANKS][NARROW_COUNT * 2]; /* the inputs */
    unsigned char first[NARROW_COUNT * 2];
    uint64_t tried[TWILL_COLLECTIVE_COUNT];
    bool halves; /* compare the bytes moved with f32's */
} data;

static uint64_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return bits;
}

static float widened(const void *array, size_t i)
{
    static const twill_type f32 = TWILL_F32;
    uint32_t bits =
        (uint32_t)twill_test_convert(f32, data.of->type, twill_test_get(data.of->type, array, i));
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* Draw inputs that the type has exactly, and repeat them: conversions of the reference are slow. */
static void fill_data(const struct narrow_type *of, int size)
{
    enum { PERIOD = 1999 };
    uint64_t state = 7;
    memset(&data, 0, sizeof(data));
    data.of = of;
    data.factor = 1;
    for (int r = 0; r < size; r++) {
        for (size_t i = 0; i < NARROW_COUNT; i++) {
            int whole = (int)(1 / of->step);
            int n = (int)(twill_test_random(&state) % (unsigned)(2 * whole + 1)) - whole;
            float x = i < PERIOD ? (float)n * of->step : data.input[r][i % PERIOD];
            data.input[r][i] = x;
            data.sum[i] += x;
            data.magnitude[i] += fabsf(x);
            uint64_t bits = i < PERIOD ? twill_test_convert(of->type, TWILL_F32, bits_of(x))
                                       : twill_test_get(of->type, data.bits[r], i % PERIOD);
            twill_test_put(of->type, data.bits[r], i, bits);
        }
    }
}

/* One rank's means. */
struct narrow_rank {
    twill_bootstrap *bootstrap;
    twill_comm *comm;
    twill_op narrow;
    unsigned char *memory[2][2]; /* f32, narrow: src, dst; by twill_alloc() */
    char name[64];               /* of the algorithm under test */
};

/* Have the communicator choose this algorithm from now on. */
static bool ask_for(twill_comm *comm, const char *algorithm)
{
    struct twill_error error = {0};
    twill_chooser_destroy(comm->plan_cache.chooser);
    comm->plan_cache.chooser = NULL;
    comm->plan_cache.last = comm->plan_cache.before = NULL;
    return twill_chooser_create(&comm->plan_cache.chooser, comm->world,
                                comm->context->selection.tuning, algorithm, &error) == TWILL_OK;
}

/* Return the bytes that this rank's schedules have sent and copied. What a transport copies depends
 * on when messages arrive, and is not counted. */
static uint64_t bytes_moved(const twill_comm *comm)
{
    const twill_counters *counters = &comm->usage.counters;
    return counters->bytes_sent + counters->bytes_copied;
}

/* Run a reduction of `count` elements in all. *moved: bytes sent and copied by this rank. */
static twill_status run_call(const struct narrow_rank *n, enum twill_collective collective,
                             bool narrow, size_t count, uint64_t *moved)
{
    const twill_type type = narrow ? data.of->type : TWILL_F32;
    const twill_op op = narrow ? n->narrow : TWILL_SUM;
    void *src = n->memory[narrow][0], *dst = n->memory[narrow][1];
    const uint64_t before = bytes_moved(n->comm);
    twill_status status;
    if (collective == TWILL_ALLREDUCE)
        status = twill_allreduce(n->comm, src, dst, count, type, op);
    else if (collective == TWILL_REDUCE)
        status = twill_reduce(n->comm, src, dst, count, type, op, 0);
    else
        status = twill_reduce_scatter(n->comm, src, dst, count / (size_t)twill_comm_size(n->comm),
                                      type, op);
    *moved = bytes_moved(n->comm) - before;
    return status;
}

/* Check elements of the result, from number `first` of the sum on, against the stated error. */
static bool check_error(const struct narrow_rank *n, const unsigned char *dst, size_t first,
                        size_t count, int size)
{
    const double p = size + (data.factor != 1);
    for (size_t i = 0; i < count; i += i < 500 ? 1 : 37) {
        double error = fabs(widened(dst, i) - data.sum[first + i]);
        double bound = p * (data.of->unit * data.magnitude[first + i] + data.of->tiny);
        if (!(error <= bound))
            return TWILL_NOTE(false, "%s: element %zu is %g, not %g: off by %g, more than %g",
                              n->name, first + i, (double)widened(dst, i), data.sum[first + i],
                              error, bound);
    }
    return true;
}

/* Check the result of a call on this rank. */
static bool check_result(const struct narrow_rank *n, enum twill_collective collective,
                         size_t count)
{
    const int rank = twill_comm_rank(n->comm), size = twill_comm_size(n->comm);
    const unsigned char *dst = n->memory[true][1];
    const size_t bytes = count * twill_type_size(data.of->type);
    if (collective == TWILL_REDUCE_SCATTER)
        return check_error(n, dst, (size_t)rank * (count / (size_t)size), count / (size_t)size,
                           size);
    if (rank == 0 && !check_error(n, dst, 0, count, size))
        return false;
    if (collective == TWILL_REDUCE)
        return true;
    if (rank == 0)
        memcpy(data.first, dst, bytes);
    TWILL_REQUIRE(twill_test_barrier(n->bootstrap));
    bool equal = memcmp(data.first, dst, bytes) == 0;
    TWILL_REQUIRE(twill_test_barrier(n->bootstrap));
    return TWILL_NOTE(equal, "%s: ranks 0 and %d have other bits", n->name, rank);
}

static bool try_collective(struct narrow_rank *n, const struct twill_algorithm *algorithm,
                           const struct twill_shape *shape)
{
    const int size = twill_comm_size(n->comm);
    const bool protocols = algorithm->protocols != 0;
    const size_t count = protocols && shape->protocol == TWILL_PROTOCOL_IMM
                             ? NARROW_FEW * (size_t)size
                             : NARROW_COUNT;
    const size_t width = sizeof(float) / twill_type_size(data.of->type);
    uint64_t wide_bytes = 0, bytes;
    snprintf(n->name, sizeof(n->name), "%s:%s%s%s", twill_collective_name(shape->collective),
             algorithm->name, protocols ? "@" : "",
             protocols ? twill_protocol_name(shape->protocol) : "");
    TWILL_REQUIRE(ask_for(n->comm, n->name));
    twill_status status = TWILL_OK;
    if (data.halves)
        status = run_call(n, shape->collective, false, count, &wide_bytes);
    if (status == TWILL_OK)
        status = run_call(n, shape->collective, true, count, &bytes);
    TWILL_REQUIRE(status == TWILL_OK, "%s: %s", n->name, twill_comm_message(n->comm));
    TWILL_REQUIRE(!data.halves || bytes * width == wide_bytes,
                  "%s, rank %d of %d: %llu bytes, f32 %llu", n->name, twill_comm_rank(n->comm),
                  size, (unsigned long long)bytes, (unsigned long long)wide_bytes);
    if (twill_comm_rank(n->comm) == 0)
        data.tried[shape->collective]++;
    return check_result(n, shape->collective, count);
}

static bool try_algorithms(struct narrow_rank *n)
{
    static const enum twill_collective collectives[] = {TWILL_ALLREDUCE, TWILL_REDUCE,
                                                        TWILL_REDUCE_SCATTER};
    const struct twill_algorithm *algorithm;
    for (size_t a = 0; (algorithm = twill_algorithm_at(a)) != NULL; a++)
        for (unsigned p = 0; p < (algorithm->protocols != 0 ? TWILL_PROTOCOL_COUNT : 1); p++)
            for (unsigned c = 0; c < TWILL_ARRAY_LENGTH(collectives); c++) {
                struct twill_shape shape = {.collective = collectives[c],
                                            .protocol = (enum twill_protocol)p};
                if (twill_algorithm_applies(algorithm, n->comm->world, &shape) &&
                    (p != TWILL_PROTOCOL_FETCHED ||
                     (n->comm->world->nodes == 1 &&
                      twill_single_copy_fetches(n->comm->links.single_copy))) &&
                    !try_collective(n, algorithm, &shape))
                    return false;
            }
    return true;
}

static bool prepare_rank(struct narrow_rank *n, twill_context *context, int rank)
{
    const float *factor = data.factor != 1 ? &data.factor : NULL;
    for (int narrow = 0; narrow < 2; narrow++)
        for (int i = 0; i < 2; i++)
            TWILL_REQUIRE(twill_alloc(context, (void **)&n->memory[narrow][i],
                                      NARROW_COUNT * sizeof(float)) == TWILL_OK);
    memcpy(n->memory[false][0], data.input[rank], sizeof(data.input[rank]));
    memcpy(n->memory[true][0], data.bits[rank], sizeof(data.bits[rank]));
    return twill_op_create_narrow(context, &n->narrow, data.of->type, factor, NULL) == TWILL_OK;
}

static void sweep_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct narrow_rank n = {.bootstrap = bootstrap};
    TWILL_CHECK(twill_test_open(&n.comm, bootstrap, user, TWILL_TEST_PATIENT, "TWILL_PROVIDER=tcp",
                                "TWILL_LOG=none", "TWILL_TUNE=heap_limit=16M"));
    TWILL_CHECK(prepare_rank(&n, twill_comm_context(n.comm), rank) && try_algorithms(&n));
    twill_test_close(n.comm);
}

static void sweep(const struct narrow_type *type, const char *world, bool halves)
{
    int size = twill_test_size(world);
    fill_data(type, size);
    data.halves = halves;
    twill_test_run_ranks(size, sweep_rank, (void *)(uintptr_t)world);
}

/* --- the tests -------------------------------------------------------------------------------- */

TWILL_TEST(f16_moves_half_of_the_bytes)
{
    for (size_t w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++) {
        sweep(&types[0], worlds[w], true);
        print_message("%s: %llu allreduces, %llu reduces, %llu reduce_scatters\n", worlds[w],
                      (unsigned long long)data.tried[TWILL_ALLREDUCE],
                      (unsigned long long)data.tried[TWILL_REDUCE],
                      (unsigned long long)data.tried[TWILL_REDUCE_SCATTER]);
        assert_true(data.tried[TWILL_ALLREDUCE] >= 4);
    }
}

TWILL_TEST(other_types_stay_within_their_error)
{
    for (size_t t = 1; t < TWILL_ARRAY_LENGTH(types); t++)
        sweep(&types[t], worlds[t % 2 ? 3 : 5], false);
}

/* Eight times 40960 exceeds f16's 65504 unless it is divided first. */
TWILL_TEST_ON(an_average_need_not_overflow, ranks, TWILL_LAYOUTS("1x8"), TWILL_TEST_PATIENT,
              "TWILL_LOG=none")
{
    static const char *const algorithms[] = {"direct@staged", "ring", "recursive_doubling"};
    const uint16_t infinite = 0x7c00, large = 0x7900; /* 40960 */
    const float part = 1.0F / (float)size;
    twill_context *context = twill_comm_context(comm);
    twill_op first, last;
    uint16_t src[512], dst[512];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(src); i++)
        src[i] = large;
    TWILL_CHECK(twill_op_create_narrow(context, &first, TWILL_F16, &part, NULL) == TWILL_OK);
    TWILL_CHECK(twill_op_create_narrow(context, &last, TWILL_F16, NULL, &part) == TWILL_OK);
    for (size_t a = 0; a < TWILL_ARRAY_LENGTH(algorithms); a++) {
        TWILL_CHECK(ask_for(comm, algorithms[a]));
        TWILL_CHECK(twill_test_fine(comm, twill_allreduce(comm, src, dst, 512, TWILL_F16, first)));
        TWILL_CHECK(dst[0] == large && dst[511] == large, "%s: divided first: %#x and %#x",
                    algorithms[a], dst[0], dst[511]);
        /* Where one pass adds up all ranks, the sum is divided before it is rounded. */
        TWILL_CHECK(twill_test_fine(comm, twill_allreduce(comm, src, dst, 512, TWILL_F16, last)));
        uint16_t want = a == 0 ? large : infinite;
        TWILL_CHECK(dst[0] == want && dst[511] == want, "%s: divided last: %#x and %#x",
                    algorithms[a], dst[0], dst[511]);
    }
}

/* Ranks whose factors of the sum differ would get other bits. */
TWILL_TEST_ON(the_sums_factor_is_compared, ranks, TWILL_LAYOUTS("1x2"), TWILL_TEST_PATIENT,
              "TWILL_LOG=none")
{
    const float after = (float)(rank + 1);
    twill_op op;
    uint16_t src[64] = {0}, dst[64];
    TWILL_CHECK(twill_op_create_narrow(twill_comm_context(comm), &op, TWILL_F16, NULL, &after) ==
                TWILL_OK);
    TWILL_CHECK(twill_test_barrier(bootstrap));
    TWILL_CHECK(twill_allreduce(comm, src, dst, 64, TWILL_F16, op) == TWILL_ERR_MISMATCH);
}
