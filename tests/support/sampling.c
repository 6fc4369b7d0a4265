/* SPDX-License-Identifier: Apache-2.0 */
/* What tests do a sample of. */
#include "tests/support/sampling.h"

#include <stdlib.h>

uint64_t test_seed(void)
{
    const char *seed = getenv("TEST_SEED");
    return seed != NULL ? strtoull(seed, NULL, 0) : 1;
}

bool test_whole(void)
{
    return getenv("TEST_WHOLE") != NULL;
}

uint32_t test_draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % below);
}
