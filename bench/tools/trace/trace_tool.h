/* SPDX-License-Identifier: Apache-2.0 */
/* What twill-trace reads out of timelines (TWILL_TIMELINE), and makes of them. */
#ifndef TWILL_TRACE_TOOL_H
#define TWILL_TRACE_TOOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define TRACE_NAME 24

/* X(NOUN, name of its spans): phases whose shares are summed. */
#define TRACE_PHASES(X)                                                                            \
    X(CALL, "call")                                                                                \
    X(WAIT, "wait for peer")                                                                       \
    X(SEND, "send")                                                                                \
    X(RECEIVE, "receive")                                                                          \
    X(REDUCE, "reduce")                                                                            \
    X(FUSE_IN, "fuse in")                                                                          \
    X(FUSE_OUT, "fuse out")                                                                        \
    X(UPDATE, "update")

enum trace_phase {
#define X(NOUN, name) TRACE_##NOUN,
    TRACE_PHASES(X)
#undef X
        TRACE_PHASE_COUNT
};

/* A span of a rank. Times in us, of rank 0's clock. */
struct trace_span {
    double begin, end;
    uint64_t comm, sequence, bytes;
    uint32_t rank;
    uint8_t phase;         /* enum trace_phase */
    char name[TRACE_NAME]; /* "allreduce" */
};

/* A rank's clock, from its timeline. Times and offsets in ns. */
struct trace_clock {
    double at, later; /* when the offset was measured; later 0: not a second time */
    double offset, later_offset, error;
};

struct trace_rank {
    uint32_t rank;
    bool has_clock; /* its timeline is complete */
    struct trace_clock clock;
};

/* All timelines that were read. */
struct trace_job {
    struct trace_span *spans;
    size_t count, capacity, events;
    struct trace_rank *ranks;
    size_t rank_count;
    double begin, end; /* us, of all spans */
    char job[40];      /* its number, of the first timeline that has one */
    const char *first; /* that timeline */
};

/* Read a timeline. out: where to copy its events, or NULL. Prints the reason of a failure. */
bool trace_read(struct trace_job *job, const char *path, FILE *out);
void trace_free(struct trace_job *job);

/* Print what the time was spent on, and which ranks came last, `most` lines of each. */
void trace_print(const struct trace_job *job, size_t most);
void trace_print_json(const struct trace_job *job, size_t most);

#endif
