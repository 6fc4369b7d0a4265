/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that the files of twill-info offer each other. */
#ifndef TWILL_INFO_H
#define TWILL_INFO_H

#include "lib/twill.h"
#include "lib/twill_job.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A line of fields separated by tabs, as in descriptions of the library. Missing fields are "". */
#define TWILL_INFO_FIELDS 17
struct twill_info_line {
    char text[4096];
    const char *field[TWILL_INFO_FIELDS];
};
/* Cut a line into fields. Returns false if the text is NULL. */
bool twill_info_cut(const char *text, struct twill_info_line *line);
/* Return whether the line is of a kind, which is its first field. */
bool twill_info_is(const struct twill_info_line *line, const char *kind);

/* Where the kernel says that pages of memory are, as evidence for twill-info --memory. */

enum { TWILL_BENCH_NODES = 64 };

/* The pages of a range of memory, counted by place. */
struct twill_bench_pages {
    size_t total, page_bytes;
    size_t on_node[TWILL_BENCH_NODES];
    size_t elsewhere;  /* absent, or on a node beyond TWILL_BENCH_NODES */
    size_t misplaced;  /* present, but not on an allowed node */
    bool policy_known; /* the memory policy of the range could be read */
    bool bound;        /* the policy is MPOL_BIND */
    uint64_t allowed;  /* nodes of the policy, as a mask */
    const char *policy;
};

/* Query `bytes` at `memory`. Returns 0 or an errno. */
int twill_bench_pages_find(const void *memory, size_t bytes, struct twill_bench_pages *pages);

/* Query all mappings of this process whose path begins with `name`, such as "/memfd:twill-comm",
 * and add them up. pages->policy is that of the first one that is not bound, if any. *ranges is the
 * number of files, one per rank. Returns 0 or an errno. */
int twill_bench_pages_find_named(const char *name, struct twill_bench_pages *pages,
                                 unsigned *ranges);

/* Return whether the range is bound and every present page is on an allowed node. */
bool twill_bench_pages_bound(const struct twill_bench_pages *pages);

/* The activity of the ranks of a running job (twill-info --job). */

/* The options that belong to --job. */
struct twill_job_options {
    const char *name;     /* PID or program */
    bool json;            /* as JSON instead of text */
    const char *recorder; /* prefix of files in the format of the flight recorder, or NULL */
    size_t events;        /* last events of each rank to print */
};
/* Look at the job and print. Returns an exit status. */
int twill_job_print(const struct twill_job_options *options);

/* Write a file for each rank, named PREFIX and the rank, as the flight recorder of PyTorch does
 * (flight_recorder.c). Returns an exit status. */
int twill_job_record(const twill_job_view *view, const char *prefix);

/* Print where the communication threads of a gradient set run, as a tree, rank after rank, on rank
 * 0 (--threads). Collective. Returns an exit status. */
int twill_bench_print_threads(twill_comm *comm, int threads);

/* Print why an algorithm is chosen (--why). Returns an exit status, 2 for an invalid question. */
int twill_bench_print_why(twill_context *context, const char *question);

#endif
