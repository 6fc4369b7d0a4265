/* SPDX-License-Identifier: Apache-2.0 */
/* Incoming connections of the failure detector, with authentication and notifications. */
#include "fabric/detector/detector_state.h"
#include "lib/base/times.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#define WITNESSES_CLOSED 64u /* most at a time */

/* Return the handshake of the connection `fd`, or a free one if `fd` is -1. There must be one. */
static struct twill_handshake *handshake_of(struct twill_detector *detector, int fd)
{
    struct twill_handshake *handshake = detector->handshake;
    while (handshake->fd != fd)
        handshake++;
    return handshake;
}

int twill_detector_release(struct twill_detector *detector, size_t i)
{
    struct twill_caller *last = &detector->caller[--detector->callers];
    int fd = detector->caller[i].fd;
    detector->caller[i] = *last;
    twill_secret_wipe(last, sizeof(*last)); /* the key of its session, or of the released one */
    return fd;
}

/* Close and remove connection i. If `fault` is not TWILL_FAULT_NONE, count it as rejected. */
static void drop_caller(struct twill_detector *detector, size_t i, enum twill_fault fault)
{
    struct twill_caller *caller = &detector->caller[i];
    if (fault != TWILL_FAULT_NONE)
        detector->rejected.count[fault]++;
    if (caller->rank < 0) {
        handshake_of(detector, caller->fd)->fd = -1;
        detector->handshakes--;
    }
    close(twill_detector_release(detector, i));
    twill_reserve_keep(&detector->caller_reserve);
}

/* Return whether no further connection from a peer can be accepted. That is so if
 * TWILL_DETECTOR_HANDSHAKES are in the handshake, or detector->capacity are open. */
static bool is_full(const struct twill_detector *detector)
{
    return detector->handshakes == TWILL_DETECTOR_HANDSHAKES ||
           detector->callers == detector->capacity;
}

/* Accept a connection. If one waits and all descriptors are in use, first close the spare one,
 * which drop_caller() opens again. Returns the connection's socket, or -1 with errno set, as when
 * none waits. As Linux reports a shortage even if none waits, poll() comes first. */
static int accept_caller(struct twill_detector *detector)
{
    struct pollfd waits = {.fd = detector->listener, .events = POLLIN};
    int fd = twill_socket_accept(detector->listener);
    if (fd >= 0 || (errno != EMFILE && errno != ENFILE) || poll(&waits, 1, 0) != 1)
        return fd;
    twill_reserve_give(&detector->caller_reserve);
    return twill_socket_accept(detector->listener);
}

/* Accept as many of the connections that wait as fit, and begin their handshakes. */
static void admit_callers(struct twill_detector *detector)
{
    while (!is_full(detector)) {
        struct twill_handshake *handshake = handshake_of(detector, -1);
        if (!twill_hello_expect(&handshake->hello, &detector->secret, TWILL_HELLO_DETECTOR,
                                (uint32_t)detector->rank, (uint32_t)detector->size))
            return;
        handshake->fd = accept_caller(detector);
        if (handshake->fd < 0) {
            handshake->fd = -1;
            return;
        }
        detector->handshakes++;
        detector->caller[detector->callers++] =
            (struct twill_caller){.fd = handshake->fd,
                                  .rank = -1,
                                  .deadline = twill_wire_deadline(TWILL_DETECTOR_HANDSHAKE_NS)};
    }
}

/* Return whether `number` is not too old and was not accepted before, and record it if so. */
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

/* Progress the handshake of connection i. Returns TWILL_WIRE_DONE if it is authenticated,
 * TWILL_WIRE_LATER if not yet, or TWILL_WIRE_GONE if it was closed here, counted and removed. A
 * slow one is kept while there is space, as its rank may have left the library for a while. */
static enum twill_wire_moved authenticate(struct twill_detector *detector, size_t i)
{
    struct twill_caller *caller = &detector->caller[i];
    struct twill_handshake *handshake = handshake_of(detector, caller->fd);
    const struct twill_hello_call *call = &handshake->hello.said.call;
    enum twill_wire_moved outcome =
        twill_hello_move(&handshake->hello, caller->fd, &caller->session);
    enum twill_fault fault = handshake->hello.fault;
    if (outcome == TWILL_WIRE_LATER && is_full(detector) && twill_now() >= caller->deadline)
        fault = TWILL_FAULT_SLOW;
    else if (outcome == TWILL_WIRE_DONE && !is_new(&detector->taken[call->rank], call->argument))
        fault = TWILL_FAULT_REPLAYED;
    if (fault != TWILL_FAULT_NONE) {
        drop_caller(detector, i, fault);
        return TWILL_WIRE_GONE;
    }
    if (outcome == TWILL_WIRE_DONE) {
        caller->rank = call->rank;
        handshake->fd = -1;
        detector->handshakes--;
    }
    return outcome;
}

/* Peek at the next frame of caller i, into detector->in. Returns TWILL_WIRE_DONE if it is complete
 * and authentic, TWILL_WIRE_LATER if not all has arrived, and TWILL_WIRE_GONE, with *fault set if
 * it is invalid, if none will come. `ended` says that no more data will arrive. */
