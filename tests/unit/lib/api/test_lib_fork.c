/* SPDX-License-Identifier: Apache-2.0 */
/* A child that is forked at any moment, while other threads of its parent are in calls, hold locks
 * and reduce gradients: every call returns TWILL_ERR_FORKED at once, and what it destroys stays the
 * parent's. */
#include "lib/twill_recover.h"
#include "lib/twill_server.h"
#include "lib/twill_train.h"
#include "tests/support/unit.h"

#define EXPECT(cond) ((void)TWILL_NOTE((cond), "%s", #cond))

enum { FORKS = 30, HANGS_AFTER = 20 /* seconds; calls take microseconds */ };

struct forker {
    twill_context *context;
    twill_comm *comm, *busy; /* `busy` is in a call of another thread nearly always */
    twill_gradients *set;
    twill_server *server;
    twill_request *received; /* in progress */
    void *memory;
    _Atomic bool stops;
    float from_peer;
};

/* Reduce until all ranks want to stop. */
static void *reduce_on(void *user)
{
    struct forker *f = user;
    float stops = 0;
    while (stops == 0) {
        float mine = atomic_load(&f->stops) ? 1 : 0;
        EXPECT(twill_allreduce(f->busy, &mine, &stops, 1, TWILL_F32, TWILL_MIN) == TWILL_OK);
    }
    return NULL;
}

static void combine(const void *left, const void *right, void *result, size_t count,
                    twill_type type, void *user)
{
}

/* Take the lock of the context again and again. */
static void *allocate_on(void *user)
{
    struct forker *f = user;
    while (!atomic_load(&f->stops)) {
        void *memory = NULL;
        twill_op op;
        EXPECT(twill_alloc(f->context, &memory, 4096) == TWILL_OK &&
               twill_free(f->context, memory) == TWILL_OK);
        EXPECT(twill_op_create(f->context, &op, combine, NULL, 0, 1) == TWILL_OK &&
               twill_op_destroy(f->context, op) == TWILL_OK);
    }
    return NULL;
}

