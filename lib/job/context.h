/* SPDX-License-Identifier: Apache-2.0 */
/* A context: a process's configuration, machine, memory and connection to the other ranks. All
 * communicators belong to one. */
#ifndef TWILL_CONTEXT_H
#define TWILL_CONTEXT_H

#include "algorithms/world/world.h"
#include "fabric/transport.h"

#include <pthread.h>
#include <stdatomic.h>

#define TWILL_DESCRIBE_LINES 80
#define TWILL_DESCRIBE_BYTES 256

#define TWILL_CLOSERS 8u

/* Of layers above, which make them at need and register what frees them. */
struct twill_advancer;        /* lib/wait/wait.h */
struct twill_comm;            /* lib/comm/comm.h */
struct twill_comm_observer;   /* lib/comm/comm.h */
struct twill_config;          /* lib/job/config.h */
struct twill_context_memory;  /* lib/job/heap.h */
struct twill_context_staging; /* lib/engine/staging.c */
struct twill_cpus;
struct twill_departed_comms; /* lib/comm/agree.c */
struct twill_device;
struct twill_kernels;
struct twill_memory_stats;
struct twill_topology;
struct twill_single_copy;
struct twill_shm_region_placer;
struct twill_tuning;
struct twill_level_info; /* lib/job/find_levels.h */
struct twill_operations; /* lib/job/operation.h */
struct twill_observer;   /* lib/engine/engine.h */
struct twill_timeline;   /* lib/report/timeline.c */

/* --- handles --- */

/* Memory of the objects behind public handles: contexts, communicators and requests. It is mapped,
 * and stays readable after the object's end, so that a stale handle is recognised: no other part of
 * the program can have reused the address. */

/* Value of the word `live` of a context. Any other one: it has ended. */
#define TWILL_CONTEXT_LIVE 0x7477696cu

/* Queue of the memory of ended objects of one size, oldest first. Part of a context, whose lock
 * protects it. */
struct twill_handle_pool {
    struct twill_handle_link *first, *last;
    unsigned count;
    size_t bytes; /* of an object */
};

/* Return the oldest memory in the pool, contents unchanged, if at least `keep` others remain;
 * else map new memory. Handles of the `keep` objects that ended last are thus never reused. Returns
 * NULL if out of memory. */
void *twill_handle_pool_get(struct twill_handle_pool *pool, size_t bytes, unsigned keep);
/* Put the memory of an ended object into the pool. */
void twill_handle_pool_put(struct twill_handle_pool *pool, void *memory, size_t bytes);
/* Print a warning of `call` where no context's log exists any more, unless TWILL_LOG=none. */
void twill_handle_warn(const char *call, const char *sentence);

/* --- the context --- */

/* The progress thread: lib/wait/progress.c. */
struct twill_progress {
    bool enabled, late; /* late: TWILL_PROGRESS=late, advances once per millisecond only */
    int core;           /* CPU to bind it to, or -1 */
    char how[160];      /* for twill-info */
    _Atomic bool tried; /* starting it has been tried */
    bool running;
    pthread_t thread;
    _Atomic bool stop, asleep;
    _Atomic uint32_t kicks; /* futex word */
};

/* The last wait that has timed out, and the ranks that it was for. */
struct twill_timed_out {
    uint64_t at; /* twill_now(); 0: none has */
    unsigned count;
    uint32_t job[16]; /* [count] ranks in the job */
};

/* The job: its ranks, and where they run. */
struct twill_context_job {
    struct twill_oob *oob;
    uint64_t id; /* the same on all ranks, another one in other jobs */
    struct twill_world world;
    uint32_t *label;                /* [size] node labels */
    struct twill_level_info *level; /* [size] where each rank runs */
    unsigned threads;               /* most ranks in one process of the job */
    struct twill_cpus *host_cpus;   /* [host_ranks] of this host: where each rank may run */
    unsigned host_ranks, host_rank; /* host_rank: index of this rank among them */
    bool crowded;                   /* ranks share cores: waits must yield early */
    bool unbound;                   /* several ranks of a node may run on the same several cores */
};

/* The machine that this process runs on. */
struct twill_context_machine {
    struct twill_topology *topology;
    const struct twill_kernels *kernels;
    struct twill_device *device; /* NULL without TWILL_WITH_CUDA or a driver */
};

