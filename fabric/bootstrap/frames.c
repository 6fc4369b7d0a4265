/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and sockets of set-up. */
#include "fabric/bootstrap/frames.h"
#include "lib/base/times.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Return the label for proofs of frames that the end that connected sends, or the other end. */
static const char *direction(bool from_caller)
{
    return from_caller ? "frame of the caller" : "frame of the called";
}

void twill_wire_seal(struct twill_session *session, struct twill_wire_header *header,
                     enum twill_wire_kind kind, int64_t argument, const void *body, size_t bytes,
                     const uint8_t *digest)
{
    memset(header, 0, sizeof(*header));
    header->magic = TWILL_WIRE_MAGIC;
    header->version = TWILL_WIRE_VERSION;
    header->kind = (uint16_t)kind;
    header->sequence = session->sent++;
    header->argument = argument;
    header->length = bytes;
    if (digest)
        memcpy(header->digest, digest, sizeof(header->digest));
    else
        twill_secret_digest(body, bytes, header->digest);
    twill_secret_prove(&session->key, direction(session->caller), header,
                       offsetof(struct twill_wire_header, proof), header->proof);
}

enum twill_fault twill_wire_check(struct twill_session *session,
                                  const struct twill_wire_header *header)
{
    if (header->magic != TWILL_WIRE_MAGIC)
        return TWILL_FAULT_MALFORMED;
    if (header->version != TWILL_WIRE_VERSION)
        return TWILL_FAULT_VERSION;
    if (!twill_secret_check(&session->key, direction(!session->caller), header,
                            offsetof(struct twill_wire_header, proof), header->proof))
        return TWILL_FAULT_KEY;
    if (header->sequence != session->received)
        return TWILL_FAULT_REPLAYED;
    session->received++;
    return TWILL_FAULT_NONE;
}

bool twill_wire_is_body(const struct twill_wire_header *header, const void *body)
{
    uint8_t digest[TWILL_DIGEST_BYTES];
    twill_secret_digest(body, header->length, digest);
    return memcmp(digest, header->digest, sizeof(digest)) == 0;
}

/* Convert the result `n` of recv() or sendmsg(). Returns TWILL_WIRE_DONE if n is 0 or more. If n is
 * negative, returns TWILL_WIRE_LATER if the call can be repeated later (EAGAIN, EINTR), else
 * TWILL_WIRE_GONE. */
static enum twill_wire_moved moved(ssize_t n)
{
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return TWILL_WIRE_LATER;
    return n < 0 ? TWILL_WIRE_GONE : TWILL_WIRE_DONE;
}

enum twill_wire_moved twill_wire_read(int fd, void *buffer, size_t bytes, size_t *done)
{
    while (*done < bytes) {
        ssize_t n = recv(fd, (char *)buffer + *done, bytes - *done, MSG_DONTWAIT);
        if (n == 0)
            errno = 0;
        if (n <= 0)
            return n == 0 ? TWILL_WIRE_GONE : moved(n);
        *done += (size_t)n;
    }
    return TWILL_WIRE_DONE;
}

enum twill_wire_moved twill_wire_write(int fd, const struct twill_wire_header *header,
                                       const void *body, size_t bytes, size_t *done)
{
    while (*done < sizeof(*header) + bytes) {
        size_t head = twill_min(*done, sizeof(*header)), in_body = *done - head;
        struct iovec iov[2] = {
            {.iov_base = (char *)header + head, .iov_len = sizeof(*header) - head},
            {.iov_base = bytes > 0 ? (char *)body + in_body : NULL, .iov_len = bytes - in_body},
        };
        struct msghdr message = {.msg_iov = iov, .msg_iovlen = bytes > 0 ? 2 : 1};
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0)
            return moved(n);
        *done += (size_t)n;
    }
    return TWILL_WIRE_DONE;
}

int twill_wire_poll(struct pollfd *polls, size_t count, uint64_t deadline)
{
    for (;;) {
        uint64_t now = twill_now();
        /* Round up, so that a wait never ends just before its deadline and spins. */
        uint64_t ms = deadline > now ? (deadline - now + 999999) / 1000000 : 0;
        int n = poll(polls, count, ms > 1000000 ? 1000000 : (int)ms);
        if (n > 0 || (n == 0 && twill_now() >= deadline))
            return n;
        if (n < 0 && errno != EINTR)
            return n;
        if (n < 0 && twill_now() >= deadline)
            return 0;
    }
}

