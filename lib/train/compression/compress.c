/* SPDX-License-Identifier: Apache-2.0 */
/* The compression of a set, with operation on codes, residuals, wire buffers, prices and coding. */
#include "algorithms/select/ways.h"
#include "kernels/thread_pool.h"
#include "lib/train/compression/compression.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* Estimates. Encoding or decoding a list takes as long as this many conversions, and adding one of
 * its entries is a cache miss. In the end a trial of some steps decides. */
#define SPARSE_CONVERSIONS 2u
#define ENTRY_PICOSECONDS  2000u

/* Set the factors by which gradients are multiplied before encoding (coder.scale) and after
 * decoding (`after`), and the coder's threshold, which is for scaled gradients. */
static void choose_factors(struct twill_gradients *set)
{
    struct twill_compressor *c = set->compressor;
    int ranks = twill_comm_size(set->parent);
    double before = 1;
    if (set->options.op == TWILL_AVG)
        before = 1.0 / ranks;
    else if (c->coder.kind == TWILL_CODING_NARROW)
        for (int covered = 1; covered < ranks; covered *= 2)
            before /= 2;
    c->coder.scale = (float)(set->options.scale * before);
    c->after = set->options.op == TWILL_AVG ? 1 : (float)(1 / before);
    c->coder.threshold = (float)(set->options.compression_threshold * before);
}

/* A twill_op_fn that adds `count` blocks of codes. `user` is the compressor. `type` is not read. */
static void add_blocks(const void *left, const void *right, void *result, size_t count,
                       twill_type type, void *user)
{
    const struct twill_compressor *c = user;
    const void *const src[] = {left, right};
    (void)type;
    twill_quantized_add(c->coder.kernels, c->coder.format, result, src, 2, count, c->coder.pool);
}

/* Create c->op, which reduces codes, unless they are lists. Returns TWILL_OK or the error. */
static twill_status make_code_operation(struct twill_gradients *set)
{
    struct twill_compressor *c = set->compressor;
    twill_status status = TWILL_OK;
    if (c->coder.kind == TWILL_CODING_NARROW)
        status =
            twill_op_create_narrow(set->process.context, &c->op, c->coder.format.code, NULL, NULL);
    else if (c->coder.kind == TWILL_CODING_BLOCKS)
        status = twill_op_create(set->process.context, &c->op, add_blocks, c,
                                 twill_block_bytes(c->coder.format), 1);
    c->has_op = status == TWILL_OK && c->coder.kind != TWILL_CODING_SPARSE;
    return twill_explain(&set->error, status, twill_context_message(set->process.context));
}

/* Place the residuals of all tensors that may be compressed. Returns the number of elements. */
static size_t place_residuals(struct twill_gradients *set)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < set->tensors; i++) {
        struct twill_train_tensor *tensor = &set->tensor[set->backward[i]];
        if (tensor->raw)
            continue;
        tensor->residual = bytes / sizeof(float);
        bytes += twill_round_up(tensor->bytes, TWILL_BUCKET_ALIGN);
    }
    return bytes / sizeof(float);
}

/* Set the coder that options.compression asks for, the factors, the operation on codes and
 * `choice`. Make the chooser if that is by prices. Allocate residuals for `elements` elements,
 * those of all tensors that may be compressed. Returns TWILL_OK or the error. */
static twill_status open_compressor(struct twill_gradients *set, size_t elements)
{
    struct twill_compressor *c = set->compressor;
    const twill_gradients_options *options = &set->options;
    c->coder = twill_coder_of(set->process.kernels, options->compression,
                              options->compression_ratio, 0, options->error_feedback != 0);
    c->coder.pool = set->process.pool;
    c->choice = TWILL_WIRE_ALL;
    choose_factors(set);
    TWILL_TRY(&set->error, make_code_operation(set));
    if (twill_coder_keeps(&c->coder))
        TWILL_NEW(&set->error, c->residual, elements, "residuals");
    if (!options->compression_automatic)
        return TWILL_OK;
    c->choice = TWILL_WIRE_PRICED;
    return twill_extend_chooser(&c->chooser, set->comm, &set->error);
}

twill_status twill_compressor_open(struct twill_gradients *set)
{
    size_t elements = set->options.compression != TWILL_COMPRESS_NONE ? place_residuals(set) : 0;
    if (elements == 0)
        return TWILL_OK;
    TWILL_NEW(&set->error, set->compressor, 1, "compressor");
    return open_compressor(set, elements);
}

