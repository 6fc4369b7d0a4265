/* SPDX-License-Identifier: Apache-2.0 */
/* With twillrun --elastic, when a rank fails, the others continue, and a new process takes its
 * place. On one host, twillrun decides that here. With several hosts, the twillrun in front does
 * (elastic_hosts.c), and a host agent only starts and ends processes. */
#include "fabric/launcher/launcher.h"
#include "lib/base/times.h"

#include <string.h>

bool twill_restarts_add(struct twill_restarts *restarts)
{
    uint64_t now = twill_now(), *at = &restarts->at_ns[restarts->count % TWILL_RESTARTS];
    bool often = restarts->count >= TWILL_RESTARTS && now - *at < TWILL_RESTARTS_NS;
    *at = now;
    restarts->count++;
    if (often)
        twill_complain("the job had more than %d restarts within %d s", TWILL_RESTARTS,
                       (int)(TWILL_RESTARTS_NS / TWILL_SECONDS_NS));
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

uint64_t twill_elastic_deadline(const struct twill_launch *launch)
{
    if (launch->elastic.question.asked_ns == 0 || launch->phase != 0)
        return UINT64_MAX;
    return launch->elastic.joining > 0 ? launch->elastic.question.asked_ns + TWILL_JOINING_NS : 0;
}

/* On one host, return whether a rank of the job is left, or UNKNOWN while processes join it. */
static enum twill_ranks_left find_rank_left(struct twill_launch *launch)
{
    launch->elastic.waiting = twill_elastic_waiting(launch, &launch->elastic.joining);
    (void)twill_question_ask(&launch->elastic.question, launch->alive, launch->elastic.waiting);
    return twill_question_answer(&launch->elastic.question, twill_elastic_deadline(launch));
}

bool twill_elastic_outlives(struct twill_launch *launch, struct twill_child *child, const char *how)
{
    const struct twill_options *options = launch->options;
    enum twill_ranks_left left = TWILL_LEFT_NONE;
    if (options->most == 0 || launch->phase != 0 || launch->stop_request.times > 0 ||
        launch->elastic.finishing || !twill_elastic_has_started(launch))
        return false;
    if (twill_elastic_suffices(options, launch->alive, 0)) {
        left = find_rank_left(launch);
        child->undecided = left == TWILL_LEFT_UNKNOWN;
        if (child->undecided)
            twill_complain("rank %d %s; waiting for processes that are joining the job",
                           child->rank, how);
        else if (left == TWILL_LEFT_NONE)
            (void)twill_elastic_suffices(options, launch->alive, launch->elastic.waiting);
    }
    if (left == TWILL_LEFT_NONE)
        twill_elastic_put_over(launch);
    if (left != TWILL_LEFT_SOME)
        return child->undecided;
    if (!twill_restarts_add(&launch->elastic.restarts))
        return false;
    twill_complain("rank %d %s; %d others go on; starting restart %u", child->rank, how,
                   launch->alive, launch->elastic.restarts.count);
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
    *child = (struct twill_child){.joins = true, .cores = child->cores};
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
    struct twill_child *place = NULL; /* the rank's earlier place, for its binding */
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

/* End the job because of the rank that failed last. */
static void end_by_last(struct twill_launch *launch)
{
    launch->failed = launch->elastic.last_failed;
    launch->code = launch->elastic.last_code;
    twill_launch_end(launch, launch->options->grace_ns);
}

/* Start a new process for each failed rank whose replacement was postponed, as a rank of the job is
 * now known to live. Count one restart. End the job if there were too many restarts or the user
 * asked to stop. Replace no rank once one has ended with status 0. */
static void replace_children(struct twill_launch *launch)
{
    struct twill_child *child = twill_undecided_next(launch->child, launch->here);
    if (child && !launch->elastic.finishing &&
        (launch->stop_request.times > 0 || !twill_restarts_add(&launch->elastic.restarts))) {
        end_by_last(launch);
        return;
    }
    for (; child; child = twill_undecided_next(launch->child, launch->here))
        if (!launch->elastic.finishing) {
            twill_complain("starting rank %d again (restart %u)", child->rank,
                           launch->elastic.restarts.count);
            twill_elastic_replace(launch, child, child->rank);
        }
}

/* On one host, end the job if only processes that wait to join it are left. Its exit code is that
 * of the rank that failed last. If a rank has ended with status 0, only kill the waiting processes.
 * If a rank of the job is left, replace those that failed. Do nothing while that is not known. */
static void check_left(struct twill_launch *launch)
{
    if (launch->phase != 0 || launch->alive == 0)
        return;
    enum twill_ranks_left left = find_rank_left(launch);
    if (left == TWILL_LEFT_SOME) {
        replace_children(launch);
    } else if (left == TWILL_LEFT_NONE && launch->elastic.finishing) {
        twill_elastic_dismiss(launch);
    } else if (left == TWILL_LEFT_NONE) {
        twill_elastic_put_over(launch);
        (void)twill_elastic_suffices(launch->options, launch->alive, launch->elastic.waiting);
        end_by_last(launch);
    }
}

void twill_elastic_check(struct twill_launch *launch)
{
    int joining, waiting;
    if (!launch->link) {
        check_left(launch);
        return;
    }
    waiting = twill_elastic_waiting(launch, &joining);
    if (waiting != launch->elastic.waiting || joining != launch->elastic.joining)
        (void)twill_pipe_put(launch->link, TWILL_FRAME_WAITING, (uint32_t)joining,
                             (uint32_t)waiting, NULL, 0);
    launch->elastic.waiting = waiting;
    launch->elastic.joining = joining;
}
