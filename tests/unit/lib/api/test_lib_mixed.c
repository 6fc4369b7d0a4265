/* SPDX-License-Identifier: Apache-2.0 */
/* Any call after any other: collectives, roots, sizes, forms and memory drawn at random, in runs of
 * the same call, several under way, some in groups; ranks sleep at random and get ahead of each
 * other. Every byte of every result is checked, and no two calls have the same values. */
#include "tests/support/collectives.h"
#include "tests/support/unit.h"

#define MIXED_CALLS (TEST_FEWER ? 250u : 1500u)
#define MIXED_BYTES ((size_t)1 << 19) /* of a buffer */
enum { MIXED_SLOTS = 3 };

struct mixed_slot {
    struct test_buffers memory[2]; /* by malloc(), by twill_alloc() */
    struct test_call call;
    struct test_buffers buffers;
    twill_request *request;
    bool busy;
};

struct mixed_job {
    twill_comm *comm;
    int rank, size;
    uint64_t same, own; /* seeds: of all ranks, and of this one */
    uint32_t turn;
    struct mixed_slot slot[MIXED_SLOTS];
};

static bool note_status(const struct mixed_job *job, const struct test_call *call,
                        twill_status status)
{
    char name[160];
    test_call_name(call, name, sizeof(name));
    return TWILL_NOTE(status == TWILL_OK, "rank %d: call %u: %s: %s", job->rank, call->turn, name,
                      twill_comm_message(job->comm));
}

static bool compare_slot(const struct mixed_job *job, const struct mixed_slot *slot)
{
    return test_call_compare(&slot->call, job->rank, job->size, &slot->buffers);
}

static bool finish_slot(struct mixed_job *job, struct mixed_slot *slot)
{
    if (!slot->busy)
        return true;
    slot->busy = false;
    return note_status(job, &slot->call, twill_wait(&slot->request)) && compare_slot(job, slot);
}

static bool finish_all(struct mixed_job *job)
{
    uint32_t first = test_draw(&job->own, MIXED_SLOTS);
    for (unsigned i = 0; i < MIXED_SLOTS; i++)
        if (!finish_slot(job, &job->slot[(first + i) % MIXED_SLOTS]))
            return false;
    return true;
}

/* Each rank draws by itself whether it is in place and where its buffers are. */
static void fill_call(struct mixed_job *job, struct mixed_slot *slot, const struct test_call *call)
{
    slot->call = *call;
    slot->call.turn = ++job->turn * 101;
    bool exchange = call->collective == TWILL_ALLTOALL && call->vector;
    slot->call.in_place = !exchange && test_draw(&job->own, 3) == 0;
    slot->buffers = slot->memory[test_draw(&job->own, 4) != 0];
    test_call_fill(&slot->call, job->rank, job->size, &slot->buffers);
    if (test_draw(&job->own, 50) == 0)
        usleep((useconds_t)test_draw(&job->own, 600));
}

static bool run_persistent(struct mixed_job *job, struct mixed_slot *slot,
                           const struct test_call *call)
{
    uint32_t times = 1 + test_draw(&job->same, 6);
    fill_call(job, slot, call);
    if (!note_status(job, call,
                     test_call_begin(&slot->call, job->comm, &slot->buffers, &slot->request)))
        return false;
    for (uint32_t i = 0; i < times; i++) {
        slot->call.turn = ++job->turn * 101;
        test_call_fill(&slot->call, job->rank, job->size, &slot->buffers);
        if (!note_status(job, call, twill_request_start(slot->request)) ||
            !note_status(job, call, twill_wait(&slot->request)) || !compare_slot(job, slot))
            return false;
    }
    return note_status(job, call, twill_request_free(&slot->request));
}

static bool run_group(struct mixed_job *job, const struct test_call *call)
{
    if (!finish_all(job))
        return false;
    for (unsigned i = 0; i < MIXED_SLOTS; i++)
        fill_call(job, &job->slot[i], call);
    twill_status status = twill_group_start(job->comm);
    for (unsigned i = 0; i < MIXED_SLOTS && status == TWILL_OK; i++)
        status = test_call_begin(&job->slot[i].call, job->comm, &job->slot[i].buffers,
                                 &job->slot[i].request);
    if (!note_status(job, call, status) || !note_status(job, call, twill_group_end(job->comm)))
        return false;
    for (unsigned i = 0; i < MIXED_SLOTS; i++)
        if (!compare_slot(job, &job->slot[i]))
            return false;
    return true;
}

static bool run_mixed_call(struct mixed_job *job, const struct test_call *call)
{
    struct mixed_slot *slot = &job->slot[test_draw(&job->same, MIXED_SLOTS)];
    if (call->form == TEST_BLOCKING && test_draw(&job->same, 12) == 0)
        return run_group(job, call);
    if (!finish_slot(job, slot))
        return false;
    if (call->form == TEST_PERSISTENT)
        return run_persistent(job, slot, call);
    fill_call(job, slot, call);
    slot->busy = call->form == TEST_STARTED;
    return note_status(job, call,
                       test_call_begin(&slot->call, job->comm, &slot->buffers, &slot->request)) &&
           (slot->busy || compare_slot(job, slot));
}

