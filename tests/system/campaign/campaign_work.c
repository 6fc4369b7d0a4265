/* SPDX-License-Identifier: Apache-2.0 */
/* The work of a campaign's ranks: all collectives in all forms, with results that are checked. */
#include "lib/twill_recover.h"
#include "tests/system/campaign/campaign.h"

#include <stdlib.h>
#include <string.h>

#define CALLS 4    /* of a step */
#define MOST  9000 /* elements of a rank's shard */

enum campaign_kind {
    ALLREDUCE,
    REDUCE,
    BROADCAST,
    BARRIER,
    ALLGATHER,
    ALLGATHERV,
    REDUCE_SCATTER,
    REDUCE_SCATTERV,
    GATHER,
    GATHERV,
    SCATTER,
    SCATTERV,
    ALLTOALL,
    ALLTOALLV,
    SENDRECV,
    KINDS
};

enum campaign_form { BLOCKING, STARTED, PERSISTENT };

/* One call, its buffers and what it is to yield. */
struct campaign_call {
    float *src, *dst;
    enum campaign_kind kind;
    size_t shard; /* elements of a shard; of a v variant, rank r's is longer by r mod 2 */
    uint64_t step;
    int root, rank, size;
    size_t counts[CAMPAIGN_RANKS], offsets[CAMPAIGN_RANKS];
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

#define ELEMENTS ((size_t)CAMPAIGN_RANKS * (MOST + 1))

struct campaign_buffers *campaign_buffers_open(twill_context *context)
{
    struct campaign_buffers *buffers = calloc(1, sizeof(*buffers));
    if (buffers == NULL)
        return NULL;
    buffers->context = context;
    for (int i = 0; i < CALLS; i++) {
        struct campaign_call *call = &buffers->call[i];
        if (i % 2 == 1) {
            call->src = malloc(ELEMENTS * sizeof(float));
            call->dst = malloc(ELEMENTS * sizeof(float));
        } else if (twill_alloc(context, (void **)&call->src, ELEMENTS * sizeof(float)) !=
                       TWILL_OK ||
                   twill_alloc(context, (void **)&call->dst, ELEMENTS * sizeof(float)) !=
                       TWILL_OK) {
            call->dst = NULL;
        }
        if (call->src == NULL || call->dst == NULL) {
            campaign_buffers_close(buffers);
            return NULL;
        }
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
    for (int i = 0; i < CALLS; i++) {
        struct campaign_call *call = &buffers->call[i];
        if (i % 2 == 1) {
            free(call->src);
            free(call->dst);
        } else {
            (void)twill_free(buffers->context, call->src);
            (void)twill_free(buffers->context, call->dst);
        }
    }
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

/* --- values ----------------------------------------------------------------------------------- */

/* Element i of rank r's source. Sums of these are exact. */
static float value(const struct campaign_call *call, int r, size_t i)
{
    return (float)((uint64_t)(r + 1) * (1 + (i + call->step) % 5));
}

static bool is_vector(enum campaign_kind kind)
{
    return kind == ALLGATHERV || kind == REDUCE_SCATTERV || kind == GATHERV || kind == SCATTERV ||
           kind == ALLTOALLV;
}

/* Length of the shard that rank `from` has for rank `to` (alltoallv; else of rank `to`). */
static size_t length(const struct campaign_call *call, int from, int to)
{
    if (call->kind == ALLTOALLV)
        return call->shard + (size_t)((from + to) % 2);
    return call->shard + (is_vector(call->kind) ? (size_t)(to % 2) : 0);
}

static size_t offset(const struct campaign_call *call, int from, int to)
{
    size_t sum = 0;
    for (int r = 0; r < to; r++)
        sum += length(call, from, r);
    return sum;
}

static void prepare(struct campaign_call *call, const twill_comm *comm, uint64_t *random,
                    uint64_t step)
{
    static const size_t shards[] = {1, 7, 100, 1000, 3000, MOST};
    call->rank = twill_comm_rank(comm);
    call->size = twill_comm_size(comm);
    call->kind = (enum campaign_kind)(campaign_random(random) % KINDS);
    call->shard = shards[campaign_random(random) % 6];
    call->root = (int)(campaign_random(random) % (uint64_t)call->size);
    call->step = step;
    for (int r = 0; r < call->size; r++) {
        call->counts[r] = length(call, call->rank, r);
        call->offsets[r] = offset(call, call->rank, r);
    }
}

static void fill(struct campaign_call *call)
{
    size_t elements = (size_t)call->size * (call->shard + 1);
    for (size_t i = 0; i < elements; i++)
        call->src[i] = value(call, call->rank, i);
    memset(call->dst, 0xff, elements * sizeof(float));
}

/* Count the elements dst[at ..] that differ from rank r's source at `from`, or, if r is -1, from
 * the sum of all ranks' sources there. */
static size_t count_wrong(const struct campaign_call *call, size_t at, size_t elements, int r,
                          size_t from)
{
    size_t wrong = 0;
    for (size_t i = 0; i < elements; i++) {
        float expected = r >= 0 ? value(call, r, from + i) : 0;
        for (int s = 0; r < 0 && s < call->size; s++)
            expected += value(call, s, from + i);
        wrong += call->dst[at + i] != expected;
    }
    return wrong;
}

static size_t verify(const struct campaign_call *call)
{
    size_t wrong = 0;
    int me = call->rank, left = (me + call->size - 1) % call->size;
    bool root = me == call->root;
    switch (call->kind) {
    case ALLREDUCE:
        return count_wrong(call, 0, call->shard, -1, 0);
    case REDUCE:
        return root ? count_wrong(call, 0, call->shard, -1, 0) : 0;
    case BROADCAST:
        return count_wrong(call, 0, call->shard, call->root, 0);
    case GATHER:
    case GATHERV:
    case ALLGATHER:
    case ALLGATHERV:
        if (!root && (call->kind == GATHER || call->kind == GATHERV))
            return 0;
        for (int r = 0; r < call->size; r++)
            wrong += count_wrong(call, call->offsets[r], call->counts[r], r, 0);
        return wrong;
    case REDUCE_SCATTER:
    case REDUCE_SCATTERV:
        return count_wrong(call, 0, call->counts[me], -1, call->offsets[me]);
    case SCATTER:
    case SCATTERV:
        return count_wrong(call, 0, call->counts[me], call->root, call->offsets[me]);
    case ALLTOALL:
    case ALLTOALLV:
        for (int r = 0; r < call->size; r++)
            wrong += count_wrong(call, call->offsets[r], call->counts[r], r, offset(call, r, me));
        return wrong;
    case SENDRECV:
        return count_wrong(call, 0, call->shard, left, 0);
    case BARRIER:
    case KINDS:
        break;
    }
    return 0;
}

/* --- calls ------------------------------------------------------------------------------------ */

#define CALL(name, ...)                                                                            \
    (form == BLOCKING  ? twill_##name(__VA_ARGS__)                                                 \
     : form == STARTED ? twill_##name##_start(__VA_ARGS__, &c->request)                            \
                       : twill_##name##_init(__VA_ARGS__, &c->request))

static twill_status make_vector_call(struct campaign_call *c, twill_comm *comm,
                                     enum campaign_form form)
{
    const size_t *counts = c->counts, *offsets = c->offsets, mine = c->counts[c->rank];
    switch (c->kind) {
    case ALLGATHERV:
        return CALL(allgatherv, comm, c->src, c->dst, counts, offsets, TWILL_F32);
    case REDUCE_SCATTERV:
        return CALL(reduce_scatterv, comm, c->src, c->dst, counts, TWILL_F32, TWILL_SUM);
    case GATHERV:
        return CALL(gatherv, comm, c->src, mine, c->dst, counts, NULL, TWILL_F32, c->root);
    case SCATTERV:
        return CALL(scatterv, comm, c->src, counts, NULL, c->dst, mine, TWILL_F32, c->root);
    default:
        return CALL(alltoallv, comm, c->src, counts, offsets, c->dst, counts, offsets, TWILL_F32);
    }
}

static twill_status make_call(struct campaign_call *c, twill_comm *comm, enum campaign_form form)
{
    size_t n = c->shard;
    int right = (c->rank + 1) % c->size, left = (c->rank + c->size - 1) % c->size;
    switch (c->kind) {
    case ALLREDUCE:
        return CALL(allreduce, comm, c->src, c->dst, n, TWILL_F32, TWILL_SUM);
    case REDUCE:
        return CALL(reduce, comm, c->src, c->dst, n, TWILL_F32, TWILL_SUM, c->root);
    case BROADCAST:
        return CALL(broadcast, comm, c->src, c->dst, n, TWILL_F32, c->root);
    case BARRIER:
        return CALL(barrier, comm);
    case ALLGATHER:
        return CALL(allgather, comm, c->src, c->dst, n, TWILL_F32);
    case REDUCE_SCATTER:
        return CALL(reduce_scatter, comm, c->src, c->dst, n, TWILL_F32, TWILL_SUM);
    case GATHER:
        return CALL(gather, comm, c->src, c->dst, n, TWILL_F32, c->root);
    case SCATTER:
        return CALL(scatter, comm, c->src, c->dst, n, TWILL_F32, c->root);
    case ALLTOALL:
        return CALL(alltoall, comm, c->src, c->dst, n, TWILL_F32);
    case SENDRECV:
        return CALL(sendrecv, comm, c->src, n, right, c->dst, n, left, TWILL_F32);
    default:
        return make_vector_call(c, comm, form);
    }
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
        TRY(make_call(&b->call[i], comm, BLOCKING));
    campaign_begin(b);
    return grouped ? twill_group_end(comm) : TWILL_OK;
}

static twill_status step_requests(struct campaign_buffers *b, twill_comm *comm, bool persistent)
{
    twill_request *requests[CALLS];
    twill_status status = TWILL_OK;
    for (int i = 0; i < CALLS && status == TWILL_OK && (!persistent || !b->prepared); i++)
        status = make_call(&b->call[i], comm, persistent ? PERSISTENT : STARTED);
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
        prepare(&b->call[i], b->part, random, step);
        fill(&b->call[i]);
        campaign_begin(b);
        status = make_call(&b->call[i], b->part, BLOCKING);
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
            prepare(&b->call[i], comm, &random, step);
        b->call[i].step = step;
        fill(&b->call[i]);
    }
    if (trial->work == WORK_STARTED || trial->work == WORK_PERSISTENT)
        TRY(step_requests(b, comm, trial->work == WORK_PERSISTENT));
    else if (split)
        TRY(step_split(b, comm, step, &random));
    else
        TRY(step_blocking(b, comm, trial->work == WORK_GROUPED));
    for (int i = 0; i < CALLS; i++)
        atomic_fetch_add(wrong, verify(&b->call[i]));
    return TWILL_OK;
}

const char *campaign_message(const struct campaign_buffers *b, const twill_comm *comm)
{
    const char *of_set = b->set != NULL ? twill_gradients_message(b->set) : "";
    return of_set[0] != '\0' ? of_set : twill_comm_message(comm);
}
