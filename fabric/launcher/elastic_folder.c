/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of twillrun --elastic on this host, by which new processes and ranks find each other
 * (fabric/bootstrap/twillrun.h). In a job on several hosts, each host agent has such a folder. It
 * sends changes that matter elsewhere to the twillrun in front, which passes them on, and writes
 * changes of other hosts into its own folder.
 *
 *     started          to all hosts
 *     wait.HOST.PID    from HOST to all; its removal also removes go.HOST.PID
 *     go.HOST.PID      to HOST
 *     ended.HOST.PID   from HOST to all */
#include "fabric/bootstrap/twillrun.h"
#include "fabric/launcher/launcher.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#define HANDLE_BYTES    512 /* most bytes of a handle */
#define FILE_NAME_BYTES 64  /* most bytes of a file's name */

bool twill_elastic_open(struct twill_launch *launch, int host)
{
    const char *above = getenv("TMPDIR"); /* a comma would end the folder in TWILL_ELASTIC */
    launch->elastic.host = host;
    if (launch->options->most == 0)
        return true;
    if (above == NULL || *above == '\0' || strchr(above, ','))
        above = "/tmp";
    size_t used = (size_t)snprintf(launch->elastic.folder, sizeof(launch->elastic.folder),
                                   "%s/twillrun-XXXXXX", above);
    errno = ENAMETOOLONG;
    if (used + FILE_NAME_BYTES >= sizeof(launch->elastic.folder) ||
        !mkdtemp(launch->elastic.folder)) {
        twill_complain("--elastic: no folder in TMPDIR (%s): %s", strerror(errno), above);
        launch->elastic.folder[0] = '\0';
        return false;
    }
    launch->elastic.watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (launch->elastic.watch >= 0 &&
        inotify_add_watch(launch->elastic.watch, launch->elastic.folder,
                          IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE) >= 0)
        return true;
    twill_complain("--elastic: inotify: %s", strerror(errno));
    return false;
}

void twill_elastic_close(struct twill_launch *launch)
{
    const struct dirent *entry;
    DIR *list = launch->elastic.folder[0] ? opendir(launch->elastic.folder) : NULL;
    while (list && (entry = readdir(list)))
        if (entry->d_name[0] != '.')
            (void)unlinkat(dirfd(list), entry->d_name, 0);
    if (list)
        closedir(list);
    if (launch->elastic.folder[0])
        (void)rmdir(launch->elastic.folder);
    if (launch->elastic.watch >= 0)
        close(launch->elastic.watch);
    launch->elastic.watch = -1;
}

/* Return whether the folder has the file of this kind, and of a process unless that is NULL. */
static bool has_file(const struct twill_launch *launch, const char *kind,
                     const struct twill_elastic_process *process)
{
    char path[PATH_MAX];
    struct stat about;
    return twill_elastic_path(path, sizeof(path), launch->elastic.folder, kind, process) &&
           stat(path, &about) == 0;
}

/* Remove the file of this kind of a process, if there is one. */
static void drop_file(const struct twill_launch *launch, const char *kind,
                      const struct twill_elastic_process *process)
{
    char path[PATH_MAX];
    if (twill_elastic_path(path, sizeof(path), launch->elastic.folder, kind, process))
        (void)unlink(path);
}

/* Write the file of this kind of a process, or of the job if that is NULL. With contents it is
 * renamed into place, so that it appears as a whole and inotify reports it. An empty one is not
 * reported. A failure only causes a message. */
static void put_file(const struct twill_launch *launch, const char *kind,
                     const struct twill_elastic_process *process, const char *text, size_t bytes)
{
    const struct twill_elastic_process self = {.host = launch->elastic.host, .pid = (long)getpid()};
    char path[PATH_MAX], part[PATH_MAX];
    bool good = twill_elastic_path(path, sizeof(path), launch->elastic.folder, kind, process) &&
                twill_elastic_path(part, sizeof(part), launch->elastic.folder, "part", &self);
    int fd = good ? open(bytes > 0 ? part : path,
                         O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600)
                  : -1;
    good = fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes;
    if (fd >= 0)
        close(fd);
    if (!good || (bytes > 0 && rename(part, path) != 0))
        twill_complain("--elastic: a file in %s: %s", launch->elastic.folder, strerror(errno));
}

bool twill_elastic_has_started(const struct twill_launch *launch)
{
    return launch->elastic.folder[0] && has_file(launch, "started", NULL);
}

void twill_elastic_put_over(const struct twill_launch *launch)
{
    put_file(launch, "over", NULL, "", 0);
}

/* Return whether a file name is of a process here that is not in the job yet, and set *process. */
static bool is_outside(const struct twill_launch *launch, const char *name,
                       struct twill_elastic_process *process)
{
    return (twill_elastic_parse(name, "wait", process) ||
            twill_elastic_parse(name, "joining", process)) &&
           process->host == launch->elastic.host;
}

int twill_elastic_waiting(const struct twill_launch *launch, int *joining)
{
    struct twill_elastic_process process;
    const struct dirent *entry;
    int waiting = 0;
    *joining = 0;
    for (int i = 0; i < launch->here && launch->elastic.folder[0]; i++) {
        DIR *list = launch->child[i].pid > 0 ? opendir(launch->elastic.folder) : NULL;
        bool found = false, has_handle = false;
        while (list && (entry = readdir(list))) {
            if (!is_outside(launch, entry->d_name, &process) ||
                getpgid((pid_t)process.pid) != launch->child[i].pid)
                continue;
            found = true;
            has_handle = has_handle || twill_elastic_parse(entry->d_name, "joining", &process);
        }
        waiting += found;
        *joining += has_handle && !launch->child[i].dismissed;
        if (list)
            closedir(list);
    }
    return waiting;
}

