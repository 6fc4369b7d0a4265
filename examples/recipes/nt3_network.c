/* SPDX-License-Identifier: Apache-2.0 */
#include "recipes/nt3_network.h"
#include "dataset.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t window_of(const struct nt3_layer *layer)
{
    return layer->kernel * layer->channels;
}

static size_t outputs_of(const struct nt3_layer *layer)
{
    return layer->places / layer->pool * layer->filters;
}

/* Add a layer that takes the outputs of the last one, or the features if it is the first. A kernel
 * of 0 makes it a dense layer. */
static void add_layer(struct nt3_network *n, size_t features, size_t kernel, size_t filters,
                      size_t pool)
{
    struct nt3_layer *layer = &n->layer[n->layers], *below = layer - 1;
    layer->channels = n->layers > 0 ? below->filters : 1;
    layer->wide = n->layers > 0 ? below->places / below->pool : features;
    layer->kernel = kernel > 0 ? kernel : layer->wide;
    layer->filters = filters;
    layer->places = layer->wide - layer->kernel + 1;
    layer->pool = pool;
    n->layers++;
}

/* Allocate the layer. With `draw` its weights are random as by Glorot and Bengio, else 0. Returns
 * false if there is no memory. */
static bool create_layer(struct nt3_layer *layer, bool draw, uint64_t *random)
{
    size_t weights = layer->filters * window_of(layer);
    double fan = (double)(window_of(layer) + layer->kernel * layer->filters);
    layer->weights = calloc(weights, sizeof(float));
    layer->biases = calloc(layer->filters, sizeof(float));
    layer->out = calloc(outputs_of(layer), sizeof(float));
    layer->back = calloc(outputs_of(layer), sizeof(float));
    layer->top = calloc(outputs_of(layer), sizeof(uint32_t));
    if (layer->weights == NULL || layer->biases == NULL || layer->out == NULL ||
        layer->back == NULL || layer->top == NULL)
        return false;
    for (size_t i = 0; draw && i < weights; i++)
        layer->weights[i] = (float)((2 * example_uniform(random) - 1) * sqrt(6 / fan));
    return true;
}

static twill_status add_tensors(struct nt3_network *n, size_t i)
{
    char weights[32], biases[32];
    const struct nt3_layer *layer = &n->layer[i];
    snprintf(weights, sizeof(weights), "layer%zu.weights", i + 1);
    snprintf(biases, sizeof(biases), "layer%zu.biases", i + 1);
    twill_tensor tensors[] = {
        {.name = weights, .count = layer->filters * window_of(layer), .type = TWILL_F32},
        {.name = biases, .count = layer->filters, .type = TWILL_F32}};
    twill_status status = twill_gradients_add(n->set, &tensors[0], NULL);
    return status == TWILL_OK ? twill_gradients_add(n->set, &tensors[1], NULL) : status;
}

twill_status nt3_open(struct nt3_network *n, twill_comm *comm, size_t features, size_t filters,
                      bool whole)
{
    uint64_t random = 3;
    memset(n, 0, sizeof(*n));
    add_layer(n, features, NT3_KERNEL, whole ? 128 : filters, whole ? 1 : NT3_POOL);
    if (whole) {
        add_layer(n, 0, NT3_KERNEL / 2, 128, NT3_POOL);
        add_layer(n, 0, 0, 200, 1);
        add_layer(n, 0, 0, 20, 1);
    }
    add_layer(n, 0, 0, 2, 1);
    n->layer[n->layers - 1].linear = true;
    twill_status status = twill_gradients_create(&n->set, comm, NULL);
    for (size_t i = 0; status == TWILL_OK && i < n->layers; i++)
        status = create_layer(&n->layer[i], whole || i == 0, &random) ? add_tensors(n, i)
                                                                      : TWILL_ERR_MEMORY;
    return status == TWILL_OK ? twill_gradients_commit(n->set) : status;
}

void nt3_close(struct nt3_network *n)
{
    twill_gradients_destroy(n->set);
    for (size_t i = 0; i < n->layers; i++) {
        struct nt3_layer *layer = &n->layer[i];
        free(layer->weights);
        free(layer->biases);
        free(layer->out);
        free(layer->back);
        free(layer->top);
    }
}

size_t nt3_parameters(const struct nt3_network *n)
{
    size_t parameters = 0;
    for (size_t i = 0; i < n->layers; i++)
        parameters += n->layer[i].filters * (window_of(&n->layer[i]) + 1);
    return parameters;
}

