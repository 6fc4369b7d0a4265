/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel knows about a NUMA node, and hwloc does not: free memory now, CPUs. */
#include "numa/topology.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>

static FILE *node_file(unsigned os_index, const char *name)
{
    char path[96];
    snprintf(path, sizeof(path), "/sys/devices/system/node/node%u/%s", os_index, name);
    return fopen(path, "re");
}

uint64_t twill_numa_free_bytes(unsigned os_index)
{
    uint64_t kib = 0;
    char line[128];
    FILE *file = node_file(os_index, "meminfo");
    if (file == NULL)
        return 0;
    while (fgets(line, sizeof(line), file) != NULL)
        if (sscanf(line, "Node %*u MemFree: %" SCNu64, &kib) == 1)
            break;
    fclose(file);
    return kib << 10;
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
