/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators of every origin: calls on them, and freeing them in any order, with calls in
 * progress. */
#include "harness.h"

#include <dirent.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Make some calls with known results, on any kind of communicator. */
static void use_comm(MPI_Comm comm, const char *what)
{
    if (comm == MPI_COMM_NULL)
        return;
    int rank, size, inter = 0;
    PMPI_Comm_test_inter(comm, &inter);
    PMPI_Comm_rank(comm, &rank);
    PMPI_Comm_size(comm, &size);
    if (inter)
        PMPI_Comm_remote_size(comm, &size);
    int sum = -1, one = rank + 1, all[64] = {0}, root = inter ? MPI_PROC_NULL : size - 1,
        value = -1;
    MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    OK(MPI_Barrier(comm));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == size * (size + 1) / 2, "%s: allreduce: %d", what, sum);
    OK(MPI_Allgather(&one, 1, MPI_INT, all, 1, MPI_INT, comm));
    for (int i = 0; i < size; i++)
        CHECK(all[i] == i + 1, "%s: allgather: %d", what, all[i]);
    if (!inter) {
        value = rank == root ? 4711 : -1;
        OK(MPI_Bcast(&value, 1, MPI_INT, root, comm));
        CHECK(value == 4711, "%s: broadcast: %d", what, value);
        OK(MPI_Scan(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
        CHECK(sum == (rank + 1) * (rank + 2) / 2, "%s: scan: %d", what, sum);
    }
    sum = -1;
    OK(MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_MAX, comm, &requests[0]));
    OK(MPI_Ibarrier(comm, &requests[2]));
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    CHECK(sum == size, "%s: nonblocking allreduce: %d", what, sum);
}

static void use_and_free(MPI_Comm *comm, const char *what)
{
    use_comm(*comm, what);
    if (*comm != MPI_COMM_NULL)
        OK(MPI_Comm_free(comm));
    CHECK(*comm == MPI_COMM_NULL, "%s: the handle is left", what);
}

static void test_splits(MPI_Comm of)
{
    MPI_Comm made;
    OK(MPI_Comm_dup(of, &made));
    use_and_free(&made, "dup");
    OK(MPI_Comm_dup_with_info(of, MPI_INFO_NULL, &made));
    use_and_free(&made, "dup_with_info");
    OK(MPI_Comm_split(of, harness.rank % 2 ? 3 : MPI_UNDEFINED, 0, &made));
    CHECK((made == MPI_COMM_NULL) == (harness.rank % 2 == 0), "an undefined colour");
    use_and_free(&made, "split, undefined");
    OK(MPI_Comm_split(of, harness.rank, 0, &made));
    use_and_free(&made, "split, alone");
    OK(MPI_Comm_split(of, 2, -harness.rank, &made));
    use_and_free(&made, "split, reversed");
    OK(MPI_Comm_split(of, harness.rank * 2 / harness.size, 5, &made));
    use_and_free(&made, "split, halves");
    OK(MPI_Comm_split_type(of, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made));
    use_and_free(&made, "split_type");
    OK(MPI_Comm_split_type(of, harness.rank ? MPI_COMM_TYPE_SHARED : MPI_UNDEFINED, 0,
                           MPI_INFO_NULL, &made));
    use_and_free(&made, "split_type, undefined");
}

static void test_groups(void)
{
    MPI_Group world, group;
    MPI_Comm made;
    int ranks[64], count = 0;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (int i = harness.size - 1; i >= 0; i -= 2)
        ranks[count++] = i;
    OK(MPI_Group_incl(world, count, ranks, &group));
    OK(MPI_Comm_create(MPI_COMM_WORLD, group, &made));
    use_and_free(&made, "create");
    int me;
    MPI_Group_rank(group, &me);
    if (me != MPI_UNDEFINED) {
        OK(MPI_Comm_create_group(MPI_COMM_WORLD, group, 12, &made));
        use_and_free(&made, "create_group");
    }
    OK(MPI_Group_free(&group));
    OK(MPI_Comm_create(MPI_COMM_WORLD, MPI_GROUP_EMPTY, &made));
    CHECK(made == MPI_COMM_NULL, "a communicator without members");
    OK(MPI_Group_free(&world));
}

