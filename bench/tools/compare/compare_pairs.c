/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of twill-compare --mpi: each MPI program with and without twill, their ratio, and the
 * cost of calls that twill passes on. */
#include "bench/tools/compare/compare.h"

#include <string.h>

/* Return whether a contender has a counterpart without twill. */
static bool paired(const struct twill_compare_run *run, int index, bool self)
{
    const struct twill_compare_contender *one = &run->contenders[index];
    return one->below >= 0 && one->found && (self || !one->self_only);
}

static bool any_pair(const struct twill_compare_run *run)
{
    for (int i = 0; i < run->n_contenders; i++)
        if (paired(run, i, false))
            return true;
    return false;
}

void twill_compare_print_pairs(const struct twill_compare_run *run, FILE *out,
                               enum twill_compare_collective collective)
{
    if (!any_pair(run))
        return;
    fprintf(out, "#\n# %s%s, us; x: time without twill over time with it\n# %9s",
            twill_compare_name(collective), twill_compare_of_what(collective), "bytes");
    for (int i = 0; i < run->n_contenders; i++)
        if (paired(run, i, false))
            fprintf(out, " | %11s %8s %6s", run->contenders[run->contenders[i].below].name,
                    "+twill", "x");
    fprintf(out, "\n");
    for (int r = 0; r < run->n_rows; r++) {
        const struct twill_compare_row *row = &run->rows[r];
        if (row->collective != collective)
            continue;
        fprintf(out, "%11zu", row->bytes);
        for (int i = 0; i < run->n_contenders; i++) {
            if (!paired(run, i, false))
                continue;
            fprintf(out, "  ");
            twill_compare_print_time(out, row->cells[run->contenders[i].below].median, 11);
            twill_compare_print_time(out, row->cells[i].median, 8);
            twill_compare_print_value(out, twill_compare_over_below(run, row, i), 6, 2, 1);
        }
        fprintf(out, "\n");
    }
}

/* Return the nanoseconds that twill adds to a call. */
static double extra(const struct twill_compare_run *run, const struct twill_compare_row *row,
                    int index)
{
    return (row->cells[index].median - row->cells[run->contenders[index].below].median) * 1e9;
}

void twill_compare_print_passed(const struct twill_compare_run *run, FILE *out)
{
    const struct twill_compare_row *most_row = NULL;
    int most = -1;
    for (int r = 0; r < run->n_rows; r++) {
        const struct twill_compare_row *row = &run->rows[r];
        if (!twill_compare_is_self(row->collective) || !any_pair(run))
            continue;
        if (most_row == NULL)
            fprintf(out,
                    "#\n# passed on to the MPI below: ns of a call without twill, with it, and the "
                    "difference\n");
        most_row = most_row == NULL ? row : most_row;
        fprintf(out, "%-16s", twill_compare_name(row->collective));
        for (int i = 0; i < run->n_contenders; i++) {
            if (!paired(run, i, true) || twill_compare_over_below(run, row, i) <= 0)
                continue;
            fprintf(out, " | %s %.1f %.1f %+.1f", run->contenders[i].name,
                    row->cells[run->contenders[i].below].median * 1e9, row->cells[i].median * 1e9,
                    extra(run, row, i));
            if (most < 0 || extra(run, row, i) > extra(run, most_row, most)) {
                most = i;
                most_row = row;
            }
        }
        fprintf(out, "\n");
    }
    if (most >= 0)
        fprintf(out, "# a call that is passed on takes %.0f ns more at most: %s, %s\n",
                extra(run, most_row, most), run->contenders[most].name,
                twill_compare_name(most_row->collective));
}

void twill_compare_print_least(const struct twill_compare_run *run, FILE *out)
{
    const struct twill_compare_row *row = NULL;
    double least = 0;
    int which = -1, below_one = 0, all = 0;
    for (int r = 0; r < run->n_rows; r++)
        for (int i = 0; i < run->n_contenders && !twill_compare_is_self(run->rows[r].collective);
             i++) {
            double ratio = twill_compare_over_below(run, &run->rows[r], i);
            if (ratio <= 0)
                continue;
            all++;
            below_one += ratio < 1;
            if (which < 0 || ratio < least) {
                least = ratio;
                which = i;
                row = &run->rows[r];
            }
        }
    if (which >= 0)
        fprintf(out, "# smallest ratio: %.2f (%s, %s of %zu bytes); below 1: %d of %d\n", least,
                run->contenders[which].name, twill_compare_name(row->collective), row->bytes,
                below_one, all);
}
