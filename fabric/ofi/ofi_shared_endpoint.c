/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint that the communicators of a context share: who creates, joins and leaves it, the
 * exchange between ranks when it opens, and the state of a peer. */
#include "fabric/ofi/ofi.h"

#include <netinet/in.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct twill_ofi *twill_ofi_find(struct twill_ofi_endpoint *endpoint, uint32_t comm)
{
    struct twill_ofi *t = endpoint->open;
    while (t != NULL && (t->comm != comm || t->cancelled))
        t = t->next;
    return t;
}

void twill_ofi_endpoint_fail(struct twill_ofi_endpoint *endpoint, twill_status status,
                             const char *message)
{
    if (endpoint->failed != TWILL_OK)
        return;
    endpoint->failed = status;
    snprintf(endpoint->failure, sizeof(endpoint->failure), "%s", message);
}

void twill_ofi_set_failure(struct twill_ofi *t, twill_status status,
                           const struct twill_error *error)
{
    if (t->failed != TWILL_OK)
        return;
    t->failed = status;
    t->failure = *error;
}

/* Free a peer, or do nothing if it is NULL. Its memory must not be registered. */
static void peer_free(struct twill_ofi_peer *peer)
{
    if (peer == NULL)
        return;
    free(peer->memory);
    free(peer);
}

void twill_ofi_destroy(struct twill_ofi *t)
{
    for (uint32_t r = 0; t->peers != NULL && r < t->size; r++)
        peer_free(t->peers[r]);
    free(t->peers);
    free(t);
}

/* Free the communicators in endpoint->deferred, which are closed, with the registrations of their
 * buffers. Unless `all` is set, keep those of which the provider still holds operations. */
static void sweep_closed(struct twill_ofi_endpoint *endpoint, bool all)
{
    struct twill_ofi **at = &endpoint->deferred;
    while (*at != NULL) {
        struct twill_ofi *t = *at;
        if (!all && t->headers_busy + t->chunks_busy > 0) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        twill_ofi_unregister_peers(t);
        twill_ofi_destroy(t);
    }
}

/* Close and free the endpoint, or leak it if the provider cannot close it. */
static void shared_endpoint_close(struct twill_common *common)
{
    struct twill_ofi_endpoint *endpoint = (struct twill_ofi_endpoint *)(void *)common;
    if (!twill_ofi_endpoint_free(endpoint))
        return;
    sweep_closed(endpoint, true);
    pthread_mutex_destroy(&endpoint->lock);
    free(endpoint->addresses.bytes);
    free(endpoint->addresses.length);
    free(endpoint->addresses.contact);
    free(endpoint);
}

/* The forget() of a struct twill_common. Take the lock and drop the registrations that overlap this
 * memory, or all if `start` is NULL. One in use is freed by its last user. The memory is then no
 * longer exposed. */
static void shared_endpoint_forget(struct twill_common *common, const void *start, size_t bytes)
{
    struct twill_ofi_endpoint *endpoint = (struct twill_ofi_endpoint *)(void *)common;
    pthread_mutex_lock(&endpoint->lock);
    twill_ofi_forget(endpoint, start, bytes);
    if (start != NULL)
        twill_ofi_conceal_all(endpoint, start, bytes);
    pthread_mutex_unlock(&endpoint->lock);
}

