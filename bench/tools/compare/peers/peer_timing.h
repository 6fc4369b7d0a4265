/* SPDX-License-Identifier: Apache-2.0 */
/* The two timings of twill-compare. "Fresh": before each call a rank writes its input and reads its
 * last result, all meet, and each times the call from the moment at which all begin. "Again":
 * batches of the same call in a loop, each after a barrier of the library; a sample is the mean of
 * a batch. The driver takes each sample from the slowest rank. Part of peer.h. For C and C++. */
#ifndef TWILL_PEER_TIMING_H
#define TWILL_PEER_TIMING_H

#include "peer_call.h"

/* Let the core rest in a loop that polls. */
static inline void peer_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Wait until all ranks have called this. Within a machine that uses memory that the library does
 * not know. Ranks spin if each has a core of its own, and sleep otherwise. Returns 0, or non-zero
 * on failure. */
static inline int peer_meet(const struct peer_program *program, struct peer *peer)
{
    struct peer_shared *shared = peer->shared;
    if (shared == NULL)
        return program->barrier(peer);
    if (!peer->welcome.alone) {
        pthread_barrier_wait(&shared->sleeping);
        return 0;
    }
    uint64_t mine = ++peer->meetings;
    __atomic_store_n(&shared->arrived[peer->rank].value, mine, __ATOMIC_RELEASE);
    for (int rank = 0; rank < peer->size; rank++)
        while (__atomic_load_n(&shared->arrived[rank].value, __ATOMIC_ACQUIRE) < mine)
            peer_pause();
    return 0;
}

/* Meet the other ranks, and return the time on the clock at which this rank begins the timed call,
 * or < 0 on failure. If each rank has a core of this machine for itself, all begin at one time that
 * rank 0 chooses, some microseconds later. Without that the last one to meet would begin first, by
 * the time that a cache line takes, and whether that is the root or not would decide how long a
 * call to or from a root takes. */
static inline double peer_begin_together(const struct peer_program *program, struct peer *peer)
{
    const double lead = 1e-6, lead_per_rank = 0.2e-6; /* until all have read the time */
    if (peer_meet(program, peer) != 0)
        return -1;
    double now = twill_compare_now();
    if (peer->shared == NULL || !peer->welcome.alone)
        return now;
    uint64_t *beginning = &peer->shared->beginning.value;
    if (peer->rank == 0) {
        peer->beginning = (uint64_t)((now + lead + lead_per_rank * peer->size) * 1e9);
        __atomic_store_n(beginning, peer->beginning, __ATOMIC_RELEASE);
    } else {
        uint64_t before = peer->beginning;
        while ((peer->beginning = __atomic_load_n(beginning, __ATOMIC_ACQUIRE)) == before)
            peer_pause();
    }
    while ((now = twill_compare_now()) * 1e9 < (double)peer->beginning)
        ;
    return now;
}

/* Move a cache line there and back between the first and the last rank, and return the seconds of
 * one way, the least of several series. Returns 0 if that takes too long. */
static inline double peer_bounce(struct peer *peer)
{
    const uint64_t series = 6, times = 200;
    const double patience = 0.1; /* in seconds, while it takes 0.5 ms */
    uint64_t *line = &peer->shared->ping.value, next = peer->pings + 1 + (peer->rank != 0);
    double begin = twill_compare_now(), from = begin, least = 0;
    if (peer->rank == 0)
        __atomic_store_n(line, next, __ATOMIC_RELEASE);
    for (uint64_t i = 1; i <= series * times; i++, next += 2) {
        for (uint64_t polls = 1; __atomic_load_n(line, __ATOMIC_ACQUIRE) != next; polls++)
            if (polls % 4096 == 0 && twill_compare_now() - begin > patience)
                return 0;
        __atomic_store_n(line, next + 1, __ATOMIC_RELEASE);
        if (i % times == 0) {
            double now = twill_compare_now(), one = (now - from) / (2 * (double)times);
            least = least <= 0 || one < least ? one : least;
            from = now;
        }
    }
    return least;
}

/* Measure one way of a cache line between the cores of the first and the last rank, and store it in
 * peer->result.line_seconds[which] of rank 0. The two ranks are on their cores meanwhile, and the
 * others sleep. */
