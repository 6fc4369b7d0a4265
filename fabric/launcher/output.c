/* SPDX-License-Identifier: Apache-2.0 */
/* Standard output and standard error of twillrun. Nothing here blocks. Output that a pipe without a
 * reader does not take is queued, so that deadlines, signals and ranks are served meanwhile.
 * twillrun reopens the files, as O_NONBLOCK would also apply to other processes that have them. */
#include "fabric/launcher/launcher.h"
#include "lib/base/times.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

/* Standard output or standard error of twillrun, in a static array, used by its only thread. */
struct output {
    struct twill_pipe pipe; /* only its output, with the queue and the descriptor */
    int lost;               /* errno after which it can no longer be written, or 0 */
};

static struct output outputs[TWILL_OUTPUTS] = {
    {.pipe = {.in = -1, .out = STDOUT_FILENO}},
    {.pipe = {.in = -1, .out = STDERR_FILENO}},
};

/* Where messages also go (twill_output_copy()), or NULL. */
static struct twill_pipe *copied;

void twill_output_copy(struct twill_pipe *pipe)
{
    copied = pipe;
}

void twill_output_open(void)
{
    for (int i = 0; i < TWILL_OUTPUTS; i++) {
        int fd = outputs[i].pipe.out, flags = fcntl(fd, F_GETFL);
        char path[32];
        struct stat about;
        if ((flags & O_ACCMODE) == O_RDONLY || fstat(fd, &about) != 0 ||
            !(S_ISFIFO(about.st_mode) || isatty(fd)))
            continue;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        int own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        if (own >= 0) /* else, as for a pipe of another user, poll() says what it takes */
            outputs[i].pipe.out = own;
    }
}

/* Write what there is space for, if possible in whole lines, so that lines of other processes that
 * write to the same file do not get in between. */
static void write_output(struct output *output)
{
    struct twill_pipe *pipe = &output->pipe;
    while (output->lost == 0 && twill_pipe_waiting(pipe) > 0) {
        const char *data = pipe->outbox + pipe->sent;
        size_t bytes = twill_min(twill_pipe_waiting(pipe), PIPE_BUF); /* such a write is atomic */
        const char *line = memrchr(data, '\n', bytes);
        struct pollfd one = {.fd = pipe->out, .events = POLLOUT};
        if (poll(&one, 1, 0) <= 0)
            return;
        bytes = line != NULL ? (size_t)(line + 1 - data) : bytes;
        ssize_t n = send(pipe->out, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && errno == ENOTSOCK)
            n = write(pipe->out, data, bytes);
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0 && errno == EBADF) /* closed from the start, so not wanted */
            n = (ssize_t)bytes;
        if (n >= 0)
            pipe->sent += (size_t)n;
        else if (errno != EINTR)
            output->lost = errno;
    }
}

bool twill_output_put(int to, const char *data, size_t bytes)
{
    struct output *output = &outputs[to - STDOUT_FILENO];
    int before = output->lost;
    if (before == 0 && !twill_pipe_append(&output->pipe, data, bytes))
        output->lost = ENOMEM;
    write_output(output);
    if (output->lost != before)
        twill_complain("output is lost: %s", strerror(output->lost));
    return output->lost == 0;
}

void twill_complain(const char *format, ...)
{
    char text[1024] = TWILL_COMPLAINT;
    size_t head = strlen(text), space = sizeof(text) - head - 1;
    va_list list;
    va_start(list, format);
    int length = twill_print_list(text + head, space, format, list);
    va_end(list);
    size_t bytes = length > 0 ? twill_min((size_t)length, space - 1) : 0;
    twill_text_plain(text + head, bytes); /* it may have come from another host */
    text[head + bytes] = '\n';
    if (copied && twill_pipe_append(copied, "say ", 4) &&
        twill_pipe_append(copied, text + head, bytes + 1))
        (void)twill_pipe_flush(copied);
    (void)twill_output_put(STDERR_FILENO, text, head + bytes + 1);
}

/* Return whether an output has queued bytes and is not lost. */
static bool waits(const struct output *output)
{
    return output->lost == 0 && twill_pipe_waiting(&output->pipe) > 0;
}

bool twill_output_full(int to)
{
    const struct output *output = &outputs[to - STDOUT_FILENO];
    return waits(output) && twill_pipe_waiting(&output->pipe) > TWILL_LINK_FULL;
}

void twill_output_polls(struct pollfd polls[TWILL_OUTPUTS])
{
    for (int i = 0; i < TWILL_OUTPUTS; i++)
        polls[i] =
            (struct pollfd){.fd = waits(&outputs[i]) ? outputs[i].pipe.out : -1, .events = POLLOUT};
}

/* Write what is queued for standard output and standard error, as far as they take it without
 * blocking. If `given_up`, drop the rest. */
static void flush_outputs(bool given_up)
{
    for (int i = 0; i < TWILL_OUTPUTS; i++) {
        (void)twill_output_put(STDOUT_FILENO + i, NULL, 0);
        if (given_up)
            outputs[i].pipe.sent = outputs[i].pipe.out_used;
    }
}

/* Return whether to drop output that no process reads. That is so if the user has asked twice to
 * stop, or once and the time for a reader has passed. */
static bool is_given_up(const struct twill_stop_request *stop_request)
{
    return stop_request->times > 1 ||
           (stop_request->until_ns != 0 && twill_now() >= stop_request->until_ns);
}

void twill_output_flush(const struct twill_stop_request *stop_request)
{
    flush_outputs(is_given_up(stop_request));
}

bool twill_output_drain(const struct twill_stop_request *stop_request)
{
    sigset_t pending;
    for (;;) {
        struct pollfd polls[TWILL_OUTPUTS];
        /* Signals are no longer read here. A pending one asks to stop. */
        flush_outputs(is_given_up(stop_request) ||
                      (sigpending(&pending) == 0 && (sigismember(&pending, SIGINT) == 1 ||
                                                     sigismember(&pending, SIGTERM) == 1)));
        twill_output_polls(polls);
        if (polls[0].fd < 0 && polls[1].fd < 0)
            return outputs[0].lost == 0 && outputs[1].lost == 0;
        (void)poll(polls, TWILL_OUTPUTS, TWILL_OUTPUT_LOOK_MS);
    }
}
