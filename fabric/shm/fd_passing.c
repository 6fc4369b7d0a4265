/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptor passing. Only poll() blocks, until the deadline. */
#include "fabric/shm/fd_passing.h"

#include "fabric/shm/fd_message.h"
#include "lib/base/times.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define PASSING_BACKLOG                                                                            \
    4096               /* clipped by the kernel (somaxconn), and unrelated processes can fill it */
#define MAX_PENDING 16 /* accepted, not yet authenticated */
#define MAX_OPEN    32 /* connections to peers, and accepted ones, each at a time */
#define LEFT_FREE   8  /* descriptors left for files that arrive, and for others */

/* Message between two ranks that exchange files. The rank that connects authenticates itself with a
 * first hello. Then each of the two sends its files with a hello. */
struct hello {
    uint8_t nonce[TWILL_NONCE_BYTES];
    uint64_t key;      /* secret of the sender (struct twill_fd_passing) */
    uint32_t rank;     /* the sender */
    uint32_t version;  /* HELLO_VERSION */
    uint64_t token_at; /* offset of the token in the file */
    uint64_t asks;     /* 1 if the sender asks for the second file */
};
#define HELLO_VERSION 0x74770003u

/* Set *address to that of the abstract socket on which `rank` listens, and return its length. The
 * address is made of the nonce of `oob`, the rank and its random number `name`. */
static socklen_t socket_name(struct sockaddr_un *address, const struct twill_oob *oob,
                             uint32_t rank, uint64_t name)
{
    char nonce[2 * TWILL_NONCE_BYTES + 1];
    for (size_t i = 0; i < TWILL_NONCE_BYTES; i++)
        snprintf(nonce + 2 * i, 3, "%02x", oob->nonce[i]);
    memset(address, 0, sizeof(*address));
    address->sun_family = AF_UNIX;
    /* A leading zero byte makes it abstract. */
    int length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1, "twill-%s-%u-%llx",
                          nonce, rank, (unsigned long long)name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* Return MEMORY, DESCRIPTORS or else SOCKET, by the errno of a call that made no descriptor. */
static enum twill_share_cause scarcity(int error)
{
    if (error == ENOMEM || error == ENOBUFS)
        return TWILL_SHARE_MEMORY;
    return error == EMFILE || error == ENFILE ? TWILL_SHARE_DESCRIPTORS : TWILL_SHARE_SOCKET;
}

/* Open a SEQPACKET socket that never blocks. Returns TWILL_SHARE_FINE, or the cause with *fd -1. */
static enum twill_share_cause open_socket(int *fd)
{
    *fd = twill_fd_move(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0),
                        TWILL_FD_LEAST);
    return *fd >= 0 ? TWILL_SHARE_FINE : scarcity(errno);
}

enum twill_share_cause twill_fd_passing_listen(struct twill_fd_passing *fd_passing,
                                               struct twill_oob *oob)
{
    uint64_t drawn[2];
    *fd_passing = (struct twill_fd_passing){
        .oob = oob, .listener = -1, .file = -1, .second = -1, .lost = UINT32_MAX};
    if (!twill_random(drawn, sizeof(drawn)))
        return TWILL_SHARE_RANDOM;
    fd_passing->name = drawn[0];
    fd_passing->key = drawn[1];
    enum twill_share_cause cause = open_socket(&fd_passing->listener);
    if (cause != TWILL_SHARE_FINE)
        return cause;
    struct sockaddr_un address;
    socklen_t length = socket_name(&address, oob, (uint32_t)oob->rank, fd_passing->name);
    if (bind(fd_passing->listener, (struct sockaddr *)&address, length) != 0 ||
        listen(fd_passing->listener, PASSING_BACKLOG) != 0)
        return TWILL_SHARE_SOCKET;
    return TWILL_SHARE_FINE;
}

