/* SPDX-License-Identifier: Apache-2.0 */
/* twill-simulate: how long updates of a parameter server take, and how stale its gradients are, for
 * modes, numbers of workers and laws of times. */
#include "bench/tools/simulate/simulate_tool.h"
#include "bench/common/exit_status.h"

#include <stdio.h>
#include <stdlib.h>

/* Add one of several runs to their sum; means are of all runs. */
static void add_run(struct simulation_result *sum, const struct simulation_result *run, size_t runs)
{
    double weight = 1 / (double)runs;
    sum->elapsed += run->elapsed;
    sum->updates += run->updates;
    sum->used += run->used;
    sum->dropped += run->dropped;
    sum->busy += run->busy;
    sum->push_mean += run->push_mean * weight;
    sum->pushes += run->pushes;
    sum->staleness_sum += run->staleness_sum;
    sum->floor += run->floor * weight;
    for (int i = 0; i < SIMULATION_STALENESS; i++)
        sum->staleness[i] += run->staleness[i];
    if (run->largest_staleness > sum->largest_staleness)
        sum->largest_staleness = run->largest_staleness;
    if (run->furthest_ahead > sum->furthest_ahead)
        sum->furthest_ahead = run->furthest_ahead;
    if (sum->diverged == 0)
        sum->diverged = run->diverged;
    for (int i = 0; i < SIMULATION_POINTS; i++) {
        sum->curve[i].time += run->curve[i].time * weight;
        sum->curve[i].loss += run->curve[i].loss * weight;
    }
}

/* Run a mode at a number of workers. Returns whether that could be done. */
static bool run_row(struct simulate_row *row, const struct simulate_request *request)
{
    struct simulation_rules rules;
    struct simulation_result *run = malloc(sizeof(*run));
    const char *wrong = "out of memory", *mode = simulation_mode_name(row->setup.choice.mode);
    bool good =
        run != NULL && simulation_rules_of(&rules, row->setup.choice, row->setup.workers, &wrong);
    for (size_t i = 0; good && i < request->runs; i++) {
        row->setup.seed = request->setup.seed + i;
        wrong = "out of memory";
        good = simulation_run(run, &row->setup);
        if (good)
            add_run(&row->result, run, request->runs);
    }
    row->expected = simulation_closed_form(&row->setup);
    if (!good)
        fprintf(stderr, "twill-simulate: %s:%u of %u workers: %s\n", mode,
                row->setup.choice.parameter, row->setup.workers, wrong);
    free(run);
    return good;
}

int main(int argc, char **argv)
{
    struct simulate_request request;
    int status = simulate_parse(&request, argc, argv);
    if (status < 0) {
        size_t count = 0;
        struct simulate_row *rows =
            calloc(request.worker_count * request.mode_count, sizeof(*rows));
        status = rows != NULL ? STATUS_GOOD : STATUS_FAILED;
        for (size_t w = 0; w < request.worker_count; w++) {
            for (size_t m = 0; status == STATUS_GOOD && m < request.mode_count; m++, count++) {
                rows[count].setup = request.setup;
                rows[count].setup.workers = request.workers[w];
                rows[count].setup.choice = request.modes[m];
                if (!run_row(&rows[count], &request))
                    status = STATUS_FAILED;
            }
        }
        if (status == STATUS_GOOD)
            simulate_print(&request, rows, count);
        free(rows);
    }
    law_free(&request.setup.compute);
    law_free(&request.setup.latency);
    law_free(&request.setup.service);
    return status;
}
