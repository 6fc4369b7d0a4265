/* SPDX-License-Identifier: Apache-2.0 */
/* Exact costs of algorithms: rounds, messages and bytes of the rank that has most of them, and of
 * all ranks together. */
#include "algorithms/patterns/block_schedule.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

#define NOTHING UINT32_MAX /* an expected cost of 0; those that are left out are not checked */
#define SHAPE(...)                                                                                 \
    (struct twill_shape)                                                                           \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define COSTS(...)                                                                                 \
    (struct test_costs)                                                                            \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

static void check_field(const char *what, const char *field, uint64_t cost, uint64_t expected)
{
    if (expected != 0 && cost != (expected == NOTHING ? 0 : expected))
        fail_msg("%s: %s: %llu, not %llu", what, field, (unsigned long long)cost,
                 (unsigned long long)(expected == NOTHING ? 0 : expected));
}

/* Check the costs of a call of n bytes, and return them. Does nothing if the algorithm does not
 * apply: each one does to multiples of four ranks. */
static struct test_costs expect(struct twill_world *world, const char *name,
                                struct twill_shape shape, uint64_t n, struct test_costs expected)
{
    char what[100];
    if (!twill_algorithm_applies(test_algorithm_find(name), world, &shape)) {
        assert_int_not_equal(world->size % 4, 0);
        return COSTS(0);
    }
    struct test_costs c = test_cost_of(name, world, &shape, n / 4);
    snprintf(what, sizeof(what), "%s %s, %u ranks on %u nodes", name,
             twill_collective_name(shape.collective), world->size, world->nodes);
#define CHECK_FIELD(field)                                                                         \
    check_field(what, "the most " #field, c.most.field, expected.most.field);                      \
    check_field(what, "the sum of " #field, c.sum.field, expected.sum.field)
    CHECK_FIELD(messages);
    CHECK_FIELD(rounds);
    CHECK_FIELD(peers);
    CHECK_FIELD(signals);
    CHECK_FIELD(bytes_sent);
    CHECK_FIELD(bytes_remote);
    CHECK_FIELD(bytes_shared);
    CHECK_FIELD(bytes_reduced);
#undef CHECK_FIELD
    return c;
}

/* --- one rank per node ------------------------------------------------------------------------ */

/* Call fn with 2 to `most` ranks and a message that ranks, blocks and rings divide. */
static void each_size(uint32_t most, void (*fn)(struct twill_world *world, uint32_t p, uint64_t n))
{
    for (uint32_t p = 2; p <= most; p++) {
        struct twill_world world;
        test_grid(&world, p, 1);
        fn(&world, p, UINT64_C(4096) * p);
        twill_world_destroy(&world);
    }
}

static void check_rings(struct twill_world *world, uint32_t p, uint64_t n)
{
    const struct twill_shape allreduce = SHAPE(.collective = TWILL_ALLREDUCE);
    const struct test_schedule_cost all = {.bytes_sent = 2 * n * (p - 1),
                                           .bytes_reduced = n * (p - 1)};
    uint32_t x = 1; /* of a torus that is as square as possible */
    for (uint32_t d = 1; d * d <= p; d++)
        x = p % d == 0 ? d : x;
    expect(world, "ring", allreduce, n,
           COSTS(.most = {.rounds = 2 * (p - 1),
                          .messages = 2 * (p - 1),
                          .peers = p == 2 ? 1 : 2,
                          .signals = NOTHING,
                          .bytes_sent = 2 * n / p * (p - 1),
                          .bytes_reduced = n / p * (p - 1)},
                 .sum = {.rounds = 2 * p * (p - 1),
                         .bytes_sent = all.bytes_sent,
                         .bytes_reduced = all.bytes_reduced}));
    /* The default is two rings, each in its lane. */
    expect(world, "multi_ring", allreduce, n,
           COSTS(.most = {.rounds = 4 * (p - 1), .bytes_sent = 2 * n / p * (p - 1)}, .sum = all));
    expect(world, "torus", allreduce, n,
           COSTS(.most = {.rounds = 2 * (x + p / x - 2), .bytes_sent = 2 * n / p * (p - 1)},
                 .sum = all));
    /* An odd count: the same total, individual blocks differ by one cache line at most. */
    const uint64_t odd = 4 * 1000003;
    struct test_costs c =
        expect(world, "ring", allreduce, odd, COSTS(.sum = {.bytes_sent = 2 * odd * (p - 1)}));
    assert_true(c.most.bytes_sent <= 2 * (odd / p + 128) * (p - 1));
}

/* How many messages are posted at once decides the rounds of some. */
static void check_allreduces(struct twill_world *world, uint32_t p, uint64_t n)
{
    const struct twill_shape allreduce = SHAPE(.collective = TWILL_ALLREDUCE);
    const struct test_schedule_cost all = {.bytes_sent = 2 * n * (p - 1),
                                           .bytes_reduced = n * (p - 1)};
    const uint32_t log = test_ceil_log(p);
    expect(world, "pairwise", allreduce, n,
           COSTS(.most = {.bytes_sent = 2 * n / p * (p - 1)}, .sum = all));
    expect(world, "hub", allreduce, n, COSTS(.most = {.bytes_sent = n * (p - 1)}, .sum = all));
    expect(world, "allgather_reduce", allreduce, n,
           COSTS(.most = {.bytes_sent = n * (p - 1)},
                 .sum = {.bytes_sent = n * p * (p - 1), .bytes_reduced = n * p * (p - 1)}));
    struct test_costs c =
        expect(world, "halving_doubling", allreduce, n,
               COSTS(.most = {.rounds = p == 1u << log ? 2 * log : 0, /* else a bound */
                              .bytes_sent = 2 * n / p * (p - 1)},
                     .sum = all));
    assert_true(c.most.rounds <= 2 * log);
    c = expect(world, "double_tree", allreduce, n, COSTS(.sum = all));
    assert_true(c.most.rounds <= 2 * log + 16 && c.most.bytes_sent <= 2 * n);
    c = expect(world, "chain", allreduce, n, COSTS(.sum = all));
    assert_true(c.most.bytes_sent <= 2 * n);
}

static void check_doubling(struct twill_world *world, uint32_t p, uint64_t n)
{
    uint32_t log = test_floor_log(p), extra = p - (1u << log), messages = (log << log) + 2 * extra;
    expect(world, "recursive_doubling", SHAPE(.collective = TWILL_ALLREDUCE), n,
           COSTS(.most = {.rounds = log + (extra ? 2 : 0),
                          .bytes_sent = n * (log + (extra ? 1 : 0)),
                          .peers = log + (extra ? 1 : 0)},
                 .sum = {.messages = messages, .bytes_sent = n * messages}));
    expect(world, "recursive_doubling", SHAPE(.collective = TWILL_BARRIER), 0,
           COSTS(.sum = {.messages = messages, .bytes_sent = NOTHING, .bytes_reduced = NOTHING}));
}

/* Count the children of the root, and how often shards are sent in all: each once per level above
 * it, that is, once per non-zero digit of its number. */
static uint32_t digits(uint32_t p, uint32_t radix, uint32_t *children)
{
    uint32_t hops = 0;
    *children = 0;
    for (uint32_t v = 1; v < p; v++) {
        uint32_t own = 0;
        for (uint32_t rest = v; rest > 0; rest /= radix)
            own += rest % radix != 0;
        hops += own;
        *children += own == 1;
    }
    return hops;
}

static void check_tree(struct twill_world *world, uint32_t p, uint64_t n)
{
    static const uint16_t radix[] = {0, 2, 3, 4, 8, 64};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(radix); i++) {
        uint32_t children, k = radix[i] == 0 ? 2 : radix[i], hops = digits(p, k, &children);
        if (k == 2)
            assert_int_equal(children, test_ceil_log(p));
        expect(world, "tree", SHAPE(.collective = TWILL_BROADCAST, .parameter = {radix[i]}), n,
               COSTS(.most = {.messages = children, .bytes_sent = n * children},
                     .sum = {.messages = p - 1, .bytes_sent = n * (p - 1)}));
        expect(world, "tree", SHAPE(.collective = TWILL_REDUCE, .parameter = {radix[i]}), n,
               COSTS(.most = {.bytes_sent = n, .bytes_reduced = n * children},
                     .sum = {.messages = p - 1, .bytes_reduced = n * (p - 1)}));
        expect(world, "tree", SHAPE(.collective = TWILL_GATHER, .parameter = {radix[i]}), n,
               COSTS(.sum = {.messages = p - 1, .bytes_sent = n / p * hops}));
        expect(world, "tree", SHAPE(.collective = TWILL_SCATTER, .parameter = {radix[i]}), n,
               COSTS(.most = {.bytes_sent = n / p * (p - 1)},
                     .sum = {.messages = p - 1, .bytes_sent = n / p * hops}));
    }
}

static void check_linear(struct twill_world *world, uint32_t p, uint64_t n)
{
    expect(world, "linear", SHAPE(.collective = TWILL_BROADCAST), n,
           COSTS(.most = {.messages = p - 1, .bytes_sent = n * (p - 1)},
                 .sum = {.bytes_sent = n * (p - 1)}));
    expect(world, "linear", SHAPE(.collective = TWILL_GATHER), n,
           COSTS(.most = {.messages = 1}, .sum = {.bytes_sent = n / p * (p - 1)}));
    expect(world, "linear", SHAPE(.collective = TWILL_SCATTER), n,
           COSTS(.most = {.messages = p - 1, .bytes_sent = n / p * (p - 1)},
                 .sum = {.bytes_sent = n / p * (p - 1)}));
}

static void check_bruck(struct twill_world *world, uint32_t p, uint64_t n)
{
    uint32_t log = test_ceil_log(p), low = 1u << (log - 1), shards = 0;
    /* The last two rounds are merged where the last one brings at most half as much. */
    bool joined = p > 2 && p - low <= low / 2;
    expect(world, "bruck", SHAPE(.collective = TWILL_ALLGATHER), n,
           COSTS(.most = {.rounds = log - joined, .bytes_sent = n / p * (p - 1)},
                 .sum = {.bytes_sent = n * (p - 1)}));
    for (uint32_t d = 1; d < p; d++) /* shards are sent as often as their distance has bits */
        shards += (uint32_t)__builtin_popcount(d);
    struct test_costs c =
        expect(world, "bruck", SHAPE(.collective = TWILL_ALLTOALL), n,
               COSTS(.most = {.rounds = log, .messages = log, .bytes_sent = n / p * shards}));
    assert_true(p != 1u << log || c.most.bytes_sent == n / 2 * log);
    expect(world, "dissemination", SHAPE(.collective = TWILL_BARRIER), n,
           COSTS(.most = {.messages = log, .rounds = log - joined},
                 .sum = {.messages = p * log, .bytes_sent = NOTHING, .signals = NOTHING}));
}

static void check_two_halves(struct twill_world *world, uint32_t p, uint64_t n)
{
    const uint64_t most = n / p * (p - 1) + n / 2;
    if (p != 2) /* a tree sends less */
        expect(world, "scatter_allgather", SHAPE(.collective = TWILL_BROADCAST), n,
               COSTS(.most = {.rounds = p, .bytes_sent = 2 * n / p * (p - 1)}));
    struct test_costs c =
        expect(world, "reduce_scatter_gather", SHAPE(.collective = TWILL_REDUCE), n,
               COSTS(.most = {.bytes_reduced = n / p * (p - 1),
                              .bytes_sent = (p & (p - 1)) == 0 ? most : 0}, /* else a bound */
                     .sum = {.bytes_reduced = n * (p - 1)}));
    assert_true(c.most.bytes_sent <= most);
}

static void check_circulant(struct twill_world *world, uint32_t p, uint64_t n)
{
    const uint32_t log = test_ceil_log(p), blocks = 16;
    const enum twill_collective both[] = {TWILL_BROADCAST, TWILL_REDUCE};
    for (unsigned i = 0; i < 2; i++) {
        struct test_costs c = expect(
            world, "circulant", SHAPE(.collective = both[i]), n,
            COSTS(.sum = {.messages = (uint64_t)blocks * (p - 1), .bytes_sent = n * (p - 1)}));
        assert_true(c.most.rounds <= blocks - 1 + log);
        assert_true(c.most.bytes_sent <= n + n / blocks * (log - 1));
        assert_true(c.sum.bytes_reduced == (i == 0 ? 0 : n * (p - 1)));
    }
}

/* Run the rounds of a broadcast of blocks from position 0. Both ends of a message agree on it, its
 * sender has the block from an earlier round, and its receiver has not. In the end all have all. */
static void check_blocks(uint32_t p, uint32_t blocks)
{
    struct twill_block_schedule *s = calloc(p, sizeof(*s));
    uint32_t *since = calloc((size_t)p * blocks, sizeof(*since)); /* 1 + the round of a block */
    assert_true(s != NULL && since != NULL);
    for (uint32_t i = 0; i < p; i++)
        s[i] = twill_block_schedule_of(p, i);
    uint32_t rounds = twill_block_rounds(s, blocks);
    assert_int_equal(rounds, blocks - 1 + test_ceil_log(p));
    for (uint32_t round = 0; round < rounds; round++)
        for (uint32_t i = 0; i < p; i++) {
            struct twill_block_message in, out;
            bool receives = twill_block_at(&s[i], i, blocks, round, false, &in);
            bool sent = twill_block_at(&s[in.peer], in.peer, blocks, round, true, &out);
            assert_true(receives == (sent && out.peer == i));
            if (!receives)
                continue;
            uint32_t had = since[in.peer * blocks + in.block];
            assert_true(out.block == in.block && in.block < blocks);
            assert_true(in.peer == 0 || (had > 0 && had <= round));
            assert_int_equal(since[i * blocks + in.block], 0);
            since[i * blocks + in.block] = round + 1;
        }
    for (uint32_t i = blocks; i < p * blocks; i++)
        assert_true(since[i] > 0);
    free(s);
    free(since);
}

TWILL_TEST(test_block_schedules)
{
    for (uint32_t p = 2; p <= (TEST_FEWER ? 70 : 500); p++)
        for (uint32_t blocks = 1; blocks <= 16; blocks += blocks < 4 ? 1 : 6)
            check_blocks(p, blocks);
    check_blocks(4097, 3);
    check_blocks(65535, 1);
}

TWILL_TEST(test_allreduces)
{
    each_size(TEST_FEWER ? 24 : 70, check_rings);
    each_size(TEST_FEWER ? 24 : 70, check_allreduces);
    each_size(70, check_doubling);
}

TWILL_TEST(test_moves)
{
    each_size(130, check_tree);
    each_size(130, check_linear);
    each_size(130, check_bruck);
    each_size(130, check_two_halves);
    each_size(130, check_circulant);
}

/* The ring leaves each node once, however ranks are placed. */
TWILL_TEST(test_ring_crossings)
{
    for (uint32_t size = 2; size <= 64; size++) {
        for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
            struct twill_world world;
            if (!test_world(&world, size, placement, 9))
                continue;
            struct test_costs c =
                expect(&world, "ring", SHAPE(.collective = TWILL_ALLREDUCE), 400000, COSTS(0));
            assert_int_equal(c.crossing, world.nodes == 1 ? 0 : world.nodes);
            twill_world_destroy(&world);
        }
    }
}

