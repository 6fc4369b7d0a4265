/* SPDX-License-Identifier: Apache-2.0 */
/* Balanced division of items among threads or servers. */
#ifndef TWILL_BALANCE_H
#define TWILL_BALANCE_H

#include "lib/base/base.h"

/* An item, its weight, and the bin that gets it. */
struct twill_load {
    size_t bytes;
    uint32_t item, bin;
};

/* Assign items to bins: the heaviest first, to the bin with the least load, of equals the first
 * (LPT, Graham 1969). So no bin has more than the mean and the largest item. Sorts them. total:
 * [bins], gets their loads. */
void twill_balance(struct twill_load *load, size_t items, uint64_t *total, uint32_t bins);

#endif
