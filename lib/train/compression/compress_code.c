/* SPDX-License-Identifier: Apache-2.0 */
/* Encoding and decoding of buckets. */
#include "lib/train/compression/compress.h"
#include "lib/train/gradients.h"

#include <math.h>
#include <string.h>

/* --- lists ------------------------------------------------------------------------------------ */

/* Return the scratch of a bucket, for one list: indices, then values. */
static struct twill_sparse scratch_list(const struct twill_gradients *set,
                                        const struct twill_bucket *bucket)
{
    size_t ranks = (size_t)twill_comm_size(set->parent);
    uint32_t *index =
        (uint32_t *)(void *)(bucket->wire.memory + ranks * twill_wire_bytes(set, bucket));
    return (struct twill_sparse){index, (float *)(void *)(index + bucket->wire.units)};
}

/* An element that is not finite is sent before all others. What it leaves in the residual if there
 * are more of them than a list holds would spoil later steps, so that is dropped. */
static void drop_what_is_not_finite(const struct twill_bucket *bucket, const float *sent, size_t n)
{
    bool finite = true;
    for (size_t i = 0; i < n; i++)
        finite &= isfinite(sent[i]) != 0;
    for (size_t i = 0; !finite && i < bucket->count; i++)
        if (!isfinite(bucket->wire.residual[i]))
            bucket->wire.residual[i] = 0;
}

/* Write n entries to this rank's list of a segment of up to `entries`. */
static void write_segment(const struct twill_gradients *set, unsigned char *list,
                          struct twill_sparse chosen, size_t n, size_t entries)
{
    size_t head = twill_wire_list_bytes(set, 0);
    const uint32_t number[2] = {(uint32_t)n, 0};
    memcpy(list, number, head);
    memcpy(list + head, chosen.index, n * sizeof(uint32_t));
    memcpy(list + head + entries * sizeof(uint32_t), chosen.value, n * sizeof(float));
}

static void encode_list(struct twill_gradients *set, struct twill_bucket *bucket)
{
    const struct twill_compressor *c = &set->compressor;
    const struct twill_wire *wire = &bucket->wire;
    struct twill_sparse chosen = scratch_list(set, bucket);
    size_t rank = (size_t)twill_comm_rank(set->parent), n;
    if (!set->options.error_feedback)
        memset(wire->residual, 0, bucket->count * sizeof(float));
    twill_accumulate(c->kernels, wire->residual, TWILL_F32, bucket->memory, c->prescale,
                     bucket->count, c->threads);
    if (set->options.compression == TWILL_COMPRESS_TOP_K)
        n = twill_select_largest(c->kernels, wire->residual, bucket->count, wire->units, chosen);
    else
        n = twill_select_above(c->kernels, wire->residual, bucket->count, c->threshold, wire->units,
                               chosen);
    drop_what_is_not_finite(bucket, chosen.value, n);
    for (size_t from = 0; from < wire->units; from += wire->entries) {
        size_t entries = twill_min(wire->entries, wire->units - from),
               here = twill_min(entries, n > from ? n - from : 0);
        struct twill_sparse part = {chosen.index + from, chosen.value + from};
        unsigned char *lists = twill_wire_lists(set, bucket, from);
        write_segment(set, lists + rank * twill_wire_list_bytes(set, entries), part, here, entries);
    }
}

/* Add the entries of one rank's list of a segment. An index out of range, which no rank sends, adds
 * nothing. */
static void add_segment(const struct twill_gradients *set, const struct twill_bucket *bucket,
                        const unsigned char *list, size_t entries)
{
    size_t head = twill_wire_list_bytes(set, 0);
    uint32_t n = (uint32_t)entries;
    if (head > 0)
        memcpy(&n, list, sizeof(n));
    const uint32_t *index = (const uint32_t *)(const void *)(list + head);
    const float *value = (const float *)(const void *)(index + entries);
    if (n <= entries)
        (void)twill_scatter_add(bucket->memory, bucket->count, index, value, n,
                                set->compressor.after);
}

