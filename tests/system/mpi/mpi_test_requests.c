/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of collectives among other requests, completed in unusual orders. */
#include "harness.h"

#include <dlfcn.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int sum_of_ranks(void)
{
    return harness.size * (harness.size - 1) / 2;
}

static int is_empty(const MPI_Status *status)
{
    int count = -1, cancelled = 1;
    PMPI_Get_count(status, MPI_INT, &count);
    PMPI_Test_cancelled(status, &cancelled);
    return status->MPI_SOURCE == MPI_ANY_SOURCE && status->MPI_TAG == MPI_ANY_TAG && count == 0 &&
           !cancelled;
}

/* Check MPI 4.1's MPI_Request_get_status_any, which twill shows where the MPI lacks it, on an array
 * without active requests. Its status has MPI_SUCCESS in MPI_ERROR, too. */
static void check_status_any(int count, const MPI_Request *requests, const char *what)
{
    int (*status_any)(int, const MPI_Request *, int *, int *, MPI_Status *);
    *(void **)&status_any = dlsym(RTLD_DEFAULT, "MPI_Request_get_status_any");
    if (!harness.twill || dlsym(RTLD_DEFAULT, "PMPI_Request_get_status_any") != NULL)
        return; /* the MPI's own */
    int index = -5, flag = -5;
    MPI_Status status = {.MPI_ERROR = MPI_ERR_OTHER};
    CHECK(status_any != NULL, "no MPI_Request_get_status_any");
    if (status_any == NULL)
        return;
    OK(status_any(count, requests, &index, &flag, MPI_STATUS_IGNORE));
    OK(status_any(count, requests, &index, &flag, &status));
    CHECK(flag == 1 && index == MPI_UNDEFINED && is_empty(&status) &&
              status.MPI_ERROR == MPI_SUCCESS,
          "Request_get_status_any of %s: %d %d %d", what, flag, index, status.MPI_ERROR);
}

/* Check calls on arrays without active requests. */
static void check_nothing(MPI_Request *requests, int count, const char *what)
{
    int index = -5, flag = -5, n = -5, indices[8];
    MPI_Status status, statuses[8];
    OK(MPI_Waitany(count, requests, &index, &status));
    CHECK(index == MPI_UNDEFINED && is_empty(&status), "Waitany of %s: %d", what, index);
    index = -5;
    OK(MPI_Testany(count, requests, &index, &flag, &status));
    CHECK(flag == 1 && index == MPI_UNDEFINED && is_empty(&status), "Testany of %s: %d %d", what,
          flag, index);
    check_status_any(count, requests, what);
    OK(MPI_Waitsome(count, requests, &n, indices, statuses));
    CHECK(n == MPI_UNDEFINED, "Waitsome of %s: %d", what, n);
    n = -5;
    OK(MPI_Testsome(count, requests, &n, indices, statuses));
    CHECK(n == MPI_UNDEFINED, "Testsome of %s: %d", what, n);
    flag = -5;
    OK(MPI_Testall(count, requests, &flag, statuses));
    CHECK(flag == 1, "Testall of %s: %d", what, flag);
    for (int i = 0; i < count; i++)
        CHECK(is_empty(&statuses[i]), "Testall of %s: status %d", what, i);
    OK(MPI_Waitall(count, requests, statuses));
    for (int i = 0; i < count; i++) {
        CHECK(is_empty(&statuses[i]), "Waitall of %s: status %d", what, i);
        flag = -5;
        OK(MPI_Test(&requests[i], &flag, &status));
        CHECK(flag == 1 && is_empty(&status), "Test of %s", what);
        OK(MPI_Wait(&requests[i], &status));
        CHECK(is_empty(&status), "Wait of %s", what);
        flag = -5;
        OK(MPI_Request_get_status(requests[i], &flag, &status));
        CHECK(flag == 1 && is_empty(&status), "Request_get_status of %s", what);
    }
}

