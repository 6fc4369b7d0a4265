/* SPDX-License-Identifier: Apache-2.0 */
/* Suspended communicators give memory back and work on. Also bad use and deaths. */
#include "fabric/shm/node_memory.h"
#include "lib/comm/comm.h"
#include "lib/twill_job.h"
#include "lib/twill_memory.h"
#include "lib/twill_recover.h"
#include "tests/support/numbers.h"
#include "tests/support/unit.h"

enum { LARGE = 1 << 20, MESSAGE = 40000 };

/* Reduce `count` numbers that depend on `seed`. Returns whether the result is right. */
static bool reduces(twill_comm *comm, size_t count, int seed)
{
    int size = twill_comm_size(comm), rank = twill_comm_rank(comm);
    int32_t *data = malloc(count * sizeof(*data));
    bool fine = data != NULL;
    for (size_t i = 0; fine && i < count; i++)
        data[i] = (int32_t)(i % 1000) + seed + rank;
    fine = fine &&
           twill_test_fine(comm, twill_allreduce(comm, data, data, count, TWILL_I32, TWILL_SUM));
    for (size_t i = 0; fine && i < count; i++)
        fine = data[i] == size * ((int32_t)(i % 1000) + seed) + size * (size - 1) / 2;
    free(data);
    return fine;
}

/* Send MESSAGE bytes around. Returns whether those that arrive are right. */
static bool sends(twill_comm *comm, int seed)
{
    static _Thread_local unsigned char out[MESSAGE], in[MESSAGE];
    int size = twill_comm_size(comm), rank = twill_comm_rank(comm), from = (rank + size - 1) % size;
    memset(out, seed + rank, MESSAGE);
    bool fine = twill_test_fine(
        comm, twill_sendrecv(comm, out, MESSAGE, (rank + 1) % size, in, MESSAGE, from, TWILL_U8));
    for (size_t i = 0; fine && i < MESSAGE; i++)
        fine = in[i] == (unsigned char)(seed + from);
    return fine;
}

/* Make calls of all kinds that have memory. */
static bool works(twill_comm *comm, int seed)
{
    bool fine = true;
    for (int i = 0; i < 200 && fine; i++)
        fine = reduces(comm, 1 + (size_t)i % 7 * 40, seed + i);
    return fine && reduces(comm, LARGE, seed) && sends(comm, seed);
}

static twill_memory_usage usage_of(twill_comm *comm)
{
    twill_memory_usage usage = {.bytes = sizeof(usage)};
    (void)twill_test_fine(comm, twill_comm_memory(comm, &usage));
    return usage;
}

/* Return how many pages of this rank's memory exist, as the kernel says. */
static size_t count_pages(const twill_comm *comm, size_t bytes)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 0;
    unsigned char *exists = malloc(bytes / page);
    if (exists != NULL && mincore(comm->node->area[comm->local], bytes, exists) == 0)
        for (size_t i = 0; i < bytes / page; i++)
            count += exists[i] & 1;
    free(exists);
    return count;
}

/* Return the most pages that a suspended communicator keeps. They have its records, the counts of
 * events, and lines of messages with each rank of the node. */
static size_t most_kept(const twill_comm *comm)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return 1 + (offsetof(struct twill_node_area, imm) + page - 1) / page +
           (8192 + page - 1) / page * (size_t)twill_comm_local_size(comm);
}

/* --- what it gives back and keeps --------------------------------------------------------------
 */

/* Memory falls, and the next calls are right, on a communicator with memory of its own and on one
 * made out of it. Neither is affected by the other's suspension. */
