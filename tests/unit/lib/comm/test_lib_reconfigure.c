/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of processes that have exchanged handles (lib/twill_recover.h,
 * twill_comm_reconfigure()). Handles are handed around by the test's exchange, or, once a process
 * has died, by memory that all share. */
#include "lib/comm/comm.h"
#include "lib/job/context.h"
#include "lib/twill_recover.h"
#include "tests/support/unit.h"

enum { MOST = 4, COUNT = 5000 };

static const char *const settings[] = {
    "TWILL_PROVIDER=tcp", "TWILL_INTERFACE=lo",
    TWILL_TEST_PATIENT,   "TWILL_JOB=00112233445566778899aabbccddeeff",
    "TWILL_LAYOUT=",      NULL};

/* The handles of all processes of a test, and this process's. */
struct handles_of_all {
    twill_handle *own;
    char text[MOST][TWILL_HANDLE_BYTES];
    const char *list[MOST];
};

static bool exchange_handles(struct handles_of_all *all, twill_comm *comm, int size,
                             twill_bootstrap *bootstrap)
{
    char mine[TWILL_HANDLE_BYTES] = "";
    TWILL_REQUIRE(twill_handle_create(&all->own, comm, settings, mine) == TWILL_OK);
    TWILL_REQUIRE(bootstrap->exchange(bootstrap->user, mine, all->text, sizeof(mine)) == 0);
    for (int r = 0; r < size; r++)
        all->list[r] = all->text[r];
    return true;
}

static twill_reconfiguration reconfiguration_of(const struct handles_of_all *all, int count,
                                                int ordered, double seconds)
{
    return (twill_reconfiguration){.handles = all->list,
                                   .count = count,
                                   .ordered = ordered,
                                   .seconds = seconds,
                                   .settings = settings};
}

static bool sum_of_ranks(twill_comm *comm, float *buffer)
{
    float size = (float)twill_comm_size(comm), rank = (float)twill_comm_rank(comm);
    for (size_t i = 0; i < COUNT; i++)
        buffer[i] = rank;
    twill_status status = twill_allreduce(comm, buffer, buffer, COUNT, TWILL_F32, TWILL_SUM);
    return TWILL_NOTE(status == TWILL_OK && buffer[COUNT - 1] == size * (size - 1) / 2,
                      "sum %g of %g ranks: %s", (double)buffer[COUNT - 1], (double)size,
                      twill_comm_message(comm));
}

/* --- a list, or a set ------------------------------------------------------------------------ */

static void listed_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const int *ordered = user;
    struct handles_of_all all;
    twill_comm *comm;
    char message[512] = "";
    float buffer[COUNT];
    TWILL_CHECK(exchange_handles(&all, NULL, size, bootstrap));
    for (int r = 0; r < size; r++) /* a set in another order on each, or the same list */
        all.list[r] = all.text[*ordered ? size - 1 - r : (r + rank) % size];
    twill_reconfiguration how = reconfiguration_of(&all, size, *ordered, 0);
    twill_status status =
        twill_comm_reconfigure(&comm, NULL, all.own, &how, message, sizeof(message));
    TWILL_CHECK(status == TWILL_OK, "%s", message);
    TWILL_CHECK(twill_comm_size(comm) == size && twill_comm_epoch(comm) == 1);
    TWILL_CHECK(!*ordered || twill_comm_rank(comm) == size - 1 - rank);
    TWILL_CHECK(sum_of_ranks(comm, buffer));
    twill_handle_destroy(all.own);
    twill_finalize(comm);
}

TWILL_TEST(test_lists)
{
    int ordered = 1, set = 0;
    twill_test_run_processes(3, listed_rank, &ordered);
    twill_test_run_processes(4, listed_rank, &set);
    twill_test_run_processes(1, listed_rank, &set);
}

/* --- again and again -------------------------------------------------------------------------- */

enum { ROUNDS = 5 };

/* Of the contexts that were replaced, that one stays whose memory is in use; the others end with
 * their communicators. */
TWILL_TEST_OF_PROCESSES(test_repeated, 3)
{
    struct handles_of_all all;
    twill_comm *comm = NULL, *next;
    float *kept = NULL, buffer[COUNT];
    char message[512] = "";
    for (int round = 0; round < ROUNDS; round++) {
        TWILL_CHECK(exchange_handles(&all, comm, size, bootstrap));
        twill_reconfiguration how = reconfiguration_of(&all, size, 1, 0);
        twill_status status =
            twill_comm_reconfigure(&next, comm, all.own, &how, message, sizeof(message));
        TWILL_CHECK(status == TWILL_OK, "%s", message);
        twill_handle_destroy(all.own);
        twill_comm_leave(comm);
        comm = next;
        TWILL_CHECK(sum_of_ranks(comm, buffer));
        int contexts = 0;
        for (const twill_context *c = twill_comm_context(comm); c != NULL; c = c->older)
            contexts++;
        TWILL_CHECK(contexts == (kept != NULL ? 2 : 1));
        if (round == 0 && rank == 0)
            TWILL_CHECK(twill_alloc(twill_comm_context(comm), (void **)&kept, 100) == TWILL_OK);
    }
    TWILL_CHECK(kept == NULL || twill_free(twill_comm_context(comm), kept) == TWILL_OK);
    twill_finalize(comm);
}

/* --- after a death --------------------------------------------------------------------------- */

/* Handles of the second reconfiguration. */
struct handle_board {
    _Atomic int there;
    char text[3][TWILL_HANDLE_BYTES];
};

