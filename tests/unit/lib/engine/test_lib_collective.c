/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep: every collective, even and vector, x type x operation x registered algorithm x world x
 * count x root x in place x form (blocking, nonblocking, persistent) x kind of memory, payload by
 * rank and position, against a serial oracle, every byte of both buffers compared. Each call takes
 * the plan that twill_comm_plan_for() has named before. Sampled by
 * TEST_SEED: calls, the kind of memory of each world, and the worlds of each algorithm, which some
 * consecutive seeds cover; everything with TEST_WHOLE. A new algorithm is swept without a line
 * here. */
#include "algorithms/algorithms.h"
#include "tests/support/collectives.h"
#include "tests/support/payload.h"
#include "tests/support/plans.h"
#include "tests/support/schedules.h"
#include "tests/support/unit.h"

/* The thread sanitizer is some twenty times slower and finds no more in longer messages. */
#define COLLECTIVE_MOST_BYTES (TEST_TSAN ? (size_t)300 << 10 : (size_t)1 << 20)
#define COLLECTIVE_CALLS      (TEST_TSAN ? 15u : TEST_ASAN ? 100u : 300u)
#define CALLS_NAMED           (TEST_TSAN ? 6u : TEST_ASAN ? 20u : 40u)
#define MOST_MOVED            16u /* bytes, by which buffers are moved to odd addresses */
/* An algorithm is swept by name on one in this many worlds of those that it applies to. */
#define WORLDS_NAMED (TEST_TSAN ? 12u : TEST_ASAN ? 6u : 3u)

struct world_case {
    int size;
    const char *nodes; /* TWILL_NODES, or "" */
};

/* Indices of counts: calls checked, by collective; and calls with created operations. */
enum { MADE = TWILL_COLLECTIVE_COUNT, TALLIES };

struct calls_sweep {
    const struct world_case *world;
    const char *algorithm; /* TWILL_ALGORITHM, or "" */
    uint32_t collectives;  /* swept */
    bool heap;             /* buffers by twill_alloc() */
    uint64_t seed;
    const uint64_t *numbers; /* of the calls to make */
    size_t calls;
    unsigned long checked[TALLIES];
};

/* --- the calls, numbered -------------------------------------------------------------------- */

enum { COLLECTIVE_COUNTS = 15, ROOTS = 3, COLLECTIVE_MOST_RANKS = 8 };

static size_t count_number(unsigned i, size_t size)
{
    const size_t counts[COLLECTIVE_COUNTS] = {0,  1,   size - 1, size, size + 1, 11,    12,    13,
                                              97, 499, 512,      4099, 16411,    65537, 200003};
    return counts[i];
}

/* Set the call of this number. Returns false if there is no such call, or it is too large. */
static bool call_number(uint64_t n, size_t size, struct test_call *call)
{
    call->form = (enum test_form)(n % TEST_FORM_COUNT);
    n /= TEST_FORM_COUNT;
    call->in_place = n % 2;
    n /= 2;
    unsigned root = (unsigned)(n % ROOTS);
    n /= ROOTS;
    call->count = count_number((unsigned)(n % COLLECTIVE_COUNTS), size);
    n /= COLLECTIVE_COUNTS;
    call->op = (twill_op)(n % TEST_OP_COUNT);
    n /= TEST_OP_COUNT;
    call->type = (twill_type)(n % TWILL_TYPE_COUNT);
    n /= TWILL_TYPE_COUNT;
    call->vector = n % 2;
    call->collective = (enum twill_collective)(n / 2);
    call->root = root == 0 ? 0 : root == 1 ? (int)size - 1 : (int)size / 2;
    const struct twill_collective_facts *facts = twill_collective_facts(call->collective);
    if ((!facts->rooted && root > 0) || (root > 0 && call->root == 0) ||
        (root == 2 && call->root == (int)size - 1))
        return false;
    if (call->collective == TWILL_BARRIER &&
        (call->type != TWILL_F32 || call->in_place || call->count != 1))
        return false;
    return test_call_exists(call) && test_call_bytes(call, (int)size) <= COLLECTIVE_MOST_BYTES;
}

static const uint64_t all_calls = (uint64_t)TEST_FORM_COUNT * 2 * ROOTS * COLLECTIVE_COUNTS *
                                  TEST_OP_COUNT * TWILL_TYPE_COUNT * 2 * TWILL_COLLECTIVE_COUNT;

