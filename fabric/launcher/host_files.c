/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the host that twillrun needs, and replacements for those that a container may lack. */
#include "fabric/launcher/launcher.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

int twill_null_open(void)
{
    int ends[2], null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0 || pipe2(ends, O_CLOEXEC) != 0)
        return null;
    close(ends[1]);
    return ends[0];
}

bool twill_self_find(char path[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", path, PATH_MAX - 1);
    path[length > 0 ? length : 0] = '\0';
    if (length > 0)
        return true;
    const char *started = (const char *)getauxval(AT_EXECFN); /* a path, also after a search */
    return started != NULL && realpath(started, path) != NULL;
}

void twill_hwloc_quieten(void)
{
    if (access("/sys/devices/system/cpu", F_OK) != 0)
        (void)setenv("HWLOC_HIDE_ERRORS", "2", 0);
}

#define HEAP_LIBRARY "libtwill-heap.so"

/* Write the path of libtwill-heap.so to path[]. It is in `folder`, relative to the folder of this
 * program. Returns true, or false if the file cannot be read or LD_PRELOAD cannot name it. Such a
 * path is too long or has a space or a colon. */
static bool library_find(char path[PATH_MAX], const char *folder)
{
    char self[PATH_MAX];
    char *name = twill_self_find(self) ? strrchr(self, '/') : NULL;
    if (name == NULL)
        return false;
    *name = '\0';
    int n = snprintf(path, PATH_MAX, "%s/%s/" HEAP_LIBRARY, self, folder);
    return n > 0 && n < PATH_MAX && strpbrk(path, " :") == NULL && access(path, R_OK) == 0;
}

bool twill_preload_set(void)
{
    char path[PATH_MAX];
    const char *setting = getenv("TWILL_HEAP"), *others = getenv("LD_PRELOAD");
    if (setting == NULL ||
        (strncmp(setting, "shared", 6) != 0 && strncmp(setting, "promote", 7) != 0) ||
        (others != NULL && strstr(others, HEAP_LIBRARY) != NULL))
        return true;
    if (!library_find(path, TWILL_LIBRARY_FOLDER) && !library_find(path, "../lib"))
        return true; /* libtwill reports it */
    if (others == NULL || *others == '\0')
        return setenv("LD_PRELOAD", path, 1) == 0;
    size_t size = strlen(path) + strlen(others) + 2;
    char *both = malloc(size);
    if (both == NULL)
        return false;
    snprintf(both, size, "%s:%s", path, others);
    bool done = setenv("LD_PRELOAD", both, 1) == 0;
    free(both);
    return done;
}
