/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of twill-compare, and the arithmetic that they share with the JSON. */
#include "bench/common/report.h"
#include "bench/tools/compare/compare.h"
#include "lib/base/plural.h"

#include <string.h>

#define OFF_WIRE 3 /* times faster than raw TCP: more than a better program gains */

int twill_compare_best(const struct twill_compare_run *run, const struct twill_compare_row *row,
                       enum twill_compare_kind kind, int tuned)
{
    int best = -1;
    for (int i = 0; i < run->n_contenders; i++) {
        const struct twill_compare_cell *cell = &row->cells[i];
        if (run->contenders[i].kind == kind && run->contenders[i].tuned == tuned &&
            cell->n_samples > 0 && !cell->wrong && !cell->off_wire &&
            (best < 0 || cell->median < row->cells[best].median))
            best = i;
    }
    return best;
}

/* Return whether several hosts are one machine. */
static bool share_machine(const struct twill_compare_run *run)
{
    const struct twill_compare_options *options = &run->options;
    bool shared = options->shared;
    for (int i = 1, rank = options->n_hosts > 0 ? options->hosts[0].ranks : 0;
         i < options->n_hosts && !shared; rank += options->hosts[i++].ranks)
        shared = strcmp(run->remote.hellos[rank].boot_id, run->remote.hellos[0].boot_id) == 0;
    return shared && options->n_hosts > 1;
}

/* Return whether a call ends on no rank before every rank has begun it: then it takes at least the
 * time of a message. Calls with a root may overlap. */
static bool waits_for_all(enum twill_compare_collective collective)
{
    return collective == TWILL_COMPARE_ALLREDUCE || collective == TWILL_COMPARE_ALLREDUCE_OUT ||
           collective == TWILL_COMPARE_ALLGATHER || collective == TWILL_COMPARE_REDUCE_SCATTER ||
           collective == TWILL_COMPARE_BARRIER || collective == TWILL_COMPARE_ALLTOALL;
}

void twill_compare_mark_off_wire(struct twill_compare_run *run)
{
    double least = 0; /* one way of the shortest message over raw TCP */
    for (int r = 0; r < run->n_rows; r++)
        if (run->rows[r].line > 0 && (least <= 0 || run->rows[r].line < least))
            least = run->rows[r].line;
    for (int r = 0; r < run->n_rows && share_machine(run); r++)
        for (int i = 0; i < run->n_contenders; i++) {
            struct twill_compare_cell *cell = &run->rows[r].cells[i];
            int bound = twill_compare_best(run, &run->rows[r], TWILL_COMPARE_BOUND, 0);
            double wire = bound < 0 ? 0 : run->rows[r].cells[bound].median;
            if (wire < least && waits_for_all(run->rows[r].collective))
                wire = least;
            cell->off_wire = run->contenders[i].kind == TWILL_COMPARE_PEER && cell->n_samples > 0 &&
                             cell->median < wire / OFF_WIRE;
        }
}

double twill_compare_ratio(double a, double b)
{
    return a > 0 && b > 0 ? a / b : 0;
}

double twill_compare_bus_bandwidth(const struct twill_compare_run *run,
                                   const struct twill_compare_row *row, double seconds)
{
    double ranks = run->options.ranks, factor = 1;
    if (row->collective == TWILL_COMPARE_ALLREDUCE ||
        row->collective == TWILL_COMPARE_ALLREDUCE_OUT)
        factor = 2 * (ranks - 1) / ranks;
    else if (twill_compare_shards(row->collective, 2, 0) == 2 ||
             twill_compare_shards(row->collective, 2, 1) == 2)
        factor = ranks - 1; /* bytes are those of one shard */
    return factor * twill_bench_bandwidth(row->bytes, seconds);
}

static int find_contender(const struct twill_compare_run *run, const char *name)
{
    for (int i = 0; i < run->n_contenders; i++)
        if (strcmp(run->contenders[i].name, name) == 0)
            return i;
    return -1;
}

static double median(const struct twill_compare_row *row, int index)
{
    return index < 0 ? 0 : row->cells[index].median;
}

double twill_compare_over_below(const struct twill_compare_run *run,
                                const struct twill_compare_row *row, int index)
{
    int below = run->contenders[index].below;
    return below < 0 ? 0 : twill_compare_ratio(row->cells[below].median, row->cells[index].median);
}

bool twill_compare_has_times(const struct twill_compare_run *run, int index,
                             enum twill_compare_collective collective)
{
    for (int r = 0; r < run->n_rows; r++)
        if (run->rows[r].collective == collective && run->rows[r].cells[index].n_samples > 0)
            return true;
    return false;
}

