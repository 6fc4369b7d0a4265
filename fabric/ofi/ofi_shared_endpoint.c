/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoint that the communicators of a context share: created by the first, closed with the
 * context. */
#include "fabric/ofi/ofi.h"

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

void twill_ofi_destroy(struct twill_ofi *t)
{
    for (uint32_t r = 0; t->peers != NULL && r < t->size; r++)
        twill_ofi_peer_free(t->peers[r]);
    free(t->peers);
    free(t);
}

/* Free closed communicators with no operation left at the provider, or all. */
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

/* Leaks the memory if the provider cannot close its endpoint or its completion queue, as it may
 * still write to it. */
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

static void shared_endpoint_forget(struct twill_common *common, const void *start, size_t bytes)
{
    struct twill_ofi_endpoint *endpoint = (struct twill_ofi_endpoint *)(void *)common;
    pthread_mutex_lock(&endpoint->lock);
    twill_ofi_forget(endpoint, start, bytes);
    pthread_mutex_unlock(&endpoint->lock);
}

static twill_status set_up_endpoint(struct twill_ofi_endpoint *endpoint, struct twill_error *error)
{
    endpoint->addresses.contact = calloc(endpoint->size, sizeof(*endpoint->addresses.contact));
    if (endpoint->addresses.contact == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for %u ranks", endpoint->size);
    return twill_ofi_endpoint_open(endpoint, error);
}

/* Derive the secret bits of tags from the job's key. The nonce would not do: it is visible in
 * /proc/net/unix. */
static void derive_secret(struct twill_ofi_endpoint *endpoint)
{
    const struct twill_oob *oob = endpoint->params.oob;
    struct twill_secret secret;
    twill_secret_derive(&oob->secret, "ofi tags", oob->nonce, sizeof(oob->nonce), &secret);
    memcpy(&endpoint->matching.tag_secret, secret.key, sizeof(endpoint->matching.tag_secret));
    memcpy(&endpoint->matching.seal, secret.key + sizeof(endpoint->matching.tag_secret),
           sizeof(endpoint->matching.seal));
    twill_secret_wipe(&secret, sizeof(secret));
}

static twill_status shared_endpoint_open(struct twill_ofi_endpoint **made,
                                         const struct twill_transport_params *params,
                                         const struct twill_ofi_options *options,
                                         struct twill_error *error)
{
    struct twill_ofi_endpoint *endpoint = calloc(1, sizeof(*endpoint));
    if (endpoint == NULL || pthread_mutex_init(&endpoint->lock, NULL) != 0) {
        free(endpoint);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory");
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

/* All ranks come to the same result, so none waits for one that refuses. */
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
