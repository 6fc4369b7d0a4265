/* SPDX-License-Identifier: Apache-2.0 */
/* A program's side of the connection to twill-compare's driver, for ranks on several hosts. Each
 * has a private board; what belongs to all ranks goes through the driver. For C and C++. */
#ifndef TWILL_PEER_LINK_H
#define TWILL_PEER_LINK_H

#include "driver_link.h"

#include <sched.h>
#include <stdlib.h>

struct peer_link {
    int socket;                 /* -1: the ranks share a board */
    char here[INET_ADDRSTRLEN]; /* this host's address on the route to the driver */
    double patience;
};

/* Connect within 1.5 s. Returns the socket, or -1. */
static inline int peer_link_dial(const char *address, int port)
{
    struct sockaddr_in to;
    memset(&to, 0, sizeof(to));
    to.sin_family = AF_INET;
    to.sin_port = htons((uint16_t)port);
    int one = 1, error = 0, link = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    socklen_t length = sizeof(error);
    if (link >= 0 && inet_pton(AF_INET, address, &to.sin_addr) == 1) {
        struct pollfd wait = {link, POLLOUT, 0};
        if (connect(link, (struct sockaddr *)&to, sizeof(to)) == 0 ||
            (errno == EINPROGRESS && poll(&wait, 1, 1500) == 1 &&
             getsockopt(link, SOL_SOCKET, SO_ERROR, &error, &length) == 0 && error == 0)) {
            setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
            return link;
        }
    }
    if (link >= 0)
        close(link);
    return -1;
}

static inline int peer_link_greet(struct peer_link *link, int rank, const char *token,
                                  struct twill_compare_welcome *welcome)
{
    struct twill_compare_hello hello;
    struct sockaddr_in here;
    socklen_t length = sizeof(here);
    cpu_set_t set;
    memset(&hello, 0, sizeof(hello));
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof(set), &set);
    for (int cpu = 0; cpu < TWILL_COMPARE_CPUS && cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set))
            hello.cpus[cpu / 8] = (uint8_t)(hello.cpus[cpu / 8] | 1 << cpu % 8);
    strncpy(hello.token, token, sizeof(hello.token) - 1);
    twill_compare_read_line("/proc/sys/kernel/random/boot_id", hello.boot_id,
                            sizeof(hello.boot_id));
    twill_compare_read_line("/proc/sys/net/ipv4/tcp_congestion_control", hello.congestion,
                            sizeof(hello.congestion));
    gethostname(hello.host, sizeof(hello.host) - 1);
    hello.pid = (int32_t)getpid();
    if (getsockname(link->socket, (struct sockaddr *)&here, &length) != 0 ||
        inet_ntop(AF_INET, &here.sin_addr, link->here, sizeof(link->here)) == NULL)
        return -1;
    return twill_compare_send(link->socket, TWILL_COMPARE_HELLO, rank, &hello, sizeof(hello)) ||
           twill_compare_receive(link->socket, TWILL_COMPARE_WELCOME, welcome, sizeof(*welcome));
}

/* Connect to the driver by one of its addresses, and fill in the head of the board. Returns 0 or
 * -1. */
static inline int peer_link_open(struct peer_link *link, const char *text, int rank,
                                 struct twill_compare_board *board)
{
    char copy[512], *rest = copy, *address;
    struct twill_compare_welcome welcome;
    strncpy(copy, text + strlen(TWILL_COMPARE_LINK), sizeof(copy) - 1);
    copy[sizeof(copy) - 1] = '\0';
    const char *port = strsep(&rest, ":"), *token = strsep(&rest, ":");
    if (rank < 0 || rank >= TWILL_COMPARE_RANKS || token == NULL)
        return -1;
    while (link->socket < 0 && (address = strsep(&rest, ",")) != NULL)
        link->socket = peer_link_dial(address, atoi(port));
    if (link->socket < 0 || peer_link_greet(link, rank, token, &welcome) != 0)
        return -1;
    board->ranks = welcome.ranks;
    board->bind = welcome.bind;
    board->core[rank] = welcome.core;
    board->capacity = welcome.capacity;
    link->patience = welcome.patience;
    return 0;
}

static inline void peer_link_done(const struct peer_link *link, int rank,
                                  struct twill_compare_board *board)
{
    struct twill_compare_result result;
    memset(&result, 0, sizeof(result));
    result.error = board->error[rank];
    result.wrong = board->wrong[rank];
    result.calls = board->calls;
    result.batches = board->batches;
    memcpy(result.seconds, board->seconds[rank], sizeof(result.seconds));
    memcpy(result.library, board->library, sizeof(result.library));
    memcpy(result.message, board->message, sizeof(result.message));
    alarm(0);
    twill_compare_send(link->socket, TWILL_COMPARE_RESULT, rank, &result, sizeof(result));
}

/* Wait for the next order. A rank that hangs ends itself by SIGALRM, as the driver may be unable to
 * kill processes on its host. */
static inline int peer_link_order(const struct peer_link *link, int rank,
                                  struct twill_compare_board *board)
{
    if (twill_compare_receive(link->socket, TWILL_COMPARE_ORDERED, &board->order,
                              sizeof(board->order)) != 0)
        return -1;
    if (board->order.step != TWILL_COMPARE_NO_STEP &&
        twill_compare_receive(link->socket, TWILL_COMPARE_MODEL, &board->model,
                              sizeof(board->model)) != 0)
        return -1;
    alarm((unsigned)link->patience + 5);
    board->calls = board->batches = 0;
    board->wrong[rank] = 0;
    return 0;
}

/* Give all ranks the counts that rank 0 has written. */
static inline int peer_link_agree_counts(const struct peer_link *link, int rank,
                                         struct twill_compare_board *board)
{
    struct twill_compare_counts counts = {board->calls, board->batches};
    if (rank == 0)
        return twill_compare_send(link->socket, TWILL_COMPARE_COUNTS, 0, &counts, sizeof(counts));
    if (twill_compare_receive(link->socket, TWILL_COMPARE_COUNTS, &counts, sizeof(counts)) != 0)
        return -1;
    board->calls = counts.calls;
    board->batches = counts.batches;
    return 0;
}

/* Return whether a frame can be received. */
static inline int peer_link_pending(const struct peer_link *link)
{
    struct pollfd wait = {link->socket, POLLIN, 0};
    return poll(&wait, 1, 0) == 1;
}

#endif
