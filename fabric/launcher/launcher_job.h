/* SPDX-License-Identifier: Apache-2.0 */
/* What a server of twillrun is sent: a job and the ranks of its host. It goes over the standard
 * input of an agent, as other users can read command lines. */
#ifndef TWILL_LAUNCHER_JOB_H
#define TWILL_LAUNCHER_JOB_H

#include "fabric/launcher/launcher.h"

/* A job, as one host's server parses it. Strings point into bytes. */
struct twill_host_job {
    struct twill_options options; /* ranks, elastic, bind, report, assignments, command */
    const char *key;              /* TWILL_JOB */
    const char *directory;        /* working directory of the ranks */
    bool alone;                   /* all ranks are on this host */
    int host;                     /* its number in an elastic job */
    int *rank;                    /* [here] */
    int here;
    const char **other; /* names of other hosts, to find the route to them; NULL-terminated */
    int others;
    int arguments;
    char *bytes; /* owned copy of the received bytes */
};

/* Write the job for one site. The caller frees the bytes. NULL: a message was printed. */
char *twill_job_write(const struct twill_options *options, int site, const char *key,
                      size_t *bytes);
/* Parse a job. False: malformed, or no memory. Free it in either case. */
bool twill_job_read(struct twill_host_job *job, const char *data, size_t bytes);
void twill_job_free(struct twill_host_job *job);

#endif
