/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill_train.h
 * \brief Gradient sets: the communication of a training step, overlapped with the backward pass.
 *
 * A gradient set holds the tensors of a model. Ranks register the same tensors once, commit the
 * set, and in every step mark each tensor ready as the backward pass produces its gradient, and
 * wait for the result. Small tensors are fused into buckets; a bucket is reduced as soon as all of
 * its tensors are ready, while the backward pass goes on.
 *
 * Conventions are those of twill.h. A set has communicators of its own, so that the caller's may be
 * used at any time. After a failure the set is broken: its calls return ::TWILL_ERR_BROKEN, and
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
    TWILL_BUCKETS_BACKWARD = 0, /**< from the last tensor to the first. Nothing is exchanged to keep
                                   the order: a bucket waits for those before it. */
    TWILL_BUCKETS_BY_PRIORITY   /**< of the buckets that are ready on all ranks, the one with the
                                lowest priority number first; it overtakes larger ones between
                                their segments. Ranks agree by a reduction of some bytes a
                                segment. */
} twill_bucket_order;

/** \brief What travels instead of gradients of ::TWILL_F32. */
typedef enum twill_compression {
    TWILL_COMPRESS_NONE = 0, /**< the gradients */
    TWILL_COMPRESS_F16,      /**< ::TWILL_F16, half the bytes */
    TWILL_COMPRESS_BF16,     /**< ::TWILL_BF16, half the bytes */
    TWILL_COMPRESS_F8E4M3,   /**< blocks of 256 ::TWILL_F8E4M3 with a scale: 260 of 1024 bytes */
    TWILL_COMPRESS_F8E5M2,   /**< blocks of 256 ::TWILL_F8E5M2 with a scale */
    TWILL_COMPRESS_INT8,     /**< blocks of 256 ::TWILL_I8 with a scale */
    TWILL_COMPRESS_TOP_K,    /**< the largest elements of each rank, 8 bytes each */
    TWILL_COMPRESS_THRESHOLD /**< elements from a magnitude on, 8 bytes each */
} twill_compression;

/** \brief What is exchanged for a layer of twill_gradients_add_dense(). */
typedef enum twill_factors_choice {
    TWILL_FACTORS_BY_PRICE = 0, /**< what takes less time by its price, multiplications included,
                                     whose rate is measured at the commit; all ranks agree */
    TWILL_FACTORS_GATHERED,     /**< the factors of all ranks */
    TWILL_FACTORS_REDUCED       /**< the gradient */
} twill_factors_choice;

/** \brief Options of a set. Fill with twill_gradients_defaults(), then change members. All ranks
 * pass the same values. The variable TWILL_GRADIENTS overrides them, see twill(7). */
