/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun --elastic on several hosts. A rank that fails is replaced on its host. The ranks of a
 * host that is lost are replaced on hosts that have places. */
#include "fabric/launcher/front.h"
#include "lib/base/times.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

int twill_front_alive(const struct twill_front *front)
{
    int alive = 0;
    for (int i = 0; i < front->options->sites; i++)
        alive += front->host[i].alive;
    return alive;
}

/* Return how many ranks wait to join on the hosts that run. */
static int count_waiting_hosts(const struct twill_front *front)
{
    int waiting = 0;
    for (int i = 0; i < front->options->sites; i++)
        waiting += front->host[i].state == TWILL_HOST_RUNNING ? front->host[i].waiting : 0;
    return waiting;
}

bool twill_frame_names(const struct twill_frame *frame, const char *name)
{
    return frame->bytes > strlen(name) && memcmp(frame->data, name, strlen(name) + 1) == 0;
}

/* Make the new processes on all hosts give up, because no rank is left. */
static void put_over_hosts(struct twill_front *front)
{
    static const char name[] = "over";
    twill_front_pass(
        front, NULL,
        &(struct twill_frame){
            .kind = TWILL_FRAME_FILE, .value = 1, .data = name, .bytes = sizeof(name)});
}

uint64_t twill_front_question_deadline(const struct twill_front *front)
{
    const struct twill_left_question *question = &front->elastic.question;
    uint64_t until = 0;
    if (question->asked_ns == 0 || front->ending)
        return UINT64_MAX;
    for (int i = 0; i < front->options->sites; i++) {
        const struct twill_front_host *host = &front->host[i];
        if (host->state != TWILL_HOST_RUNNING)
            continue;
        if (host->answered != question->number) /* while our output is full, nothing is read */
            until =
                twill_max(until, twill_max(question->asked_ns, host->heard_ns) + TWILL_REPORT_NS);
        else if (host->joining > 0)
            until = twill_max(until, question->asked_ns + TWILL_JOINING_NS);
    }
    return until;
}

/* Return whether a rank of the job is left. If the hosts' last reports leave that open, ask them.
 * It is UNKNOWN until they have answered and processes that have a handle have joined. */
static enum twill_ranks_left find_ranks_left(struct twill_front *front)
{
    if (twill_question_ask(&front->elastic.question, twill_front_alive(front),
                           count_waiting_hosts(front)))
        for (int i = 0; i < front->options->sites; i++)
            if (front->host[i].state == TWILL_HOST_RUNNING)
                twill_front_send(&front->host[i], TWILL_FRAME_PROBE,
                                 front->elastic.question.number);
    return twill_question_answer(&front->elastic.question, twill_front_question_deadline(front));
}

/* Return TWILL_LEFT_SOME if the job continues after a rank or a host has failed. Returns _UNKNOWN
 * while the hosts are asked whether all processes only wait to join. Else returns _NONE, and the
 * caller must end the job. If fewer processes are left than --elastic asks for, make those that
 * wait give up. */
static enum twill_ranks_left find_survivors(struct twill_front *front)
{
    if (front->options->most == 0 || front->ending || front->failed ||
        front->stop_request.times > 0 || front->finish_ns != 0 || !front->elastic.begun)
        return TWILL_LEFT_NONE;
    if (!twill_elastic_suffices(front->options, twill_front_alive(front), 0)) {
        put_over_hosts(front);
        return TWILL_LEFT_NONE;
    }
    return find_ranks_left(front);
}

/* Return a host's free places, negative if it has too many ranks, or INT_MIN if it is not up. */
static int count_free(const struct twill_front *front, int site)
{
    const struct twill_options *options = front->options;
    int free_places = options->site[site].slots;
    if (front->host[site].state != TWILL_HOST_RUNNING)
        return INT_MIN;
    for (int rank = 0; rank < options->most; rank++)
        free_places -= front->living[rank] && options->place[rank] == site;
    return free_places;
}

/* Return the host on which to start a rank again. That is its own host if it runs, else the one
 * with the most free places. Returns -1 if none has a free place, unless --oversubscribe is set. */
static int choose_site(const struct twill_front *front, int rank)
{
    int own = front->options->place[rank], best = 0;
    if (front->host[own].state == TWILL_HOST_RUNNING)
        return own;
    for (int i = 1; i < front->options->sites; i++)
        if (count_free(front, i) > count_free(front, best))
            best = i;
    int places = count_free(front, best);
    return places > 0 || (places > INT_MIN && front->options->oversubscribe) ? best : -1;
}

/* Start a new process as this rank. Returns the index of its host, or -1 after a message. */
static int start_again(struct twill_front *front, int rank)
{
    int site = choose_site(front, rank);
    if (site < 0) {
        twill_complain("no host has a place for rank %d: the job goes on without it", rank);
        return -1;
    }
    struct twill_front_host *host = &front->host[site];
    front->input = front->input && rank != 0; /* the first rank 0 had standard input */
    front->options->place[rank] = site;
    front->living[rank] = true;
    host->alive++;
    (void)twill_pipe_put(&host->pipe, TWILL_FRAME_REPLACE, (uint32_t)rank, 0, NULL, 0);
    (void)twill_pipe_flush(&host->pipe);
    return site;
}

