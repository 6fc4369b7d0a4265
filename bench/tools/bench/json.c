/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON that nccl-tests' -J writes, field by field, with machine, ranks and nodes added. */
#include "bench/tools/bench/bench_run.h"
#include "bench/tools/bench/steps/played_step.h"

#include <errno.h>
#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void put(struct json_object *object, const char *key, struct json_object *value)
{
    json_object_object_add(object, key, value);
}

static struct json_object *string(const char *text)
{
    return json_object_new_string(text);
}

static struct json_object *integer(size_t value)
{
    return json_object_new_uint64(value);
}

static struct json_object *real(double value)
{
    return json_object_new_double(value);
}

/* nccl-tests writes booleans as strings. */
static struct json_object *truth(bool value)
{
    return string(value ? "true" : "false");
}

static struct json_object *time_json(void)
{
    char text[32];
    struct tm local_time;
    time_t seconds = time(NULL);
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &local_time));
    return string(text);
}

/* Return whether a variable's value is a secret. The path of a key file is not. */
static bool is_secret(const char *entry, size_t name)
{
    static const char *const words[] = {"KEY", "SECRET", "TOKEN", "PASS", "UUID"};
    bool secret = name == 9 && strncmp(entry, "TWILL_JOB", name) == 0;
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]) && !secret; i++) {
        const char *found = strstr(entry, words[i]);
        secret = found != NULL && (size_t)(found - entry) < name;
    }
    return secret && !(name > 5 && strncmp(entry + name - 5, "_FILE", 5) == 0);
}

/* Write only the variables that control a run: anybody may read the file. */
static struct json_object *environment(void)
{
    static const char *const prefixes[] = {"TWILL_", "FI_", "OMP_", "MEMKIND_", "HWLOC_"};
    struct json_object *list = json_object_new_array();
    char masked[128];
    for (char **entry = environ; *entry != NULL; entry++) {
        size_t name = strcspn(*entry, "=");
        snprintf(masked, sizeof(masked), "%.*s=(a key)", (int)name, *entry);
        for (size_t i = 0; i < sizeof(prefixes) / sizeof(prefixes[0]); i++)
            if (strncmp(*entry, prefixes[i], strlen(prefixes[i])) == 0)
                json_object_array_add(list, string(is_secret(*entry, name) ? masked : *entry));
    }
    return list;
}

static struct json_object *run_machine_json(struct twill_bench_run *run)
{
    struct json_object *object = json_object_new_object();
    struct utsname names;
    if (uname(&names) == 0) {
        put(object, "hostname", string(names.nodename));
        put(object, "kernel", string(names.release));
        put(object, "architecture", string(names.machine));
    }
    put(object, "processors", integer((size_t)sysconf(_SC_NPROCESSORS_ONLN)));
    struct json_object *lines = json_object_new_array();
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(run->context, i)) != NULL; i++)
        json_object_array_add(lines, string(line));
    put(object, "description", lines);
    return object;
}

static struct json_object *devices(const struct twill_bench_run *run)
{
    struct json_object *list = json_object_new_array();
    for (int rank = 0; rank < run->world_size; rank++) {
        const struct twill_bench_place *place = &run->places[rank];
        struct json_object *one = json_object_new_object();
        put(one, "rank", json_object_new_int(place->rank));
        put(one, "pid", json_object_new_int(place->pid));
        put(one, "hostname", string(place->host));
        put(one, "node", json_object_new_int(place->node));
        put(one, "local_rank", json_object_new_int(place->local_rank));
        json_object_array_add(list, one);
    }
    return list;
}

static void put_sizes(struct json_object *object, const struct twill_bench_run *run)
{
    const struct twill_bench_options *options = &run->options;
    if (options->list != NULL) {
        put(object, "list", string(options->list));
        put(object, "keys", integer(run->list.keys));
        if (options->measures.overlap) {
            put(object, "batch", integer(options->played.batch));
            put(object, "gflops", integer(options->played.gflops));
            put(object, "computes", string(options->played.device ? "device" : "core"));
            put(object, "tests", truth(options->measures.tests));
            put(object, "order", string(options->played.priority ? "priority" : "backward"));
        }
        return;
    }
    put(object, "minimum_bytes", integer(options->sizes.min_bytes));
    put(object, "maximum_bytes", integer(options->sizes.max_bytes));
    if (options->sizes.step_factor > 1)
        put(object, "step_factor", integer(options->sizes.step_factor));
    else
        put(object, "step_bytes", integer(options->sizes.step_bytes));
}

