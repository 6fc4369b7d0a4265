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

/* Prepare a message from rank 0 to rank 1. */
static struct twill_transfer message(const struct twill_test_end *end, uint32_t lane, char data[8])
{
    memcpy(data, end->rank == 0 ? "message" : "", end->rank == 0 ? 8 : 1);
    return end_one_way(end, lane, data, 8);
}

static bool arrives(struct twill_test_end *end, struct twill_transfer *r)
{
    return end_await(end, r, 1) && strcmp(r->buffer, "message") == 0;
}

static bool is_exchanged(struct twill_test_end *end, uint32_t lane)
{
    char data[8];
    struct twill_transfer r = message(end, lane, data);
    return end_post(end, &r) && arrives(end, &r);
}

/* Connect to rank 1's listener without the key. Returns a socket, or -1. */
static int intrude(const struct twill_tcp *t, int flags)
{
    const struct twill_tcp_address *to = &t->common->address[1];
    int fd = socket(to->at.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
    bool connects = connect(fd, &to->at.any, to->length) == 0 || errno == EINPROGRESS;
    return TWILL_NOTE(connects, "%s", strerror(errno)) ? fd : -1;
}

/* Rank 0 has a descriptor for the channel it uses and none for the next one, which is connected
 * ahead of its use; that one works once there is a descriptor. */
TCP_PROCESSES(test_one_left, 2)
{
    struct shortage shortage = {.count = 0};
    if (end->rank == 0)
        make_scarce(&shortage, 1);
    TWILL_CHECK(is_exchanged(end, 0));
    if (end->rank == 0)
        end_shortage(&shortage);
    TWILL_CHECK(is_exchanged(end, TWILL_NODE_LANES / TWILL_WINDOW));
}

/* Rank 1 has no descriptor left. Others connect, and then the peer that it waits for. */
TCP_PROCESSES(test_none_left, 2)
{
    struct shortage shortage = {.count = 0};
    int intruder[3];
    if (end->rank == 1)
        make_scarce(&shortage, 0);
    for (size_t i = 0; end->rank == 0 && i < TWILL_ARRAY_LENGTH(intruder); i++)
        TWILL_CHECK((intruder[i] = intrude(tcp_of(end), 0)) >= 0);
    TWILL_CHECK(end_barrier(end));
    for (int turn = 0; end->rank == 1 && turn < 100; turn++)
        TWILL_CHECK_OK(&end->error, twill_tcp_common_adopt(tcp_of(end), &end->error));
    TWILL_CHECK(end_barrier(end) && is_exchanged(end, TWILL_POINT_LANE) && end_barrier(end));
    if (end->rank == 1)
        end_shortage(&shortage);
    for (size_t i = 0; end->rank == 0 && i < TWILL_ARRAY_LENGTH(intruder); i++)
        close(intruder[i]);
}

/* Rank 1 gets no random numbers for its answer to a connection: the error says so. */
TCP_PROCESSES(test_no_random, 2)
{
    int intruder = end->rank == 0 ? intrude(tcp_of(end), 0) : -1;
    TWILL_CHECK(end_barrier(end));
    if (end->rank == 1) {
        scarce_random = true;
        twill_status status = twill_tcp_common_adopt(tcp_of(end), &end->error);
        scarce_random = false;
        TWILL_CHECK(status == TWILL_ERR_SYSTEM &&
                        strstr(end->error.message, "Operation not permitted") != NULL,
                    "status %d: %s", status, end->error.message);
    }
    TWILL_CHECK(end_barrier(end));
    close(intruder);
}

/* --- silent connections ---------------------------------------------------------------------- */

#define TCP_SCARCE_CROWD 600 /* connections, over twice as many as rank 1 may have */
#define OWN              100 /* descriptors that the program itself needs */

static bool open_with_few_files(struct twill_test_end *end, const void *how)
{
    struct rlimit files;
    TWILL_REQUIRE(getrlimit(RLIMIT_NOFILE, &files) == 0);
    files.rlim_cur = end->rank == 1 ? TCP_SCARCE_HELD : files.rlim_max;
    return TWILL_NOTE(setrlimit(RLIMIT_NOFILE, &files) == 0, "setrlimit") && tcp_open(end, how);
}

/* Silent connections without the key fill rank 1's listener while a channel is to be connected. The
 * channel connects, and the program still has descriptors. */
END_TEST(test_crowd, 2, true, open_with_few_files, NULL)
{
    struct twill_tcp *t = tcp_of(end);
    int files[TCP_SCARCE_CROWD], count = end->rank == 1 ? OWN : TCP_SCARCE_CROWD;
    for (int i = 0; end->rank == 0 && i < count; i++)
        TWILL_CHECK((files[i] = intrude(t, SOCK_NONBLOCK)) >= 0);
    TWILL_CHECK(end_barrier(end));
    for (int turn = 0; end->rank == 1 && turn < TCP_SCARCE_CROWD; turn++)
        TWILL_CHECK_OK(&end->error, twill_tcp_common_adopt(t, &end->error));
    for (int i = 0; end->rank == 1 && i < count; i++)
        TWILL_CHECK((files[i] = dup(0)) >= 0, "%d: %s, with %u silent connections", i,
                    strerror(errno), t->common->incoming_count);
    TWILL_CHECK(end->rank == 0 || t->common->rejected > 0);
    TWILL_CHECK(is_exchanged(end, TWILL_POINT_LANE) && end_barrier(end));
    for (int i = 0; i < count; i++)
        close(files[i]);
}

/* --- evicted connections --------------------------------------------------------------------- */

/* Rank 0 starts to connect and leaves the library; rank 1 evicts its connection meanwhile. */
TCP_TEST(test_sent_away, 2)
{
    char data[8];
    const struct twill_tcp_common *common = tcp_of(end)->common;
    struct twill_transfer r = message(end, 0, data);
    uint64_t limit = twill_now() + TWILL_TEST_PATIENCE;
    TWILL_CHECK(end_post(end, &r) && end_barrier(end));
    while (end->rank == 1 && common->rejected < 2 && twill_now() < limit) {
        for (struct twill_tcp_incoming *g = common->incoming_list; g != NULL; g = g->next)
            shutdown(g->fd, SHUT_RDWR);
        TWILL_CHECK(end_works(end));
    }
    TWILL_CHECK(end->rank == 0 || common->rejected == 2, "%u rejected", common->rejected);
    TWILL_CHECK(end_barrier(end) && arrives(end, &r));
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
static void find_route(struct twill_test_end *end, void *user)
{
    const unsigned *attempts = user;
    char data[8];
    struct twill_transfer r = message(end, TWILL_POINT_LANE, data);
    routeless = end->rank == 0 ? *attempts : 0;
    if (*attempts < UINT32_MAX) {
        TWILL_CHECK(end_post(end, &r) && arrives(end, &r) && routeless == 0);
    } else if (end->rank == 0) {
        TWILL_CHECK(end_post(end, &r) && end_progress(end) == 0);
        fast += 20;
        int moved = end_until_failure(end);
        TWILL_CHECK(moved == TWILL_ERR_PEER &&
                        strstr(end->error.message, "rank 1 cannot be reached from interface "
                                                   "lo: Network is unreachable") != NULL,
                    "%d: %s", moved, end->error.message);
    }
    routeless = 0;
}

TWILL_TEST(test_no_route)
{
    unsigned attempts[] = {3, UINT32_MAX};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(attempts); i++)
        end_test_run((struct end_test){.ranks = 2,
                                       .processes = true,
                                       .open = tcp_open,
                                       .how = "lo",
                                       .body = find_route,
                                       .user = &attempts[i]});
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
