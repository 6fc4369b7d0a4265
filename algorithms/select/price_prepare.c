/* SPDX-License-Identifier: Apache-2.0 */
/* Creates pricings. Chooses ranks to run, emits their schedules and matches their steps. */
#include "algorithms/schedule/emit.h"
#include "algorithms/select/price_internal.h"

#include <stdlib.h>
#include <string.h>

/* Factor on the budget of steps where nothing else can be run within it. */
#define PRICE_PATIENCE 32u
/* Factor on the budget of steps for one node that represents all, as that price is exact. */
#define NODE_BUDGET 4u
/* With this number of ranks per node or more, the number of messages is ignored when nodes are
 * compared, and only the bytes that leave the node matter. One node may then represent others that
 * send in two messages, where block numbers wrap around, what it sends in one. */
#define MANY_RANKS 8u
/* So many ranks of a group are asked at most how much they send out of it, besides those of its
 * first and last node, through which a ring enters and leaves. */
#define CROSSING_RANKS 16u
/* So many steps are looked at before that limit holds for the first ranks of nodes. */
#define CROSSING_STEPS 4096u

/* Free the schedules that are simulated, and forget the call and the hash of the schedules. */
static void drop_unit(struct twill_pricing *p)
{
    free(p->rank);
    free(p->step);
    free(p->lane);
    free(p->heap);
    free(p->ready);
    p->rank = NULL;
    p->step = NULL;
    p->lane = NULL;
    p->heap = NULL;
    p->ready = NULL;
    p->steps = p->lanes = 0;
    p->call.model = NULL;
    p->facts.fingerprint = 1;
}

void twill_pricing_destroy(struct twill_pricing *p)
{
    if (p == NULL)
        return;
    drop_unit(p);
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(p->scale.sample); i++)
        twill_pricing_destroy(p->scale.sample[i]);
    twill_world_destroy(&p->own);
    free(p);
}

/* Return the unit of each rank at a level, or NULL if the level is unknown. */
static const uint32_t *units_of(const struct twill_world *w, unsigned level)
{
    return level == TWILL_LEVEL_NODE ? w->node : w->unit[level];
}

/* Set which ranks are simulated, those of `unit`, and how many. Also set share[], for each level.
 * If ranks are simulated by themselves, it is the number of ranks that share a unit's port, else
 * 1. */
static void choose_unit(struct twill_pricing *p, enum twill_price_unit unit)
{
    const struct twill_world *w = p->world;
    const bool ranks = unit == TWILL_PRICE_RANKS;
    p->unit = unit;
    p->size = ranks ? 3 : unit == TWILL_PRICE_NODE ? w->node_size[w->nodes - 1] : w->size;
    for (unsigned level = 0; level <= TWILL_LEVEL_NODE; level++) {
        const uint32_t *of = units_of(w, level);
        p->facts.share[level] = !ranks;
        for (uint32_t r = 0; r < w->size && of != NULL && ranks; r++)
            p->facts.share[level] += of[r] == of[w->size / 2];
    }
}

/* Return the rank number `place` of those that are simulated. They are the first, the middle and
 * the last rank of the world, the ranks of the last node, or all ranks. */
static uint32_t rank_at(const struct twill_pricing *p, uint32_t place)
{
    const struct twill_world *w = p->world;
    if (p->unit == TWILL_PRICE_RANKS)
        return place == 0 ? 0 : place == 1 ? w->size / 2 : w->size - 1;
    return p->unit == TWILL_PRICE_NODE ? twill_world_member(w, w->nodes - 1, place) : place;
}

/* Return whether there are several nodes, and all are alike. They must have the same number of
 * ranks, which are divided alike among the units of all smaller levels. */
static bool is_regular(const struct twill_world *w)
{
    for (uint32_t n = 1; n < w->nodes; n++)
        if (w->node_size[n] != w->node_size[0])
            return false;
    for (unsigned level = 0; level < TWILL_LEVEL_NODE; level++) {
        const uint32_t *unit = w->unit[level];
        for (uint32_t r = 0; unit != NULL && r < w->size; r++) {
            uint32_t first = twill_world_member(w, w->node[r], 0);
            uint32_t like = twill_world_member(w, 0, w->local[r]);
            if (unit[r] - unit[first] != unit[like] - unit[twill_world_member(w, 0, 0)])
                return false;
        }
    }
    return w->nodes > 1;
}

