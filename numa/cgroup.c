/* SPDX-License-Identifier: Apache-2.0 */
#include "numa/cgroup.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_NONE_FROM (UINT64_C(1) << 60) /* for "none" version 1 writes a huge number */

/* Return whether the first `bytes` bytes of a list such as "cpu,cpuacct" have a word. */
static bool list_has(const char *list, size_t bytes, const char *word)
{
    for (size_t at = 0, length; at < bytes; at += length + 1) {
        length = strcspn(list + at, ",:");
        if (strlen(word) == length && strncmp(list + at, word, length) == 0)
            return true;
    }
    return false;
}

/* Set *cgroup if a line of /proc/self/cgroup is for the controller. Lines are "0::/path", or
 * "4:cpu,cpuacct:/path" in version 1. A mounted controller of version 1 has precedence, as a
 * controller is in only one of the two. Changes the line. */
static void parse_line(struct twill_cgroup *cgroup, char *line, const char *controller,
                       const char *root)
{
    char folder[PATH_MAX];
    char *list = strchr(line, ':'), *path = list != NULL ? strchr(list + 1, ':') : NULL;
    if (path == NULL)
        return;
    bool unified = path == list + 1;
    int top = snprintf(folder, sizeof(folder), "%s/sys/fs/cgroup%s%s", root, unified ? "" : "/",
                       unified ? "" : controller);
    if (unified ? cgroup->top > 0
                : !list_has(list + 1, (size_t)(path - list - 1), controller) ||
                      access(folder, F_OK) != 0)
        return;
    path[strcspn(path, "\n")] = '\0';
    int used = snprintf(cgroup->folder, sizeof(cgroup->folder), "%s%s", folder,
                        strcmp(path, ":/") == 0 ? "" : path + 1);
    cgroup->top = used < (int)sizeof(cgroup->folder) ? (size_t)top : 0;
    cgroup->unified = unified;
}

bool twill_cgroup_find(struct twill_cgroup *cgroup, const char *controller, const char *root)
{
    char line[PATH_MAX];
    snprintf(line, sizeof(line), "%s/proc/self/cgroup", root);
    FILE *file = fopen(line, "re");
    cgroup->top = 0;
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        parse_line(cgroup, line, controller, root);
    if (file != NULL)
        fclose(file);
    return cgroup->top > 0;
}

bool twill_cgroup_rise(struct twill_cgroup *cgroup)
{
    char *slash = strrchr(cgroup->folder, '/');
    if (strlen(cgroup->folder) <= cgroup->top || slash == NULL)
        return false;
    *slash = '\0';
    return true;
}

/* Open a file of the cgroup to read. Returns NULL if that fails. */
static FILE *open_file(const struct twill_cgroup *cgroup, const char *name)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", cgroup->folder, name);
    return fopen(path, "re");
}

int twill_cgroup_numbers(const struct twill_cgroup *cgroup, const char *name, uint64_t number[2])
{
    FILE *file = open_file(cgroup, name);
    char word[32], *end;
    int numbers = 0;
    while (file != NULL && numbers < 2 && fscanf(file, "%31s", word) == 1) {
        number[numbers] = strtoull(word, &end, 10);
        if (word[0] < '0' || word[0] > '9' || *end != '\0' || number[numbers] >= LIMIT_NONE_FROM)
            break;
        numbers++;
    }
    if (file != NULL)
        fclose(file);
    return numbers;
}

bool twill_cgroup_count(const struct twill_cgroup *cgroup, const char *name, const char *word,
                        uint64_t *number)
{
    FILE *file = open_file(cgroup, name);
    char found[32];
    bool good = false;
    while (file != NULL && !good && fscanf(file, "%31s %" SCNu64, found, number) == 2)
        good = strcmp(found, word) == 0;
    if (file != NULL)
        fclose(file);
    return good;
}
