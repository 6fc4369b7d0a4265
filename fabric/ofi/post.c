/* SPDX-License-Identifier: Apache-2.0 */
/* Single operations: a libfabric call, "later" as a normal answer, and errors in words. */
#include "fabric/ofi/ofi.h"

#include <rdma/fi_errno.h>
#include <stdlib.h>
#include <string.h>

#define LANE_BITS 4
#define FROM_BITS 16
#define LANE_FROM (((uint64_t)1 << (LANE_BITS + FROM_BITS)) - 1)
_Static_assert(12 + LANE_BITS + FROM_BITS + 2 == TWILL_OFI_TAG_BITS, "tag layout");
_Static_assert(TWILL_OFI_LANES <= 1 << LANE_BITS, "a lane fits into a tag");
_Static_assert(TWILL_WORLD_MAX_RANKS < 1 << FROM_BITS, "a rank fits into a tag");

static uint64_t tag_of(const struct twill_ofi *t, uint32_t lane, uint32_t from,
                       enum twill_ofi_channel channel)
{
    uint64_t tag = t->params->comm & 0xfff;
    tag = tag << LANE_BITS | lane;
    tag = tag << FROM_BITS | from;
    return tag << 2 | (uint64_t)channel;
}

uint32_t twill_ofi_tag_from(uint64_t tag)
{
    return (uint32_t)(tag >> 2) & ((1u << FROM_BITS) - 1);
}

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
    case FI_ENOENT: /* sockets */
    case EPIPE:
        return true;
    default:
        return false;
    }
}

twill_status twill_ofi_fail(struct twill_error *error, const char *what, int code,
                            const struct twill_ofi_lane *lane)
{
    code = abs(code);
    bool gone = is_peer_gone(code);
    twill_status status = gone ? TWILL_ERR_PEER : TWILL_ERR_FABRIC;
    if (lane == NULL)
        return TWILL_FAIL(error, status, "ofi: %s: %s%s", what, fi_strerror(code),
                          gone ? ": a peer is gone" : "");
    return TWILL_FAIL(error, status, "ofi: %s, rank %u, lane %u: %s%s", what, lane->peer->rank,
                      lane->lane, fi_strerror(code), gone ? ": the rank is gone" : "");
}

/* A post's answer: 1, 0 for later, or a status. */
static int answer(struct twill_ofi *t, ssize_t rc, const char *what,
                  const struct twill_ofi_lane *lane, struct twill_error *error)
{
    if (rc == 0)
        return 1;
    if (rc != -FI_EAGAIN)
        return twill_ofi_fail(error, what, (int)rc, lane);
    t->base.counters.again++;
    return 0;
}

/* Tests of the retry path: the provider here is seldom busy. */
static bool pretend_busy(struct twill_ofi *t)
{
    return t->options.again != 0 && ++t->posts % t->options.again == 0;
}

int twill_ofi_send(struct twill_ofi *t, struct twill_ofi_op *op, const void *data, size_t bytes,
                   struct fid_mr *mr, enum twill_ofi_channel channel, struct twill_error *error)
{
    uint64_t tag = tag_of(t, op->lane->lane, t->rank, channel);
    ssize_t rc = pretend_busy(t) ? -FI_EAGAIN
                                 : fi_tsend(t->ep, data, bytes, twill_ofi_desc(mr),
                                            op->lane->peer->address, tag, &op->context);
    int done = answer(t, rc, "fi_tsend", op->lane, error);
    op->posted = done == 1;
    op->bytes = bytes;
    return done;
}

int twill_ofi_recv(struct twill_ofi *t, struct twill_ofi_op *op, void *data, size_t bytes,
                   struct fid_mr *mr, enum twill_ofi_channel channel, struct twill_error *error)
{
    /* Control messages are taken from anybody. */
    uint64_t ignore = op->lane == NULL ? LANE_FROM << 2 : 0;
    uint64_t tag = op->lane == NULL ? tag_of(t, 0, 0, channel)
                                    : tag_of(t, op->lane->lane, op->lane->peer->rank, channel);
    ssize_t rc = pretend_busy(t) ? -FI_EAGAIN
                                 : fi_trecv(t->ep, data, bytes, twill_ofi_desc(mr), FI_ADDR_UNSPEC,
                                            tag, ignore, &op->context);
    int done = answer(t, rc, "fi_trecv", op->lane, error);
    op->posted = done == 1;
    op->done = false;
    op->bytes = bytes;
    return done;
}

static int inject(struct twill_ofi *t, const struct twill_ofi_lane *lane,
                  const struct twill_ofi_header *header, const struct twill_transfer *payload,
                  enum twill_ofi_channel channel, struct twill_error *error)
{
    unsigned char line[256];
    size_t more = payload == NULL ? 0 : payload->bytes;
    memcpy(line, header, sizeof(*header));
    if (more > 0)
        memcpy(line + sizeof(*header), payload->buffer, more);
    ssize_t rc = pretend_busy(t)
                     ? -FI_EAGAIN
                     : fi_tinject(t->ep, line, sizeof(*header) + more, lane->peer->address,
                                  tag_of(t, lane->lane, t->rank, channel));
    return answer(t, rc, "fi_tinject", lane, error);
}

int twill_ofi_send_small(struct twill_ofi *t, struct twill_ofi_lane *lane,
                         struct twill_ofi_header *header, struct twill_transfer *request,
                         enum twill_ofi_channel channel, bool *finished, struct twill_error *error)
{
    size_t more = request == NULL ? 0 : request->bytes;
    header->lane = lane->lane;
    header->consumed = lane->consumed;
    int done;
    *finished = sizeof(*header) + more <= twill_min(t->inject, 256);
    if (*finished) {
        done = inject(t, lane, header, request, channel, error);
    } else {
        struct twill_ofi_op *op = t->free_sends;
        if (op == NULL || lane->peer->sends_busy == TWILL_OFI_OF_PEER)
            return 0;
        op->lane = lane;
        op->request = request;
        memcpy(op->buffer, header, sizeof(*header));
        if (more > 0)
            memcpy(op->buffer + sizeof(*header), request->buffer, more);
        done = twill_ofi_send(t, op, op->buffer, sizeof(*header) + more, t->mr, channel, error);
        if (done == 1) {
            t->free_sends = op->next;
            t->sends_busy++;
            lane->peer->sends_busy++;
        }
    }
    if (done == 1) {
        t->base.counters.header_bytes += sizeof(*header);
        t->base.counters.copied += more;
    }
    return done;
}

twill_status twill_ofi_controls_post(struct twill_ofi *t, struct twill_error *error)
{
    for (uint32_t i = 0; i < TWILL_OFI_CONTROLS && t->controls_idle > 0; i++) {
        struct twill_ofi_op *op = &t->controls[i];
        if (op->posted)
            continue;
        int done = twill_ofi_recv(t, op, op->buffer, sizeof(struct twill_ofi_header), t->mr,
                                  TWILL_OFI_CONTROL, error);
        if (done <= 0)
            return done;
        t->controls_idle--;
    }
    return TWILL_OK;
}

void twill_ofi_stuck(struct twill_ofi *t, struct twill_ofi_lane *lane)
{
    if (lane->stuck)
        return;
    lane->stuck = true;
    lane->next_stuck = NULL;
    if (t->stuck_head == NULL)
        t->stuck_head = lane;
    else
        t->stuck_tail->next_stuck = lane;
    t->stuck_tail = lane;
}
