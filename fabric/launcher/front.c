/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a job on several hosts. It sends each host's agent its ranks, starts them when all hosts are
 * ready, ends the job, and gives up hosts that do not answer in time. */
#include "fabric/launcher/front.h"
#include "fabric/bootstrap/frames.h"
#include "lib/base/times.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define FRONT_POLLS (3 + TWILL_OUTPUTS) /* signals, input, page, output; then three a host */

void twill_front_send(struct twill_front_host *host, enum twill_frame_kind kind, uint32_t value)
{
    (void)twill_pipe_put(&host->pipe, kind, 0, value, NULL, 0);
    (void)twill_pipe_flush(&host->pipe);
}

void twill_front_end(struct twill_front *front, uint64_t grace_ns)
{
    if (front->ending)
        return;
    front->ending = true;
    front->end_ns = twill_now() + grace_ns + TWILL_TERM_NS + TWILL_REPORT_NS;
    for (int i = 0; i < front->options->sites; i++) {
        struct twill_front_host *host = &front->host[i];
        if (host->state >= TWILL_HOST_STARTING)
            twill_front_send(host, TWILL_FRAME_END, (uint32_t)(grace_ns / 1000000));
        else if (host->state != TWILL_HOST_IDLE)
            twill_agent_end(host, host->state == TWILL_HOST_CALLED ? 0 : TWILL_AGENT_END_NS);
    }
}

/* Once all ranks were sent SIGTERM, mark the job as ending and set two times. At
 * stop_request.until_ns their grace time and TWILL_TERM_NS are over, and host agents kill those
 * that remain. At end_ns, which is later, hosts that have not reported are given up. */
static void await_hosts(struct twill_front *front)
{
    uint64_t last_ns = twill_now() + front->options->grace_ns + TWILL_TERM_NS;
    front->stop_request.until_ns = last_ns;
    front->ending = true;
    front->end_ns = last_ns + TWILL_REPORT_NS;
}

bool twill_front_fail(struct twill_front *front, int code)
{
    bool first = !front->failed;
    front->failed = true;
    if (first)
        front->code = code;
    return first;
}

/* Give up a host and end the job as failed. The message is `why` followed by `how`, which completes
 * it and may be empty. There is no message if the job is ending and the host has no ranks left. */
static void lose_host(struct twill_front *front, struct twill_front_host *host, const char *why,
                      const char *how)
{
    if (!front->ending || host->alive > 0)
        twill_complain("host %s: %s%s", host->name, why, how);
    (void)twill_front_fail(front, 1);
    /* A remote host agent ends without ssh. The local one must not die before its ranks. */
    twill_agent_end(host, host->local ? TWILL_AGENT_END_NS : 0);
    twill_front_end(front, front->options->grace_ns);
}

/* Handle the end of an agent's output before its time: replace its ranks or end the job. */
static void host_lost(struct twill_front *front, struct twill_front_host *host)
{
    static const char *const during[] = {
        [TWILL_HOST_CALLED] = "no answer from a twillrun there: ",
        [TWILL_HOST_ANSWERED] = "lost before its ranks were started: ",
        [TWILL_HOST_READY] = "lost before its ranks were started: ",
        [TWILL_HOST_STARTING] = "lost while its ranks were started: ",
        [TWILL_HOST_RUNNING] = "lost: ",
    };
    char how[256];
    twill_agent_how(host, front->options, how, sizeof(how));
    if (host->state == TWILL_HOST_RUNNING && twill_front_outlives_host(front, host, how))
        return;
    lose_host(front, host, during[host->state], how);
}

/* Return how many hosts have an agent that is not done yet. */
static int hosts_left(const struct twill_front *front)
{
    int left = 0;
    for (int i = 0; i < front->options->sites; i++)
        left += front->host[i].state != TWILL_HOST_IDLE;
    return left;
}

/* Give up a host that sent malformed data. */
static void broken(struct twill_front *front, struct twill_front_host *host)
{
    lose_host(front, host, "received data that is not from twillrun", "");
}