/* Set *steps to the number of steps of a rank's schedule, and *hash to a hash of them that ignores
 * their order. It covers how many steps of each kind there are. If a node is simulated, it also
 * covers the sum of their blocks times operands, and messages between nodes are kinds of their own.
 * It then ignores the number of copies, and with MANY_RANKS per node that of these messages. */
static twill_status profile(uint64_t *hash, uint32_t *steps, const struct twill_pricing *p,
                            const struct twill_price_query *q, uint32_t rank)
{
    const struct twill_world *w = p->world;
    bool node = p->unit == TWILL_PRICE_NODE;
    struct twill_schedule s = {.steps = NULL};
    TWILL_TRY(q->error,
              twill_schedule_emit_unchecked(&s, q->algorithm, w, rank, q->shape, q->error));
    *hash = 0;
    for (uint32_t i = 0; i < s.count; i++) {
        const struct twill_step *step = &s.steps[i];
        bool remote =
            node && twill_step_shape(step->op)->posts && w->node[rank] != w->node[step->peer[0]];
        uint64_t amount = step->blocks > 0 ? step->blocks : 1;
        if (step->op == TWILL_STEP_REDUCE || step->op == TWILL_STEP_AWAIT)
            amount *= step->nsrc;
        bool splits = remote ? w->node_size[0] >= MANY_RANKS : node && step->op == TWILL_STEP_COPY;
        if (!splits) /* at the end of a ring of blocks, one step may become two */
            *hash += twill_hash_mix(1, step->op << 2 | remote);
        *hash +=
            node ? twill_hash_mix(1, step->op << 2 | 2 | remote) * amount : 0; /* in any order */
    }
    *steps = s.count;
    twill_schedule_destroy(&s);
    return TWILL_OK;
}

/* Set *fits to whether the ranks to simulate can represent the world. Compares three ranks of the
 * node with those at the same places of three other nodes, or ranks that are simulated by
 * themselves with each other. *fits is false if profiles differ or there are far too many steps. */
static twill_status compare_units(struct twill_pricing *p, const struct twill_price_query *q,
                                  uint64_t steps, bool *fits)
{
    const uint32_t node[] = {0, 1, p->world->nodes / 2}, place[] = {0, p->size / 2, p->size - 1};
    uint32_t count, unused;
    uint64_t least = UINT64_MAX;
    uint64_t own, like, first = 0;
    *fits = true;
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(place) && *fits; i++) {
        TWILL_TRY(q->error, profile(&own, &count, p, q, rank_at(p, place[i])));
        least = count < least ? count : least;
        first = i == 0 ? own : first;
        *fits = p->unit != TWILL_PRICE_RANKS || own == first;
        for (unsigned n = 0; p->unit == TWILL_PRICE_NODE && *fits && n < TWILL_ARRAY_LENGTH(node);
             n++) {
            uint32_t rank = twill_world_member(p->world, node[n], place[i]);
            TWILL_TRY(q->error, profile(&like, &unused, p, q, rank));
            *fits = own == like;
        }
    }
    *fits = *fits && least * p->size <= steps;
    return TWILL_OK;
}

