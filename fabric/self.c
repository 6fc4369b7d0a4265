/* SPDX-License-Identifier: Apache-2.0 */
/* The transport for a rank's messages to itself. The n-th SEND of a lane matches its n-th RECV. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/shm/node_memory.h"
#include "fabric/transports.h"

#include <stdlib.h>

struct self { /* the transport of one rank, by self_open() to self_close() */
    struct twill_transport base;
    struct twill_transfer_queue send[TWILL_LANES], recv[TWILL_LANES];
    uint32_t rank;
    uint32_t waiting; /* bit per lane: requests are queued */
};

/* Return whether both ranks are the same. */
static bool self_reaches(const struct twill_transport_params *params, uint32_t from, uint32_t to)
{
    (void)params;
    return from == to;
}

/* Complete pairs of SEND and RECV of a lane, and return their number. If signature or size differ,
 * the RECV completes with TWILL_ERR_MISMATCH and the SEND with TWILL_OK. Stop at a RECV with reduce
 * unless may_reduce is set, as reduce() may run only in progress(). */
static int match(struct self *self, uint32_t lane, bool may_reduce)
{
    struct twill_transfer_queue *sends = &self->send[lane], *recvs = &self->recv[lane];
    int matched = 0;
    for (; sends->head != NULL && recvs->head != NULL; matched++) {
        const struct twill_transfer *send = sends->head;
        struct twill_transfer *recv = recvs->head;
        if (recv->reduce != NULL && !may_reduce)
            break;
        twill_status status = TWILL_OK;
        if (!twill_transfer_matches(recv, send->signature, send->bytes))
            status = TWILL_ERR_MISMATCH;
        else if (send->bytes == 0)
            ;
        else if (recv->reduce != NULL)
            recv->reduce(recv, 0, send->buffer, send->bytes);
        else
            memmove(recv->buffer, send->buffer, send->bytes);
        twill_counter_add(&self->base.counters.messages, 1);
        twill_counter_add(&self->base.counters.bytes, send->bytes);
        twill_transfer_pop(recvs, status);
        twill_transfer_pop(sends, TWILL_OK);
    }
    if (sends->head == NULL && recvs->head == NULL)
        self->waiting &= ~(1u << lane);
    return matched;
}

/* Queue a request and complete what matches, except RECVs with reduce(), which self_progress()
 * completes. Returns TWILL_ERR_INTERNAL unless its peer is this rank and its lane exists. */
static twill_status self_post(struct twill_transport *transport, struct twill_transfer *request,
                              struct twill_error *error)
{
    struct self *self = (struct self *)transport;
    if (request->peer != self->rank || request->lane >= TWILL_LANES)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL,
                          "self: rank %u cannot send to rank %u on lane %u", self->rank,
                          request->peer, request->lane);
    bool sends = request->kind == TWILL_TRANSFER_SEND;
    twill_transfer_push(sends ? &self->send[request->lane] : &self->recv[request->lane], request);
    self->waiting |= 1u << request->lane;
    match(self, request->lane, false);
    return TWILL_OK;
}

/* Complete what matches on all lanes, and return how many pairs of SEND and RECV did. */
static int self_progress(struct twill_transport *transport, struct twill_error *error)
{
    struct self *self = (struct self *)transport;
    (void)error;
    int matched = 0;
    for (uint32_t lane = 0; self->waiting >> lane != 0 && lane < TWILL_LANES; lane++)
        matched += match(self, lane, true);
    return matched;
}

/* Drop all requests without completing them. */
static void self_cancel(struct twill_transport *transport)
{
    struct self *self = (struct self *)transport;
    for (uint32_t lane = 0; lane < TWILL_LANES; lane++)
        self->send[lane].head = self->recv[lane].head = NULL;
    self->waiting = 0;
}

/* Set *transport to one that self_close() frees, or to NULL with TWILL_ERR_MEMORY. */
static twill_status self_open(struct twill_transport **transport,
                              const struct twill_transport_params *params,
                              struct twill_error *error)
{
    struct self *self = calloc(1, sizeof(*self));
    *transport = NULL;
    if (self == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "self: no memory for a transport");
    self->base.ops = &twill_self_transport;
    self->rank = (uint32_t)params->oob->rank;
    *transport = &self->base;
    return TWILL_OK;
}

static void self_close(struct twill_transport *transport)
{
    free(transport);
}

static const char *self_describe(const struct twill_transport *transport)
{
    (void)transport;
    return "self: a rank's messages to itself, copied once";
}

const struct twill_transport_ops twill_self_transport = {
    .name = "self",
    .needs_bounce = false,
    /* Only this rank's own posts create work, so a sleeping wait misses nothing. */
    .sleeps_on_doorbell = true,
    .reaches = self_reaches,
    .open = self_open,
    .close = self_close,
    .post = self_post,
    .progress = self_progress,
    .cancel = self_cancel,
    .describe = self_describe,
};
