/* SPDX-License-Identifier: Apache-2.0 */
/* The outgoing links of the failure detector, one for each peer, connected on demand. * The kernel
 * reports the peer's end. If a connection is refused or closed, the process has died or has closed
 * its detector, and will not answer in either case. A second attempt to connect confirms a loss, so
 * that a dropped connection declares no rank dead. Authenticated incoming connections are kept,
 * because the peer would take their end for the death of this rank. The sender of a notification
 * may exit right after it, and the receiver poll much later. So the handshake is one-way
 * (fabric/auth/handshake.h), and each call is accepted only once. */
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/detector/detector_state.h"
#include "lib/base/times.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUEUED 256 /* backlog of the listener, in addition to one for each rank */

/* Listen on a free port of oob->address or, if no interface here has that, of all addresses, and
 * set *port to it. Returns a socket, or -1 with errno set. */
static int listen_anywhere(const struct twill_oob *oob, uint64_t *port)
{
    struct twill_endpoint endpoint;
    int backlog = oob->size + QUEUED, fd = twill_socket_listen_at(oob->address, 0, backlog);
    if (fd < 0 && errno == EADDRNOTAVAIL) /* other hosts see it under a translated address */
        fd = twill_socket_listen_at(strchr(oob->address, ':') != NULL ? "::" : "0.0.0.0", 0,
                                    backlog);
    if (fd >= 0 && twill_socket_name(fd, false, &endpoint)) {
        *port = endpoint.port;
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Open the two listeners of this rank, and the spare descriptors detector->reserve and
 * caller_reserve. Sets *mine to the address and the two ports of the listeners. Returns TWILL_OK,
 * or TWILL_ERR_SYSTEM if this rank cannot listen. */
static twill_status listen_here(struct twill_detector *detector, const struct twill_oob *oob,
                                struct twill_listen_address *mine, struct twill_error *error)
{
    memset(mine, 0, sizeof(*mine));
    memcpy(mine->address, oob->address, sizeof(mine->address));
    detector->witness = listen_anywhere(oob, &mine->witness);
    if (detector->witness >= 0)
        detector->listener = listen_anywhere(oob, &mine->port);
    twill_reserve_keep(&detector->reserve);
    twill_reserve_keep(&detector->caller_reserve);
    if (detector->listener < 0)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM,
                          "rank %d: failure detector: cannot listen on %s: %s", oob->rank,
                          oob->address, strerror(errno));
    return TWILL_OK;
}

/* Allocate all tables, which closing frees, or return TWILL_ERR_MEMORY. */
static twill_status allocate_links(struct twill_detector *detector, struct twill_error *error)
{
    size_t size = (size_t)detector->size;
    detector->capacity = size + TWILL_DETECTOR_HANDSHAKES;
    detector->link = calloc(size, sizeof(*detector->link));
    for (size_t r = 0; detector->link && r < size; r++)
        detector->link[r].fd = detector->link[r].witness = -1; /* or closing would close file 0 */
    detector->place = calloc(size, sizeof(*detector->place));
    detector->taken = calloc(size, sizeof(*detector->taken));
    detector->caller = calloc(detector->capacity, sizeof(*detector->caller));
    detector->polls = calloc(detector->capacity, sizeof(*detector->polls));
    detector->out = calloc(1, twill_notice_body_bytes(TWILL_NOTICE_DATA(size)));
    detector->in = calloc(1, sizeof(*detector->in) + TWILL_NOTICE_DATA(size));
    if (!detector->link || !detector->place || !detector->taken || !detector->caller ||
        !detector->polls || !detector->out || !detector->in)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY,
                          "rank %d: failure detector: no memory for %zu ranks", detector->rank,
                          size);
    return TWILL_OK;
}

