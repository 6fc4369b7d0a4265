/* SPDX-License-Identifier: Apache-2.0 */
/* What calls run on: ranks, the links between them, plans, and the queue of calls. It never waits,
 * and knows no communicator: each has one, and tells it by ports what it needs of that one. */
#ifndef TWILL_ENGINE_H
#define TWILL_ENGINE_H

#include "lib/base/trace.h"
#include "lib/engine/request.h"

struct twill_chooser;
struct twill_context;
struct twill_cpu_share; /* lib/engine/spread_ranks.h */
struct twill_heap_view;
struct twill_observer;
struct twill_single_copy;
struct twill_time_split; /* lib/engine/time_split.h */

/* How ranks reach each other. */
struct twill_links {
    struct twill_transport *transport[TWILL_TRANSPORTS_MOST];
    unsigned transports;
    uint8_t *route;                        /* [size] index into transport, for each peer */
    uint8_t *connected;                    /* [size] */
    struct twill_heap_view *view;          /* [local_size] heaps of the ranks of this node */
    struct twill_single_copy *single_copy; /* other memory of theirs; NULL: inaccessible */
};

/* The plans: lib/engine/plan.c. */
struct twill_plan_cache {
    struct twill_plan *last; /* of the last call */
    struct twill_plan *plans;
    struct twill_chooser *chooser;
    bool logged_substitute; /* has warned that TWILL_ALGORITHM was not followed */
};

/* The issue queue: calls in the order they were started, and their numbers. */
struct twill_issue_queue {
    struct twill_slot slot[TWILL_WINDOW];
    struct twill_request *queue, *queue_tail; /* collectives under way, in order of start */
    struct twill_request *filling;            /* the first with segments that have not begun */
    struct twill_request *points;             /* point-to-point requests under way */
    struct twill_request *spare;              /* requests for reuse */
    struct twill_request_slab *slab;          /* their memory */
    unsigned unused;                          /* requests never used, in the first slab */
    const struct twill_transfer *setting_up;  /* [2] messages of a set-up under way, or NULL */
    uint32_t elsewhere; /* 1 + the rank that set-up waits for by a socket of its own */
    struct twill_request *exchanging; /* persistent call being initialised: addresses outstanding */
    unsigned messaging;               /* requests under way that may have messages */
    struct twill_request blocking, blocking_point;

    struct twill_call call; /* as published: the first that is not complete, or the last one */
    uint64_t sequence;      /* its number, from 1; 0: none yet */
    uint64_t started;       /* calls started */
    uint64_t chain_hash;    /* of all calls so far, for the next one's signature */
    uint64_t epoch;         /* of the next instance */
    uint64_t arrived;       /* the last instance that all ranks of the node have begun */
    uint32_t differs;       /* 1 + the rank whose message was of another, unknown call; or 0 */
};

struct twill_engine_tuning {
    size_t segment, segment_net; /* bytes: TWILL_TUNE=segment, TWILL_TUNE=segment_net */
    size_t segment_exchange;     /* bytes: of algorithms whose messages do not wait for others */
    size_t stream;               /* bytes from which stores bypass the caches */
    uint64_t timeout_ns;
    uint32_t crowded; /* ranks to a core, of one node; 0: each has its own; equal on all */
    struct twill_cpu_share *share;
    int threads;
    bool reproducible;
};

/* Copies into SHARED: lib/engine/staging.c. */
enum twill_staging_kind { TWILL_STAGING_ONE_WAY, TWILL_STAGING_EXCHANGE, TWILL_STAGING_KINDS };

/* What is known of one kind. cost[0] is of cached stores, cost[1] of streamed ones: ticks per 64
 * KiB of a segment, at least 1; 0: not known. */
struct twill_staging {
    uint32_t begun; /* segments */
    uint32_t cost[2];
    uint64_t ticks, bytes; /* of the group that is being measured */
    uint32_t ended;        /* measured segments of it */
    bool streams;          /* outside trials */
};

/* What has been done, and the twill_ticks() spent in calls. The holder adds with
 * twill_counter_add(), any thread reads. */
struct twill_engine_usage {
    twill_counters counters;
    uint64_t ticks;
    uint64_t ticks_at_start, ns_at_start; /* twill_ticks() and twill_now() when it was made */
    uint64_t idle;                        /* ticks in which waits found nothing to do */
    uint64_t ended;                       /* number of the last collective that ended here ... */
    struct twill_last_entry last;         /* ... and its last entry, as received with messages */
    uint64_t report_at; /* calls at the next report of TWILL_REPORT; UINT64_MAX: none */
};

