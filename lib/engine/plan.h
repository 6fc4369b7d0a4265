/* SPDX-License-Identifier: Apache-2.0 */
/* Plans are schedules bound to a communicator, with connected peers and sized scratch. */
#ifndef TWILL_PLAN_H
#define TWILL_PLAN_H

#include "algorithms/algorithms.h"

/* Most bytes that rounding up both halves of a copy may add. */
#define TWILL_COPY_SLACK ((size_t)2 * TWILL_CACHE_LINE)

/* Bytes of a message in a total exchange between nodes. Between two hosts of two ranks (tcp with
 * bbr, 64 MiB) the call took 80 ms with 128 KiB and 44 with 2 MiB. Undivided, it was no faster. */
#define TWILL_EXCHANGE_MESSAGE ((size_t)2 << 20)
/* Most bytes of a segment of such an exchange, as in place they are copied first. */
#define TWILL_EXCHANGE_MOST ((size_t)64 << 20)
/* Return the bytes of a segment of a collective on several nodes in which `size` ranks send
 * directly to each other. It is `size` times TWILL_EXCHANGE_MESSAGE, a message of that length to
 * each rank, but at most TWILL_EXCHANGE_MOST. If `segment_net` is more than this, return
 * segment_net. */
static inline size_t twill_exchange_segment(size_t segment_net, uint32_t size)
{
    return twill_max(segment_net, twill_min(TWILL_EXCHANGE_MOST, TWILL_EXCHANGE_MESSAGE * size));
}

/* A plan of one rank, in the cache of its engine. Made by twill_plan_get() and freed by
 * twill_plans_destroy(). Only `key` and `logged` change after that. */
struct twill_plan {
    struct twill_plan *next;
    struct twill_choice choice;
    struct twill_select_request key; /* request that it was last chosen for */
    struct twill_schedule schedule;
    size_t segment_bytes; /* most bytes of a copy of TMP or SHARED, or SIZE_MAX for one segment */
    size_t least_bytes;   /* the same for messages that would otherwise have too few segments */
    size_t tmp_bytes;     /* bytes of TMP of an instance */
    size_t bounce_bytes;  /* bytes to bounce a RECV_REDUCE message, if the transport needs that */
    size_t late_bytes;    /* bytes to receive a RECV_REDUCE message that is reduced when complete */
    uint32_t entry_steps; /* steps to skip if an address exchange shows all ranks in the call */
    uint32_t most_posted; /* most messages in a lane between two WAITs, one for each shard */
    bool fetches;         /* peers' SRC and DST are read by a system call */
    bool packs_src;       /* a message of several shards comes from SRC */
    bool polled;          /* some message uses a transport that must be polled */
    uint64_t logged;      /* bit n is set once the choice has been logged for 2^n bytes */
    bool signals_once;    /* on each rank there is at most one SIGNAL, and no PUT_IMM */
    bool overlaps;        /* some ranks copy into SHARED while others copy out of it */
    bool alternates;      /* two ranks swap the halves of SHARED: twill_node_area_index() */
    bool shares_one; /* SHARED of each of two ranks has one of their two shards, the same way */
};

#endif
