/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the training example share. */
#ifndef TWILL_TRAIN_EXAMPLE_H
#define TWILL_TRAIN_EXAMPLE_H

#include "dataset.h"
#include "network.h"

#include <twill_train.h>

enum { LOAD, PREPROCESS, TRAIN, COMPUTING, EXPOSED, EVALUATE, PHASES };

struct train_options {
    const char *data;
    enum example_format format;
    size_t epochs, batch, hidden, seed;
    double rate;
    twill_compression compression;
    int overlap, fused, late;
};

struct training {
    struct train_options options;
    twill_comm *comm;
    int rank, size;
    struct example_file file;
    struct example_set train, held_out; /* this rank's shards */
    size_t samples, batches;            /* of all ranks: training samples, mini-batches */
    size_t *first;                      /* [batches + 1] where each mini-batch begins in `train` */
    struct example_network network;
    float *weights[EXAMPLE_TENSORS]; /* without --fused; else they are the set's */
    twill_gradients *set;
    twill_counters started; /* of the set, after the first mini-batch */
    double seconds[PHASES];
    char message[512];
};

/* Read the command line. Returns 0, 1 if help was printed, 2 for a wrong option. */
int example_options(struct train_options *options, int argc, char **argv);

/* Return seconds on a clock that only goes forward. */
double example_now(void);
/* Reduce in place over all ranks. Returns 0, or -1 with a message. */
int example_reduce(struct training *t, void *values, size_t count, twill_type type, twill_op op);
/* Return -1 on all ranks if one has failed; that one has a message. */
int example_agree(struct training *t, int failed);

/* Return how many samples of a mini-batch all ranks have together. */
size_t example_batch_samples(const struct training *t, size_t batch);
/* Load this rank's shards, and scale the features. Collective; 0, or -1 with a message. */
int example_load_shards(struct training *t);
int example_preprocess(struct training *t);

/* Evaluate the model, compare the ranks' parameters, and print both and where the time went, on
 * rank 0. Collective; 0, or -1 with a message. */
int example_report(struct training *t);

#endif
