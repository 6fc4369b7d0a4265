/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the variables from the caller's settings and the environment. */
#include "lib/config/config.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

const struct twill_variable twill_variables[TWILL_VARIABLE_COUNT] = {
#define X(id, name, kind, fallback, least, most, choices, agree, help)                             \
    [TWILL_VARIABLE_##id] = {name, kind, fallback, least, most, choices, agree, help},
    TWILL_VARIABLES(X)
#undef X
};

static int find_variable(const char *name, size_t length)
{
    for (int v = 0; v < TWILL_VARIABLE_COUNT; v++)
        if (strlen(twill_variables[v].name) == length &&
            memcmp(twill_variables[v].name, name, length) == 0)
            return v;
    return -1;
}

/* Write "; did you mean X?" for the nearest variable, or "" if none is within 3 edits. */
static const char *hint(const char *name, size_t length, char text[64])
{
    int best = -1;
    unsigned least = 4;
    for (int v = 0; v < TWILL_VARIABLE_COUNT; v++) {
        unsigned d = twill_text_distance(name, length, twill_variables[v].name);
        if (d < least) {
            least = d;
            best = v;
        }
    }
    text[0] = '\0';
    if (best >= 0)
        snprintf(text, 64, "; did you mean %s?", twill_variables[best].name);
    return text;
}

/* Index of text among choices "a|b|c", or -1. */
static int64_t choice_index(const char *choices, const char *text)
{
    size_t length = strlen(text);
    for (int64_t i = 0;; i++) {
        const char *end = strchrnul(choices, '|');
        if ((size_t)(end - choices) == length && memcmp(choices, text, length) == 0)
            return i;
        if (*end == '\0')
            return -1;
        choices = end + 1;
    }
}

/* Factor of a suffix K, M, G or T, with optional B or iB; 0 if it is not one. */
static int64_t suffix_factor(const char *suffix)
{
    static const char letters[] = "KMGT";
    if (*suffix == '\0' || strcmp(suffix, "B") == 0)
        return 1;
    const char *letter = memchr(letters, *suffix & ~0x20, 4);
    if (letter == NULL ||
        (suffix[1] != '\0' && strcmp(suffix + 1, "B") != 0 && strcmp(suffix + 1, "iB") != 0))
        return 0;
    return (int64_t)1 << (10 * (letter - letters + 1));
}

static bool parse_integer(const char *text, bool bytes, int64_t *number)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    int64_t factor = bytes ? suffix_factor(end) : *end == '\0';
    if (end == text || errno != 0 || factor == 0 || (bytes && value < 0) ||
        value > INT64_MAX / factor)
        return false;
    *number = value * factor;
    return true;
}

bool twill_config_bytes(const char *text, int64_t *bytes)
{
    return parse_integer(text, true, bytes);
}

static bool parse_seconds(const char *text, const struct twill_variable *variable, int64_t *number)
{
    char *end;
    double seconds = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(seconds) || seconds < (double)variable->least ||
        seconds > (double)variable->most)
        return false;
    *number = (int64_t)(seconds * 1e9);
    return true;
}

static bool in_range(const struct twill_variable *variable, int64_t number)
{
    return number >= variable->least && (variable->most == 0 || number <= variable->most);
}

static twill_status parse_variable(const struct twill_variable *variable, const char *text,
                                   int64_t *number, struct twill_error *error)
{
    *number = 0;
    switch (variable->kind) {
    case TWILL_TEXT:
        return TWILL_OK;
    case TWILL_CHOICE:
        *number = choice_index(variable->choices, text);
        if (*number >= 0)
            return TWILL_OK;
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s=%s: must be one of %s", variable->name, text,
                          variable->choices);
    case TWILL_SECONDS:
        if (parse_seconds(text, variable, number))
            return TWILL_OK;
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s=%s: must be seconds from %lld to %lld",
                          variable->name, text, (long long)variable->least,
                          (long long)variable->most);
    case TWILL_NUMBER:
    case TWILL_BYTES:
        if (parse_integer(text, variable->kind == TWILL_BYTES, number) &&
            in_range(variable, *number))
            return TWILL_OK;
        return TWILL_FAIL(
            error, TWILL_ERR_CONFIG, "%s=%s: must be %s from %lld%s%.0lld", variable->name, text,
            variable->kind == TWILL_BYTES ? "bytes (K, M, G, T allowed)" : "a number",
            (long long)variable->least, variable->most ? " to " : " up", (long long)variable->most);
    }
    return TWILL_ERR_INTERNAL;
}

