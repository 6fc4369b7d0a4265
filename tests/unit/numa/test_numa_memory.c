/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of this machine: limits, fallbacks, alignment, and where pages are. The program runs
 * itself again with MEMKIND_HBW_NODES=0, which makes NUMA node 0 high-bandwidth for memkind. */
#include "numa/memory.h"
#include "tests/support/machines.h"
#include "tests/support/placement.h"
#include "tests/support/unit.h"

#include <spawn.h>

#ifdef TWILL_WITH_MEMKIND
#include <hbwmalloc.h>
#endif

#define MIB         ((size_t)1 << 20)
#define MEMORY_PAGE 4096

/* Return whether this is the process with MEMKIND_HBW_NODES=0, which runs tests called hbw_*. */
static bool is_child(void)
{
    const char *only = getenv("TEST_ONLY");
    return only != NULL && strcmp(only, "hbw_*") == 0;
}

/* A pool with a log that counts lines. */
struct pool {
    struct twill_memory *memory;
    struct twill_log log;
    unsigned lines;
    char last[512];
};

static void count_line(void *user, const char *line)
{
    struct pool *pool = user;
    pool->lines++;
    snprintf(pool->last, sizeof(pool->last), "%s", line);
}

/* Return a log whose warnings are counted. */
static struct twill_log log_to(struct pool *pool)
{
    return (struct twill_log){
        .level = TWILL_LOG_WARN, .rank = -1, .print = count_line, .user = pool};
}

static void pool_open(struct pool *pool, enum twill_memory_kind kind, enum twill_memory_mode mode,
                      uint64_t nodes, uint64_t budget)
{
    struct twill_error error = {0};
    struct twill_memory_policy policy = {.kind = kind, .mode = mode, .nodes = nodes};
    *pool = (struct pool){.log = log_to(pool)};
    assert_int_equal(twill_memory_open(&pool->memory, &policy, budget, &pool->log, &error),
                     TWILL_OK);
}

static unsigned char *take_pool(struct pool *pool, size_t bytes)
{
    struct twill_error error = {0};
    void *pointer;
    if (twill_memory_alloc(pool->memory, &pointer, bytes, &error) != TWILL_OK)
        fail_msg("%s", error.message);
    assert_non_null(pointer);
    assert_int_equal((uintptr_t)pointer % (bytes >= 2 * MIB ? 2 * MIB : 64), 0);
    return pointer;
}

static void expect_stats(struct pool *pool, uint64_t hbw, uint64_t fallbacks)
{
    struct twill_memory_stats stats;
    twill_memory_stats(pool->memory, &stats);
    assert_int_equal(stats.bytes_hbw, hbw);
    assert_int_equal(stats.fallbacks, fallbacks);
    assert_true(stats.bytes >= hbw);
    assert_int_equal(pool->lines, fallbacks > 0);
}

TWILL_TEST(test_alignment_and_contents)
{
    struct pool pool;
    pool_open(&pool, TWILL_KIND_DDR, TWILL_MODE_PREFERRED, 0, 0);
    static const size_t sizes[] = {0,       1,           63,           64,  65,
                                   4095,    4096,        100000,       MIB, 2 * MIB - 1,
                                   2 * MIB, 2 * MIB + 1, 5 * MIB + 123};
    unsigned char *pointers[TWILL_ARRAY_LENGTH(sizes)];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++) {
        pointers[i] = take_pool(&pool, sizes[i]);
        for (size_t j = 0; j < i; j++)
            assert_ptr_not_equal(pointers[i], pointers[j]);
        memset(pointers[i], (int)i + 1, sizes[i]);
    }
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++) {
        if (sizes[i] > 0)
            assert_true(pointers[i][0] == i + 1 && pointers[i][sizes[i] - 1] == i + 1);
        twill_memory_free(pool.memory, pointers[i], sizes[i]);
    }
    struct twill_memory_stats stats;
    twill_memory_stats(pool.memory, &stats);
    assert_int_equal(stats.bytes, 0);
    expect_stats(&pool, 0, 0);
    twill_memory_free(pool.memory, NULL, 0);
    take_pool(&pool, 3 * MIB); /* close frees what is left */
    twill_memory_close(pool.memory);
    twill_memory_close(NULL);
}

