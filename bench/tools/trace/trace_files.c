/* SPDX-License-Identifier: Apache-2.0 */
/* Reads timelines: arrays of events, one a line. A file that was cut short is read up to there. */
#include "bench/tools/trace/trace_tool.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

static double member_number(struct json_object *object, const char *name)
{
    struct json_object *value;
    return json_object_object_get_ex(object, name, &value) ? json_object_get_double(value) : 0;
}

static const char *member_text(struct json_object *object, const char *name)
{
    struct json_object *value = NULL;
    (void)json_object_object_get_ex(object, name, &value);
    return value != NULL ? json_object_get_string(value) : ""; /* null has no text */
}

/* Return a count; 0: it is absent or negative. */
static uint64_t member_count(struct json_object *object, const char *name)
{
    struct json_object *value = NULL;
    (void)json_object_object_get_ex(object, name, &value);
    int64_t count = json_object_get_int64(value);
    return count > 0 ? (uint64_t)count : 0;
}

/* Return what belongs to a rank, which is added if it is new; NULL: out of memory. */
static struct trace_rank *find_rank(struct trace_job *job, uint32_t rank)
{
    for (size_t i = 0; i < job->rank_count; i++)
        if (job->ranks[i].rank == rank)
            return &job->ranks[i];
    struct trace_rank *more = realloc(job->ranks, (job->rank_count + 1) * sizeof(*job->ranks));
    if (more == NULL)
        return NULL;
    job->ranks = more;
    job->ranks[job->rank_count] = (struct trace_rank){.rank = rank};
    return &job->ranks[job->rank_count++];
}

/* Return how far a rank's time, in us, is to be moved for the drift of its clock. The timeline's
 * times have the first offset subtracted already. */
static double drift_at(const struct trace_rank *rank, double us)
{
    const struct trace_clock *clock = &rank->clock;
    if (!rank->has_clock || clock->later <= clock->at)
        return 0;
    double share = (us * 1e3 - clock->at) / (clock->later - clock->at);
    return (clock->later_offset - clock->offset) * share * 1e-3;
}

static bool add_span(struct trace_job *job, struct json_object *event)
{
    static const char *const names[] = {
#define X(NOUN, name) name,
        TRACE_PHASES(X)
#undef X
    };
    unsigned phase = 0;
    struct json_object *arguments = NULL;
    while (phase < TRACE_PHASE_COUNT && strcmp(member_text(event, "cat"), names[phase]) != 0)
        phase++;
    if (phase == TRACE_PHASE_COUNT || strcmp(member_text(event, "ph"), "X") != 0)
        return true;
    if (job->count == job->capacity) {
        size_t capacity = 2 * job->capacity + 1024;
        struct trace_span *more = realloc(job->spans, capacity * sizeof(*more));
        if (more == NULL)
            return false;
        job->spans = more;
        job->capacity = capacity;
    }
    (void)json_object_object_get_ex(event, "args", &arguments);
    struct trace_span *span = &job->spans[job->count++];
    *span = (struct trace_span){
        .begin = member_number(event, "ts"),
        .rank = (uint32_t)member_count(event, "pid"),
        .comm = member_count(arguments, "comm"),
        .sequence = member_count(arguments, "seq"),
        .bytes = member_count(arguments, "bytes"),
        .phase = (uint8_t)phase,
    };
    span->end = span->begin + member_number(event, "dur");
    snprintf(span->name, sizeof(span->name), "%s", member_text(event, "name"));
    return true;
}

static bool note_clock(struct trace_job *job, struct json_object *event)
{
    struct json_object *arguments = NULL;
    struct trace_rank *rank = find_rank(job, (uint32_t)member_count(event, "pid"));
    if (rank == NULL)
        return false;
    if (strcmp(member_text(event, "name"), "twill_clock") != 0)
        return true;
    (void)json_object_object_get_ex(event, "args", &arguments);
    double error = member_number(arguments, "error"),
           later = member_number(arguments, "later_error");
    rank->has_clock = true;
    rank->clock = (struct trace_clock){.at = member_number(arguments, "at"),
                                       .later = member_number(arguments, "later"),
                                       .offset = member_number(arguments, "offset"),
                                       .later_offset = member_number(arguments, "later_offset"),
                                       .error = error > later ? error : later};
    return true;
}

