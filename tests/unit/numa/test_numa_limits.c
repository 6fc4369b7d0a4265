/* SPDX-License-Identifier: Apache-2.0 */
/* What limits pools, and what their log says of it: a process that may have little more memory,
 * where memkind is not loaded, as its jemalloc would end the process; the ranks of a host; a
 * machine that is not this one, or a container. */
#include "numa/memory_internal.h"
#include "tests/support/unit.h"

#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define LIMITS_MIB ((size_t)1 << 20)

/* The lines of a log. */
struct limits_log {
    unsigned lines;
    char last[512];
};

static void keep_line(void *user, const char *line)
{
    struct limits_log *log = user;
    log->lines++;
    snprintf(log->last, sizeof(log->last), "%s", line);
}

/* Let this process have this much more address space. Returns the limit before. */
static struct rlimit limit_memory(size_t bytes)
{
    struct rlimit before, scarce;
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    scarce = before;
    scarce.rlim_cur = pages * 4096 + bytes;
    assert_int_equal(setrlimit(RLIMIT_AS, &scarce), 0);
    return before;
}

/* Open a pool with little memory left, use it, and compare its log. */
static void check_pool(const struct twill_memory_policy *policy, const char *text)
{
    struct twill_error error = {0};
    struct limits_log lines = {.lines = 0};
    struct twill_log log = {
        .level = TWILL_LOG_WARN, .rank = -1, .print = keep_line, .user = &lines};
    struct twill_memory *memory;
    void *pointer = NULL;
    struct rlimit before = limit_memory(16 * LIMITS_MIB);
    twill_status opened = twill_memory_open(&memory, policy, 0, &log, &error);
    unsigned said = lines.lines;
    twill_status taken = twill_memory_alloc(memory, &pointer, 8192, &error);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(opened, TWILL_OK);
    assert_int_equal(taken, TWILL_OK);
    memset(pointer, 1, 8192);
    assert_int_equal(said, text != NULL);
    if (text != NULL)
        assert_non_null(strstr(lines.last, text));
    twill_memory_free(memory, pointer, 8192);
    twill_memory_close(memory);
}

TWILL_TEST(test_little_left)
{
    if (TEST_SLOW) /* sanitizers need all addresses */
        skip();
#ifdef TWILL_WITH_MEMKIND
    /* Preferred: the kernel spills over by itself, so that no other reason is logged. */
    check_pool(&(struct twill_memory_policy){.kind = TWILL_KIND_MCDRAM,
                                             .mode = TWILL_MODE_PREFERRED,
                                             .nodes = 1},
               "RLIMIT_AS leaves less");
#endif
    check_pool(&(struct twill_memory_policy){.kind = TWILL_KIND_DDR}, NULL);
}

/* Memory that is not placed, or only where it is by default, needs no library but the C library's.
 */
TWILL_TEST(test_loads_nothing)
{
    static const struct twill_memory_policy policies[] = {
        {.kind = TWILL_KIND_DDR}, {.kind = TWILL_KIND_MCDRAM, .nodes = 1, .automatic = true}};
    char line[512];
    bool loaded = false;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(policies); i++) {
        struct twill_error error = {0};
        struct twill_memory *memory;
        void *pointer;
        assert_int_equal(twill_memory_open(&memory, &policies[i], 0, NULL, &error), TWILL_OK);
        assert_int_equal(twill_memory_alloc(memory, &pointer, 4 * LIMITS_MIB, &error), TWILL_OK);
        assert_int_equal((uintptr_t)pointer % (2 * LIMITS_MIB), 0);
        twill_memory_close(memory);
    }
    FILE *maps = fopen("/proc/self/maps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        loaded = loaded || strstr(line, "memkind") != NULL;
    fclose(maps);
    assert_false(loaded);
}

