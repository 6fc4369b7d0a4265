/* SPDX-License-Identifier: Apache-2.0 */
/* Several threads of one rank with a communicator each, in one context: concurrent collectives,
 * allocations, created operations, communicators made and destroyed; and one that fails. Mainly for
 * the thread sanitizer. */
#include "lib/engine/engine.h"
#include "tests/support/numbers.h"
#include "tests/support/unit.h"

#include <dirent.h>

#define MOST_THREADS 4
#define MOST_COUNT   3000u

/* libfabric 1.17 sometimes leaks a connection that is closed while it is being made. */
TWILL_TEST_LEAKS("leak:libfabric.so")

struct thread_scene {
    int size, threads, calls;
    const char *nodes;
    int failing;                /* the thread whose ranks disagree in the middle, or -1 */
    const char *progress;       /* TWILL_PROGRESS */
    twill_bootstrap *bootstrap; /* of the rank that this process plays */
    void (*play)(const struct thread_scene *scene, twill_comm *all);
};

struct worker {
    const struct thread_scene *scene;
    twill_comm *comm;
    int number; /* of the thread; equal on all ranks of a communicator */
    pthread_t thread;
};

static bool reduce_worker(struct worker *worker, size_t count, int64_t *data, uint64_t seed)
{
    int rank = twill_comm_rank(worker->comm), size = worker->scene->size;
    for (size_t i = 0; i < count; i++)
        data[i] = (int64_t)(seed % 1000) + rank * (int64_t)i;
    TWILL_REQUIRE(twill_test_fine(
        worker->comm, twill_allreduce(worker->comm, data, data, count, TWILL_I64, TWILL_SUM)));
    for (size_t i = 0; i < count; i++)
        TWILL_REQUIRE(data[i] ==
                      size * (int64_t)(seed % 1000) + size * (size - 1) / 2 * (int64_t)i);
    return true;
}

static bool broadcast_worker(struct worker *worker, size_t count, int64_t *data, uint64_t seed)
{
    int root = (int)(seed % (uint64_t)worker->scene->size);
    bool mine = twill_comm_rank(worker->comm) == root;
    for (size_t i = 0; i < count; i++)
        data[i] = mine ? (int64_t)(seed + i) : -1;
    TWILL_REQUIRE(twill_test_fine(
        worker->comm, twill_broadcast(worker->comm, data, data, count, TWILL_I64, root)));
    for (size_t i = 0; i < count; i++)
        TWILL_REQUIRE(data[i] == (int64_t)(seed + i));
    return true;
}

/* Three requests at once, waited for in another order. */
static bool begin_several(struct worker *worker, size_t count, int64_t *data, uint64_t seed)
{
    int size = worker->scene->size;
    twill_request *request[3];
    size_t each = count / 3 + 1;
    for (size_t i = 0; i < 3 * each; i++)
        data[i] = (int64_t)(seed % 100 + i);
    for (size_t r = 0; r < 3; r++)
        TWILL_REQUIRE(twill_test_fine(
            worker->comm, twill_allreduce_start(worker->comm, data + r * each, data + r * each,
                                                each, TWILL_I64, TWILL_SUM, &request[r])));
    for (size_t r = 3; r-- > 0;)
        TWILL_REQUIRE(twill_test_fine(worker->comm, twill_wait(&request[r])));
    for (size_t i = 0; i < 3 * each; i++)
        TWILL_REQUIRE(data[i] == size * (int64_t)(seed % 100 + i));
    return true;
}

static void add(const void *left, const void *right, void *result, size_t count, twill_type type,
                void *user)
{
    for (size_t i = 0; i < count; i++)
        ((int64_t *)result)[i] = ((const int64_t *)left)[i] + ((const int64_t *)right)[i];
}

/* What a thread may do to the context while others use it. */
static bool use_context(struct worker *worker, int64_t *factor)
{
    twill_context *context = twill_comm_context(worker->comm);
    twill_op op, scaled;
    twill_counters counters;
    TWILL_REQUIRE(twill_op_create(context, &op, add, worker, 0, 1) == TWILL_OK);
    TWILL_REQUIRE(twill_op_create_scaled(context, &scaled, TWILL_I64, factor) == TWILL_OK);
    TWILL_REQUIRE(op != scaled && strcmp(twill_op_name(op), "created") == 0);
    TWILL_REQUIRE(twill_op_destroy(context, op) == TWILL_OK);
    TWILL_REQUIRE(twill_op_destroy(context, scaled) == TWILL_OK);
    TWILL_REQUIRE(twill_free(context, factor + 1) == TWILL_ERR_ARGUMENT);
    return twill_comm_counters(worker->comm, &counters) == TWILL_OK;
}

