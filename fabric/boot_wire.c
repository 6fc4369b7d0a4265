/* SPDX-License-Identifier: Apache-2.0 */
/* Frames and sockets of set-up. */
#include "fabric/boot_wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

void twill_wire_fill(struct twill_wire_header *header, enum twill_wire_kind kind,
                     const struct twill_boot *boot, int64_t argument, uint64_t length)
{
    memset(header, 0, sizeof(*header));
    header->magic = TWILL_WIRE_MAGIC;
    header->version = TWILL_WIRE_VERSION;
    header->kind = (uint16_t)kind;
    header->rank = (uint32_t)boot->rank;
    header->size = (uint32_t)boot->size;
    header->argument = argument;
    header->length = length;
    memcpy(header->nonce, boot->nonce, sizeof(header->nonce));
}

bool twill_wire_known(const struct twill_wire_header *header)
{
    return header->magic == TWILL_WIRE_MAGIC && header->version == TWILL_WIRE_VERSION;
}

bool twill_wire_of_job(const struct twill_wire_header *header, const struct twill_boot *boot)
{
    return twill_wire_known(header) && header->size == (uint32_t)boot->size &&
           header->rank < header->size &&
           memcmp(header->nonce, boot->nonce, sizeof(header->nonce)) == 0;
}

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
        struct iovec parts[2] = {
            {.iov_base = (char *)header + head, .iov_len = sizeof(*header) - head},
            {.iov_base = bytes > 0 ? (char *)body + in_body : NULL, .iov_len = bytes - in_body},
        };
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = bytes > 0 ? 2 : 1};
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
        /* Rounded up, so that a wait never ends just before its deadline and spins. */
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

static enum twill_wire_moved wait_for(int fd, short events, uint64_t deadline)
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
        outcome = wait_for(fd, POLLIN, deadline);
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
        outcome = wait_for(fd, POLLOUT, deadline);
        if (outcome != TWILL_WIRE_DONE)
            return outcome;
    }
}

/* A peer whose host vanished is noticed in about 15 s. Best effort: without, only by timeout. */
static void tune(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},  {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, 5}, {IPPROTO_TCP, TCP_KEEPINTVL, 2},
        {IPPROTO_TCP, TCP_KEEPCNT, 5},
    };
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(options); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                         sizeof(options[i].value));
}

int twill_socket_new(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0)
        tune(fd);
    return fd;
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
fail:;
    int why = errno;
    close(fd);
    errno = why;
    return -1;
}

int twill_socket_accept(int listener)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
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

/* "::ffff:1.2.3.4" is how a dual-stack socket says 1.2.3.4. */
static void unmap(const struct sockaddr **address, socklen_t *length, struct sockaddr_in *room)
{
    const struct sockaddr_in6 *six = (const struct sockaddr_in6 *)(const void *)*address;
    if ((*address)->sa_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&six->sin6_addr))
        return;
    memset(room, 0, sizeof(*room));
    room->sin_family = AF_INET;
    room->sin_port = six->sin6_port;
    memcpy(&room->sin_addr, &six->sin6_addr.s6_addr[12], 4);
    *address = (const struct sockaddr *)room;
    *length = sizeof(*room);
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

bool twill_endpoint_address(const char *text, uint16_t port, struct sockaddr_storage *address,
                            socklen_t *length)
{
    struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
                             .ai_socktype = SOCK_STREAM};
    struct addrinfo *found;
    char service[16];
    snprintf(service, sizeof(service), "%u", port);
    memset(address, 0, sizeof(*address));
    if (getaddrinfo(text, service, &hints, &found) != 0)
        return false;
    memcpy(address, found->ai_addr, found->ai_addrlen);
    *length = found->ai_addrlen;
    freeaddrinfo(found);
    return true;
}