TWILL_TEST_ON(test_gives_back, processes, TWILL_LAYOUTS("1", "2", "3", "2x2"), TWILL_TEST_PATIENT)
{
    twill_comm *made = NULL, *comms[2] = {comm};
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made, comm)));
    comms[1] = made;
    TWILL_CHECK(works(comm, 1) && works(made, 2));
    for (int i = 0; i < 2; i++) {
        twill_comm *one = comms[i];
        TWILL_CHECK(twill_test_barrier(bootstrap)); /* no rank writes to another's memory now */
        twill_memory_usage before = usage_of(one), other = usage_of(comms[!i]);
        TWILL_CHECK(twill_test_fine(one, twill_comm_suspend(one)));
        twill_memory_usage after = usage_of(one);
        TWILL_CHECK(!before.suspended && after.suspended && !other.suspended);
        TWILL_CHECK(after.shared_bytes <= most_kept(one) * page, "%llu bytes are left",
                    (unsigned long long)after.shared_bytes);
        TWILL_CHECK(size == 1 || before.shared_bytes >= (size_t)300 << 10);
        TWILL_CHECK(after.shared_bytes == count_pages(one, after.shared_limit) * page);
        TWILL_CHECK(after.shared_peak >= before.shared_bytes);
        TWILL_CHECK(size == 1 || after.private_bytes < before.private_bytes);
        TWILL_CHECK(after.private_peak >= before.private_bytes);
        TWILL_CHECK(usage_of(comms[!i]).shared_bytes == other.shared_bytes);
        TWILL_CHECK(twill_test_barrier(bootstrap)); /* one that resumes may write to another */
        TWILL_CHECK(works(comms[!i], 3) && works(one, 4) && !usage_of(one).suspended);
    }
    TWILL_CHECK(made->node->room == NULL || usage_of(made).descriptors == 0 ||
                twill_comm_nodes(comm) > 1);
    twill_comm_destroy(made);
}

/* Ranks need not wait for each other after a suspension, and may suspend again at once. */
TWILL_TEST_ON(test_in_turns, ranks, TWILL_LAYOUTS("2", "3"), TWILL_TEST_PATIENT)
{
    twill_comm *made = NULL;
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made, comm)));
    for (int i = 0; i < 60; i++) {
        int32_t sent = i, got = -1;
        TWILL_CHECK(twill_test_fine(made, twill_comm_suspend(made)));
        for (int n = 0; n < (i % 3) * 40; n++) /* rank 0 is ahead */
            TWILL_CHECK(
                twill_test_fine(made, twill_broadcast(made, &sent, &got, 1, TWILL_I32, 0)) &&
                got == i);
        if (i % 4 == 0)
            TWILL_CHECK(reduces(made, 3000, i) && sends(made, i));
    }
    TWILL_CHECK(twill_test_fine(made, twill_comm_suspend(made)));
    twill_comm_destroy(made);
}

/* A message that was sent before a suspension arrives after it. */
TWILL_TEST_ON(test_keeps_messages, processes, TWILL_LAYOUTS("2", "2x1"), TWILL_TEST_PATIENT)
{
    static unsigned char data[MESSAGE];
    memset(data, rank == 0 ? 7 : 0, MESSAGE);
    TWILL_CHECK(works(comm, 1));
    if (rank == 0)
        TWILL_CHECK(twill_test_fine(comm, twill_send(comm, data, MESSAGE, TWILL_U8, 1)));
    TWILL_CHECK(twill_test_fine(comm, twill_comm_suspend(comm)));
    if (rank == 1)
        TWILL_CHECK(twill_test_fine(comm, twill_recv(comm, data, MESSAGE, TWILL_U8, 0)));
    for (int i = 0; i < MESSAGE; i++)
        TWILL_CHECK(data[i] == 7);
    TWILL_CHECK(works(comm, 2));
}

/* A persistent request, of one rank or of all, resumes by its next start. */
TWILL_TEST_ON(test_keeps_persistent, processes, TWILL_LAYOUTS("2", "3", "2x1"), TWILL_TEST_PATIENT)
{
    enum { COUNT = 5000 };
    static int32_t src[COUNT], dst[COUNT];
    twill_request *request = NULL, *message = NULL;
    TWILL_CHECK(twill_test_fine(
        comm, twill_allreduce_init(comm, src, dst, COUNT, TWILL_I32, TWILL_SUM, &request)));
    if (rank == 0)
        TWILL_CHECK(twill_test_fine(comm, twill_send_init(comm, src, 1, TWILL_I32, 1, &message)));
    for (int turn = 0; turn < 3; turn++) {
        for (int i = 0; i < COUNT; i++)
            src[i] = turn + i + rank;
        TWILL_CHECK(twill_test_fine(comm, twill_request_start(request)));
        TWILL_CHECK(twill_test_fine(comm, twill_wait(&request)));
        for (int i = 0; i < COUNT; i++)
            TWILL_CHECK(dst[i] == size * (turn + i) + size * (size - 1) / 2);
        TWILL_CHECK(twill_test_fine(comm, twill_comm_suspend(comm)));
        TWILL_CHECK(usage_of(comm).suspended);
        if (turn == 1)
            TWILL_CHECK(twill_test_fine(comm, twill_request_free(&message)));
    }
    TWILL_CHECK(twill_test_fine(comm, twill_request_free(&request)));
    TWILL_CHECK(works(comm, 9));
}