typedef struct twill_gradients_options {
    size_t bytes;              /**< sizeof(twill_gradients_options), set by the defaults */
    twill_op op;               /**< ::TWILL_AVG (default) or ::TWILL_SUM */
    double scale;              /**< factor of every gradient before it is added, so that sums of
                                    16-bit floats do not overflow; 1 by default, not 0 */
    size_t bucket_bytes;       /**< tensors are fused up to this size, 8 MiB by default; one that is
                                    larger is a bucket of its own, and never copied. 0: no fusion */
    size_t first_bucket_bytes; /**< size of the first bucket, which starts early: 1 MiB */
    size_t segment_bytes; /**< ::TWILL_BUCKETS_BY_PRIORITY: a bucket is reduced in segments of this
                               size, at least 4 KiB: 1 MiB */
    twill_bucket_order order; /**< ::TWILL_BUCKETS_BACKWARD by default */
    int autotune;             /**< 1: search for the best bucket sizes in the first steps, late
                                   ones included, see twill_gradients_wait_all(); 0 by default */
    int check_every;          /**< compare the parameters of the ranks at the end of every N-th step
                                   (twill_gradients_check()); 0, the default: never */
    int report_every;         /**< rank 0 prints where the time went (twill_gradients_times()) at
                                   the end of every N-th step, and for all steps when the set is
                                   destroyed; 0, the default: never */
    twill_factors_choice factors;  /**< ::TWILL_FACTORS_BY_PRICE by default */
    int late;                      /**< 1: a step delivers the result of the step before, see
                                        twill_gradients_set_late(); 0 by default */
    twill_compression compression; /**< of tensors of ::TWILL_F32; none by default. twill(7) has the
                                        errors */
    int compression_automatic;     /**< 1: compress only buckets for which it pays, by their price
                                        and by a trial of some steps; 0 by default */
    int error_feedback;            /**< 1, the default: what compression loses is added to the
                                        next step's gradient */
    double compression_ratio;      /**< top-k and threshold: most of a bucket's elements that a
                                        rank sends, 0.01: one of a hundred */
    double compression_threshold;  /**< threshold: magnitude of a gradient times scale, with what is
                                        left of former steps, from which it is sent */
    int threads; /**< communication threads, each with buckets and a network endpoint
                      of its own; 0, the default: none, reductions start in
                      twill_gradients_ready() and advance inside calls, or as
                      TWILL_PROGRESS says. At most 64 */
} twill_gradients_options;

/** \brief A tensor to be registered. */
typedef struct twill_tensor {
    const char *name; /**< unique in the set, not empty; copied */
    size_t count;     /**< elements, at least 1 */
    twill_type type;  /**< type of the gradient */
    void *gradient;   /**< memory of `count` elements, which stays allocated until the set is
                           destroyed; NULL: the set provides it, and no copy is ever made */
    void *parameters; /**< NULL, or memory of `count` elements of the type, which stays
                           allocated until the set is destroyed: compared by
                           twill_gradients_check(), and written by a set with an optimizer,
                           which provides the memory if this is NULL */
    int priority;     /**< ::TWILL_BUCKETS_BY_PRIORITY: lower numbers first. Usually the index, as
                           the first layers are needed first by the next forward pass */
    int uncompressed; /**< 1: never compressed, as suits biases, norms and embeddings */
} twill_tensor;

/** \brief Counters of a set since it was committed. */
typedef struct twill_gradients_counters {
    uint64_t steps;           /**< completed steps */
    uint64_t operations;      /**< reductions started */
    uint64_t bytes;           /**< bytes reduced */
    uint64_t bytes_copied;    /**< bytes copied into and out of buckets */
    uint64_t bytes_exchanged; /**< what this rank contributed to the reductions of `bytes`: less
                                   where buckets are compressed */
    uint64_t bytes_converted; /**< bytes of gradients encoded, and decoded */
    uint64_t buckets;         /**< buckets at present */
    uint64_t agreements;      /**< exchanges that decided the order (::TWILL_BUCKETS_BY_PRIORITY) */
    uint64_t state_bytes;     /**< optimizer state on this rank, master weights included */
    double gradient_norm;     /**< with optimizer.clip_norm: norm of the gradients of the last step
                                   that was updated, before they are clipped */
    double seconds_exposed;   /**< time spent waiting in twill_gradients_wait(),
                                   twill_gradients_wait_all() and twill_gradients_ready() */
} twill_gradients_counters;

/** \brief Rules that update parameters. Formulae are those of PyTorch's documentation
 * (torch.optim), in f32; for LARS and LAMB of the papers. w is the weight, g the gradient, t the
 * step from 1. */
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

/** \brief A rule and its hyperparameters. Fill with twill_optimizer_defaults(), then change
 * members. Those that the rule does not name are not read. */