/* Allocate the contacts and open the endpoint. On failure the caller closes it. */
static twill_status set_up_endpoint(struct twill_ofi_endpoint *endpoint, struct twill_error *error)
{
    endpoint->addresses.contact = calloc(endpoint->size, sizeof(*endpoint->addresses.contact));
    if (endpoint->addresses.contact == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for %u ranks", endpoint->size);
    return twill_ofi_endpoint_open(endpoint, error);
}

/* Set the secret bits of tags and keys, derived from the secret of this run. */
static void derive_secret(struct twill_ofi_endpoint *endpoint)
{
    const struct twill_oob *oob = endpoint->params.oob;
    struct twill_secret secret;
    twill_secret_derive(&oob->secret, "ofi tags", oob->nonce, sizeof(oob->nonce), &secret);
    memcpy(&endpoint->matching.tag_secret, secret.key, sizeof(endpoint->matching.tag_secret));
    memcpy(&endpoint->matching.seal, secret.key + sizeof(endpoint->matching.tag_secret),
           sizeof(endpoint->matching.seal));
    memcpy(&endpoint->matching.write_key,
           secret.key + sizeof(endpoint->matching.tag_secret) + sizeof(endpoint->matching.seal),
           sizeof(endpoint->matching.write_key));
    twill_secret_wipe(&secret, sizeof(secret));
}

/* Create *made and agree on it with the other ranks, or fail and free it. Collective. */
static twill_status shared_endpoint_open(struct twill_ofi_endpoint **made,
                                         const struct twill_transport_params *params,
                                         const struct twill_ofi_options *options,
                                         struct twill_error *error)
{
    struct twill_ofi_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL || pthread_mutex_init(&endpoint->lock, NULL) != 0) {
        free(endpoint);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for an endpoint");
    }
    endpoint->common.close = shared_endpoint_close;
    endpoint->common.forget = shared_endpoint_forget;
    endpoint->params = *params;
    endpoint->exclusive = params->common == NULL;
    endpoint->rank = (uint32_t)params->oob->rank;
    endpoint->size = (uint32_t)params->oob->size;
    derive_secret(endpoint);
    if (options != NULL)
        endpoint->options = *options;
    twill_status status = twill_ofi_agree(endpoint, set_up_endpoint(endpoint, error), error);
    if (status != TWILL_OK) {
        shared_endpoint_close(&endpoint->common);
        return status;
    }
    *made = endpoint;
    return TWILL_OK;
}

/* Return TWILL_ERR_UNSUPPORTED if the communicator's number is too large for tags. */
static twill_status check_number(const struct twill_transport_params *params,
                                 struct twill_error *error)
{
    if (params->comm >> TWILL_OFI_COMM_BITS != 0)
        return TWILL_FAIL(
            error, TWILL_ERR_UNSUPPORTED,
            "ofi: communicator %u of this context: tags have numbers for the first %u only",
            params->comm, 1u << TWILL_OFI_COMM_BITS);
    return TWILL_OK;
}

/* Put a communicator into the endpoint's list of open ones, and free closed ones. Fails if the
 * endpoint has failed, has no address of a rank, or has the number open. Call with the lock. */
static twill_status enter_endpoint(struct twill_ofi *t, struct twill_ofi_endpoint *endpoint,
                                   const struct twill_transport_params *params,
                                   struct twill_error *error)
{
    t->endpoint = endpoint;
    for (uint32_t r = 0; r < t->size; r++)
        if (twill_ofi_contact(t, r) == NULL)
            return TWILL_FAIL(error, TWILL_ERR_INTERNAL,
                              "ofi: the endpoint of %u ranks has no address of %s", endpoint->size,
                              TWILL_RANK_NAME(t->job, r));
    if (endpoint->failed != TWILL_OK)
        return TWILL_FAIL(error, endpoint->failed, "%s", endpoint->failure);
    if (twill_ofi_find(endpoint, params->comm) != NULL)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "ofi: communicator %u is open already",
                          params->comm);
    sweep_closed(endpoint, false);
    t->next = endpoint->open;
    endpoint->open = t;
    return TWILL_OK;
}

twill_status twill_ofi_join(struct twill_ofi *t, const struct twill_transport_params *params,
                            const struct twill_ofi_options *options, struct twill_error *error)
{
    TWILL_TRY(error, check_number(params, error));
    struct twill_ofi_endpoint *endpoint =
        params->common == NULL ? NULL : (struct twill_ofi_endpoint *)(void *)*params->common;
    bool made = endpoint == NULL;
    if (made) {
        TWILL_TRY(error, shared_endpoint_open(&endpoint, params, options, error));
        if (endpoint->exclusive)
            endpoint->registrations.caches = false; /* twill_common_forget() does not reach it */
        else
            twill_common_put(params->common, &endpoint->common);
    }
    pthread_mutex_lock(&endpoint->lock);
    twill_status status = enter_endpoint(t, endpoint, params, error);
    pthread_mutex_unlock(&endpoint->lock);
    if (status != TWILL_OK && made && endpoint->exclusive)
        shared_endpoint_close(&endpoint->common);
    return status;
}

void twill_ofi_leave(struct twill_ofi *t)
{
    struct twill_ofi_endpoint *endpoint = t->endpoint;
    pthread_mutex_lock(&endpoint->lock);
    struct twill_ofi **at = &endpoint->open;
    while (*at != NULL && *at != t)
        at = &(*at)->next;
    if (*at == t)
        *at = t->next;
    t->next = endpoint->deferred;
    endpoint->deferred = t;
    sweep_closed(endpoint, twill_ofi_is_closed(endpoint));
    pthread_mutex_unlock(&endpoint->lock);
    if (endpoint->exclusive)
        shared_endpoint_close(&endpoint->common);
}

