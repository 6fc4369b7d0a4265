/* SPDX-License-Identifier: Apache-2.0 */
/* The arithmetic and the table of twill-bench. */
#include "bench/common/report.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double twill_bench_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

bool twill_bench_parse_size(const char *text, size_t *bytes)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || !(value >= 0) || strspn(text, "+-.0123456789") != (size_t)(end - text))
        return false;
    double unit = 1;
    if (*end != '\0') {
        static const char letters[] = "kKmMgGtT";
        const char *letter = strchr(letters, *end);
        if (letter != NULL) {
            unit = (double)(UINT64_C(1) << (10 * ((letter - letters) / 2 + 1)));
            end += end[1] == 'i' && end[2] == 'B' ? 2 : 1; /* KiB and KB are both binary */
        }
        if (strcmp(end, "B") != 0 && (letter == NULL || *end != '\0'))
            return false;
    }
    if (value * unit >= 0x1p62)
        return false;
    *bytes = (size_t)(value * unit);
    return true;
}

bool twill_bench_parse_number(const char *text, size_t min, size_t max, size_t *number)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (errno != 0 || end == text || *end != '\0' || strchr(text, '-') != NULL)
        return false;
    *number = (size_t)value;
    return value >= min && value <= max;
}

size_t twill_bench_next_size(size_t bytes, size_t step, size_t factor)
{
    if (factor > 1)
        return bytes == 0 ? 1 : bytes > SIZE_MAX / factor ? SIZE_MAX : bytes * factor;
    return bytes > SIZE_MAX - step ? SIZE_MAX : bytes + step;
}

size_t twill_bench_count_sizes(size_t min, size_t max, size_t step, size_t factor)
{
    size_t n = 0;
    for (size_t bytes = min; bytes <= max; bytes = twill_bench_next_size(bytes, step, factor))
        n++;
    return n;
}

double twill_bench_bandwidth(size_t bytes, double seconds)
{
    return seconds > 0 ? (double)bytes / 1e9 / seconds : 0;
}

