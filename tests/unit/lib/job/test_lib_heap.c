/* SPDX-License-Identifier: Apache-2.0 */
/* Address space of a job, twill_alloc() when a rank's heap is full, and the messages when there is
 * too little. */
#include "fabric/shm/node_memory.h"
#include "lib/comm/comm.h"
#include "lib/job/context.h"
#include "lib/job/heap.h"
#include "tests/support/unit.h"

#include <sys/resource.h>

#define MIB ((size_t)1 << 20)

static size_t node_memory(void)
{
    return (size_t)sysconf(_SC_PHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
}

static size_t address_space(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (file != NULL && fscanf(file, "%lu", &pages) != 1)
        pages = 0;
    if (file != NULL)
        fclose(file);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

static bool sums(twill_comm *comm, float *at, int size)
{
    at[0] = at[9999] = 1;
    TWILL_REQUIRE(twill_allreduce(comm, at, at, 10000, TWILL_F32, TWILL_SUM) == TWILL_OK);
    TWILL_REQUIRE(at[0] == (float)size && at[9999] == (float)size);
    return true;
}

/* The heaps that ranks map of each other are smaller than the memory of the node. */
static void run_small(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_comm *comm;
    size_t before = address_space();
    TWILL_CHECK(twill_test_open(&comm, bootstrap, "", TWILL_TEST_PATIENT));
    size_t taken = address_space() - before, heap_bytes = comm->context->memory->heap.bytes;
    TWILL_CHECK(before > 0 && heap_bytes >= TWILL_HUGE_PAGE &&
                heap_bytes * (size_t)size <= node_memory());
    size_t room = comm->context->job.room * (size_t)size * (size_t)size; /* at most */
    TWILL_NOTE(taken > heap_bytes && taken <= node_memory() + room,
               "%d ranks take %zu MiB of address space, the node has %zu MiB of memory", size,
               taken / MIB, node_memory() / MIB);
    twill_test_close(comm);
}

TWILL_TEST(test_address_space)
{
    twill_test_run_processes(4, run_small, NULL);
    twill_test_run_processes(16, run_small, NULL);
    twill_test_run_mixed(8, 4, run_small, NULL);
}

static const bool when_empty[] = {false, true}; /* large memory first, while the heap is empty */

/* Memory beyond a rank's heap is private and works in calls; the heap is not affected. */
TWILL_TEST_CASES(test_spill, processes, when_empty, "4", TWILL_TEST_PATIENT)
{
    twill_context *context = comm->context;
    void *large = NULL, *small = NULL, *again = NULL;
    bool first = *c;
    const struct twill_heap *heap = &context->memory->heap;
    size_t beyond = heap->bytes + MIB;
    if (first)
        TWILL_CHECK(twill_alloc(context, &large, beyond) == TWILL_OK);
    TWILL_CHECK(twill_alloc(context, &small, 4 * MIB) == TWILL_OK);
    if (!first)
        TWILL_CHECK(twill_alloc(context, &large, beyond) == TWILL_OK);
    TWILL_CHECK(twill_heap_offset(heap, large, beyond) == TWILL_HEAP_NOWHERE);
    TWILL_CHECK(twill_heap_offset(heap, small, 4 * MIB) != TWILL_HEAP_NOWHERE);
    TWILL_CHECK(sums(comm, large, size) && sums(comm, small, size));
    TWILL_CHECK(sums(comm, rank == 0 ? large : small, size)); /* private on some ranks only */
    TWILL_CHECK(twill_alloc(context, &again, (size_t)1 << 60) == TWILL_ERR_MEMORY);
    TWILL_CHECK(strstr(twill_context_message(context), "that this rank shares") != NULL);
    TWILL_CHECK(twill_free(context, small) == TWILL_OK);
    TWILL_CHECK(twill_free(context, large) == TWILL_OK);
    TWILL_CHECK(twill_free(context, large) == TWILL_ERR_ARGUMENT);
    TWILL_CHECK(twill_alloc(context, &again, heap->bytes) == TWILL_OK); /* the whole heap */
    TWILL_CHECK(twill_heap_offset(heap, again, heap->bytes) == 0);
    TWILL_CHECK(twill_free(context, again) == TWILL_OK);
}

/* A limit that is set holds for private memory, too. */
TWILL_TEST_ON(test_limit, processes, TWILL_LAYOUTS("2"), TWILL_TEST_PATIENT,
              "TWILL_TUNE=heap_limit=4M")
{
    twill_context *context = comm->context;
    void *memory = NULL;
    TWILL_CHECK(twill_alloc(context, &memory, 5 * MIB) == TWILL_ERR_MEMORY && memory == NULL);
    TWILL_CHECK(strstr(twill_context_message(context), "TWILL_TUNE=heap_limit") != NULL);
    TWILL_CHECK(twill_alloc(context, &memory, 3 * MIB) == TWILL_OK);
    TWILL_CHECK(sums(comm, memory, size));
    TWILL_CHECK(twill_free(context, memory) == TWILL_OK);
}

/* Leave this process so much address space above what it has. */
static bool limit_address_space(size_t bytes)
{
    struct rlimit limit;
    TWILL_REQUIRE(getrlimit(RLIMIT_AS, &limit) == 0);
    limit.rlim_cur = address_space() + bytes;
    return setrlimit(RLIMIT_AS, &limit) == 0;
}

/* ulimit -v: the default heap fits; TWILL_TUNE=heap_limit that does not fit is named in the error.
 */
static void run_ulimit(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    bool *named = user;
    const char *settings[] = {TWILL_TEST_PATIENT, *named ? "TWILL_TUNE=heap_limit=8G" : NULL, NULL};
    twill_context *context = NULL;
    twill_comm *comm = NULL;
    TWILL_CHECK(limit_address_space((rank == 0 ? 600 : 4000) * MIB));
    if (!*named) {
        TWILL_CHECK(twill_test_connect(&context, &comm, bootstrap, "", NULL, settings));
        void *memory = NULL;
        TWILL_CHECK(comm->node->size == (uint32_t)size); /* they share memory */
        TWILL_CHECK(twill_alloc(context, &memory, 8 * MIB) == TWILL_OK);
        TWILL_CHECK(twill_heap_offset(&context->memory->heap, memory, 8 * MIB) !=
                    TWILL_HEAP_NOWHERE);
        TWILL_CHECK(sums(comm, memory, size));
    } else {
        TWILL_CHECK(twill_context_create(&context, bootstrap, settings) == TWILL_ERR_MEMORY);
        TWILL_CHECK(strstr(twill_context_message(context), "TWILL_TUNE=heap_limit") != NULL);
        TWILL_CHECK(strstr(twill_context_message(context), "rank 0") != NULL);
    }
    twill_test_disconnect(comm, context);
}

TWILL_TEST(test_ulimit)
{
    if (TEST_SLOW) /* sanitizers reserve terabytes of address space */
        skip();
    bool named[] = {false, true};
    for (int i = 0; i < 2; i++)
        twill_test_run_processes(4, run_ulimit, &named[i]);
}

/* Of many ranks, too: what a process maps grows with their number, not with its square, and all of
 * it is counted. A limit that cannot be is refused by all, with the sizes. */
static void run_many(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const size_t *left = user;
    const char *settings[] = {TWILL_TEST_PATIENT, NULL};
    twill_context *context = NULL;
    twill_comm *comm = NULL;
    TWILL_CHECK(limit_address_space(*left * MIB));
    if (*left >= 1000) {
        float sum = 0, one = (float)rank;
        TWILL_CHECK(twill_test_connect(&context, &comm, bootstrap, "", NULL, settings));
        TWILL_CHECK(comm->node->size == (uint32_t)size);
        TWILL_CHECK(twill_allreduce(comm, &one, &sum, 1, TWILL_F32, TWILL_SUM) == TWILL_OK &&
                    sum == (float)(size * (size - 1) / 2));
    } else {
        TWILL_CHECK(twill_context_create(&context, bootstrap, settings) == TWILL_ERR_MEMORY);
        TWILL_CHECK(strstr(twill_context_message(context), "that the 24 ranks of its node share") !=
                    NULL);
    }
    twill_test_disconnect(comm, context);
}

TWILL_TEST(test_ulimit_of_many)
{
    if (TEST_SLOW) /* sanitizers reserve terabytes of address space */
        skip();
    size_t lefts[] = {1000, 300};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(lefts); i++)
        twill_test_run_processes(24, run_many, &lefts[i]);
}
