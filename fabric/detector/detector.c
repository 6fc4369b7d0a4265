/* SPDX-License-Identifier: Apache-2.0 */
/* Watch: who is alive, and bad news.
 *
 * Outward there is one link per peer, made on demand. What the kernel says about it is the pulse:
 * refused or ended means that the process has gone, or has closed its watch, which comes to the
 * same: it will not answer. A loss is confirmed by a second attempt, so that a connection that was
 * merely dropped kills nobody, however often that is in a long run. Inward, connections are kept as
 * long as they last once they have shown the key (to drop one would look like our death); strangers
 * are few.
 *
 * News may come from who ends right after it, to who looks only much later: so hellos are one way
 * (fabric/auth/handshake.h), under the secret of this run, and a call counts only once. */
#include "fabric/detector/detector_state.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define QUEUED       256                  /* who waits to be let in, besides all the ranks */
#define CONFIRM_NS   UINT64_C(3000000000) /* for a second attempt to connect */
#define STEADY_NS    UINT64_C(2000000000) /* a connection that lasted so long was with the peer */
#define RETRY_NS     UINT64_C(1000000000) /* between attempts that say nothing about the peer */
#define TELL_TURN_NS UINT64_C(50000000)   /* between looks at peers that cannot be reached yet */
#define TELL_WIDTH   256                  /* connections of twill_watch_tell() at a time */

static twill_status listen_here(struct twill_watch *watch, const struct twill_oob *oob,
                                struct twill_place *mine, struct twill_error *error)
{
    struct sockaddr_storage address;
    struct twill_endpoint endpoint;
    socklen_t length;
    int backlog = oob->size + QUEUED;
    if (!twill_endpoint_address(oob->address, 0, &address, &length))
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "rank %d: watch: %s is not an address",
                          oob->rank, oob->address);
    watch->listener = twill_socket_listen((struct sockaddr *)&address, length, backlog);
    if (watch->listener < 0 && errno == EADDRNOTAVAIL) { /* others see us under another address */
        (void)twill_endpoint_address(address.ss_family == AF_INET ? "0.0.0.0" : "::", 0, &address,
                                     &length);
        watch->listener = twill_socket_listen((struct sockaddr *)&address, length, backlog);
    }
    if (watch->listener < 0 || !twill_socket_name(watch->listener, false, &endpoint))
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "rank %d: watch: cannot listen on %s: %s",
                          oob->rank, oob->address, strerror(errno));
    memset(mine, 0, sizeof(*mine));
    memcpy(mine->address, oob->address, sizeof(mine->address));
    mine->port = endpoint.port;
    return TWILL_OK;
}

static twill_status make_room(struct twill_watch *watch, struct twill_error *error)
{
    size_t size = (size_t)watch->size;
    watch->capacity = size + TWILL_WATCH_HANDSHAKES;
    watch->link = calloc(size, sizeof(*watch->link));
    watch->place = calloc(size, sizeof(*watch->place));
    watch->taken = calloc(size, sizeof(*watch->taken));
    watch->caller = calloc(watch->capacity, sizeof(*watch->caller));
    watch->polls = calloc(watch->capacity, sizeof(*watch->polls));
    if (!watch->link || !watch->place || !watch->taken || !watch->caller || !watch->polls)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %d: watch: no memory for %zu ranks",
                          watch->rank, size);
    for (size_t r = 0; r < size; r++)
        watch->link[r].fd = -1;
    return TWILL_OK;
}

twill_status twill_watch_open(struct twill_watch **out, struct twill_oob *oob,
                              struct twill_error *error)
{
    struct twill_place mine;
    twill_status status;
    struct twill_watch *watch = calloc(1, sizeof(*watch));
    *out = NULL;
    if (!watch)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %d: watch: no memory", oob->rank);
    watch->listener = watch->hosts.set = watch->hosts.keeper = -1;
    watch->rank = oob->rank;
    watch->size = oob->size;
    watch->secret = oob->secret;
    for (size_t i = 0; i < TWILL_WATCH_HANDSHAKES; i++)
        watch->handshake[i].fd = -1;
    TWILL_TRY_OR_FAIL(error, make_room(watch, error));
    if (oob->size > 1) {
        TWILL_TRY_OR_FAIL(error, listen_here(watch, oob, &mine, error));
        TWILL_TRY_OR_FAIL(error,
                          twill_oob_allgather(oob, &mine, watch->place, sizeof(mine), error));
        for (int r = 0; r < oob->size; r++) {
            watch->place[r].address[sizeof(mine.address) - 1] = '\0';
            twill_address_localise(watch->place[r].address, oob->address);
        }
    }
    *out = watch;
    return TWILL_OK;
fail:
    twill_watch_close(watch);
    return status;
}

