/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

unsigned test_count_lines(const char *path, const char *words, const char *more)
{
    FILE *file = fopen(path, "r");
    char line[1024];
    unsigned count = 0;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        count += strstr(line, words) != NULL && strstr(line, more) != NULL;
    if (file != NULL)
        fclose(file);
    return count;
}

const char *test_data(const char *name)
{
    static _Thread_local char path[512];
    snprintf(path, sizeof(path), "%s/%s", TWILL_TEST_DATA, name);
    return path;
}