/* What the engine asks of its owner. */
struct twill_engine_ports {
    /* Return the public call that an error is of, where it is not of a call of the queue, which is
     * numbered; or NULL. */
    const char *(*call_of_error)(const struct twill_engine *engine, bool numbered);
    /* Return the error if a rank of this node has made another call than this rank under the
     * present number; or, if `past` is checked, too, under one of the last. */
    twill_status (*check_peer)(struct twill_engine *engine, uint32_t peer, bool past);
    /* Return the error if the call that a message of a peer carries was another one here. */
    twill_status (*check_message)(struct twill_engine *engine, uint32_t peer,
                                  const struct twill_message_call *call);
    /* Return the error if another rank has failed in this call, or before. */
    twill_status (*poll_failures)(struct twill_engine *engine);
};

/* A communicator has the same members, to be read there by name: struct twill_comm. The thread that
 * holds it uses them, but for those marked otherwise. */
#define TWILL_ENGINE_MEMBERS                                                                       \
    const struct twill_engine_ports *ports;                                                        \
    struct twill_error error;                                                                      \
    struct twill_context *context;                                                                 \
    const struct twill_log *log;           /* the context's */                                     \
    const struct twill_kernels *kernels;   /* those of the machine */                              \
    const struct twill_observer *observer; /* NULL: no metrics are kept */                         \
    bool traced;                           /* log each call: TWILL_LOG=debug */                    \
    const struct twill_world *world;       /* the context's, or own */                             \
    uint32_t *job;                         /* [size] rank in the job of each rank */               \
    struct twill_oob *oob; /* among its ranks, for set-up; the context's, or its own */            \
    uint32_t rank;                                                                                 \
    uint32_t number; /* same on all its ranks; none of them has another of that number */          \
    uint32_t local, local_size;                                                                    \
    struct twill_node *node;                                                                       \
    _Atomic unsigned pending; /* requests that other threads may advance; written by the holder */ \
    struct twill_links links;                                                                      \
    struct twill_plan_cache plan_cache;                                                            \
    struct twill_issue_queue issue;                                                                \
    struct twill_engine_tuning tuning;                                                             \
    struct twill_staging staging[TWILL_STAGING_KINDS];                                             \
    struct twill_engine_usage usage;                                                               \
    struct twill_time_split *split;                                                                \
    struct twill_trace trace;

struct twill_engine {
    TWILL_ENGINE_MEMBERS
};

static inline struct twill_transport *twill_engine_link(const struct twill_engine *engine,
                                                        uint32_t peer)
{
    return engine->links.transport[engine->links.route[peer]];
}

/* --- lib/engine/engine.c --- */

/* Prepare an engine whose ranks are known; it is zero but for what is given. */
twill_status twill_engine_open(struct twill_engine *engine);
/* Free what it has; no call is under way. */
void twill_engine_close(struct twill_engine *engine);
/* Make the link to a peer ready, if it is not. */
twill_status twill_engine_connect(struct twill_engine *engine, uint32_t peer);
/* Return how long this rank waits for the one of its node that computes a price. It computes it by
 * itself then, and so waits for that rank in the call once more. */
uint64_t twill_engine_price_patience_ns(const struct twill_engine *engine);
/* Create a chooser that shares prices with the choosers of the other ranks, on the board of their
 * node. It must not outlive the node memory. `requested` as for twill_chooser_create(). */
twill_status twill_engine_create_chooser(struct twill_chooser **chooser,
                                         struct twill_engine *engine, const char *requested,
                                         struct twill_error *error);
/* Convert twill_ticks() to seconds. */
double twill_engine_seconds(const struct twill_engine *engine, uint64_t ticks);

/* Write "rank R" with the rank in the job: twill_rank_text(). Returns text. */
const char *twill_engine_rank_text(const struct twill_engine *engine, uint32_t rank,
                                   char text[TWILL_RANK_TEXT]);
#define TWILL_ENGINE_RANK_NAME(engine, rank)                                                       \
    twill_engine_rank_text((engine), (rank), (char[TWILL_RANK_TEXT]){0})
/* Set engine->error to "rank R: call #N (...): ...", or with the call that the port names, and
 * return the status. Use the macro for a numbered call. */
twill_status twill_engine_error(struct twill_engine *engine, twill_status status, bool numbered,
                                const char *file, int line, const char *format, ...)
    TWILL_PRINTF(6, 7);
