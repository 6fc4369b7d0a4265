/* SPDX-License-Identifier: Apache-2.0 */
/* Starts twill-page, which serves the page of a job, or on other hosts reads for it. The lines that
 * both exchange are described in bench/tools/page/page.h. Only twillrun's one thread comes here. */
#include "fabric/bootstrap/frames.h"
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* The process, as outputs of twillrun are used by messages everywhere. pid 0: there is none. */
static struct {
    pid_t pid;
    struct twill_pipe pipe;
} page = {.pipe = {.in = -1, .out = -1}};

/* In a child process, become twill-page, with one end of a socket as standard input and output. */
static _Noreturn void be_page(const char *const *word, const sigset_t *mask, int end)
{
    bool good = setsid() >= 0 && dup2(end, STDIN_FILENO) >= 0 && dup2(end, STDOUT_FILENO) >= 0 &&
                sigprocmask(SIG_SETMASK, mask, NULL) == 0;
    if (good)
        execv(word[0], (char *const *)(size_t)word);
    dprintf(STDERR_FILENO, TWILL_COMPLAINT "cannot run %s: %s\n", word[0], strerror(errno));
    _exit(127);
}

/* Start twill-page with these arguments behind its name. Returns false after a message. */
static bool start_page(const char *const *arguments, const sigset_t *mask)
{
    char self[PATH_MAX], path[PATH_MAX] = "twill-page";
    const char *word[10] = {path};
    int ends[2] = {-1, -1};
    if (!twill_self_find(self) || twill_helper_find(path, self, "twill-page") == NULL) {
        twill_complain("--page: %s: %s; it needs a build with libmicrohttpd and benchmarks", path,
                       strerror(errno));
        return false;
    }
    for (size_t i = 0; arguments[i] != NULL && i + 2 < TWILL_ARRAY_LENGTH(word); i++)
        word[i + 1] = arguments[i];
    fflush(NULL);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0 &&
        fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0) /* twill-page may block */
        page.pid = fork();
    else
        page.pid = -1;
    if (page.pid == 0)
        be_page(word, mask, ends[1]);
    if (page.pid < 0) {
        twill_complain("--page: %s", strerror(errno));
        page.pid = 0;
        (void)twill_socket_drop(ends[0]);
    } else {
        page.pipe = (struct twill_pipe){.in = ends[0], .out = fcntl(ends[0], F_DUPFD_CLOEXEC, 3)};
    }
    (void)twill_socket_drop(ends[1]);
    return page.pid > 0;
}

/* Wait until twill-page is ready. Returns false, after its own message, if it cannot serve. */
static bool await_page(uint64_t timeout_ns)
{
    struct pollfd from = {.fd = page.pipe.in, .events = POLLIN};
    return twill_wire_poll(&from, 1, twill_now() + timeout_ns) >= 0 &&
           twill_pipe_fill(&page.pipe) && page.pipe.in_used > 0;
}

/* Return the names of the hosts that are used, with commas between them, for free(), or NULL. */
static char *list_hosts(const struct twill_options *options)
{
    char *list = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&list, &bytes);
    for (int i = 0; file != NULL && i < options->sites; i++)
        if (twill_site_is_used(options, i))
            fprintf(file, "%s%s", ftell(file) > 0 ? "," : "", options->site[i].name);
    if (file == NULL || fclose(file) != 0)
        twill_complain("--page: no memory for the names of hosts");
    return list;
}

bool twill_page_serve(const struct twill_options *options, const sigset_t *mask, bool here)
{
    char pid[16], *hosts = NULL;
    if (options->page == NULL)
        return true;
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    if (!here && (hosts = list_hosts(options)) == NULL)
        return false;
    const char *const words[] = {
        "--linked", "--serve", options->page, here ? "--job" : "--hosts", here ? pid : hosts, NULL};
    bool good = start_page(words, mask) && await_page(options->timeout_ns);
    twill_output_copy(good ? &page.pipe : NULL);
    free(hosts);
    return good;
}

struct pollfd twill_page_poll(void)
{
    bool waiting = twill_pipe_waiting(&page.pipe) > 0;
    return (struct pollfd){.fd = page.pipe.in, .events = POLLIN | (waiting ? POLLOUT : 0)};
}

void twill_page_receive(void)
{
    if (!twill_pipe_flush(&page.pipe) || !twill_pipe_fill(&page.pipe))
        twill_pipe_close(&page.pipe);
}

const char *twill_page_next(size_t *bytes)
{
    struct twill_pipe *pipe = &page.pipe;
    if (pipe->in_used == pipe->taken)
        return NULL;
    char *line = pipe->inbox + pipe->taken;
    char *end = memchr(line, '\n', pipe->in_used - pipe->taken);
    if (end == NULL)
        return NULL;
    *end = '\0';
    *bytes = (size_t)(end - line);
    pipe->taken += *bytes + 1;
    return line;
}

void twill_page_answer(int host, const char *data, size_t bytes)
{
    char before[32];
    int length = snprintf(before, sizeof(before), "host %d ", host);
    if (page.pipe.out < 0 || !twill_pipe_append(&page.pipe, before, (size_t)length) ||
        !twill_pipe_append(&page.pipe, data, bytes) || !twill_pipe_append(&page.pipe, "\n", 1))
        return;
    (void)twill_pipe_flush(&page.pipe);
}

bool twill_page_read(const sigset_t *mask, uint32_t rank)
{
    char pid[16], line[16];
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    const char *const words[] = {"--read", "--job", pid, NULL};
    if (page.pid == 0 && !start_page(words, mask))
        return false;
    int length = snprintf(line, sizeof(line), "%d\n", (int)rank - 1);
    return twill_pipe_append(&page.pipe, line, (size_t)length) && twill_pipe_flush(&page.pipe);
}

void twill_page_end(void)
{
    if (page.pid <= 0)
        return;
    twill_output_copy(NULL);
    (void)kill(page.pid, SIGKILL); /* it has nothing to finish, and may be stopped */
    while (waitpid(page.pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    page.pid = 0;
    twill_pipe_close(&page.pipe);
}
