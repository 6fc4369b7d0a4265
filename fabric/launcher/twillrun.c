/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun's main(), and the set-up of a job on this host. */
#include "fabric/auth/job_key.h"
#include "fabric/bootstrap/frames.h"
#include "fabric/launcher/launcher.h"
#include "lib/base/times.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

/* Return a new TCP socket that is bound to this address, or -1. It has SO_REUSEADDR, so that
 * another such socket can be bound to the same address. */
static int bind_socket(const struct sockaddr *address, socklen_t length)
{
    int on = 1, fd = socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        bind(fd, address, length) == 0)
        return fd;
    return twill_socket_drop(fd);
}

/* Return a TCP socket bound to address `found` and a free port, which does not listen yet, or -1.
 * Set *bound to its address with the port. *length is the size of *bound, and then that of the
 * address. */
static int bind_free(const struct addrinfo *found, struct sockaddr_storage *bound,
                     socklen_t *length)
{
    int first = bind_socket(found->ai_addr, found->ai_addrlen), fd = -1, off = 0;
    /* Bind the port by its number, as one that the kernel chose (0) would be released when rank 0
     * stops listening. Without SO_REUSEADDR no other program gets it. */
    if (first >= 0 && getsockname(first, (struct sockaddr *)bound, length) == 0)
        fd = bind_socket((struct sockaddr *)bound, *length);
    if (fd >= 0)
        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &off, sizeof(off));
    (void)twill_socket_drop(first);
    return fd;
}

bool twill_launch_offer(struct twill_launch *launch, const char *address)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST}, *found;
    struct sockaddr_storage bound;
    socklen_t length = sizeof(bound);
    int wrong = getaddrinfo(address, "0", &hints, &found);
    if (wrong != 0) {
        twill_complain("cannot listen on %s: %s", address, gai_strerror(wrong));
        return false;
    }
    launch->listener = bind_free(found, &bound, &length); /* rank 0 inherits it with its port */
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
    struct twill_secret secret;
    struct twill_error error = {0};
    bool good = twill_secret_random(&secret, &error) == TWILL_OK;
    if (good)
        twill_secret_text(&secret, job);
    else
        twill_complain("%s", error.message);
    twill_secret_wipe(&secret, sizeof(secret));
    return good;
}

int twill_signals_take(sigset_t *mask)
{
    static const int taken[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
    sigset_t set, broken; /* SIGPIPE, which write() also reports */
    struct sigaction was;
    int fd = -1;
    sigemptyset(&set);
    (void)signal(SIGCHLD, SIG_DFL); /* if ignored, ends of ranks would not be reported */
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(taken); i++)
        if (sigaction(taken[i], NULL, &was) != 0 || was.sa_handler != SIG_IGN)
            sigaddset(&set, taken[i]); /* what nohup ignores stays ignored, also on other hosts */
    sigemptyset(&broken);
    sigaddset(&broken, SIGPIPE);
    if (sigprocmask(SIG_BLOCK, &set, mask) != 0 || sigprocmask(SIG_BLOCK, &broken, NULL) != 0 ||
        (fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)) < 0)
        twill_complain("signalfd: %s", strerror(errno));
    return fd;
}

/* If standard input is the terminal, forward it to rank 0, which may not read it from its own
 * process group. Standard input becomes a socket for rank 0 to inherit, as send() avoids SIGPIPE.
 * Its other end is launch->input.to. Other files are left to inherit. Returns true, or false after
 * a message. */
static bool relay_stdin(struct twill_launch *launch)
{
    int ends[2];
    if (tcgetpgrp(STDIN_FILENO) != getpgrp())
        return true;
    launch->input.from = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    if (launch->input.from < 0 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 ||
        dup2(ends[0], STDIN_FILENO) < 0) {
        twill_complain("standard input: %s", strerror(errno));
        return false;
    }
    close(ends[0]);
    launch->input.to = ends[1];
    return true;
}

/* Once rank 0 has inherited them, close the listener and, if input is forwarded, replace twillrun's
 * standard input by /dev/null. Later ranks then do not inherit them. Does nothing if rank 0 is on
 * another host. */
static void close_handed_over(struct twill_launch *launch)
{
    if (launch->listener < 0)
        return;
    close(launch->listener);
    launch->listener = -1;
    if (launch->input.to < 0)
        return;
    int null = twill_null_open();
    if (null >= 0)
        (void)dup2(null, STDIN_FILENO);
}

