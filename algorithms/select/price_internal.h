/* SPDX-License-Identifier: Apache-2.0 */
/* The state of a pricing: price_prepare.c chooses the unit, emits its schedules and finds what each
 * step waits for, price.c runs the steps, price_scale.c extrapolates from smaller worlds. */
#ifndef TWILL_PRICE_INTERNAL_H
#define TWILL_PRICE_INTERNAL_H

#include "algorithms/schedule/step_table.h"
#include "algorithms/select/price.h"

#define TWILL_PRICE_MIXED   UINT8_MAX /* in place of a class of link: a step's peers differ */
#define TWILL_PRICE_NONE    (-1)      /* in place of a step or lane: there is none */
#define TWILL_PRICE_LATER   (-2)      /* in place of a step: try again at the lane's time */
#define TWILL_PRICE_NOT_YET UINT64_MAX

/* Which ranks are run. Each is numbered by its place: in the world, on its node, or from 0. */
enum twill_price_unit {
    TWILL_PRICE_WORLD,
    TWILL_PRICE_NODE,
    TWILL_PRICE_RANKS, /* three, each of which is a unit */
    TWILL_PRICE_SCALED /* none: those of smaller worlds are */
};

/* A step of a rank that is run, what is linked to it, and its times in picoseconds. */
struct twill_price_step {
    struct twill_step step;
    uint64_t when;  /* SEND: its arrival; SIGNAL, PUT_IMM: when it was raised; RECV: posted */
    uint64_t sent;  /* SEND: when its buffer is free */
    int32_t match;  /* RECV: its SEND, and the other way round; SIGNAL, PUT_IMM: the lane's next */
    int32_t waiter; /* first lane that waits for the step */
    uint8_t link;   /* class of link to its peers, or MIXED */
};

/* When a core, link, port or interface is next free, and how long it has been busy. */
struct twill_price_resource {
    uint64_t free, busy;
};

/* What is numbered as the ranks: the core and the link to the network of a rank, and the ports of
 * the unit of which it is the first. The port of a node is its network interface. */
enum {
    TWILL_PRICE_CORE,
    TWILL_PRICE_LINK,
    TWILL_PRICE_OUT, /* and the level */
    TWILL_PRICE_INTO = TWILL_PRICE_OUT + TWILL_LEVEL_NODE + 1,
    TWILL_PRICE_RESOURCES = TWILL_PRICE_INTO + TWILL_LEVEL_NODE
};

/* A rank that is run. */
struct twill_price_rank {
    uint32_t rank, core;                   /* `core` and `port`: places of ranks */
    uint32_t port[TWILL_LEVEL_NODE + 1];   /* by level */
    int32_t flag[2][TWILL_SCHEDULE_LANES]; /* by lane: its first SIGNAL, and its first PUT_IMM */
    struct twill_price_use {
        struct twill_price_resource of[TWILL_PRICE_RESOURCES];
        uint64_t in; /* when its link can take in the next message */
        /* The last message into its interface ends at `end`; before, it was idle from `idle` to
         * `idle_end`. */
        uint64_t end, idle, idle_end;
    } use; /* all 0 when a run begins */
};

/* A lane of a rank that is run. Steps are numbered over all ranks. */
struct twill_price_lane {
    uint64_t time;  /* its clock */
    uint64_t until; /* AWAIT: when the last of the flags seen was raised */
    uint32_t rank, place;
    uint32_t first, end; /* steps */
    uint32_t at;         /* the next step */
    uint32_t posted;     /* first step posted since the last WAIT */
    uint32_t seen;       /* AWAIT: the first `seen` peers have raised their flags */
    int32_t next;        /* next lane that waits for the same step */
    bool waits;          /* it has waited since it last used the core */
    bool awaited;        /* AWAIT: the flags are up, and cost only the polling */
};

