/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: parts of an update, and optimizer state outside a set.
 *
 * twill_gradients_state_export() writes what a rank has, twill_gradients_state_import() gives every
 * rank what its shards need, out of the exports of all. A set that divides its buckets anew
 * (autotuning, compression by trial) moves its state so, too.
 *
 * An export is a header, the ranges, and for each range its arrays, one after the other, `count`
 * f32 each: those of the rule in the order of twill_optimizer_step.state, then the master weights
 * of narrow tensors. Ranges are in elements of tensors, so they fit any number of ranks and any
 * buckets. Behind them is the rank's residual of all tensors that are compressed. Bytes are in the
 * order of the machine. */
#ifndef TWILL_TRAIN_UPDATE_INTERNAL_H
#define TWILL_TRAIN_UPDATE_INTERNAL_H

#include "lib/train/optimizer/update.h"

/* --- update_setup.c --- */

/* The state of all shards was written: of that many updates, with master weights. */
void twill_update_note_import(struct twill_gradients *set, uint64_t steps);

/* --- update.c --- */

/* Return where tensor i of a bucket begins in it, in elements. */
size_t twill_update_tensor_first(const struct twill_gradients *set,
                                 const struct twill_bucket *bucket, uint32_t i);
/* Return what a range has of tensor i of a bucket. */
struct twill_bucket_range twill_update_range_of_tensor(const struct twill_gradients *set,
                                                       const struct twill_bucket *bucket,
                                                       uint32_t i, struct twill_bucket_range range);
/* Take the master weights from the parameters where that is still to be done. Between steps. */
void twill_update_load(struct twill_gradients *set);
/* --- optimizer_state.c, state_import.c --- */

#define TWILL_STATE_MAGIC UINT64_C(0x3274617473777774) /* "twstats2" of a little-endian machine */

struct twill_state_header {
    uint64_t magic, bytes; /* of the whole */
    uint64_t tensors_hash; /* of names, counts and types of all tensors */
    uint64_t steps;        /* updates that the state has seen */
    uint32_t rule, states; /* of the optimizer */
    uint32_t tensors, ranges;
    uint32_t rank, ranks; /* that exported it, of how many; ranks 0: residuals stay as they are */
    uint64_t residuals;   /* elements of the residual */
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

#define TWILL_RESIDUAL_RANKS (1u << 24) /* most ranks of an export */

/* Return the elements of this rank's residual; 0 without compression or error feedback. */
size_t twill_residual_floats(const struct twill_gradients *set);
#endif
