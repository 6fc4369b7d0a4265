/* SPDX-License-Identifier: Apache-2.0 */
/* News of other ranks: that one has failed; and, between nodes, where each is and whom it waits
 * for, so that a rank that waits in vain can name the one that everybody waits for. */
#include "lib/comm.h"

#include <stdio.h>
#include <string.h>

#define IS_ANSWER (UINT64_C(1) << 32) /* in state[3], beside whom the sender waits for */

/* --- where they are ----------------------------------------------------------------------------
 */

static uint32_t waits_for_on_node(const struct twill_comm *comm, uint32_t peer)
{
    const struct twill_call_line *line = &comm->node->area[comm->world->local[peer]]->call;
    uint32_t theirs = atomic_load_explicit(&line->waits_for, memory_order_acquire);
    return theirs != 0 && theirs != comm->rank + 1 ? theirs - 1 : peer;
}

/* On the node the lines tell: who is behind keeps us waiting, or waits itself. */
uint32_t twill_comm_missing(const struct twill_comm *comm, uint32_t peer)
{
    if (comm->world->node[peer] != comm->world->node[comm->rank])
        return comm->heard[peer].in == comm->sequence ? comm->heard[peer].rank : peer;
    for (uint32_t l = 0; l < comm->local_size; l++) {
        struct twill_call call;
        uint64_t sequence, entered;
        if (l != comm->local &&
            (!twill_comm_read_call(comm, comm->node->rank[l], &call, &sequence, &entered) ||
             sequence < comm->sequence))
            return waits_for_on_node(comm, comm->node->rank[l]);
    }
    return waits_for_on_node(comm, peer);
}

static void say_where(struct twill_comm *comm, uint32_t to, uint32_t missing, uint64_t answer)
{
    const struct twill_call *call = &comm->call;
    struct twill_news news = {.from = comm->rank, .comm = comm->number, .status = TWILL_OK};
    news.state[0] = comm->sequence;
    news.state[1] = call->count;
    news.state[2] = (uint64_t)call->collective | (uint64_t)call->vector << 7 |
                    (uint64_t)call->type << 8 |
                    (uint64_t)call->op << 16 | (uint64_t)call->root << 32;
    news.state[3] = missing | answer;
    twill_watch_send(comm->context->watch, to, &news);
}

void twill_comm_report(struct twill_comm *comm, const uint32_t *ranks, unsigned n)
{
    if (n == 0)
        return;
    uint32_t missing = twill_comm_missing(comm, ranks[0]);
    comm->heard[comm->rank] = (struct twill_heard){comm->sequence, missing};
    atomic_store_explicit(&comm->node->area[comm->local]->call.waits_for, missing + 1,
                          memory_order_release);
    for (unsigned i = 0; i < n && comm->context->watch != NULL; i++)
        if (comm->world->node[ranks[i]] != comm->world->node[comm->rank])
            say_where(comm, ranks[i], missing, 0);
}

static twill_status hear_report(struct twill_comm *comm, const struct twill_news *news)
{
    if (news->from >= comm->world->size)
        return TWILL_OK;
    struct twill_call theirs = {
        .collective = (enum twill_collective)(news->state[2] & 0x7f),
        .vector = (news->state[2] >> 7 & 1) != 0,
        .type = (twill_type)(news->state[2] >> 8 & 0xff),
        .op = (twill_op)(news->state[2] >> 16 & 0xffff),
        .count = (size_t)news->state[1],
        .root = (uint32_t)(news->state[2] >> 32),
    };
    TWILL_TRY(&comm->error, twill_comm_compare(comm, news->from, &theirs, news->state[0]));
    uint32_t missing = (uint32_t)news->state[3];
    if (news->state[0] <= comm->sequence && missing != comm->rank && missing < comm->world->size)
        comm->heard[news->from] = (struct twill_heard){comm->sequence, missing};
    const struct twill_heard *own = &comm->heard[comm->rank];
    if ((news->state[3] & IS_ANSWER) == 0)
        say_where(comm, news->from, own->in == comm->sequence ? own->rank : comm->rank, IS_ANSWER);
    return TWILL_OK;
}

/* --- that they have failed ---------------------------------------------------------------------
 */

static void keep(struct twill_comm *comm, const struct twill_news *news)
{
    if (comm->told)
        return;
    comm->told = true;
    comm->news = *news;
}

static struct twill_comm *find_open(struct twill_context *context, uint32_t number)
{
    for (size_t i = 0; i < context->opened; i++)
        if (context->open[i]->number == number)
            return context->open[i];
    return NULL;
}

/* Take everything off the watch; it serves all communicators of the context. */
static twill_status listen(struct twill_comm *comm)
{
    struct twill_news news;
    while (twill_watch_hear(comm->context->watch, &news)) {
        struct twill_comm *about = find_open(comm->context, news.comm);
        if (about != NULL && news.status != TWILL_OK)
            keep(about, &news);
        else if (about == comm)
            TWILL_TRY(&comm->error, hear_report(comm, &news));
    }
    return TWILL_OK;
}

twill_status twill_comm_hear(struct twill_comm *comm, bool any)
{
    uint64_t until = any ? UINT64_MAX : comm->sequence;
    uint32_t local = twill_node_aborted(comm->node, until);
    if (local != UINT32_MAX) {
        const struct twill_abort_line *line = &comm->node->area[local]->abort;
        struct twill_news news = {.from = line->from, .status = (twill_status)line->status};
        snprintf(news.message, sizeof(news.message), "%.*s", (int)sizeof(news.message) - 1,
                 line->message);
        news.state[0] = line->sequence;
        keep(comm, &news);
    }
    if (comm->context->watch != NULL)
        TWILL_TRY(&comm->error, listen(comm));
    if (comm->told && comm->news.state[0] <= until)
        return TWILL_COMM_FAIL(comm, comm->news.status, "told by rank %u: %s", comm->news.from,
                               comm->news.message);
    return TWILL_OK;
}
