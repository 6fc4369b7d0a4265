/* SPDX-License-Identifier: Apache-2.0 */
/* Connections between agents. The caller sends 64 KiB and waits for one byte, so that a path that
 * drops large packets is also found. Any process may connect, but only bytes are counted. */
#include "fabric/bootstrap/frames.h"
#include "fabric/launcher/preflight/preflight_agent.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MOST_CALLERS 4096

/* An attempt of twill-check's agent on this host to connect to the agent on another and to send it
 * PREFLIGHT_PROBE bytes. An element of links->attempt[]. */
struct preflight_attempt {
    int fd; /* -1: the attempt has ended, with `result` */
    int to; /* number of the host */
    bool connected;
    size_t sent;                 /* bytes of the PREFLIGHT_PROBE */
    uint64_t start_ns, until_ns; /* its begin, and the deadline to connect or for the data */
    struct preflight_link result;
};

static const char nothing[PREFLIGHT_PROBE]; /* the data that is sent */

int preflight_links_listen(struct preflight_links *links, const char *address)
{
    struct twill_endpoint here;
    links->listener = twill_socket_listen_at(address, 0, SOMAXCONN);
    return links->listener >= 0 && twill_socket_name(links->listener, false, &here) ? here.port : 0;
}

/* Accept all connections that wait, or close one if there is no place for it. */
static void accept_callers(struct preflight_links *links)
{
    int fd;
    while ((fd = twill_socket_accept(links->listener)) >= 0) {
        size_t count = (size_t)links->callers + 1;
        int *caller = realloc(links->caller, count * sizeof(*caller));
        links->caller = caller ? caller : links->caller;
        size_t *received = realloc(links->received, count * sizeof(*received));
        links->received = received ? received : links->received;
        if (!caller || !received || links->callers >= MOST_CALLERS) {
            close(fd);
            return;
        }
        caller[links->callers] = fd;
        received[links->callers++] = 0;
    }
}

/* Read from a caller, count the bytes in *received, and acknowledge the last of PREFLIGHT_PROBE.
 * Returns false if the connection is over, else true. */
static bool serve_caller(int fd, size_t *received)
{
    char data[16384];
    ssize_t n;
    while ((n = read(fd, data, sizeof(data))) > 0) {
        *received += (size_t)n;
        if (*received == PREFLIGHT_PROBE && send(fd, "k", 1, MSG_NOSIGNAL) != 1)
            return false;
        if (*received > PREFLIGHT_PROBE)
            return false;
    }
    return n < 0 && (errno == EAGAIN || errno == EINTR);
}

/* Record the result of an attempt and close its connection. */
static void finish_attempt(struct preflight_attempt *attempt, enum preflight_reach reach, int error)
{
    attempt->result.reach = reach;
    attempt->result.error = error;
    if (attempt->fd >= 0)
        close(attempt->fd);
    attempt->fd = -1;
}

/* Finish an attempt with the result that an errno means. */
static void fail_attempt(struct preflight_attempt *attempt, int error)
{
    enum preflight_reach reach = PREFLIGHT_FAILED;
    if (error == ECONNREFUSED)
        reach = PREFLIGHT_REFUSED;
    else if (error == ETIMEDOUT)
        reach = attempt->connected ? PREFLIGHT_STALLED : PREFLIGHT_DROPPED;
    else if (error == EHOSTUNREACH || error == ENETUNREACH || error == EACCES || error == EPERM)
        reach = PREFLIGHT_UNREACHABLE;
    finish_attempt(attempt, reach, error);
}

bool preflight_links_call(struct preflight_links *links, int to, const char *address, uint16_t port,
                          const char *own)
{
    char there[TWILL_ADDRESS_TEXT];
    bool pending;
    struct preflight_attempt *more =
        realloc(links->attempt, ((size_t)links->attempts + 1) * sizeof(*more));
    if (!more)
        return false;
    links->attempt = more;
    struct preflight_attempt *attempt = &more[links->attempts++];
    uint64_t now = twill_now();
    *attempt = (struct preflight_attempt){
        .fd = -1, .to = to, .start_ns = now, .until_ns = now + PREFLIGHT_REACH_NS};
    snprintf(there, sizeof(there), "%s", address);
    twill_address_localise(there, own);
    attempt->fd = twill_socket_dial(there, port, &pending);
    if (attempt->fd < 0)
        fail_attempt(attempt, errno);
    return true;
}