void twill_price_set_facts(struct twill_pricing *p, const struct twill_price_query *q,
                           uint32_t rank, const struct twill_schedule *s)
{
    const struct twill_algorithm *algorithm = q->algorithm;
    bool peers = s->uses_peer_src || s->uses_peer_dst;
    bool fetched = algorithm->protocols != 0 && q->shape->protocol == TWILL_PROTOCOL_FETCHED;
    p->facts.blocks = s->blocks;
    p->facts.copies = (uint32_t)twill_max(s->shared_blocks / s->blocks, 1);
    p->facts.grows = p->facts.copies == 1 && !(algorithm->exchanges >> q->shape->collective & 1);
    p->facts.fetches = fetched && peers;
    /* A schedule that begins with a barrier on the node exchanges the addresses in it. If ranks
     * first wait for a flag of the root, an exchange adds little, as the root raises it at once. */
    bool flags =
        s->count > 0 && (s->steps[0].op == TWILL_STEP_SIGNAL || s->steps[0].op == TWILL_STEP_AWAIT);
    bool meets = twill_collective_facts(q->shape->collective)->rooted
                     ? flags
                     : twill_schedule_entry_steps(s, rank, p->world->size) > 0;
    p->facts.exchanges = peers && (p->world->nodes > 1 || !meets);
    p->facts.runs_ahead = s->eager && !peers && p->world->nodes == 1;
    /* Large for messages, small through SHARED, none in place unless there is scratch. */
    p->facts.segments = p->world->nodes > 1 || algorithm->protocols == 0 ? TWILL_PRICE_SEGMENTS_NET
                        : q->shape->protocol >= TWILL_PROTOCOL_MAPPED && s->tmp_blocks == 0
                            ? TWILL_PRICE_SEGMENTS_NONE
                            : TWILL_PRICE_SEGMENTS_SHARED;
    bool eager = s->eager && !twill_collective_facts(q->shape->collective)->reduces;
    p->facts.overlaps = eager && q->shape->protocol == TWILL_PROTOCOL_STAGED ? s->shards : 0;
    uint64_t facts = (uint64_t)p->unit << 40 | (uint64_t)p->facts.segments << 36 |
                     (uint64_t)p->facts.runs_ahead << 35 | (uint64_t)s->blocks << 2 |
                     (uint64_t)(p->facts.overlaps > 0) << 1 | p->facts.fetches;
    p->facts.fingerprint = twill_hash_mix(p->facts.fingerprint, facts);
}

uint8_t twill_price_step_class(const struct twill_pricing *p, uint32_t rank,
                               const struct twill_step *step)
{
    uint8_t class = TWILL_LINK_NODE;
    bool found = false;
    for (unsigned n = 0; n < twill_step_peers(step); n++) {
        if (step->peer[n] == rank)
            continue;
        uint8_t one = (uint8_t)twill_link_between(p->world, rank, step->peer[n]);
        if (found && one != class)
            return TWILL_PRICE_MIXED;
        class = one;
        found = true;
    }
    return class;
}

/* Return the enum twill_price_turn of a step of this schedule. */
static uint8_t turn_of(const struct twill_schedule *s, const struct twill_step *step, uint8_t link)
{
    bool sends = twill_step_shape(step->op)->posts && link >= TWILL_LINK_NETWORK;
    return s->lanes > 1 || sends                                          ? TWILL_PRICE_TURN
           : step->op == TWILL_STEP_COPY || step->op == TWILL_STEP_REDUCE ? TWILL_PRICE_AT_PORT
                                                                          : TWILL_PRICE_NO_TURN;
}

/* Append the steps and lanes of the rank at this place, which has the schedule `s`, and add them to
 * the fingerprint. Returns false if out of memory. */
static bool add_schedule(struct twill_pricing *p, uint32_t place, const struct twill_schedule *s)
{
    uint32_t rank = p->rank[place].rank, steps = p->steps + s->count;
    struct twill_price_step *grown = realloc(p->step, (steps + 1) * sizeof(*grown));
    if (grown == NULL)
        return false;
    p->step = grown;
    uint64_t hash =
        twill_hash_mix(p->facts.fingerprint, (uint64_t)s->shared_blocks << 32 | s->count);
    for (uint32_t i = 0; i < s->count; i++) {
        uint64_t word[sizeof(s->steps[i]) / sizeof(uint64_t)];
        uint8_t link = twill_price_step_class(p, rank, &s->steps[i]);
        grown[p->steps + i] = (struct twill_price_step){
            .step = s->steps[i], .link = link, .turn = turn_of(s, &s->steps[i], link)};
        memcpy(word, &s->steps[i], sizeof(word));
        for (size_t w = 0; w < TWILL_ARRAY_LENGTH(word); w++)
            hash = twill_hash_mix(hash, word[w]);
    }
    for (uint32_t l = 0; l < s->lanes; l++) {
        uint32_t first = p->steps + s->lane_first[l], end = p->steps + s->lane_first[l + 1];
        p->lane[p->lanes++] =
            (struct twill_price_lane){.rank = rank, .place = place, .first = first, .end = end};
        hash = twill_hash_mix(hash, end);
    }
    p->facts.fingerprint = hash;
    p->steps = steps;
    return true;
}

