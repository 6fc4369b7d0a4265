/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: a schedule bound to a communicator. Links are resolved, scratch is sized; then it is
 * const. */
#ifndef TWILL_PLAN_H
#define TWILL_PLAN_H

#include "algorithms/algorithms.h"

#define TWILL_COPY_SLACK ((size_t)2 * TWILL_CACHE_LINE) /* by rounding the two halves of a copy */

struct twill_comm;

struct twill_plan {
    struct twill_plan *next;
    struct twill_choice choice;
    struct twill_schedule schedule;
    size_t segment_bytes; /* most bytes of a copy of TMP or SHARED; SIZE_MAX: of one slice */
    size_t tmp_bytes;     /* TMP of an instance */
    size_t bounce_bytes;  /* for one RECV_REDUCE, where the transport wants it */
    size_t late_bytes;    /* for one RECV_REDUCE that is folded when it is complete */
    uint32_t entry_steps; /* steps that may be left out when the node has met by its votes */
    uint32_t most_posted; /* messages in a lane between WAITs, one for each part */
    bool fetches;         /* peers' SRC and DST are read by a system call */
    bool polled;          /* some message goes through a transport that must be polled */
    uint64_t logged;      /* powers of two of bytes that lib/config/log.c has told it for */
    bool alternates;      /* the node's two ranks swap their SHARED every time round */
};

/* The communicator's plan for this choice; made at first use. */
twill_status twill_plan_get(struct twill_comm *comm, const struct twill_choice *choice,
                            const struct twill_plan **plan);
void twill_plans_destroy(struct twill_comm *comm);

#endif
