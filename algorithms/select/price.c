/* SPDX-License-Identifier: Apache-2.0 */
/* Runs schedules against simulated clocks. See price.h. */
#include "algorithms/select/price_internal.h"
#include "lib/base/lists.h"

#include <string.h>

/* Most bytes of SHARED for segments that are longer with threads, as in lib/job/registration.c. */
#define SHARED_MOST ((size_t)16 << 20)

/* Return the class of the link from a rank to a peer of one of its steps. `link` is the class of
 * the links to all peers of the step. If that is TWILL_PRICE_MIXED, the class is looked up in the
 * world. */
static enum twill_link_class class_to(const struct twill_pricing *p, uint32_t rank, uint8_t link,
                                      uint32_t peer)
{
    return link != TWILL_PRICE_MIXED ? (enum twill_link_class)link
                                     : twill_link_between(p->world, rank, peer);
}

/* Return the picoseconds in which bytes pass between cores of a node at `rate`. */
static uint64_t passing_time(const struct twill_pricing *p, enum twill_link_class link,
                             uint64_t rate, uint64_t bytes)
{
    return twill_rate_time(rate, bytes) * p->call.contended[link] >> 8;
}

/* Return the picoseconds in which the core reads or writes an operand, if ports do not delay it. */
static uint64_t memory_time(const struct twill_pricing *p, uint32_t rank, twill_operand operand,
                            uint32_t peer, uint8_t link, uint64_t bytes)
{
    const struct twill_machine_model *model = p->call.model;
    unsigned space = twill_operand_space(operand);
    bool shared = space == TWILL_SHARED;
    if (!twill_operand_is_peer(operand) || peer == rank)
        return shared ? passing_time(p, p->call.own, model->bounce, bytes)
                      : twill_rate_time(model->copy, bytes);
    enum twill_link_class to = class_to(p, rank, link, peer);
    const struct twill_link_cost *cost = &model->link[to];
    return space == TWILL_IMM ? twill_rate_time(cost->shared, bytes)
           : shared           ? passing_time(p, to, cost->shared, bytes)
           : p->facts.fetches ? passing_time(p, to, cost->fetched, bytes)
                              : twill_rate_time(cost->mapped, bytes);
}

/* Return the picoseconds of the system call that reads an operand, 0 if none does. */
static uint64_t fetch_time(const struct twill_pricing *p, uint32_t rank, twill_operand operand,
                           uint32_t peer)
{
    unsigned space = twill_operand_space(operand);
    return p->facts.fetches && twill_operand_is_peer(operand) && peer != rank &&
                   space != TWILL_SHARED && space != TWILL_IMM
               ? p->call.model->fetch
               : 0;
}

/* Return how threads of a rank share work that writes and reads so many bytes. The executor decides
 * by the same table and function. */
static const struct twill_price_shared *shared_work(struct twill_pricing *p, uint64_t written,
                                                    uint64_t read)
{
    struct twill_price_call *call = &p->call;
    struct twill_price_shared *s =
        &call->shared[(written * 31 + read) * 0x9e3779b97f4a7c15u >> 32 & (TWILL_PRICE_SHARED - 1)];
    if (s->threads > 0 && s->written == written && s->read == read)
        return s;
    const struct twill_thread_rates *rates = &call->rates;
    *s = (struct twill_price_shared){written, read, 65536, 1};
    uint32_t step = twill_thread_step(rates, (unsigned)call->model->threads, written, read, false);
    if (step > 0) {
        s->threads = rates->step[step].threads;
        s->ratio = (uint64_t)(65536 * twill_thread_ns(rates, step, written, read, false) /
                              twill_thread_ns(rates, 0, written, read, false));
    }
    return s;
}

/* Return the picoseconds of work that takes `work` by one thread, and writes and reads so many
 * bytes, by as many threads as the executor uses. */
static uint64_t share(struct twill_pricing *p, uint64_t work, uint64_t written, uint64_t read)
{
    if (p->call.rates.steps < 2 || p->call.alone || work == 0)
        return work;
    const struct twill_price_shared *s = shared_work(p, written, read);
    p->call.helped |= s->threads > 1;
    return (work >> 16) * s->ratio + ((work & 0xffff) * s->ratio >> 16);
}

