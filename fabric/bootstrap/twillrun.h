/* SPDX-License-Identifier: Apache-2.0 */
/* Communication of twillrun with its ranks, over a socket and, with --elastic, through files. */
#ifndef TWILL_TWILLRUN_H
#define TWILL_TWILLRUN_H

#include "lib/base/base.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Messages between twillrun and the ranks on its host, over a pair of SOCK_SEQPACKET sockets. All
 * ranks share one end, FD in TWILL_LAUNCHER_FD=FD,DEVICE,FILE, and peek at the notice, so all see
 * it. DEVICE and FILE are the device and inode numbers of standard error. */

/* Message that twillrun sends once, about the first rank that ended on any host. */
struct twill_launcher_exited {
    uint32_t rank, size; /* the rank that ended, of `size` ranks */
    char how[184];       /* "ended (exit code 0) before it called twill_init" */
};

/* Message by which a rank lets twillrun know that it has entered twill_init(). */
struct twill_launcher_entered {
    uint32_t rank;
};

/* Message of a rank with a warning for twillrun to print. Its size tells it from the others. */
struct twill_log_line {
    int32_t rank;    /* -1: not known */
    char text[1020]; /* without the log's prefix, and not terminated */
};

/* Files by which the new processes of twillrun --elastic, rank 0 and twillrun find each other, in a
 * folder of each host, TWILL_ELASTIC=[join:]FOLDER,HOST,ADDRESS. HOST is the host's number, ADDRESS
 * where other hosts reach it, or empty. twillrun copies them to other hosts (elastic_folder.c).
 *     started            a rank of each host: all ranks are in twill_init()
 *     wait.HOST.PID      a new process waits for a handle
 *     go.HOST.PID        rank 0: the handle for it
 *     joining.HOST.PID   it has read the handle; the file is removed when it is a rank of the job
 *     ended.HOST.PID     twillrun: this process of another host has ended; PID 0: all of that host
 *     over               twillrun: all ranks have failed, new processes wait for nothing
 *     part.HOST.PID      a file that this process is writing */

#define TWILL_ELASTIC_JOIN "join:" /* before the folder, in a new process */
/* A process of a job that may grow (twillrun --elastic), as in the names of its files. A value. */
struct twill_elastic_process {
    int host; /* number that twillrun gives the host */
    long pid;
};

/* This process in a job that may grow (twillrun --elastic). A plain value, which
 * twill_elastic_read() sets. */
struct twill_elastic_job {
    char folder[PATH_MAX];            /* where processes of this host find each other by files */
    char address[TWILL_ADDRESS_TEXT]; /* where other hosts reach this one, or empty */
    bool joins;                       /* it is a new process */
    struct twill_elastic_process self;
};

/* Fill in *job from TWILL_ELASTIC. Returns false if that is not set, as in other jobs, or wrong. */
static inline bool twill_elastic_read(struct twill_elastic_job *job)
{
    const char *text = getenv("TWILL_ELASTIC");
    *job = (struct twill_elastic_job){.self = {.pid = (long)getpid()}};
    if (text == NULL)
        return false;
    job->joins = strncmp(text, TWILL_ELASTIC_JOIN, strlen(TWILL_ELASTIC_JOIN)) == 0;
    text += job->joins ? strlen(TWILL_ELASTIC_JOIN) : 0;
    size_t length = strcspn(text, ",");
    return text[length] == ',' && length > 0 && length < PATH_MAX &&
           sscanf(text + length, ",%9d,%63s", &job->self.host, job->address) >= 1 &&
           snprintf(job->folder, sizeof(job->folder), "%.*s", (int)length, text) > 0;
}

/* Set *process from a file name KIND.HOST.PID. Returns false if it is not of `kind`, as "wait". */
static inline bool twill_elastic_parse(const char *name, const char *kind,
                                       struct twill_elastic_process *process)
{
    size_t length = strlen(kind);
    int end = 0;
    return strncmp(name, kind, length) == 0 &&
           sscanf(name + length, ".%9d.%18ld%n", &process->host, &process->pid, &end) == 2 &&
           name[length + (size_t)end] == '\0' && process->host >= 0 && process->pid >= 0;
}

/* Write the path FOLDER/KIND.HOST.PID, or FOLDER/KIND if process is NULL. Returns false if cut. */
static inline bool twill_elastic_path(char *path, size_t bytes, const char *folder,
                                      const char *kind, const struct twill_elastic_process *process)
{
    int used = process != NULL ? snprintf(path, bytes, "%s/%s.%d.%ld", folder, kind, process->host,
                                          process->pid)
                               : snprintf(path, bytes, "%s/%s", folder, kind);
    return used > 0 && (size_t)used < bytes;
}

#endif
