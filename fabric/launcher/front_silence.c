/* SPDX-License-Identifier: Apache-2.0 */
/* A job on several hosts: hosts that do not answer in time. */
#include "fabric/launcher/front.h"
#include "lib/base/times.h"

#include <stdio.h>

/* Report whether nothing has arrived. While our own output is full, nothing is read. */
static bool agent_is_silent(const struct twill_agent *agent)
{
    struct pollfd one = {.fd = agent->pipe.in, .events = POLLIN};
    return poll(&one, 1, 0) <= 0;
}

/* Return since when a host has been silent that must answer, as a rank has ended with status 0. */
static uint64_t silent_since(const struct twill_front *front, const struct twill_agent *agent)
{
    bool must = agent->state == TWILL_HOST_RUNNING && front->finish_ns != 0 && !front->ending;
    return must ? twill_max(front->finish_ns, agent->heard_ns) : UINT64_MAX;
}

/* Return when to probe a silent host; UINT64_MAX: never, or it was probed. */
static uint64_t probe_time(const struct twill_front *front, const struct twill_agent *agent)
{
    uint64_t since = silent_since(front, agent), after_ns = front->options->timeout_ns / 2;
    return since != UINT64_MAX && agent->probed_ns < since ? since + after_ns : UINT64_MAX;
}

/* Return when to give up a host if it stays silent; UINT64_MAX: never, or not before a probe. */
static uint64_t answer_deadline(const struct twill_front *front, const struct twill_agent *agent)
{
    uint64_t timeout_ns = front->options->timeout_ns;
    if (front->ending && agent->state != TWILL_HOST_IDLE)
        return twill_max(front->end_ns, agent->heard_ns + TWILL_REPORT_NS);
    if (agent->state == TWILL_HOST_IDLE || agent->state == TWILL_HOST_READY)
        return UINT64_MAX;
    if (agent->state < TWILL_HOST_RUNNING)
        return front->start_ns + timeout_ns;
    return agent->probed_ns >= silent_since(front, agent) ? agent->probed_ns + timeout_ns / 2
                                                          : UINT64_MAX;
}

/* Give up a silent host. If its ranks have ended, those of other hosts go on. */
static void give_up_agent(struct twill_front *front, struct twill_agent *agent)
{
    uint64_t after_ns = front->ending ? TWILL_REPORT_NS : front->options->timeout_ns;
    const char *what = agent->state == TWILL_HOST_CALLED ? "no answer from a twillrun there within "
                                                         : "its ranks were not started within ";
    const char *then = "";
    char after[96];
    if (front->ending || agent->state == TWILL_HOST_RUNNING) {
        what = "no answer about its ranks for ";
        then = agent->alive > 0 ? ": they may still be running"
                                : " after their end: the rest of their output may be missing";
    }
    twill_print(after, sizeof(after), "%g s%s", (double)after_ns / 1e9, then);
    if (agent->alive > 0 || agent->state < TWILL_HOST_RUNNING) {
        twill_front_lose(front, agent, what, after);
        return;
    }
    twill_complain("host %s: %s%s", agent->name, what, after);
    front->cut = true;
    twill_agent_end(agent, agent->local ? TWILL_AGENT_END_NS : 0);
}

void twill_front_check_silence(struct twill_front *front)
{
    uint64_t now = twill_now();
    for (int i = 0; i < front->options->sites; i++) {
        struct twill_agent *agent = &front->agent[i];
        if (agent->state != TWILL_HOST_IDLE && !agent_is_silent(agent)) {
            agent->heard_ns = now;
        } else if (now >= answer_deadline(front, agent)) {
            give_up_agent(front, agent);
        } else if (now >= probe_time(front, agent)) {
            agent->probed_ns = now;
            twill_front_send(agent, TWILL_FRAME_PROBE, front->elastic.question.number);
        }
    }
    if (now >= twill_front_question_deadline(front))
        twill_front_check(front);
}

uint64_t twill_front_next_deadline(const struct twill_front *front)
{
    uint64_t until = twill_front_question_deadline(front);
    for (int i = 0; i < front->options->sites; i++)
        until = twill_min(until, twill_min(answer_deadline(front, &front->agent[i]),
                                           probe_time(front, &front->agent[i])));
    return until;
}
