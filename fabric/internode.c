/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of the transport between nodes: libfabric where it has a fabric to offer; where it has
 * nothing better than TCP, twill's tcp, which is faster than TCP through libfabric. All ranks must
 * choose alike. */
#include "fabric/transports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PROVIDER_NAME_BYTES 32

/* Apply TWILL_PROVIDER, if set: "tcp" is twill's, any other value is a libfabric provider. */
static bool provider_is_set(struct twill_transport_params *params, char *why, size_t why_bytes)
{
    const char *asked = params->provider;
    if (asked == NULL || asked[0] == '\0')
        return false;
    params->own_tcp = strcasecmp(asked, "tcp") == 0;
    snprintf(why, why_bytes, "%s, by TWILL_PROVIDER",
             params->own_tcp ? "twill's own tcp" : "libfabric");
    return true;
}

/* Return whether this rank asks libfabric. That takes 0.1 s of a core and all ranks of a node would
 * get one answer, so only the first asks, unless interfaces or domains are named. */
static bool queries_provider(const struct twill_transport_params *params, uint32_t rank)
{
    bool named = (params->interface != NULL && params->interface[0] != '\0') ||
                 (params->domain != NULL && params->domain[0] != '\0');
    return named || params->world->local[rank] == 0;
}

/* Ask libfabric for a provider better than TCP. `name` is empty if there is none; `error` is then
 * set if libfabric could not be used. That is a warning only if the user named the library. */
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
        snprintf(why, why_bytes, "twill's own tcp: %s", trouble->message);
    else if (own)
        snprintf(why, why_bytes, "twill's own tcp: libfabric has nothing better here%s", who);
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
    if (provider_is_set(params, why, why_bytes))
        return TWILL_OK;
    char *all = calloc(size, PROVIDER_NAME_BYTES);
    if (all == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory for the names of %zu providers",
                          size);
    bool queries = queries_provider(params, rank);
    if (!queries)
        snprintf(mine, sizeof(mine), "(not asked)");
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
    if (provider_is_set(params, why, why_bytes))
        return;
    struct twill_error trouble = {0};
    query_provider(params, name, &trouble);
    conclude_provider(params, name[0] == '\0', "", name, &trouble, why, why_bytes);
}
