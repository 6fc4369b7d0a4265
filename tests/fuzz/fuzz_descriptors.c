/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with descriptors between the ranks of a node: of any size, with any number of them. None
 * may stay open. */
#include "fabric/shm/fd_message.h"
#include "tests/fuzz/fuzz_input.h"

#include <fcntl.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char got[64];
    int fd[2], files[TWILL_FDS_MOST], file = -1;
    if (size < 2)
        return 0;
    size_t count = data[0] % (TWILL_FDS_MOST + 1), capacity = data[1] % sizeof(got);
    fuzz_must(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, fd) == 0);
    int free_before = dup(0);
    fuzz_must(free_before >= 0);
    close(free_before);
    for (size_t i = 0; i < count; i++)
        files[i] = fd[0];
    char *message = fuzz_text(data + 2, size - 2);
    if (twill_fds_send(fd[1], message, size - 2, files, count)) {
        int peeked = twill_fds_peek(fd[0]);
        if (peeked >= 0)
            close(peeked);
        ssize_t n = twill_fds_receive(fd[0], got, capacity, 0, &file, 1);
        fuzz_must(n <= (ssize_t)capacity || n <= (ssize_t)size);
        if (file >= 0)
            close(file);
    }
    int free_after = dup(0);
    fuzz_must(free_after == free_before);
    close(free_after);
    free(message);
    close(fd[0]);
    close(fd[1]);
    return 0;
}
