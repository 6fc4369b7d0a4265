/* SPDX-License-Identifier: Apache-2.0 */
/* A client of the PMI-1 wire protocol without a PMI library. Requests and answers are lines of
 * KEY=VALUE over a socket. Hydra (MPICH, Intel MPI, MVAPICH2) and Slurm's --mpi=pmi2 serve it. */
#ifndef TWILL_PMI_CLIENT_H
#define TWILL_PMI_CLIENT_H

#include "lib/base/base.h"

#define TWILL_PMI_LINE 1023 /* longest line, as Slurm loses track in longer ones */
#define TWILL_PMI_NAME 257  /* bytes of the name of a key-value space */
/* A PMI-1 connection to the launcher, a local variable of the bootstrap method. Not thread safe. */
struct twill_pmi {
    int fd;                   /* -1: none */
    bool own;                 /* twill opened the connection, it is not inherited */
    bool broken;              /* an answer was missing or malformed */
    uint64_t deadline;        /* of twill_now(), for all waits */
    char rank[16];            /* of this process, from the environment or from PMI_PORT */
    char size[16];            /* number of ranks, from the same source */
    size_t most_value;        /* longest value in bytes, with its terminating zero */
    char kvs[TWILL_PMI_NAME]; /* name of the job's key-value space */
    char line[2048];          /* last answer, without its line end */
    size_t used;              /* bytes in `next` */
    char next[2048];          /* received part of the next answer */
};

/* Start PMI over the inherited descriptor `fd`. If it is negative, connect to `port` (host:port) as
 * PMI_ID `id`, and set pmi->rank and size to what the launcher answers. The caller has set
 * pmi->deadline and, from the environment, rank and size. The caller calls twill_pmi_close(), also
 * after a failure. */
twill_status twill_pmi_open(struct twill_pmi *pmi, int fd, const char *port, const char *id,
                            struct twill_error *error);
/* Put a value into the key-value space, or fail. Other ranks see it after the next barrier. */
twill_status twill_pmi_put(struct twill_pmi *pmi, const char *key, const char *value,
                           struct twill_error *error);
/* Wait until all ranks have entered the barrier. The values that they put are then visible. */
twill_status twill_pmi_barrier(struct twill_pmi *pmi, struct twill_error *error);
/* Get a value as a string of less than `bytes`, "" if no rank has put it, or fail. */
twill_status twill_pmi_get(struct twill_pmi *pmi, const char *key, char *value, size_t bytes,
                           struct twill_error *error);
/* Finalize PMI unless the connection is broken, and close the connection if twill opened it. */
void twill_pmi_close(struct twill_pmi *pmi);

#endif