static struct test_call draw_call(struct mixed_job *job)
{
    static const twill_type types[] = {TWILL_I32, TWILL_U8, TWILL_BF16, TWILL_F64};
    static const size_t sizes[] = {0,    8,    12,   48,   49,    368,  369,
                                   1000, 4096, 4097, 9000, 30000, 65536};
    uint64_t *same = &job->same;
    struct test_call call;
    do {
        call = (struct test_call){
            .collective = (enum twill_collective)test_draw(same, TWILL_COLLECTIVE_COUNT),
            .vector = test_draw(same, 5) == 0,
            .type = types[test_draw(same, TWILL_ARRAY_LENGTH(types))],
            .op = TWILL_SUM,
            .root = (int)test_draw(same, (uint32_t)job->size),
            .form = test_draw(same, 2) ? TEST_BLOCKING
                                       : (enum test_form)test_draw(same, TEST_FORM_COUNT)};
    } while (!test_call_exists(&call));
    size_t size = sizes[test_draw(same, test_draw(same, 3) == 0 ? TWILL_ARRAY_LENGTH(sizes) : 9)];
    call.count = size / twill_type_size(call.type);
    if (!twill_collective_facts(call.collective)->rooted)
        call.root = 0;
    return call;
}

static void call_any(twill_comm *comm, int rank, int size, twill_bootstrap *bootstrap)
{
    struct mixed_job job = {
        .comm = comm, .rank = rank, .size = size, .same = (uint64_t)size, .own = (uint64_t)rank};
    twill_context *context = twill_comm_context(comm);
    for (int i = 0; i < 2 * MIXED_SLOTS; i++)
        TWILL_CHECK(
            test_buffers_get(&job.slot[i / 2].memory[i % 2], context, MIXED_BYTES, 0, i % 2 != 0));
    bool fine = true;
    uint32_t left = 0;
    struct test_call call;
    for (unsigned i = 0; fine && i < MIXED_CALLS && !twill_test_failed(); i++) {
        if (left-- == 0) {
            left = test_draw(&job.same, test_draw(&job.same, 3) == 0 ? 60 : 4);
            call = draw_call(&job);
        }
        fine = run_mixed_call(&job, &call);
    }
    if (fine)
        (void)finish_all(&job);
    (void)twill_test_barrier(bootstrap);
    for (int i = 0; i < 2 * MIXED_SLOTS; i++)
        test_buffers_put(&job.slot[i / 2].memory[i % 2], context, i % 2 != 0);
}

TWILL_TEST_ON(any_after_any_of_processes, processes, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT,
              "TWILL_TUNE=segment=16K")
{
    call_any(comm, rank, size, bootstrap);
}

TWILL_TEST_ON(any_after_any, ranks, TWILL_LAYOUTS("2", "3", "5", "2x2"), TWILL_TEST_PATIENT,
              "TWILL_TUNE=segment=16K")
{
    call_any(comm, rank, size, bootstrap);
}

/* --- groups ----------------------------------------------------------------------------------- */

/* Groups: fusing does not depend on a rank's own messages, and a mismatch is reported on all ranks
 * even if the sums of counts agree. */

static const char *const threes[] = {"3", "2+1", "1+1+1"};

/* Rank 0 sends between its allreduces, rank 1 receives after them, rank 2 does neither. */
TWILL_TEST_ON(messages_between, ranks, threes, TWILL_TEST_PATIENT)
{
    int32_t a[4] = {rank, 1, 2, 3}, b[5] = {rank, rank, 7, 0, 1}, message = rank == 0 ? 99 : 0;
    TWILL_CHECK(twill_group_start(comm) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(comm, a, a, 4, TWILL_I32, TWILL_SUM) == TWILL_OK);
    if (rank == 0)
        TWILL_CHECK(twill_send(comm, &message, 1, TWILL_I32, 1) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(comm, b, b, 5, TWILL_I32, TWILL_SUM) == TWILL_OK);
    if (rank == 1)
        TWILL_CHECK(twill_recv(comm, &message, 1, TWILL_I32, 0) == TWILL_OK);
    TWILL_CHECK(twill_test_fine(comm, twill_group_end(comm)));
    int sum = size * (size - 1) / 2;
    TWILL_CHECK(a[0] == sum && a[1] == size && a[3] == 3 * size);
    TWILL_CHECK(b[0] == sum && b[1] == sum && b[2] == 7 * size && b[4] == size);
    TWILL_CHECK(rank == 2 || message == 99);
}

/* Eight elements in total on every rank, but in different calls. */
TWILL_TEST_ON(counts_that_differ, ranks, threes, TWILL_TEST_PATIENT)
{
    float a[5] = {0}, b[5] = {0};
    size_t first = rank == size - 1 ? 5 : 3;
    TWILL_CHECK(twill_group_start(comm) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(comm, a, a, first, TWILL_F32, TWILL_SUM) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(comm, b, b, 8 - first, TWILL_F32, TWILL_SUM) == TWILL_OK);
    TWILL_CHECK(twill_group_end(comm) == TWILL_ERR_MISMATCH);
}

/* A fused call, then a single call that equals it in count on some ranks only. */
TWILL_TEST_ON(fused_and_alike, ranks, threes, TWILL_TEST_PATIENT)
{
    int32_t a[6] = {rank}, b[10] = {rank}, single[16] = {rank}, other[16] = {0};
    for (int round = 0; round < 3; round++) {
        int32_t *result = rank == round ? other : single;
        a[0] = b[0] = single[0] = rank;
        TWILL_CHECK(twill_group_start(comm) == TWILL_OK);
        TWILL_CHECK(twill_allreduce(comm, a, a, 6, TWILL_I32, TWILL_SUM) == TWILL_OK);
        TWILL_CHECK(twill_allreduce(comm, b, b, 10, TWILL_I32, TWILL_SUM) == TWILL_OK);
        TWILL_CHECK(twill_group_end(comm) == TWILL_OK);
        TWILL_CHECK(
            twill_test_fine(comm, twill_allreduce(comm, single, result, 16, TWILL_I32, TWILL_SUM)));
        int sum = size * (size - 1) / 2;
        TWILL_CHECK(a[0] == sum && b[0] == sum && result[0] == sum);
    }
}
