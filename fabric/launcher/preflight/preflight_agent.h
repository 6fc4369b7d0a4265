/* SPDX-License-Identifier: Apache-2.0 */
/* What an agent on a host is made of: reading facts, and trying connections. */
#ifndef TWILL_PREFLIGHT_AGENT_H
#define TWILL_PREFLIGHT_AGENT_H

#include "fabric/launcher/preflight/preflight.h"

#include <poll.h>

/* --- facts ---------------------------------------------------------------------------------- */
/* Fill what this host says of itself, but for the interface. program: the user's, or NULL. */
void preflight_facts_find(struct preflight_facts *facts, const char *program);
/* Fill the state of facts->interface. root: "", or where a test has its files. */
void preflight_interface_find(struct preflight_facts *facts, const char *root);
/* Fill the limits of this process's cgroup and its parents, of version 1 or 2. */
void preflight_cgroup_find(struct preflight_facts *facts, const char *root);
/* Get the word in brackets: "always [madvise] never". Empty if there is none. */
void preflight_choice_find(char text[PREFLIGHT_TEXT], const char *path);
/* Fill what this process may run on. */
void preflight_rank_find(struct preflight_rank *rank);

/* --- connections ---------------------------------------------------------------------------- */
struct preflight_attempt;
/* The connections of an agent: those that it tries, and those that other agents make to it. */
struct preflight_links {
    int listener; /* or -1 */
    int *caller;  /* [callers] connections that were accepted */
    size_t *received;
    int callers;
    struct preflight_attempt *attempt;
    int attempts;
};

/* Listen at an address on a free port, which is returned; 0 with errno on failure. */
int preflight_links_listen(struct preflight_links *links, const char *address);
/* Begin to connect to a host. `own`: the address at which this agent listens. */
bool preflight_links_call(struct preflight_links *links, int to, const char *address, uint16_t port,
                          const char *own);
/* Return how many entries preflight_links_polls() fills. */
int preflight_links_count(const struct preflight_links *links);
void preflight_links_polls(const struct preflight_links *links, struct pollfd *polls);
/* Handle the events. */
void preflight_links_turn(struct preflight_links *links, const struct pollfd *polls);
/* Return how many attempts have no result yet; give up those beyond their deadline. */
int preflight_links_pending(struct preflight_links *links);
/* Get the result of an attempt: the host that it is about. */
int preflight_links_result(const struct preflight_links *links, int index,
                           struct preflight_link *result);
/* Close the attempts; callers and listener remain. */
void preflight_links_clear(struct preflight_links *links);
void preflight_links_close(struct preflight_links *links);

#endif
