/* SPDX-License-Identifier: Apache-2.0 */
/* Queries the placement of pages by move_pages(2) and get_mempolicy(2), without libnuma. */
#include "bench/tools/info/info.h"

#include <errno.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Set the policy in *pages to that of the memory at this address. It is "unknown" if the kernel
 * refuses. */
static void read_policy(const void *memory, struct twill_bench_pages *pages)
{
    static const char *const names[] = {
        [MPOL_DEFAULT] = "default", [MPOL_PREFERRED] = "preferred",
        [MPOL_BIND] = "bind",       [MPOL_INTERLEAVE] = "interleave",
        [MPOL_LOCAL] = "local",     [MPOL_PREFERRED_MANY] = "preferred-many",
    };
    unsigned long mask[16] = {0}; /* the kernel demands space for all nodes it could have */
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
    enum { PAGES_BATCH = 512 };
    void *addresses[PAGES_BATCH];
    int status[PAGES_BATCH];
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = (uintptr_t)memory & ~(uintptr_t)(page - 1);
    size_t total = ((uintptr_t)memory + bytes - from + page - 1) / page;
    *pages = (struct twill_bench_pages){.total = total, .page_bytes = page};
    read_policy(memory, pages);
    for (size_t done = 0; done < total;) {
        size_t n = total - done < PAGES_BATCH ? total - done : PAGES_BATCH;
        for (size_t i = 0; i < n; i++)
            addresses[i] = (void *)(from + (done + i) * page);
        if (syscall(SYS_move_pages, 0, n, addresses, NULL, status, 0) != 0)
            return errno;
        for (size_t i = 0; i < n; i++) {
            bool there = status[i] >= 0 && status[i] < TWILL_BENCH_NODES;
            pages->elsewhere += !there;
            if (!there)
                continue;
            pages->on_node[status[i]]++;
            pages->misplaced += (pages->allowed >> status[i] & 1) == 0;
        }
        done += n;
    }
    return 0;
}

/* Add a range to the sum, which is bound only if all are. `first` is true for the first one. */
static void add_pages(struct twill_bench_pages *sum, const struct twill_bench_pages *one,
                      bool first)
{
    if (first)
        sum->bound = sum->policy_known = true;
    if (first || (sum->bound && !one->bound))
        sum->policy = one->policy;
    sum->page_bytes = one->page_bytes;
    sum->total += one->total;
    sum->elsewhere += one->elsewhere;
    sum->misplaced += one->misplaced;
    sum->bound = sum->bound && one->bound;
    sum->policy_known = sum->policy_known && one->policy_known;
    for (int node = 0; node < TWILL_BENCH_NODES; node++)
        sum->on_node[node] += one->on_node[node];
}

/* A range of /proc/self/maps, on the stack of twill_bench_pages_find_named(). */
struct mapped_range {
    unsigned long from, to, offset; /* offset: in the file */
};

/* Add the pages of a range, unless it is empty. Returns 0 or an errno. */
static int add_range(struct twill_bench_pages *sum, const struct mapped_range *range,
                     unsigned *ranges)
{
    struct twill_bench_pages one;
    if (range->from == range->to)
        return 0;
    int error = twill_bench_pages_find((const void *)range->from, range->to - range->from, &one);
    add_pages(sum, &one, sum->total == 0);
    *ranges += range->offset == 0; /* a file may be mapped in several parts */
    return error;
}

int twill_bench_pages_find_named(const char *name, struct twill_bench_pages *pages,
                                 unsigned *ranges)
{
    char line[512], access[8];
    int error = 0;
    struct mapped_range last = {0}, next;
    FILE *maps = fopen("/proc/self/maps", "re");
    *pages = (struct twill_bench_pages){.policy = "none"};
    *ranges = 0;
    if (maps == NULL)
        return errno;
    while (error == 0 && fgets(line, sizeof(line), maps) != NULL) {
        int path = 0;
        bool named = sscanf(line, "%lx-%lx %7s %lx %*s %*s %n", &next.from, &next.to, access,
                            &next.offset, &path) >= 4 &&
                     path > 0 && strncmp(line + path, name, strlen(name)) == 0;
        bool shut = named && access[0] == '-';
        /* Room for further communicators ends with what none has had, which is shut. */
        if (!shut || last.to != next.from || last.offset == 0)
            error = add_range(pages, &last, ranges);
        last = named && !shut ? next : (struct mapped_range){0};
    }
    if (error == 0)
        error = add_range(pages, &last, ranges);
    fclose(maps);
    return error;
}

bool twill_bench_pages_bound(const struct twill_bench_pages *pages)
{
    return pages->policy_known && pages->bound && pages->misplaced == 0;
}
