/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/common/option_names.h"
#include "bench/common/measured_collectives.h"
#include "lib/base/lists.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#define WORDS_MOST 32

/* Copy a name to `plain` in lower case, without '_', '-' and "_perf". Returns false if too long. */
static bool normalise(const char *text, char plain[WORDS_MOST])
{
    size_t used = 0;
    for (; *text != '\0' && used + 1 < WORDS_MOST; text++)
        if (*text != '_' && *text != '-')
            plain[used++] = (char)tolower((unsigned char)*text);
    plain[used] = '\0';
    if (used > 4 && strcmp(plain + used - 4, "perf") == 0)
        plain[used - 4] = '\0';
    return *text == '\0';
}

const char *twill_bench_collective_name(const char *text)
{
#define COLLECTIVE_NAME(NOUN, name, ...) name,
    static const char *const names[] = {TWILL_MEASURED_COLLECTIVES(COLLECTIVE_NAME)};
    char plain[WORDS_MOST], own[WORDS_MOST];
    if (!normalise(text, plain))
        return text;
    if (strcmp(plain, "bcast") == 0)
        return "broadcast";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (normalise(names[i], own) && strcmp(plain, own) == 0)
            return names[i];
    return text;
}

/* twill_type_name() is also accepted. */
#define TYPE_NAMES(NOUN, ...) [TWILL_##NOUN] = {__VA_ARGS__},
static const char *const type_names[][3] = {TWILL_BENCH_TYPE_NAMES(TYPE_NAMES)};
_Static_assert(sizeof(type_names) / sizeof(*type_names) == TWILL_TYPE_COUNT, "names of each");

const char *twill_bench_type_name(twill_type type)
{
    return type_names[type][0];
}

int twill_bench_type_parse(const char *text)
{
    char plain[WORDS_MOST];
    if (!normalise(text, plain))
        return -1;
    for (int type = 0; type < TWILL_TYPE_COUNT; type++) {
        if (strcmp(plain, twill_type_name((twill_type)type)) == 0)
            return type;
        for (size_t i = 0; i < sizeof(*type_names) / sizeof(**type_names); i++)
            if (type_names[type][i] != NULL && strcmp(plain, type_names[type][i]) == 0)
                return type;
    }
    return -1;
}

int twill_bench_level(const char *text)
{
#define OPTION_LEVEL(NOUN, name, ...) #name,
    static const char *const names[] = {TWILL_LEVELS(OPTION_LEVEL, )};
    for (int level = 0; level < TWILL_LEVEL_COUNT; level++)
        if (strcmp(text, names[level]) == 0)
            return level;
    return -1;
}
