/* SPDX-License-Identifier: Apache-2.0 */
/* A process that dies once it has joined a job that has not begun: replaces poll() of the C library
 * in the program that includes this. */
#ifndef TWILL_DIES_JOINED_H
#define TWILL_DIES_JOINED_H

#include "fabric/auth/handshake.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static bool dies_joined;

/* Report whether a socket has received rank 0's answer to the handshake and nothing is unread: this
 * process has authenticated itself, and waits for the others. */
static bool has_joined(int fd)
{
    struct tcp_info info;
    socklen_t length = sizeof(info);
    int unread = 0;
    return getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) == 0 &&
           info.tcpi_bytes_received >= sizeof(struct twill_hello_answer) &&
           ioctl(fd, FIONREAD, &unread) == 0 && unread == 0;
}

/* With dies_joined this process dies once it has joined. */
int poll(struct pollfd *fds, nfds_t count, int ms)
{
    struct timespec limit = {ms / 1000, ms % 1000 * 1000000L};
    const struct pollfd *asked = fds;
    __asm__("" : "+r"(asked)); /* else gcc warns, as poll() is declared only to write them */
    if (dies_joined && count > 0 && asked->events == POLLIN && has_joined(asked->fd))
        _exit(1);
    return (int)syscall(SYS_ppoll, fds, count, ms < 0 ? NULL : &limit, NULL, 0);
}

#endif
