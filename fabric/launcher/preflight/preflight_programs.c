/* SPDX-License-Identifier: Apache-2.0 */
/* Starts twillruns, writes to them and reads from them, always with a deadline. */
#include "fabric/bootstrap/frames.h"
#include "fabric/launcher/preflight/preflight_front.h"
#include "lib/base/base.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* Close those of two descriptors that are open (not -1). */
static void close_pair(const int pair[2])
{
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
}

/* In a child process, run a program with these standard files and this limit of open files. It gets
 * SIGTERM when its parent ends. Exit with 127 if it cannot run or `parent` has already ended. */
static _Noreturn void become(const char *const *word, const int files[3], pid_t parent,
                             const struct rlimit *limit)
{
    bool good = setrlimit(RLIMIT_NOFILE, limit) == 0 && prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 &&
                getppid() == parent;
    (void)signal(SIGPIPE, SIG_DFL); /* exec would keep it ignored */
    for (int i = 0; i < 3; i++)
        good = good && dup2(files[i], i) >= 0;
    if (good)
        execv(word[0], (char *const *)word);
    dprintf(STDERR_FILENO, "cannot run %s: %s\n", word[0], strerror(errno));
    _exit(127);
}

bool preflight_program_start(struct preflight_program *program, const char *const *word,
                             const struct rlimit *files)
{
    int in[2] = {-1, -1}, out[2] = {-1, -1}, err[2] = {-1, -1};
    pid_t parent = getpid();
    *program = (struct preflight_program){.in = -1, .out = -1, .err = -1, .over = true};
    fflush(NULL);
    if (pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0)
        program->pid = fork();
    else
        program->pid = -1;
    if (program->pid == 0)
        become(word, (const int[3]){in[0], out[1], err[1]}, parent, files);
    if (program->pid < 0) {
        int why = errno;
        close_pair(in);
        close_pair(out);
        close_pair(err);
        program->pid = 0;
        errno = why;
        return false;
    }
    close(in[0]);
    close(out[1]);
    close(err[1]);
    program->in = in[1];
    program->out = out[0];
    program->err = err[0];
    program->over = false;
    (void)fcntl(program->in, F_SETFL, O_NONBLOCK | O_WRONLY);
    (void)fcntl(program->out, F_SETFL, O_NONBLOCK);
    (void)fcntl(program->err, F_SETFL, O_NONBLOCK);
    return true;
}

void preflight_program_tell(struct preflight_program *program, const char *command)
{
    size_t bytes = strlen(command);
    uint64_t until = twill_now() + PREFLIGHT_SECOND_NS;
    while (program->in >= 0 && bytes > 0) {
        ssize_t n = write(program->in, command, bytes);
        struct pollfd space = {.fd = program->in, .events = POLLOUT};
        if (n > 0) {
            command += n;
            bytes -= (size_t)n;
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR) || twill_now() >= until) {
            return; /* it has ended or does not read, so its reply will be missing */
        } else {
            (void)poll(&space, 1, 100);
        }
    }
}

/* Call handle() for each complete line of output that is a reply, and remove complete lines. */
static void handle_lines(struct preflight_program *program, int index, preflight_line_fn handle,
                         void *user)
{
    size_t done = 0;
    char *end;
    while ((end = memchr(program->line + done, '\n', program->used - done))) {
        int rank;
        *end = '\0';
        struct json_object *object = preflight_line_parse(program->line + done, &rank);
        done = (size_t)(end + 1 - program->line);
        if (!object)
            continue;
        handle(user, index, rank, object);
        json_object_put(object);
    }
    program->used -= done;
    memmove(program->line, program->line + done, program->used);
}

/* Read a program's output once and handle its complete lines. Sets program->over at its end, or if
 * a line is too long or there is no memory. */
static void read_output(struct preflight_program *program, int index, preflight_line_fn handle,
                        void *user)
{
    if (program->capacity - program->used < 4096) {
        size_t capacity = 2 * program->capacity + 16384;
        char *line = capacity <= PREFLIGHT_LINE_MOST ? realloc(program->line, capacity) : NULL;
        if (!line) {
            program->over = true;
            return;
        }
        program->line = line;
        program->capacity = capacity;
    }
    ssize_t n =
        read(program->out, program->line + program->used, program->capacity - program->used);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    program->over = n <= 0;
    program->used += n > 0 ? (size_t)n : 0;
    handle_lines(program, index, handle, user);
}

