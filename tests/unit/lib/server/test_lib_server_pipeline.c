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
        TWILL_REQUIRE(twill_server_push_pull(server, 0) == TWILL_OK);
        TWILL_REQUIRE(twill_server_wait(server, 0) == TWILL_OK);
        const float *parameters = twill_server_parameters(server, 0);
        for (size_t i = 0; i < PIPELINE_COUNT; i++)
            TWILL_REQUIRE(parameters[i] == (float)((i + step) % 7) * 3); /* of ranks 1 and 2 */
    }
    *seconds = (double)(twill_now() - begin) * 1e-9 / PIPELINE_STEPS;
    return true;
}

static void rank_pipelined(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct pipeline_case *c = user;
    twill_context *context;
    twill_comm *comm;
    twill_server *server = NULL;
    twill_server_options options;
    struct twill_kernels slow;
    double seconds;
    twill_tensor tensor = {.name = "weights", .count = PIPELINE_COUNT, .type = TWILL_F32};
    TWILL_CHECK(twill_test_join(&context, &comm, bootstrap, "", TWILL_TEST_PATIENT));
    slow = *context->machine.kernels;
    slow.reduce[TWILL_F32][TWILL_SUM] = reduce_slowly;
    context->machine.kernels = &slow;
    twill_server_defaults(&options);
    options.layout = TWILL_SERVER_NC;
    options.threads = PIPELINE_SHARDS;
    options.op = TWILL_SUM;
    options.chunk_bytes = PIPELINE_COUNT * sizeof(float) / c->chunks;
    TWILL_CHECK(twill_server_create(&server, comm, &options) == TWILL_OK);
    TWILL_CHECK(twill_server_add(server, &tensor, NULL) == TWILL_OK);
    TWILL_CHECK(twill_server_commit(server) == TWILL_OK);
    if (rank > 0)
        TWILL_CHECK(push_and_check(server, rank, rank == 1 ? &c->seconds : &seconds));
    else {
        TWILL_CHECK(twill_server_serve(server) == TWILL_OK);
        for (unsigned t = 0; t < PIPELINE_SHARDS; t++)
            TWILL_CHECK(server->shard[t].count.updates ==
                        PIPELINE_STEPS * (uint64_t)server->shard[t].chunks);
    }
    twill_server_destroy(server);
    twill_test_disconnect(comm, context);
}

TWILL_TEST(test_pipeline)
{
    const unsigned chunks[] = {1, 2, 4, 16, CHUNKS_MOST};
    printf("an exchange with %d shards; a sum of the whole tensor takes %.0f ms\n", PIPELINE_SHARDS,
           PIPELINE_DELAY_NS * 1e-6);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(chunks); i++) {
        struct pipeline_case c = {chunks[i], 0};
        double most = (double)((chunks[i] + PIPELINE_SHARDS - 1) / PIPELINE_SHARDS) / chunks[i];
        touchers.count = 0;
        twill_test_run_ranks(3, rank_pipelined, &c);
        assert_int_equal(touchers.count, chunks[i]);
        assert_int_equal(touchers.wrong, 0);
        printf("%3u chunks: %6.1f ms, by the model %6.1f\n", chunks[i], c.seconds * 1e3,
               PIPELINE_DELAY_NS * 1e-6 * most);
    }
}
