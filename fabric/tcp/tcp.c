/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of the tcp transport: open, post, progress, cancel, close. */
#include "fabric/tcp/tcp.h"
#include "fabric/rails/rails.h"
#include "lib/base/rest.h"
#include "lib/base/times.h"

#include <errno.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* fewest polls until a close gives up, as a suspended machine's clock continues */
#define POLLS_LEAST 1000
/* calls with a channel that waits for its peer between accepts, even if other channels move */
#define POLLS_PER_ADOPT 16u
/* idle polls between looks at the clock, as on a busy machine a yield may take 50 ms */
#define POLLS_PER_CLOCK 64u
#define CHANNEL_EVENTS  64

/* Return TWILL_PRIORITY_NAMED if TWILL_PROVIDER is tcp, or if encryption or checksums are asked
 * for. Return _PLAIN if no provider is named. In both cases write to `why` how tcp came to be
 * chosen. Return _NONE if another provider is named, and leave `why` unchanged. */
static uint32_t tcp_priority(const struct twill_transport_params *params, char *why, size_t bytes)
{
    const char *what;
    if (twill_tcp_protects(params, &what)) {
        snprintf(why, bytes, "twill's own tcp, the one with %s", what);
        return TWILL_PRIORITY_NAMED; /* open() refuses another TWILL_PROVIDER */
    }
    bool named = params->provider != NULL && params->provider[0] != '\0';
    if (named && !twill_words_equal(params->provider, "tcp", SIZE_MAX))
        return TWILL_PRIORITY_NONE;
    snprintf(why, bytes, "twill's own tcp%s", named ? ", by TWILL_PROVIDER" : "");
    return named ? TWILL_PRIORITY_NAMED : TWILL_PRIORITY_PLAIN;
}

/* Return whether progress must work on a channel: it connects, sends, receives or keeps records. */
static bool has_work(const struct twill_tcp_channel *channel)
{
    if (channel->state == TWILL_TCP_LOST)
        return false;
    return channel->state != TWILL_TCP_OPEN || twill_tcp_sends(channel) ||
           twill_tcp_receives(channel) ||
           (channel->records != NULL && twill_tcp_records_kept(channel->records));
}

/* Return whether bytes that were read are not processed yet. */
static bool has_bytes(const struct twill_tcp_channel *channel)
{
    return channel->in.end > channel->in.begin ||
           (channel->records != NULL && twill_tcp_records_have(channel->records));
}

/* Return whether to read: always if `direct`, else after an event of epoll or with bytes left. */
static bool may_read(const struct twill_tcp_channel *channel, bool direct)
{
    return direct || channel->readable || has_bytes(channel);
}

/* Connect a channel, or send and receive on it, as far as possible now. `direct` tries it without
 * an event of epoll. Returns more than 0 if anything moved, 0 if not, or a negative status. */
static int step_channel(struct twill_tcp *t, struct twill_tcp_channel *channel, bool direct,
                        struct twill_error *error)
{
    int moved = 0, more;
    if (channel->state != TWILL_TCP_OPEN) {
        moved = twill_tcp_channel_connect(t, channel, error);
        if (moved < 0 || channel->state != TWILL_TCP_OPEN)
            return moved;
    }
    if (TWILL_UNLIKELY(channel->records != NULL)) {
        TWILL_TRY(error, more = twill_tcp_protected_step(t, channel, error));
        moved += more;
    }
    if (twill_tcp_sends(channel) && (direct || channel->writable) && !t->cut_off &&
        !channel->out.served) {
        TWILL_TRY(error, more = twill_tcp_send(t, channel, error));
        moved += more;
    }
    if (twill_tcp_receives(channel) && may_read(channel, direct) && !t->cut_off &&
        !channel->in.served) {
        TWILL_TRY(error, more = twill_tcp_recv(t, channel, error));
        moved += more;
    }
    if (twill_tcp_sends(channel) && !twill_tcp_receives(channel) && may_read(channel, direct) &&
        !t->cut_off) {
        TWILL_TRY(error, more = twill_tcp_recv_refusal(t, channel, error));
        moved += more;
    }
    channel->in.served = channel->out.served = false;
    return moved;
}