/* Read standard error once, and keep the beginning. Closes it at its end. */
static void read_errors(struct preflight_program *program)
{
    char text[1024];
    ssize_t n = read(program->err, text, sizeof(text));
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        close(program->err);
        program->err = -1;
        return;
    }
    size_t kept = twill_min((size_t)n, sizeof(program->said) - 1 - program->said_used);
    memcpy(program->said + program->said_used, text, kept);
    program->said_used += kept;
    program->said[program->said_used] = '\0';
}

/* Return whether a program owes replies and its output has not ended. */
static bool owes(const struct preflight_program *program)
{
    return !program->over && program->owed > 0;
}

void preflight_programs_wait(struct preflight_program *program, int n, uint64_t until_ns,
                             preflight_line_fn handle, void *user)
{
    struct pollfd *polls = calloc(2 * (size_t)n + 1, sizeof(*polls));
    for (;;) {
        int waiting = 0;
        for (int i = 0; i < n && polls; i++) {
            waiting += owes(&program[i]);
            polls[2 * i] =
                (struct pollfd){.fd = program[i].over ? -1 : program[i].out, .events = POLLIN};
            polls[2 * i + 1] = (struct pollfd){.fd = program[i].err, .events = POLLIN};
        }
        if (waiting == 0 || twill_now() >= until_ns ||
            twill_wire_poll(polls, 2 * (size_t)n, until_ns) < 0)
            break;
        for (int i = 0; i < n; i++) {
            if (polls[2 * i].revents != 0)
                read_output(&program[i], i, handle, user);
            if (polls[2 * i + 1].revents != 0)
                read_errors(&program[i]);
        }
    }
    free(polls);
}

/* Wait for the ends of programs, at most time_ns, and read their standard error meanwhile. Returns
 * how many have not ended. */
static int await_ends(struct preflight_program *program, int n, uint64_t time_ns)
{
    for (uint64_t until = twill_now() + time_ns;;) {
        int left = 0;
        for (int i = 0; i < n; i++) {
            if (program[i].err >= 0)
                read_errors(&program[i]);
            if (program[i].pid > 0 && waitpid(program[i].pid, NULL, WNOHANG) == program[i].pid)
                program[i].pid = 0;
            left += program[i].pid > 0;
        }
        if (left == 0 || twill_now() >= until)
            return left;
        (void)poll(NULL, 0, 5);
    }
}

/* Send a signal to all programs that have not ended. */
static void signal_all(const struct preflight_program *program, int n, int number)
{
    for (int i = 0; i < n; i++)
        if (program[i].pid > 0)
            (void)kill(program[i].pid, number);
}

void preflight_programs_end(struct preflight_program *program, int n, uint64_t patience_ns)
{
    for (int i = 0; i < n; i++) {
        if (program[i].in >= 0)
            close(program[i].in);
        program[i].in = -1;
    }
    if (await_ends(program, n, patience_ns) > 0) {
        signal_all(program, n, SIGTERM);
        if (await_ends(program, n, 5 * PREFLIGHT_SECOND_NS) > 0) { /* it kills ranks in 2 s */
            signal_all(program, n, SIGKILL);
            (void)await_ends(program, n, PREFLIGHT_SECOND_NS);
        }
    }
    for (int i = 0; i < n; i++) {
        if (program[i].out >= 0)
            close(program[i].out);
        if (program[i].err >= 0)
            close(program[i].err);
        free(program[i].line);
        program[i].line = NULL;
        program[i].out = program[i].err = -1;
    }
}

/* Return `line` without the prefixes "twillrun: ", "host NAME: " and "[3] " at its beginning. */
static const char *skip_prefixes(const char *line, const char *host)
{
    char named[300];
    size_t length = (size_t)snprintf(named, sizeof(named), "host %s: ", host);
    for (const char *before = NULL; before != line;) {
        before = line;
        if (strncmp(line, "twillrun: ", 10) == 0)
            line += 10;
        if (strncmp(line, named, length) == 0)
            line += length;
        if (line[0] == '[' && line[1 + strspn(line + 1, "0123456789")] == ']')
            line += 2 + strspn(line + 1, "0123456789");
        line += strspn(line, " ");
    }
    return line;
}

void preflight_program_said(const struct preflight_program *program, const char *host, char *text,
                            size_t bytes)
{
    char copy[sizeof(program->said)], *rest = NULL;
    size_t used = 0;
    snprintf(copy, sizeof(copy), "%s", program->said);
    text[0] = '\0';
    for (char *line = strtok_r(copy, "\r\n", &rest); line && used + 1 < bytes;
         line = strtok_r(NULL, "\r\n", &rest))
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? "; " : "",
                                 skip_prefixes(line, host));
    twill_text_plain(text, strlen(text));
}
