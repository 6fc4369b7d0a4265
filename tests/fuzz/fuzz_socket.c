/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/fuzz/fuzz_socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sanitizer/asan_interface.h>
#include <sys/uio.h>

#define FIRST_FD    (1 << 20) /* above what the kernel gives out */
#define ENDS        32
#define WAITING     8
#define BUFFER      (96u << 10)
#define CLOCK_BEGIN UINT64_C(1000000000000)

/* One end of a connection; that of number n ^ 1 is the other. Or a listener. */
struct fuzz_end {
    bool used, listens, shut; /* shut: it sends nothing any more */
    size_t begin, end;        /* of what it has not read */
    unsigned char bytes[BUFFER];
    int waits[WAITING]; /* listener: connections to be accepted */
    size_t waiting;
};

static struct fuzz_end ends[ENDS];
static int called = -1, last_called = -1;
static size_t read_most = SIZE_MAX;
static void (*idle)(void);
static bool unix_too, unix_refuses;
static uint64_t now = CLOCK_BEGIN;

static struct fuzz_end *end_of(int fd)
{
    return fd >= FIRST_FD && fd < FIRST_FD + ENDS ? &ends[fd - FIRST_FD] : NULL;
}

static struct fuzz_end *other_end(const struct fuzz_end *end)
{
    return &ends[(end - ends) ^ 1];
}

/* Take a free pair of ends, of which the first is used. */
static int take_end(void)
{
    int i = 0;
    while (i < ENDS && (ends[i].used || ends[i + 1].used))
        i += 2;
    fuzz_must(i < ENDS);
    for (int n = i; n < i + 2; n++) {
        ends[n].used = ends[n].listens = ends[n].shut = false;
        ends[n].begin = ends[n].end = ends[n].waiting = 0;
    }
    ends[i].used = true;
    return FIRST_FD + i;
}

void fuzz_pair(int fd[2])
{
    fd[0] = take_end();
    fd[1] = fd[0] + 1;
    end_of(fd[1])->used = true;
}

int fuzz_connect(int listener)
{
    struct fuzz_end *at = end_of(listener);
    int fd[2];
    fuzz_must(at != NULL && at->used && at->listens && at->waiting < WAITING);
    fuzz_pair(fd);
    at->waits[at->waiting++] = fd[1];
    return fd[0];
}

int fuzz_called(void)
{
    int fd = called;
    called = -1;
    return fd;
}

void fuzz_sockets_reset(void)
{
    for (int i = 0; i < ENDS; i++) {
        ends[i].waiting = 0;
        ends[i].used = ends[i].used && ends[i].listens;
    }
    called = last_called = -1;
    read_most = SIZE_MAX;
    idle = NULL;
    now = CLOCK_BEGIN;
}

void fuzz_sockets_read_most(size_t bytes)
{
    read_most = bytes;
}

void fuzz_sockets_idle(void (*turn)(void))
{
    idle = turn;
}

void fuzz_sockets_unix(bool refuse)
{
    unix_too = true;
    unix_refuses = refuse;
}

/* --- in the place of the kernel's and of lib/base/base.c's ------------------------------------ */

FUZZ_REPLACED(uint64_t, twill_now, void)
{
    return now += 1000;
}

/* The other ends run in fuzz_sockets_idle() only. */
FUZZ_REPLACED(int, sched_yield, void)
{
    return 0;
}

FUZZ_REPLACED(int, socket, int family, int type, int protocol)
{
    bool ours = family == AF_INET || family == AF_INET6 || (family == AF_UNIX && unix_too);
    return ours ? take_end() : __real_socket(family, type, protocol);
}

FUZZ_REPLACED(int, bind, int fd, const struct sockaddr *address, socklen_t length)
{
    return end_of(fd) != NULL ? 0 : __real_bind(fd, address, length);
}

