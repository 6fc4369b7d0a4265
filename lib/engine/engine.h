/* SPDX-License-Identifier: Apache-2.0 */
/* The engine runs the calls of a communicator, which supplies functions. It never waits. */
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

/* How a rank reaches the others of its communicator. Only the thread that holds that uses it. */
struct twill_links {
    struct twill_transport *transport[TWILL_TRANSPORTS_MOST];
    unsigned transports;                   /* number of them in use */
    uint8_t *route;                        /* [size] index into transport[] for each peer */
    uint8_t *connected;                    /* [size] nonzero once connected */
    struct twill_heap_view *view;          /* [local_size] heaps of the ranks of this node */
    struct twill_single_copy *single_copy; /* access to their other memory, or NULL */
};

/* All plans of an engine, kept until it closes (lib/engine/plan.c). Its holder alone uses them. */
struct twill_plan_cache {
    struct twill_plan *last;             /* plan of the last call */
    struct twill_plan *before;           /* the one used before that, as calls often alternate */
    struct twill_plan *plans;            /* a list, the newest first */
    struct twill_chooser *chooser;       /* chooses algorithms, or NULL before its first use */
    size_t slot[TWILL_COLLECTIVE_COUNT]; /* of vector calls: 1 + bytes of a slot, 0 if unknown */
    bool logged_substitute;              /* it has warned that TWILL_ALGORITHM was not followed */
};

#define TWILL_ENDS_KEPT 64u /* number of last calls in issue.joined */
/* The calls of an engine that are under way, in the order of their start, and the numbering of all
 * calls. Only the thread that holds the communicator uses it. */
struct twill_issue_queue {
    struct twill_slot slot[TWILL_WINDOW];     /* epoch e uses slot e % TWILL_WINDOW */
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
    struct twill_request blocking, blocking_point; /* for blocking calls */

    struct twill_call call; /* the published call, which is the oldest under way or else the last */
    uint64_t sequence;      /* number of that call, from 1, or 0 before the first */
    uint64_t started;       /* number of calls started */
    uint64_t chain_hash;    /* hash of all calls so far, for the next call's signature */
    uint64_t epoch;         /* epoch of the next instance */
    uint64_t arrived;       /* last instance that all ranks of the node are known to have begun */
    uint32_t looks;         /* for such arrivals, all in vain so far */
    uint32_t differs;       /* 1 + the rank whose message belonged to an unknown other call, or 0 */
    bool joined[TWILL_ENDS_KEPT]; /* of ended call n, at n % TWILL_ENDS_KEPT: its summary.joins */
};

/* Settings of a communicator, set when it is made. Only timeout_ns may change after that. */
struct twill_engine_tuning {
    size_t segment, segment_net; /* bytes: TWILL_TUNE=segment and segment_net */
    size_t segment_least;        /* bytes to which segments of segment_net shrink, to overlap */
    size_t segment_exchange;     /* the same for algorithms whose messages do not wait for others */
    size_t stream;               /* bytes from which stores bypass the caches */
    uint64_t timeout_ns;         /* limit of each wait */
    uint32_t crowded; /* most ranks per core of a node, equal on all, or 0 if each has its own */
    struct twill_cpu_share *share;  /* how ranks spread over shared cores */
    struct twill_thread_pool *pool; /* threads that share the work of kernels, or NULL */
    size_t piece;      /* bytes that a kernel call must write so that all threads help, equal on all
                          ranks of the job; 0 if some rank has one thread */
    bool reproducible; /* TWILL_REPRODUCIBLE */
    struct {
        bool looks; /* TWILL_FIRST_NAN is set, and the user of the communicator does not look */
        bool fails; /* a call that finds one fails */
        bool known; /* a rank had one, so this one looks no more */
    } nan;
};

#define TWILL_FETCH_MEASURED 3u /* calls whose median is a cost */
struct twill_fetch_trials;

