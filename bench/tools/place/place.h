/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of twill-place share. */
#ifndef TWILL_PLACE_H
#define TWILL_PLACE_H

#include "bench/common/report.h"
#include "bench/common/tool_calls.h"
#include "lib/twill.h"

struct twill_kernels;

enum {
    PLACE_TRIAD,
    PLACE_COPY,
    PLACE_REDUCE,
    PLACE_ALLREDUCE,
    PLACE_SEND,
    PLACE_RECEIVE,
    PLACE_SCRATCH,
    PLACE_WORKS
};
enum { PLACE_RESULT, PLACE_LEFT, PLACE_RIGHT, PLACE_ARRAYS };
enum { PLACE_KINDS = 3 };

struct place_options {
    size_t bytes, repeats, threads;
    const char *plot; /* file, or NULL */
};

/* One kind of memory with its results, rates in GB/s; 0: not measured. */
struct memory_kind {
    const char *name, *title, *memory; /* "ddr", "DDR", the setting TWILL_MEMORY=... */
    twill_context *context;
    twill_comm *comm;
    void *array[PLACE_ARRAYS];
    double rates[PLACE_WORKS];
    int64_t fallbacks; /* allocations of all ranks that were placed elsewhere */
};

struct place_run {
    struct place_options options;
    const struct twill_kernels *kernels;
    twill_comm *comm; /* of the first kind: carries the ranks' own messages */
    int rank, size;
    void *plain[2]; /* malloc's: what is sent and received by the columns that place one thing */
    double *samples;
    int64_t wrong; /* elements over all ranks */
};

/* place_measure.c: measure all works on a kind that is open. */
twill_status measure_kind(struct place_run *run, struct memory_kind *kind);
/* place_plot.c: draw the ratios to the first kind. Returns false after a message. */
bool plot_kinds(const char *path, const struct memory_kind *kinds, size_t count);
extern const char *const place_work_names[PLACE_WORKS];

#endif
