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
    unsigned char *memory[2], *plain[2], *want[2];
    struct test_call call;
    struct test_buffers buffers;
    twill_request *request;
    bool busy;
};

struct mixed_job {
    twill_context *context;
    twill_comm *comm;
    int rank, size;
    uint64_t same, own; /* seeds: of all ranks, and of this one */
    uint32_t turn;
    struct mixed_slot slot[MIXED_SLOTS];
};

static uint64_t draw(uint64_t *state, uint64_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % below;
}

static bool buffers_get(struct mixed_job *job)
{
    for (int i = 0; i < 2 * MIXED_SLOTS; i++) {
        struct mixed_slot *slot = &job->slot[i / 2];
        void *memory = NULL;
        TWILL_REQUIRE(twill_alloc(job->context, &memory, MIXED_BYTES) == TWILL_OK);
        slot->memory[i % 2] = memory;
        slot->plain[i % 2] = malloc(MIXED_BYTES);
        slot->want[i % 2] = malloc(MIXED_BYTES);
        TWILL_REQUIRE(slot->plain[i % 2] != NULL && slot->want[i % 2] != NULL);
    }
    return true;
}

static void give_memory(struct mixed_job *job)
{
    for (int i = 0; i < 2 * MIXED_SLOTS; i++) {
        struct mixed_slot *slot = &job->slot[i / 2];
        if (slot->memory[i % 2] != NULL)
            (void)twill_free(job->context, slot->memory[i % 2]);
        free(slot->plain[i % 2]);
        free(slot->want[i % 2]);
    }
}

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
    uint64_t first = draw(&job->own, MIXED_SLOTS);
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
    slot->call.in_place = !exchange && draw(&job->own, 3) == 0;
    unsigned char **memory = draw(&job->own, 4) == 0 ? slot->plain : slot->memory;
    slot->buffers =
        (struct test_buffers){memory[0], memory[1], slot->want[0], slot->want[1], MIXED_BYTES};
    test_call_fill(&slot->call, job->rank, job->size, &slot->buffers);
    if (draw(&job->own, 50) == 0)
        usleep((useconds_t)draw(&job->own, 600));
}

static bool run_persistent(struct mixed_job *job, struct mixed_slot *slot,
                           const struct test_call *call)
{
    uint64_t times = 1 + draw(&job->same, 6);
    fill_call(job, slot, call);
    if (!note_status(job, call,
                     test_call_begin(&slot->call, job->comm, &slot->buffers, &slot->request)))
        return false;
    for (uint64_t i = 0; i < times; i++) {
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
    struct mixed_slot *slot = &job->slot[draw(&job->same, MIXED_SLOTS)];
    if (call->form == TEST_BLOCKING && draw(&job->same, 12) == 0)
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
            .collective = (enum twill_collective)draw(same, TWILL_COLLECTIVE_COUNT),
            .vector = draw(same, 5) == 0,
            .type = types[draw(same, TWILL_ARRAY_LENGTH(types))],
            .op = TWILL_SUM,
            .root = (int)draw(same, (uint64_t)job->size),
            .form = draw(same, 2) ? TEST_BLOCKING : (enum test_form)draw(same, TEST_FORM_COUNT)};
    } while (!test_call_exists(&call));
    size_t size = sizes[draw(same, draw(same, 3) == 0 ? TWILL_ARRAY_LENGTH(sizes) : 9)];
    call.count = size / twill_type_size(call.type);
    if (!twill_collective_facts(call.collective)->rooted)
        call.root = 0;
    return call;
}

static void run_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    struct mixed_job job = {
        .rank = rank, .size = size, .same = (uint64_t)size, .own = (uint64_t)rank};
    bool fine = twill_test_join(&job.context, &job.comm, bootstrap, user, TWILL_TEST_PATIENT,
                                "TWILL_TUNE=segment=16K") &&
                buffers_get(&job);
    uint64_t left = 0;
    struct test_call call;
    for (unsigned i = 0; fine && i < MIXED_CALLS && !twill_test_failed(); i++) {
        if (left-- == 0) {
            left = draw(&job.same, draw(&job.same, 3) == 0 ? 60 : 4);
            call = draw_call(&job);
        }
        fine = run_mixed_call(&job, &call);
    }
    if (fine)
        (void)finish_all(&job);
    (void)twill_test_barrier(bootstrap);
    give_memory(&job);
    twill_test_disconnect(job.comm, job.context);
}

TWILL_TEST(any_after_any)
{
    twill_test_run_processes(2, run_rank, "");
    twill_test_run_ranks(2, run_rank, "");
    twill_test_run_ranks(3, run_rank, "");
    twill_test_run_ranks(5, run_rank, "");
    twill_test_run_ranks(4, run_rank, "2x2");
}

/* --- groups ----------------------------------------------------------------------------------- */

/* Groups: fusing does not depend on a rank's own messages, a mismatch is reported on all ranks even
 * if the sums of counts agree; and mismatches detected by later calls. */

enum { GROUP_RANKS = 3 };

struct group_scene {
    const char *nodes;
    void (*run)(twill_comm *comm, int rank, int size);
};

static void run_scene(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct group_scene *scene = user;
    twill_comm *comm;
    if (twill_test_open(&comm, bootstrap, scene->nodes, TWILL_TEST_PATIENT))
        scene->run(comm, rank, size);
    twill_test_close(comm);
}

