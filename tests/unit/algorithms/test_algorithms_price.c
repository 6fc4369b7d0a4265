/* SPDX-License-Identifier: Apache-2.0 */
/* Prices: exact on machines where only one thing costs, equal however they are computed, and near
 * to what was measured on Theta. Tuning files: what is read, what is refused, what is hashed. */
#include "algorithms/select/candidates.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

#define KIB 1024ul
#define US  UINT64_C(1000000)

/* Return the price of a call on `nodes` nodes of `each` ranks. */
static uint64_t price_call(const char *name, struct twill_shape shape, uint32_t nodes,
                           uint32_t each, const struct twill_machine_model *model, size_t bytes,
                           struct twill_element_kind elements)
{
    struct twill_world world;
    struct twill_error error = {.status = TWILL_OK};
    uint64_t all;
    test_grid(&world, nodes, each);
    if (twill_price(&all, test_algorithm_find(name), &world, &shape, model, bytes, elements,
                    &error) != TWILL_OK)
        fail_msg("%s, %ux%u: %s", name, nodes, each, error.message);
    twill_world_destroy(&world);
    return all;
}

static const struct twill_shape allreduce = {.collective = TWILL_ALLREDUCE};

/* Of an allreduce of f32 among ranks each on its node. */
static uint64_t price_of(const char *name, uint32_t ranks, const struct twill_machine_model *model,
                         size_t bytes)
{
    return price_call(name, allreduce, ranks, 1, model, bytes, twill_wide_elements(TWILL_F32));
}

/* Of one among ranks of one node. */
static uint64_t price_on_node(enum twill_protocol protocol, uint32_t ranks,
                              const struct twill_machine_model *model, size_t bytes)
{
    struct twill_shape shape = {.collective = TWILL_ALLREDUCE, .protocol = protocol};
    return price_call("direct", shape, 1, ranks, model, bytes, twill_wide_elements(TWILL_F32));
}

/* Partials of narrow sums cost what elements do: with equal speeds the price is that of f32. */
TWILL_TEST(test_narrow_partials)
{
    static const char *const names[] = {"ring", "halving_doubling", "recursive_doubling",
                                        "double_tree"};
    struct twill_machine_model model = *twill_machine_model_at(0);
    model.reduce[TWILL_BF16] = model.reduce[TWILL_F32];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(names); i++) {
        uint64_t narrow = price_call(names[i], allreduce, 4, 1, &model, 65536,
                                     (struct twill_element_kind){TWILL_BF16, true});
        assert_int_equal(narrow, price_of(names[i], 4, &model, 65536));
        assert_true(narrow < price_call(names[i], allreduce, 4, 1, &model, 65536,
                                        twill_wide_elements(TWILL_BF16)));
    }
}

/* What passes between cores takes longer with every doubling of ranks above 2, and prices of 8 and
 * 16 ranks are near to the times on an Emerald Rapids (docs/inside/cost-model.md). */
TWILL_TEST(test_many_ranks_of_a_node)
{
    static const struct {
        uint32_t ranks;
        size_t kib;
        uint64_t us;
    } measured[] = {{8, 64, 25}, {8, 1024, 458}, {16, 64, 41}, {16, 1024, 635}};
    struct twill_machine_model model = *twill_machine_model_at(0), alone = model;
    alone.contention = 0;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(measured); i++) {
        uint64_t price =
            price_on_node(TWILL_PROTOCOL_STAGED, measured[i].ranks, &model, measured[i].kib * KIB);
        assert_in_range(price, measured[i].us * US * 4 / 5, measured[i].us * US * 5 / 4);
    }
    for (uint32_t ranks = 2; ranks <= 64; ranks += ranks / 2) {
        uint64_t before = price_on_node(TWILL_PROTOCOL_STAGED, ranks, &alone, 1 << 20);
        uint64_t price = price_on_node(TWILL_PROTOCOL_STAGED, ranks, &model, 1 << 20);
        assert_true(ranks == 2 ? price == before : price > before);
        assert_int_equal(price_on_node(TWILL_PROTOCOL_MAPPED, ranks, &model, 1 << 20),
                         price_on_node(TWILL_PROTOCOL_MAPPED, ranks, &alone, 1 << 20));
    }
    model.crowd = alone.crowd = 2; /* two of four ranks run at once */
    assert_int_equal(price_on_node(TWILL_PROTOCOL_STAGED, 4, &model, 1 << 20),
                     price_on_node(TWILL_PROTOCOL_STAGED, 4, &alone, 1 << 20));
}