void twill_compressor_close(struct twill_gradients *set)
{
    struct twill_compressor *c = set->compressor;
    if (c == NULL)
        return;
    if (c->has_op)
        (void)twill_op_destroy(set->process.context, c->op);
    twill_chooser_destroy(c->chooser);
    free(c->residual);
    free(c);
    set->compressor = NULL;
}

/* Return the bytes before the entries in a segment of a list. These have the number of entries if
 * it varies, which is with threshold compression, and are 0 otherwise. */
static size_t list_head(const struct twill_gradients *set)
{
    return set->options.compression == TWILL_COMPRESS_THRESHOLD ? 8 : 0;
}

/* Return how many units fit a segment of at most `bytes` of codes, at least one. */
static size_t units_of(const struct twill_gradients *set, size_t bytes)
{
    const struct twill_coder *coder = &set->compressor->coder;
    size_t head = coder->kind == TWILL_CODING_SPARSE ? list_head(set) : 0;
    return twill_max((bytes - head) / twill_coder_unit_bytes(coder), 1);
}

/* Return the bytes of encoded gradients that this rank sends to reduce a compressed bucket once, in
 * all its segments. Lists of a varying length include their lengths. */
static size_t code_bytes(const struct twill_gradients *set, const struct twill_bucket *bucket)
{
    const struct twill_wire *wire = &bucket->wire;
    size_t heads = 0;
    if (set->compressor->coder.kind == TWILL_CODING_SPARSE)
        heads = (wire->units + wire->entries - 1) / wire->entries * list_head(set);
    return wire->units * twill_coder_unit_bytes(&set->compressor->coder) + heads;
}

/* Return the bytes of the bucket's wire buffer. */
static size_t memory_bytes(const struct twill_gradients *set, const struct twill_bucket *bucket)
{
    size_t bytes = code_bytes(set, bucket);
    if (set->compressor->coder.kind == TWILL_CODING_SPARSE)
        bytes =
            bytes * (size_t)twill_comm_size(set->parent) + bucket->wire.units * TWILL_LIST_ENTRY;
    return twill_round_up(bytes, TWILL_BUCKET_ALIGN);
}

/* Set the units, entries and residual of a bucket that can be compressed. */
static void lay_out_wire(struct twill_gradients *set, struct twill_bucket *bucket)
{
    const struct twill_compressor *c = set->compressor;
    struct twill_wire *wire = &bucket->wire;
    wire->units = wire->entries = twill_coder_units(&c->coder, bucket->count);
    if (c->coder.kind == TWILL_CODING_SPARSE && set->options.order == TWILL_BUCKETS_BY_PRIORITY)
        wire->entries = twill_min(wire->units, units_of(set, set->options.segment_bytes));
    if (c->residual != NULL)
        wire->residual = c->residual + set->tensor[set->backward[bucket->first]].residual;
}

/* Return the price, in ps, of encoding a bucket on this rank in a step and decoding the result. If
 * the codes are lists, the lists of all ranks are decoded. */
static uint64_t coding_time(struct twill_gradients *set, const struct twill_bucket *bucket)
{
    const struct twill_compressor *c = set->compressor;
    uint64_t once =
        twill_rate_time(set->process.timings->model.convert, bucket->count * sizeof(float));
    if (c->coder.kind != TWILL_CODING_SPARSE)
        return once;
    uint64_t entries = bucket->wire.units * (uint64_t)twill_comm_size(set->parent);
    return SPARSE_CONVERSIONS * once + entries * ENTRY_PICOSECONDS;
}

