/* SPDX-License-Identifier: Apache-2.0 */
/* Spreads ranks that share cores evenly over these cores. The calling thread is moved to one CPU,
 * the same one for neighbouring ranks, and may at once run again wherever it could before.
 *
 * The kernel also spreads such ranks, but late. A waiting rank yields its core again and again, so
 * every core looks busy, and busy cores are rarely balanced. Of four ranks on two cores, three
 * stayed on one for 3 to 15 calls of 10 ms after something else had run, and for seconds in small
 * calls. Binding the ranks for the duration of a call is a third slower when another program runs
 * on one of the cores. After a mere move the kernel can place them anew.
 *
 * A large call moves its thread when it starts. Small calls look every 10 ms while yields show that
 * ranks share the core. If another program has the other core, ranks crowded on one are faster, as
 * the kernel moves that program away. So a yield that takes long after a move delays the next. */
#ifndef TWILL_SPREAD_RANKS_H
#define TWILL_SPREAD_RANKS_H

#include <stdbool.h>
#include <stdint.h>

struct twill_engine;
/* How the ranks of a node that may run on the same CPUs are spread over these. Each gets a CPU by
 * its index, and its thread is moved there now and then. It lies in the communicator, whose holder
 * uses it. twill_spread_prepare() sets it. */
struct twill_cpu_share {
    uint32_t index, ranks; /* this rank's index among these by local rank, and their number */
    uint32_t cpus;         /* number of CPUs, fewer than ranks, or 0 if no thread is moved */
    /* In ticks: the earliest next move in a small call, how long moves stop after another program
     * had the core, and the bounds of that time. */
    uint64_t next, hold, hold_least, hold_most;
    bool moved; /* a small call has moved the thread since another program had the core */
};
/* Set *engine->tuning.share from where the communicator's ranks may run, which must be known. Its
 * `cpus` is 0 if the thread is never to be moved. */
void twill_spread_prepare(struct twill_engine *engine);
/* Move the calling thread to the CPU that `share` gives this rank. Does nothing if the thread is
 * there, or may run on more or fewer CPUs than when the share was found. Returns whether it was
 * moved. */
bool twill_spread_move(const struct twill_cpu_share *share);

/* --- in small calls, by how long a yield took --- */
/* Set the delays between two moves in small calls, for a clock of `rate` ticks per nanosecond. */
void twill_spread_set_clock(struct twill_cpu_share *share, double rate);
/* Call this when another waiting rank had the core until tick `now`. Move the calling thread to the
 * CPU that `share` gives this rank, and set share->moved if it was elsewhere. The thread is not
 * bound there and may at once run on its other CPUs again. Do nothing if the last attempt was less
 * than 10 ms ago, or while twill_spread_put_off() delays that. Move nothing either if share->cpus
 * is 0 or is not the number of CPUs on which the thread may run. */
void twill_spread_while_shared(struct twill_cpu_share *share, uint64_t now);
/* Record that another program had the core at tick `now`, and delay the next move. The delay
 * doubles, from 10 ms up to 10 s, if a small call has moved the thread since the last time. */
void twill_spread_put_off(struct twill_cpu_share *share, uint64_t now);

#endif
