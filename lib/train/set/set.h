/* SPDX-License-Identifier: Apache-2.0 */
/* A gradient set, with its tensors and the buckets that they are fused into.
 *
 * The memory of a bucket is a range of its type's arena, in which tensors lie from the last to the
 * first. Bucket sizes change ranges but no addresses, so tensors in an arena are never copied.
 *
 * A set that may run one step late (options.late) has two generations of buckets and arenas, which
 * steps use alternately. So gradients are computed while those of the step before are reduced.
 *
 * Steps are counted, not flagged: a tensor has been marked ready n times, and a bucket has been
 * reduced m times. So the threads that mark tensors ready need no lock, and nothing is reset.
 *
 * A step is ordered as follows. `arrived` (acquire and release) shows the last thread that marks a
 * tensor what the others have copied. Its `filled` (release) lets the reducer read the bucket. The
 * reducer's `ended` (release) lets the waiting thread read the result. Only the waiting thread, of
 * which there is one at a time, writes `reduced`, `step` and `late.delivered`. Buckets are divided
 * anew between steps. No thread marks a tensor then, but others may read counters. */
#ifndef TWILL_TRAIN_SET_H
#define TWILL_TRAIN_SET_H

#include "algorithms/select/ways.h"
#include "lib/extend.h"
#include "lib/train/shared/shared.h"

#define TWILL_BUCKET_ALIGN  64u                /* bytes: alignment of tensors in an arena */
#define TWILL_TENSORS_MOST  (1u << 20)         /* most tensors of a set */
#define TWILL_FUSED_TO_MOST ((size_t)64 << 20) /* bytes of the largest bucket of autotuning */
#define TWILL_CUT_LEAST     ((size_t)16 << 20) /* bytes: no smaller tensor has several buckets */
struct twill_reducer;
struct twill_update;
struct twill_searches;
struct twill_compressor;
/* A registered tensor of a set. Made by twill_gradients_add(), freed with the set. Constant after
 * the commit, except `marked` and `bucket`. */
struct twill_train_tensor {
    char *name;
    size_t count, bytes;
    twill_type type;
    int priority;
    unsigned char *own;        /* the caller's gradient, or NULL if it lies in the set's memory */
    void *parameters;          /* the caller's parameters, or NULL */
    size_t parameter_place;    /* like `place`, in the arena of parameters */
    struct twill_dense *dense; /* NULL if it has no factors */
    bool raw;                  /* never compressed */
    bool promoted;             /* `own` is, until the set is destroyed */
    bool whole;                /* never cut, as its update needs norms of the whole */
    size_t residual;           /* index in the set's residuals, if it may be compressed */
    size_t place;              /* offset in the arena of its type, or SIZE_MAX if it has none */
    uint32_t bucket;           /* in generation 0, which changes between steps if bucket sizes do */
    uint32_t buckets;          /* of a large tensor several, from `bucket` on, else 1 */
    _Atomic uint64_t marked;   /* number of times it was marked ready */
};

/* How a bucket is compressed (lib/train/compression). A part of struct twill_bucket. A unit of the
 * code is an element, a block or a list entry, by the coder. Constant during steps, except
 * `flushes`. */
struct twill_wire {
    bool used;             /* the bucket is compressed */
    bool flushes;          /* it is not, and the next step adds what the residual holds */
    float *residual;       /* [bucket->count], or NULL without error feedback */
    unsigned char *memory; /* codes or, if sparse, the lists of all ranks and scratch for one */
    size_t units;          /* units of the code for the bucket, or most of them in its lists */
    size_t entries;        /* of the units, in each segment of a list but the last */
};

/* Tensors that are reduced together, or a part of a large one. They are `tensors` in number, of one
 * type, from index `first` on in set->backward. twill_set_divide() makes it,
 * twill_set_free_buckets() frees it. The last members count steps. */