unsigned twill_price_threads(struct twill_pricing *p, const struct twill_step *step)
{
    uint64_t bytes = twill_price_step_bytes(p, step);
    bool copies = step->op == TWILL_STEP_COPY || p->facts.fetches;
    unsigned sources = step->op == TWILL_STEP_RECV_REDUCE ? 2 : step->nsrc;
    if (p->call.rates.steps < 2 || bytes == 0 ||
        (step->op != TWILL_STEP_COPY && step->op != TWILL_STEP_REDUCE &&
         step->op != TWILL_STEP_RECV_REDUCE))
        return 1;
    return shared_work(p, bytes, copies ? bytes : sources * bytes)->threads;
}

/* Return the picoseconds of a REDUCE. What a system call reads is shared, not the call. */
static uint64_t reduce_time(struct twill_pricing *p, uint32_t rank, const struct twill_step *step,
                            uint8_t link, uint64_t bytes)
{
    uint64_t work = 0, calls = 0;
    for (unsigned i = 0; i < step->nsrc; i++) {
        bool own = step->peer[i] == rank && (step->flags & TWILL_STEP_OWN_SRC) != 0;
        work += own ? twill_rate_time(p->call.model->copy, bytes)
                    : memory_time(p, rank, step->src, step->peer[i], link, bytes);
        calls += fetch_time(p, rank, step->src, step->peer[i]);
    }
    work += (step->nsrc - ((step->flags & TWILL_STEP_ACC) == 0)) *
            twill_rate_time(p->call.reduce_cost, bytes);
    return calls + share(p, work, bytes, p->facts.fetches ? bytes : step->nsrc * bytes);
}

/* Return the picoseconds in which cores move a message between nodes, as with TCP. Threads share it
 * where they pay in copies of 1 MiB, as lib/comm/comm_transports.c decides. */
static uint64_t sending_time(struct twill_pricing *p, uint8_t link, uint64_t bytes)
{
    const uint64_t work = twill_rate_time(p->call.model->link[link].gap, bytes);
    bool shares = p->call.rates.steps > 1 && shared_work(p, 1 << 20, 1 << 20)->threads > 1;
    return shares ? share(p, work, bytes, bytes) : work;
}

uint64_t twill_price_work(struct twill_pricing *p, uint32_t rank, const struct twill_step *step,
                          uint8_t link)
{
    const struct twill_machine_model *model = p->call.model;
    uint64_t bytes = twill_price_step_bytes(p, step), work = 0;
    switch (step->op) {
    case TWILL_STEP_SEND:
        return model->link[link].overhead +
               (link < TWILL_LINK_NETWORK
                    ? passing_time(p, (enum twill_link_class)link, model->link[link].gap, bytes)
                : model->moves != 0 ? sending_time(p, link, bytes)
                                    : 0);
    case TWILL_STEP_RECV:
        return model->link[link].overhead;
    case TWILL_STEP_RECV_REDUCE:
        return model->link[link].overhead +
               share(p, twill_rate_time(p->call.reduce_cost, bytes), bytes, 2 * bytes);
    case TWILL_STEP_SIGNAL:
    case TWILL_STEP_PUT_IMM:
        return model->raise + twill_rate_time(model->bounce, bytes);
    case TWILL_STEP_AWAIT:
        return step->nsrc * model->poll;
    case TWILL_STEP_REDUCE:
        return reduce_time(p, rank, step, link, bytes);
    case TWILL_STEP_COPY: /* costs its dearer end */
        work = twill_price_later(memory_time(p, rank, step->src, step->peer[0], link, bytes),
                                 memory_time(p, rank, step->dst, step->peer[0], link, bytes));
        return twill_price_later(fetch_time(p, rank, step->src, step->peer[0]),
                                 fetch_time(p, rank, step->dst, step->peer[0])) +
               share(p, work, bytes, bytes);
    default:
        return 0;
    }
}

/* Occupy a resource for `time` picoseconds, not before `start`. Returns when it is free again. */
static uint64_t take(struct twill_price_resource *r, uint64_t start, uint64_t time)
{
    r->busy += time;
    return r->free = twill_price_later(r->free, start) + time;
}