typedef struct twill_optimizer {
    size_t bytes; /**< sizeof(twill_optimizer), set by the defaults */
    twill_optimizer_rule rule;
    double rate;              /**< learning rate, from 0 */
    double weight_decay;      /**< from 0 */
    double momentum;          /**< SGD, LARS: 0 <= momentum < 1 */
    double dampening;         /**< SGD: 0 to 1, 0 with nesterov */
    int nesterov;             /**< SGD: 0 or 1; needs momentum */
    double rate_decay;        /**< Adagrad: from 0 */
    double beta1, beta2;      /**< Adam, AdamW, LAMB: 0 <= beta < 1 */
    double epsilon;           /**< Adagrad, Adam, AdamW, LAMB: 2^-126 to 1 */
    double trust_coefficient; /**< LARS: above 0 */
    double clip_norm;         /**< above 0: if the Euclidean norm of all reduced gradients of a
                                   step is larger, they are multiplied by clip_norm / (norm + 1e-6),
                                   as by torch.nn.utils.clip_grad_norm_. No parameter is updated
                                   before all gradients of the step are reduced then. 0, the
                                   default: never */
} twill_optimizer;

/** \defgroup twill_training Gradient sets
 *
 * twill_gradients_ready() may be called by any thread, also by several at once; all other
 * functions by one thread at a time, while others may be in twill_gradients_ready().
 * \return ::TWILL_OK, ::TWILL_ERR_ARGUMENT (twill_gradients_message() names the argument and the
 * tensor), or any failure of a collective.
 * @{ */
/** \brief Fill options with the defaults. Local. */
TWILL_API void twill_gradients_defaults(twill_gradients_options *options);
/** \brief Create an empty set. Local. \p options may be NULL. The communicator must outlive the
 *  set. On failure *set is NULL and twill_comm_message(comm) has the reason. */
TWILL_API twill_status twill_gradients_create(twill_gradients **set, twill_comm *comm,
                                              const twill_gradients_options *options);
/** \brief Register a tensor, in the order of the forward pass. Local. The first one has index 0,
 *  the next 1 and so on; \p index, unless NULL, receives it. */
TWILL_API twill_status twill_gradients_add(twill_gradients *set, const twill_tensor *tensor,
                                           int *index);
/** \brief Fill an optimizer with the rule's defaults: those of PyTorch; for LARS and LAMB of the
 *  papers. Local. */
TWILL_API void twill_optimizer_defaults(twill_optimizer *optimizer, twill_optimizer_rule rule);
/** \brief Register the weights of a dense layer, \p rows (outputs) x \p columns (inputs) of
 *  ::TWILL_F32, row after row, of which a rank has at most \p samples samples in a step. Local.
 *
 * Its gradient is the sum over samples of error x activation. If the factors are less than the
 * gradient, they are gathered instead, and each rank computes the sum of all ranks from them: the
 * gradient up to rounding, with the same bits on all ranks. See options.factors;
 * twill_gradients_describe() shows the choice. */
TWILL_API twill_status twill_gradients_add_dense(twill_gradients *set, const twill_tensor *tensor,
                                                 size_t rows, size_t columns, size_t samples,
                                                 int *index);
/** \brief Mark a dense layer ready, instead of twill_gradients_ready(): pass errors
 *  (samples x rows) and activations (samples x columns), which may be changed when it returns. Any
 *  thread may call it. */
TWILL_API twill_status twill_gradients_ready_factors(twill_gradients *set, int index,
                                                     const float *errors, const float *activations,
                                                     size_t samples);
/** \brief Make the set update parameters, instead of returning reduced gradients. Local; all ranks
 * pass the same values.
 *
 * Each bucket is reduce-scattered, every rank updates its shard, of which alone it keeps optimizer
 * state, and the parameters are all-gathered. Tensors are f32, or f16 or bf16 with master weights
 * in f32. From twill_gradients_ready() until it is waited for, a tensor's parameters, too, belong
 * to the set; then they are updated, with the same bits on every rank, and its gradient is
 * undefined. Parameters that the caller provides must be set before the first
 * twill_gradients_ready(), those of the set after the commit; all ranks set the same ones.
 *
 * With options.late the parameters, too, are there twice: twill_gradients_parameters() returns
 * those of the last result, and the update of a step may write the others once its tensors are
 * ready. Parameters are changed by the caller only while no result is outstanding, and
 * twill_gradients_reload() is called then, for f32, too.
 *
 * After the commit it changes hyperparameters, such as the rate, but neither the rule nor whether
 * there is momentum; within a step, from the first twill_gradients_ready() on, it is refused. */
