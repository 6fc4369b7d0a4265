/* SPDX-License-Identifier: Apache-2.0 */
/* Starts twill-page, which serves the page of a job, or on other hosts reads for it. The lines that
 * both exchange are described in bench/tools/page/page.h. Only twillrun's one thread comes here. */
#include "fabric/bootstrap/frames.h"
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
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
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0)
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

bool twill_page_serve(const struct twill_options *options, const sigset_t *mask)
{
    char pid[16];
    if (options->page == NULL)
        return true;
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    const char *const here[] = {"--linked", "--serve", options->page, "--job", pid, NULL};
    if (!start_page(here, mask) || !await_page(options->timeout_ns))
        return false;
    twill_output_copy(&page.pipe);
    return true;
}

void twill_page_end(void)
{
    if (page.pid <= 0)
        return;
    twill_output_copy(NULL);
    (void)kill(page.pid, SIGTERM);
    while (waitpid(page.pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    page.pid = 0;
    twill_pipe_close(&page.pipe);
}
