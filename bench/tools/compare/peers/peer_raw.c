/* SPDX-License-Identifier: Apache-2.0 */
/* The bound of twill-compare between hosts, which is what TCP itself allows. Each rank of a host
 * has one connection to the rank of equal local index on the next host. Sockets are nonblocking and
 * no rank sleeps. Arguments are a mode and the number of hosts. Ranks are in blocks, 0 .. L-1 on
 * the first host. In the mode exchange each host sends to the next and receives from the previous
 * one, at the same time, what a collective must carry between hosts, divided among its ranks.
 * Nothing is reduced. In window, data are received into a small window that stays in the caches, as
 * data that are reduced at once may. In steps of 128 KiB, the next starts when this one has been
 * received, which may be faster if congestion control paces the sender. The best of these three
 * counts. In pingpong a message goes between the first ranks of two hosts. A call is one way. */
#include "bench/tools/compare/peers/peer.h"

#include <stdbool.h>

enum { CHUNK = 128 << 10 };

/* The connections and receive buffer of a rank, from begin() to end(). */
struct raw_state {
    int hosts, places; /* places is the number of ranks per host */
    int next, before;  /* sockets, which are the same between two hosts */
    size_t step;       /* bytes after which it waits for those of the rank before, or SIZE_MAX */
    bool pingpong, turned; /* turned if the second rank sends next */
    char *landing;         /* receive buffer, whose contents are not used */
    size_t window;         /* size of the part that is used */
    size_t capacity;       /* bytes of `landing` */
};

/* Where a rank listens. Ranks exchange it as plain bytes. */
struct raw_address {
    char host[INET_ADDRSTRLEN];
    int port;
};

/* Return the state of the program, which begin() has made. */
static struct raw_state *of(struct peer *peer)
{
    return (struct raw_state *)peer->own;
}

/* Set the message of the result to `what` and the text of errno. Returns 1. */
static int fail_peer(struct peer *peer, const char *what)
{
    char text[128];
    snprintf(text, sizeof(text), "%s: %s", what, strerror(errno));
    return peer_say(peer, text);
}

