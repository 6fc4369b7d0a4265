/* SPDX-License-Identifier: Apache-2.0 */
/* Does it pay to convert f32 to a narrower float before a reduction, and back behind it? By the
 * prices and measurements that choose algorithms; pure, and the same on all ranks. */
#ifndef TWILL_NARROWING_H
#define TWILL_NARROWING_H

#include "algorithms/select/tuning_file.h"

/* Get the cost in picoseconds of what is chosen for a request: measured, else the price. */
twill_status twill_cost_of_choice(uint64_t *picoseconds, struct twill_chooser *chooser,
                                  const struct twill_world *world,
                                  const struct twill_tuning *tuning,
                                  const struct twill_select_request *request,
                                  struct twill_error *error);

/* What a reduction of f32 costs as it is, and narrowed. Picoseconds. */
struct twill_narrowing {
    uint64_t wide;       /* f32 */
    uint64_t narrow;     /* as many elements of the type, as of twill_op_create_narrow() */
    uint64_t conversion; /* of this rank's input and result */
    bool pays;           /* narrow and conversion take less than 15/16 of wide */
};

/* Compare a reduction of f32, `request`, whose bytes are those of f32, with one in a type of 8 or
 * 16 bits. conversion_rate: picoseconds per KiB of f32, there and back; 0: that of the machine
 * model. Where the chooser is for a world that the model is not exact for, so is the answer.
 * TWILL_ERR_ARGUMENT: the request is not of f32, or the type is not narrower. */
twill_status twill_narrowing_pays(struct twill_narrowing *narrowing, struct twill_chooser *chooser,
                                  const struct twill_world *world,
                                  const struct twill_tuning *tuning,
                                  const struct twill_select_request *request, twill_type type,
                                  uint64_t conversion_rate, struct twill_error *error);

#endif
