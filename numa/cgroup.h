/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroup that limits this process and those above it, in version 1 or 2 of cgroups. */
#ifndef TWILL_CGROUP_H
#define TWILL_CGROUP_H

#include "lib/base/base.h"

#include <limits.h>

/* The folder of a cgroup in one hierarchy, filled by twill_cgroup_find(). A plain value. */
struct twill_cgroup {
    char folder[PATH_MAX];
    size_t top;   /* bytes of `folder` that are the mount point, the topmost cgroup */
    bool unified; /* version 2 */
};

/* Find the cgroup of this process for a controller ("memory", "cpu"). `root` is "", or where a test
 * has its files. Returns false, with folder undefined, if there is none. In a container the path
 * may be that of the host and not exist, as only the container's cgroups are mounted. */
bool twill_cgroup_find(struct twill_cgroup *cgroup, const char *controller, const char *root);
/* Change *cgroup to the one above it. Returns false, without a change, if it is the topmost one. */
bool twill_cgroup_rise(struct twill_cgroup *cgroup);
/* Read up to two numbers from the beginning of file `name` of the cgroup. Returns how many there
 * are, 0 if it cannot be read. "max", or in version 1 a huge number for it, does not count. */
int twill_cgroup_numbers(const struct twill_cgroup *cgroup, const char *name, uint64_t number[2]);
/* Read the number after a word in file `name` of the cgroup. Returns false without such a word. */
bool twill_cgroup_count(const struct twill_cgroup *cgroup, const char *name, const char *word,
                        uint64_t *number);

#endif
