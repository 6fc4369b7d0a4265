/* SPDX-License-Identifier: Apache-2.0 */
/* The choice of the transport between nodes. For each transport, the rank with the lowest priority
 * counts, so that the choice serves all ranks. The highest of these wins, for all ranks. */
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/transports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Return whether this rank asks its transports for their priority, which may take 0.1 s of a core.
 * Only the first rank of a node does, unless the user names interfaces or a domain. */
static bool asks_transports(const struct twill_transport_params *params, uint32_t rank)
{
    return (params->interface != NULL && params->interface[0] != '\0') ||
           twill_transport_setting(params, "TWILL_TUNE=domain") != NULL ||
           params->world->local[rank] == 0;
}

/* Set the priority and the reason why[t] of each transport that is for use between nodes. */
static void ask_transports(const struct twill_transport_params *params,
                           struct twill_internode_offers *offers, char (*why)[TWILL_OFFER_BYTES])
{
    const struct twill_transport_ops *ops;
    for (size_t t = 0; (ops = twill_transport_at(t)) != NULL; t++)
        if (ops->priority != NULL)
            offers->priority[t] = ops->priority(params, why[t], TWILL_OFFER_BYTES);
}

/* Return the registry number of the transport with the highest priority, apart from `except`, or
 * SIZE_MAX if none can carry messages. The first of several equal ones wins. */
static size_t best_offer(const struct twill_internode_offers *offers, size_t except)
{
    size_t best = SIZE_MAX;
    for (size_t t = 0; t < TWILL_TRANSPORTS_MOST; t++)
        if (t != except && offers->priority[t] > 0 &&
            (best == SIZE_MAX || offers->priority[t] > offers->priority[best]))
            best = t;
    return best;
}

/* Set params->internode to transport number `chosen`, or NULL for SIZE_MAX, and write the reason
 * for the choice to `why`. offer[t] is what transport t says about itself on this rank, or "". If
 * `other_rank` is set, the reason is that rank `worst_rank` has no better transport. */
static void conclude(struct twill_transport_params *params, size_t chosen,
                     char (*offer)[TWILL_OFFER_BYTES], uint32_t worst_rank, bool other_rank,
                     char *why, size_t why_bytes)
{
    const char *other = "", *chosen_text = "";
    if (chosen != SIZE_MAX) /* a rank that did not ask has no reason */
        chosen_text = offer[chosen][0] != '\0' ? offer[chosen] : twill_transport_at(chosen)->name;
    for (size_t t = 0; twill_transport_at(t) != NULL && other[0] == '\0'; t++)
        if (t != chosen)
            other = offer[t];
    params->internode = chosen != SIZE_MAX ? twill_transport_at(chosen) : NULL;
    if (chosen == SIZE_MAX)
        snprintf(why, why_bytes, "none: %s", other);
    else if (other_rank)
        snprintf(why, why_bytes, "%s: all ranks have it (rank %u has nothing better)", chosen_text,
                 (unsigned)worst_rank);
    else
        snprintf(why, why_bytes, "%s%s%s", chosen_text, other[0] != '\0' ? ": " : "", other);
}

twill_status twill_internode_offer(const struct twill_transport_params *params,
                                   struct twill_internode_choice *choice,
                                   struct twill_oob_batch *batch, struct twill_error *error)
{
    size_t size = (size_t)params->oob->size;
    *choice = (struct twill_internode_choice){.all = calloc(size, sizeof(*choice->all))};
    twill_oob_batch_add(batch, &choice->own, choice->all, sizeof(choice->own));
    if (choice->all == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory for what %zu ranks offer", size);
    if (asks_transports(params, (uint32_t)params->oob->rank))
        ask_transports(params, &choice->own, choice->text);
    else
        memset(&choice->own, 0xff, sizeof(choice->own)); /* no objection */
    return TWILL_OK;
}

void twill_internode_conclude(struct twill_transport_params *params,
                              struct twill_internode_choice *choice, char *why, size_t why_bytes)
{
    uint32_t rank = (uint32_t)params->oob->rank, worst_rank = 0;
    const struct twill_internode_offers *all = choice->all;
    struct twill_internode_offers least = all[0];
    size_t wanted = best_offer(&choice->own, SIZE_MAX);
    for (uint32_t r = 0; r < (uint32_t)params->oob->size; r++)
        for (size_t t = 0; t < TWILL_TRANSPORTS_MOST; t++) {
            if (all[r].priority[t] >= least.priority[t])
                continue;
            least.priority[t] = all[r].priority[t];
            worst_rank = t == wanted ? r : worst_rank;
        }
    size_t chosen = best_offer(&least, SIZE_MAX);
    conclude(params, chosen, choice->text, worst_rank,
             chosen != wanted && asks_transports(params, rank), why, why_bytes);
}

void twill_internode_guess(struct twill_transport_params *params, char *why, size_t why_bytes)
{
    char offer[TWILL_TRANSPORTS_MOST][TWILL_OFFER_BYTES] = {{'\0'}};
    struct twill_internode_offers mine = {{0}};
    ask_transports(params, &mine, offer);
    conclude(params, best_offer(&mine, SIZE_MAX), offer, 0, false, why, why_bytes);
}

/* Return whether a transport can carry messages between two ranks. Without ops->reaches(), it can
 * between any two different ranks. */
static bool reaches(const struct twill_transport_ops *ops,
                    const struct twill_transport_params *params, uint32_t from, uint32_t to)
{
    return ops->reaches != NULL ? ops->reaches(params, from, to) : from != to;
}

size_t twill_transport_between(const struct twill_transport_params *params, uint32_t from,
                               uint32_t to)
{
    const struct twill_transport_ops *ops;
    size_t t = 0;
    while ((ops = twill_transport_at(t)) != NULL &&
           ((ops->priority != NULL && ops != params->internode) || !reaches(ops, params, from, to)))
        t++;
    return t;
}
