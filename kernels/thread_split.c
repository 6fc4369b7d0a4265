/* SPDX-License-Identifier: Apache-2.0 */
/* Splits large reductions and copies over the threads of a pool. */
#include "kernels/isa.h"
#include "kernels/thread_pool.h"

#include <limits.h>

/* Work on `count` elements whose ranges begin at multiples of `line`, on the stack of its caller.
 */
struct split {
    twill_range_fn apply;
    const void *job;
    size_t count, line;
};

/* Call the function of `data`, a struct split, for range number `part` of the `parts` into which
 * its elements are split. */
static void apply_range(void *data, unsigned part, unsigned parts)
{
    const struct split *split = data;
    size_t lines = split->count / split->line + 1, each = lines / parts, extra = lines % parts;
    size_t first = part * each + twill_min(part, extra);
    size_t from = twill_min(first * split->line, split->count);
    size_t to = twill_min((first + each + (part < extra)) * split->line, split->count);
    split->apply(split->job, from, to - from);
}

/* Lines have 64 bytes, so that no two threads write to one line of an aligned destination. */
void twill_split(twill_range_fn apply, const void *job, size_t count, size_t element, size_t read,
                 struct twill_thread_pool *pool)
{
    struct split split = {apply, job, count, TWILL_CACHE_LINE / element};
    twill_pool_share(pool, count * element, count * read, UINT_MAX, apply_range, &split);
}

void twill_split_blocks(twill_range_fn apply, const void *job, size_t blocks, size_t written,
                        size_t read, struct twill_thread_pool *pool)
{
    struct split split = {apply, job, blocks, 1};
    twill_pool_share(pool, blocks * written, blocks * read, UINT_MAX, apply_range, &split);
}
