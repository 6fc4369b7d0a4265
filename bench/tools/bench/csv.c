/* SPDX-License-Identifier: Apache-2.0 */
/* The table of twill-bench as comma-separated values. Times are microseconds, bandwidths GB/s;
 * unknown values are empty. */
#include "bench/common/report.h"

static void print_half_names(FILE *out, const char *half)
{
    fprintf(out, ",%stime_us,%salgbw_gbs,%sbusbw_gbs,%swrong", half, half, half, half);
}

static void print_each_names(FILE *out, const char *half)
{
    fprintf(out, ",%si_min_us,%si_max_us,%si_p99_us,%si_cv_percent", half, half, half, half);
}

static void print_energy_names(FILE *out, const char *half)
{
    fprintf(out, ",%snode_joules,%snode_watts,%srank_joules,%srank_watts", half, half, half, half);
}

void twill_bench_csv_header(FILE *out, struct twill_bench_columns columns)
{
    fprintf(out, "size_bytes,count,type,redop,root");
    print_half_names(out, "");
    print_half_names(out, "in_place_");
    if (columns.each) {
        print_each_names(out, "");
        print_each_names(out, "in_place_");
    }
    if (columns.overlap)
        fprintf(out, ",overall_us,compute_us,pure_us,overlap_percent");
    if (columns.times)
        fprintf(out, ",wait_us,wire_us,stack_us");
    if (columns.reproducible)
        fprintf(out, ",reproducible_us,reproducible_ratio");
    if (columns.narrow)
        fprintf(out, ",narrow_us,narrow_ratio,narrow_bytes_ratio");
    if (columns.energy) {
        print_energy_names(out, "");
        print_energy_names(out, "in_place_");
    }
    fprintf(out, "\n");
}

static void csv_print_half(FILE *out, const struct twill_bench_timing *timing)
{
    if (timing->missing) {
        fprintf(out, ",,,,");
        return;
    }
    fprintf(out, ",%.6g,%.6g,%.6g,", timing->seconds * 1e6, timing->algorithm_bandwidth,
            timing->bus_bandwidth);
    if (timing->wrong >= 0)
        fprintf(out, "%lld", (long long)timing->wrong);
}

static void csv_print_each(FILE *out, const struct twill_bench_statistics *each)
{
    fprintf(out, ",%.6g,%.6g,%.6g,%.6g", each->min * 1e6, each->max * 1e6, each->p99 * 1e6,
            each->cv);
}

static void csv_print_energy(FILE *out, const struct twill_bench_energy *energy)
{
    if (!energy->known) {
        fprintf(out, ",,,,");
        return;
    }
    struct twill_bench_shares shares = twill_bench_shares(energy);
    fprintf(out, ",%.6g,%.6g,%.6g,%.6g", shares.machine_joules, shares.machine_watts,
            shares.rank_joules, shares.rank_watts);
}

void twill_bench_csv_row(FILE *out, const struct twill_bench_row *row,
                         struct twill_bench_columns columns)
{
    const struct twill_bench_timing *timing = &row->out_of_place;
    fprintf(out, "%zu,%zu,%s,%s,%d", row->bytes, row->count, row->type, row->op, row->root);
    csv_print_half(out, timing);
    csv_print_half(out, &row->in_place);
    if (columns.each) {
        csv_print_each(out, &timing->each);
        csv_print_each(out, &row->in_place.each);
    }
    if (columns.overlap)
        fprintf(out, ",%.6g,%.6g,%.6g,%.6g", timing->overall * 1e6, timing->compute * 1e6,
                timing->seconds * 1e6, timing->overlap);
    if (columns.times)
        fprintf(out, ",%.6g,%.6g,%.6g", timing->waiting * 1e6, timing->wire * 1e6,
                twill_bench_stack(timing) * 1e6);
    if (columns.reproducible)
        fprintf(out, ",%.6g,%.6g", timing->reproducible * 1e6,
                timing->seconds > 0 ? timing->reproducible / timing->seconds : 0);
    if (columns.narrow)
        fprintf(out, ",%.6g,%.6g,%.6g", timing->narrow * 1e6,
                timing->seconds > 0 ? timing->narrow / timing->seconds : 0, timing->narrow_bytes);
    if (columns.energy) {
        csv_print_energy(out, &timing->energy);
        csv_print_energy(out, &row->in_place.energy);
    }
    fprintf(out, "\n");
}
