/* SPDX-License-Identifier: Apache-2.0 */
/* Messages: in order, many in progress, to the rank itself, between collectives, mismatched; and
 * groups of calls, with small allreduces fused. */
#include "tests/support/unit.h"

#define POINT_MOST   50000 /* elements of a message */
#define POINT_FLIGHT 40
#define POINT_SET    TWILL_TEST_PATIENT, "TWILL_TUNE=heap_limit=8M,segment_net=16K"

static const char *const worlds[] = {
    "1", "2", "4", "2x2", "3x1", "4 delay=3,reorder=1,again=20", "3+2 delay=5,reorder=1,chunk=64"};

#define OK(call) TWILL_CHECK(twill_test_fine(comm, call))

/* Return memory for POINT_FLIGHT messages. */
static int32_t *take_messages(void)
{
    return calloc(POINT_FLIGHT * (size_t)POINT_MOST, sizeof(int32_t));
}

static size_t count_message(int k)
{
    static const size_t counts[] = {1, 0, 12, 13, 700, 5000, 3, POINT_MOST};
    return counts[k % 8];
}

static void fill_message(int32_t *at, size_t count, int from, int to, int k)
{
    for (size_t i = 0; i < count; i++)
        at[i] = from * 1000000 + to * 10000 + k * 100 + (int32_t)(i % 97);
}

static bool is_filled(const int32_t *at, size_t count, int from, int to, int k)
{
    for (size_t i = 0; i < count; i++)
        if (at[i] != from * 1000000 + to * 10000 + k * 100 + (int32_t)(i % 97))
            return false;
    return true;
}

/* Each rank sends to the next and receives from the previous one; one rank alone to itself. */
TWILL_TEST_ON(many_messages, ranks, worlds, POINT_SET)
{
    int32_t *out = take_messages(), *in = take_messages();
    twill_request *send[POINT_FLIGHT], *recv[POINT_FLIGHT], *reduce;
    int to = (rank + 1) % size, from = (rank + size - 1) % size, index;
    for (int round = 0; round < 3; round++) {
        for (int k = 0; k < POINT_FLIGHT; k++) {
            fill_message(out + k * POINT_MOST, count_message(k), rank, to, k);
            memset(in + k * POINT_MOST, 0xa5, POINT_MOST * sizeof(int32_t));
            OK(twill_send_start(comm, out + k * POINT_MOST, count_message(k), TWILL_I32, to,
                                &send[k]));
            if (k == 10)
                OK(twill_barrier_start(comm, &reduce));
        }
        for (int k = 0; k < POINT_FLIGHT; k++)
            OK(twill_recv_start(comm, in + k * POINT_MOST, count_message(k), TWILL_I32, from,
                                &recv[k]));
        OK(twill_barrier(comm)); /* collectives do not wait for messages */
        OK(twill_wait(&reduce));
        for (int k = 0; k < POINT_FLIGHT; k++) {
            OK(twill_wait_any(POINT_FLIGHT, recv, &index));
            TWILL_CHECK(index >= 0);
            TWILL_CHECK(
                is_filled(in + index * POINT_MOST, count_message(index), from, rank, index));
        }
        OK(twill_wait_all(POINT_FLIGHT, send));
    }
    free(out);
    free(in);
}

TWILL_TEST_ON(blocking_messages, ranks, worlds, POINT_SET)
{
    int32_t *out = take_messages(), *in = take_messages();
    for (int k = 0; k < 24; k++) {
        /* a token around the ring */
        if (rank > 0)
            OK(twill_recv(comm, in, count_message(k), TWILL_I32, rank - 1));
        TWILL_CHECK(rank == 0 || is_filled(in, count_message(k), rank - 1, rank, k));
        fill_message(out, count_message(k), rank, rank + 1, k);
        if (rank + 1 < size)
            OK(twill_send(comm, out, count_message(k), TWILL_I32, rank + 1));
        /* all ranks at once, with different sizes each way */
        int to = (rank + k) % size, from = (rank + size - k % size) % size;
        fill_message(out, count_message(k + rank), rank, to, k);
        OK(twill_sendrecv(comm, out, count_message(k + rank), to, in, count_message(k + from), from,
                          TWILL_I32));
        TWILL_CHECK(is_filled(in, count_message(k + from), from, rank, k));
        out[0] = 1;
        OK(twill_allreduce(comm, out, in, 1, TWILL_I32, TWILL_SUM));
        TWILL_CHECK(in[0] == size);
    }
    free(out);
    free(in);
}

/* The last rank receives another type than the first sends. */
TWILL_TEST_ON(mismatched_messages, ranks, worlds, POINT_SET)
{
    int32_t data[100] = {0};
    if (size == 1)
        return;
    if (rank == 0)
        (void)twill_send(comm, data, 100, TWILL_I32, size - 1);
    else if (rank == size - 1)
        TWILL_CHECK(TWILL_ENDS(comm, twill_recv(comm, data, 100, TWILL_F32, 0), TWILL_ERR_MISMATCH,
                               "rank 0"));
    TWILL_CHECK(twill_barrier(comm) != TWILL_OK, "rank %d got no error", rank);
}

