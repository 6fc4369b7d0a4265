/* SPDX-License-Identifier: Apache-2.0 */
/* The data of the preflight and its findings, with some arithmetic. */
#include "fabric/launcher/preflight/preflight.h"

#include <stdlib.h>
#include <string.h>

#define PREFLIGHT_KIND(NOUN, name, of, help) {#name, help},
const struct preflight_check_kind preflight_checks[PREFLIGHT_CHECK_COUNT] = {
    PREFLIGHT_CHECKS(PREFLIGHT_KIND)};
#undef PREFLIGHT_KIND

bool preflight_open(struct preflight *all, int hosts)
{
    size_t count = (size_t)hosts;
    *all = (struct preflight){.hosts = hosts};
    all->host = calloc(count, sizeof(*all->host));
    all->link = calloc(count * count, sizeof(*all->link));
    return all->host && all->link;
}

void preflight_close(struct preflight *all)
{
    for (int i = 0; i < all->hosts && all->host; i++)
        free(all->host[i].rank);
    for (size_t i = 0; i < all->findings; i++)
        free(all->finding[i].host);
    free(all->finding);
    free(all->host);
    free(all->link);
    free(all->job.host);
    free(all->job.pair);
    *all = (struct preflight){.hosts = 0};
}

size_t preflight_count(const struct preflight *all, bool problems)
{
    size_t count = 0;
    for (size_t i = 0; i < all->findings; i++)
        count += all->finding[i].problem == problems;
    return count;
}

struct preflight_link *preflight_link_of(const struct preflight *all, int from, int to)
{
    return &all->link[(size_t)from * (size_t)all->hosts + (size_t)to];
}

bool preflight_link_counts(const struct preflight *all, int from, int to)
{
    return from != to && all->host[from].answered && all->host[to].answered &&
           all->host[from].facts.port > 0 && all->host[to].facts.port > 0;
}

const char *preflight_reach_name(enum preflight_reach reach)
{
    static const char *const names[] = {
        [PREFLIGHT_UNTRIED] = "not tried",       [PREFLIGHT_GOOD] = "good",
        [PREFLIGHT_REFUSED] = "refused",         [PREFLIGHT_DROPPED] = "dropped",
        [PREFLIGHT_UNREACHABLE] = "unreachable", [PREFLIGHT_STALLED] = "stalled",
        [PREFLIGHT_FAILED] = "failed",
    };
    return names[reach];
}

bool preflight_cpus_parse(uint64_t bits[PREFLIGHT_CPUS / 64], const char *text)
{
    memset(bits, 0, PREFLIGHT_CPUS / 8);
    while (*text) {
        char *end;
        long low = strtol(text, &end, 10), high = low;
        if (end == text)
            return false;
        if (*end == '-') {
            text = end + 1;
            high = strtol(text, &end, 10);
            if (end == text)
                return false;
        }
        if (low < 0 || high < low || high >= PREFLIGHT_CPUS || (*end != ',' && *end != '\0'))
            return false;
        for (long cpu = low; cpu <= high; cpu++)
            bits[cpu / 64] |= UINT64_C(1) << (cpu % 64);
        text = *end == ',' ? end + 1 : end;
    }
    return true;
}

const char *preflight_bytes(char text[32], int64_t bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"};
    double value = (double)bytes;
    size_t unit = 0;
    if (bytes < 0) {
        snprintf(text, 32, "unlimited");
        return text;
    }
    for (; value >= 1024 && unit + 1 < sizeof(units) / sizeof(units[0]); unit++)
        value /= 1024;
    snprintf(text, 32, value < 10 && unit > 0 ? "%.1f %s" : "%.0f %s", value, units[unit]);
    return text;
}

const char *preflight_measure(char text[32], double value)
{
    snprintf(text, 32, "%.*f", value < 10 ? 2 : value < 100 ? 1 : 0, value);
    return text;
}

/* Compare two doubles for qsort(). */
static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double preflight_median(double *value, size_t n)
{
    qsort(value, n, sizeof(*value), compare_doubles);
    return n % 2 == 1 ? value[n / 2] : (value[n / 2 - 1] + value[n / 2]) / 2;
}

double preflight_deviation(const double *value, size_t n, double median)
{
    double *distance = malloc(n * sizeof(*distance)), result = 0;
    for (size_t i = 0; i < n && distance; i++)
        distance[i] = value[i] > median ? value[i] - median : median - value[i];
    if (distance)
        result = preflight_median(distance, n);
    free(distance);
    return result;
}