double twill_bench_overlap(double overall, double compute, double pure)
{
    double hidden = pure > 0 ? 100 * (1 - (overall - compute) / pure) : 0;
    return hidden < 0 ? 0 : hidden > 100 ? 100 : hidden;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct twill_bench_statistics twill_bench_statistics(double *samples, size_t n)
{
    qsort(samples, n, sizeof(*samples), compare_doubles);
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++)
        sum += samples[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        squares += (samples[i] - mean) * (samples[i] - mean);
    size_t rank = (size_t)ceil(0.99 * (double)n);
    return (struct twill_bench_statistics){
        .min = samples[0],
        .max = samples[n - 1],
        .mean = mean,
        .median = (samples[(n - 1) / 2] + samples[n / 2]) / 2,
        .p99 = samples[rank - 1],
        .cv = n > 1 && mean > 0 ? 100 * sqrt(squares / (double)(n - 1)) / mean : 0,
    };
}

void twill_bench_format_number(double value, int width, char *text, size_t bytes)
{
    int digits = 0;
    for (double limit = 1; value >= limit && digits < 20; limit *= 10)
        digits++;
    if (digits < width - 2)
        snprintf(text, bytes, "%*.2f", width, value);
    else if (digits < width - 1)
        snprintf(text, bytes, "%*.1f", width, value);
    else if (digits < width + 1)
        snprintf(text, bytes, "%*.0f", width, value);
    else
        snprintf(text, bytes, "%*.*e", width, width >= 7 ? 1 : 0, value);
}

static void print_number(FILE *out, double value, int width)
{
    char text[32];
    twill_bench_format_number(value, width, text, sizeof(text));
    fprintf(out, "  %s", text);
}

void twill_bench_print_header(FILE *out, struct twill_bench_columns columns)
{
    static const char four[] = "  %7s  %6s  %6s  %6s", overlap[] = "  %9s  %9s  %9s  %7s";
    static const char energy[] = "  %7s  %7s  %7s  %7s";
    fprintf(out,
            "#\n# %10s  %12s  %8s  %6s  %6s           out-of-place                       in-place  "
            "        ",
            "", "", "", "", "");
    if (columns.each)
        fprintf(out, "       out-of-place, each                  in-place, each          ");
    if (columns.overlap)
        fprintf(out, "  out-of-place, with computing between");
    if (columns.times)
        fprintf(out, "      out-of-place, of which ");
    if (columns.reproducible)
        fprintf(out, "   reproducible");
    if (columns.narrow)
        fprintf(out, "          narrow         ");
    if (columns.energy)
        fprintf(out, "          out-of-place, energy                  in-place, energy        ");
    fprintf(out, "\n# %10s  %12s  %8s  %6s  %6s", "size", "count", "type", "redop", "root");
    for (int half = 0; half < 2; half++)
        fprintf(out, four, "time", "algbw", "busbw", "#wrong");
    for (int half = 0; columns.each && half < 2; half++)
        fprintf(out, "  %7s  %7s  %7s  %6s", "i_min", "i_max", "i_p99", "i_cv%");
    if (columns.overlap)
        fprintf(out, overlap, "overall", "compute", "pure", "overlap");
    if (columns.times)
        fprintf(out, "  %7s  %7s  %7s", "wait", "wire", "stack");
    if (columns.reproducible)
        fprintf(out, "  %7s  %6s", "time", "ratio");
    if (columns.narrow)
        fprintf(out, "  %7s  %6s  %6s", "time", "ratio", "bytes");
    for (int half = 0; columns.energy && half < 2; half++)
        fprintf(out, energy, "node", "node", "rank", "rank");
    fprintf(out, "\n# %10s  %12s  %8s  %6s  %6s", "(B)", "(elements)", "", "", "");
    for (int half = 0; half < 2; half++)
        fprintf(out, four, "(us)", "(GB/s)", "(GB/s)", "");
    for (int half = 0; columns.each && half < 2; half++)
        fprintf(out, "  %7s  %7s  %7s  %6s", "(us)", "(us)", "(us)", "(%)");
    if (columns.overlap)
        fprintf(out, overlap, "(us)", "(us)", "(us)", "(%)");
    if (columns.times)
        fprintf(out, "  %7s  %7s  %7s", "(us)", "(us)", "(us)");
    if (columns.reproducible)
        fprintf(out, "  %7s  %6s", "(us)", "");
    if (columns.narrow)
        fprintf(out, "  %7s  %6s  %6s", "(us)", "", "ratio");
    for (int half = 0; columns.energy && half < 2; half++)
        fprintf(out, energy, "(J)", "(W)", "(J)", "(W)");
    fprintf(out, "\n");
}

struct twill_bench_shares twill_bench_shares(const struct twill_bench_energy *energy)
{
    double machines = (double)energy->machines, ranks = (double)energy->ranks;
    return (struct twill_bench_shares){
        .machine_joules = energy->joules / machines,
        .machine_watts = energy->watts / machines,
        .rank_joules = energy->joules / ranks,
        .rank_watts = energy->watts / ranks,
    };
}

double twill_bench_stack(const struct twill_bench_timing *timing)
{
    double left = timing->seconds - timing->waiting - timing->wire;
    return left > 0 ? left : 0;
}

static void print_half(FILE *out, const struct twill_bench_timing *timing)
{
    if (timing->missing) {
        fprintf(out, "  %7s  %6s  %6s  %6s", "N/A", "N/A", "N/A", "N/A");
        return;
    }
    print_number(out, timing->seconds * 1e6, 7);
    print_number(out, timing->algorithm_bandwidth, 6);
    print_number(out, timing->bus_bandwidth, 6);
    if (timing->wrong < 0)
        fprintf(out, "  %6s", "N/A");
    else
        fprintf(out, "  %6g", (double)timing->wrong);
}

static void print_each(FILE *out, const struct twill_bench_statistics *each)
{
    print_number(out, each->min * 1e6, 7);
    print_number(out, each->max * 1e6, 7);
    print_number(out, each->p99 * 1e6, 7);
    print_number(out, each->cv, 6);
}

static void print_overlap(FILE *out, const struct twill_bench_timing *timing)
{
    print_number(out, timing->overall * 1e6, 9);
    print_number(out, timing->compute * 1e6, 9);
    print_number(out, timing->seconds * 1e6, 9);
    print_number(out, timing->overlap, 7);
}

static void print_energy(FILE *out, const struct twill_bench_energy *energy)
{
    if (!energy->known) {
        fprintf(out, "  %7s  %7s  %7s  %7s", "n/a", "n/a", "n/a", "n/a");
        return;
    }
    struct twill_bench_shares shares = twill_bench_shares(energy);
    print_number(out, shares.machine_joules, 7);
    print_number(out, shares.machine_watts, 7);
    print_number(out, shares.rank_joules, 7);
    print_number(out, shares.rank_watts, 7);
}

void twill_bench_print_row(FILE *out, const struct twill_bench_row *row,
                           struct twill_bench_columns columns)
{
    fprintf(out, "%12zu  %12zu  %8s  %6s  %6d", row->bytes, row->count, row->type, row->op,
            row->root);
    print_half(out, &row->out_of_place);
    print_half(out, &row->in_place);
    if (columns.each) {
        print_each(out, &row->out_of_place.each);
        print_each(out, &row->in_place.each);
    }
    if (columns.overlap)
        print_overlap(out, &row->out_of_place);
    if (columns.times) {
        print_number(out, row->out_of_place.waiting * 1e6, 7);
        print_number(out, row->out_of_place.wire * 1e6, 7);
        print_number(out, twill_bench_stack(&row->out_of_place) * 1e6, 7);
    }
    if (columns.reproducible) {
        double seconds = row->out_of_place.seconds, strict = row->out_of_place.reproducible;
        print_number(out, strict * 1e6, 7);
        print_number(out, seconds > 0 ? strict / seconds : 0, 6);
    }
    if (columns.narrow) {
        double seconds = row->out_of_place.seconds, narrow = row->out_of_place.narrow;
        print_number(out, narrow * 1e6, 7);
        print_number(out, seconds > 0 ? narrow / seconds : 0, 6);
        if (row->out_of_place.narrow_bytes > 0)
            print_number(out, row->out_of_place.narrow_bytes, 6);
        else /* nothing was sent or copied: buffers are mapped */
            fprintf(out, "  %6s", "N/A");
    }
    if (columns.energy) {
        print_energy(out, &row->out_of_place.energy);
        print_energy(out, &row->in_place.energy);
    }
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
    print_half(out, &row->in_place);
    if (each)
        print_each(out, &row->in_place.each);
    fprintf(out, "\n");
}

void twill_bench_print_footer(FILE *out, size_t failures, double bandwidth, const char *program)
{
    fprintf(out, "# %-20s : %zu %s\n", "Out of bounds values", failures,
            failures ? "FAILED" : "OK");
    fprintf(out, "# %-20s : %g\n#\n", "Avg bus bandwidth", bandwidth);
    fprintf(out, "# Collective test concluded: %s\n", program);
}