/* The window of the model is that of the engine. */
TWILL_TEST(test_window)
{
    const struct twill_machine_model *model;
    for (size_t i = 0; (model = twill_machine_model_at(i)) != NULL; i++)
        assert_int_equal(model->window, TWILL_WINDOW);
}

/* --- exact prices ----------------------------------------------------------------------------- */

/* Where only latency costs, a price is the number of rounds: on worlds that are run whole, by
 * representatives, and scaled. */
TWILL_TEST(test_rounds)
{
    struct twill_machine_model model = {.segment = 1 << 18, .segment_net = 1 << 22, .window = 4};
    model.link[TWILL_LINK_NETWORK].latency = 1000;
    static const uint32_t ranks[] = {2, 3, 4, 5, 8, 12, 16, 24, 48, 64, 100, 128, 256, 1024, 4096};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(ranks); i++) {
        uint32_t p = ranks[i];
        bool power = (p & (p - 1)) == 0;
        assert_int_equal(price_of("ring", p, &model, 4 * p), 2000 * (p - 1));
        if (power) {
            assert_int_equal(price_of("recursive_doubling", p, &model, 64),
                             1000 * test_floor_log(p));
            assert_int_equal(price_of("halving_doubling", p, &model, 4 * p),
                             2000 * test_floor_log(p));
        } else { /* the extra ranks' reductions may overlap with other rounds */
            assert_in_range(price_of("recursive_doubling", p, &model, 64),
                            1000 * (test_floor_log(p) + 1), 1000 * (test_floor_log(p) + 2));
        }
    }
}

/* Where only bytes cost, a price is what the busiest rank sends; where only reducing costs, what it
 * reduces. */
TWILL_TEST(test_bytes)
{
    struct twill_machine_model model = {.segment = 1 << 18, .segment_net = 1 << 22, .window = 4};
    static const uint32_t ranks[] = {2, 4, 8, 16, 32, 64};
    const size_t bytes = 1 << 20;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(ranks); i++) {
        uint32_t p = ranks[i];
        uint64_t most = 1000 * (bytes / KIB);
        memset(model.link, 0, sizeof(model.link));
        memset(model.reduce, 0, sizeof(model.reduce));
        model.link[TWILL_LINK_NETWORK].gap = 1000;
        assert_int_equal(price_of("ring", p, &model, bytes), 2 * most * (p - 1) / p);
        assert_int_equal(price_of("halving_doubling", p, &model, bytes), 2 * most * (p - 1) / p);
        assert_int_equal(price_of("recursive_doubling", p, &model, bytes),
                         most * test_floor_log(p));
        model.link[TWILL_LINK_NETWORK].gap = 0;
        model.reduce[TWILL_F32] = 1000;
        assert_int_equal(price_of("ring", p, &model, bytes), most * (p - 1) / p);
        assert_int_equal(price_of("halving_doubling", p, &model, bytes), most * (p - 1) / p);
        assert_int_equal(price_of("recursive_doubling", p, &model, bytes),
                         most * test_floor_log(p));
    }
}

/* Where only bytes cost, a chain of P ranks passes c blocks to its end in (P - 2 + c) / c times
 * what it takes to send the message once. */
TWILL_TEST(test_blocks)
{
    struct twill_machine_model model = {.segment = 1 << 20, .segment_net = 1 << 22, .window = 4};
    const size_t bytes = 1 << 20;
    const uint32_t ranks = 8;
    model.link[TWILL_LINK_NETWORK].gap = 1000;
    for (uint16_t blocks = 1; blocks <= 16; blocks *= 2) {
        struct twill_shape shape = {.collective = TWILL_BROADCAST, .parameter = {blocks}};
        uint64_t once = 1000 * (bytes / KIB);
        assert_int_equal(
            price_call("chain", shape, ranks, 1, &model, bytes, twill_wide_elements(TWILL_F32)),
            once * (ranks - 2 + blocks) / blocks);
    }
}

