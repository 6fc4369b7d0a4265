/* SPDX-License-Identifier: Apache-2.0 */
/* The twillrun in front of a job on several hosts: front.c, agent.c, elastic_hosts.c. */
#ifndef TWILL_FRONT_H
#define TWILL_FRONT_H

#include "fabric/launcher/launcher.h"

/* Progress of a host. */
enum twill_front_state {
    TWILL_HOST_IDLE,     /* no ranks there, or over */
    TWILL_HOST_CALLED,   /* its agent was started */
    TWILL_HOST_ANSWERED, /* its agent was sent the job */
    TWILL_HOST_READY,    /* its agent can start the ranks */
    TWILL_HOST_STARTING, /* its agent was told to start them */
    TWILL_HOST_RUNNING,
};

/* A host of the job: its host agent, and the agent program (ssh) over which it is reached. An
 * element of struct twill_front. */
struct twill_front_host {
    const char *name;
    enum twill_front_state state;
    int alive;                    /* ranks there that have not ended */
    int waiting;                  /* --elastic: those of them that are not in the job yet */
    int joining;                  /* those of these that have a handle */
    uint32_t answered;            /* question (struct twill_front) whose answer came last */
    pid_t pid;                    /* of the agent, which leads a session; 0: none */
    bool local;                   /* this host: no program is between */
    bool marked;                  /* TWILL_FRAME_MARK was received */
    uint64_t heard_ns, probed_ns; /* when it last sent something, and was last sent a probe */
    char label[300];
    struct twill_pipe pipe;
    struct twill_stream said; /* its standard error */
    struct pollfd *polls;     /* its 3 entries in front->polls; NULL: all closed */
};

/* The job on several hosts. A local variable of twill_front_run(). */
struct twill_front {
    const struct twill_options *options;
    struct twill_front_host *host; /* [sites] */
    struct twill_child *child;     /* [places]: only their output, and whether they are undecided */
    bool *living;                  /* [places] ranks that have not ended */
    struct pollfd *polls;
    char key[TWILL_JOB_TEXT], where[80]; /* TWILL_JOB; "address port" of rank 0, once known */
    sigset_t mask;
    int signals;
    int code;
    struct twill_stop_request stop_request;
    bool failed, ending;
    struct twill_sayings sayings;
    bool mute;    /* output cannot be written */
    bool unbound; /* a host reported that its ranks are not bound */
    bool cut;     /* a host was given up after its ranks had ended: output may be missing */
    uint64_t start_ns, end_ns;
    uint64_t finish_ns; /* when the first rank ended with status 0; 0: none has */
    uint32_t window;    /* bytes of standard input that may be sent */
    bool input;         /* standard input is not at its end, and the first rank 0 lives */
    struct {            /* --elastic */
        bool begun;     /* all ranks were in twill_init */
        struct twill_restarts restarts;
        struct twill_left_question question;
        int last_code; /* exit code of the rank that failed last */
    } elastic;
};

/* --- front.c --- */
/* Send a frame without data at once. */
void twill_front_send(struct twill_front_host *host, enum twill_frame_kind kind, uint32_t value);
/* Send a frame to all hosts whose agents start ranks, but one (NULL: none). */
void twill_front_pass(struct twill_front *front, const struct twill_front_host *but,
                      const struct twill_frame *frame);
/* Record a failure. The first one decides the exit code; returns whether this is the first. */
bool twill_front_fail(struct twill_front *front, int code);
/* End all ranks. Hosts that were not told to start have none. */
void twill_front_end(struct twill_front *front, uint64_t grace_ns);

/* --- agent.c --- */
/* Start the host agent through the agent program, or directly if it is this host. */
bool twill_agent_start(struct twill_front_host *host, const struct twill_options *options,
                       const struct twill_site *site, const sigset_t *mask);
/* Print what the agent has written to standard error. */
void twill_agent_receive(struct twill_front_host *host);
/* Write how the agent ended, the end of a sentence. Waits for its end for up to a second. */
void twill_agent_how(struct twill_front_host *host, const struct twill_options *options, char *text,
                     size_t bytes);
/* Close the pipes, on which the host agent ends, and wait for the agent; kill it if time_ns passes.
 */
void twill_agent_end(struct twill_front_host *host, uint64_t time_ns);

/* --- elastic_hosts.c --- */
int twill_front_alive(const struct twill_front *front);
/* Report whether a frame is about the file of this name. */
bool twill_frame_names(const struct twill_frame *frame, const char *name);
/* A rank has failed: `who` says which and how. Report whether the others go on, with a new process
 * in its place, and say so. */
bool twill_front_outlives(struct twill_front *front, int rank, int code, const char *who);
/* A host is lost. Report whether the others go on, with new processes on other hosts in place of
 * its ranks; the agent is ended then. */
bool twill_front_outlives_host(struct twill_front *front, struct twill_front_host *host,
                               const char *how);
/* End what is left: hosts without ranks when all have ended, processes that wait to join a job that
 * has. Replace ranks that were undecided if a rank of the job is left. */
void twill_front_check(struct twill_front *front);
/* Return when to call twill_front_check() although hosts have not answered; UINT64_MAX: no answer
 * is awaited, 0: all have answered. */
uint64_t twill_front_question_deadline(const struct twill_front *front);

#endif
