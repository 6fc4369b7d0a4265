/* SPDX-License-Identifier: Apache-2.0 */
/* Reaches a host by ssh or another --agent, which runs the host agent (twillrun --server) there. */
#include "fabric/launcher/front.h"
#include "lib/base/times.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MOST_WORDS 32

/* Write a path in single quotes for any shell, with ' as '\'', to text[bytes], with a terminating
 * 0. Returns true, or false if it is too long and `text` has only its beginning. */
static bool quote(char *text, size_t bytes, const char *path)
{
    size_t used = 0;
    text[used++] = '\'';
    for (; *path && used + 6 < bytes; path++) {
        if (*path == '\'')
            used += (size_t)snprintf(text + used, bytes - used, "'\\'");
        text[used++] = *path;
    }
    text[used++] = '\'';
    text[used] = '\0';
    return *path == '\0';
}

/* If word[0] is ssh, add options against prompts and endless waits. Returns the number of words. */
static size_t add_ssh(const char **word, size_t used, char timeout[32],
                      const struct twill_options *options)
{
    const char *slash = strrchr(word[0], '/');
    if (strcmp(slash ? slash + 1 : word[0], "ssh") != 0)
        return used;
    snprintf(timeout, 32, "-oConnectTimeout=%llu",
             (unsigned long long)(options->timeout_ns / 1000000000 + 1));
    word[used++] = "-oBatchMode=yes";
    word[used++] = timeout;
    word[used++] = "-oServerAliveInterval=15"; /* to detect a host that is lost later */
    word[used++] = "-T";
    word[used++] = "-x";
    return used;
}

/* Leave the launcher's process group, to which a terminal sends signals. If there is a terminal,
 * also leave its session, so that no agent asks there. Else ranks of hosts that are one machine
 * stay in one session. Linux passes a yield of the core within a session only. */
static bool leave_group(void)
{
    int terminal = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
    if (terminal < 0)
        return setpgid(0, 0) == 0;
    close(terminal);
    return setsid() >= 0;
}

/* In a child process, exec options->agent, such as ssh, which runs the host agent on another host.
 * If the site is this host, exec the host agent itself. files[] become its standard input, output
 * and error, and `mask` its signal mask. */
static _Noreturn void be_agent(const struct twill_options *options, const struct twill_site *site,
                               const sigset_t *mask, const int files[3])
{
    const char *word[MOST_WORDS + 16] = {NULL};
    char self[PATH_MAX], quoted[2 * PATH_MAX], command[2 * PATH_MAX + 32], timeout[32];
    char *words = strdup(options->agent), *rest = NULL;
    size_t used = 0;
    bool good = twill_self_find(self) && words && leave_group();
    for (int i = 0; i < 3; i++)
        good = good && dup2(files[i], i) >= 0;
    if (site->local) {
        word[0] = self;
        word[1] = "--server";
    } else if (good) {
        for (char *one = strtok_r(words, " ", &rest); one && used < MOST_WORDS;
             one = strtok_r(NULL, " ", &rest))
            word[used++] = one;
        used = add_ssh(word, used, timeout, options);
        word[used++] = site->name;
        good = quote(quoted, sizeof(quoted), options->remote ? options->remote : self);
        snprintf(command, sizeof(command), "exec %s --server", quoted);
        word[used++] = command;
    }
    if (good && setrlimit(RLIMIT_NOFILE, &options->files) == 0 &&
        sigprocmask(SIG_SETMASK, mask, NULL) == 0)
        execvp(word[0], (char *const *)word);
    dprintf(STDERR_FILENO, TWILL_COMPLAINT "cannot run %s: %s\n", word[0] ? word[0] : "an agent",
            strerror(errno)); /* to files[2], not to twillrun's own output */
    _exit(126);
}

bool twill_agent_start(struct twill_front_host *host, const struct twill_options *options,
                       const struct twill_site *site, const sigset_t *mask)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, said[2] = {-1, -1};
    host->name = site->name;
    host->local = site->local;
    host->alive = site->ranks;
    snprintf(host->label, sizeof(host->label), TWILL_COMPLAINT "host %s: ", site->name);
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(said, O_CLOEXEC) != 0) {
        twill_complain("host %s: pipe: %s", site->name, strerror(errno));
        for (int i = 0; i < 2; i++) {
            (void)close(in[i]);
            (void)close(out[i]);
        }
        return false;
    }
    const int files[3] = {in[0], out[1], said[1]};
    fflush(NULL);
    host->pid = fork();
    if (host->pid == 0)
        be_agent(options, site, mask, files);
    if (host->pid < 0)
        twill_complain("host %s: fork: %s", site->name, strerror(errno));
    for (int i = 0; i < 3; i++)
        close(files[i]);
    (void)fcntl(in[1], F_SETFL, O_NONBLOCK | O_WRONLY);
    (void)fcntl(out[0], F_SETFL, O_NONBLOCK);
    (void)fcntl(said[0], F_SETFL, O_NONBLOCK);
    host->pipe = (struct twill_pipe){.in = out[0], .out = in[1]};
    host->said = (struct twill_stream){
        .from = said[0], .to = STDERR_FILENO, .label = host->label, .relayed = true};
    host->state = TWILL_HOST_CALLED;
    if (host->pid > 0)
        return true;
    host->pid = 0;
    return false;
}

void twill_agent_receive(struct twill_front_host *host)
{
    if (host->said.from >= 0 && !twill_stream_move(&host->said))
        twill_stream_end(&host->said);
}

/* Wait up to time_ns for the agent's end, and print its standard error. Returns its wait status (0:
 * not known), and host->pid is 0. Returns -1 if it lives longer. */
static int await_end(struct twill_front_host *host, uint64_t time_ns)
{
    int status;
    for (uint64_t deadline = twill_now() + time_ns;;) {
        pid_t got = waitpid(host->pid, &status, WNOHANG);
        twill_agent_receive(host);
        if (got == host->pid || (got < 0 && errno != EINTR)) {
            host->pid = 0;
            return got < 0 ? 0 : status;
        }
        if (twill_now() >= deadline)
            return -1;
        (void)poll(NULL, 0, TWILL_AGENT_REAP_PAUSE_MS);
    }
}

void twill_agent_how(struct twill_front_host *host, const struct twill_options *options, char *text,
                     size_t bytes)
{
    int status = host->pid > 0 ? await_end(host, TWILL_AGENT_REAP_NS) : 0;
    if (status < 0)
        snprintf(text, bytes, "its agent closed its output");
    else if (WIFSIGNALED(status))
        snprintf(text, bytes, "its agent was killed by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status) == 127)
        snprintf(text, bytes,
                 "its agent ended with status 127: is twillrun there at %s? (--remote PATH)",
                 options->remote ? options->remote : "the same path as here");
    else
        snprintf(text, bytes, "its agent ended with status %d", WEXITSTATUS(status));
}

void twill_agent_end(struct twill_front_host *host, uint64_t time_ns)
{
    host->state = TWILL_HOST_IDLE;
    host->alive = 0;
    twill_pipe_close(&host->pipe);
    if (host->pid > 0 && await_end(host, time_ns) < 0) {
        (void)kill(-host->pid, SIGKILL);
        (void)kill(host->pid, SIGKILL); /* it may not lead its group yet */
        (void)await_end(host, TWILL_AGENT_REAP_NS);
    }
    twill_agent_receive(host);
    twill_stream_end(&host->said);
}
