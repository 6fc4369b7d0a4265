/* SPDX-License-Identifier: Apache-2.0 */
/* What a price is worked out with. Internal to price.c, which runs; price_prepare.c, which makes
 * ready; price_representative.c, which chooses ranks that stand for others; price_match.c, which
 * finds what each step waits for; price_scale.c, which works out the price on a large world from
 * smaller ones.
 */
#ifndef TWILL_PRICE_STATE_H
#define TWILL_PRICE_STATE_H

#include "algorithms/select/price.h"

#define TWILL_PRICE_MIXED   UINT8_MAX /* a class of link */
#define TWILL_PRICE_NONE    (-1)
#define TWILL_PRICE_LATER   (-2)
#define TWILL_PRICE_NOT_YET UINT64_MAX

struct twill_price_lane {
    uint64_t time;
    uint32_t rank;
    uint32_t at, end; /* global step numbers */
    uint32_t posted;  /* first posted since the last WAIT */
    uint64_t moved;   /* how long the core moved bytes since then */
    int32_t next;     /* of those that wait for the same step */
    bool awaited;     /* its AWAIT is over, and only to be seen */
    uint32_t seen;    /* of its AWAIT's peers, and when they had all raised their flags */
    uint64_t until;
};

/* The same on a part of the world, on half of that part, and on a quarter of it if that still has
 * something to go between: prices of which the world's own is worked out. */
struct twill_price_scale {
    struct twill_pricing *sample[3];
    unsigned samples;
    uint32_t units, of[3]; /* nodes, or ranks of the one there is: in the world, in the parts */
    unsigned halvings;     /* from the world to the first part */
    uint64_t leaving;      /* of the message, what leaves a node, in 1024ths: see find_leaving() */
    bool by_unit;          /* the most steps of a rank grow as the units do */
    const struct twill_machine_model *model;
    twill_type type;
    uint64_t empty[3]; /* prices of no bytes, as last asked for */
};

/* Which ranks are run. */
enum twill_price_mode {
    TWILL_PRICE_WHOLE,    /* all */
    TWILL_PRICE_ONE_NODE, /* those of one node, which stands for each */
    TWILL_PRICE_ALONE,    /* three, each without its peers */
    TWILL_PRICE_SCALED    /* those of a smaller world */
};

struct twill_pricing {
    enum twill_price_mode mode;
    struct twill_price_scale scale;  /* SCALED: nothing else is there then */
    struct twill_world own;          /* a part of the world */
    struct twill_world one;          /* FOLDED: the node that stands for all */
    const struct twill_world *world; /* whose ranks are run */
    const struct twill_world *truth; /* that schedules are of: `world`, unless FOLDED */
    uint32_t node;                   /* FOLDED: of `truth`, the one that is run */
    uint32_t ranks; /* of the world that is priced, where this is on a part of it too */
    uint32_t blocks;
    enum twill_price_segments {
        TWILL_PRICE_SEGMENTS_NET,
        TWILL_PRICE_SEGMENTS_SHARED,
        TWILL_PRICE_SEGMENTS_NONE
    } segments;
    /* Those that are there, until they are taken apart; one of them has been checked. */
    struct twill_schedule *schedule;
    uint32_t scheduled, most_steps;
    bool checked;
    uint64_t fingerprint;
    bool exchanges; /* the node is asked for its buffers over and above what the schedule says */
    uint8_t leaves[TWILL_LINK_COUNT]; /* see twill_link_leaves() */
    bool whole;                       /* messages come from ranks that are run: not ALONE */
    uint32_t *base;                   /* [size + 1] global number of a rank's first step */
    struct twill_step *step;          /* [steps] */
    int32_t *match;  /* [steps] of a RECV: the SEND; of a SIGNAL or PUT_IMM: the lane's next one */
    uint8_t *link;   /* [steps] class, to the peers that it names; MIXED: to each its own */
    uint16_t *hop;   /* [steps] FOLDED: of what sends or receives, from node to node, how far */
    int32_t *raised; /* [size * lanes] first SIGNAL of a lane */
    int32_t *put;    /* [size * lanes] its PUT_IMM */
    struct twill_price_lane *first; /* [lanes] as they begin */
    struct twill_price_lane *lane;
    uint32_t lanes;
    struct twill_price_next {
        uint64_t time;
        uint32_t lane;
    } * heap; /* [lanes] lanes that can go on, the earliest first */
    uint32_t heaped;
    uint64_t *when;                 /* [steps] a SEND's arrival, when a flag was raised */
    uint64_t *sent;                 /* [steps] when a SEND's buffer is free */
    int32_t *waiter;                /* [steps] first lane that waits for it */
    uint64_t *core, *out, *in;      /* [size] free from */
    uint64_t *node_out, *node_in;   /* [nodes] likewise */
    uint64_t *busy;                 /* [size] of the core */
    uint64_t *busy_out, *busy_node; /* [size], [nodes] of the link and the interface */
    /* By level and number of unit, [TWILL_LEVEL_NODE * size] each: how many ranks are in it; its
     * ports, one way each: free from, and how long busy. */
    uint32_t *crowd;
    uint64_t *port_out, *port_in, *busy_port_out, *busy_port_in;
    const struct twill_machine_model *model;
    twill_type type;
    uint64_t each, rest;  /* bytes of a block: every one, and this many one more */
    bool fetches;         /* peers' SRC and DST are read by a system call */
    unsigned widen;       /* a partial is as many times as wide as an element */
    uint64_t reduce_cost; /* per KiB */
    struct twill_price_segmented {
        const struct twill_machine_model *model;
        twill_type type;
        uint64_t one, each; /* one slice from end to end; each further one */
    } segmented;            /* as last asked for */
};

