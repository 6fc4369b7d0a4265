/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's side of the rendezvous: one poll loop over the listener, connections that have not said
 * who they are, and ranks that wait. Strangers (silence, garbage, wrong job) are turned away, each
 * within its own small deadline, and cost nobody else anything. */
#include "fabric/boot_tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PENDING        64                   /* connections that have not said who they are */
#define HELLO_NS       UINT64_C(2000000000) /* time they have for it */
#define COMEBACK_NS    UINT64_C(5000000000) /* time a rank that came and went has */
#define PORT_IN_USE_NS UINT64_C(5000000000) /* how long to try for a port that is taken */

struct pending {
    int fd;
    size_t done;
    uint64_t deadline;
    struct twill_wire_header hello;
};

struct meeting {
    struct twill_boot_tcp *tcp;
    uint64_t deadline;
    int absent; /* ranks still to come */
    size_t count;
    struct pending pending[PENDING];
};

/* twillrun's socket: believed only if it is listening on our port. A duplicate, as the original
 * stays open for a later context of this process. */
static int adopt(const char *text, uint16_t port)
{
    struct twill_endpoint endpoint;
    char *end;
    int on = 0;
    socklen_t length = sizeof(on);
    long fd = strtol(text, &end, 10);
    if (*end != '\0' || fd < 0 || fd > 1 << 20 ||
        getsockopt((int)fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &length) != 0 || !on ||
        !twill_socket_name((int)fd, false, &endpoint) || endpoint.port != port)
        return -1;
    return fcntl((int)fd, F_DUPFD_CLOEXEC, 3);
}

/* On loopback if that is what MASTER_ADDR says; else everywhere, as a host's own name often
 * resolves to 127.0.1.1, while others know its real address. */
static int bind_port(const struct twill_boot_tcp *tcp, const struct addrinfo *found)
{
    struct twill_endpoint endpoint;
    struct in6_addr six;
    struct in_addr four;
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(tcp->port)};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(tcp->port)};
    int backlog = tcp->boot.size + PENDING;
    bool local = strcmp(tcp->host, "localhost") == 0 || inet_pton(AF_INET, tcp->host, &four) == 1 ||
                 inet_pton(AF_INET6, tcp->host, &six) == 1;
    for (const struct addrinfo *a = found; local && a; a = a->ai_next) {
        if (!twill_endpoint_of(a->ai_addr, a->ai_addrlen, &endpoint) || !endpoint.loopback)
            continue;
        int fd = twill_socket_listen(a->ai_addr, a->ai_addrlen, backlog);
        if (fd >= 0 || !a->ai_next)
            return fd;
    }
    int fd = twill_socket_listen((struct sockaddr *)&any6, sizeof(any6), backlog);
    if (fd < 0 && errno == EAFNOSUPPORT)
        fd = twill_socket_listen((struct sockaddr *)&any4, sizeof(any4), backlog);
    return fd;
}

static twill_status open_port(struct twill_boot_tcp *tcp, const char *listen_fd, uint64_t deadline,
                              struct twill_error *error)
{
    struct addrinfo *found;
    TWILL_TRY(error, twill_tcp_resolve(tcp, &found, error));
    if (listen_fd && *listen_fd)
        tcp->listener = adopt(listen_fd, tcp->port);
    uint64_t give_up = twill_min(deadline, twill_wire_deadline(PORT_IN_USE_NS));
    while (tcp->listener < 0) {
        tcp->listener = bind_port(tcp, found);
        if (tcp->listener >= 0 || errno != EADDRINUSE || twill_now() >= give_up)
            break;
        poll(NULL, 0, 50);
    }
    int why = errno;
    freeaddrinfo(found);
    if (tcp->listener < 0)
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP,
                          "rank 0 cannot listen on MASTER_ADDR=%.100s MASTER_PORT=%u: %s%s",
                          tcp->host, tcp->port, strerror(why),
                          why == EADDRINUSE ? " (by another job, or by the launcher itself)" : "");
    (void)fcntl(tcp->listener, F_SETFL, fcntl(tcp->listener, F_GETFL) | O_NONBLOCK);
    return TWILL_OK;
}

static void drop(struct meeting *m, struct pending *p)
{
    close(p->fd);
    *p = m->pending[--m->count];
}

static void turn_away(struct meeting *m, struct pending *p)
{
    m->tcp->boot.strays++;
    drop(m, p);
}