#define TWILL_ENGINE_FAIL(engine, status, ...)                                                     \
    twill_engine_error((engine), (status), true, __FILE__, __LINE__, __VA_ARGS__)

/* --- lib/engine/request_queue.c --- */

/* Advance everything under way. Returns how many steps were made, or < 0: the caller then breaks
 * the communicator, unless it is broken. The communicator is held. */
int twill_engine_advance(struct twill_engine *engine);
/* Store up to `most` ranks that requests under way wait for, each once, and what for: "signal",
 * "message", "entry" ... Returns how many. */
unsigned twill_engine_waits_for(struct twill_engine *engine, uint32_t *ranks, unsigned most,
                                const char **step);
/* Return the error of a message that has failed behind one that is still under way. */
twill_status twill_engine_check_posted(struct twill_engine *engine);
/* Does a request under way use a transport that must be polled? */
bool twill_engine_is_polled(const struct twill_engine *engine);
/* Complete everything under way with the status that the communicator failed with. */
void twill_requests_fail(struct twill_engine *engine, twill_status status);
/* Publish to the ranks of this node which call this rank is in. */
void twill_engine_show(struct twill_engine *engine, const struct twill_call *call,
                       uint64_t sequence, uint64_t ticks);
/* Grow *memory, of *held bytes, to at least `bytes`. Contents are not preserved. */
twill_status twill_engine_reserve(struct twill_engine *engine, unsigned char **memory, size_t *held,
                                  size_t bytes);
/* Add to engine->pending. Only the holder changes it, so the addition need not be atomic. */
static inline void twill_engine_count_pending(struct twill_engine *engine, unsigned more)
{
    unsigned pending = atomic_load_explicit(&engine->pending, memory_order_relaxed);
    atomic_store_explicit(&engine->pending, pending + more, memory_order_release);
}
/* Complete the point-to-point requests whose messages have completed. Returns
 * how many, < 0 on error. */
int twill_points_sweep(struct twill_engine *engine);
/* lib/engine/staging.c. Publish what the context knows of these ranks' copies, before any of them
 * uses the engine. */
void twill_staging_recall(struct twill_engine *engine);

/* lib/engine/spread_ranks.c. Move the calling thread to its CPU if the call that this rank is in is
 * large. */
void twill_spread_in_call(const struct twill_engine *engine);

/* --- the time of calls --- */

/* Count the time that starting a nonblocking call took. Small ones are left out: they take less
 * time than reading the clock twice. */
#define TWILL_COUNTED_BYTES 4096u
static inline void twill_request_count_start(const struct twill_request *request)
{
    const struct twill_side *side = request->buffers.side;
    if (TWILL_UNLIKELY(side[TWILL_SRC].bytes + side[TWILL_DST].bytes >= TWILL_COUNTED_BYTES))
        twill_counter_add(&request->engine->usage.ticks, twill_ticks() - request->ticks);
}

#define TWILL_SPLIT_TICKS 16384u /* of twill_ticks(): some 6 us */
#define TWILL_SPLIT_EVERY 64u
/* lib/engine/time_split.c. Split the time of a call or wait from one tick to another, which has
 * completed a collective. idle: engine->usage.idle before it. times: how often it counts. */
void twill_split_add(struct twill_engine *engine, uint64_t from, uint64_t to, uint64_t idle,
                     unsigned times);
/* Print the report of TWILL_REPORT; called when report_at calls are complete. */
void twill_split_report_due(struct twill_engine *engine);

/* Count the time of a blocking call, or of a wait, between two twill_ticks(); split it if it is
 * long, or a sample of TWILL_SPLIT_EVERY calls. idle: engine->usage.idle at its start. */
static inline void twill_engine_count_time(struct twill_engine *engine, uint64_t from, uint64_t to,
                                           uint64_t idle, bool is_call)
{
    uint64_t spent = to - from;
    bool is_long = spent >= TWILL_SPLIT_TICKS;
    bool sample = is_call && engine->issue.started % TWILL_SPLIT_EVERY == 0;
    twill_counter_add(&engine->usage.ticks, spent);
    if (TWILL_UNLIKELY(is_long || sample))
        twill_split_add(engine, from, to, idle, is_long ? 1 : TWILL_SPLIT_EVERY);
    if (TWILL_UNLIKELY(engine->usage.counters.calls >= engine->usage.report_at))
        twill_split_report_due(engine);
}

#endif