struct twill_bucket {
    uint32_t first, tensors;
    size_t from; /* first element of its only tensor, of which other buckets have the rest, or 0 */
    twill_type type;
    twill_op op;
    unsigned char *memory; /* in an arena, or the memory of its only tensor */
    size_t count;          /* elements, including gaps between tensors */
    bool raw;              /* its tensors are never compressed */
    uint32_t generation;   /* 1 for every second step of a late set, else 0 */
    bool copies;           /* some of its tensors lie in the caller's memory and are copied */
    bool watched;          /* its reductions look for a NaN, so this is not done before them */
    int priority;          /* lowest priority number of its tensors */
    uint32_t reducer;      /* index of the reducer that reduces it */
    size_t segment;        /* elements, or units of the code, in each segment but the last */
    uint32_t segments;
    twill_request **request; /* [segments] persistent */
    struct twill_wire wire;
    const struct twill_dense *dense; /* NULL unless it gathers factors */
    float *factors;                  /* factors of all ranks, from twill_alloc() */
    /* Counted over all steps. */
    _Atomic uint64_t arrived; /* tensors marked ready */
    _Atomic uint64_t filled;  /* steps in which all its tensors were marked, and encoded */
    _Atomic uint64_t reduced; /* reductions whose results are in the tensors' memory */
    _Atomic uint64_t ended;   /* segments that are complete */
    uint64_t agreed;          /* steps for which all ranks are known to be ready, by the reducer */
    uint64_t started;         /* segments begun, by the reducer */
};

/* Memory of all tensors of one type in a set. Constant after the commit. */
struct twill_arena_of_type {
    unsigned char *memory; /* from twill_alloc(), `bytes` for each generation, or NULL */
    size_t bytes;
    twill_op op; /* the set's, or a created one with the set's scale */
};

/* The search for a NaN in a set (TWILL_FIRST_NAN), step by step. Then it rests. */
enum twill_nan_state {
    TWILL_NAN_SOUGHT,  /* tensors are looked at as they are marked ready */
    TWILL_NAN_WRITTEN, /* the thread that has found one writes its text */
    TWILL_NAN_FOUND,   /* the next thread that fills a bucket tells the other ranks */
    TWILL_NAN_TOLD,
    TWILL_NAN_FAILS /* told, and the next reduction fails with the text */
};

/* The work of the steps, for the caller's counters. The thread that waits writes non-atomics. They
 * are the completed steps, the bytes of reduced buckets, and what this rank contributed to these,
 * which is less if compressed. */
struct twill_gradients_usage {
    uint64_t steps, bytes, bytes_exchanged;
    /* reductions started by the reducers, and exchanges that decided their order */
    _Atomic uint64_t operations, agreements;
    _Atomic uint64_t bytes_converted; /* encoded and decoded */
    _Atomic uint64_t bytes_copied;    /* also by threads that mark tensors ready */
    _Atomic uint64_t ns_exposed;      /* time in calls that wait or mark tensors ready */
    /* The buckets of a step, and the bytes of optimizer state here, which any thread may read. */
    _Atomic uint32_t buckets;
    _Atomic size_t state_bytes;
    uint64_t stop; /* step after which all ranks agreed to stop, or 0; of the thread of a step */
    struct {
        _Atomic int state; /* enum twill_nan_state */
        char text[240];    /* which element of which rank is the first NaN or infinity, and when */
        struct twill_nan_watch watch; /* of reductions; constant after the commit */
    } nan;
};

/* A gradient set. Made by twill_gradients_create() and freed by twill_gradients_destroy(). */
struct twill_gradients {
    struct twill_extend_process process;
    twill_comm *parent; /* the caller's communicator */
    twill_comm *comm;   /* the first reducer's, for work between steps, or NULL at first */
    struct twill_gradients_options options;
    bool committed;
    _Atomic bool broken;
    struct twill_error error; /* first failure; under refusals.writing until `broken` */
    struct {
        struct twill_error last; /* last bad argument; under `writing` */
        _Atomic bool writing;
    } refusals;

