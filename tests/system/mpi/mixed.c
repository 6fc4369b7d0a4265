/* SPDX-License-Identifier: Apache-2.0 */
/* A program in two languages: rank 0 calls from C, all others from Fortran by the module mpi_f08,
 * and requests are passed between the languages. See mixed.f90. */
#include <mpi.h>
#if defined(OPEN_MPI)
#include <mpi-ext.h>
#define MIXED_PREPARE MPIX_Allreduce_init
#else
#define MIXED_PREPARE MPI_Allreduce_init
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void fortran_init(void);
void fortran_barrier(void);
MPI_Fint fortran_dup(void);
MPI_Fint fortran_graph(MPI_Fint rank, MPI_Fint ranks);
MPI_Fint fortran_start(const int *mine, int *total, MPI_Fint comm);
MPI_Fint fortran_prepare(const int *mine, int *total, MPI_Fint comm);
void fortran_again(MPI_Fint *request);
void fortran_wait(MPI_Fint *request);
void fortran_forget(MPI_Fint *request);

static int rank, ranks, cases, wrong;

static void check_value(int is, int expected, const char *what)
{
    cases++;
    if (is == expected)
        return;
    wrong++;
    printf("mixed: rank %d: %s: %d, not %d\n", rank, what, is, expected);
}

static MPI_Comm duplicate(void)
{
    MPI_Comm made;
    if (rank > 0)
        return MPI_Comm_f2c(fortran_dup());
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    return made;
}

static MPI_Comm graph(void)
{
    MPI_Comm made;
    int one = 1, next = (rank + 1) % ranks;
    if (rank > 0)
        return MPI_Comm_f2c(fortran_graph(rank, ranks));
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &one, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0,
                          &made);
    return made;
}

static MPI_Request begin_allreduce(int in_c, int *mine, int *total, MPI_Comm comm)
{
    MPI_Request request;
    *mine = rank + 1;
    *total = 0;
    if (!in_c)
        return MPI_Request_f2c(fortran_start(mine, total, MPI_Comm_c2f(comm)));
    MPI_Iallreduce(mine, total, 1, MPI_INT, MPI_SUM, comm, &request);
    return request;
}

static void end_allreduce(int in_c, MPI_Request *request)
{
    MPI_Fint number = MPI_Request_c2f(*request);
    if (in_c) {
        MPI_Wait(request, MPI_STATUS_IGNORE);
        return;
    }
    fortran_wait(&number);
    *request = MPI_Request_f2c(number);
}

/* Start in one language, wait in the other. */
static void test_requests(MPI_Comm comm, const char *what)
{
    const int sum = ranks * (ranks + 1) / 2;
    for (int i = 0; i < 4; i++) {
        int mine, total;
        MPI_Request request = begin_allreduce((i + rank) % 2, &mine, &total, comm);
        end_allreduce(i / 2, &request);
        check_value(total, sum, what);
        check_value(request == MPI_REQUEST_NULL, 1, what);
    }
}

static void test_persistent(MPI_Comm comm)
{
    int mine = 0, total = 0;
    MPI_Request request;
    if (rank == 0)
        MIXED_PREPARE(&mine, &total, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    else
        request = MPI_Request_f2c(fortran_prepare(&mine, &total, MPI_Comm_c2f(comm)));
    MPI_Fint number = MPI_Request_c2f(request);
    for (int i = 1; i <= 4; i++) {
        mine = i;
        if ((i + rank) % 2) {
            MPI_Start(&request);
            fortran_wait(&number);
        } else {
            fortran_again(&number);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        check_value(total, i * ranks, "persistent");
    }
    if (rank == 0)
        fortran_forget(&number);
    else
        MPI_Request_free(&request);
}

/* Return whether this is rank 0, from the launcher's variables, before MPI_Init. */
static int is_first(void)
{
    const char *number = getenv("OMPI_COMM_WORLD_RANK");
    if (number == NULL)
        number = getenv("PMI_RANK");
    return number != NULL && strcmp(number, "0") == 0;
}

int main(int argc, char **argv)
{
    if (is_first())
        MPI_Init(&argc, &argv);
    else
        fortran_init();
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (rank == 0)
        MPI_Barrier(MPI_COMM_WORLD);
    else
        fortran_barrier();
    MPI_Comm comms[] = {duplicate(), graph(), MPI_COMM_WORLD};
    test_requests(comms[0], "on a duplicate");
    test_requests(comms[1], "on a graph");
    test_requests(comms[2], "on MPI_COMM_WORLD");
    test_persistent(MPI_COMM_WORLD);
    MPI_Comm_free(&comms[0]);
    MPI_Comm_free(&comms[1]);
    int mine[] = {cases, wrong}, total[2];
    MPI_Reduce(mine, total, 2, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("mixed: %d ranks: %d cases, %d wrong\n", ranks, total[0], total[1]);
    MPI_Finalize();
    return wrong > 0;
}