TWILL_TEST(hbw_and_other_absurd_sizes)
{
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2, (size_t)1 << 60};
    for (int kind = TWILL_KIND_DDR; kind <= TWILL_KIND_MCDRAM; kind++) {
        struct pool pool;
        pool_open(&pool, (enum twill_memory_kind)kind, TWILL_MODE_BIND, kind == TWILL_KIND_MCDRAM,
                  0);
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(sizes); i++) {
            struct twill_error error = {0};
            void *pointer = &pool;
            assert_int_equal(twill_memory_alloc(pool.memory, &pointer, sizes[i], &error),
                             TWILL_ERR_MEMORY);
            assert_null(pointer);
            assert_true(strlen(error.message) > 0);
        }
        expect_stats(&pool, 0, 0);
        twill_memory_close(pool.memory);
    }
}

TWILL_TEST(test_where_counts_touched_pages)
{
    uint64_t pages[TWILL_MAX_NUMA], sum = 0;
    size_t bytes = 64 * MEMORY_PAGE;
    unsigned char *base =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(base, MAP_FAILED);
    assert_int_equal(madvise(base, bytes, MADV_NOHUGEPAGE), 0);
    assert_int_equal(test_memory_where(base, bytes, pages), 0);
    for (size_t i = 0; i < 5; i++)
        base[7 * i * MEMORY_PAGE] = 1;
    assert_int_equal(test_memory_where(base, bytes, pages), 5);
    for (unsigned i = 0; i < TWILL_MAX_NUMA; i++)
        sum += pages[i];
    assert_int_equal(sum, 5);
    assert_int_equal(test_memory_where(base + 100, 1, pages), 1);
    assert_int_equal(test_memory_where(base, 0, pages), 0);
    assert_true(test_memory_where(NULL, 1, pages) < 0);
    assert_true(test_memory_where(base, SIZE_MAX, pages) < 0);
    munmap(base, bytes);
}

/* New memory has no pages yet: the caller touches it first. */
static void check_untouched(struct pool *pool)
{
    uint64_t pages[TWILL_MAX_NUMA];
    size_t bytes = 16 * MIB;
    unsigned char *base = take_pool(pool, bytes);
    long found = test_memory_where(base, bytes, pages);
    assert_in_range(found, 0, 1); /* an allocator may store a word next to it */
    memset(base, 1, bytes);
    assert_int_equal(test_memory_where(base, bytes, pages), bytes / MEMORY_PAGE);
    twill_memory_free(pool->memory, base, bytes);
}

TWILL_TEST(test_alloc_touches_nothing)
{
    struct pool pool;
    pool_open(&pool, TWILL_KIND_DDR, TWILL_MODE_PREFERRED, 0, 0);
    check_untouched(&pool);
    twill_memory_close(pool.memory);
}

/* Beyond the budget memory is DDR: counted every time and logged once. */
static void check_budget(uint64_t nodes)
{
    struct pool pool;
    pool_open(&pool, TWILL_KIND_MCDRAM, TWILL_MODE_BIND, nodes, 8 * MIB);
    unsigned char *first = take_pool(&pool, 4 * MIB);
    expect_stats(&pool, 4 * MIB, 0);
    unsigned char *second = take_pool(&pool, 6 * MIB);
    expect_stats(&pool, 4 * MIB, 1);
    assert_non_null(strstr(pool.last, "budget"));
    unsigned char *third = take_pool(&pool, 6 * MIB);
    expect_stats(&pool, 4 * MIB, 2);
    twill_memory_free(pool.memory, second, 6 * MIB);
    expect_stats(&pool, 4 * MIB, 2);
    twill_memory_free(pool.memory, first, 4 * MIB);
    expect_stats(&pool, 0, 2);
    first = take_pool(&pool, 8 * MIB);
    expect_stats(&pool, 8 * MIB, 2);
    uint64_t pages[TWILL_MAX_NUMA];
    memset(first, 1, 8 * MIB);
    assert_int_equal(test_memory_where(first, 8 * MIB, pages), 8 * MIB / MEMORY_PAGE);
    assert_int_equal(pages[0], 8 * MIB / MEMORY_PAGE);
    assert_int_equal(policy_at(first, NULL), MPOL_BIND);
    memset(third, 1, 6 * MIB);
    assert_int_not_equal(policy_at(third, NULL), MPOL_BIND);
    twill_memory_close(pool.memory);
}

