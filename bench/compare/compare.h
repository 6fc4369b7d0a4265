/* SPDX-License-Identifier: Apache-2.0 */
/* twill-compare: the parts of the driver. Contenders (programs of twill, of peers and of the bound)
 * are started once and take turns; rows of times become tables, JSON and plots. */
#ifndef TWILL_COMPARE_H
#define TWILL_COMPARE_H

#include "bench/compare/board.h"
#include "bench/compare/driver_link.h"

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
    TWILL_COMPARE_PATH = 1024
};

struct twill_compare_host {
    char name[64];
    int ranks;
    char congestion[16]; /* that it had before; "": it has it still */
};

struct twill_compare_options {
    int ranks;
    struct twill_compare_host hosts[TWILL_COMPARE_HOSTS];
    int n_hosts;            /* 0: this one, without an agent */
    bool shared;            /* hosts are namespaces of one machine, with the same cores */
    const char *agent;      /* AGENT HOST COMMAND, as rsh */
    const char *congestion; /* of TCP, for all; NULL: as it is */
    const char *address;    /* of this host, for the others; NULL: all that it has */
    size_t sizes[TWILL_COMPARE_SIZES];
    int n_sizes;
    size_t max_bytes;
    int rounds;
    bool selected[TWILL_COMPARE_COLLECTIVES];
    const char *peers; /* names, parts of names, comma in between; NULL: all */
    int bind;          /* 1, 0, or -1: if there is a core for each rank */
    bool persistent, details, quick, list;
    bool mpi;            /* MPI programs with and without twill, instead of twill and peers */
    double timeout;      /* seconds, of a start and of a turn */
    double turn_seconds; /* of calls that are timed, where calls are short */
    const char *json, *csv, *plot, *work, *ucc, *oneccl;
};

enum twill_compare_parsed { TWILL_COMPARE_RUN, TWILL_COMPARE_DONE, TWILL_COMPARE_USAGE };
enum twill_compare_parsed twill_compare_parse(struct twill_compare_options *options, int argc,
                                              char **argv);

/* "allreduce", "allreduce_out", ... */
const char *twill_compare_name(enum twill_compare_collective collective);
/* What a size is, for a title: "" if it is plain. */
const char *twill_compare_of_what(enum twill_compare_collective collective);

