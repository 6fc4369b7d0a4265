/* SPDX-License-Identifier: Apache-2.0 */
/* What a gradient set has: its tensors, and the buckets that they are fused into. The folders above
 * say what is done with them.
 *
 * The memory of a bucket is a range of an arena, one arena a type, in which tensors lie from the
 * last to the first. Other bucket sizes change the ranges, never the addresses, so a tensor in the
 * set's memory is never copied.
 *
 * A set that may run one step late (options.late) has two generations of everything: buckets and
 * arenas, used by alternate steps, so that the gradients of a step are computed while those of the
 * step before are reduced. lib/train/step.c.
 *
 * Steps are counted, not flagged: a tensor has been marked ready n times, a bucket has been
 * reduced m times. So the threads that mark tensors ready need no lock and nothing is reset.
 * Counters have 64 bits: segments of 4 KiB would wrap 32 within a training run.
 *
 * What orders a step: `arrived` (acquire and release), so that the last thread to mark a tensor
 * sees what the others copied; its `filled` (release) lets the reducer read the bucket; the
 * reducer's `ended` (release) lets the waiting thread read the result. `reduced`, `step` and
 * `late.delivered` are written by the waiting thread only, of which there is one at a time. Buckets
 * are divided anew between steps, when no thread marks a tensor, but other threads may read
 * counters. */
#ifndef TWILL_TRAIN_SET_H
#define TWILL_TRAIN_SET_H

#include "algorithms/select/ways.h"
#include "lib/extend.h"
#include "lib/train/shared/shared.h"

#define TWILL_BUCKET_ALIGN 64u        /* bytes: where tensors begin in an arena */
#define TWILL_TENSORS_MOST (1u << 20) /* of a set */
/* Bytes: the largest bucket that autotuning tries. */
#define TWILL_FUSED_TO_MOST ((size_t)64 << 20)

struct twill_reducer;
struct twill_update;
struct twill_searches;
struct twill_compressor;

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

/* The codes of a bucket (lib/train/compression). Made with its division, constant during steps but
 * for `flushes`. */
struct twill_wire {
    bool used;             /* the bucket is compressed */
    bool flushes;          /* it is not, and the next step adds what is left in the residual */
    float *residual;       /* [bucket->count], or NULL: no error feedback */
    unsigned char *memory; /* codes; sparse: the lists of all ranks, then scratch for one list */
    size_t units;          /* elements, blocks, or entries of a list */
    size_t entries;        /* sparse: entries of a segment, but the last */
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
    bool copies;      /* some of its tensors have memory of their own, and are copied */
    int priority;     /* the lowest of its tensors */
    uint32_t reducer; /* that reduces it */
    size_t segment;   /* units of the exchange in a segment, but the last */
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
    uint64_t agreed;          /* by the reducer: steps in which all ranks are ready for it */
    uint64_t started;         /* by the reducer: segments begun, in all steps */
};

/* Memory of all tensors of one type. */
struct twill_arena_of_type {
    unsigned char *memory; /* of twill_alloc(), `bytes` for each generation, or NULL */
    size_t bytes;
    twill_op op; /* the set's, or one with its scale */
};

/* The steps' results, for the caller's counters; written by the thread that waits. */
struct twill_gradients_usage {
    uint64_t steps, bytes, bytes_exchanged;
    _Atomic uint64_t operations, agreements; /* by the reducers */
    _Atomic uint64_t bytes_converted;
    _Atomic uint64_t bytes_copied; /* threads that mark tensors ready copy too */
    _Atomic uint64_t ns_exposed;
    _Atomic uint32_t buckets;   /* of a step, in the division in use: any thread may ask for it, */
    _Atomic size_t state_bytes; /* and for this, while another one divides the tensors anew */
};

struct twill_gradients {
    struct twill_extend_process process;
    twill_comm *parent; /* the caller's */
    twill_comm *comm;   /* of the first reducer, for what is done between steps; NULL: not yet */
    struct twill_gradients_options options;
    bool committed;
    _Atomic bool broken;
    struct twill_error error; /* the first failure; under refusals.writing until `broken` */
    struct {
        struct twill_error last; /* bad argument; under `writing` */
        _Atomic bool writing;
    } refusals;

