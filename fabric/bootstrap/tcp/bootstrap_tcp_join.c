/* SPDX-License-Identifier: Apache-2.0 */
/* The other ranks' side of the rendezvous: find rank 0, authenticate, and wait for the welcome.
 * Rank 0 may start later, and another program may have its port first, so this is repeated. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "lib/base/times.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* State of the search for rank 0, a local variable of twill_bootstrap_tcp_join(). */
struct search {
    struct twill_bootstrap_tcp *tcp;
    uint64_t deadline;
    bool several;           /* there are several addresses, so each has a time limit to answer */
    char last[256];         /* why the last attempt failed */
    bool hopeless;          /* waiting cannot help against that */
    bool away;              /* that was the lack of a route */
    uint64_t away_since;    /* since when no address has a route; 0: one has */
    enum twill_fault fault; /* if the last peer that answered has another KEY or VERSION */
    uint64_t until;         /* when to give up, for `fault` or a closed port; UINT64_MAX: not set */
    bool said;              /* a warning that the search takes long was written */
    bool notified;          /* a rank has ended, as `exited` says */
    struct twill_launcher_exited exited;
};

/* Record in s->exited that rank 0 has ended, as if twillrun had reported it. Returns true. */
static bool root_has_ended(struct search *s)
{
    s->exited.rank = 0;
    snprintf(s->exited.how, sizeof(s->exited.how), "has ended");
    return true;
}

/* Wait for the connection `fd` and for notice that a rank has ended. After a notice, wait only
 * slack_ns more, in which rank 0's own failure message arrives. Returns TWILL_WIRE_DONE if `fd` is
 * ready, TWILL_WIRE_LATER if the time is over, and TWILL_WIRE_GONE if poll() failed. */
static enum twill_wire_moved wait_here(struct search *s, int fd, short events, uint64_t until,
                                       uint64_t slack_ns)
{
    while (!s->notified) {
        struct pollfd both[2] = {{.fd = fd, .events = events},
                                 {.fd = s->tcp->launcher, .events = POLLIN}};
        const struct twill_job *job = s->tcp->job;
        uint64_t turn = job->has_ended != NULL ? twill_wire_deadline(TWILL_JOB_ENDED_NS) : until;
        int n = twill_wire_poll(both, 2, twill_min(turn, until));
        if (n < 0 || both[0].revents != 0 || (n == 0 && twill_now() >= until))
            return n < 0 ? TWILL_WIRE_GONE : n == 0 ? TWILL_WIRE_LATER : TWILL_WIRE_DONE;
        if (n > 0)
            s->notified = twill_bootstrap_tcp_exited(s->tcp, &s->exited);
        else if (job->has_ended != NULL && job->has_ended(job->user, 0))
            s->notified = root_has_ended(s);
    }
    return twill_wire_wait(fd, events, twill_min(until, twill_wire_deadline(slack_ns)));
}

/* Return whether connections over loopback get no answer. Connects to a socket of this process,
 * which listens at the loopback address `at` and a free port and would answer at once. Waits
 * TWILL_LOOPBACK_NS at most. False if there is no socket for this test. */
static bool loopback_is_dropped(const struct twill_bootstrap_address *at)
{
    struct sockaddr_storage own = at->address;
    struct sockaddr *address = (struct sockaddr *)&own;
    socklen_t length = at->length;
    bool dropped = false;
    ((struct sockaddr_in *)(void *)&own)->sin_port = 0; /* at the same place with IPv6 */
    int listener = twill_socket_listen(address, length, 1);
    int fd = listener >= 0 ? twill_socket_new(address->sa_family) : -1;
    if (fd >= 0 && getsockname(listener, address, &length) == 0 &&
        twill_socket_connect(fd, address, length) > 0)
        dropped = twill_wire_wait(fd, POLLOUT, twill_wire_deadline(TWILL_LOOPBACK_NS)) ==
                  TWILL_WIRE_LATER;
    if (fd >= 0)
        close(fd);
    if (listener >= 0)
        close(listener);
    return dropped;
}

