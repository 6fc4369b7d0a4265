/* SPDX-License-Identifier: Apache-2.0 */
/* The tcp transport, between nodes whose network is Ethernet.
 *
 * A channel is one lane between two ranks of a communicator. It has its own connection, opened when
 * the first request is posted on it. TCP then keeps a channel's messages in order. A channel whose
 * receiver is late fills the kernel's buffers and stalls, without holding up other channels or
 * using the library's memory. No "clear to send" is needed, and threads share no socket. The price
 * is descriptors, but only for the peers that a plan uses: 2 for a ring, log2(ranks) for recursive
 * doubling, with one or two channels each.
 *
 * A message is a header and its payload, sent from and received into the user's buffers. A receiver
 * reads only what a posted RECV asks for, so that it can compare the headers before it stores
 * anything. It reads small messages with their header through the channel's receive buffer, and
 * larger payload directly into place. Payload to be reduced goes through the receive buffer or a
 * scratch buffer that stays in the caches. A receiver discards a message that does not match its
 * RECV, and reports that in the other direction of the channel (REFUSED).
 *
 * The lower of two ranks connects. Both then prove that they belong to the job
 * (fabric/auth/handshake.h), which takes one more round trip per connection. All communicators of a
 * process share one listener, in the common state. A rank that accepts a connection for another
 * communicator completes its handshake and leaves it there. */
#ifndef TWILL_TCP_H
#define TWILL_TCP_H

#include "fabric/auth/handshake.h"
#include "fabric/shm/node_memory.h"
#include "fabric/tcp/tcp_records.h"
#include "fabric/transports.h"

#include <netinet/in.h>
#include <pthread.h>

#define TWILL_TCP_RX_BYTES (8u << 10)   /* payload that fits the receive buffer of a channel */
#define TWILL_TCP_SCRATCH  (128u << 10) /* most bytes a thread reduces at a time (fits any L2) */
#define TWILL_TCP_SHARES   16u /* most channels and directions that threads serve at once */
#define TWILL_TCP_SHARED   (128u << 10) /* bytes from which threads share a payload */
#define TWILL_TCP_TOGETHER (8u << 20)   /* most bytes that threads reduce together */
#define TWILL_TCP_ONCE     (1u << 20)   /* most bytes per system call, to alternate directions */
#define TWILL_TCP_PACED    (128u << 10) /* the same if congestion control paces */
#define TWILL_TCP_DIRECT   8u           /* most busy channels that are tried without epoll */
#define TWILL_TCP_TURNS    8            /* most reads of one channel before the next channel */
#define TWILL_TCP_ALIGNED  16u          /* bytes: alignment of operands in the receive buffer */
#define TWILL_TCP_GRAIN    64u          /* bytes: offsets at which a reduction may be split */
#define TWILL_TCP_WIRE     0x77740108u  /* version of the wire format */

enum twill_tcp_kind { TWILL_TCP_MESSAGE = 1, TWILL_TCP_REFUSED };
/* The head of every message, in host byte order, which is the same on all ranks. A REFUSED has no
 * payload. Its signature, bytes and call are those of the RECV that the refused message does not
 * match. */
struct twill_tcp_header {
    uint32_t signature; /* call hash */
    uint32_t sequence;  /* number on its channel, in REFUSED that of the refused message */
    uint64_t bytes : 56;
    uint64_t kind : 8;
    struct twill_message_call call;
    struct twill_entry_message entry; /* the last entry into the call that the sender knows of */
    uint64_t unused[2];               /* 0 */
};
/* The kernel copies payload from and to its buffers behind the header. That takes up to a third
 * longer where the two do not lie alike in their cache lines. */
_Static_assert(sizeof(struct twill_tcp_header) == TWILL_CACHE_LINE, "payload begins a cache line");

/* State of a channel's connection. */
enum twill_tcp_state {
    TWILL_TCP_CLOSED,     /* nothing was posted */
    TWILL_TCP_CONNECTING, /* this end connects */
    TWILL_TCP_GREETING,   /* this end has connected, the handshake is in progress */
    TWILL_TCP_WAITING,    /* the peer will connect */
    TWILL_TCP_OPEN,
    TWILL_TCP_LOST /* connecting failed while nothing was posted */
};

/* What a rank with a pool knows of a direction of a channel (tcp_share.c). */
struct twill_tcp_flow {
    size_t moved; /* bytes of the first message at the last poll */
    bool much;    /* the last attempt has moved many, or a message has ended since */
};

/* Both directions of one lane with one peer, as a connection and the requests posted on it. An
 * element of peer->channels[]. */
