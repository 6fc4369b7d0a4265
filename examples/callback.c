/* SPDX-License-Identifier: Apache-2.0 */
/* Set up twill without a launcher. Two processes give twill a callback that exchanges bytes over a
 * socket that they already have. Twill uses it only to bootstrap. A program with MPI or a key-value
 * store would exchange the bytes with those. */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <twill.h>
#include <unistd.h>

/* The user data of the callback. */
struct socket_peer {
    int rank, socket;
};

static int send_all(int socket, const char *from, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = send(socket, from, bytes, MSG_NOSIGNAL);
        if (n <= 0)
            return -1;
        from += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static int receive_all(int socket, char *to, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = recv(socket, to, bytes, 0);
        if (n <= 0)
            return -1;
        to += n;
        bytes -= (size_t)n;
    }
    return 0;
}

/* Exchange bytes between two ranks (allgather). Rank 0 sends first, so that they do not both wait
 * to send. Returns 0 if it has worked. */
static int exchange(void *user, const void *mine, void *all, size_t bytes)
{
    const struct socket_peer *peer = user;
    char *other = (char *)all + (size_t)(1 - peer->rank) * bytes;
    memcpy((char *)all + (size_t)peer->rank * bytes, mine, bytes);
    if (peer->rank == 0)
        return send_all(peer->socket, mine, bytes) || receive_all(peer->socket, other, bytes);
    return receive_all(peer->socket, other, bytes) || send_all(peer->socket, mine, bytes);
}

static int run_peer(struct socket_peer *peer)
{
    twill_bootstrap bootstrap = {.rank = peer->rank, .size = 2, .exchange = exchange, .user = peer};
    twill_context *context = NULL;
    twill_comm *comm = NULL;
    float values[3] = {1, 2, (float)peer->rank};

    twill_status status = twill_context_create(&context, &bootstrap, NULL);
    if (status == TWILL_OK)
        status = twill_comm_create(&comm, context);
    if (status == TWILL_OK)
        status = twill_allreduce(comm, values, values, 3, TWILL_F32, TWILL_SUM);
    if (status == TWILL_OK)
        printf("rank %d: %g %g %g\n", peer->rank, values[0], values[1], values[2]);
    else
        fprintf(stderr, "callback: rank %d: %s: %s\n", peer->rank, twill_strerror(status),
                comm != NULL      ? twill_comm_message(comm)
                : context != NULL ? twill_context_message(context)
                                  : "no memory");
    twill_comm_destroy(comm);
    twill_context_destroy(context);
    return status == TWILL_OK && values[0] == 2 && values[1] == 4 && values[2] == 1 ? 0 : 1;
}

int main(void)
{
    int sockets[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) {
        perror("callback: socketpair");
        return 1;
    }
    pid_t child = fork(); /* A context does not survive a fork, so fork before there is any. */
    if (child < 0) {
        perror("callback: fork");
        return 1;
    }
    struct socket_peer peer = {.rank = child == 0, .socket = sockets[child == 0]};
    close(sockets[child != 0]);
    int result = run_peer(&peer);
    if (child == 0)
        return result;
    int status;
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return 1;
    return result;
}
