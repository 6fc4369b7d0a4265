/* SPDX-License-Identifier: Apache-2.0 */
/* A link between a worker and a shard on different nodes. It sends messages on a communicator of
 * these two ranks, so that the death of one breaks no other link.
 *
 * Each direction carries heads of 32 bytes. The head of a push, or of the answer to a pull, is
 * followed by one message for the data of each chunk, which is received where the data belong. A
 * worker may have options.credits chunks under way. The server returns a credit when a chunk is in
 * its inbox, so that many workers do not overrun the server's network (incast). */
#ifndef TWILL_SERVER_LINK_H
#define TWILL_SERVER_LINK_H

#include "lib/server/shard/shard.h"

#define TWILL_LINK_POSTED 32u /* most sends under way */
#define TWILL_LINK_TAKEN  16u /* most receives of chunks under way */

/* Kinds of heads in addition to those of orders. */
#define TWILL_LINK_PUSHED 8u
#define TWILL_LINK_PULLED 16u
#define TWILL_LINK_CREDIT 32u
#define TWILL_LINK_LEFT   64u

/* Head of a message, sent as it is in memory. `kind` is a set of TWILL_ORDER_* in a worker's order,
 * and one of TWILL_LINK_* in a shard's answer. */
struct twill_link_head {
    uint16_t kind, credits; /* credits are chunks that the receiver may send in addition */
    uint32_t key;
    uint64_t push;       /* number of the push, in PULLED the version of the chunks that follow */
    uint64_t pull;       /* number of the pull, in orders to pull and in PULLED */
    uint32_t first, end; /* range of the chunks that follow, as indices in the shard */
};
_Static_assert(sizeof(struct twill_link_head) == 32, "with the transport's, 64 bytes");

/* A head that is queued to be sent, with its chunks. An element of its link's queue. */
struct twill_link_batch {
    struct twill_link_head head;
    uint32_t next; /* chunk to be sent next */
    bool begun;    /* the head has been sent */
};

/* State of a key on one end of a link, under the lock of that end. */
struct twill_link_key {
    uint32_t missing; /* chunks of the pull not landed (worker) or not sent (server) */
    uint64_t version; /* worker: lowest version of the pull so far */
};

/* Sending half of one end of a link, under the lock of that end. batch[] is a queue of heads, each
 * with the chunks that it announces. sent[] has the requests of sends under way. */
struct twill_link_sending {
    struct twill_link_batch *batch;          /* [batches] those before `current` have been sent */
    uint32_t batches, batches_held, current; /* room in batch[] for batches_held */
    twill_request *sent[TWILL_LINK_POSTED];  /* by number modulo TWILL_LINK_POSTED */
    struct twill_link_head sent_head[TWILL_LINK_POSTED];
    uint32_t sent_key[TWILL_LINK_POSTED]; /* key of the parameters sent, otherwise UINT32_MAX */
    uint32_t sent_first, sent_end; /* numbers of the oldest send under way and of the next one */
    uint32_t credits;              /* number of chunks that a worker may still send */
    bool starved;                  /* this wait for a credit has been counted */
};

/* Receiving half of one end of a link, under the lock of that end. A head arrives first, and then
 * the chunks that it announces, up to TWILL_LINK_TAKEN at a time. */
struct twill_link_receiving {
    struct twill_link_head head;
    twill_request *head_request;
    bool has_head; /* `head` has been received, but not all of its chunks */
    twill_request *taken[TWILL_LINK_TAKEN]; /* receives of chunks, by number modulo the length */
    uint32_t take_next, take_end;           /* chunk to complete next, and to post next */
    uint32_t credits_due; /* at a server, chunks for which it has not returned a credit */
};

/* One end of a link, from twill_links_open() to twill_links_close(). server->work.posting protects
 * a worker's end, the shard's lock a server's. */
struct twill_server_link {
    struct twill_server *server;
    struct twill_shard *shard; /* at a server's end, or NULL */
    struct twill_port *port;   /* at a worker's end, or NULL */
    uint32_t worker;           /* number of the worker */
    twill_comm *comm;
    int peer;
    uint32_t *place;     /* [chunks] of the shard, by key: index into server->cut.place */
    uint32_t *key_first; /* [keys + 1] index in place[] of the first chunk of each key */
    size_t *inbox_at;    /* [chunks] at a server: where gradients are received */
    unsigned char *inbox;
    size_t *outbox_at;     /* [chunks] in `outbox` */
    unsigned char *outbox; /* copies of parameters that may change while they are sent, or NULL */
    size_t inbox_bytes, outbox_bytes;
    struct twill_link_key *key; /* [keys] */
    bool lost;                  /* the peer has died, or the link has failed */
    bool left;                  /* the worker has left, and nothing more is received */
    struct twill_link_sending out;
    struct twill_link_receiving in;
};

/* Make this rank's ends of links, in server->link. A worker and a shard need one unless
 * maps(server, all, worker's rank, server's rank) returns true, as they map each other's memory.
 * `all` is only passed to maps(). Returns TWILL_ERR_MEMORY or a communicator's error if that fails.
 * Collective. */
twill_status twill_links_open(struct twill_server *server,
                              bool (*maps)(const struct twill_server *server, uint64_t *all,
                                           uint32_t worker, uint32_t rank),
                              uint64_t *all);
/* End and free all links. If `together`, the peers do so now. Then what is queued is sent before,
 * within the timeout. Otherwise the communicators are broken. */
void twill_links_close(struct twill_server *server, bool together);
/* Destroy a communicator together with the peer, or alone after breaking it. NULL is allowed. */
void twill_link_end_comm(struct twill_comm *comm, bool together);
/* Receive and send what can move on a link. Returns whether something did. A lost link is idle. */
bool twill_link_poll(struct twill_server_link *link);
/* Queue an order of the worker for the shard. twill_link_poll() sends it. */
void twill_link_order(struct twill_server_link *link, struct twill_server_order order);
/* Queue the answer to push number `push` of a key, to be sent to the worker. */
void twill_link_answer(struct twill_server_link *link, uint32_t key, uint64_t push);
/* Queue a chunk's parameters for the worker, or a copy of them if they may change before. */
void twill_link_deliver(struct twill_server_link *link, const struct twill_chunk *chunk);

#endif
