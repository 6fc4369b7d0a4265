/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp transport when descriptors, random numbers or routes are scarce, and its messages for
 * failed connections. */
#include "tests/support/leap.h"
#include "tests/support/scarce.h"
#include "tests/support/tcp_ends.h"
#include "tests/support/unit.h"

#include <arpa/inet.h>
#include <sys/resource.h>

/* --- descriptors ----------------------------------------------------------------------------- */

#define TCP_SCARCE_HELD 256

/* Use up all descriptors but a few. */
struct shortage {
    struct rlimit before;
    int fd[TCP_SCARCE_HELD];
    int count;
};

static void make_scarce(struct shortage *shortage, int left)
{
    struct rlimit few;
    TWILL_CHECK(getrlimit(RLIMIT_NOFILE, &shortage->before) == 0);
    few = shortage->before;
    few.rlim_cur = TCP_SCARCE_HELD;
    TWILL_CHECK(setrlimit(RLIMIT_NOFILE, &few) == 0);
    shortage->count = 0;
    while ((shortage->fd[shortage->count] = dup(0)) >= 0)
        shortage->count++;
    while (left-- > 0 && shortage->count > 0)
        close(shortage->fd[--shortage->count]);
}

static void end_shortage(struct shortage *shortage)
{
    while (shortage->count > 0)
        close(shortage->fd[--shortage->count]);
    setrlimit(RLIMIT_NOFILE, &shortage->before);
}

/* Send a message from rank 0 to rank 1 on this lane. */
static struct twill_transfer message(int rank, uint32_t lane, char data[8])
{
    return transfer(rank == 0 ? TWILL_TRANSFER_SEND : TWILL_TRANSFER_RECV, (uint32_t)(1 - rank),
                    lane, rank == 0 ? data : memset(data, 0, 8), 8);
}

static bool arrives(struct tcp_end *end, struct twill_transfer *r)
{
    return twill_test_await(&end->end, r, 1) && strcmp(r->buffer, "message") == 0;
}

/* Rank 0 has a descriptor for the channel it uses and none for the next one, which is connected
 * ahead of its use; that one works once there is a descriptor. */
TWILL_TEST_OF_PROCESSES(test_one_left, 2)
{
    enum { next = TWILL_NODE_LANES / TWILL_WINDOW };
    struct shortage shortage = {.count = 0};
    struct tcp_end end;
    char data[8] = "message";
    TWILL_CHECK(end_open(&end, bootstrap, NULL));
    struct twill_transfer r = message(rank, 0, data);
    if (rank == 0)
        make_scarce(&shortage, 1);
    TWILL_CHECK(post(&end, &r) && arrives(&end, &r));
    if (rank == 0)
        end_shortage(&shortage);
    r = message(rank, next, data);
    TWILL_CHECK(post(&end, &r) && arrives(&end, &r) && rank_barrier(&end));
    end_close(&end);
}