/* Check the version of a host agent and send it its part of the job, or give up the host. */
static void hello(struct twill_front *front, struct twill_front_host *host,
                  const struct twill_frame *frame)
{
    char version[96];
    size_t bytes = 0;
    snprintf(version, sizeof(version), "%.*s (protocol %u)", (int)twill_min(frame->bytes, 32),
             frame->data, frame->value);
    if (strcmp(version, TWILL_VERSION_TEXT " (protocol " TWILL_QUOTE(TWILL_FRAME_PROTOCOL) ")") !=
        0) {
        lose_host(front, host,
                  "has another version of twillrun than " TWILL_VERSION_TEXT
                  " (protocol " TWILL_QUOTE(TWILL_FRAME_PROTOCOL) "): ",
                  version);
        return;
    }
    char *job = twill_job_write(front->options, (int)(host - front->host), front->key, &bytes);
    if (!job || !twill_pipe_put(&host->pipe, TWILL_FRAME_JOB, 0, 0, job, bytes)) {
        lose_host(front, host, "cannot be sent its part of the job", "");
    } else {
        host->state = TWILL_HOST_ANSWERED;
    }
    free(job);
}

/* Record that a host is ready, and rank 0's address if it sent that. Start all if all are ready. */
static void ready(struct twill_front *front, struct twill_front_host *host,
                  const struct twill_frame *frame)
{
    if (frame->bytes > 0)
        snprintf(front->where, sizeof(front->where), "%.*s", (int)twill_min(frame->bytes, 79),
                 frame->data);
    host->state = TWILL_HOST_READY;
    for (int i = 0; i < front->options->sites; i++)
        if (front->host[i].state == TWILL_HOST_CALLED ||
            front->host[i].state == TWILL_HOST_ANSWERED)
            return;
    for (int i = 0; i < front->options->sites; i++)
        if (front->host[i].state == TWILL_HOST_READY) {
            front->host[i].state = TWILL_HOST_STARTING;
            (void)twill_pipe_put(&front->host[i].pipe, TWILL_FRAME_START, 0, 0, front->where,
                                 strlen(front->where));
        }
}

/* Record that a host has started its ranks. Only the first reason for unbound ranks is printed. */
static void host_started(struct twill_front *front, struct twill_front_host *host,
                         const struct twill_frame *frame)
{
    host->state = TWILL_HOST_RUNNING;
    if (frame->bytes > 0 && !front->unbound)
        twill_complain("host %s: %.*s", host->name, (int)twill_min(frame->bytes, 255), frame->data);
    front->unbound = front->unbound || frame->bytes > 0;
}

/* Handle the end of a rank. If it failed, --elastic may replace it. If not, and it is the first
 * failure, print it and end the job. */
static void ended(struct twill_front *front, struct twill_front_host *host,
                  const struct twill_frame *frame)
{
    int code = (int)frame->value;
    char who[320 + TWILL_HOW_TEXT];
    if (!front->living[frame->rank] || host->alive == 0)
        return; /* reported before */
    host->alive--;
    front->living[frame->rank] = false;
    front->elastic.question.asked_ns = 0; /* answers to an older question came before this end */
    if (code == 0 && front->finish_ns == 0)
        front->finish_ns = twill_now();
    snprintf(who, sizeof(who), "rank %u on %s %.*s", frame->rank, host->name,
             (int)twill_min(frame->bytes, TWILL_HOW_TEXT), frame->data);
    if (code != 0 && !twill_front_outlives(front, (int)frame->rank, code, who) &&
        twill_front_fail(front, code)) {
        twill_complain("%s%s", who, twill_front_alive(front) > 0 ? "; ending the others" : "");
        twill_front_end(front, front->options->grace_ns);
    }
    twill_front_check(front);
}

/* Write output of a rank. If that fails because no process reads it, end the job. */
static void output(struct twill_front *front, const struct twill_frame *frame)
{
    struct twill_stream *stream = &front->child[frame->rank].out[frame->value];
    front->mute = front->mute || !twill_stream_add(stream, frame->data, frame->bytes);
    if (!front->mute)
        return;
    (void)twill_front_fail(front, 1);
    twill_front_end(front, 0);
}

/* Return whether a rank is on this host, which sent a frame about it. */
static bool host_has_rank(const struct twill_front *front, const struct twill_front_host *host,
                          uint32_t rank)
{
    return rank < (uint32_t)twill_options_places(front->options) &&
           front->options->place[rank] == (int)(host - front->host);
}

