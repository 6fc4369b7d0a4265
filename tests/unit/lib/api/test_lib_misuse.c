/* SPDX-License-Identifier: Apache-2.0 */
/* Handles used after their end or by two threads at once, and messages of a rank to itself without
 * a counterpart: an error with a message, at once, without access to freed memory. */
#include "lib/comm/comm.h"
#include "lib/twill_job.h"
#include "tests/support/unit.h"

#define MISUSE_SETTINGS TWILL_TEST_PATIENT, "TWILL_TUNE=heap_limit=8M", "TWILL_LOG=none"

/* --- communicators that have ended ----------------------------------------------------------- */

static void check_ended(twill_comm *comm)
{
    float x = 1.0f;
    twill_request *request = NULL;
    twill_comm *made = NULL;
    twill_counters counters;
    TWILL_CHECK(twill_allreduce(comm, &x, &x, 1, TWILL_F32, TWILL_SUM) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_barrier_start(comm, &request) == TWILL_ERR_ARGUMENT && request == NULL);
    TWILL_CHECK(twill_barrier_init(comm, &request) == TWILL_ERR_ARGUMENT && request == NULL);
    TWILL_CHECK(twill_send(comm, &x, 1, TWILL_F32, 0) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_recv_start(comm, &x, 1, TWILL_F32, 0, &request) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_group_start(comm) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_group_end(comm) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_dup(&made, comm) == TWILL_ERR_ARGUMENT && made == NULL);
    TWILL_CHECK(twill_comm_create_over(&made, comm, 1, (int[]){0}, NULL, NULL) ==
                TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_counters(comm, &counters) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_rank(comm) == -1 && twill_comm_local_size(comm) == -1);
    TWILL_CHECK(twill_comm_context(comm) == NULL && twill_comm_rail(comm, 0) == NULL);
    TWILL_CHECK(TWILL_SAYS(twill_comm_message(comm), "has been destroyed"));
    twill_comm_destroy(comm);
    twill_comm_leave(comm);
}

static void ended_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_context *context;
    twill_comm *comm, *other, *more[20];
    void *memory;
    TWILL_CHECK(twill_test_join(&context, &comm, bootstrap, "", MISUSE_SETTINGS));
    TWILL_CHECK(twill_comm_dup(&other, comm) == TWILL_OK);
    twill_comm_destroy(other);
    check_ended(other);
    for (int i = 0; i < 12; i++) { /* new communicators have other handles */
        TWILL_CHECK(twill_comm_dup(&more[i], comm) == TWILL_OK && more[i] != other);
        twill_comm_destroy(more[i]);
    }
    check_ended(other);
    check_ended(more[11]);
    TWILL_CHECK(twill_comm_rank(comm) == rank && twill_comm_size(comm) == size);
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
    twill_test_disconnect(comm, context);
    check_ended(comm);
    check_ended(other);
    TWILL_CHECK(twill_alloc(context, &memory, 8) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_create(&comm, context) == TWILL_ERR_ARGUMENT && comm == NULL);
    TWILL_CHECK(twill_job_view_open(NULL, NULL, 0, NULL, 0) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_context_describe(context, 0) == NULL);
    TWILL_CHECK(TWILL_SAYS(twill_context_message(context), "has been destroyed"));
    twill_context_destroy(context);
}

TWILL_TEST(ended_communicators)
{
    setenv("TWILL_LOG", "none", 1);
    twill_test_run_ranks(1, ended_rank, NULL);
    twill_test_run_ranks(2, ended_rank, NULL);
    unsetenv("TWILL_LOG");
}

TWILL_TEST(finalized_twice)
{
    static const char *const settings[] = {"TWILL_LAUNCHER=none", NULL};
    char message[80];
    twill_comm *comm;
    setenv("TWILL_LOG", "none", 1);
    assert_int_equal(twill_init_with(&comm, NULL, settings, message, sizeof(message)), TWILL_OK);
    assert_string_equal(message, "");
    twill_finalize(comm);
    assert_int_equal(twill_barrier(comm), TWILL_ERR_ARGUMENT);
    twill_finalize(comm);
    unsetenv("TWILL_LOG");
}