/* Return the MTU of the path, which the kernel may have learnt from sending, or 0 if not known. */
static int find_path_mtu(int fd)
{
    struct twill_endpoint own;
    socklen_t bytes = sizeof(int);
    int mtu = 0;
    if (!twill_socket_name(fd, false, &own))
        return 0;
    bool six = strchr(own.address, ':') != NULL;
    int failed = six ? getsockopt(fd, IPPROTO_IPV6, IPV6_MTU, &mtu, &bytes)
                     : getsockopt(fd, IPPROTO_IP, IP_MTU, &mtu, &bytes);
    return failed == 0 ? mtu : 0;
}

/* Progress an attempt whose socket has an event, to its end if possible. */
static void move_attempt(struct preflight_attempt *attempt)
{
    char answer;
    if (!attempt->connected) {
        int error = twill_socket_connected(attempt->fd);
        if (error != 0) {
            fail_attempt(attempt, error);
            return;
        }
        attempt->connected = true;
        attempt->result.took_us = (int64_t)((twill_now() - attempt->start_ns) / 1000);
        attempt->until_ns = twill_now() + PREFLIGHT_REACH_NS;
    }
    while (attempt->sent < PREFLIGHT_PROBE) {
        ssize_t n = send(attempt->fd, nothing + attempt->sent, PREFLIGHT_PROBE - attempt->sent,
                         MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            fail_attempt(attempt, errno);
        if (n <= 0)
            return;
        attempt->sent += (size_t)n;
    }
    ssize_t n = read(attempt->fd, &answer, 1);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    attempt->result.path_mtu = find_path_mtu(attempt->fd);
    if (n == 1)
        finish_attempt(attempt, PREFLIGHT_GOOD, 0);
    else
        fail_attempt(attempt, n < 0 ? errno : ECONNRESET);
}

int preflight_links_count(const struct preflight_links *links)
{
    return 1 + links->callers + links->attempts;
}

void preflight_links_polls(const struct preflight_links *links, struct pollfd *polls)
{
    *polls++ = (struct pollfd){.fd = links->listener, .events = POLLIN};
    for (int i = 0; i < links->callers; i++)
        *polls++ = (struct pollfd){.fd = links->caller[i], .events = POLLIN};
    for (int i = 0; i < links->attempts; i++) {
        const struct preflight_attempt *attempt = &links->attempt[i];
        bool sending = !attempt->connected || attempt->sent < PREFLIGHT_PROBE;
        *polls++ = (struct pollfd){.fd = attempt->fd, .events = sending ? POLLOUT : POLLIN};
    }
}

void preflight_links_turn(struct preflight_links *links, const struct pollfd *polls)
{
    int callers = links->callers, kept = 0;
    bool calls = polls[0].revents != 0;
    for (int i = 0; i < callers; i++) {
        int fd = links->caller[i];
        size_t received = links->received[i];
        if (polls[1 + i].revents != 0 && !serve_caller(fd, &received)) {
            close(fd);
            continue;
        }
        links->caller[kept] = fd;
        links->received[kept++] = received;
    }
    links->callers = kept;
    for (int i = 0; i < links->attempts; i++)
        if (links->attempt[i].fd >= 0 && polls[1 + callers + i].revents != 0)
            move_attempt(&links->attempt[i]);
    if (calls)
        accept_callers(links);
}

int preflight_links_pending(struct preflight_links *links)
{
    int pending = 0;
    uint64_t now = twill_now();
    for (int i = 0; i < links->attempts; i++) {
        struct preflight_attempt *attempt = &links->attempt[i];
        if (attempt->fd >= 0 && now >= attempt->until_ns)
            fail_attempt(attempt, ETIMEDOUT);
        pending += attempt->fd >= 0;
    }
    return pending;
}

int preflight_links_result(const struct preflight_links *links, int index,
                           struct preflight_link *result)
{
    *result = links->attempt[index].result;
    return links->attempt[index].to;
}

void preflight_links_clear(struct preflight_links *links)
{
    for (int i = 0; i < links->attempts; i++)
        if (links->attempt[i].fd >= 0)
            close(links->attempt[i].fd);
    free(links->attempt);
    links->attempt = NULL;
    links->attempts = 0;
}

void preflight_links_close(struct preflight_links *links)
{
    preflight_links_clear(links);
    for (int i = 0; i < links->callers; i++)
        close(links->caller[i]);
    if (links->listener >= 0)
        close(links->listener);
    free(links->caller);
    free(links->received);
    *links = (struct preflight_links){.listener = -1};
}
