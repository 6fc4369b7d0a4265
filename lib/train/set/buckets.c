/* SPDX-License-Identifier: Apache-2.0 */
/* Where tensors lie in memory, and how they are divided into buckets. */
#include "kernels/kernels.h"
#include "lib/train/set/set.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a tensor that are looked at before they are copied, to copy them from the cache. */
#define LOOKED_BYTES ((size_t)64 << 10)

/* Return whether a tensor stays in the caller's memory with every bucket size, and has no place. */
static bool is_never_fused(const struct twill_gradients *set,
                           const struct twill_train_tensor *tensor)
{
    size_t most = set->options.bucket_bytes;
    if (set->generations > 1)
        return false;
    if (set->options.autotune)
        most = twill_max(most, TWILL_FUSED_TO_MOST);
    return tensor->own != NULL && tensor->bytes > most;
}

/* Set *op to the operation of a type's reductions. It is options.op or, with an optimizer, a sum.
 * If options.scale is not 1, create a scaled sum, which is freed with the set. Returns TWILL_OK, or
 * the error of creating it. */
static twill_status make_operation(struct twill_gradients *set, twill_type type, twill_op *op)
{
    *op = set->update != NULL ? TWILL_SUM : set->options.op; /* an update divides the sum */
    if (set->options.scale == 1)
        return TWILL_OK;
    double factor = set->options.scale;
    if (*op == TWILL_AVG)
        factor /= twill_comm_size(set->parent);
    float single = (float)factor;
    const void *value = type == TWILL_F64 ? (const void *)&factor : (const void *)&single;
    twill_status status = twill_op_create_scaled(set->process.context, op, type, value);
    return twill_explain(&set->error, status, twill_context_message(set->process.context));
}

/* Place the tensors of one type that are never compressed (`raw`), or those that may be, as the two
 * kinds never share a bucket. Puts them into set->backward from index n on and returns the next. */
static uint32_t place_tensors(struct twill_gradients *set, twill_type type, bool raw, uint32_t n)
{
    struct twill_arena_of_type *arena = &set->arena[type];
    for (uint32_t t = set->tensors; t-- > 0;) {
        struct twill_train_tensor *tensor = &set->tensor[t];
        if (tensor->type != type || tensor->raw != raw)
            continue;
        set->backward[n++] = t;
        tensor->place = SIZE_MAX;
        if (is_never_fused(set, tensor))
            continue;
        tensor->place = arena->bytes;
        arena->bytes += twill_round_up(tensor->bytes, TWILL_BUCKET_ALIGN);
    }
    return n;
}

twill_status twill_set_place(struct twill_gradients *set)
{
    uint32_t n = 0;
    TWILL_NEW(&set->error, set->backward, set->tensors, "tensors");
    for (int type = 0; type < TWILL_TYPE_COUNT; type++) {
        struct twill_arena_of_type *arena = &set->arena[type];
        uint32_t before = n;
        n = place_tensors(set, (twill_type)type, false, n);
        n = place_tensors(set, (twill_type)type, true, n);
        if (n == before)
            continue;
        TWILL_TRY(&set->error, make_operation(set, (twill_type)type, &arena->op));
        if (arena->bytes == 0)
            continue;
        void *memory = NULL;
        size_t bytes = arena->bytes * set->generations;
        TWILL_TRY(&set->error, twill_set_allocate(set, &memory, bytes, "for gradients"));
        arena->memory = memset(memory, 0, bytes);
    }
    return TWILL_OK;
}

/* Return how many buckets a tensor has. A large one is cut, so that reducers share it and an update
 * of one part overlaps with the reduction of the next. Codes and norms are of whole tensors. */
static uint32_t buckets_of(const struct twill_gradients *set,
                           const struct twill_train_tensor *tensor)
{
    size_t most = twill_max(set->options.bucket_bytes, TWILL_CUT_LEAST);
    return tensor->whole || tensor->dense != NULL || !tensor->raw
               ? 1
               : (uint32_t)((tensor->bytes + most - 1) / most);
}

/* Return the bytes up to which a bucket is filled. `last` is the index in set->tensor of the last
 * of its tensors, which the backward pass completes first. The limit may be lower for the bucket
 * that is complete first of all (options.first_bucket_bytes). */
static size_t bucket_limit(const struct twill_gradients *set, uint32_t last)
{
    bool first = last == set->tensors - 1; /* the backward pass begins there */
    return first ? twill_min(set->options.first_bucket_bytes, set->options.bucket_bytes)
                 : set->options.bucket_bytes;
}

