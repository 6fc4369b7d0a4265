/* SPDX-License-Identifier: Apache-2.0 */
/* The table of twill-bench, as nccl-tests has it or as comma-separated values (unknown ones empty).
 */
#include "bench/common/report.h"

#include <math.h>

/* X(name, value of a timing t) in the units of the table, NAN if unknown */
#define COLUMN_VALUES(X)                                                                           \
    X(time, t->missing ? NAN : t->seconds * 1e6)                                                   \
    X(algbw, t->missing ? NAN : t->algorithm_bandwidth)                                            \
    X(busbw, t->missing ? NAN : t->bus_bandwidth)                                                  \
    X(wrong, t->missing || t->wrong < 0 ? NAN : (double)t->wrong)                                  \
    X(least, t->each.min * 1e6)                                                                    \
    X(most, t->each.max * 1e6)                                                                     \
    X(p99, t->each.p99 * 1e6)                                                                      \
    X(cv, t->each.cv)                                                                              \
    X(overall, t->overall * 1e6)                                                                   \
    X(compute, t->compute * 1e6)                                                                   \
    X(pure, t->seconds * 1e6)                                                                      \
    X(overlap, t->overlap)                                                                         \
    X(waiting, t->waiting * 1e6)                                                                   \
    X(wire, t->wire * 1e6)                                                                         \
    X(stack, twill_bench_stack(t) * 1e6)                                                           \
    X(strict, t->reproducible * 1e6)                                                               \
    X(strict_ratio, t->seconds > 0 ? t->reproducible / t->seconds : 0)                             \
    X(joined, t->joined * 1e6)                                                                     \
    X(team, t->team * 1e6)                                                                         \
    X(team_ratio, t->team > 0 ? t->joined / t->team : 0)                                           \
    X(narrow, t->narrow * 1e6)                                                                     \
    X(narrow_ratio, t->seconds > 0 ? t->narrow / t->seconds : 0)                                   \
    X(narrow_bytes, t->narrow_bytes > 0 ? t->narrow_bytes : NAN) /* NAN: buffers are mapped */     \
    X(node_j, t->energy.known ? twill_bench_shares(&t->energy).machine_joules : NAN)               \
    X(node_w, t->energy.known ? twill_bench_shares(&t->energy).machine_watts : NAN)                \
    X(rank_j, t->energy.known ? twill_bench_shares(&t->energy).rank_joules : NAN)                  \
    X(rank_w, t->energy.known ? twill_bench_shares(&t->energy).rank_watts : NAN)
#define COLUMN_VALUE(name, value)                                                                  \
    static double get_##name(const struct twill_bench_timing *t)                                   \
    {                                                                                              \
        return value;                                                                              \
    }
COLUMN_VALUES(COLUMN_VALUE)

/* A column of the table, in a constant struct column_group. `title` and `unit` are its two lines of
 * head, and `csv` is its name in CSV. value() returns its value for a measurement, or NAN if
 * unknown. `whole` prints that without decimals. */
struct column {
    const char *title, *unit, *csv;
    int width;
    double (*value)(const struct twill_bench_timing *timing);
    bool whole; /* a whole number */
};

/* Columns that appear together, in a constant table. */
struct column_group {
    int flag;    /* offset of a flag in struct twill_bench_columns, or -1 if always shown */
    bool halves; /* for both measurements of a row, else only out of place */
    const char *unknown, *heads[2]; /* text for an unknown value, and titles of both */
    struct column columns[5];       /* ended by a value of NULL */
};

