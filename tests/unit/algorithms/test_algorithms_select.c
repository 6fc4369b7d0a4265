/* SPDX-License-Identifier: Apache-2.0 */
/* What is chosen, with and without user overrides, and which overrides are refused. */
#include "algorithms/select/candidates.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

enum {
    A = TWILL_ALLREDUCE,
    B = TWILL_BROADCAST,
    N = TWILL_BARRIER,
    G = TWILL_ALLGATHER,
    R = TWILL_REDUCE
};
#define FETCHED TWILL_ACCESS_FETCHED
#define KIB     1024ul

/* choice: "name@protocol", without the protocol where it does not matter; or "!" and some of the
 * message. */
static const struct {
    const char *nodes;
    int collective;
    size_t bytes;
    unsigned access; /* enum twill_access; false: none, true: mapped */
    const char *requested, *choice;
} table[] = {
    {"1", A, 8, false, NULL, "direct"},
    {"1", A, 0, false, NULL, "direct"},
    {"1", B, 1 << 20, true, NULL, "direct"},
    {"1", N, 0, false, NULL, "direct"},
    {"2", A, 8, false, NULL, "direct@imm"},
    {"2", A, TWILL_IMM_BYTES, false, NULL, "direct@imm"},
    {"2", A, TWILL_IMM_BYTES + 1, false, NULL, "direct@flat"},
    {"2", A, 2 * KIB, true, NULL, "direct@flat"}, /* 0.6 us, mapped 0.9 */
    {"2", A, 8 * KIB, true, NULL, "direct@mapped"},
    {"2", A, 32 * KIB, false, NULL, "direct@flat"},
    {"2", A, 128 * KIB, false, NULL, "direct@staged"},
    {"4", A, 0, false, NULL, "direct@imm"},
    {"4", A, TWILL_IMM_BYTES, false, NULL, "direct@imm"},
    {"4", A, TWILL_IMM_BYTES + 1, false, NULL, "direct@flat"},
    {"4", A, 16 * KIB, true, NULL, "direct@mapped"},
    {"4", A, 32 * KIB, false, NULL, "direct@staged"},
    {"4", A, 3221225472u, true, NULL, "direct@mapped"},
    {"4", B, TWILL_IMM_BYTES, false, NULL, "direct@imm"},
    {"4", B, TWILL_IMM_BYTES + 1, false, NULL, "direct@staged"},
    {"4", B, 64 * KIB, true, NULL, "direct@mapped"},
    {"4", N, 0, false, NULL, "direct"},
    {"4", G, 4 * TWILL_IMM_BYTES, false, NULL, "direct@imm"},
    {"2x2", A, 8, false, "hierarchical:recursive_doubling", "hierarchical:recursive_doubling@imm"},
    /* overrides */
    {"4", A, 8, false, "", "direct@imm"},
    {"4", A, 8, false, "auto", "direct@imm"},
    {"4", A, 8, false, "ring", "ring"},
    {"4", B, 8, false, "ring", "direct@imm"}, /* a ring does not broadcast: no override */
    {"4", A, 8, false, "allreduce:ring", "ring"},
    {"4", B, 8, false, "allreduce:ring", "direct@imm"},
    {"4", A, 8, false, "allreduce:ring;broadcast:tree", "ring"},
    {"4", B, 8, false, "allreduce:ring;broadcast:tree", "tree"},
    {"4", A, 8, false, "ring;recursive_doubling", "recursive_doubling"},
    {"4", A, 8, false, "allreduce:ring;recursive_doubling", "ring"},
    {"4", N, 8, false, "allreduce:ring;recursive_doubling", "recursive_doubling"},
    {"4", A, 8, false, "recursive_doubling;allreduce:auto", "direct@imm"},
    {"4", A, 8, false, ";ring;", "ring"},
    {"4", A, 8, false, "direct@staged", "direct@staged"},
    {"4", A, 64 * KIB, true, "direct@flat", "direct@flat"},
    {"4", A, 8, true, "allreduce:direct@mapped", "direct@mapped"},
    {"2x2", A, 8, false, "allreduce:hierarchical:ring@staged", "hierarchical:ring@staged"},
    {"2x2", A, 1 << 20, false, "ring", "ring"},
    /* ranges: both ends are in them */
    {"4", A, 64 * KIB, false, "allreduce[0-64K]:ring", "ring"},
    {"4", A, 64 * KIB + 1, false, "allreduce[0-64K]:ring;torus", "torus"},
    {"4", A, 64 * KIB, false, "allreduce[0-64K]:ring;allreduce[64K-]:torus", "torus"},
    {"4", A, 64 * KIB - 1, false, "allreduce[0-64K]:ring;allreduce[64K-]:torus", "ring"},
    {"4", A, 1 << 30, false, "allreduce[0-64K]:ring;allreduce[64k-]:torus", "torus"},
    {"4", A, 7, false, "allreduce[-7]:ring;allreduce[8-8]:torus", "ring"},
    {"4", A, 8, false, "allreduce[-7]:ring;allreduce[8-8]:torus", "torus"},
    {"4", A, 9, false, "allreduce[-7]:ring;allreduce[8-8]:torus", "direct@imm"},
    {"4", B, 9, false, "allreduce[1M-2G]:ring;ring", "direct@imm"},
    /* parameters */
    {"6x1", A, 1 << 20, false, "torus=2x3", "torus=2x3"},
    {"6x1", A, 1 << 20, false, "allreduce[1K-]:torus=3x2;ring", "torus=3x2"},
    {"4", B, 8, false, "tree=4", "tree=4"},
    {"4", A, 8, false, "multi_ring=3", "multi_ring=3"},
    /* refusals */
    {"4", A, 8, false, "rang", "!did you mean \"ring\""},
    {"4", A, 8, false, "recursive-doubling", "!did you mean \"recursive_doubling\""},
    {"4", A, 8, false, "fastest",
     "!\"fastest\" is not the name of an algorithm; there are: direct, ring, "},
    {"4", A, 8, false, "zzz", "!is not the name of an algorithm; there are: direct, ring, "},
    {"4", A, 8, false, "allreduce:zzz", "!, torus, hub, pairwise, allgather_reduce, chain, hier"},
    {"4", A, 8, false,
     "a_name_that_is_longer_than_any_of_the_algorithms_has_and_would_leave_no_place_in_the_message_"
     "for_the_names_of_all_of_them_if_it_were_shown_there_as_a_whole_and_even_twice",
     "!, groups, levels"},
    {"4", A, 8, false, "Ring", "!not the name"},
    {"4", A, 8, false, "allreduce:", "!not the name"},
    {"4", A, 8, false, "allredcue:ring",
     "!\"allredcue\" is not the name of a collective, did you "
     "mean \"allreduce\""},
    {"4", A, 8, false, "allredcue[0-8]:ring", "!did you mean \"allreduce\""},
    {"4", B, 8, false, "ring;broadcast:rinng", "!did you mean \"ring\""},
    {"4", B, 8, false, "allreduce:rinng", "!did you mean \"ring\""}, /* checked though not used */
    {"4", B, 8, false, "broadcast:ring", "!does not apply"},
    {"2x2", A, 8, false, "direct",
     "!for allreduce with 4 ranks on 2 nodes there are: ring, multi_ring, "},
    {"2x2", A, 8, false, "direct", "!, hierarchical:recursive_doubling, levels"},
    {"4x8", A, 1 << 20, false, "torus", "torus"}, /* flat: only where it is asked for */
    {"4", A, 8, false, "hierarchical:ring", "!does not apply"},
    {"4", A, 8, false, "direct@fast", "!\"fast\" is not the name of a protocol"},
    {"4", A, 8, false, "direct@mapd", "!did you mean \"mapped\""},
    {"4", A, 8, false, "direct@", "!is not the name of a protocol"},
    {"4", A, 8, false, "ring@staged", "!no protocols"},
    {"4", A, TWILL_IMM_BYTES + 1, false, "direct@imm", "!at most 368 bytes"},
    {"4", A, 49, false, "direct@mapped", "!twill_alloc"},
    {"4", A, 8 * KIB, true, "direct@fetched", "!TWILL_TUNE=reach"},
    {"4", A, 8 * KIB, FETCHED, "direct@mapped", "!twill_alloc"},
    {"4", A, 8 * KIB, FETCHED, "direct@fetched", "direct@fetched"},
    {"4", A, 8 * KIB, FETCHED | 1, "direct@fetched", "direct@fetched"},
    {"4", R, 8 * KIB, FETCHED, "direct@fetched", "!does not apply"},
    {"2x2", A, 8 * KIB, FETCHED, "levels@fetched", "!does not apply"},
    {"2", A, 64 * KIB, FETCHED, NULL, "direct@staged"}, /* not before it is measured */
    {"2", B, 64 << 20, FETCHED, NULL, "direct@staged"},
    {"4", B, 49, false, "direct@flat", "!does not apply"},
    {"4", A, 8, false, "allreduce[]:ring", "!is not a range"},
    {"4", A, 8, false, "allreduce[-]:ring", "!is not a range"},
    {"4", A, 8, false, "allreduce[8]:ring", "!is not a range"},
    {"4", A, 8, false, "allreduce[0-8Q]:ring", "!is not a range"},
    {"4", A, 8, false, "allreduce[0-99999999999999999999]:ring", "!is not a range"},
    {"4", A, 8, false, "allreduce[64K-8]:ring", "!ends before it begins"},
    {"4", A, 8, false, "allreduce[0-8]ring", "!\"]:\" is missing"},
    {"4", A, 8, false, "allreduce[0-8:ring", "!\"]:\" is missing"},
    {"4", A, 8, false, "ring=4", "!ring takes no parameters"},
    {"4", A, 8, false, "torus=2x2x2", "!is no parameter of torus"},
    {"4", A, 8, false, "torus=0x4", "!is no parameter of torus"},
    {"4", A, 8, false, "torus=2x70000", "!is no parameter of torus"},
    {"4", A, 8, false, "torus=", "!is no parameter of torus"},
    {"4", A, 8, false, "torus=2x3", "!does not apply"},
};

