/* SPDX-License-Identifier: Apache-2.0 */
/* A host as twillrun sees it that runs a job on several: the program it reaches it by, and what
 * that says. */
#ifndef TWILL_AGENT_H
#define TWILL_AGENT_H

#include "fabric/launcher/launcher.h"

enum twill_agent_state {
    TWILL_HOST_IDLE,     /* no ranks there, or gone */
    TWILL_HOST_CALLED,   /* its agent runs */
    TWILL_HOST_ANSWERED, /* its twillrun has the job */
    TWILL_HOST_READY,
    TWILL_HOST_STARTING, /* was told to start its ranks */
    TWILL_HOST_RUNNING,
};

struct twill_agent {
    const char *name;
    enum twill_agent_state state;
    int alive;  /* ranks there that have not ended */
    pid_t pid;  /* of the agent, which leads a session; 0: none */
    bool local; /* it is the server itself */
    bool marked;
    char label[300];
    struct twill_pipe pipe;
    struct twill_stream said; /* its standard error */
    struct pollfd *polls;     /* the three that it is waited for with; NULL: it is not */
};

/* Start the server of a host: over the agent's program, or this program itself when it is local. */
bool twill_agent_start(struct twill_agent *agent, const struct twill_options *options,
                       const struct twill_site *site, const sigset_t *mask);
/* What it has said so far, as long as it does. */
void twill_agent_receive(struct twill_agent *agent);
/* How it ended, as a sentence's end; it has a second for it. */
void twill_agent_how(struct twill_agent *agent, const struct twill_options *options, char *text,
                     size_t bytes);
/* No more of it. Its server ends when its input does; who does not end in time is killed. */
void twill_agent_end(struct twill_agent *agent, uint64_t time_ns);

#endif
