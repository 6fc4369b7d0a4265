/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the local address to connect from. It is the one that the kernel would route by, unless
 * other hosts cannot reach it, as with a tunnel or container bridge. */
#include "fabric/bootstrap/frames.h"
#include "fabric/host/interfaces.h"

#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A choice in progress, a local variable. The result goes to the arrays of the caller. */
struct choice {
    struct twill_link *links; /* [count] all addresses of this host */
    size_t count;
    char *address, *interface, *why;
    size_t why_bytes;
};

/* Set the address and interface of the choice to those of the link. */
static void take_link(struct choice *choice, const struct twill_link *link)
{
    memcpy(choice->address, link->address, TWILL_ADDRESS_TEXT);
    memcpy(choice->interface, link->name, sizeof(link->name));
}

/* Set the choice to the best address by twill_link_worth(), of interface `name` unless that is
 * NULL, and of a family unless that is AF_UNSPEC. Returns false if there is none. */
static bool take_best(struct choice *choice, const char *name, int family)
{
    const struct twill_link *best = NULL;
    for (size_t i = 0; i < choice->count; i++) {
        const struct twill_link *link = &choice->links[i];
        if ((name && strcmp(name, link->name) != 0) ||
            (family != AF_UNSPEC && link->six != (family == AF_INET6)))
            continue;
        if (best == NULL || twill_link_worth(link) > twill_link_worth(best))
            best = link;
    }
    if (best != NULL)
        take_link(choice, best);
    return best != NULL;
}

/* Return the link with an address, or NULL. An address without zone matches one with any zone. */
static const struct twill_link *find_link(const struct choice *choice, const char *address)
{
    size_t plain = strcspn(address, "%");
    for (size_t i = 0; i < choice->count; i++) {
        const char *own = choice->links[i].address;
        bool scoped = address[plain] != '\0';
        if (scoped ? strcmp(own, address) == 0
                   : strncmp(own, address, plain) == 0 && strcspn(own, "%") == plain)
            return &choice->links[i];
    }
    return NULL;
}

/* Return the entry of choice->links with the address from which the kernel would send to `peer`, a
 * numeric address. Returns NULL if there is no route or no such entry. Sends nothing. */
static const struct twill_link *find_route(const struct choice *choice, const char *peer)
{
    struct sockaddr_storage address;
    struct twill_endpoint source;
    socklen_t length;
    if (!twill_endpoint_address(peer, 9, &address, &length))
        return NULL;
    int fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return NULL;
    bool found = connect(fd, (struct sockaddr *)&address, length) == 0 &&
                 twill_socket_name(fd, false, &source);
    close(fd);
    return found ? find_link(choice, source.address) : NULL;
}

/* Set the choice to the address or interface that one entry of TWILL_INTERFACE names. Of an
 * interface, takes the best address, of `family` if it has one. Returns false if there is none. */
static bool take_requested(struct choice *choice, const char *requested, int family)
{
    const struct twill_link *link = find_link(choice, requested);
    if (link != NULL)
        take_link(choice, link);
    return link != NULL || take_best(choice, requested, family) ||
           take_best(choice, requested, AF_UNSPEC);
}

/* Set the choice to the first entry of `requested`, a list of interfaces and addresses. If that is
 * an interface, an address of the IP version of `peer`, which may be NULL, is preferred. Returns
 * TWILL_ERR_CONFIG unless all entries are interfaces or addresses of this host. */
static twill_status choose_requested(struct choice *choice, const char *requested, const char *peer,
                                     struct twill_error *error)
{
    char all[320], address[TWILL_ADDRESS_TEXT], interface[32];
    int family = !peer || !*peer ? AF_UNSPEC : strchr(peer, ':') ? AF_INET6 : AF_INET;
    struct choice other = *choice;
    other.address = address;
    other.interface = interface;
    for (const char *at = requested; at != NULL;) {
        char name[TWILL_ADDRESS_TEXT] = "";
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof(name), "%.*s", (int)twill_min(length, sizeof(name) - 1), at);
        if (!take_requested(at == requested ? choice : &other, name, family)) {
            twill_links_list(choice->links, choice->count, all, sizeof(all));
            return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                              "TWILL_INTERFACE=%.64s: %.64s is no interface or address that is up "
                              "here; there are: %s",
                              requested, name, all);
        }
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    snprintf(choice->why, choice->why_bytes, "set by TWILL_INTERFACE=%s", requested);
    return TWILL_OK;
}

/* Set the choice to the address from which the kernel would send to `peer`, or by its default route
 * if `peer` is NULL or empty. If there is no route, take the best address by twill_link_worth(). Do
 * so also if the default route leads over a tunnel, a virtual interface or loopback. Returns
 * TWILL_ERR_SYSTEM if no interface is up. */
static twill_status choose_route(struct choice *choice, const char *peer, struct twill_error *error)
{
    bool named = peer && *peer;
    /* Without a peer, documentation addresses (TEST-NET-1) take the default route. */
    const struct twill_link *link = find_route(choice, named ? peer : "192.0.2.1");
    if (link == NULL && !named)
        link = find_route(choice, "2001:db8::1");
    /* For a peer, the route decides, whatever device it leads over. A default route may lead over a
     * bridge, as on hosts whose virtual machines share the wire. */
    bool inside = link != NULL && link->kind >= TWILL_LINK_TUNNEL;
    if (link != NULL && (named || (!inside && link->kind != TWILL_LINK_LOOPBACK))) {
        take_link(choice, link);
        snprintf(choice->why, choice->why_bytes, "%s%s%s%s",
                 named ? "the route to " : "the default route", named ? peer : "",
                 inside ? ", although it is " : "", inside ? twill_link_kind_name(link->kind) : "");
        return TWILL_OK;
    }
    if (!take_best(choice, NULL, AF_UNSPEC))
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "no network interface is up, not even loopback");
    snprintf(choice->why, choice->why_bytes, "the best of the interfaces that are up%s",
             named    ? " (there is no route to the peer)"
             : inside ? ", as the default route leads over a tunnel"
                      : ", as there is no default route");
    return TWILL_OK;
}