/* --- bad use -----------------------------------------------------------------------------------
 */

/* All ranks refuse alike, and the communicator stays usable. */
TWILL_TEST_ON(test_refused, processes, TWILL_LAYOUTS("2", "2x1"), TWILL_TEST_PATIENT)
{
    int32_t sent = 5, got = 0;
    twill_request *request = NULL;
    twill_memory_usage usage = {.bytes = 8};
    if (rank == 1)
        TWILL_CHECK(twill_test_fine(comm, twill_recv_start(comm, &got, 1, TWILL_I32, 0, &request)));
    TWILL_CHECK(TWILL_ENDS(comm, twill_comm_suspend(comm), TWILL_ERR_ARGUMENT,
                           "twill_comm_suspend: comm has a request of rank 1 under way"));
    TWILL_CHECK(!usage_of(comm).suspended);
    if (rank == 0)
        TWILL_CHECK(twill_test_fine(comm, twill_send(comm, &sent, 1, TWILL_I32, 1)));
    TWILL_CHECK(twill_wait(&request) == TWILL_OK && (rank == 0 || got == 5));
    TWILL_CHECK(twill_test_fine(comm, twill_group_start(comm)));
    TWILL_CHECK(TWILL_ENDS(comm, twill_comm_suspend(comm), TWILL_ERR_ARGUMENT,
                           "twill_comm_suspend: comm has an open group of calls"));
    TWILL_CHECK(twill_test_fine(comm, twill_group_end(comm)));
    TWILL_CHECK(TWILL_ENDS(comm, twill_comm_memory(comm, NULL), TWILL_ERR_ARGUMENT,
                           "twill_comm_memory: usage is NULL"));
    TWILL_CHECK(TWILL_ENDS(comm, twill_comm_memory(comm, &usage), TWILL_ERR_ARGUMENT,
                           "twill_comm_memory: usage: bytes is 8, not sizeof(twill_memory_usage)"));
    TWILL_CHECK(twill_comm_suspend(NULL) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_comm_memory(NULL, &usage) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_test_fine(comm, twill_comm_suspend(comm)) && works(comm, 1));
}

/* A rank that makes another call meanwhile is a mismatch on both. */
TWILL_TEST_ON(test_other_call, processes, TWILL_LAYOUTS("2", "2x1"), TWILL_TEST_PATIENT)
{
    float one = 1, sum;
    TWILL_CHECK(works(comm, 1));
    twill_status status = rank == 0 ? twill_comm_suspend(comm)
                                    : twill_allreduce(comm, &one, &sum, 1, TWILL_F32, TWILL_SUM);
    TWILL_CHECK(status == TWILL_ERR_MISMATCH, "%s", twill_comm_message(comm));
    TWILL_CHECK(twill_comm_suspend(comm) == TWILL_ERR_BROKEN);
}

/* --- failures ----------------------------------------------------------------------------------
 */

/* A rank dies instead of suspending, or while it is suspended, or another revokes meanwhile. The
 * others get that in this call or in the next one, and continue. */
