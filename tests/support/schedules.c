/* SPDX-License-Identifier: Apache-2.0 */
/* Worlds, schedules of all their ranks, and what these cost. */
#include "tests/support/schedules.h"
#include "algorithms/schedule/step_table.h"
#include "algorithms/select/candidates.h"
#include "lib/job/job_internal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint32_t label_of(uint32_t r, uint32_t size, unsigned placement, uint32_t *state)
{
    uint32_t side = 1;
    switch (placement) {
    case TEST_ALL_NODES:
        return r;
    case TEST_PAIRS:
        return r / 2;
    case TEST_HALVES:
        return r >= (size + 1) / 2;
    case TEST_SQUARE:
        while (side * side < size)
            side++;
        return r / side;
    case TEST_RAGGED:
        for (uint32_t node = 0, end = 0;; node++)
            if ((end += node + 1) > r)
                return node;
    case TEST_ROUND_ROBIN:
        return r % 3;
    case TEST_LONE_AND_MANY:
        return r > 0;
    case TEST_GROUPS:
        if (size % 2 != 0)
            return r;
        /* fall through */
    case TEST_RANDOM:
        *state = *state * 1664525u + 1013904223u;
        return (*state >> 16) % (size / 2 + 1) * 1000003u;
    default:
        return 7;
    }
}

bool test_world(struct twill_world *world, uint32_t size, unsigned placement, uint32_t seed)
{
    static const uint32_t least[TEST_PLACEMENT_COUNT] = {1, 2, 3, 4, 9, 3, 4, 3, 4, 3};
    if (size < least[placement])
        return false;
    uint32_t *label = calloc(size, sizeof(*label));
    assert_non_null(label);
    uint32_t state = seed * 2654435761u + size;
    for (uint32_t r = 0; r < size; r++)
        label[r] = label_of(r, size, placement, &state);
    assert_int_equal(twill_world_create(world, size, label, NULL), TWILL_OK);
    for (uint32_t r = 0; r < size && placement == TEST_GROUPS; r++)
        label[r] = label_of(r, size, TEST_RANDOM, &state) % 3;
    if (placement == TEST_GROUPS)
        assert_int_equal(twill_world_set_level(world, TWILL_LEVEL_GROUP, label, NULL), TWILL_OK);
    free(label);
    return true;
}

struct each {
    struct test_case test;
    uint32_t roots;
    test_case_fn fn;
    void *user;
};

static void describe_test(struct test_case *test)
{
    static const char *const orders[TWILL_ORDER_COUNT] = {"", ", by rank", ", from the left"};
    const struct twill_shape *s = &test->shape;
    char parameters[40] = "";
    size_t used = 0;
    for (unsigned i = 0; i < TWILL_PARAMETERS; i++)
        if (s->parameter[i] != 0)
            used += (size_t)snprintf(parameters + used, sizeof(parameters) - used, "%c%u",
                                     i == 0 ? '=' : 'x', s->parameter[i]);
    snprintf(test->name, sizeof(test->name), "%s%s@%s %s%s, %u ranks on %u nodes, root %u%s",
             test->algorithm->name, parameters, twill_protocol_name(s->protocol),
             twill_collective_name(s->collective), s->vector ? "v" : "", test->world->size,
             test->world->nodes, s->root, orders[s->order]);
}

/* Call fn from the strictest to the least strict shape. */
static void each_demand(struct each *each)
{
    struct test_case *test = &each->test;
    const struct twill_collective_facts *facts = twill_collective_facts(test->shape.collective);
    for (int vector = facts->sharded; vector >= 0; vector--) {
        for (unsigned o = facts->reduces ? TWILL_ORDER_COUNT : 1; o-- > 0;) {
            test->shape.vector = vector != 0;
            test->shape.order = (enum twill_order)o;
            if (!twill_algorithm_applies(test->algorithm, test->world, &test->shape))
                continue;
            describe_test(test);
            each->fn(test, each->user);
        }
    }
}