static void decode_lists(const struct twill_gradients *set, const struct twill_bucket *bucket)
{
    const struct twill_wire *wire = &bucket->wire;
    size_t ranks = (size_t)twill_comm_size(set->parent);
    memset(bucket->memory, 0, bucket->count * sizeof(float));
    for (size_t from = 0; from < wire->units; from += wire->entries) {
        size_t entries = twill_min(wire->entries, wire->units - from);
        const unsigned char *lists = twill_wire_lists(set, bucket, from);
        for (size_t r = 0; r < ranks; r++)
            add_segment(set, bucket, lists + r * twill_wire_list_bytes(set, entries), entries);
    }
}

/* --- all -------------------------------------------------------------------------------------- */

void twill_wire_add_blocks(const void *left, const void *right, void *result, size_t count,
                           twill_type type, void *user)
{
    const struct twill_compressor *c = user;
    const void *const src[] = {left, right};
    (void)type;
    twill_quantized_add(c->kernels, c->format, result, src, 2, count, c->threads);
}

/* Clear what lies between tensors. A block of NaN would leave NaN there, for all later steps. */
static void clear_gaps(const struct twill_gradients *set, const struct twill_bucket *bucket)
{
    for (uint32_t i = 0; i + 1 < bucket->tensors; i++) {
        const struct twill_train_tensor *tensor = &set->tensor[set->backward[bucket->first + i]];
        size_t gap = twill_round_up(tensor->bytes, TWILL_BUCKET_ALIGN) - tensor->bytes;
        memset(twill_tensor_place(set, tensor, bucket->generation) + tensor->bytes, 0, gap);
    }
}

static void count_conversion(struct twill_gradients *set, const struct twill_bucket *bucket)
{
    atomic_fetch_add_explicit(&set->usage.bytes_converted, bucket->count * sizeof(float),
                              memory_order_relaxed);
}

/* Add what is left from compressed steps to the gradient of one that is not. */
static void flush_residual(struct twill_gradients *set, struct twill_bucket *bucket)
{
    const struct twill_compressor *c = &set->compressor;
    twill_accumulate(c->kernels, (float *)(void *)bucket->memory, TWILL_F32, bucket->wire.residual,
                     1 / c->prescale, bucket->count, c->threads);
    memset(bucket->wire.residual, 0, bucket->count * sizeof(float));
    bucket->wire.flushes = false;
}

void twill_wire_encode(struct twill_gradients *set, struct twill_bucket *bucket)
{
    const struct twill_compressor *c = &set->compressor;
    struct twill_wire *wire = &bucket->wire;
    float *residual = set->options.error_feedback ? wire->residual : NULL;
    if (wire->flushes)
        flush_residual(set, bucket);
    if (!wire->used)
        return;
    switch (c->kind) {
    case TWILL_CODING_NARROW:
        twill_narrow(c->kernels, c->format.code, wire->memory, TWILL_F32, bucket->memory, residual,
                     c->prescale, bucket->count, c->threads);
        break;
    case TWILL_CODING_BLOCKS:
        twill_quantize(c->kernels, c->format, wire->memory, TWILL_F32, bucket->memory, residual,
                       c->prescale, bucket->count, c->threads);
        break;
    case TWILL_CODING_SPARSE:
        encode_list(set, bucket);
        break;
    }
    count_conversion(set, bucket);
}

void twill_wire_decode(struct twill_gradients *set, const struct twill_bucket *bucket)
{
    const struct twill_compressor *c = &set->compressor;
    const void *const codes[] = {bucket->wire.memory};
    if (!bucket->wire.used)
        return;
    switch (c->kind) {
    case TWILL_CODING_NARROW:
        twill_kernels_scale(c->kernels, c->format.code, bucket->memory, codes[0], &c->after, false,
                            bucket->count, c->threads);
        break;
    case TWILL_CODING_BLOCKS:
        twill_dequantize(c->kernels, c->format, TWILL_F32, bucket->memory, codes, 1, c->after,
                         bucket->count, c->threads);
        clear_gaps(set, bucket);
        break;
    case TWILL_CODING_SPARSE:
        decode_lists(set, bucket);
        break;
    }
    count_conversion(set, bucket);
}
