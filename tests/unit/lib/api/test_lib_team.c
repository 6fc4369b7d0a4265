/* SPDX-License-Identifier: Apache-2.0 */
/* Results of team calls for several numbers of threads, and the ways in which they fail. No thread
 * hangs after a failure, and all threads of all ranks get an error. */
#include "lib/twill_recover.h"
#include "tests/support/collectives.h"
#include "tests/support/payload.h"
#include "tests/support/unit.h"

enum { TEAM_MOST = 10 };

/* One team call of a rank, and what each of its threads passes and gets. */
struct team_call {
    twill_comm *comm;
    struct test_call call;
    struct test_buffers buffers;
    int threads, absent; /* absent is the thread without a call, or -1 */
    int odd;             /* the thread that passes another count and claims as, or -1 */
    size_t odd_count;
    int claims, claims_of; /* thread and threads that it passes */
    twill_status status[TEAM_MOST];
};

struct member {
    struct team_call *team;
    int number;
};

struct team_buffers {
    void *src, *dst;
};

/* Return what the call reads and writes. In place it is one buffer, dst unless that is a shard. */
static struct team_buffers buffers_of(const struct team_call *team)
{
    const struct test_call *c = &team->call;
    struct team_buffers b = {team->buffers.src, team->buffers.dst};
    int rank = twill_comm_rank(team->comm);
    size_t shard = c->count * test_payload_element(c->type, c->op) * (size_t)rank;
    if (!c->in_place || (c->collective == TWILL_BROADCAST && rank != c->root))
        return b;
    if (c->collective == TWILL_REDUCE_SCATTER)
        b.dst = (char *)b.src + shard;
    else
        b.src = (char *)b.dst + (c->collective == TWILL_ALLGATHER ? shard : 0);
    return b;
}

static twill_status call_team(const struct team_call *team, size_t count, int t, int n)
{
    const struct test_call *c = &team->call;
    struct team_buffers b = buffers_of(team);
    const void *src = b.src;
    void *dst = b.dst;
    switch (c->collective) {
    case TWILL_ALLREDUCE:
        return twill_allreduce_team(team->comm, src, dst, count, c->type, c->op, t, n);
    case TWILL_BROADCAST:
        return twill_broadcast_team(team->comm, src, dst, count, c->type, c->root, t, n);
    case TWILL_ALLGATHER:
        return twill_allgather_team(team->comm, src, dst, count, c->type, t, n);
    case TWILL_REDUCE_SCATTER:
        return twill_reduce_scatter_team(team->comm, src, dst, count, c->type, c->op, t, n);
    default:
        return twill_barrier_team(team->comm, t, n);
    }
}

static void *run_thread(void *of)
{
    const struct member *thread = of;
    struct team_call *team = thread->team;
    int t = thread->number;
    team->status[t] = t == team->odd
                          ? call_team(team, team->odd_count, team->claims, team->claims_of)
                          : call_team(team, team->call.count, t, team->threads);
    return NULL;
}

/* Make the call with all threads, each of which is started for it. */
static void run_team(struct team_call *team)
{
    pthread_t id[TEAM_MOST];
    struct member thread[TEAM_MOST];
    for (int t = 0; t < team->threads; t++) {
        thread[t] = (struct member){team, t};
        team->status[t] = TWILL_OK;
        if (t != team->absent)
            pthread_create(&id[t], NULL, run_thread, &thread[t]);
    }
    for (int t = 0; t < team->threads; t++)
        if (t != team->absent)
            pthread_join(id[t], NULL);
}

/* Return whether all threads have got `status`, or if `broken` maybe TWILL_ERR_BROKEN instead. */
static bool all_got(const struct team_call *team, twill_status status, bool broken)
{
    for (int t = 0; t < team->threads; t++)
        if (t != team->absent)
            TWILL_REQUIRE(
                team->status[t] == status || (broken && team->status[t] == TWILL_ERR_BROKEN),
                "thread %d: status %d: %s", t, team->status[t], twill_comm_message(team->comm));
    return true;
}

static struct team_call plain_call(twill_comm *comm, int threads)
{
    static _Thread_local unsigned char zeroes[1 << 16]; /* a rank's, which is a thread */
    return (struct team_call){
        .comm = comm,
        .call = {.collective = TWILL_ALLREDUCE, .type = TWILL_I32, .op = TWILL_BOR, .count = 4096},
        .buffers = {.src = zeroes, .dst = zeroes},
        .threads = threads,
        .absent = -1,
        .odd = -1};
}

