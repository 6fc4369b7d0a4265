/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a campaign at its end, with the times of the survivors. */
#include "tests/system/campaign/campaign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static bool has_nodes(const struct campaign_trial *trial)
{
    return trial->hosts > 1 || strpbrk(trial->layout, "x+") != NULL;
}

/* Print percentiles of the trials of one fault, on one node or on several. */
static void print_times(const struct campaign_result *results, int count, int fault, bool nodes)
{
    double *verdict = calloc((size_t)count, sizeof(*verdict)),
           *sum = calloc((size_t)count, sizeof(*sum));
    size_t n = 0, beyond = 0;
    for (int i = 0; i < count && verdict != NULL && sum != NULL; i++) {
        const struct campaign_result *r = &results[i];
        if (r->has_times && (int)r->trial.fault == fault && has_nodes(&r->trial) == nodes) {
            beyond += r->times.own > r->times.bound;
            verdict[n] = r->times.verdict;
            sum[n++] = r->times.sum;
        }
    }
    if (n > 0) {
        qsort(verdict, n, sizeof(*verdict), compare);
        qsort(sum, n, sizeof(*sum), compare);
        printf("%-10s %-8s %6zu   %6.3f %6.3f %6.3f %6zu   %6.3f %6.3f %6.3f\n",
               campaign_fault_names[fault], nodes ? "several" : "one", n, verdict[n / 2],
               verdict[n * 99 / 100], verdict[n - 1], beyond, sum[n / 2], sum[n * 99 / 100],
               sum[n - 1]);
    }
    free(verdict);
    free(sum);
}

/* Return the seconds from the fault to a time; 0: it has not come. */
static double after(const struct campaign_job *job, uint64_t when)
{
    return when != 0 ? (double)(int64_t)(when - job->fault_ns) * 1e-9 : 0;
}

void campaign_report_ranks(const struct campaign_job *job)
{
    for (int r = 0; r < campaign_processes(&job->trial); r++) {
        const struct campaign_rank *shown = &job->rank[r];
        uint64_t before = job->usage[r].waited_ns, to = shown->usage.waited_ns;
        uint64_t whole = shown->whole.waited_ns;
        fprintf(stderr,
                "  rank %d: error after %.3f s (%.3f s without a core), shrunk after %.3f s, left "
                "after %.3f s (%.3f s without a core), status %d: \"%s\"\n",
                r, after(job, shown->verdict_ns), to > before ? (double)(to - before) * 1e-9 : 0,
                after(job, shown->shrunk_ns), after(job, shown->left_ns),
                whole > before ? (double)(whole - before) * 1e-9 : 0, (int)shown->end,
                shown->last[0] != '\0' ? shown->last : shown->first);
    }
}

void campaign_report_trial(const struct campaign_result *result)
{
    fprintf(stderr, "trial %d: %s", result->trial.number, result->failed ? "failed" : "passed");
    if (result->has_times)
        fprintf(stderr, ": %s: error after %.3f s, sum after %.3f s",
                campaign_fault_names[result->trial.fault], result->times.verdict,
                result->times.sum);
    fputc('\n', stderr);
}

int campaign_report(const struct campaign_result *results, int count, double seconds)
{
    int failed = 0, done = 0;
    for (int i = 0; i < count; i++) {
        failed += results[i].failed;
        done += results[i].done;
    }
    printf("seconds from the fault to the last survivor's error (beyond: later than\n"
           "twill_comm_bounds() says, as ranks waited for a core), and to its first right sum\n"
           "%-10s %-8s %6s   %6s %6s %6s %6s   %6s %6s %6s\n",
           "fault", "nodes", "trials", "median", "99 %", "most", "beyond", "median", "99 %",
           "most");
    for (int fault = 0; fault < FAULT_COUNT; fault++) {
        print_times(results, count, fault, false);
        print_times(results, count, fault, true);
    }
    printf("%d trials in %.0f s, %d failed\n", done, seconds, failed);
    return failed != 0 || done != count;
}