FUZZ_REPLACED(int, listen, int fd, int backlog)
{
    if (end_of(fd) == NULL)
        return __real_listen(fd, backlog);
    end_of(fd)->listens = true;
    return 0;
}

FUZZ_REPLACED(int, connect, int fd, const struct sockaddr *address, socklen_t length)
{
    struct fuzz_end *end = end_of(fd);
    if (end == NULL)
        return __real_connect(fd, address, length);
    if (address->sa_family == AF_UNIX && unix_refuses) {
        errno = ECONNREFUSED;
        return -1;
    }
    const struct fuzz_end *last = end_of(last_called);
    if (last != NULL && !other_end(last)->used) /* given up */
        end_of(last_called)->used = false;
    other_end(end)->used = true;
    called = last_called = FIRST_FD + (int)(other_end(end) - ends);
    return 0;
}

FUZZ_REPLACED(int, accept4, int fd, struct sockaddr *address, socklen_t *length, int flags)
{
    struct fuzz_end *end = end_of(fd);
    if (end == NULL)
        return __real_accept4(fd, address, length, flags);
    fuzz_must(address == NULL);
    if (end->waiting == 0) {
        errno = EAGAIN;
        return -1;
    }
    int first = end->waits[0];
    memmove(end->waits, end->waits + 1, --end->waiting * sizeof(*end->waits));
    return first;
}

FUZZ_REPLACED(int, close, int fd)
{
    struct fuzz_end *end = end_of(fd);
    if (end == NULL)
        return __real_close(fd);
    fuzz_must(end->used); /* else it is closed twice */
    end->used = end->listens = false;
    return 0;
}

FUZZ_REPLACED(int, shutdown, int fd, int how)
{
    struct fuzz_end *end = end_of(fd);
    if (end == NULL)
        return __real_shutdown(fd, how);
    end->shut = true;
    return 0;
}

FUZZ_REPLACED(ssize_t, recv, int fd, void *buffer, size_t bytes, int flags)
{
    struct fuzz_end *end = end_of(fd);
    if (end == NULL)
        return __real_recv(fd, buffer, bytes, flags);
    /* Also what this input does not fill must be the reader's memory. */
    fuzz_must(end->used && __asan_region_is_poisoned(buffer, bytes) == NULL);
    size_t n = end->end - end->begin;
    if (n == 0 && bytes > 0 && (other_end(end)->shut || !other_end(end)->used))
        return 0;
    if (n == 0) {
        errno = EAGAIN;
        return -1;
    }
    n = n < bytes ? n : bytes;
    n = n < read_most ? n : read_most;
    memcpy(buffer, end->bytes + end->begin, n);
    if ((flags & MSG_PEEK) == 0)
        end->begin += n;
    return (ssize_t)n;
}

FUZZ_REPLACED(ssize_t, send, int fd, const void *buffer, size_t bytes, int flags)
{
    struct fuzz_end *end = end_of(fd), *to;
    if (end == NULL)
        return __real_send(fd, buffer, bytes, flags);
    fuzz_must(end->used && !end->shut);
    to = other_end(end);
    if (!to->used) {
        errno = EPIPE;
        return -1;
    }
    if (to->begin == to->end || BUFFER - to->end < bytes) {
        memmove(to->bytes, to->bytes + to->begin, to->end - to->begin);
        to->end -= to->begin;
        to->begin = 0;
    }
    size_t n = BUFFER - to->end < bytes ? BUFFER - to->end : bytes;
    if (n == 0 && bytes > 0) {
        errno = EAGAIN;
        return -1;
    }
    if (n > 0)
        memcpy(to->bytes + to->end, buffer, n);
    to->end += n;
    return (ssize_t)n;
}

