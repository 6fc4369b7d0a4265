/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/host/processes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Set name, state and parent from "PID (NAME) STATE PARENT ...". Returns false on failure. */
static bool parse_stat(char *text, struct twill_host_process *process)
{
    char *open = strchr(text, '('), *close = strrchr(text, ')');
    if (open == NULL || close == NULL || close < open)
        return false;
    *close = '\0';
    snprintf(process->name, sizeof(process->name), "%s", open + 1);
    twill_text_plain(process->name, strlen(process->name));
    return sscanf(close + 1, " %c %d", &process->state, &process->parent) == 2;
}

bool twill_process_read(int pid, struct twill_host_process *process)
{
    char path[40], text[512];
    struct stat about;
    snprintf(path, sizeof(path), "/proc/%d", pid);
    if (stat(path, &about) != 0)
        return false;
    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    errno = EINVAL; /* unless read() fails */
    ssize_t got = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    *process = (struct twill_host_process){.pid = pid, .user = about.st_uid};
    return parse_stat(text, process);
}

size_t twill_process_list(struct twill_host_process **list)
{
    size_t count = 0, room = 0;
    DIR *folder = opendir("/proc");
    const struct dirent *entry;
    *list = NULL;
    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        struct twill_host_process process;
        int pid = atoi(entry->d_name);
        if (pid <= 0 || !twill_process_read(pid, &process))
            continue;
        if (count == room) {
            struct twill_host_process *more =
                realloc(*list, (room = room * 2 + 64) * sizeof(**list));
            if (more == NULL)
                break;
            *list = more;
        }
        (*list)[count++] = process;
    }
    if (folder != NULL)
        closedir(folder);
    return count;
}

const char *twill_process_state_text(char state)
{
    switch (state) {
    case 'R':
        return "running";
    case 'S':
    case 'I':
        return "sleeping";
    case 'D':
        return "in the kernel";
    case 'T':
        return "stopped";
    case 't':
        return "traced";
    case 'Z':
    case 'X':
        return "dead";
    }
    return "unknown";
}