/* Rank 1 has no descriptor left. Others connect, and then the peer that it waits for. */
TWILL_TEST_OF_PROCESSES(test_none_left, 2)
{
    struct shortage shortage = {.count = 0};
    struct tcp_end end;
    char data[8] = "message";
    int intruder[3] = {-1, -1, -1};
    TWILL_CHECK(end_open(&end, bootstrap, NULL));
    struct twill_tcp *t = (struct twill_tcp *)end.end.transport;
    const struct twill_tcp_address *to = &t->common->address[1];
    struct twill_transfer r = message(rank, TWILL_POINT_LANE, data);
    if (rank == 1)
        make_scarce(&shortage, 0);
    for (size_t i = 0; rank == 0 && i < TWILL_ARRAY_LENGTH(intruder); i++) {
        intruder[i] = socket(to->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        TWILL_CHECK(connect(intruder[i], &to->at.any, to->length) == 0);
    }
    TWILL_CHECK(rank_barrier(&end));
    for (int turn = 0; rank == 1 && turn < 100; turn++)
        TWILL_CHECK(twill_tcp_common_adopt(t, &end.end.error) >= 0, "%s", end.end.error.message);
    TWILL_CHECK(rank_barrier(&end) && post(&end, &r) && arrives(&end, &r) && rank_barrier(&end));
    end_shortage(&shortage);
    for (size_t i = 0; rank == 0 && i < TWILL_ARRAY_LENGTH(intruder); i++)
        close(intruder[i]);
    end_close(&end);
}

/* Rank 1 gets no random numbers for its answer to a connection: the error says so. */
TWILL_TEST_OF_PROCESSES(test_no_random, 2)
{
    struct tcp_end end;
    TWILL_CHECK(end_open(&end, bootstrap, NULL));
    struct twill_tcp *t = (struct twill_tcp *)end.end.transport;
    const struct twill_tcp_address *to = &t->common->address[1];
    int intruder = socket(to->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    TWILL_CHECK(rank == 1 || connect(intruder, &to->at.any, to->length) == 0);
    TWILL_CHECK(rank_barrier(&end));
    if (rank == 1) {
        scarce_random = true;
        twill_status status = twill_tcp_common_adopt(t, &end.end.error);
        scarce_random = false;
        TWILL_NOTE(status == TWILL_ERR_SYSTEM &&
                       strstr(end.end.error.message, "Operation not permitted") != NULL,
                   "status %d: %s", status, end.end.error.message);
    }
    TWILL_CHECK(rank_barrier(&end));
    close(intruder);
    end_close(&end);
}

/* --- silent connections ---------------------------------------------------------------------- */

#define TCP_SCARCE_CROWD 600 /* connections, over twice as many as rank 1 may have */
#define OWN              100 /* descriptors that the program itself needs */

/* Silent connections without the key fill rank 1's listener while a channel is to be connected. The
 * channel connects, and the program still has descriptors. */
TWILL_TEST_OF_PROCESSES(test_crowd, 2)
{
    struct rlimit files;
    struct tcp_end end;
    char data[8] = "message";
    int crowd[TCP_SCARCE_CROWD], own[OWN];
    TWILL_CHECK(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = rank == 1 ? TCP_SCARCE_HELD : files.rlim_max;
    TWILL_CHECK(setrlimit(RLIMIT_NOFILE, &files) == 0);
    TWILL_CHECK(end_open(&end, bootstrap, NULL));
    struct twill_tcp *t = (struct twill_tcp *)end.end.transport;
    const struct twill_tcp_address *to = &t->common->address[1];
    struct twill_transfer r = message(rank, TWILL_POINT_LANE, data);
    for (size_t i = 0; rank == 0 && i < TCP_SCARCE_CROWD; i++) {
        crowd[i] = socket(to->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        TWILL_CHECK(connect(crowd[i], &to->at.any, to->length) == 0 || errno == EINPROGRESS);
    }
    TWILL_CHECK(rank_barrier(&end));
    for (int turn = 0; rank == 1 && turn < TCP_SCARCE_CROWD; turn++)
        TWILL_CHECK_OK(&end.end.error, twill_tcp_common_adopt(t, &end.end.error));
    for (int i = 0; rank == 1 && i < OWN; i++)
        TWILL_CHECK((own[i] = dup(0)) >= 0, "%d: %s, with %u silent connections", i,
                    strerror(errno), t->common->incoming_count);
    TWILL_CHECK(rank == 0 || t->common->rejected > 0);
    TWILL_CHECK(post(&end, &r) && arrives(&end, &r) && rank_barrier(&end));
    for (int i = 0; i < (rank == 1 ? OWN : TCP_SCARCE_CROWD); i++)
        close(rank == 1 ? own[i] : crowd[i]);
    end_close(&end);
}

/* --- evicted connections --------------------------------------------------------------------- */

/* Rank 0 starts to connect and leaves the library; rank 1 evicts its connection meanwhile. */
TWILL_TEST_OF_RANKS(test_sent_away, 2)
{
    struct tcp_end end;
    char data[8] = "message";
    if (end_open(&end, bootstrap, NULL)) {
        struct twill_tcp *t = (struct twill_tcp *)end.end.transport;
        struct twill_transfer r = message(rank, 0, data);
        uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
        post(&end, &r);
        rank_barrier(&end);
        while (rank == 1 && t->common->rejected < 2 && twill_now() < limit) {
            for (struct twill_tcp_incoming *g = t->common->incoming_list; g != NULL; g = g->next)
                shutdown(g->fd, SHUT_RDWR);
            progress(&end);
        }
        TWILL_NOTE(rank == 0 || t->common->rejected == 2, "%u rejected", t->common->rejected);
        rank_barrier(&end);
        TWILL_NOTE(arrives(&end, &r), "rank %d: %d: %s", rank, r.status, end.end.error.message);
        rank_barrier(&end);
    }
    end_close(&end);
}

/* --- a network that is away ------------------------------------------------------------------- */

/* Of a thread: calls of connect() that find no route. */
static _Thread_local unsigned routeless;

int connect(int fd, __CONST_SOCKADDR_ARG address, socklen_t length)
{
    if (routeless == 0)
        return (int)syscall(SYS_connect, fd, address.__sockaddr__, length);
    routeless--;
    errno = ENETUNREACH;
    return -1;
}

/* Rank 0 has no route to rank 1 for a few attempts, or for good. */
static void rank_without_route(int rank, int size, twill_bootstrap *caller, void *user)
{
    const unsigned *attempts = user;
    struct tcp_end end;
    char data[8] = "message";
    TWILL_CHECK(end_open(&end, caller, "lo"));
    struct twill_transfer r = message(rank, TWILL_POINT_LANE, data);
    routeless = rank == 0 ? *attempts : 0;
    if (*attempts < UINT32_MAX) {
        TWILL_CHECK(post(&end, &r) && arrives(&end, &r) && routeless == 0);
    } else if (rank == 0) {
        int moved = 0;
        TWILL_CHECK(post(&end, &r) && progress(&end) == 0);
        fast += 20;
        for (uint64_t limit = twill_now() + TWILL_TEST_PATIENCE; moved >= 0 && twill_now() < limit;)
            moved = progress(&end);
        TWILL_NOTE(moved == TWILL_ERR_PEER &&
                       strstr(end.end.error.message, "rank 1 cannot be reached from interface "
                                                     "lo: Network is unreachable") != NULL,
                   "%d: %s", moved, end.end.error.message);
    }
    routeless = 0;
    TWILL_CHECK(rank_barrier(&end));
    end_close(&end);
}

TWILL_TEST(test_no_route)
{
    unsigned attempts[] = {3, UINT32_MAX};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(attempts); i++)
        twill_test_run_processes(2, rank_without_route, &attempts[i]);
}

/* --- messages --------------------------------------------------------------------------------- */

TWILL_TEST(test_words)
{
    static const struct {
        int why;
        twill_status status;
        const char *says;
    } cases[] = {
        {EMFILE, TWILL_ERR_SYSTEM,
         "trouble on this host, not with rank 3: Too many open files (see ulimit -n)"},
        {EBADF, TWILL_ERR_SYSTEM, "trouble on this host, not with rank 3: Bad file descriptor"},
        {EFAULT, TWILL_ERR_SYSTEM, "trouble on this host, not with rank 3: Bad address"},
        {EADDRNOTAVAIL, TWILL_ERR_SYSTEM, "ip_local_port_range"},
        {EAGAIN, TWILL_ERR_SYSTEM, "ip_local_port_range"},
        {EPERM, TWILL_ERR_SYSTEM, "Operation not permitted (a firewall"},
        {EACCES, TWILL_ERR_SYSTEM, "Permission denied (a firewall"},
        {ENETUNREACH, TWILL_ERR_PEER, "rank 3 cannot be reached: Network is unreachable"},
        {EHOSTUNREACH, TWILL_ERR_PEER, "rank 3 cannot be reached: No route to host"},
        {0, TWILL_ERR_PEER, "rank 3 has died, ended or given up: it has closed"},
        {ECONNREFUSED, TWILL_ERR_FABRIC,
         "host fd77::2 of rank 3 refuses connections to port 80 (firewall? twillrun --check)"},
        {ETIMEDOUT, TWILL_ERR_FABRIC,
         "host fd77::2 of rank 3 does not answer at port 80 (firewall? twillrun --check)"},
        {ECONNREFUSED, TWILL_ERR_PEER, "rank 3 has died, ended or given up: Connection refused"},
        {ETIMEDOUT, TWILL_ERR_PEER, "rank 3 has died, ended or given up: Connection timed out"},
    };
    struct twill_tcp_address address = {.at.six = {.sin6_family = AF_INET6, .sin6_port = htons(80)},
                                        .length = sizeof(struct sockaddr_in6)};
    struct twill_tcp_peer peer = {.rank = 3, .name = "rank 3", .address = &address};
    struct twill_tcp_channel channel = {.peer = &peer};
    assert_int_equal(inet_pton(AF_INET6, "fd77::2", &address.at.six.sin6_addr), 1);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(cases); i++) {
        struct twill_error error = {0};
        peer.met = i + 2 >= TWILL_ARRAY_LENGTH(cases); /* the last two: a connection was made */
        assert_int_equal(twill_tcp_lost(&channel, cases[i].why, &error), cases[i].status);
        assert_int_equal(error.rank, error.status == TWILL_ERR_SYSTEM ? TWILL_NO_RANK : 3);
        if (strstr(error.message, cases[i].says) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", error.message, cases[i].says);
    }
}
