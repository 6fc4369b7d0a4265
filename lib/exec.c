/* SPDX-License-Identifier: Apache-2.0 */
/* The executor: walks the lanes of the instances in flight. It never waits; lib/wait.c does. */
#include "lib/comm.h"

/* What a step can answer, besides an error. */
enum { BLOCKED = 0, ADVANCED = 1 };

static unsigned physical_lane(const struct twill_instance *instance, unsigned lane)
{
    return (unsigned)(instance->epoch % TWILL_WINDOW) * TWILL_SCHEDULE_LANES + lane;
}

/* Flags grow by instance, and within one by SIGNAL. */
static uint64_t flag_value(const struct twill_instance *instance, uint32_t ordinal)
{
    return instance->epoch << 16 | ordinal;
}

static struct twill_posted *posted_at(const struct twill_run *run, uint64_t epoch, unsigned lane,
                                      uint32_t index)
{
    size_t most = run->plan->schedule.most_posted;
    size_t slot = epoch % TWILL_WINDOW * TWILL_SCHEDULE_LANES + lane;
    return &run->comm->posted[slot * most + index];
}

static void *bounce_at(const struct twill_run *run, const struct twill_posted *posted)
{
    size_t index = (size_t)(posted - run->comm->posted);
    return run->comm->scratch + TWILL_WINDOW * run->plan->tmp_bytes +
           index * run->plan->bounce_bytes;
}

static int post(struct twill_run *run, struct twill_instance *instance,
                const struct twill_step *step)
{
    struct twill_comm *comm = run->comm;
    struct twill_transport *link = twill_comm_link(comm, step->peer[0]);
    struct twill_posted *posted =
        posted_at(run, instance->epoch, step->lane, instance->posted[step->lane]++);
    struct twill_transfer *request = &posted->request;
    bool sends = step->op == TWILL_STEP_SEND;
    struct twill_span span =
        twill_run_span(run, instance, step, sends ? step->src : step->dst, step->peer[0]);
    *request = (struct twill_transfer){
        .status = TWILL_PENDING,
        .kind = sends ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV,
        .lane = (uint8_t)physical_lane(instance, step->lane),
        .peer = step->peer[0],
        .signature = run->signature,
        .buffer = span.start,
        .bytes = span.bytes,
    };
    if (step->op == TWILL_STEP_RECV_REDUCE) {
        posted->run = run;
        posted->dst = span.start;
        posted->src = twill_run_span(run, instance, step, step->src, step->peer[0]).start;
        posted->op = twill_run_op(run, step->flags);
        posted->message_first = (step->flags & TWILL_STEP_FIRST) != 0;
        request->fold = twill_run_fold;
        request->fold_with = posted;
        request->bounce = link->ops->needs_bounce ? bounce_at(run, posted) : NULL;
    }
    if (sends)
        run->comm->counters.bytes_sent += span.bytes;
    twill_status status = link->ops->post(link, request, &comm->error);
    return status == TWILL_OK ? ADVANCED : status;
}

/* Another call's message has come. Who called what is better heard from the peer: lib/wait.c asks.
 */
static int differ(struct twill_comm *comm, const struct twill_transfer *request)
{
    comm->differs = request->peer;
    if (request->peer_bytes == request->bytes)
        return TWILL_COMM_FAIL(comm, TWILL_ERR_MISMATCH,
                               "rank %u is in another call or has other arguments", request->peer);
    return TWILL_COMM_FAIL(
        comm, TWILL_ERR_MISMATCH,
        "rank %u is in another call or has other arguments: its message has %llu "
        "bytes where %zu are expected",
        request->peer, (unsigned long long)request->peer_bytes, request->bytes);
}

static int wait_posted(struct twill_run *run, struct twill_instance *instance, unsigned lane)
{
    for (uint32_t i = 0; i < instance->posted[lane]; i++) {
        const struct twill_transfer *request = &posted_at(run, instance->epoch, lane, i)->request;
        if (request->status == TWILL_PENDING)
            return BLOCKED;
        if (request->status == TWILL_ERR_MISMATCH)
            return differ(run->comm, request);
        if (request->status != TWILL_OK)
            return TWILL_COMM_FAIL(run->comm, (twill_status)request->status,
                                   "message with rank %u failed: %s", request->peer,
                                   twill_strerror((twill_status)request->status));
    }
    instance->posted[lane] = 0;
    return ADVANCED;
}

/* Is the peer's flag, or line, there? A signature that differs is looked into: the peer may be in
 * another call, or merely on its way out of this one. */
