/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun --elastic: when a rank fails, the others go on, and a new process takes its place. On
 * one host twillrun decides that here; with several hosts the twillrun in front does
 * (elastic_hosts.c), and a server only starts and ends processes. */
#include "fabric/launcher/launcher.h"

#include <stdio.h>
#include <string.h>

#define RESTARTS_NS UINT64_C(10000000000) /* TWILL_RESTARTS within this time are too many */
#define JOINING_NS  UINT64_C(5000000000)  /* for a process that has a handle to be in the job */

bool twill_restarts_add(struct twill_restarts *restarts)
{
    uint64_t now = twill_now(), *at = &restarts->at_ns[restarts->count % TWILL_RESTARTS];
    bool often = restarts->count >= TWILL_RESTARTS && now - *at < RESTARTS_NS;
    *at = now;
    restarts->count++;
    if (often)
        twill_complain("more than %d restarts within %d s", TWILL_RESTARTS,
                       (int)(RESTARTS_NS / 1000000000));
    return !often;
}

bool twill_elastic_suffices(const struct twill_options *options, int alive, int waiting)
{
    if (alive < options->least)
        twill_complain("%d ranks remain, fewer than --elastic %d:%d asks for", alive,
                       options->least, options->most);
    else if (waiting >= alive)
        twill_complain("no rank of the job is left that %d new processes could join", waiting);
    return alive >= options->least && waiting < alive;
}

/* On one host: count the children that are not in the job. If all are, wait until those that
 * have a handle are in the job, or have failed to get in: the last rank of the job may have ended
 * as soon as it had taken them in. */
static int count_left_out(const struct twill_launch *launch)
{
    uint64_t until = twill_now() + JOINING_NS;
    int joining, waiting = twill_elastic_waiting(launch, &joining);
    while (waiting >= launch->alive && joining > 0 && twill_now() < until) {
        (void)poll(NULL, 0, 10);
        waiting = twill_elastic_waiting(launch, &joining);
    }
    return waiting;
}

bool twill_elastic_outlives(struct twill_launch *launch, const struct twill_child *child,
                            const char *how)
{
    const struct twill_options *options = launch->options;
    if (options->most == 0 || launch->phase != 0 || launch->stop_request.times > 0 ||
        launch->finishing || !twill_elastic_has_started(launch))
        return false;
    if (!twill_elastic_suffices(options, launch->alive, count_left_out(launch))) {
        twill_elastic_put_over(launch);
        return false;
    }
    if (!twill_restarts_add(&launch->restarts))
        return false;
    twill_complain("rank %d %s; %d others go on; starting restart %u", child->rank, how,
                   launch->alive, launch->restarts.count);
    return true;
}

void twill_elastic_replace(struct twill_launch *launch, struct twill_child *child, int rank)
{
    for (int i = 0; i < 2; i++) { /* the old process's last output */
        while (child->out[i].from >= 0 && twill_stream_move(&child->out[i]))
            if (poll(&(struct pollfd){.fd = child->out[i].from, .events = POLLIN}, 1, 0) <= 0)
                break;
        twill_stream_end(&child->out[i]);
    }
    *child = (struct twill_child){.joins = true};
    twill_child_name(launch->options, child, rank);
    int code = twill_child_start(launch, (int)(child - launch->child));
    launch->alive += code == 0;
    if (code == 0 || launch->failed >= 0)
        return;
    if (launch->link)
        (void)twill_pipe_put(launch->link, TWILL_FRAME_FAILED, 0, (uint32_t)code, NULL, 0);
    launch->failed = rank;
    launch->code = code;
    twill_launch_end(launch, 0);
}

void twill_elastic_start(struct twill_launch *launch, int rank)
{
    struct twill_child *place = NULL; /* that of the rank before it, for its binding */
    for (int i = launch->here - 1; i >= 0; i--)
        if (launch->child[i].pid <= 0 &&
            (!place || place->rank != rank || launch->child[i].rank == rank))
            place = &launch->child[i];
    if (place)
        twill_elastic_replace(launch, place, rank);
}

void twill_elastic_dismiss(struct twill_launch *launch)
{
    for (int i = 0; i < launch->here; i++) {
        struct twill_child *child = &launch->child[i];
        if (child->pid <= 0 || child->dismissed)
            continue;
        twill_complain("rank %d (pid %ld) was not taken in before the job ended", child->rank,
                       (long)child->pid);
        child->dismissed = true;
        (void)kill(-child->pid, SIGKILL);
    }
}

/* On one host: end the job if only processes are left that wait to join it. */
static void check_left(struct twill_launch *launch)
{
    if (launch->phase != 0 || launch->alive == 0 || launch->waiting < launch->alive)
        return;
    launch->waiting = count_left_out(launch);
    if (launch->waiting < launch->alive)
        return;
    if (launch->finishing) {
        twill_elastic_dismiss(launch);
        return;
    }
    twill_elastic_put_over(launch);
    launch->failed = launch->last_failed;
    launch->code = launch->last_code;
    (void)twill_elastic_suffices(launch->options, launch->alive, launch->waiting);
    twill_launch_end(launch, launch->options->grace_ns);
}

void twill_elastic_check(struct twill_launch *launch)
{
    int joining, waiting = twill_elastic_waiting(launch, &joining);
    bool changed = waiting != launch->waiting || joining != launch->joining;
    launch->waiting = waiting;
    launch->joining = joining;
    if (!launch->link)
        check_left(launch);
    else if (changed)
        (void)twill_pipe_put(launch->link, TWILL_FRAME_WAITING, (uint32_t)joining,
                             (uint32_t)waiting, NULL, 0);
}
