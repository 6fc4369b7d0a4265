/* SPDX-License-Identifier: Apache-2.0 */
/* Sets with an optimizer against a serial oracle in f64: values, the oracle, and the ranks that
 * train. */
#ifndef TWILL_TEST_UPDATE_CASES_H
#define TWILL_TEST_UPDATE_CASES_H

#include "tests/support/gradient_sets.h"

#define UPDATE_TENSORS 10u
#define UPDATE_STEPS   4u
#define UPDATE_COUNT   5000u /* most elements of a tensor */
#define UPDATE_WORLDS  4u

struct twill_update_world {
    int size;
    const char *nodes;
};
extern const struct twill_update_world twill_update_worlds[UPDATE_WORLDS];

struct twill_update_case {
    const struct twill_update_world *world;
    const char *settings;
    twill_optimizer optimizer;
    twill_type type;
    bool own;      /* every second tensor has gradients of its own, every third parameters */
    float *oracle; /* [UPDATE_TENSORS][UPDATE_COUNT] results, by the main thread */
    double norm;   /* of the gradients of the last step */
};

/* Compute the results of a case. One thread at a time. */
void twill_update_run_oracle(struct twill_update_case *c);
/* Train as a rank, and compare with the oracle: of user, a twill_update_case. */
void twill_update_rank(int rank, int size, twill_bootstrap *bootstrap, void *user);

#endif
