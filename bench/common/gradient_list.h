/* SPDX-License-Identifier: Apache-2.0 */
/* A gradient list has the tensors of a model in forward order, one per line. A line has the number
 * of elements and, after a blank if known, the multiply-adds that its layer takes for a sample in
 * the forward pass. The key of a tensor is its index in the list, from 0. */
#ifndef TWILL_GRADIENT_LIST_H
#define TWILL_GRADIENT_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A list of the keys of gradients, part of the state of its caller. twill_bench_list_read() fills
 * it. twill_bench_list_free() frees its arrays and sets it to zero. */
struct twill_bench_list {
    size_t keys; /* 0 if there is no list */
    uint64_t *elements;
    uint64_t *offsets; /* of each key in the buffer, in elements, a multiple of 32 */
    uint64_t *work;    /* multiply-adds of the layer of each key, or 0 */
    uint64_t total;    /* elements of all keys */
    uint64_t all_work; /* multiply-adds of all keys */
    uint64_t extent;   /* elements of a buffer for all keys, including gaps */
};

/* Read a file. Blank lines and comments that start with # are skipped. Returns false with a message
 * ("FILE:3: ...") if it cannot be read or parsed. The caller frees the list in either case. */
bool twill_bench_list_read(struct twill_bench_list *list, const char *path, char *message,
                           size_t bytes);
/* Reserve memory for `keys` keys in all, with those that the list has. Leaves list->keys as it is.
 * Returns false if there is not enough. */
bool twill_bench_list_reserve(struct twill_bench_list *list, size_t keys);
/* Compute offsets and totals from elements and work. Returns false if they exceed any memory, which
 * is 2^48 elements or multiply-adds. */
bool twill_bench_list_lay_out(struct twill_bench_list *list);
/* Return the seconds that the layer of a key computes in the forward pass, for a batch at `gflops`.
 * A multiply-add is two operations. The backward pass takes twice as long. */
double twill_bench_list_seconds(const struct twill_bench_list *list, size_t key, size_t batch,
                                double gflops);
/* Free the arrays of a list, also after twill_bench_list_read() has failed, and set it to zero. */
void twill_bench_list_free(struct twill_bench_list *list);

#endif