/* Print "name", with parameters and protocol where `like` has them. */
static void describe_choice(const struct twill_choice *choice, const char *like, char *text,
                            size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "%s", choice->algorithm->name);
    for (unsigned i = 0; strchr(like, '=') != NULL && i < choice->algorithm->parameters; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%c%u", i == 0 ? '=' : 'x',
                                 choice->shape.parameter[i]);
    if (strchr(like, '@') != NULL)
        snprintf(text + used, bytes - used, "@%s", twill_protocol_name(choice->shape.protocol));
}

static twill_status choose_row(struct twill_choice *choice, const struct twill_world *world,
                               size_t row, struct twill_error *error)
{
    struct twill_chooser *chooser;
    struct twill_select_request request = {.collective =
                                               (enum twill_collective)table[row].collective,
                                           .bytes = table[row].bytes,
                                           .mapped = (table[row].access & 1) != 0,
                                           .fetched = (table[row].access & FETCHED) != 0};
    struct twill_tuning *tuning = test_timings();
    twill_status status =
        twill_chooser_create(&chooser, world, tuning, table[row].requested, error);
    if (status == TWILL_OK)
        status = twill_select(choice, chooser, &request, error);
    twill_chooser_destroy(chooser);
    twill_tuning_destroy(tuning);
    return status;
}

