/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of twill_alloc() or twill_promote(): every collective that can runs without intermediate
 * copies and messages, as the counters show, with 1, 2 and 4 threads per rank. Buffers move from
 * call to call; if one rank's are malloc'd all ranks take the other protocol for that call. Sizes
 * are above 32 KiB for each rank, from which on that holds for ranks that share cores, too. */
#include "lib/comm/comm.h"
#include "tests/support/collectives.h"
#include "tests/support/unit.h"

enum { MEMORIES = 4 };
/* Large enough to give three threads work on a rank's part of an f32 result. */
#define MAPPED_BYTES ((size_t)(TEST_TSAN ? 384 : 2048) << 10)

struct mapped_job {
    int threads;   /* TWILL_THREADS */
    bool promoted; /* memory of malloc(), whose first and last bytes are copied */
    twill_comm *comm;
    unsigned char *memory[MEMORIES];
    struct test_buffers plain; /* and what is expected */
};

static bool get_memories(struct mapped_job *job)
{
    twill_context *context = twill_comm_context(job->comm);
    for (int i = 0; i < MEMORIES; i++) {
        void *memory = job->promoted ? malloc(MAPPED_BYTES) : NULL;
        TWILL_REQUIRE((job->promoted ? twill_promote(context, memory, MAPPED_BYTES)
                                     : twill_alloc(context, &memory, MAPPED_BYTES)) == TWILL_OK);
        job->memory[i] = memory;
    }
    return test_buffers_get(&job->plain, context, MAPPED_BYTES, 0, false);
}

/* Calls without any copy: all but an alltoall in place, which swaps through scratch. */
static bool goes_straight(const struct test_call *call)
{
    return call->collective != TWILL_BARRIER &&
           !(call->collective == TWILL_ALLTOALL && call->in_place);
}

/* Run one call. The buffers of rank `odd` are malloc'd (-1: of none). */
static bool check_turn(struct mapped_job *job, const struct test_call *call, unsigned turn, int odd)
{
    const int rank = twill_comm_rank(job->comm), size = twill_comm_size(job->comm);
    const size_t bytes = test_call_bytes(call, size);
    struct test_buffers buffers = {.src = job->memory[turn % MEMORIES],
                                   .dst = job->memory[(turn + 1 + turn / 3 % 2) % MEMORIES],
                                   .src_want = job->plain.src_want,
                                   .dst_want = job->plain.dst_want,
                                   .bytes = bytes};
    twill_counters before, after;
    if (rank == odd) {
        buffers.src = job->plain.src;
        buffers.dst = job->plain.dst;
    }
    TWILL_REQUIRE(twill_comm_counters(job->comm, &before) == TWILL_OK);
    TWILL_REQUIRE(test_call_check(call, job->comm, &buffers));
    TWILL_REQUIRE(twill_comm_counters(job->comm, &after) == TWILL_OK);
    const size_t ends = job->promoted ? 3 * 2 * 4095 : 0; /* of both sides, and of the result */
    bool none =
        after.bytes_copied - before.bytes_copied <= ends && after.bytes_sent == before.bytes_sent;
    if (odd >= 0 || !goes_straight(call))
        return true;
    return TWILL_NOTE(none, "%s of %zu %s, in place %d, form %d: %llu bytes copied, %llu sent",
                      twill_collective_name(call->collective), call->count,
                      twill_type_name(call->type), call->in_place, call->form,
                      (unsigned long long)(after.bytes_copied - before.bytes_copied),
                      (unsigned long long)(after.bytes_sent - before.bytes_sent));
}

/* Elements of a shard for a message of about `bytes`. */
static size_t count_for(enum twill_collective collective, twill_type type, size_t bytes, int size)
{
    size_t shards = twill_collective_facts(collective)->sharded ? (size_t)size : 1;
    return bytes / shards / twill_type_size(type);
}