    struct twill_train_tensor *tensor; /* [tensors], allocated for the next power of two */
    uint32_t tensors;
    uint32_t *backward; /* [tensors] indices by type, then from last to first */
    struct twill_arena_of_type arena[TWILL_TYPE_COUNT];
    struct twill_bucket *bucket;
    uint32_t buckets;         /* of all generations, one after the other */
    uint32_t generations;     /* 2 in a set of options.late, else 1 */
    _Atomic uint64_t step;    /* number of complete steps */
    _Atomic uint32_t markers; /* number of threads in twill_gradients_ready() */
    struct {
        bool on;                    /* a step delivers the result of the step before */
        bool outstanding;           /* the result of the last step has not been delivered */
        bool carried;               /* and lies complete in the memory of the last generation */
        _Atomic uint32_t delivered; /* generation of the last result, at first of the parameters */
    } late;
    struct twill_compressor *compressor; /* NULL if nothing is compressed */
    struct twill_update *update;         /* NULL without an optimizer */
    struct twill_reducer *reducer;       /* [reducers] */
    uint32_t reducers;
    struct twill_searches *searches; /* in the first steps; NULL before the commit */
    struct twill_gradients_usage usage;
    char line[1024]; /* text that twill_gradients_describe() returns */
};

/* --- lib/train/set/set.c --- */
/* With TWILL_FIRST_NAN, look for a NaN or infinity in `count` elements that a tensor contributes to
 * the step in a bucket. `what` names them, which begin with element number `from`. The first one of
 * the set goes to set->usage.nan.text. Any thread that marks tensors may call it. */
void twill_set_find_nan(struct twill_gradients *set, const struct twill_bucket *bucket,
                        const struct twill_train_tensor *tensor, const char *what, size_t from,
                        const void *src, size_t count);
/* Set usage.nan.text to where the first NaN or infinity is, in element number `element` of a
 * tensor's part in a bucket, as rank `rank` contributes it. `what` is as for twill_set_find_nan().
 * Returns false, and does nothing, if one was found before. */
bool twill_set_note_nan(struct twill_gradients *set, const struct twill_bucket *bucket,
                        const struct twill_train_tensor *tensor, const char *what, int rank,
                        size_t element);
/* Return whether twill_set_find_nan() looks for one. */
static inline bool twill_set_looks(const struct twill_gradients *set)
{
    return TWILL_UNLIKELY(set->process.looks_for_nan) &&
           atomic_load(&set->usage.nan.state) == TWILL_NAN_SOUGHT;
}
/* Break the set because a call on `comm` has failed, and copy its message to set->error. Returns
 * `status`. The layers above end the reducers (twill_reducers_check()). */
twill_status twill_set_fail(struct twill_gradients *set, const twill_comm *comm,
                            twill_status status);
/* Break the set, and `comm` on all ranks, with this message, for a failure of something else than a
 * call on `comm`. Returns the status. Callers end the reducers (twill_reducers_check()). */
twill_status twill_set_fail_with(struct twill_gradients *set, twill_comm *comm, const char *call,
                                 twill_status status, const char *message);
/* Return TWILL_OK if `status`, the status of a call on `comm`, is. Otherwise break the set and
 * return `status`. */
static inline twill_status twill_set_check(struct twill_gradients *set, const twill_comm *comm,
                                           twill_status status)
{
    return status == TWILL_OK ? TWILL_OK : twill_set_fail(set, comm, status);
}
/* Refuse an argument, with a message for twill_gradients_message(). Returns TWILL_ERR_ARGUMENT. */
twill_status twill_set_refuse(struct twill_gradients *set, const char *file, int line,
                              const char *format, ...) TWILL_PRINTF(4, 5);
#define TWILL_SET_REFUSE(set, ...) twill_set_refuse((set), __FILE__, __LINE__, __VA_ARGS__)
/* Return TWILL_OK if `call` may use the set in a step. Else return TWILL_ERR_ARGUMENT (set NULL or
 * not committed), TWILL_ERR_BROKEN, or TWILL_ERR_FORKED in a forked child. */
