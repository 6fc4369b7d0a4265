/* SPDX-License-Identifier: Apache-2.0 */
/* Balanced division of items, by longest processing time first (LPT, Graham 1969). */
#ifndef TWILL_BALANCE_H
#define TWILL_BALANCE_H

#include "lib/base/base.h"

/* An item of twill_balance(), an element of its caller's array. The caller sets its weight,
 * `bytes`, and its number, `item`. twill_balance() sets the bin, from 0. */
struct twill_load {
    size_t bytes;
    uint32_t item, bin;
};

/* Assign `items` items to `bins` bins, the heaviest first, each to the bin with the least load. So
 * no bin has more than the mean plus the largest item. Sorts load[], the heaviest first, and stores
 * the sum of each bin in total[bins]. */
void twill_balance(struct twill_load *load, size_t items, uint64_t *total, uint32_t bins);

#endif
