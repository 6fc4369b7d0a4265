/* SPDX-License-Identifier: Apache-2.0 */
/* What launchers tell: the variables they set, and the job that a rendezvous is made from. A
 * launcher's own way to exchange bytes, if it has one, only carries the card of rank 0: where it
 * listens, and the key of the job. The TCP rendezvous does the rest, so that failures, deadlines
 * and the watch are the same everywhere. */
#ifndef TWILL_LAUNCH_INFO_H
#define TWILL_LAUNCH_INFO_H

#include "fabric/bootstrap/bootstrap.h"

#define TWILL_JOB_HOSTS   320
#define TWILL_JOB_CONTACT 640

/* Enough to meet. */
struct twill_job {
    int rank, size;
    char hosts[TWILL_JOB_HOSTS]; /* names or addresses where rank 0 listens, in the order in which
                                    they are tried, separated by blanks */
    uint16_t port;
    struct twill_secret key; /* by the launcher's own means, if has_key */
    bool has_key;
    char identity[96];  /* tells the job from others: for keys of files */
    int listener;       /* rank 0: a socket that listens at port already; -1: to be made */
    const char *source; /* what named the host: "MASTER_ADDR" */
    bool guessed;       /* by a list of hosts whose first is rank 0's, as a rule */
    char how[160];      /* for struct twill_oob */
};

/* The value of a launcher's variable; NULL: not set, or empty. */
const char *twill_launch_variable(const struct twill_bootstrap_params *params, const char *name);
/* A decimal number, or an error that names the variable. */
twill_status twill_launch_number(const char *name, const char *text, long low, long high, long *out,
                                 struct twill_error *error);
/* Rank and size into a job: both are numbers, and rank is below size. */
twill_status twill_launch_ranks(struct twill_job *job, const char *rank_name, const char *rank,
                                const char *size_name, const char *size, struct twill_error *error);

/* RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT: all are set, or an error names those that are not. */
twill_status twill_launch_check_variables(const struct twill_bootstrap_params *params,
                                          struct twill_error *error);
/* For a job of one rank, whoever says so: an error if another launcher says that there are several,
 * unless TWILL_LAUNCHER chose. cause: what keeps them from each other; NULL: as it is known of that
 * launcher. */
twill_status twill_launch_check_alone(const struct twill_bootstrap_params *params,
                                      const char *cause, struct twill_error *error);
/* Why PMIx cannot be used, half a sentence; NULL: it can. */
const char *twill_pmix_missing(const struct twill_bootstrap_params *params);

/* Where a launcher names hosts, but no port: MASTER_PORT, else one below those that systems hand
 * out, drawn from the identity of the job. */
twill_status twill_launch_port(struct twill_job *job, const struct twill_bootstrap_params *params,
                               struct twill_error *error);

/* Where a launcher carries bytes: rank 0 listens on a port that is free (only on loopback if all
 * ranks are on its host), draws a key unless all were given one, and writes that on a card of
 * letters, digits and . : , - for the others. */
twill_status twill_launch_listen(struct twill_job *job, const struct twill_bootstrap_params *params,
                                 bool alone, struct twill_error *error);
twill_status twill_launch_write_contact(const struct twill_job *job, char *contact, size_t bytes,
                                        struct twill_error *error);
twill_status twill_launch_read_contact(struct twill_job *job,
                                       const struct twill_bootstrap_params *params,
                                       const char *contact, struct twill_error *error);

/* The first name of a compressed list of hosts: "n[3-5,9],b2" begins with n3. false: it is no such
 * list, or the name is too long. */
bool twill_launch_first_host(const char *list, char *host, size_t bytes);

#endif