#define SHORT_ADDRESS   128         /* bytes of an address that travels in the first exchange */
#define LONGEST_ADDRESS (64u << 10) /* more than any provider has */

/* What a rank sends to all others when the endpoint opens. A value. If it could not open its
 * endpoint, only `wire`, `status`, `comm` and `message` are set, and all else is 0. */
struct ofi_peer_info {
    uint32_t wire;     /* TWILL_OFI_WIRE, which also shows the byte order */
    int32_t status;    /* TWILL_OK or an error */
    uint32_t comm;     /* number of the communicator that opens the endpoint */
    uint32_t protocol; /* FI_PROTO_... */
    uint32_t address_format;
    uint32_t address_bytes;
    uint32_t tag_bits;
    uint32_t slot; /* limits.slot */
    uint64_t max_message;
    char provider[32];
    char message[192];                    /* if `status` is an error */
    unsigned char address[SHORT_ADDRESS]; /* if it is not longer */
};

/* Set *address, at first NULL, to the endpoint's address, and *bytes to its size, or fail. The
 * caller frees *address in any case. */
static twill_status own_address(struct twill_ofi_endpoint *endpoint, unsigned char **address,
                                size_t *bytes, struct twill_error *error)
{
    *bytes = 256;
    for (int attempt = 0; attempt < 4; attempt++) {
        size_t capacity = *bytes;
        unsigned char *grown = realloc(*address, capacity);
        if (grown == NULL)
            return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for an address");
        *address = grown;
        int rc = fi_getname(&endpoint->fi.ep->fid, *address, bytes);
        if (rc == 0 && *bytes > 0 && *bytes <= capacity)
            return TWILL_OK;
        if (rc != -FI_ETOOSMALL || *bytes <= capacity)
            return TWILL_FAIL(error, TWILL_ERR_FABRIC, "libfabric %s: fi_getname: %s",
                              endpoint->fi.info->fabric_attr->prov_name,
                              endpoint->library.explain(abs(rc)));
    }
    return TWILL_FAIL(error, TWILL_ERR_FABRIC, "libfabric %s: fi_getname keeps growing",
                      endpoint->fi.info->fabric_attr->prov_name);
}

/* Set endpoint->description to provider, domain, address and the reason for the choice. */
static void describe_address(struct twill_ofi_endpoint *endpoint, const unsigned char *address,
                             size_t bytes)
{
    char text[TWILL_ADDRESS_TEXT];
    twill_ofi_address_text(endpoint->fi.info, address, bytes, text, sizeof(text));
    snprintf(endpoint->description, sizeof(endpoint->description), "%s, domain %s, at %s%s: %s",
             endpoint->fi.info->fabric_attr->prov_name, endpoint->fi.info->domain_attr->name, text,
             endpoint->registrations.required ? ", registering" : "", endpoint->why);
}

/* Fail if a rank has failed or its settings do not fit ours. Lowers max_message and slot to those
 * of the rank, and raises the stride to the bytes of its address. */
