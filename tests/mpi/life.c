/* SPDX-License-Identifier: Apache-2.0 */
/* How programs begin, end and fail: `life CASE`. What must come out is in check_mpi.sh. */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int called; /* error handlers and callbacks */

/* Collectives in finalize, by an attribute of a library's. */
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

/* Is the same error returned as by PMPI, and the handler called? */
static void wrong(int code, int expected, int calls_before, const char *what)
{
    int class = -1, wanted = -2;
    PMPI_Error_class(code, &class);
    PMPI_Error_class(expected, &wanted);
    CHECK(code != MPI_SUCCESS && class == wanted, "%s: class %d, not %d", what, class, wanted);
    CHECK(called == calls_before + 2, "%s: the handler is called %d times", what,
          called - calls_before);
}
#define WRONG(name, ...)                                                                           \
    do {                                                                                           \
        int before = called, code = MPI_##name(__VA_ARGS__);                                       \
        wrong(code, PMPI_##name(__VA_ARGS__), before, #name);                                      \
    } while (0)

static int life_errors(void)
{
    MPI_Errhandler mine;
    MPI_Comm comm;
    int in = 1, out = 0, counts[64] = {-1};
    MPI_Comm_create_errhandler(handler, &mine);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, mine);
    WRONG(Allreduce, &in, &out, -1, MPI_INT, MPI_SUM, comm);
    WRONG(Allreduce, &in, &out, 1, MPI_DATATYPE_NULL, MPI_SUM, comm);
    WRONG(Allreduce, &in, &out, 1, MPI_INT, MPI_OP_NULL, comm);
    WRONG(Allreduce, &in, &out, 1, MPI_FLOAT, MPI_BAND, comm);
    WRONG(Reduce, &in, &out, 1, MPI_INT, MPI_SUM, 77, comm);
    WRONG(Bcast, &in, 1, MPI_INT, -3, comm);
    WRONG(Bcast, &in, -1, MPI_INT, 0, comm);
    WRONG(Gather, &in, -1, MPI_INT, &out, 1, MPI_INT, 0, comm);
    WRONG(Allgather, &in, 1, MPI_DATATYPE_NULL, &out, 1, MPI_INT, comm);
    WRONG(Reduce_scatter, &in, &out, counts, MPI_INT, MPI_SUM, comm);
    MPI_Request request;
    WRONG(Iallreduce, &in, &out, -1, MPI_INT, MPI_SUM, comm, &request);
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

/* So many calls of each kind, for the report. */
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

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(void);
    } lives[] = {{"attribute", life_attribute}, {"status", life_status}, {"abort", life_abort},
                 {"death", life_death},         {"errors", life_errors}, {"memory", life_memory},
                 {"report", life_report}};
    harness_begin(&argc, &argv, "life");
    for (size_t i = 0; i < sizeof lives / sizeof *lives; i++)
        if (argc > 1 && strcmp(argv[1], lives[i].name) == 0)
            return lives[i].run();
    return 2;
}
