/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the variables from the caller's settings and the environment. */
#include "lib/job/config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern char **environ;

const struct twill_variable twill_variables[TWILL_VARIABLE_COUNT] = {
#define NAME_USER(name)   name
#define NAME_MPI(name)    name
#define NAME_LAYOUT(name) "TWILL_LAYOUT=" name
#define NAME_EXPERT(name) "TWILL_TUNE=" name
#define NAME_START(name)  name
#define X(id, scope, name, kind, fallback, least, most, choices, agree, help)                      \
    [TWILL_VARIABLE_##id] = {NAME_##scope(name),                                                   \
                             "TWILL_" #id,                                                         \
                             TWILL_SCOPE_##scope,                                                  \
                             kind,                                                                 \
                             fallback,                                                             \
                             least,                                                                \
                             most,                                                                 \
                             choices,                                                              \
                             TWILL_AGREE_##agree,                                                  \
                             help},
    TWILL_VARIABLES(X)
#undef X
};

/* Return whether a variable is an entry of TWILL_LAYOUT or TWILL_TUNE. */
static bool is_entry(const struct twill_variable *variable)
{
    return variable->scope == TWILL_SCOPE_LAYOUT || variable->scope == TWILL_SCOPE_EXPERT;
}

/* Return the name of the environment variable that sets this variable alone. For an entry of
 * TWILL_LAYOUT or TWILL_TUNE that is its name before 1.0, such as TWILL_NODES for
 * TWILL_LAYOUT=nodes. */
static const char *environment_name(const struct twill_variable *variable)
{
    return is_entry(variable) ? variable->old : variable->name;
}

/* Return the number of the variable that the environment variable `name`, of `length` characters,
 * sets, or -1 if it sets none. */
static int find_variable(const char *name, size_t length)
{
    for (int v = 0; v < TWILL_VARIABLE_COUNT; v++) {
        const char *known = environment_name(&twill_variables[v]);
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return v;
    }
    return -1;
}

/* Return `text`, set to "; did you mean X?" with the nearest variable, or to "" if none is within 3
 * edits. */
