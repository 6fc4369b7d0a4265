/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun: sets a job up. */
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
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
    fprintf(stderr, TWILL_COMPLAINT "%s\n", text); /* in one piece, among the lines of ranks */
}

/* A socket with this address, which another one of ours may have, too. */
static int bind_socket(const struct sockaddr *address, socklen_t length)
{
    int on = 1, fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        bind(fd, address, length) == 0)
        return fd;
    int why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    return -1;
}

/* A socket with a port that is free, bound by its number: one that the kernel chose would be given
 * back when rank 0 stops listening. In the end it does not share its address, so that no other
 * program gets the port while nobody listens. */
static int bind_free(const struct addrinfo *found, struct sockaddr_storage *bound,
                     socklen_t *length)
{
    int first = bind_socket(found->ai_addr, found->ai_addrlen), fd = -1, off = 0;
    if (first >= 0 && getsockname(first, (struct sockaddr *)bound, length) == 0)
        fd = bind_socket((struct sockaddr *)bound, *length);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &off, sizeof(off));
    int why = errno;
    if (first >= 0)
        close(first);
    errno = why;
    return fd;
}

/* The port is ours from here on: rank 0 gets the socket itself, so nobody can take it between. */
bool twill_launch_listen(struct twill_launch *launch, const char *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;
    struct sockaddr_storage bound;
    socklen_t length = sizeof(bound);
    int wrong = getaddrinfo(address, "0", &hints, &found);
    if (wrong != 0) {
        twill_complain("cannot listen on %s: %s", address, gai_strerror(wrong));
        return false;
    }
    launch->listener = bind_free(found, &bound, &length);
    bool done =
        launch->listener >= 0 && listen(launch->listener, launch->options->ranks + 64) == 0 &&
        getnameinfo((struct sockaddr *)&bound, length, launch->address, sizeof(launch->address),
                    launch->port, sizeof(launch->port), NI_NUMERICHOST | NI_NUMERICSERV) == 0;
    if (!done)
        twill_complain("cannot listen on %s: %s", address, strerror(errno));
    freeaddrinfo(found);
    return done;
}

void twill_files_allow(struct twill_options *options)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_NOFILE, &options->files) != 0)
        return;
    most = options->files;
    most.rlim_cur = most.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &most);
}

bool twill_job_make(char job[TWILL_JOB_TEXT])
{
    unsigned char bytes[32];
    if (getrandom(bytes, sizeof(bytes), 0) != sizeof(bytes)) {
        twill_complain("getrandom: %s", strerror(errno));
        return false;
    }
    bytes[0] |= 1; /* zero is no job */
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(job + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

int twill_signals_take(sigset_t *mask)
{
    static const int taken[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t set, broken; /* SIGPIPE: writing says it as well */
    struct sigaction was;
    int fd = -1;
    sigemptyset(&set);
    (void)signal(SIGCHLD, SIG_DFL); /* an ignored one would hide the ends of our ranks */
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(taken); i++)
        if (sigaction(taken[i], NULL, &was) != 0 || was.sa_handler != SIG_IGN)
            sigaddset(&set, taken[i]); /* what nohup ignores is not for ranks elsewhere either */
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    if (sigprocmask(SIG_BLOCK, &set, mask) != 0 || sigprocmask(SIG_BLOCK, &broken, NULL) != 0 ||
        (fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        twill_complain("signalfd: %s", strerror(errno));
    return fd;
}

/* A rank is in a process group of its own, and may not read a terminal from there: what is typed is
 * relayed to rank 0 (over a socket, where writing to a rank that has gone raises no signal).
 * Anything else it inherits. */
static bool relay_stdin(struct twill_launch *launch)
{
    int ends[2];
    if (tcgetpgrp(STDIN_FILENO) != getpgrp())
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
static void close_handed_over(struct twill_launch *launch)
{
    if (launch->listener < 0)
        return;
    close(launch->listener);
    launch->listener = -1;
    if (launch->stdin_to < 0)
        return;
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (null >= 0)
        (void)dup2(null, STDIN_FILENO);
}

bool twill_launch_open(struct twill_launch *launch, const struct twill_options *options, int here)
{
    *launch = (struct twill_launch){.options = options,
                                    .here = here,
                                    .failed = -1,
                                    .listener = -1,
                                    .signals = -1,
                                    .rank_socket = {-1, -1},
                                    .stdin_from = -1,
                                    .stdin_to = -1};
    launch->child = calloc((size_t)here, sizeof(*launch->child));
    if (!launch->child)
        twill_complain("no memory for %d ranks", here);
    return launch->child != NULL && twill_rank_socket_open(launch);
}

void twill_launch_close(struct twill_launch *launch)
{
    twill_rank_socket_close(launch);
    free(launch->child);
    free(launch->cpus);
    free(launch->input);
}

int twill_launch_start(struct twill_launch *launch)
{
    int code = 0;
    twill_launch_bind(launch);
    if (!launch->link && launch->unbound[0] != '\0') /* a server's is told to who started it */
        twill_complain("%s", launch->unbound);
    for (int i = 0; i < launch->here && code == 0; i++) {
        code = twill_child_start(launch, i);
        launch->alive += code == 0;
        if (i == 0) /* rank 0 is the first where it is at all */
            close_handed_over(launch);
    }
    close(launch->rank_socket[1]); /* or their end would not be its end */
    launch->rank_socket[1] = -1;
    if (code != 0) { /* what cannot be started for one is not wanted for the others */
        launch->failed = launch->options->ranks;
        launch->code = code;
        twill_launch_end(launch, 0);
    }
    return code;
}

/* All ranks are on this host. */
static int run_local(const struct twill_options *options)
{
    struct twill_launch launch;
    int code = 1;
    if (twill_launch_open(&launch, options, options->ranks)) {
        for (int rank = 0; rank < launch.here; rank++)
            twill_child_name(options, &launch.child[rank], rank, &launch.stop_request);
        if (twill_launch_listen(&launch, "127.0.0.1") && twill_job_make(launch.job) &&
            (launch.signals = twill_signals_take(&launch.mask)) >= 0 && relay_stdin(&launch)) {
            (void)twill_launch_start(&launch);
            code = twill_launch_supervise(&launch);
        }
        twill_launch_close(&launch);
    }
    return code;
}

/* Standard descriptors that are closed become /dev/null, or what is opened next would be taken for
 * them; writing there still fails. So does a terminal that is another process group's: who reads it
 * from the background is stopped, and a rank would never be continued. */
static void fill_files(void)
{
    pid_t group = tcgetpgrp(STDIN_FILENO); /* -1: no terminal, or not the one of this session */
    if (group >= 0 && group != getpgrp())
        close(STDIN_FILENO);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", O_RDONLY); /* the lowest that is free */
}

int main(int argc, char **argv)
{
    struct twill_options options = {
        .grace_ns = UINT64_C(3000000000), .timeout_ns = UINT64_C(30000000000), .agent = "ssh"};
    int code = 0;
    fill_files();
    if (twill_options_read(&options, argc, argv, &code) == 0) {
        int only = options.sites > 0 ? twill_sites_only(&options) : -1;
        if (!options.serve) /* a server has options of its own */
            twill_files_allow(&options);
        if (options.serve)
            code = twill_server_run();
        else if (options.sites == 0 || (only >= 0 && options.site[only].local))
            code = run_local(&options);
        else
            code = twill_front_run(&options);
    }
    twill_options_free(&options);
    return code;
}