/* Count *bucket, or cut it, if its only tensor has several, into as many of nearly equal size. */
static void cut_bucket(struct twill_gradients *set, struct twill_bucket *bucket, uint32_t buckets)
{
    size_t width = twill_type_size(bucket->type), whole = bucket->count,
           each = twill_round_up((whole + buckets - 1) / buckets, TWILL_BUCKET_ALIGN / width);
    for (uint32_t i = 0; i < buckets; i++) {
        struct twill_bucket *part = &bucket[i];
        if (i > 0)
            memcpy(part, bucket, sizeof(*part));
        part->from = i * each;
        part->count = twill_min(each, whole - part->from);
        part->memory += part->from * width;
    }
    set->buckets += buckets;
}

/* Make *bucket of the tensors from backward[first] on, as many as fit, and count it. Of a large
 * tensor, make several, from *bucket on. Returns how many tensors. */
static uint32_t fill_bucket(struct twill_gradients *set, struct twill_bucket *bucket,
                            uint32_t first)
{
    const struct twill_train_tensor *tensor = &set->tensor[set->backward[first]];
    size_t width = twill_type_size(tensor->type), bytes = tensor->bytes,
           limit = bucket_limit(set, set->backward[first]);
    uint32_t n = 1;
    *bucket = (struct twill_bucket){.first = first,
                                    .type = tensor->type,
                                    .op = set->arena[tensor->type].op,
                                    .priority = tensor->priority,
                                    .raw = tensor->raw};
    bool alone = tensor->place == SIZE_MAX || tensor->dense != NULL;
    for (; !alone && first + n < set->tensors; n++) {
        const struct twill_train_tensor *next = &set->tensor[set->backward[first + n]];
        if (next->type != tensor->type || next->raw != tensor->raw || next->place == SIZE_MAX ||
            next->dense != NULL)
            break;
        size_t end = next->place - tensor->place + next->bytes;
        if (end > limit)
            break;
        bytes = end;
        bucket->priority = next->priority < bucket->priority ? next->priority : bucket->priority;
    }
    bool in_place = n == 1 && tensor->own != NULL && set->generations == 1;
    for (uint32_t i = 0; !in_place && i < n; i++)
        bucket->copies |= set->tensor[set->backward[first + i]].own != NULL;
    bucket->memory = in_place ? tensor->own : twill_tensor_place(set, tensor, 0);
    bucket->count = bytes / width;
    bucket->tensors = n;
    cut_bucket(set, bucket, tensor->buckets);
    return n;
}

/* Order buckets for qsort_r() as the backward pass completes them, by their earliest tensor, and
 * those of one tensor from its begin to its end. */
static int compare_buckets(const void *left, const void *right, void *user)
{
    const struct twill_gradients *set = user;
    const struct twill_bucket *a = left, *b = right;
    uint32_t end_a = set->backward[a->first + a->tensors - 1],
             end_b = set->backward[b->first + b->tensors - 1];
    if (end_a != end_b)
        return end_a > end_b ? -1 : 1;
    return a->from < b->from ? -1 : a->from > b->from;
}

/* Add the buckets of the second generation, copies of the first ones with memory of their own. */
static void add_generation(struct twill_gradients *set)
{
    uint32_t n = set->buckets;
    for (uint32_t b = 0; b < n; b++) {
        struct twill_bucket *bucket = &set->bucket[n + b];
        memcpy(bucket, &set->bucket[b], sizeof(*bucket));
        bucket->memory += set->arena[bucket->type].bytes;
        bucket->generation = 1;
    }
    set->buckets = 2 * n;
}

twill_status twill_set_divide(struct twill_gradients *set)
{
    size_t most = 0;
    for (uint32_t t = 0; t < set->tensors; t++)
        most += set->tensor[t].buckets = buckets_of(set, &set->tensor[t]);
    TWILL_NEW(&set->error, set->bucket, most * set->generations, "buckets");
    for (uint32_t first = 0; first < set->tensors;)
        first += fill_bucket(set, &set->bucket[set->buckets], first);
    qsort_r(set->bucket, set->buckets, sizeof(*set->bucket), compare_buckets, set);
    for (uint32_t b = set->buckets; b-- > 0;)
        for (uint32_t i = 0; i < set->bucket[b].tensors; i++) {
            struct twill_train_tensor *tensor = twill_bucket_tensor(set, &set->bucket[b], i);
            tensor->bucket = b;
            atomic_store_explicit(&tensor->marked, 0, memory_order_relaxed);
        }
    if (set->generations > 1)
        add_generation(set);
    return TWILL_OK;
}

void twill_set_free_buckets(struct twill_gradients *set)
{
    for (uint32_t b = 0; b < set->buckets; b++)
        (void)twill_free(set->process.context, set->bucket[b].factors);
    free(set->bucket);
    set->bucket = NULL;
    set->buckets = 0;
}

