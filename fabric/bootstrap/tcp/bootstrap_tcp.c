/* SPDX-License-Identifier: Apache-2.0 */
/* Open and close the bootstrap over TCP, with rank 0's address from a launcher (launch_info.h). */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "lib/base/times.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SPARE_FILES 320 /* wanted descriptors, in addition to one for each rank */
#define LEAST_FILES 16  /* needed descriptors, in addition to one for each rank */

void twill_bootstrap_tcp_name_run(struct twill_bootstrap_tcp *tcp,
                                  const uint8_t nonce[TWILL_NONCE_BYTES])
{
    memcpy(tcp->oob.nonce, nonce, TWILL_NONCE_BYTES);
    twill_secret_derive(&tcp->key, "run", nonce, TWILL_NONCE_BYTES, &tcp->oob.secret);
}

const char *twill_bootstrap_tcp_self(const struct twill_bootstrap_tcp *tcp,
                                     char text[TWILL_RANK_TEXT])
{
    if (tcp->oob.rank == TWILL_JOIN_ANY)
        snprintf(text, TWILL_RANK_TEXT, "this process");
    else
        snprintf(text, TWILL_RANK_TEXT, "rank %d", tcp->oob.rank);
    return text;
}

/* Set tcp->key to the job's key, and tcp->key_how to its source. A job of a single rank, which has
 * no peer to authenticate, gets a random key. */
static twill_status find_key(struct twill_bootstrap_tcp *tcp,
                             const struct twill_bootstrap_params *params, struct twill_error *error)
{
    const struct twill_job *job = tcp->job;
    char port[16]; /* equal on all ranks, unlike their names of rank 0's host */
    struct twill_secret_sources sources = {.job = params->job,
                                           .file = params->key_file,
                                           .given = job->has_key ? &job->key : NULL,
                                           .identity = job->identity[0] ? job->identity : port};
    snprintf(port, sizeof(port), "%u", job->port);
    if (tcp->oob.size == 1) /* no peer to authenticate */
        return twill_secret_random(&tcp->key, error);
    return twill_secret_find(&tcp->key, &sources, tcp->key_how, sizeof(tcp->key_how), error);
}

/* Replace the interface in an address such as "fe80::1%eth0", which rank 0's host has, by that of
 * TWILL_INTERFACE if this host has none of that name. */
static void localise_host(const struct twill_bootstrap_tcp *tcp, char *host, size_t bytes)
{
    struct sockaddr_storage as_it_is;
    socklen_t length;
    char *scope = strchr(host, '%');
    if (scope && tcp->oob.interface[0] && !twill_endpoint_address(host, 0, &as_it_is, &length))
        snprintf(scope + 1, bytes - (size_t)(scope + 1 - host), "%s", tcp->oob.interface);
}

/* Append the addresses of a name, with job->port, to `found`, until that is full. Returns 0, or the
 * code of getaddrinfo() if the name has none. */
static int resolve_one(const struct twill_bootstrap_tcp *tcp, const char *name,
                       struct twill_bootstrap_addresses *found)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV}, *list;
    char port[16], host[TWILL_JOB_HOSTS + 32];
    snprintf(port, sizeof(port), "%u", tcp->job->port);
    snprintf(host, sizeof(host), "%s", name);
    localise_host(tcp, host, sizeof(host));
    int code = getaddrinfo(host, port, &hints, &list);
    if (code != 0)
        return code;
    for (const struct addrinfo *a = list; a && found->count < TWILL_BOOTSTRAP_ADDRESSES;
         a = a->ai_next) {
        struct twill_bootstrap_address *at = &found->at[found->count++];
        memcpy(&at->address, a->ai_addr, a->ai_addrlen);
        at->length = a->ai_addrlen;
    }
    freeaddrinfo(list);
    return 0;
}

/* Set *found to the addresses of all names of rank 0's host. Returns 0 if there are any, or the
 * code of getaddrinfo() for the last name. */
