/* SPDX-License-Identifier: Apache-2.0 */
/* Progress: both directions of the lanes with posted requests in turn. A few lanes are simply
 * tried; of many, epoll reports the ready ones. */
#include "fabric/tcp/tcp.h"
#include "lib/base/times.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

/* Calls with a lane that waits for its peer between accepts, even if other lanes move. */
#define POLLS_PER_ADOPT 16u
/* Idle polls between looks at the clock. Polls alone do not tell the time: on a busy machine a
 * yield between them may take 50 ms.
 */
#define POLLS_PER_CLOCK 64u
#define LANE_EVENTS     64

static bool has_work(const struct twill_tcp_lane *lane)
{
    if (lane->state == TWILL_TCP_LOST)
        return false;
    return lane->state != TWILL_TCP_OPEN || twill_tcp_sends(lane) || twill_tcp_receives(lane) ||
           (lane->records != NULL && twill_tcp_records_kept(lane->records));
}

static bool has_bytes(const struct twill_tcp_lane *lane)
{
    return lane->in.end > lane->in.begin ||
           (lane->records != NULL && twill_tcp_records_have(lane->records));
}

static bool may_read(const struct twill_tcp_lane *lane, bool direct)
{
    return direct || lane->readable || has_bytes(lane);
}

static int step_lane(struct twill_tcp *t, struct twill_tcp_lane *lane, bool direct,
                     struct twill_error *error)
{
    int moved = 0, more;
    if (lane->state != TWILL_TCP_OPEN) {
        moved = twill_tcp_lane_connect(t, lane, error);
        if (moved < 0 || lane->state != TWILL_TCP_OPEN)
            return moved;
    }
    if (TWILL_UNLIKELY(lane->records != NULL)) {
        TWILL_TRY(error, more = twill_tcp_protected_step(t, lane, error));
        moved += more;
    }
    if (twill_tcp_sends(lane) && (direct || lane->writable) && !t->cut_off) {
        TWILL_TRY(error, more = twill_tcp_send(t, lane, error));
        moved += more;
    }
    if (twill_tcp_receives(lane) && may_read(lane, direct) && !t->cut_off) {
        TWILL_TRY(error, more = twill_tcp_recv(t, lane, error));
        moved += more;
    }
    if (twill_tcp_sends(lane) && !twill_tcp_receives(lane) && may_read(lane, direct) &&
        !t->cut_off) {
        TWILL_TRY(error, more = twill_tcp_recv_refusal(t, lane, error));
        moved += more;
    }
    return moved;
}

/* Find the lanes that are ready, edge-triggered: each event is reported once. */
static twill_status gather_events(struct twill_tcp *t, struct twill_error *error)
{
    struct epoll_event events[LANE_EVENTS];
    if (t->epoll < 0 &&
        (t->epoll = twill_fd_move(epoll_create1(EPOLL_CLOEXEC), TWILL_FD_LEAST)) < 0)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "tcp: epoll_create1: %s", strerror(errno));
    for (size_t i = 0; i < t->busy_count; i++) {
        struct twill_tcp_lane *lane = t->busy[i];
        struct epoll_event all = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                  .data.ptr = lane};
        if (lane->in_epoll || lane->state != TWILL_TCP_OPEN)
            continue;
        if (epoll_ctl(t->epoll, EPOLL_CTL_ADD, lane->fd, &all) != 0)
            return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "tcp: epoll_ctl: %s", strerror(errno));
        lane->in_epoll = true;
    }
    int n = epoll_wait(t->epoll, events, LANE_EVENTS, 0);
    for (int i = 0; i < n; i++) {
        struct twill_tcp_lane *lane = events[i].data.ptr;
        lane->readable |= (events[i].events & ~(uint32_t)EPOLLOUT) != 0;
        lane->writable |= (events[i].events & ~(uint32_t)EPOLLIN) != 0;
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
        struct twill_tcp_lane *lane = t->busy[i];
        int more = step_lane(t, lane, direct, error);
        if (more < 0)
            return more;
        moved += more;
        if (TWILL_UNLIKELY(t->cut_off))
            break;
        if (has_work(lane)) {
            i++;
            continue;
        }
        lane->busy = false;
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
        struct twill_tcp_lane *lane = t->busy[i];
        twill_tcp_say_unanswered(t, lane, now);
        bool connected = lane->state == TWILL_TCP_OPEN || lane->state == TWILL_TCP_GREETING;
        if (connected && twill_socket_is_silent(lane->fd))
            return twill_tcp_lost(lane, ETIMEDOUT, error);
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