twill_status twill_set_check_usable(struct twill_gradients *set, const char *call);
/* Return TWILL_OK between steps. Within a step, refuse the call and name a tensor marked ready. */
twill_status twill_set_check_between(struct twill_gradients *set, const char *call);
/* Set *memory to memory of twill_alloc(). An error's message has `what`. Returns the status. */
twill_status twill_set_allocate(struct twill_gradients *set, void **memory, size_t bytes,
                                const char *what);

/* --- lib/train/set/buckets.c --- */
/* Allocate the arenas, zeroed, and place the tensors in them. Also make set->backward and the
 * operation of each type. Returns TWILL_OK or the error. */
twill_status twill_set_place(struct twill_gradients *set);
/* Divide the tensors into buckets by the options, between steps. Returns TWILL_OK or the error. */
twill_status twill_set_divide(struct twill_gradients *set);
/* Promote the caller's gradients that are buckets, if the options allow that. Those that cannot be
 * promoted stay as they are. */
void twill_set_promote(struct twill_gradients *set);
/* Free the buckets and their factors. Their requests have been freed. */
void twill_set_free_buckets(struct twill_gradients *set);
/* Copy bytes between the caller's memory and the set's, which do not overlap. Threads of the rank
 * share the work. Any thread may call it. */
void twill_set_copy(const struct twill_gradients *set, void *to, const void *from, size_t bytes);
/* Record for a timeline that a tensor is ready. Copy it, or the bucket's part of it, into the
 * bucket, unless the bucket's memory is that of the tensor. */
void twill_bucket_fill(struct twill_gradients *set, const struct twill_bucket *bucket,
                       const struct twill_train_tensor *tensor);
/* Copy the tensors of a bucket from the set's memory to the caller's, where these differ, and
 * record that for a timeline. */
void twill_bucket_empty(struct twill_gradients *set, const struct twill_bucket *bucket);
/* Add `segments` to bucket->ended, the number of its complete segments. After the last segment of a
 * step, record the bucket's end for a timeline. */
void twill_bucket_end(struct twill_gradients *set, struct twill_bucket *bucket, uint32_t segments);
/* Record an event, about tensor or bucket `index` and its bytes, in the trace of the caller's
 * communicator. Any thread may call it. */
void twill_set_record(const struct twill_gradients *set, enum twill_trace_kind kind, uint32_t index,
                      size_t bytes);
/* Return tensor i of a bucket. */
static inline struct twill_train_tensor *twill_bucket_tensor(const struct twill_gradients *set,
                                                             const struct twill_bucket *bucket,
                                                             uint32_t i)
{
    return &set->tensor[set->backward[bucket->first + i]];
}
/* Return the bytes of a bucket's elements, with gaps. */
static inline size_t twill_bucket_bytes(const struct twill_bucket *bucket)
{
    return bucket->count * twill_type_size(bucket->type);
}
/* Return where a tensor's gradient lies in the set's memory, in a generation (0 or 1). The tensor
 * must have a place there (tensor->place is not SIZE_MAX). */
static inline unsigned char *twill_tensor_place(const struct twill_gradients *set,
                                                const struct twill_train_tensor *tensor,
                                                uint32_t generation)
{
    const struct twill_arena_of_type *arena = &set->arena[tensor->type];
    return arena->memory + generation * arena->bytes + tensor->place;
}
/* Return how many of a tensor's bytes are in its bucket, or in one of its buckets. */
static inline size_t twill_bucket_part(const struct twill_bucket *bucket,
                                       const struct twill_train_tensor *tensor)
{
    return twill_min(tensor->bytes, twill_bucket_bytes(bucket));
}
/* Return the number of buckets of a generation. */
static inline uint32_t twill_buckets_of_step(const struct twill_gradients *set)
{
    return set->buckets / set->generations;
}
/* Return whether the tensors may be divided into buckets anew, after a step. In a set of two
 * generations, that step must have used generation 1, as steps begin with generation 0
 * afterwards. */
static inline bool twill_set_may_divide(const struct twill_gradients *set)
{
    return atomic_load(&set->step) % set->generations == 0;
}

#endif