twill_status twill_detector_offer(struct twill_detector **out, struct twill_oob *oob, size_t most,
                                  struct twill_oob_batch *batch, struct twill_error *error)
{
    twill_status status;
    struct twill_detector *detector = calloc(1, sizeof(*detector));
    *out = detector;
    if (!detector) {
        twill_oob_batch_add(batch, NULL, NULL, sizeof(detector->own));
        (void)twill_hosts_offer(NULL, oob, most, batch, NULL);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %d: failure detector: no memory",
                          oob->rank);
    }
    detector->listener = detector->witness = detector->hosts.set = detector->hosts.keeper = -1;
    detector->reserve = detector->caller_reserve = -1;
    detector->rank = oob->rank;
    detector->size = oob->size;
    detector->secret = oob->secret;
    for (size_t i = 0; i < TWILL_DETECTOR_HANDSHAKES; i++)
        detector->handshake[i].fd = -1;
    status = allocate_links(detector, error);
    twill_oob_batch_add(batch, &detector->own, detector->place, sizeof(detector->own));
    if (status == TWILL_OK && oob->size > 1)
        status = listen_here(detector, oob, &detector->own, error);
    twill_status shares = twill_hosts_offer(detector, oob, most, batch, error);
    return status != TWILL_OK ? status : shares;
}

/* Close the connection to the peer's second port, if there is one. */
static void end_witness(struct twill_detector_link *link)
{
    if (link->witness >= 0)
        close(link->witness);
    link->witness = -1;
}

void twill_link_hang_up(struct twill_detector_link *link, enum twill_link_state state)
{
    end_witness(link);
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    twill_secret_wipe(&link->session, sizeof(link->session));
    link->witnessed = link->missed = false;
    link->state = (uint8_t)state;
    link->point = state == LINK_IDLE ? twill_wire_deadline(TWILL_DETECTOR_RETRY_NS) : 0;
}

void twill_detector_close(struct twill_detector *detector)
{
    if (!detector)
        return;
    for (int r = 0; detector->link && r < detector->size; r++)
        twill_link_hang_up(&detector->link[r], LINK_DEAD);
    while (detector->callers > 0)
        close(twill_detector_release(detector, detector->callers - 1));
    if (detector->listener >= 0)
        close(detector->listener);
    if (detector->witness >= 0)
        close(detector->witness);
    twill_reserve_give(&detector->reserve);
    twill_reserve_give(&detector->caller_reserve);
    free(detector->link);
    free(detector->place);
    free(detector->taken);
    free(detector->caller);
    free(detector->polls);
    free(detector->out);
    free(detector->in);
    twill_hosts_opening_end(detector);
    twill_hosts_close(&detector->hosts);
    twill_secret_wipe(detector, sizeof(*detector));
    free(detector);
}