/* Return the core on which the rank of the lane runs. */
static struct twill_price_resource *core_of(const struct twill_pricing *p,
                                            const struct twill_price_lane *lane)
{
    return &p->rank[p->rank[lane->place].core].use.of[TWILL_PRICE_CORE];
}

/* Occupy the core of the lane for `time` picoseconds, and advance the clock of the lane to the end.
 * On a shared core, a lane that has waited first needs a switch between ranks. If ranks are
 * simulated by themselves, the time counts once for each rank that shares the core. */
static void occupy(struct twill_pricing *p, struct twill_price_lane *lane, uint64_t time)
{
    if (p->call.model->crowd > 1) {
        time += lane->waits ? p->call.model->turn : 0;
        time *= p->unit == TWILL_PRICE_RANKS ? p->call.model->crowd : 1;
        lane->waits = false;
    }
    lane->time = take(core_of(p, lane), lane->time, time);
}

/* Occupy the core of the lane for the work of step `at`. */
static void occupy_for_step(struct twill_pricing *p, struct twill_price_lane *lane, uint32_t at)
{
    occupy(p, lane, twill_price_work(p, lane->rank, &p->step[at].step, p->step[at].link));
}

/* Return the costs of the link that step `at` uses. */
static const struct twill_link_cost *cost_of(const struct twill_pricing *p, uint32_t at)
{
    return &p->call.model->link[p->step[at].link];
}

/* Let the lanes that wait for step `at` continue. Their order does not matter, as must_yield() asks
 * for it. */
static void wake(struct twill_pricing *p, uint32_t at)
{
    int32_t l = p->step[at].waiter;
    p->step[at].waiter = TWILL_PRICE_NONE;
    for (; l != TWILL_PRICE_NONE; l = p->lane[l].next)
        p->ready[p->ready_count++] = (uint32_t)l;
}

/* Charge what a rank reads or writes of an operand in another unit to the memory ports of both
 * units. Returns the time at which it is complete, or 0 if there are no ports or the operand is its
 * own. Messages are limited by cores, not by ports. */
static uint64_t pass_ports(struct twill_pricing *p, const struct twill_price_lane *lane,
                           twill_operand operand, uint32_t peer, bool writes)
{
    if (!twill_operand_is_peer(operand) || peer == lane->rank)
        return 0;
    enum twill_link_class link = class_to(p, lane->rank, p->step[lane->at].link, peer);
    uint64_t rate = p->call.model->link[link].port;
    unsigned level = rate > 0 ? twill_link_leaves(p->world, link) : TWILL_LEVEL_COUNT;
    if (level == TWILL_LEVEL_COUNT)
        return 0;
    uint64_t time = twill_rate_time(rate, twill_price_step_bytes(p, &p->step[lane->at].step)) *
                    p->facts.share[level];
    uint32_t own = p->rank[lane->place].port[level];
    uint32_t other = p->rank[twill_price_place(p, lane->place, peer)].port[level];
    struct twill_price_resource *from = p->rank[writes ? own : other].use.of;
    struct twill_price_resource *to = p->rank[writes ? other : own].use.of;
    uint64_t start = twill_price_later(lane->time, core_of(p, lane)->free);
    uint64_t out = take(&from[TWILL_PRICE_OUT + level], start, time);
    return twill_price_later(out, take(&to[TWILL_PRICE_INTO + level], start, time));
}

/* Run a REDUCE or COPY, which ends when the core and the ports are done with it. */
static void run_local(struct twill_pricing *p, struct twill_price_lane *lane)
{
    const struct twill_step *step = &p->step[lane->at].step;
    uint64_t until = 0;
    unsigned reads = p->call.ports ? step->op == TWILL_STEP_REDUCE ? step->nsrc : 1 : 0;
    for (unsigned i = 0; i < reads; i++)
        until = twill_price_later(until, pass_ports(p, lane, step->src, step->peer[i], false));
    if (reads > 0 && step->op == TWILL_STEP_COPY)
        until = twill_price_later(until, pass_ports(p, lane, step->dst, step->peer[0], true));
    occupy_for_step(p, lane, lane->at);
    lane->time = core_of(p, lane)->free = twill_price_later(lane->time, until);
}