/* Send a hello with our first `count` files. Returns 1 if sent, 0 to retry later, -1 on failure. */
static int send_hello(const struct twill_fd_passing *fd_passing, int to, size_t count)
{
    const int files[] = {fd_passing->file, fd_passing->second};
    struct hello hello = {.key = fd_passing->key,
                          .rank = (uint32_t)fd_passing->oob->rank,
                          .version = HELLO_VERSION,
                          .token_at = fd_passing->token_at,
                          .asks = fd_passing->asks};
    memcpy(hello.nonce, fd_passing->oob->nonce, sizeof(hello.nonce));
    if (twill_fds_send(to, &hello, sizeof(hello), files, count))
        return 1;
    /* ETOOMANYREFS: the descriptors in flight per user are limited, until others receive theirs. */
    return errno == EAGAIN || errno == EINTR || errno == ETOOMANYREFS || errno == ENOBUFS ? 0 : -1;
}

/* Return whether this rank connects to the peer. False if it accepts, as from higher ranks. */
static bool connects_to(const struct twill_fd_passing *fd_passing,
                        const struct twill_fd_passing_peer *peer)
{
    return peer->rank < (uint32_t)fd_passing->oob->rank;
}

/* Return whether the process at the other end runs as our user. False if that is not known. */
static bool same_user(int socket)
{
    struct ucred who;
    socklen_t length = sizeof(who);
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &length) == 0 && who.uid == geteuid();
}

/* Connect *fd to the listener of a peer. Returns FINE with *fd -1 if it must be tried again.
 * Returns REFUSED if the peer has died, has given up, or is in another network namespace. Returns
 * OTHER_USER if the listener is not ours, as anyone may take a name that its owner has closed.
 * Returns the shortage if no socket could be opened. */
static enum twill_share_cause dial(const struct twill_fd_passing *fd_passing,
                                   const struct twill_fd_passing_peer *peer, int *fd)
{
    struct sockaddr_un address;
    enum twill_share_cause cause = open_socket(fd);
    if (cause != TWILL_SHARE_FINE)
        return cause;
    socklen_t length = socket_name(&address, fd_passing->oob, peer->rank, peer->name);
    if (connect(*fd, (struct sockaddr *)&address, length) != 0)
        cause = errno == EAGAIN || errno == EINTR ? TWILL_SHARE_FINE : TWILL_SHARE_REFUSED;
    else if (same_user(*fd))
        return TWILL_SHARE_FINE;
    else
        cause = TWILL_SHARE_OTHER_USER;
    close(*fd);
    *fd = -1;
    return cause;
}

/* Connect to a peer, send our hello and set peer->identified. Also returns FINE if a part of that
 * is left for later: a full backlog may stay full until its owner comes to the exchange. Otherwise
 * returns the cause, and sets `lost` if that is REFUSED. */
static enum twill_share_cause connect_peer(struct twill_fd_passing *fd_passing,
                                           struct twill_fd_passing_peer *peer)
{
    enum twill_share_cause cause = TWILL_SHARE_FINE;
    if (peer->socket < 0)
        cause = dial(fd_passing, peer, &peer->socket);
    if (peer->socket >= 0) {
        int sent = send_hello(fd_passing, peer->socket, 0);
        peer->identified = sent > 0;
        cause = sent >= 0 ? TWILL_SHARE_FINE : TWILL_SHARE_REFUSED; /* it closed its listener */
    }
    if (cause == TWILL_SHARE_REFUSED)
        fd_passing->lost = peer->rank;
    return cause;
}

/* Check that the peers that are to connect to this rank still listen. Returns FINE if they do,
 * REFUSED with `lost` set if one does not, or OTHER_USER if another user has taken its name. */
static enum twill_share_cause probe_peers(struct twill_fd_passing *fd_passing)
{
    for (size_t i = 0; i < fd_passing->peer_count; i++) {
        const struct twill_fd_passing_peer *peer = &fd_passing->peers[i];
        int fd;
        if (peer->identified || connects_to(fd_passing, peer))
            continue;
        enum twill_share_cause cause = dial(fd_passing, peer, &fd);
        if (fd >= 0)
            close(fd);
        if (cause == TWILL_SHARE_REFUSED)
            fd_passing->lost = peer->rank;
        if (cause == TWILL_SHARE_REFUSED || cause == TWILL_SHARE_OTHER_USER)
            return cause;
    }
    return TWILL_SHARE_FINE;
}

