/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs of twillrun --elastic. New processes and rank 0 exchange files in a folder of twillrun,
 * which TWILL_ELASTIC names. fabric/bootstrap/twillrun.h lists the files. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/bootstrap/twillrun.h"
#include "lib/api/api_internal.h"
#include "lib/base/times.h"
#include "lib/comm/recovery.h"
#include "lib/job/config.h"
#include "lib/twill_recover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_TAKEN 256u

/* New processes that wait to join, as rank 0 has found them. One is on the stack of a call. */
struct elastic_waiting {
    const struct twill_elastic_job *job;
    size_t count;
    struct twill_elastic_process process[MOST_TAKEN];
};

/* Write file `kind` of a process, or of the job if that is NULL. Readers see all of it or none.
 * Returns false, with errno, on failure. */
static bool write_file(const struct twill_elastic_job *job, const char *kind,
                       const struct twill_elastic_process *process, const char *text)
{
    char path[PATH_MAX], part[PATH_MAX];
    if (!twill_elastic_path(path, sizeof(path), job->folder, kind, process) ||
        !twill_elastic_path(part, sizeof(part), job->folder, "part", &job->self))
        return false;
    int fd = twill_fd_move(open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600),
                           TWILL_FD_LEAST);
    size_t bytes = strlen(text);
    bool good = fd >= 0 && write(fd, text, bytes) == (ssize_t)bytes;
    if (fd >= 0)
        good = close(fd) == 0 && good;
    return good && rename(part, path) == 0;
}

/* Return whether file `kind` of a process, or of the job if that is NULL, exists. */
static bool file_exists(const struct twill_elastic_job *job, const char *kind,
                        const struct twill_elastic_process *process)
{
    char path[PATH_MAX];
    struct stat about;
    return twill_elastic_path(path, sizeof(path), job->folder, kind, process) &&
           stat(path, &about) == 0;
}

/* Remove file `kind` of a process, or of the job if that is NULL, if there is one. */
static void remove_file(const struct twill_elastic_job *job, const char *kind,
                        const struct twill_elastic_process *process)
{
    char path[PATH_MAX];
    if (twill_elastic_path(path, sizeof(path), job->folder, kind, process))
        (void)unlink(path);
}

void twill_elastic_started(const struct twill_comm *comm)
{
    struct twill_elastic_job job;
    if (twill_elastic_read(&job) && !file_exists(&job, "started", NULL) &&
        !write_file(&job, "started", NULL, ""))
        twill_say(comm->log, TWILL_LOG_WARN, "TWILL_ELASTIC=%s: %s", job.folder, strerror(errno));
}

/* Read rank 0's handle for this process. Then mark the process as joining, and remove its files
 * "wait" and "go". Returns false if there is no handle. */
static bool read_handle(const struct twill_elastic_job *job, char handle[TWILL_HANDLE_BYTES])
{
    char path[PATH_MAX];
    int fd = twill_elastic_path(path, sizeof(path), job->folder, "go", &job->self)
                 ? open(path, O_RDONLY | O_CLOEXEC)
                 : -1;
    ssize_t n = fd >= 0 ? read(fd, handle, TWILL_HANDLE_BYTES - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    handle[n] = '\0';
    (void)write_file(job, "joining", &job->self, "");
    remove_file(job, "wait", &job->self);
    remove_file(job, "go", &job->self);
    return true;
}

/* Set *ns to TWILL_TIMEOUT of the settings and environment. Returns TWILL_OK or the error. */
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
    struct twill_elastic_job job;
    return twill_elastic_read(&job) && job.joins;
}

bool twill_elastic_is_over(void *user, uint32_t rank)
{
    struct twill_elastic_job job;
    (void)user;
    (void)rank;
    return twill_elastic_read(&job) && file_exists(&job, "over", NULL);
}

void twill_elastic_joined(void)
{
    struct twill_elastic_job job;
    if (twill_elastic_read(&job))
        remove_file(&job, "joining", &job.self);
}

