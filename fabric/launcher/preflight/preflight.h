/* SPDX-License-Identifier: Apache-2.0 */
/* The preflight of twillrun --check, with all that is known about hosts, paths and ranks, and what
 * the checks find in it. The program twill-check runs in three roles. It is the front, which
 * collects and prints, an agent on each host, and the ranks of a test job. */
#ifndef TWILL_PREFLIGHT_H
#define TWILL_PREFLIGHT_H

#include "fabric/launcher/preflight/preflight_lists.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>

#define PREFLIGHT_TEXT      512  /* bytes of a text that a host reports */
#define PREFLIGHT_CPUS      1024 /* CPUs of a host that are distinguished */
#define PREFLIGHT_SECOND_NS UINT64_C(1000000000)
#define PREFLIGHT_PROBE     65536 /* bytes sent over each connection */
/* Time for a connection, and again for its data, longer than TCP's first retransmission. */
#define PREFLIGHT_REACH_NS UINT64_C(3000000000)
/* The facts that a host reports about itself, as the lists name them. A plain value, which a host
 * has about itself and the front has of each host (struct preflight_host). */
struct preflight_facts {
#define PREFLIGHT_MEMBER(name) int64_t name;
    PREFLIGHT_NUMBERS(PREFLIGHT_MEMBER)
#undef PREFLIGHT_MEMBER
#define PREFLIGHT_MEMBER(name) char name[PREFLIGHT_TEXT];
    PREFLIGHT_TEXTS(PREFLIGHT_MEMBER)
#undef PREFLIGHT_MEMBER
};

/* The CPUs of a rank, as it is bound on its host. An element of host->rank[]. */
struct preflight_rank {
    bool known;
    int cores;                 /* cores with a CPU that it may use */
    char cpus[PREFLIGHT_TEXT]; /* CPUs that it may use, as "0-3,8" */
};

/* A host of the job. An element of all->host[]. */
struct preflight_host {
    char name[PREFLIGHT_TEXT];
    int ranks;
    struct preflight_rank *rank; /* [ranks] by local rank */
    bool answered;               /* its facts have arrived */
    char error[512];             /* why they have not */
    struct preflight_facts facts;
};

/* The result of a connection from one host to another. */
enum preflight_reach {
    PREFLIGHT_UNTRIED,
    PREFLIGHT_GOOD,
    PREFLIGHT_REFUSED,     /* refused by an answer */
    PREFLIGHT_DROPPED,     /* no answer at all */
    PREFLIGHT_UNREACHABLE, /* no route, or a router reports that */
    PREFLIGHT_STALLED,     /* connected, but 64 KiB did not arrive */
    PREFLIGHT_FAILED,      /* anything else */
};

/* The result of trying to connect one host to another. An element of all->link[]. */
struct preflight_link {
    enum preflight_reach reach;
    int error;       /* errno, or 0 */
    int path_mtu;    /* as the kernel knows it; 0: not known */
    int64_t took_us; /* time to connect */
};

/* The times of messages between two ranks of the test job, a < b. An element of job->pair[]. */
struct preflight_pair {
    int a, b;
    double round_trip_us, megabytes; /* medians; the latter in MB/s */
};

/* The test job and its results. Part of struct preflight, which preflight_close() frees. */
struct preflight_job {
    bool ran; /* all ranks have reported */
    char error[512];
    const char *skipped; /* why it was not started, or NULL */
    bool wrong;          /* the allreduce had a wrong result on some rank */
    double allreduce_us; /* of 8 bytes, on the slowest rank */
    int ranks;
    int *host; /* [ranks] index of its host in struct preflight */
    struct preflight_pair *pair;
    size_t pairs;
};

/* A finding of a check, with the hosts that it applies to. An element of all->finding[]. */
struct preflight_finding {
    enum preflight_check check;
    bool problem; /* else it is a warning */
    bool *host;   /* [hosts] */
    char what[512];
    const char *advice; /* a static text */
};

