/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator: its ranks, the links between them, its queue of calls and its plans. */
#ifndef TWILL_COMM_H
#define TWILL_COMM_H

#include "lib/engine/engine.h"
#include "lib/wait/wait.h"

#include <stdatomic.h>

/* Waits and their deadlines: lib/comm/comm_wait.c. Times are of twill_now(). */
struct twill_comm_waits {
    struct twill_waiting test_wait; /* of tests in a row that found nothing */
    uint64_t wait_since;            /* the next wait's deadline runs from here; 0: from its start */
    uint64_t moved_at;              /* last advanced by a wait on another communicator */
    uint64_t timed_out_since;       /* start of a wait that has timed out; 0: none has */
    uint64_t ended_at_timeout; /* last call that had ended when context->health.timed_out was set,
                                  under the context's lock; UINT64_MAX: this was made later */
};

/* Which thread is in a call on a communicator: lib/comm/claim.c. */
struct twill_comm_claim {
    _Atomic(const char *) held; /* the public call that a thread is in, or NULL */
    struct twill_error refused; /* why it is torn; under the context's lock */
    _Atomic unsigned revoking;  /* threads in twill_comm_revoke() */
};

struct twill_call_group;  /* lib/api/group.c */
struct twill_comm_health; /* lib/comm/comm_internal.h */

/* What a layer above does for each communicator: see struct twill_context_source. */
struct twill_comm_observer {
    /* One is about to be made: no rank has been asked yet. */
    twill_status (*opening)(struct twill_context *context, struct twill_error *error);
    /* All its ranks are ready: calls may be made. */
    void (*opened)(struct twill_comm *comm);
    /* It closes, or was never opened: free what the layer keeps in it. */
    void (*closed)(struct twill_comm *comm);
};

/* Made by twill_comm_open(), ended by twill_comm_close(). Used by the thread that holds it, but for
 * the members marked otherwise. */
struct twill_comm {
    union { /* what its calls run on: the engine's members are its own */
        struct twill_engine engine;
        struct {
            TWILL_ENGINE_MEMBERS
        };
    };

    /* Life. */
    _Atomic uint32_t live; /* its state: lib/comm/claim.c */
    bool broken;
    bool agrees; /* on the outcome of each blocking reduction: TWILL_AGREE=every */
    struct twill_comm_claim claim;
    bool owns_context;          /* made by twill_init() */
    const uint64_t *fork_guard; /* the context's */
    bool makes_alone;           /* communicators made out of this one have endpoints of their own */
    const char *making;         /* the call that makes a communicator out of this one, or NULL */
    struct twill_call_group *group; /* of calls, or NULL */
    struct twill_world own;         /* world, unless that is the context's */

    struct twill_comm_waits waits;
    struct twill_pace pace;           /* of waits */
    struct twill_comm_health *health; /* its failure and recovery */
    bool alone;                       /* its endpoints are its own: twill_comm_dup_alone() */
    struct twill_alone ends;          /* alone: what it has in place of the context's */
    char rail_line[224];              /* result of twill_comm_rail() */
};

/* Return the communicator of an engine; NULL: none. */
static inline struct twill_comm *twill_comm_of(const struct twill_engine *engine)
{
    _Static_assert(offsetof(struct twill_comm, engine) == 0, "the engine comes first");
    return (struct twill_comm *)(uintptr_t)engine;
}

/* Create a communicator of the ranks of `oob`; collective over them. parent NULL: all ranks of the
 * job, over the context's oob. Else they are ranks[] of parent, and the communicator takes `oob`
 * over, also upon a failure. `what` must be the same on all ranks, else TWILL_ERR_MISMATCH. */
twill_status twill_comm_open(struct twill_comm **made, struct twill_context *context,
                             const struct twill_comm *parent, struct twill_oob *oob,
                             const uint32_t *ranks, uint64_t what, struct twill_error *error);
/* Note the transport that would be used between nodes, when there is one node. */
void twill_context_preview(struct twill_context *context);
/* Like twill_comm_dup(), with network endpoints and completion queues that no other communicator
 * uses, for a thread of its own. */
twill_status twill_comm_dup_alone(twill_comm **made, twill_comm *comm);

/* --- lib/comm/claim.c --- */

/* comm->live. Any other value: the communicator has ended. */
#define TWILL_GONE     0u
#define TWILL_LIVE     0x7477696cu
#define TWILL_TORN     0x7477696du
#define TWILL_BREAKING 0x7477696eu