/* Where only signals cost: two barriers a segment, two segments in flight. Segments are those of
 * the executor (lib/engine/plan.c). */
TWILL_TEST(test_segments)
{
    const uint64_t each = UINT64_C(1) << 27, one = 2 * each;
    struct twill_machine_model model = {
        .segment = 256 * KIB, .segment_rank = 64 * KIB, .window = 2};
    model.link[TWILL_LINK_NODE].signal = each;
    assert_int_equal(price_on_node(TWILL_PROTOCOL_STAGED, 2, &model, 128 * KIB), one);
    assert_int_equal(price_on_node(TWILL_PROTOCOL_STAGED, 2, &model, 512 * KIB), one + 3 * each);
    assert_int_equal(price_on_node(TWILL_PROTOCOL_STAGED, 4, &model, 512 * KIB), one + each);
    assert_int_equal(price_on_node(TWILL_PROTOCOL_STAGED, 8, &model, 512 * KIB), one + each);
    assert_int_equal(price_on_node(TWILL_PROTOCOL_MAPPED, 8, &model, 512 * KIB), one);
    assert_int_equal(price_on_node(TWILL_PROTOCOL_MAPPED, 9, &model, 512 * KIB), one + each);
    model.segment_rank = 0;
    assert_int_equal(price_on_node(TWILL_PROTOCOL_STAGED, 2, &model, 512 * KIB), one + each);
}

/* Segments that overlap are as long as is cheapest for a message, but no longer than allowed. */
TWILL_TEST(test_overlap)
{
    struct twill_machine_model model = {
        .bounce = 1024, .segment = 256 * KIB, .segment_rank = 64 * KIB, .window = 2};
    const size_t most = 128 * KIB;
    model.link[TWILL_LINK_NODE].signal = 16 * KIB; /* as long as the copy of 16 KiB */
    assert_int_equal(twill_overlap_segment(&model, 2, 1, 1024 * KIB, most), most);
    assert_int_equal(twill_overlap_segment(&model, 2, 1, 256 * KIB, most), 64 * KIB);
    assert_int_equal(twill_overlap_segment(&model, 2, 1, 64 * KIB, most), 32 * KIB);
    assert_int_equal(twill_overlap_segment(&model, 2, 1, 16 * KIB, most), 16 * KIB);
    assert_int_equal(twill_overlap_segment(&model, 2, 1, 100, most), 8 * KIB);
    assert_int_equal(twill_overlap_segment(&model, 2, 1, 100, 4 * KIB), 4 * KIB);
    assert_int_equal(twill_overlap_segment(&model, 16, 16, 64 * KIB, most), most);
    model.poll = 16 * KIB;
    assert_int_equal(twill_overlap_segment(&model, 17, 1, 256 * KIB, 256 * KIB), 256 * KIB);
    model.link[TWILL_LINK_NODE].signal = 0;
    assert_int_equal(twill_overlap_segment(&model, 2, 1, 1024 * KIB, most), most);
    struct twill_shape shape = {.collective = TWILL_BROADCAST, .protocol = TWILL_PROTOCOL_STAGED};
    model.link[TWILL_LINK_NODE].signal = 16 * KIB;
    uint64_t overlapped =
        price_call("direct", shape, 1, 2, &model, 256 * KIB, twill_wide_elements(TWILL_F32));
    model.segment_rank = 32 * KIB; /* no longer ones */
    assert_int_equal(
        price_call("direct", shape, 1, 2, &model, 256 * KIB, twill_wide_elements(TWILL_F32)),
        overlapped);
}

/* A payload in IMM costs what it takes to store it. */
TWILL_TEST(test_immediate)
{
    struct twill_machine_model model = {.bounce = 1024, .raise = 5};
    assert_int_equal(price_on_node(TWILL_PROTOCOL_IMM, 2, &model, 8), 5 + 8);
    assert_int_equal(price_on_node(TWILL_PROTOCOL_IMM, 2, &model, TWILL_IMM_BYTES),
                     5 + TWILL_IMM_BYTES);
}

