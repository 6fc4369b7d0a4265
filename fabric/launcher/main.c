/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun: sets a job up. */
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

void twill_complain(const char *format, ...)
{
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof(text), format, list);
    va_end(list);
    fprintf(stderr, "twillrun: %s\n", text); /* in one piece, among the lines of ranks */
}

/* The port is ours from here on: rank 0 gets the socket itself, so nobody can take it between. */
static bool open_port(struct twill_launch *launch)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    launch->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (launch->listener < 0 || bind(launch->listener, (struct sockaddr *)&address, length) != 0 ||
        listen(launch->listener, launch->options->ranks + 64) != 0 ||
        getsockname(launch->listener, (struct sockaddr *)&address, &length) != 0) {
        twill_complain("cannot listen on 127.0.0.1: %s", strerror(errno));
        return false;
    }
    snprintf(launch->port, sizeof(launch->port), "%u", ntohs(address.sin_port));
    return true;
}

static bool make_job(struct twill_launch *launch)
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
        twill_complain("getrandom: %s", strerror(errno));
        return false;
    }
    bytes[0] |= 1; /* zero is no job */
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(launch->job + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

/* Signals become readable instead of interrupting. */
static bool take_signals(struct twill_launch *launch)
{
    static const int taken[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(taken); i++)
        sigaddset(&set, taken[i]);
    (void)signal(SIGCHLD, SIG_DFL); /* an ignored one would hide the ends of our ranks */
    if (sigprocmask(SIG_BLOCK, &set, &launch->mask) != 0 ||
        (launch->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0) {
        twill_complain("signalfd: %s", strerror(errno));
        return false;
    }
    return true;
}

/* A rank is in a process group of its own, and may not read a terminal from there: what is typed is
 * relayed to rank 0 (over a socket, where writing to a rank that has gone raises no signal).
 * Anything else it inherits. */
static bool relay_stdin(struct twill_launch *launch)
{
    int ends[2];
    if (!isatty(STDIN_FILENO) || tcgetpgrp(STDIN_FILENO) != getpgrp())
        return true;
    launch->stdin_from = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    if (launch->stdin_from < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 ||
        dup2(ends[0], STDIN_FILENO) < 0) {
        twill_complain("standard input: %s", strerror(errno));
        return false;
    }
    close(ends[0]);
    launch->stdin_to = ends[1];
    return true;
}

/* Rank 0 has them now, and is to be the only one. */
static void let_go(struct twill_launch *launch)
{
    close(launch->listener);
    launch->listener = -1;
    if (launch->stdin_to < 0)
        return;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0)
        (void)dup2(null, STDIN_FILENO);
}

static int run(struct twill_launch *launch)
{
    int ranks = launch->options->ranks, code = 0;
    if (!open_port(launch) || !make_job(launch) || !take_signals(launch) || !relay_stdin(launch))
        return 1;
    for (int rank = 0; rank < ranks && code == 0; rank++) {
        code = twill_child_start(launch, rank);
        launch->alive += code == 0;
        if (rank == 0)
            let_go(launch);
    }
    if (code != 0) { /* what cannot be started for one is not wanted for the others */
        launch->failed = ranks;
        launch->code = code;
        launch->stage = 1;
        launch->next_ns = twill_now();
    }
    return twill_launch_watch(launch);
}

int main(int argc, char **argv)
{
    struct twill_options options = {.grace_ns = UINT64_C(3000000000)};
    struct twill_launch launch = {
        .options = &options, .failed = -1, .stdin_from = -1, .stdin_to = -1};
    int code = 0;
    if (twill_options_read(&options, argc, argv, &code) == 0) {
        launch.child = calloc((size_t)options.ranks, sizeof(*launch.child));
        for (int rank = 0; launch.child && rank < options.ranks; rank++)
            launch.child[rank].out[0].from = launch.child[rank].out[1].from = -1;
        if (launch.child) {
            code = run(&launch);
        } else {
            twill_complain("no memory for %d ranks", options.ranks);
            code = 1;
        }
    }
    free(launch.child);
    free(options.assignments);
    return code;
}
