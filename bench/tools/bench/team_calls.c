/* SPDX-License-Identifier: Apache-2.0 */
/* Times team calls beside the same calls by one thread of each rank, for which all its threads stop
 * (--team). The threads of a rank are started for each size, and bound to CPUs if there are enough.
 *
 * A turn is a number of calls of one kind. In a turn of single calls the threads meet before and
 * after each call, which thread 0 makes, as in a parallel region that has such a call inside. */
#include "bench/tools/bench/bench_run.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#define TEAM_TURNS 10   /* of both kinds, one after the other */
#define TEAM_SPINS 2000 /* polls of a meeting before it yields the core */

/* The threads of a rank during a measurement share this. It is on the stack of thread 0. */
struct bench_team {
    struct twill_bench_run *run;
    const struct twill_bench_subject *subject;
    int threads;
    size_t iterations, cpus,
        first_cpu;                   /* number of this rank's CPUs, and where its threads begin */
    cpu_set_t may;                   /* these CPUs */
    _Atomic unsigned here, meetings; /* threads in the present meeting, and finished meetings */
    _Atomic int status;              /* a twill_status, the first failure */
    int first_turn, end_turn;        /* odd turns are of team calls */
    double seconds[2];               /* of all turns of single calls, and of team calls */
    struct bench_thread {
        struct bench_team *team;
        int number;
        pthread_t id;
    } * thread; /* [threads] */
};

/* Wait until all threads of the rank are here. */
static void meet(struct bench_team *team)
{
    unsigned now = atomic_load(&team->meetings);
    if (atomic_fetch_add(&team->here, 1) + 1 == (unsigned)team->threads) {
        atomic_store(&team->here, 0);
        atomic_store(&team->meetings, now + 1);
        return;
    }
    for (unsigned i = 0; atomic_load_explicit(&team->meetings, memory_order_acquire) == now; i++)
        if (i >= TEAM_SPINS)
            sched_yield();
}

/* Keep the first failure of a thread. */
static void note(struct bench_team *team, twill_status status)
{
    int good = TWILL_OK;
    if (status != TWILL_OK)
        (void)atomic_compare_exchange_strong(&team->status, &good, status);
}