static int arrived(struct twill_run *run, const struct twill_instance *instance,
                   const struct twill_step *step, uint32_t peer)
{
    const struct twill_node *node = run->comm->node;
    uint32_t local = run->comm->world->local[peer];
    unsigned lane = physical_lane(instance, step->lane);
    uint32_t signature;
    if (step->flags & TWILL_STEP_IMM) {
        const struct twill_line *line = twill_node_imm(node, local, lane, instance->epoch);
        if (line == NULL)
            return BLOCKED;
        signature = line->signature;
    } else {
        uint64_t value = twill_node_flag(node, local, lane);
        if (value < flag_value(instance, step->ordinal))
            return BLOCKED;
        if (value >> 16 != instance->epoch)
            return ADVANCED;
        signature =
            atomic_load_explicit(&node->area[local]->flag[lane].signature, memory_order_relaxed);
    }
    if (TWILL_LIKELY(signature == run->signature))
        return ADVANCED;
    return twill_comm_check_peer(run->comm, peer); /* OK: moving on, look again */
}

static int await(struct twill_run *run, const struct twill_instance *instance,
                 const struct twill_step *step)
{
    for (unsigned i = 0; i < step->nsrc; i++) {
        if (step->peer[i] == run->comm->rank)
            continue;
        int answer = arrived(run, instance, step, step->peer[i]);
        if (answer != ADVANCED)
            return answer;
    }
    return ADVANCED;
}

static void raise_flag(struct twill_run *run, struct twill_instance *instance,
                       const struct twill_step *step)
{
    twill_node_signal(run->comm->node, physical_lane(instance, step->lane),
                      flag_value(instance, ++instance->signalled[step->lane]), run->signature);
}

static void put_imm(struct twill_run *run, const struct twill_instance *instance,
                    const struct twill_step *step)
{
    struct twill_span src = twill_run_span(run, instance, step, step->src, step->peer[0]);
    twill_node_put(run->comm->node, physical_lane(instance, step->lane), instance->epoch,
                   run->signature, src.start, src.bytes);
}

static int issue(struct twill_run *run, struct twill_instance *instance,
                 const struct twill_step *step)
{
    switch ((enum twill_step_op)step->op) {
    case TWILL_STEP_SEND:
    case TWILL_STEP_RECV:
    case TWILL_STEP_RECV_REDUCE:
        return post(run, instance, step);
    case TWILL_STEP_REDUCE: {
        const struct twill_schedule *s = &run->plan->schedule;
        instance->at[step->lane] += twill_run_reduce_and_copy(
            run, instance, step, s->steps + s->lane_first[step->lane + 1]);
        return ADVANCED;
    }
    case TWILL_STEP_COPY:
        twill_run_copy(run, instance, step);
        return ADVANCED;
    case TWILL_STEP_PUT_IMM:
        put_imm(run, instance, step);
        return ADVANCED;
    case TWILL_STEP_WAIT:
        return wait_posted(run, instance, step->lane);
    case TWILL_STEP_SIGNAL:
        raise_flag(run, instance, step);
        return ADVANCED;
    case TWILL_STEP_AWAIT:
        return await(run, instance, step);
    case TWILL_STEP_OP_COUNT:
        break;
    }
    return TWILL_COMM_FAIL(run->comm, TWILL_ERR_INTERNAL, "unknown step %u", step->op);
}

/* Issue the steps of a lane until one blocks. */
static int advance_lane(struct twill_run *run, struct twill_instance *instance, unsigned lane)
{
    const struct twill_schedule *s = &run->plan->schedule;
    uint32_t length = s->lane_first[lane + 1] - s->lane_first[lane];
    const struct twill_step *steps = s->steps + s->lane_first[lane];
    int moved = 0;
    while (instance->at[lane] < length) {
        int answer = issue(run, instance, &steps[instance->at[lane]]);
        if (answer < 0)
            return answer;
        if (answer == BLOCKED)
            return moved;
        instance->at[lane]++;
        moved++;
    }
    instance->at[lane] = UINT32_MAX; /* ended */
    instance->lanes_left--;
    return moved + 1;
}