/* price.c */
/* When the last lane ends; TWILL_PRICE_NEVER if some never do. */
uint64_t twill_price_run(struct twill_pricing *p, const struct twill_machine_model *model,
                         size_t bytes, twill_type type);

/* price_match.c: what each step waits for. OK, PENDING: a message is awaited that nobody sends, or
 * MEMORY. */
twill_status twill_price_match(struct twill_pricing *p);

/* What is asked for, through the functions that emit. */
struct twill_price_query {
    const struct twill_algorithm *algorithm;
    const struct twill_shape *shape;
    uint64_t steps; /* at most, of all that are run */
    struct twill_error *error;
};

/* price_representative.c: one node's schedules, or three ranks'. PENDING: they cannot stand for all
 * others, or there are too many steps. */
twill_status twill_price_emit_one_node(struct twill_pricing *p, const struct twill_price_query *a);
twill_status twill_price_emit_alone(struct twill_pricing *p, const struct twill_price_query *a);
/* Peers become those in their places, and how far away they are is noted. */
void twill_price_map_peers(struct twill_pricing *p);

/* price_prepare.c */
/* A rank's schedule, if it is not there. */
twill_status twill_price_emit(struct twill_pricing *p, const struct twill_price_query *a,
                              uint32_t rank, struct twill_schedule *schedule);
bool twill_price_make_schedules(struct twill_pricing *p, uint32_t count);
/* Those of all ranks that are run. PENDING: there are too many steps. */
twill_status twill_price_emit_all(struct twill_pricing *p, const struct twill_price_query *a);
/* With at most so many steps, on `world`, or if that is NULL on a part of `of`, which
 * becomes the pricing's own. PENDING: that takes more. */
twill_status twill_price_prepare(struct twill_pricing **pricing,
                                 const struct twill_algorithm *algorithm,
                                 const struct twill_world *world, const struct twill_world *of,
                                 uint32_t units, const struct twill_shape *shape, uint64_t steps,
                                 struct twill_error *error);
/* Likewise, by three ranks that are run alone. PENDING: they do not do alike. */
twill_status twill_price_prepare_alone(struct twill_pricing **pricing,
                                       const struct twill_algorithm *algorithm,
                                       const struct twill_world *world,
                                       const struct twill_world *of, uint32_t units,
                                       const struct twill_shape *shape, struct twill_error *error);

/* price_scale.c */
/* What can be halved of a world: its nodes, or the ranks of its only one. */
uint32_t twill_price_units(const struct twill_world *world);
/* That many of them, evenly spaced. */
twill_status twill_price_shrink(struct twill_world *small, const struct twill_world *world,
                                uint32_t units, struct twill_error *error);
/* By parts of it; steps 0: each by three ranks that are run alone. PENDING: that is not to be had.
 */
twill_status twill_price_prepare_scaled(struct twill_pricing **pricing,
                                        const struct twill_algorithm *algorithm,
                                        const struct twill_world *world,
                                        const struct twill_shape *shape, uint64_t steps,
                                        struct twill_error *error);
uint64_t twill_price_scaled_at(struct twill_price_scale *scale,
                               const struct twill_machine_model *model, size_t bytes,
                               twill_type type);

#endif
