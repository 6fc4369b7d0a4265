/* SPDX-License-Identifier: Apache-2.0 */
/* The latency of the fast path: instructions from the entry of twill_request_start() of a
 * persistent call to the store in shared memory that its peers wait for, and instructions of a
 * blocking call whose peer has come first. Rank 1 single-steps rank 0 by ptrace and looks at shared
 * memory after each instruction. For optimised x86-64 builds without
 * sanitizers, where tracing is allowed; else skipped. */
#include "fabric/shm/node_memory.h"
#include "lib/comm/comm.h"
#include "tests/support/unit.h"

#if defined(__x86_64__) && defined(__OPTIMIZE__) && defined(NDEBUG) && !TEST_SLOW
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/user.h>

#define START_MOST 117   /* instructions, none of them locked in a process with one thread */
#define CALL_MOST  1940  /* also those that count the time of a call, which steps make a long one */
#define MOST_SEEN  10000 /* give up after these */
#define WARM       5
#define COUNT      2

/* Memory that both processes share. */
struct counted {
    bool blocking;   /* count a blocking call, else the start of a persistent one */
    _Atomic int pid; /* of rank 0, stopped before its start */
    int trouble;     /* errno of ptrace */
    int first, line; /* instructions to the first change in shared memory, to the line */
    int call;        /* instructions of the blocking call */
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

/* Step rank 0 until it is there; count its instructions. */
static void step_to(pid_t pid, uintptr_t there, int *count)
{
    for (*count = 0; *count < MOST_SEEN && instruction_of(pid) != there; ++*count)
        TWILL_CHECK(step_process(pid));
    TWILL_CHECK(*count < MOST_SEEN);
}

/* Step rank 0 through twill_allreduce(). */
static void count_call(struct counted *counted, pid_t pid)
{
    struct user_regs_struct registers = {.rsp = 0};
    step_to(pid, (uintptr_t)twill_allreduce, &counted->call);
    (void)ptrace(PTRACE_GETREGS, pid, NULL, &registers);
    uintptr_t caller = (uintptr_t)ptrace(PTRACE_PEEKTEXT, pid, (void *)registers.rsp, NULL);
    step_to(pid, caller, &counted->call);
}

/* Step rank 0 to the entry, and from there until its immediate is there. */
static void count_steps(struct counted *counted, const struct twill_comm *comm, pid_t pid)
{
    static struct twill_node_area before[2];
    int n = 0;
    step_to(pid, (uintptr_t)twill_request_start, &n);
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
    if (counted->blocking)
        count_call(counted, pid);
    else
        count_steps(counted, comm, pid);
    TWILL_CHECK(ptrace(PTRACE_DETACH, pid, NULL, NULL) == 0);
    kill(pid, SIGCONT);
}

static twill_status make_call(const struct counted *counted, twill_comm *comm,
                              twill_request **request, float *x)
{
    if (counted->blocking)
        return twill_allreduce(comm, x, x, COUNT, TWILL_F32, TWILL_SUM);
    TWILL_TRY(NULL, twill_request_start(*request));
    return twill_wait(request);
}

/* Rank 1: come first, if the call is a blocking one, and count what rank 0 does. */
static twill_status trace_call(struct counted *counted, twill_comm *comm, twill_request **request,
                               float *x)
{
    twill_request *mine = NULL;
    if (counted->blocking)
        TWILL_TRY(NULL, twill_allreduce_start(comm, x, x, COUNT, TWILL_F32, TWILL_SUM, &mine));
    trace(counted, comm);
    return counted->blocking ? twill_wait(&mine) : make_call(counted, comm, request, x);
}

static void rank_calls(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct counted *counted = user;
    twill_comm *comm;
    twill_request *request = NULL;
    float x[COUNT] = {1.0f, 1.0f};
    if (twill_test_open(&comm, bootstrap, "2")) {
        twill_status status =
            twill_allreduce_init(comm, x, x, COUNT, TWILL_F32, TWILL_SUM, &request);
        for (int i = 0; status == TWILL_OK && i < WARM; i++)
            status = make_call(counted, comm, &request, x);
        if (status == TWILL_OK && rank == 0) {
            (void)prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
            atomic_store(&counted->pid, getpid());
            raise(SIGSTOP);
        }
        if (status == TWILL_OK)
            status = rank == 1 ? trace_call(counted, comm, &request, x)
                               : make_call(counted, comm, &request, x);
        counted->right = x[0] == (float)(1 << (WARM + 1)) && x[1] == x[0];
        TWILL_NOTE(status == TWILL_OK, "%s", twill_comm_message(comm));
        (void)twill_request_free(&request);
    }
    twill_test_close(comm);
}

static struct counted count_instructions(bool blocking)
{
    struct counted *counted = twill_test_shared(sizeof(*counted));
    counted->blocking = blocking;
    twill_test_run_processes(2, rank_calls, counted);
    assert_true(counted->right);
    if (counted->trouble != 0) {
        print_message("skipped: ptrace: %s\n", strerror(counted->trouble));
        skip();
    }
    return *counted;
}

TWILL_TEST(instructions)
{
    struct counted result = count_instructions(false);
    print_message("%d instructions to the first store, %d to the line\n", result.first,
                  result.line);
    assert_in_range(result.first, 1, START_MOST);
    assert_in_range(result.line, 1, START_MOST);
}

/* The bound leaves some 3 % for other compilers: a layer more in the wait costs that. */
TWILL_TEST(instructions_of_a_call)
{
    struct counted result = count_instructions(true);
    print_message("%d instructions of a blocking call\n", result.call);
    assert_in_range(result.call, 1, CALL_MOST);
}
#else
TWILL_TEST(instructions)
{
    print_message("skipped: instructions of optimised x86-64 builds are counted\n");
    skip();
}
#endif
