/* SPDX-License-Identifier: Apache-2.0 */
/* The watch between hosts: connections that are there from set-up on, made by the lowest rank of
 * each host, and seen by all of its ranks.
 *
 * A process can hand another one its epoll instance: what is in it is reported to both, although
 * the other has none of the sockets. So a host needs one connection to each other host, whatever
 * its ranks are doing, and the kernel does the rest: it asks the other one every few seconds
 * whether it is still there, and reports an error when it has not answered for SILENT_MS. That
 * error is the same for a host that has vanished and for a connection that was cut off on the way
 * or reset by a process that has died: so it makes the host a suspect only, and a new connection
 * to it decides (detector.c). */
#include "fabric/detector/detector_state.h"

#include "fabric/shm/fd_passing.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

#define KEPT_DIVISOR 16   /* of the limit of descriptors, what is kept in a queue */
#define IDLE_S       3    /* without a word before the kernel asks */
#define AGAIN_S      2    /* between questions */
#define SILENT_MS    8500 /* a question due at 9 s finds the host silent for so long */
#define SET_UP_NS    UINT64_C(10000000000) /* at most, and a quarter of the bootstrap's deadline */
#define TURN_NS      UINT64_C(20000000)
#define NOTIFY_NS    UINT64_C(100000000) /* to tell other hosts of a suspect */
#define EVENTS       32
#define NEIGHBOURS   64 /* more than twice the logarithm of hosts */
#define OMITTED      8

/* What ranks tell each other first. */
struct detector_peer_info {
    uint64_t name, key; /* of the socket that the epoll instance is passed over */
    uint64_t most;      /* connections */
    uint32_t cause;     /* enum twill_share_cause */
    uint32_t zero;
};

/* Hosts that a rank should call, and cannot; UINT32_MAX: no other. After the last one that has room
 * here it has called none. */
struct omitted {
    uint32_t host[OMITTED];
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
    *hosts = (struct twill_hosts){.set = -1, .keeper = -1};
}

/* --- who is connected to whom ---------------------------------------------------------------- */

static uint32_t own_host(const struct twill_detector *detector)
{
    return detector->hosts.of[detector->rank];
}

static bool is_lowest(const struct twill_detector *detector)
{
    return detector->hosts.lowest[own_host(detector)] == (uint32_t)detector->rank;
}

static bool is_power_of_two(uint32_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

static bool are_connected(const struct twill_hosts *hosts, uint32_t a, uint32_t b)
{
    uint32_t on = (b + hosts->count - a) % hosts->count;
    return a != b && (hosts->all || is_power_of_two(on) || is_power_of_two(hosts->count - on));
}

/* Of two hosts one connects: each to about half of the others. */
static bool calls(const struct twill_hosts *hosts, uint32_t a, uint32_t b)
{
    uint32_t on = (b + hosts->count - a) % hosts->count;
    return on < hosts->count - on || (on == hosts->count - on && a < b);
}

/* --- set-up ---------------------------------------------------------------------------------- */

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
    uint32_t *seen = calloc(hosts->count, sizeof(*seen));
    bool fine = hosts->of != NULL && hosts->number != NULL && hosts->lowest != NULL &&
                hosts->fd != NULL && hosts->state != NULL && seen != NULL;
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
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %d: watch: no memory for %u hosts",
                          detector->rank, hosts->count);
    return TWILL_OK;
}

/* The kernel finds out by itself whether the other host is there. Nothing is ever sent over it, so
 * a timeout for what was sent (TCP_USER_TIMEOUT) cannot hit a process that is only slow. */
static void keep_alive(int fd)
{
    static const struct {
        int name, value;
    } options[] = {{TCP_KEEPIDLE, IDLE_S}, {TCP_KEEPINTVL, AGAIN_S}, {TCP_USER_TIMEOUT, SILENT_MS}};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(options); i++)
        (void)setsockopt(fd, IPPROTO_TCP, options[i].name, &options[i].value,
                         sizeof(options[i].value));
}

