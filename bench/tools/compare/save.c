/* SPDX-License-Identifier: Apache-2.0 */
/* Write all results of a comparison as JSON or comma-separated values. Times are microseconds. */
#include "bench/tools/compare/compare.h"

#include <errno.h>
#include <json-c/json.h>
#include <string.h>
#include <sys/utsname.h>

static void put(struct json_object *object, const char *key, struct json_object *value)
{
    json_object_object_add(object, key, value);
}

static void put_text(struct json_object *object, const char *key, const char *text)
{
    put(object, key, json_object_new_string(text));
}

static void put_integer(struct json_object *object, const char *key, size_t value)
{
    put(object, key, json_object_new_uint64(value));
}

/* Return a number with 6 digits, or null if it is not positive. */
static struct json_object *real(double value)
{
    char text[32];
    if (!(value > 0))
        return NULL;
    twill_compare_write(text, sizeof(text), "%.6g", value);
    return json_object_new_double_s(value, text);
}

/* Return the rest of the line that begins with `key`: "model name : Intel ...". */
static struct json_object *row_line(const char *path, const char *key)
{
    char line[512];
    struct json_object *found = NULL;
    FILE *file = fopen(path, "r");
    while (file != NULL && found == NULL && fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, key, strlen(key)) == 0) {
            const char *text = line + strlen(key);
            found = json_object_new_string(text + strspn(text, " \t:"));
        }
    }
    if (file != NULL)
        fclose(file);
    return found;
}

static struct json_object *machine_json(const struct twill_compare_run *run)
{
    static const char pages[] = "/sys/kernel/mm/transparent_hugepage/";
    char path[128];
    struct json_object *object = json_object_new_object();
    struct utsname names;
    if (uname(&names) == 0) {
        put_text(object, "kernel", names.release);
        put_text(object, "architecture", names.machine);
    }
    put(object, "processor", row_line("/proc/cpuinfo", "model name"));
    put(object, "memory", row_line("/proc/meminfo", "MemTotal:"));
    put(object, "cores", json_object_new_int(run->cores));
    twill_compare_write(path, sizeof(path), "%senabled", pages);
    put(object, "huge_pages", row_line(path, ""));
    twill_compare_write(path, sizeof(path), "%sshmem_enabled", pages);
    put(object, "shared_huge_pages", row_line(path, ""));
    return object;
}

static struct json_object *strings(char *const *list)
{
    struct json_object *array = json_object_new_array();
    for (; *list != NULL; list++)
        json_object_array_add(array, json_object_new_string(*list));
    return array;
}

static struct json_object *contender_json(const struct twill_compare_run *run, int index)
{
    return index < 0 ? NULL : json_object_new_string(run->contenders[index].name);
}

static struct json_object *contender(const struct twill_compare_run *run,
                                     const struct twill_compare_contender *one)
{
    static const char *const kinds[] = {"bound", "twill", "peer", "trip"};
    struct json_object *object = json_object_new_object();
    put_text(object, "name", one->name);
    put_text(object, "kind", kinds[one->kind]);
    put(object, "below", contender_json(run, one->below));
    put(object, "tuned", json_object_new_boolean(one->tuned));
    put_text(object, "memory", one->memory);
    put_text(object, "library", one->library);
    put(object, "command", strings(one->command));
    put(object, "settings", strings(one->settings));
    put(object, "left_out", one->absent[0] != '\0' ? json_object_new_string(one->absent) : NULL);
    return object;
}