void twill_front_pass(struct twill_front *front, const struct twill_front_host *but,
                      const struct twill_frame *frame)
{
    for (int i = 0; i < front->options->sites; i++)
        if (front->host[i].state >= TWILL_HOST_STARTING && &front->host[i] != but)
            (void)twill_pipe_put(&front->host[i].pipe, frame->kind, frame->rank, frame->value,
                                 frame->data, frame->bytes);
}

/* Return how many hosts that are used come before this one. */
static int used_before(const struct twill_front *front, const struct twill_front_host *host)
{
    int used = 0;
    for (int i = 0; i < (int)(host - front->host); i++)
        used += twill_site_is_used(front->options, i);
    return used;
}

/* Pass on the questions of the page. Answer for hosts that do not run ranks. */
static void ask_hosts(struct twill_front *front)
{
    static const char none[] = "{\"error\":\"no ranks run there\"}";
    const char *line;
    size_t bytes;
    int rank;
    twill_page_receive();
    while ((line = twill_page_next(&bytes)) != NULL)
        for (int i = 0; i < front->options->sites && sscanf(line, "ask %d", &rank) == 1; i++) {
            struct twill_front_host *host = &front->host[i];
            if (host->state == TWILL_HOST_RUNNING)
                twill_front_send(host, TWILL_FRAME_LOOK, (uint32_t)(rank + 1));
            else if (twill_site_is_used(front->options, i))
                twill_page_answer(used_before(front, host), none, sizeof(none) - 1);
        }
}

/* Handle a frame. One that a host may not send in its state makes the host lost. */
static void frame_take(struct twill_front *front, struct twill_front_host *host,
                       const struct twill_frame *frame)
{
    enum twill_front_state state = host->state;
    if (frame->kind == TWILL_FRAME_HELLO && state == TWILL_HOST_CALLED) {
        hello(front, host, frame);
    } else if (frame->kind == TWILL_FRAME_READY && state == TWILL_HOST_ANSWERED) {
        ready(front, host, frame);
    } else if (frame->kind == TWILL_FRAME_STARTED && state == TWILL_HOST_STARTING) {
        host_started(front, host, frame);
    } else if (frame->kind == TWILL_FRAME_OUTPUT && host_has_rank(front, host, frame->rank) &&
               frame->value < 2) {
        output(front, frame);
    } else if (frame->kind == TWILL_FRAME_SAID && frame->bytes <= TWILL_SAID_TEXT) {
        twill_sayings_add(&front->sayings, (int)frame->rank, frame->data, frame->bytes);
    } else if (frame->kind == TWILL_FRAME_CREDIT && frame->value <= TWILL_INPUT_WINDOW) {
        front->window = (uint32_t)twill_min(front->window + frame->value, TWILL_INPUT_WINDOW);
    } else if (frame->kind == TWILL_FRAME_ENDED && host_has_rank(front, host, frame->rank) &&
               frame->value < 256 && state >= TWILL_HOST_STARTING) {
        ended(front, host, frame);
    } else if (frame->kind == TWILL_FRAME_GONE && host_has_rank(front, host, frame->rank)) {
        twill_front_pass(front, NULL, frame);
    } else if (frame->kind == TWILL_FRAME_FILE && state >= TWILL_HOST_STARTING) {
        twill_front_pass(front, host, frame);
        front->elastic.begun = front->elastic.begun || twill_frame_names(frame, "started");
    } else if (frame->kind == TWILL_FRAME_WAITING && frame->value <= TWILL_MAX_RANKS) {
        host->waiting = (int)frame->value;
        host->joining = (int)twill_min(frame->rank, frame->value);
        twill_front_check(front);
    } else if (frame->kind == TWILL_FRAME_FAILED) { /* the host agent has printed the reason */
        host->alive = 0;
        (void)twill_front_fail(front,
                               frame->value > 0 && frame->value < 256 ? (int)frame->value : 1);
        twill_front_end(front, 0);
    } else if (frame->kind == TWILL_FRAME_PROBE && state == TWILL_HOST_RUNNING) {
        host->answered = frame->value; /* receive_frames() has recorded the time */
        twill_front_check(front);
    } else if (frame->kind == TWILL_FRAME_LOOK) {
        twill_page_answer(used_before(front, host), frame->data, frame->bytes);
    } else if (frame->kind == TWILL_FRAME_DONE) {
        host->state = TWILL_HOST_IDLE; /* twill_front_run() waits for the agent at the end */
        twill_pipe_close(&host->pipe);
    } else {
        broken(front, host);
    }
}