static bool check_turns(struct mapped_job *job)
{
    static const twill_type types[] = {TWILL_F32, TWILL_BF16, TWILL_F16, TWILL_I64, TWILL_F8E4M3};
    const size_t sizes[] = {97 << 10, 130001, MAPPED_BYTES * 3 / 4};
    const int size = twill_comm_size(job->comm);
    unsigned turn = 0;
    for (int c = 0; c < TWILL_COLLECTIVE_COUNT; c++) {
        for (unsigned i = 0; i < 2 * TEST_FORM_COUNT * TWILL_ARRAY_LENGTH(sizes); i++, turn++) {
            struct test_call call = {.collective = (enum twill_collective)c,
                                     .type = types[turn % TWILL_ARRAY_LENGTH(types)],
                                     .op = turn % 4 == 3 ? TWILL_AVG : TWILL_SUM,
                                     .root = (int)turn % size,
                                     .in_place = i % 2 != 0,
                                     .form = (enum test_form)(i / 2 % TEST_FORM_COUNT)};
            if (!twill_collective_facts(call.collective)->rooted)
                call.root = 0;
            size_t bytes = sizes[i / 2 / TEST_FORM_COUNT];
            call.count = count_for(call.collective, call.type, bytes, size);
            if (call.collective == TWILL_BARRIER || !test_call_exists(&call))
                continue;
            TWILL_REQUIRE(test_call_bytes(&call, size) <= MAPPED_BYTES);
            if (!check_turn(job, &call, turn, -1) || !check_turn(job, &call, turn + 1, -1))
                return false;
            if (turn % 5 == 0 && (!check_turn(job, &call, turn, (int)turn % size) ||
                                  !check_turn(job, &call, turn, -1)))
                return false;
        }
    }
    return true;
}

static void run_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const int threads = *(const int *)user; /* negative for promoted memory */
    struct mapped_job job = {.threads = abs(threads), .promoted = threads < 0};
    TWILL_CHECK(twill_test_open(&job.comm, bootstrap, "",
                                twill_test_text("TWILL_THREADS=%d", job.threads),
                                "TWILL_TUNE=thread_bytes=64K", TWILL_TEST_PATIENT));
    TWILL_CHECK(get_memories(&job) && check_turns(&job));
    twill_context *context = twill_comm_context(job.comm);
    for (int i = 0; i < MEMORIES; i++) {
        TWILL_CHECK((job.promoted ? twill_demote(context, job.memory[i])
                                  : twill_free(context, job.memory[i])) == TWILL_OK);
        if (job.promoted)
            free(job.memory[i]);
    }
    test_buffers_put(&job.plain, context, false);
    twill_test_close(job.comm);
}

/* Calls of the same buffers repeat at once, and kernels that fetch lines ahead end at any length.
 */
TWILL_TEST_ON(calls_repeat_at_once, ranks, TWILL_LAYOUTS("2", "3"), TWILL_TEST_PATIENT)
{
    enum { TIMES = 6, MOST = 300001 };
    static const size_t counts[] = {4096, 24576, 24577, 65535, MOST};
    twill_context *context = twill_comm_context(comm);
    void *memory[2];
    for (int i = 0; i < 2; i++)
        TWILL_CHECK(twill_alloc(context, &memory[i], MOST * sizeof(int32_t)) == TWILL_OK);
    int32_t *src = memory[0], *dst = memory[1];
    for (size_t k = 0; k < TWILL_ARRAY_LENGTH(counts); k++) {
        int32_t power = 1;
        for (size_t i = 0; i < counts[k]; i++)
            src[i] = (int32_t)i % 100 - rank;
        for (int t = 0; t < TIMES; t++)
            TWILL_CHECK(twill_allreduce(comm, src, dst, counts[k], TWILL_I32, TWILL_SUM) ==
                        TWILL_OK);
        for (int t = 0; t < TIMES; t++, power *= size)
            TWILL_CHECK(twill_allreduce(comm, src, src, counts[k], TWILL_I32, TWILL_SUM) ==
                        TWILL_OK);
        for (size_t i = 0; i < counts[k]; i++) {
            int32_t sum = size * ((int32_t)i % 100) - size * (size - 1) / 2;
            TWILL_CHECK(dst[i] == sum && src[i] == sum * (power / size));
        }
    }
    for (int i = 0; i < 2; i++)
        TWILL_CHECK(twill_free(context, memory[i]) == TWILL_OK);
}

/* Where a rank's buffer is in a call of buffers_change(). */
enum buffer_place { HEAP, OTHER_HEAP, NEW_HEAP, PLAIN, PROMOTED, DEMOTED };

enum { CHANGING = 20000 }; /* elements */

/* Return the buffer for the next call, or NULL after a failure. at[] has those of HEAP, OTHER_HEAP
 * and PLAIN. */
static int32_t *buffer_at(twill_context *context, enum buffer_place place, void *at[3])
{
    const size_t bytes = CHANGING * sizeof(int32_t);
    void *freed = at[0];
    if (place == NEW_HEAP) {
        TWILL_REQUIRE(twill_alloc(context, &at[0], 2 * bytes) == TWILL_OK &&
                      twill_free(context, freed) == TWILL_OK);
    } else if (place == PROMOTED) {
        TWILL_REQUIRE(twill_promote(context, at[2], bytes) == TWILL_OK);
    } else if (place == DEMOTED) {
        TWILL_REQUIRE(twill_demote(context, at[2]) == TWILL_OK);
    }
    return at[place >= PLAIN ? 2 : place == OTHER_HEAP];
}