/* Return the scalar product. Compilers keep its eight partial sums in a vector. */
static float multiply_vectors(const float *restrict a, const float *restrict b, size_t count)
{
    float sums[8] = {0}, sum = 0;
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        for (size_t lane = 0; lane < 8; lane++)
            sums[lane] += a[i + lane] * b[i + lane];
    for (size_t lane = 0; lane < 8; lane++)
        sum += sums[lane];
    for (; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void add_scaled(float *restrict to, const float *restrict from, float by, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] += by * from[i];
}

/* Compute the outputs of a layer, and which windows they come from. */
static void run_forward(const struct nt3_layer *layer, const float *in)
{
    size_t window = window_of(layer), filters = layer->filters;
    for (size_t p = 0; p < layer->places / layer->pool; p++) {
        float *out = layer->out + p * filters;
        uint32_t *top = layer->top + p * filters;
        for (size_t t = p * layer->pool; t < (p + 1) * layer->pool; t++)
            for (size_t f = 0; f < filters; f++) {
                float value =
                    layer->biases[f] +
                    multiply_vectors(in + t * layer->channels, layer->weights + f * window, window);
                if (t > p * layer->pool && value <= out[f])
                    continue;
                out[f] = value;
                top[f] = (uint32_t)t;
            }
        for (size_t f = 0; f < filters && !layer->linear; f++)
            out[f] = fmaxf(out[f], 0);
    }
}

double nt3_logit(struct nt3_network *n, const float *sample)
{
    for (size_t i = 0; i < n->layers; i++)
        run_forward(&n->layer[i], i > 0 ? n->layer[i - 1].out : sample);
    const float *out = n->layer[n->layers - 1].out;
    return (double)out[1] - (double)out[0];
}

void nt3_begin_batch(struct nt3_network *n)
{
    for (size_t i = 0; i < n->layers; i++) {
        size_t filters = n->layer[i].filters;
        memset(twill_gradients_memory(n->set, (int)(2 * i)), 0,
               filters * window_of(&n->layer[i]) * sizeof(float));
        memset(twill_gradients_memory(n->set, (int)(2 * i + 1)), 0, filters * sizeof(float));
    }
}

/* Add the gradients of a layer for one sample, whose input to the layer is `in`. Unless `below` is
 * NULL, set it to the gradients by that input. */
static void run_backward(struct nt3_network *n, size_t i, const float *in, float *below)
{
    const struct nt3_layer *layer = &n->layer[i];
    size_t window = window_of(layer);
    float *weights = twill_gradients_memory(n->set, (int)(2 * i));
    float *biases = twill_gradients_memory(n->set, (int)(2 * i + 1));
    if (below != NULL)
        memset(below, 0, layer->wide * layer->channels * sizeof(float));
    for (size_t o = 0; o < outputs_of(layer); o++) {
        size_t f = o % layer->filters, from = layer->top[o] * layer->channels;
        float back = layer->linear || layer->out[o] > 0 ? layer->back[o] : 0;
        if (back == 0)
            continue;
        biases[f] += back;
        add_scaled(weights + f * window, in + from, back, window);
        if (below != NULL)
            add_scaled(below + from, layer->weights + f * window, back, window);
    }
}

twill_status nt3_add_gradients(struct nt3_network *n, const float *sample, float error, bool last)
{
    twill_status status = TWILL_OK;
    float *out = n->layer[n->layers - 1].back;
    out[0] = -error;
    out[1] = error;
    for (size_t i = n->layers; status == TWILL_OK && i-- > 0;) {
        run_backward(n, i, i > 0 ? n->layer[i - 1].out : sample,
                     i > 0 ? n->layer[i - 1].back : NULL);
        if (last)
            status = twill_gradients_ready(n->set, (int)(2 * i + 1));
        if (last && status == TWILL_OK)
            status = twill_gradients_ready(n->set, (int)(2 * i));
    }
    return status;
}

twill_status nt3_end_batch(struct nt3_network *n, float rate)
{
    twill_status status = twill_gradients_wait_all(n->set);
    for (size_t i = 0; status == TWILL_OK && i < n->layers; i++) {
        struct nt3_layer *layer = &n->layer[i];
        add_scaled(layer->weights, twill_gradients_memory(n->set, (int)(2 * i)), -rate,
                   layer->filters * window_of(layer));
        add_scaled(layer->biases, twill_gradients_memory(n->set, (int)(2 * i + 1)), -rate,
                   layer->filters);
    }
    return status;
}