/* Set *pays to whether compressing a bucket pays by the prices. Returns TWILL_OK or the error. */
static twill_status find_whether_it_pays(struct twill_gradients *set,
                                         const struct twill_bucket *bucket, bool *pays)
{
    const struct twill_compressor *c = set->compressor;
    const struct twill_world *world = twill_extend_comm(set->comm).world;
    const struct twill_tuning *tuning = set->process.timings;
    uint64_t plain = 0, coded = 0;
    struct twill_select_request request = {.collective = TWILL_ALLREDUCE,
                                           .bytes = bucket->count * sizeof(float),
                                           .mapped = world->nodes == 1,
                                           .type = TWILL_F32};
    TWILL_TRY(&set->error,
              twill_cost_of_choice(&plain, c->chooser, world, tuning, &request, &set->error));
    request.bytes = code_bytes(set, bucket);
    request.type = TWILL_U8;
    if (c->coder.kind == TWILL_CODING_SPARSE) {
        request.collective = TWILL_ALLGATHER;
        request.bytes *= world->size;
    } else if (c->coder.kind == TWILL_CODING_NARROW) {
        request.type = c->coder.format.code;
        request.narrow = true;
    }
    TWILL_TRY(&set->error,
              twill_cost_of_choice(&coded, c->chooser, world, tuning, &request, &set->error));
    *pays = coded + coding_time(set, bucket) < plain;
    return TWILL_OK;
}

/* Decide whether a bucket is compressed, and set bucket->wire. Returns TWILL_OK or the error. */
static twill_status choose_wire(struct twill_gradients *set, struct twill_bucket *bucket)
{
    struct twill_compressor *c = set->compressor;
    if (bucket->raw)
        return TWILL_OK;
    if (c->coder.kind == TWILL_CODING_SPARSE && bucket->count > UINT32_MAX)
        return TWILL_FAIL(&set->error, TWILL_ERR_ARGUMENT,
                          "a bucket of %zu elements: lists have indices of 32 bits", bucket->count);
    lay_out_wire(set, bucket);
    bucket->wire.used = c->choice != TWILL_WIRE_NONE;
    if (c->choice == TWILL_WIRE_PRICED)
        TWILL_TRY(&set->error, find_whether_it_pays(set, bucket, &bucket->wire.used));
    bucket->wire.flushes = !bucket->wire.used && c->encoded && set->options.error_feedback;
    return TWILL_OK;
}

twill_status twill_compressor_prepare(struct twill_gradients *set)
{
    struct twill_compressor *c = set->compressor;
    size_t bytes = 0;
    if (c == NULL)
        return TWILL_OK;
    for (uint32_t b = 0; b < set->buckets; b++) {
        TWILL_TRY(&set->error, choose_wire(set, &set->bucket[b]));
        if (set->bucket[b].wire.used)
            bytes += memory_bytes(set, &set->bucket[b]);
    }
    if (bytes == 0)
        return TWILL_OK;
    void *memory = NULL;
    TWILL_TRY(&set->error, twill_set_allocate(set, &memory, bytes, "for codes of gradients"));
    unsigned char *at = c->memory = memory;
    for (uint32_t b = 0; b < set->buckets; b++)
        if (set->bucket[b].wire.used) {
            set->bucket[b].wire.memory = at;
            at += memory_bytes(set, &set->bucket[b]);
        }
    c->encoded = true;
    return TWILL_OK;
}

void twill_compressor_unprepare(struct twill_gradients *set)
{
    if (set->compressor == NULL)
        return;
    (void)twill_free(set->process.context, set->compressor->memory);
    set->compressor->memory = NULL;
}

/* Return where the lists of all ranks begin for the segment from entry `from` on. */
static unsigned char *lists_of(const struct twill_gradients *set, const struct twill_bucket *bucket,
                               size_t from)
{
    size_t ranks = (size_t)twill_comm_size(set->parent);
    size_t heads = from / bucket->wire.entries * list_head(set);
    return bucket->wire.memory + ranks * (heads + from * TWILL_LIST_ENTRY);
}

/* Return the bytes of a rank's list with its head and `entries` entries. */
static size_t list_bytes(const struct twill_gradients *set, size_t entries)
{
    return list_head(set) + entries * TWILL_LIST_ENTRY;
}

size_t twill_wire_segment(const struct twill_gradients *set, const struct twill_bucket *bucket)
{
    size_t bytes = set->options.segment_bytes;
    if (set->options.order != TWILL_BUCKETS_BY_PRIORITY || bucket->dense != NULL)
        return bucket->wire.used ? bucket->wire.units : bucket->count;
    return bucket->wire.used ? units_of(set, bytes)
                             : twill_max(bytes / twill_type_size(bucket->type), 1);
}

size_t twill_wire_bytes(const struct twill_gradients *set, const struct twill_bucket *bucket)
{
    if (bucket->wire.used)
        return code_bytes(set, bucket);
    return bucket->dense != NULL ? twill_dense_floats(bucket->dense) * sizeof(float)
                                 : twill_bucket_bytes(bucket);
}

