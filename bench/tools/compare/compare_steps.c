/* SPDX-License-Identifier: Apache-2.0 */
/* --steps: training steps of models, with the computing played, whose gradients each contender
 * reduces: by tensor (twill: a gradient set), and all in one call. The table shows what a step
 * takes beyond its computing. */
#include "bench/common/gradient_list.h"
#include "bench/common/report.h"
#include "bench/tools/compare/compare.h"
#include "bench/tools/compare/peers/played_compute.h"
#include "lib/base/plural.h"

#include <stdlib.h>
#include <string.h>

static const char *const way_names[] = {
    [TWILL_COMPARE_BY_TENSOR] = "by tensor", [TWILL_COMPARE_FUSED] = "one call"};

const char *twill_compare_way(const struct twill_compare_run *run,
                              const struct twill_compare_step_result *result)
{
    bool set = run->contenders[result->contender].kind == TWILL_COMPARE_TWILL &&
               result->way == TWILL_COMPARE_BY_TENSOR;
    return set ? "gradient set" : way_names[result->way];
}

/* Fill in the model from a list. Returns false after a message. */
static bool read_model(const struct twill_compare_run *run, const char *path,
                       struct twill_compare_model *model)
{
    char message[512] = "";
    struct twill_bench_list list;
    bool good = twill_bench_list_read(&list, path, message, sizeof(message));
    if (good && (list.keys > TWILL_COMPARE_TENSORS || list.all_work == 0)) {
        twill_compare_write(message, sizeof(message), "%s: %s", path,
                            list.all_work == 0 ? "no layer has multiply-adds"
                                               : "more than 1024 tensors");
        good = false;
    }
    memset(model, 0, sizeof(*model));
    model->device = run->options.played.device;
    model->turns_per_second = played_speed();
    for (uint64_t first = 0; good && model->tensors < list.keys; model->tensors++) {
        uint32_t i = model->tensors;
        double forward = twill_bench_list_seconds(&list, i, run->options.played.batch,
                                                  (double)run->options.played.gflops);
        model->tensor[i] = (struct twill_compare_tensor){list.elements[i], first, forward};
        first += list.elements[i];
    }
    twill_bench_list_free(&list);
    if (!good)
        fprintf(stderr, "twill-compare: --steps: %s\n", message);
    return good;
}

static uint64_t model_bytes(const struct twill_compare_model *model)
{
    const struct twill_compare_tensor *last = &model->tensor[model->tensors - 1];
    return (last->first + last->elements) * sizeof(float);
}

/* Add the samples of a turn, those of the slowest rank: even batches are computing alone. */
static bool take_steps(const struct twill_compare_board *board,
                       struct twill_compare_step_result *result)
{
    size_t steps = (size_t)board->batches / 2;
    double *samples[2] = {result->compute, result->step};
    for (int which = 0; which < 2; which++) {
        samples[which] = realloc(samples[which], (result->samples + steps) * sizeof(double));
        if (samples[which] == NULL)
            return false;
        *(which ? &result->step : &result->compute) = samples[which];
        for (size_t i = 0; i < steps; i++) {
            double *slowest = &samples[which][result->samples + i];
            *slowest = 0;
            for (int rank = 0; rank < board->ranks; rank++) {
                double seconds = board->seconds[rank][2 * i + (size_t)which];
                *slowest = seconds > *slowest ? seconds : *slowest;
            }
        }
    }
    result->samples += steps;
    return true;
}

/* Let a contender make steps in one way. */
static bool run_turn(struct twill_compare_run *run, const struct twill_compare_model *model,
                     struct twill_compare_step_result *result)
{
    struct twill_compare_contender *contender = &run->contenders[result->contender];
    struct twill_compare_order order = {.collective = TWILL_COMPARE_ALLREDUCE,
                                        .bytes = model_bytes(model),
                                        .step = (uint32_t)result->way,
                                        .least = run->options.quick ? 1 : 3};
    if (contender->absent[0] != '\0')
        return true;
    contender->board->model = *model;
    if (!twill_compare_turn(run, contender, &order))
        return true; /* it is excluded, the others go on */
    uint64_t wrong = 0;
    for (int rank = 0; rank < contender->board->ranks; rank++)
        wrong += contender->board->wrong[rank];
    if (wrong > 0) {
        result->wrong = true;
        run->failures += contender->kind != TWILL_COMPARE_PEER;
        fprintf(stderr, "twill-compare: %s: %llu wrong value%s in a step, %s\n", contender->name,
                (unsigned long long)wrong, TWILL_PLURAL(wrong), twill_compare_way(run, result));
    }
    return take_steps(contender->board, result);
}