static struct json_object *row_time_json(const struct twill_compare_run *run,
                                         const struct twill_compare_row *row, int index)
{
    const struct twill_compare_cell *cell = &row->cells[index];
    struct json_object *object = json_object_new_object();
    struct json_object *rounds = json_object_new_array();
    put_text(object, "name", run->contenders[index].name);
    put(object, "median", real(cell->median * 1e6));
    put(object, "min", real(cell->min * 1e6));
    put(object, "p99", real(cell->p99 * 1e6));
    put(object, "bus_bandwidth", real(twill_compare_bus_bandwidth(run, row, cell->median)));
    put_integer(object, "batches", cell->n_samples);
    put_integer(object, "calls", cell->calls);
    for (int i = 0; i < cell->n_rounds; i++)
        json_object_array_add(rounds, real(cell->rounds[i] * 1e6));
    put(object, "rounds", rounds);
    put(object, "values_right", json_object_new_boolean(!cell->wrong));
    put(object, "off_wire", json_object_new_boolean(cell->off_wire));
    return object;
}

/* Compare each contender of twill with the best of the others. */
static struct json_object *ratios(const struct twill_compare_run *run,
                                  const struct twill_compare_row *row, int bound, int installed,
                                  int tuned)
{
    struct json_object *object = json_object_new_object();
    for (int i = 0; i < run->n_contenders; i++) {
        double mine = row->cells[i].median;
        if (run->contenders[i].kind != TWILL_COMPARE_TWILL || row->cells[i].n_samples == 0)
            continue;
        struct json_object *one = json_object_new_object();
        const int others[] = {installed, tuned, bound};
        static const char *const keys[] = {"times_installed", "times_tuned", "share_of_bound"};
        for (int k = 0; k < 3; k++)
            put(one, keys[k],
                others[k] < 0 ? NULL
                              : real(twill_compare_ratio(row->cells[others[k]].median, mine)));
        put(one, "times_below", real(twill_compare_over_below(run, row, i)));
        put(object, run->contenders[i].name, one);
    }
    return object;
}

static struct json_object *result(const struct twill_compare_run *run,
                                  const struct twill_compare_row *row)
{
    struct json_object *object = json_object_new_object(), *times = json_object_new_array();
    struct json_object *lines = json_object_new_array();
    int bound = twill_compare_best(run, row, TWILL_COMPARE_BOUND, 0);
    int installed = twill_compare_best(run, row, TWILL_COMPARE_PEER, 0);
    int tuned = twill_compare_best(run, row, TWILL_COMPARE_PEER, 1);
    put_text(object, "collective", twill_compare_name(row->collective));
    put_integer(object, "bytes", row->bytes);
    put(object, "seconds", real(row->seconds));
    put(object, run->options.n_hosts > 0 ? "one_way_ns" : "line_ns", real(row->line * 1e9));
    for (int i = 0; i < row->n_lines; i++)
        json_object_array_add(lines, real(row->lines[i] * 1e9));
    put(object, "line_ns_rounds", lines);
    put(object, "bound", contender_json(run, bound));
    put(object, "best_installed", contender_json(run, installed));
    put(object, "best_tuned", contender_json(run, tuned));
    put(object, "twill", ratios(run, row, bound, installed, tuned));
    for (int i = 0; i < run->n_contenders; i++)
        if (row->cells[i].n_samples > 0)
            json_object_array_add(times, row_time_json(run, row, i));
    put(object, "times", times);
    return object;
}

/* --steps: a contender's result for a model. Times are microseconds. */
static struct json_object *step_json(const struct twill_compare_run *run,
                                     const struct twill_compare_step_result *one)
{
    struct json_object *object = json_object_new_object();
    put_text(object, "list", one->list);
    put_text(object, "name", run->contenders[one->contender].name);
    put_text(object, "reduces", twill_compare_way(run, one));
    put_integer(object, "bytes", one->bytes);
    put(object, "compute", real(one->compute_median * 1e6));
    put(object, "step", real(one->step_median * 1e6));
    put(object, "exposed", json_object_new_double(twill_compare_exposed(one) * 1e6));
    put_integer(object, "samples", one->samples);
    put(object, "values_right", json_object_new_boolean(!one->wrong));
    return object;
}