/* --- requests that have ended ---------------------------------------------------------------- */

TWILL_TEST_ON(ended_requests, ranks, TWILL_LAYOUTS("1", "2"), MISUSE_SETTINGS)
{
    twill_context *context = twill_comm_context(comm);
    twill_request *one, *copy, *next, *two[2];
    int done, index;
    TWILL_CHECK(twill_barrier_start(comm, &one) == TWILL_OK);
    copy = one;
    TWILL_CHECK(twill_wait(&one) == TWILL_OK && one == NULL);
    TWILL_CHECK(TWILL_ENDS(comm, twill_wait(&copy), TWILL_ERR_ARGUMENT,
                           "twill_wait: this request has been waited for"));
    TWILL_CHECK(copy != NULL);
    TWILL_CHECK(twill_test(&copy, &done) == TWILL_ERR_ARGUMENT && done == 1);
    for (int i = 0; i < 40; i++) { /* its memory is reused by others, which must not be affected */
        TWILL_CHECK(twill_barrier_start(comm, &next) == TWILL_OK && next != copy);
        TWILL_CHECK(twill_wait(&copy) == TWILL_ERR_ARGUMENT);
        TWILL_CHECK(twill_request_start(copy) == TWILL_ERR_ARGUMENT);
        TWILL_CHECK(twill_request_free(&copy) == TWILL_ERR_ARGUMENT);
        two[0] = next, two[1] = copy;
        TWILL_CHECK(twill_wait_any(2, two, &index) == TWILL_ERR_ARGUMENT && index == 1);
        TWILL_CHECK(twill_wait_all(2, two) == TWILL_ERR_ARGUMENT && two[0] == NULL);
    }
    TWILL_CHECK(twill_barrier_init(comm, &one) == TWILL_OK);
    copy = one;
    TWILL_CHECK(twill_request_free(&one) == TWILL_OK && one == NULL);
    TWILL_CHECK(twill_request_free(&copy) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_request_start(copy) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_barrier_init(comm, &one) == TWILL_OK); /* ends with its communicator */
    TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
    twill_comm_destroy(comm);
    TWILL_CHECK(twill_request_start(one) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_wait(&copy) == TWILL_ERR_ARGUMENT);
    twill_context_destroy(context);
    TWILL_CHECK(twill_request_start(one) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_wait(&one) == TWILL_ERR_ARGUMENT);
}

static const struct twill_request *memory_of(const twill_request *handle)
{
    uintptr_t word = (uintptr_t)handle;
    return (const void *)(word - word % TWILL_GENERATIONS);
}

/* An ended handle does not affect a thread in a call on its communicator, nor the communicator that
 * has its memory now, which gets no error at all. */
TWILL_TEST_ON(an_innocent_communicator, ranks, TWILL_LAYOUTS("1", "2"), MISUSE_SETTINGS)
{
    twill_comm *first, *second;
    twill_request *one, *copy, *next;
    TWILL_CHECK(twill_comm_dup(&first, comm) == TWILL_OK);
    TWILL_CHECK(twill_barrier_start(first, &one) == TWILL_OK);
    copy = one;
    TWILL_CHECK(twill_wait(&one) == TWILL_OK);
    atomic_store(&first->claim.held, "another thread's call");
    TWILL_CHECK(twill_wait(&copy) == TWILL_ERR_ARGUMENT && first->live == TWILL_LIVE);
    twill_comm_release(first);
    twill_comm_destroy(first);
    TWILL_CHECK(twill_comm_dup(&second, comm) == TWILL_OK);
    TWILL_CHECK(twill_barrier_start(second, &next) == TWILL_OK);
    TWILL_CHECK(twill_wait(&next) == TWILL_OK && memory_of(copy)->engine == &second->engine);
    atomic_store(&second->claim.held, "another thread's call");
    TWILL_CHECK(twill_wait(&copy) == TWILL_ERR_ARGUMENT && second->live == TWILL_LIVE);
    twill_comm_release(second);
    TWILL_CHECK(twill_wait(&copy) == TWILL_ERR_ARGUMENT && second->error.status == TWILL_OK);
    TWILL_CHECK(twill_barrier(second) == TWILL_OK);
    twill_comm_destroy(second);
}