TWILL_TEST(test_table)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(table); i++) {
        struct twill_world world;
        struct twill_choice choice;
        struct twill_error error = {.status = TWILL_OK};
        char got[sizeof(error.message)];
        assert_int_equal(twill_world_declare(&world, table[i].nodes, &error), TWILL_OK);
        twill_status status = choose_row(&choice, &world, i, &error);
        snprintf(got, sizeof(got), "%s", error.message);
        if (status == TWILL_OK)
            describe_choice(&choice, table[i].choice, got, sizeof(got));
        const char *refusal = table[i].choice[0] == '!' ? table[i].choice + 1 : NULL;
        bool right = refusal == NULL ? strcmp(got, table[i].choice) == 0
                                     : status == TWILL_ERR_CONFIG && strstr(got, refusal) != NULL &&
                                           strncmp(got, "TWILL_ALGORITHM", 15) == 0;
        if (!right)
            fail_msg("row %zu (%s, %s, %zu bytes, %s): %s, not %s", i, table[i].nodes,
                     twill_collective_name((enum twill_collective)table[i].collective),
                     table[i].bytes, table[i].requested ? table[i].requested : "-", got,
                     table[i].choice);
        twill_world_destroy(&world);
    }
}

/* --- sweeps ----------------------------------------------------------------------------------- */

typedef void (*world_fn)(struct twill_world *world, struct twill_chooser *chooser);

static void each_world(uint32_t most, world_fn fn)
{
    for (uint32_t size = 1; size <= most; size += size < 9 ? 1 : 7) {
        for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
            struct twill_world world;
            struct twill_chooser *chooser;
            if (!test_world(&world, size, placement, 2))
                continue;
            assert_int_equal(twill_chooser_create(&chooser, &world, NULL, NULL, NULL), TWILL_OK);
            fn(&world, chooser);
            twill_chooser_destroy(chooser);
            twill_world_destroy(&world);
        }
    }
}

