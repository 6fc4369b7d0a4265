/* SPDX-License-Identifier: Apache-2.0 */
/* Progress: reads completions in batches, then retries the channels that were refused as busy. */
#include "fabric/ofi/ofi.h"

#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* batches that one call reads, as it must return before its caller's deadline */
#define BATCHES 4

/* Advance both directions of a channel. Returns how many requests completed, or a status < 0. */
static int channel_advance(struct twill_ofi *t, struct twill_ofi_channel *channel,
                           struct twill_error *error)
{
    int sends = twill_ofi_send_advance(t, channel, error);
    if (sends < 0)
        return sends;
    int recvs = twill_ofi_recv_advance(t, channel, error);
    return recvs < 0 ? recvs : sends + recvs;
}

/* Put a send buffer back among the free ones, and count it as no longer in flight. */
static void free_send(struct twill_ofi_endpoint *endpoint, struct twill_ofi_op *op)
{
    if (op->owner != NULL)
        op->owner->sends_busy--;
    op->contact->sends_busy--;
    op->owner = NULL;
    op->request = NULL;
    op->next = endpoint->buffers.free_sends;
    endpoint->buffers.free_sends = op;
}

/* Queue a SEND that has left, for the thread that uses the communicator to finish it. */
static void leave_sent(struct twill_ofi *t, struct twill_transfer *request)
{
    request->next = NULL;
    if (t->sent == NULL)
        t->sent = request;
    else
        t->sent_last->next = request;
    t->sent_last = request;
}

/* Return whether `op` is one of ops[0 .. n-1], without reading it. */
static bool is_one_of(const struct twill_ofi_op *op, const struct twill_ofi_op *ops, size_t n)
{
    size_t offset = (uintptr_t)op - (uintptr_t)ops; /* an `op` before `ops` gives a huge offset */
    return offset < n * sizeof(*ops) && offset % sizeof(*ops) == 0;
}

/* Return whether `op` is an operation of a channel of the peer, without reading it. */
static bool is_of_peer(const struct twill_ofi_op *op, const struct twill_ofi_peer *peer)
{
    size_t at = (uintptr_t)op - (uintptr_t)peer->channels;
    if (at >= sizeof(peer->channels))
        return false;
    const struct twill_ofi_channel *channel = &peer->channels[at / sizeof(peer->channels[0])];
    return is_one_of(op, channel->header_in, TWILL_OFI_HEADERS) ||
           is_one_of(op, channel->chunk_in, TWILL_OFI_CHUNKS) ||
           is_one_of(op, channel->chunk_out, TWILL_OFI_OUT);
}

/* Return whether `op`, from a provider, is an operation of this endpoint, without reading it. */
static bool is_ours(const struct twill_ofi_endpoint *endpoint, const struct twill_ofi_op *op)
{
    const struct twill_ofi *const lists[] = {endpoint->open, endpoint->deferred};
    bool found = is_one_of(op, endpoint->buffers.sends, TWILL_OFI_BUFFERS) ||
                 is_one_of(op, endpoint->buffers.controls, TWILL_OFI_CONTROLS);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(lists); i++)
        for (const struct twill_ofi *t = lists[i]; t != NULL && !found; t = t->next)
            for (uint32_t r = 0; r < t->size && !found; r++)
                found = t->peers[r] != NULL && is_of_peer(op, t->peers[r]);
    return found;
}

/* Count, and log the first time, a completion of an operation that the provider does not have. */
static void count_stray(struct twill_ofi_endpoint *endpoint)
{
    if (endpoint->strays++ == 0)
        twill_say(endpoint->params.log, TWILL_LOG_INFO,
                  "ofi: provider %.40s returned an operation that it did not have; ignored, as all "
                  "further ones are",
                  endpoint->fi.info->fabric_attr->prov_name);
}

/* Record that an operation has completed or failed, so that the provider no longer holds `op`.
 * Returns false if its communicator was closed or cancelled or it has none, so that nothing waits
 * for it. */
static bool return_operation(struct twill_ofi_op *op)
{
    struct twill_ofi *t = op->owner;
    op->posted = false;
    if (t == NULL)
        return false;
    if (op->kind == TWILL_OFI_OP_RECV_HEADER)
        t->headers_busy--;
    else if (op->kind != TWILL_OFI_OP_SEND_BUFFER)
        t->chunks_busy--;
    return !t->cancelled;
}

