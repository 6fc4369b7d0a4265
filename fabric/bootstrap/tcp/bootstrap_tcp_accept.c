/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's side of the rendezvous. One poll loop serves the listener, the pending (unauthenticated)
 * connections, which have short deadlines so as to delay no rank, and the ranks that joined. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "lib/base/plural.h"
#include "lib/base/times.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A connection of rank 0 that has not been authenticated yet, part of struct rendezvous. */
struct pending {
    int fd;
    uint64_t since; /* twill_now() when it was accepted */
    struct twill_hello hello;
};

/* State of rank 0 while ranks join, a local variable of twill_bootstrap_tcp_serve(). */
struct rendezvous {
    struct twill_bootstrap_tcp *tcp;
    uint64_t deadline;
    uint64_t say_at;         /* when to report absent ranks; UINT64_MAX: never again */
    int absent;              /* ranks that have not joined */
    size_t count;            /* of pending connections */
    size_t places;           /* most pending connections at a time */
    uint64_t pause;          /* time before which no connection is accepted */
    int trouble;             /* errno of the accept that caused the pause, or 0 */
    struct pending *pending; /* [TWILL_BOOTSTRAP_PENDING], oldest first */
};

/* Remove pending connection i from the list, without closing it. The rest stays ordered by age. */
static void forget_pending(struct rendezvous *m, size_t i)
{
    m->count--;
    memmove(&m->pending[i], &m->pending[i + 1], (m->count - i) * sizeof(*m->pending));
}

/* Close and remove pending connection i, and count it as rejected for this reason. */
static void reject_pending(struct rendezvous *m, size_t i, enum twill_fault fault)
{
    m->tcp->oob.rejected.count[fault]++;
    close(m->pending[i].fd);
    forget_pending(m, i);
}