/* More than is free is not bound: the kernel would kill the process at first touch. */
static void check_free_limit(uint64_t nodes)
{
    struct pool pool;
    pool_open(&pool, TWILL_KIND_MCDRAM, TWILL_MODE_BIND, nodes, 0);
    size_t whole = twill_numa_free_bytes(0), two_thirds = whole / 3 * 2 / MEMORY_PAGE * MEMORY_PAGE;
    unsigned char *big = take_pool(&pool, whole);
    expect_stats(&pool, 0, 1);
    assert_non_null(strstr(pool.last, "free"));
    twill_memory_free(pool.memory, big, whole);
    /* Two large allocations are too much as well, although neither was touched. */
    take_pool(&pool, two_thirds);
    expect_stats(&pool, two_thirds, 1);
    take_pool(&pool, two_thirds);
    struct twill_memory_stats stats;
    twill_memory_stats(pool.memory, &stats);
    assert_int_equal(stats.fallbacks, 2);
    twill_memory_close(pool.memory);
}

/* Of four ranks that bind at once each is limited to a quarter, for both its pools together, before
 * a page is touched. */
TWILL_TEST(test_budget)
{
    if (!can_mbind())
        skip();
    struct pool one, two;
    pool_open(&one, TWILL_KIND_MCDRAM, TWILL_MODE_BIND, 1, 0);
    pool_open(&two, TWILL_KIND_MCDRAM, TWILL_MODE_BIND, 1, 0);
    twill_memory_join(one.memory, two.memory);
    size_t fifth = twill_numa_free_bytes(0) / 5 / MEMORY_PAGE * MEMORY_PAGE,
           half = fifth / 2 / MEMORY_PAGE * MEMORY_PAGE;
    take_pool(&one, 2 * fifth); /* not shared: allowed */
    expect_stats(&one, 2 * fifth, 0);
    twill_memory_close(one.memory);
    pool_open(&one, TWILL_KIND_MCDRAM, TWILL_MODE_BIND, 1, 0);
    twill_memory_join(one.memory, two.memory);
    struct twill_memory_claims ranks[4];
    for (unsigned r = 0; r < 4; r++) {
        twill_memory_claim(one.memory, &ranks[r].user);
        twill_memory_claim(two.memory, &ranks[r].library);
    }
    twill_memory_limit(one.memory, twill_memory_share(ranks, 4, 0));
    twill_memory_limit(two.memory, twill_memory_share(ranks, 4, 0));
    take_pool(&one, 2 * fifth);
    expect_stats(&one, 0, 1);
    assert_non_null(strstr(one.last, "this rank's share"));
    unsigned char *first = take_pool(&one, fifth);
    expect_stats(&one, fifth, 1);
    take_pool(&two, half); /* both pools together are limited */
    expect_stats(&two, 0, 1);
    twill_memory_free(one.memory, first, fifth);
    take_pool(&two, half);
    expect_stats(&two, half, 1);
    twill_memory_close(one.memory);
    twill_memory_close(two.memory);
}

/* Node 0 taken as MCDRAM: bound by mbind(), as memkind does not know it. */
TWILL_TEST(test_limits_by_mbind)
{
    if (!can_mbind())
        skip();
    check_budget(1);
    check_free_limit(1);
}

TWILL_TEST(test_joined_pools)
{
    if (!can_mbind())
        skip();
    struct pool one, two;
    pool_open(&one, TWILL_KIND_MCDRAM, TWILL_MODE_PREFERRED, 1, 8 * MIB);
    pool_open(&two, TWILL_KIND_MCDRAM, TWILL_MODE_PREFERRED, 1, 8 * MIB);
    twill_memory_join(one.memory, two.memory);
    take_pool(&one, 6 * MIB);
    expect_stats(&one, 6 * MIB, 0);
    take_pool(&two, 4 * MIB);
    expect_stats(&two, 0, 1);
    twill_memory_close(one.memory);
    take_pool(&two, 4 * MIB);
    expect_stats(&two, 4 * MIB, 1);
    twill_memory_close(two.memory);
}

