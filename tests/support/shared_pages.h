/* SPDX-License-Identifier: Apache-2.0 */
/* Pages for buffers that others may still write to. */
#ifndef TWILL_SHARED_PAGES_H
#define TWILL_SHARED_PAGES_H

#include <stddef.h>
#include <sys/mman.h>

/* Return memory that becomes invalid when unmapped, so that a late write crashes. */
static inline unsigned char *page_map(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

#endif
