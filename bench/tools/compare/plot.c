/* SPDX-License-Identifier: Apache-2.0 */
/* Plot a comparison by gnuplot: for each collective an SVG of two panels, times of all contenders
 * over bytes, and the ratio to the bound. */
#include "bench/tools/compare/compare.h"
#include "lib/base/plural.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Return the bound's time in a row, or 0. */
static double limit_of(const struct twill_compare_run *run, const struct twill_compare_row *row)
{
    int bound = twill_compare_best(run, row, TWILL_COMPARE_BOUND, 0);
    return bound < 0 ? 0 : row->cells[bound].median;
}

/* Write lines "bytes us ratio-to-bound" for each contender, as gnuplot's $name << EOD. */
static void write_data(const struct twill_compare_run *run, FILE *out,
                       enum twill_compare_collective collective)
{
    for (int i = 0; i < run->n_contenders; i++) {
        fprintf(out, "$c%d << EOD\n", i);
        for (int r = 0; r < run->n_rows; r++) {
            const struct twill_compare_row *row = &run->rows[r];
            double seconds = row->cells[i].median;
            if (row->collective == collective && row->cells[i].n_samples > 0)
                fprintf(out, "%zu %g %g\n", row->bytes, seconds * 1e6,
                        twill_compare_ratio(seconds, limit_of(run, row)));
        }
        fprintf(out, "EOD\n");
    }
}

/* twill stands out; the bound is black; peers as installed are thin, tuned ones dashed. */
static void write_style(const struct twill_compare_contender *one, int nth, FILE *out)
{
    static const char *const colours[] = {"#1b7837", "#e08214", "#2166ac", "#8073ac",
                                          "#b2182b", "#80cdc1", "#bf812d", "#999999"};
    static const char *const ours[] = {"#d6604d", "#f4a582", "#d6008b", "#762a83"};
    if (one->kind == TWILL_COMPARE_BOUND)
        fprintf(out, "lw 2 dt %d lc rgb 'black' pt 0", nth == 0 ? 1 : 3);
    else if (one->kind == TWILL_COMPARE_TRIP)
        fprintf(out, "lw 1 dt 3 lc rgb '#777777' pt 0");
    else if (one->kind == TWILL_COMPARE_TWILL)
        fprintf(out, "lw 3 lc rgb '%s' pt %d ps 0.6", ours[nth % 4], 5 + 2 * (nth % 4));
    else
        fprintf(out, "lw 1 dt %d lc rgb '%s' pt 6 ps 0.3", one->tuned ? 2 : 1,
                colours[nth % (int)(sizeof(colours) / sizeof(colours[0]))]);
}

static void write_panel(const struct twill_compare_run *run, FILE *out,
                        enum twill_compare_collective collective, int column)
{
    const char *before = "plot ";
    int nth[4][2] = {{0}};
    for (int i = 0; i < run->n_contenders; i++) {
        const struct twill_compare_contender *one = &run->contenders[i];
        int *count = &nth[one->kind][one->tuned];
        if (!one->found)
            continue;
        if (twill_compare_has_times(run, i, collective)) {
            fprintf(out, "%s$c%d using 1:%d with linespoints title '%s' ", before, i, column,
                    one->name);
            write_style(one, *count, out);
            before = ", ";
        }
        (*count)++;
    }
    fprintf(out, "\n");
}

static void write_script(const struct twill_compare_run *run, FILE *out,
                         enum twill_compare_collective collective, const char *svg)
{
    const char *name = twill_compare_name(collective);
    fprintf(out,
            "set terminal svg size 1200,620 font 'sans-serif,12' background rgb 'white'\n"
            "set output '%s'\n",
            svg);
    write_data(run, out, collective);
    fprintf(out,
            "set multiplot layout 1,2 title '%s, %d rank%s, float sum' noenhanced\n"
            "set bmargin at screen 0.25\nset tmargin at screen 0.93\n"
            "set logscale xy\nset logscale x 2\nset grid\nset format x '%%.0b %%BB'\n"
            "set xtics 4,16\n"
            "set key at screen 0.5,0.01 center bottom maxrows 3 samplen 2 font ',10' noenhanced\n"
            "set ylabel 'microseconds'\n",
            name, run->options.ranks, TWILL_PLURAL(run->options.ranks));
    write_panel(run, out, collective, 2);
    fprintf(out, "set ylabel 'times the bound'\nset yrange [0.5:60]\nunset key\n");
    write_panel(run, out, collective, 3);
    fprintf(out, "unset multiplot\n");
}

static bool plot_one(struct twill_compare_run *run, enum twill_compare_collective collective)
{
    char script[TWILL_COMPARE_PATH + 64], log[TWILL_COMPARE_PATH + 64], said[TWILL_COMPARE_TEXT];
    char svg[TWILL_COMPARE_PATH];
    const char *name = twill_compare_name(collective);
    twill_compare_write(svg, sizeof(svg), "%s-%s.svg", run->options.paths.plot, name);
    twill_compare_write(script, sizeof(script), "%s/%s.gnuplot", run->folders.work, name);
    twill_compare_write(log, sizeof(log), "%s/gnuplot.log", run->folders.work);
    FILE *file = fopen(script, "w");
    if (file == NULL) {
        fprintf(stderr, "twill-compare: --plot: %s: %s\n", script, strerror(errno));
        return false;
    }
    write_script(run, file, collective, svg);
    fclose(file);
    char *command[] = {(char[]){"gnuplot"}, script, NULL};
    int status = twill_compare_command(run, command, log);
    if (status == 0)
        return true;
    twill_compare_first_line(log, NULL, said, sizeof(said));
    fprintf(stderr, "twill-compare: --plot: no plot: %s\n", said);
    return status == 127; /* a missing gnuplot is not a failure */
}

void twill_compare_check_plot(const struct twill_compare_run *run)
{
    const char *path = getenv("PATH");
    char file[TWILL_COMPARE_PATH];
    while (path != NULL && *path != '\0') {
        size_t bytes = strcspn(path, ":");
        twill_compare_write(file, sizeof(file), "%.*s/gnuplot", (int)bytes, path);
        if (access(file, X_OK) == 0)
            return;
        path += bytes + (path[bytes] == ':');
    }
    fprintf(stderr,
            "twill-compare: --plot %s: gnuplot is not in PATH: there will be no plots (--json and "
            "--csv keep the results)\n",
            run->options.paths.plot);
}

bool twill_compare_plot(struct twill_compare_run *run)
{
    bool good = true;
    for (int collective = 0; collective < TWILL_COMPARE_BARRIER && good; collective++) {
        int rows = 0;
        for (int r = 0; r < run->n_rows; r++)
            rows += (int)run->rows[r].collective == collective;
        if (rows > 1) /* a line needs two points */
            good = plot_one(run, (enum twill_compare_collective)collective);
    }
    return good;
}