TWILL_TEST(test_place)
{
    static const struct {
        enum twill_memory_mode mode;
        int kernel;
    } modes[] = {{TWILL_MODE_PREFERRED, MPOL_PREFERRED},
                 {TWILL_MODE_BIND, MPOL_BIND},
                 {TWILL_MODE_INTERLEAVE, MPOL_INTERLEAVE}};
    if (!can_mbind())
        skip();
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(modes); i++) {
        struct pool pool;
        struct twill_error error = {0};
        uint64_t pages[TWILL_MAX_NUMA];
        size_t bytes = 4 * MIB;
        bool placed;
        int fd = memfd_create("place", 0);
        assert_int_equal(ftruncate(fd, (off_t)bytes), 0);
        unsigned char *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(base, MAP_FAILED);
        pool_open(&pool, TWILL_KIND_MCDRAM, modes[i].mode, 1, 5 * MIB);
        assert_int_equal(twill_memory_place(pool.memory, base, bytes, &placed, &error), TWILL_OK);
        expect_stats(&pool, bytes, 0);
        assert_int_equal(policy_at(base, NULL), modes[i].kernel);
        assert_int_equal(test_memory_where(base, bytes, pages), 0);
        base[0] = base[bytes - 1] = 1;
        long found = test_memory_where(base, bytes, pages);
        assert_true(found >= 2 && pages[0] == (uint64_t)found);
        /* Over the budget: still usable, in DDR. */
        assert_int_equal(twill_memory_place(pool.memory, base, bytes, &placed, &error), TWILL_OK);
        expect_stats(&pool, bytes, 1);
        assert_int_equal(twill_memory_place(pool.memory, base + 1, 1, &placed, &error),
                         TWILL_ERR_ARGUMENT);
        assert_false(placed);
        twill_memory_unplace(pool.memory, bytes, true);
        expect_stats(&pool, 0, 1);
        twill_memory_unplace(pool.memory, bytes, false);
        expect_stats(&pool, 0, 1);
        twill_memory_close(pool.memory);
        munmap(base, bytes);
        close(fd);
    }
}

/* For a node that does not exist the kernel refuses: the caller gets DDR, which is counted. */
TWILL_TEST(test_missing_node)
{
    for (int mode = TWILL_MODE_PREFERRED; mode <= TWILL_MODE_INTERLEAVE; mode++) {
        struct pool pool;
        pool_open(&pool, TWILL_KIND_MCDRAM, (enum twill_memory_mode)mode, UINT64_C(1) << 63, 0);
        memset(take_pool(&pool, 3 * MIB), 1, 3 * MIB);
        expect_stats(&pool, 0, 1);
        twill_memory_close(pool.memory);
    }
}

/* With a policy for a recorded KNL nothing is bound on this machine, and that is logged. */
TWILL_TEST(test_replaced_machine)
{
    struct twill_topology *topology = open_recorded("vm-knl-quadrant-flat.xml");
    struct twill_error error = {0};
    struct twill_memory_policy policy;
    struct pool pool = {.log = log_to(&pool)};
    assert_int_equal(
        twill_memory_decide(&policy, "mcdram:bind", twill_topology_machine(topology), NULL, &error),
        TWILL_OK);
    twill_topology_close(topology);
    assert_int_equal(twill_memory_open(&pool.memory, &policy, 0, &pool.log, &error), TWILL_OK);
    unsigned char *base = take_pool(&pool, 4 * MIB);
    memset(base, 1, 4 * MIB);
    expect_stats(&pool, 0, 1);
    assert_non_null(strstr(pool.last, "TWILL_LAYOUT=topology"));
    assert_int_not_equal(policy_at(base, NULL), MPOL_BIND);
    twill_memory_close(pool.memory);
}

/* Memory of a file, as ranks of a node share it, is placed, too, and through another mapping of it
 * pages come from the same nodes. */