static enum twill_wire_moved peek(struct twill_detector *detector, size_t i, bool ended,
                                  enum twill_fault *fault)
{
    struct twill_caller *caller = &detector->caller[i];
    struct twill_notice_frame *frame = detector->in;
    size_t most = twill_notice_body_bytes(TWILL_NOTICE_DATA(detector->size));
    ssize_t n = recv(caller->fd, frame, sizeof(frame->header) + most, MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return TWILL_WIRE_LATER;
    if (n <= 0)
        return TWILL_WIRE_GONE;
    bool whole = (size_t)n >= sizeof(*frame); /* no body is shorter; the length is not verified */
    if (!whole ||
        (frame->header.length <= most && (size_t)n - sizeof(frame->header) < frame->header.length))
        return ended ? TWILL_WIRE_GONE : TWILL_WIRE_LATER;
    *fault = twill_wire_check(&caller->session, &frame->header);
    if (*fault == TWILL_FAULT_NONE &&
        (frame->header.kind != TWILL_WIRE_NOTICE || frame->header.length < sizeof(frame->body)))
        *fault = TWILL_FAULT_MALFORMED;
    else if (*fault == TWILL_FAULT_NONE && frame->header.length > most)
        *fault = TWILL_FAULT_OVERSIZED;
    else if (*fault == TWILL_FAULT_NONE && !twill_wire_is_body(&frame->header, &frame->body))
        *fault = TWILL_FAULT_KEY;
    return *fault == TWILL_FAULT_NONE ? TWILL_WIRE_DONE : TWILL_WIRE_GONE;
}

/* Read the frame that peek() put into detector->in from the connection `caller`, and set *notice to
 * it. notice->data points into detector->in. */
static void take_notice(struct twill_detector *detector, struct twill_notice *notice,
                        const struct twill_caller *caller)
{
    struct twill_notice_frame *frame = detector->in;
    struct twill_notice_body *body = &frame->body;
    size_t done = 0, bytes = (size_t)frame->header.length;
    while (twill_wire_read(caller->fd, frame, sizeof(frame->header) + bytes, &done) ==
           TWILL_WIRE_LATER)
        continue; /* interrupted by a signal; the frame has arrived */
    notice->from = (uint32_t)caller->rank;
    notice->comm = body->comm;
    notice->status = twill_status_received(body->status);
    body->message[sizeof(body->message) - 1] = '\0';
    memcpy(notice->message, body->message, sizeof(notice->message));
    memcpy(notice->state, body->state, sizeof(notice->state));
    notice->data = body->data;
    notice->bytes = bytes - sizeof(*body);
}

/* Receive from caller i. Returns TWILL_WIRE_DONE if *notice is set, TWILL_WIRE_LATER if nothing has
 * come, and TWILL_WIRE_GONE if its connection was closed. */
static enum twill_wire_moved receive_from(struct twill_detector *detector, size_t i,
                                          struct twill_notice *notice)
{
    enum twill_fault fault = TWILL_FAULT_NONE;
    bool ended = (detector->polls[i].revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0;
    if (detector->caller[i].rank < 0) {
        enum twill_wire_moved moved = authenticate(detector, i);
        if (moved != TWILL_WIRE_DONE)
            return moved;
    }
    enum twill_wire_moved outcome = peek(detector, i, ended, &fault);
    if (outcome == TWILL_WIRE_DONE)
        take_notice(detector, notice, &detector->caller[i]);
    else if (outcome == TWILL_WIRE_GONE)
        drop_caller(detector, i, fault);
    return outcome;
}

void twill_detector_admit(struct twill_detector *detector)
{
    admit_callers(detector);
    for (size_t i = detector->callers; i-- > 0;) /* down, as drop_caller() moves the last here */
        if (detector->caller[i].rank < 0)
            (void)authenticate(detector, i);
}

int twill_detector_adopt(struct twill_detector *detector, uint32_t peer)
{
    for (size_t i = 0; i < detector->callers; i++) {
        if (detector->caller[i].rank == (int64_t)peer)
            return twill_detector_release(detector, i);
    }
    return -1;
}

/* Accept connections, and set *notice to a notification on any. Returns false if there is none. */
static bool receive_one(struct twill_detector *detector, struct twill_notice *notice)
{
    admit_callers(detector);
    for (size_t i = 0; i < detector->callers; i++)
        detector->polls[i] =
            (struct pollfd){.fd = detector->caller[i].fd, .events = POLLIN | POLLRDHUP};
    (void)poll(detector->polls, detector->callers, 0);
    for (size_t i = detector->callers; i-- > 0;) /* down, as drop_caller() moves the last here */
        if (detector->polls[i].revents != 0 || detector->caller[i].rank < 0)
            if (receive_from(detector, i, notice) == TWILL_WIRE_DONE)
                return true;
    return false;
}

/* Accept and close the connections to this rank's second port, which peers open only to see that
 * this process lives. Closes at most WITNESSES_CLOSED in a call, as anyone may connect. */
static void close_witnesses(const struct twill_detector *detector)
{
    for (unsigned i = 0; detector->witness >= 0 && i < WITNESSES_CLOSED; i++) {
        int fd = twill_socket_accept(detector->witness);
        if (fd < 0)
            return;
        close(fd);
    }
}

bool twill_detector_poll(struct twill_detector *detector, struct twill_notice *notice)
{
    close_witnesses(detector);
    while (detector->listener >= 0 && receive_one(detector, notice)) {
        if (notice->comm != TWILL_HOSTS_COMM)
            return true;
        if (notice->state[0] < detector->hosts.count)
            twill_hosts_suspect(detector, (uint32_t)notice->state[0]);
    }
    return false;
}

const struct twill_rejected *twill_detector_rejected(const struct twill_detector *detector)
{
    return &detector->rejected;
}
