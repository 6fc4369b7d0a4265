/* SPDX-License-Identifier: Apache-2.0 */
/* State that the communicators of a process share: the listener, the listen addresses of the job's
 * ranks, and connections that no communicator has claimed. */
#include "fabric/host/interfaces.h"
#include "fabric/tcp/tcp.h"
#include "lib/base/times.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define BACKLOG        4096 /* the kernel has its own limit */
#define INCOMING_MOST  4096u
#define SPARE          16u  /* preallocated connection records */
#define SILENT         128u /* most connections without a complete call */
#define SILENT_DIVISOR 8u   /* and at most one in 8 of the descriptors */
#define ACCEPTED       16   /* most connections accepted at a time */
#define ADDRESSED      "tcp: cannot listen at %s: %s"

/* What a rank sends to all others when the common state is created. */
struct tcp_peer_info {
    uint32_t wire; /* version and byte order */
    int32_t status;
    uint32_t port;    /* of the listener */
    uint32_t control; /* enum twill_tcp_control */
    uint64_t network; /* of its address (fabric/host/interfaces.h), 0 if unknown */
    uint32_t guard;   /* twill_tcp_guard() */
    char address[TWILL_ADDRESS_TEXT];
    char message[192]; /* if status is not TWILL_OK */
};

twill_status twill_tcp_place(const struct twill_transport_params *params,
                             char address[TWILL_ADDRESS_TEXT], char interface[32], char *why,
                             size_t why_bytes, struct twill_error *error)
{
    const struct twill_oob *oob = params->oob;
    bool asked = params->interface != NULL && params->interface[0] != '\0';
    if (asked || oob->address[0] == '\0')
        return twill_interface_choose(address, interface, params->interface,
                                      oob->address[0] == '\0' ? NULL : oob->address, why, why_bytes,
                                      error);
    snprintf(address, TWILL_ADDRESS_TEXT, "%s", oob->address);
    twill_interface_of(interface, address);
    snprintf(why, why_bytes, "where other ranks reach this host");
    return TWILL_OK;
}

/* Return a hash of the network of one of this host's addresses (the prefix that its interface has).
 * It is equal on all hosts in that network. Returns 0 if this host does not have the address. */
static uint64_t network_at(const char *address)
{
    struct twill_link *links = NULL;
    uint64_t network = 0;
    size_t count = 0;
    (void)twill_links_read(&links, &count, NULL);
    for (size_t i = 0; i < count && network == 0; i++)
        if (strcmp(links[i].address, address) == 0)
            network = links[i].network;
    free(links);
    return network;
}

/* Choose the address, listen there, choose congestion control and protection, and fill in this
 * rank's part of the exchange. Fails with TWILL_ERR_CONFIG if a setting is bad, _SYSTEM if it
 * cannot listen, or _INTERNAL. */
static twill_status start_listening(struct twill_tcp *t, struct tcp_peer_info *info,
                                    struct twill_error *error)
{
    struct twill_tcp_common *c = t->common;
    struct twill_endpoint here;
    struct sockaddr_storage at;
    TWILL_TRY(error, twill_tcp_place(&t->params, info->address, c->interface, c->why,
                                     sizeof(c->why), error));
    if (!twill_endpoint_address(info->address, 0, &at, &c->source.length) ||
        c->source.length > sizeof(c->source.at))
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, ADDRESSED, info->address, "no such address");
    memcpy(&c->source.at, &at, c->source.length);
    c->listener = twill_socket_listen(&c->source.at.any, c->source.length, BACKLOG);
    if (c->listener < 0 || !twill_socket_name(c->listener, false, &here))
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, ADDRESSED, info->address, strerror(errno));
    TWILL_TRY(error, twill_tcp_congestion(&t->params, c->listener, error));
    c->protection.interface = c->interface;
    TWILL_TRY(error, twill_tcp_protection_find(&c->protection, &t->params, error));
    info->guard = twill_tcp_guard(&c->protection);
    info->port = here.port;
    info->control = twill_tcp_control_of(&t->params, c->listener);
    info->network = network_at(info->address);
    (void)twill_address_with_port(c->at, info->address, here.port);
    return TWILL_OK;
}

/* Store a rank's address, and use AES only if it does. Fails as that rank did, with
 * TWILL_ERR_CONFIG if its version or settings differ from ours, or with TWILL_ERR_FABRIC if the
 * address is malformed. `own` is this rank's address. */
