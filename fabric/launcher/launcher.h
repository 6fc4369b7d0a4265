/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun: starts the ranks of a job on this host, watches over them, and ends with their code. */
#ifndef TWILL_LAUNCHER_H
#define TWILL_LAUNCHER_H

#include "lib/base.h"

#include <sched.h>
#include <signal.h>
#include <sys/types.h>

#define TWILL_EXIT_USAGE 2

enum twill_bind { TWILL_BIND_NONE, TWILL_BIND_CORE };

struct twill_options {
    int ranks;
    bool label;
    enum twill_bind bind;
    uint64_t grace_ns;  /* for the others to notice a failure and say so */
    char **assignments; /* of -x: NAME=VALUE, NULL at the end */
    int assigned;
    char **command; /* program and arguments */
};

/* One pipe of output and the line that is not complete yet. */
struct twill_stream {
    int from; /* -1: at its end, or not ours */
    int to;   /* standard output or error */
    char *line;
    size_t used, room;
};

struct twill_child {
    pid_t pid; /* leads a process group of its own; 0: not started, or gone */
    struct twill_stream out[2];
};

struct twill_launch {
    const struct twill_options *options;
    struct twill_child *child; /* [ranks] */
    int listener;              /* given to rank 0 */
    char port[8], job[40];
    int stdin_from; /* terminal that is relayed to rank 0, or -1 */
    int stdin_to;
    sigset_t mask;    /* of the launcher's caller: what ranks begin with */
    int signals;      /* signalfd */
    int alive;        /* ranks */
    int failed;       /* first rank that failed, or -1 */
    int code;         /* its exit code */
    int interrupts;   /* SIGINT and SIGTERM seen */
    int stage;        /* of ending: 0 none, 1 grace, 2 SIGTERM sent, 3 SIGKILL sent */
    uint64_t next_ns; /* when the next stage begins */
};

/* Print "twillrun: ..." to standard error. */
void twill_complain(const char *format, ...) TWILL_PRINTF(1, 2);

/* 0: go on; else the program is to end with *code. */
int twill_options_read(struct twill_options *options, int argc, char **argv, int *code);

/* Start a rank. 0, or the exit code to end with; it has complained. */
int twill_child_start(struct twill_launch *launch, int rank);
/* Wait for all of them: the exit code. */
int twill_launch_watch(struct twill_launch *launch);

/* LD_PRELOAD for ranks that are to have TWILL_HEAP=shared; what is there already stays. false: no
 * memory. */
bool twill_preload_set(void);

/* CPUs for a rank: whole cores, split evenly over the ranks. false with errno. */
bool twill_bind_cpus(int rank, int ranks, cpu_set_t *cpus);

/* Move what has come, in whole lines with "[rank] " before each. false: at its end. */
bool twill_stream_move(struct twill_stream *stream, int rank);
/* Write what is left and close. */
void twill_stream_end(struct twill_stream *stream, int rank);

#endif