/* In a flat reduce to rank 0, rank 1 only copies in. Every third call follows at once, and finds
 * that done. Rank 0 reads its own SRC where it is, in a staged one as well, in which all ranks
 * wait. */
TWILL_TEST(test_running_ahead)
{
    struct twill_machine_model model = {.copy = 3000, .bounce = 60000, .segment = 1 << 20};
    struct twill_shape shape = {.collective = TWILL_REDUCE, .protocol = TWILL_PROTOCOL_FLAT};
    const struct twill_element_kind f32 = twill_wide_elements(TWILL_F32);
    model.link[TWILL_LINK_NODE].shared = 90000;
    model.window = 2;
    uint64_t in = 64 * 60000, out = 64 * (90000 + 3000);
    assert_int_equal(price_call("direct", shape, 1, 2, &model, 64 * KIB, f32),
                     (2 * (in + out) + out) / 3);
    shape.protocol = TWILL_PROTOCOL_STAGED;
    assert_int_equal(price_call("direct", shape, 1, 2, &model, 64 * KIB, f32),
                     in / 2 + out / 2 + 32 * 90000);
}

/* A gather into mapped memory, in which all wait for the root first, costs no exchange of addresses
 * more than that. */
TWILL_TEST(test_exchange_of_addresses)
{
    struct twill_machine_model model = {.addresses = 1000};
    struct twill_shape shape = {.collective = TWILL_GATHER, .protocol = TWILL_PROTOCOL_MAPPED};
    const struct twill_element_kind f32 = twill_wide_elements(TWILL_F32);
    model.link[TWILL_LINK_NODE].signal = 700;
    assert_int_equal(price_call("direct", shape, 1, 2, &model, 64 * KIB, f32), 2 * 700);
    shape.collective = TWILL_ALLGATHER;
    assert_int_equal(price_call("direct", shape, 1, 2, &model, 64 * KIB, f32), 2 * 700);
    assert_int_equal(price_call("levels", shape, 1, 2, &model, 64 * KIB, f32), 1000 + 2 * 700);
}

/* The work of ranks that share a core adds up, and each wait costs at most a turn more. */
TWILL_TEST(test_crowd)
{
    struct twill_machine_model model = {.poll = 1000};
    uint64_t own = price_on_node(TWILL_PROTOCOL_IMM, 8, &model, 8);
    for (model.crowd = 2; model.crowd <= 8; model.crowd *= 2) {
        model.turn = 0;
        assert_int_equal(price_on_node(TWILL_PROTOCOL_IMM, 8, &model, 8), own * model.crowd);
        model.turn = 50;
        assert_in_range(price_on_node(TWILL_PROTOCOL_IMM, 8, &model, 8), own * model.crowd + 1,
                        (own + 50) * model.crowd);
    }
}

/* The price does not jump at the size from which on representatives are run. */
TWILL_TEST(test_alone_as_together)
{
    const struct twill_machine_model *model = twill_machine_model_find("theta");
    uint64_t step = 0, last = price_of("ring", 3, model, 4096);
    for (uint32_t p = 4; p < 60; p++) {
        uint64_t now = price_of("ring", p, model, 4096), more = now - last;
        assert_true(now > last);
        if (step != 0 && (more > step + step / 10 || more < step - step / 10))
            fail_msg("ring: rank %u adds %llu ps, the one before it %llu", p,
                     (unsigned long long)more, (unsigned long long)step);
        step = more;
        last = now;
    }
}

struct price_sweep {
    const struct twill_machine_model *model;
    size_t cases;
};

/* More bytes do not cost less, except for a little where lanes compete for a core: a lane that
 * comes later may let others go first (Graham's anomalies). Pricing twice gives one price. */