struct twill_tcp_channel {
    struct twill_tcp_peer *peer;
    int fd;         /* -1 if there is none */
    uint8_t number; /* lane */
    uint8_t state;  /* enum twill_tcp_state */
    bool busy;      /* in twill_tcp.busy, the channels that progress works on */
    bool in_epoll;  /* in the epoll set, which makes the next two valid */
    bool readable, writable;
    uint8_t again;     /* failed attempts to connect */
    int why;           /* errno if LOST */
    uint64_t asked_at; /* twill_now() when CONNECTING began */
    /* CONNECTING without a descriptor, as the network is away: since when, and when to try again */
    uint64_t away_since, retry_at;

    struct twill_tcp_records *records; /* with checksums or encryption, else NULL */

    struct {
        struct twill_transfer_queue queue;
        struct twill_tcp_header header; /* of the first in the queue */
        size_t gone;                    /* bytes sent of the current header and payload */
        uint32_t sent;                  /* messages sent so far */
        bool refused;                   /* the peer refused the first in the queue */
        bool refuses;                   /* `refusal` is to be sent between messages */
        bool refusing;                  /* `gone` counts the refusal */
        bool served;                    /* a thread has sent on it in this call of progress */
        struct twill_tcp_flow flow;     /* only of a rank with a pool, as the next */
        struct twill_tcp_header refusal;
    } out;

    struct {
        struct twill_transfer_queue queue;
        bool taking;          /* the first in the queue has received a matching header */
        uint32_t received;    /* message headers received so far */
        size_t skip;          /* bytes to discard of a refused message */
        unsigned char *bytes; /* receive buffer: a header and TWILL_TCP_RX_BYTES */
        size_t begin, end;    /* the range in it that is not processed */
        bool served;          /* a thread has received on it in this call of progress */
        struct twill_tcp_flow flow;
    } in;
};

/* The channels of a peer. Created by twill_tcp_peer() at the first contact, freed with the
 * transport. */
struct twill_tcp_peer {
    uint32_t rank;
    char name[TWILL_RANK_TEXT];              /* for messages, as the next is */
    const char *interface;                   /* of this rank, or NULL */
    const struct twill_tcp_address *address; /* of its listener, NULL in set-up */
    bool met;                                /* a channel was open once */
    bool told;                               /* it was logged that no answer comes */
    unsigned char *rx_buffers;               /* memory of in.bytes of all channels */
    struct twill_clock_filter clock;
    struct twill_tcp_channel channels[TWILL_LANES];
};

/* Socket address of a listener, or of a connection that this rank opens. */
struct twill_tcp_address {
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
    } at;
    socklen_t length;
};

/* An accepted connection that no transport has claimed, in common->incoming_list, or a spare record
 * in common->spare. The lock of the common state protects it. */
struct twill_tcp_incoming {
    struct twill_tcp_incoming *next;
    int fd;
    bool whole; /* authenticated, so that its communicator and channel are known */
    struct twill_session session;
    /* Before this time it is closed to make room only if it has sent nothing. Descriptors are short
     * then, or too many others have sent nothing. */
    uint64_t until;
    struct twill_hello hello;
};

/* State that the communicators of a process share. Created by the first, freed with the context.
 * Without a context's place for it, a transport has its own, which is freed with the transport. */
struct twill_tcp_common {
    struct twill_common base;
    pthread_mutex_t lock; /* protects the members down to `rejected` */
    int listener;
    int reserve; /* spare descriptor, closed to accept a connection when there is no other */
    struct twill_tcp_incoming *incoming_list;
    struct twill_tcp_incoming *spare;
    unsigned incoming_count;
    unsigned silent, most_silent; /* connections without a complete call, and their limit */
    struct twill_tcp *users;      /* open transports */
    uint32_t newest;              /* highest communicator number of any user so far */
    unsigned rejected;            /* connections rejected so far */
    /* Constant after creation. */
    struct twill_secret secret; /* of the job, for handshakes */
    struct twill_tcp_protection protection;
    bool paced;                        /* connections of some rank are paced */
    bool unpaced;                      /* this rank's own connections use reno instead of it */
    uint32_t rank, size;               /* in the job */
    struct twill_tcp_address *address; /* [size] of the ranks' listeners */
    struct twill_tcp_address source;   /* of this rank, with port 0 */
    /* The address with port and the interface of the listener, and why these were chosen. */
    char at[TWILL_ADDRESS_PORT_TEXT], interface[32], why[128];
};

