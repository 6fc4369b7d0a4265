/* SPDX-License-Identifier: Apache-2.0 */
/* A gradient list: the tensors of a model in forward order, one a line: the number of elements, and
 * after a blank, where known, the multiply-adds that its layer takes for a sample in the forward
 * pass. A tensor's key is its index in the list, from 0, as key-value stores of training programs
 * number layers. */
#ifndef TWILL_GRADIENT_LIST_H
#define TWILL_GRADIENT_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct twill_bench_list {
    size_t keys; /* 0: no list */
    uint64_t *elements;
    uint64_t *offsets; /* of each key in the buffer, elements; starts a cache line */
    uint64_t *work;    /* multiply-adds of each key's layer, or 0 */
    uint64_t total;    /* elements of all keys */
    uint64_t all_work; /* multiply-adds of all keys */
    uint64_t extent;   /* elements of a buffer for all keys, with gaps */
};

/* Read a file. Blank lines, and comments from # on, are skipped. Returns false and a message
 * ("FILE:3: ...") if it cannot be read or parsed. Free the list in either case. */
bool twill_bench_list_read(struct twill_bench_list *list, const char *path, char *message,
                           size_t bytes);
/* Reserve memory for a number of keys. */
bool twill_bench_list_reserve(struct twill_bench_list *list, size_t keys);
/* Compute offsets and totals from the elements and the work. Returns false if they exceed any
 * memory. */
bool twill_bench_list_lay_out(struct twill_bench_list *list);
/* Return how long the layer of a key computes in the forward pass for a batch of samples, in
 * seconds, on a device of `gflops`: a multiply-add is two operations. The backward pass
 * takes twice as long, for the gradients of the weights and of the inputs. */
double twill_bench_list_seconds(const struct twill_bench_list *list, size_t key, size_t batch,
                                double gflops);
void twill_bench_list_free(struct twill_bench_list *list);

#endif