/* Put open busy channels into the epoll set, which the first call makes, and mark those that it
 * reports as readable or writable. Events are edge-triggered, so each is reported once. Does not
 * wait. Fails with TWILL_ERR_SYSTEM. */
static twill_status gather_events(struct twill_tcp *t, struct twill_error *error)
{
    struct epoll_event events[CHANNEL_EVENTS];
    if (t->epoll < 0 &&
        (t->epoll = twill_fd_move(epoll_create1(EPOLL_CLOEXEC), TWILL_FD_LEAST)) < 0)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "tcp: epoll_create1: %s", strerror(errno));
    for (size_t i = 0; i < t->busy_count; i++) {
        struct twill_tcp_channel *channel = t->busy[i];
        struct epoll_event all = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                  .data.ptr = channel};
        if (channel->in_epoll || channel->state != TWILL_TCP_OPEN)
            continue;
        if (epoll_ctl(t->epoll, EPOLL_CTL_ADD, channel->fd, &all) != 0)
            return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "tcp: epoll_ctl: %s", strerror(errno));
        channel->in_epoll = true;
    }
    int n = epoll_wait(t->epoll, events, CHANNEL_EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct twill_tcp_channel *channel = events[i].data.ptr;
        channel->readable |= (events[i].events & ~(uint32_t)EPOLLOUT) != 0;
        channel->writable |= (events[i].events & ~(uint32_t)EPOLLIN) != 0;
    }
    return TWILL_OK;
}

/* Step all busy channels, and remove those without work from the list. Stop after a channel that
 * sets t->cut_off. Returns more than 0 if anything moved, 0 if not, or a negative status. */
static int all_steps(struct twill_tcp *t, struct twill_error *error)
{
    int moved = 0;
    bool direct = t->busy_count <= TWILL_TCP_DIRECT;
    t->cut_off = false;
    if (!direct)
        TWILL_TRY(error, gather_events(t, error));
    if (TWILL_UNLIKELY(t->shares != NULL))
        TWILL_TRY(error, moved = twill_tcp_share(t, direct, error));
    for (size_t i = 0; i < t->busy_count;) {
        struct twill_tcp_channel *channel = t->busy[i];
        int more = step_channel(t, channel, direct, error);
        if (more < 0)
            return more;
        moved += more;
        if (TWILL_UNLIKELY(t->cut_off))
            break;
        if (has_work(channel)) {
            i++;
            continue;
        }
        channel->busy = false;
        t->busy[i] = t->busy[--t->busy_count];
    }
    return moved;
}

/* Once a second, look for peers whose host has vanished, as TCP's keep-alive does not find that
 * while data is unacknowledged. If there is one, fails with TWILL_ERR_PEER, or _FABRIC if it never
 * answered. Also log which hosts have not answered for long. */
static twill_status check_hosts(struct twill_tcp *t, struct twill_error *error)
{
    uint64_t now = twill_now();
    if (now - t->hosts_checked < TWILL_TCP_HOSTS_CHECKED_NS)
        return TWILL_OK;
    t->hosts_checked = now;
    for (size_t i = 0; i < t->busy_count; i++) {
        struct twill_tcp_channel *channel = t->busy[i];
        twill_tcp_say_unanswered(t, channel, now);
        bool connected = channel->state == TWILL_TCP_OPEN || channel->state == TWILL_TCP_GREETING;
        if (connected && twill_socket_is_silent(channel->fd))
            return twill_tcp_lost(channel, ETIMEDOUT, error);
    }
    return TWILL_OK;
}

/* Send and receive on all channels. If connections are awaited, accept them when nothing moved, and
 * else in some calls. When often nothing has moved, look for hosts that have vanished. Returns more
 * than 0 if anything moved, 0 if not, or a negative status, which all later calls also return. */
