/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory among ranks: it is shared, or it is not where that is impossible, and all ranks
 * agree on it. */
#include "fabric/shm/fd_passing.h"
#include "fabric/shm/mapping.h"
#include "lib/base/base.h"
#include "tests/support/noise.h"
#include "tests/support/scarce.h"
#include "tests/support/shared_ranks.h"
#include "tests/support/unit.h"

#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

static int mappings_named(const char *name)
{
    char line[512];
    int count = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        count += strstr(line, name) != NULL;
    if (maps != NULL)
        fclose(maps);
    return count;
}

static void shared_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct twill_test_share o;
    (void)twill_test_shares(&o, caller, user, TWILL_TEST_SHARE_BYTES - 100);
    twill_test_share_end(&o);
}

TWILL_TEST(test_shared)
{
    uint32_t labels[][6] = {
        {0}, {9, 9, 9, 9, 9, 9}, {7, 3, 7, 3, 3, 7}, {0, 1, 2, 3, 4, 5}, {5, 5, 5, 5, 2, 1}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(labels); i++) {
        int size = i == 0 ? 1 : 6;
        int descriptors = twill_test_open_files();
        twill_test_run_ranks(size, shared_rank, labels[i]);
        assert_int_equal(twill_test_open_files(), descriptors);
        assert_int_equal(mappings_named("memfd:twill-comm"), 0);
        twill_test_run_processes(size, shared_rank, labels[i]);
        twill_test_run_mixed(size, 2, shared_rank, labels[i]);
        twill_test_run_mixed(size, 4, shared_rank, labels[i]);
    }
}

/* Many processes: no descriptor is left open in any of them, and the memory has its name. */
TWILL_TEST_OF_PROCESSES(test_tidy, 24)
{
    static const uint32_t label[TWILL_TEST_SHARE_RANKS];
    int before = twill_test_open_files();
    struct twill_test_share o;
    (void)twill_test_shares(&o, bootstrap, label, TWILL_TEST_SHARE_BYTES);
    /* Of each other rank its memory, and what it has for this one only. */
    TWILL_NOTE(mappings_named("memfd:twill-comm") == 2 * size - 1, "%d mappings are named",
               mappings_named("memfd:twill-comm"));
    /* What shows who lives, however many ranks there are. */
    TWILL_NOTE(twill_test_open_files() == before + 1, "%d descriptors",
               twill_test_open_files() - before);
    twill_test_share_end(&o);
    TWILL_NOTE(twill_test_open_files() == before && mappings_named("memfd:twill-comm") == 0,
               "something is left");
}

/* Close this rank's memory while the others still use theirs. */
static void close_early(struct twill_test_share *o)
{
    twill_shm_region_close(o->region);
    o->region = NULL;
}

/* Threads use each other's mappings, also when the owner has closed. */
TWILL_TEST_OF_RANKS(test_outlive, 2)
{
    static const uint32_t label[2];
    struct twill_test_share o;
    TWILL_CHECK(twill_test_shares(&o, bootstrap, label, TWILL_TEST_SHARE_BYTES));
    unsigned char *mine = twill_shm_region_at(o.region, (uint32_t)rank);
    mine[5] = 42;
    TWILL_CHECK(twill_test_share_barrier(&o));
    if (rank == 0)
        close_early(&o);
    TWILL_CHECK(twill_test_share_barrier(&o));
    if (rank == 1) {
        const unsigned char *other = twill_shm_region_at(o.region, 0);
        TWILL_CHECK(other[5] == 42, "memory is gone");
    }
    twill_test_share_end(&o);
}

/* Without /proc threads still recognise one process: when one closes, the others are not taken for
 * dead. */
static void blind_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    static const uint32_t label[4];
    bool blind[4], mine = unshare(CLONE_NEWNS) == 0 &&
                          mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                          mount("tmpfs", "/proc", "tmpfs", 0, NULL) == 0;
    TWILL_CHECK(size == 4 && caller->exchange(caller->user, &mine, blind, sizeof(mine)) == 0);
    if (!blind[0] || !blind[1] || !blind[2] || !blind[3])
        return;
    struct twill_test_share o;
    TWILL_CHECK(twill_test_shares(&o, caller, label, TWILL_TEST_SHARE_BYTES));
    if (rank == 1)
        close_early(&o);
    TWILL_CHECK(twill_test_share_barrier(&o));
    TWILL_CHECK(rank < 2 || !twill_shm_region_owner_dead(o.region, 0), "rank 0 seems to be dead");
    TWILL_CHECK(twill_test_share_barrier(&o));
    twill_test_share_end(&o);
}

TWILL_TEST(test_blind)
{
    twill_test_run_mixed(4, 2, blind_rank, NULL);
}

/* --- memory that cannot be shared ------------------------------------------------------------ */

struct obstacle {
    bool (*obstruct)(void); /* sets up the obstacle on rank 1; false: not possible here */
    const char *says;
    bool own; /* only that rank's process is affected */
};

