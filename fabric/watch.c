/* SPDX-License-Identifier: Apache-2.0 */
/* Watch: who is alive, and bad news.
 *
 * Outward there is one link per peer, made on demand. What the kernel says about it is the pulse:
 * refused or ended means that the process has gone, or has closed its watch, which comes to the
 * same: it will not answer. One loss is confirmed by a second attempt, so that a connection that
 * was merely dropped kills nobody. Inward, connections are kept as long as they last once they have
 * shown the nonce (to drop one would look like our death); strangers are few and short-lived. */
#include "fabric/watch.h"
#include "fabric/boot_wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define STRANGERS    16                   /* connections without a nonce, at a time */
#define STRANGER_NS  UINT64_C(2000000000) /* how long they may stay */
#define QUEUED       256                  /* who waits to be let in, besides all the ranks */
#define CONFIRM_NS   UINT64_C(3000000000) /* for a second attempt to connect */
#define RETRY_NS     UINT64_C(1000000000) /* between attempts that say nothing about the peer */
#define TELL_TURN_NS UINT64_C(50000000)   /* between looks at peers that cannot be reached yet */
#define TELL_WIDTH   256                  /* connections of twill_watch_tell() at a time */

enum link_state { LINK_IDLE, LINK_CONNECTING, LINK_OPEN, LINK_DEAD };

/* Outward, to a peer. */
struct link {
    int fd;
    uint8_t state;
    bool suspected; /* a connection was lost already */
    bool told;      /* has the news of the tell under way, or cannot have it */
    bool lent;      /* made by the tell under way, only for it */
    size_t done;    /* bytes of it */
    uint64_t point; /* IDLE: not before; CONNECTING: confirm by */
};

/* Inward. */
struct caller {
    int fd;
    int64_t rank; /* -1: has not shown the nonce */
    uint64_t deadline;
};

/* Where a peer listens. */
struct place {
    char address[TWILL_ADDRESS_TEXT];
    uint64_t port;
};

struct tidings {
    uint32_t comm;
    int32_t status;
    char message[sizeof(((struct twill_news *)0)->message)];
    uint64_t state[TWILL_ARRAY_LENGTH(((struct twill_news *)0)->state)];
};

struct news_frame {
    struct twill_wire_header header;
    struct tidings tidings;
};

struct twill_watch {
    struct twill_boot id; /* rank, size and nonce, for frames; no operations */
    int listener;
    size_t callers, strangers, capacity;
    struct link *link;     /* [size] */
    struct place *place;   /* [size] */
    struct caller *caller; /* [capacity] */
    struct pollfd *polls;  /* [capacity] */
};

static twill_status listen_here(struct twill_watch *watch, const struct twill_boot *boot,
                                struct place *mine, struct twill_error *error)
{
    struct sockaddr_storage address;
    struct twill_endpoint endpoint;
    socklen_t length;
    int backlog = boot->size + QUEUED;
    if (!twill_endpoint_address(boot->address, 0, &address, &length))
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "rank %d: watch: %s is not an address",
                          boot->rank, boot->address);
    watch->listener = twill_socket_listen((struct sockaddr *)&address, length, backlog);
    if (watch->listener < 0 && errno == EADDRNOTAVAIL) { /* others see us under another address */
        (void)twill_endpoint_address(address.ss_family == AF_INET ? "0.0.0.0" : "::", 0, &address,
                                     &length);
        watch->listener = twill_socket_listen((struct sockaddr *)&address, length, backlog);
    }
    if (watch->listener < 0 || !twill_socket_name(watch->listener, false, &endpoint))
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "rank %d: watch: cannot listen on %s: %s",
                          boot->rank, boot->address, strerror(errno));
    memset(mine, 0, sizeof(*mine));
    memcpy(mine->address, boot->address, sizeof(mine->address));
    mine->port = endpoint.port;
    return TWILL_OK;
}

static twill_status make_room(struct twill_watch *watch, struct twill_error *error)
{
    size_t size = (size_t)watch->id.size;
    watch->capacity = size + STRANGERS;
    watch->link = calloc(size, sizeof(*watch->link));
    watch->place = calloc(size, sizeof(*watch->place));
    watch->caller = calloc(watch->capacity, sizeof(*watch->caller));
    watch->polls = calloc(watch->capacity, sizeof(*watch->polls));
    if (!watch->link || !watch->place || !watch->caller || !watch->polls)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %d: watch: no memory for %zu ranks",
                          watch->id.rank, size);
    for (size_t r = 0; r < size; r++)
        watch->link[r].fd = -1;
    return TWILL_OK;
}

