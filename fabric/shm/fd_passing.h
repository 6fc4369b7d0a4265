/* SPDX-License-Identifier: Apache-2.0 */
/* Passing descriptors: processes of one host hand each other an open file, over abstract unix
 * sockets, which need no directory and vanish with their process. */
#ifndef TWILL_FD_PASSING_H
#define TWILL_FD_PASSING_H

#include "fabric/bootstrap/bootstrap.h"

/* Why memory cannot be shared: an answer, not an error. Travels between ranks. */
enum twill_share_cause {
    TWILL_SHARE_FINE,
    TWILL_SHARE_MEMFD,
    TWILL_SHARE_FILE_LIMIT,
    TWILL_SHARE_SOCKET,
    TWILL_SHARE_REFUSED,
    TWILL_SHARE_LOST,
    TWILL_SHARE_DESCRIPTORS,
    TWILL_SHARE_OTHER_USER,
    TWILL_SHARE_MAP,
    TWILL_SHARE_TOKEN,
    TWILL_SHARE_CAUSES
};

/* The other end, as the bootstrap told. */
struct twill_fd_passing_peer {
    uint32_t rank;
    uint64_t name;   /* end of its socket's name */
    uint64_t key;    /* it must show this to be believed; never visible in a name */
    int socket;      /* connected; -1: not, or no longer */
    int fd;          /* out: its file, owned by the caller; -1 */
    bool identified; /* who connected has said who it is */
    bool sent;
};

/* How far a peer got that never came. Travels between ranks. */
enum twill_fd_passing_phase {
    TWILL_FD_PASSING_UNCONNECTED, /* not connected, or not known by name */
    TWILL_FD_PASSING_CONNECTED,   /* no file went either way */
    TWILL_FD_PASSING_SENT,        /* ours went out */
    TWILL_FD_PASSING_RECEIVED,    /* theirs came, ours could not go out */
    TWILL_FD_PASSING_PHASES
};

struct twill_fd_passing {
    const struct twill_oob *oob;
    uint64_t name, key;
    int listener;
    int file; /* to hand out */
    struct twill_fd_passing_peer *peers;
    size_t peer_count;
    uint32_t lost;                     /* the peer that hung up or never came, or UINT32_MAX */
    bool late;                         /* it never came: the deadline has passed */
    enum twill_fd_passing_phase phase; /* of a late one */
};

/* Start to listen; draws name and key. */
enum twill_share_cause twill_fd_passing_listen(struct twill_fd_passing *fd_passing,
                                               const struct twill_oob *oob);
/* Connect to the peers of lower rank, without waiting: the exchange goes on with those whose queue
 * of connections is full. Once this is agreed to have worked for all, everybody listens where the
 * others can see it. */
enum twill_share_cause twill_fd_passing_connect(struct twill_fd_passing *fd_passing);
/* Connect and accept the others, hand out and take in. passing->lost names who is missing at the
 * deadline. */
enum twill_share_cause twill_fd_passing_exchange(struct twill_fd_passing *fd_passing);
/* Send these bytes over a unix socket, and with them up to TWILL_FDS_MOST descriptors; false:
 * errno says why not. */
#define TWILL_FDS_MOST 128
bool twill_fds_send(int to, void *data, size_t bytes, const int *files, size_t count);
/* A duplicate of the descriptor in the next message, which stays in the queue; -1: there is none,
 * or it is no socket. */
int twill_fds_peek(int from);
/* In words, for a sentence of a failure. Never NULL. */
const char *twill_share_cause_text(int32_t cause);
const char *twill_fd_passing_phase_text(int32_t phase);
/* A peer was lost; `then` is what this came to. */
twill_status twill_fd_passing_fail(const struct twill_fd_passing *fd_passing, const char *then,
                                   struct twill_error *error);
/* Close the sockets; files that were received stay open. */
void twill_fd_passing_close(struct twill_fd_passing *fd_passing);

#endif
