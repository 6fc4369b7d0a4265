/* SPDX-License-Identifier: Apache-2.0 */
/* How much more memory this process may have: its limits (setrlimit) and its cgroup's. */
#include "numa/memory_internal.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Return what is left of a limit of which these pages are used; UINT64_MAX: there is none. */
static uint64_t left_of(int resource, unsigned long pages)
{
    struct rlimit limit;
    uint64_t used = (uint64_t)pages * (uint64_t)sysconf(_SC_PAGESIZE);
    if (getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return UINT64_MAX;
    return limit.rlim_cur > used ? limit.rlim_cur - used : 0;
}

/* Read a number from a file of a cgroup. False: there is none ("max"). */
static bool read_number_of(const char *folder, const char *name, uint64_t *number)
{
    char path[PATH_MAX + 32];
    unsigned long long value = 0;
    snprintf(path, sizeof(path), "/sys/fs/cgroup%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    bool found = file != NULL && fscanf(file, "%llu", &value) == 1;
    if (file != NULL)
        fclose(file);
    *number = value;
    return found;
}

/* Return what is left of the memory of this process's cgroup (version 2). */
static uint64_t left_of_cgroup(void)
{
    char folder[PATH_MAX] = "";
    uint64_t limit, used;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file != NULL && fgets(folder, sizeof(folder), file) != NULL &&
           strncmp(folder, "0::/", 4) != 0)
        folder[0] = '\0';
    if (file != NULL)
        fclose(file);
    folder[strcspn(folder, "\n")] = '\0';
    if (folder[0] == '\0' || !read_number_of(folder + 3, "memory.max", &limit) ||
        !read_number_of(folder + 3, "memory.current", &used))
        return UINT64_MAX;
    return limit > used ? limit - used : 0;
}

bool twill_memory_allows(uint64_t bytes, const char **limit)
{
    unsigned long all = 0, data = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    bool known = file != NULL && fscanf(file, "%lu %*u %*u %*u %*u %lu", &all, &data) == 2;
    if (file != NULL)
        fclose(file);
    *limit = !known                               ? "its use of memory is unknown"
             : left_of(RLIMIT_AS, all) < bytes    ? "RLIMIT_AS leaves less"
             : left_of(RLIMIT_DATA, data) < bytes ? "RLIMIT_DATA leaves less"
             : left_of_cgroup() < bytes           ? "the cgroup's memory.max leaves less"
                                                  : NULL;
    return *limit == NULL;
}
