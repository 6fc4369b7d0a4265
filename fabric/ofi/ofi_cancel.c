/* SPDX-License-Identifier: Apache-2.0 */
/* The end of a communicator. Afterwards nothing that peers still send may arrive in callers'
 * buffers. On a shared endpoint the provider is asked to return every operation; if it does not,
 * the endpoint is closed, and with it all other communicators fail. */
#include "fabric/ofi/ofi.h"
#include "lib/base/rest.h"
#include "lib/base/times.h"

#include <stdio.h>

static void cancel_op(struct twill_ofi_endpoint *endpoint, struct twill_ofi_op *op)
{
    if (op->posted && endpoint->fi.ep != NULL && !endpoint->options.no_cancel)
        fi_cancel(&endpoint->fi.ep->fid, &op->context);
}

static void cancel_channel(struct twill_ofi_endpoint *endpoint, struct twill_ofi_channel *channel)
{
    for (uint32_t i = 0; i < TWILL_OFI_HEADERS; i++)
        cancel_op(endpoint, &channel->header_in[i]);
    for (uint32_t i = 0; i < TWILL_OFI_CHUNKS; i++) {
        cancel_op(endpoint, &channel->chunk_in[i]);
        cancel_op(endpoint, &channel->chunk_out[i]);
    }
}

static void forget_channel(struct twill_ofi_channel *channel)
{
    channel->headers_out = channel->payload_out = channel->in =
        (struct twill_transfer_queue){NULL, NULL};
    channel->next_large = NULL;
    for (uint32_t i = 0; i < TWILL_OFI_CHUNKS; i++) {
        channel->chunk_out[i].request = NULL;
        channel->chunk_in[i].request = NULL;
    }
}

static void visit_channels(struct twill_ofi *t, void (*what)(struct twill_ofi_endpoint *endpoint,
                                                             struct twill_ofi_channel *channel))
{
    for (uint32_t r = 0; r < t->size; r++)
        for (uint32_t l = 0; t->peers[r] != NULL && l < TWILL_OFI_LANES; l++)
            what(t->endpoint, &t->peers[r]->channels[l]);
}

static void channel_forget(struct twill_ofi_endpoint *endpoint, struct twill_ofi_channel *channel)
{
    (void)endpoint;
    forget_channel(channel);
}

/* Wait until *busy is 0, or until `limit`. Releases the lock between polls. */
static void wait_operations(struct twill_ofi *t, const uint32_t *busy, uint64_t limit)
{
    struct twill_ofi_endpoint *endpoint = t->endpoint;
    for (unsigned turn = 0; *busy > 0 && endpoint->fi.ep != NULL &&
                            (turn < TWILL_OFI_POLLS_LEAST || twill_now() < limit);
         turn++) {
        twill_ofi_drain(endpoint);
        pthread_mutex_unlock(&endpoint->lock);
        twill_yield();
        pthread_mutex_lock(&endpoint->lock);
    }
}

/* Get all operations back from the provider, even if no other communicator uses the endpoint:
 * fi_close() of an rxm endpoint with transfers in flight may crash in libfabric 1.17. Callers'
 * buffers must be free afterwards; header receives and send buffers lie in the transport's memory,
 * which stays until they are returned. */
static void reclaim_operations(struct twill_ofi *t)
{
    struct twill_ofi_endpoint *endpoint = t->endpoint;
    char message[200];
    wait_operations(t, &t->chunks_busy, twill_now() + TWILL_OFI_GRACE_NS);
    visit_channels(t, cancel_channel);
    uint64_t limit = twill_now() + TWILL_OFI_CANCEL_NS;
    wait_operations(t, &t->chunks_busy, limit);
    wait_operations(t, &t->headers_busy, limit);
    if (t->chunks_busy == 0 || endpoint->fi.ep == NULL)
        return;
    snprintf(message, sizeof(message),
             "ofi: the endpoint was closed because communicator %u failed and provider %.40s did "
             "not return %u of its operations",
             t->comm, endpoint->fi.info->fabric_attr->prov_name, t->chunks_busy);
    twill_say(endpoint->params.log, TWILL_LOG_INFO, "%s", message);
    twill_ofi_endpoint_close(endpoint);
    twill_ofi_endpoint_fail(endpoint, TWILL_ERR_FABRIC, message);
}

/* Detach the communicator from its send buffers, which the provider still sends. */
static void disown_sends(struct twill_ofi *t)
{
    for (uint32_t i = 0; i < TWILL_OFI_BUFFERS; i++) {
        struct twill_ofi_op *op = &t->endpoint->buffers.sends[i];
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
        reclaim_operations(t);
        if (t->chunks_busy == 0 || twill_ofi_is_closed(t->endpoint))
            twill_ofi_release_all(t); /* else the provider may use what is registered */
        visit_channels(t, channel_forget);
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
    uint64_t limit = twill_now() + TWILL_OFI_FLUSH_NS;
    bool busy = true;
    for (unsigned turn = 0;
         busy && !t->cancelled && (turn < TWILL_OFI_POLLS_LEAST || twill_now() < limit); turn++) {
        busy = twill_ofi_progress(transport, NULL) >= 0;
        pthread_mutex_lock(&t->endpoint->lock);
        busy = busy && t->sends_busy > 0 && t->endpoint->fi.ep != NULL;
        pthread_mutex_unlock(&t->endpoint->lock);
    }
    twill_ofi_cancel(transport);
    twill_ofi_leave(t);
}