/* How a communicator ends. comm->live is LIVE, TORN, BREAKING or GONE; comm->broken says that all
 * later calls are refused. Verbs, from the first that may come to the last:
 *
 *   revoke   twill_comm_revoke(), by any thread, or a second call at the same time, which is
 *            refused. LIVE -> TORN; claim.refused says why. Its holder then fails it.
 *   fail     twill_comm_fail(), by its holder: broken, the other ranks are told, its requests end.
 *            TORN -> BREAKING before that, if it was torn. The holder is the thread in a call; if
 *            that call is over, the next one, or the revoking one.
 *   leave    twill_comm_leave(), by its holder: LIVE, BREAKING -> GONE as soon as no thread is in
 *            twill_comm_revoke(); close. Waits for no rank.
 *   destroy  twill_comm_destroy(), twill_finalize(): a barrier of all ranks, unless it is broken;
 *            leave.
 *   close    twill_comm_close(): takes it off its context's list and frees what is left.
 *
 * The changes to TORN and GONE are made under the context's lock. */

/* What a rank that fails knows of the cause. */
enum twill_cause {
    TWILL_CAUSE_ASKED, /* another rank's failure may be it: its notice is waited for */
    TWILL_CAUSE_KNOWN, /* comm->error says it */
    TWILL_CAUSE_OWN    /* it concerns this rank alone, and no other is told */
};

/* lib/comm/failure.c. Break the communicator with comm->error, or with another rank's failure if
 * that is the cause; notify all ranks and fail all requests. Returns the status that it has failed
 * with. The only rank of a communicator whose arguments are bad goes on with it. */
twill_status twill_comm_fail(struct twill_comm *comm, twill_status status, enum twill_cause cause);
/* Leave the communicator for the public function `call`; after a barrier of all ranks, unless that
 * is NULL or the communicator is broken, destroy it. In a forked child nothing is done. Returns
 * false, after a warning, if it has to be kept. */
bool twill_comm_leave_by(struct twill_comm *comm, const char *call,
                         void (*barrier)(struct twill_comm *comm));
/* Free what twill_comm_open() made; no thread may use the communicator any more. */
void twill_comm_close(struct twill_comm *comm);

/* Hold the communicator for a public call. Returns TWILL_ERR_ARGUMENT if it is NULL, has ended, or
 * another thread is in a call on it, TWILL_ERR_TIMEOUT if one advances it for TWILL_TIMEOUT,
 * TWILL_ERR_FORKED in a forked child: a call there would read the parent's messages, and threads of
 * the parent may hold the communicator for ever. Pair with twill_comm_release(). _live: it has not
 * ended, because one of its requests has not. */
twill_status twill_comm_acquire_slow(struct twill_comm *comm, const char *call);
static inline bool twill_comm_is_forked(const struct twill_comm *comm)
{
    return comm->fork_guard != NULL && *comm->fork_guard == 0;
}
static inline twill_status twill_comm_acquire_live(struct twill_comm *comm, const char *call)
{
    const char *expected = NULL;
    if (TWILL_LIKELY(!twill_comm_is_forked(comm) &&
                     atomic_compare_exchange_strong_explicit(&comm->claim.held, &expected, call,
                                                             memory_order_acquire,
                                                             memory_order_relaxed)))
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
    atomic_store_explicit(&comm->claim.held, NULL, memory_order_release);
}
/* comm->claim.held while a thread advances the communicator, or breaks it in twill_comm_revoke(),
 * in place of a call's name. */
extern const char twill_held_by_progress[];

/* Hold the communicator, if it is free, to advance it. Threads other than the owner must then check
 * comm->pending and leave at once if it is 0. Pair with twill_comm_release(). */
static inline bool twill_comm_try_hold(struct twill_comm *comm)
{
    const char *expected = NULL;
    return atomic_load_explicit(&comm->claim.held, memory_order_relaxed) == NULL &&
           atomic_compare_exchange_strong_explicit(&comm->claim.held, &expected,
                                                   twill_held_by_progress, memory_order_acquire,
                                                   memory_order_relaxed);
}

/* Hold the communicator for `call`, unless another thread is in a call on it:
 * wait for one that advances or breaks it, at most TWILL_TIMEOUT. If it returns false, *inside is
 * that call, or NULL at the deadline. Pair with twill_comm_release(). */