/* Check that the choice can be emitted and takes the bytes, and that another chooser makes an equal
 * choice, whatever it has chosen before. */
static void check_request(const struct twill_world *world, struct twill_chooser *chooser,
                          struct twill_chooser *fresh, const struct twill_select_request *request)
{
    struct twill_choice choice[2];
    struct twill_schedule schedule;
    struct twill_error error = {.status = TWILL_OK};
    twill_status status[2] = {twill_select(&choice[0], chooser, request, &error),
                              twill_select(&choice[1], fresh, request, NULL)};
    assert_int_equal(status[0], status[1]);
    if (status[0] != TWILL_OK)
        fail_msg("%s, vector %d, order %d, %u ranks: %s",
                 twill_collective_name(request->collective), request->vector, (int)request->order,
                 world->size, error.message);
    assert_memory_equal(&choice[0].shape, &choice[1].shape, sizeof(choice[0].shape));
    assert_ptr_equal(choice[0].algorithm, choice[1].algorithm);
    assert_false(choice[0].substituted);
    assert_true(twill_algorithm_applies(choice[0].algorithm, world, &choice[0].shape));
    assert_int_equal(
        twill_schedule_emit(&schedule, choice[0].algorithm, world, 0, &choice[0].shape, NULL),
        TWILL_OK);
    size_t block_bytes = request->bytes / schedule.blocks;
    assert_true(!schedule.uses_imm || block_bytes <= TWILL_IMM_BYTES ||
                request->collective == TWILL_BARRIER);
    assert_true(request->mapped || request->fetched ||
                (!schedule.uses_peer_src && !schedule.uses_peer_dst));
    if (schedule.uses_peer_src || schedule.uses_peer_dst)
        assert_true(twill_mapping_matters(chooser, request));
    twill_schedule_destroy(&schedule);
    /* Nodes with mapped and with unmapped buffers must exchange the same messages. */
    struct twill_select_request unmapped = *request;
    unmapped.mapped = false;
    assert_int_equal(twill_select(&choice[1], chooser, &unmapped, NULL), TWILL_OK);
    bool instead = choice[0].shape.protocol == TWILL_PROTOCOL_MAPPED &&
                   choice[1].shape.protocol == TWILL_PROTOCOL_STAGED;
    if (world->nodes > 1) {
        assert_ptr_equal(choice[0].algorithm, choice[1].algorithm);
        assert_true(instead || choice[0].shape.protocol == choice[1].shape.protocol);
        assert_memory_equal(choice[0].shape.parameter, choice[1].shape.parameter,
                            sizeof(choice[0].shape.parameter));
    }
}

static void check_all_requests(struct twill_world *world, struct twill_chooser *chooser)
{
    static const size_t sizes[] = {3221225472u,         1u << 20,        32768, 4097, 2048,
                                   TWILL_IMM_BYTES + 1, TWILL_IMM_BYTES, 1,     0};
    struct twill_chooser *fresh;
    assert_int_equal(twill_chooser_create(&fresh, world, NULL, NULL, NULL), TWILL_OK);
    for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT; c++) {
        enum twill_collective collective = (enum twill_collective)c;
        const struct twill_collective_facts *facts = twill_collective_facts(collective);
        unsigned orders = facts->reduces ? TWILL_ORDER_COUNT : 1;
        for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(sizes) * orders * 4; i++) {
            struct twill_select_request request = {
                .collective = collective,
                .root = facts->rooted ? world->size - 1 : 0,
                .mapped = i % 2 != 0,
                .fetched = i % 3 != 0,
                .vector = facts->sharded && i / 2 % 2 != 0,
                .order = (enum twill_order)(i / 4 % orders),
                .bytes = sizes[i / 4 / orders],
                .type = TWILL_F32,
            };
            struct twill_shape shape = {.collective = collective, .vector = request.vector};
            if (!twill_shape_knows_all(&shape))
                request.bytes = 0;
            check_request(world, chooser, fresh, &request);
        }
    }
    twill_chooser_destroy(fresh);
}

TWILL_TEST(test_all_choices_apply)
{
    each_world(TEST_FEWER ? 9 : 37, check_all_requests);
}

/* --- no cliffs -------------------------------------------------------------------------------- */

static const struct twill_candidate *candidate_of(const struct twill_candidates *all,
                                                  const struct twill_choice *choice)
{
    for (size_t i = 0; i < all->count; i++)
        if (twill_candidate_is(&all->candidate[i], choice))
            return &all->candidate[i];
    fail_msg("%s is chosen and no candidate", choice->algorithm->name);
    return NULL;
}

