/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that run ahead: a rank that only sends is many calls ahead when others receive. Data that
 * they have not received must not be overwritten, and a rank that never arrives is detected. */
#include "tests/support/payload.h"
#include "tests/support/unit.h"

#define EAGER_CALLS (TEST_FEWER ? 300u : 1500u)
#define EAGER_MOST  9000u /* elements: several segments */
#define EAGER_RANKS 5u

struct eager_job {
    twill_comm *comm;
    int32_t *src, *dst;
    uint32_t rank, size;
};

#define EAGER_TUNE "TWILL_TUNE=heap_limit=8M,segment=8K"

static bool start(struct eager_job *job, twill_comm *comm)
{
    void *memory[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++)
        TWILL_REQUIRE(twill_alloc(twill_comm_context(comm), &memory[i],
                                  EAGER_RANKS * EAGER_MOST * sizeof(int32_t)) == TWILL_OK);
    *job = (struct eager_job){comm, memory[0], memory[1], (uint32_t)twill_comm_rank(comm),
                              (uint32_t)twill_comm_size(comm)};
    return true;
}

/* Return element i that a rank sends to another in a call; `to` is 0 if it sends to all. */
static int32_t expected_element(uint64_t call, uint32_t from, uint32_t to, size_t i)
{
    return (int32_t)((((call * 31 + from) * 131 + to) * 1009 + i) & 0xffffff);
}

static void fill_elements(int32_t *to, uint64_t call, uint32_t from, uint32_t whose, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = expected_element(call, from, whose, i);
}

static bool is_element(const int32_t *got, uint64_t call, uint32_t from, uint32_t to, size_t count)
{
    for (size_t i = 0; i < count; i++)
        TWILL_REQUIRE(got[i] == expected_element(call, from, to, i));
    return true;
}

static bool is_sum(const struct eager_job *j, uint64_t call, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int32_t sum = 0;
        for (uint32_t r = 0; r < j->size; r++)
            sum += expected_element(call, r, 0, i);
        TWILL_REQUIRE(j->dst[i] == sum);
    }
    return true;
}

enum { BROADCAST, EAGER_REDUCE, GATHER, SCATTER, ALLREDUCE, KINDS };

/* Make a call, and overwrite its source right after it, as a caller may. */
static bool run_eager_call(const struct eager_job *j, uint64_t call, unsigned kind, uint32_t root,
                           size_t count)
{
    bool is_root = j->rank == root;
    twill_status status = TWILL_OK;
    for (uint32_t r = 0; r < j->size && kind == SCATTER && is_root; r++)
        fill_elements(j->src + r * count, call, root, r, count);
    if (kind != SCATTER)
        fill_elements(j->src, call, j->rank, 0, count);
    if (kind == BROADCAST)
        status = twill_broadcast(j->comm, j->src, j->dst, count, TWILL_I32, (int)root);
    else if (kind == EAGER_REDUCE)
        status = twill_reduce(j->comm, j->src, j->dst, count, TWILL_I32, TWILL_SUM, (int)root);
    else if (kind == GATHER)
        status = twill_gather(j->comm, j->src, j->dst, count, TWILL_I32, (int)root);
    else if (kind == SCATTER)
        status = twill_scatter(j->comm, j->src, j->dst, count, TWILL_I32, (int)root);
    else
        status = twill_allreduce(j->comm, j->src, j->dst, count, TWILL_I32, TWILL_SUM);
    TWILL_REQUIRE(status == TWILL_OK, "call %llu, kind %u: %s", (unsigned long long)call, kind,
                  twill_comm_message(j->comm));
    if (kind == BROADCAST && !is_element(j->dst, call, root, 0, count))
        return false;
    if (kind == SCATTER && !is_element(j->dst, call, root, j->rank, count))
        return false;
    for (uint32_t r = 0; r < j->size && kind == GATHER && is_root; r++)
        if (!is_element(j->dst + r * count, call, r, 0, count))
            return false;
    bool sums = kind == ALLREDUCE || (kind == EAGER_REDUCE && is_root);
    bool right = !sums || is_sum(j, call, count);
    memset(j->src, 0xee, count * sizeof(*j->src));
    return right;
}

/* Collectives and roots are repeated, so that ranks get far ahead; sometimes one sleeps. */
static void run_ahead(twill_comm *comm, int rank, int size)
{
    static const size_t counts[] = {1, 12, 13, 100, 1000, 1100, 3000, EAGER_MOST};
    struct eager_job job;
    uint64_t same = 1, own = (uint64_t)rank + 100; /* seeds: of all ranks, and of this one */
    unsigned kind = 0, left = 0;
    uint32_t root = 0;
    TWILL_CHECK(start(&job, comm));
    for (unsigned call = 0; call < EAGER_CALLS && !twill_test_failed(); call++) {
        if (left == 0) {
            left = 1 + test_draw(&same, 80);
            kind = test_draw(&same, KINDS);
            root = test_draw(&same, (uint32_t)size);
        }
        left--;
        size_t count =
            counts[test_draw(&same, test_draw(&same, 3) == 0 ? TWILL_ARRAY_LENGTH(counts) : 4)];
        if (test_draw(&own, 100) == 0)
            usleep((useconds_t)test_draw(&own, 800));
        TWILL_CHECK(run_eager_call(&job, call, kind, root, count));
    }
}

