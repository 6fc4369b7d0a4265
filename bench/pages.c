/* SPDX-License-Identifier: Apache-2.0 */
/* move_pages(2) as a query, and get_mempolicy(2), without libnuma. */
#include "bench/pages.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

static void read_policy(const void *memory, struct twill_bench_pages *pages)
{
    static const char *const names[] = {
        [MPOL_DEFAULT] = "default", [MPOL_PREFERRED] = "preferred",
        [MPOL_BIND] = "bind",       [MPOL_INTERLEAVE] = "interleave",
        [MPOL_LOCAL] = "local",     [MPOL_PREFERRED_MANY] = "preferred-many",
    };
    unsigned long mask[16] = {0}; /* the kernel wants room for all it could have */
    int mode = 0;
    pages->policy = "unknown";
    if (syscall(SYS_get_mempolicy, &mode, mask, sizeof(mask) * 8, memory, MPOL_F_ADDR) != 0)
        return;
    mode &= ~MPOL_MODE_FLAGS;
    pages->policy_known = true;
    pages->bound = mode == MPOL_BIND;
    pages->allowed = mask[0];
    if (mode >= 0 && (size_t)mode < sizeof(names) / sizeof(names[0]) && names[mode] != NULL)
        pages->policy = names[mode];
}

int twill_bench_pages_find(const void *memory, size_t bytes, struct twill_bench_pages *pages)
{
    enum { BATCH = 512 };
    void *addresses[BATCH];
    int status[BATCH];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)memory & ~(uintptr_t)(page - 1);
    size_t total = ((uintptr_t)memory + bytes - from + page - 1) / page;
    *pages = (struct twill_bench_pages){.total = total, .page_bytes = page};
    read_policy(memory, pages);
    for (size_t done = 0; done < total;) {
        size_t n = total - done < BATCH ? total - done : BATCH;
        for (size_t i = 0; i < n; i++)
            addresses[i] = (void *)(from + (done + i) * page);
        if (syscall(SYS_move_pages, 0, n, addresses, NULL, status, 0) != 0)
            return errno;
        for (size_t i = 0; i < n; i++)
            if (status[i] >= 0 && status[i] < TWILL_BENCH_NODES)
                pages->on_node[status[i]]++;
            else
                pages->elsewhere++;
        done += n;
    }
    return 0;
}

bool twill_bench_pages_bound(const struct twill_bench_pages *pages)
{
    if (!pages->policy_known || !pages->bound || pages->elsewhere > 0)
        return false;
    for (int node = 0; node < TWILL_BENCH_NODES; node++)
        if (pages->on_node[node] > 0 && (pages->allowed >> node & 1) == 0)
            return false;
    return true;
}
