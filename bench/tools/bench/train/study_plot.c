/* SPDX-License-Identifier: Apache-2.0 */
/* A scaling study as a plot of gnuplot: speed-up, and efficiency, over the ranks. */
#include "bench/tools/bench/train/study.h"

#include <errno.h>
#include <string.h>

/* The rows of a curve differ in their ranks only. */
static bool same_curve(const struct twill_study_row *one, const struct twill_study_row *other)
{
    return one->pattern == other->pattern && one->step.strong == other->step.strong &&
           one->step.batch == other->step.batch && one->compute_us == other->compute_us &&
           one->predicted == other->predicted;
}

static bool is_first(const struct twill_study *study, size_t row)
{
    for (size_t i = 0; i < row; i++)
        if (same_curve(&study->rows[i], &study->rows[row]))
            return false;
    return true;
}

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

static void write_panel(const struct twill_study *study, int column, FILE *out)
{
    fprintf(out, "plot %s with lines lc rgb '#999999' dt 3 title 'ideal'",
            column == 2 ? "x" : "1.0");
    for (size_t i = 0; i < study->n_rows; i++) {
        const struct twill_study_row *row = &study->rows[i];
        if (!is_first(study, i))
            continue;
        fprintf(out, ", $c%zu using 1:%d with linespoints lw 2 dt %d title '%s, %s, batch %zu", i,
                column, row->predicted ? 2 : 1, row->step.strong ? "strong" : "weak",
                row->pattern == TWILL_STUDY_ROOT ? "bcast+reduce" : "allreduce", row->step.batch);
        if (row->compute_us > 0)
            fprintf(out, ", %zu us", row->compute_us);
        fprintf(out, "%s'", row->predicted ? ", predicted" : "");
    }
    fprintf(out, "\n");
}

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
