/* SPDX-License-Identifier: Apache-2.0 */
/* Connections of channels, opened when the first request is posted. */
#include "fabric/tcp/tcp.h"

#include "lib/base/times.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Attempts to connect when the other end hangs up. Before its answer, it may have evicted this
 * connection in favour of others. After its answer, it does not expect this channel. */
#define AGAIN          100
#define AGAIN_ANSWERED 3
#define CHECK_HINT     "(firewall? twillrun --check)"
#define RX_BYTES       (TWILL_TCP_RX_BYTES + sizeof(struct twill_tcp_header))
_Static_assert(sizeof(struct twill_hello) <= RX_BYTES &&
                   RX_BYTES % _Alignof(struct twill_hello) == 0,
               "the receive buffer holds the handshake while the channel connects");

/* Return a new peer with the memory of all its channels, or NULL if out of memory. Enlarges t->busy
 * for these channels. */
static struct twill_tcp_peer *make_peer(struct twill_tcp *t, uint32_t rank)
{
    size_t capacity = t->busy_capacity + TWILL_LANES;
    struct twill_tcp_channel **busy =
        realloc(t->busy, capacity * sizeof(struct twill_tcp_channel *));
    if (busy == NULL)
        return NULL;
    t->busy = busy;
    struct twill_tcp_peer *peer = calloc(1, sizeof(*peer));
    unsigned char *rx_buffers = /* pages are touched when used */
        aligned_alloc(TWILL_CACHE_LINE, TWILL_LANES * RX_BYTES);
    if (peer == NULL || rx_buffers == NULL) {
        free(peer);
        free(rx_buffers);
        return NULL;
    }
    t->busy_capacity = capacity;
    peer->rank = rank;
    peer->interface = t->common->interface[0] != '\0' ? t->common->interface : NULL;
    if (t->common->address != NULL) /* there is none before the exchange of set-up */
        peer->address = &t->common->address[twill_tcp_rank_in_job(t, rank)];
    (void)twill_rank_text(t->params.job, rank, peer->name);
    peer->rx_buffers = rx_buffers;
    for (unsigned l = 0; l < TWILL_LANES; l++) {
        struct twill_tcp_channel *channel = &peer->channels[l];
        channel->peer = peer;
        channel->number = (uint8_t)l;
        channel->fd = -1;
        channel->in.bytes = rx_buffers + l * RX_BYTES;
        if (twill_tcp_protects(&t->params, NULL) &&
            (channel->records = twill_tcp_records_new(&t->common->protection, &t->base.counters,
                                                      rank, peer->name)) == NULL) {
            twill_tcp_peer_free(peer);
            return NULL;
        }
    }
    return peer;
}

twill_status twill_tcp_peer(struct twill_tcp *t, uint32_t rank, struct twill_tcp_peer **peer,
                            struct twill_error *error)
{
    if (rank >= t->size || rank == t->rank)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "tcp: rank %u is not a peer", rank);
    if (t->peers[rank] == NULL)
        t->peers[rank] = make_peer(t, rank);
    *peer = t->peers[rank];
    if (*peer == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "tcp: no memory for rank %u", rank);
    return TWILL_OK;
}

void twill_tcp_peer_free(struct twill_tcp_peer *peer)
{
    for (unsigned l = 0; peer != NULL && l < TWILL_LANES; l++)
        twill_tcp_records_free(peer->channels[l].records);
    if (peer != NULL)
        free(peer->rx_buffers);
    free(peer);
}

/* Return a hint for messages if an errno has its cause on this host and not at the peer. It is ""
 * for those that explain themselves, such as ENOMEM. Returns NULL for all others. */
static const char *local_trouble(int why)
{
    switch (why) {
    case EMFILE:
        return " (see ulimit -n)";
    case EADDRNOTAVAIL:
    case EAGAIN:
        return " (no port is free: see net.ipv4.ip_local_port_range)";
    case EACCES:
    case EPERM:
        return " (a firewall of this host?)";
    case EBADF:
    case ENOTSOCK:
        return " (has the program closed descriptors that it did not open?)";
    case EFAULT:
        return " (a buffer that the kernel cannot read or write)";
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
        return "";
    default:
        return NULL;
    }
}

/* Return whether an errno of connect() says that there is no way to the host, perhaps briefly. */
static bool is_away(int why)
{
    return why == ENETUNREACH || why == EHOSTUNREACH || why == ENETDOWN;
}

