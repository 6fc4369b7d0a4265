/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with descriptors (SCM_RIGHTS) over unix sockets of type SOCK_SEQPACKET. */
#ifndef TWILL_FD_MESSAGE_H
#define TWILL_FD_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TWILL_FDS_MOST 128 /* descriptors in a message */

/* Send `bytes` with up to TWILL_FDS_MOST descriptors. Returns false and sets errno on failure. */
bool twill_fds_send(int to, void *data, size_t bytes, const int *files, size_t count);
/* Receive a message and the first `most` descriptors in it, up to 4, which the caller owns; fds[i]
 * is -1 where there is none. Returns its bytes, 0 if the other end has closed, or -1 and sets
 * errno. flags: of recvmsg(). */
ssize_t twill_fds_receive(int from, void *bytes, size_t capacity, int flags, int *fds, size_t most);
/* Return a duplicate of the descriptor in the next message, which stays queued, or -1. */
int twill_fds_peek(int from);

#endif