twill_status twill_wire_request(const struct twill_gradients *set, twill_comm *comm,
                                const struct twill_bucket *bucket, size_t from, size_t count,
                                twill_request **request)
{
    const struct twill_compressor *c = set->compressor;
    if (bucket->dense != NULL)
        return twill_dense_request(comm, bucket, request);
    if (c->coder.kind == TWILL_CODING_SPARSE) {
        unsigned char *lists = lists_of(set, bucket, from);
        size_t bytes = list_bytes(set, count);
        return twill_allgather_init(comm, lists + (size_t)twill_comm_rank(comm) * bytes, lists,
                                    bytes, TWILL_U8, request);
    }
    unsigned char *at = bucket->wire.memory + from * twill_coder_unit_bytes(&c->coder);
    return twill_allreduce_init(
        comm, at, at, count, c->coder.kind == TWILL_CODING_NARROW ? c->coder.format.code : TWILL_U8,
        c->op, request);
}

/* Return the scratch of a bucket for one list, with indices and then values. */
static struct twill_sparse scratch_list(const struct twill_gradients *set,
                                        const struct twill_bucket *bucket)
{
    size_t ranks = (size_t)twill_comm_size(set->parent);
    uint32_t *index = (uint32_t *)(void *)(bucket->wire.memory + ranks * code_bytes(set, bucket));
    return (struct twill_sparse){index, (float *)(void *)(index + bucket->wire.units)};
}

/* Write n entries to this rank's list of a segment. It begins with n, if the code lets n vary. Then
 * comes room for `entries` indices, and then for as many values. */
static void write_segment(const struct twill_gradients *set, unsigned char *list,
                          struct twill_sparse chosen, size_t n, size_t entries)
{
    size_t head = list_head(set);
    const uint32_t number[2] = {(uint32_t)n, 0};
    memcpy(list, number, head);
    memcpy(list + head, chosen.index, n * sizeof(uint32_t));
    memcpy(list + head + entries * sizeof(uint32_t), chosen.value, n * sizeof(float));
}

/* Encode a bucket into this rank's lists, one for each segment. */
static void encode_list(struct twill_gradients *set, struct twill_bucket *bucket)
{
    const struct twill_wire *wire = &bucket->wire;
    struct twill_sparse chosen = scratch_list(set, bucket);
    size_t rank = (size_t)twill_comm_rank(set->parent),
           n = twill_encode_list(&set->compressor->coder, chosen, wire->units,
                                 (const float *)(void *)bucket->memory, wire->residual,
                                 bucket->count);
    for (size_t from = 0; from < wire->units; from += wire->entries) {
        size_t entries = twill_min(wire->entries, wire->units - from),
               here = twill_min(entries, n > from ? n - from : 0);
        struct twill_sparse part = {chosen.index + from, chosen.value + from};
        unsigned char *lists = lists_of(set, bucket, from);
        write_segment(set, lists + rank * list_bytes(set, entries), part, here, entries);
    }
}

/* A bucket whose lists threads decode, on the stack of decode_lists(). */
struct list_decoding {
    const struct twill_gradients *set;
    const struct twill_bucket *bucket;
};

