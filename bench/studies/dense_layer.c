/* SPDX-License-Identifier: Apache-2.0 */
/* Times a dense layer whose factors are gathered beside one whose gradient is reduced: README.md.
 */
#include "bench/common/report.h"
#include "lib/twill_train.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define STEPS_MOST 100

struct dense_layer {
    size_t rows, columns, samples;
    float *errors, *activations;
};

static bool fails(const char *call, twill_status status, const char *message)
{
    if (status != TWILL_OK)
        fprintf(stderr, "%s: %s\n", call, message);
    return status != TWILL_OK;
}

static twill_gradients *make_set(twill_comm *comm, const struct dense_layer *layer,
                                 twill_factors_choice choice)
{
    twill_gradients *set;
    twill_gradients_options options;
    const twill_tensor tensor = {
        .name = "dense", .count = layer->rows * layer->columns, .type = TWILL_F32};
    twill_gradients_defaults(&options);
    options.factors = choice;
    if (fails("create", twill_gradients_create(&set, comm, &options), twill_comm_message(comm)))
        return NULL;
    if (fails("add",
              twill_gradients_add_dense(set, &tensor, layer->rows, layer->columns, layer->samples,
                                        NULL),
              twill_gradients_message(set)) ||
        fails("commit", twill_gradients_commit(set), twill_gradients_message(set))) {
        twill_gradients_destroy(set);
        return NULL;
    }
    return set;
}

/* Run a step. Returns its seconds, or a negative number. */
static double run_step(twill_comm *comm, twill_gradients *set, const struct dense_layer *layer)
{
    if (fails("barrier", twill_barrier(comm), twill_comm_message(comm)))
        return -1;
    double from = twill_bench_now();
    if (fails("ready",
              twill_gradients_ready_factors(set, 0, layer->errors, layer->activations,
                                            layer->samples),
              twill_gradients_message(set)) ||
        fails("wait", twill_gradients_wait_all(set), twill_gradients_message(set)))
        return -1;
    return twill_bench_now() - from;
}

static void print_times(const char *name, const twill_gradients *set, double *seconds, int steps)
{
    twill_gradients_counters counters;
    struct twill_bench_statistics times = twill_bench_statistics(seconds, (size_t)steps);
    (void)twill_gradients_count(set, &counters);
    printf("%-17s %10.1f MB a rank and step  %10.3f ms a step (median; least %.3f)\n", name,
           (double)counters.bytes_exchanged / (double)counters.steps * 1e-6, times.median * 1e3,
           times.min * 1e3);
}

/* Run steps of both ways in turns, after one that is not counted. */
static int measure(twill_comm *comm, const struct dense_layer *layer, int steps)
{
    static const char *const names[] = {"factors gathered", "gradient reduced"};
    double seconds[2][STEPS_MOST];
    twill_gradients *set[2] = {make_set(comm, layer, TWILL_FACTORS_GATHERED), NULL};
    if (set[0] != NULL)
        set[1] = make_set(comm, layer, TWILL_FACTORS_REDUCED);
    bool ok = set[1] != NULL;
    for (int step = -1; ok && step < steps; step++)
        for (int way = 0; ok && way < 2; way++) {
            double took = run_step(comm, set[way], layer);
            ok = took >= 0;
            if (step >= 0)
                seconds[way][step] = took;
        }
    for (int way = 0; ok && twill_comm_rank(comm) == 0 && way < 2; way++)
        print_times(names[way], set[way], seconds[way], steps);
    size_t differ = 0;
    for (size_t i = 0; ok && i < layer->rows * layer->columns; i++) {
        float a = ((const float *)twill_gradients_result(set[0], 0))[i],
              b = ((const float *)twill_gradients_result(set[1], 0))[i];
        differ += !(fabsf(a - b) <= 1e-5f * fabsf(b) + 1e-6f);
    }
    if (ok && twill_comm_rank(comm) == 0)
        printf("elements that differ by more than rounding: %zu\n", differ);
    twill_gradients_destroy(set[0]);
    twill_gradients_destroy(set[1]);
    return ok && differ == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    struct dense_layer layer = {.rows = 200, .columns = 77376, .samples = 20};
    int steps = argc > 4 ? atoi(argv[4]) : 11, failed = 1;
    twill_comm *comm;
    if (argc > 3) {
        layer.rows = strtoul(argv[1], NULL, 10);
        layer.columns = strtoul(argv[2], NULL, 10);
        layer.samples = strtoul(argv[3], NULL, 10);
    }
    if (steps < 1 || steps > STEPS_MOST || twill_init(&comm) != TWILL_OK)
        return 2;
    layer.errors = calloc(layer.samples * layer.rows, sizeof(float));
    layer.activations = calloc(layer.samples * layer.columns, sizeof(float));
    if (layer.errors != NULL && layer.activations != NULL) {
        for (size_t i = 0; i < layer.samples * layer.rows; i++)
            layer.errors[i] = (float)(i % 17) / 16 - 0.5f;
        for (size_t i = 0; i < layer.samples * layer.columns; i++)
            layer.activations[i] = (float)(i % 23) / 32;
        failed = measure(comm, &layer, steps);
        twill_gradients *set = failed == 0 ? make_set(comm, &layer, TWILL_FACTORS_BY_PRICE) : NULL;
        if (set != NULL && twill_comm_rank(comm) == 0)
            printf("chosen: %s\n", twill_gradients_describe(set, 1));
        twill_gradients_destroy(set);
    }
    free(layer.errors);
    free(layer.activations);
    twill_finalize(comm);
    return failed;
}
