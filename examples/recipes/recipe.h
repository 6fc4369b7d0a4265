/* SPDX-License-Identifier: Apache-2.0 */
/* The tumour data and a model that several recipes train. The model is the network of
 * examples/network.c with a gradient set that averages over the ranks. */
#ifndef TWILL_RECIPE_EXAMPLE_H
#define TWILL_RECIPE_EXAMPLE_H

#include "dataset.h"
#include "network.h"
#include "phases.h"

#include <twill_train.h>

/* A model on this rank, and the gradient set for it. */
struct recipe_model {
    struct example_network network;
    twill_gradients *set;
    float *weights[EXAMPLE_TENSORS];
};

/* Load all training samples of a file, and scale each feature to zero mean and unit variance.
 * Returns 0, or -1 after printing a message. */
int recipe_load(const char *path, struct example_set *set);
/* Parse the value of an option as a number above 0. Returns 0, or -1 after printing a message. */
int recipe_number(const char *option, const char *text, size_t *number);

/* Create a model for mini-batches of up to `samples` samples on this rank. All ranks get the same
 * parameters. Collective. Close the model also after a failure. */
twill_status recipe_open(struct recipe_model *model, twill_comm *comm, size_t features,
                         size_t samples);
/* Make a training step on this rank's samples, of which every rank has the same number. The set
 * averages the gradients of each layer during the backward pass of the others. Collective. */
twill_status recipe_step(struct recipe_model *model, const float *features, const uint8_t *labels,
                         size_t samples, double rate);
/* Return the mean loss of this rank's model over a set. */
double recipe_loss(struct recipe_model *model, const struct example_set *set);
/* Free all of the model. */
void recipe_close(struct recipe_model *model);

/* Print why a recipe has failed, if it has, and finalize twill. Returns the exit status. */
int recipe_end(const char *name, twill_comm *comm, twill_status status);

#endif
