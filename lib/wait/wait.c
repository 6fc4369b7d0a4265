/* SPDX-License-Identifier: Apache-2.0 */
/* The loop of every wait, see wait.h.
 *
 * How long to spin is learnt from how long a yield of the core takes, unless TWILL_TUNE=spin sets
 * it.
 * - If no other thread ran meanwhile, no other thread wants the core. Then spin.
 * - If it takes a few context switches, another waiting rank shares the core. It may be the awaited
 *   rank, which every poll delays. Then spin less.
 * - If it takes much longer, another job has the core. Then spin again, and sleep instead of
 * yielding. The kernel soon runs a thread that is woken, but one that yields waits until all others
 * have had their turn. That costs milliseconds a message between ranks that are bound. Ranks that
 * share cores sleep only if that is frequent, as it also ends each share of their session's time,
 * and yield again soon, as a rank that is woken interrupts another one that works. Each of their
 * waits has fewer yields. Once these are in vain, it is a rank on another core that they wait for,
 * and more yields would use up that share before it comes.
 *
 * Linux passes a yield only to threads of the same control group or session (autogroups), and some
 * launchers give each rank one. If such ranks share cores and yields are in vain, wait by sleeping.
 */
#include "lib/wait/wait.h"

#include "fabric/shm/node_memory.h"
#include "lib/base/rest.h"
#include "lib/base/times.h"
#include "lib/engine/spread_ranks.h"

#define POLLS_PER_CHECK  4096u /* polls between checks, even if TWILL_TUNE=spin is higher */
#define IDLE_POLLS       32u   /* vain polls before their time is counted as idle */
#define SLEEPS_PER_YIELD 32u   /* sleeps before another yield, if yields are in vain or too long */
#define SLEEPS_SHARED    4u    /* the same if they are too long and ranks share cores */
#define VAIN_YIELDS      64u  /* yields in a row that no other thread used, to find that none can */
#define LATE_YIELD       8u   /* what a yield counts in which another job ran, and others -1 */
#define LATE_OFTEN       24u  /* if they count more, it has the core between most of the yields */
#define THREAD_SPINS     200u /* polls for another thread, which by then may have lost its core */

/* Set the bounds of a yield in ticks, pace->alone, passed and lost, and pass the clock's rate to
 * pace->share. Returns false while that rate is unknown. */
static bool know_bounds(struct twill_pace *pace)
{
    if (pace->alone != 0)
        return true;
    uint64_t ns = twill_now() - pace->ns, all = twill_ticks() - pace->ticks;
    if (ns < TWILL_TICKS_COUNTED_NS)
        return false;
    double rate = (double)all / (double)ns;
    pace->alone = (uint64_t)(rate * (double)TWILL_YIELD_ALONE_NS) + 1;
    pace->passed = (uint64_t)(rate * (double)TWILL_YIELD_PASSED_NS) + 1;
    pace->lost = (uint64_t)(rate * (double)TWILL_YIELD_LOST_NS) + 1;
    twill_spread_set_clock(pace->share, rate);
    return true;
}

/* Return whether ranks share cores, but yields do not reach them. Where yields can, no rank has
 * wanted the core. */
static bool yields_in_vain(const struct twill_pace *pace)
{
    return pace->apart && pace->vain >= VAIN_YIELDS;
}

/* Yield the core. If `pace` learns and the clock's rate is known, adapt its spins to whether other
 * threads ran and for how long. Also set pace->contended to whether another job has the core. The
 * kernel's count of switches, which costs two system calls, decides where the time does not. */
static void yield_core(struct twill_pace *pace)
{
    bool counts = pace->unsure;
    uint64_t switches = counts ? twill_switches() : 0, before = twill_ticks();
    twill_yield();
    uint64_t ticks = twill_ticks() - before;
    if (!pace->learns || !know_bounds(pace))
        return;
    bool alone =
        ticks <= pace->alone || (counts ? twill_switches() == switches : ticks < pace->passed);
    pace->unsure = alone && ticks > pace->alone;
    bool lost = !alone && ticks >= pace->lost;
    if (lost)
        pace->late = twill_min(pace->late, LATE_OFTEN) + LATE_YIELD;
    else if (pace->late > 0)
        pace->late--;
    pace->contended = lost && (pace->late > LATE_OFTEN || !pace->crowded);
    pace->vain = alone ? pace->vain + 1 : 0;
    if (!alone && !lost) {
        pace->spins = twill_max(pace->spins / 2, TWILL_SPIN_SHARED);
        twill_spread_while_shared(pace->share, before);
        return;
    }
    if (lost)
        twill_spread_put_off(pace->share, before);
    if (yields_in_vain(pace))
        pace->spins = TWILL_SPIN_SHARED;
    else if (pace->spins < TWILL_SPIN_ALONE)
        pace->spins += pace->spins / 4 + 1;
}

