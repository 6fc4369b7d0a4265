/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory under failures: deaths are detected, also during sharing, and unauthenticated
 * connections do no harm. */
#include "tests/support/shared_ranks.h"
#include "tests/support/unit.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

static void dying_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    static const uint32_t label[3];
    const bool *forks = user;
    struct twill_test_share o;
    TWILL_CHECK(twill_test_shares(&o, caller, label, TWILL_TEST_SHARE_BYTES));
    if (rank == 1) {
        twill_test_expect_death(1);
        pid_t child = *forks ? fork() : -1;
        if (child == 0) { /* it has the descriptor, too, and outlives its parent */
            sleep(2);
            _exit(0);
        }
        raise(SIGKILL);
    }
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    while (!twill_shm_region_owner_dead(o.region, 1)) {
        TWILL_CHECK(twill_now() < limit, "rank 1 is not noticed to be dead");
        usleep(1000);
    }
    TWILL_CHECK(!twill_shm_region_owner_dead(o.region, (uint32_t)rank), "rank %d is alive", rank);
    twill_test_share_end(&o);
}

TWILL_TEST(test_death)
{
    for (int i = 0; i < 2; i++) {
        bool forks = i == 1;
        twill_test_run_processes(3, dying_rank, &forks);
    }
}

/* A bootstrap that sends a signal to its own rank during sharing: when all listen, before they
 * connect. */
static struct {
    const struct twill_bootstrap_ops *ops;
    int calls, signal;
    atomic_int *tired; /* ranks, of all processes, that no longer wait for that one */
    bool (*hinder)(const struct twill_oob *oob);
} midst;

static twill_status gather_and_die(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                                   struct twill_error *error)
{
    if (midst.calls == 1) /* the exchange of descriptors is over */
        atomic_fetch_add(midst.tired, 1);
    twill_status status = midst.ops->allgather(oob, mine, all, bytes, error);
    if (++midst.calls == 1 && oob->rank == 1)
        raise(midst.signal);
    return status;
}

/* A stopped process is killed when the others have given it up. */
static int end_later(pid_t stopped)
{
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    while (atomic_load(midst.tired) < 2 && twill_now() < limit)
        usleep(1000);
    return kill(stopped, SIGKILL);
}

static void midst_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct twill_test_share o = {.oob = twill_test_oob(caller)};
    struct twill_bootstrap_ops ops = *o.oob->ops;
    midst.ops = o.oob->ops;
    midst.signal = *(int *)user;
    ops.allgather = gather_and_die;
    o.oob->ops = &ops;
    if (midst.signal == SIGSTOP) /* a death is detected long before */
        o.oob->timeout_ns = TWILL_TEST_SOON;
    if (rank == 1) {
        pid_t self = getpid();
        twill_test_expect_death(1);
        pid_t child = midst.signal == SIGSTOP ? fork() : -1;
        if (child == 0)
            _exit(end_later(self));
    }
    twill_test_share_over(&o, TWILL_TEST_SHARE_BYTES);
    bool stopped = midst.signal == SIGSTOP;
    TWILL_NOTE(o.region == NULL && o.status == (stopped ? TWILL_ERR_TIMEOUT : TWILL_ERR_PEER) &&
                   strstr(o.error.message, stopped ? "lost rank 1" : "lost rank") != NULL,
               "rank %d: %d: %s", rank, o.status, o.error.message);
    twill_test_share_end(&o);
}

TWILL_TEST(test_midst)
{
    int signals[] = {SIGKILL, SIGSTOP};
    midst.tired =
        mmap(NULL, sizeof(*midst.tired), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(midst.tired != MAP_FAILED);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(signals); i++) {
        atomic_store(midst.tired, 0);
        twill_test_run_processes(3, midst_rank, &signals[i]);
    }
    munmap(midst.tired, sizeof(*midst.tired));
}

/* Return the nonce of a run from a socket's name, "@twill-" and the nonce. */
static void read_nonce(unsigned char nonce[TWILL_NONCE_BYTES], const char *name)
{
    unsigned byte = 0;
    for (int i = 0; i < TWILL_NONCE_BYTES; i++) {
        sscanf(name + strlen("@twill-") + 2 * i, "%2x", &byte);
        nonce[i] = (unsigned char)byte;
    }
}

/* Do not disturb tests that run at the same time: see group_create() in tests/support/ranks.c. */
static bool is_of(const char *name, pid_t tester)
{
    unsigned char nonce[TWILL_NONCE_BYTES];
    read_nonce(nonce, name);
    return memcmp(nonce + sizeof(uint64_t), &tester, sizeof(tester)) == 0;
}

/* A hello as rank r + 1 would send it to rank r, but for the key, which no name reveals. */
static void forge_greeting(unsigned char hello[40], const char *name)
{
    unsigned rank = 0, version = 0x74770002u;
    memset(hello, 0x5a, 40);
    read_nonce(hello, name);
    sscanf(name + strlen("@twill-") + 2 * TWILL_NONCE_BYTES, "-%u-", &rank);
    rank++;
    memcpy(hello + 24, &rank, sizeof(rank));
    memcpy(hello + 28, &version, sizeof(version));
}

