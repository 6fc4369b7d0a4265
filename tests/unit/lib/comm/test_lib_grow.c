/* SPDX-License-Identifier: Apache-2.0 */
/* New processes join a job (lib/twill_recover.h). All processes of a test hand the handle around by
 * the test's exchange, which here is the caller's store. */
#include "fabric/auth/handshake.h"
#include "lib/comm/comm.h"
#include "lib/job/context.h"
#include "lib/twill_recover.h"
#include "tests/support/job_ranks.h"
#include "tests/support/unit.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

static bool dies_joined;

/* Report whether a socket has received rank 0's answer to the handshake and nothing is unread: this
 * process has authenticated itself, and waits for the others. */
static bool has_joined(int fd)
{
    struct tcp_info info;
    socklen_t length = sizeof(info);
    int unread = 0;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
           info.tcpi_bytes_received >= sizeof(struct twill_hello_answer) &&
           ioctl(fd, FIONREAD, &unread) == 0 && unread == 0;
}

/* With dies_joined this process dies once it has joined. */
int poll(struct pollfd *fds, nfds_t count, int ms)
{
    struct timespec limit = {ms / 1000, ms % 1000 * 1000000L};
    const struct pollfd *asked = fds;
    __asm__("" : "+r"(asked)); /* else gcc warns, as poll() is declared only to write them */
    if (dies_joined && count > 0 && asked->events == POLLIN && has_joined(asked->fd))
        _exit(1);
    return (int)syscall(SYS_ppoll, fds, count, ms < 0 ? NULL : &limit, NULL, 0);
}

enum { COUNT = 70000, MOST_RANKS = 6 };

/* What one test does. */
struct growth_case {
    int old, joining;
    const char *nodes; /* TWILL_LAYOUT=nodes of the old job, "" for none */
    int nodes_after;   /* of the larger one */
};

static const char job_key[] = "TWILL_JOB=00112233445566778899aabbccddeeff";
static struct twill_test_job job; /* its port */

/* Run a test of processes that start a job, or join it. */
static void run_growth(int processes, twill_rank_fn fn, const void *user)
{
    twill_test_job_init(&job, "127.0.0.1", processes);
    twill_test_run_processes(processes, fn, (void *)(uintptr_t)user);
}

/* Start a job of the first `old` processes, when all of the test are here. */
static bool start_job(twill_comm **comm, int rank, const struct growth_case *test,
                      twill_bootstrap *bootstrap, const char *timeout)
{
    const char *const settings[] = {
        twill_test_text("RANK=%d", rank),
        twill_test_text("WORLD_SIZE=%d", test->old),
        twill_test_text("MASTER_PORT=%s", job.port),
        twill_test_text("TWILL_LAYOUT=%s%s", *test->nodes != '\0' ? "nodes=" : "", test->nodes),
        "MASTER_ADDR=127.0.0.1",
        "TWILL_PROVIDER=tcp",
        "TWILL_INTERFACE=lo",
        timeout,
        job_key,
        NULL};
    char message[512] = "";
    *comm = NULL;
    TWILL_REQUIRE(twill_test_barrier(bootstrap));
    if (rank >= test->old)
        return true;
    twill_status status = twill_init_with(comm, NULL, settings, message, sizeof(message));
    return TWILL_NOTE(status == TWILL_OK, "%s", message);
}

/* Give rank 0's handle to all processes of the test. */
static bool share_handle(twill_comm *comm, int rank, int joining, twill_bootstrap *bootstrap,
                         char handle[TWILL_HANDLE_BYTES])
{
    char all[MOST_RANKS][TWILL_HANDLE_BYTES];
    memset(handle, 0, TWILL_HANDLE_BYTES);
    if (rank == 0)
        TWILL_REQUIRE(twill_comm_handle(comm, joining, handle) == TWILL_OK);
    TWILL_REQUIRE(bootstrap->exchange(bootstrap->user, handle, all, TWILL_HANDLE_BYTES) == 0);
    memcpy(handle, all[0], TWILL_HANDLE_BYTES);
    return true;
}

