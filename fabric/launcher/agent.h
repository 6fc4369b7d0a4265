/* SPDX-License-Identifier: Apache-2.0 */
/* A host of a job on several hosts, as the twillrun in front sees it: its agent and what that
 * reports. */
#ifndef TWILL_AGENT_H
#define TWILL_AGENT_H

#include "fabric/launcher/launcher.h"

/* Progress of a host. */
enum twill_agent_state {
    TWILL_HOST_IDLE,     /* no ranks there, or over */
    TWILL_HOST_CALLED,   /* its agent was started */
    TWILL_HOST_ANSWERED, /* its server was sent the job */
    TWILL_HOST_READY,    /* its server can start the ranks */
    TWILL_HOST_STARTING, /* its server was told to start them */
    TWILL_HOST_RUNNING,
};

/* One host. An element of struct front, from its start to its end. */
struct twill_agent {
    const char *name;
    enum twill_agent_state state;
    int alive;                    /* ranks there that have not ended */
    int waiting;                  /* --elastic: those of them that are not in the job yet */
    int joining;                  /* those of these that have a handle */
    uint32_t answered;            /* question (struct twill_front) whose answer came last */
    pid_t pid;                    /* of the agent, which leads a session; 0: none */
    bool local;                   /* this host: the agent is the server itself */
    bool marked;                  /* TWILL_FRAME_MARK was received */
    uint64_t heard_ns, probed_ns; /* when it last sent something, and was last sent a probe */
    char label[300];
    struct twill_pipe pipe;
    struct twill_stream said; /* its standard error */
    struct pollfd *polls;     /* its 3 entries in front->polls; NULL: all closed */
};

/* Start the server of a host through the agent program, or directly if it is this host. */
bool twill_agent_start(struct twill_agent *agent, const struct twill_options *options,
                       const struct twill_site *site, const sigset_t *mask);
/* Print what the agent has written to standard error. */
void twill_agent_receive(struct twill_agent *agent);
/* Write how the agent ended, the end of a sentence. Waits for its end for up to a second. */
void twill_agent_how(struct twill_agent *agent, const struct twill_options *options, char *text,
                     size_t bytes);
/* Close the pipes, on which a server ends, and wait for the agent; kill it if time_ns passes. */
void twill_agent_end(struct twill_agent *agent, uint64_t time_ns);

#endif