/* clang-format off */
static const struct column_group groups[] = {
    {-1, true, "N/A", {"           out-of-place           ", "            in-place          "}, {
        {"time", "(us)", "time_us", 7, get_time, false},
        {"algbw", "(GB/s)", "algbw_gbs", 6, get_algbw, false},
        {"busbw", "(GB/s)", "busbw_gbs", 6, get_busbw, false},
        {"#wrong", "", "wrong", 6, get_wrong, true}}},
    {offsetof(struct twill_bench_columns, each), true, "N/A", {"       out-of-place, each         ", "         in-place, each          "}, {
        {"i_min", "(us)", "i_min_us", 7, get_least, false},
        {"i_max", "(us)", "i_max_us", 7, get_most, false},
        {"i_p99", "(us)", "i_p99_us", 7, get_p99, false},
        {"i_cv%", "(%)", "i_cv_percent", 6, get_cv, false}}},
    {offsetof(struct twill_bench_columns, overlap), false, "N/A", {"  out-of-place, with computing between", ""}, {
        {"overall", "(us)", "overall_us", 9, get_overall, false},
        {"compute", "(us)", "compute_us", 9, get_compute, false},
        {"pure", "(us)", "pure_us", 9, get_pure, false},
        {"overlap", "(%)", "overlap_percent", 7, get_overlap, false}}},
    {offsetof(struct twill_bench_columns, times), false, "N/A", {"      out-of-place, of which ", ""}, {
        {"wait", "(us)", "wait_us", 7, get_waiting, false},
        {"wire", "(us)", "wire_us", 7, get_wire, false},
        {"stack", "(us)", "stack_us", 7, get_stack, false}}},
    {offsetof(struct twill_bench_columns, reproducible), false, "N/A", {"   reproducible", ""}, {
        {"time", "(us)", "reproducible_us", 7, get_strict, false},
        {"ratio", "", "reproducible_ratio", 6, get_strict_ratio, false}}},
    {offsetof(struct twill_bench_columns, team), false, "N/A", {"      threads of a rank  ", ""}, {
        {"join", "(us)", "join_us", 7, get_joined, false},
        {"team", "(us)", "team_us", 7, get_team, false},
        {"ratio", "", "team_ratio", 6, get_team_ratio, false}}},
    {offsetof(struct twill_bench_columns, narrow), false, "N/A", {"          narrow         ", ""}, {
        {"time", "(us)", "narrow_us", 7, get_narrow, false},
        {"ratio", "", "narrow_ratio", 6, get_narrow_ratio, false},
        {"bytes", "ratio", "narrow_bytes_ratio", 6, get_narrow_bytes, false}}},
    {offsetof(struct twill_bench_columns, energy), true, "n/a", {"          out-of-place, energy        ", "          in-place, energy        "}, {
        {"node", "(J)", "node_joules", 7, get_node_j, false},
        {"node", "(W)", "node_watts", 7, get_node_w, false},
        {"rank", "(J)", "rank_joules", 7, get_rank_j, false},
        {"rank", "(W)", "rank_watts", 7, get_rank_w, false}}},
};
/* clang-format on */

#define GROUPS (sizeof(groups) / sizeof(groups[0]))

/* Return whether a group is always shown, or `columns` has its flag. */
static bool is_shown(const struct column_group *group, const struct twill_bench_columns *columns)
{
    return group->flag < 0 || ((const bool *)columns)[group->flag];
}

/* Loop over the groups that are shown, and each of their halves. */
#define FOR_EACH_HALF(group, half, columns)                                                        \
    for (const struct column_group *group = groups; group < groups + GROUPS; group++)              \
        for (int half = 0; half < (is_shown(group, &(columns)) ? 1 + group->halves : 0); half++)

#define FOR_EACH_COLUMN(column, group)                                                             \
    for (const struct column *column = (group)->columns; column->value != NULL; column++)

/* Print the values of a group of columns for one measurement of a row, out of place or in place. */
static void print_group(FILE *out, const struct column_group *group,
                        const struct twill_bench_timing *timing)
{
    FOR_EACH_COLUMN(column, group)
    {
        char text[32];
        double value = column->value(timing);
        if (isnan(value))
            snprintf(text, sizeof(text), "%*s", column->width, group->unknown);
        else if (column->whole)
            snprintf(text, sizeof(text), "%*g", column->width, value);
        else
            twill_bench_format_number(value, column->width, text, sizeof(text));
        fprintf(out, "  %s", text);
    }
}