static int tcp_progress(struct twill_transport *transport, struct twill_error *error)
{
    struct twill_tcp *t = (struct twill_tcp *)transport;
    if (TWILL_UNLIKELY(t->failed != TWILL_OK))
        return TWILL_FAIL(error, t->failed, "tcp: the transport has failed before");
    int moved = all_steps(t, error);
    bool checks = t->waiting > 0 && (moved == 0 || ++t->polls % POLLS_PER_ADOPT == 0);
    if (TWILL_UNLIKELY(moved >= 0 && checks)) {
        int adopted = twill_tcp_common_adopt(t, error);
        moved = adopted < 0 ? adopted : moved + adopted;
    }
    if (TWILL_UNLIKELY(moved == 0 && ++t->vain % POLLS_PER_CLOCK == 0))
        moved = check_hosts(t, error);
    if (TWILL_UNLIKELY(moved < 0))
        t->failed = (twill_status)moved;
    return moved;
}

typedef void (*channel_fn)(struct twill_tcp_channel *channel, void *with);

/* Call act() for every channel of every peer that exists. */
static void apply_channels(struct twill_tcp *t, channel_fn act, void *with)
{
    for (uint32_t r = 0; t->peers != NULL && r < t->size; r++)
        for (unsigned l = 0; t->peers[r] != NULL && l < TWILL_LANES; l++)
            act(&t->peers[r]->channels[l], with);
}

/* Close a channel's connection by a reset (RST), and forget its requests without completing them.
 * The channel is closed then, and progress no longer works on it. `with` is not used. */
static void drop_channel(struct twill_tcp_channel *channel, void *with)
{
    (void)with;
    twill_tcp_channel_close(channel, true);
    channel->busy = false;
}

/* Close a channel's connection without a reset, so that the kernel still sends what it was given.
 * Forget the channel's requests. Does not wait. `with` is not used. */
static void hang_up_channel(struct twill_tcp_channel *channel, void *with)
{
    (void)with;
    twill_tcp_channel_close(channel, false);
}

/* Add 1 to the size_t at `with` if the channel has both unread input and unsent output, as close()
 * would then reset its connection and may discard the output. */
static void count_unsafe(struct twill_tcp_channel *channel, void *with)
{
    int in = 0, out = 0;
    if (channel->fd < 0 || ioctl(channel->fd, SIOCINQ, &in) != 0 || in == 0 ||
        ioctl(channel->fd, SIOCOUTQ, &out) != 0)
        return;
    *(size_t *)with += out > 0;
}

/* Reset all connections, so that no message reaches callers' buffers. All later calls fail. */
static void tcp_cancel(struct twill_transport *transport)
{
    struct twill_tcp *t = (struct twill_tcp *)transport;
    apply_channels(t, drop_channel, NULL);
    if (t->common != NULL)
        twill_tcp_common_forget(t); /* also closes connections that are not claimed yet */
    t->busy_count = 0;
    t->waiting = 0;
    if (t->failed == TWILL_OK)
        t->failed = TWILL_ERR_BROKEN;
}

/* Return whether twill_tcp_sends() is true for a busy channel. */
static bool has_sends(const struct twill_tcp *t)
{
    for (size_t i = 0; i < t->busy_count; i++)
        if (twill_tcp_sends(t->busy[i]))
            return true;
    return false;
}

/* Wait, at most TWILL_TCP_FLUSH_NS, until all posted is sent and close() loses none of it. */
static void flush(struct twill_tcp *t)
{
    uint64_t limit = twill_now() + TWILL_TCP_FLUSH_NS;
    size_t unsafe = 1;
    unsigned turn = 0;
    for (; t->failed == TWILL_OK && has_sends(t) && (turn < POLLS_LEAST || twill_now() < limit);
         turn++)
        if (tcp_progress(&t->base, NULL) == 0)
            twill_nap(TWILL_FLUSH_NAP_NS);
    for (turn = 0;
         t->failed == TWILL_OK && unsafe > 0 && (turn < POLLS_LEAST || twill_now() < limit);
         turn++) {
        unsafe = 0;
        apply_channels(t, count_unsafe, &unsafe);
        if (unsafe > 0)
            twill_nap(TWILL_FLUSH_NAP_NS);
    }
}

