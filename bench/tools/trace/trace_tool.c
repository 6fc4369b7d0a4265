/* SPDX-License-Identifier: Apache-2.0 */
/* twill-trace: merges the timelines of ranks (TWILL_TIMELINE), and says where the time went. */
#include "bench/tools/trace/trace_tool.h"
#include "bench/common/exit_status.h"
#include "bench/common/report.h"
#include "lib/twill.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "Usage: twill-trace [options] FILE...\n"
    "Read the timelines of a job's ranks (TWILL_TIMELINE), and say where the time\n"
    "went: shares, the calls in which ranks waited longest for the last one, and\n"
    "which ranks that were.\n"
    "\n"
    "  -o, --output FILE  also write all timelines as one, for ui.perfetto.dev or\n"
    "                     chrome://tracing; overwrites only what twill-trace has\n"
    "                     written\n"
    "  -n, --top N        lines of each list (10)\n"
    "      --json         print as JSON\n"
    "  -h, --help  -V, --version\n"
    "\n"
    "Exit status: 0 success, 1 a file cannot be read or written, 2 a wrong command\n"
    "line.\n";

struct trace_request {
    const char *output;
    size_t most;
    bool json;
};

/* Returns -1 to go on, or the exit status. */
static int parse_trace(struct trace_request *request, int argc, char **argv)
{
    static const struct option options[] = {
        {"output", required_argument, NULL, 'o'}, {"top", required_argument, NULL, 'n'},
        {"json", no_argument, NULL, 'j'},         {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},      {NULL, 0, NULL, 0},
    };
    int letter;
    while ((letter = getopt_long(argc, argv, "o:n:hV", options, NULL)) != -1) {
        if (letter == 'h') {
            fputs(usage, stdout);
            return STATUS_GOOD;
        }
        if (letter == 'V') {
            printf("twill-trace %s\n", twill_version());
            return STATUS_GOOD;
        }
        if (letter == '?')
            return STATUS_USAGE;
        if (letter == 'n' && !twill_bench_parse_number(optarg, 1, 1000000, &request->most)) {
            fprintf(stderr, "twill-trace: --top: '%s' is not a number from 1 to 1000000\n", optarg);
            return STATUS_USAGE;
        }
        request->json |= letter == 'j';
        if (letter == 'o')
            request->output = optarg;
    }
    if (optind < argc)
        return -1;
    fprintf(stderr, "twill-trace: no FILE: name the timelines that TWILL_TIMELINE has written\n");
    return STATUS_USAGE;
}

/* What a merged file begins with: its first event. A timeline of a rank begins otherwise. */
static const char merged[] = "[\n{\"name\":\"twill_merged\",\"ph\":\"M\",\"pid\":0,\"args\":{}}";

/* May a file be written, because there is none or because it was merged by this program? */
static bool may_write(const char *path)
{
    char start[sizeof(merged)] = "";
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return errno == ENOENT;
    size_t got = fread(start, 1, sizeof(merged) - 1, file);
    fclose(file);
    errno = EEXIST;
    return got == sizeof(merged) - 1 && memcmp(start, merged, got) == 0;
}

/* Open the file that is written in place of the output and renamed when it is whole. */
static FILE *open_part(const char *path, char *part, size_t bytes)
{
    FILE *out = NULL;
    if ((size_t)snprintf(part, bytes, "%s.part", path) >= bytes)
        errno = ENAMETOOLONG;
    else if (may_write(path))
        out = fopen(part, "w");
    if (out != NULL)
        fputs(merged, out);
    else
        fprintf(stderr, "twill-trace: %s: %s\n", path, strerror(errno));
    return out;
}

/* Close the part; rename it if all is good, else remove it. */
static bool close_part(FILE *out, const char *path, const char *part, bool good)
{
    fputs("\n]\n", out);
    bool written = ferror(out) == 0;
    if (fclose(out) != 0)
        written = false;
    if (good && written && rename(part, path) == 0)
        return true;
    if (good)
        fprintf(stderr, "twill-trace: %s: %s\n", path, strerror(errno));
    remove(part);
    return false;
}

/* Read all files, and write them as one if that is asked for. Returns whether all is well. */
static bool read_timelines(struct trace_job *job, const struct trace_request *request, int count,
                           char **paths)
{
    char part[PATH_MAX];
    FILE *out = NULL;
    if (request->output != NULL && (out = open_part(request->output, part, sizeof(part))) == NULL)
        return false;
    bool good = true;
    for (int i = 0; i < count; i++)
        good = trace_read(job, paths[i], out) && good;
    return out != NULL ? close_part(out, request->output, part, good) : good;
}

int main(int argc, char **argv)
{
    struct trace_request request = {.most = 10};
    struct trace_job job = {0};
    int mistake = parse_trace(&request, argc, argv);
    if (mistake >= 0)
        return mistake;
    bool good = read_timelines(&job, &request, argc - optind, argv + optind);
    if (good && request.json)
        trace_print_json(&job, request.most);
    else if (good)
        trace_print(&job, request.most);
    trace_free(&job);
    return good ? STATUS_GOOD : STATUS_FAILED;
}
