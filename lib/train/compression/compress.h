/* SPDX-License-Identifier: Apache-2.0 */
/* Compression of buckets of f32: what travels is a code of the gradients, in a wire buffer of the
 * bucket. The thread that marks the last tensor of a bucket ready encodes it, before the lane may
 * start it; the thread that delivers it decodes. What a code lacks stays in the residual, which is
 * added to the next step's gradient (error feedback: Seide et al. 2014, 1-bit SGD; Lin et al. 2018,
 * Deep Gradient Compression; Karimireddy et al. 2019, error feedback fixes signSGD).
 *
 *   narrow   f16, bf16: an allreduce by twill_op_create_narrow(). Gradients are divided by the
 *            number of ranks, or for a sum by a power of two that is as large, before they are
 *            rounded, so that a sum overflows only if a gradient does.
 *   blocks   8-bit codes with a scale per block: an allreduce of blocks as opaque elements, by an
 *            operation that adds two blocks in f32 and encodes the sum anew
 *   sparse   the largest elements: an allgather of lists of one length, which every rank adds in
 *            the order of the ranks
 *
 * Ranks decode equal codes by kernels with equal results, so they get the same bits. What partial
 * sums lose when they are rounded on the way is in no residual: twill(7) has the bounds. */
#ifndef TWILL_COMPRESS_H
#define TWILL_COMPRESS_H

#include "lib/train/compression/coding.h"
#include "lib/train/step_search.h"
#include "lib/twill_train.h"

struct twill_gradients;
struct twill_lane;
struct twill_bucket;

/* Which buckets are compressed, of those that can be. */
enum twill_wire_choice {
    TWILL_WIRE_PRICED, /* those for which it pays by the prices */
    TWILL_WIRE_ALL,
    TWILL_WIRE_NONE,
    TWILL_WIRE_CHOICES
};

/* A bucket's. Made with its division, constant during steps but for `flushes`. */
struct twill_wire {
    bool used;             /* the bucket is compressed */
    bool flushes;          /* it is not, and the next step adds what is left in the residual */
    float *residual;       /* [bucket->count], or NULL: no error feedback */
    unsigned char *memory; /* codes; sparse: the lists of all ranks, then scratch for one list */
    size_t units;          /* elements, blocks, or entries of a list */
    size_t entries;        /* sparse: entries of a segment, but the last */
};

/* A set's. Constant after the commit, but for `choice` and `trial`, which change between steps. */
struct twill_compressor {
    bool on;
    enum twill_coding kind;
    struct twill_block_format format; /* of blocks; narrow: only its code */
    const struct twill_kernels *kernels;
    int threads; /* most OpenMP threads */
    twill_op op; /* of the codes; sparse: none */
    bool has_op;
    float prescale;        /* of gradients before they are encoded */
    float after;           /* of decoded elements */
    float threshold;       /* of elements in the residual */
    float *residual;       /* of all tensors that may be compressed */
    unsigned char *memory; /* wire buffers, of twill_alloc() */
    bool encoded;          /* something was, so that residuals may have contents */
    enum twill_wire_choice choice;
    struct twill_step_search trial; /* of options.compression_automatic, after that of bucket sizes:
                                       over the choices */
    struct twill_chooser *chooser;  /* for prices, or NULL */
};

/* --- lib/train/compression/compress.c --- */

/* Make the operation and the residuals. After the tensors have been placed. */
twill_status twill_compressor_open(struct twill_gradients *set);
void twill_compressor_close(struct twill_gradients *set);
/* Choose which buckets are compressed, and allocate their wire buffers. Between steps. */
twill_status twill_compressor_prepare(struct twill_gradients *set);
void twill_compressor_unprepare(struct twill_gradients *set);
/* Return the units of a segment of a compressed bucket: at most `bytes` of codes, at least one. */
size_t twill_wire_units(const struct twill_gradients *set, size_t bytes);
/* Prepare the exchange of `count` units from `from` on. */
twill_status twill_wire_request(struct twill_lane *lane, const struct twill_bucket *bucket,
                                size_t from, size_t count, twill_request **request);
/* Return the bytes that this rank contributes to the exchange of a compressed bucket. */
size_t twill_wire_bytes(const struct twill_gradients *set, const struct twill_bucket *bucket);

/* Return where the lists of all ranks begin for the segment from entry `from` on; the bytes of a
 * list of `entries`. */
unsigned char *twill_wire_lists(const struct twill_gradients *set,
                                const struct twill_bucket *bucket, size_t from);
size_t twill_wire_list_bytes(const struct twill_gradients *set, size_t entries);

/* --- lib/train/compression/compress_code.c --- */

/* Encode a bucket whose tensors are all in its memory, if it is compressed. */
void twill_wire_encode(struct twill_gradients *set, struct twill_bucket *bucket);
/* Decode the result into the bucket's memory, if it is compressed. */
void twill_wire_decode(struct twill_gradients *set, const struct twill_bucket *bucket);
/* twill_op_fn of blocks; user is the compressor. */
void twill_wire_add_blocks(const void *left, const void *right, void *result, size_t count,
                           twill_type type, void *user);

/* --- lib/train/compression/compress_choose.c --- */

/* Begin the trial of the choices. */
twill_status twill_wire_trial_begin(struct twill_gradients *set);
/* Find whether the prices say that it pays to compress a bucket. */
twill_status twill_wire_pays(struct twill_gradients *set, const struct twill_bucket *bucket,
                             bool *pays);
/* Note the time of the step that ends, and make another choice from the next one on. */
twill_status twill_wire_trial_end_step(struct twill_gradients *set);

#endif