struct twill_context_transports {
    const struct twill_transport_ops *internode; /* the transport between nodes; NULL: one node */
    struct twill_common *common[TWILL_TRANSPORTS_MOST]; /* by registry index */
    struct twill_alone *alone;  /* of communicators with endpoints of their own; under alone_lock */
    pthread_mutex_t alone_lock; /* taken before any lock of a transport */
};

struct twill_context_health {
    struct twill_detector *detector;       /* under detector_lock */
    pthread_mutex_t detector_lock;         /* taken before context->lock */
    struct twill_timed_out timed_out;      /* under context->lock */
    uint64_t searches;                     /* twill_comm_find_cause() so far; under context->lock */
    struct twill_departed_comms *departed; /* lib/comm/agree.c; under detector_lock */
};

/* What algorithms are selected by. */
struct twill_context_selection {
    struct twill_tuning *tuning;  /* timings in use */
    struct twill_tuning *timings; /* of this machine, from a tuning folder; NULL: none */
    bool all_tuned;               /* all ranks have the same timings: they are used */
    char *why;                    /* result of twill_context_why() */
};

/* The communicators of a context; under its lock. */
struct twill_context_comms {
    uint32_t next_number;     /* of the next communicator; no lower one is free here. Written by the
                                 thread that makes one, which reads it without the lock */
    struct twill_comm **open; /* [opened] open communicators, in no order */
    size_t opened, open_capacity;
    struct twill_handle_pool ended; /* memory of communicators that have ended */
    struct twill_handle_pool slabs; /* memory for requests, unused */
    _Atomic unsigned pending; /* sum over the open communicators, and one for each advancer; needs
                                 no lock */
    struct twill_context_staging *staging; /* what they have measured; NULL: nothing yet */
    /* Advance the open ones, other than `except`; NULL: none has been open. Returns the steps made
     */
    int (*_Atomic advance)(struct twill_context *context, const struct twill_comm *except);
    struct twill_advancer *advancers;           /* what else waits advance; the last added first */
    const struct twill_comm_observer *observer; /* of the layer above, or NULL */
};

/* The caller's function for threads that wait; or NULL. */
struct twill_idle_hook {
    twill_idle_fn function;
    void *user;
};

/* Lines of twill_context_describe(). */
struct twill_context_notes {
    bool previewed;
    _Atomic unsigned lines;             /* never decreases */
    unsigned logged;                    /* how many lib/job/log.c has logged */
    bool of_rank[TWILL_DESCRIBE_LINES]; /* else all ranks of the node have this line alike */
    char line[TWILL_DESCRIBE_LINES][TWILL_DESCRIBE_BYTES];
    char variable_line[1024], live_line[192];
};

/* Functions that close what layers above keep with the context, called from the last one registered
 * on. */
struct twill_closers {
    void (*close[TWILL_CLOSERS])(struct twill_context *context);
    unsigned count;
};

/* Created and destroyed by twill_context_create() and _destroy(). Members are constant after
 * creation unless marked otherwise, here or in their types. */
struct twill_context {
    uint32_t live;            /* TWILL_CONTEXT_LIVE, or it has ended */
    bool ready;               /* creation succeeded */
    bool lockable;            /* the locks are initialised */
    pthread_mutex_t lock;     /* protects error, comms, operations, memory and health.timed_out */
    struct twill_error error; /* the last failure */
    struct twill_log log;
    struct twill_config *config; /* lib/job/config.h */
    struct twill_context_job job;
    struct twill_context_machine machine;
    struct twill_context_transports transports;
    struct twill_context_health health;
    struct twill_context_selection selection;
    struct twill_context_memory *memory; /* lib/job/heap.h */
    struct twill_context_comms comms;
    struct twill_operations *operations; /* lib/job/operation.h */
    struct twill_progress progress;
    struct twill_idle_hook idle_hook;
    const struct twill_observer *observer; /* lib/report/metrics.c; NULL: no metrics are kept */
    const uint64_t *fork_guard;            /* not 0, but that the kernel zeroes it in a child */
    struct twill_fd_guard fd_guard; /* closed standard streams while others open descriptors */
    struct twill_context_notes notes;
    struct twill_timeline *timeline; /* lib/report/timeline.c; NULL: none */
    struct twill_closers closers;
    /* Contexts of twill_init() whose jobs have grown, from the latest on: kept for the memory of
     * twill_alloc() in them, and destroyed with the latest, or earlier if they have none. */
    struct twill_context *older, *newer;
};

