/* SPDX-License-Identifier: Apache-2.0 */
/* MPI_THREAD_MULTIPLE: threads with their own communicators, which create, use and free more of
 * them at the same time; requests that another thread waits for; and user functions in nonblocking
 * calls, which twill runs at that level only. */
#include "harness.h"

#include <pthread.h>
#include <stdio.h>

enum { MPI_THREADS_THREADS = 3, MPI_THREADS_TURNS = 15 };

struct thread_work {
    pthread_t thread;
    MPI_Comm comm;
    int number, wrong;
    MPI_Request requests[MPI_THREADS_TURNS];
};

static void use_thread(struct thread_work *work, MPI_Comm comm, int turn)
{
    int size, rank, in = turn + work->number, sum = -1, value = -1;
    PMPI_Comm_size(comm, &size);
    PMPI_Comm_rank(comm, &rank);
    MPI_Allreduce(&in, &sum, 1, MPI_INT, MPI_SUM, comm);
    work->wrong += sum != size * in;
    value = rank == 0 ? in : -1;
    MPI_Bcast(&value, 1, MPI_INT, 0, comm);
    work->wrong += value != in;
    MPI_Request request;
    sum = -1;
    MPI_Iallreduce(&in, &sum, 1, MPI_INT, MPI_SUM, comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    work->wrong += sum != size * in;
    MPI_Barrier(comm);
}

/* A persistent call, which has a communicator of twill's own, started twice, and two calls that are
 * waited for together. */
static void use_requests(struct thread_work *work, MPI_Comm comm, int turn)
{
    int size, rank, in = turn + work->number, sum = -1, value = -1, done = 0;
    MPI_Request requests[2];
    PMPI_Comm_size(comm, &size);
    PMPI_Comm_rank(comm, &rank);
    PERSISTENT(Allreduce)(&in, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[0]);
    for (int start = 0; start < 2; start++) {
        sum = -1;
        MPI_Start(&requests[0]);
        for (done = 0; !done;)
            MPI_Test(&requests[0], &done, MPI_STATUS_IGNORE);
        work->wrong += sum != size * in;
    }
    MPI_Request_free(&requests[0]);
    value = rank == 0 ? in : -1;
    MPI_Ibcast(&value, 1, MPI_INT, 0, comm, &requests[0]);
    MPI_Ibarrier(comm, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    work->wrong += value != in;
}

static void *make_use_free(void *argument)
{
    struct thread_work *work = argument;
    for (int turn = 0; turn < MPI_THREADS_TURNS; turn++) {
        MPI_Comm first, second;
        use_thread(work, work->comm, turn);
        MPI_Comm_dup(work->comm, &first);
        MPI_Comm_split(work->comm, 0, -harness.rank, &second);
        use_thread(work, second, turn);
        use_thread(work, first, turn);
        if (turn % MPI_THREADS_THREADS == 0)
            use_requests(work, turn == 0 ? work->comm : first, turn);
        MPI_Comm *before = harness.rank % 2 ? &first : &second,
                 *after = harness.rank % 2 ? &second : &first;
        MPI_Comm_free(before);
        MPI_Comm_free(after);
    }
    return NULL;
}

static void *wait_for_them(void *argument)
{
    struct thread_work *work = argument;
    for (int i = work->number; i < MPI_THREADS_TURNS; i += MPI_THREADS_THREADS)
        work->wrong += MPI_Wait(&work->requests[i], MPI_STATUS_IGNORE) != MPI_SUCCESS;
    return NULL;
}

static void threads_run(struct thread_work *works, void *(*body)(void *), const char *what)
{
    for (int i = 0; i < MPI_THREADS_THREADS; i++)
        pthread_create(&works[i].thread, NULL, body, &works[i]);
    for (int i = 0; i < MPI_THREADS_THREADS; i++) {
        pthread_join(works[i].thread, NULL);
        CHECK(works[i].wrong == 0, "%s: thread %d: %d wrong", what, i, works[i].wrong);
    }
}

static void test_own_comms(void)
{
    static struct thread_work works[MPI_THREADS_THREADS];
    for (int i = 0; i < MPI_THREADS_THREADS; i++) {
        works[i].number = i;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &works[i].comm));
    }
    threads_run(works, make_use_free, "communicators of their own");
    for (int i = 0; i < MPI_THREADS_THREADS; i++)
        OK(MPI_Comm_free(&works[i].comm));
}

/* Start calls in order on one communicator; each thread waits for some. */
static void test_shared_comm(void)
{
    static struct thread_work shared[MPI_THREADS_THREADS];
    static int in[MPI_THREADS_TURNS], out[MPI_THREADS_TURNS];
    MPI_Request requests[MPI_THREADS_TURNS];
    for (int i = 0; i < MPI_THREADS_TURNS; i++) {
        in[i] = i;
        out[i] = -1;
        OK(MPI_Iallreduce(&in[i], &out[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[i]));
    }
    for (int t = 0; t < MPI_THREADS_THREADS; t++) {
        shared[t].number = t;
        for (int i = 0; i < MPI_THREADS_TURNS; i++)
            shared[t].requests[i] = i % MPI_THREADS_THREADS == t ? requests[i] : MPI_REQUEST_NULL;
    }
    threads_run(shared, wait_for_them, "requests of others");
    for (int i = 0; i < MPI_THREADS_TURNS; i++)
        CHECK(out[i] == i * harness.size, "sum %d is %d", i, out[i]);
}

/* Add, identifying the type by its size. */
static void add_three(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const double *left = in;
    double *right = inout;
    int size = 0;
    MPI_Type_size(*type, &size);
    for (int i = 0; i < *count * 3; i++)
        right[i] = size == 3 * (int)sizeof(double) ? right[i] + left[i] : -1;
}

/* A program may free operation and type while they are in use; other types reuse their handles. */
static void test_freed_in_use(void)
{
    enum { ELEMENTS = 100, OTHERS = 20 };
    double in[3 * ELEMENTS], out[3 * ELEMENTS];
    MPI_Datatype type, other[OTHERS];
    MPI_Op op;
    MPI_Request request;
    OK(MPI_Type_contiguous(3, MPI_DOUBLE, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Op_create(add_three, 1, &op));
    for (int i = 0; i < 3 * ELEMENTS; i++)
        in[i] = i + harness.rank;
    OK(MPI_Iallreduce(in, out, ELEMENTS, type, op, MPI_COMM_WORLD, &request));
    OK(MPI_Op_free(&op));
    OK(MPI_Type_free(&type));
    CHECK(op == MPI_OP_NULL && type == MPI_DATATYPE_NULL, "freed handles are left");
    for (int i = 0; i < OTHERS; i++)
        OK(MPI_Type_vector(2, 1, 5, MPI_CHAR, &other[i]));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (int i = 0; i < OTHERS; i++)
        OK(MPI_Type_free(&other[i]));
    int ranks = harness.size * (harness.size - 1) / 2;
    for (int i = 0; i < 3 * ELEMENTS; i++)
        CHECK(out[i] == i * harness.size + ranks, "sum %d is %g", i, out[i]);
}

int main(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    harness_begin(&argc, &argv, "threads");
    if (provided != MPI_THREAD_MULTIPLE) {
        printf("threads: this MPI has no MPI_THREAD_MULTIPLE\n");
        return MPI_Finalize();
    }
    for (int i = 0; i < (harness.thorough ? 20 : 1); i++) {
        test_own_comms();
        test_shared_comm();
        test_freed_in_use();
    }
    return harness_end();
}
