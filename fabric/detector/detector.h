/* SPDX-License-Identifier: Apache-2.0 */
/* The failure detector detects dead peers and carries failure notifications, out of band, over TCP.
 * * Every rank listens, and the ranks exchange their addresses once. A rank that has waited
 * suspiciously long for a peer connects to it and keeps the connection. The kernel closes it when
 * the peer dies, whatever the peer's program is doing. A rank that fails notifies all others in one
 * authenticated frame. All of this happens in the slow path of waits, without a thread. A host that
 * vanishes accepts no connection, but neither does a live rank whose backlog is full. Hosts are
 * therefore connected in pairs from set-up on, and all ranks of a host see the end of these. */
#ifndef TWILL_DETECTOR_H
#define TWILL_DETECTOR_H

#include "lib/base/base.h"

struct twill_oob_batch;
struct twill_detector;
struct twill_oob;
struct twill_rejected;
/* A notification of a failure or a state, from a peer or to peers. A local variable of its user. */
struct twill_notice {
    uint32_t from;       /* rank of the sender */
    uint32_t comm;       /* number of the communicator */
    twill_status status; /* of the sender's call; TWILL_OK: it only sends its state */
    char message[320];   /* message of the failure */
    uint64_t state[4];   /* of the sender, not interpreted by the detector */
    const void *data;    /* more state; if received, valid until the next poll */
    size_t bytes;        /* of `data`, at most TWILL_NOTICE_DATA(size of the job) */
};
#define TWILL_NOTICE_DATA(size) ((size_t)256 + (size_t)(size) / 4)
/* Make *detector, or set it to NULL if there is no memory, and take the first of three steps to
 * open it, around two exchanges, collective over `oob`. The caller closes it, also after a failure.
 *
 *   offer      listen               exchange: address of the listener
 *   connect    call other hosts     exchange: which calls failed at once
 *   conclude   wait for connections
 *
 * It can be used from `connect` on. With a size of 1 it never receives a notification. `most` is
 * the number of connections to other hosts that this process may have. */
twill_status twill_detector_offer(struct twill_detector **detector, struct twill_oob *oob,
                                  size_t most, struct twill_oob_batch *batch,
                                  struct twill_error *error);
void twill_detector_close(struct twill_detector *detector); /* and free it; NULL: do nothing */

/* Start to connect the hosts, the second step. host[rank] is the number of each rank's host, from
 * 0, and `threads` the most ranks that a process has. The lowest rank of each host opens at most
 * `most` / `threads` connections if possible. If there are more other hosts, each is connected to
 * those 1, 2, 4, ... numbers away, and forwards what it detects. Fails only for lack of memory. */
twill_status twill_detector_connect(struct twill_detector *detector, const struct twill_oob *oob,
                                    const uint32_t *host, uint32_t threads,
                                    struct twill_oob_batch *batch, struct twill_error *error);
/* Wait for the connections between hosts, and let all ranks of the host observe them. Those that
 * fail are left out. Returns TWILL_ERR_MEMORY if memory is short, else TWILL_OK. */
twill_status twill_detector_conclude(struct twill_detector *detector, struct twill_error *error);
/* Conclude a detector of ranks that are all on one host. Replaces the steps after the offer. */
void twill_detector_conclude_alone(struct twill_detector *detector);
/* Write a line for the log on the connections of this host to others. Returns how many of them
 * failed, on the lowest rank of the host, which made them. Returns 0 on other ranks. */
size_t twill_detector_describe(const struct twill_detector *detector, char *text, size_t bytes);
/* Return true if the peer or its host is found dead, false while it lives or is in doubt, or for
 * this rank. Never blocks. It progresses a connection to the peer, which the first call starts. */
bool twill_detector_is_dead(struct twill_detector *detector, uint32_t peer);
/* Return whether a peer is dead and what it sent before must have arrived. `dead` says whether the
 * caller finds it dead now. True from TWILL_DEATH_SURE_NS after it was first found dead since
 * `quiet`, the twill_now() from which on the caller has received nothing. */
bool twill_detector_is_sure(struct twill_detector *detector, uint32_t peer, bool dead,
                            uint64_t quiet);
/* Return within how many ns a host that no longer answers is found. */
uint64_t twill_host_bound_ns(void);
/* Return the address at which a peer's host is reached, as text that the detector owns. It is
 * constant after twill_detector_conclude(). */
const char *twill_detector_address(const struct twill_detector *detector, uint32_t peer);
/* Return the address of a dead peer's host if the whole host stopped answering, else NULL. */
const char *twill_detector_lost_host(const struct twill_detector *detector, uint32_t peer);
/* Notify ranks[0 .. count-1], except this one. Blocks for at most `patience_ns` in all. Ranks to
 * which it could not be sent by then do not get it. */
void twill_detector_notify(struct twill_detector *detector, const struct twill_notice *notice,
                           const uint32_t *ranks, size_t count, uint64_t patience_ns);
/* Notify one rank if that does not block, else drop the notification. Returns whether all of it was
 * sent. If only a part was, the connection is closed. It is not sent while the connection, which
 * the first call begins, is not open yet. */
bool twill_detector_send(struct twill_detector *detector, uint32_t peer,
                         const struct twill_notice *notice);
/* Set *notice to the next notification that has arrived and return true, or return false if there
 * is none. Never blocks. Accepts connections, rejects invalid ones, and acts on notifications about
 * hosts itself. */
bool twill_detector_poll(struct twill_detector *detector, struct twill_notice *notice);
/* Return how many connections were rejected so far, by reason. Part of the detector. */
const struct twill_rejected *twill_detector_rejected(const struct twill_detector *detector);

#endif