/* Measure the steps of one model. */
static bool measure_model(struct twill_compare_run *run, const char *path,
                          struct twill_compare_model *model)
{
    int ways = 2 * run->n_contenders;
    struct twill_compare_step_result *results = &run->steps[run->n_steps];
    if (!read_model(run, path, model))
        return false;
    for (int i = 0; i < ways; i++)
        results[i] = (struct twill_compare_step_result){.list = path,
                                                        .contender = i / 2,
                                                        .way = i % 2 ? TWILL_COMPARE_FUSED
                                                                     : TWILL_COMPARE_BY_TENSOR,
                                                        .bytes = (size_t)model_bytes(model)};
    run->n_steps += ways;
    bool good = true;
    for (int round = 0; round < run->options.rounds; round++)
        for (int i = 0; i < ways && good; i++) {
            struct twill_compare_step_result *result = &results[(i + round) % ways];
            twill_compare_progress(run, run->contenders[result->contender].name);
            good = !twill_compare_interrupted(run) && run_turn(run, model, result);
        }
    for (int i = 0; i < ways; i++) {
        if (results[i].samples == 0)
            continue;
        results[i].compute_median =
            twill_bench_statistics(results[i].compute, results[i].samples).median;
        results[i].step_median = twill_bench_statistics(results[i].step, results[i].samples).median;
    }
    return good;
}

bool twill_compare_measure_steps(struct twill_compare_run *run)
{
    const struct twill_compare_options *options = &run->options;
    struct twill_compare_model *model = malloc(sizeof(*model));
    bool good = model != NULL;
    run->steps = calloc((size_t)options->played.n_lists * 2 * (size_t)run->n_contenders,
                        sizeof(*run->steps));
    good = good && run->steps != NULL;
    run->turns =
        (size_t)options->played.n_lists * 2 * (size_t)run->n_contenders * (size_t)options->rounds;
    twill_bench_progress_begin(&run->progress, true);
    for (int i = 0; good && i < options->played.n_lists; i++)
        good = measure_model(run, options->played.lists[i], model);
    twill_bench_progress_clear(&run->progress);
    free(model);
    return good;
}

void twill_compare_free_steps(struct twill_compare_run *run)
{
    for (int i = 0; i < run->n_steps; i++) {
        free(run->steps[i].compute);
        free(run->steps[i].step);
    }
    free(run->steps);
}

/* --- the table ------------------------------------------------------------------------------- */

double twill_compare_exposed(const struct twill_compare_step_result *result)
{
    return result->step_median - result->compute_median;
}

/* Return the result of this list and kind with the least exposed, or NULL. */
static const struct twill_compare_step_result *
least_exposed(const struct twill_compare_run *run, const char *list, enum twill_compare_kind kind)
{
    const struct twill_compare_step_result *best = NULL;
    for (int i = 0; i < run->n_steps; i++) {
        const struct twill_compare_step_result *one = &run->steps[i];
        if (one->list == list && one->samples > 0 && !one->wrong &&
            run->contenders[one->contender].kind == kind &&
            (best == NULL || twill_compare_exposed(one) < twill_compare_exposed(best)))
            best = one;
    }
    return best;
}

static void print_model(const struct twill_compare_run *run, FILE *out, const char *list)
{
    const struct twill_compare_step_result *mine = least_exposed(run, list, TWILL_COMPARE_TWILL);
    const struct twill_compare_step_result *other = least_exposed(run, list, TWILL_COMPARE_PEER);
    fprintf(out, "#\n# %s: times in ms\n", list);
    fprintf(out, "# %-16s %-12s %9s %9s %9s %7s\n", "", "reduces", "compute", "step", "exposed",
            "x");
    for (int i = 0; i < run->n_steps; i++) {
        const struct twill_compare_step_result *one = &run->steps[i];
        if (one->list != list || one->samples == 0)
            continue;
        double exposed = twill_compare_exposed(one);
        fprintf(out, "  %-16s %-12s %9.3f %9.3f %9.3f", run->contenders[one->contender].name,
                twill_compare_way(run, one), one->compute_median * 1e3, one->step_median * 1e3,
                exposed * 1e3);
        twill_compare_print_value(
            out, mine == NULL ? 0 : twill_compare_ratio(exposed, twill_compare_exposed(mine)), 8, 2,
            1);
        fprintf(out, "%s\n", one->wrong ? " wrong" : "");
    }
    if (mine != NULL && other != NULL)
        fprintf(out, "# exposed: %s (%s) %.3f, %s (%s) %.3f\n",
                run->contenders[mine->contender].name, twill_compare_way(run, mine),
                twill_compare_exposed(mine) * 1e3, run->contenders[other->contender].name,
                twill_compare_way(run, other), twill_compare_exposed(other) * 1e3);
}

void twill_compare_print_steps(const struct twill_compare_run *run, FILE *out)
{
    const struct twill_compare_options *options = &run->options;
    fprintf(
        out,
        "# training steps: batch %zu at %zu Gflop/s by %s; medians of the slowest rank's times\n"
        "# exposed: step - compute; x: exposed over twill's least\n",
        options->played.batch, options->played.gflops,
        options->played.device ? "a device" : "the rank's core");
    for (int i = 0; i < options->played.n_lists; i++)
        print_model(run, out, options->played.lists[i]);
}
