/* SPDX-License-Identifier: Apache-2.0 */
/* The network interfaces of this host: what they are, and their addresses. */
#ifndef TWILL_INTERFACES_H
#define TWILL_INTERFACES_H

#include "fabric/transport.h"

enum twill_link_kind {
    TWILL_LINK_REAL,     /* a device, or a bond or VLAN of some */
    TWILL_LINK_PAIR,     /* one end of a veth pair: the way out of a container */
    TWILL_LINK_LOOPBACK, /* lo */
    TWILL_LINK_BRIDGE,   /* of what, nobody knows */
    TWILL_LINK_TUNNEL,   /* or vxlan, dummy: not a wire of this host */
    TWILL_LINK_INNER,    /* of containers or virtual machines, by its name */
};

/* An address of an interface that is up. */
struct twill_link {
    char name[32];
    char address[TWILL_ADDRESS_TEXT]; /* link-local ones with their %scope */
    enum twill_link_kind kind;
    bool six, link_local;
    uint32_t mbits;   /* 0: unknown */
    uint64_t network; /* the same where family, prefix and its length are */
};

/* All of them, in the kernel's order; to be freed. */
twill_status twill_links_read(struct twill_link **links, size_t *count, struct twill_error *error);
/* "a network device", "a bridge", ... */
const char *twill_link_kind_name(enum twill_link_kind kind);
/* "eth0 10.0.0.1, lo 127.0.0.1": the likely ones first, link-local ones left out where there is
 * another, and how many there are besides if they do not fit. */
void twill_links_list(const struct twill_link *links, size_t count, char *text, size_t bytes);
/* How much one would like to use it when nobody said more: larger is better. */
int twill_link_worth(const struct twill_link *link);

/* --- rails_interfaces.c: interfaces as rails, for ops->rails of transports over IP
 * ---------------- */
twill_status twill_links_rails(const struct twill_transport_params *params, const char *name,
                               struct twill_rail *rails, size_t most, size_t *count,
                               struct twill_error *error);

#endif
