/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill_train.h
 * \brief Gradient sets: the communication of a training step, overlapped with the backward pass.
 *
 * A gradient set holds the tensors of a model. All ranks register the same tensors once and commit
 * the set. In every step they mark each tensor ready as the backward pass produces its gradient,
 * and wait for the result. Small tensors are fused into buckets. A bucket is reduced as soon as all
 * of its tensors are ready, while the backward pass continues.
 *
 *     twill_gradients_create(&set, comm, NULL);
 *     twill_gradients_add(set, &tensor, &index); // for each tensor
 *     twill_gradients_commit(set);
 *     while (more_batches()) {
 *         backward_pass(); // with twill_gradients_ready(set, index)
 *         twill_gradients_wait_all(set);
 *         update_parameters();
 *     }
 *     twill_gradients_destroy(set);
 *
 * Conventions are those of twill.h. The caller's communicator may be used at any time, as a set has
 * its own. After a failure the set is broken: its calls return ::TWILL_ERR_BROKEN, and
 * twill_gradients_message() says why.
 */
#ifndef TWILL_TRAIN_H
#define TWILL_TRAIN_H

#include "twill.h"

#ifdef __cplusplus
extern "C" {
#endif

/** \brief A gradient set. */
typedef struct twill_gradients twill_gradients;

/** \brief The order in which buckets are reduced. */
typedef enum twill_bucket_order {
    TWILL_BUCKETS_BACKWARD = 0, /**< from the last tensor to the first. A bucket waits for those
                                   before it, and nothing is exchanged to keep the order. */
    TWILL_BUCKETS_BY_PRIORITY   /**< first the bucket with the lowest priority number of those that
                                   are ready on all ranks. It overtakes larger ones between their
                                   segments. Ranks agree by a reduction of some bytes a segment. */
} twill_bucket_order;

/** \brief What is sent instead of gradients of ::TWILL_F32. */
typedef enum twill_compression {
    TWILL_COMPRESS_NONE = 0, /**< the gradients themselves */
    TWILL_COMPRESS_F16,      /**< ::TWILL_F16, half the bytes */
    TWILL_COMPRESS_BF16,     /**< ::TWILL_BF16, half the bytes */
    TWILL_COMPRESS_F8E4M3,   /**< blocks of 256 ::TWILL_F8E4M3 with a scale, 260 of 1024 bytes */
    TWILL_COMPRESS_F8E5M2,   /**< blocks of 256 ::TWILL_F8E5M2 with a scale */
    TWILL_COMPRESS_INT8,     /**< blocks of 256 ::TWILL_I8 with a scale */
    TWILL_COMPRESS_TOP_K,    /**< the largest elements of each rank, 8 bytes each */
    TWILL_COMPRESS_THRESHOLD /**< elements of at least a given magnitude, 8 bytes each */
} twill_compression;

/** \brief What is exchanged for a layer of twill_gradients_add_dense(). */
typedef enum twill_factors_choice {
    TWILL_FACTORS_BY_PRICE = 0, /**< whichever of the two takes less time by its price, including
                                   multiplications, whose rate is measured at the commit. All ranks
                                   choose the same. */
    TWILL_FACTORS_GATHERED,     /**< the factors of all ranks */
    TWILL_FACTORS_REDUCED       /**< the gradient */
} twill_factors_choice;

/** \brief Options of a set. Fill them with twill_gradients_defaults(), then change members. All
 * ranks pass the same values. The variable TWILL_GRADIENTS overrides them, see twill(7). */
typedef struct twill_gradients_options {
    size_t bytes;                  /**< sizeof(twill_gradients_options), set by the defaults */
    twill_op op;                   /**< ::TWILL_AVG (default) or ::TWILL_SUM */
    double scale;                  /**< factor of every gradient before it is added, so that sums of
                                        16-bit floats do not overflow, 1 by default, not 0 */
    size_t bucket_bytes;           /**< tensors are fused up to this size, at most 2^40, 8 MiB by
                                        default. A larger tensor is not fused and never copied. It
                                        is divided into buckets of at most this size or 16 MiB, if
                                        that is more, unless it is compressed, is a dense layer, or
                                        the set uses LARS or LAMB. 0 means no fusion */
    size_t first_bucket_bytes;     /**< size of the first bucket, which starts early, 1 MiB by
                                        default */
    size_t segment_bytes;          /**< size of the segments in which ::TWILL_BUCKETS_BY_PRIORITY
                                        reduces a bucket, at least 4 KiB, 1 MiB by default */
    twill_bucket_order order;      /**< ::TWILL_BUCKETS_BACKWARD by default */
    int autotune;                  /**< 1 to search for the best bucket sizes in the first steps,
                                        also if late, see twill_gradients_wait_all(); default 0 */
    int check_every;               /**< do twill_gradients_check() at the end of every N-th step; 0,
                                        the default, means never */
    int report_every;              /**< rank 0 prints twill_gradients_times() at the end of every
                                        N-th step, and for all steps when the set is destroyed; 0,
                                        the default, means never */
    twill_factors_choice factors;  /**< ::TWILL_FACTORS_BY_PRICE by default */
    int late;                      /**< 1 if a step delivers the result of the step before, see
                                        twill_gradients_set_late(); 0 by default */
    twill_compression compression; /**< of ::TWILL_F32, none by default. See twill(7) for errors */
    int compression_automatic;     /**< 1 to compress only buckets for which it pays, by their price
                                        and by a trial of some steps; 0 by default */
    int error_feedback;            /**< 1, the default, to add what is lost to the next gradient */
    double compression_ratio;      /**< top-k and threshold: most of a bucket's elements that a rank
                                        sends, above 0 and at most 1, default 0.01 */
    double compression_threshold;  /**< threshold, above 0: send elements from this magnitude on, of
                                        gradient times scale plus what former steps have left */
    int threads;                   /**< number of communication threads, at most 64, each with its
                                        own buckets and network endpoint. With 0, the default,
                                        reductions start in twill_gradients_ready() and advance
                                        inside calls, or as TWILL_PROGRESS says */
    int promote;                   /**< 1, the default, to twill_promote() the caller's gradients
                                        that are reduced without a copy, from the commit until the
                                        set is destroyed */
} twill_gradients_options;

/** \brief A tensor to be registered by twill_gradients_add(), twill_gradients_add_dense() or
 * twill_server_add(), which copies the struct. A worker of a parameter server pushes `gradient` and
 * pulls `parameters`. */
typedef struct twill_tensor {
    const char *name; /**< unique in the set, not empty; copied */
    size_t count;     /**< elements, at least 1 */
    twill_type type;  /**< type of the gradient */
    void *gradient;   /**< memory of `count` elements, which must stay allocated until the set is
                           destroyed. If NULL the set provides it, and no copy is ever made */
    void *parameters; /**< NULL, or memory of `count` elements of the type, which must stay
                           allocated until the set is destroyed. twill_gradients_check() compares
                           it. A set with an optimizer writes it, and provides it if this is NULL */
    int priority;     /**< ::TWILL_BUCKETS_BY_PRIORITY reduces lower numbers first. Usually the
                           index, as the next forward pass needs the first layers first. A
                           parameter server does not read it */
    int uncompressed; /**< 1 if it is never compressed, as suits biases, norms and embeddings */
} twill_tensor;

/** \brief Counters of a set since it was committed, as twill_gradients_count() stores them. */
typedef struct twill_gradients_counters {
    uint64_t steps;           /**< completed steps */
    uint64_t operations;      /**< reductions started */
    uint64_t bytes;           /**< bytes reduced */
    uint64_t bytes_copied;    /**< bytes copied into and out of buckets */
    uint64_t bytes_exchanged; /**< what this rank contributed to `bytes`, less if compressed */
    uint64_t bytes_converted; /**< bytes of gradients encoded and decoded */
    uint64_t buckets;         /**< present number of buckets */
    uint64_t agreements;      /**< exchanges that decided the order (::TWILL_BUCKETS_BY_PRIORITY) */
    uint64_t state_bytes;     /**< optimizer state on this rank, master weights included */
    double gradient_norm;     /**< with optimizer.clip_norm, the norm of the gradients of the last
                                   step that was updated, before clipping */
    double seconds_exposed;   /**< time spent in twill_gradients_wait(), twill_gradients_wait_all()
                                   and twill_gradients_ready() */
} twill_gradients_counters;

/** \brief Rules that update parameters. The formulae are those of PyTorch (torch.optim), in f32,
 * for LARS and LAMB those of the papers. w is the weight, g the gradient, t the step from 1. */
typedef enum twill_optimizer_rule {
    TWILL_OPTIMIZER_SGD = 0, /**< g += decay w; b = momentum b + (1 - dampening) g (at first g);
                                  w -= rate (nesterov ? g + momentum b : b) */
    TWILL_OPTIMIZER_ADAGRAD, /**< g += decay w; s += g g;
                                  w -= rate / (1 + (t - 1) rate_decay) g / (sqrt(s) + epsilon) */
    TWILL_OPTIMIZER_ADAM,    /**< g += decay w, then m = beta1 m + (1 - beta1) g,
                                  v = beta2 v + (1 - beta2) g g, both divided by 1 - beta^t;
                                  w -= rate m / (sqrt(v) + epsilon) */
    TWILL_OPTIMIZER_ADAMW,   /**< w -= rate decay w; then as Adam without decay */
    TWILL_OPTIMIZER_LARS,    /**< b = momentum b + rate trust (g + decay w); w -= b;
                                  trust = trust_coefficient |w| / (|g| + decay |w|) of the tensor */
    TWILL_OPTIMIZER_LAMB,    /**< u = Adam's m / (sqrt(v) + epsilon) + decay w;
                                  w -= rate |w| / |u| u, norms of the tensor */
    TWILL_OPTIMIZER_COUNT
} twill_optimizer_rule;

/** \brief A rule and its hyperparameters. Fill it with twill_optimizer_defaults(), then change
 * members. A member that names rules is read by these only. Upper bounds are 3e38 unless given. */
typedef struct twill_optimizer {
    size_t bytes;              /**< sizeof(twill_optimizer), set by the defaults */
    twill_optimizer_rule rule; /**< which of the formulae */
    double rate;               /**< learning rate, from 0 */
    double weight_decay;       /**< from 0 */
    double momentum;           /**< SGD, LARS: 0 <= momentum < 1 */
    double dampening;          /**< SGD: 0 to 1, 0 with nesterov */
    int nesterov;              /**< SGD: 0 or 1, which needs momentum */
    double rate_decay;         /**< Adagrad: from 0 */
    double beta1, beta2;       /**< Adam, AdamW, LAMB: 0 <= beta < 1 */
    double epsilon;            /**< Adagrad, Adam, AdamW, LAMB: 2^-126 to 1 */
    double trust_coefficient;  /**< LARS: above 0 */
    double clip_norm;          /**< if above 0, and if the Euclidean norm of all reduced gradients
                                    of a step is larger, they are multiplied by clip_norm / (norm +
                                    1e-6), as by torch.nn.utils.clip_grad_norm_. Then no parameter
                                    is updated before all gradients of the step are reduced. 0 by
                                    default */
} twill_optimizer;

/** \defgroup twill_training Gradient sets
 *
 * Several threads may be in twill_gradients_ready() and twill_gradients_ready_factors() at once.
 * All other functions may be used by one thread at a time, unless stated otherwise, while others
 * are in these two. \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT (twill_gradients_message() names the
 * argument and the tensor), or any failure of a collective.
 * @{ */
/** \brief Fill options with the defaults. Local. */
TWILL_API void twill_gradients_defaults(twill_gradients_options *options);
/** \brief Create an empty set. Local. \p options may be NULL for the defaults. \p comm must outlive
 * the set. On failure *set is NULL and twill_comm_message(comm) has the reason. */
TWILL_API twill_status twill_gradients_create(twill_gradients **set, twill_comm *comm,
                                              const twill_gradients_options *options);
/** \brief Register a tensor, in the order of the forward pass. Local. The first one has index 0,
 * the next 1 and so on. *index receives it unless \p index is NULL. */
TWILL_API twill_status twill_gradients_add(twill_gradients *set, const twill_tensor *tensor,
                                           int *index);
/** \brief Fill an optimizer with the rule's defaults, those of PyTorch, or of the papers. Local. */
TWILL_API void twill_optimizer_defaults(twill_optimizer *optimizer, twill_optimizer_rule rule);
/** \brief Register the weights of a dense layer, \p rows (outputs) x \p columns (inputs) of
 * ::TWILL_F32, row after row, of which a rank has at most \p samples samples in a step. Local. The
 * gradient is the sum over samples of error x activation. If the factors are smaller than the
 * gradient, they are gathered instead, and each rank computes the sum of all ranks from them. That
 * is the gradient up to rounding, with the same bits on all ranks. options.factors may force the
 * choice, and twill_gradients_describe() shows it. */
TWILL_API twill_status twill_gradients_add_dense(twill_gradients *set, const twill_tensor *tensor,
                                                 size_t rows, size_t columns, size_t samples,
                                                 int *index);
/** \brief Mark a dense layer ready, instead of twill_gradients_ready(). \p errors has samples x
 * rows elements and \p activations samples x columns. Both may be changed when it returns. \p
 * samples is 0 up to the registered number. Any thread may call it. */
TWILL_API twill_status twill_gradients_ready_factors(twill_gradients *set, int index,
                                                     const float *errors, const float *activations,
                                                     size_t samples);
/** \brief Make the set update parameters, instead of returning reduced gradients. Local. All ranks
 * pass the same values.
 *
 * Each bucket is reduce-scattered, every rank updates its shard, and the parameters are
 * all-gathered. A rank keeps optimizer state of its shard only. Tensors are f32, or f16 or bf16
 * with master weights in f32. From twill_gradients_ready() until the tensor is waited for, its
 * parameters also belong to the set. After the wait they are updated, with the same bits on every
 * rank, and the gradient is undefined. All ranks set the same initial parameters: those in the
 * caller's memory before the first twill_gradients_ready(), those in the set's memory after the
 * commit.
 *
 * With options.late there are two copies of the parameters. twill_gradients_parameters() returns
 * those of the last result, and the update of a step may write the others once its tensors are
 * ready. The caller may change parameters only while no result is outstanding, and then calls
 * twill_gradients_reload(), for f32 also.
 *
 * After the commit this may be called again between steps, to change hyperparameters such as the
 * rate. Within a step, or if the rule or whether there is momentum changes, it returns
 * ::TWILL_ERR_ARGUMENT. */
TWILL_API twill_status twill_gradients_set_optimizer(twill_gradients *set,
                                                     const twill_optimizer *optimizer);
/** \brief Return the parameters of a tensor of a set with an optimizer, in the caller's memory or
 * the set's (zeros after the commit). With options.late ask for it in each step. Returns NULL for
 * an unknown index, before the commit, or without an optimizer. Any thread may call it. */
TWILL_API void *twill_gradients_parameters(const twill_gradients *set, int index);
/** \brief Make the next step read the master weights from the parameters again. All ranks call it,
 * between steps, if the caller has changed f16 or bf16 parameters or, with options.late, any.
 * Local. ::TWILL_ERR_ARGUMENT without an optimizer or while a late result is outstanding. */
TWILL_API twill_status twill_gradients_reload(twill_gradients *set);
/** \brief Return in *bytes how many bytes twill_gradients_state_export() writes on this rank.
 * Local, after the commit. It changes with buckets (options.autotune, compression_automatic). */
TWILL_API twill_status twill_gradients_state_bytes(const twill_gradients *set, size_t *bytes);
/** \brief Write the optimizer state of this rank's shards to \p state, which has \p bytes bytes.
 * Local, between steps, with no late result outstanding. The export has the number of updates and
 * the master weights of f16 and bf16 parameters, and says which elements of which tensors it
 * covers. With compression and error feedback it also has this rank's residual, 4 bytes for each
 * element that is compressed. Parameters, which all ranks have, are not in it. */
TWILL_API twill_status twill_gradients_state_export(twill_gradients *set, void *state,
                                                    size_t bytes);
/** \brief Continue with exported state. Collective, between steps, at the earliest after the
 * commit.
 *
 * The set has the same tensors and rule as the set that was exported, but may have other ranks,
 * buckets and threads. Each rank passes any number of exports (\p count, which may be 0), such as
 * its own, a copy of another rank's, or all of them, read from a checkpoint. Together they must be
 * of one step and cover every element of every tensor. An element that several ranks pass is taken
 * from one of them. Ranks send each other what their shards need. The caller restores the
 * parameters of the same step. A residual goes to the rank of the same number if that passes the
 * export, or else to the lowest rank that does. Residuals of exports that no rank passes are lost.
 * \return ::TWILL_OK, any failure of a collective, or ::TWILL_ERR_ARGUMENT on all ranks if an
 * element is missing or an export of one rank cannot be imported. Then the set is unchanged. */
TWILL_API twill_status twill_gradients_state_import(twill_gradients *set, const void *const *states,
                                                    const size_t *bytes, size_t count);
/** \brief End the registration. Collective. Ranks compare options and names, counts, types,
 * priorities and order of the tensors. A difference is ::TWILL_ERR_MISMATCH on all ranks, and the
 * message names the tensor and the ranks. */
TWILL_API twill_status twill_gradients_commit(twill_gradients *set);
/** \brief Return the gradient memory of a tensor, the caller's or the set's (aligned to 64 bytes,
 * zeros after the commit). With options.late the set alternates between two, so ask in each step.
 * NULL for an unknown index, or if it is the set's before the commit. Any thread may call it. */
TWILL_API void *twill_gradients_memory(const twill_gradients *set, int index);
/** \brief Return where the last result of a tensor is, which is twill_gradients_memory() of the
 * step that it belongs to. With options.late it is valid until the next step's gradient is written.
 * Returns NULL as twill_gradients_memory() does. */
TWILL_API void *twill_gradients_result(const twill_gradients *set, int index);
/** \brief Turn lateness on (1) or off (0) between steps, in a set of options.late. Local, on all
 * ranks. While it is on, twill_gradients_wait_all() of step n delivers the result of step n - 1, so
 * that a whole step hides the exchange. The first one delivers zeros. A set of options.late holds
 * gradients twice, and copies those in the caller's memory. Results overwrite them only in
 * twill_gradients_wait(), twill_gradients_wait_all() and twill_gradients_drain(). Before lateness
 * is turned off for the last steps of a run, call twill_gradients_drain(). */
TWILL_API twill_status twill_gradients_set_late(twill_gradients *set, int late);
/** \brief Wait for the result that is outstanding after the last late step, and deliver it. On all
 * ranks, between steps. Returns ::TWILL_ERR_ARGUMENT if there is none. */
TWILL_API twill_status twill_gradients_drain(twill_gradients *set);

/** \brief Mark a tensor ready, as its gradient is complete. The gradient then belongs to the set
 * until the tensor is waited for. Starts the reduction of the bucket if this was the last of its
 * tensors, and returns soon. Any thread may call it. Ranks may mark tensors in different orders.
 * Marking one twice in a step returns ::TWILL_ERR_ARGUMENT. */
TWILL_API twill_status twill_gradients_ready(twill_gradients *set, int index);
/** \brief Advance the reductions, and set *done to 1 if the tensor's result is complete, else to 0.
 * If \p index is -1, it is asked about all tensors. */
TWILL_API twill_status twill_gradients_test(twill_gradients *set, int index, int *done);
/** \brief Wait until the tensor's reduced gradient is in its memory, which then belongs to the
 * caller. It is an error, which names the tensor, if no thread marks it within TWILL_TIMEOUT. */
TWILL_API twill_status twill_gradients_wait(twill_gradients *set, int index);
/** \brief Wait for all tensors, and end the step. With options.autotune, each of the first steps
 * tries other bucket sizes. All ranks then take the fastest, which twill_gradients_describe() shows
 * in the form that TWILL_GRADIENTS accepts. */
TWILL_API twill_status twill_gradients_wait_all(twill_gradients *set);

/** \brief Ask whether the ranks have agreed to stop, after a twill_stop() on one of them
 * (twill_recover.h). All ranks call it after the same step. Local, and it waits for nothing. If so,
 * *after is the number, from 1, of the step by which all ranks knew of the wish, and else 0. It is
 * the same on all ranks. With an optimizer nothing is agreed if each bucket leaves some rank
 * without a shard. With options.late the ranks know one step later, when the result of the step
 * that carried the wish is delivered. Then call twill_gradients_drain(), and save. */
TWILL_API twill_status twill_gradients_stop_requested(twill_gradients *set, uint64_t *after);

/** \brief Compare the parameters of all tensors over the ranks, or the gradient of a tensor without
 * parameters. Collective, between steps. A difference is ::TWILL_ERR_MISMATCH on all ranks, and the
 * message names the first tensor that differs and the ranks. */
TWILL_API twill_status twill_gradients_check(twill_gradients *set);

/** \brief Store the counters of the set in *counters. Any thread may call it. */
TWILL_API twill_status twill_gradients_count(const twill_gradients *set,
                                             twill_gradients_counters *counters);
/** \brief Store in *counters those of the set's own communicators, added over all communication
 * threads. Any thread may call it, after the commit. */
TWILL_API twill_status twill_gradients_traffic(const twill_gradients *set,
                                               twill_counters *counters);
/** \brief Return line 0, 1, ... that says where the time of the set's reductions went since the
 * commit and which ranks came last, as twill_comm_times() does, for each communication thread. NULL
 * past the end. Call it between steps. The text is valid until the next call on the set. */
TWILL_API const char *twill_gradients_times(twill_gradients *set, size_t index);
/** \brief Return line 0, 1, ... of a description of options, buckets with their tensors, and
 * communication threads. NULL past the end. The text is valid until the next call on the set. */
TWILL_API const char *twill_gradients_describe(twill_gradients *set, size_t index);
/** \brief Return the last failure on the set as a sentence, or "" if there was none. The sentence
 * about a wrong argument is valid until the next call on the set, in any thread. */
TWILL_API const char *twill_gradients_message(const twill_gradients *set);
/** \brief Free a set, or NULL, after its reductions. Collective after a commit unless broken. */
TWILL_API void twill_gradients_destroy(twill_gradients *set);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
