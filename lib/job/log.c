/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a context: its file, its level and lines that ranks of a node share. */
#include "lib/job/log.h"
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/bootstrap/twillrun.h"
#include "lib/base/times.h"
#include "lib/job/config.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

const char *twill_log_name_file(const struct twill_log *log, const char *pattern,
                                char path[PATH_MAX])
{
    char host[HOST_NAME_MAX + 1] = "";
    size_t used = 0;
    (void)gethostname(host, sizeof(host) - 1);
    for (const char *at = pattern; *at != '\0' && used < PATH_MAX - 1; at++) {
        char letter = *at == '%' ? *++at : '\0';
        size_t space = PATH_MAX - used;
        if (letter == 'h')
            used += (size_t)snprintf(path + used, space, "%s", host);
        else if (letter == 'p')
            used += (size_t)snprintf(path + used, space, "%d", (int)getpid());
        else if (letter == 'r')
            used += (size_t)snprintf(path + used, space, "%d", log->rank);
        else if (letter == '%' || (letter == '\0' && *at != '\0'))
            path[used++] = *at;
        else
            return "% must be followed by h (host), p (process), r (rank) or another %";
    }
    path[twill_min(used, PATH_MAX - 1)] = '\0';
    return used < PATH_MAX - 1 ? NULL : "the path is too long";
}

/* Send a warning to twillrun through the socket `user` or, if that fails, write it to stderr. */
static void print_by_launcher(void *user, const char *line)
{
    const char *rank = getenv("RANK"), *text = strstr(line, ": ");
    struct twill_log_line warning = {.rank = rank != NULL ? atoi(rank) : -1};
    struct pollfd writable = {.fd = (int)(intptr_t)user, .events = POLLOUT};
    (void)sscanf(line, "twill[%9d]", &warning.rank);
    size_t bytes = twill_min(strlen(text + 2), sizeof(warning.text));
    memcpy(warning.text, text + 2, bytes);
    bytes += offsetof(struct twill_log_line, text);
    ssize_t sent = send(writable.fd, &warning, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN && poll(&writable, 1, TWILL_LOG_LAUNCHER_MS) > 0)
        sent = send(writable.fd, &warning, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent == (ssize_t)bytes)
        return;
    const struct iovec whole[] = {{(void *)(uintptr_t)line, strlen(line)}, {"\n", 1}};
    (void)!writev(STDERR_FILENO, whole, 2);
}

void twill_log_find_launcher(struct twill_log *log)
{
    const char *text = getenv("TWILL_LAUNCHER_FD");
    unsigned long long device, file;
    int fd, type = 0, domain = 0;
    socklen_t length = sizeof(type);
    struct stat about;
    if (text == NULL || sscanf(text, "%9d,%llx,%llx", &fd, &device, &file) != 3 || fd <= 0 ||
        fstat(STDERR_FILENO, &about) != 0 || about.st_dev != device || about.st_ino != file)
        return;
    if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_SEQPACKET ||
        getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) != 0 || domain != AF_UNIX)
        return;
    log->print = print_by_launcher;
    log->user = (void *)(intptr_t)fd;
}

twill_status twill_log_open(struct twill_context *context)
{
    struct twill_log *log = &context->log;
    const char *pattern = twill_config_text(context->config, TWILL_VARIABLE_LOG_FILE);
    char host[HOST_NAME_MAX + 1] = "", path[PATH_MAX];
    log->level = (enum twill_log_level)context->config->number[TWILL_VARIABLE_LOG];
    if (log->level > TWILL_LOG_WARN || pattern != NULL)
        log->print = NULL;
    (void)gethostname(host, sizeof(host) - 1);
    snprintf(log->where, sizeof(log->where), "%.50s:%d", host, (int)getpid());
    if (pattern == NULL || log->level == TWILL_LOG_NONE || log->file > 0)
        return TWILL_OK;
    if (log->rank < 0 && strstr(pattern, "%r") != NULL)
        return TWILL_OK;
    const char *wrong = twill_log_name_file(log, pattern, path);
    if (wrong != NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_CONFIG, "TWILL_LOG_FILE=%.60s%s: %s", pattern,
                          strlen(pattern) > 60 ? "..." : "", wrong);
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (file < 0)
        return TWILL_FAIL(&context->error, TWILL_ERR_CONFIG, "TWILL_LOG_FILE=%s: %s: %s", pattern,
                          path, strerror(errno));
    log->file = twill_fd_move(file, TWILL_FD_LEAST);
    return TWILL_OK;
}

void twill_log_close(struct twill_context *context)
{
    if (context->log.file > 0)
        close(context->log.file);
    context->log.file = 0;
}

/* Return whether this rank is the first of its node. */
static bool context_is_first(const struct twill_context *context)
{
    return context->job.world.local[context->job.oob->rank] == 0;
}

void twill_log_notes(struct twill_context *context)
{
    for (; context->notes.logged < context->notes.lines; context->notes.logged++) {
        bool first = context->notes.of_rank[context->notes.logged] || context_is_first(context);
        twill_say(&context->log, twill_log_once(TWILL_LOG_INFO, first), "%s",
                  context->notes.line[context->notes.logged]);
    }
}

void twill_log_process(struct twill_context *context)
{
    const struct twill_config *config = context->config;
    if (!twill_log_enabled(&context->log, TWILL_LOG_INFO))
        return;
    for (unsigned v = 0; v < TWILL_VARIABLE_COUNT; v++) /* a list appears as its entries */
        if (twill_config_is_set(config, (enum twill_variable_id)v) && v != TWILL_VARIABLE_LAYOUT &&
            v != TWILL_VARIABLE_TUNE)
            twill_say(&context->log, twill_log_once(TWILL_LOG_INFO, context_is_first(context)),
                      "%s=%s (%s)", twill_variables[v].name,
                      twill_config_shown(config, (enum twill_variable_id)v), config->source[v]);
}
