/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks as a pipeline: the time of an exchange of one tensor with a server of several shards whose
 * sums take a time that is injected, cut into one chunk and into more. The model: the shard with
 * the most chunks takes all of its part, one chunk after the other. Times are printed, not checked;
 * checked are the sums, that each shard has reduced its chunks, and that one thread alone has
 * touched each chunk. */
#include "kernels/kernels.h"
#include "lib/comm/comm.h"
#include "lib/job/context.h"
#include "lib/server/shard/shard.h"
#include "tests/support/server_steps.h"
#include "tests/support/unit.h"

enum { PIPELINE_SHARDS = 4, PIPELINE_COUNT = 16 * 1024, PIPELINE_STEPS = 3, CHUNKS_MOST = 64 };
#define PIPELINE_DELAY_NS 80000000.0 /* of the reduction of the whole tensor */

struct pipeline_case {
    unsigned chunks;
    double seconds; /* measured, of one exchange */
};

/* Which thread has reduced a chunk, by the address of its parameters. */
struct toucher {
    const void *chunk;
    pthread_t thread;
};

static struct {
    pthread_mutex_t lock;
    struct toucher list[CHUNKS_MOST];
    unsigned count, wrong;
} touchers = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void note_touch(const void *chunk)
{
    unsigned i = 0;
    pthread_mutex_lock(&touchers.lock);
    while (i < touchers.count && touchers.list[i].chunk != chunk)
        i++;
    if (i == touchers.count && i < CHUNKS_MOST)
        touchers.list[touchers.count++] = (struct toucher){chunk, pthread_self()};
    else if (i == CHUNKS_MOST || !pthread_equal(touchers.list[i].thread, pthread_self()))
        touchers.wrong++;
    pthread_mutex_unlock(&touchers.lock);
}

/* Sleeping threads do not need cores of the machine. */
static void sleep_for(size_t count)
{
    const struct timespec delay = {0, (long)(PIPELINE_DELAY_NS * (double)count / PIPELINE_COUNT)};
    nanosleep(&delay, NULL);
}

static void reduce_slowly(void *dst, const void *const *src, unsigned nsrc, size_t count,
                          uint32_t divisor, unsigned flags)
{
    sleep_for(count);
    note_touch(dst);
    twill_kernels_at(0)->reduce[TWILL_F32][TWILL_SUM](dst, src, nsrc, count, divisor, flags);
}

static bool push_and_check(twill_server *server, int rank, double *seconds)
{
    float *gradient = twill_server_gradient(server, 0);
    uint64_t begin = twill_now();
    for (unsigned step = 0; step < PIPELINE_STEPS; step++) {
        for (size_t i = 0; i < PIPELINE_COUNT; i++)
            gradient[i] = (float)((i + step) % 7) * (float)rank;
        TWILL_REQUIRE(twill_test_server_step(server, 0));
        const float *parameters = twill_server_parameters(server, 0);
        for (size_t i = 0; i < PIPELINE_COUNT; i++)
            TWILL_REQUIRE(parameters[i] == (float)((i + step) % 7) * 3); /* of ranks 1 and 2 */
    }
    *seconds = (double)(twill_now() - begin) * 1e-9 / PIPELINE_STEPS;
    return true;
}

static struct pipeline_case pipelines[] = {{1, 0}, {2, 0}, {4, 0}, {16, 0}, {CHUNKS_MOST, 0}};

TWILL_TEST_CASES(test_pipeline, ranks, pipelines, "3", TWILL_TEST_PATIENT)
{
    twill_context *context = twill_comm_context(comm);
    twill_server *server;
    twill_server_options options;
    struct twill_kernels slow;
    double seconds;
    slow = *context->machine.kernels;
    slow.reduce[TWILL_F32][TWILL_SUM] = reduce_slowly;
    context->machine.kernels = &slow;
    twill_server_defaults(&options);
    options.layout = TWILL_SERVER_NC;
    options.threads = PIPELINE_SHARDS;
    options.op = TWILL_SUM;
    options.chunk_bytes = PIPELINE_COUNT * sizeof(float) / c->chunks;
    TWILL_CHECK(
        twill_test_server_open(&server, comm, &options, TWILL_TEST_WEIGHTS(PIPELINE_COUNT)));
    if (rank == 0) {
        touchers.count = 0;
        TWILL_CHECK(twill_test_barrier(bootstrap));
    } else {
        TWILL_CHECK(twill_test_barrier(bootstrap));
    }
    if (rank > 0)
        TWILL_CHECK(push_and_check(server, rank, rank == 1 ? &c->seconds : &seconds));
    else {
        TWILL_CHECK(twill_server_serve(server) == TWILL_OK);
        for (unsigned t = 0; t < PIPELINE_SHARDS; t++)
            TWILL_CHECK(server->shard[t].count.updates ==
                        PIPELINE_STEPS * (uint64_t)server->shard[t].chunks);
    }
    if (rank == 0) {
        double most = (double)((c->chunks + PIPELINE_SHARDS - 1) / PIPELINE_SHARDS) / c->chunks;
        TWILL_CHECK(touchers.count == c->chunks && touchers.wrong == 0);
        printf("%3u chunks: %6.1f ms, by the model %6.1f\n", c->chunks, c->seconds * 1e3,
               PIPELINE_DELAY_NS * 1e-6 * most);
    }
    twill_server_destroy(server);
}
