/* SPDX-License-Identifier: Apache-2.0 */
/* The TCP connections of this host with what the kernel counts for each, from sock_diag(7). */
#ifndef TWILL_TCP_LINKS_H
#define TWILL_TCP_LINKS_H

#include "fabric/host/local_address.h"

/* A connection as one of its ends sees it. A value. */
struct twill_tcp_link {
    uint64_t inode; /* of the socket, which /proc/PID/fd shows as "socket:[INODE]" */
    char local[TWILL_ADDRESS_PORT_TEXT], remote[TWILL_ADDRESS_PORT_TEXT]; /* address and port */
    uint64_t bytes; /* sent, and acknowledged by the peer */
    double busy;    /* seconds in which it was sending, but those in which the peer had no room */
};

/* Set *list to all connections of this host, or of its network namespace, which the caller frees.
 * Returns their number, or 0 if the kernel does not say. If memory is short, the list ends early.
 */
size_t twill_tcp_links_list(struct twill_tcp_link **list);

#endif
