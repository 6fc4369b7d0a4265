/* SPDX-License-Identifier: Apache-2.0 */
/* Reports between ranks, which say in which call a rank is and which ranks it waits for, so that a
 * timeout names its root cause. Waiting ranks report to awaited ranks of other nodes now and then.
 * That is not enough if rank 0 waits for rank 1, and rank 1 has only just begun to wait for rank 2,
 * which is stopped. Therefore a rank whose time is over asks the ranks that it waits for, and then
 * the ranks that those wait for, before it fails (twill_comm_find_cause()). A rank that waits
 * answers at its next check, and the rank that does not answer is the cause. */
#include "fabric/shm/call_records.h"
#include "lib/base/times.h"
#include "lib/comm/comm_internal.h"
#include "lib/job/context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IS_ANSWER    (UINT64_C(1) << 32) /* in state[3], with the rank that the sender waits for */
#define IS_PAST      (UINT64_C(1) << 33) /* in state[3]: the call may have ended */
#define PLACE_MARK   '@' /* in an answer, before the words that say where the sender is */
#define SEARCH_RANKS 64u /* ranks in a search */
/* Turns after the first question. They double after each question, as many ranks may ask one. */
#define TURNS_PER_ASK 10u

/* A search for the rank that others wait for, on the stack of twill_comm_find_cause(). asked[] is
 * in the order in which ranks were found, breadth first from the awaited ranks. */
struct twill_cause_search {
    unsigned count;
    struct asked_rank { /* a rank of the communicator that was asked */
        uint32_t rank;
        unsigned turns;    /* since the first question; none pass while this host is stopped */
        unsigned next;     /* turn of the next question */
        unsigned pause;    /* turns between the last question and the next */
        uint64_t asked_at; /* twill_now() of the first question */
        bool answered;
        bool waits;      /* for another rank, if it has answered */
        char place[200]; /* where it is, in words, if it has answered */
    } asked[SEARCH_RANKS];
};

/* Return the rank that a peer on this node waits for, or the peer if that is none or this rank. */
static uint32_t waits_for_on_node(const struct twill_comm *comm, uint32_t peer)
{
    uint32_t theirs = twill_node_waits_for(comm->node, comm->world->local[peer]);
    return theirs != UINT32_MAX && theirs != comm->rank ? theirs : peer;
}

/* Return the cause of a wait for `peer`. On a node, the published calls show it, as a rank that is
 * behind is the cause or waits for it. */
uint32_t twill_comm_missing(const struct twill_comm *comm, uint32_t peer)
{
    if (comm->world->node[peer] != comm->world->node[comm->rank])
        return comm->health->reported[peer].in == comm->issue.sequence
                   ? comm->health->reported[peer].rank
                   : peer;
    for (uint32_t l = 0; l < comm->local_size; l++) {
        struct twill_call call;
        uint64_t sequence, entered;
        if (l != comm->local &&
            (!twill_comm_read_call(comm, comm->node->rank[l], &call, &sequence, &entered) ||
             sequence < comm->issue.sequence))
            return waits_for_on_node(comm, comm->node->rank[l]);
    }
    return waits_for_on_node(comm, peer);
}

/* Return whether a rank of the node may wait for this one in `comm`: it has begun to use it. */
static bool is_used(const struct twill_comm *comm)
{
    bool used = comm->woken || comm->node->room == NULL;
    for (uint32_t l = 0; l < comm->local_size && !used; l++)
        used = twill_room_is_used(comm->node, l);
    return used;
}

/* Publish to the ranks of this node, in the node memory of each communicator in use, that this rank
 * waits in `comm`. This is repeated, so that one used later has it. For a collective, the memory of
 * `comm` itself says that already. */
static void publish_place(struct twill_comm *comm)
{
    struct twill_elsewhere at = {.ticks = twill_ticks(), .comm = comm->number};
    uint64_t entered;
    bool collective = comm->issue.queue != NULL &&
                      twill_node_read_last_call(comm->node, comm->local, &at.call, &entered);
    if (!collective)
        at.call.sequence = 0;
    twill_context_lock(comm->context);
    for (size_t i = 0; i < comm->context->comms.opened; i++) {
        struct twill_comm *other = comm->context->comms.open[i];
        if (other->node != NULL && (other != comm || !collective) && is_used(other))
            twill_node_be_elsewhere(other->node, &at);
    }
    twill_context_unlock(comm->context);
}