/* The memory was reused so often that a small generation count would have wrapped around. */
TWILL_TEST_ON(an_old_request, ranks, TWILL_LAYOUTS("1"), MISUSE_SETTINGS)
{
    twill_request *one, *copy;
    TWILL_CHECK(twill_barrier_start(comm, &one) == TWILL_OK);
    copy = one;
    TWILL_CHECK(twill_wait(&one) == TWILL_OK);
    for (unsigned i = 0; i < TWILL_GENERATIONS - 1; i++) {
        TWILL_CHECK(twill_barrier_start(comm, &one) == TWILL_OK && one != copy);
        TWILL_CHECK(twill_wait(&one) == TWILL_OK);
    }
    TWILL_CHECK(memory_of(copy)->handle.generation == TWILL_GENERATIONS); /* the same memory */
    TWILL_CHECK(TWILL_ENDS(comm, twill_wait(&copy), TWILL_ERR_ARGUMENT,
                           "twill_wait: this request has been waited for"));
}

/* --- two threads ----------------------------------------------------------------------------- */

struct second_thread {
    twill_comm *comm;
    twill_status status;
    char message[512];
    pthread_t thread;
};

/* The second thread: call while the first waits in its call. */
static void *second_main(void *argument)
{
    struct second_thread *second = argument;
    float x = 1.0f;
    while (atomic_load(&second->comm->claim.held) == NULL)
        usleep(100);
    second->status = twill_allreduce(second->comm, &x, &x, 1, TWILL_F32, TWILL_SUM);
    snprintf(second->message, sizeof(second->message), "%s", twill_comm_message(second->comm));
    return NULL;
}

static struct misused_pair {
    const char *waits_in;
    _Atomic bool over; /* rank 0's call has returned */
} pairs[] = {{"twill_allgather", false}, {"twill_wait", false}};

/* Rank 0 waits for rank 1, which enters the call only when that has failed. */
TWILL_TEST_CASES(two_threads_at_once, ranks, pairs, "2", MISUSE_SETTINGS)
{
    static const char said[] = "rank 0: twill_allreduce on communicator 0 while ";
    struct second_thread second = {.comm = comm, .status = TWILL_OK};
    twill_request *request = NULL;
    float x[2] = {0};
    twill_status status;
    if (rank == 0) {
        bool waits = strcmp(c->waits_in, "twill_wait") == 0;
        TWILL_CHECK(!waits || twill_barrier_start(comm, &request) == TWILL_OK);
        TWILL_CHECK(pthread_create(&second.thread, NULL, second_main, &second) == 0);
        status = waits ? twill_wait(&request) : twill_allgather(comm, x, x, 1, TWILL_F32);
        TWILL_CHECK(pthread_join(second.thread, NULL) == 0);
        TWILL_CHECK(second.status == TWILL_ERR_ARGUMENT);
        TWILL_CHECK(TWILL_SAYS(second.message, said) && TWILL_SAYS(second.message, c->waits_in));
        TWILL_CHECK(TWILL_SAYS(second.message, "one thread at a time"));
        TWILL_CHECK(TWILL_ENDS(comm, status, TWILL_ERR_ARGUMENT, second.message));
        atomic_store(&c->over, true);
    } else {
        while (!atomic_load(&c->over) && !twill_test_failed())
            usleep(100);
        status = twill_barrier(comm); /* which may succeed if rank 0 did its part */
        status = status == TWILL_OK ? twill_barrier(comm) : status;
        TWILL_CHECK(TWILL_ENDS(comm, status, TWILL_ERR_ARGUMENT, said));
    }
    TWILL_CHECK(twill_barrier(comm) == TWILL_ERR_BROKEN);
}

