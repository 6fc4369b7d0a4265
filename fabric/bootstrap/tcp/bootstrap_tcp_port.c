/* SPDX-License-Identifier: Apache-2.0 */
/* The port of rank 0, on twillrun's socket or a new one. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"
#include "lib/base/times.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void twill_bootstrap_tcp_share_port(int fd, int shared)
{
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &shared, sizeof(shared));
}

/* Listen on twillrun's socket, the descriptor `text`, and return a duplicate, or -1 if it is no
 * such socket or has not this port. The original stays open, with the port, for a later context of
 * this process, and is closed in programs that this one executes. */
static int adopt_listener(const char *text, uint16_t port, int backlog)
{
    struct twill_endpoint endpoint;
    char *end;
    int on = 0;
    socklen_t length = sizeof(on);
    long fd = strtol(text, &end, 10);
    if (*end != '\0' || fd < 0 || fd > 1 << 20 ||
        getsockopt((int)fd, SOL_SOCKET, SO_ACCEPTCONN, &on, &length) != 0 ||
        !twill_socket_name((int)fd, false, &endpoint) || endpoint.port != port)
        return -1;
    twill_bootstrap_tcp_share_port((int)fd, 1);
    if (!on && listen((int)fd, backlog) != 0)
        return -1;
    (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    return fcntl((int)fd, F_DUPFD_CLOEXEC, 3);
}

/* Return a socket that listens at an address, or -1 with errno set. */
static int listen_address(const struct twill_bootstrap_address *at, int backlog)
{
    return twill_socket_listen((const struct sockaddr *)&at->address, at->length, backlog);
}

/* Listen at the job's address if it is localhost or a numeric address of this host. Else listen at
 * all addresses and set tcp->wide to the reason. A name may resolve to another address elsewhere,
 * and an address of no local interface may be NAT's. Returns the socket, or -1 with errno set. */
static int bind_port(struct twill_bootstrap_tcp *tcp, const struct twill_bootstrap_addresses *found)
{
    struct twill_endpoint endpoint;
    int backlog = tcp->oob.size + TWILL_BOOTSTRAP_PENDING;
    const char *host = tcp->job->hosts;
    struct sockaddr_storage parsed;
    socklen_t length;
    bool numeric = twill_endpoint_address(host, 0, &parsed, &length);
    for (size_t i = 0; strcmp(host, "localhost") == 0 && i < found->count; i++) {
        if (!twill_endpoint_of((const struct sockaddr *)&found->at[i].address, found->at[i].length,
                               &endpoint) ||
            !endpoint.loopback)
            continue;
        int fd = listen_address(&found->at[i], backlog);
        if (fd >= 0 || i + 1 == found->count)
            return fd;
    }
    if (numeric) {
        int fd = listen_address(&found->at[0], backlog);
        if (fd >= 0 || errno != EADDRNOTAVAIL)
            return fd;
    }
    tcp->wide = numeric ? "no interface of this host has that one"
                        : "that is a name, which may be another address elsewhere";
    return twill_socket_listen_at(NULL, tcp->job->port, backlog);
}

/* Return TWILL_ERR_CONFIG if rank 0's address was guessed and is not of this host. */
static twill_status check_place(const struct twill_bootstrap_tcp *tcp,
                                const struct twill_bootstrap_addresses *found,
                                struct twill_error *error)
{
    char interface[32] = "", here[64] = "another host";
    bool local = !tcp->job->guessed;
    for (size_t i = 0; i < found->count && !local; i++) {
        struct twill_endpoint endpoint;
        if (!twill_endpoint_of((const struct sockaddr *)&found->at[i].address, found->at[i].length,
                               &endpoint))
            continue;
        twill_interface_of(interface, endpoint.address);
        local = endpoint.loopback || interface[0];
    }
    (void)gethostname(here, sizeof(here) - 1);
    if (!local)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "rank 0 is on %s, but %s makes the others look for it on %.100s: set "
                          "MASTER_ADDR to a name or address of %s",
                          here, tcp->job->source, tcp->job->hosts, here);
    return TWILL_OK;
}

twill_status twill_bootstrap_tcp_open_port(struct twill_bootstrap_tcp *tcp, const char *listen_fd,
                                           uint64_t deadline, struct twill_error *error)
{
    struct twill_bootstrap_addresses found;
    if (tcp->listener >= 0) /* opened by the launcher's method */
        return TWILL_OK;
    TWILL_TRY(error, twill_bootstrap_resolve(tcp, &found, error));
    TWILL_TRY(error, check_place(tcp, &found, error));
    if (twill_is_set(listen_fd))
        tcp->listener =
            adopt_listener(listen_fd, tcp->job->port, tcp->oob.size + TWILL_BOOTSTRAP_PENDING);
    uint64_t give_up = twill_min(deadline, twill_wire_deadline(TWILL_PORT_IN_USE_NS));
    while (tcp->listener < 0) {
        tcp->listener = bind_port(tcp, &found);
        if (tcp->listener >= 0 || errno != EADDRINUSE || twill_now() >= give_up)
            break;
        poll(NULL, 0, TWILL_PORT_IN_USE_PAUSE_MS);
    }
    if (tcp->listener < 0)
        return TWILL_FAIL(
            error, TWILL_ERR_BOOTSTRAP, "rank 0 cannot listen on %s=%.100s port %u: %s%s",
            tcp->job->source, tcp->job->hosts, tcp->job->port, strerror(errno),
            errno == EADDRINUSE ? " (by another job, or by the launcher itself)" : "");
    (void)fcntl(tcp->listener, F_SETFL, fcntl(tcp->listener, F_GETFL) | O_NONBLOCK);
    return TWILL_OK;
}

/* shutdown() affects all copies of the socket, also those of other processes. The socket stays
 * bound, so that no other program gets the port, but it does not listen. */
void twill_bootstrap_tcp_stop_listening(struct twill_bootstrap_tcp *tcp)
{
    if (tcp->listener < 0)
        return;
    twill_bootstrap_tcp_share_port(tcp->listener, 0);
    (void)shutdown(tcp->listener, SHUT_RDWR);
    close(tcp->listener);
    tcp->listener = -1;
}
