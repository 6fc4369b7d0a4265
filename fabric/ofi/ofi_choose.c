/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses provider, domain and interface: those that the user set, else the best fabric that works,
 * on the interface where the other ranks reach this host. */
#include "fabric/ofi/ofi.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <linux/if_arp.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A provider that is used by default, an entry of a constant table with the best first. The table
 * omits shm (twill has its own), udp and sockets (slow), and net (stops reading from a peer at an
 * unexpected message). */
static const struct preference {
    const char *name;
    bool ip; /* it is bound to the interface it is opened on; the others know their network */
} preferences[] = {{"cxi", false},  {"gni", false}, {"verbs;ofi_rxm", false},
                   {"psm2", false}, {"opx", false}, {"efa", false},
                   {"tcp", true}};

/* A provider that is refused even if the user sets it, and why (test_fabric_providers.c). An entry
 * of a constant table. */
static const struct refusal {
    const char *name, *why;
} refusals[] = {
    {"shm",
     "libfabric's shm gives messages to the wrong receives when some receives have wildcards "
     "(1.17); on a node twill has its own"},
    {"udp", "libfabric's udp;ofi_rxd does not complete all sends when many messages are under way "
            "(1.17); use tcp"},
};

/* Return the name of libfabric's provider in TWILL_PROVIDER=[ofi:]NAME, or NULL if not set. */
static const char *provider_name(const char *asked)
{
    return asked != NULL && strncmp(asked, "ofi:", 4) == 0 ? asked + 4 : asked;
}

/* Return whether the provider is `asked`, perhaps with layers ("tcp" matches tcp;ofi_rxm). */
static bool name_matches(const char *provider, const char *asked)
{
    size_t n = strlen(asked);
    return n > 0 && twill_words_equal(provider, asked, n) &&
           (provider[n] == '\0' || provider[n] == ';');
}

/* Return why a provider is refused even if the user asks for it, or NULL if it is not refused. */
static const char *why_refused(const char *provider)
{
    for (size_t i = 0; provider != NULL && i < TWILL_ARRAY_LENGTH(refusals); i++)
        if (name_matches(provider, refusals[i].name))
            return refusals[i].why;
    return NULL;
}

/* Return the domain that TWILL_TUNE=domain sets, or NULL. */
static const char *domain_of(const struct twill_transport_params *params)
{
    return twill_transport_setting(params, "TWILL_TUNE=domain");
}

/* Return whether a text is neither NULL nor empty. */
static bool is_set(const char *text)
{
    return text != NULL && text[0] != '\0';
}

/* Return hints for fi_getinfo(), which the caller frees, or NULL if there is no memory. */
static struct fi_info *hints_create(const struct twill_libfabric *library)
{
    struct fi_info *hints = library->dupinfo(NULL);
    if (hints == NULL)
        return NULL;
    hints->caps = FI_TAGGED;
    hints->mode =
        FI_CONTEXT | FI_CONTEXT2 | FI_ASYNC_IOV; /* opx needs the last one; we never send vectors */
    hints->ep_attr->type = FI_EP_RDM;
    hints->tx_attr->msg_order = FI_ORDER_SAS;
    hints->rx_attr->msg_order = FI_ORDER_SAS;
    hints->domain_attr->mr_mode =
        FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
    hints->domain_attr->threading = FI_THREAD_DOMAIN;
    hints->domain_attr->control_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->data_progress = FI_PROGRESS_MANUAL;
    hints->domain_attr->resource_mgmt = FI_RM_ENABLED;
    return hints;
}

/* This asks for older and older versions of the interface, as an older library knows only those. */
twill_status twill_ofi_list(const struct twill_libfabric *library, struct fi_info **list,
                            struct twill_error *error)
{
    static const uint32_t versions[] = {FI_VERSION(1, 14), FI_VERSION(1, 9), FI_VERSION(1, 5)};
    struct fi_info *hints = hints_create(library);
    if (hints == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "libfabric: no memory for hints");
    int rc = -FI_ENODATA;
    *list = NULL;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(versions) && rc != 0; i++)
        rc = twill_ofi_library_getinfo(library, versions[i], hints, list);
    library->freeinfo(hints);
    if (rc != 0)
        return TWILL_FAIL(error, TWILL_ERR_FABRIC,
                          "libfabric offers no provider with reliable tagged messages: %s",
                          library->explain(-rc));
    return TWILL_OK;
}