void twill_watch_close(struct twill_watch *watch)
{
    if (!watch)
        return;
    for (int r = 0; watch->link && r < watch->size; r++)
        if (watch->link[r].fd >= 0)
            close(watch->link[r].fd);
    for (size_t i = 0; i < watch->callers; i++)
        close(watch->caller[i].fd);
    if (watch->listener >= 0)
        close(watch->listener);
    free(watch->link);
    free(watch->place);
    free(watch->taken);
    free(watch->caller);
    free(watch->polls);
    twill_hosts_close(&watch->hosts);
    twill_secret_wipe(watch, sizeof(*watch));
    free(watch);
}

/* --- outward --------------------------------------------------------------------------------- */

static void hang_up(struct twill_link *link, enum twill_link_state state)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->state = (uint8_t)state;
    link->point = state == LINK_IDLE ? twill_wire_deadline(RETRY_NS) : 0;
}

/* Connecting failed: what does that say about the peer? */
static void fail_to_connect(struct twill_watch *watch, uint32_t peer, int why)
{
    struct twill_link *link = &watch->link[peer];
    bool gone = why == ECONNREFUSED || why == ECONNRESET || why == EPIPE;
    bool suspected = link->suspected || twill_hosts_is(watch, peer, HOST_SUSPECT);
    /* Out of descriptors here, or unreachable: no evidence, unless it was seen to leave. */
    bool local = why == EMFILE || why == ENFILE || why == ENOBUFS || why == ENOMEM ||
                 why == EADDRNOTAVAIL || why == EAGAIN; /* of ports */
    hang_up(link, gone || (suspected && !local) ? LINK_DEAD : LINK_IDLE);
    if (gone || !local)
        twill_hosts_decide(watch, peer, gone);
}

/* A connection ended. */
static void lose(struct twill_link *link)
{
    if (twill_now() >= link->point + STEADY_NS)
        link->suspected = false;
    hang_up(link, link->suspected ? LINK_DEAD : LINK_IDLE);
    link->suspected = true;
    link->point = 0;
}

enum twill_wire_moved twill_watch_greet(struct twill_watch *watch, uint32_t peer, int fd,
                                        struct twill_session *session)
{
    const struct twill_hello_identity identity = {.role = TWILL_HELLO_WATCH,
                                                  .rank = (uint32_t)watch->rank,
                                                  .to = peer,
                                                  .size = (uint32_t)watch->size,
                                                  .argument = ++watch->link[peer].calls};
    struct twill_hello hello;
    enum twill_wire_moved outcome = TWILL_WIRE_LATER;
    if (twill_hello_call(&hello, &watch->secret, &identity))
        outcome = twill_hello_move(&hello, fd, session);
    twill_secret_wipe(&hello, sizeof(hello));
    return outcome;
}

/* Connected: show the key. A fresh socket's buffer takes that at once; where the kernel has no
 * memory for it, that says nothing about the peer. */
static void greet(struct twill_watch *watch, uint32_t peer)
{
    struct twill_link *link = &watch->link[peer];
    link->state = LINK_OPEN;
    link->point = twill_now();
    link->done = 0;
    twill_hosts_decide(watch, peer, true);
    enum twill_wire_moved outcome = twill_watch_greet(watch, peer, link->fd, &link->session);
    if (outcome == TWILL_WIRE_GONE) {
        lose(link);
    } else if (outcome == TWILL_WIRE_LATER) {
        hang_up(link, LINK_IDLE);
        link->point = 0;
    }
}