/* The same call, again and again, finds the buffers of all ranks, of which some are others than in
 * the last call: others of the heap, freed and allocated anew, of malloc(), promoted or demoted. */
TWILL_TEST_ON(buffers_change, ranks, TWILL_LAYOUTS("2", "3", "2x2"), TWILL_TEST_PATIENT)
{
    static const enum buffer_place places[][2] = {
        {HEAP, HEAP},      {HEAP, HEAP},     {HEAP, OTHER_HEAP}, {HEAP, OTHER_HEAP},
        {HEAP, HEAP},      {NEW_HEAP, HEAP}, {HEAP, HEAP},       {OTHER_HEAP, NEW_HEAP},
        {HEAP, PLAIN},     {HEAP, PLAIN},    {HEAP, PROMOTED},   {HEAP, PLAIN},
        {NEW_HEAP, PLAIN}, {HEAP, DEMOTED},  {PLAIN, PLAIN},     {PROMOTED, PROMOTED},
        {PLAIN, PLAIN},    {PLAIN, HEAP},    {DEMOTED, DEMOTED}, {OTHER_HEAP, HEAP},
    };
    twill_context *context = twill_comm_context(comm);
    void *at[3] = {NULL, NULL, malloc(CHANGING * sizeof(int32_t))};
    for (int i = 0; i < 2; i++)
        TWILL_CHECK(twill_alloc(context, &at[i], CHANGING * sizeof(int32_t)) == TWILL_OK);
    for (size_t k = 0; k < TWILL_ARRAY_LENGTH(places); k++) {
        int32_t *buffer = buffer_at(context, places[k][rank == 1], at);
        TWILL_CHECK(buffer != NULL);
        for (int i = 0; i < CHANGING; i++)
            buffer[i] = i + (int32_t)k - rank;
        TWILL_CHECK(twill_allreduce(comm, buffer, buffer, CHANGING, TWILL_I32, TWILL_SUM) ==
                    TWILL_OK);
        for (int i = 0; i < CHANGING; i++)
            TWILL_CHECK(buffer[i] == size * (i + (int32_t)k) - size * (size - 1) / 2,
                        "call %zu: element %d is %d", k, i, (int)buffer[i]);
    }
    for (int i = 0; i < 2; i++)
        TWILL_CHECK(twill_free(context, at[i]) == TWILL_OK);
    free(at[2]);
}

/* While one call is in progress and published, the next one has another count on rank 1: no rank
 * may use its buffer's address unchecked and store behind its end. */
TWILL_TEST_ON(counts_differ_behind_another, ranks, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    enum { LESS = 16 << 10, MORE = 64 << 10 };
    size_t count = rank == 0 ? LESS : MORE;
    twill_request *request[2] = {NULL, NULL};
    void *memory = NULL;
    int32_t first = 1, sum = 0;
    TWILL_CHECK(twill_alloc(twill_comm_context(comm), &memory, MORE) == TWILL_OK);
    unsigned char *at = memory;
    memset(at, 1, MORE);
    for (int turn = 0; turn < 2; turn++) { /* rank 0 is waiting when rank 1 enters the call */
        if (turn == rank) {
            (void)twill_allreduce_start(comm, &first, &sum, 1, TWILL_I32, TWILL_SUM, &request[0]);
            (void)twill_allreduce_start(comm, at, at, count, TWILL_U8, TWILL_SUM, &request[1]);
        }
        (void)twill_test_barrier(bootstrap);
    }
    TWILL_CHECK(TWILL_ENDS(comm, twill_wait_all(2, request), TWILL_ERR_MISMATCH, ""));
    (void)twill_test_barrier(bootstrap);
    size_t kept = LESS;
    while (rank == 0 && kept < MORE && at[kept] == 1)
        kept++;
    TWILL_CHECK(rank != 0 || kept == MORE, "byte %zu behind the buffer has changed", kept - LESS);
}

TWILL_TEST(threads_of_one_process)
{
    for (int threads = 1; threads <= 2; threads++)
        twill_test_run_ranks(3, run_rank, &threads);
    twill_test_run_ranks(3, run_rank, &(int){-2});
}

TWILL_TEST(processes)
{
    for (int threads = 1; threads <= (TEST_TSAN ? 1 : 4); threads *= 2)
        twill_test_run_processes(2, run_rank, &threads);
    twill_test_run_processes(2, run_rank, &(int){-1});
}
