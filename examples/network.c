/* SPDX-License-Identifier: Apache-2.0 */
/* Forward and backward passes of the example's network. The inner loop is over hidden units, so
 * that compilers vectorise it without changing the order of sums. */
#include "network.h"

#include "dataset.h"

#include <math.h>
#include <stdlib.h>

size_t example_network_parameters(size_t features, size_t hidden)
{
    return features * hidden + 2 * hidden + 1;
}

int example_network_create(struct example_network *network, size_t features, size_t hidden,
                           double *gradient)
{
    size_t parameters = example_network_parameters(features, hidden);
    *network = (struct example_network){features, hidden, parameters, NULL, gradient, NULL};
    network->weights = calloc(parameters, sizeof(double));
    network->scratch = calloc(2 * hidden, sizeof(double));
    return network->weights && network->gradient && network->scratch ? 0 : -1;
}

void example_network_free(struct example_network *network)
{
    free(network->weights);
    free(network->scratch);
    *network = (struct example_network){0};
}

/* Glorot and Bengio (2010): uniform within sqrt(6 / (in + out)). */
void example_network_randomise(struct example_network *network, uint64_t seed)
{
    size_t inner = network->features * network->hidden;
    double *output = network->weights + inner + network->hidden;
    double first = sqrt(6.0 / (double)(network->features + network->hidden));
    double second = sqrt(6.0 / (double)(network->hidden + 1));
    for (size_t i = 0; i < inner; i++)
        network->weights[i] = first * (2 * example_uniform(&seed) - 1);
    for (size_t j = 0; j < network->hidden; j++)
        output[j] = second * (2 * example_uniform(&seed) - 1);
}

double example_network_forward(struct example_network *network, const float *features)
{
    size_t hidden = network->hidden;
    const double *weights = network->weights, *biases = weights + network->features * hidden;
    const double *output = biases + hidden;
    double *units = network->scratch;
    for (size_t j = 0; j < hidden; j++)
        units[j] = biases[j];
    for (size_t i = 0; i < network->features; i++)
        for (size_t j = 0; j < hidden; j++)
            units[j] += (double)features[i] * weights[i * hidden + j];
    double logit = output[hidden];
    for (size_t j = 0; j < hidden; j++) {
        units[j] = tanh(units[j]);
        logit += output[j] * units[j];
    }
    return logit;
}

double example_network_loss(double logit, int label)
{
    double margin = label ? logit : -logit;
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

void example_network_backward(struct example_network *network, const float *features, int label)
{
    size_t hidden = network->hidden, inner = network->features * hidden;
    double logit = example_network_forward(network, features);
    double error = 1 / (1 + exp(-logit)) - label;
    const double *output = network->weights + inner + hidden;
    double *gradient = network->gradient, *units = network->scratch, *delta = units + hidden;
    for (size_t j = 0; j < hidden; j++) {
        delta[j] = error * output[j] * (1 - units[j] * units[j]);
        gradient[inner + j] += delta[j];
        gradient[inner + hidden + j] += error * units[j];
    }
    gradient[inner + 2 * hidden] += error;
    for (size_t i = 0; i < network->features; i++)
        for (size_t j = 0; j < hidden; j++)
            gradient[i * hidden + j] += (double)features[i] * delta[j];
    gradient[network->parameters] += example_network_loss(logit, label);
}

void example_network_step(struct example_network *network, double rate)
{
    for (size_t i = 0; i < network->parameters; i++)
        network->weights[i] -= rate * network->gradient[i];
}
