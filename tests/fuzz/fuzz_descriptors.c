/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with descriptors between the ranks of a node: of any size, with any number of them. None
 * may stay open. */
#include "fabric/shm/fd_message.h"
#include "tests/fuzz/fuzz_input.h"

#include <fcntl.h>

/* Count the open descriptors, of which one that stays open may have any number. */
static unsigned count_open(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

/* Receive a message of `bytes` bytes with `count` descriptors: of both what there is place for. One
 * without bytes is an end, as if the sender had closed. */
static void receive(int from, size_t bytes, size_t count, size_t capacity)
{
    unsigned char got[64];
    int file = -1, peeked = twill_fds_peek(from);
    fuzz_must((peeked >= 0) == (bytes > 0 && count > 0));
    if (peeked >= 0)
        close(peeked);
    ssize_t n = twill_fds_receive(from, got, capacity, 0, &file, 1);
    size_t least = bytes < capacity ? bytes : capacity;
    fuzz_must(n == (least > 0 || count > 0 ? (ssize_t)least : -1));
    fuzz_must((file >= 0) == (least > 0 && count > 0));
    if (file >= 0)
        close(file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fd[2], files[TWILL_FDS_MOST];
    if (size < 2)
        return 0;
    size_t count = data[0] % (TWILL_FDS_MOST + 1), capacity = data[1] % 64;
    fuzz_must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fd) == 0);
    unsigned open_before = count_open();
    for (size_t i = 0; i < count; i++)
        files[i] = fd[0];
    char *message = fuzz_text(data + 2, size - 2);
    if (twill_fds_send(fd[1], message, size - 2, files, count))
        receive(fd[0], size - 2, count, capacity);
    fuzz_must(count_open() == open_before);
    free(message);
    close(fd[0]);
    close(fd[1]);
    return 0;
}
