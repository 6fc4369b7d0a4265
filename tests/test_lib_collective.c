/* SPDX-License-Identifier: Apache-2.0 */
/* The sweep: every collective x type x operation x registered algorithm x world x count x in place
 * x kind of memory, payload by rank and position, against a serial oracle. A new algorithm is swept
 * without a line here. */
#include "algorithms/algorithms.h"
#include "kernels/convert.h"
#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MOST_BYTES ((size_t)4 << 20)
/* The thread sanitizer is some twenty times slower, and sees no more in more bytes. */
#ifdef __SANITIZE_THREAD__
#define SWEPT_BYTES ((size_t)300 << 10)
#define SPARSER     3
#else
#define SWEPT_BYTES MOST_BYTES
#define SPARSER     1
#endif
#define PERIOD 8191 /* of the payload: prime, so that no segment looks like another */

/* Values are small integers, so that every order of folding is exact in every type. */
static double payload(twill_op op, int rank, size_t i)
{
    if (op == TWILL_PROD)
        return (rank + (int)(i % 5)) % 4 == 0 ? -2 : 1;
    return (double)((rank * 7 + (int)i * 13) % 17) - 8;
}

static double oracle(twill_op op, int size, size_t i)
{
    double value = payload(op, 0, i);
    for (int r = 1; r < size; r++) {
        double x = payload(op, r, i);
        if (op == TWILL_PROD)
            value *= x;
        else if (op == TWILL_MIN)
            value = x < value ? x : value;
        else if (op == TWILL_MAX)
            value = x > value ? x : value;
        else
            value += x;
    }
    return value;
}

/* Store a value as an element; divided first, in the precision the library promises, when asked. */
static void store(void *buffer, size_t i, twill_type type, double value, int divisor)
{
    switch (type) {
    case TWILL_F32:
        ((float *)buffer)[i] = (float)value / (float)divisor;
        break;
    case TWILL_F64:
        ((double *)buffer)[i] = value / divisor;
        break;
    case TWILL_I32:
        ((int32_t *)buffer)[i] = (int32_t)value / divisor;
        break;
    case TWILL_I64:
        ((int64_t *)buffer)[i] = (int64_t)value / divisor;
        break;
    case TWILL_F16:
        ((uint16_t *)buffer)[i] = twill_f16_from_f32((float)value / (float)divisor);
        break;
    default:
        ((uint16_t *)buffer)[i] = twill_bf16_from_f32((float)value / (float)divisor);
        break;
    }
}

struct world_case {
    int size;
    const char *nodes; /* TWILL_NODES, or "" */
};

struct sweep {
    const struct world_case *world;
    const char *algorithm; /* "" for the choice of twill_select() */
    uint32_t collectives;
    bool heap;     /* buffers by twill_alloc() */
    unsigned seed; /* what is sampled */
    bool whole;    /* everything instead */
    size_t most;   /* bytes of a message */
    unsigned long checked;
    pthread_mutex_t lock;
};

struct rank_state {
    struct sweep *sweep;
    int rank, size;
    twill_comm *comm;
    unsigned char *src, *dst, *want;
    double own[PERIOD], folded[PERIOD]; /* payload and oracle, which repeat */
    unsigned long checked;
};

static bool equal(const struct rank_state *s, const void *got, size_t count, twill_type type,
                  const char *what)
{
    size_t element = twill_type_size(type);
    if (memcmp(got, s->want, count * element) == 0)
        return true;
    for (size_t i = 0; i < count * element; i++)
        if (((const unsigned char *)got)[i] != s->want[i])
            return twill_test_note(false, __FILE__, __LINE__,
                                   "rank %d of %d (%s) %s %s count %zu: element %zu is wrong",
                                   s->rank, s->size, s->sweep->world->nodes, s->sweep->algorithm,
                                   what, count, i / element);
    return false;
}

static bool try_allreduce(struct rank_state *s, size_t count, twill_type type, twill_op op,
                          bool in_place)
{
    char what[64];
    snprintf(what, sizeof(what), "allreduce %s %s%s", twill_type_name(type), twill_op_name(op),
             in_place ? " in place" : "");
    for (size_t i = 0; i < twill_min(count, PERIOD); i++) {
        s->own[i] = payload(op, s->rank, i);
        s->folded[i] = oracle(op, s->size, i);
    }
    for (size_t i = 0; i < count; i++) {
        store(s->src, i, type, s->own[i % PERIOD], 1);
        store(s->want, i, type, s->folded[i % PERIOD], op == TWILL_AVG ? s->size : 1);
    }
    void *dst = in_place ? s->src : s->dst;
    if (!in_place)
        memset(s->dst, 0xa5, count * twill_type_size(type));
    twill_status status = twill_allreduce(s->comm, s->src, dst, count, type, op);
    if (!twill_test_note(status == TWILL_OK, __FILE__, __LINE__, "%s: %s", what,
                         twill_comm_message(s->comm)))
        return false;
    return equal(s, dst, count, type, what);
}