bool twill_front_outlives(struct twill_front *front, int rank, int code, const char *who)
{
    front->elastic.last_code = code;
    enum twill_ranks_left left = find_survivors(front);
    front->child[rank].undecided = left == TWILL_LEFT_UNKNOWN;
    if (left == TWILL_LEFT_UNKNOWN)
        twill_complain("%s; asking the hosts whether a rank of the job is left", who);
    if (left != TWILL_LEFT_SOME || !twill_restarts_add(&front->elastic.restarts))
        return left == TWILL_LEFT_UNKNOWN;
    int others = twill_front_alive(front), site = start_again(front, rank);
    if (site >= 0)
        twill_complain("%s; %d others go on; starting restart %u on %s", who, others,
                       front->elastic.restarts.count, front->host[site].name);
    return true;
}

/* Start a new process for each failed rank whose replacement was postponed, as a rank of the job is
 * now known to live. Count one restart. End the job if there were too many restarts or the user
 * asked to stop. Replace no rank once one has ended with status 0. */
static void replace_undecided(struct twill_front *front)
{
    struct twill_child *child = twill_undecided_next(front->child, front->options->most);
    if (child && front->finish_ns == 0 &&
        (front->stop_request.times > 0 || !twill_restarts_add(&front->elastic.restarts))) {
        (void)twill_front_fail(front, front->elastic.last_code);
        twill_front_end(front, front->options->grace_ns);
        return;
    }
    for (; child; child = twill_undecided_next(front->child, front->options->most)) {
        int site = front->finish_ns == 0 ? start_again(front, child->rank) : -1;
        if (site >= 0)
            twill_complain("starting rank %d again on %s (restart %u)", child->rank,
                           front->host[site].name, front->elastic.restarts.count);
    }
}

bool twill_front_outlives_host(struct twill_front *front, struct twill_front_host *host,
                               const char *how)
{
    int lost = (int)(host - front->host);
    char name[32];
    host->alive = 0;
    host->waiting = 0;
    front->elastic.last_code = 1;
    front->elastic.question.asked_ns = 0; /* as in ended() */
    enum twill_ranks_left left = find_survivors(front);
    if (left == TWILL_LEFT_NONE)
        return false;
    if (left == TWILL_LEFT_SOME)
        twill_complain("host %s: lost: %s; %d others go on", host->name, how,
                       twill_front_alive(front));
    else
        twill_complain("host %s: lost: %s; asking the others whether a rank of the job is left",
                       host->name, how);
    twill_agent_end(host, 0);
    int bytes = snprintf(name, sizeof(name), "ended.%d.0", lost) + 1;
    twill_front_pass(
        front, host,
        &(struct twill_frame){
            .kind = TWILL_FRAME_FILE, .value = 1, .data = name, .bytes = (size_t)bytes});
    for (int rank = 0; rank < front->options->most; rank++)
        if (front->options->place[rank] == lost && front->living[rank]) {
            front->living[rank] = false;
            front->child[rank].undecided = true;
        }
    twill_front_check(front);
    return true;
}

/* Send a frame to all hosts whose agents start ranks. */
static void send_all(struct twill_front *front, enum twill_frame_kind kind)
{
    for (int i = 0; i < front->options->sites; i++)
        if (front->host[i].state >= TWILL_HOST_STARTING)
            twill_front_send(&front->host[i], kind, 0);
}

void twill_front_check(struct twill_front *front)
{
    int alive = twill_front_alive(front);
    if (front->options->most == 0)
        return;
    if (alive == 0) {
        front->elastic.question.asked_ns = 0;
        send_all(front, TWILL_FRAME_END);
        return;
    }
    if (front->ending || (!front->elastic.begun && front->finish_ns == 0))
        return;
    enum twill_ranks_left left = find_ranks_left(front);
    if (left == TWILL_LEFT_SOME) {
        replace_undecided(front);
    } else if (left == TWILL_LEFT_NONE && front->finish_ns != 0) {
        send_all(front, TWILL_FRAME_DISMISS);
    } else if (left == TWILL_LEFT_NONE && twill_front_fail(front, front->elastic.last_code)) {
        (void)twill_elastic_suffices(front->options, alive, count_waiting_hosts(front));
        put_over_hosts(front);
        twill_front_end(front, front->options->grace_ns);
    }
}

bool twill_question_ask(struct twill_left_question *question, int alive, int waiting)
{
    bool open = question->asked_ns != 0;
    if (waiting < alive)
        question->asked_ns = 0;
    if (waiting < alive || open)
        return false;
    question->asked_ns = twill_now();
    question->number++;
    return true;
}

enum twill_ranks_left twill_question_answer(struct twill_left_question *question, uint64_t until)
{
    if (question->asked_ns == 0)
        return TWILL_LEFT_SOME;
    if (twill_now() < until)
        return TWILL_LEFT_UNKNOWN;
    question->asked_ns = 0;
    return TWILL_LEFT_NONE;
}

struct twill_child *twill_undecided_next(struct twill_child *child, int children)
{
    for (int i = 0; i < children; i++)
        if (child[i].undecided) {
            child[i].undecided = false;
            return &child[i];
        }
    return NULL;
}