/* Send *notice to rank `to`. It has the caller's message and says that this rank is in `call`, or
 * may have left it if `flags` has IS_PAST. The low half of `flags` is the rank that this rank's
 * wait is due to, or this rank itself. `flags` has IS_ANSWER if this answers a question. Returns
 * whether it was sent. detector_lock is held. */
static bool send_call(struct twill_comm *comm, uint32_t to, struct twill_notice *notice,
                      const struct twill_call_record *call, uint64_t flags)
{
    notice->from = comm->rank;
    notice->comm = comm->number;
    notice->status = TWILL_OK;
    notice->state[0] = call->sequence;
    notice->state[1] = call->count;
    notice->state[2] = (uint64_t)call->what | (uint64_t)call->root << 32;
    notice->state[3] = flags;
    return twill_detector_send(comm->context->health.detector, comm->job[to], notice);
}

/* Send rank `to` which call this rank is in, which ranks it waits for (as text, " 3 7") and which
 * rank it knows as their root cause. If `answer` is 0, this asks `to` for the same. If it is
 * IS_ANSWER, this is such an answer, and adds in words where this rank is. Returns whether it was
 * sent, which needs a connection. */
static bool send_position(struct twill_comm *comm, uint32_t to, uint64_t answer)
{
    const struct twill_call *call = &comm->issue.call;
    const struct twill_call_record record = {.sequence = comm->issue.sequence,
                                             .count = call->count,
                                             .what = twill_call_what(call),
                                             .root = call->root};
    struct twill_notice notice = {.bytes = 0};
    uint32_t ranks[TWILL_AWAITED_MOST], missing = comm->rank;
    const char *step;
    unsigned n = twill_engine_waits_for(&comm->engine, ranks, TWILL_AWAITED_MOST, &step);
    size_t used = 0;
    for (unsigned i = 0; i < n; i++)
        used +=
            (size_t)snprintf(notice.message + used, sizeof(notice.message) - used, " %u", ranks[i]);
    if (n > 0)
        missing = twill_comm_missing(comm, ranks[0]);
    if (answer != 0) {
        publish_place(comm);
        notice.message[used++] = PLACE_MARK;
        twill_comm_describe_peer(comm, comm->rank, notice.message + used,
                                 sizeof(notice.message) - used);
    }
    pthread_mutex_lock(&comm->context->health.detector_lock);
    bool sent = send_call(comm, to, &notice, &record, missing | answer);
    pthread_mutex_unlock(&comm->context->health.detector_lock);
    return sent;
}

void twill_comm_report(struct twill_comm *comm, const uint32_t *ranks, unsigned n)
{
    if (n == 0)
        return;
    publish_place(comm);
    twill_node_wait_for(comm->node, twill_comm_missing(comm, ranks[0]));
    for (unsigned i = 0; i < n; i++)
        if (comm->world->node[ranks[i]] != comm->world->node[comm->rank])
            (void)send_position(comm, ranks[i], 0);
}

bool twill_comm_tell_calls(struct twill_comm *comm, uint32_t to)
{
    uint64_t last = comm->issue.sequence, first = last > TWILL_PAST ? last - TWILL_PAST + 1 : 1;
    struct twill_notice notice = {.bytes = 0};
    struct twill_call_record call;
    bool sent = true;
    if (comm->world->node[to] == comm->world->node[comm->rank])
        return true; /* it reads them in the node memory */
    pthread_mutex_lock(&comm->context->health.detector_lock);
    for (uint64_t sequence = first; sent && sequence <= last; sequence++)
        sent = !twill_node_read_call(comm->node, comm->local, sequence, &call) ||
               send_call(comm, to, &notice, &call, comm->rank | IS_PAST);
    pthread_mutex_unlock(&comm->context->health.detector_lock);
    return sent;
}

