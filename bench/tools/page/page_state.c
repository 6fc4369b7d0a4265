/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a job, here or through twillrun, and finds which ranks are late. */
#include "bench/common/job_json.h"
#include "bench/common/report.h"
#include "bench/tools/page/page.h"

#include <errno.h>
#include <json-c/json.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LAST_EVENTS   64   /* of a rank */
#define LAST_MESSAGES 100  /* of twillrun */
#define LATE_SECONDS  0.25 /* a rank is late if others have been in a call for so long */
#define FRESH_SECONDS 0.2  /* what was read is shown again for so long */
#define ANSWER_MS     300  /* hosts that need longer appear as they were */
#define LOST_SECONDS  2    /* a host that has not answered for so long is asked again */

static void put_text(struct json_object *object, const char *name, const char *text)
{
    json_object_object_add(object, name, json_object_new_string(text));
}

static int64_t get_number(struct json_object *object, const char *name)
{
    return json_object_get_int64(json_object_object_get(object, name));
}

static double unix_seconds(void)
{
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    return (double)clock.tv_sec + (double)clock.tv_nsec * 1e-9;
}

/* Return the bytes of memory that a process has resident, or 0 if that is unknown. */
static int64_t resident_bytes(int64_t pid)
{
    char path[64];
    long long pages = 0;
    snprintf(path, sizeof(path), "/proc/%lld/statm", (long long)pid);
    FILE *file = pid > 0 ? fopen(path, "re") : NULL;
    if (file == NULL || fscanf(file, "%*d %lld", &pages) != 1)
        pages = 0;
    if (file != NULL)
        fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Add the memory of this host to the object, in bytes. */
static void add_memory(struct json_object *host)
{
    static const char *const names[][2] = {{"MemTotal:", "memory"}, {"MemAvailable:", "available"}};
    char line[128];
    long long kib;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        for (int i = 0; i < 2; i++)
            if (strncmp(line, names[i][0], strlen(names[i][0])) == 0 &&
                sscanf(line, "%*s %lld", &kib) == 1)
                json_object_object_add(host, names[i][1], json_object_new_int64(kib * 1024));
    if (file != NULL)
        fclose(file);
}

/* Return what the job does on this host, with the last events of a rank, or of none if it is below
 * 0. If the job is not there, the object has only the reason. */
static struct json_object *read_host(const char *job, int rank)
{
    char message[512];
    twill_job_view *view;
    if (twill_job_view_open(&view, job, rank < 0 ? 0 : LAST_EVENTS, message, sizeof(message)) !=
        TWILL_OK) {
        struct json_object *none = json_object_new_object();
        put_text(none, "error", message);
        return none;
    }
    struct json_object *host = twill_job_json(view);
    struct json_object *ranks = json_object_object_get(host, "ranks");
    struct json_object *events = json_object_new_array();
    struct json_object *all = json_object_object_get(host, "events");
    twill_job_view_close(view);
    for (size_t i = 0; i < json_object_array_length(ranks); i++) {
        struct json_object *one = json_object_array_get_idx(ranks, i);
        int64_t bytes = resident_bytes(get_number(one, "pid"));
        json_object_object_add(one, "memory", json_object_new_int64(bytes));
    }
    for (size_t i = 0; i < json_object_array_length(all); i++) {
        struct json_object *event = json_object_array_get_idx(all, i);
        if (get_number(event, "rank") == rank)
            json_object_array_add(events, json_object_get(event));
    }
    json_object_object_add(host, "events", events);
    add_memory(host);
    return host;
}

/* Put what was read of a host, which becomes the state's, in the place of what was there. If the
 * job could not be read, only add why to that. */
static void put_host(struct page_state *state, size_t index, struct json_object *host)
{
    struct json_object *before = json_object_array_get_idx(state->hosts, index), *why;
    if (json_object_object_get_ex(host, "error", &why)) {
        json_object_object_add(before, "error", json_object_get(why));
        json_object_put(host);
        return;
    }
    json_object_object_add(host, "host", json_object_get(json_object_object_get(before, "host")));
    json_object_object_add(host, "time", json_object_new_double(unix_seconds()));
    json_object_array_put_idx(state->hosts, index, host);
}

void page_state_open(struct page_state *state, const char *job, const char *hosts, bool linked)
{
    char here[256] = "", *rest = NULL, *names = hosts != NULL ? strdup(hosts) : NULL;
    *state = (struct page_state){.job = job, .linked = linked};
    (void)gethostname(here, sizeof(here) - 1);
    state->hosts = json_object_new_array();
    state->messages = json_object_new_array();
    for (char *name = names != NULL ? strtok_r(names, ",", &rest) : here; name != NULL;
         name = names != NULL ? strtok_r(NULL, ",", &rest) : NULL) {
        struct json_object *host = json_object_new_object();
        put_text(host, "host", name);
        put_text(host, "error", "no answer yet");
        json_object_array_add(state->hosts, host);
    }
    free(names);
}

/* Handle one line of twillrun, of `length` characters. */
static void handle_line(struct page_state *state, char *line, size_t length)
{
    char *end = line;
    size_t index = 0;
    if (strncmp(line, "say ", 4) == 0) {
        struct json_object *message = json_object_new_object();
        json_object_object_add(message, "time", json_object_new_double(unix_seconds()));
        json_object_object_add(message, "text",
                               json_object_new_string_len(line + 4, (int)(length - 4)));
        json_object_array_add(state->messages, message);
        if (json_object_array_length(state->messages) > LAST_MESSAGES)
            json_object_array_del_idx(state->messages, 0, 1);
    } else if (strncmp(line, "host ", 5) == 0) {
        index = strtoul(line + 5, &end, 10);
        struct json_object *host = json_tokener_parse(end);
        if (index < json_object_array_length(state->hosts) &&
            json_object_is_type(host, json_type_object))
            put_host(state, index, host);
        else
            json_object_put(host);
        state->awaited -= state->awaited > 0;
    }
}

bool page_state_receive(struct page_state *state)
{
    if (state->capacity - state->used < 65536) {
        char *more = realloc(state->text, state->capacity * 2 + 131072);
        if (more == NULL)
            return false;
        state->text = more;
        state->capacity = state->capacity * 2 + 131072;
    }
    ssize_t got = read(STDIN_FILENO, state->text + state->used, state->capacity - state->used - 1);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    state->used += (size_t)got;
    char *line = state->text, *end;
    while ((end = memchr(line, '\n', state->used - (size_t)(line - state->text))) != NULL) {
        *end = '\0';
        handle_line(state, line, (size_t)(end - line));
        line = end + 1;
    }
    state->used -= (size_t)(line - state->text);
    memmove(state->text, line, state->used);
    return true;
}

/* Wait for answers that are missing, for a limited time. */
static void await_hosts(struct page_state *state)
{
    struct pollfd from = {.fd = STDIN_FILENO, .events = POLLIN};
    double begin = twill_bench_now(), left = ANSWER_MS;
    while (state->awaited > 0 && left > 0 && poll(&from, 1, (int)left) > 0 &&
           page_state_receive(state))
        left = ANSWER_MS - (twill_bench_now() - begin) * 1e3;
}

/* Read the job, or ask the hosts and wait for their answers, unless that was done just now. */
static void refresh(struct page_state *state, int rank)
{
    double now = twill_bench_now();
    if (rank < 0 && now - state->read_at < FRESH_SECONDS)
        return;
    if (state->job != NULL) {
        put_host(state, 0, read_host(state->job, rank));
    } else {
        await_hosts(state);
        if (state->awaited > 0 && now - state->read_at < LOST_SECONDS)
            return;
        state->awaited = (unsigned)json_object_array_length(state->hosts);
        dprintf(STDIN_FILENO, "ask %d\n", rank);
        await_hosts(state);
    }
    state->read_at = now;
}

/* Write to `key` which communicator a call is of. One number may be that of several. */
static void name_comm(struct json_object *call, char key[64])
{
    snprintf(key, 64, "%lld.%lld", (long long)get_number(call, "comm"),
             (long long)get_number(call, "comm_root"));
}

/* Set *farthest, an object, to the call of each communicator that has the highest number of those
 * that a rank is in, unless that has failed, or if `late` is not NULL, add to that the ranks that
 * have not begun it. */
static void compare_calls(struct page_state *state, struct json_object *farthest,
                          struct json_object *late)
{
    char key[64];
    for (size_t h = 0; h < json_object_array_length(state->hosts); h++) {
        struct json_object *host = json_object_array_get_idx(state->hosts, h);
        struct json_object *calls = json_object_object_get(host, "calls");
        for (size_t i = 0; calls != NULL && i < json_object_array_length(calls); i++) {
            struct json_object *call = json_object_array_get_idx(calls, i);
            name_comm(call, key);
            struct json_object *most = json_object_object_get(farthest, key);
            int64_t sequence = get_number(call, "sequence");
            const char *in = json_object_get_string(json_object_object_get(call, "state"));
            double seconds = json_object_get_double(json_object_object_get(most, "seconds"));
            bool broken = json_object_object_get(call, "failure") != NULL;
            if (late == NULL && !broken && in != NULL && strcmp(in, "in") == 0 &&
                (most == NULL || sequence > get_number(most, "sequence")))
                json_object_object_add(farthest, key, json_object_get(call));
            if (late == NULL || most == NULL || sequence >= get_number(most, "sequence") ||
                seconds < LATE_SECONDS)
                continue;
            struct json_object *one = json_object_new_object();
            json_object_object_add(one, "rank", json_object_new_int64(get_number(call, "rank")));
            json_object_object_add(one, "comm", json_object_new_int64(get_number(call, "comm")));
            json_object_object_add(one, "seconds", json_object_new_double(seconds));
            put_text(one, "call", json_object_get_string(json_object_object_get(most, "call")));
            json_object_array_add(late, one);
        }
    }
}

const char *page_state_text(struct page_state *state, int rank, struct json_object **made)
{
    struct json_object *root = json_object_new_object();
    *made = root;
    refresh(state, rank);
    json_object_object_add(root, "time", json_object_new_double(unix_seconds()));
    if (rank >= 0) {
        struct json_object *events = NULL;
        for (size_t h = 0; h < json_object_array_length(state->hosts); h++) {
            struct json_object *host = json_object_array_get_idx(state->hosts, h);
            struct json_object *own = json_object_object_get(host, "events");
            if (own != NULL && json_object_array_length(own) > 0)
                events = json_object_get(own);
        }
        json_object_object_add(root, "events", events);
    } else {
        struct json_object *farthest = json_object_new_object(), *late = json_object_new_array();
        compare_calls(state, farthest, NULL);
        compare_calls(state, farthest, late);
        json_object_put(farthest);
        json_object_object_add(root, "late", late);
        json_object_object_add(root, "hosts", json_object_get(state->hosts));
        json_object_object_add(root, "messages", json_object_get(state->messages));
    }
    return json_object_to_json_string_ext(root, JSON_C_TO_STRING_PLAIN);
}

int page_state_read(const char *job)
{
    char line[32];
    while (fgets(line, sizeof(line), stdin) != NULL) {
        struct json_object *host = read_host(job, atoi(line));
        puts(json_object_to_json_string_ext(host, JSON_C_TO_STRING_PLAIN));
        fflush(stdout);
        json_object_put(host);
    }
    return 0;
}