/* Return whether a rank's connection is closed, or has data, as a rank that waits sends none. */
static bool is_gone(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

/* Close the connection of a rank that joined and then left, and count the rank as absent. It has
 * until peer->back_by to come back, which is now if its host stopped answering. */
static void drop_rank(struct rendezvous *m, struct twill_bootstrap_peer *peer)
{
    int rank = (int)(peer - m->tcp->peer), size = m->tcp->oob.size;
    bool guest = rank >= size - (int)m->tcp->job->guests;
    /* The kernel has already waited for its host to answer. */
    peer->silent = twill_socket_connected(peer->fd) == ETIMEDOUT;
    close(peer->fd);
    peer->fd = -1;
    peer->back_by = peer->silent
                        ? twill_now()
                        : twill_wire_deadline(guest ? TWILL_GUEST_BACK_NS : TWILL_COMEBACK_NS);
    peer->overdue = peer->silent || guest;
    m->absent++;
}

/* Return a rank for a process that comes without one, the first of the new ranks that is free or
 * whose connection is closed. Returns 0 if there is none. */
static uint32_t find_place(const struct rendezvous *m)
{
    uint32_t size = (uint32_t)m->tcp->oob.size, rank = size - m->tcp->job->guests;
    while (rank < size && m->tcp->peer[rank].fd >= 0 && !is_gone(m->tcp->peer[rank].fd))
        rank++;
    return rank < size ? rank : 0;
}

/* Set *rank to the rank of a process that has authenticated, and return NULL. Drop an earlier
 * process of that rank that has gone. Or return why the process cannot join, perhaps in `text`. */
static const char *objection(struct rendezvous *m, const struct twill_hello_call *call,
                             uint32_t *rank, char text[TWILL_WIRE_TEXT])
{
    uint32_t first_guest = call->size - m->tcp->job->guests;
    bool guest = m->tcp->job->guests > 0 && call->rank == (uint32_t)TWILL_JOIN_ANY;
    if (call->epoch != m->tcp->job->epoch) {
        snprintf(text, TWILL_WIRE_TEXT, "it is of epoch %u, and the job is at epoch %u",
                 call->epoch, m->tcp->job->epoch);
        return text;
    }
    if (call->size != (uint32_t)m->tcp->oob.size)
        return "WORLD_SIZE differs";
    *rank = guest ? find_place(m) : call->rank;
    if (guest && *rank == 0)
        return "all new ranks are taken";
    if (*rank == 0 || call->to != 0 || (!guest && *rank >= first_guest))
        return "RANK is out of range or taken by rank 0";
    if (m->tcp->peer[*rank].fd < 0)
        return NULL;
    if (!is_gone(m->tcp->peer[*rank].fd))
        return "RANK is taken by another process";
    drop_rank(m, &m->tcp->peer[*rank]);
    return NULL;
}

/* Make an authenticated process a rank, and lower m->deadline to the end of its timeout. Or send it
 * the reason why it cannot join, and count and close it as rejected. It is no longer pending
 * then. */
static void admit_pending(struct rendezvous *m, size_t i, struct twill_session *session)
{
    const struct twill_hello_call *call = &m->pending[i].hello.said.call;
    struct twill_wire_header answer;
    char text[TWILL_WIRE_TEXT], objected[TWILL_WIRE_TEXT];
    size_t done = 0;
    uint32_t rank = 0;
    const char *reason = objection(m, call, &rank, objected);
    if (!reason) {
        uint64_t patience = twill_min(call->argument, UINT32_MAX) * 1000000;
        m->tcp->peer[rank] =
            (struct twill_bootstrap_peer){.fd = m->pending[i].fd, .session = *session};
        m->absent--;
        /* Give up before the rank with the shortest timeout does, so that it gets the reason. */
        m->deadline = twill_min(m->deadline, twill_wire_deadline(patience));
        forget_pending(m, i);
        return;
    }
    snprintf(text, sizeof(text), "%.200s (rank 0 expects %d rank%s)", reason, m->tcp->oob.size,
             TWILL_PLURAL(m->tcp->oob.size));
    twill_wire_seal(session, &answer, TWILL_WIRE_REFUSE, TWILL_ERR_BOOTSTRAP, text, strlen(text),
                    NULL);
    (void)twill_wire_write(m->pending[i].fd, &answer, text, strlen(text), &done);
    reject_pending(m, i, TWILL_FAULT_REFUSED);
}

/* Continue the handshake of pending connection i, and admit or reject the process when it ends. */
static void receive_calls(struct rendezvous *m, size_t i)
{
    struct pending *p = &m->pending[i];
    struct twill_session session;
    enum twill_wire_moved outcome = twill_hello_move(&p->hello, p->fd, &session);
    if (outcome == TWILL_WIRE_GONE)
        reject_pending(m, i, p->hello.fault);
    else if (outcome == TWILL_WIRE_DONE)
        admit_pending(m, i, &session);
    if (outcome == TWILL_WIRE_DONE)
        twill_secret_wipe(&session, sizeof(session));
}

/* Return whether the connection has not sent the whole first message of the handshake. */
static bool pending_is_silent(const struct pending *pending)
{
    return pending->hello.step == 0;
}

/* Return how many pending connections have not sent a whole first message. */
static size_t count_silent(const struct rendezvous *m)
{
    size_t silent = 0;
    for (size_t i = 0; i < m->count; i++)
        silent += pending_is_silent(&m->pending[i]);
    return silent;
}

/* If another connection waits and all places are taken, close the older half of those that have
 * sent no complete message. Strangers may open many, and a rank connects again. */
static void evict_pending(struct rendezvous *m)
{
    if (m->count < m->places || m->tcp->polls[m->tcp->oob.size].revents == 0)
        return;
    size_t leave = (count_silent(m) + 1) / 2;
    for (size_t i = 0; i < m->count && leave > 0;) {
        if (pending_is_silent(&m->pending[i])) {
            reject_pending(m, i, TWILL_FAULT_SLOW);
            leave--;
        } else {
            i++;
        }
    }
}

/* Handle a failed accept by errno. After EMFILE, take no more pending connections than there are
 * now, as each will become a rank or be closed, or fail if there are none. If the host is short of
 * descriptors or memory, pause. Other errors are ignored. */
static twill_status check_accept(struct rendezvous *m, struct twill_error *error)
{
    if (errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        m->trouble = errno;
        m->pause = twill_wire_deadline(TWILL_ACCEPT_PAUSE_NS);
    }
    if (errno != EMFILE)
        return TWILL_OK;
    m->places = m->count;
    if (m->count > 0)
        return TWILL_OK;
    return twill_bootstrap_tcp_fail(
        m->tcp, error, TWILL_ERR_SYSTEM,
        "accept with %d of %d ranks connected: %s (rank 0 needs a descriptor "
        "for each, and some more: see ulimit -Hn)",
        m->tcp->oob.size - m->absent, m->tcp->oob.size, strerror(errno));
}

/* Accept connections that wait and begin their handshakes, until m->places are in the handshake.
 * Stop at an error, which check_accept() handles. Fails if there are no random numbers, or if this
 * process has no descriptor left and no handshake is in progress. */
static twill_status accept_pending(struct rendezvous *m, struct twill_error *error)
{
    while (m->count < m->places && twill_now() >= m->pause) {
        struct pending *p = &m->pending[m->count];
        int fd = twill_socket_accept(m->tcp->listener);
        if (fd < 0)
            return check_accept(m, error);
        if (m->tcp->raises) /* the program keeps the numbers that it had */
            fd = twill_fd_move(fd, (int)m->tcp->files.before);
        /* A rank may have connected before this process took over the launcher's socket. */
        twill_bootstrap_tcp_share_port(fd, 1);
        p->fd = fd;
        p->since = twill_now();
        if (!twill_hello_expect(&p->hello, &m->tcp->key, TWILL_HELLO_JOIN, 0,
                                (uint32_t)m->tcp->oob.size)) {
            close(fd);
            return twill_bootstrap_tcp_fail(m->tcp, error, TWILL_ERR_SYSTEM, "getrandom: %s",
                                            strerror(errno));
        }
        m->count++;
    }
    return TWILL_OK;
}

/* Drop the connections that tcp->polls shows to be closed. Extends the deadline of a rank that has
 * not returned by then or, if peer->overdue is set, returns TWILL_ERR_PEER, sent to all ranks. Sets
 * *wake to the next such deadline if that is earlier. */
static twill_status check_waiting(struct rendezvous *m, uint64_t *wake, struct twill_error *error)
{
    struct twill_bootstrap_tcp *tcp = m->tcp;
    for (int r = 1; r < tcp->oob.size; r++) {
        struct twill_bootstrap_peer *peer = &tcp->peer[r];
        if (peer->fd >= 0 && tcp->polls[r].fd == peer->fd && tcp->polls[r].revents != 0)
            drop_rank(m, peer);
        if (peer->fd >= 0 || peer->back_by == 0)
            continue;
        if (twill_now() >= peer->back_by && peer->overdue)
            return twill_bootstrap_tcp_fail(tcp, error, TWILL_ERR_PEER,
                                            "rank %d joined and %s before all ranks had joined", r,
                                            peer->silent ? "its host stopped answering" : "ended");
        if (twill_now() >= peer->back_by) {
            peer->overdue = true;
            peer->back_by = twill_wire_deadline(TWILL_PENDING_LAST_NS);
        }
        *wake = twill_min(*wake, peer->back_by);
    }
    return TWILL_OK;
}

/* Return TWILL_ERR_PEER, sent to all ranks, if twillrun has seen an unconnected rank end. If a
 * process has that rank, ignores twillrun from now on. */
static twill_status check_exited(struct rendezvous *m, struct twill_error *error)
{
    struct twill_bootstrap_tcp *tcp = m->tcp;
    struct twill_launcher_exited exited;
    if (tcp->polls[0].revents == 0 || !twill_bootstrap_tcp_exited(tcp, &exited))
        return TWILL_OK;
    struct twill_bootstrap_peer *peer = &tcp->peer[exited.rank];
    if (peer->fd >= 0 && !is_gone(peer->fd)) { /* another process has that rank */
        tcp->launcher = -1;
        return TWILL_OK;
    }
    return twill_bootstrap_tcp_fail(tcp, error, TWILL_ERR_PEER, "rank %u %s", exited.rank,
                                    exited.how);
}

/* Return TWILL_ERR_PEER, sent to all ranks, if job->has_ended() says so of a rank that has not
 * joined. Lowers *wake to the time of the next look. Without has_ended(), only returns TWILL_OK. */
static twill_status check_ended(const struct rendezvous *m, uint64_t *wake,
                                struct twill_error *error)
{
    struct twill_bootstrap_tcp *tcp = m->tcp;
    const struct twill_job *job = tcp->job;
    if (job->has_ended == NULL)
        return TWILL_OK;
    *wake = twill_min(*wake, twill_wire_deadline(TWILL_JOB_ENDED_NS));
    for (uint32_t r = 1; r < (uint32_t)tcp->oob.size; r++)
        if (tcp->peer[r].fd < 0 && job->has_ended(job->user, r))
            return twill_bootstrap_tcp_fail(tcp, error, TWILL_ERR_PEER, "rank %u has ended", r);
    return TWILL_OK;
}

/* Sleep until an event on any socket, `wake`, the end of a pause, or the deadline of a pending
 * connection. The events are in tcp->polls then. Fails only if poll() does. */
static twill_status wait_any(struct rendezvous *m, uint64_t wake, struct twill_error *error)
{
    struct twill_bootstrap_tcp *tcp = m->tcp;
    size_t ranks = (size_t)tcp->oob.size, used = 0;
    /* polls[0] is the launcher, polls[r] rank r. The listener and pending connections follow. */
    tcp->polls[used++] = (struct pollfd){.fd = tcp->launcher, .events = POLLIN};
    for (; used < ranks; used++)
        tcp->polls[used] = (struct pollfd){.fd = tcp->peer[used].fd, .events = POLLIN | POLLRDHUP};
    bool full = m->count >= m->places && count_silent(m) == 0, pauses = twill_now() < m->pause;
    tcp->polls[used++] =
        (struct pollfd){.fd = full || pauses ? -1 : tcp->listener, .events = POLLIN};
    wake = pauses ? twill_min(wake, m->pause) : wake;
    for (size_t i = 0; i < m->count; i++) {
        const struct pending *p = &m->pending[i];
        tcp->polls[used++] = (struct pollfd){.fd = p->fd, .events = p->hello.events};
        wake = twill_min(wake, p->since + TWILL_PENDING_HELLO_NS);
    }
    if (twill_wire_poll(tcp->polls, used, wake) < 0)
        return twill_bootstrap_tcp_fail(tcp, error, TWILL_ERR_SYSTEM, "poll: %s", strerror(errno));
    return TWILL_OK;
}

/* Set oob->address to this host's address in a connection from another host. If there is none, set
 * it to the loopback address of a connection. */
static void find_own_address(struct twill_bootstrap_tcp *tcp)
{
    struct twill_endpoint endpoint = {.loopback = true};
    for (int r = 1; r < tcp->oob.size && endpoint.loopback; r++)
        if (twill_socket_name(tcp->peer[r].fd, false, &endpoint))
            memcpy(tcp->oob.address, endpoint.address, sizeof(tcp->oob.address));
}

/* Send the welcome to all ranks, waiting for each to take it. Ignores failures, which the first
 * all-gather detects. */
static void welcome_ranks(struct twill_bootstrap_tcp *tcp)
{
    struct twill_wire_header header;
    struct twill_bootstrap_welcome body = {.rank = 0};
    uint64_t deadline = twill_wire_deadline(tcp->oob.timeout_ns);
    memcpy(body.address, tcp->oob.address, sizeof(body.address));
    memcpy(body.nonce, tcp->oob.nonce, sizeof(body.nonce));
    for (int r = 1; r < tcp->oob.size; r++) {
        body.rank = (uint32_t)r;
        twill_wire_seal(&tcp->peer[r].session, &header, TWILL_WIRE_WELCOME, 0, &body, sizeof(body),
                        NULL);
        (void)twill_wire_write_by(tcp->peer[r].fd, &header, &body, sizeof(body), deadline);
    }
}

/* Return whether the rank is not connected. */
static bool is_absent(const struct twill_bootstrap_peer *peer)
{
    return peer->fd < 0;
}

/* Log once, at m->say_at, which ranks are absent. Sets *wake to that time if it is earlier. */
static void say_absent(struct rendezvous *m, uint64_t *wake)
{
    const struct twill_bootstrap_tcp *tcp = m->tcp;
    char who[128], rejected[200];
    if (twill_now() >= m->say_at) {
        twill_bootstrap_tcp_list(tcp, is_absent, who, sizeof(who));
        twill_rejected_text(&tcp->oob.rejected, rejected, sizeof(rejected));
        twill_say(tcp->oob.log, TWILL_LOG_WARN,
                  "rank 0 has waited at %s for %.0f s, of at most %.0f (TWILL_TIMEOUT): "
                  "%d of %d ranks have not joined: rank %s (%s; firewall? twillrun --check)",
                  TWILL_ADDRESS_AND_PORT(tcp->job->hosts, tcp->job->port),
                  (double)TWILL_ABSENT_SAY_NS * 1e-9, (double)tcp->oob.timeout_ns * 1e-9, m->absent,
                  tcp->oob.size, who, rejected);
        m->say_at = UINT64_MAX;
    }
    *wake = twill_min(*wake, m->say_at);
}

/* Wait once, and then progress handshakes, admit ranks and accept connections. Returns
 * TWILL_ERR_PEER, sent to all ranks, if a rank has ended, or TWILL_ERR_TIMEOUT once m->deadline has
 * passed. */
static twill_status rendezvous_turn(struct rendezvous *m, struct twill_error *error)
{
    struct twill_bootstrap_tcp *tcp = m->tcp;
    uint64_t wake = m->deadline;
    char who[128], rejected[200];
    TWILL_TRY(error, check_waiting(m, &wake, error));
    TWILL_TRY(error, check_ended(m, &wake, error));
    say_absent(m, &wake);
    if (twill_now() >= m->deadline) {
        twill_bootstrap_tcp_list(tcp, is_absent, who, sizeof(who));
        twill_rejected_text(&tcp->oob.rejected, rejected, sizeof(rejected));
        return twill_bootstrap_tcp_fail(
            tcp, error, TWILL_ERR_TIMEOUT,
            "%d of %d ranks did not join at %s in time: rank %s "
            "(%s%s%s%s%s)",
            m->absent, tcp->oob.size, TWILL_ADDRESS_AND_PORT(tcp->job->hosts, tcp->job->port), who,
            rejected, m->trouble ? "; accept: " : "", m->trouble ? strerror(m->trouble) : "",
            tcp->wide ? "; rank 0 listens on all addresses: " : "", tcp->wide ? tcp->wide : "");
    }
    TWILL_TRY(error, wait_any(m, wake, error));
    TWILL_TRY(error, check_exited(m, error));
    const struct pollfd *polls = &tcp->polls[tcp->oob.size + 1];
    for (size_t i = m->count; i-- > 0;) {
        if (polls[i].revents != 0)
            receive_calls(m, i);
        else if (twill_now() >= m->pending[i].since + TWILL_PENDING_HELLO_NS)
            reject_pending(m, i, TWILL_FAULT_SLOW);
    }
    evict_pending(m);
    return m->absent > 0 ? accept_pending(m, error) : TWILL_OK;
}

twill_status twill_bootstrap_tcp_serve(struct twill_bootstrap_tcp *tcp, const char *listen_fd,
                                       struct twill_error *error)
{
    struct rendezvous m = {.tcp = tcp, .absent = tcp->oob.size - 1, .places = tcp->places};
    twill_status status = TWILL_OK;
    m.deadline = twill_wire_deadline(tcp->oob.timeout_ns);
    m.say_at = tcp->job->has_ended != NULL ? UINT64_MAX : twill_wire_deadline(TWILL_ABSENT_SAY_NS);
    memset(tcp->polls, 0, (size_t)tcp->oob.size * sizeof(*tcp->polls));
    TWILL_TRY(error, twill_bootstrap_tcp_open_port(tcp, listen_fd, m.deadline, error));
    m.pending = calloc(TWILL_BOOTSTRAP_PENDING, sizeof(*m.pending));
    if (!m.pending)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank 0: no memory for %d connections",
                          TWILL_BOOTSTRAP_PENDING);
    while (m.absent > 0 && status == TWILL_OK)
        status = rendezvous_turn(&m, error);
    /* All ranks are here, so what is still pending does not belong to this job. */
    while (m.count > 0)
        reject_pending(&m, m.count - 1, TWILL_FAULT_SLOW);
    twill_secret_wipe(m.pending, TWILL_BOOTSTRAP_PENDING * sizeof(*m.pending));
    free(m.pending);
    TWILL_TRY(error, status);
    twill_bootstrap_tcp_stop_listening(tcp);
    find_own_address(tcp);
    welcome_ranks(tcp);
    return TWILL_OK;
}