static twill_status join_job(twill_comm **comm, const char *handle, const char *timeout,
                             char message[512])
{
    const char *const settings[] = {"TWILL_PROVIDER=tcp", "TWILL_INTERFACE=lo", timeout, job_key,
                                    NULL};
    return twill_comm_join(comm, handle, settings, message, 512);
}

static bool sum_over(twill_comm *comm, float *buffer, size_t count)
{
    float size = (float)twill_comm_size(comm), rank = (float)twill_comm_rank(comm);
    for (size_t i = 0; i < count; i++)
        buffer[i] = rank;
    twill_status status = twill_allreduce(comm, buffer, buffer, count, TWILL_F32, TWILL_SUM);
    return TWILL_NOTE(
        status == TWILL_OK && buffer[0] == size * (size - 1) / 2 && buffer[count - 1] == buffer[0],
        "sum %g of %g ranks: %s", (double)buffer[0], (double)size, twill_comm_message(comm));
}

/* One of the two threads of a rank that sum together. */
struct grown_thread {
    twill_comm *comm;
    float *buffer;
    int number;
    twill_status status;
};

static void *sum_as_thread(void *of)
{
    struct grown_thread *t = of;
    t->status = twill_allreduce_team(t->comm, t->buffer, t->buffer, COUNT / 100, TWILL_F32,
                                     TWILL_SUM, t->number, 2);
    return NULL;
}

/* Sum ones by two threads of each rank. */
static bool sum_together(twill_comm *comm)
{
    float buffer[COUNT / 100];
    struct grown_thread thread[2] = {{comm, buffer, 0, TWILL_OK}, {comm, buffer, 1, TWILL_OK}};
    pthread_t id;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(buffer); i++)
        buffer[i] = 1;
    TWILL_REQUIRE(pthread_create(&id, NULL, sum_as_thread, &thread[1]) == 0);
    (void)sum_as_thread(&thread[0]);
    TWILL_REQUIRE(pthread_join(id, NULL) == 0);
    return TWILL_NOTE(thread[0].status == TWILL_OK && thread[1].status == TWILL_OK &&
                          buffer[COUNT / 100 - 1] == (float)twill_comm_size(comm),
                      "%s", twill_comm_message(comm));
}

/* --- joining --------------------------------------------------------------------------------- */

/* An operation of the program: the larger of both. */
static void take_larger(const void *left, const void *right, void *result, size_t count,
                        twill_type type, void *user)
{
    const float *a = left, *b = right;
    float *larger = result;
    for (size_t i = 0; i < count; i++)
        larger[i] = a[i] > b[i] ? a[i] : b[i];
}

/* What an old rank has made before, and finds again in the larger communicator's context. */
struct kept {
    float *shared; /* of twill_alloc() */
    float *own;    /* registered */
    float *promoted;
    twill_op op;
};

static void make_things(twill_comm *comm, struct kept *kept)
{
    twill_context *context = twill_comm_context(comm);
    kept->own = malloc(COUNT * sizeof(float));
    kept->promoted = malloc(COUNT * sizeof(float));
    TWILL_CHECK(kept->own != NULL && kept->promoted != NULL);
    TWILL_CHECK(twill_alloc(context, (void **)&kept->shared, COUNT * sizeof(float)) == TWILL_OK);
    TWILL_CHECK(twill_register(context, kept->own, COUNT * sizeof(float)) == TWILL_OK);
    TWILL_CHECK(twill_op_create(context, &kept->op, take_larger, NULL, 0, 1) == TWILL_OK);
    TWILL_CHECK(twill_promote(context, kept->promoted, COUNT * sizeof(float)) == TWILL_OK);
    kept->shared[COUNT - 1] = kept->promoted[COUNT / 2] = 17;
}

/* Use memory that old ranks promoted before the growth, and all ranks again after it. Then peers
 * map it, and calls copy only its partial pages. */
