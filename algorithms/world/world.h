/* SPDX-License-Identifier: Apache-2.0 */
/* The world says which ranks are on which node, and in which units of the levels below and above
 * nodes. It is equal on every rank, so every rank derives the same schedules. */
#ifndef TWILL_WORLD_H
#define TWILL_WORLD_H

#include "lib/base/base.h"

#define TWILL_WORLD_MAX_RANKS 65535 /* a step has 16 bits for a rank */

/* The placement of all ranks of a communicator. twill_world_create() and twill_world_set_level()
 * build it, and it is constant afterwards. The owner calls twill_world_destroy(). */
struct twill_world {
    uint32_t size;
    uint32_t nodes;       /* number of nodes, which are numbered by their lowest rank */
    uint32_t *node;       /* [size] node of a rank */
    uint32_t *local;      /* [size] index of a rank among the ranks of its node, ascending */
    uint32_t *node_size;  /* [nodes] number of ranks */
    uint32_t *node_first; /* [nodes + 1] index in `member` of a node's first rank */
    uint32_t *member;     /* [size] ranks, node by node, ascending */
    uint32_t *by_rank;    /* [size] 0, 1, 2, ... */
    uint32_t *order;    /* [size] ranks, group by group, node by node, and so on down the levels */
    uint32_t *position; /* [size] index of a rank in `order` */
    /* By level, an array [size] of the unit of each rank. A unit is inside one of the next larger
     * level. It is NULL for NODE (see `node`), or if the units are unknown. Then every rank is a
     * unit below the node, and all nodes are one group. */
    uint32_t *unit[TWILL_LEVEL_COUNT];
    bool by_messages; /* set by the owner if ranks of a node use only messages, false at first */
};

/* Build a world from label[size]. Ranks are on the same node if their labels, which may be any
 * numbers, are equal. On failure it is zeros. A size out of range is TWILL_ERR_ARGUMENT. */
twill_status twill_world_create(struct twill_world *world, uint32_t size, const uint32_t *label,
                                struct twill_error *error);
/* Set the unit of a level for each rank from label[size]. Ranks are in the same unit if their
 * labels, which may be any numbers, are equal. Units are numbered by their lowest rank. Levels
 * nest, whatever the order in which they are set. Units are split at the boundaries of levels
 * above, and a group holds whole nodes. For GROUP, only the label of the lowest rank of a node
 * counts. NODE is TWILL_ERR_ARGUMENT. A failure changes nothing. */
twill_status twill_world_set_level(struct twill_world *world, twill_level level,
                                   const uint32_t *label, struct twill_error *error);
/* Free the arrays and set the world to zeros. */
void twill_world_destroy(struct twill_world *world);
/* Return the largest number of ranks on a node. */
uint32_t twill_world_widest(const struct twill_world *world);
/* Return the smallest number of ranks on a node. */
uint32_t twill_world_narrowest(const struct twill_world *world);
/* Parse "2x2" (nodes x ranks) or a list "4+2+1" into label[size]. Ranks fill one node after the
 * other, or are dealt out to the nodes cyclically if ":cyclic" follows. Returns TWILL_ERR_CONFIG,
 * naming TWILL_LAYOUT=nodes, if the text is malformed or the ranks do not add up. */
twill_status twill_world_parse_nodes(const char *text, uint32_t size, uint32_t *label,
                                     struct twill_error *error);

/* Parse "2x3" (groups x nodes) or a list "4+2" into a label per node, for TWILL_LAYOUT=groups.
 * Returns TWILL_ERR_CONFIG if the text is malformed or the nodes do not add up. */
twill_status twill_world_parse_groups(const char *text, uint32_t nodes, uint32_t *label,
                                      struct twill_error *error);

/* Create a world from a text. It is "24x8" (nodes x ranks), "24x2x8" (nodes x packages x ranks),
 * "24x2x4x8" (nodes x packages x L3 caches x ranks) or "4+2" (ranks of each node). It may also name
 * the number of each unit inside the next larger one, as in
 * "groups=2,nodes=12,packages=2,numa=2,l3=2,tiles=2,ranks=2". On failure the world is zeros.
 * Returns TWILL_ERR_ARGUMENT if the text is not of these forms or asks for too many ranks. */
twill_status twill_world_declare(struct twill_world *world, const char *text,
                                 struct twill_error *error);

/* Return "tile", "l3", "numa", "package", "node" or "group", or "?" if there is no such level. */
const char *twill_level_name(twill_level level);

/* Print a line such as "2 groups x 24 nodes x 2 packages x 4-8 ranks", cut to `bytes`. Each number
 * counts the units inside one of the preceding level. Levels that divide no unit of the level
 * above, and tiles (L2 caches) of one rank, are omitted. Returns whether there is one besides
 * nodes. */
bool twill_world_summarize(const struct twill_world *world, char *text, size_t bytes);

#define TWILL_WORLD_TEXT_BYTES 4096
/* Print a tree of the levels that divide the world, of at most 24 lines, each ending in a newline.
 * Units with equal structure share a line, unless there are few units. */
void twill_world_describe(const struct twill_world *world, char text[TWILL_WORLD_TEXT_BYTES]);

/* Return the rank of the l-th member of a node, counted from 0. */
static inline uint32_t twill_world_member(const struct twill_world *w, uint32_t node, uint32_t l)
{
    return w->member[w->node_first[node] + l];
}

#endif
