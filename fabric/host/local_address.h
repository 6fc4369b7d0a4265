/* SPDX-License-Identifier: Apache-2.0 */
/* The address and the interface with which this host connects to others. */
#ifndef TWILL_LOCAL_ADDRESS_H
#define TWILL_LOCAL_ADDRESS_H

#include "lib/base/base.h"

/* Set `address` and `interface` to those from which this host connects to `peer`, a numeric
 * address. They follow the route to it, or the default route if `peer` is NULL or empty.
 * `requested`, unless NULL or empty, overrides that by the name or address of an interface, or a
 * list whose first entry counts. Returns TWILL_ERR_CONFIG if any entry is no interface or address
 * of this host. Without a peer, tunnels and interfaces of containers and virtual machines are
 * skipped, and loopback or a bridge is the last choice. Sets `why` to the reason, as half a
 * sentence for messages. */
twill_status twill_interface_choose(char address[TWILL_ADDRESS_TEXT], char interface[32],
                                    const char *requested, const char *peer, char *why,
                                    size_t why_bytes, struct twill_error *error);
#define TWILL_ADDRESS_PORT_TEXT 128
/* Write an address or name with a port, such as "10.0.0.1:80", "[fd00::1]:80" or "n1:80". Several
 * names, separated by blanks, become "n1 n2 port 80". Returns `text`. */
const char *twill_address_with_port(char text[TWILL_ADDRESS_PORT_TEXT], const char *address,
                                    unsigned port);
/* Evaluate to an address with a port in a temporary, for use in an argument list. */
#define TWILL_ADDRESS_AND_PORT(address, port)                                                      \
    twill_address_with_port((char[TWILL_ADDRESS_PORT_TEXT]){0}, (address), (unsigned)(port))
/* Set `faster` and *mbits (Mbit/s) to the fastest device in another network than the interface
 * `name` and at least twice as fast. Returns false, and sets nothing, if there is none. */
bool twill_interface_faster(char faster[32], uint32_t *mbits, const char *name);
/* Return whether a numeric address is 127.* or ::1. */
bool twill_address_is_loopback(const char *address);
/* Set `address` to the first numeric address of the host `name`, or to "" if there is none or that
 * is loopback. */
void twill_address_resolve(char address[TWILL_ADDRESS_TEXT], const char *name);
#define TWILL_HOST_TEXT 256
/* Return `name`, without "user@" if it begins so. If `name` is just "localhost", write this host's
 * name to `mine` and return that. */
const char *twill_host_alias(const char *name, char mine[TWILL_HOST_TEXT]);
/* Set `interface` to the name of the interface with a local address, or to "" if there is none. */
void twill_interface_of(char interface[32], const char *address);
/* Replace the zone of another host's link-local address ("fe80::1%eth1"), which names an interface
 * of that host, by the zone of the local address `own`. Other addresses do not change. */
void twill_address_localise(char address[TWILL_ADDRESS_TEXT], const char *own);
/* List the addresses at which other hosts can probably reach this one, separated by blanks, most
 * likely first, as far as they fit. Omits loopback, link-local and virtual ones, but not a bridge
 * over which the default route leads. May be "". */
void twill_interface_addresses(char *text, size_t bytes);

#endif
