/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a scaling study as a table, comma-separated values, JSON, and a plot by gnuplot. */
#include "bench/tools/bench/train/study.h"
#include "lib/base/plural.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static const char *const scalings[] = {"weak", "strong"};
static const char *const patterns[] = {"allreduce", "bcast+reduce"};
static const char *const bases[] = {"measured", "predicted"};

enum { STUDY_VALUES = 40 };

/* A value of a row, NAN if unknown. */
struct study_value {
    const char *name;    /* of its column, NULL if it is not in the table */
    const char *key;     /* in JSON, in seconds and bytes, NULL if it is not there */
    double value, scale; /* the table has value * scale */
    int decimals;
};
/* The values of a row, in the order of their columns. */
struct study_values {
    struct study_value value[STUDY_VALUES];
    size_t n;
};

/* Append a value, which is NAN unless it is known. `name` is its column, NULL if it is not in the
 * table, where it is multiplied by `scale`. `key` is its name in JSON, NULL if it is not there. */
static void add_value(struct study_values *values, const char *name, const char *key, bool known,
                      double value, double scale, int decimals)
{
    values->value[values->n++] =
        (struct study_value){name, key, known ? value : NAN, scale, decimals};
}

/* Append a row's times of computing and of a step, its throughput, and its speed-up, efficiency and
 * overhead against one rank. Then come exposed communication, its difference from the overhead,
 * computing over communication, the exposed share and the speed-up without it. Last are the price
 * model's step, communication alone, and a step of one rank. */
static void add_comparison(struct study_values *values, const struct twill_study_row *row)
{
    const struct twill_study_step *step = &row->step;
    double speedup = 0, efficiency = 0, overhead = 0;
    bool known = step->seconds >= 0, several = step->ranks > 1;
    bool related = known && twill_study_speedup(step, &speedup, &efficiency) &&
                   twill_study_overhead(step, &overhead);
    double apart = twill_study_apart(overhead, row->exposed - row->exposed_alone);
    add_value(values, "compute_ms", "compute", true, row->compute, 1e3, 3);
    add_value(values, "step_ms", "step", known, step->seconds, 1e3, 3);
    add_value(values, "samples/s", "throughput", known, twill_study_throughput(step), 1, 1);
    add_value(values, "speed-up", "speedup", related, speedup, 1, 3);
    add_value(values, "efficiency", "efficiency", related, efficiency, 1, 3);
    add_value(values, "overhead_ms", "overhead", related, overhead, 1e3, 3);
    add_value(values, "exposed_ms", "exposed", known, row->exposed, 1e3, 3);
    add_value(values, "apart_%", NULL, related && several && !row->predicted, apart, 1, 1);
    add_value(values, "ratio", "ratio", row->communication > 0 && several,
              row->compute / row->communication, 1, 2);
    add_value(values, "share_%", NULL, known, twill_study_share(row->exposed, step->seconds), 100,
              1);
    add_value(values, "limit", NULL, known, twill_study_limit(row->exposed, step->seconds), 1, 2);
    add_value(values, "model_ms", "model", row->model >= 0, row->model, 1e3, 3);
    add_value(values, NULL, "communication", row->communication >= 0, row->communication, 1, 0);
    add_value(values, NULL, "alone", step->alone >= 0, step->alone, 1, 0);
    add_value(values, NULL, "exposed_alone", step->alone >= 0, row->exposed_alone, 1, 0);
}

/* Add joules and watts of a node and of a rank, by phase. */
static void add_energy(struct study_values *values, const struct twill_study_row *row)
{
    static const char *const names[TWILL_STUDY_PHASES][4] = {
        {"J/node", "W/node", "J/rank", "W/rank"},
        {"compute_J/node", "compute_W/node", "compute_J/rank", "compute_W/rank"},
        {"exchange_J/node", "exchange_W/node", "exchange_J/rank", "exchange_W/rank"}};
    for (int phase = 0; phase < TWILL_STUDY_PHASES; phase++) {
        const struct twill_bench_energy *energy = &row->energy[phase];
        bool known = energy->known && energy->ranks > 0;
        struct twill_bench_shares shares = {0};
        if (known)
            shares = twill_bench_shares(energy);
        add_value(values, names[phase][0], NULL, known, shares.machine_joules, 1, 4);
        add_value(values, names[phase][1], NULL, known, shares.machine_watts, 1, 2);
        add_value(values, names[phase][2], NULL, known, shares.rank_joules, 1, 4);
        add_value(values, names[phase][3], NULL, known, shares.rank_watts, 1, 2);
    }
}

