/* SPDX-License-Identifier: Apache-2.0 */
/* Groups: fusing does not depend on a rank's own messages, a mismatch is reported on all ranks even
 * if the sums of counts agree; and mismatches detected by later calls. */
#include "tests/support/unit.h"

enum { GROUP_RANKS = 3 };

struct group_scene {
    const char *nodes;
    void (*run)(twill_comm *comm, int rank, int size);
};

static void run_scene(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct group_scene *scene = user;
    char nodes[32];
    snprintf(nodes, sizeof(nodes), "TWILL_LAYOUT=nodes=%s", scene->nodes);
    const char *settings[] = {nodes, TWILL_TEST_PATIENT, "TWILL_INTERFACE=lo", NULL};
    twill_context *context = NULL;
    twill_comm *comm = NULL;
    twill_status status = twill_context_create(&context, bootstrap, settings);
    if (status == TWILL_OK)
        status = twill_comm_create(&comm, context);
    if (TWILL_NOTE(status == TWILL_OK, "%s", twill_context_message(context)))
        scene->run(comm, rank, size);
    twill_test_disconnect(comm, context);
}

static void on_all_nodes(void (*run)(twill_comm *comm, int rank, int size))
{
    static const char *const nodes[] = {"", "2+1", "1+1+1"};
    for (unsigned n = 0; n < TWILL_ARRAY_LENGTH(nodes); n++) {
        struct group_scene scene = {nodes[n], run};
        twill_test_run_ranks(GROUP_RANKS, run_scene, &scene);
    }
}

/* Rank 0 sends between its allreduces, rank 1 receives after them, rank 2 does neither. */
static void messages_between(twill_comm *comm, int rank, int size)
{
    int32_t a[4] = {rank, 1, 2, 3}, b[5] = {rank, rank, 7, 0, 1}, message = rank == 0 ? 99 : 0;
    TWILL_CHECK(twill_group_start(comm) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(comm, a, a, 4, TWILL_I32, TWILL_SUM) == TWILL_OK);
    if (rank == 0)
        TWILL_CHECK(twill_send(comm, &message, 1, TWILL_I32, 1) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(comm, b, b, 5, TWILL_I32, TWILL_SUM) == TWILL_OK);
    if (rank == 1)
        TWILL_CHECK(twill_recv(comm, &message, 1, TWILL_I32, 0) == TWILL_OK);
    twill_status status = twill_group_end(comm);
    TWILL_CHECK(TWILL_NOTE(status == TWILL_OK, "%s", twill_comm_message(comm)));
    int sum = size * (size - 1) / 2;
    TWILL_CHECK(a[0] == sum && a[1] == size && a[3] == 3 * size);
    TWILL_CHECK(b[0] == sum && b[1] == sum && b[2] == 7 * size && b[4] == size);
    TWILL_CHECK(rank == 2 || message == 99);
}

/* Eight elements in total on every rank, but in different calls. */
static void counts_that_differ(twill_comm *comm, int rank, int size)
{
    float a[5] = {0}, b[5] = {0};
    size_t first = rank == size - 1 ? 5 : 3;
    TWILL_CHECK(twill_group_start(comm) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(comm, a, a, first, TWILL_F32, TWILL_SUM) == TWILL_OK);
    TWILL_CHECK(twill_allreduce(comm, b, b, 8 - first, TWILL_F32, TWILL_SUM) == TWILL_OK);
    TWILL_CHECK(twill_group_end(comm) == TWILL_ERR_MISMATCH);
}

/* The last rank waits for another root than the others have, who have returned: all ranks get the
 * error. */
static void roots_that_differ(twill_comm *comm, int rank, int size)
{
    float data[100] = {0};
    int root = rank == size - 1 ? 0 : 1;
    twill_status status = twill_broadcast(comm, data, data, 100, TWILL_F32, root);
    if (rank == size - 1)
        TWILL_CHECK(status == TWILL_ERR_MISMATCH);
    if (status == TWILL_OK)
        status = twill_barrier(comm);
    TWILL_CHECK(status == TWILL_ERR_MISMATCH, "rank %d: %s", rank, twill_comm_message(comm));
}

/* A fused call, then a single call that equals it in count on some ranks only. */
static void fused_and_alike(twill_comm *comm, int rank, int size)
{
    int32_t a[6] = {rank}, b[10] = {rank}, c[16] = {rank}, d[16] = {0};
    for (int round = 0; round < 3; round++) {
        int32_t *result = rank == round ? d : c;
        a[0] = b[0] = c[0] = rank;
        TWILL_CHECK(twill_group_start(comm) == TWILL_OK);
        TWILL_CHECK(twill_allreduce(comm, a, a, 6, TWILL_I32, TWILL_SUM) == TWILL_OK);
        TWILL_CHECK(twill_allreduce(comm, b, b, 10, TWILL_I32, TWILL_SUM) == TWILL_OK);
        TWILL_CHECK(twill_group_end(comm) == TWILL_OK);
        twill_status status = twill_allreduce(comm, c, result, 16, TWILL_I32, TWILL_SUM);
        TWILL_CHECK(status == TWILL_OK, "%s", twill_comm_message(comm));
        int sum = size * (size - 1) / 2;
        TWILL_CHECK(a[0] == sum && b[0] == sum && result[0] == sum);
    }
}

/* Each rank has another root, contributes and returns: the next call that waits reports it. */
static void no_receiver(twill_comm *comm, int rank, int size)
{
    int32_t data[4] = {rank}, result[4];
    int root = rank == size - 1 ? 0 : size - 1;
    twill_status status = twill_reduce(comm, data, result, 4, TWILL_I32, TWILL_SUM, root);
    for (int i = 0; i < 3 && status == TWILL_OK; i++)
        status = twill_barrier(comm);
    TWILL_CHECK(status == TWILL_ERR_MISMATCH, "rank %d: status %d: %s", rank, status,
                twill_comm_message(comm));
    bool named = strstr(twill_comm_message(comm), "reduce #1") != NULL;
    TWILL_CHECK(named || twill_comm_nodes(comm) > 1, "rank %d: %s", rank, twill_comm_message(comm));
}

TWILL_TEST(test_no_receiver)
{
    on_all_nodes(no_receiver);
}

TWILL_TEST(test_fused_and_alike)
{
    on_all_nodes(fused_and_alike);
}

TWILL_TEST(test_messages_between)
{
    on_all_nodes(messages_between);
}

TWILL_TEST(test_counts_that_differ)
{
    on_all_nodes(counts_that_differ);
}

TWILL_TEST(test_roots_that_differ)
{
    on_all_nodes(roots_that_differ);
}