/* Bind this thread to one CPU, if this rank has at least one for each thread. */
static void bind_thread(const struct bench_team *team, int thread)
{
    cpu_set_t one;
    size_t skipped = team->first_cpu + (size_t)thread, cpu = 0;
    if (team->cpus < (size_t)team->threads)
        return;
    while (!CPU_ISSET(cpu, &team->may) || skipped-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
}

/* Make a team call as thread `t`, with the buffers of `iteration`. */
static twill_status team_call(const struct bench_team *team, int t, size_t iteration)
{
    const struct twill_bench_subject *s = team->subject;
    struct twill_bench_pointers at = twill_bench_place(team->run, s, iteration);
    twill_comm *comm = team->run->comm;
    int n = team->threads;
    switch (s->collective) {
    case TWILL_BENCH_ALLREDUCE:
        return twill_allreduce_team(comm, at.src, at.dst, s->count, s->type, s->called, t, n);
    case TWILL_BENCH_BROADCAST:
        return twill_broadcast_team(comm, at.src, at.dst, s->count, s->type, s->root, t, n);
    case TWILL_BENCH_ALLGATHER:
        return twill_allgather_team(comm, at.src, at.dst, s->count, s->type, t, n);
    case TWILL_BENCH_REDUCE_SCATTER:
        return twill_reduce_scatter_team(comm, at.src, at.dst, s->count, s->type, s->called, t, n);
    default:
        return twill_barrier_team(comm, t, n);
    }
}

/* Make the calls of a turn, team calls if `together`. Stops after a failure. */
static void make_calls(struct bench_team *team, int t, bool together)
{
    for (size_t i = 0; i < team->iterations && atomic_load(&team->status) == TWILL_OK; i++) {
        if (together) {
            note(team, team_call(team, t, i));
            continue;
        }
        meet(team);
        if (t == 0)
            note(team, twill_bench_call(team->run, team->subject, i));
        meet(team);
    }
}

/* Run all turns as thread `t`. Thread 0 takes the times. */
static void run_turns(struct bench_team *team, int t)
{
    for (int turn = team->first_turn; turn < team->end_turn; turn++) {
        if (t == 0)
            note(team, twill_barrier(team->run->comm));
        meet(team);
        if (atomic_load(&team->status) != TWILL_OK)
            return;
        double start = twill_bench_now();
        make_calls(team, t, turn % 2 != 0);
        meet(team);
        if (t == 0)
            team->seconds[turn % 2] += twill_bench_now() - start;
    }
}

/* The start of threads 1 and following. */
static void *work(void *of)
{
    struct bench_thread *thread = of;
    bind_thread(thread->team, thread->number);
    run_turns(thread->team, thread->number);
    return NULL;
}

/* Start the other threads, run the turns, and wait for them. */
static twill_status run_threads(struct bench_team *team)
{
    for (int t = 1; t < team->threads; t++) {
        team->thread[t] = (struct bench_thread){.team = team, .number = t};
        if (pthread_create(&team->thread[t].id, NULL, work, &team->thread[t]) != 0) {
            fprintf(stderr, "twill-bench: --team: cannot start thread %d\n", t);
            exit(1); /* the others wait for it */
        }
    }
    bind_thread(team, 0);
    run_turns(team, 0);
    for (int t = 1; t < team->threads; t++)
        pthread_join(team->thread[t].id, NULL);
    (void)sched_setaffinity(0, sizeof(team->may), &team->may);
    return (twill_status)atomic_load(&team->status);
}

/* Make and check single team calls, as often as -c says. */
static twill_status run_checks(struct bench_team *team, struct twill_bench_timing *timing)
{
    struct twill_bench_run *run = team->run;
    team->iterations = 1;
    team->first_turn = 1;
    team->end_turn = 2;
    for (size_t i = 0; i < run->options.repeats.checks && timing->wrong <= 0; i++) {
        timing->wrong = 0;
        twill_bench_prepare(run, team->subject, ++run->round);
        TWILL_BENCH_TRY(run_threads(team));
        TWILL_BENCH_TRY(twill_bench_count(run, team->subject, run->round, timing));
    }
    twill_bench_clear(run, team->subject);
    return TWILL_OK;
}

/* Set where the threads of this rank are bound. With as many CPUs as threads of all ranks of the
 * node, ranks have the same CPUs and share them by their index on the node. */
static void find_cpus(struct bench_team *team)
{
    twill_comm *comm = team->run->world;
    size_t threads = (size_t)team->threads;
    if (sched_getaffinity(0, sizeof(team->may), &team->may) != 0)
        return;
    team->cpus = (size_t)CPU_COUNT(&team->may);
    if (team->cpus >= threads * (size_t)twill_comm_local_size(comm))
        team->first_cpu = threads * (size_t)twill_comm_local_rank(comm);
}

twill_status twill_bench_time_team(struct twill_bench_run *run,
                                   const struct twill_bench_subject *subject,
                                   struct twill_bench_timing *timing)
{
    struct bench_team team = {.run = run,
                              .subject = subject,
                              .threads = (int)run->options.measures.team,
                              .iterations = run->options.repeats.iterations,
                              .end_turn = TEAM_TURNS};
    team.thread = calloc(run->options.measures.team, sizeof(*team.thread));
    if (team.thread == NULL)
        return TWILL_ERR_MEMORY;
    find_cpus(&team);
    twill_status status = run_threads(&team); /* the first turns make plans and touch memory */
    team.seconds[0] = team.seconds[1] = 0;
    if (status == TWILL_OK)
        status = run_threads(&team);
    double calls = (double)team.iterations * TEAM_TURNS / 2, pair[2] = {0, 0};
    for (int kind = 0; kind < 2; kind++)
        pair[kind] = team.seconds[kind] / calls;
    if (status == TWILL_OK)
        status = twill_bench_combine(run, pair, 2);
    timing->joined = pair[0];
    timing->team = pair[1];
    if (status == TWILL_OK && subject->collective != TWILL_BENCH_BARRIER)
        status = run_checks(&team, timing);
    free(team.thread);
    return status;
}