/* Shares of ranks whose memory may be on several nodes, of which one was free_bytes each. */
TWILL_TEST(test_shares)
{
    enum { A = 1, B = 2 };
    static const struct {
        uint64_t user[3], library[3]; /* nodes; A and B have 600 bytes each */
        unsigned ranks;
        uint64_t share[3];
        bool prefers; /* the library's memory is not bound */
    } rows[] = {
        {{A}, {0}, 1, {600}, false},
        {{A, A}, {0}, 2, {300, 300}, false},
        {{A, B}, {0}, 2, {600, 600}, false},
        {{A | B, A | B}, {0}, 2, {600, 600}, false},
        {{A, A | B}, {0}, 2, {300, 300}, false},
        {{A, A | B, B}, {0}, 3, {300, 300, 300}, false},
        {{A, A | B, A}, {0}, 3, {200, 200, 200}, false},
        {{A, B, 0}, {0, A, 0}, 3, {300, 300, UINT64_MAX}, false},
        {{A, B, 0}, {0, A, 0}, 3, {300, 300, UINT64_MAX}, true},
        {{0}, {A, A}, 2, {UINT64_MAX, UINT64_MAX}, true},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++) {
        struct twill_memory_claims ranks[3];
        for (unsigned r = 0; r < rows[i].ranks; r++) {
            uint64_t u = rows[i].user[r], l = rows[i].library[r];
            ranks[r].user =
                (struct twill_memory_claim){u, 600u * (unsigned)__builtin_popcountll(u)};
            ranks[r].library = (struct twill_memory_claim){
                l, rows[i].prefers ? UINT64_MAX : 600u * (unsigned)__builtin_popcountll(l)};
        }
        for (unsigned r = 0; r < rows[i].ranks; r++)
            assert_int_equal(twill_memory_share(ranks, rows[i].ranks, r), rows[i].share[r]);
    }
}

/* Clean pages of files are free for who binds. */
TWILL_TEST(test_file_pages)
{
    static char text[] = "Node 1 MemTotal:         257692 kB\n"
                         "Node 1 MemFree:          100000 kB\n"
                         "Node 1 MemUsed:          157692 kB\n"
                         "Node 1 Active:            90100 kB\n"
                         "Node 1 Inactive:          60200 kB\n"
                         "Node 1 Active(anon):      90000 kB\n"
                         "Node 1 Active(file):        100 kB\n"
                         "Node 1 Inactive(file):    60000 kB\n"
                         "Node 1 Dirty:               300 kB\n"
                         "Node 1 Writeback:            50 kB\n"
                         "Node 1 FilePages:         60300 kB\n";
    FILE *file = fmemopen(text, strlen(text), "r");
    assert_non_null(file);
    assert_int_equal(twill_numa_free_in(file), (uint64_t)(100000 + 100 + 60000 - 300 - 50) << 10);
    fclose(file);
}

/* Two joined pools of a rank whose lines go to one log. */
struct limits_pair {
    struct twill_log log;
    struct limits_log lines;
    struct twill_memory *user, *library;
};

static void pair_open(struct limits_pair *pair, const struct twill_memory_policy *policy, int rank)
{
    struct twill_error error = {0};
    void *pointer;
    *pair = (struct limits_pair){
        .log = {.level = TWILL_LOG_WARN, .rank = rank, .print = keep_line, .user = &pair->lines}};
    assert_int_equal(twill_memory_open(&pair->user, policy, 0, &pair->log, &error), TWILL_OK);
    assert_int_equal(twill_memory_open(&pair->library, policy, 0, &pair->log, &error), TWILL_OK);
    twill_memory_join(pair->user, pair->library);
    assert_int_equal(twill_memory_alloc(pair->user, &pointer, LIMITS_MIB, &error), TWILL_OK);
    assert_int_equal(twill_memory_alloc(pair->library, &pointer, LIMITS_MIB, &error), TWILL_OK);
}

static void pair_close(struct limits_pair *pair)
{
    twill_memory_close(pair->user);
    twill_memory_close(pair->library);
}

