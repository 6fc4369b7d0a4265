/* SPDX-License-Identifier: Apache-2.0 */
/* Finds what each step waits for: the SEND of a RECV, the SIGNALs and PUT_IMMs of an AWAIT. */
#include "algorithms/schedule/step_table.h"
#include "algorithms/select/price_state.h"

#include <stdlib.h>
#include <string.h>

/* Link the SIGNALs, and the PUT_IMMs, of each lane through `match`. */
static void link_flags(struct twill_pricing *p)
{
    memset(p->steps.raised, 0xff,
           (size_t)p->worlds.run->size * TWILL_SCHEDULE_LANES * sizeof(*p->steps.raised));
    memset(p->steps.put, 0xff,
           (size_t)p->worlds.run->size * TWILL_SCHEDULE_LANES * sizeof(*p->steps.put));
    for (uint32_t r = 0; r < p->worlds.run->size; r++) {
        for (uint32_t i = p->steps.base[r + 1]; i-- > p->steps.base[r];) {
            uint32_t lane = r * TWILL_SCHEDULE_LANES + p->steps.step[i].lane;
            bool puts = p->steps.step[i].op == TWILL_STEP_PUT_IMM;
            if (!puts && p->steps.step[i].op != TWILL_STEP_SIGNAL)
                continue;
            int32_t *first = puts ? &p->steps.put[lane] : &p->steps.raised[lane];
            p->steps.match[i] = *first;
            *first = (int32_t)i;
        }
    }
}

/* The messages of one (from, to, lane), with ONE_NODE also of one distance in nodes. */
struct message_channel {
    uint64_t key;  /* plus 1; 0: free */
    int32_t first; /* SEND that the next RECV may match */
    uint32_t sends;
    uint64_t sent, received; /* blocks: up to the end of `first`; received so far */
};

struct channel_table {
    struct message_channel *channel;
    size_t mask;
};

static struct message_channel *channel_of(const struct channel_table *t, uint32_t from, uint32_t to,
                                          uint32_t hop, uint32_t lane)
{
    uint64_t key =
        ((uint64_t)from << 48 | (uint64_t)to << 32 | (uint64_t)hop << 8 | (uint64_t)lane) + 1;
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & t->mask;
    while (t->channel[at].key != 0 && t->channel[at].key != key)
        at = (at + 1) & t->mask;
    if (t->channel[at].key == 0)
        t->channel[at] = (struct message_channel){.key = key, .first = TWILL_PRICE_NONE};
    return &t->channel[at];
}

/* Return the channel that rank r receives message i from. With ONE_NODE the sender is the node at
 * the same distance on the other side; if no rank sends that way, the two nodes exchange messages,
 * and this node's own message stands for the peer's. */
static struct message_channel *channel_source(const struct twill_pricing *p,
                                              const struct channel_table *t, uint32_t r, uint32_t i)
{
    uint32_t from = p->steps.step[i].peer[0], lane = p->steps.step[i].lane;
    if (p->mode != TWILL_PRICE_ONE_NODE)
        return channel_of(t, from, r, 0, lane);
    struct message_channel *c = channel_of(t, from, r, p->steps.hop[i], lane);
    return c->sends > 0
               ? c
               : channel_of(t, from, r,
                            (p->worlds.truth->nodes - p->steps.hop[i]) % p->worlds.truth->nodes,
                            lane);
}

/* Return the blocks of a message, 1 for an empty one. */
static uint32_t weight_of(const struct twill_pricing *p, uint32_t i)
{
    return p->steps.step[i].blocks > 0 ? p->steps.step[i].blocks : 1;
}

static bool step_receives(const struct twill_pricing *p, uint32_t i)
{
    return p->steps.step[i].op != TWILL_STEP_SEND && twill_step_shape(p->steps.step[i].op)->posts;
}

static void list_sends(struct twill_pricing *p, const struct channel_table *t)
{
    for (uint32_t r = p->worlds.run->size; r-- > 0;) {
        for (uint32_t i = p->steps.base[r + 1]; i-- > p->steps.base[r];) {
            if (p->steps.step[i].op != TWILL_STEP_SEND)
                continue;
            struct message_channel *c =
                channel_of(t, r, p->steps.step[i].peer[0],
                           p->steps.hop != NULL ? p->steps.hop[i] : 0, p->steps.step[i].lane);
            p->steps.match[i] = c->first;
            c->first = (int32_t)i;
            c->sends++;
            c->sent = weight_of(p, i);
        }
    }
}

/* Match each RECV with a SEND of its channel, in order, by blocks: with ONE_NODE a node may send in
 * one message what another receives in two, so a RECV matches the SEND that brings its last block.
 * Returns whether all are matched. */
static bool match_receives(struct twill_pricing *p, const struct channel_table *t)
{
    bool all = true;
    for (uint32_t r = 0; r < p->worlds.run->size; r++) {
        for (uint32_t i = p->steps.base[r]; i < p->steps.base[r + 1]; i++) {
            if (!step_receives(p, i))
                continue;
            struct message_channel *c = channel_source(p, t, r, i);
            c->received += weight_of(p, i);
            while (c->first != TWILL_PRICE_NONE && c->sent < c->received) {
                c->first = p->steps.match[c->first];
                c->sent += c->first != TWILL_PRICE_NONE ? weight_of(p, (uint32_t)c->first) : 0;
            }
            p->steps.match[i] = c->first;
            all = all && c->first != TWILL_PRICE_NONE;
        }
    }
    return all;
}

/* Let each SEND know the first RECV that waits for it, or none. */
static void name_receives(struct twill_pricing *p)
{
    uint32_t steps = p->steps.base[p->worlds.run->size];
    for (uint32_t i = 0; i < steps; i++)
        if (p->steps.step[i].op == TWILL_STEP_SEND)
            p->steps.match[i] = TWILL_PRICE_NONE;
    for (uint32_t i = steps; i-- > 0;)
        if (step_receives(p, i) && p->steps.match[i] != TWILL_PRICE_NONE)
            p->steps.match[p->steps.match[i]] = (int32_t)i;
}

twill_status twill_price_match(struct twill_pricing *p)
{
    struct channel_table t = {.mask = 63};
    size_t messages = 0;
    for (uint32_t i = 0; i < p->steps.base[p->worlds.run->size]; i++)
        messages += twill_step_shape(p->steps.step[i].op)->posts;
    while (t.mask < 2 * messages)
        t.mask = 2 * t.mask + 1;
    t.channel = calloc(t.mask + 1, sizeof(*t.channel));
    if (t.channel == NULL)
        return TWILL_ERR_MEMORY;
    link_flags(p);
    list_sends(p, &t);
    bool all = match_receives(p, &t);
    name_receives(p);
    free(t.channel);
    return all || p->mode != TWILL_PRICE_ONE_NODE ? TWILL_OK : TWILL_PENDING;
}
