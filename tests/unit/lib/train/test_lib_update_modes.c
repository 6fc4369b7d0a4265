/* SPDX-License-Identifier: Apache-2.0 */
/* Sets with an optimizer that run one step late, have threads, or clip by the norm: their
 * parameters are those of the oracle, too. */
#include "tests/support/unit.h"
#include "tests/support/update_cases.h"

static const char *const update_combinations[] = {
    "TWILL_GRADIENTS=late=1,bucket=16K,first=1K",
    "TWILL_GRADIENTS=late=1,order=priority,bucket=16K,segment=4K",
    "TWILL_GRADIENTS=threads=2,bucket=16K,first=1K",
    "TWILL_GRADIENTS=late=1,threads=2,order=priority,bucket=16K,first=1K,segment=4K"};

TWILL_TEST(combinations_equal_the_oracle)
{
    static float oracle[UPDATE_TENSORS * UPDATE_COUNT];
    const struct {
        twill_optimizer_rule rule;
        twill_type type;
        double clip; /* below all norms */
    } kinds[] = {{TWILL_OPTIMIZER_ADAM, TWILL_F32, 0},
                 {TWILL_OPTIMIZER_ADAMW, TWILL_BF16, 3},
                 {TWILL_OPTIMIZER_LAMB, TWILL_F32, 2}};
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(update_combinations); i++)
        for (unsigned k = 0; k < TWILL_ARRAY_LENGTH(kinds); k++) {
            struct twill_update_case c = {&twill_update_worlds[(i + k) % 2 + 1],
                                          update_combinations[i], .type = kinds[k].type,
                                          .own = (i + k) % 2 == 0, .oracle = oracle};
            twill_optimizer_defaults(&c.optimizer, kinds[k].rule);
            c.optimizer.rate = 0.01;
            c.optimizer.epsilon = 1e-3;
            c.optimizer.clip_norm = kinds[k].clip;
            twill_update_run_oracle(&c);
            twill_test_run_ranks(c.world->size, twill_update_rank, &c);
        }
}

/* --- clipping -------------------------------------------------------------------------------- */

TWILL_TEST(gradients_are_clipped_by_their_norm)
{
    static float oracle[UPDATE_TENSORS * UPDATE_COUNT];
    for (unsigned i = 0; i < 6; i++) {
        const char *settings[] = {
            "TWILL_GRADIENTS=", "TWILL_GRADIENTS=order=priority,bucket=32K,first=4K,segment=4K",
            update_combinations[2]};
        struct twill_update_case c = {&twill_update_worlds[i % 4], settings[i % 3],
                                      .type = TWILL_F32, .own = i % 2 == 0, .oracle = oracle};
        twill_optimizer_defaults(&c.optimizer, TWILL_OPTIMIZER_SGD);
        c.optimizer.rate = 0.1;
        c.optimizer.clip_norm = 1.5;
        twill_update_run_oracle(&c);
        twill_test_run_ranks(c.world->size, twill_update_rank, &c);
    }
}
