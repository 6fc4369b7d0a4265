/* SPDX-License-Identifier: Apache-2.0 */
/* The networks that simulate-network knows, as platforms of SimGrid. */
#ifndef TWILL_NETWORK_PLATFORM_H
#define TWILL_NETWORK_PLATFORM_H

#include "algorithms/select/machine_model.h"

/* A network. `units` of it hold `unit_nodes` nodes each: groups of a dragonfly, leaf switches of a
 * fat tree. */
struct simulated_network {
    const char *name, *help;
    uint32_t unit_nodes; /* 0: all nodes in one unit */
    unsigned
        oversubscribed; /* bytes that leave a leaf switch have 1 / this of the links; 0: no tree */
};
/* Return a network; NULL past the end. */
const struct simulated_network *network_at(size_t index);

/* Return seconds of a message's latency that are not of links. */
double network_software_latency(const struct twill_machine_model *model);
/* Write the platform of `nodes` nodes, "n0" and so on, to a file. Their links have the latency and
 * the rates of the model. Returns false if the file cannot be written. */
bool network_write(const struct simulated_network *network, const struct twill_machine_model *model,
                   uint32_t nodes, const char *path);

#endif
