/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of an agent on a host, which read facts and try connections. */
#ifndef TWILL_PREFLIGHT_AGENT_H
#define TWILL_PREFLIGHT_AGENT_H

#include "fabric/launcher/preflight/preflight.h"

#include <poll.h>

/* Fill in the facts about this host, but not its interface. `program` is the user's, or NULL. */
void preflight_facts_find(struct preflight_facts *facts, const char *program);
/* Fill in the state, MTU, speed and duplex of facts->interface, -1 or "" if not known. `root` is
 * "", or the folder of a test's files. */
void preflight_interface_find(struct preflight_facts *facts, const char *root);
/* Fill in the least limit of memory and the least limit of CPUs of this process's cgroup and its
 * parents. Also fill in the use of memory of the one with the least limit. Cgroups may be of
 * version 1 or 2. Each value is -1 if there is no limit. `root` is "", or the folder of a test's
 * files that replaces /. */
void preflight_cgroup_find(struct preflight_facts *facts, const char *root);
/* Set `text` to the word in brackets in a file, as in "always [madvise] never", or to "". */
void preflight_choice_find(char text[PREFLIGHT_TEXT], const char *path);
/* Fill in the CPUs that this process may run on and the number of their cores, or set `known` to
 * false. */
void preflight_rank_find(struct preflight_rank *rank);

struct preflight_attempt;
/* The connections that an agent tries, and those from other agents. Part of the agent. */
struct preflight_links {
    int listener;     /* or -1 */
    int *caller;      /* [callers] accepted connections */
    size_t *received; /* [callers] bytes that each has sent */
    int callers;
    struct preflight_attempt *attempt;
    int attempts;
};

/* Listen at an address on a free port. Returns the port, or 0 with errno set. */
int preflight_links_listen(struct preflight_links *links, const char *address);
/* Begin to connect to host number `to`. `own` is the address at which this agent listens. Returns
 * false if there is no memory, else true, also if the attempt has failed already. */
bool preflight_links_call(struct preflight_links *links, int to, const char *address, uint16_t port,
                          const char *own);
/* Return how many entries preflight_links_polls() fills. */
int preflight_links_count(const struct preflight_links *links);
/* Fill the preflight_links_count() entries to poll for the connections of an agent. */
void preflight_links_polls(const struct preflight_links *links, struct pollfd *polls);
/* Handle the events of the entries that preflight_links_polls() filled. */
void preflight_links_turn(struct preflight_links *links, const struct pollfd *polls);
/* Give up attempts beyond their deadline. Returns how many have no result yet. */
int preflight_links_pending(struct preflight_links *links);
/* Set *result to the result of attempt `index`. Returns the number of its host. */
int preflight_links_result(const struct preflight_links *links, int index,
                           struct preflight_link *result);
/* Close the attempts and forget their results. Callers and listener remain. */
void preflight_links_clear(struct preflight_links *links);
/* Close everything, and free the memory. */
void preflight_links_close(struct preflight_links *links);

#endif
