/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator: the ranks, the links between them, and the plans made so far. */
#ifndef TWILL_COMM_H
#define TWILL_COMM_H

#include "lib/comm/context.h"
#include "lib/exec/request.h"

#include <stdatomic.h>

#define TWILL_MAILBOX_REPORTS 4u

/* Polls before a wait gives its core away: where nobody wants it (some 20 us), and where ranks
 * share it. */
#define TWILL_SPIN_ALONE  500u
#define TWILL_SPIN_SHARED 2u

/* How long something has been waited for: lib/exec/wait.c. */
struct twill_waiting {
    uint64_t started, checked_at, next_check, next_liveness, next_report, sleep_ns;
    uint32_t yields, polls;
    uint32_t suspect; /* found dead once; UINT32_MAX: nobody */
};

struct twill_comm {
    _Atomic uint32_t live; /* TWILL_LIVE, TWILL_TORN, or it has ended: lib/api/handle.h */
    bool broken;
    bool traced;                /* each call is told: TWILL_LOG=debug */
    _Atomic(const char *) held; /* the public call that a thread is in, or NULL: lib/exec/claim.c */
    struct twill_error error;
    struct twill_error refused; /* of a second thread; written under the context's lock */
    bool owns_context;          /* by twill_init() */
    bool logged_substitute;     /* that TWILL_ALGORITHM was not followed */
    _Atomic unsigned pending;   /* requests under way that others may advance; changed while held */
    struct twill_context *context;
    const struct twill_world *world; /* the context's, or own */
    struct twill_world own;
    uint32_t *job;         /* [size] rank of the job of each rank */
    struct twill_oob *oob; /* among its ranks, for set-up; the context's, or its own */
    const char *making;    /* the call that makes another one out of this, or NULL */
    uint32_t rank;
    uint32_t number; /* the same on its ranks, and of no other communicator of any of them */
    uint32_t local, local_size;
    struct twill_node *node;
    struct twill_transport *transport[TWILL_TRANSPORTS_MOST];
    unsigned transports;
    uint8_t *route;                /* [size] index into transport, for each peer */
    uint8_t *connected;            /* [size] */
    const struct twill_plan *last; /* of the last call, and what it was for */
    struct twill_select_request last_key;
    struct twill_plan *plans;
    struct twill_chooser *chooser;
    struct twill_slot slot[TWILL_WINDOW];
    struct twill_request *queue, *queue_tail; /* collectives under way, in order of start */
    struct twill_request *filling;            /* the first whose slices have not all begun */
    struct twill_request *points;             /* point-to-point requests under way */
    struct twill_request *spare;              /* requests to be used again */
    struct twill_request_slab *slab;          /* where they come from */
    unsigned unused;                          /* requests in the first slab, not used yet */
    const struct twill_transfer *setting_up;  /* [2] of lib/comm/comm_bootstrap.c, or NULL */
    struct twill_run *exchanging;             /* a prepared call whose votes are awaited */
    unsigned talking;                         /* requests under way that may have messages */
    struct twill_request blocking, blocking_point;
    struct twill_waiting standing; /* of tests that found nothing */
    uint64_t stands_since;  /* the wait to come began there, unless it has moved; 0: it is new */
    uint64_t moved_at;      /* last moved along by a wait on another communicator */
    uint64_t stood_since;   /* the last wait ended at its deadline, and began to stand there */
    uint64_t ended_at_vain; /* the last call that had ended when the context's `vain` was noted;
                               under its lock. UINT64_MAX: it was made after that */
    struct twill_call_group *group; /* lib/api/group.c */
    uint64_t failed_call;           /* the call of before that has failed, or 0: the present one */
    struct twill_call call; /* the first that is not complete, or the last one: what others hear */
    uint64_t sequence;      /* its number */
    uint64_t started;       /* calls begun */
    uint64_t chain_hash;    /* what they come to: for the next one's signature */
    uint64_t epoch;         /* instances begun */
    uint64_t arrived;       /* all ranks of the node have begun this one and those before it */
    uint32_t differs;       /* rank whose message was of another call */
    struct twill_mailbox {  /* what others said, put here by whoever heard it; under the lock */
        bool failed;
        struct twill_notice failure;
        unsigned reports; /* so far; the last ones are kept */
        struct twill_notice report[TWILL_MAILBOX_REPORTS];
    } mailbox;
    bool notified;              /* news has a failure */
    struct twill_notice notice; /* the first failure another rank told of */
    struct twill_wait_report {
        uint64_t in;                       /* our call in which we heard it */
        uint32_t rank;                     /* whom it waits for */
    } * reported;                          /* [size] from ranks of other nodes */
    struct twill_heap_view *view;          /* [local_size] of the peers' heaps */
    struct twill_single_copy *single_copy; /* what is not in their heaps; NULL: cannot be reached */
    size_t segment, segment_net, stream;
    uint64_t timeout_ns;
    uint32_t spin;      /* polls before a wait gives its core away */
    uint32_t contended; /* rests since others took the core for long; 0: they do not */
    bool learns;        /* how many those should be: lib/exec/wait.c */
    uint64_t yield_alone, yield_lost; /* ticks that giving it away takes if nobody else wants it,
                                         and if it is lost to who does not wait; 0: not known yet */
    int threads;
    bool reproducible;
    twill_counters counters;
    uint64_t ticks, ticks_at_start, ns_at_start;
    char rail_line[224]; /* of twill_comm_rail() */
};

