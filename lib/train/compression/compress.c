/* SPDX-License-Identifier: Apache-2.0 */
/* What a compressed set has: an operation on codes, residuals, and a wire buffer a bucket. */
#include "lib/train/compression/compress.h"

#include "lib/train/gradients.h"

#include <stdlib.h>

#define ENTRY_BYTES (sizeof(uint32_t) + sizeof(float)) /* of a list: an index and a value */

struct twill_coding_choice twill_coding_of(twill_compression compression)
{
    static const struct twill_coding_choice codings[TWILL_COMPRESSIONS] = {
        [TWILL_COMPRESS_F16] = {TWILL_CODING_NARROW, TWILL_F16},
        [TWILL_COMPRESS_BF16] = {TWILL_CODING_NARROW, TWILL_BF16},
        [TWILL_COMPRESS_F8E4M3] = {TWILL_CODING_BLOCKS, TWILL_F8E4M3},
        [TWILL_COMPRESS_F8E5M2] = {TWILL_CODING_BLOCKS, TWILL_F8E5M2},
        [TWILL_COMPRESS_INT8] = {TWILL_CODING_BLOCKS, TWILL_I8},
        [TWILL_COMPRESS_TOP_K] = {TWILL_CODING_SPARSE, TWILL_F32},
        [TWILL_COMPRESS_THRESHOLD] = {TWILL_CODING_SPARSE, TWILL_F32},
    };
    return codings[compression];
}

/* --- a set's ---------------------------------------------------------------------------------- */

/* Set the factors before and after encoding. */
static void choose_factors(struct twill_gradients *set)
{
    struct twill_compressor *c = &set->compressor;
    int ranks = twill_comm_size(set->parent);
    double before = 1;
    if (set->options.op == TWILL_AVG)
        before = 1.0 / ranks;
    else if (c->kind == TWILL_CODING_NARROW)
        for (int covered = 1; covered < ranks; covered *= 2)
            before /= 2;
    c->prescale = (float)(set->options.scale * before);
    c->after = set->options.op == TWILL_AVG ? 1 : (float)(1 / before);
    c->threshold = (float)(set->options.compression_threshold * before);
}

static twill_status make_code_operation(struct twill_gradients *set)
{
    struct twill_compressor *c = &set->compressor;
    twill_status status = TWILL_OK;
    if (c->kind == TWILL_CODING_NARROW)
        status = twill_op_create_narrow(set->context, &c->op, c->format.code, NULL, NULL);
    else if (c->kind == TWILL_CODING_BLOCKS)
        status = twill_op_create(set->context, &c->op, twill_wire_add_blocks, c,
                                 twill_block_bytes(c->format), 1);
    if (status != TWILL_OK)
        return TWILL_FAIL(&set->error, status, "%s", twill_context_message(set->context));
    c->has_op = c->kind != TWILL_CODING_SPARSE;
    return TWILL_OK;
}

/* Place residuals as the tensors are placed in the arena, and those that have no place there, too.
 * Returns the elements in all. */
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

twill_status twill_compressor_open(struct twill_gradients *set)
{
    struct twill_compressor *c = &set->compressor;
    const twill_gradients_options *options = &set->options;
    size_t elements = options->compression != TWILL_COMPRESS_NONE ? place_residuals(set) : 0;
    if (elements == 0)
        return TWILL_OK;
    c->on = true;
    c->kind = twill_coding_of(options->compression).kind;
    c->format = (struct twill_block_format){twill_coding_of(options->compression).code,
                                            TWILL_BLOCK_DEFAULT};
    c->kernels = set->process.kernels;
    c->threads = set->process.threads;
    c->choice = TWILL_WIRE_ALL;
    choose_factors(set);
    TWILL_TRY(&set->error, make_code_operation(set));
    if (options->error_feedback || c->kind == TWILL_CODING_SPARSE) {
        c->residual = calloc(elements, sizeof(float));
        if (c->residual == NULL)
            return TWILL_FAIL(&set->error, TWILL_ERR_MEMORY, "%zu bytes for residuals",
                              elements * sizeof(float));
    }
    return options->compression_automatic ? twill_wire_trial_begin(set) : TWILL_OK;
}

void twill_compressor_close(struct twill_gradients *set)
{
    if (set->compressor.has_op)
        (void)twill_op_destroy(set->context, set->compressor.op);
    twill_chooser_destroy(set->compressor.chooser);
    twill_search_free(&set->compressor.trial);
    free(set->compressor.residual);
}

/* --- a bucket's ------------------------------------------------------------------------------- */

/* Bytes before the entries of a segment of a list: their number, where it varies. */
static size_t list_head(const struct twill_gradients *set)
{
    return set->options.compression == TWILL_COMPRESS_THRESHOLD ? 8 : 0;
}

/* Return the bytes of a unit. */
static size_t unit_bytes(const struct twill_compressor *c)
{
    return c->kind == TWILL_CODING_NARROW   ? twill_type_size(c->format.code)
           : c->kind == TWILL_CODING_BLOCKS ? twill_block_bytes(c->format)
                                            : ENTRY_BYTES;
}

size_t twill_wire_units(const struct twill_gradients *set, size_t bytes)
{
    size_t head = set->compressor.kind == TWILL_CODING_SPARSE ? list_head(set) : 0;
    return twill_max((bytes - head) / unit_bytes(&set->compressor), 1);
}

