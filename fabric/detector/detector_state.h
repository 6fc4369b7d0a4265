/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the failure detector. The outgoing links (detector.c), incoming connections
 * (detector_receive.c) and connections between hosts (detector_hosts.c) share this state. */
#ifndef TWILL_DETECTOR_STATE_H
#define TWILL_DETECTOR_STATE_H

#include "fabric/auth/handshake.h"
#include "fabric/detector/detector.h"

#define TWILL_DETECTOR_HANDSHAKES 16 /* most unauthenticated connections at a time */
/* An idle link connects, then opens. If it is lost or refused, it becomes idle again or dead. */
enum twill_link_state { LINK_IDLE, LINK_CONNECTING, LINK_OPEN, LINK_DEAD };
/* This rank's connection to a peer, by which its death is found. An entry of detector->link. */
struct twill_detector_link {
    int fd;         /* -1: none */
    uint8_t state;  /* enum twill_link_state */
    bool suspected; /* its last connection ended early */
    bool notified;  /* the peer has the notification being sent, is not to get it, or is dead */
    bool temporary; /* opened only to send that notification */
    bool missed;    /* the peer closed a connection before this rank used it */
    bool reached;   /* a connection to it has been made once */
    bool witnessed; /* OPEN: the peer's second port was also looked at */
    int witness;    /* connection to that port while it is made, or -1 */
    size_t done;    /* bytes of that notification sent so far */
    uint64_t calls; /* handshakes so far; the peer accepts each number only once */
    /* A time of twill_now(). IDLE: connect again then. CONNECTING: a suspected peer that has not
     * answered by then is dead. OPEN: when it was opened. */
    uint64_t point;
    uint64_t found_dead;             /* see twill_detector_is_sure(); 0: never */
    struct twill_session session;    /* OPEN */
    struct twill_wire_header header; /* of the notification being sent */
};

/* An incoming connection, over which a peer sends notifications. An entry of detector->caller. */
struct twill_caller {
    int fd;
    int64_t rank;                 /* of the peer; -1: not authenticated */
    uint64_t deadline;            /* to authenticate, when places are short; of twill_now() */
    struct twill_session session; /* proves its notifications once authenticated */
};

/* The handshake of an incoming connection that is not authenticated. Part of the detector. */
struct twill_handshake {
    struct twill_hello hello;
    int fd; /* -1: free */
};

/* Which handshakes of a peer were accepted, as none must be twice. An entry of detector->taken. */
struct twill_taken {
    uint64_t last, seen; /* highest number accepted; bit i: number last - i was accepted */
};

/* The address of a rank's listeners, as ranks exchange it. Another process may get the port of a
 * dead rank, accept connections and stay silent, but is unlikely to get both ports. */
struct twill_listen_address {
    char address[TWILL_ADDRESS_TEXT];
    uint64_t port;
    uint64_t witness; /* second port: closes connections, only shows life */
};

/* The body of the frame in which a struct twill_notice is sent. */
struct twill_notice_body {
    uint32_t comm;
    int32_t status;
    char message[sizeof(((struct twill_notice *)0)->message)];
    uint64_t state[TWILL_ARRAY_LENGTH(((struct twill_notice *)0)->state)];
    unsigned char data[];
};

/* A notification of a failure or of a rank's state, as received into detector->in, which the
 * detector owns. The body ends with its data. */
struct twill_notice_frame {
    struct twill_wire_header header;
    struct twill_notice_body body;
};

/* Return the bytes of a notification's body with `data` bytes of data. */
static inline size_t twill_notice_body_bytes(size_t data)
{
    return sizeof(struct twill_notice_body) + data;
}

/* This rank's knowledge of a host. */
enum twill_host_state {
    HOST_MONITORED,
    HOST_SUSPECT, /* its connection broke, and the next connect to its lowest rank decides */
    HOST_CLOSED,  /* it closed the connection or answers, so its ranks are checked singly */
    HOST_LOST     /* it stopped answering */
};

