/* SPDX-License-Identifier: Apache-2.0 */
/* The world: which ranks are on which node, and in which units of the levels below and above nodes.
 * It is equal on every rank, so every rank derives the same schedules. */
#ifndef TWILL_WORLD_H
#define TWILL_WORLD_H

#include "lib/base/base.h"

#define TWILL_WORLD_MAX_RANKS 65535 /* a step names ranks in 16 bits */

/* The placement of all ranks of a communicator. Built by twill_world_create() and
 * twill_world_set_level(), constant afterwards; the owner calls twill_world_destroy(), which frees
 * the arrays. */
struct twill_world {
    uint32_t size;
    uint32_t nodes;       /* numbered by their lowest rank */
    uint32_t *node;       /* [size] node of a rank */
    uint32_t *local;      /* [size] index of a rank among the ranks of its node, ascending */
    uint32_t *node_size;  /* [nodes] number of ranks */
    uint32_t *node_first; /* [nodes + 1] index in `member` of a node's first rank */
    uint32_t *member;     /* [size] ranks, node by node, ascending */
    uint32_t *by_rank;    /* [size] 0, 1, 2, ... */
    uint32_t *order;    /* [size] ranks, group by group, node by node, and so on down the levels */
    uint32_t *position; /* [size] index of a rank in `order` */
    /* [size] each: the unit of a rank; TWILL_LEVEL_NODE is in `node` instead. A unit of a lower
     * level is inside one unit of the next. NULL: unknown; then below the node every rank is a unit
     * of its own, and all nodes are one group. */
    uint32_t *unit[TWILL_LEVEL_COUNT];
    bool by_messages; /* data goes by messages on a node, too, not through SHARED or peers' buffers.
                         Set by the owner, false at first */
};

/* Build a world from a node label per rank: any numbers, equal on the same node. */
twill_status twill_world_create(struct twill_world *world, uint32_t size, const uint32_t *label,
                                struct twill_error *error);
/* Set the unit of a level that each rank is in: any labels, equal in the same unit; units are
 * numbered by their lowest rank. Levels nest, in whichever order they are set: units are split at
 * the boundaries of levels above, and a group holds whole nodes. Not for TWILL_LEVEL_NODE. The
 * world is unchanged on failure. */
twill_status twill_world_set_level(struct twill_world *world, twill_level level,
                                   const uint32_t *label, struct twill_error *error);
void twill_world_destroy(struct twill_world *world);
/* Return the largest, and the smallest, number of ranks on a node. */
uint32_t twill_world_widest(const struct twill_world *world);
uint32_t twill_world_narrowest(const struct twill_world *world);
/* Parse "2x2" (nodes x ranks), or a list "4+2+1", into a label per rank: in the order of their
 * numbers, or with ":cyclic" behind it dealt out in turn. Fails unless the ranks add up to size;
 * the message names the variable TWILL_LAYOUT=nodes. */
twill_status twill_world_parse_nodes(const char *text, uint32_t size, uint32_t *label,
                                     struct twill_error *error);

/* Parse "2x3" (groups x nodes), or a list, into a label per node, for TWILL_LAYOUT=groups. */
twill_status twill_world_parse_groups(const char *text, uint32_t nodes, uint32_t *label,
                                      struct twill_error *error);

/* Create a world from a text: "24x8" (nodes x ranks), "24x2x8" (nodes x packages x ranks),
 * "24x2x4x8" (nodes x packages x L3 caches x ranks), "4+2" (ranks of each node), or by name, each
 * the number inside one of the next larger:
 * "groups=2,nodes=12,packages=2,numa=2,l3=2,tiles=2,ranks=2". */
twill_status twill_world_declare(struct twill_world *world, const char *text,
                                 struct twill_error *error);

/* "tile", "l3", "numa", "package", "node", "group" */
const char *twill_level_name(twill_level level);

/* Text that describes the levels: the numbers of groups, nodes, packages and so on, and their
 * ranks. A level is left out where it divides no unit of the level above; so are tiles of one rank
 * each (a core's L2 cache). */

/* Print "2 groups x 24 nodes x 2 packages x 4-8 ranks": how many of each are in one of the
 * preceding level. Returns whether there is a level besides the node. */
bool twill_world_summarize(const struct twill_world *world, char *text, size_t bytes);

#define TWILL_WORLD_TEXT_BYTES 4096
/* Print a tree of at most 24 lines, each ended by a newline. Units with equal structure share a
 * line, unless there are few. */
void twill_world_describe(const struct twill_world *world, char text[TWILL_WORLD_TEXT_BYTES]);

/* Return the rank of the l-th member of a node. */
static inline uint32_t twill_world_member(const struct twill_world *w, uint32_t node, uint32_t l)
{
    return w->member[w->node_first[node] + l];
}

#endif
