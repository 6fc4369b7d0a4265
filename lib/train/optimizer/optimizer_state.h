/* SPDX-License-Identifier: Apache-2.0 */
/* Optimizer state outside a set: twill_gradients_state_export() writes what a rank has,
 * twill_gradients_state_import() gives every rank what its shards need, out of the exports of all.
 * A set that divides its buckets anew (autotuning, compression by trial) moves its state so, too.
 *
 * An export is a header, the ranges, and for each range its arrays, one after the other, `count`
 * f32 each: those of the rule in the order of twill_optimizer_step.state, then the master weights
 * of narrow tensors. Ranges are in elements of tensors, so they fit any number of ranks and any
 * buckets. Bytes are in the order of the machine. */
#ifndef TWILL_OPTIMIZER_STATE_H
#define TWILL_OPTIMIZER_STATE_H

#include "lib/base.h"

struct twill_gradients;
struct twill_update_segment;

#define TWILL_STATE_MAGIC UINT64_C(0x3174617473777774) /* "twstats1" of a little-endian machine */

struct twill_state_header {
    uint64_t magic, bytes; /* of the whole */
    uint64_t tensors_hash; /* of names, counts and types of all tensors */
    uint64_t steps;        /* updates that the state has seen */
    uint32_t rule, states; /* of the optimizer */
    uint32_t tensors, ranges;
};

/* Elements of a tensor. It travels between ranks. */
struct twill_state_range {
    uint64_t first, count;
    uint32_t tensor;
    uint32_t arrays; /* states, and 1 more for the master weights of a narrow tensor */
};

/* A range of this rank's shards, and where its state lies. */
struct twill_state_place {
    struct twill_state_range range;
    struct twill_update_segment *segment;
    size_t at; /* index of its first element in the arrays of the segment */
};

/* List the ranges of this rank's shards. Returns how many, also if `places` is NULL. */
uint32_t twill_state_places(const struct twill_gradients *set, struct twill_state_place *places);
/* Return array `k` of a range of this rank's. */
float *twill_state_array(const struct twill_gradients *set, const struct twill_state_place *place,
                         uint32_t k);
/* Return the hash that exports and imports compare. */
uint64_t twill_state_tensors_hash(const struct twill_gradients *set);
/* Write an export to memory of malloc(), for twill_state_restore(). */
twill_status twill_state_save(struct twill_gradients *set, void **state, size_t *bytes);
/* Import what every rank has saved, then free it. Collective, between steps. */
twill_status twill_state_restore(struct twill_gradients *set, void *state, size_t bytes);

#endif
