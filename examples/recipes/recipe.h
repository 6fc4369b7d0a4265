/* SPDX-License-Identifier: Apache-2.0 */
/* What several recipes share: the tumour data, and the network of examples/network.c with a
 * gradient set that averages over ranks. */
#ifndef TWILL_RECIPE_EXAMPLE_H
#define TWILL_RECIPE_EXAMPLE_H

#include "dataset.h"
#include "network.h"
#include "phases.h"

#include <twill_train.h>

struct recipe_model {
    struct example_network network;
    twill_gradients *set;
    float *weights[EXAMPLE_TENSORS];
};

/* Load the training samples of a file, all of them, each feature scaled to zero mean and unit
 * variance. Returns 0, or -1 after a message. */
int recipe_load(const char *path, struct example_set *set);
/* Parse a number above 0. Returns 0, or -1 after a message. */
int recipe_number(const char *option, const char *text, size_t *number);

/* Create a model for mini-batches of up to `samples` on this rank, with the same parameters on all
 * ranks. */
twill_status recipe_open(struct recipe_model *model, twill_comm *comm, size_t features,
                         size_t samples);
/* Train on this rank's samples, as many as every other rank has: average the gradients of all
 * ranks, layer by layer while the backward pass goes on, and do the same step on each. */
twill_status recipe_step(struct recipe_model *model, const float *features, const uint8_t *labels,
                         size_t samples, double rate);
/* Return the mean loss over a set. */
double recipe_loss(struct recipe_model *model, const struct example_set *set);
void recipe_close(struct recipe_model *model);

/* Print why a recipe ended early, if it did; returns its exit status. */
int recipe_end(const char *name, twill_comm *comm, twill_status status);

#endif
