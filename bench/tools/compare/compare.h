/* SPDX-License-Identifier: Apache-2.0 */
/* twill-compare: the driver. Contenders (programs of twill, of other libraries and of the bound)
 * are started once and take turns; rows of times become tables, JSON and plots. */
#ifndef TWILL_COMPARE_H
#define TWILL_COMPARE_H

#include "bench/common/progress_line.h"
#include "bench/tools/compare/peers/board.h"
#include "bench/tools/compare/peers/driver_link.h"

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum {
    TWILL_COMPARE_CONTENDERS = 40,
    TWILL_COMPARE_SIZES = 64,
    TWILL_COMPARE_ROUNDS = 100,
    TWILL_COMPARE_ARGUMENTS = 64,
    TWILL_COMPARE_SETTINGS = 16,
    TWILL_COMPARE_HOSTS = 32,
    TWILL_COMPARE_LISTS = 16,
    TWILL_COMPARE_PATH = 1024
};

struct twill_compare_host {
    char name[64];
    int ranks;
    char congestion[16]; /* the one to restore; "": unchanged */
};

/* --steps: training steps whose computing is played, instead of collectives. */
struct twill_compare_played {
    const char *lists[TWILL_COMPARE_LISTS]; /* gradient lists, in argv */
    int n_lists;
    size_t batch, gflops; /* samples; speed of what computes */
    bool device;          /* it is a device, not the rank's core */
};

/* Files to write, the folder to work in, prefixes of libraries; NULL: none. */
struct twill_compare_paths {
    const char *json, *csv, *plot, *work, *ucc, *oneccl;
};

struct twill_compare_options {
    int ranks;
    struct twill_compare_host hosts[TWILL_COMPARE_HOSTS];
    int n_hosts;            /* 0: this host, without an agent */
    bool shared;            /* hosts are namespaces of one machine and share its cores */
    const char *agent;      /* run as AGENT HOST COMMAND, like rsh */
    const char *congestion; /* TCP congestion control to set on all hosts, or NULL */
    const char *address;    /* addresses of this host for the others; NULL: all it has */
    size_t sizes[TWILL_COMPARE_SIZES];
    int n_sizes;
    size_t max_bytes;
    int rounds;
    bool selected[TWILL_COMPARE_COLLECTIVES];
    const char *peers; /* names or parts of names, comma-separated; NULL: all */
    int bind;          /* 1, 0, or -1: if there is a core for each rank */
    bool persistent, details, quick, list;
    struct twill_compare_played played;
    bool mpi;            /* compare MPI programs with and without twill */
    double timeout;      /* seconds, for a start and for a turn */
    double turn_seconds; /* of timed calls per turn, where calls are short */
    struct twill_compare_paths paths;
};

enum twill_compare_parsed { TWILL_COMPARE_RUN, TWILL_COMPARE_DONE, TWILL_COMPARE_USAGE };
enum twill_compare_parsed twill_compare_parse(struct twill_compare_options *options, int argc,
                                              char **argv);

/* Return "allreduce", "allreduce_out", ... */
const char *twill_compare_name(enum twill_compare_collective collective);
/* Return what sizes mean, for a title; "" if it is obvious. */
const char *twill_compare_of_what(enum twill_compare_collective collective);

