/* SPDX-License-Identifier: Apache-2.0 */
/* The failure detector between hosts. The lowest rank of each host opens the connections during
 * set-up, and all ranks of the host observe them. A process can pass its epoll instance to another,
 * which then gets its events without having its sockets. So a host needs only one connection to
 * each other host. The kernel probes the other host and reports an error after TWILL_HOST_SILENT_MS
 * without an answer. A connection that was cut or reset gives the same error. So the error only
 * makes the host a suspect, and a new connection to it decides (detector.c). */
#include "fabric/detector/detector_state.h"

#include "fabric/shm/fd_message.h"
#include "fabric/shm/fd_passing.h"
#include "lib/base/times.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#define KEPT_DIVISOR 16 /* 1/16 of the descriptor limit may be kept in a queue */
#define EVENTS       32
#define NEIGHBOURS   64 /* more than 2 log2(hosts) */
#define OMITTED      8

/* Facts about one rank, which it sends to all ranks in the first exchange. By its socket the epoll
 * instance is passed among the ranks of a host. */
struct detector_peer_info {
    uint64_t name, key; /* of its Unix socket: part of the name, and secret to present */
    uint64_t most;      /* connections that its process may have */
    uint32_t cause;     /* why it can pass no descriptors (enum twill_share_cause) */
    uint32_t zero;      /* padding */
};

/* Hosts to which a rank failed to connect, ascending, then UINT32_MAX, as it sends them to all. If
 * all entries are used, it has connected to no host after the last one. Only the lowest rank of a
 * host lists any. Part of struct twill_detector_opening. */
struct omitted {
    uint32_t host[OMITTED];
};

/* State between twill_detector_offer() and the conclusion, which frees it. */
struct twill_detector_opening {
    struct twill_oob brief; /* rank and size of the job, with a timeout of 2 * patience_ns */
    struct twill_fd_passing fd_passing;
    int theirs; /* what the lowest rank of the host passed (take_file()), or -1 */
    struct detector_peer_info own, *infos; /* this rank's, and [size] those of all ranks */
    struct omitted own_omitted, *omitted;  /* this rank's, and [size] those of all ranks */
    uint64_t patience_ns;                  /* how long to wait for the connections of other hosts */
};

void twill_hosts_close(struct twill_hosts *hosts)
{
    for (uint32_t h = 0; hosts->fd != NULL && h < hosts->count; h++)
        if (hosts->fd[h] >= 0)
            close(hosts->fd[h]);
    if (hosts->set >= 0)
        close(hosts->set);
    if (hosts->keeper >= 0)
        close(hosts->keeper);
    free(hosts->of);
    free(hosts->number);
    free(hosts->lowest);
    free(hosts->fd);
    free(hosts->state);
    free(hosts->why);
    *hosts = (struct twill_hosts){.set = -1, .keeper = -1};
}

/* Return whether this rank is the lowest of its host, which has the sockets to other hosts. */
static bool is_lowest(const struct twill_detector *detector)
{
    return detector->hosts.lowest[twill_hosts_own(detector)] == (uint32_t)detector->rank;
}

/* Allocate and fill the tables of detector->hosts, or return TWILL_ERR_MEMORY. */
static twill_status number_hosts(struct twill_detector *detector, const uint32_t *host,
                                 struct twill_error *error)
{
    struct twill_hosts *hosts = &detector->hosts;
    size_t size = (size_t)detector->size;
    for (size_t r = 0; r < size; r++)
        hosts->count = twill_max(hosts->count, host[r] + 1);
    hosts->of = calloc(size, sizeof(*hosts->of));
    hosts->number = calloc(size, sizeof(*hosts->number));
    hosts->lowest = calloc(hosts->count, sizeof(*hosts->lowest));
    hosts->fd = calloc(hosts->count, sizeof(*hosts->fd));
    hosts->state = calloc(hosts->count, sizeof(*hosts->state));
    hosts->why = calloc(hosts->count, sizeof(*hosts->why));
    uint32_t *seen = calloc(hosts->count, sizeof(*seen));
    bool fine = hosts->of != NULL && hosts->number != NULL && hosts->lowest != NULL &&
                hosts->fd != NULL && hosts->state != NULL && hosts->why != NULL && seen != NULL;
    for (uint32_t h = 0; hosts->fd != NULL && h < hosts->count; h++)
        hosts->fd[h] = -1;
    for (uint32_t r = 0; fine && r < size; r++) {
        hosts->of[r] = host[r];
        hosts->number[r] = seen[host[r]]++;
        if (hosts->number[r] == 0)
            hosts->lowest[host[r]] = r;
    }
    free(seen);
    if (!fine)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY,
                          "rank %d: failure detector: no memory for %u hosts", detector->rank,
                          hosts->count);
    return TWILL_OK;
}