static void test_nothing(void)
{
    MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL}, kept[2];
    check_nothing(requests, 3, "null");
    check_nothing(requests, 0, "an empty array");
    if (!harness.twill || harness.size == 1)
        return; /* MPICH does not treat its own inactive collectives as inactive */
    int in = harness.rank, out = -1;
    OK(PERSISTENT(Allreduce)(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                             &requests[0]));
    OK(PERSISTENT(Barrier)(MPI_COMM_WORLD, MPI_INFO_NULL, &requests[2]));
    kept[0] = requests[0];
    kept[1] = requests[2];
    check_nothing(requests, 3, "what was never started");
    OK(MPI_Startall(1, &requests[0]));
    OK(MPI_Start(&requests[2]));
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    CHECK(out == sum_of_ranks(), "allreduce: %d", out);
    CHECK(requests[0] == kept[0] && requests[2] == kept[1], "persistent requests have changed");
    check_nothing(requests, 3, "what is complete");
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[2]));
    CHECK(requests[0] == MPI_REQUEST_NULL && requests[2] == MPI_REQUEST_NULL,
          "freed requests are left");
}

/* Many, started in one order, waited for in a different order on each rank. */
static void test_orders(void)
{
    enum { MANY = 60 };
    MPI_Request requests[MANY];
    int in[MANY], out[MANY];
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < MANY; i++) {
            in[i] = harness.rank * i;
            out[i] = -1;
            if (i % 3 == 0)
                OK(MPI_Ibarrier(MPI_COMM_WORLD, &requests[i]));
            else
                OK(MPI_Iallreduce(&in[i], &out[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                                  &requests[i]));
        }
        for (int i = 0; i < MANY; i++) {
            int which = (harness.rank + turn) % 2 ? MANY - 1 - i : i;
            complete(&requests[which], (harness.rank + i) % 2);
            CHECK(requests[which] == MPI_REQUEST_NULL, "request %d is left", which);
            CHECK(which % 3 == 0 || out[which] == which * sum_of_ranks(), "sum %d is %d", which,
                  out[which]);
        }
    }
}

static int query(void *extra, MPI_Status *status)
{
    (void)extra;
    PMPI_Status_set_elements(status, MPI_INT, 3);
    PMPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = 7;
    status->MPI_TAG = 8;
    return MPI_SUCCESS;
}

static int release(void *extra)
{
    ++*(int *)extra;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int done)
{
    (void)extra, (void)done;
    return MPI_SUCCESS;
}

/* A generalised request, a persistent message to itself, a message, and ours; statuses are those of
 * the messages. */
static void test_kinds(int style)
{
    int released = 0, in = harness.rank, sum = -1, sent = 41 + harness.rank, received[2] = {-1, -1},
        count;
    MPI_Request requests[6], grequest;
    MPI_Status statuses[6];
    OK(MPI_Grequest_start(query, release, cancel, &released, &grequest));
    requests[0] = grequest;
    OK(MPI_Iallreduce(&in, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Send_init(&sent, 1, MPI_INT, harness.rank, 5, MPI_COMM_WORLD, &requests[2]));
    OK(MPI_Recv_init(received, 2, MPI_INT, harness.rank, 5, MPI_COMM_WORLD, &requests[3]));
    OK(MPI_Ibarrier(MPI_COMM_WORLD, &requests[4]));
    requests[5] = MPI_REQUEST_NULL;
    OK(MPI_Startall(2, &requests[2]));
    OK(MPI_Grequest_complete(grequest));
    if (style == 0) {
        OK(MPI_Waitall(6, requests, statuses));
    } else if (style == 1) {
        int flag = 0;
        while (!flag)
            OK(MPI_Testall(6, requests, &flag, statuses));
    } else {
        for (int left = 5; left > 0;) {
            int n = 0, indices[6];
            MPI_Status some[6];
            OK(style == 2 ? MPI_Waitsome(6, requests, &n, indices, some)
                          : MPI_Testsome(6, requests, &n, indices, some));
            CHECK(n >= 0 && n <= left, "%d of %d", n, left);
            for (int i = 0; i < n; i++)
                statuses[indices[i]] = some[i];
            left -= n;
        }
    }
    CHECK(released == 1 && statuses[0].MPI_SOURCE == 7 && statuses[0].MPI_TAG == 8,
          "generalised request");
    CHECK(sum == sum_of_ranks(), "allreduce: %d", sum);
    PMPI_Get_count(&statuses[3], MPI_INT, &count);
    CHECK(received[0] == sent && received[1] == -1 && count == 1 && statuses[3].MPI_TAG == 5 &&
              statuses[3].MPI_SOURCE == harness.rank,
          "the message to oneself");
    CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL &&
              requests[2] != MPI_REQUEST_NULL && requests[4] == MPI_REQUEST_NULL,
          "which requests are left");
    OK(MPI_Request_free(&requests[2]));
    OK(MPI_Request_free(&requests[3]));
}