/* Return the place of the first index, of n that ascend, that is not below `least`. */
static size_t place_of(const uint32_t *index, size_t n, size_t least)
{
    size_t low = 0;
    for (size_t high = n; low < high;) {
        size_t middle = low + (high - low) / 2;
        if (index[middle] < least)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Set a part of a bucket's memory to the sum of all ranks' lists, in the order of the ranks, times
 * the factor after decoding. `job` is a struct list_decoding. */
static void decode_part(void *job, unsigned part, unsigned parts)
{
    const struct twill_gradients *set = ((const struct list_decoding *)job)->set;
    const struct twill_bucket *bucket = ((const struct list_decoding *)job)->bucket;
    const struct twill_wire *wire = &bucket->wire;
    size_t ranks = (size_t)twill_comm_size(set->parent), head = list_head(set),
           each = twill_round_up((bucket->count + parts - 1) / parts, TWILL_BUCKET_ALIGN),
           first = twill_min(part * each, bucket->count),
           count = twill_min(each, bucket->count - first);
    memset(bucket->memory + first * sizeof(float), 0, count * sizeof(float));
    for (size_t from = 0; from < wire->units; from += wire->entries) {
        size_t entries = twill_min(wire->entries, wire->units - from);
        const unsigned char *lists = lists_of(set, bucket, from);
        for (size_t r = 0; r < ranks; r++, lists += list_bytes(set, entries)) {
            uint32_t n = (uint32_t)entries;
            if (head > 0)
                memcpy(&n, lists, sizeof(n));
            const uint32_t *index = (const void *)(lists + head);
            const float *value = (const void *)(index + entries);
            if (n > entries) /* the list is damaged */
                continue;
            size_t low = place_of(index, n, first), high = place_of(index, n, first + count);
            twill_scatter_add_part(bucket->memory, first, count, index + low, value + low,
                                   high > low ? high - low : 0, set->compressor->after);
        }
    }
}

/* Decode a bucket's lists. Threads share the bucket, not the lists, so the bits do not depend on
 * their number. */
static void decode_lists(const struct twill_gradients *set, const struct twill_bucket *bucket)
{
    struct list_decoding all = {set, bucket};
    size_t bytes = bucket->count * sizeof(float);
    twill_pool_share(set->process.pool, bytes, bytes, UINT_MAX, decode_part, &all);
}

/* Clear the gaps between tensors. A block of NaN would leave NaN there for all later steps. */
static void clear_gaps(const struct twill_gradients *set, const struct twill_bucket *bucket)
{
    for (uint32_t i = 0; i + 1 < bucket->tensors; i++) {
        const struct twill_train_tensor *tensor = twill_bucket_tensor(set, bucket, i);
        size_t gap = twill_round_up(tensor->bytes, TWILL_BUCKET_ALIGN) - tensor->bytes;
        memset(twill_tensor_place(set, tensor, bucket->generation) + tensor->bytes, 0, gap);
    }
}

/* Add the bytes of a bucket's elements, which have been encoded or decoded, to
 * usage.bytes_converted. */
static void count_conversion(struct twill_gradients *set, const struct twill_bucket *bucket)
{
    atomic_fetch_add_explicit(&set->usage.bytes_converted, bucket->count * sizeof(float),
                              memory_order_relaxed);
}

/* Add what compressed steps have left to the gradient of a step that is not compressed. This
 * empties the residual and unsets wire.flushes. */
static void flush_residual(struct twill_gradients *set, struct twill_bucket *bucket)
{
    const struct twill_compressor *c = set->compressor;
    twill_accumulate(c->coder.kernels, (float *)(void *)bucket->memory, TWILL_F32,
                     bucket->wire.residual, 1 / c->coder.scale, bucket->count, c->coder.pool);
    memset(bucket->wire.residual, 0, bucket->count * sizeof(float));
    bucket->wire.flushes = false;
}

void twill_wire_encode(struct twill_gradients *set, struct twill_bucket *bucket)
{
    struct twill_wire *wire = &bucket->wire;
    if (wire->flushes)
        flush_residual(set, bucket);
    if (!wire->used)
        return;
    if (set->compressor->coder.kind == TWILL_CODING_SPARSE)
        encode_list(set, bucket);
    else
        twill_encode(&set->compressor->coder, wire->memory, (const float *)(void *)bucket->memory,
                     wire->residual, bucket->count);
    count_conversion(set, bucket);
}

void twill_wire_decode(struct twill_gradients *set, const struct twill_bucket *bucket, size_t first,
                       size_t count)
{
    const struct twill_compressor *c = set->compressor;
    const void *const codes[] = {bucket->wire.memory};
    if (bucket->dense != NULL)
        twill_dense_rebuild(set, bucket, first, count);
    if (!bucket->wire.used)
        return;
    switch (c->coder.kind) {
    case TWILL_CODING_NARROW:
        twill_kernels_scale(c->coder.kernels, c->coder.format.code, bucket->memory, codes[0],
                            &c->after, false, bucket->count, c->coder.pool);
        break;
    case TWILL_CODING_BLOCKS:
        twill_dequantize(c->coder.kernels, c->coder.format, TWILL_F32, bucket->memory, codes, 1,
                         c->after, bucket->count, c->coder.pool);
        clear_gaps(set, bucket);
        break;
    case TWILL_CODING_SPARSE:
        decode_lists(set, bucket);
        break;
    }
    count_conversion(set, bucket);
}
