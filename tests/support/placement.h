/* SPDX-License-Identifier: Apache-2.0 */
/* Memory policies, as the kernel reports them. */
#ifndef TWILL_PLACEMENT_H
#define TWILL_PLACEMENT_H

#include <linux/mempolicy.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Return whether this process may bind memory to NUMA node 0. */
static inline bool can_mbind(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long mask = 1;
    bool can = syscall(SYS_mbind, page, 4096ul, MPOL_BIND, &mask, 65ul, 0u) == 0;
    munmap(page, 4096);
    return can;
}

/* Return the policy mode at a pointer, or -1; its nodes go to *nodes, if not NULL. */
static inline int policy_at(const void *pointer, uint64_t *nodes)
{
    int mode = -1;
    unsigned long mask[16] = {0}; /* the kernel demands space for all nodes it could have */
    if (syscall(SYS_get_mempolicy, &mode, mask, sizeof(mask) * 8, pointer, MPOL_F_ADDR) != 0)
        return -1;
    if (nodes != NULL)
        *nodes = mask[0];
    return mode;
}

#endif