/* --- several ranks per node ------------------------------------------------------------------- */

TWILL_TEST(test_direct)
{
    for (uint32_t l = 2; l <= 70; l++) {
        struct twill_world world;
        const uint64_t n = (uint64_t)64 * l;
        test_grid(&world, 1, l);
        for (enum twill_protocol f = 0; f < TWILL_PROTOCOL_COUNT; f++) {
            bool sharded = f >= TWILL_PROTOCOL_STAGED;
            /* Shards are read from memory that its owner could change: one more synchronisation. */
            uint32_t barriers = f == TWILL_PROTOCOL_FETCHED ? 3 : sharded ? 2 : 1;
            uint64_t shared = sharded ? 2 * n * (l - 1) / l : n * (l - 1);
            expect(&world, "direct", SHAPE(.collective = TWILL_ALLREDUCE, .protocol = f), n,
                   COSTS(.most = {.signals = barriers, .bytes_shared = shared},
                         .sum = {.messages = NOTHING,
                                 .signals = barriers * l,
                                 .bytes_shared = l * shared,
                                 .bytes_reduced = n * (l - 1) * (sharded ? 1 : l)}));
        }
        expect(&world, "direct", SHAPE(.collective = TWILL_BARRIER), 0,
               COSTS(.sum = {.signals = l}));
        twill_world_destroy(&world);
    }
}

