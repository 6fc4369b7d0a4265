/* SPDX-License-Identifier: Apache-2.0 */
/* The front of a preflight: the twillruns that it starts, and what it makes of their answers. */
#ifndef TWILL_PREFLIGHT_FRONT_H
#define TWILL_PREFLIGHT_FRONT_H

#include "fabric/launcher/preflight/preflight.h"
#include "fabric/launcher/preflight/preflight_wire.h"

#include <sys/types.h>

/* twillruns that the front has started, one for each host, and later one for the test job. */

/* A running twillrun. */
struct preflight_program {
    pid_t pid;        /* 0: not started, or ended */
    int in, out, err; /* its standard files; -1: closed */
    bool over;        /* its output has ended */
    char *line;       /* the incomplete line of output */
    size_t used, capacity;
    char said[1024]; /* what it wrote to standard error, from the beginning */
    size_t said_used;
    int owed;             /* replies that are due */
    uint64_t sent_ns;     /* when the clock was asked for */
    int64_t sent_real_ns; /* the same by this host's clock */
};

/* Handle a line's object from program `index`; rank is that of its job. Counts it in owed. */
typedef void (*preflight_line_fn)(void *user, int index, int rank, struct json_object *object);

/* Start a program with a limit of open files. word: its arguments, NULL-terminated. False: errno.
 */
bool preflight_program_start(struct preflight_program *program, const char *const *word,
                             const struct rlimit *files);
/* Write a command to its standard input. */
void preflight_program_tell(struct preflight_program *program, const char *command);
/* Read the output of n programs until none owes a reply, or its output ended, or until_ns. */
void preflight_programs_wait(struct preflight_program *program, int n, uint64_t until_ns,
                             preflight_line_fn handle, void *user);
/* End the programs: first by closing their input, then by SIGTERM and SIGKILL. */
void preflight_programs_end(struct preflight_program *program, int n, uint64_t patience_ns);
/* Write what a program wrote to standard error as one line, without twillrun's prefixes. */
void preflight_program_said(const struct preflight_program *program, const char *host, char *text,
                            size_t bytes);

/* Choose the hosts of the test job: those that answered, without those whose connections fail.
 * chosen: [hosts]. Returns their number of ranks. */
int preflight_job_choose(const struct preflight *all, bool *chosen);

/* How the times of pairs of ranks are distributed. */

/* Round trips in us, or times of a MB in s (the inverse of MB/s), of one kind of pairs. */
struct preflight_spread {
    size_t pairs;
    double median, deviation; /* the median distance from the median */
    double worst;
};

/* Find it for pairs on a host (inside), or between hosts. False: there are none. */
bool preflight_spread_find(struct preflight_spread *spread, const struct preflight *all,
                           bool bandwidth, bool inside);

#endif