/* Set *bytes to the IP address within a socket address, and return its size of 4 or 16. If there is
 * none, set *bytes to NULL and return 0. */
static size_t address_bytes(const void *address, size_t length, const void **bytes)
{
    const struct sockaddr *any = address;
    *bytes = NULL;
    if (any == NULL || length < sizeof(struct sockaddr_in))
        return 0;
    if (any->sa_family == AF_INET) {
        *bytes = &((const struct sockaddr_in *)address)->sin_addr;
        return sizeof(struct in_addr);
    }
    if (any->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        *bytes = &((const struct sockaddr_in6 *)address)->sin6_addr;
        return sizeof(struct in6_addr);
    }
    return 0;
}

/* Return whether the addresses of the endpoint are socket addresses. */
static bool has_socket_address(const struct fi_info *info)
{
    return info->addr_format == FI_SOCKADDR || info->addr_format == FI_SOCKADDR_IN ||
           info->addr_format == FI_SOCKADDR_IN6;
}

/* Return whether the endpoint's source is the IP address in a socket address, whatever the port. */
static bool same_address(const struct fi_info *info, const void *address, size_t length)
{
    const void *a, *b;
    if (!has_socket_address(info))
        return false;
    size_t n = address_bytes(info->src_addr, info->src_addrlen, &a);
    return n > 0 && address_bytes(address, length, &b) == n && memcmp(a, b, n) == 0;
}

/* Return whether the endpoint's source is the numeric address `text`, without its scope (%eth0). */
static bool at_address(const struct fi_info *info, const char *text)
{
    char plain[TWILL_ADDRESS_TEXT];
    snprintf(plain, sizeof(plain), "%s", text);
    plain[strcspn(plain, "%")] = '\0';
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    if (inet_pton(AF_INET, plain, &v4.sin_addr) == 1)
        return same_address(info, &v4, sizeof(v4));
    return inet_pton(AF_INET6, plain, &v6.sin6_addr) == 1 && same_address(info, &v6, sizeof(v6));
}

/* Return whether the endpoint's source is an address of this interface in the list. */
static bool at_interface(const struct fi_info *info, const char *name, struct ifaddrs *interfaces)
{
    for (struct ifaddrs *i = interfaces; i != NULL; i = i->ifa_next) {
        if (i->ifa_addr == NULL || strcmp(i->ifa_name, name) != 0)
            continue;
        size_t length = i->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in)
                                                          : sizeof(struct sockaddr_in6);
        if (same_address(info, i->ifa_addr, length))
            return true;
    }
    return false;
}

/* Return whether the endpoint is one of a list, by commas, of domains, addresses and interfaces. */
static bool is_at(const struct fi_info *info, const char *list, struct ifaddrs *interfaces)
{
    bool found = false;
    for (const char *at = list; at != NULL && !found;) {
        char name[TWILL_ADDRESS_TEXT] = "";
        size_t length = strcspn(at, ",");
        snprintf(name, sizeof(name), "%.*s", (int)twill_min(length, sizeof(name) - 1), at);
        found = strcmp(info->domain_attr->name, name) == 0 || at_address(info, name) ||
                at_interface(info, name, interfaces);
        at = at[length] == ',' ? at + length + 1 : NULL;
    }
    return found;
}

/* Return whether the endpoint's source is a link-local IPv6 address. */
static bool is_link_local(const struct fi_info *info)
{
    const void *bytes;
    return has_socket_address(info) &&
           address_bytes(info->src_addr, info->src_addrlen, &bytes) == sizeof(struct in6_addr) &&
           IN6_IS_ADDR_LINKLOCAL((const struct in6_addr *)bytes);
}

