/* SPDX-License-Identifier: Apache-2.0 */
/* The front of a preflight, with its twillruns and what it derives from their answers. */
#ifndef TWILL_PREFLIGHT_FRONT_H
#define TWILL_PREFLIGHT_FRONT_H

#include "fabric/launcher/preflight/preflight.h"
#include "fabric/launcher/preflight/preflight_wire.h"

#include <sys/types.h>

/* A running twillrun, owned by the front: one for each host, later one for the test job. */
struct preflight_program {
    pid_t pid;        /* 0: not started, or ended */
    int in, out, err; /* its standard files; -1: closed */
    bool over;        /* its output has ended */
    char *line;       /* the incomplete line of output */
    size_t used, capacity;
    char said[1024]; /* the beginning of its standard error */
    size_t said_used;
    int owed;             /* number of replies that are due */
    uint64_t sent_ns;     /* when it was asked for its clock */
    int64_t sent_real_ns; /* the same time, by this host's real-time clock */
};

/* Handle the object of a line from program `index`, by a rank of its job. Replies reduce `owed`. */
typedef void (*preflight_line_fn)(void *user, int index, int rank, struct json_object *object);

/* Start a program with these arguments, up to a NULL, and this limit of open files. Returns true,
 * or false with errno set. */
bool preflight_program_start(struct preflight_program *program, const char *const *word,
                             const struct rlimit *files);
/* Write `command`, as it is, to a program's standard input. Gives up without a message if the
 * program has ended or reads too little for a second, so that its reply will be missing. */
void preflight_program_tell(struct preflight_program *program, const char *command);
/* Read the output of n programs and pass its lines of JSON to handle(). Stop at until_ns, or when
 * no program whose output has not ended owes a reply. Keeps the beginning of their standard
 * error. */
void preflight_programs_wait(struct preflight_program *program, int n, uint64_t until_ns,
                             preflight_line_fn handle, void *user);
/* End the programs, by closing their input, after patience_ns by SIGTERM and at last by SIGKILL.
 * Then close their other files and free their lines. What they wrote to standard error stays. */
void preflight_programs_end(struct preflight_program *program, int n, uint64_t patience_ns);
/* Write a program's standard error to `text` as one line, without twillrun's prefixes. */
void preflight_program_said(const struct preflight_program *program, const char *host, char *text,
                            size_t bytes);
/* Choose the hosts of the test job, which answered and have no broken connections to each other.
 * `chosen` has [hosts] entries. Returns their number of ranks. */
int preflight_job_choose(const struct preflight *all, bool *chosen);

/* The distribution of round trips (us), or of times for a MB (s, the inverse of MB/s), over the
 * pairs of ranks on a host or between hosts. A plain value, which preflight_spread_find() sets. */
struct preflight_spread {
    size_t pairs;
    double median, deviation; /* the median distance from the median */
    double worst;
};

/* Compute *spread over the pairs on a host if `inside`, else over those between hosts, of times for
 * a MB if `bandwidth`, else of round trips. Returns false if there are none or no memory. */
bool preflight_spread_find(struct preflight_spread *spread, const struct preflight *all,
                           bool bandwidth, bool inside);

#endif
