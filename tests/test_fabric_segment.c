/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory among ranks: that it is shared, that it is not where that is impossible, that all
 * agree on it, and that deaths are noticed. */
#include "fabric/segment.h"
#include "tests/support/ranks.h"

#include <dirent.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define MAX_SIZE 32
#define BYTES    ((size_t)3 << 20)

/* One rank's share and what came out. */
struct outcome {
    struct twill_boot *boot;
    struct twill_segment *segment;
    uint32_t label[MAX_SIZE];
    const char *why;
    struct twill_error error;
    twill_status status;
};

static void share(struct outcome *o, twill_bootstrap *caller, const uint32_t *label, size_t bytes)
{
    memset(o, 0, sizeof(*o));
    o->boot = twill_test_boot(caller);
    memcpy(o->label, label, (size_t)caller->size * sizeof(*label));
    o->why = "not set";
    o->status = twill_segment_share(&o->segment, o->boot, o->label, bytes, &o->why, &o->error);
}

static void end(struct outcome *o)
{
    twill_segment_close(o->segment);
    twill_test_boot_close(o->boot);
}

static bool meet(struct outcome *o)
{
    unsigned char all[MAX_SIZE], mine = 0;
    return twill_boot_allgather(o->boot, &mine, all, 1, &o->error) == TWILL_OK;
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir != NULL && readdir(dir) != NULL)
        count++;
    if (dir != NULL)
        closedir(dir);
    return count;
}

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

/* Memory of every rank with the same label is zero at first, and then holds what its owner wrote.
 */
static bool is_shared(struct outcome *o, const uint32_t *label)
{
    uint32_t rank = (uint32_t)o->boot->rank, size = (uint32_t)o->boot->size;
    size_t bytes = twill_segment_bytes(o->segment);
    uint64_t *mine = twill_segment_at(o->segment, rank);
    TWILL_REQUIRE(bytes >= BYTES && mine != NULL && (uintptr_t)mine % TWILL_HUGE_PAGE == 0);
    TWILL_REQUIRE(mine[0] == 0 && mine[bytes / 16] == 0 && mine[bytes / 8 - 1] == 0);
    mine[0] = 100 + rank;
    mine[bytes / 8 - 1] = 200 + rank;
    TWILL_REQUIRE(meet(o));
    for (uint32_t r = 0; r < size; r++) {
        const uint64_t *peer = twill_segment_at(o->segment, r);
        TWILL_REQUIRE((peer != NULL) == (label[r] == label[rank]));
        TWILL_REQUIRE(peer == NULL || (peer[0] == 100 + r && peer[bytes / 8 - 1] == 200 + r));
        TWILL_REQUIRE(!twill_segment_owner_dead(o->segment, r));
    }
    TWILL_REQUIRE(twill_segment_at(o->segment, size) == NULL);
    return meet(o);
}

static void shared_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    const uint32_t *label = user;
    struct outcome o;
    share(&o, caller, label, BYTES - 100);
    if (twill_test_note(o.status == TWILL_OK && o.why == NULL, __FILE__, __LINE__,
                        "rank %d: %d: %s, because %s", rank, o.status, o.error.message, o.why) &&
        twill_test_note(memcmp(o.label, label, (size_t)size * sizeof(*label)) == 0, __FILE__,
                        __LINE__, "labels have changed"))
        is_shared(&o, label);
    end(&o);
}

static void test_shared(void **state)
{
    (void)state;
    uint32_t labels[][6] = {
        {0}, {9, 9, 9, 9, 9, 9}, {7, 3, 7, 3, 3, 7}, {0, 1, 2, 3, 4, 5}, {5, 5, 5, 5, 2, 1}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(labels); i++) {
        int size = i == 0 ? 1 : 6;
        int descriptors = open_descriptors();
        twill_test_run_ranks(size, shared_rank, labels[i]);
        assert_int_equal(open_descriptors(), descriptors);
        assert_int_equal(mappings_named("memfd:twill-heap"), 0);
        twill_test_run_processes(size, shared_rank, labels[i]);
        twill_test_run_mixed(size, 2, shared_rank, labels[i]);
        twill_test_run_mixed(size, 4, shared_rank, labels[i]);
    }
}