static bool use_promoted(twill_comm *comm, float *memory, bool is_old)
{
    twill_context *context = twill_comm_context(comm);
    const size_t bytes = COUNT * sizeof(float), ends = 3 * 2 * 4095;
    twill_counters before, after;
    TWILL_REQUIRE(memory[COUNT / 2] == 17 && sum_over(comm, memory, COUNT));
    memory[COUNT / 2] = 18;
    if (is_old)
        TWILL_REQUIRE(twill_demote(context, memory) == TWILL_OK &&
                      twill_promote(context, memory, bytes) == TWILL_OK);
    TWILL_REQUIRE(memory[COUNT / 2] == 18);
    TWILL_REQUIRE(twill_comm_counters(comm, &before) == TWILL_OK && sum_over(comm, memory, COUNT) &&
                  twill_comm_counters(comm, &after) == TWILL_OK);
    TWILL_REQUIRE(twill_comm_nodes(comm) > 1 || after.bytes_copied - before.bytes_copied <= ends,
                  "%llu bytes copied",
                  (unsigned long long)(after.bytes_copied - before.bytes_copied));
    return twill_demote(context, memory) == TWILL_OK;
}

static void use_things(twill_comm *comm, struct kept *kept)
{
    twill_context *context = twill_comm_context(comm);
    float most = (float)(twill_comm_size(comm) - 1), mine = (float)twill_comm_rank(comm);
    const bool is_old = kept->shared != NULL;
    if (!is_old)
        make_things(comm, kept);
    TWILL_CHECK(use_promoted(comm, kept->promoted, is_old));
    free(kept->promoted);
    TWILL_CHECK(kept->shared[COUNT - 1] == 17);
    TWILL_CHECK(sum_over(comm, kept->shared, COUNT) && sum_over(comm, kept->shared, 3));
    TWILL_CHECK(sum_over(comm, kept->own, COUNT));
    TWILL_CHECK(twill_allreduce(comm, &mine, &mine, 1, TWILL_F32, kept->op) == TWILL_OK);
    TWILL_CHECK(mine == most);
    TWILL_CHECK(twill_deregister(context, kept->own) == TWILL_OK);
    TWILL_CHECK(twill_free(context, kept->shared) == TWILL_OK);
    free(kept->own);
}

static void growing_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct growth_case *test = user;
    char handle[TWILL_HANDLE_BYTES], message[512] = "";
    struct kept kept = {.shared = NULL};
    twill_comm *comm, *larger = NULL;
    float buffer[COUNT / 100];
    TWILL_CHECK(start_job(&comm, rank, test, bootstrap, TWILL_TEST_PATIENT));
    if (comm != NULL) {
        TWILL_CHECK(sum_over(comm, buffer, COUNT / 100) && twill_comm_epoch(comm) == 0);
        TWILL_CHECK(sum_together(comm));
        make_things(comm, &kept);
    }
    TWILL_CHECK(share_handle(comm, rank, test->joining, bootstrap, handle));
    twill_status status = comm != NULL ? twill_comm_grow(&larger, comm)
                                       : join_job(&larger, handle, TWILL_TEST_PATIENT, message);
    TWILL_CHECK(status == TWILL_OK, "%s", comm != NULL ? twill_comm_message(comm) : message);
    TWILL_CHECK(twill_comm_size(larger) == size && twill_comm_epoch(larger) == 1);
    TWILL_CHECK(twill_comm_nodes(larger) == test->nodes_after);
    TWILL_CHECK(comm == NULL ? twill_comm_rank(larger) >= test->old
                             : twill_comm_rank(larger) == rank);
    if (comm != NULL) /* both can be used */
        TWILL_CHECK(sum_over(comm, buffer, COUNT / 100) && sum_together(comm));
    twill_comm_leave(comm);
    TWILL_CHECK(sum_together(larger));
    use_things(larger, &kept);
    TWILL_CHECK(sum_over(larger, buffer, COUNT / 100));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    twill_finalize(larger);
}

TWILL_TEST(test_joining)
{
    static const struct growth_case tests[] = {
        {2, 1, "", 1},  {2, 2, "", 1},    {1, 2, "", 1},
        {2, 1, "2", 2}, {2, 2, "1+1", 3}, {3, 1, "1+2", 3},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(tests); i++)
        run_growth(tests[i].old + tests[i].joining, growing_rank, &tests[i]);
}