static void test_topologies(void)
{
    MPI_Comm grid, made;
    int dims[2] = {0, 0}, periods[2] = {1, 0}, keep[2] = {1, 0};
    OK(MPI_Dims_create(harness.size, 2, dims));
    OK(MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid));
    use_comm(grid, "cart");
    OK(MPI_Cart_sub(grid, keep, &made));
    use_and_free(&made, "cart_sub");
    use_and_free(&grid, "cart");
    int index[64], edges[64];
    for (int i = 0; i < harness.size; i++) {
        index[i] = i + 1;
        edges[i] = (i + 1) % harness.size;
    }
    OK(MPI_Graph_create(MPI_COMM_WORLD, harness.size, index, edges, 0, &made));
    use_and_free(&made, "graph");
    int right = (harness.rank + 1) % harness.size,
        left = (harness.rank + harness.size - 1) % harness.size;
    OK(MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &left, MPI_UNWEIGHTED, 1, &right,
                                      MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made));
    use_comm(made, "dist_graph");
    int sent = harness.rank, received = -1;
    OK(MPI_Neighbor_allgather(&sent, 1, MPI_INT, &received, 1, MPI_INT, made));
    CHECK(received == left, "neighbour's: %d", received);
    use_and_free(&made, "dist_graph");
    OK(MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &harness.rank, (int[]){1}, &right, MPI_UNWEIGHTED,
                             MPI_INFO_NULL, 0, &made));
    use_and_free(&made, "dist_graph_create");
}

static void test_idup(void)
{
    MPI_Comm made;
    MPI_Request request;
    OK(MPI_Comm_idup(MPI_COMM_WORLD, &made, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    use_and_free(&made, "idup");
}

static void test_intercommunicators(void)
{
    if (harness.size < 2)
        return;
    MPI_Comm half, inter, merged;
    int high = harness.rank >= harness.size / 2;
    OK(MPI_Comm_split(MPI_COMM_WORLD, high, harness.rank, &half));
    OK(MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, high ? 0 : harness.size / 2, 3, &inter));
    use_comm(inter, "intercommunicator");
    OK(MPI_Intercomm_merge(inter, high, &merged));
    use_comm(merged, "merged");
    OK(MPI_Comm_free(&half));
    use_and_free(&merged, "merged");
    use_and_free(&inter, "intercommunicator");
}

/* Free in a different order on each rank, without synchronising. */
static void test_orders(void)
{
    enum { MANY = 12 };
    MPI_Comm comms[MANY];
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < MANY; i++)
            OK(MPI_Comm_dup(i ? comms[i / 2] : MPI_COMM_WORLD, &comms[i]));
        for (int i = 0; i < MANY; i++)
            use_comm(comms[i], "one of many");
        for (int i = 0; i < MANY; i++) {
            int which = harness.rank % 2 ? MANY - 1 - i : (i * 5 + harness.rank) % MANY;
            OK(MPI_Comm_free(&comms[which]));
        }
    }
}

/* A communicator is released when the calls on it are complete; its handle is invalid at once. */
static void test_under_way(void)
{
    MPI_Comm comm;
    MPI_Request requests[3];
    for (int turn = 0; turn < 4; turn++) {
        int in = harness.rank, out = -1, value = harness.rank == 0 ? 9 : 0, dummy = 0;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
        OK(MPI_Iallreduce(&in, &out, 1, MPI_INT, MPI_SUM, comm, &requests[0]));
        OK(MPI_Ibcast(&value, 1, MPI_INT, 0, comm, &requests[1]));
        OK(MPI_Ibarrier(comm, &requests[2]));
        OK(MPI_Comm_free(&comm));
        CHECK(comm == MPI_COMM_NULL, "the handle is left");
        if (turn % 2) { /* messages in between */
            int to = (harness.rank + 1) % harness.size,
                from = (harness.rank + harness.size - 1) % harness.size;
            OK(MPI_Sendrecv(&in, 1, MPI_INT, to, 1, &dummy, 1, MPI_INT, from, 1, MPI_COMM_WORLD,
                            MPI_STATUS_IGNORE));
        }
        OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
        CHECK(out == harness.size * (harness.size - 1) / 2 && value == 9,
              "under way when freed: %d, %d", out, value);
    }
}

/* After MPI_Comm_disconnect nothing is in progress, whichever rank comes last. */
static void test_disconnect(void)
{
    MPI_Comm comm;
    MPI_Request request;
    int flag = 0;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    if (harness.rank == harness.size - 1)
        usleep(100000);
    OK(MPI_Ibarrier(comm, &request));
    OK(MPI_Comm_disconnect(&comm));
    CHECK(comm == MPI_COMM_NULL, "the handle is left");
    OK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE));
    CHECK(flag, "under way on what is disconnected");
}

static int descriptors(void)
{
    int count = 0;
    DIR *all = opendir("/proc/self/fd");
    while (all != NULL && readdir(all) != NULL)
        count++;
    if (all != NULL)
        closedir(all);
    return count;
}