static void each_root(struct each *each)
{
    uint32_t size = each->test.world->size, roots = each->roots;
    uint32_t count = !twill_collective_facts(each->test.shape.collective)->rooted ? 1
                     : roots == 0 || roots > size                                 ? size
                                                                                  : roots;
    for (uint32_t i = 0; i < count; i++) {
        /* spread, including both ends */
        each->test.shape.root = count == 1 ? 0 : (uint32_t)((uint64_t)i * (size - 1) / (count - 1));
        each_demand(each);
    }
}

/* Try some numbers; of two parameters the second is chosen so that they divide the ranks. */
static void each_number(struct each *each)
{
    uint16_t *parameter = each->test.shape.parameter;
    uint32_t size = each->test.world->size;
    for (uint32_t a = 1; a <= 8; a += a < 5 ? 1 : 3) {
        parameter[0] = (uint16_t)a;
        if (each->test.algorithm->parameters > 1)
            parameter[1] = (uint16_t)((size + a - 1) / a);
        each_root(each);
    }
}

static void each_parameter(struct each *each)
{
    const struct twill_algorithm *algorithm = each->test.algorithm;
    uint16_t *parameter = each->test.shape.parameter;
    memset(parameter, 0, sizeof(each->test.shape.parameter));
    each_root(each);
    if (algorithm->parse == NULL && algorithm->parameters > 0)
        each_number(each);
    for (const char *text = algorithm->examples; text != NULL && *text != '\0';) {
        size_t length = strcspn(text, ";");
        memset(parameter, 0, sizeof(each->test.shape.parameter));
        if (!algorithm->parse(text, length, parameter))
            fail_msg("%s: cannot read its example at %s", algorithm->name, text);
        each_root(each);
        text += length + (text[length] == ';');
    }
}

size_t test_algorithm_index(const struct twill_algorithm *algorithm)
{
    size_t a = 0;
    while (twill_algorithm_at(a) != algorithm)
        a++;
    assert_true(a < TEST_ALGORITHMS);
    return a;
}

const struct twill_algorithm *test_algorithm_find(const char *name)
{
    const struct twill_algorithm *algorithm;
    for (size_t a = 0; (algorithm = twill_algorithm_at(a)) != NULL; a++)
        if (strcmp(algorithm->name, name) == 0)
            break;
    return algorithm;
}

static bool is_selected(const char *variable, const char *name)
{
    const char *selected = getenv(variable);
    return selected == NULL || strcmp(selected, name) == 0;
}

void test_world_of_nodes(struct twill_world *world, const char *nodes, int size)
{
    uint32_t label[64] = {0};
    struct twill_error error = {0};
    if (nodes[0] != '\0')
        assert_int_equal(twill_world_parse_nodes(nodes, (uint32_t)size, label, &error), TWILL_OK);
    assert_int_equal(twill_world_create(world, (uint32_t)size, label, &error), TWILL_OK);
}

void test_each_case(struct twill_world *world, uint32_t roots, test_case_fn fn, void *user)
{
    struct each each = {.test = {.world = world}, .roots = roots, .fn = fn, .user = user};
    struct test_case *test = &each.test;
    for (size_t a = 0; (test->algorithm = twill_algorithm_at(a)) != NULL; a++) {
        for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT; c++) {
            bool plain = test->algorithm->protocols == 0 || c == TWILL_BARRIER;
            bool does = (test->algorithm->collectives >> c & 1) != 0;
            if (!does || !is_selected("TEST_ALGORITHM", test->algorithm->name) ||
                !is_selected("TEST_COLLECTIVE", twill_collective_name((enum twill_collective)c)))
                continue;
            for (unsigned f = 0; f < (plain ? 1u : (unsigned)TWILL_PROTOCOL_COUNT); f++) {
                if (!is_selected("TEST_PROTOCOL", twill_protocol_name((enum twill_protocol)f)))
                    continue;
                test->shape.collective = (enum twill_collective)c;
                test->shape.protocol = (enum twill_protocol)f;
                each_parameter(&each);
            }
        }
    }
}