/* Return the index in p->step of the SIGNAL or PUT_IMM that an AWAIT expects of its peer i. That is
 * number step->ordinal, from 1, of the SIGNALs of lane step->lane, or the lane's first PUT_IMM.
 * Returns TWILL_PRICE_NONE if the peer has none. */
static int32_t signal_step(const struct twill_pricing *p, uint32_t place,
                           const struct twill_step *step, unsigned i)
{
    bool puts = (step->flags & TWILL_STEP_IMM) != 0;
    int32_t at = p->rank[twill_price_place(p, place, step->peer[i])].flag[puts][step->lane];
    for (unsigned n = 1; n < step->ordinal && !puts && at != TWILL_PRICE_NONE; n++)
        at = p->step[at].match;
    return at;
}

/* Run an AWAIT. Returns TWILL_PRICE_NONE once all flags are up and polled, TWILL_PRICE_LATER after
 * setting the time of the lane to that at which they are up, or else a step to wait for. */
static int32_t run_await(struct twill_pricing *p, struct twill_price_lane *lane)
{
    const struct twill_step *step = &p->step[lane->at].step;
    uint64_t time = twill_price_later(lane->time, lane->until);
    for (unsigned i = lane->seen; i < step->nsrc && !lane->awaited; i++) {
        if (step->peer[i] == lane->rank)
            continue;
        int32_t raised = signal_step(p, lane->place, step, i);
        uint64_t when = raised != TWILL_PRICE_NONE ? p->step[raised].when : 0;
        if (when == TWILL_PRICE_NOT_YET) {
            lane->seen = i;
            lane->until = time;
            return raised;
        }
        enum twill_link_class link = class_to(p, lane->rank, p->step[lane->at].link, step->peer[i]);
        time = twill_price_later(time, when + p->call.model->link[link].signal);
    }
    lane->seen = 0;
    lane->until = 0;
    lane->awaited = time > lane->time;
    lane->time = time;
    if (lane->awaited)
        return TWILL_PRICE_LATER;
    occupy_for_step(p, lane, lane->at);
    return TWILL_PRICE_NONE;
}

/* Return the state of the network interface that a simulated rank uses, which is kept with the
 * first simulated rank of its node. `place` is the index of the rank in p->rank. */
static struct twill_price_use *interface_of(const struct twill_pricing *p, uint32_t place)
{
    return &p->rank[p->rank[place].port[TWILL_LEVEL_NODE]].use;
}

/* Return the state of the links between the group of a simulated rank and other groups, which is
 * kept with the first simulated rank of the group. */
static struct twill_price_use *uplinks_of(const struct twill_pricing *p, uint32_t place)
{
    return &p->rank[p->rank[place].port[TWILL_LEVEL_GROUP]].use;
}

/* Return the picoseconds in which `bytes` bytes of a simulated rank pass the network interface of
 * its node. If it is simulated by itself, as many bytes of all other ranks of the node pass with
 * them. */
static uint64_t interface_time(const struct twill_pricing *p, uint64_t bytes)
{
    return twill_rate_time(p->call.model->interface, bytes) * p->facts.share[TWILL_LEVEL_NODE];
}

/* Return the picoseconds in which a message of a simulated rank passes the links between its group
 * and others. Returns 0 if the message of step `at` does not use them, or they carry what the
 * interfaces of all nodes do. Each node adds its share of these links to the group, which has one
 * link at least. If the rank is simulated by itself, what other ranks of the group send out of it
 * passes with the message. */
static uint64_t uplink_time(const struct twill_pricing *p, uint32_t place, uint32_t at)
{
    const struct twill_link_cost *cost = cost_of(p, at);
    const struct twill_price_rank *rank = &p->rank[place];
    if (p->step[at].link != TWILL_LINK_GROUP || cost->port <= p->call.model->interface)
        return 0;
    uint64_t rate = twill_min(cost->port / rank->group_nodes, twill_max(cost->gap, 1));
    return twill_rate_time(rate * rank->crossing / 1024,
                           twill_price_step_bytes(p, &p->step[at].step));
}