TWILL_TEST_ON(ahead_of_others, ranks, TWILL_LAYOUTS("2", "5", "2x2"), TWILL_TEST_PATIENT,
              EAGER_TUNE)
{
    run_ahead(comm, rank, size);
}

/* Short segments of broadcasts, gathers and scatters use several places of a copy of SHARED. */
TWILL_TEST_ON(ahead_in_turns, ranks, TWILL_LAYOUTS("2", "5"), TWILL_TEST_PATIENT,
              "TWILL_TUNE=heap_limit=8M", "TWILL_ALGORITHM=direct@staged")
{
    run_ahead(comm, rank, size);
}

static const size_t vain_counts[] = {1, 200};

/* The last rank never receives: a rank that sends to it times out, and names it. */
TWILL_TEST_CASES(no_receiver, ranks, vain_counts, "2", TWILL_TEST_HASTY, EAGER_TUNE)
{
    struct eager_job job;
    twill_status status = TWILL_OK;
    unsigned calls = 0;
    TWILL_CHECK(start(&job, comm));
    while (rank == 0 && status == TWILL_OK && calls++ < 1000)
        status = twill_broadcast(comm, job.src, job.dst, *c, TWILL_I32, 0);
    if (rank == 0)
        TWILL_CHECK(calls > 2 && TWILL_ENDS(comm, status, TWILL_ERR_TIMEOUT, "rank 1"));
}

#define STREAM_CALLS 6u /* fewer than a rank can be ahead */
#define STREAM_MOST  4096u
#define STREAM_ROOT  1

/* Reductions to the root, which makes the calls one after the other when the others have made them.
 */
static const struct stream_case {
    const char *layout;
    twill_type type;
    twill_op op;
    size_t count;
    bool in_place;
} stream_cases[] = {
    {"2", TWILL_F32, TWILL_SUM, 2, false},    {"2", TWILL_F32, TWILL_AVG, 2, true},
    {"2", TWILL_F64, TWILL_AVG, 33, true},    {"2", TWILL_F32, TWILL_AVG, 1024, false},
    {"2", TWILL_F16, TWILL_AVG, 3, false},    {"2", TWILL_BF16, TWILL_SUM, 700, true},
    {"2", TWILL_U8, TWILL_BXOR, 4096, false}, {"4", TWILL_F32, TWILL_AVG, 5, false},
    {"4", TWILL_I32, TWILL_AVG, 1000, true},  {"4", TWILL_F16, TWILL_SUM, 33, true},
    {"6", TWILL_F32, TWILL_SUM, 4, false},
};

TWILL_TEST_CASES(reductions_in_a_stream, ranks, stream_cases, c->layout, TWILL_TEST_PATIENT)
{
    static _Thread_local unsigned char src[STREAM_CALLS][STREAM_MOST],
        dst[STREAM_CALLS][STREAM_MOST], expected[STREAM_MOST];
    size_t bytes = c->count * test_payload_element(c->type, c->op);
    bool is_root = rank == STREAM_ROOT, in_place = is_root && c->in_place;
    for (unsigned round = 0; round < 5; round++) {
        for (unsigned i = 0; i < STREAM_CALLS; i++)
            test_payload(in_place ? dst[i] : src[i], c->count, i * c->count, c->type, c->op, rank);
        TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
        if (is_root)
            usleep(2000);
        for (unsigned i = 0; i < STREAM_CALLS; i++)
            TWILL_CHECK(twill_reduce(comm, in_place ? dst[i] : src[i], dst[i], c->count, c->type,
                                     c->op, STREAM_ROOT) == TWILL_OK);
        for (unsigned i = 0; i < STREAM_CALLS && is_root; i++) {
            test_payload_reduced(expected, c->count, i * c->count, c->type, c->op, size);
            TWILL_CHECK(memcmp(dst[i], expected, bytes) == 0);
        }
    }
}

#define APART_CALLS 20u   /* more than SHARED has copies if it must hold both shards */
#define APART_COUNT 1024u /* elements of a shard: 4 KiB */

/* With two ranks a gather or scatter keeps one shard in SHARED, so that 4 KiB count as small, and
 * the rank that sends is as far ahead as small calls allow. */
TWILL_TEST_ON(ahead_with_one_shard, ranks, TWILL_LAYOUTS("2"), TWILL_TEST_HASTY,
              "TWILL_ALGORITHM=direct@staged")
{
    static _Atomic unsigned ended; /* rounds of the sender */
    struct eager_job job;
    TWILL_CHECK(start(&job, comm));
    for (unsigned round = 0; round < 4; round++) {
        unsigned kind = round % 2 == 0 ? GATHER : SCATTER;
        bool sends = (kind == SCATTER) == (rank == 0);
        TWILL_CHECK(twill_barrier(comm) == TWILL_OK);
        while (!sends && atomic_load(&ended) <= round && !twill_test_failed())
            usleep(100);
        for (unsigned i = 0; i < APART_CALLS && !twill_test_failed(); i++)
            TWILL_CHECK(run_eager_call(&job, round * APART_CALLS + i, kind, 0, APART_COUNT));
        if (sends)
            atomic_store(&ended, round + 1);
    }
}
