/* SPDX-License-Identifier: Apache-2.0 */
/* Single operations, one call of libfabric each. A busy provider is no error. */
#include "fabric/ofi/ofi.h"

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>
#include <string.h>

#define LANE_BITS  4
#define FROM_BITS  16
#define COMM_MASK  ((1u << TWILL_OFI_COMM_BITS) - 1)
#define ANY_SENDER (~(uint64_t)3 & (((uint64_t)1 << TWILL_OFI_TAG_BITS) - 1))
_Static_assert(TWILL_OFI_COMM_BITS + LANE_BITS + FROM_BITS + 2 == TWILL_OFI_TAG_BITS, "tag layout");
_Static_assert(TWILL_OFI_LANES <= 1 << LANE_BITS, "a lane fits into a tag");
_Static_assert(TWILL_WORLD_MAX_RANKS < 1 << FROM_BITS, "a rank fits into a tag");

/* Parts of the job's secret keep messages of other jobs and users from matching a receive. */
uint64_t twill_ofi_tag(const struct twill_ofi_endpoint *endpoint, uint32_t comm, uint32_t lane,
                       uint32_t from, enum twill_ofi_tag_kind tag_kind)
{
    uint64_t tag = (comm + endpoint->matching.tag_secret) & COMM_MASK;
    tag = tag << LANE_BITS | lane;
    tag = tag << FROM_BITS | from;
    return endpoint->matching.seal | tag << 2 | (uint64_t)tag_kind;
}

/* Return the tag of a message of this communicator from rank `from`. */
static uint64_t tag_of(const struct twill_ofi *t, uint32_t lane, uint32_t from,
                       enum twill_ofi_tag_kind tag_kind)
{
    return twill_ofi_tag(t->endpoint, t->comm, lane, from, tag_kind);
}

uint32_t twill_ofi_tag_from(uint64_t tag)
{
    return (uint32_t)(tag >> 2) & ((1u << FROM_BITS) - 1);
}

uint32_t twill_ofi_tag_comm(const struct twill_ofi_endpoint *endpoint, uint64_t tag)
{
    return ((uint32_t)(tag >> (2 + FROM_BITS + LANE_BITS)) - endpoint->matching.tag_secret) &
           COMM_MASK;
}

/* Return whether a positive code of libfabric means that the peer is gone. */
static bool is_peer_gone(int code)
{
    switch (code) {
    case FI_ECONNRESET:
    case FI_ECONNREFUSED:
    case FI_ECONNABORTED:
    case FI_ENOTCONN:
    case FI_ESHUTDOWN:
    case FI_ETIMEDOUT:
    case FI_EHOSTUNREACH:
    case FI_EHOSTDOWN:
    case FI_ENETUNREACH:
    case FI_ECANCELED: /* in flight when a connection ended, as we did not cancel it */
    case FI_ENOENT:    /* from the sockets provider */
    case EPIPE:
        return true;
    default:
        return false;
    }
}

twill_status twill_ofi_fail(const struct twill_ofi_endpoint *endpoint, struct twill_error *error,
                            const char *what, int code, const struct twill_ofi_channel *channel)
{
    code = abs(code);
    bool gone = is_peer_gone(code);
    twill_status status = gone ? TWILL_ERR_PEER : TWILL_ERR_FABRIC;
    if (channel != NULL && code == FI_EMFILE)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM,
                          "ofi: trouble on this host, not with %s: %s: %s (see ulimit -n)",
                          channel->peer->name, what, endpoint->library.explain(code));
    if (channel == NULL)
        return TWILL_FAIL(error, status, "ofi: %s: %s%s", what, endpoint->library.explain(code),
                          gone ? ": a peer is gone" : "");
    return TWILL_FAIL_RANK(error, status, channel->peer->rank, "ofi: %s, %s, lane %u: %s%s", what,
                           channel->peer->name, channel->lane, endpoint->library.explain(code),
                           gone ? ": the rank is gone" : "");
}

/* Return 1 if the result `rc` of a post is 0, 0 if it is FI_EAGAIN (busy), or a negative status. */
static int post_result(struct twill_ofi *t, ssize_t rc, const char *what,
                       const struct twill_ofi_channel *channel, struct twill_error *error)
{
    if (rc == 0)
        return 1;
    if (rc != -FI_EAGAIN)
        return twill_ofi_fail(t->endpoint, error, what, (int)rc, channel);
    twill_counter_add(&t->base.counters.again, 1);
    return 0;
}

/* Return whether a test wants the provider reported as busy at this post (options.again). Counts
 * the posts for that. */
static bool pretend_busy(struct twill_ofi_endpoint *endpoint)
{
    return endpoint->options.again != 0 && ++endpoint->posts % endpoint->options.again == 0;
}

/* Send `bytes` at `data` to the channel's peer as operation `op`, registered as `desc`. Returns 1
 * if the provider took it, 0 if it is busy, or a negative status. */
