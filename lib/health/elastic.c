/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of twillrun --elastic. New processes and rank 0 meet in a folder of twillrun's, which
 * TWILL_ELASTIC names, as the files below; twillrun removes the files of processes that end.
 *
 *     started      rank 0: all ranks are in twill_init()
 *     wait.PID     a new process waits for a handle
 *     go.PID       rank 0: the handle for it
 */
#include "lib/health/recovery.h"
#include "lib/twill_recover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JOINS      "join:"               /* before the folder: this is a new process */
#define LOOK_MS    5                     /* between looks for the handle */
#define ADMIT_NS   UINT64_C(10000000000) /* at most, for all to meet */
#define MOST_TAKEN 256u

/* New processes that rank 0 has given a handle to. */
struct elastic_waiting {
    size_t count;
    pid_t pid[MOST_TAKEN];
};

/* Return the folder, or NULL if this is no elastic job. *joins: this is a new process. */
static const char *elastic_folder(bool *joins)
{
    const char *text = getenv("TWILL_ELASTIC");
    bool given = text != NULL && text[0] != '\0';
    *joins = given && strncmp(text, JOINS, strlen(JOINS)) == 0;
    return !given ? NULL : *joins ? text + strlen(JOINS) : text;
}

static bool file_name(char path[PATH_MAX], const char *folder, const char *kind, pid_t pid)
{
    int used = pid > 0 ? snprintf(path, PATH_MAX, "%s/%s.%ld", folder, kind, (long)pid)
                       : snprintf(path, PATH_MAX, "%s/%s", folder, kind);
    return used > 0 && used < PATH_MAX;
}

/* Write a file as a whole: readers see all of it or none. False with errno. */
static bool write_file(const char *folder, const char *kind, pid_t pid, const char *text)
{
    char path[PATH_MAX], part[PATH_MAX];
    if (!file_name(path, folder, kind, pid) || !file_name(part, folder, "part", getpid()))
        return false;
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    size_t bytes = strlen(text);
    bool good = fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes;
    if (fd >= 0)
        good = close(fd) == 0 && good;
    return good && rename(part, path) == 0;
}

static void remove_file(const char *folder, const char *kind, pid_t pid)
{
    char path[PATH_MAX];
    if (file_name(path, folder, kind, pid))
        (void)unlink(path);
}

void twill_elastic_started(const struct twill_comm *comm)
{
    bool joins;
    const char *folder = elastic_folder(&joins);
    if (folder != NULL && comm->rank == 0 && !write_file(folder, "started", 0, ""))
        twill_say(&comm->context->log, TWILL_LOG_WARN, "TWILL_ELASTIC=%s: %s", folder,
                  strerror(errno));
}

/* --- a new process --------------------------------------------------------------------------- */

/* Read the handle that rank 0 has written for this process. */
static bool read_handle(const char *folder, char handle[TWILL_HANDLE_BYTES])
{
    char path[PATH_MAX];
    int fd = file_name(path, folder, "go", getpid()) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd >= 0 ? read(fd, handle, TWILL_HANDLE_BYTES - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    handle[n] = '\0';
    remove_file(folder, "wait", getpid());
    remove_file(folder, "go", getpid());
    return true;
}

/* Return TWILL_TIMEOUT as nanoseconds. */
static twill_status read_patience(const char *const *settings, uint64_t *ns,
                                  struct twill_error *error)
{
    struct twill_config config = {.text = {NULL}};
    twill_status status = twill_config_load(&config, settings, error);
    if (status == TWILL_OK)
        *ns = (uint64_t)config.number[TWILL_VARIABLE_TIMEOUT];
    twill_config_destroy(&config);
    return status;
}

bool twill_elastic_joins(void)
{
    bool joins;
    return elastic_folder(&joins) != NULL && joins;
}

twill_status twill_elastic_await(const char *const *settings, uint64_t *deadline,
                                 char handle[TWILL_HANDLE_BYTES], struct twill_error *error)
{
    bool joins;
    const char *folder = elastic_folder(&joins);
    if (*deadline == 0) {
        uint64_t patience;
        TWILL_TRY(error, read_patience(settings, &patience, error));
        *deadline = twill_now() + patience;
    }
    if (!write_file(folder, "wait", getpid(), ""))
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "TWILL_ELASTIC=%s: %s", folder, strerror(errno));
    while (!read_handle(folder, handle)) {
        if (twill_now() >= *deadline) {
            remove_file(folder, "wait", getpid());
            remove_file(folder, "go", getpid());
            return TWILL_FAIL(error, TWILL_ERR_TIMEOUT,
                              "the job has not taken this process in (twill_comm_admit) within "
                              "TWILL_TIMEOUT");
        }
        (void)poll(NULL, 0, LOOK_MS);
    }
    return TWILL_OK;
}

