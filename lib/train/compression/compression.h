/* SPDX-License-Identifier: Apache-2.0 */
/* What travels instead of the elements of a bucket.
 *
 * Compression of buckets of f32: a code of the gradients, in a wire buffer of the bucket. The
 * thread that marks the last tensor of a bucket ready encodes it, before the reducer may start it;
 * the thread that delivers it decodes. What a code lacks stays in the residual, which is added to
 * the next step's gradient (error feedback: Seide et al. 2014, 1-bit SGD; Lin et al. 2018, Deep
 * Gradient Compression; Karimireddy et al. 2019, error feedback fixes signSGD).
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
 * sums lose when they are rounded on the way is in no residual: twill(7) has the bounds.
 *
 * Dense layers, whose gradient is the product of sufficient factors, the errors and activations of
 * the samples: either the factors of all ranks are gathered, and every rank computes the sum of the
 * gradients from them, or each computes its own, which is reduced; by price. */
#ifndef TWILL_TRAIN_COMPRESSION_H
#define TWILL_TRAIN_COMPRESSION_H

#include "lib/train/set/set.h"

/* Which buckets are compressed, of those that can be. */
enum twill_wire_choice {
    TWILL_WIRE_PRICED, /* those for which it pays by the prices */
    TWILL_WIRE_ALL,
    TWILL_WIRE_NONE,
    TWILL_WIRE_CHOICES
};

/* A set's. Constant after the commit, but for `choice`, which changes between steps. */
struct twill_compressor {
    struct twill_coder coder;
    twill_op op; /* of the codes; sparse: none */
    bool has_op;
    float after;           /* of decoded elements */
    float *residual;       /* of all tensors that may be compressed */
    unsigned char *memory; /* wire buffers, of twill_alloc() */
    bool encoded;          /* something was, so that residuals may have contents */
    enum twill_wire_choice choice;
    struct twill_chooser *chooser; /* for prices, or NULL */
};

/* --- lib/train/compression/compress.c --- */

/* Make the operation and the residuals, if the options ask for compression: the set's compressor.
 * After the tensors have been placed. */
twill_status twill_compressor_open(struct twill_gradients *set);
void twill_compressor_close(struct twill_gradients *set);
/* Choose which buckets are compressed, and allocate their wire buffers. Between steps. */
twill_status twill_compressor_prepare(struct twill_gradients *set);
void twill_compressor_unprepare(struct twill_gradients *set);

/* Return the units of a segment of a bucket: its elements, or those of its codes. The last one may
 * have less. */
size_t twill_wire_segment(const struct twill_gradients *set, const struct twill_bucket *bucket);
/* Return the bytes that this rank contributes to the exchange of a bucket. */
size_t twill_wire_bytes(const struct twill_gradients *set, const struct twill_bucket *bucket);
/* Prepare the exchange of `count` units of codes from `from` on, or of factors. */
twill_status twill_wire_request(const struct twill_gradients *set, twill_comm *comm,
                                const struct twill_bucket *bucket, size_t from, size_t count,
                                twill_request **request);
/* Encode a bucket whose tensors are all in its memory, if it is compressed. */
void twill_wire_encode(struct twill_gradients *set, struct twill_bucket *bucket);
/* Compute the result in the bucket's memory, if something else has travelled: of factors elements
 * first .. first + count - 1 at least. */
void twill_wire_decode(struct twill_gradients *set, const struct twill_bucket *bucket, size_t first,
                       size_t count);

/* --- lib/train/compression/dense.c --- */

/* Choose for each dense layer. Collective. */
twill_status twill_dense_choose(struct twill_gradients *set);
/* Allocate the factors of buckets that gather them. Between steps. */
twill_status twill_dense_prepare(struct twill_gradients *set);
/* Prepare the all-gather of a bucket's factors. */
twill_status twill_dense_request(twill_comm *comm, const struct twill_bucket *bucket,
                                 twill_request **request);
/* Compute the sum of the gradients from the gathered factors. */
void twill_dense_rebuild(struct twill_gradients *set, const struct twill_bucket *bucket,
                         size_t first, size_t count);

#endif
