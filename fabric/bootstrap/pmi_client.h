/* SPDX-License-Identifier: Apache-2.0 */
/* Client of the PMI-1 wire protocol, without a PMI library: lines of KEY=VALUE over a socket, each
 * with an answer. Hydra (MPICH, Intel MPI, MVAPICH2) and Slurm's --mpi=pmi2 speak it. */
#ifndef TWILL_PMI_CLIENT_H
#define TWILL_PMI_CLIENT_H

#include "lib/base/base.h"

#define TWILL_PMI_LINE 1023 /* longest line: Slurm loses track in longer ones, without an error */
#define TWILL_PMI_NAME 257  /* bytes of the name of a key-value space */

/* A connection to the launcher. A local variable of the bootstrap method, used by one thread. */
struct twill_pmi {
    int fd;
    bool own;    /* twill opened the connection; else it is inherited */
    bool broken; /* an answer was missing or malformed */
    uint64_t deadline;
    char rank[16];     /* of this process: from the environment, or from the launcher at PMI_PORT */
    char size[16];     /* number of ranks, from there too */
    size_t most_value; /* longest value in bytes, with its terminating zero */
    char kvs[TWILL_PMI_NAME];
    char line[2048]; /* last answer, without its line end */
    size_t used;     /* bytes in next */
    char next[2048]; /* received part of the next answer */
};

/* Start the protocol: over the inherited descriptor fd, or with fd < 0 over a connection to `port`
 * (host:port) as PMI_ID `id`. The caller closes it, also after a failure. */
twill_status twill_pmi_open(struct twill_pmi *pmi, int fd, const char *port, const char *id,
                            struct twill_error *error);
twill_status twill_pmi_put(struct twill_pmi *pmi, const char *key, const char *value,
                           struct twill_error *error);
/* Wait until all ranks are here; then the values that they put are visible. */
twill_status twill_pmi_barrier(struct twill_pmi *pmi, struct twill_error *error);
/* Get a value. Empty if no rank has put it. */
twill_status twill_pmi_get(struct twill_pmi *pmi, const char *key, char *value, size_t bytes,
                           struct twill_error *error);
/* Finalize PMI unless the connection is broken, and close the connection if twill opened it. */
void twill_pmi_close(struct twill_pmi *pmi);

#endif
