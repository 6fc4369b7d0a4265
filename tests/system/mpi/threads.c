/* SPDX-License-Identifier: Apache-2.0 */
/* MPI_THREAD_MULTIPLE: threads with their own communicators, which create, use and free more of
 * them at the same time; requests that another thread waits for; and user functions in nonblocking
 * calls, which twill runs at that level only. */
#include "harness.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

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

enum { REPEATS = 300, SAME = 5 /* calls with the same counts */, MOST_OF_RANK = 3 };

/* Repeat calls whose arguments are at the same addresses, with counts that sometimes change. */
static void *repeat_calls(void *argument)
{
    struct thread_work *work = argument;
    int counts[MOST_RANKS], places[MOST_RANKS], all[MOST_RANKS * MOST_OF_RANK], in[MOST_OF_RANK];
    for (int turn = 0; turn < REPEATS; turn++) {
        int sum = -1, elements = 0;
        for (int r = 0; r < harness.size; r++) {
            counts[r] = 1 + (turn / SAME + r) % MOST_OF_RANK;
            places[r] = elements;
            elements += counts[r];
        }
        for (int i = 0; i < MOST_OF_RANK; i++)
            in[i] = turn + harness.rank + work->number;
        MPI_Allgatherv(in, counts[harness.rank], MPI_INT, all, counts, places, MPI_INT, work->comm);
        MPI_Allreduce(in, &sum, 1, MPI_INT, MPI_SUM, work->comm);
        for (int r = 0; r < harness.size; r++) {
            sum -= turn + r + work->number;
            for (int i = 0; i < counts[r]; i++)
                work->wrong += all[places[r] + i] != turn + r + work->number;
        }
        work->wrong += sum != 0;
    }
    return NULL;
}

/* Each thread repeats calls on its own communicator. The main thread makes and frees others. */
static void test_repeated(void)
{
    static struct thread_work works[MPI_THREADS_THREADS];
    MPI_Comm other, after;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    for (int i = 0; i < MPI_THREADS_THREADS; i++) {
        works[i] = (struct thread_work){.number = i};
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &works[i].comm));
        pthread_create(&works[i].thread, NULL, repeat_calls, &works[i]);
    }
    for (int i = 0; i < MPI_THREADS_TURNS; i++) {
        int in = i, out = -1;
        OK(MPI_Comm_dup(other, &after));
        OK(MPI_Comm_free(&other)); /* a later one may have the same handle */
        other = after;
        for (int call = 0; call < 3; call++) {
            OK(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, other));
            CHECK(out == i * harness.size, "sum %d is %d", i, out);
        }
    }
    for (int i = 0; i < MPI_THREADS_THREADS; i++) {
        pthread_join(works[i].thread, NULL);
        CHECK(works[i].wrong == 0, "repeated calls: thread %d: %d wrong", i, works[i].wrong);
        OK(MPI_Comm_free(&works[i].comm));
    }
    OK(MPI_Comm_free(&other));
}