static const char *hint(const char *name, size_t length, char text[64])
{
    int best = -1;
    unsigned least = 4;
    for (int v = 0; v < TWILL_VARIABLE_COUNT; v++) {
        unsigned d = twill_text_distance(name, length, environment_name(&twill_variables[v]));
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

/* Return the index of `text` among choices "a|b|c", or -1 if it is none of them. */
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

/* Set *number to the nanoseconds of `text`, which is in seconds. Returns false, and leaves *number
 * as it was, if the text is malformed or outside the range of the variable. */
static bool parse_seconds(const char *text, const struct twill_variable *variable, int64_t *number)
{
    char *end;
    double seconds = twill_read_real(text, &end);
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

/* Set *number to the value of `text`, 0 for TWILL_TEXT. Returns TWILL_ERR_CONFIG if it is bad. */
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
        if (twill_read_integer(text, variable->kind == TWILL_BYTES, number) &&
            in_range(variable, *number))
            return TWILL_OK;
        return TWILL_FAIL(
            error, TWILL_ERR_CONFIG, "%s=%s: must be %s from %lld%s%.0lld", variable->name, text,
            variable->kind == TWILL_BYTES ? "bytes (K, M, G, T allowed)" : "a number",
            (long long)variable->least, variable->most ? " to " : " up", (long long)variable->most);
    }
    return TWILL_ERR_INTERNAL;
}

/* Return the value of `name` in `settings`, the last one if there are several, or in the
 * environment if `settings` is NULL. Return NULL if it is not set. The value is not a copy. */
static const char *find_in_source(const char *const *settings, const char *name)
{
    size_t length = strlen(name);
    const char *value = NULL;
    if (settings == NULL)
        return getenv(name);
    for (; *settings != NULL; settings++)
        if (strncmp(*settings, name, length) == 0 && (*settings)[length] == '=')
            value = *settings + length + 1;
    return value;
}

/* An entry "name=value" of a list, as ranges of its text. `value` is NULL if it is missing. */
struct config_entry {
    const char *name, *value;
    size_t name_length, value_length;
};

/* An environment variable whose value is a list of entries "name=value", as TWILL_TUNE. The two are
 * constant. */
static const struct entry_list {
    enum twill_variable_scope scope; /* that of its entries in twill_variables[] */
    const char *variable;
    char separator[2]; /* not a comma, as units=l3=2,numa=4 has some */
    const char *bare;  /* name of an entry that is given without "name=", or NULL */
} lists[] = {
    {TWILL_SCOPE_LAYOUT, "TWILL_LAYOUT", ";", "nodes"},
    {TWILL_SCOPE_EXPERT, "TWILL_TUNE", ",", NULL},
};

/* Read the next entry and advance *rest. Skips empty entries. Returns false at the end. */
static bool read_entry(const struct entry_list *list, const char **rest, struct config_entry *entry)
{
    const char *text = *rest + strspn(*rest, list->separator);
    const char *end = strchrnul(text, list->separator[0]);
    const char *equals = memchr(text, '=', (size_t)(end - text));
    *rest = end;
    *entry = (struct config_entry){.name = text, .name_length = (size_t)(end - text)};
    if (equals != NULL) {
        entry->name_length = (size_t)(equals - text);
        entry->value = equals + 1;
    } else if (list->bare != NULL) {
        entry->name = list->bare;
        entry->name_length = strlen(list->bare);
        entry->value = text;
    }
    if (entry->value != NULL)
        entry->value_length = (size_t)(end - entry->value);
    return end != text;
}

/* Return the name of an entry of TWILL_LAYOUT or TWILL_TUNE within that list, such as "segment" for
 * TWILL_TUNE=segment. The variable must be such an entry. */
static const char *entry_name(const struct twill_variable *variable)
{
    return strchr(variable->name, '=') + 1;
}

/* Return whether this is the name of an entry in a list. */
static bool is_named(const struct twill_variable *variable, const struct config_entry *entry)
{
    const char *name = entry_name(variable);
    return strlen(name) == entry->name_length && memcmp(name, entry->name, entry->name_length) == 0;
}

/* Return TWILL_ERR_CONFIG. The message names the nearest entry that the list may have, or all that
 * it may have if none is near. */
static twill_status fail_unknown_entry(const struct entry_list *list,
                                       const struct config_entry *entry, struct twill_error *error)
{
    char names[400] = "";
    const char *best = NULL;
    unsigned least = 4;
    for (int v = 0; v < TWILL_VARIABLE_COUNT; v++) {
        if (twill_variables[v].scope != list->scope)
            continue;
        const char *name = entry_name(&twill_variables[v]);
        unsigned d = twill_text_distance(entry->name, entry->name_length, name);
        if (d < least && 2 * d <= entry->name_length) {
            least = d;
            best = name;
        }
        twill_text_list(names, sizeof(names), name);
    }
    if (best != NULL)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "%s: there is no entry \"%.*s\"; did you mean %s?", list->variable,
                          (int)entry->name_length, entry->name, best);
    return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s: there is no entry \"%.*s\"; there are %s",
                      list->variable, (int)entry->name_length, entry->name, names);
}

/* Check TWILL_LAYOUT and TWILL_TUNE in `settings`, or in the environment if that is NULL. Returns
 * TWILL_ERR_CONFIG unless each of their entries has a known name and a value. */
static twill_status check_entries(const char *const *settings, struct twill_error *error)
{
    for (size_t l = 0; l < TWILL_ARRAY_LENGTH(lists); l++) {
        const char *rest = find_in_source(settings, lists[l].variable);
        struct config_entry entry;
        while (rest != NULL && read_entry(&lists[l], &rest, &entry)) {
            int v = 0;
            while (v < TWILL_VARIABLE_COUNT && (twill_variables[v].scope != lists[l].scope ||
                                                !is_named(&twill_variables[v], &entry)))
                v++;
            if (v == TWILL_VARIABLE_COUNT)
                return fail_unknown_entry(&lists[l], &entry, error);
            if (entry.value == NULL)
                return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s: has no value",
                                  twill_variables[v].name);
        }
    }
    return TWILL_OK;
}

/* Find an entry of a list in `settings`, or in the environment if that is NULL, by its current or
 * old name. found->value becomes NULL if it is not set. Returns TWILL_ERR_CONFIG if it is set to
 * two different values. */
static twill_status find_entry(const struct twill_variable *variable, const char *const *settings,
                               struct config_entry *found, struct twill_error *error)
{
    const struct entry_list *list = &lists[variable->scope == lists[1].scope];
    const char *rest = find_in_source(settings, list->variable);
    const char *old = find_in_source(settings, variable->old);
    struct config_entry entry;
    *found = (struct config_entry){.value = old, .value_length = old != NULL ? strlen(old) : 0};
    while (rest != NULL && read_entry(list, &rest, &entry)) {
        if (!is_named(variable, &entry))
            continue;
        if (found->value != NULL && (found->value_length != entry.value_length ||
                                     memcmp(found->value, entry.value, entry.value_length) != 0))
            return TWILL_FAIL(error, TWILL_ERR_CONFIG, "%s=%.*s contradicts %s=%.*s",
                              variable->name, (int)entry.value_length, entry.value,
                              found->value == old ? variable->old : variable->name,
                              (int)found->value_length, found->value);
        *found = entry;
    }
    return TWILL_OK;
}

