/* SPDX-License-Identifier: Apache-2.0 */
/* Write networks as platforms of SimGrid, which are XML for simgrid_load_platform().
 * Each node has a link up and a link down with the rate of its interface. A link and the router
 * behind it take 0.1 us. The rest of the model's latency is software, which network_ranks.c adds.
 * The networks differ in what connects these links:
 * - "flat" has nothing more, so that nodes disturb each other at their interfaces only.
 * - "aries" has groups of 384 nodes like Theta. Adaptive routing spreads packets over all cables.
 *   Inside a group 96 routers have more links than their nodes can fill. All cables between two
 *   groups count as one link, of 72 x 4.7 GB/s (9,600 optical ports / 2 / 66 pairs of groups, with
 *   lanes of 12.5 Gbit/s; Alverson, Froese, Kaplan and Roweth, "Cray XC Series Network", 2012). So
 *   this is the best that adaptive routing can do. Two further routers and a cable add 0.3 us.
 * - "minimal" has the same routers with SimGrid's minimal routing. There is one link of 5.25 GB/s
 *   between routers of a chassis and three between chassis. All cables of two groups end at one
 *   router each, where Aries has them at many. This is the worst that routing can do.
 * - The fat trees have leaf switches of 24 nodes, with 24, 12 or 6 links upwards. A message takes
 *   the link that its destination's number gives (d-mod-k). */
#include "bench/studies/network/simulated_network.h"

#include <stdio.h>

#define GROUP_NODES 384u
#define LEAF_NODES  24u
#define HOP         UINT64_C(100000) /* picoseconds */

static const struct simulated_network networks[] = {
    {"flat", "interfaces only", 0, 0},
    {"aries", "dragonfly, adaptive routing at its best", GROUP_NODES, 0},
    {"minimal", "dragonfly, minimal routing", GROUP_NODES, 0},
    {"fattree", "fat tree, not oversubscribed", LEAF_NODES, 1},
    {"fattree2", "fat tree, oversubscribed 2:1", LEAF_NODES, 2},
    {"fattree4", "fat tree, oversubscribed 4:1", LEAF_NODES, 4},
};

const struct simulated_network *network_at(size_t index)
{
    return index < TWILL_ARRAY_LENGTH(networks) ? &networks[index] : NULL;
}

/* Return the bytes per second of a rate in picoseconds per KiB. */
static double rate_of(uint64_t picoseconds_per_kib)
{
    return 1024 * 1e12 / (double)picoseconds_per_kib;
}

static double seconds_of(uint64_t picoseconds)
{
    return (double)picoseconds * 1e-12;
}

double network_software_latency(const struct twill_machine_model *model)
{
    uint64_t latency = model->link[TWILL_LINK_NETWORK].latency;
    return seconds_of(latency > 2 * HOP ? latency - 2 * HOP : 0);
}

/* Write cluster `number` of the platform, with the nodes `first` to `last` and the rates of the
 * model. `topology` is "" or further XML attributes of it. */
static void write_cluster(FILE *out, const struct twill_machine_model *model, unsigned number,
                          uint32_t first, uint32_t last, const char *topology)
{
    const struct twill_link_cost *node = &model->link[TWILL_LINK_NODE];
    fprintf(out,
            "<cluster id=\"c%u\" prefix=\"n\" suffix=\"\" radical=\"%u-%u\" speed=\"1Gf\" "
            "bw=\"%.0fBps\" lat=\"%.12fs\" loopback_bw=\"%.0fBps\" loopback_lat=\"%.12fs\" "
            "router_id=\"r%u\"%s/>\n",
            number, first, last, rate_of(model->interface), seconds_of(HOP), rate_of(node->gap),
            seconds_of(node->latency), number, topology);
}

/* Write groups of nodes, with a bundle of cables between each two groups. */
static void write_groups(FILE *out, const struct twill_machine_model *model, uint32_t nodes)
{
    uint32_t groups = (nodes + GROUP_NODES - 1) / GROUP_NODES;
    for (uint32_t g = 0; g < groups; g++)
        write_cluster(out, model, g, g * GROUP_NODES,
                      (uint32_t)twill_min(nodes, (g + 1) * GROUP_NODES) - 1, "");
    for (uint32_t a = 0; a < groups; a++)
        for (uint32_t b = a + 1; b < groups; b++)
            fprintf(out,
                    "<link id=\"o%u-%u\" bandwidth=\"%.0fBps\" latency=\"0.3us\" "
                    "sharing_policy=\"SPLITDUPLEX\"/>\n",
                    a, b, 72 * 4.7e9);
    for (uint32_t a = 0; a < groups; a++)
        for (uint32_t b = a + 1; b < groups; b++)
            fprintf(out,
                    "<zoneRoute src=\"c%u\" dst=\"c%u\" gw_src=\"r%u\" gw_dst=\"r%u\">"
                    "<link_ctn id=\"o%u-%u\" direction=\"UP\"/></zoneRoute>\n",
                    a, b, a, b, a, b);
}

/* Write a fat tree or a dragonfly of SimGrid, with as many whole units as `nodes` need. All its
 * links have one rate and latency. */
static void write_topology(FILE *out, const struct simulated_network *network,
                           const struct twill_machine_model *model, uint32_t nodes)
{
    char topology[160];
    struct twill_machine_model links = *model;
    uint32_t units = (nodes + network->unit_nodes - 1) / network->unit_nodes;
    if (network->oversubscribed > 0) {
        snprintf(topology, sizeof(topology),
                 " topology=\"FAT_TREE\" topo_parameters=\"2;%u,%u;1,%u;1,1\"", LEAF_NODES, units,
                 LEAF_NODES / network->oversubscribed);
        write_cluster(out, &links, 0, 0, units * LEAF_NODES - 1, topology);
        return;
    }
    /* The cables of 4.7 GB/s count as links of 5.25 GB/s. */
    snprintf(topology, sizeof(topology),
             " topology=\"DRAGONFLY\" topo_parameters=\"%u,64;6,3;16,1;4\"", units);
    links.interface = (uint64_t)(1024 * 1e12 / 5.25e9);
    write_cluster(out, &links, 0, 0, units * GROUP_NODES - 1, topology);
}

bool network_write(const struct simulated_network *network, const struct twill_machine_model *model,
                   uint32_t nodes, const char *path)
{
    FILE *out = fopen(path, "w");
    if (out == NULL)
        return false;
    fprintf(out, "<?xml version='1.0'?>\n"
                 "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                 "<platform version=\"4.1\">\n<zone id=\"world\" routing=\"Full\">\n");
    bool built_in = network->oversubscribed > 0 || network == &networks[2];
    if (network->unit_nodes == 0)
        write_cluster(out, model, 0, 0, nodes - 1, "");
    else if (built_in)
        write_topology(out, network, model, nodes);
    else
        write_groups(out, model, nodes);
    fprintf(out, "</zone>\n</platform>\n");
    return fclose(out) == 0;
}
