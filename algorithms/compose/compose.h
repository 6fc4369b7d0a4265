/* SPDX-License-Identifier: Apache-2.0 */
/* The composer: collectives over a hierarchy of levels. Internal to algorithms/. */
#ifndef TWILL_COMPOSE_H
#define TWILL_COMPOSE_H

#include "algorithms/collectives/cores.h"
#include "algorithms/compose/hierarchy.h"

/* A composed schedule under construction, on the stack of twill_compose(). An allreduce goes down
 * and up, a reduce-scatter down, an allgather up; so does a broadcast, from what the root sends to
 * each unit of the top level. */
struct twill_compose {
    struct twill_emitter e;
    struct twill_hierarchy hierarchy;
    uint32_t each; /* blocks of each shard */
    bool down, up;
    bool broadcasts;
    uint32_t root;          /* of a broadcast */
    bool mapped;            /* protocol of the levels that use memory: MAPPED, else STAGED */
    enum twill_space final; /* where a `direct` top level leaves final shards */
    uint32_t *list;         /* [size + 1] scratch: ranks */
    bool *marked;           /* [size] scratch: peers to await */
};

static inline uint32_t twill_compose_block(const struct twill_compose *c, uint32_t s)
{
    return s * c->each;
}
/* Await the signals that the marked ranks send on their way down or up at this level; clears the
 * marks. */
void twill_compose_await(struct twill_compose *c, uint32_t level, bool up);
/* Return the number of shards from s on that can be handled together: this rank has them below the
 * level, they have one owner at it, and they belong to the same ranks in all members of the unit. 1
 * where shards belong to ranks. */
uint32_t twill_compose_run(const struct twill_compose *c, uint32_t level, uint32_t s);
/* Append a WAIT if a receive (or, with `all`, a send) is posted. Blocks being sent are not written
 * before the next WAIT, so the next round need not wait for them. */
void twill_compose_insert_wait(struct twill_emitter *e, bool all);

/* The shards of two members of a unit, in ascending order. */
struct twill_compose_pair {
    const uint32_t *next[2], *end[2];
};
/* Sort the shards that this rank has below the level by their owners at it, for
 * twill_compose_pair_of(). The caller frees the result. NULL: no memory, which is recorded. */
uint32_t *twill_compose_sort_shards(struct twill_compose *c, uint32_t level);
struct twill_compose_pair twill_compose_pair_of(const struct twill_compose *c, uint32_t level,
                                                const uint32_t *sorted, uint32_t a, uint32_t b);
/* Return whether a shard is left; then *s is it, and *which says whose: 0 is a's, 1 b's. */
bool twill_compose_pair_next(struct twill_compose_pair *pair, uint32_t *s, unsigned *which);

/* Return the function that emits an allreduce at the top, and the number of copies of the blocks in
 * TMP that it needs among `members` ranks. Not for DIRECT. */
twill_emit_allreduce_fn twill_compose_allreduce(unsigned how);
uint32_t twill_compose_copies(unsigned how, uint32_t members);

/* All levels that scatter, down and up; the end of a reduce-scatter; the beginning of an allgather.
 */
void twill_compose_down(struct twill_compose *c);
void twill_compose_up(struct twill_compose *c);
void twill_compose_end_down(struct twill_compose *c);
void twill_compose_begin_up(struct twill_compose *c);
void twill_compose_begin_broadcast(struct twill_compose *c);
void twill_compose_end_broadcast(struct twill_compose *c);

/* Emit an allreduce, reduce-scatter, allgather or broadcast over levels: ascending, the whole world
 * last. STAGED or MAPPED. In a broadcast all levels, at least two, are `direct`. */
twill_status twill_compose(struct twill_schedule *schedule, const struct twill_world *world,
                           uint32_t rank, const struct twill_shape *shape,
                           const struct twill_level_choice *choice, uint32_t choices,
                           struct twill_error *error);

/* Emit two levels, the ranks of a node and the nodes: composed if each rank has a shard, else by
 * one leader per node. An allreduce, a barrier with RECURSIVE_DOUBLING or BRUCK, or, composed, a
 * reduce-scatter or allgather. */
twill_status twill_emit_two_levels(struct twill_schedule *schedule, const struct twill_world *world,
                                   uint32_t rank, const struct twill_shape *shape,
                                   enum twill_how how, struct twill_error *error);

#endif