/* Remember that an inlet was idle from `begin` to `end`, in place of the shortest such time. */
static void keep_idle(struct twill_price_inlet *in, uint64_t begin, uint64_t end)
{
    unsigned least = 0;
    for (unsigned i = 1; i <= in->used && i < TWILL_PRICE_GAPS; i++)
        if (in->idle_end[i] - in->idle[i] < in->idle_end[least] - in->idle[least])
            least = i;
    if (end - begin > in->idle_end[least] - in->idle[least]) {
        in->idle[least] = begin;
        in->idle_end[least] = end;
        in->used = (unsigned)twill_max(in->used, least + 1);
    }
}

/* Let an inlet receive for `time` a message that is there from `first` on, and return when that is
 * done. It uses an earlier idle time if it fits, as another rank of the unit may have posted its
 * receive earlier. Otherwise it follows the last message. */
static uint64_t pass_inlet(struct twill_price_inlet *in, uint64_t first, uint64_t time)
{
    in->busy += time;
    for (unsigned i = 0; i < in->used; i++) {
        uint64_t from = in->idle[i], begin = twill_price_later(first, from), end = in->idle_end[i];
        if (begin + time > end)
            continue;
        in->idle[i] = begin + time;
        keep_idle(in, from, begin);
        return begin + time;
    }
    if (first > in->end)
        keep_idle(in, in->end, first);
    return in->end = twill_price_later(in->end, first) + time;
}

/* Let the message of step number `at`, a SEND, arrive at its receiver, and wake lanes that wait for
 * it. It passes the links into the group, the interface of the receiving node and the link of the
 * rank after earlier messages. `place` is the index in p->rank of the sender or of the receiver, no
 * matter which. */
static void arrive(struct twill_pricing *p, uint32_t place, uint32_t at)
{
    uint32_t to = twill_price_place(p, place, p->step[at].step.peer[0]);
    uint64_t bytes = twill_price_step_bytes(p, &p->step[at].step),
             time = twill_rate_time(cost_of(p, at)->gap, bytes);
    uint64_t first = p->step[at].sent - time + cost_of(p, at)->latency;
    uint64_t *in = &p->rank[to].use.in, uplink = uplink_time(p, to, at);
    *in = twill_price_later(*in, first) + time;
    p->step[at].when = twill_price_later(
        pass_inlet(&interface_of(p, to)->node, first, interface_time(p, bytes)), *in);
    if (uplink > time) /* it has left its group as slowly, and enters this one at the same time */
        first -= uplink - time;
    if (uplink > 0)
        p->step[at].when = twill_price_later(p->step[at].when,
                                             pass_inlet(&uplinks_of(p, to)->group, first, uplink));
    wake(p, at);
}

/* Run a SEND. Between nodes, a message uses the receiving side once it has been sent and its
 * receive is posted, so that the message of a rank which is ahead does not delay one that the
 * receiver needs first. (In order of sending, one node more made some prices a third higher.) */
static void run_send(struct twill_pricing *p, struct twill_price_lane *lane)
{
    uint32_t at = lane->at;
    const struct twill_link_cost *cost = cost_of(p, at);
    struct twill_price_step *posted = &p->step[at];
    occupy_for_step(p, lane, at);
    posted->sent = lane->time;
    if (p->step[at].link < TWILL_LINK_NETWORK) {
        posted->when = lane->time + cost->latency;
        wake(p, at);
        return;
    }
    uint64_t bytes = twill_price_step_bytes(p, &p->step[at].step),
             time = twill_rate_time(cost->gap, bytes);
    uint64_t uplink = uplink_time(p, lane->place, at);
    struct twill_price_resource *out = &p->rank[lane->place].use.of[TWILL_PRICE_LINK];
    struct twill_price_resource *node =
        &interface_of(p, lane->place)->of[TWILL_PRICE_OUT + TWILL_LEVEL_NODE];
    uint64_t start =
        lane->time - (p->call.model->moves != 0 ? sending_time(p, p->step[at].link, bytes) : 0);
    start = twill_price_later(start, twill_price_later(out->free, node->free));
    take(node, start, interface_time(p, bytes));
    posted->sent = take(out, start, time);
    if (uplink > 0) /* messages of other ranks may fill these links, without delaying the start */
        posted->sent = twill_price_later(
            posted->sent, take(&uplinks_of(p, lane->place)->of[TWILL_PRICE_OUT + TWILL_LEVEL_GROUP],
                               start, uplink));
    if (posted->match == TWILL_PRICE_NONE || p->step[posted->match].when != TWILL_PRICE_NOT_YET)
        arrive(p, lane->place, at);
}