static twill_status read_peer_info(struct twill_tcp *t, uint32_t rank, struct tcp_peer_info *info,
                                   const char *own, struct twill_error *error)
{
    struct twill_tcp_address *address = &t->common->address[twill_tcp_rank_in_job(t, rank)];
    struct sockaddr_storage at;
    if (info->wire != TWILL_TCP_WIRE)
        return TWILL_FAIL(
            error, TWILL_ERR_CONFIG,
            "tcp: rank %u runs another version of twill (wire format %08x, here %08x)", rank,
            info->wire, TWILL_TCP_WIRE);
    if (info->status != TWILL_OK)
        return TWILL_FAIL(error, twill_status_received(info->status), "rank %u: %.*s", rank,
                          (int)sizeof(info->message), info->message);
    info->address[sizeof(info->address) - 1] = '\0';
    twill_address_localise(info->address, own);
    if (!twill_endpoint_address(info->address, (uint16_t)info->port, &at, &address->length) ||
        address->length > sizeof(address->at))
        return TWILL_FAIL(error, TWILL_ERR_FABRIC, "tcp: the address of rank %u is malformed",
                          rank);
    memcpy(&address->at, &at, address->length);
    return twill_tcp_guard_agree(&t->common->protection, rank, info->guard, error);
}

/* Decide whether this rank's connections use reno, set common->unpaced to that and the listener to
 * reno. They do if all ranks are in one network and `own` is TWILL_TCP_PACED_BY_SYSTEM. Set
 * common->paced, equal on all ranks, to whether some rank's are paced. Fails only with
 * TWILL_ERR_MEMORY. */
static twill_status decide_pace(struct twill_tcp *t, const struct tcp_peer_info *all,
                                enum twill_tcp_control own, struct twill_error *error)
{
    struct twill_tcp_common *c = t->common;
    enum twill_tcp_control *controls = calloc(t->size, sizeof(*controls));
    uint64_t *networks = calloc(t->size, sizeof(*networks));
    bool has = controls != NULL && networks != NULL;
    for (uint32_t r = 0; has && r < t->size; r++) {
        controls[r] = (enum twill_tcp_control)all[r].control;
        networks[r] = all[r].network;
    }
    c->unpaced = has && twill_tcp_needs_no_pace(controls, networks, t->size, &c->paced) &&
                 own == TWILL_TCP_PACED_BY_SYSTEM && twill_tcp_use_reno(c->listener);
    free(controls);
    free(networks);
    return has ? TWILL_OK
               : TWILL_FAIL(error, TWILL_ERR_MEMORY, "tcp: no memory for %u ranks", t->size);
}

/* Exchange addresses between all ranks, and put them into common->address. `local` is this rank's
 * status so far. A rank where that is a failure takes part, so that all ranks fail with its status.
 * Also fails if the exchange fails or settings differ, or, before the exchange, with
 * TWILL_ERR_MEMORY. */
static twill_status exchange_ports(struct twill_tcp *t, struct tcp_peer_info *mine,
                                   twill_status local, struct twill_error *error)
{
    struct tcp_peer_info *all = calloc(t->size, sizeof(*all));
    t->common->address = calloc(t->common->size, sizeof(*t->common->address));
    if (all == NULL || t->common->address == NULL) {
        free(all);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "tcp: no memory for %u addresses", t->size);
    }
    mine->wire = TWILL_TCP_WIRE;
    mine->status = local;
    if (local != TWILL_OK)
        snprintf(mine->message, sizeof(mine->message), "%.191s",
                 error != NULL && error->message[0] != '\0' ? error->message
                                                            : "tcp cannot be opened");
    twill_status status = twill_oob_allgather(t->params.oob, mine, all, sizeof(*mine), error);
    if (status == TWILL_OK)
        status = local;
    for (uint32_t r = 0; status == TWILL_OK && r < t->size; r++)
        status = read_peer_info(t, r, &all[r], mine->address, error);
    if (status == TWILL_OK)
        status = decide_pace(t, all, (enum twill_tcp_control)mine->control, error);
    free(all);
    return status;
}

/* Open the spare descriptor, if there is none, to accept a connection at the limit. */
static void keep_reserve(struct twill_tcp_common *c)
{
    if (c->reserve < 0 && c->listener >= 0)
        c->reserve = fcntl(c->listener, F_DUPFD_CLOEXEC, TWILL_FD_LEAST);
}

