/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/common/job_json.h"

#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool twill_info_cut(const char *text, struct twill_info_line *line)
{
    if (text == NULL)
        return false;
    snprintf(line->text, sizeof(line->text), "%s", text);
    char *at = line->text;
    for (int i = 0; i < TWILL_INFO_FIELDS; i++) {
        line->field[i] = at;
        at += strcspn(at, "\t");
        if (*at == '\t')
            *at++ = '\0';
    }
    return true;
}

bool twill_info_is(const struct twill_info_line *line, const char *kind)
{
    return strcmp(line->field[0], kind) == 0;
}

enum field_kind { FIELD_END, FIELD_TEXT, FIELD_INTEGER, FIELD_DECIMAL };
/* A member of a JSON object, and how its text is converted. Constant tables consist of them. */
struct field_name {
    const char *name;
    enum field_kind kind;
};

static const struct field_name rank_fields[] = {
    {"rank", FIELD_INTEGER}, {"pid", FIELD_INTEGER}, {"state", FIELD_TEXT}, {NULL, FIELD_END}};
static const struct field_name call_fields[] = {
    {"rank", FIELD_INTEGER},      {"comm", FIELD_INTEGER},      {"comm_rank", FIELD_INTEGER},
    {"comm_size", FIELD_INTEGER}, {"state", FIELD_TEXT},        {"sequence", FIELD_INTEGER},
    {"collective", FIELD_TEXT},   {"count", FIELD_INTEGER},     {"type", FIELD_TEXT},
    {"operation", FIELD_TEXT},    {"root", FIELD_INTEGER},      {"bytes", FIELD_INTEGER},
    {"seconds", FIELD_DECIMAL},   {"waits_for", FIELD_INTEGER}, {"call", FIELD_TEXT},
    {"failure", FIELD_TEXT},      {"comm_root", FIELD_INTEGER}, {NULL, FIELD_END}};
static const struct field_name memory_fields[] = {
    {"rank", FIELD_INTEGER},    {"comm", FIELD_INTEGER},
    {"shared", FIELD_INTEGER},  {"shared_limit", FIELD_INTEGER},
    {"private", FIELD_INTEGER}, {"comm_root", FIELD_INTEGER},
    {NULL, FIELD_END}};
static const struct field_name link_fields[] = {{"rank", FIELD_INTEGER}, {"local", FIELD_TEXT},
                                                {"remote", FIELD_TEXT},  {"bytes", FIELD_INTEGER},
                                                {"busy", FIELD_DECIMAL}, {NULL, FIELD_END}};
static const struct field_name recent_fields[] = {
    {"rank", FIELD_INTEGER},         {"comm", FIELD_INTEGER},       {"seconds", FIELD_DECIMAL},
    {"calls", FIELD_INTEGER},        {"bytes", FIELD_INTEGER},      {"in_calls", FIELD_DECIMAL},
    {"waited", FIELD_DECIMAL},       {"waited_for", FIELD_INTEGER}, {"steps", FIELD_INTEGER},
    {"step_seconds", FIELD_DECIMAL}, {"exposed", FIELD_DECIMAL},    {NULL, FIELD_END}};
static const struct field_name event_fields[] = {
    {"rank", FIELD_INTEGER},    {"comm", FIELD_INTEGER}, {"number", FIELD_INTEGER},
    {"ns_ago", FIELD_INTEGER},  {"kind", FIELD_TEXT},    {"sequence", FIELD_INTEGER},
    {"collective", FIELD_TEXT}, {"type", FIELD_TEXT},    {"operation", FIELD_TEXT},
    {"bytes", FIELD_INTEGER},   {"peer", FIELD_INTEGER}, {"detail", FIELD_INTEGER},
    {NULL, FIELD_END}};

/* The kinds of lines that become objects of an array, in the order of the arrays. */
static const struct {
    const char *kind, *array;
    const struct field_name *fields;
} kinds[] = {{"rank", "ranks", rank_fields},           {"call", "calls", call_fields},
             {"memory", "comm_memory", memory_fields}, {"link", "links", link_fields},
             {"recent", "recent", recent_fields},      {"event", "events", event_fields}};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* Return the JSON value of a field, which the caller owns, or NULL for "-". */
static struct json_object *field_value(const char *text, enum field_kind kind)
{
    if (strcmp(text, "-") == 0)
        return NULL;
    if (kind == FIELD_INTEGER)
        return json_object_new_int64(strtoll(text, NULL, 10));
    return kind == FIELD_DECIMAL ? json_object_new_double(strtod(text, NULL))
                                 : json_object_new_string(text);
}

/* Append a line's object to the array `list`. */
static void add_line(struct json_object *list, const struct twill_info_line *line,
                     const struct field_name *field)
{
    struct json_object *object = json_object_new_object();
    for (int f = 0; field[f].kind != FIELD_END; f++)
        json_object_object_add(object, field[f].name,
                               field_value(line->field[f + 1], field[f].kind));
    json_object_array_add(list, object);
}

struct json_object *twill_job_json(const twill_job_view *view)
{
    struct json_object *root = json_object_new_object(), *findings = json_object_new_array();
    struct json_object *list[KINDS];
    struct twill_info_line line;
    for (size_t k = 0; k < KINDS; k++)
        list[k] = json_object_new_array();
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), &line); i++) {
        for (size_t k = 0; k < KINDS; k++)
            if (twill_info_is(&line, kinds[k].kind))
                add_line(list[k], &line, kinds[k].fields);
        if (twill_info_is(&line, "finding"))
            json_object_array_add(findings, json_object_new_string(line.field[1]));
        if (!twill_info_is(&line, "job"))
            continue;
        json_object_object_add(root, "program", json_object_new_string(line.field[1]));
        json_object_object_add(root, "ranks_here", field_value(line.field[2], FIELD_INTEGER));
        json_object_object_add(root, "ranks_of_job", field_value(line.field[3], FIELD_INTEGER));
    }
    for (size_t k = 0; k < KINDS; k++)
        json_object_object_add(root, kinds[k].array, list[k]);
    json_object_object_add(root, "findings", findings);
    return root;
}