static void check_case(const struct test_case *test, void *user)
{
    struct price_sweep *sweep = user;
    struct twill_pricing *pricing;
    struct twill_error error = {.status = TWILL_OK};
    uint64_t last = 0;
    if (twill_pricing_create(&pricing, test->algorithm, test->world, &test->shape,
                             TWILL_PRICE_STEPS, &error) != TWILL_OK)
        fail_msg("%s: %s", test->name, error.message);
    for (size_t bytes = 1; bytes <= (size_t)1 << 32; bytes *= 16) {
        uint64_t price =
            twill_pricing_at(pricing, sweep->model, bytes, twill_wide_elements(TWILL_F32));
        if (price < last - last / 4 || (price == 0 && test->world->size > 1))
            fail_msg("%s: %zu bytes cost %llu ps, fewer %llu", test->name, bytes,
                     (unsigned long long)price, (unsigned long long)last);
        last = price;
    }
    uint64_t once = twill_pricing_at(pricing, sweep->model, 4096, twill_wide_elements(TWILL_BF16));
    assert_true(once ==
                twill_pricing_at(pricing, sweep->model, 4096, twill_wide_elements(TWILL_BF16)));
    twill_pricing_destroy(pricing);
    sweep->cases++;
}

TWILL_TEST(test_sweep)
{
    struct price_sweep sweep = {.cases = 0};
    for (size_t m = 0; (sweep.model = twill_machine_model_at(m)) != NULL; m++)
        for (uint32_t size = 1; size <= (TEST_FEWER ? 6 : 11); size++)
            if (!TEST_FEWER || (m + size + test_seed()) % 3 == 0)
                test_each_case_of(size, 1, 1, check_case, &sweep);
    assert_true(sweep.cases > 1000);
}

/* --- theta ------------------------------------------------------------------------------------ */

/* The measurements are of recursive doubling, which MPICH uses for small messages. */
static uint64_t price_of_doubling(const struct twill_machine_model *model, uint32_t nodes,
                                  uint32_t each, size_t bytes)
{
    return price_call("recursive_doubling", allreduce, nodes, each, model, bytes,
                      twill_wide_elements(TWILL_F32));
}

/* Return the latency at which the price on 12 nodes is the measured one: the model's should be it.
 */
static uint64_t fit_latency(struct twill_machine_model model, uint64_t measured)
{
    uint64_t low = 0, high = 100 * US;
    while (high - low > 1000) {
        uint64_t middle = (low + high) / 2;
        model.link[TWILL_LINK_NETWORK].latency = middle;
        if (price_of_doubling(&model, 12, 1, 8) > measured)
            high = middle;
        else
            low = middle;
    }
    return low;
}

TWILL_TEST(test_theta)
{
    static const struct {
        uint32_t nodes, each;
        size_t bytes;
        double measured; /* us */
        int within;      /* percent; 0: printed, not checked */
    } figures[] = {
        {12, 1, 8, 33.6, 1},  {24, 1, 8, 41.3, 15}, {48, 1, 8, 51.9, 15},   {384, 1, 8, 172, 0},
        {48, 1, 2048, 70, 0}, {48, 4, 2048, 86, 0}, {48, 16, 2048, 178, 0}, {48, 64, 2048, 235, 0},
    };
    const struct twill_machine_model *theta = twill_machine_model_find("theta");
    assert_non_null(theta);
    uint64_t fitted = fit_latency(*theta, (uint64_t)(33.6 * 1e6));
    uint64_t preset = theta->link[TWILL_LINK_NETWORK].latency;
    printf("theta: latency %.3f us, fitted again on 12 nodes %.3f\n", (double)preset / 1e6,
           (double)fitted / 1e6);
    assert_true(preset < fitted + fitted / 50 && fitted < preset + preset / 50);
    printf("nodes x ranks   bytes  measured us   doubling  percent\n");
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(figures); i++) {
        uint32_t nodes = figures[i].nodes, each = figures[i].each;
        double predicted = (double)price_of_doubling(theta, nodes, each, figures[i].bytes) / 1e6;
        double percent = 100 * (predicted / figures[i].measured - 1);
        printf("%5u x %-5u %8zu %12.1f %10.1f %+8.1f\n", nodes, each, figures[i].bytes,
               figures[i].measured, predicted, percent);
        if (figures[i].within > 0)
            assert_true(percent < figures[i].within && percent > -figures[i].within);
    }
}

