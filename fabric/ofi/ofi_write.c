/* SPDX-License-Identifier: Apache-2.0 */
/* WRITEs: data that go straight into memory that a peer has exposed, without a request there.
 *
 * A message that follows a WRITE on its channel arrives after the data. Over one connection (tcp,
 * verbs) the network keeps that order. Other networks may not, so there the message waits until the
 * WRITE is complete, which says that the data have arrived. */
#include "fabric/ofi/ofi.h"

#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>
#include <stdlib.h>

/* Memory into which peers may write, in endpoint->exposures until conceal(), or until the memory is
 * freed or the endpoint closes, as a peer that has not noticed a failure may still write. */
struct twill_ofi_exposure {
    struct twill_ofi_exposure *next;
    struct fid_mr *mr;
    const unsigned char *start;
    size_t bytes;
};

/* Register memory for the writes of peers, and set *mr and *remote. Returns 0, or a code of
 * libfabric. */
static int register_exposed(struct twill_ofi_endpoint *endpoint, void *start, size_t bytes,
                            struct fid_mr **mr, struct twill_remote *remote)
{
    uint64_t mode = (uint64_t)endpoint->fi.info->domain_attr->mr_mode;
    uint64_t key = (mode & FI_MR_PROV_KEY) != 0 ? 0 : ++endpoint->registrations.next_key;
    if (key != 0 && endpoint->fi.info->domain_attr->mr_key_size >= sizeof(key))
        key += endpoint->matching.write_key >> 1; /* rxm uses keys with the highest bit */
    int rc = fi_mr_reg(endpoint->fi.domain, start, bytes, FI_REMOTE_WRITE, 0, key, 0, mr, NULL);
    if (rc != 0)
        return rc;
    if ((mode & FI_MR_ENDPOINT) != 0) {
        rc = fi_mr_bind(*mr, &endpoint->fi.ep->fid, 0);
        if (rc == 0)
            rc = fi_mr_enable(*mr);
    }
    remote->at = (mode & FI_MR_VIRT_ADDR) != 0 ? (uintptr_t)start : 0;
    remote->key = fi_mr_key(*mr);
    if (rc != 0 || remote->key == FI_KEY_NOTAVAIL)
        twill_ofi_unregister(mr);
    return rc;
}

/* Expose memory, with the lock. Returns whether the provider has registered it. */
static bool expose(struct twill_ofi_endpoint *endpoint, void *start, size_t bytes,
                   struct twill_remote *remote)
{
    struct twill_ofi_exposure *made = calloc(1, sizeof(*made));
    int rc =
        made == NULL ? -FI_ENOMEM : register_exposed(endpoint, start, bytes, &made->mr, remote);
    if (made == NULL || made->mr == NULL) {
        twill_say(endpoint->params.log, TWILL_LOG_INFO,
                  "ofi: %zu bytes cannot be registered for writes of other ranks (%s), so messages "
                  "carry puts to them",
                  bytes, endpoint->library.explain(abs(rc)));
        free(made);
        return false;
    }
    made->start = start;
    made->bytes = bytes;
    made->next = endpoint->exposures;
    endpoint->exposures = made;
    return true;
}

bool twill_ofi_expose(struct twill_transport *transport, void *start, size_t bytes,
                      struct twill_remote *remote)
{
    struct twill_ofi *t = (struct twill_ofi *)transport;
    struct twill_ofi_endpoint *endpoint = t->endpoint;
    *remote = (struct twill_remote){0};
    pthread_mutex_lock(&endpoint->lock);
    bool can = endpoint->limits.writes != TWILL_OFI_NO_WRITES && endpoint->failed == TWILL_OK &&
               endpoint->fi.ep != NULL && t->failed == TWILL_OK;
    if (can && bytes > 0)
        can = expose(endpoint, start, bytes, remote);
    pthread_mutex_unlock(&endpoint->lock);
    return can;
}

/* Take the exposure at *at out of its list, and end it. */
static void end_exposure(struct twill_ofi_exposure **at)
{
    struct twill_ofi_exposure *ended = *at;
    *at = ended->next;
    twill_ofi_unregister(&ended->mr);
    free(ended);
}

void twill_ofi_conceal_all(struct twill_ofi_endpoint *endpoint, const void *start, size_t bytes)
{
    struct twill_ofi_exposure **at = &endpoint->exposures;
    while (*at != NULL) {
        uintptr_t first = (uintptr_t)(*at)->start, from = (uintptr_t)start;
        if (start == NULL || (from < first + (*at)->bytes && first < from + bytes))
            end_exposure(at);
        else
            at = &(*at)->next;
    }
}

void twill_ofi_conceal(struct twill_transport *transport, const struct twill_remote *remote)
{
    struct twill_ofi_endpoint *endpoint = ((struct twill_ofi *)transport)->endpoint;
    pthread_mutex_lock(&endpoint->lock);
    struct twill_ofi_exposure **at = &endpoint->exposures;
    while (*at != NULL && fi_mr_key((*at)->mr) != remote->key)
        at = &(*at)->next;
    if (*at != NULL)
        end_exposure(at);
    pthread_mutex_unlock(&endpoint->lock);
}

int twill_ofi_write_next(struct twill_ofi *t, struct twill_ofi_channel *channel,
                         struct twill_error *error)
{
    struct twill_transfer *request = channel->headers_out.head;
    struct twill_ofi_private *private = twill_ofi_private(request);
    TWILL_TRY(error, twill_ofi_hold_buffer(t, request, error));
    while (private->posted < request->bytes) {
        struct twill_ofi_op *op = twill_ofi_idle_chunk(channel);
        if (op == NULL)
            return 0;
        size_t at = private->posted,
               bytes = twill_ofi_chunk_bytes(request->bytes, at, t->endpoint->limits.write);
        const struct twill_remote to = {request->remote.at + at, request->remote.key};
        int done = twill_ofi_write_to(t, op, (unsigned char *)request->buffer + at, bytes,
                                      twill_ofi_desc(private->memory), &to, error);
        if (done != 1)
            return done;
        op->request = request;
        private->posted += bytes;
        channel->slots.writing++;
    }
    twill_ofi_pop(&channel->headers_out);
    twill_counter_add(&t->base.counters.messages, 1);
    twill_counter_add(&t->base.counters.bytes, request->bytes);
    return 1;
}
