/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded update: what a set with an optimizer does with a bucket.
 *
 * Each segment of a bucket is reduce-scattered (by the lane), each rank updates its shard of it,
 * and the parameters are all-gathered on a communicator of their own. The lane collects reductions
 * in the order in which all ranks start them, so this order is also that of the units here: the
 * all-gathers have the same order on all ranks, whenever they begin.
 *
 * A set of options.late has two generations of parameters: those of a step are gathered while the
 * caller uses those of the step before. An update then goes from the shard's weights in f32, of
 * which there is one generation as of the state, to the parameters of its step.
 *
 * What a bucket has is under the lock of its lane, but for constants and the parameters. */
#ifndef TWILL_TRAIN_UPDATE_H
#define TWILL_TRAIN_UPDATE_H

#include "kernels/training/optimizer.h"
#include "lib/twill_train.h"

struct twill_gradients;
struct twill_bucket;
struct twill_train_tensor;
struct twill_lane;

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
    float *master;   /* weights in f32, beside narrow parameters and those of two generations */
    uint32_t loaded; /* update->loads when `master` was taken; counted in the first generation */
    twill_request *gather;
};

struct twill_update_bucket {
    unsigned char *parameters; /* in an arena, or the caller's memory of the only tensor */
    bool copies;               /* some of the tensors' parameters are in the caller's memory */
    uint32_t segments;         /* those of the bucket; 1 if it is compressed */
    struct twill_update_segment *segment;
    uint64_t steps; /* complete updates; counted in the first generation */
    /* LARS and LAMB */
    struct twill_optimizer_norms *norms; /* [tensors of the bucket] */
    twill_request *norms_request;
};

/* Segments that are updated and gathered together: one, or for LARS and LAMB all of a bucket. */
struct twill_update_unit {
    uint32_t bucket, segment, segments;
    uint32_t reductions; /* of the bucket, that end with it */
    uint32_t gathered;   /* segments whose parameters are complete */
    bool decoded;        /* the gradients are in the bucket's memory */
};

/* A lane's part of the norm of all gradients of a step, for optimizer.clip_norm. */
struct twill_update_clip {
    double sum; /* squares: of the units added so far; then, of all ranks */
    twill_request *request;
    uint32_t units; /* of the step that are in `sum` */
    bool started;   /* the request */
    bool published; /* the sum of all ranks is among update->sums */
    uint64_t published_steps;
    float factor; /* of the gradients of the step; 1: not clipped */
};

/* The updates of a lane's buckets. Indices of units count from the commit on, modulo units_most, a
 * power of two. Steps follow each other: all units of one come before those of the next. */
struct twill_update_queue {
    twill_comm *comm; /* of the all-gathers and norms; from set-up to the end of the set */
    struct twill_update_unit *unit; /* this and what follows: of one division of the tensors */
    uint32_t units_most;
    uint32_t oldest; /* the first whose parameters are not all gathered */
    uint32_t next;   /* the first that is not updated yet */
    uint32_t end;
    uint32_t of_step;   /* units of a step */
    uint32_t left;      /* of the step of `next`, that are not updated yet; 0: a step begins */
    bool norms_started; /* of unit `next` */
    struct twill_update_clip clip;
};

struct twill_update {
    twill_optimizer optimizer; /* of the next step */
    twill_optimizer used[2];   /* by the steps of each generation */
    float scale;               /* of the reduced gradients: of an average */
    struct {
        unsigned char *memory;
        size_t bytes;                   /* of a generation */
    } arena[TWILL_TYPE_COUNT];          /* parameters, tensors from the last to the first */
    struct twill_update_bucket *bucket; /* [buckets] */
    uint32_t buckets;                   /* of all generations */
    float *state;                       /* of all shards of this rank */
    size_t state_bytes;
    size_t *counts; /* [ranks] elements of the shards of a segment, while requests are made */
    uint32_t loads; /* times that master weights were to be taken from the parameters */

    /* Clipping: lanes add the squares of their buckets, then wait for those of the others. */
    double *sums[2];         /* [lanes] of all ranks, in odd and in even steps */
    uint32_t summing_lanes;  /* lanes that have buckets */
    _Atomic uint64_t summed; /* sums published, in all steps */
    _Atomic double norm;     /* of the last step whose gradients might have been clipped */
};

/* --- lib/train/optimizer/update_setup.c --- */

