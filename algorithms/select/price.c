/* SPDX-License-Identifier: Apache-2.0 */
/* Runs schedules against simulated clocks. See price.h. */
#include "algorithms/schedule/step_table.h"
#include "algorithms/select/price_state.h"
#include "lib/base/lists.h"

#include <string.h>

/* Return the class of the link from a lane's rank to a peer of its step. */
static enum twill_link_class class_to(const struct twill_pricing *p,
                                      const struct twill_price_lane *lane, uint32_t peer)
{
    uint8_t all = p->steps.link[lane->at];
    return all != TWILL_PRICE_MIXED ? (enum twill_link_class)all
                                    : twill_link_between(p->worlds.run, lane->rank, peer);
}

static uint64_t reduce_cost(const struct twill_pricing *p, uint64_t bytes)
{
    return twill_rate_time(p->call.reduce_cost, bytes);
}

/* Complete what was posted, in order. TWILL_PRICE_LATER: the next message is still in flight; the
 * lane's time is set to its arrival, and other lanes may use the core until then. */
static int32_t finish_posted(struct twill_pricing *p, struct twill_price_lane *lane)
{
    for (; lane->posted < lane->at; lane->posted++) {
        uint32_t i = lane->posted;
        const struct twill_step *step = &p->steps.step[i];
        bool sends = step->op == TWILL_STEP_SEND;
        if (!twill_step_shape(step->op)->posts)
            continue;
        uint64_t when = sends ? p->times.sent[i] : p->times.when[i];
        if (!sends && p->facts.whole)
            when = p->steps.match[i] == TWILL_PRICE_NONE ? 0 : p->times.when[p->steps.match[i]];
        if (when > lane->time) {
            lane->time = when;
            return TWILL_PRICE_LATER;
        }
        bool reduces = step->op == TWILL_STEP_RECV_REDUCE;
        if (!sends)
            twill_price_occupy(p, lane,
                               twill_price_link(p, i)->overhead +
                                   (reduces ? reduce_cost(p, twill_price_bytes(p, step)) : 0));
    }
    lane->posted = lane->at + 1;
    lane->moved = 0;
    return TWILL_PRICE_NONE;
}

/* --- shared memory ---------------------------------------------------------------------------- */

/* Pass what a rank reads or writes of another unit's memory through the ports of both units, which
 * all their ranks share. Returns the time at which it has passed, or for a rank that is run alone
 * how long it takes if the other ranks of its unit do as much; 0: no limit. Messages do not use the
 * ports, as the cores are their limit. */
static uint64_t pass_ports(struct twill_pricing *p, const struct twill_price_lane *lane,
                           uint32_t peer, enum twill_link_class link, bool writes, uint64_t bytes)
{
    unsigned level = p->facts.leaves[link];
    uint64_t occupied = twill_rate_time(p->call.model->link[link].port, bytes);
    if (occupied == 0 || level == TWILL_LEVEL_COUNT)
        return 0;
    size_t first = (size_t)level * p->worlds.run->size;
    size_t own = first + p->worlds.run->unit[level][lane->rank];
    size_t other = first + p->worlds.run->unit[level][peer];
    if (p->mode == TWILL_PRICE_LEAST)
        return 0;
    if (!p->facts.whole)
        return occupied * p->resources.crowd[own];
    size_t out = writes ? own : other, in = writes ? other : own;
    uint64_t start =
        twill_price_later(lane->time, p->resources.core[p->resources.core_of[lane->rank]]);
    p->resources.port_out[out] = twill_price_later(p->resources.port_out[out], start) + occupied;
    p->resources.port_in[in] = twill_price_later(p->resources.port_in[in], start) + occupied;
    p->resources.busy_port_out[out] += occupied;
    p->resources.busy_port_in[in] += occupied;
    return twill_price_later(p->resources.port_out[out], p->resources.port_in[in]);
}

/* Return how long the core takes to read or write an operand; raises *until to the time before
 * which the ports do not let it finish. */
static uint64_t memory_time(struct twill_pricing *p, const struct twill_price_lane *lane,
                            twill_operand operand, uint32_t peer, bool writes, uint64_t bytes,
                            uint64_t *until)
{
    unsigned space = twill_operand_space(operand);
    bool shared = space == TWILL_SHARED;
    if (!twill_operand_is_peer(operand) || peer == lane->rank)
        return twill_rate_time(shared ? p->call.model->bounce : p->call.model->copy, bytes);
    enum twill_link_class class = class_to(p, lane, peer);
    const struct twill_link_cost *link = &p->call.model->link[class];
    uint64_t time = shared || space == TWILL_IMM ? twill_rate_time(link->shared, bytes)
                    : p->facts.fetches
                        ? p->call.model->fetch + twill_rate_time(link->fetched, bytes)
                        : twill_rate_time(link->mapped, bytes);
    uint64_t passed = pass_ports(p, lane, peer, class, writes, bytes);
    if (!p->facts.whole)
        return twill_price_later(time, passed);
    *until = twill_price_later(*until, passed);
    return time;
}