/* Set *listener to the address and port of a peer's listener, or to "?" if they are not known. */
static void find_listener(const struct twill_tcp_peer *peer, struct twill_endpoint *listener)
{
    *listener = (struct twill_endpoint){.address = "?"};
    if (peer->address != NULL)
        (void)twill_endpoint_of(&peer->address->at.any, peer->address->length, listener);
}

/* Fail with TWILL_ERR_FABRIC for a peer to which no connection was ever made. `why` is ECONNREFUSED
 * or ETIMEDOUT. Either its process has ended, or something on the way refuses or drops
 * connections. */
static twill_status way_is_closed(const struct twill_tcp_peer *peer, int why,
                                  struct twill_error *error)
{
    struct twill_endpoint to;
    find_listener(peer, &to);
    return TWILL_FAIL_RANK(error, TWILL_ERR_FABRIC, peer->rank,
                           "tcp: host %s of %s %s port %u " CHECK_HINT, to.address, peer->name,
                           why == ECONNREFUSED ? "refuses connections to" : "does not answer at",
                           to.port);
}

twill_status twill_tcp_lost(const struct twill_tcp_channel *channel, int why,
                            struct twill_error *error)
{
    const char *rank = channel->peer->name;
    const char *local = local_trouble(why);
    if (local != NULL)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "tcp: trouble on this host, not with %s: %s%s",
                          rank, strerror(why), local);
    if (why == EPROTO)
        return TWILL_FAIL_RANK(error, TWILL_ERR_PEER, channel->peer->rank,
                               "tcp: at the address of %s answers a program of another job", rank);
    const char *interface = channel->peer->interface;
    if (!channel->peer->met && (why == ECONNREFUSED || why == ETIMEDOUT))
        return way_is_closed(channel->peer, why, error);
    if (is_away(why))
        return TWILL_FAIL_RANK(error, TWILL_ERR_PEER, channel->peer->rank,
                               "tcp: %s cannot be reached%s%s: %s", rank,
                               interface != NULL ? " from interface " : "",
                               interface != NULL ? interface : "", strerror(why));
    return TWILL_FAIL_RANK(error, TWILL_ERR_PEER, channel->peer->rank,
                           "tcp: %s has died, ended or given up: %s", rank,
                           why == 0 ? "it has closed its connection" : strerror(why));
}

/* Start to use a connection whose handshake is complete. Progress then works on the channel. */
static void make_open(struct twill_tcp *t, struct twill_tcp_channel *channel,
                      const struct twill_session *session)
{
    if (channel->records != NULL)
        twill_tcp_records_begin(channel->records, channel->fd, session);
    channel->state = TWILL_TCP_OPEN;
    channel->peer->met = true;
    channel->readable = channel->writable = true;
    channel->out.gone = 0;
    channel->away_since = 0;
    twill_tcp_busy(t, channel);
}

/* If `why`, an errno of connect(), means that there is no way to the host for now, close the
 * descriptor and return true. Connecting is then tried again at retry_at. Returns false for another
 * errno, or if that has lasted for over TWILL_TCP_AWAY_NS since away_since, which this sets. */
static bool put_off(struct twill_tcp_channel *channel, int why)
{
    uint64_t now = twill_now();
    if (!is_away(why))
        return false;
    if (channel->away_since == 0)
        channel->away_since = now;
    if (now - channel->away_since > TWILL_TCP_AWAY_NS)
        return false;
    close(channel->fd);
    channel->fd = -1;
    channel->retry_at = now + TWILL_TCP_AWAY_RETRY_NS;
    return true;
}

/* If a channel is closed, start to connect it, or to wait for a peer of a lower rank. Returns
 * TWILL_OK also if connecting is put off, as there is no way to the host for now. Fails with
 * TWILL_ERR_CONFIG for a bad congestion control, or as twill_tcp_lost() if there is no socket or
 * connect() fails. */
static twill_status open_one(struct twill_tcp *t, struct twill_tcp_channel *channel,
                             struct twill_error *error)
{
    if (channel->state != TWILL_TCP_CLOSED)
        return TWILL_OK;
    if (channel->peer->rank < t->rank) {
        channel->state = TWILL_TCP_WAITING;
        t->waiting++;
        return TWILL_OK;
    }
    const struct twill_tcp_address *to =
        &t->common->address[twill_tcp_rank_in_job(t, channel->peer->rank)];
    const struct twill_tcp_address *from = &t->common->source;
    channel->fd = twill_socket_new(to->at.any.sa_family);
    if (channel->fd < 0)
        return twill_tcp_lost(channel, errno, error);
    TWILL_TRY(error, twill_tcp_congestion(&t->params, channel->fd, error));
    if (t->common->unpaced)
        (void)twill_tcp_use_reno(channel->fd);
    /* From the chosen interface if it has the family, else the kernel chooses. */
    int late = 1;
    (void)setsockopt(channel->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &late, sizeof(late));
    if (from->at.any.sa_family == to->at.any.sa_family)
        (void)bind(channel->fd, &from->at.any, from->length);
    if (twill_socket_connect(channel->fd, &to->at.any, to->length) < 0) {
        int why = errno;
        if (!put_off(channel, why))
            return twill_tcp_lost(channel, why, error);
    }
    channel->state = TWILL_TCP_CONNECTING;
    channel->asked_at = twill_now();
    twill_tcp_busy(t, channel);
    return TWILL_OK;
}