/* --- results ---------------------------------------------------------------------------------- */

struct result_case {
    const char *layout;
    int threads[4]; /* of each rank */
    const char *setting;
};
static const struct result_case results[] = {
    {"1", {3}, NULL},
    {"2", {2, 2}, NULL},
    {"2", {1, 3}, NULL},
    {"2", {10, 9}, NULL},
    {"2", {3, 3}, "TWILL_TUNE=stripe=1024,reach=none"},
    {"3", {2, 4, 3}, NULL},
    {"4", {2, 2, 3, 2}, "TWILL_REPRODUCIBLE=1"},
    {"2x1", {2, 3}, NULL},
    {"2x2", {2, 2, 2, 2}, NULL},
};

static bool check_result(struct team_call *team, int rank, int size)
{
    char name[160];
    test_call_name(&team->call, name, sizeof(name));
    test_call_fill(&team->call, rank, size, &team->buffers);
    run_team(team);
    TWILL_REQUIRE(all_got(team, TWILL_OK, false), "rank %d: %s", rank, name);
    return test_call_compare(&team->call, rank, size, &team->buffers);
}

static bool check_counts(struct team_call *team, int rank, int size)
{
    static const size_t counts[] = {0, 1, 700, 5001};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(counts); i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            team->call.count = counts[i];
            team->call.in_place = in_place;
            team->call.turn++;
            team->call.root = (int)(team->call.turn % (unsigned)size);
            if (test_call_exists(&team->call) && !check_result(team, rank, size))
                return false;
        }
    return true;
}

TWILL_TEST_CASES(results_are_those_of_the_call, ranks, results, c->layout, TWILL_TEST_PATIENT,
                 "TWILL_TUNE=stripe=1024", c->setting)
{
    static const enum twill_collective collectives[] = {TWILL_ALLREDUCE, TWILL_REDUCE_SCATTER,
                                                        TWILL_ALLGATHER, TWILL_BROADCAST};
    static const struct {
        twill_type type;
        twill_op op;
    } kinds[] = {{TWILL_F32, TWILL_SUM},  {TWILL_BF16, TWILL_SUM},  {TWILL_F16, TWILL_AVG},
                 {TWILL_U8, TWILL_BXOR},  {TWILL_I64, TWILL_MAX},   {TWILL_F8E4M3, TWILL_MIN},
                 {TWILL_F64, TWILL_PROD}, {TWILL_F32, TWILL_MINLOC}};
    struct team_call team = plain_call(comm, c->threads[rank]);
    TWILL_CHECK(test_buffers_get(&team.buffers, twill_comm_context(comm), 1 << 18, 64, true));
    for (size_t k = 0; k < TWILL_ARRAY_LENGTH(kinds); k++)
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(collectives); i++) {
            team.call.collective = collectives[i];
            team.call.type = kinds[k].type;
            team.call.op = kinds[k].op;
            if (!check_counts(&team, rank, size))
                return;
        }
    test_buffers_put(&team.buffers, twill_comm_context(comm), true);
}

/* Other calls of the communicator come between team calls. Its copies and parts, made afterwards,
 * have teams as well. */
TWILL_TEST_OF_RANKS(team_calls_and_others_mix, 3)
{
    twill_comm *comm, *copy = NULL, *part = NULL;
    int one = 1, sum = 0;
    if (!twill_test_open(&comm, bootstrap, twill_test_text("1x%d", size), TWILL_TEST_PATIENT))
        return;
    struct team_call team = plain_call(comm, 2 + rank);
    for (int i = 0; i < 3; i++) {
        run_team(&team);
        TWILL_CHECK(all_got(&team, TWILL_OK, false));
        TWILL_CHECK(
            twill_test_fine(comm, twill_allreduce(comm, &one, &sum, 1, TWILL_I32, TWILL_SUM)));
        TWILL_CHECK(sum == size);
    }
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&copy, comm)));
    struct team_call other = plain_call(copy, 4);
    run_team(&other);
    TWILL_CHECK(all_got(&other, TWILL_OK, false));
    TWILL_CHECK(twill_test_fine(comm, twill_comm_split(&part, comm, rank == 0, -rank)));
    other = plain_call(part, 3);
    run_team(&other);
    TWILL_CHECK(all_got(&other, TWILL_OK, false));
    TWILL_CHECK(twill_comm_size(part) == (rank == 0 ? 1 : 2));
    twill_comm_destroy(part);
    team.call.collective = TWILL_BARRIER;
    run_team(&team);
    TWILL_CHECK(all_got(&team, TWILL_OK, false));
    twill_comm_destroy(copy);
    twill_test_close(comm);
}

