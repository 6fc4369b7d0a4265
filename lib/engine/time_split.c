/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time of a communicator's calls goes. */
#include "lib/engine/time_split.h"
#include "fabric/shm/call_records.h"
#include "lib/base/plural.h"
#include "lib/base/rest.h"
#include "lib/engine/engine_internal.h"
#include "lib/job/config.h"
#include "lib/job/context.h"

#include <stdlib.h>
#include <string.h>

#define LOOKS_ALONE 64u
#define LOOKED_MOST 33554432u /* ticks, about 12 ms, until a peer has published its entry */
#define LOOK_SHARE  16u       /* at most 1/16 of the call's time is spent on that */

bool twill_split_look(const struct twill_engine *engine, uint64_t sequence,
                      struct twill_last_entry *last)
{
    bool all = true;
    for (uint32_t l = 0; l < engine->local_size; l++) {
        struct twill_last_entry known;
        if (!twill_node_last_entry(engine->node, l, sequence, &known))
            all = false;
        else if (known.ticks > last->ticks)
            *last = known;
    }
    return all;
}

/* Return the latest entry of a rank into the collective that ended last, with ticks 0 if none is
 * known. This rank's call or wait lasted from tick `from` to `to`. A peer publishes its entry just
 * after it stores what others wait for, so look again for up to 1/LOOK_SHARE of that time. */
static struct twill_last_entry find_last(const struct twill_engine *engine, uint64_t from,
                                         uint64_t to)
{
    struct twill_last_entry last = engine->usage.last;
    uint64_t patience = twill_min((to - from) / LOOK_SHARE, LOOKED_MOST);
    for (unsigned looks = 0;
         !twill_split_look(engine, engine->usage.ended, &last) && twill_ticks() - to < patience;
         looks++)
        if (looks < LOOKS_ALONE)
            twill_pause();
        else
            twill_yield(); /* that peer may need this core */
    return last;
}

/* Return the communicator's calls, bytes sent and times since its creation. */
static struct twill_split_sums sums_now(const struct twill_engine *engine)
{
    return (struct twill_split_sums){
        .calls = twill_counter_read(&engine->usage.counters.calls),
        .bytes = twill_counter_read(&engine->usage.counters.bytes_sent),
        .spent = twill_counter_read(&engine->usage.ticks),
        .waiting = twill_counter_read(&engine->split->now.waiting),
        .blocked = twill_counter_read(&engine->split->now.blocked),
    };
}

/* Return in how many calls `rank` was the last to enter, and how long this rank waited for it
 * there. Only calls since the last twill_split_begin() for `reader` count. */
static struct twill_lateness lateness_of(const struct twill_engine *engine, uint32_t rank,
                                         enum twill_split_reader reader)
{
    const struct twill_lateness *now = &engine->split->late[rank],
                                *start = now + (1 + reader) * engine->world->size;
    return (struct twill_lateness){now->calls - start->calls, now->ticks - start->ticks};
}

/* Return the rank for which this rank has waited the index-th longest, from 0, since the last
 * twill_split_begin() for `reader`. Returns UINT32_MAX if it has waited for fewer ranks. */
static uint32_t rank_by_cost(const struct twill_engine *engine, size_t index,
                             enum twill_split_reader reader)
{
    uint64_t most = UINT64_MAX; /* ranks with this cost or more come before the index-th */
    while (most > 0) {
        uint64_t next = 0;
        for (uint32_t r = 0; r < engine->world->size; r++) {
            uint64_t cost = lateness_of(engine, r, reader).ticks;
            next = cost < most ? twill_max(next, cost) : next;
        }
        for (uint32_t r = 0; r < engine->world->size && next > 0; r++)
            if (lateness_of(engine, r, reader).ticks == next && index-- == 0)
                return r;
        most = next;
    }
    return UINT32_MAX;
}

static double percent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

/* Write to text[bytes] the calls, the bytes sent and the shares of time since the last
 * twill_split_begin() for `reader`. Returns the length of the text. */
static size_t describe_period(const struct twill_engine *engine, enum twill_split_reader reader,
                              char *text, size_t bytes)
{
    const struct twill_split_sums now = sums_now(engine), *start = &engine->split->start[reader];
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
                               twill_engine_seconds(engine, spent), percent(waiting, spent),
                               percent(blocked - waiting, spent), percent(spent - blocked, spent));
}

/* Write to text[bytes] how often `rank` was the last to enter a call, and how long this rank waited
 * for it there. Only calls since the last twill_split_begin() for `reader` count. */