/* One Startall for messages and collectives; requests are converted to Fortran handles and back. */
static void test_mixed_start(void)
{
    int value = harness.rank, sum = -1, sent = 0, received = -1;
    MPI_Request requests[4];
    OK(PERSISTENT(Allreduce)(&value, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL,
                             &requests[0]));
    OK(MPI_Recv_init(&received, 1, MPI_INT, harness.rank, 6, MPI_COMM_WORLD, &requests[1]));
    OK(MPI_Send_init(&sent, 1, MPI_INT, harness.rank, 6, MPI_COMM_WORLD, &requests[2]));
    OK(PERSISTENT(Bcast)(&value, 1, MPI_INT, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[3]));
    for (int turn = 0; turn < 4; turn++) {
        value = harness.rank + turn;
        sent = 100 + turn;
        OK(MPI_Startall(3, requests));
        OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
        CHECK(sum == sum_of_ranks() + turn * harness.size, "turn %d: sum %d", turn, sum);
        CHECK(received == sent, "turn %d: message %d", turn, received);
        OK(MPI_Start(&requests[3]));
        OK(MPI_Wait(&requests[3], MPI_STATUS_IGNORE));
        CHECK(value == turn, "turn %d: broadcast %d", turn, value);
    }
    for (int i = 0; i < 4; i++) {
        MPI_Fint number = MPI_Request_c2f(requests[i]);
        CHECK(MPI_Request_f2c(number) == requests[i], "request %d to Fortran and back", i);
        requests[i] = MPI_Request_f2c(number);
        OK(MPI_Request_free(&requests[i]));
    }
    CHECK(MPI_Request_f2c(MPI_Request_c2f(MPI_REQUEST_NULL)) == MPI_REQUEST_NULL,
          "null to Fortran");
}

/* More persistent requests than a small table holds, started and freed in a different order on each
 * rank, as MPI allows. */
static void test_many_persistent(void)
{
    enum { MANY = 90 };
    static MPI_Request requests[MANY];
    static int in[MANY], out[MANY];
    for (int i = 0; i < MANY; i++) {
        in[i] = i + harness.rank;
        OK(PERSISTENT(Allreduce)(&in[i], &out[i], 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD,
                                 MPI_INFO_NULL, &requests[i]));
    }
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < MANY; i++)
            OK(MPI_Start(&requests[(i * 11 + harness.rank * 5) % MANY]));
        if (harness.rank % 2)
            OK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE));
        else
            for (int i = MANY - 1; i >= 0; i--)
                OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        for (int i = 0; i < MANY; i++) {
            CHECK(out[i] == i * harness.size + sum_of_ranks(), "turn %d: sum %d is %d", turn, i,
                  out[i]);
            out[i] = -1;
        }
    }
    for (int i = 0; i < MANY; i++) {
        int which = (i * 7 + harness.rank) % MANY;
        OK(MPI_Request_free(&requests[which]));
    }
}

/* Persistent requests that follow one another on a communicator: ranks free them at different
 * times, and the last ones after the communicator. */