/* The connections between hosts, part of the detector. The lowest rank of each host has the
 * sockets. All ranks of a host share an epoll instance that contains them, and so see their end. No
 * rank reads from them, as that would consume the error. They are also in the queue of a socket
 * that all ranks of the host have, so they stay open until the last of these ranks has ended. */
struct twill_hosts {
    uint32_t count;   /* 0: hosts are not connected */
    bool all;         /* every host is connected to every other */
    int set;          /* the epoll instance, or -1 */
    int keeper;       /* socket with the connections in its queue, or -1 */
    uint32_t missing; /* lowest rank: connections that failed */
    uint32_t *of;     /* [size] host of each rank */
    uint32_t *number; /* [size] number of each rank among those of its host */
    uint32_t *lowest; /* [count] lowest rank of each host */
    int *fd;          /* [count] lowest rank: connection to each host, or -1 */
    uint8_t *state;   /* [count] enum twill_host_state */
    int *why;         /* [count] lowest rank: errno if connecting failed in set-up, or 0 */
};

/* The failure detector of a rank, made by twill_detector_offer() and freed by
 * twill_detector_close(). For one thread at a time. */
struct twill_detector {
    struct twill_secret secret; /* of this run */
    struct twill_rejected rejected;
    int rank, size;
    /* Sockets that listen, or -1. `witness` only shows peers that this process lives. */
    int listener, witness;
    /* Descriptors, or -1, to close so that one is free to notify ranks (`reserve`) or to accept a
     * connection (`caller_reserve`). */
    int reserve, caller_reserve;
    bool notifying;                       /* `reserve` is closed while ranks are notified */
    size_t callers, handshakes, capacity; /* entries of `caller`; unauthenticated ones; allocated */
    struct twill_detector_link *link;     /* [size] */
    struct twill_listen_address *place;   /* [size] listeners of each rank */
    struct twill_taken *taken;            /* [size] handshakes accepted from each rank */
    struct twill_caller *caller;          /* [capacity] */
    struct pollfd *polls;                 /* [capacity] */
    struct twill_handshake handshake[TWILL_DETECTOR_HANDSHAKES];
    struct twill_hosts hosts;
    struct twill_notice_body *out;   /* notification being sent, with space for the most data */
    struct twill_notice_frame *in;   /* notification being received, also with that space */
    struct twill_listen_address own; /* sent to the others */
    struct twill_detector_opening *opening; /* of detector_hosts.c, until it is concluded */
};
/* Send the handshake on a new connection to a peer, with a new number (link->calls). Returns
 * TWILL_WIRE_DONE with *session set, TWILL_WIRE_LATER if the kernel is short of memory or random
 * numbers, or TWILL_WIRE_GONE if it ended. */
enum twill_wire_moved twill_detector_greet(struct twill_detector *detector, uint32_t peer, int fd,
                                           struct twill_session *session);
/* Close this rank's connections to all ranks of a host, except dead ones, also those in progress.
 * Then connect to its lowest rank, which shows later whether the host answers. */
void twill_detector_recheck_host(struct twill_detector *detector, uint32_t host);
/* Notice the end of this rank's connection to a peer, start or continue connecting if it is time,
 * and set the link's state. Never blocks. */
void twill_link_step(struct twill_detector *detector, uint32_t peer);
/* Close a link that has ended. It becomes dead if it was suspected and was not open for
 * TWILL_DETECTOR_STEADY_NS. Else it becomes idle and suspected, and connects again at the next
 * step. */
void twill_link_lose(struct twill_detector_link *link);
/* Close the connections of a link, if it has any, set its state, and wipe its session. An idle link
 * connects again after TWILL_DETECTOR_RETRY_NS. */
void twill_link_hang_up(struct twill_detector_link *link, enum twill_link_state state);

/* Open the spare descriptor *reserve if it is -1. It stays -1 if there is no descriptor. With it, a
 * rank that has used all descriptors can still notify the others and be notified. */
