/* SPDX-License-Identifier: Apache-2.0 */
/* Notifications of peers by the failure detector. */
#include "fabric/detector/detector_state.h"
#include "lib/base/times.h"

#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define NOTIFY_WIDTH 256 /* connections of twill_detector_notify() at a time */

void twill_reserve_keep(int *reserve)
{
    if (*reserve < 0)
        *reserve = epoll_create1(EPOLL_CLOEXEC);
}

void twill_reserve_give(int *reserve)
{
    if (*reserve >= 0)
        close(*reserve);
    *reserve = -1;
}

/* Set link->header to the authenticated header for a notification, whose body of `bytes` is `body`,
 * and count it as the link's next frame. Sends nothing. */
static void seal(struct twill_detector_link *link, const struct twill_notice_body *body,
                 size_t bytes)
{
    twill_wire_seal(&link->session, &link->header, TWILL_WIRE_NOTICE, 0, body, bytes, NULL);
}

/* Connect to a peer and send the notification in detector->out, of `bytes`, as far as possible now.
 * Sets link->notified once it is sent or the peer is dead. A temporary connection is closed
 * then. */
static void notify_one(struct twill_detector *detector, uint32_t peer, size_t bytes)
{
    struct twill_detector_link *link = &detector->link[peer];
    const struct twill_notice_body *body = detector->out;
    if (link->state != LINK_OPEN)
        twill_link_step(detector, peer);
    if (link->state == LINK_OPEN) {
        if (link->done == 0)
            seal(link, body, bytes);
        enum twill_wire_moved outcome =
            twill_wire_write(link->fd, &link->header, body, bytes, &link->done);
        link->session.sent -= link->done == 0; /* nothing was sent, so reuse the number */
        if (outcome == TWILL_WIRE_GONE)
            twill_link_lose(link);
        link->notified = outcome == TWILL_WIRE_DONE;
    }
    link->notified = link->notified || link->state == LINK_DEAD;
    if (link->notified && link->temporary && link->state == LINK_OPEN) { /* make room for others */
        twill_link_hang_up(link, LINK_IDLE);
        link->point = 0;
    }
}

/* Send the notification in detector->out, a body of `bytes`, to the live ranks that lack it, over
 * at most NOTIFY_WIDTH new connections at a time. Waits for nothing. Begins with the rank after
 * this one, so that ranks begin with different ones. Returns false when all live ranks have it.
 * Else returns true and sets detector->polls[0 .. *waiting-1] to the connections to wait for. */
static bool notify_some(struct twill_detector *detector, size_t bytes, size_t *waiting)
{
    size_t active = 0;
    bool left = false;
    *waiting = 0;
    for (uint32_t i = 1; i < (uint32_t)detector->size; i++) {
        uint32_t r = ((uint32_t)detector->rank + i) % (uint32_t)detector->size;
        struct twill_detector_link *link = &detector->link[r];
        bool fresh = link->fd < 0;
        if (link->notified)
            continue;
        if (fresh && active >= NOTIFY_WIDTH) {
            left = true;
            continue;
        }
        link->temporary = link->temporary || fresh;
        notify_one(detector, r, bytes);
        active += link->temporary && link->fd >= 0;
        left = left || !link->notified;
        if (!link->notified && link->fd >= 0)
            detector->polls[(*waiting)++] = (struct pollfd){.fd = link->fd, .events = POLLOUT};
    }
    return left;
}

/* Build the body of a notification in detector->out, cutting long data. Returns its bytes. */
static size_t fill_notice(struct twill_detector *detector, const struct twill_notice *notice)
{
    struct twill_notice_body *body = detector->out;
    size_t data = twill_min(notice->bytes, TWILL_NOTICE_DATA(detector->size));
    memset(body, 0, sizeof(*body));
    body->comm = notice->comm;
    body->status = notice->status;
    snprintf(body->message, sizeof(body->message), "%s", notice->message);
    memcpy(body->state, notice->state, sizeof(body->state));
    if (data > 0)
        memcpy(body->data, notice->data, data);
    return twill_notice_body_bytes(data);
}

bool twill_detector_send(struct twill_detector *detector, uint32_t peer,
                         const struct twill_notice *notice)
{
    struct twill_detector_link *link = &detector->link[peer];
    size_t done = 0;
    if (peer == (uint32_t)detector->rank)
        return false;
    twill_link_step(detector, peer);
    if (link->state != LINK_OPEN)
        return false;
    size_t bytes = fill_notice(detector, notice);
    seal(link, detector->out, bytes);
    if (twill_wire_write(link->fd, &link->header, detector->out, bytes, &done) == TWILL_WIRE_DONE)
        return true;
    link->session.sent -= done == 0;
    if (done > 0) /* the stream cannot continue after a partial frame */
        twill_link_hang_up(link, LINK_IDLE);
    return false;
}

void twill_detector_notify(struct twill_detector *detector, const struct twill_notice *notice,
                           const uint32_t *ranks, size_t count, uint64_t patience_ns)
{
    uint64_t deadline = twill_wire_deadline(patience_ns);
    size_t waiting, bytes = fill_notice(detector, notice);
    for (uint32_t r = 0; r < (uint32_t)detector->size; r++) {
        detector->link[r].notified = true;
        detector->link[r].temporary = false;
        detector->link[r].done = 0;
        if (detector->link[r].state == LINK_IDLE) /* even if it lacked a descriptor just now */
            detector->link[r].point = 0;
    }
    for (size_t i = 0; i < count; i++)
        detector->link[ranks[i]].notified = ranks[i] == (uint32_t)detector->rank ||
                                            detector->link[ranks[i]].state == LINK_DEAD ||
                                            twill_hosts_is(detector, ranks[i], HOST_LOST);
    detector->notifying = true;
    twill_reserve_give(&detector->reserve);
    while (notify_some(detector, bytes, &waiting) && twill_now() < deadline)
        (void)twill_wire_poll(
            detector->polls, waiting,
            twill_min(deadline, twill_wire_deadline(TWILL_DETECTOR_NOTIFY_TURN_NS)));
    for (uint32_t r = 0; r < (uint32_t)detector->size; r++)
        if (!detector->link[r].notified && detector->link[r].fd >= 0) /* perhaps a partial frame */
            twill_link_hang_up(&detector->link[r], LINK_IDLE);
    detector->notifying = false;
    twill_reserve_keep(&detector->reserve);
}
