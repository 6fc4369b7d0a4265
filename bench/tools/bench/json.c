/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON that -J of nccl-tests writes, field by field, and machine, ranks and nodes. */
#include "bench/common/json_file.h"
#include "bench/tools/bench/bench_run.h"
#include "bench/tools/bench/steps/played_step.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

/* Add a member to an object, which then owns `value`. NULL is added as null. */
static void put(struct json_object *object, const char *key, struct json_object *value)
{
    json_object_object_add(object, key, value);
}

/* Return a text, which must not be NULL, as a JSON string. The caller owns it. */
static struct json_object *string(const char *text)
{
    return json_object_new_string(text);
}

/* Return "true" or "false" as a text, as nccl-tests writes booleans. */
static struct json_object *truth(bool value)
{
    return string(value ? "true" : "false");
}

/* Return the local time as a text. */
static struct json_object *time_json(void)
{
    char text[32];
    struct tm local_time;
    time_t seconds = time(NULL);
    strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", localtime_r(&seconds, &local_time));
    return string(text);
}

/* Return whether the value of NAME=VALUE is a secret, by the `name` bytes of its name. */
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

/* Return a JSON array of the environment variables that control a run, as "NAME=VALUE". For a
 * secret, such as TWILL_JOB or a password, the value is "(a key)". */
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

/* Return an object that describes this machine, also in the words of the library. */
static struct json_object *run_machine_json(struct twill_bench_run *run)
{
    struct json_object *object = json_object_new_object();
    struct utsname names;
    if (uname(&names) == 0) {
        twill_json_text(object, "hostname", names.nodename);
        twill_json_text(object, "kernel", names.release);
        twill_json_text(object, "architecture", names.machine);
    }
    twill_json_count(object, "processors", (size_t)sysconf(_SC_NPROCESSORS_ONLN));
    struct json_object *lines = json_object_new_array();
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(run->context, i)) != NULL; i++)
        json_object_array_add(lines, string(line));
    put(object, "description", lines);
    return object;
}

/* Return an array of all ranks and where they run. */
static struct json_object *devices(const struct twill_bench_run *run)
{
    struct json_object *list = json_object_new_array();
    for (int rank = 0; rank < run->world_size; rank++) {
        const struct twill_bench_place *place = &run->places[rank];
        struct json_object *one = json_object_new_object();
        put(one, "rank", json_object_new_int(place->rank));
        put(one, "pid", json_object_new_int(place->pid));
        twill_json_text(one, "hostname", place->host);
        put(one, "node", json_object_new_int(place->node));
        put(one, "local_rank", json_object_new_int(place->local_rank));
        json_object_array_add(list, one);
    }
    return list;
}

/* Add to an object what is measured, the list with the options of its played step, or the range of
 * sizes. */
static void put_sizes(struct json_object *object, const struct twill_bench_run *run)
{
    const struct twill_bench_options *options = &run->options;
    if (options->list != NULL) {
        twill_json_text(object, "list", options->list);
        twill_json_count(object, "keys", run->list.keys);
        if (options->measures.overlap) {
            twill_json_count(object, "batch", options->played.batch);
            twill_json_count(object, "gflops", options->played.gflops);
            twill_json_text(object, "computes", options->played.device ? "device" : "core");
            put(object, "tests", truth(options->measures.tests));
            twill_json_text(object, "order", options->played.priority ? "priority" : "backward");
        }
        return;
    }
    twill_json_count(object, "minimum_bytes", options->sizes.min_bytes);
    twill_json_count(object, "maximum_bytes", options->sizes.max_bytes);
    if (options->sizes.step_factor > 1)
        twill_json_count(object, "step_factor", options->sizes.step_factor);
    else
        twill_json_count(object, "step_bytes", options->sizes.step_bytes);
}

/* Return an object with what this run measures, how often, in which memory, and where its ranks
 * are. */
static struct json_object *config(const struct twill_bench_run *run)
{
    const struct twill_bench_options *options = &run->options;
    struct json_object *object = json_object_new_object();
    twill_json_text(object, "collective", twill_bench_facts(options->collective)->name);
    put_sizes(object, run);
    twill_json_count(object, "warmup_iters", options->repeats.warmups);
    twill_json_count(object, "iterations", options->repeats.iterations);
    twill_json_count(object, "aggregated_iterations", options->repeats.aggregate);
    twill_json_count(object, "validation", options->repeats.checks);
    twill_json_count(object, "average", options->report.average);
    twill_json_count(object, "unalign", options->calls.unalign);
    put(object, "blocking_collectives", truth(options->calls.blocking));
    twill_json_text(object, "memory", options->calls.memory);
    if (options->measures.energy)
        put(object, "energy", run->meters.own == NULL ? NULL : string(run->meters.says));
    put(object, "devices", devices(run));
    return object;
}

/* Create and return the first of FILE, FILE.0, ... that is new, named in `taken`, or NULL. */
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
    twill_json_text(run->results.json, "twill_version", twill_version());
    put(run->results.json, "ranks", json_object_new_int(run->world_size));
    put(run->results.json, "nodes", json_object_new_int(twill_comm_nodes(run->world)));
    put(run->results.json, "machine", run_machine_json(run));
    put(run->results.json, "config", config(run));
    put(run->results.json, "results", json_object_new_array());
    return true;
}