enum twill_wire_moved twill_wire_wait(int fd, short events, uint64_t deadline)
{
    struct pollfd one = {.fd = fd, .events = events};
    int n = twill_wire_poll(&one, 1, deadline);
    if (n == 0)
        return TWILL_WIRE_LATER;
    return n < 0 ? TWILL_WIRE_GONE : TWILL_WIRE_DONE;
}

enum twill_wire_moved twill_wire_read_by(int fd, void *buffer, size_t bytes, uint64_t deadline)
{
    size_t done = 0;
    for (;;) {
        enum twill_wire_moved outcome = twill_wire_read(fd, buffer, bytes, &done);
        if (outcome != TWILL_WIRE_LATER)
            return outcome;
        outcome = twill_wire_wait(fd, POLLIN, deadline);
        if (outcome != TWILL_WIRE_DONE)
            return outcome;
    }
}

enum twill_wire_moved twill_wire_write_by(int fd, const struct twill_wire_header *header,
                                          const void *body, size_t bytes, uint64_t deadline)
{
    size_t done = 0;
    for (;;) {
        enum twill_wire_moved outcome = twill_wire_write(fd, header, body, bytes, &done);
        if (outcome != TWILL_WIRE_LATER)
            return outcome;
        outcome = twill_wire_wait(fd, POLLOUT, deadline);
        if (outcome != TWILL_WIRE_DONE)
            return outcome;
    }
}

/* Set a TCP socket's options, without Nagle's delay and with keep-alive, ignoring failures.
 * Keep-alive finds a silent host in about 15 s. */
static void tune(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},
        {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, TWILL_KEEPALIVE_IDLE_S},
        {IPPROTO_TCP, TCP_KEEPINTVL, TWILL_KEEPALIVE_AGAIN_S},
        {IPPROTO_TCP, TCP_KEEPCNT, 5},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(options); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof(options[i].value));
}

int twill_socket_new(int family)
{
    int fd = twill_fd_move(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0),
                           TWILL_FD_LEAST);
    if (fd >= 0)
        tune(fd);
    return fd;
}

int twill_socket_drop(int fd)
{
    int why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    return -1;
}

/* A live host acknowledges retransmissions even if its process reads nothing. Return true only
 * after two without an answer, because probes of a closed window may be minutes apart, and the
 * second is sent only if the first was not answered. Linux itself gives up after 15 minutes. */
bool twill_socket_is_silent(int fd)
{
    struct tcp_info info;
    socklen_t length = sizeof(info);
    memset(&info, 0, sizeof(info));
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
           (info.tcpi_retransmits > 1 || info.tcpi_probes > 1) &&
           info.tcpi_last_ack_recv > TWILL_KEEPALIVE_SILENT_MS;
}

int twill_socket_listen(const struct sockaddr *address, socklen_t length, int backlog)
{
    int on = 1, off = 0;
    int fd = twill_socket_new(address->sa_family);
    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0)
        goto fail;
    if (address->sa_family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (bind(fd, address, length) != 0 || listen(fd, backlog) != 0)
        goto fail;
    return fd;
fail:
    return twill_socket_drop(fd);
}

int twill_socket_accept(int listener)
{
    int fd =
        twill_fd_move(accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC), TWILL_FD_LEAST);
    if (fd >= 0)
        tune(fd);
    return fd;
}

int twill_socket_connect(int fd, const struct sockaddr *address, socklen_t length)
{
    if (connect(fd, address, length) != 0)
        return errno == EINPROGRESS || errno == EINTR ? 1 : -1;
    errno = twill_socket_connected(fd);
    return errno == 0 ? 0 : -1;
}

int twill_socket_listen_at(const char *address, uint16_t port, int backlog)
{
    struct sockaddr_storage at;
    socklen_t length;
    errno = EAFNOSUPPORT;
    int fd = twill_endpoint_address(address ? address : "::", port, &at, &length)
                 ? twill_socket_listen((struct sockaddr *)&at, length, backlog)
                 : -1;
    if (fd < 0 && !address && errno == EAFNOSUPPORT)
        fd = twill_socket_listen_at("0.0.0.0", port, backlog);
    return fd;
}

