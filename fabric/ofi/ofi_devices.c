/* SPDX-License-Identifier: Apache-2.0 */
/* Finds out from /sys whether libfabric can know a network that is better than TCP. To ask it takes
 * 0.2 s of a core a rank, and more than a second where several ranks of a host load it. */
#include "fabric/ofi/ofi.h"

#include <dirent.h>
#include <linux/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Return the next entry of a folder, NULL past the last. */
static const char *next_entry(DIR *folder)
{
    const struct dirent *entry = readdir(folder);
    while (entry != NULL && entry->d_name[0] == '.')
        entry = readdir(folder);
    return entry != NULL ? entry->d_name : NULL;
}

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

/* Read a number of a file; -1: there is none. */
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

/* Return whether a network interface is known to be no fabric: Ethernet, loopback, or a tunnel. */
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

static bool has_plain_interfaces(const char *sys)
{
    char path[512];
    const char *name;
    bool plain = true, any = false;
    snprintf(path, sizeof(path), "%s/class/net", sys);
    DIR *folder = opendir(path);
    while (folder != NULL && plain && (name = next_entry(folder)) != NULL) {
        if (strcmp(name, "bonding_masters") == 0) /* a file */
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
#define PCI_ETHERNET 0x0200L /* in bits 8 to 23 */

/* Return whether all network controllers on PCI are for Ethernet. Without PCI there are none. */
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
    /* Also of fabrics whose controllers and interfaces look like Ethernet: Slingshot, EFA, RoCE. */
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