void twill_bench_csv_header(FILE *out, struct twill_bench_columns columns)
{
    fprintf(out, "size_bytes,count,type,redop,root");
    FOR_EACH_HALF(group, half, columns)
    FOR_EACH_COLUMN(column, group)
    fprintf(out, ",%s%s", half ? "in_place_" : "", column->csv);
    fprintf(out, "\n");
}

void twill_bench_csv_row(FILE *out, const struct twill_bench_row *row,
                         struct twill_bench_columns columns)
{
    fprintf(out, "%zu,%zu,%s,%s,%d", row->bytes, row->count, row->type, row->op, row->root);
    FOR_EACH_HALF(group, half, columns)
    FOR_EACH_COLUMN(column, group)
    {
        double value = column->value(half ? &row->in_place : &row->out_of_place);
        if (isnan(value))
            fprintf(out, ",");
        else
            fprintf(out, column->whole ? ",%.0f" : ",%.6g", value);
    }
    fprintf(out, "\n");
}

void twill_bench_print_header(FILE *out, struct twill_bench_columns columns)
{
    fprintf(out, "#\n# %10s  %12s  %8s  %6s  %6s", "", "", "", "", "");
    FOR_EACH_HALF(group, half, columns)
    fprintf(out, "%s", group->heads[half]);
    fprintf(out, "\n# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    FOR_EACH_HALF(group, half, columns)
    FOR_EACH_COLUMN(column, group)
    fprintf(out, "  %*s", column->width, column->title);
    fprintf(out, "\n# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    FOR_EACH_HALF(group, half, columns)
    FOR_EACH_COLUMN(column, group)
    fprintf(out, "  %*s", column->width, column->unit);
    fprintf(out, "\n");
}

void twill_bench_print_row(FILE *out, const struct twill_bench_row *row,
                           struct twill_bench_columns columns)
{
    fprintf(out, "%12zu  %12zu  %8s  %6s  %6d", row->bytes, row->count, row->type, row->op,
            row->root);
    FOR_EACH_HALF(group, half, columns)
    print_group(out, group, half ? &row->in_place : &row->out_of_place);
    fprintf(out, "\n");
}

void twill_bench_print_step_header(FILE *out, bool each)
{
    static const char columns[] = "\n# %4s  %12s  %12s  %8s  %6s  %6s  %7s  %6s  %6s  %6s";
    fprintf(out, "#");
    fprintf(out, columns, "key", "elements", "size", "type", "redop", "root", "time", "algbw",
            "busbw", "#wrong");
    if (each)
        fprintf(out, "  %7s  %7s  %7s  %6s", "i_min", "i_max", "i_p99", "i_cv%");
    fprintf(out, columns, "", "", "(B)", "", "", "", "(us)", "(GB/s)", "(GB/s)", "");
    if (each)
        fprintf(out, "  %7s  %7s  %7s  %6s", "(us)", "(us)", "(us)", "(%)");
    fprintf(out, "\n");
}

void twill_bench_print_step_row(FILE *out, const char *key, const struct twill_bench_row *row,
                                bool each)
{
    fprintf(out, "%6s  %12zu  %12zu  %8s  %6s  %6d", key, row->count, row->bytes, row->type,
            row->op, row->root);
    print_group(out, &groups[0], &row->in_place);
    if (each)
        print_group(out, &groups[1], &row->in_place);
    fprintf(out, "\n");
}

void twill_bench_print_footer(FILE *out, size_t failures, double bandwidth, const char *program)
{
    fprintf(out, "# %-20s : %zu %s\n", "Out of bounds values", failures,
            failures ? "FAILED" : "OK");
    fprintf(out, "# %-20s : %g\n#\n", "Avg bus bandwidth", bandwidth);
    fprintf(out, "# Collective test concluded: %s\n", program);
}