/* Close the spare descriptor, so that another can be made. Returns whether there was one. */
static bool give_reserve(struct twill_tcp_common *c)
{
    bool had = c->reserve >= 0;
    if (had)
        close(c->reserve);
    c->reserve = -1;
    return had;
}

/* Unlink the connection *at from the list and close it, unless a channel has taken it (fd -1).
 * Count it in c->rejected if `rejected`. Wipe its record and keep it in c->spare for a later
 * connection. Reopen the spare descriptor if it was closed. */
static void drop_incoming(struct twill_tcp_common *c, struct twill_tcp_incoming **at, bool rejected)
{
    struct twill_tcp_incoming *incoming = *at;
    *at = incoming->next;
    c->incoming_count--;
    c->silent -= incoming->hello.step == 0;
    c->rejected += rejected;
    if (incoming->fd >= 0)
        close(incoming->fd);
    twill_secret_wipe(&incoming->hello, sizeof(incoming->hello));
    twill_secret_wipe(&incoming->session, sizeof(incoming->session));
    incoming->next = c->spare; /* later connections need no allocation */
    c->spare = incoming;
    keep_reserve(c);
}

/* Return a zeroed connection record, a spare one if there is any, or NULL if out of memory. */
static struct twill_tcp_incoming *new_incoming(struct twill_tcp_common *c)
{
    struct twill_tcp_incoming *incoming = c->spare;
    if (incoming == NULL)
        return calloc(1, sizeof(*incoming));
    c->spare = incoming->next;
    memset(incoming, 0, sizeof(*incoming));
    return incoming;
}

/* Close the listener and all unclaimed connections, and free the common state. */
static void common_close(struct twill_common *common)
{
    struct twill_tcp_common *c = (struct twill_tcp_common *)common;
    while (c->incoming_list != NULL)
        drop_incoming(c, &c->incoming_list, false);
    while (c->spare != NULL) {
        struct twill_tcp_incoming *next = c->spare->next;
        free(c->spare);
        c->spare = next;
    }
    (void)give_reserve(c);
    if (c->listener >= 0)
        close(c->listener);
    pthread_mutex_destroy(&c->lock);
    twill_secret_wipe(&c->secret, sizeof(c->secret));
    free(c->address);
    free(c);
}

/* Add a transport to the users of the common state. */
static void become_user(struct twill_tcp *t)
{
    struct twill_tcp_common *c = t->common;
    pthread_mutex_lock(&c->lock);
    t->next = c->users;
    c->users = t;
    c->newest = twill_max(c->newest, t->params.comm);
    pthread_mutex_unlock(&c->lock);
}

/* Return the limit of silent connections, a small part of the descriptors of this process. */
static unsigned most_silent(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return SPARE;
    return (unsigned)twill_max(twill_min(files.rlim_cur / SILENT_DIVISOR, SILENT), SPARE);
}

/* Create t->common, with all ranks, and put it in *place. If `place` is NULL, the transport owns
 * it. Fails as exchange_ports(), or with TWILL_ERR_MEMORY, and t->common is NULL. */
static twill_status make_common(struct twill_tcp *t, struct twill_common **place,
                                struct twill_error *error)
{
    struct twill_tcp_common *c = calloc(1, sizeof(*c));
    struct tcp_peer_info mine;
    if (c == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "tcp: no memory");
    memset(&mine, 0, sizeof(mine));
    c->base.close = common_close;
    c->listener = c->reserve = -1;
    c->most_silent = most_silent();
    c->rank = twill_tcp_rank_in_job(t, t->rank);
    for (uint32_t r = 0; r < t->size; r++) /* may be only some ranks of the job */
        c->size = twill_max(c->size, twill_tcp_rank_in_job(t, r) + 1);
    const struct twill_oob *oob = t->params.oob;
    twill_secret_derive(&oob->secret, "tcp", oob->nonce, sizeof(oob->nonce), &c->secret);
    pthread_mutex_init(&c->lock, NULL);
    for (unsigned i = 0; i < SPARE; i++) {
        struct twill_tcp_incoming *incoming = calloc(1, sizeof(*incoming));
        if (incoming != NULL) {
            incoming->next = c->spare;
            c->spare = incoming;
        }
    }
    t->common = c;
    twill_status status = start_listening(t, &mine, error);
    status = exchange_ports(t, &mine, status, error);
    if (status != TWILL_OK) {
        common_close(&c->base);
        t->common = NULL;
        return status;
    }
    keep_reserve(c);
    t->owns_common = place == NULL;
    if (place != NULL)
        twill_common_put(place, &c->base);
    return TWILL_OK;
}

