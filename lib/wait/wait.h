/* SPDX-License-Identifier: Apache-2.0 */
/* The one waiter, which spins for a bounded time, then yields the core, then sleeps. It knows
 * neither communicators nor ranks. The waitable has functions that advance it, report whether it is
 * done, and check, while nothing moves, whether it can still become done. A caller that waits for
 * several things at a time, such as the lanes of a gradient set or the ports of a server, makes one
 * waitable whose advance() advances them all. */
#ifndef TWILL_WAIT_H
#define TWILL_WAIT_H

#include "lib/base/base.h"

#include <stdatomic.h>

struct twill_comm;
struct twill_context;
struct twill_cpu_share;
struct twill_node;

/* Polls before a wait yields its core, if it has the core alone (some 20 us) or ranks share it. */
#define TWILL_SPIN_ALONE  500u
#define TWILL_SPIN_SHARED 2u
#define TWILL_NEVER       UINT32_MAX /* number of yields of a wait that never sleeps */

/* The state of a wait, or of tests in a row. Times are of twill_now(). */
struct twill_waiting {
    uint64_t started;     /* when progress stopped, or 0 after progress; set by blocked_on(). It may
                             be earlier, to carry over the deadline of another wait */
    uint64_t quiet_since; /* when progress stopped in this wait */
    uint64_t checked_at, next_check, next_liveness, next_report; /* used by blocked_on() */
    uint64_t sleep_ns;                                           /* length of the next sleep */
    uint32_t yields, polls; /* yields in this wait, and a count for blocked_on() */
    uint32_t recorded;      /* 1 + the awaited rank if the begin is in the event ring, else 0 */
    bool polled;            /* sleep only shortly, as what is awaited rings no doorbell */
    uint64_t idle_since;    /* twill_ticks() since when there was nothing to do, or 0 */
};

/* How long waits spin, yield and sleep, and what they have learnt. It is a member of a
 * communicator, for all its waits, or on the stack of one wait. One wait at a time uses it. */
struct twill_pace {
    uint32_t spins;               /* polls before a wait yields its core */
    uint32_t yields;              /* yields before it sleeps, or TWILL_NEVER */
    uint64_t least_ns;            /* length of the first sleep, doubled for each further one */
    uint64_t most_ns;             /* length of the longest sleep */
    bool learns;                  /* whether spins adapt to the time that yields take */
    bool crowded;                 /* ranks of the job share cores */
    bool apart;                   /* they do, and yields may not reach all of them */
    bool unsure;                  /* the time of the last yield did not tell whether it was vain */
    uint32_t vain;                /* yields since one in which another thread ran */
    uint32_t late;                /* grows with a yield in which another job ran, else shrinks */
    uint32_t contended;           /* yields and sleeps since a yield has shown that another job has
                                     the core, or 0 */
    uint64_t ns, ticks;           /* twill_now() and twill_ticks() when it began to learn */
    uint64_t alone, passed, lost; /* If a yield takes at most `alone` ticks, no other thread ran. If
                                     it takes `passed` or more, one did, and if it takes `lost` or
                                     more, that was another job. All are 0 while unknown */
    struct twill_cpu_share *share; /* the waiting rank's, if it learns */
};

/* Something that a thread waits for, on its stack. The functions may be NULL, except done(). */
struct twill_waitable {
    /* Advance it. Returns the number of steps made, or a negative status, which ends the wait. */
    int (*advance)(void *of);
    bool (*done)(const void *awaited);
    /* Called now and then without progress. Returns TWILL_OK, or an error, which ends the wait. It
     * may set members of the wait's state. */
    twill_status (*blocked_on)(void *of, struct twill_waiting *state);
    /* These keep records. idle() is called after a poll without progress, and moved() after one
     * with it. If done() is then true, only ended() is called, and `moved` says whether the poll
     * has made progress. If the wait ends with an error, ended() is not called. */
    void (*idle)(void *of, struct twill_waiting *state);
    void (*moved)(void *of, struct twill_waiting *state);
    void (*ended)(void *of, struct twill_waiting *state, bool moved);
    void *of;                    /* argument of all functions but done() */
    const void *awaited;         /* argument of done() */
    struct twill_node *doorbell; /* ends sleeps when it rings, or NULL to nap */
};

/* Wait until the waitable is done. Returns TWILL_OK, the error that has ended the wait, or
 * TWILL_ERR_TIMEOUT, without a message, at the deadline (a twill_now(), or UINT64_MAX for none). */
twill_status twill_await(const struct twill_waitable *waitable, struct twill_pace *pace,
                         uint64_t deadline);
/* Wait for another thread of this process, which itself waits for no rank. Spins, then yields.
 * Returns true when done() is true, or false at the deadline. */
bool twill_wait_for_thread(bool (*done)(const void *awaited), const void *awaited,
                           uint64_t deadline);
/* Reset the state of a wait, as after progress. Its next sleep is the shortest that `pace` has. */
void twill_waiting_restart(struct twill_waiting *state, const struct twill_pace *pace);

/* --- lib/wait/progress.c: what waits advance besides their own waitable --- */

/* Advance every communicator of the context that has requests pending and is not held, other than
 * `except` (which may be NULL), and all advancers. Returns how many steps were made. A failure
 * breaks only its communicator and is not returned. Cheap when nothing is pending. */
int twill_context_advance(struct twill_context *context, const struct twill_comm *except);
/* An object that waits advance besides communicators, such as a server's chunks. Its owner makes
 * and frees it. Any thread that waits in the context calls advance(), several at once and also from
 * within itself. So advance() must skip what another call holds, and not wait for it. It returns
 * whether it made progress. */
struct twill_advancer {
    bool (*advance)(void *object);
    void *object;
    struct twill_context *context; /* NULL unless it is added to a context */
    struct twill_advancer *next;
    _Atomic unsigned calls; /* calls now in advance(), which twill_advancer_remove() waits for */
};
/* Add an advancer to a context, and wake the progress thread if there is one. */
void twill_advancer_add(struct twill_context *context, struct twill_advancer *advancer);
/* Remove an advancer, if it was added, and wait until no thread is in it, for at most TWILL_TIMEOUT
 * of this context. Returns false if one still is. Then everything that advance() uses must stay,
 * including the context, and this function may be called again. */
bool twill_advancer_remove(struct twill_advancer *advancer, const struct twill_context *context);

/* Return a CPU for helper thread `index` of the `count` that each rank has, or -1 if there is none.
 * *own becomes true if it is one of the rank's own CPUs (twill_topology_helper()). */
int twill_thread_choose_cpu(const struct twill_context *context, unsigned count, unsigned index,
                            bool *own);
/* Wake the progress thread of TWILL_PROGRESS=thread or late. The first call starts it, or warns if
 * that fails. */
void twill_progress_wake(struct twill_context *context);

#endif
