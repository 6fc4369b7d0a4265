/* SPDX-License-Identifier: Apache-2.0 */
/* A view in the format of the flight recorder of PyTorch (version 2.9 of its JSON). Each rank has a
 * file with its process groups and calls. The analyser expects names such as nccl:all_reduce. */
#include "bench/tools/info/info.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Members of the lines that are needed here, as in lib/twill_job.h. */
enum { LINE_RANK = 1, CALL_COMM = 2, CALL_COMM_RANK, CALL_COMM_SIZE, CALL_STATE, CALL_SEQUENCE };
enum {
    EVENT_COMM = 2,
    EVENT_NUMBER,
    EVENT_AGO,
    EVENT_KIND,
    EVENT_SEQUENCE,
    EVENT_COLLECTIVE,
    EVENT_TYPE,
    EVENT_OPERATION,
    EVENT_BYTES
};

/* Names of collectives and types in PyTorch. Others remain unchanged. */
static const char *const names[][2] = {
    {"allreduce", "all_reduce"},
    {"allgather", "_all_gather_base"},
    {"reduce_scatter", "_reduce_scatter_base"},
    {"alltoall", "all_to_all"},
    {"barrier", "all_reduce_barrier"},
    {"f32", "Float"},
    {"f64", "Double"},
    {"f16", "Half"},
    {"bf16", "BFloat16"},
    {"i32", "Int"},
    {"i64", "Long"},
    {"i8", "Char"},
    {"i16", "Short"},
    {"u8", "Byte"},
    {"u16", "UInt16"},
    {"u32", "UInt32"},
    {"u64", "UInt64"},
    {"f8e4m3", "Float8_e4m3fn"},
    {"f8e5m2", "Float8_e5m2"},
};

/* Return PyTorch's name of a collective or type, or the name itself if it has none. */
static const char *translate_name(const char *name)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(names[i][0], name) == 0)
            return names[i][1];
    return name;
}

/* Return whether a line is of this kind and about this rank. */
static bool is_line(const struct twill_info_line *line, const char *kind, const char *rank)
{
    return twill_info_is(line, kind) && strcmp(line->field[LINE_RANK], rank) == 0;
}

/* Return the bytes of an element of a type such as "f32", or 1 if there is no such type. */
static size_t element_bytes(const char *type)
{
    for (int t = 0; t < 64; t++) {
        const char *name = twill_type_name((twill_type)t);
        if (name != NULL && strcmp(name, type) == 0)
            return twill_type_size((twill_type)t);
    }
    return 1;
}

/* Return the JSON array [[n]], as PyTorch writes the size of one tensor. n is the number of
 * elements, the bytes of an event over those of its type. The caller owns it. */
static struct json_object *event_sizes(const struct twill_info_line *event)
{
    struct json_object *all = json_object_new_array(), *one = json_object_new_array();
    long long elements = strtoll(event->field[EVENT_BYTES], NULL, 10) /
                         (long long)element_bytes(event->field[EVENT_TYPE]);
    json_object_array_add(one, json_object_new_int64(elements));
    json_object_array_add(all, one);
    return all;
}

/* Return the JSON array [type], with PyTorch's name of the type. The caller owns it. */
static struct json_object *event_types(const struct twill_info_line *event)
{
    struct json_object *all = json_object_new_array();
    json_object_array_add(all, json_object_new_string(translate_name(event->field[EVENT_TYPE])));
    return all;
}

static void add_integer(struct json_object *object, const char *name, long long value)
{
    json_object_object_add(object, name, json_object_new_int64(value));
}

/* Return how many ns ago the call ended that `begin`, line `index`, began, or -1 if it has not. */
static long long find_end(const twill_job_view *view, size_t index,
                          const struct twill_info_line *begin)
{
    struct twill_info_line line;
    for (size_t i = index + 1; twill_info_cut(twill_job_view_line(view, i), &line); i++)
        if (is_line(&line, "event", begin->field[LINE_RANK]) &&
            strcmp(line.field[EVENT_COMM], begin->field[EVENT_COMM]) == 0 &&
            strcmp(line.field[EVENT_KIND], "call_end") == 0 &&
            strcmp(line.field[EVENT_SEQUENCE], begin->field[EVENT_SEQUENCE]) == 0)
            return strtoll(line.field[EVENT_AGO], NULL, 10);
    return -1;
}

/* Return the JSON entry of the call that `event`, line `index`, began. Lines have times as ns ago.
 * The entry has them as ns since 1970, by the present time, `now`. The caller owns it. */
