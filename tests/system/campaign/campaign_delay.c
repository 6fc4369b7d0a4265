/* SPDX-License-Identifier: Apache-2.0 */
/* How long processes have waited for a core, as the kernel counts it: bounds of waits hold for
 * ranks that get one. */
#include "tests/system/campaign/campaign.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#define STOLEN 8 /* column of "cpu" in /proc/stat */

/* Add what a thread has used. */
static void add_thread(pid_t pid, const char *thread, struct campaign_usage *usage)
{
    char path[64];
    uint64_t ran, waited;
    snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat", (int)pid, thread);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fscanf(file, "%" SCNu64 "%" SCNu64, &ran, &waited) == 2) {
        usage->ran_ns += ran;
        usage->waited_ns += waited;
    }
    (void)fclose(file);
}

struct campaign_usage campaign_usage_of(pid_t pid)
{
    struct campaign_usage usage = {0, 0};
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return usage;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.')
            add_thread(pid, entry->d_name, &usage);
    closedir(folder);
    return usage;
}

uint64_t campaign_stolen_ns(void)
{
    FILE *file = fopen("/proc/stat", "re");
    uint64_t ticks = 0;
    if (file == NULL)
        return 0;
    bool known = fscanf(file, "cpu") == 0;
    for (int column = 1; known && column <= STOLEN; column++)
        known = fscanf(file, "%" SCNu64, &ticks) == 1;
    (void)fclose(file);
    return known ? ticks * (UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK)) : 0;
}
