/* SPDX-License-Identifier: Apache-2.0 */
/* The engine that runs calls. It has ranks, the links between them, plans, and the queue of calls.
 * It never waits and knows no communicators. Each communicator contains one, and supplies what it
 * needs as functions (struct twill_engine_ports). */
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

/* The links from this rank to the others. A part of an engine, and used by its holder. */
struct twill_links {
    struct twill_transport *transport[TWILL_TRANSPORTS_MOST];
    unsigned transports;
    uint8_t *route;                        /* [size] index into transport[] for each peer */
    uint8_t *connected;                    /* [size] nonzero once connected */
    struct twill_heap_view *view;          /* [local_size] heaps of the ranks of this node */
    struct twill_single_copy *single_copy; /* access to their other memory, or NULL */
};

/* All plans of an engine, kept until it closes (lib/engine/plan.c). */
struct twill_plan_cache {
    struct twill_plan *last; /* plan of the last call */
    struct twill_plan *plans;
    struct twill_chooser *chooser;
    bool logged_substitute; /* has warned that TWILL_ALGORITHM was not followed */
};

/* The issue queue, with the calls under way in the order of their start and their numbers. */
struct twill_issue_queue {
    struct twill_slot slot[TWILL_WINDOW];
    struct twill_request *queue, *queue_tail; /* collectives under way, the oldest first */
    struct twill_request *filling;   /* the first of them with segments that have not begun */
    struct twill_request *points;    /* point-to-point requests under way */
    struct twill_request *spare;     /* free requests */
    struct twill_request_slab *slab; /* memory of the requests */
    unsigned unused;                 /* number of requests in the first slab that were never used */
    const struct twill_transfer *setting_up; /* [2] messages of a set-up under way, or NULL */
    uint32_t elsewhere; /* 1 + the rank that set-up waits for on its own socket, or 0 */
    struct twill_request *exchanging; /* persistent call whose addresses are still missing */
    unsigned messaging;               /* number of requests under way that may have messages */
    struct twill_request blocking, blocking_point;

    struct twill_call call; /* the published call, which is the oldest under way or else the last */
    uint64_t sequence;      /* number of that call, from 1, or 0 before the first */
    uint64_t started;       /* number of calls started */
    uint64_t chain_hash;    /* hash of all calls so far, for the next call's signature */
    uint64_t epoch;         /* epoch of the next instance */
    uint64_t arrived;       /* last instance that all ranks of the node are known to have begun */
    uint32_t differs;       /* 1 + the rank whose message belonged to an unknown other call, or 0 */
};

/* Settings of a communicator. */
struct twill_engine_tuning {
    size_t segment, segment_net; /* bytes: TWILL_TUNE=segment and segment_net */
    size_t segment_exchange;     /* the same for algorithms whose messages do not wait for others */
    size_t stream;               /* bytes from which stores bypass the caches */
    uint64_t timeout_ns;
    uint32_t crowded; /* most ranks per core of a node, equal on all, or 0 if each has its own */
    struct twill_cpu_share *share;
    int threads;
    bool reproducible;
};

/* Kinds of copies into SHARED that are measured separately (lib/engine/staging.c). */
enum twill_staging_kind { TWILL_STAGING_ONE_WAY, TWILL_STAGING_EXCHANGE, TWILL_STAGING_KINDS };

/* Measurements of copies into SHARED of one enum twill_staging_kind (lib/engine/staging.c). cost[0]
 * is for cached stores and cost[1] for streamed ones, in ticks per 64 KiB of a segment. It is at
 * least 1, or 0 if unknown. */
struct twill_staging {
    uint32_t begun; /* number of segments begun */
    uint32_t cost[2];
    uint64_t ticks, bytes; /* sums over the group being measured */
    uint32_t ended;        /* number of its measured segments that have ended */
    bool streams;          /* stream stores when no trial is under way */
};

/* Counters, and the twill_ticks() spent in calls. The holder adds with twill_counter_add(), and any
 * thread reads with twill_counter_read(). */