/* Return an object with an energy, or NULL if it is unknown. */
static struct json_object *energy_json(const struct twill_bench_energy *energy)
{
    if (!energy->known)
        return NULL;
    struct twill_bench_shares shares = twill_bench_shares(energy);
    struct json_object *object = json_object_new_object();
    twill_json_real(object, "seconds", energy->seconds);
    twill_json_real(object, "joules", energy->joules);
    twill_json_real(object, "watts", energy->watts);
    twill_json_real(object, "node_joules", shares.machine_joules);
    twill_json_real(object, "node_watts", shares.machine_watts);
    twill_json_real(object, "rank_joules", shares.rank_joules);
    twill_json_real(object, "rank_watts", shares.rank_watts);
    twill_json_real(object, "cpu_joules", energy->cpu < 0 ? NAN : energy->cpu);
    twill_json_real(object, "memory_joules", energy->memory < 0 ? NAN : energy->memory);
    return object;
}

/* Return an object with the results of one measurement of a row, out of place or in place. With
 * `each` it also has statistics of single iterations. Returns NULL if there is no such
 * measurement. */
static struct json_object *half(const struct twill_bench_timing *timing, bool each)
{
    if (timing->missing)
        return NULL;
    struct json_object *object = json_object_new_object();
    twill_json_real(object, "time", timing->seconds * 1e6);
    twill_json_real(object, "alg_bw", timing->algorithm_bandwidth);
    twill_json_real(object, "bus_bw", timing->bus_bandwidth);
    put(object, "nwrong", timing->wrong < 0 ? NULL : json_object_new_int64(timing->wrong));
    twill_json_real(object, "first_time", timing->first * 1e6);
    if (each) {
        twill_json_real(object, "i_min", timing->each.min * 1e6);
        twill_json_real(object, "i_max", timing->each.max * 1e6);
        twill_json_real(object, "i_mean", timing->each.mean * 1e6);
        twill_json_real(object, "i_median", timing->each.median * 1e6);
        twill_json_real(object, "i_p99", timing->each.p99 * 1e6);
        twill_json_real(object, "i_cv", timing->each.cv);
    }
    if (timing->waiting + timing->wire > 0) {
        twill_json_real(object, "wait", timing->waiting * 1e6);
        twill_json_real(object, "wire", timing->wire * 1e6);
        twill_json_real(object, "stack", twill_bench_stack(timing) * 1e6);
    }
    if (timing->team > 0) {
        twill_json_real(object, "join_time", timing->joined * 1e6);
        twill_json_real(object, "team_time", timing->team * 1e6);
    }
    if (timing->reproducible > 0)
        twill_json_real(object, "reproducible_time", timing->reproducible * 1e6);
    if (timing->narrow > 0) {
        twill_json_real(object, "narrow_time", timing->narrow * 1e6);
        twill_json_real(object, "narrow_bytes_ratio", timing->narrow_bytes);
    }
    if (timing->overall > 0) {
        twill_json_real(object, "overall", timing->overall * 1e6);
        twill_json_real(object, "compute", timing->compute * 1e6);
        twill_json_real(object, "overlap", timing->overlap);
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
    twill_json_count(object, "size", row->bytes);
    twill_json_count(object, "count", row->count);
    twill_json_text(object, "type", row->type);
    twill_json_text(object, "redop", row->op);
    twill_json_text(object, "root", root);
    twill_json_count(object, "actual_iterations", run->options.repeats.iterations);
    twill_json_text(object, "experiment_name", twill_bench_facts(run->options.collective)->name);
    return object;
}

/* Append an object, which has the results of a row of the table, to "results" of the run's JSON. */
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

void twill_bench_json_step(struct twill_bench_run *run)
{
    if (run->results.json == NULL)
        return;
    struct json_object *step = subject(run, &run->step[run->list.keys]);
    struct json_object *keys = json_object_new_array();
    put(step, "in_place", half(&run->step[run->list.keys].in_place, run->options.report.each));
    for (size_t key = run->list.keys; key-- > 0;) {
        struct json_object *one = json_object_new_object();
        twill_json_count(one, "key", key);
        twill_json_count(one, "size", run->step[key].bytes);
        twill_json_count(one, "count", run->step[key].count);
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
    put(object, "bucket", row->bucket == SIZE_MAX ? NULL : json_object_new_uint64(row->bucket));
    twill_json_count(object, "buckets", row->buckets);
    twill_json_count(object, "operations", row->operations);
    twill_json_count(object, "bytes", row->bytes);
    twill_json_count(object, "bytes_copied", row->bytes_copied);
    twill_json_real(object, "compute", row->compute * 1e6);
    twill_json_real(object, "communication", row->communication * 1e6);
    twill_json_real(object, "after", row->after * 1e6);
    twill_json_real(object, "overlapped", row->overlapped * 1e6);
    twill_json_real(object, "by_tensor", row->by_tensor * 1e6);
    put(object, "nwrong", row->wrong < 0 ? NULL : json_object_new_int64(row->wrong));
    add_result(run, object);
}

bool twill_bench_json_close(struct twill_bench_run *run)
{
    if (run->results.json == NULL)
        return true;
    struct json_object *bounds = json_object_new_object(), *bandwidth = json_object_new_object();
    struct json_object *errors = json_object_new_array();
    twill_json_count(bounds, "count", run->results.failures);
    put(bounds, "okay", truth(run->results.failures == 0));
    twill_json_real(bandwidth, "bandwidth",
                    run->results.measured ? run->results.bandwidth / (double)run->results.measured
                                          : 0);
    twill_json_text(bandwidth, "okay", "unchecked");
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
