/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/run.h"

#include <stdio.h>
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

const char *test_data(const char *name)
{
    static _Thread_local char path[512];
    snprintf(path, sizeof(path), "%s/%s", TWILL_TEST_DATA, name);
    return path;
}
