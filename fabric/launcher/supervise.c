/* SPDX-License-Identifier: Apache-2.0 */
/* Watching over the ranks: their ends, signals for them, their output, and the end of the job. */
#include "fabric/launcher/launcher.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum phase { PHASE_NONE, PHASE_GRACE, PHASE_TERM, PHASE_KILL };

/* To all ranks and their children. */
static void signal_all(const struct twill_launch *launch, int number)
{
    for (int i = 0; i < launch->here; i++)
        if (launch->child[i].pid > 0)
            (void)kill(-launch->child[i].pid, number);
}

/* Is there another stage to come? */
static bool is_ending(const struct twill_launch *launch)
{
    return launch->phase == PHASE_GRACE || launch->phase == PHASE_TERM;
}

void twill_launch_end(struct twill_launch *launch, uint64_t after_ns)
{
    uint64_t next_ns = twill_now() + after_ns;
    if (launch->phase == PHASE_NONE || (launch->phase == PHASE_GRACE && next_ns < launch->next_ns))
        launch->next_ns = next_ns;
    if (launch->phase == PHASE_NONE)
        launch->phase = PHASE_GRACE;
}

/* The time of a stage is over. */
static void next_phase(struct twill_launch *launch)
{
    char who[256] = "";
    size_t used = 0;
    if (launch->phase == PHASE_GRACE) {
        signal_all(launch, SIGTERM);
        signal_all(launch, SIGCONT); /* one that is stopped would not notice */
        launch->next_ns = twill_now() + TWILL_TERM_NS;
        launch->phase = PHASE_TERM;
        return;
    }
    for (int i = 0; i < launch->here && used + 8 < sizeof(who); i++)
        if (launch->child[i].pid > 0)
            used += (size_t)snprintf(who + used, sizeof(who) - used, " %d", launch->child[i].rank);
    twill_complain("killing rank%s, which did not end on SIGTERM", who);
    signal_all(launch, SIGKILL);
    launch->phase = PHASE_KILL;
}

/* Ranks that wait for it in twill_init are to hear of it, unless it has left somebody of its own
 * who may come yet. */
static void notify_others(struct twill_launch *launch, const struct twill_child *child,
                          const siginfo_t *info)
{
    const char *when =
        child->entered ? "before all ranks were in twill_init" : "before it called twill_init";
    char how[160];
    if (info->si_code != CLD_EXITED)
        snprintf(how, sizeof(how), "was killed by signal %d (%s) %s", info->si_status,
                 strsignal(info->si_status), when);
    else if (info->si_status != 0 || kill(-info->si_pid, 0) != 0)
        snprintf(how, sizeof(how), "ended (exit code %d) %s", info->si_status, when);
    else
        return;
    if (launch->link)
        (void)twill_pipe_put(launch->link, TWILL_FRAME_GONE, (uint32_t)child->rank, 0, how,
                             strlen(how));
    twill_rank_socket_notify(launch, child->rank, how);
}

/* A rank has ended; it is still to be reaped, so its process group is certainly its own. */
static void child_ended(struct twill_launch *launch, struct twill_child *child,
                        const siginfo_t *info)
{
    bool left = info->si_code == CLD_EXITED;
    int code = left ? info->si_status : 128 + info->si_status;
    char how[128];
    if (left)
        snprintf(how, sizeof(how), "(pid %ld) exited with status %d", (long)info->si_pid, code);
    else
        snprintf(how, sizeof(how), "(pid %ld) was killed by signal %d (%s)", (long)info->si_pid,
                 info->si_status, strsignal(info->si_status));
    child->pid = 0;
    launch->alive--;
    if (launch->link) { /* it is decided there what that means */
        twill_server_report(launch, child->rank, code, how);
    } else if (code != 0 && launch->failed < 0) {
        launch->failed = child->rank;
        launch->code = code;
        twill_complain("rank %d %s%s", child->rank, how,
                       launch->alive > 0 ? "; ending the others" : "");
        twill_launch_end(launch, launch->options->grace_ns);
    }
    if (code != 0 || launch->phase != PHASE_NONE) /* what it left behind ends with the job */
        (void)kill(-info->si_pid, SIGKILL);
    (void)waitpid(info->si_pid, NULL, 0);
    notify_others(launch, child, info);
}