static inline struct twill_transport *twill_comm_link(const struct twill_comm *comm, uint32_t peer)
{
    return comm->transport[comm->route[peer]];
}

/* Make a communicator of the ranks of `boot`. parent NULL: all ranks, over the context's boot. Else
 * they are ranks[] of parent, and boot is the new one's own from here on, also upon a failure.
 * `what` must be the same on all ranks. */
twill_status twill_comm_open(struct twill_comm **made, struct twill_context *context,
                             const struct twill_comm *parent, struct twill_oob *oob,
                             const uint32_t *ranks, uint64_t what, struct twill_error *error);
/* Make the link to a peer ready, if it is not. */
twill_status twill_comm_connect(struct twill_comm *comm, uint32_t peer);

/* The end of twill_comm_open(), when nobody uses it any more. */
void twill_comm_close(struct twill_comm *comm);

/* lib/exec/claim.c. A public call begins on a handle: TWILL_ERR_ARGUMENT if that is NULL, the
 * communicator has ended, or another thread is in a call on it. Else its end is to be told. A
 * request that has not ended shows that its communicator has not, either: claim_live(). */
twill_status twill_comm_acquire_slow(struct twill_comm *comm, const char *call);
static inline twill_status twill_comm_acquire_live(struct twill_comm *comm, const char *call)
{
    const char *expected = NULL;
    if (TWILL_LIKELY(atomic_compare_exchange_strong_explicit(
            &comm->held, &expected, call, memory_order_acquire, memory_order_relaxed)))
        return TWILL_OK;
    return twill_comm_acquire_slow(comm, call);
}
static inline twill_status twill_comm_acquire(struct twill_comm *comm, const char *call)
{
    if (TWILL_LIKELY(comm != NULL &&
                     atomic_load_explicit(&comm->live, memory_order_relaxed) == TWILL_LIVE))
        return twill_comm_acquire_live(comm, call);
    return twill_comm_acquire_slow(comm, call);
}
static inline void twill_comm_release(struct twill_comm *comm)
{
    atomic_store_explicit(&comm->held, NULL, memory_order_release);
}
/* The same for a call that ends the communicator and returns nothing: false, with a warning, if it
 * may not. */
bool twill_comm_acquire_last(struct twill_comm *comm, const char *call);
/* The error if a second thread has come while this one is in a call. */
twill_status twill_comm_torn(struct twill_comm *comm);
static inline bool twill_comm_is_live(const struct twill_comm *comm)
{
    uint32_t live = comm != NULL ? atomic_load_explicit(&comm->live, memory_order_acquire) : 0;
    return live == TWILL_LIVE || live == TWILL_TORN;
}

/* The end of what starts a call: count its time. Starting a small one takes less than looking at
 * the clock twice, and is left out. */
#define TWILL_COUNTED_BYTES 4096u
static inline void twill_request_count_start(const struct twill_request *request)
{
    const struct twill_side *side = request->run.side;
    if (TWILL_UNLIKELY(side[TWILL_SRC].bytes + side[TWILL_DST].bytes >= TWILL_COUNTED_BYTES))
        request->comm->ticks += twill_ticks() - request->ticks;
}

/* May a call begin? TWILL_ERR_BROKEN, TWILL_ERR_FORKED; the error of an earlier one is forgotten.
 */
twill_status twill_comm_usable_again(struct twill_comm *comm);
static inline twill_status twill_comm_usable(struct twill_comm *comm)
{
    if (TWILL_LIKELY(!comm->broken && comm->error.status == TWILL_OK &&
                     !twill_context_is_forked(comm->context)))
        return TWILL_OK;
    return twill_comm_usable_again(comm);
}

void twill_comm_note_rails(struct twill_comm *comm);
void twill_comm_count(const struct twill_comm *comm, twill_counters *counters);
double twill_comm_seconds(const struct twill_comm *comm, uint64_t ticks);
/* Have at least so many bytes of the library's memory; what was in them is lost. */
twill_status twill_comm_grow(struct twill_comm *comm, unsigned char **memory, size_t *held,
                             size_t bytes);

/* lib/exec/wait.c: one loop for every wait: moves everything of the communicator along until done()
 * says so, or with the error that ended it. */
twill_status twill_comm_wait(struct twill_comm *comm, bool (*done)(const void *of), const void *of);
/* The communicator ends. Where one of its ranks has just been waited for in vain, and has not come
 * to anything since, all that ends in a row shares that deadline: the wait for the others to end
 * it, too, is short. */
void twill_comm_hasten(struct twill_comm *comm);
/* Who has come since was late, and is waited for as long as anybody. */
void twill_context_forget_vain(struct twill_context *context);
/* Move things along once, for who looks in again and again; the error has broken the communicator.
 */
