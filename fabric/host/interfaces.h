/* SPDX-License-Identifier: Apache-2.0 */
/* The network interfaces of this host: their kind, speed and addresses. */
#ifndef TWILL_INTERFACES_H
#define TWILL_INTERFACES_H

#include "fabric/host/local_address.h"

enum twill_link_kind {
    TWILL_LINK_REAL,     /* a device, or a bond or VLAN on devices */
    TWILL_LINK_PAIR,     /* one end of a veth pair: the interface of a container */
    TWILL_LINK_LOOPBACK, /* lo */
    TWILL_LINK_BRIDGE,   /* of unknown devices */
    TWILL_LINK_TUNNEL,   /* tunnel, vxlan, dummy ...: no wire of its own */
    TWILL_LINK_INNER,    /* of containers or virtual machines, by its name */
};

/* One address of an interface that is up. */
struct twill_link {
    char name[32];
    char address[TWILL_ADDRESS_TEXT]; /* link-local: with %scope */
    enum twill_link_kind kind;
    bool six, link_local;
    uint32_t mbits;   /* 0: unknown */
    uint64_t network; /* hash of family, prefix and prefix length */
};

/* Return all of them in the kernel's order. The caller frees *links. */
twill_status twill_links_read(struct twill_link **links, size_t *count, struct twill_error *error);
/* Return "a network device", "a bridge", ... */
const char *twill_link_kind_name(enum twill_link_kind kind);
/* Write "eth0 10.0.0.1, lo 127.0.0.1", most likely ones first, and " and N more" if they do not
 * fit. Link-local addresses are left out if there are others. */
void twill_links_list(const struct twill_link *links, size_t count, char *text, size_t bytes);
/* Return the fastest real device in a network of its own that has at least twice the speed of the
 * one of this name, both as drivers say it; or NULL. */
const struct twill_link *twill_link_faster(const struct twill_link *links, size_t count,
                                           const char *name);
/* Return how good a default it is: larger is better. */
int twill_link_worth(const struct twill_link *link);

#endif
