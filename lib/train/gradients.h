/* SPDX-License-Identifier: Apache-2.0 */
/* A gradient set: its tensors, the buckets they are fused into, and the lane that reduces them.
 *
 * The memory of a bucket is a range of an arena, one arena a type, in which tensors lie from the
 * last to the first. Other bucket sizes change the ranges, never the addresses, so a tensor in the
 * set's memory is never copied.
 *
 * A set that may run one step late (options.late) has two generations of everything: buckets and
 * arenas, used by alternate steps, so that the gradients of a step are computed while those of the
 * step before are reduced. lib/train/late.c.
 *
 * Steps are counted, not flagged: a tensor has been marked ready n times, a bucket has been
 * reduced m times. So the threads that mark tensors ready need no lock and nothing is reset.
 * Counters have 64 bits: segments of 4 KiB would wrap 32 within a training run.
 *
 * What orders a step: `arrived` (acquire and release), so that the last thread to mark a tensor
 * sees what the others copied; its `filled` (release) lets the lane read the bucket; the lane's
 * `ended` (release) lets the waiting thread read the result. `reduced`, `step` and `delivered` are
 * written by the waiting thread only, of which there is one at a time. Buckets are divided anew
 * between steps, when no thread marks a tensor, but other threads may read counters. */
#ifndef TWILL_TRAIN_GRADIENTS_H
#define TWILL_TRAIN_GRADIENTS_H

#include "lib/extend.h"
#include "lib/train/compression/compress.h"
#include "lib/train/dense.h"
#include "lib/train/lanes/lane.h"
#include "lib/train/optimizer/optimizer_state.h"
#include "lib/train/optimizer/update.h"
#include "lib/train/step_search.h"
#include "lib/twill_train.h"

#define TWILL_BUCKET_ALIGN 64u        /* bytes: where tensors begin in an arena */
#define TWILL_TENSORS_MOST (1u << 20) /* of a set */
#define TWILL_FUSED_TO_MOST                                                                        \
    ((size_t)64 << 20) /* bytes: the largest bucket that autotuning tries                          \
                        */

/* A registered tensor. Constant after the commit, but for `marked`. */
struct twill_train_tensor {
    char *name;
    size_t count, bytes;
    twill_type type;
    int priority;
    unsigned char *own;        /* the caller's memory; NULL: the tensor is in the set's */
    void *parameters;          /* the caller's, or NULL */
    size_t parameter_place;    /* as place, in the arena of parameters */
    struct twill_dense *dense; /* NULL: it has no factors */
    bool raw;                  /* never compressed */
    size_t residual;           /* of one that may be: index into the set's residuals */
    size_t place;            /* offset in the arena of its type; SIZE_MAX: it has no place there */
    uint32_t bucket;         /* of generation 0; changes between steps, if bucket sizes do */
    _Atomic uint64_t marked; /* times it was marked ready */
};

/* Tensors that are reduced together: `tensors` of them, of one type, from `first` on in
 * set->backward. Members below the line are counted per step. */
struct twill_bucket {
    uint32_t first, tensors;
    twill_type type;
    twill_op op;
    unsigned char *memory; /* in an arena, or that of its only tensor */
    size_t count;          /* elements, with gaps between tensors */
    bool raw;              /* of tensors that are never compressed */
    uint32_t generation;
    bool copies;   /* some of its tensors have memory of their own, and are copied */
    int priority;  /* the lowest of its tensors */
    uint32_t lane; /* that reduces it */
    uint32_t segments;
    twill_request **request; /* [segments] persistent */
    struct twill_wire wire;
    const struct twill_dense *dense; /* NULL: it does not gather factors */
    float *factors;                  /* of all ranks, of twill_alloc() */
    /* Steps. */
    _Atomic uint64_t arrived; /* tensors marked, in all steps */
    _Atomic uint64_t filled;  /* steps in which all its tensors were marked, and encoded */
    _Atomic uint64_t reduced; /* reductions complete, their results in the tensors' memory */
    _Atomic uint64_t ended;   /* segments complete, in all steps */
    uint64_t agreed;          /* by the lane: steps in which all ranks are ready for it */
    uint64_t started;         /* by the lane: segments begun, in all steps */
};

/* Memory of all tensors of one type. */
struct twill_arena_of_type {
    unsigned char *memory; /* of twill_alloc(), `bytes` for each generation, or NULL */
    size_t bytes;
    twill_op op; /* the set's, or one with its scale */
};

/* Autotuning: lib/train/autotune.c. */
struct twill_autotuning {
    struct twill_step_search search;
    struct twill_bucket_sizes {
        size_t bucket, first, segment;
    } * sizes; /* [search.candidates] */
};

