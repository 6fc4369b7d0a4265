/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator, with its ranks, the links between them, its queue of calls and its plans. */
#ifndef TWILL_COMM_H
#define TWILL_COMM_H

#include "lib/engine/engine.h"
#include "lib/wait/wait.h"

#include <stdatomic.h>

/* The state of a communicator's waits and deadlines, a member of it. Only its holder uses it. Times
 * are of twill_now(). */
struct twill_comm_waits {
    struct twill_waiting test_wait; /* state of a series of tests that found nothing */
    uint64_t wait_since;            /* start of the next wait's deadline, or 0 for its own start */
    uint64_t moved_at;              /* when a wait on another communicator last advanced this one */
    uint64_t timed_out_since;       /* start of a wait that has timed out, or 0 */
    /* Last call that had ended at health.timed_out, or UINT64_MAX. Under the context's lock. */
    uint64_t ended_at_timeout;
};

/* The thread that is in a call on a communicator, which has this as a member (lib/comm/claim.c).
 * `held` is twill_held_by_progress while a thread advances or breaks the communicator.
 * twill_comm_destroy() waits until `revoking` is 0, at most TWILL_TIMEOUT. */
struct twill_comm_claim {
    _Atomic(const char *) held; /* name of the public call that a thread is in, or NULL */
    struct twill_error refused; /* why the communicator is torn, under the context's lock */
    _Atomic unsigned revoking;  /* number of threads in twill_comm_revoke() */
};

/* Memory of a communicator that exists, in bytes: what it shares with its node, and its own. */
struct twill_comm_bytes {
    uint64_t shared, own;
};

struct twill_call_group;  /* lib/api/group.c */
struct twill_team;        /* lib/api/team.c */
struct twill_comm_health; /* lib/comm/comm_internal.h */

/* Functions of a layer above, called for each communicator of a context. The layer has one constant
 * table, passed as twill_context_source.observer. All four must be set. */
struct twill_comm_observer {
    /* A communicator is about to be made and no other rank has been contacted. */
    twill_status (*opening)(struct twill_context *context, struct twill_error *error);
    /* All its ranks are ready, and calls may be made. */
    void (*opened)(struct twill_comm *comm);
    /* It is broken, with comm->error. Called by the thread that holds it, maybe more than once. */
    void (*broken)(struct twill_comm *comm);
    /* Free what the layer keeps in a communicator that is closed or could not be opened. */
    void (*closed)(struct twill_comm *comm);
};

/* A communicator. Made by twill_comm_open() and freed by twill_comm_close(). Only the thread that
 * holds it uses it, except for the members marked otherwise. */
struct twill_comm {
    union { /* what its calls run on, whose members are also its own */
        struct twill_engine engine;
        struct {
            TWILL_ENGINE_MEMBERS
        };
    };

    _Atomic uint32_t live; /* TWILL_LIVE, IDLE, TORN, BREAKING or GONE, see below */
    _Atomic bool woken;    /* all is open, links.transport[] as well; if not, other threads leave
                              that alone */
    bool parted;           /* this rank has met the others to end it */
    bool broken;
    bool agrees; /* agree on the outcome of each blocking reduction (TWILL_AGREE=every) */
    struct twill_comm_claim claim;
    bool owns_context;          /* made by twill_init() */
    const uint64_t *fork_guard; /* of the context; 0 in a forked child */
    bool makes_alone;           /* communicators made out of this one have their own endpoints */
    uint32_t makes_stripes; /* number of stripes, one of which is the communicator that is made out
                               of this one, or 0 */
    const char *making; /* name of the call that makes a communicator out of this one, or NULL */
    struct twill_call_group *group;  /* group of calls that is open, or NULL */
    struct twill_team *_Atomic team; /* what its team calls need, or NULL before the first one */
    struct twill_world own;          /* what `world` points to, unless that is the context's */

    struct twill_comm_waits waits;
    struct twill_pace pace;           /* how its waits spin, yield and sleep */
    struct twill_comm_health *health; /* failure and recovery */
    bool alone;                       /* it has its own endpoints: twill_comm_dup_alone() */
    struct twill_alone ends;          /* those endpoints, if `alone` */
    struct twill_comm_bytes peak; /* the most memory that was found. Only the holder changes it */
    uint64_t stop;                /* call after which all ranks agreed to stop, or 0 */
    char rail_line[224];          /* text that twill_comm_rail() returns */
};
/* Return the communicator that an engine belongs to, or NULL if `engine` is NULL. */
static inline struct twill_comm *twill_comm_of(const struct twill_engine *engine)
{
    _Static_assert(offsetof(struct twill_comm, engine) == 0, "the engine comes first");
    return (struct twill_comm *)(uintptr_t)engine;
}
struct twill_comm_offer; /* lib/comm/comm_internal.h */
/* Create *made, a communicator of the ranks of `oob`. Collective over them. If `parent` is NULL,
 * these are all ranks of the job and `oob` is the context's. Otherwise they are ranks[] of
 * `parent`, and the communicator takes over `oob`, also on failure. `offers` are those of its
 * ranks by twill_comm_offer(), or NULL to exchange them. `what` is a hash of the ranks. Returns
 * TWILL_OK or the error, TWILL_ERR_MISMATCH if `what` differs between ranks. */