/* Count bytes that were copied between the caller's memory and the set's, in usage.bytes_copied. */
static void count_copy(struct twill_gradients *set, size_t bytes)
{
    atomic_fetch_add_explicit(&set->usage.bytes_copied, bytes, memory_order_relaxed);
}

void twill_set_record(const struct twill_gradients *set, enum twill_trace_kind kind, uint32_t index,
                      size_t bytes)
{
    twill_trace_emit_other(
        twill_extend_comm(set->parent).trace,
        (struct twill_trace_event){
            .tick = twill_ticks(), .bytes = bytes, .peer = index, .kind = (uint8_t)kind});
}

void twill_set_copy(const struct twill_gradients *set, void *to, const void *from, size_t bytes)
{
    twill_kernels_copy(set->process.kernels, to, from, bytes, 0, set->process.pool);
}

/* Look for a NaN in a tensor, or the bucket's part of it, and copy it into the bucket if `copies`,
 * from the cache if this thread does it alone. */
static void look_and_copy(struct twill_gradients *set, const struct twill_bucket *bucket,
                          const struct twill_train_tensor *tensor, bool copies)
{
    const size_t width = twill_type_size(bucket->type), bytes = twill_bucket_part(bucket, tensor),
                 begin = bucket->from * width, end = begin + bytes,
                 piece = set->process.pool == NULL && copies ? LOOKED_BYTES : bytes;
    unsigned char *place =
        tensor->place != SIZE_MAX ? twill_tensor_place(set, tensor, bucket->generation) : NULL;
    const unsigned char *from = tensor->own != NULL ? tensor->own : place;
    for (size_t at = begin; at < end; at += piece) {
        const size_t n = twill_min(piece, end - at);
        twill_set_find_nan(set, bucket, tensor, "", at / width, from + at, n / width);
        if (copies)
            twill_set_copy(set, place + at, from + at, n);
    }
}

void twill_bucket_fill(struct twill_gradients *set, const struct twill_bucket *bucket,
                       const struct twill_train_tensor *tensor)
{
    size_t bytes = twill_bucket_part(bucket, tensor),
           from = bucket->from * twill_type_size(bucket->type);
    uint32_t index = (uint32_t)(bucket - set->bucket) % twill_buckets_of_step(set);
    if (from == 0)
        twill_set_record(set, TWILL_TRACE_TENSOR_READY, (uint32_t)(tensor - set->tensor),
                         tensor->bytes);
    const bool copies = tensor->own != NULL && bucket->copies;
    if (copies)
        twill_set_record(set, TWILL_TRACE_FUSE_IN_BEGIN, index, bytes);
    if (twill_set_looks(set) && bucket->dense == NULL && !bucket->watched)
        look_and_copy(set, bucket, tensor, copies);
    else if (copies)
        twill_set_copy(set, twill_tensor_place(set, tensor, bucket->generation) + from,
                       tensor->own + from, bytes);
    if (!copies)
        return;
    twill_set_record(set, TWILL_TRACE_FUSE_IN_END, index, bytes);
    count_copy(set, bytes);
}

void twill_bucket_empty(struct twill_gradients *set, const struct twill_bucket *bucket)
{
    uint32_t index = (uint32_t)(bucket - set->bucket);
    size_t bytes = twill_bucket_bytes(bucket), from = bucket->from * twill_type_size(bucket->type);
    if (!bucket->copies)
        return;
    twill_set_record(set, TWILL_TRACE_FUSE_OUT_BEGIN, index, bytes);
    for (uint32_t i = 0; i < bucket->tensors; i++) {
        const struct twill_train_tensor *tensor = twill_bucket_tensor(set, bucket, i);
        if (tensor->own == NULL)
            continue;
        twill_set_copy(set, tensor->own + from,
                       twill_tensor_place(set, tensor, bucket->generation) + from,
                       twill_bucket_part(bucket, tensor));
        count_copy(set, twill_bucket_part(bucket, tensor));
    }
    twill_set_record(set, TWILL_TRACE_FUSE_OUT_END, index, bytes);
}

void twill_bucket_end(struct twill_gradients *set, struct twill_bucket *bucket, uint32_t segments)
{
    uint64_t ended =
        atomic_fetch_add_explicit(&bucket->ended, segments, memory_order_release) + segments;
    if (ended % bucket->segments == 0)
        twill_set_record(set, TWILL_TRACE_BUCKET_END, (uint32_t)(bucket - set->bucket),
                         twill_bucket_bytes(bucket));
}