const char *twill_comm_describe_way(const struct twill_comm *comm, const uint32_t *ranks,
                                    unsigned n, const char *before, char *text, size_t bytes)
{
    size_t begin = strlen(before);
    snprintf(text, bytes, "%s", before);
    for (unsigned i = 0; i < n && comm->links.transports > 0 && text[begin] == '\0'; i++) {
        const struct twill_transport *link = twill_engine_link(&comm->engine, ranks[i]);
        if (link->ops->awaits != NULL)
            link->ops->awaits(link, ranks[i], text + begin, bytes - begin);
    }
    return text[begin] != '\0' ? text : "";
}

bool twill_report_asks(const struct twill_notice *notice)
{
    return notice->status == TWILL_OK && (notice->state[3] & (IS_ANSWER | IS_PAST)) == 0;
}

/* Describe the call that a thread of this process is in on another communicator. Returns false if
 * there is none. The caller has locked the context. */
static bool describe_other_call(const struct twill_comm *comm, char *text, size_t bytes)
{
    const struct twill_context *context = comm->context;
    for (size_t i = 0; i < context->comms.opened; i++) {
        const struct twill_comm *other = context->comms.open[i];
        const char *held = atomic_load_explicit(&other->claim.held, memory_order_relaxed);
        struct twill_call call;
        char name[128];
        uint64_t sequence, entered;
        if (other == comm || held == NULL)
            continue;
        bool in_call = twill_comm_read_call(other, other->rank, &call, &sequence, &entered) &&
                       twill_node_left_call(other->node, other->local) != sequence;
        if (in_call)
            twill_call_describe(&call, sequence, name, sizeof(name));
        snprintf(text, bytes, "is in %s of communicator %u", in_call ? name : held, other->number);
        return true;
    }
    return false;
}

void twill_comm_answer_idle(struct twill_comm *comm, uint32_t to)
{
    struct twill_notice notice = {.bytes = 0};
    struct twill_call_record call = {.sequence = 0};
    uint64_t entered;
    if (!twill_node_read_last_call(comm->node, comm->local, &call, &entered))
        call = (struct twill_call_record){.sequence = 0};
    notice.message[0] = PLACE_MARK;
    if (!describe_other_call(comm, notice.message + 1, sizeof(notice.message) - 1))
        twill_comm_describe_peer(comm, comm->rank, notice.message + 1, sizeof(notice.message) - 1);
    (void)send_call(comm, to, &notice, &call, comm->rank | IS_ANSWER | IS_PAST);
}

/* Add a rank to ask, unless it is there, is this rank, or there is no room. */
static void add_rank(const struct twill_comm *comm, struct twill_cause_search *search,
                     uint32_t rank)
{
    if (rank >= comm->world->size || rank == comm->rank || search->count == SEARCH_RANKS)
        return;
    for (unsigned i = 0; i < search->count; i++)
        if (search->asked[i].rank == rank)
            return;
    search->asked[search->count++] =
        (struct asked_rank){.rank = rank, .pause = TURNS_PER_ASK / 2, .asked_at = twill_now()};
}

/* Record the answer of a notice's sender in the search, and add the ranks that it waits for. Does
 * nothing if the sender was not asked or has answered before. */
static void take_answer(const struct twill_comm *comm, struct twill_cause_search *search,
                        const struct twill_notice *notice)
{
    for (unsigned i = 0; i < search->count; i++) {
        struct asked_rank *asked = &search->asked[i];
        if (asked->rank != notice->from || asked->answered)
            continue;
        asked->answered = true;
        const char *at = notice->message, *place = strchr(at, PLACE_MARK);
        snprintf(asked->place, sizeof(asked->place), "%s", place != NULL ? place + 1 : "");
        for (char *end; *at == ' '; at = end) {
            unsigned long rank = strtoul(at, &end, 10);
            if (end == at)
                break;
            asked->waits = true;
            add_rank(comm, search, rank < comm->world->size ? (uint32_t)rank : comm->rank);
        }
    }
}