/* Let the endpoint and its communicators fail, with the libfabric code of the call `what`. */
static void fail_endpoint(struct twill_ofi_endpoint *endpoint, const char *what, int code)
{
    struct twill_error error = {0};
    twill_status status = twill_ofi_fail(endpoint, &error, what, code, NULL);
    twill_ofi_endpoint_fail(endpoint, status, error.message);
}

/* Post the control receives that are idle, unless the endpoint has failed or is closed. */
static void post_controls(struct twill_ofi_endpoint *endpoint)
{
    struct twill_error error = {0};
    if (endpoint->buffers.controls_idle == 0 || endpoint->failed != TWILL_OK ||
        endpoint->fi.ep == NULL)
        return;
    twill_status status = twill_ofi_controls_post(endpoint, &error);
    if (status != TWILL_OK)
        twill_ofi_endpoint_fail(endpoint, status, error.message);
}

/* Handle the control message in `op`, and post its receive again. An error fails only the message's
 * communicator. If that is closed or cancelled, the message is ignored. */
static void control_arrived(struct twill_ofi_endpoint *endpoint, struct twill_ofi_op *op,
                            const struct fi_cq_tagged_entry *entry)
{
    struct twill_ofi *t = twill_ofi_find(endpoint, twill_ofi_tag_comm(endpoint, entry->tag));
    struct twill_error theirs = {0};
    twill_status status = TWILL_OK;
    if (t != NULL)
        status = twill_ofi_control(t, op, twill_ofi_tag_from(entry->tag), entry->len, &theirs);
    if (status != TWILL_OK)
        twill_ofi_set_failure(t, status, &theirs);
    endpoint->buffers.controls_idle++;
    post_controls(endpoint);
}

/* Fail a communicator because a chunk arrived with another size than its receive. */
static void fail_chunk_size(struct twill_ofi_op *op, size_t comes, size_t bytes)
{
    struct twill_error error = {0};
    twill_status status =
        TWILL_FAIL_RANK(&error, TWILL_ERR_FABRIC, op->channel->peer->rank,
                        "ofi: %s, lane %u: a chunk of %zu bytes arrived, %zu expected",
                        op->channel->peer->name, op->channel->lane, bytes, comes);
    twill_ofi_set_failure(op->owner, status, &error);
}

/* Handle an operation that the provider has completed, or count it as a stray if the provider did
 * not have it. Headers and chunks are left to the thread of their communicator, whose channel is
 * put into its list. A SEND that has left is queued for it. */
static void handle_completion(struct twill_ofi_endpoint *endpoint,
                              const struct fi_cq_tagged_entry *entry)
{
    struct twill_ofi_op *op = entry->op_context;
    if (op == NULL)
        return;
    if (!op->posted) {
        count_stray(endpoint);
        return;
    }
    bool awaited = return_operation(op);
    if (op->kind == TWILL_OFI_OP_RECV_CONTROL) {
        control_arrived(endpoint, op, entry);
        return;
    }
    if (op->kind == TWILL_OFI_OP_SEND_BUFFER) {
        if (awaited && op->request != NULL && twill_ofi_left(op->request))
            leave_sent(op->owner, op->request);
        free_send(endpoint, op);
        return;
    }
    if (!awaited || (op->kind == TWILL_OFI_OP_RECV_CHUNK && op->request == NULL))
        return; /* abandoned */
    if (op->kind == TWILL_OFI_OP_RECV_HEADER) {
        op->bytes = entry->len;
        op->channel->peer->heard = true;
    }
    size_t comes = endpoint->limits.slot != 0 ? TWILL_OFI_NOTE : op->bytes;
    if (op->kind == TWILL_OFI_OP_RECV_CHUNK && entry->len != comes)
        fail_chunk_size(op, comes, entry->len);
    op->done = true;
    op->owner->noticed++;
    twill_ofi_stuck(op->owner, op->channel); /* the communicator's thread continues it */
}

