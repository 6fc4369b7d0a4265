/* SPDX-License-Identifier: Apache-2.0 */
/* When a chunk is updated, answered and handed out, in every mode, with a replica and without:
 * random orders of three workers, acknowledgements of the replica and a death in between. What is
 * counted is how many gradients of each worker are where. chunk.c is compiled into this program,
 * with doubles of what it calls. */
#define twill_shard_pushed  chunk_test_pushed
#define twill_shard_deliver chunk_test_deliver
#define twill_replica_send  chunk_test_send
#define twill_chunk_add     chunk_test_add
#define twill_chunk_update  chunk_test_update
#define twill_chunk_factor  chunk_test_factor
#include "lib/server/shard/chunk.c"
#include "tests/support/unit.h"

enum { CHUNK_WORKERS = 3, CHUNK_ORDERS = 400, CHUNK_SEEDS = 160 };

/* How many gradients of each worker there are in something. */
struct gradient_counts {
    uint64_t of[CHUNK_WORKERS];
};

static struct chunk_test {
    struct twill_server server;
    struct twill_shard shard;
    struct twill_chunk chunk;
    struct twill_chunk_worker chunk_worker[CHUNK_WORKERS];
    struct twill_shard_worker worker[CHUNK_WORKERS];
    bool sending; /* to the replica */
    const void *data[CHUNK_WORKERS];
    float factor[CHUNK_WORKERS];
    uint64_t staleness[TWILL_STALENESS_MOST];
    char gradient[CHUNK_WORKERS]; /* their addresses stand for the gradients */
    float sum;

    struct gradient_counts ordered, parameters, waiting, sent, copied, refused;
    uint64_t dropped;
    bool push[CHUNK_WORKERS], pull[CHUNK_WORKERS]; /* under way */
    uint64_t random;
} test;

/* --- doubles ---------------------------------------------------------------------------------- */

/* Return what the server has of a worker's gradients, or what outlives it. */
static uint64_t gradients_kept(uint32_t w)
{
    return test.shard.to != NULL ? test.copied.of[w] : test.parameters.of[w] + test.waiting.of[w];
}

void twill_shard_pushed(struct twill_shard *shard, const struct twill_chunk *chunk, uint32_t w)
{
    assert_true(test.push[w]);
    test.push[w] = false;
    test.refused.of[w] += shard->count.dropped - test.dropped;
    test.dropped = shard->count.dropped;
    assert_int_equal(gradients_kept(w) + test.refused.of[w], test.ordered.of[w]);
}

void twill_shard_deliver(struct twill_shard *shard, struct twill_chunk *chunk, uint32_t w)
{
    twill_server_mode mode = shard->server->options.mode;
    assert_true(test.pull[w] && !shard->worker[w].gone);
    test.pull[w] = false;
    chunk->worker[w].base = chunk->version;
    for (uint32_t v = 0; v < CHUNK_WORKERS; v++) {
        if (shard->to != NULL)
            assert_int_equal(test.copied.of[v], test.parameters.of[v] + test.waiting.of[v]);
        if (mode == TWILL_SERVER_BOUNDED && !shard->worker[v].gone)
            assert_true(test.parameters.of[v] + (uint64_t)shard->server->options.k >=
                        test.ordered.of[w]);
    }
    if (holds(shard) || mode == TWILL_SERVER_BOUNDED)
        assert_int_equal(test.parameters.of[w] + test.refused.of[w], test.ordered.of[w]);
}

void twill_replica_send(struct twill_shard *shard, struct twill_chunk *chunk)
{
    assert_true(chunk->replicating && !test.sending);
    test.sending = true;
    for (uint32_t w = 0; w < CHUNK_WORKERS; w++)
        test.sent.of[w] = test.parameters.of[w] + test.waiting.of[w];
}

static uint32_t worker_of(const void *data)
{
    return (uint32_t)((const char *)data - test.gradient);
}

void twill_chunk_add(struct twill_shard *shard, const struct twill_chunk *chunk, float *sum,
                     const void *data, float factor)
{
    assert_true(sum == chunk->sum && !test.sending);
    test.waiting.of[worker_of(data)]++;
}

void twill_chunk_update(struct twill_shard *shard, struct twill_chunk *chunk,
                        const void *const *data, const float *factor, unsigned n, float scale)
{
    assert_true(!test.sending);
    for (unsigned i = 0; i < n; i++)
        test.parameters.of[worker_of(data[i])]++;
    for (uint32_t w = 0; w < CHUNK_WORKERS && n == 0; w++) {
        test.parameters.of[w] += test.waiting.of[w];
        test.waiting.of[w] = 0;
    }
}

float twill_chunk_factor(const struct twill_shard *shard, const struct twill_chunk *chunk,
                         uint32_t worker)
{
    return 1;
}

/* --- orders ----------------------------------------------------------------------------------- */

