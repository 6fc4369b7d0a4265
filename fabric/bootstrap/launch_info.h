/* SPDX-License-Identifier: Apache-2.0 */
/* What launchers provide: their variables, and the description of a job from which the rendezvous
 * starts. If a launcher can exchange data, it only carries rank 0's contact: where rank 0 listens,
 * and the key of the job. The TCP rendezvous does the rest, so that failures, deadlines and the
 * failure detector are identical under all launchers. */
#ifndef TWILL_LAUNCH_INFO_H
#define TWILL_LAUNCH_INFO_H

#include "fabric/bootstrap/bootstrap.h"

#define TWILL_JOB_HOSTS   320 /* bytes */
#define TWILL_JOB_CONTACT 640 /* bytes */

/* What a rank needs to join the rendezvous. A local variable of a method's open(). */
struct twill_job {
    int rank, size;
    char hosts[TWILL_JOB_HOSTS]; /* names or addresses of rank 0, in the order in which they are
                                    tried, separated by blanks */
    uint16_t port;
    struct twill_secret key; /* provided by the launcher, if has_key */
    bool has_key;
    char identity[96];  /* distinguishes concurrent jobs; a key file's key is derived with it */
    int listener;       /* rank 0: a socket that listens at port; -1: not opened yet */
    const char *source; /* what named the host: "MASTER_ADDR" */
    bool guessed;       /* the host is the first of a list: rank 0's as a rule only */
    char how[160];      /* copied to struct twill_oob */
    uint32_t epoch;     /* rank 0 admits processes of this one only; see struct twill_oob */
    uint32_t guests;    /* the last ranks, which are given to processes that come without a rank */
    /* Report whether a rank has died; called every TWILL_JOB_ENDED_NS. NULL: not known. If it is
     * known, rank 0 listens before any other rank looks for it. */
    bool (*has_ended)(void *user, uint32_t rank);
    void *user;
};

/* Return the value of a launcher's variable; NULL if it is not set or empty. */
const char *twill_launch_variable(const struct twill_bootstrap_params *params, const char *name);
/* Parse rank and size; fails unless rank is below size. */
twill_status twill_launch_ranks(struct twill_job *job, const char *rank_name, const char *rank,
                                const char *size_name, const char *size, struct twill_error *error);

/* Fail with the names of the missing ones unless RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT are
 * set. */
twill_status twill_launch_check_variables(const struct twill_bootstrap_params *params,
                                          struct twill_error *error);
/* For a job of one rank: fail if variables of another launcher show that there are several, unless
 * TWILL_LAUNCHER chose the method. cause: why they cannot find each other; NULL: the usual cause
 * with that launcher. */
twill_status twill_launch_check_alone(const struct twill_bootstrap_params *params,
                                      const char *cause, struct twill_error *error);
/* Return why PMIx cannot be used, half a sentence; NULL if it can. */
const char *twill_pmix_missing(const struct twill_bootstrap_params *params);

/* Look for rank 0 where MASTER_ADDR says. Returns false if it is not set. */
bool twill_launch_master(struct twill_job *job, const struct twill_bootstrap_params *params);
/* Set the port, for launchers that name hosts only: MASTER_PORT, else a hash of the identity of the
 * job below the ephemeral ports. */
twill_status twill_launch_port(struct twill_job *job, const struct twill_bootstrap_params *params,
                               struct twill_error *error);

/* Rank 0, under launchers that can exchange data: listen on a free port (of loopback if `alone`,
 * all ranks are on this host) and draw a key unless all ranks were given one. */
twill_status twill_launch_listen(struct twill_job *job, const struct twill_bootstrap_params *params,
                                 bool alone, struct twill_error *error);
/* Write rank 0's contact for the others, or read it: text of letters, digits and . : , - % _ */
twill_status twill_launch_write_contact(const struct twill_job *job, char *contact, size_t bytes,
                                        struct twill_error *error);
twill_status twill_launch_read_contact(struct twill_job *job,
                                       const struct twill_bootstrap_params *params,
                                       const char *contact, struct twill_error *error);

/* Write the first name of a compressed list of hosts: n3 for "n[3-5,9],b2". False if it is no such
 * list, or the name does not fit. */
bool twill_launch_first_host(const char *list, char *host, size_t bytes);

#endif
