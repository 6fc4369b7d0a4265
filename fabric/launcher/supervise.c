/* SPDX-License-Identifier: Apache-2.0 */
/* Supervises the ranks, with their ends, signals for them, their output, and the end of the job. */
#include "fabric/bootstrap/frames.h"
#include "fabric/launcher/launcher.h"
#include "lib/base/times.h"
#include "numa/cgroup.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

bool twill_rank_socket_open(struct twill_launch *launch)
{
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, launch->rank_socket) == 0)
        return true;
    twill_complain("socketpair: %s", strerror(errno));
    return false;
}

/* Read what ranks have sent over the rank socket. Mark those that have entered twill_init(). Pass
 * lines of the library to launch->sayings, or in a host agent to the twillrun in front. Close the
 * socket if all ranks have closed it. */
static void receive_from_ranks(struct twill_launch *launch)
{
    struct twill_log_line line; /* or twill_launcher_entered, which also begins with the rank */
    const size_t head = offsetof(struct twill_log_line, text);
    ssize_t n;
    /* ECONNRESET: the last rank ended with an unread notice. Its messages are still there. */
    while ((n = recv(launch->rank_socket[0], &line, sizeof(line), MSG_DONTWAIT)) > 0 ||
           (n < 0 && (errno == EINTR || errno == ECONNRESET))) {
        for (int i = 0; i < launch->here && n == sizeof(struct twill_launcher_entered); i++)
            if (launch->child[i].rank == line.rank)
                launch->child[i].entered = true;
        if (n > (ssize_t)head && launch->link)
            (void)twill_pipe_put(launch->link, TWILL_FRAME_SAID, (uint32_t)line.rank, 0, line.text,
                                 (size_t)n - head);
        else if (n > (ssize_t)head)
            twill_sayings_add(&launch->sayings, line.rank, line.text, (size_t)n - head);
    }
    if (n < 0 && errno == EAGAIN)
        return;
    twill_rank_socket_close(launch); /* the other end is closed in all ranks */
}

void twill_rank_socket_close(struct twill_launch *launch)
{
    for (int i = 0; i < 2; i++) {
        if (launch->rank_socket[i] >= 0)
            close(launch->rank_socket[i]);
        launch->rank_socket[i] = -1;
    }
}

void twill_rank_socket_notify(struct twill_launch *launch, int rank, const char *how)
{
    struct twill_launcher_exited exited;
    if (launch->notified || launch->rank_socket[0] < 0)
        return;
    memset(&exited, 0, sizeof(exited));
    exited.rank = (uint32_t)rank;
    exited.size = (uint32_t)launch->options->ranks;
    snprintf(exited.how, sizeof(exited.how), "%s", how);
    launch->notified =
        send(launch->rank_socket[0], &exited, sizeof(exited), MSG_DONTWAIT | MSG_NOSIGNAL) > 0;
}

enum phase { PHASE_NONE, PHASE_GRACE, PHASE_TERM, PHASE_KILL };

/* Send a signal to all ranks and their children. */
static void signal_all(const struct twill_launch *launch, int number)
{
    for (int i = 0; i < launch->here; i++)
        if (launch->child[i].pid > 0)
            (void)kill(-launch->child[i].pid, number);
}

/* Return whether the job is being ended and SIGTERM or SIGKILL is still to be sent. */
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

