/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that the kernel kills because the memory limit of a cgroup is reached: it counts them. */
#include "fabric/launcher/launcher.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT_NONE_FROM (UINT64_C(1) << 60) /* version 1 writes a huge number for "none" */

/* Where the two versions of cgroups have it. */
static const struct version {
    const char *line; /* of /proc/self/cgroup, after the number */
    const char *top, *kills, *limit;
} versions[] = {
    {"::", "/sys/fs/cgroup", "memory.events", "memory.max"},
    {":memory:", "/sys/fs/cgroup/memory", "memory.oom_control", "memory.limit_in_bytes"},
};

/* Read the number after this word in a file, or the first one if word is empty. */
static bool read_count(const char *folder, const char *name, const char *word, uint64_t *value)
{
    char path[PATH_MAX + 32], found[32] = "", number[32] = "";
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    bool good = false;
    while (file && !good && (*word == '\0' || fscanf(file, "%31s", found) == 1) &&
           fscanf(file, "%31s", number) == 1)
        good = strcmp(found, word) == 0;
    if (file)
        fclose(file);
    *value = strtoull(number, NULL, 10);
    return good && number[0] >= '0' && number[0] <= '9';
}

/* Find the cgroup of this process that counts kills. Returns the version, or NULL. In a container
 * the path may be one of the host's: what is mounted is the container's then. */
static const struct version *find_cgroup(char folder[PATH_MAX], uint64_t *kills)
{
    char line[PATH_MAX];
    const struct version *found = NULL;
    FILE *file = fopen("/proc/self/cgroup", "re");
    while (file && !found && fgets(line, sizeof(line), file))
        for (size_t i = 0; i < TWILL_ARRAY_LENGTH(versions) && !found; i++) {
            const struct version *version = &versions[i];
            const char *path = line + strspn(line, "0123456789");
            size_t length = strlen(version->line);
            if (strncmp(path, version->line, length) != 0)
                continue;
            line[strcspn(line, "\n")] = '\0';
            path = strcmp(path + length, "/") == 0 ? "" : path + length;
            int used = snprintf(folder, PATH_MAX, "%s%s", version->top, path);
            if (used >= PATH_MAX || !read_count(folder, version->kills, "oom_kill", kills))
                snprintf(folder, PATH_MAX, "%s", version->top);
            if (read_count(folder, version->kills, "oom_kill", kills))
                found = version;
        }
    if (file)
        fclose(file);
    return found;
}

void twill_oom_open(struct twill_launch *launch)
{
    char folder[PATH_MAX];
    if (!find_cgroup(folder, &launch->oom_kills))
        launch->oom_kills = UINT64_MAX;
}

void twill_oom_explain(struct twill_launch *launch, char *text, size_t bytes)
{
    char folder[PATH_MAX];
    uint64_t kills, limit;
    const struct version *version = find_cgroup(folder, &kills);
    if (!version || kills <= launch->oom_kills)
        return;
    launch->oom_kills++;
    for (;;) { /* the limit may be that of a cgroup above */
        char *slash = strrchr(folder, '/');
        if (read_count(folder, version->limit, "", &limit) && limit < LIMIT_NONE_FROM) {
            snprintf(text, bytes, ", as memory ran out: %.120s/%s is %llu bytes (%llu MiB)", folder,
                     version->limit, (unsigned long long)limit, (unsigned long long)limit >> 20);
            return;
        }
        if (!slash || strlen(folder) <= strlen(version->top))
            break;
        *slash = '\0';
    }
    snprintf(text, bytes, ", as the memory of this machine ran out");
}
