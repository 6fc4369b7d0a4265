/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a pricing. Internal to the price's files: price_prepare.c emits the schedules and
 * builds the state, price_representative.c chooses ranks that stand for others, price_match.c finds
 * what each step waits for, price.c runs the steps, price_messages.c carries their messages, and
 * price_scale.c extrapolates from smaller worlds.
 * "One node", "alone" and "scaled" are explained in price.h. */
#ifndef TWILL_PRICE_STATE_H
#define TWILL_PRICE_STATE_H

#include "algorithms/select/price.h"

#define TWILL_PRICE_MIXED   UINT8_MAX /* in place of a class of link: a step's peers differ */
#define TWILL_PRICE_NONE    (-1)      /* in place of a step or lane: there is none */
#define TWILL_PRICE_LATER   (-2)      /* in place of a step: try again at the lane's time */
#define TWILL_PRICE_NOT_YET UINT64_MAX

/* A lane of a rank that is run. Steps are numbered over all ranks. */
struct twill_price_lane {
    uint64_t time; /* its clock */
    uint32_t rank;
    uint32_t at, end; /* steps */
    uint32_t posted;  /* first step posted since the last WAIT */
    uint64_t moved;   /* time the core moved bytes since then */
    int32_t next;     /* next lane that waits for the same step */
    bool waits;       /* it has waited since it last used the core */
    bool awaited;     /* its AWAIT's flags are up, and cost only the polling */
    uint32_t seen;    /* the first `seen` peers of its AWAIT have raised their flags, */
    uint64_t until;   /* the last of them at this time */
};

/* The same algorithm on a part of the world, on half of that part, and if possible on a quarter of
 * it: the world's price is extrapolated from theirs. */
struct twill_price_scale {
    struct twill_pricing *sample[3];
    unsigned samples;
    uint32_t units, of[3]; /* nodes (ranks if there is one node): in the world, in each sample */
    unsigned halvings;     /* from the world to the first sample */
    uint64_t leaving;      /* what leaves a node, in 1024ths of the message: see find_leaving() */
    bool by_unit;          /* the longest schedule grows in proportion to the units */
    /* As last asked for. */
    const struct twill_machine_model *model;
    struct twill_element_kind elements;
    uint64_t empty[3]; /* the samples' prices of no bytes */
};

/* Which ranks are run. */
enum twill_price_mode {
    TWILL_PRICE_WHOLE,    /* all */
    TWILL_PRICE_ONE_NODE, /* those of one node, which stands for all nodes */
    TWILL_PRICE_ALONE,    /* three, each without its peers */
    TWILL_PRICE_LEAST,    /* one or two, each as if its peers never let it wait */
    TWILL_PRICE_SCALED    /* none: the samples' ranks are */
};

/* The worlds of a pricing. */
struct twill_price_worlds {
    struct twill_world own;          /* for a sample: its part of the world */
    struct twill_world one;          /* ONE_NODE: the node as a world */
    const struct twill_world *run;   /* the world of the ranks that are run */
    const struct twill_world *truth; /* the world that schedules are emitted for: `run`, unless
                                        ONE_NODE */
    uint32_t node;                   /* ONE_NODE: number of the node in `truth` */
    uint32_t ranks;                  /* of the world that is priced, also for a sample of it */
};

/* Schedules, until they are unpacked. One of them has been checked. */
struct twill_price_schedules {
    struct twill_schedule *list; /* [count] */
    uint32_t count, most_steps;
    bool checked;
};

/* Facts of the schedules. */
struct twill_price_facts {
    uint64_t fingerprint;
    uint32_t blocks;
    enum twill_price_segments {
        TWILL_PRICE_SEGMENTS_NET,
        TWILL_PRICE_SEGMENTS_SHARED,
        TWILL_PRICE_SEGMENTS_NONE
    } segments;
    bool exchanges; /* buffer addresses are exchanged by a barrier that is not in the schedule */
    bool fetches;   /* peers' SRC and DST are read by a system call */
    bool whole;     /* messages come from ranks that are run: neither ALONE nor LEAST */
    uint8_t leaves[TWILL_LINK_COUNT]; /* see twill_link_leaves() */
};

/* The steps of all ranks that are run, and what each waits for. */
struct twill_price_steps {
    uint32_t *base;          /* [size + 1] number of a rank's first step */
    struct twill_step *step; /* [steps] */
    int32_t *match;  /* [steps] a RECV's SEND; the next of the lane after a SIGNAL or PUT_IMM */
    uint8_t *link;   /* [steps] class of link to the peers, or MIXED */
    uint16_t *hop;   /* [steps] ONE_NODE: distance in nodes that a message travels */
    int32_t *raised; /* [size * lanes] first SIGNAL of a lane */
    int32_t *put;    /* [size * lanes] its PUT_IMM */
};

