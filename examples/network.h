/* SPDX-License-Identifier: Apache-2.0 */
/* A small classifier: one hidden layer of tanh, one logistic output. */
#ifndef TWILL_NETWORK_H
#define TWILL_NETWORK_H

#include <stddef.h>
#include <stdint.h>

/* Used by one thread at a time. */
struct example_network {
    size_t features, hidden, parameters;
    double *weights;  /* [features][hidden], hidden biases, output weights, output bias */
    double *gradient; /* as many, then the loss; the caller's memory */
    double *scratch;  /* 2 * hidden */
};

size_t example_network_parameters(size_t features, size_t hidden);
/* Create a network with weights of zero. `gradient` is the caller's memory for
 * example_network_parameters() + 1 numbers, which must outlive it. Returns 0, or -1: no memory. */
int example_network_create(struct example_network *network, size_t features, size_t hidden,
                           double *gradient);
void example_network_free(struct example_network *network);
void example_network_randomise(struct example_network *network, uint64_t seed);

/* Return the logit of the output, and leave the hidden layer in scratch. */
double example_network_forward(struct example_network *network, const float *features);
/* Return -log of the probability that the logit gives to the label. */
double example_network_loss(double logit, int label);
/* Add one sample's gradient and loss to network->gradient. */
void example_network_backward(struct example_network *network, const float *features, int label);
/* weights -= rate * gradient. */
void example_network_step(struct example_network *network, double rate);

#endif
