/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a communicator's calls goes. */
#include "fabric/shm/call_records.h"
#include "lib/base/plural.h"
#include "lib/base/rest.h"
#include "lib/comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOOKS_ALONE 64u
#define LOOKED_MOST 33554432u /* ticks, some 12 ms: for a peer's entry to be published */
#define LOOK_SHARE  16u       /* 1/16 of the call's time is the most that is spent on that */

/* --- the last rank --------------------------------------------------------------------------- */

bool twill_split_look(const struct twill_comm *comm, uint64_t sequence,
                      struct twill_last_entry *last)
{
    bool all = true;
    for (uint32_t l = 0; l < comm->local_size; l++) {
        struct twill_last_entry known;
        if (!twill_node_last_entry(comm->node, l, sequence, &known))
            all = false;
        else if (known.ticks > last->ticks)
            *last = known;
    }
    return all;
}

/* Find the last entry into the call that ended last. A peer that starts a nonblocking call stores
 * what others wait for just before it publishes its entry: look again for a while. */
static struct twill_last_entry find_last(const struct twill_comm *comm, uint64_t from, uint64_t to)
{
    struct twill_last_entry last = comm->split.last;
    uint64_t patience = twill_min((to - from) / LOOK_SHARE, LOOKED_MOST);
    for (unsigned looks = 0;
         !twill_split_look(comm, comm->split.ended, &last) && twill_ticks() - to < patience;
         looks++)
        if (looks < LOOKS_ALONE)
            twill_pause();
        else
            twill_yield(); /* that peer may need this core */
    return last;
}

/* --- telling --------------------------------------------------------------------------------- */

static struct twill_split_sums sums_now(const struct twill_comm *comm)
{
    return (struct twill_split_sums){
        .calls = twill_counter_read(&comm->usage.counters.calls),
        .bytes = twill_counter_read(&comm->usage.counters.bytes_sent),
        .spent = twill_counter_read(&comm->usage.ticks),
        .waiting = twill_counter_read(&comm->split.now.waiting),
        .blocked = twill_counter_read(&comm->split.now.blocked),
    };
}

/* Return what a rank's late entries have cost in a reader's period. */
static struct twill_lateness lateness_of(const struct twill_comm *comm, uint32_t rank,
                                         enum twill_split_reader reader)
{
    const struct twill_lateness *now = &comm->split.late[rank],
                                *start = now + (1 + reader) * comm->world->size;
    return (struct twill_lateness){now->calls - start->calls, now->ticks - start->ticks};
}

/* Does rank a come before rank b in the list of those waited for? */
static bool cost_more(const struct twill_comm *comm, uint32_t a, uint32_t b,
                      enum twill_split_reader reader)
{
    uint64_t cost_a = lateness_of(comm, a, reader).ticks,
             cost_b = lateness_of(comm, b, reader).ticks;
    return cost_a != cost_b ? cost_a > cost_b : a < b;
}

