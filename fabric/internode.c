/* SPDX-License-Identifier: Apache-2.0 */
/* What carries messages between nodes: where libfabric has a fabric to offer, libfabric; where it
 * has nothing better than TCP either, twill's own tcp, which is quicker than TCP through libfabric.
 * All ranks must come to the same answer. */
#include "fabric/transports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PROVIDER_NAME_BYTES 32

/* Does TWILL_PROVIDER say it? TWILL_DOMAIN is a word of libfabric's. */
static bool is_said(struct twill_transport_params *params, char *why, size_t why_bytes)
{
    const char *asked = params->provider;
    if (asked == NULL || asked[0] == '\0')
        return false;
    params->own_tcp = strcasecmp(asked, "tcp") == 0;
    snprintf(why, why_bytes, "%s, by TWILL_PROVIDER",
             params->own_tcp ? "tcp of twill's own" : "libfabric");
    return true;
}

/* Asking libfabric takes a tenth of a second of a core. The ranks of a node would hear the same, so
 * one of them asks for all, unless they name interfaces of their own. */
static bool queries_provider(const struct twill_transport_params *params, uint32_t rank)
{
    bool named = (params->interface != NULL && params->interface[0] != '\0') ||
                 (params->domain != NULL && params->domain[0] != '\0');
    return named || params->world->local[rank] == 0;
}

/* Ask libfabric for the name of something better than TCP; "" and an error, or none, if there is
 * nothing. Who names a library wants it to be used. */
static void query_provider(const struct twill_transport_params *params,
                           char name[PROVIDER_NAME_BYTES], struct twill_error *error)
{
    if (twill_ofi_is_better(params, name, PROVIDER_NAME_BYTES, error))
        return;
    name[0] = '\0';
    if (error->message[0] != '\0')
        twill_say(params->log, params->libfabric != NULL ? TWILL_LOG_WARN : TWILL_LOG_INFO,
                  "libfabric is not used: %s", error->message);
}

static void conclude_provider(struct twill_transport_params *params, bool own, const char *who,
                              const char *name, const struct twill_error *trouble, char *why,
                              size_t why_bytes)
{
    params->own_tcp = own;
    if (own && trouble->message[0] != '\0')
        snprintf(why, why_bytes, "tcp of twill's own: %s", trouble->message);
    else if (own)
        snprintf(why, why_bytes, "tcp of twill's own: libfabric has nothing better here%s", who);
    else
        snprintf(why, why_bytes, "libfabric: it has %s", name);
}

twill_status twill_between_agree(struct twill_transport_params *params, char *why, size_t why_bytes,
                                 struct twill_error *error)
{
    size_t size = (size_t)params->oob->size;
    const struct twill_world *world = params->world;
    uint32_t rank = (uint32_t)params->oob->rank;
    char mine[PROVIDER_NAME_BYTES] = "", who[32] = "";
    struct twill_error trouble = {0};
    if (is_said(params, why, why_bytes))
        return TWILL_OK;
    char *all = calloc(size, PROVIDER_NAME_BYTES);
    if (all == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory for the names of %zu providers",
                          size);
    bool queries = queries_provider(params, rank);
    if (!queries)
        snprintf(mine, sizeof(mine), "(as told)");
    else
        query_provider(params, mine, &trouble);
    twill_status status = twill_oob_allgather(params->oob, mine, all, PROVIDER_NAME_BYTES, error);
    size_t without = 0;
    while (status == TWILL_OK && without < size && all[without * PROVIDER_NAME_BYTES] != '\0')
        without++;
    if (status == TWILL_OK && !queries)
        memcpy(mine,
               &all[twill_world_member(world, world->node[rank], 0) * (size_t)PROVIDER_NAME_BYTES],
               PROVIDER_NAME_BYTES);
    if (mine[0] != '\0')
        snprintf(who, sizeof(who), " (rank %zu's)", without);
    conclude_provider(params, without < size, who, mine, &trouble, why, why_bytes);
    free(all);
    return status;
}

void twill_between_guess(struct twill_transport_params *params, char *why, size_t why_bytes)
{
    char name[PROVIDER_NAME_BYTES] = "";
    if (is_said(params, why, why_bytes))
        return;
    struct twill_error trouble = {0};
    query_provider(params, name, &trouble);
    conclude_provider(params, name[0] == '\0', "", name, &trouble, why, why_bytes);
}