static inline void peer_time_line(struct peer *peer, int which)
{
    if (!peer->order.line || peer->shared == NULL || peer->size < 2)
        return;
    cpu_set_t before, one;
    pthread_barrier_wait(&peer->shared->sleeping);
    if (peer->rank == 0 || peer->rank == peer->size - 1) {
        CPU_ZERO(&one);
        CPU_SET(peer->welcome.core, &one);
        sched_getaffinity(0, sizeof(before), &before);
        sched_setaffinity(0, sizeof(one), &one);
        peer->result.line_seconds[which] = peer_bounce(peer);
        sched_setaffinity(0, sizeof(before), &before);
    }
    peer->pings += 1 << 16; /* no value is written in two turns */
    pthread_barrier_wait(&peer->shared->sleeping);
}

/* Write the input of a call, and read the result of the last one, as a program does that has other
 * work between two calls. */
static inline void peer_touch(struct peer *peer, const struct peer_call *call)
{
    static volatile float sink;
    enum twill_compare_collective what = call->collective;
    size_t src = call->count * twill_compare_shards(what, (uint64_t)peer->size, 0);
    size_t dst = call->count * twill_compare_shards(what, (uint64_t)peer->size, 1);
    int from_root = what == TWILL_COMPARE_BROADCAST || what == TWILL_COMPARE_SCATTER;
    int to_root = what == TWILL_COMPARE_REDUCE || what == TWILL_COMPARE_GATHER;
    float sum = 0, *in = peer->buffer[0];
    for (size_t i = 0; i < src && (!from_root || peer->rank == 0); i++)
        in[i] *= -1.0f;
    if (what == TWILL_COMPARE_BROADCAST && peer->rank != 0)
        dst = src;
    for (size_t i = 0; i < dst && (!to_root || peer->rank == 0); i += 16)
        sum += call->dst[i];
    sink = sum;
    (void)sink;
}

/* Return the seconds of one call with fresh data, or < 0 on failure. */
static inline double peer_fresh(const struct peer_program *program, struct peer *peer,
                                const struct peer_call *call)
{
    peer_touch(peer, call);
    double from = peer_begin_together(program, peer);
    if (from < 0 || program->run(peer, call) != 0)
        return -1;
    return twill_compare_now() - from;
}

/* Return the seconds per call of a batch after a barrier, or < 0 on failure. */
static inline double peer_batch(const struct peer_program *program, struct peer *peer,
                                const struct peer_call *call, uint64_t calls)
{
    if (program->barrier(peer) != 0)
        return -1;
    double from = twill_compare_now();
    for (uint64_t i = 0; i < calls; i++)
        if (program->run(peer, call) != 0)
            return -1;
    return (twill_compare_now() - from) / (double)calls;
}

/* Give all ranks the counts of rank 0, with a barrier. Returns 0 unless it fails. */
static inline int peer_agree_counts(const struct peer_program *program, struct peer *peer)
{
    struct twill_compare_result *result = &peer->result;
    uint64_t counts[3] = {result->calls, result->batches, result->fresh_calls};
    if (peer->shared != NULL && peer->rank == 0)
        memcpy(peer->shared->counts, counts, sizeof(counts));
    else if (peer->shared == NULL &&
             (peer->rank == 0
                  ? peer_link_send(&peer->link, TWILL_COMPARE_COUNTS, 0, counts, sizeof(counts))
                  : peer_link_receive(&peer->link, TWILL_COMPARE_COUNTS, counts, sizeof(counts))))
        return 1;
    if (peer_meet(program, peer) != 0)
        return 1;
    if (peer->shared != NULL)
        memcpy(counts, peer->shared->counts, sizeof(counts));
    result->calls = counts[0];
    result->batches = counts[1];
    result->fresh_calls = counts[2];
    return peer_meet(program, peer);
}

/* Return whether the samples of a turn take far longer than ordered, as when other programs have
 * the cores. All ranks call this after `done` samples since `begin`, and get the answer of rank 0.
 */
