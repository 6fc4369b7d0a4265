/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of options.threads: one a lane, which starts the lane's reductions, waits for them,
 * and sleeps while no tensor is ready. It takes no signal. And where they run, and what they reach
 * the network by. */
#include "lib/base/times.h"
#include "lib/train/lanes/lanes.h"
#include "lib/wait/wait.h"
#include "numa/topology.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define END_SPINS  200u /* polls before a wait for the thread sleeps */
#define NO_TIMEOUT UINT64_MAX

static void sleep_on(_Atomic uint32_t *word, uint32_t seen)
{
    const struct timespec most = {.tv_nsec = TWILL_LANE_SLEEP_NS};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &most, NULL, 0);
}

static void wake_all(_Atomic uint32_t *word)
{
    atomic_fetch_add(word, 1);
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

void twill_lane_thread_wake(struct twill_lane *lane)
{
    wake_all(&lane->own.kicks);
}

void twill_lane_interrupt(struct twill_lane *lane)
{
    atomic_store(&lane->own.lets_in, true);
    twill_lane_kick(lane);
    twill_lane_lock(lane);
    atomic_store(&lane->own.lets_in, false);
}

void twill_lane_note_end(struct twill_lane *lane)
{
    if (lane->own.running)
        wake_all(&lane->own.ends);
}

void twill_lane_await_end(struct twill_lane *lane, uint32_t seen)
{
    for (unsigned spins = 0; spins < END_SPINS; spins++) {
        if (atomic_load(&lane->own.ends) != seen)
            return;
        twill_pause();
    }
    sleep_on(&lane->own.ends, seen);
}

/* Advance the lane. Returns whether something is under way, which is waited for then. */
static bool work_once(struct twill_lane *lane)
{
    bool busy = false;
    twill_lane_lock(lane);
    if (twill_lane_advance(lane) == TWILL_OK) {
        busy = twill_lane_is_busy(lane) || lane->exchanging || lane->exchange_from_ns != 0;
        if (busy)
            (void)twill_lane_wait(lane, NO_TIMEOUT);
    }
    atomic_store(&lane->locked, false);
    return busy;
}

/* Has the thread that interrupts the lane locked it? */
static bool is_let_in(const void *lane)
{
    return !atomic_load(&((const struct twill_lane *)lane)->own.lets_in);
}

static void *lane_main(void *argument)
{
    struct twill_lane *lane = argument;
    while (!atomic_load(&lane->own.stop)) {
        uint32_t seen = atomic_load(&lane->own.kicks);
        (void)twill_wait_for_thread(is_let_in, lane, UINT64_MAX);
        if (!work_once(lane) && !atomic_load(&lane->wanted))
            sleep_on(&lane->own.kicks, seen);
    }
    return NULL;
}

twill_status twill_lane_thread_start(struct twill_lane *lane)
{
    struct twill_gradients *set = lane->set;
    if (lane->own.running)
        return TWILL_OK;
    atomic_store(&lane->own.stop, false);
    lane->own.running = true; /* before the thread reads it */
    lane->own.core = twill_thread_choose_cpu(set->process.context, set->lanes,
                                             (unsigned)(lane - set->lane), &lane->own.own_core);
    int code = twill_thread_start(&lane->own.thread, "twill-lane", lane->own.core, lane_main, lane);
    if (code == 0)
        return TWILL_OK;
    lane->own.running = false;
    for (uint32_t l = 0; l < set->lanes; l++) /* other lanes' threads write set->error, too */
        twill_lane_thread_stop(&set->lane[l]);
    return TWILL_FAIL(&set->error, TWILL_ERR_SYSTEM, "no thread for lane %td: %s", lane - set->lane,
                      strerror(code));
}

void twill_lane_thread_stop(struct twill_lane *lane)
{
    if (!lane->own.running)
        return;
    atomic_store(&lane->own.stop, true);
    atomic_store(&lane->wanted, true); /* ends its wait */
    twill_lane_thread_wake(lane);
    pthread_join(lane->own.thread, NULL);
    lane->own.running = false;
}

/* --- where it runs --------------------------------------------------------------------------- */

/* Append ", LEVEL N", if there is such. */
static size_t add_level(char *text, size_t bytes, const char *level, int index)
{
    return index < 0 ? 0 : (size_t)snprintf(text, bytes, "%s %d, ", level, index);
}

/* Print where the thread runs. Returns the length. */
static size_t describe_core(const struct twill_lane *lane, char *text, size_t bytes)
{
    struct twill_place place;
    if (lane->own.core < 0)
        return (size_t)snprintf(text, bytes, "not bound, as no PU is left for it");
    twill_topology_place_pu(lane->set->process.topology, (unsigned)lane->own.core, &place);
    size_t used = add_level(text, bytes, "package", place.package);
    used += add_level(text + used, bytes - used, "NUMA node", place.numa);
    used += add_level(text + used, bytes - used, "L3", place.l3);
    used += add_level(text + used, bytes - used, "core", place.core);
    used += (size_t)snprintf(text + used, bytes - used, "PU %d (%s)", lane->own.core,
                             lane->own.own_core ? "one of this rank's"
                                                : "no rank of this host may run there");
    return used;
}

void twill_lane_describe(const struct twill_lane *lane, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "thread %td: ", lane - lane->set->lane);
    used += describe_core(lane, text + used, bytes - used);
    if (used < bytes)
        twill_extend_describe_endpoints(lane->comm, text + used, bytes - used);
}