/* Post the RECV or RECV_REDUCE that is the next step of the lane. If its SEND has run and its
 * message waits for this receive, as between nodes, compute when the message arrives. Otherwise the
 * SEND does that. The clock of the lane does not advance. */
static void run_receive(struct twill_pricing *p, const struct twill_price_lane *lane)
{
    int32_t sent = p->step[lane->at].match;
    p->step[lane->at].when = lane->time;
    if (sent != TWILL_PRICE_NONE && p->step[sent].sent != TWILL_PRICE_NOT_YET &&
        p->step[sent].when == TWILL_PRICE_NOT_YET)
        arrive(p, lane->place, (uint32_t)sent);
}

/* Run a WAIT, which completes what was posted, in order. Returns TWILL_PRICE_NONE when all is
 * complete, or the SEND of the first RECV that has not been sent. If the next message is in flight,
 * sets the time of the lane to its arrival and returns TWILL_PRICE_LATER, for others to run. */
static int32_t run_wait(struct twill_pricing *p, struct twill_price_lane *lane)
{
    for (uint32_t i = lane->posted; i < lane->at; i++) {
        int32_t sent =
            p->step[i].step.op != TWILL_STEP_SEND && twill_step_shape(p->step[i].step.op)->posts
                ? p->step[i].match
                : TWILL_PRICE_NONE;
        if (sent != TWILL_PRICE_NONE && p->step[sent].when == TWILL_PRICE_NOT_YET)
            return sent;
    }
    for (; lane->posted < lane->at; lane->posted++) {
        const struct twill_price_step *posted = &p->step[lane->posted];
        bool sends = p->step[lane->posted].step.op == TWILL_STEP_SEND;
        if (!twill_step_shape(p->step[lane->posted].step.op)->posts)
            continue;
        uint64_t when = sends                               ? posted->sent
                        : posted->match != TWILL_PRICE_NONE ? p->step[posted->match].when
                                                            : 0;
        if (when > lane->time) {
            lane->time = when;
            return TWILL_PRICE_LATER;
        }
        if (!sends)
            occupy_for_step(p, lane, lane->posted);
    }
    lane->posted = lane->at + 1;
    return TWILL_PRICE_NONE;
}

/* Return whether `a` runs before `b`, by time, then by number of the lane. */
static bool before(const struct twill_price_next *a, const struct twill_price_next *b)
{
    return a->time != b->time ? a->time < b->time : a->lane < b->lane;
}

/* Add a lane that can continue to the heap, by its clock. */
static void heap_put(struct twill_pricing *p, uint32_t lane)
{
    const struct twill_price_next next = {p->lane[lane].time, lane};
    uint32_t at = p->queued++;
    for (; at > 0 && before(&next, &p->heap[(at - 1) / 2]); at = (at - 1) / 2)
        p->heap[at] = p->heap[(at - 1) / 2];
    p->heap[at] = next;
}

/* Remove the earliest lane from the heap, which is not empty, and return its number. */
static uint32_t heap_take(struct twill_pricing *p)
{
    const struct twill_price_next last = p->heap[--p->queued];
    uint32_t first = p->heap[0].lane, at = 0, child;
    for (; (child = 2 * at + 1) < p->queued; at = child) {
        if (child + 1 < p->queued && before(&p->heap[child + 1], &p->heap[child]))
            child++;
        if (before(&last, &p->heap[child]))
            break;
        p->heap[at] = p->heap[child];
    }
    p->heap[at] = last;
    return first;
}

/* Run the next step of a lane, and advance the lane if it is done. Then returns TWILL_PRICE_NONE,
 * else TWILL_PRICE_LATER to try it again at the time of the lane, or a step to wait for. */
