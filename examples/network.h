/* SPDX-License-Identifier: Apache-2.0 */
/* A small classifier with a hidden layer of tanh. It has one logistic output for two classes, and a
 * softmax over an output for each class for more. */
#ifndef TWILL_NETWORK_H
#define TWILL_NETWORK_H

#include <stddef.h>
#include <stdint.h>

/* Tensors in the order of the forward pass. A layer has its weights and its biases. */
enum { HIDDEN_WEIGHTS, HIDDEN_BIASES, OUTPUT_WEIGHTS, OUTPUT_BIAS, EXAMPLE_TENSORS };
enum { EXAMPLE_LAYERS = EXAMPLE_TENSORS / 2 };

/* The network of one thread. The caller sets `weights` before the first pass, and `gradient`
 * before each backward pass, to memory of count[tensor] numbers. Weights are [features][hidden] in
 * the hidden layer and [hidden][outputs] in the output. */
struct example_network {
    size_t features, hidden, outputs, parameters;
    size_t count[EXAMPLE_TENSORS];
    float *weights[EXAMPLE_TENSORS];
    float *gradient[EXAMPLE_TENSORS];
    float *units;  /* [samples][hidden] outputs, or deltas after the output's backward pass */
    float *errors; /* [samples][outputs], times the scale of the forward pass */
};

/* Return the name of a tensor, such as "hidden.weights". */
const char *example_network_tensor(int tensor);
/* Create a network without weights, for mini-batches of up to `samples` samples. Returns 0, or -1
 * if there is no memory. */
int example_network_create(struct example_network *network, size_t features, size_t hidden,
                           size_t classes, size_t samples);
/* Free all except the weights and the gradients, which are the caller's. */
void example_network_free(struct example_network *network);
/* Set the biases to 0 and the weights to random values, uniform within sqrt(6 / (in + out)) as by
 * Glorot and Bengio (2010). */
void example_network_randomise(struct example_network *network, uint64_t seed);

/* Run the forward pass of one sample. Returns its loss, which is -log of the probability that the
 * network gives to its label. If `right` is not NULL and the label is the most probable one, it
 * adds 1 to *right. The results of the last example_network_forward() are overwritten. */
double example_network_judge(struct example_network *network, const float *features, int label,
                             size_t *right);
/* Run the forward pass of `samples` samples. Returns the sum of their losses. The backward pass
 * will give the gradient of that sum times `scale`. */
double example_network_forward(struct example_network *network, const float *features,
                               const uint8_t *labels, size_t samples, float scale);
/* Run the backward pass of a layer over the samples of the last forward pass, the last layer first.
 * It writes the gradients of the layer's tensors, and does not read its weights again. */
void example_network_backward(struct example_network *network, int layer, const float *features,
                              size_t samples);
/* Subtract rate * gradient from all weights. */
void example_network_step(struct example_network *network, float rate);

#endif