/* Has the other end of a rank's connection gone? */
static bool is_gone(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* A rank that waits says nothing: whatever is heard of it means that it has gone. */
static void leave(struct meeting *m, struct twill_tcp_peer *peer)
{
    close(peer->fd);
    peer->fd = -1;
    peer->back_by = twill_wire_deadline(COMEBACK_NS);
    m->absent++;
}

/* Why a program of ours cannot be let in; NULL: it can. */
static const char *objection(struct meeting *m, const struct twill_wire_header *hello)
{
    static const uint8_t none[TWILL_NONCE_BYTES];
    const struct twill_boot *boot = &m->tcp->boot;
    if (hello->version != TWILL_WIRE_VERSION)
        return "another version of twill";
    if (hello->kind != TWILL_WIRE_HELLO || hello->length != 0)
        return "not a greeting";
    if (memcmp(hello->nonce, m->tcp->named ? boot->nonce : none, sizeof(none)) != 0)
        return "another job (TWILL_JOB differs)";
    if (hello->size != (uint32_t)boot->size)
        return "WORLD_SIZE differs";
    if (hello->rank == 0 || hello->rank >= hello->size)
        return "RANK is out of range or taken by rank 0";
    if (m->tcp->peer[hello->rank].fd < 0)
        return NULL;
    if (!is_gone(m->tcp->peer[hello->rank].fd))
        return "RANK is taken by another process";
    leave(m, &m->tcp->peer[hello->rank]);
    return NULL;
}

/* A whole header has come: let the rank in, or tell it why not. */
static void judge(struct meeting *m, struct pending *p)
{
    struct twill_wire_header answer;
    char text[TWILL_WIRE_TEXT];
    size_t done = 0;
    const char *reason = objection(m, &p->hello);
    if (!reason) {
        uint64_t patience = p->hello.argument < 0 ? 0 : (uint64_t)p->hello.argument;
        struct twill_tcp_peer *peer = &m->tcp->peer[p->hello.rank];
        *peer = (struct twill_tcp_peer){.fd = p->fd};
        m->absent--;
        /* Give up before the most impatient does, so that it hears who was missing. */
        patience = twill_min(patience, UINT32_MAX) * 1000000;
        m->deadline = twill_min(m->deadline, twill_wire_deadline(patience));
        *p = m->pending[--m->count];
        return;
    }
    snprintf(text, sizeof(text), "%s (rank 0 expects %d ranks)", reason, m->tcp->boot.size);
    twill_wire_fill(&answer, TWILL_WIRE_REFUSE, &m->tcp->boot, TWILL_ERR_BOOTSTRAP, strlen(text));
    memset(answer.nonce, 0, sizeof(answer.nonce)); /* not for strangers */
    (void)twill_wire_write(p->fd, &answer, text, strlen(text), &done);
    turn_away(m, p);
}

static void hear(struct meeting *m, struct pending *p)
{
    enum twill_wire_moved outcome = twill_wire_read(p->fd, &p->hello, sizeof(p->hello), &p->done);
    bool ours = p->done < sizeof(p->hello.magic) || p->hello.magic == TWILL_WIRE_MAGIC;
    if (outcome == TWILL_WIRE_GONE || !ours)
        turn_away(m, p);
    else if (outcome == TWILL_WIRE_DONE)
        judge(m, p);
}

static twill_status admit(struct meeting *m, struct twill_error *error)
{
    while (m->count < PENDING) {
        int fd = twill_socket_accept(m->tcp->listener);
        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS))
            return twill_tcp_fail(m->tcp, error, TWILL_ERR_SYSTEM,
                                  "accept with %d of %d ranks connected: %s (see ulimit -n)",
                                  m->tcp->boot.size - m->absent, m->tcp->boot.size,
                                  strerror(errno));
        if (fd < 0)
            return TWILL_OK;
        m->pending[m->count++] =
            (struct pending){.fd = fd, .deadline = twill_wire_deadline(HELLO_NS)};
    }
    return TWILL_OK;
}

/* Ranks that were here and have gone: forget the connection; fail if one does not come back. */
static twill_status check_waiting(struct meeting *m, uint64_t *wake, struct twill_error *error)
{
    struct twill_boot_tcp *tcp = m->tcp;
    for (int r = 1; r < tcp->boot.size; r++) {
        struct twill_tcp_peer *peer = &tcp->peer[r];
        if (peer->fd >= 0 && tcp->polls[r].fd == peer->fd && tcp->polls[r].revents != 0)
            leave(m, peer);
        if (peer->fd >= 0 || peer->back_by == 0)
            continue;
        if (twill_now() >= peer->back_by)
            return twill_tcp_fail(tcp, error, TWILL_ERR_PEER,
                                  "rank %d joined and ended before all ranks were there", r);
        *wake = twill_min(*wake, peer->back_by);
    }
    return TWILL_OK;
}

