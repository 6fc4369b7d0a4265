/* SPDX-License-Identifier: Apache-2.0 */
/* The twillrun in front of a job on several hosts: front.c, front_silence.c, elastic_hosts.c. */
#ifndef TWILL_FRONT_H
#define TWILL_FRONT_H

#include "fabric/launcher/agent.h"

/* The job on several hosts. A local variable of twill_front_run(). */
struct twill_front {
    const struct twill_options *options;
    struct twill_agent *agent; /* [sites] */
    struct twill_child *child; /* [places]: only their output, and whether they are undecided */
    bool *living;              /* [places] ranks that have not ended */
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
void twill_front_send(struct twill_agent *agent, enum twill_frame_kind kind, uint32_t value);
/* Send a frame to all hosts whose servers start ranks, but one (NULL: none). */
void twill_front_pass(struct twill_front *front, const struct twill_agent *but,
                      const struct twill_frame *frame);
/* Record a failure. The first one decides the exit code; returns whether this is the first. */
bool twill_front_fail(struct twill_front *front, int code);
/* End all ranks. Hosts that were not told to start have none. */
void twill_front_end(struct twill_front *front, uint64_t grace_ns);
/* Give up a host, with a message, and end the job. */
void twill_front_lose(struct twill_front *front, struct twill_agent *agent, const char *why,
                      const char *how);

/* --- front_silence.c --- */
/* Give up hosts that have not answered in time, and probe those that soon would be. */
void twill_front_check_silence(struct twill_front *front);
/* Return when twill_front_check_silence() has something to do; UINT64_MAX: never. */
uint64_t twill_front_next_deadline(const struct twill_front *front);

/* --- elastic_hosts.c --- */
int twill_front_alive(const struct twill_front *front);
/* Report whether a frame is about the file of this name. */
bool twill_frame_names(const struct twill_frame *frame, const char *name);
/* A rank has failed: `who` says which and how. Report whether the others go on, with a new process
 * in its place, and say so. */
bool twill_front_outlives(struct twill_front *front, int rank, int code, const char *who);
/* A host is lost. Report whether the others go on, with new processes on other hosts in place of
 * its ranks; the agent is ended then. */
bool twill_front_outlives_host(struct twill_front *front, struct twill_agent *agent,
                               const char *how);
/* End what is left: hosts without ranks when all have ended, processes that wait to join a job that
 * has. Replace ranks that were undecided if a rank of the job is left. */
void twill_front_check(struct twill_front *front);
/* Return when to call twill_front_check() although hosts have not answered; UINT64_MAX: no answer
 * is awaited, 0: all have answered. */
uint64_t twill_front_question_deadline(const struct twill_front *front);

#endif
