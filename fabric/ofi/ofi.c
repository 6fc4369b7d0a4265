/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of the ofi transport except progress. */
#include "fabric/ofi/ofi.h"
#include "lib/base/rest.h"
#include "lib/base/times.h"

#include <stdio.h>
#include <stdlib.h>

/* Fill in a zeroed `t` and join the endpoint. On failure the caller calls twill_ofi_destroy(). */
static twill_status set_up_ofi(struct twill_ofi *t, const struct twill_transport_params *params,
                               const struct twill_ofi_options *options, struct twill_error *error)
{
    t->base.ops = &twill_ofi_transport;
    t->comm = params->comm;
    t->job = params->job;
    t->rank = (uint32_t)params->oob->rank;
    t->size = (uint32_t)params->oob->size;
    t->start = twill_clock_read();
    t->peers = calloc(t->size, sizeof(*t->peers));
    if (t->peers == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for %u peers", t->size);
    return twill_ofi_join(t, params, options, error);
}

twill_status twill_ofi_open(struct twill_transport **transport,
                            const struct twill_transport_params *params,
                            const struct twill_ofi_options *options, struct twill_error *error)
{
    *transport = NULL;
    struct twill_ofi *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for a transport");
    twill_status status = set_up_ofi(t, params, options, error);
    if (status != TWILL_OK) {
        twill_ofi_destroy(t);
        return status;
    }
    *transport = &t->base;
    return TWILL_OK;
}

/* Open a transport, *transport, or set that to NULL. close() of its ops frees it. Collective. */
static twill_status ofi_open(struct twill_transport **transport,
                             const struct twill_transport_params *params, struct twill_error *error)
{
    return twill_ofi_open(transport, params, NULL, error);
}

/* Return TWILL_ERR_BROKEN if `t` has failed, or the endpoint's status. Call with the lock. */
static twill_status check_ofi(const struct twill_ofi *t, struct twill_error *error)
{
    if (t->failed != TWILL_OK)
        return TWILL_FAIL(error, TWILL_ERR_BROKEN, "ofi: the transport has failed before");
    if (t->endpoint->failed != TWILL_OK)
        return TWILL_FAIL(error, t->endpoint->failed, "%s", t->endpoint->failure);
    return TWILL_OK;
}

/* Create the state of a peer, so that requests for that rank can be posted. Takes the lock. */
static twill_status ofi_connect(struct twill_transport *transport, uint32_t rank,
                                struct twill_error *error)
{
    struct twill_ofi *t = (struct twill_ofi *)transport;
    struct twill_ofi_peer *peer;
    pthread_mutex_lock(&t->endpoint->lock);
    twill_status status = check_ofi(t, error);
    if (status == TWILL_OK)
        status = twill_ofi_peer(t, rank, &peer, error);
    pthread_mutex_unlock(&t->endpoint->lock);
    return status;
}

/* Queue a request on its channel and advance that. If advancing fails, so does `t`. Returns
 * TWILL_ERR_INTERNAL if the peer is not connected, which does not. Call with the lock. */
static twill_status ofi_submit(struct twill_ofi *t, struct twill_transfer *request,
                               struct twill_error *error)
{
    TWILL_TRY(error, check_ofi(t, error));
    if (request->lane >= TWILL_OFI_LANES || request->peer >= t->size ||
        t->peers[request->peer] == NULL)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "ofi: rank %u, lane %u is not connected",
                          request->peer, request->lane);
    struct twill_ofi_channel *channel = &t->peers[request->peer]->channels[request->lane];
    *twill_ofi_private(request) = (struct twill_ofi_private){0};
    int moved;
    if (request->kind != TWILL_TRANSFER_RECV) {
        twill_transfer_push(&channel->headers_out, request);
        moved = twill_ofi_send_advance(t, channel, error);
    } else {
        twill_ofi_recv_add(t, channel, request);
        moved = twill_ofi_recv_advance(t, channel, error);
    }
    if (moved >= 0)
        return TWILL_OK;
    t->failed = (twill_status)moved;
    return t->failed;
}

/* Take the lock and start a SEND, RECV or WRITE, which may complete at once. An error is fatal for
 * `t`. */
static twill_status ofi_post(struct twill_transport *transport, struct twill_transfer *request,
                             struct twill_error *error)
{
    struct twill_ofi *t = (struct twill_ofi *)transport;
    pthread_mutex_lock(&t->endpoint->lock);
    twill_status status = ofi_submit(t, request, error);
    pthread_mutex_unlock(&t->endpoint->lock);
    return status;
}

/* Return provider, domain, address and the reason for the choice. The endpoint owns the text. */
static const char *ofi_describe(const struct twill_transport *transport)
{
    return ((const struct twill_ofi *)transport)->endpoint->description;
}

/* Write half a sentence that nothing has come from a peer. Write "" once a message of it has come,
 * or if it is not connected. Takes the lock. */