static int32_t run_step(struct twill_pricing *p, struct twill_price_lane *lane)
{
    int32_t missing = TWILL_PRICE_NONE;
    switch (p->step[lane->at].step.op) {
    case TWILL_STEP_SEND:
        run_send(p, lane);
        break;
    case TWILL_STEP_RECV:
    case TWILL_STEP_RECV_REDUCE:
        run_receive(p, lane);
        break;
    case TWILL_STEP_WAIT:
        missing = run_wait(p, lane);
        break;
    case TWILL_STEP_SIGNAL:
    case TWILL_STEP_PUT_IMM:
        occupy_for_step(p, lane, lane->at);
        p->step[lane->at].when = lane->time;
        wake(p, lane->at);
        break;
    case TWILL_STEP_AWAIT:
        missing = run_await(p, lane);
        break;
    default:
        run_local(p, lane);
        break;
    }
    if (missing == TWILL_PRICE_NONE) {
        lane->time += p->call.model->step;
        lane->at++;
    }
    return missing;
}

/* Return whether lane l may not run its next step yet, as others that are earlier may use the same
 * resource first. */
static bool must_yield(const struct twill_pricing *p, const struct twill_price_lane *lane,
                       uint32_t l)
{
    const struct twill_price_next next = {lane->time, l};
    if (!p->call.takes[p->step[lane->at].turn])
        return false;
    return p->ready_count > 0 || (p->queued > 0 && !before(&next, &p->heap[0]));
}

/* Run lane l while it need not wait for others, and does not end. If it is the `earliest`, its
 * first step need not. Returns the number of the step for which it waits, or a negative number if
 * it waits for none. */
static int32_t run_lane(struct twill_pricing *p, uint32_t l, bool earliest)
{
    struct twill_price_lane *lane = &p->lane[l];
    int32_t missing = TWILL_PRICE_NONE;
    for (; missing < 0 && lane->at < lane->end && (earliest || !must_yield(p, lane, l));
         earliest = false)
        missing = run_step(p, lane);
    lane->waits = lane->waits || missing != TWILL_PRICE_NONE;
    return missing;
}

/* Set all clocks, resources and steps back to begin a simulation, in which all lanes are ready. */
static void reset(struct twill_pricing *p)
{
    for (uint32_t i = 0; i < p->steps; i++) {
        p->step[i].when = p->step[i].sent = TWILL_PRICE_NOT_YET;
        p->step[i].waiter = TWILL_PRICE_NONE;
    }
    for (uint32_t i = 0; i < p->size; i++)
        memset(&p->rank[i].use, 0, sizeof(p->rank[i].use));
    p->queued = p->ready_count = 0;
    for (uint32_t l = p->lanes; l-- > 0;) {
        const struct twill_price_lane *old = &p->lane[l];
        p->lane[l] = (struct twill_price_lane){.rank = old->rank,
                                               .place = old->place,
                                               .first = old->first,
                                               .end = old->end,
                                               .at = old->first,
                                               .posted = old->first};
        p->ready[p->ready_count++] = l;
    }
}

uint64_t twill_price_run(struct twill_pricing *p, size_t bytes)
{
    uint64_t end = 0;
    uint32_t ended = 0;
    twill_price_set_bytes(p, bytes);
    reset(p);
    while (p->ready_count > 0 || p->queued > 0) {
        bool ready = p->ready_count > 0;
        uint32_t l = ready ? p->ready[--p->ready_count] : heap_take(p);
        struct twill_price_lane *lane = &p->lane[l];
        int32_t missing = run_lane(p, l, !ready);
        if (lane->time > p->call.most)
            return TWILL_PRICE_NEVER;
        if (missing >= 0) {
            lane->next = p->step[missing].waiter;
            p->step[missing].waiter = (int32_t)l;
        } else if (lane->at < lane->end) {
            heap_put(p, l);
        } else {
            end = twill_price_later(end, lane->time);
            ended++;
        }
    }
    return ended == p->lanes ? end : TWILL_PRICE_NEVER;
}

/* Return the picoseconds before the first step, for the call and, where it is needed, the exchange
 * of buffer addresses. */
static uint64_t entry_price(const struct twill_pricing *p)
{
    return p->call.model->start + (p->facts.exchanges ? p->call.model->addresses : 0);
}