/* Return all values of a row, those in the table and those in the JSON. */
static struct study_values values_of(const struct twill_study *study,
                                     const struct twill_study_row *row)
{
    struct study_values values = {.n = 0};
    const struct twill_study_step *step = &row->step;
    bool root = study->options.pattern[TWILL_STUDY_ROOT];
    double bytes = (double)study->run.list.total * sizeof(float);
    add_comparison(&values, row);
    add_value(&values, root ? "root_bytes" : NULL, "root_bytes", row->root >= 0, row->root, 1, 0);
    if (root)
        add_value(&values, "by_formula", NULL, true,
                  row->pattern == TWILL_STUDY_ROOT ? twill_study_root_bytes(bytes, step->ranks)
                                                   : twill_study_ring_bytes(bytes, step->ranks),
                  1, 0);
    if (study->options.samples > 0) {
        double steps = (double)twill_study_steps(step, study->options.samples);
        add_value(&values, "epoch_s", NULL, step->seconds >= 0, steps * step->seconds, 1, 3);
        add_value(&values, "syncs", NULL, true, steps, 1, 0);
    }
    if (study->options.energy)
        add_energy(&values, row);
    return values;
}

/* Print a cell of column i, `width` wide and with # in a head, or with a comma for --csv. */
static void print_cell(const struct twill_study *study, size_t i, bool head, int width,
                       const char *text, FILE *out)
{
    if (study->options.csv)
        fprintf(out, "%s%s", i > 0 ? "," : "", text);
    else
        fprintf(out, "%s%*s", i > 0 ? " " : head ? "#" : " ", width, text);
}

/* Print a row, or the names of the columns. */
static void print_row(const struct twill_study *study, const struct twill_study_row *row, bool head,
                      FILE *out)
{
    static const char *const names[] = {"scaling", "pattern", "ranks", "nodes", "batch", "basis"};
    const struct twill_study_step *step = &row->step;
    struct study_values values = values_of(study, row);
    char number[3][24], text[24];
    snprintf(number[0], sizeof(*number), "%zu", step->ranks);
    snprintf(number[1], sizeof(*number), "%zu", row->nodes);
    snprintf(number[2], sizeof(*number), "%zu",
             twill_study_rank_batch(step->strong, step->ranks, step->batch));
    const char *const cells[] = {
        scalings[step->strong], patterns[row->pattern], number[0], number[1], number[2],
        bases[row->predicted]};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        print_cell(study, i, head, i < 3 ? 12 : 9, head ? names[i] : cells[i], out);
    for (const struct study_value *one = values.value; one < values.value + values.n; one++) {
        if (one->name == NULL)
            continue;
        int width = (int)strlen(one->name);
        snprintf(text, sizeof(text), isnan(one->value) ? "n/a" : "%.*f", one->decimals,
                 one->value * one->scale);
        print_cell(study, 1, head, width > 12 ? width : 12, head ? one->name : text, out);
    }
    fprintf(out, "\n");
}

/* Compare overhead and exposed time in measured rows whose exposed time is 5 % of the step or more.
 * Print in how many of them the two differ by at most 10 % of the larger one. */
static void print_agreement(const struct twill_study *study, FILE *out)
{
    size_t compared = 0, agree = 0;
    for (size_t i = 0; i < study->n_rows; i++) {
        const struct twill_study_row *row = &study->rows[i];
        double overhead;
        if (row->predicted || row->step.ranks == 1 ||
            twill_study_share(row->exposed, row->step.seconds) < 0.05 ||
            !twill_study_overhead(&row->step, &overhead))
            continue;
        compared++;
        agree += twill_study_apart(overhead, row->exposed - row->exposed_alone) <= 10;
    }
    if (compared > 0)
        fprintf(out,
                "# overhead and the library's exposed time, where it is 5 %% of a step or more: "
                "within 10 %% in %zu of %zu rows\n",
                agree, compared);
}

/* Print the model, what computes, the machine of predictions, the ranks, the context, and the
 * energy counters with --energy. */