/* Run a COPY or REDUCE. */
static void local_work(struct twill_pricing *p, struct twill_price_lane *lane,
                       const struct twill_step *step)
{
    uint64_t bytes = twill_price_bytes(p, step), time = 0, until = 0;
    unsigned operands = step->op == TWILL_STEP_REDUCE ? step->nsrc : 1;
    for (unsigned i = 0; i < operands; i++)
        time += memory_time(p, lane, step->src, step->peer[i], false, bytes, &until);
    if (step->op == TWILL_STEP_REDUCE) {
        operands += (step->flags & TWILL_STEP_ACC) != 0;
        time += (operands - 1) * reduce_cost(p, bytes);
    } else { /* a copy costs its dearer end */
        time = twill_price_later(
            time, memory_time(p, lane, step->dst, step->peer[0], true, bytes, &until));
    }
    twill_price_occupy(p, lane, time);
    lane->time = p->resources.core[p->resources.core_of[lane->rank]] =
        twill_price_later(lane->time, until);
}

/* Return the SIGNAL or PUT_IMM that an AWAIT expects of its peer i, or TWILL_PRICE_NONE. */
static int32_t signal_step(const struct twill_pricing *p, const struct twill_step *step, unsigned i)
{
    uint32_t lane = step->peer[i] * TWILL_SCHEDULE_LANES + step->lane;
    if ((step->flags & TWILL_STEP_IMM) != 0)
        return p->steps.put[lane];
    int32_t at = p->steps.raised[lane];
    for (unsigned n = 1; n < step->ordinal && at != TWILL_PRICE_NONE; n++)
        at = p->steps.match[at];
    return at;
}

/* Run an AWAIT. Returns TWILL_PRICE_NONE once all flags are up and polled; TWILL_PRICE_LATER after
 * setting the lane's time to when they are up; else a step to wait for. */
static int32_t wait_signals(struct twill_pricing *p, struct twill_price_lane *lane,
                            const struct twill_step *step)
{
    uint64_t time = twill_price_later(lane->time, lane->until);
    for (unsigned i = lane->seen; i < step->nsrc && !lane->awaited; i++) {
        const struct twill_link_cost *link = &p->call.model->link[class_to(p, lane, step->peer[i])];
        uint64_t when = lane->time;
        if (p->facts.whole && step->peer[i] != lane->rank) {
            int32_t raised = signal_step(p, step, i);
            if (raised != TWILL_PRICE_NONE && p->times.when[raised] == TWILL_PRICE_NOT_YET) {
                lane->seen = i;
                lane->until = time;
                return raised;
            }
            when = raised != TWILL_PRICE_NONE ? p->times.when[raised] : 0;
        }
        bool is_late = step->peer[i] != lane->rank && p->mode != TWILL_PRICE_LEAST;
        time = twill_price_later(time, is_late ? when + link->signal : 0);
    }
    lane->seen = 0;
    lane->until = 0;
    lane->awaited = time > lane->time;
    lane->time = time;
    if (lane->awaited)
        return TWILL_PRICE_LATER;
    twill_price_occupy(p, lane, step->nsrc * p->call.model->poll);
    return TWILL_PRICE_NONE;
}

/* --- running ---------------------------------------------------------------------------------- */

static bool before(const struct twill_price_next *a, const struct twill_price_next *b)
{
    return a->time != b->time ? a->time < b->time : a->lane < b->lane;
}

static void heap_put(struct twill_pricing *p, uint32_t lane)
{
    const struct twill_price_next next = {p->lanes.lane[lane].time, lane};
    uint32_t at = p->queue.count++;
    while (at > 0 && before(&next, &p->queue.heap[(at - 1) / 2])) {
        p->queue.heap[at] = p->queue.heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    p->queue.heap[at] = next;
}

static uint32_t heap_take(struct twill_pricing *p)
{
    const struct twill_price_next last = p->queue.heap[--p->queue.count];
    uint32_t first = p->queue.heap[0].lane, at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= p->queue.count)
            break;
        if (child + 1 < p->queue.count && before(&p->queue.heap[child + 1], &p->queue.heap[child]))
            child++;
        if (before(&last, &p->queue.heap[child]))
            break;
        p->queue.heap[at] = p->queue.heap[child];
        at = child;
    }
    p->queue.heap[at] = last;
    return first;
}

