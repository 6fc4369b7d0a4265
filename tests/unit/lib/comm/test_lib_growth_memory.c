/* SPDX-License-Identifier: Apache-2.0 */
/* A job of one rank grows by a process, and one of the two gets no memory from some allocation on:
 * neither keeps a descriptor, both end with a status, and the old communicator goes on. A sample by
 * TEST_SEED; all allocations with TEST_WHOLE. */
#include "lib/comm/comm.h"
#include "lib/job/context.h"
#include "lib/twill_recover.h"
#include "tests/support/job_ranks.h"
#include "tests/support/noise.h"
#include "tests/support/scarce.h"
#include "tests/support/unit.h"

#define TRIES      6     /* allocations of the sample */
#define MOST_ASKED 40000 /* more than either process makes */

static const char job_key[] = "TWILL_JOB=00112233445566778899aabbccddeeff";
static struct twill_test_job job; /* its port */

/* Which process has no memory, whether for good or for one allocation, and after how many. */
struct shortage_of_memory {
    int rank;
    bool for_good;
    int first, step;
};

static bool start_alone(twill_comm **comm)
{
    const char *const settings[] = {"RANK=0",
                                    "WORLD_SIZE=1",
                                    "MASTER_ADDR=127.0.0.1",
                                    twill_test_text("MASTER_PORT=%s", job.port),
                                    "TWILL_PROVIDER=tcp",
                                    "TWILL_INTERFACE=lo",
                                    "TWILL_TIMEOUT=4",
                                    job_key,
                                    NULL};
    char message[512] = "";
    twill_status status = twill_init_with(comm, NULL, settings, message, sizeof(message));
    return TWILL_NOTE(status == TWILL_OK, "%s", message);
}

/* Grow once; a process whose turn it is has no memory after `left` allocations. */
static twill_status grow_scarcely(twill_comm *comm, const char *handle,
                                  const struct shortage_of_memory *test, int rank, int left,
                                  twill_comm **larger)
{
    static const char *const settings[] = {"TWILL_PROVIDER=tcp", "TWILL_INTERFACE=lo",
                                           "TWILL_TIMEOUT=4", job_key, NULL};
    char message[512];
    scarce_for_good = test->for_good;
    scarce_memory = rank == test->rank ? left : -1;
    twill_status status = rank == 0 ? twill_comm_grow(larger, comm)
                                    : twill_comm_join(larger, handle, settings, message, 512);
    scarce_memory = -1;
    return status;
}

/* Return whether a handle, which may travel by any way, is without the job's key and the secret of
 * its run. */
static bool has_no_secret(const char *handle, const twill_comm *comm)
{
    const struct twill_secret *secret = &comm->context->job.oob->secret;
    char text[17];
    for (size_t i = 0; i < 8; i++)
        snprintf(text + 2 * i, 3, "%02x", secret->key[i]);
    return strstr(handle, text) == NULL && strstr(handle, strchr(job_key, '=') + 1) == NULL;
}

static bool has_new_secret(const twill_comm *larger, const twill_comm *comm)
{
    return memcmp(&larger->context->job.oob->secret, &comm->context->job.oob->secret,
                  sizeof(struct twill_secret)) != 0;
}

static void scarce_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct shortage_of_memory *test = user;
    twill_comm *comm = NULL, *larger = NULL;
    float one = 1;
    if (rank == 0)
        TWILL_CHECK(start_alone(&comm));
    for (int left = test->first; left < MOST_ASKED; left += test->step) {
        char all[2][TWILL_HANDLE_BYTES] = {""}, handle[TWILL_HANDLE_BYTES] = "";
        int status[2];
        int before = twill_test_open_files(); /* those of the exchange are among them */
        if (rank == 0)
            TWILL_CHECK(twill_comm_handle(comm, 1, handle) == TWILL_OK &&
                        has_no_secret(handle, comm));
        TWILL_CHECK(bootstrap->exchange(bootstrap->user, handle, all, sizeof(handle)) == 0);
        int own = grow_scarcely(comm, all[0], test, rank, left, &larger);
        int kept = twill_test_open_files() - before;
        TWILL_CHECK(kept == 0 || own == TWILL_OK,
                    "%d descriptors kept after %d allocations, status %d", kept, left, own);
        TWILL_CHECK(bootstrap->exchange(bootstrap->user, &own, status, sizeof(own)) == 0);
        if (status[0] == TWILL_OK || status[1] == TWILL_OK)
            break;
        if (rank == 0)
            TWILL_CHECK(twill_allreduce(comm, &one, &one, 1, TWILL_F32, TWILL_SUM) == TWILL_OK);
    }
    if (rank == 0)
        TWILL_CHECK(larger != NULL && has_new_secret(larger, comm));
    if (larger != NULL)
        twill_comm_leave(comm);
    twill_finalize(larger != NULL ? larger : comm);
}

static void run_scarce(int rank, bool for_good, int most)
{
    int step = test_whole() ? 1 : most / TRIES;
    struct shortage_of_memory test = {rank, for_good, (int)(test_seed() % (uint64_t)step), step};
    twill_test_job_init(&job, "127.0.0.1", 1);
    twill_test_run_processes(2, scarce_rank, &test);
}

TWILL_TEST(test_old_rank)
{
    run_scarce(0, true, 1000);
    run_scarce(0, false, 1000);
}

TWILL_TEST(test_new_process)
{
    run_scarce(1, true, 1000);
}