twill_status twill_comm_take_report(struct twill_comm *comm, const struct twill_notice *notice)
{
    struct twill_call theirs = twill_call_of((uint32_t)notice->state[2], (size_t)notice->state[1],
                                             (uint32_t)(notice->state[2] >> 32));
    bool past = (notice->state[3] & IS_PAST) != 0;
    TWILL_TRY(&comm->error,
              past ? twill_comm_compare_past(comm, notice->from, &theirs, notice->state[0])
                   : twill_comm_compare(comm, notice->from, &theirs, notice->state[0]));
    if (past && (notice->state[3] & IS_ANSWER) == 0)
        return TWILL_OK;
    uint32_t missing = (uint32_t)notice->state[3];
    if (notice->state[0] <= comm->issue.sequence && missing != comm->rank &&
        missing < comm->world->size)
        comm->health->reported[notice->from] =
            (struct twill_wait_report){comm->issue.sequence, missing};
    if ((notice->state[3] & IS_ANSWER) == 0)
        (void)send_position(comm, notice->from, IS_ANSWER);
    else if (comm->health->search != NULL)
        take_answer(comm, comm->health->search, notice);
    return TWILL_OK;
}

/* Make one turn of a search. Asks the ranks that have not answered and whose next question is due.
 * Returns whether answers may still come. */
static bool ask(struct twill_comm *comm, struct twill_cause_search *search)
{
    bool open = false;
    for (unsigned i = 0; i < search->count; i++) {
        struct asked_rank *asked = &search->asked[i];
        if (asked->answered)
            continue;
        if (asked->turns >= asked->next) {
            asked->pause *= send_position(comm, asked->rank, 0) ? 2 : 1;
            asked->next = asked->turns + asked->pause;
        }
        asked->turns++;
        open = open || asked->turns <= TWILL_SEARCH_REPLY_NS / TWILL_SEARCH_TURN_NS ||
               twill_now() - asked->asked_at < TWILL_SEARCH_REPLY_NS;
    }
    return open;
}

/* Return the first asked rank without an answer, else the first that waits for none, or NULL. */
static const struct asked_rank *found_by(const struct twill_cause_search *search)
{
    const struct asked_rank *idle = NULL;
    for (unsigned i = search->count; i-- > 0;)
        if (search->asked[i].answered && !search->asked[i].waits)
            idle = &search->asked[i];
    for (unsigned i = 0; i < search->count; i++)
        if (!search->asked[i].answered)
            return &search->asked[i];
    return idle;
}

/* Sleep for one turn of a search, or until the doorbell rings, and receive notices. Returns
 * TWILL_OK or another rank's failure. */
static twill_status sleep_a_turn(struct twill_comm *comm)
{
    uint32_t word = twill_node_sleep_begin(comm->node);
    twill_node_sleep(comm->node, word, TWILL_SEARCH_TURN_NS);
    twill_node_sleep_end(comm->node);
    return twill_comm_poll_failures(comm, true);
}

twill_status twill_comm_find_cause(struct twill_comm *comm, const uint32_t *ranks, unsigned n,
                                   uint32_t *cause, char *place, size_t bytes)
{
    struct twill_cause_search search = {.count = 0};
    uint64_t begin = twill_now(),
             spread = twill_min(comm->rank * TWILL_SEARCH_SPREAD_NS, TWILL_SEARCH_SPREAD_MOST_NS);
    twill_status status = TWILL_OK;
    twill_context_lock(comm->context);
    comm->context->health.searches++;
    twill_context_unlock(comm->context);
    *cause = twill_comm_missing(comm, ranks[0]);
    for (unsigned i = 0; i < n; i++)
        add_rank(comm, &search, ranks[i]);
    if (comm->world->node[*cause] == comm->world->node[comm->rank]) /* it may be behind */
        add_rank(comm, &search, *cause);
    comm->health->search = &search;
    while (status == TWILL_OK && ask(comm, &search) &&
           twill_now() - begin < TWILL_SEARCH_NS - TWILL_SEARCH_SPREAD_MOST_NS)
        status = sleep_a_turn(comm);
    for (uint64_t end = twill_now(); status == TWILL_OK && twill_now() - end < spread;)
        status = sleep_a_turn(comm);
    comm->health->search = NULL;
    const struct asked_rank *found = found_by(&search);
    if (found != NULL)
        *cause = found->rank;
    for (unsigned i = 0; i < search.count; i++)
        if (search.asked[i].rank == *cause)
            snprintf(place, bytes, "%s",
                     search.asked[i].answered ? search.asked[i].place
                                              : "does not answer: it is in no call, or stopped");
    return status;
}