/* Set port[] of each simulated rank, by level, to the index of the first simulated rank in its
 * unit. They share the ports of the unit. A rank that is simulated by itself has its own index.
 * Returns false if out of memory. */
static bool number_ports(struct twill_pricing *p)
{
    const struct twill_world *w = p->world;
    uint32_t *first = malloc(w->size * sizeof(*first)); /* by unit */
    for (unsigned level = 0; level < TWILL_LEVEL_COUNT && first != NULL; level++) {
        const uint32_t *of = units_of(w, level);
        memset(first, 0xff, w->size * sizeof(*first));
        for (uint32_t i = 0; i < p->size && of != NULL; i++) {
            uint32_t *leader = &first[of[p->rank[i].rank]];
            if (*leader == UINT32_MAX || p->unit == TWILL_PRICE_RANKS)
                *leader = i;
            p->rank[i].port[level] = *leader;
        }
    }
    free(first);
    return first != NULL;
}

/* Set group_nodes of each simulated rank, and `crossing` as if all ranks were simulated. Returns
 * false if out of memory. */
static bool count_group_nodes(struct twill_pricing *p)
{
    const struct twill_world *w = p->world;
    const uint32_t *group = w->unit[TWILL_LEVEL_GROUP];
    uint32_t *nodes = calloc(w->nodes, sizeof(*nodes)); /* by group */
    for (uint32_t n = 0; n < w->nodes && group != NULL && nodes != NULL; n++)
        nodes[group[twill_world_member(w, n, 0)]]++;
    for (uint32_t i = 0; i < p->size && nodes != NULL; i++) {
        p->rank[i].group_nodes = group != NULL ? nodes[group[p->rank[i].rank]] : 0;
        p->rank[i].crossing = 1024;
    }
    free(nodes);
    return nodes != NULL;
}

/* Allocate the ranks, lanes and heap, and set the number, the ports and the group of each rank.
 * drop_unit() frees them in any case. Returns false if out of memory. */
static bool allocate_ranks(struct twill_pricing *p)
{
    size_t lanes = (size_t)p->size * TWILL_SCHEDULE_LANES;
    p->rank = calloc(p->size, sizeof(*p->rank));
    p->lane = malloc(lanes * sizeof(*p->lane));
    p->heap = malloc(lanes * sizeof(*p->heap));
    p->ready = malloc(lanes * sizeof(*p->ready));
    for (uint32_t i = 0; i < p->size && p->rank != NULL; i++)
        p->rank[i].rank = rank_at(p, i);
    return p->rank != NULL && p->lane != NULL && p->heap != NULL && p->ready != NULL &&
           number_ports(p) && count_group_nodes(p);
}

/* Emit the schedules of the simulated ranks, and set the facts from the first of them. Returns
 * TWILL_PENDING if they have more than `most` steps, or TWILL_ERR_MEMORY. */
static twill_status emit_unit(struct twill_pricing *p, const struct twill_price_query *q,
                              uint64_t most)
{
    if (!allocate_ranks(p))
        return TWILL_ERR_MEMORY;
    for (uint32_t i = 0; i < p->size; i++) {
        struct twill_schedule s = {.steps = NULL};
        uint32_t rank = p->rank[i].rank;
        TWILL_TRY(q->error, twill_schedule_emit_unchecked(&s, q->algorithm, p->world, rank,
                                                          q->shape, q->error));
        bool fits = p->steps + (uint64_t)s.count <= most;
        if (i == 0)
            twill_price_set_facts(p, q, rank, &s);
        bool added = fits && add_schedule(p, i, &s);
        twill_schedule_destroy(&s);
        if (!added)
            return fits ? TWILL_ERR_MEMORY : TWILL_PENDING;
    }
    return TWILL_OK;
}

/* Set `match` of each SIGNAL to the next SIGNAL of its lane, and of each PUT_IMM to the next
 * PUT_IMM. Set flag[] of each simulated rank to the first SIGNAL and the first PUT_IMM of each
 * lane. Where there is none it is TWILL_PRICE_NONE. */
