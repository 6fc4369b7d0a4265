/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/support/thread_binding.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

unsigned twill_test_threads_on(const char *thread, int pu)
{
    unsigned found = 0;
    DIR *tasks = opendir("/proc/self/task");
    const struct dirent *entry;
    while (tasks != NULL && (entry = readdir(tasks)) != NULL) {
        char path[300], name[32] = "";
        cpu_set_t set;
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        FILE *file = fopen(path, "re");
        if (file == NULL)
            continue;
        (void)(fgets(name, sizeof(name), file) == NULL);
        fclose(file);
        name[strcspn(name, "\n")] = '\0';
        if (strcmp(name, thread) == 0 &&
            sched_getaffinity(atoi(entry->d_name), sizeof(set), &set) == 0)
            found += CPU_COUNT(&set) == 1 && CPU_ISSET((size_t)pu, &set);
    }
    if (tasks != NULL)
        closedir(tasks);
    return found;
}