/* Return the rank that has cost the index-th most waiting, from 0; UINT32_MAX: none has. */
static uint32_t rank_by_cost(const struct twill_comm *comm, size_t index,
                             enum twill_split_reader reader)
{
    uint32_t size = comm->world->size, found = UINT32_MAX;
    for (size_t i = 0; i <= index; i++) {
        uint32_t next = UINT32_MAX;
        for (uint32_t r = 0; r < size; r++)
            if (lateness_of(comm, r, reader).ticks > 0 &&
                (found == UINT32_MAX || cost_more(comm, found, r, reader)) &&
                (next == UINT32_MAX || cost_more(comm, r, next, reader)))
                next = r;
        if (next == UINT32_MAX)
            return UINT32_MAX;
        found = next;
    }
    return found;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

/* Describe a reader's period. */
static size_t describe_period(const struct twill_comm *comm, enum twill_split_reader reader,
                              char *text, size_t bytes)
{
    const struct twill_split_sums now = sums_now(comm), *start = &comm->split.start[reader];
    uint64_t spent = now.spent - start->spent, waiting = now.waiting - start->waiting;
    uint64_t blocked = now.blocked - start->blocked;
    blocked = twill_min(twill_max(blocked, waiting), spent);
    waiting = twill_min(waiting, blocked);
    return (size_t)twill_print(text, bytes,
                               "%llu call%s, %llu bytes sent, %.6f s: %.1f %% waiting for the last "
                               "rank, %.1f %% for data, "
                               "%.1f %% copying, reducing and sending",
                               (unsigned long long)(now.calls - start->calls),
                               TWILL_PLURAL((now.calls - start->calls)),
                               (unsigned long long)(now.bytes - start->bytes),
                               twill_comm_seconds(comm, spent), percent(waiting, spent),
                               percent(blocked - waiting, spent), percent(spent - blocked, spent));
}

static void describe_rank(const struct twill_comm *comm, uint32_t rank,
                          enum twill_split_reader reader, char *text, size_t bytes)
{
    struct twill_lateness late = lateness_of(comm, rank, reader);
    twill_print(text, bytes, "%s was last in %llu call%s, %.6f s of waiting",
                TWILL_COMM_RANK_NAME(comm, rank), (unsigned long long)late.calls,
                TWILL_PLURAL(late.calls), twill_comm_seconds(comm, late.ticks));
}

static void begin_period(struct twill_comm *comm, enum twill_split_reader reader)
{
    size_t size = comm->world->size;
    comm->split.start[reader] = sums_now(comm);
    memcpy(comm->split.late + (1 + reader) * size, comm->split.late,
           size * sizeof(*comm->split.late));
}

void twill_split_report(struct twill_comm *comm, const char *what)
{
    char text[256], rank_text[128] = "";
    uint32_t rank = rank_by_cost(comm, 0, TWILL_SPLIT_REPORTS);
    describe_period(comm, TWILL_SPLIT_REPORTS, text, sizeof(text));
    if (rank != UINT32_MAX)
        describe_rank(comm, rank, TWILL_SPLIT_REPORTS, rank_text, sizeof(rank_text));
    twill_say(&comm->context->log, TWILL_LOG_WARN, "%s%s%s%s", what, text, rank_text[0] ? "; " : "",
              rank_text);
    begin_period(comm, TWILL_SPLIT_REPORTS);
}

void twill_split_report_due(struct twill_comm *comm)
{
    twill_split_report(comm, "");
    comm->split.report_at = comm->usage.counters.calls + comm->split.report_every;
}

/* --- counting -------------------------------------------------------------------------------- */

void twill_split_add(struct twill_comm *comm, uint64_t from, uint64_t to, uint64_t idle,
                     unsigned times)
{
    struct twill_time_split *split = &comm->split;
    struct twill_last_entry last = find_last(comm, from, to);
    uint64_t waiting = 0;
    if (last.ticks > from && last.rank != comm->rank)
        waiting = twill_min(last.ticks, to) - from;
    twill_counter_add(&split->now.waiting, times * waiting);
    if (TWILL_UNLIKELY(split->observed != NULL))
        twill_counter_add(split->observed, times * waiting);
    twill_counter_add(&split->now.blocked, times * twill_max(split->idle - idle, waiting));
    if (waiting > 0) {
        twill_counter_add(&split->late[last.rank].calls, times);
        twill_counter_add(&split->late[last.rank].ticks, times * waiting);
    }
}

/* --- life ------------------------------------------------------------------------------------ */

void twill_split_report_all(struct twill_comm *comm, const char *what)
{
    size_t size = comm->world->size;
    comm->split.start[TWILL_SPLIT_REPORTS] = (struct twill_split_sums){0};
    memset(comm->split.late + (1 + TWILL_SPLIT_REPORTS) * size, 0,
           size * sizeof(*comm->split.late));
    if (comm->usage.counters.calls > 0)
        twill_split_report(comm, what);
}

twill_status twill_split_open(struct twill_comm *comm)
{
    struct twill_time_split *split = &comm->split;
    uint64_t every = (uint64_t)comm->context->config.number[TWILL_VARIABLE_REPORT];
    split->report_every = comm->rank == 0 ? every : 0;
    split->report_at = split->report_every > 0 ? every : UINT64_MAX;
    split->late = calloc(comm->world->size, (1 + TWILL_SPLIT_READERS) * sizeof(*split->late));
    return split->late != NULL ? TWILL_OK
                               : TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory");
}

void twill_split_close(struct twill_comm *comm)
{
    if (comm->split.report_every > 0 && comm->split.late != NULL)
        twill_split_report_all(comm, "in all ");
    free(comm->split.late);
    comm->split.late = NULL;
}

/* --- public ---------------------------------------------------------------------------------- */

const char *twill_comm_times(twill_comm *comm, size_t index)
{
    if (!twill_comm_is_live(comm))
        return NULL;
    if (index == 0) {
        describe_period(comm, TWILL_SPLIT_PROGRAM, comm->split.line, sizeof(comm->split.line));
        return comm->split.line;
    }
    uint32_t rank = rank_by_cost(comm, index - 1, TWILL_SPLIT_PROGRAM);
    if (rank == UINT32_MAX)
        return NULL;
    describe_rank(comm, rank, TWILL_SPLIT_PROGRAM, comm->split.line, sizeof(comm->split.line));
    return comm->split.line;
}

twill_status twill_comm_times_reset(twill_comm *comm)
{
    twill_status status = twill_comm_acquire(comm, "twill_comm_times_reset");
    if (status != TWILL_OK)
        return status;
    begin_period(comm, TWILL_SPLIT_PROGRAM);
    twill_comm_release(comm);
    return TWILL_OK;
}
