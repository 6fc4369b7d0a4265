/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of the test job. It runs an allreduce with a known result, then exchanges messages with
 * every other rank, in rounds in which each rank has one partner. */
#include "bench/common/report.h"
#include "bench/common/tool_calls.h"
#include "fabric/launcher/preflight/preflight_wire.h"
#include "lib/twill.h"

#include <stdlib.h>
#include <string.h>

enum {
    CALLS = 20,             /* timed allreduces, and round trips of a pair */
    BULKS = 5,              /* timed long messages of a pair */
    BULK_BYTES = 256 << 10, /* bytes of each */
    WARM = 3,
    SUMMED = 1 << 18, /* elements of the allreduce that is checked */
    ALL_PAIRS = 64    /* most ranks for which all pairs are timed */
};

/* State of a rank of the test job, a local variable of preflight_rank_run(). */
struct preflight_tester {
    twill_comm *comm;
    int rank, size;
    int32_t *node; /* [size] node number of each rank */
    char *bulk;    /* [BULK_BYTES] */
    double allreduce_us;
    int64_t wrong;             /* wrong elements in the results of all allreduces */
    struct json_object *pairs; /* array: round trip and bandwidth with each rank above this one */
};

/* Run an allreduce of SUMMED elements, and add the number of wrong elements in its result to
 * tester->wrong. Returns its status, or TWILL_ERR_MEMORY. */
static twill_status check_sum(struct preflight_tester *tester)
{
    float *values = malloc(SUMMED * sizeof(*values));
    float sum = (float)tester->size * (float)(tester->size + 1) / 2;
    if (!values)
        return TWILL_ERR_MEMORY;
    for (int i = 0; i < SUMMED; i++)
        values[i] = (float)(tester->rank + 1) * (float)(1 + i % 2);
    twill_status status =
        twill_allreduce(tester->comm, values, values, SUMMED, TWILL_F32, TWILL_SUM);
    for (int i = 0; i < SUMMED; i++)
        tester->wrong += values[i] != sum * (float)(1 + i % 2);
    free(values);
    return status;
}

/* Set the median time of an 8-byte allreduce, and count wrong results. Returns the status. */
static twill_status time_allreduce(struct preflight_tester *tester)
{
    double each[CALLS];
    for (int i = -WARM; i < CALLS; i++) {
        int64_t value = tester->rank + 1;
        double start = twill_bench_now();
        TWILL_BENCH_TRY(twill_allreduce(tester->comm, &value, &value, 1, TWILL_I64, TWILL_SUM));
        if (i >= 0)
            each[i] = twill_bench_now() - start;
        tester->wrong += value != (int64_t)tester->size * (tester->size + 1) / 2;
    }
    tester->allreduce_us = preflight_median(each, CALLS) * 1e6;
    return TWILL_OK;
}

/* Exchange two messages with rank `with`. If `first`, send `bytes` bytes and receive 8, else
 * receive `bytes` bytes and send 8. Returns the status of the first failure. */
static twill_status exchange(struct preflight_tester *tester, int with, bool first, size_t bytes)
{
    if (first) {
        TWILL_BENCH_TRY(twill_send(tester->comm, tester->bulk, bytes, TWILL_U8, with));
        return twill_recv(tester->comm, tester->bulk, 8, TWILL_U8, with);
    }
    TWILL_BENCH_TRY(twill_recv(tester->comm, tester->bulk, bytes, TWILL_U8, with));
    return twill_send(tester->comm, tester->bulk, 8, TWILL_U8, with);
}

/* Time messages with rank `with`, which does the same. The lower of the two ranks adds the median
 * round trip and bandwidth to tester->pairs. Returns the first failure. */