static bool one_call(struct worker *worker, uint64_t *state, int64_t *own)
{
    twill_context *context = twill_comm_context(worker->comm);
    uint64_t seed = twill_test_random(state) >> 8;
    size_t count = seed % 3 == 0 ? 1 : seed % MOST_COUNT;
    void *memory = own;
    bool shared = seed % 5 < 2;
    if (shared)
        TWILL_REQUIRE(twill_alloc(context, &memory, (MOST_COUNT + 3) * sizeof(int64_t)) ==
                      TWILL_OK);
    switch (seed % 7) {
    case 0:
        TWILL_REQUIRE(twill_test_fine(worker->comm, twill_barrier(worker->comm)));
        TWILL_REQUIRE(use_context(worker, own));
        break;
    case 1:
    case 2:
        TWILL_REQUIRE(broadcast_worker(worker, count, memory, seed));
        break;
    case 3:
    case 4:
        TWILL_REQUIRE(begin_several(worker, count, memory, seed));
        break;
    default:
        TWILL_REQUIRE(reduce_worker(worker, count, memory, seed));
    }
    /* Peers may read the buffer until they have left the call, too. */
    TWILL_REQUIRE(!shared || twill_test_fine(worker->comm, twill_barrier(worker->comm)));
    TWILL_REQUIRE(!shared || twill_free(context, memory) == TWILL_OK);
    return true;
}

/* The last rank calls with another count: an error on all ranks of this communicator only. */
static bool worker_disagree(struct worker *worker, int64_t *data)
{
    bool odd = twill_comm_rank(worker->comm) == worker->scene->size - 1;
    TWILL_REQUIRE(
        twill_test_barrier(worker->scene->bootstrap)); /* all ranks have left the call before */
    twill_status status =
        twill_allreduce(worker->comm, data, data, odd ? 9 : 8, TWILL_I64, TWILL_SUM);
    return TWILL_NOTE(status == TWILL_ERR_MISMATCH &&
                          twill_barrier(worker->comm) == TWILL_ERR_BROKEN,
                      "status %d: %s", status, twill_comm_message(worker->comm));
}

static void *work(void *argument)
{
    struct worker *worker = argument;
    uint64_t state = (uint64_t)worker->number * 7919 + 1;
    int64_t *own = calloc(MOST_COUNT + 3, sizeof(*own));
    bool good = own != NULL;
    for (int i = 0; good && i < worker->scene->calls && !twill_test_failed(); i++) {
        if (worker->number == worker->scene->failing && i == worker->scene->calls / 2) {
            good = worker_disagree(worker, own);
            break;
        }
        good = one_call(worker, &state, own);
    }
    free(own);
    return NULL;
}

/* While the threads work, make communicators and destroy them. */
static bool come_and_go(const struct thread_scene *scene, twill_comm *all)
{
    struct worker self = {.scene = scene};
    int64_t data[64];
    for (int i = 0; i < 6; i++) {
        TWILL_REQUIRE(twill_test_fine(all, i % 2 ? twill_comm_split(&self.comm, all, 0, 0)
                                                 : twill_comm_dup(&self.comm, all)));
        TWILL_REQUIRE(reduce_worker(&self, 64, data, (uint64_t)i));
        twill_comm_destroy(self.comm);
    }
    return true;
}

/* Counters may be read during calls of other threads, and only grow. */
static void *watch(void *argument)
{
    const struct worker *worker = argument;
    twill_counters now, before = {0};
    bool good = true;
    for (int reads = 0; good && reads < 2000; reads++) {
        good = twill_comm_counters(worker->comm, &now) == TWILL_OK && now.calls >= before.calls &&
               now.bytes_sent >= before.bytes_sent && now.bytes_wire >= before.bytes_wire &&
               now.bytes_copied >= before.bytes_copied;
        before = now;
    }
    TWILL_NOTE(good, "counters that are read meanwhile");
    return NULL;
}

static void work_together(const struct thread_scene *scene, twill_comm *all)
{
    struct worker worker[MOST_THREADS];
    pthread_t watcher;
    for (int t = 0; t < scene->threads; t++) {
        worker[t] = (struct worker){.scene = scene, .number = t};
        TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&worker[t].comm, all)));
    }
    for (int t = 0; t < scene->threads; t++)
        pthread_create(&worker[t].thread, NULL, work, &worker[t]);
    pthread_create(&watcher, NULL, watch, &worker[0]);
    (void)come_and_go(scene, all);
    pthread_join(watcher, NULL);
    for (int t = 0; t < scene->threads; t++)
        pthread_join(worker[t].thread, NULL);
    for (int t = 0; t < scene->threads && !twill_test_failed(); t++)
        twill_comm_destroy(worker[t].comm);
}

#define THREADS_LARGE ((size_t)(TEST_TSAN ? 100000 : 300000))

static bool summed(const struct thread_scene *scene, const int64_t *data)
{
    for (size_t i = 0; i < THREADS_LARGE; i++)
        TWILL_REQUIRE(data[i] == scene->size * (int64_t)i);
    return true;
}

static bool begin_large(twill_comm *comm, int64_t *data, twill_request **request)
{
    for (size_t i = 0; i < THREADS_LARGE; i++)
        data[i] = (int64_t)i;
    return twill_test_fine(comm, twill_allreduce_start(comm, data, data, THREADS_LARGE, TWILL_I64,
                                                       TWILL_SUM, request));
}