/* Many processes; nothing is left behind in any of them; memory has its name. */
static void tidy_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    (void)user;
    uint32_t label[MAX_SIZE] = {0};
    int before = open_descriptors();
    struct outcome o;
    share(&o, caller, label, BYTES);
    twill_test_note(o.status == TWILL_OK && o.why == NULL, __FILE__, __LINE__, "rank %d: %s", rank,
                    o.error.message);
    /* Its own memory and that of the others, one descriptor each: all sockets are closed. */
    twill_test_note(mappings_named("memfd:twill-heap") == size, __FILE__, __LINE__,
                    "%d mappings are named", mappings_named("memfd:twill-heap"));
    twill_test_note(open_descriptors() == before + size, __FILE__, __LINE__, "%d descriptors",
                    open_descriptors() - before);
    if (!twill_test_failed())
        is_shared(&o, label);
    end(&o);
    twill_test_note(open_descriptors() == before && mappings_named("memfd:twill-heap") == 0,
                    __FILE__, __LINE__, "something is left");
}

static void test_tidy(void **state)
{
    (void)state;
    twill_test_run_processes(24, tidy_rank, NULL);
}

/* Threads use each other's memory as it is, also when its owner has closed. */
static void outlive_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    (void)size;
    (void)user;
    uint32_t label[2] = {0};
    struct outcome o;
    share(&o, caller, label, BYTES);
    if (twill_test_note(o.status == TWILL_OK, __FILE__, __LINE__, "%s", o.error.message)) {
        unsigned char *mine = twill_segment_at(o.segment, (uint32_t)rank);
        mine[5] = 42;
        twill_test_note(meet(&o), __FILE__, __LINE__, "meet");
        if (rank == 0) {
            twill_segment_close(o.segment);
            o.segment = NULL;
        }
        twill_test_note(meet(&o), __FILE__, __LINE__, "meet");
        if (rank == 1) {
            unsigned char *other = twill_segment_at(o.segment, 0);
            twill_test_note(other[5] == 42, __FILE__, __LINE__, "memory is gone");
        }
    }
    end(&o);
}

static void test_outlive(void **state)
{
    (void)state;
    twill_test_run_ranks(2, outlive_rank, NULL);
}

/* --- what cannot be shared ------------------------------------------------------------------- */

struct obstacle {
    bool (*in_the_way)(void); /* on rank 1; false: not possible here */
    const char *says;
};

/* Of {0,0,0,4,4} ranks 0 to 2 end up alone, and 3 and 4 together; every rank sees that. */
static void obstacle_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct obstacle *obstacle = user;
    uint32_t label[5] = {0, 0, 0, 4, 4};
    bool possible[5], mine = rank != 1 || obstacle->in_the_way();
    TWILL_CHECK(size == 5 && caller->exchange(caller->user, &mine, possible, sizeof(mine)) == 0);
    if (!possible[1])
        return;
    struct outcome o;
    share(&o, caller, label, BYTES);
    twill_test_note(o.status == TWILL_OK && o.why != NULL && strstr(o.why, obstacle->says) != NULL,
                    __FILE__, __LINE__, "rank %d: %d, %s: %s", rank, o.status, o.why,
                    o.error.message);
    for (int a = 0; a < size && !twill_test_failed(); a++)
        for (int b = 0; b < a; b++)
            twill_test_note((o.label[a] == o.label[b]) == (b == 3), __FILE__, __LINE__,
                            "labels of %d and %d", a, b);
    uint32_t all[25];
    twill_test_note(!twill_test_failed() &&
                        caller->exchange(caller->user, o.label, all, 5 * sizeof(uint32_t)) == 0 &&
                        memcmp(all, o.label, 5 * sizeof(uint32_t)) == 0,
                    __FILE__, __LINE__, "rank 0 has other labels than rank %d", rank);
    if (!twill_test_failed())
        is_shared(&o, o.label);
    end(&o);
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

/* Enough descriptors to listen, too few to take the others' files. */
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

static bool other_network(void)
{
    return unshare(CLONE_NEWNET) == 0;
}

static bool other_user(void)
{
    return geteuid() == 0 && setresuid(65534, 65534, 65534) == 0;
}

static void test_obstacles(void **state)
{
    (void)state;
    struct obstacle obstacles[] = {{small_files, "ulimit -f"},
                                   {few_descriptors, "ulimit -n"},
                                   {no_descriptors, "ulimit -n"},
                                   {other_network, "network namespaces"},
                                   {other_user, "different users"}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(obstacles); i++) {
        twill_test_run_processes(5, obstacle_rank, &obstacles[i]);
        twill_test_run_mixed(5, 2, obstacle_rank, &obstacles[i]);
    }
}