/* A connection under way, or -1. */
static int dial_host(const struct twill_detector *detector, uint32_t peer)
{
    const struct twill_listen_address *place = &detector->place[peer];
    struct sockaddr_storage address;
    socklen_t length;
    if (!twill_endpoint_address(place->address, (uint16_t)place->port, &address, &length))
        return -1;
    int fd = twill_socket_new(address.ss_family);
    if (fd >= 0 && twill_socket_connect(fd, (struct sockaddr *)&address, length) < 0) {
        close(fd);
        fd = -1;
    }
    return fd;
}

/* Is it there by now? In vain: fd[h] is -1. */
static bool has_connected(struct twill_detector *detector, uint32_t h)
{
    struct twill_hosts *hosts = &detector->hosts;
    struct pollfd one = {.fd = hosts->fd[h], .events = POLLOUT};
    struct twill_session session; /* of frames, of which none follow */
    if (one.fd < 0)
        return true;
    if (poll(&one, 1, 0) <= 0)
        return false;
    if (twill_socket_connected(one.fd) != 0 ||
        twill_detector_greet(detector, hosts->lowest[h], one.fd, &session) != TWILL_WIRE_DONE) {
        close(one.fd);
        hosts->fd[h] = -1;
    }
    twill_secret_wipe(&session, sizeof(session));
    return true;
}