TWILL_API twill_status twill_gradients_set_optimizer(twill_gradients *set,
                                                     const twill_optimizer *optimizer);
/** \brief Return the parameters of a tensor of a set with an optimizer, the caller's or the set's
 *  (zeros after the commit; with options.late ask in each step); NULL for an unknown index, before
 * the commit or without an optimizer. Any thread may call it. */
TWILL_API void *twill_gradients_parameters(const twill_gradients *set, int index);
/** \brief Take master weights from the parameters again at the next step, after the caller has
 *  changed f16 or bf16 parameters between steps. (Changed f32 parameters need no call.) Local, on
 *  all ranks. */
TWILL_API twill_status twill_gradients_reload(twill_gradients *set);
/** \brief Return how many bytes twill_gradients_state_export() writes on this rank. After the
 * commit; the number changes when buckets do (options.autotune, compression_automatic). */
TWILL_API twill_status twill_gradients_state_bytes(const twill_gradients *set, size_t *bytes);
/** \brief Write the optimizer state of this rank's shards, the master weights of f16 and bf16
 *  parameters included, and the number of updates, to \p state (\p bytes of them), in a form that
 *  says which elements of which tensors it is of. With compression and error feedback it also has
 *  this rank's residual, 4 bytes for each element that is compressed. Local, between steps, with no
 *  late result outstanding. Parameters, which all ranks have, are not in it. */
TWILL_API twill_status twill_gradients_state_export(twill_gradients *set, void *state,
                                                    size_t bytes);
/** \brief Go on with exported state. Collective, between steps, at the earliest after the commit.
 *
 * The set has the same tensors and rule as those that the exports are of, but may have other ranks,
 * buckets and threads. Each rank passes any number of exports (\p count; 0 is allowed): its own, a
 * copy of another rank's, or all of them, read from a checkpoint. Together they are of one step and
 * have every element of every tensor; what several ranks have is taken from one of them. Ranks send
 * each other what their shards need. The caller restores the parameters, of the same step.
 * Residuals stay with the rank of the same number, if it passes that export, or else go to the
 * lowest rank that does; those of exports that no rank passes are lost. \return
 * ::TWILL_ERR_ARGUMENT on all ranks, if an element is missing or an export of one rank cannot be
 * imported; the set then goes on as before. */
TWILL_API twill_status twill_gradients_state_import(twill_gradients *set, const void *const *states,
                                                    const size_t *bytes, size_t count);
/** \brief End the registration. Collective: ranks compare options and names, counts, types,
 *  priorities and order of the tensors; a difference is ::TWILL_ERR_MISMATCH on all ranks, and the
 *  message names the tensor and the ranks. */
TWILL_API twill_status twill_gradients_commit(twill_gradients *set);
/** \brief Return the gradient memory of a tensor, the caller's or the set's (aligned to 64 bytes,
 *  zeros after the commit); NULL for an unknown index or before the commit. With options.late the
 *  set's alternates: ask for it in each step. Any thread may call it. */
TWILL_API void *twill_gradients_memory(const twill_gradients *set, int index);
/** \brief Return where the last result of a tensor is: twill_gradients_memory() of the step that it
 *  is of. With options.late it is valid until the next step's gradient is written. NULL as for
 *  twill_gradients_memory(). */