/* Put up this process's handle, and take those of the others. */
static bool meet_at(struct handle_board *board, int place, const twill_comm *comm,
                    struct handles_of_all *all)
{
    TWILL_REQUIRE(twill_handle_create(&all->own, comm, settings, board->text[place]) == TWILL_OK);
    board->there++;
    while (board->there < 3)
        TWILL_REQUIRE(!twill_test_failed() && usleep(1000) == 0);
    for (int r = 0; r < 3; r++)
        all->list[r] = board->text[r];
    return true;
}

/* Of processes 0 to 2 the last one dies; the others go on with process 3. */
static void changed_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct handle_board *board = user;
    struct handles_of_all all;
    twill_comm *comm = NULL, *changed;
    char message[512] = "";
    float *kept = NULL, buffer[COUNT];
    if (rank == 2)
        twill_test_expect_death(rank);
    TWILL_CHECK(exchange_handles(&all, NULL, size, bootstrap));
    if (rank < 3) {
        twill_reconfiguration how = reconfiguration_of(&all, 3, 1, 0);
        TWILL_CHECK(twill_comm_reconfigure(&comm, NULL, all.own, &how, NULL, 0) == TWILL_OK);
        TWILL_CHECK(twill_alloc(twill_comm_context(comm), (void **)&kept, COUNT * sizeof(*kept)) ==
                    TWILL_OK);
        TWILL_CHECK(sum_of_ranks(comm, kept));
    }
    if (rank == 2)
        _exit(1);
    if (comm != NULL)
        TWILL_CHECK(twill_barrier(comm) == TWILL_ERR_PEER);
    twill_handle_destroy(all.own);
    TWILL_CHECK(meet_at(board, rank == 3 ? 2 : rank, comm, &all));
    twill_reconfiguration how = reconfiguration_of(&all, 3, 1, 0);
    twill_status status =
        twill_comm_reconfigure(&changed, comm, all.own, &how, message, sizeof(message));
    TWILL_CHECK(status == TWILL_OK, "%s", message);
    twill_comm_leave(comm);
    TWILL_CHECK(twill_comm_epoch(changed) == 2);
    if (kept != NULL)
        TWILL_CHECK(kept[0] == 3);
    TWILL_CHECK(sum_of_ranks(changed, kept != NULL ? kept : buffer));
    if (kept != NULL)
        TWILL_CHECK(twill_free(twill_comm_context(changed), kept) == TWILL_OK);
    twill_handle_destroy(all.own);
    twill_finalize(changed);
}

TWILL_TEST(test_changed)
{
    twill_test_run_processes(4, changed_rank, twill_test_shared(sizeof(struct handle_board)));
}

/* --- failures -------------------------------------------------------------------------------- */

static void failing_process(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const int *absent = user; /* process 2 does not come; else process 1 has another list */
    struct handles_of_all all;
    twill_comm *comm;
    char message[512] = "", other[TWILL_HANDLE_BYTES];
    twill_handle *fourth = NULL;
    TWILL_CHECK(exchange_handles(&all, NULL, size, bootstrap));
    twill_reconfiguration how = reconfiguration_of(&all, size, 1, *absent ? 1 : 0);
    if (!*absent && rank == 1) {
        TWILL_CHECK(twill_handle_create(&fourth, NULL, settings, other) == TWILL_OK);
        all.list[2] = other;
    }
    if (!*absent || rank < 2) {
        twill_status status =
            twill_comm_reconfigure(&comm, NULL, all.own, &how, message, sizeof(message));
        TWILL_CHECK(comm == NULL && status == (*absent ? TWILL_ERR_TIMEOUT : TWILL_ERR_MISMATCH));
        TWILL_CHECK(TWILL_SAYS(message, *absent ? "1 of 3 ranks did not join"
                                                : "other handles than rank 0"));
    }
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_handle_destroy(fourth);
    twill_handle_destroy(all.own);
}

TWILL_TEST(test_failing)
{
    int absent = 1, differs = 0;
    twill_test_run_processes(3, failing_process, &absent);
    twill_test_run_processes(3, failing_process, &differs);
}

/* Refused arguments, and what the message says of them. */
TWILL_TEST_OF_PROCESSES(test_refused, 1)
{
    struct handles_of_all all;
    twill_comm *comm, *same;
    char message[512] = "", growth[TWILL_HANDLE_BYTES];
    TWILL_CHECK(exchange_handles(&all, NULL, size, bootstrap));
    twill_reconfiguration how = reconfiguration_of(&all, 1, 0, 0);
    TWILL_CHECK(twill_comm_reconfigure(NULL, NULL, all.own, &how, NULL, 0) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_handle_create(NULL, NULL, NULL, growth) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_reconfigure(&comm, NULL, all.own, &how, message, 512) == TWILL_OK);
    TWILL_CHECK(twill_comm_handle(comm, 1, growth) == TWILL_OK);
    struct {
        int count;
        const char *first, *second;
        double seconds;
        const char *says;
    } bad[] = {
        {0, all.text[0], NULL, 0, "count = 0"},
        {1, all.text[0], NULL, -1, "seconds = -1"},
        {2, all.text[0], all.text[0], 0, "a handle twice"},
        {2, all.text[0], growth, 0, "which is for growing"},
        {1, "no handle", NULL, 0, "is not a complete handle"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++) {
        all.list[0] = bad[i].first;
        all.list[1] = bad[i].second;
        how = reconfiguration_of(&all, bad[i].count, 1, bad[i].seconds);
        TWILL_CHECK(twill_comm_reconfigure(&same, comm, all.own, &how, message, 512) ==
                    TWILL_ERR_ARGUMENT);
        TWILL_CHECK(same == NULL && TWILL_SAYS(message, bad[i].says));
    }
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
    twill_handle_destroy(all.own);
    twill_finalize(comm);
}