/* Receive a message into *hello, unchecked, and the files in it into fds[], -1 where there is none.
 * Returns its bytes, which are fewer if it is no whole hello. Returns 0 if the other end has closed
 * the connection, or -1 with errno set. */
static ssize_t receive_hello(int from, struct hello *hello, int fds[2])
{
    return twill_fds_receive(from, hello, sizeof(*hello), 0, fds, 2);
}

/* Close those of two descriptors that are open, not -1. */
static void close_both(const int fds[2])
{
    for (int i = 0; i < 2; i++)
        if (fds[i] >= 0)
            close(fds[i]);
}

/* Return the peer that a hello is from, or NULL if it is not authentic. */
static struct twill_fd_passing_peer *find_peer(struct twill_fd_passing *fd_passing,
                                               const struct hello *hello)
{
    if (memcmp(hello->nonce, fd_passing->oob->nonce, sizeof(hello->nonce)) != 0 ||
        hello->version != HELLO_VERSION)
        return NULL;
    for (size_t i = 0; i < fd_passing->peer_count; i++)
        if (fd_passing->peers[i].rank == hello->rank)
            return fd_passing->peers[i].key == hello->key ? &fd_passing->peers[i] : NULL;
    return NULL;
}

/* Authenticate an accepted connection by its hello. Returns FINE with *peer, whose `asks` is then
 * set, or with *peer NULL if no hello has arrived. Returns OTHER_USER if it is closed, or its hello
 * or user is not right. *peer is then the peer with that hello, or NULL, and must not get our
 * file. */
static enum twill_share_cause identify(struct twill_fd_passing *fd_passing, int from,
                                       struct twill_fd_passing_peer **peer)
{
    struct hello hello;
    int fds[2];
    *peer = NULL;
    ssize_t got = receive_hello(from, &hello, fds);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return TWILL_SHARE_FINE;
    close_both(fds);
    if (got == (ssize_t)sizeof(hello))
        *peer = find_peer(fd_passing, &hello);
    if (*peer == NULL || (*peer)->identified || connects_to(fd_passing, *peer) || !same_user(from))
        return TWILL_SHARE_OTHER_USER;
    (*peer)->asks = hello.asks == 1;
    return TWILL_SHARE_FINE;
}

/* Receive the peer's files, set peer->received and hand them to take(), whose answer it returns.
 * Returns FINE if they have not arrived yet. If the connection ended, brought something else or
 * lost the files, returns that cause, with fd_passing->lost set to the peer's rank. */
static enum twill_share_cause receive_file(struct twill_fd_passing *fd_passing,
                                           struct twill_fd_passing_peer *peer)
{
    struct hello hello;
    int fds[2];
    ssize_t got = receive_hello(peer->socket, &hello, fds);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return TWILL_SHARE_FINE;
    fd_passing->lost = peer->rank;
    if (got <= 0)
        return TWILL_SHARE_LOST;
    if (got != (ssize_t)sizeof(hello) || find_peer(fd_passing, &hello) != peer ||
        !same_user(peer->socket)) {
        close_both(fds);
        return TWILL_SHARE_OTHER_USER;
    }
    if (fds[0] < 0) /* dropped by the kernel, as this process has too many */
        return TWILL_SHARE_DESCRIPTORS;
    fd_passing->lost = UINT32_MAX;
    peer->received = true;
    peer->token_at = hello.token_at;
    return fd_passing->take(fd_passing->user, peer, fds);
}

