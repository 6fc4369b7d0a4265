/* SPDX-License-Identifier: Apache-2.0 */
/* Requests: every call is one. Collectives wait in a queue in the order they were started; the
 * executor works on the first of them. A blocking call is a request that lives in the communicator.
 */
#ifndef TWILL_REQUEST_H
#define TWILL_REQUEST_H

#include "lib/exec/run.h"

#include <stdatomic.h>

enum twill_request_state {
    TWILL_REQUEST_IDLE,   /* prepared, or waited for */
    TWILL_REQUEST_ACTIVE, /* belongs to whoever holds the communicator */
    TWILL_REQUEST_COMPLETE
};

/* A message out, one in, or both. */
struct twill_point {
    const void *src;
    void *dst;
    size_t src_count, dst_count;
    twill_type type;
    int to, from;
    bool sends, receives;
};

struct twill_request {
    _Atomic int state;   /* enum twill_request_state */
    twill_status status; /* once complete */
    bool is_point, persistent;
    bool pends; /* others may advance it */
    bool talks; /* counts as one of comm->talking */
    struct twill_comm *comm;
    struct twill_request *next, *recorded; /* in the list it is in; in a group */
    struct twill_run run;
    uint64_t ticks;               /* at the start */
    unsigned char *bounce_memory; /* for what lies on a device */
    size_t bounce_memory_bytes;
    unsigned char *bounced[2]; /* what a message sends and receives instead, or NULL */
    void *on_device;           /* where the result goes in the end, or NULL */
    unsigned char *result;
    size_t result_bytes;
    size_t *counts; /* [4][size], of a vector call: counts and offsets of SRC and DST */
    struct twill_point point;
    struct twill_transfer transfer[2]; /* out, in */
    twill_request *handle; /* the caller's; NULL: it is in no use, lib/exec/request_queue.c */
    uint32_t generation;   /* how often this memory has been given back */
    uint32_t born;         /* the first generation that is comm's */
} TWILL_ALIGNED(TWILL_CACHE_LINE);

/* Requests that a communicator has mapped at once: in four pages. Each lies at a multiple of what
 * generations are counted up to in a handle, which so tells that many apart. */
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

/* The request of a handle that is not NULL: its address, with the last bits of its generation in
 * those that are 0. Returns NULL if it has ended: waited for, freed, or gone with its communicator.
 * The address can be read in any case. */
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

/* --- lib/exec/request_queue.c
 * --------------------------------------------------------------------------- */

/* A collective begins: all but its arguments, which have been checked. */
void twill_request_enqueue(struct twill_request *request);
/* Is it not under way? */
bool twill_request_done(const void *request);
/* It is complete: counted, off its list, and left to who waits. */
void twill_request_complete(struct twill_request *request, twill_status status);
/* The communicator failed: so did everything under way. */
void twill_requests_fail(struct twill_comm *comm, twill_status status);
/* One that is not in use; NULL: out of memory, and the communicator's error says so. Giving it back
 * ends its handle. */
struct twill_request *twill_request_take(struct twill_comm *comm);
void twill_request_give(struct twill_request *request);
/* The communicator that the request of a handle was of which has ended; NULL: its memory is that of
 * another one by now, or of none. */
struct twill_comm *twill_request_past_comm(const twill_request *handle);
twill_status twill_request_open(struct twill_request *request, struct twill_comm *comm);
void twill_request_close(struct twill_request *request);
void twill_requests_destroy(struct twill_comm *comm);
/* Ranks that what is under way waits for, and the step's name. */
unsigned twill_comm_waits_for(struct twill_comm *comm, uint32_t *ranks, unsigned most,
                              const char **step);
/* Does something under way go through a transport that must be polled? */
bool twill_comm_is_polled(const struct twill_comm *comm);

/* --- lib/api/collective.c ------------------------------------------------------------------------
 */

/* Run a call to its end; start it; prepare it. `name` is that of the public function. */
twill_status twill_call_run(struct twill_comm *comm, const struct twill_call *call,
                            const char *name);
twill_status twill_call_start(struct twill_comm *comm, const struct twill_call *call,
                              struct twill_request **request, const char *name);
twill_status twill_call_init(struct twill_comm *comm, const struct twill_call *call,
                             struct twill_request **request, const char *name);
/* The last one: wait until all ranks destroy the communicator. A failure has broken it. */
void twill_call_last(struct twill_comm *comm);
/* lib/api/check_call.c: the arguments of run.call, which is described; counts are copied. Where a
 * described call's buffers lie. */
twill_status twill_call_check(struct twill_request *request);
twill_status twill_call_check_buffers(const struct twill_run *run);
/* May a nonblocking or persistent call be made now? Then *request is NULL. */
twill_status twill_request_admit(struct twill_comm *comm, struct twill_request **request);
/* Queued: it is under way, and others may advance it. */
twill_status twill_request_launch(struct twill_request *request);
/* Take over the call and check its arguments. */
twill_status twill_request_prepare(struct twill_request *request, const struct twill_call *call);
/* Hash the summary: ranks that hash alike are in the same call. */
void twill_run_hash_call(struct twill_run *run);
/* Number, sign and queue it. */
void twill_request_begin(struct twill_request *request);
/* Say on the node which call this rank is in. */
void twill_comm_publish(struct twill_comm *comm, const struct twill_request *request);
void twill_comm_show(struct twill_comm *comm, const struct twill_call *call, uint64_t sequence,
                     uint64_t ticks);

/* --- lib/exec/choose_plan.c, lib/exec/buffer_addresses.c
 * ---------------------------------------------------------------- */

/* Have the run a plan: 1, or 0 while other ranks are asked, or an error. */
int twill_run_choose(struct twill_run *run);
/* The same call with other buffers: ask where they are; all else is known. */
void twill_addresses_restart(struct twill_run *run);
/* The same in parts: whether the node's ranks are to be asked, and whether some node's are, which
 * is the same on all ranks; asking them. */
twill_status twill_addresses_needed(struct twill_run *run, bool *exchanges, bool *any_exchanges);
int twill_addresses_exchange(struct twill_run *run);
unsigned twill_addresses_missing(const struct twill_run *run, uint32_t *ranks, unsigned most);
/* Of a side that all ranks, or the root, have: of SRC or DST as it lies in memory. */
size_t twill_run_side_bytes(const struct twill_run *run, unsigned side);
struct twill_select_request twill_run_select_request(const struct twill_run *run);

/* --- lib/api/point_to_point.c
 * ----------------------------------------------------------------------------- */

twill_status twill_point_prepare(struct twill_request *request, const struct twill_point *point);
twill_status twill_point_begin(struct twill_request *request);
/* Will so many messages of this rank to itself, posted and then waited for, all be met? Else the
 * error. */
twill_status twill_point_check_itself(struct twill_comm *comm, int sends, int receives);
/* Is it under way, and waits for this rank itself, which has posted no counterpart? Then no waiting
 * helps: each meets its counterpart as soon as both are posted. */
bool twill_point_is_lonely(const struct twill_request *request);
/* And others may advance it. */
twill_status twill_point_launch(struct twill_request *request);
/* Complete those whose messages are: how many, or an error. */
int twill_points_sweep(struct twill_comm *comm);
twill_status twill_point_run(struct twill_comm *comm, const struct twill_point *point,
                             const char *name);
twill_status twill_point_start(struct twill_comm *comm, const struct twill_point *point,
                               struct twill_request **request, const char *name);
twill_status twill_point_init(struct twill_comm *comm, const struct twill_point *point,
                              struct twill_request **request, const char *name);

#endif
