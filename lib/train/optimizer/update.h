/* SPDX-License-Identifier: Apache-2.0 */
/* Sharded update: what a set with an optimizer does with a bucket.
 *
 * The reducer reduce-scatters each segment of a bucket. Each rank updates its shard of it. Then
 * the parameters are all-gathered on a separate communicator. The reducer collects reductions in
 * the order in which all ranks start them. Units are queued here in the same order, so the
 * all-gathers also have one order on all ranks, whenever they begin.
 *
 * A set of options.late has two generations of parameters: those of a step are gathered while the
 * caller uses those of the step before. An update then goes from the shard's f32 weights, which
 * like the state have one generation, to the parameters of its step.
 *
 * A reducer advances a queue. Its lock protects the queue and its buckets, except constants and the
 * parameters. Queues of other reducers may wait for the sum that one publishes (`clip`). */
#ifndef TWILL_TRAIN_UPDATE_H
#define TWILL_TRAIN_UPDATE_H

#include "kernels/training/optimizer.h"
#include "lib/train/compression/compression.h"

#define TWILL_SHARD_ALIGN 64u /* shards of a segment end at a multiple of these bytes */

/* The elements first .. first + count - 1 of a bucket. */
struct twill_bucket_range {
    size_t first, count;
};

/* A segment of a bucket, under its reducer's lock. Places are in elements of the bucket. */
struct twill_update_segment {
    size_t first, count;             /* the segment */
    size_t shard_first, shard_count; /* this rank's shard of it */
    float *state[TWILL_OPTIMIZER_MAX_STATES];
    float *master;   /* f32 weights for narrow parameters or two generations, or NULL */
    uint32_t loaded; /* update->loads when `master` was read; only in generation 0, for both */
    twill_request *gather;
};

/* A bucket's parameters and segments, under its reducer's lock. Made by twill_update_prepare(),
 * freed by twill_update_unprepare(). */
struct twill_update_bucket {
    unsigned char *parameters; /* in an arena, or the caller's memory of the only tensor */
    bool copies;       /* some of its tensors have their parameters in the caller's memory */
    uint32_t segments; /* number of the bucket's segments, or 1 if it is compressed */
    struct twill_update_segment *segment;
    uint64_t steps; /* complete updates; counted in generation 0 */
    /* Only for LARS and LAMB. */
    struct twill_optimizer_norms *norms; /* [tensors of the bucket] of this rank, then of all */
    twill_request *norms_request;
};

/* A part of a bucket that is updated and gathered at once. It is one segment, or all (for LARS,
 * LAMB and codes). Its first segment has the index `segment`, and it has `segments` of them. An
 * element of its queue's ring. */
struct twill_update_unit {
    uint32_t bucket, segment, segments;
    uint32_t reductions; /* how many reductions of the bucket are counted as ended when it ends */
    uint32_t gathered;   /* number of segments whose parameters are complete */
    bool decoded;        /* the gradients are in the bucket's memory */
};

/* A queue's part of the norm of all gradients of a step, for optimizer.clip_norm. */
struct twill_update_clip {
    double sum; /* squares of the units added so far, later those of all ranks */
    twill_request *request;
    uint32_t units;           /* number of units of the step that are in `sum` */
    bool started;             /* the request is under way */
    bool published;           /* the step's sum over all ranks is in update->sums */
    uint64_t published_steps; /* number of steps whose sum this queue has stored there */
    float factor;             /* for the gradients of the step, or 1 if not clipped */
};

/* The updates of a reducer's buckets, under its lock. A unit is a reduced segment or bucket, in the
 * ring unit[]. Numbers of units count from the last division of the tensors into buckets, modulo
 * units_most, a power of two. All units of a step come before those of the next step. */
struct twill_update_queue {
    struct twill_gradients *set;
    twill_comm *comm;               /* for all-gathers and norms, as long as the set lives */
    struct twill_update_unit *unit; /* [units_most] reset, like all below, by a new division */
    uint32_t units_most;
    uint32_t oldest;  /* first unit whose parameters are not all gathered */
    uint32_t next;    /* first unit that is not updated */
    uint32_t end;     /* number of the next unit that is queued */
    uint32_t of_step; /* number of units of a step */
    uint32_t left; /* number of units of next's step that are not updated, or 0 if a step begins */
    uint32_t collected; /* number of all-gathers collected */
    bool norms_started; /* the exchange of the norms of unit `next` is under way */
    struct twill_update_clip clip;
};

/* The optimizer of a set. Made by twill_gradients_set_optimizer(), freed with the set. */
struct twill_update {
    twill_optimizer optimizer; /* for the next step */
    twill_optimizer used[2];   /* by the steps of each generation */
    float scale;               /* factor for reduced gradients, 1 / ranks for an average */
    struct {
        unsigned char *memory;
        size_t bytes;                   /* of a generation */
    } arena[TWILL_TYPE_COUNT];          /* parameters, from the last tensor to the first */
    struct twill_update_bucket *bucket; /* [buckets] */
    uint32_t buckets;                   /* of all generations */
    float *state;                       /* state of all shards of this rank */
    size_t state_bytes;
    struct twill_update_queue *queue; /* [queues], one for each reducer */
    uint32_t queues;
    size_t *counts; /* [ranks] elements of a segment's shards, while requests are made */
    uint32_t loads; /* number of times that master weights had to be read from the parameters */