/* snprintf() that may cut: paths that are cut are not found, and said so. */
void twill_compare_write(char *text, size_t bytes, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- contenders ------------------------------------------------------------------------------- */

enum twill_compare_kind {
    TWILL_COMPARE_BOUND,
    TWILL_COMPARE_TWILL,
    TWILL_COMPARE_PEER,
    TWILL_COMPARE_TRIP /* a message one way, beside the first collective */
};

struct twill_compare_contender {
    char name[32];
    enum twill_compare_kind kind;
    int below;      /* the contender that is the same without twill; -1: none is */
    bool self_only; /* only calls of one rank with itself */
    bool tuned;
    const char *memory;                       /* of peer.h */
    char *command[TWILL_COMPARE_ARGUMENTS];   /* launcher, program, board, memory, ... */
    char *settings[TWILL_COMPARE_SETTINGS];   /* NAME=value of its environment */
    char absent[2 * TWILL_COMPARE_TEXT + 64]; /* why it is not there or no longer; "": it is */
    bool found;                               /* it was there in the beginning */
    char library[TWILL_COMPARE_TEXT];
    pid_t pid; /* of the launcher, or 0 */
    struct twill_compare_board *board;
    char path[TWILL_COMPARE_PATH]; /* of the board */
    char log[TWILL_COMPARE_PATH];  /* what it printed */
    const char *pingpong;          /* fi_pingpong's command, started for each turn; or NULL */
    int link[TWILL_COMPARE_RANKS]; /* to ranks on hosts; 0: none */
    int greeted, posts;            /* ranks that have connected; parts of an allgather */
    size_t posted;                 /* bytes of a part */
};

/* A whole comparison. */
struct twill_compare_run {
    struct twill_compare_options options;
    struct twill_compare_contender contenders[TWILL_COMPARE_CONTENDERS];
    int n_contenders;
    struct twill_compare_row *rows;
    int n_rows;
    bool bind, keep;
    int cores;
    uint32_t core[TWILL_COMPARE_RANKS];
    bool tidying;                   /* is not to be interrupted */
    sigset_t signals;               /* that end a run early, blocked meanwhile */
    int listener, port;             /* for ranks on hosts */
    char token[24], addresses[256]; /* by which they know us */
    char agent[TWILL_COMPARE_PATH]; /* a program that is the agent */
    struct twill_compare_hello hellos[TWILL_COMPARE_RANKS];
    bool dealt;                        /* cores, by the ranks of the first contender */
    unsigned pingpongs;                /* done */
    char bin[TWILL_COMPARE_PATH];      /* where twillrun is */
    char programs[TWILL_COMPARE_PATH]; /* where compare-twill and compare-bound are */
    char sources[TWILL_COMPARE_PATH];  /* where peer_mpi.c is */
    char work[TWILL_COMPARE_PATH];     /* compiled programs, logs */
    char boards[TWILL_COMPARE_PATH];   /* a folder in memory */
    double started, seconds;           /* of the whole */
    char date[32];
    int failures; /* wrong values */
};

/* Fill in the table of contenders: find launchers, compile programs. Those that cannot be had stay
 * in it, with the reason. False: a failure of twill-compare itself, which is said. */
bool twill_compare_gather(struct twill_compare_run *run);
/* Is this contender among those that --peers names? */
bool twill_compare_chosen(const struct twill_compare_options *options, const char *name);
void twill_compare_free_contenders(struct twill_compare_run *run);

/* --- children --------------------------------------------------------------------------------- */

/* Run a command to its end; what it prints goes to the file. Its exit status, or -1. */
int twill_compare_command(struct twill_compare_run *run, char *const *command, const char *log);
/* The first line of a file that says something, for messages; "" if none. */
void twill_compare_first_line(const char *path, const char *prefer, char *text, size_t bytes);

/* Start a contender and wait until all its ranks are there. Failing, it is ended, and absent. */
bool twill_compare_start(struct twill_compare_run *run, struct twill_compare_contender *contender);
/* Let it do an order and wait. Failing, likewise. */
bool twill_compare_turn(struct twill_compare_run *run, struct twill_compare_contender *contender,
                        const struct twill_compare_order *order);
/* End it, kindly if it lives. */
void twill_compare_end(struct twill_compare_run *run, struct twill_compare_contender *contender);
/* Has somebody asked for the end? */
bool twill_compare_interrupted(const struct twill_compare_run *run);

/* --- results ---------------------------------------------------------------------------------- */

/* What a contender took for one call of a row, in seconds. */
struct twill_compare_cell {
    double *samples; /* of all rounds: batches, of each the slowest rank's mean */
    size_t n_samples, calls;
    double median, min, p99;
    double rounds[TWILL_COMPARE_ROUNDS]; /* medians */
    int n_rounds;
    bool wrong;
};

struct twill_compare_row {
    enum twill_compare_collective collective;
    size_t bytes;
    double lines[TWILL_COMPARE_ROUNDS]; /* seconds from core to core, by round */
    int n_lines;
    double line;    /* their median; 0: not measured; between hosts one way of raw TCP */
    double seconds; /* that it took to measure all */
    struct twill_compare_cell cells[TWILL_COMPARE_CONTENDERS];
};

/* Take all turns; the rows are in run->rows. */
bool twill_compare_measure(struct twill_compare_run *run);

/* The fastest of a kind in a row; -1: none. */
int twill_compare_best(const struct twill_compare_run *run, const struct twill_compare_row *row,
                       enum twill_compare_kind kind, int tuned);
/* Bytes that a rank's link carries over time, as nccl-tests counts them, GB/s. */
double twill_compare_bus_bandwidth(const struct twill_compare_run *run,
                                   const struct twill_compare_row *row, double seconds);
/* a / b, 0 if either is missing. */
double twill_compare_ratio(double a, double b);

/* Of a row: the time of the contender below over this one's; 0 if either is missing. */
double twill_compare_over_below(const struct twill_compare_run *run,
                                const struct twill_compare_row *row, int index);
/* Has a contender times of a collective? */
bool twill_compare_has_times(const struct twill_compare_run *run, int index,
                             enum twill_compare_collective collective);
/* Microseconds, "-" if there are none. */
void twill_compare_print_time(FILE *out, double seconds, int width);
/* A number of so many digits, "-" if there is none. */
void twill_compare_print_value(FILE *out, double value, int width, int digits, double scale);

void twill_compare_print_head(const struct twill_compare_run *run, FILE *out);
void twill_compare_print_rows(const struct twill_compare_run *run, FILE *out,
                              enum twill_compare_collective collective);
void twill_compare_print_foot(const struct twill_compare_run *run, FILE *out);
/* Likewise of --mpi: pairs with and without twill; what a call costs that is passed on; the
 * smallest ratio. */
void twill_compare_print_pairs(const struct twill_compare_run *run, FILE *out,
                               enum twill_compare_collective collective);
void twill_compare_print_passed(const struct twill_compare_run *run, FILE *out);
void twill_compare_print_least(const struct twill_compare_run *run, FILE *out);

/* Write results as JSON. False: it is said why. */
bool twill_compare_save(const struct twill_compare_run *run);
/* The times as comma-separated values. */
bool twill_compare_save_csv(const struct twill_compare_run *run);
/* PREFIX-COLLECTIVE.svg for each collective, by gnuplot. False likewise. */
bool twill_compare_plot(struct twill_compare_run *run);
/* Before anything is measured: say so if there will be no plots. */
void twill_compare_check_plot(const struct twill_compare_run *run);

#endif
