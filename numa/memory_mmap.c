/* SPDX-License-Identifier: Apache-2.0 */
/* Placement by mmap() and mbind(), directly, as libnuma would add a library for four constants. */
#include "numa/memory_internal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NODES_A_WORD (sizeof(unsigned long) * 8)
#define NODE_WORDS   (TWILL_MAX_NUMA / NODES_A_WORD)
/* Words that the kernel may fill: as many nodes as it was built for, at most 1024. */
#define KERNEL_WORDS 16

/* MPOL_PREFERRED_MANY of newer headers, in the kernel since 5.15. */
#define PREFERRED_MANY 5

/* Let the kernel place a range on these nodes, by mbind() with this mode and these flags. If there
 * are no nodes it gets no mask. Returns 0 or an errno. */
static int mbind_mode(void *pointer, size_t bytes, int mode, twill_numa_set nodes, unsigned flags)
{
    unsigned long mask[NODE_WORDS];
    for (unsigned w = 0; w < NODE_WORDS; w++)
        mask[w] = (unsigned long)(nodes >> w * NODES_A_WORD);
    long failed = syscall(SYS_mbind, pointer, bytes, mode, nodes != 0 ? mask : NULL,
                          nodes != 0 ? TWILL_MAX_NUMA + 1ul : 0ul, flags);
    return failed ? errno : 0;
}

/* Convert a mask that the kernel has filled. Returns 0 if it has nodes beyond those of a set. */
static twill_numa_set set_of(const unsigned long mask[KERNEL_WORDS])
{
    twill_numa_set set = 0;
    for (unsigned w = 0; w < KERNEL_WORDS; w++) {
        if (w < NODE_WORDS)
            set |= (twill_numa_set)mask[w] << w * NODES_A_WORD;
        else if (mask[w] != 0)
            return 0;
    }
    return set;
}

/* Apply a policy to a mapping by mbind(). Returns 0 or an errno. */
static int place_by_mbind(const struct twill_memory_policy *policy, void *pointer, size_t bytes)
{
    if (policy->mode == TWILL_MODE_BIND)
        return mbind_mode(pointer, bytes, MPOL_BIND, policy->nodes, 0);
    if (policy->mode == TWILL_MODE_INTERLEAVE)
        return mbind_mode(pointer, bytes, MPOL_INTERLEAVE, policy->nodes, 0);
    bool many = (policy->nodes & (policy->nodes - 1)) != 0;
    int failed = many ? mbind_mode(pointer, bytes, PREFERRED_MANY, policy->nodes, 0) : EINVAL;
    if (failed == EINVAL) /* one node, or an older kernel, which uses the first of the mask */
        failed = mbind_mode(pointer, bytes, MPOL_PREFERRED, policy->nodes, 0);
    return failed;
}

const struct twill_memory_placer twill_memory_placer_mbind = {"mbind", place_by_mbind};

/* Do what twill_memory_near() says, with these flags of mbind() for a node. */
static int near_node(void *pointer, size_t bytes, int node, unsigned flags)
{
    const uintptr_t page = 4096, begin = ((uintptr_t)pointer + page - 1) / page * page,
                    end = ((uintptr_t)pointer + bytes) / page * page;
    if (node >= TWILL_MAX_NUMA)
        return EINVAL;
    if (begin >= end)
        return 0;
    return node >= 0 ? mbind_mode((void *)begin, end - begin, MPOL_PREFERRED,
                                  twill_numa_bit((unsigned)node), flags)
                     : mbind_mode((void *)begin, end - begin, MPOL_DEFAULT, 0, 0);
}

int twill_memory_near(void *pointer, size_t bytes, int node)
{
    return near_node(pointer, bytes, node, MPOL_MF_MOVE);
}

int twill_memory_prefer(void *pointer, size_t bytes, int node)
{
    return near_node(pointer, bytes, node, 0);
}

int twill_memory_map(void **pointer, size_t bytes, size_t alignment)
{
    size_t whole = twill_round_up(bytes, TWILL_MEMORY_PAGE);
    size_t slack = alignment > TWILL_HUGE_PAGE / 2 ? alignment : 0; /* else a page is enough */
    unsigned char *base =
        mmap(NULL, whole + slack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return errno;
    size_t before = slack == 0 ? 0 : twill_round_up((uintptr_t)base, alignment) - (uintptr_t)base;
    if (before > 0)
        munmap(base, before);
    if (slack > before)
        munmap(base + before + whole, slack - before);
    *pointer = base + before;
    return 0;
}

void twill_memory_unmap(void *pointer, size_t bytes)
{
    munmap(pointer, twill_round_up(bytes, TWILL_MEMORY_PAGE));
}

twill_numa_set twill_memory_bound_to(void *pointer)
{
    int mode;
    unsigned long mask[KERNEL_WORDS] = {0};
    if (syscall(SYS_get_mempolicy, &mode, mask, sizeof(mask) * 8, pointer, MPOL_F_ADDR) != 0)
        return 0;
    return set_of(mask);
}

twill_numa_set twill_memory_allowed(void)
{
    unsigned long mask[KERNEL_WORDS] = {0};
    long failed =
        syscall(SYS_get_mempolicy, NULL, mask, sizeof(mask) * 8, NULL, MPOL_F_MEMS_ALLOWED);
    return failed ? 0 : set_of(mask);
}

/* Memory that no policy places comes from the C library, but from the kernel from this size on,
 * as blocks that malloc() hands out again are not untouched. Rounding up to pages costs little. */

#define LARGE ((size_t)128 << 10)

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

/* Open a file of a NUMA node in sysfs to read. Returns NULL if that fails. */
static FILE *node_file(unsigned os_index, const char *name)
{
    char path[96];
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/%s", os_index, name);
    return fopen(path, "re");
}

uint64_t twill_numa_free_in(FILE *meminfo)
{
    static const struct {
        const char *name;
        bool more;
    } rows[] = {{"MemFree:", true},
                {"Active(file):", true},
                {"Inactive(file):", true},
                {"Dirty:", false},
                {"Writeback:", false}};
    uint64_t more = 0, less = 0, kib;
    char line[128], name[32];
    while (fgets(line, sizeof(line), meminfo) != NULL) {
        if (sscanf(line, "Node %*u %31s %" SCNu64, name, &kib) != 2)
            continue;
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(rows); i++)
            if (strcmp(name, rows[i].name) == 0)
                *(rows[i].more ? &more : &less) += kib;
    }
    return (more > less ? more - less : 0) << 10;
}

uint64_t twill_numa_free_bytes(unsigned os_index)
{
    FILE *file = node_file(os_index, "meminfo");
    if (file == NULL)
        return 0;
    uint64_t bytes = twill_numa_free_in(file);
    fclose(file);
    return bytes;
}

bool twill_numa_has_cpus(unsigned os_index, bool otherwise)
{
    char line[8] = "";
    FILE *file = node_file(os_index, "cpulist");
    if (file == NULL)
        return otherwise;
    bool some = fgets(line, sizeof(line), file) != NULL && isdigit((unsigned char)line[0]);
    fclose(file);
    return some;
}
