/* SPDX-License-Identifier: Apache-2.0 */
/* The composer over a ladder of levels. Internal to this room. */
#ifndef TWILL_COMPOSE_H
#define TWILL_COMPOSE_H

#include "algorithms/compose/hierarchy.h"

/* A schedule in the making: an allreduce goes down and up, a reduce-scatter down, an allgather up,
 * and so does a broadcast, from what the root gives each unit of the top. */
struct twill_compose {
    struct twill_emitter e;
    struct twill_hierarchy hierarchy;
    uint32_t each; /* blocks of a shard */
    bool down, up;
    bool gives;             /* a broadcast, */
    uint32_t root;          /* from this rank; else none */
    bool mapped;            /* the flavour of what goes through memory; else STAGED */
    enum twill_space final; /* where a top that goes through memory leaves complete shards */
    uint32_t *list;         /* [size + 1] ranks */
    bool *marked;           /* [size] */
};

static inline uint32_t twill_compose_block(const struct twill_compose *c, uint32_t s)
{
    return s * c->each;
}
/* Await the signals of those marked, which come down or back up at this rung; clears the marks. */
void twill_compose_await(struct twill_compose *c, uint32_t level, bool up);
/* So many shards from s on, which this rank has below the rung, have one winner at it, and belong
 * to the same ranks in all members of its unit: they go together. Parts go one by one. */
uint32_t twill_compose_run(const struct twill_compose *c, uint32_t level, uint32_t s);
/* WAIT if anything is being received (or sent, when `all`). What is sent lies where nobody writes
 * before the next WAIT, so that the next round need not wait for it. */
void twill_compose_insert_wait(struct twill_emitter *e, bool all);

/* Return the function that emits an allreduce at the top, and the number of copies of the blocks in
 * TMP that it needs among `members` ranks. Not for DIRECT. */
twill_emit_allreduce_fn twill_compose_allreduce(unsigned how);
uint32_t twill_compose_copies(unsigned how, uint32_t members);

/* All rungs that scatter, down and up; the end of a reduce-scatter, the beginning of an allgather.
 */
void twill_compose_down(struct twill_compose *c);
void twill_compose_up(struct twill_compose *c);
void twill_compose_end_down(struct twill_compose *c);
void twill_compose_begin_up(struct twill_compose *c);
/* The beginning and the end of a broadcast. */
void twill_compose_give(struct twill_compose *c);
void twill_compose_end_give(struct twill_compose *c);

/* Allreduce, reduce-scatter, allgather or broadcast over levels: ascending, the whole world last.
 * STAGED or MAPPED. Only memory, and two levels or more, in a broadcast. */
twill_status twill_compose(struct twill_schedule *schedule, const struct twill_world *world,
                           uint32_t rank, const struct twill_shape *shape,
                           const struct twill_level_choice *choice, uint32_t choices,
                           struct twill_error *error);

/* Two levels, the ranks of a node and the nodes: composed where each rank has a shard, else by a
 * leader for each node. Allreduce, or barrier by RECURSIVE_DOUBLING or BRUCK. */
twill_status twill_emit_two_levels(struct twill_schedule *schedule, const struct twill_world *world,
                                   uint32_t rank, const struct twill_shape *shape,
                                   enum twill_how how, struct twill_error *error);

#endif