TWILL_API void *twill_gradients_result(const twill_gradients *set, int index);
/** \brief Turn lateness on or off between steps, in a set of options.late. Local, on all ranks.
 *
 * While it is on, twill_gradients_wait_all() of step n delivers the result of step n - 1, so that a
 * whole step hides the exchange; the first one delivers zeros. A set of options.late holds
 * gradients twice, and copies those in the caller's memory; they are overwritten by results in
 * twill_gradients_wait(), twill_gradients_wait_all() and twill_gradients_drain() only. For the
 * cool-down, the last steps of a run without lateness, call twill_gradients_drain() before it is
 * turned off. */
TWILL_API twill_status twill_gradients_set_late(twill_gradients *set, int late);
/** \brief Wait for the result that is outstanding and deliver it, so that nothing is lost, after
 *  the last late step. Between steps, on all ranks. \return ::TWILL_ERR_ARGUMENT if there is none.
 */
TWILL_API twill_status twill_gradients_drain(twill_gradients *set);

/** \brief Mark a tensor ready: its gradient is complete and belongs to the set until it is waited
 *  for. Starts the bucket if this was the last of its tensors. Returns soon; any thread may call
 *  it. Ranks may mark tensors in different orders. Marking one twice in a step is
 *  ::TWILL_ERR_ARGUMENT. */
TWILL_API twill_status twill_gradients_ready(twill_gradients *set, int index);
/** \brief Advance the reductions, and set *done to 1 if the tensor's result is in its memory.
 *  \p index -1: all tensors. */
TWILL_API twill_status twill_gradients_test(twill_gradients *set, int index, int *done);
/** \brief Wait until the tensor's reduced gradient is in its memory, which then belongs to the
 *  caller. A tensor that no thread marks ready within TWILL_TIMEOUT is an error that names it. */
TWILL_API twill_status twill_gradients_wait(twill_gradients *set, int index);
/** \brief Wait for all tensors, and end the step. With options.autotune, each of the first steps
 *  tries other bucket sizes; all ranks then take the fastest, which twill_gradients_describe()
 *  shows in the form that TWILL_GRADIENTS accepts. */
TWILL_API twill_status twill_gradients_wait_all(twill_gradients *set);

/** \brief Compare the parameters of all tensors, or where a tensor has none, its gradient, over the
 *  ranks. Collective, between steps. A difference is ::TWILL_ERR_MISMATCH on all ranks; the message
 *  names the first tensor that differs and the ranks. */
TWILL_API twill_status twill_gradients_check(twill_gradients *set);

/** \brief Read the counters. Any thread may call it. */
TWILL_API twill_status twill_gradients_count(const twill_gradients *set,
                                             twill_gradients_counters *counters);
/** \brief Read the counters of the set's own communicators, those of all communication threads
 *  added. Any thread may call it. \return ::TWILL_ERR_ARGUMENT also before the commit. */
TWILL_API twill_status twill_gradients_traffic(const twill_gradients *set,
                                               twill_counters *counters);
/** \brief Return line 0, 1, ... of where the time of the set's reductions went since the commit, as
 *  twill_comm_times() does for a communicator, and which ranks came last; for one communication
 *  thread after the other. NULL past the end. Between steps; the text is valid until the next call
 *  on the set. */
TWILL_API const char *twill_gradients_times(twill_gradients *set, size_t index);
/** \brief Return line 0, 1, ... of a description: options, buckets with their tensors, and where
 * each communication thread runs, with its endpoints; NULL past the end. The text is valid until
 * the next call on the set. */
TWILL_API const char *twill_gradients_describe(twill_gradients *set, size_t index);
/** \brief Return the last failure on the set as a sentence, "" if there was none. That of a wrong
 *  argument is valid until the next call on the set, in any thread. */
TWILL_API const char *twill_gradients_message(const twill_gradients *set);
/** \brief Free a set. Collective after a commit, unless the set is broken; waits for reductions in
 *  progress. NULL is allowed. */
TWILL_API void twill_gradients_destroy(twill_gradients *set);
/** @} */

#ifdef __cplusplus
}
#endif
#endif
