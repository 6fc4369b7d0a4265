/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptor passing between processes of one host over abstract unix sockets. */
#ifndef TWILL_FD_PASSING_H
#define TWILL_FD_PASSING_H

#include "fabric/bootstrap/oob_batch.h"

/* Why memory cannot be shared, which is no error. Sent between ranks. The first rank's cause
 * counts, but LOST gives way to all others and REFUSED to all but LOST: a rank that gives up closes
 * its sockets, and others then find one of these two. */
enum twill_share_cause {
    TWILL_SHARE_FINE,
    TWILL_SHARE_LOST,
    TWILL_SHARE_REFUSED,
    TWILL_SHARE_MEMFD,
    TWILL_SHARE_FILE_LIMIT,
    TWILL_SHARE_SOCKET,
    TWILL_SHARE_DESCRIPTORS,
    TWILL_SHARE_OTHER_USER,
    TWILL_SHARE_MAP,
    TWILL_SHARE_TOKEN,
    TWILL_SHARE_MEMORY,
    TWILL_SHARE_RANDOM,
    TWILL_SHARE_CAUSES
};

/* A peer to exchange files with, as known from the bootstrap exchange. An entry of the array that
 * the caller of the exchange owns. The caller sets the first three members, `socket` to -1 and the
 * rest to 0. The exchange writes all but the first three members. */
struct twill_fd_passing_peer {
    uint32_t rank;
    uint64_t name;     /* last part of its socket's name */
    uint64_t key;      /* secret that it must present, never visible in a name */
    int socket;        /* connected to it, or -1 */
    uint64_t token_at; /* result: offset of the token in the file that it sends */
    bool identified;   /* it has authenticated itself */
    bool asks;         /* it has asked for our second file */
    bool sent;         /* our file was sent */
    bool received;     /* its file has arrived */
};

/* Takes the files of a peer and owns them: fds[0], and in fds[1] that peer's `second`, or -1 if
 * none was sent. Returns TWILL_SHARE_FINE, or why they cannot be used. */
typedef enum twill_share_cause
twill_fd_passing_take(void *user, const struct twill_fd_passing_peer *peer, const int fds[2]);

/* How far the exchange with a peer that timed out had come. Sent between ranks. */
enum twill_fd_passing_phase {
    TWILL_FD_PASSING_UNCONNECTED, /* not connected, or not authenticated */
    TWILL_FD_PASSING_CONNECTED,   /* no file was sent either way */
    TWILL_FD_PASSING_SENT,        /* our file was sent */
    TWILL_FD_PASSING_RECEIVED,    /* its file has arrived, ours could not be sent */
    TWILL_FD_PASSING_PHASES
};

/* State of one rank's exchange of files. Its owner calls twill_fd_passing_listen(), fills in the
 * members from `file` to `peer_count`, and calls twill_fd_passing_exchange() and _close(). */
struct twill_fd_passing {
    struct twill_oob *oob;
    uint64_t name, key; /* of the own socket: last part of its name, and the secret to present */
    int listener;       /* socket on which higher ranks connect, or -1 */
    int file;           /* the file to send */
    int second;         /* a file to send with it to each peer that asks, or -1 */
    bool asks;          /* ask every peer of a lower rank for its `second` */
    uint64_t token_at;  /* offset of the token in `file`, which peers receive with the file */
    twill_fd_passing_take *take; /* called with what a peer has sent, once for each */
    void *user;
    struct twill_fd_passing_peer *peers;
    size_t peer_count;
    uint32_t lost;                     /* the peer that hung up or timed out, or UINT32_MAX */
    bool late;                         /* the lost peer has timed out */
    enum twill_fd_passing_phase phase; /* how far the exchange with that peer had come */
};

/* Initialise *fd_passing and listen on a socket with a random name and key. Returns FINE, RANDOM if
 * no random number can be had, or SOCKET, DESCRIPTORS or MEMORY if there is no socket. */
enum twill_share_cause twill_fd_passing_listen(struct twill_fd_passing *fd_passing,
                                               struct twill_oob *oob);
/* Exchange files with all peers and pass theirs to take(). Only a few peers have connections at a
 * time, so the descriptors needed do not grow with their number. Returns TWILL_SHARE_FINE when all
 * have been exchanged, and TWILL_SHARE_LOST at the deadline. Returns _LOST or _REFUSED if a peer
 * that is needed hangs up or no longer listens. It has then given up, has died, or cannot be seen
 * from here. `lost` names the peer in these cases. If twill_oob_attend() finds that a rank has
 * failed, returns _LOST and does not set `lost`. Otherwise returns why files cannot be
 * exchanged. */
enum twill_share_cause twill_fd_passing_exchange(struct twill_fd_passing *fd_passing);
/* Return a constant text for a cause. It is "memory cannot be shared" for an unknown one and for
 * TWILL_SHARE_FINE. */
const char *twill_share_cause_text(int32_t cause);
/* Return a constant text for a phase, "in an unknown phase" for an unknown one. */
const char *twill_fd_passing_phase_text(int32_t phase);
/* If a peer was lost, set the failure that `batch` reports if its exchange fails: TWILL_ERR_TIMEOUT
 * if the peer timed out, else TWILL_ERR_PEER. Does nothing if none was lost. */
void twill_fd_passing_suspect(const struct twill_fd_passing *fd_passing,
                              struct twill_oob_batch *batch);
/* Close the listener and the sockets of all peers. Other files stay the caller's. */
void twill_fd_passing_close(struct twill_fd_passing *fd_passing);

#endif