static void test_persistent_again(void)
{
    enum { TURNS = 40, LIVE = 4 };
    MPI_Request requests[LIVE];
    int in[LIVE], out[LIVE];
    MPI_Comm comm;
    for (int i = 0; i < LIVE; i++)
        requests[i] = MPI_REQUEST_NULL;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    for (int turn = 0; turn < TURNS; turn++) {
        int at = turn % LIVE, kept = turn < LIVE ? turn : harness.rank % LIVE;
        if (requests[at] != MPI_REQUEST_NULL)
            OK(MPI_Request_free(&requests[at]));
        in[at] = turn + harness.rank;
        OK(PERSISTENT(Allreduce)(&in[at], &out[at], 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL,
                                 &requests[at]));
        if (turn == TURNS - 1)
            OK(MPI_Comm_free(&comm));
        OK(MPI_Start(&requests[at]));
        OK(MPI_Wait(&requests[at], MPI_STATUS_IGNORE));
        CHECK(out[at] == turn * harness.size + sum_of_ranks(), "turn %d: the sum is %d", turn,
              out[at]);
        for (int i = 1; i < LIVE - kept; i++) /* the oldest ones, as many as this rank likes */
            if (requests[(at + i) % LIVE] != MPI_REQUEST_NULL)
                OK(MPI_Request_free(&requests[(at + i) % LIVE]));
    }
    for (int i = 0; i < LIVE; i++)
        if (requests[i] != MPI_REQUEST_NULL)
            OK(MPI_Request_free(&requests[i]));
}

/* Calls with large counts that twill passes on, here as there is one rank. Where the MPI has none
 * the arrays of counts are narrowed, and freed with the request. */
static void test_narrowed(void)
{
    enum { TURNS = 3000, MOST_BYTES = 60000 };
    MPI_Count count = 1;
    MPI_Aint displacement = 0;
    int in = 0, out = 0;
    MPI_Request request;
    struct mallinfo2 before = {0};
    int (*start)(const void *, const MPI_Count *, const MPI_Aint *, MPI_Datatype, void *,
                 const MPI_Count *, const MPI_Aint *, MPI_Datatype, MPI_Comm, MPI_Request *);
    *(void **)&start = dlsym(RTLD_DEFAULT, "MPI_Ialltoallv_c");
    for (int turn = 0; turn < TURNS && start != NULL; turn++) {
        if (turn == TURNS / 10)
            before = mallinfo2();
        in = turn;
        OK(start(&in, &count, &displacement, MPI_INT, &out, &count, &displacement, MPI_INT,
                 MPI_COMM_SELF, &request));
        complete(&request, turn % COMPLETION_STYLES);
        CHECK(out == turn && request == MPI_REQUEST_NULL, "turn %d: got %d", turn, out);
    }
    struct mallinfo2 after = mallinfo2();
    CHECK(after.uordblks < before.uordblks + MOST_BYTES || start == NULL, "%zu bytes are left",
          after.uordblks - before.uordblks);
}

/* A request whose status is queried before it can be complete. */
static void test_get_status(void)
{
    int flag = 1, in = 1, out = 0, dummy;
    MPI_Request request;
    if (harness.size == 1)
        return;
    if (harness.rank == 0) /* until the other ranks have sent */
        OK(MPI_Recv(&dummy, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request));
    if (harness.rank == 1) {
        OK(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
        CHECK(!flag && request != MPI_REQUEST_NULL, "complete before rank 0 has called");
    }
    if (harness.rank == 1)
        OK(MPI_Send(&in, 1, MPI_INT, 0, 9, MPI_COMM_WORLD));
    for (flag = 0; !flag;)
        OK(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE));
    CHECK(out == harness.size, "the sum is %d when it is complete", out);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(request == MPI_REQUEST_NULL, "the request is left");
}

int main(int argc, char **argv)
{
    harness_begin(&argc, &argv, "mpi_test_requests");
    test_nothing();
    test_orders();
    for (int style = 0; style < 4; style++)
        test_kinds(style);
    test_mixed_start();
    test_many_persistent();
    test_persistent_again();
    test_narrowed();
    test_get_status();
    return harness_end();
}
