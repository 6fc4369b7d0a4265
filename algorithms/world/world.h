/* SPDX-License-Identifier: Apache-2.0 */
/* Who sits where: the same bytes on every rank, so that every rank derives the same schedules. */
#ifndef TWILL_WORLD_H
#define TWILL_WORLD_H

#include "lib/base.h"

#define TWILL_WORLD_MAX_RANKS 65535 /* a step names ranks in 16 bits */

struct twill_world {
    uint32_t size;        /* ranks */
    uint32_t nodes;       /* nodes, numbered by their lowest rank */
    uint32_t *node;       /* [size] node of a rank */
    uint32_t *local;      /* [size] position of a rank among the ranks of its node, by rank */
    uint32_t *node_size;  /* [nodes] ranks on a node */
    uint32_t *node_first; /* [nodes + 1] index into member of a node's first rank */
    uint32_t *member;     /* [size] ranks, node by node, ascending */
    uint32_t *everyone;   /* [size] 0, 1, 2, ... */
    uint32_t *order;    /* [size] ranks, group by group, node by node, and so on down the levels */
    uint32_t *position; /* [size] of a rank in `order` */
    /* [size] each: equal numbers mean the same unit; TWILL_LEVEL_NODE is `node`. A unit of a lower
     * level lies within one of the next. NULL: not known, every rank counts as a unit of its own
     * below the node, and all nodes as one group. */
    uint32_t *unit[TWILL_LEVEL_COUNT];
};

/* Build from a node label per rank (any numbers; equal means same node). */
twill_status twill_world_create(struct twill_world *world, uint32_t size, const uint32_t *label,
                                struct twill_error *error);
/* Say which unit of a level each rank is in (any numbers: equal means the same; units are numbered
 * by their lowest rank). Levels nest, in whatever sequence they are set: a unit ends where one of a
 * level above does, and a group holds whole nodes. Not for TWILL_LEVEL_NODE. */
twill_status twill_world_set_level(struct twill_world *world, twill_level level,
                                   const uint32_t *label, struct twill_error *error);
void twill_world_destroy(struct twill_world *world);
/* How often a ring over these ranks, closed, goes from one unit to another. */
uint32_t twill_world_crossings(uint32_t size, const uint32_t *ranks, const uint32_t *unit);
/* Ranks on the fullest node, and on the one with the fewest. */
uint32_t twill_world_widest(const struct twill_world *world);
uint32_t twill_world_narrowest(const struct twill_world *world);
/* Read "2x2" (nodes x ranks), or a list "4+2+1", into a label per rank. Fails unless the ranks add
 * up to size; the message names the variable TWILL_NODES. */
twill_status twill_world_parse_nodes(const char *text, uint32_t size, uint32_t *label,
                                     struct twill_error *error);

/* Read "2x3" (groups x nodes), or a list, into a label per node; likewise TWILL_GROUPS. */
twill_status twill_world_parse_groups(const char *text, uint32_t nodes, uint32_t *label,
                                      struct twill_error *error);

/* A world in words: "24x8" (nodes x ranks), "24x2x8" (nodes x packages x ranks), "24x2x4x8" (nodes
 * x packages x L3 caches x ranks), "4+2" (ranks of each node), or by name, how many there are of
 * each in one of the next larger: "groups=2,nodes=12,packages=2,numa=2,l3=2,tiles=2,ranks=2". */
twill_status twill_world_declare(struct twill_world *world, const char *text,
                                 struct twill_error *error);

/* "tile", "l3", "numa", "package", "node", "group" */
const char *twill_level_name(twill_level level);

/* Rank of the l-th member of a node. */
static inline uint32_t twill_world_member(const struct twill_world *w, uint32_t node, uint32_t l)
{
    return w->member[w->node_first[node] + l];
}

#endif