/* Return the request of this number in a list that begins with `request`, or NULL. */
static struct twill_transfer *find_transfer(struct twill_transfer *request, uint32_t sequence)
{
    while (request != NULL && twill_ofi_private(request)->sequence != sequence)
        request = request->next;
    return request;
}

/* Return whether the large SEND whose header `op` sent is still in progress. */
static bool is_sending(const struct twill_ofi_op *op)
{
    const struct twill_ofi_channel *channel = op->channel;
    bool found = find_transfer(channel->payload_out.head, op->sequence) != NULL;
    for (uint32_t i = 0; i < TWILL_OFI_OUT && !found; i++) {
        struct twill_transfer *request = channel->chunk_out[i].request;
        found = request != NULL && request->kind == TWILL_TRANSFER_SEND &&
                twill_ofi_private(request)->sequence == op->sequence;
    }
    return found;
}

/* Return whether the RECV whose clear to send `op` sent has received nothing yet. */
static bool is_waiting(const struct twill_ofi_op *op)
{
    const struct twill_ofi_channel *channel = op->channel;
    const struct twill_transfer *request = find_transfer(channel->in.head, op->sequence);
    bool came = request == NULL || request->moved > 0;
    for (uint32_t i = 0; i < TWILL_OFI_CHUNKS && !came; i++)
        came = channel->chunk_in[i].request == request && channel->chunk_in[i].done;
    return !came;
}

/* Return whether the operation `op`, which failed, matters, so that its communicator must fail. The
 * header of a large SEND matters while the SEND is in progress. A clear to send matters until data
 * of its RECV arrived. Cancelled receives of chunks and mere returns of credit do not matter. */
static bool is_needed(const struct twill_ofi_op *op)
{
    if (op->kind == TWILL_OFI_OP_RECV_CHUNK)
        return op->request != NULL; /* else abandoned and cancelled */
    if (op->kind != TWILL_OFI_OP_SEND_BUFFER || op->request != NULL)
        return true;
    return op->message == TWILL_OFI_LARGE
               ? is_sending(op)
               : op->message == TWILL_OFI_CLEAR_TO_SEND && is_waiting(op);
}

/* Handle an operation that ended with the libfabric code `code`, as the message `what` says. `op`
 * is NULL if the provider does not name it. If `op` is a control receive, the endpoint fails,
 * unless it is closing. If a request needs `op`, its communicator fails. Else the error is only
 * logged. */
static void fail_operation(struct twill_ofi_endpoint *endpoint, struct twill_ofi_op *op,
                           const char *what, int code)
{
    bool awaited = op != NULL && return_operation(op);
    if (op != NULL && op->kind == TWILL_OFI_OP_RECV_CONTROL &&
        (code != FI_ECANCELED || !endpoint->closing)) {
        fail_endpoint(endpoint, what, code);
    } else if (awaited && is_needed(op)) {
        struct twill_error theirs = {0};
        twill_ofi_set_failure(op->owner, twill_ofi_fail(endpoint, &theirs, what, code, op->channel),
                              &theirs);
    } else {
        twill_say(endpoint->params.log, TWILL_LOG_DEBUG, "ofi: %s: %s, ignored", what,
                  endpoint->library.explain(code));
    }
    if (op != NULL && op->kind == TWILL_OFI_OP_SEND_BUFFER)
        free_send(endpoint, op);
}

/* Read and handle the error of one operation, which may be unknown, as rxm before libfabric 2.0 may
 * name its own buffer. Returns whether there may be more completions. If the error cannot be read,
 * the endpoint fails. */
static bool failed_completion(struct twill_ofi_endpoint *endpoint)
{
    struct fi_cq_err_entry entry = {
        0}; /* with err_data_size 0, err_data is the provider's memory */
    ssize_t rc = fi_cq_readerr(endpoint->fi.cq, &entry, 0);
    if (rc < 0 && rc != -FI_EAGAIN)
        fail_endpoint(endpoint, "fi_cq_readerr", (int)rc);
    if (rc < 0)
        return rc == -FI_EAGAIN;
    struct twill_ofi_op *op = entry.op_context;
    if (op != NULL && !(is_ours(endpoint, op) && op->posted)) {
        count_stray(endpoint);
        return true;
    }
    char text[128], what[192];
    const char *more =
        fi_cq_strerror(endpoint->fi.cq, entry.prov_errno, entry.err_data, text, sizeof(text));
    snprintf(what, sizeof(what), "completion%s%s", more == NULL ? "" : ": ",
             more == NULL ? "" : more);
    fail_operation(endpoint, op, what, abs(entry.err));
    return true;
}

