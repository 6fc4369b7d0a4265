/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of options.threads, one for each reducer. A thread starts the reducer's reductions,
 * waits for them, and sleeps while no tensor is ready. Also describes where threads run. */
#include "lib/base/thread_start.h"
#include "lib/base/times.h"
#include "lib/train/reducers/reducers.h"
#include "lib/wait/wait.h"
#include "numa/topology.h"

#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define END_SPINS  200u /* polls before a wait for the thread sleeps */
#define NO_TIMEOUT UINT64_MAX

/* Sleep while a futex word is `seen`, but at most TWILL_REDUCER_SLEEP_NS. */
static void sleep_on(_Atomic uint32_t *word, uint32_t seen)
{
    const struct timespec most = {.tv_nsec = TWILL_REDUCER_SLEEP_NS};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &most, NULL, 0);
}

/* Change a futex word and wake all threads that sleep on it. */
static void wake_all(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void twill_reducer_thread_wake(struct twill_reducer *reducer)
{
    wake_all(&reducer->own.kicks);
}

void twill_reducer_interrupt(struct twill_reducer *reducer)
{
    atomic_store(&reducer->own.lets_in, true);
    twill_reducer_kick(reducer);
    twill_reducer_lock(reducer);
    atomic_store(&reducer->own.lets_in, false);
}

void twill_reducer_hold(struct twill_reducer *reducer)
{
    if (reducer->own.running)
        twill_reducer_interrupt(reducer);
    else
        twill_reducer_lock(reducer);
}

void twill_reducer_note_end(struct twill_reducer *reducer)
{
    if (reducer->own.running)
        wake_all(&reducer->own.ends);
}

void twill_reducer_await_end(struct twill_reducer *reducer, uint32_t seen)
{
    for (unsigned spins = 0; spins < END_SPINS; spins++) {
        if (atomic_load(&reducer->own.ends) != seen)
            return;
        twill_pause();
    }
    sleep_on(&reducer->own.ends, seen);
}

/* Advance the reducer, and wait if something is under way. Returns whether it was. */
static bool work_once(struct twill_reducer *reducer)
{
    bool busy = false;
    twill_reducer_lock(reducer);
    if (twill_reducer_advance(reducer) == TWILL_OK) {
        busy =
            twill_reducer_is_busy(reducer) || reducer->exchanging || reducer->exchange_from_ns != 0;
        if (busy)
            (void)twill_reducer_wait(reducer, NO_TIMEOUT);
    }
    atomic_store(&reducer->locked, false);
    return busy;
}

/* Return whether all threads that have called twill_reducer_interrupt() have got the lock, so that
 * the reducer's thread may take it again. */
static bool is_let_in(const void *reducer)
{
    return !atomic_load(&((const struct twill_reducer *)reducer)->own.lets_in);
}

/* Work on a reducer until its thread is to stop. Returns NULL. */
static void *reducer_main(void *argument)
{
    struct twill_reducer *reducer = argument;
    while (!atomic_load(&reducer->own.stop)) {
        uint32_t seen = atomic_load(&reducer->own.kicks);
        (void)twill_wait_for_thread(is_let_in, reducer, UINT64_MAX);
        if (!work_once(reducer) && !atomic_load(&reducer->wanted))
            sleep_on(&reducer->own.kicks, seen);
    }
    return NULL;
}

twill_status twill_reducer_thread_start(struct twill_reducer *reducer)
{
    struct twill_gradients *set = reducer->set;
    if (reducer->own.running)
        return TWILL_OK;
    atomic_store(&reducer->own.stop, false);
    reducer->own.running = true; /* before the thread reads it */
    reducer->own.pu =
        twill_thread_choose_cpu(set->process.context, set->reducers,
                                (unsigned)(reducer - set->reducer), &reducer->own.own_pu);
    int code = twill_thread_start(&reducer->own.thread, "twill-reducer", reducer->own.pu,
                                  reducer_main, reducer);
    if (code == 0)
        return TWILL_OK;
    reducer->own.running = false;
    for (uint32_t l = 0; l < set->reducers; l++) /* other reducers' threads also write set->error */
        twill_reducer_thread_stop(&set->reducer[l]);
    return TWILL_FAIL(&set->error, TWILL_ERR_SYSTEM, "no thread for reducer %td: %s",
                      reducer - set->reducer, strerror(code));
}

void twill_reducer_thread_stop(struct twill_reducer *reducer)
{
    if (!reducer->own.running)
        return;
    atomic_store(&reducer->own.stop, true);
    atomic_store(&reducer->wanted, true); /* ends its wait */
    twill_reducer_thread_wake(reducer);
    pthread_join(reducer->own.thread, NULL);
    reducer->own.running = false;
}

/* Write "LEVEL N, " to text[bytes] unless `index` is negative. Returns the length. */
static size_t add_level(char *text, size_t bytes, const char *level, int index)
{
    return index < 0 ? 0 : (size_t)snprintf(text, bytes, "%s %d, ", level, index);
}

/* Write to text[bytes] on which package, NUMA node, L3 cache, core and PU the reducer's thread
 * runs, or that it is not bound. Returns the length. */
static size_t describe_core(const struct twill_reducer *reducer, char *text, size_t bytes)
{
    struct twill_place place;
    if (reducer->own.pu < 0)
        return (size_t)snprintf(text, bytes, "not bound, as no PU is left for it");
    twill_topology_place_pu(reducer->set->process.topology, (unsigned)reducer->own.pu, &place);
    size_t used = add_level(text, bytes, "package", place.package);
    used += add_level(text + used, bytes - used, "NUMA node", place.numa);
    used += add_level(text + used, bytes - used, "L3", place.l3);
    used += add_level(text + used, bytes - used, "core", place.core);
    used += (size_t)snprintf(text + used, bytes - used, "PU %d (%s)", reducer->own.pu,
                             reducer->own.own_pu ? "one of this rank's"
                                                 : "no rank of this host may run there");
    return used;
}

void twill_reducer_describe(const struct twill_reducer *reducer, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "thread %td: ", reducer - reducer->set->reducer);
    used += describe_core(reducer, text + used, bytes - used);
    if (used < bytes)
        (void)twill_extend_describe(reducer->comm, TWILL_EXTEND_ENDPOINTS, 0, text + used,
                                    bytes - used);
}