/* Kinds of copies into SHARED that are measured separately (lib/engine/staging.c). */
enum twill_staging_kind { TWILL_STAGING_ONE_WAY, TWILL_STAGING_EXCHANGE, TWILL_STAGING_KINDS };

/* Measurements of copies into SHARED of one enum twill_staging_kind, part of an engine. In a trial,
 * groups of TWILL_STAGING_GROUP segments are copied by cached stores and by stores that bypass the
 * caches, alternately. cost[0] is the cost of the former and cost[1] that of the latter, in ticks
 * per 64 KiB of a segment. It is at least 1, or 0 if unknown. */
struct twill_staging {
    uint32_t begun; /* segments begun, with those of a first trial that known costs replaced */
    uint32_t cost[2];
    uint64_t ticks, bytes; /* sums over the segments measured in the present group */
    uint32_t ended;        /* number of these that have ended */
    bool streams;          /* between trials, copies bypass the caches */
};

/* Calls of one collective whose shards have similar lengths, part of struct twill_fetch_trials
 * (lib/engine/staging.c). The first four members are the same on all ranks. */
struct twill_fetch_trial {
    uint32_t left;                       /* calls until the state changes */
    uint8_t state;                       /* in use or in a trial, one of lib/engine/staging.c */
    bool begins;                         /* the next call decides after a trial */
    bool fetched;                        /* the last call was made by FETCHED */
    uint32_t measured;                   /* calls measured since the way last changed */
    uint32_t last[TWILL_FETCH_MEASURED]; /* their costs, by their number modulo this */
    uint32_t cost[2]; /* of this rank, staged and fetched, in ticks per 64 KiB; 0 if unknown */
};

/* Counters of an engine, and the twill_ticks() spent in its calls. Only the thread that holds the
 * communicator adds, with twill_counter_add(). Any thread reads, with twill_counter_read(). */
struct twill_engine_usage {
    twill_counters counters;
    uint64_t ticks;
    uint64_t ticks_at_start, ns_at_start; /* twill_ticks() and twill_now() at creation */
    uint64_t idle;                        /* ticks in which waits found nothing to do */
    uint64_t ended;                       /* number of the last collective that has ended */
    struct twill_last_entry last; /* latest entry of a rank into it that was known at its end */
    uint64_t report_at;           /* number of calls at the next TWILL_REPORT, or UINT64_MAX */
};