TWILL_TEST_ON(test_death, processes, TWILL_LAYOUTS("3"), TWILL_TEST_PATIENT)
{
    twill_comm *made[2], *smaller = NULL;
    if (rank == 2)
        twill_test_expect_death(rank);
    for (int i = 0; i < 2; i++) {
        TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made[i], comm)));
        TWILL_CHECK(works(made[i], i));
    }
    TWILL_CHECK(twill_test_fine(made[0], twill_comm_suspend(made[0])));
    TWILL_CHECK(twill_test_barrier(bootstrap));
    if (rank == 2)
        _exit(0);
    TWILL_CHECK(twill_comm_suspend(made[1]) == TWILL_ERR_PEER, "%s", twill_comm_message(made[1]));
    TWILL_CHECK(twill_barrier(made[0]) == TWILL_ERR_PEER, "%s", twill_comm_message(made[0]));
    TWILL_CHECK(twill_comm_shrink(&smaller, made[0]) == TWILL_OK);
    TWILL_CHECK(works(smaller, 3) && twill_test_fine(smaller, twill_comm_suspend(smaller)));
    TWILL_CHECK(works(smaller, 4));
    for (int i = 0; i < 2; i++)
        twill_comm_leave(made[i]);
    twill_comm_destroy(smaller);
}

TWILL_TEST_ON(test_revoked, processes, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    twill_comm *made = NULL;
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made, comm)));
    TWILL_CHECK(works(made, 1) && twill_test_fine(made, twill_comm_suspend(made)));
    if (rank == 0)
        TWILL_CHECK(twill_comm_revoke(made) == TWILL_OK);
    twill_status status = twill_barrier(made);
    TWILL_CHECK(status == TWILL_ERR_BROKEN || status == TWILL_ERR_REVOKED, "%s",
                twill_comm_message(made));
    TWILL_CHECK(twill_comm_suspend(made) == TWILL_ERR_BROKEN);
    twill_comm_leave(made);
}

/* --- readers outside the job -------------------------------------------------------------------
 */

/* A reader sees which communicators are suspended and what memory each has, and makes none. */
TWILL_TEST_ON(test_view, processes, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT)
{
    twill_comm *made = NULL;
    char message[256];
    const char *line;
    twill_job_view *view = NULL;
    int32_t pid[2], mine = getpid();
    int suspended = 0, out = 0, memory = 0;
    uint64_t mine_now[2], every[4], *of = &every[2]; /* rank 1's, of made and of comm */
    TWILL_CHECK(twill_test_fine(comm, twill_comm_dup(&made, comm)));
    TWILL_CHECK(works(comm, 0));
    TWILL_CHECK(works(made, 1) && twill_test_fine(made, twill_comm_suspend(made)));
    uint64_t before = usage_of(made).shared_bytes;
    mine_now[0] = before;
    mine_now[1] = usage_of(comm).shared_bytes;
    TWILL_CHECK(bootstrap->exchange(bootstrap->user, mine_now, every, sizeof(mine_now)) == 0);
    TWILL_CHECK(bootstrap->exchange(bootstrap->user, &mine, pid, sizeof(mine)) == 0);
    if (rank == 0)
        TWILL_CHECK(twill_job_view_open(&view, twill_test_text("%d", pid[1]), 100, message, 256) ==
                        TWILL_OK,
                    "%s", message);
    for (size_t i = 0; view != NULL && (line = twill_job_view_line(view, i)) != NULL; i++) {
        suspended +=
            strstr(line, twill_test_text("call\t1\t%u\t1\t2\tsuspended\t", made->number)) == line;
        out += strstr(line, twill_test_text("call\t1\t%u\t1\t2\tout\t", comm->number)) == line;
        unsigned of_rank, number;
        unsigned long long shared, most, own;
        if (sscanf(line, "memory\t%u\t%u\t%llu\t%llu\t%llu", &of_rank, &number, &shared, &most,
                   &own) != 5 ||
            of_rank != 1)
            continue;
        bool works_on = number == comm->number;
        memory += works_on || number == made->number;
        TWILL_CHECK(shared == of[works_on] && most > shared && (own > 0) == works_on, "%s", line);
    }
    TWILL_CHECK(rank > 0 || (suspended == 1 && out == 1 && memory == 2), "%d, %d, %d", suspended,
                out, memory);
    twill_job_view_close(view);
    TWILL_CHECK(twill_test_barrier(bootstrap));
    uint64_t after = usage_of(made).shared_bytes;
    TWILL_CHECK(after == before, "%llu, %llu before", (unsigned long long)after,
                (unsigned long long)before);
    TWILL_CHECK(twill_test_barrier(bootstrap)); /* a rank that resumes may write to the other */
    TWILL_CHECK(works(made, 2));
    twill_comm_destroy(made);
}
