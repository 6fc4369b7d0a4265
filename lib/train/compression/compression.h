/* SPDX-License-Identifier: Apache-2.0 */
/* The exchange of something else in place of the elements of a bucket.
 *
 * Compression is for buckets of f32: a code of the gradients is sent, in a wire buffer of the
 * bucket. The thread that marks the last tensor of a bucket ready encodes it, before the reducer
 * may start it. The thread that delivers it decodes. The residual keeps what a code lacks and is
 * added to the gradient of the next step. This is error feedback (Seide et al. 2014, 1-bit SGD, Lin
 * et al. 2018, Deep Gradient Compression, Karimireddy et al. 2019, error feedback fixes signSGD).
 *
 *   narrow   f16, bf16. An allreduce by twill_op_create_narrow(). Gradients are divided before they
 *            are rounded, so that a sum overflows only if a gradient does. The divisor is the
 *            number of ranks, or for a sum the next power of two.
 *   blocks   8-bit codes with a scale per block. An allreduce of blocks as opaque elements, whose
 *            operation adds two blocks in f32 and encodes the sum anew.
 *   sparse   The largest elements. An allgather of lists of equal length, which every rank adds in
 *            the order of the ranks.
 *
 * Ranks decode equal codes with kernels that give equal results, so they get the same bits. No
 * residual has the losses of partial sums that are rounded on the way (bounds are in twill(7)).
 *
 * A dense layer's gradient is the product of its sufficient factors, the samples' errors and
 * activations. By price, all ranks' factors are gathered and multiplied, or gradients are reduced.
 */
#ifndef TWILL_TRAIN_COMPRESSION_H
#define TWILL_TRAIN_COMPRESSION_H

#include "lib/train/set/set.h"

/* Choice among the buckets that can be compressed. */
enum twill_wire_choice {
    TWILL_WIRE_PRICED, /* those for which it pays by the prices */
    TWILL_WIRE_ALL,
    TWILL_WIRE_NONE,
    TWILL_WIRE_CHOICES
};

/* The compressor of a set. twill_compressor_open() makes it, twill_compressor_close() frees it.
 * Constant during steps. `memory`, `encoded` and `choice` change when buckets are divided anew. */
struct twill_compressor {
    struct twill_coder coder;
    twill_op op; /* operation on codes; none if sparse */
    bool has_op;
    float after;           /* factor for decoded elements */
    float *residual;       /* of all tensors that may be compressed */
    unsigned char *memory; /* wire buffers, from twill_alloc() */
    bool encoded;          /* something was encoded, so residuals may have contents */
    enum twill_wire_choice choice;
    struct twill_chooser *chooser; /* for prices, or NULL */
};

/* --- lib/train/compression/compress.c --- */
/* If the options ask for compression, make the set's compressor with its operation and residuals.
 * Called after the tensors have been placed. Returns TWILL_OK or the error. */
twill_status twill_compressor_open(struct twill_gradients *set);
/* Free the set's compressor, if any. */
void twill_compressor_close(struct twill_gradients *set);
/* Choose which buckets are compressed, and allocate their wire buffers. Returns the status. */
twill_status twill_compressor_prepare(struct twill_gradients *set);
/* Free the wire buffers, if any. */
void twill_compressor_unprepare(struct twill_gradients *set);
/* Return how much of a bucket is exchanged at a time. It is a number of elements or, if the bucket
 * is compressed, of units of its code (elements, blocks or list entries). The last segment may have
 * fewer. Without TWILL_BUCKETS_BY_PRIORITY, or with a dense layer's factors, it is the whole
 * bucket. */
size_t twill_wire_segment(const struct twill_gradients *set, const struct twill_bucket *bucket);
/* Return the bytes that this rank contributes to the exchange of a bucket. */
size_t twill_wire_bytes(const struct twill_gradients *set, const struct twill_bucket *bucket);
/* Prepare *request, a persistent collective on a bucket that is compressed or is a dense layer
 * whose factors are gathered. If compressed, it exchanges `count` units of the code (elements,
 * blocks or list entries) from unit `from` on. Otherwise it gathers all factors, and both numbers
 * have no meaning. Collective. Returns TWILL_OK or the error. */
twill_status twill_wire_request(const struct twill_gradients *set, twill_comm *comm,
                                const struct twill_bucket *bucket, size_t from, size_t count,
                                twill_request **request);
/* Encode a full bucket if it is compressed. If it no longer is, add its residual to it, once. */
void twill_wire_encode(struct twill_gradients *set, struct twill_bucket *bucket);
/* Compute the gradients of a complete bucket in its memory if codes or factors were exchanged. From
 * factors, compute at least the elements first .. first + count - 1. */
void twill_wire_decode(struct twill_gradients *set, const struct twill_bucket *bucket, size_t first,
                       size_t count);

/* --- lib/train/compression/dense.c --- */
/* Set dense->gathers of each dense layer. If true, ranks will gather the factors of the layer's
 * gradient, the errors and activations of its samples, and multiply them. Otherwise they will
 * reduce the gradient. The cheaper way is taken unless options.factors decides. Collective. Returns
 * the status. */
twill_status twill_dense_choose(struct twill_gradients *set);
/* Find the buckets that are dense layers whose factors will be gathered. For each, set
 * bucket->dense and allocate bucket->factors, with room for the factors of all ranks.
 * twill_set_free_buckets() frees them. Called after the tensors are divided into buckets. Returns
 * TWILL_OK or the error. */
twill_status twill_dense_prepare(struct twill_gradients *set);
/* Prepare *request, the all-gather of a bucket's factors. Returns TWILL_OK or the error. */
twill_status twill_dense_request(twill_comm *comm, const struct twill_bucket *bucket,
                                 twill_request **request);
/* Compute the sum of gradients from gathered factors, at least `count` elements from `first` on. */
void twill_dense_rebuild(struct twill_gradients *set, const struct twill_bucket *bucket,
                         size_t first, size_t count);

#endif
