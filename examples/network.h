/* SPDX-License-Identifier: Apache-2.0 */
/* A small classifier: features, one hidden layer of tanh, one logistic output. */
#ifndef TWILL_NETWORK_H
#define TWILL_NETWORK_H

#include <stddef.h>
#include <stdint.h>

struct example_network {
    size_t features, hidden, parameters;
    double *weights;  /* [features][hidden], hidden biases, output weights, output bias */
    double *gradient; /* the same shape, then one more: the loss */
    double *scratch;  /* 2 * hidden */
};

/* 0, or -1: no memory. Weights are zero. The gradient's memory is the caller's affair: room for
 * example_network_parameters() + 1 numbers, for as long as the network is used. */
size_t example_network_parameters(size_t features, size_t hidden);
int example_network_create(struct example_network *network, size_t features, size_t hidden,
                           double *gradient);
void example_network_free(struct example_network *network);
void example_network_randomise(struct example_network *network, uint64_t seed);

/* The logit of the output; the hidden layer stays in scratch. */
double example_network_forward(struct example_network *network, const float *features);
/* -log of the probability given to the label. */
double example_network_loss(double logit, int label);
/* Add one sample's gradient and loss. */
void example_network_backward(struct example_network *network, const float *features, int label);
/* weights -= rate * gradient. */
void example_network_step(struct example_network *network, double rate);

#endif