/* What a context is created by. */
struct twill_context_source {
    const twill_bootstrap *bootstrap; /* or NULL */
    const char *const *settings;      /* or NULL */
    const struct twill_join *join;    /* the job grows; or NULL */
    const struct twill_context *like; /* take its configuration instead of settings; or NULL */
    const struct twill_comm_observer *observer; /* of its communicators; NULL: like's */
};
twill_status twill_context_create_by(struct twill_context **context,
                                     const struct twill_context_source *source);
/* lib/job/context.c. Give `context` what a program has made in the context `from`, whose job
 * it is larger than: operations, idle function, registered memory. */
twill_status twill_context_inherit(struct twill_context *context, struct twill_context *from,
                                   struct twill_error *error);
/* Let `context` destroy `older` at its end, or twill_context_drop_older() before. */
void twill_context_chain(struct twill_context *context, struct twill_context *older);
/* A communicator of this context has ended: destroy the context if it was kept for that one only.
 */
void twill_context_drop_older(struct twill_context *context);

static inline bool twill_context_is_forked(const struct twill_context *context)
{
    return context->fork_guard != NULL && *context->fork_guard == 0;
}

/* Take the lock of what several threads change. Never held while waiting for another rank. In a
 * forked child a thread of the parent, which does not exist here, may hold it for ever: it is not
 * taken. */
static inline void twill_context_lock(struct twill_context *context)
{
    if (TWILL_LIKELY(!twill_context_is_forked(context)))
        pthread_mutex_lock(&context->lock);
}
static inline void twill_context_unlock(struct twill_context *context)
{
    if (TWILL_LIKELY(!twill_context_is_forked(context)))
        pthread_mutex_unlock(&context->lock);
}
/* End a call on the context: keep its error for twill_context_message(). Returns status. */
twill_status twill_context_outcome(struct twill_context *context, twill_status status,
                                   const struct twill_error *error);

/* Have the context's end call close(context), once, before anything of the context itself is
 * closed. No communicator is open then. The caller holds the context's lock. */
static inline void twill_context_at_end(struct twill_context *context,
                                        void (*close)(struct twill_context *context))
{
    context->closers.close[context->closers.count++] = close;
}

/* --- lib/job/registration.c: memory of the program and of the library --- */

/* Fence the heap, twill_heap_fence(), and drop its registrations. */
twill_status twill_context_fence(struct twill_context *context, struct twill_error *error);
/* Allocate and free memory for the library, placed as TWILL_MEMORY's
 * second half says. */
twill_status twill_context_take(struct twill_context *context, void **memory, size_t bytes,
                                struct twill_error *error);
void twill_context_give(struct twill_context *context, void *memory,
                        size_t bytes); /* NULL: ignored */
/* Allocate and free memory for the library from the heap of twill_alloc(), which the ranks of the
 * node map, or as above if that is full. */
twill_status twill_context_take_shared(struct twill_context *context, void **memory, size_t bytes,
                                       struct twill_error *error);
void twill_context_give_shared(struct twill_context *context, void *memory, size_t bytes);
/* Note that this memory, from twill_context_take_shared(), is pinned for a device:
 * twill_context_unpin() is called before its pages go. The context's lock is held. */
void twill_context_set_pinned(struct twill_context *context, const void *memory);
/* Check by a system call, which does not fault, that first and last byte are readable. */
bool twill_memory_is_readable(const void *memory, size_t bytes);
/* Return the placer of memory that communicators share; it uses the same half of TWILL_MEMORY. */
struct twill_shm_region_placer twill_context_placer(struct twill_context *context);
/* Return the bytes of one copy of SHARED in its communicators. */
size_t twill_context_shared_bytes(const struct twill_context *context);
/* Add a line to twill_context_describe(). of_rank: ranks may have different ones, and each logs its
 * own at level info. */
void twill_context_note_of(struct twill_context *context, bool of_rank, const char *format, ...)
    TWILL_PRINTF(3, 4);
#define twill_context_note(context, ...)      twill_context_note_of(context, false, __VA_ARGS__)
#define twill_context_note_rank(context, ...) twill_context_note_of(context, true, __VA_ARGS__)
/* Return what twill_alloc() and the library have allocated, and how many allocations did not get
 * the memory they asked for. */
void twill_context_memory_stats(const struct twill_context *context,
                                struct twill_memory_stats *user,
                                struct twill_memory_stats *library);

/* Is this the handle of a context that has not ended? */
static inline bool twill_context_is_live(const struct twill_context *context)
{
    return context != NULL && context->live == TWILL_CONTEXT_LIVE;
}

#endif
