/* SPDX-License-Identifier: Apache-2.0 */
/* The latency of the fast path: instructions from the entry of twill_request_start() of a
 * persistent call to the store in shared memory that its peers wait for. Rank 1 single-steps rank 0
 * by ptrace and looks at shared memory after each instruction. For optimised x86-64 builds without
 * sanitizers, where tracing is allowed; else skipped. */
#include "fabric/shm/node_memory.h"
#include "lib/comm/comm.h"
#include "tests/support/unit.h"

#if defined(__x86_64__) && defined(__OPTIMIZE__) && defined(NDEBUG) && !TEST_SLOW
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>

#define START_MOST  100   /* instructions */
#define MOST_SEEN   10000 /* give up after these */
#define WARM        5
#define START_COUNT 2

/* Memory that both processes share. */
struct counted {
    _Atomic int pid; /* of rank 0, stopped before its start */
    int trouble;     /* errno of ptrace */
    int first, line; /* instructions to the first change in shared memory, to the line */
    bool right;      /* the result */
};

static bool step_process(pid_t pid)
{
    int status;
    return ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0 &&
           waitpid(pid, &status, __WALL) == pid && WIFSTOPPED(status);
}

static uintptr_t instruction_of(pid_t pid)
{
    struct user_regs_struct registers = {.rip = 0};
    (void)ptrace(PTRACE_GETREGS, pid, NULL, &registers);
    return (uintptr_t)registers.rip;
}

/* Return the immediate of rank 0 in the next epoch. */
static bool line_is_there(const struct twill_comm *comm)
{
    unsigned lane = (unsigned)(comm->issue.epoch % TWILL_WINDOW) * TWILL_SCHEDULE_LANES;
    return twill_node_imm(comm->node, 0, lane, comm->issue.epoch) != NULL;
}

/* Step rank 0 to the entry, and from there until its immediate is there. */
static void count_steps(struct counted *counted, const struct twill_comm *comm, pid_t pid)
{
    static struct twill_node_area before[2];
    int n = 0;
    for (n = 0; n < MOST_SEEN && instruction_of(pid) != (uintptr_t)twill_request_start; n++)
        TWILL_CHECK(step_process(pid));
    TWILL_CHECK(n < MOST_SEEN);
    for (unsigned l = 0; l < 2; l++)
        memcpy(&before[l], comm->node->area[l], sizeof(before[l]));
    for (n = 0; n < MOST_SEEN && !line_is_there(comm); n++) {
        for (unsigned l = 0; l < 2 && counted->first == 0; l++)
            if (memcmp(&before[l], comm->node->area[l], sizeof(before[l])) != 0)
                counted->first = n;
        TWILL_CHECK(step_process(pid));
    }
    counted->line = n;
}

static void trace(struct counted *counted, const struct twill_comm *comm)
{
    int status;
    pid_t pid;
    while ((pid = atomic_load(&counted->pid)) == 0 && !twill_test_failed())
        twill_pause();
    if (pid == 0)
        return;
    if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) != 0) {
        counted->trouble = errno;
        kill(pid, SIGCONT);
        return;
    }
    TWILL_CHECK(waitpid(pid, &status, __WALL) == pid);
    count_steps(counted, comm, pid);
    TWILL_CHECK(ptrace(PTRACE_DETACH, pid, NULL, NULL) == 0);
    kill(pid, SIGCONT);
}

static void rank_starts(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct counted *counted = user;
    twill_comm *comm;
    twill_request *request = NULL;
    float x[START_COUNT] = {1.0f, 1.0f};
    if (twill_test_open(&comm, bootstrap, "2")) {
        twill_status status =
            twill_allreduce_init(comm, x, x, START_COUNT, TWILL_F32, TWILL_SUM, &request);
        for (int i = 0; status == TWILL_OK && i < WARM; i++) {
            status = twill_request_start(request);
            status = status == TWILL_OK ? twill_wait(&request) : status;
        }
        if (status == TWILL_OK && rank == 1)
            trace(counted, comm);
        if (status == TWILL_OK && rank == 0) {
            (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
            atomic_store(&counted->pid, getpid());
            raise(SIGSTOP);
        }
        status = status == TWILL_OK ? twill_request_start(request) : status;
        status = status == TWILL_OK ? twill_wait(&request) : status;
        counted->right = x[0] == (float)(1 << (WARM + 1)) && x[1] == x[0];
        TWILL_NOTE(status == TWILL_OK, "%s", twill_comm_message(comm));
        (void)twill_request_free(&request);
    }
    twill_test_close(comm);
}

TWILL_TEST(instructions)
{
    struct counted *counted = twill_test_shared(sizeof(*counted));
    twill_test_run_processes(2, rank_starts, counted);
    const struct counted result = *counted;
    assert_true(result.right);
    if (result.trouble != 0) {
        print_message("skipped: ptrace: %s\n", strerror(result.trouble));
        skip();
    }
    print_message("%d instructions to the first store, %d to the line\n", result.first,
                  result.line);
    assert_in_range(result.first, 1, START_MOST);
    assert_in_range(result.line, 1, START_MOST);
}
#else
TWILL_TEST(instructions)
{
    print_message("skipped: instructions of optimised x86-64 builds are counted\n");
    skip();
}
#endif