/* State of one exchange, local to twill_fd_passing_exchange(). */
struct exchange {
    struct twill_fd_passing *fd_passing;
    struct pollfd *polls; /* listener, pending connections, peers */
    int pending[MAX_PENDING];
    size_t pending_count;
    size_t connected, accepted; /* peers whose connection is open, opened by us or by them */
    size_t most;                /* most of each at a time */
    bool starved;               /* no descriptor was left for another connection */
};

/* Return whether to continue although a call failed for `cause`. That is so if it lacked
 * descriptors or memory and a connection is open, as the end of a connection gives back its
 * descriptor. `starved` is then set. */
static bool can_wait(struct exchange *exchange, enum twill_share_cause cause)
{
    bool scarce = cause == TWILL_SHARE_DESCRIPTORS || cause == TWILL_SHARE_MEMORY;
    bool waits = scarce && exchange->connected + exchange->accepted + exchange->pending_count > 0;
    exchange->starved = exchange->starved || waits;
    return waits;
}

/* Return whether neither the pending nor the accepted connections have reached their limit. */
static bool may_accept(const struct exchange *exchange)
{
    return exchange->pending_count < MAX_PENDING &&
           exchange->accepted + exchange->pending_count < exchange->most;
}

/* Accept connections while there is room. Returns FINE, or the shortage if no wait can mend it. */
static enum twill_share_cause accept_pending(struct exchange *exchange)
{
    exchange->starved = false;
    while (may_accept(exchange)) {
        int fd = accept4(exchange->fd_passing->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd < 0) {
            enum twill_share_cause cause = scarcity(errno);
            bool scarce = cause != TWILL_SHARE_SOCKET && !can_wait(exchange, cause);
            return scarce ? cause : TWILL_SHARE_FINE;
        }
        exchange->pending[exchange->pending_count++] = twill_fd_move(fd, TWILL_FD_LEAST);
    }
    return TWILL_SHARE_FINE;
}

/* Close pending connections from processes of other users (UIDs), which could otherwise occupy all
 * places silently. */
static void drop_other_users(struct exchange *exchange)
{
    for (size_t i = exchange->pending_count; i-- > 0;) {
        if (same_user(exchange->pending[i]))
            continue;
        close(exchange->pending[i]);
        exchange->pending[i] = exchange->pending[--exchange->pending_count];
    }
}

/* Authenticate pending connections and close those that fail. Returns FINE, or OTHER_USER if one
 * has the hello of a peer but runs as another user, or comes a second time. That peer must not get
 * the memory, and waiting for it is useless. */
static enum twill_share_cause identify_pending(struct exchange *exchange)
{
    for (size_t i = exchange->pending_count; i-- > 0;) {
        int fd = exchange->pending[i];
        struct twill_fd_passing_peer *peer;
        enum twill_share_cause cause = identify(exchange->fd_passing, fd, &peer);
        if (cause == TWILL_SHARE_FINE && peer == NULL)
            continue;
        if (cause != TWILL_SHARE_FINE && peer != NULL)
            return cause;
        exchange->pending[i] = exchange->pending[--exchange->pending_count];
        if (peer == NULL) {
            close(fd);
            continue;
        }
        peer->socket = fd;
        peer->identified = true;
        exchange->accepted++;
    }
    if (exchange->pending_count == MAX_PENDING)
        drop_other_users(exchange);
    return TWILL_SHARE_FINE;
}

/* Send this rank's files to a peer and set peer->sent to whether they were sent. Returns FINE, also
 * if it must be retried, or LOST, with fd_passing->lost set to the peer's rank. */
static enum twill_share_cause send_file(struct twill_fd_passing *fd_passing,
                                        struct twill_fd_passing_peer *peer)
{
    bool both = peer->asks && fd_passing->second >= 0;
    int sent = send_hello(fd_passing, peer->socket, both ? 2 : 1);
    peer->sent = sent > 0;
    if (sent >= 0)
        return TWILL_SHARE_FINE;
    fd_passing->lost = peer->rank;
    return TWILL_SHARE_LOST;
}

