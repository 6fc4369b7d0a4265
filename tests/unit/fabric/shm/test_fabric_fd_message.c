/* SPDX-License-Identifier: Apache-2.0 */
/* Messages with descriptors: none stays open, whatever a peer sends. */
#include "fabric/shm/fd_message.h"
#include "tests/support/unit.h"

#include <sys/socket.h>

static int lowest_free(void)
{
    int fd = dup(0);
    assert_true(fd >= 0);
    close(fd);
    return fd;
}

/* Send a message of some bytes with a number of descriptors, and receive it into 8 bytes. Returns
 * what was received; *had_fd: with a descriptor. */
static ssize_t pass_message(size_t bytes, size_t count, bool *had_fd)
{
    char message[16] = "0123456789", got[8];
    int ends[2], files[3], fd;
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    int free_before = lowest_free();
    for (size_t i = 0; i < count; i++)
        files[i] = ends[0];
    assert_true(twill_fds_send(ends[1], message, bytes, files, count));
    close(ends[1]);
    int peeked = twill_fds_peek(ends[0]);
    assert_int_equal(peeked >= 0, bytes > 0 && count > 0);
    if (peeked >= 0)
        close(peeked);
    ssize_t n = twill_fds_receive(ends[0], got, sizeof(got), 0, &fd, 1);
    *had_fd = fd >= 0;
    if (fd >= 0)
        close(fd);
    assert_int_equal(lowest_free(), ends[1] < free_before ? ends[1] : free_before);
    close(ends[0]);
    return n;
}

TWILL_TEST(test_descriptors)
{
    bool had_fd;
    assert_int_equal(pass_message(5, 0, &had_fd), 5);
    assert_false(had_fd);
    assert_int_equal(pass_message(5, 1, &had_fd), 5);
    assert_true(had_fd);
    assert_int_equal(pass_message(10, 3, &had_fd), 8); /* too long; too many */
    assert_true(had_fd);
}

/* As if the other end had closed. */
TWILL_TEST(test_empty_message)
{
    bool had_fd;
    assert_int_equal(pass_message(0, 1, &had_fd), 0);
    assert_false(had_fd);
    assert_int_equal(pass_message(0, 3, &had_fd), 0);
    assert_false(had_fd);
}
