/* SPDX-License-Identifier: Apache-2.0 */
/* Progress: both directions of the channels with posted requests in turn. A few channels are simply
 * tried; of many, epoll reports the ready ones. */
#include "fabric/tcp/tcp.h"
#include "lib/base/times.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

/* Calls with a channel that waits for its peer between accepts, even if other channels move. */
#define POLLS_PER_ADOPT 16u
/* Idle polls between looks at the clock. Polls alone do not tell the time: on a busy machine a
 * yield between them may take 50 ms.
 */
#define POLLS_PER_CLOCK 64u
#define CHANNEL_EVENTS  64

static bool has_work(const struct twill_tcp_channel *channel)
{
    if (channel->state == TWILL_TCP_LOST)
        return false;
    return channel->state != TWILL_TCP_OPEN || twill_tcp_sends(channel) ||
           twill_tcp_receives(channel) ||
           (channel->records != NULL && twill_tcp_records_kept(channel->records));
}

static bool has_bytes(const struct twill_tcp_channel *channel)
{
    return channel->in.end > channel->in.begin ||
           (channel->records != NULL && twill_tcp_records_have(channel->records));
}

static bool may_read(const struct twill_tcp_channel *channel, bool direct)
{
    return direct || channel->readable || has_bytes(channel);
}

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
    if (twill_tcp_sends(channel) && (direct || channel->writable) && !t->cut_off) {
        TWILL_TRY(error, more = twill_tcp_send(t, channel, error));
        moved += more;
    }
    if (twill_tcp_receives(channel) && may_read(channel, direct) && !t->cut_off) {
        TWILL_TRY(error, more = twill_tcp_recv(t, channel, error));
        moved += more;
    }
    if (twill_tcp_sends(channel) && !twill_tcp_receives(channel) && may_read(channel, direct) &&
        !t->cut_off) {
        TWILL_TRY(error, more = twill_tcp_recv_refusal(t, channel, error));
        moved += more;
    }
    return moved;
}

/* Find the channels that are ready, edge-triggered: each event is reported once. */
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

static int all_steps(struct twill_tcp *t, struct twill_error *error)
{
    int moved = 0;
    bool direct = t->busy_count <= TWILL_TCP_DIRECT;
    t->cut_off = false;
    if (!direct)
        TWILL_TRY(error, gather_events(t, error));
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

/* Once a second, fail if a peer's host has vanished: keep-alive misses it while data is
 * unacknowledged. Say whose host does not answer. */
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

int twill_tcp_progress(struct twill_transport *transport, struct twill_error *error)
{
    struct twill_tcp *t = (struct twill_tcp *)transport;
    if (TWILL_UNLIKELY(t->failed != TWILL_OK))
        return TWILL_FAIL(error, t->failed, "tcp: the transport failed earlier");
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
