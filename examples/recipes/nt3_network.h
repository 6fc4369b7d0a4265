/* SPDX-License-Identifier: Apache-2.0 */
/* The networks of the recipe nt3: 1-D convolutions and dense layers, trained with the gradients of
 * all ranks averaged. A dense layer is a convolution whose window is its whole input. */
#ifndef TWILL_NT3_NETWORK_H
#define TWILL_NT3_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <twill_train.h>

enum { NT3_KERNEL = 20, NT3_POOL = 10, NT3_LAYERS = 5 };

/* A layer; its windows begin at each place of its input. */
struct nt3_layer {
    size_t channels, wide;  /* of the input: values of a place, and places */
    size_t kernel, filters; /* places of a window; outputs of a window */
    size_t places, pool;    /* of the output: windows, of `pool` of them the largest is taken */
    bool linear;            /* no ReLU */
    float *weights;         /* [filters][kernel * channels] */
    float *biases;          /* [filters] */
    float *out, *back;      /* [places / pool][filters] outputs, and the loss's gradient by them */
    uint32_t *top;          /* [places / pool][filters] windows that the outputs come from */
};

/* Used by one thread. */
struct nt3_network {
    struct nt3_layer layer[NT3_LAYERS];
    size_t layers;
    twill_gradients *set; /* of layer i: tensors 2i (weights) and 2i + 1 (biases) */
};

/* Create a network with the same parameters on all ranks: NT3's own, with two convolutions of 128
 * filters and dense layers of 200 and 20 units (`whole`), or its first convolution with `filters`
 * and a dense output. Close it also on failure. */
twill_status nt3_open(struct nt3_network *network, twill_comm *comm, size_t features,
                      size_t filters, bool whole);
void nt3_close(struct nt3_network *network);
size_t nt3_parameters(const struct nt3_network *network);

/* Return the logit of class 1 for a sample. */
double nt3_logit(struct nt3_network *network, const float *sample);

/* A mini-batch: begin it; for each sample call nt3_logit(), then add its gradients, where `error`
 * is the derivative of the loss by the logit. With the last sample each layer's gradients are
 * reduced while the backward pass goes on. Then wait for them and do a step. */
void nt3_begin_batch(struct nt3_network *network);
twill_status nt3_add_gradients(struct nt3_network *network, const float *sample, float error,
                               bool last);
twill_status nt3_end_batch(struct nt3_network *network, float rate);

#endif