/* Sleep until something happens to anybody. */
static twill_status wait_any(struct meeting *m, uint64_t wake, struct twill_error *error)
{
    struct twill_boot_tcp *tcp = m->tcp;
    size_t ranks = (size_t)tcp->boot.size, used = 0;
    /* polls[r] is rank r's; the listener and the pending ones follow. */
    tcp->polls[used++] = (struct pollfd){.fd = -1};
    for (; used < ranks; used++)
        tcp->polls[used] = (struct pollfd){.fd = tcp->peer[used].fd, .events = POLLIN | POLLRDHUP};
    tcp->polls[used++] =
        (struct pollfd){.fd = m->count < PENDING ? tcp->listener : -1, .events = POLLIN};
    for (size_t i = 0; i < m->count; i++) {
        tcp->polls[used++] = (struct pollfd){.fd = m->pending[i].fd, .events = POLLIN};
        wake = twill_min(wake, m->pending[i].deadline);
    }
    if (twill_wire_poll(tcp->polls, used, wake) < 0)
        return twill_tcp_fail(tcp, error, TWILL_ERR_SYSTEM, "poll: %s", strerror(errno));
    return TWILL_OK;
}

/* Where others reach this host: what a connection from elsewhere came to, if there is one. */
static void find_address(struct twill_boot_tcp *tcp)
{
    struct twill_endpoint endpoint = {.loopback = true};
    for (int r = 1; r < tcp->boot.size && endpoint.loopback; r++)
        if (twill_socket_name(tcp->peer[r].fd, false, &endpoint))
            memcpy(tcp->boot.address, endpoint.address, sizeof(tcp->boot.address));
}

/* All are there. A rank that dies right now is noticed by the first all-gather. */
static void welcome(struct twill_boot_tcp *tcp)
{
    struct twill_wire_header header;
    twill_wire_fill(&header, TWILL_WIRE_WELCOME, &tcp->boot, 0, sizeof(tcp->boot.address));
    for (int r = 1; r < tcp->boot.size; r++) {
        size_t done = 0;
        (void)twill_wire_write(tcp->peer[r].fd, &header, tcp->boot.address,
                               sizeof(tcp->boot.address), &done);
    }
}

static bool is_absent(const struct twill_tcp_peer *peer)
{
    return peer->fd < 0;
}

/* One turn of the loop. */
static twill_status turn(struct meeting *m, struct twill_error *error)
{
    struct twill_boot_tcp *tcp = m->tcp;
    uint64_t wake = m->deadline;
    char who[128];
    TWILL_TRY(error, check_waiting(m, &wake, error));
    if (twill_now() >= m->deadline) {
        twill_tcp_list(tcp, is_absent, who, sizeof(who));
        return twill_tcp_fail(tcp, error, TWILL_ERR_TIMEOUT,
                              "%d of %d ranks did not join at %.100s:%u in time: rank %s "
                              "(%u stray connections turned away)",
                              m->absent, tcp->boot.size, tcp->host, tcp->port, who,
                              tcp->boot.strays);
    }
    TWILL_TRY(error, wait_any(m, wake, error));
    const struct pollfd *polls = &tcp->polls[tcp->boot.size + 1];
    for (size_t i = m->count; i-- > 0;) {
        if (polls[i].revents != 0)
            hear(m, &m->pending[i]);
        else if (twill_now() >= m->pending[i].deadline)
            turn_away(m, &m->pending[i]);
    }
    return admit(m, error);
}

twill_status twill_tcp_meet(struct twill_boot_tcp *tcp, const char *listen_fd,
                            struct twill_error *error)
{
    struct meeting m = {.tcp = tcp, .absent = tcp->boot.size - 1};
    twill_status status = TWILL_OK;
    m.deadline = twill_wire_deadline(tcp->boot.timeout_ns);
    memset(tcp->polls, 0, (size_t)tcp->boot.size * sizeof(*tcp->polls));
    TWILL_TRY(error, open_port(tcp, listen_fd, m.deadline, error));
    while (m.absent > 0 && status == TWILL_OK)
        status = turn(&m, error);
    /* Whoever has not said who it is by now is not of this job: all its ranks are here. */
    while (m.count > 0)
        turn_away(&m, &m.pending[0]);
    TWILL_TRY(error, status);
    close(tcp->listener);
    tcp->listener = -1;
    find_address(tcp);
    welcome(tcp);
    return TWILL_OK;
}
