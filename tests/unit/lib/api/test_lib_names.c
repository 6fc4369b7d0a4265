/* SPDX-License-Identifier: Apache-2.0 */
/* Messages and times of calls: a refusal names the refused call, a mismatch with the destruction of
 * a communicator names that, a rank is named once; time is counted in all ways to wait. */
#include "lib/base/base.h"
#include "tests/support/unit.h"

static const char *const quiet[] = {TWILL_TEST_PATIENT, "TWILL_TUNE=heap_limit=8M",
                                    "TWILL_LOG=none", NULL};

static bool says(const char *message, const char *words)
{
    return TWILL_NOTE(strstr(message, words) != NULL, "\"%s\" is not in \"%s\"", words, message);
}
#define SAYS(message, words) TWILL_CHECK(says((message), (words)))

/* --- words ----------------------------------------------------------------------------------- */

TWILL_TEST_OF_PROCESSES(refusals_name_the_call, 1)
{
    twill_comm *comm;
    twill_request *request = NULL;
    TWILL_CHECK(twill_test_open_with(&comm, bootstrap, "", quiet));
    TWILL_CHECK(twill_group_end(comm) == TWILL_ERR_ARGUMENT); /* before any call */
    TWILL_CHECK(strcmp(twill_comm_message(comm),
                       "rank 0: twill_group_end: the group has not been started") == 0);
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
    TWILL_CHECK(twill_group_start(comm) == TWILL_OK);
    TWILL_CHECK(twill_group_start(comm) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(strcmp(twill_comm_message(comm), "rank 0: twill_group_start: groups do not nest") ==
                0);
    TWILL_CHECK(twill_barrier_start(comm, &request) == TWILL_ERR_ARGUMENT);
    SAYS(twill_comm_message(comm), "rank 0: twill_barrier_start: a nonblocking");
    TWILL_CHECK(twill_group_end(comm) == TWILL_OK);
    TWILL_CHECK(twill_barrier_start(comm, NULL) == TWILL_ERR_ARGUMENT);
    SAYS(twill_comm_message(comm), "rank 0: twill_barrier_start: request is NULL");
    pid_t pid = fork();
    TWILL_CHECK(pid >= 0);
    if (pid == 0) {
        bool right = twill_group_start(comm) == TWILL_ERR_FORKED &&
                     strstr(twill_comm_message(comm),
                            "rank 0: twill_group_start: this process was ") != NULL;
        _exit(right ? 0 : 1);
    }
    int status;
    TWILL_CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    twill_test_close(comm);
}

/* The last rank destroys the communicator while the others are in another call. */
static void early_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_context *context;
    twill_comm *comm;
    float x = 1.0f;
    TWILL_CHECK(twill_test_connect(&context, &comm, bootstrap, user, NULL, quiet));
    if (rank < size - 1) {
        twill_status status = twill_allreduce(comm, &x, &x, 1, TWILL_F32, TWILL_SUM);
        TWILL_CHECK(status == TWILL_ERR_MISMATCH);
        SAYS(twill_comm_message(comm), "twill_comm_destroy or twill_finalize");
        TWILL_CHECK(strstr(twill_comm_message(comm), "barrier") == NULL);
    }
    twill_comm_destroy(comm);
    (void)twill_test_barrier(bootstrap);
    twill_context_destroy(context);
}

TWILL_TEST(an_early_end)
{
    twill_test_run_ranks(2, early_rank, "");
    twill_test_run_ranks(2, early_rank, "2x1");
}

/* Several calls wait for rank 1: the message names it once. */
static void absent_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_comm *comm;
    twill_request *request[3];
    float x[3][8] = {{0}};
    if (!twill_test_open(&comm, bootstrap, user, "TWILL_TIMEOUT=1", "TWILL_TUNE=heap_limit=8M"))
        return;
    if (rank == 0) {
        for (int i = 0; i < 3; i++)
            TWILL_CHECK(twill_allreduce_start(comm, x[i], x[i], 8, TWILL_F32, TWILL_SUM,
                                              &request[i]) == TWILL_OK);
        TWILL_CHECK(twill_wait_all(3, request) == TWILL_ERR_TIMEOUT);
        SAYS(twill_comm_message(comm), "of rank 1 within");
    }
    (void)twill_test_barrier(bootstrap);
    twill_test_close(comm);
}

TWILL_TEST(an_absent_rank)
{
    twill_test_run_ranks(2, absent_rank, "");
    twill_test_run_ranks(2, absent_rank, "2x1");
}

/* --- unknown names in variables that are not used -------------------------------------------- */

