/* SPDX-License-Identifier: Apache-2.0 */
/* Exit notices of twillrun during the rendezvous: a rank that has ended will not join, so the
 * others need not wait for it. All ranks of a host share one end of a socket pair and peek at the
 * notice. */
#include "fabric/bootstrap/exit_notice.h"
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "lib/base/times.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static bool socket_is_ours(int fd)
{
    int type = 0, domain = 0;
    socklen_t length = sizeof(type);
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

void twill_bootstrap_tcp_open_launcher(struct twill_bootstrap_tcp *tcp, const char *text)
{
    struct twill_launcher_entered entered = {.rank = (uint32_t)tcp->oob.rank};
    char *end;
    tcp->launcher = -1;
    if (!text || !*text)
        return;
    long fd = strtol(text, &end, 10);
    if ((*end != '\0' && *end != ',') || fd < 0 || fd > 1 << 20 || !socket_is_ours((int)fd))
        return;
    tcp->launcher = (int)fd;
    (void)fcntl(tcp->launcher, F_SETFD, FD_CLOEXEC);
    if (send(tcp->launcher, &entered, sizeof(entered), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
        twill_wire_wait(tcp->launcher, POLLOUT, twill_wire_deadline(TWILL_PORT_LEAVE_NS)) ==
            TWILL_WIRE_DONE)
        (void)!send(tcp->launcher, &entered, sizeof(entered), MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool twill_bootstrap_tcp_exited(struct twill_bootstrap_tcp *tcp,
                                struct twill_launcher_exited *exited)
{
    if (tcp->launcher < 0)
        return false;
    ssize_t n = recv(tcp->launcher, exited, sizeof(*exited), MSG_PEEK | MSG_DONTWAIT);
    exited->how[sizeof(exited->how) - 1] = '\0';
    /* Ranks may have been renumbered between twillrun and here. */
    if (n == sizeof(*exited) && exited->size == (uint32_t)tcp->oob.size &&
        exited->rank < exited->size && exited->rank != (uint32_t)tcp->oob.rank)
        return true;
    if (n >= 0) /* a notice of another job, or twillrun has ended */
        tcp->launcher = -1;
    return false;
}
