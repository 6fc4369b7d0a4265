/* SPDX-License-Identifier: Apache-2.0 */
/* NICs, and how near they are to where the calling thread runs. */
#include "numa/topology_internal.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Return "openfabrics", "network", or NULL for no NIC. hwloc 3 has a set of types, hwloc 2 one. */
static const char *nic_kind(hwloc_obj_t device)
{
#if HWLOC_API_VERSION >= 0x00030000
    if (device->attr->osdev.types & HWLOC_OBJ_OSDEV_OPENFABRICS)
        return "openfabrics";
    if (device->attr->osdev.types & HWLOC_OBJ_OSDEV_NETWORK)
        return "network";
#else
    if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
        return "openfabrics";
    if (device->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK)
        return "network";
#endif
    return NULL;
}

/* Return the distance of `near`, where a NIC is attached, from the calling thread. It is 0 if the
 * thread may run there, 1 if it may run in that package, else 2. It is 0 if out of memory. */
static unsigned distance_of(const struct twill_topology *topology, hwloc_obj_t near)
{
    unsigned distance = 2;
    hwloc_bitmap_t here = twill_topology_here(topology);
    hwloc_obj_t package = near;
    while (package != NULL && package->type != HWLOC_OBJ_PACKAGE)
        package = package->parent;
    if (here == NULL || hwloc_bitmap_intersects(near->cpuset, here))
        distance = 0;
    else if (package != NULL && hwloc_bitmap_intersects(package->cpuset, here))
        distance = 1;
    hwloc_bitmap_free(here);
    return distance;
}

/* Fill in *nic for a device that must be a NIC, with its name, kind and place. NUMA node and
 * package are -1 if they are unknown. */
static void describe_nic(const struct twill_topology *topology, hwloc_obj_t device,
                         struct twill_nic *nic)
{
    memset(nic, 0, sizeof(*nic));
    snprintf(nic->name, sizeof(nic->name), "%s", device->name != NULL ? device->name : "?");
    snprintf(nic->kind, sizeof(nic->kind), "%s", nic_kind(device));
    nic->numa = nic->package = -1;
    hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(topology->hwloc, device);
    if (near == NULL || hwloc_bitmap_iszero(near->cpuset))
        return;
    nic->numa = twill_numa_around(topology, near->cpuset);
    for (hwloc_obj_t o = near; o != NULL && nic->package < 0; o = o->parent)
        if (o->type == HWLOC_OBJ_PACKAGE)
            nic->package = (int)o->logical_index;
    nic->distance = distance_of(topology, near);
}

/* Describe the first NIC that is_it(), which gets `what` as its second argument, accepts. Returns
 * false if there is none. */
static bool find_nic(const struct twill_topology *topology, bool (*is_it)(hwloc_obj_t, void *),
                     void *what, struct twill_nic *nic)
{
    hwloc_obj_t device = NULL;
    while ((device = hwloc_get_next_osdev(topology->hwloc, device)) != NULL) {
        if (nic_kind(device) == NULL || !is_it(device, what))
            continue;
        describe_nic(topology, device, nic);
        return true;
    }
    return false;
}

/* Count *index down and return whether it was 0. */
static bool is_numbered(hwloc_obj_t nic, void *index)
{
    (void)nic;
    return (*(size_t *)index)-- == 0;
}

bool twill_topology_nic(const struct twill_topology *topology, size_t index, struct twill_nic *nic)
{
    return find_nic(topology, is_numbered, &index, nic);
}

/* Return whether a NIC has a name. An argument of find_nic(), like is_numbered() and is_on(). */
static bool is_named(hwloc_obj_t nic, void *name)
{
    return nic->name != NULL && strcmp(nic->name, name) == 0;
}

bool twill_topology_nic_named(const struct twill_topology *topology, const char *name,
                              struct twill_nic *nic)
{
    return find_nic(topology, is_named, (void *)(uintptr_t)name, nic);
}

/* Return whether the PCI address `pci`, a text such as "0000:00:02.0", is part of a NIC's path in
 * sysfs, as in /sys/devices/pci0000:00/0000:00:02.0/virtio2. PCI devices are excluded from this
 * machine's topology (numa/topology.c). */
static bool is_on(hwloc_obj_t nic, void *pci)
{
    static const char *const classes[] = {"net", "infiniband"};
    char path[256], where[PATH_MAX];
    bool found = false;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(classes) && nic->name != NULL && !found; i++) {
        snprintf(path, sizeof(path), "/sys/class/%s/%.64s/device", classes[i], nic->name);
        found = realpath(path, where) != NULL && strstr(where, pci) != NULL;
    }
    return found;
}

/* Return whether a NIC is the PCI device `pci`, or below it in the tree. */
static bool is_below(hwloc_obj_t nic, void *pci)
{
    while (nic != NULL && nic != pci)
        nic = nic->parent;
    return nic != NULL;
}

bool twill_topology_nic_at(const struct twill_topology *topology, unsigned domain, unsigned bus,
                           unsigned device, unsigned function, struct twill_nic *nic)
{
    if (topology->machine.is_this_machine) {
        char text[32];
        snprintf(text, sizeof(text), "%04x:%02x:%02x.%x", domain, bus, device, function);
        return find_nic(topology, is_on, text, nic);
    }
    hwloc_obj_t pci = hwloc_get_pcidev_by_busid(topology->hwloc, domain, bus, device, function);
    return pci != NULL && find_nic(topology, is_below, pci, nic);
}
