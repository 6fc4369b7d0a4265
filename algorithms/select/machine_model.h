/* SPDX-License-Identifier: Apache-2.0 */
/* The machine model of the price. It has LogGP parameters per class of link, the costs of shared
 * memory, and the speed at which a rank copies and reduces. Numbers are integers, in picoseconds or
 * picoseconds per KiB. Fields have names, so that a file can set and ranks can compare them. */
#ifndef TWILL_MACHINE_MODEL_H
#define TWILL_MACHINE_MODEL_H

#include "algorithms/world/world.h"
#include "lib/base/thread_rates.h"

/* The class of a link between two ranks, named after the smallest unit that holds both. */
enum twill_link_class {
    TWILL_LINK_TILE,
    TWILL_LINK_L3,
    TWILL_LINK_NUMA,
    TWILL_LINK_PACKAGE,
    TWILL_LINK_NODE,
    TWILL_LINK_NETWORK, /* between nodes of the same group */
    TWILL_LINK_GROUP,   /* between nodes of different groups */
    TWILL_LINK_COUNT
};
/* Return a name such as "package" or "network", or "?" if there is no such class. */
const char *twill_link_class_name(enum twill_link_class link);
/* Return the class of the link between two different ranks of a world. */
enum twill_link_class twill_link_between(const struct twill_world *world, uint32_t a, uint32_t b);
/* Return the level whose units a link of this class inside a node connects. A link that is named
 * after a unit connects parts of it, so this is the largest known level that is smaller. Returns
 * TWILL_LEVEL_COUNT if none is known or the link leaves the node. */
unsigned twill_link_leaves(const struct twill_world *world, enum twill_link_class link);

/* The costs of one class of link, part of a machine model. */
struct twill_link_cost {
    /* A message, in picoseconds and in picoseconds per KiB. */
    uint64_t overhead; /* of the core, on each side */
    uint64_t latency;  /* between the overhead of the sender and that of the receiver */
    uint64_t gap;      /* per KiB */
    /* Shared memory, on a node only, per KiB unless said otherwise. */
    uint64_t signal;  /* picoseconds from raising a flag until the peer sees it */
    uint64_t shared;  /* reading SHARED of a peer */
    uint64_t mapped;  /* reading or writing SRC or DST of a peer */
    uint64_t fetched; /* reading SRC or DST of a peer by a system call */
    /* One way between a unit and others, for all its ranks together, or 0 if unlimited. For a group
     * this is what each of its nodes adds to its links, which are at least one of `gap`. */
    uint64_t port;
};

#define TWILL_THREAD_COSTS 9 /* 1, 2, 4 ... 256 threads of a rank */

/* The costs of work on memory that a number of threads of a rank share. Part of a machine model. */
struct twill_thread_cost {
    uint64_t fork; /* picoseconds to give each thread its part and to wait for all; 0 for one */
    /* picoseconds per KiB copied, and per KiB of an operand that is reduced into another; 0 if it
     * is not known for this number of threads */
    uint64_t copy, reduce;
};

/* A machine model, the figures from which the time of a schedule is predicted. It is constant while
 * it is in use. Built-in models are static, others are copies that their owner has changed. */
struct twill_machine_model {
    char name[24];
    struct twill_link_cost link[TWILL_LINK_COUNT];
    /* Picoseconds. */
    uint64_t start;     /* a call */
    uint64_t addresses; /* exchanging the addresses of all buffers of a node */
    uint64_t fetch;     /* a system call that reads memory of a peer, without the bytes */
    uint64_t step;      /* decoding a step */
    uint64_t raise;     /* raising a flag */
    uint64_t poll;      /* reading a flag that is up */
    uint64_t turn;      /* a switch between ranks that share a core */
    /* Picoseconds per KiB. */
    uint64_t copy;      /* private memory */
    uint64_t bounce;    /* into SHARED of this rank */
    uint64_t convert;   /* f32 to a float of 8 or 16 bits and back, per KiB of f32 */
    uint64_t interface; /* the network interface of a node, for all its ranks together */
    uint64_t reduce[TWILL_TYPE_COUNT]; /* of an operand that is reduced into another */
    /* Data that pass between the cores of a unit through memory of the library (SHARED and slots of
     * messages) take this much longer, in 256ths, with every doubling of its ranks above 2. */
    uint64_t contention;
    uint64_t moves; /* 1 if the cores move messages between nodes, as with TCP, else 0 */
    /* The segments of the executor, in bytes. Through SHARED on one node they have at most
     * `segment` in all and `segment_rank` per rank (0 for no limit), across the network
     * `segment_net`. `window` segments are in flight. */
    uint64_t segment, segment_rank, segment_net, window;
    uint64_t crowd;   /* ranks that share each core of a node, 0 or 1 if every rank has its own */
    uint64_t threads; /* of each rank, 0 or 1 if it has no other than its own */
    /* Element i is of 2^i threads. Only ratios to one thread count. */
    struct twill_thread_cost thread[TWILL_THREAD_COSTS];
    struct twill_thread_rates measured; /* replaces them if it has more than one step */
};

/* Return the picoseconds that `bytes` take at `rate` picoseconds per KiB. */
static inline uint64_t twill_rate_time(uint64_t rate, uint64_t bytes)
{
    return rate * (bytes >> 10) + (rate * (bytes & 1023) >> 10);
}

/* Return the most bytes of a segment of a message of `shards` shards that some of the `ranks` ranks
 * of a node copy into SHARED while others copy earlier segments out. Shorter segments overlap more,
 * but each costs a signal. Returns at least 8 KiB for each shard, but at most `most`. */
size_t twill_overlap_segment(const struct twill_machine_model *model, uint32_t ranks,
                             uint32_t shards, size_t bytes, size_t most);

/* Return the built-in model at this index, "auto" first, or NULL past the end. */
const struct twill_machine_model *twill_machine_model_at(size_t index);
/* Return the built-in model with this name, or NULL if there is none. */
const struct twill_machine_model *twill_machine_model_find(const char *name);
/* Print the names of the built-in models to `text`, as in "auto, theta". Returns text. */
const char *twill_machine_model_names(char *text, size_t bytes);

/* Use the table by which the executor decides how many threads share a step, and set the costs of
 * threads from it, those of data beyond the caches. With fewer than two steps nothing changes. */
void twill_machine_model_measure(struct twill_machine_model *model,
                                 const struct twill_thread_rates *rates);

/* Get the name of the field at this index, such as "link.network.latency", and in *value its
 * address in the model. Returns false past the last field, and then sets nothing. */
bool twill_machine_model_field(struct twill_machine_model *model, size_t index, char name[40],
                               uint64_t **value);

#endif
