/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded update: what a set with an optimizer does with a bucket.
 *
 * Each segment of a bucket is reduce-scattered (by the reducer), each rank updates its shard of it,
 * and the parameters are all-gathered on a communicator of their own. The reducer collects
 * reductions in the order in which all ranks start them, so this order is also that of the units
 * here: the all-gathers have the same order on all ranks, whenever they begin.
 *
 * A set of options.late has two generations of parameters: those of a step are gathered while the
 * caller uses those of the step before. An update then goes from the shard's weights in f32, of
 * which there is one generation as of the state, to the parameters of its step.
 *
 * A reducer has a queue, which it advances; what a queue has, and what its buckets have, is under
 * the lock of the reducer, but for constants and the parameters. Queues of other reducers may wait
 * for what one of them has published (`clip`). */
#ifndef TWILL_TRAIN_UPDATE_H
#define TWILL_TRAIN_UPDATE_H

#include "kernels/training/optimizer.h"
#include "lib/train/compression/compression.h"

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

/* A reducer's part of the norm of all gradients of a step, for optimizer.clip_norm. */
struct twill_update_clip {
    double sum; /* squares: of the units added so far; then, of all ranks */
    twill_request *request;
    uint32_t units; /* of the step that are in `sum` */
    bool started;   /* the request */
    bool published; /* the sum of all ranks is among update->sums */
    uint64_t published_steps;
    float factor; /* of the gradients of the step; 1: not clipped */
};

/* The updates of a reducer's buckets. Indices of units count from the commit on, modulo units_most,
 * a power of two. Steps follow each other: all units of one come before those of the next. */
struct twill_update_queue {
    struct twill_gradients *set;
    twill_comm *comm;               /* of the all-gathers and norms; from set-up to the end */
    struct twill_update_unit *unit; /* this and what follows: of one division of the tensors */
    uint32_t units_most;
    uint32_t oldest; /* the first whose parameters are not all gathered */
    uint32_t next;   /* the first that is not updated yet */
    uint32_t end;
    uint32_t of_step;   /* units of a step */
    uint32_t left;      /* of the step of `next`, that are not updated yet; 0: a step begins */
    uint32_t collected; /* all-gathers */
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
    struct twill_update_queue *queue; /* [queues] one a reducer */
    uint32_t queues;
    size_t *counts; /* [ranks] elements of the shards of a segment, while requests are made */
    uint32_t loads; /* times that master weights were to be taken from the parameters */

    /* Clipping: queues add the squares of their buckets, then wait for those of the others. */
    double *sums[2];         /* [queues] of all ranks, in odd and in even steps */
    uint32_t summing_queues; /* that have buckets */
    _Atomic uint64_t summed; /* sums published, in all steps */
    _Atomic double norm;     /* of the last step whose gradients might have been clipped */
};

/* --- lib/train/optimizer/update_setup.c --- */

/* Make queues, without communicators. */
twill_status twill_update_make_queues(struct twill_gradients *set, uint32_t queues);
/* Check the tensors and place the parameters. Local. */
twill_status twill_update_open(struct twill_gradients *set);
void twill_update_close(struct twill_gradients *set);
/* Return whether shards have weights in f32 beside parameters of a type. */
bool twill_update_has_master(const struct twill_gradients *set, twill_type type);
/* Prepare the updates of the set's buckets, which are given to reducers. Collective, between steps.
 */
twill_status twill_update_prepare(struct twill_gradients *set);
void twill_update_unprepare(struct twill_gradients *set);
/* Prepare the reduction of a segment. Collective. */
twill_status twill_update_init_reduction(struct twill_gradients *set, twill_comm *comm,
                                         const struct twill_bucket *bucket, size_t first,
                                         size_t count, twill_request **request);
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

/* --- lib/train/optimizer/update.c --- */

/* Take those of f32 from the parameters of a result that is carried (lib/train/late.c). */
void twill_update_load_carried(struct twill_gradients *set);
/* Queue a segment whose reduction is complete. */
void twill_update_enqueue(struct twill_update_queue *queue, uint32_t bucket, uint32_t segment);
/* Collect what is gathered, and end its buckets. */
twill_status twill_update_collect(struct twill_update_queue *queue);
/* Update and gather what is reduced. It returns early each time that it has published something:
 * clip.published_steps has changed then. */
twill_status twill_update_advance(struct twill_update_queue *queue);
/* Return whether something is queued or under way; false if the queue is NULL. */
bool twill_update_is_busy(const struct twill_update_queue *queue);
/* Return the oldest all-gather under way and the exchange of norms under way, or NULL, also if the
 * queue is NULL. */
twill_request *twill_update_gather_awaited(const struct twill_update_queue *queue);
twill_request *twill_update_norms_awaited(const struct twill_update_queue *queue);
/* A step ends: what the next one uses are the present hyperparameters. */
void twill_update_end_step(struct twill_gradients *set);
/* Copy the parameters of a complete bucket to the caller's memory. */
void twill_update_deliver(struct twill_gradients *set, const struct twill_bucket *bucket);

/* --- lib/train/optimizer/optimizer_state.c, state_import.c --- */

/* Write an export to memory of malloc(), for twill_state_restore(). */
twill_status twill_state_save(struct twill_gradients *set, void **state, size_t *bytes);
/* Import what every rank has saved, then free it. Collective, between steps. */
twill_status twill_state_restore(struct twill_gradients *set, void *state, size_t bytes);
/* Import exports, as twill_gradients_state_import(). Collective, between steps. */
twill_status twill_state_import(struct twill_gradients *set, const void *const *states,
                                const size_t *bytes, size_t count);

#endif
