/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/tools/info/info.h"

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

/* Set *found to the line of a rank, with its PID and state, such as "4711" and "stopped". If the
 * view has none for the rank, *found is its last line. */
static void find_rank(const twill_job_view *view, const char *rank, struct twill_info_line *found)
{
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), found); i++)
        if (twill_info_is(found, "rank") && strcmp(found->field[1], rank) == 0)
            return;
}

/* Print the row of the table for a rank's last call on a communicator, with its failure below it,
 * if there is one. */
static void print_call(const twill_job_view *view, const struct twill_info_line *call)
{
    struct twill_info_line rank;
    char waits[32] = "-", what[160], age[32] = "-";
    find_rank(view, call->field[1], &rank);
    if (strcmp(call->field[14], "-1") != 0)
        snprintf(waits, sizeof(waits), "rank %s", call->field[14]);
    bool in = strcmp(call->field[5], "in") == 0, none = strcmp(call->field[5], "none") == 0;
    snprintf(what, sizeof(what), "%s%s",
             in     ? "in "
             : none ? "no call yet"
                    : "left ",
             none ? "" : call->field[15]);
    if (!none)
        snprintf(age, sizeof(age), "%.1f s%s", strtod(call->field[13], NULL), in ? "" : " ago");
    printf("%4s  %7s  %-13s  %4s  %-44s  %10s  %10s  %s\n", call->field[1], rank.field[2],
           rank.field[3], call->field[2], what, call->field[12], age, waits);
    if (strcmp(call->field[16], "-") != 0)
        printf("      failed: %s\n", call->field[16]);
}

/* Print the row of an event, with its call and its peer, if it has them. */
static void print_event(const struct twill_info_line *event)
{
    char ago[32] = "-";
    if (strcmp(event->field[4], "-") != 0)
        snprintf(ago, sizeof(ago), "%.6f s", strtod(event->field[4], NULL) * 1e-9);
    printf("%4s  %4s  %8s  %14s  %-14s", event->field[1], event->field[2], event->field[3], ago,
           event->field[5]);
    if (strcmp(event->field[7], "-") != 0)
        printf("  %s #%s  %s %s  %s bytes", event->field[7], event->field[6], event->field[8],
               event->field[9], event->field[10]);
    if (strcmp(event->field[11], "-1") != 0)
        printf("  peer %s", event->field[11]);
    printf("\n");
}

/* Print the view as text. First comes how many ranks of the job are on this host, then a table of
 * the ranks and their calls, then events, then findings. `events` says that events were asked for.
 * If so, a line of column titles precedes the events, even if there are none. */
static void print_text(const twill_job_view *view, bool events)
{
    struct twill_info_line line;
    unsigned findings = 0;
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), &line); i++)
        if (twill_info_is(&line, "job"))
            printf("%s: %s of %s ranks are on this host\n\n", line.field[1], line.field[2],
                   line.field[3]);
    printf("%4s  %7s  %-13s  %4s  %-44s  %10s  %10s  %s\n", "rank", "PID", "state", "comm", "call",
           "bytes", "for", "waits for");
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), &line); i++)
        if (twill_info_is(&line, "call"))
            print_call(view, &line);
    if (events)
        printf("\n%4s  %4s  %8s  %14s  %s\n", "rank", "comm", "event", "ago", "last events");
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), &line); i++)
        if (twill_info_is(&line, "event"))
            print_event(&line);
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), &line); i++)
        if (twill_info_is(&line, "finding"))
            printf("%s%s\n", findings++ == 0 ? "\n" : "", line.field[1]);
}

enum field_kind { FIELD_TEXT, FIELD_INTEGER, FIELD_DECIMAL };
/* A member of a JSON object, and how its text is converted. Constant tables consist of them. */
struct field_name {
    const char *name;
    enum field_kind kind;
};

static const struct field_name rank_fields[] = {
    {"rank", FIELD_INTEGER}, {"pid", FIELD_INTEGER}, {"state", FIELD_TEXT}};
static const struct field_name call_fields[] = {
    {"rank", FIELD_INTEGER},      {"comm", FIELD_INTEGER},      {"comm_rank", FIELD_INTEGER},
    {"comm_size", FIELD_INTEGER}, {"state", FIELD_TEXT},        {"sequence", FIELD_INTEGER},
    {"collective", FIELD_TEXT},   {"count", FIELD_INTEGER},     {"type", FIELD_TEXT},
    {"operation", FIELD_TEXT},    {"root", FIELD_INTEGER},      {"bytes", FIELD_INTEGER},
    {"seconds", FIELD_DECIMAL},   {"waits_for", FIELD_INTEGER}, {"call", FIELD_TEXT},
    {"failure", FIELD_TEXT}};
static const struct field_name event_fields[] = {
    {"rank", FIELD_INTEGER},    {"comm", FIELD_INTEGER}, {"number", FIELD_INTEGER},
    {"ns_ago", FIELD_INTEGER},  {"kind", FIELD_TEXT},    {"sequence", FIELD_INTEGER},
    {"collective", FIELD_TEXT}, {"type", FIELD_TEXT},    {"operation", FIELD_TEXT},
    {"bytes", FIELD_INTEGER},   {"peer", FIELD_INTEGER}, {"detail", FIELD_INTEGER}};

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

/* Return an array of this kind's lines, as objects of `count` members. The caller owns it. */
static struct json_object *list_lines(const twill_job_view *view, const char *kind,
                                      const struct field_name *fields, int count)
{
    struct json_object *list = json_object_new_array();
    struct twill_info_line line;
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), &line); i++) {
        if (!twill_info_is(&line, kind))
            continue;
        struct json_object *object = json_object_new_object();
        for (int f = 0; f < count; f++)
            json_object_object_add(object, fields[f].name,
                                   field_value(line.field[f + 1], fields[f].kind));
        json_object_array_add(list, object);
    }
    return list;
}

/* Print the view as a JSON object with the job, ranks, calls, events and findings. */
static void print_json(const twill_job_view *view)
{
    struct json_object *root = json_object_new_object(), *findings = json_object_new_array();
    struct twill_info_line line;
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), &line); i++) {
        if (twill_info_is(&line, "finding"))
            json_object_array_add(findings, json_object_new_string(line.field[1]));
        if (!twill_info_is(&line, "job"))
            continue;
        json_object_object_add(root, "program", json_object_new_string(line.field[1]));
        json_object_object_add(root, "ranks_here", field_value(line.field[2], FIELD_INTEGER));
        json_object_object_add(root, "ranks_of_job", field_value(line.field[3], FIELD_INTEGER));
    }
    json_object_object_add(root, "ranks", list_lines(view, "rank", rank_fields, 3));
    json_object_object_add(root, "calls", list_lines(view, "call", call_fields, 16));
    json_object_object_add(root, "events", list_lines(view, "event", event_fields, 12));
    json_object_object_add(root, "findings", findings);
    puts(json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY));
    json_object_put(root);
}

int twill_job_print(const struct twill_job_options *options)
{
    char message[512];
    twill_job_view *view;
    size_t events = options->recorder != NULL ? 4096 : options->events;
    if (twill_job_view_open(&view, options->name, events, message, sizeof(message)) != TWILL_OK) {
        fprintf(stderr, "twill-info: --job: %s\n", message);
        return 1;
    }
    int result = 0;
    if (options->recorder != NULL)
        result = twill_job_record(view, options->recorder);
    else if (options->json)
        print_json(view);
    else
        print_text(view, events > 0);
    twill_job_view_close(view);
    return result;
}
