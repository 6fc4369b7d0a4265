/* SPDX-License-Identifier: Apache-2.0 */
/* The functions that the files of twill-info offer each other. */
#ifndef TWILL_INFO_H
#define TWILL_INFO_H

#include "bench/common/job_json.h"
#include "lib/twill.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TWILL_BENCH_NODES = 64 };

/* The pages of a range of memory, counted by NUMA node by twill_bench_pages_find(). */
struct twill_bench_pages {
    size_t total, page_bytes;
    size_t on_node[TWILL_BENCH_NODES];
    size_t elsewhere;   /* absent, or on a node beyond TWILL_BENCH_NODES */
    size_t misplaced;   /* present, but not on an allowed node */
    bool policy_known;  /* the memory policy of the range could be read */
    bool bound;         /* the policy is MPOL_BIND */
    uint64_t allowed;   /* nodes of the policy, as a mask */
    const char *policy; /* its name, a constant */
};

/* Count the pages of `bytes` at `memory`, and read their policy. Returns 0 or an errno. */
int twill_bench_pages_find(const void *memory, size_t bytes, struct twill_bench_pages *pages);

/* Add up the pages of all mappings of this process whose path begins with `name`. The policy in
 * *pages is that of the first mapping not bound to NUMA nodes. If all are bound, it is that of the
 * first one. *ranges is the number of files that are mapped. Returns 0 or an errno. */
int twill_bench_pages_find_named(const char *name, struct twill_bench_pages *pages,
                                 unsigned *ranges);

/* Return whether the range is bound and every present page is on an allowed node. */
bool twill_bench_pages_bound(const struct twill_bench_pages *pages);

/* The options that belong to --job, with strings of the command line. */
struct twill_job_options {
    const char *name;     /* PID or program */
    bool json;            /* as JSON instead of text */
    const char *recorder; /* prefix of files in the format of the flight recorder, or NULL */
    size_t events;        /* last events of each rank to print */
};
/* Print what the ranks of the job do, or record it. Returns 0, or 1 after a message. */
int twill_job_print(const struct twill_job_options *options);

/* Exec twill-page, which serves a page of the job at [ADDRESS:]PORT[,open], or at any free port if
 * `serve` is NULL. Returns 1, after a message, if there is no such program. */
int twill_job_serve(const char *name, const char *serve);

/* Write a file for each rank, named PREFIX and the rank, as the flight recorder of PyTorch does.
 * Returns 0, or 1 after a message at the first file that cannot be written. */
int twill_job_record(const twill_job_view *view, const char *prefix);

/* Make a gradient set with `threads` communication threads on each rank, and print on rank 0, as a
 * tree, where they run. Collective. Returns 0, or 1 after a message. */
int twill_bench_print_threads(twill_comm *comm, int threads);

/* Draw, on rank 0, which threads of the ranks of its host work on which core, `threads` of each
 * rank or, if that is 0, as many as it has. Collective. Returns 0, or 1 after a message. */
int twill_info_draw_job(twill_context *context, twill_comm *comm, unsigned threads);
/* Draw the same for `ranks` ranks on the machine that a file or a text describes, with `threads`
 * cores each or, if that is 0, equal shares of the cores. Returns 0, or 1 after a message. */
int twill_info_draw_machine(const char *file, unsigned ranks, unsigned threads);

/* Print why an algorithm is chosen for a call. `question` describes the call as for
 * twill_context_why(), such as "allreduce 65536 f32". Returns 0, or 2 after a message for an
 * invalid question. */
int twill_bench_print_why(twill_context *context, const char *question);

#endif