/* Read from a host agent and handle all complete frames. Its end makes the host lost. */
static void receive_frames(struct twill_front *front, struct twill_front_host *host)
{
    struct twill_frame frame;
    int got = 1;
    bool there = twill_pipe_fill(&host->pipe);
    host->heard_ns = twill_now();
    if (!host->marked) {
        got = twill_pipe_find_mark(&host->pipe);
        host->marked = got > 0;
    }
    while (got > 0 && host->state != TWILL_HOST_IDLE &&
           (got = twill_pipe_next(&host->pipe, &frame)) > 0)
        frame_take(front, host, &frame);
    if (host->state != TWILL_HOST_IDLE && got < 0)
        broken(front, host);
    else if (host->state != TWILL_HOST_IDLE && !there)
        host_lost(front, host);
}

/* Return true if nothing of a host waits to be read now, neither data nor the end of its pipe.
 * While our own output is full, data is left unread in the pipe, so the time of the last read does
 * not show that. */
static bool host_is_silent(const struct twill_front_host *host)
{
    struct pollfd one = {.fd = host->pipe.in, .events = POLLIN};
    return poll(&one, 1, 0) <= 0;
}

/* Return the twill_now() since which a running host has been silent. That is at the earliest when a
 * rank of the job first ended with status 0. Before that, while the job ends and for other hosts,
 * return UINT64_MAX, as no answer is expected. */
static uint64_t silent_since(const struct twill_front *front, const struct twill_front_host *host)
{
    bool must = host->state == TWILL_HOST_RUNNING && front->finish_ns != 0 && !front->ending;
    return must ? twill_max(front->finish_ns, host->heard_ns) : UINT64_MAX;
}

/* Return when to probe a silent host, or UINT64_MAX if never or if it was probed. */
static uint64_t probe_time(const struct twill_front *front, const struct twill_front_host *host)
{
    uint64_t since = silent_since(front, host), after_ns = front->options->timeout_ns / 2;
    return since != UINT64_MAX && host->probed_ns < since ? since + after_ns : UINT64_MAX;
}

/* Return the twill_now() at which to give up a host if it stays silent, or UINT64_MAX if it has no
 * deadline. A running host has one only after it was probed, or while the job ends. */
static uint64_t answer_deadline(const struct twill_front *front,
                                const struct twill_front_host *host)
{
    uint64_t timeout_ns = front->options->timeout_ns;
    if (front->ending && host->state != TWILL_HOST_IDLE)
        return twill_max(front->end_ns, host->heard_ns + TWILL_REPORT_NS);
    if (host->state == TWILL_HOST_IDLE || host->state == TWILL_HOST_READY)
        return UINT64_MAX;
    if (host->state < TWILL_HOST_RUNNING)
        return front->start_ns + timeout_ns;
    return host->probed_ns >= silent_since(front, host) ? host->probed_ns + timeout_ns / 2
                                                        : UINT64_MAX;
}

/* Give up a silent host. If its ranks have ended, the ranks of other hosts continue. */
static void give_up_host(struct twill_front *front, struct twill_front_host *host)
{
    uint64_t after_ns = front->ending ? TWILL_REPORT_NS : front->options->timeout_ns;
    const char *what = host->state == TWILL_HOST_CALLED ? "no answer from a twillrun there within "
                                                        : "its ranks were not started within ";
    const char *then = "";
    char after[96];
    if (front->ending || host->state == TWILL_HOST_RUNNING) {
        what = "no answer about its ranks for ";
        then = host->alive > 0 ? ": they may still be running"
                               : " after their end: the rest of their output may be missing";
    }
    twill_print(after, sizeof(after), "%g s%s", (double)after_ns / 1e9, then);
    if (host->alive > 0 || host->state < TWILL_HOST_RUNNING) {
        lose_host(front, host, what, after);
        return;
    }
    twill_complain("host %s: %s%s", host->name, what, after);
    front->cut = true;
    twill_agent_end(host, host->local ? TWILL_AGENT_END_NS : 0);
}

/* Probe hosts that are silent for too long, or give them up. Also end a question whether ranks are
 * left, if the hosts have not answered in time. */
