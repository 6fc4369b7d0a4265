/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that differ between ranks, or that one rank refuses, end in an error that names a rank and
 * what differs, on every rank that waits, whatever they call next, or if the others leave the
 * library for long: each argument, small and large, over each transport, in the first call and in a
 * later one. By default each once and a sample, with TEST_WHOLE all. */
#include "lib/api/api_internal.h"
#include "tests/support/unit.h"

enum { DIFFER_RANKS = 3, DIFFER_LARGE = 200000, DIFFER_MORE = 20000, DIFFER_SAMPLE = 8 };

/* libfabric 1.17 sometimes leaks a connection that is closed while it is being made, which failing
 * ranks do. */
TWILL_TEST_LEAKS("leak:libfabric.so")

/* A call; `count` is added to that of the case. */
struct differ_call {
    enum twill_collective collective;
    twill_type type;
    twill_op op;
    int root, count;
    enum { BUFFERS_GOOD, NO_SRC, NO_DST, BUFFERS_OVERLAP } buffers;
};

/* What the ranks call (of four, the first two the first call), and the word for it in each
 * message. */
struct differ_pair {
    struct differ_call call[DIFFER_RANKS];
    const char *expected;
    bool refused; /* by rank 2 */
};
#define DIFFER_REDUCE(type, op, more)                                                              \
    {                                                                                              \
        TWILL_ALLREDUCE, type, op, 0, more, BUFFERS_GOOD                                           \
    }
#define DIFFER_ROOT(root)                                                                          \
    {                                                                                              \
        TWILL_BROADCAST, TWILL_F32, TWILL_SUM, root, 0, BUFFERS_GOOD                               \
    }
#define DIFFER_TO(root)                                                                            \
    {                                                                                              \
        TWILL_REDUCE, TWILL_F32, TWILL_SUM, root, 0, BUFFERS_GOOD                                  \
    }
#define DIFFER_BAD(buffers)                                                                        \
    {                                                                                              \
        TWILL_ALLREDUCE, TWILL_F32, TWILL_SUM, 0, 0, buffers                                       \
    }
#define DIFFER_USUAL DIFFER_REDUCE(TWILL_F32, TWILL_SUM, 0)
static const struct differ_pair differ_pairs[] = {
    {{DIFFER_USUAL, DIFFER_USUAL, DIFFER_ROOT(2)}, "broadcast", false},
    {{DIFFER_ROOT(0), DIFFER_ROOT(0), DIFFER_USUAL}, "broadcast", false},
    {{DIFFER_USUAL, DIFFER_USUAL, {TWILL_BARRIER, TWILL_U8, TWILL_SUM, 0, 0, BUFFERS_GOOD}},
     "barrier",
     false},
    {{DIFFER_ROOT(0), DIFFER_ROOT(0), DIFFER_ROOT(2)}, "root", false},
    {{DIFFER_ROOT(0), DIFFER_ROOT(0), DIFFER_ROOT(1)}, "root", false},
    {{DIFFER_ROOT(0), DIFFER_ROOT(2), DIFFER_ROOT(2)}, "root", false},
    {{DIFFER_ROOT(0), DIFFER_ROOT(1), DIFFER_ROOT(2)}, "root", false},
    {{DIFFER_ROOT(1), DIFFER_ROOT(2), DIFFER_ROOT(0)}, "root", false},
    {{DIFFER_ROOT(1), DIFFER_ROOT(1), DIFFER_ROOT(0)}, "root", false},
    {{DIFFER_USUAL, DIFFER_USUAL, DIFFER_REDUCE(TWILL_I32, TWILL_SUM, 0)}, "i32", false},
    {{DIFFER_USUAL, DIFFER_USUAL, DIFFER_REDUCE(TWILL_F32, TWILL_SUM, -1)}, "count", false},
    {{DIFFER_USUAL, DIFFER_USUAL, DIFFER_REDUCE(TWILL_F32, TWILL_SUM, -8)}, "count", false},
    {{DIFFER_USUAL, DIFFER_USUAL, DIFFER_REDUCE(TWILL_F32, TWILL_SUM, DIFFER_MORE)},
     "count",
     false},
    {{DIFFER_USUAL, DIFFER_USUAL, DIFFER_REDUCE(TWILL_F32, TWILL_MAX, 0)}, "max", false},
    {{DIFFER_ROOT(0), DIFFER_ROOT(0), {TWILL_BROADCAST, TWILL_F32, TWILL_SUM, 0, -1, BUFFERS_GOOD}},
     "count",
     false},
    {{DIFFER_TO(0), DIFFER_TO(0), DIFFER_TO(2)}, "root", false},
    {{DIFFER_TO(2), DIFFER_TO(2), DIFFER_TO(0)}, "root", false}, /* none receives in its call */
    {{DIFFER_USUAL, DIFFER_USUAL, DIFFER_BAD(NO_SRC)}, "src is NULL", true},
    {{DIFFER_USUAL, DIFFER_USUAL, DIFFER_BAD(NO_DST)}, "dst is NULL", true},
    {{DIFFER_USUAL, DIFFER_USUAL, DIFFER_BAD(BUFFERS_OVERLAP)}, "overlap", true},
};