static uint64_t hash(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static enum twill_collective collective_of(uint64_t number)
{
    return (enum twill_collective)(number / (all_calls / TWILL_COLLECTIVE_COUNT));
}

/* Return the numbers of all calls that exist with this many ranks; found once for each size. */
static const uint64_t *existing_calls(size_t size, size_t *count)
{
    static struct {
        uint64_t *number;
        size_t count;
    } found[COLLECTIVE_MOST_RANKS + 1];
    assert_true(size <= COLLECTIVE_MOST_RANKS);
    if (found[size].number == NULL) {
        uint64_t *numbers = malloc(all_calls * sizeof(*numbers));
        assert_non_null(numbers);
        for (uint64_t n = 0; n < all_calls; n++) {
            struct test_call call = {.turn = 0};
            if (call_number(n, size, &call))
                numbers[found[size].count++] = n;
        }
        found[size].number = realloc(numbers, found[size].count * sizeof(*numbers));
        assert_non_null(found[size].number);
    }
    *count = found[size].count;
    return found[size].number;
}

/* Choose the calls of a sweep: all, or about `most`, and at least one: fewer of the large ones,
 * which take most of the time, and always some barriers. */
static void choose_calls(struct calls_sweep *sweep, unsigned most, uint64_t *numbers)
{
    size_t size = (size_t)sweep->world->size, existing = 0, there_are = 0;
    const uint64_t *all = existing_calls(size, &existing);
    for (size_t i = 0; i < existing; i++)
        if (sweep->collectives >> collective_of(all[i]) & 1)
            numbers[there_are++] = all[i];
    sweep->numbers = numbers;
    sweep->calls = 0;
    uint64_t least = UINT64_MAX, first = 0;
    for (size_t i = 0; i < there_are; i++) {
        uint64_t draw = hash(numbers[i] * 0x9e3779b97f4a7c15u + sweep->seed) % there_are;
        if (draw < least) {
            least = draw;
            first = numbers[i];
        }
        bool always = most == 0 || collective_of(numbers[i]) == TWILL_BARRIER;
        if (!always && draw >= most + 1u)
            continue;
        struct test_call call = {.turn = 0};
        (void)call_number(numbers[i], size, &call);
        bool large = test_call_bytes(&call, (int)size) > COLLECTIVE_MOST_BYTES / 8;
        if (always || draw < most / (large ? 8u : 1u) + 1u)
            numbers[sweep->calls++] = numbers[i];
    }
    if (sweep->calls == 0 && there_are > 0)
        numbers[sweep->calls++] = first;
}

/* --- one rank ------------------------------------------------------------------------------- */

/* Buffers at any address: in one of four calls those of all ranks, in one those of one rank, which
 * must change nothing that ranks decide alike. */
static struct test_buffers placed(const struct test_buffers *buffers, uint64_t number,
                                  twill_comm *comm)
{
    struct test_buffers moved = *buffers;
    uint64_t draw = hash(number), rank = (uint64_t)twill_comm_rank(comm);
    bool moves =
        draw % 4 == 0 || (draw % 4 == 1 && draw / 4 % (uint64_t)twill_comm_size(comm) == rank);
    moved.src += moves ? hash(draw + rank) % MOST_MOVED : 0;
    moved.dst += moves ? hash(draw - rank) % MOST_MOVED : 0;
    return moved;
}

static bool sweep_calls(struct calls_sweep *sweep, twill_comm *comm,
                        const struct test_buffers *buffers)
{
    for (size_t i = 0; i < sweep->calls; i++) {
        struct test_call call = {.turn = 0};
        (void)call_number(sweep->numbers[i], (size_t)sweep->world->size, &call);
        struct test_buffers moved = placed(buffers, sweep->numbers[i], comm);
        if (!test_plan_check(&call, comm, &moved, sweep->heap))
            return TWILL_NOTE(false, "world %s, %s, call %llu", sweep->world->nodes,
                              sweep->algorithm, (unsigned long long)sweep->numbers[i]);
        if (twill_comm_rank(comm) == 0)
            sweep->checked[call.collective]++;
        if (twill_comm_rank(comm) == 0)
            sweep->checked[MADE] += call.op >= TWILL_OP_COUNT;
    }
    return true;
}

static void sweep_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct calls_sweep *sweep = user;
    /* Between nodes some worlds use libfabric, the others twill's own TCP. */
    const char *provider = size % 2 == 1 ? "TWILL_PROVIDER=ofi:tcp" : "TWILL_PROVIDER=tcp";
    twill_comm *comm;
    struct test_buffers buffers;
    if (!twill_test_open(&comm, bootstrap, sweep->world->nodes,
                         twill_test_text("TWILL_ALGORITHM=%s", sweep->algorithm),
                         TWILL_TEST_PATIENT, provider, "TWILL_LOG=none",
                         twill_test_text("TWILL_TUNE=heap_limit=16M,segment=64K,segment_net=128K,"
                                         "stream=200K,slot=%d",
                                         size % 2 == 0 ? 64 : 0)))
        return;
    twill_context *context = twill_comm_context(comm);
    if (test_buffers_get(&buffers, context, COLLECTIVE_MOST_BYTES, MOST_MOVED, sweep->heap)) {
        (void)sweep_calls(sweep, comm, &buffers);
        test_buffers_put(&buffers, context, sweep->heap);
    }
    twill_test_close(comm);
}

/* --- the sweeps ----------------------------------------------------------------------------- */

static const struct world_case worlds[] = {
    {1, ""},    {2, ""},    {3, ""},    {4, ""},    {5, ""},      {8, ""},
    {2, "2x1"}, {4, "2x2"}, {5, "5x1"}, {6, "2x3"}, {6, "3+2+1"}, {7, "1+4+2"},
};