/* Make the lanes that wait for a step ready. */
void twill_price_wake(struct twill_pricing *p, uint32_t step)
{
    for (int32_t l = p->times.waiter[step]; l != TWILL_PRICE_NONE;) {
        int32_t next = p->lanes.lane[l].next;
        heap_put(p, (uint32_t)l);
        l = next;
    }
    p->times.waiter[step] = TWILL_PRICE_NONE;
}

/* Run the lane's next step. Returns TWILL_PRICE_NONE, TWILL_PRICE_LATER or a step to wait for. */
static int32_t lane_run_step(struct twill_pricing *p, struct twill_price_lane *lane)
{
    const struct twill_step *step = &p->steps.step[lane->at];
    int32_t missing = TWILL_PRICE_NONE;
    switch (step->op) {
    case TWILL_STEP_SEND:
        twill_price_send(p, lane, step);
        break;
    case TWILL_STEP_RECV:
    case TWILL_STEP_RECV_REDUCE:
        if (p->facts.whole)
            twill_price_receive(p, lane);
        else
            p->times.when[lane->at] = twill_price_mirrored(p, lane, step);
        break;
    case TWILL_STEP_WAIT:
        missing = twill_price_unsent(p, lane);
        if (missing == TWILL_PRICE_NONE)
            missing = finish_posted(p, lane);
        break;
    case TWILL_STEP_SIGNAL:
    case TWILL_STEP_PUT_IMM:
        twill_price_occupy(p, lane,
                           p->call.model->raise +
                               twill_rate_time(p->call.model->bounce, twill_price_bytes(p, step)));
        p->times.when[lane->at] = lane->time;
        twill_price_wake(p, lane->at);
        break;
    case TWILL_STEP_AWAIT:
        missing = wait_signals(p, lane, step);
        break;
    default:
        local_work(p, lane, step);
        break;
    }
    if (missing == TWILL_PRICE_NONE) {
        lane->time += p->call.model->step;
        lane->at++;
    }
    return missing;
}

static void reset(struct twill_pricing *p)
{
    const struct twill_world *world = p->worlds.run;
    uint32_t steps = p->steps.base[world->size];
    memset(p->times.when, 0xff, steps * sizeof(*p->times.when));
    memset(p->times.sent, 0xff, steps * sizeof(*p->times.sent));
    memset(p->times.waiter, 0xff, steps * sizeof(*p->times.waiter));
    memset(p->resources.core, 0, (size_t)world->size * 5 * sizeof(*p->resources.core));
    memset(p->resources.node_out, 0, (size_t)world->nodes * 5 * sizeof(*p->resources.node_out));
    memset(p->resources.port_out, 0,
           (size_t)world->size * 4 * TWILL_LEVEL_NODE * sizeof(*p->resources.port_out));
    memcpy(p->lanes.lane, p->lanes.first, p->lanes.count * sizeof(*p->lanes.lane));
    p->queue.count = 0;
}

/* Return whether a lane may run its next step now: it neither waits nor has ended, and is still the
 * earliest. */
static bool lane_goes_on(const struct twill_pricing *p, uint32_t l, int32_t missing)
{
    const struct twill_price_lane *lane = &p->lanes.lane[l];
    const struct twill_price_next next = {lane->time, l};
    return missing < 0 && lane->at < lane->end &&
           (p->queue.count == 0 || before(&next, &p->queue.heap[0]));
}

/* LEAST: return how long the other ranks of a shared core use it at least: each as long as the one
 * of the two that are run which has less to do. */
static uint64_t others_work(const struct twill_pricing *p)
{
    const struct twill_price_resources *r = &p->resources;
    uint64_t crowd = p->call.model->crowd;
    uint32_t rank = p->lanes.count > 0 ? p->lanes.first[p->lanes.count - 1].rank : 0;
    if (p->mode != TWILL_PRICE_LEAST || crowd <= 1 || rank == 0)
        return 0;
    return twill_min(r->busy[r->core_of[0]], r->busy[r->core_of[rank]]) * (crowd - 1);
}

/* Run all lanes to their ends. See twill_price_run() and twill_pricing_limit(). */
static uint64_t run_lanes(struct twill_pricing *p, size_t bytes)
{
    uint64_t end = 0;
    uint32_t ended = 0;
    p->call.each = bytes / p->facts.blocks;
    p->call.rest = bytes % p->facts.blocks;
    reset(p);
    for (uint32_t l = 0; l < p->lanes.count; l++)
        heap_put(p, l);
    while (p->queue.count > 0) {
        uint32_t l = heap_take(p);
        struct twill_price_lane *lane = &p->lanes.lane[l];
        if (lane->time > p->call.most) /* as all other lanes are */
            return TWILL_PRICE_NEVER;
        int32_t missing = TWILL_PRICE_NONE;
        do
            missing = lane->at < lane->end ? lane_run_step(p, lane) : TWILL_PRICE_NONE;
        while (lane_goes_on(p, l, missing));
        lane->waits = lane->waits || missing != TWILL_PRICE_NONE;
        if (missing >= 0) {
            lane->next = p->times.waiter[missing];
            p->times.waiter[missing] = (int32_t)l;
        } else if (lane->at < lane->end) {
            heap_put(p, l);
        } else {
            end = twill_price_later(end, lane->time);
            ended++;
        }
    }
    return ended == p->lanes.count ? end + others_work(p) : TWILL_PRICE_NEVER;
}