void twill_compare_print_time(FILE *out, double seconds, int width)
{
    if (seconds > 0)
        fprintf(out, " %*.*f", width, seconds < 1e-4 ? 2 : seconds < 1e-2 ? 1 : 0, seconds * 1e6);
    else
        fprintf(out, " %*s", width, "-");
}

void twill_compare_print_value(FILE *out, double value, int width, int digits, double scale)
{
    if (value > 0)
        fprintf(out, " %*.*f", width, digits, value * scale);
    else
        fprintf(out, " %*s", width, "-");
}

static void print_best(const struct twill_compare_run *run, FILE *out,
                       const struct twill_compare_row *row, int best)
{
    twill_compare_print_time(out, median(row, best), 9);
    fprintf(out, " %-16s", best < 0 ? "-" : run->contenders[best].name);
}

static void print_summary(const struct twill_compare_run *run, FILE *out,
                          const struct twill_compare_row *row)
{
    int bound = twill_compare_best(run, row, TWILL_COMPARE_BOUND, 0);
    int installed = twill_compare_best(run, row, TWILL_COMPARE_PEER, 0);
    int tuned = twill_compare_best(run, row, TWILL_COMPARE_PEER, 1);
    double plain = median(row, find_contender(run, "twill")),
           own = median(row, find_contender(run, "twill-alloc"));
    double limit = median(row, bound);
    fprintf(out, "%11zu", row->bytes);
    if (run->options.n_hosts > 0)
        twill_compare_print_time(out, row->line, 8);
    else
        twill_compare_print_value(out, row->line, 8, 0, 1e9);
    twill_compare_print_time(out, limit, 9);
    const char *variant = bound < 0 ? NULL : strchr(run->contenders[bound].name, '-');
    fprintf(out, "%c", variant != NULL ? variant[1] : ' ');
    twill_compare_print_time(out, plain, 9);
    twill_compare_print_time(out, own, 9);
    print_best(run, out, row, installed);
    print_best(run, out, row, tuned);
    const double others[] = {median(row, installed), median(row, tuned)};
    for (int i = 0; i < 2; i++) {
        twill_compare_print_value(out, twill_compare_ratio(others[i], plain), 6, 2, 1);
        twill_compare_print_value(out, twill_compare_ratio(others[i], own), 6, 2, 1);
    }
    twill_compare_print_value(out, twill_compare_ratio(limit, plain), 5, 0, 100);
    twill_compare_print_value(out, twill_compare_ratio(limit, own), 5, 0, 100);
    const double times[] = {plain, own, others[0]};
    for (int i = 0; i < 3; i++)
        twill_compare_print_value(
            out, times[i] > 0 ? twill_compare_bus_bandwidth(run, row, times[i]) : 0, 7, 2, 1);
    fprintf(out, "\n");
}

static void print_summary_head(const struct twill_compare_run *run, FILE *out)
{
    bool hosts = run->options.n_hosts > 0;
    fprintf(out,
            "# %9s %8s %10s %8s %9s %26s %26s %13s %13s %11s %23s\n"
            "# %9s %8s %9s  %9s %9s %9s %-16s %9s %-16s %6s %6s %6s %6s %5s %5s %7s %7s %7s\n",
            "", hosts ? "one way" : "line", "bound", "twill", "twill", "best peer",
            "best tuned peer", "x installed", "x tuned", "% of bound", "bus bandwidth, GB/s",
            "bytes", hosts ? "us" : "ns", "us", "plain", "alloc", "us", "", "us", "", "plain",
            "alloc", "plain", "alloc", "plain", "alloc", "plain", "alloc", "peer");
}

/* Print every contender's median, or with --details minimum, median and p99. */
static void print_everyone(const struct twill_compare_run *run, FILE *out,
                           enum twill_compare_collective collective)
{
    fprintf(out, "#\n# us%s\n# %9s", run->options.details ? ": minimum median p99" : ", medians",
            "bytes");
    int width = run->options.details ? 29 : 9;
    for (int i = 0; i < run->n_contenders; i++)
        if (run->contenders[i].found)
            fprintf(out, " %*s", width, run->contenders[i].name);
    fprintf(out, "\n");
    for (int r = 0; r < run->n_rows; r++) {
        const struct twill_compare_row *row = &run->rows[r];
        if (row->collective != collective)
            continue;
        fprintf(out, "#%10zu", row->bytes);
        for (int i = 0; i < run->n_contenders; i++) {
            const struct twill_compare_cell *cell = &row->cells[i];
            int length = (int)strlen(run->contenders[i].name);
            if (!run->contenders[i].found)
                continue;
            if (run->options.details) {
                twill_compare_print_time(out, cell->min, 9);
                twill_compare_print_time(out, cell->median, 9);
                twill_compare_print_time(out, cell->p99, 9);
            } else {
                twill_compare_print_time(out, cell->median, length > width ? length : width);
                if (cell->off_wire)
                    fprintf(out, "!");
            }
        }
        fprintf(out, "\n");
    }
}