/* --- one after the other --------------------------------------------------------------------- */

enum { REPLACED = 3 };

/* A store in memory that the processes share: deaths end the test's exchange. */
struct handle_store {
    struct {
        _Atomic bool there;
        char text[TWILL_HANDLE_BYTES];
    } handle[REPLACED];
};

/* Process 1 + i is the i-th to replace the one before it, which dies. */
static void replaced_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    static const struct growth_case start = {2, 0, "", 1};
    struct handle_store *store = user;
    twill_comm *comm, *smaller, *larger;
    char message[512] = "";
    float buffer[100];
    if (rank > 0 && rank < size - 1)
        twill_test_expect_death(rank);
    TWILL_CHECK(start_job(&comm, rank, &start, bootstrap, TWILL_TEST_PATIENT));
    for (int i = 0; comm == NULL && i < REPLACED; i++) {
        while (rank == 2 + i && !store->handle[i].there)
            TWILL_CHECK(!twill_test_failed() && usleep(1000) == 0);
        if (rank != 2 + i)
            continue;
        twill_status status = join_job(&comm, store->handle[i].text, TWILL_TEST_PATIENT, message);
        TWILL_CHECK(status == TWILL_OK, "%s", message);
        TWILL_CHECK(twill_comm_epoch(comm) == i + 1 && twill_comm_rank(comm) == 1);
    }
    for (int i = rank == 0 ? 0 : rank - 1; i < REPLACED; i++) {
        TWILL_CHECK(sum_over(comm, buffer, 100));
        if (rank != 0)
            _exit(1);
        TWILL_CHECK(twill_barrier(comm) == TWILL_ERR_PEER);
        TWILL_CHECK(twill_comm_grow(&larger, comm) == TWILL_ERR_BROKEN && larger == NULL);
        TWILL_CHECK(twill_comm_shrink(&smaller, comm) == TWILL_OK);
        twill_comm_leave(comm);
        TWILL_CHECK(twill_comm_handle(smaller, 1, store->handle[i].text) == TWILL_OK);
        store->handle[i].there = true;
        TWILL_CHECK(twill_comm_grow(&larger, smaller) == TWILL_OK, "%s",
                    twill_comm_message(smaller));
        twill_comm_leave(smaller);
        TWILL_CHECK(larger->context->older == NULL); /* no memory of twill_alloc(): not kept */
        comm = larger;
    }
    TWILL_CHECK(sum_over(comm, buffer, 100));
    twill_finalize(comm);
}

TWILL_TEST(test_replacing)
{
    run_growth(2 + REPLACED, replaced_rank, twill_test_shared(sizeof(struct handle_store)));
}

/* --- failures -------------------------------------------------------------------------------- */

enum growth_trouble {
    NONE_COMES,
    DIES_JOINING,
    DIES_CONNECTED,
    ALTERED_HANDLE,
    OLD_EPOCH,
    OTHER_KEY
};

struct failing_growth {
    struct growth_case job;
    enum growth_trouble trouble;
    twill_status expected; /* of twill_comm_grow() */
    const char *says;      /* in its message, or in the new process's */
};

/* Die of SIGALRM, wherever this process is then. */
static void die_in(unsigned us)
{
    struct itimerval timer = {.it_value = {.tv_usec = (suseconds_t)us}};
    (void)setitimer(ITIMER_REAL, &timer, NULL);
}

/* Connect to rank 0 as a new process does, and end in the middle of it. */
static void connect_only(const char *text)
{
    struct twill_join_handle handle;
    struct sockaddr_storage at;
    socklen_t length;
    TWILL_CHECK(twill_join_handle_read(&handle, text, NULL) == TWILL_OK);
    TWILL_CHECK(twill_endpoint_address(handle.address, handle.port, &at, &length));
    int fd = socket(at.ss_family, SOCK_STREAM, 0);
    TWILL_CHECK(fd >= 0 && connect(fd, (struct sockaddr *)&at, length) == 0);
}