static void chunk_test_begin(twill_server_mode mode, uint64_t seed)
{
    memset(&test, 0, sizeof(test));
    test.random = seed * 2654435761u + 1;
    test.server.options.mode = mode;
    test.server.options.k = seed / 2 % 2 == 0 ? 1 : 2;
    test.server.options.op = TWILL_AVG;
    test.server.roles.workers = CHUNK_WORKERS;
    test.server.rule.need = mode == TWILL_SERVER_ASYNC || mode == TWILL_SERVER_BOUNDED
                                ? 1
                                : (uint32_t)test.server.options.k;
    test.shard.server = &test.server;
    test.shard.chunk = &test.chunk;
    test.shard.chunks = 1;
    test.shard.worker = test.worker;
    test.shard.count.staleness = test.staleness;
    test.shard.data = test.data;
    test.shard.factor = test.factor;
    test.shard.to = seed % 2 != 0 ? (void *)&test.sending : NULL;
    atomic_store(&test.shard.present, CHUNK_WORKERS);
    test.chunk.worker = test.chunk_worker;
    if (mode == TWILL_SERVER_K_BATCH_SYNC || mode == TWILL_SERVER_K_BATCH_ASYNC ||
        mode == TWILL_SERVER_SOFTSYNC)
        test.chunk.sum = &test.sum;
}

static unsigned chunk_test_random(unsigned below)
{
    test.random = test.random * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (unsigned)(test.random >> 33) % below;
}

static void order(uint32_t w, unsigned kind)
{
    bool push = (kind & TWILL_ORDER_PUSH) != 0 && !test.push[w];
    bool pull = (kind & TWILL_ORDER_PULL) != 0 && !test.pull[w];
    if (push) {
        test.push[w] = true;
        twill_chunk_push(&test.shard, &test.chunk, w, &test.gradient[w], ++test.ordered.of[w]);
    }
    if (pull) {
        test.pull[w] = true;
        twill_chunk_pull(&test.shard, &test.chunk, w);
    }
}

static void acknowledge(void)
{
    if (!test.sending)
        return;
    test.sending = false;
    test.copied = test.sent;
    twill_chunk_copied(&test.shard, &test.chunk);
}

/* As twill_shard_lose() does for each chunk. */
static void lose_worker(uint32_t w)
{
    test.worker[w].gone = true;
    atomic_fetch_sub(&test.shard.present, 1);
    test.chunk_worker[w].pulls = test.pull[w] = false;
    twill_chunk_recheck(&test.shard, &test.chunk);
}

/* --- what waits ------------------------------------------------------------------------------- */

static uint64_t slowest_ordered(void)
{
    uint64_t least = UINT64_MAX;
    for (uint32_t w = 0; w < CHUNK_WORKERS; w++)
        if (!test.worker[w].gone)
            least = twill_min(least, test.ordered.of[w]);
    return least;
}

/* Nothing is on the way to the replica: what waits now waits for a worker. */
static void check_waiting(void)
{
    twill_server_mode mode = test.server.options.mode;
    unsigned pushes = 0, held_of_dead = 0, k = (unsigned)test.server.options.k;
    for (uint32_t w = 0; w < CHUNK_WORKERS; w++) {
        pushes += test.push[w];
        held_of_dead += test.push[w] && test.worker[w].gone;
        if (!test.pull[w])
            continue;
        if (mode == TWILL_SERVER_BOUNDED)
            assert_true(test.ordered.of[w] > slowest_ordered() + k);
        else
            assert_true(holds(&test.shard) && test.push[w]);
    }
    unsigned all = atomic_load(&test.shard.present) + held_of_dead;
    if (!holds(&test.shard))
        assert_int_equal(pushes, 0);
    else
        assert_true(pushes < (mode == TWILL_SERVER_SYNC ? all : twill_min(all, k)));
}

static void run_orders(void)
{
    unsigned death = chunk_test_random(2 * CHUNK_ORDERS); /* in every other run */
    for (unsigned i = 0; i < CHUNK_ORDERS; i++) {
        uint32_t w = chunk_test_random(CHUNK_WORKERS);
        if (i == death)
            lose_worker(w);
        else if (chunk_test_random(3) == 0)
            acknowledge();
        else if (!test.worker[w].gone)
            order(w, 1 + chunk_test_random(3));
        if (!test.sending)
            check_waiting();
    }
    while (test.sending)
        acknowledge();
    check_waiting();
}

TWILL_TEST(each_mode_waits_for_what_it_says)
{
    for (int mode = TWILL_SERVER_SYNC; mode <= TWILL_SERVER_BOUNDED; mode++)
        for (uint64_t seed = 0; seed < CHUNK_SEEDS; seed++) {
            chunk_test_begin((twill_server_mode)mode, seed);
            run_orders();
        }
}
