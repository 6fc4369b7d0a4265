/* SPDX-License-Identifier: Apache-2.0 */
/* A small classifier: one hidden layer of tanh, and one logistic output for two classes, or a
 * softmax over an output for each of more. */
#ifndef TWILL_NETWORK_H
#define TWILL_NETWORK_H

#include <stddef.h>
#include <stdint.h>

/* Tensors, in the order of the forward pass. A layer has two: its weights and its biases. */
enum { HIDDEN_WEIGHTS, HIDDEN_BIASES, OUTPUT_WEIGHTS, OUTPUT_BIAS, EXAMPLE_TENSORS };
enum { EXAMPLE_LAYERS = EXAMPLE_TENSORS / 2 };

/* Used by one thread at a time. The caller sets `weights` before the first pass, and `gradient`
 * before each backward pass, to memory of count[tensor] numbers. */
struct example_network {
    size_t features, hidden, outputs, parameters;
    /* Hidden weights are [features][hidden], output weights [hidden][outputs]. */
    size_t count[EXAMPLE_TENSORS];
    float *weights[EXAMPLE_TENSORS];
    float *gradient[EXAMPLE_TENSORS];
    float *units;  /* [samples][hidden] of the last forward pass; deltas after the backward pass
                      of the output */
    float *errors; /* [samples][outputs], times the scale of the forward pass */
};

const char *example_network_tensor(int tensor);
/* Create a network without weights, for two classes or more and mini-batches of up to `samples`.
 * Returns 0, or -1: no memory. */
int example_network_create(struct example_network *network, size_t features, size_t hidden,
                           size_t classes, size_t samples);
void example_network_free(struct example_network *network);
void example_network_randomise(struct example_network *network, uint64_t seed);

/* Return the loss of one sample: -log of the probability that the network gives to its label. If
 * `right` is not NULL, add 1 to it if the label is the most probable one. Overwrites what the last
 * forward pass has left. */
double example_network_judge(struct example_network *network, const float *features, int label,
                             size_t *right);
/* Forward pass of `samples` samples. Returns the sum of their losses. The backward pass yields the
 * gradient of that sum, times the scale. */
double example_network_forward(struct example_network *network, const float *features,
                               const uint8_t *labels, size_t samples, float scale);
/* Backward pass of a layer over the samples of the last forward pass, the last layer first: write
 * the gradients of its two tensors. A layer's weights are not read again afterwards. */
void example_network_backward(struct example_network *network, int layer, const float *features,
                              size_t samples);
/* weights -= rate * gradient. */
void example_network_step(struct example_network *network, float rate);

#endif
