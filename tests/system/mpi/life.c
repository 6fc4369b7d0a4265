/* SPDX-License-Identifier: Apache-2.0 */
/* How programs start, end and fail: `life CASE`. Expected output is in check_mpi.sh. */
#include "harness.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static int called; /* calls of error handlers and callbacks */

/* Return TEST_MPI_VERSION as the MPI's version, if it is set. */
__attribute__((visibility("default"))) int PMPI_Get_library_version(char *version, int *length)
{
    int (*its)(char *, int *);
    const char *other = getenv("TEST_MPI_VERSION");
    *(void **)&its = dlsym(RTLD_NEXT, "PMPI_Get_library_version");
    if (other == NULL)
        return its(version, length);
    *length = snprintf(version, MPI_MAX_LIBRARY_VERSION_STRING, "%s", other);
    return MPI_SUCCESS;
}

/* A library's attribute callback that calls collectives in MPI_Finalize. */
static int at_end(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    int in = 1, out = 0, size;
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS && out == size)
        printf("at the end: %d\n", out);
    fflush(stdout);
    return MPI_SUCCESS;
}

static int life_attribute(void)
{
    int keyval;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_end, &keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, keyval, &called);
    MPI_Comm left;
    MPI_Comm_dup(MPI_COMM_WORLD, &left);
    MPI_Barrier(left);
    int finalized = 1, initialized = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    MPI_Finalize();
    if (!initialized || finalized)
        return 1;
    MPI_Finalized(&finalized);
    return finalized ? 0 : 2;
}

static int life_status(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return harness.rank == 0 ? 7 : 0;
}

static int life_abort(void)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (harness.rank == 0)
        MPI_Abort(MPI_COMM_WORLD, 9);
    MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}

static int life_death(void)
{
    int in = 1, out;
    MPI_Barrier(MPI_COMM_WORLD);
    if (harness.rank == harness.size - 1)
        raise(SIGKILL);
    for (int i = 0; i < 3; i++)
        MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    return 0;
}

static void handler(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    called += *code != MPI_SUCCESS;
}