/* Read a whole file, which has no NUL. Returns NULL with errno on failure. */
static char *read_whole(const char *path)
{
    FILE *file = fopen(path, "r");
    char *text = NULL;
    size_t allocated = 0;
    if (file == NULL)
        return NULL;
    if (getdelim(&text, &allocated, '\0', file) < 0 && text != NULL)
        text[0] = '\0'; /* an empty file */
    fclose(file);
    return text;
}

/* Move the times of this file's events by the drift, and copy them. */
static void finish_file(struct trace_job *job, struct json_object *events, size_t first, FILE *out)
{
    for (size_t i = first; i < job->count; i++) {
        const struct trace_rank *rank = find_rank(job, job->spans[i].rank);
        double moved = rank != NULL ? drift_at(rank, job->spans[i].begin) : 0;
        job->spans[i].begin -= moved;
        job->spans[i].end -= moved;
    }
    for (size_t i = 0; out != NULL && i < json_object_array_length(events); i++) {
        struct json_object *event = json_object_array_get_idx(events, i), *time;
        const struct trace_rank *rank = find_rank(job, (uint32_t)member_count(event, "pid"));
        if (rank != NULL && json_object_object_get_ex(event, "ts", &time)) {
            double us = json_object_get_double(time);
            char text[40];
            snprintf(text, sizeof(text), "%.3f", us - drift_at(rank, us));
            json_object_object_add(event, "ts", json_object_new_double_s(us, text));
        }
        fprintf(out, "%s%s", ftell(out) > 2 ? ",\n" : "",
                json_object_to_json_string_ext(event, JSON_C_TO_STRING_PLAIN));
    }
}

/* Parse an array; of one that is cut short, the lines that are whole. NULL: it is none. */
static struct json_object *parse_events(char *text)
{
    struct json_object *events = json_tokener_parse(text);
    char *last = events == NULL ? strrchr(text, '\n') : NULL;
    while (events == NULL && last != NULL && last > text) {
        if (last[-1] == ',')
            last--;
        strcpy(last, "]");
        events = json_tokener_parse(text);
        *last = '\0';
        last = strrchr(text, '\n');
    }
    if (events != NULL && !json_object_is_type(events, json_type_array)) {
        json_object_put(events);
        events = NULL;
    }
    return events;
}

/* Are all events of the job that was read first? A rank's file of an earlier job of more ranks is
 * not overwritten, so it is still there. Prints what is wrong. */
static bool is_same_job(struct trace_job *job, const char *path, struct json_object *events)
{
    for (size_t i = 0; i < json_object_array_length(events); i++) {
        struct json_object *event = json_object_array_get_idx(events, i), *arguments = NULL;
        if (strcmp(member_text(event, "name"), "twill_job") != 0)
            continue;
        (void)json_object_object_get_ex(event, "args", &arguments);
        if (job->job[0] == '\0') {
            snprintf(job->job, sizeof(job->job), "%s", member_text(arguments, "job"));
            job->first = path;
        } else if (strcmp(job->job, member_text(arguments, "job")) != 0) {
            fprintf(stderr,
                    "twill-trace: %s is of another job than %s (an earlier one of %llu ranks?): "
                    "leave it out\n",
                    path, job->first, (unsigned long long)member_count(arguments, "ranks"));
            return false;
        }
    }
    return true;
}

bool trace_read(struct trace_job *job, const char *path, FILE *out)
{
    char *text = read_whole(path);
    if (text == NULL) {
        fprintf(stderr, "twill-trace: %s: %s\n", path, strerror(errno));
        return false;
    }
    struct json_object *events = parse_events(text);
    free(text);
    if (events == NULL) {
        fprintf(stderr, "twill-trace: %s: not a timeline of twill\n", path);
        return false;
    }
    if (!is_same_job(job, path, events)) {
        json_object_put(events);
        return false;
    }
    size_t first = job->count;
    bool good = true;
    for (size_t i = 0; good && i < json_object_array_length(events); i++) {
        struct json_object *event = json_object_array_get_idx(events, i);
        good = note_clock(job, event) && add_span(job, event);
    }
    if (!good)
        fprintf(stderr, "twill-trace: %s: out of memory\n", path);
    job->events += json_object_array_length(events);
    finish_file(job, events, first, out);
    json_object_put(events);
    return good;
}

void trace_free(struct trace_job *job)
{
    free(job->spans);
    free(job->ranks);
}
