/* SPDX-License-Identifier: Apache-2.0 */
/* Notices that a rank has failed or which ranks it waits for. README.md explains the whole. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/shm/call_records.h"
#include "fabric/shm/shared_region.h"
#include "lib/comm/comm_internal.h"
#include "lib/job/context.h"

#include <stdio.h>
#include <string.h>

/* Return whether `notice` replaces `before`, which it does if it is the first one with a reason. */
static bool says_more(const struct twill_notice *notice, const struct twill_notice *before)
{
    return twill_notice_has_reason(notice) && !twill_notice_has_reason(before);
}

/* Keep the notice of a failure in comm->health, unless there is one that says no less. */
static void record_failure(struct twill_comm *comm, const struct twill_notice *notice)
{
    if (comm->health->notified && !says_more(notice, &comm->health->notice))
        return;
    comm->health->notified = true;
    comm->health->notice = *notice;
}

uint32_t twill_comm_rank_of(const struct twill_comm *comm, uint32_t job)
{
    if (job < comm->world->size && comm->job[job] == job)
        return job;
    for (uint32_t r = 0; r < comm->world->size; r++)
        if (comm->job[r] == job)
            return r;
    return UINT32_MAX;
}

/* Answer notice->from, which waits in a communicator that has ended here, or could not be made. The
 * answer is a failure notice, TWILL_ERR_PEER, which says that this rank has left the communicator.
 * It ends that wait, even if no other notice of the end or the failure has arrived there. */
static void refuse_report(struct twill_context *context, const struct twill_notice *notice)
{
    struct twill_notice answer = {
        .comm = notice->comm, .status = TWILL_ERR_PEER, .state = {0, TWILL_NOTICE_LEFT}};
    snprintf(answer.message, sizeof(answer.message), "rank %d of the job has left the communicator",
             context->job.oob->rank);
    twill_detector_send(context->health.detector, notice->from, &answer);
}

struct twill_comm *twill_context_comm_of(struct twill_context *context,
                                         const struct twill_notice *notice, uint32_t *from)
{
    for (size_t i = 0; i < context->comms.opened; i++) {
        struct twill_comm *comm = context->comms.open[i];
        *from = comm->number == notice->comm ? twill_comm_rank_of(comm, notice->from) : UINT32_MAX;
        if (*from != UINT32_MAX)
            return comm;
    }
    return NULL;
}

/* Put a notice into the mailbox of the communicator that it names, which another thread may be
 * using. If the notice asks where this rank is, answer at once if that communicator is in no call
 * here or has ended. */
static void deliver_notice(struct twill_context *context, struct twill_notice *notice)
{
    uint32_t from;
    twill_context_lock(context);
    bool made = notice->comm < context->comms.next_number;
    struct twill_comm *comm = twill_context_comm_of(context, notice, &from);
    if (comm != NULL) {
        struct twill_mailbox *mailbox = &comm->health->mailbox;
        notice->from = from;
        if (notice->status == TWILL_OK) /* they are repeated, so the mailbox may overflow */
            mailbox->report[mailbox->reports++ % TWILL_MAILBOX_REPORTS] = *notice;
        else if (!mailbox->failed || says_more(notice, &mailbox->failure))
            mailbox->failure = *notice;
        mailbox->failed = mailbox->failed || notice->status != TWILL_OK;
        if (twill_report_asks(notice) &&
            atomic_load_explicit(&comm->claim.held, memory_order_relaxed) == NULL)
            twill_comm_answer_idle(comm, from);
    }
    twill_context_unlock(context);
    if (made && comm == NULL && twill_report_asks(notice))
        refuse_report(context, notice);
}

/* Deliver the next notice of the detector to its communicator. Returns false if there is none. */
static bool receive_notice(struct twill_context *context)
{
    struct twill_notice notice;
    if (!twill_detector_poll(context->health.detector, &notice))
        return false;
    if (notice.bytes > 0)
        twill_agree_receive(context, &notice);
    else
        deliver_notice(context, &notice);
    return true;
}

void twill_context_receive_notices(struct twill_context *context)
{
    while (receive_notice(context))
        continue;
}

/* Handle the notices in a communicator's mailbox. One of a failure is only recorded, in
 * comm->health->notice. Reports of waiting ranks are compared with this rank's call, and answered
 * if they ask. Returns TWILL_ERR_MISMATCH if one shows that calls differ, else TWILL_OK. */
static twill_status empty_mailbox(struct twill_comm *comm)
{
    struct twill_notice report[TWILL_MAILBOX_REPORTS];
    struct twill_context *context = comm->context;
    twill_context_lock(context);
    struct twill_mailbox *mailbox = &comm->health->mailbox;
    unsigned reports =
        mailbox->reports < TWILL_MAILBOX_REPORTS ? mailbox->reports : TWILL_MAILBOX_REPORTS;
    memcpy(report, mailbox->report, reports * sizeof(*report));
    mailbox->reports = 0;
    if (mailbox->failed)
        record_failure(comm, &mailbox->failure);
    twill_context_unlock(context);
    for (unsigned i = 0; i < reports; i++)
        TWILL_TRY(&comm->error, twill_comm_take_report(comm, &report[i]));
    return TWILL_OK;
}