/* Check that PMPI returns an error of this class, too, and that the handler was called. */
static void check_error(int code, int expected, int calls_before, const char *what)
{
    int class = -1, wanted = -2;
    PMPI_Error_class(code, &class);
    PMPI_Error_class(expected, &wanted);
    CHECK(code != MPI_SUCCESS && class == wanted, "%s: class %d, not %d", what, class, wanted);
    CHECK(called == calls_before + 2, "%s: the handler is called %d times", what,
          called - calls_before);
}
#define LIFE_WRONG(name, ...)                                                                      \
    do {                                                                                           \
        int before = called, code = MPI_##name(__VA_ARGS__);                                       \
        check_error(code, PMPI_##name(__VA_ARGS__), before, #name);                                \
    } while (0)

/* Check that twill refuses a call in which the MPI would crash or hang. */
static void unseen(int code, int calls_before, const char *what)
{
    int class = -1;
    PMPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_ARG, "%s: class %d, not MPI_ERR_ARG", what, class);
    CHECK(called == calls_before + 1, "%s: the handler is called %d times", what,
          called - calls_before);
}
#define UNSEEN(name, ...)                                                                          \
    do {                                                                                           \
        int before = called;                                                                       \
        unseen(MPI_##name(__VA_ARGS__), before, #name);                                            \
    } while (0)
#if defined(OPEN_MPI)
#define NOWHERE       UNSEEN
#define LIFE_NEGATIVE LIFE_WRONG
#else
#define NOWHERE       LIFE_WRONG
#define LIFE_NEGATIVE UNSEEN
#endif

/* Buffers of reductions: missing, in place where that is illegal, one for both. */
static void wrong_buffers(MPI_Comm comm)
{
    int in[64] = {1}, out[64] = {0}, counts[64];
    void *same = in;
    for (int i = 0; i < 64; i++)
        counts[i] = 1;
    LIFE_WRONG(Allreduce, in, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm);
    LIFE_WRONG(Allreduce, MPI_IN_PLACE, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm);
    LIFE_WRONG(Reduce_scatter, in, MPI_IN_PLACE, counts, MPI_INT, MPI_SUM, comm);
    LIFE_WRONG(Reduce_scatter_block, in, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm);
    if (harness.rank == 0) { /* alone: no other rank makes this call */
        LIFE_WRONG(Reduce, in, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, 0, comm);
        LIFE_WRONG(Reduce, in, same, 1, MPI_INT, MPI_SUM, 0, comm);
    }
    NOWHERE(Allreduce, NULL, out, 1, MPI_INT, MPI_SUM, comm);
    NOWHERE(Allreduce, in, NULL, 1, MPI_INT, MPI_SUM, comm);
    NOWHERE(Allreduce, MPI_IN_PLACE, NULL, 1, MPI_INT, MPI_SUM, comm);
    NOWHERE(Reduce, NULL, out, 1, MPI_INT, MPI_SUM, 0, comm);
    NOWHERE(Reduce_scatter, NULL, out, counts, MPI_INT, MPI_SUM, comm);
    NOWHERE(Reduce_scatter, in, NULL, counts, MPI_INT, MPI_SUM, comm);
    NOWHERE(Reduce_scatter_block, NULL, out, 1, MPI_INT, MPI_SUM, comm);
    NOWHERE(Reduce_scatter_block, in, NULL, 1, MPI_INT, MPI_SUM, comm);
    NOWHERE(Bcast, NULL, 1, MPI_INT, 0, comm);
    NOWHERE(Allgather, in, 1, MPI_INT, NULL, 1, MPI_INT, comm);
    OK(MPI_Allreduce(NULL, NULL, 0, MPI_INT, MPI_SUM, comm)); /* no elements */
#if defined(OPEN_MPI)
    OK(MPI_Allreduce(in, same, 1, MPI_INT, MPI_SUM, comm)); /* it accepts that */
    CHECK(in[0] == harness.size, "the sum is %d", in[0]);
    for (int i = 0; i < 64; i++)
        in[i] = i;
    OK(MPI_Reduce_scatter_block(in, same, 1, MPI_INT, MPI_SUM, comm));
    CHECK(in[0] == harness.rank * harness.size, "a part of the sum is %d", in[0]);
#else
    LIFE_WRONG(Allreduce, in, same, 1, MPI_INT, MPI_SUM, comm);
    LIFE_WRONG(Reduce_scatter, in, same, counts, MPI_INT, MPI_SUM, comm);
    LIFE_WRONG(Reduce_scatter_block, in, same, 1, MPI_INT, MPI_SUM, comm);
#endif
}

/* Windows with a NULL handle to store to. */
static void wrong_windows(MPI_Comm comm)
{
    MPI_Win *nowhere = NULL;
    char bytes[8], *at;
    LIFE_WRONG(Win_create, bytes, 8, 1, MPI_INFO_NULL, comm, nowhere);
    LIFE_WRONG(Win_allocate, 8, 1, MPI_INFO_NULL, comm, &at, nowhere);
    LIFE_WRONG(Win_allocate_shared, 8, 1, MPI_INFO_NULL, comm, &at, nowhere);
    LIFE_WRONG(Win_create_dynamic, MPI_INFO_NULL, comm, nowhere);
}

static int life_errors(void)
{
    MPI_Errhandler mine;
    MPI_Comm comm;
    int in = 1, out = 0, counts[64] = {-1};
    MPI_Comm_create_errhandler(handler, &mine);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, mine);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, mine); /* Open MPI reports some errors there */
    LIFE_NEGATIVE(Allreduce, &in, &out, -1, MPI_INT, MPI_SUM, comm);
    LIFE_WRONG(Allreduce, &in, &out, 1, MPI_DATATYPE_NULL, MPI_SUM, comm);
    LIFE_WRONG(Allreduce, &in, &out, 1, MPI_INT, MPI_OP_NULL, comm);
    LIFE_WRONG(Allreduce, &in, &out, 1, MPI_FLOAT, MPI_BAND, comm);
    LIFE_WRONG(Reduce, &in, &out, 1, MPI_INT, MPI_SUM, 77, comm);
    LIFE_WRONG(Bcast, &in, 1, MPI_INT, -3, comm);
    LIFE_WRONG(Bcast, &in, -1, MPI_INT, 0, comm);
    LIFE_WRONG(Gather, &in, -1, MPI_INT, &out, 1, MPI_INT, 0, comm);
    LIFE_WRONG(Allgather, &in, 1, MPI_DATATYPE_NULL, &out, 1, MPI_INT, comm);
    LIFE_WRONG(Reduce_scatter, &in, &out, counts, MPI_INT, MPI_SUM, comm);
    MPI_Request request;
    LIFE_WRONG(Iallreduce, &in, &out, -1, MPI_INT, MPI_SUM, comm, &request);
    wrong_buffers(comm);
    wrong_windows(comm);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    CHECK(MPI_Bcast(&in, -1, MPI_INT, 0, comm) != MPI_SUCCESS, "an error is returned");
    CHECK(MPI_Barrier(MPI_COMM_NULL) != MPI_SUCCESS, "no communicator");
    OK(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm)); /* nothing is broken */
    CHECK(out == harness.size, "the sum is %d", out);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Errhandler_free(&mine));
    return harness_end();
}