static int resolve_all(const struct twill_bootstrap_tcp *tcp,
                       struct twill_bootstrap_addresses *found)
{
    char hosts[TWILL_JOB_HOSTS], *rest, *host;
    int code = EAI_NONAME;
    found->count = 0;
    snprintf(hosts, sizeof(hosts), "%s", tcp->job->hosts);
    for (host = strtok_r(hosts, " ", &rest); host; host = strtok_r(NULL, " ", &rest))
        code = resolve_one(tcp, host, found);
    return found->count > 0 ? 0 : code; /* one of several names is enough */
}

/* Clusters such as Kubernetes publish the name of rank 0's host when that has started. */
twill_status twill_bootstrap_resolve(const struct twill_bootstrap_tcp *tcp,
                                     struct twill_bootstrap_addresses *found,
                                     struct twill_error *error)
{
    const double most = (double)tcp->oob.timeout_ns * 1e-9;
    uint64_t give_up = twill_wire_deadline(tcp->oob.timeout_ns),
             say_at = twill_wire_deadline(TWILL_RESOLVE_SAY_NS);
    int code = resolve_all(tcp, found);
    while ((code == EAI_AGAIN || code == EAI_NONAME || code == EAI_NODATA) &&
           twill_now() < give_up) {
        if (twill_now() >= say_at) {
            twill_say(tcp->oob.log, TWILL_LOG_WARN,
                      "%s waits until a name server knows %s=%.200s, %.0f s at most "
                      "(TWILL_TIMEOUT): %s",
                      TWILL_BOOTSTRAP_SELF(tcp), tcp->job->source, tcp->job->hosts, most,
                      gai_strerror(code));
            say_at = UINT64_MAX;
        }
        poll(NULL, 0, TWILL_RESOLVE_PAUSE_MS);
        code = resolve_all(tcp, found);
    }
    if (code == 0)
        return TWILL_OK;
    return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP, "%s: %s=%.200s: %s, for up to %.1f s",
                      TWILL_BOOTSTRAP_SELF(tcp), tcp->job->source, tcp->job->hosts,
                      code == EAI_SYSTEM ? strerror(errno) : gai_strerror(code), most);
}

void twill_bootstrap_tcp_close(struct twill_oob *oob)
{
    struct twill_bootstrap_tcp *tcp = (struct twill_bootstrap_tcp *)oob;
    for (int r = 0; tcp->peer && r < oob->size; r++)
        if (tcp->peer[r].fd >= 0)
            close(tcp->peer[r].fd);
    twill_bootstrap_tcp_stop_listening(tcp);
    if (tcp->root >= 0)
        close(tcp->root);
    if (tcp->peer != NULL) /* wipe the keys of sessions */
        twill_secret_wipe(tcp->peer, (size_t)oob->size * sizeof(*tcp->peer));
    free(tcp->peer);
    free(tcp->polls);
    twill_secret_wipe(tcp, sizeof(*tcp));
    free(tcp);
}

/* Set tcp->places to the most connections that rank 0 may have in the handshake at a time. Set
 * tcp->raises to whether all connections need more descriptors than the present limit allows, often
 * 1024. The limit itself stays. Returns TWILL_ERR_SYSTEM if even the hard limit is too low. */
static twill_status allow_files(struct twill_bootstrap_tcp *tcp, struct twill_error *error)
{
    uint64_t ranks = (uint64_t)tcp->oob.size;
    tcp->places = TWILL_BOOTSTRAP_PENDING;
    if (ranks == 1)
        return TWILL_OK;
    twill_fd_limit_raise(&tcp->files);
    twill_fd_limit_restore(&tcp->files);
    tcp->raises = tcp->files.before < ranks + SPARE_FILES;
    if (tcp->files.now < ranks + LEAST_FILES)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM,
                          "rank 0 needs a descriptor for each of %d ranks, and %d more, but may "
                          "have %llu in all: see ulimit -Hn",
                          tcp->oob.size, LEAST_FILES, (unsigned long long)tcp->files.now);
    tcp->places = (size_t)twill_min(tcp->files.now - ranks - 1, TWILL_BOOTSTRAP_PENDING);
    return TWILL_OK;
}

