/* SPDX-License-Identifier: Apache-2.0 */
/* Interfaces as rails, for transports that run over IP. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/host/interfaces.h"
#include "fabric/rails/rails.h"
#include "numa/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Set *rail to an address of an interface, which becomes its name, with network and speed, and NUMA
 * node and distance if these are known. Sets on_demand unless it is a real device of known speed
 * and not link-local. */
static void rail_from_link(struct twill_rail *rail, const struct twill_link *link,
                           const struct twill_topology *topology)
{
    struct twill_nic nic;
    memset(rail, 0, sizeof(*rail));
    memcpy(rail->name, link->address, sizeof(rail->name));
    rail->network = link->network;
    rail->mbits = link->mbits;
    rail->on_demand = link->kind != TWILL_LINK_REAL || link->mbits == 0 || link->link_local;
    int used = snprintf(rail->label, sizeof(rail->label), "%s %s", link->name, link->address);
    if (link->mbits > 0)
        used += snprintf(rail->label + used, sizeof(rail->label) - (size_t)used, ", %u Mbit/s",
                         link->mbits);
    if (topology == NULL || !twill_topology_nic_named(topology, link->name, &nic))
        return;
    rail->distance = nic.distance;
    if (nic.numa >= 0 && (size_t)used < sizeof(rail->label))
        snprintf(rail->label + used, sizeof(rail->label) - (size_t)used, ", NUMA node %d",
                 nic.numa);
}

/* Set *main to the entry of links[] with the address that other ranks connect to, which is
 * params->oob->address, or NULL if there is none. Set *rail to the default rail, which has that
 * address. If *main is NULL, its speed and network are unknown, and the caller adds no other
 * rail. */
static void fill_main(struct twill_rail *rail, const struct twill_link *links, size_t count,
                      const struct twill_transport_params *params, const struct twill_link **main)
{
    const char *reached = params->oob->address;
    *main = NULL;
    for (size_t i = 0; i < count && *main == NULL; i++)
        if (strcmp(links[i].address, reached) == 0)
            *main = &links[i];
    if (*main != NULL)
        rail_from_link(rail, *main, params->topology);
    else
        *rail = (struct twill_rail){.on_demand = true};
    snprintf(rail->name, sizeof(rail->name), "%s", reached);
    rail->is_default = true;
}

/* Return the first address of the interface of links[first], of family IPv6 if `six`, else IPv4,
 * that is not link-local. Returns NULL if there is none, or an earlier entry has that interface. */
static const struct twill_link *link_best(const struct twill_link *links, size_t count,
                                          size_t first, bool six)
{
    const struct twill_link *best = NULL;
    for (size_t i = 0; i < count; i++) {
        if (strcmp(links[i].name, links[first].name) != 0)
            continue;
        if (i < first)
            return NULL; /* handled before */
        if (links[i].six == six && !links[i].link_local && best == NULL)
            best = &links[i];
    }
    return best;
}

/* Return whether one of the rails is in this network. The kernel would use only that. */
static bool shares_network(const struct twill_rail *rails, size_t count, uint64_t network)
{
    for (size_t i = 0; i < count; i++)
        if (rails[i].network == network)
            return true;
    return false;
}

/* Insert a rail into rails[0 .. *count-1]. The first entry stays first. The others are sorted,
 * those not on_demand before the rest, then nearer ones, then faster ones. If there are `most`
 * rails already, the last one, perhaps the new one, is dropped. */
static void insert_rail(struct twill_rail *rails, size_t *count, size_t most,
                        const struct twill_rail *rail)
{
    size_t at = *count;
    while (at > 1 &&
           (rails[at - 1].on_demand > rail->on_demand ||
            (rails[at - 1].on_demand == rail->on_demand &&
             (rails[at - 1].distance > rail->distance ||
              (rails[at - 1].distance == rail->distance && rails[at - 1].mbits < rail->mbits)))))
        at--;
    if (*count == most && at == most)
        return;
    if (*count < most)
        ++*count;
    memmove(&rails[at + 1], &rails[at], (*count - 1 - at) * sizeof(*rails));
    rails[at] = *rail;
}

/* Set *rail to the interface or address `name`, or return TWILL_ERR_CONFIG if it is none here. */
static twill_status fill_named(struct twill_rail *rail, const struct twill_link *links,
                               size_t count, const struct twill_transport_params *params,
                               const char *name, struct twill_error *error)
{
    char address[TWILL_ADDRESS_TEXT], interface[32], why[160];
    TWILL_TRY(error, twill_interface_choose(address, interface, name, params->oob->address, why,
                                            sizeof(why), error));
    for (size_t i = 0; i < count; i++)
        if (strcmp(links[i].address, address) == 0)
            rail_from_link(rail, &links[i], params->topology);
    return TWILL_OK;
}

twill_status twill_links_rails(const struct twill_transport_params *params, const char *name,
                               struct twill_rail *rails, size_t most, size_t *count,
                               struct twill_error *error)
{
    struct twill_link *links;
    const struct twill_link *main;
    twill_status status = TWILL_OK;
    size_t n;
    TWILL_TRY(error, twill_links_read(&links, &n, error));
    *count = 1;
    if (name != NULL)
        status = fill_named(&rails[0], links, n, params, name, error);
    else
        fill_main(&rails[0], links, n, params, &main);
    bool alone = name != NULL || main == NULL || main->kind == TWILL_LINK_LOOPBACK ||
                 (params->interface != NULL && params->interface[0] != '\0');
    for (size_t i = 0; i < n && !alone; i++) {
        struct twill_rail rail;
        const struct twill_link *link = link_best(links, n, i, main->six);
        if (link == NULL || strcmp(link->name, main->name) == 0 ||
            link->kind == TWILL_LINK_LOOPBACK || link->kind >= TWILL_LINK_TUNNEL)
            continue;
        rail_from_link(&rail, link, params->topology);
        rail.on_demand = rail.on_demand || shares_network(rails, *count, rail.network);
        insert_rail(rails, count, most, &rail);
    }
    free(links);
    return status;
}
