/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/shm/fd_message.h"

#include "lib/base/base.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

bool twill_fds_send(int to, void *data, size_t bytes, const int *files, size_t count)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(TWILL_FDS_MOST * sizeof(int))];
    } control;
    struct iovec vector = {.iov_base = data, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &vector, .msg_iovlen = 1};
    memset(&control, 0, sizeof(control));
    if (count > 0) {
        message.msg_control = control.space;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(c), files, count * sizeof(int));
    }
    return sendmsg(to, &message, MSG_NOSIGNAL) == (ssize_t)bytes;
}

/* Return whether a received message carries descriptors. */
static bool has_descriptors(struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            return true;
    return false;
}

/* Receive a message. Returns its bytes, -1 with errno, or 0 if the other end has closed. Linux may
 * return 0 early if the last message and the close arrive while it looks, so ask twice. */
static ssize_t receive_message(int from, struct msghdr *message, int flags)
{
    struct msghdr again = *message;
    ssize_t got = recvmsg(from, message, flags | MSG_CMSG_CLOEXEC);
    if (got != 0 || has_descriptors(message)) /* an empty message may have them */
        return got;
    *message = again;
    return recvmsg(from, message, flags | MSG_CMSG_CLOEXEC);
}

/* Append the descriptors in control message `c` to fds[], which has *taken already, until it has
 * `most`. Add those to *taken, and close the others. */
static void take_descriptors(const struct cmsghdr *c, int *fds, size_t most, size_t *taken)
{
    for (size_t i = 0; CMSG_LEN((i + 1) * sizeof(int)) <= c->cmsg_len; i++) {
        int fd;
        memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
        if (*taken < most)
            fds[(*taken)++] = twill_fd_move(fd, TWILL_FD_LEAST);
        else
            close(fd);
    }
}

ssize_t twill_fds_receive(int from, void *bytes, size_t capacity, int flags, int *fds, size_t most)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(4 * sizeof(int))];
    } control;
    struct iovec data = {.iov_base = bytes, .iov_len = capacity};
    struct msghdr message = {.msg_iov = &data,
                             .msg_iovlen = 1,
                             .msg_control = control.space,
                             .msg_controllen = sizeof(control.space)};
    size_t taken = 0;
    for (size_t i = 0; i < most; i++)
        fds[i] = -1;
    ssize_t got = receive_message(from, &message, flags);
    if (got < 0)
        return got;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&message); c != NULL; c = CMSG_NXTHDR(&message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
            take_descriptors(c, fds, most, &taken);
    for (; got == 0 && taken > 0; fds[taken] = -1) /* no message of ours is empty: it is the end */
        close(fds[--taken]);
    return got;
}

int twill_fds_peek(int from)
{
    char byte;
    int fd;
    (void)twill_fds_receive(from, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT, &fd, 1);
    return fd;
}