void test_each_case_of(uint32_t size, uint32_t seed, uint32_t roots, test_case_fn fn, void *user)
{
    for (unsigned placement = 0; placement < TEST_PLACEMENT_COUNT; placement++) {
        struct twill_world world;
        if (!test_world(&world, size, placement, seed))
            continue;
        test_each_case(&world, roots, fn, user);
        twill_world_destroy(&world);
    }
}

struct twill_schedule *test_try_emit(const struct test_case *test, struct twill_error *error)
{
    uint32_t size = test->world->size;
    struct twill_schedule *schedules = calloc(size, sizeof(*schedules));
    assert_non_null(schedules);
    for (uint32_t r = 0; r < size; r++) {
        if (twill_schedule_emit(&schedules[r], test->algorithm, test->world, r, &test->shape,
                                error) != TWILL_OK) {
            test_schedules_destroy(schedules, r);
            return NULL;
        }
    }
    return schedules;
}

struct twill_schedule *test_emit(const struct test_case *test)
{
    struct twill_error error = {.status = TWILL_OK};
    struct twill_schedule *schedules = test_try_emit(test, &error);
    if (schedules == NULL)
        fail_msg("%s: %s", test->name, error.message);
    return schedules;
}

static uint64_t hash_schedules(const struct twill_schedule *schedules, uint32_t size)
{
    uint64_t h = 1;
    for (uint32_t r = 0; r < size; r++) {
        const struct twill_schedule *s = &schedules[r];
        const uint64_t facts[] = {s->count,         s->lanes,        s->shards,
                                  s->blocks,        s->tmp_blocks,   s->shared_blocks,
                                  s->uses_peer_src, s->uses_peer_dst};
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(facts); i++)
            h = (h ^ facts[i]) * 0x9e3779b97f4a7c15u ^ h >> 32;
        for (size_t i = 0; i < (size_t)s->count * sizeof(*s->steps) / 8; i++) {
            uint64_t word;
            memcpy(&word, (const char *)s->steps + 8 * i, 8);
            h = (h ^ word) * 0x9e3779b97f4a7c15u ^ h >> 32;
        }
    }
    return h;
}

bool test_is_covered(struct test_seen *seen, const struct test_case *test,
                     const struct twill_schedule *schedules)
{
    struct test_case *last = &seen->last;
    uint64_t hash = hash_schedules(schedules, test->world->size);
    struct twill_shape least = test->shape;
    least.vector = last->shape.vector;
    least.order = last->shape.order;
    bool fresh = last->algorithm != test->algorithm || last->world != test->world ||
                 memcmp(&least, &last->shape, sizeof(least)) != 0 ||
                 test->shape.vector > least.vector;
    *last = *test;
    if (fresh)
        seen->count = 0;
    for (unsigned i = 0; i < seen->count; i++)
        if (seen->hash[i] == hash)
            return true;
    if (seen->count < TEST_SEEN)
        seen->hash[seen->count++] = hash;
    return false;
}

bool test_enters_alike(const struct test_case *test, const struct twill_schedule *schedules)
{
    const uint32_t must_open = 1u << TWILL_ALLREDUCE | 1u << TWILL_REDUCE_SCATTER |
                               1u << TWILL_ALLGATHER | 1u << TWILL_ALLTOALL |
                               1u << TWILL_BROADCAST | 1u << TWILL_REDUCE;
    uint32_t size = test->world->size, open = 0;
    if (test->shape.protocol != TWILL_PROTOCOL_MAPPED || test->world->nodes > 1 || size < 2)
        return true;
    for (uint32_t r = 0; r < size; r++)
        open += twill_schedule_entry_steps(&schedules[r], r, size) > 0;
    bool open_all = strcmp(test->algorithm->name, "direct") == 0 &&
                    (must_open >> test->shape.collective & 1) != 0;
    return open == size || (open == 0 && !open_all);
}