/* --- tuning ----------------------------------------------------------------------------------- */

static uint64_t hash_of(const char *text)
{
    struct twill_tuning *tuning;
    struct twill_error error = {.status = TWILL_OK};
    if (twill_tuning_create(&tuning, NULL, text, "file", &error) != TWILL_OK)
        fail_msg("%s", error.message);
    uint64_t hash = twill_tuning_hash(tuning);
    twill_tuning_destroy(tuning);
    return hash;
}

/* Every field can be set, and changes the hash. */
TWILL_TEST(test_fields)
{
    struct twill_machine_model model = *twill_machine_model_at(0);
    uint64_t *value, plain = hash_of("twill-tuning 1\n");
    char name[40], text[128];
    size_t fields = 0;
    for (; twill_machine_model_field(&model, fields, name, &value); fields++) {
        snprintf(text, sizeof(text), "twill-tuning 1\nmodel %s %llu\n", name,
                 (unsigned long long)*value);
        assert_true(hash_of(text) == plain);
        snprintf(text, sizeof(text), "twill-tuning 1\nmodel %s %llu\n", name,
                 (unsigned long long)*value + 1);
        assert_true(hash_of(text) != plain);
        *value = 77; /* `value` points to the field itself */
    }
    assert_true(fields >= TWILL_LINK_COUNT * 6 + TWILL_TYPE_COUNT);
    assert_int_equal(model.link[TWILL_LINK_GROUP].mapped, 77);
    assert_int_equal(model.reduce[TWILL_TYPE_COUNT - 1], 77);
    assert_true(hash_of("twill-tuning 1\nmachine theta\n") != plain);
    assert_true(hash_of("twill-tuning 1 # say\n\n \t# nothing\n") == plain);
}

TWILL_TEST(test_measured)
{
    static const char text[] = "twill-tuning 1\n"
                               "measured allreduce direct@flat 1x4 64K 9000000 # out of order\n"
                               "measured allreduce direct@flat 1x4 1K 1000000\n"
                               "measured allreduce direct@flat 1x4 1024 3000000\r\n"
                               "measured allreduce multi_ring=2 1x4 1K 5000000\n"
                               "measured barrier direct 1x4 0 400000\n";
    struct twill_tuning *tuning;
    struct twill_world world;
    struct twill_candidates *all;
    struct twill_select_request request = {.collective = TWILL_ALLREDUCE};
    const struct twill_candidate *c = NULL;
    assert_int_equal(twill_tuning_create(&tuning, NULL, text, "file", NULL), TWILL_OK);
    assert_int_equal(tuning->count, 4); /* only the faster of two for one case */
    test_grid(&world, 1, 4);
    assert_int_equal(twill_candidates_create(&all, &world, tuning, &request, NULL, NULL, NULL),
                     TWILL_OK);
    for (size_t i = 0; i < all->count; i++)
        if (strcmp(all->candidate[i].algorithm->name, "direct") == 0 &&
            all->candidate[i].shape.protocol == TWILL_PROTOCOL_FLAT) {
            assert_null(c);
            c = &all->candidate[i];
        }
    assert_non_null(c);
    assert_int_equal(c->measured, 2);
    assert_int_equal(twill_candidate_cost(c, 1024), 1000000);
    assert_int_equal(twill_candidate_cost(c, 64 * KIB), 9000000);
    assert_in_range(twill_candidate_cost(c, 32 * KIB + 512), 4990000, 5010000);
    /* Beyond the measurements the scaled price continues them. */
    assert_in_range(twill_candidate_cost(c, 64 * KIB + 4), 9000000, 9010000);
    assert_in_range(twill_candidate_cost(c, 1020), 900000, 1000000);
    assert_true(twill_candidate_cost(c, 1 << 20) > 9000000);
    twill_candidates_destroy(all);
    twill_tuning_destroy(tuning);
    twill_world_destroy(&world);
}

/* Timings are for one machine: with another CPU, other caches or more cores the file does not
 * match. */
