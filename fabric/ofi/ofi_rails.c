/* SPDX-License-Identifier: Apache-2.0 */
/* Rails of libfabric, which are the domains of the chosen provider, or the interfaces if it is over
 * IP. Domains are sorted by distance. Ranks as near to several begin with different ones. */
#include "fabric/ofi/ofi.h"
#include "fabric/rails/rails.h"
#include "numa/topology.h"

#include <stdio.h>
#include <string.h>

/* Set a rail's speed, distance and, in its label, NUMA node, as far as the provider and `topology`
 * know them. `topology` may be NULL. */
static void locate_rail(struct twill_rail *rail, const struct fi_info *info,
                        const struct twill_topology *topology)
{
    struct twill_nic nic;
    const struct fid_nic *fid = info->nic;
    const struct fi_pci_attr *pci =
        fid != NULL && fid->bus_attr != NULL && fid->bus_attr->bus_type == FI_BUS_PCI
            ? &fid->bus_attr->attr.pci
            : NULL;
    if (fid != NULL && fid->link_attr != NULL)
        rail->mbits = (uint32_t)twill_min(fid->link_attr->speed / 1000000, UINT32_MAX);
    if (topology == NULL)
        return;
    if (twill_topology_nic_named(topology, info->domain_attr->name, &nic) ||
        (pci != NULL && twill_topology_nic_at(topology, pci->domain_id, pci->bus_id, pci->device_id,
                                              pci->function_id, &nic)))
        rail->distance = nic.distance;
    else
        return;
    size_t used = strlen(rail->label);
    snprintf(rail->label + used, sizeof(rail->label) - used, ", NUMA node %d", nic.numa);
}

/* Set *rail to the domain of an endpoint, with its speed and distance. */
static void rail_from_info(struct twill_rail *rail, const struct fi_info *info,
                           const struct twill_transport_params *params)
{
    memset(rail, 0, sizeof(*rail));
    snprintf(rail->name, sizeof(rail->name), "%s", info->domain_attr->name);
    snprintf(rail->label, sizeof(rail->label), "%.60s", info->domain_attr->name);
    locate_rail(rail, info, params->topology);
}

/* Return whether a rail has this domain's name. */
static bool domain_is_known(const struct twill_rail *rails, size_t count, const char *domain)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(rails[i].name, domain) == 0)
            return true;
    return false;
}

/* Return this rank's number among the ranks of its node, from 0. */
static uint32_t local_of(const struct twill_transport_params *params)
{
    return params->world != NULL ? params->world->local[params->oob->rank] : 0;
}

/* Set rails[0 .. *count-1] to the different domains of chosen's provider, at most `most`, in the
 * order of twill_rails_order(). Only chosen's domain gets is_default. Returns TWILL_OK, or the
 * error if libfabric lists no endpoint. */
static twill_status list_domains(const struct twill_libfabric *library,
                                 const struct fi_info *chosen,
                                 const struct twill_transport_params *params,
                                 struct twill_rail *rails, size_t most, size_t *count,
                                 struct twill_error *error)
{
    struct fi_info *list = NULL;
    TWILL_TRY(error, twill_ofi_list(library, &list, error));
    *count = 0;
    for (const struct fi_info *i = list; i != NULL && *count < most; i = i->next) {
        const char *domain = i->domain_attr->name;
        if (strcmp(i->fabric_attr->prov_name, chosen->fabric_attr->prov_name) != 0 ||
            domain_is_known(rails, *count, domain))
            continue;
        rail_from_info(&rails[(*count)++], i, params);
    }
    library->freeinfo(list);
    twill_rails_order(rails, *count, local_of(params));
    for (size_t i = 0; i < *count; i++)
        rails[i].is_default = strcmp(rails[i].name, chosen->domain_attr->name) == 0;
    return TWILL_OK;
}

twill_status twill_ofi_rails(const struct twill_transport_params *params, const char *name,
                             struct twill_rail *rails, size_t most, size_t *count,
                             struct twill_error *error)
{
    struct twill_libfabric library;
    struct fi_info *chosen = NULL;
    struct twill_transport_params own = *params;
    char why[160];
    bool listed = own.interface != NULL && strchr(own.interface, ',') != NULL;
    if (name != NULL || listed)
        own.interface = name;
    TWILL_TRY(error, twill_ofi_library_open(&library, params, error));
    TWILL_TRY(error, twill_ofi_choose(&library, &chosen, &own, why, sizeof(why), error));
    bool alone = twill_transport_setting(params, "TWILL_TUNE=domain") != NULL;
    twill_status status = TWILL_OK;
    if (twill_ofi_is_ip(chosen)) {
        status = twill_links_rails(params, name, rails, most, count, error);
    } else if (alone || name != NULL || (params->interface != NULL && params->interface[0])) {
        rail_from_info(&rails[0], chosen, params);
        if (name != NULL) /* the name may be an interface or an address */
            snprintf(rails[0].name, sizeof(rails[0].name), "%s", name);
        rails[0].is_default = name == NULL;
        *count = 1;
    } else {
        status = list_domains(&library, chosen, params, rails, most, count, error);
    }
    library.freeinfo(chosen);
    return status;
}