/* Return whether the endpoint's source is 127.0.0.1 or ::1. */
static bool info_is_loopback(const struct fi_info *info)
{
    return at_address(info, "127.0.0.1") || at_address(info, "::1");
}

bool twill_ofi_is_ip(const struct fi_info *info)
{
    return has_socket_address(info) && !name_matches(info->fabric_attr->prov_name, "verbs");
}

/* Return the provider's place in the order of preference, 0 if it is `asked`, or UINT32_MAX if it
 * must not be used. Sets *ip to whether it is bound to an IP interface. */
static uint32_t provider_rank(const struct fi_info *info, const char *asked, bool *ip)
{
    const char *name = info->fabric_attr->prov_name;
    *ip = twill_ofi_is_ip(info);
    if (why_refused(name) != NULL)
        return UINT32_MAX;
    if (is_set(asked))
        return name_matches(name, provider_name(asked)) ? 0 : UINT32_MAX;
    for (uint32_t i = 0; i < TWILL_ARRAY_LENGTH(preferences); i++) {
        if (!name_matches(name, preferences[i].name))
            continue;
        *ip = preferences[i].ip;
        return i;
    }
    return UINT32_MAX;
}

/* Return how well an endpoint suits, where less is better, or UINT32_MAX if it must not be used. */
static uint32_t info_rank(const struct fi_info *info, const struct twill_transport_params *params,
                          struct ifaddrs *interfaces)
{
    bool ip;
    uint32_t provider = provider_rank(info, params->provider, &ip);
    const char *domain = info->domain_attr->name;
    const char *reached = params->oob->address;
    if (provider == UINT32_MAX ||
        (is_set(domain_of(params)) && strcmp(domain, domain_of(params)) != 0))
        return UINT32_MAX;
    uint32_t penalty = is_link_local(info) ? 2 : 0;
    if (is_set(params->interface)) {
        if (!is_at(info, params->interface, interfaces))
            return UINT32_MAX;
        penalty += at_address(info, reached) ? 0 : 1;
    } else if (is_set(reached)) {
        bool there = at_address(info, reached);
        if (ip && !there && !is_set(domain_of(params)))
            return UINT32_MAX;
        penalty += there ? 0 : 1;
    } else {
        penalty += info_is_loopback(info) ? 4 : 0;
    }
    return provider * 16 + penalty;
}

/* Append a name to a list, unless it is there. If it does not fit, append "..." once. */
static void add_name(char *list, size_t bytes, const char *name)
{
    size_t n = strlen(name), used = strlen(list);
    for (const char *at = list; (at = strstr(at, name)) != NULL; at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == '\0' || at[n] == ','))
            return;
    if (used + n + 8 < bytes)
        snprintf(list + used, bytes - used, "%s%s", used == 0 ? "" : ", ", name);
    else if (strcmp(list + used - 3, "...") != 0)
        snprintf(list + used, bytes - used, ", ...");
}

/* Return TWILL_ERR_CONFIG, naming the setting that excludes all endpoints of `list`, or
 * TWILL_ERR_FABRIC if none does, with a message that says what there is. */
