/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with descriptors (SCM_RIGHTS) over unix sockets of type SOCK_SEQPACKET. */
#ifndef TWILL_FD_MESSAGE_H
#define TWILL_FD_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TWILL_FDS_MOST 128 /* most descriptors in a message */
/* Send a message of `bytes` bytes with `count` (up to TWILL_FDS_MOST) descriptors, which stay open
 * here. Returns true if it was sent, else false with errno set. */
bool twill_fds_send(int to, void *data, size_t bytes, const int *files, size_t count);
/* Receive a message and the first `most` (up to 4) descriptors in it, which the caller owns. Closes
 * any others. An fds[i] without a descriptor is -1. Returns the bytes of the message, 0 if the
 * other end has closed, or -1 with errno set. `flags` are those of recvmsg(). */
ssize_t twill_fds_receive(int from, void *bytes, size_t capacity, int flags, int *fds, size_t most);
/* Return a duplicate of the first descriptor in the next message, or -1 if there is no message or
 * no descriptor in it. The message stays queued with all its descriptors. The caller owns the
 * duplicate. Does not wait. */
int twill_fds_peek(int from);

#endif
