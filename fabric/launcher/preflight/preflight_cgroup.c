/* SPDX-License-Identifier: Apache-2.0 */
/* Limits of the cgroup that this process is in: the least of it and its parents. */
#include "fabric/launcher/preflight/preflight_agent.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define NO_LIMIT_FROM (INT64_C(1) << 60) /* version 1 writes a huge number for "none" */

/* A cgroup's folder, which is shortened on the way to its parents. */
struct cgroup_folder {
    char path[PATH_MAX];
    size_t top; /* bytes of the mount point */
};

/* Read up to two words of a file in the folder. Returns how many there are. */
static int read_words(const struct cgroup_folder *folder, const char *name, char words[2][32])
{
    char path[PATH_MAX + 64];
    int got = 0;
    snprintf(path, sizeof(path), "%s/%s", folder->path, name);
    FILE *file = fopen(path, "re");
    if (file)
        got = fscanf(file, "%31s %31s", words[0], words[1]);
    if (file)
        fclose(file);
    return got > 0 ? got : 0;
}

/* Lower a limit to the number in a file, if there is one. */
static bool lower_to_file(const struct cgroup_folder *folder, const char *name, int64_t *limit)
{
    char words[2][32], *end;
    if (read_words(folder, name, words) < 1)
        return false;
    long long value = strtoll(words[0], &end, 10);
    if (*end != '\0' || value < 0 || value >= NO_LIMIT_FROM || (*limit >= 0 && value >= *limit))
        return false;
    *limit = value;
    return true;
}

static void lower_cpu(int64_t quota, int64_t period, int64_t *milli)
{
    if (quota > 0 && period > 0 && (*milli < 0 || quota * 1000 / period < *milli))
        *milli = quota * 1000 / period;
}

static void look_at_unified(const struct cgroup_folder *folder, struct preflight_facts *facts)
{
    char words[2][32];
    int64_t used = -1;
    if (lower_to_file(folder, "memory.max", &facts->memory_limit_bytes) &&
        lower_to_file(folder, "memory.current", &used))
        facts->memory_used_bytes = used;
    if (read_words(folder, "cpu.max", words) == 2)
        lower_cpu(atoll(words[0]), atoll(words[1]), &facts->cpu_limit_milli);
}

static void look_at_memory(const struct cgroup_folder *folder, struct preflight_facts *facts)
{
    int64_t used = -1;
    if (lower_to_file(folder, "memory.limit_in_bytes", &facts->memory_limit_bytes) &&
        lower_to_file(folder, "memory.usage_in_bytes", &used))
        facts->memory_used_bytes = used;
}

static void look_at_cpu(const struct cgroup_folder *folder, struct preflight_facts *facts)
{
    char quota[2][32], period[2][32];
    if (read_words(folder, "cpu.cfs_quota_us", quota) > 0 &&
        read_words(folder, "cpu.cfs_period_us", period) > 0)
        lower_cpu(atoll(quota[0]), atoll(period[0]), &facts->cpu_limit_milli);
}

/* Look at a cgroup and its parents, as far as they can be seen. */
static void walk_up(struct cgroup_folder *folder, struct preflight_facts *facts,
                    void (*look)(const struct cgroup_folder *folder, struct preflight_facts *facts))
{
    for (;;) {
        look(folder, facts);
        char *slash = strrchr(folder->path, '/');
        if (strlen(folder->path) <= folder->top || !slash)
            return;
        *slash = '\0';
    }
}

/* Look up one line of /proc/self/cgroup: "0::/path" or "4:cpu,cpuacct:/path". */
static void look_at_line(char *line, const char *root, struct preflight_facts *facts)
{
    struct cgroup_folder folder;
    char *rest = NULL;
    line[strcspn(line, "\n")] = '\0';
    char *number = strtok_r(line, ":", &rest), *kinds = NULL;
    if (!number)
        return;
    bool unified = rest && rest[0] == ':';
    if (!unified)
        kinds = strtok_r(NULL, ":", &rest);
    const char *path = unified ? rest + 1 : rest ? rest : "";
    bool memory = kinds && strcmp(kinds, "memory") == 0;
    bool cpu = kinds && (strcmp(kinds, "cpu") == 0 || strncmp(kinds, "cpu,", 4) == 0);
    if (!unified && !memory && !cpu)
        return;
    folder.top = (size_t)snprintf(folder.path, sizeof(folder.path), "%s/sys/fs/cgroup%s", root,
                                  unified  ? ""
                                  : memory ? "/memory"
                                           : "/cpu");
    if (folder.top >= sizeof(folder.path))
        return;
    snprintf(folder.path + folder.top, sizeof(folder.path) - folder.top, "%s",
             strcmp(path, "/") == 0 ? "" : path);
    walk_up(&folder, facts, unified ? look_at_unified : memory ? look_at_memory : look_at_cpu);
}

void preflight_cgroup_find(struct preflight_facts *facts, const char *root)
{
    char path[PATH_MAX], line[PATH_MAX];
    facts->memory_limit_bytes = facts->memory_used_bytes = facts->cpu_limit_milli = -1;
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "re");
    while (file && fgets(line, sizeof(line), file))
        look_at_line(line, root, facts);
    if (file)
        fclose(file);
}
