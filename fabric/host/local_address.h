/* SPDX-License-Identifier: Apache-2.0 */
/* The address and the interface with which this host connects to others. */
#ifndef TWILL_LOCAL_ADDRESS_H
#define TWILL_LOCAL_ADDRESS_H

#include "lib/base/base.h"

/* Choose the local address for connections to `peer`, a numeric address, by the route to it, or to
 * any host if it is NULL or empty. `requested` is NULL, or overrides that. It is the name or
 * address of an interface, or a list whose first entry counts. Without a peer, tunnels and
 * interfaces of containers and virtual machines are skipped, and loopback or a bridge is taken only
 * if nothing else is up. `why` gets the reason for messages, half a sentence. */
twill_status twill_interface_choose(char address[TWILL_ADDRESS_TEXT], char interface[32],
                                    const char *requested, const char *peer, char *why,
                                    size_t why_bytes, struct twill_error *error);
/* Write an address or name with a port, such as "10.0.0.1:80", "[fd00::1]:80" or "n1:80". Several
 * names, separated by blanks, become "n1 n2 port 80". Returns text. */
#define TWILL_ADDRESS_PORT_TEXT 128
const char *twill_address_with_port(char text[TWILL_ADDRESS_PORT_TEXT], const char *address,
                                    unsigned port);
/* Evaluate to an address with a port in a temporary, for use in an argument list. */
#define TWILL_ADDRESS_AND_PORT(address, port)                                                      \
    twill_address_with_port((char[TWILL_ADDRESS_PORT_TEXT]){0}, (address), (unsigned)(port))
/* Set `faster` and *mbits to the name and speed of the interface that twill_link_faster() finds for
 * the interface `name`. Returns false if there is none. */
bool twill_interface_faster(char faster[32], uint32_t *mbits, const char *name);
/* Return whether a numeric address is a loopback address. */
bool twill_address_is_loopback(const char *address);
/* Get the numeric address of a host. It is empty if its name does not resolve or is loopback. */
void twill_address_resolve(char address[TWILL_ADDRESS_TEXT], const char *name);
/* Return the name that other hosts use for a host, which is `name` without "user@", and this host's
 * name for "localhost". `mine` is space for that. */
#define TWILL_HOST_TEXT 256
const char *twill_host_alias(const char *name, char mine[TWILL_HOST_TEXT]);
/* Find the interface of a local address. It is empty if there is none. */
void twill_interface_of(char interface[32], const char *address);
/* Replace the zone of another host's link-local address ("fe80::1%eth1"), which names an interface
 * of that host, by the zone of the local address `own`. Other addresses do not change. */
void twill_address_localise(char address[TWILL_ADDRESS_TEXT], const char *own);
/* List the addresses at which other hosts can probably reach this one, separated by blanks, most
 * likely first, as far as they fit. Loopback, link-local and virtual ones are omitted. May be
 * empty. */
void twill_interface_addresses(char *text, size_t bytes);

#endif