/* Has it ended, and how? */
static bool has_ended(const struct twill_child *child, siginfo_t *info)
{
    info->si_pid = 0;
    return child->pid > 0 &&
           waitid(P_PID, (id_t)child->pid, info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info->si_pid != 0;
}

/* Of several that have ended since the last look, those that were killed come first: the others may
 * have ended because of them, and the first failure decides. Who was killed before one of those
 * that were seen to have ended is seen then. */
static void reap_children(struct twill_launch *launch)
{
    siginfo_t info;
    twill_rank_socket_receive(launch); /* what those have said who end */
    for (int i = 0; i < launch->here; i++)
        launch->child[i].seen = has_ended(&launch->child[i], &info);
    for (int i = 0; i < launch->here; i++)
        if (has_ended(&launch->child[i], &info) && info.si_code != CLD_EXITED)
            child_ended(launch, &launch->child[i], &info);
    for (int i = 0; i < launch->here; i++)
        if (launch->child[i].seen && has_ended(&launch->child[i], &info))
            child_ended(launch, &launch->child[i], &info);
}

/* SIGTERM has been passed on: ranks may take the time of grace to end in order, unless this is not
 * the first time. One that is stopped would not notice. */
static void await_children(struct twill_launch *launch)
{
    uint64_t grace_ns = launch->stop_request.times > 1 ? 0 : launch->options->grace_ns;
    uint64_t next_ns = twill_now() + grace_ns + TWILL_TERM_NS;
    signal_all(launch, SIGCONT);
    if (launch->phase == PHASE_KILL)
        return;
    launch->next_ns = launch->phase == PHASE_TERM ? twill_min(launch->next_ns, next_ns) : next_ns;
    launch->stop_request.until_ns = launch->next_ns;
    launch->phase = PHASE_TERM;
}

void twill_launch_signal(struct twill_launch *launch, int number)
{
    bool stop_request = number == SIGINT || number == SIGTERM;
    signal_all(launch, number);
    launch->stop_request.times += stop_request;
    /* A program may have a use for SIGINT of its own; who asks twice means it. */
    if (number == SIGTERM)
        await_children(launch);
    else if (stop_request && launch->stop_request.times > 1)
        twill_launch_end(launch, 0);
}

static void read_launch_signals(struct twill_launch *launch)
{
    struct signalfd_siginfo info;
    while (read(launch->signals, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo != SIGCHLD)
            twill_launch_signal(launch, (int)info.ssi_signo);
    }
    reap_children(launch);
}

/* From the terminal to rank 0; called when there is something, or room for it again. */
static void forward_terminal(struct twill_launch *launch)
{
    char data[4096];
    struct pollfd writable = {.fd = launch->stdin_to, .events = POLLOUT};
    if (poll(&writable, 1, 0) <= 0)
        return;
    ssize_t n = read(launch->stdin_from, data, sizeof(data));
    if (n > 0 && send(launch->stdin_to, data, (size_t)n, MSG_NOSIGNAL) == n)
        return;
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    close(launch->stdin_to);
    close(launch->stdin_from);
    launch->stdin_from = launch->stdin_to = -1;
}

/* Which of the two relay() waits for. */
static struct pollfd relay_poll(const struct twill_launch *launch)
{
    struct pollfd writable = {.fd = launch->stdin_to, .events = POLLOUT};
    if (launch->stdin_from < 0)
        return (struct pollfd){.fd = -1};
    if (poll(&writable, 1, 0) <= 0)
        return writable;
    return (struct pollfd){.fd = launch->stdin_from, .events = POLLIN};
}

#define OTHER_POLLS                                                                                \
    (3 + TWILL_SERVER_POLLS) /* signals, terminal, word, a server's; then two a rank */

/* Those that are open, in their order: poll() takes no more entries than there may be descriptors.
 */
static nfds_t fill_launch_polls(const struct twill_launch *launch, struct pollfd *polls)
{
    nfds_t used = 0;
    /* Somebody does not read: ranks are to wait rather than memory to be filled. */
    bool full = launch->link && twill_pipe_waiting(launch->link) > TWILL_LINK_FULL;
    for (int i = 0; i < 2 * launch->here && !full; i++)
        if (launch->child[i / 2].out[i % 2].from >= 0)
            polls[used++] =
                (struct pollfd){.fd = launch->child[i / 2].out[i % 2].from, .events = POLLIN};
    return used;
}

/* Move what has come, and what is at its end. */
static void read_output(struct twill_launch *launch, const struct pollfd *polls, nfds_t used)
{
    nfds_t at = 0;
    for (int i = 0; i < 2 * launch->here && at < used; i++) {
        struct twill_stream *stream = &launch->child[i / 2].out[i % 2];
        if (stream->from < 0)
            continue;
        if (polls[at++].revents != 0 && !twill_stream_move(stream))
            twill_stream_end(stream);
    }
}

static bool launch_turn(struct twill_launch *launch, struct pollfd *polls)
{
    int timeout = -1;
    uint64_t now = twill_now();
    if (is_ending(launch) && now >= launch->next_ns)
        next_phase(launch);
    if (is_ending(launch))
        timeout = launch->next_ns > now ? (int)((launch->next_ns - now) / 1000000) + 1 : 0;
    polls[0] = (struct pollfd){.fd = launch->signals, .events = POLLIN};
    polls[1] = relay_poll(launch);
    polls[2] = (struct pollfd){.fd = launch->rank_socket[0], .events = POLLIN};
    twill_server_polls(launch, polls + 3);
    nfds_t streams = fill_launch_polls(launch, polls + OTHER_POLLS);
    if (poll(polls, OTHER_POLLS + streams, timeout) < 0)
        return errno == EINTR;
    read_output(launch, polls + OTHER_POLLS, streams);
    twill_server_turn(launch, polls + 3);
    if (polls[2].revents != 0)
        twill_rank_socket_receive(launch);
    if (polls[1].revents != 0)
        forward_terminal(launch);
    if (polls[0].revents != 0)
        read_launch_signals(launch);
    return true;
}

/* Ranks have ended; somebody they left behind may hold a pipe open, and is not waited for. */
static void drain_outputs(struct twill_launch *launch)
{
    for (int i = 0; i < 2 * launch->here; i++) {
        struct twill_stream *stream = &launch->child[i / 2].out[i % 2];
        for (int turns = 0; turns < 32 && stream->from >= 0; turns++)
            if (!twill_stream_move(stream))
                break;
        twill_stream_end(stream);
        if (stream->lost != 0 && launch->code == 0)
            launch->code = 1;
    }
}

int twill_launch_supervise(struct twill_launch *launch)
{
    struct pollfd *polls = calloc(OTHER_POLLS + 2 * (size_t)launch->here, sizeof(*polls));
    bool going = polls != NULL;
    reap_children(launch);
    while (going && launch->alive > 0)
        going = launch_turn(launch, polls);
    if (!going) {
        twill_complain("cannot wait for the ranks: %s", strerror(errno));
        signal_all(launch, SIGKILL);
        launch->code = 1;
    }
    drain_outputs(launch);
    free(polls);
    return launch->code;
}