/* List the hosts in rank order; none for a single host. */
static struct json_object *hosts_json(const struct twill_compare_run *run)
{
    struct json_object *array = json_object_new_array();
    for (int i = 0, rank = 0; i < run->options.n_hosts; rank += run->options.hosts[i++].ranks) {
        struct json_object *object = json_object_new_object();
        put_text(object, "name", run->options.hosts[i].name);
        put(object, "ranks", json_object_new_int(run->options.hosts[i].ranks));
        put_text(object, "calls_itself", run->remote.hellos[rank].host);
        put_text(object, "congestion_control", run->remote.hellos[rank].congestion);
        json_object_array_add(array, object);
    }
    return array;
}

static struct json_object *whole(const struct twill_compare_run *run)
{
    struct json_object *object = json_object_new_object();
    struct json_object *contenders = json_object_new_array(), *results = json_object_new_array();
    put(object, "version", json_object_new_int(1));
    put_text(object, "date", run->date);
    put(object, "machine", machine_json(run));
    put(object, "ranks", json_object_new_int(run->options.ranks));
    put(object, "hosts", hosts_json(run));
    put(object, "bound_to_cores", json_object_new_boolean(run->bind));
    put(object, "rounds", json_object_new_int(run->options.rounds));
    put(object, "seconds", real(run->seconds));
    for (int i = 0; i < run->n_contenders; i++)
        json_object_array_add(contenders, contender(run, &run->contenders[i]));
    for (int i = 0; i < run->n_rows; i++)
        json_object_array_add(results, result(run, &run->rows[i]));
    for (int i = 0; i < run->n_steps; i++)
        if (run->steps[i].samples > 0)
            json_object_array_add(results, step_json(run, &run->steps[i]));
    put(object, "contenders", contenders);
    put(object, "results", results);
    return object;
}

bool twill_compare_save(const struct twill_compare_run *run)
{
    struct json_object *object = whole(run);
    FILE *file = fopen(run->options.paths.json, "w");
    bool good = file != NULL;
    const char *text = json_object_to_json_string_ext(object, JSON_C_TO_STRING_PRETTY);
    good = good && fputs(text, file) >= 0 && fputc('\n', file) != EOF;
    if (file != NULL)
        good = fclose(file) == 0 && good;
    json_object_put(object);
    if (!good)
        fprintf(stderr, "twill-compare: --json: %s: %s\n", run->options.paths.json,
                strerror(errno));
    return good;
}

/* Write a quoted name; quotes in it are doubled. */
static void put_name(FILE *file, const char *name)
{
    fputc('"', file);
    for (; *name != '\0'; name++)
        fputs(*name == '"' ? "\"\"" : (char[]){*name, '\0'}, file);
    fputc('"', file);
}

bool twill_compare_save_csv(const struct twill_compare_run *run)
{
    FILE *file = fopen(run->options.paths.csv, "w");
    bool good = file != NULL;
    if (good)
        fprintf(file, "collective,bytes,contender,ranks,min_us,median_us,p99_us,busbw_gbs,"
                      "values_right\n");
    for (int r = 0; good && r < run->n_rows; r++)
        for (int i = 0; i < run->n_contenders; i++) {
            const struct twill_compare_row *row = &run->rows[r];
            const struct twill_compare_cell *cell = &row->cells[i];
            if (cell->n_samples == 0)
                continue;
            fprintf(file, "%s,%zu,", twill_compare_name(row->collective), row->bytes);
            put_name(file, run->contenders[i].name);
            fprintf(file, ",%d,%.6g,%.6g,%.6g,%.6g,%s\n", run->options.ranks, cell->min * 1e6,
                    cell->median * 1e6, cell->p99 * 1e6,
                    twill_compare_bus_bandwidth(run, row, cell->median),
                    cell->wrong ? "false" : "true");
        }
    good = good && !ferror(file);
    if (file != NULL)
        good = fclose(file) == 0 && good;
    if (!good)
        fprintf(stderr, "twill-compare: --csv: %s: %s\n", run->options.paths.csv, strerror(errno));
    return good;
}