/* --- refusals and failures -------------------------------------------------------------------- */

TWILL_TEST_OF_RANKS(a_call_that_all_refuse_leaves_the_communicator_usable, 2)
{
    twill_comm *comm;
    if (!twill_test_open(&comm, bootstrap, twill_test_text("1x%d", size), TWILL_TEST_PATIENT))
        return;
    struct team_call team = plain_call(comm, 3);
    for (int i = 0; i < 2; i++) {
        team.call.type = TWILL_F32; /* which has no bitwise or */
        run_team(&team);
        TWILL_CHECK(all_got(&team, TWILL_ERR_ARGUMENT, false));
        TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), "op bor does not take type f32"));
        team.call.type = TWILL_I32;
        run_team(&team);
        TWILL_CHECK(all_got(&team, TWILL_OK, false));
    }
    twill_test_close(comm);
}

/* One thread of rank 0 passes other arguments, in the first call or in the second. */
static const struct odd_case {
    const char *says;
    int odd, claims, claims_of;
    size_t count;
    bool later;
} odd_cases[] = {
    {"count of thread 1 differs from that of thread 0", 1, 1, 3, 100, false},
    {"count of thread 2 differs from that of thread 0", 2, 2, 3, 100, true},
    {"threads is 2 in thread 1, but 3 in the first", 1, 1, 2, 4096, true},
    {"thread 3 is outside 0 .. 2", 2, 3, 3, 4096, true},
    {"two threads call as thread 1", 2, 1, 3, 4096, false},
};

TWILL_TEST_CASES(a_thread_that_differs_fails_all, ranks, odd_cases, "2", TWILL_TEST_PATIENT)
{
    struct team_call team = plain_call(comm, 3);
    if (c->later) {
        run_team(&team);
        TWILL_CHECK(all_got(&team, TWILL_OK, false));
    }
    if (rank == 0) {
        team.odd = c->odd;
        team.claims = c->claims;
        team.claims_of = c->claims_of;
        team.odd_count = c->count;
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    run_team(&team);
    TWILL_CHECK(all_got(&team, TWILL_ERR_ARGUMENT, true));
    TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), "rank 0: twill_allreduce_team: "));
    TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), c->says));
    team.odd = -1;
    run_team(&team);
    TWILL_CHECK(all_got(&team, TWILL_ERR_BROKEN, false));
    TWILL_CHECK(twill_barrier(comm) == TWILL_ERR_BROKEN);
}

TWILL_TEST_OF_RANKS(ranks_that_differ_fail_in_all_threads, 3)
{
    twill_comm *comm;
    if (!twill_test_open(&comm, bootstrap, twill_test_text("1x%d", size), TWILL_TEST_PATIENT))
        return;
    struct team_call team = plain_call(comm, 2 + rank);
    run_team(&team);
    TWILL_CHECK(all_got(&team, TWILL_OK, false));
    team.call.count -= rank == 2 ? 64 : 0;
    TWILL_CHECK(twill_test_barrier(bootstrap));
    run_team(&team);
    TWILL_CHECK(all_got(&team, TWILL_ERR_MISMATCH, true));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_test_close(comm);
}

