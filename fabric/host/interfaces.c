/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the network interfaces of this host, by ioctl, as /sys may show another namespace. */
#include "fabric/host/interfaces.h"
#include "fabric/bootstrap/frames.h"

#include <errno.h>
#include <ifaddrs.h>
#include <linux/ethtool.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

const char *twill_link_kind_name(enum twill_link_kind kind)
{
    static const char *const names[] = {
        "a network device", "a container's interface",    "loopback",
        "a bridge",         "a tunnel or virtual device", "for containers or virtual machines"};
    return names[kind];
}

/* Return whether a text begins with one of the prefixes, which end with NULL. */
static bool begins_with_one_of(const char *text, const char *const *prefixes)
{
    for (; *prefixes != NULL; prefixes++)
        if (strncmp(text, *prefixes, strlen(*prefixes)) == 0)
            return true;
    return false;
}

/* Return whether an interface has a name that container runtimes or hypervisors give. */
static bool has_inner_name(const char *name)
{
    static const char *const names[] = {"docker", "veth",    "virbr",   "br-",    "lxcbr",
                                        "lxdbr",  "cni",     "podman",  "cali",   "flannel",
                                        "cilium", "lxc",     "kube",    "weave",  "vnet",
                                        "vmnet",  "vboxnet", "nerdctl", "antrea", NULL};
    return begins_with_one_of(name, names);
}

/* Run the ioctl `request` on the interface `name`, over the socket `fd`, which can be any. `data`
 * is the request's argument, which gets the result. It is NULL only for SIOCGIFHWADDR. Returns 0,
 * or for SIOCGIFHWADDR the interface's hardware type (ARPHRD_...), or -1 with errno. */
static int query_link(int fd, const char *name, unsigned long request, void *data)
{
    struct ifreq question;
    memset(&question, 0, sizeof(question));
    snprintf(question.ifr_name, sizeof(question.ifr_name), "%.15s", name);
    question.ifr_data = data;
    int answer = ioctl(fd, request, &question);
    if (answer == 0 && data == NULL) /* SIOCGIFHWADDR */
        answer = question.ifr_hwaddr.sa_family;
    return answer;
}

/* Return the kind of an interface, by its name, driver, hardware and flags (IFF_...). `fd` is any
 * socket, for ioctls. */
static enum twill_link_kind interface_kind(int fd, const char *name, unsigned flags)
{
    static const char *const tunnels[] = {"tun",       "vxlan", "geneve", "ipip",  "ip6tnl",
                                          "gre",       "sit",   "dummy",  "ifb",   "openvswitch",
                                          "wireguard", "vti",   "vrf",    "nlmon", NULL};
    struct ethtool_drvinfo driver = {.cmd = ETHTOOL_GDRVINFO};
    if (flags & IFF_LOOPBACK)
        return TWILL_LINK_LOOPBACK;
    if (has_inner_name(name))
        return TWILL_LINK_INNER;
    if (query_link(fd, name, SIOCETHTOOL, &driver) != 0)
        driver.driver[0] = '\0';
    driver.driver[sizeof(driver.driver) - 1] = '\0';
    if (strcmp(driver.driver, "bridge") == 0)
        return TWILL_LINK_BRIDGE;
    if (strcmp(driver.driver, "veth") == 0)
        return TWILL_LINK_PAIR;
    int hardware = query_link(fd, name, SIOCGIFHWADDR, NULL);
    if (begins_with_one_of(driver.driver, tunnels) || (flags & IFF_POINTOPOINT) ||
        hardware == ARPHRD_TUNNEL || hardware == ARPHRD_TUNNEL6 || hardware == ARPHRD_SIT ||
        hardware == ARPHRD_IPGRE || hardware == ARPHRD_PPP || hardware == ARPHRD_NONE)
        return TWILL_LINK_TUNNEL;
    return TWILL_LINK_REAL;
}

/* Return the speed of an interface in Mbit/s, as its driver reports it, or 0 if it is not known.
 * `fd` is any socket, for the ioctl. */
static uint32_t speed_of(int fd, const char *name)
{
    struct ethtool_cmd command = {.cmd = ETHTOOL_GSET};
    if (query_link(fd, name, SIOCETHTOOL, &command) != 0)
        return 0;
    uint32_t mbits = (uint32_t)command.speed_hi << 16 | command.speed;
    return mbits == UINT32_MAX || mbits == UINT16_MAX ? 0 : mbits;
}

/* Return a hash of the address family, the network's prefix and its length. It is the same for all
 * addresses of a network. */