/* What the new process does. */
static void join_in_vain(const struct failing_growth *test, char *handle, const char *old)
{
    twill_comm *comm = NULL;
    char message[512] = "";
    switch (test->trouble) {
    case NONE_COMES:
        return;
    case DIES_CONNECTED:
        connect_only(handle);
        return;
    case DIES_JOINING: /* while rank 0 waits for one more */
        dies_joined = true;
        (void)join_job(&comm, handle, TWILL_TEST_PATIENT, message);
        return;
    case ALTERED_HANDLE:
        handle[strlen(handle) / 2] ^= 1;
        TWILL_CHECK(join_job(&comm, handle, TWILL_TEST_HASTY, message) == TWILL_ERR_ARGUMENT);
        break;
    case OLD_EPOCH:
        TWILL_CHECK(join_job(&comm, old, TWILL_TEST_HASTY, message) == TWILL_ERR_BOOTSTRAP);
        break;
    case OTHER_KEY: {
        const char *const settings[] = {"TWILL_JOB=ff112233445566778899aabbccddeeff",
                                        TWILL_TEST_HASTY, NULL};
        TWILL_CHECK(twill_comm_join(&comm, handle, settings, message, sizeof(message)) ==
                    TWILL_ERR_BOOTSTRAP);
        break;
    }
    }
    TWILL_CHECK(comm == NULL && TWILL_SAYS(message, test->says));
}

static void failing_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct failing_growth *test = user;
    char handle[TWILL_HANDLE_BYTES], old[TWILL_HANDLE_BYTES];
    twill_comm *comm, *larger = NULL;
    float buffer[10];
    bool hasty = test->expected == TWILL_ERR_TIMEOUT;
    TWILL_CHECK(start_job(&comm, rank, &test->job, bootstrap,
                          hasty ? "TWILL_TIMEOUT=1" : TWILL_TEST_PATIENT));
    if (test->trouble == DIES_JOINING && comm == NULL)
        twill_test_expect_death(rank);
    TWILL_CHECK(share_handle(comm, rank, 1, bootstrap, old)); /* replaced by the next */
    TWILL_CHECK(share_handle(comm, rank, test->job.joining, bootstrap, handle));
    if (comm == NULL) {
        join_in_vain(test, handle, old);
        return;
    }
    twill_status status = twill_comm_grow(&larger, comm);
    const char *message = twill_comm_message(comm);
    TWILL_CHECK(status == test->expected && larger == NULL, "status %d: %s", status, message);
    if (test->trouble <= DIES_CONNECTED)
        TWILL_CHECK(TWILL_SAYS(message, test->says));
    TWILL_CHECK(sum_over(comm, buffer, 10)); /* as before */
    twill_finalize(comm);
}

TWILL_TEST(test_failures)
{
    static const struct failing_growth tests[] = {
        {{2, 1, "", 1}, NONE_COMES, TWILL_ERR_TIMEOUT, "1 of 3 ranks did not join"},
        {{2, 2, "", 1}, DIES_JOINING, TWILL_ERR_PEER, "rank 2 joined and ended"},
        {{2, 1, "2", 1}, DIES_CONNECTED, TWILL_ERR_TIMEOUT, "1 of 3 ranks did not join"},
        {{2, 1, "", 1}, ALTERED_HANDLE, TWILL_ERR_TIMEOUT, "is not a complete handle"},
        {{2, 1, "", 1}, OLD_EPOCH, TWILL_ERR_TIMEOUT, "is out of date"},
        {{2, 1, "", 1}, OTHER_KEY, TWILL_ERR_TIMEOUT, "has another key"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(tests); i++)
        run_growth(3, failing_rank, &tests[i]);
}

/* Process 2 dies at some time after it has begun to join. The others have the larger communicator
 * or not, both alike, and go on. */
static void abandoned_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    static const struct growth_case start = {2, 1, "", 1};
    const unsigned *delay_us = user;
    char handle[TWILL_HANDLE_BYTES], message[512] = "";
    twill_comm *comm, *larger = NULL, *smaller = NULL;
    float buffer[10], made, both;
    TWILL_CHECK(start_job(&comm, rank, &start, bootstrap, "TWILL_TIMEOUT=1"));
    if (comm == NULL)
        twill_test_expect_death(rank);
    TWILL_CHECK(share_handle(comm, rank, 1, bootstrap, handle));
    if (comm == NULL) {
        die_in(*delay_us);
        (void)join_job(&larger, handle, TWILL_TEST_PATIENT, message);
        pause();
    }
    made = twill_comm_grow(&larger, comm) == TWILL_OK;
    TWILL_CHECK(made > 0 || twill_comm_message(comm)[0] != '\0');
    TWILL_CHECK(twill_allreduce(comm, &made, &both, 1, TWILL_F32, TWILL_SUM) == TWILL_OK);
    TWILL_CHECK(both == 2 * made);
    if (larger == NULL) {
        twill_finalize(comm);
        return;
    }
    TWILL_CHECK(twill_barrier(larger) == TWILL_ERR_PEER);
    TWILL_CHECK(twill_comm_shrink(&smaller, larger) == TWILL_OK && sum_over(smaller, buffer, 10));
    twill_comm_leave(comm);
    twill_comm_leave(larger);
    twill_finalize(smaller);
}

