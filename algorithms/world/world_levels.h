/* SPDX-License-Identifier: Apache-2.0 */
/* The levels of a world in words: how many groups, nodes, packages and so on, and the ranks in
 * them. A level is left out where it divides no unit of the level above, and tiles where they have
 * a rank each (that is the L2 cache of a core). */
#ifndef TWILL_WORLD_LEVELS_H
#define TWILL_WORLD_LEVELS_H

#include "algorithms/world/world.h"

/* "2 groups x 24 nodes x 2 packages x 4-8 ranks": how many of each are in one of what stands before
 * it. Returns whether there is a level besides the node. */
bool twill_world_summarize(const struct twill_world *world, char *text, size_t bytes);

#define TWILL_WORLD_TEXT_BYTES 4096
/* A tree of at most 24 lines, each ended by a newline. Units that look alike are one line, unless
 * there are few. */
void twill_world_describe(const struct twill_world *world, char text[TWILL_WORLD_TEXT_BYTES]);

#endif