static twill_status check_peer_info(struct twill_ofi_endpoint *endpoint,
                                    const struct ofi_peer_info *mine,
                                    const struct ofi_peer_info *theirs, uint32_t rank,
                                    struct twill_error *error)
{
    const uint32_t *job = endpoint->params.job;
    const char *they = TWILL_RANK_NAME(job, rank), *we = TWILL_RANK_NAME(job, endpoint->rank);
    if (theirs->wire != mine->wire)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "ofi: %s runs another version of twill (wire format %08x, here %08x)",
                          they, theirs->wire, mine->wire);
    if (theirs->status != TWILL_OK)
        return TWILL_FAIL(error, twill_status_received(theirs->status), "%s: %.*s", they,
                          (int)sizeof(theirs->message), theirs->message);
    if (theirs->address_bytes < 1 || theirs->address_bytes > LONGEST_ADDRESS ||
        theirs->max_message < 2 * sizeof(struct twill_ofi_header))
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL,
                          "ofi: %s sends an address of %u bytes and messages of %llu: its "
                          "memory is damaged, or it is of another version of twill",
                          they, theirs->address_bytes, (unsigned long long)theirs->max_message);
    if (theirs->protocol != mine->protocol || theirs->address_format != mine->address_format ||
        strncmp(theirs->provider, mine->provider, sizeof(mine->provider)) != 0)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "ofi: %s uses provider %.32s, %s %.32s (protocols %u and %u, "
                          "address formats %u and %u): set TWILL_PROVIDER and TWILL_INTERFACE",
                          they, theirs->provider, we, mine->provider, theirs->protocol,
                          mine->protocol, theirs->address_format, mine->address_format);
    if (theirs->tag_bits != mine->tag_bits)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "ofi: libfabric %.32s of %s has tags of %u bits, of %s %u: is it "
                          "another version?",
                          mine->provider, they, theirs->tag_bits, we, mine->tag_bits);
    if (theirs->comm != mine->comm)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "ofi: %s opens communicator %u, %s %u", they,
                          theirs->comm, we, mine->comm);
    endpoint->limits.max_message =
        twill_min(endpoint->limits.max_message, (size_t)theirs->max_message);
    endpoint->limits.slot = twill_min(endpoint->limits.slot, theirs->slot);
    endpoint->addresses.stride = twill_max(endpoint->addresses.stride, theirs->address_bytes);
    return TWILL_OK;
}

/* Set *mine to what this rank sends, the error if `local` is one. `address` may be NULL then. */
static void fill_peer_info(const struct twill_ofi_endpoint *endpoint, struct ofi_peer_info *mine,
                           const unsigned char *address, size_t address_bytes, twill_status local,
                           const struct twill_error *error)
{
    memset(mine, 0, sizeof(*mine));
    mine->wire = TWILL_OFI_WIRE;
    mine->status = local;
    mine->comm = endpoint->params.comm;
    if (local != TWILL_OK) {
        snprintf(mine->message, sizeof(mine->message), "%.191s",
                 error != NULL && error->message[0] != '\0' ? error->message
                                                            : "ofi cannot be opened");
        return;
    }
    mine->protocol = endpoint->fi.info->ep_attr->protocol;
    mine->address_format = endpoint->fi.info->addr_format;
    mine->address_bytes = (uint32_t)address_bytes;
    if (address_bytes <= SHORT_ADDRESS)
        memcpy(mine->address, address, address_bytes);
    mine->tag_bits = endpoint->matching.tag_bits;
    mine->slot = (uint32_t)endpoint->limits.slot;
    mine->max_message = endpoint->limits.max_message;
    snprintf(mine->provider, sizeof(mine->provider), "%s",
             endpoint->fi.info->fabric_attr->prov_name);
}

/* Set addresses.bytes to the addresses of all ranks, each padded with zeros to addresses.stride.
 * They are in all[r].address or, if one is longer than SHORT_ADDRESS, come from one more
 * all-gather. Fails without memory or if the all-gather does. */
static twill_status gather_addresses(struct twill_ofi_endpoint *endpoint,
                                     const struct ofi_peer_info *all, const unsigned char *address,
                                     size_t bytes, struct twill_error *error)
{
    size_t stride = endpoint->addresses.stride;
    endpoint->addresses.bytes = calloc(endpoint->size, stride);
    unsigned char *mine = calloc(1, stride);
    if (endpoint->addresses.bytes == NULL || mine == NULL) {
        free(mine);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for %u addresses",
                          endpoint->size);
    }
    memcpy(mine, address, bytes);
    twill_status status = TWILL_OK;
    for (uint32_t r = 0; stride <= SHORT_ADDRESS && r < endpoint->size; r++)
        memcpy(endpoint->addresses.bytes + r * stride, all[r].address, stride);
    if (stride > SHORT_ADDRESS)
        status = twill_oob_allgather(endpoint->params.oob, mine, endpoint->addresses.bytes, stride,
                                     error);
    free(mine);
    return status;
}

/* If `address` is a link-local IPv6 one, replace the peer's interface index in it by ours. */
static void localise_address(const struct fi_info *info, unsigned char *address, size_t bytes)
{
    struct sockaddr_in6 own, theirs;
    if (info->addr_format != FI_SOCKADDR_IN6 || bytes < sizeof(theirs) ||
        info->src_addrlen < sizeof(own))
        return;
    memcpy(&theirs, address, sizeof(theirs));
    memcpy(&own, info->src_addr, sizeof(own));
    if (!IN6_IS_ADDR_LINKLOCAL(&theirs.sin6_addr))
        return;
    theirs.sin6_scope_id = own.sin6_scope_id;
    memcpy(address, &theirs, sizeof(theirs));
}

