/* SPDX-License-Identifier: Apache-2.0 */
/* The front: the state of a preflight while it runs. */
#ifndef TWILL_PREFLIGHT_FRONT_H
#define TWILL_PREFLIGHT_FRONT_H

#include "fabric/launcher/preflight/preflight_programs.h"

/* Arguments of a twillrun. Those that are made here are freed by preflight_words_free(). */
struct preflight_words {
    char **word; /* NULL-terminated */
    size_t count;
    bool failed; /* no memory */
};
void preflight_words_add(struct preflight_words *words, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
void preflight_words_free(struct preflight_words *words);
/* Begin the arguments of a twillrun with what all have in common. */
void preflight_words_begin(struct preflight_words *words, const struct preflight_request *request);
/* Append "NAME:RANKS" of a host, with brackets around an IPv6 address. */
void preflight_site_add(char *list, size_t bytes, const struct preflight_host *host);

/* Run the test job on the hosts that all reach each other. */
void preflight_job_run(struct preflight *all, const struct preflight_request *request);
/* Choose the hosts of the test job: those that answered, without those whose connections fail.
 * chosen: [hosts]. Returns their number of ranks. */
int preflight_job_choose(const struct preflight *all, bool *chosen);

#endif