static bool try_broadcast(struct rank_state *s, size_t count, twill_type type, int root,
                          bool in_place)
{
    char what[64];
    snprintf(what, sizeof(what), "broadcast %s root %d%s", twill_type_name(type), root,
             in_place ? " in place" : "");
    for (size_t i = 0; i < count; i++) {
        store(s->want, i, type, payload(TWILL_SUM, root, i % PERIOD), 1);
        store(s->src, i, type, payload(TWILL_SUM, s->rank, i % PERIOD), 1);
    }
    void *dst = in_place ? s->src : s->dst;
    twill_status status = twill_broadcast(s->comm, s->src, dst, count, type, root);
    if (!twill_test_note(status == TWILL_OK, __FILE__, __LINE__, "%s: %s", what,
                         twill_comm_message(s->comm)))
        return false;
    return equal(s, dst, count, type, what);
}

/* The same on every rank: what to leave out. */
static bool sampled(const struct rank_state *s, unsigned what, unsigned index, unsigned one_in)
{
    return s->sweep->whole || (what + index + s->sweep->seed) % one_in == 0;
}

static bool sweep_types(struct rank_state *s, size_t count, unsigned index, unsigned one_in)
{
    for (unsigned t = 0; t < TWILL_TYPE_COUNT; t++) {
        if (count * twill_type_size((twill_type)t) > s->sweep->most)
            continue;
        for (unsigned op = 0; op < TWILL_OP_COUNT; op++) {
            if (!(s->sweep->collectives >> TWILL_ALLREDUCE & 1) ||
                !sampled(s, t * TWILL_OP_COUNT + op, index, one_in))
                continue;
            for (int in_place = 0; in_place < 2; in_place++, s->checked++)
                if (!try_allreduce(s, count, (twill_type)t, (twill_op)op, in_place))
                    return false;
        }
        if (!(s->sweep->collectives >> TWILL_BROADCAST & 1) ||
            !sampled(s, t, index, (unsigned)twill_min(one_in, TWILL_TYPE_COUNT)))
            continue;
        for (int root = 0; root < s->size; root++) {
            if (one_in > 4 &&
                !sampled(s, (unsigned)root, index, (unsigned)twill_min(3, (size_t)s->size)))
                continue;
            if (!try_broadcast(s, count, (twill_type)t, root, (root + index / 4) % 2))
                return false;
            s->checked++;
        }
    }
    return true;
}

/* The counts, and how many of the pairs of type and operation are tried at each: one in so many, by
 * turns. Of any four neighbours among the small ones each pair has one, so that every sweep, of an
 * algorithm in a world, has all pairs. The large ones, which cost most of the time, have few pairs,
 * and a broadcast of one type from every third root. */
static bool sweep_counts(struct rank_state *s)
{
    size_t p = (size_t)s->size;
    const struct {
        size_t count;
        unsigned one_in;
    } counts[] = {
        {0, 4},  {1, 4},   {p - 1, 4}, {p, 4},    {p + 1, 4}, {11, 4},      {12, 4},
        {13, 4}, {499, 4}, {512, 4},   {4099, 4}, {65537, 9}, {200003, 12}, {1 << 20, 12},
    };
    for (unsigned c = 0; c < TWILL_ARRAY_LENGTH(counts); c++) {
        if (!sweep_types(s, counts[c].count, c, counts[c].one_in * SPARSER))
            return false;
        if (s->sweep->collectives >> TWILL_BARRIER & 1)
            TWILL_REQUIRE(twill_barrier(s->comm) == TWILL_OK);
    }
    return true;
}

static bool get_buffers(struct rank_state *s)
{
    s->want = malloc(MOST_BYTES);
    TWILL_REQUIRE(s->want != NULL);
    if (!s->sweep->heap) {
        s->src = malloc(MOST_BYTES);
        s->dst = malloc(MOST_BYTES);
        TWILL_REQUIRE(s->src != NULL && s->dst != NULL);
        return true;
    }
    twill_context *context = twill_comm_context(s->comm);
    void *src, *dst;
    TWILL_REQUIRE(twill_alloc(context, &src, MOST_BYTES) == TWILL_OK);
    TWILL_REQUIRE(twill_alloc(context, &dst, MOST_BYTES) == TWILL_OK);
    s->src = src;
    s->dst = dst;
    return true;
}

static void put_buffers(struct rank_state *s)
{
    free(s->want);
    if (s->sweep->heap) {
        (void)twill_free(twill_comm_context(s->comm), s->src);
        (void)twill_free(twill_comm_context(s->comm), s->dst);
    } else {
        free(s->src);
        free(s->dst);
    }
}

