/* SPDX-License-Identifier: Apache-2.0 */
/* The preflight of twillrun --check: what is known of hosts, paths and ranks, and what the checks
 * find in it. The program twill-check runs in three roles: in front, where it collects and prints;
 * as an agent on each host; and as the ranks of a test job. */
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
#define PREFLIGHT_REACH_NS                                                                         \
    UINT64_C(3000000000) /* for a connection, and again for its data: longer than TCP's first      \
                            repetition */

/* What a host reports of itself. */
struct preflight_facts {
#define PREFLIGHT_MEMBER(name) int64_t name;
    PREFLIGHT_NUMBERS(PREFLIGHT_MEMBER)
#undef PREFLIGHT_MEMBER
#define PREFLIGHT_MEMBER(name) char name[PREFLIGHT_TEXT];
    PREFLIGHT_TEXTS(PREFLIGHT_MEMBER)
#undef PREFLIGHT_MEMBER
};

/* A rank as bound on its host. */
struct preflight_rank {
    bool known;
    int cores;                 /* with a CPU that it may use */
    char cpus[PREFLIGHT_TEXT]; /* that it may use, as "0-3,8" */
};

/* A host of the job. */
struct preflight_host {
    char name[PREFLIGHT_TEXT];
    int ranks;
    struct preflight_rank *rank; /* [ranks], by local rank */
    bool answered;               /* facts are there */
    char error[512];             /* why not */
    struct preflight_facts facts;
};

/* How a connection from one host to another went. */
enum preflight_reach {
    PREFLIGHT_UNTRIED,
    PREFLIGHT_GOOD,
    PREFLIGHT_REFUSED,     /* an answer says no */
    PREFLIGHT_DROPPED,     /* no answer at all */
    PREFLIGHT_UNREACHABLE, /* no route, or a router says so */
    PREFLIGHT_STALLED,     /* connected, but 64 KiB do not arrive */
    PREFLIGHT_FAILED,      /* anything else */
};

struct preflight_link {
    enum preflight_reach reach;
    int error;       /* errno, or 0 */
    int path_mtu;    /* as the kernel knows it; 0: unknown */
    int64_t took_us; /* to connect */
};

/* Two ranks of the test job, a < b, as the library's messages went between them. */
struct preflight_pair {
    int a, b;
    double round_trip_us, megabytes; /* a second */
};

/* The test job. */
struct preflight_job {
    bool ran; /* all ranks have reported */
    char error[512];
    const char *skipped; /* why it was not started, or NULL */
    bool wrong;          /* the allreduce had a wrong result on some rank */
    double allreduce_us; /* of 8 bytes, on the slowest rank */
    int ranks;
    int *host; /* [ranks] index in struct preflight */
    struct preflight_pair *pair;
    size_t pairs;
};

/* What a check has found, with the hosts of which it holds. */
struct preflight_finding {
    enum preflight_check check;
    bool problem; /* else a warning */
    bool *host;   /* [hosts] */
    char what[512];
    const char *advice; /* static */
};

/* All that is known. Owned by the front, or by a test. */
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

/* One check: its name, and what it stands for. */
struct preflight_check_kind {
    const char *name, *help;
};
extern const struct preflight_check_kind preflight_checks[PREFLIGHT_CHECK_COUNT];

/* Allocate for this many hosts; names and ranks are the caller's to fill. False: no memory. */
bool preflight_open(struct preflight *all, int hosts);
void preflight_close(struct preflight *all);
/* Run all checks. */
void preflight_look(struct preflight *all);
/* Count findings that are problems, or that are warnings. */
size_t preflight_count(const struct preflight *all, bool problems);
struct preflight_link *preflight_link_of(const struct preflight *all, int from, int to);
/* Report whether both ends of a connection have answered. */
bool preflight_link_counts(const struct preflight *all, int from, int to);
const char *preflight_reach_name(enum preflight_reach reach);

/* Parse a list of CPUs such as "0-3,8" into bits. False: malformed. */
bool preflight_cpus_parse(uint64_t bits[PREFLIGHT_CPUS / 64], const char *text);
/* Print bytes with a binary unit, "64 KiB"; negative: "unlimited". */
const char *preflight_bytes(char text[32], int64_t bytes);
/* Print a measured value that is not negative with three digits, or all that are before the point.
 */
const char *preflight_measure(char text[32], double value);
/* Return the median of n > 0 values, which are sorted. */
double preflight_median(double *value, size_t n);
/* Return the median distance of n > 0 sorted values from their median. */
double preflight_deviation(const double *value, size_t n, double median);

/* --- output --------------------------------------------------------------------------------- */
/* Print the page, or the same as JSON. Returns the exit code: 0 ready, 1 problems. */
int preflight_print_page(const struct preflight *all, FILE *out);
int preflight_print_json(const struct preflight *all, FILE *out);
/* Write the first line: "4 hosts, 8 ranks: ready" or "2 problems, 1 warning". */
void preflight_title(const struct preflight *all, char *text, size_t bytes);

/* --- the roles ------------------------------------------------------------------------------ */
/* What the front is asked for. */
struct preflight_request {
    const char *launcher; /* path of twillrun */
    const char *worker;   /* path of this program on the other hosts, and here */
    const char *program;  /* the user's, or NULL */
    bool json;
    const char *json_file; /* where JSON goes besides the page, or NULL: instead of it */
    double timeout;        /* seconds, for a host to answer */
    struct rlimit files;   /* limit of open files of the twillruns; the front has its most */
    char **common;         /* options of twillrun, NULL-terminated */
};
/* Collect what there is to know of the hosts. False: it could not be done at all. */
bool preflight_collect(struct preflight *all, const struct preflight_request *request);
/* Answer the front on a host, until standard input ends. Returns the exit code. */
int preflight_agent(const char *program);
/* Be a rank of the test job. Returns the exit code. */
int preflight_rank_run(void);

#endif