/* Several requests fail together: the handler is called once, and the program's array is
 * restored. */
static MPI_Request tracked[3], persistent;

static void watcher(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    called += *code != MPI_SUCCESS;
    CHECK(tracked[0] == MPI_REQUEST_NULL && tracked[1] == MPI_REQUEST_NULL &&
              tracked[2] == persistent,
          "the handler sees requests as they are not");
}

static int life_failures(void)
{
    MPI_Errhandler mine;
    MPI_Comm comms[2];
    MPI_Status statuses[3];
    int in[2] = {1, 1}, out[2][2], count = harness.rank == 0 ? 1 : 2;
    OK(MPI_Comm_create_errhandler(watcher, &mine));
    OK(PERSISTENT(Barrier)(MPI_COMM_WORLD, MPI_INFO_NULL, &persistent));
    tracked[2] = persistent;
    OK(MPI_Start(&tracked[2]));
    for (int i = 0; i < 2; i++) {
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
        OK(MPI_Comm_set_errhandler(comms[i], mine));
        OK(MPI_Iallreduce(in, out[i], count, MPI_INT, MPI_SUM, comms[i], &tracked[i]));
    }
    CHECK(MPI_Waitall(3, tracked, statuses) == MPI_ERR_IN_STATUS, "no failure was reported");
    CHECK(called == 1, "the handler is called %d times", called);
    for (int i = 0; i < 3; i++)
        CHECK((statuses[i].MPI_ERROR == MPI_SUCCESS) == (i == 2), "status %d: %d", i,
              statuses[i].MPI_ERROR);
    OK(MPI_Request_free(&tracked[2]));
    OK(MPI_Errhandler_free(&mine));
    for (int i = 0; i < 2; i++)
        OK(MPI_Comm_free(&comms[i]));
    return harness_end();
}

/* The last rank makes none of many calls: the others must wait for all of them no longer than for
 * one. TWILL_TIMEOUT is 5 s; one timeout after the other would exceed the alarm. */