/* Return whether files were exchanged with a peer, both ways. */
static bool is_served(const struct twill_fd_passing_peer *peer)
{
    return peer->received && peer->sent;
}

/* Connect to a peer and send our hello. Returns FINE once peer->socket and `identified` are set,
 * and also if a part must be tried again. That is so while too many connections are open, a backlog
 * is full, or descriptors are lacking. Otherwise returns the cause, with `lost` set if it is
 * REFUSED. */
static enum twill_share_cause open_connection(struct exchange *exchange,
                                              struct twill_fd_passing_peer *peer)
{
    bool open = peer->socket >= 0;
    if (!open && (exchange->connected >= exchange->most || exchange->starved))
        return TWILL_SHARE_FINE;
    enum twill_share_cause cause = connect_peer(exchange->fd_passing, peer);
    exchange->connected += !open && peer->socket >= 0;
    return can_wait(exchange, cause) ? TWILL_SHARE_FINE : cause;
}

/* Advance the exchange with one peer as far as possible now, and close its socket at the end.
 * Returns FINE, also if it is not over, or the cause. */
static enum twill_share_cause serve_peer(struct exchange *exchange,
                                         struct twill_fd_passing_peer *peer)
{
    struct twill_fd_passing *fd_passing = exchange->fd_passing;
    enum twill_share_cause cause = TWILL_SHARE_FINE;
    if (!peer->identified && connects_to(fd_passing, peer))
        cause = open_connection(exchange, peer);
    if (cause == TWILL_SHARE_FINE && peer->identified && !peer->sent)
        cause = send_file(fd_passing, peer);
    if (cause == TWILL_SHARE_FINE && peer->identified && !peer->received)
        cause = receive_file(fd_passing, peer);
    if (cause == TWILL_SHARE_FINE && is_served(peer) && peer->socket >= 0) {
        close(peer->socket);
        peer->socket = -1;
        *(connects_to(fd_passing, peer) ? &exchange->connected : &exchange->accepted) -= 1;
    }
    return cause;
}

/* Advance the exchange with all peers. Returns FINE or the first cause. Sets *missing to the number
 * of files not received yet, and *unsent to that of files that can be sent but are not yet. */
static enum twill_share_cause serve_peers(struct exchange *exchange, size_t *missing,
                                          size_t *unsent)
{
    struct twill_fd_passing *fd_passing = exchange->fd_passing;
    *missing = *unsent = 0;
    for (size_t i = 0; i < fd_passing->peer_count; i++) {
        struct twill_fd_passing_peer *peer = &fd_passing->peers[i];
        enum twill_share_cause cause = serve_peer(exchange, peer);
        if (cause != TWILL_SHARE_FINE)
            return cause;
        *missing += !peer->received;
        *unsent += !peer->sent && (peer->identified || connects_to(fd_passing, peer));
    }
    return TWILL_SHARE_FINE;
}

/* Wait until a rank connects, or a peer or an accepted connection sends something. With `sending`,
 * something must be tried again, so this takes at most TWILL_FD_RETRY_MS, else TWILL_ATTEND_NS. */
static void await_traffic(struct exchange *exchange, bool sending)
{
    const struct twill_fd_passing *fd_passing = exchange->fd_passing;
    struct pollfd *polls = exchange->polls;
    nfds_t n = 0;
    /* poll() ignores entries of descriptor -1. */
    bool accepts = may_accept(exchange) && !exchange->starved;
    polls[n++] = (struct pollfd){.fd = accepts ? fd_passing->listener : -1, .events = POLLIN};
    for (size_t i = 0; i < exchange->pending_count; i++)
        polls[n++] = (struct pollfd){.fd = exchange->pending[i], .events = POLLIN};
    for (size_t i = 0; i < fd_passing->peer_count; i++)
        if (!fd_passing->peers[i].received && fd_passing->peers[i].socket >= 0)
            polls[n++] = (struct pollfd){.fd = fd_passing->peers[i].socket, .events = POLLIN};
    poll(polls, n, sending ? TWILL_FD_RETRY_MS : (int)(TWILL_ATTEND_NS / 1000000));
}

