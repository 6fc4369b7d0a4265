/* SPDX-License-Identifier: Apache-2.0 */
/* TWILL_REPRODUCIBLE=1: sums that depend on the order have the bits of the reduction from rank 0
 * upwards, whatever the algorithm, nodes, segments, threads, memory and form of the call. Without
 * it, other orders give other bits, so this test can fail. */
#include "algorithms/algorithms.h"
#include "lib/base/lists.h"
#include "tests/support/collectives.h"
#include "tests/support/numbers.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

enum { REPRODUCIBLE_RANKS = 8, REPRODUCIBLE_COUNT = 8 * 403, MOST_ELEMENT = 8 };

static const twill_type types[] = {TWILL_F32, TWILL_F64, TWILL_F16, TWILL_BF16, TWILL_F8E4M3};

struct table;

struct setting {
    const char *nodes, *algorithm, *segment, *threads, *reproducible;
    bool heap;
    const struct table *tables;
    uint64_t differ; /* wrong elements */
};

/* Numbers of very different sizes, so that every association rounds differently. */
static void fill_numbers(twill_type type, void *array, int rank)
{
    uint64_t state = (uint64_t)rank * 77 + (uint64_t)type;
    for (size_t i = 0; i < REPRODUCIBLE_COUNT; i++) {
        uint64_t random = twill_test_random(&state);
        int exponent = (int)(random >> 40 & 31) - 27;
        float x = ldexpf((float)((int)(random & 0xffffff) - 0x800000) / 0x400000, exponent);
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        twill_test_put(type, array, i, twill_test_convert(type, TWILL_F32, bits));
    }
}

/* Reduce from rank 0 upwards. */
static void
expect_left_sum(twill_type type, twill_op op,
                unsigned char inputs[REPRODUCIBLE_RANKS][REPRODUCIBLE_COUNT * MOST_ELEMENT],
                void *want)
{
    const void *source[REPRODUCIBLE_RANKS];
    for (int r = 0; r < REPRODUCIBLE_RANKS; r++)
        source[r] = inputs[r];
    struct twill_reduction reduction = {.type = type, .op = op, .divisor = REPRODUCIBLE_RANKS};
    twill_test_reduce(&reduction, want, source, REPRODUCIBLE_RANKS, REPRODUCIBLE_COUNT);
}

/* Inputs and results of every type and operation, computed once for all settings. */
struct table {
    unsigned char inputs[REPRODUCIBLE_RANKS][REPRODUCIBLE_COUNT * MOST_ELEMENT];
    unsigned char want[2][REPRODUCIBLE_COUNT * MOST_ELEMENT]; /* sum, avg */
};

static struct table *make_tables(void)
{
    struct table *tables = calloc(TWILL_ARRAY_LENGTH(types), sizeof(*tables));
    assert_non_null(tables);
    for (size_t t = 0; t < TWILL_ARRAY_LENGTH(types); t++) {
        for (int r = 0; r < REPRODUCIBLE_RANKS; r++)
            fill_numbers(types[t], tables[t].inputs[r], r);
        expect_left_sum(types[t], TWILL_SUM, tables[t].inputs, tables[t].want[0]);
        expect_left_sum(types[t], TWILL_AVG, tables[t].inputs, tables[t].want[1]);
    }
    return tables;
}

static uint64_t differing(twill_type type, const void *got, const void *want, size_t count)
{
    uint64_t n = 0;
    for (size_t i = 0; i < count; i++)
        n += twill_test_get(type, got, i) != twill_test_get(type, want, i);
    return n;
}

/* A narrow sum rounds once, in the end, as any other. */
static bool try_narrow(twill_comm *comm, const void *src, void *dst, twill_type type,
                       const void *want, uint64_t *differ)
{
    twill_context *context = twill_comm_context(comm);
    twill_op op;
    TWILL_REQUIRE(twill_op_create_narrow(context, &op, type, NULL, NULL) == TWILL_OK);
    TWILL_REQUIRE(twill_allreduce(comm, src, dst, REPRODUCIBLE_COUNT, type, op) == TWILL_OK);
    *differ += differing(type, dst, want, REPRODUCIBLE_COUNT);
    return twill_op_destroy(context, op) == TWILL_OK;
}