/* On rank 0, allocate `peer` and `polls`, check the limit of descriptors, and set the run's nonce,
 * which is random, and its secret. Fails if one of these does. */
static twill_status prepare_root(struct twill_bootstrap_tcp *tcp, struct twill_error *error)
{
    uint8_t nonce[TWILL_NONCE_BYTES];
    size_t size = (size_t)tcp->oob.size;
    tcp->peer = calloc(size, sizeof(*tcp->peer));
    tcp->polls = calloc(size + 1 + TWILL_BOOTSTRAP_PENDING, sizeof(*tcp->polls));
    for (size_t r = 0; tcp->peer && r < size; r++) /* closing must not close descriptor 0 */
        tcp->peer[r].fd = -1;
    if (!tcp->peer || !tcp->polls)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank 0: no memory for %zu ranks", size);
    TWILL_TRY(error, allow_files(tcp, error));
    TWILL_TRY(error, twill_bootstrap_random(nonce, error));
    twill_bootstrap_tcp_name_run(tcp, nonce);
    return TWILL_OK;
}

void twill_bootstrap_tcp_raise(struct twill_bootstrap_tcp *tcp)
{
    if (tcp->raises)
        twill_fd_limit_raise(&tcp->files);
}

void twill_bootstrap_tcp_restore(struct twill_bootstrap_tcp *tcp)
{
    if (tcp->raises)
        twill_fd_limit_restore(&tcp->files);
}

/* On rank 0, let all ranks join (twill_bootstrap_tcp_serve()), with the limit of descriptors raised
 * meanwhile. */
static twill_status serve(struct twill_bootstrap_tcp *tcp, const char *listen_fd,
                          struct twill_error *error)
{
    twill_bootstrap_tcp_raise(tcp);
    twill_status status = twill_bootstrap_tcp_serve(tcp, listen_fd, error);
    twill_bootstrap_tcp_restore(tcp);
    return status;
}

/* Copy `requested`, the numeric address that TWILL_INTERFACE leads to, to oob->address. If it is
 * empty, keep the present one, the local address of the connections, but make each of 127.*
 * 127.0.0.1. Only then set oob->address_why to why that one is used. */
static void choose_address(struct twill_oob *oob, const char *requested)
{
    const char *why = "where other ranks reach rank 0";
    if (twill_is_set(requested)) {
        snprintf(oob->address, sizeof(oob->address), "%s", requested);
        return;
    }
    if (strncmp(oob->address, "127.", 4) == 0) /* such as 127.0.1.1, which no interface has */
        snprintf(oob->address, sizeof(oob->address), "127.0.0.1");
    if (oob->size == 1)
        why = "there is no other rank";
    else if (twill_address_is_loopback(oob->address))
        why = "all ranks are on this host";
    else if (oob->rank > 0)
        why = "the route to rank 0";
    snprintf(oob->address_why, sizeof(oob->address_why), "%s", why);
}

/* Append the number of rejected connections to oob->how, if there are any and it fits. */
static void note_rejected(struct twill_oob *oob)
{
    size_t used = strlen(oob->how);
    if (twill_rejected_total(&oob->rejected) == 0 || used + 3 > sizeof(oob->how))
        return;
    used += (size_t)snprintf(oob->how + used, sizeof(oob->how) - used, "; ");
    twill_rejected_text(&oob->rejected, oob->how + used, sizeof(oob->how) - used);
}

