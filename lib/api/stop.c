/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/api/stop.h"
#include "lib/twill_recover.h"

#include <signal.h>
#include <stdatomic.h>

/* The library's only writable variable, as a signal handler gets no argument. It only ever becomes
 * true. */
static atomic_bool wishes;

void twill_stop(void)
{
    atomic_store_explicit(&wishes, true, memory_order_relaxed);
}

bool twill_wishes_to_stop(void)
{
    return atomic_load_explicit(&wishes, memory_order_relaxed);
}

static void note_signal(int number)
{
    (void)number;
    twill_stop();
}

void twill_stop_on_signal(int number)
{
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    (void)sigaction(number, &action, NULL);
}
