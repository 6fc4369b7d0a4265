/* SPDX-License-Identifier: Apache-2.0 */
/* Counts are size_t: more than 2^31 elements in a call, 4 GiB per rank, between two processes. */
#include "tests/support/unit.h"

#define LARGE_COUNT ((size_t)1 << 31 | 12345)
#define EVERY       ((size_t)100003) /* one element in these is checked */

/* Small integers are exact in bf16, which is the upper half of the float's bits. */
static uint16_t bf16_of(int value)
{
    float x = (float)value;
    uint32_t bits;
    memcpy(&bits, &x, sizeof(bits));
    return (uint16_t)(bits >> 16);
}

/* Map memory in huge pages: most of the time would be page faults otherwise. */
static void *map_large(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static void reduce_many(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_comm *comm;
    TWILL_CHECK(
        twill_test_open(&comm, bootstrap, "", TWILL_TEST_PATIENT, "TWILL_TUNE=heap_limit=4M"));
    uint16_t *x = map_large(LARGE_COUNT * sizeof(*x));
    TWILL_CHECK(x != NULL);
    for (size_t i = 0; i < LARGE_COUNT; i += EVERY)
        x[i] = bf16_of(rank + 1 + (int)(i / EVERY % 50));
    x[LARGE_COUNT - 1] = bf16_of(7 * (rank + 1));
    twill_status status = twill_allreduce(comm, x, x, LARGE_COUNT, TWILL_BF16, TWILL_SUM);
    TWILL_CHECK(TWILL_NOTE(status == TWILL_OK, "%s", twill_comm_message(comm)));
    for (size_t i = 0; i < LARGE_COUNT - 1; i += EVERY) {
        int k = (int)(i / EVERY % 50);
        TWILL_CHECK(x[i] == bf16_of(size * (size + 1) / 2 + size * k));
        TWILL_CHECK(i == 0 || x[i - 1] == 0);
    }
    TWILL_CHECK(x[LARGE_COUNT - 1] == bf16_of(7 * size * (size + 1) / 2));
    munmap(x, LARGE_COUNT * sizeof(*x));
    twill_test_close(comm);
}

#define LARGE_SHARD ((size_t)1 << 30 | 4321) /* bytes; two of them are more than 2^31 */

static uint8_t byte_of(int rank, int shard, size_t i)
{
    return (uint8_t)(rank * 91 + shard * 57 + (int)(i / EVERY % 100) + 1);
}

static void put_bytes(uint8_t *at, int rank, int shard)
{
    for (size_t i = 0; i < LARGE_SHARD; i += EVERY)
        at[i] = byte_of(rank, shard, i);
    at[LARGE_SHARD - 1] = byte_of(rank, shard, 0);
}

static bool bytes_hold(const uint8_t *at, int rank, int shard)
{
    for (size_t i = 0; i < LARGE_SHARD - 1; i += EVERY)
        TWILL_REQUIRE(at[i] == byte_of(rank, shard, i) && (i == 0 || at[i - 1] == 0));
    return TWILL_NOTE(at[LARGE_SHARD - 1] == byte_of(rank, shard, 0), "the last byte of shard %d",
                      shard);
}

/* Shards that end beyond 2^31 elements: offsets are size_t, too. */
static void move_many(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    twill_comm *comm;
    TWILL_CHECK(
        twill_test_open(&comm, bootstrap, "", TWILL_TEST_PATIENT, "TWILL_TUNE=heap_limit=4M"));
    uint8_t *src = map_large(2 * LARGE_SHARD), *dst = map_large(2 * LARGE_SHARD);
    TWILL_CHECK(src != NULL && dst != NULL);
    for (int shard = 0; shard < size; shard++)
        put_bytes(src + (size_t)shard * LARGE_SHARD, rank, shard);
    TWILL_CHECK(twill_alltoall(comm, src, dst, LARGE_SHARD, TWILL_U8) == TWILL_OK);
    for (int from = 0; from < size; from++)
        TWILL_CHECK(bytes_hold(dst + (size_t)from * LARGE_SHARD, from, rank));
    TWILL_CHECK(twill_allgather(comm, src, dst, LARGE_SHARD, TWILL_U8) == TWILL_OK);
    for (int from = 0; from < size; from++)
        TWILL_CHECK(bytes_hold(dst + (size_t)from * LARGE_SHARD, from, 0));
    TWILL_CHECK(twill_reduce_scatter(comm, src, dst, LARGE_SHARD, TWILL_U8, TWILL_BOR) == TWILL_OK);
    TWILL_CHECK(dst[LARGE_SHARD - 1] == (byte_of(0, rank, 0) | byte_of(1, rank, 0)));
    munmap(src, 2 * LARGE_SHARD);
    munmap(dst, 2 * LARGE_SHARD);
    twill_test_close(comm);
}

TWILL_TEST(more_than_two_billion)
{
    size_t free_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
    if (TEST_ASAN || TEST_TSAN || free_bytes < (size_t)12 << 30) {
        print_message("needs 12 GiB of free memory, and no sanitizer\n");
        skip();
    }
    twill_test_run_processes(2, reduce_many, NULL);
    twill_test_run_processes(2, move_many, NULL);
}