/* Return a hint for the user why a connection to `at` failed with the errno `why`, or "".
 * `loopback` says whether `at` is a loopback address. Set *hopeless to whether waiting cannot help,
 * as loopback is down or dropped, descriptors are short, access is denied, or IPv6 is missing. */
static const char *judge_failure(const struct twill_bootstrap_address *at, bool loopback, int why,
                                 bool *hopeless)
{
    bool away = why == ENETUNREACH || why == ENETDOWN || why == EHOSTUNREACH;
    *hopeless = true;
    if (loopback && (away || why == EADDRNOTAVAIL))
        return " (the loopback interface is down: ip link set lo up)";
    if (loopback && why == ETIMEDOUT && loopback_is_dropped(at))
        return " (TCP over loopback is dropped: a firewall, or WSL's mirrored network)";
    if (why == EMFILE)
        return " (see ulimit -n)";
    *hopeless = why == EACCES || why == EPERM || why == EAFNOSUPPORT || why == EPROTONOSUPPORT;
    bool barred = why == ETIMEDOUT || why == EHOSTUNREACH || why == EACCES || why == EPERM;
    return barred ? " (firewall? twillrun --check)" : "";
}

/* Set s->last to why the connection to `at` failed with the errno `why`. Set s->hopeless to whether
 * waiting cannot help, and s->away to whether there is no route (ENETUNREACH, ENETDOWN). */
static void note_failure(struct search *s, const struct twill_bootstrap_address *at, int why)
{
    struct twill_endpoint there = {.loopback = false};
    (void)twill_endpoint_of((const struct sockaddr *)&at->address, at->length, &there);
    const char *hint = judge_failure(at, there.loopback, why, &s->hopeless);
    s->away = why == ENETUNREACH || why == ENETDOWN;
    snprintf(s->last, sizeof(s->last), "connect to %s: %s%s",
             TWILL_ADDRESS_AND_PORT(there.address, there.port),
             why == ETIMEDOUT ? "no answer" : strerror(why), hint);
}

/* Connect to one address. Returns a socket, or -1 with the reason in s->last. A failed connect()
 * sets the time limit s->until to none (UINT64_MAX), as a stranger that answered there has ended.
 * If the port is closed although rank 0 has listened there, it becomes 0, which ends the search. */
static int try_address(struct search *s, const struct twill_bootstrap_address *at)
{
    const struct sockaddr *address = (const struct sockaddr *)&at->address;
    struct pollfd one = {.fd = twill_socket_new(address->sa_family)};
    int why = 0;
    if (one.fd < 0) {
        note_failure(s, at, errno);
        return -1;
    }
    int outcome = twill_socket_connect(one.fd, address, at->length);
    if (outcome < 0) {
        why = errno;
    } else if (outcome > 0) {
        uint64_t until = twill_min(s->deadline, twill_wire_deadline(TWILL_JOIN_ATTEMPT_NS));
        why = wait_here(s, one.fd, POLLOUT, until, 0) == TWILL_WIRE_DONE
                  ? twill_socket_connected(one.fd)
                  : ETIMEDOUT;
    }
    if (why == 0)
        return one.fd;
    note_failure(s, at, why);
    /* The process that had the port has ended. Or rank 0, which listened before, has given up. */
    bool given_up = s->tcp->job->has_ended != NULL && why == ECONNREFUSED;
    s->until = given_up ? 0 : UINT64_MAX;
    close(one.fd);
    return -1;
}

twill_status twill_bootstrap_tcp_read_failure(struct twill_bootstrap_tcp *tcp,
                                              const struct twill_wire_header *header,
                                              struct twill_error *error)
{
    char text[TWILL_WIRE_TEXT + 1] = "";
    if (header->length > TWILL_WIRE_TEXT ||
        twill_wire_read_by(tcp->root, text, header->length,
                           twill_wire_deadline(TWILL_BOOTSTRAP_SLACK_NS)) != TWILL_WIRE_DONE ||
        !twill_wire_is_body(header, text))
        text[0] = '\0';
    twill_text_plain(text, strlen(text));
    twill_status status = header->argument < 0 && header->argument >= TWILL_STATUS_LOWEST
                              ? (twill_status)header->argument
                              : TWILL_ERR_BOOTSTRAP;
    return TWILL_FAIL(error, status, "%s: rank 0 %s: %s", TWILL_BOOTSTRAP_SELF(tcp),
                      header->kind == TWILL_WIRE_REFUSE ? "refused" : "says",
                      *text ? text : "(no reason)");
}

