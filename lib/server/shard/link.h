/* SPDX-License-Identifier: Apache-2.0 */
/* A link: worker and shard on different nodes, by messages on a communicator of these two ranks, so
 * that the death of one breaks no other link.
 *
 * Each message stream has heads of 32 bytes. A head of a push, and one that answers a pull, is
 * followed by the data of its chunks, a message each, which are received where they belong. A
 * worker may have options.credits chunks on the way: the server gives a credit back when a chunk is
 * in its inbox, so that many workers do not overrun the server's network (incast). */
#ifndef TWILL_SERVER_LINK_H
#define TWILL_SERVER_LINK_H

#include "lib/server/shard/shard.h"

#define TWILL_LINK_POSTED 32u /* sends under way */
#define TWILL_LINK_TAKEN  16u /* receives of chunks under way */

/* Kinds of heads besides those of orders. */
#define TWILL_LINK_PUSHED 8u
#define TWILL_LINK_PULLED 16u
#define TWILL_LINK_CREDIT 32u
#define TWILL_LINK_LEFT   64u

struct twill_link_head {
    uint16_t kind, credits;
    uint32_t key;
    uint64_t push;       /* number; PULLED: version */
    uint64_t pull;       /* number */
    uint32_t first, end; /* chunks that follow, among those of the shard */
};
_Static_assert(sizeof(struct twill_link_head) == 32, "with the transport's, 64 bytes");

/* A head to be sent, with its chunks. */
struct twill_link_batch {
    struct twill_link_head head;
    uint32_t next; /* chunk to be sent */
    bool begun;    /* the head is sent */
};

struct twill_link_key {
    uint32_t missing; /* worker: chunks of the pull that have not landed; server: not sent yet */
    uint64_t version;
};

struct twill_link_sending {
    struct twill_link_batch *batch; /* [batches], those before `current` are sent */
    uint32_t batches, batches_held, current;
    twill_request *sent[TWILL_LINK_POSTED]; /* by number modulo TWILL_LINK_POSTED */
    struct twill_link_head sent_head[TWILL_LINK_POSTED];
    uint32_t sent_key[TWILL_LINK_POSTED]; /* of parameters, else UINT32_MAX */
    uint32_t sent_first, sent_end;
    uint32_t credits; /* a worker's */
    bool starved;     /* has counted that it waits for a credit */
};

struct twill_link_receiving {
    struct twill_link_head head;
    twill_request *head_request;
    bool has_head; /* `head` has been received and its chunks have not all been */
    twill_request *taken[TWILL_LINK_TAKEN];
    uint32_t take_next, take_end; /* chunk to complete, and to post next */
    uint32_t credits_due;         /* a server's */
};

/* One end. A worker's is under server->work.posting, a server's under the shard's lock. */
struct twill_server_link {
    struct twill_server *server;
    struct twill_shard *shard; /* server's end, or NULL */
    struct twill_port *port;   /* worker's end, or NULL */
    uint32_t worker;           /* its number */
    twill_comm *comm;
    int peer;
    uint32_t *place;     /* [chunks] of the shard: index into server->cut.place, by key */
    uint32_t *key_first; /* [keys + 1] */
    size_t *inbox_at;    /* [chunks + 1], server: where gradients are received */
    unsigned char *inbox;
    size_t *outbox_at; /* where parameters are copied that may change while they are sent */
    unsigned char *outbox;
    size_t inbox_bytes, outbox_bytes;
    struct twill_link_key *key; /* [keys] */
    bool lost;                  /* the peer has died */
    bool left;                  /* the worker has left: nothing is received any more */
    struct twill_link_sending out;
    struct twill_link_receiving in;
};

/* Make the links of this rank; `maps` says which pairs need none. Collective. */
twill_status twill_links_open(struct twill_server *server,
                              bool (*maps)(const struct twill_server *server, uint64_t *all,
                                           uint32_t worker, uint32_t rank),
                              uint64_t *all);
/* End them, with the peers where nothing has failed. */
void twill_links_close(struct twill_server *server, bool together);
/* End a communicator of two ranks: together if the peer ends it, too, else without the peer. NULL
 * is allowed. */
void twill_link_end_comm(struct twill_comm *comm, bool together);
/* Advance a link. Returns whether something moved. */
bool twill_link_poll(struct twill_server_link *link);
/* Queue an order of the worker. */
void twill_link_order(struct twill_server_link *link, struct twill_server_order order);
/* Queue the answer to a push; a chunk's parameters. */
void twill_link_answer(struct twill_server_link *link, uint32_t key, uint64_t push);
void twill_link_deliver(struct twill_server_link *link, const struct twill_chunk *chunk);

#endif