bool twill_comm_hold(struct twill_comm *comm, const char *call, const char **inside);

/* comm->pending counts requests under way that other threads may advance. They take a
 * communicator only while that is not 0, and never while a call is in it.
 *
 * Count a request that other threads may advance, and wake or start the progress thread, if there
 * is to be one. The communicator is held. */
void twill_comm_pend(struct twill_comm *comm);

static inline bool twill_comm_is_torn(const struct twill_comm *comm)
{
    uint32_t live = atomic_load_explicit(&comm->live, memory_order_acquire);
    return live == TWILL_TORN || live == TWILL_BREAKING;
}
static inline bool twill_comm_is_live(const struct twill_comm *comm)
{
    uint32_t live = comm != NULL ? atomic_load_explicit(&comm->live, memory_order_acquire) : 0;
    return live == TWILL_LIVE || live == TWILL_TORN || live == TWILL_BREAKING;
}

/* Check that a call may begin, and clear the error of an earlier one. Returns TWILL_ERR_BROKEN if
 * it may not. */
twill_status twill_comm_usable_again(struct twill_comm *comm);
static inline twill_status twill_comm_usable(struct twill_comm *comm)
{
    if (TWILL_LIKELY(!comm->broken && comm->error.status == TWILL_OK))
        return TWILL_OK;
    return twill_comm_usable_again(comm);
}

/* --- lib/comm/comm_wait.c --- */

/* Advance the communicator until done(of). Returns the error that ended the wait; the caller then
 * breaks the communicator. */
twill_status twill_comm_wait(struct twill_comm *comm, bool (*done)(const void *of), const void *of);
/* Shorten the deadline of a communicator that is about to be destroyed, if a wait for one of its
 * ranks has just timed out and that rank has done nothing since: so a row of destructions does not
 * wait for the full timeout each. */
void twill_comm_shorten_deadline(struct twill_comm *comm);
/* Return the time after which all waiting ranks of a node know that another one has died. */
uint64_t twill_death_bound_ns(void);
/* Return the time after which all waiting ranks have failed if one that they wait for lives but
 * does not come. */
uint64_t twill_silence_bound_ns(const struct twill_comm *comm);
/* Advance once, for callers that test repeatedly. An error has broken the communicator. */
twill_status twill_comm_progress(struct twill_comm *comm);

/* lib/comm/shrink.c. Return how long survivors wait for each other to make a communicator. */
uint64_t twill_rendezvous_bound_ns(const struct twill_comm *comm);
/* lib/comm/agree.c. Return the most time that an agreement takes. */
uint64_t twill_agree_bound_ns(const struct twill_comm *comm);
/* lib/comm/grow.c. Return how long ranks wait for new processes, and for each other, to make a
 * larger communicator. */
uint64_t twill_growth_bound_ns(const struct twill_comm *comm);

/* --- lib/comm/failure.c --- */

/* Set comm->error to "rank R: call #N (...): ...", or, for what is refused before it is numbered,
 * to "rank R: twill_X: ...", and return the status. */
#define TWILL_COMM_FAIL(comm, status, ...) TWILL_ENGINE_FAIL(&(comm)->engine, status, __VA_ARGS__)
#define TWILL_COMM_REFUSE(comm, status, ...)                                                       \
    twill_engine_error(&(comm)->engine, status, false, __FILE__, __LINE__, __VA_ARGS__)
/* Return what has set the time limit of waits, for sentences: TWILL_TIMEOUT or the program. */
const char *twill_comm_timeout_name(const struct twill_comm *comm);

/* --- lib/comm/notification.c --- */

/* Receive notices. Returns the error if another rank has failed, or is in a call of this rank's
 * number with other arguments. Failures in later calls than this rank's count only if `any`. */
twill_status twill_comm_poll_failures(struct twill_comm *comm, bool any);
/* Has a rank's process ended, or destroyed its context? Returns false while in doubt. */
bool twill_comm_is_dead(struct twill_comm *comm, uint32_t peer);
/* Describe a rank that is dead: it has ended, or its host does not answer. Returns text. */
#define TWILL_DEATH_TEXT 160
const char *twill_comm_death_text(struct twill_comm *comm, uint32_t peer,
                                  char text[TWILL_DEATH_TEXT]);

#endif
