/* SPDX-License-Identifier: Apache-2.0 */
/* A gradient list: the tensors of a model in forward order, one number of elements a line. The key
 * of a tensor is its place in the list, from 0, as key-value stores of training codes number
 * layers. */
#ifndef TWILL_GRADIENT_LIST_H
#define TWILL_GRADIENT_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct twill_bench_list {
    size_t keys; /* 0: there is no list */
    uint64_t *elements;
    uint64_t *offsets; /* of a key in the buffer, in elements: a cache line starts there */
    uint64_t total;    /* elements of all keys */
    uint64_t extent;   /* elements of a buffer for all, gaps included */
};

/* Read a file: blank lines and what follows a # are passed over. False and a message
 * ("FILE:3: ...") if it cannot be read or understood. Free the list either way. */
bool twill_bench_list_read(struct twill_bench_list *list, const char *path, char *message,
                           size_t bytes);
/* Room for so many keys. */
bool twill_bench_list_reserve(struct twill_bench_list *list, size_t keys);
/* Work out offsets, total and span from the elements. False if they are too many for any memory. */
bool twill_bench_list_lay_out(struct twill_bench_list *list);
void twill_bench_list_free(struct twill_bench_list *list);

#endif