static struct json_object *config(const struct twill_bench_run *run)
{
    const struct twill_bench_options *options = &run->options;
    struct json_object *object = json_object_new_object();
    put(object, "collective", string(twill_bench_facts(options->collective)->name));
    put_sizes(object, run);
    put(object, "warmup_iters", integer(options->repeats.warmups));
    put(object, "iterations", integer(options->repeats.iterations));
    put(object, "aggregated_iterations", integer(options->repeats.aggregate));
    put(object, "validation", integer(options->repeats.checks));
    put(object, "average", integer(options->report.average));
    put(object, "unalign", integer(options->calls.unalign));
    put(object, "blocking_collectives", truth(options->calls.blocking));
    put(object, "memory", string(options->calls.placed ? "twill" : "malloc"));
    if (options->measures.energy)
        put(object, "energy", run->meters.own == NULL ? NULL : string(run->meters.says));
    put(object, "devices", devices(run));
    return object;
}

/* As nccl-tests: never overwrite; try FILE, FILE.0, FILE.1, ... */
static FILE *create_file(const char *path, char *taken, size_t bytes)
{
    snprintf(taken, bytes, "%s", path);
    FILE *file = fopen(taken, "wx");
    for (int i = 0; file == NULL && errno == EEXIST && i < 10000; i++) {
        snprintf(taken, bytes, "%s.%d", path, i);
        file = fopen(taken, "wx");
    }
    return file;
}

bool twill_bench_json_open(struct twill_bench_run *run, int argc, char **argv)
{
    char path[4096];
    run->results.json_file = create_file(run->options.report.output, path, sizeof(path));
    if (run->results.json_file == NULL) {
        fprintf(stderr, "twill-bench: -J/--output_file: %s: %s\n", path, strerror(errno));
        return false;
    }
    printf("# Writing JSON output to %s\n", path);
    struct json_object *args = json_object_new_array();
    for (int i = 0; i < argc; i++)
        json_object_array_add(args, string(argv[i]));
    run->results.json = json_object_new_object();
    put(run->results.json, "version", json_object_new_int(1));
    put(run->results.json, "start_time", time_json());
    put(run->results.json, "args", args);
    put(run->results.json, "env", environment());
    put(run->results.json, "twill_version", string(twill_version()));
    put(run->results.json, "ranks", json_object_new_int(run->world_size));
    put(run->results.json, "nodes", json_object_new_int(twill_comm_nodes(run->world)));
    put(run->results.json, "machine", run_machine_json(run));
    put(run->results.json, "config", config(run));
    put(run->results.json, "results", json_object_new_array());
    return true;
}

/* Return joules, or null below 0. */
static struct json_object *joules_json(double joules)
{
    return joules < 0 ? NULL : real(joules);
}

static struct json_object *energy_json(const struct twill_bench_energy *energy)
{
    if (!energy->known)
        return NULL;
    struct twill_bench_shares shares = twill_bench_shares(energy);
    struct json_object *object = json_object_new_object();
    put(object, "seconds", real(energy->seconds));
    put(object, "joules", real(energy->joules));
    put(object, "watts", real(energy->watts));
    put(object, "node_joules", real(shares.machine_joules));
    put(object, "node_watts", real(shares.machine_watts));
    put(object, "rank_joules", real(shares.rank_joules));
    put(object, "rank_watts", real(shares.rank_watts));
    put(object, "cpu_joules", joules_json(energy->cpu));
    put(object, "memory_joules", joules_json(energy->memory));
    return object;
}

static struct json_object *half(const struct twill_bench_timing *timing, bool each)
{
    if (timing->missing)
        return NULL;
    struct json_object *object = json_object_new_object();
    put(object, "time", real(timing->seconds * 1e6));
    put(object, "alg_bw", real(timing->algorithm_bandwidth));
    put(object, "bus_bw", real(timing->bus_bandwidth));
    put(object, "nwrong", timing->wrong < 0 ? NULL : json_object_new_int64(timing->wrong));
    put(object, "first_time", real(timing->first * 1e6));
    if (each) {
        put(object, "i_min", real(timing->each.min * 1e6));
        put(object, "i_max", real(timing->each.max * 1e6));
        put(object, "i_mean", real(timing->each.mean * 1e6));
        put(object, "i_median", real(timing->each.median * 1e6));
        put(object, "i_p99", real(timing->each.p99 * 1e6));
        put(object, "i_cv", real(timing->each.cv));
    }
    if (timing->waiting + timing->wire > 0) {
        put(object, "wait", real(timing->waiting * 1e6));
        put(object, "wire", real(timing->wire * 1e6));
        put(object, "stack", real(twill_bench_stack(timing) * 1e6));
    }
    if (timing->reproducible > 0)
        put(object, "reproducible_time", real(timing->reproducible * 1e6));
    if (timing->narrow > 0) {
        put(object, "narrow_time", real(timing->narrow * 1e6));
        put(object, "narrow_bytes_ratio", real(timing->narrow_bytes));
    }
    if (timing->overall > 0) {
        put(object, "overall", real(timing->overall * 1e6));
        put(object, "compute", real(timing->compute * 1e6));
        put(object, "overlap", real(timing->overlap));
    }
    if (timing->energy.machines > 0)
        put(object, "energy", energy_json(&timing->energy));
    return object;
}