static void *hammer(void *argument)
{
    twill_comm *comm = argument;
    float x[64] = {0};
    twill_status status = TWILL_OK;
    for (int i = 0; i < 20000 && status == TWILL_OK; i++)
        status = twill_allreduce(comm, x, x, (size_t)(i % 64), TWILL_F32, TWILL_SUM);
    TWILL_NOTE(status == TWILL_OK || status == TWILL_ERR_ARGUMENT || status == TWILL_ERR_BROKEN,
               "status %d", status);
    return NULL;
}

static const int times[10];

/* Two threads with calls of one rank, which never wait. */
TWILL_TEST_CASES(many_threads_at_once, ranks, times, "1", MISUSE_SETTINGS)
{
    pthread_t thread[3];
    for (int t = 0; t < 3; t++)
        TWILL_CHECK(pthread_create(&thread[t], NULL, hammer, comm) == 0);
    for (int t = 0; t < 3; t++)
        TWILL_CHECK(pthread_join(thread[t], NULL) == 0);
}

/* --- messages of a rank to itself ------------------------------------------------------------ */

static const struct lonely_case {
    const char *layout;
    enum { LONELY_SEND, LONELY_RECEIVE, LONELY_GROUP } way;
} lonely_cases[] = {{"1", LONELY_SEND},    {"2", LONELY_SEND},  {"1", LONELY_RECEIVE},
                    {"2", LONELY_RECEIVE}, {"1", LONELY_GROUP}, {"2", LONELY_GROUP}};

TWILL_TEST_CASES(lonely_messages, ranks, lonely_cases, c->layout, TWILL_TEST_HASTY,
                 "TWILL_TUNE=heap_limit=8M")
{
    twill_context *context = twill_comm_context(comm);
    twill_request *send, *recv;
    int x = 5, y = 0, z = 0;
    /* with a counterpart: posted before, in sendrecv, in a group */
    TWILL_CHECK(twill_recv_start(comm, &y, 1, TWILL_I32, rank, &recv) == TWILL_OK);
    TWILL_CHECK(twill_send(comm, &x, 1, TWILL_I32, rank) == TWILL_OK);
    TWILL_CHECK(twill_wait(&recv) == TWILL_OK && y == 5);
    TWILL_CHECK(twill_sendrecv(comm, &x, 1, rank, &z, 1, rank, TWILL_I32) == TWILL_OK && z == 5);
    /* a wait that cannot end does not change the message */
    TWILL_CHECK(twill_send_start(comm, &x, 1, TWILL_I32, rank, &send) == TWILL_OK);
    TWILL_CHECK(
        TWILL_ENDS(comm, twill_wait(&send), TWILL_ERR_ARGUMENT, "itself has no counterpart"));
    TWILL_CHECK(send != NULL);
    TWILL_CHECK(twill_sendrecv(comm, &x, 1, rank, &z, 1, rank, TWILL_I32) == TWILL_ERR_ARGUMENT ||
                size > 1);
    if (size == 1) { /* a bad argument does not break the communicator */
        TWILL_CHECK(twill_recv(comm, &y, 1, TWILL_I32, rank) == TWILL_OK);
        TWILL_CHECK(twill_wait(&send) == TWILL_OK && send == NULL);
    }
    (void)twill_test_barrier(bootstrap);
    twill_comm_destroy(comm);
    TWILL_CHECK(twill_comm_create(&comm, context) == TWILL_OK && twill_test_barrier(bootstrap));
    if (c->way == LONELY_GROUP)
        TWILL_CHECK(twill_group_start(comm) == TWILL_OK);
    twill_status status = c->way == LONELY_RECEIVE ? twill_recv(comm, &x, 1, TWILL_I32, rank)
                                                   : twill_send(comm, &x, 1, TWILL_I32, rank);
    if (c->way == LONELY_GROUP && status == TWILL_OK)
        status = twill_group_end(comm);
    TWILL_CHECK(TWILL_ENDS(comm, status, TWILL_ERR_ARGUMENT,
                           c->way == LONELY_RECEIVE ? "a receive from this rank itself"
                                                    : "a send to this rank itself"));
    (void)twill_test_barrier(bootstrap);
    twill_comm_destroy(comm);
}