/* The steps' results, for the caller's counters; written by the thread that waits. */
struct twill_gradients_usage {
    uint64_t steps, bytes, bytes_exchanged;
    _Atomic uint64_t operations, agreements; /* by the lanes */
    _Atomic uint64_t bytes_converted;
    _Atomic uint64_t bytes_copied; /* threads that mark tensors ready copy too */
    _Atomic uint64_t ns_exposed;
    _Atomic uint32_t buckets;   /* of a step, in the division in use: any thread may ask for it, */
    _Atomic size_t state_bytes; /* and for this, while another one divides the tensors anew */
};

struct twill_gradients {
    twill_context *context;
    struct twill_extend_process process;
    twill_comm *parent; /* the caller's */
    struct twill_gradients_options options;
    bool committed;
    _Atomic bool broken;
    struct twill_error error;   /* the first failure; under `refusing` until `broken` */
    struct twill_error refused; /* the last bad argument; under `refusing` */
    _Atomic bool refusing;

    struct twill_train_tensor *tensor;
    uint32_t tensors, tensors_held; /* registered; allocated */
    uint32_t *backward;             /* [tensors] indices by type, then from the last to the first */
    struct twill_arena_of_type arena[TWILL_TYPE_COUNT];
    struct twill_bucket *bucket;
    uint32_t buckets; /* of all generations, one after the other */
    uint32_t generations;
    _Atomic uint64_t step;      /* complete ones */
    _Atomic uint32_t markers;   /* threads in twill_gradients_ready() */
    bool late;                  /* a step delivers the result of the one before */
    bool outstanding;           /* the last step's result is not delivered */
    bool carried;               /* and lies complete in the memory of the last generation */
    _Atomic uint32_t delivered; /* generation of the last result, and of the first parameters */
    struct twill_lane *lane;    /* [lanes] */
    uint32_t lanes;
    struct twill_update *update; /* NULL: the set has no optimizer */
    struct twill_autotuning autotuning;
    struct twill_compressor compressor;
    struct twill_gradients_usage usage;
    char line[1024]; /* result of twill_gradients_describe() */
};

/* --- lib/train/set_failure.c --- */

/* Record that a call on a communicator of the lane has failed, break the set and the lane, have the
 * other lanes break, and return the status. The lane is locked, or no other thread uses the set. */
twill_status twill_gradients_fail(struct twill_lane *lane, twill_comm *comm, twill_status status);
/* Fail with a message, on all ranks: there is none yet on the communicator, as no call on it has
 * failed. Otherwise as twill_gradients_fail(). */
twill_status twill_gradients_fail_with(struct twill_lane *lane, twill_comm *comm, const char *call,
                                       twill_status status, const char *message);
/* Break the lane's communicators because the set is broken. The lane is locked. Returns
 * TWILL_ERR_BROKEN. */
twill_status twill_gradients_leave(struct twill_lane *lane);
/* Break the communicators of all lanes if the set or its parent is broken, so that no rank waits
 * for the others when it destroys them. The set has no threads any more. */
void twill_gradients_break(struct twill_gradients *set);
/* Refuse an argument: record the sentence, and return TWILL_ERR_ARGUMENT. Any thread. */
twill_status twill_gradients_refuse(struct twill_gradients *set, const char *file, int line,
                                    const char *format, ...) TWILL_PRINTF(4, 5);
#define TWILL_GRADIENTS_REFUSE(set, ...)                                                           \
    twill_gradients_refuse((set), __FILE__, __LINE__, __VA_ARGS__)

/* --- lib/train/gradients.c --- */

/* Divide the tensors into buckets and prepare their reductions. Collective, between steps. */
twill_status twill_gradients_prepare(struct twill_gradients *set);

/* --- lib/train/lanes/lane.c --- */

/* Create a communicator of the parent's ranks. The parent's message explains a failure. */
twill_status twill_gradients_duplicate(struct twill_gradients *set, twill_comm **made, bool alone);
/* Return the elements of a bucket's segments, or units of its codes; the last one may have less.
 */
size_t twill_bucket_segment(const struct twill_gradients *set, const struct twill_bucket *bucket);

/* --- lib/train/step.c --- */

/* Check that a set can be used in a step. */
twill_status twill_gradients_check_usable(struct twill_gradients *set, const char *call);
/* Check that a tensor may be marked ready, and find its bucket of this step. */
twill_status twill_gradients_check_ready(struct twill_gradients *set, const char *call, int index,
                                         struct twill_bucket **bucket);
/* Mark a tensor ready, of any kind. */
twill_status twill_gradients_mark(struct twill_gradients *set, int index);
/* Wait for the results of step number `step`, and deliver them. */
twill_status twill_gradients_wait_step(struct twill_gradients *set, uint64_t step);
/* Wait until no reduction is under way, on any lane: all ranks have then started the same ones.
 * Nothing is delivered. Between steps. */
twill_status twill_gradients_finish_late(struct twill_gradients *set);
/* Complete the result that is outstanding, so that the buckets may be divided anew: it lies in the
 * memory of its tensors, and twill_late_deliver_outstanding() delivers it. Collective, after a step
 * of the last generation. */