/* Return whether a descriptor is a Unix socket of type SOCK_SEQPACKET. */
static bool socket_is_ours(int fd)
{
    int type = 0, domain = 0;
    socklen_t length = sizeof(type);
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_SEQPACKET &&
           getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

/* Set tcp->launcher to twillrun's socket, the descriptor in `text`, and report on it that this rank
 * runs twill_init(). If `text` names no such socket, set it to -1 and report nothing. */
static void open_launcher(struct twill_bootstrap_tcp *tcp, const char *text)
{
    struct twill_launcher_entered entered = {.rank = (uint32_t)tcp->oob.rank};
    char *end;
    tcp->launcher = -1;
    if (!twill_is_set(text))
        return;
    long fd = strtol(text, &end, 10);
    if ((*end != '\0' && *end != ',') || fd < 0 || fd > 1 << 20 || !socket_is_ours((int)fd))
        return;
    tcp->launcher = (int)fd;
    (void)fcntl(tcp->launcher, F_SETFD, FD_CLOEXEC);
    if (send(tcp->launcher, &entered, sizeof(entered), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
        twill_wire_wait(tcp->launcher, POLLOUT, twill_wire_deadline(TWILL_PORT_LEAVE_NS)) ==
            TWILL_WIRE_DONE)
        (void)!send(tcp->launcher, &entered, sizeof(entered), MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool twill_bootstrap_tcp_exited(struct twill_bootstrap_tcp *tcp,
                                struct twill_launcher_exited *exited)
{
    if (tcp->launcher < 0)
        return false;
    ssize_t n = recv(tcp->launcher, exited, sizeof(*exited), MSG_PEEK | MSG_DONTWAIT);
    exited->how[sizeof(exited->how) - 1] = '\0';
    /* Ranks may have been renumbered between twillrun and here. */
    if (n == sizeof(*exited) && exited->size == (uint32_t)tcp->oob.size &&
        exited->rank < exited->size && exited->rank != (uint32_t)tcp->oob.rank)
        return true;
    if (n >= 0) /* a notice of another job, or twillrun has ended */
        tcp->launcher = -1;
    return false;
}

twill_status twill_bootstrap_tcp_open(struct twill_oob **oob, const struct twill_bootstrap_ops *ops,
                                      const struct twill_job *job,
                                      const struct twill_bootstrap_params *params,
                                      struct twill_error *error)
{
    char requested[TWILL_ADDRESS_TEXT] = "";
    twill_status status;
    TWILL_TRY_OR_FAIL(error, twill_oob_new(oob, ops, params, error));
    struct twill_bootstrap_tcp *tcp = (struct twill_bootstrap_tcp *)*oob;
    tcp->listener = job->listener;
    tcp->root = tcp->launcher = -1;
    tcp->job = job;
    (*oob)->rank = job->rank;
    (*oob)->size = job->size;
    snprintf((*oob)->address, sizeof((*oob)->address), "127.0.0.1");
    snprintf((*oob)->how, sizeof((*oob)->how), "%s", job->how);
    open_launcher(tcp, params->launcher_fd);
    TWILL_TRY_OR_FAIL(error, find_key(tcp, params, error));
    /* A wrong TWILL_INTERFACE is wrong on all ranks, so fail before waiting for any of them. */
    if (twill_is_set(params->interface))
        TWILL_TRY_OR_FAIL(error,
                          twill_interface_choose(requested, (*oob)->interface, params->interface,
                                                 params->master_addr, (*oob)->address_why,
                                                 sizeof((*oob)->address_why), error));
    if ((*oob)->rank == 0)
        TWILL_TRY_OR_FAIL(error, prepare_root(tcp, error));
    if ((*oob)->size > 1 && (*oob)->rank == 0)
        TWILL_TRY_OR_FAIL(error, serve(tcp, params->listen_fd, error));
    else if ((*oob)->size > 1)
        TWILL_TRY_OR_FAIL(error, twill_bootstrap_tcp_join(tcp, error));
    choose_address(*oob, requested);
    note_rejected(*oob);
    twill_secret_wipe(&tcp->key, sizeof(tcp->key)); /* the secret of the run replaces it */
    tcp->job = NULL;
    return TWILL_OK;
fail:
    if (*oob)
        twill_bootstrap_tcp_close(*oob);
    else if (job->listener >= 0)
        close(job->listener);
    *oob = NULL;
    return status;
}