twill_status twill_comm_progress(struct twill_comm *comm);

/* lib/exec/request_queue.c: have all ranks of the node begun this instance? */
bool twill_comm_poll_arrivals(struct twill_comm *comm, uint64_t epoch);
static inline bool twill_comm_has_arrived(struct twill_comm *comm, uint64_t epoch)
{
    return TWILL_LIKELY(comm->arrived >= epoch) || twill_comm_poll_arrivals(comm, epoch);
}

/* Instead of a collective, in what ranks say of their call: communicators are made of this one. */
#define TWILL_CALL_MAKES ((enum twill_collective)TWILL_COLLECTIVE_COUNT)

/* lib/health/failure.c: break the communicator with comm->error's message, or with another rank's
 * where that is the cause, and tell everyone. Returns the status it has failed with. */
twill_status twill_comm_fail(struct twill_comm *comm, twill_status status);
/* TWILL_FAIL with "rank R: call #N (...): " in front. */
twill_status twill_comm_error(struct twill_comm *comm, twill_status status, const char *file,
                              int line, const char *format, ...) TWILL_PRINTF(5, 6);
#define TWILL_COMM_FAIL(comm, status, ...)                                                         \
    twill_comm_error((comm), (status), __FILE__, __LINE__, __VA_ARGS__)
/* The same for what is refused before it is a call that ranks count: "rank R: twill_X: " in front.
 */
twill_status twill_comm_refuse(struct twill_comm *comm, twill_status status, const char *file,
                               int line, const char *format, ...) TWILL_PRINTF(5, 6);
#define TWILL_COMM_REFUSE(comm, status, ...)                                                       \
    twill_comm_refuse((comm), (status), __FILE__, __LINE__, __VA_ARGS__)
/* See twill_rank_text(). */
const char *twill_comm_rank_text(const struct twill_comm *comm, uint32_t rank,
                                 char text[TWILL_RANK_TEXT]);
#define TWILL_COMM_RANK_NAME(comm, rank)                                                           \
    twill_comm_rank_text((comm), (rank), (char[TWILL_RANK_TEXT]){0})
/* Describe the call a rank of this node is in. */
void twill_comm_describe_peer(const struct twill_comm *comm, uint32_t peer, char *text,
                              size_t bytes);
/* Has a peer on this node entered the same call with other arguments? Then the error. */
twill_status twill_comm_check_peer(struct twill_comm *comm, uint32_t peer);
/* Has it in a call before ours? Then the error. */
twill_status twill_comm_check_past(struct twill_comm *comm, uint32_t peer);
/* The error when a rank is in the same call as we with other arguments. */
twill_status twill_comm_compare(struct twill_comm *comm, uint32_t peer,
                                const struct twill_call *theirs, uint64_t sequence);
/* A consistent copy of what a rank of this node says of its call; false: it has none, or is just
 * changing it. */
bool twill_comm_read_call(const struct twill_comm *comm, uint32_t peer, struct twill_call *call,
                          uint64_t *sequence, uint64_t *entered);

/* lib/health/notification.c: what other ranks say. Has one failed, or told that it is in the same
 * call with other arguments? Then the error. Failures in later calls than ours do not count, unless
 * `any`. */
twill_status twill_comm_poll_failures(struct twill_comm *comm, bool any);
/* Tell ranks of other nodes that this one waits for them, in which call, and for whom in the end.
 */
void twill_comm_report(struct twill_comm *comm, const uint32_t *ranks, unsigned n);
/* Tell all of its ranks of a failure; takes at most patience_ns. */
void twill_comm_notify(struct twill_comm *comm, const struct twill_notice *notice,
                       uint64_t patience_ns);
/* Has a rank's process ended, or closed its part? false while in doubt. */
bool twill_comm_is_dead(struct twill_comm *comm, uint32_t peer);
/* What has become of a rank that is dead: that it has ended, or that its host does not answer. */
#define TWILL_DEATH_TEXT 160
const char *twill_comm_death_text(struct twill_comm *comm, uint32_t peer,
                                  char text[TWILL_DEATH_TEXT]);
/* The rank that everybody waits for, when this one waits for `peer`: one that has not come. */
uint32_t twill_comm_missing(const struct twill_comm *comm, uint32_t peer);
/* Collective, type and operation in one word, as ranks compare them. */
static inline uint32_t twill_call_what(const struct twill_call *call)
{
    return (uint32_t)call->collective | (uint32_t)call->vector << 7 | (uint32_t)call->type << 8 |
           (uint32_t)call->op << 16;
}
/* The call that ranks compare, from its parts. */
static inline struct twill_call twill_call_of(uint32_t what, size_t count, uint32_t root)
{
    return (struct twill_call){
        .collective = (enum twill_collective)(what & 0x7f),
        .vector = (what >> 7 & 1) != 0,
        .type = (twill_type)(what >> 8 & 0xff),
        .op = (twill_op)(what >> 16),
        .count = count,
        .root = root,
    };
}
void twill_call_describe(const struct twill_call *call, uint64_t sequence, char *text,
                         size_t bytes);

#endif