twill_status twill_tcp_channel_open(struct twill_tcp *t, struct twill_tcp_channel *channel,
                                    struct twill_error *error)
{
    unsigned next = (channel->number + TWILL_NODE_LANES / TWILL_WINDOW) % TWILL_NODE_LANES;
    TWILL_TRY(error, open_one(t, channel, error));
    /* If this fails, the next call retries. */
    if (channel->number != TWILL_POINT_LANE &&
        open_one(t, &channel->peer->channels[next], NULL) != TWILL_OK)
        twill_tcp_channel_close(&channel->peer->channels[next], false);
    return TWILL_OK;
}

/* Return the handshake, which lies in the receive buffer while the channel connects. */
static struct twill_hello *hello_of(const struct twill_tcp_channel *channel)
{
    return (struct twill_hello *)(void *)channel->in.bytes;
}

/* Handle a failed connect. Returns a negative status if requests wait on the channel. Else makes it
 * LOST and returns 0, as a peer that ended in order may have sent more on other channels. */
static int give_up_link(struct twill_tcp_channel *channel, int why, struct twill_error *error)
{
    if (twill_tcp_sends(channel) || twill_tcp_receives(channel))
        return twill_tcp_lost(channel, why, error);
    twill_tcp_channel_close(channel, false);
    channel->state = TWILL_TCP_LOST;
    channel->why = why;
    return 0;
}

/* Open a closed channel again. Returns 1 if it connects now, or 0 if it waits. If it fails, returns
 * a negative status, or 0 with the channel LOST because of `why` if nothing is posted on it. */
static int open_again(struct twill_tcp *t, struct twill_tcp_channel *channel, int why,
                      struct twill_error *error)
{
    twill_status status = open_one(t, channel, error);
    if (status == TWILL_OK || twill_tcp_sends(channel) || twill_tcp_receives(channel))
        return status == TWILL_OK ? channel->fd >= 0 : status;
    return give_up_link(channel, why, error);
}

/* Connect again, as the other end may have evicted the connection before the handshake, and keep
 * the posted requests. Returns 1 if it connects now, 0 if it waits or is LOST, or a negative
 * status. */
static int call_again(struct twill_tcp *t, struct twill_tcp_channel *channel,
                      struct twill_error *error)
{
    struct twill_transfer_queue out = channel->out.queue, in = channel->in.queue;
    channel->again++;
    twill_tcp_channel_close(channel, false);
    channel->out.queue = out;
    channel->in.queue = in;
    return open_again(t, channel, ECONNRESET, error);
}

/* Continue the handshake on a connection that this rank has made. At its end the channel is OPEN.
 * If the peer closes it first, connect again, up to AGAIN times, or AGAIN_ANSWERED after its
 * answer. If it fails otherwise, does and returns the same as give_up_link(). Else returns 1 if
 * anything moved, or 0. */
static int greet_link(struct twill_tcp *t, struct twill_tcp_channel *channel,
                      struct twill_error *error)
{
    struct twill_session session;
    struct twill_hello *hello = hello_of(channel);
    uint8_t step = hello->step;
    enum twill_wire_moved outcome = twill_hello_move(hello, channel->fd, &session);
    if (outcome == TWILL_WIRE_LATER)
        return hello->step != step;
    uint8_t most = hello->step > 1 ? AGAIN_ANSWERED : AGAIN; /* past the answer */
    if (outcome == TWILL_WIRE_GONE && hello->fault == TWILL_FAULT_CLOSED && channel->again < most)
        return call_again(t, channel, error);
    if (outcome == TWILL_WIRE_GONE)
        return give_up_link(channel, hello->fault == TWILL_FAULT_CLOSED ? errno : EPROTO, error);
    make_open(t, channel, &session);
    twill_secret_wipe(&session, sizeof(session));
    twill_counter_add(&t->base.counters.header_bytes,
                      sizeof(hello->said.call) + sizeof(hello->reply));
    return 1;
}