/* Of {0,0,0,4,4} ranks 0 to 2 end up alone, and 3 and 4 together; every rank sees that. */
static void obstacle_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct obstacle *obstacle = user;
    uint32_t label[5] = {0, 0, 0, 4, 4};
    bool possible[5], mine = rank != 1 || obstacle->obstruct();
    TWILL_CHECK(size == 5 && caller->exchange(caller->user, &mine, possible, sizeof(mine)) == 0);
    if (!possible[1])
        return;
    struct twill_test_share o;
    uint32_t all[25];
    twill_test_share(&o, caller, label, TWILL_TEST_SHARE_BYTES);
    TWILL_CHECK(o.status == TWILL_OK && o.why != NULL && strstr(o.why, obstacle->says) != NULL,
                "rank %d: %d, %s: %s", rank, o.status, o.why, o.error.message);
    TWILL_CHECK(!obstacle->own || strncmp(o.why, "rank 1: ", 8) == 0 ||
                    strncmp(o.why, "rank 0: ", 8) == 0, /* of the same process */
                "rank %d: %s", rank, o.why);
    for (int a = 0; a < size; a++)
        for (int b = 0; b < a; b++)
            TWILL_CHECK((o.label[a] == o.label[b]) == (b == 3), "labels of %d and %d", a, b);
    TWILL_CHECK(caller->exchange(caller->user, o.label, all, 5 * sizeof(uint32_t)) == 0 &&
                    memcmp(all, o.label, 5 * sizeof(uint32_t)) == 0,
                "rank 0 has other labels than rank %d", rank);
    twill_test_is_shared(&o, o.label);
    twill_test_share_end(&o);
}

static bool limit_to(int what, rlim_t n)
{
    struct rlimit limit = {.rlim_cur = n, .rlim_max = n};
    return setrlimit(what, &limit) == 0;
}

static bool small_files(void)
{
    return limit_to(RLIMIT_FSIZE, 65536);
}

/* Enough descriptors to listen, too few to receive the others' files. */
static bool few_descriptors(void)
{
    int top = dup(0);
    close(top);
    return top >= 0 && limit_to(RLIMIT_NOFILE, (rlim_t)top + 3);
}

static bool no_descriptors(void)
{
    return limit_to(RLIMIT_NOFILE, 0);
}

static bool no_random(void)
{
    scarce_random = true;
    return true;
}

static bool other_network(void)
{
    return unshare(CLONE_NEWNET) == 0;
}

static bool other_user(void)
{
    return geteuid() == 0 && setresuid(65534, 65534, 65534) == 0;
}

TWILL_TEST(test_obstacles)
{
    struct obstacle obstacles[] = {{small_files, "ulimit -f", true},
                                   {few_descriptors, "ulimit -n", true},
                                   {no_descriptors, "ulimit -n", true},
                                   {no_random, "getrandom", true},
                                   {other_network, "network namespaces", false},
                                   {other_user, "different users", false}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(obstacles); i++) {
        twill_test_run_processes(5, obstacle_rank, &obstacles[i]);
        twill_test_run_mixed(5, 2, obstacle_rank, &obstacles[i]);
    }
}

TWILL_TEST(test_no_memory)
{
    struct twill_fd_passing fd_passing = {.listener = -1};
    if (TEST_SLOW)
        skip();
    scarce_memory = 0;
    enum twill_share_cause cause = twill_fd_passing_exchange(&fd_passing);
    scarce_memory = -1;
    assert_string_equal(twill_share_cause_text(cause), "out of memory");
}

/* --- errors ---------------------------------------------------------------------------------- */

struct wrong {
    size_t bytes[3];
    twill_status status;
    const char *says;
};

static void wrong_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct wrong *wrong = user;
    uint32_t label[3] = {1, 1, 1};
    struct twill_test_share o;
    twill_test_share(&o, caller, label, wrong->bytes[rank]);
    TWILL_NOTE(size == 3 && o.status == wrong->status && o.region == NULL &&
                   strstr(o.error.message, wrong->says) != NULL,
               "rank %d: %d: %s", rank, o.status, o.error.message);
    twill_test_share_end(&o);
}

TWILL_TEST(test_errors)
{
    size_t too_much = (size_t)1 << 47;
    struct wrong cases[] = {
        {{TWILL_TEST_SHARE_BYTES, 2 * TWILL_TEST_SHARE_BYTES, TWILL_TEST_SHARE_BYTES},
         TWILL_ERR_MISMATCH,
         "rank 1 shares"},
        {{TWILL_TEST_SHARE_BYTES, TWILL_TEST_SHARE_BYTES, too_much}, TWILL_ERR_MEMORY, "rank 2"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        int descriptors = twill_test_open_files();
        twill_test_run_ranks(3, wrong_rank, &cases[i]);
        assert_int_equal(twill_test_open_files(), descriptors);
        twill_test_run_processes(3, wrong_rank, &cases[i]);
    }
}

/* A rank that never arrives: an error for the others, as soon as the bootstrap detects it. */
static void absent_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    uint32_t label[3] = {0};
    if (rank == 2)
        return;
    struct twill_test_share o;
    twill_test_share(&o, caller, label, TWILL_TEST_SHARE_BYTES);
    TWILL_NOTE(o.status == TWILL_ERR_BOOTSTRAP && o.region == NULL, "rank %d: %d: %s", rank,
               o.status, o.error.message);
    twill_test_share_end(&o);
}

