/* SPDX-License-Identifier: Apache-2.0 */
/* The inward half of the watch: who calls, and what it says. */
#include "fabric/detector/detector_state.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define HANDSHAKE_NS UINT64_C(2000000000) /* how long they may stay where others want the place */

static struct twill_handshake *handshake_of(struct twill_watch *watch, int fd)
{
    struct twill_handshake *handshake = watch->handshake;
    while (handshake->fd != fd)
        handshake++;
    return handshake;
}

/* fault: NONE if it is no stranger's. */
static void drop(struct twill_watch *watch, size_t i, enum twill_fault fault)
{
    struct twill_caller *caller = &watch->caller[i];
    if (fault != TWILL_FAULT_NONE)
        watch->rejected.count[fault]++;
    if (caller->rank < 0) {
        handshake_of(watch, caller->fd)->fd = -1;
        watch->handshakes--;
    }
    close(caller->fd);
    *caller = watch->caller[--watch->callers];
}

static bool is_full(const struct twill_watch *watch)
{
    return watch->handshakes == TWILL_WATCH_HANDSHAKES || watch->callers == watch->capacity;
}

/* Who does not fit stays in the listener's queue, and its connection alive. */
static void admit(struct twill_watch *watch)
{
    while (!is_full(watch)) {
        struct twill_handshake *handshake = handshake_of(watch, -1);
        if (!twill_hello_expect(&handshake->hello, &watch->secret, TWILL_HELLO_WATCH,
                                (uint32_t)watch->rank, (uint32_t)watch->size))
            return;
        handshake->fd = twill_socket_accept(watch->listener);
        if (handshake->fd < 0) {
            handshake->fd = -1;
            return;
        }
        watch->handshakes++;
        watch->caller[watch->callers++] = (struct twill_caller){
            .fd = handshake->fd, .rank = -1, .deadline = twill_wire_deadline(HANDSHAKE_NS)};
    }
}

/* Is this call a new one? */
static bool is_new(struct twill_taken *taken, uint64_t number)
{
    if (number > taken->last) {
        uint64_t on = number - taken->last;
        taken->seen = (on < 64 ? taken->seen << on : 0) | 1;
        taken->last = number;
        return true;
    }
    uint64_t back = taken->last - number;
    if (back >= 64 || (taken->seen >> back & 1))
        return false;
    taken->seen |= UINT64_C(1) << back;
    return true;
}

/* Move a stranger's hello along. GONE: it has been dropped. DONE: it is none any more. Who is slow
 * may be a rank that has left the library in the middle, and goes on when it comes back. */
static enum twill_wire_moved authenticate(struct twill_watch *watch, size_t i)
{
    struct twill_caller *caller = &watch->caller[i];
    struct twill_handshake *handshake = handshake_of(watch, caller->fd);
    const struct twill_hello_call *call = &handshake->hello.said.call;
    enum twill_wire_moved outcome =
        twill_hello_move(&handshake->hello, caller->fd, &caller->session);
    enum twill_fault fault = handshake->hello.fault;
    if (outcome == TWILL_WIRE_LATER && is_full(watch) && twill_now() >= caller->deadline)
        fault = TWILL_FAULT_SLOW;
    else if (outcome == TWILL_WIRE_DONE && !is_new(&watch->taken[call->rank], call->argument))
        fault = TWILL_FAULT_REPLAYED;
    if (fault != TWILL_FAULT_NONE) {
        drop(watch, i, fault);
        return TWILL_WIRE_GONE;
    }
    if (outcome == TWILL_WIRE_DONE) {
        caller->rank = call->rank;
        handshake->fd = -1;
        watch->handshakes--;
    }
    return outcome;
}

/* Look at what caller i sent without taking it: DONE if a whole frame is there. ended: nothing more
 * will come. */