static void check_silence(struct twill_front *front)
{
    uint64_t now = twill_now();
    for (int i = 0; i < front->options->sites; i++) {
        struct twill_front_host *host = &front->host[i];
        if (host->state != TWILL_HOST_IDLE && !host_is_silent(host)) {
            host->heard_ns = now;
        } else if (now >= answer_deadline(front, host)) {
            give_up_host(front, host);
        } else if (now >= probe_time(front, host)) {
            host->probed_ns = now;
            twill_front_send(host, TWILL_FRAME_PROBE, front->elastic.question.number);
        }
    }
    if (now >= twill_front_question_deadline(front))
        twill_front_check(front);
}

/* Return when to probe or give up a host, or to end a question, or UINT64_MAX if never. */
static uint64_t silence_deadline(const struct twill_front *front)
{
    uint64_t until = twill_front_question_deadline(front);
    for (int i = 0; i < front->options->sites; i++)
        until = twill_min(until, twill_min(answer_deadline(front, &front->host[i]),
                                           probe_time(front, &front->host[i])));
    return until;
}

/* Forward signals to all hosts. SIGTERM or a second SIGINT ends the job. Before a host has its
 * command to start ranks, any signal but SIGUSR1, SIGUSR2 and SIGCHLD ends it, with exit code 128 +
 * its number. */
static void read_front_signals(struct twill_front *front)
{
    struct signalfd_siginfo info;
    while (read(front->signals, &info, sizeof(info)) == sizeof(info)) {
        bool interrupt = info.ssi_signo == SIGINT || info.ssi_signo == SIGTERM;
        if (info.ssi_signo == SIGCHLD)
            continue;
        front->stop_request.times += interrupt;
        for (int i = 0; i < front->options->sites; i++)
            if (front->host[i].state >= TWILL_HOST_STARTING)
                twill_front_send(&front->host[i], TWILL_FRAME_SIGNAL, info.ssi_signo);
            else if (front->host[i].state != TWILL_HOST_IDLE && info.ssi_signo != SIGUSR1 &&
                     info.ssi_signo != SIGUSR2 &&
                     twill_front_fail(front, 128 + (int)info.ssi_signo))
                twill_front_end(front, 0);
        if (info.ssi_signo == SIGTERM && !front->ending) /* host agents kill their ranks */
            await_hosts(front);
        else if (interrupt && front->stop_request.times > 1)
            twill_front_end(front, 0);
    }
}

/* Read standard input once, as much as the window allows, and queue it for the host of rank 0. An
 * empty frame shows its end. */
static void forward_stdin(struct twill_front *front, struct twill_front_host *root)
{
    char data[16384];
    ssize_t n = read(STDIN_FILENO, data, twill_min(sizeof(data), front->window));
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    front->input = n > 0;
    front->window -= n > 0 ? (uint32_t)n : 0;
    (void)twill_pipe_put(&root->pipe, TWILL_FRAME_INPUT, 0, 0, data, n > 0 ? (size_t)n : 0);
}

/* Return when there is work although no event has come, or UINT64_MAX. */
static uint64_t next_deadline(const struct twill_front *front)
{
    uint64_t until = twill_min(silence_deadline(front), twill_sayings_deadline(&front->sayings));
    if (front->stop_request.until_ns > twill_now()) /* output without a reader is dropped then */
        until = twill_min(until, front->stop_request.until_ns);
    return until;
}

/* Append polls for open agents only, as poll() takes RLIMIT_NOFILE entries. Returns their end. */
static nfds_t fill_host_polls(struct twill_front *front, nfds_t used)
{
    /* If our output has no reader, stop reading, so that hosts wait and memory is bounded. */
    bool full = twill_output_full(STDOUT_FILENO) || twill_output_full(STDERR_FILENO);
    for (int i = 0; i < front->options->sites; i++) {
        struct twill_front_host *host = &front->host[i];
        bool waiting = twill_pipe_waiting(&host->pipe) > 0;
        host->polls = NULL;
        if (host->pipe.in < 0 && host->said.from < 0)
            continue;
        host->polls = front->polls + used;
        host->polls[0] = (struct pollfd){.fd = full ? -1 : host->pipe.in, .events = POLLIN};
        host->polls[1] = (struct pollfd){.fd = waiting ? host->pipe.out : -1, .events = POLLOUT};
        host->polls[2] = (struct pollfd){.fd = full ? -1 : host->said.from, .events = POLLIN};
        used += 3;
    }
    return used;
}