int twill_socket_dial(const char *address, uint16_t port, bool *pending)
{
    struct sockaddr_storage at;
    socklen_t length;
    errno = EADDRNOTAVAIL;
    int fd =
        twill_endpoint_address(address, port, &at, &length) ? twill_socket_new(at.ss_family) : -1;
    int outcome = fd < 0 ? -1 : twill_socket_connect(fd, (struct sockaddr *)&at, length);
    *pending = outcome > 0;
    if (outcome >= 0)
        return fd;
    return twill_socket_drop(fd);
}

int twill_socket_connected(int fd)
{
    struct twill_endpoint here, there;
    int why = 0;
    socklen_t length = sizeof(why);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &length) != 0)
        return errno;
    if (why != 0)
        return why;
    if (!twill_socket_name(fd, false, &here) || !twill_socket_name(fd, true, &there))
        return ECONNRESET;
    if (here.port == there.port && strcmp(here.address, there.address) == 0)
        return ECONNREFUSED;
    return 0;
}

/* If *address is "::ffff:1.2.3.4", the form of IPv4 on a dual-stack socket, set *address and
 * *length to 1.2.3.4 with the same port. That address is written into `storage`. Other addresses
 * stay. */
static void unmap(const struct sockaddr **address, socklen_t *length, struct sockaddr_in *storage)
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)*address;
    if ((*address)->sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
        return;
    memset(storage, 0, sizeof(*storage));
    storage->sin_family = AF_INET;
    storage->sin_port = six->sin6_port;
    memcpy(&storage->sin_addr, &six->sin6_addr.s6_addr[12], 4);
    *address = (const struct sockaddr *)storage;
    *length = sizeof(*storage);
}

bool twill_endpoint_of(const struct sockaddr *address, socklen_t length,
                       struct twill_endpoint *endpoint)
{
    struct sockaddr_in four;
    char port[16];
    memset(endpoint, 0, sizeof(*endpoint));
    unmap(&address, &length, &four);
    if (getnameinfo(address, length, endpoint->address, sizeof(endpoint->address), port,
                    sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return false;
    endpoint->port = (uint16_t)strtoul(port, NULL, 10);
    if (address->sa_family == AF_INET)
        endpoint->loopback =
            ntohl(((const struct sockaddr_in *)(const void *)address)->sin_addr.s_addr) >> 24 ==
            127;
    else
        endpoint->loopback =
            IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    return true;
}

bool twill_socket_name(int fd, bool other_end, struct twill_endpoint *endpoint)
{
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    int failed = other_end ? getpeername(fd, (struct sockaddr *)&address, &length)
                           : getsockname(fd, (struct sockaddr *)&address, &length);
    return failed == 0 && twill_endpoint_of((struct sockaddr *)&address, length, endpoint);
}

/* Set *scope to the index of the interface that `text` names, such as "eth0" of "fe80::1%eth0".
 * `text` may also be the index in digits. Returns false if it is neither. */
static bool read_scope(const char *text, uint32_t *scope)
{
    char *end;
    *scope = if_nametoindex(text);
    if (*scope == 0 && *text >= '0' && *text <= '9') {
        unsigned long number = strtoul(text, &end, 10);
        *scope = *end == '\0' && number <= UINT32_MAX ? (uint32_t)number : 0;
    }
    return *scope > 0;
}

/* This does not use getaddrinfo(), which allocates memory, as any call may connect to peers. */
bool twill_endpoint_address(const char *text, uint16_t port, struct sockaddr_storage *address,
                            socklen_t *length)
{
    struct sockaddr_in *four = (struct sockaddr_in *)(void *)address;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)(void *)address;
    char plain[INET6_ADDRSTRLEN];
    size_t scope = strcspn(text, "%");
    memset(address, 0, sizeof(*address));
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(port);
        *length = sizeof(*four);
        return true;
    }
    if (scope >= sizeof(plain))
        return false;
    snprintf(plain, sizeof(plain), "%.*s", (int)scope, text);
    if (inet_pton(AF_INET6, plain, &six->sin6_addr) != 1 ||
        (text[scope] == '%' && !read_scope(text + scope + 1, &six->sin6_scope_id)))
        return false;
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    *length = sizeof(*six);
    return true;
}
