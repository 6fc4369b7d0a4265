/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/tools/info/info.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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
    bool suspended = strcmp(call->field[5], "suspended") == 0;
    snprintf(what, sizeof(what), "%s%s",
             in          ? "in "
             : none      ? "no call yet"
             : suspended ? "suspended after "
                         : "left ",
             none ? "" : call->field[15]);
    if (!none)
        snprintf(age, sizeof(age), "%.1f s%s", strtod(call->field[13], NULL), in ? "" : " ago");
    printf("%4s  %7s  %-13s  %4s  %-44s  %10s  %10s  %s\n", call->field[1], rank.field[2],
           rank.field[3], call->field[2], what, call->field[12], age, waits);
    if (strcmp(call->field[16], "-") != 0)
        printf("      failed: %s\n", call->field[16]);
}

/* Print the row of the memory of a rank for a communicator. */
static void print_memory(const struct twill_info_line *memory)
{
    printf("%4s  %4s  %10.0f KiB  %10.0f KiB  %10.0f KiB\n", memory->field[1], memory->field[2],
           strtod(memory->field[3], NULL) / 1024, strtod(memory->field[4], NULL) / 1024,
           strtod(memory->field[5], NULL) / 1024);
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
 * the ranks and their calls, then their memory, then events, then findings. `events` says that
 * events were asked for. If so, a line of column titles precedes the events, even if there are
 * none. */
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
    printf("\n%4s  %4s  %14s  %14s  %14s\n", "rank", "comm", "shared memory", "at most", "private");
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), &line); i++)
        if (twill_info_is(&line, "memory"))
            print_memory(&line);
    if (events)
        printf("\n%4s  %4s  %8s  %14s  %s\n", "rank", "comm", "event", "ago", "last events");
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), &line); i++)
        if (twill_info_is(&line, "event"))
            print_event(&line);
    for (size_t i = 0; twill_info_cut(twill_job_view_line(view, i), &line); i++)
        if (twill_info_is(&line, "finding"))
            printf("%s%s\n", findings++ == 0 ? "\n" : "", line.field[1]);
}

/* Print the view as a JSON object with the job, ranks, calls, memory, links, events and findings.
 */
static void print_json(const twill_job_view *view)
{
    struct json_object *root = twill_job_json(view);
    puts(json_object_to_json_string_ext(root, JSON_C_TO_STRING_PRETTY));
    json_object_put(root);
}

int twill_job_serve(const char *name, const char *serve)
{
    static const char *const folders[] = {TWILL_PAGE_FOLDER, "../libexec/twill"}; /* as built */
    char self[4096], path[5000] = "";
    ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[length > 0 ? length : 0] = '\0';
    char *slash = strrchr(self, '/');
    for (size_t i = 0; slash != NULL && i < sizeof(folders) / sizeof(folders[0]); i++) {
        snprintf(path, sizeof(path), "%.*s/%s/twill-page", (int)(slash - self), self, folders[i]);
        execl(path, path, "--job", name, serve != NULL ? "--serve" : (char *)NULL, serve,
              (char *)NULL);
    }
    fprintf(stderr, "twill-info: --page: %s: %s; it needs a build with libmicrohttpd\n", path,
            strerror(errno));
    return 1;
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
