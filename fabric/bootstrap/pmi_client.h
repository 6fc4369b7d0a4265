/* SPDX-License-Identifier: Apache-2.0 */
/* The wire protocol of PMI-1 as a client, without anybody's library: lines of KEY=VALUE over a
 * socket, an answer to each. Hydra (MPICH, Intel MPI, MVAPICH2) and Slurm's --mpi=pmi2 speak it. */
#ifndef TWILL_PMI_CLIENT_H
#define TWILL_PMI_CLIENT_H

#include "lib/base.h"

#define TWILL_PMI_LINE 1023 /* Slurm loses its place in longer ones, and says so to nobody */
#define TWILL_PMI_NAME 257

struct twill_pmi {
    int fd;
    bool own; /* the connection was made here, not inherited */
    bool broken;
    uint64_t deadline;
    char rank[16]; /* this rank and their count: given, or told by the one that was dialled */
    char size[16];
    size_t most_value; /* bytes of a value, with its closing zero */
    char kvs[TWILL_PMI_NAME];
    char line[2048]; /* the answer, without its end */
    size_t used;     /* bytes read of the next one */
    char next[2048];
};

/* Greet: over the inherited descriptor fd, or with fd < 0 over a connection to host:port as number
 * id. On failure, too, close it. */
twill_status twill_pmi_open(struct twill_pmi *pmi, int fd, const char *port, const char *id,
                            struct twill_error *error);
twill_status twill_pmi_put(struct twill_pmi *pmi, const char *key, const char *value,
                           struct twill_error *error);
/* All ranks have come to here, and what they put can be had. */
twill_status twill_pmi_barrier(struct twill_pmi *pmi, struct twill_error *error);
/* value is empty if nobody has put it. */
twill_status twill_pmi_get(struct twill_pmi *pmi, const char *key, char *value, size_t bytes,
                           struct twill_error *error);
/* A word of the last answer: "rc" of "cmd=x rc=0". false: it has none, or a longer one. */
bool twill_pmi_value(const struct twill_pmi *pmi, const char *name, char *value, size_t bytes);
/* Take leave, unless the other side is not understood any more. */
void twill_pmi_close(struct twill_pmi *pmi);

#endif