static int life_deadline(void)
{
    enum { MANY = 60, ALARM_S = 240 };
    MPI_Comm comms[MANY];
    MPI_Request requests[MANY + 1];
    MPI_Status statuses[MANY + 1];
    int in = 1, out[MANY], got = 0, absent = harness.size - 1;
    for (int i = 0; i < MANY; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    if (harness.rank != absent) {
        for (int i = 0; i < MANY; i++) {
            OK(MPI_Comm_set_errhandler(comms[i], MPI_ERRORS_RETURN));
            OK(MPI_Iallreduce(&in, &out[i], 1, MPI_INT, MPI_SUM, comms[i], &requests[i]));
        }
        OK(MPI_Irecv(&got, 1, MPI_INT, absent, 0, MPI_COMM_WORLD, &requests[MANY]));
        alarm(ALARM_S);
        /* On every other rank with a message of the MPI's, which has arrived by then. */
        CHECK(MPI_Waitall(MANY + harness.rank % 2, requests, statuses) == MPI_ERR_IN_STATUS,
              "no deadline expired");
        for (int i = 0; i < MANY; i++)
            CHECK(requests[i] == MPI_REQUEST_NULL && statuses[i].MPI_ERROR != MPI_SUCCESS,
                  "status %d is %d", i, statuses[i].MPI_ERROR);
        CHECK(harness.rank % 2 == 0 || statuses[MANY].MPI_ERROR == MPI_SUCCESS,
              "the message's status is %d", statuses[MANY].MPI_ERROR);
        if (harness.rank % 2 == 0)
            OK(MPI_Wait(&requests[MANY], MPI_STATUS_IGNORE));
    } else {
        for (int to = 0; to < absent; to++)
            OK(MPI_Send(&in, 1, MPI_INT, to, 0, MPI_COMM_WORLD));
    }
    PMPI_Barrier(MPI_COMM_WORLD);
    return harness_end();
}

/* Errors of a freed communicator go to MPI_COMM_WORLD. */
static int class_at_world = -1;

static void of_world(MPI_Comm *comm, int *code, ...)
{
    CHECK(*comm == MPI_COMM_WORLD, "the handler of another communicator");
    PMPI_Error_class(*code, &class_at_world);
}

static int life_freed(void)
{
    MPI_Errhandler mine, other;
    MPI_Comm comm, again;
    MPI_Request request;
    OK(MPI_Comm_create_errhandler(handler, &mine));
    OK(MPI_Comm_create_errhandler(of_world, &other));
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, other));
    for (int turn = 0; turn < 2; turn++) {
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        OK(MPI_Comm_set_errhandler(comm, mine));
        OK(PERSISTENT(Barrier)(comm, MPI_INFO_NULL, &request));
        OK(MPI_Comm_free(&comm));
        if (turn == 1) /* which may reuse the previous handle */
            OK(MPI_Comm_dup(MPI_COMM_WORLD, &again));
        OK(MPI_Start(&request));
        class_at_world = -1;
        CHECK(MPI_Start(&request) != MPI_SUCCESS, "started twice");
        CHECK(class_at_world == MPI_ERR_REQUEST && called == 0, "class %d, %d calls",
              class_at_world, called);
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        OK(MPI_Request_free(&request));
    }
    OK(MPI_Comm_free(&again));
    OK(MPI_Errhandler_free(&mine));
    OK(MPI_Errhandler_free(&other));
    return harness_end();
}

