/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share cores spread over them: which CPU is whose, that a thread is moved there at the
 * start of each large call, now and then in small ones, and that it may run where it could before.
 */
#include "lib/comm/comm.h"
#include "lib/engine/spread_ranks.h"
#include "tests/support/placement.h"
#include "tests/support/unit.h"

enum { RANKS = 3, CPUS = 2, LARGE = 1 << 20, FEW = 1000, MANY = 1000000 };

/* The CPUs of this test: the first two that the process may run on. */
struct two_cpus {
    cpu_set_t all, both;
    int cpu[CPUS];
    const char *setting;
};

/* While it counts, a thread is told that it runs `at`: -1, so that it is always moved, or a CPU. */
static _Thread_local struct {
    bool counts;
    int at;
    bool unbound; /* it was to run on all CPUs, as a thread does without a mask of its own */
    unsigned moves;
    int cpu; /* of the last move */
} moved;

/* CMakeLists.txt puts these in place of the library's calls. */
int __real_sched_getcpu(void);
int __wrap_sched_getcpu(void);
int __real_sched_setaffinity(pid_t thread, size_t bytes, const cpu_set_t *set);
int __wrap_sched_setaffinity(pid_t thread, size_t bytes, const cpu_set_t *set);

int __wrap_sched_getcpu(void)
{
    return moved.counts ? moved.at : __real_sched_getcpu();
}

int __wrap_sched_setaffinity(pid_t thread, size_t bytes, const cpu_set_t *set)
{
    if (moved.counts && CPU_COUNT(set) == 1) {
        moved.moves++;
        for (moved.cpu = 0; !CPU_ISSET((size_t)moved.cpu, set); moved.cpu++)
            ;
    }
    moved.unbound = moved.unbound || CPU_COUNT(set) == CPU_SETSIZE;
    return __real_sched_setaffinity(thread, bytes, set);
}

/* Let the process run on two CPUs, or skip the test. */
static void take_two(struct two_cpus *two)
{
    if (!twill_test_two_pus(two->cpu))
        skip();
    CPU_ZERO(&two->both);
    for (unsigned i = 0; i < CPUS; i++)
        CPU_SET((size_t)two->cpu[i], &two->both);
    assert_int_equal(sched_getaffinity(0, sizeof(two->all), &two->all), 0);
    assert_int_equal(sched_setaffinity(0, sizeof(two->both), &two->both), 0);
}

static void give_all(const struct two_cpus *two)
{
    assert_int_equal(sched_setaffinity(0, sizeof(two->all), &two->all), 0);
}

static bool may_run_on(const cpu_set_t *set)
{
    cpu_set_t now;
    return sched_getaffinity(0, sizeof(now), &now) == 0 && CPU_EQUAL(&now, set);
}

/* Move this thread, which is told that it runs on CPU `at`. Returns how often it was moved. */
static unsigned move_from(int at, const struct twill_cpu_share *share)
{
    moved.moves = 0;
    moved.unbound = false;
    moved.at = at;
    moved.counts = true;
    twill_spread_move(share);
    moved.counts = false;
    return moved.moves;
}

TWILL_TEST(test_moves)
{
    static const struct {
        uint32_t index, ranks;
        unsigned cpu;
    } rows[] = {{0, 3, 0}, {1, 3, 0}, {2, 3, 1}, {1, 4, 0}, {2, 4, 1}, {3, 4, 1}, {4, 5, 1}};
    struct two_cpus two;
    take_two(&two);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++) {
        struct twill_cpu_share share = {
            .index = rows[i].index, .ranks = rows[i].ranks, .cpus = CPUS};
        int to = two.cpu[rows[i].cpu], from = two.cpu[1 - rows[i].cpu];
        assert_int_equal(move_from(from, &share), 1);
        assert_int_equal(moved.cpu, to);
        assert_true(moved.unbound && may_run_on(&two.both));
        assert_int_equal(move_from(to, &share), 0);
    }
    /* A thread that has been bound since stays where it is. */
    struct twill_cpu_share last = {.index = 2, .ranks = 3, .cpus = CPUS};
    twill_test_bind(two.cpu[0]);
    assert_int_equal(move_from(-1, &last), 0);
    give_all(&two);
}

/* Yield at a time: the core was a waiting rank's. Returns how often this thread was moved. */
static unsigned share_core(struct twill_cpu_share *share, uint64_t now)
{
    moved.moves = 0;
    moved.at = -1;
    moved.counts = true;
    twill_spread_while_shared(share, now);
    moved.counts = false;
    return moved.moves;
}