TWILL_TEST_ON(bad_arguments, ranks, TWILL_LAYOUTS("1"), POINT_SET)
{
    int32_t data[8] = {0};
    static const struct {
        int peer;
        int type;
        bool null;
        const char *named;
    } bad[] = {{1, TWILL_I32, false, "to"},
               {-1, TWILL_I32, false, "to"},
               {0, 99, false, "type"},
               {0, TWILL_I32, true, "src"}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(bad); i++) {
        twill_status status =
            twill_send(comm, bad[i].null ? NULL : data, 4, (twill_type)bad[i].type, bad[i].peer);
        TWILL_CHECK(TWILL_ENDS(comm, status, TWILL_ERR_ARGUMENT, bad[i].named));
    }
    TWILL_CHECK(twill_sendrecv(comm, data, 4, 0, data + 2, 4, 0, TWILL_I32) == TWILL_ERR_ARGUMENT);
    OK(twill_barrier(comm)); /* a communicator of one rank survives */
}

/* --- groups ---------------------------------------------------------------------------------- */

/* All ranks to all, sends first: without a group they would block each other. */
static void exchange_in_group(twill_comm *comm, int32_t *out, int32_t *in)
{
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    OK(twill_group_start(comm));
    for (int r = 0; r < size; r++) {
        fill_message(out + r * POINT_MOST, POINT_MOST, rank, r, 1);
        OK(twill_send(comm, out + r * POINT_MOST, POINT_MOST, TWILL_I32, r));
    }
    for (int r = 0; r < size; r++)
        OK(twill_recv(comm, in + r * POINT_MOST, POINT_MOST, TWILL_I32, r));
    OK(twill_group_end(comm));
    for (int r = 0; r < size; r++)
        TWILL_CHECK(is_filled(in + r * POINT_MOST, POINT_MOST, r, rank, 1));
}

/* Allreduces of many sizes, some of them in place, some fused, with a broadcast in between. */
static void reduce_in_group(twill_comm *comm, int32_t *out, int32_t *in)
{
    int rank = twill_comm_rank(comm), last = twill_comm_size(comm) - 1;
    int32_t *spread = in + 20 * POINT_MOST;
    twill_counters before, after;
    for (int k = 0; k < 20; k++)
        fill_message(out + k * POINT_MOST, count_message(k), rank, 0, k);
    fill_message(spread, 9, rank, 0, 0);
    OK(twill_comm_counters(comm, &before));
    OK(twill_group_start(comm));
    for (int k = 0; k < 20; k++) {
        if (k == 5)
            OK(twill_broadcast(comm, spread, spread, 9, TWILL_I32, last));
        OK(twill_allreduce(comm, out + k * POINT_MOST, (k % 3 == 0 ? out : in) + k * POINT_MOST,
                           count_message(k), TWILL_I32, TWILL_MAX));
    }
    OK(twill_group_end(comm));
    OK(twill_comm_counters(comm, &after));
    for (int k = 0; k < 20; k++)
        TWILL_CHECK(
            is_filled((k % 3 == 0 ? out : in) + k * POINT_MOST, count_message(k), last, 0, k));
    TWILL_CHECK(is_filled(spread, 9, last, 0, 0));
    /* 0-4, broadcast, 5-6, 7, 8-14, 15, 16-19: large ones are not fused */
    TWILL_CHECK(after.calls - before.calls == 7);
}

TWILL_TEST_ON(groups, ranks, worlds, POINT_SET)
{
    int32_t *out = take_messages(), *in = take_messages();
    twill_request *request;
    for (int time = 0; time < 3 && !twill_test_failed(); time++) {
        exchange_in_group(comm, out, in);
        reduce_in_group(comm, out, in);
    }
    OK(twill_group_start(comm)); /* an empty group, and calls that are refused in it */
    TWILL_CHECK(twill_group_start(comm) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_barrier_start(comm, &request) == TWILL_ERR_ARGUMENT && request == NULL);
    TWILL_CHECK(twill_barrier_init(comm, &request) == TWILL_ERR_ARGUMENT && request == NULL);
    OK(twill_group_end(comm));
    TWILL_CHECK(twill_group_end(comm) == TWILL_ERR_ARGUMENT);
    OK(twill_barrier(comm));
    free(out);
    free(in);
}

/* A call with a bad argument fails at once; the calls recorded before it are not run. */
TWILL_TEST_ON(bad_arguments_in_groups, ranks, worlds, POINT_SET)
{
    int32_t out[4] = {0}, in[4];
    if (size == 1)
        return;
    OK(twill_group_start(comm));
    OK(twill_allreduce(comm, out, in, 4, TWILL_I32, TWILL_SUM));
    TWILL_CHECK(twill_allreduce(comm, out, NULL, 4, TWILL_I32, TWILL_SUM) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_group_end(comm) == TWILL_ERR_BROKEN);
}