twill_status twill_tcp_common_open(struct twill_tcp *t, struct twill_error *error)
{
    struct twill_common **place = t->params.common;
    if (place != NULL && *place != NULL)
        t->common = (struct twill_tcp_common *)*place;
    else
        TWILL_TRY(error, make_common(t, place, error));
    become_user(t);
    return TWILL_OK;
}

/* Progress a handshake, and set incoming->whole once it is complete. Returns false if it failed,
 * else true. */
static bool continue_hello(struct twill_tcp_common *c, struct twill_tcp_incoming *incoming)
{
    bool silent = incoming->hello.step == 0;
    if (incoming->whole)
        return true;
    enum twill_wire_moved outcome =
        twill_hello_move(&incoming->hello, incoming->fd, &incoming->session);
    c->silent -= silent && incoming->hello.step > 0;
    incoming->whole = outcome == TWILL_WIRE_DONE;
    return outcome != TWILL_WIRE_GONE;
}

/* Close one connection in its handshake to make room, and return whether there was one. It must be
 * overdue or, with `pressing`, have sent nothing yet. Of these, choose the oldest that has sent
 * nothing, or else the oldest. Others may take long, as a rank may leave the library during its
 * handshake. */
static bool evict_connections(struct twill_tcp_common *c, bool pressing)
{
    struct twill_tcp_incoming **worst = NULL;
    bool shown = true;
    uint64_t now = twill_now();
    for (struct twill_tcp_incoming **at = &c->incoming_list; *at != NULL; at = &(*at)->next) {
        bool knows = continue_hello(c, *at) && (*at)->hello.step > 0; /* a call may be there */
        if ((*at)->whole || (now < (*at)->until && (knows || !pressing)) || (knows && !shown))
            continue;
        worst = at;
        shown = knows;
    }
    if (worst != NULL)
        drop_incoming(c, worst, true);
    return worst != NULL;
}

/* Keep the number of silent connections below its limit, as any process can open connections and
 * send nothing. Closes the oldest. A rank among them connects again. */
static void bound_silence(struct twill_tcp_common *c)
{
    while (c->silent >= c->most_silent) {
        struct twill_tcp_incoming **oldest = NULL;
        for (struct twill_tcp_incoming **at = &c->incoming_list; *at != NULL; at = &(*at)->next)
            oldest = (*at)->hello.step == 0 ? at : oldest; /* newest first in the list */
        if (!continue_hello(c, *oldest) || (*oldest)->hello.step == 0)
            drop_incoming(c, oldest, true);
    }
}

/* Return whether a connection waits. Without descriptors accept() fails even if none does. */
static bool connection_waits(const struct twill_tcp_common *c)
{
    struct pollfd listener = {.fd = c->listener, .events = POLLIN};
    return poll(&listener, 1, 0) > 0;
}

/* Accept a connection into c->incoming_list. Returns true, also if none was accepted but the caller
 * is to try again. Returns false if none waits or no place is free. Then *why is the errno of a
 * lasting shortage of this process, else 0, as a shortage of the host may pass. */
static bool accept_one(struct twill_tcp_common *c, int *why)
{
    *why = 0;
    if (c->incoming_count >= INCOMING_MOST && !evict_connections(c, false))
        return false;
    bound_silence(c);
    int fd = twill_socket_accept(c->listener);
    if (fd < 0) {
        int failed = errno;
        bool full = failed == EMFILE && connection_waits(c);
        if (full && (evict_connections(c, true) || give_reserve(c)))
            return true;
        *why = full ? failed : 0;
        return failed == ECONNABORTED || failed == EINTR;
    }
    if (c->unpaced) /* the connection may have been made before the listener had reno */
        (void)twill_tcp_use_reno(fd);
    struct twill_tcp_incoming *incoming = new_incoming(c);
    if (incoming == NULL ||
        !twill_hello_expect(&incoming->hello, &c->secret, TWILL_HELLO_DATA, c->rank, c->size)) {
        *why = incoming == NULL ? ENOMEM : errno;
        if (incoming != NULL)
            twill_secret_wipe(&incoming->hello, sizeof(incoming->hello));
        free(incoming);
        close(fd);
        return false;
    }
    incoming->fd = fd;
    incoming->until = twill_wire_deadline(TWILL_TCP_HELLO_NS);
    incoming->next = c->incoming_list;
    c->incoming_list = incoming;
    c->incoming_count++;
    c->silent++;
    return true;
}