static void ofi_await(const struct twill_transport *transport, uint32_t rank, char *text,
                      size_t bytes)
{
    const struct twill_ofi *t = (const struct twill_ofi *)transport;
    struct twill_ofi_endpoint *endpoint = t->endpoint;
    char address[TWILL_ADDRESS_TEXT];
    text[0] = '\0';
    pthread_mutex_lock(&endpoint->lock);
    const struct twill_ofi_peer *peer = t->peers[rank]; /* another thread may create it */
    if (peer != NULL && !peer->heard) {
        size_t number = (size_t)(peer->contact - endpoint->addresses.contact);
        twill_ofi_address_text(endpoint->fi.info,
                               endpoint->addresses.bytes + number * endpoint->addresses.stride,
                               endpoint->addresses.length[number], address, sizeof(address));
        snprintf(text, bytes, "nothing has come from %s over libfabric", address);
    }
    pthread_mutex_unlock(&endpoint->lock);
}

/* Write to `text` the provider and the domain that a communicator would use, and why. Opens
 * libfabric, not an endpoint. Returns TWILL_OK, or the error if libfabric or a provider is missing,
 * with *error set. */
static twill_status ofi_preview(const struct twill_transport_params *params, char *text,
                                size_t bytes, struct twill_error *error)
{
    struct twill_libfabric library;
    struct fi_info *info = NULL;
    char why[160];
    TWILL_TRY(error, twill_ofi_library_open(&library, params, error));
    TWILL_TRY(error, twill_ofi_choose(&library, &info, params, why, sizeof(why), error));
    snprintf(text, bytes, "%s, domain %s: %s", info->fabric_attr->prov_name,
             info->domain_attr->name != NULL ? info->domain_attr->name : "?", why);
    library.freeinfo(info);
    return TWILL_OK;
}

/* Ask the provider to cancel an operation, if it has it. A completion of the operation follows. */
static void cancel_op(struct twill_ofi_endpoint *endpoint, struct twill_ofi_op *op)
{
    if (op->posted && endpoint->fi.ep != NULL && !endpoint->options.no_cancel)
        fi_cancel(&endpoint->fi.ep->fid, &op->context);
}

/* Ask the provider to cancel all operations of a channel, except sends from send buffers. A
 * completion of each follows. */
static void cancel_channel(struct twill_ofi_endpoint *endpoint, struct twill_ofi_channel *channel)
{
    for (uint32_t i = 0; i < TWILL_OFI_HEADERS; i++)
        cancel_op(endpoint, &channel->header_in[i]);
    for (uint32_t i = 0; i < TWILL_OFI_CHUNKS; i++)
        cancel_op(endpoint, &channel->chunk_in[i]);
    for (uint32_t i = 0; i < TWILL_OFI_OUT; i++)
        cancel_op(endpoint, &channel->chunk_out[i]);
}

/* Remove all requests from a channel, without completing them. */
static void forget_channel(struct twill_ofi_endpoint *endpoint, struct twill_ofi_channel *channel)
{
    if (channel->cleared > 0)
        twill_ofi_window_keep(endpoint, channel->peer);
    channel->headers_out = channel->payload_out = channel->in =
        (struct twill_transfer_queue){NULL, NULL};
    channel->next_large = NULL;
    channel->slots.writing = 0;
    for (uint32_t i = 0; i < TWILL_OFI_CHUNKS; i++)
        channel->chunk_in[i].request = NULL;
    for (uint32_t i = 0; i < TWILL_OFI_OUT; i++)
        channel->chunk_out[i].request = NULL;
}

/* Call `what` for each channel of all peers that exist. */
static void visit_channels(struct twill_ofi *t, void (*what)(struct twill_ofi_endpoint *endpoint,
                                                             struct twill_ofi_channel *channel))
{
    for (uint32_t r = 0; r < t->size; r++)
        for (uint32_t l = 0; t->peers[r] != NULL && l < TWILL_OFI_LANES; l++)
            what(t->endpoint, &t->peers[r]->channels[l]);
}

/* Poll until *busy, a number of operations, is 0 or twill_now() has reached `limit`, or the
 * endpoint is closed. Releases the lock, which the caller holds, between polls. */
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

/* Wait for the communicator's operations, then cancel them and wait again, even if no other uses
 * the endpoint, as closing an rxm endpoint with transfers in flight may crash in libfabric 1.17. If
 * the provider keeps callers' buffers, close the endpoint, so that all its communicators fail. */
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

/* Detach the communicator from its send buffers, which the provider continues to send. */
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
            twill_ofi_release_all(t); /* else the provider may still use that memory */
        visit_channels(t, forget_channel);
        t->stuck_head = t->stuck_tail = NULL;
        t->sent = t->sent_last = NULL;
        if (t->failed == TWILL_OK)
            t->failed = TWILL_ERR_BROKEN;
    }
    pthread_mutex_unlock(&t->endpoint->lock);
}

/* Wait some time for send buffers to leave, then cancel the rest, leave the endpoint and free. */
static void ofi_close(struct twill_transport *transport)
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

const struct twill_transport_ops twill_ofi_transport = {
    .name = "ofi",
    .needs_bounce = true,
    .hides_shortage = true,
    .sleeps_on_doorbell = false,
    .priority = twill_ofi_priority,
    .open = ofi_open,
    .close = ofi_close,
    .connect = ofi_connect,
    .post = ofi_post,
    .expose = twill_ofi_expose,
    .conceal = twill_ofi_conceal,
    .progress = twill_ofi_progress,
    .cancel = twill_ofi_cancel,
    .describe = ofi_describe,
    .awaits = ofi_await,
    .early = twill_ofi_early,
    .preview = ofi_preview,
    .rails = twill_ofi_rails,
};
