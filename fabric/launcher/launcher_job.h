/* SPDX-License-Identifier: Apache-2.0 */
/* What a server of twillrun is told to do: a job and its part of it, as bytes. It goes over the
 * standard input of an agent, since other users can read what is on command lines. */
#ifndef TWILL_LAUNCHER_JOB_H
#define TWILL_LAUNCHER_JOB_H

#include "fabric/launcher/launcher.h"

struct twill_host_job {
    struct twill_options options; /* ranks, bind, report, assignments, command */
    const char *key;              /* TWILL_JOB */
    const char *directory;        /* where ranks are to begin */
    bool alone;                   /* all ranks are on this host */
    int *rank;                    /* [here] */
    int here;
    const char **other; /* names of other hosts, to find the way to them; NULL at the end */
    int others;
    int arguments;
    char *bytes; /* what the strings are in */
};

/* The part of a site; bytes from malloc(). NULL: no memory, or too large; it has complained. */
char *twill_job_write(const struct twill_options *options, int site, const char *key,
                      size_t *bytes);
/* false: that is no job. Free in either case. */
bool twill_job_read(struct twill_host_job *job, const char *data, size_t bytes);
void twill_job_free(struct twill_host_job *job);

#endif
