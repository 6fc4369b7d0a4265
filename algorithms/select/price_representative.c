/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses ranks that stand for all others: those of one node, or three. See price.h. */
#include "algorithms/schedule/step_table.h"
#include "algorithms/select/price_state.h"

#include <stdlib.h>
#include <string.h>

/* Factor on the budget of steps for one node that stands for all, as that price is exact. */
#define ONE_NODE_BUDGET 4u
/* From this many ranks per node on, the number of messages is ignored when nodes are compared: the
 * bytes that leave the node decide. One node may then stand for others that send in two messages,
 * where block numbers wrap round, what it sends in one. */
#define MANY_RANKS 8u

/* What a rank's schedule does, by [between nodes] and kind of step: blocks (times operands), and
 * steps. */
struct profile {
    uint64_t amount[2][TWILL_STEP_OP_COUNT], steps[2][TWILL_STEP_OP_COUNT];
};

/* Fill in the profile of a rank's schedule. */
static void profile(struct profile *of, const struct twill_schedule *s,
                    const struct twill_world *world, uint32_t rank)
{
    memset(of, 0, sizeof(*of));
    for (uint32_t i = 0; i < s->count; i++) {
        const struct twill_step *step = &s->steps[i];
        bool remote =
            twill_step_shape(step->op)->posts && world->node[rank] != world->node[step->peer[0]];
        uint64_t amount = step->blocks > 0 ? step->blocks : 1;
        if (step->op == TWILL_STEP_REDUCE || step->op == TWILL_STEP_AWAIT)
            amount *= step->nsrc;
        of->amount[remote][step->op] += amount;
        of->steps[remote][step->op] += !remote || world->node_size[0] < MANY_RANKS;
    }
}

/* --- one node --------------------------------------------------------------------------------- */

/* Return whether there are several nodes with equally many ranks, placed alike, and no groups. */
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
    return w->nodes > 1 && w->unit[TWILL_LEVEL_GROUP] == NULL;
}

/* Create a world of one node's ranks. */
static twill_status make_node_world(struct twill_world *one, const struct twill_world *w,
                                    uint32_t node, struct twill_error *error)
{
    uint32_t size = w->node_size[node];
    twill_status status = TWILL_ERR_MEMORY;
    uint32_t *label = calloc(size, sizeof(*label));
    if (label != NULL)
        status = twill_world_create(one, size, label, error);
    for (unsigned level = TWILL_LEVEL_NODE; level-- > 0 && status == TWILL_OK;) {
        for (uint32_t l = 0; l < size && w->unit[level] != NULL; l++)
            label[l] = w->unit[level][twill_world_member(w, node, l)];
        if (w->unit[level] != NULL)
            status = twill_world_set_level(one, (twill_level)level, label, error);
    }
    free(label);
    return status;
}

/* Compare three ranks of the node with those at the same positions of three other nodes. *alike
 * becomes false if profiles differ or there are too many steps. */
static twill_status compare_nodes(struct twill_pricing *p, const struct twill_price_query *a,
                                  bool *alike)
{
    const struct twill_world *w = p->worlds.truth;
    uint32_t size = w->node_size[0];
    const uint32_t node[] = {0, 1, w->nodes / 2}, local[] = {0, size / 2, size - 1};
    struct profile own, other;
    *alike = true;
    for (unsigned l = 0; l < TWILL_ARRAY_LENGTH(local) && *alike; l++) {
        uint32_t rank = twill_world_member(w, p->worlds.node, local[l]);
        TWILL_TRY(a->error, twill_price_emit(p, a, rank, &p->schedules.list[local[l]]));
        *alike = (uint64_t)p->schedules.list[local[l]].count * size / 2 <= a->steps;
        profile(&own, &p->schedules.list[local[l]], w, rank);
        for (unsigned n = 0; n < TWILL_ARRAY_LENGTH(node) && *alike; n++) {
            struct twill_schedule schedule = {.blocks = 0};
            rank = twill_world_member(w, node[n], local[l]);
            TWILL_TRY(a->error, twill_price_emit(p, a, rank, &schedule));
            profile(&other, &schedule, w, rank);
            *alike = memcmp(&own, &other, sizeof(own)) == 0;
            twill_schedule_destroy(&schedule);
        }
    }
    return TWILL_OK;
}

twill_status twill_price_emit_one_node(struct twill_pricing *p, const struct twill_price_query *a)
{
    bool alike;
    struct twill_price_query more = *a;
    if (!is_regular(p->worlds.truth))
        return TWILL_PENDING;
    more.steps = a->steps < UINT64_MAX / ONE_NODE_BUDGET ? a->steps * ONE_NODE_BUDGET : UINT64_MAX;
    p->mode = TWILL_PRICE_ONE_NODE;
    p->worlds.node = p->worlds.truth->nodes - 1;
    if (!twill_price_make_schedules(p, p->worlds.truth->node_size[p->worlds.node]))
        return TWILL_ERR_MEMORY;
    TWILL_TRY(a->error, compare_nodes(p, &more, &alike));
    if (!alike)
        return TWILL_PENDING;
    TWILL_TRY(a->error, make_node_world(&p->worlds.one, p->worlds.truth, p->worlds.node, a->error));
    p->worlds.run = &p->worlds.one;
    return twill_price_emit_all(p, &more);
}

void twill_price_map_peers(struct twill_pricing *p)
{
    const struct twill_world *w = p->worlds.truth;
    for (uint32_t i = 0; i < p->steps.base[p->worlds.run->size]; i++) {
        struct twill_step *step = &p->steps.step[i];
        uint32_t other = w->node[step->peer[0]];
        bool posts = twill_step_shape(step->op)->posts;
        uint32_t hop = step->op == TWILL_STEP_SEND ? other + w->nodes - p->worlds.node
                                                   : p->worlds.node + w->nodes - other;
        p->steps.hop[i] = (uint16_t)(posts ? hop % w->nodes : 0);
        for (unsigned n = 0; n < twill_step_peers(step); n++)
            step->peer[n] = (uint16_t)w->local[step->peer[n]];
    }
}

/* --- alone ------------------------------------------------------------------------------------ */

/* Return whether two schedules have equally many steps of each kind. */
static bool are_alike(const struct twill_schedule *a, const struct twill_schedule *b)
{
    uint32_t more[TWILL_STEP_OP_COUNT] = {0};
    for (uint32_t i = 0; i < a->count && a->count == b->count; i++) {
        more[a->steps[i].op]++;
        more[b->steps[i].op]--;
    }
    for (unsigned op = 0; op < TWILL_STEP_OP_COUNT; op++)
        if (more[op] != 0)
            return false;
    return a->count == b->count;
}

twill_status twill_price_emit_alone(struct twill_pricing *p, const struct twill_price_query *a)
{
    uint32_t size = p->worlds.run->size;
    const uint32_t some[] = {0, size / 2, size - 1};
    p->mode = TWILL_PRICE_ALONE;
    if (!twill_price_make_schedules(p, size))
        return TWILL_ERR_MEMORY;
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(some); i++) {
        TWILL_TRY(a->error, twill_price_emit(p, a, some[i], &p->schedules.list[some[i]]));
        if (!are_alike(&p->schedules.list[0], &p->schedules.list[some[i]]))
            return TWILL_PENDING;
    }
    return TWILL_OK;
}