struct named_setting {
    const char *setting, *said; /* said NULL: no warning */
    char file[64];
};

static void named_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct named_setting *named = user;
    char log_file[96];
    twill_comm *comm;
    snprintf(log_file, sizeof(log_file), "TWILL_LOG_FILE=%s", named->file);
    if (!twill_test_open(&comm, bootstrap, "", named->setting, log_file))
        return;
    twill_test_close(comm);
}

static unsigned times_said(const char *file, const char *words)
{
    char line[1024];
    unsigned times = 0;
    FILE *stream = fopen(file, "r");
    while (stream != NULL && fgets(line, sizeof(line), stream) != NULL)
        times += strstr(line, words) != NULL;
    if (stream != NULL)
        fclose(stream);
    return times;
}

/* One rank warns, once. */
TWILL_TEST(names_of_nothing)
{
    static struct named_setting cases[] = {
        {.setting = "TWILL_RAILS=eth99", .said = "TWILL_RAILS=eth99: eth99 is no interface"},
        {.setting = "TWILL_PROVIDER=foo", .said = "TWILL_PROVIDER=foo"},
        {.setting = "TWILL_RAILS=lo"},
        {.setting = "TWILL_PROVIDER=tcp"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        snprintf(cases[i].file, sizeof(cases[i].file), "/tmp/twill-words-%d-%zu", (int)getpid(), i);
        twill_test_run_ranks(2, named_rank, &cases[i]);
        unsigned all = times_said(cases[i].file, "not used");
        assert_int_equal(all, cases[i].said != NULL);
        if (cases[i].said != NULL)
            assert_int_equal(times_said(cases[i].file, cases[i].said), 1);
        (void)unlink(cases[i].file);
    }
}

/* --- time ------------------------------------------------------------------------------------ */

#define LATE_US 50000

enum way { WORDS_STARTED, TESTED, ANY, WORDS_PERSISTENT, GROUPED, WAYS };

static twill_status one_way(twill_comm *comm, enum way way, float *x)
{
    twill_request *request = NULL;
    twill_status status = TWILL_OK;
    int done = 0, index;
    switch (way) {
    case WORDS_PERSISTENT:
        return TWILL_OK;
    case GROUPED:
        status = twill_group_start(comm);
        if (status == TWILL_OK)
            status = twill_allreduce(comm, x, x, 1, TWILL_F32, TWILL_SUM);
        return status == TWILL_OK ? twill_group_end(comm) : status;
    default:
        status = twill_allreduce_start(comm, x, x, 1, TWILL_F32, TWILL_SUM, &request);
    }
    if (status == TWILL_OK && way == WORDS_STARTED)
        status = twill_wait(&request);
    if (status == TWILL_OK && way == ANY)
        status = twill_wait_any(1, &request, &index);
    while (status == TWILL_OK && way == TESTED && !done)
        status = twill_test(&request, &done);
    return status;
}

/* Rank 1 is late: most of the time that rank 0 counts is waiting. */
static void late_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_comm *comm;
    twill_request *persistent;
    twill_counters before, after;
    enum way way = *(enum way *)user;
    float x = 0.0f;
    TWILL_CHECK(twill_test_open_with(&comm, bootstrap, "", quiet));
    TWILL_CHECK(twill_allreduce_init(comm, &x, &x, 1, TWILL_F32, TWILL_SUM, &persistent) ==
                TWILL_OK);
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
    if (rank == 1)
        usleep(LATE_US);
    TWILL_CHECK(twill_comm_counters(comm, &before) == TWILL_OK);
    uint64_t started = twill_now();
    twill_status status = one_way(comm, way, &x);
    if (way == WORDS_PERSISTENT) {
        status = twill_request_start(persistent);
        status = status == TWILL_OK ? twill_wait(&persistent) : status;
    }
    double took = (double)(twill_now() - started) * 1e-9;
    TWILL_CHECK(status == TWILL_OK);
    TWILL_CHECK(twill_comm_counters(comm, &after) == TWILL_OK);
    double counted = after.seconds - before.seconds;
    if (rank == 0)
        (void)TWILL_NOTE(counted > (way == TESTED ? 0 : took / 4) && counted < took * 1.5,
                         "way %d: %g s are counted of %g s", way, counted, took);
    TWILL_CHECK(twill_request_free(&persistent) == TWILL_OK);
    twill_test_close(comm);
}

TWILL_TEST(time_is_counted)
{
    for (enum way way = WORDS_STARTED; way < WAYS; way++)
        twill_test_run_ranks(2, late_rank, &way);
}