static void begin_slice(struct twill_run *run, uint64_t epoch)
{
    struct twill_instance *instance = &run->instance[epoch % TWILL_WINDOW];
    const struct twill_call *call = &run->call;
    size_t first = run->started * run->slice_count;
    *instance = (struct twill_instance){
        .active = true,
        .epoch = epoch,
        .count = twill_min(run->slice_count, call->count - first),
        .offset = first * run->element,
        .src = call->src != NULL ? (const unsigned char *)call->src + first * run->element : NULL,
        .dst = call->dst != NULL ? (unsigned char *)call->dst + first * run->element : NULL,
        .lanes_left = run->plan->schedule.lanes,
    };
    instance->slice_bytes = instance->count * run->element;
    run->started++;
}

void twill_run_start(struct twill_run *run, struct twill_comm *comm, const struct twill_plan *plan,
                     const struct twill_call *call)
{
    run->comm = comm;
    run->plan = plan;
    run->call = *call;
    run->element = twill_type_size(call->type);
    size_t bytes = call->count * run->element;
    run->slice_count = bytes <= plan->slice_bytes ? call->count : plan->slice_bytes / run->element;
    run->slices =
        bytes <= plan->slice_bytes ? 1 : (call->count + run->slice_count - 1) / run->slice_count;
    run->started = run->finished = 0;
    run->copy_flags = bytes >= comm->stream ? TWILL_KERNEL_STREAM : 0;
    for (unsigned i = 0; i < TWILL_WINDOW; i++)
        run->instance[i].active = false;
}

/* Start what may start: a slice takes the place of the one TWILL_WINDOW before it. */
static int begin_slices(struct twill_run *run)
{
    int begun = 0;
    while (run->started < run->slices && !run->instance[run->comm->epoch % TWILL_WINDOW].active) {
        begin_slice(run, run->comm->epoch++);
        begun++;
    }
    return begun;
}

static int advance_transports(struct twill_run *run)
{
    struct twill_comm *comm = run->comm;
    int moved = 0;
    for (unsigned t = 0; t < comm->transports; t++) {
        int answer = comm->transport[t]->ops->progress(comm->transport[t], &comm->error);
        if (answer < 0)
            return answer;
        moved += answer;
    }
    return moved;
}

int twill_run_advance(struct twill_run *run)
{
    int moved = begin_slices(run);
    for (unsigned i = 0; i < TWILL_WINDOW; i++) {
        struct twill_instance *instance = &run->instance[i];
        if (!instance->active)
            continue;
        for (unsigned lane = 0; lane < run->plan->schedule.lanes; lane++) {
            if (instance->at[lane] == UINT32_MAX)
                continue;
            int answer = advance_lane(run, instance, lane);
            if (answer < 0)
                return answer;
            moved += answer;
        }
        if (instance->lanes_left == 0) {
            instance->active = false;
            run->finished++;
        }
    }
    if (run->plan->schedule.most_posted > 0 && !twill_run_done(run)) {
        int answer = advance_transports(run);
        if (answer < 0)
            return answer;
        moved += answer;
    }
    return moved;
}

/* Ranks the first blocked step of a lane waits for. */
static unsigned lane_waits_for(const struct twill_run *run, const struct twill_instance *instance,
                               unsigned lane, uint32_t *ranks, unsigned most, const char **name)
{
    const struct twill_schedule *s = &run->plan->schedule;
    const struct twill_step *step = &s->steps[s->lane_first[lane] + instance->at[lane]];
    unsigned n = 0;
    if (step->op == TWILL_STEP_AWAIT) {
        *name = "signal";
        for (unsigned i = 0; i < step->nsrc && n < most; i++)
            if (step->peer[i] != run->comm->rank &&
                arrived((struct twill_run *)(uintptr_t)run, instance, step, step->peer[i]) ==
                    BLOCKED)
                ranks[n++] = step->peer[i];
    } else if (step->op == TWILL_STEP_WAIT) {
        *name = "message";
        for (uint32_t i = 0; i < instance->posted[lane] && n < most; i++) {
            const struct twill_transfer *request =
                &posted_at(run, instance->epoch, lane, i)->request;
            if (request->status == TWILL_PENDING)
                ranks[n++] = request->peer;
        }
    }
    return n;
}

unsigned twill_run_waits_for(const struct twill_run *run, uint32_t *ranks, unsigned most,
                             const char **step)
{
    unsigned n = 0;
    for (unsigned i = 0; i < TWILL_WINDOW; i++) {
        const struct twill_instance *instance = &run->instance[i];
        for (unsigned lane = 0; instance->active && lane < run->plan->schedule.lanes; lane++)
            if (instance->at[lane] != UINT32_MAX)
                n += lane_waits_for(run, instance, lane, ranks + n, most - n, step);
    }
    return n;
}
