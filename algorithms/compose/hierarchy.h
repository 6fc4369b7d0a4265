/* SPDX-License-Identifier: Apache-2.0 */
/* The hierarchy of the levels that a composed schedule uses, innermost first. Internal to
 * algorithms/.
 *
 * A level divides the world into units. The members of its units are the units of the level below,
 * or ranks on the lowest level. All levels scatter, except a top level by messages. Let K be the
 * largest number of members at the level and W the product of those above. A unit of K members
 * assigns the first W of every K W shards to its first member, the next W to the second, and so on,
 * so that each shard ends at one rank. The shards of a rank at the lowest level are contiguous.
 * Units may differ in size, and the members of a smaller unit have more shards each.
 *
 * If the message has a shard for each rank, every shard ends at its rank. In other units it belongs
 * to the member at the position that its rank has in its own unit. Then all levels scatter. */
#ifndef TWILL_HIERARCHY_H
#define TWILL_HIERARCHY_H

#include "algorithms/schedule/emit.h"

#define TWILL_MOST_SHARDS 4096u
#define TWILL_LEVEL_ALL   TWILL_LEVEL_COUNT /* the whole world as one unit */
#define TWILL_MAX_LEVELS  (TWILL_LEVEL_COUNT + 1)

/* The method by which the members of the units of a level communicate. */
enum twill_how {
    TWILL_BY_DIRECT,
    TWILL_BY_RING,
    TWILL_BY_RECURSIVE_DOUBLING, /* from here on only at the top of an allreduce */
    TWILL_BY_HALVING_DOUBLING,
    TWILL_BY_BRUCK,
    TWILL_BY_COUNT
};
/* Return whether the method is a ring or halving and doubling. In their allreduce each member of a
 * unit reduces one block of a shard. A shard therefore needs one block for each member, while one
 * block suffices for the other methods. */
static inline bool twill_how_divides(unsigned how)
{
    return how == TWILL_BY_RING || how == TWILL_BY_HALVING_DOUBLING;
}
/* Return whether the method is for the top of an allreduce. It neither scatters nor gathers. */
static inline bool twill_how_is_top(unsigned how)
{
    return how >= TWILL_BY_RECURSIVE_DOUBLING;
}

/* A level to use, and the method for it. A plain value. */
struct twill_level_choice {
    uint8_t level; /* twill_level, or TWILL_LEVEL_ALL */
    uint8_t how;   /* enum twill_how */
};

/* One level of a hierarchy, and the position of the emitting rank in it. A member of a unit is a
 * unit of the next lower level inside it, or a rank at the lowest level. The hierarchy owns the
 * arrays first[], member[] and place[]. */
struct twill_hierarchy_level {
    struct twill_level_choice choice;
    const uint32_t *unit; /* [size] unit of a rank, owned by the world, or NULL for one unit */
    uint32_t units;       /* number of units of the level in the world */
    uint32_t widest;      /* largest number of members of a unit */
    uint32_t weight;      /* number of consecutive shards that a member gets at a time */
    /* first[units + 1] has the index in member[] of the first member of a unit. member[] has all
     * members, unit by unit, each as a unit of the level below or a rank. */
    uint32_t *first, *member;
    uint32_t *place;     /* [size] index, in its unit, of the member that a rank is in */
    uint32_t fanout, me; /* members of the unit of this rank, and the index of its member */
};

/* The levels of a composed schedule as one rank sees them. A variable of the caller.
 * twill_hierarchy_open() sets it and allocates the arrays of its levels, and
 * twill_hierarchy_close() frees these. */
struct twill_hierarchy {
    const struct twill_world *world;
    struct twill_hierarchy_level level[TWILL_MAX_LEVELS];
    uint32_t count; /* levels, lowest first, without those in which all units have one member */
    /* The number of levels, from the lowest, at which the members of a unit divide the shards among
     * themselves. A top level that exchanges messages does not, unless `sharded`. */
    uint32_t scatters;
    uint32_t shards; /* number of shards of the message */
    bool sharded;    /* shard r belongs to rank r */
};

/* Build the hierarchy of choice[choices] for `rank`. The choices are ascending and end with the
 * whole world. Unknown levels are left out, and those in which every unit has one member. With
 * `sharded` the message has one shard per rank, which ends at that rank. Returns false if out of
 * memory. The caller calls twill_hierarchy_close() in any case. */
bool twill_hierarchy_open(struct twill_hierarchy *l, const struct twill_world *world, uint32_t rank,
                          bool sharded, const struct twill_level_choice *choice, uint32_t choices);
/* Free the arrays of the levels. */
void twill_hierarchy_close(struct twill_hierarchy *l);
/* Let the highest level that divides the shards among its members no longer do so, and compute the
 * number of shards again. */
void twill_hierarchy_drop_top(struct twill_hierarchy *l);

/* Return the unit of a rank in a level. */
static inline uint32_t twill_level_unit(const struct twill_hierarchy_level *level, uint32_t rank)
{
    return level->unit == NULL ? 0 : level->unit[rank];
}
/* Return the rank that owns shard s among the ranks of one member of the unit of `rank` at a level.
 * `m` is the index of the member in the unit. Shards are numbered over the whole message. */
uint32_t twill_hierarchy_owner_rank(const struct twill_hierarchy *l, uint32_t level, uint32_t rank,
                                    uint32_t m, uint32_t s);
/* Return the index of the member, in the unit of the emitting rank, that gets shard s. */
uint32_t twill_hierarchy_owner(const struct twill_hierarchy *l, uint32_t level, uint32_t s);
/* Return whether shard s belongs to the emitting rank after the lowest `levels` levels. At each of
 * them the members of its unit divide the shards among themselves. */
bool twill_hierarchy_owns(const struct twill_hierarchy *l, uint32_t levels, uint32_t s);
/* Return the number of blocks into which a schedule over these levels divides the message. If the
 * top level is by Bruck, return that times the members there, as it needs as many copies of them in
 * TMP. */
uint64_t twill_hierarchy_blocks(const struct twill_hierarchy *l);
/* Return the number of levels from `low` to below `high` at which ranks communicate through memory
 * (TWILL_BY_DIRECT) and the unit of `rank` has several members. At each of them the rank signals
 * once on the way down, which reduces, and once on the way up, which returns results. */
uint32_t twill_hierarchy_signals(const struct twill_hierarchy *l, uint32_t rank, uint32_t low,
                                 uint32_t high);

#endif