/* The tcp transport of a communicator, from open() to close(). Used by one thread at a time. */
struct twill_tcp {
    struct twill_transport base;
    struct twill_transport_params params;
    struct twill_tcp_common *common;
    bool owns_common;
    struct twill_tcp *next; /* in twill_tcp_common.users */
    uint32_t rank, size;
    struct twill_tcp_peer **peers;   /* [size] NULL until the first contact */
    struct twill_tcp_channel **busy; /* [busy_capacity] enough for all channels of all peers */
    size_t busy_count, busy_capacity;
    size_t waiting;         /* number of channels that their peers have to connect */
    unsigned polls, vain;   /* progress calls while channels wait, and those that moved nothing */
    uint64_t hosts_checked; /* twill_now() of the last check whether peers' hosts are alive */
    int epoll;              /* -1 until there are many busy channels */
    size_t once;            /* most bytes per system call */
    unsigned char *shares;  /* scratch of the threads of a pool (tcp_share.c), or NULL */
    unsigned char *scratch; /* [scratch_bytes] payload to reduce or discard */
    size_t scratch_bytes;
    struct twill_clock_pair start; /* when the transport was opened */
    twill_status failed;
    bool cut_off; /* a refused SEND ended with its connection, which the caller learns first */
    char description[576];
};

/* Return the rank in the job of a rank of this communicator. */
static inline uint32_t twill_tcp_rank_in_job(const struct twill_tcp *t, uint32_t rank)
{
    return t->params.job != NULL ? t->params.job[rank] : rank;
}

/* Set t->common to the common state of the context, and add the transport to its users. The first
 * communicator creates that state, collectively, and later ones only use it. Creation fails on all
 * ranks, with t->common NULL, if a rank cannot listen (with its status) or settings differ
 * (TWILL_ERR_CONFIG). A rank without memory fails alone. */
twill_status twill_tcp_common_open(struct twill_tcp *t, struct twill_error *error);
/* Accept connections, progress their handshakes and attach those of this transport to their
 * channels. Close those that fail or that no channel can use. Returns more than 0 if any
 * progressed, 0 if none did, or a negative status. */
int twill_tcp_common_adopt(struct twill_tcp *t, struct twill_error *error);
/* Detach from the common state, and close connections that no communicator will claim. */
void twill_tcp_common_forget(struct twill_tcp *t);
/* Find the address and interface where a rank would listen. Writes to `why`, as half a sentence for
 * messages, how these were chosen. Fails with TWILL_ERR_CONFIG if TWILL_INTERFACE names none of
 * this host, or TWILL_ERR_SYSTEM if no interface is up. */
twill_status twill_tcp_place(const struct twill_transport_params *params,
                             char address[TWILL_ADDRESS_TEXT], char interface[32], char *why,
                             size_t why_bytes, struct twill_error *error);
/* Set a socket, and those accepted from it, to the congestion control in TWILL_TUNE=congestion, if
 * that is set. Fails with TWILL_ERR_CONFIG if the system refuses it. */
twill_status twill_tcp_congestion(const struct twill_transport_params *params, int fd,
                                  struct twill_error *error);
/* Write "congestion control NAME" for a socket to `text`, with "unknown" if it has none, and a
 * remark if it paces. Returns whether it paces, which means that it spreads what it sends over
 * time, as bbr does. */
bool twill_tcp_congestion_text(int fd, char *text, size_t bytes);
/* How a rank's connections get their congestion control. Ranks exchange this. */
enum twill_tcp_control {
    TWILL_TCP_UNPACED,
    TWILL_TCP_PACED_BY_SYSTEM, /* could have reno instead */
    TWILL_TCP_PACED_FOR_GOOD   /* the user asks for it, or the kernel allows nothing else */
};
/* Return how a rank whose listener is `fd` gets its congestion control. */
enum twill_tcp_control twill_tcp_control_of(const struct twill_transport_params *params, int fd);
/* Let a socket, and those accepted from it, use reno. Returns whether that is allowed. */
bool twill_tcp_use_reno(int fd);
/* Return whether all ranks are in one network, so that their connections need no pacing. networks[]
 * has each rank's network, 0 if unknown. Sets *paced to whether connections of some rank are paced.
 * That is so if any of controls[] is TWILL_TCP_PACED_FOR_GOOD. It is also so if any is
 * TWILL_TCP_PACED_BY_SYSTEM and the ranks are in several networks. Both results are equal on all
 * ranks. */
bool twill_tcp_needs_no_pace(const enum twill_tcp_control *controls, const uint64_t *networks,
                             uint32_t ranks, bool *paced);
/* Set *peer to the peer of a rank. The first call creates it, with all memory that it will need.
 * Fails with TWILL_ERR_MEMORY, or TWILL_ERR_INTERNAL if the rank is no other rank. */
