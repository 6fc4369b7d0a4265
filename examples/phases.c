/* SPDX-License-Identifier: Apache-2.0 */
#include "phases.h"

#include <stdio.h>
#include <time.h>

enum { MOST_PHASES = 16 };

double example_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

void example_sleep(size_t ms)
{
    struct timespec time = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

twill_status example_print_phases(twill_comm *comm, const struct example_phase *phases, size_t n)
{
    static const twill_op ops[3] = {TWILL_MIN, TWILL_AVG, TWILL_MAX};
    double seconds[3][MOST_PHASES] = {{0}};
    twill_status status = n <= MOST_PHASES ? TWILL_OK : TWILL_ERR_ARGUMENT;
    for (int i = 0; status == TWILL_OK && i < 3; i++) {
        for (size_t phase = 0; phase < n; phase++)
            seconds[i][phase] = phases[phase].seconds;
        status = twill_allreduce(comm, seconds[i], seconds[i], n, TWILL_F64, ops[i]);
    }
    if (status != TWILL_OK || twill_comm_rank(comm) != 0)
        return status;
    printf("\nphase           min s     mean s      max s   over ranks\n");
    for (size_t phase = 0; phase < n; phase++)
        printf("%-11s %9.4f  %9.4f  %9.4f%s%s\n", phases[phase].name, seconds[0][phase],
               seconds[1][phase], seconds[2][phase], phases[phase].note != NULL ? "   " : "",
               phases[phase].note != NULL ? phases[phase].note : "");
    return TWILL_OK;
}
