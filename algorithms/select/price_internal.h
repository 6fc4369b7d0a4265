/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a pricing. price_prepare.c chooses the unit, emits its schedules and finds what each
 * step waits for, price.c runs the steps, and price_scale.c sets the call and extrapolates from
 * smaller worlds. */
#ifndef TWILL_PRICE_INTERNAL_H
#define TWILL_PRICE_INTERNAL_H

#include "algorithms/schedule/step_table.h"
#include "algorithms/select/price.h"

#define TWILL_PRICE_MIXED UINT8_MAX /* replaces a class of link if the peers of a step differ */
#define TWILL_PRICE_NONE  (-1)      /* replaces a step or lane if there is none */
/* replaces a step to say that the lane can be tried again at its time */
#define TWILL_PRICE_LATER   (-2)
#define TWILL_PRICE_NOT_YET UINT64_MAX
#define TWILL_PRICE_GAPS    16 /* idle times of an inlet that are remembered */
#define TWILL_PRICE_SHARED  16 /* choices of a number of threads that are remembered */

/* The ranks that are run. Each is numbered by its place in the world, on its node, or from 0. */
enum twill_price_unit {
    TWILL_PRICE_WORLD,
    TWILL_PRICE_NODE,
    TWILL_PRICE_RANKS, /* three ranks, each of which is a unit */
    TWILL_PRICE_SCALED /* none, as those of smaller worlds are run instead */
};

/* Whether a step waits for its turn, after those of other lanes that are earlier, as it uses what
 * these use too. Without a core of its own every step of a lane does. */
enum twill_price_turn {
    TWILL_PRICE_NO_TURN, /* only if ranks share cores */
    TWILL_PRICE_TURN,    /* always, as a message between nodes does */
    TWILL_PRICE_AT_PORT  /* if units of a node have ports */
};

/* A step of a rank whose schedule is simulated. Times are in picoseconds, or TWILL_PRICE_NOT_YET
 * before the event. Steps are numbered over all ranks. The pricing owns it. */
struct twill_price_step {
    struct twill_step step;
    uint64_t when; /* when a SEND arrived, a flag was raised, or a RECV was posted */
    uint64_t sent; /* when the buffer of a SEND is free */
    /* The step to which it is linked, or TWILL_PRICE_NONE. A RECV is linked to its SEND and the
     * reverse, a SIGNAL or PUT_IMM to the next one of its lane. */
    int32_t match;
    int32_t waiter; /* first lane that waits for the step, or TWILL_PRICE_NONE */
    uint8_t link;   /* class of link to its peers, or TWILL_PRICE_MIXED */
    uint8_t turn;   /* enum twill_price_turn */
};

/* A core, link, port or network interface in a simulation. `free` is the time in picoseconds at
 * which it is next free, `busy` for how long it has been in use. */
struct twill_price_resource {
    uint64_t free, busy;
};

/* Resources that are numbered as the ranks. They are the core and the network link of a rank, and
 * the ports of the unit of which it is the first. The port of a node is its network interface, and
 * that of a group is the links that leave it. */
enum {
    TWILL_PRICE_CORE,
    TWILL_PRICE_LINK,
    TWILL_PRICE_OUT, /* plus the level */
    TWILL_PRICE_INTO = TWILL_PRICE_OUT + TWILL_LEVEL_COUNT,
    TWILL_PRICE_RESOURCES = TWILL_PRICE_INTO + TWILL_LEVEL_COUNT
};

/* The receiving side of the interface of a node or of the links into a group. It is in use for
 * `busy` in all. It receives until `end`, and was idle from idle[i] to idle_end[i] before
 * (picoseconds), for the last such times. */
struct twill_price_inlet {
    uint64_t busy, end, idle[TWILL_PRICE_GAPS], idle_end[TWILL_PRICE_GAPS];
    unsigned used; /* those beyond are empty */
};