void twill_reserve_keep(int *reserve);
void twill_reserve_give(int *reserve); /* close it, so that a descriptor is free, and set -1 */

/* Accept the connections that wait and progress their handshakes. Receives no notifications. */
void twill_detector_admit(struct twill_detector *detector);
/* Remove entry i of detector->caller, which the last entry replaces, wipe its session, and return
 * its open descriptor. */
int twill_detector_release(struct twill_detector *detector, size_t i);
/* Remove the authenticated connection from `peer` from detector->caller. Returns its descriptor,
 * which the caller owns, or -1 if there is none. */
int twill_detector_adopt(struct twill_detector *detector, uint32_t peer);

void twill_hosts_close(struct twill_hosts *hosts); /* close and free all that it has */
/* Begin to connect hosts, as part of twill_detector_offer(). Makes the epoll instance, listens for
 * the other ranks of this host, and adds a part about this rank to the batch. The part contains
 * `most`, the number of connections to other hosts that this process may have. If `detector` is
 * NULL or memory is short, still adds a part, so that all ranks send equal sizes, and returns
 * TWILL_ERR_MEMORY. */
twill_status twill_hosts_offer(struct twill_detector *detector, const struct twill_oob *oob,
                               size_t most, struct twill_oob_batch *batch,
                               struct twill_error *error);
void twill_hosts_opening_end(struct twill_detector *detector); /* free detector->opening */
/* Suspect each host whose connection to this one has failed, and set closed ones to HOST_CLOSED. */
void twill_hosts_poll(struct twill_detector *detector);
/* Return whether a peer may live although its host refuses this rank's connections, as a firewall
 * may do that. True if this host failed to connect to that host during set-up. True also if the
 * connection of both hosts lasts and the peer is the only rank there. False if hosts are not
 * connected. */
bool twill_hosts_may_live(const struct twill_detector *detector, uint32_t peer);
/* Suspect a monitored host whose connection ended, here or at another host. Connect to it again to
 * see whether it answers, and notify the neighbours of this host. */
void twill_hosts_suspect(struct twill_detector *detector, uint32_t host);
/* Communicator number of notifications about hosts. state[0] is the suspected host. */
#define TWILL_HOSTS_COMM UINT32_MAX
/* Return whether the host of a peer is in this state. Returns false if hosts are not connected. */
static inline bool twill_hosts_is(const struct twill_detector *detector, uint32_t peer,
                                  enum twill_host_state state)
{
    return detector->hosts.count > 0 &&
           detector->hosts.state[detector->hosts.of[peer]] == (uint8_t)state;
}

/* Return the number of this host in detector->hosts. */
static inline uint32_t twill_hosts_own(const struct twill_detector *detector)
{
    return detector->hosts.of[detector->rank];
}

/* Return whether n is a power of two, which 0 is not. */
static inline bool twill_is_power_of_two(uint32_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

/* Return whether hosts a and b are connected, all to all or a power of two numbers apart. */
static inline bool twill_hosts_connected(const struct twill_hosts *hosts, uint32_t a, uint32_t b)
{
    uint32_t on = (b + hosts->count - a) % hosts->count;
    return a != b &&
           (hosts->all || twill_is_power_of_two(on) || twill_is_power_of_two(hosts->count - on));
}

/* Return whether host a, not b, opens the connection of both. Each host opens about half of its. */
static inline bool twill_hosts_call(const struct twill_hosts *hosts, uint32_t a, uint32_t b)
{
    uint32_t on = (b + hosts->count - a) % hosts->count;
    return on < hosts->count - on || (on == hosts->count - on && a < b);
}

/* If the host of a peer is a suspect, set it to HOST_CLOSED if it answers, else to HOST_LOST. */
static inline void twill_hosts_decide(struct twill_detector *detector, uint32_t peer, bool answers)
{
    if (twill_hosts_is(detector, peer, HOST_SUSPECT))
        detector->hosts.state[detector->hosts.of[peer]] = answers ? HOST_CLOSED : HOST_LOST;
}

#endif
