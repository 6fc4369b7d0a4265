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

#define TERM_NS UINT64_C(2000000000) /* between SIGTERM and SIGKILL */

enum stage { STAGE_NONE, STAGE_GRACE, STAGE_TERM, STAGE_KILL };

/* To all ranks and their children. */
static void signal_all(const struct twill_launch *launch, int number)
{
    for (int rank = 0; rank < launch->options->ranks; rank++)
        if (launch->child[rank].pid > 0)
            (void)kill(-launch->child[rank].pid, number);
}

/* Is there another stage to come? */
static bool is_ending(const struct twill_launch *launch)
{
    return launch->stage == STAGE_GRACE || launch->stage == STAGE_TERM;
}

static void begin_end(struct twill_launch *launch, uint64_t after_ns)
{
    if (launch->stage == STAGE_NONE)
        launch->stage = STAGE_GRACE;
    if (launch->stage == STAGE_GRACE)
        launch->next_ns = twill_now() + after_ns;
}

/* The time of a stage is over. */
static void next_stage(struct twill_launch *launch)
{
    char who[256] = "";
    size_t used = 0;
    if (launch->stage == STAGE_GRACE) {
        signal_all(launch, SIGTERM);
        signal_all(launch, SIGCONT); /* one that is stopped would not notice */
        launch->next_ns = twill_now() + TERM_NS;
        launch->stage = STAGE_TERM;
        return;
    }
    for (int rank = 0; rank < launch->options->ranks && used + 8 < sizeof(who); rank++)
        if (launch->child[rank].pid > 0)
            used += (size_t)snprintf(who + used, sizeof(who) - used, " %d", rank);
    twill_complain("killing rank%s, which did not end on SIGTERM", who);
    signal_all(launch, SIGKILL);
    launch->stage = STAGE_KILL;
}

static void report_failure(struct twill_launch *launch, int rank, const siginfo_t *info)
{
    char how[96];
    if (info->si_code == CLD_EXITED)
        snprintf(how, sizeof(how), "exited with status %d", info->si_status);
    else
        snprintf(how, sizeof(how), "was killed by signal %d (%s)", info->si_status,
                 strsignal(info->si_status));
    twill_complain("rank %d (pid %ld) %s%s", rank, (long)info->si_pid, how,
                   launch->alive > 0 ? "; ending the others" : "");
}

/* A rank has ended; it is still to be reaped, so its process group is certainly its own. */
static void rank_ended(struct twill_launch *launch, int rank, const siginfo_t *info)
{
    int code = info->si_code == CLD_EXITED ? info->si_status : 128 + info->si_status;
    launch->child[rank].pid = 0;
    launch->alive--;
    if (code != 0 && launch->failed < 0) {
        launch->failed = rank;
        launch->code = code;
        report_failure(launch, rank, info);
        begin_end(launch, launch->options->grace_ns);
    }
    if (launch->stage != STAGE_NONE) /* what it left behind ends with the job */
        (void)kill(-info->si_pid, SIGKILL);
}

static void reap(struct twill_launch *launch)
{
    for (;;) {
        siginfo_t info = {.si_pid = 0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return;
        for (int rank = 0; rank < launch->options->ranks; rank++)
            if (launch->child[rank].pid == info.si_pid) {
                rank_ended(launch, rank, &info);
                break;
            }
        (void)waitpid(info.si_pid, NULL, 0);
    }
}

static void hear_signals(struct twill_launch *launch)
{
    struct signalfd_siginfo info;
    while (read(launch->signals, &info, sizeof(info)) == sizeof(info)) {
        int number = (int)info.ssi_signo;
        if (number == SIGCHLD)
            continue;
        signal_all(launch, number);
        /* Ranks may handle the first one; who asks twice means it. */
        if ((number == SIGINT || number == SIGTERM) && ++launch->interrupts > 1)
            begin_end(launch, 0);
    }
    reap(launch);
}

/* From the terminal to rank 0; called when there is something, or room for it again. */
static void relay(struct twill_launch *launch)
{
    char data[4096];
    struct pollfd room = {.fd = launch->stdin_to, .events = POLLOUT};
    if (poll(&room, 1, 0) <= 0)
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
    struct pollfd room = {.fd = launch->stdin_to, .events = POLLOUT};
    if (launch->stdin_from >= 0 && poll(&room, 1, 0) <= 0)
        return room;
    return (struct pollfd){.fd = launch->stdin_from, .events = POLLIN};
}

/* polls: signals, terminal, then two for each rank. */
static bool turn(struct twill_launch *launch, struct pollfd *polls)
{
    int ranks = launch->options->ranks, timeout = -1;
    uint64_t now = twill_now();
    if (is_ending(launch) && now >= launch->next_ns)
        next_stage(launch);
    if (is_ending(launch))
        timeout = launch->next_ns > now ? (int)((launch->next_ns - now) / 1000000) + 1 : 0;
    polls[0] = (struct pollfd){.fd = launch->signals, .events = POLLIN};
    polls[1] = relay_poll(launch);
    for (int i = 0; i < 2 * ranks; i++)
        polls[2 + i] =
            (struct pollfd){.fd = launch->child[i / 2].out[i % 2].from, .events = POLLIN};
    if (poll(polls, 2 + 2 * (nfds_t)ranks, timeout) < 0)
        return errno == EINTR;
    for (int i = 0; i < 2 * ranks; i++) {
        struct twill_stream *stream = &launch->child[i / 2].out[i % 2];
        if (polls[2 + i].revents != 0 && !twill_stream_move(stream, i / 2))
            twill_stream_end(stream, i / 2);
    }
    if (polls[1].revents != 0)
        relay(launch);
    if (polls[0].revents != 0)
        hear_signals(launch);
    return true;
}

/* Ranks have ended; somebody they left behind may hold a pipe open, and is not waited for. */
static void drain(struct twill_launch *launch)
{
    for (int i = 0; i < 2 * launch->options->ranks; i++) {
        struct twill_stream *stream = &launch->child[i / 2].out[i % 2];
        for (int turns = 0; turns < 32 && stream->from >= 0; turns++)
            if (!twill_stream_move(stream, i / 2))
                break;
        twill_stream_end(stream, i / 2);
    }
}

int twill_launch_watch(struct twill_launch *launch)
{
    struct pollfd *polls = calloc(2 + 2 * (size_t)launch->options->ranks, sizeof(*polls));
    bool going = polls != NULL;
    reap(launch);
    while (going && launch->alive > 0)
        going = turn(launch, polls);
    if (!going) {
        twill_complain("cannot wait for the ranks: %s", strerror(errno));
        signal_all(launch, SIGKILL);
        launch->code = 1;
    }
    drain(launch);
    free(polls);
    return launch->code;
}