/* Return whether a peer has a living connection to this rank. */
static bool is_calling(const struct twill_detector *detector, uint32_t peer)
{
    char byte;
    bool lives = false;
    for (size_t i = 0; i < detector->callers && !lives; i++)
        lives = detector->caller[i].rank == (int64_t)peer &&
                (recv(detector->caller[i].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0 ||
                 errno == EAGAIN || errno == EWOULDBLOCK);
    return lives;
}

/* Handle a connect() that failed with errno `why`. Set LINK_DEAD if the peer refused, or if it is
 * suspected and this host has no shortage. Else, or if it refused but may live, set LINK_IDLE for a
 * later retry. A suspected host becomes HOST_CLOSED if it refused, else HOST_LOST, but stays
 * suspected after a shortage here. */
static void fail_to_connect(struct twill_detector *detector, uint32_t peer, int why)
{
    struct twill_detector_link *link = &detector->link[peer];
    bool gone = why == ECONNREFUSED || why == ECONNRESET || why == EPIPE;
    if (gone && !link->reached &&
        (is_calling(detector, peer) || twill_hosts_may_live(detector, peer))) {
        twill_link_hang_up(link, LINK_IDLE);
        link->point = twill_wire_deadline(TWILL_DETECTOR_REFUSED_NS);
        return;
    }
    bool suspected = link->suspected || twill_hosts_is(detector, peer, HOST_SUSPECT);
    /* A shortage here or an unreachable peer proves nothing, unless its connection ended before. */
    bool local = why == EMFILE || why == ENFILE || why == ENOBUFS || why == ENOMEM ||
                 why == EADDRNOTAVAIL || why == EAGAIN; /* lack of ports */
    twill_link_hang_up(link, gone || (suspected && !local) ? LINK_DEAD : LINK_IDLE);
    if (local && detector->notifying)
        link->point = 0; /* retry when another rank has been notified */
    if (gone || !local)
        twill_hosts_decide(detector, peer, gone);
}

void twill_link_lose(struct twill_detector_link *link)
{
    if (twill_now() >= link->point + TWILL_DETECTOR_STEADY_NS)
        link->suspected = false;
    twill_link_hang_up(link, link->suspected ? LINK_DEAD : LINK_IDLE);
    link->suspected = true;
    link->point = 0;
}

enum twill_wire_moved twill_detector_greet(struct twill_detector *detector, uint32_t peer, int fd,
                                           struct twill_session *session)
{
    const struct twill_hello_identity identity = {.role = TWILL_HELLO_DETECTOR,
                                                  .rank = (uint32_t)detector->rank,
                                                  .to = peer,
                                                  .size = (uint32_t)detector->size,
                                                  .argument = ++detector->link[peer].calls};
    struct twill_hello hello;
    enum twill_wire_moved outcome = TWILL_WIRE_LATER;
    if (twill_hello_call(&hello, &detector->secret, &identity))
        outcome = twill_hello_move(&hello, fd, session);
    twill_secret_wipe(&hello, sizeof(hello));
    return outcome;
}

/* Set the link of a new connection to LINK_OPEN and authenticate. If the connection ended, lose it.
 * If the kernel is short of memory, close it and let the next step retry at once. */
static void greet_peer(struct twill_detector *detector, uint32_t peer)
{
    struct twill_detector_link *link = &detector->link[peer];
    link->state = LINK_OPEN;
    link->reached = true;
    link->point = twill_now();
    link->done = 0;
    twill_hosts_decide(detector, peer, true);
    enum twill_wire_moved outcome = twill_detector_greet(detector, peer, link->fd, &link->session);
    if (outcome == TWILL_WIRE_GONE) {
        twill_link_lose(link);
    } else if (outcome == TWILL_WIRE_LATER) {
        twill_link_hang_up(link, LINK_IDLE);
        link->point = 0;
    }
}

/* Start to connect to a peer, and set the link's state by what happens at once. */
static void begin_link(struct twill_detector *detector, uint32_t peer)
{
    struct twill_detector_link *link = &detector->link[peer];
    const struct twill_listen_address *place = &detector->place[peer];
    bool pending;
    link->fd = twill_socket_dial(place->address, (uint16_t)place->port, &pending);
    if (link->fd < 0) {
        fail_to_connect(detector, peer, errno);
    } else if (!pending) {
        greet_peer(detector, peer);
    } else {
        link->state = LINK_CONNECTING;
        link->point = twill_wire_deadline(TWILL_DETECTOR_CONFIRM_NS);
    }
}

/* Return whether the peer has closed a connection before this rank sent anything over it. A peer
 * does so if many connections wait and this rank was outside the library for
 * TWILL_DETECTOR_MISSED_NS or longer. Returns false if data has arrived, even from another process
 * that has got the port of a dead peer. */
static bool is_missed(const struct twill_detector_link *link)
{
    char byte;
    if (twill_now() + TWILL_DETECTOR_CONFIRM_NS < link->point + TWILL_DETECTOR_MISSED_NS)
        return false;
    ssize_t n = recv(link->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* Close a connection for which is_missed() is true, and let the next step connect again. The
 * process that closed it may have got the port of a dead peer. So step_witness() connects to the
 * peer's second port, which then refuses. */
static void miss_link(struct twill_detector *detector, uint32_t peer)
{
    struct twill_detector_link *link = &detector->link[peer];
    close(link->fd); /* a connection to the second port, from an earlier miss, stays */
    link->fd = -1;
    link->state = LINK_IDLE;
    link->point = 0;
    link->missed = true;
    twill_hosts_decide(detector, peer, true);
}

/* Check the connection in progress to `peer`, without waiting. If it is made, authenticate, or
 * connect again if the peer has already closed it. If it has failed, or a suspected peer has not
 * answered until link->point, judge that by fail_to_connect(). */
static void check_connecting(struct twill_detector *detector, uint32_t peer)
{
    struct twill_detector_link *link = &detector->link[peer];
    struct pollfd one = {.fd = link->fd, .events = POLLOUT};
    if (poll(&one, 1, 0) > 0) {
        int why = twill_socket_connected(link->fd);
        if (why == 0 && is_missed(link)) {
            miss_link(detector, peer);
        } else if (why == 0) {
            greet_peer(detector, peer);
        } else {
            fail_to_connect(detector, peer, why);
        }
    } else if ((link->suspected || twill_hosts_is(detector, peer, HOST_SUSPECT)) &&
               twill_now() >= link->point) {
        fail_to_connect(detector, peer, ETIMEDOUT);
    }
}

/* Check an open link by reading from it. If keep-alive found that the host is silent, set
 * LINK_DEAD. Else if the connection ended, failed, has data, which no peer sends, or gets no
 * acknowledgement, close it. It is then LINK_IDLE and suspected, or LINK_DEAD, as twill_link_lose()
 * decides. */
static void check_open(struct twill_detector_link *link)
{
    char byte;
    ssize_t n = recv(link->fd, &byte, 1, MSG_DONTWAIT);
    if (n < 0 && errno == ETIMEDOUT) /* keep-alive found that the host stopped answering */
        twill_link_hang_up(link, LINK_DEAD);
    else if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) ||
             twill_socket_is_silent(link->fd)) /* no keep-alive while data is unacknowledged */
        twill_link_lose(link);
}

void twill_link_step(struct twill_detector *detector, uint32_t peer)
{
    struct twill_detector_link *link = &detector->link[peer];
    if (link->state == LINK_OPEN)
        check_open(link);
    if (link->state == LINK_IDLE && twill_now() >= link->point)
        begin_link(detector, peer);
    if (link->state == LINK_CONNECTING)
        check_connecting(detector, peer);
}

/* Connect once to the second port of a peer whose connection is open, or was closed before this
 * rank used it (link->missed). Never blocks, so that may take several calls. If the port refuses,
 * the peer is dead and another process has got its first port, so this sets LINK_DEAD. */
static void step_witness(struct twill_detector *detector, uint32_t peer)
{
    struct twill_detector_link *link = &detector->link[peer];
    const struct twill_listen_address *place = &detector->place[peer];
    bool pending;
    int why = 0;
    if (!link->missed && (link->state != LINK_OPEN || link->witnessed))
        return;
    if (link->witness >= 0) {
        struct pollfd one = {.fd = link->witness, .events = POLLOUT};
        if (poll(&one, 1, 0) <= 0)
            return;
        why = twill_socket_connected(link->witness);
    } else if (place->witness != 0) {
        link->witness = twill_socket_dial(place->address, (uint16_t)place->witness, &pending);
        if (pending)
            return;
        why = link->witness < 0 ? errno : 0;
    }
    end_witness(link);
    link->missed = false;
    link->witnessed = link->state == LINK_OPEN;
    if (why == ECONNREFUSED)
        twill_link_hang_up(link, LINK_DEAD);
}

bool twill_detector_is_dead(struct twill_detector *detector, uint32_t peer)
{
    if (peer >= (uint32_t)detector->size || peer == (uint32_t)detector->rank)
        return false;
    twill_hosts_poll(detector);
    if (twill_hosts_is(detector, peer, HOST_SUSPECT)) /* twill_detector_recheck_host() started it */
        twill_link_step(detector, detector->hosts.lowest[detector->hosts.of[peer]]);
    if (!twill_hosts_is(detector, peer, HOST_LOST))
        twill_link_step(detector, peer);
    step_witness(detector, peer);
    return detector->link[peer].state == LINK_DEAD || twill_hosts_is(detector, peer, HOST_LOST);
}

bool twill_detector_is_sure(struct twill_detector *detector, uint32_t peer, bool dead,
                            uint64_t quiet)
{
    uint64_t now = twill_now(), *found = &detector->link[peer].found_dead;
    if (dead && *found < twill_max(quiet, 1))
        *found = now;
    return dead && now - *found >= TWILL_DEATH_SURE_NS;
}

const char *twill_detector_address(const struct twill_detector *detector, uint32_t peer)
{
    return detector->place[peer].address;
}

const char *twill_detector_lost_host(const struct twill_detector *detector, uint32_t peer)
{
    return twill_hosts_is(detector, peer, HOST_LOST) ? detector->place[peer].address : NULL;
}

void twill_detector_recheck_host(struct twill_detector *detector, uint32_t host)
{
    for (uint32_t r = 0; r < (uint32_t)detector->size; r++) {
        struct twill_detector_link *link = &detector->link[r];
        if (detector->hosts.of[r] != host || link->state == LINK_DEAD)
            continue;
        twill_link_hang_up(link, LINK_IDLE); /* also attempts, which may be old */
        link->point = 0;
    }
    twill_link_step(detector, detector->hosts.lowest[host]);
}