/* snprintf() that may truncate: truncated paths are not found, and reported. */
void twill_compare_write(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- contenders ------------------------------------------------------------------------------- */

enum twill_compare_kind {
    TWILL_COMPARE_BOUND,
    TWILL_COMPARE_TWILL,
    TWILL_COMPARE_PEER,
    TWILL_COMPARE_TRIP /* one-way messages, beside the first collective */
};

struct twill_compare_contender {
    char name[32];
    enum twill_compare_kind kind;
    int below;      /* index of the same program without twill, or -1 */
    bool self_only; /* only calls of one rank with itself */
    bool tuned;
    const char *memory;                     /* a memory kind, see peer.h */
    char *command[TWILL_COMPARE_ARGUMENTS]; /* launcher, program, board, memory, ... */
    char *settings[TWILL_COMPARE_SETTINGS]; /* environment, NAME=value */
    /* why it is missing or was excluded; "": it takes part */
    char absent[2 * TWILL_COMPARE_TEXT + 64];
    bool found; /* it was available at the start */
    char library[TWILL_COMPARE_TEXT];
    pid_t pid; /* of the launcher, or 0 */
    struct twill_compare_board *board;
    char path[TWILL_COMPARE_PATH]; /* of the board */
    char log[TWILL_COMPARE_PATH];  /* file with its output */
    const char *pingpong;          /* fi_pingpong's command, started for each turn, or NULL */
    int link[TWILL_COMPARE_RANKS]; /* sockets of ranks on hosts; 0: none */
    int connected, posts;          /* ranks that have connected; contributions to an allgather */
    size_t posted;                 /* bytes of a contribution */
};

/* A whole comparison. */
/* How ranks of other hosts connect to the driver. */
struct twill_compare_remote {
    int listener, port;
    char token[24], addresses[256]; /* that authenticate ranks; under which they connect */
    char agent[TWILL_COMPARE_PATH]; /* script that runs the agent */
    struct twill_compare_hello hellos[TWILL_COMPARE_RANKS];
};

/* Where a run finds and puts files. */
struct twill_compare_folders {
    char bin[TWILL_COMPARE_PATH];      /* twillrun */
    char programs[TWILL_COMPARE_PATH]; /* compare-twill and compare-bound */
    char sources[TWILL_COMPARE_PATH];  /* peer_mpi.c */
    char work[TWILL_COMPARE_PATH];     /* compiled programs and logs */
    char boards[TWILL_COMPARE_PATH];   /* in memory */
};

struct twill_compare_run {
    struct twill_compare_options options;
    struct twill_compare_contender contenders[TWILL_COMPARE_CONTENDERS];
    int n_contenders;
    struct twill_compare_row *rows;
    int n_rows;
    struct twill_compare_step_result *steps; /* --steps, instead of rows */
    int n_steps;
    bool bind, keep;
    int cores;
    uint32_t core[TWILL_COMPARE_RANKS];
    bool tidying;     /* do not react to interrupts */
    sigset_t signals; /* that end a run early; blocked, and polled */
    struct twill_compare_remote remote;
    bool cores_assigned; /* cores are assigned, by the first contender's ranks */
    unsigned pingpongs;  /* number of fi_pingpong runs */
    struct twill_compare_folders folders;
    struct twill_bench_progress progress;
    size_t turns_done, turns; /* of all contenders in all rounds */
    double started, seconds;  /* seconds: start and duration of the run */
    char date[32];
    int failures; /* rows with wrong values */
};

/* Fill in the contenders: find launchers, compile programs. Missing ones stay in the table, with
 * the reason. Returns false, after a message, on a failure of twill-compare itself. */
bool twill_compare_gather(struct twill_compare_run *run);
/* Return whether --peers names this contender. */
bool twill_compare_chosen(const struct twill_compare_options *options, const char *name);
void twill_compare_free_contenders(struct twill_compare_run *run);

/* --- children --------------------------------------------------------------------------------- */

/* Run a command to completion, with its output in the file `log`. Returns its exit status, or
 * -1. */
int twill_compare_command(struct twill_compare_run *run, char *const *command, const char *log);
/* Read the first line of a file that has text (or the first that contains `prefer`); "" if none. */
void twill_compare_first_line(const char *path, const char *prefer, char *text, size_t bytes);

/* Start a contender and wait until all its ranks are up. Returns false if that failed; the
 * contender is then ended and excluded. */
bool twill_compare_start(struct twill_compare_run *run, struct twill_compare_contender *contender);
/* Let a contender execute an order and wait for it. Fails as twill_compare_start(). */
bool twill_compare_turn(struct twill_compare_run *run, struct twill_compare_contender *contender,
                        const struct twill_compare_order *order);
/* End a contender, by an order if it lives. */
void twill_compare_end(struct twill_compare_run *run, struct twill_compare_contender *contender);
/* Count a turn, and show on a terminal how far the run is. */
void twill_compare_progress(struct twill_compare_run *run, const char *what);
/* Return whether a signal has asked to end the run. */
bool twill_compare_interrupted(const struct twill_compare_run *run);

/* --- results ---------------------------------------------------------------------------------- */

/* One contender's results in a row, in seconds per call. */
struct twill_compare_cell {
    double *samples; /* of all rounds: a batch's mean on its slowest rank */
    size_t n_samples, calls;
    double median, min, p99;
    double rounds[TWILL_COMPARE_ROUNDS]; /* median of each round */
    int n_rounds;
    bool wrong;
    bool off_wire; /* faster than the wire between hosts of one machine: went through its memory */
};

struct twill_compare_row {
    enum twill_compare_collective collective;
    size_t bytes;
    double lines[TWILL_COMPARE_ROUNDS]; /* latency of a cache line in each round, seconds */
    int n_lines;
    double line;    /* their median, or 0; between hosts one way of raw TCP */
    double seconds; /* that measuring the row took */
    struct twill_compare_cell cells[TWILL_COMPARE_CONTENDERS];
};

/* --steps: a contender's results for a model, in one way. */
struct twill_compare_step_result {
    const char *list;
    int contender;
    enum twill_compare_step way;
    size_t bytes;           /* of all gradients */
    double *compute, *step; /* [samples] seconds of the slowest rank */
    size_t samples;
    double compute_median, step_median;
    bool wrong;
};

/* Measure everything; results are in run->rows. Returns false if interrupted or out of memory. */
bool twill_compare_measure(struct twill_compare_run *run);

/* compare_steps.c: measure the steps of all lists, as twill_compare_measure() does rows; free them;
 * print them. */
bool twill_compare_measure_steps(struct twill_compare_run *run);
void twill_compare_free_steps(struct twill_compare_run *run);
void twill_compare_print_steps(const struct twill_compare_run *run, FILE *out);
/* Return how a result's gradients are reduced, as text; what a step takes beyond its computing. */
const char *twill_compare_way(const struct twill_compare_run *run,
                              const struct twill_compare_step_result *result);
double twill_compare_exposed(const struct twill_compare_step_result *result);

/* Between hosts that are namespaces of one machine, mark results that are faster than the wire: the
 * library has found a way through the machine's memory. */
void twill_compare_mark_off_wire(struct twill_compare_run *run);
/* Return the fastest contender of a kind in a row, or -1. Results off the wire do not count. */
int twill_compare_best(const struct twill_compare_run *run, const struct twill_compare_row *row,
                       enum twill_compare_kind kind, int tuned);
/* Return GB/s over a rank's link, as nccl-tests defines it. */
double twill_compare_bus_bandwidth(const struct twill_compare_run *run,
                                   const struct twill_compare_row *row, double seconds);
/* Return a / b, or 0 if either is missing. */
double twill_compare_ratio(double a, double b);

/* Return the time without twill over the time with it, or 0 if either is missing. */
double twill_compare_over_below(const struct twill_compare_run *run,
                                const struct twill_compare_row *row, int index);
/* Return whether a contender has results of a collective. */
bool twill_compare_has_times(const struct twill_compare_run *run, int index,
                             enum twill_compare_collective collective);
/* Print microseconds, or "-" if there are none. */
void twill_compare_print_time(FILE *out, double seconds, int width);
/* Print value * scale with `digits` decimals, or "-" if it is 0. */
void twill_compare_print_value(FILE *out, double value, int width, int digits, double scale);

void twill_compare_print_head(const struct twill_compare_run *run, FILE *out);
void twill_compare_print_rows(const struct twill_compare_run *run, FILE *out,
                              enum twill_compare_collective collective);
void twill_compare_print_foot(const struct twill_compare_run *run, FILE *out);
/* --mpi: print pairs with and without twill; the cost of calls that are passed on; the smallest
 * ratio. */
void twill_compare_print_pairs(const struct twill_compare_run *run, FILE *out,
                               enum twill_compare_collective collective);
void twill_compare_print_passed(const struct twill_compare_run *run, FILE *out);
void twill_compare_print_least(const struct twill_compare_run *run, FILE *out);

/* Write the results as JSON. Returns false after a message. */
bool twill_compare_save(const struct twill_compare_run *run);
/* Write the times as comma-separated values. Returns false after a message. */
bool twill_compare_save_csv(const struct twill_compare_run *run);
/* Plot PREFIX-COLLECTIVE.svg for each collective by gnuplot. Returns false after a message. */
bool twill_compare_plot(struct twill_compare_run *run);
/* Warn before the measurement if gnuplot is missing. */
void twill_compare_check_plot(const struct twill_compare_run *run);

#endif
