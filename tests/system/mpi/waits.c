/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that end only if all messages and collectives progress while a rank waits for something
 * else. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MPI_PROGRESS_LARGE = 1 << 20 };

static int *numbers(int first)
{
    int *all = malloc(MPI_PROGRESS_LARGE * sizeof *all);
    for (int i = 0; i < MPI_PROGRESS_LARGE; i++)
        all[i] = first + i;
    return all;
}

/* Rank 0 enters a collective with a large message in progress, which the others need before they
 * do. */
static void test_rendezvous(int collective)
{
    int *data = numbers(7), in = harness.rank, out = -1, value = harness.rank;
    if (harness.size < 2)
        return;
    MPI_Request request = MPI_REQUEST_NULL;
    if (harness.rank == 0)
        OK(MPI_Isend(data, MPI_PROGRESS_LARGE, MPI_INT, 1, 1, MPI_COMM_WORLD, &request));
    if (harness.rank == 1) {
        data[MPI_PROGRESS_LARGE - 1] = 0;
        usleep(50000);
        OK(MPI_Recv(data, MPI_PROGRESS_LARGE, MPI_INT, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(data[MPI_PROGRESS_LARGE - 1] == 7 + MPI_PROGRESS_LARGE - 1, "the message");
    }
    if (collective == 0)
        OK(MPI_Barrier(MPI_COMM_WORLD));
    else if (collective == 1)
        OK(MPI_Allreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    else
        OK(MPI_Bcast(&value, 1, MPI_INT, harness.size - 1, MPI_COMM_WORLD));
    CHECK(collective != 1 || out == harness.size * (harness.size - 1) / 2, "the sum is %d", out);
    CHECK(collective != 2 || value == harness.size - 1, "the broadcast is %d", value);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    free(data);
}

/* All ranks start a collective. The last one waits for it before it sends what the others receive
 * before they wait. */
static void test_started(int large)
{
    int count = large ? MPI_PROGRESS_LARGE : 1, token = 0, *in = numbers(harness.rank),
        *out = numbers(0);
    int value = harness.rank == 0 ? 5 : 0, last = harness.size - 1;
    MPI_Request requests[2];
    OK(MPI_Iallreduce(in, out, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]));
    OK(MPI_Ibcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD, &requests[1]));
    if (harness.rank == last) {
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        for (int to = 0; to < last; to++)
            OK(MPI_Send(&token, 1, MPI_INT, to, 2, MPI_COMM_WORLD));
    } else {
        OK(MPI_Recv(&token, 1, MPI_INT, last, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
    }
    int expected = harness.size * (count - 1) + harness.size * (harness.size - 1) / 2;
    CHECK(out[count - 1] == expected && value == 5, "%d, not %d; %d", out[count - 1], expected,
          value);
    free(in);
    free(out);
}

/* An unknown number of messages, received by probing during a nonblocking barrier (NBX). */
static void test_sparse(void)
{
    enum { MOST = 16 };
    int to = (harness.rank * 3 + 1) % harness.size, received = 0, done = 0, started = 0, flag;
    int sent[MOST], count = 1 + harness.rank % 3, sum = 0, total = 0;
    MPI_Request requests[MOST], barrier = MPI_REQUEST_NULL;
    for (int i = 0; i < count; i++) {
        sent[i] = 1;
        OK(MPI_Issend(&sent[i], 1, MPI_INT, to, 3, MPI_COMM_WORLD, &requests[i]));
    }
    while (!done) {
        MPI_Status status;
        OK(MPI_Iprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &flag, &status));
        if (flag) {
            int value;
            OK(MPI_Recv(&value, 1, MPI_INT, status.MPI_SOURCE, 3, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
            received += value;
        }
        if (started) {
            OK(MPI_Test(&barrier, &done, MPI_STATUS_IGNORE));
        } else {
            OK(MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE));
            if (flag)
                OK(MPI_Ibarrier(MPI_COMM_WORLD, &barrier));
            started = flag;
        }
    }
    OK(MPI_Allreduce(&received, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Allreduce(&count, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD));
    CHECK(sum == total, "%d of %d messages have come", sum, total);
}

/* While rank 0 computes, the others signal it by a file. */
static int marked(const char *mode)
{
    const char *folder = getenv("TEST_SCRATCH");
    char path[4096];
    snprintf(path, sizeof path, "%s/absent", folder ? folder : "/tmp");
    FILE *file = fopen(path, mode);
    return file && fclose(file) == 0;
}

/* The others' collective progresses while a rank computes. */
static void test_absent(void)
{
    enum { TURNS = 30000 }; /* of 10 ms: if the others do wait, this ends before the alarm */
    MPI_Request request;
    int in = 1, out = 0, value = 0, flagged = !harness.twill || harness.size < 2;
    OK(MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
    if (harness.rank == 0) {
        for (int i = 0; i < TURNS && !flagged && !(flagged = marked("r")); i++)
            usleep(10000);
        CHECK(flagged, "the others wait for a rank that computes");
    } else {
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        CHECK(out == harness.size, "the sum is %d", out);
        CHECK(flagged || marked("w"), "the file for rank 0 cannot be written");
    }
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Bcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD));
}

/* Two collectives on two communicators, waited for crosswise with messages in between. */
static void test_crosswise(void)
{
    MPI_Comm other;
    MPI_Request first, second;
    int in = harness.rank, a = -1, b = -1, token, right = (harness.rank + 1) % harness.size;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    for (int turn = 0; turn < 20; turn++) {
        OK(MPI_Iallreduce(&in, &a, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &first));
        OK(MPI_Iallreduce(&in, &b, 1, MPI_INT, MPI_MAX, other, &second));
        OK(MPI_Wait(harness.rank % 2 ? &first : &second, MPI_STATUS_IGNORE));
        OK(MPI_Sendrecv(&in, 1, MPI_INT, right, 4, &token, 1, MPI_INT, MPI_ANY_SOURCE, 4,
                        MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_Wait(harness.rank % 2 ? &second : &first, MPI_STATUS_IGNORE));
        CHECK(a == harness.size * (harness.size - 1) / 2 && b == harness.size - 1, "%d %d", a, b);
    }
    OK(MPI_Comm_free(&other));
}

/* The origin of a window has completed: the target must know after a barrier. */
static void test_window(int nonblocking)
{
    enum { TURNS = 50 };
    int memory = -1, flag;
    MPI_Win window;
    MPI_Group all, others;
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN));
    int code = MPI_Win_create(&memory, sizeof memory, sizeof memory, MPI_INFO_NULL, MPI_COMM_WORLD,
                              &window);
    OK(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL));
    if (code != MPI_SUCCESS)
        return; /* Open MPI's window needs its single copies */
    OK(MPI_Win_get_group(window, &all));
    OK(MPI_Group_incl(all, 1, (int[]){0}, &others));
    if (harness.rank == 0) {
        OK(MPI_Group_free(&others));
        OK(MPI_Group_excl(all, 1, (int[]){0}, &others));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int turn = 0; turn < TURNS; turn++) {
        if (harness.rank == 0) {
            OK(MPI_Win_start(others, 0, window));
            OK(MPI_Win_complete(window));
        } else {
            OK(MPI_Win_post(others, 0, window));
        }
        for (int times = 0; times < 2; times++) {
            MPI_Request request = MPI_REQUEST_NULL;
            if (nonblocking)
                OK(MPI_Ibarrier(MPI_COMM_WORLD, &request));
            else
                OK(MPI_Barrier(MPI_COMM_WORLD));
            OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
        }
        if (harness.rank != 0) {
            OK(MPI_Win_test(window, &flag));
            CHECK(flag, "turn %d: the origin has completed, and Win_test does not know", turn);
            if (!flag)
                OK(MPI_Win_wait(window));
        }
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Group_free(&others));
    OK(MPI_Group_free(&all));
    OK(MPI_Win_free(&window));
}

int main(int argc, char **argv)
{
    harness_begin(&argc, &argv, "waits");
    for (int collective = 0; collective < 3; collective++)
        test_rendezvous(collective);
    test_started(0);
    test_started(1);
    test_sparse();
    test_absent();
    test_crosswise();
    test_window(0);
    test_window(1);
    return harness_end();
}