static void print_settings(const struct twill_study *study, FILE *out)
{
    const struct twill_study_options *options = &study->options;
    const struct twill_bench_run *run = &study->run;
    const char *line;
    fprintf(out,
            "# twill-bench train, version %s: %s, %zu tensor%s, %llu parameter%s, f32, %llu B\n",
            twill_version(), options->list, run->list.keys, TWILL_PLURAL(run->list.keys),
            (unsigned long long)run->list.total, TWILL_PLURAL(run->list.total),
            (unsigned long long)(run->list.total * sizeof(float)));
    if (options->compute_us.n > 0)
        fprintf(out, "# computing: given (--compute-us)");
    else
        fprintf(out, "# computing: %zu Gflop/s", options->gflops);
    fprintf(out, ", played by %s; medians of %zu steps, slowest rank\n",
            options->core ? "the rank's core" : "a device", options->iterations);
    fprintf(out, "# predictions: machine %s, %zu rank%s a node\n",
            options->machine != NULL ? options->machine : "this one", twill_study_per_node(study),
            TWILL_PLURAL(twill_study_per_node(study)));
    twill_bench_print_places(out, run);
    for (size_t i = 0; (line = twill_context_describe(run->context, i)) != NULL; i++)
        fprintf(out, "# %s\n", line);
    if (options->energy)
        twill_bench_print_energy_source(out, run);
}

void twill_study_print(const struct twill_study *study, FILE *out)
{
    bool csv = study->options.csv, related = true;
    if (!csv)
        print_settings(study, out);
    for (size_t i = 0; i < study->n_rows; i++) {
        if (i == 0)
            print_row(study, &study->rows[i], true, out);
        print_row(study, &study->rows[i], false, out);
        related = related && study->rows[i].step.alone >= 0;
    }
    if (!related)
        fprintf(csv ? stderr : out,
                "# no speed-up, efficiency and overhead without T(1): --ranks lacks 1\n");
    if (!csv)
        print_agreement(study, out);
}

/* Add the energy of all machines of the job together, and the share of a rank. */
static void put_energy(struct json_object *object, const struct twill_bench_energy *energy)
{
    bool known = energy->known && energy->machines > 0, shared = known && energy->ranks > 0;
    struct twill_bench_shares shares = {0};
    if (shared)
        shares = twill_bench_shares(energy);
    twill_json_real(object, "joules", known ? energy->joules : NAN);
    twill_json_real(object, "watts", known ? energy->watts : NAN);
    twill_json_real(object, "joules_of_rank", shared ? shares.rank_joules : NAN);
    twill_json_real(object, "watts_of_rank", shared ? shares.rank_watts : NAN);
}

/* Return a row in seconds, bytes and joules. What is unknown is null. */
static struct json_object *row_json(const struct twill_study *study,
                                    const struct twill_study_row *row)
{
    const struct twill_study_step *step = &row->step;
    struct study_values values = values_of(study, row);
    struct json_object *object = json_object_new_object();
    twill_json_text(object, "scaling", scalings[step->strong]);
    twill_json_text(object, "pattern", patterns[row->pattern]);
    twill_json_text(object, "basis", bases[row->predicted]);
    twill_json_count(object, "ranks", step->ranks);
    twill_json_count(object, "nodes", row->nodes);
    twill_json_count(object, "batch", step->batch);
    twill_json_count(object, "batch_of_rank",
                     twill_study_rank_batch(step->strong, step->ranks, step->batch));
    for (const struct study_value *one = values.value; one < values.value + values.n; one++)
        if (one->key != NULL)
            twill_json_real(object, one->key, one->value);
    put_energy(object, &row->energy[TWILL_STUDY_STEP]);
    struct json_object *phases[2] = {json_object_new_object(), json_object_new_object()};
    put_energy(phases[0], &row->energy[TWILL_STUDY_COMPUTING]);
    put_energy(phases[1], &row->energy[TWILL_STUDY_COMMUNICATION]);
    json_object_object_add(object, "computing_energy", phases[0]);
    json_object_object_add(object, "communication_energy", phases[1]);
    return object;
}

bool twill_study_json(struct twill_study *study)
{
    struct json_object *object = study->json.root, *rows = json_object_new_array(),
                       *lines = json_object_new_array();
    twill_json_text(object, "list", study->options.list);
    twill_json_count(object, "parameters", (size_t)study->run.list.total);
    twill_json_text(object, "type", "f32");
    twill_json_text(object, "played_by", study->options.core ? "core" : "device");
    twill_json_real(object, "device_gflops",
                    study->options.compute_us.n == 0 ? (double)study->options.gflops : NAN);
    twill_json_count(object, "iterations", study->options.iterations);
    twill_json_count(object, "ranks_of_a_node", twill_study_per_node(study));
    twill_json_text(object, "machine", study->options.machine);
    twill_json_count(object, "samples", study->options.samples);
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(study->run.context, i)) != NULL; i++)
        json_object_array_add(lines, json_object_new_string(line));
    json_object_object_add(object, "description", lines);
    for (size_t i = 0; i < study->n_rows; i++)
        json_object_array_add(rows, row_json(study, &study->rows[i]));
    json_object_object_add(object, "rows", rows);
    return twill_json_file_close(&study->json);
}

