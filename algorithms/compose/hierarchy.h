/* SPDX-License-Identifier: Apache-2.0 */
/* The ladder: the levels that a composed schedule uses, innermost first. Internal to this room.
 *
 * A rung divides the world into units; the members of its units are the units of the rung below,
 * or ranks on the lowest rung. All but a top of messages scatter: with K the widest fan-out of the
 * rung and W the product of those above, a unit of K members gives the first of them the first W of
 * every K W shards, and so on, hence in the end each shard to one rank. What a rank has of the
 * lowest rung lies in a row. Units may differ in size: who has fewer members gives them more
 * shards.
 *
 * Where the message has a part for each rank, every part is a shard that belongs to its rank at
 * last; in other units it belongs to the member that stands where the rank stands in its own. Then
 * all rungs scatter. */
#ifndef TWILL_HIERARCHY_H
#define TWILL_HIERARCHY_H

#include "algorithms/schedule/emit.h"

#define TWILL_MOST_SHARDS 4096u
#define TWILL_LEVEL_ALL   TWILL_LEVEL_COUNT /* the whole world as one unit */
#define TWILL_MAX_LEVELS  (TWILL_LEVEL_COUNT + 1)

enum twill_how {
    TWILL_BY_DIRECT,
    TWILL_BY_RING,
    /* Only at the top of an allreduce. */
    TWILL_BY_RECURSIVE_DOUBLING,
    TWILL_BY_HALVING_DOUBLING,
    TWILL_BY_BRUCK,
    TWILL_BY_COUNT
};
/* Members of a unit each own one block of a shard. */
static inline bool twill_how_divides(unsigned how)
{
    return how == TWILL_BY_RING || how == TWILL_BY_HALVING_DOUBLING;
}
/* Only the top of an allreduce works so: it neither scatters nor gathers. */
static inline bool twill_how_is_top(unsigned how)
{
    return how >= TWILL_BY_RECURSIVE_DOUBLING;
}

struct twill_level_choice {
    uint8_t level; /* twill_level, or TWILL_LEVEL_ALL */
    uint8_t how;
};

struct twill_hierarchy_level {
    struct twill_level_choice choice;
    const uint32_t *unit; /* [size] unit of a rank, NULL: one */
    uint32_t units, widest, weight;
    uint32_t *first, *member; /* [units + 1] index into member: of a unit's first member */
    uint32_t *place;          /* [size] which member of its unit a rank is in */
    uint32_t fanout, me;      /* members of this rank's unit, and which of them it is in */
};

struct twill_hierarchy {
    const struct twill_world *world;
    struct twill_hierarchy_level level[TWILL_MAX_LEVELS];
    uint32_t count;    /* rungs, lowest first, without those where nobody has company */
    uint32_t scatters; /* of them, from the lowest: all but a top of messages */
    uint32_t shards;
    bool sharded; /* a shard is the part of a rank */
};

/* Choose rungs: levels ascending, the whole world last. False: no memory. */
bool twill_hierarchy_open(struct twill_hierarchy *l, const struct twill_world *world, uint32_t rank,
                          bool sharded, const struct twill_level_choice *choice, uint32_t choices);
void twill_hierarchy_close(struct twill_hierarchy *l);
/* Not to scatter at the highest rung that does. */
void twill_hierarchy_drop_top(struct twill_hierarchy *l);

static inline uint32_t twill_level_unit(const struct twill_hierarchy_level *level, uint32_t rank)
{
    return level->unit == NULL ? 0 : level->unit[rank];
}
/* The rank that shard s belongs to among those of member m of the emitting rank's unit. */
uint32_t twill_hierarchy_owner_rank(const struct twill_hierarchy *l, uint32_t level, uint32_t rank,
                                    uint32_t m, uint32_t s);
/* Which member of the emitting rank's unit gets shard s. */
uint32_t twill_hierarchy_owner(const struct twill_hierarchy *l, uint32_t level, uint32_t s);
/* Does shard s belong to the emitting rank after `rungs` rungs? */
bool twill_hierarchy_owns(const struct twill_hierarchy *l, uint32_t levels, uint32_t s);
/* Return how many blocks of TMP a schedule over these levels needs at least. */
uint64_t twill_hierarchy_blocks(const struct twill_hierarchy *l);
/* How many rungs from `low` up to below `high` a rank has company on, in memory: at each it gives a
 * signal on the way down, and one on the way back up. */
uint32_t twill_hierarchy_signals(const struct twill_hierarchy *l, uint32_t rank, uint32_t low,
                                 uint32_t high);

#endif
