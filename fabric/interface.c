/* SPDX-License-Identifier: Apache-2.0 */
/* Which local address to talk from: the one the kernel would route by, unless it belongs to a
 * bridge of containers or virtual machines, where other hosts do not answer. */
#include "fabric/boot_wire.h"

#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* One address of an interface that is up. */
struct candidate {
    const char *name;
    struct twill_endpoint at;
    bool six, link_local;
};

struct choice {
    struct ifaddrs *list;
    char *address, *interface, *why;
    size_t why_bytes;
};

static bool is_virtual(const char *name)
{
    static const char *const prefixes[] = {"docker", "veth", "virbr", "br-", "lxcbr", "cni"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

static bool read_candidate(const struct ifaddrs *entry, struct candidate *c)
{
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP))
        return false;
    c->six = entry->ifa_addr->sa_family == AF_INET6;
    if (!c->six && entry->ifa_addr->sa_family != AF_INET)
        return false;
    c->name = entry->ifa_name;
    if (!twill_endpoint_of(entry->ifa_addr,
                           c->six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
                           &c->at))
        return false;
    c->link_local = c->six && strncmp(c->at.address, "fe80:", 5) == 0;
    return true;
}

/* How much we would like to use it when nobody said more. */
static int worth(const struct candidate *c)
{
    if (is_virtual(c->name))
        return 1;
    if (c->at.loopback)
        return 2;
    if (c->link_local)
        return 3;
    return c->six ? 4 : 5;
}

static void take(struct choice *choice, const struct candidate *c)
{
    snprintf(choice->address, TWILL_ADDRESS_TEXT, "%s", c->at.address);
    snprintf(choice->interface, 32, "%s", c->name);
}

/* The best address by worth; of one interface if a name is given. family: AF_UNSPEC for any. */
static bool take_best(struct choice *choice, const char *name, int family)
{
    struct candidate c, best = {0};
    int best_worth = 0;
    for (const struct ifaddrs *entry = choice->list; entry; entry = entry->ifa_next) {
        if (!read_candidate(entry, &c) || (name && strcmp(name, c.name) != 0) ||
            (family != AF_UNSPEC && c.six != (family == AF_INET6)))
            continue;
        if (worth(&c) > best_worth) {
            best = c;
            best_worth = worth(&c);
        }
    }
    if (best_worth > 0)
        take(choice, &best);
    return best_worth > 0;
}

/* The candidate with this address. */
static bool find_address(const struct choice *choice, const char *address, struct candidate *c)
{
    for (const struct ifaddrs *entry = choice->list; entry; entry = entry->ifa_next)
        if (read_candidate(entry, c) && strcmp(c->at.address, address) == 0)
            return true;
    return false;
}

/* The address the kernel would send from. Connecting a UDP socket sends nothing. */
static bool find_route(const struct choice *choice, const char *peer, struct candidate *c)
{
    struct sockaddr_storage address;
    struct twill_endpoint source;
    socklen_t length;
    if (!twill_endpoint_address(peer, 9, &address, &length))
        return false;
    int fd = socket(address.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    bool found = connect(fd, (struct sockaddr *)&address, length) == 0 &&
                 twill_socket_name(fd, false, &source);
    close(fd);
    return found && find_address(choice, source.address, c);
}

/* "lo 127.0.0.1, eth0 10.0.0.2" */
static void list_all(const struct choice *choice, char *text, size_t bytes)
{
    struct candidate c;
    size_t used = 0;
    text[0] = '\0';
    for (const struct ifaddrs *entry = choice->list; entry && used + 1 < bytes;
         entry = entry->ifa_next)
        if (read_candidate(entry, &c))
            used += (size_t)snprintf(text + used, bytes - used, "%s%s %s", used ? ", " : "", c.name,
                                     c.at.address);
}

static twill_status choose_wanted(struct choice *choice, const char *wanted, const char *peer,
                                  struct twill_error *error)
{
    char all[320];
    struct candidate c;
    int family = !peer || !*peer ? AF_UNSPEC : strchr(peer, ':') ? AF_INET6 : AF_INET;
    bool found = find_address(choice, wanted, &c);
    if (found)
        take(choice, &c);
    else /* of the peer's family if the interface has one */
        found = take_best(choice, wanted, family) || take_best(choice, wanted, AF_UNSPEC);
    if (found) {
        snprintf(choice->why, choice->why_bytes, "as TWILL_INTERFACE=%s asks for", wanted);
        return TWILL_OK;
    }
    list_all(choice, all, sizeof(all));
    return TWILL_FAIL(
        error, TWILL_ERR_CONFIG,
        "TWILL_INTERFACE=%.64s is no interface or address that is up here; there are: "
        "%s",
        wanted, all);
}

static twill_status choose_route(struct choice *choice, const char *peer, struct twill_error *error)
{
    struct candidate c;
    bool named = peer && *peer;
    /* Nobody in particular: whoever a default route leads to (TEST-NET-1 and documentation). */
    bool routed =
        named ? find_route(choice, peer, &c)
              : find_route(choice, "192.0.2.1", &c) || find_route(choice, "2001:db8::1", &c);
    bool bad = routed && (is_virtual(c.name) || (c.at.loopback && !named));
    if (routed && (named || !bad)) {
        /* To a peer the route counts, also over a bridge: it is reachable there, not elsewhere. */
        take(choice, &c);
        snprintf(choice->why, choice->why_bytes, "%s%s%s",
                 named ? "the route to " : "the default route", named ? peer : "",
                 bad ? ", although it is a virtual bridge" : "");
        return TWILL_OK;
    }
    if (!take_best(choice, NULL, AF_UNSPEC))
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "no network interface is up, not even loopback");
    snprintf(choice->why, choice->why_bytes, "the best of the interfaces that are up%s",
             named ? " (there is no route to the peer)" : ", as there is no default route");
    return TWILL_OK;
}

twill_status twill_interface_choose(char address[TWILL_ADDRESS_TEXT], char interface[32],
                                    const char *wanted, const char *peer, char *why,
                                    size_t why_bytes, struct twill_error *error)
{
    struct choice choice = {
        .address = address, .interface = interface, .why = why, .why_bytes = why_bytes};
    if (getifaddrs(&choice.list) != 0)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "getifaddrs: %s", strerror(errno));
    twill_status status = wanted && *wanted ? choose_wanted(&choice, wanted, peer, error)
                                            : choose_route(&choice, peer, error);
    freeifaddrs(choice.list);
    TWILL_TRY(error, status);
    return TWILL_OK;
}

void twill_interface_of(char interface[32], const char *address)
{
    struct candidate c;
    struct choice choice = {0};
    interface[0] = '\0';
    if (getifaddrs(&choice.list) != 0)
        return;
    if (find_address(&choice, address, &c))
        snprintf(interface, 32, "%s", c.name);
    freeifaddrs(choice.list);
}