/* --- rank 0 ---------------------------------------------------------------------------------- */

static bool has_died(pid_t pid)
{
    return kill(pid, 0) != 0 && errno == ESRCH;
}

static bool has_lost_one(const void *user)
{
    const struct elastic_waiting *taken = user;
    for (size_t i = 0; i < taken->count; i++)
        if (has_died(taken->pid[i]))
            return true;
    return false;
}

/* List the processes that wait. */
static void find_waiting(const char *folder, struct elastic_waiting *waiting)
{
    DIR *list = opendir(folder);
    const struct dirent *entry;
    long pid;
    int end;
    waiting->count = 0;
    while (list != NULL && waiting->count < MOST_TAKEN && (entry = readdir(list)) != NULL)
        if (sscanf(entry->d_name, "wait.%ld%n", &pid, &end) == 1 && entry->d_name[end] == '\0' &&
            !has_died((pid_t)pid))
            waiting->pid[waiting->count++] = (pid_t)pid;
    if (list != NULL)
        closedir(list);
}

/* Make a handle for them, and give it to each. Returns how many of them may come. */
static uint64_t invite(struct twill_comm *comm, const char *folder, struct elastic_waiting *waiting)
{
    char handle[TWILL_JOIN_HANDLE_TEXT];
    if (waiting->count == 0 ||
        twill_growth_open(comm, (uint32_t)waiting->count, handle) != TWILL_OK)
        return 0;
    for (size_t i = 0; i < waiting->count; i++)
        if (!write_file(folder, "go", waiting->pid[i], handle)) {
            twill_say(&comm->context->log, TWILL_LOG_WARN, "TWILL_ELASTIC=%s: %s", folder,
                      strerror(errno));
            twill_growth_close(comm);
            for (size_t j = 0; j < i; j++)
                remove_file(folder, "go", waiting->pid[j]);
            return 0;
        }
    return waiting->count;
}

twill_status twill_elastic_admit(struct twill_comm **larger, struct twill_comm *comm)
{
    bool joins;
    const char *folder = elastic_folder(&joins);
    struct elastic_waiting waiting = {.count = 0};
    uint64_t count = 0;
    if (folder == NULL) {
        twill_comm_release(comm);
        return TWILL_OK;
    }
    if (comm->rank == 0) {
        find_waiting(folder, &waiting);
        count = invite(comm, folder, &waiting);
    }
    twill_comm_release(comm);
    twill_status status = twill_broadcast(comm, &count, &count, 1, TWILL_U64, 0);
    if (status == TWILL_OK && count == 0)
        return TWILL_OK;
    TWILL_TRY(NULL, twill_comm_acquire(comm, "twill_comm_admit"));
    if (status == TWILL_OK)
        status = twill_grow(larger, comm,
                            &(struct twill_growth_limits){ADMIT_NS, has_lost_one, &waiting});
    else
        twill_growth_close(comm); /* those that were invited try again */
    twill_comm_release(comm);
    return status;
}