enum { COST_MOST = TWILL_STEP_PEERS };

/* Accesses to SHARED: which ranks access each block, and how often. */
struct shared {
    uint32_t touched[COST_MOST][COST_MOST]; /* area, block: bits of ranks */
    uint32_t stores[2], loads[2];           /* of one rank: own, peers' */
};

static void touch_lines(struct shared *shared, const struct twill_step *step, uint32_t rank,
                        twill_operand operand, uint32_t peer, uint32_t count[2])
{
    bool of_peer = twill_operand_is_peer(operand);
    uint32_t area = of_peer ? peer : rank;
    if (twill_operand_space(operand) != TWILL_SHARED ||
        (area == rank && (step->flags & TWILL_STEP_OWN_SRC) != 0))
        return;
    for (uint32_t b = 0; b < step->blocks; b++)
        shared->touched[area][twill_operand_block(operand) + b] |= 1u << rank;
    count[of_peer] += step->blocks;
}

/* Contributions and results of a staged allreduce use the same lines: each line belongs to one pair
 * of ranks, and moves between them twice. */
TWILL_TEST(test_staged_lines)
{
    for (uint32_t l = 2; l <= COST_MOST; l++) {
        struct twill_world world;
        struct shared shared = {{{0}}, {0}, {0}};
        struct twill_shape shape = {.collective = TWILL_ALLREDUCE,
                                    .protocol = TWILL_PROTOCOL_STAGED};
        test_grid(&world, 1, l);
        for (uint32_t rank = 0; rank < l; rank++) {
            struct twill_schedule s;
            const struct twill_algorithm *direct = test_algorithm_find("direct");
            memset(shared.stores, 0, sizeof(shared.stores));
            memset(shared.loads, 0, sizeof(shared.loads));
            assert_int_equal(twill_schedule_emit(&s, direct, &world, rank, &shape, NULL), TWILL_OK);
            for (uint32_t i = 0; i < s.count; i++) {
                const struct twill_step *step = &s.steps[i];
                if (step->op != TWILL_STEP_COPY && step->op != TWILL_STEP_REDUCE)
                    continue;
                touch_lines(&shared, step, rank, step->dst, step->peer[0], shared.stores);
                for (unsigned k = 0; k < (step->nsrc > 0 ? step->nsrc : 1); k++)
                    touch_lines(&shared, step, rank, step->src, step->peer[k], shared.loads);
            }
            for (unsigned of_peer = 0; of_peer < 2; of_peer++) {
                assert_int_equal(shared.stores[of_peer], l - 1);
                assert_int_equal(shared.loads[of_peer], l - 1);
            }
            twill_schedule_destroy(&s);
        }
        for (uint32_t area = 0; area < l; area++)
            for (uint32_t b = 0; b < l; b++)
                assert_int_equal(shared.touched[area][b], area == b ? 0 : 1u << area | 1u << b);
        twill_world_destroy(&world);
    }
}

