/* SPDX-License-Identifier: Apache-2.0 */
/* Simulate a collective on networks of thousands of nodes with SimGrid. */
#ifndef TWILL_SIMULATED_NETWORK_H
#define TWILL_SIMULATED_NETWORK_H

#include "algorithms/algorithms.h"
#include "algorithms/select/machine_model.h"

/* A network as a platform of SimGrid, an entry of a constant table. Its nodes are divided into
 * units of unit_nodes nodes, which are the groups of a dragonfly or the leaf switches of a fat
 * tree. */
struct simulated_network {
    const char *name, *help;
    uint32_t unit_nodes;     /* 0 if all nodes are in one unit */
    unsigned oversubscribed; /* bandwidth of a leaf switch down / up, or 0 if no fat tree */
};
/* Return the network of that index in the list of all networks, or NULL past its end. */
const struct simulated_network *network_at(size_t index);

/* Return the seconds of a message's latency that software takes and not the links. */
double network_software_latency(const struct twill_machine_model *model);
/* Write SimGrid's platform file to `path`, with nodes "n0", "n1" ... and links by the model.
 * Returns false, without a message, if it cannot be written. */
bool network_write(const struct simulated_network *network, const struct twill_machine_model *model,
                   uint32_t nodes, const char *path);

/* A call of a collective to simulate. Each lane of a rank is an actor of SimGrid that runs its
 * steps. The machine model says what they take on a core, SimGrid what a message takes. */
struct simulated_call {
    const struct twill_algorithm *algorithm;
    const struct twill_world *world;
    struct twill_shape shape;
    const struct twill_machine_model *model;
    size_t bytes;    /* of the message, whose elements are f32 */
    uint64_t copies; /* ps per KiB for a further copy of a message at each end, or 0 for none */
    double detours;  /* how often a second something else runs on a core, or 0 */
    double detour;   /* seconds that it runs each time */
    uint64_t seed;   /* for the random times of the detours */
    bool lines; /* access inside a node takes what cache lines of a KNL take, not the model's */
};

/* Run the call on the loaded platform. Returns its seconds, or below 0 with the error set. */
double network_run(const struct simulated_call *call, struct twill_error *error);

#endif