static void link_flags(struct twill_pricing *p)
{
    for (uint32_t i = 0; i < p->size; i++)
        memset(p->rank[i].flag, 0xff, sizeof(p->rank[i].flag));
    for (uint32_t l = p->lanes; l-- > 0;) {
        for (uint32_t i = p->lane[l].end; i-- > p->lane[l].first;) {
            const struct twill_step *step = &p->step[i].step;
            bool puts = step->op == TWILL_STEP_PUT_IMM;
            if (!puts && step->op != TWILL_STEP_SIGNAL)
                continue;
            int32_t *first = &p->rank[p->lane[l].place].flag[puts][step->lane];
            p->step[i].match = *first;
            *first = (int32_t)i;
        }
    }
}

/* Add to *blocks the number of blocks that a rank sends out of its group, and to *steps that of its
 * steps. */
static twill_status add_crossing(uint64_t *blocks, uint64_t *steps, const struct twill_world *w,
                                 const struct twill_price_query *q, uint32_t rank)
{
    const uint32_t *group = w->unit[TWILL_LEVEL_GROUP];
    struct twill_schedule s = {.steps = NULL};
    TWILL_TRY(q->error,
              twill_schedule_emit_unchecked(&s, q->algorithm, w, rank, q->shape, q->error));
    for (uint32_t i = 0; i < s.count; i++)
        if (s.steps[i].op == TWILL_STEP_SEND && group[s.steps[i].peer[0]] != group[rank])
            *blocks += s.steps[i].blocks > 0 ? s.steps[i].blocks : 1;
    *steps += s.count;
    twill_schedule_destroy(&s);
    return TWILL_OK;
}

/* Set *blocks to the blocks that the ranks of a group send out of it. The ranks at the places
 * `first` to `last` of world->order are the group. Ranks of its first and last node are asked. The
 * rest is estimated from some first ranks of nodes, which may send for these, and some others. */
static twill_status group_crossing(uint64_t *blocks, const struct twill_world *w,
                                   const struct twill_price_query *q, uint32_t first, uint32_t last)
{
    struct {
        uint64_t sent;
        uint32_t all, seen, taken;
    } of[2] = {{.sent = 0}};
    uint32_t from = w->node[w->order[first]], to = w->node[w->order[last]];
    uint64_t steps = 0;
    *blocks = 0;
    for (uint32_t at = first; at <= last; at++) {
        uint32_t rank = w->order[at];
        if (w->node[rank] == from || w->node[rank] == to)
            TWILL_TRY(q->error, add_crossing(blocks, &steps, w, q, rank));
        else
            of[w->local[rank] > 0].all++;
    }
    for (uint32_t at = first; at <= last; at++) {
        uint32_t rank = w->order[at], i = w->local[rank] > 0;
        bool all = i == 0 && steps < CROSSING_STEPS;
        if (w->node[rank] == from || w->node[rank] == to ||
            (of[i].seen++ % (of[i].all / CROSSING_RANKS + 1) != 0 && !all))
            continue;
        of[i].taken++;
        TWILL_TRY(q->error, add_crossing(&of[i].sent, &steps, w, q, rank));
    }
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(of); i++)
        *blocks += of[i].taken > 0 ? of[i].sent * of[i].all / of[i].taken : 0;
    return TWILL_OK;
}

/* Set `crossing` of the simulated ranks that represent others, those at the places `first` to
 * `last`, which are of one node, or one rank. */
static twill_status find_crossing(struct twill_pricing *p, const struct twill_price_query *q,
                                  uint32_t first, uint32_t last)
{
    const struct twill_world *w = p->world;
    const uint32_t *group = w->unit[TWILL_LEVEL_GROUP];
    uint32_t rank = p->rank[first].rank, from = w->position[rank], to = from;
    uint64_t own = 0, all = 0, steps = 0;
    while (from > 0 && group[w->order[from - 1]] == group[rank])
        from--;
    while (to + 1 < w->size && group[w->order[to + 1]] == group[rank])
        to++;
    for (uint32_t i = first; i <= last; i++)
        TWILL_TRY(q->error, add_crossing(&own, &steps, w, q, p->rank[i].rank));
    if (own > 0)
        TWILL_TRY(q->error, group_crossing(&all, w, q, from, to));
    for (uint32_t i = first; i <= last && own > 0; i++)
        p->rank[i].crossing = all * 1024 / own;
    return TWILL_OK;
}