twill_status twill_tcp_peer(struct twill_tcp *t, uint32_t rank, struct twill_tcp_peer **peer,
                            struct twill_error *error);
/* Free a peer, which may be NULL. */
void twill_tcp_peer_free(struct twill_tcp_peer *peer);
/* Log a warning if a channel has been connecting for TWILL_TCP_UNANSWERED_NS at twill_now() `now`
 * without an answer. There is one warning for each peer. */
void twill_tcp_say_unanswered(struct twill_tcp *t, struct twill_tcp_channel *channel, uint64_t now);
/* Describe the connection that a peer's messages wait for, or set `text` to "" if there is none. */
void twill_tcp_awaits(const struct twill_transport *transport, uint32_t rank, char *text,
                      size_t bytes);
/* Open a closed channel, and also the channel to the same peer that this lane uses in the next
 * collective call. A peer of a lower rank connects them itself, so they become WAITING. Otherwise
 * this begins to connect them. It does not block. Does nothing to a channel that is not closed.
 * Fails with TWILL_ERR_CONFIG for a bad congestion control. If connecting fails at once, fails with
 * TWILL_ERR_SYSTEM, _FABRIC or _PEER as twill_tcp_lost() explains. A failure of the second channel
 * is ignored. */
twill_status twill_tcp_channel_open(struct twill_tcp *t, struct twill_tcp_channel *channel,
                                    struct twill_error *error);
/* Progress a CONNECTING or GREETING channel. Returns 1 if it moved, 0 if not, or a negative status.
 * If its peer has gone and no request is posted on it, it becomes LOST, which is no error. */
int twill_tcp_channel_connect(struct twill_tcp *t, struct twill_tcp_channel *channel,
                              struct twill_error *error);
/* Let a channel own and use `fd`, which the peer has connected. Its handshake made `session`. */
void twill_tcp_channel_attach(struct twill_tcp *t, struct twill_tcp_channel *channel, int fd,
                              const struct twill_session *session);
/* Close a channel's connection and drop its requests. With `at_once` the connection is reset and
 * unsent data discarded, which the peer notices. */
void twill_tcp_channel_close(struct twill_tcp_channel *channel, bool at_once);
/* Fill in *hello to begin the handshake of a channel on the end that connected. Returns false if
 * there are no random numbers, else true. */
bool twill_tcp_hello_call(const struct twill_tcp *t, const struct twill_tcp_channel *channel,
                          struct twill_hello *hello);
/* Add the channel to those that progress works on. */
void twill_tcp_busy(struct twill_tcp *t, struct twill_tcp_channel *channel);
/* Fail for a lost channel. `why` is an errno, 0 if the peer closed it, or EPROTO if the peer is not
 * of this job. Returns TWILL_ERR_SYSTEM for trouble of this host, TWILL_ERR_FABRIC if a first
 * connection is refused or not answered (the peer may live), else TWILL_ERR_PEER. */
twill_status twill_tcp_lost(const struct twill_tcp_channel *channel, int why,
                            struct twill_error *error);
/* Send what is posted, as far as possible now. Returns the number of requests that finished, plus 1
 * if bytes moved, or a negative status. */
int twill_tcp_send(struct twill_tcp *t, struct twill_tcp_channel *channel,
                   struct twill_error *error);
/* What one thread needs to read payload, a local variable of whoever reads. */
struct twill_tcp_reader {
    unsigned char *scratch; /* [scratch_bytes] payload to reduce; at least TWILL_TCP_GRAIN bytes */
    size_t scratch_bytes;
    size_t once;               /* most bytes of a read into the user's buffer */
    size_t copied;             /* set: payload bytes that went through the receive buffer */
    int why;                   /* set by a failure: an errno, or 0 if the connection has ended */
    struct twill_error *error; /* for damaged records */
};
/* Results of a read: none could be read, some until the socket was empty, all asked for, or a
 * failure. */
enum { TWILL_TCP_FAILED = -1, TWILL_TCP_EMPTY, TWILL_TCP_SHORT, TWILL_TCP_FULL };
/* Read payload of a channel's first RECV into its buffer, or reduce it, and add the bytes to
 * request->moved, which shows the end of the RECV. Changes only the input of the channel, the RECV
 * and the reader, so several threads may do this for different channels. Returns whether it read
 * something, as above, or TWILL_TCP_FAILED with reader->why. */
int twill_tcp_read_payload(struct twill_tcp_channel *channel, struct twill_tcp_reader *reader);
/* Handle a failed read, with `why` an errno or 0. Returns a negative status, or TWILL_TCP_SHORT if
 * the peer has refused the current SEND, which is then over. */