struct edge {
    struct twill_chooser *chooser;
    const struct twill_candidates *all;
    struct twill_select_request request;
    size_t thresholds;
};

static const struct twill_candidate *chosen_at(struct edge *e, size_t bytes)
{
    struct twill_choice choice;
    e->request.bytes = bytes;
    assert_int_equal(twill_select(&choice, e->chooser, &e->request, NULL), TWILL_OK);
    return candidate_of(e->all, &choice);
}

/* Check that no candidate that takes this size costs less than the chosen one. */
static uint64_t check_cheapest(struct edge *e, size_t bytes)
{
    const struct twill_candidate *chosen = chosen_at(e, bytes);
    uint64_t cost = twill_candidate_cost(chosen, bytes);
    for (size_t i = 0; i < e->all->count; i++)
        if (twill_candidate_takes(&e->all->candidate[i], bytes, e->request.mapped))
            assert_true(cost <= twill_candidate_cost(&e->all->candidate[i], bytes));
    return cost;
}

/* Find where between `low` and `high` the choice changes, and check the elements around it: cost
 * must not jump, except where one of the two choices does not take the size. */
static void check_threshold(struct edge *e, size_t low, size_t high)
{
    const size_t element = 4;
    while (high - low > element) {
        size_t middle = low + (high - low) / 2 / element * element;
        if (chosen_at(e, middle) == chosen_at(e, low))
            low = middle;
        else
            high = middle;
    }
    const struct twill_candidate *before = chosen_at(e, low), *after = chosen_at(e, high);
    bool both = twill_candidate_takes(before, high, e->request.mapped) &&
                twill_candidate_takes(after, low, e->request.mapped);
    uint64_t cost[3];
    for (size_t i = 0; i < 3; i++)
        cost[i] = check_cheapest(e, low + i * element);
    for (size_t i = 0; i < 2 && both; i++) {
        uint64_t more = cost[i + 1] > cost[i] ? cost[i + 1] - cost[i] : cost[i] - cost[i + 1];
        assert_true(more <= cost[i] / 20 + 1000); /* an element's worth, never a cliff */
    }
    e->thresholds++;
}

static void check_edges(struct twill_world *world, struct twill_chooser *chooser)
{
    struct edge e = {.chooser = chooser};
    unsigned kinds = world->nodes == 1 ? 2 : 1; /* unmapped and mapped buffers, or any */
    for (unsigned i = 0; i < kinds * TWILL_COLLECTIVE_COUNT; i++) {
        e.request = (struct twill_select_request){.collective = (enum twill_collective)(i / kinds),
                                                  .mapped = i % kinds != 0};
        if (e.request.collective == TWILL_BARRIER)
            continue;
        assert_int_equal(twill_chooser_candidates(chooser, &e.request, NULL, &e.all, NULL),
                         TWILL_OK);
        for (size_t bytes = 8; bytes < (size_t)1 << 30; bytes += bytes / 8 * 4)
            if (chosen_at(&e, bytes) != chosen_at(&e, bytes + bytes / 8 * 4))
                check_threshold(&e, bytes, bytes + bytes / 8 * 4);
    }
    if (world->nodes > 1)
        assert_true(e.thresholds > 0);
}

TWILL_TEST(test_no_cliffs)
{
    each_world(TEST_FEWER ? 9 : 37, check_edges);
}

/* --- overrides that cannot be followed -------------------------------------------------------- */

/* If the override's algorithm does the collective but not this call, another one is chosen and
 * `substituted` is set. */
TWILL_TEST(test_substituted)
{
    struct test_chooser c;
    struct twill_select_request request = {.collective = TWILL_ALLREDUCE, .bytes = 64};
    test_chooser_open(&c, "4x1", NULL, "recursive_doubling");
    struct twill_choice choice = test_chooser_choice(&c, &request);
    assert_string_equal(choice.algorithm->name, "recursive_doubling");
    assert_false(choice.substituted);
    request.order = TWILL_ORDER_LEFT;
    choice = test_chooser_choice(&c, &request);
    assert_string_not_equal(choice.algorithm->name, "recursive_doubling");
    assert_int_equal(choice.shape.order, TWILL_ORDER_LEFT);
    assert_true(choice.substituted);
    request = (struct twill_select_request){.collective = TWILL_BROADCAST, .bytes = 64};
    assert_false(test_chooser_choice(&c, &request).substituted); /* it is for other collectives */
    test_chooser_close(&c);
}

