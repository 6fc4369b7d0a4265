/* SPDX-License-Identifier: Apache-2.0 */
/* The cgroup that limits this process, and those above it, in version 1 or 2. */
#ifndef TWILL_CGROUP_H
#define TWILL_CGROUP_H

#include "lib/base/base.h"

#include <limits.h>

struct twill_cgroup {
    char folder[PATH_MAX];
    size_t top; /* bytes of the mount point, which is the folder of the topmost one */
    bool unified;
};

/* Find the cgroup of this process for a controller ("memory", "cpu"). root: "", or where a test has
 * its files. Returns false if there is none. In a container its path may be one of the host, and
 * not be there: what is mounted is the container's. */
bool twill_cgroup_find(struct twill_cgroup *cgroup, const char *controller, const char *root);
/* Go to the cgroup above. Returns false at the topmost. */
bool twill_cgroup_rise(struct twill_cgroup *cgroup);
/* Read up to two numbers from the beginning of a file. Returns how many there are: "max" is none,
 * and neither is the huge number that version 1 writes for it. */
int twill_cgroup_numbers(const struct twill_cgroup *cgroup, const char *name, uint64_t number[2]);
/* Read the number that follows a word in a file. Returns false if it is not there. */
bool twill_cgroup_count(const struct twill_cgroup *cgroup, const char *name, const char *word,
                        uint64_t *number);

#endif
