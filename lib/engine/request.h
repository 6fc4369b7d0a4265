/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: every call is one. Collectives are queued in the order they were started; the executor
 * works on the first of them. A blocking call uses a request that is part of the communicator. */
#ifndef TWILL_REQUEST_H
#define TWILL_REQUEST_H

#include "lib/engine/run.h"

#include <stdatomic.h>

enum twill_request_state {
    TWILL_REQUEST_IDLE,   /* initialised, or waited for */
    TWILL_REQUEST_ACTIVE, /* belongs to the thread that holds the communicator */
    TWILL_REQUEST_COMPLETE
};

/* The two messages of a point-to-point call: in struct twill_request. */
enum { TWILL_OUT, TWILL_IN };

/* A point-to-point call: a send, a receive, or both. */
struct twill_point {
    const void *src;
    void *dst;
    size_t src_count, dst_count;
    twill_type type;
    int to, from;
    bool sends, receives;
};

/* Belongs to a communicator, whose holder alone uses it while it is active; others may poll its
 * state. Its memory is reused for later requests and stays readable after them. */
struct twill_request {
    _Atomic int state;   /* enum twill_request_state */
    twill_status status; /* once complete */
    bool is_point, persistent;
    bool refused_alike; /* a collective, for what all ranks give alike: all have refused it */
    bool pends;         /* counted in comm->claim.pending: other threads may advance it */
    bool has_messages;  /* or may have: counted in comm->messaging */
    struct twill_comm *comm;
    struct twill_request *next, *recorded; /* in the queue or free list; in a group */
    struct twill_run run;
    uint64_t ticks;      /* twill_ticks() at the start */
    uint64_t ended;      /* twill_ticks() at the end of a collective */
    uint64_t timeout_ns; /* of waits for it; 0: the communicator's */

    /* Buffers on a device: lib/engine/device_call.c. */
    unsigned char *bounce_memory; /* of twill_context_take_shared() */
    size_t bounce_memory_bytes;
    unsigned char bounce_uses; /* of this memory: 0, 1, 2 or more */
    bool has_moved_sides;      /* run.buffers.side is in bounce memory, or was in the last call */
    const void *readable[2];   /* host memory of the last call, unknown to the driver */
    unsigned char *bounced[2]; /* point to point: host copies of src and dst, or NULL */
    void *on_device;           /* final place of the result, or NULL */
    unsigned char *result;
    size_t result_bytes;

    size_t *counts; /* [4][size], vector call: counts and offsets of SRC and DST */
    struct twill_point point;
    struct twill_transfer transfer[2]; /* TWILL_OUT, TWILL_IN */
    twill_request *handle;             /* the caller's; NULL: not in use */
    uint32_t generation;               /* how often this memory has been released */
    uint32_t born;                     /* generation at which comm got it */
} TWILL_ALIGNED(TWILL_CACHE_LINE);

/* Requests that a communicator maps at once: four pages. Each request is aligned to
 * TWILL_GENERATIONS, so that a handle has room for a generation below that in its low bits. */
#define TWILL_SLAB_REQUESTS 8u
#define TWILL_GENERATIONS   2048u
struct twill_request_slab {
    unsigned char
        storage[(TWILL_SLAB_REQUESTS - 1) * TWILL_GENERATIONS + sizeof(struct twill_request)];
    struct twill_request_slab *next;
};
_Static_assert(sizeof(struct twill_request) <= TWILL_GENERATIONS, "requests overlap");

static inline struct twill_request *twill_slab_request(struct twill_request_slab *slab, unsigned i)
{
    return (struct twill_request *)(void *)(slab->storage + (size_t)i * TWILL_GENERATIONS);
}

/* Return the request of a handle, which must not be NULL; NULL if the request has ended: waited
 * for, freed, or destroyed with its communicator. A handle is the request's address with the low
 * bits of its generation. The memory is readable in either case. */
static inline struct twill_request *twill_request_find(twill_request *handle)
{
    uintptr_t word = (uintptr_t)handle;
    struct twill_request *request = (struct twill_request *)(word - word % TWILL_GENERATIONS);
    return TWILL_LIKELY(request->handle == handle) ? request : NULL;
}

static inline struct twill_request *twill_request_of(struct twill_run *run)
{
    return (struct twill_request *)(void *)((unsigned char *)run -
                                            offsetof(struct twill_request, run));
}

