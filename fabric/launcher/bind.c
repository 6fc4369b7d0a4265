/* SPDX-License-Identifier: Apache-2.0 */
/* Binding ranks to whole cores, within what this process may use. */
#include "fabric/launcher/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The lowest CPU of the core that a CPU belongs to; itself when sysfs does not tell. */
static int core_of(int cpu)
{
    char path[96], text[64] = "";
    snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
             cpu);
    FILE *file = fopen(path, "re");
    if (!file)
        return cpu;
    char *got = fgets(text, sizeof(text), file);
    fclose(file);
    return got && text[0] >= '0' && text[0] <= '9' ? (int)strtol(text, NULL, 10) : cpu;
}

bool twill_bind_cpus(int rank, int ranks, cpu_set_t *cpus)
{
    int core[CPU_SETSIZE], cores = 0; /* cores with an allowed CPU, ascending */
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
        return false;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &allowed))
            continue;
        int mine = core_of(cpu), i = 0;
        while (i < cores && core[i] != mine)
            i++;
        if (i == cores)
            core[cores++] = mine;
    }
    /* More ranks than cores: they share, evenly. */
    int first = ranks <= cores ? (int)((long)rank * cores / ranks) : rank % cores;
    int last = ranks <= cores ? (int)((long)(rank + 1) * cores / ranks) : first + 1;
    CPU_ZERO(cpus);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        for (int i = first; i < last && CPU_ISSET(cpu, &allowed); i++)
            if (core_of(cpu) == core[i])
                CPU_SET(cpu, cpus);
    return true;
}