#define IS_FORKED(call)                                                                            \
    do {                                                                                           \
        if ((call) != TWILL_ERR_FORKED) {                                                          \
            fprintf(stderr, "child: %s\n", #call);                                                 \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static void call_on_comm(struct forker *f, twill_comm *comm)
{
    float x = 1;
    uint64_t flags = 0;
    int done = 0;
    twill_comm *made;
    twill_request *request;
    IS_FORKED(twill_allreduce(comm, &x, &x, 1, TWILL_F32, TWILL_SUM));
    IS_FORKED(twill_barrier_start(comm, &request));
    IS_FORKED(twill_barrier_init(comm, &request));
    IS_FORKED(twill_send(comm, &x, 1, TWILL_F32, 0));
    IS_FORKED(twill_recv_start(comm, &x, 1, TWILL_F32, 0, &request));
    IS_FORKED(twill_group_start(comm));
    if (strstr(twill_comm_message(comm), ": twill_group_start: this process was forked") == NULL)
        _exit(2);
    IS_FORKED(twill_test(&f->received, &done));
    IS_FORKED(twill_wait(&f->received));
    IS_FORKED(twill_comm_dup(&made, comm));
    IS_FORKED(twill_comm_split(&made, comm, 0, 0));
    IS_FORKED(twill_comm_agree(comm, &flags));
    IS_FORKED(twill_comm_shrink(&made, comm));
    IS_FORKED(twill_comm_revoke(comm));
}

static void call_on_others(struct forker *f)
{
    int done;
    void *memory;
    twill_comm *made;
    twill_op op;
    twill_server_counters counters;
    IS_FORKED(twill_alloc(f->context, &memory, 8));
    IS_FORKED(twill_free(f->context, f->memory));
    IS_FORKED(twill_comm_create(&made, f->context));
    (void)twill_op_create(f->context, &op, combine, NULL, 0, 1);
    (void)twill_context_why(f->context, "allreduce 8 f32", 0);
    IS_FORKED(twill_gradients_ready(f->set, 0));
    IS_FORKED(twill_gradients_test(f->set, 0, &done));
    IS_FORKED(twill_gradients_wait_all(f->set));
    IS_FORKED(twill_gradients_check(f->set));
    IS_FORKED(twill_gradients_drain(f->set));
    IS_FORKED(twill_gradients_set_late(f->set, 1));
    IS_FORKED(twill_server_push(f->server, 0));
    IS_FORKED(twill_server_wait(f->server, 0));
    IS_FORKED(twill_server_leave(f->server));
    IS_FORKED(twill_server_serve(f->server));
    IS_FORKED(twill_server_count(f->server, &counters));
    IS_FORKED(twill_server_rebuild(&f->server, f->comm));
}

static void be_child(struct forker *f)
{
    alarm(HANGS_AFTER);
    if (*(float *)f->memory != 7)
        _exit(3);
    call_on_comm(f, f->comm);
    call_on_comm(f, f->busy);
    call_on_others(f);
    twill_server_destroy(f->server);
    twill_gradients_destroy(f->set);
    twill_comm_leave(f->busy);
    twill_test_disconnect(f->comm, f->context);
    _exit(0);
}

static bool open_all(struct forker *f, twill_bootstrap *bootstrap, const char *nodes)
{
    twill_gradients_options options;
    twill_server_options served;
    const twill_tensor tensor = {.name = "a", .count = 5, .type = TWILL_F32};
    TWILL_REQUIRE(twill_test_join(&f->context, &f->comm, bootstrap, nodes, TWILL_TEST_PATIENT,
                                  "TWILL_TUNE=heap_limit=16M"));
    TWILL_REQUIRE(twill_comm_dup(&f->busy, f->comm) == TWILL_OK);
    TWILL_REQUIRE(twill_alloc(f->context, &f->memory, 64) == TWILL_OK);
    *(float *)f->memory = 7;
    twill_gradients_defaults(&options);
    options.threads = 1;
    TWILL_REQUIRE(twill_gradients_create(&f->set, f->comm, &options) == TWILL_OK &&
                  twill_gradients_add(f->set, &tensor, NULL) == TWILL_OK &&
                  twill_gradients_commit(f->set) == TWILL_OK);
    twill_server_defaults(&served);
    served.threads = 1;
    TWILL_REQUIRE(twill_server_create(&f->server, f->comm, &served) == TWILL_OK &&
                  twill_server_add(f->server, &tensor, NULL) == TWILL_OK &&
                  twill_server_commit(f->server) == TWILL_OK);
    return true;
}

/* A step of the set and of the server, in the middle of which a child is forked. */
static bool fork_in_step(struct forker *f, int turn)
{
    int status = -1;
    TWILL_REQUIRE(twill_gradients_ready(f->set, 0) == TWILL_OK);
    TWILL_REQUIRE(twill_server_push_pull(f->server, 0) == TWILL_OK);
    usleep((useconds_t)(turn * 37 % 300));
    pid_t child = fork();
    TWILL_REQUIRE(child >= 0);
    if (child == 0)
        be_child(f);
    TWILL_REQUIRE(waitpid(child, &status, 0) == child);
    TWILL_REQUIRE(WIFEXITED(status) && WEXITSTATUS(status) == 0, "child %d: wait status %#x", turn,
                  (unsigned)status);
    TWILL_REQUIRE(twill_gradients_wait_all(f->set) == TWILL_OK);
    return TWILL_NOTE(twill_server_wait(f->server, 0) == TWILL_OK, "wait");
}

static void fork_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    static struct forker f;
    pthread_t reduces, allocates;
    float mine = (float)rank;
    TWILL_CHECK(open_all(&f, bootstrap, user));
    TWILL_CHECK(twill_recv_start(f.comm, &f.from_peer, 1, TWILL_F32, size - 1 - rank,
                                 &f.received) == TWILL_OK);
    TWILL_CHECK(pthread_create(&reduces, NULL, reduce_on, &f) == 0 &&
                pthread_create(&allocates, NULL, allocate_on, &f) == 0);
    for (int turn = 0; turn < FORKS && fork_in_step(&f, turn); turn++)
        ;
    atomic_store(&f.stops, true);
    pthread_join(reduces, NULL);
    pthread_join(allocates, NULL);
    TWILL_CHECK(twill_send(f.comm, &mine, 1, TWILL_F32, size - 1 - rank) == TWILL_OK);
    TWILL_CHECK(twill_wait(&f.received) == TWILL_OK && f.from_peer == (float)(size - 1 - rank));
    twill_server_destroy(f.server);
    twill_gradients_destroy(f.set);
    TWILL_CHECK(*(float *)f.memory == 7 && twill_free(f.context, f.memory) == TWILL_OK);
    twill_comm_destroy(f.busy);
    twill_test_disconnect(f.comm, f.context);
}

TWILL_TEST(forked_at_any_moment)
{
    twill_test_run_processes(1, fork_rank, "");
    twill_test_run_processes(2, fork_rank, "");
    twill_test_run_processes(2, fork_rank, "2x1");
}