/* Let the kernel probe the host at the other end, and report an error if it does not answer. */
static void keep_alive(int fd)
{
    static const struct {
        int name, value;
    } options[] = {{TCP_KEEPIDLE, TWILL_HOST_IDLE_S},
                   {TCP_KEEPINTVL, TWILL_HOST_AGAIN_S},
                   {TCP_USER_TIMEOUT, TWILL_HOST_SILENT_MS}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(options); i++)
        (void)setsockopt(fd, IPPROTO_TCP, options[i].name, &options[i].value,
                         sizeof(options[i].value));
}

/* Return whether the attempt to connect to host h is over. A new connection gets the handshake. If
 * the attempt failed, this sets fd[h] to -1 and why[h] to the errno. */
static bool has_connected(struct twill_detector *detector, uint32_t h)
{
    struct twill_hosts *hosts = &detector->hosts;
    struct pollfd one = {.fd = hosts->fd[h], .events = POLLOUT};
    struct twill_session session; /* unused, as no frame follows */
    if (one.fd < 0)
        return true;
    if (poll(&one, 1, 0) <= 0)
        return false;
    int why = twill_socket_connected(one.fd);
    if (why != 0 ||
        twill_detector_greet(detector, hosts->lowest[h], one.fd, &session) != TWILL_WIRE_DONE) {
        hosts->why[h] = why != 0 ? why : ECONNRESET;
        close(one.fd);
        hosts->fd[h] = -1;
    }
    twill_secret_wipe(&session, sizeof(session));
    return true;
}

/* Accept and progress the connections of this host with others. Sets open[h] to true once the one
 * with host h is made or, with hosts->fd[h] at -1, has failed. Returns how many are neither. Sets
 * detector->polls[0 .. *polls-1] to the sockets to wait for. */
static uint32_t hosts_connect(struct twill_detector *detector, bool *open, size_t *polls)
{
    struct twill_hosts *hosts = &detector->hosts;
    uint32_t own = twill_hosts_own(detector), left = 0;
    twill_detector_admit(detector);
    *polls = 0;
    detector->polls[(*polls)++] = (struct pollfd){.fd = detector->listener, .events = POLLIN};
    for (size_t i = 0; i < detector->callers; i++)
        if (detector->caller[i].rank < 0)
            detector->polls[(*polls)++] =
                (struct pollfd){.fd = detector->caller[i].fd, .events = POLLIN};
    for (uint32_t h = 0; h < hosts->count; h++) {
        bool called = twill_hosts_call(hosts, own, h);
        if (open[h] || !twill_hosts_connected(hosts, own, h))
            continue;
        if (!called)
            hosts->fd[h] = twill_detector_adopt(detector, hosts->lowest[h]);
        open[h] = called ? has_connected(detector, h) : hosts->fd[h] >= 0;
        left += !open[h];
        if (!open[h] && called && *polls < detector->capacity)
            detector->polls[(*polls)++] = (struct pollfd){.fd = hosts->fd[h], .events = POLLOUT};
    }
    return left;
}

/* Add the connections with other hosts to the epoll instance. open[h] says that the one with host h
 * is made or has failed. Those that failed, were late or do not fit into the instance are closed
 * and counted in hosts->missing, with an errno in hosts->why[h]. */