/* Wait for events and handle them. Returns false if poll() fails. */
static bool front_turn(struct twill_front *front)
{
    struct twill_front_host *root = &front->host[front->options->place[0]];
    struct pollfd *polls = front->polls;
    bool reading = front->input && front->window > 0 && root->state == TWILL_HOST_RUNNING;
    polls[0] = (struct pollfd){.fd = front->signals, .events = POLLIN};
    polls[1] = (struct pollfd){.fd = reading ? STDIN_FILENO : -1, .events = POLLIN};
    polls[2] = twill_page_poll();
    twill_output_polls(polls + 3);
    if (twill_wire_poll(polls, fill_host_polls(front, FRONT_POLLS), next_deadline(front)) < 0)
        return false;
    for (int i = 0; i < front->options->sites; i++) {
        struct twill_front_host *host = &front->host[i];
        if (!host->polls)
            continue;
        if (host->polls[2].revents != 0)
            twill_agent_receive(host);
        if (host->polls[1].revents != 0)
            (void)twill_pipe_flush(&host->pipe); /* if it is closed, its output also ends */
        if (host->polls[0].revents != 0 && host->state != TWILL_HOST_IDLE)
            receive_frames(front, host);
    }
    if (polls[2].revents != 0)
        ask_hosts(front);
    if (polls[1].revents != 0 && root->state == TWILL_HOST_RUNNING)
        forward_stdin(front, root);
    if (polls[0].revents != 0)
        read_front_signals(front);
    check_silence(front);
    twill_sayings_print(&front->sayings, twill_now());
    twill_output_flush(&front->stop_request);
    return true;
}

/* Allocate the state, draw the key and take the signals. Returns true, or false after a message. */
static bool open_front(struct twill_front *front)
{
    const struct twill_options *options = front->options;
    front->host = calloc((size_t)options->sites, sizeof(*front->host));
    size_t ranks = (size_t)twill_options_places(options);
    front->sayings.ranks = (int)ranks;
    front->child = calloc(ranks, sizeof(*front->child));
    front->living = calloc(ranks, sizeof(*front->living));
    front->polls = calloc(FRONT_POLLS + 3 * (size_t)options->sites, sizeof(*front->polls));
    if (!front->host || !front->child || !front->living || !front->polls) {
        twill_complain("no memory for %zu ranks", ranks);
        return false;
    }
    for (int i = 0; i < options->sites; i++)
        front->host[i] = (struct twill_front_host){.pipe = {.in = -1, .out = -1},
                                                   .said = {.from = -1, .label = ""}};
    for (int rank = 0; rank < (int)ranks; rank++) {
        twill_child_name(options, &front->child[rank], rank);
        front->living[rank] = true;
    }
    return twill_job_make(front->key) && (front->signals = twill_signals_take(&front->mask)) >= 0 &&
           twill_page_serve(options, &front->mask, false);
}

/* Start the agents of all hosts that are used, and handle events until all hosts are over. If an
 * agent cannot be started, start no others and end the job. */
static void run_front(struct twill_front *front)
{
    const struct twill_options *options = front->options;
    front->start_ns = twill_now();
    for (int i = 0; i < options->sites && !front->failed; i++)
        if (twill_site_is_used(options, i) &&
            !twill_agent_start(&front->host[i], options, &options->site[i], &front->mask))
            lose_host(front, &front->host[i], "cannot be reached", "");
    while (hosts_left(front) > 0)
        if (!front_turn(front)) {
            twill_complain("cannot wait for the hosts: %s", strerror(errno));
            (void)twill_front_fail(front, 1);
            break;
        }
}

int twill_front_run(const struct twill_options *options)
{
    struct twill_front front = {.options = options, .input = true, .window = TWILL_INPUT_WINDOW};
    int code = 1;
    if (open_front(&front)) {
        run_front(&front);
        twill_sayings_print(&front.sayings, UINT64_MAX);
        code = front.code == 0 && front.cut ? 1 : front.code;
        for (int i = 0; i < options->sites; i++)
            twill_agent_end(&front.host[i], TWILL_AGENT_END_NS);
        for (int i = 0; i < 2 * twill_options_places(options); i++)
            twill_stream_end(&front.child[i / 2].out[i % 2]);
        if (!twill_output_drain(&front.stop_request) && code == 0)
            code = 1;
    }
    twill_page_end();
    free(front.host);
    free(front.child);
    free(front.living);
    free(front.polls);
    return code;
}