static void describe_rank(const struct twill_engine *engine, uint32_t rank,
                          enum twill_split_reader reader, char *text, size_t bytes)
{
    struct twill_lateness late = lateness_of(engine, rank, reader);
    twill_print(text, bytes, "%s was last in %llu call%s, %.6f s of waiting",
                TWILL_ENGINE_RANK_NAME(engine, rank), (unsigned long long)late.calls,
                TWILL_PLURAL(late.calls), twill_engine_seconds(engine, late.ticks));
}

void twill_split_begin(struct twill_engine *engine, enum twill_split_reader reader)
{
    size_t size = engine->world->size;
    engine->split->start[reader] = sums_now(engine);
    memcpy(engine->split->late + (1 + reader) * size, engine->split->late,
           size * sizeof(*engine->split->late));
}

void twill_split_report(struct twill_engine *engine, const char *what)
{
    char text[256], rank_text[128] = "";
    uint32_t rank = rank_by_cost(engine, 0, TWILL_SPLIT_REPORTS);
    describe_period(engine, TWILL_SPLIT_REPORTS, text, sizeof(text));
    if (rank != UINT32_MAX)
        describe_rank(engine, rank, TWILL_SPLIT_REPORTS, rank_text, sizeof(rank_text));
    twill_say(engine->log, TWILL_LOG_WARN, "%s%s%s%s", what, text, rank_text[0] ? "; " : "",
              rank_text);
    twill_split_begin(engine, TWILL_SPLIT_REPORTS);
}

void twill_split_report_due(struct twill_engine *engine)
{
    twill_split_report(engine, "");
    engine->usage.report_at = engine->usage.counters.calls + engine->split->report_every;
}

void twill_split_add(struct twill_engine *engine, uint64_t from, uint64_t to, uint64_t idle,
                     unsigned times)
{
    struct twill_time_split *split = engine->split;
    struct twill_last_entry last = find_last(engine, from, to);
    uint64_t waiting = 0;
    if (last.ticks > from && last.rank != engine->rank)
        waiting = twill_min(last.ticks, to) - from;
    twill_counter_add(&split->now.waiting, times * waiting);
    if (TWILL_UNLIKELY(split->observed != NULL))
        twill_counter_add(split->observed, times * waiting);
    twill_counter_add(&split->now.blocked, times * twill_max(engine->usage.idle - idle, waiting));
    if (waiting > 0) {
        twill_counter_add(&split->late[last.rank].calls, times);
        twill_counter_add(&split->late[last.rank].ticks, times * waiting);
    }
}

void twill_split_report_all(struct twill_engine *engine, const char *what)
{
    size_t size = engine->world->size;
    engine->split->start[TWILL_SPLIT_REPORTS] = (struct twill_split_sums){0};
    memset(engine->split->late + (1 + TWILL_SPLIT_REPORTS) * size, 0,
           size * sizeof(*engine->split->late));
    if (engine->usage.counters.calls > 0)
        twill_split_report(engine, what);
}

twill_status twill_split_open(struct twill_engine *engine)
{
    struct twill_time_split *split = engine->split;
    uint64_t every = (uint64_t)engine->context->config->number[TWILL_VARIABLE_REPORT];
    split->report_every = engine->rank == 0 ? every : 0;
    engine->usage.report_at = split->report_every > 0 ? every : UINT64_MAX;
    split->late = calloc(engine->world->size, (1 + TWILL_SPLIT_READERS) * sizeof(*split->late));
    return split->late != NULL ? TWILL_OK
                               : TWILL_FAIL(&engine->error, TWILL_ERR_MEMORY, "out of memory");
}

void twill_split_close(struct twill_engine *engine)
{
    if (engine->split->report_every > 0 && engine->split->late != NULL)
        twill_split_report_all(engine, "in all ");
    free(engine->split->late);
    engine->split->late = NULL;
}

const char *twill_split_line(struct twill_engine *engine, size_t index)
{
    char *line = engine->split->line;
    if (index == 0) {
        describe_period(engine, TWILL_SPLIT_PROGRAM, line, sizeof(engine->split->line));
        return line;
    }
    uint32_t rank = rank_by_cost(engine, index - 1, TWILL_SPLIT_PROGRAM);
    if (rank == UINT32_MAX)
        return NULL;
    describe_rank(engine, rank, TWILL_SPLIT_PROGRAM, line, sizeof(engine->split->line));
    return line;
}