/* Run the handshake over tcp->root. Returns TWILL_WIRE_DONE with tcp->session set. Else sets
 * s->last to the reason. Returns TWILL_WIRE_LATER then if no answer came in time, or
 * TWILL_WIRE_GONE if the connection ended or the answer was wrong. Sets s->fault and, unless it is
 * set, s->until if key or version differ. */
static enum twill_wire_moved say_hello(struct search *s)
{
    struct twill_bootstrap_tcp *tcp = s->tcp;
    struct twill_hello hello;
    uint64_t now = twill_now(), left = s->deadline > now ? s->deadline - now : 0;
    uint64_t until = s->several ? twill_min(s->deadline, twill_wire_deadline(TWILL_JOIN_ANSWER_NS))
                                : s->deadline;
    const struct twill_hello_identity identity = {.role = TWILL_HELLO_JOIN,
                                                  .rank = (uint32_t)tcp->oob.rank,
                                                  .size = (uint32_t)tcp->oob.size,
                                                  .epoch = tcp->job->epoch,
                                                  .argument = left / 1000000};
    enum twill_wire_moved outcome = TWILL_WIRE_GONE;
    if (twill_hello_call(&hello, &tcp->key, &identity))
        do
            outcome = twill_hello_move(&hello, tcp->root, &tcp->session);
        while (outcome == TWILL_WIRE_LATER &&
               wait_here(s, tcp->root, hello.events, until, 0) == TWILL_WIRE_DONE);
    if (outcome == TWILL_WIRE_LATER)
        snprintf(s->last, sizeof(s->last), "connected, but got no answer");
    if (outcome == TWILL_WIRE_GONE)
        snprintf(s->last, sizeof(s->last), "%s",
                 hello.fault == TWILL_FAULT_MALFORMED ? "what answers there is not rank 0"
                 : hello.fault == TWILL_FAULT_VERSION ? "what answers there is another version"
                 : hello.fault == TWILL_FAULT_KEY     ? "what answers there has another key"
                                                      : "the connection was closed");
    bool other = hello.fault == TWILL_FAULT_VERSION || hello.fault == TWILL_FAULT_KEY;
    if (other && s->until == UINT64_MAX)
        s->until = twill_wire_deadline(TWILL_JOIN_DOUBT_NS);
    if (other || outcome == TWILL_WIRE_DONE)
        s->fault = hello.fault;
    twill_secret_wipe(&hello, sizeof(hello));
    return outcome;
}

/* Set oob->rank to `rank` if it has none. Returns false if it has another or `rank` is invalid. */
static bool take_rank(struct twill_oob *oob, uint32_t rank)
{
    if (oob->rank == TWILL_JOIN_ANY && rank > 0 && rank < (uint32_t)oob->size)
        oob->rank = (int)rank;
    return oob->rank != TWILL_JOIN_ANY && (uint32_t)oob->rank == rank;
}

/* Read the body of the welcome, and set the rank, the run's nonce and secret, and this host's
 * address, which is rank 0's if the connection is over loopback. Returns TWILL_WIRE_DONE, or
 * TWILL_WIRE_LATER at the deadline, or TWILL_WIRE_GONE if it is invalid. */
