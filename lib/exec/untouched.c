/* SPDX-License-Identifier: Apache-2.0 */
/* Results in memory that was never touched. Programs that allocate each result get such memory from
 * the system each time it is large: glibc maps what is larger than 32 MiB anew, and JAX's arrays of
 * that size are always new. A page fault for each page costs more than all the copying; mapping the
 * pages in one call costs about half of that. */
#include "fabric/shm/mapping.h"
#include "lib/comm/comm.h"

#include <sys/mman.h>
#include <unistd.h>

/* Return whether a buffer's middle has no page yet. (Its first page may have the allocator's
 * header.) */
static bool is_untouched(const struct twill_side *side)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t middle = ((uintptr_t)side->base + side->bytes / 2) & -page;
    unsigned char resident = 1;
    return mincore((void *)middle, 1, &resident) == 0 && (resident & 1) == 0;
}

/* Return whether all of DST is also SRC. Of a call in place the root does not write its result: the
 * pages of a file that is mapped privately would be copied, those of a shared one written back. */
static bool lies_in_src(const struct twill_run_buffers *buffers)
{
    const struct twill_side *src = &buffers->side[TWILL_SRC], *dst = &buffers->side[TWILL_DST];
    const uintptr_t from = (uintptr_t)src->base, to = (uintptr_t)dst->base;
    return to >= from && to + dst->bytes <= from + src->bytes;
}

void twill_run_populate(const struct twill_run *run)
{
    const struct twill_side *dst = &run->buffers.side[TWILL_DST];
    const bool gaps = dst->offset != NULL; /* which nobody may ever touch */
    if (dst->base != NULL && dst->bytes >= TWILL_POPULATE_FROM && !gaps &&
        !lies_in_src(&run->buffers) && run->comm->tuning.threads <= 1 && is_untouched(dst))
        twill_mapping_populate(dst->base, dst->bytes);
}