/* Make a socket nonblocking, without delays of small messages. Returns it, or -1 on failure. */
static int configure_socket(int link)
{
    int one = 1;
    if (link < 0 || setsockopt(link, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0 ||
        fcntl(link, F_SETFL, O_NONBLOCK) != 0)
        return -1;
    return link;
}

/* Listen on a free port, and store its address in *mine. Returns the socket, or -1. */
static int listen_on(struct peer *peer, struct raw_address *mine)
{
    struct sockaddr_in here = {.sin_family = AF_INET};
    socklen_t length = sizeof(here);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (listener < 0 || inet_pton(AF_INET, peer->link.here, &here.sin_addr) != 1 ||
        bind(listener, (struct sockaddr *)&here, sizeof(here)) != 0 || listen(listener, 4) != 0 ||
        getsockname(listener, (struct sockaddr *)&here, &length) != 0)
        return -1;
    snprintf(mine->host, sizeof(mine->host), "%s", peer->link.here);
    mine->port = ntohs(here.sin_port);
    return listener;
}

/* Connect to the ranks of equal local index on the next and the previous host. Returns 0, or 1 on
 * failure. */
static int connect_ring(struct peer *peer)
{
    struct raw_state *state = of(peer);
    struct raw_address mine = {.port = 0}, all[TWILL_COMPARE_RANKS];
    int listener = listen_on(peer, &mine);
    if (listener < 0)
        return fail_peer(peer, "listen");
    if (peer_exchange(peer, &mine, all, sizeof(mine)) != 0)
        return 1;
    bool last = peer->rank + state->places >= peer->size;
    const struct raw_address *to = &all[(peer->rank + state->places) % peer->size];
    if (state->hosts > 2 || !last)
        state->next = configure_socket(peer_link_dial_inet(to->host, to->port, 10000));
    if (state->hosts > 2 || last)
        state->before = configure_socket(accept(listener, NULL, NULL));
    if (state->hosts == 2 && last)
        state->next = state->before;
    else if (state->hosts == 2)
        state->before = state->next;
    close(listener);
    return state->next < 0 || state->before < 0 ? fail_peer(peer, "connect") : 0;
}

/* Parse the arguments and connect this rank. Returns 0, or 1 after peer_say(). */
static int begin(struct peer *peer)
{
    struct raw_state *state = calloc(1, sizeof(*state));
    if (state == NULL || peer->arguments[0] == NULL || peer->arguments[1] == NULL)
        return peer_say(peer, "no memory, or wrong arguments");
    peer->own = state;
    if (peer_launched(peer) != 0)
        return 1;
    state->next = state->before = -1;
    state->pingpong = strcmp(peer->arguments[0], "pingpong") == 0;
    state->window = strcmp(peer->arguments[0], "exchange") == 0 ? SIZE_MAX : CHUNK;
    state->step = strcmp(peer->arguments[0], "steps") == 0 ? CHUNK : SIZE_MAX;
    state->hosts = atoi(peer->arguments[1]);
    if (state->hosts < 2 || peer->size % state->hosts != 0)
        return peer_say(peer, "it needs two or more hosts with equal numbers of ranks");
    state->places = peer->size / state->hosts;
    peer_name(peer, "TCP, ", state->pingpong ? "ping-pong, one way counted" : "both ways at once");
    return connect_ring(peer);
}

/* Close this rank's connections and free its receive buffer and state. */
static void end(struct peer *peer)
{
    struct raw_state *state = of(peer);
    if (state->landing != NULL)
        munmap(state->landing, state->capacity);
    close(state->next);
    if (state->before != state->next)
        close(state->before);
    free(state);
}

/* Add `n`, the result of send() or recv(), to *moved if bytes moved. Returns 0 if so, 1 if none can
 * move now, or -1 if the connection failed or ended. */
static int count_moved(ssize_t n, size_t *moved)
{
    if (n == 0 || (n < 0 && errno != EAGAIN))
        return -1;
    *moved += n > 0 ? (size_t)n : 0;
    return n < 0;
}

/* Send as much of `data` from *sent on as the socket takes now, and add it to *sent. Returns 0 if
 * that is something, 1 if it is nothing, also because all is sent, or -1 on failure. */
static int send_some(int link, const char *data, size_t bytes, size_t *sent)
{
    return *sent == bytes
               ? 1
               : count_moved(send(link, data + *sent, bytes - *sent, MSG_NOSIGNAL), sent);
}

/* Receive what has arrived of `bytes` bytes into state->landing, and add it to *received. Bytes
 * beyond state->window overwrite earlier ones. Returns 0 if something arrived, 1 if nothing did,
 * also because all is received, or -1 on failure. */
static int receive_some(int link, const struct raw_state *state, size_t bytes, size_t *received)
{
    size_t at = *received % state->window, most = bytes - *received;
    if (*received == bytes)
        return 1;
    most = most > state->window - at ? state->window - at : most;
    return count_moved(recv(link, state->landing + at, most, 0), received);
}

/* Make state->landing long enough for `bytes` bytes or, if that is less, for a window, into which
 * data are received again and again. Returns 0, or 1 after peer_say(). */
static int land_buffer(struct peer *peer, size_t bytes)
{
    struct raw_state *state = of(peer);
    if (state->capacity >= bytes || state->capacity >= state->window)
        return 0;
    if (state->landing != NULL)
        munmap(state->landing, state->capacity);
    state->capacity = (bytes + (2 << 20) - 1) >> 21 << 21;
    void *memory = mmap(NULL, state->capacity, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    state->landing = memory == MAP_FAILED ? NULL : (char *)memory;
    return state->landing != NULL ? 0 : peer_say(peer, "no memory for the receive buffer");
}

/* Send `out` bytes of `src` to socket `to`, and receive `in` bytes from socket `from` into the
 * receive buffer, whose contents are not used, at the same time. Returns 0, or 1 after
 * peer_say(). */
static int move_links(struct peer *peer, int to, int from, const float *src, size_t out, size_t in)
{
    size_t sent = 0, received = 0;
    if (land_buffer(peer, in) != 0)
        return 1;
    while (sent < out || received < in) {
        int a = send_some(to, (const char *)src, out, &sent);
        int b = receive_some(from, of(peer), in, &received);
        if (a < 0 || b < 0)
            return fail_peer(peer, "send or recv");
        if (a > 0 && b > 0 && !peer->welcome.bind)
            sched_yield();
    }
    return 0;
}

/* Send `out` bytes of `src` to the next host, and receive and discard `in` bytes from the one
 * before. Both are in steps of state->step bytes. Returns 0, or 1 after peer_say(). */
static int shift(struct peer *peer, const float *src, size_t out, size_t in)
{
    const struct raw_state *state = of(peer);
    const size_t most = state->step;
    do {
        size_t give = out < most ? out : most, take = in < most ? in : most;
        if (move_links(peer, state->next, state->before, src, give, take) != 0)
            return 1;
        src += give / sizeof(float);
        out -= give;
        in -= take;
    } while (out > 0 || in > 0);
    return 0;
}

/* Wait for all hosts, by a byte that goes around. Only ranks of equal local index wait for each
 * other. Returns 0, or 1 on failure. */
static int barrier(struct peer *peer)
{
    static const float byte[1];
    for (int i = 1; i < of(peer)->hosts; i++)
        if (shift(peer, byte, 1, 1) != 0)
            return 1;
    return 0;
}

/* Send bytes of call->src to the next host and receive from the one before, as many as the
 * collective must at least carry between hosts. Each rank of a host does its part. Data that arrive
 * are discarded, and call->dst is not written. Returns 0, or 1 after peer_say(). */
static int exchange_call(struct peer *peer, const struct peer_call *call)
{
    const struct raw_state *state = of(peer);
    size_t bytes = call->count * sizeof(float), hosts = (size_t)state->hosts;
    size_t places = (size_t)state->places, host = (size_t)(peer->rank / state->places);
    size_t whole = (bytes + places - 1) / places;
    switch (call->collective) {
    case TWILL_COMPARE_BROADCAST:
        return shift(peer, call->src, host + 1 < hosts ? whole : 0, host > 0 ? whole : 0);
    case TWILL_COMPARE_ALLGATHER: /* a shard from each rank of another host */
    case TWILL_COMPARE_REDUCE_SCATTER:
        for (size_t i = 1; i < hosts; i++)
            if (shift(peer, call->src, bytes, bytes) != 0)
                return 1;
        return 0;
    case TWILL_COMPARE_BARRIER:
        return barrier(peer);
    default:
        whole = (2 * (hosts - 1) * whole + hosts - 1) / hosts;
        for (size_t done = 0, chunk; done < whole; done += chunk) {
            chunk = whole - done < bytes ? whole - done : bytes; /* the buffer has no more */
            if (shift(peer, call->src, chunk, chunk) != 0)
                return 1;
        }
        return 0;
    }
}

/* Exchange what the call must carry between hosts or, in the mode pingpong, move call->src one way
 * between the first ranks of two hosts. Data that arrive are discarded, and call->dst is not
 * written. Returns 0, or 1 after peer_say(). */
static int run(struct peer *peer, const struct peer_call *call)
{
    struct raw_state *state = of(peer);
    if (!state->pingpong)
        return exchange_call(peer, call);
    if (peer->rank / state->places > 1 || peer->rank % state->places > 0)
        return 0;
    size_t bytes = call->count * sizeof(float);
    int link = peer->rank == 0 ? state->next : state->before;
    bool out = state->turned == (peer->rank > 0);
    state->turned = !state->turned;
    return move_links(peer, link, link, call->src, out ? bytes : 0, out ? 0 : bytes);
}

/* Return whether the mode has this collective, as ping-pong has only allreduce. */
static int supports(struct peer *peer, enum twill_compare_collective collective)
{
    return of(peer)->pingpong ? collective == TWILL_COMPARE_ALLREDUCE
                              : collective < TWILL_COMPARE_COMMON;
}

/* Run the program of twill-compare that measures the least time in which TCP can carry a call
 * between hosts. Returns an exit status. */
int main(int argc, char **argv)
{
    static const struct peer_program program = {.begin = begin,
                                                .end = end,
                                                .run = run,
                                                .barrier = barrier,
                                                .supports = supports,
                                                .bytes_only = 1};
    return peer_main(argc, argv, &program);
}