/* What follows, before a call in which all wait for all. NEXT_SLEEP: ranks whose call has ended
 * make no other one until those of all ranks have. */
enum differ_next {
    NEXT_NONE,
    NEXT_BROADCAST,
    NEXT_SEND,
    NEXT_SEND_BACK,
    NEXT_REDUCE,
    NEXT_SLEEP,
    NEXT_COUNT
};

struct differ_way {
    const char *provider, *nodes;
    bool libfabric;
};
static const struct differ_way differ_ways[] = {{"tcp", "3", false},
                                                {"tcp", "3x1", false},
                                                {"tcp", "2+1", false},
                                                {"tcp", "2x2", false},
                                                {"ofi:tcp", "3x1", true}};

static twill_status differ_make(twill_comm *comm, const struct differ_call *call, size_t count)
{
    static _Thread_local float from[DIFFER_LARGE + DIFFER_MORE], to[DIFFER_LARGE + DIFFER_MORE];
    const float *src = call->buffers == NO_SRC ? NULL : from;
    float *dst = call->buffers == NO_DST ? NULL : call->buffers == BUFFERS_OVERLAP ? from + 4 : to;
    count = (size_t)((int)count + call->count);
    if (call->collective == TWILL_BARRIER)
        return twill_barrier(comm);
    if (call->collective == TWILL_BROADCAST)
        return twill_broadcast(comm, src, dst, count, call->type, call->root);
    if (call->collective == TWILL_REDUCE)
        return twill_reduce(comm, src, dst, count, call->type, call->op, call->root);
    return twill_allreduce(comm, src, dst, count, call->type, call->op);
}

static twill_status differ_follow(twill_comm *comm, enum differ_next next, size_t count)
{
    static const struct differ_call broadcast = DIFFER_ROOT(0), reduce = DIFFER_TO(0);
    static _Thread_local float data[DIFFER_LARGE];
    int me = twill_comm_rank(comm), from = next == NEXT_SEND_BACK ? 2 : 0;
    if (next == NEXT_BROADCAST)
        return differ_make(comm, &broadcast, count);
    if (next == NEXT_REDUCE)
        return differ_make(comm, &reduce, count);
    if (next == NEXT_NONE || next == NEXT_SLEEP || (me != from && me != 1))
        return TWILL_OK;
    return me == 1 ? twill_recv(comm, data, count, TWILL_F32, from)
                   : twill_send(comm, data, count, TWILL_F32, 1);
}

struct differ_case {
    const struct differ_pair *pair;
    enum differ_next next;
    size_t count;
    bool last;  /* the call in which all wait is the destruction, else a barrier */
    bool first; /* the call that differs is the communicator's first */
};

/* Played always. Rank 2 waits for a connection that rank 1 does not make; for a message that rank 1
 * does not send; for both, while another message that it waits for, too, differs. */
static const struct differ_case differ_always[] = {
    {.pair = &differ_pairs[3], .next = NEXT_SLEEP, .count = 8},
    {.pair = &differ_pairs[4], .next = NEXT_SLEEP, .count = 8},
    {.pair = &differ_pairs[1], .next = NEXT_SLEEP, .count = 8},
};

static bool differ_check(const struct differ_case *c, twill_comm *comm, twill_status status)
{
    const char *message = twill_comm_message(comm);
    return TWILL_NOTE(
        status == (c->pair->refused ? TWILL_ERR_ARGUMENT : TWILL_ERR_MISMATCH) &&
            strstr(message, c->pair->expected) != NULL && strstr(message, "rank") != NULL,
        "pair %d, next %d, count %zu, first %d: rank %d: %d: \"%s\"", (int)(c->pair - differ_pairs),
        (int)c->next, c->count, c->first, twill_comm_rank(comm), status, message);
}

static bool differ_play(const struct differ_case *c, twill_comm *all, twill_bootstrap *bootstrap)
{
    twill_comm *comm;
    twill_status status = twill_comm_dup(&comm, all);
    TWILL_REQUIRE(twill_test_fine(all, status));
    int rank = twill_comm_rank(comm), call = rank - (twill_comm_size(comm) > DIFFER_RANKS);
    if (!c->first)
        status = twill_barrier(comm);
    if (status == TWILL_OK)
        status = differ_make(comm, &c->pair->call[call > 0 ? call : 0], c->count);
    bool fine = status == TWILL_OK || differ_check(c, comm, status);
    if (c->next == NEXT_SLEEP)
        fine = twill_test_barrier(bootstrap) && fine;
    if (status == TWILL_OK)
        status = differ_follow(comm, c->next, c->count);
    if (status == TWILL_OK && !c->last)
        status = twill_barrier(comm);
    if (status == TWILL_OK) {
        twill_call_last(comm);
        status = comm->error.status;
    }
    fine = differ_check(c, comm, status) && fine;
    fine = TWILL_NOTE(c->last || twill_barrier(comm) == TWILL_ERR_BROKEN, "not broken") && fine;
    fine = twill_test_barrier(bootstrap) && fine;
    twill_comm_leave(comm);
    return fine && twill_test_barrier(bootstrap);
}