/* Facts of the schedules. */
struct twill_price_facts {
    uint64_t fingerprint;
    uint32_t blocks;
    uint32_t ranks;                       /* of the world that is priced, also for a sample of it */
    uint32_t share[TWILL_LEVEL_NODE + 1]; /* RANKS: ranks at a port, and at the interface; else 1 */
    enum twill_price_segments {
        TWILL_PRICE_SEGMENTS_NET,
        TWILL_PRICE_SEGMENTS_SHARED,
        TWILL_PRICE_SEGMENTS_NONE
    } segments;
    bool exchanges; /* buffer addresses are exchanged by a barrier that is not in the schedule */
    bool fetches;   /* peers' SRC and DST are read by a system call */
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

/* The same algorithm on a part of the world, on half of that part and on a quarter of it. */
struct twill_price_scale {
    struct twill_pricing *sample[3];
    uint32_t units, of[3]; /* nodes (ranks if there is one node): in the world, in each sample */
    unsigned halvings;     /* from the world to the first sample */
    uint64_t leaving;      /* what leaves a node, in 1024ths of the message: see find_leaving() */
    uint64_t empty[3];     /* the samples' prices of no bytes, for the call's model and elements */
};

/* Created by twill_pricing_create(). */
struct twill_pricing {
    const struct twill_world *world; /* that schedules are emitted for */
    struct twill_world own;          /* of a sample */
    enum twill_price_unit unit;
    struct twill_price_scale scale; /* SCALED; then the members below are not set, but the call */
    struct twill_price_facts facts;
    struct twill_price_call call;
    uint32_t size, steps, lanes;
    struct twill_price_rank *rank; /* [size] */
    struct twill_price_step *step; /* [steps] of all ranks, one after the other */
    struct twill_price_lane *lane; /* [lanes] */
    struct twill_price_next {
        uint64_t time;
        uint32_t lane;
    } * heap; /* the lanes that can continue, the earliest first */
    uint32_t queued;
    uint64_t one, more; /* one segment from end to end, and each further one; 0: not known */
};

/* The arguments of the functions that emit. */
struct twill_price_query {
    const struct twill_algorithm *algorithm;
    const struct twill_shape *shape;
    struct twill_error *error;
};

static inline uint64_t twill_price_later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Return the place of the rank that is run for a peer of the rank at `place`. */
static inline uint32_t twill_price_place(const struct twill_pricing *p, uint32_t place,
                                         uint32_t peer)
{
    return p->unit == TWILL_PRICE_RANKS  ? place
           : p->unit == TWILL_PRICE_NODE ? p->world->local[peer]
                                         : peer;
}

/* --- price.c ---------------------------------------------------------------------------------- */

/* Remember the call that is priced, without its size. Returns whether it is another one. */
bool twill_price_set_call(struct twill_pricing *p, const struct twill_machine_model *model,
                          struct twill_element_kind elements);
/* Remember the size. */
void twill_price_set_bytes(struct twill_pricing *p, size_t bytes);
/* Return the bytes of a segment; 0 if messages are not divided into segments. */
size_t twill_price_segment(const struct twill_pricing *p);
/* Return how long a rank's core is busy with a step; for a RECV, when the message is there. */
uint64_t twill_price_work(const struct twill_pricing *p, uint32_t rank,
                          const struct twill_step *step, uint8_t link);
/* Run the steps. Returns when the last lane ends, TWILL_PRICE_NEVER if some never do. */
uint64_t twill_price_run(struct twill_pricing *p, size_t bytes);

/* --- price_prepare.c -------------------------------------------------------------------------- */

/* Prepare to run a unit of the pricing's world with at most `steps` steps: the node or the world,
 * or with steps 0 a rank. Returns TWILL_PENDING if none can represent the world. */
twill_status twill_price_prepare(struct twill_pricing *p, const struct twill_price_query *query,
                                 uint64_t steps);

/* --- price_scale.c ---------------------------------------------------------------------------- */

/* Prepare to extrapolate from smaller worlds; `steps` as in twill_price_prepare(). Returns
 * TWILL_PENDING if this is not possible. */
twill_status twill_price_prepare_scaled(struct twill_pricing *p,
                                        const struct twill_price_query *query, uint64_t steps);
uint64_t twill_price_scaled_at(struct twill_pricing *p, const struct twill_machine_model *model,
                               size_t bytes, struct twill_element_kind elements);

#endif
