/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the training example share. */
#ifndef TWILL_TRAIN_EXAMPLE_H
#define TWILL_TRAIN_EXAMPLE_H

#include "dataset.h"
#include "learning_rate.h"
#include "network.h"
#include "phases.h"

#include <twill_train.h>

enum { LOAD, PREPROCESS, TRAIN, COMPUTING, EXPOSED, EVALUATE, PHASES };

struct train_options {
    const char *data;
    enum example_format format;
    size_t epochs, batch, hidden, seed;
    struct example_rate rate;
    double momentum;
    twill_compression compression;
    int overlap, fused, late, elastic;
    size_t pause_ms; /* after each mini-batch */
    int shares;      /* print what of each epoch synchronising takes */
};

/* How far the training has come. What ranks that join are given, besides parameters and order. */
struct train_position {
    uint64_t epoch, batch; /* the next one; epoch 0: there are no parameters yet */
    uint64_t begun;        /* the order of this epoch is drawn */
    uint64_t random;
};

/* One rank's part of the training after a mini-batch: what is needed to go on from there, and the
 * optimizer's state of two shards, its own and the one of its left neighbour. */
struct train_copy {
    uint64_t step; /* counted from 1; 0: there is none */
    struct train_position at;
    uint64_t *order;
    float *weights[EXAMPLE_TENSORS];
    void *state[2];
    size_t bytes[2];
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
    struct train_position at;
    double rate;               /* learning rate of the current mini-batch */
    uint64_t *order;           /* [batches] of this epoch */
    struct train_copy copy[2]; /* --elastic --fused: the last two */
    uint64_t copied;           /* mini-batches that have been copied */
    int joined;                /* this rank has joined a training that runs, and has no copy yet */
    double loss[2];            /* of this epoch so far, and of how many samples */
    double epoch_start;        /* on the clock of example_now(), */
    double epoch_exposed;      /* and the set's seconds_exposed then */
    double start;              /* of the training, on the clock of example_now() */
    twill_counters started;    /* of the set, after the first mini-batch */
    double seconds[PHASES];
    char message[1024];
};

/* Read the command line. Returns 0, 1 if help was printed, 2 for a wrong option. */
int example_options(struct train_options *options, int argc, char **argv);

/* Reduce in place over all ranks. Returns 0, or -1 with a message. */
int example_reduce(struct training *t, void *values, size_t count, twill_type type, twill_op op);
/* Return -1 on all ranks if one has failed; that one has a message. */
int example_agree(struct training *t, int failed);

/* Return how many samples of a mini-batch all ranks have together. */
size_t example_batch_samples(const struct training *t, size_t batch);
/* Load this rank's shards, and scale the features. Collective; 0, or -1 with a message. */
int example_load_shards(struct training *t);
int example_preprocess(struct training *t);

/* Load this rank's data and make what the training needs, on all ranks of t->comm, which then are
 * as far as rank 0. Collective; 0, or -1 with a message. */
int example_prepare(struct training *t);
void example_release(struct training *t); /* all but the parameters and the communicator */

/* With --elastic: prepare for the start, or for a rank that joins a training that runs. */
int example_begin(struct training *t);
/* With --elastic: after a mini-batch take in ranks that wait, or, if it `failed`, go on without
 * those that died. Returns 0, or -1 with a message. */
int example_keep_on(struct training *t, int failed);

/* train_copies.c, with --elastic --fused: copy what this rank has, and give a copy of its optimizer
 * state to a neighbour. Collective; 0, or -1 with a message. */
int example_copy(struct training *t);
/* The new set goes on from the last mini-batch that all ranks have copies of. Collective. */
twill_status example_restore(struct training *t);
void example_free_copies(struct training *t);

/* Return what this rank has waited for gradients so far, in seconds. */
double example_exposed(const struct training *t);
/* Print this rank's share of synchronising in the epoch, and how many times as fast the epoch would
 * be without it. */
void example_print_share(const struct training *t);

/* Evaluate the model, compare the ranks' parameters, and print both and where the time went, on
 * rank 0. Collective; 0, or -1 with a message. */
int example_report(struct training *t);

#endif
