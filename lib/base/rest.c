/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/rest.h"
#include "lib/base/base.h"
#include "lib/base/times.h"

#include <sched.h>
#include <sys/resource.h>
#include <time.h>

void twill_yield(void)
{
    (void)sched_yield();
}

uint64_t twill_switches(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_THREAD, &usage) == 0 ? (uint64_t)usage.ru_nivcsw : 0;
}

void twill_nap(uint64_t ns)
{
    const struct timespec time = {.tv_sec = (time_t)(ns / TWILL_SECONDS_NS),
                                  .tv_nsec = (long)(ns % TWILL_SECONDS_NS)};
    (void)nanosleep(&time, NULL);
}

void twill_rest(struct twill_rest *rest)
{
    unsigned poll = rest->polls;
    rest->polls += poll < UINT32_MAX;
    if (poll < rest->spins)
        twill_pause();
    else if (rest->yields == UINT32_MAX || poll - rest->spins < rest->yields)
        twill_yield();
    else
        twill_nap(rest->nap_ns);
}