static enum twill_wire_moved read_welcome(struct search *s, const struct twill_wire_header *header)
{
    struct twill_bootstrap_tcp *tcp = s->tcp;
    struct twill_endpoint here;
    struct twill_bootstrap_welcome body;
    enum twill_wire_moved outcome =
        twill_wire_read_by(tcp->root, &body, sizeof(body),
                           twill_wire_later(s->deadline, twill_oob_slack(tcp->oob.timeout_ns)));
    if (outcome != TWILL_WIRE_DONE)
        return outcome;
    if (!twill_wire_is_body(header, &body) || !twill_socket_name(tcp->root, false, &here) ||
        !take_rank(&tcp->oob, body.rank))
        return TWILL_WIRE_GONE;
    body.address[sizeof(body.address) - 1] = '\0';
    twill_bootstrap_tcp_name_run(tcp, body.nonce);
    memcpy(tcp->oob.address, here.loopback ? body.address : here.address, sizeof(tcp->oob.address));
    return TWILL_WIRE_DONE;
}

/* Wait for the header of rank 0's answer. After notice that a rank has ended this waits only a
 * little longer, for rank 0's reason. Returns TWILL_WIRE_DONE if the header is read,
 * TWILL_WIRE_LATER if the time is over, or TWILL_WIRE_GONE with errno. */
static enum twill_wire_moved root_answer_read(struct search *s, struct twill_wire_header *header)
{
    uint64_t slack = twill_oob_slack(s->tcp->oob.timeout_ns);
    uint64_t until = twill_wire_later(s->deadline, slack);
    enum twill_wire_moved outcome;
    size_t done = 0;
    do
        outcome = twill_wire_read(s->tcp->root, header, sizeof(*header), &done);
    while (outcome == TWILL_WIRE_LATER &&
           wait_here(s, s->tcp->root, POLLIN, until, slack) == TWILL_WIRE_DONE);
    return outcome;
}

/* Authenticate and wait for the answer. Sets *final to whether rank 0 answered. Returns its reason
 * if it did not admit this rank. Else returns TWILL_OK, also without an answer. */
static twill_status greet_root(struct search *s, bool *final, struct twill_error *error)
{
    struct twill_bootstrap_tcp *tcp = s->tcp;
    struct twill_wire_header header;
    *final = false;
    if (say_hello(s) != TWILL_WIRE_DONE)
        return TWILL_OK;
    enum twill_wire_moved outcome = root_answer_read(s, &header);
    if (outcome == TWILL_WIRE_DONE && twill_wire_check(&tcp->session, &header) != TWILL_FAULT_NONE)
        outcome = TWILL_WIRE_GONE;
    *final = outcome == TWILL_WIRE_DONE;
    if (*final && (header.kind == TWILL_WIRE_REFUSE || header.kind == TWILL_WIRE_FAIL))
        return twill_bootstrap_tcp_read_failure(tcp, &header, error);
    if (*final) {
        bool welcome = header.kind == TWILL_WIRE_WELCOME &&
                       header.length == sizeof(struct twill_bootstrap_welcome);
        outcome = welcome ? read_welcome(s, &header) : TWILL_WIRE_GONE;
        *final = outcome == TWILL_WIRE_DONE;
    }
    if (outcome == TWILL_WIRE_LATER)
        snprintf(s->last, sizeof(s->last), "connected, but not all ranks have joined");
    if (outcome == TWILL_WIRE_GONE)
        snprintf(s->last, sizeof(s->last), "the connection was closed before all ranks had joined");
    return TWILL_OK;
}

/* Try to join at each address of rank 0 once. If rank 0 answers, sets *final to true, and returns
 * TWILL_OK if it admitted this rank, else its reason. If not, *final is false, this returns
 * TWILL_OK, and s->hopeless says whether waiting cannot help. */
static twill_status attempt(struct search *s, const struct twill_bootstrap_addresses *found,
                            bool *final, struct twill_error *error)
{
    struct twill_bootstrap_tcp *tcp = s->tcp;
    bool hopeless = true, away = true;
    *final = false;
    for (size_t i = 0; i < found->count; i++) {
        s->hopeless = s->away = false;
        tcp->root = try_address(s, &found->at[i]);
        hopeless = hopeless && s->hopeless;
        away = away && s->away;
        if (tcp->root < 0)
            continue;
        twill_status status = greet_root(s, final, error);
        if (*final)
            return status;
        close(tcp->root);
        tcp->root = -1;
    }
    if (!away || s->away_since == 0)
        s->away_since = away ? twill_now() : 0;
    s->hopeless = hopeless || (away && twill_now() - s->away_since > TWILL_JOIN_ROUTE_NS);
    return TWILL_OK;
}

