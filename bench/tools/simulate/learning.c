/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/tools/simulate/simulation.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double simulation_factor(const struct simulation_problem *problem, uint64_t staleness,
                         double distance)
{
    if (problem->rule == RATE_STALENESS && staleness > 1)
        return 1.0 / (double)staleness;
    if (problem->rule == RATE_DISTANCE)
        return distance * problem->distance_most > problem->distance_c
                   ? problem->distance_c / distance
                   : problem->distance_most;
    return 1;
}

bool learning_create(struct learning *learning, const struct simulation_problem *problem,
                     uint32_t actors)
{
    uint32_t n = problem->dimensions;
    *learning = (struct learning){.problem = problem};
    if (n == 0)
        return true;
    learning->curvature = calloc(n, sizeof(double));
    learning->values = calloc(n, sizeof(double));
    learning->sums = calloc(n, sizeof(double));
    learning->copies = calloc((size_t)n * actors, sizeof(double));
    if (learning->curvature == NULL || learning->values == NULL || learning->sums == NULL ||
        learning->copies == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        learning->curvature[i] = n > 1 ? pow(problem->condition, -(double)i / (n - 1)) : 1;
        learning->values[i] = 1;
    }
    return true;
}

void learning_free(struct learning *learning)
{
    free(learning->curvature);
    free(learning->values);
    free(learning->sums);
    free(learning->copies);
}

void learning_read(struct learning *learning, uint32_t actor, struct learning_range range)
{
    if (learning->problem->dimensions > 0)
        memcpy(learning->copies + (size_t)actor * learning->problem->dimensions + range.first,
               learning->values + range.first, (range.end - range.first) * sizeof(double));
}

void learning_add(struct learning *learning, uint32_t actor, struct learning_range range,
                  uint32_t members, uint64_t staleness, struct random_source *random)
{
    const struct simulation_problem *problem = learning->problem;
    if (problem->dimensions == 0)
        return;
    const double *copy = learning->copies + (size_t)actor * problem->dimensions;
    double distance = 0, noise = problem->noise / sqrt(members);
    for (uint32_t i = range.first; i < range.end; i++)
        distance += (learning->values[i] - copy[i]) * (learning->values[i] - copy[i]);
    double rate = problem->rate * simulation_factor(problem, staleness, distance);
    for (uint32_t i = range.first; i < range.end; i++) {
        double gradient = learning->curvature[i] * copy[i];
        if (noise > 0)
            gradient += noise * random_normal(random);
        learning->sums[i] += rate * gradient;
    }
}

void learning_update(struct learning *learning, struct learning_range range, uint32_t gradients)
{
    if (learning->problem->dimensions == 0)
        return;
    for (uint32_t i = range.first; i < range.end; i++) {
        learning->values[i] -= learning->sums[i] / gradients;
        learning->sums[i] = 0;
    }
}

double learning_loss(const struct learning *learning)
{
    double loss = 0;
    for (uint32_t i = 0; i < learning->problem->dimensions; i++)
        loss += 0.5 * learning->curvature[i] * learning->values[i] * learning->values[i];
    return loss;
}
