/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated networks, and the ranks on them. */
#ifndef TWILL_SIMULATED_NETWORK_H
#define TWILL_SIMULATED_NETWORK_H

#include "algorithms/algorithms.h"
#include "algorithms/select/machine_model.h"

/* The networks that simulate-network knows, as platforms of SimGrid. */

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

/* Ranks as actors of SimGrid, which run schedules: what a core does takes the time of the machine
 * model, what a message takes SimGrid finds out. */

/* One collective to simulate. */
struct simulated_call {
    const struct twill_algorithm *algorithm;
    const struct twill_world *world;
    struct twill_shape shape;
    const struct twill_machine_model *model;
    size_t bytes;    /* of f32 */
    uint64_t copies; /* picoseconds per KiB for which each end copies a message besides; 0: it does
                        not */
    double detours;  /* a second in which something else runs on a core; 0: none */
    double detour;   /* seconds that it takes */
    uint64_t seed;   /* of when */
    bool lines;      /* inside a node, what a KNL takes for cache lines in place of the model */
};

/* Run the call on the platform that is loaded. Returns seconds until the last rank ends, or below 0
 * with the error. */
double network_run(const struct simulated_call *call, struct twill_error *error);

#endif