static void check_hierarchical(struct twill_world *world, uint32_t g, uint32_t l)
{
    const uint64_t n = (uint64_t)64 * l * g, shared = 2 * n * (l - 1) / l;
    const uint32_t log = test_floor_log(g);
    const bool power = g == 1u << log;
    expect(world, "hierarchical:ring",
           SHAPE(.collective = TWILL_ALLREDUCE, .protocol = TWILL_PROTOCOL_STAGED), n,
           COSTS(.most = {.rounds = 2 * (g - 1),
                          .bytes_remote = 2 * (n / l) * (g - 1) / g,
                          .bytes_shared = shared,
                          .signals = 2,
                          .peers = g == 2 ? 1 : 2},
                 .sum = {.bytes_remote = 2 * n * (g - 1), /* every rank the same */
                         .bytes_reduced = n * (g * l - 1)}));
    expect(world, "hierarchical:recursive_doubling",
           SHAPE(.collective = TWILL_ALLREDUCE, .protocol = TWILL_PROTOCOL_MAPPED), n,
           COSTS(.most = {.rounds = log + (power ? 0 : 2),
                          .bytes_remote = (n / l) * (log + (power ? 0 : 1)),
                          .bytes_shared = shared}));
    expect(world, "hierarchical:circulant",
           SHAPE(.collective = TWILL_BROADCAST, .protocol = TWILL_PROTOCOL_STAGED), n,
           COSTS(.most = {.rounds = 15 + log + (power ? 0 : 1)},
                 .sum = {.messages = UINT64_C(16) * (g - 1),
                         .bytes_remote = n * (g - 1),
                         .bytes_shared = n * (l - 1) * g}));
    expect(world, "hierarchical:tree",
           SHAPE(.collective = TWILL_BROADCAST, .protocol = TWILL_PROTOCOL_STAGED), n,
           COSTS(.sum = {.messages = g - 1,
                         .bytes_remote = n * (g - 1),
                         .bytes_shared = n * (l - 1) * g}));
    uint32_t parts = (l + g - 2) / (g - 1); /* a divisor of l */
    while (l % parts != 0)
        parts++;
    expect(world, "hierarchical:pairwise",
           SHAPE(.collective = TWILL_ALLTOALL, .protocol = TWILL_PROTOCOL_STAGED), n,
           COSTS(.most = {.signals = 2}, .sum = {.messages = (uint64_t)g * (g - 1) * parts,
                                                 .bytes_remote = n * l * (g - 1)}));
    expect(world, "hierarchical:pairwise",
           SHAPE(.collective = TWILL_SCATTER, .protocol = TWILL_PROTOCOL_STAGED), n,
           COSTS(.most = {.messages = (g + l - 2) / l, .signals = g < 8 ? g : 8},
                 .sum = {.messages = g - 1, .bytes_remote = n * (g - 1) / g}));
    expect(world, "hierarchical:pairwise",
           SHAPE(.collective = TWILL_GATHER, .protocol = TWILL_PROTOCOL_STAGED), n,
           COSTS(.most = {.messages = 1, .signals = 1},
                 .sum = {.messages = g - 1, .bytes_remote = n * (g - 1) / g}));
}

TWILL_TEST(test_hierarchical)
{
    for (uint32_t g = 2; g <= 9; g++)
        for (uint32_t l = 2; l <= 12; l++) {
            struct twill_world world;
            test_grid(&world, g, l);
            check_hierarchical(&world, g, l);
            twill_world_destroy(&world);
        }
}