/* Return how long the busiest core, link, interface or port was in use in the last run. */
static uint64_t busiest(const struct twill_pricing *p)
{
    uint64_t most = 0;
    for (uint32_t r = 0; r < p->worlds.run->size; r++)
        most = twill_price_later(most,
                                 twill_price_later(p->resources.busy[r], p->resources.busy_out[r]));
    for (uint32_t n = 0; n < p->worlds.run->nodes; n++)
        most = twill_price_later(most, p->resources.busy_node[n]);
    for (size_t i = 0; i < (size_t)p->worlds.run->size * TWILL_LEVEL_NODE; i++)
        most = twill_price_later(
            most, twill_price_later(p->resources.busy_port_out[i], p->resources.busy_port_in[i]));
    return most;
}

/* Return the bytes of a segment; 0: messages are not divided into segments. */
static size_t segment_bytes(const struct twill_pricing *p, const struct twill_machine_model *model)
{
    uint64_t all = model->segment_rank * p->worlds.ranks;
    if (p->facts.segments == TWILL_PRICE_SEGMENTS_NONE)
        return 0;
    if (p->facts.segments == TWILL_PRICE_SEGMENTS_NET)
        return (size_t)model->segment_net;
    return (size_t)(all > 0 && all < model->segment ? all : model->segment);
}

/* Divide the ranks of each node among its cores. */
static void place_on_cores(struct twill_pricing *p, uint64_t crowd)
{
    const struct twill_world *world = p->worlds.run;
    if (world->nodes == 1) /* a sample has as many cores as the world */
        crowd = crowd * world->size / p->worlds.ranks;
    uint64_t each = p->facts.whole && crowd > 1 ? crowd : 1;
    for (uint32_t r = 0; r < world->size; r++) {
        uint32_t node = world->node[r];
        uint64_t cores = (world->node_size[node] + each - 1) / each;
        p->resources.core_of[r] = world->node_first[node] + (uint32_t)(world->local[r] % cores);
    }
}

static void set_up_pricing(struct twill_pricing *p, const struct twill_machine_model *model,
                           struct twill_element_kind elements)
{
    if ((unsigned)elements.type >= TWILL_TYPE_COUNT)
        elements.type = TWILL_U8;
    if (p->call.model == NULL || p->call.model->crowd != model->crowd)
        place_on_cores(p, model->crowd);
    p->call.model = model;
    p->call.elements = elements;
    p->call.widen = twill_partial_width(elements);
    p->call.reduce_cost = model->reduce[elements.type];
}

uint64_t twill_price_run(struct twill_pricing *p, const struct twill_machine_model *model,
                         size_t bytes, struct twill_element_kind elements)
{
    set_up_pricing(p, model, elements);
    return run_lanes(p, bytes);
}

uint64_t twill_pricing_at(struct twill_pricing *p, const struct twill_machine_model *model,
                          size_t bytes, struct twill_element_kind elements)
{
    if (p->mode == TWILL_PRICE_SCALED)
        return twill_price_scaled_at(&p->scale, model, bytes, elements);
    size_t segment = segment_bytes(p, model);
    set_up_pricing(p, model, elements);
    uint64_t entry = model->start + (p->facts.exchanges ? model->addresses : 0);
    struct twill_price_segmented *segmented = &p->segmented;
    bool whole = bytes < segment || segment == 0;
    if (whole || segmented->model != model ||
        !twill_elements_match(segmented->elements, p->call.elements)) {
        uint64_t one = run_lanes(p, whole ? bytes : segment);
        if (whole || one == TWILL_PRICE_NEVER)
            return one == TWILL_PRICE_NEVER ? one : entry + one;
        segmented->one = one;
        segmented->each =
            twill_price_later(busiest(p), segmented->one / twill_price_later(model->window, 1));
        segmented->model = model;
        segmented->elements = p->call.elements;
    }
    return entry + segmented->one +
           twill_rate_time(segmented->each * 1024 / segment, bytes - segment);
}

void twill_pricing_limit(struct twill_pricing *p, uint64_t most)
{
    p->call.most = most;
}

uint64_t twill_pricing_fingerprint(const struct twill_pricing *p)
{
    return p->facts.fingerprint;
}