void twill_compare_print_rows(const struct twill_compare_run *run, FILE *out,
                              enum twill_compare_collective collective)
{
    fprintf(out, "#\n# %s%s\n", twill_compare_name(collective), twill_compare_of_what(collective));
    print_summary_head(run, out);
    for (int r = 0; r < run->n_rows; r++)
        if (run->rows[r].collective == collective)
            print_summary(run, out, &run->rows[r]);
    print_everyone(run, out, collective);
}

/* Print where it runs. */
static void print_hosts(const struct twill_compare_run *run, FILE *out)
{
    const struct twill_compare_options *options = &run->options;
    for (int i = 0, rank = 0; i < options->n_hosts; rank += options->hosts[i++].ranks)
        fprintf(out, "# host %s (%s): %d rank%s, congestion control %s\n", options->hosts[i].name,
                run->remote.hellos[rank].host, options->hosts[i].ranks,
                TWILL_PLURAL(options->hosts[i].ranks), run->remote.hellos[rank].congestion);
}

void twill_compare_print_head(const struct twill_compare_run *run, FILE *out)
{
    const struct twill_compare_options *options = &run->options;
    bool hosts = options->n_hosts > 0;
    fprintf(out, "# twill-compare: %d rank%s on %d %s, %s, f32 sum, %d round%s in turns\n",
            options->ranks, TWILL_PLURAL(options->ranks), hosts ? options->n_hosts : run->cores,
            hosts ? "hosts" : "cores", run->bind ? "bound to cores" : "not bound", options->rounds,
            TWILL_PLURAL(options->rounds));
    print_hosts(run, out);
    if (options->mpi)
        fprintf(out, "# +twill: the same program, libtwill-mpi loaded before the MPI; +off: +twill "
                     "with TWILL_MPI=0.\n"
                     "# alloc: memory of MPI_Alloc_mem(), else plain pages; nonblocking: calls "
                     "waited for at once.\n");
    else if (options->played.n_lists == 0)
        fprintf(out,
                "# plain: pages as malloc maps them; alloc: twill_alloc(). x: the peer's "
                "time over twill's.\n"
                "# tuned: freed memory kept, huge pages. bound: %s;\n",
                hosts ? "raw TCP, both ways at once (w: received into a window; s: in steps)"
                      : "nothing copied (s: streaming stores)");
    if (options->played.n_lists == 0)
        fprintf(out,
                "# a batch's time is the mean of its calls, on the slowest rank; times are medians "
                "over batches.\n");
    for (int i = 0; i < run->n_contenders; i++) {
        const struct twill_compare_contender *one = &run->contenders[i];
        if (one->absent[0] != '\0')
            fprintf(out, "# %-20s left out: %s\n", one->name, one->absent);
        else
            /* some libraries describe themselves at length */
            fprintf(out, "# %-20s %.76s\n", one->name, one->library);
    }
}

/* Explain the marked results. */
static void print_off_wire(const struct twill_compare_run *run, FILE *out)
{
    for (int i = 0; i < run->n_contenders; i++) {
        int marked = 0;
        for (int r = 0; r < run->n_rows; r++)
            marked += run->rows[r].cells[i].off_wire;
        if (marked > 0)
            fprintf(out,
                    "# %s: %d of its results (!) %s faster than the wire: these hosts are one "
                    "machine, through whose memory it went; left out of the best\n",
                    run->contenders[i].name, marked, marked == 1 ? "is" : "are");
    }
}

void twill_compare_print_foot(const struct twill_compare_run *run, FILE *out)
{
    fprintf(out, "#\n");
    print_off_wire(run, out);
    for (int i = 0; i < run->n_contenders; i++)
        if (run->contenders[i].found && run->contenders[i].absent[0] != '\0')
            fprintf(out, "# %s was left out: %s\n", run->contenders[i].name,
                    run->contenders[i].absent);
    fprintf(out, "# %.0f s, %d wrong%s\n", run->seconds, run->failures,
            run->failures > 0 ? " FAILED" : "");
}
