/* SPDX-License-Identifier: Apache-2.0 */
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