/* Send what is posted, close all connections and free the transport, which may be NULL. */
static void tcp_close(struct twill_transport *transport)
{
    struct twill_tcp *t = (struct twill_tcp *)transport;
    if (t == NULL)
        return;
    flush(t);
    apply_channels(t, hang_up_channel, NULL);
    if (t->common != NULL)
        twill_tcp_common_forget(t);
    if (t->common != NULL && t->owns_common)
        t->common->base.close(&t->common->base);
    if (t->epoll >= 0)
        close(t->epoll);
    for (uint32_t r = 0; t->peers != NULL && r < t->size; r++)
        twill_tcp_peer_free(t->peers[r]);
    free(t->peers);
    free(t->busy);
    free(t->scratch);
    free(t->shares);
    free(t);
}

/* Open the common state, allocate memory and describe the transport. Fails as these do. */
static twill_status set_up_tcp(struct twill_tcp *t, struct twill_error *error)
{
    char congestion[128];
    const char *guard = "";
    TWILL_TRY(error, twill_tcp_common_open(t, error));
    t->peers = calloc(t->size, sizeof(*t->peers));
    t->scratch_bytes = twill_max(TWILL_TCP_SCRATCH, twill_min(t->params.piece, TWILL_TCP_TOGETHER));
    t->scratch = aligned_alloc(4096, twill_round_up(t->scratch_bytes, 4096));
    if (t->params.pool != NULL)
        t->shares = aligned_alloc(4096, (size_t)TWILL_TCP_SHARES * TWILL_TCP_SCRATCH);
    if (t->peers == NULL || t->scratch == NULL || (t->params.pool != NULL && t->shares == NULL))
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "tcp: no memory for %u peers", t->size);
    (void)twill_tcp_congestion_text(t->common->listener, congestion, sizeof(congestion));
    if (t->common->protection.encrypts)
        guard = t->common->protection.aes ? "; encrypted (AES-256-GCM)"
                                          : "; encrypted (ChaCha20-Poly1305)";
    else if (t->common->protection.crc32c != NULL)
        guard = "; checksums (CRC32C)";
    t->start = twill_clock_read();
    t->once = t->common->paced ? TWILL_TCP_PACED : TWILL_TCP_ONCE;
    t->base.best_message = t->common->paced ? 2 * TWILL_TCP_PACED : 0;
    const char *why =
        t->common->unpaced ? ", as the system's paces and all hosts are in one network" : "";
    snprintf(t->description, sizeof(t->description), "twill's tcp at %s, interface %s, %s; %s%s%s",
             t->common->at, t->common->interface, t->common->why, congestion, why, guard);
    return TWILL_OK;
}

/* Create *transport, collectively. On failure it is NULL, and nothing is left. */
static twill_status tcp_open(struct twill_transport **transport,
                             const struct twill_transport_params *params, struct twill_error *error)
{
    *transport = NULL;
    struct twill_tcp *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "tcp: no memory");
    t->base.ops = &twill_tcp_transport;
    t->params = *params;
    t->rank = (uint32_t)params->oob->rank;
    t->size = (uint32_t)params->oob->size;
    t->epoll = -1;
    twill_status status = set_up_tcp(t, error);
    if (status != TWILL_OK) {
        tcp_close(&t->base);
        return status;
    }
    *transport = &t->base;
    return TWILL_OK;
}

/* Create the peer of a rank, with all its memory, unless it exists. Its connections are opened
 * later, by the first requests. Fails with TWILL_ERR_MEMORY, or _INTERNAL if this is no other
 * rank. */
static twill_status tcp_connect(struct twill_transport *transport, uint32_t rank,
                                struct twill_error *error)
{
    struct twill_tcp_peer *peer;
    return twill_tcp_peer((struct twill_tcp *)transport, rank, &peer, error);
}

/* Return a negative count of moved requests as the status that it is, else TWILL_OK. */
static twill_status move_status(int moved)
{
    return moved < 0 ? (twill_status)moved : TWILL_OK;
}

/* Post a request. The first opens its channel's connection. A SEND starts at once if its channel is
 * free, a RECV at the next progress. All calls fail after a failure of the transport. */
