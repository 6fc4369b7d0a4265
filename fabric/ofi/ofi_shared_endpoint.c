/* SPDX-License-Identifier: Apache-2.0 */
/* What the communicators of a context share: made by the first, used by all, closed with the
 * context. */
#include "fabric/ofi/ofi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct twill_ofi *twill_ofi_find(struct twill_ofi_home *home, uint32_t comm)
{
    struct twill_ofi *t = home->open;
    while (t != NULL && (t->comm != comm || t->cancelled))
        t = t->next;
    return t;
}

void twill_ofi_home_fail(struct twill_ofi_home *home, twill_status status, const char *words)
{
    if (home->failed != TWILL_OK)
        return;
    home->failed = status;
    snprintf(home->failure, sizeof(home->failure), "%s", words);
}

void twill_ofi_blame(struct twill_ofi *t, twill_status status, const struct twill_error *error)
{
    if (t->failed != TWILL_OK)
        return;
    t->failed = status;
    t->failure = *error;
}

void twill_ofi_bury(struct twill_ofi *t)
{
    for (uint32_t r = 0; t->peers != NULL && r < t->size; r++)
        twill_ofi_peer_free(t->peers[r]);
    free(t->peers);
    free(t);
}

/* Closed communicators whose last operation the provider has given back. */
static void sweep(struct twill_ofi_home *home, bool all)
{
    struct twill_ofi **at = &home->graves;
    while (*at != NULL) {
        struct twill_ofi *t = *at;
        if (!all && t->headers_busy + t->segments_busy > 0) {
            at = &t->next;
            continue;
        }
        *at = t->next;
        twill_ofi_unregister_peers(t);
        twill_ofi_bury(t);
    }
}

/* Where the provider does not close its endpoint, it may still write: rather leak than that. */
static void home_close(struct twill_common *common)
{
    struct twill_ofi_home *home = (struct twill_ofi_home *)(void *)common;
    if (!twill_ofi_endpoint_free(home))
        return;
    sweep(home, true);
    pthread_mutex_destroy(&home->lock);
    free(home->addresses);
    free(home->address_length);
    free(home->contacts);
    free(home);
}

static void home_forget(struct twill_common *common, const void *start, size_t bytes)
{
    struct twill_ofi_home *home = (struct twill_ofi_home *)(void *)common;
    pthread_mutex_lock(&home->lock);
    twill_ofi_forget(home, start, bytes);
    pthread_mutex_unlock(&home->lock);
}

static twill_status set_up(struct twill_ofi_home *home, struct twill_error *error)
{
    home->contacts = calloc(home->size, sizeof(*home->contacts));
    if (home->contacts == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory for %u ranks", home->size);
    return twill_ofi_endpoint_open(home, error);
}

/* Nobody without the job's key knows it: the nonce alone stands in /proc/net/unix. */
static void draw_secret(struct twill_ofi_home *home)
{
    const struct twill_oob *oob = home->params.oob;
    struct twill_secret secret;
    twill_secret_derive(&oob->secret, "ofi tags", oob->nonce, sizeof(oob->nonce), &secret);
    memcpy(&home->salt, secret.key, sizeof(home->salt));
    memcpy(&home->seal, secret.key + sizeof(home->salt), sizeof(home->seal));
    twill_secret_wipe(&secret, sizeof(secret));
}

static twill_status home_open(struct twill_ofi_home **made,
                              const struct twill_transport_params *params,
                              const struct twill_ofi_options *options, struct twill_error *error)
{
    struct twill_ofi_home *home = calloc(1, sizeof(*home));
    if (home == NULL || pthread_mutex_init(&home->lock, NULL) != 0) {
        free(home);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "ofi: no memory");
    }
    home->common.close = home_close;
    home->common.forget = home_forget;
    home->params = *params;
    home->exclusive = params->common == NULL;
    home->rank = (uint32_t)params->oob->rank;
    home->size = (uint32_t)params->oob->size;
    draw_secret(home);
    if (options != NULL)
        home->options = *options;
    twill_status status = twill_ofi_agree(home, set_up(home, error), error);
    if (status != TWILL_OK) {
        home_close(&home->common);
        return status;
    }
    *made = home;
    return TWILL_OK;
}

/* The same on all ranks: nobody waits for one that refuses. */
static twill_status check_number(const struct twill_transport_params *params,
                                 struct twill_error *error)
{
    if (params->comm >> TWILL_OFI_COMM_BITS != 0)
        return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED,
                          "ofi: communicator %u of this context: tags name the first %u only",
                          params->comm, 1u << TWILL_OFI_COMM_BITS);
    return TWILL_OK;
}

static twill_status enter(struct twill_ofi *t, struct twill_ofi_home *home,
                          const struct twill_transport_params *params, struct twill_error *error)
{
    for (uint32_t r = 0; t->job != NULL && r < t->size; r++)
        if (t->job[r] >= home->size)
            return TWILL_FAIL(error, TWILL_ERR_INTERNAL,
                              "ofi: rank %u is %u of the job, of which %u are known", r, t->job[r],
                              home->size);
    if (home->failed != TWILL_OK)
        return TWILL_FAIL(error, home->failed, "%s", home->failure);
    if (twill_ofi_find(home, params->comm) != NULL)
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "ofi: communicator %u is open already",
                          params->comm);
    sweep(home, false);
    t->home = home;
    t->next = home->open;
    home->open = t;
    return TWILL_OK;
}

twill_status twill_ofi_join(struct twill_ofi *t, const struct twill_transport_params *params,
                            const struct twill_ofi_options *options, struct twill_error *error)
{
    TWILL_TRY(error, check_number(params, error));
    struct twill_ofi_home *home =
        params->common == NULL ? NULL : (struct twill_ofi_home *)(void *)*params->common;
    bool made = home == NULL;
    if (made) {
        TWILL_TRY(error, home_open(&home, params, options, error));
        if (home->exclusive) {
            t->job = NULL;        /* its ranks are the communicator's */
            home->caches = false; /* nobody tells it what to forget */
        } else
            twill_common_put(params->common, &home->common);
    }
    pthread_mutex_lock(&home->lock);
    twill_status status = enter(t, home, params, error);
    pthread_mutex_unlock(&home->lock);
    if (status != TWILL_OK && made && home->exclusive)
        home_close(&home->common);
    return status;
}

void twill_ofi_leave(struct twill_ofi *t)
{
    struct twill_ofi_home *home = t->home;
    pthread_mutex_lock(&home->lock);
    struct twill_ofi **at = &home->open;
    while (*at != NULL && *at != t)
        at = &(*at)->next;
    if (*at == t)
        *at = t->next;
    t->next = home->graves;
    home->graves = t;
    sweep(home, home->ep == NULL);
    pthread_mutex_unlock(&home->lock);
    if (home->exclusive)
        home_close(&home->common);
}
