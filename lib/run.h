/* SPDX-License-Identifier: Apache-2.0 */
/* A run: one execution of a plan over the caller's buffers. The message is cut into slices; each
 * slice is an instance of the schedule, up to TWILL_WINDOW of them in flight, each with its own
 * cursors, physical lanes and copy of SHARED. */
#ifndef TWILL_RUN_H
#define TWILL_RUN_H

#include "fabric/transport.h"
#include "lib/plan.h"

struct twill_comm;
struct twill_run;

/* What the caller asked for. */
struct twill_call {
    enum twill_collective collective;
    const void *src;
    void *dst;
    size_t count;
    twill_type type;
    twill_op op;
    uint32_t root;
};

/* A posted message and what to do with it. */
struct twill_posted {
    struct twill_transfer request;
    struct twill_run *run;
    const unsigned char *src; /* fold: dst = src op message */
    unsigned char *dst;
    twill_op op;
    bool message_first;
};

struct twill_instance {
    bool active;
    uint64_t epoch;
    size_t count;             /* elements of the slice */
    const unsigned char *src; /* of the slice */
    unsigned char *dst;
    size_t offset;      /* bytes of the slice's begin in the message */
    size_t slice_bytes; /* count * element */
    unsigned lanes_left;
    uint32_t at[TWILL_SCHEDULE_LANES];     /* next step */
    uint32_t posted[TWILL_SCHEDULE_LANES]; /* since the last WAIT */
    uint32_t signalled[TWILL_SCHEDULE_LANES];
};

struct twill_run {
    struct twill_comm *comm;
    const struct twill_plan *plan;
    struct twill_call call;
    size_t element;
    uint32_t signature;
    size_t slice_count; /* elements of a full slice */
    size_t slices, started, finished;
    struct twill_instance instance[TWILL_WINDOW];
    unsigned copy_flags; /* TWILL_KERNEL_STREAM for big messages */
};

/* Begin; nothing is done yet. */
void twill_run_start(struct twill_run *run, struct twill_comm *comm, const struct twill_plan *plan,
                     const struct twill_call *call);
/* Do what can be done now: number of steps and message events (0: blocked), or an error. */
int twill_run_advance(struct twill_run *run);
static inline bool twill_run_done(const struct twill_run *run)
{
    return run->finished == run->slices;
}
/* Ranks it waits for now, at most `most`, and the step's name. */
unsigned twill_run_waits_for(const struct twill_run *run, uint32_t *ranks, unsigned most,
                             const char **step);

/* The data side, lib/operand.c: where operands are, and the steps that compute. */
struct twill_span {
    unsigned char *start;
    size_t bytes;
};
struct twill_span twill_run_span(const struct twill_run *run, const struct twill_instance *instance,
                                 const struct twill_step *step, twill_operand operand,
                                 uint32_t peer);
/* The operation of a step with these flags: an average is a sum until its last fold. */
twill_op twill_run_op(const struct twill_run *run, unsigned flags);
/* REDUCE and the COPYs of its result that follow, strip by strip, so that they find it in the
 * cache. Returns how many COPYs were done. */
uint32_t twill_run_reduce_and_copy(struct twill_run *run, const struct twill_instance *instance,
                                   const struct twill_step *step, const struct twill_step *end);
void twill_run_copy(struct twill_run *run, const struct twill_instance *instance,
                    const struct twill_step *step);
void twill_run_fold(struct twill_transfer *request, size_t offset, const void *data, size_t bytes);

#endif
