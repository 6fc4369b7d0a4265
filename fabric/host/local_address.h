/* SPDX-License-Identifier: Apache-2.0 */
/* The address and the interface at which this host connects to others. */
#ifndef TWILL_LOCAL_ADDRESS_H
#define TWILL_LOCAL_ADDRESS_H

#include "lib/base/base.h"

/* Choose the local address for connections to `peer` (numeric text; NULL: any host) by its route.
 * requested: name or address of an interface, or a list of which the first entry counts, or NULL.
 * Without a peer, skip tunnels and interfaces of containers and virtual machines; take loopback or
 * a bridge only if nothing else is up. why: reason for messages, half a sentence. */
twill_status twill_interface_choose(char address[TWILL_ADDRESS_TEXT], char interface[32],
                                    const char *requested, const char *peer, char *why,
                                    size_t why_bytes, struct twill_error *error);
/* Write an address or a name with a port: "10.0.0.1:80", "[fd00::1]:80", "n1:80"; of several names,
 * separated by blanks, "n1 n2 port 80". Returns text. */
#define TWILL_ADDRESS_PORT_TEXT 128
const char *twill_address_with_port(char text[TWILL_ADDRESS_PORT_TEXT], const char *address,
                                    unsigned port);
/* twill_address_with_port() into a temporary, for use in an argument list. */
#define TWILL_ADDRESS_AND_PORT(address, port)                                                      \
    twill_address_with_port((char[TWILL_ADDRESS_PORT_TEXT]){0}, (address), (unsigned)(port))
/* Find an interface that is up and faster than the named one, as twill_link_faster() does.
 * Returns false if there is none. */
bool twill_interface_faster(char faster[32], uint32_t *mbits, const char *name);
/* Report whether a numeric address is one of loopback. */
bool twill_address_is_loopback(const char *address);
/* Get the numeric address of a host. Empty if its name does not resolve, or to loopback. */
void twill_address_resolve(char address[TWILL_ADDRESS_TEXT], const char *name);
/* Return how other hosts call a host: without "user@", and not "localhost". */
#define TWILL_HOST_TEXT 256
const char *twill_host_alias(const char *name, char mine[TWILL_HOST_TEXT]);
/* Find the interface of a local address. Empty if there is none. */
void twill_interface_of(char interface[32], const char *address);
/* Replace the zone of another host's link-local address ("fe80::1%eth1"), which names an interface
 * of that host, by the zone of the local address `own`. Other addresses are not changed. */
void twill_address_localise(char address[TWILL_ADDRESS_TEXT], const char *own);
/* List the addresses at which other hosts may connect to this one, most likely first, separated by
 * blanks, as far as they fit, without loopback, link-local and virtual interfaces. May be empty. */
void twill_interface_addresses(char *text, size_t bytes);

#endif
