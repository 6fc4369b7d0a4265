/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/base/balance.h"

#include <stdlib.h>

/* Compare two loads for qsort(), which then sorts the heavier first, equal ones by their item. */
static int compare_loads(const void *left, const void *right)
{
    const struct twill_load *a = left, *b = right;
    return a->bytes != b->bytes ? (a->bytes < b->bytes ? 1 : -1)
                                : (a->item > b->item) - (a->item < b->item);
}

void twill_balance(struct twill_load *load, size_t items, uint64_t *total, uint32_t bins)
{
    qsort(load, items, sizeof(*load), compare_loads);
    for (uint32_t b = 0; b < bins; b++)
        total[b] = 0;
    for (size_t i = 0; i < items; i++) {
        uint32_t least = 0;
        for (uint32_t b = 1; b < bins; b++)
            least = total[b] < total[least] ? b : least;
        total[least] += load[i].bytes;
        load[i].bin = least;
    }
}
