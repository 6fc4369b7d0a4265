/* SPDX-License-Identifier: Apache-2.0 */
/* The host agent, twillrun --server, runs the ranks of one host for a twillrun on another. It gets
 * frames on standard input, and ends its ranks and itself when that ends. */
#include "fabric/bootstrap/frames.h"
#include "fabric/host/local_address.h"
#include "fabric/launcher/launcher.h"
#include "lib/base/times.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Wait, read and write once. Returns false if the other side ended or the deadline has passed. */
static bool exchange_pipe(struct twill_pipe *link, uint64_t deadline)
{
    struct pollfd polls[2] = {
        {.fd = link->in, .events = POLLIN},
        {.fd = twill_pipe_waiting(link) > 0 ? link->out : -1, .events = POLLOUT},
    };
    if (twill_now() >= deadline || twill_wire_poll(polls, 2, deadline) < 0)
        return false;
    if (polls[1].revents != 0 && !twill_pipe_flush(link))
        return false;
    return polls[0].revents == 0 || twill_pipe_fill(link);
}

/* Wait for the next frame, which must be of this kind. Returns false if it is not or none comes. */
static bool expect_frame(struct twill_pipe *link, enum twill_frame_kind kind,
                         struct twill_frame *frame)
{
    uint64_t deadline = twill_now() + TWILL_FRAME_WAIT_NS;
    int got;
    while ((got = twill_pipe_next(link, frame)) == 0)
        if (!exchange_pipe(link, deadline))
            return false; /* no process would read a message */
    if (got > 0 && frame->kind == kind)
        return true;
    if (got < 0 || frame->kind != TWILL_FRAME_END)
        twill_complain("standard input has data that is not from twillrun");
    return false;
}

/* Stop receiving, and end the ranks. Frames may still be sent. */
static void lose_link(struct twill_launch *launch)
{
    close(launch->link->in);
    launch->link->in = -1;
    twill_launch_end(launch, 0);
}

/* Do what a frame from the twillrun in front says. An unknown one ends the ranks. */
static void handle_frame(struct twill_launch *launch, const struct twill_frame *frame)
{
    static const char no_page[] = "{\"error\":\"its twill-page cannot be run\"}";
    char how[184];
    switch (frame->kind) {
    case TWILL_FRAME_INPUT:
        launch->input.ended = launch->input.ended || frame->bytes == 0;
        if (launch->input.to < 0 || launch->input.used + frame->bytes > TWILL_INPUT_WINDOW)
            return;
        memcpy(launch->input.held + launch->input.used, frame->data, frame->bytes);
        launch->input.used += frame->bytes;
        return;
    case TWILL_FRAME_SIGNAL:
        if (frame->value > 0 && frame->value < 64)
            twill_launch_signal(launch, (int)frame->value);
        return;
    case TWILL_FRAME_GONE:
        snprintf(how, sizeof(how), "%.*s", (int)twill_min(frame->bytes, sizeof(how) - 1),
                 frame->data);
        twill_rank_socket_notify(launch, (int)frame->rank, how);
        return;
    case TWILL_FRAME_FILE:
        twill_elastic_apply(launch, frame);
        return;
    case TWILL_FRAME_REPLACE:
        if (launch->elastic.folder[0] && frame->rank < (uint32_t)launch->options->most)
            twill_elastic_start(launch, (int)frame->rank);
        return;
    case TWILL_FRAME_DISMISS:
        twill_elastic_check(launch); /* one may have joined before the front knows it */
        if (launch->elastic.waiting >= launch->alive)
            twill_elastic_dismiss(launch);
        return;
    case TWILL_FRAME_PROBE:
        if (launch->elastic.folder[0])
            twill_elastic_receive(launch);
        (void)twill_pipe_put(launch->link, TWILL_FRAME_PROBE, 0, frame->value, NULL, 0);
        return;
    case TWILL_FRAME_LOOK:
        if (!twill_page_read(&launch->mask, frame->value))
            (void)twill_pipe_put(launch->link, TWILL_FRAME_LOOK, 0, 0, no_page, strlen(no_page));
        return;
    case TWILL_FRAME_END:
        twill_launch_end(launch, (uint64_t)frame->value * 1000000);
        return;
    default:
        twill_complain("standard input has an unknown frame, %d", (int)frame->kind);
        lose_link(launch);
    }
}

/* Write held input to rank 0 without blocking, and allow the twillrun in front to send that many
 * bytes more. Close the pipe to rank 0 if writing fails, or when all input has been written and its
 * end has arrived. */
