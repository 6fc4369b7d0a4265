/* SPDX-License-Identifier: Apache-2.0 */
/* The networks of the recipe nt3, trained with the averaged gradients of all ranks. They have 1-D
 * convolutions, and dense layers, which are convolutions whose window is the whole input. */
#ifndef TWILL_NT3_NETWORK_H
#define TWILL_NT3_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <twill_train.h>

enum { NT3_KERNEL = 20, NT3_POOL = 10, NT3_LAYERS = 5 };

/* A layer. A window begins at each place of its input that leaves room for it. */
struct nt3_layer {
    size_t channels, wide;  /* values of a place of the input, and the places of the input */
    size_t kernel, filters; /* places of a window, and outputs of a window */
    size_t places, pool;    /* number of windows, and of how many the largest output counts */
    bool linear;            /* the layer has no ReLU */
    float *weights;         /* [filters][kernel * channels] */
    float *biases;          /* [filters] */
    float *out, *back;      /* [places / pool][filters] outputs, and the loss's gradient by them */
    uint32_t *top;          /* [places / pool][filters] windows that the outputs come from */
};

/* One thread uses it at a time. */
struct nt3_network {
    struct nt3_layer layer[NT3_LAYERS];
    size_t layers;
    twill_gradients *set; /* tensors 2i and 2i + 1 are the weights and the biases of layer i */
};

/* Create a network with the same parameters on all ranks. With `whole` it is NT3's own, with two
 * convolutions of 128 filters and dense layers of 200 and 20 units. Otherwise it has the first
 * convolution, with `filters` filters, and a dense output. Close it also after a failure. */
twill_status nt3_open(struct nt3_network *network, twill_comm *comm, size_t features,
                      size_t filters, bool whole);
/* Free the network and its gradient set. */
void nt3_close(struct nt3_network *network);
/* Return the number of parameters of all layers. */
size_t nt3_parameters(const struct nt3_network *network);

/* Run the forward pass of a sample. Returns the logit of class 1. */
double nt3_logit(struct nt3_network *network, const float *sample);

/* Begin a mini-batch by setting all gradients to 0. For each sample call nt3_logit() and then
 * nt3_add_gradients(), and at the end nt3_end_batch(). */
void nt3_begin_batch(struct nt3_network *network);
/* Add the gradients of the sample of the last forward pass. `error` is the derivative of the loss
 * by the logit. With `last`, each layer is reduced while the backward pass continues. */
twill_status nt3_add_gradients(struct nt3_network *network, const float *sample, float error,
                               bool last);
/* Wait for the averaged gradients and update the parameters. */
twill_status nt3_end_batch(struct nt3_network *network, float rate);

#endif
