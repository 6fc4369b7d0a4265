/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of an MPI program under libtwill-mpi in which one rank fails: `faults KIND VICTIM
 * MICROSECONDS SEED`. KIND: kill, exit, abort, stop (for ever), pause (for a moment), reset (of
 * connections), memory, descriptors (no more of them). It makes collectives, blocking or not, with
 * results that are checked, until one fails or the time is over; then prints one line. After a
 * failure it ends without MPI_Finalize(), which may wait for the dead. check_campaign_mpi.sh reads
 * the lines. */
#include <mpi.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST = 5000, MOST_RANKS = 8, DESCRIPTORS = 256, AFTER_US = 300000 };

static struct {
    const char *kind;
    int rank, size, victim;
    unsigned delay_us;
} job;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void limit(int resource, rlim_t to)
{
    struct rlimit most;
    if (getrlimit(resource, &most) == 0) {
        most.rlim_cur = to;
        (void)setrlimit(resource, &most);
    }
}

static void reset_connections(void)
{
    for (int fd = 3; fd < DESCRIPTORS; fd++) {
        struct sockaddr_storage name;
        socklen_t length = sizeof(name);
        if (getpeername(fd, (struct sockaddr *)&name, &length) == 0 && name.ss_family == AF_INET)
            (void)shutdown(fd, SHUT_RDWR);
    }
}

/* Strike from a thread, between any two instructions of the other ones. */
static void *strike(void *nothing)
{
    char line[64];
    usleep(job.delay_us);
    int bytes = snprintf(line, sizeof(line), "fault at %.6f\n", now());
    (void)!write(STDOUT_FILENO, line, (size_t)bytes);
    if (strcmp(job.kind, "kill") == 0)
        raise(SIGKILL);
    else if (strcmp(job.kind, "exit") == 0)
        _exit(7);
    else if (strcmp(job.kind, "abort") == 0)
        abort();
    else if (strcmp(job.kind, "stop") == 0 || strcmp(job.kind, "pause") == 0)
        kill(getpid(), SIGSTOP);
    else if (strcmp(job.kind, "reset") == 0)
        reset_connections();
    else if (strcmp(job.kind, "descriptors") == 0)
        limit(RLIMIT_NOFILE, 3);
    else if (strcmp(job.kind, "memory") == 0)
        limit(RLIMIT_AS, 1);
    return nothing;
}

/* Element i of rank r's buffer in a step; sums are exact. */
static int value(unsigned step, int r, int i)
{
    return (r + 1) * (1 + (int)((step + (unsigned)i) % 5));
}

static int sum(unsigned step, int i)
{
    return value(step, 0, i) * job.size * (job.size + 1) / 2;
}

static int in[LONGEST * MOST_RANKS], out[LONGEST * MOST_RANKS];

enum fault_call { ALLREDUCE, REDUCE, BCAST, ALLGATHER, ALLTOALL, SCATTER, BARRIER, CALLS };

/* Start a call; request: NULL if it is blocking. */
static int issue(enum fault_call call, int n, int root, MPI_Request *request)
{
    MPI_Comm comm = MPI_COMM_WORLD;
#define EITHER(name, started, ...)                                                                 \
    (request != NULL ? MPI_I##started(__VA_ARGS__, comm, request) : MPI_##name(__VA_ARGS__, comm))
    switch (call) {
    case ALLREDUCE:
        return EITHER(Allreduce, allreduce, in, out, n, MPI_INT, MPI_SUM);
    case REDUCE:
        return EITHER(Reduce, reduce, in, out, n, MPI_INT, MPI_SUM, root);
    case BCAST:
        return EITHER(Bcast, bcast, job.rank == root ? in : out, n, MPI_INT, root);
    case ALLGATHER:
        return EITHER(Allgather, allgather, in, n, MPI_INT, out, n, MPI_INT);
    case ALLTOALL:
        return EITHER(Alltoall, alltoall, in, n, MPI_INT, out, n, MPI_INT);
    case SCATTER:
        return EITHER(Scatter, scatter, in, n, MPI_INT, out, n, MPI_INT, root);
    default:
        return request != NULL ? MPI_Ibarrier(comm, request) : MPI_Barrier(comm);
    }
}

/* Return how many elements of a call's result are wrong. */
static unsigned count_wrong(enum fault_call call, unsigned step, int n, int root)
{
    unsigned wrong = 0;
    for (int i = 0; i < n; i++) {
        if (call == ALLREDUCE || (call == REDUCE && job.rank == root))
            wrong += out[i] != sum(step, i);
        else if (call == BCAST && job.rank != root)
            wrong += out[i] != value(step, root, i);
        else if (call == SCATTER)
            wrong += out[i] != value(step, root, job.rank * n + i);
        for (int r = 0; r < job.size && (call == ALLGATHER || call == ALLTOALL); r++)
            wrong += out[r * n + i] != value(step, r, call == ALLTOALL ? job.rank * n + i : i);
    }
    return wrong;
}

/* Make one call. Returns MPI's code. */
static int make_call(unsigned step, unsigned seed, unsigned *wrong)
{
    static const int counts[] = {1, 8, 100, LONGEST};
    unsigned random = (seed + step) * 2654435761u;
    random ^= random >> 15;
    enum fault_call call = (enum fault_call)(random % CALLS);
    int n = counts[random / 16 % 4], root = (int)(random / 64) % job.size;
    MPI_Request request = MPI_REQUEST_NULL;
    for (int i = 0; i < n * job.size; i++) {
        in[i] = value(step, job.rank, i);
        out[i] = -1;
    }
    int waits = random / 512 % 2 == 1;
    int code = issue(call, n, root, waits ? &request : NULL);
    if (code == MPI_SUCCESS && waits)
        code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (code == MPI_SUCCESS)
        *wrong += count_wrong(call, step, n, root);
    return code;
}

int main(int argc, char **argv)
{
    char text[MPI_MAX_ERROR_STRING] = "";
    int code = MPI_SUCCESS, length, provided, stop = 0;
    unsigned step = 0, wrong = 0;
    pthread_t thread;
    if (argc != 5)
        return 2;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job.size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    job.kind = argv[1];
    job.victim = atoi(argv[2]);
    job.delay_us = (unsigned)atoi(argv[3]);
    printf("rank %d is process %d\n", job.rank, (int)getpid());
    fflush(stdout);
    code = MPI_Barrier(MPI_COMM_WORLD);
    double until = now() + (job.delay_us + AFTER_US) * 1e-6;
    if (job.rank == job.victim && pthread_create(&thread, NULL, strike, NULL) != 0)
        return 2;
    for (; code == MPI_SUCCESS && !stop; step++) {
        int over = job.rank == 0 && now() > until; /* rank 0 decides for all */
        code = make_call(step, (unsigned)atoi(argv[4]), &wrong);
        if (code == MPI_SUCCESS)
            code = MPI_Allreduce(&over, &stop, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    }
    if (code != MPI_SUCCESS)
        MPI_Error_string(code, text, &length);
    printf("rank %d ends at %.6f: %u wrong after %u steps: %s\n", job.rank, now(), wrong, step,
           text[0] != '\0' ? text : "no error");
    fflush(stdout);
    if (code == MPI_SUCCESS)
        MPI_Finalize();
    _exit(0);
}
