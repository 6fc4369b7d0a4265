/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of an update that the files of this folder share, and optimizer state outside a set.
 *
 * twill_gradients_state_export() writes what a rank has. twill_gradients_state_import() gives every
 * rank what its shards need out of the exports of all. A set that divides its buckets anew
 * (autotuning, compression by trial) moves its state in the same way.
 *
 * An export is a header, the ranges, and for each range its arrays, each of `count` f32. These are
 * the arrays of the rule, in the order of twill_optimizer_step.state, and then the master weights
 * of narrow tensors. Ranges are in elements of tensors, so they fit any number of ranks and any
 * buckets. The rank's residual of all tensors that may be compressed follows. Bytes are native. */
#ifndef TWILL_TRAIN_UPDATE_INTERNAL_H
#define TWILL_TRAIN_UPDATE_INTERNAL_H

#include "lib/train/optimizer/update.h"

/* --- update_setup.c --- */
/* Record that the state of all shards now is that of `steps` updates. Master weights of narrow
 * tensors belong to it. Those of f32 tensors are read from the parameters before they are next
 * used. */
void twill_update_note_import(struct twill_gradients *set, uint64_t steps);

/* --- update.c --- */
/* Return where tensor i begins in its bucket, in elements. */
size_t twill_update_tensor_first(const struct twill_gradients *set,
                                 const struct twill_bucket *bucket, uint32_t i);
/* Return which element of tensor i of a bucket is element `at` of the bucket. */
size_t twill_update_in_tensor(const struct twill_gradients *set, const struct twill_bucket *bucket,
                              uint32_t i, size_t at);
/* Return the part of a range that belongs to tensor i of a bucket. Its count may be 0. */
struct twill_bucket_range twill_update_range_of_tensor(const struct twill_gradients *set,
                                                       const struct twill_bucket *bucket,
                                                       uint32_t i, struct twill_bucket_range range);
/* Read the master weights from the parameters where that has not been done. Where there are none,
 * copy the caller's parameters to the set's memory. Between steps. */
void twill_update_load(struct twill_gradients *set);
/* --- optimizer_state.c, state_import.c --- */

#define TWILL_STATE_MAGIC UINT64_C(0x3274617473777774) /* "twstats2" on a little-endian machine */

/* The beginning of an export, in the byte order of the machine. */
struct twill_state_header {
    uint64_t magic, bytes; /* of the whole export */
    uint64_t tensors_hash; /* hash of names, counts and types of all tensors */
    uint64_t steps;        /* number of updates that the state has seen */
    uint32_t rule, states; /* twill_optimizer_rule, and number of its arrays */
    uint32_t tensors, ranges;
    uint32_t rank, ranks; /* exporting rank and number of ranks, 0 without residuals */
    uint64_t residuals;   /* number of elements of the residual */
};

/* Elements of a tensor. Sent between ranks as it lies in memory. */
struct twill_state_range {
    uint64_t first, count;
    uint32_t tensor;
    uint32_t arrays; /* arrays of the rule, plus 1 for the master weights of a narrow tensor */
};

/* A range of this rank's shards, and where its state lies. */
struct twill_state_place {
    struct twill_state_range range;
    struct twill_update_segment *segment;
    size_t at; /* index of its first element in the arrays of the segment */
};
/* List in places[] the ranges of tensors that lie in this rank's shards of all buckets. If places
 * is NULL, only count them, so that the caller can allocate places[]. Returns their number. */
uint32_t twill_state_places(const struct twill_gradients *set, struct twill_state_place *places);
/* Return array k of one of this rank's ranges. The master weights come after those of the rule. */
float *twill_state_array(const struct twill_gradients *set, const struct twill_state_place *place,
                         uint32_t k);
/* Return a hash of the names, counts and types of all tensors. Exports and imports compare it. */
uint64_t twill_state_tensors_hash(const struct twill_gradients *set);
#define TWILL_RESIDUAL_RANKS (1u << 24) /* most ranks of an export */
/* Return the number of elements of this rank's residual, or 0 if it has none. */
size_t twill_residual_floats(const struct twill_gradients *set);
#endif
