/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the watch: its state, shared by the outward (detector.c) and inward half
 * (detector_receive.c).
 */
#ifndef TWILL_DETECTOR_STATE_H
#define TWILL_DETECTOR_STATE_H

#include "fabric/auth/handshake.h"
#include "fabric/detector/detector.h"

#define TWILL_DETECTOR_HANDSHAKES 16 /* connections that have shown no key, at a time */

enum twill_link_state { LINK_IDLE, LINK_CONNECTING, LINK_OPEN, LINK_DEAD };

/* Outward, to a peer. */
struct twill_detector_link {
    int fd;
    uint8_t state;
    bool suspected;                  /* a connection was lost just before */
    bool notified;                   /* has the news of the tell under way, or cannot have it */
    bool temporary;                  /* made by the tell under way, only for it */
    size_t done;                     /* bytes of it */
    uint64_t calls;                  /* made: counted for each peer, who takes none that is old */
    uint64_t point;                  /* IDLE: not before; CONNECTING: confirm by; OPEN: since */
    struct twill_session session;    /* OPEN */
    struct twill_wire_header header; /* of the news under way */
};

/* Inward. */
struct twill_caller {
    int fd;
    int64_t rank; /* -1: has not shown the key */
    uint64_t deadline;
    struct twill_session session;
};

/* Somebody who has not shown the key. */
struct twill_handshake {
    struct twill_hello hello;
    int fd; /* -1: free */
};

/* The calls of a rank that have been taken: up to the last one; bit i: the one i before it. They
 * may be looked at in another order than they were made in. */
struct twill_taken {
    uint64_t last, seen;
};

/* Where a peer listens. */
struct twill_listen_address {
    char address[TWILL_ADDRESS_TEXT];
    uint64_t port;
};

struct twill_notice_body {
    uint32_t comm;
    int32_t status;
    char message[sizeof(((struct twill_notice *)0)->message)];
    uint64_t state[TWILL_ARRAY_LENGTH(((struct twill_notice *)0)->state)];
};

struct twill_notice_frame {
    struct twill_wire_header header;
    struct twill_notice_body body;
};

enum twill_host_state {
    HOST_MONITORED,
    HOST_SUSPECT, /* its connection broke: the next attempt to connect to one of its ranks decides
                   */
    HOST_CLOSED,  /* it has closed the connection, or has answered since: its ranks stand for
                     themselves */
    HOST_LOST     /* it does not answer */
};

/* The connections between hosts. In every pair of connected hosts, the lowest rank of one holds one
 * end. All ranks of a host share an epoll instance in which its ends are, and so see how they end
 * without holding them; nobody reads them, which would take the error from the others. The ends are
 * also in the queue of a socket that all ranks of the host have: they are open until the last of
 * those has ended, not only the lowest. */
struct twill_hosts {
    uint32_t count;   /* 0: not connected */
    bool all;         /* every host is connected to every other */
    int set;          /* the epoll instance, or -1 */
    int keeper;       /* a socket in whose queue the ends are, or -1 */
    uint32_t missing; /* connections that this rank should have made, and could not */
    uint32_t *of;     /* [size] host of each rank */
    uint32_t *number; /* [size] of each rank among those of its host */
    uint32_t *lowest; /* [count] rank of each host */
    int *fd;          /* [count] lowest rank: its ends; -1 */
    uint8_t *state;   /* [count] enum twill_host_state */
};

struct twill_detector {
    struct twill_secret secret; /* of this run */
    struct twill_rejected rejected;
    int rank, size;
    int listener;
    size_t callers, handshakes, capacity;
    struct twill_detector_link *link;   /* [size] */
    struct twill_listen_address *place; /* [size] */
    struct twill_taken *taken;          /* [size] */
    struct twill_caller *caller;        /* [capacity] */
    struct pollfd *polls;               /* [capacity] */
    struct twill_handshake handshake[TWILL_DETECTOR_HANDSHAKES];
    struct twill_hosts hosts;
};

/* --- detector.c ---------------------------------------------------------------------------------
 */
/* Say who we are on a fresh connection to a peer; sessions of frames may be NULL. LATER: the kernel
 * had no memory for it. */
enum twill_wire_moved twill_detector_greet(struct twill_detector *detector, uint32_t peer, int fd,
                                           struct twill_session *session);
/* Close the connections to the ranks of a host, and give up attempts: fresh ones show whether it
 * answers. */
void twill_detector_recheck_host(struct twill_detector *detector, uint32_t host);

/* --- detector_receive.c
 * ---------------------------------------------------------------------------- */
/* Let in who has called, and hear who it is, but no news. */
void twill_detector_admit(struct twill_detector *detector);
/* Take over the connection of a rank that has called; -1: it has not. */
int twill_detector_adopt(struct twill_detector *detector, uint32_t peer);

/* --- detector_hosts.c ---------------------------------------------------------------------------
 */
void twill_hosts_close(struct twill_hosts *hosts);
/* See which connections between hosts have ended. */
void twill_hosts_poll(struct twill_detector *detector);
/* A host's connection has ended, here or elsewhere: the ranks that this one tells of it hear so. */
void twill_hosts_suspect(struct twill_detector *detector, uint32_t host);
/* News of that communicator number are of hosts: state[0] is a suspect. */
#define TWILL_HOSTS_COMM UINT32_MAX

static inline bool twill_hosts_is(const struct twill_detector *detector, uint32_t peer,
                                  enum twill_host_state state)
{
    return detector->hosts.count > 0 &&
           detector->hosts.state[detector->hosts.of[peer]] == (uint8_t)state;
}
/* A suspect's host has answered, or has not. */
static inline void twill_hosts_decide(struct twill_detector *detector, uint32_t peer, bool answers)
{
    if (twill_hosts_is(detector, peer, HOST_SUSPECT))
        detector->hosts.state[detector->hosts.of[peer]] = answers ? HOST_CLOSED : HOST_LOST;
}

#endif
