/* SPDX-License-Identifier: Apache-2.0 */
/* Text that describes a world's levels: the numbers of groups, nodes, packages and so on, and their
 * ranks. A level is left out where it divides no unit of the level above; so are tiles of one rank
 * each (a core's L2 cache). */
#ifndef TWILL_WORLD_LEVELS_H
#define TWILL_WORLD_LEVELS_H

#include "algorithms/world/world.h"

/* Print "2 groups x 24 nodes x 2 packages x 4-8 ranks": how many of each are in one of the
 * preceding level. Returns whether there is a level besides the node. */
bool twill_world_summarize(const struct twill_world *world, char *text, size_t bytes);

#define TWILL_WORLD_TEXT_BYTES 4096
/* Print a tree of at most 24 lines, each ended by a newline. Units with equal structure share a
 * line, unless there are few. */
void twill_world_describe(const struct twill_world *world, char text[TWILL_WORLD_TEXT_BYTES]);

#endif
