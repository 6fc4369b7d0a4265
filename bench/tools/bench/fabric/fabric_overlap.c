/* SPDX-License-Identifier: Apache-2.0 */
/* twill-bench overlap and registration: an exchange beside computing, and messages out of memory
 * that the network has not seen. */
#include "bench/common/report.h"
#include "bench/tools/bench/fabric/fabric.h"
#include "bench/tools/compare/peers/played_compute.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OVERLAP_TESTS 16 /* calls that make progress while computing */

/* Start a message each way, compute, and wait. */
static twill_status exchange_once(struct fabric_run *run, size_t bytes, size_t turns)
{
    struct fabric_channel *channel = run->channel;
    TWILL_BENCH_TRY(channel->ops->recv(channel, 0, run->in, bytes, run->peer));
    TWILL_BENCH_TRY(channel->ops->send(channel, 1, run->out, bytes, run->peer));
    for (size_t test = 0; test < OVERLAP_TESTS && turns > 0; test++) {
        played_turns(turns / OVERLAP_TESTS);
        TWILL_BENCH_TRY(channel->ops->test(channel, test % 2));
    }
    return channel->ops->wait(channel, 0, 2);
}

/* Set the seconds of an exchange, the mean over both ranks. */
static twill_status time_exchanges(struct fabric_run *run, size_t bytes, size_t turns,
                                   size_t iterations, double *seconds)
{
    double start = 0;
    TWILL_BENCH_TRY(twill_barrier(run->world));
    for (size_t i = 0; run->peer >= 0 && i < run->options.warmups + iterations; i++) {
        if (i == run->options.warmups)
            start = twill_bench_now();
        TWILL_BENCH_TRY(exchange_once(run, bytes, turns));
    }
    *seconds =
        run->peer >= 0 ? (twill_bench_now() - start) / (double)iterations / 2 : 0; /* two ranks */
    return twill_allreduce(run->world, seconds, seconds, 1, TWILL_F64, TWILL_SUM);
}

twill_status fabric_overlap(struct fabric_run *run, size_t bytes, struct fabric_row *row)
{
    double pure, overall, compute;
    TWILL_BENCH_TRY(time_exchanges(run, bytes, 0, row->iterations, &pure));
    size_t turns = (size_t)(pure * played_speed()) + 1;
    double start = twill_bench_now();
    for (size_t i = 0; run->peer >= 0 && i < row->iterations; i++)
        for (size_t test = 0; test < OVERLAP_TESTS; test++)
            played_turns(turns / OVERLAP_TESTS);
    compute = run->peer >= 0 ? (twill_bench_now() - start) / (double)row->iterations / 2 : 0;
    TWILL_BENCH_TRY(twill_allreduce(run->world, &compute, &compute, 1, TWILL_F64, TWILL_SUM));
    TWILL_BENCH_TRY(time_exchanges(run, bytes, turns, row->iterations, &overall));
    double values[] = {overall * 1e6, compute * 1e6, pure * 1e6,
                       twill_bench_overlap(overall, compute, pure)};
    memcpy(row->value, values, sizeof(values));
    return TWILL_OK;
}

/* One message of the pair, and its answer. */
static twill_status send_there(struct fabric_run *run, void *memory, size_t bytes, double *seconds)
{
    struct fabric_channel *channel = run->channel;
    unsigned char answer = 0;
    double start = twill_bench_now();
    if (run->first) {
        TWILL_BENCH_TRY(channel->ops->send_now(channel, memory, bytes, run->peer));
        TWILL_BENCH_TRY(channel->ops->recv_now(channel, &answer, 1, run->peer));
    } else {
        TWILL_BENCH_TRY(channel->ops->recv_now(channel, run->in, bytes, run->peer));
        TWILL_BENCH_TRY(channel->ops->send_now(channel, &answer, 1, run->peer));
    }
    *seconds = twill_bench_now() - start;
    return TWILL_OK;
}

/* Send twice out of new memory, which is declared to the library where it is its calls that are
 * measured: only the first message can need a registration. */
static twill_status send_new_memory(struct fabric_run *run, size_t bytes, double *first,
                                    double *next)
{
    bool declared = run->channel->context != NULL && run->first;
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (bytes + page - 1) / page * page;
    void *memory = aligned_alloc(page, whole);
    if (memory == NULL)
        return TWILL_ERR_MEMORY;
    memset(memory, 1, whole); /* page faults are not part of it */
    twill_status status =
        declared ? twill_register(run->channel->context, memory, whole) : TWILL_OK;
    if (status == TWILL_OK)
        status = send_there(run, memory, bytes, first);
    if (status == TWILL_OK)
        status = send_there(run, memory, bytes, next);
    if (declared)
        (void)twill_deregister(run->channel->context, memory);
    free(memory);
    return status;
}

twill_status fabric_registration(struct fabric_run *run, size_t bytes, struct fabric_row *row)
{
    size_t times = row->iterations;
    unsigned long long before[2] = {0, 0}, after[2] = {0, 0};
    TWILL_BENCH_TRY(twill_barrier(run->world));
    double *first = run->samples, *next = run->samples + times;
    for (size_t i = 0; run->peer >= 0 && i < run->options.warmups + times; i++) {
        size_t at = i < run->options.warmups ? 0 : i - run->options.warmups;
        if (i == run->options.warmups)
            run->channel->ops->count(run->channel, &before[0], &before[1]);
        TWILL_BENCH_TRY(send_new_memory(run, bytes, &first[at], &next[at]));
    }
    run->channel->ops->count(run->channel, &after[0], &after[1]);
    if (run->first) {
        double medians[] = {twill_bench_statistics(first, times).median * 1e6,
                            twill_bench_statistics(next, times).median * 1e6};
        double values[] = {medians[0], medians[1], medians[0] - medians[1],
                           (double)(after[0] - before[0]), (double)(after[1] - before[1])};
        memcpy(row->value, values, sizeof(values));
    }
    return twill_broadcast(run->world, row->value, row->value, FABRIC_COLUMNS, TWILL_F64, 0);
}