static enum twill_wire_moved peek(struct twill_watch *watch, size_t i, bool ended,
                                  struct twill_news_frame *frame, enum twill_fault *fault)
{
    struct twill_caller *caller = &watch->caller[i];
    ssize_t n = recv(caller->fd, frame, sizeof(*frame), MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return TWILL_WIRE_LATER;
    if (n <= 0)
        return TWILL_WIRE_GONE;
    if ((size_t)n < sizeof(*frame))
        return ended ? TWILL_WIRE_GONE : TWILL_WIRE_LATER;
    *fault = twill_wire_check(&caller->session, &frame->header);
    if (*fault == TWILL_FAULT_NONE && frame->header.kind != TWILL_WIRE_NEWS)
        *fault = TWILL_FAULT_MALFORMED;
    else if (*fault == TWILL_FAULT_NONE && frame->header.length != sizeof(frame->tidings))
        *fault = TWILL_FAULT_OVERSIZED;
    else if (*fault == TWILL_FAULT_NONE && !twill_wire_is_body(&frame->header, &frame->tidings))
        *fault = TWILL_FAULT_KEY;
    return *fault == TWILL_FAULT_NONE ? TWILL_WIRE_DONE : TWILL_WIRE_GONE;
}

static void take(struct twill_news *news, const struct twill_caller *caller,
                 struct twill_news_frame *frame)
{
    struct twill_tidings *tidings = &frame->tidings;
    size_t done = 0;
    while (twill_wire_read(caller->fd, frame, sizeof(*frame), &done) == TWILL_WIRE_LATER)
        continue; /* interrupted: all of it is there */
    news->from = (uint32_t)caller->rank;
    news->comm = tidings->comm;
    news->status = tidings->status <= 0 && tidings->status >= TWILL_ERR_INTERNAL
                       ? (twill_status)tidings->status
                       : TWILL_ERR_INTERNAL;
    tidings->message[sizeof(tidings->message) - 1] = '\0';
    memcpy(news->message, tidings->message, sizeof(news->message));
    memcpy(news->state, tidings->state, sizeof(news->state));
}

/* Read what there is of caller i. GONE: it has been dropped. DONE: news. */
static enum twill_wire_moved listen_to(struct twill_watch *watch, size_t i, struct twill_news *news)
{
    struct twill_news_frame frame;
    enum twill_fault fault = TWILL_FAULT_NONE;
    bool ended = (watch->polls[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    if (watch->caller[i].rank < 0) {
        enum twill_wire_moved moved = authenticate(watch, i);
        if (moved != TWILL_WIRE_DONE)
            return moved;
    }
    enum twill_wire_moved outcome = peek(watch, i, ended, &frame, &fault);
    if (outcome == TWILL_WIRE_DONE)
        take(news, &watch->caller[i], &frame);
    else if (outcome == TWILL_WIRE_GONE)
        drop(watch, i, fault);
    return outcome;
}

void twill_watch_admit(struct twill_watch *watch)
{
    admit(watch);
    for (size_t i = watch->callers; i-- > 0;) /* downwards: drop() moves the last one here */
        if (watch->caller[i].rank < 0)
            (void)authenticate(watch, i);
}

int twill_watch_adopt(struct twill_watch *watch, uint32_t peer)
{
    for (size_t i = 0; i < watch->callers; i++) {
        int fd = watch->caller[i].fd;
        if (watch->caller[i].rank != (int64_t)peer)
            continue;
        watch->caller[i] = watch->caller[--watch->callers];
        return fd;
    }
    return -1;
}

static bool hear_one(struct twill_watch *watch, struct twill_news *news)
{
    admit(watch);
    for (size_t i = 0; i < watch->callers; i++)
        watch->polls[i] = (struct pollfd){.fd = watch->caller[i].fd, .events = POLLIN | POLLRDHUP};
    (void)poll(watch->polls, watch->callers, 0);
    for (size_t i = watch->callers; i-- > 0;) /* downwards: drop() moves the last one here */
        if (watch->polls[i].revents != 0 || watch->caller[i].rank < 0)
            if (listen_to(watch, i, news) == TWILL_WIRE_DONE)
                return true;
    return false;
}

bool twill_watch_hear(struct twill_watch *watch, struct twill_news *news)
{
    while (watch->listener >= 0 && hear_one(watch, news)) {
        if (news->comm != TWILL_HOSTS_COMM)
            return true;
        if (news->state[0] < watch->hosts.count)
            twill_hosts_suspect(watch, (uint32_t)news->state[0]);
    }
    return false;
}

const struct twill_rejected *twill_watch_rejected(const struct twill_watch *watch)
{
    return &watch->rejected;
}
