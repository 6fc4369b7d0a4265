/* SPDX-License-Identifier: Apache-2.0 */
/* What a price is worked out with. Internal to price.c, which runs, and price_ready.c, which makes
 * ready. */
#ifndef TWILL_PRICE_STATE_H
#define TWILL_PRICE_STATE_H

#include "algorithms/price.h"

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
};

struct twill_pricing {
    /* Where the world is too large: the same on two smaller ones, and how often the first of them
     * has to be doubled. Nothing else is there then. */
    struct twill_pricing *half, *quarter;
    unsigned doublings;
    struct twill_world own; /* of a half or quarter */
    const struct twill_world *world;
    uint32_t ranks; /* of the world that is priced, where this is on a part of it too */
    uint32_t blocks;
    enum twill_price_cut { TWILL_PRICE_CUT_NET, TWILL_PRICE_CUT_SHARED, TWILL_PRICE_UNCUT } cut;
    struct twill_schedule *schedule; /* [size], those that are there */
    bool whole;                      /* all ranks are there; else the representatives */
    uint32_t *base;                  /* [size + 1] global number of a rank's first step */
    struct twill_step *step;         /* [steps] */
    int32_t *match;  /* [steps] of a RECV: the SEND; of a SIGNAL or PUT_IMM: the lane's next one */
    uint8_t *link;   /* [steps] class, of what sends or receives */
    int32_t *raised; /* [size * lanes] first SIGNAL of a lane */
    int32_t *put;    /* [size * lanes] its PUT_IMM */
    struct twill_price_lane *lane;
    uint32_t lanes;
    uint32_t *heap; /* [lanes] lanes that can go on, the earliest first */
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
    uint64_t each, rest; /* bytes of a block: every one, and this many one more */
    bool fetches;        /* peers' SRC and DST are read by a system call */
    unsigned widen;      /* a partial is as many times as wide as an element */
    uint64_t fold;       /* per KiB */
    struct twill_price_sliced {
        const struct twill_machine_model *model;
        twill_type type;
        uint64_t one, each; /* one slice from end to end; each further one */
    } sliced;               /* as last asked for */
};

#endif
