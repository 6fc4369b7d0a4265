/* SPDX-License-Identifier: Apache-2.0 */
/* Another user who listens under the name of a rank's socket, which anybody may once that rank has
 * closed it, gets no byte of the rank that calls, and so no descriptor; a rank that only waits for
 * a call finds that its peer does not listen any more. */
#include "fabric/shm/fd_passing.h"

#include "lib/base/base.h"
#include "tests/support/unit.h"

#include <sys/socket.h>
#include <sys/un.h>

#define NOBODY    65534
#define PEER_NAME 0xabcdefu

enum { TOLD_NOTHING, TOLD_SOMETHING, CANNOT_LISTEN };

/* Listen as the other rank would, by the name that /proc/net/unix shows. Returns a socket, or -1.
 */
static int listen_as_rank(const struct twill_oob *oob)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    size_t used = 1 + (size_t)sprintf(at.sun_path + 1, "twill-");
    for (size_t i = 0; i < sizeof(oob->nonce); i++)
        used += (size_t)sprintf(at.sun_path + used, "%02x", oob->nonce[i]);
    used += (size_t)sprintf(at.sun_path + used, "-%d-%x", 1 - oob->rank, PEER_NAME);
    if (bind(fd, (struct sockaddr *)&at,
             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + used)) != 0 ||
        listen(fd, 8) != 0)
        return -1;
    return fd;
}

/* The impostor: as another user, wait for a call and for what the caller says. */
static int await_call(const struct twill_oob *oob, int ready)
{
    char byte = 0;
    if (setresuid(NOBODY, NOBODY, NOBODY) != 0)
        return CANNOT_LISTEN;
    int fd = listen_as_rank(oob);
    if (fd < 0 || write(ready, &byte, 1) != 1)
        return CANNOT_LISTEN;
    (void)alarm((unsigned)(TWILL_TEST_PATIENCE / 1000000000)); /* the caller may not come */
    int caller = accept(fd, NULL, NULL);
    return recv(caller, &byte, 1, 0) > 0 ? TOLD_SOMETHING : TOLD_NOTHING;
}

/* Rank 1 calls rank 0, which waits for it. */
static void share_with_impostor(int rank)
{
    struct twill_oob oob = {.rank = rank, .size = 2, .timeout_ns = TWILL_TEST_PATIENCE};
    struct twill_fd_passing_peer peer = {
        .rank = 1 - (uint32_t)rank, .name = PEER_NAME, .socket = -1};
    struct twill_fd_passing fd_passing;
    int ready[2], status;
    char byte;
    assert_true(twill_random(oob.nonce, sizeof(oob.nonce)));
    assert_int_equal(pipe(ready), 0);
    pid_t impostor = fork();
    if (impostor == 0)
        _exit(await_call(&oob, ready[1]));
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    assert_int_equal(twill_fd_passing_listen(&fd_passing, &oob), TWILL_SHARE_FINE);
    fd_passing.file = memfd_create("twill-test", MFD_CLOEXEC);
    fd_passing.peers = &peer;
    fd_passing.peer_count = 1;
    assert_int_equal(twill_fd_passing_exchange(&fd_passing), TWILL_SHARE_OTHER_USER);
    assert_false(fd_passing.late);
    assert_false(peer.sent || peer.identified || peer.received);
    twill_fd_passing_close(&fd_passing);
    close(fd_passing.file);
    assert_int_equal(waitpid(impostor, &status, 0), impostor);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), TOLD_NOTHING);
}

TWILL_TEST(test_impostor)
{
    if (geteuid() != 0) /* only root can become another user */
        skip();
    for (int rank = 0; rank < 2; rank++)
        share_with_impostor(rank);
}
