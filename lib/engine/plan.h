/* SPDX-License-Identifier: Apache-2.0 */
/* A plan: a schedule bound to a communicator, with peers connected and scratch sized. Plans are
 * cached by the engine until it is closed, and do not change once made. */
#ifndef TWILL_PLAN_H
#define TWILL_PLAN_H

#include "algorithms/algorithms.h"

/* What rounding up both halves of a copy may add. */
#define TWILL_COPY_SLACK ((size_t)2 * TWILL_CACHE_LINE)

/* Bytes of a message in a total exchange between nodes. Two hosts of two ranks, tcp with bbr, 64
 * MiB: 80 ms with messages of 128 KiB, 52 with 512 KiB, 44 with 2 MiB, 45 undivided. */
#define TWILL_EXCHANGE_MESSAGE ((size_t)2 << 20)
/* Most bytes of a segment of it: in place they are copied first. */
#define TWILL_EXCHANGE_MOST ((size_t)64 << 20)
/* Return the bytes of a segment of a total exchange among `size` ranks, where
 * TWILL_TUNE=segment_net is not set. */
static inline size_t twill_exchange_segment(size_t segment_net, uint32_t size)
{
    return twill_max(segment_net, twill_min(TWILL_EXCHANGE_MOST, TWILL_EXCHANGE_MESSAGE * size));
}

struct twill_plan {
    struct twill_plan *next;
    struct twill_choice choice;
    struct twill_select_request key; /* that it was chosen for last */
    struct twill_schedule schedule;
    size_t segment_bytes; /* most bytes of a copy of TMP or SHARED; SIZE_MAX: one segment */
    size_t tmp_bytes;     /* TMP of an instance */
    size_t bounce_bytes;  /* bounce of a RECV_REDUCE, where the transport needs one */
    size_t late_bytes;    /* buffer of a RECV_REDUCE that is reduced when complete */
    uint32_t entry_steps; /* steps to skip once an address exchange has shown all ranks */
    uint32_t most_posted; /* messages in a lane between WAITs, one for each shard */
    bool fetches;         /* peers' SRC and DST are read by a system call */
    bool polled;          /* some message uses a transport that must be polled */
    uint64_t logged;      /* bit n: lib/job/log.c has logged it for 2^n bytes */
    bool alternates;      /* two ranks exchange the halves of SHARED: twill_node_area_index() */
};

#endif