twill_status twill_elastic_await(const char *const *settings, uint64_t *deadline, char *handle,
                                 struct twill_error *error)
{
    struct twill_elastic_job job;
    if (*deadline == 0) {
        uint64_t patience = 0;
        TWILL_TRY(error, read_patience(settings, &patience, error));
        *deadline = twill_now() + patience;
    }
    if (!twill_elastic_read(&job) || !write_file(&job, "wait", &job.self, ""))
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "TWILL_ELASTIC=%s: %s", job.folder,
                          strerror(errno));
    remove_file(&job, "joining", &job.self); /* left by an earlier attempt */
    while (!read_handle(&job, handle)) {
        bool over = file_exists(&job, "over", NULL);
        if (over || twill_now() >= *deadline) {
            remove_file(&job, "wait", &job.self);
            remove_file(&job, "go", &job.self);
            return over ? TWILL_FAIL(error, TWILL_ERR_PEER,
                                     "all ranks of the job have failed before this process joined")
                        : TWILL_FAIL(error, TWILL_ERR_TIMEOUT,
                                     "the job has not admitted this process (twill_comm_admit) "
                                     "within TWILL_TIMEOUT");
        }
        (void)poll(NULL, 0, TWILL_ELASTIC_LOOK_MS);
    }
    return TWILL_OK;
}

/* Return whether a process has died. On another host twillrun finds that, and writes a file for the
 * process or one for all processes of that host. */
static bool has_died(const struct twill_elastic_job *job,
                     const struct twill_elastic_process *process)
{
    const struct twill_elastic_process all = {.host = process->host};
    if (process->host == job->self.host)
        return kill((pid_t)process->pid, 0) != 0 && errno == ESRCH;
    return file_exists(job, "ended", process) || file_exists(job, "ended", &all);
}

/* Return whether one of the processes of `user`, a struct elastic_waiting, has died. */
static bool has_lost_one(const void *user)
{
    const struct elastic_waiting *taken = user;
    for (size_t i = 0; i < taken->count; i++)
        if (has_died(taken->job, &taken->process[i]))
            return true;
    return false;
}

/* Add live processes that wait and have no handle to *waiting, until it is full. */
static void find_waiting(struct elastic_waiting *waiting)
{
    DIR *list = opendir(waiting->job->folder);
    const struct dirent *entry;
    while (list != NULL && waiting->count < MOST_TAKEN && (entry = readdir(list)) != NULL) {
        struct twill_elastic_process *process = &waiting->process[waiting->count];
        if (twill_elastic_parse(entry->d_name, "wait", process) &&
            !has_died(waiting->job, process) && !file_exists(waiting->job, "go", process))
            waiting->count++;
    }
    if (list != NULL)
        closedir(list);
}

/* Make a handle and give it to the waiting processes. Returns their number, or 0 if none waits or
 * on failure, after a warning if a file cannot be written. */
static uint64_t invite(struct twill_comm *comm, struct elastic_waiting *waiting)
{
    char handle[TWILL_JOIN_HANDLE_TEXT];
    if (waiting->count == 0 ||
        twill_growth_open(comm, (uint32_t)waiting->count, handle, NULL) != TWILL_OK)
        return 0;
    for (size_t i = 0; i < waiting->count; i++)
        if (!write_file(waiting->job, "go", &waiting->process[i], handle)) {
            twill_say(comm->log, TWILL_LOG_WARN, "TWILL_ELASTIC=%s: %s", waiting->job->folder,
                      strerror(errno));
            twill_growth_close(comm);
            for (size_t j = 0; j < i; j++)
                remove_file(waiting->job, "go", &waiting->process[j]);
            return 0;
        }
    return waiting->count;
}

twill_status twill_elastic_admit(struct twill_comm **larger, struct twill_comm *comm)
{
    struct twill_elastic_job job;
    struct elastic_waiting waiting = {.job = &job, .count = 0};
    uint64_t count = 0;
    if (!twill_elastic_read(&job)) {
        twill_comm_release(comm);
        return TWILL_OK;
    }
    if (comm->rank == 0) {
        find_waiting(&waiting);
        count = invite(comm, &waiting);
    }
    twill_comm_release(comm);
    twill_status status = twill_broadcast(comm, &count, &count, 1, TWILL_U64, 0);
    if (status == TWILL_OK && count == 0)
        return TWILL_OK;
    TWILL_TRY(NULL, twill_comm_acquire(comm, "twill_comm_admit"));
    const struct twill_growth_limits limits = {TWILL_ADMIT_NS, has_lost_one, &waiting};
    struct twill_error error = {0};
    if (status == TWILL_OK)
        status = twill_recovery_conclude(comm, twill_grow(larger, comm, &limits, &error), &error);
    else
        twill_growth_close(comm); /* invited processes try again */
    twill_comm_release(comm);
    return status;
}
