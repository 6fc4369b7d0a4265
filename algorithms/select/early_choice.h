/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses for one request without the prices of all candidates. Internal to this folder. */
#ifndef TWILL_EARLY_CHOICE_H
#define TWILL_EARLY_CHOICE_H

#include "algorithms/select/candidates.h"

/* Choose what all candidates would give for this request (see twill_candidates_create()), by the
 * model. Sets choice->algorithm and the shape's protocol; *decided becomes false where only all
 * candidates tell. `records`: the choices of other ranks, or NULL. */
twill_status twill_choose_early(struct twill_choice *choice, bool *decided,
                                const struct twill_world *world, const struct twill_tuning *tuning,
                                const struct twill_select_request *request,
                                const struct twill_price_records *records,
                                struct twill_error *error);

#endif