static twill_status explain_none(const struct fi_info *list,
                                 const struct twill_transport_params *params,
                                 struct twill_error *error)
{
    char providers[256] = "", places[256] = "";
    for (const struct fi_info *i = list; i != NULL; i = i->next) {
        bool ip;
        if (why_refused(i->fabric_attr->prov_name) == NULL)
            add_name(providers, sizeof(providers), i->fabric_attr->prov_name);
        if (provider_rank(i, params->provider, &ip) == UINT32_MAX || is_link_local(i))
            continue;
        char text[TWILL_ADDRESS_TEXT], place[128];
        twill_ofi_address_text(i, i->src_addr, i->src_addrlen, text, sizeof(text));
        snprintf(place, sizeof(place), "%s (%s)", i->domain_attr->name, text);
        add_name(places, sizeof(places), place);
    }
    if (is_set(params->provider) && why_refused(provider_name(params->provider)) != NULL)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_PROVIDER=%s is not used: %s",
                          params->provider, why_refused(provider_name(params->provider)));
    if (places[0] == '\0' && is_set(params->provider))
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "TWILL_PROVIDER=%s: libfabric has no such provider here; it has %s",
                          params->provider, providers);
    if (places[0] == '\0')
        return TWILL_FAIL(error, TWILL_ERR_FABRIC,
                          "libfabric has no provider that is used by default; it has %s: set "
                          "TWILL_PROVIDER to one of them",
                          providers);
    if (is_set(domain_of(params)))
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "TWILL_TUNE=domain=%s%s%s: libfabric has no such domain; it has %s",
                          domain_of(params), is_set(params->interface) ? " TWILL_INTERFACE=" : "",
                          is_set(params->interface) ? params->interface : "", places);
    if (is_set(params->interface))
        return TWILL_FAIL(
            error, TWILL_ERR_CONFIG,
            "TWILL_INTERFACE=%s: libfabric has no such interface or address; it has %s",
            params->interface, places);
    return TWILL_FAIL(error, TWILL_ERR_FABRIC,
                      "libfabric has nothing on %s, where other ranks reach this host; it has %s: "
                      "set TWILL_INTERFACE",
                      params->oob->address, places);
}

/* Write the name of the best provider that is better than TCP and return true. Otherwise return
 * false, with `error` set only if libfabric could not be asked. */
static bool find_better(const struct twill_transport_params *params, char *name, size_t bytes,
                        struct twill_error *error)
{
    struct twill_libfabric library;
    struct fi_info *list = NULL;
    struct ifaddrs *interfaces = NULL;
    uint32_t best = UINT32_MAX;
    bool ip;
    if (twill_ofi_library_open(&library, params, error) != TWILL_OK ||
        twill_ofi_list(&library, &list, error) != TWILL_OK)
        return false;
    if (is_set(params->interface) && getifaddrs(&interfaces) != 0)
        interfaces = NULL;
    for (const struct fi_info *i = list; i != NULL; i = i->next) {
        uint32_t rank = info_rank(i, params, interfaces);
        if (rank >= best || (provider_rank(i, NULL, &ip), ip))
            continue;
        best = rank;
        snprintf(name, bytes, "%s", i->fabric_attr->prov_name);
    }
    freeifaddrs(interfaces);
    library.freeinfo(list);
    return best != UINT32_MAX;
}

/* Return whether the user asks for encryption or checksums, which only twill's tcp has. */
static bool is_protected(const struct twill_transport_params *params)
{
    const char *encrypt = twill_transport_setting(params, "TWILL_ENCRYPT");
    const char *checksum = twill_transport_setting(params, "TWILL_CHECKSUM");
    return (encrypt != NULL && strcmp(encrypt, "1") == 0) ||
           (checksum != NULL && strcmp(checksum, "none") != 0);
}

/* Return whether TWILL_TUNE=libfabric, TWILL_TUNE=domain or a variable FI_PROVIDER... is set. */
static bool is_named(const struct twill_transport_params *params)
{
    static const char provider[] = "FI_PROVIDER"; /* matches FI_PROVIDER_PATH as well */
    bool named = is_set(domain_of(params)) ||
                 twill_transport_setting(params, "TWILL_TUNE=libfabric") != NULL;
    for (char *const *at = environ; at != NULL && *at != NULL && !named; at++)
        named = strncmp(*at, provider, sizeof(provider) - 1) == 0;
    return named;
}

