/* SPDX-License-Identifier: Apache-2.0 */
/* Hang in the way that the argument names. check_job.sh and check_page.sh run it. After five
 * allreduces rank 1
 *   pauses     while the others begin a sixth
 *   stops      the same, by SIGSTOP
 *   dies       by SIGKILL, and the others pause outside calls
 *   differs    calls reduce while the others call broadcast, none of which waits; all pause
 *   straggles  is 4 s late, then calls on with the others until rank 2 dies by SIGKILL; all pause
 * Each rank writes its PID to standard output first. */
#include <twill.h>

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CALLS 5

static void pause_for_ever(void)
{
    for (;;)
        pause();
}

/* What rank 1 does instead of the sixth call. */
static void leave_others(twill_comm *comm, const char *how, float *x)
{
    if (strcmp(how, "stops") == 0)
        raise(SIGSTOP);
    else if (strcmp(how, "dies") == 0)
        raise(SIGKILL);
    else if (strcmp(how, "differs") == 0)
        (void)twill_reduce(comm, x, x, 2, TWILL_F32, TWILL_SUM, 0);
    pause_for_ever();
}

/* Call for some seconds, with one late rank and then a dead one, and pause. */
static void straggle(twill_comm *comm)
{
    static float large[1 << 18];
    twill_status status = TWILL_OK;
    for (int i = 0; i < 400 && status == TWILL_OK; i++) {
        usleep(15000 + 5000 * (useconds_t)twill_comm_rank(comm));
        if (i == 100 && twill_comm_rank(comm) == 1)
            sleep(4);
        if (i == 300 && twill_comm_rank(comm) == 2)
            raise(SIGKILL);
        status = twill_allreduce(comm, large, large, 1 << 18, TWILL_F32, TWILL_SUM);
    }
    pause_for_ever();
}

int main(int argc, char **argv)
{
    twill_comm *comm;
    static double large[1000];
    float x[2] = {1, 2};
    if (argc != 2 || twill_init(&comm) != TWILL_OK)
        return 1;
    printf("rank %d %d\n", twill_comm_rank(comm), (int)getpid());
    fflush(stdout);
    for (int i = 0; i < CALLS; i++)
        if (twill_allreduce(comm, x, x, 2, TWILL_F32, TWILL_MAX) != TWILL_OK)
            return 1;
    if (strcmp(argv[1], "straggles") == 0)
        straggle(comm);
    if (twill_comm_rank(comm) == 1)
        leave_others(comm, argv[1], x);
    if (strcmp(argv[1], "differs") == 0)
        (void)twill_broadcast(comm, x, x, 2, TWILL_F32, 0);
    if (strcmp(argv[1], "dies") == 0 || strcmp(argv[1], "differs") == 0)
        pause_for_ever();
    (void)twill_allreduce(comm, large, large, 1000, TWILL_F64, TWILL_SUM);
    return 0;
}