TWILL_TEST(test_abandoned)
{
    for (unsigned delay_us = 2000; delay_us < 50000; delay_us += delay_us)
        run_growth(3, abandoned_rank, &delay_us);
}

/* A process of an older epoch finds the port in use by a later growth, and is told so. */
static void late_process(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    static const struct growth_case start = {1, 0, "", 1};
    char handle[TWILL_HANDLE_BYTES], message[512] = "";
    twill_comm *comm, *larger = NULL;
    struct twill_join_handle late;
    TWILL_CHECK(start_job(&comm, rank, &start, bootstrap, TWILL_TEST_PATIENT));
    TWILL_CHECK(share_handle(comm, rank, 1, bootstrap, handle));
    if (rank == 1) { /* with the handle of an earlier growth at this address */
        TWILL_CHECK(twill_join_handle_read(&late, handle, NULL) == TWILL_OK);
        late.epoch = 0;
        twill_join_handle_write(&late, handle);
        TWILL_CHECK(join_job(&larger, handle, TWILL_TEST_PATIENT, message) == TWILL_ERR_BOOTSTRAP);
        TWILL_CHECK(TWILL_SAYS(message, "it is of epoch 0, and the job is at epoch 1"));
        late.epoch = 1;
        twill_join_handle_write(&late, handle);
        TWILL_CHECK(join_job(&larger, handle, TWILL_TEST_PATIENT, message) == TWILL_OK);
    } else {
        TWILL_CHECK(twill_comm_grow(&larger, comm) == TWILL_OK);
        twill_comm_leave(comm);
    }
    TWILL_CHECK(twill_barrier(larger) == TWILL_OK);
    twill_finalize(larger);
}

static void bad_process(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    static const struct growth_case start = {2, 0, "", 1};
    char handle[TWILL_HANDLE_BYTES], message[512] = "";
    twill_comm *comm, *larger = NULL;
    TWILL_CHECK(start_job(&comm, rank, &start, bootstrap, TWILL_TEST_PATIENT));
    TWILL_CHECK(twill_comm_handle(NULL, 1, handle) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_handle(comm, 1, NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_handle(comm, rank, handle) == TWILL_ERR_ARGUMENT); /* 0, and rank 1 */
    TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), rank == 0 ? "joining = 0" : "only rank 0"));
    TWILL_CHECK(twill_comm_grow(NULL, comm) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_grow(&larger, comm) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), "rank 0 has made no handle"));
    TWILL_CHECK(twill_comm_join(NULL, "", NULL, NULL, 0) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(join_job(&larger, "", TWILL_TEST_PATIENT, message) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(join_job(&larger, NULL, TWILL_TEST_PATIENT, message) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_epoch(NULL) == -1 && larger == NULL);
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
    twill_finalize(comm);
}

TWILL_TEST(test_late_and_bad_calls)
{
    run_growth(2, late_process, NULL);
    run_growth(2, bad_process, NULL);
}