/* A rank whose schedule is simulated, with the state of what it owns. The pricing owns it. */
struct twill_price_rank {
    uint32_t rank, core; /* `core` is the index of the simulated rank on whose core it runs */
    /* by level, the index of the simulated rank whose ports it uses, the first one of its unit */
    uint32_t port[TWILL_LEVEL_COUNT];
    uint32_t group_nodes; /* nodes of its group, or 0 if there are no groups */
    /* Bytes that leave its group, as a multiple of those that this rank sends out of it, in
     * 1024ths. It is 1024 if all ranks are simulated. */
    uint64_t crossing;
    int32_t flag[2][TWILL_SCHEDULE_LANES]; /* by lane, its first SIGNAL and its first PUT_IMM */
    /* The resources with the index of this rank, all 0 when a simulation begins. Its core and its
     * ports are used by the ranks whose `core` and `port` are this index, its link only by it. */
    struct twill_price_use {
        struct twill_price_resource of[TWILL_PRICE_RESOURCES];
        uint64_t in; /* when its network link can receive the next message */
        struct twill_price_inlet node, group;
    } use;
};

/* A simulated lane of a rank. Times are in picoseconds. Steps are numbered over all ranks. */
struct twill_price_lane {
    uint64_t time;        /* its clock */
    uint64_t until;       /* in an AWAIT, when the last of the flags seen was raised */
    uint32_t rank, place; /* its rank, and the index of that among the simulated ranks */
    uint32_t first, end;  /* its steps, from `first` to before `end` */
    uint32_t at;          /* the next step */
    uint32_t posted;      /* first step posted since the last WAIT */
    uint32_t seen;        /* in an AWAIT, how many of the first peers have raised their flags */
    int32_t next;         /* next lane that waits for the same step, or TWILL_PRICE_NONE */
    bool waits;           /* it has waited since it last used the core */
    bool awaited;         /* in an AWAIT, the flags are up and cost only the polling */
};

/* Facts that a pricing has of the schedules besides the steps. Constant once that is created. */
struct twill_price_facts {
    uint64_t fingerprint; /* hash of steps and facts. If it is equal, so are prices */
    uint32_t blocks;
    uint32_t copies; /* of a segment that SHARED must have room for, at least 1 */
    uint32_t ranks;  /* of the world that is priced, not of a smaller one that is simulated */
    uint32_t
        widest[TWILL_LINK_NETWORK]; /* of these, in the largest unit of a level, 0 if unknown */
    /* With TWILL_PRICE_RANKS, the number of ranks that share the port of a unit, by level. The last
     * one is for the interface of a node. Otherwise 1. */
    uint32_t share[TWILL_LEVEL_NODE + 1];
    /* Segments are as large as across the network, as through SHARED, or not used. */
    enum twill_price_segments {
        TWILL_PRICE_SEGMENTS_NET,
        TWILL_PRICE_SEGMENTS_SHARED,
        TWILL_PRICE_SEGMENTS_NONE
    } segments;
    bool grows;        /* segments are longer with several threads a rank */
    uint32_t overlaps; /* shards if segments are those of twill_overlap_segment(), else 0 */
    bool exchanges;    /* buffer addresses are exchanged by a barrier that is not in the schedule */
    bool runs_ahead;   /* ranks that only contribute may be calls ahead of the others */
    bool fetches;      /* SRC and DST of peers are read by a system call */
};