/* Read and handle up to TWILL_OFI_BATCH completions, or one error. Returns whether there may be
 * more. If reading fails, the endpoint fails. */
static bool read_batch(struct twill_ofi_endpoint *endpoint)
{
    struct fi_cq_tagged_entry entries[TWILL_OFI_BATCH];
    ssize_t n = fi_cq_read(endpoint->fi.cq, entries, TWILL_OFI_BATCH);
    if (n == -FI_EAVAIL)
        return failed_completion(endpoint);
    if (n < 0 && n != -FI_EAGAIN)
        fail_endpoint(endpoint, "fi_cq_read", (int)n);
    for (ssize_t i = 0; i < n; i++)
        handle_completion(endpoint, &entries[i]);
    return n == (ssize_t)TWILL_OFI_BATCH;
}

void twill_ofi_drain(struct twill_ofi_endpoint *endpoint)
{
    bool more = endpoint->fi.ep != NULL;
    for (int batch = 0; batch < BATCHES && more; batch++)
        more = read_batch(endpoint);
}

twill_status twill_ofi_read(struct twill_ofi_endpoint *endpoint, struct twill_error *error)
{
    if (endpoint->failed == TWILL_OK) {
        twill_ofi_drain(endpoint);
        post_controls(endpoint);
    }
    if (endpoint->failed != TWILL_OK)
        return TWILL_FAIL(error, endpoint->failed, "%s", endpoint->failure);
    if (endpoint->fi.ep == NULL)
        return TWILL_FAIL(error, TWILL_ERR_BROKEN, "ofi: the endpoint is closed");
    return TWILL_OK;
}

/* Finish the SENDs whose send buffer has left, and return their number. */
static int finish_sent(struct twill_ofi *t)
{
    int moved = 0;
    while (t->sent != NULL) {
        struct twill_transfer *request = t->sent;
        t->sent = request->next;
        twill_transfer_finish(request, TWILL_OK);
        moved++;
    }
    return moved;
}

/* Advance each channel in the list once. Channels that are refused again put themselves back.
 * Returns how many requests completed, or a negative status. */
static int retry_channels(struct twill_ofi *t, struct twill_error *error)
{
    struct twill_ofi_channel *channel = t->stuck_head;
    int moved = 0;
    t->stuck_head = NULL;
    t->stuck_tail = NULL;
    while (channel != NULL) {
        struct twill_ofi_channel *next = channel->next_stuck;
        channel->stuck = false;
        int finished = channel_advance(t, channel, error);
        if (finished < 0)
            return finished;
        moved += finished;
        channel = next;
    }
    return moved;
}

/* Read completions and advance `t`, locked. Returns how many requests moved, or a status < 0. */
static int advance_ofi(struct twill_ofi *t, struct twill_error *error)
{
    if (t->failed != TWILL_OK)
        return TWILL_FAIL(error, t->failed, "%s",
                          t->failure.message[0] != '\0' ? t->failure.message
                                                        : "ofi: the transport has failed before");
    TWILL_TRY(error, twill_ofi_read(t->endpoint, error));
    int moved = finish_sent(t) + t->noticed;
    t->noticed = 0;
    if (moved >= 0 && t->stuck_head != NULL) {
        int more = retry_channels(t, error);
        moved = more < 0 ? more : moved + more;
    }
    return moved;
}

int twill_ofi_progress(struct twill_transport *transport, struct twill_error *error)
{
    struct twill_ofi *t = (struct twill_ofi *)transport;
    if (pthread_mutex_trylock(&t->endpoint->lock) != 0)
        return 0;
    int moved = advance_ofi(t, error);
    if (moved < 0 && t->failed == TWILL_OK)
        t->failed = (twill_status)moved;
    pthread_mutex_unlock(&t->endpoint->lock);
    return moved;
}