bool twill_launch_open(struct twill_launch *launch, const struct twill_options *options, int here)
{
    *launch = (struct twill_launch){.options = options,
                                    .here = here > options->most ? here : options->most,
                                    .first = here,
                                    .sayings.ranks = twill_options_places(options),
                                    .failed = -1,
                                    .elastic.last_failed = -1,
                                    .elastic.watch = -1,
                                    .listener = -1,
                                    .signals = -1,
                                    .rank_socket = {-1, -1},
                                    .input.from = -1,
                                    .input.to = -1};
    launch->child = calloc((size_t)launch->here, sizeof(*launch->child));
    if (!launch->child)
        twill_complain("no memory for %d ranks", launch->here);
    for (int i = 0; i < launch->here && launch->child; i++)
        twill_child_name(options, &launch->child[i], -1);
    return launch->child != NULL && twill_rank_socket_open(launch);
}

void twill_launch_close(struct twill_launch *launch)
{
    twill_rank_socket_close(launch);
    free(launch->child);
    free(launch->cpus);
    free(launch->input.held);
}

int twill_launch_start(struct twill_launch *launch)
{
    int code = 0;
    twill_oom_open(launch);
    if (!twill_launch_bind(launch))
        code = 1;
    for (int i = 0; i < launch->first && code == 0; i++) {
        code = twill_child_start(launch, i);
        launch->alive += code == 0;
        if (i == 0) /* rank 0 is the first, if it is on this host */
            close_handed_over(launch);
    }
    if (!launch->link && launch->unbound[0] != '\0') /* a host agent reports it in a frame */
        twill_complain("%s", launch->unbound);
    close(launch->rank_socket[1]); /* else the ranks' last close would not be seen */
    launch->rank_socket[1] = -1;
    if (code != 0) { /* start no other rank */
        launch->failed = launch->options->ranks;
        launch->code = code;
        twill_launch_end(launch, 0);
    }
    return code;
}

/* Run a job whose ranks are all on this host. Returns the exit code. */
static int run_local(const struct twill_options *options)
{
    struct twill_launch launch;
    int code = 1;
    if (twill_launch_open(&launch, options, twill_options_places(options))) {
        for (int rank = 0; rank < launch.here; rank++) {
            twill_child_name(options, &launch.child[rank], rank);
            launch.child[rank].joins = rank >= options->ranks;
        }
        if (twill_elastic_open(&launch, 0) && twill_launch_offer(&launch, "127.0.0.1") &&
            twill_job_make(launch.job) &&
            (launch.signals = twill_signals_take(&launch.mask)) >= 0 &&
            twill_page_serve(options, &launch.mask, true) && relay_stdin(&launch)) {
            (void)twill_launch_start(&launch);
            code = twill_launch_supervise(&launch);
        }
        twill_page_end();
        twill_elastic_close(&launch);
        twill_launch_close(&launch);
    }
    return code;
}

/* Open /dev/null for closed standard descriptors, which later opens would get. It is read-only, so
 * that writing fails. Also replace a terminal of another process group, because reading it from the
 * background would stop a rank, and nothing would continue it. */
static void fill_files(void)
{
    pid_t group = tcgetpgrp(STDIN_FILENO); /* -1: not the terminal of this session */
    if (group >= 0 && group != getpgrp())
        close(STDIN_FILENO);
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!fcntl(twill_null_open(), F_SETFD, 0); /* gets the lowest free number */
}

/* Read the command line and run the job, a host agent or the check. Returns the exit code. */
int main(int argc, char **argv)
{
    struct twill_options options = {
        .grace_ns = TWILL_LAUNCH_GRACE_NS, .timeout_ns = TWILL_LAUNCH_TIMEOUT_NS, .agent = "ssh"};
    int code = 0;
    fill_files();
    twill_hwloc_quieten();
    if (twill_options_read(&options, argc, argv, &code) == 0) {
        int only = options.sites > 0 ? twill_sites_only(&options) : -1;
        if (options.check)
            return twill_check_run(&options);
        if (!options.serve) { /* a host agent gets its options from the job */
            twill_output_open();
            twill_files_allow(&options);
        }
        if (options.serve)
            code = twill_host_agent_run();
        else if (options.sites == 0 || (only >= 0 && options.site[only].local))
            code = run_local(&options);
        else
            code = twill_front_run(&options);
    }
    twill_options_free(&options);
    (void)twill_output_drain(&(struct twill_stop_request){.times = 0});
    return code;
}