/* Return whether two rows are of one curve, so that they differ only in their ranks. */
static bool same_curve(const struct twill_study_row *one, const struct twill_study_row *other)
{
    return one->pattern == other->pattern && one->step.strong == other->step.strong &&
           one->step.batch == other->step.batch && one->compute_us == other->compute_us &&
           one->predicted == other->predicted;
}

/* Return whether a row is the first of its curve. */
static bool is_first(const struct twill_study *study, size_t row)
{
    for (size_t i = 0; i < row; i++)
        if (same_curve(&study->rows[i], &study->rows[row]))
            return false;
    return true;
}

/* Write the points of the curve of a row as data of gnuplot. */
static void write_curve(const struct twill_study *study, size_t row, FILE *out)
{
    fprintf(out, "$c%zu << EOD\n", row);
    for (size_t i = row; i < study->n_rows; i++) {
        const struct twill_study_step *step = &study->rows[i].step;
        double speedup, efficiency;
        if (same_curve(&study->rows[row], &study->rows[i]) && step->seconds >= 0 &&
            twill_study_speedup(step, &speedup, &efficiency))
            fprintf(out, "%zu %g %g\n", step->ranks, speedup, efficiency);
    }
    fprintf(out, "EOD\n");
}

/* Write the plot of all curves, of column 2, the speed-up, or 3, the efficiency. */
static void write_panel(const struct twill_study *study, int column, FILE *out)
{
    fprintf(out, "plot %s with lines lc rgb '#999999' dt 3 title 'ideal'",
            column == 2 ? "x" : "1.0");
    for (size_t i = 0; i < study->n_rows; i++) {
        const struct twill_study_row *row = &study->rows[i];
        if (!is_first(study, i))
            continue;
        fprintf(out, ", $c%zu using 1:%d with linespoints lw 2 dt %d title '%s, %s, batch %zu", i,
                column, row->predicted ? 2 : 1, scalings[row->step.strong], patterns[row->pattern],
                row->step.batch);
        if (row->compute_us > 0)
            fprintf(out, ", %zu us", row->compute_us);
        fprintf(out, "%s'", row->predicted ? ", predicted" : "");
    }
    fprintf(out, "\n");
}

/* Write a gnuplot script to `out` that draws speed-ups and efficiencies as the SVG file `path`. */
static void write_script(const struct twill_study *study, const char *path, FILE *out)
{
    fprintf(out,
            "set terminal svg size 1000,480 font 'sans-serif,11' background rgb 'white'\n"
            "set output '%s'\n",
            path);
    for (size_t i = 0; i < study->n_rows; i++)
        if (is_first(study, i))
            write_curve(study, i, out);
    fprintf(out,
            "set multiplot layout 1,2 title '%s' noenhanced\nset grid\nset xlabel 'ranks'\n"
            "set logscale x 2\nset xrange [1:]\nset key top left\nset ylabel 'speed-up'\n"
            "set logscale y 2\n",
            study->options.list);
    write_panel(study, 2, out);
    fprintf(out, "set ylabel 'efficiency'\nunset logscale y\nset yrange [0:1.1]\nunset key\n");
    write_panel(study, 3, out);
    fprintf(out, "unset multiplot\n");
}

bool twill_study_plot(const struct twill_study *study, const char *path)
{
    bool related = false;
    for (size_t i = 0; i < study->n_rows; i++)
        related = related || (study->rows[i].step.alone >= 0 && study->rows[i].step.seconds >= 0);
    if (!related || strchr(path, '\'') != NULL || strchr(study->options.list, '\'') != NULL) {
        fprintf(stderr, "twill-bench: train: --plot: %s\n",
                related ? "a path with a quote" : "nothing to draw without T(1): --ranks lacks 1");
        return false;
    }
    FILE *out = popen("gnuplot", "w");
    if (out == NULL) {
        fprintf(stderr, "twill-bench: train: --plot: gnuplot: %s\n", strerror(errno));
        return false;
    }
    write_script(study, path, out);
    if (pclose(out) == 0)
        return true;
    fprintf(stderr, "twill-bench: train: --plot: no plot: gnuplot failed\n");
    return false;
}