/* Return how often the progress threads of this process have gone to sleep; -1: one is awake. */
static long sleeps_of_progress(void)
{
    char path[300], line[128], state;
    long sum = 0, one;
    bool awake = false;
    struct dirent *entry;
    DIR *tasks = opendir("/proc/self/task");
    while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
        bool ours = false;
        snprintf(path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
            ours = ours || strcmp(line, "Name:\ttwill-progress\n") == 0;
            if (ours && sscanf(line, "State: %c", &state) == 1)
                awake = awake || state != 'S';
            if (ours && sscanf(line, "voluntary_ctxt_switches: %ld", &one) == 1)
                sum += one;
        }
        if (file != NULL)
            fclose(file);
    }
    if (tasks != NULL)
        closedir(tasks);
    return awake ? -1 : sum;
}

/* With nothing under way on any rank, the progress threads sleep without polling. A thread that
 * only naps wakes within this time; on a busy machine the last one may take a while to fall asleep.
 */
static void threads_idle(twill_comm *all)
{
    TWILL_CHECK(twill_test_fine(all, twill_barrier(all)));
    if (twill_comm_rank(all) == 0) {
        uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE;
        long before, now = -1;
        do {
            before = now;
            usleep(300000);
            now = sleeps_of_progress();
            TWILL_CHECK(twill_now() < deadline);
        } while (now <= 0 || now != before);
    }
    TWILL_CHECK(twill_test_fine(all, twill_barrier(all)));
}

/* The request completes while no rank calls twill. */
static void progress_by_itself(const struct thread_scene *scene, twill_comm *all)
{
    int64_t *data = calloc(THREADS_LARGE, sizeof(*data));
    twill_request *request;
    uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE;
    TWILL_CHECK(data != NULL && begin_large(all, data, &request));
    while (!twill_request_done(request) && twill_now() < deadline && !twill_test_failed())
        usleep(1000);
    TWILL_CHECK(twill_request_done(request));
    TWILL_CHECK(twill_test_fine(all, twill_wait(&request)) && summed(scene, data));
    free(data);
    threads_idle(all);
}

/* A request on one communicator completes while the rank waits on another. */
static void progress_by_others(const struct thread_scene *scene, twill_comm *all)
{
    int64_t *data = calloc(THREADS_LARGE, sizeof(*data));
    twill_request *request;
    twill_comm *other;
    uint64_t deadline = twill_now() + TWILL_TEST_PATIENCE;
    TWILL_CHECK(twill_test_fine(all, twill_comm_dup(&other, all)));
    TWILL_CHECK(data != NULL && begin_large(all, data, &request));
    for (int32_t done = 0; done == 0 && twill_now() < deadline;) {
        int32_t mine = twill_request_done(request);
        usleep(twill_comm_rank(all) == 0 ? 2000 : 0); /* the others wait, and advance it */
        TWILL_CHECK(
            twill_test_fine(other, twill_allreduce(other, &mine, &done, 1, TWILL_I32, TWILL_MIN)));
    }
    TWILL_CHECK(twill_request_done(request));
    TWILL_CHECK(twill_test_fine(all, twill_wait(&request)) && summed(scene, data));
    twill_comm_destroy(other);
    free(data);
}

static void scene_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct thread_scene own = *(const struct thread_scene *)user, *scene = &own;
    twill_comm *all;
    own.bootstrap = bootstrap;
    if (twill_test_open(&all, bootstrap, scene->nodes,
                        twill_test_text("TWILL_PROGRESS=%s", scene->progress),
                        "TWILL_TUNE=heap_limit=8M,segment=8K,segment_net=8K"))
        scene->play(scene, all);
    if (!twill_test_failed()) /* else other threads may be in any state */
        twill_test_close(all);
}

static const struct thread_scene scenes[] = {
    {1, 3, 30, "", -1, "none", NULL, work_together},
    {2, 3, 30, "", -1, "none", NULL, work_together},
    {3, 4, 24, "", 1, "none", NULL, work_together},
    {4, 2, 16, "2x2", -1, "none", NULL, work_together},
    {4, 2, 16, "2x2", 0, "none", NULL, work_together},
    {3, 3, 20, "", -1, "thread", NULL, work_together},
    {4, 2, 16, "2x2", 1, "thread:0", NULL, work_together},
    {3, 0, 0, "", -1, "thread", NULL, progress_by_itself},
    {4, 0, 0, "2x2", -1, "thread", NULL, progress_by_itself},
    {3, 0, 0, "", -1, "none", NULL, progress_by_others},
    {4, 0, 0, "2x2", -1, "none", NULL, progress_by_others},
};

static void run_scenes(void (*run)(int size, twill_rank_fn fn, void *user), bool all)
{
    for (size_t s = 0; s < TWILL_ARRAY_LENGTH(scenes); s++) {
        struct thread_scene scene = scenes[s];
        scene.calls /= TEST_FEWER ? 2 : 1;
        if (all || scene.size == 3)
            run(scene.size, scene_rank, &scene);
    }
}

TWILL_TEST(ranks_as_threads)
{
    run_scenes(twill_test_run_ranks, true);
}

TWILL_TEST(ranks_as_processes)
{
    run_scenes(twill_test_run_processes, false);
}
