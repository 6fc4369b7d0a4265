/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of launchers, and the description of a job with which the rendezvous over TCP starts. A
 * launcher that can exchange data carries only rank 0's contact (addresses and the job's key). */
#ifndef TWILL_LAUNCH_INFO_H
#define TWILL_LAUNCH_INFO_H

#include "fabric/bootstrap/bootstrap.h"

#define TWILL_JOB_HOSTS   320 /* bytes */
#define TWILL_JOB_CONTACT 640 /* bytes */
/* What a rank must know to join its job over TCP, in a local variable of a method's open(). */
struct twill_job {
    int rank, size;              /* `rank` may be TWILL_JOIN_ANY */
    char hosts[TWILL_JOB_HOSTS]; /* names or addresses of rank 0 to try, separated by blanks */
    uint16_t port;               /* where rank 0 listens */
    struct twill_secret key;     /* from the launcher, if has_key */
    bool has_key;
    char identity[96];  /* text that differs between jobs; port and key are derived from it */
    int listener;       /* rank 0: a socket that listens at `port`; -1: none yet */
    const char *source; /* what named the host, such as "MASTER_ADDR" */
    bool guessed;       /* the host is the first of a list, usually rank 0's */
    char how[160];      /* description for struct twill_oob */
    uint32_t epoch;     /* rank 0 admits only processes of this epoch */
    uint32_t guests;    /* number of ranks, the last ones, for processes without a rank */
    /* Return whether a rank has died. Called every TWILL_JOB_ENDED_NS. NULL: this is not known. If
     * not NULL, rank 0 must listen before any other rank looks for it. */
    bool (*has_ended)(void *user, uint32_t rank);
    void *user;
};

/* Return the value of a launcher's variable, or NULL if it is not set or empty. */
const char *twill_launch_variable(const struct twill_bootstrap_params *params, const char *name);
/* Set rank and size of `job` to the numbers in two variables. Returns TWILL_ERR_CONFIG if one is
 * NULL or no number, if the size is 0 or too large, or if the rank is not below it. The names are
 * for the message. */
twill_status twill_launch_ranks(struct twill_job *job, const char *rank_name, const char *rank,
                                const char *size_name, const char *size, struct twill_error *error);
/* Return TWILL_ERR_CONFIG unless RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set. */
twill_status twill_launch_check_variables(const struct twill_bootstrap_params *params,
                                          struct twill_error *error);
/* In a job of one rank, return TWILL_ERR_BOOTSTRAP if a launcher's variables show several ranks and
 * TWILL_LAUNCHER chose no method. `cause` is why they do not meet, or NULL for the usual cause. */
twill_status twill_launch_check_alone(const struct twill_bootstrap_params *params,
                                      const char *cause, struct twill_error *error);
/* Return half a sentence that says why PMIx cannot be used, or NULL if it can. */
const char *twill_pmix_missing(const struct twill_bootstrap_params *params);
/* Copy the value of MASTER_ADDR to job->hosts, and set job->source to the text "MASTER_ADDR".
 * Returns false, with both unchanged, if it is not set. Does not set the port. */
bool twill_launch_master(struct twill_job *job, const struct twill_bootstrap_params *params);
/* Set job->port to MASTER_PORT, or else to a hash of job->identity below the ephemeral ports. Fails
 * with TWILL_ERR_CONFIG if MASTER_PORT is not in 1 .. 65535. */
twill_status twill_launch_port(struct twill_job *job, const struct twill_bootstrap_params *params,
                               struct twill_error *error);
/* On rank 0, listen on a free port, and set hosts, port and listener of `job`. Also give it a new
 * random key, unless the user has given all ranks one (TWILL_JOB or TWILL_KEY_FILE). `alone` says
 * that all ranks are on this host. Fails with TWILL_ERR_BOOTSTRAP if they are not and this host has
 * no address that other hosts could reach, _CONFIG for a wrong TWILL_INTERFACE, or _SYSTEM. */
twill_status twill_launch_listen(struct twill_job *job, const struct twill_bootstrap_params *params,
                                 bool alone, struct twill_error *error);
/* Write rank 0's port, its key if it has one, and as many of its addresses as fit to `contact`, for
 * the others. The text has only letters, digits and . : , - % _. Returns TWILL_ERR_BOOTSTRAP if
 * `bytes` are too few for one address. */
twill_status twill_launch_write_contact(const struct twill_job *job, char *contact, size_t bytes,
                                        struct twill_error *error);
/* Set port, hosts and key of `job` to those in rank 0's contact. Fails with TWILL_ERR_BOOTSTRAP if
 * it is malformed, or TWILL_ERR_CONFIG if only one of the two ranks was given a key. */
twill_status twill_launch_read_contact(struct twill_job *job,
                                       const struct twill_bootstrap_params *params,
                                       const char *contact, struct twill_error *error);
/* Write the first name of a compressed list of hosts, such as n3 for "n[3-5,9],b2". Returns false
 * if the list is malformed or the name does not fit. */
bool twill_launch_first_host(const char *list, char *host, size_t bytes);

#endif