/* Measurements decide, whatever the price; FETCHED is chosen where it was measured to be faster and
 * peers can be read, and then addresses of buffers are exchanged for it. */
TWILL_TEST(test_measured_decides)
{
    static const struct {
        const char *nodes, *measured;
        unsigned access;
        const char *with, *without; /* chosen with this measurement and without one */
    } rows[] = {
        {"4x1", "ring 4x1", 0, "ring", "torus"},
        {"4x8", "torus 4x8", 0, "torus", "hierarchical:ring"},
        {"4", "direct@fetched 1x4", 0, "direct@staged", "direct@staged"},
        {"4", "direct@fetched 1x4", 1, "direct@mapped", "direct@mapped"},
        {"4", "direct@fetched 1x4", FETCHED, "direct@fetched", "direct@staged"},
        {"4", "direct@fetched 1x4", FETCHED | 1, "direct@fetched", "direct@mapped"},
    };
    for (size_t i = 0; i < 2 * TWILL_ARRAY_LENGTH(rows); i++) {
        const size_t row = i / 2;
        const bool with = i % 2 != 0;
        const struct twill_select_request request = {.collective = TWILL_ALLREDUCE,
                                                     .bytes = 1 << 20,
                                                     .type = TWILL_F32,
                                                     .mapped = (rows[row].access & 1) != 0,
                                                     .fetched = (rows[row].access & FETCHED) != 0};
        struct test_chooser c;
        char timings[80], got[64];
        snprintf(timings, sizeof(timings), "twill-tuning 1\nmeasured allreduce %s 1M 5\n",
                 rows[row].measured);
        test_chooser_open(&c, rows[row].nodes, with ? timings : NULL, NULL);
        struct twill_choice choice = test_chooser_choice(&c, &request);
        describe_choice(&choice, rows[row].with, got, sizeof(got));
        assert_string_equal(got, with ? rows[row].with : rows[row].without);
        if (strcmp(rows[row].nodes, "4") == 0)
            assert_int_equal(twill_mapping_matters(c.chooser, &request),
                             with && request.fetched ? TWILL_ACCESS_FETCHED : TWILL_ACCESS_MAPPED);
        test_chooser_close(&c);
    }
}

/* Costs on the slowest of two ranks, in ticks per 64 KiB, as machines have them. */
TWILL_TEST(test_fetch_pays)
{
    static const struct {
        const char *what;
        uint64_t staged, fetched;
        size_t shard;
        bool pays;
    } rows[] = {
        {"cores of a Xeon, 256 KiB that the reader has kept", 9521, 5313, 256 * KIB, true},
        {"the same, just written by the owner", 9521, 12686, 256 * KIB, false},
        {"1 MiB just written, beyond the caches", 34946, 29045, 1 << 20, true},
        {"slow system calls, 8 GB/s, against 25 through SHARED", 6600, 20500, 256 * KIB, false},
        {"the meeting takes what the copies save", 8000, 7000, 64 * KIB, false},
        {"the same in a long message", 8000, 7000, 4 << 20, true},
        {"less than a thirty-second", 8000, 7800, 4 << 20, false},
        {"not measured", 0, 0, 1 << 20, false},
        {"one not measured", 0, 100, 1 << 20, false},
        {"the other not measured", 100, 0, 1 << 20, false},
        {"the highest costs", UINT32_MAX, 1, 64 * KIB, true},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++)
        if (twill_fetch_pays(rows[i].staged, rows[i].fetched, rows[i].shard) != rows[i].pays)
            fail_msg("%s", rows[i].what);
}