static twill_status tcp_post(struct twill_transport *transport, struct twill_transfer *request,
                             struct twill_error *error)
{
    struct twill_tcp *t = (struct twill_tcp *)transport;
    if (t->failed != TWILL_OK)
        return TWILL_FAIL(error, TWILL_ERR_BROKEN, "tcp: the transport has failed before");
    if (request->lane >= TWILL_LANES || request->peer >= t->size || t->peers[request->peer] == NULL)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "tcp: rank %u, lane %u is not connected",
                          request->peer, request->lane);
    struct twill_tcp_channel *channel = &t->peers[request->peer]->channels[request->lane];
    bool sends = request->kind == TWILL_TRANSFER_SEND;
    bool first = !twill_tcp_sends(channel);
    twill_transfer_push(sends ? &channel->out.queue : &channel->in.queue, request);
    twill_status status = TWILL_OK;
    t->cut_off = false;
    if (channel->state == TWILL_TCP_CLOSED)
        status = twill_tcp_channel_open(t, channel, error);
    else if (channel->state == TWILL_TCP_LOST)
        status = twill_tcp_lost(channel, channel->why, error);
    else if (channel->state == TWILL_TCP_OPEN && sends && first)
        status = move_status(twill_tcp_send(t, channel, error));
    if (status == TWILL_OK && channel->state == TWILL_TCP_OPEN &&
        (twill_tcp_sends(channel) || twill_tcp_receives(channel)))
        twill_tcp_busy(t, channel);
    if (status != TWILL_OK)
        t->failed = status;
    return status;
}

/* Add 1 to the unsigned at `with` if the channel has a connection. */
static void count_connection(struct twill_tcp_channel *channel, void *with)
{
    *(unsigned *)with += channel->fd >= 0;
}

static void tcp_hold(const struct twill_transport *transport, struct twill_transport_holding *sum)
{
    struct twill_tcp *t = (struct twill_tcp *)(uintptr_t)transport;
    apply_channels(t, count_connection, &sum->descriptors);
    sum->descriptors += t->epoll >= 0;
    sum->bytes += sizeof(*t) + t->scratch_bytes;
    for (uint32_t r = 0; r < t->size; r++)
        if (t->peers[r] != NULL)
            sum->bytes += sizeof(*t->peers[r]) +
                          TWILL_LANES * (TWILL_TCP_RX_BYTES + sizeof(struct twill_tcp_header));
}

/* Return the description of the transport, which owns it. */
static const char *tcp_describe(const struct twill_transport *transport)
{
    return ((const struct twill_tcp *)transport)->description;
}

/* Write to `text` which address, interface and congestion control this transport would use, without
 * listening. Fails with TWILL_ERR_CONFIG if TWILL_INTERFACE or TWILL_TUNE=congestion is not
 * possible here, or TWILL_ERR_SYSTEM without a network or socket. */
static twill_status tcp_preview(const struct twill_transport_params *params, char *text,
                                size_t bytes, struct twill_error *error)
{
    char address[TWILL_ADDRESS_TEXT], interface[32], why[128], congestion[128];
    TWILL_TRY(error, twill_tcp_place(params, address, interface, why, sizeof(why), error));
    int fd = twill_socket_new(strchr(address, ':') != NULL ? AF_INET6 : AF_INET);
    if (fd < 0)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "tcp: socket: %s", strerror(errno));
    twill_status status = twill_tcp_congestion(params, fd, error);
    twill_tcp_congestion_text(fd, congestion, sizeof(congestion));
    close(fd);
    snprintf(text, bytes, "twill's tcp at %s, interface %s, %s; %s", address, interface, why,
             congestion);
    return status;
}

const struct twill_transport_ops twill_tcp_transport = {
    .name = "tcp",
    .needs_bounce = false,
    .sleeps_on_doorbell = false,
    .priority = tcp_priority,
    .open = tcp_open,
    .close = tcp_close,
    .connect = tcp_connect,
    .post = tcp_post,
    .progress = tcp_progress,
    .cancel = tcp_cancel,
    .hold = tcp_hold,
    .describe = tcp_describe,
    .awaits = twill_tcp_awaits,
    .early = twill_tcp_early,
    .preview = tcp_preview,
    .rails = twill_links_rails,
};
