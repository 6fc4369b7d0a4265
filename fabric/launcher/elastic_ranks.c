/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun --elastic: when a rank fails, the others go on, and a new process takes its place. It
 * and the ranks find each other by files in a folder: lib/health/elastic.c. */
#include "fabric/launcher/launcher.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RESTARTS_NS UINT64_C(10000000000) /* TWILL_RESTARTS within this time are too many */

bool twill_elastic_open(struct twill_launch *launch)
{
    const char *above = getenv("TMPDIR");
    if (launch->options->most == 0)
        return true;
    snprintf(launch->folder, sizeof(launch->folder), "%.150s/twillrun-XXXXXX",
             above != NULL && *above ? above : "/tmp");
    if (mkdtemp(launch->folder))
        return true;
    twill_complain("%s: %s", launch->folder, strerror(errno));
    launch->folder[0] = '\0';
    return false;
}

void twill_elastic_close(struct twill_launch *launch)
{
    char path[512];
    const struct dirent *entry;
    DIR *list = launch->folder[0] ? opendir(launch->folder) : NULL;
    while (list && (entry = readdir(list))) {
        snprintf(path, sizeof(path), "%s/%.255s", launch->folder, entry->d_name);
        if (entry->d_name[0] != '.')
            (void)unlink(path);
    }
    if (list)
        closedir(list);
    if (launch->folder[0])
        (void)rmdir(launch->folder);
}

static bool file_exists(const struct twill_launch *launch, const char *name)
{
    char path[256];
    struct stat about;
    snprintf(path, sizeof(path), "%s/%.60s", launch->folder, name);
    return stat(path, &about) == 0;
}

/* Count the processes that wait for the job to take them in: ranks, or children of ranks. */
static int count_waiting(const struct twill_launch *launch)
{
    DIR *list = opendir(launch->folder);
    const struct dirent *entry;
    long pid;
    int waiting = 0;
    while (list && (entry = readdir(list)))
        waiting += sscanf(entry->d_name, "wait.%ld", &pid) == 1 && kill((pid_t)pid, 0) == 0;
    if (list)
        closedir(list);
    return waiting;
}

/* Report whether one more restart now would be too many in a short time. */
static bool restarts_too_often(struct twill_launch *launch)
{
    uint64_t now = twill_now(), *at = &launch->restart_ns[launch->restarts % TWILL_RESTARTS];
    bool often = launch->restarts >= TWILL_RESTARTS && now - *at < RESTARTS_NS;
    *at = now;
    launch->restarts++;
    return often;
}

bool twill_elastic_outlives(struct twill_launch *launch, const struct twill_child *child,
                            const char *how)
{
    const struct twill_options *options = launch->options;
    if (options->most == 0 || launch->phase != 0 || launch->stop_request.times > 0 ||
        launch->finishing || !file_exists(launch, "started"))
        return false;
    if (launch->alive < options->least) {
        twill_complain("%d ranks remain, fewer than --elastic %d:%d asks for", launch->alive,
                       options->least, options->most);
        return false;
    }
    if (restarts_too_often(launch)) {
        twill_complain("more than %d restarts within %d s", TWILL_RESTARTS,
                       (int)(RESTARTS_NS / 1000000000));
        return false;
    }
    twill_complain("rank %d %s; %d others go on; starting restart %u", child->rank, how,
                   launch->alive, launch->restarts);
    return true;
}

void twill_elastic_forget(const struct twill_launch *launch, pid_t pid)
{
    static const char *const kinds[] = {"wait", "go", "part"};
    char path[256];
    for (size_t i = 0; launch->folder[0] && i < TWILL_ARRAY_LENGTH(kinds); i++) {
        snprintf(path, sizeof(path), "%s/%s.%ld", launch->folder, kinds[i], (long)pid);
        (void)unlink(path);
    }
}

void twill_elastic_replace(struct twill_launch *launch, struct twill_child *child)
{
    for (int i = 0; i < 2; i++) { /* the old process's last output */
        while (child->out[i].from >= 0 && twill_stream_move(&child->out[i]))
            if (poll(&(struct pollfd){.fd = child->out[i].from, .events = POLLIN}, 1, 0) <= 0)
                break;
        twill_stream_end(&child->out[i]);
    }
    int rank = child->rank;
    *child = (struct twill_child){.joins = true};
    twill_child_name(launch->options, child, rank);
    int code = twill_child_start(launch, (int)(child - launch->child));
    launch->alive += code == 0;
    if (code == 0 || launch->failed >= 0)
        return;
    launch->failed = rank;
    launch->code = code;
    twill_launch_end(launch, 0);
}

void twill_elastic_dismiss(struct twill_launch *launch)
{
    if (launch->phase != 0 || count_waiting(launch) < launch->alive)
        return;
    for (int i = 0; i < launch->here; i++) {
        struct twill_child *child = &launch->child[i];
        if (child->pid <= 0 || child->dismissed)
            continue;
        twill_complain("rank %d (pid %ld) was not taken in before the job ended", child->rank,
                       (long)child->pid);
        child->dismissed = true;
        (void)kill(-child->pid, SIGKILL);
    }
}