static int life_memory(void)
{
    enum { COUNT = 300000 };
    MPI_Info info;
    OK(MPI_Info_create(&info));
    for (int turn = 0; turn < 4; turn++) {
        int *a = NULL, *b = NULL, *zero = NULL;
        OK(MPI_Alloc_mem(COUNT * sizeof *a, turn % 2 ? info : MPI_INFO_NULL, &a));
        OK(MPI_Alloc_mem(COUNT * sizeof *b, MPI_INFO_NULL, &b));
        OK(MPI_Alloc_mem(0, MPI_INFO_NULL, &zero));
        for (int i = 0; i < COUNT; i++)
            a[i] = i + harness.rank;
        OK(MPI_Allreduce(a, b, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        int bad = 0;
        for (int i = 0; i < COUNT; i++)
            bad += b[i] != harness.size * i + harness.size * (harness.size - 1) / 2;
        CHECK(bad == 0, "%d sums in memory of MPI's are wrong", bad);
        OK(MPI_Allreduce(MPI_IN_PLACE, a + 1, COUNT - 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD));
        CHECK(a[COUNT - 1] == COUNT - 1 + harness.size - 1, "the maximum is %d", a[COUNT - 1]);
        OK(MPI_Free_mem(turn % 2 ? a : b));
        OK(MPI_Free_mem(turn % 2 ? b : a));
        OK(MPI_Free_mem(zero));
    }
    OK(MPI_Info_free(&info));
    return harness_end();
}

/* Known numbers of calls of each kind, for the report. */
static int life_report(void)
{
    int in = 1, out, some[64] = {0};
    MPI_Request request;
    for (int i = 0; i < 10; i++)
        OK(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < 7; i++)
        OK(MPI_Bcast(some, 16, MPI_INT, 0, MPI_COMM_WORLD));
    for (int i = 0; i < 5; i++)
        OK(MPI_Scan(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int i = 0; i < 4; i++)
        OK(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_SELF));
    for (int i = 0; i < 3; i++) {
        OK(MPI_Ibarrier(MPI_COMM_WORLD, &request));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    return harness_end();
}

int PMPIX_Comm_revoke(MPI_Comm comm);

/* In place of the MPI's: Debian's MPIs have none, or one that ends the process. It revokes nothing,
 * so that what twill passes on after it succeeds. */
__attribute__((visibility("default"))) int PMPIX_Comm_revoke(MPI_Comm comm)
{
    return comm == MPI_COMM_NULL ? MPI_ERR_COMM : MPI_SUCCESS;
}

#if defined(MPIX_ERR_REVOKED)
#define CODE_REVOKED MPIX_ERR_REVOKED
#else
#define CODE_REVOKED 77 /* Open MPI 5 */
#endif

/* Gather a number of each rank by the call that each time has the same arguments. */
static void gather_numbers(MPI_Comm comm)
{
    static int counts[MOST_RANKS], places[MOST_RANKS], in, all[2 * MOST_RANKS];
    for (int r = 0; r < harness.size; r++)
        counts[r] = 1, places[r] = 2 * r, all[2 * r] = -1;
    in = 5 + harness.rank;
    OK(MPI_Allgatherv(&in, 1, MPI_INT, all, counts, places, MPI_INT, comm));
    for (int r = 0; r < harness.size; r++)
        CHECK(all[2 * r] == 5 + r, "rank %d's number is %d", r, all[2 * r]);
}

/* Rank 0 revokes a communicator while the others wait in twill: for a request or a persistent one,
 * which end with the error, or in a call, which is passed on. So is what follows. */
static void revoke_within(bool persists, int (*revoke)(MPI_Comm))
{
    MPI_Comm comm;
    MPI_Request request, started = MPI_REQUEST_NULL;
    int in = 1, out = 0;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    for (int i = 0; i < 3; i++)
        gather_numbers(comm);
    OK(PERSISTENT(Allreduce)(&in, &out, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request));
    if (harness.rank > 0) {
        if (persists)
            OK(MPI_Start(&request));
        else
            OK(MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm, &started));
        OK(MPI_Send(&in, 1, MPI_INT, 0, 3, comm));
        int code = MPI_Wait(persists ? &request : &started, MPI_STATUS_IGNORE);
        CHECK(code == CODE_REVOKED, "the request's code is %d", code);
    } else {
        for (int from = 1; from < harness.size; from++)
            OK(MPI_Recv(&in, 1, MPI_INT, from, 3, comm, MPI_STATUS_IGNORE));
        OK(revoke(comm));
    }
    gather_numbers(comm);
    OK(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm));
    CHECK(out == harness.size, "the MPI's sum is %d", out);
    OK(MPI_Iallreduce(&out, &in, 1, MPI_INT, MPI_SUM, comm, &started));
    OK(MPI_Wait(&started, MPI_STATUS_IGNORE));
    CHECK(in == harness.size * harness.size, "the sum of the MPI's request is %d", in);
    OK(MPI_Request_free(&request));
    OK(MPI_Comm_free(&comm));
}

static int life_revoke(void)
{
    int (*revoke)(MPI_Comm), in = 1, out = 0;
    *(void **)&revoke = dlsym(RTLD_DEFAULT, "MPIX_Comm_revoke");
    CHECK(revoke != NULL, "there is no MPIX_Comm_revoke");
    for (int turn = 0; turn < 4 && revoke != NULL; turn++)
        revoke_within(turn % 2 == 1, revoke);
    OK(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(out == harness.size, "of what is not revoked the sum is %d", out);
    return harness_end();
}

/* Agree on 11 of rank `early`, which calls before a barrier, if any, and 13 of the others. */
static void agree(MPI_Comm comm, int early)
{
    MPI_Request request;
    int first = harness.rank == early, in = first ? 11 : 13, out = -1, done = 0;
    if (!first && early >= 0)
        OK(MPI_Barrier(comm));
    OK(MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_BAND, comm, &request));
    if (first) {
        OK(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
        CHECK(!done, "others have not agreed");
        OK(MPI_Barrier(comm));
    }
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(out == (early >= 0 ? 9 : 13), "ranks agree on %d", out);
}

/* Agreements beside other collectives, and after one that failed in twill, for the report. */
static int life_agreement(void)
{
    MPI_Comm comm;
    MPI_Request requests[2];
    int in[2] = {6, 5}, sum, both[2], code;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    for (int early = 0; early < harness.size; early++)
        agree(comm, early);
    OK(MPI_Iallreduce(in, &sum, 1, MPI_INT, MPI_SUM, comm, &requests[0]));
    OK(MPI_Iallreduce(in, both, 2, MPI_INT, MPI_BAND, comm, &requests[1]));
    OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    CHECK(sum == 6 * harness.size && both[1] == 5, "%d and %d", sum, both[1]);
    code = MPI_Allreduce(in, both, harness.rank == 0 ? 1 : 2, MPI_INT, MPI_SUM, comm);
    CHECK(code != MPI_SUCCESS, "other counts on other ranks");
    agree(comm, -1);
    OK(MPI_Comm_free(&comm));
    return harness_end();
}

enum { FEW = 256, DUPLICATES = 130 };

/* Open files, at most FEW, until there is no descriptor left. Returns how many. */
static int open_files(int fd[FEW])
{
    int count = 0;
    while (count < FEW && (fd[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
        count++;
    return count;
}

static void duplicate(MPI_Comm *comm)
{
    int in = harness.rank + 1, sum = 0;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, comm));
    OK(MPI_Allreduce(&in, &sum, 1, MPI_INT, MPI_SUM, *comm));
    CHECK(sum == harness.size * (harness.size + 1) / 2, "the sum is %d", sum);
}

/* More live communicators than there are descriptors: the program keeps half of these; and where it
 * has used its half up on one rank, too, communicators still work. */
static int life_descriptors(void)
{
    MPI_Comm comm[DUPLICATES + 1];
    int fd[FEW], opened;
    struct rlimit few;
    OK(getrlimit(RLIMIT_NOFILE, &few));
    few.rlim_cur = FEW;
    OK(setrlimit(RLIMIT_NOFILE, &few));
    for (int i = 0; i < DUPLICATES; i++)
        duplicate(&comm[i]);
    opened = open_files(fd);
    CHECK(opened >= FEW / 2 - 8, "%d descriptors are left of %d", opened, FEW);
    while (opened > 0)
        close(fd[--opened]);
    opened = harness.rank == 0 ? open_files(fd) : 0;
    if (opened > 2) { /* the MPI may need some itself */
        close(fd[--opened]);
        close(fd[--opened]);
    }
    duplicate(&comm[DUPLICATES]);
    while (opened > 0)
        close(fd[--opened]);
    for (int i = 0; i <= DUPLICATES; i++)
        OK(MPI_Comm_free(&comm[i]));
    return harness_end();
}

/* A program that initialises a session alone, without a communicator of twill's. */
static int life_session(void)
{
#if defined(MPI_SESSION_NULL)
    MPI_Session session;
    if (MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) != MPI_SUCCESS ||
        MPI_Session_finalize(&session) != MPI_SUCCESS)
        return 3;
#endif
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } lives[] = {{"attribute", life_attribute},
                 {"status", life_status},
                 {"abort", life_abort},
                 {"death", life_death},
                 {"errors", life_errors},
                 {"memory", life_memory},
                 {"report", life_report},
                 {"failures", life_failures},
                 {"freed", life_freed},
                 {"deadline", life_deadline},
                 {"revoke", life_revoke},
                 {"agreement", life_agreement},
                 {"descriptors", life_descriptors}};
    if (argc > 1 && strcmp(argv[1], "session") == 0)
        return life_session();
    harness_begin(&argc, &argv, "life");
    for (size_t i = 0; i < sizeof lives / sizeof *lives; i++)
        if (argc > 1 && strcmp(argv[1], lives[i].name) == 0)
            return lives[i].run();
    return 2;
}