FUZZ_REPLACED(ssize_t, sendmsg, int fd, const struct msghdr *message, int flags)
{
    if (end_of(fd) == NULL)
        return __real_sendmsg(fd, message, flags);
    ssize_t all = 0;
    for (size_t i = 0; i < message->msg_iovlen; i++) {
        const struct iovec *part = &message->msg_iov[i];
        ssize_t n = part->iov_len == 0 ? 0 : __wrap_send(fd, part->iov_base, part->iov_len, flags);
        if (n < 0)
            return all > 0 ? all : n;
        all += n;
        if ((size_t)n < part->iov_len)
            break;
    }
    return all;
}

/* Descriptors never come with a message. */
FUZZ_REPLACED(ssize_t, recvmsg, int fd, struct msghdr *message, int flags)
{
    if (end_of(fd) == NULL)
        return __real_recvmsg(fd, message, flags);
    message->msg_controllen = 0;
    message->msg_flags = 0;
    return __wrap_recv(fd, message->msg_iov[0].iov_base, message->msg_iov[0].iov_len, flags);
}

static short events_of(const struct fuzz_end *end, short events)
{
    const struct fuzz_end *other = other_end(end);
    bool ended = other->shut || !other->used;
    if (end->listens)
        return end->waiting > 0 ? events & POLLIN : 0;
    short found = end->begin < end->end || ended ? events & POLLIN : 0;
    found |= !other->used || other->end < BUFFER ? events & POLLOUT : 0;
    found |= ended ? events & POLLRDHUP : 0;
    return (short)(found | (other->used ? 0 : POLLHUP));
}

/* Set what those of the polls find that are in memory; the others find nothing. */
static int look(struct pollfd *polls, nfds_t count)
{
    int ready = 0;
    for (nfds_t i = 0; i < count; i++) {
        const struct fuzz_end *end = end_of(polls[i].fd);
        fuzz_must(end == NULL || end->used);
        polls[i].revents = end != NULL ? events_of(end, polls[i].events) : 0;
        ready += polls[i].revents != 0;
    }
    return ready;
}

FUZZ_REPLACED(int, poll, struct pollfd *polls, nfds_t count, int timeout)
{
    for (nfds_t i = 0; i < count; i++)
        if (polls[i].fd >= 0 && end_of(polls[i].fd) == NULL)
            return __real_poll(polls, count, timeout);
    int ready = look(polls, count);
    if (ready == 0 && idle != NULL) {
        idle();
        ready = look(polls, count);
    }
    if (ready == 0 && timeout != 0)
        now += timeout > 0 ? (uint64_t)timeout * 1000000 : UINT64_C(1000000000000);
    return ready;
}

FUZZ_REPLACED(int, setsockopt, int fd, int level, int name, const void *value, socklen_t length)
{
    return end_of(fd) != NULL ? 0 : __real_setsockopt(fd, level, name, value, length);
}

FUZZ_REPLACED(int, getsockopt, int fd, int level, int name, void *value, socklen_t *length)
{
    if (end_of(fd) == NULL)
        return __real_getsockopt(fd, level, name, value, length);
    memset(value, 0, *length);
    return 0;
}

/* All are on this host; their ports differ. */
static int name_end(int fd, struct sockaddr *address, socklen_t *length)
{
    struct sockaddr_in name = {.sin_family = AF_INET,
                               .sin_port = htons((uint16_t)(1024 + fd - FIRST_FD)),
                               .sin_addr = {htonl(INADDR_LOOPBACK)}};
    fuzz_must(*length >= sizeof(name));
    memcpy(address, &name, sizeof(name));
    *length = sizeof(name);
    return 0;
}

FUZZ_REPLACED(int, getsockname, int fd, struct sockaddr *address, socklen_t *length)
{
    return end_of(fd) != NULL ? name_end(fd, address, length)
                              : __real_getsockname(fd, address, length);
}

FUZZ_REPLACED(int, getpeername, int fd, struct sockaddr *address, socklen_t *length)
{
    return end_of(fd) != NULL ? name_end(FIRST_FD + ((fd - FIRST_FD) ^ 1), address, length)
                              : __real_getpeername(fd, address, length);
}