/* Hosts that are not connected yet; what is waited for is in watch->polls. */
static uint32_t hosts_connect(struct twill_detector *detector, bool *open, size_t *polls)
{
    struct twill_hosts *hosts = &detector->hosts;
    uint32_t own = own_host(detector), left = 0;
    twill_detector_admit(detector);
    *polls = 0;
    detector->polls[(*polls)++] = (struct pollfd){.fd = detector->listener, .events = POLLIN};
    for (size_t i = 0; i < detector->callers; i++)
        if (detector->caller[i].rank < 0)
            detector->polls[(*polls)++] =
                (struct pollfd){.fd = detector->caller[i].fd, .events = POLLIN};
    for (uint32_t h = 0; h < hosts->count; h++) {
        bool called = calls(hosts, own, h);
        if (open[h] || !are_connected(hosts, own, h))
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

/* What could not be connected is closed, and done without. */
static void put_into_set(struct twill_detector *detector, const bool *open)
{
    struct twill_hosts *hosts = &detector->hosts;
    for (uint32_t h = 0; h < hosts->count; h++) {
        struct epoll_event event = {.events = EPOLLRDHUP, .data.u64 = h};
        if (!are_connected(hosts, own_host(detector), h))
            continue;
        if (open[h] && hosts->fd[h] >= 0)
            keep_alive(hosts->fd[h]);
        if (open[h] && hosts->fd[h] >= 0 &&
            epoll_ctl(hosts->set, EPOLL_CTL_ADD, hosts->fd[h], &event) == 0)
            continue;
        if (hosts->fd[h] >= 0)
            close(hosts->fd[h]);
        hosts->fd[h] = -1;
        hosts->missing++;
    }
}

/* Tell hosts that cannot be called, so that they do not wait for a call. */
static void dial_all(struct twill_detector *detector, struct omitted *mine)
{
    struct twill_hosts *hosts = &detector->hosts;
    size_t omitted = 0;
    memset(mine, 0xff, sizeof(*mine));
    for (uint32_t h = 0; is_lowest(detector) && h < hosts->count && omitted < OMITTED; h++) {
        if (!are_connected(hosts, own_host(detector), h) || !calls(hosts, own_host(detector), h))
            continue;
        hosts->fd[h] = dial_host(detector, hosts->lowest[h]);
        if (hosts->fd[h] < 0)
            mine->host[omitted++] = h;
    }
}

static bool omits(const struct omitted *theirs, uint32_t host)
{
    bool omitted = theirs->host[OMITTED - 1] < host;
    for (size_t i = 0; i < OMITTED; i++)
        omitted = omitted || theirs->host[i] == host;
    return omitted;
}

static twill_status connect_hosts(struct twill_detector *detector, const struct omitted *omitted,
                                  uint64_t deadline, struct twill_error *error)
{
    struct twill_hosts *hosts = &detector->hosts;
    uint32_t own = own_host(detector);
    size_t polls;
    bool *open = calloc(hosts->count, sizeof(*open));
    if (open == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %d: watch: no memory for %u hosts",
                          detector->rank, hosts->count);
    for (uint32_t h = 0; h < hosts->count; h++)
        open[h] = !calls(hosts, own, h) && omits(&omitted[hosts->lowest[h]], own);
    while (hosts_connect(detector, open, &polls) > 0 && twill_now() < deadline)
        (void)twill_wire_poll(detector->polls, polls,
                              twill_min(deadline, twill_wire_deadline(TURN_NS)));
    put_into_set(detector, open);
    free(open);
    return TWILL_OK;
}

/* Call the others, tell whom one cannot call, and wait for the rest. Collective over boot. */
static twill_status connect_all_hosts(struct twill_detector *detector, struct twill_oob *oob,
                                      uint64_t patience, struct twill_error *error)
{
    struct omitted mine, *all = calloc((size_t)detector->size, sizeof(*all));
    if (all == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %d: watch: no memory for %d ranks",
                          detector->rank, detector->size);
    dial_all(detector, &mine);
    twill_status status = twill_oob_allgather(oob, &mine, all, sizeof(mine), error);
    if (status == TWILL_OK && is_lowest(detector))
        status = connect_hosts(detector, all, twill_wire_deadline(patience), error);
    free(all);
    return status;
}

/* Put the epoll instance and the ends into the queue of a socket, where they stay: what is open in
 * a queue is open as long as any process has the socket. Not where there are too many: the kernel
 * lets a user have as many in all queues as a process may have descriptors. Then the ends go with
 * the lowest rank. */
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
        hosts->keeper = pair[0];
    else
        close(pair[0]);
    close(pair[1]);
}

/* What the lowest rank has handed out: the keeper, with the epoll instance first in its queue, or
 * that itself. */
static void take_set(struct twill_hosts *hosts, int theirs)
{
    int set = twill_fds_peek(theirs);
    close(hosts->set);
    hosts->set = set >= 0 ? set : theirs;
    hosts->keeper = set >= 0 ? theirs : -1;
}

/* The lowest rank hands its epoll instance to the others of its host, and takes theirs, which are
 * empty. Where that does not work, they look at nothing. */
static void share_set(struct twill_detector *detector, struct twill_fd_passing *fd_passing,
                      const struct detector_peer_info *infos)
{
    struct twill_hosts *hosts = &detector->hosts;
    uint32_t own = own_host(detector);
    bool fine = true;
    fd_passing->peers = calloc((size_t)detector->size, sizeof(*fd_passing->peers));
    for (uint32_t r = 0; fd_passing->peers != NULL && r < (uint32_t)detector->size; r++) {
        bool exchanges =
            is_lowest(detector) ? r != (uint32_t)detector->rank : r == hosts->lowest[own];
        fine = fine && (hosts->of[r] != own || infos[r].cause == TWILL_SHARE_FINE);
        if (hosts->of[r] != own || !exchanges)
            continue;
        fd_passing->peers[fd_passing->peer_count++] = (struct twill_fd_passing_peer){
            .rank = r, .name = infos[r].name, .key = infos[r].key, .socket = -1, .fd = -1};
    }
    if (fine && fd_passing->peer_count > 0 && is_lowest(detector))
        keep_ends(hosts);
    fd_passing->file = hosts->keeper >= 0 ? hosts->keeper : hosts->set;
    if (fine && fd_passing->peer_count > 0 &&
        twill_fd_passing_connect(fd_passing) == TWILL_SHARE_FINE)
        (void)twill_fd_passing_exchange(fd_passing);
    for (size_t i = 0; i < fd_passing->peer_count; i++) {
        int theirs = fd_passing->peers[i].fd;
        if (theirs >= 0 && !is_lowest(detector))
            take_set(hosts, theirs);
        else if (theirs >= 0)
            close(theirs);
    }
}

twill_status twill_detector_connect(struct twill_detector *detector, struct twill_oob *oob,
                                    const uint32_t *host, size_t most, struct twill_error *error)
{
    struct twill_hosts *hosts = &detector->hosts;
    uint64_t patience = twill_min(SET_UP_NS, oob->timeout_ns / 4);
    struct twill_oob brief = {.rank = oob->rank, .size = oob->size, .timeout_ns = 2 * patience};
    struct twill_fd_passing fd_passing;
    struct detector_peer_info mine = {.most = most};
    TWILL_TRY(error, number_hosts(detector, host, error));
    memcpy(brief.nonce, oob->nonce, sizeof(brief.nonce));
    struct detector_peer_info *infos = calloc((size_t)detector->size, sizeof(*infos));
    if (infos == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %d: watch: no memory for %d ranks",
                          detector->rank, detector->size);
    hosts->set = epoll_create1(EPOLL_CLOEXEC);
    mine.cause = (uint32_t)twill_fd_passing_listen(&fd_passing, &brief);
    if (mine.cause == TWILL_SHARE_FINE && hosts->set < 0)
        mine.cause = TWILL_SHARE_DESCRIPTORS;
    mine.name = fd_passing.name;
    mine.key = fd_passing.key;
    twill_status status = twill_oob_allgather(oob, &mine, infos, sizeof(mine), error);
    for (uint32_t h = 0; h < hosts->count; h++)
        most = twill_min(most, (size_t)infos[hosts->lowest[h]].most);
    hosts->all = hosts->count <= most + 1;
    if (status == TWILL_OK)
        status = connect_all_hosts(detector, oob, patience, error);
    if (status == TWILL_OK)
        share_set(detector, &fd_passing, infos);
    twill_fd_passing_close(&fd_passing);
    free(fd_passing.peers);
    free(infos);
    return status;
}

size_t twill_detector_describe(const struct twill_detector *detector, char *text, size_t bytes)
{
    const struct twill_hosts *hosts = &detector->hosts;
    uint32_t to = 0;
    for (uint32_t h = 0; h < hosts->count; h++)
        to += are_connected(hosts, own_host(detector), h);
    snprintf(text, bytes, "rank %u connects this host to %u of %u others, %u of them in vain",
             hosts->lowest[own_host(detector)], to, hosts->count - 1, hosts->missing);
    return hosts->missing;
}

/* --- afterwards ------------------------------------------------------------------------------ */

/* Where hosts are not all connected, each tells its neighbours: rank by rank, so that it comes
 * round by those that are in the library, whichever they are. */
static void forward_loss(struct twill_detector *detector, uint32_t host)
{
    const struct twill_hosts *hosts = &detector->hosts;
    struct twill_notice notice = {.from = (uint32_t)detector->rank, .comm = TWILL_HOSTS_COMM};
    uint32_t ranks[NEIGHBOURS], own = own_host(detector);
    size_t n = 0;
    notice.state[0] = host;
    for (uint32_t r = 0; !hosts->all && r < (uint32_t)detector->size && n < NEIGHBOURS; r++)
        if (hosts->number[r] == hosts->number[detector->rank] && hosts->of[r] != host &&
            are_connected(hosts, own, hosts->of[r]))
            ranks[n++] = r;
    if (n > 0)
        twill_detector_notify(detector, &notice, ranks, n, NOTIFY_NS);
}

void twill_hosts_suspect(struct twill_detector *detector, uint32_t host)
{
    if (detector->hosts.state[host] != HOST_MONITORED || host == own_host(detector))
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
