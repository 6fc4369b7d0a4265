/* SPDX-License-Identifier: Apache-2.0 */
/* A context is a process's configuration, machine, memory and connection to the other ranks. */
#ifndef TWILL_CONTEXT_H
#define TWILL_CONTEXT_H

#include "algorithms/world/world.h"
#include "fabric/transport.h"

#include <pthread.h>
#include <stdatomic.h>

#define TWILL_DESCRIBE_LINES 80
#define TWILL_DESCRIBE_BYTES 256

#define TWILL_CLOSERS 8u

/* Upper layers create some of these when they first need them, and register what frees them. */
struct twill_advancer;        /* lib/wait/wait.h */
struct twill_comm;            /* lib/comm/comm.h */
struct twill_comm_observer;   /* lib/comm/comm.h */
struct twill_config;          /* lib/job/config.h */
struct twill_context_memory;  /* lib/job/heap.h */
struct twill_context_threads; /* lib/job/rank_threads.h */
struct twill_context_staging; /* lib/engine/staging.c */
struct twill_cpus;
struct twill_departed_comms; /* lib/comm/agree.c */
struct twill_device;
struct twill_kernels;
struct twill_thread_pool;
struct twill_memory_stats;
struct twill_topology;
struct twill_single_copy;
struct twill_shm_region_placer;
struct twill_tuning;
struct twill_level_info; /* lib/job/find_levels.h */
struct twill_operations; /* lib/job/operation.h */
struct twill_observer;   /* lib/engine/engine.h */
struct twill_timeline;   /* lib/report/timeline.c */

/* The objects behind public handles (contexts, communicators and requests) live in memory that is
 * mapped for them alone. It stays readable after their end, so that old handles are found out. */

/* Value of `live` in a context that has not ended. A context with any other value has ended. */
#define TWILL_CONTEXT_LIVE 0x7477696cu

/* A context's queue of the memory of ended objects of one size, oldest first, under its lock. */
struct twill_handle_pool {
    void **memory; /* [capacity] a ring of `count` objects from `first` on */
    unsigned first, count, capacity;
    size_t bytes; /* of one object */
};

/* Return memory for an object of `bytes` bytes, or NULL if out of memory. If the pool has more than
 * `keep` blocks, this is the oldest one. Otherwise new zeroed memory is mapped. */
void *twill_handle_pool_get(struct twill_handle_pool *pool, size_t bytes, unsigned keep);
/* Put the memory of an ended object of `bytes` bytes at the end of the pool. Only the newest
 * `whole` objects keep their contents and pages. The others read as zeros. */
void twill_handle_pool_put(struct twill_handle_pool *pool, void *memory, size_t bytes,
                           unsigned whole);
/* Print a warning about the public function `call`, unless TWILL_LOG=none. Needs no context. */
void twill_handle_warn(const char *call, const char *sentence);

/* State of a context's progress thread, of which it has at most one (lib/wait/progress.c). */
struct twill_progress {
    bool enabled, late; /* a thread is asked for, and it advances only once per millisecond */
    int core;           /* CPU to bind the thread to, or -1 */
    char how[160];      /* description for twill-info */
    _Atomic bool tried; /* an attempt to start it has been made */
    bool running;       /* it was started, and has not been stopped */
    pthread_t thread;
    _Atomic bool stop, asleep; /* it must end, and it sleeps on `kicks` */
    _Atomic uint32_t kicks;    /* futex word, incremented to wake the thread */
};

/* A context's last wait that timed out, and for which ranks, under the context's lock. */
struct twill_timed_out {
    uint64_t at; /* twill_now(), or 0 if no wait has timed out */
    unsigned count;
    uint32_t job[16]; /* [count] ranks in the job */
};

/* The ranks of the job and where they run. Constant once the context is created. */
struct twill_context_job {
    struct twill_oob *oob;
    uint64_t id; /* equal on all ranks of the job, different in other jobs */
    struct twill_world world;
    uint32_t *label;                /* [size] node labels */
    struct twill_level_info *level; /* [size] where each rank runs */
    unsigned threads;               /* most ranks that one process of the job has as threads */
    uint32_t rank_threads; /* of the rank that has fewest (TWILL_THREADS), which prices count on */
    size_t piece; /* bytes that a kernel call must write so that all threads of the rank that needs
                     least help; 0 if some rank has one thread */
    struct twill_cpus *host_cpus;   /* [host_ranks] where each rank of this host may run */
    unsigned host_ranks, host_rank; /* host_rank: this rank's index in host_cpus */
    uint32_t crowded; /* ranks a core if they share this rank's cores, so that waits must yield
                         early, else 0 */
    bool apart;       /* they do, and yields of a core do not reach all of them */
    size_t room;  /* bytes for the node memory of further communicators (fabric/shm/node_room.h) */
    bool unbound; /* several ranks of a node may run on the same set of several cores */
};