/* Once twill_now() has reached *next, set that to the next time and call twill_oob_attend(). It
 * answers ranks that ask whom this rank waits for, with a peer whose files are missing. Returns
 * false if a rank has failed, so that the exchange must end, else true. */
static bool attend(struct twill_fd_passing *fd_passing, uint64_t *next)
{
    uint64_t now = twill_now();
    size_t i = 0;
    if (now < *next)
        return true;
    *next = now + TWILL_ATTEND_NS;
    while (i + 1 < fd_passing->peer_count && is_served(&fd_passing->peers[i]))
        i++;
    return twill_oob_attend(fd_passing->oob, fd_passing->peers[i].rank, false);
}

/* Return how far the exchange with a peer has come. */
static enum twill_fd_passing_phase phase_of(const struct twill_fd_passing_peer *peer)
{
    if (peer->received)
        return TWILL_FD_PASSING_RECEIVED;
    if (peer->sent)
        return TWILL_FD_PASSING_SENT;
    return peer->identified ? TWILL_FD_PASSING_CONNECTED : TWILL_FD_PASSING_UNCONNECTED;
}

/* Run the exchange. Returns FINE if it is complete. Returns LOST with `lost` set at the deadline,
 * and LOST without it if twill_oob_attend() finds that a rank has failed. Otherwise returns why
 * files cannot be exchanged, with `lost` set if a peer has hung up or does not listen. */
static enum twill_share_cause exchange_until_done(struct exchange *exchange)
{
    struct twill_fd_passing *fd_passing = exchange->fd_passing;
    uint64_t deadline = twill_now() + fd_passing->oob->timeout_ns;
    uint64_t interval = TWILL_FD_PROBE_NS, probe = twill_now() + interval, next = twill_now();
    for (bool over = false; !over;) {
        size_t missing, unsent;
        over = twill_now() > deadline; /* before the work, so a late wake-up has one more round */
        enum twill_share_cause cause = accept_pending(exchange);
        if (cause == TWILL_SHARE_FINE)
            cause = identify_pending(exchange);
        if (cause == TWILL_SHARE_FINE)
            cause = serve_peers(exchange, &missing, &unsent);
        if (cause != TWILL_SHARE_FINE || missing + unsent == 0)
            return cause;
        if (twill_now() > probe) {
            cause = probe_peers(fd_passing);
            interval = twill_min(2 * interval, TWILL_FD_PROBE_MOST_NS);
            probe = twill_now() + interval;
        }
        if (cause != TWILL_SHARE_FINE)
            return cause;
        if (!attend(fd_passing, &next))
            return TWILL_SHARE_LOST;
        if (!over)
            await_traffic(exchange, unsent > 0 || exchange->starved);
    }
    for (size_t i = 0; i < fd_passing->peer_count && fd_passing->lost == UINT32_MAX; i++) {
        const struct twill_fd_passing_peer *peer = &fd_passing->peers[i];
        if (is_served(peer))
            continue;
        fd_passing->lost = peer->rank;
        fd_passing->phase = phase_of(peer);
    }
    fd_passing->late = true;
    (void)twill_oob_attend(fd_passing->oob, fd_passing->lost, true);
    return TWILL_SHARE_LOST;
}

/* Return how many connections that this rank makes may be open at a time, which is also the number
 * of accepted ones. It is half of the descriptors left below the limit without LEFT_FREE of them,
 * from 1 to MAX_OPEN. If the limit is not known, it is MAX_OPEN. */
static size_t count_places(const struct twill_fd_limit *files)
{
    size_t used = twill_fd_count(files->now) + LEFT_FREE;
    if (files->now == 0) /* unknown */
        return MAX_OPEN;
    return used + 2 > files->now ? 1 : twill_min((files->now - used) / 2, MAX_OPEN);
}

