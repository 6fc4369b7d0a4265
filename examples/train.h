/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TWILL_TRAIN_EXAMPLE_H
#define TWILL_TRAIN_EXAMPLE_H

#include "dataset.h"
#include "learning_rate.h"
#include "network.h"
#include "phases.h"

#include <twill_train.h>

/* The phases whose seconds are printed. */
enum { LOAD, PREPROCESS, TRAIN, COMPUTING, EXPOSED, EVALUATE, PHASES };

/* The command line. */
struct train_options {
    const char *data;
    enum example_format format;
    size_t epochs, batch, hidden, seed;
    struct example_rate rate;
    double momentum;
    twill_compression compression;
    int overlap, fused, late, elastic;
    size_t pause_ms; /* milliseconds after each mini-batch */
    int shares;      /* print what part of each epoch synchronising takes */
    int curve;       /* print the held-out accuracy after each epoch */
};

/* How far the training has come. Ranks that join get it together with parameters and order. */
struct train_position {
    uint64_t epoch, batch; /* the next one, with epoch 0 if there are no parameters yet */
    uint64_t begun;        /* 1 if the order of this epoch is drawn */
    uint64_t random;       /* state of the generator for orders */
};

/* One rank's copy of the training after a mini-batch, from which it can continue. It has the
 * optimizer's state of two shards, that of this rank and that of its left neighbour. */
struct train_copy {
    uint64_t step; /* number of the mini-batch from 1, or 0 if there is no copy */
    struct train_position at;
    uint64_t *order;
    float *weights[EXAMPLE_TENSORS];
    void *state[2];
    size_t bytes[2];
};

/* The training on this rank. */
struct training {
    struct train_options options;
    twill_comm *comm;
    int rank, size;
    struct example_file file;
    struct example_set train, held_out; /* this rank's shards */
    size_t samples, batches;            /* of all ranks, training samples and mini-batches */
    size_t *first;                      /* [batches + 1] where each mini-batch begins in `train` */
    struct example_network network;
    float *weights[EXAMPLE_TENSORS]; /* without --fused, else the set has them */
    twill_gradients *set;
    struct train_position at;
    double rate;               /* learning rate of the current mini-batch */
    uint64_t *order;           /* [batches] of this epoch */
    struct train_copy copy[2]; /* with --elastic --fused, the last two */
    uint64_t copied;           /* how many mini-batches have been copied */
    int joined;                /* this rank has joined a training that runs, and has no copy yet */
    double loss[2];            /* sum over this epoch so far, and its number of samples */
    double epoch_start;        /* on the clock of example_now() */
    double epoch_exposed;      /* the set's seconds_exposed at epoch_start */
    double start;              /* when the training began, on the clock of example_now() */
    double judging;            /* seconds of --curve so far, which are no training */
    double processor;          /* seconds of processor time of the training */
    double judged;             /* seconds of processor time of --curve so far */
    twill_counters started;    /* of the set, after the first mini-batch */
    double seconds[PHASES];
    char message[1024];
};

/* Read the command line. Returns 0, 1 if it has printed help, or 2 after a wrong option. */
int example_options(struct train_options *options, int argc, char **argv);

/* Reduce in place over all ranks. Returns 0, or -1 with a message in t->message. */
int example_reduce(struct training *t, void *values, size_t count, twill_type type, twill_op op);
/* Return -1 on all ranks if one has `failed`, which has set t->message, else 0. Collective. */
int example_agree(struct training *t, int failed);

/* Return how many samples all ranks have together in that mini-batch. */
size_t example_batch_samples(const struct training *t, size_t batch);
/* Load this rank's shards. Collective. Returns 0, or -1 with a message. */
int example_load_shards(struct training *t);
/* Scale the features to zero mean and unit variance over the training samples of all ranks.
 * Collective. Returns 0, or -1 with a message. */
int example_preprocess(struct training *t);

/* Load this rank's data, and create the network and the gradient set on all ranks of t->comm.
 * The parameters are those of rank 0. Collective. Returns 0, or -1 with a message. */
int example_prepare(struct training *t);
void example_release(struct training *t); /* all except the parameters and the communicator */

/* With --elastic, prepare to start or to join a training. Returns 0, or -1 with a message. */
int example_begin(struct training *t);
/* With --elastic, after a mini-batch, take in ranks that wait to join, or continue without those
 * that have died if it has `failed`. Returns 0, or -1 with a message. */
int example_keep_on(struct training *t, int failed);

/* With --elastic --fused, copy what this rank has, and give a copy of its optimizer state to a
 * neighbour. Collective. Returns 0, or -1 with a message. */
int example_copy(struct training *t);
/* Let the new set continue from the last mini-batch that all ranks have copies of. Collective. */
twill_status example_restore(struct training *t);
/* Free what example_copy() has allocated. */
void example_free_copies(struct training *t);

/* Return the seconds that this rank has waited for gradients so far. */
double example_exposed(const struct training *t);
/* Print what part of the epoch this rank has spent synchronising, and the speed-up without it. */
void example_print_share(const struct training *t);

/* Print the accuracy on the held-out samples of all ranks, and the seconds of training until now.
 * Collective. Returns 0, or -1 with a message. */
int example_print_accuracy(struct training *t);
/* Evaluate the model and compare the ranks' parameters. Rank 0 prints both and where the time has
 * gone. Collective. Returns 0, or -1 with a message. */
int example_report(struct training *t);

#endif