twill_status twill_comm_open(struct twill_comm **made, struct twill_context *context,
                             const struct twill_comm *parent, struct twill_oob *oob,
                             const uint32_t *ranks, const struct twill_comm_offer *offers,
                             uint64_t what, struct twill_error *error);
/* Open what the calls of an idle communicator need, or resume a suspended one. Waits for no rank.
 * The caller holds it. A failure breaks it. */
void twill_comm_wake(struct twill_comm *comm);
/* As twill_comm_wake(), if it is idle, by a thread that does not hold it. Waits for one that does,
 * which wakes it, up to TWILL_TIMEOUT. Does nothing in a forked child. */
void twill_comm_wake_idle(struct twill_comm *comm);
/* Note in the context, for twill-info, which address and which transport would be used if the job
 * had several nodes. Called only in a job on one node. May take long, as it asks libfabric. */
void twill_context_preview(struct twill_context *context);
/* Do what twill_comm_dup() does, but give the new communicator endpoints and completion queues that
 * no other uses, so that another thread can use it independently. Returns the status. */
twill_status twill_comm_dup_alone(twill_comm **made, twill_comm *comm);
/* Do what twill_comm_dup() does for the public call `call`, but make the new communicator for one
 * of `stripes` parts of each message. It has less node memory, its own endpoints if there are
 * several nodes, starts no thread and moves none to another core. Returns the status. */
twill_status twill_comm_dup_stripe(twill_comm **made, twill_comm *comm, uint32_t stripes,
                                   const char *call);

/* --- lib/comm/claim.c --- */
/* States in comm->live. With any other value the communicator has ended. */
#define TWILL_GONE     0u
#define TWILL_LIVE     0x7477696cu
#define TWILL_TORN     0x7477696du
#define TWILL_BREAKING 0x7477696eu
#define TWILL_IDLE     0x7477696fu
/* A communicator is IDLE until its first call on this rank, unless its transports exchange
 * something. It is then LIVE. twill_comm_suspend() makes it IDLE again. How it ends: once
 * comm->broken is set, all later calls are refused. The steps, in the order in which they may come:
 *
 *   revoke   twill_comm_revoke() by any thread, or a second call at the same time, which is
 *            refused. LIVE or IDLE -> TORN, and claim.refused says why. The holder then fails it.
 *   fail     twill_comm_fail() by the holder. It sets `broken`, notifies the other ranks and ends
 *            the requests. If it was torn, TORN -> BREAKING first. The holder is the thread in a
 *            call. If that call is over, the next call or the revoking thread does it.
 *   leave    twill_comm_leave() by the holder. Any other -> GONE as soon as no thread is in
 *            twill_comm_revoke(), then close. Waits for no rank.
 *   destroy  twill_comm_destroy() or twill_finalize(). A barrier of all ranks, unless it is
 *            broken, then leave.
 *   close    twill_comm_close() takes it off its context's list and frees the rest.
 *
 * The changes to TORN and GONE are made under the context's lock. */

/* Knowledge of a failing rank about the cause of its failure. */
enum twill_cause {
    TWILL_CAUSE_ASKED, /* wait for a notice, as another rank's failure may be the cause */
    TWILL_CAUSE_KNOWN, /* comm->error states the cause */
    TWILL_CAUSE_OWN    /* it concerns this rank alone, so do not notify the others */
};
/* lib/comm/failure.c. Break the communicator with `status`, whose message is in comm->error, and
 * fail all its requests. With TWILL_CAUSE_ASKED, which callers use as a rule, first wait a moment
 * for another rank's notice, and fail with the status of that if it comes. Unless `cause` is
 * TWILL_CAUSE_OWN, notify the other ranks. Returns the status it has failed with. With
 * TWILL_CAUSE_ASKED, a communicator of one rank stays usable after TWILL_ERR_ARGUMENT. */
twill_status twill_comm_fail(struct twill_comm *comm, twill_status status, enum twill_cause cause);
/* Hold the communicator for the public function `call`, run `barrier` unless that is NULL or the
 * communicator is broken, and close it. Returns true if it is closed or this is a forked child,
 * which does nothing. Returns false, after a warning in the log, if it has to be kept. */