/* Set `crossing` of all simulated ranks if there are groups and these ranks represent others. */
static twill_status find_crossings(struct twill_pricing *p, const struct twill_price_query *q)
{
    if (p->world->unit[TWILL_LEVEL_GROUP] == NULL || p->unit == TWILL_PRICE_WORLD)
        return TWILL_OK;
    if (p->unit == TWILL_PRICE_NODE)
        return find_crossing(p, q, 0, p->size - 1);
    for (uint32_t i = 0; i < p->size; i++)
        TWILL_TRY(q->error, find_crossing(p, q, i, i));
    return TWILL_OK;
}

/* The messages of one sender, receiver and lane, while SENDs and RECVs are matched. If one node is
 * simulated, channels differ also in how many nodes the receiver's node is after that of the
 * sender. The table of channels owns it. */
struct message_channel {
    uint64_t key;  /* made by channel_of() of all that distinguishes channels, or 0 if free */
    int32_t first; /* SEND that the next RECV may match, or TWILL_PRICE_NONE */
    /* blocks up to the end of `first` (0 if none), and blocks received so far */
    uint64_t sent, received;
};

/* A hash table of channels with mask + 1 places, a power of two. It lives during match(). */
struct channel_table {
    struct message_channel *channel;
    size_t mask;
};

/* Return the channel of the places `from` and `to`, `hop` nodes apart. Adds it if it is new. */
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

/* Return the channel of the message that step i of the rank at `place` sends or receives. If one
 * node is simulated, what it receives from d nodes after it is what it sends to d nodes before it.
 * If it sends nothing there, it is what it sends to the node from which it receives. A rank that is
 * simulated by itself receives what it sends. */
static struct message_channel *channel_at(const struct twill_pricing *p,
                                          const struct channel_table *t, uint32_t place, uint32_t i)
{
    const struct twill_step *step = &p->step[i].step;
    uint32_t other = twill_price_place(p, place, step->peer[0]), nodes = p->world->nodes, hop = 0;
    if (p->unit == TWILL_PRICE_NODE)
        hop = (p->world->node[step->peer[0]] + 1) % nodes; /* from the last node */
    uint32_t back = (nodes - hop) % nodes;
    if (step->op == TWILL_STEP_SEND)
        return channel_of(t, place, other, hop, step->lane);
    struct message_channel *c = channel_of(t, other, place, back, step->lane);
    return c->sent > 0 ? c : channel_of(t, other, place, hop, step->lane);
}

/* Return the number of blocks of the message of step i, 1 for an empty one. */
static uint32_t weight_of(const struct twill_pricing *p, int32_t i)
{
    return p->step[i].step.blocks > 0 ? p->step[i].step.blocks : 1;
}

/* Set `match` of each SEND to the next SEND of its channel, or to TWILL_PRICE_NONE. Set `first` of
 * the channel to its first SEND, and `sent` to the blocks of that. */
static void list_sends(struct twill_pricing *p, const struct channel_table *t)
{
    for (uint32_t l = p->lanes; l-- > 0;) {
        for (uint32_t i = p->lane[l].end; i-- > p->lane[l].first;) {
            if (p->step[i].step.op != TWILL_STEP_SEND)
                continue;
            struct message_channel *c = channel_at(p, t, p->lane[l].place, i);
            p->step[i].match = c->first;
            c->first = (int32_t)i;
            c->sent = weight_of(p, c->first);
        }
    }
}

/* Return whether step i is a RECV or RECV_REDUCE. */
static bool step_receives(const struct twill_pricing *p, uint32_t i)
{
    return p->step[i].step.op != TWILL_STEP_SEND && twill_step_shape(p->step[i].step.op)->posts;
}

/* Set `match` of each RECV to a SEND of its channel, in order, by blocks, or to TWILL_PRICE_NONE. A
 * unit may send in one message what another receives in two, so a RECV matches the SEND that brings
 * its last block. Returns whether all are matched. */
static bool match_receives(struct twill_pricing *p, const struct channel_table *t)
{
    bool all = true;
    for (uint32_t l = 0; l < p->lanes; l++) {
        for (uint32_t i = p->lane[l].first; i < p->lane[l].end; i++) {
            if (!step_receives(p, i))
                continue;
            struct message_channel *c = channel_at(p, t, p->lane[l].place, i);
            c->received += weight_of(p, (int32_t)i);
            while (c->first != TWILL_PRICE_NONE && c->sent < c->received) {
                c->first = p->step[c->first].match;
                c->sent += c->first != TWILL_PRICE_NONE ? weight_of(p, c->first) : 0;
            }
            p->step[i].match = c->first;
            all = all && c->first != TWILL_PRICE_NONE;
        }
    }
    return all;
}

