/* SPDX-License-Identifier: Apache-2.0 */
/* The table of the ofi transport: open, post, cancel, close. */
#include "fabric/ofi/ofi.h"

#include <stdio.h>

#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

/* What sends are given to leave the process by themselves when a transport is closed. */
#define FLUSH_NS 1000000000ull

static bool reaches(const struct twill_transport_params *params, uint32_t from, uint32_t to)
{
    (void)params;
    return from != to;
}

static void unregister_queue(struct twill_transfer_queue *queue)
{
    for (struct twill_transfer *r = queue->head; r != NULL; r = r->next)
        twill_ofi_unregister(&twill_ofi_private(r)->mr);
}

static void unregister_lane(struct twill_ofi_lane *lane)
{
    unregister_queue(&lane->payload_out);
    unregister_queue(&lane->in);
    for (uint32_t i = 0; i < TWILL_OFI_SEGMENTS; i++)
        if (lane->segment_out[i].request != NULL)
            twill_ofi_unregister(&twill_ofi_private(lane->segment_out[i].request)->mr);
}

void twill_ofi_unregister_all(struct twill_ofi *t)
{
    twill_ofi_unregister(&t->mr);
    for (uint32_t r = 0; t->peers != NULL && r < t->size; r++) {
        if (t->peers[r] == NULL)
            continue;
        for (uint32_t l = 0; l < TWILL_OFI_LANES; l++)
            unregister_lane(&t->peers[r]->lanes[l]);
        twill_ofi_unregister(&t->peers[r]->mr);
    }
}

static void cancel_op(struct twill_ofi *t, struct twill_ofi_op *op)
{
    if (op->posted && t->ep != NULL)
        fi_cancel(&t->ep->fid, &op->context);
}

static void cancel_lane(struct twill_ofi *t, struct twill_ofi_lane *lane)
{
    for (uint32_t i = 0; i < TWILL_OFI_HEADERS; i++)
        cancel_op(t, &lane->header_in[i]);
    for (uint32_t i = 0; i < TWILL_OFI_SEGMENTS; i++)
        cancel_op(t, &lane->segment_in[i]);
}

static void forget_lane(struct twill_ofi_lane *lane)
{
    lane->headers_out = lane->payload_out = lane->in = (struct twill_transfer_queue){NULL, NULL};
    lane->next_large = NULL;
    for (uint32_t i = 0; i < TWILL_OFI_SEGMENTS; i++) {
        lane->segment_out[i].request = NULL;
        lane->segment_in[i].request = NULL;
    }
}

/* The endpoint goes at once: whatever peers still send, nothing lands in the callers' buffers. */
static void ofi_cancel(struct twill_transport *transport)
{
    struct twill_ofi *t = (struct twill_ofi *)transport;
    for (uint32_t i = 0; i < TWILL_OFI_CONTROLS; i++)
        cancel_op(t, &t->controls[i]);
    for (uint32_t r = 0; t->peers != NULL && r < t->size; r++)
        for (uint32_t l = 0; t->peers[r] != NULL && l < TWILL_OFI_LANES; l++)
            cancel_lane(t, &t->peers[r]->lanes[l]);
    twill_ofi_endpoint_close(t);
    for (uint32_t r = 0; t->peers != NULL && r < t->size; r++)
        for (uint32_t l = 0; t->peers[r] != NULL && l < TWILL_OFI_LANES; l++)
            forget_lane(&t->peers[r]->lanes[l]);
    for (uint32_t i = 0; i < TWILL_OFI_BUFFERS; i++)
        t->sends[i].request = NULL;
    t->stuck_head = NULL;
    t->stuck_tail = NULL;
    if (t->failed == TWILL_OK)
        t->failed = TWILL_ERR_BROKEN;
}

static void ofi_close(struct twill_transport *transport)
{
    struct twill_ofi *t = (struct twill_ofi *)transport;
    if (t == NULL)
        return;
    uint64_t limit = twill_now() + FLUSH_NS;
    while (t->ep != NULL && t->failed == TWILL_OK && t->sends_busy > 0 && twill_now() < limit)
        twill_ofi_progress(transport, NULL);
    ofi_cancel(transport);
    if (!twill_ofi_endpoint_free(t))
        return; /* rather leak than be written to after free */
    for (uint32_t r = 0; t->peers != NULL && r < t->size; r++)
        twill_ofi_peer_free(t->peers[r]);
    free(t->peers);
    free(t->addresses);
    free(t->address_length);
    free(t);
}

