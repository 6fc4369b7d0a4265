/* SPDX-License-Identifier: Apache-2.0 */
/* Pipelines of blocks along trees. Steps follow a virtual clock. Block c leaves depth d at time c +
 * height - d on its way up, and at time c + height + d on its way down. A rank posts all that
 * it sends and receives at one time together, after a WAIT if it depends on earlier messages. Both
 * ends of a message post it at the same time, so there is no cyclic wait. A block is forwarded at
 * the time after its arrival. */
#include "algorithms/patterns/pipeline.h"

/* The arguments of twill_emit_pipeline(), in a local variable there, for the functions that it
 * calls. The trees in which blocks go up and down may be NULL. The blocks are `first` to `first` +
 * `blocks` - 1, and `result` is the space of the final ones at the root. */
struct pipeline {
    const struct twill_pipe_tree *up, *down;
    uint32_t first, blocks;
    enum twill_space result;
};

/* Set *block to the number of the block that is handled at time `time`. The first block is handled
 * at time `delay`, and each further one a time later. Returns false if none is handled at that
 * time. */
static bool block_at(const struct pipeline *p, uint32_t time, uint32_t delay, uint32_t *block)
{
    *block = p->first + time - delay;
    return time >= delay && time - delay < p->blocks;
}

/* Post the receives of one block from the children in the tree that reduces. The operand of the
 * first child is reduced with SRC on arrival, into TMP or, at the root, into p->result. The operand
 * of the second child is stored in the second copy of the blocks in TMP, for reduce_second(). */
static void post_up_receive(struct twill_emitter *e, const struct pipeline *p, uint32_t block)
{
    bool ends = p->up->depth == 0;
    for (uint32_t i = 0; i < p->up->children; i++) {
        unsigned partial = p->up->child[i].partial ? TWILL_STEP_PARTIAL : 0;
        unsigned flags = partial | (p->up->child[i].first ? TWILL_STEP_FIRST : 0) |
                         (ends ? TWILL_STEP_FINAL : 0);
        if (i > 0)
            twill_emit_recv(e, p->up->child[i].rank, data_at(TWILL_TMP, block + e->blocks), 1,
                            partial);
        else
            twill_emit_recv_reduce(e, p->up->child[i].rank,
                                   data_at(ends ? p->result : TWILL_TMP, block),
                                   data_at(TWILL_SRC, block), 1, flags);
    }
}

/* Reduce the operand of the second child, which has arrived, into the partial. Do nothing if there
 * is no second child. */
static void reduce_second(struct twill_emitter *e, const struct pipeline *p, uint32_t block)
{
    if (p->up->children > 1)
        twill_emit_accumulate(
            e, data_at(TWILL_TMP, block), data_at(TWILL_TMP, block + e->blocks), 1,
            TWILL_STEP_PARTIAL_OWN | (p->up->child[1].partial ? TWILL_STEP_PARTIAL : 0) |
                (p->up->child[1].first ? TWILL_STEP_FIRST : 0));
}

/* Append the SEND of a block to the parent in the tree that reduces, if this rank sends one at this
 * time. `time` counts the rounds of the whole pipeline from 0. */
static void post_up_send(struct twill_emitter *e, const struct pipeline *p, uint32_t time)
{
    uint32_t block;
    bool leaf = p->up->children == 0;
    if (p->up->depth > 0 && block_at(p, time, p->up->height - p->up->depth, &block))
        twill_emit_send(e, p->up->parent, data_at(leaf ? TWILL_SRC : TWILL_TMP, block), 1,
                        leaf ? 0 : TWILL_STEP_PARTIAL);
}

/* Append this rank's receive from its parent and its sends to its children in the tree that
 * broadcasts, at this time. `time` counts the rounds of the whole pipeline from 0. The root sends
 * the first block at time `start`. */
static void post_down(struct twill_emitter *e, const struct pipeline *p, uint32_t time,
                      uint32_t start)
{
    uint32_t block, depth = p->down->depth;
    if (depth > 0 && block_at(p, time, start + depth - 1, &block))
        twill_emit_recv(e, p->down->parent, data_at(TWILL_DST, block), 1, 0);
    bool sends = block_at(p, time, start + depth, &block);
    for (uint32_t i = 0; sends && i < p->down->children; i++)
        twill_emit_send(e, p->down->child[i].rank,
                        data_at(depth == 0 ? p->result : TWILL_DST, block), 1, 0);
}

void twill_emit_pipeline(struct twill_emitter *e, const struct twill_pipe_tree *up,
                         const struct twill_pipe_tree *down, uint32_t first, uint32_t blocks,
                         enum twill_space result)
{
    struct pipeline p = {
        .up = up, .down = down, .first = first, .blocks = blocks, .result = result};
    uint32_t start = up != NULL ? up->height : 0, block;
    uint32_t end = blocks + start + (down != NULL ? down->height : 0);
    for (uint32_t time = 0; time < end; time++) {
        size_t mark = twill_emit_mark(e);
        if (up != NULL && up->children > 0) {
            uint32_t delay = up->height - up->depth - 1;
            if (block_at(&p, time, delay, &block))
                post_up_receive(e, &p, block);
            if (block_at(&p, time, delay + 1, &block))
                reduce_second(e, &p, block);
        }
        if (up != NULL)
            post_up_send(e, &p, time);
        if (down != NULL)
            post_down(e, &p, time, start);
        twill_emit_insert_wait(e, mark);
    }
    twill_emit_wait(e);
}
