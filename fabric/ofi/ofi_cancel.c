/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a communicator: whatever peers still send, nothing lands in the callers' buffers
 * afterwards. On an endpoint that others use the provider is asked to give back every operation;
 * where it does not, the endpoint goes, and with it the other communicators. */
#include "fabric/ofi/ofi.h"

#include <sched.h>
#include <stdio.h>

/* What sends are given to leave the process by themselves when a transport is closed. */
#define OFI_FLUSH_NS 1000000000ull
/* Segments that both sides have with their providers may still meet: a SEND can seldom be
 * cancelled, and one whose RECV is cancelled stays for ever. */
#define CANCEL_GRACE_NS 250000000ull
/* Then the provider is given this long to give back what is cancelled. */
#define CANCEL_NS 1000000000ull

static void cancel_op(struct twill_ofi_endpoint *endpoint, struct twill_ofi_op *op)
{
    if (op->posted && endpoint->ep != NULL && !endpoint->options.keeps)
        fi_cancel(&endpoint->ep->fid, &op->context);
}

static void cancel_lane(struct twill_ofi_endpoint *endpoint, struct twill_ofi_lane *lane)
{
    for (uint32_t i = 0; i < TWILL_OFI_HEADERS; i++)
        cancel_op(endpoint, &lane->header_in[i]);
    for (uint32_t i = 0; i < TWILL_OFI_CHUNKS; i++) {
        cancel_op(endpoint, &lane->chunk_in[i]);
        cancel_op(endpoint, &lane->chunk_out[i]);
    }
}

static void forget_lane(struct twill_ofi_lane *lane)
{
    lane->headers_out = lane->payload_out = lane->in = (struct twill_transfer_queue){NULL, NULL};
    lane->next_large = NULL;
    for (uint32_t i = 0; i < TWILL_OFI_CHUNKS; i++) {
        lane->chunk_out[i].request = NULL;
        lane->chunk_in[i].request = NULL;
    }
}

static void visit_lanes(struct twill_ofi *t, void (*what)(struct twill_ofi_endpoint *endpoint,
                                                          struct twill_ofi_lane *lane))
{
    for (uint32_t r = 0; r < t->size; r++)
        for (uint32_t l = 0; t->peers[r] != NULL && l < TWILL_OFI_LANES; l++)
            what(t->endpoint, &t->peers[r]->lanes[l]);
}

static void lane_forget(struct twill_ofi_endpoint *endpoint, struct twill_ofi_lane *lane)
{
    (void)endpoint;
    forget_lane(lane);
}

/* Others may use the endpoint in between. */
static void wait_operations(struct twill_ofi *t, const uint32_t *busy, uint64_t limit)
{
    struct twill_ofi_endpoint *endpoint = t->endpoint;
    for (unsigned turn = 0;
         *busy > 0 && endpoint->ep != NULL && (turn < TWILL_OFI_POLLS_LEAST || twill_now() < limit);
         turn++) {
        struct twill_error error = {0};
        if (twill_ofi_read(endpoint, &error) != TWILL_OK)
            break;
        pthread_mutex_unlock(&endpoint->lock);
        sched_yield();
        pthread_mutex_lock(&endpoint->lock);
    }
}

/* Have the provider give everything back, also where no other communicator uses the endpoint:
 * libfabric 1.17 may crash in fi_close of an endpoint of rxm with transfers under way. Header
 * receives and send buffers lie in the transport's memory, which stays as long as they are out; the
 * callers' buffers must be free. */
static void take_back(struct twill_ofi *t)
{
    struct twill_ofi_endpoint *endpoint = t->endpoint;
    char message[200];
    wait_operations(t, &t->chunks_busy, twill_now() + CANCEL_GRACE_NS);
    visit_lanes(t, cancel_lane);
    uint64_t limit = twill_now() + CANCEL_NS;
    wait_operations(t, &t->chunks_busy, limit);
    wait_operations(t, &t->headers_busy, limit);
    if (t->chunks_busy == 0 || endpoint->ep == NULL)
        return;
    snprintf(message, sizeof(message),
             "ofi: the endpoint was closed because communicator %u failed and provider %.40s did "
             "not give back %u of its operations",
             t->comm, endpoint->info->fabric_attr->prov_name, t->chunks_busy);
    twill_say(endpoint->params.log, TWILL_LOG_INFO, "%s", message);
    twill_ofi_endpoint_close(endpoint); /* which reads on, as a home that has failed does not */
    twill_ofi_endpoint_fail(endpoint, TWILL_ERR_FABRIC, message);
}

/* Send buffers go on their way; nobody waits for them any more. */
static void disown_sends(struct twill_ofi *t)
{
    for (uint32_t i = 0; i < TWILL_OFI_BUFFERS; i++) {
        struct twill_ofi_op *op = &t->endpoint->sends[i];
        if (op->owner != t)
            continue;
        op->owner = NULL;
        op->request = NULL;
    }
    t->sends_busy = 0;
}

void twill_ofi_cancel(struct twill_transport *transport)
{
    struct twill_ofi *t = (struct twill_ofi *)transport;
    pthread_mutex_lock(&t->endpoint->lock);
    if (!t->cancelled) {
        t->cancelled = true;
        disown_sends(t);
        take_back(t);
        twill_ofi_release_all(t);
        visit_lanes(t, lane_forget);
        t->stuck_head = t->stuck_tail = NULL;
        t->sent = t->sent_last = NULL;
        if (t->failed == TWILL_OK)
            t->failed = TWILL_ERR_BROKEN;
    }
    pthread_mutex_unlock(&t->endpoint->lock);
}

void twill_ofi_close(struct twill_transport *transport)
{
    struct twill_ofi *t = (struct twill_ofi *)transport;
    if (t == NULL)
        return;
    uint64_t limit = twill_now() + OFI_FLUSH_NS;
    bool busy = true;
    for (unsigned turn = 0;
         busy && !t->cancelled && (turn < TWILL_OFI_POLLS_LEAST || twill_now() < limit); turn++) {
        busy = twill_ofi_progress(transport, NULL) >= 0;
        pthread_mutex_lock(&t->endpoint->lock);
        busy = busy && t->sends_busy > 0 && t->endpoint->ep != NULL;
        pthread_mutex_unlock(&t->endpoint->lock);
    }
    twill_ofi_cancel(transport);
    twill_ofi_leave(t);
}
