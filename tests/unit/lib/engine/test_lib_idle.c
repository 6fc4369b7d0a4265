/* SPDX-License-Identifier: Apache-2.0 */
/* twill_context_idle(): the caller's function is called in every kind of wait, soon and for as long
 * as it lasts, by the waiting thread only, and never after it has been removed. */
#include "tests/support/unit.h"

#define IDLE_OFTEN 400 /* calls, one in 20 us: more than a wait makes before it sleeps */

/* Rank 0 waits in a call that the others join when its function has been called often enough. */
static struct idle_scene {
    const char *layout, *progress, *tune;
    atomic_int calls, foreign_calls, phase;
    pthread_t waiter;
} scenes[] = {{.layout = "2", .progress = "none", .tune = ""},
              {.layout = "2x1", .progress = "none", .tune = ""},
              {.layout = "2", .progress = "thread", .tune = ""},
              {.layout = "2", .progress = "none", .tune = "spin=1000000000"}};

static void idle(void *user)
{
    struct idle_scene *scene = user;
    if (!pthread_equal(pthread_self(), scene->waiter))
        atomic_fetch_add(&scene->foreign_calls, 1);
    atomic_fetch_add(&scene->calls, 1);
}

/* Rank 0 passes at once; the others wait until it has, and has called its function IDLE_OFTEN
 * times. */
static bool hold_back(struct idle_scene *scene, int rank, int phase)
{
    if (rank == 0) {
        atomic_store(&scene->calls, 0);
        atomic_store(&scene->phase, phase);
        return true;
    }
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    while (atomic_load(&scene->phase) != phase || atomic_load(&scene->calls) < IDLE_OFTEN) {
        if (twill_test_failed() || twill_now() > limit)
            return TWILL_NOTE(false, "stage %d: called %d times", phase,
                              atomic_load(&scene->calls));
        usleep(100);
    }
    return true;
}

static bool idle_start(twill_comm *comm, twill_request **request)
{
    static const int64_t one = 1;
    static _Thread_local int64_t sum;
    return twill_test_fine(
        comm, twill_allreduce_start(comm, &one, &sum, 1, TWILL_I64, TWILL_SUM, request));
}

static bool play_requests(struct idle_scene *scene, twill_comm *comm, int rank)
{
    twill_request *request[2] = {NULL, NULL};
    int index;
    TWILL_REQUIRE(hold_back(scene, rank, 1) && twill_test_fine(comm, twill_barrier(comm)));
    TWILL_REQUIRE(hold_back(scene, rank, 2) && idle_start(comm, &request[0]));
    TWILL_REQUIRE(twill_test_fine(comm, twill_wait(&request[0])));
    TWILL_REQUIRE(hold_back(scene, rank, 3) && idle_start(comm, &request[0]) &&
                  idle_start(comm, &request[1]));
    TWILL_REQUIRE(twill_test_fine(comm, twill_wait_any(2, request, &index)));
    TWILL_REQUIRE(twill_test_fine(comm, twill_wait_all(2, request)));
    TWILL_REQUIRE(hold_back(scene, rank, 4) && idle_start(comm, &request[0]) &&
                  idle_start(comm, &request[1]));
    return twill_test_fine(comm, twill_wait_all(2, request));
}

static bool play_others(struct idle_scene *scene, twill_comm *comm, int rank)
{
    int64_t data = rank;
    int other = 1 - rank;
    twill_comm *made;
    TWILL_REQUIRE(hold_back(scene, rank, 5));
    TWILL_REQUIRE(twill_test_fine(comm, rank == 0 ? twill_recv(comm, &data, 1, TWILL_I64, other)
                                                  : twill_send(comm, &data, 1, TWILL_I64, other)));
    TWILL_REQUIRE(data == 1 && twill_test_fine(comm, twill_group_start(comm)));
    TWILL_REQUIRE(twill_test_fine(comm, twill_barrier(comm)));
    TWILL_REQUIRE(hold_back(scene, rank, 6) && twill_test_fine(comm, twill_group_end(comm)));
    TWILL_REQUIRE(hold_back(scene, rank, 7) && twill_test_fine(comm, twill_comm_dup(&made, comm)));
    twill_comm_destroy(made);
    return true;
}

/* After its removal a long wait does not call it. */
static bool play_without(struct idle_scene *scene, twill_comm *comm, int rank)
{
    TWILL_REQUIRE(twill_context_idle(twill_comm_context(comm), NULL, NULL) == TWILL_OK);
    TWILL_REQUIRE(twill_test_fine(comm, twill_barrier(comm)));
    int before = atomic_load(&scene->calls);
    if (rank != 0)
        usleep(20000);
    TWILL_REQUIRE(twill_test_fine(comm, twill_barrier(comm)));
    return rank != 0 || atomic_load(&scene->calls) == before;
}

TWILL_TEST_CASES(called_in_every_wait, ranks, scenes, c->layout,
                 twill_test_text("TWILL_PROGRESS=%s", c->progress),
                 twill_test_text("TWILL_TUNE=%s", c->tune))
{
    if (rank == 0) {
        c->waiter = pthread_self();
        TWILL_CHECK(twill_context_idle(twill_comm_context(comm), idle, c) == TWILL_OK);
    }
    TWILL_CHECK(play_requests(c, comm, rank) && play_others(c, comm, rank));
    TWILL_CHECK(play_without(c, comm, rank));
    TWILL_CHECK(rank != 0 || atomic_load(&c->foreign_calls) == 0);
}

/* Rank 0 starts a call and waits outside twill until the others have the result: its progress
 * thread must advance the call. */
TWILL_TEST_ON(progressed_late, ranks, TWILL_LAYOUTS("2", "3x1"), "TWILL_PROGRESS=late")
{
    static const size_t COUNT = (size_t)1 << 18;
    twill_request *request;
    float *data = calloc(COUNT, sizeof(*data));
    for (int turn = 0; turn < 3; turn++) {
        for (size_t i = 0; i < COUNT; i++)
            data[i] = (float)(rank + 1);
        TWILL_CHECK(twill_test_fine(
            comm, twill_allreduce_start(comm, data, data, COUNT, TWILL_F32, TWILL_SUM, &request)));
        if (rank == 0)
            TWILL_CHECK(twill_test_barrier(bootstrap));
        TWILL_CHECK(twill_test_fine(comm, twill_wait(&request)));
        if (rank != 0)
            TWILL_CHECK(twill_test_barrier(bootstrap));
        TWILL_CHECK(data[0] == (float)(size * (size + 1) / 2) && data[COUNT - 1] == data[0]);
    }
    free(data);
}

TWILL_TEST(no_peer_to_notify)
{
    assert_int_equal(twill_context_idle(NULL, idle, NULL), TWILL_ERR_ARGUMENT);
}
