/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that the kernel kills because the memory limit of a cgroup is reached: it counts them. */
#include "fabric/launcher/launcher.h"
#include "numa/cgroup.h"

#include <stdio.h>

/* Find the cgroup that counts the kills of this process's: its own, or where that cannot be seen
 * the topmost one. */
static bool find_kills(struct twill_cgroup *cgroup, uint64_t *kills)
{
    if (!twill_cgroup_find(cgroup, "memory", ""))
        return false;
    const char *name = cgroup->unified ? "memory.events" : "memory.oom_control";
    if (twill_cgroup_count(cgroup, name, "oom_kill", kills))
        return true;
    cgroup->folder[cgroup->top] = '\0';
    return twill_cgroup_count(cgroup, name, "oom_kill", kills);
}

void twill_oom_open(struct twill_launch *launch)
{
    struct twill_cgroup cgroup;
    if (!find_kills(&cgroup, &launch->oom_kills))
        launch->oom_kills = UINT64_MAX;
}

void twill_oom_explain(struct twill_launch *launch, char *text, size_t bytes)
{
    struct twill_cgroup cgroup;
    uint64_t kills, limit[2];
    if (!find_kills(&cgroup, &kills) || kills <= launch->oom_kills)
        return;
    launch->oom_kills++;
    const char *name = cgroup.unified ? "memory.max" : "memory.limit_in_bytes";
    do { /* the limit may be that of a cgroup above */
        if (twill_cgroup_numbers(&cgroup, name, limit) < 1)
            continue;
        snprintf(text, bytes, ", as memory ran out: %.120s/%s is %llu bytes (%llu MiB)",
                 cgroup.folder, name, (unsigned long long)limit[0],
                 (unsigned long long)limit[0] >> 20);
        return;
    } while (twill_cgroup_rise(&cgroup));
    snprintf(text, bytes, ", as the memory of this machine ran out");
}
