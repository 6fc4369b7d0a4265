/* SPDX-License-Identifier: Apache-2.0 */
/* Which lane reduces which bucket. */
#include "lib/train/lane.h"

#include <stdlib.h>

static int compare_weights(const void *left, const void *right)
{
    const struct twill_lane_weight *a = left, *b = right;
    return a->bytes != b->bytes ? (a->bytes < b->bytes ? 1 : -1)
                                : (a->bucket > b->bucket) - (a->bucket < b->bucket);
}

void twill_lanes_balance(struct twill_lane_weight *weight, uint32_t buckets, uint32_t lanes)
{
    size_t load[TWILL_LANES_MOST] = {0};
    qsort(weight, buckets, sizeof(*weight), compare_weights);
    for (uint32_t i = 0; i < buckets; i++) {
        uint32_t least = 0;
        for (uint32_t l = 1; l < lanes; l++)
            least = load[l] < load[least] ? l : least;
        load[least] += weight[i].bytes;
        weight[i].lane = least;
    }
}