/* Deliver all notices that the detector has received for the context's communicators. Handle those
 * for `comm` after every few, before they are too many to be kept. They may ask this rank, which is
 * blamed for a timeout unless it answers. Returns TWILL_OK or the error of a notice. */
static twill_status poll_detector(struct twill_comm *comm)
{
    struct twill_context *context = comm->context;
    for (bool more = true; more;) {
        pthread_mutex_lock(&context->health.detector_lock);
        for (unsigned i = 0; more && i < TWILL_MAILBOX_REPORTS; i++)
            more = receive_notice(context);
        pthread_mutex_unlock(&context->health.detector_lock);
        TWILL_TRY(&comm->error, empty_mailbox(comm));
    }
    return TWILL_OK;
}

void twill_comm_notify(struct twill_comm *comm, const struct twill_notice *notice,
                       uint64_t patience_ns)
{
    pthread_mutex_lock(&comm->context->health.detector_lock);
    twill_detector_notify(comm->context->health.detector, notice, comm->job, comm->world->size,
                          patience_ns);
    pthread_mutex_unlock(&comm->context->health.detector_lock);
}

bool twill_comm_is_dead_locked(struct twill_comm *comm, uint32_t peer)
{
    if (comm->world->node[peer] == comm->world->node[comm->rank])
        return twill_node_owner_dead(comm->node, comm->world->local[peer]);
    return twill_detector_is_dead(comm->context->health.detector, comm->job[peer]);
}

bool twill_comm_is_dead(struct twill_comm *comm, uint32_t peer)
{
    pthread_mutex_lock(&comm->context->health.detector_lock);
    bool dead = twill_comm_is_dead_locked(comm, peer);
    pthread_mutex_unlock(&comm->context->health.detector_lock);
    return dead;
}

bool twill_comm_is_surely_dead(struct twill_comm *comm, uint32_t peer, uint64_t quiet, bool *doubt)
{
    struct twill_detector *detector = comm->context->health.detector;
    pthread_mutex_lock(&comm->context->health.detector_lock);
    *doubt = twill_comm_is_dead_locked(comm, peer);
    bool sure = twill_detector_is_sure(detector, comm->job[peer], *doubt, quiet);
    pthread_mutex_unlock(&comm->context->health.detector_lock);
    return sure;
}

const char *twill_comm_death_text(struct twill_comm *comm, uint32_t peer,
                                  char text[TWILL_DEATH_TEXT])
{
    struct twill_context *context = comm->context;
    bool remote = comm->world->node[peer] != comm->world->node[comm->rank];
    const char *host = NULL, *rank = TWILL_ENGINE_RANK_NAME(&comm->engine, peer);
    pthread_mutex_lock(&context->health.detector_lock);
    if (remote)
        host = twill_detector_lost_host(context->health.detector, comm->job[peer]);
    if (host != NULL)
        snprintf(text, TWILL_DEATH_TEXT, "%s is lost: its host %s does not answer", rank, host);
    else
        snprintf(text, TWILL_DEATH_TEXT, "%s has died or ended", rank);
    pthread_mutex_unlock(&context->health.detector_lock);
    return text;
}

/* Set comm->error to what the kept notice says and return its status. After another rank's timeout,
 * add which connection this rank waits for, as that may be the reason. */
static twill_status report_notice(struct twill_comm *comm)
{
    const struct twill_notice *notice = &comm->health->notice;
    char connection[160] = "";
    uint32_t ranks[TWILL_AWAITED_MOST];
    const char *step, *way = "";
    if (notice->status == TWILL_ERR_TIMEOUT) {
        unsigned n = twill_engine_waits_for(&comm->engine, ranks, TWILL_AWAITED_MOST, &step);
        way = twill_comm_describe_way(comm, ranks, n, "; here: ", connection, sizeof(connection));
    }
    return TWILL_COMM_FAIL(comm, notice->status, "reported by %s: %s%s",
                           TWILL_ENGINE_RANK_NAME(&comm->engine, notice->from), notice->message,
                           way);
}

twill_status twill_comm_poll_failures(struct twill_comm *comm, bool any)
{
    uint64_t until = any ? UINT64_MAX : comm->issue.sequence;
    uint32_t local = twill_node_aborted(comm->node, until);
    if (local != UINT32_MAX) {
        const struct twill_abort_line *line = twill_node_failure(comm->node, local);
        uint32_t from = line->from != TWILL_NO_RANK ? line->from : comm->node->rank[local];
        struct twill_notice notice = {.from = from, .status = (twill_status)line->status};
        snprintf(notice.message, sizeof(notice.message), "%.*s", (int)sizeof(notice.message) - 1,
                 line->message);
        notice.state[0] = line->sequence;
        record_failure(comm, &notice);
    }
    TWILL_TRY(&comm->error, poll_detector(comm));
    if (comm->health->notified && comm->health->notice.state[0] <= until)
        return report_notice(comm);
    return TWILL_OK;
}