twill_status twill_watch_open(struct twill_watch **out, struct twill_boot *boot,
                              struct twill_error *error)
{
    struct place mine;
    twill_status status;
    struct twill_watch *watch = calloc(1, sizeof(*watch));
    *out = NULL;
    if (!watch)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %d: watch: no memory", boot->rank);
    watch->listener = -1;
    watch->id.rank = boot->rank;
    watch->id.size = boot->size;
    memcpy(watch->id.nonce, boot->nonce, sizeof(boot->nonce));
    TWILL_TRY_OR_FAIL(error, make_room(watch, error));
    if (boot->size > 1) {
        TWILL_TRY_OR_FAIL(error, listen_here(watch, boot, &mine, error));
        TWILL_TRY_OR_FAIL(error,
                          twill_boot_allgather(boot, &mine, watch->place, sizeof(mine), error));
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
    for (int r = 0; watch->link && r < watch->id.size; r++)
        if (watch->link[r].fd >= 0)
            close(watch->link[r].fd);
    for (size_t i = 0; i < watch->callers; i++)
        close(watch->caller[i].fd);
    if (watch->listener >= 0)
        close(watch->listener);
    free(watch->link);
    free(watch->place);
    free(watch->caller);
    free(watch->polls);
    free(watch);
}

/* --- outward --------------------------------------------------------------------------------- */

static void hang_up(struct link *link, enum link_state state)
{
    if (link->fd >= 0)
        close(link->fd);
    link->fd = -1;
    link->state = (uint8_t)state;
    link->point = state == LINK_IDLE ? twill_wire_deadline(RETRY_NS) : 0;
}

/* Connecting failed: what does that say about the peer? */
static void fail_to_connect(struct link *link, int why)
{
    bool gone = why == ECONNREFUSED || why == ECONNRESET || why == EPIPE;
    /* Out of descriptors here, or unreachable: no evidence, unless it was seen to leave. */
    bool local = why == EMFILE || why == ENFILE || why == ENOBUFS || why == ENOMEM;
    hang_up(link, gone || (link->suspected && !local) ? LINK_DEAD : LINK_IDLE);
}

/* A connection ended. */
static void lose(struct link *link)
{
    hang_up(link, link->suspected ? LINK_DEAD : LINK_IDLE);
    link->suspected = true;
    link->point = 0;
}

/* Connected: show the nonce. A fresh socket's buffer takes a header at once. */
static void greet(struct twill_watch *watch, struct link *link)
{
    struct twill_wire_header header;
    size_t done = 0;
    link->state = LINK_OPEN;
    link->done = 0;
    twill_wire_fill(&header, TWILL_WIRE_WATCH, &watch->id, 0, 0);
    if (twill_wire_write(link->fd, &header, NULL, 0, &done) != TWILL_WIRE_DONE)
        lose(link);
}

static void begin(struct twill_watch *watch, uint32_t peer)
{
    struct link *link = &watch->link[peer];
    struct sockaddr_storage address;
    socklen_t length;
    struct place *place = &watch->place[peer];
    place->address[sizeof(place->address) - 1] = '\0';
    if (!twill_endpoint_address(place->address, (uint16_t)place->port, &address, &length)) {
        fail_to_connect(link, EADDRNOTAVAIL);
        return;
    }
    link->fd = twill_socket_new(address.ss_family);
    int outcome =
        link->fd < 0 ? -1 : twill_socket_connect(link->fd, (struct sockaddr *)&address, length);
    if (outcome < 0) {
        fail_to_connect(link, errno);
    } else if (outcome == 0) {
        greet(watch, link);
    } else {
        link->state = LINK_CONNECTING;
        link->point = twill_wire_deadline(CONFIRM_NS);
    }
}

static void check_connecting(struct twill_watch *watch, struct link *link)
{
    struct pollfd one = {.fd = link->fd, .events = POLLOUT};
    if (poll(&one, 1, 0) > 0) {
        int why = twill_socket_connected(link->fd);
        if (why == 0)
            greet(watch, link);
        else
            fail_to_connect(link, why);
    } else if (link->suspected && twill_now() >= link->point) {
        fail_to_connect(link, ETIMEDOUT);
    }
}

/* Peers say nothing on a connection that we made: all that can come is its end. */
static void check_open(struct link *link)
{
    char byte;
    ssize_t n = recv(link->fd, &byte, 1, MSG_DONTWAIT);
    if (n < 0 && errno == ETIMEDOUT) /* keep-alive: the host does not answer any more */
        hang_up(link, LINK_DEAD);
    else if (n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR))
        lose(link);
}

