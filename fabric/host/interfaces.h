/* SPDX-License-Identifier: Apache-2.0 */
/* The network interfaces of this host, with their kind, speed and addresses. */
#ifndef TWILL_INTERFACES_H
#define TWILL_INTERFACES_H

#include "fabric/host/local_address.h"

/* Kinds of interfaces. Up to TWILL_LINK_PAIR, other hosts can probably be reached over them. */
enum twill_link_kind {
    TWILL_LINK_REAL,     /* a device, or a bond or VLAN on devices */
    TWILL_LINK_PAIR,     /* one end of a veth pair, the interface of a container */
    TWILL_LINK_LOOPBACK, /* lo */
    TWILL_LINK_BRIDGE,   /* over unknown devices */
    TWILL_LINK_TUNNEL,   /* tunnel, vxlan, dummy ... without a wire */
    TWILL_LINK_INNER,    /* for containers or virtual machines, by its name */
};

/* One address of an interface that is up, as twill_links_read() found it. A value. */
struct twill_link {
    char name[32];
    char address[TWILL_ADDRESS_TEXT]; /* with %scope if link-local */
    enum twill_link_kind kind;
    bool six, link_local; /* the address is IPv6; it is fe80: */
    uint32_t mbits;       /* speed as the driver reports it; 0: not known */
    uint64_t network;     /* hash of family, prefix and prefix length; 0: not known */
};

/* Set (*links)[0 .. *count-1] to the IP addresses of all interfaces that are up, loopback included.
 * The caller frees *links. Returns TWILL_ERR_SYSTEM or TWILL_ERR_MEMORY, with *links NULL, on
 * failure. */
twill_status twill_links_read(struct twill_link **links, size_t *count, struct twill_error *error);
/* Return a kind in words, such as "a network device" or "a bridge", a constant. */
const char *twill_link_kind_name(enum twill_link_kind kind);
/* Write a list such as "eth0 10.0.0.1, lo 127.0.0.1", with the best first. If not all fit, it ends
 * with " and N more". Link-local addresses are left out if there are others. */
void twill_links_list(const struct twill_link *links, size_t count, char *text, size_t bytes);
/* Return the fastest real device that is in another network than the interface `name` and at least
 * twice as fast, as drivers report it. Returns NULL if there is none, or the speed of `name` is not
 * known. */
const struct twill_link *twill_link_faster(const struct twill_link *links, size_t count,
                                           const char *name);
/* Return how good an address is, from 1 to 10 for the best. The kind of its interface, its family
 * and whether it is link-local decide. */
int twill_link_worth(const struct twill_link *link);

#endif