/* Set what each step waits for, the SEND of a RECV and the SIGNALs and PUT_IMMs of an AWAIT.
 * Returns TWILL_PENDING if a rank of a part of the world receives a message that no rank sends. */
static twill_status match(struct twill_pricing *p)
{
    struct channel_table t = {.mask = 63};
    while (t.mask < 2 * (size_t)p->steps)
        t.mask = 2 * t.mask + 1;
    t.channel = calloc(t.mask + 1, sizeof(*t.channel));
    if (t.channel == NULL)
        return TWILL_ERR_MEMORY;
    link_flags(p);
    list_sends(p, &t);
    bool all = match_receives(p, &t);
    free(t.channel);
    /* Link each SEND to the first RECV that waits for it, if any. */
    for (uint32_t i = 0; i < p->steps; i++)
        if (p->step[i].step.op == TWILL_STEP_SEND)
            p->step[i].match = TWILL_PRICE_NONE;
    for (uint32_t i = p->steps; i-- > 0;)
        if (step_receives(p, i) && p->step[i].match != TWILL_PRICE_NONE)
            p->step[p->step[i].match].match = (int32_t)i;
    return all || p->unit == TWILL_PRICE_WORLD ? TWILL_OK : TWILL_PENDING;
}

/* Prepare to simulate the ranks that `unit` says. Returns TWILL_PENDING if their schedules have
 * more than `steps` steps, or these ranks cannot represent the rest of the world. */
static twill_status prepare_unit(struct twill_pricing *p, const struct twill_price_query *q,
                                 enum twill_price_unit unit, uint64_t steps)
{
    bool fits;
    drop_unit(p);
    choose_unit(p, unit);
    if (p->size > steps || (unit == TWILL_PRICE_NODE && !is_regular(p->world)))
        return TWILL_PENDING;
    TWILL_TRY(q->error, compare_units(p, q, steps, &fits));
    if (!fits)
        return TWILL_PENDING;
    twill_status status = emit_unit(p, q, steps < INT32_MAX ? steps : INT32_MAX);
    if (status == TWILL_OK)
        status = find_crossings(p, q);
    if (status == TWILL_OK)
        status = match(p);
    if (status == TWILL_OK && unit != TWILL_PRICE_WORLD) { /* by itself it may never end */
        twill_price_set_call(p, twill_machine_model_at(0), twill_wide_elements(TWILL_U8));
        status = twill_price_run(p, 0) != TWILL_PRICE_NEVER ? TWILL_OK : TWILL_PENDING;
    }
    return status;
}

twill_status twill_price_prepare(struct twill_pricing *p, const struct twill_price_query *q,
                                 uint64_t steps)
{
    if (!twill_algorithm_applies(q->algorithm, p->world, q->shape))
        return TWILL_PENDING;
    if (steps == 0)
        return prepare_unit(p, q, TWILL_PRICE_RANKS, INT32_MAX);
    twill_status status = steps < UINT64_MAX
                              ? prepare_unit(p, q, TWILL_PRICE_NODE, steps * NODE_BUDGET)
                              : TWILL_PENDING;
    return status == TWILL_PENDING ? prepare_unit(p, q, TWILL_PRICE_WORLD, steps) : status;
}

/* Prepare the pricing in the first possible way. The first is to simulate the world or a node in
 * about `steps` steps, which `is_long` skips, as one rank has more. Then come extrapolations from
 * smaller worlds, single ranks or more steps, and last extrapolations from worlds of fewer nodes
 * and fewer ranks a node. Returns TWILL_OK, TWILL_PENDING if no way is possible, or an error. */