/* Return the communicator number that a complete handshake names. */
static uint32_t hello_comm(const struct twill_hello *hello)
{
    return (uint32_t)(hello->said.call.argument >> 8);
}

/* Return whether this rank had and freed the communicator of a connection. Numbers only grow. */
static bool is_past(const struct twill_tcp_common *c, const struct twill_tcp_incoming *incoming)
{
    uint32_t comm = hello_comm(&incoming->hello);
    const struct twill_tcp *user = c->users;
    while (user != NULL && user->params.comm != comm)
        user = user->next;
    return user == NULL && comm <= c->newest && incoming->hello.step > 0;
}

/* Return the channel to a lower rank that a handshake names, or NULL if it cannot be connected. */
static struct twill_tcp_channel *hello_channel(struct twill_tcp *t, const struct twill_hello *hello,
                                               struct twill_error *error)
{
    struct twill_tcp_peer *peer;
    uint32_t rank = 0;
    unsigned number = hello->said.call.argument & 0xff;
    while (rank < t->rank && twill_tcp_rank_in_job(t, rank) != hello->said.call.rank)
        rank++;
    if (rank == t->rank || number >= TWILL_LANES || twill_tcp_peer(t, rank, &peer, error) < 0)
        return NULL;
    struct twill_tcp_channel *channel = &peer->channels[number];
    bool free = channel->state == TWILL_TCP_WAITING || channel->state == TWILL_TCP_CLOSED;
    return free ? channel : NULL;
}

/* With the lock held, accept connections, progress their handshakes and attach those of this
 * transport to their channels. Close those that fail or that no channel can use. Returns more than
 * 0 if any progressed, 0 if none did, or a negative status. */
static int claim_connections(struct twill_tcp *t, struct twill_error *error)
{
    struct twill_tcp_common *c = t->common;
    int why = 0, adopted = 0;
    for (int i = 0; i < ACCEPTED && accept_one(c, &why); i++)
        ;
    if (why != 0)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "tcp: cannot accept a connection: %s%s",
                          strerror(why), why == EMFILE ? " (see ulimit -n)" : "");
    for (struct twill_tcp_incoming **at = &c->incoming_list; *at != NULL;) {
        struct twill_tcp_incoming *incoming = *at;
        uint8_t step = incoming->hello.step;
        bool fine = continue_hello(c, incoming);
        adopted += incoming->hello.step != step;
        bool ours = fine && incoming->whole && hello_comm(&incoming->hello) == t->params.comm;
        if (fine && !ours && !is_past(c, incoming)) {
            at = &incoming->next;
            continue;
        }
        struct twill_tcp_channel *channel = ours ? hello_channel(t, &incoming->hello, error) : NULL;
        if (channel != NULL) {
            twill_tcp_channel_attach(t, channel, incoming->fd, &incoming->session);
            incoming->fd = -1;
            adopted++;
        }
        drop_incoming(c, at, !fine || (ours && channel == NULL));
    }
    return adopted;
}

int twill_tcp_common_adopt(struct twill_tcp *t, struct twill_error *error)
{
    pthread_mutex_lock(&t->common->lock);
    int adopted = claim_connections(t, error);
    pthread_mutex_unlock(&t->common->lock);
    return adopted;
}

void twill_tcp_common_forget(struct twill_tcp *t)
{
    struct twill_tcp_common *c = t->common;
    pthread_mutex_lock(&c->lock);
    struct twill_tcp **user = &c->users;
    while (*user != NULL && *user != t)
        user = &(*user)->next;
    if (*user != NULL)
        *user = t->next;
    for (struct twill_tcp_incoming **at = &c->incoming_list; *at != NULL;) {
        if (is_past(c, *at))
            drop_incoming(c, at, false);
        else
            at = &(*at)->next;
    }
    pthread_mutex_unlock(&c->lock);
}
