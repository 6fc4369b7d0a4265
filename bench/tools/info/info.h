/* SPDX-License-Identifier: Apache-2.0 */
/* twill-info: what its files offer each other. */
#ifndef TWILL_INFO_H
#define TWILL_INFO_H

#include "lib/twill.h"
#include "lib/twill_job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A line of fields between tabs, as the library's descriptions have them; missing fields are "". */
#define TWILL_INFO_FIELDS 17
struct twill_info_line {
    char text[4096];
    const char *field[TWILL_INFO_FIELDS];
};
/* Cut a line. Returns false if there is none. */
bool twill_info_cut(const char *text, struct twill_info_line *line);
/* Return whether it is of a kind: its first field. */
bool twill_info_is(const struct twill_info_line *line, const char *kind);

/* Where the kernel says that pages of memory are; the evidence behind twill-info --memory. */

enum { TWILL_BENCH_NODES = 64 };

struct twill_bench_pages {
    size_t total, page_bytes;
    size_t on_node[TWILL_BENCH_NODES];
    size_t elsewhere;  /* absent, or on a node beyond TWILL_BENCH_NODES */
    size_t misplaced;  /* present, but not on an allowed node */
    bool policy_known; /* the memory policy of the range could be read */
    bool bound;        /* the policy is MPOL_BIND */
    uint64_t allowed;  /* the policy's nodes, as a mask */
    const char *policy;
};

/* Query `bytes` at `memory`. Returns 0 or an errno. */
int twill_bench_pages_find(const void *memory, size_t bytes, struct twill_bench_pages *pages);

/* Query all mappings of this process whose path begins with `name`, such as "/memfd:twill-comm",
 * and add them up. pages->policy is that of the first one that is not bound, if any. *ranges: the
 * number of files, a rank's each. Returns 0 or an errno. */
int twill_bench_pages_find_named(const char *name, struct twill_bench_pages *pages,
                                 unsigned *ranges);

/* Return whether the range is bound and every present page is on an allowed node. */
bool twill_bench_pages_bound(const struct twill_bench_pages *pages);

/* twill-info --job: what the ranks of a running job do. */

struct twill_job_options {
    const char *name;     /* PID or program */
    bool json;            /* as JSON instead of text */
    const char *recorder; /* prefix of files in the flight recorder's format; NULL: none */
    size_t events;        /* last events of each rank to print */
};
/* Look and print. Returns an exit status. */
int twill_job_print(const struct twill_job_options *options);

/* bench/tools/info/flight_recorder.c. Write a file for each rank, PREFIX and the rank, as PyTorch's
 * flight recorder does. Returns an exit status. */
int twill_job_record(const twill_job_view *view, const char *prefix);

/* twill-info --threads. */

/* Print where the communication threads of a gradient set run, as a tree, rank after rank, on rank
 * 0. Collective. Returns an exit status. */
int twill_bench_print_threads(twill_comm *comm, int threads);

/* twill-info --why: print why an algorithm is chosen. */

/* Ask and print. Returns an exit status; 2: the question is invalid. */
int twill_bench_print_why(twill_context *context, const char *question);

#endif
