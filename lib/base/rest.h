/* SPDX-License-Identifier: Apache-2.0 */
/* How a loop that polls gives up its core. It spins, then yields, then naps. Meant for code below
 * lib/wait, and for waits for another thread of this process. Other waits use twill_await(). */
#ifndef TWILL_REST_H
#define TWILL_REST_H

#include <stdint.h>

/* The stages of a loop's rests. Initialise it with the first three members. */
struct twill_rest {
    unsigned spins,
        yields;      /* rests that spin, and then rests that yield (UINT32_MAX if it never naps) */
    uint64_t nap_ns; /* length of each nap */
    unsigned polls;  /* rests so far; set it to 0 after progress */
};

/* Spin, yield or nap once, by the stage of `rest`, after a poll that found nothing. */
void twill_rest(struct twill_rest *rest);
/* Yield this thread's core to another thread that is ready to run, if there is one. */
void twill_yield(void);
/* Return how often the kernel has given this thread's core to another thread that did not wait for
 * an event, as in a yield. */
uint64_t twill_switches(void);
void twill_nap(uint64_t ns); /* sleep, or shorter if a signal comes */

#endif