/* The lanes of all ranks that are run. */
struct twill_price_lanes {
    struct twill_price_lane *first; /* [count] initial state */
    struct twill_price_lane *lane;  /* [count] */
    uint32_t count;
};

/* The lanes that can continue, the earliest first. */
struct twill_price_queue {
    struct twill_price_next {
        uint64_t time;
        uint32_t lane;
    } * heap; /* [lanes] */
    uint32_t count;
};

/* What has happened to each step in a run; in picoseconds. */
struct twill_price_times {
    uint64_t *when;  /* [steps] a SEND's arrival; when a flag was raised */
    uint64_t *sent;  /* [steps] when a SEND's buffer is free */
    int32_t *waiter; /* [steps] first lane that waits for the step */
};

/* When a resource is next free in a run, and how long it has been busy; in picoseconds. */
struct twill_price_resources {
    uint64_t *core, *out, *in;           /* [size] cores and links */
    uint64_t *node_out, *node_in;        /* [nodes] interfaces */
    uint64_t *node_idle, *node_idle_end; /* [nodes] last idle time of `node_in` before its end */
    uint64_t *busy, *busy_out, *busy_node;
    uint32_t
        *core_of; /* [size] number of the core that a rank is on, equal for those that share it */
    /* [TWILL_LEVEL_NODE * size], by level and unit: the ranks in it, and its port one way each. */
    uint32_t *crowd;
    uint64_t *port_out, *port_in, *busy_port_out, *busy_port_in;
};

/* The call that is priced. */
struct twill_price_call {
    const struct twill_machine_model *model;
    struct twill_element_kind elements;
    uint64_t each, rest;  /* bytes of every block; this many blocks have one more */
    unsigned widen;       /* width of a partial, in elements */
    uint64_t reduce_cost; /* per KiB */
    uint64_t most;        /* a run may end when this is exceeded */
};

/* The price of segments, as last asked for. */
struct twill_price_segmented {
    const struct twill_machine_model *model;
    struct twill_element_kind elements;
    uint64_t one, each; /* one segment from end to end; each further one */
};

/* Created by twill_price_prepare() and its kin, freed by twill_pricing_destroy(). The schedules
 * and what is made of them are constant; a run changes the other members. */
struct twill_pricing {
    enum twill_price_mode mode;
    struct twill_price_scale scale; /* SCALED; then no other member but the worlds is set */
    struct twill_price_worlds worlds;
    struct twill_price_schedules schedules;
    struct twill_price_facts facts;
    struct twill_price_steps steps;
    struct twill_price_lanes lanes;
    struct twill_price_queue queue;
    struct twill_price_times times;
    struct twill_price_resources resources;
    struct twill_price_call call;
    struct twill_price_segmented segmented;
};

static inline bool twill_elements_match(struct twill_element_kind a, struct twill_element_kind b)
{
    return a.type == b.type && a.narrow == b.narrow;
}

/* --- price.c ---------------------------------------------------------------------------------- */

/* Run the steps. Returns when the last lane ends, TWILL_PRICE_NEVER if some never do. */
uint64_t twill_price_run(struct twill_pricing *p, const struct twill_machine_model *model,
                         size_t bytes, struct twill_element_kind elements);

/* --- price_match.c ---------------------------------------------------------------------------- */

/* Find what each step waits for. TWILL_PENDING: with ONE_NODE, a message that no rank sends;
 * TWILL_ERR_MEMORY. */
twill_status twill_price_match(struct twill_pricing *p);

/* The arguments of the functions that emit. */
struct twill_price_query {
    const struct twill_algorithm *algorithm;
    const struct twill_shape *shape;
    uint64_t steps; /* most steps of all ranks that are run */
    struct twill_error *error;
};

/* --- price.c ---------------------------------------------------------------------------------- */

static inline uint64_t twill_price_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Return the bytes of a step's blocks. */
static inline uint64_t twill_price_bytes(const struct twill_pricing *p,
                                         const struct twill_step *step)
{
    uint64_t more = p->call.rest > 0
                        ? (p->call.rest * step->blocks + p->facts.blocks - 1) / p->facts.blocks
                        : 0;
    uint64_t bytes = p->call.each * step->blocks + more;
    return (step->flags & TWILL_STEP_PARTIAL) != 0 ? bytes * p->call.widen : bytes;
}

/* Occupy the core of the lane's rank for `time` picoseconds, from when it is free. On a shared core
 * a rank that has waited gets its turn first; ranks that are not run do as much as one that is run
 * alone. */