static void put_into_set(struct twill_detector *detector, const bool *open)
{
    struct twill_hosts *hosts = &detector->hosts;
    for (uint32_t h = 0; h < hosts->count; h++) {
        struct epoll_event event = {.events = EPOLLRDHUP, .data.u64 = h};
        if (!twill_hosts_connected(hosts, twill_hosts_own(detector), h))
            continue;
        if (open[h] && hosts->fd[h] >= 0)
            keep_alive(hosts->fd[h]);
        if (open[h] && hosts->fd[h] >= 0 &&
            epoll_ctl(hosts->set, EPOLL_CTL_ADD, hosts->fd[h], &event) == 0)
            continue;
        if (hosts->fd[h] >= 0)
            close(hosts->fd[h]);
        if (hosts->why[h] == 0) /* else it failed earlier */
            hosts->why[h] = ETIMEDOUT;
        hosts->fd[h] = -1;
        hosts->missing++;
    }
}

/* On a host's lowest rank, start to connect to the hosts that this one calls. List those that
 * failed at once in *mine, and stop when that is full. On other ranks, set *mine to an empty
 * list. */
static void dial_all(struct twill_detector *detector, struct omitted *mine)
{
    struct twill_hosts *hosts = &detector->hosts;
    size_t omitted = 0;
    memset(mine, 0xff, sizeof(*mine));
    for (uint32_t h = 0; is_lowest(detector) && h < hosts->count && omitted < OMITTED; h++) {
        if (!twill_hosts_connected(hosts, twill_hosts_own(detector), h) ||
            !twill_hosts_call(hosts, twill_hosts_own(detector), h))
            continue;
        const struct twill_listen_address *place = &detector->place[hosts->lowest[h]];
        bool pending;
        hosts->fd[h] = twill_socket_dial(place->address, (uint16_t)place->port, &pending);
        if (hosts->fd[h] >= 0)
            continue;
        hosts->why[h] = errno;
        mine->host[omitted++] = h;
    }
}

/* Return whether a rank whose list is *theirs does not connect to `host`. That is so if the list
 * contains it, or is full and ends with a lower host. */
static bool omits(const struct omitted *theirs, uint32_t host)
{
    bool omitted = theirs->host[OMITTED - 1] < host;
    for (size_t i = 0; i < OMITTED; i++)
        omitted = omitted || theirs->host[i] == host;
    return omitted;
}

/* As lowest rank, wait until the connections of this host are made, except from hosts that omit it,
 * but not after `deadline`. Put them into the epoll instance. Fails only without memory. */
static twill_status connect_hosts(struct twill_detector *detector, const struct omitted *omitted,
                                  uint64_t deadline, struct twill_error *error)
{
    struct twill_hosts *hosts = &detector->hosts;
    uint32_t own = twill_hosts_own(detector);
    size_t polls;
    bool *open = calloc(hosts->count, sizeof(*open));
    if (open == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY,
                          "rank %d: failure detector: no memory for %u hosts", detector->rank,
                          hosts->count);
    for (uint32_t h = 0; h < hosts->count; h++)
        open[h] = !twill_hosts_call(hosts, own, h) && omits(&omitted[hosts->lowest[h]], own);
    while (hosts_connect(detector, open, &polls) > 0 && twill_now() < deadline)
        (void)twill_wire_poll(detector->polls, polls,
                              twill_min(deadline, twill_wire_deadline(TWILL_HOST_TURN_NS)));
    put_into_set(detector, open);
    free(open);
    return TWILL_OK;
}

/* Send the epoll instance and the connections into the queue of a new socket, hosts->keeper, where
 * they stay open as long as any process has that socket. If there are more than a part of the
 * descriptor limit, which also bounds such queues, do nothing. They then end with this rank. */
