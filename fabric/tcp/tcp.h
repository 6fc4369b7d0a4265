/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp transport: twill's own, between nodes whose network is Ethernet.
 *
 * One connection for each lane that two ranks of a communicator use, made when the first request is
 * posted there. So TCP does what others need a protocol for: messages of a lane arrive in order; a
 * lane whose receiver is late fills the kernel's buffers and then stands, which holds up no other
 * lane and no memory of ours; nobody waits for a "clear to send"; and no two threads ever meet at a
 * socket. It costs descriptors, of peers that a plan talks to only: a ring needs 2 peers, recursive
 * doubling the logarithm of the ranks, of each one or two lanes.
 *
 * A message is a header and its payload, written from and read to where they are. A receiver reads
 * only what a posted RECV asks for, so that it can compare before anything is stored: small ones
 * through the lane's stage, together with the header and in one system call, larger ones straight
 * into place behind their header; what is folded, from the stage or from a scratch that stays in
 * the caches, while more is under way. Who gets another message than it asked for throws it away,
 * and says so in the other direction of the lane (REFUSED).
 *
 * Of two ranks the lower one connects; before anything else both ends prove to each other that they
 * belong to the job (fabric/auth/handshake.h: one more round trip, once a connection). All
 * communicators of a process have one listener, in the common part: who accepts a connection for
 * another communicator answers it, too, and leaves it there. */
#ifndef TWILL_TCP_H
#define TWILL_TCP_H

#include "fabric/auth/handshake.h"
#include "fabric/transports.h"

#include <netinet/in.h>
#include <pthread.h>

#define TWILL_TCP_RX_BYTES (8u << 10)   /* of a lane: messages up to this size are read with it */
#define TWILL_TCP_SCRATCH  (128u << 10) /* what is folded at once: fits L2 on everything we know */
#define TWILL_TCP_ONCE     (1u << 20) /* given to the kernel at once: both directions take turns */
#define TWILL_TCP_PACED    (128u << 10) /* the same where it paces: see tcp_handshake.c */
#define TWILL_TCP_DIRECT   8u           /* so many busy lanes are tried one by one, more by epoll */
#define TWILL_TCP_ALIGNED  16u          /* bytes, of what is folded in the stage */
#define TWILL_TCP_GRAIN    64u          /* pieces of a message that is folded begin at multiples */
#define TWILL_TCP_WIRE     0x77740103u  /* changed when what is on the wire does */

enum twill_tcp_kind { TWILL_TCP_MESSAGE = 1, TWILL_TCP_REFUSED };

/* Before every message. Host byte order: open() refuses ranks of another one. */
struct twill_tcp_header {
    uint32_t signature;
    uint32_t sequence; /* of the message on its lane; REFUSED: of the one that was not right */
    uint64_t bytes : 56;
    uint64_t kind : 8;
};
_Static_assert(sizeof(struct twill_tcp_header) == 16, "small beside 64 bytes");

enum twill_tcp_state {
    TWILL_TCP_CLOSED,     /* nothing was posted yet */
    TWILL_TCP_CONNECTING, /* this end connects */
    TWILL_TCP_GREETING,   /* and says hello */
    TWILL_TCP_WAITING,    /* the other end will */
    TWILL_TCP_OPEN,
    TWILL_TCP_LOST /* it could not be connected, and nothing is posted there */
};

/* Both directions of one lane with one peer. */
struct twill_tcp_lane {
    struct twill_tcp_peer *peer;
    int fd;
    uint8_t number;
    uint8_t state; /* enum twill_tcp_state */
    bool busy;     /* in the list of lanes that progress looks at */
    bool in_epoll; /* in the epoll set; where that is used: */
    bool readable, writable;
    uint8_t again; /* attempts to connect that came to nothing */
    int why;       /* it is LOST */

    struct twill_transfer_queue out;
    struct twill_tcp_header out_header; /* of its first */
    size_t gone_out;                    /* bytes of header and payload that have gone */
    uint32_t sent;                      /* messages that have gone */
    bool refused;                       /* the peer did not want the first of `out` */
    bool refuses;                       /* to be told, between messages: */
    bool refusing;                      /* gone_out is of that */
    struct twill_tcp_header refusal;

    struct twill_transfer_queue in;
    bool taking;       /* the header of the first of `in` has come, and is right */
    uint32_t received; /* headers that came */
    size_t skip;       /* bytes that nobody wants */
    unsigned char *rx;
    size_t begin, end; /* what is in it */
};

struct twill_tcp_peer {
    uint32_t rank;
    char name[TWILL_RANK_TEXT]; /* for people */
    unsigned char *rx_buffers;
    struct twill_tcp_lane lanes[TWILL_LANES];
};

/* An address that can be connected to. */
struct twill_tcp_address {
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } at;
    socklen_t length;
};

/* A connection that was accepted and is nobody's yet. */
struct twill_tcp_incoming {
    struct twill_tcp_incoming *next;
    int fd;
    bool whole;     /* it has shown that it is of the job, and for which lane it comes */
    uint64_t until; /* it keeps its place, whoever else wants one */
    struct twill_hello hello;
};

