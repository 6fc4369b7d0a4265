/* SPDX-License-Identifier: Apache-2.0 */
/* Watch: notices dead peers and carries bad news, out of band, over TCP.
 *
 * Every rank listens; addresses are exchanged once. Who waits suspiciously long for a peer connects
 * to it and keeps the connection: the kernel closes it when the peer dies, however busy the peer's
 * program is with other things. Who fails tells all others in one authenticated frame. No thread:
 * all this happens in the slow path of waits.
 *
 * A host that vanishes answers no new connection, and neither does a living rank whose queue is
 * full: so every two hosts have had a connection since set-up, which the kernels keep alive, and
 * whose end any rank of the host can see (twill_detector_connect). */
#ifndef TWILL_DETECTOR_H
#define TWILL_DETECTOR_H

#include "fabric/bootstrap/bootstrap.h"

struct twill_detector;

/* News from a peer. */
struct twill_notice {
    uint32_t from;       /* rank that failed */
    uint32_t comm;       /* communicator number */
    twill_status status; /* what it returned; TWILL_OK: nothing failed, it only says where it is */
    char message[320];   /* its sentence */
    uint64_t state[4];   /* where it is; the meaning is the sender's and the hearer's business */
};

/* Collective over boot. A size of 1 gives a watch that knows no news. */
twill_status twill_detector_open(struct twill_detector **detector, struct twill_oob *oob,
                                 struct twill_error *error);
void twill_detector_close(struct twill_detector *detector); /* NULL is allowed */

/* Connect the hosts: host[rank] is the number, from 0, of the host each rank is on. Collective over
 * boot. The lowest rank of each host keeps the connections, at most `most` of them if it can: where
 * that is fewer than there are other hosts, each host is connected to those 1, 2, 4, ... numbers
 * away, and they pass on what they notice. A connection that cannot be made is done without. */
twill_status twill_detector_connect(struct twill_detector *detector, struct twill_oob *oob,
                                    const uint32_t *host, size_t most, struct twill_error *error);
/* What twill_detector_connect() has come to, for people. Returns how many connections are missing.
 */
size_t twill_detector_describe(const struct twill_detector *detector, char *text, size_t bytes);

/* Is the peer gone? Never blocks; the first calls start a connection. false while in doubt. */
bool twill_detector_is_dead(struct twill_detector *detector, uint32_t peer);
/* The address of a dead peer's host if the whole host does not answer; NULL: only the peer is gone.
 */
const char *twill_detector_lost_host(const struct twill_detector *detector, uint32_t peer);
/* Tell ranks[0 .. count-1] but this one; blocks at most `patience_ns` in all. */
void twill_detector_notify(struct twill_detector *detector, const struct twill_notice *notice,
                           const uint32_t *ranks, size_t count, uint64_t patience_ns);
/* Tell one rank, if it can be done at once; else it is left. */
void twill_detector_send(struct twill_detector *detector, uint32_t peer,
                         const struct twill_notice *notice);
/* Take the next piece of news, if any. Never blocks. Garbage and strangers are dropped. */
bool twill_detector_poll(struct twill_detector *detector, struct twill_notice *notice);
/* Connections that were dropped so far. */
const struct twill_rejected *twill_detector_rejected(const struct twill_detector *detector);

#endif