enum twill_share_cause twill_fd_passing_exchange(struct twill_fd_passing *fd_passing)
{
    struct exchange exchange = {.fd_passing = fd_passing};
    exchange.polls = calloc(1 + MAX_PENDING + fd_passing->peer_count, sizeof(*exchange.polls));
    if (exchange.polls == NULL)
        return TWILL_SHARE_MEMORY;
    struct twill_fd_limit files;
    twill_fd_limit_raise(&files);
    exchange.most = count_places(&files);
    enum twill_share_cause cause = exchange_until_done(&exchange);
    twill_fd_limit_restore(&files);
    for (size_t i = 0; i < exchange.pending_count; i++)
        close(exchange.pending[i]);
    free(exchange.polls);
    return cause;
}

void twill_fd_passing_close(struct twill_fd_passing *fd_passing)
{
    if (fd_passing->listener >= 0)
        close(fd_passing->listener);
    fd_passing->listener = -1;
    for (size_t i = 0; i < fd_passing->peer_count; i++) {
        if (fd_passing->peers[i].socket >= 0)
            close(fd_passing->peers[i].socket);
        fd_passing->peers[i].socket = -1;
    }
}

const char *twill_share_cause_text(int32_t cause)
{
    static const char *const texts[TWILL_SHARE_CAUSES] = {
        [TWILL_SHARE_FINE] = "memory is shared",
        [TWILL_SHARE_MEMFD] = "memfd_create() is refused or out of memory",
        [TWILL_SHARE_FILE_LIMIT] =
            "the file size limit (ulimit -f) is below the size of the memory",
        [TWILL_SHARE_SOCKET] = "abstract unix sockets are refused",
        [TWILL_SHARE_REFUSED] = "unix sockets do not connect the ranks (network namespaces differ)",
        [TWILL_SHARE_LOST] = "a rank gave up exchanging descriptors",
        [TWILL_SHARE_DESCRIPTORS] = "too many open descriptors (ulimit -n)",
        [TWILL_SHARE_OTHER_USER] = "ranks of one host run as different users",
        [TWILL_SHARE_MAP] =
            "another rank's memory could not be mapped (ulimit -v? TWILL_TUNE=heap_limit)",
        [TWILL_SHARE_TOKEN] = "what one rank wrote could not be read by another",
        [TWILL_SHARE_MEMORY] = "out of memory",
        [TWILL_SHARE_RANDOM] = "getrandom() is refused",
    };
    return cause > 0 && cause < TWILL_SHARE_CAUSES ? texts[cause] : "memory cannot be shared";
}

const char *twill_fd_passing_phase_text(int32_t phase)
{
    static const char *const texts[TWILL_FD_PASSING_PHASES] = {
        [TWILL_FD_PASSING_UNCONNECTED] = "the two ranks never connected",
        [TWILL_FD_PASSING_CONNECTED] = "they connected, but no message passed",
        [TWILL_FD_PASSING_SENT] = "they connected, but only the waiting rank could send",
        [TWILL_FD_PASSING_RECEIVED] = "it came, but the waiting rank could not send its own",
    };
    return phase >= 0 && phase < TWILL_FD_PASSING_PHASES ? texts[phase] : "in an unknown phase";
}

void twill_fd_passing_suspect(const struct twill_fd_passing *fd_passing,
                              struct twill_oob_batch *batch)
{
    if (fd_passing->lost == UINT32_MAX)
        return;
    const uint32_t *job = fd_passing->oob->job;
    twill_oob_batch_suspect(
        batch, fd_passing->late ? TWILL_ERR_TIMEOUT : TWILL_ERR_PEER,
        "%s lost %s while memory was being shared (%s)",
        TWILL_RANK_NAME(job, fd_passing->oob->rank), TWILL_RANK_NAME(job, fd_passing->lost),
        fd_passing->late ? twill_fd_passing_phase_text((int32_t)fd_passing->phase)
                         : "it died, lost a rank itself, or cannot be seen from here");
}