/* Repeat a blocking call while other threads wait for requests of its communicator. */
static void test_beside_waits(void)
{
    static struct thread_work waits[MPI_THREADS_THREADS];
    static int in[MPI_THREADS_TURNS], out[MPI_THREADS_TURNS];
    int one = 1, sum = 0;
    for (int call = 0; call < 3; call++)
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    for (int t = 0; t < MPI_THREADS_THREADS; t++) {
        waits[t] = (struct thread_work){.number = t};
        for (int i = 0; i < MPI_THREADS_TURNS; i++)
            waits[t].requests[i] = MPI_REQUEST_NULL;
    }
    for (int i = 0; i < MPI_THREADS_TURNS; i++) {
        in[i] = i;
        OK(MPI_Iallreduce(&in[i], &out[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                          &waits[i % MPI_THREADS_THREADS].requests[i]));
    }
    for (int t = 0; t < MPI_THREADS_THREADS; t++)
        pthread_create(&waits[t].thread, NULL, wait_for_them, &waits[t]);
    for (int call = 0; call < REPEATS; call++) {
        sum = -1;
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
        CHECK(sum == harness.size, "beside waits the sum is %d", sum);
    }
    for (int t = 0; t < MPI_THREADS_THREADS; t++) {
        pthread_join(waits[t].thread, NULL);
        CHECK(waits[t].wrong == 0, "waits beside calls: thread %d: %d wrong", t, waits[t].wrong);
    }
    for (int i = 0; i < MPI_THREADS_TURNS; i++)
        CHECK(out[i] == i * harness.size, "beside calls sum %d is %d", i, out[i]);
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

enum { FORKS = 12, CHILD_HANGS_AFTER = 20 /* seconds; its calls take microseconds */ };

static atomic_bool no_more_forks;

/* Be in a call, and hold a lock, nearly always. */
static void *reduce_on(void *argument)
{
    struct thread_work *work = argument;
    int go_on = 1;
    while (go_on) {
        int mine = !atomic_load(&no_more_forks);
        work->wrong += MPI_Allreduce(&mine, &go_on, 1, MPI_INT, MPI_MAX, work->comm) != MPI_SUCCESS;
    }
    return NULL;
}

#define REFUSED(call)                                                                              \
    do {                                                                                           \
        if ((call) == MPI_SUCCESS)                                                                 \
            _exit(__LINE__ % 100 + 1);                                                             \
    } while (0)

/* The communicators have MPI_ERRORS_ARE_FATAL, which must not end the parent. */
static void be_child(MPI_Comm busy, MPI_Request *pending, MPI_Request persistent, void *memory)
{
    int in = 1, out = 0, flag = 0, index;
    MPI_Request others[2] = {MPI_REQUEST_NULL, *pending}, copy = *pending;
    MPI_Comm made;
    signal(SIGALRM, SIG_DFL);
    alarm(CHILD_HANGS_AFTER);
    REFUSED(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    REFUSED(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, busy));
    REFUSED(MPI_Scan(&in, &out, 1, MPI_INT, MPI_SUM, busy)); /* which is passed on */
    REFUSED(MPI_Ibarrier(busy, &others[0]));
    REFUSED(MPI_Start(&persistent));
    REFUSED(MPI_Cancel(&copy));
    REFUSED(MPI_Test(&copy, &flag, MPI_STATUS_IGNORE));
    copy = *pending;
    REFUSED(MPI_Wait(&copy, MPI_STATUS_IGNORE));
    REFUSED(MPI_Waitall(2, others, MPI_STATUSES_IGNORE));
    others[1] = *pending;
    REFUSED(MPI_Waitany(2, others, &index, MPI_STATUS_IGNORE));
    REFUSED(MPI_Request_free(&persistent));
    MPI_Free_mem(memory);
    REFUSED(MPI_Comm_dup(busy, &made));
    REFUSED(MPI_Comm_free(&busy));
    REFUSED(MPI_Comm_disconnect(&busy));
    _exit(0);
}

/* A process that forks at any moment, beside a thread that is in calls: the child neither hangs nor
 * ends or disturbs its parent. */
static void test_forks(void)
{
    struct thread_work work = {.number = 0};
    MPI_Request pending, persistent;
    int *memory = NULL, in = harness.rank, out = -1;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &work.comm));
    OK(MPI_Alloc_mem(sizeof(*memory), MPI_INFO_NULL, &memory));
    *memory = 5;
    OK(PERSISTENT(Barrier)(MPI_COMM_WORLD, MPI_INFO_NULL, &persistent));
    if (harness.rank == 0) /* the others come after the forks */
        OK(MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &pending));
#ifdef __SANITIZE_THREAD__
    unsetenv("LD_PRELOAD"); /* a shell that is not instrumented dies of libraries that are */
#endif
    pthread_create(&work.thread, NULL, reduce_on, &work);
    int status = 0;
    for (int i = 0; i < FORKS && harness.rank == 0 && status == 0; i++) {
        pid_t child = fork();
        if (child == 0)
            be_child(work.comm, &pending, persistent, memory);
        CHECK(waitpid(child, &status, 0) == child && status == 0, "child %d: status %#x", i,
              (unsigned)status);
        CHECK(WEXITSTATUS(system("exit 3")) == 3, "no shell"); /* fork and exec */
    }
    atomic_store(&no_more_forks, true);
    pthread_join(work.thread, NULL);
    if (harness.rank != 0)
        OK(MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &pending));
    OK(MPI_Wait(&pending, MPI_STATUS_IGNORE));
    CHECK(out == harness.size * (harness.size - 1) / 2 && *memory == 5 && work.wrong == 0,
          "after forks the sum is %d, memory has %d, %d calls failed", out, *memory, work.wrong);
    OK(MPI_Request_free(&persistent));
    OK(MPI_Free_mem(memory));
    OK(MPI_Comm_free(&work.comm));
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
        test_repeated();
        test_beside_waits();
        test_freed_in_use();
    }
    if (harness.twill) /* MPI allows a child nothing, twill has promised it this */
        test_forks();
    return harness_end();
}