/* The machine that this process runs on. Constant once the context is created. */
struct twill_context_machine {
    struct twill_topology *topology;
    const struct twill_kernels *kernels;
    struct twill_thread_pool *pool; /* threads that share the work of kernels, NULL if one */
    struct twill_context_threads *threads;
    struct twill_device *device; /* NULL if built without TWILL_WITH_CUDA or no driver was found */
};

/* The transports of a context. Constant unless a lock is named. */
struct twill_context_transports {
    const struct twill_transport_ops *internode;        /* between nodes; NULL if one node */
    struct twill_common *common[TWILL_TRANSPORTS_MOST]; /* by registry index, NULL if not made */
    struct twill_alone *alone;  /* communicators with their own endpoints; under alone_lock */
    pthread_mutex_t alone_lock; /* taken before any lock of a transport */
};

/* What a context knows of dead ranks and of waits that timed out. */
struct twill_context_health {
    struct twill_detector *detector;  /* under detector_lock */
    pthread_mutex_t detector_lock;    /* taken before context->lock */
    struct twill_timed_out timed_out; /* under context->lock */
    uint64_t searches; /* calls of twill_comm_find_cause() so far, under context->lock */
    /* Last decisions of communicators that have ended, or NULL (lib/comm/agree.c). Under
     * detector_lock. */
    struct twill_departed_comms *departed;
};

/* Timings and models by which algorithms are selected. Only `why` changes after the creation. */
struct twill_context_selection {
    struct twill_tuning *tuning;  /* timings in use */
    struct twill_tuning *timings; /* this machine's, found in a tuning folder; NULL if none */
    bool all_tuned;               /* all ranks have the same `timings`, so they are used */
    char *why;                    /* result of twill_context_why() */
};

/* The communicators of a context. The context's lock protects all members unless said otherwise. */
struct twill_context_comms {
    uint32_t next_number;                   /* for the next communicator; lower ones are taken */
    struct twill_comm **open;               /* [opened] open communicators in no particular order */
    size_t opened, open_capacity, reserved; /* reserved: entries for those that are being made */
    struct twill_handle_pool ended;         /* memory of communicators that have ended */
    struct twill_handle_pool slabs;         /* unused memory for requests */
    _Atomic unsigned pending; /* requests that any thread may advance, and advancers; lock-free */
    struct twill_context_staging *staging; /* measurements of the communicators, or NULL if none */
    /* Advance all communicators but `except`. Returns the steps made. NULL before one is opened. */
    int (*_Atomic advance)(struct twill_context *context, const struct twill_comm *except);
    struct twill_advancer *advancers; /* other things that waits advance, last added first */
    const struct twill_comm_observer *observer; /* belongs to the layer above, or NULL */
};

/* The program's function for threads that wait, or NULL (twill_context_idle()). */
struct twill_idle_hook {
    twill_idle_fn function;
    void *user;
};

/* The lines that twill_context_describe() returns. Lines are only added. Any thread reads them.
 * Part of the context. */
struct twill_context_notes {
    bool previewed;                     /* the slow search for libfabric's line has been done */
    _Atomic unsigned lines;             /* number of lines in line[], never decreases */
    unsigned logged;                    /* number of lines that lib/job/log.c has logged */
    bool of_rank[TWILL_DESCRIBE_LINES]; /* else all ranks of the node have the line */
    char line[TWILL_DESCRIBE_LINES][TWILL_DESCRIBE_BYTES];
    /* The last text of twill_context_variable(), and the last line about present memory. */
    char variable_line[1024], live_line[192];
};

/* Functions that release what upper layers keep with the context, the first one called last. */
struct twill_closers {
    void (*close[TWILL_CLOSERS])(struct twill_context *context);
    unsigned count;
};

/* One context. twill_context_create() makes it and twill_context_destroy() frees it. Members are
 * constant after creation unless a comment here or in their types says otherwise. */
struct twill_context {
    uint32_t live;            /* TWILL_CONTEXT_LIVE until the context has ended */
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
    const struct twill_observer *observer; /* lib/report/metrics.c, or NULL without metrics */
    const uint64_t *fork_guard;            /* a word that is 1, and 0 in a forked child */
    struct twill_fd_guard fd_guard;        /* no new descriptor becomes a closed standard stream */
    struct twill_context_notes notes;
    struct twill_timeline *timeline; /* lib/report/timeline.c, or NULL if not requested */
    struct twill_closers closers;
    /* The chain of twill_init()'s contexts of a job that has grown. An older one is kept for its
     * memory of twill_alloc(), and destroyed with the latest or once it is unused. */
    struct twill_context *older, *newer;
};

/* The inputs of twill_context_create_by(), which uses them only during the call. */
struct twill_context_source {
    const twill_bootstrap *bootstrap;           /* NULL: by the launcher or a handle */
    const char *const *settings;                /* "NAME=value", ended by NULL; or NULL */
    const struct twill_join *join;              /* for a job that grows; or NULL */
    const struct twill_context *like;           /* context whose configuration is copied; or NULL */
    const struct twill_comm_observer *observer; /* for its communicators; NULL: that of `like` */
};
/* Create a context. After a failure *context holds the message and the caller must destroy it. If
 * it could not be mapped, *context is left alone and TWILL_ERR_MEMORY returned. */