/* --- what is an error ------------------------------------------------------------------------ */

struct wrong {
    size_t bytes[3];
    twill_status status;
    const char *says;
};

static void wrong_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct wrong *wrong = user;
    uint32_t label[3] = {1, 1, 1};
    struct outcome o;
    share(&o, caller, label, wrong->bytes[rank]);
    twill_test_note(size == 3 && o.status == wrong->status && o.segment == NULL &&
                        strstr(o.error.message, wrong->says) != NULL,
                    __FILE__, __LINE__, "rank %d: %d: %s", rank, o.status, o.error.message);
    end(&o);
}

static void test_errors(void **state)
{
    (void)state;
    size_t too_much = (size_t)1 << 47;
    struct wrong cases[] = {
        {{BYTES, 2 * BYTES, BYTES}, TWILL_ERR_MISMATCH, "rank 1 asks for"},
        {{BYTES, BYTES, too_much}, TWILL_ERR_MEMORY, "rank 2"},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        int descriptors = open_descriptors();
        twill_test_run_ranks(3, wrong_rank, &cases[i]);
        assert_int_equal(open_descriptors(), descriptors);
        twill_test_run_processes(3, wrong_rank, &cases[i]);
    }
}

/* A rank that never comes: an error for the others, as soon as the bootstrap knows. */
static void absent_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    (void)size;
    (void)user;
    uint32_t label[3] = {0};
    if (rank == 2)
        return;
    struct outcome o;
    share(&o, caller, label, BYTES);
    twill_test_note(o.status == TWILL_ERR_BOOTSTRAP && o.segment == NULL, __FILE__, __LINE__,
                    "rank %d: %d: %s", rank, o.status, o.error.message);
    end(&o);
}

static void test_absent(void **state)
{
    (void)state;
    twill_test_run_processes(3, absent_rank, NULL);
    int descriptors = open_descriptors();
    twill_test_run_ranks(3, absent_rank, NULL);
    assert_int_equal(open_descriptors(), descriptors);
}

/* --- death and strangers --------------------------------------------------------------------- */

static void dying_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    (void)size;
    const bool *forks = user;
    uint32_t label[3] = {0};
    struct outcome o;
    share(&o, caller, label, BYTES);
    twill_test_note(o.status == TWILL_OK && o.why == NULL, __FILE__, __LINE__, "%s",
                    o.error.message);
    if (!twill_test_failed() && is_shared(&o, label) && rank == 1) {
        twill_test_expect_death(1);
        pid_t child = *forks ? fork() : -1;
        if (child == 0) { /* it has the descriptor too, and outlives its parent */
            sleep(2);
            _exit(0);
        }
        raise(SIGKILL);
    }
    uint64_t limit = twill_now() + 10ull * 1000000000u;
    while (!twill_test_failed() && !twill_segment_owner_dead(o.segment, 1)) {
        twill_test_note(twill_now() < limit, __FILE__, __LINE__,
                        "rank 1 is not noticed to be dead");
        usleep(1000);
    }
    twill_test_note(!twill_segment_owner_dead(o.segment, (uint32_t)(rank == 0 ? 0 : 2)), __FILE__,
                    __LINE__, "rank %d is alive", rank);
    end(&o);
}

static void test_death(void **state)
{
    (void)state;
    bool forks = false;
    twill_test_run_processes(3, dying_rank, &forks);
    forks = true;
    twill_test_run_processes(3, dying_rank, &forks);
}

/* A bootstrap that sends a signal to its own rank in the midst of sharing: when all have connected,
 * before they exchange descriptors. */
static struct {
    const struct twill_boot_ops *ops;
    int calls, signal;
} midst;

static twill_status gather_and_die(struct twill_boot *boot, const void *mine, void *all,
                                   size_t bytes, struct twill_error *error)
{
    twill_status status = midst.ops->allgather(boot, mine, all, bytes, error);
    if (++midst.calls == 2 && boot->rank == 1)
        raise(midst.signal);
    return status;
}

