/* SPDX-License-Identifier: Apache-2.0 */
/* The list of transports, and what they share. A new one needs a line here and in transports.c. */
#ifndef TWILL_TRANSPORTS_H
#define TWILL_TRANSPORTS_H

#include "fabric/transport.h"

extern const struct twill_transport_ops twill_self_transport; /* messages of a rank to itself */
extern const struct twill_transport_ops twill_shm_transport;  /* within a node */
extern const struct twill_transport_ops twill_tcp_transport;  /* between nodes: TCP sockets */
extern const struct twill_transport_ops twill_ofi_transport;  /* between nodes: libfabric */

/* Return the bytes of shared memory that the shm channels of two ranks need on each side. */
size_t twill_shm_pair_bytes(void);
#define TWILL_SHM_FETCH_LEAST ((size_t)512 << 10) /* bytes of a message that is read in place */
/* The priority (TWILL_PRIORITY_...) of each transport on one rank, by number in the registry. All
 * are UINT32_MAX on a rank that has not asked its transports, so that any choice suits it. */
struct twill_internode_offers {
    uint32_t priority[TWILL_TRANSPORTS_MOST];
};
/* The choice of the transport between nodes, a local variable of the caller. The ranks offer their
 * priorities, exchange them in a batch, and conclude. */
struct twill_internode_choice {
    /* This rank's, which twill_internode_offer() sets, and [size] those of all ranks after the
     * exchange. The caller frees the latter. */
    struct twill_internode_offers own, *all;
    char text[TWILL_TRANSPORTS_MOST][TWILL_OFFER_BYTES]; /* each transport's reason for `own` */
};
/* Set *choice to the transports' priorities on this rank, and add these to a batch. As a rule only
 * the first rank of a node asks its transports, as that is slow. Returns TWILL_ERR_MEMORY, with a
 * part added anyway, if there is no memory for those of the others. */
twill_status twill_internode_offer(const struct twill_transport_params *params,
                                   struct twill_internode_choice *choice,
                                   struct twill_oob_batch *batch, struct twill_error *error);
/* After the exchange, set params->internode to the transport between nodes that is best on the rank
 * where it is worst, equal on all ranks. Sets it to NULL if no transport works on all ranks. Writes
 * the reason to `why`. */
void twill_internode_conclude(struct twill_transport_params *params,
                              struct twill_internode_choice *choice, char *why, size_t why_bytes);
/* Set params->internode to the best transport between nodes for this rank alone, or NULL, and write
 * why. Asks all transports, without communication. */
void twill_internode_guess(struct twill_transport_params *params, char *why, size_t why_bytes);
/* Return the registry number of the first transport that can carry messages from one rank to the
 * other. Of the transports between nodes only params->internode counts. Returns the length of the
 * registry if there is none. */
size_t twill_transport_between(const struct twill_transport_params *params, uint32_t from,
                               uint32_t to);

/* A queue of requests in posting order. It owns none of them. */
struct twill_transfer_queue {
    struct twill_transfer *head, *tail;
};

/* Append a request, set its status to TWILL_PENDING, and set the bytes that it has moved to 0. */
static inline void twill_transfer_push(struct twill_transfer_queue *queue,
                                       struct twill_transfer *request)
{
    request->next = NULL;
    request->moved = 0;
    request->status = TWILL_PENDING;
    if (queue->head == NULL)
        queue->head = request;
    else
        queue->tail->next = request;
    queue->tail = request;
}

/* Remove and complete the first request, which must exist. The poster may free it from then on. */
static inline void twill_transfer_pop(struct twill_transfer_queue *queue, twill_status status)
{
    struct twill_transfer *request = queue->head;
    queue->head = request->next;
    twill_transfer_finish(request, status);
}

/* Return whether a message has the request's signature and size. If not, set
 * request->peer_signature and peer_bytes to the message's. */
static inline bool twill_transfer_matches(struct twill_transfer *request, uint32_t signature,
                                          uint64_t bytes)
{
    if (TWILL_LIKELY(request->signature == signature && request->bytes == bytes))
        return true;
    request->peer_signature = signature;
    request->peer_bytes = bytes;
    return false;
}

#endif
