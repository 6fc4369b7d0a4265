/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between ranks: links, interfaces, and the order in which they arrive. */
#include "algorithms/schedule/step_table.h"
#include "algorithms/select/price_state.h"

/* Return the time from which on the network is free to take a message, and take it: through the
 * link of the rank and the interface of its node, from `start` on. */
static uint64_t leave(struct twill_pricing *p, uint32_t from, uint64_t start, uint64_t time,
                      uint64_t occupied)
{
    uint32_t node = p->worlds.run->node[from];
    start = twill_price_later(start, p->resources.out[from]);
    start = twill_price_later(start, p->resources.node_out[node]);
    p->resources.node_out[node] = start + occupied;
    p->resources.busy_node[node] += occupied;
    p->resources.out[from] = start + time;
    p->resources.busy_out[from] += time;
    return start;
}

/* Let an interface take in for `occupied` what is there from `first` on: where it is idle before
 * the last message, as another rank of the node may have posted its receive earlier, else behind
 * that. Returns when that is done. Of the times that are idle only the last is remembered. */
static uint64_t pass_interface(struct twill_pricing *p, uint32_t node, uint64_t first,
                               uint64_t occupied)
{
    uint64_t *end = &p->resources.node_in[node];
    uint64_t *idle = &p->resources.node_idle[node], *until = &p->resources.node_idle_end[node];
    uint64_t early = twill_price_later(first, *idle) + occupied;
    if (early <= *until)
        return *idle = early;
    if (first > *end) {
        *idle = *end;
        *until = first;
    }
    return *end = twill_price_later(*end, first) + occupied;
}

/* Let the message of SEND `at` arrive: through the interface of the receiving node and the link of
 * the rank, behind those that have arrived there. */
static void arrive(struct twill_pricing *p, uint32_t at)
{
    uint32_t to = p->steps.step[at].peer[0], node = p->worlds.run->node[to];
    const struct twill_link_cost *link = twill_price_link(p, at);
    uint64_t bytes = twill_price_bytes(p, &p->steps.step[at]);
    uint64_t time = twill_rate_time(link->gap, bytes);
    uint64_t occupied = twill_rate_time(p->call.model->interface, bytes);
    uint64_t first = p->times.sent[at] - time + link->latency;
    uint64_t *in = &p->resources.in[to];
    *in = twill_price_later(*in, first) + time;
    p->times.when[at] = twill_price_later(pass_interface(p, node, first, occupied), *in);
    twill_price_wake(p, at);
}

/* Return how long the bytes of a rank that is run alone take on the network, if its node's other
 * ranks, which are not run, use the interface as much; LEAST: if they do not use it. */
static uint64_t time_alone(const struct twill_pricing *p, const struct twill_price_lane *lane,
                           uint64_t bytes)
{
    uint32_t node = p->worlds.run->node[lane->rank];
    uint64_t others = p->mode != TWILL_PRICE_LEAST ? p->worlds.run->node_size[node] : 0;
    return twill_price_later(twill_rate_time(twill_price_link(p, lane->at)->gap, bytes),
                             twill_rate_time(p->call.model->interface, bytes) * others);
}

/* Return whether the core itself moves the bytes of a message: on a node, and with TCP. */
static bool moves(const struct twill_pricing *p, uint32_t at)
{
    return p->steps.link[at] < TWILL_LINK_NETWORK || p->call.model->moves != 0;
}

/* A message takes its turn at the receiving side when it has been sent and its receive is posted:
 * that of a rank which is ahead must not delay what the receiver waits for first. (In the order of
 * sending, an allreduce by halving took a third longer or not, from one number of nodes to the
 * next.) */
void twill_price_send(struct twill_pricing *p, struct twill_price_lane *lane,
                      const struct twill_step *step)
{
    const struct twill_link_cost *link = twill_price_link(p, lane->at);
    uint64_t bytes = twill_price_bytes(p, step), time = twill_rate_time(link->gap, bytes);
    bool remote = p->steps.link[lane->at] >= TWILL_LINK_NETWORK;
    uint64_t moved = moves(p, lane->at) ? time : 0;
    twill_price_occupy(p, lane, link->overhead + moved);
    lane->moved += moved;
    p->times.sent[lane->at] = lane->time;
    if (remote && p->facts.whole) {
        int32_t received = p->steps.match[lane->at];
        p->times.sent[lane->at] = time + leave(p, lane->rank, lane->time - moved, time,
                                               twill_rate_time(p->call.model->interface, bytes));
        if (received == TWILL_PRICE_NONE || p->times.when[received] != TWILL_PRICE_NOT_YET)
            arrive(p, lane->at);
        return;
    }
    p->times.when[lane->at] = lane->time + link->latency;
    if (remote) {
        uint64_t start = twill_price_later(lane->time - moved, p->resources.out[lane->rank]);
        time = time_alone(p, lane, bytes);
        p->resources.out[lane->rank] = p->times.sent[lane->at] = start + time;
        p->resources.busy_out[lane->rank] += time;
    }
    twill_price_wake(p, lane->at);
}

void twill_price_receive(struct twill_pricing *p, const struct twill_price_lane *lane)
{
    int32_t sent = p->steps.match[lane->at];
    p->times.when[lane->at] = lane->time;
    if (sent != TWILL_PRICE_NONE && p->times.sent[sent] != TWILL_PRICE_NOT_YET &&
        p->times.when[sent] == TWILL_PRICE_NOT_YET)
        arrive(p, (uint32_t)sent);
}

/* Return when a rank that is run alone receives its message: its peer is taken to have sent it when
 * this rank is at this step, or when this rank sent its own message; LEAST: at the beginning. */
uint64_t twill_price_mirrored(struct twill_pricing *p, const struct twill_price_lane *lane,
                              const struct twill_step *step)
{
    const struct twill_link_cost *link = twill_price_link(p, lane->at);
    uint64_t bytes = twill_price_bytes(p, step), sent = lane->time;
    bool remote = p->steps.link[lane->at] >= TWILL_LINK_NETWORK;
    if (p->mode == TWILL_PRICE_LEAST)
        return 0;
    if (lane->posted == lane->at || p->steps.step[lane->posted].op != TWILL_STEP_SEND)
        sent += link->overhead + (remote ? 0 : twill_rate_time(link->gap, bytes));
    if (!remote)
        return sent + link->latency;
    sent -= lane->moved; /* bytes are in flight while the sending core moves them */
    uint64_t *in = &p->resources.in[lane->rank];
    *in = twill_price_later(*in, sent + link->latency) + time_alone(p, lane, bytes);
    return *in;
}

/* Return the SEND of the first RECV posted since the last WAIT that has not been sent, or
 * TWILL_PRICE_NONE. */
int32_t twill_price_unsent(const struct twill_pricing *p, const struct twill_price_lane *lane)
{
    for (uint32_t i = lane->posted; i < lane->at && p->facts.whole; i++)
        if (p->steps.step[i].op != TWILL_STEP_SEND &&
            twill_step_shape(p->steps.step[i].op)->posts && p->steps.match[i] != TWILL_PRICE_NONE &&
            p->times.when[p->steps.match[i]] == TWILL_PRICE_NOT_YET)
            return p->steps.match[i];
    return TWILL_PRICE_NONE;
}