static bool try_type(struct setting *s, twill_comm *comm, unsigned char *const memory[2], size_t t,
                     twill_op op)
{
    twill_type type = types[t];
    size_t element = twill_type_size(type), shard = REPRODUCIBLE_COUNT / REPRODUCIBLE_RANKS;
    int rank = twill_comm_rank(comm), root = 3;
    unsigned char *src = memory[0], *dst = memory[1];
    const unsigned char *want = s->tables[t].want[op == TWILL_AVG];
    uint64_t differ = 0;
    memcpy(src, s->tables[t].inputs[rank], REPRODUCIBLE_COUNT * element);
    TWILL_REQUIRE(twill_allreduce(comm, src, dst, REPRODUCIBLE_COUNT, type, op) == TWILL_OK);
    differ += differing(type, dst, want, REPRODUCIBLE_COUNT);
    TWILL_REQUIRE(twill_reduce(comm, src, dst, REPRODUCIBLE_COUNT, type, op, root) == TWILL_OK);
    if (rank == root)
        differ += differing(type, dst, want, REPRODUCIBLE_COUNT);
    TWILL_REQUIRE(twill_reduce_scatter(comm, src, dst, shard, type, op) == TWILL_OK);
    differ += differing(type, dst, want + (size_t)rank * shard * element, shard);
    if (op == TWILL_SUM && twill_type_is_narrow(type))
        TWILL_REQUIRE(try_narrow(comm, src, dst, type, want, &differ));
    TWILL_REQUIRE(twill_allreduce(comm, src, src, 5, type, op) == TWILL_OK);
    differ += differing(type, src, want, 5);
    if (strcmp(s->reproducible, "1") == 0)
        TWILL_REQUIRE(differ == 0, "rank %d, nodes %s, %s: %s %s: %llu elements differ", rank,
                      s->nodes, s->algorithm, twill_type_name(type), twill_op_name(op),
                      (unsigned long long)differ);
    if (rank == 0)
        s->differ += differ;
    return true;
}

static void run_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct setting *s = user;
    twill_context *context;
    twill_comm *comm;
    struct test_buffers buffers = {.src = NULL};
    bool good =
        twill_test_join(&context, &comm, bootstrap, s->nodes,
                        twill_test_text("TWILL_ALGORITHM=%s", s->algorithm),
                        twill_test_text("TWILL_TUNE=thread_bytes=16K,segment=%s,segment_net=%s",
                                        s->segment, s->segment),
                        twill_test_text("TWILL_THREADS=%s", s->threads),
                        twill_test_text("TWILL_REPRODUCIBLE=%s", s->reproducible),
                        TWILL_TEST_PATIENT, "TWILL_LOG=none") &&
        test_buffers_get(&buffers, context, REPRODUCIBLE_COUNT * MOST_ELEMENT, 0, s->heap);
    unsigned char *const memory[2] = {buffers.src, buffers.dst};
    for (size_t t = 0; good && t < TWILL_ARRAY_LENGTH(types); t++)
        good = try_type(s, comm, memory, t, TWILL_SUM) && try_type(s, comm, memory, t, TWILL_AVG);
    (void)TWILL_NOTE(good, "%s", twill_comm_message(comm));
    test_buffers_put(&buffers, context, s->heap);
    twill_test_disconnect(comm, context);
}

static const char *const nodes[] = {"", "2x4", "4x2", "8x1", "3+4+1"};

/* Does the library accept this name for an allreduce here? */
static bool applies(const struct twill_algorithm *a, const char *shape)
{
    struct twill_world world;
    struct twill_shape wanted = {.collective = TWILL_ALLREDUCE, .protocol = TWILL_PROTOCOL_STAGED};
    test_world_of_nodes(&world, shape, REPRODUCIBLE_RANKS);
    bool yes = twill_algorithm_applies(a, &world, &wanted);
    twill_world_destroy(&world);
    return yes;
}

/* Every allreduce algorithm, by name, on the kinds of world that it applies to and whose turn it is
 * by TEST_SEED, one in two or in four under a sanitizer; on all with TEST_WHOLE. */
TWILL_TEST(same_bits)
{
    unsigned runs = 0;
    struct table *tables = make_tables();
    const struct twill_algorithm *a;
    for (size_t i = 0; (a = twill_algorithm_at(i)) != NULL; i++) {
        for (size_t n = 0; n < TWILL_ARRAY_LENGTH(nodes); n++) {
            struct setting s = {.nodes = nodes[n],
                                .algorithm = i == 0 ? "auto" : a->name,
                                .segment = i % 2 ? "4K" : "64K",
                                .threads = i % 3 ? "1" : "2",
                                .reproducible = "1",
                                .heap = (i + n / 2) % 2,
                                .tables = tables};
            if (!applies(a, nodes[n]) ||
                (!test_whole() && (i + n + test_seed()) % (TEST_SLOW ? 4 : 2) != 0))
                continue;
            twill_test_run_ranks(REPRODUCIBLE_RANKS, run_rank, &s);
            runs++;
        }
    }
    free(tables);
    print_message("%u settings gave the same bits\n", runs);
}

/* A ring starts each shard at another rank: without the variable its bits differ. */
TWILL_TEST(other_bits)
{
    struct table *tables = make_tables();
    struct setting s = {.nodes = "8x1",
                        .algorithm = "allreduce:ring",
                        .segment = "64K",
                        .threads = "1",
                        .reproducible = "0",
                        .tables = tables};
    twill_test_run_ranks(REPRODUCIBLE_RANKS, run_rank, &s);
    free(tables);
    assert_true(s.differ > 0);
}
