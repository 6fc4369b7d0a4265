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
    twill_comm *comm;
    int rank, size;
    twill_server_options options;
    twill_optimizer optimizer;
    struct example_set train, held_out; /* those of all workers, and those that none trains on */
    struct example_network network;
    size_t batch, steps;
    double loss;    /* of the last mini-batch, a sample */
    double seconds; /* when the training began */
    double wait;    /* milliseconds that a worker sleeps in each step, times its rank */
    FILE *curve;    /* --curve FILE.RANK: step, seconds, version, loss */
    int kill_at;    /* --kill RANK:STEP */
    int kill_rank;
};

/* Read options and data; join the job. Returns false after a message. */
bool worker_open(struct worker_job *job, int argc, char **argv);
/* Compute the gradients of a mini-batch. */
void worker_compute(struct worker_job *job, size_t step);
/* Write a line of the curve. */
void worker_log(struct worker_job *job, size_t step, const twill_server *server);
/* Print loss and accuracy over the held-out samples, and what the server has counted. */
void worker_report(struct worker_job *job, twill_server *server, twill_status status);
/* Free all; returns the exit status. */
int worker_close(struct worker_job *job, twill_status status);

#endif