static twill_status try_all(struct twill_pricing *p, const struct twill_price_query *q,
                            uint64_t steps, bool is_long)
{
    const struct {
        bool scaled;
        uint64_t steps;
    } way[] = {{false, steps}, {true, steps},
               {true, 0},      {true, steps * PRICE_PATIENCE},
               {false, 0},     {false, steps * PRICE_PATIENCE}};
    twill_status status = TWILL_PENDING;
    for (unsigned i = is_long; i < TWILL_ARRAY_LENGTH(way) && status == TWILL_PENDING; i++)
        status = way[i].scaled ? twill_price_prepare_scaled(p, q, way[i].steps, 0)
                               : twill_price_prepare(p, q, way[i].steps);
    uint32_t each = p->world->nodes > 1 ? twill_world_widest(p->world) : 1;
    for (unsigned thin = 0; each >> thin > 0 && status == TWILL_PENDING; thin++)
        status = twill_price_prepare_scaled(p, q, 2 * steps * PRICE_PATIENCE, thin);
    return status;
}

/* Set p->leaving for an algorithm that divides the message into `blocks` blocks. The first, the
 * middle and the last group are looked at, and the middle one represents all others. */
static twill_status find_leaving_groups(struct twill_pricing *p, const struct twill_price_query *q,
                                        uint32_t blocks)
{
    const struct twill_world *w = p->world;
    const uint32_t *group = w->unit[TWILL_LEVEL_GROUP];
    uint32_t groups = group != NULL, seen = 0;
    uint64_t sum = 0;
    for (uint32_t at = 1; at < w->size && group != NULL; at++)
        groups += group[w->order[at]] != group[w->order[at - 1]];
    for (uint32_t from = 0, to; from < w->size && groups > 1; from = to + 1, seen++) {
        uint64_t sent = 0;
        for (to = from; to + 1 < w->size && group[w->order[to + 1]] == group[w->order[from]]; to++)
            ;
        if (seen > 0 && seen != groups / 2 && seen + 1 < groups)
            continue;
        TWILL_TRY(q->error, group_crossing(&sent, w, q, from, to));
        sum += sent * (seen > 0 && seen == groups / 2 && seen + 1 < groups ? groups - 2 : 1);
    }
    p->leaving = sum * 1024 / blocks / w->nodes;
    return TWILL_OK;
}

twill_status twill_pricing_create(struct twill_pricing **pricing,
                                  const struct twill_algorithm *algorithm,
                                  const struct twill_world *world, const struct twill_shape *shape,
                                  uint64_t steps, struct twill_error *error)
{
    const struct twill_price_query query = {algorithm, shape, error};
    struct twill_schedule root;
    *pricing = NULL;
    /* Only one is checked, because schedules are checked again before they are executed. */
    TWILL_TRY(error, twill_schedule_emit(&root, algorithm, world, shape->root, shape, error));
    bool is_long = root.count > steps;
    uint32_t blocks = root.blocks;
    twill_schedule_destroy(&root);
    struct twill_pricing *p = calloc(1, sizeof(*p));
    twill_status status = TWILL_ERR_MEMORY;
    if (p != NULL) {
        p->world = world;
        p->facts.ranks = world->size;
        twill_price_count_sharers(&p->facts, world);
        p->call.most = TWILL_PRICE_NEVER;
        status = try_all(p, &query, steps, is_long);
        if (status == TWILL_OK)
            status = find_leaving_groups(p, &query, blocks);
    }
    if (status == TWILL_OK) {
        *pricing = p;
        return status;
    }
    twill_pricing_destroy(p);
    if (status == TWILL_PENDING)
        return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED,
                          "%s has too many steps here to be simulated, and smaller worlds do not "
                          "foretell its time",
                          algorithm->name);
    return status == TWILL_ERR_MEMORY
               ? TWILL_FAIL(error, status, "out of memory for the price of %s", algorithm->name)
               : status;
}

twill_status twill_price(uint64_t *picoseconds, const struct twill_algorithm *algorithm,
                         const struct twill_world *world, const struct twill_shape *shape,
                         const struct twill_machine_model *model, size_t bytes,
                         struct twill_element_kind elements, struct twill_error *error)
{
    struct twill_pricing *pricing;
    *picoseconds = TWILL_PRICE_NEVER;
    if (!twill_algorithm_applies(algorithm, world, shape))
        return TWILL_OK;
    TWILL_TRY(error,
              twill_pricing_create(&pricing, algorithm, world, shape, TWILL_PRICE_STEPS, error));
    *picoseconds = twill_pricing_at(pricing, model, bytes, elements);
    twill_pricing_destroy(pricing);
    return TWILL_OK;
}
