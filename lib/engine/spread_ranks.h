/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share cores spread over them evenly: the calling thread is moved to one CPU, those of
 * neighbouring ranks to the same one, and may run where it could before at once.
 *
 * The kernel spreads such ranks, too, but late: a rank that waits gives its core away again and
 * again, so every core looks busy, and busy cores are balanced seldom. Of four ranks on two cores,
 * three stayed on one of them for 3 to 15 calls of 10 ms after something else had run, and the
 * crowded core decides how long a call takes; in small calls they stayed so for seconds. To bind
 * them during calls takes a third longer than that where another program has one of the cores;
 * after a move the kernel can still place them otherwise.
 *
 * A large call moves its thread when it starts. Small ones look every 10 ms while yields show that
 * ranks share the core. Where another program has the other core, ranks crowded on one are quicker
 * (the kernel moves the program away): a yield that takes long after a move puts the next one off.
 */
#ifndef TWILL_SPREAD_RANKS_H
#define TWILL_SPREAD_RANKS_H

#include <stdbool.h>
#include <stdint.h>

struct twill_engine;

/* Those ranks of a communicator that may run on the same CPUs as this one. */
struct twill_cpu_share {
    uint32_t index, ranks; /* this one's number among them, and how many they are */
    uint32_t cpus;         /* fewer than they are; 0: they do not spread */
    /* in ticks: when to look again; how long not to after another job had the core, and its bounds
     */
    uint64_t next, hold, hold_least, hold_most;
    bool moved; /* in a small call, since another job had the core */
};

/* Find the share of a communicator whose ranks are known. */
void twill_spread_prepare(struct twill_engine *engine);
/* Move the calling thread to its CPU, unless it is there, or may run on more or fewer CPUs than the
 * rank when the share was found. Returns whether it was moved. */
bool twill_spread_move(const struct twill_cpu_share *share);

/* --- in small calls, by how long a yield took --- */

/* Set the clock's rate, in ticks a nanosecond. */
void twill_spread_set_clock(struct twill_cpu_share *share, double rate);
/* A rank that waits, too, had the core: move to the own CPU, if the last look was long ago. */
void twill_spread_while_shared(struct twill_cpu_share *share, uint64_t now);
/* Another job had the core: look later, each time twice as late if a move led there. */
void twill_spread_put_off(struct twill_cpu_share *share, uint64_t now);

#endif
