/* SPDX-License-Identifier: Apache-2.0 */
/* Progress: completions in batches, then the lanes that were told "later". */
#include "fabric/ofi/ofi.h"

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Batches read by one call: it has to return to its caller's deadline. */
#define BATCHES 4

static int lane_advance(struct twill_ofi *t, struct twill_ofi_lane *lane, struct twill_error *error)
{
    int sends = twill_ofi_send_advance(t, lane, error);
    if (sends < 0)
        return sends;
    int recvs = twill_ofi_recv_advance(t, lane, error);
    return recvs < 0 ? recvs : sends + recvs;
}

static void free_send(struct twill_ofi *t, struct twill_ofi_op *op)
{
    op->request = NULL;
    op->next = t->free_sends;
    t->free_sends = op;
    t->sends_busy--;
    op->lane->peer->sends_busy--;
}

static int control_arrived(struct twill_ofi *t, struct twill_ofi_op *op,
                           const struct fi_cq_tagged_entry *entry, struct twill_error *error)
{
    struct twill_ofi_lane *lane;
    TWILL_TRY(error,
              twill_ofi_control(t, op, twill_ofi_tag_from(entry->tag), entry->len, &lane, error));
    t->controls_idle++;
    TWILL_TRY(error, twill_ofi_controls_post(t, error));
    return twill_ofi_send_advance(t, lane, error);
}

static int segment_arrived(struct twill_ofi *t, struct twill_ofi_op *op, size_t bytes,
                           struct twill_error *error)
{
    if (op->request == NULL)
        return 0; /* abandoned */
    if (bytes != op->bytes)
        return TWILL_FAIL(error, TWILL_ERR_FABRIC,
                          "ofi: rank %u, lane %u: a segment of %zu bytes came, not of %zu",
                          op->lane->peer->rank, op->lane->lane, bytes, op->bytes);
    op->done = true;
    return twill_ofi_recv_advance(t, op->lane, error);
}

/* How many requests that finished, or a status. */
static int completed(struct twill_ofi *t, const struct fi_cq_tagged_entry *entry,
                     struct twill_error *error)
{
    struct twill_ofi_op *op = entry->op_context;
    if (op == NULL)
        return 0;
    op->posted = false;
    switch ((enum twill_ofi_op_kind)op->kind) {
    case TWILL_OFI_OP_SEND_BUFFER: {
        int finished = op->request != NULL;
        if (finished)
            twill_transfer_finish(op->request, TWILL_OK);
        free_send(t, op);
        return finished;
    }
    case TWILL_OFI_OP_SEND_SEGMENT:
        return twill_ofi_segment_sent(t, op, error);
    case TWILL_OFI_OP_RECV_HEADER:
        op->bytes = entry->len;
        op->done = true;
        return twill_ofi_recv_advance(t, op->lane, error);
    case TWILL_OFI_OP_RECV_SEGMENT:
        return segment_arrived(t, op, entry->len, error);
    case TWILL_OFI_OP_RECV_CONTROL:
        return control_arrived(t, op, entry, error);
    }
    return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "ofi: a completion without an operation");
}

/* A control message that did not arrive hurts only a peer that still waits for it, and that one
 * notices the death by its watch; a peer that has finished and closed must not fail this rank. */
static bool is_control(const struct twill_ofi_op *op)
{
    struct twill_ofi_header header;
    if (op->kind != TWILL_OFI_OP_SEND_BUFFER || op->request != NULL)
        return false;
    memcpy(&header, op->buffer, sizeof(header));
    return header.kind == TWILL_OFI_CREDIT || header.kind == TWILL_OFI_CLEAR_TO_SEND;
}

/* An error on the completion queue; codes are negative in some providers. */
static int failed_completion(struct twill_ofi *t, struct twill_error *error)
{
    struct fi_cq_err_entry entry = {0};
    ssize_t rc = fi_cq_readerr(t->cq, &entry, 0);
    if (rc == -FI_EAGAIN)
        return 0;
    if (rc < 0)
        return twill_ofi_fail(error, "fi_cq_readerr", (int)rc, NULL);
    struct twill_ofi_op *op = entry.op_context;
    int code = abs(entry.err);
    if (op != NULL)
        op->posted = false;
    if (code == FI_ECANCELED)
        return 0;
    char text[128], what[192];
    const char *more = fi_cq_strerror(t->cq, entry.prov_errno, entry.err_data, text, sizeof(text));
    snprintf(what, sizeof(what), "completion%s%s", more == NULL ? "" : ": ",
             more == NULL ? "" : more);
    if (op == NULL || is_control(op)) {
        twill_say(t->params->log, TWILL_LOG_DEBUG, "ofi: %s: %s, not waited for", what,
                  fi_strerror(code));
        if (op != NULL)
            free_send(t, op);
        return 0;
    }
    return twill_ofi_fail(error, what, code, op->lane);
}

static int read_completions(struct twill_ofi *t, struct twill_error *error)
{
    struct fi_cq_tagged_entry entries[TWILL_OFI_BATCH];
    int moved = 0;
    for (int batch = 0; batch < BATCHES; batch++) {
        ssize_t n = fi_cq_read(t->cq, entries, TWILL_OFI_BATCH);
        if (n == -FI_EAGAIN || n == 0)
            return moved;
        if (n == -FI_EAVAIL) {
            TWILL_TRY(error, failed_completion(t, error));
            continue;
        }
        if (n < 0)
            return twill_ofi_fail(error, "fi_cq_read", (int)n, NULL);
        for (ssize_t i = 0; i < n; i++) {
            int finished = completed(t, &entries[i], error);
            if (finished < 0)
                return finished;
            moved += 1 + finished;
        }
    }
    return moved;
}

/* Each lane in the list once; those still stuck put themselves back. */
static int retry_lanes(struct twill_ofi *t, struct twill_error *error)
{
    struct twill_ofi_lane *lane = t->stuck_head;
    int moved = 0;
    t->stuck_head = NULL;
    t->stuck_tail = NULL;
    while (lane != NULL) {
        struct twill_ofi_lane *next = lane->next_stuck;
        lane->stuck = false;
        int finished = lane_advance(t, lane, error);
        if (finished < 0)
            return finished;
        moved += finished;
        lane = next;
    }
    return moved;
}

int twill_ofi_progress(struct twill_transport *transport, struct twill_error *error)
{
    struct twill_ofi *t = (struct twill_ofi *)transport;
    if (t->failed != TWILL_OK)
        return TWILL_FAIL(error, t->failed, "ofi: the transport failed earlier");
    int moved = read_completions(t, error);
    if (moved >= 0 && t->controls_idle > 0) {
        twill_status status = twill_ofi_controls_post(t, error);
        moved = status < 0 ? (int)status : moved;
    }
    if (moved >= 0 && t->stuck_head != NULL) {
        int more = retry_lanes(t, error);
        moved = more < 0 ? more : moved + more;
    }
    if (moved < 0)
        t->failed = (twill_status)moved;
    return moved;
}
