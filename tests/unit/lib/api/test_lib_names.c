/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of calls: a refusal names the refused call, a mismatch with the destruction of a
 * communicator names that, a rank is named once; and warnings about names of nothing. */
#include "lib/base/base.h"
#include "lib/twill_plan.h"
#include "tests/support/unit.h"

#define NAMES_SETTINGS TWILL_TEST_PATIENT, "TWILL_TUNE=heap_limit=8M", "TWILL_LOG=none"

/* --- words ----------------------------------------------------------------------------------- */

TWILL_TEST_ON(refusals_name_the_call, processes, TWILL_LAYOUTS("1"), NAMES_SETTINGS)
{
    twill_request *request = NULL;
    TWILL_CHECK(twill_group_end(comm) == TWILL_ERR_ARGUMENT); /* before any call */
    TWILL_CHECK(strcmp(twill_comm_message(comm),
                       "rank 0: twill_group_end: the group has not been started") == 0);
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
    TWILL_CHECK(twill_group_start(comm) == TWILL_OK);
    TWILL_CHECK(twill_group_start(comm) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(strcmp(twill_comm_message(comm), "rank 0: twill_group_start: groups do not nest") ==
                0);
    TWILL_CHECK(TWILL_ENDS(comm, twill_barrier_start(comm, &request), TWILL_ERR_ARGUMENT,
                           "rank 0: twill_barrier_start: a nonblocking"));
    TWILL_CHECK(twill_group_end(comm) == TWILL_OK);
    TWILL_CHECK(TWILL_ENDS(comm, twill_barrier_start(comm, NULL), TWILL_ERR_ARGUMENT,
                           "rank 0: twill_barrier_start: request is NULL"));
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
}

/* The last rank destroys the communicator while the others are in another call. */
TWILL_TEST_ON(an_early_end, ranks, TWILL_LAYOUTS("2", "2x1"), NAMES_SETTINGS)
{
    float x = 1.0f;
    if (rank < size - 1) {
        TWILL_CHECK(TWILL_ENDS(comm, twill_allreduce(comm, &x, &x, 1, TWILL_F32, TWILL_SUM),
                               TWILL_ERR_MISMATCH, "twill_comm_destroy or twill_finalize"));
        TWILL_CHECK(strstr(twill_comm_message(comm), "barrier") == NULL);
    }
    twill_comm_destroy(comm);
}

/* Several calls wait for rank 1: the message names it once. */
TWILL_TEST_ON(an_absent_rank, ranks, TWILL_LAYOUTS("2", "2x1"), "TWILL_TIMEOUT=1",
              "TWILL_TUNE=heap_limit=8M")
{
    twill_request *request[3];
    float x[3][8] = {{0}};
    for (int i = 0; rank == 0 && i < 3; i++)
        TWILL_CHECK(twill_allreduce_start(comm, x[i], x[i], 8, TWILL_F32, TWILL_SUM, &request[i]) ==
                    TWILL_OK);
    TWILL_CHECK(rank != 0 || TWILL_ENDS(comm, twill_wait_all(3, request), TWILL_ERR_TIMEOUT,
                                        "of rank 1 within"));
}

/* --- unknown names in variables that are not used -------------------------------------------- */

struct named_setting {
    const char *setting, *said; /* said NULL: no warning */
    const char *log_file;
};

static void named_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct named_setting *named = user;
    twill_comm *comm;
    if (twill_test_open(&comm, bootstrap, "", named->setting, named->log_file))
        twill_test_close(comm);
}

/* One rank warns, once. */
/* A refused question names the argument and harms nothing. An answer sends nothing. */
TWILL_TEST_ON(a_plan_for_a_call, ranks, TWILL_LAYOUTS("1", "2", "2x1"), NAMES_SETTINGS)
{
    static const struct {
        const char *collective;
        size_t bytes;
        int type, op, root, buffers;
        const char *says;
    } refused[] = {
        {"allreducev", 8, TWILL_F32, TWILL_SUM, 0, 0, "collective \"allreducev\" is no call"},
        {NULL, 8, TWILL_F32, TWILL_SUM, 0, 0, "collective \"NULL\" is no call"},
        {"gather", SIZE_MAX, TWILL_F32, TWILL_SUM, 0, 0, "bytes 18446744073709551615 overflows"},
        {"allreduce", 8, 99, TWILL_SUM, 0, 0, "type 99 is not a twill_type"},
        {"allreduce", 8, TWILL_F32, TWILL_BAND, 0, 0, "op band does not take type f32"},
        {"reduce", 8, TWILL_F32, TWILL_SUM, -1, 0, "root -1 is outside 0"},
        {"reduce", 8, TWILL_F32, TWILL_SUM, 0, 4, "buffers 4 is no sum of TWILL_PLAN_SHARED"},
    };
    twill_call_plan plan = {.bytes = sizeof(plan)}, none = {.bytes = 8};
    twill_counters counters;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(refused); i++)
        TWILL_CHECK(TWILL_ENDS(
            comm,
            twill_comm_plan_for(comm, refused[i].collective, refused[i].bytes,
                                (twill_type)refused[i].type, (twill_op)refused[i].op,
                                refused[i].root, refused[i].buffers, &plan),
            TWILL_ERR_ARGUMENT, twill_test_text("twill_comm_plan_for: %s", refused[i].says)));
    TWILL_CHECK(
        TWILL_ENDS(comm, twill_comm_plan_for(comm, "barrier", 0, TWILL_F32, TWILL_SUM, 0, 0, &none),
                   TWILL_ERR_ARGUMENT, "plan: bytes is 8"));
    TWILL_CHECK(
        TWILL_ENDS(comm, twill_comm_plan_for(comm, "barrier", 0, TWILL_F32, TWILL_SUM, 0, 0, NULL),
                   TWILL_ERR_ARGUMENT, "plan is NULL"));
    TWILL_CHECK(twill_comm_plan_for(comm, "allreduce", 64 << 10, TWILL_F32, TWILL_SUM, 99, 0,
                                    &plan) == TWILL_OK);
    TWILL_CHECK(TWILL_SAYS(plan.reason, plan.next[0] != '\0' ? plan.next : "the cheapest"));
    TWILL_CHECK(twill_comm_counters(comm, &counters) == TWILL_OK);
    TWILL_CHECK(counters.calls == 0 && counters.bytes_sent == 0);
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
    TWILL_CHECK(twill_comm_plan_for(NULL, "barrier", 0, TWILL_F32, TWILL_SUM, 0, 0, &plan) ==
                TWILL_ERR_ARGUMENT);
}

TWILL_TEST(names_of_nothing)
{
    static struct named_setting cases[] = {
        {.setting = "TWILL_RAILS=eth99", .said = "TWILL_RAILS=eth99: eth99 is no interface"},
        {.setting = "TWILL_PROVIDER=foo", .said = "TWILL_PROVIDER=foo"},
        {.setting = "TWILL_RAILS=lo"},
        {.setting = "TWILL_PROVIDER=tcp"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        const char *file = twill_test_text("/tmp/twill-words-%d-%zu", (int)getpid(), i);
        cases[i].log_file = twill_test_text("TWILL_LOG_FILE=%s", file);
        twill_test_run_ranks(2, named_rank, &cases[i]);
        assert_int_equal(test_count_lines(file, "not used", ""), cases[i].said != NULL);
        if (cases[i].said != NULL)
            assert_int_equal(test_count_lines(file, cases[i].said, ""), 1);
        (void)unlink(file);
    }
}