/* A variable of hwloc's that describes another machine is named, once a job, not once a pool. */
TWILL_TEST(test_replaced_by_hwloc)
{
    struct twill_topology *topology;
    struct twill_error error = {0};
    struct twill_memory_policy policy;
    setenv("HWLOC_XMLFILE", test_data("topologies/vm-knl-quadrant-flat.xml"), 1);
    assert_int_equal(twill_topology_open(&topology, NULL, &error), TWILL_OK);
    unsetenv("HWLOC_XMLFILE");
    const struct twill_machine *machine = twill_topology_machine(topology);
    assert_int_equal(twill_memory_decide(&policy, "auto", machine, NULL, &error), TWILL_OK);
    twill_topology_close(topology);
    for (int rank = 0; rank < 2; rank++) {
        struct limits_pair pair;
        pair_open(&pair, &policy, rank);
        assert_int_equal(pair.lines.lines, rank == 0);
        if (rank == 0)
            assert_non_null(strstr(pair.lines.last, "HWLOC_XMLFILE describes another machine"));
        pair_close(&pair);
    }
}

/* A double of mbind(): what it was last asked for, once it is told to note that. */
static struct {
    bool notes;
    int mode;
    unsigned long mask[2], most;
} mbind_double;

__attribute__((visibility("default"))) long syscall(long number, ...)
{
    long (*its)(long, ...);
    unsigned long a[6];
    va_list arguments;
    va_start(arguments, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(arguments, unsigned long);
    va_end(arguments);
    *(void **)&its = dlsym(RTLD_NEXT, "syscall");
    if (number != SYS_mbind || !mbind_double.notes)
        return its(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    mbind_double.mode = (int)a[2];
    memcpy(mbind_double.mask, (const void *)a[3], sizeof(mbind_double.mask));
    mbind_double.most = a[4];
    return 0;
}

/* A NUMA node whose number no word of 64 bits has. */
TWILL_TEST(test_high_numbers)
{
    struct twill_topology *topology;
    struct twill_memory_policy policy;
    struct twill_memory *memory;
    struct twill_error error = {0};
    unsigned char *page = NULL;
    bool placed = false;
    assert_int_equal(twill_topology_open(&topology, "numa:2(indexes=3,70) pu:2", &error), TWILL_OK);
    assert_int_equal(
        twill_memory_decide(&policy, "mcdram", twill_topology_machine(topology), "3,70", &error),
        TWILL_OK);
    assert_true(policy.nodes == (twill_numa_bit(3) | twill_numa_bit(70)));
    assert_non_null(strstr(policy.why, "at NUMA 3,70"));
    policy.nominal = NULL; /* as if it were this machine */
    policy.automatic = true;
    assert_int_equal(twill_memory_open(&memory, &policy, 0, NULL, &error), TWILL_OK);
    assert_int_equal(twill_memory_map((void **)&page, 4096, 64), 0);
    mbind_double.notes = true;
    assert_int_equal(twill_memory_place(memory, page, 4096, &placed, &error), TWILL_OK);
    assert_true(placed && mbind_double.most > 71);
    assert_int_equal(mbind_double.mask[0], 1u << 3);
    assert_int_equal(mbind_double.mask[1], 1u << (70 - 64));
    assert_int_equal(twill_memory_near(page, 4096, 70), 0);
    assert_int_equal(mbind_double.mask[0], 0);
    assert_int_equal(mbind_double.mask[1], 1u << (70 - 64));
    mbind_double.notes = false;
    twill_memory_unplace(memory, 4096, placed);
    twill_memory_unmap(page, 4096);
    twill_memory_close(memory);
    twill_topology_close(topology);
}

/* What a container's filter of system calls does; it stays in this process. The line names call
 * and cause, and only rank 0 prints it. */
TWILL_TEST(test_mbind_not_permitted)
{
    const struct twill_memory_policy policy = {.kind = TWILL_KIND_MCDRAM, .nodes = 1};
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mbind, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog filter = {TWILL_ARRAY_LENGTH(steps), steps};
    assert_int_equal(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0)
        skip();
    for (int rank = 0; rank < 2; rank++) {
        struct limits_pair pair;
        pair_open(&pair, &policy, rank);
        assert_int_equal(pair.lines.lines, rank == 0);
        if (rank == 0)
            assert_non_null(strstr(pair.lines.last, "mbind() is not permitted, as in containers"));
        pair_close(&pair);
    }
}
