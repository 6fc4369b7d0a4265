/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a campaign's ranks: all collectives in all forms, with results that are checked. */
#include "lib/twill_recover.h"
#include "tests/support/collectives.h"
#include "tests/support/payload.h"
#include "tests/system/campaign/campaign.h"

#include <stdlib.h>
#include <string.h>

#define CALLS 4    /* of a step */
#define MOST  9000 /* elements of a rank's shard */

/* One call and its buffers. */
struct campaign_call {
    struct test_call call;
    struct test_buffers buffers;
    bool exchange; /* a message around the ring instead */
    int rank, size;
    twill_request *request;
};

struct campaign_buffers {
    twill_context *context;
    struct campaign_call call[CALLS];
    bool prepared; /* persistent requests exist */
    twill_comm *part;
    twill_gradients *set;
    uint64_t begun_ns; /* of the last call */
};

struct campaign_buffers *campaign_buffers_open(twill_context *context)
{
    const struct test_call largest = {
        .collective = TWILL_ALLGATHER, .vector = true, .type = TWILL_F32, .count = MOST};
    struct campaign_buffers *buffers = calloc(1, sizeof(*buffers));
    if (buffers == NULL)
        return NULL;
    buffers->context = context;
    for (int i = 0; i < CALLS; i++)
        if (!test_buffers_get(&buffers->call[i].buffers, context,
                              test_call_bytes(&largest, CAMPAIGN_RANKS), 0, i % 2 == 0)) {
            campaign_buffers_close(buffers);
            return NULL;
        }
    return buffers;
}

void campaign_buffers_move(struct campaign_buffers *buffers, twill_context *context)
{
    buffers->context = context;
}

void campaign_buffers_release(struct campaign_buffers *buffers)
{
    for (int i = 0; i < CALLS; i++)
        if (buffers->prepared)
            (void)twill_request_free(&buffers->call[i].request);
        else
            (void)twill_wait(&buffers->call[i].request);
    buffers->prepared = false;
    twill_comm_leave(buffers->part);
    buffers->part = NULL;
    twill_gradients_destroy(buffers->set);
    buffers->set = NULL;
}

void campaign_buffers_close(struct campaign_buffers *buffers)
{
    for (int i = 0; i < CALLS; i++)
        test_buffers_put(&buffers->call[i].buffers, buffers->context, i % 2 == 0);
    free(buffers);
}

void campaign_begin(struct campaign_buffers *buffers)
{
    buffers->begun_ns = campaign_now();
}

