/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that no policy places: the C library's. Large blocks come from the kernel, so that they
 * are untouched: what malloc() takes again was touched by whoever had it before. */
#include "numa/memory_internal.h"

#include <stdlib.h>

#define LARGE ((size_t)128 << 10) /* bytes; a page's rounding is lost in it */

int twill_memory_take(void **pointer, size_t bytes, size_t alignment)
{
    if (bytes >= LARGE)
        return twill_memory_map(pointer, bytes, alignment);
    return posix_memalign(pointer, alignment, bytes);
}

void twill_memory_give(void *pointer, size_t bytes)
{
    if (bytes >= LARGE)
        twill_memory_unmap(pointer, bytes);
    else
        free(pointer);
}