uint32_t twill_ofi_priority(const struct twill_transport_params *params, char *why, size_t bytes)
{
    struct twill_error trouble = {0};
    char name[32];
    if (is_protected(params)) {
        snprintf(why, bytes,
                 "libfabric has neither checksums nor encryption (TWILL_CHECKSUM, TWILL_ENCRYPT)");
        return TWILL_PRIORITY_NONE;
    }
    if (is_set(params->provider)) {
        bool other = twill_words_equal(params->provider, "tcp", SIZE_MAX);
        snprintf(why, bytes, "%s", other ? "" : "libfabric, by TWILL_PROVIDER");
        return other ? TWILL_PRIORITY_NONE : TWILL_PRIORITY_NAMED;
    }
    if (!is_named(params) && twill_ofi_only_ethernet("/sys")) {
        snprintf(why, bytes, "libfabric is not asked, as /sys shows nothing but Ethernet");
        return TWILL_PRIORITY_NONE;
    }
    if (find_better(params, name, sizeof(name), &trouble)) {
        snprintf(why, bytes, "libfabric: it has %s", name);
        return TWILL_PRIORITY_FAST;
    }
    if (trouble.message[0] == '\0') {
        snprintf(why, bytes, "libfabric has nothing better here");
        return TWILL_PRIORITY_POOR;
    }
    /* Warn only if the user names the library. */
    bool named = twill_transport_setting(params, "TWILL_TUNE=libfabric") != NULL;
    twill_say(params->log, named ? TWILL_LOG_WARN : TWILL_LOG_INFO, "libfabric is not used: %s",
              trouble.message);
    snprintf(why, bytes, "%s", trouble.message);
    return TWILL_PRIORITY_NONE;
}

twill_status twill_ofi_choose(const struct twill_libfabric *library, struct fi_info **chosen,
                              const struct twill_transport_params *params, char *why,
                              size_t why_bytes, struct twill_error *error)
{
    struct fi_info *list = NULL;
    struct ifaddrs *interfaces = NULL;
    TWILL_TRY(error, twill_ofi_list(library, &list, error));
    if (is_set(params->interface) && getifaddrs(&interfaces) != 0)
        interfaces = NULL;
    const struct fi_info *best = NULL;
    uint32_t best_rank = UINT32_MAX;
    for (const struct fi_info *i = list; i != NULL; i = i->next) {
        uint32_t rank = info_rank(i, params, interfaces);
        if (rank < best_rank) {
            best = i;
            best_rank = rank;
        }
    }
    freeifaddrs(interfaces);
    twill_status status = TWILL_OK;
    if (best == NULL)
        status = explain_none(list, params, error);
    else if ((*chosen = library->dupinfo(best)) == NULL)
        status = TWILL_FAIL(error, TWILL_ERR_MEMORY, "libfabric: no memory for an fi_info");
    library->freeinfo(list);
    snprintf(why, why_bytes, "provider %s, %s",
             is_set(params->provider) ? "by TWILL_PROVIDER" : "the best that works",
             is_set(domain_of(params))      ? "domain by TWILL_TUNE=domain"
             : is_set(params->interface)    ? "interface by TWILL_INTERFACE"
             : is_set(params->oob->address) ? "where other ranks reach this host"
                                            : "first interface");
    return status;
}

void twill_ofi_address_text(const struct fi_info *info, const void *address, size_t bytes,
                            char *text, size_t text_bytes)
{
    const void *raw;
    char plain[INET6_ADDRSTRLEN];
    if (!has_socket_address(info) || address_bytes(address, bytes, &raw) == 0) {
        size_t n = info->addr_format == FI_ADDR_STR && address != NULL ? bytes : 0;
        snprintf(text, text_bytes, "%.*s", (int)n, n > 0 ? (const char *)address : "");
        if (n == 0)
            snprintf(text, text_bytes, "address of %zu bytes", bytes);
        return;
    }
    const struct sockaddr *any = address;
    unsigned port =
        ntohs(any->sa_family == AF_INET ? ((const struct sockaddr_in *)address)->sin_port
                                        : ((const struct sockaddr_in6 *)address)->sin6_port);
    inet_ntop(any->sa_family, raw, plain, sizeof(plain));
    if (port == 0)
        snprintf(text, text_bytes, "%s", plain);
    else
        snprintf(text, text_bytes, "%s", TWILL_ADDRESS_AND_PORT(plain, port));
}