/* Begin the next phase of ending, with SIGTERM or then SIGKILL. */
static void next_phase(struct twill_launch *launch)
{
    char who[256] = "";
    size_t used = 0;
    if (launch->phase == PHASE_GRACE) {
        signal_all(launch, SIGTERM);
        signal_all(launch, SIGCONT); /* a stopped rank would not handle it */
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

/* Notify ranks in twill_init(), on all hosts, that a rank ended. Do nothing if it ended with status
 * 0 and left a child in its process group, which may still join. */
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

/* Set *kills to the number of out-of-memory kills that a memory cgroup counts, and *cgroup to it.
 * That is this process's cgroup, or else the topmost one above it. Returns true, or false if
 * neither of the two counts such kills. */
static bool find_kills(struct twill_cgroup *cgroup, uint64_t *kills)
{
    if (!twill_cgroup_find(cgroup, "memory", ""))
        return false;
    const char *name = cgroup->unified ? "memory.events" : "memory.oom_control";
    if (twill_cgroup_count(cgroup, name, "oom_kill", kills))
        return true;
    cgroup->folder[cgroup->top] = '\0';
    return twill_cgroup_count(cgroup, name, "oom_kill", kills);
}

void twill_oom_open(struct twill_launch *launch)
{
    struct twill_cgroup cgroup;
    if (!find_kills(&cgroup, &launch->oom_kills))
        launch->oom_kills = UINT64_MAX;
}

/* If the kernel has counted more kills than launch->oom_kills, count one there. Then write to
 * `text`, as the end of a sentence, which memory limit is reached. Else leave `text` as it is. */
static void explain_kill(struct twill_launch *launch, char *text, size_t bytes)
{
    struct twill_cgroup cgroup;
    uint64_t kills, limit[2];
    if (!find_kills(&cgroup, &kills) || kills <= launch->oom_kills)
        return;
    launch->oom_kills++;
    const char *name = cgroup.unified ? "memory.max" : "memory.limit_in_bytes";
    do { /* the limit may be of a cgroup above */
        if (twill_cgroup_numbers(&cgroup, name, limit) < 1)
            continue;
        snprintf(text, bytes, ", as memory ran out: %.120s/%s is %llu bytes (%llu MiB)",
                 cgroup.folder, name, (unsigned long long)limit[0],
                 (unsigned long long)limit[0] >> 20);
        return;
    } while (twill_cgroup_rise(&cgroup));
    snprintf(text, bytes, ", as the memory of this machine ran out");
}

/* Handle the end of a rank. If it failed, replace it by --elastic, or else print why and end the
 * job. A host agent only sends its end to the twillrun in front, which decides. Reap the process.
 * Until it is reaped, its process group id cannot be used again. */
static void child_ended(struct twill_launch *launch, struct twill_child *child,
                        const siginfo_t *info)
{
    bool left = info->si_code == CLD_EXITED;
    int code = left ? info->si_status : 128 + info->si_status;
    char how[TWILL_HOW_TEXT], why[240] = "";
    if (code == 128 + SIGKILL) /* also of a child of the rank, if that is a shell */
        explain_kill(launch, why, sizeof(why));
    if (left)
        snprintf(how, sizeof(how), "(pid %ld) exited with status %d%s", (long)info->si_pid, code,
                 why);
    else
        snprintf(how, sizeof(how), "(pid %ld) was killed by signal %d (%s)%s", (long)info->si_pid,
                 info->si_status, strsignal(info->si_status), why);
    child->pid = 0;
    launch->alive--;
    code = child->dismissed ? 0 : code;
    launch->elastic.finishing = launch->elastic.finishing || code == 0;
    bool outlived = code != 0 && !launch->link && twill_elastic_outlives(launch, child, how);
    bool replace = outlived && !child->undecided;
    if (code != 0) {
        launch->elastic.last_failed = child->rank;
        launch->elastic.last_code = code;
    }
    if (!launch->link && code != 0 && !outlived && launch->failed < 0) {
        launch->failed = child->rank;
        launch->code = code;
        twill_complain("rank %d %s%s", child->rank, how,
                       launch->alive > 0 ? "; ending the others" : "");
        twill_launch_end(launch, launch->options->grace_ns);
    }
    if (code != 0 || launch->phase != PHASE_NONE) /* its children end with the job */
        (void)kill(-info->si_pid, SIGKILL);
    (void)waitpid(info->si_pid, NULL, 0);
    if (launch->elastic.folder[0]) /* its files are handled before its end */
        twill_elastic_receive(launch);
    twill_elastic_forget(launch, info->si_pid);
    if (replace)
        twill_elastic_replace(launch, child, child->rank);
    else if (!twill_elastic_has_started(launch))
        notify_others(launch, child, info);
    if (launch->elastic.folder[0])
        twill_elastic_check(launch);
    if (launch->link) /* the front decides what follows */
        twill_host_agent_report(launch, child->rank, code, how);
}

/* Return whether a child has ended, and how, without reaping it. */
static bool has_ended(const struct twill_child *child, siginfo_t *info)
{
    info->si_pid = 0;
    return child->pid > 0 &&
           waitid(P_PID, (id_t)child->pid, info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info->si_pid != 0;
}

/* Handle all ranks that have ended. Killed ranks come first, because others may have ended due to
 * them, and the first failure decides. All ended ranks are noted before the killed ones are looked
 * for, so every rank that was killed before those is found. */
static void reap_children(struct twill_launch *launch)
{
    siginfo_t info;
    receive_from_ranks(launch); /* what ended ranks have sent */
    for (int i = 0; i < launch->here; i++)
        launch->child[i].seen = has_ended(&launch->child[i], &info);
    for (int i = 0; i < launch->here; i++)
        if (has_ended(&launch->child[i], &info) && info.si_code != CLD_EXITED)
            child_ended(launch, &launch->child[i], &info);
    for (int i = 0; i < launch->here; i++)
        if (launch->child[i].seen && has_ended(&launch->child[i], &info))
            child_ended(launch, &launch->child[i], &info);
}

/* After SIGTERM was forwarded to the ranks, set when they are killed, without waiting. That is
 * after TWILL_TERM_NS, to which the first stop signal adds the grace time. A time that was already
 * set is never put off. */
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
    /* A program may handle SIGINT itself. A second one ends the job. */
    if (number == SIGTERM)
        await_children(launch);
    else if (stop_request && launch->stop_request.times > 1)
        twill_launch_end(launch, 0);
}

/* Forward pending signals to the ranks by twill_launch_signal(), and handle all ranks that have
 * ended. */
static void read_launch_signals(struct twill_launch *launch)
{
    struct signalfd_siginfo info;
    while (read(launch->signals, &info, sizeof(info)) == sizeof(info)) {
        if (info.ssi_signo != SIGCHLD)
            twill_launch_signal(launch, (int)info.ssi_signo);
    }
    reap_children(launch);
}

/* Forward terminal input to rank 0, when there is input or space for it again. */
static void forward_terminal(struct twill_launch *launch)
{
    char data[4096];
    struct pollfd writable = {.fd = launch->input.to, .events = POLLOUT};
    if (poll(&writable, 1, 0) <= 0)
        return;
    ssize_t n = read(launch->input.from, data, sizeof(data));
    if (n > 0 && send(launch->input.to, data, (size_t)n, MSG_NOSIGNAL) == n)
        return;
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    close(launch->input.to);
    close(launch->input.from);
    launch->input.from = launch->input.to = -1;
}

/* Return the entry to poll until terminal input can be forwarded, with fd -1 if there is none. */
static struct pollfd relay_poll(const struct twill_launch *launch)
{
    struct pollfd writable = {.fd = launch->input.to, .events = POLLOUT};
    if (launch->input.from < 0)
        return (struct pollfd){.fd = -1};
    if (poll(&writable, 1, 0) <= 0)
        return writable;
    return (struct pollfd){.fd = launch->input.from, .events = POLLIN};
}

/* Entries before the two for each rank, for signals, terminal, rank socket, the folder of
 * --elastic, twillrun's output and a host agent. */
#define OWN_POLLS   4
#define OTHER_POLLS (OWN_POLLS + TWILL_OUTPUTS + TWILL_HOST_AGENT_POLLS)

/* Fill polls for open streams only, as poll() takes RLIMIT_NOFILE entries. Returns their number. */
static nfds_t fill_launch_polls(const struct twill_launch *launch, struct pollfd *polls)
{
    nfds_t used = 0;
    for (int i = 0; i < 2 * launch->here; i++) {
        const struct twill_stream *stream = &launch->child[i / 2].out[i % 2];
        if (stream->from < 0)
            continue;
        /* If the other side does not read, stop reading: ranks wait, and memory is bounded. */
        bool full = launch->link ? twill_pipe_waiting(launch->link) > TWILL_LINK_FULL
                                 : twill_output_full(stream->to);
        polls[used++] = (struct pollfd){.fd = full ? -1 : stream->from, .events = POLLIN};
    }
    return used;
}

/* Read streams that have output or are at their end. */
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

/* Wait for events and handle them. Returns false if poll() fails. */
static bool launch_turn(struct twill_launch *launch, struct pollfd *polls)
{
    uint64_t now = twill_now();
    if (is_ending(launch) && now >= launch->next_ns)
        next_phase(launch);
    if (now >= twill_elastic_deadline(launch))
        twill_elastic_check(launch);
    twill_sayings_print(&launch->sayings, now);
    uint64_t until = is_ending(launch) ? launch->next_ns : twill_elastic_deadline(launch);
    until = twill_min(until, twill_sayings_deadline(&launch->sayings));
    polls[0] = (struct pollfd){.fd = launch->signals, .events = POLLIN};
    polls[1] = relay_poll(launch);
    polls[2] = (struct pollfd){.fd = launch->rank_socket[0], .events = POLLIN};
    polls[3] = (struct pollfd){.fd = launch->elastic.watch, .events = POLLIN};
    twill_output_polls(polls + OWN_POLLS);
    twill_host_agent_polls(launch, polls + OWN_POLLS + TWILL_OUTPUTS);
    nfds_t streams = fill_launch_polls(launch, polls + OTHER_POLLS);
    if (twill_wire_poll(polls, OTHER_POLLS + streams, until) < 0)
        return false;
    read_output(launch, polls + OTHER_POLLS, streams);
    twill_host_agent_turn(launch, polls + OWN_POLLS + TWILL_OUTPUTS);
    if (polls[3].revents != 0)
        twill_elastic_receive(launch);
    if (polls[2].revents != 0)
        receive_from_ranks(launch);
    if (polls[1].revents != 0)
        forward_terminal(launch);
    if (polls[0].revents != 0)
        read_launch_signals(launch);
    twill_output_flush(&launch->stop_request);
    return true;
}

/* Read the rest of the output, without waiting for children of ranks that hold a pipe open. Print
 * the lines of the library that wait. Without a host agent, wait until all is written, and set the
 * exit code to 1 if labelled output was lost. */
static void drain_outputs(struct twill_launch *launch)
{
    for (int i = 0; i < 2 * launch->here; i++) {
        struct twill_stream *stream = &launch->child[i / 2].out[i % 2];
        for (int turns = 0; turns < 32 && stream->from >= 0; turns++)
            if (!twill_stream_move(stream))
                break;
        twill_stream_end(stream);
    }
    receive_from_ranks(launch);
    twill_sayings_print(&launch->sayings, UINT64_MAX);
    if (!launch->link && !twill_output_drain(&launch->stop_request) && launch->options->label &&
        launch->code == 0)
        launch->code = 1;
}

/* Return whether there is a rank to wait for, or may be one, as the front may start more here. */
static bool is_running(const struct twill_launch *launch)
{
    return launch->alive > 0 ||
           (launch->link && launch->elastic.folder[0] && launch->phase == PHASE_NONE);
}

int twill_launch_supervise(struct twill_launch *launch)
{
    struct pollfd *polls = calloc(OTHER_POLLS + 2 * (size_t)launch->here, sizeof(*polls));
    bool going = polls != NULL;
    reap_children(launch);
    while (going && is_running(launch))
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
