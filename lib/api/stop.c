/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/api/stop.h"
#include "lib/twill_recover.h"

#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

/* A writable variable, as a signal handler gets no argument. It says whether twill_stop() was
 * called, and which process has installed the handler. */
static struct {
    atomic_bool set;
    atomic_int owner;
} wishes;

void twill_stop(void)
{
    atomic_store_explicit(&wishes.set, true, memory_order_relaxed);
}

bool twill_wishes_to_stop(void)
{
    return atomic_load_explicit(&wishes.set, memory_order_relaxed);
}

/* The handler. A forked child, which is no rank, does what it would do without a handler. */
static void note_signal(int number)
{
    struct sigaction action = {.sa_handler = SIG_DFL};
    if (atomic_load_explicit(&wishes.owner, memory_order_relaxed) == getpid()) {
        twill_stop();
    } else {
        (void)sigaction(number, &action, NULL);
        (void)raise(number); /* comes when this returns */
    }
}

void twill_stop_on_signal(int number)
{
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART};
    atomic_store_explicit(&wishes.owner, getpid(), memory_order_relaxed);
    (void)sigaction(number, &action, NULL);
}