int twill_tcp_channel_connect(struct twill_tcp *t, struct twill_tcp_channel *channel,
                              struct twill_error *error)
{
    if (channel->state == TWILL_TCP_CONNECTING && channel->fd < 0) { /* it was put off */
        if (twill_now() < channel->retry_at)
            return 0;
        channel->state = TWILL_TCP_CLOSED;
        return open_again(t, channel, ENETUNREACH, error);
    }
    if (channel->state == TWILL_TCP_CONNECTING) {
        struct pollfd one = {.fd = channel->fd, .events = POLLOUT};
        if (poll(&one, 1, 0) <= 0)
            return 0;
        int why = twill_socket_connected(channel->fd);
        if (why != 0)
            return put_off(channel, why) ? 0 : give_up_link(channel, why, error);
        if (!twill_tcp_hello_call(t, channel, hello_of(channel)))
            return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "tcp: getrandom failed");
        channel->state = TWILL_TCP_GREETING;
    }
    return greet_link(t, channel, error);
}

void twill_tcp_channel_attach(struct twill_tcp *t, struct twill_tcp_channel *channel, int fd,
                              const struct twill_session *session)
{
    if (channel->state == TWILL_TCP_WAITING)
        t->waiting--;
    channel->fd = fd;
    make_open(t, channel, session);
}

void twill_tcp_channel_close(struct twill_tcp_channel *channel, bool at_once)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};
    if (channel->fd >= 0) {
        if (at_once)
            (void)setsockopt(channel->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        close(channel->fd);
    }
    channel->fd = -1;
    if (channel->state == TWILL_TCP_GREETING)
        twill_secret_wipe(channel->in.bytes, sizeof(struct twill_hello));
    channel->state = TWILL_TCP_CLOSED;
    channel->out.queue = channel->in.queue = (struct twill_transfer_queue){NULL, NULL};
}

void twill_tcp_busy(struct twill_tcp *t, struct twill_tcp_channel *channel)
{
    if (channel->busy)
        return;
    channel->busy = true;
    t->busy[t->busy_count++] = channel;
}

void twill_tcp_say_unanswered(struct twill_tcp *t, struct twill_tcp_channel *channel, uint64_t now)
{
    struct twill_endpoint to;
    if (channel->state != TWILL_TCP_CONNECTING || channel->fd < 0 || channel->peer->told ||
        now - channel->asked_at < TWILL_TCP_UNANSWERED_NS)
        return;
    channel->peer->told = true;
    find_listener(channel->peer, &to);
    twill_say(t->params.log, TWILL_LOG_WARN,
              "tcp: connecting to %s at %s, port %u: no answer for %.0f s " CHECK_HINT,
              channel->peer->name, to.address, to.port, (double)TWILL_TCP_UNANSWERED_NS * 1e-9);
}

void twill_tcp_awaits(const struct twill_transport *transport, uint32_t rank, char *text,
                      size_t bytes)
{
    const struct twill_tcp *t = (const struct twill_tcp *)transport;
    const struct twill_tcp_peer *peer = t->peers[rank];
    struct twill_endpoint to;
    unsigned l = 0;
    text[0] = '\0';
    while (peer != NULL && l < TWILL_LANES &&
           (peer->channels[l].state == TWILL_TCP_OPEN ||
            (peer->channels[l].out.queue.head == NULL && peer->channels[l].in.queue.head == NULL)))
        l++;
    if (peer == NULL || l == TWILL_LANES)
        return;
    find_listener(peer, &to);
    if (peer->channels[l].state == TWILL_TCP_WAITING)
        snprintf(text, bytes, "%s has not connected to %s", peer->name, t->common->at);
    else
        snprintf(text, bytes, "the connection to %s, port %u, is %s", to.address, to.port,
                 peer->channels[l].state == TWILL_TCP_GREETING ? "made, but not answered"
                                                               : "not answered " CHECK_HINT);
}

bool twill_tcp_hello_call(const struct twill_tcp *t, const struct twill_tcp_channel *channel,
                          struct twill_hello *hello)
{
    const struct twill_hello_identity identity = {
        .role = TWILL_HELLO_DATA,
        .rank = twill_tcp_rank_in_job(t, t->rank),
        .to = twill_tcp_rank_in_job(t, channel->peer->rank),
        .size = t->common->size,
        .argument = (uint64_t)t->params.comm << 8 | channel->number};
    return twill_hello_call(hello, &t->common->secret, &identity);
}