/* Move a link along without waiting. A loss is followed up at once. */
static void step(struct twill_watch *watch, uint32_t peer)
{
    struct link *link = &watch->link[peer];
    if (link->state == LINK_OPEN)
        check_open(link);
    if (link->state == LINK_IDLE && twill_now() >= link->point)
        begin(watch, peer);
    if (link->state == LINK_CONNECTING)
        check_connecting(watch, link);
}

bool twill_watch_is_dead(struct twill_watch *watch, uint32_t peer)
{
    if (peer >= (uint32_t)watch->id.size || peer == (uint32_t)watch->id.rank)
        return false;
    step(watch, peer);
    return watch->link[peer].state == LINK_DEAD;
}

/* Move one peer's copy of the news along. */
static void tell_one(struct twill_watch *watch, uint32_t peer, const struct news_frame *frame)
{
    struct link *link = &watch->link[peer];
    if (link->state != LINK_OPEN)
        step(watch, peer);
    if (link->state == LINK_OPEN) {
        enum twill_wire_moved outcome = twill_wire_write(link->fd, &frame->header, &frame->tidings,
                                                         sizeof(frame->tidings), &link->done);
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
static bool tell_some(struct twill_watch *watch, const struct news_frame *frame, size_t *waiting)
{
    size_t active = 0;
    bool left = false;
    *waiting = 0;
    for (uint32_t r = 0; r < (uint32_t)watch->id.size; r++) {
        struct link *link = &watch->link[r];
        bool fresh = link->fd < 0;
        if (link->told)
            continue;
        if (fresh && active >= TELL_WIDTH) {
            left = true;
            continue;
        }
        link->lent = link->lent || fresh;
        tell_one(watch, r, frame);
        active += link->lent && link->fd >= 0;
        left = left || !link->told;
        if (!link->told && link->fd >= 0)
            watch->polls[(*waiting)++] = (struct pollfd){.fd = link->fd, .events = POLLOUT};
    }
    return left;
}

static void fill(struct news_frame *frame, const struct twill_watch *watch,
                 const struct twill_news *news)
{
    memset(frame, 0, sizeof(*frame));
    twill_wire_fill(&frame->header, TWILL_WIRE_NEWS, &watch->id, 0, sizeof(frame->tidings));
    frame->tidings.comm = news->comm;
    frame->tidings.status = news->status;
    snprintf(frame->tidings.message, sizeof(frame->tidings.message), "%s", news->message);
    memcpy(frame->tidings.state, news->state, sizeof(frame->tidings.state));
}

void twill_watch_send(struct twill_watch *watch, uint32_t peer, const struct twill_news *news)
{
    struct link *link = &watch->link[peer];
    struct news_frame frame;
    size_t done = 0;
    if (peer == (uint32_t)watch->id.rank)
        return;
    step(watch, peer);
    if (link->state != LINK_OPEN)
        return;
    fill(&frame, watch, news);
    if (twill_wire_write(link->fd, &frame.header, &frame.tidings, sizeof(frame.tidings), &done) !=
            TWILL_WIRE_DONE &&
        done > 0) /* half a frame is of no use */
        hang_up(link, LINK_IDLE);
}

void twill_watch_tell(struct twill_watch *watch, const struct twill_news *news,
                      const uint32_t *ranks, size_t count, uint64_t patience_ns)
{
    uint64_t deadline = twill_wire_deadline(patience_ns);
    struct news_frame frame;
    size_t waiting;
    fill(&frame, watch, news);
    for (uint32_t r = 0; r < (uint32_t)watch->id.size; r++) {
        watch->link[r].told = true;
        watch->link[r].lent = false;
        watch->link[r].done = 0;
    }
    for (size_t i = 0; i < count; i++)
        watch->link[ranks[i]].told =
            ranks[i] == (uint32_t)watch->id.rank || watch->link[ranks[i]].state == LINK_DEAD;
    while (tell_some(watch, &frame, &waiting) && twill_now() < deadline)
        (void)twill_wire_poll(watch->polls, waiting,
                              twill_min(deadline, twill_wire_deadline(TELL_TURN_NS)));
    for (uint32_t r = 0; r < (uint32_t)watch->id.size; r++)
        if (!watch->link[r].told && watch->link[r].fd >= 0) /* half a frame is of no use */
            hang_up(&watch->link[r], LINK_IDLE);
}

/* --- inward ---------------------------------------------------------------------------------- */

static void drop(struct twill_watch *watch, size_t i)
{
    watch->strangers -= watch->caller[i].rank < 0;
    close(watch->caller[i].fd);
    watch->caller[i] = watch->caller[--watch->callers];
}

/* Who does not fit stays in the listener's queue, and its connection alive. */
static void admit(struct twill_watch *watch)
{
    while (watch->strangers < STRANGERS && watch->callers < watch->capacity) {
        int fd = twill_socket_accept(watch->listener);
        if (fd < 0)
            return;
        watch->strangers++;
        watch->caller[watch->callers++] =
            (struct caller){.fd = fd, .rank = -1, .deadline = twill_wire_deadline(STRANGER_NS)};
    }
}

/* Look at what caller i sent without taking it: DONE if a whole frame of this job is there. */
static enum twill_wire_moved peek(struct twill_watch *watch, size_t i, struct news_frame *frame)
{
    const struct caller *caller = &watch->caller[i];
    const struct twill_wire_header *header = &frame->header;
    ssize_t n = recv(caller->fd, frame, sizeof(*frame), MSG_PEEK | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return TWILL_WIRE_LATER;
    if (n <= 0)
        return TWILL_WIRE_GONE;
    if ((size_t)n < sizeof(*header))
        return TWILL_WIRE_LATER;
    bool first = caller->rank < 0;
    if (!twill_wire_of_job(header, &watch->id) || header->rank == (uint32_t)watch->id.rank ||
        header->kind != (first ? TWILL_WIRE_WATCH : TWILL_WIRE_NEWS) ||
        header->length != (first ? 0 : sizeof(frame->tidings)) ||
        (!first && header->rank != caller->rank))
        return TWILL_WIRE_GONE;
    return (size_t)n >= sizeof(*header) + header->length ? TWILL_WIRE_DONE : TWILL_WIRE_LATER;
}

/* Read what there is of caller i. GONE: it has been dropped. DONE: news. */
static enum twill_wire_moved listen_to(struct twill_watch *watch, size_t i, struct twill_news *news)
{
    struct caller *caller = &watch->caller[i];
    struct news_frame frame;
    enum twill_wire_moved outcome;
    while ((outcome = peek(watch, i, &frame)) == TWILL_WIRE_DONE) {
        size_t done = 0, bytes = sizeof(frame.header) + frame.header.length;
        (void)twill_wire_read(caller->fd, &frame, bytes, &done);
        if (caller->rank >= 0) {
            news->from = frame.header.rank;
            news->comm = frame.tidings.comm;
            news->status = frame.tidings.status <= 0 && frame.tidings.status >= TWILL_ERR_INTERNAL
                               ? (twill_status)frame.tidings.status
                               : TWILL_ERR_INTERNAL;
            frame.tidings.message[sizeof(frame.tidings.message) - 1] = '\0';
            memcpy(news->message, frame.tidings.message, sizeof(news->message));
            memcpy(news->state, frame.tidings.state, sizeof(news->state));
            return TWILL_WIRE_DONE;
        }
        caller->rank = frame.header.rank;
        watch->strangers--;
    }
    bool late = caller->rank < 0 && twill_now() >= caller->deadline;
    if (outcome == TWILL_WIRE_LATER && !late)
        return TWILL_WIRE_LATER;
    drop(watch, i);
    return TWILL_WIRE_GONE;
}

bool twill_watch_hear(struct twill_watch *watch, struct twill_news *news)
{
    if (watch->listener < 0)
        return false;
    admit(watch);
    for (size_t i = 0; i < watch->callers; i++)
        watch->polls[i] = (struct pollfd){.fd = watch->caller[i].fd, .events = POLLIN};
    (void)poll(watch->polls, watch->callers, 0);
    for (size_t i = watch->callers; i-- > 0;) /* downwards: drop() moves the last one here */
        if (watch->polls[i].revents != 0 || watch->caller[i].rank < 0)
            if (listen_to(watch, i, news) == TWILL_WIRE_DONE)
                return true;
    return false;
}
