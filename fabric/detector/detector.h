/* SPDX-License-Identifier: Apache-2.0 */
/* Failure detector: detects dead peers and carries failure notifications, out of band, over TCP.
 *
 * Every rank listens; addresses are exchanged once. A rank that waits suspiciously long for a peer
 * connects to it and keeps the connection: the kernel closes it when the peer dies, whatever the
 * peer's program is busy with. A rank that fails notifies all others in one authenticated frame.
 * There is no thread: all of this happens in the slow path of waits. One thread at a time may use a
 * detector.
 *
 * A host that vanishes accepts no connection, and neither does a live rank whose backlog is full:
 * so hosts are connected in pairs from set-up on, the kernels keep these connections alive, and all
 * ranks of a host see their end (twill_detector_connect). */
#ifndef TWILL_DETECTOR_H
#define TWILL_DETECTOR_H

#include "lib/base/base.h"

struct twill_oob_batch;
struct twill_detector;
struct twill_oob;
struct twill_rejected;

/* A notification from a peer. */
struct twill_notice {
    uint32_t from;       /* sender */
    uint32_t comm;       /* communicator number */
    twill_status status; /* of the sender's call; TWILL_OK: no failure, it only sends its state */
    char message[320];   /* of the failure */
    uint64_t state[4];   /* of the sender; opaque to the detector */
    const void *data;    /* more, opaque; received: valid until the next poll */
    size_t bytes;        /* of data, at most TWILL_NOTICE_DATA(size of the job) */
};
#define TWILL_NOTICE_DATA(size) ((size_t)256 + (size_t)(size) / 4)

/* A detector is opened in three steps around two exchanges, collective over `oob`. The caller
 * closes it also after a failure.
 *
 *   offer      listen               exchange: address of the listener
 *   connect    call other hosts     exchange: which calls failed at once
 *   conclude   wait for connections
 *
 * From `connect` on it can be used, without connections between hosts until it is concluded. With a
 * size of 1 it never receives a notification. most: connections to other hosts that this process
 * may have. */
twill_status twill_detector_offer(struct twill_detector **detector, struct twill_oob *oob,
                                  size_t most, struct twill_oob_batch *batch,
                                  struct twill_error *error);
void twill_detector_close(struct twill_detector *detector); /* NULL is allowed */

/* Connect the hosts: host[rank] is the number, from 0, of each rank's host; `threads` is the most
 * ranks that a process has. The lowest rank of each host opens the connections, at most `most` /
 * `threads` if possible: if there are more other hosts than that, each host is connected to those
 * 1, 2, 4, ... numbers away, and they forward what they detect. Goes on without connections that
 * fail. */
twill_status twill_detector_connect(struct twill_detector *detector, const struct twill_oob *oob,
                                    const uint32_t *host, uint32_t threads,
                                    struct twill_oob_batch *batch, struct twill_error *error);
twill_status twill_detector_conclude(struct twill_detector *detector, struct twill_error *error);
/* Conclude a detector of ranks that are all on one host, in place of connect and conclude. */
void twill_detector_conclude_alone(struct twill_detector *detector);
/* Describe the result of twill_detector_conclude(). Returns the number of missing connections. */
size_t twill_detector_describe(const struct twill_detector *detector, char *text, size_t bytes);

/* Report whether the peer is dead. Never blocks; the first calls start a connection. False while in
 * doubt. */
bool twill_detector_is_dead(struct twill_detector *detector, uint32_t peer);
/* Report whether a peer is dead, and all that it sent before has arrived: it was found dead
 * TWILL_DEATH_SURE_NS ago, and the caller, which looks repeatedly, has received nothing since then
 * and since `quiet`, a twill_now(). dead: how it is found now, by twill_detector_is_dead() or by
 * the memory of its node. */
bool twill_detector_is_sure(struct twill_detector *detector, uint32_t peer, bool dead,
                            uint64_t quiet);
/* Return the time after which a host that does not answer any more is found. */
uint64_t twill_host_bound_ns(void);
/* Return the address at which a peer's host is reached. Constant once the detector is concluded. */
const char *twill_detector_address(const struct twill_detector *detector, uint32_t peer);
/* Return the address of a dead peer's host if the whole host stopped answering; else NULL. */
const char *twill_detector_lost_host(const struct twill_detector *detector, uint32_t peer);
/* Notify ranks[0 .. count-1] except this one; blocks for at most `patience_ns` in all. */
void twill_detector_notify(struct twill_detector *detector, const struct twill_notice *notice,
                           const uint32_t *ranks, size_t count, uint64_t patience_ns);
/* Notify one rank if that does not block; else drop the notification. Returns whether it was sent:
 * not while the connection, which it begins, is made. */
bool twill_detector_send(struct twill_detector *detector, uint32_t peer,
                         const struct twill_notice *notice);
/* Receive the next notification, if any. Never blocks. Rejects malformed and unauthenticated
 * connections. */
bool twill_detector_poll(struct twill_detector *detector, struct twill_notice *notice);
/* Connections rejected so far. */
const struct twill_rejected *twill_detector_rejected(const struct twill_detector *detector);

#endif
