/* SPDX-License-Identifier: Apache-2.0 */
/* The transports there are. A new one is its file and a line here and in transports.c. */
#ifndef TWILL_TRANSPORTS_H
#define TWILL_TRANSPORTS_H

#include "fabric/transport.h"

#define TWILL_TRANSPORTS_MOST 8

extern const struct twill_transport_ops twill_self_transport; /* a rank to itself */
extern const struct twill_transport_ops twill_mock_transport; /* only by TWILL_MOCK */
extern const struct twill_transport_ops twill_shm_transport;  /* on a node */
extern const struct twill_transport_ops twill_tcp_transport;  /* between nodes: our own */
extern const struct twill_transport_ops twill_ofi_transport;  /* between nodes: libfabric */

/* What twill_node_open() must set aside for the channels of shm among node_size ranks. */
size_t twill_shm_channel_bytes(uint32_t node_size);

/* --- internode.c: tcp of our own, or libfabric -------------------------------------------------
 */

/* Which of them carries messages between nodes: params->own_tcp for all ranks, and why. Collective,
 * unless TWILL_PROVIDER says it. */
twill_status twill_between_agree(struct twill_transport_params *params, char *why, size_t why_bytes,
                                 struct twill_error *error);
/* The same as far as this rank can tell: for people who ask before a job. */
void twill_between_guess(struct twill_transport_params *params, char *why, size_t why_bytes);
/* Has libfabric something that is better than TCP here? Then its name; else an error, if libfabric
 * could not be asked. fabric/ofi/ofi_choose.c */
bool twill_ofi_is_better(const struct twill_transport_params *params, char *name, size_t bytes,
                         struct twill_error *error);

/* --- shared by transports: requests in the order they were posted ---------------------------- */

struct twill_transfer_queue {
    struct twill_transfer *head, *tail;
};

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

/* Take the first one off and finish it; it may be gone once its status says so. */
static inline void twill_transfer_pop(struct twill_transfer_queue *queue, twill_status status)
{
    struct twill_transfer *request = queue->head;
    queue->head = request->next;
    twill_transfer_finish(request, status);
}

/* Does a message that carries this fit what was posted? Else say so in the request. */
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