twill_status twill_interface_choose(char address[TWILL_ADDRESS_TEXT], char interface[32],
                                    const char *requested, const char *peer, char *why,
                                    size_t why_bytes, struct twill_error *error)
{
    struct choice choice = {
        .address = address, .interface = interface, .why = why, .why_bytes = why_bytes};
    TWILL_TRY(error, twill_links_read(&choice.links, &choice.count, error));
    twill_status status = requested && *requested
                              ? choose_requested(&choice, requested, peer, error)
                              : choose_route(&choice, peer, error);
    free(choice.links);
    TWILL_TRY(error, status);
    return TWILL_OK;
}

bool twill_address_is_loopback(const char *address)
{
    return strncmp(address, "127.", 4) == 0 || strcmp(address, "::1") == 0;
}

void twill_address_resolve(char address[TWILL_ADDRESS_TEXT], const char *name)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    address[0] = '\0';
    if (getaddrinfo(name, NULL, &hints, &found) != 0)
        return;
    if (getnameinfo(found->ai_addr, found->ai_addrlen, address, TWILL_ADDRESS_TEXT, NULL, 0,
                    NI_NUMERICHOST) != 0 ||
        twill_address_is_loopback(address))
        address[0] = '\0';
    freeaddrinfo(found);
}

const char *twill_host_alias(const char *name, char mine[TWILL_HOST_TEXT])
{
    const char *at = strchr(name, '@');
    if (strcmp(name, "localhost") != 0)
        return at != NULL ? at + 1 : name;
    mine[0] = mine[TWILL_HOST_TEXT - 1] = '\0';
    (void)gethostname(mine, TWILL_HOST_TEXT - 1);
    return mine;
}

void twill_interface_of(char interface[32], const char *address)
{
    struct choice choice = {0};
    struct twill_error ignored = {0};
    interface[0] = '\0';
    if (twill_links_read(&choice.links, &choice.count, &ignored) != TWILL_OK)
        return;
    const struct twill_link *link = find_link(&choice, address);
    if (link != NULL)
        memcpy(interface, link->name, sizeof(link->name));
    free(choice.links);
}

bool twill_interface_faster(char faster[32], uint32_t *mbits, const char *name)
{
    struct twill_link *links = NULL;
    struct twill_error ignored = {0};
    size_t count = 0;
    if (twill_links_read(&links, &count, &ignored) != TWILL_OK)
        return false;
    const struct twill_link *found = twill_link_faster(links, count, name);
    if (found != NULL) {
        memcpy(faster, found->name, sizeof(found->name));
        *mbits = found->mbits;
    }
    free(links);
    return found != NULL;
}

const char *twill_address_with_port(char text[TWILL_ADDRESS_PORT_TEXT], const char *address,
                                    unsigned port)
{
    const char *format = strchr(address, ' ') != NULL   ? "%.100s port %u"
                         : strchr(address, ':') != NULL ? "[%.100s]:%u"
                                                        : "%.100s:%u";
    snprintf(text, TWILL_ADDRESS_PORT_TEXT, format, address, port);
    return text;
}

void twill_address_localise(char address[TWILL_ADDRESS_TEXT], const char *own)
{
    const char *scope = strchr(own, '%');
    char *theirs = strchr(address, '%');
    if (theirs == NULL || scope == NULL)
        return;
    snprintf(theirs, TWILL_ADDRESS_TEXT - (size_t)(theirs - address), "%s", scope);
}

/* Return whether other hosts can probably reach an interface's address. That is so if the interface
 * is a network device or a container's and the address is not link-local. */
static bool is_outward(const struct twill_link *link)
{
    return link->kind <= TWILL_LINK_PAIR && !link->link_local;
}

void twill_interface_addresses(char *text, size_t bytes)
{
    char first[TWILL_ADDRESS_TEXT] = "", interface[32], why[128];
    struct twill_error ignored = {0};
    struct choice choice = {0};
    size_t used = 0;
    text[0] = '\0';
    if (twill_interface_choose(first, interface, NULL, NULL, why, sizeof(why), &ignored) !=
            TWILL_OK ||
        twill_links_read(&choice.links, &choice.count, &ignored) != TWILL_OK)
        return;
    /* First comes the chosen address, which may be of a bridge, then IPv4, then IPv6. */
    for (int turn = 0; turn < 3; turn++)
        for (size_t i = 0; i < choice.count; i++) {
            const struct twill_link *link = &choice.links[i];
            bool is_chosen = strcmp(link->address, first) == 0 &&
                             link->kind != TWILL_LINK_LOOPBACK && !link->link_local;
            if (turn != (is_chosen   ? 0
                         : link->six ? 2
                                     : 1) ||
                !(is_chosen || is_outward(link)) || used + strlen(link->address) + 2 > bytes)
                continue;
            used +=
                (size_t)snprintf(text + used, bytes - used, "%s%s", used ? " " : "", link->address);
        }
    free(choice.links);
}
