/* SPDX-License-Identifier: Apache-2.0 */
/* A machine as the price sees it: LogGP per class of link, what ranks of a node pay to share
 * memory, and how fast one rank copies and folds. Integers: picoseconds, and picoseconds per KiB.
 * Plain data, every field by name, so that a file can say it and all ranks can compare it. */
#ifndef TWILL_MACHINE_MODEL_H
#define TWILL_MACHINE_MODEL_H

#include "algorithms/world/world.h"

/* By the smallest unit that holds both ranks. */
enum twill_link_class {
    TWILL_LINK_TILE,
    TWILL_LINK_L3,
    TWILL_LINK_NUMA,
    TWILL_LINK_PACKAGE,
    TWILL_LINK_NODE,
    TWILL_LINK_NETWORK, /* other nodes, of the same group */
    TWILL_LINK_GROUP,   /* nodes of other groups */
    TWILL_LINK_COUNT
};
const char *twill_link_class_name(enum twill_link_class link);
enum twill_link_class twill_link_between(const struct twill_world *world, uint32_t a, uint32_t b);
/* The level whose units a link inside a node leads from one to another of: the highest known below
 * it. TWILL_LEVEL_COUNT: none is. */
unsigned twill_link_leaves(const struct twill_world *world, enum twill_link_class link);

struct twill_link_cost {
    uint64_t overhead; /* of a message, for the core of each side */
    uint64_t latency;  /* of a message, from the end of one overhead to the other's begin */
    uint64_t gap;      /* of a message, per KiB */
    uint64_t signal;   /* until a flag that was raised is seen; on a node */
    uint64_t shared;   /* to read a peer's SHARED, per KiB */
    uint64_t mapped;   /* to read or write a peer's SRC or DST, per KiB */
    uint64_t fetched;  /* to have the system read a peer's SRC or DST, per KiB */
    uint64_t port; /* what a unit's ranks read and write of others', together and one way, per KiB;
                      on a node. 0: no limit but the cores' */
};

struct twill_machine_model {
    char name[24];
    struct twill_link_cost link[TWILL_LINK_COUNT];
    uint64_t start;     /* of a call */
    uint64_t addresses; /* to ask the node where all buffers are */
    uint64_t fetch;     /* to have the system read a peer's memory, beside the bytes */
    uint64_t step;      /* to decode one step */
    uint64_t raise;     /* to raise a flag */
    uint64_t poll;      /* to look at a flag that is up */
    uint64_t copy;      /* of private memory, per KiB */
    uint64_t bounce;    /* into SHARED of this rank, per KiB */
    uint64_t moves;     /* 1: messages between nodes are moved by the cores, as with TCP */
    uint64_t interface; /* what a node's network interface takes per KiB, all its ranks together */
    uint64_t reduce[TWILL_TYPE_COUNT]; /* per KiB of an operand that is folded into another */
    /* How the executor cuts. Staged on one node: bytes of a slice at most, in all and for each rank
     * (0: no matter how many); across the network: bytes; slices under way at once. */
    uint64_t segment, segment_rank, segment_net, window;
};

/* The models there are: "auto" first. NULL past the end. */
const struct twill_machine_model *twill_machine_model_at(size_t index);
const struct twill_machine_model *twill_machine_model_find(const char *name);
/* Their names, "auto, theta", in text. */
const char *twill_machine_model_names(char *text, size_t bytes);

/* The fields as "link.network.latency": what field `index` is called (false past the end), and
 * where it is. */
bool twill_machine_model_field(struct twill_machine_model *model, size_t index, char name[40],
                               uint64_t **value);

#endif