struct twill_engine_usage {
    twill_counters counters;
    uint64_t ticks;
    uint64_t ticks_at_start, ns_at_start; /* twill_ticks() and twill_now() at creation */
    uint64_t idle;                        /* ticks in which waits found nothing to do */
    uint64_t ended;                       /* number of the last collective that ended here, */
    struct twill_last_entry last;         /* and its last entry as received with messages */
    uint64_t report_at; /* number of calls at the next TWILL_REPORT, or UINT64_MAX */
};

/* Functions of its communicator that the engine calls. */
struct twill_engine_ports {
    /* Return the name of the public call that an error belongs to, or NULL if it belongs to the
     * numbered call of the queue. If not `numbered`, the call has no number. */
    const char *(*call_of_error)(const struct twill_engine *engine, bool numbered);
    /* Return the error if a rank of this node has made another call than this rank under the
     * present number or, if `past`, under one of the last numbers. Otherwise return TWILL_OK. */
    twill_status (*check_peer)(struct twill_engine *engine, uint32_t peer, bool past);
    /* Return TWILL_OK, or the error if a peer's message is of a call that was different here. */
    twill_status (*check_message)(struct twill_engine *engine, uint32_t peer,
                                  const struct twill_message_call *call);
    /* Return TWILL_OK, or the error if another rank has failed in this call or before. */
    twill_status (*poll_failures)(struct twill_engine *engine);
};

/* The members of an engine, which are also members of struct twill_comm. Only the thread that holds
 * the communicator uses them, except where marked otherwise. */
#define TWILL_ENGINE_MEMBERS                                                                       \
    const struct twill_engine_ports *ports;                                                        \
    struct twill_error error;                                                                      \
    struct twill_context *context;                                                                 \
    const struct twill_log *log;           /* of the context */                                    \
    const struct twill_kernels *kernels;   /* for this CPU */                                      \
    const struct twill_observer *observer; /* NULL if no metrics are kept */                       \
    bool traced;                           /* TWILL_LOG=debug: log each call */                    \
    const struct twill_world *world;       /* the context's, or its own */                         \
    uint32_t *job;                         /* [size] rank in the job of each rank */               \
    struct twill_oob *oob; /* the context's or its own, for set-up among its ranks */              \
    uint32_t rank;                                                                                 \
    uint32_t number; /* the same on its ranks, each of which uses it for no other communicator */  \
    uint32_t local, local_size;                                                                    \
    struct twill_node *node;                                                                       \
    _Atomic unsigned pending; /* requests that other threads may advance, written by the holder */ \
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
/* Return the transport that reaches a peer. */
static inline struct twill_transport *twill_engine_link(const struct twill_engine *engine,
                                                        uint32_t peer)
{
    return engine->links.transport[engine->links.route[peer]];
}

/* --- lib/engine/engine.c --- */
/* Prepare an engine whose ranks and borrowed members are set and whose other members are zero.
 * Returns TWILL_OK, or TWILL_ERR_MEMORY. */
twill_status twill_engine_open(struct twill_engine *engine);
/* Free what the engine contains. No call may be under way. */
void twill_engine_close(struct twill_engine *engine);
/* Connect to a peer unless that has been done. Returns TWILL_OK, or the transport's error. */
twill_status twill_engine_connect(struct twill_engine *engine, uint32_t peer);
/* Return how long, in ns, this rank waits for the rank of its node that computes a price. After
 * that it computes the price itself, and so may wait for that rank once more in the call. */
uint64_t twill_engine_price_patience_ns(const struct twill_engine *engine);
/* Create a chooser that shares prices with those of the other ranks of the node, in the node
 * memory, which must outlive it. `requested` is as for twill_chooser_create(). */
twill_status twill_engine_create_chooser(struct twill_chooser **chooser,
                                         struct twill_engine *engine, const char *requested,
                                         struct twill_error *error);
/* Convert a number of twill_ticks() to seconds. */
double twill_engine_seconds(const struct twill_engine *engine, uint64_t ticks);
/* Write "rank R" to `text`, or "rank J of the job (R here)" if the communicator is not the whole
 * job. Returns `text`. */
const char *twill_engine_rank_text(const struct twill_engine *engine, uint32_t rank,
                                   char text[TWILL_RANK_TEXT]);
#define TWILL_ENGINE_RANK_NAME(engine, rank)                                                       \
    twill_engine_rank_text((engine), (rank), (char[TWILL_RANK_TEXT]){0})