/* In its first team call a rank finds that another one makes an ordinary call. */
TWILL_TEST_OF_RANKS(a_rank_that_makes_no_team_call_fails_all, 2)
{
    twill_comm *comm;
    int value = 0;
    if (!twill_test_open(&comm, bootstrap, "1x2", TWILL_TEST_PATIENT))
        return;
    struct team_call team = plain_call(comm, 3);
    if (rank == 0) {
        run_team(&team);
        TWILL_CHECK(all_got(&team, TWILL_ERR_MISMATCH, true));
    } else {
        TWILL_CHECK(twill_allreduce(comm, &value, &value, 1, TWILL_I32, TWILL_SUM) ==
                    TWILL_ERR_MISMATCH);
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_test_close(comm);
}

/* A thread of rank 1 does not call, in the first call or in the second. */
static const struct missing_case {
    const char *says;
    int missing;
    bool later;
} missing_cases[] = {
    {"thread 0 has not called it", 0, false},
    {"thread 2 of 3 has not called it", 2, false},
    {"thread 1 of 3 has not called it", 1, true},
};

TWILL_TEST_CASES(a_missing_thread_times_out, ranks, missing_cases, "2", "TWILL_TIMEOUT=1.5")
{
    struct team_call team = plain_call(comm, 3);
    if (c->later) {
        run_team(&team);
        TWILL_CHECK(all_got(&team, TWILL_OK, false));
    }
    team.absent = rank == 1 ? c->missing : -1;
    run_team(&team);
    TWILL_CHECK(all_got(&team, TWILL_ERR_TIMEOUT, true));
    TWILL_CHECK(rank == 0 || TWILL_SAYS(twill_comm_message(comm), c->says));
}

static void *revoke_later(void *comm)
{
    usleep(20000);
    (void)twill_comm_revoke(comm);
    return NULL;
}

/* Another thread of rank 0 revokes the communicator, while rank 1 makes no call. */
TWILL_TEST_OF_RANKS(a_revocation_ends_the_calls_of_all_threads, 2)
{
    twill_comm *comm;
    pthread_t thread;
    if (!twill_test_open(&comm, bootstrap, "1x2", TWILL_TEST_PATIENT))
        return;
    struct team_call team = plain_call(comm, 3);
    run_team(&team);
    TWILL_CHECK(all_got(&team, TWILL_OK, false));
    if (rank == 0) {
        TWILL_CHECK(pthread_create(&thread, NULL, revoke_later, comm) == 0);
        run_team(&team);
        pthread_join(thread, NULL);
        TWILL_CHECK(all_got(&team, TWILL_ERR_REVOKED, true));
        TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), "this rank has revoked communicator"));
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 1) { /* rank 0 has contributed to the call before */
        run_team(&team);
        if (team.status[0] == TWILL_OK)
            run_team(&team);
        TWILL_CHECK(all_got(&team, TWILL_ERR_REVOKED, true));
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_test_close(comm);
}

/* A failure of an ordinary call also breaks the team. */
TWILL_TEST_OF_RANKS(a_failed_call_breaks_team_calls, 2)
{
    twill_comm *comm;
    int value = 0;
    if (!twill_test_open(&comm, bootstrap, "1x2", TWILL_TEST_PATIENT))
        return;
    struct team_call team = plain_call(comm, 2);
    run_team(&team);
    TWILL_CHECK(all_got(&team, TWILL_OK, false));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_status status = rank == 0
                              ? twill_barrier(comm)
                              : twill_allreduce(comm, &value, &value, 1, TWILL_I32, TWILL_SUM);
    TWILL_CHECK(status == TWILL_ERR_MISMATCH);
    run_team(&team);
    TWILL_CHECK(all_got(&team, TWILL_ERR_BROKEN, false));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_test_close(comm);
}

/* A process dies while the others are in a team call. The survivors go on in a smaller team. */
TWILL_TEST_OF_PROCESSES(survivors_of_a_death_call_together_again, 3)
{
    twill_comm *comm, *smaller = NULL;
    if (!twill_test_open(&comm, bootstrap, "1x3", TWILL_TEST_PATIENT))
        return;
    struct team_call team = plain_call(comm, 2);
    run_team(&team);
    TWILL_CHECK(all_got(&team, TWILL_OK, false));
    if (rank == 1) {
        twill_test_expect_death(rank);
        raise(SIGKILL);
    }
    run_team(&team);
    TWILL_CHECK(all_got(&team, TWILL_ERR_PEER, true));
    TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), "rank 1"));
    TWILL_CHECK(twill_test_fine(comm, twill_comm_shrink(&smaller, comm)));
    twill_comm_leave(comm);
    team.comm = smaller;
    team.threads = 3;
    run_team(&team);
    TWILL_CHECK(all_got(&team, TWILL_OK, false));
    twill_context *context = twill_comm_context(smaller);
    twill_comm_destroy(smaller);
    twill_context_destroy(context);
}