static void keep_ends(struct twill_hosts *hosts)
{
    int pair[2], ends[TWILL_FDS_MOST];
    size_t count = 0, most = 0;
    char byte = 0;
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0)
        most = (size_t)twill_min(limit.rlim_cur / KEPT_DIVISOR, TWILL_FDS_MOST);
    for (uint32_t h = 0; h < hosts->count; h++) {
        if (hosts->fd[h] >= 0 && count == most)
            return;
        if (hosts->fd[h] >= 0)
            ends[count++] = hosts->fd[h];
    }
    if (count == 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return;
    if (twill_fds_send(pair[1], &byte, 1, &hosts->set, 1) &&
        twill_fds_send(pair[1], &byte, 1, ends, count))
        hosts->keeper = twill_fd_move(pair[0], TWILL_FD_LEAST);
    else
        close(pair[0]);
    close(pair[1]);
}

/* Keep fds[0], which the lowest rank of the host has passed, as opening->theirs. It is the epoll
 * instance, or a socket whose queue contains that. On the lowest rank itself, close fds[0], which
 * another rank passed. `user` is the detector. Returns TWILL_SHARE_FINE. */
static enum twill_share_cause take_file(void *user, const struct twill_fd_passing_peer *peer,
                                        const int fds[2])
{
    struct twill_detector *detector = user;
    (void)peer;
    if (is_lowest(detector))
        close(fds[0]);
    else
        detector->opening->theirs = fds[0];
    return TWILL_SHARE_FINE;
}

/* Replace hosts->set by what the lowest rank passed. That is the keeper, whose queue begins with
 * the epoll instance, or the epoll instance itself. */
static void take_set(struct twill_hosts *hosts, int theirs)
{
    int set = twill_fds_peek(theirs);
    close(hosts->set);
    hosts->set = set >= 0 ? set : theirs;
    hosts->keeper = set >= 0 ? theirs : -1;
}

/* Pass the lowest rank's epoll instance to the other ranks of its host, and take their empty ones
 * in exchange. If that fails, the other ranks observe no connections. */
static void share_set(struct twill_detector *detector, struct twill_fd_passing *fd_passing,
                      const struct detector_peer_info *infos)
{
    struct twill_hosts *hosts = &detector->hosts;
    uint32_t own = twill_hosts_own(detector);
    bool fine = true;
    fd_passing->peers = calloc((size_t)detector->size, sizeof(*fd_passing->peers));
    for (uint32_t r = 0; fd_passing->peers != NULL && r < (uint32_t)detector->size; r++) {
        bool exchanges =
            is_lowest(detector) ? r != (uint32_t)detector->rank : r == hosts->lowest[own];
        fine = fine && (hosts->of[r] != own || infos[r].cause == TWILL_SHARE_FINE);
        if (hosts->of[r] != own || !exchanges)
            continue;
        fd_passing->peers[fd_passing->peer_count++] = (struct twill_fd_passing_peer){
            .rank = r, .name = infos[r].name, .key = infos[r].key, .socket = -1};
    }
    if (fine && fd_passing->peer_count > 0 && is_lowest(detector))
        keep_ends(hosts);
    fd_passing->file = hosts->keeper >= 0 ? hosts->keeper : hosts->set;
    fd_passing->take = take_file;
    fd_passing->user = detector;
    if (fine && fd_passing->peer_count > 0)
        (void)twill_fd_passing_exchange(fd_passing);
    if (detector->opening->theirs >= 0)
        take_set(hosts, detector->opening->theirs);
}

/* Return a new state of set-up, or NULL. Its tables are NULL if there is no memory for them.
 * `most`, which is sent to all ranks, limits the connections of this process to other hosts. */
static struct twill_detector_opening *opening_create(const struct twill_oob *oob, size_t most)
{
    struct twill_detector_opening *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return NULL;
    made->brief = (struct twill_oob){.rank = oob->rank, .size = oob->size};
    memcpy(made->brief.nonce, oob->nonce, sizeof(made->brief.nonce));
    made->fd_passing.listener = made->theirs = -1;
    made->own.most = most;
    made->infos = calloc((size_t)oob->size, sizeof(*made->infos));
    made->omitted = calloc((size_t)oob->size, sizeof(*made->omitted));
    return made;
}