static void sweep_rank(int rank, int size, twill_bootstrap *boot, void *user)
{
    struct sweep *sweep = user;
    char nodes[64], algorithm[256];
    snprintf(nodes, sizeof(nodes), "TWILL_NODES=%s", sweep->world->nodes);
    snprintf(algorithm, sizeof(algorithm), "TWILL_ALGORITHM=%s", sweep->algorithm);
    const char *settings[] = {nodes,
                              algorithm,
                              "TWILL_HEAP_LIMIT=16M",
                              "TWILL_TIMEOUT=60",
                              "TWILL_INTERFACE=lo",
                              "TWILL_SEGMENT=64K",
                              "TWILL_SEGMENT_NET=128K",
                              "TWILL_STREAM=200K",
                              NULL};
    twill_context *context = NULL;
    struct rank_state state = {.sweep = sweep, .rank = rank, .size = size};
    twill_status status = twill_context_create(&context, boot, settings);
    if (status == TWILL_OK)
        status = twill_comm_create(&state.comm, context);
    if (twill_test_note(status == TWILL_OK, __FILE__, __LINE__, "%s: %s", sweep->algorithm,
                        twill_context_message(context)) &&
        get_buffers(&state)) {
        (void)sweep_counts(&state);
        put_buffers(&state);
    }
    if (rank == 0)
        sweep->checked += state.checked;
    twill_comm_destroy(state.comm);
    twill_context_destroy(context);
}

static const struct world_case worlds[] = {
    {1, ""},    {2, ""},    {3, ""},    {4, ""},    {5, ""},      {8, ""},
    {2, "2x1"}, {4, "2x2"}, {5, "5x1"}, {6, "2x3"}, {6, "3+2+1"}, {7, "1+4+2"},
};

static struct twill_world world_of(const struct world_case *c)
{
    struct twill_world world;
    uint32_t label[64] = {0};
    struct twill_error error = {0};
    if (c->nodes[0] != '\0')
        assert_int_equal(twill_world_parse_nodes(c->nodes, (uint32_t)c->size, label, &error), 0);
    assert_int_equal(twill_world_create(&world, (uint32_t)c->size, label, &error), 0);
    return world;
}

static bool applies(const struct twill_algorithm *algorithm, const struct twill_world *world,
                    unsigned flavour)
{
    struct twill_shape shape = {.flavour = (enum twill_flavour)flavour};
    for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT; c++) {
        shape.collective = (enum twill_collective)c;
        if ((algorithm->collectives >> c & 1) && algorithm->applies(world, &shape))
            return true;
    }
    return false;
}

/* "allreduce:ring@staged;barrier:ring" and so on: the algorithm for what it does, else the default.
 */
static void name_choice(char *text, size_t bytes, const struct twill_algorithm *algorithm,
                        int flavour)
{
    size_t used = 0;
    text[0] = '\0';
    for (unsigned c = 0; c < TWILL_COLLECTIVE_COUNT; c++)
        if (algorithm->collectives >> c & 1)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s:%s%s%s", used ? ";" : "",
                                     twill_collective_name((enum twill_collective)c),
                                     algorithm->name, flavour >= 0 ? "@" : "",
                                     flavour >= 0 ? twill_flavour_name((enum twill_flavour)flavour)
                                                  : "");
}

static unsigned long run_sweep(const struct world_case *world, const char *algorithm,
                               uint32_t collectives, bool heap, unsigned seed)
{
    struct sweep sweep = {.world = world,
                          .algorithm = algorithm,
                          .collectives = collectives,
                          .heap = heap,
                          .seed = seed,
                          .whole = getenv("TEST_WHOLE") != NULL,
                          .most = SWEPT_BYTES};
    twill_test_run_ranks(world->size, sweep_rank, &sweep);
    assert_true(sweep.checked > 0);
    return sweep.checked;
}

static void chosen_algorithms(void **unused)
{
    (void)unused;
    unsigned long checked = 0;
    for (unsigned w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++)
        for (int heap = 0; heap < 2; heap++)
            checked += run_sweep(&worlds[w], "", 7, heap, w * 2 + (unsigned)heap);
    print_message("%lu calls checked\n", checked);
}

/* Each registered algorithm by name on each world it applies to. */
static void named_algorithms(void **unused)
{
    (void)unused;
    unsigned long checked = 0;
    const struct twill_algorithm *algorithm;
    for (size_t a = 0; (algorithm = twill_algorithm_at(a)) != NULL; a++) {
        for (unsigned w = 0; w < TWILL_ARRAY_LENGTH(worlds); w++) {
            struct twill_world world = world_of(&worlds[w]);
            /* MAPPED is taken when memory is mapped, IMM and FLAT have their sizes: by default */
            if (applies(algorithm, &world, TWILL_FLAVOUR_STAGED)) {
                char name[160];
                name_choice(name, sizeof(name), algorithm, -1);
                checked += run_sweep(&worlds[w], name, algorithm->collectives, (a + w) % 2,
                                     (unsigned)(a * 31 + w));
            }
            twill_world_destroy(&world);
        }
    }
    print_message("%lu calls checked\n", checked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chosen_algorithms),
        cmocka_unit_test(named_algorithms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
