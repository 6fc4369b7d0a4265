/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun's end of TWILL_LAUNCHER_FD: notifies ranks that wait for others in twill_init when a
 * rank has ended. */
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool twill_rank_socket_open(struct twill_launch *launch)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, launch->rank_socket) == 0)
        return true;
    twill_complain("socketpair: %s", strerror(errno));
    return false;
}

void twill_rank_socket_receive(struct twill_launch *launch)
{
    struct twill_log_line line; /* or struct twill_launcher_entered, whose rank comes first, too */
    const size_t head = offsetof(struct twill_log_line, text);
    ssize_t n;
    /* ECONNRESET: the last rank left a notice unread when it ended. What it sent is still there. */
    while ((n = recv(launch->rank_socket[0], &line, sizeof(line), MSG_DONTWAIT)) > 0 ||
           (n < 0 && (errno == EINTR || errno == ECONNRESET))) {
        for (int i = 0; i < launch->here && n == sizeof(struct twill_launcher_entered); i++)
            if (launch->child[i].rank == line.rank)
                launch->child[i].entered = true;
        if (n > (ssize_t)head && launch->link)
            (void)twill_pipe_put(launch->link, TWILL_FRAME_SAID, (uint32_t)line.rank, 0, line.text,
                                 (size_t)n - head);
        else if (n > (ssize_t)head)
            twill_sayings_add(&launch->sayings, line.rank, line.text, (size_t)n - head);
    }
    if (n < 0 && errno == EAGAIN)
        return;
    twill_rank_socket_close(launch); /* the other end is closed in all ranks */
}

void twill_rank_socket_close(struct twill_launch *launch)
{
    for (int i = 0; i < 2; i++) {
        if (launch->rank_socket[i] >= 0)
            close(launch->rank_socket[i]);
        launch->rank_socket[i] = -1;
    }
}

void twill_rank_socket_notify(struct twill_launch *launch, int rank, const char *how)
{
    struct twill_launcher_exited exited;
    if (launch->notified || launch->rank_socket[0] < 0)
        return;
    memset(&exited, 0, sizeof(exited));
    exited.rank = (uint32_t)rank;
    exited.size = (uint32_t)launch->options->ranks;
    snprintf(exited.how, sizeof(exited.how), "%s", how);
    launch->notified =
        send(launch->rank_socket[0], &exited, sizeof(exited), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}