bool twill_comm_leave_by(struct twill_comm *comm, const char *call,
                         void (*barrier)(struct twill_comm *comm));
/* Free what twill_comm_open() made. No thread may use the communicator any more. */
void twill_comm_close(struct twill_comm *comm);
/* Hold the communicator for `call`, or return why not. twill_comm_acquire() says more. */
twill_status twill_comm_acquire_slow(struct twill_comm *comm, const char *call);
/* Return whether this is a forked child of the process that has made the communicator. */
static inline bool twill_comm_is_forked(const struct twill_comm *comm)
{
    return comm->fork_guard != NULL && *comm->fork_guard == 0;
}
/* Not 0 while the process has one thread. NULL if the C library lacks it (a glibc before 2.32). */
extern const char __libc_single_threaded __attribute__((weak));
/* Set comm->claim.held to `call` if it is NULL. Returns what it was. While the process has one
 * thread this takes no locked instruction, which would cost some 20 cycles. */
static inline const char *twill_comm_claim(struct twill_comm *comm, const char *call)
{
    const char *before = NULL;
    if (&__libc_single_threaded == NULL || !__libc_single_threaded) {
        (void)atomic_compare_exchange_strong_explicit(&comm->claim.held, &before, call,
                                                      memory_order_acquire, memory_order_relaxed);
        return before;
    }
    before = atomic_load_explicit(&comm->claim.held, memory_order_relaxed);
    if (TWILL_LIKELY(before == NULL))
        atomic_store_explicit(&comm->claim.held, call, memory_order_relaxed);
    return before;
}
/* Hold a communicator for the public function `call`, without a check that it is usable. The caller
 * knows that it has not ended, as a request on it is open. Returns TWILL_OK, TWILL_ERR_ARGUMENT if
 * a call is on it already, TWILL_ERR_TIMEOUT, or TWILL_ERR_FORKED in a forked child. */
static inline twill_status twill_comm_acquire_live(struct twill_comm *comm, const char *call)
{
    if (TWILL_LIKELY(!twill_comm_is_forked(comm) && twill_comm_claim(comm, call) == NULL))
        return TWILL_OK;
    return twill_comm_acquire_slow(comm, call);
}
/* Hold the communicator for the public function `call`, until twill_comm_release(), and break it if
 * it is torn. Returns TWILL_OK if it is held, also if it is broken. Returns TWILL_ERR_ARGUMENT if
 * it is NULL or has ended. If another thread is in a call on it, or advances it for TWILL_TIMEOUT,
 * it becomes torn, and TWILL_ERR_ARGUMENT or TWILL_ERR_TIMEOUT is returned. Returns
 * TWILL_ERR_FORKED in a forked child, as a call there would take the parent's messages or wait for
 * its threads. */
static inline twill_status twill_comm_acquire(struct twill_comm *comm, const char *call)
{
    if (TWILL_LIKELY(comm != NULL &&
                     atomic_load_explicit(&comm->live, memory_order_relaxed) == TWILL_LIVE))
        return twill_comm_acquire_live(comm, call);
    return twill_comm_acquire_slow(comm, call);
}
/* Let go of a held communicator, so that other threads may hold it. */
static inline void twill_comm_release(struct twill_comm *comm)
{
    atomic_store_explicit(&comm->claim.held, NULL, memory_order_release);
}
/* comm->claim.held while a thread advances the communicator, or breaks it in a revocation. */
extern const char twill_held_by_progress[];
/* Hold the communicator to advance it, until twill_comm_release(). Returns false, at once, if it is
 * held already. A thread that does not make its calls must then check comm->pending, and release it
 * if that is 0, as nothing is to be advanced. */
static inline bool twill_comm_try_hold(struct twill_comm *comm)
{
    return atomic_load_explicit(&comm->claim.held, memory_order_relaxed) == NULL &&
           twill_comm_claim(comm, twill_held_by_progress) == NULL;
}
/* Hold the communicator for `call`, until twill_comm_release(), and return true. Waits at most
 * TWILL_TIMEOUT for a thread that advances or breaks it. Returns false if another thread is in a
 * call, with that call's name in *inside, or at the deadline, with *inside NULL. */
bool twill_comm_hold(struct twill_comm *comm, const char *call, const char **inside);
/* Count a request in comm->pending, so that other threads may advance it while no call is in the
 * held communicator, and wake or start the progress thread if there is to be one. */
void twill_comm_pend(struct twill_comm *comm);
/* Break the communicator with *cause on all ranks. Any thread may call this, also while another one
 * is in a call on it, which then breaks it soon. Does nothing if it is torn or has ended. */