/* Connect to every socket of this test; send nothing or something wrong; be quick. */
static void pester_sockets(pid_t tester, long *visits)
{
    char line[512];
    unsigned char garbage[200];
    memset(garbage, 0x5a, sizeof(garbage));
    for (unsigned turn = 0;; turn++) {
        FILE *sockets = fopen("/proc/net/unix", "r");
        while (sockets != NULL && fgets(line, sizeof(line), sockets) != NULL) {
            const char *name = strstr(line, "@twill-");
            if (name == NULL || !is_of(name, tester))
                continue;
            struct sockaddr_un address = {.sun_family = AF_UNIX};
            size_t length = strcspn(name + 1, "\n");
            memcpy(address.sun_path + 1, name + 1, length);
            int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
            if (turn % 2)
                forge_greeting(garbage, name);
            if (connect(fd, (struct sockaddr *)&address,
                        (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length)) == 0)
                *visits += send(fd, garbage, turn % 2 ? 40 : sizeof(garbage), MSG_NOSIGNAL) > 0;
            close(fd);
        }
        if (sockets != NULL)
            fclose(sockets);
    }
}

/* Share a few times, and until the expected event has happened to any rank, else nothing was
 * tested. The ranks agree on that. */
static void share_until(twill_bootstrap *caller, int turns, const long *happened)
{
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    long mine = 0, all[4] = {0};
    for (int turn = 0; turn < turns || all[0] + all[1] + all[2] + all[3] == 0; turn++) {
        static const uint32_t label[4];
        struct twill_test_share o;
        TWILL_CHECK(twill_test_shares(&o, caller, label, TWILL_TEST_SHARE_BYTES));
        twill_test_share_end(&o);
        mine = __atomic_load_n(happened, __ATOMIC_RELAXED);
        TWILL_CHECK(twill_now() < limit && !twill_test_failed());
        TWILL_CHECK(caller->exchange(caller->user, &mine, all, sizeof(mine)) == 0);
    }
}

static pid_t pest;
static long *pest_visits;

static void pestered_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    share_until(caller, 30, pest_visits);
}

static int begin_pest(void **state)
{
    pest_visits =
        mmap(NULL, sizeof(*pest_visits), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (pest_visits == MAP_FAILED)
        return -1;
    pest = fork();
    if (pest == 0) {
        alarm(TWILL_TEST_PATIENCE / 1000000000);
        pester_sockets(getppid(), pest_visits);
    }
    return pest > 0 ? 0 : -1;
}

static int end_pest(void **state)
{
    kill(pest, SIGKILL);
    bool ended = waitpid(pest, NULL, 0) == pest;
    munmap(pest_visits, sizeof(*pest_visits));
    return ended ? 0 : -1;
}

TWILL_TEST_BETWEEN(test_intruders, begin_pest, end_pest)
{
    twill_test_run_processes(4, pestered_rank, NULL);
}

/* Linux looks for a message, then whether the other end has closed: here both happen in between. */
static bool between;
static long early_ends;

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t got = syscall(SYS_recvmsg, fd, message, flags);
    if (got >= 0 || errno != EAGAIN || !between)
        return got;
    struct pollfd end = {.fd = fd};
    if (poll(&end, 1, 200) == 1 && (end.revents & POLLHUP) != 0) {
        early_ends++;
        return 0;
    }
    errno = EAGAIN;
    return -1;
}

TWILL_TEST_OF_PROCESSES(test_early_end, 4)
{
    between = true;
    share_until(bootstrap, 5, &early_ends);
}

/* A rank may give up between our connection and our hello: here it always does. */
static bool hesitant;
static int late_greetings;

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    struct pollfd end = {.fd = fd};
    if (hesitant && poll(&end, 1, 200) == 1 && (end.revents & POLLHUP) != 0)
        late_greetings++;
    return syscall(SYS_sendmsg, fd, message, flags);
}

/* When the others have connected to it, rank 1 has no descriptor left and gives up. */
static twill_status gather_and_give_up(struct twill_oob *oob, const void *mine, void *all,
                                       size_t bytes, struct twill_error *error)
{
    twill_status status = midst.ops->allgather(oob, mine, all, bytes, error);
    if (++midst.calls == 1 && oob->rank == 1) {
        struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
        TWILL_NOTE(setrlimit(RLIMIT_NOFILE, &none) == 0, "setrlimit");
        usleep(20000);
    }
    return status;
}