static int send_message(struct twill_ofi *t, struct twill_ofi_op *op, const void *data,
                        size_t bytes, void *desc, const struct twill_ofi_channel *channel,
                        enum twill_ofi_tag_kind tag_kind, struct twill_error *error)
{
    uint64_t tag = tag_of(t, channel->lane, t->rank, tag_kind);
    ssize_t rc = pretend_busy(t->endpoint)
                     ? -FI_EAGAIN
                     : fi_tsend(t->endpoint->fi.ep, data, bytes, desc,
                                channel->peer->contact->address, tag, &op->context);
    int done = post_result(t, rc, "fi_tsend", channel, error);
    op->posted = done == 1;
    op->bytes = bytes;
    return done;
}

int twill_ofi_send(struct twill_ofi *t, struct twill_ofi_op *op, const void *data, size_t bytes,
                   void *desc, struct twill_error *error)
{
    int done = send_message(t, op, data, bytes, desc, op->channel, TWILL_OFI_PAYLOAD, error);
    t->chunks_busy += done == 1 ? 1 : 0;
    return done;
}

/* Write `bytes` at `data`, registered as `desc`, so that the completion says that they have
 * arrived. Returns libfabric's code. */
static ssize_t write_delivered(struct twill_ofi *t, struct twill_ofi_op *op, const void *data,
                               size_t bytes, void *desc, const struct twill_remote *to)
{
    const struct iovec from = {(void *)(uintptr_t)data, bytes};
    const struct fi_rma_iov place = {.addr = to->at, .len = bytes, .key = to->key};
    const struct fi_msg_rma message = {.msg_iov = &from,
                                       .desc = &desc,
                                       .iov_count = 1,
                                       .addr = op->channel->peer->contact->address,
                                       .rma_iov = &place,
                                       .rma_iov_count = 1,
                                       .context = &op->context};
    return fi_writemsg(t->endpoint->fi.ep, &message, FI_COMPLETION | FI_DELIVERY_COMPLETE);
}

int twill_ofi_write_to(struct twill_ofi *t, struct twill_ofi_op *op, const void *data, size_t bytes,
                       void *desc, const struct twill_remote *to, struct twill_error *error)
{
    const struct twill_ofi_endpoint *endpoint = t->endpoint;
    ssize_t rc;
    if (pretend_busy(t->endpoint))
        rc = -FI_EAGAIN;
    else if (endpoint->limits.writes == TWILL_OFI_WRITES_DELIVERED)
        rc = write_delivered(t, op, data, bytes, desc, to);
    else
        rc = fi_write(endpoint->fi.ep, data, bytes, desc, op->channel->peer->contact->address,
                      to->at, to->key, &op->context);
    int done = post_result(t, rc, "fi_write", op->channel, error);
    op->posted = done == 1;
    op->bytes = bytes;
    t->chunks_busy += done == 1 ? 1 : 0;
    return done;
}

int twill_ofi_recv(struct twill_ofi *t, struct twill_ofi_op *op, void *data, size_t bytes,
                   void *desc, struct twill_error *error)
{
    bool header = op->kind == TWILL_OFI_OP_RECV_HEADER;
    uint64_t tag = tag_of(t, op->channel->lane, op->channel->peer->rank,
                          header ? TWILL_OFI_HEADER : TWILL_OFI_PAYLOAD);
    fi_addr_t from =
        t->endpoint->matching.directed ? op->channel->peer->contact->address : FI_ADDR_UNSPEC;
    ssize_t rc = pretend_busy(t->endpoint)
                     ? -FI_EAGAIN
                     : fi_trecv(t->endpoint->fi.ep, data, bytes, desc, from, tag, 0, &op->context);
    int done = post_result(t, rc, "fi_trecv", op->channel, error);
    op->posted = done == 1;
    op->done = false;
    op->bytes = bytes;
    *(header ? &t->headers_busy : &t->chunks_busy) += done == 1 ? 1 : 0;
    return done;
}

/* Return how many bytes of `header`, or NULL, a message of this kind has. */
static size_t header_bytes(const struct twill_ofi_header *header, enum twill_ofi_tag_kind tag_kind)
{
    if (header == NULL)
        return 0;
    return tag_kind == TWILL_OFI_CONTROL ? TWILL_OFI_CONTROL_BYTES
                                         : sizeof(struct twill_ofi_header);
}

/* Return how many bytes of a request's payload, or of NULL, go with `header`, or without one. */
static size_t payload_bytes(const struct twill_ofi *t, const struct twill_ofi_header *header,
                            const struct twill_transfer *request)
{
    size_t all = request == NULL ? 0 : request->bytes, first = t->endpoint->limits.eager;
    return header == NULL ? all - first : twill_min(all, first);
}

/* Copy `head` bytes of a header and then `more` bytes of the payload, as payload_bytes() says, to
 * `line`. */
static void write_message(unsigned char *line, const struct twill_ofi_header *header, size_t head,
                          const struct twill_transfer *request, size_t more)
{
    if (header != NULL)
        memcpy(line, header, head);
    if (more > 0)
        memcpy(line + head,
               (unsigned char *)request->buffer + (header == NULL ? request->bytes - more : 0),
               more);
}

