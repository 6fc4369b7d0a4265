/* SPDX-License-Identifier: Apache-2.0 */
/* Results in memory that was never touched. Programs that allocate each result get such memory from
 * the system each time it is large: glibc maps what is larger than 32 MiB anew, and JAX's arrays of
 * that size are always new. A page fault for each page costs more than all the copying; mapping the
 * pages in one call costs about half of that. */
#include "fabric/shm/mapping.h"
#include "lib/comm/comm.h"

#include <sys/mman.h>
#include <unistd.h>

#define POPULATE_AT_ONCE ((size_t)64 << 20) /* bytes; about 0.03 s */
#define POPULATE_SHARE   8u                 /* of the timeout */

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

/* Map the pages of a buffer for a part of the timeout only: until they are there this rank sends
 * nothing. The stores map the rest. */
static void populate(const struct twill_side *side, uint64_t timeout_ns)
{
    const uint64_t begin = twill_now();
    for (size_t at = 0; at < side->bytes; at += POPULATE_AT_ONCE) {
        twill_mapping_populate(side->base + at, twill_min(POPULATE_AT_ONCE, side->bytes - at));
        if (twill_now() - begin >= timeout_ns / POPULATE_SHARE)
            return;
    }
}

void twill_run_populate(const struct twill_run *run)
{
    const struct twill_side *dst = &run->buffers.side[TWILL_DST];
    const bool gaps = dst->offset != NULL; /* which the program may never touch */
    if (dst->base != NULL && dst->bytes >= TWILL_POPULATE_FROM && !gaps &&
        !lies_in_src(&run->buffers) && run->comm->tuning.threads <= 1 && is_untouched(dst))
        populate(dst, run->comm->tuning.timeout_ns);
}
