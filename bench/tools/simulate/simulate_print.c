/* SPDX-License-Identifier: Apache-2.0 */
/* What twill-simulate prints: each kind of line is a list of named values, as a table, CSV or JSON.
 */
#include "bench/tools/simulate/simulate_tool.h"

#include <json-c/json.h>
#include <math.h>
#include <stdio.h>

#define LINE_VALUES 16

/* A line of output. A value that is NAN is left out: "-", nothing, null. */
struct simulate_line {
    const char *names[LINE_VALUES];
    double values[LINE_VALUES];
    int count;
    char mode[48];
};

struct simulate_output {
    bool csv;
    size_t lines;
    struct json_object *array; /* --json */
};

static void add_value(struct simulate_line *line, const char *name, double value)
{
    line->names[line->count] = name;
    line->values[line->count++] = value;
}

static void begin_line(struct simulate_line *line, const struct simulate_row *row)
{
    *line = (struct simulate_line){0};
    const char *name = simulation_mode_name(row->setup.choice.mode);
    struct simulation_choice ignored;
    const char *wrong;
    if (simulation_parse_choice(&ignored, name, &wrong))
        snprintf(line->mode, sizeof(line->mode), "%s", name);
    else /* it has a parameter */
        snprintf(line->mode, sizeof(line->mode), "%s:%u", name, row->setup.choice.parameter);
    add_value(line, "workers", row->setup.workers);
}

static void print_json_line(struct simulate_output *output, const struct simulate_line *line)
{
    struct json_object *object = json_object_new_object();
    json_object_object_add(object, "mode", json_object_new_string(line->mode));
    for (int i = 0; i < line->count; i++)
        json_object_object_add(object, line->names[i],
                               isfinite(line->values[i]) ? json_object_new_double(line->values[i])
                                                         : NULL);
    json_object_array_add(output->array, object);
}

static void print_line(struct simulate_output *output, const struct simulate_line *line)
{
    bool text = !output->csv;
    if (output->array != NULL) {
        print_json_line(output, line);
        return;
    }
    if (output->lines++ == 0) {
        printf(text ? "%-16s" : "%s", "mode");
        for (int i = 0; i < line->count; i++)
            printf(text ? " %11s" : ",%s", line->names[i]);
        printf("\n");
    }
    printf(text ? "%-16s" : "%s", line->mode);
    for (int i = 0; i < line->count; i++) {
        if (!isfinite(line->values[i]))
            printf(text ? " %11s" : ",%s", text ? "-" : "");
        else
            printf(text ? " %11.5g" : ",%.9g", line->values[i]);
    }
    printf("\n");
}

/* Return which part of the gradients was staler than twice n, the mean that n-softsync has. */
static double very_stale(const struct simulate_row *row)
{
    const struct simulation_result *result = &row->result;
    double mean = result->staleness_sum / (double)result->used;
    double n = row->setup.choice.mode == SIMULATION_SOFTSYNC ? row->setup.choice.parameter : mean;
    uint64_t above = 0;
    for (int i = 0; i < SIMULATION_STALENESS; i++)
        above += i > ceil(2 * n) ? result->staleness[i] : 0;
    return (double)above / (double)result->used;
}

static void print_table_line(struct simulate_output *output, const struct simulate_row *row)
{
    const struct simulation_result *result = &row->result;
    bool learns = row->setup.problem.dimensions > 0;
    bool grouped = row->setup.choice.mode == SIMULATION_GROUPS;
    double members = grouped ? row->setup.workers / row->setup.choice.parameter : 1;
    double updates = (double)result->updates, used = (double)result->used;
    double shards = row->setup.shards > 1 && result->updates > 0 ? row->setup.shards : 1;
    double time = result->updates > 0 ? result->elapsed / updates : NAN;
    struct simulate_line line;
    begin_line(&line, row);
    add_value(&line, "update_s", time);
    add_value(&line, "exact_s", row->expected);
    add_value(&line, "off_%", 100 * (time / row->expected - 1));
    add_value(&line, "gradients/s", used * members / shards / result->elapsed);
    add_value(&line, "stale", result->staleness_sum / used);
    add_value(&line, "stale_most", result->used > 0 ? (double)result->largest_staleness : NAN);
    add_value(&line, "above_2n", very_stale(row));
    add_value(&line, "ahead", result->furthest_ahead > 0 ? result->furthest_ahead : NAN);
    add_value(&line, "useful_%", 100 * result->busy / row->setup.workers / result->elapsed);
    add_value(&line, "dropped_%",
              100 * (double)result->dropped / (double)(result->used + result->dropped));
    add_value(&line, "push_s", result->pushes > 0 ? result->push_mean : NAN);
    add_value(&line, "loss", learns && result->diverged == 0 ? result->floor : NAN);
    add_value(&line, "diverged_at", result->diverged > 0 ? (double)result->diverged : NAN);
    print_line(output, &line);
}

static void print_curve(struct simulate_output *output, const struct simulate_row *row)
{
    uint64_t spacing = row->setup.updates / (SIMULATION_POINTS - 1);
    for (int i = 0; i < SIMULATION_POINTS; i++) {
        if (!isfinite(row->result.curve[i].loss))
            break;
        struct simulate_line line;
        begin_line(&line, row);
        add_value(&line, "updates", (double)spacing * i);
        add_value(&line, "time_s", row->result.curve[i].time);
        add_value(&line, "loss", row->result.curve[i].loss);
        print_line(output, &line);
    }
}

static void print_histogram(struct simulate_output *output, const struct simulate_row *row)
{
    for (int i = 0; i < SIMULATION_STALENESS; i++) {
        if (row->result.staleness[i] == 0)
            continue;
        struct simulate_line line;
        begin_line(&line, row);
        add_value(&line, "staleness", i);
        add_value(&line, "gradients", (double)row->result.staleness[i]);
        add_value(&line, "part", (double)row->result.staleness[i] / (double)row->result.used);
        print_line(output, &line);
    }
}

void simulate_print(const struct simulate_request *request, const struct simulate_row *rows,
                    size_t count)
{
    struct simulate_output output = {.csv = request->csv};
    if (request->json)
        output.array = json_object_new_array();
    for (size_t i = 0; i < count; i++) {
        if (request->curve)
            print_curve(&output, &rows[i]);
        else if (request->histogram)
            print_histogram(&output, &rows[i]);
        else
            print_table_line(&output, &rows[i]);
    }
    if (output.array != NULL)
        puts(json_object_to_json_string_ext(output.array, JSON_C_TO_STRING_PRETTY));
    json_object_put(output.array);
}