/* Insert the address of the rank with the entry `contact` into the address vector, and set
 * *contact. Returns TWILL_ERR_FABRIC if the provider refuses it. */
static twill_status insert_address(struct twill_ofi_endpoint *endpoint,
                                   struct twill_ofi_contact *contact, struct twill_error *error)
{
    size_t rank = (size_t)(contact - endpoint->addresses.contact);
    unsigned char *address = endpoint->addresses.bytes + rank * endpoint->addresses.stride;
    localise_address(endpoint->fi.info, address, endpoint->addresses.length[rank]);
    int rc = fi_av_insert(endpoint->fi.av, address, 1, &contact->address, 0, NULL);
    if (rc != 1) {
        char text[TWILL_ADDRESS_TEXT];
        twill_ofi_address_text(endpoint->fi.info, address, endpoint->addresses.length[rank], text,
                               sizeof(text));
        return TWILL_FAIL(error, TWILL_ERR_FABRIC, "libfabric %s: fi_av_insert of %s at %s: %s",
                          endpoint->fi.info->fabric_attr->prov_name,
                          TWILL_RANK_NAME(endpoint->params.job, rank), text,
                          rc < 0 ? endpoint->library.explain(-rc) : "refused");
    }
    contact->known = true;
    return TWILL_OK;
}

/* Insert the addresses of all other ranks, before the first message, as a directed receive never
 * finds a message from an address that was unknown when it came. */
static twill_status insert_all(struct twill_ofi_endpoint *endpoint, struct twill_error *error)
{
    for (uint32_t r = 0; r < endpoint->size; r++)
        if (r != endpoint->rank)
            TWILL_TRY(error, insert_address(endpoint, &endpoint->addresses.contact[r], error));
    return TWILL_OK;
}

/* Send *mine to all ranks, set all[r] to what rank r sent, and set endpoint->addresses and the
 * limits that hold for all ranks. Inserts all addresses if receives are directed. Fails if a rank
 * has failed, or if its version, provider or settings differ from this rank's. Collective. */
static twill_status agree_addresses(struct twill_ofi_endpoint *endpoint,
                                    const struct ofi_peer_info *mine, struct ofi_peer_info *all,
                                    const unsigned char *address, struct twill_error *error)
{
    TWILL_TRY(error, twill_oob_allgather(endpoint->params.oob, mine, all, sizeof(*mine), error));
    if (mine->status != TWILL_OK)
        return mine->status;
    endpoint->addresses.stride = 1;
    for (uint32_t r = 0; r < endpoint->size; r++)
        TWILL_TRY(error, check_peer_info(endpoint, mine, &all[r], r, error));
    endpoint->addresses.stride = twill_round_up(endpoint->addresses.stride, sizeof(uint64_t));
    for (uint32_t r = 0; r < endpoint->size; r++)
        endpoint->addresses.length[r] = all[r].address_bytes;
    size_t beside = endpoint->limits.max_message - sizeof(struct twill_ofi_header);
    endpoint->limits.eager = twill_min(TWILL_OFI_EAGER, beside & ~(size_t)(TWILL_OFI_TAIL - 1));
    endpoint->limits.split = endpoint->limits.eager + TWILL_OFI_TAIL;
    TWILL_TRY(error, gather_addresses(endpoint, all, address, mine->address_bytes, error));
    return endpoint->matching.directed ? insert_all(endpoint, error) : TWILL_OK;
}

twill_status twill_ofi_agree(struct twill_ofi_endpoint *endpoint, twill_status local,
                             struct twill_error *error)
{
    unsigned char *address = NULL;
    size_t bytes = 0;
    struct ofi_peer_info mine;
    if (local == TWILL_OK)
        local = own_address(endpoint, &address, &bytes, error);
    fill_peer_info(endpoint, &mine, address, bytes, local, error);
    if (local == TWILL_OK)
        describe_address(endpoint, address, bytes);
    struct ofi_peer_info *all = calloc(endpoint->size, sizeof(*all));
    endpoint->addresses.length = calloc(endpoint->size, sizeof(*endpoint->addresses.length));
    twill_status status;
    if (all == NULL || endpoint->addresses.length == NULL)
        status = TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for %u ranks", endpoint->size);
    else
        status = agree_addresses(endpoint, &mine, all, address, error);
    free(all);
    free(address);
    return status;
}