/* The call that is priced. twill_price_set_call() and twill_price_set_bytes() set it. */
struct twill_price_call {
    const struct twill_machine_model *model;
    struct twill_element_kind elements;
    uint64_t each, rest;  /* bytes of every block, and the number of blocks that have one more */
    unsigned widen;       /* size of a partial, as a multiple of the size of an element */
    uint64_t reduce_cost; /* picoseconds per KiB */
    /* The table by which the executor chooses how many threads share a step. It has one step or
     * none if ranks have one thread. The last choices, by bytes written and read, are remembered.
     */
    struct twill_thread_rates rates;
    struct twill_price_shared {
        uint64_t written, read, ratio; /* time relative to one thread, in 65536ths */
        unsigned threads;
    } shared[TWILL_PRICE_SHARED];
    size_t piece; /* twill_price_piece(), or SIZE_MAX before it is asked for */
    bool alone;   /* price as if ranks had one thread */
    bool helped;  /* since it was set to false, threads have shared a step */
    /* Time of what passes between cores of a node, by the class of the link, in 256ths. */
    uint64_t contended[TWILL_LINK_NETWORK];
    enum twill_link_class own; /* by which this rank's own SHARED is priced */
    bool takes[3]; /* by enum twill_price_turn, whether such steps wait for their turn */
    bool ports;    /* units of a node have ports that limit the memory of peers */
    uint64_t most; /* picoseconds after which a simulation may end as TWILL_PRICE_NEVER */
};

/* The basis of the price on a large world. The samples, which the pricing owns, are pricings of the
 * same algorithm on a part of the world, half of it and a quarter of it. */
struct twill_price_scale {
    struct twill_pricing *sample[3];
    /* the number of groups, of nodes, or of ranks if there is one node, in the world and each
     * sample */
    uint32_t units, of[3];
    unsigned thin;     /* samples have one in 2^thin ranks of a node */
    unsigned halvings; /* of the number of ranks, from the world to the first sample */
    uint64_t leaving;  /* bytes that leave a node, in 1024ths of the message, see find_leaving() */
    uint64_t empty[3]; /* price of no bytes in each sample, for model and elements of the call */
};

/* A pricing, made by twill_pricing_create() and freed by twill_pricing_destroy(). One thread uses
 * it at a time. As `unit` says, it simulates the schedules of all ranks, of the last node or of
 * three ranks. Or it extrapolates from the pricings of smaller worlds. */
struct twill_pricing {
    const struct twill_world *world; /* for which schedules are emitted */
    struct twill_world own;          /* the world of a sample */
    enum twill_price_unit unit;
    uint64_t
        leaving; /* bytes that leave a group, divided by its nodes, in 1024ths of the message */
    struct twill_price_scale scale; /* with TWILL_PRICE_SCALED, which simulates no steps itself */
    struct twill_price_facts facts;
    struct twill_price_call call;
    uint32_t size, steps, lanes;
    struct twill_price_rank *rank; /* [size] */
    struct twill_price_step *step; /* [steps] of all ranks, one after the other */
    struct twill_price_lane *lane; /* [lanes] */
    /* A lane that can continue, and its clock in picoseconds. */
    struct twill_price_next {
        uint64_t time;
        uint32_t lane;
    } * heap; /* [queued] lanes that use what others use as well, the earliest first */
    uint32_t queued, ready_count;
    uint32_t *ready; /* [ready_count] lanes that have waited for a step that is done, or begin */
    /* picoseconds of one segment from end to end (0 if unknown), and of each further one, and the
     * bytes of these segments */
    uint64_t one, more;
    size_t segment;
};

/* The algorithm and shape to be priced, for functions that emit schedules during one call. */
struct twill_price_query {
    const struct twill_algorithm *algorithm;
    const struct twill_shape *shape;
    struct twill_error *error;
};

/* Return the later of two times. */
static inline uint64_t twill_price_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Return the place, an index into the simulated ranks, that represents rank `peer` for the rank at
 * `place`. It is `place` itself if each rank is simulated on its own. */
static inline uint32_t twill_price_place(const struct twill_pricing *p, uint32_t place,
                                         uint32_t peer)
{
    return p->unit == TWILL_PRICE_RANKS  ? place
           : p->unit == TWILL_PRICE_NODE ? p->world->local[peer]
                                         : peer;
}