static void feed_stdin(struct twill_launch *launch)
{
    ssize_t n = 0;
    if (launch->input.used > 0)
        n = send(launch->input.to, launch->input.held, launch->input.used,
                 MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        launch->input.used -= (size_t)n;
        memmove(launch->input.held, launch->input.held + n, launch->input.used);
        (void)twill_pipe_put(launch->link, TWILL_FRAME_CREDIT, 0, (uint32_t)n, NULL, 0);
    }
    if (n < 0 || (launch->input.used == 0 && launch->input.ended)) {
        close(launch->input.to);
        launch->input.to = -1;
    }
}

void twill_host_agent_polls(struct twill_launch *launch,
                            struct pollfd polls[TWILL_HOST_AGENT_POLLS])
{
    const struct twill_pipe *link = launch->link;
    for (int i = 0; i < TWILL_HOST_AGENT_POLLS; i++)
        polls[i] = (struct pollfd){.fd = -1};
    if (!link)
        return;
    polls[0] = (struct pollfd){.fd = link->in, .events = POLLIN};
    if (twill_pipe_waiting(link) > 0)
        polls[1] = (struct pollfd){.fd = link->out, .events = POLLOUT};
    if (launch->input.used > 0 || launch->input.ended)
        polls[2] = (struct pollfd){.fd = launch->input.to, .events = POLLOUT};
    polls[3] = twill_page_poll();
}

void twill_host_agent_turn(struct twill_launch *launch,
                           const struct pollfd polls[TWILL_HOST_AGENT_POLLS])
{
    struct twill_pipe *link = launch->link;
    struct twill_frame frame;
    const char *line;
    size_t bytes;
    int got = 0;
    if (!link)
        return;
    if (polls[3].revents != 0)
        twill_page_receive();
    while ((line = twill_page_next(&bytes)) != NULL)
        (void)twill_pipe_put(link, TWILL_FRAME_LOOK, 0, 0, line, bytes);
    bool there = polls[0].revents == 0 || twill_pipe_fill(link);
    while (link->in >= 0 && (got = twill_pipe_next(link, &frame)) > 0)
        handle_frame(launch, &frame);
    if (link->in >= 0 && (!there || got < 0))
        lose_link(launch);
    if (launch->input.to >= 0 && (launch->input.used > 0 || launch->input.ended))
        feed_stdin(launch);
    (void)twill_pipe_flush(link); /* if it is closed, input also ends */
}

void twill_host_agent_report(struct twill_launch *launch, int rank, int code, const char *how)
{
    (void)twill_pipe_put(launch->link, TWILL_FRAME_ENDED, (uint32_t)rank, (uint32_t)code, how,
                         strlen(how));
}

/* Move standard input and output, which carry frames, to new descriptors in *link. Standard input
 * becomes /dev/null and standard output the same as standard error. Then queue the mark and the
 * HELLO frame. Returns false after a message. */
static bool open_link(struct twill_pipe *link)
{
    static const char mark[] = TWILL_FRAME_MARK;
    int null = twill_null_open();
    link->in = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    link->out = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
    if (null < 0 || link->in < 0 || link->out < 0 || dup2(null, STDIN_FILENO) < 0 ||
        dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
        twill_complain("--server: %s", strerror(errno));
        return false;
    }
    close(null);
    twill_output_open();
    (void)fcntl(link->in, F_SETFL, fcntl(link->in, F_GETFL) | O_NONBLOCK);
    (void)fcntl(link->out, F_SETFL, fcntl(link->out, F_GETFL) | O_NONBLOCK);
    if (!twill_pipe_append(link, mark, sizeof(mark) - 1)) {
        twill_complain("--server: no memory");
        return false;
    }
    return twill_pipe_put(link, TWILL_FRAME_HELLO, 0, TWILL_FRAME_PROTOCOL, TWILL_VERSION_TEXT,
                          strlen(TWILL_VERSION_TEXT));
}

/* Find this host's address on the route to another host, the first that resolves. Returns false
 * after a message, also if the address is loopback. */
static bool find_host_address(const struct twill_host_job *job, char address[TWILL_ADDRESS_TEXT])
{
    char interface[32], why[128], peer[TWILL_ADDRESS_TEXT] = "";
    struct twill_error error = {0};
    for (int i = 0; i < job->others && peer[0] == '\0'; i++)
        twill_address_resolve(peer, job->other[i]);
    bool good = twill_interface_choose(address, interface, getenv("TWILL_INTERFACE"), peer, why,
                                       sizeof(why), &error) == TWILL_OK;
    if (!good)
        twill_complain("%s", error.message);
    else if (twill_address_is_loopback(address))
        twill_complain("rank 0 %s here, but other hosts cannot reach %s, the address of %s (%s)",
                       job->here > 0 && job->rank[0] == 0 ? "is to be" : "may come to be", address,
                       interface, why);
    return good && !twill_address_is_loopback(address);
}