static inline int peer_enough(const struct peer_program *program, struct peer *peer, uint64_t done,
                              double begin)
{
    if (peer->shared == NULL || done < peer->order.least || done % 4 != 0)
        return 0;
    if (peer->rank == 0)
        peer->shared->counts[0] = twill_compare_now() - begin > 3 * peer->order.turn_seconds;
    return peer_meet(program, peer) != 0 || peer->shared->counts[0] != 0;
}

/* Return how many samples of `seconds` fit into the ordered time, within bounds. */
static inline uint64_t peer_samples(const struct peer *peer, double seconds, uint64_t most)
{
    double fit = peer->order.turn_seconds / (seconds > 1e-9 ? seconds : 1e-9);
    double least = (double)peer->order.least;
    return fit < least ? (uint64_t)least : fit < (double)most ? (uint64_t)fit : most;
}

/* Set result.calls, the calls of a batch, result.batches and result.fresh_calls on all ranks. Rank
 * 0 chooses them by the times that the driver ordered, from calls that do not count. Returns 0
 * unless it fails. */
static inline int peer_choose_counts(const struct peer_program *program, struct peer *peer,
                                     const struct peer_call *call)
{
    struct twill_compare_result *result = &peer->result;
    uint64_t calls = 1;
    for (int step = 0; result->batches == 0; step++) {
        double begin = twill_compare_now(), fresh = peer_fresh(program, peer, call);
        begin = twill_compare_now() - begin; /* with the writes */
        double seconds = fresh < 0 ? -1 : peer_batch(program, peer, call, calls);
        if (seconds < 0)
            return 1;
        if (peer->rank == 0) {
            double needed = peer->order.batch_seconds / (seconds > 1e-9 ? seconds : 1e-9);
            double most = (double)calls * 32;
            result->calls = needed < 1 ? 1 : (uint64_t)(needed > most ? most : needed);
            if (needed <= 2 * (double)calls || step > 8) { /* the last one was long enough */
                result->batches = peer_samples(peer, seconds * (double)result->calls,
                                               (uint64_t)TWILL_COMPARE_BATCHES);
                result->fresh_calls = peer_samples(peer, begin, (uint64_t)TWILL_COMPARE_FRESH);
            }
        }
        if (peer_agree_counts(program, peer) != 0)
            return 1;
        calls = result->calls;
    }
    return 0;
}

/* Take the samples of both timings into peer->result. Returns 0 unless it fails. */
static inline int peer_sample(const struct peer_program *program, struct peer *peer,
                              const struct peer_call *call)
{
    struct twill_compare_result *result = &peer->result;
    double begin = twill_compare_now();
    uint64_t i = 0;
    for (; i < result->fresh_calls && !peer_enough(program, peer, i, begin); i++)
        if ((result->fresh[i] = peer_fresh(program, peer, call)) < 0)
            return 1;
    result->fresh_calls = i;
    begin = twill_compare_now();
    for (i = 0; i < result->batches && !peer_enough(program, peer, i, begin); i++)
        if ((result->again[i] = peer_batch(program, peer, call, result->calls)) < 0)
            return 1;
    result->batches = i;
    return program->barrier(peer); /* before memory is freed that others may read */
}

/* Time the collective of peer->order in both ways, first with a check of values if the order says
 * so, and between two measurements of the cache line. Stores the times and wrong elements in
 * peer->result. Frees the buffers unless order.keep. Returns 0 unless it fails. */
static inline int peer_measure(const struct peer_program *program, struct peer *peer)
{
    const struct twill_compare_order *order = &peer->order;
    struct peer_call call;
    int failed = peer_call_of(program, peer, &call);
    if (failed == 0 && program->prepare != NULL)
        failed = program->prepare(peer, &call);
    if (failed == 0 && order->check)
        failed = peer_check(program, peer, &call);
    if (failed == 0)
        failed = peer_choose_counts(program, peer, &call);
    if (failed == 0)
        peer_time_line(peer, 0);
    if (failed == 0)
        failed = peer_sample(program, peer, &call);
    if (failed == 0)
        peer_time_line(peer, 1);
    if (program->release != NULL)
        program->release(peer);
    for (int which = 0; which < 2 && !order->keep; which++)
        peer_free(program, peer, which);
    return failed;
}

#endif