static void on_all_nodes(void (*run)(twill_comm *comm, int rank, int size))
{
    static const char *const nodes[] = {"", "2+1", "1+1+1"};
    for (unsigned n = 0; n < TWILL_ARRAY_LENGTH(nodes); n++) {
        struct group_scene scene = {nodes[n], run};
        twill_test_run_ranks(GROUP_RANKS, run_scene, &scene);
    }
}

/* Rank 0 sends between its allreduces, rank 1 receives after them, rank 2 does neither. */
static void messages_between(twill_comm *comm, int rank, int size)
{
    int32_t a[4] = {rank, 1, 2, 3}, b[5] = {rank, rank, 7, 0, 1}, message = rank == 0 ? 99 : 0;
    TWILL_CHECK(twill_group_start(comm) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(comm, a, a, 4, TWILL_I32, TWILL_SUM) == TWILL_OK);
    if (rank == 0)
        TWILL_CHECK(twill_send(comm, &message, 1, TWILL_I32, 1) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(comm, b, b, 5, TWILL_I32, TWILL_SUM) == TWILL_OK);
    if (rank == 1)
        TWILL_CHECK(twill_recv(comm, &message, 1, TWILL_I32, 0) == TWILL_OK);
    twill_status status = twill_group_end(comm);
    TWILL_CHECK(TWILL_NOTE(status == TWILL_OK, "%s", twill_comm_message(comm)));
    int sum = size * (size - 1) / 2;
    TWILL_CHECK(a[0] == sum && a[1] == size && a[3] == 3 * size);
    TWILL_CHECK(b[0] == sum && b[1] == sum && b[2] == 7 * size && b[4] == size);
    TWILL_CHECK(rank == 2 || message == 99);
}

/* Eight elements in total on every rank, but in different calls. */
static void counts_that_differ(twill_comm *comm, int rank, int size)
{
    float a[5] = {0}, b[5] = {0};
    size_t first = rank == size - 1 ? 5 : 3;
    TWILL_CHECK(twill_group_start(comm) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(comm, a, a, first, TWILL_F32, TWILL_SUM) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(comm, b, b, 8 - first, TWILL_F32, TWILL_SUM) == TWILL_OK);
    TWILL_CHECK(twill_group_end(comm) == TWILL_ERR_MISMATCH);
}

/* The last rank waits for another root than the others have, who have returned: all ranks get the
 * error. */
static void roots_that_differ(twill_comm *comm, int rank, int size)
{
    float data[100] = {0};
    int root = rank == size - 1 ? 0 : 1;
    twill_status status = twill_broadcast(comm, data, data, 100, TWILL_F32, root);
    if (rank == size - 1)
        TWILL_CHECK(status == TWILL_ERR_MISMATCH);
    if (status == TWILL_OK)
        status = twill_barrier(comm);
    TWILL_CHECK(status == TWILL_ERR_MISMATCH, "rank %d: %s", rank, twill_comm_message(comm));
}

/* A fused call, then a single call that equals it in count on some ranks only. */
static void fused_and_alike(twill_comm *comm, int rank, int size)
{
    int32_t a[6] = {rank}, b[10] = {rank}, c[16] = {rank}, d[16] = {0};
    for (int round = 0; round < 3; round++) {
        int32_t *result = rank == round ? d : c;
        a[0] = b[0] = c[0] = rank;
        TWILL_CHECK(twill_group_start(comm) == TWILL_OK);
        TWILL_CHECK(twill_allreduce(comm, a, a, 6, TWILL_I32, TWILL_SUM) == TWILL_OK);
        TWILL_CHECK(twill_allreduce(comm, b, b, 10, TWILL_I32, TWILL_SUM) == TWILL_OK);
        TWILL_CHECK(twill_group_end(comm) == TWILL_OK);
        twill_status status = twill_allreduce(comm, c, result, 16, TWILL_I32, TWILL_SUM);
        TWILL_CHECK(status == TWILL_OK, "%s", twill_comm_message(comm));
        int sum = size * (size - 1) / 2;
        TWILL_CHECK(a[0] == sum && b[0] == sum && result[0] == sum);
    }
}

/* Each rank has another root, contributes and returns: the next call that waits reports it. */
static void no_receiver(twill_comm *comm, int rank, int size)
{
    int32_t data[4] = {rank}, result[4];
    int root = rank == size - 1 ? 0 : size - 1;
    twill_status status = twill_reduce(comm, data, result, 4, TWILL_I32, TWILL_SUM, root);
    for (int i = 0; i < 3 && status == TWILL_OK; i++)
        status = twill_barrier(comm);
    TWILL_CHECK(status == TWILL_ERR_MISMATCH, "rank %d: status %d: %s", rank, status,
                twill_comm_message(comm));
    bool named = strstr(twill_comm_message(comm), "reduce #1") != NULL;
    TWILL_CHECK(named || twill_comm_nodes(comm) > 1, "rank %d: %s", rank, twill_comm_message(comm));
}

TWILL_TEST(test_no_receiver)
{
    on_all_nodes(no_receiver);
}

TWILL_TEST(test_fused_and_alike)
{
    on_all_nodes(fused_and_alike);
}

TWILL_TEST(test_messages_between)
{
    on_all_nodes(messages_between);
}

TWILL_TEST(test_counts_that_differ)
{
    on_all_nodes(counts_that_differ);
}

TWILL_TEST(test_roots_that_differ)
{
    on_all_nodes(roots_that_differ);
}