static bool differ_open(const struct differ_way *way, twill_comm **all, twill_bootstrap *bootstrap)
{
    const char *const settings[] = {way->libfabric ? "TWILL_TIMEOUT=20" : TWILL_TEST_PATIENT,
                                    twill_test_text("TWILL_PROVIDER=%s", way->provider), NULL};
    return twill_test_begin(all, bootstrap, way->nodes, settings);
}

/* Play a case in `all`. With libfabric, each case has a job of its own: where the provider does not
 * return a message that nobody receives any more, the endpoint is closed, and `all` fails too. */
static bool differ_play_on(const struct differ_way *way, const struct differ_case *c,
                           twill_comm *all, twill_bootstrap *bootstrap)
{
    if (!way->libfabric)
        return differ_play(c, all, bootstrap);
    TWILL_REQUIRE(differ_open(way, &all, bootstrap));
    twill_context *context = twill_comm_context(all);
    bool fine = differ_play(c, all, bootstrap);
    twill_comm_leave(all);
    twill_context_destroy(context);
    return fine;
}

static void differ_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct differ_way *way = user;
    uint64_t state = test_seed();
    unsigned pairs = TWILL_ARRAY_LENGTH(differ_pairs), cases = pairs * NEXT_COUNT * 8;
    twill_comm *all = NULL;
    TWILL_CHECK(way->libfabric || differ_open(way, &all, bootstrap));
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(differ_always); i++) {
        struct differ_case c = differ_always[i];
        c.first = !way->libfabric;
        TWILL_CHECK(differ_play_on(way, &c, all, bootstrap));
    }
    for (unsigned i = 0; !way->libfabric && i < pairs * (TEST_FEWER ? 1 : 2); i++) {
        struct differ_case c = {.pair = &differ_pairs[i % pairs],
                                .count = i < pairs ? 8 : DIFFER_LARGE};
        TWILL_CHECK(differ_play_on(way, &c, all, bootstrap));
    }
    for (unsigned i = 0; i < (test_whole() ? cases : DIFFER_SAMPLE); i++) {
        unsigned n = test_whole() ? i : test_draw(&state, cases);
        struct differ_case c = {.pair = &differ_pairs[n / 8 / NEXT_COUNT],
                                .next = (enum differ_next)(n / 8 % NEXT_COUNT),
                                .count = n % 2 == 0 ? 8 : DIFFER_LARGE,
                                .last = n / 2 % 2 != 0,
                                .first = n / 4 % 2 != 0};
        /* libfabric's messages of ranks that a call has nothing to do with are found at the
         * deadline, as that takes memory: the sample has none. */
        if (way->libfabric && !test_whole() && c.next == NEXT_SLEEP)
            continue;
        TWILL_CHECK(differ_play_on(way, &c, all, bootstrap));
    }
    twill_test_close(all);
}

TWILL_TEST(calls_that_differ)
{
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(differ_ways); i++)
        twill_test_run_ranks(twill_test_size(differ_ways[i].nodes), differ_rank,
                             (void *)(uintptr_t)&differ_ways[i]);
}

/* Counts that two ranks of a gather do not give alike are found where short shards travel in slots:
 * both short, one short, and elements of another type. */
static void counts_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    static const struct {
        size_t sent, expected;
        twill_type type;
        const char *words;
    } cases[] = {
        {3, 2, TWILL_F32, "a count of 3 of type f32, where this rank gives 2 of"},
        {2, 300, TWILL_F32, "a count of 2 of type f32, where this rank gives 300"},
        {300, 2, TWILL_F32, "a count of 300 of type f32, where this rank gives 2"},
        {2, 2, TWILL_I32, "a count of 2 of type i32, where this rank gives 2 of type f32"}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        const size_t counts[] = {2, 2, 2, cases[i].expected}, offsets[] = {0, 2, 4, 6};
        float from[300] = {0}, to[306];
        bool differs = rank == size - 1;
        twill_comm *comm;
        if (!twill_test_open(&comm, bootstrap, "2x2", TWILL_TEST_PATIENT, "TWILL_TUNE=slot=64"))
            return;
        twill_status status = twill_gatherv(comm, from, differs ? cases[i].sent : 2, to, counts,
                                            offsets, differs ? cases[i].type : TWILL_F32, 0);
        if (rank == 0)
            (void)TWILL_NOTE(status == TWILL_ERR_MISMATCH &&
                                 strstr(twill_comm_message(comm), cases[i].words) != NULL &&
                                 strstr(twill_comm_message(comm), "rank 3") != NULL,
                             "case %zu: %d: \"%s\"", i, status, twill_comm_message(comm));
        (void)twill_test_barrier(bootstrap);
        twill_test_close(comm);
    }
    (void)user;
}

TWILL_TEST(counts_that_differ)
{
    twill_test_run_ranks(4, counts_rank, NULL);
}
