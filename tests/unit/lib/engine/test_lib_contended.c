/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks bound to cores that other programs use, too: a wait sleeps instead of yielding again and
 * again, each time for as long as the other programs take. */
#include "tests/support/placement.h"
#include "tests/support/unit.h"

#include <sys/prctl.h>
#include <sys/resource.h>

enum { CONTENDED_RANKS = 2, BARRIERS = 200, WORK = 400000 };

static int cpu_of[CONTENDED_RANKS];

/* Another program: computes on a core. */
static pid_t begin_hog(int cpu)
{
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        twill_test_bind(cpu);
        for (volatile uint64_t i = 0;; i++)
            ;
    }
    return child;
}

static long count_sleeps(void)
{
    struct rusage usage;
    getrusage(RUSAGE_THREAD, &usage);
    return usage.ru_nvcsw;
}

static void be_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_comm *comm;
    twill_test_bind(cpu_of[rank]);
    if (twill_test_open(&comm, bootstrap, "1x2")) {
        twill_status status = TWILL_OK;
        long before = count_sleeps();
        for (int i = 0; i < BARRIERS && status == TWILL_OK; i++) {
            for (volatile int work = 0; work < WORK; work++)
                ;
            status = twill_barrier(comm);
        }
        int64_t sleeps = count_sleeps() - before; /* of both ranks: one of them is always first */
        if (status == TWILL_OK)
            status = twill_allreduce(comm, &sleeps, &sleeps, 1, TWILL_I64, TWILL_SUM);
        TWILL_NOTE(status == TWILL_OK, "%s", twill_comm_message(comm));
        TWILL_NOTE(sleeps >= BARRIERS / 8, "the ranks slept %lld times in %d barriers",
                   (long long)sleeps, (int)BARRIERS);
    }
    twill_test_barrier(bootstrap);
    twill_test_close(comm);
}

TWILL_TEST(ranks_beside_others)
{
    pid_t hog[CONTENDED_RANKS];
    if (!twill_test_two_pus(cpu_of))
        skip();
    for (int i = 0; i < CONTENDED_RANKS; i++)
        hog[i] = begin_hog(cpu_of[i]);
    twill_test_run_processes(CONTENDED_RANKS, be_rank, NULL);
    for (int i = 0; i < CONTENDED_RANKS; i++) {
        assert_true(hog[i] > 0);
        kill(hog[i], SIGKILL);
        waitpid(hog[i], NULL, 0);
    }
}