static twill_status set_up(struct twill_ofi *t, const struct twill_transport_params *params,
                           const struct twill_ofi_options *options, struct twill_error *error)
{
    t->copy = *params;
    t->params = &t->copy;
    if (options != NULL)
        t->options = *options;
    t->rank = (uint32_t)params->boot->rank;
    t->size = (uint32_t)params->boot->size;
    t->peers = calloc(t->size, sizeof(*t->peers));
    if (t->peers == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for %u peers", t->size);
    return twill_ofi_endpoint_open(t, error);
}

twill_status twill_ofi_open(struct twill_transport **transport,
                            const struct twill_transport_params *params,
                            const struct twill_ofi_options *options, struct twill_error *error)
{
    *transport = NULL;
    struct twill_ofi *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory");
    t->base.ops = &twill_ofi_transport;
    twill_status status = set_up(t, params, options, error);
    status = twill_ofi_agree(t, status, error);
    if (status != TWILL_OK) {
        ofi_close(&t->base);
        return status;
    }
    twill_say(params->log, TWILL_LOG_INFO, "ofi: %s", t->description);
    *transport = &t->base;
    return TWILL_OK;
}

static twill_status ofi_open(struct twill_transport **transport,
                             const struct twill_transport_params *params, struct twill_error *error)
{
    return twill_ofi_open(transport, params, NULL, error);
}

static twill_status ofi_connect(struct twill_transport *transport, uint32_t rank,
                                struct twill_error *error)
{
    struct twill_ofi_peer *peer;
    return twill_ofi_peer((struct twill_ofi *)transport, rank, &peer, error);
}

static twill_status ofi_post(struct twill_transport *transport, struct twill_transfer *request,
                             struct twill_error *error)
{
    struct twill_ofi *t = (struct twill_ofi *)transport;
    if (t->failed != TWILL_OK)
        return TWILL_FAIL(error, TWILL_ERR_BROKEN, "ofi: the transport failed earlier");
    if (request->lane >= TWILL_OFI_LANES || request->peer >= t->size ||
        t->peers[request->peer] == NULL)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "ofi: rank %u, lane %u is not connected",
                          request->peer, request->lane);
    struct twill_ofi_lane *lane = &t->peers[request->peer]->lanes[request->lane];
    *twill_ofi_private(request) = (struct twill_ofi_private){0};
    int moved;
    if (request->kind == TWILL_TRANSFER_SEND) {
        twill_transfer_push(&lane->headers_out, request);
        moved = twill_ofi_send_advance(t, lane, error);
    } else {
        twill_ofi_recv_add(t, lane, request);
        moved = twill_ofi_recv_advance(t, lane, error);
    }
    if (moved >= 0)
        return TWILL_OK;
    t->failed = (twill_status)moved;
    return t->failed;
}

static const char *ofi_describe(const struct twill_transport *transport)
{
    return ((const struct twill_ofi *)transport)->description;
}

static twill_status ofi_preview(const struct twill_transport_params *params, char *text,
                                size_t bytes, struct twill_error *error)
{
    struct fi_info *info = NULL;
    char why[160];
    TWILL_TRY(error, twill_ofi_choose(&info, params, why, sizeof(why), error));
    snprintf(text, bytes, "%s, domain %s: %s", info->fabric_attr->prov_name,
             info->domain_attr->name != NULL ? info->domain_attr->name : "?", why);
    fi_freeinfo(info);
    return TWILL_OK;
}

const struct twill_transport_ops twill_ofi_transport = {
    .size_of = sizeof(struct twill_transport_ops),
    .name = "ofi",
    .needs_bounce = true,
    .sleeps_on_bell = false,
    .reaches = reaches,
    .open = ofi_open,
    .close = ofi_close,
    .connect = ofi_connect,
    .post = ofi_post,
    .progress = twill_ofi_progress,
    .cancel = ofi_cancel,
    .describe = ofi_describe,
    .preview = ofi_preview,
};