/* How often small calls look, in ticks of a nanosecond. */
TWILL_TEST(test_looks)
{
    const uint64_t least = 10000001, most = 10000000001; /* ns, rounded up */
    struct twill_cpu_share share = {.index = 1, .ranks = 3, .cpus = CPUS};
    struct two_cpus two;
    take_two(&two);
    twill_spread_set_clock(&share, 1.0);
    uint64_t now = 1;
    assert_int_equal(share_core(&share, now), 1);
    assert_int_equal(share_core(&share, now + least - 1), 0);
    assert_int_equal(share_core(&share, now += least), 1);
    /* A move that leads to another job's core doubles the time to the next one, up to 10 s. */
    for (uint64_t hold = 2 * least; hold < 4 * most; hold *= 2) {
        uint64_t held = twill_min(hold, most);
        twill_spread_put_off(&share, now);
        assert_int_equal(share_core(&share, now + held - 1), 0);
        assert_int_equal(share_core(&share, now += held), 1);
    }
    /* Another job that comes without a move does not. */
    struct twill_cpu_share still = {.index = 1, .ranks = 3, .cpus = CPUS};
    twill_spread_set_clock(&still, 1.0);
    for (unsigned i = 0; i < 8; i++)
        twill_spread_put_off(&still, now);
    assert_int_equal(share_core(&still, now + least), 1);
    /* Ranks with a core each are never moved. */
    struct twill_cpu_share alone = {0};
    assert_int_equal(share_core(&alone, now + most), 0);
    give_all(&two);
}

/* Reduce `count` numbers in place, and count how often this thread is moved to a CPU. */
static void reduce_and_count(twill_comm *comm, uint64_t *values, size_t count)
{
    moved.moves = 0;
    moved.at = -1;
    moved.counts = true;
    twill_status status = twill_allreduce(comm, values, values, count, TWILL_U64, TWILL_MAX);
    moved.counts = false;
    TWILL_CHECK_OK(&comm->error, status);
}

/* Make small calls until any rank was moved in one, or `calls` have ended: as expected. */
static void try_small(twill_comm *comm, unsigned calls, bool expected)
{
    uint64_t any = 0;
    for (unsigned i = 0; i < calls && any == 0; i++) {
        reduce_and_count(comm, &any, 1);
        any = moved.moves > 0;
        TWILL_CHECK_OK(&comm->error, twill_allreduce(comm, &any, &any, 1, TWILL_U64, TWILL_MAX));
    }
    TWILL_CHECK((any != 0) == expected);
}

static void sharing_rank(int rank, int size, twill_bootstrap *bootstrap, void *user)
{
    const struct two_cpus *two = user;
    bool shares = size > CPUS && strstr(two->setting, "off") == NULL;
    uint64_t *values = malloc(LARGE);
    twill_comm *comm;
    if (twill_test_open(&comm, bootstrap, "", two->setting, TWILL_TEST_PATIENT) && values != NULL) {
        const struct twill_cpu_share *share = comm->tuning.share;
        TWILL_CHECK(share->cpus == (shares ? CPUS : 0));
        TWILL_CHECK(share->index == (uint32_t)rank && share->ranks == (uint32_t)size);
        for (unsigned turn = 0; turn < 4; turn++) {
            size_t count = LARGE / sizeof(*values);
            for (size_t i = 0; i < count; i++)
                values[i] = (uint64_t)rank + i;
            reduce_and_count(comm, values, count);
            TWILL_CHECK((moved.moves > 0) == shares);
            TWILL_CHECK(!shares || moved.cpu == two->cpu[rank * CPUS / RANKS]);
            size_t wrong = 0;
            for (size_t i = 0; i < count; i++)
                wrong += values[i] != (uint64_t)size - 1 + i;
            TWILL_CHECK(wrong == 0);
            TWILL_CHECK(may_run_on(&two->both));
        }
        try_small(comm, shares ? MANY : FEW, shares);
    }
    (void)twill_test_barrier(bootstrap);
    free(values);
    twill_test_close(comm);
}

TWILL_TEST(test_calls)
{
    struct two_cpus two;
    take_two(&two);
    two.setting = "TWILL_TUNE=spread=auto";
    twill_test_run_ranks(RANKS, sharing_rank, &two);
    twill_test_run_ranks(CPUS, sharing_rank, &two); /* a core for each */
    two.setting = "TWILL_TUNE=spread=off";
    twill_test_run_ranks(RANKS, sharing_rank, &two);
    give_all(&two);
}
