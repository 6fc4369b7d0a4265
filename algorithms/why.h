/* SPDX-License-Identifier: Apache-2.0 */
/* Says why a choice is what it is. */
#ifndef TWILL_WHY_H
#define TWILL_WHY_H

#include "algorithms/tuning.h"

#define TWILL_WHY_MOVES 1024u

/* Lines, each ended by a newline, of fields separated by tabs; times in picoseconds:
 *
 *     call       collective, bytes, type, nodes x ranks of the fullest, ranks, machine
 *     candidate  name[=parameters][@flavour], price, cost (where measured: other than the price),
 *                entries it was measured at
 *     small      name: a candidate, but not for this size; what it takes
 *     other      name, why it is none
 *     chosen     name, cost, by whom: "auto" or what TWILL_ALGORITHM says
 *     moves      class of link, bytes that all ranks together move over such links then: where
 * there are some, and at most TWILL_WHY_MOVES ranks
 *
 * Candidates come by cost. *text is to be freed. */
twill_status twill_why(char **text, const struct twill_world *world,
                       const struct twill_tuning *tuning, const char *wanted,
                       const struct twill_select_request *request, struct twill_error *error);

#endif