/* Set up channel `number` of a peer. The buffers of its header receives are at `memory`. */
static void channel_init(struct twill_ofi *t, struct twill_ofi_peer *peer, uint32_t number,
                         unsigned char *memory, size_t stride)
{
    struct twill_ofi_channel *channel = &peer->channels[number];
    channel->peer = peer;
    channel->lane = (uint8_t)number;
    for (uint32_t i = 0; i < TWILL_OFI_HEADERS; i++)
        channel->header_in[i] = (struct twill_ofi_op){.kind = TWILL_OFI_OP_RECV_HEADER,
                                                      .owner = t,
                                                      .channel = channel,
                                                      .buffer = memory + i * stride};
    for (uint32_t i = 0; i < TWILL_OFI_CHUNKS; i++)
        channel->chunk_in[i] =
            (struct twill_ofi_op){.kind = TWILL_OFI_OP_RECV_CHUNK, .owner = t, .channel = channel};
    for (uint32_t i = 0; i < TWILL_OFI_OUT; i++)
        channel->chunk_out[i] =
            (struct twill_ofi_op){.kind = TWILL_OFI_OP_SEND_CHUNK, .owner = t, .channel = channel};
}

/* Contacts are numbered by rank in the job, or in the communicator that uses the endpoint alone. */
struct twill_ofi_contact *twill_ofi_contact(const struct twill_ofi *t, uint32_t rank)
{
    const struct twill_ofi_endpoint *endpoint = t->endpoint;
    uint32_t number = t->job == NULL || endpoint->params.job != NULL ? rank : t->job[rank];
    return number < endpoint->size ? &endpoint->addresses.contact[number] : NULL;
}

/* Set *created to a new peer with registered buffers. Fails without memory or registration. */
static twill_status peer_create(struct twill_ofi *t, uint32_t rank, struct twill_ofi_peer **created,
                                struct twill_error *error)
{
    size_t stride = twill_round_up(TWILL_OFI_BUFFER_BYTES, TWILL_CACHE_LINE);
    size_t bytes = (size_t)TWILL_OFI_LANES * TWILL_OFI_HEADERS * stride;
    struct twill_ofi_peer *peer = calloc(1, sizeof(*peer));
    if (peer != NULL)
        peer->memory = aligned_alloc(4096, twill_round_up(bytes, 4096));
    if (peer == NULL || peer->memory == NULL) {
        peer_free(peer);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for the link to rank %u", rank);
    }
    peer->rank = rank;
    (void)twill_rank_text(t->job, rank, peer->name);
    peer->contact = twill_ofi_contact(t, rank);
    for (uint32_t l = 0; l < TWILL_OFI_LANES; l++)
        channel_init(t, peer, l, peer->memory + (size_t)l * TWILL_OFI_HEADERS * stride, stride);
    twill_status status = twill_ofi_register(t->endpoint, peer->memory, bytes, &peer->mr, error);
    if (status == TWILL_OK && t->endpoint->limits.slot != 0)
        status = twill_ofi_window_open(t->endpoint, peer, error);
    if (status == TWILL_OK) {
        *created = peer;
        return TWILL_OK;
    }
    twill_ofi_unregister(&peer->mr);
    peer_free(peer);
    return status;
}

twill_status twill_ofi_peer(struct twill_ofi *t, uint32_t rank, struct twill_ofi_peer **peer,
                            struct twill_error *error)
{
    if (rank >= t->size || rank == t->rank)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "ofi: rank %u is no peer of rank %u of %u",
                          rank, t->rank, t->size);
    *peer = t->peers[rank];
    if (*peer != NULL)
        return TWILL_OK;
    TWILL_TRY(error, peer_create(t, rank, peer, error));
    if (!(*peer)->contact->known) {
        twill_status status = insert_address(t->endpoint, (*peer)->contact, error);
        if (status != TWILL_OK) {
            twill_ofi_unregister(&(*peer)->mr);
            twill_ofi_window_close(&(*peer)->window);
            peer_free(*peer);
            *peer = NULL;
            return status;
        }
    }
    t->peers[rank] = *peer;
    for (uint32_t l = 0; t->endpoint->limits.preposts && l < TWILL_OFI_LANES; l++)
        twill_ofi_stuck(t, &(*peer)->channels[l]); /* progress posts the header receives */
    return TWILL_OK;
}