static void hesitant_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct twill_test_share o = {.oob = twill_test_oob(caller)};
    struct twill_bootstrap_ops ops = *o.oob->ops;
    midst.ops = o.oob->ops;
    ops.allgather = gather_and_give_up;
    o.oob->ops = &ops;
    hesitant = rank != 1;
    twill_test_share_over(&o, TWILL_TEST_SHARE_BYTES);
    TWILL_NOTE(o.status == TWILL_OK && o.why != NULL &&
                   strstr(o.why, "rank 1: too many open descriptors") != NULL,
               "rank %d: %d: %s: %s", rank, o.status, o.error.message, o.why);
    *(atomic_int *)user += late_greetings;
    twill_test_share_end(&o);
}

TWILL_TEST(test_late_greetings)
{
    atomic_int *late =
        mmap(NULL, sizeof(*late), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(late != MAP_FAILED);
    /* Its own reason counts, not that others found its listener closed. */
    for (int turn = 0; turn < 100 && *late == 0; turn++)
        twill_test_run_processes(3, hesitant_rank, late);
    assert_true(*late > 0); /* else nothing was tested */
    munmap(late, sizeof(*late));
}

/* Return this rank's listener. 0: it has none. */
static socklen_t own_socket(const struct twill_oob *oob, struct sockaddr_un *address)
{
    char line[512], own[2 * TWILL_NONCE_BYTES + 32] = "@twill-";
    socklen_t length = 0;
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    for (size_t i = 0; i < TWILL_NONCE_BYTES; i++)
        snprintf(own + strlen(own), 3, "%02x", oob->nonce[i]);
    snprintf(own + strlen(own), 16, "-%d-", oob->rank);
    FILE *sockets = fopen("/proc/net/unix", "r");
    while (sockets != NULL && length == 0 && fgets(line, sizeof(line), sockets) != NULL) {
        const char *name = strstr(line, own);
        if (name == NULL)
            continue;
        size_t bytes = strcspn(name + 1, "\n");
        memcpy(address->sun_path + 1, name + 1, bytes);
        length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + bytes);
    }
    if (sockets != NULL)
        fclose(sockets);
    return length;
}

/* Fill the backlog of this rank's listener. */
static bool crowd(const struct twill_oob *oob)
{
    struct sockaddr_un address;
    socklen_t length = own_socket(oob, &address);
    int rc = length == 0;
    while (rc == 0) { /* a closed connection still waits to be accepted */
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
        rc = connect(fd, (struct sockaddr *)&address, length);
        close(fd);
    }
    return length > 0;
}

#define SIEGE 40 /* connections: more than are pending at a time */

static pid_t besieger;

/* Another user connects to this rank's listener, sends nothing, and stays. */
static bool besiege(const struct twill_oob *oob)
{
    struct sockaddr_un address;
    socklen_t length = own_socket(oob, &address);
    int ready[2];
    char word = 0;
    if (length == 0 || pipe(ready) != 0)
        return false;
    besieger = fork();
    if (besieger == 0) {
        bool fine = setresuid(65534, 65534, 65534) == 0 && prctl(PR_SET_PDEATHSIG, SIGKILL) == 0;
        for (int i = 0; i < SIEGE && fine; i++) {
            int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
            fine = fd >= 0 && connect(fd, (struct sockaddr *)&address, length) == 0;
        }
        fine = fine && write(ready[1], "", 1) == 1;
        close(ready[0]);
        close(ready[1]);
        while (fine)
            pause();
        _exit(1);
    }
    close(ready[1]);
    bool started = read(ready[0], &word, 1) == 1;
    close(ready[0]);
    return started;
}

static twill_status gather_crowded(struct twill_oob *oob, const void *mine, void *all, size_t bytes,
                                   struct twill_error *error)
{
    if (++midst.calls == 1)
        TWILL_NOTE(midst.hinder(oob), "rank %d is not hindered", oob->rank);
    return midst.ops->allgather(oob, mine, all, bytes, error);
}

/* Unauthenticated connections occupy all places first: the true peers are accepted nevertheless. */
static void crowded_rank(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct twill_test_share o = {.oob = twill_test_oob(caller)};
    struct twill_bootstrap_ops ops = *o.oob->ops;
    midst.ops = o.oob->ops;
    midst.hinder = user == NULL ? crowd : besiege;
    ops.allgather = gather_crowded;
    o.oob->ops = &ops;
    twill_test_share_over(&o, TWILL_TEST_SHARE_BYTES);
    TWILL_NOTE(o.status == TWILL_OK && o.why == NULL, "rank %d: %d: %s", rank, o.status,
               o.error.message);
    if (!twill_test_failed())
        twill_test_is_shared(&o, o.label);
    twill_test_share_end(&o);
    if (besieger > 0) {
        kill(besieger, SIGKILL);
        waitpid(besieger, NULL, 0);
    }
}

TWILL_TEST(test_crowd)
{
    twill_test_run_processes(3, crowded_rank, NULL);
}

TWILL_TEST(test_siege)
{
    if (geteuid() != 0)
        skip();
    twill_test_run_processes(3, crowded_rank, "siege");
}