static const char *in_settings(const char *const *settings, const char *name)
{
    size_t length = strlen(name);
    const char *value = NULL;
    for (; settings != NULL && *settings != NULL; settings++)
        if (strncmp(*settings, name, length) == 0 && (*settings)[length] == '=')
            value = *settings + length + 1;
    return value;
}

static twill_status check_settings(const char *const *settings, struct twill_error *error)
{
    char text[64];
    for (; settings != NULL && *settings != NULL; settings++) {
        const char *equals = strchr(*settings, '=');
        if (equals == NULL)
            return TWILL_FAIL(error, TWILL_ERR_CONFIG, "setting \"%s\" is not NAME=value",
                              *settings);
        size_t length = (size_t)(equals - *settings);
        if (find_variable(*settings, length) < 0)
            return TWILL_FAIL(error, TWILL_ERR_CONFIG, "unknown setting %.*s%s", (int)length,
                              *settings, hint(*settings, length, text));
    }
    return TWILL_OK;
}

twill_status twill_config_load(struct twill_config *config, const char *const *settings,
                               struct twill_error *error)
{
    TWILL_TRY(error, check_settings(settings, error));
    for (int v = 0; v < TWILL_VARIABLE_COUNT; v++) {
        const struct twill_variable *variable = &twill_variables[v];
        const char *text = in_settings(settings, variable->name);
        config->source[v] = "caller";
        if (text == NULL) {
            text = getenv(variable->name);
            config->source[v] = "environment";
        }
        if (text == NULL || (*text == '\0' && variable->kind != TWILL_TEXT)) {
            text = variable->fallback;
            config->source[v] = "default";
        }
        config->text[v] = strdup(text);
        if (config->text[v] == NULL)
            return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory reading %s", variable->name);
        TWILL_TRY(error, parse_variable(variable, text, &config->number[v], error));
    }
    return TWILL_OK;
}

void twill_config_destroy(struct twill_config *config)
{
    for (int v = 0; v < TWILL_VARIABLE_COUNT; v++) {
        free(config->text[v]);
        config->text[v] = NULL;
    }
}

void twill_config_warn_unknown(const struct twill_log *log)
{
    char text[64];
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        size_t length = strcspn(*entry, "=");
        if (strncmp(*entry, "TWILL_", 6) == 0 && find_variable(*entry, length) < 0)
            twill_say(log, TWILL_LOG_WARN, "%.*s is not a variable of twill%s", (int)length, *entry,
                      hint(*entry, length, text));
    }
}

const char *twill_config_text(const struct twill_config *config, enum twill_variable_id id)
{
    return config->text[id] != NULL && config->text[id][0] != '\0' ? config->text[id] : NULL;
}

const char *twill_config_find(const struct twill_config *config, const char *name)
{
    for (int v = 0; v < TWILL_VARIABLE_COUNT; v++)
        if (strcmp(twill_variables[v].name, name) == 0)
            return twill_config_text(config, (enum twill_variable_id)v);
    return NULL;
}

const char *twill_config_shown(const struct twill_config *config, enum twill_variable_id id)
{
    const char *text = config->text[id];
    /* Printed values get pasted into bug reports. */
    return id == TWILL_VARIABLE_JOB && *text != '\0' ? "(a key)" : text;
}

uint32_t twill_config_hash(const struct twill_config *config, enum twill_variable_id id)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = config->text[id]; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    return hash;
}