void test_schedules_destroy(struct twill_schedule *schedules, uint32_t size)
{
    for (uint32_t r = 0; r < size; r++)
        twill_schedule_destroy(&schedules[r]);
    free(schedules);
}

/* --- costs --------------------------------------------------------------------------------------
 */

struct counting {
    struct test_schedule_cost *cost;
    const struct twill_schedule *schedule;
    const struct twill_world *world;
    uint32_t rank;
    size_t count, element;
};

static void count_step(const struct counting *c, const struct twill_step *step)
{
    struct test_schedule_cost *cost = c->cost;
    twill_operand operand = step->op == TWILL_STEP_SEND ? step->src : step->dst;
    uint64_t bytes = twill_step_bytes(c->schedule, operand, step->blocks, c->count, c->element);
    uint64_t operands = 0;
    switch (step->op) {
    case TWILL_STEP_SEND:
        cost->messages++;
        cost->bytes_sent += bytes;
        if (c->world->node[step->peer[0]] != c->world->node[c->rank])
            cost->bytes_remote += bytes;
        break;
    case TWILL_STEP_RECV_REDUCE:
        cost->bytes_reduced += bytes;
        break;
    case TWILL_STEP_REDUCE:
        for (unsigned i = 0; i < twill_step_peers(step); i++)
            cost->bytes_shared += step->peer[i] == c->rank ? 0 : bytes;
        operands = step->nsrc + (uint64_t)((step->flags & TWILL_STEP_ACC) != 0);
        cost->bytes_reduced += (operands - 1) * bytes;
        break;
    case TWILL_STEP_COPY:
        cost->bytes_shared += twill_step_peers(step) > 0 ? bytes : 0;
        break;
    case TWILL_STEP_SIGNAL:
    case TWILL_STEP_PUT_IMM:
        cost->signals++;
        break;
    default:
        break;
    }
}

/* Return whether this is the first message with that peer. Quadratic in messages, but costs of
 * thousands of peers are not needed fast. */
static bool is_new_peer(const struct twill_schedule *schedule, uint32_t step)
{
    for (uint32_t i = 0; i < step; i++)
        if (twill_step_shape(schedule->steps[i].op)->posts &&
            schedule->steps[i].peer[0] == schedule->steps[step].peer[0])
            return false;
    return true;
}

void test_schedule_cost(struct test_schedule_cost *cost, const struct twill_schedule *schedule,
                        const struct twill_world *world, uint32_t rank, size_t count,
                        size_t element)
{
    struct counting c = {.cost = cost,
                         .schedule = schedule,
                         .world = world,
                         .rank = rank,
                         .count = count,
                         .element = element};
    memset(cost, 0, sizeof(*cost));
    for (uint32_t l = 0; l < schedule->lanes; l++) {
        bool posted = false;
        for (uint32_t i = schedule->lane_first[l]; i < schedule->lane_first[l + 1]; i++) {
            const struct twill_step *step = &schedule->steps[i];
            bool posts = twill_step_shape(step->op)->posts;
            count_step(&c, step);
            if (step->op == TWILL_STEP_WAIT && posted)
                cost->rounds++;
            posted = step->op != TWILL_STEP_WAIT && (posted || posts);
            cost->peers += posts && is_new_peer(schedule, i);
        }
    }
}

static void add_costs(struct test_costs *costs, const struct test_schedule_cost *one)
{
#define COSTS_ADD(field)                                                                           \
    do {                                                                                           \
        costs->sum.field += one->field;                                                            \
        if (one->field > costs->most.field)                                                        \
            costs->most.field = one->field;                                                        \
    } while (0)
    COSTS_ADD(messages);
    COSTS_ADD(rounds);
    COSTS_ADD(peers);
    COSTS_ADD(signals);
    COSTS_ADD(bytes_sent);
    COSTS_ADD(bytes_remote);
    COSTS_ADD(bytes_shared);
    COSTS_ADD(bytes_reduced);
    costs->crossing += one->bytes_remote > 0;
}

