/* SPDX-License-Identifier: Apache-2.0 */
/* Files of the host that twillrun needs, and what serves where a container does not have them. */
#include "fabric/launcher/launcher.h"

#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
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