/* All that is known and found. Made by preflight_open(), freed by preflight_close(). */
struct preflight {
    struct preflight_host *host;
    int hosts, ranks;
    bool has_program;
    struct preflight_link *link; /* [from * hosts + to] */
    struct preflight_job job;
    struct preflight_finding *finding;
    size_t findings;
    bool checked[PREFLIGHT_CHECK_COUNT]; /* there was something to look at */
    bool no_memory;
};

/* The name of a check, and what it looks for. Constant. */
struct preflight_check_kind {
    const char *name, *help;
};
extern const struct preflight_check_kind preflight_checks[PREFLIGHT_CHECK_COUNT];

/* Initialise *all for this many hosts. The caller fills in their names and ranks, and closes it
 * also after a failure. Returns false if there is no memory, else true. */
bool preflight_open(struct preflight *all, int hosts);
/* Free all that *all has, and clear it. */
void preflight_close(struct preflight *all);
/* Run all checks on what is known, and add their findings to all->finding. Set all->checked[] to
 * which had something to look at, and all->no_memory if a finding was lost. */
void preflight_look(struct preflight *all);
/* Return the number of findings that are problems, or warnings if `problems` is false. */
size_t preflight_count(const struct preflight *all, bool problems);
/* Return the connection from one host to another. */
struct preflight_link *preflight_link_of(const struct preflight *all, int from, int to);
/* Return whether a connection counts, which is between two different hosts that have answered and
 * listen. */
bool preflight_link_counts(const struct preflight *all, int from, int to);
/* Return the word for a result, "good", "refused" ... */
const char *preflight_reach_name(enum preflight_reach reach);

/* Parse a list of CPUs such as "0-3,8" into bits. Returns false if it is malformed, else true. */
bool preflight_cpus_parse(uint64_t bits[PREFLIGHT_CPUS / 64], const char *text);
/* Write bytes with a binary unit, such as "64 KiB", or "unlimited" if negative. Returns text. */
const char *preflight_bytes(char text[32], int64_t bytes);
/* Write a non-negative value with at least three digits, and return `text`. */
const char *preflight_measure(char text[32], double value);
/* Return the median of n > 0 values, and sort them. */
double preflight_median(double *value, size_t n);
/* Return the median distance of n > 0 values from `median`, or 0 if there is no memory. */
double preflight_deviation(const double *value, size_t n, double median);
/* Print the results as a page. Returns the exit code, 0 without problems, else 1. */
int preflight_print_page(const struct preflight *all, FILE *out);
/* Print the results as JSON. Returns the exit code, 0 without problems, else 1. */
int preflight_print_json(const struct preflight *all, FILE *out);
/* Write the title of the results. It is such as "4 hosts, 8 ranks: ready" or "2 problems", with ",
 * 1 warning" behind either if there is one. */
void preflight_title(const struct preflight *all, char *text, size_t bytes);

/* The task of preflight_collect(), from the command line of twill-check. If `json` is set, JSON is
 * printed instead of the page, or written to json_file before the page is printed. */
struct preflight_request {
    const char *launcher; /* path of twillrun */
    const char *worker;   /* path of this program, here and on other hosts */
    const char *program;  /* the user's program, or NULL */
    bool json;
    const char *json_file; /* file for JSON, so the page is also printed; or NULL */
    double timeout;        /* seconds for a host to answer */
    struct rlimit files;   /* limit of open files for the twillruns; the front raises its own */
    char **common;         /* options of twillrun, NULL-terminated */
};
/* Ask the hosts, run the test job and fill in *all. Silent hosts and a failed test job are only
 * recorded there. Returns false if there is no memory or, after a message, if a twillrun cannot be
 * started, else true. */
bool preflight_collect(struct preflight *all, const struct preflight_request *request);
/* Be the agent on a host. Print what this process is bound to and, if its LOCAL_RANK is 0, the
 * facts, and answer the front until standard input ends. `program` is the user's, or NULL. Returns
 * the exit code, 0 or 1. */
int preflight_agent(const char *program);
/* Be a rank of the test job, and print its results as a line of JSON. Returns the exit code, 0 or
 * 1, after a message if the job failed. */
int preflight_rank_run(void);

#endif