static twill_status time_pair(struct preflight_tester *tester, int with)
{
    double trip[CALLS], bulk[BULKS];
    bool first = tester->rank < with;
    for (int i = -WARM; i < CALLS; i++) {
        double start = twill_bench_now();
        TWILL_BENCH_TRY(exchange(tester, with, first, 8));
        trip[i < 0 ? 0 : i] = twill_bench_now() - start;
    }
    for (int i = -1; i < BULKS; i++) {
        double start = twill_bench_now();
        TWILL_BENCH_TRY(exchange(tester, with, first, BULK_BYTES));
        bulk[i < 0 ? 0 : i] = twill_bench_now() - start;
    }
    if (!first)
        return TWILL_OK;
    double round_trip = preflight_median(trip, CALLS);
    struct json_object *pair = json_object_new_object();
    preflight_put_number(pair, "with", with);
    preflight_put_real(pair, "round_trip_us", round_trip * 1e6);
    preflight_put_real(pair, "megabytes", BULK_BYTES / 1e6 / preflight_median(bulk, BULKS));
    json_object_array_add(tester->pairs, pair);
    return TWILL_OK;
}

/* Return the partner of a rank in a round of a tournament of `places`, an even number. In places -
 * 1 rounds each place meets each other one. The partner is never the rank itself. It has no rank if
 * it is the last place and the number of ranks is odd. */
static int find_partner(int rank, int round, int places)
{
    int others = places - 1;
    if (rank == others)
        return round * (places / 2) % others; /* the one that is its own partner */
    int partner = ((round - rank) % others + others) % others;
    return partner == rank ? others : partner;
}

/* Return whether messages between ranks a and b are timed. Up to ALL_PAIRS ranks, all pairs are. Of
 * more ranks, only pairs on one node are, and pairs of ranks that are both the first of their
 * node. */
static bool is_timed(const struct preflight_tester *tester, int a, int b)
{
    const int32_t *node = tester->node;
    if (tester->size <= ALL_PAIRS || node[a] == node[b])
        return true;
    return (a == 0 || node[a - 1] != node[a]) && (b == 0 || node[b - 1] != node[b]);
}

/* Run the allreduces, then the pairs in rounds. Returns the first failure. */
static twill_status test_job(struct preflight_tester *tester)
{
    int32_t node = twill_comm_node(tester->comm);
    int places = tester->size + tester->size % 2;
    TWILL_BENCH_TRY(twill_allgather(tester->comm, &node, tester->node, 1, TWILL_I32));
    TWILL_BENCH_TRY(check_sum(tester));
    TWILL_BENCH_TRY(time_allreduce(tester));
    for (int round = 0; round < places - 1; round++) {
        int with = find_partner(tester->rank, round, places);
        if (with < tester->size && is_timed(tester, tester->rank, with))
            TWILL_BENCH_TRY(time_pair(tester, with));
    }
    return twill_barrier(tester->comm);
}

/* Print the results of this rank as the reply "job". */
static void say_results(const struct preflight_tester *tester)
{
    struct json_object *object = json_object_new_object();
    preflight_put_text(object, "reply", "job");
    preflight_put_number(object, "wrong", tester->wrong);
    preflight_put_real(object, "allreduce_us", tester->allreduce_us);
    json_object_object_add(object, "pairs", json_object_get(tester->pairs));
    preflight_say(object);
}

int preflight_rank_run(void)
{
    struct preflight_tester tester = {.comm = NULL};
    if (twill_init(&tester.comm) != TWILL_OK)
        return 1; /* it has printed why */
    tester.rank = twill_comm_rank(tester.comm);
    tester.size = twill_comm_size(tester.comm);
    tester.node = calloc((size_t)tester.size, sizeof(*tester.node));
    tester.bulk = calloc(BULK_BYTES, 1);
    tester.pairs = json_object_new_array();
    twill_status status =
        tester.node && tester.bulk && tester.pairs ? test_job(&tester) : TWILL_ERR_MEMORY;
    if (status == TWILL_OK)
        say_results(&tester);
    else
        fprintf(stderr, "rank %d: %s: %s\n", tester.rank, twill_strerror(status),
                twill_comm_message(tester.comm));
    json_object_put(tester.pairs);
    free(tester.node);
    free(tester.bulk);
    twill_finalize(tester.comm);
    return status == TWILL_OK ? 0 : 1;
}