/* Return the entries of a list of a bucket: the share of its elements, at least one. */
static size_t list_entries(const struct twill_gradients *set, size_t count)
{
    double share = (double)count * set->options.compression_ratio;
    size_t entries = (size_t)share;
    entries += (double)entries < share;
    return twill_min(twill_max(entries, 1), count);
}

size_t twill_wire_bytes(const struct twill_gradients *set, const struct twill_bucket *bucket)
{
    const struct twill_wire *wire = &bucket->wire;
    size_t heads = 0;
    if (set->compressor.kind == TWILL_CODING_SPARSE)
        heads = (wire->units + wire->entries - 1) / wire->entries * list_head(set);
    return wire->units * unit_bytes(&set->compressor) + heads;
}

/* Return the bytes of the bucket's wire buffer. */
static size_t memory_bytes(const struct twill_gradients *set, const struct twill_bucket *bucket)
{
    size_t bytes = twill_wire_bytes(set, bucket);
    if (set->compressor.kind == TWILL_CODING_SPARSE)
        bytes = bytes * (size_t)twill_comm_size(set->parent) + bucket->wire.units * ENTRY_BYTES;
    return twill_round_up(bytes, TWILL_BUCKET_ALIGN);
}

/* Lay out the codes of a bucket that can be compressed. */
static void lay_out_wire(struct twill_gradients *set, struct twill_bucket *bucket)
{
    const struct twill_compressor *c = &set->compressor;
    struct twill_wire *wire = &bucket->wire;
    wire->units = c->kind == TWILL_CODING_NARROW   ? bucket->count
                  : c->kind == TWILL_CODING_BLOCKS ? twill_block_count(c->format, bucket->count)
                                                   : list_entries(set, bucket->count);
    wire->entries = wire->units;
    if (c->kind == TWILL_CODING_SPARSE && set->options.order == TWILL_BUCKETS_BY_PRIORITY)
        wire->entries = twill_min(wire->units, twill_wire_units(set, set->options.segment_bytes));
    if (c->residual != NULL)
        wire->residual = c->residual + set->tensor[set->backward[bucket->first]].residual;
}

/* Decide whether a bucket is compressed. */
static twill_status choose_wire(struct twill_gradients *set, struct twill_bucket *bucket)
{
    struct twill_compressor *c = &set->compressor;
    if (bucket->raw)
        return TWILL_OK;
    if (c->kind == TWILL_CODING_SPARSE && bucket->count > UINT32_MAX)
        return TWILL_FAIL(&set->error, TWILL_ERR_ARGUMENT,
                          "a bucket of %zu elements: lists have indices of 32 bits", bucket->count);
    lay_out_wire(set, bucket);
    bucket->wire.used = c->choice != TWILL_WIRE_NONE;
    if (c->choice == TWILL_WIRE_PRICED)
        TWILL_TRY(&set->error, twill_wire_pays(set, bucket, &bucket->wire.used));
    bucket->wire.flushes = !bucket->wire.used && c->encoded && set->options.error_feedback;
    return TWILL_OK;
}

twill_status twill_compressor_prepare(struct twill_gradients *set)
{
    struct twill_compressor *c = &set->compressor;
    size_t bytes = 0;
    if (!c->on)
        return TWILL_OK;
    for (uint32_t b = 0; b < set->buckets; b++) {
        TWILL_TRY(&set->error, choose_wire(set, &set->bucket[b]));
        if (set->bucket[b].wire.used)
            bytes += memory_bytes(set, &set->bucket[b]);
    }
    if (bytes == 0)
        return TWILL_OK;
    void *memory = NULL;
    twill_status status = twill_alloc(set->context, &memory, bytes);
    if (status != TWILL_OK)
        return TWILL_FAIL(&set->error, status, "%zu bytes for codes of gradients: %s", bytes,
                          twill_context_message(set->context));
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
    (void)twill_free(set->context, set->compressor.memory);
    set->compressor.memory = NULL;
}

unsigned char *twill_wire_lists(const struct twill_gradients *set,
                                const struct twill_bucket *bucket, size_t from)
{
    size_t ranks = (size_t)twill_comm_size(set->parent);
    size_t heads = from / bucket->wire.entries * list_head(set);
    return bucket->wire.memory + ranks * (heads + from * ENTRY_BYTES);
}

size_t twill_wire_list_bytes(const struct twill_gradients *set, size_t entries)
{
    return list_head(set) + entries * ENTRY_BYTES;
}

twill_status twill_wire_request(struct twill_lane *lane, const struct twill_bucket *bucket,
                                size_t from, size_t count, twill_request **request)
{
    struct twill_gradients *set = lane->set;
    const struct twill_compressor *c = &set->compressor;
    twill_comm *comm = lane->comm;
    if (c->kind == TWILL_CODING_SPARSE) {
        unsigned char *lists = twill_wire_lists(set, bucket, from);
        size_t bytes = twill_wire_list_bytes(set, count);
        return twill_allgather_init(comm, lists + (size_t)twill_comm_rank(comm) * bytes, lists,
                                    bytes, TWILL_U8, request);
    }
    unsigned char *at = bucket->wire.memory + from * unit_bytes(c);
    return twill_allreduce_init(comm, at, at, count,
                                c->kind == TWILL_CODING_NARROW ? c->format.code : TWILL_U8, c->op,
                                request);
}
