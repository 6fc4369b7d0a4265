/* SPDX-License-Identifier: Apache-2.0 */
/* How a loop that polls gives up its core: it spins, then yields, then naps. For what is below
 * lib/wait, or waits for another thread of this process; other waits use twill_await(). */
#ifndef TWILL_REST_H
#define TWILL_REST_H

#include <stdint.h>

/* The stages of a loop's rests. Initialise it with the first three members. */
struct twill_rest {
    unsigned spins,
        yields; /* polls before it yields, and before it naps; yields UINT32_MAX: never */
    uint64_t nap_ns;
    unsigned polls; /* so far, in vain; set it to 0 after progress */
};

/* Rest once, after a poll that found nothing. */
void twill_rest(struct twill_rest *rest);
/* Let another thread have the core, if one wants it. */
void twill_yield(void);
void twill_nap(uint64_t ns);

#endif
