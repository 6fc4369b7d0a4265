/* SPDX-License-Identifier: Apache-2.0 */
/* The twillrun in front of a job on several hosts, in front.c, agent.c and elastic_hosts.c. */
#ifndef TWILL_FRONT_H
#define TWILL_FRONT_H

#include "fabric/launcher/launcher.h"

/* The progress of a host, in this order. */
enum twill_front_state {
    TWILL_HOST_IDLE,     /* no ranks there, or they are over */
    TWILL_HOST_CALLED,   /* its agent was started */
    TWILL_HOST_ANSWERED, /* its agent was sent the job */
    TWILL_HOST_READY,    /* its agent can start the ranks */
    TWILL_HOST_STARTING, /* its agent was sent the command to start them */
    TWILL_HOST_RUNNING,
};

/* A host in front->host[], with its host agent and the agent program (ssh) that reaches it. */
struct twill_front_host {
    const char *name;
    enum twill_front_state state;
    int alive;                    /* ranks there that have not ended */
    int waiting;                  /* --elastic: ranks there that are not in the job yet */
    int joining;                  /* --elastic: ranks of these that have a handle */
    uint32_t answered;            /* number of the question (struct twill_front) answered last */
    pid_t pid;                    /* of the agent, which leads a session; 0: none */
    bool local;                   /* this host, which needs no program in between */
    bool marked;                  /* TWILL_FRAME_MARK was received */
    uint64_t heard_ns, probed_ns; /* when it last sent anything; when it was last probed */
    char label[300];
    struct twill_pipe pipe;
    struct twill_stream said; /* its standard error */
    struct pollfd *polls;     /* its 3 entries in front->polls; NULL: all are closed */
};

/* The job on several hosts, a local variable of twill_front_run(). */
struct twill_front {
    const struct twill_options *options;
    struct twill_front_host *host; /* [sites] */
    struct twill_child *child;     /* [places] by rank */
    bool *living;                  /* [places] rank has not ended */
    struct pollfd *polls;
    char key[TWILL_JOB_TEXT], where[80]; /* TWILL_JOB; "address port" of rank 0, once known */
    sigset_t mask;
    int signals;
    int code;
    struct twill_stop_request stop_request;
    bool failed, ending;
    struct twill_sayings sayings; /* lines of the library that are not printed yet */
    bool mute;                    /* output cannot be written */
    bool unbound;                 /* a host reported that its ranks are not bound */
    bool cut; /* a host was given up after its ranks ended, so output may be lost */
    /* when agents were started; if ending, when hosts that have not reported are given up */
    uint64_t start_ns, end_ns;
    uint64_t finish_ns; /* when the first rank ended with status 0; 0: none has */
    uint32_t window;    /* bytes of standard input that may be sent */
    bool input;         /* standard input has not ended, and the first rank 0 lives */
    struct {            /* --elastic */
        bool begun;     /* all ranks were in twill_init() */
        struct twill_restarts restarts;
        struct twill_left_question question; /* whether a rank of the job lives */
        int last_code;                       /* exit code of the rank that failed last */
    } elastic;
};
/* Queue a frame without data, and send it as far as the pipe takes it. */
void twill_front_send(struct twill_front_host *host, enum twill_frame_kind kind, uint32_t value);
/* Queue a frame for all hosts whose agents were sent the command to start ranks and are not done,
 * except `but`, which may be NULL. */
void twill_front_pass(struct twill_front *front, const struct twill_front_host *but,
                      const struct twill_frame *frame);
/* Record a failure. Returns whether it is the first, which decides the exit code. */
bool twill_front_fail(struct twill_front *front, int code);
/* Make all hosts end their ranks, with a grace period in ns. End the agents of hosts that have not
 * started them at once. Does nothing if the job is ending already. */
void twill_front_end(struct twill_front *front, uint64_t grace_ns);
/* Start the host agent, through the agent program or, on this host, directly, and fill in *host.
 * Returns true, or false after a message. */
bool twill_agent_start(struct twill_front_host *host, const struct twill_options *options,
                       const struct twill_site *site, const sigset_t *mask);
/* Print what the agent has written to standard error, and close that at its end. */
void twill_agent_receive(struct twill_front_host *host);
/* Write how the agent ended, as a clause for messages. Waits for its end for up to
 * TWILL_AGENT_REAP_NS. */
void twill_agent_how(struct twill_front_host *host, const struct twill_options *options, char *text,
                     size_t bytes);
/* Close the pipes, at which the host agent ends, and wait for the agent. Kill it after time_ns.
 * Print the rest of its standard error, and mark the host as idle, without ranks. */
void twill_agent_end(struct twill_front_host *host, uint64_t time_ns);
/* Return the number of ranks that have not ended. */
int twill_front_alive(const struct twill_front *front);
/* Return whether the data of a frame begins with this file name and its terminating 0. */
bool twill_frame_names(const struct twill_frame *frame, const char *name);
/* Handle the failure of a rank. `who` says which rank and how. Returns true if the others continue,
 * after starting a new process in its place or postponing that decision, and says so. */
bool twill_front_outlives(struct twill_front *front, int rank, int code, const char *who);
/* Handle the loss of a host, which ended because of `how`. Returns false if the job must end, which
 * is left to the caller. Returns true, after a message and after ending the agent that reached the
 * host, if the ranks on other hosts continue. New processes on other hosts then replace the lost
 * ranks, at once or when it is known that a rank of the job lives. */
bool twill_front_outlives_host(struct twill_front *front, struct twill_front_host *host,
                               const char *how);
/* With --elastic, do what follows after a rank has ended or a host has reported. If no process is
 * left, end all host agents. If a rank of the job lives, replace failed ranks whose replacement was
 * postponed. If all processes only wait to join the job, end them once a rank has ended with status
 * 0. Otherwise end the job as failed. */
void twill_front_check(struct twill_front *front);
/* Return when to call twill_front_check() although hosts have not answered. Returns UINT64_MAX if
 * no answer is awaited, and 0 if all have answered. */
uint64_t twill_front_question_deadline(const struct twill_front *front);

#endif