struct twill_tcp_common {
    struct twill_common base;
    pthread_mutex_t lock; /* of what follows */
    int listener;
    int reserve; /* a descriptor that is given up for somebody at the door when there is no other */
    struct twill_tcp_incoming *incoming_list;
    struct twill_tcp_incoming *spare;
    unsigned incoming_count;
    unsigned silent, most_silent; /* guests who have shown nothing; how many there may be */
    struct twill_tcp *users;      /* transports that are open */
    uint32_t newest;              /* number of the newest communicator that has been a user */
    unsigned rejected;            /* connections that were turned away */
    /* Not changed any more: */
    struct twill_secret secret;        /* of the job, for the hello */
    bool paced;                        /* the congestion control of some rank paces */
    uint32_t rank, size;               /* in the job */
    struct twill_tcp_address *address; /* [size] */
    struct twill_tcp_address source;   /* own, port 0 */
    char at[TWILL_ADDRESS_TEXT + 16], interface[32], why[128];
};

struct twill_tcp {
    struct twill_transport base;
    struct twill_transport_params params;
    struct twill_tcp_common *common;
    bool owns_common;
    struct twill_tcp *next; /* user of the common part */
    uint32_t rank, size;
    struct twill_tcp_peer **peers; /* [size], NULL until first contact */
    struct twill_tcp_lane **busy;  /* [busy_capacity]: there is room for all lanes of all peers */
    size_t busy_count, busy_capacity;
    size_t waiting;       /* lanes that a peer has to connect */
    unsigned polls, vain; /* with somebody to come; that moved nothing */
    int epoll;            /* -1 until there are many busy lanes */
    size_t once;          /* most bytes given to the kernel, or taken, at a time */
    unsigned char *scratch;
    twill_status failed;
    char description[448];
};

/* --- tcp_shared.c: listener, addresses, who has connected ---------------------------------------
 */
/* Collective: made by the first communicator, with an exchange among its ranks. */
twill_status twill_tcp_common_open(struct twill_tcp *t, struct twill_error *error);
/* Go on with guests, and give the transport those that are its own. How many moved, or a status. */
int twill_tcp_common_adopt(struct twill_tcp *t, struct twill_error *error);
/* The communicator ends: nobody will claim its connections any more. */
void twill_tcp_common_forget(struct twill_tcp *t);
/* Where a rank would listen: address, interface and why. Not collective. */
twill_status twill_tcp_place(const struct twill_transport_params *params,
                             char address[TWILL_ADDRESS_TEXT], char interface[32], char *why,
                             size_t why_bytes, struct twill_error *error);

/* --- tcp_handshake.c: the one place that knows what a connection says of itself
 * ---------------------- */
/* Begin it, on the end that has connected and on the one that has accepted. false: no random
 * numbers. */
bool twill_tcp_hello_call(const struct twill_tcp *t, const struct twill_tcp_lane *lane,
                          struct twill_hello *hello);
bool twill_tcp_hello_expect(const struct twill_tcp_common *common, struct twill_hello *hello);
/* The communicator it is for, once it is whole. */
uint32_t twill_tcp_hello_comm(const struct twill_hello *hello);
/* From which rank, for which lane of this communicator? false: for none that this rank has. */
bool twill_tcp_hello_fits(const struct twill_tcp *t, const struct twill_hello *hello,
                          uint32_t *rank, unsigned *lane);
/* Congestion control of new sockets of a listener or of our own: TWILL_CONGESTION. */
twill_status twill_tcp_congestion(const struct twill_transport_params *params, int fd,
                                  struct twill_error *error);
/* The one a socket uses, in words. Does it spread packets over time? */
bool twill_tcp_congestion_text(int fd, char *text, size_t bytes);

/* --- tcp_link.c: connections --------------------------------------------------------------------
 */
/* With all memory that it will need. */
twill_status twill_tcp_peer(struct twill_tcp *t, uint32_t rank, struct twill_tcp_peer **peer,
                            struct twill_error *error);
void twill_tcp_peer_free(struct twill_tcp_peer *peer);
/* Begin to connect it, or to wait for that. */
twill_status twill_tcp_lane_open(struct twill_tcp *t, struct twill_tcp_lane *lane,
                                 struct twill_error *error);
/* CONNECTING or GREETING: go on. 1: it moved, 0: it did not, or a status. */
int twill_tcp_lane_connect(struct twill_tcp *t, struct twill_tcp_lane *lane,
                           struct twill_error *error);
/* The peer has connected it. */
void twill_tcp_lane_attach(struct twill_tcp *t, struct twill_tcp_lane *lane, int fd);
/* at_once: what is under way is dropped, and the peer hears of it. */
void twill_tcp_lane_close(struct twill_tcp_lane *lane, bool at_once);
/* There is something to do on it. */
void twill_tcp_busy(struct twill_tcp *t, struct twill_tcp_lane *lane);
/* The lane failed with errno `why`; 0: the peer closed it; EPROTO: what answers is no rank. */
twill_status twill_tcp_lost(const struct twill_tcp_lane *lane, int why, struct twill_error *error);

/* --- tcp_send.c, tcp_recv.c: how many requests finished or moved, or a status
 * ------------------------ */
int twill_tcp_send(struct twill_tcp *t, struct twill_tcp_lane *lane, struct twill_error *error);
int twill_tcp_recv(struct twill_tcp *t, struct twill_tcp_lane *lane, struct twill_error *error);
/* A SEND stands: has the peer refused it? Reads no payload. */
int twill_tcp_recv_refusal(struct twill_tcp *t, struct twill_tcp_lane *lane,
                           struct twill_error *error);
static inline bool twill_tcp_sends(const struct twill_tcp_lane *lane)
{
    return lane->out.head != NULL || lane->refuses;
}
static inline bool twill_tcp_receives(const struct twill_tcp_lane *lane)
{
    return lane->in.head != NULL || lane->skip > 0;
}

/* --- tcp_progress.c ------------------------------------------------------------------------------
 */
int twill_tcp_progress(struct twill_transport *transport, struct twill_error *error);

#endif