/* Functions of its communicator that an engine calls. The only instance is constant. */
struct twill_engine_ports {
    /* Return the name of the public call that an error message should give, or NULL if it should
     * describe the current call itself. `numbered` says whether the error may belong to a
     * collective that has a number. */
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

/* Members of an engine and of struct twill_comm. Only its holder uses them, except where marked. */
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
    uint32_t rank;         /* this rank in the communicator */                                     \
    uint32_t number; /* the same on its ranks, each of which uses it for no other communicator */  \
    uint32_t local, local_size; /* index of this rank among those of its node, and their number */ \
    struct twill_node *node;    /* memory that the ranks of the node share */                      \
    _Atomic unsigned pending; /* requests that other threads may advance, written by the holder */ \
    struct twill_links links;                                                                      \
    struct twill_plan_cache plan_cache;                                                            \
    struct twill_issue_queue issue;                                                                \
    struct twill_engine_tuning tuning;                                                             \
    struct twill_staging staging[TWILL_STAGING_KINDS];                                             \
    struct twill_fetch_trials *trials; /* made when first needed, or NULL */                       \
    struct twill_engine_usage usage;                                                               \
    struct twill_time_split *split; /* where the time of its calls went */                         \
    struct twill_trace trace;

/* The part of a communicator that runs its calls, in a union of struct twill_comm. It is made and
 * freed with the communicator, and used by its holder. The comment on TWILL_ENGINE_MEMBERS
 * describes the members, which are also members of struct twill_comm. */
struct twill_engine {
    TWILL_ENGINE_MEMBERS
};
/* Return the transport that reaches a peer. The engine owns it. */
static inline struct twill_transport *twill_engine_link(const struct twill_engine *engine,
                                                        uint32_t peer)
{
    return engine->links.transport[engine->links.route[peer]];
}

/* --- lib/engine/engine.c --- */
/* Allocate what an engine owns, when its ranks and the pointers to what others own are set and the
 * rest is zero. Returns TWILL_OK or TWILL_ERR_MEMORY. Call twill_engine_close() in both cases. */
twill_status twill_engine_open(struct twill_engine *engine);
/* Log the last report of TWILL_REPORT, if it is set and this is rank 0, and free what the engine
 * contains. No call may be under way. */
void twill_engine_close(struct twill_engine *engine);
/* Connect to a peer unless that has been done. Returns TWILL_OK, or the transport's error. */
twill_status twill_engine_connect(struct twill_engine *engine, uint32_t peer);
/* Return how long, in ns, this rank waits for another of its node to compute the price (expected
 * time) of an algorithm, or 0 if it is alone. After that it computes the price itself. */
uint64_t twill_engine_price_patience_ns(const struct twill_engine *engine);
/* Make a chooser of algorithms, which the caller destroys. It shares prices in the node memory with
 * the node's other ranks, if there are any. `requested` is the text of TWILL_ALGORITHM, or NULL.
 * Returns TWILL_OK or the error. */
twill_status twill_engine_create_chooser(struct twill_chooser **chooser,
                                         struct twill_engine *engine, const char *requested,
                                         struct twill_error *error);
/* Convert a number of twill_ticks() to seconds, by the clocks since the engine was opened. */
double twill_engine_seconds(const struct twill_engine *engine, uint64_t ticks);
/* Write "rank R" to `text`, or "rank J of the job (R here)" if these differ. Returns `text`. */
const char *twill_engine_rank_text(const struct twill_engine *engine, uint32_t rank,
                                   char text[TWILL_RANK_TEXT]);
#define TWILL_ENGINE_RANK_NAME(engine, rank)                                                       \
    twill_engine_rank_text((engine), (rank), (char[TWILL_RANK_TEXT]){0})
/* Set engine->error to "rank R: CALL: " and the formatted text, with `file` and `line`, and return
 * `status`. CALL is the name that ports->call_of_error() returns for `numbered`. If that is NULL,
 * CALL is the current collective, as in "call #4 (...)", or "point to point". The macro is for an
 * error of a collective, which has a number. */
twill_status twill_engine_error(struct twill_engine *engine, twill_status status, bool numbered,
                                const char *file, int line, const char *format, ...)
    TWILL_PRINTF(6, 7);
#define TWILL_ENGINE_FAIL(engine, status, ...)                                                     \
    twill_engine_error((engine), (status), true, __FILE__, __LINE__, __VA_ARGS__)

/* --- lib/engine/request_queue.c --- */
/* Advance all requests under way without waiting, and complete those that end. Returns a number
 * above 0 if anything has moved, 0 if not, or an error below 0, upon which the caller must break
 * the communicator. */
int twill_engine_advance(struct twill_engine *engine);
/* Store up to `most` ranks that requests under way wait for, each once. Returns how many. If any,
 * sets *step to what is awaited, "signal", "message", "entry" or "set-up message". */
unsigned twill_engine_waits_for(struct twill_engine *engine, uint32_t *ranks, unsigned most,
                                const char **step);
/* Return the error of the first posted message of an instance in flight that has failed, even if an
 * earlier one is pending. Returns TWILL_OK if none has failed. */
twill_status twill_engine_check_posted(struct twill_engine *engine);
/* Return whether a request under way, or a set-up, has a transport that must be polled, as it does
 * not ring this rank's doorbell. */
bool twill_engine_is_polled(const struct twill_engine *engine);
/* Complete all requests under way with the status that the communicator has failed with. */
void twill_requests_fail(struct twill_engine *engine, twill_status status);
/* Return whether the engine has a persistent request. */
bool twill_engine_has_persistent(const struct twill_engine *engine);
/* Free plans and scratch, which the next calls make anew. There is no persistent request, as that
 * has both for good, and no request is under way. */
void twill_engine_trim(struct twill_engine *engine);
/* Return the bytes of its requests, scratch and plans. */
size_t twill_engine_bytes(const struct twill_engine *engine);
/* Publish that for readers outside the job, after it has changed. */
void twill_engine_publish_bytes(const struct twill_engine *engine);
/* Set the call that this rank is in, and publish it to its node. `ticks` is when it was entered. */
void twill_engine_show(struct twill_engine *engine, const struct twill_call *call,
                       uint64_t sequence, uint64_t ticks);
/* If *memory, of *held bytes, is smaller than `bytes` bytes, replace it by memory of that size
 * without its contents. Returns TWILL_OK or the error, after which *memory is NULL. */
twill_status twill_engine_reserve(struct twill_engine *engine, unsigned char **memory, size_t *held,
                                  size_t bytes);
/* Add to engine->pending, where UINT_MAX subtracts 1. Only the holder writes, so not atomically. */
static inline void twill_engine_count_pending(struct twill_engine *engine, unsigned more)
{
    unsigned pending = atomic_load_explicit(&engine->pending, memory_order_relaxed);
    atomic_store_explicit(&engine->pending, pending + more, memory_order_release);
}
/* Complete the point-to-point calls whose messages are done, up to the first with a message that
 * has failed. Returns how many it completed or, upon such a failure, the error below 0. */
int twill_points_sweep(struct twill_engine *engine);
/* lib/engine/staging.c. Before any call, publish the costs of copies into SHARED that the context
 * knows of the ranks of this node from earlier communicators, if there are any. */
void twill_staging_recall(struct twill_engine *engine);
/* lib/engine/spread_ranks.c. If ranks share cores and a large call is under way, move this thread
 * to the CPU that tuning.share gives this rank. A call is large if one of its buffers has 1 MiB or
 * more. Only the oldest call counts. The thread may then run on the same CPUs as before, so the
 * kernel may move it again. */
void twill_spread_in_call(const struct twill_engine *engine);

/* --- the time of calls --- */
#define TWILL_COUNTED_BYTES 4096u
/* Add the time that a nonblocking call took to start to usage.ticks, unless its data is small. */
static inline void twill_request_count_start(const struct twill_request *request)
{
    const struct twill_side *side = request->buffers.side;
    if (TWILL_UNLIKELY(side[TWILL_SRC].bytes + side[TWILL_DST].bytes >= TWILL_COUNTED_BYTES))
        twill_counter_add(&request->engine->usage.ticks, twill_ticks() - request->ticks);
}

#define TWILL_SPLIT_TICKS 16384u /* of twill_ticks(), about 6 us */
#define TWILL_SPLIT_EVERY 64u
/* lib/engine/time_split.c. After a call or wait that completed a collective, find how long it
 * waited for the last rank to enter. Add that to the cost of that rank. Add it, and all time
 * without anything to do, to the sums of engine->split. The call or wait lasted from tick `from` to
 * `to`, and `idle` is usage.idle at `from`. All is multiplied by `times`, since a short call is a
 * sample of `times` calls. */
void twill_split_add(struct twill_engine *engine, uint64_t from, uint64_t to, uint64_t idle,
                     unsigned times);
/* Log a line on the calls since the last one, as TWILL_REPORT asks for every N calls. The caller
 * has checked that it is due. Set usage.report_at to the number of calls at the next line. */
void twill_split_report_due(struct twill_engine *engine);
/* Add the ticks `from` to `to` of a blocking call (is_call) or of a wait to usage.ticks. If they
 * are many, or the call is one of every TWILL_SPLIT_EVERY, pass them to twill_split_add(). Log the
 * report of TWILL_REPORT if it is due. `idle` is usage.idle at tick `from`. */
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