/* In a host agent, report to the twillrun in front that a file was written (`made`), with its
 * contents `text`, or removed. Elsewhere do nothing. */
static void send_change(const struct twill_launch *launch, const char *name, bool made,
                        const char *text, size_t bytes)
{
    char data[320 + HANDLE_BYTES];
    size_t used = (size_t)snprintf(data, 320, "%.300s", name) + 1;
    memcpy(data + used, text, bytes);
    if (launch->link)
        (void)twill_pipe_put(launch->link, TWILL_FRAME_FILE, 0, made, data, used + bytes);
}

/* Read the handle with which a process may join the job, from its file "go" in the folder. Returns
 * its bytes, cut to HANDLE_BYTES, or 0 if the file cannot be read or is empty. */
static size_t read_go(const struct twill_launch *launch,
                      const struct twill_elastic_process *process, char text[HANDLE_BYTES])
{
    char path[PATH_MAX];
    int fd = twill_elastic_path(path, sizeof(path), launch->elastic.folder, "go", process)
                 ? open(path, O_RDONLY | O_CLOEXEC)
                 : -1;
    ssize_t n = fd >= 0 ? read(fd, text, HANDLE_BYTES) : 0;
    if (fd >= 0)
        close(fd);
    return n > 0 ? (size_t)n : 0;
}

/* File `name` of this host's folder was created (`made`) or removed. Report that to the twillrun in
 * front if it matters on other hosts. That is so for a process here that begins or stops to wait, a
 * handle for a process elsewhere, and the start of the job. */
static void forward_change(const struct twill_launch *launch, const char *name, bool made)
{
    struct twill_elastic_process process;
    char text[HANDLE_BYTES];
    if (twill_elastic_parse(name, "wait", &process)) {
        if (process.host == launch->elastic.host)
            send_change(launch, name, made, "", 0);
    } else if (twill_elastic_parse(name, "go", &process)) {
        size_t bytes =
            made && process.host != launch->elastic.host ? read_go(launch, &process, text) : 0;
        if (bytes > 0)
            send_change(launch, name, true, text, bytes);
    } else if (made && strcmp(name, "started") == 0) {
        send_change(launch, name, true, "", 0);
    }
}

void twill_elastic_receive(struct twill_launch *launch)
{
    _Alignas(struct inotify_event) char events[4096];
    ssize_t n;
    while ((n = read(launch->elastic.watch, events, sizeof(events))) > 0)
        for (char *at = events; at < events + n;) {
            const struct inotify_event *event = (const void *)at;
            if (event->len > 0)
                forward_change(launch, event->name, (event->mask & IN_MOVED_TO) != 0);
            at += sizeof(*event) + event->len;
        }
    twill_elastic_check(launch);
}

void twill_elastic_apply(const struct twill_launch *launch, const struct twill_frame *frame)
{
    struct twill_elastic_process process;
    const char *name = frame->data, *end = memchr(name, '\0', frame->bytes);
    bool made = frame->value != 0;
    if (!end || !launch->elastic.folder[0])
        return;
    size_t bytes = frame->bytes - (size_t)(end + 1 - name);
    if (twill_elastic_parse(name, "go", &process) && process.host == launch->elastic.host) {
        put_file(launch, "go", &process, end + 1, twill_min(bytes, HANDLE_BYTES));
    } else if (twill_elastic_parse(name, "ended", &process) &&
               process.host != launch->elastic.host) {
        put_file(launch, "ended", &process, "", 0);
        drop_file(launch, "wait", &process);
        drop_file(launch, "go", &process);
    } else if (twill_elastic_parse(name, "wait", &process) &&
               process.host != launch->elastic.host) {
        drop_file(launch, made ? "ended" : "go", &process);
        if (made)
            put_file(launch, "wait", &process, "", 0);
        else
            drop_file(launch, "wait", &process);
    } else if (strcmp(name, "started") == 0 || strcmp(name, "over") == 0) {
        put_file(launch, name, NULL, "", 0);
    }
}

/* Remove the files of a process of this host. In a host agent, report its end to the twillrun in
 * front. */
static void forget_process(const struct twill_launch *launch,
                           const struct twill_elastic_process *process)
{
    static const char *const kinds[] = {"wait", "joining", "go", "part"};
    char name[64];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(kinds); i++)
        drop_file(launch, kinds[i], process);
    snprintf(name, sizeof(name), "ended.%d.%ld", process->host, process->pid);
    send_change(launch, name, true, "", 0);
}

void twill_elastic_forget(const struct twill_launch *launch, pid_t group)
{
    DIR *list = launch->elastic.folder[0] ? opendir(launch->elastic.folder) : NULL;
    const struct dirent *entry;
    struct twill_elastic_process process;
    while (list && (entry = readdir(list)))
        if (is_outside(launch, entry->d_name, &process) &&
            (process.pid == (long)group || kill((pid_t)process.pid, 0) != 0 ||
             getpgid((pid_t)process.pid) == group))
            forget_process(launch, &process);
    if (list)
        closedir(list);
}