TWILL_TEST(test_absent)
{
    twill_test_run_processes(3, absent_rank, NULL);
    int descriptors = twill_test_open_files();
    twill_test_run_ranks(3, absent_rank, NULL);
    assert_int_equal(twill_test_open_files(), descriptors);
}

/* A core dump does not contain reserved memory: the mapping that begins here has the flag "dd". */
static bool is_dumped(const void *start)
{
    char line[512];
    unsigned long from, to;
    bool ours = false, dumped = true;
    FILE *file = fopen("/proc/self/smaps", "r");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2)
            ours = from == (unsigned long)(uintptr_t)start;
        if (ours && strncmp(line, "VmFlags:", 8) == 0)
            dumped = strstr(line, " dd") == NULL;
    }
    fclose(file);
    return dumped;
}

TWILL_TEST(test_dumps)
{
    size_t bytes = 4 * TWILL_HUGE_PAGE;
    void *at = twill_mapping_map(-1, bytes);
    assert_true(at != MAP_FAILED);
    assert_false(is_dumped(at));
    assert_true(is_dumped(NULL)); /* no such mapping: the check can fail */
    munmap(at, bytes);
}

/* --- passing descriptors ---------------------------------------------------------------------- */

/* Another user who listens under the name of a rank's socket, which anybody may once that rank has
 * closed it, gets no byte of the rank that calls, and so no descriptor; a rank that only waits for
 * a call finds that its peer does not listen any more. */

#define NOBODY    65534
#define PEER_NAME 0xabcdefu

enum { TOLD_NOTHING, TOLD_SOMETHING, CANNOT_LISTEN };

/* Listen as the other rank would, by the name that /proc/net/unix shows. Returns a socket, or -1.
 */
static int listen_as_rank(const struct twill_oob *oob)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    size_t used = 1 + (size_t)sprintf(at.sun_path + 1, "twill-");
    for (size_t i = 0; i < sizeof(oob->nonce); i++)
        used += (size_t)sprintf(at.sun_path + used, "%02x", oob->nonce[i]);
    used += (size_t)sprintf(at.sun_path + used, "-%d-%x", 1 - oob->rank, PEER_NAME);
    if (bind(fd, (struct sockaddr *)&at,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + used)) != 0 ||
        listen(fd, 8) != 0)
        return -1;
    return fd;
}

/* The impostor: as another user, wait for a call and for what the caller says. */
static int await_call(const struct twill_oob *oob, int ready)
{
    char byte = 0;
    if (setresuid(NOBODY, NOBODY, NOBODY) != 0)
        return CANNOT_LISTEN;
    int fd = listen_as_rank(oob);
    if (fd < 0 || write(ready, &byte, 1) != 1)
        return CANNOT_LISTEN;
    (void)alarm((unsigned)(TWILL_TEST_PATIENCE / 1000000000)); /* the caller may not come */
    int caller = accept(fd, NULL, NULL);
    return recv(caller, &byte, 1, 0) > 0 ? TOLD_SOMETHING : TOLD_NOTHING;
}

/* Rank 1 calls rank 0, which waits for it. */
static void share_with_impostor(int rank)
{
    struct twill_oob oob = {.rank = rank, .size = 2, .timeout_ns = TWILL_TEST_PATIENCE};
    struct twill_fd_passing_peer peer = {
        .rank = 1 - (uint32_t)rank, .name = PEER_NAME, .socket = -1};
    struct twill_fd_passing fd_passing;
    int ready[2], status;
    char byte;
    assert_true(twill_random(oob.nonce, sizeof(oob.nonce)));
    assert_int_equal(pipe(ready), 0);
    pid_t impostor = fork();
    if (impostor == 0)
        _exit(await_call(&oob, ready[1]));
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_int_equal(twill_fd_passing_listen(&fd_passing, &oob), TWILL_SHARE_FINE);
    fd_passing.file = memfd_create("twill-test", MFD_CLOEXEC);
    fd_passing.peers = &peer;
    fd_passing.peer_count = 1;
    assert_int_equal(twill_fd_passing_exchange(&fd_passing), TWILL_SHARE_OTHER_USER);
    assert_false(fd_passing.late);
    assert_false(peer.sent || peer.identified || peer.received);
    twill_fd_passing_close(&fd_passing);
    close(fd_passing.file);
    assert_int_equal(waitpid(impostor, &status, 0), impostor);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), TOLD_NOTHING);
}

TWILL_TEST(test_impostor)
{
    if (geteuid() != 0) /* only root can become another user */
        skip();
    for (int rank = 0; rank < 2; rank++)
        share_with_impostor(rank);
}
