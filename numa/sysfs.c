/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel knows about a NUMA node, and hwloc does not: free memory now, CPUs. */
#include "numa/memory_internal.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static FILE *node_file(unsigned os_index, const char *name)
{
    char path[96];
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/%s", os_index, name);
    return fopen(path, "re");
}

/* Clean pages of files are dropped when memory is needed, also for memory that is bound. */
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