uint64_t campaign_begun(const struct campaign_buffers *buffers)
{
    return buffers->begun_ns;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Draw one of all collectives, their vector variants, and the message. */
static void prepare(struct campaign_call *c, const twill_comm *comm, uint64_t *random)
{
    static const size_t shards[] = {1, 7, 100, 1000, 3000, MOST};
    uint64_t kind = campaign_random(random) % (2 * TWILL_COLLECTIVE_COUNT + 1);
    c->rank = twill_comm_rank(comm);
    c->size = twill_comm_size(comm);
    c->exchange = kind == 2 * TWILL_COLLECTIVE_COUNT;
    c->call =
        (struct test_call){.collective = (enum twill_collective)(kind / 2 % TWILL_COLLECTIVE_COUNT),
                           .vector = kind % 2 != 0,
                           .type = TWILL_F32,
                           .op = TWILL_SUM,
                           .count = shards[campaign_random(random) % 6],
                           .root = (int)(campaign_random(random) % (uint64_t)c->size)};
    if (!test_call_exists(&c->call))
        c->call.vector = false;
}

/* The message has the source of an allreduce, and the result is the left neighbour's. */
static void fill(struct campaign_call *c, uint64_t step)
{
    const int left = (c->rank + c->size - 1) % c->size;
    c->call.turn = (uint32_t)step;
    test_call_fill(&c->call, c->rank, c->size, &c->buffers);
    if (c->exchange)
        test_payload(c->buffers.dst_want, c->call.count, step, TWILL_F32, TWILL_SUM, left);
}

static bool is_wrong(const struct campaign_call *c)
{
    return memcmp(c->buffers.dst, c->buffers.dst_want, test_call_bytes(&c->call, c->size)) != 0;
}

static twill_status make_call(struct campaign_call *c, twill_comm *comm, enum test_form form)
{
    const int right = (c->rank + 1) % c->size, left = (c->rank + c->size - 1) % c->size;
    const size_t n = c->call.count;
    void *src = c->buffers.src, *dst = c->buffers.dst;
    c->call.form = form;
    if (!c->exchange)
        return test_call_begin(&c->call, comm, &c->buffers, &c->request);
    if (form == TEST_BLOCKING)
        return twill_sendrecv(comm, src, n, right, dst, n, left, TWILL_F32);
    return form == TEST_STARTED
               ? twill_sendrecv_start(comm, src, n, right, dst, n, left, TWILL_F32, &c->request)
               : twill_sendrecv_init(comm, src, n, right, dst, n, left, TWILL_F32, &c->request);
}

/* Within functions that have `b`. */
#define TRY(call)                                                                                  \
    do {                                                                                           \
        campaign_begin(b);                                                                         \
        twill_status try_status_ = (call);                                                         \
        if (try_status_ != TWILL_OK)                                                               \
            return try_status_;                                                                    \
    } while (0)

static twill_status step_blocking(struct campaign_buffers *b, twill_comm *comm, bool grouped)
{
    if (grouped)
        TRY(twill_group_start(comm));
    for (int i = 0; i < CALLS; i++)
        TRY(make_call(&b->call[i], comm, TEST_BLOCKING));
    campaign_begin(b);
    return grouped ? twill_group_end(comm) : TWILL_OK;
}

static twill_status step_requests(struct campaign_buffers *b, twill_comm *comm, bool persistent)
{
    twill_request *requests[CALLS];
    twill_status status = TWILL_OK;
    for (int i = 0; i < CALLS && status == TWILL_OK && (!persistent || !b->prepared); i++)
        status = make_call(&b->call[i], comm, persistent ? TEST_PERSISTENT : TEST_STARTED);
    b->prepared = persistent;
    for (int i = 0; i < CALLS && status == TWILL_OK && persistent; i++)
        status = twill_request_start(b->call[i].request);
    for (int i = 0; i < CALLS; i++)
        requests[i] = b->call[i].request;
    campaign_begin(b);
    twill_status waited = twill_wait_all(CALLS, requests);
    for (int i = 0; i < CALLS; i++)
        b->call[i].request = requests[i];
    return status != TWILL_OK ? status : waited;
}

/* Halves of the communicator make calls on their own; all must know if one fails. */
static twill_status step_split(struct campaign_buffers *b, twill_comm *comm, uint64_t step,
                               uint64_t *random)
{
    int rank = twill_comm_rank(comm);
    TRY(twill_comm_split(&b->part, comm, (int)((uint64_t)rank + step) % 2, rank));
    twill_status status = TWILL_OK;
    for (int i = 0; i < CALLS && status == TWILL_OK; i++) {
        prepare(&b->call[i], b->part, random);
        fill(&b->call[i], step);
        campaign_begin(b);
        status = make_call(&b->call[i], b->part, TEST_BLOCKING);
    }
    campaign_begin(b);
    if (status == TWILL_OK)
        status = twill_barrier(b->part);
    if (status != TWILL_OK) {
        (void)twill_comm_revoke(comm);
        return status;
    }
    twill_comm_leave(b->part);
    b->part = NULL;
    return TWILL_OK;
}

twill_status campaign_step(struct campaign_buffers *b, twill_comm *comm,
                           const struct campaign_trial *trial, uint64_t step, atomic_ulong *wrong)
{
    uint64_t random = trial->seed + (trial->work == WORK_PERSISTENT ? 0 : step);
    bool split = trial->work == WORK_SPLIT;
    campaign_begin(b);
    if (trial->work == WORK_GRADIENTS)
        return campaign_train(&b->set, comm, trial, step, wrong);
    for (int i = 0; i < CALLS && !split; i++) {
        if (!b->prepared)
            prepare(&b->call[i], comm, &random);
        fill(&b->call[i], step);
    }
    if (trial->work == WORK_STARTED || trial->work == WORK_PERSISTENT)
        TRY(step_requests(b, comm, trial->work == WORK_PERSISTENT));
    else if (split)
        TRY(step_split(b, comm, step, &random));
    else
        TRY(step_blocking(b, comm, trial->work == WORK_GROUPED));
    for (int i = 0; i < CALLS; i++)
        atomic_fetch_add(wrong, is_wrong(&b->call[i]));
    return TWILL_OK;
}

const char *campaign_message(const struct campaign_buffers *b, const twill_comm *comm)
{
    const char *of_set = b->set != NULL ? twill_gradients_message(b->set) : "";
    return of_set[0] != '\0' ? of_set : twill_comm_message(comm);
}