/* What trials decide, and for which calls addresses of buffers are exchanged for that. */
TWILL_TEST(test_fetch_trial)
{
    enum { STAGED = TWILL_ACCESS_MAPPED, TRIED = STAGED | FETCHED | TWILL_ACCESS_TRIED };
    static const struct {
        const char *nodes, *requested;
        unsigned collective;
        size_t bytes;
        unsigned access, matters;
        const char *pays; /* chosen if a trial prefers FETCHED */
    } rows[] = {
        {"2", NULL, B, 256 * KIB, FETCHED, TRIED, "direct@fetched"},
        {"2", NULL, B, 64 * KIB, FETCHED, TRIED, "direct@fetched"},
        {"2", NULL, B, 63 * KIB, FETCHED, STAGED, NULL},
        {"2", NULL, B, 16 << 20, FETCHED, STAGED, NULL},
        {"2", NULL, TWILL_ALLTOALL, 2 << 20, FETCHED, TRIED, "direct@fetched"},
        {"2", NULL, TWILL_ALLTOALL, 64 * KIB, FETCHED, STAGED, NULL},
        {"4", NULL, TWILL_SCATTER, 1 << 20, FETCHED, TRIED, "direct@fetched"},
        {"2", NULL, B, 256 * KIB, 0, STAGED, "direct@staged"},
        {"2", NULL, B, 256 * KIB, FETCHED | 1, TRIED, "direct@mapped"},
        {"2", NULL, A, 1 << 20, FETCHED, STAGED, "direct@staged"},
        {"2", "direct@staged", B, 256 * KIB, FETCHED, 0, "direct@staged"},
        {"2", "direct@fetched", B, 256 * KIB, FETCHED, FETCHED, "direct@fetched"},
        {"2", "tree", B, 256 * KIB, FETCHED, 0, "tree"},
    };
    for (size_t row = 0; row < TWILL_ARRAY_LENGTH(rows); row++) {
        struct twill_select_request request = {.collective =
                                                   (enum twill_collective)rows[row].collective,
                                               .bytes = rows[row].bytes,
                                               .mapped = (rows[row].access & 1) != 0,
                                               .fetched = (rows[row].access & FETCHED) != 0};
        struct test_chooser c;
        char got[64];
        test_chooser_open(&c, rows[row].nodes, NULL, rows[row].requested);
        unsigned matters = twill_mapping_matters(c.chooser, &request);
        assert_int_equal(matters, rows[row].matters);
        struct twill_choice before = test_chooser_choice(&c, &request);
        if (matters == TRIED && !request.mapped)
            assert_int_equal(before.shape.protocol, TWILL_PROTOCOL_STAGED);
        request.fetch_pays = true;
        struct twill_choice choice = test_chooser_choice(&c, &request);
        if (rows[row].pays != NULL) {
            describe_choice(&choice, rows[row].pays, got, sizeof(got));
            assert_string_equal(got, rows[row].pays);
        }
        test_chooser_close(&c);
    }
}

TWILL_TEST(test_registry)
{
    const struct twill_algorithm *a;
    size_t count = 0;
    for (; (a = twill_algorithm_at(count)) != NULL; count++) {
        assert_ptr_equal(test_algorithm_find(a->name), a);
        assert_true(strlen(a->help) > 10);
        assert_true(a->collectives != 0 && a->collectives >> TWILL_COLLECTIVE_COUNT == 0);
        assert_true(a->protocols >> TWILL_PROTOCOL_COUNT == 0);
    }
    assert_true(count >= 7);
    assert_null(test_algorithm_find("none"));
    /* Emitting fails, and does not crash. */
    struct twill_world world;
    struct twill_schedule schedule;
    struct twill_error error = {.status = TWILL_OK};
    struct twill_shape shape = {.collective = TWILL_BROADCAST, .root = 4};
    test_grid(&world, 1, 4);
    assert_int_equal(
        twill_schedule_emit(&schedule, test_algorithm_find("tree"), &world, 0, &shape, &error),
        TWILL_ERR_UNSUPPORTED);
    shape.root = 0;
    assert_int_equal(
        twill_schedule_emit(&schedule, test_algorithm_find("tree"), &world, 4, &shape, NULL),
        TWILL_ERR_ARGUMENT);
    assert_int_equal(
        twill_schedule_emit(&schedule, test_algorithm_find("ring"), &world, 0, &shape, NULL),
        TWILL_ERR_UNSUPPORTED);
    assert_null(schedule.steps);
    twill_world_destroy(&world);
}

/* Two ranks on two cores of a virtual Xeon with AMX: what is chosen takes at most a twentieth
 * longer than the other protocol. Of three calls, two have fresh data, and one repeats the last.
 * Times are in ns, first that with fresh data. */