/* Check the tensors and place the parameters. Local. */
twill_status twill_update_open(struct twill_gradients *set);
void twill_update_close(struct twill_gradients *set);
/* Return whether shards have weights in f32 beside parameters of a type. */
bool twill_update_has_master(const struct twill_gradients *set, twill_type type);
/* Prepare the updates of the set's buckets. Collective, between steps. */
twill_status twill_update_prepare(struct twill_gradients *set);
void twill_update_unprepare(struct twill_gradients *set);
/* Prepare the reduction of a segment. Collective. */
twill_status twill_update_init_reduction(struct twill_lane *lane, const struct twill_bucket *bucket,
                                         size_t first, size_t count, twill_request **request);
/* Return where the set's parameters of a tensor are, of a generation. The tensor has a place there:
 * in a set of two generations all have. */
unsigned char *twill_update_arena_place(const struct twill_gradients *set,
                                        const struct twill_train_tensor *tensor,
                                        uint32_t generation);
/* Return where the parameters of a tensor are: the caller's memory, or that of a generation. */
unsigned char *twill_update_place(const struct twill_gradients *set, uint32_t tensor,
                                  uint32_t generation);
/* Return the last result of a tensor: its parameters. */
unsigned char *twill_update_parameters(const struct twill_gradients *set, uint32_t tensor);

/* Check that a call that reads or writes the state may be made: between steps. */
twill_status twill_update_check_between(struct twill_gradients *set, const char *call);
/* The state of all shards was written: of that many updates, with master weights. */
void twill_update_note_import(struct twill_gradients *set, uint64_t steps);

/* --- lib/train/optimizer/update.c --- */

/* Return where tensor i of a bucket begins in it, in elements. */
size_t twill_update_tensor_first(const struct twill_gradients *set,
                                 const struct twill_bucket *bucket, uint32_t i);
/* Return what a range has of tensor i of a bucket. */
struct twill_bucket_range twill_update_range_of_tensor(const struct twill_gradients *set,
                                                       const struct twill_bucket *bucket,
                                                       uint32_t i, struct twill_bucket_range range);
/* Take the master weights from the parameters where that is still to be done. Between steps. */
void twill_update_load(struct twill_gradients *set);
/* Take those of f32 from the parameters of a result that is carried (lib/train/late.c). */
void twill_update_load_carried(struct twill_gradients *set);

/* Queue a segment whose reduction is complete. The lane is locked, as for the next three. */
void twill_update_enqueue(struct twill_lane *lane, uint32_t bucket, uint32_t segment);
/* Update and gather what is reduced, and collect what is gathered. */
twill_status twill_update_advance(struct twill_lane *lane);
/* Return whether something is queued or under way. */
bool twill_update_is_busy(const struct twill_lane *lane);
/* Return the oldest all-gather under way and the exchange of norms under way, or NULL. */
twill_request *twill_update_gather_awaited(const struct twill_lane *lane);
twill_request *twill_update_norms_awaited(const struct twill_lane *lane);
/* Compute the gradients of a unit from what was exchanged, if that is not the gradients. */
void twill_update_decode(struct twill_gradients *set, struct twill_update_unit *unit);
/* Return a unit of the queue. */
static inline struct twill_update_unit *twill_update_unit_at(const struct twill_update_queue *queue,
                                                             uint32_t i)
{
    return &queue->unit[i & (queue->units_most - 1)];
}
/* Return the hyperparameters of the step that uses a bucket. */
const twill_optimizer *twill_update_optimizer(const struct twill_gradients *set, uint32_t bucket);
/* A step ends: what the next one uses are the present hyperparameters. */
void twill_update_end_step(struct twill_gradients *set);

/* --- lib/train/optimizer/update_clip.c --- */

twill_status twill_clip_open(struct twill_gradients *set);
void twill_clip_close(struct twill_gradients *set);
/* Prepare the exchange of a lane. */
twill_status twill_clip_prepare(struct twill_lane *lane);
void twill_clip_unprepare(struct twill_lane *lane);
/* Find by what the gradients of the step of the next unit are multiplied: lane->update.clip.factor.
 * Returns TWILL_PENDING while that is not known: gradients are missing, of this lane or another. */
twill_status twill_clip_advance(struct twill_lane *lane);

/* --- lib/train/optimizer/update.c --- */

/* Copy the parameters of a complete bucket to the caller's memory. */
void twill_update_deliver(struct twill_gradients *set, const struct twill_bucket *bucket);

#endif