struct test_costs test_cost_of(const char *name, struct twill_world *world,
                               const struct twill_shape *shape, size_t count)
{
    struct test_case test = {
        .algorithm = test_algorithm_find(name), .world = world, .shape = *shape};
    snprintf(test.name, sizeof(test.name), "%s", name);
    assert_non_null(test.algorithm);
    struct twill_schedule *schedules = test_emit(&test);
    struct test_costs costs;
    memset(&costs, 0, sizeof(costs));
    for (uint32_t r = 0; r < world->size; r++) {
        struct test_schedule_cost one;
        test_schedule_cost(&one, &schedules[r], world, r, count, 4);
        add_costs(&costs, &one);
    }
    test_schedules_destroy(schedules, world->size);
    return costs;
}

void test_grid(struct twill_world *world, uint32_t nodes, uint32_t ranks)
{
    char text[32];
    snprintf(text, sizeof(text), "%ux%u", nodes, ranks);
    assert_int_equal(twill_world_declare(world, text, NULL), TWILL_OK);
}

uint32_t test_crossings(uint32_t size, const uint32_t *ranks, const uint32_t *unit)
{
    uint32_t crossings = 0;
    for (uint32_t i = 0; i < size; i++)
        crossings += unit[ranks[i]] != unit[ranks[(i + 1) % size]];
    return crossings;
}

uint32_t test_floor_log(uint32_t n)
{
    uint32_t log = 0;
    while (n >>= 1)
        log++;
    return log;
}

uint32_t test_ceil_log(uint32_t n)
{
    return test_floor_log(n) + ((n & (n - 1)) != 0);
}

/* --- choices ------------------------------------------------------------------------------------
 */

const struct twill_candidate *test_cheapest(const struct twill_candidates *all, size_t bytes,
                                            unsigned access)
{
    const struct twill_candidate *best = NULL;
    for (const struct twill_candidate *c = all->candidate; c < all->candidate + all->count; c++)
        if (twill_candidate_competes(c, bytes, access) &&
            (best == NULL || twill_candidate_cost(c, bytes) < twill_candidate_cost(best, bytes)))
            best = c;
    return best;
}

void test_chooser_open(struct test_chooser *c, const char *world, const char *timings,
                       const char *requested)
{
    struct twill_error error = {.status = TWILL_OK};
    if (twill_world_declare(&c->world, world, &error) != TWILL_OK ||
        twill_tuning_create(&c->tuning, NULL, timings, "file", &error) != TWILL_OK ||
        twill_chooser_create(&c->chooser, &c->world, c->tuning, requested, &error) != TWILL_OK)
        fail_msg("%s", error.message);
}

struct twill_choice test_chooser_choice(struct test_chooser *c,
                                        const struct twill_select_request *request)
{
    struct twill_choice choice;
    assert_int_equal(twill_select(&choice, c->chooser, request, NULL), TWILL_OK);
    return choice;
}

void test_chooser_close(struct test_chooser *c)
{
    twill_chooser_destroy(c->chooser);
    twill_tuning_destroy(c->tuning);
    twill_world_destroy(&c->world);
}

/* --- the timings that are delivered with twill ---------------------------------------------------
 */

const struct twill_tuning_key test_timings_key = {
    .cpu = "GenuineIntel 6 143", .l2_bytes = UINT64_C(2) << 20, .cores = 2};

struct twill_tuning *test_timings(void)
{
    struct twill_tuning *tuning = NULL;
    struct twill_error error = {.status = TWILL_OK};
    char *text = NULL;
    const char *path = test_data("../../lib/tuning/sapphire-rapids-2-cores.tuning");
    if (twill_tuning_read(&text, path, &error) != TWILL_OK ||
        twill_tuning_create(&tuning, NULL, text, path, &error) != TWILL_OK)
        fail_msg("%s", error.message);
    assert_true(twill_tuning_is_for(text, &test_timings_key));
    free(text);
    return tuning;
}