/* Who is told of calls: lib/report/metrics.c. One branch where nobody listens. */
struct twill_observer {
    /* A run has been laid out: set run->account, or leave it NULL. */
    twill_status (*planned)(struct twill_run *run);
    /* A collective whose run has an account has ended. */
    void (*ended)(struct twill_request *request);
};

/* --- lib/engine/fast_path.c --- */

/* Start a prepared call: compute its signature, post the fast path if it may be taken, number and
 * enqueue it. entered: twill_ticks() at the call's entry; 0: now, read after the fast path has sent
 * what peers wait for. */
void twill_request_begin(struct twill_request *request, uint64_t entered);

/* --- lib/engine/request_queue.c --- */

/* Advance everything under way. Returns how many steps were made, or < 0: the caller then breaks
 * the communicator, unless it is broken. The communicator is held. */
int twill_comm_advance(struct twill_comm *comm);
/* Uncount a request that twill_comm_pend() has counted, once it is complete. */
void twill_comm_unpend(struct twill_comm *comm);
/* Publish to the ranks of this node which call this rank is in. */
void twill_comm_publish(struct twill_comm *comm, const struct twill_request *request);
void twill_comm_show(struct twill_comm *comm, const struct twill_call *call, uint64_t sequence,
                     uint64_t ticks);
/* Append a collective whose arguments have been checked to the queue. */
void twill_request_enqueue(struct twill_request *request);
/* Is the request not active? Of a struct twill_request, for twill_comm_wait(). */
bool twill_request_done(const void *request);
/* Complete the request: dequeue and count it. Its waiter may reuse it at once. */
void twill_request_complete(struct twill_request *request, twill_status status);
/* Complete everything under way with the status that the communicator failed with. */
void twill_requests_fail(struct twill_comm *comm, twill_status status);
/* Return an unused request, or NULL and comm->error when out of memory. twill_request_give()
 * releases it, which invalidates its handle. */
struct twill_request *twill_request_take(struct twill_comm *comm);
void twill_request_give(struct twill_request *request);
/* Return the communicator that an ended request belonged to; NULL if its memory has gone to another
 * communicator, or to none. */
struct twill_comm *twill_request_past_comm(const twill_request *handle);
/* Grow *memory, of *held bytes, to at least `bytes`. Contents are not preserved. */
twill_status twill_comm_reserve(struct twill_comm *comm, unsigned char **memory, size_t *held,
                                size_t bytes);
twill_status twill_request_open(struct twill_request *request, struct twill_comm *comm);
void twill_request_close(struct twill_request *request);
void twill_requests_destroy(struct twill_comm *comm);
/* Store up to `most` ranks that requests under way wait for, each once, and what for: "signal",
 * "message", "entry" ... Returns how many. */
unsigned twill_comm_waits_for(struct twill_comm *comm, uint32_t *ranks, unsigned most,
                              const char **step);
/* Does a request under way use a transport that must be polled? */
bool twill_comm_is_polled(const struct twill_comm *comm);

/* lib/engine/points.c. Complete the point-to-point requests whose messages have completed. Returns
 * how many, < 0 on error. */
int twill_points_sweep(struct twill_comm *comm);

/* --- lib/engine/choose_plan.c, lib/engine/buffer_addresses.c --- */

/* Select the plan. Returns 1 when selected, 0 while peers' buffer addresses are outstanding, < 0 on
 * error. */
int twill_run_choose(struct twill_run *run);
/* Restart the address exchange for the same call with other buffers; keep the plan to compare. */
void twill_addresses_restart(struct twill_run *run);
/* Find out whether this node's ranks exchange addresses, and whether those of any node do, which is
 * the same on all ranks. */
twill_status twill_addresses_needed(struct twill_run *run, bool *exchanges, bool *any_exchanges);
/* Advance the address exchange. Returns 1 when complete, 0 while ranks are missing, < 0 on error.
 */
int twill_addresses_exchange(struct twill_run *run);
/* Store up to `most` ranks whose addresses are missing. Returns how many. */
unsigned twill_addresses_missing(const struct twill_run *run, uint32_t *ranks, unsigned most);
/* Return the bytes of SRC or DST on a rank that has it. Not for vector calls. */
size_t twill_run_side_bytes(const struct twill_run *run, unsigned side);
struct twill_select_request twill_run_select_request(const struct twill_run *run);

#endif