TWILL_TEST(test_two_near_ranks)
{
    enum { STAGED = TWILL_PROTOCOL_STAGED, FLAT = TWILL_PROTOCOL_FLAT };
    enum { MAPPED = TWILL_PROTOCOL_MAPPED, SCATTER = TWILL_SCATTER, GATHER = TWILL_GATHER };
    static const struct {
        int collective;
        size_t kib; /* of all shards */
        struct {
            int protocol;
            uint32_t fresh, again;
        } time[2];
    } rows[] = {
        {R, 8, {{FLAT, 1560, 730}, {STAGED, 1830, 1400}}},
        {R, 16, {{FLAT, 2590, 1030}, {STAGED, 2910, 2380}}},
        {R, 32, {{FLAT, 4050, 1990}, {STAGED, 4290, 3490}}},
        {R, 64, {{FLAT, 6440, 3720}, {STAGED, 5760, 4460}}},
        {R, 256, {{FLAT, 19170, 14790}, {STAGED, 16900, 16500}}},
        {R, 1024, {{FLAT, 76830, 85340}, {STAGED, 95790, 101480}}},
        {R, 8, {{FLAT, 1570, 760}, {MAPPED, 1640, 560}}},
        {A, 16, {{FLAT, 2010, 2070}, {STAGED, 2340, 2330}}},
        {A, 32, {{FLAT, 2540, 2530}, {STAGED, 4040, 3950}}},
        {A, 256, {{FLAT, 18380, 18490}, {STAGED, 16110, 16590}}},
        {B, 16, {{MAPPED, 1400, 650}, {STAGED, 2870, 1700}}},
        {GATHER, 32, {{MAPPED, 1950, 590}, {STAGED, 2720, 1610}}},
        {SCATTER, 32, {{MAPPED, 1560, 670}, {STAGED, 2220, 1360}}},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++) {
        struct test_chooser c;
        const struct twill_select_request request = {
            .collective = (enum twill_collective)rows[i].collective,
            .bytes = rows[i].kib * KIB,
            .mapped = rows[i].time[0].protocol == MAPPED || rows[i].time[1].protocol == MAPPED};
        test_chooser_open(&c, "2", NULL, NULL);
        int chosen = (int)test_chooser_choice(&c, &request).shape.protocol;
        unsigned at = chosen == rows[i].time[1].protocol;
        assert_int_equal(chosen, rows[i].time[at].protocol);
        uint32_t own = 2 * rows[i].time[at].fresh + rows[i].time[at].again,
                 other = 2 * rows[i].time[!at].fresh + rows[i].time[!at].again;
        if (own > other + other / 20)
            fail_msg("%s of %zu KiB takes %s", twill_collective_name(request.collective),
                     rows[i].kib, twill_protocol_name((enum twill_protocol)chosen));
        test_chooser_close(&c);
    }
}

/* Small parts are copied if ranks share cores, since to meet takes switches between them. */
TWILL_TEST(test_crowded_copies)
{
    static const struct {
        int collective;
        size_t bytes;
        uint32_t to_a_core;
        bool matters; /* whether buffers are mapped */
    } rows[] = {{B, 16 * KIB, 1, true}, {B, 16 * KIB, 2, false},  {B, 32 * KIB, 2, true},
                {A, 16 * KIB, 2, true}, {G, 127 * KIB, 2, false}, {G, 128 * KIB, 2, true}};
    for (size_t row = 0; row < TWILL_ARRAY_LENGTH(rows); row++) {
        struct test_chooser c;
        const struct twill_select_request request = {
            .collective = (enum twill_collective)rows[row].collective, .bytes = rows[row].bytes};
        test_chooser_open(&c, "4", NULL, NULL);
        twill_chooser_crowd(c.chooser, rows[row].to_a_core);
        assert_int_equal(twill_mapping_matters(c.chooser, &request) != 0, rows[row].matters);
        test_chooser_close(&c);
    }
}

/* The work of the ranks that share a core adds up: few messages are chosen, and only there. The
 * choice for one size is that of all candidates. */
TWILL_TEST(test_shared_cores)
{
    static const struct {
        uint32_t to_a_core;
        const char *chosen;
    } rows[] = {{0, "recursive_doubling"}, {1, "recursive_doubling"}, {64, "hub"}, {128, "hub"}};
    const struct twill_select_request request = {.collective = TWILL_ALLREDUCE, .bytes = 4};
    for (size_t row = 0; row < TWILL_ARRAY_LENGTH(rows); row++) {
        const struct twill_candidates *all;
        struct test_chooser c;
        test_chooser_open(&c, "256", NULL, NULL);
        twill_chooser_crowd(c.chooser, rows[row].to_a_core);
        struct twill_choice choice = test_chooser_choice(&c, &request);
        assert_string_equal(choice.algorithm->name, rows[row].chosen);
        assert_int_equal(twill_chooser_candidates(c.chooser, &request, NULL, &all, NULL), TWILL_OK);
        assert_true(twill_candidate_is(test_cheapest(all, 4, 0), &choice));
        test_chooser_close(&c);
    }
}