void twill_hosts_opening_end(struct twill_detector *detector)
{
    struct twill_detector_opening *opening = detector->opening;
    if (opening == NULL)
        return;
    twill_fd_passing_close(&opening->fd_passing);
    free(opening->fd_passing.peers);
    free(opening->infos);
    free(opening->omitted);
    free(opening);
    detector->opening = NULL;
}

twill_status twill_hosts_offer(struct twill_detector *detector, const struct twill_oob *oob,
                               size_t most, struct twill_oob_batch *batch,
                               struct twill_error *error)
{
    struct twill_detector_opening *o = detector != NULL ? opening_create(oob, most) : NULL;
    twill_oob_batch_add(batch, o != NULL ? &o->own : NULL, o != NULL ? o->infos : NULL,
                        sizeof(struct detector_peer_info));
    if (detector != NULL)
        detector->opening = o;
    if (o == NULL || o->infos == NULL || o->omitted == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY,
                          "rank %d: failure detector: no memory for %d ranks", oob->rank,
                          oob->size);
    if (oob->size == 1)
        return TWILL_OK;
    detector->hosts.set = twill_fd_move(epoll_create1(EPOLL_CLOEXEC), TWILL_FD_LEAST);
    o->own.cause = (uint32_t)twill_fd_passing_listen(&o->fd_passing, &o->brief);
    if (o->own.cause == TWILL_SHARE_FINE && detector->hosts.set < 0)
        o->own.cause = TWILL_SHARE_DESCRIPTORS;
    o->own.name = o->fd_passing.name;
    o->own.key = o->fd_passing.key;
    return TWILL_OK;
}

twill_status twill_detector_connect(struct twill_detector *detector, const struct twill_oob *oob,
                                    const uint32_t *host, uint32_t threads,
                                    struct twill_oob_batch *batch, struct twill_error *error)
{
    struct twill_hosts *hosts = &detector->hosts;
    struct twill_detector_opening *o = detector->opening;
    uint64_t most = UINT64_MAX;
    o->patience_ns = twill_min(TWILL_HOST_SET_UP_NS, oob->timeout_ns / 4);
    o->brief.timeout_ns = 2 * o->patience_ns;
    twill_oob_batch_add(batch, &o->own_omitted, o->omitted, sizeof(o->own_omitted));
    for (int r = 0; r < detector->size; r++) {
        detector->place[r].address[sizeof(detector->place[r].address) - 1] = '\0';
        twill_address_localise(detector->place[r].address, oob->address);
    }
    TWILL_TRY(error, number_hosts(detector, host, error));
    for (uint32_t h = 0; h < hosts->count; h++)
        most = twill_min(most, o->infos[hosts->lowest[h]].most);
    hosts->all = hosts->count <= most / threads + 1;
    dial_all(detector, &o->own_omitted);
    return TWILL_OK;
}

void twill_detector_conclude_alone(struct twill_detector *detector)
{
    for (int r = 0; r < detector->size; r++)
        detector->place[r].address[sizeof(detector->place[r].address) - 1] = '\0';
    twill_hosts_opening_end(detector);
}

twill_status twill_detector_conclude(struct twill_detector *detector, struct twill_error *error)
{
    struct twill_detector_opening *o = detector->opening;
    if (is_lowest(detector))
        TWILL_TRY(error,
                  connect_hosts(detector, o->omitted, twill_wire_deadline(o->patience_ns), error));
    share_set(detector, &o->fd_passing, o->infos);
    twill_hosts_opening_end(detector);
    return TWILL_OK;
}

/* Unless all hosts are connected to each other, notify those connected to this one that `host` is
 * suspected. On each, this notifies the rank with the same number as this one. */
