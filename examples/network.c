/* SPDX-License-Identifier: Apache-2.0 */
/* Forward and backward passes of the example's network. The inner loop is over hidden units, so
 * that compilers vectorise it without changing the order of sums. */
#include "network.h"

#include "dataset.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *example_network_tensor(int tensor)
{
    static const char *const names[] = {"hidden.weights", "hidden.biases", "output.weights",
                                        "output.bias"};
    return names[tensor];
}

int example_network_create(struct example_network *network, size_t features, size_t hidden,
                           size_t samples)
{
    *network = (struct example_network){.features = features, .hidden = hidden};
    network->count[HIDDEN_WEIGHTS] = features * hidden;
    network->count[HIDDEN_BIASES] = network->count[OUTPUT_WEIGHTS] = hidden;
    network->count[OUTPUT_BIAS] = 1;
    network->parameters = features * hidden + 2 * hidden + 1;
    network->units = calloc(samples + 1, hidden * sizeof(float));
    network->errors = calloc(samples + 1, sizeof(float));
    return network->units && network->errors ? 0 : -1;
}

void example_network_free(struct example_network *network)
{
    free(network->units);
    free(network->errors);
    *network = (struct example_network){0};
}

/* Glorot and Bengio (2010): uniform within sqrt(6 / (in + out)). Biases are 0. */
void example_network_randomise(struct example_network *network, uint64_t seed)
{
    double first = sqrt(6.0 / (double)(network->features + network->hidden));
    double second = sqrt(6.0 / (double)(network->hidden + 1));
    for (size_t i = 0; i < network->count[HIDDEN_WEIGHTS]; i++)
        network->weights[HIDDEN_WEIGHTS][i] = (float)(first * (2 * example_uniform(&seed) - 1));
    for (size_t j = 0; j < network->hidden; j++)
        network->weights[OUTPUT_WEIGHTS][j] = (float)(second * (2 * example_uniform(&seed) - 1));
}

float example_network_logit(const struct example_network *network, const float *features,
                            float *units)
{
    size_t hidden = network->hidden;
    const float *weights = network->weights[HIDDEN_WEIGHTS];
    memcpy(units, network->weights[HIDDEN_BIASES], hidden * sizeof(float));
    for (size_t i = 0; i < network->features; i++)
        for (size_t j = 0; j < hidden; j++)
            units[j] += features[i] * weights[i * hidden + j];
    float logit = network->weights[OUTPUT_BIAS][0];
    for (size_t j = 0; j < hidden; j++) {
        units[j] = tanhf(units[j]);
        logit += network->weights[OUTPUT_WEIGHTS][j] * units[j];
    }
    return logit;
}

double example_network_loss(float logit, int label)
{
    double margin = (double)(label ? logit : -logit);
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

double example_network_forward(struct example_network *network, const float *features,
                               const uint8_t *labels, size_t samples, float scale)
{
    double loss = 0;
    for (size_t s = 0; s < samples; s++) {
        float logit = example_network_logit(network, features + s * network->features,
                                            network->units + s * network->hidden);
        network->errors[s] = scale * (1 / (1 + expf(-logit)) - (float)labels[s]);
        loss += example_network_loss(logit, labels[s]);
    }
    return loss;
}

/* Write the output's gradients, and replace the hidden units by what their layer's are made of. */
static void backward_output(struct example_network *network, size_t samples)
{
    size_t hidden = network->hidden;
    const float *output = network->weights[OUTPUT_WEIGHTS];
    float *weights = network->gradient[OUTPUT_WEIGHTS], *bias = network->gradient[OUTPUT_BIAS];
    memset(weights, 0, hidden * sizeof(float));
    bias[0] = 0;
    for (size_t s = 0; s < samples; s++) {
        float error = network->errors[s], *units = network->units + s * hidden;
        bias[0] += error;
        for (size_t j = 0; j < hidden; j++) {
            weights[j] += error * units[j];
            units[j] = error * output[j] * (1 - units[j] * units[j]);
        }
    }
}

static void backward_hidden(struct example_network *network, const float *features, size_t samples)
{
    size_t hidden = network->hidden;
    float *weights = network->gradient[HIDDEN_WEIGHTS], *biases = network->gradient[HIDDEN_BIASES];
    memset(weights, 0, network->count[HIDDEN_WEIGHTS] * sizeof(float));
    memset(biases, 0, hidden * sizeof(float));
    for (size_t s = 0; s < samples; s++, features += network->features) {
        const float *delta = network->units + s * hidden;
        for (size_t j = 0; j < hidden; j++)
            biases[j] += delta[j];
        for (size_t i = 0; i < network->features; i++)
            for (size_t j = 0; j < hidden; j++)
                weights[i * hidden + j] += features[i] * delta[j];
    }
}

void example_network_backward(struct example_network *network, int layer, const float *features,
                              size_t samples)
{
    if (layer == EXAMPLE_LAYERS - 1)
        backward_output(network, samples);
    else
        backward_hidden(network, features, samples);
}

void example_network_step(struct example_network *network, float rate)
{
    for (int t = 0; t < EXAMPLE_TENSORS; t++)
        for (size_t i = 0; i < network->count[t]; i++)
            network->weights[t][i] -= rate * network->gradient[t][i];
}
