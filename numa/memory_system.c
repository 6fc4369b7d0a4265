/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that no policy places: the C library's. Large blocks come from the kernel, so that they
 * are untouched: what malloc() takes again was touched by whoever had it before. */
#include "numa/memory_internal.h"

#include <stdlib.h>

#define LARGE ((size_t)128 << 10) /* bytes; a page's rounding is lost in it */

static int system_alloc(const struct twill_memory_policy *policy, void **pointer, size_t bytes,
                        size_t alignment)
{
    (void)policy;
    if (bytes >= LARGE)
        return twill_memory_kind_mmap.alloc(
            NULL, pointer, twill_round_up(bytes, twill_memory_kind_mmap.grain), alignment);
    return posix_memalign(pointer, alignment, bytes);
}

static void system_free(void *pointer, size_t bytes)
{
    if (bytes >= LARGE)
        twill_memory_kind_mmap.free(pointer, twill_round_up(bytes, twill_memory_kind_mmap.grain));
    else
        free(pointer);
}

const struct twill_memory_kind_ops twill_memory_kind_system = {
    .name = "malloc and mmap",
    .grain = TWILL_CACHE_LINE,
    .alloc = system_alloc,
    .free = system_free,
    .place = twill_memory_mbind,
};
