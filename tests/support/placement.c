/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/placement.h"

#include <dirent.h>
#include <errno.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

bool can_mbind(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    unsigned long mask = 1;
    bool can = syscall(SYS_mbind, page, 4096ul, MPOL_BIND, &mask, 65ul, 0u) == 0;
    munmap(page, 4096);
    return can;
}

int policy_at(const void *pointer, uint64_t *nodes)
{
    int mode = -1;
    unsigned long mask[16] = {0}; /* the kernel demands space for all nodes it could have */
    if (syscall(SYS_get_mempolicy, &mode, mask, sizeof(mask) * 8, pointer, MPOL_F_ADDR) != 0)
        return -1;
    if (nodes != NULL)
        *nodes = mask[0];
    return mode;
}

bool twill_test_two_pus(int pus[2])
{
    cpu_set_t all;
    int n = 0;
    if (sched_getaffinity(0, sizeof(all), &all) != 0)
        abort();
    for (int i = 0; i < CPU_SETSIZE && n < 2; i++)
        if (CPU_ISSET((size_t)i, &all))
            pus[n++] = i;
    return n == 2;
}

void twill_test_bind(int pu)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)pu, &one);
    if (sched_setaffinity(0, sizeof(one), &one) != 0)
        abort();
}

unsigned twill_test_threads_on(const char *thread, int pu)
{
    unsigned found = 0;
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *entry;
    while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
        char path[300], name[32] = "";
        cpu_set_t set;
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "re");
        if (file == NULL)
            continue;
        (void)(fgets(name, sizeof(name), file) == NULL);
        fclose(file);
        name[strcspn(name, "\n")] = '\0';
        if (strcmp(name, thread) == 0 &&
            sched_getaffinity(atoi(entry->d_name), sizeof(set), &set) == 0)
            found += CPU_COUNT(&set) == 1 && CPU_ISSET((size_t)pu, &set);
    }
    if (tasks != NULL)
        closedir(tasks);
    return found;
}

/* MADV_POPULATE_READ of newer headers; in the kernel since 5.14. */
#define POPULATE_READ 22

enum { MOVE_BATCH = 512 };

/* Make pages present that NUMA balancing has unmapped to sample accesses: Linux 6.1 to 6.4 report
 * them as absent. Reads those that are in memory. Returns whether there were any. */
static bool bring_back(void *const addresses[], const int nodes[], unsigned long n, size_t page)
{
    unsigned char resident[MOVE_BATCH];
    bool any = false;
    if (mincore(addresses[0], n * page, resident) != 0)
        return false;
    for (unsigned long i = 0; i < n; i++)
        if (nodes[i] < 0 && (resident[i] & 1)) /* -ENOENT or -EFAULT, by version */
            any |= madvise(addresses[i], page, POPULATE_READ) == 0;
    return any;
}

long test_memory_where(const void *pointer, size_t bytes, uint64_t pages[TWILL_MAX_NUMA])
{
    void *addresses[MOVE_BATCH];
    int nodes[MOVE_BATCH];
    long found = 0;
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t)pointer & ~(page - 1), end = (uintptr_t)pointer + bytes;
    if (pages == NULL || (pointer == NULL && bytes > 0) || end < (uintptr_t)pointer)
        return TWILL_ERR_ARGUMENT;
    for (unsigned i = 0; i < TWILL_MAX_NUMA; i++)
        pages[i] = 0;
    while (at < end) {
        unsigned long n = 0;
        for (; n < MOVE_BATCH && at < end; n++, at += page)
            addresses[n] = (void *)at;
        long failed = syscall(SYS_move_pages, 0, n, addresses, NULL, nodes, 0);
        if (!failed && bring_back(addresses, nodes, n, page))
            failed = syscall(SYS_move_pages, 0, n, addresses, NULL, nodes, 0);
        if (failed)
            return errno == ENOSYS ? TWILL_ERR_UNSUPPORTED : TWILL_ERR_SYSTEM;
        for (unsigned long i = 0; i < n; i++) {
            if (nodes[i] < 0) /* not touched yet */
                continue;
            found++;
            if (nodes[i] < TWILL_MAX_NUMA)
                pages[nodes[i]]++;
        }
    }
    return found;
}