/* Set engine->error to "rank R: call #N (...): ...", or with the name from the port call_of_error
 * in place of the call. Returns `status`. The macro is for a numbered call. */
twill_status twill_engine_error(struct twill_engine *engine, twill_status status, bool numbered,
                                const char *file, int line, const char *format, ...)
    TWILL_PRINTF(6, 7);
#define TWILL_ENGINE_FAIL(engine, status, ...)                                                     \
    twill_engine_error((engine), (status), true, __FILE__, __LINE__, __VA_ARGS__)

/* --- lib/engine/request_queue.c --- */
/* Advance everything under way without waiting. The communicator is held. Returns the number of
 * steps made, or an error below 0, with which the caller breaks the communicator unless it is. */
int twill_engine_advance(struct twill_engine *engine);
/* Store up to `most` ranks that requests under way wait for, each once. Returns how many, and sets
 * *step to the awaited event, which is "signal", "message", "entry" or "set-up message". */
unsigned twill_engine_waits_for(struct twill_engine *engine, uint32_t *ranks, unsigned most,
                                const char **step);
/* Return TWILL_OK, or the error of a message that failed behind one still under way. */
twill_status twill_engine_check_posted(struct twill_engine *engine);
/* Return whether a request under way uses a transport that must be polled. */
bool twill_engine_is_polled(const struct twill_engine *engine);
/* Complete all requests under way with the status that the communicator has failed with. */
void twill_requests_fail(struct twill_engine *engine, twill_status status);
/* Publish to the ranks of this node which call this rank is in. `ticks` is when it was entered. */
void twill_engine_show(struct twill_engine *engine, const struct twill_call *call,
                       uint64_t sequence, uint64_t ticks);
/* If *memory, of *held bytes, is smaller than `bytes` bytes, replace it by memory of that size
 * without its contents. Returns TWILL_OK or the error, after which there is none. */
twill_status twill_engine_reserve(struct twill_engine *engine, unsigned char **memory, size_t *held,
                                  size_t bytes);
/* Add to engine->pending. Only the holder writes, so this need not be an atomic addition. */
static inline void twill_engine_count_pending(struct twill_engine *engine, unsigned more)
{
    unsigned pending = atomic_load_explicit(&engine->pending, memory_order_relaxed);
    atomic_store_explicit(&engine->pending, pending + more, memory_order_release);
}
/* Complete the requests whose messages are complete. Returns how many, or an error below 0. */
int twill_points_sweep(struct twill_engine *engine);
/* lib/engine/staging.c. Before any call, publish the costs of copies into SHARED that the context
 * knows of the ranks of this node from earlier communicators. */
void twill_staging_recall(struct twill_engine *engine);
/* lib/engine/spread_ranks.c. Move the calling thread to its CPU if the present call is large. */
void twill_spread_in_call(const struct twill_engine *engine);

/* --- the time of calls --- */
/* Count the time that starting a nonblocking call took. Small calls are left out, as they take less
 * time than reading the clock twice. */
#define TWILL_COUNTED_BYTES 4096u
static inline void twill_request_count_start(const struct twill_request *request)
{
    const struct twill_side *side = request->buffers.side;
    if (TWILL_UNLIKELY(side[TWILL_SRC].bytes + side[TWILL_DST].bytes >= TWILL_COUNTED_BYTES))
        twill_counter_add(&request->engine->usage.ticks, twill_ticks() - request->ticks);
}

#define TWILL_SPLIT_TICKS 16384u /* of twill_ticks(), about 6 us */
#define TWILL_SPLIT_EVERY 64u
/* lib/engine/time_split.c. Split the time of a call or wait that has completed a collective, from
 * and to in ticks. `idle` is engine->usage.idle before it. The time counts `times` times, for calls
 * that are not split. */
void twill_split_add(struct twill_engine *engine, uint64_t from, uint64_t to, uint64_t idle,
                     unsigned times);
/* Print the report of TWILL_REPORT, when report_at calls are complete. */
void twill_split_report_due(struct twill_engine *engine);
/* Count the ticks of a blocking call (is_call) or of a wait. Split them if it is long, or if this
 * is one of every TWILL_SPLIT_EVERY calls. `idle` is engine->usage.idle at its start. */
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