/* Return the name of the next entry of a folder that begins with no dot, or NULL past the last. */
static const char *next_entry(DIR *folder)
{
    const struct dirent *entry = readdir(folder);
    while (entry != NULL && entry->d_name[0] == '.')
        entry = readdir(folder);
    return entry != NULL ? entry->d_name : NULL;
}

/* Return whether the folder SYS/PATH exists and has entries. */
static bool has_entries(const char *sys, const char *path)
{
    char name[320];
    snprintf(name, sizeof(name), "%s/%s", sys, path);
    DIR *folder = opendir(name);
    bool found = folder != NULL && next_entry(folder) != NULL;
    if (folder != NULL)
        closedir(folder);
    return found;
}

/* Return the number with which a file begins, or -1 if there is none. */
static long read_number(const char *path)
{
    char text[32] = "", *end;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return -1;
    size_t n = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    long number = strtol(text, &end, 0);
    return n > 0 && end != text ? number : -1;
}

/* Return whether a type of interface (ARPHRD_...) is Ethernet, loopback or a tunnel, no fabric. */
static bool is_plain_type(long type)
{
    static const long plain[] = {ARPHRD_ETHER,   ARPHRD_LOOPBACK, ARPHRD_TUNNEL, ARPHRD_TUNNEL6,
                                 ARPHRD_SIT,     ARPHRD_IPGRE,    ARPHRD_IP6GRE, ARPHRD_PPP,
                                 ARPHRD_NETLINK, ARPHRD_NONE};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(plain); i++)
        if (type == plain[i])
            return true;
    return false;
}

/* Return whether the folder class/net of `sys`, such as /sys, has interfaces and each is Ethernet,
 * loopback or a tunnel (is_plain_type()). True also if loopback is the only one. */
static bool has_plain_interfaces(const char *sys)
{
    char path[512];
    const char *name;
    bool plain = true, any = false;
    snprintf(path, sizeof(path), "%s/class/net", sys);
    DIR *folder = opendir(path);
    while (folder != NULL && plain && (name = next_entry(folder)) != NULL) {
        if (strcmp(name, "bonding_masters") == 0) /* a file, no interface */
            continue;
        snprintf(path, sizeof(path), "%s/class/net/%.200s/type", sys, name);
        plain = is_plain_type(read_number(path));
        any = true;
    }
    if (folder != NULL)
        closedir(folder);
    return plain && any;
}

#define PCI_NETWORK  0x02L   /* class of network controllers, in bits 16 to 23 */
#define PCI_ETHERNET 0x0200L /* class of Ethernet controllers, in bits 8 to 23 */

/* Return whether all network controllers in the folder bus/pci/devices of `sys` are for Ethernet.
 * True if there are none, false if the class of a device cannot be read. */
static bool has_plain_controllers(const char *sys)
{
    char path[512];
    const char *name;
    bool plain = true;
    snprintf(path, sizeof(path), "%s/bus/pci/devices", sys);
    DIR *folder = opendir(path);
    while (folder != NULL && plain && (name = next_entry(folder)) != NULL) {
        snprintf(path, sizeof(path), "%s/bus/pci/devices/%.200s/class", sys, name);
        long class = read_number(path);
        plain = class >= 0 && (class >> 16 != PCI_NETWORK || class >> 8 == PCI_ETHERNET);
    }
    if (folder != NULL)
        closedir(folder);
    return plain;
}

bool twill_ofi_only_ethernet(const char *sys)
{
    /* Some of these fabrics look like Ethernet otherwise: Slingshot, EFA, RoCE. */
    static const char *const fabrics[] = {"class/infiniband",     "class/infiniband_verbs",
                                          "class/infiniband_mad", "class/cxi",
                                          "class/cxi_user",       "class/cxi_core",
                                          "class/hfi1_user",      "class/hfi1",
                                          "class/ipath",          "class/gni",
                                          "class/kgni",           "class/usnic_verbs"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(fabrics); i++)
        if (has_entries(sys, fabrics[i]))
            return false;
    return has_plain_interfaces(sys) && has_plain_controllers(sys);
}