    struct twill_train_tensor *tensor; /* [tensors], allocated: the next power of two */
    uint32_t tensors;
    uint32_t *backward; /* [tensors] indices by type, then from the last to the first */
    struct twill_arena_of_type arena[TWILL_TYPE_COUNT];
    struct twill_bucket *bucket;
    uint32_t buckets; /* of all generations, one after the other */
    uint32_t generations;
    _Atomic uint64_t step;    /* complete ones */
    _Atomic uint32_t markers; /* threads in twill_gradients_ready() */
    struct {
        bool on;                    /* a step delivers the result of the one before */
        bool outstanding;           /* the last step's result is not delivered */
        bool carried;               /* and lies complete in the memory of the last generation */
        _Atomic uint32_t delivered; /* generation of the last result, and of the first parameters */
    } late;
    struct twill_compressor *compressor; /* NULL: nothing is compressed */
    struct twill_update *update;         /* NULL: the set has no optimizer */
    struct twill_reducer *reducer;       /* [reducers] */
    uint32_t reducers;
    struct twill_searches *searches; /* of the first steps; NULL before the commit */
    struct twill_gradients_usage usage;
    char line[1024]; /* result of twill_gradients_describe() */
};

/* --- lib/train/set/set.c --- */

/* Record that a call on one of the set's communicators has failed; the set is broken then. Returns
 * the status. Whoever called down ends the reducers. */
twill_status twill_set_fail(struct twill_gradients *set, const twill_comm *comm,
                            twill_status status);
/* Fail with a message, on all ranks: there is none yet on the communicator, as no call on it has
 * failed. Otherwise as twill_set_fail(). */
twill_status twill_set_fail_with(struct twill_gradients *set, twill_comm *comm, const char *call,
                                 twill_status status, const char *message);
/* Return TWILL_OK, or fail as a call on the communicator has. */
static inline twill_status twill_set_check(struct twill_gradients *set, const twill_comm *comm,
                                           twill_status status)
{
    return status == TWILL_OK ? TWILL_OK : twill_set_fail(set, comm, status);
}
/* Refuse an argument: record the sentence, and return TWILL_ERR_ARGUMENT. Any thread. */
twill_status twill_set_refuse(struct twill_gradients *set, const char *file, int line,
                              const char *format, ...) TWILL_PRINTF(4, 5);
#define TWILL_SET_REFUSE(set, ...) twill_set_refuse((set), __FILE__, __LINE__, __VA_ARGS__)
/* Check that a set can be used in a step. */
twill_status twill_set_check_usable(struct twill_gradients *set, const char *call);
/* Allocate memory of twill_alloc(). `what`: it is for that, in the sentence: "for gradients". */
twill_status twill_set_allocate(struct twill_gradients *set, void **memory, size_t bytes,
                                const char *what);

/* --- lib/train/set/buckets.c --- */

/* Allocate the arenas and place the tensors. */
twill_status twill_set_place(struct twill_gradients *set);
/* Divide the tensors into buckets by options.bucket_bytes and the others. Between steps. */
twill_status twill_set_divide(struct twill_gradients *set);
void twill_set_free_buckets(struct twill_gradients *set);
/* Copy a tensor into its bucket, and all tensors of a bucket out of it, where they have memory of
 * their own. */
void twill_bucket_fill(struct twill_gradients *set, const struct twill_bucket *bucket,
                       const struct twill_train_tensor *tensor);
void twill_bucket_empty(struct twill_gradients *set, const struct twill_bucket *bucket);
/* Count segments of a bucket that are complete. */
void twill_bucket_end(struct twill_gradients *set, struct twill_bucket *bucket, uint32_t segments);
/* Record what the calling thread does for a tensor, or for a bucket. */
void twill_set_record(const struct twill_gradients *set, enum twill_trace_kind kind, uint32_t index,
                      size_t bytes);

/* Return tensor i of a bucket. */
static inline struct twill_train_tensor *twill_bucket_tensor(const struct twill_gradients *set,
                                                             const struct twill_bucket *bucket,
                                                             uint32_t i)
{
    return &set->tensor[set->backward[bucket->first + i]];
}
static inline size_t twill_bucket_bytes(const struct twill_bucket *bucket)
{
    return bucket->count * twill_type_size(bucket->type);
}
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
static inline bool twill_set_may_divide(const struct twill_gradients *set)
{
    return atomic_load(&set->step) % set->generations == 0;
}

#endif