/* Prepare the ranks of `job` on this host. Enter its working directory, set the variables of -x,
 * and make the folder of --elastic. If rank 0 is here, make its listener and standard input. Then
 * send READY. Returns true, or false after a message on standard error or if the pipe to twillrun
 * is closed. */
static bool prepare_launch(struct twill_launch *launch, struct twill_host_job *job)
{
    char address[TWILL_ADDRESS_TEXT] = "127.0.0.1", where[80] = "";
    int ends[2];
    for (int i = 0; i < job->options.assigned; i++)
        (void)putenv(job->options.assignments[i]);
    if (chdir(job->directory) != 0) {
        twill_complain("cannot enter %s: %s", job->directory, strerror(errno));
        return false;
    }
    snprintf(launch->job, sizeof(launch->job), "%s", job->key);
    for (int i = 0; i < launch->first; i++) {
        twill_child_name(launch->options, &launch->child[i], job->rank[i]);
        launch->child[i].joins = job->rank[i] >= launch->options->ranks;
    }
    bool root = job->here > 0 && job->rank[0] == 0, elastic = launch->options->most > 0;
    if (!twill_elastic_open(launch, job->host) ||
        ((root || elastic) && !job->alone && !find_host_address(job, address)))
        return false;
    if (elastic && !job->alone)
        snprintf(launch->elastic.reached, sizeof(launch->elastic.reached), "%s", address);
    if (root) {
        if (!twill_launch_offer(launch, address))
            return false;
        snprintf(where, sizeof(where), "%s %s", launch->address, launch->port);
        launch->input.held = malloc(TWILL_INPUT_WINDOW);
        if (!launch->input.held || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0 ||
            dup2(ends[0], STDIN_FILENO) < 0) {
            twill_complain("standard input: %s", strerror(errno));
            return false;
        }
        close(ends[0]);
        launch->input.to = ends[1];
    }
    return twill_pipe_put(launch->link, TWILL_FRAME_READY, 0, 0, where, strlen(where));
}

/* Run the ranks from start to end. Returns false, after a message, if they could not be prepared.
 * Returns true also if no START came, or one could not be started, which is reported in a frame. */
static bool serve_launch(struct twill_launch *launch, struct twill_host_job *job)
{
    const struct pollfd nothing[TWILL_HOST_AGENT_POLLS] = {{.fd = -1}};
    struct twill_frame frame;
    char where[80];
    if (!prepare_launch(launch, job))
        return false;
    if (!expect_frame(launch->link, TWILL_FRAME_START, &frame))
        return true;
    snprintf(where, sizeof(where), "%.*s", (int)frame.bytes, frame.data);
    if (sscanf(where, "%63s %7s", launch->address, launch->port) != 2) {
        twill_complain("standard input has no address and port of rank 0, but \"%s\"", where);
        return false;
    }
    launch->signals = twill_signals_take(&launch->mask);
    if (launch->signals < 0)
        return false;
    int code = twill_launch_start(launch);
    (void)(code == 0
               ? twill_pipe_put(launch->link, TWILL_FRAME_STARTED, 0, 0, launch->unbound,
                                strlen(launch->unbound))
               : twill_pipe_put(launch->link, TWILL_FRAME_FAILED, 0, (uint32_t)code, NULL, 0));
    twill_host_agent_turn(launch, nothing); /* frames received together with START */
    (void)twill_launch_supervise(launch);
    twill_page_end();
    return true;
}

int twill_host_agent_run(void)
{
    struct twill_pipe link = {.in = -1, .out = -1};
    struct twill_frame frame;
    struct twill_launch launch;
    struct twill_host_job job = {.key = NULL};
    if (!open_link(&link) || !expect_frame(&link, TWILL_FRAME_JOB, &frame))
        return 1;
    bool good = twill_job_read(&job, frame.data, frame.bytes);
    if (!good)
        twill_complain("standard input is not a job of twillrun " TWILL_VERSION_TEXT);
    twill_files_allow(&job.options);
    if (good && twill_launch_open(&launch, &job.options, job.here)) {
        launch.link = &link;
        good = serve_launch(&launch, &job);
        twill_elastic_close(&launch);
        twill_launch_close(&launch);
    }
    (void)(good ? twill_pipe_put(&link, TWILL_FRAME_DONE, 0, 0, NULL, 0)
                : twill_pipe_put(&link, TWILL_FRAME_FAILED, 0, 1, NULL, 0));
    /* The last output waits for its reader without limit, unless the other side has ended. */
    uint64_t deadline = link.in >= 0 ? UINT64_MAX : twill_now() + TWILL_FRAME_LAST_NS;
    while (twill_pipe_waiting(&link) > 0 && exchange_pipe(&link, deadline))
        continue;
    twill_pipe_close(&link);
    twill_job_free(&job);
    return good ? 0 : 1;
}
