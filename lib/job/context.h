/* SPDX-License-Identifier: Apache-2.0 */
/* A context: a process's configuration, machine, memory and connection to the other ranks. All
 * communicators belong to one. */
#ifndef TWILL_CONTEXT_H
#define TWILL_CONTEXT_H

#include "algorithms/world/world.h"
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/detector/detector.h"
#include "fabric/shm/shared_region.h"
#include "fabric/transports.h"
#include "lib/job/config.h"
#include "lib/job/handle.h"
#include "lib/job/heap.h"
#include "lib/job/malloc_heap.h"
#include "lib/job/operation.h"
#include "numa/memory.h"
#include "numa/topology.h"

#include <pthread.h>

#define TWILL_DESCRIBE_LINES 80
#define TWILL_DESCRIBE_BYTES 256

#define TWILL_CLOSERS 8u

/* Of layers above, which make them at need and register what frees them. */
struct twill_advancer;        /* lib/wait/wait.h */
struct twill_comm;            /* lib/comm/comm.h */
struct twill_comm_observer;   /* lib/comm/comm.h */
struct twill_context_staging; /* lib/engine/staging.c */
struct twill_departed_comms;  /* lib/comm/agree.c */
struct twill_kernels;
struct twill_single_copy;
struct twill_tuning;
struct twill_level_info; /* lib/job/find_levels.h */
struct twill_observer;   /* lib/engine/engine.h */
struct twill_timeline;   /* lib/report/timeline.c */

/* The progress thread: lib/wait/progress_thread.c. */
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