static void forward_loss(struct twill_detector *detector, uint32_t host)
{
    const struct twill_hosts *hosts = &detector->hosts;
    struct twill_notice notice = {.from = (uint32_t)detector->rank, .comm = TWILL_HOSTS_COMM};
    uint32_t ranks[NEIGHBOURS], own = twill_hosts_own(detector);
    size_t n = 0;
    notice.state[0] = host;
    for (uint32_t r = 0; !hosts->all && r < (uint32_t)detector->size && n < NEIGHBOURS; r++)
        if (hosts->number[r] == hosts->number[detector->rank] && hosts->of[r] != host &&
            twill_hosts_connected(hosts, own, hosts->of[r]))
            ranks[n++] = r;
    if (n > 0)
        twill_detector_notify(detector, &notice, ranks, n, TWILL_HOST_NOTIFY_NS);
}

void twill_hosts_suspect(struct twill_detector *detector, uint32_t host)
{
    if (detector->hosts.state[host] != HOST_MONITORED || host == twill_hosts_own(detector))
        return;
    detector->hosts.state[host] = HOST_SUSPECT;
    twill_detector_recheck_host(detector, host);
    forward_loss(detector, host);
}

void twill_hosts_poll(struct twill_detector *detector)
{
    struct twill_hosts *hosts = &detector->hosts;
    struct epoll_event events[EVENTS];
    int n = hosts->set >= 0 ? epoll_wait(hosts->set, events, EVENTS, 0) : 0;
    for (int i = 0; i < n; i++) {
        uint32_t host = (uint32_t)events[i].data.u64;
        if (host >= hosts->count || hosts->state[host] != HOST_MONITORED)
            continue;
        if (events[i].events & EPOLLERR)
            twill_hosts_suspect(detector, host);
        else
            hosts->state[host] = HOST_CLOSED;
    }
}

uint64_t twill_host_bound_ns(void)
{
    return TWILL_HOST_FOUND_NS;
}

size_t twill_detector_describe(const struct twill_detector *detector, char *text, size_t bytes)
{
    const struct twill_hosts *hosts = &detector->hosts;
    uint32_t to = 0, own = twill_hosts_own(detector), failed = UINT32_MAX;
    for (uint32_t h = 0; h < hosts->count; h++) {
        to += twill_hosts_connected(hosts, own, h);
        if (hosts->why[h] != 0 && (failed == UINT32_MAX || (twill_hosts_call(hosts, own, h) &&
                                                            !twill_hosts_call(hosts, own, failed))))
            failed = h;
    }
    int used = snprintf(
        text, bytes, "rank %u connects this host to %u of %u other%s; %u of them failed",
        hosts->lowest[own], to, hosts->count - 1, hosts->count == 2 ? "" : "s", hosts->missing);
    if (failed == UINT32_MAX || used < 0 || (size_t)used >= bytes)
        return hosts->missing;
    const struct twill_listen_address *place = &detector->place[hosts->lowest[failed]];
    bool called = twill_hosts_call(hosts, own, failed);
    snprintf(text + used, bytes - (size_t)used, ": %s %s%s %s (firewall? twillrun --check)",
             called ? "to" : "from",
             called ? TWILL_ADDRESS_AND_PORT(place->address, place->port) : place->address,
             called ? ":" : "",
             !called                           ? "no connection arrives"
             : hosts->why[failed] == ETIMEDOUT ? "no answer"
                                               : strerror(hosts->why[failed]));
    return hosts->missing;
}

bool twill_hosts_may_live(const struct twill_detector *detector, uint32_t peer)
{
    const struct twill_hosts *hosts = &detector->hosts;
    if (hosts->count == 0)
        return false;
    uint32_t host = hosts->of[peer], own = twill_hosts_own(detector);
    unsigned ranks = 0;
    for (uint32_t r = 0; r < (uint32_t)detector->size; r++)
        ranks += hosts->of[r] == host;
    /* its ranks lived during set-up */
    bool barred = hosts->why[host] != 0 && twill_hosts_call(hosts, own, host);
    /* the connection between the hosts ends with its only rank */
    bool linked = twill_hosts_connected(hosts, own, host) && hosts->state[host] == HOST_MONITORED &&
                  hosts->why[host] == 0;
    return barred || (linked && ranks == 1);
}
