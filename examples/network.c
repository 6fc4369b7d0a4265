/* SPDX-License-Identifier: Apache-2.0 */
/* The inner loops of both passes are over hidden units, so that compilers vectorise them without
 * changing the order of sums. */
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
                           size_t classes, size_t samples)
{
    size_t outputs = classes > 2 ? classes : 1;
    *network = (struct example_network){.features = features, .hidden = hidden, .outputs = outputs};
    network->count[HIDDEN_WEIGHTS] = features * hidden;
    network->count[HIDDEN_BIASES] = hidden;
    network->count[OUTPUT_WEIGHTS] = hidden * outputs;
    network->count[OUTPUT_BIAS] = outputs;
    network->parameters = (features + 1) * hidden + (hidden + 1) * outputs;
    network->units = calloc(samples + 1, hidden * sizeof(float));
    network->errors = calloc(samples + 1, outputs * sizeof(float));
    return network->units && network->errors ? 0 : -1;
}

void example_network_free(struct example_network *network)
{
    free(network->units);
    free(network->errors);
    *network = (struct example_network){0};
}

void example_network_randomise(struct example_network *network, uint64_t seed)
{
    double first = sqrt(6.0 / (double)(network->features + network->hidden));
    double second = sqrt(6.0 / (double)(network->hidden + network->outputs));
    for (size_t i = 0; i < network->count[HIDDEN_WEIGHTS]; i++)
        network->weights[HIDDEN_WEIGHTS][i] = (float)(first * (2 * example_uniform(&seed) - 1));
    for (size_t j = 0; j < network->count[OUTPUT_WEIGHTS]; j++)
        network->weights[OUTPUT_WEIGHTS][j] = (float)(second * (2 * example_uniform(&seed) - 1));
}

/* Compute the hidden layer and the logits of the outputs of one sample. */
static void compute_logits(const struct example_network *network, const float *features,
                           float *units, float *logits)
{
    size_t hidden = network->hidden, outputs = network->outputs;
    const float *weights = network->weights[HIDDEN_WEIGHTS];
    memcpy(units, network->weights[HIDDEN_BIASES], hidden * sizeof(float));
    for (size_t i = 0; i < network->features; i++)
        for (size_t j = 0; j < hidden; j++)
            units[j] += features[i] * weights[i * hidden + j];
    memcpy(logits, network->weights[OUTPUT_BIAS], outputs * sizeof(float));
    weights = network->weights[OUTPUT_WEIGHTS];
    for (size_t j = 0; j < hidden; j++) {
        units[j] = tanhf(units[j]);
        for (size_t o = 0; o < outputs; o++)
            logits[o] += weights[j * outputs + o] * units[j];
    }
}

static size_t largest(const float *values, size_t count)
{
    size_t at = 0;
    for (size_t i = 1; i < count; i++)
        if (values[i] > values[at])
            at = i;
    return at;
}

/* Replace the logits by the gradient of the loss, which is the probabilities of the classes, less 1
 * at the label. Returns the loss. */
static double softmax_errors(float *logits, size_t outputs, int label)
{
    float most = logits[largest(logits, outputs)], sum = 0, of_label = logits[label] - most;
    for (size_t o = 0; o < outputs; o++)
        sum += logits[o] = expf(logits[o] - most);
    for (size_t o = 0; o < outputs; o++)
        logits[o] /= sum;
    logits[label] -= 1;
    return log((double)sum) - (double)of_label;
}

/* The same for a single logit, which is that of class 1. */
static double logistic_error(float *logit, int label)
{
    double margin = (double)(label ? *logit : -*logit);
    *logit = 1 / (1 + expf(-*logit)) - (float)label;
    return margin > 0 ? log1p(exp(-margin)) : log1p(exp(margin)) - margin;
}

static double compute_errors(const struct example_network *network, float *logits, int label)
{
    if (network->outputs > 1)
        return softmax_errors(logits, network->outputs, label);
    return logistic_error(logits, label);
}

double example_network_judge(struct example_network *network, const float *features, int label,
                             size_t *right)
{
    float *logits = network->errors;
    compute_logits(network, features, network->units, logits);
    size_t answer = network->outputs > 1 ? largest(logits, network->outputs) : logits[0] > 0;
    if (right != NULL)
        *right += answer == (size_t)label;
    return compute_errors(network, logits, label);
}

double example_network_forward(struct example_network *network, const float *features,
                               const uint8_t *labels, size_t samples, float scale)
{
    double loss = 0;
    for (size_t s = 0; s < samples; s++) {
        float *errors = network->errors + s * network->outputs;
        compute_logits(network, features + s * network->features,
                       network->units + s * network->hidden, errors);
        loss += compute_errors(network, errors, labels[s]);
        for (size_t o = 0; o < network->outputs; o++)
            errors[o] *= scale;
    }
    return loss;
}

/* Write the gradients of the output, and replace the hidden units by the deltas of their layer. */
static void backward_output(struct example_network *network, size_t samples)
{
    size_t hidden = network->hidden, outputs = network->outputs;
    const float *output = network->weights[OUTPUT_WEIGHTS];
    float *weights = network->gradient[OUTPUT_WEIGHTS], *biases = network->gradient[OUTPUT_BIAS];
    memset(weights, 0, hidden * outputs * sizeof(float));
    memset(biases, 0, outputs * sizeof(float));
    for (size_t s = 0; s < samples; s++) {
        float *errors = network->errors + s * outputs, *units = network->units + s * hidden;
        for (size_t o = 0; o < outputs; o++)
            biases[o] += errors[o];
        for (size_t j = 0; j < hidden; j++) {
            float delta = 0;
            for (size_t o = 0; o < outputs; o++) {
                weights[j * outputs + o] += errors[o] * units[j];
                delta += errors[o] * output[j * outputs + o];
            }
            units[j] = delta * (1 - units[j] * units[j]);
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