/* Return the bytes that a step moves per operand in the call that is priced. */
static inline uint64_t twill_price_step_bytes(const struct twill_pricing *p,
                                              const struct twill_step *step)
{
    uint64_t more = p->call.rest > 0
                        ? (p->call.rest * step->blocks + p->facts.blocks - 1) / p->facts.blocks
                        : 0;
    uint64_t bytes = p->call.each * step->blocks + more;
    return (step->flags & TWILL_STEP_PARTIAL) != 0 ? bytes * p->call.widen : bytes;
}

/* --- price.c ---------------------------------------------------------------------------------- */
/* Return how many threads of a rank share a step, as the executor decides with threads that spin.
 */
unsigned twill_price_threads(struct twill_pricing *p, const struct twill_step *step);
/* Return the bytes of a segment of a message of `bytes` bytes, or 0 if it has no segments. Segments
 * are longer with threads, as those of the engine (lib/engine/layout.c). */
size_t twill_price_segment(struct twill_pricing *p, size_t bytes);
/* Return the picoseconds for which the core of a rank is busy with a step, for a RECV after its
 * message has arrived. `link` is the class of link to its peers, or TWILL_PRICE_MIXED. */
uint64_t twill_price_work(struct twill_pricing *p, uint32_t rank, const struct twill_step *step,
                          uint8_t link);
/* Simulate the schedules for a message of this size. Returns the picoseconds until the last lane
 * ends, or TWILL_PRICE_NEVER if a lane never ends or the limit of the call is exceeded. */
uint64_t twill_price_run(struct twill_pricing *p, size_t bytes);

/* --- price_prepare.c -------------------------------------------------------------------------- */
/* Prepare to simulate the last node or, if that does not represent all others, all ranks, in about
 * `steps` steps at most. If `steps` is 0, three single ranks are simulated instead. Returns
 * TWILL_PENDING if there are more steps, single ranks do not represent the world, or the algorithm
 * does not apply. */
twill_status twill_price_prepare(struct twill_pricing *p, const struct twill_price_query *query,
                                 uint64_t steps);
/* Set the members of p->facts that are the same for all ranks, `blocks`, `fetches`, `exchanges` and
 * `segments`, from the schedule of one rank. Also add them to the fingerprint. */
void twill_price_set_facts(struct twill_pricing *p, const struct twill_price_query *query,
                           uint32_t rank, const struct twill_schedule *schedule);
/* Return the class of the link from a rank to the peers of its step except itself. Returns
 * TWILL_LINK_NODE if there are none, or TWILL_PRICE_MIXED if the classes differ. */
uint8_t twill_price_step_class(const struct twill_pricing *p, uint32_t rank,
                               const struct twill_step *step);

/* --- price_scale.c ---------------------------------------------------------------------------- */
/* Set the model and elements of the call. Returns whether they change, which resets prices. */
bool twill_price_set_call(struct twill_pricing *p, const struct twill_machine_model *model,
                          struct twill_element_kind elements);
/* Set facts->widest from the world that is priced. */
void twill_price_count_sharers(struct twill_price_facts *facts, const struct twill_world *world);
/* Return the bytes that a step must write so that all threads of a rank help, or 0. */
size_t twill_price_piece(struct twill_pricing *p);
/* Set the message size of the call that is priced, all shards together. The number of blocks in
 * p->facts must be set before. */
void twill_price_set_bytes(struct twill_pricing *p, size_t bytes);
/* Prepare to extrapolate from three smaller worlds, the samples, each of which
 * twill_price_prepare() prepares with `steps`. They have one in 2^thin ranks of a node. Returns
 * TWILL_PENDING if the world has too few ranks or a sample cannot be priced. */
twill_status twill_price_prepare_scaled(struct twill_pricing *p,
                                        const struct twill_price_query *query, uint64_t steps,
                                        unsigned thin);
/* Return the extrapolated price in picoseconds, like twill_pricing_at(). */
uint64_t twill_price_scaled_at(struct twill_pricing *p, const struct twill_machine_model *model,
                               size_t bytes, struct twill_element_kind elements);

#endif
