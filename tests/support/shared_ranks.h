/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share memory, for the tests of regions. */
#ifndef TWILL_SHARED_RANKS_H
#define TWILL_SHARED_RANKS_H

#include "fabric/shm/shared_region.h"
#include "tests/support/ranks.h"

#define TWILL_TEST_SHARE_RANKS 32
#define TWILL_TEST_SHARE_PAIR  5000 /* bytes of each pair */
#define TWILL_TEST_SHARE_BYTES ((size_t)3 << 20)

/* One rank's region and the results. */
struct twill_test_share {
    struct twill_oob *oob;
    struct twill_shm_region *region;
    uint32_t label[TWILL_TEST_SHARE_RANKS];
    const char *why;
    struct twill_error error;
    twill_status status;
};

/* Share new memory among ranks of equal label, over o->oob: all three steps. */
void twill_test_share_over(struct twill_test_share *o, size_t bytes);
/* The same over `caller`, by these labels. */
void twill_test_share(struct twill_test_share *o, twill_bootstrap *caller, const uint32_t *label,
                      size_t bytes);
void twill_test_share_end(struct twill_test_share *o);
/* Wait for all ranks. */
bool twill_test_share_barrier(struct twill_test_share *o);
/* Check that memory of every rank with this rank's label is zero at first, and then holds what its
 * owner wrote. */
bool twill_test_is_shared(struct twill_test_share *o, const uint32_t *label);

#endif