/* --- unmapped memory -------------------------------------------------------------------------- */

TWILL_TEST_ON(memory_that_is_none, ranks, TWILL_LAYOUTS("2x1"), TWILL_TEST_PATIENT,
              "TWILL_TUNE=heap_limit=8M", "TWILL_PROVIDER=tcp")
{
    twill_context *context = twill_comm_context(comm);
    size_t bytes = (size_t)1 << 20;
    unsigned char *none = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TWILL_CHECK(none != MAP_FAILED);
    TWILL_CHECK(twill_register(context, none, bytes) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(
        TWILL_SAYS(twill_context_message(context), "are not memory that this process can read"));
    TWILL_CHECK(mprotect(none, bytes / 2, PROT_READ | PROT_WRITE) == 0);
    TWILL_CHECK(twill_register(context, none, bytes) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_register(context, none, bytes / 2) == TWILL_OK);
    TWILL_CHECK(twill_deregister(context, none) == TWILL_OK);
    (void)twill_test_barrier(bootstrap);
    /* between nodes send() returns EFAULT */
    void *some = calloc(1, bytes);
    twill_status status = rank == 0 ? twill_send(comm, none, bytes, TWILL_U8, 1)
                                    : twill_recv(comm, some, bytes, TWILL_U8, 0);
    free(some);
    TWILL_CHECK(TWILL_ENDS(comm, status, TWILL_ERR_SYSTEM, "a buffer that the kernel cannot read"));
    (void)twill_test_barrier(bootstrap);
    munmap(none, bytes);
}

/* --- arguments -------------------------------------------------------------------------------- */

/* Arguments that all ranks give alike (type, operation, count, root) and that are wrong: every form
 * of call is refused, and the communicator stays usable. If one rank alone gives them, the others
 * hear of it. And addresses, which are a rank's own: all are taken. */

#define MANY 20000

static _Thread_local float src[MANY], dst[MANY];

static twill_status reduce_right(twill_comm *comm, size_t count)
{
    return twill_allreduce(comm, src, dst, count, TWILL_F32, TWILL_SUM);
}

static const struct alike_call {
    const char *said;
    twill_type type;
    twill_op op;
    size_t count;
    int root;
} wrong[] = {{"type 77", (twill_type)77, TWILL_SUM, 8, 0},
             {"op -3", TWILL_F32, (twill_op)-3, 8, 0},
             {"does not take type f32", TWILL_F32, TWILL_BAND, 8, 0},
             {"overflows memory", TWILL_F32, TWILL_SUM, SIZE_MAX / 3, 0},
             {"root 12", TWILL_F32, TWILL_SUM, 8, 12}};

/* Between two good calls. Leaves the message of the one that is refused. */
static twill_status call_in_group(twill_comm *comm, const struct alike_call *w)
{
    (void)TWILL_NOTE(twill_group_start(comm) == TWILL_OK && reduce_right(comm, 8) == TWILL_OK,
                     "the start of the group");
    twill_status status = twill_reduce(comm, src, dst, w->count, w->type, w->op, w->root);
    struct twill_error refused = comm->error;
    (void)TWILL_NOTE(reduce_right(comm, MANY) == TWILL_OK && twill_group_end(comm) == TWILL_OK,
                     "the rest of the group: %s", twill_comm_message(comm));
    comm->error = refused;
    return status;
}

static twill_status call_wrong(twill_comm *comm, const struct alike_call *w, int form)
{
    twill_request *request = NULL;
    switch (form) {
    case 0:
        return twill_reduce(comm, src, dst, w->count, w->type, w->op, w->root);
    case 1:
        return twill_reduce_start(comm, src, dst, w->count, w->type, w->op, w->root, &request);
    case 2:
        return twill_reduce_init(comm, src, dst, w->count, w->type, w->op, w->root, &request);
    default:
        return call_in_group(comm, w);
    }
}

TWILL_TEST_ON(arguments_that_all_give_alike, ranks, TWILL_LAYOUTS("2", "3", "2x1"),
              TWILL_TEST_PATIENT, "TWILL_TUNE=heap_limit=8M")
{
    for (size_t i = 0; i < 4 * TWILL_ARRAY_LENGTH(wrong); i++) {
        const struct alike_call *w = &wrong[i / 4];
        twill_status status = call_wrong(comm, w, (int)(i % 4));
        TWILL_CHECK(TWILL_ENDS(comm, status, TWILL_ERR_ARGUMENT, w->said));
        TWILL_CHECK(strncmp(twill_comm_message(comm), "rank ", 5) == 0);
        src[0] = 1;
        TWILL_CHECK(reduce_right(comm, 8) == TWILL_OK && dst[0] == (float)size);
    }
    /* One rank alone: the others do not wait for it until the deadline. */
    bool odd = rank == size - 1;
    twill_status status = odd ? call_wrong(comm, wrong, 0) : reduce_right(comm, 8);
    if (odd) {
        TWILL_CHECK(status == TWILL_ERR_ARGUMENT);
        status = reduce_right(comm, 8);
    }
    TWILL_CHECK(TWILL_ENDS(comm, status, TWILL_ERR_MISMATCH,
                           odd || twill_comm_nodes(comm) > 1 ? "" : "calls reduce #"));
}

/* A message from and to odd addresses, of one rank or of both. */
TWILL_TEST_ON(messages_at_any_address, ranks, TWILL_LAYOUTS("2", "2x1"), TWILL_TEST_PATIENT)
{
    char out[64], in[64];
    for (int odd = 0; odd < 4; odd++) {
        const int64_t mine[3] = {rank, odd, 7}, want[3] = {1 - rank, odd, 7};
        const int moved = odd >> rank & 1 ? 3 : 0;
        memcpy(out + moved, mine, sizeof(mine));
        TWILL_CHECK(twill_sendrecv(comm, out + moved, 3, 1 - rank, in + moved, 3, 1 - rank,
                                   TWILL_I64) == TWILL_OK);
        TWILL_CHECK(memcmp(in + moved, want, sizeof(want)) == 0);
    }
}

/* --- registration ----------------------------------------------------------------------------- */

/* Arguments of twill_register() and twill_deregister(). */

TWILL_TEST(test_register)
{
    static unsigned char memory[8192];
    twill_comm *comm = NULL;
    assert_int_equal(twill_init(&comm), TWILL_OK);
    twill_context *context = twill_comm_context(comm);
    assert_int_equal(twill_register(NULL, memory, 1), TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_register(context, NULL, 1), TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_register(context, memory, 0), TWILL_ERR_ARGUMENT);
    assert_non_null(strstr(twill_context_message(context), "twill_register"));
    assert_int_equal(twill_deregister(context, memory), TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_register(context, memory, sizeof(memory)), TWILL_OK);
    assert_int_equal(twill_register(context, memory + 100, 1000), TWILL_OK); /* overlapping */
    assert_int_equal(twill_deregister(context, memory + 1), TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_deregister(context, memory), TWILL_OK);
    assert_int_equal(twill_deregister(context, memory), TWILL_ERR_ARGUMENT);
    assert_non_null(strstr(twill_context_message(context), "nothing was registered"));
    void *own = NULL; /* memory of twill_alloc() is not in the list of twill_deregister() */
    assert_int_equal(twill_alloc(context, &own, 100), TWILL_OK);
    assert_int_equal(twill_deregister(context, own), TWILL_ERR_ARGUMENT);
    assert_int_equal(twill_register(context, own, 100), TWILL_OK);
    assert_int_equal(twill_deregister(context, own), TWILL_OK);
    assert_int_equal(twill_free(context, own), TWILL_OK);
    twill_finalize(comm); /* with one region still registered */
}
