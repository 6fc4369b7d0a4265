/* SPDX-License-Identifier: Apache-2.0 */
/* Says why a choice is what it is. */
#ifndef TWILL_EXPLAIN_H
#define TWILL_EXPLAIN_H

#include "algorithms/select/tuning_file.h"

#define TWILL_WHY_QUESTION 1024 /* bytes of a question, with its 0 */
#define TWILL_WHY_MOVES    1024u

/* Lines, each ended by a newline, of fields separated by tabs; times in picoseconds:
 *
 *     call       collective, bytes, type, nodes x ranks of the fullest, ranks, machine
 *     hierarchy  levels besides nodes and ranks, see world_levels.h: where there are any
 *     candidate  name[=parameters][@flavour], price, cost (where measured: other than the price),
 *                entries it was measured at
 *     instead    name, price: taken in place of the same algorithm @staged, by which the choice
 * goes, as buffers are mapped on this node and may not be on another one
 *     small      name: a candidate, but not for this size or these buffers; what it takes
 *     other      name, why it is none
 *     chosen     name, cost, by whom: "auto" or what TWILL_ALGORITHM says
 *     moves      class of link, bytes that all ranks together move over such links then: where
 * there are some, and at most TWILL_WHY_MOVES ranks
 *
 * Candidates come by cost. *text is to be freed. */
twill_status twill_why(char **text, const struct twill_world *world,
                       const struct twill_tuning *tuning, const char *requested,
                       const struct twill_select_request *request, struct twill_error *error);

/* "torus=4x6@staged" */
#define TWILL_WHY_NAME 96
const char *twill_why_name(const struct twill_choice *choice, char text[TWILL_WHY_NAME]);

/* Half a sentence: the name of what a chooser (of this world and tuning) chose for a request, who
 * chose, its cost and the next best. Allocates nothing where the chooser has been asked before. */
void twill_why_choice(char *text, size_t bytes, struct twill_chooser *chooser,
                      const struct twill_world *world, const struct twill_tuning *tuning,
                      const struct twill_select_request *request,
                      const struct twill_choice *choice);

#endif
