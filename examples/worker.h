/* SPDX-License-Identifier: Apache-2.0 */
/* What worker.c trains on and prints. */
#ifndef TWILL_EXAMPLE_WORKER_H
#define TWILL_EXAMPLE_WORKER_H

#include "dataset.h"
#include "network.h"

#include <stdbool.h>
#include <stdio.h>
#include <twill_server.h>

struct worker_job {
    twill_comm *comm;   /* of all ranks */
    twill_comm *across; /* of those that have a server; NULL: this rank has none */
    twill_comm *group;  /* --mode groups: of this rank's group, else NULL */
    int rank, size;
    twill_server_options options;
    twill_optimizer optimizer;
    struct example_set train, held_out; /* those of all workers, and those that none trains on */
    struct example_network network;
    twill_tensor tensor[EXAMPLE_TENSORS]; /* the network's */
    size_t batch, steps;                  /* steps: of a worker */
    size_t step;                          /* the next one */
    uint64_t round, rounds; /* --rounds: between two, ranks that have died are replaced */
    uint64_t failures;      /* of this round, one after the other */
    bool grouped;           /* --mode groups */
    double loss;            /* of the last mini-batch, a sample */
    double seconds;         /* when the training began */
    double wait;            /* milliseconds that a worker sleeps in each step, times its rank */
    FILE *curve;            /* --curve FILE.RANK: step, seconds, version, loss */
    int kill_at;            /* --kill RANK:STEP */
    int kill_rank;
};

/* Read options and data; join the job. Returns false after a message. */
bool worker_open(struct worker_job *job, int argc, char **argv);
/* Compute the gradients of the next mini-batch. Returns false at the end of a round. */
bool worker_compute(struct worker_job *job);
/* Average the gradients of the group at its first rank; give that one's parameters to all. */
twill_status worker_gather(struct worker_job *job);
twill_status worker_spread(struct worker_job *job);
/* Write a line of the curve. */
void worker_log(struct worker_job *job, const twill_server *server);
/* End a round: replace ranks that have died. Returns whether there is another round. All ranks call
 * it. */
bool worker_goes_on(struct worker_job *job, twill_status *status);
/* Print loss and accuracy over the held-out samples, and what the server has counted. */
void worker_report(struct worker_job *job, twill_server *server, twill_status status);
/* Free all; returns the exit status. */
int worker_close(struct worker_job *job, twill_status status);

#endif