/* Call the waitable's advance(), if it has one. Returns the steps made, or a negative status. */
static int advance(const struct twill_waitable *waitable)
{
    return waitable->advance != NULL ? waitable->advance(waitable->of) : 0;
}

/* Sleep for `ns`, or until the doorbell rings. It is armed before a last poll, so that no ring is
 * missed, and there is no sleep if that poll moves anything or ends the wait. Returns the steps
 * that the poll made, or a negative status. Without a doorbell it only sleeps, and returns 0. */
static int sleep_for(const struct twill_waitable *waitable, uint64_t ns)
{
    if (waitable->doorbell == NULL) {
        twill_nap(ns);
        return 0;
    }
    uint32_t word = twill_node_sleep_begin(waitable->doorbell);
    int moved = advance(waitable);
    if (moved == 0 && !waitable->done(waitable->awaited))
        twill_node_sleep(waitable->doorbell, word, ns);
    twill_node_sleep_end(waitable->doorbell);
    return moved;
}

/* Yield the core, or sleep once the yields are used up. Before a sleep with a doorbell the waitable
 * is advanced once more. Returns the number of steps that it made then, else 0, or a negative
 * status. */
static int back_off(const struct twill_waitable *waitable, struct twill_pace *pace,
                    struct twill_waiting *state)
{
    uint32_t most = pace->crowded ? SLEEPS_SHARED : SLEEPS_PER_YIELD;
    bool sleeps = (pace->contended > 0 && pace->contended++ % most != 0) ||
                  (yields_in_vain(pace) && ++pace->vain % SLEEPS_PER_YIELD != 0);
    if (pace->yields == TWILL_NEVER || (state->yields < pace->yields && !sleeps)) {
        state->yields++;
        yield_core(pace);
        return 0;
    }
    int moved = sleep_for(waitable, state->polled ? TWILL_SLEEP_POLLED_NS : state->sleep_ns);
    if (state->sleep_ns < pace->most_ns)
        state->sleep_ns *= 2;
    return moved;
}

void twill_waiting_restart(struct twill_waiting *state, const struct twill_pace *pace)
{
    *state = (struct twill_waiting){.sleep_ns = pace->least_ns};
}

/* Report to the waitable that a poll made progress, and reset the state of the wait. */
static void note_moved(const struct twill_waitable *waitable, const struct twill_pace *pace,
                       struct twill_waiting *state)
{
    if (waitable->moved != NULL)
        waitable->moved(waitable->of, state);
    twill_waiting_restart(state, pace);
}

/* After a poll without progress, check failures and the deadline. If all is well and `backs_off`,
 * yield or sleep. Returns the steps made meanwhile, or a negative status that ends the wait. */
static int check_and_rest(const struct twill_waitable *waitable, struct twill_pace *pace,
                          struct twill_waiting *state, bool backs_off, uint64_t deadline)
{
    int moved = waitable->blocked_on != NULL ? waitable->blocked_on(waitable->of, state) : 0;
    if (moved == TWILL_OK && deadline != UINT64_MAX && twill_now() > deadline)
        moved = TWILL_ERR_TIMEOUT;
    return moved == TWILL_OK && backs_off ? back_off(waitable, pace, state) : moved;
}

twill_status twill_await(const struct twill_waitable *waitable, struct twill_pace *pace,
                         uint64_t deadline)
{
    struct twill_waiting state;
    uint32_t idle = 0;
    twill_waiting_restart(&state, pace);
    for (;;) {
        int moved = advance(waitable);
        if (TWILL_UNLIKELY(moved < 0))
            return (twill_status)moved;
        if (waitable->done(waitable->awaited)) {
            if (waitable->ended != NULL)
                waitable->ended(waitable->of, &state, moved > 0);
            return TWILL_OK;
        }
        if (moved > 0) {
            idle = 0;
            note_moved(waitable, pace, &state);
            continue;
        }
        if (waitable->idle != NULL)
            waitable->idle(waitable->of, &state);
        bool backs_off = idle >= pace->spins;
        twill_pause();
        if (!backs_off && ++idle % POLLS_PER_CHECK != 0) {
            if (idle == IDLE_POLLS)
                state.idle_since = twill_ticks();
            continue;
        }
        if (state.idle_since == 0)
            state.idle_since = twill_ticks();
        moved = check_and_rest(waitable, pace, &state, backs_off, deadline);
        if (TWILL_UNLIKELY(moved < 0))
            return (twill_status)moved;
        if (moved > 0)
            note_moved(waitable, pace, &state);
    }
}

bool twill_wait_for_thread(bool (*done)(const void *awaited), const void *awaited,
                           uint64_t deadline)
{
    const struct twill_waitable waitable = {.done = done, .awaited = awaited};
    struct twill_pace pace = {.spins = THREAD_SPINS, .yields = TWILL_NEVER};
    return twill_await(&waitable, &pace, deadline) == TWILL_OK;
}