static void check_shared(struct pool *pool, enum twill_memory_mode mode)
{
    static const int modes[] = {[TWILL_MODE_PREFERRED] = MPOL_PREFERRED,
                                [TWILL_MODE_BIND] = MPOL_BIND,
                                [TWILL_MODE_INTERLEAVE] = MPOL_INTERLEAVE};
    struct twill_error error = {0};
    uint64_t nodes = 0, pages[TWILL_MAX_NUMA];
    size_t bytes = 2 * MIB;
    bool placed;
    int file = memfd_create("twill-test", MFD_CLOEXEC);
    assert_true(file >= 0 && ftruncate(file, (off_t)bytes) == 0);
    unsigned char *mine = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    unsigned char *other = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(mine != MAP_FAILED && other != MAP_FAILED);
    assert_int_equal(twill_memory_place(pool->memory, mine, bytes, &placed, &error), TWILL_OK);
    memset(other, 1, bytes);
    assert_int_equal(policy_at(mine, &nodes), modes[mode]);
    assert_int_equal(nodes, 1);
    assert_int_equal(test_memory_where(other, bytes, pages), bytes / MEMORY_PAGE);
    assert_int_equal(pages[0], bytes / MEMORY_PAGE);
#ifdef TWILL_WITH_MEMKIND
    assert_int_equal(hbw_verify_memory_region(mine, bytes, HBW_TOUCH_PAGES), 0);
#endif
    assert_true(placed);
    twill_memory_unplace(pool->memory, bytes, true);
    munmap(mine, bytes);
    munmap(other, bytes);
    close(file);
}

/* In the child with MEMKIND_HBW_NODES=0: decide, bind, and compare with what memkind says. */
TWILL_TEST(hbw_by_decree)
{
    if (!is_child())
        skip();
    struct twill_topology *topology;
    struct twill_error error = {0};
    struct twill_memory_policy policy;
    assert_int_equal(twill_topology_open(&topology, NULL, &error), TWILL_OK);
    static const char *const words[] = {"mcdram:bind", "mcdram", "mcdram:interleave"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(words); i++) {
        struct pool pool = {.log = log_to(&pool)};
        assert_int_equal(twill_memory_decide(&policy, words[i], twill_topology_machine(topology),
                                             getenv("MEMKIND_HBW_NODES"), &error),
                         TWILL_OK);
        assert_int_equal(policy.nodes, 1);
        assert_int_equal(twill_memory_open(&pool.memory, &policy, 0, &pool.log, &error), TWILL_OK);
        uint64_t sum = 0;
        for (size_t bytes = 64; bytes <= 8 * MIB; bytes *= 8) {
            uint64_t pages[TWILL_MAX_NUMA];
            unsigned char *base = take_pool(&pool, bytes);
            sum += (bytes + MEMORY_PAGE - 1) / MEMORY_PAGE * MEMORY_PAGE;
            memset(base, 1, bytes);
            long found = test_memory_where(base, bytes, pages);
            assert_true(found >= 1 && pages[0] == (uint64_t)found);
#ifdef TWILL_WITH_MEMKIND
            assert_int_equal(hbw_verify_memory_region(base, bytes, HBW_TOUCH_PAGES), 0);
#endif
        }
        expect_stats(&pool, sum, 0);
        check_untouched(&pool);
        check_shared(&pool, policy.mode);
        twill_memory_close(pool.memory);
    }
    twill_topology_close(topology);
}

TWILL_TEST(hbw_limits)
{
    if (!is_child())
        skip();
    check_budget(1);
    check_free_limit(1);
}

/* memkind reads its variable once per process, so another value needs another process. */
TWILL_TEST(test_with_hbw_nodes)
{
    if (!can_mbind())
        skip();
    /* Not fork(): jemalloc takes all its locks there, more than the thread sanitizer can count. */
    pid_t child;
    char *const arguments[] = {"test_numa_memory", NULL};
    setenv("MEMKIND_HBW_NODES", "0", 1);
    setenv("TEST_ONLY", "hbw_*", 1);
    assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ), 0);
    unsetenv("MEMKIND_HBW_NODES");
    unsetenv("TEST_ONLY");
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int forget_hbw_nodes(void **state)
{
    return is_child() ? 0 : unsetenv("MEMKIND_HBW_NODES");
}

TWILL_TEST_GROUP(forget_hbw_nodes, NULL)