    /* For clipping, a queue adds the squares of its buckets and awaits the sums of others. */
    double *sums[2];         /* [queues] sums over all ranks, of even and of odd steps */
    uint32_t summing_queues; /* number of queues that have buckets */
    _Atomic uint64_t summed; /* number of sums published, in all steps */
    _Atomic double norm;     /* of the last step whose gradients might have been clipped */
};

/* --- lib/train/optimizer/update_setup.c --- */
/* Allocate `queues` elements of set->update->queue, without communicators. Returns the status. */
twill_status twill_update_make_queues(struct twill_gradients *set, uint32_t queues);
/* Open the update of a set with an optimizer, in set->update, which exists. Refuse types that have
 * no optimizer, and parameters that overlap the memory of another tensor. Place and allocate the
 * parameters in the set's memory. Returns TWILL_OK or the error. */
twill_status twill_update_open(struct twill_gradients *set);
/* Free the update and the parameters in the set's memory. Does nothing without an optimizer. */
void twill_update_close(struct twill_gradients *set);
/* Return whether shards of this type have f32 weights (master) besides the parameters. */
bool twill_update_has_master(const struct twill_gradients *set, twill_type type);
/* Prepare the updates of all buckets, which have reducers, and allocate the optimizer's state, all
 * zero. Collective. Returns the status. */
twill_status twill_update_prepare(struct twill_gradients *set);
/* Free what twill_update_prepare() made. */
void twill_update_unprepare(struct twill_gradients *set);
/* Prepare *request to reduce-scatter `count` elements of a bucket from `first` on. Collective. */
twill_status twill_update_init_reduction(struct twill_gradients *set, twill_comm *comm,
                                         const struct twill_bucket *bucket, size_t first,
                                         size_t count, twill_request **request);
/* Return where a tensor's parameters of a generation (0 or 1) lie in the set's memory. The tensor
 * must have a place there. In a set of two generations all tensors have one. */
unsigned char *twill_update_arena_place(const struct twill_gradients *set,
                                        const struct twill_train_tensor *tensor,
                                        uint32_t generation);
/* Return where a tensor's parameters are, in the caller's memory or a generation of the set's. */
unsigned char *twill_update_place(const struct twill_gradients *set, uint32_t tensor,
                                  uint32_t generation);
/* Return where a tensor's parameters are after the last step that was delivered. */
unsigned char *twill_update_parameters(const struct twill_gradients *set, uint32_t tensor);
/* Return TWILL_OK if `call` may read or write the state, as between steps, else its error. */
twill_status twill_update_check_between(struct twill_gradients *set, const char *call);

/* --- lib/train/optimizer/update.c --- */
/* Read the f32 weights from the parameters of a carried result (twill_gradients_carry()). */
void twill_update_load_carried(struct twill_gradients *set);
/* Queue a reduced segment of a bucket for its update. If the bucket is updated at once, queue it
 * with its last segment and do nothing before. */
void twill_update_enqueue(struct twill_update_queue *queue, uint32_t bucket, uint32_t segment);
/* Take the complete all-gathers of parameters out of the queue, oldest first. When all of a unit
 * are complete, count its segments of the bucket as ended (twill_bucket_end()). Returns TWILL_OK or
 * the error. */
twill_status twill_update_collect(struct twill_update_queue *queue);
/* Update what is reduced and start to gather its parameters. Returns TWILL_OK when nothing is left
 * to update, or when norms of other ranks or queues are missing, or an error. If
 * clip.published_steps has changed, this queue has published its part of a norm. The caller then
 * wakes the other reducers, which may wait for it, and calls again. */
twill_status twill_update_advance(struct twill_update_queue *queue);
/* Return whether anything is queued or under way. Returns false if the queue is NULL. */
bool twill_update_is_busy(const struct twill_update_queue *queue);
/* Return the oldest all-gather under way, or NULL if there is none or the queue is NULL. */
twill_request *twill_update_gather_awaited(const struct twill_update_queue *queue);
/* Return the exchange of norms under way, or NULL if there is none or the queue is NULL. */
twill_request *twill_update_norms_awaited(const struct twill_update_queue *queue);
/* Note that a step ends. The next one uses the present hyperparameters. */
void twill_update_end_step(struct twill_gradients *set);
/* Copy the parameters of a complete bucket to the caller's memory. */
void twill_update_deliver(struct twill_gradients *set, const struct twill_bucket *bucket);

/* --- lib/train/optimizer/optimizer_state.c, state_import.c --- */
/* Set *state to an export without residuals, for twill_state_restore(), and *bytes to its size. The
 * caller frees it. Returns TWILL_OK or TWILL_ERR_MEMORY. */
twill_status twill_state_save(struct twill_gradients *set, void **state, size_t *bytes);
/* Import what twill_state_save() has saved on each rank, after the tensors were divided into other
 * buckets. `state` has `bytes` bytes on this rank, and is freed also after an error. Collective,
 * between steps. Returns the status. */
twill_status twill_state_restore(struct twill_gradients *set, void *state, size_t bytes);
/* Do the work of twill_gradients_state_import(), between steps, and return its status. */
twill_status twill_state_import(struct twill_gradients *set, const void *const *states,
                                const size_t *bytes, size_t count);

#endif