TWILL_TEST(test_key)
{
    static const char text[] = "twill-tuning 1\n# for AMD\n\n for AuthenticAMD 25 17 1M 2 # EPYC\n";
    static const struct {
        struct twill_tuning_key here;
        bool matches;
    } cases[] = {{{"AuthenticAMD 25 17", 1 << 20, 2}, true},
                 {{"AuthenticAMD 25 1", 1 << 20, 2}, false},
                 {{"", 1 << 20, 2}, false},
                 {{"AuthenticAMD 25 17", 1 << 19, 2}, false},
                 {{"AuthenticAMD 25 17", 1 << 20, 4}, false}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++)
        assert_int_equal(twill_tuning_is_for(text, &cases[i].here), cases[i].matches);
    assert_false(twill_tuning_is_for("twill-tuning 1\nfor AuthenticAMD 25 17\n", &cases[0].here));
    char printed[TWILL_TUNING_KEY_BYTES], line[TWILL_TUNING_KEY_BYTES + 8];
    twill_tuning_key_print(printed, &test_timings_key);
    snprintf(line, sizeof(line), "for %s\n", printed);
    assert_true(twill_tuning_is_for(line, &test_timings_key));
    struct twill_tuning *delivered = test_timings();
    assert_true(delivered->count > 100);
    twill_tuning_destroy(delivered);
}

TWILL_TEST(test_refusals)
{
    static const char *const bad[][2] = {
        {"", "file:1: the first line"},
        {"tuning 1\n", "file:1: the first line"},
        {"twill-tuning 10\n", "file:1: the first line"},
        {"twill-tuning 1\nmodel x 1\n", "file:2: \"x\" is not a field"},
        {"twill-tuning 1\n\nmodel step -1\n", "file:3: \"-1\" is not a number"},
        {"twill-tuning 1\nmodel step 1 2\n", "file:2: model takes 2 words, not 3"},
        {"twill-tuning 1\nmodel step\n", "file:2: model takes 2 words, not 1"},
        {"twill-tuning 1\nmachine moon\n", "file:2: \"moon\" is not the name of a machine"},
        {"twill-tuning 1\nmeasured allreduce ring 1x2 8 20", "file:2: the file ends within this"},
        {"twill-tuning 1\nspeed 9\n", "file:2: \"speed\" is none of"},
        {"twill-tuning 1\nmeasured allreduce ring 1x2 8\n", "file:2: measured takes 5 words"},
        {"twill-tuning 1\nmeasured allreduce rong 1x2 8 5\n", "did you mean \"ring\""},
        {"twill-tuning 1\nmeasured allreduze ring 1x2 8 5\n", "file:2: \"allreduze ring\""},
        {"twill-tuning 1\nmeasured allreduce auto 1x2 8 5\n", "file:2: \"allreduce auto\""},
        {"twill-tuning 1\nmeasured allreduce ring 2 8 5\n", "file:2: \"2\" is not nodes x ranks"},
        {"twill-tuning 1\nmeasured allreduce ring 0x2 8 5\n", "file:2: \"0x2\""},
        {"twill-tuning 1\nmeasured allreduce ring 1x2 8Q 5\n", "file:2: \"8Q\" is not a size"},
        {"twill-tuning 1\nmeasured allreduce ring 1x2 8 0\n", "file:2: \"0\" is not a time"},
        {"twill-tuning 1\nmeasured allreduce ring 1x2 8 5K\n", "file:2: \"5K\" is not a time"},
        {"twill-tuning 1\na b c d e f g\n", "file:2: \"g\" is one word too many"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++) {
        struct twill_tuning *tuning;
        struct twill_error error = {.status = TWILL_OK};
        twill_status status = twill_tuning_create(&tuning, NULL, bad[i][0], "file", &error);
        if (status != TWILL_ERR_CONFIG || strstr(error.message, bad[i][1]) == NULL)
            fail_msg("%s: %d: %s", bad[i][0], status, error.message);
        assert_null(tuning);
    }
    struct twill_tuning *tuning;
    struct twill_error error = {.status = TWILL_OK};
    assert_int_equal(twill_tuning_create(&tuning, "moon", NULL, NULL, &error), TWILL_ERR_CONFIG);
    assert_non_null(strstr(error.message, "TWILL_TUNE=machine=moon"));
}