static inline void twill_price_occupy(struct twill_pricing *p, struct twill_price_lane *lane,
                                      uint64_t time)
{
    uint32_t core = p->resources.core_of[lane->rank];
    if (p->call.model->crowd > 1 && p->mode != TWILL_PRICE_LEAST) {
        time += lane->waits ? p->call.model->turn : 0;
        time *= p->facts.whole ? 1 : p->call.model->crowd;
        lane->waits = false;
    }
    lane->time = twill_price_later(lane->time, p->resources.core[core]) + time;
    p->resources.core[core] = lane->time;
    p->resources.busy[core] += time;
}

static inline const struct twill_link_cost *twill_price_link(const struct twill_pricing *p,
                                                             uint32_t at)
{
    return &p->call.model->link[p->steps.link[at]];
}

/* Make the lanes that wait for a step ready. */
void twill_price_wake(struct twill_pricing *p, uint32_t step);

/* --- price_messages.c ------------------------------------------------------------------------- */

/* Run a SEND of a lane. */
void twill_price_send(struct twill_pricing *p, struct twill_price_lane *lane,
                      const struct twill_step *step);
/* Post a RECV where all ranks are run, or those of a node. */
void twill_price_receive(struct twill_pricing *p, const struct twill_price_lane *lane);
/* Return when a rank that is run alone receives its message. */
uint64_t twill_price_mirrored(struct twill_pricing *p, const struct twill_price_lane *lane,
                              const struct twill_step *step);
/* Return the SEND of the first RECV posted since the last WAIT that has not been sent, or
 * TWILL_PRICE_NONE. */
int32_t twill_price_unsent(const struct twill_pricing *p, const struct twill_price_lane *lane);

/* --- price_representative.c ------------------------------------------------------------------- */

/* Emit the schedules of one node, or of three ranks. TWILL_PENDING: they cannot stand for the
 * others, or have too many steps. */
twill_status twill_price_emit_one_node(struct twill_pricing *p, const struct twill_price_query *a);
twill_status twill_price_emit_alone(struct twill_pricing *p, const struct twill_price_query *a);
/* ONE_NODE: replace peers by the ranks at their positions in the node, and note how many nodes away
 * they are. */
void twill_price_map_peers(struct twill_pricing *p);

/* --- price_prepare.c -------------------------------------------------------------------------- */

/* Emit a rank's schedule unless it has been. */
twill_status twill_price_emit(struct twill_pricing *p, const struct twill_price_query *a,
                              uint32_t rank, struct twill_schedule *schedule);
/* Allocate `count` empty schedules in place of the old ones. Returns false if out of memory. */
bool twill_price_make_schedules(struct twill_pricing *p, uint32_t count);
/* Emit the schedules of all ranks that are run. TWILL_PENDING: too many steps. */
twill_status twill_price_emit_all(struct twill_pricing *p, const struct twill_price_query *a);
/* Create a pricing that runs one node or all ranks, on `world` or, if that is NULL, on `units` of
 * the units of `of`. TWILL_PENDING: this takes more than `steps`. */
twill_status twill_price_prepare(struct twill_pricing **pricing,
                                 const struct twill_algorithm *algorithm,
                                 const struct twill_world *world, const struct twill_world *of,
                                 uint32_t units, const struct twill_shape *shape, uint64_t steps,
                                 struct twill_error *error);
/* Like twill_price_prepare(), but run three ranks alone. TWILL_PENDING: their steps differ. */
twill_status twill_price_prepare_alone(struct twill_pricing **pricing,
                                       const struct twill_algorithm *algorithm,
                                       const struct twill_world *world,
                                       const struct twill_world *of, uint32_t units,
                                       const struct twill_shape *shape, struct twill_error *error);

/* --- price_scale.c ---------------------------------------------------------------------------- */

/* Return the units in which a world is scaled: its nodes, or the ranks of its only node. */
uint32_t twill_price_units(const struct twill_world *world);
/* Create a world of `units` of the world's units, evenly spaced. */
twill_status twill_price_shrink(struct twill_world *small, const struct twill_world *world,
                                uint32_t units, struct twill_error *error);
/* Create a pricing that extrapolates from smaller worlds; with steps 0 each of them runs three
 * ranks alone. TWILL_PENDING: not possible. */
twill_status twill_price_prepare_scaled(struct twill_pricing **pricing,
                                        const struct twill_algorithm *algorithm,
                                        const struct twill_world *world,
                                        const struct twill_shape *shape, uint64_t steps,
                                        struct twill_error *error);
uint64_t twill_price_scaled_at(struct twill_price_scale *scale,
                               const struct twill_machine_model *model, size_t bytes,
                               struct twill_element_kind elements);

#endif
