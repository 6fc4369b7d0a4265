/* SPDX-License-Identifier: Apache-2.0 */
/* The one waiter: spin for a bounded time, then yield the core, then sleep. It knows neither
 * communicators nor ranks: what is waited for says how to advance it, when it is done, and, as long
 * as nothing moves, whether it can still come.
 *
 * One waitable is enough. Whoever waits for several things at a time, such as the lanes of a
 * gradient set or the ports of a server, has them advanced by the same advance(). */
#ifndef TWILL_WAIT_H
#define TWILL_WAIT_H

#include "lib/base/base.h"

#include <pthread.h>
#include <stdatomic.h>

struct twill_comm;
struct twill_context;
struct twill_cpu_share;
struct twill_node;

/* Polls before a wait yields its core, which it has alone (some 20 us), or which ranks share. */
#define TWILL_SPIN_ALONE  500u
#define TWILL_SPIN_SHARED 2u
#define TWILL_NEVER       UINT32_MAX /* polls: it never sleeps */

/* The state of a wait, or of tests in a row. Times are of twill_now(). */
struct twill_waiting {
    uint64_t started;     /* without progress since; 0: has made progress. blocked_on() sets it */
    uint64_t quiet_since; /* like `started`, which may carry over the deadline of another wait */
    uint64_t checked_at, next_check, next_liveness, next_report; /* of blocked_on() */
    uint64_t sleep_ns;                                           /* of the next sleep */
    uint32_t yields, polls;
    uint32_t recorded; /* its begin is in the event ring, with this rank; 0: it is not, else + 1 */
    bool polled;       /* what is waited for rings no doorbell: sleep shortly */
    uint64_t idle_since; /* twill_ticks(); 0: has had something to do */
};

/* How long waits spin, yield and sleep, and what they have learnt about that. */
struct twill_pace {
    uint32_t spins;                /* polls before a wait yields its core */
    uint32_t yields;               /* before it sleeps, or TWILL_NEVER */
    uint64_t least_ns;             /* the first sleep; each is twice as long as the one before, */
    uint64_t most_ns;              /* up to the last */
    bool learns;                   /* adapt spins to the time that yields take */
    uint32_t contended;            /* > 0: another job has the core; counts back-offs since */
    uint64_t ns, ticks;            /* twill_now() and twill_ticks() when it began to learn */
    uint64_t alone, lost;          /* bounds of a yield in ticks; 0: not known yet */
    struct twill_cpu_share *share; /* if it learns: of the waiting rank */
};

/* What is waited for. advance() and blocked_on() may be NULL. */
struct twill_waitable {
    /* Advance it, and whatever else it may wait for. Returns how many steps were made, or an error,
     * which ends the wait. */
    int (*advance)(void *of);
    bool (*done)(const void *awaited);
    /* Called every 4096 polls and before each yield or sleep without progress. Returns an error,
     * which ends the wait, if what is waited for cannot come any more. */
    twill_status (*blocked_on)(void *of, struct twill_waiting *state);
    /* What its owner records, or NULL: a poll found nothing; progress was made; it is done, after a
     * poll that has made progress if `moved`. */
    void (*idle)(void *of, struct twill_waiting *state);
    void (*moved)(void *of, struct twill_waiting *state);
    void (*ended)(void *of, struct twill_waiting *state, bool moved);
    void *of;                    /* for all but done() */
    const void *awaited;         /* for done() */
    struct twill_node *doorbell; /* rings when something comes; NULL: it naps instead */
};

/* Wait until it is done. Returns the error that has ended the wait, whose owner explains it, or
 * TWILL_ERR_TIMEOUT at the deadline, a twill_now(), without an explanation. A wait with a deadline
 * of its own in blocked_on() passes UINT64_MAX. */
twill_status twill_await(const struct twill_waitable *waitable, struct twill_pace *pace,
                         uint64_t deadline);
/* Wait for another thread of this process, which waits for no rank: spin, then yield. Returns
 * whether it is done; false: not by the deadline. */
bool twill_wait_for_thread(bool (*done)(const void *awaited), const void *awaited,
                           uint64_t deadline);
/* Progress was made: the wait starts again. */
void twill_waiting_restart(struct twill_waiting *state, const struct twill_pace *pace);

/* --- lib/wait/progress.c: what waits advance besides their own waitable --- */

/* Advance every communicator of the context that has requests pending and is not held, other than
 * `except` (or NULL), through context->comms.advance, and the advancers. Returns how many steps
 * were made, never an error: a failure breaks its communicator only. Cheap when nothing is pending.
 */
int twill_context_advance(struct twill_context *context, const struct twill_comm *except);
/* What waits advance besides communicators, for its owner: a server's cores. `advance` is called by
 * any thread that waits on some communicator, by several at once and from within itself, so it does
 * nothing while another call is in it. It returns whether it has made progress. */
struct twill_advancer {
    bool (*advance)(void *object);
    void *object;
    struct twill_context *context; /* NULL: not added */
    struct twill_advancer *next;
    _Atomic unsigned calls; /* that are in it now */
};

void twill_advancer_add(struct twill_context *context, struct twill_advancer *advancer);
/* Remove it, if it was added, and wait at most TWILL_TIMEOUT of this context until no thread is in
 * it. Returns false if one still is: then all that `advance` uses has to stay, the context among
 * it. It may be called again. */
bool twill_advancer_remove(struct twill_advancer *advancer, const struct twill_context *context);

/* Start a thread of the library: with all signals blocked, as they are for the program's own
 * threads, and bound to a CPU unless core is -1. Returns 0 or an errno. */
int twill_thread_start(pthread_t *thread, const char *name, int core, void *(*run)(void *),
                       void *argument);
/* Return a CPU for helper thread `index` of the `count` that each rank of the job has, as
 * twill_topology_helper() does; -1: none is left, or unknown. */
int twill_thread_choose_cpu(const struct twill_context *context, unsigned count, unsigned index,
                            bool *own);
/* Wake the thread; start it at the first call. */
void twill_progress_wake(struct twill_context *context);

#endif
