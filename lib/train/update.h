/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded update: what a set with an optimizer does with a bucket.
 *
 * Each segment of a bucket is reduce-scattered (by the lane), each rank updates its shard of it,
 * and the parameters are all-gathered on a communicator of their own. The lane collects reductions
 * in the order in which all ranks start them, so this order is also that of the units here: the
 * all-gathers have the same order on all ranks, whenever they begin.
 *
 * All members are under the lane's lock, but for constants and the parameters. */
#ifndef TWILL_TRAIN_UPDATE_H
#define TWILL_TRAIN_UPDATE_H

#include "kernels/optimizer.h"

struct twill_gradients;
struct twill_bucket;

#define TWILL_SHARD_ALIGN 64u /* bytes: a shard of a segment ends at a multiple of this */

/* Elements first .. first + count - 1 of a bucket. */
struct twill_bucket_range {
    size_t first, count;
};

/* A segment of a bucket. Places are in elements of the bucket. */
struct twill_update_segment {
    size_t first, count;             /* the segment */
    size_t shard_first, shard_count; /* this rank's shard of it */
    float *state[TWILL_OPTIMIZER_MAX_STATES];
    float *master;   /* weights in f32, beside narrow parameters */
    uint32_t loaded; /* update->loads when `master` was taken from the parameters */
    twill_request *gather;
};

struct twill_update_bucket {
    unsigned char *parameters; /* in an arena, or the caller's memory of the only tensor */
    bool copies;               /* some of the tensors' parameters are in the caller's memory */
    uint32_t segments;         /* those of the bucket; 1 if it is compressed */
    struct twill_update_segment *segment;
    uint64_t steps; /* complete updates */
    /* LARS and LAMB */
    struct twill_optimizer_norms *norms; /* [tensors of the bucket] */
    twill_request *norms_request;
};

/* Segments that are updated and gathered together: one, or for LARS and LAMB all of a bucket. */
struct twill_update_unit {
    uint32_t bucket, segment, segments;
    uint32_t reductions; /* of the bucket, that end with it */
    uint32_t gathered;   /* segments whose parameters are complete */
};

struct twill_update {
    twill_optimizer optimizer;
    float scale; /* of the reduced gradients: of an average */
    twill_comm *comm;
    struct {
        unsigned char *memory;
        size_t bytes;
    } arena[TWILL_TYPE_COUNT];          /* parameters, tensors from the last to the first */
    struct twill_update_bucket *bucket; /* [buckets] */
    uint32_t buckets;
    float *state; /* of all shards of this rank */
    size_t state_bytes;
    size_t *counts; /* [ranks] elements of the shards of a segment */
    uint32_t loads; /* times that master weights were to be taken from the parameters */

    /* A queue. Indices count from the commit on, modulo units_most, a power
     * of two. */
    struct twill_update_unit *unit;
    uint32_t units_most;
    uint32_t oldest; /* the first whose parameters are not all gathered */
    uint32_t next;   /* the first that is not updated yet */
    uint32_t end;
    bool norms_started; /* of unit `next` */
};

/* --- lib/train/update_setup.c --- */

/* Check the tensors and place the parameters. Local. */
twill_status twill_update_open(struct twill_gradients *set);
void twill_update_close(struct twill_gradients *set);
/* Prepare the updates of the set's buckets. Collective, between steps. */
twill_status twill_update_prepare(struct twill_gradients *set);
void twill_update_unprepare(struct twill_gradients *set);
/* Prepare the reduction of a segment. Collective. */
twill_status twill_update_init_reduction(struct twill_gradients *set,
                                         const struct twill_bucket *bucket, size_t first,
                                         size_t count, twill_request **request);
/* Return the parameters of a tensor. */
unsigned char *twill_update_parameters(const struct twill_gradients *set, uint32_t tensor);

/* Check that a call that reads or writes the state may be made: between steps. */
twill_status twill_update_check_between(struct twill_gradients *set, const char *call);
/* The state of all shards was written: of that many updates, with master weights. */
void twill_update_note_import(struct twill_gradients *set, uint64_t steps);

/* --- lib/train/update.c --- */

/* Return where tensor i of a bucket begins in it, in elements. */
size_t twill_update_tensor_first(const struct twill_gradients *set,
                                 const struct twill_bucket *bucket, uint32_t i);
/* Return what a range has of tensor i of a bucket. */
struct twill_bucket_range twill_update_range_of_tensor(const struct twill_gradients *set,
                                                       const struct twill_bucket *bucket,
                                                       uint32_t i, struct twill_bucket_range range);
/* Take the master weights from the parameters where that is still to be done. Between steps. */
void twill_update_load(struct twill_gradients *set);

/* Queue a segment whose reduction is complete. The lane is locked, as for the next three. */
void twill_update_queue(struct twill_gradients *set, uint32_t bucket, uint32_t segment);
/* Update and gather what is reduced, and collect what is gathered. */
twill_status twill_update_advance(struct twill_gradients *set);
/* Return whether something is queued or under way. */
bool twill_update_is_busy(const struct twill_gradients *set);
/* Return the oldest all-gather under way and the exchange of norms under way, or NULL. */
const struct twill_request *twill_update_gather_awaited(const struct twill_gradients *set);
const struct twill_request *twill_update_norms_awaited(const struct twill_gradients *set);
/* Copy the parameters of a complete bucket to the caller's memory. */
void twill_update_deliver(struct twill_gradients *set, const struct twill_bucket *bucket);

#endif