/* What a communicator that has endpoints of its own has in place of the context's. */
struct twill_alone {
    struct twill_common *common[TWILL_TRANSPORTS_MOST];
    struct twill_alone *next;
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

/* Memory of twill_alloc() (user) and of the library. What is allocated is protected by
 * context->lock. */
struct twill_context_memory {
    struct twill_memory *user, *library;
    struct twill_memory_policy user_policy, library_policy;
    struct twill_preloaded preloaded;
    struct twill_heap heap;
    bool spilled; /* has said that the heap is full and twill_alloc() uses private memory */
    struct twill_persistent_region *regions; /* lib/job/registration.c */
    struct twill_persistent persistent;
    size_t pinned; /* bytes of regions */
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
    uint32_t live;            /* TWILL_LIVE, or it has ended: lib/job/handle.h */
    bool ready;               /* creation succeeded */
    bool lockable;            /* the locks are initialised */
    pthread_mutex_t lock;     /* protects error, comms, operations, memory and health.timed_out */
    struct twill_error error; /* the last failure */
    struct twill_log log;
    struct twill_config config;
    struct twill_context_job job;
    struct twill_context_machine machine;
    struct twill_context_transports transports;
    struct twill_context_health health;
    struct twill_context_selection selection;
    struct twill_context_memory memory;
    struct twill_context_comms comms;
    struct twill_operations operations;
    struct twill_progress progress;
    struct twill_idle_hook idle_hook;
    const struct twill_observer *observer; /* lib/report/metrics.c; NULL: no metrics are kept */
    const uint64_t *fork_guard;            /* the kernel zeroes it in a child */
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
/* lib/job/context_bootstrap.c. Find the other ranks. */
twill_status twill_context_open_bootstrap(struct twill_context *context,
                                          const struct twill_context_source *source);

/* lib/job/context_job.c. Compare the ranks, decide which of them are on one node, and share the
 * heap. Collective, two exchanges; four if ranks of a host turn out to share no memory. */
twill_status twill_context_open_job(struct twill_context *context);

/* lib/job/context_chain.c. Give `context` what a program has made in the context `from`, whose job
 * it is larger than: operations, idle function, registered memory. */
twill_status twill_context_inherit(struct twill_context *context, struct twill_context *from,
                                   struct twill_error *error);
/* Let `context` destroy `older` at its end, or twill_context_drop_older() before. */
void twill_context_chain(struct twill_context *context, struct twill_context *older);
/* Take a context out of its chain, before it ends. */
void twill_context_unchain(struct twill_context *context);
/* A communicator of this context has ended: destroy the context if it was kept for that one only.
 */
void twill_context_drop_older(struct twill_context *context);

#define TWILL_FORK_GUARD 0x7477696c6c212121u

static inline bool twill_context_is_forked(const struct twill_context *context)
{
    return context->fork_guard != NULL && *context->fork_guard != TWILL_FORK_GUARD;
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

/* --- lib/job/registration.c: memory, of devices, of the program and of the library --- */

/* Pinned memory begins with its first whole page: it shares no page with other memory. */
#define TWILL_DEVICE_PAGE ((size_t)4096)

/* Load the CUDA driver and note what was found; context->machine.device stays NULL without one. In
 * a library built without TWILL_WITH_CUDA, naming a driver library is an error. */
twill_status twill_context_open_device(struct twill_context *context);
void twill_context_close_device(struct twill_context *context);

#ifdef TWILL_WITH_CUDA
/* Undo the pinning of memory of the library, before its pages go. */
void twill_context_unpin(struct twill_context *context, void *memory);
/* Return an error if this is device memory. `call`: the public function, for the message. */
twill_status twill_context_check_host(struct twill_context *context, const char *call,
                                      const void *memory, struct twill_error *error);
#else
static inline void twill_context_unpin(struct twill_context *context, void *memory)
{
    (void)context, (void)memory;
}
static inline twill_status twill_context_check_host(struct twill_context *context, const char *call,
                                                    const void *memory, struct twill_error *error)
{
    (void)context, (void)call, (void)memory, (void)error;
    return TWILL_OK;
}
#endif

/* Fence the heap, twill_heap_fence(), and drop its registrations. */
twill_status twill_context_fence(struct twill_context *context, struct twill_error *error);
/* lib/job/registration.c. Let the transports of all communicators drop what they keep of this
 * memory (registrations), which is about to be freed. Call without the context's lock. */
void twill_context_forget_memory(struct twill_context *context, const void *start, size_t bytes);
/* lib/job/registration.c. Allocate and free memory for the library, placed as TWILL_MEMORY's
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
void twill_persistent_init(struct twill_context *context);
void twill_persistent_clear(struct twill_context *context); /* drop all regions */
/* Register what is registered in `from`. */
twill_status twill_persistent_inherit(struct twill_context *context,
                                      const struct twill_context *from, struct twill_error *error);
/* Is there memory of twill_alloc(), or of the library? */
bool twill_persistent_is_used(const struct twill_context *context);

/* Add a line to twill_context_describe(). of_rank: ranks may have different ones, and each logs its
 * own at level info. */
void twill_context_note_of(struct twill_context *context, bool of_rank, const char *format, ...)
    TWILL_PRINTF(3, 4);
#define twill_context_note(context, ...)      twill_context_note_of(context, false, __VA_ARGS__)
#define twill_context_note_rank(context, ...) twill_context_note_of(context, true, __VA_ARGS__)
/* lib/job/detector_setup.c. Open the failure detector in three steps around two exchanges, as in
 * fabric/detector/detector.h. connect: with the nodes that are expected, in the exchange that
 * decides them; it adds nothing if there is one. reopen, collective: if there are others, before
 * conclude, with two exchanges of its own. */
twill_status twill_context_offer_detector(struct twill_context *context,
                                          struct twill_agreement *agreement);
twill_status twill_context_connect_detector(struct twill_context *context,
                                            struct twill_agreement *agreement);
twill_status twill_context_reopen_detector(struct twill_context *context);
twill_status twill_context_conclude_detector(struct twill_context *context);

/* lib/job/heap_open.c. What ranks exchange about their heaps before opening them. */
struct twill_heap_info {
    uint64_t memory; /* bytes of the node */
    uint64_t space;  /* bytes of address space left to this process (ulimit -v) */
    uint64_t pid_namespace, pid;
    uint32_t preloaded; /* enum twill_preloaded_outcome */
};
void twill_heap_describe(const struct twill_context *context, struct twill_heap_info *info);
/* Make context->job.world, by the labels of its nodes. */
twill_status twill_heap_make_world(struct twill_context *context);
/* Open the heap in three steps around two exchanges: see fabric/shm/shared_region.h. attach: with
 * the info of all ranks. conclude: make the world again if ranks that were expected to share it
 * cannot. twill_heap_opening_end() comes last, also after a failure. */
struct twill_heap_opening {
    struct twill_shm_region *region; /* NULL: there is one rank */
    size_t bytes;                    /* of the region, and by default */
    size_t default_bytes;
    uint32_t *outcome; /* [size] enum twill_preloaded_outcome of all ranks */
};
twill_status twill_heap_offer(struct twill_context *context, struct twill_heap_opening *opening,
                              struct twill_agreement *agreement);
twill_status twill_heap_attach(struct twill_context *context, struct twill_heap_opening *opening,
                               const struct twill_heap_info *info,
                               struct twill_agreement *agreement);
twill_status twill_heap_conclude(struct twill_context *context, struct twill_heap_opening *opening);
void twill_heap_opening_end(struct twill_heap_opening *opening);
void twill_heap_note(struct twill_context *context);

/* Choose the CPU of the progress thread, given where the n ranks of this host may run; `me` is this
 * rank. */
void twill_progress_place(struct twill_context *context, const struct twill_cpus *ranks, unsigned n,
                          unsigned me);

/* lib/job/tuning.c. Read a whole tuning file into `text`, which the caller frees; *text is NULL if
 * it is empty. Return TWILL_ERR_CONFIG, with a message that names TWILL_TUNING, if it cannot be
 * read. */
twill_status twill_tuning_read(char **text, const char *path, struct twill_error *error);
/* Load the timings that algorithms are selected by. */
twill_status twill_context_open_tuning(struct twill_context *context);
/* Use the timings of this machine, if all ranks have the same. */
twill_status twill_context_agree_tuning(struct twill_context *context, bool all_have_it);

/* Return what twill_alloc() and the library have allocated, and how many allocations did not get
 * the memory they asked for. */
void twill_context_memory_stats(const struct twill_context *context,
                                struct twill_memory_stats *user,
                                struct twill_memory_stats *library);

/* Is this the handle of a context that has not ended? */
static inline bool twill_context_is_live(const struct twill_context *context)
{
    return context != NULL && context->live == TWILL_LIVE;
}

#endif