twill_status twill_gradients_carry(struct twill_gradients *set);
/* Wait until no thread is in twill_gradients_ready(). */
void twill_gradients_await_markers(struct twill_gradients *set);

/* --- lib/train/set_entries.c --- */

#define TWILL_COMPRESSIONS (TWILL_COMPRESS_THRESHOLD + 1)
/* Return the name of a twill_compression as TWILL_GRADIENTS has it. */
const char *twill_compression_name(twill_compression compression);

#define TWILL_SET_ENTRIES 29u  /* options, and hyperparameters of the optimizer */
#define TWILL_ENTRY_BYTES 192u /* of "name=value" */
/* Print an entry, "no optimizer" for hyperparameters of a set without. Equal texts are equal
 * values. */
void twill_set_entry_print(const struct twill_gradients *set, unsigned index,
                           char text[TWILL_ENTRY_BYTES]);
/* Print options as TWILL_GRADIENTS accepts them: sizes, order and threads, and what is not the
 * default. Returns the length; `bytes` must suffice. */
size_t twill_set_entries_describe(const struct twill_gradients *set, char *text, size_t bytes);
/* Apply the value of TWILL_GRADIENTS, or of the file that it names. */
twill_status twill_entries_apply(twill_gradients_options *options, const char *value,
                                 struct twill_error *error);

/* --- lib/train/settings.c --- */

/* Check the options and apply TWILL_GRADIENTS to them. */
twill_status twill_gradients_set_options(struct twill_gradients *set,
                                         const twill_gradients_options *options,
                                         struct twill_error *error);

/* --- lib/train/buckets.c --- */

/* Allocate the arenas and place the tensors. */
twill_status twill_gradients_place(struct twill_gradients *set);
/* Divide the tensors into buckets by options.bucket_bytes and the others. Between steps. */
twill_status twill_gradients_divide(struct twill_gradients *set);
void twill_gradients_free_buckets(struct twill_gradients *set);
/* Copy a tensor into its bucket, and all tensors of a bucket out of it, where they have memory of
 * their own. */
void twill_bucket_fill(struct twill_gradients *set, const struct twill_bucket *bucket,
                       const struct twill_train_tensor *tensor);
void twill_bucket_empty(struct twill_gradients *set, const struct twill_bucket *bucket);
/* Record what the calling thread does for a tensor, or for a bucket. */
void twill_gradients_record(const struct twill_gradients *set, enum twill_trace_kind kind,
                            uint32_t index, size_t bytes);
/* Return where a tensor lies in the set's memory. It has a place there. */
static inline unsigned char *twill_tensor_place(const struct twill_gradients *set,
                                                const struct twill_train_tensor *tensor,
                                                uint32_t generation)
{
    const struct twill_arena_of_type *arena = &set->arena[tensor->type];
    return arena->memory + generation * arena->bytes + tensor->place;
}
/* Return the buckets of a generation. */
static inline uint32_t twill_buckets_of_step(const struct twill_gradients *set)
{
    return set->buckets / set->generations;
}

/* Return whether buckets may be divided anew after the last step: it used the last generation, so
 * that the next step, again the first one of a division, may use the first. */
static inline bool twill_gradients_may_divide(const struct twill_gradients *set)
{
    return atomic_load(&set->step) % set->generations == 0;
}

/* --- lib/train/late.c --- */

/* Fill the memory of a generation with zeros: there is no result to deliver. */
void twill_late_clear(struct twill_gradients *set, uint32_t generation);
/* Copy a tensor's result that is carried to the caller's memory, if it has some. */
void twill_late_deliver(struct twill_gradients *set, uint32_t tensor);
/* Wait for the result that is outstanding, of step number `step` unless it is carried, and deliver
 * it. */
twill_status twill_late_deliver_outstanding(struct twill_gradients *set, uint64_t step);

/* --- lib/train/set_traffic.c --- */

/* Print where the time went, a line a lane on rank 0, at the end of every N-th step as
 * options.report_every asks; or all at the end. */
void twill_gradients_report(struct twill_gradients *set, bool all);

/* --- lib/train/comparison.c --- */

/* Compare the registered tensors over the ranks. Collective. */
twill_status twill_gradients_compare_tensors(struct twill_gradients *set);
/* Compare the parameters over the ranks. Collective. */
twill_status twill_gradients_compare_parameters(struct twill_gradients *set);

/* --- lib/train/autotune.c --- */

twill_status twill_autotuning_begin(struct twill_gradients *set);
/* Note the time of the step that ends, and use other sizes from the next one on. */
twill_status twill_autotuning_end_step(struct twill_gradients *set);
/* Agree on the seconds of a search of the set. Collective. */
twill_status twill_gradients_agree(struct twill_gradients *set, struct twill_step_search *search);
void twill_autotuning_free(struct twill_gradients *set);

#endif
