/* SPDX-License-Identifier: Apache-2.0 */
/* Blocks pipelined along a tree. Internal to algorithms/. */
#ifndef TWILL_PIPELINE_H
#define TWILL_PIPELINE_H

#include "algorithms/schedule/emit.h"

/* A rank's position in a tree that blocks are pipelined along. */
struct twill_pipe_tree {
    uint32_t depth, height; /* of this rank, 0: the root; of the deepest rank */
    uint32_t parent;        /* its rank; unset if depth is 0 */
    uint32_t children;
    struct {
        uint32_t rank;
        bool first;   /* its operand precedes this rank's */
        bool partial; /* has children of its own */
    } child[2];
};
/* Pipeline `blocks` blocks from `first` on: reduce them up a tree, then broadcast them down a tree,
 * either of which may be NULL. The root of `up`, which has at most one child, leaves the FINAL
 * value in `result`; the root of `down` sends `result`; all others receive into DST. TMP: one copy
 * of the blocks, two where a rank has two children. Ends with nothing posted. */
void twill_emit_pipeline(struct twill_emitter *e, const struct twill_pipe_tree *up,
                         const struct twill_pipe_tree *down, uint32_t first, uint32_t blocks,
                         enum twill_space result);

#endif