twill_status twill_context_create_by(struct twill_context **context,
                                     const struct twill_context_source *source);
/* Copy to `context` the operations, the idle function and the list of what twill_register() has
 * registered, all of `from`. Fails only if out of memory. */
twill_status twill_context_inherit(struct twill_context *context, struct twill_context *from,
                                   struct twill_error *error);
/* Keep `older` until `context` ends, or until twill_context_drop_older() finds it unused. */
void twill_context_chain(struct twill_context *context, struct twill_context *older);
/* Destroy the context if a newer one has replaced it and it holds neither open communicators nor
 * allocated memory. Called after a communicator of it has ended. */
void twill_context_drop_older(struct twill_context *context);

/* Return whether this process was forked from the one that created the context. */
static inline bool twill_context_is_forked(const struct twill_context *context)
{
    return context->fork_guard != NULL && *context->fork_guard == 0;
}

/* Take the lock for what several threads change. It is never held while waiting for another rank.
 * In a forked child this does nothing, as a thread of the parent may have held it at the fork. */
static inline void twill_context_lock(struct twill_context *context)
{
    if (TWILL_LIKELY(!twill_context_is_forked(context)))
        pthread_mutex_lock(&context->lock);
}
/* Release the context's lock, unless in a forked child. */
static inline void twill_context_unlock(struct twill_context *context)
{
    if (TWILL_LIKELY(!twill_context_is_forked(context)))
        pthread_mutex_unlock(&context->lock);
}
/* End a public call. If `status` is an error, keep `error` in the context. Returns `status`. */
twill_status twill_context_outcome(struct twill_context *context, twill_status status,
                                   const struct twill_error *error);

/* Register `close`, which the end of the context calls once, before anything of the context is
 * closed and when no communicator is open. The caller holds the context's lock. */
static inline void twill_context_at_end(struct twill_context *context,
                                        void (*close)(struct twill_context *context))
{
    context->closers.close[context->closers.count++] = close;
}

/* Replace the pages of the heap of twill_alloc() by private ones with the same contents, at the
 * same addresses. Called when a job continues without a rank, which may still write to the old
 * pages. Unpin and deregister the heap. Returns TWILL_OK, or the error of twill_heap_fence(). */
twill_status twill_context_fence(struct twill_context *context, struct twill_error *error);
/* Set *memory to new memory for the library, placed as the second half of TWILL_MEMORY says.
 * twill_context_give() frees it. Returns TWILL_OK or TWILL_ERR_MEMORY. */
twill_status twill_context_take(struct twill_context *context, void **memory, size_t bytes,
                                struct twill_error *error);
/* Free memory from twill_context_take(). NULL is ignored. */
void twill_context_give(struct twill_context *context, void *memory, size_t bytes);
/* Set *memory to new memory for the library from the heap of twill_alloc(), which the node's ranks
 * map. If that is full, allocate as twill_context_take() does. Returns TWILL_OK or an error. */
twill_status twill_context_take_shared(struct twill_context *context, void **memory, size_t bytes,
                                       struct twill_error *error);
/* Free memory from twill_context_take_shared(), which may be NULL. */
void twill_context_give_shared(struct twill_context *context, void *memory, size_t bytes);
/* Mark memory from twill_context_take_shared() as pinned for a device. It is unpinned before its
 * pages are freed. The caller holds the context's lock. */
void twill_context_set_pinned(struct twill_context *context, const void *memory);
/* Return whether the first and last byte can be read, also true if the system call cannot tell. */
bool twill_memory_is_readable(const void *memory, size_t bytes);
#define TWILL_PROMOTED_LEAST ((size_t)64 << 10) /* bytes of a promoted buffer, and of its calls */
/* Return functions that place memory which communicators share, for twill_shm_region. They place it
 * as TWILL_MEMORY says for the library's memory, after the comma. The result is a value, valid
 * while the context exists. */
struct twill_shm_region_placer twill_context_placer(struct twill_context *context);
/* Return the bytes of one copy of the SHARED buffer in the context's communicators. */
size_t twill_context_shared_bytes(const struct twill_context *context);
/* Add a line to twill_context_describe(), or drop it if there is no room. If `of_rank`, ranks may
 * have different ones, and each logs its own at level info. */
void twill_context_note_of(struct twill_context *context, bool of_rank, const char *format, ...)
    TWILL_PRINTF(3, 4);
#define twill_context_note(context, ...)      twill_context_note_of(context, false, __VA_ARGS__)
#define twill_context_note_rank(context, ...) twill_context_note_of(context, true, __VA_ARGS__)
/* Set the statistics of twill_alloc() memory (`user`) and of the library's own memory. */
void twill_context_memory_stats(const struct twill_context *context,
                                struct twill_memory_stats *user,
                                struct twill_memory_stats *library);

/* Return whether `context` is the handle of a context that has not ended. NULL is allowed. */
static inline bool twill_context_is_live(const struct twill_context *context)
{
    return context != NULL && context->live == TWILL_CONTEXT_LIVE;
}

#endif