int twill_tcp_read_failed(struct twill_tcp *t, struct twill_tcp_channel *channel, int why,
                          struct twill_error *error);
/* If much was sent or received on several channels since the last poll, let the threads of the pool
 * each continue that for some of them, once, and mark these directions as served. It makes no other
 * system calls than one thread would. Unless `direct`, only those continue that are readable or
 * writable by epoll. For a rank with a pool. Returns 1 if bytes moved, 0 if none, or a negative
 * status. */
int twill_tcp_share(struct twill_tcp *t, bool direct, struct twill_error *error);
/* Receive what has arrived for posted requests, in a limited number of reads. Returns how many
 * requests finished, plus 1 if bytes moved, or a negative status. */
int twill_tcp_recv(struct twill_tcp *t, struct twill_tcp_channel *channel,
                   struct twill_error *error);
/* Handle a failed send, with `why` an errno. The peer may have sent a refusal before it closed. If
 * so, end the current SEND with TWILL_ERR_MISMATCH and this call of progress, and return 1. The
 * caller then learns of the refusal before another request on this connection fails. Otherwise
 * return a negative status. */
int twill_tcp_send_lost(struct twill_tcp *t, struct twill_tcp_channel *channel, int why,
                        struct twill_error *error);
/* Check whether the peer has refused the current SEND, which is then marked so. Returns 1 if a
 * refusal was read, or if the connection has ended after it and so this ended the SEND. Returns 0
 * if there is none or twill_tcp_recv() will find it, or a negative status. */
int twill_tcp_recv_refusal(struct twill_tcp *t, struct twill_tcp_channel *channel,
                           struct twill_error *error);
/* Accept connections, then call visit() for the first message that has arrived on each channel if
 * no RECV is posted there. The message stays unread. `all` has no effect, as only the first message
 * of a channel can be seen. Does nothing after a failure. */
void twill_tcp_early(struct twill_transport *transport, bool all, twill_early_fn visit, void *user);
/* Return whether a SEND is posted on the channel, or a refusal or records wait to be sent. */
static inline bool twill_tcp_sends(const struct twill_tcp_channel *channel)
{
    return channel->out.queue.head != NULL || channel->out.refuses ||
           (channel->records != NULL && twill_tcp_records_wait(channel->records));
}
/* Return whether a RECV is posted on the channel, or bytes of a refused message are left to
 * discard. Neither says that anything has arrived. */
static inline bool twill_tcp_receives(const struct twill_tcp_channel *channel)
{
    return channel->in.queue.head != NULL || channel->in.skip > 0;
}

/* Return whether the user asks for encryption or checksums of messages between hosts, which no
 * other transport has. Sets *what, if not NULL, to a constant text for messages, "encryption
 * (TWILL_ENCRYPT)" if that is asked for, as it replaces checksums. Else it is "checksums
 * (TWILL_CHECKSUM)", also if neither is asked for. */
bool twill_tcp_protects(const struct twill_transport_params *params, const char **what);
/* Set *protection to how this rank would protect connections. Ranks then compare that. Fails with
 * TWILL_ERR_CONFIG if encryption or checksums are asked for, but TWILL_PROVIDER names another
 * provider than tcp, as only tcp has these. Fails with TWILL_ERR_INTERNAL if checksums are asked
 * for and params->crc32c is NULL. */
twill_status twill_tcp_protection_find(struct twill_tcp_protection *protection,
                                       const struct twill_transport_params *params,
                                       struct twill_error *error);
/* Return this rank's protection as one number, which ranks exchange to compare it. */
uint32_t twill_tcp_guard(const struct twill_tcp_protection *protection);
/* Compare *protection with `guard`, the result of twill_tcp_guard() on rank `rank`, and use AES
 * only if both have it. Fails with TWILL_ERR_CONFIG if only one of the two encrypts or has
 * checksums. */
twill_status twill_tcp_guard_agree(struct twill_tcp_protection *protection, uint32_t rank,
                                   uint32_t guard, struct twill_error *error);
/* Put bytes of iov[] into records of a channel, and give the kernel as many records as it takes.
 * Returns how many bytes were put into records, at least 1, which the caller must not pass again.
 * If there is no room for any now, returns -1 with errno EAGAIN. If sending failed, returns -1 with
 * its errno. */
ssize_t twill_tcp_protected_write(struct twill_tcp_channel *channel, const struct iovec *iov,
                                  size_t n, size_t bytes);
/* Send records and read acknowledgements. Returns 1 or more if any moved, 0 if none, or a negative
 * status. */
int twill_tcp_protected_step(struct twill_tcp *t, struct twill_tcp_channel *channel,
                             struct twill_error *error);

#endif
