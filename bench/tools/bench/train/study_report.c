/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a scaling study as text and as comma-separated values. What makes rows comparable
 * stands above them: model, precision, batch, device, machine, and what T(1) is. */
#include "bench/tools/bench/train/study.h"
#include "lib/base/plural.h"

#include <stdarg.h>
#include <string.h>

static const char *const patterns[] = {"allreduce", "bcast+reduce"};

enum { CELLS = 40, CELL = 24 };

/* A row as text: a name and a value for each column. */
struct cells {
    const char *name[CELLS];
    char value[CELLS][CELL];
    size_t n;
};

__attribute__((format(printf, 3, 4))) static void add_cell(struct cells *cells, const char *name,
                                                           const char *format, ...)
{
    va_list values;
    va_start(values, format);
    cells->name[cells->n] = name;
    vsnprintf(cells->value[cells->n++], CELL, format, values);
    va_end(values);
}

/* Add a number, or n/a. */
static void add_number(struct cells *cells, const char *name, bool known, int decimals,
                       double value)
{
    if (known)
        add_cell(cells, name, "%.*f", decimals, value);
    else
        add_cell(cells, name, "n/a");
}

/* The six columns of a comparison: scaling, throughput, speed-up, efficiency, overhead and the
 * ratio of computing to communication. */
static void add_comparison(struct cells *cells, const struct twill_study_row *row)
{
    const struct twill_study_step *step = &row->step;
    double speedup = 0, efficiency = 0, overhead = 0;
    bool known = step->seconds >= 0;
    bool related = known && twill_study_speedup(step, &speedup, &efficiency) &&
                   twill_study_overhead(step, &overhead);
    add_number(cells, "step_ms", known, 3, step->seconds * 1e3);
    add_number(cells, "samples/s", known, 1, twill_study_throughput(step));
    add_number(cells, "speed-up", related, 3, speedup);
    add_number(cells, "efficiency", related, 3, efficiency);
    add_number(cells, "overhead_ms", related, 3, overhead * 1e3);
    add_number(cells, "exposed_ms", known, 3, row->exposed * 1e3);
    add_number(cells, "apart_%", related && step->ranks > 1 && !row->predicted, 1,
               twill_study_apart(overhead, row->exposed - row->exposed_alone));
    add_number(cells, "ratio", row->communication > 0 && step->ranks > 1, 2,
               row->communication > 0 ? row->compute / row->communication : 0);
    add_number(cells, "share_%", known, 1, 100 * twill_study_share(row->exposed, step->seconds));
    add_number(cells, "limit", known, 2, twill_study_limit(row->exposed, step->seconds));
    add_number(cells, "model_ms", row->model >= 0, 3, row->model * 1e3);
}

/* Joules and watts of a node and of a rank: names of four columns. */
static void add_energy(struct cells *cells, const struct twill_bench_energy *energy,
                       const char *const names[4])
{
    bool known = energy->known && energy->ranks > 0;
    struct twill_bench_shares shares = {0};
    if (known)
        shares = twill_bench_shares(energy);
    add_number(cells, names[0], known, 4, shares.machine_joules);
    add_number(cells, names[1], known, 2, shares.machine_watts);
    add_number(cells, names[2], known, 4, shares.rank_joules);
    add_number(cells, names[3], known, 2, shares.rank_watts);
}

static void add_phases(struct cells *cells, const struct twill_study_row *row)
{
    static const char *const names[TWILL_STUDY_PHASES][4] = {
        {"J/node", "W/node", "J/rank", "W/rank"},
        {"compute_J/node", "compute_W/node", "compute_J/rank", "compute_W/rank"},
        {"exchange_J/node", "exchange_W/node", "exchange_J/rank", "exchange_W/rank"}};
    for (int phase = 0; phase < TWILL_STUDY_PHASES; phase++)
        add_energy(cells, &row->energy[phase], names[phase]);
}

static struct cells cells_of(const struct twill_study *study, const struct twill_study_row *row)
{
    struct cells cells = {.n = 0};
    const struct twill_study_step *step = &row->step;
    size_t samples = study->options.samples;
    double bytes = (double)study->run.list.total * sizeof(float);
    add_cell(&cells, "scaling", step->strong ? "strong" : "weak");
    add_cell(&cells, "pattern", "%s", patterns[row->pattern]);
    add_cell(&cells, "ranks", "%zu", step->ranks);
    add_cell(&cells, "nodes", "%zu", row->nodes);
    add_cell(&cells, "batch", "%zu",
             twill_study_rank_batch(step->strong, step->ranks, step->batch));
    add_cell(&cells, "basis", row->predicted ? "predicted" : "measured");
    add_number(&cells, "compute_ms", true, 3, row->compute * 1e3);
    add_comparison(&cells, row);
    if (study->options.pattern[TWILL_STUDY_ROOT]) {
        add_number(&cells, "root_bytes", row->root >= 0, 0, row->root);
        add_number(&cells, "by_formula", true, 0,
                   row->pattern == TWILL_STUDY_ROOT ? twill_study_root_bytes(bytes, step->ranks)
                                                    : twill_study_ring_bytes(bytes, step->ranks));
    }
    if (samples > 0) {
        double steps = (double)twill_study_steps(step, samples);
        add_number(&cells, "epoch_s", step->seconds >= 0, 3, steps * step->seconds);
        add_number(&cells, "syncs", true, 0, steps);
    }
    if (study->options.energy)
        add_phases(&cells, row);
    return cells;
}

static int width_of(const struct cells *cells, size_t i)
{
    int name = (int)strlen(cells->name[i]);
    return name > 12 ? name : i < 3 || i > 5 ? 12 : name > 9 ? name : 9;
}

static void print_cells(const struct cells *cells, bool names, bool csv, FILE *out)
{
    for (size_t i = 0; i < cells->n; i++) {
        const char *text = names ? cells->name[i] : cells->value[i];
        if (csv)
            fprintf(out, "%s%s", i > 0 ? "," : "", text);
        else
            fprintf(out, "%s%*s", i > 0 ? " " : names ? "#" : " ", width_of(cells, i), text);
    }
    fprintf(out, "\n");
}

/* Say of how many rows the overhead and the library's counter agree within 10 %. Where less than a
 * twentieth of the step is exposed, steps vary by more than that. */
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
        struct cells cells = cells_of(study, &study->rows[i]);
        if (i == 0)
            print_cells(&cells, true, csv, out);
        print_cells(&cells, false, csv, out);
        related = related && study->rows[i].step.alone >= 0;
    }
    if (!related)
        fprintf(csv ? stderr : out,
                "# no speed-up, efficiency and overhead without T(1): --ranks lacks 1\n");
    if (!csv)
        print_agreement(study, out);
}