size_t twill_price_segment(struct twill_pricing *p, size_t bytes)
{
    const struct twill_machine_model *model = p->call.model;
    const bool shared = p->facts.segments == TWILL_PRICE_SEGMENTS_SHARED;
    size_t all = model->segment_rank * p->facts.ranks, usual = model->segment;
    if (p->facts.segments == TWILL_PRICE_SEGMENTS_NONE)
        return 0;
    if (!shared)
        usual = model->segment_net / p->facts.copies;
    else if (all > 0 && all < usual)
        usual = all;
    if (shared && p->facts.overlaps > 0 && model->crowd <= 1 && p->call.rates.steps < 2) {
        uint32_t shards = p->facts.overlaps > 1 ? p->facts.ranks : 1;
        return twill_overlap_segment(model, p->facts.ranks, shards, bytes, usual);
    }
    if (bytes <= usual || p->call.alone || p->call.rates.steps < 2 || !p->facts.grows)
        return usual;
    size_t piece = twill_price_piece(p);
    if (shared)
        return twill_piece_segment(usual, twill_min(piece, SHARED_MOST / p->facts.ranks),
                                   p->facts.ranks);
    /* In smaller worlds that are simulated instead, a block for each rank is one for each here. */
    bool few = p->facts.blocks < p->world->size;
    size_t each = bytes / (size_t)twill_max(model->window, 1),
           most = twill_piece_segment(usual, twill_min(piece, TWILL_PIECE_NET_MOST),
                                      few ? p->facts.blocks : p->facts.ranks);
    return twill_max(usual, twill_min(each, most));
}

/* Return the picoseconds for which the busiest resource was in use in the last simulation. */
static uint64_t busiest(const struct twill_pricing *p)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < p->size; i++) {
        const struct twill_price_use *use = &p->rank[i].use;
        most = twill_price_later(most, twill_price_later(use->node.busy, use->group.busy));
        for (unsigned r = 0; r < TWILL_PRICE_RESOURCES; r++)
            most = twill_price_later(most, use->of[r].busy);
    }
    return most;
}

/* Return the price of the schedules that have just run and ended after `end` picoseconds. If ranks
 * run ahead, a call that follows at once takes only as long as its busiest rank works, as the
 * others have done their part before. Every third call is taken as such. */
static uint64_t follow(const struct twill_pricing *p, uint64_t end)
{
    return p->facts.runs_ahead && end != TWILL_PRICE_NEVER ? (2 * end + busiest(p)) / 3 : end;
}

uint64_t twill_pricing_at(struct twill_pricing *p, const struct twill_machine_model *model,
                          size_t bytes, struct twill_element_kind elements)
{
    if (p->unit == TWILL_PRICE_SCALED)
        return twill_price_scaled_at(p, model, bytes, elements);
    twill_price_set_call(p, model, elements);
    size_t segment = twill_price_segment(p, bytes);
    bool whole = bytes < segment || segment == 0;
    if (whole || p->one == 0 || p->segment != segment) {
        uint64_t one = follow(p, twill_price_run(p, whole ? bytes : segment));
        if (whole || one == TWILL_PRICE_NEVER)
            return one == TWILL_PRICE_NEVER ? one : entry_price(p) + one;
        p->one = one;
        p->segment = segment;
        p->more = twill_price_later(busiest(p), one / twill_price_later(model->window, 1));
    }
    return entry_price(p) + p->one + twill_rate_time(p->more * 1024 / segment, bytes - segment);
}

uint64_t twill_pricing_toll(const struct twill_pricing *pricing,
                            const struct twill_machine_model *model, size_t bytes)
{
    const struct twill_link_cost *cost = &model->link[TWILL_LINK_GROUP];
    uint64_t rate = cost->port > 0 ? cost->port : cost->gap;
    return twill_rate_time(rate, bytes) / 1024 * pricing->leaving;
}

void twill_pricing_limit(struct twill_pricing *p, uint64_t most)
{
    p->call.most = most;
}

uint64_t twill_pricing_fingerprint(const struct twill_pricing *p)
{
    return p->facts.fingerprint;
}