static struct json_object *make_entry(const twill_job_view *view, size_t index,
                                      const struct twill_info_line *event, long long now)
{
    struct json_object *entry = json_object_new_object(), *group = json_object_new_array();
    char name[64];
    long long began = now - strtoll(event->field[EVENT_AGO], NULL, 10);
    long long ago = find_end(view, index, event);
    snprintf(name, sizeof(name), "nccl:%s", translate_name(event->field[EVENT_COLLECTIVE]));
    json_object_array_add(group, json_object_new_string(event->field[EVENT_COMM]));
    json_object_array_add(group, json_object_new_string("twill"));
    add_integer(entry, "record_id", strtoll(event->field[EVENT_NUMBER], NULL, 10));
    add_integer(entry, "pg_id", strtoll(event->field[EVENT_COMM], NULL, 10));
    json_object_object_add(entry, "process_group", group);
    add_integer(entry, "collective_seq_id", strtoll(event->field[EVENT_SEQUENCE], NULL, 10));
    add_integer(entry, "p2p_seq_id", 0);
    add_integer(entry, "op_id", strtoll(event->field[EVENT_SEQUENCE], NULL, 10));
    json_object_object_add(entry, "profiling_name", json_object_new_string(name));
    add_integer(entry, "time_created_ns", began);
    json_object_object_add(entry, "input_sizes", event_sizes(event));
    json_object_object_add(entry, "input_dtypes", event_types(event));
    json_object_object_add(entry, "output_sizes", event_sizes(event));
    json_object_object_add(entry, "output_dtypes", event_types(event));
    json_object_object_add(entry, "state",
                           json_object_new_string(ago >= 0 ? "completed" : "started"));
    add_integer(entry, "time_discovered_started_ns", began);
    json_object_object_add(entry, "time_discovered_completed_ns",
                           ago >= 0 ? json_object_new_int64(now - ago) : NULL);
    if (ago >= 0)
        json_object_object_add(entry, "duration_ms",
                               json_object_new_double((double)(now - ago - began) * 1e-6));
    json_object_object_add(entry, "retired", json_object_new_boolean(ago >= 0));
    add_integer(entry, "timeout_ms", 0);
    json_object_object_add(entry, "is_p2p", json_object_new_boolean(0));
    return entry;
}

/* Add two members to the object `root`. "pg_config" has the communicators of a rank and the ranks
 * of each, and "pg_status" the number of this rank's last call on each. */
static void add_groups(const twill_job_view *view, const char *rank, struct json_object *root)
{
    struct json_object *config = json_object_new_object(), *status = json_object_new_object();
    struct twill_info_line call, other;
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), &call); i++) {
        if (!is_line(&call, "call", rank))
            continue;
        char ranks[1024] = "[";
        for (size_t k = 0; twill_info_cut(twill_job_view_line(view, k), &other); k++) {
            size_t used = strlen(ranks);
            if (twill_info_is(&other, "call") &&
                strcmp(other.field[CALL_COMM], call.field[CALL_COMM]) == 0)
                snprintf(ranks + used, sizeof(ranks) - used, "%s%s", used > 1 ? ", " : "",
                         other.field[LINE_RANK]);
        }
        size_t used = strlen(ranks);
        snprintf(ranks + used, sizeof(ranks) - used, "]");
        struct json_object *group = json_object_new_object(), *state = json_object_new_object();
        json_object_object_add(group, "name", json_object_new_string(call.field[CALL_COMM]));
        json_object_object_add(group, "desc", json_object_new_string("twill"));
        json_object_object_add(group, "ranks", json_object_new_string(ranks));
        json_object_object_add(config, call.field[CALL_COMM], group);
        long long last = strtoll(call.field[CALL_SEQUENCE], NULL, 10);
        add_integer(state, "last_enqueued_collective", last);
        add_integer(state, "last_started_collective", last);
        add_integer(state, "last_completed_collective",
                    strcmp(call.field[CALL_STATE], "in") == 0 ? last - 1 : last);
        json_object_object_add(status, call.field[CALL_COMM], state);
    }
    json_object_object_add(root, "pg_config", config);
    json_object_object_add(root, "pg_status", status);
}

/* Write a rank's communicators and recorded calls to the file named PREFIX and RANK, as JSON in the
 * format of PyTorch's flight recorder. Returns 0, or 1 after a message. */
static int write_rank(const twill_job_view *view, const char *rank, const char *prefix)
{
    struct json_object *root = json_object_new_object(), *entries = json_object_new_array();
    struct twill_info_line line;
    struct timespec clock;
    char path[4096];
    clock_gettime(CLOCK_REALTIME, &clock);
    long long now = (long long)clock.tv_sec * 1000000000 + clock.tv_nsec;
    json_object_object_add(root, "version", json_object_new_string("2.9"));
    add_groups(view, rank, root);
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), &line); i++)
        if (is_line(&line, "event", rank) && strcmp(line.field[EVENT_KIND], "call_begin") == 0)
            json_object_array_add(entries, make_entry(view, i, &line, now));
    json_object_object_add(root, "entries", entries);
    snprintf(path, sizeof(path), "%s%s", prefix, rank);
    int result = json_object_to_file_ext(path, root, JSON_C_TO_STRING_PRETTY);
    if (result != 0)
        fprintf(stderr, "twill-info: --flight-recorder: %s: %s\n", path, strerror(errno));
    json_object_put(root);
    return result == 0 ? 0 : 1;
}

int twill_job_record(const twill_job_view *view, const char *prefix)
{
    struct twill_info_line line;
    int result = 0;
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), &line) && result == 0; i++)
        if (twill_info_is(&line, "rank"))
            result = write_rank(view, line.field[LINE_RANK], prefix);
    return result;
}