/* Parameters of an algorithm, and how they are written after its name. */
static const struct test_parameter {
    unsigned numbers;
    uint16_t number[TWILL_PARAMETERS];
    const char *text;
} parameters[] = {
    {0, {0}, ""}, {1, {2}, "=2"}, {1, {3}, "=3"}, {2, {2, 2}, "=2x2"}, {2, {2, 3}, "=2x3"}};

/* Can the algorithm do this collective here, with the protocol that works for every size? */
static bool applies(const struct twill_algorithm *algorithm, const struct twill_world *world,
                    struct twill_shape shape)
{
    shape.protocol = TWILL_PROTOCOL_STAGED;
    return twill_algorithm_applies(algorithm, world, &shape);
}

/* Write "allreduce:ring;reduce_scatter:ring" etc.: this algorithm for each collective that it can
 * do here. */
static uint32_t name_choice(char *text, size_t bytes, const struct twill_algorithm *algorithm,
                            const struct twill_world *world, const struct test_parameter *parameter)
{
    size_t used = 0;
    uint32_t collectives = 0;
    text[0] = '\0';
    for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT; c++) {
        struct twill_shape shape = {.collective = (enum twill_collective)c};
        memcpy(shape.parameter, parameter->number, sizeof(shape.parameter));
        if (!applies(algorithm, world, shape))
            continue;
        collectives |= 1u << c;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s:%s%s", used ? ";" : "",
                                 twill_collective_name((enum twill_collective)c), algorithm->name,
                                 parameter->text);
    }
    return collectives;
}

static void run_sweep(const struct world_case *world, const char *algorithm, uint32_t collectives,
                      bool heap, uint64_t number, unsigned calls, unsigned long *checked)
{
    struct calls_sweep sweep = {.world = world,
                                .algorithm = algorithm,
                                .collectives = collectives,
                                .heap = heap,
                                .seed = hash(test_seed() * 1000003 + number)};
    uint64_t *numbers = malloc(all_calls * sizeof(*numbers));
    assert_non_null(numbers);
    choose_calls(&sweep, test_whole() ? 0 : calls, numbers);
    twill_test_run_ranks(world->size, sweep_rank, &sweep);
    free(numbers);
    unsigned long all = 0;
    for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT; c++) {
        checked[c] += sweep.checked[c];
        all += sweep.checked[c];
    }
    checked[MADE] += sweep.checked[MADE];
    assert_true(all > 0);
}

static void print_counts(const char *what, const unsigned long *checked)
{
    unsigned long all = 0;
    print_message("%s:", what);
    for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT; c++) {
        print_message(" %s %lu", twill_collective_name((enum twill_collective)c), checked[c]);
        all += checked[c];
    }
    print_message("; %lu calls in all, %lu with operations of the caller's\n", all, checked[MADE]);
    assert_true(checked[MADE] > 0);
}

TWILL_TEST(chosen_algorithms)
{
    unsigned long checked[TALLIES] = {0};
    for (unsigned w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++)
        for (unsigned heap = 0; heap < 2; heap++)
            if (test_whole() || (w + heap + test_seed()) % 2 == 0)
                run_sweep(&worlds[w], "", UINT32_MAX, heap != 0, w * 2 + heap, COLLECTIVE_CALLS,
                          checked);
    print_counts("by choice", checked);
}

/* Write the choice of an algorithm by name for a world. Returns the collectives that it can do. */
static uint32_t name_for(char *text, size_t bytes, unsigned w,
                         const struct twill_algorithm *algorithm, unsigned p)
{
    struct twill_world world;
    test_world_of_nodes(&world, worlds[w].nodes, worlds[w].size);
    uint32_t does = name_choice(text, bytes, algorithm, &world, &parameters[p]);
    twill_world_destroy(&world);
    return does;
}

/* Sweep an algorithm with one set of parameters on some of the worlds that it applies to: those
 * whose turn it is by the seed, and one at least. */
static void sweep_named(size_t a, unsigned p, unsigned long *checked)
{
    const struct twill_algorithm *algorithm = twill_algorithm_at(a);
    char name[400];
    unsigned applicable = 0, turn = 0;
    for (unsigned w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++)
        applicable += name_for(name, sizeof(name), w, algorithm, p) != 0;
    unsigned one_in = test_whole() ? 1 : (unsigned)twill_min(WORLDS_NAMED, applicable);
    for (unsigned w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++) {
        uint32_t does = name_for(name, sizeof(name), w, algorithm, p);
        if (does != 0 && (turn++ + a + p + test_seed()) % one_in == 0)
            run_sweep(&worlds[w], name, does, (a + w + test_seed() / one_in) % 2,
                      a * 31 + w * 7 + p, CALLS_NAMED, checked);
    }
}

TWILL_TEST(named_algorithms)
{
    unsigned long checked[TALLIES] = {0};
    const struct twill_algorithm *algorithm;
    for (size_t a = 0; (algorithm = twill_algorithm_at(a)) != NULL; a++)
        for (unsigned p = 0; p < TWILL_ARRAY_LENGTH(parameters); p++)
            if (p == 0 || parameters[p].numbers == algorithm->parameters)
                sweep_named(a, p, checked);
    print_counts("by name", checked);
}
