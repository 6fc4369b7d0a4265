/* SPDX-License-Identifier: Apache-2.0 */
/* A context: what this process knows before it can talk. Everything hangs from it. */
#ifndef TWILL_CONTEXT_H
#define TWILL_CONTEXT_H

#include "algorithms/select/tuning_file.h"
#include "algorithms/world/world.h"
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/detector/detector.h"
#include "fabric/shm/shared_region.h"
#include "fabric/shm/single_copy.h"
#include "fabric/transports.h"
#include "kernels/kernels.h"
#include "lib/api/handle.h"
#include "lib/api/operation.h"
#include "lib/config/config.h"
#include "lib/memory/heap.h"
#include "lib/memory/malloc_heap.h"
#include "numa/memory.h"
#include "numa/topology.h"

#include <pthread.h>

#define TWILL_DESCRIBE_LINES 80
#define TWILL_DESCRIBE_BYTES 256

struct twill_level_info;

/* The thread that makes progress, lib/exec/progress_thread.c. */
struct twill_progress {
    bool enabled, late; /* late: it only looks after what nobody else moves along */
    int core;           /* to bind it to, or -1 */
    char how[160];      /* for twill-info */
    _Atomic bool tried; /* to start it */
    bool running;
    pthread_t thread;
    _Atomic bool stop, asleep;
    _Atomic uint32_t kicks; /* futex word */
};

/* The last wait that ended at its deadline: when (0: there was none), and ranks of the job that it
 * was for. */
struct twill_vain {
    uint64_t at;
    unsigned count;
    uint32_t job[16];
};

struct twill_context {
    uint32_t live;            /* TWILL_LIVE, or it has ended: lib/api/handle.h */
    struct twill_error error; /* the last failure; written under the lock */
    struct twill_log log;
    struct twill_config config;
    bool ready; /* creation succeeded */
    struct twill_oob *oob;
    struct twill_topology *topology;
    const struct twill_kernels *kernels;
    struct twill_device *device; /* NULL without TWILL_WITH_CUDA or a driver */
    struct twill_world world;
    uint32_t *label;                /* [size] node labels, as agreed */
    struct twill_level_info *level; /* [size] where each rank runs */
    bool crowded;                   /* ranks share cores: waits must yield early */
    bool unbound;                   /* ranks of a node may run on the same cores, and several */
    bool own_tcp;                   /* between nodes, not libfabric */
    unsigned threads;               /* ranks of this process */
    struct twill_common *common[TWILL_TRANSPORTS_MOST]; /* by place in the registry */
    struct twill_detector *detector;                    /* NULL on one node */
    pthread_mutex_t detector_lock;                      /* its user's; taken before `lock` */
    struct twill_tuning *tuning;                        /* what algorithms are chosen by */
    struct twill_tuning *timings; /* of this machine, from a tuning folder; used if all ranks have
                                     them; NULL: none */
    bool all_tuned;               /* all ranks have the same timings */
    char *why;                    /* the answer of twill_context_why() */
    struct twill_memory *user_memory, *library_memory;
    struct twill_memory_policy user_policy, library_policy;
    struct twill_preloaded preloaded;
    struct twill_heap heap;
    bool spilled; /* twill_alloc() gave private memory, as the heap was full, and this was said */
    pthread_mutex_t lock;                    /* of what follows, and of error and heap */
    bool lockable;                           /* lock is made */
    struct twill_persistent_region *regions; /* memory that stays, see lib/memory/registration.c */
    struct twill_persistent persistent;
    size_t pinned;            /* for it */
    uint32_t comms;           /* next number of a communicator; no lower one is in use here */
    struct twill_comm **open; /* [opened] communicators, in no order */
    size_t opened, open_capacity;
    struct twill_handle_pool ended; /* communicators */
    struct twill_handle_pool slabs; /* of requests, that no communicator has */
    struct twill_operations operations;
    struct twill_vain vain;
    struct twill_progress progress;
    twill_idle_fn idle; /* the caller's, of threads that wait; or NULL */
    void *idle_user;
    _Atomic unsigned pending;   /* sum over the open communicators' */
    const uint64_t *fork_guard; /* the kernel zeroes it in a child */
    bool previewed;
    _Atomic unsigned lines; /* they only become more */
    unsigned logged;        /* of them, by lib/config/log.c */
    char line[TWILL_DESCRIBE_LINES][TWILL_DESCRIBE_BYTES];
    char variable_line[1024], live_line[192];
};

/* What several threads change. Never held while waiting for another rank. */
static inline void twill_context_lock(struct twill_context *context)
{
    pthread_mutex_lock(&context->lock);
}
static inline void twill_context_unlock(struct twill_context *context)
{
    pthread_mutex_unlock(&context->lock);
}
/* The end of a call on the context: keep the error of one that failed for twill_context_message().
 * Returns status. */
twill_status twill_context_outcome(struct twill_context *context, twill_status status,
                                   const struct twill_error *error);

/* lib/memory/registration.c. Memory of the library's own, from TWILL_MEMORY's second half. */
twill_status twill_context_take(struct twill_context *context, void **memory, size_t bytes,
                                struct twill_error *error);
void twill_context_give(struct twill_context *context, void *memory, size_t bytes); /* NULL: no */
/* Places what communicators share by the same half of TWILL_MEMORY, and counts it there. */
struct twill_shm_region_placer twill_context_placer(struct twill_context *context);
void twill_persistent_init(struct twill_context *context);
void twill_persistent_clear(struct twill_context *context); /* forget all pieces */

/* Add a line to what twill_context_describe() says. */
void twill_context_note_nics(struct twill_context *context);
void twill_context_note(struct twill_context *context, const char *format, ...) TWILL_PRINTF(2, 3);
/* Add what would carry messages between nodes, where there is one node. lib/comm/comm.c */
void twill_context_preview(struct twill_context *context);

/* lib/health/notification.c: the failure detector. Collective. */
twill_status twill_context_open_detector(struct twill_context *context);

/* lib/memory/heap_open.c: what a rank tells the others of its heap before it is opened. */
struct twill_heap_info {
    uint64_t budget; /* bytes that the heaps of its node may have together, by default */
    uint64_t pid_namespace, pid;
    uint32_t preloaded; /* enum twill_preloaded_outcome */
};
void twill_heap_describe(const struct twill_context *context, struct twill_heap_info *info);
/* Collective: open the heap, and make the world, whose nodes are those that can share it. card:
 * [size] */
twill_status twill_context_open_heap(struct twill_context *context,
                                     const struct twill_heap_info *info);
void twill_heap_note(struct twill_context *context);

/* lib/config/tuning.c: what algorithms are chosen by. */
twill_status twill_context_open_tuning(struct twill_context *context);
/* All ranks have met: what is built in goes before the model if all are on that machine. */
twill_status twill_context_agree_tuning(struct twill_context *context, bool all_have_it);

/* What twill_alloc() and the library itself hold, and which allocations so far did not get the
 * memory asked for. */
void twill_context_memory(const struct twill_context *context, struct twill_memory_stats *user,
                          struct twill_memory_stats *library);

/* Is this the handle of a context that has not ended? */
static inline bool twill_context_is_live(const struct twill_context *context)
{
    return context != NULL && context->live == TWILL_LIVE;
}

#define TWILL_FORK_GUARD 0x7477696c6c212121u

static inline bool twill_context_is_forked(const struct twill_context *context)
{
    return *context->fork_guard != TWILL_FORK_GUARD;
}

#endif