static void midst_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    (void)size;
    struct outcome o = {.boot = twill_test_boot(caller)};
    uint32_t label[3] = {0};
    struct twill_boot_ops ops = *o.boot->ops;
    midst.ops = o.boot->ops;
    midst.signal = *(int *)user;
    ops.allgather = gather_and_die;
    o.boot->ops = &ops;
    o.boot->timeout_ns = 500000000u;
    if (rank == 1) {
        pid_t self = getpid();
        twill_test_expect_death(1);
        pid_t child = midst.signal == SIGSTOP ? fork() : -1;
        if (child == 0) { /* stopped, it is ended for good later */
            sleep(2);
            _exit(kill(self, SIGKILL));
        }
    }
    o.status = twill_segment_share(&o.segment, o.boot, label, BYTES, &o.why, &o.error);
    bool stopped = midst.signal == SIGSTOP;
    twill_test_note(o.segment == NULL &&
                        o.status == (stopped ? TWILL_ERR_TIMEOUT : TWILL_ERR_PEER) &&
                        strstr(o.error.message, stopped ? "lost rank 1" : "lost rank") != NULL,
                    __FILE__, __LINE__, "rank %d: %d: %s", rank, o.status, o.error.message);
    end(&o);
}

static void test_midst(void **state)
{
    (void)state;
    int signals[] = {SIGKILL, SIGSTOP};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(signals); i++)
        twill_test_run_processes(3, midst_rank, &signals[i]);
}

/* A greeting as rank r + 1 would send it to rank r, but for the key, which no name gives away. */
static void forge(unsigned char hello[32], const char *name)
{
    unsigned rank = 0, version = 0x74770001u, byte = 0;
    memset(hello, 0x5a, 32);
    for (int i = 0; i < TWILL_NONCE_BYTES; i++) {
        sscanf(name + strlen("@twill-") + 2 * i, "%2x", &byte);
        hello[i] = (unsigned char)byte;
    }
    sscanf(name + strlen("@twill-") + 2 * TWILL_NONCE_BYTES, "-%u-", &rank);
    rank++;
    memcpy(hello + 24, &rank, sizeof(rank));
    memcpy(hello + 28, &version, sizeof(version));
}

/* Connect to every socket of ours in sight; say nothing, or something wrong; be quick about it. */
static void pester(void)
{
    char line[512];
    unsigned char garbage[200];
    memset(garbage, 0x5a, sizeof(garbage));
    for (unsigned turn = 0;; turn++) {
        FILE *sockets = fopen("/proc/net/unix", "r");
        while (sockets != NULL && fgets(line, sizeof(line), sockets) != NULL) {
            const char *name = strstr(line, "@twill-");
            if (name == NULL)
                continue;
            struct sockaddr_un address = {.sun_family = AF_UNIX};
            size_t length = strcspn(name + 1, "\n");
            memcpy(address.sun_path + 1, name + 1, length);
            int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
            if (turn % 2)
                forge(garbage, name);
            if (connect(fd, (struct sockaddr *)&address,
                        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0)
                (void)!send(fd, garbage, turn % 2 ? 32 : sizeof(garbage), MSG_NOSIGNAL);
            close(fd);
        }
        if (sockets != NULL)
            fclose(sockets);
    }
}

static void pestered_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    (void)size;
    (void)user;
    uint32_t label[4] = {0};
    for (int turn = 0; turn < 30 && !twill_test_failed(); turn++) {
        struct outcome o;
        share(&o, caller, label, BYTES);
        twill_test_note(o.status == TWILL_OK && o.why == NULL, __FILE__, __LINE__,
                        "rank %d: %d: %s: %s", rank, o.status, o.error.message, o.why);
        if (!twill_test_failed())
            is_shared(&o, label);
        end(&o);
    }
}

static void test_strangers(void **state)
{
    (void)state;
    pid_t pest = fork();
    assert_true(pest >= 0);
    if (pest == 0) {
        alarm(60);
        pester();
    }
    twill_test_run_processes(4, pestered_rank, NULL);
    kill(pest, SIGKILL);
    waitpid(pest, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared),    cmocka_unit_test(test_tidy),
        cmocka_unit_test(test_outlive),   cmocka_unit_test(test_obstacles),
        cmocka_unit_test(test_errors),    cmocka_unit_test(test_absent),
        cmocka_unit_test(test_death),     cmocka_unit_test(test_midst),
        cmocka_unit_test(test_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