/* Communicators that one rank keeps stay on all ranks; those that all have freed are released even
 * among these. None of them needs a descriptor. */
static void test_kept(void)
{
    enum { MANY = 24, KEPT = 8 };
    MPI_Comm comms[MANY], one;
    const int keeps = harness.rank == harness.size - 1;
    if (!harness.twill || harness.size < 2)
        return;
    int before = descriptors();
    for (int i = 0; i < MANY; i++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]));
    CHECK(descriptors() <= before, "%d descriptors instead of %d", descriptors(), before);
    for (int i = 0; i < MANY; i++)
        if (!keeps || (i >= KEPT && i < MANY - KEPT))
            OK(MPI_Comm_free(&comms[i]));
    for (int i = 0; i < 5 * MANY; i++) { /* each call releases a few */
        OK(MPI_Comm_dup(MPI_COMM_SELF, &one));
        OK(MPI_Comm_free(&one));
        PMPI_Barrier(MPI_COMM_WORLD);
    }
    int after = descriptors();
    CHECK(after <= before, "%d descriptors, %d after others have gone", before, after);
    for (int i = 0; i < MANY; i++)
        if (comms[i] != MPI_COMM_NULL)
            OK(MPI_Comm_free(&comms[i]));
}

/* Calls of twill while it lets the MPI progress, which may free a communicator whose last message
 * has arrived: here PMPI_Iprobe does. */
static _Thread_local int in_turn;
static int asked_in_turn;
static MPI_Comm goes_in_turn = MPI_COMM_NULL;

__attribute__((visibility("default"))) int PMPI_Iprobe(int from, int tag, MPI_Comm comm, int *flag,
                                                       MPI_Status *status)
{
    int (*its)(int, int, MPI_Comm, int *, MPI_Status *);
    *(void **)&its = dlsym(RTLD_NEXT, "PMPI_Iprobe");
    in_turn++;
    int code = its(from, tag, comm, flag, status);
    if (goes_in_turn != MPI_COMM_NULL)
        OK(PMPI_Comm_free(&goes_in_turn));
    in_turn--;
    return code;
}

__attribute__((visibility("default"))) int twill_barrier_start(void *comm, void **request);
int twill_barrier_start(void *comm, void **request)
{
    int (*its)(void *, void **);
    *(void **)&its = dlsym(dlopen("libtwill.so.0", RTLD_LAZY | RTLD_NOLOAD), "twill_barrier_start");
    asked_in_turn += in_turn > 0;
    return its(comm, request);
}

static void test_goes_in_turn(void)
{
    MPI_Comm one, other;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &one));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &other));
    if (harness.rank < harness.size - 1)
        goes_in_turn = one;
    else
        usleep(20000); /* the others wait for this one */
    OK(MPI_Barrier(other));
    if (harness.rank < harness.size - 1)
        one = goes_in_turn;
    goes_in_turn = MPI_COMM_NULL;
    if (one != MPI_COMM_NULL)
        OK(MPI_Comm_free(&one));
    CHECK(asked_in_turn == 0, "twill is called while it waits");
    use_and_free(&other, "while another one goes");
}

/* Attributes and names are the program's; comparison does not see twill. */
static void test_attributes(void)
{
    MPI_Comm made;
    int keyval, flag = 0, value = 5, *got = NULL, result;
    OK(MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL));
    OK(MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &value));
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &made));
    OK(MPI_Comm_get_attr(made, keyval, &got, &flag));
    CHECK(flag && got == &value, "an attribute is copied");
    OK(MPI_Comm_compare(made, MPI_COMM_WORLD, &result));
    CHECK(result == MPI_CONGRUENT, "compare: %d", result);
    OK(MPI_Comm_delete_attr(MPI_COMM_WORLD, keyval));
    use_and_free(&made, "with an attribute");
    OK(MPI_Comm_free_keyval(&keyval));
}

int main(int argc, char **argv)
{
    harness_begin(&argc, &argv, "mpi_test_comms");
    use_comm(MPI_COMM_WORLD, "world");
    use_comm(MPI_COMM_SELF, "self");
    for (int i = 0; i < (harness.thorough ? 50 : 2); i++) {
        test_splits(MPI_COMM_WORLD);
        test_groups();
        test_topologies();
        test_idup();
        test_intercommunicators();
        test_orders();
        test_under_way();
        test_disconnect();
        test_kept();
        test_goes_in_turn();
        test_attributes();
    }
    MPI_Comm left; /* never freed */
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &left));
    use_comm(left, "not freed");
    return harness_end();
}
