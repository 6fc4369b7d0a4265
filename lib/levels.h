/* SPDX-License-Identifier: Apache-2.0 */
/* The levels of the machine in the world: parts of nodes, and groups of them. */
#ifndef TWILL_LEVELS_H
#define TWILL_LEVELS_H

#include "lib/context.h"

/* What a rank tells of where it runs: logical index of its unit on the host, -1: not known. */
struct twill_level_card {
    int16_t unit[TWILL_LEVEL_NODE];
};
void twill_levels_describe(const struct twill_context *context, struct twill_level_card *card);
/* Give the context's world, whose nodes are known, its levels: where ranks run, unless TWILL_UNITS
 * declares them, and TWILL_GROUPS. card[size]. */
twill_status twill_levels_set(struct twill_context *context, const struct twill_level_card *card);

#endif
