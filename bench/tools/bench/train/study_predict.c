/* SPDX-License-Identifier: Apache-2.0 */
/* Predicts steps by the price model of the library, as twill-info --why shows prices. */
#include "bench/tools/bench/train/study.h"

#include <stdlib.h>
#include <string.h>

size_t twill_study_per_node(const struct twill_study *study)
{
    return study->options.per_node > 0 ? study->options.per_node : study->fullest;
}

/* Return the seconds of a candidate as measured (TWILL_TUNING), or -1 if it was not. `question` is
 * one for twill_context_why(), and `candidate` a name in the lines that it returns. */
static double measured_cost(twill_context *context, const char *question, const char *candidate)
{
    const char *line = NULL;
    for (size_t i = 0; (line = twill_context_why(context, question, i)) != NULL; i++) {
        char name[128], cost[32];
        unsigned entries = 0;
        if (sscanf(line, "candidate\t%127[^\t]\t%*[^\t]\t%31[0-9]\t%u", name, cost, &entries) ==
                3 &&
            entries > 0 && strcmp(name, candidate) == 0)
            return strtod(cost, NULL) * 1e-12;
    }
    return -1;
}

/* Return the seconds of a collective by the algorithm that would be chosen for it. They are
 * measured ones if a tuning file has them, else those of the price model. Returns -1 if the choice
 * has no price. */
static double price(const struct twill_study *study, const struct twill_study_row *row,
                    const char *collective, size_t bytes)
{
    char question[256], name[128] = "", picoseconds[32] = "";
    const char *line = NULL;
    size_t per_node = row->step.ranks / row->nodes;
    snprintf(question, sizeof(question), "%s %zu f32 world=%zux%zu mapped%s%s", collective, bytes,
             row->nodes, per_node, study->options.machine != NULL ? " machine=" : "",
             study->options.machine != NULL ? study->options.machine : "");
    for (size_t i = 0; (line = twill_context_why(study->run.context, question, i)) != NULL; i++)
        if (sscanf(line, "chosen\t%127[^\t]\t%31[0-9]", name, picoseconds) == 2)
            break;
    if (picoseconds[0] == '\0')
        return -1;
    double cost = measured_cost(study->run.context, question, name);
    return cost >= 0 ? cost : strtod(picoseconds, NULL) * 1e-12;
}

/* Read the bytes of bucket `index`, and the lowest index of its tensors, whose gradient is the last
 * to be there. Returns false after the last bucket. */
static bool read_bucket(twill_gradients *set, size_t index, size_t *bytes, size_t *key)
{
    const char *line = twill_gradients_describe(set, index + 1);
    if (line == NULL || strncmp(line, "bucket ", 7) != 0 || strchr(line, ':') == NULL)
        return false;
    const char *name = strstr(line, ", '");
    return name != NULL && sscanf(strchr(line, ':'), ": %*u %*[a-z], %zu", bytes) == 1 &&
           sscanf(name, ", '%zu", key) == 1;
}

/* Return the seconds of the backward pass until the gradient of a tensor is there. */
static double backward_until(const struct twill_study *study, size_t key)
{
    double seconds = 0;
    for (size_t i = study->run.list.keys; i-- > key;)
        seconds += 2 * study->play.forward[i];
    return seconds;
}

/* Return the exposed time of the buckets, or -1 without a price. *all is the sum of prices. */
static double predict_set(struct twill_study *study, const struct twill_study_row *row, double *all)
{
    struct twill_study_bucket *buckets = study->buckets;
    size_t n = 0, bytes = 0, key = 0;
    for (*all = 0; n < study->run.list.keys && read_bucket(study->play.set, n, &bytes, &key); n++) {
        buckets[n].ready = backward_until(study, key);
        buckets[n].seconds = row->step.ranks > 1 ? price(study, row, "allreduce", bytes) : 0;
        if (buckets[n].seconds < 0)
            return -1;
        *all += buckets[n].seconds;
    }
    return twill_study_predict_exposed(buckets, n, backward_until(study, 0));
}

/* Return the seconds of a broadcast from a root and a reduction to it, 0 with one rank, or -1
 * without a price. */
static double predict_root(const struct twill_study *study, const struct twill_study_row *row)
{
    size_t bytes = (size_t)study->run.list.total * sizeof(float);
    if (row->step.ranks == 1)
        return 0;
    double out = price(study, row, "broadcast", bytes), back = price(study, row, "reduce", bytes);
    return out < 0 || back < 0 ? -1 : out + back;
}

void twill_study_predict(struct twill_study *study, struct twill_study_row *row)
{
    double all = 0, exposed;
    if (row->predicted) {
        size_t per_node = twill_study_per_node(study);
        row->nodes = (row->step.ranks + per_node - 1) / per_node;
    }
    if (row->pattern == TWILL_STUDY_ROOT)
        all = exposed = predict_root(study, row);
    else
        exposed = predict_set(study, row, &all);
    row->model = exposed < 0 ? -1 : row->compute + exposed;
    if (!row->predicted)
        return;
    row->communication = exposed < 0 ? -1 : all;
    row->exposed = exposed < 0 ? 0 : exposed;
    row->step.seconds = row->model;
}