/* Set found->value and its length to a variable's value in `settings`, or in the environment if
 * that is NULL. It is NULL if the variable is not set. Returns TWILL_ERR_CONFIG if an entry of a
 * list is set to two different values, perhaps one by its old name. */
static twill_status find_value(const struct twill_variable *variable, const char *const *settings,
                               struct config_entry *found, struct twill_error *error)
{
    if (is_entry(variable))
        return find_entry(variable, settings, found, error);
    const char *text = find_in_source(settings, variable->name);
    *found = (struct config_entry){.value = text, .value_length = text != NULL ? strlen(text) : 0};
    return TWILL_OK;
}

/* Return TWILL_ERR_CONFIG unless each of `settings` is NAME=value with a known name. */
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

/* Set text, number and source of value number `v` from the settings, the environment or its
 * default. If the text is empty, only a TWILL_TEXT variable counts as set. Returns TWILL_ERR_CONFIG
 * if the value is bad, or TWILL_ERR_MEMORY. */
static twill_status load_variable(struct twill_config *config, int v, const char *const *settings,
                                  struct twill_error *error)
{
    const struct twill_variable *variable = &twill_variables[v];
    struct config_entry found = {.value = NULL};
    config->source[v] = "caller";
    if (settings != NULL)
        TWILL_TRY(error, find_value(variable, settings, &found, error));
    if (found.value == NULL) {
        TWILL_TRY(error, find_value(variable, NULL, &found, error));
        config->source[v] = "environment";
    }
    if (found.value == NULL || (found.value_length == 0 && variable->kind != TWILL_TEXT)) {
        found.value = variable->fallback;
        found.value_length = strlen(variable->fallback);
        config->source[v] = "default";
    }
    config->text[v] = strndup(found.value, found.value_length);
    if (config->text[v] == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory reading %s", variable->name);
    return parse_variable(variable, config->text[v], &config->number[v], error);
}

twill_status twill_config_load(struct twill_config *config, const char *const *settings,
                               struct twill_error *error)
{
    TWILL_TRY(error, check_settings(settings, error));
    if (settings != NULL)
        TWILL_TRY(error, check_entries(settings, error));
    TWILL_TRY(error, check_entries(NULL, error));
    for (int v = 0; v < TWILL_VARIABLE_COUNT; v++)
        TWILL_TRY(error, load_variable(config, v, settings, error));
    return TWILL_OK;
}

twill_status twill_config_copy(struct twill_config *config, const struct twill_config *from,
                               struct twill_error *error)
{
    *config = *from;
    for (int v = 0; v < TWILL_VARIABLE_COUNT; v++)
        config->text[v] = NULL;
    for (int v = 0; v < TWILL_VARIABLE_COUNT; v++) {
        config->text[v] = strdup(from->text[v]);
        if (config->text[v] == NULL)
            return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory");
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

void twill_config_warn_environment(const struct twill_log *log)
{
    char text[64];
    for (char **entry = environ; entry != NULL && *entry != NULL; entry++) {
        size_t length = strcspn(*entry, "=");
        int v = find_variable(*entry, length);
        if (v < 0 && strncmp(*entry, "TWILL_", 6) == 0)
            twill_say(log, TWILL_LOG_WARN, "%.*s is not a variable of twill%s", (int)length, *entry,
                      hint(*entry, length, text));
        else if (v >= 0 && is_entry(&twill_variables[v]))
            twill_say(log, TWILL_LOG_WARN, "%.*s is now %s%s", (int)length, *entry,
                      twill_variables[v].name, *entry + length);
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

bool twill_config_is_set(const struct twill_config *config, enum twill_variable_id id)
{
    return strcmp(config->source[id], "default") != 0;
}

uint32_t twill_config_hash(const struct twill_config *config, enum twill_variable_id id)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (const char *c = config->text[id]; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    bool adapts =
        twill_variables[id].agree == TWILL_AGREE_SAME_OR_UNSET && !twill_config_is_set(config, id);
    return adapts ? hash * 16777619u : hash;
}