/* Send a header and the payload, each or NULL, as one message of at most 256 bytes with
 * fi_tinject(). Both have left on return. Returns 1 if sent, 0 if the provider is busy, or a
 * twill_status, which is negative, with its message in *error. */
static int inject(struct twill_ofi *t, const struct twill_ofi_channel *channel,
                  const struct twill_ofi_header *header, const struct twill_transfer *request,
                  enum twill_ofi_tag_kind tag_kind, struct twill_error *error)
{
    unsigned char line[256];
    size_t head = header_bytes(header, tag_kind), more = payload_bytes(t, header, request);
    write_message(line, header, head, request, more);
    ssize_t rc =
        pretend_busy(t->endpoint)
            ? -FI_EAGAIN
            : fi_tinject(t->endpoint->fi.ep, line, head + more, channel->peer->contact->address,
                         tag_of(t, channel->lane, t->rank, tag_kind));
    return post_result(t, rc, "fi_tinject", channel, error);
}

/* Send a copy of header and payload, as inject(), from a send buffer. Its completion finishes
 * `request`, or NULL. Returns 1 if the provider took it, 0 if it or the buffers are busy, or a
 * negative status. */
static int send_buffer(struct twill_ofi *t, struct twill_ofi_channel *channel,
                       const struct twill_ofi_header *header, struct twill_transfer *request,
                       enum twill_ofi_tag_kind tag_kind, struct twill_error *error)
{
    struct twill_ofi_endpoint *endpoint = t->endpoint;
    struct twill_ofi_op *op = endpoint->buffers.free_sends;
    size_t head = header_bytes(header, tag_kind), more = payload_bytes(t, header, request);
    if (op == NULL || channel->peer->contact->sends_busy == TWILL_OFI_BUFFERS_PER_PEER)
        return 0;
    write_message(op->buffer, header, head, request, more);
    void *desc = endpoint->buffers.mr == NULL ? NULL : fi_mr_desc(endpoint->buffers.mr);
    int done = send_message(t, op, op->buffer, head + more, desc, channel, tag_kind, error);
    if (done != 1)
        return done;
    endpoint->buffers.free_sends = op->next;
    op->owner = t;
    op->channel = channel;
    op->contact = channel->peer->contact;
    op->request = request;
    op->message = header == NULL ? TWILL_OFI_EAGER_DATA : header->kind;
    op->sequence = header == NULL ? 0 : header->sequence;
    op->contact->sends_busy++;
    t->sends_busy++;
    return 1;
}

int twill_ofi_send_small(struct twill_ofi *t, struct twill_ofi_channel *channel,
                         struct twill_ofi_header *header, struct twill_transfer *request,
                         enum twill_ofi_tag_kind tag_kind, bool *finished,
                         struct twill_error *error)
{
    size_t head = header_bytes(header, tag_kind), more = payload_bytes(t, header, request);
    if (header != NULL)
        header->lane = channel->lane;
    *finished = head + more <= twill_min(t->endpoint->limits.inject, 256);
    int done = *finished ? inject(t, channel, header, request, tag_kind, error)
                         : send_buffer(t, channel, header, request, tag_kind, error);
    if (done == 1) {
        twill_counter_add(&t->base.counters.header_bytes, head);
        twill_counter_add(&t->base.counters.copied, more);
    }
    return done;
}

twill_status twill_ofi_controls_post(struct twill_ofi_endpoint *endpoint, struct twill_error *error)
{
    void *desc = endpoint->buffers.mr == NULL ? NULL : fi_mr_desc(endpoint->buffers.mr);
    for (uint32_t i = 0;
         i < TWILL_OFI_CONTROLS && endpoint->buffers.controls_idle > 0 && !endpoint->closing; i++) {
        struct twill_ofi_op *op = &endpoint->buffers.controls[i];
        if (op->posted)
            continue;
        ssize_t rc = pretend_busy(endpoint)
                         ? -FI_EAGAIN
                         : fi_trecv(endpoint->fi.ep, op->buffer, TWILL_OFI_CONTROL_BYTES, desc,
                                    FI_ADDR_UNSPEC, endpoint->matching.seal | TWILL_OFI_CONTROL,
                                    ANY_SENDER, &op->context);
        if (rc == -FI_EAGAIN)
            return TWILL_OK;
        if (rc != 0)
            return twill_ofi_fail(endpoint, error, "fi_trecv", (int)rc, NULL);
        op->posted = true;
        endpoint->buffers.controls_idle--;
    }
    return TWILL_OK;
}

void twill_ofi_stuck(struct twill_ofi *t, struct twill_ofi_channel *channel)
{
    if (channel->stuck)
        return;
    channel->stuck = true;
    channel->next_stuck = NULL;
    if (t->stuck_head == NULL)
        t->stuck_head = channel;
    else
        t->stuck_tail->next_stuck = channel;
    t->stuck_tail = channel;
}