static void begin(struct twill_watch *watch, uint32_t peer)
{
    struct twill_link *link = &watch->link[peer];
    struct sockaddr_storage address;
    socklen_t length;
    struct twill_place *place = &watch->place[peer];
    if (!twill_endpoint_address(place->address, (uint16_t)place->port, &address, &length)) {
        fail_to_connect(watch, peer, EADDRNOTAVAIL);
        return;
    }
    link->fd = twill_socket_new(address.ss_family);
    int outcome =
        link->fd < 0 ? -1 : twill_socket_connect(link->fd, (struct sockaddr *)&address, length);
    if (outcome < 0) {
        fail_to_connect(watch, peer, errno);
    } else if (outcome == 0) {
        greet(watch, peer);
    } else {
        link->state = LINK_CONNECTING;
        link->point = twill_wire_deadline(CONFIRM_NS);
    }
}

static void check_connecting(struct twill_watch *watch, uint32_t peer)
{
    struct twill_link *link = &watch->link[peer];
    struct pollfd one = {.fd = link->fd, .events = POLLOUT};
    if (poll(&one, 1, 0) > 0) {
        int why = twill_socket_connected(link->fd);
        if (why == 0)
            greet(watch, peer);
        else
            fail_to_connect(watch, peer, why);
    } else if ((link->suspected || twill_hosts_is(watch, peer, HOST_SUSPECT)) &&
               twill_now() >= link->point) {
        fail_to_connect(watch, peer, ETIMEDOUT);
    }
}

/* Peers say nothing on a connection that we made: all that can come is its end. */
static void check_open(struct twill_link *link)
{
    char byte;
    ssize_t n = recv(link->fd, &byte, 1, MSG_DONTWAIT);
    if (n < 0 && errno == ETIMEDOUT) /* keep-alive: the host does not answer any more */
        hang_up(link, LINK_DEAD);
    else if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) ||
             twill_socket_is_silent(link->fd)) /* reports under way keep keep-alive off */
        lose(link);
}

/* Move a link along without waiting. A loss is followed up at once. */
static void step(struct twill_watch *watch, uint32_t peer)
{
    struct twill_link *link = &watch->link[peer];
    if (link->state == LINK_OPEN)
        check_open(link);
    if (link->state == LINK_IDLE && twill_now() >= link->point)
        begin(watch, peer);
    if (link->state == LINK_CONNECTING)
        check_connecting(watch, peer);
}

bool twill_watch_is_dead(struct twill_watch *watch, uint32_t peer)
{
    if (peer >= (uint32_t)watch->size || peer == (uint32_t)watch->rank)
        return false;
    twill_hosts_look(watch);
    if (twill_hosts_is(watch, peer, HOST_SUSPECT)) /* was begun when it became one */
        step(watch, watch->hosts.lowest[watch->hosts.of[peer]]);
    if (!twill_hosts_is(watch, peer, HOST_LOST))
        step(watch, peer);
    return watch->link[peer].state == LINK_DEAD || twill_hosts_is(watch, peer, HOST_LOST);
}

const char *twill_watch_lost_host(const struct twill_watch *watch, uint32_t peer)
{
    return twill_hosts_is(watch, peer, HOST_LOST) ? watch->place[peer].address : NULL;
}

void twill_watch_doubt(struct twill_watch *watch, uint32_t host)
{
    for (uint32_t r = 0; r < (uint32_t)watch->size; r++) {
        struct twill_link *link = &watch->link[r];
        if (watch->hosts.of[r] != host || link->state == LINK_DEAD)
            continue;
        hang_up(link, LINK_IDLE); /* also attempts, which may be old */
        link->point = 0;
    }
    step(watch, watch->hosts.lowest[host]);
}

/* Make the news the next frame of a link. */
static void seal(struct twill_link *link, const struct twill_tidings *tidings)
{
    twill_wire_seal(&link->session, &link->header, TWILL_WIRE_NEWS, 0, tidings, sizeof(*tidings),
                    NULL);
}