/* Return the fields that describe a row, without results. */
static struct json_object *subject(const struct twill_bench_run *run,
                                   const struct twill_bench_row *row)
{
    char root[16];
    snprintf(root, sizeof(root), "%d", row->root);
    struct json_object *object = json_object_new_object();
    put(object, "size", integer(row->bytes));
    put(object, "count", integer(row->count));
    put(object, "type", string(row->type));
    put(object, "redop", string(row->op));
    put(object, "root", string(root));
    put(object, "actual_iterations", integer(run->options.repeats.iterations));
    put(object, "experiment_name", string(twill_bench_facts(run->options.collective)->name));
    return object;
}

static void add_result(struct twill_bench_run *run, struct json_object *object)
{
    json_object_array_add(json_object_object_get(run->results.json, "results"), object);
}

void twill_bench_json_row(struct twill_bench_run *run, const struct twill_bench_row *row)
{
    if (run->results.json == NULL)
        return;
    struct json_object *object = subject(run, row);
    put(object, "out_of_place", half(&row->out_of_place, run->options.report.each));
    put(object, "in_place", half(&row->in_place, run->options.report.each));
    add_result(run, object);
}

/* Add one result: the whole step, and its keys in the order of reduction. */
void twill_bench_json_step(struct twill_bench_run *run)
{
    if (run->results.json == NULL)
        return;
    struct json_object *step = subject(run, &run->step[run->list.keys]);
    struct json_object *keys = json_object_new_array();
    put(step, "in_place", half(&run->step[run->list.keys].in_place, run->options.report.each));
    for (size_t key = run->list.keys; key-- > 0;) {
        struct json_object *one = json_object_new_object();
        put(one, "key", integer(key));
        put(one, "size", integer(run->step[key].bytes));
        put(one, "count", integer(run->step[key].count));
        put(one, "in_place", half(&run->step[key].in_place, false));
        json_object_array_add(keys, one);
    }
    put(step, "keys", keys);
    add_result(run, step);
}

void twill_bench_json_played(struct twill_bench_run *run, twill_type type, twill_op op,
                             const struct twill_bench_played *row)
{
    if (run->results.json == NULL)
        return;
    struct twill_bench_subject step =
        twill_bench_subject(run, type, op, -1, (size_t)run->list.total);
    struct twill_bench_row facts = twill_bench_row(&step);
    struct json_object *object = subject(run, &facts);
    put(object, "bucket", row->bucket == SIZE_MAX ? NULL : integer(row->bucket));
    put(object, "buckets", integer(row->buckets));
    put(object, "operations", integer(row->operations));
    put(object, "bytes", integer(row->bytes));
    put(object, "bytes_copied", integer(row->bytes_copied));
    put(object, "compute", real(row->compute * 1e6));
    put(object, "communication", real(row->communication * 1e6));
    put(object, "after", real(row->after * 1e6));
    put(object, "overlapped", real(row->overlapped * 1e6));
    put(object, "by_tensor", real(row->by_tensor * 1e6));
    put(object, "nwrong", row->wrong < 0 ? NULL : json_object_new_int64(row->wrong));
    add_result(run, object);
}

bool twill_bench_json_close(struct twill_bench_run *run)
{
    if (run->results.json == NULL)
        return true;
    struct json_object *bounds = json_object_new_object(), *bandwidth = json_object_new_object();
    struct json_object *errors = json_object_new_array();
    put(bounds, "count", integer(run->results.failures));
    put(bounds, "okay", truth(run->results.failures == 0));
    put(bandwidth, "bandwidth",
        real(run->results.measured ? run->results.bandwidth / (double)run->results.measured : 0));
    put(bandwidth, "okay", string("unchecked"));
    if (twill_comm_message(run->comm)[0] != '\0')
        json_object_array_add(errors, string(twill_comm_message(run->comm)));
    put(run->results.json, "out_of_bounds", bounds);
    put(run->results.json, "average_bus_bandwidth", bandwidth);
    put(run->results.json, "errors", errors);
    put(run->results.json, "end_time", time_json());
    const char *text = json_object_to_json_string_ext(run->results.json, JSON_C_TO_STRING_PRETTY);
    bool good =
        fputs(text, run->results.json_file) >= 0 && fputc('\n', run->results.json_file) != EOF;
    good = fclose(run->results.json_file) == 0 && good;
    json_object_put(run->results.json);
    run->results.json = NULL;
    if (!good)
        fprintf(stderr, "twill-bench: -J/--output_file: %s: %s\n", run->options.report.output,
                strerror(errno));
    return good;
}
