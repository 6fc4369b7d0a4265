/* SPDX-License-Identifier: Apache-2.0 */
/* replaced DEATHS HOW: a job that counts steps while ranks die and are replaced. In epoch e, below
 * DEATHS, rank e modulo the number of ranks dies at its 20th step there: killed, or by exit
 * status 3; or by that and without taking anyone in (alone). Or the rank after it exits before its
 * first step (early).
 * Ends 20 steps after the last replacement, and prints how far each rank has come. */
#include "lib/twill_recover.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 20, PATIENCE = 20000 };

/* What a new process must be given. */
struct progress {
    int64_t steps, full; /* in all; ranks of the job at its start */
};

/* Print the time of an event, all processes in one file. */
static void note(const char *event)
{
    struct timespec now;
    if (getenv("TEST_TIMES") == NULL)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    fprintf(stderr, "time: %.6f %s\n", (double)now.tv_sec + 1e-9 * (double)now.tv_nsec, event);
}

static _Noreturn void give_up(const char *call, const char *why)
{
    fprintf(stderr, "replaced: %s: %s\n", call, why);
    exit(1);
}

/* Give the new processes, if there are any, rank 0's progress. */
static twill_comm *admit(twill_comm *comm, struct progress *progress, int *here)
{
    twill_comm *larger = NULL;
    twill_status status = twill_comm_admit(&larger, comm);
    if (status != TWILL_OK)
        fprintf(stderr, "replaced: goes on without: %s\n", twill_comm_message(comm));
    if (larger == NULL)
        return comm;
    twill_comm_leave(comm);
    *here = 0;
    if (twill_broadcast(larger, progress, progress, 2, TWILL_I64, 0) != TWILL_OK)
        give_up("broadcast", twill_comm_message(larger));
    note("grown");
    return larger;
}

static twill_comm *shrink(twill_comm *comm)
{
    twill_comm *smaller = NULL;
    if (twill_comm_shrink(&smaller, comm) != TWILL_OK)
        give_up("twill_comm_shrink", twill_comm_message(comm));
    twill_comm_leave(comm);
    note("shrunk");
    return smaller;
}

static void die(const char *how)
{
    note("death");
    if (strcmp(how, "kill") != 0)
        _exit(3);
    (void)raise(SIGKILL);
}

int main(int argc, char **argv)
{
    twill_comm *comm;
    int deaths = argc > 1 ? atoi(argv[1]) : 0, here = 0; /* steps in this epoch */
    int alone = 0;                                       /* no step is done since the last death */
    const char *how = argc > 2 ? argv[2] : "kill";
    int early = strcmp(how, "early") == 0;
    if (twill_init(&comm) != TWILL_OK)
        return 1;
    struct progress progress = {.full = twill_comm_size(comm)};
    if (twill_comm_epoch(comm) > 0 &&
        twill_broadcast(comm, &progress, &progress, 2, TWILL_I64, 0) != TWILL_OK)
        give_up("broadcast", twill_comm_message(comm));
    while (twill_comm_epoch(comm) < deaths || twill_comm_size(comm) < progress.full ||
           here < STEPS) {
        int32_t ranks = 1;
        int epoch = twill_comm_epoch(comm), rank = twill_comm_rank(comm);
        if (epoch < deaths && (early || here >= STEPS) && rank == (epoch + early) % progress.full &&
            twill_comm_size(comm) == progress.full)
            die(how);
        if (twill_allreduce(comm, &ranks, &ranks, 1, TWILL_I32, TWILL_SUM) != TWILL_OK) {
            note("error");
            comm = shrink(comm);
            alone = 1;
            continue;
        }
        if (alone)
            note("sum");
        alone = 0;
        if (ranks != twill_comm_size(comm) || progress.steps > PATIENCE)
            give_up("sum", "wrong, or too many steps");
        progress.steps++;
        here++;
        (void)usleep(1000);
        if (strcmp(how, "alone") != 0)
            comm = admit(comm, &progress, &here);
    }
    printf("rank %d of %d, epoch %d, step %lld\n", twill_comm_rank(comm), twill_comm_size(comm),
           twill_comm_epoch(comm), (long long)progress.steps);
    twill_finalize(comm);
    return 0;
}