/* Log once, from TWILL_SEARCH_SAY_NS after `since` on, that rank 0 is not found. Log nothing if
 * job->has_ended() is set. */
static void say_search(struct search *s, uint64_t since)
{
    const struct twill_bootstrap_tcp *tcp = s->tcp;
    if (s->said || twill_now() - since < TWILL_SEARCH_SAY_NS || tcp->job->has_ended != NULL)
        return;
    s->said = true;
    twill_say(tcp->oob.log, TWILL_LOG_WARN,
              "%s has looked for rank 0 at %s=%.100s port %u for %.0f s, of at most %.0f "
              "(TWILL_TIMEOUT): %s",
              TWILL_BOOTSTRAP_SELF(tcp), tcp->job->source, tcp->job->hosts, tcp->job->port,
              (double)TWILL_SEARCH_SAY_NS * 1e-9, (double)tcp->oob.timeout_ns * 1e-9, s->last);
}

/* Fail with the reason why rank 0 was not found. Returns TWILL_ERR_PEER if a rank has ended.
 * Returns TWILL_ERR_BOOTSTRAP if waiting cannot help, key or version differ, or the handle is out
 * of date. Else TWILL_ERR_TIMEOUT is returned. */
static twill_status explain_search(const struct search *s, struct twill_error *error)
{
    const struct twill_bootstrap_tcp *tcp = s->tcp;
    if (s->notified)
        return TWILL_FAIL(error, TWILL_ERR_PEER, "%s: rank %u %s", TWILL_BOOTSTRAP_SELF(tcp),
                          s->exited.rank, s->exited.how);
    if (s->hopeless)
        return TWILL_FAIL(
            error, TWILL_ERR_BOOTSTRAP, "%s: rank 0 cannot be reached at %s=%.100s port %u: %s",
            TWILL_BOOTSTRAP_SELF(tcp), tcp->job->source, tcp->job->hosts, tcp->job->port, s->last);
    if (s->fault != TWILL_FAULT_NONE)
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP,
                          "%s: what answers at %s=%.100s port %u has another %s: TWILL_JOB or "
                          "the key file differs (this is of %s), or it is another job",
                          TWILL_BOOTSTRAP_SELF(tcp), tcp->job->source, tcp->job->hosts,
                          tcp->job->port, s->fault == TWILL_FAULT_KEY ? "key" : "version",
                          tcp->key_how);
    if (tcp->oob.rank == TWILL_JOIN_ANY && s->until == 0)
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP,
                          "no job is waiting for new processes at %.100s port %u (%s): the handle, "
                          "of epoch %u, is out of date",
                          tcp->job->hosts, tcp->job->port, s->last, tcp->job->epoch);
    return TWILL_FAIL(
        error, TWILL_ERR_TIMEOUT, "%s: rank 0 was not found at %s=%.100s port %u in time: %s",
        TWILL_BOOTSTRAP_SELF(tcp), tcp->job->source, tcp->job->hosts, tcp->job->port, s->last);
}

twill_status twill_bootstrap_tcp_join(struct twill_bootstrap_tcp *tcp, struct twill_error *error)
{
    struct search s = {
        .tcp = tcp, .deadline = twill_wire_deadline(tcp->oob.timeout_ns), .until = UINT64_MAX};
    struct twill_bootstrap_addresses found;
    uint64_t since = twill_now();
    bool final = false;
    TWILL_TRY(error, twill_bootstrap_resolve(tcp, &found, error));
    s.several = found.count > 1;
    twill_status status = attempt(&s, &found, &final, error);
    while (!final && !s.notified && !s.hopeless && twill_now() < s.deadline &&
           twill_now() < s.until) {
        say_search(&s, since);
        (void)wait_here(&s, -1, 0, twill_wire_deadline(TWILL_MS(TWILL_JOIN_PAUSE_MS)), 0);
        status = s.notified ? status : attempt(&s, &found, &final, error);
    }
    return final ? status : explain_search(&s, error);
}