/* Move one peer's copy of the news along. */
static void tell_one(struct twill_watch *watch, uint32_t peer, const struct twill_tidings *tidings)
{
    struct twill_link *link = &watch->link[peer];
    if (link->state != LINK_OPEN)
        step(watch, peer);
    if (link->state == LINK_OPEN) {
        if (link->done == 0)
            seal(link, tidings);
        enum twill_wire_moved outcome =
            twill_wire_write(link->fd, &link->header, tidings, sizeof(*tidings), &link->done);
        link->session.sent -= link->done == 0; /* not begun: its place is free */
        if (outcome == TWILL_WIRE_GONE)
            lose(link);
        link->told = outcome == TWILL_WIRE_DONE;
    }
    link->told = link->told || link->state == LINK_DEAD;
    if (link->told && link->lent && link->state == LINK_OPEN) { /* make room for the next ones */
        hang_up(link, LINK_IDLE);
        link->point = 0;
    }
}

/* Begin with as many peers as fit; false: all are told. Fills polls for the wait. */
static bool tell_some(struct twill_watch *watch, const struct twill_tidings *tidings,
                      size_t *waiting)
{
    size_t active = 0;
    bool left = false;
    *waiting = 0;
    for (uint32_t r = 0; r < (uint32_t)watch->size; r++) {
        struct twill_link *link = &watch->link[r];
        bool fresh = link->fd < 0;
        if (link->told)
            continue;
        if (fresh && active >= TELL_WIDTH) {
            left = true;
            continue;
        }
        link->lent = link->lent || fresh;
        tell_one(watch, r, tidings);
        active += link->lent && link->fd >= 0;
        left = left || !link->told;
        if (!link->told && link->fd >= 0)
            watch->polls[(*waiting)++] = (struct pollfd){.fd = link->fd, .events = POLLOUT};
    }
    return left;
}

static void fill(struct twill_tidings *tidings, const struct twill_news *news)
{
    memset(tidings, 0, sizeof(*tidings));
    tidings->comm = news->comm;
    tidings->status = news->status;
    snprintf(tidings->message, sizeof(tidings->message), "%s", news->message);
    memcpy(tidings->state, news->state, sizeof(tidings->state));
}

void twill_watch_send(struct twill_watch *watch, uint32_t peer, const struct twill_news *news)
{
    struct twill_link *link = &watch->link[peer];
    struct twill_tidings tidings;
    size_t done = 0;
    if (peer == (uint32_t)watch->rank)
        return;
    step(watch, peer);
    if (link->state != LINK_OPEN)
        return;
    fill(&tidings, news);
    seal(link, &tidings);
    if (twill_wire_write(link->fd, &link->header, &tidings, sizeof(tidings), &done) ==
        TWILL_WIRE_DONE)
        return;
    link->session.sent -= done == 0;
    if (done > 0) /* half a frame is of no use */
        hang_up(link, LINK_IDLE);
}

void twill_watch_tell(struct twill_watch *watch, const struct twill_news *news,
                      const uint32_t *ranks, size_t count, uint64_t patience_ns)
{
    uint64_t deadline = twill_wire_deadline(patience_ns);
    struct twill_tidings tidings;
    size_t waiting;
    fill(&tidings, news);
    for (uint32_t r = 0; r < (uint32_t)watch->size; r++) {
        watch->link[r].told = true;
        watch->link[r].lent = false;
        watch->link[r].done = 0;
    }
    for (size_t i = 0; i < count; i++)
        watch->link[ranks[i]].told = ranks[i] == (uint32_t)watch->rank ||
                                     watch->link[ranks[i]].state == LINK_DEAD ||
                                     twill_hosts_is(watch, ranks[i], HOST_LOST);
    while (tell_some(watch, &tidings, &waiting) && twill_now() < deadline)
        (void)twill_wire_poll(watch->polls, waiting,
                              twill_min(deadline, twill_wire_deadline(TELL_TURN_NS)));
    for (uint32_t r = 0; r < (uint32_t)watch->size; r++)
        if (!watch->link[r].told && watch->link[r].fd >= 0) /* half a frame is of no use */
            hang_up(&watch->link[r], LINK_IDLE);
}
