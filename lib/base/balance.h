/* SPDX-License-Identifier: Apache-2.0 */
/* Balanced division of items, by longest processing time first (LPT, Graham 1969). */
#ifndef TWILL_BALANCE_H
#define TWILL_BALANCE_H

#include "lib/base/base.h"

/* An item, its weight, and the bin that twill_balance() gives it. */
struct twill_load {
    size_t bytes;
    uint32_t item, bin;
};

/* Assign items to bins, the heaviest first, each to the bin with the least load, so none has more
 * than the mean plus the largest item. Sorts `load` by weight, and stores loads in total[bins]. */
void twill_balance(struct twill_load *load, size_t items, uint64_t *total, uint32_t bins);

#endif
