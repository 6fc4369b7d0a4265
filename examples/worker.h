/* SPDX-License-Identifier: Apache-2.0 */
/* The data, the settings and the state of worker.c. */
#ifndef TWILL_EXAMPLE_WORKER_H
#define TWILL_EXAMPLE_WORKER_H

#include "dataset.h"
#include "network.h"

#include <stdbool.h>
#include <stdio.h>
#include <twill_server.h>

/* One rank of the training, which works, serves or does both. */
struct worker_job {
    twill_comm *comm;   /* of all ranks */
    twill_comm *across; /* those that have a server, or NULL if this rank has none */
    twill_comm *group;  /* this rank's group with --mode groups, else NULL */
    int rank, size;
    twill_server_options options;
    twill_optimizer optimizer;
    struct example_set train, held_out; /* the samples of all workers, and the rest */
    struct example_network network;
    twill_tensor tensor[EXAMPLE_TENSORS];
    size_t batch, steps;    /* steps of one worker */
    size_t step;            /* the next step */
    uint64_t round, rounds; /* the current one, of --rounds */
    uint64_t failures;      /* how often this round has failed */
    bool grouped;           /* with --mode groups */
    double loss;            /* of the last mini-batch, per sample */
    double seconds;         /* when the training began */
    double wait;            /* milliseconds that a worker sleeps in each step, times its rank */
    FILE *curve;            /* --curve FILE.RANK, with step, seconds, version and loss */
    int kill_at;            /* --kill RANK:STEP */
    int kill_rank;
};

/* Read the options and the data, and join the job. Returns false after a failure. */
bool worker_open(struct worker_job *job, int argc, char **argv);
/* Compute the gradients of the next mini-batch. Returns false if the round has ended before it. */
bool worker_compute(struct worker_job *job);
/* Average the gradients of this rank's group, if it has one, on the first rank of the group. */
twill_status worker_gather(struct worker_job *job);
/* Give the parameters of the group's first rank to all its ranks. */
twill_status worker_spread(struct worker_job *job);
/* Write a line of the curve, if there is one. */
void worker_log(struct worker_job *job, const twill_server *server);
/* End a round with the status of this rank, and replace ranks that have died. Returns whether there
 * is another round, and sets *status. If there are several rounds, all ranks call it. */
bool worker_goes_on(struct worker_job *job, twill_status *status);
/* Print loss and accuracy over the held-out samples if this rank has worked, else what its server
 * has counted, or the reason of a failure. */
void worker_report(struct worker_job *job, twill_server *server, twill_status status);
/* Free all and leave the job. Returns the exit status. */
int worker_close(struct worker_job *job, twill_status status);

#endif