void twill_comm_tear(struct twill_comm *comm, const struct twill_error *cause);
/* Return whether a revocation or a second call has torn the communicator. Its holder breaks it. */
static inline bool twill_comm_is_torn(const struct twill_comm *comm)
{
    uint32_t live = atomic_load_explicit(&comm->live, memory_order_acquire);
    return live == TWILL_TORN || live == TWILL_BREAKING;
}
/* Return whether a communicator, which may be NULL, has not ended. It may be torn or broken. */
static inline bool twill_comm_is_live(const struct twill_comm *comm)
{
    uint32_t live = comm != NULL ? atomic_load_explicit(&comm->live, memory_order_acquire) : 0;
    return live == TWILL_LIVE || live == TWILL_IDLE || live == TWILL_TORN || live == TWILL_BREAKING;
}
/* Return TWILL_ERR_BROKEN if the communicator is broken. Otherwise clear comm->error, the error of
 * an earlier call, and return TWILL_OK. */
twill_status twill_comm_usable_again(struct twill_comm *comm);
/* Check that a call may begin, and clear the error of an earlier one. Returns TWILL_ERR_BROKEN if
 * the communicator is broken, and TWILL_OK otherwise. */
static inline twill_status twill_comm_usable(struct twill_comm *comm)
{
    if (TWILL_LIKELY(!comm->broken && comm->error.status == TWILL_OK))
        return TWILL_OK;
    return twill_comm_usable_again(comm);
}

/* --- lib/comm/comm_wait.c --- */
/* Advance the communicator, and others of its context if nothing moves, until done(of) returns
 * true. Returns TWILL_OK, or the error that ended the wait, such as a failed rank or
 * TWILL_ERR_TIMEOUT. The caller then breaks the communicator. */
twill_status twill_comm_wait(struct twill_comm *comm, bool (*done)(const void *of), const void *of);
/* After a call that has ended without a wait, do what a wait does besides: advance the other
 * communicators of the context that have requests pending. */
void twill_comm_pass(struct twill_comm *comm);
/* Reduce the timeout of a communicator that is about to be destroyed to at most TWILL_LEAVE_NS, if
 * a wait for one of its ranks has just timed out and that rank has done nothing since. Otherwise
 * several destructions, one after the other, would each wait for the full timeout. */
void twill_comm_shorten_deadline(struct twill_comm *comm);
/* Return the longest time, in ns, until all waiting ranks of a node know that a rank has died. */
uint64_t twill_death_bound_ns(void);
/* Return the longest time, in ns, until all waiting ranks fail if an awaited rank is silent. */
uint64_t twill_silence_bound_ns(const struct twill_comm *comm);
/* Advance the communicator as long as data moves, at most a few times, for callers that test
 * repeatedly. In one of many calls without progress, also check for failures and the timeout.
 * Returns TWILL_OK, or the error with which this has broken the communicator. */
twill_status twill_comm_progress(struct twill_comm *comm);
/* lib/comm/shrink.c. Return the longest time, in ns, for which survivors wait for each other. */
uint64_t twill_rendezvous_bound_ns(const struct twill_comm *comm);
/* lib/comm/agree.c. Return the longest time, in ns, that an agreement takes. */
uint64_t twill_agree_bound_ns(const struct twill_comm *comm);
/* lib/comm/grow.c. Return the longest time, in ns, for which growing ranks wait for each other. */
uint64_t twill_growth_bound_ns(const struct twill_comm *comm);

/* --- lib/comm/failure.c --- */
/* Set comm->error to "rank R: call #N (...): ..." and return the status. The second macro is for
 * calls that are refused before they have a number: "rank R: twill_X: ...". */
#define TWILL_COMM_FAIL(comm, status, ...) TWILL_ENGINE_FAIL(&(comm)->engine, status, __VA_ARGS__)
#define TWILL_COMM_REFUSE(comm, status, ...)                                                       \
    twill_engine_error(&(comm)->engine, status, false, __FILE__, __LINE__, __VA_ARGS__)
/* Return the source of the time limit of waits: "TWILL_TIMEOUT" or "set by the program". */
const char *twill_comm_timeout_name(const struct twill_comm *comm);

/* --- lib/comm/notification.c --- */
/* Receive notices. Returns TWILL_OK, or the error if another rank has failed, or is in a call with
 * this rank's number but other arguments. Failures in later calls count only if `any`. */
twill_status twill_comm_poll_failures(struct twill_comm *comm, bool any);
/* Return whether a rank's process has ended or destroyed its context. Returns false if in doubt. */
bool twill_comm_is_dead(struct twill_comm *comm, uint32_t peer);
#define TWILL_DEATH_TEXT 160
/* Write to text[] how a dead rank is known to be dead, for a message. Returns `text`. */
const char *twill_comm_death_text(struct twill_comm *comm, uint32_t peer,
                                  char text[TWILL_DEATH_TEXT]);

#endif