static uint64_t network_of(const struct sockaddr *address, const struct sockaddr *mask)
{
    const unsigned char *a, *m;
    size_t bytes = 4;
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ address->sa_family;
    if (address->sa_family == AF_INET6) {
        a = ((const struct sockaddr_in6 *)(const void *)address)->sin6_addr.s6_addr;
        m = ((const struct sockaddr_in6 *)(const void *)mask)->sin6_addr.s6_addr;
        bytes = 16;
    } else {
        a = (const unsigned char *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
        m = (const unsigned char *)&((const struct sockaddr_in *)(const void *)mask)->sin_addr;
    }
    for (size_t i = 0; i < 2 * bytes; i++)
        hash = (hash ^ (i < bytes ? a[i] & m[i] : m[i - bytes])) * UINT64_C(0x100000001b3);
    return hash;
}

/* Set *link from an entry of getifaddrs(), with kind and speed. `fd` is any socket, for ioctls.
 * Returns false if the entry has no IP address or is not up. */
static bool read_link(int fd, const struct ifaddrs *entry, struct twill_link *link)
{
    struct twill_endpoint at;
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP))
        return false;
    memset(link, 0, sizeof(*link));
    link->six = entry->ifa_addr->sa_family == AF_INET6;
    if (!link->six && entry->ifa_addr->sa_family != AF_INET)
        return false;
    if (!twill_endpoint_of(entry->ifa_addr,
                           link->six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
                           &at))
        return false;
    memcpy(link->address, at.address, sizeof(link->address));
    snprintf(link->name, sizeof(link->name), "%s", entry->ifa_name);
    link->link_local = link->six && strncmp(at.address, "fe80:", 5) == 0;
    link->kind = interface_kind(fd, link->name, entry->ifa_flags);
    link->mbits = speed_of(fd, link->name);
    if (entry->ifa_netmask != NULL)
        link->network = network_of(entry->ifa_addr, entry->ifa_netmask);
    return true;
}

twill_status twill_links_read(struct twill_link **links, size_t *count, struct twill_error *error)
{
    struct ifaddrs *list;
    size_t entries = 0;
    *links = NULL;
    *count = 0;
    if (getifaddrs(&list) != 0)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "getifaddrs: %s", strerror(errno));
    for (const struct ifaddrs *entry = list; entry; entry = entry->ifa_next)
        entries++;
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    *links = calloc(entries + 1, sizeof(**links));
    for (const struct ifaddrs *entry = list; *links && entry; entry = entry->ifa_next)
        *count += read_link(fd, entry, &(*links)[*count]);
    if (fd >= 0)
        close(fd);
    freeifaddrs(list);
    if (*links == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory for %zu interfaces", entries);
    return TWILL_OK;
}

const struct twill_link *twill_link_faster(const struct twill_link *links, size_t count,
                                           const char *name)
{
    const struct twill_link *own = NULL, *fastest = NULL;
    for (size_t i = 0; i < count && own == NULL; i++)
        own = strcmp(links[i].name, name) == 0 ? &links[i] : NULL;
    for (size_t i = 0; own != NULL && own->mbits > 0 && i < count; i++) {
        const struct twill_link *link = &links[i];
        if (link->kind == TWILL_LINK_REAL && !link->link_local && link->network != own->network &&
            link->mbits / 2 >= own->mbits && (fastest == NULL || link->mbits > fastest->mbits))
            fastest = link;
    }
    return fastest;
}

int twill_link_worth(const struct twill_link *link)
{
    switch (link->kind) {
    case TWILL_LINK_REAL:
        return link->link_local ? 6 : link->six ? 9 : 10;
    case TWILL_LINK_PAIR:
        return link->link_local ? 5 : link->six ? 7 : 8;
    case TWILL_LINK_LOOPBACK:
        return link->six ? 3 : 4;
    case TWILL_LINK_BRIDGE:
        return 2;
    default:
        return 1;
    }
}

void twill_links_list(const struct twill_link *links, size_t count, char *text, size_t bytes)
{
    size_t used = 0, listed = 0, all = 0;
    bool others = false;
    text[0] = '\0';
    for (size_t i = 0; i < count; i++)
        others = others || !links[i].link_local;
    for (int worth = 10; worth > 0; worth--)
        for (size_t i = 0; i < count; i++) {
            char one[sizeof(links[i].name) + TWILL_ADDRESS_TEXT + 4];
            if (twill_link_worth(&links[i]) != worth || (others && links[i].link_local))
                continue;
            all++;
            int n = snprintf(one, sizeof(one), "%s%s %s", listed > 0 ? ", " : "", links[i].name,
                             links[i].address);
            if (listed + 1 < all || used + (size_t)n + 20 >= bytes) /* for " and N more" */
                continue;
            memcpy(text + used, one, (size_t)n + 1);
            used += (size_t)n;
            listed++;
        }
    if (listed < all)
        snprintf(text + used, bytes - used, " and %zu more", all - listed);
}
