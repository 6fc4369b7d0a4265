/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the lines of a job view. These are its ranks, their calls, last events, and findings. */
#include "algorithms/algorithms.h"
#include "lib/base/plural.h"
#include "lib/engine/request.h"
#include "lib/report/job_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMED_RANKS   16  /* most ranks that a sentence names */
#define AWAITED_PEERS 8u  /* ranks whose waits are summed */
#define IN_FLIGHT     64u /* calls that may be in flight at once */

void twill_job_add_line(struct twill_job_view *view, const char *format, ...)
{
    va_list arguments, again;
    if (view->lines == view->line_capacity) {
        size_t capacity = view->line_capacity * 2 + 64;
        char **more = realloc(view->line, capacity * sizeof(*more));
        if (more == NULL) {
            view->short_of_memory = true;
            return;
        }
        view->line = more;
        view->line_capacity = capacity;
    }
    va_start(arguments, format);
    va_copy(again, arguments);
    size_t bytes = (size_t)twill_print_list(NULL, 0, format, arguments) + 1;
    char *text = malloc(bytes);
    if (text == NULL) {
        view->short_of_memory = true;
    } else {
        twill_print_list(text, bytes, format, again);
        view->line[view->lines++] = text;
    }
    va_end(again);
    va_end(arguments);
}

/* Return whether two regions are of one communicator. Communicators of one split have one number.
 */
static bool is_same_comm(const struct twill_job_region *a, const struct twill_job_region *b)
{
    return a->owner->number == b->owner->number && a->owner->root == b->owner->root;
}

/* Return the rank in the job of a rank of the region's communicator, or -1 if that is not known. */
static int rank_in_job(const struct twill_job_view *view, const struct twill_job_region *region,
                       uint32_t rank)
{
    if (rank >= region->owner->size)
        return -1;
    for (size_t i = 0; i < view->regions; i++)
        if (is_same_comm(&view->region[i], region) && view->region[i].owner->rank == rank)
            return (int)view->region[i].owner->job_rank;
    return region->owner->size == region->owner->job_size ? (int)rank : -1;
}

/* Return the seconds between a tick of a region's owner and the snapshot, at least 0. */
static double age_of(const struct twill_job_view *view, const struct twill_job_region *region,
                     uint64_t ticks)
{
    return view->ticks > ticks ? (double)(view->ticks - ticks) * region->rate * 1e-9 : 0;
}

/* Read the event that is `back` events before the last one of a region's owner, and its number.
 * Returns false if it was overwritten, is unfinished or never existed, and *event is
 * unspecified. */
static bool read_event(const struct twill_job_region *region, uint64_t back, uint64_t *number,
                       struct twill_trace_event *event)
{
    const struct twill_trace_ring *ring = twill_node_trace(&region->view->node, 0);
    uint64_t first, written = twill_trace_written(ring, false, &first);
    *number = written - 1 - back;
    return !region->suspended && written > first + back &&
           twill_trace_read(ring, false, *number, event);
}

/* Return the tick at which the last call of a region's owner ended, or 0 if it has not ended or
 * that is unknown. *bytes becomes the bytes of the call, or 0 if unknown. */
static uint64_t find_last_call(const struct twill_job_region *region, uint64_t *bytes)
{
    struct twill_trace_event event;
    uint64_t number;
    for (uint64_t back = 0; back < TWILL_TRACE_EVENTS; back++) {
        if (!read_event(region, back, &number, &event))
            continue;
        if ((event.kind != TWILL_TRACE_CALL_BEGIN && event.kind != TWILL_TRACE_CALL_END) ||
            event.sequence != (uint32_t)region->record.sequence)
            continue;
        *bytes = event.bytes;
        return event.kind == TWILL_TRACE_CALL_END ? event.tick : 0;
    }
    *bytes = 0;
    return 0;
}

/* Return the rank in the job that a region's owner waits for in its call, or -1 if it is in no
 * call, waits for none, or that is unknown. */
static int awaited_by(const struct twill_job_view *view, const struct twill_job_region *region)
{
    struct twill_trace_event event;
    uint64_t number;
    for (uint64_t back = 0; region->in_call && back < TWILL_TRACE_EVENTS; back++) {
        if (!read_event(region, back, &number, &event))
            continue;
        if (event.kind == TWILL_TRACE_WAIT_BEGIN)
            return rank_in_job(view, region, event.peer);
        if (event.kind == TWILL_TRACE_WAIT_END || event.kind == TWILL_TRACE_CALL_BEGIN)
            break;
    }
    return -1;
}

/* Return the name of a call's collective, or "-" if its number is unknown. */
static const char *collective_name(const struct twill_call *call)
{
    return (unsigned)call->collective < TWILL_COLLECTIVE_COUNT
               ? twill_collective_facts(call->collective)->name
               : "-";
}

static const char *name_or_dash(const char *name)
{
    return name != NULL ? name : "-";
}

/* Return the operation's name, or "-" for a collective that does not reduce. */
static const char *operation_name(const struct twill_call *call)
{
    bool reduces = (unsigned)call->collective < TWILL_COLLECTIVE_COUNT &&
                   twill_collective_facts(call->collective)->reduces;
    return reduces ? name_or_dash(twill_op_name(call->op)) : "-";
}

/* Append to the view the line of the last call of a region's owner. It ends with the message of the
 * communicator's failure, if it has failed. */
static void list_call(struct twill_job_view *view, const struct twill_job_region *region)
{
    const struct twill_node_owner *owner = region->owner;
    const struct twill_abort_line *failure = twill_node_failure(&region->view->node, 0);
    bool failed = atomic_load_explicit(&failure->set, memory_order_acquire) != 0;
    if (!region->has_call) {
        twill_job_add_line(
            view, "call\t%u\t%u\t%u\t%u\tnone\t0\t-\t0\t-\t-\t0\t0\t0\t-1\t-\t%.*s\t%u",
            owner->job_rank, owner->number, owner->rank, owner->size, (int)sizeof(failure->message),
            failed ? failure->message : "-", owner->root);
        return;
    }
    struct twill_call call =
        twill_call_of(region->record.what, region->record.count, region->record.root);
    char words[160];
    uint64_t bytes, ended = find_last_call(region, &bytes);
    uint64_t since = region->in_call || ended == 0 ? region->entered : ended;
    twill_call_describe(&call, region->record.sequence, words, sizeof(words));
    twill_job_add_line(
        view, "call\t%u\t%u\t%u\t%u\t%s\t%llu\t%s\t%zu\t%s\t%s\t%d\t%llu\t%.6f\t%d\t%s\t%.*s\t%u",
        owner->job_rank, owner->number, owner->rank, owner->size,
        region->suspended ? "suspended"
        : region->in_call ? "in"
                          : "out",
        (unsigned long long)region->record.sequence, collective_name(&call), call.count,
        name_or_dash(twill_type_name(call.type)), operation_name(&call), (int)call.root,
        (unsigned long long)bytes, age_of(view, region, since), awaited_by(view, region), words,
        (int)sizeof(failure->message), failed ? failure->message : "-", owner->root);
}

/* Append to the view the line of event `number` of a region's owner. */
static void list_event(struct twill_job_view *view, const struct twill_job_region *region,
                       uint64_t number, const struct twill_trace_event *event)
{
    struct twill_call call = twill_call_of(event->what, 0, 0);
    bool of_call = event->what != 0 || event->kind == TWILL_TRACE_CALL_BEGIN ||
                   event->kind == TWILL_TRACE_CALL_END;
    bool of_rank = event->kind < TWILL_TRACE_TENSOR_READY;
    int peer = event->peer == TWILL_TRACE_NO_PEER ? -1
               : of_rank                          ? rank_in_job(view, region, event->peer)
                                                  : (int)event->peer;
    char ago[32] = "-";
    if (event->tick != 0)
        twill_print(ago, sizeof(ago), "%.0f", age_of(view, region, event->tick) * 1e9);
    twill_job_add_line(view, "event\t%u\t%u\t%llu\t%s\t%s\t%u\t%s\t%s\t%s\t%llu\t%d\t%u",
                       region->owner->job_rank, region->owner->number, (unsigned long long)number,
                       ago, twill_trace_kind_name(event->kind), event->sequence,
                       of_call ? collective_name(&call) : "-",
                       of_call ? name_or_dash(twill_type_name(call.type)) : "-",
                       of_call ? operation_name(&call) : "-", (unsigned long long)event->bytes,
                       peer, event->detail);
}

bool twill_job_is_first(const struct twill_job_view *view, size_t index)
{
    size_t before = 0;
    uint32_t rank = view->region[index].owner->job_rank; /* read once, as it may change */
    while (before < index && view->region[before].owner->job_rank != rank)
        before++;
    return before == index;
}

/* Append to the view the line of the job, and one for each of its ranks on this host. */
static void list_ranks(struct twill_job_view *view)
{
    const struct twill_node_owner *first = view->region[0].owner;
    unsigned ranks = 0;
    for (size_t i = 0; i < view->regions; i++)
        ranks += twill_job_is_first(view, i);
    twill_job_add_line(view, "job\t%.*s\t%u\t%u", TWILL_PROGRAM_TEXT, first->program, ranks,
                       first->job_size);
    for (size_t i = 0; i < view->regions; i++) {
        const struct twill_job_region *region = &view->region[i];
        int pid = region->process.pid;
        if (twill_job_is_first(view, i))
            twill_job_add_line(view, "rank\t%u\t%d\t%s", region->owner->job_rank, pid,
                               pid == 0 ? "dead" : twill_process_state_text(region->process.state));
    }
}

/* Waits of a rank for another one of its communicator. */
struct recent_wait {
    uint32_t peer;
    double ticks;
};

/* The work of a rank on a communicator between `from` and `now`, which are ticks. */
struct recent {
    uint64_t from, now;
    uint64_t calls, bytes; /* that ended in that time */
    double in_calls;       /* ticks in calls, more than there are if calls overlap */
    struct recent_wait wait[AWAITED_PEERS];
    uint64_t steps; /* of gradient sets after the first one in 10 s */
    double step_ticks, exposed_ns;
};

/* Return the ticks of the period that lie between two moments, which may be damaged. */
static double ticks_within(const struct recent *recent, uint64_t begin, uint64_t end)
{
    uint64_t from = twill_max(begin, recent->from), to = twill_min(end, recent->now);
    return to > from ? (double)(to - from) : 0;
}

/* Add a wait for a rank, unless waits for AWAITED_PEERS others are known. */
static void add_wait(struct recent *recent, uint32_t peer, double ticks)
{
    for (unsigned i = 0; i < AWAITED_PEERS && ticks > 0; i++)
        if (recent->wait[i].ticks <= 0 || recent->wait[i].peer == peer) {
            recent->wait[i].peer = peer;
            recent->wait[i].ticks += ticks;
            return;
        }
}

/* Sum the calls and waits of the period, backwards from the last event to one before the period. If
 * the ring does not reach back so far, the period begins with the oldest event that it has. */
static void sum_calls(struct recent *recent, const struct twill_trace_ring *ring, double rate)
{
    uint64_t first, index = twill_trace_written(ring, false, &first);
    uint64_t end[IN_FLIGHT] = {0}, wait_end = recent->now, oldest = recent->now;
    uint32_t sequence[IN_FLIGHT] = {0};
    struct twill_trace_event event;
    for (; index > first && oldest >= recent->from; index--) {
        if (!twill_trace_read(ring, false, index - 1, &event) || event.tick > recent->now)
            continue;
        unsigned place = event.sequence % IN_FLIGHT;
        oldest = event.tick != 0 ? event.tick : oldest;
        if (event.kind == TWILL_TRACE_CALL_END && oldest >= recent->from) {
            end[place] = event.tick;
            sequence[place] = event.sequence;
            recent->calls++;
            recent->bytes += event.bytes;
        } else if (event.kind == TWILL_TRACE_CALL_BEGIN) {
            bool ended = end[place] != 0 && sequence[place] == event.sequence;
            recent->in_calls += ended ? ticks_within(recent, event.tick, end[place]) : 0;
            end[place] = 0;
        } else if (event.kind == TWILL_TRACE_WAIT_END) {
            wait_end = event.tick;
        } else if (event.kind == TWILL_TRACE_WAIT_BEGIN) {
            double waited =
                (double)event.bytes / rate; /* more than fits uint64_t in a bad record */
            uint64_t before = waited < (double)event.tick ? (uint64_t)waited : event.tick;
            add_wait(recent, event.peer, ticks_within(recent, event.tick - before, wait_end));
            wait_end = event.tick;
        }
    }
    if (first > 0) /* else the ring has all events */
        recent->from = twill_max(recent->from, oldest);
    for (unsigned i = 0; i < IN_FLIGHT; i++) /* calls that began earlier */
        recent->in_calls += end[i] != 0 ? ticks_within(recent, recent->from, end[i]) : 0;
}

/* Sum the steps of gradient sets, from the last one back to the first within `most` ticks. */
static void sum_steps(struct recent *recent, const struct twill_trace_ring *ring, uint64_t most)
{
    uint64_t first, index = twill_trace_written(ring, true, &first);
    struct twill_trace_event event, last = {.tick = 0};
    for (; index > first; index--) {
        if (!twill_trace_read(ring, true, index - 1, &event) ||
            event.kind != TWILL_TRACE_STEP_END || event.tick > recent->now)
            continue;
        if (recent->now - event.tick > most)
            break;
        if (last.tick == 0) {
            last = event;
        } else if (event.tick < last.tick && event.bytes <= last.bytes) {
            recent->steps++;
            recent->step_ticks = (double)(last.tick - event.tick);
            recent->exposed_ns = (double)(last.bytes - event.bytes);
        }
    }
}

/* Append a line on what each region's owner has done lately. */
static void list_recent(struct twill_job_view *view)
{
    for (size_t i = 0; i < view->regions; i++) {
        const struct twill_job_region *region = &view->region[i];
        const struct twill_node_owner *owner = region->owner;
        const struct twill_trace_ring *ring = twill_node_trace(&region->view->node, 0);
        double rate = region->rate;
        if (!(rate > 1e-3 && rate < 1e3))
            continue;
        uint64_t second = (uint64_t)(1e9 / rate);
        struct recent recent = {.now = view->ticks,
                                .from = twill_max(view->ticks, second) - second};
        recent.from = twill_max(recent.from, owner->ticks);
        if (!region->suspended) {
            sum_calls(&recent, ring, rate);
            sum_steps(&recent, ring, 10 * second);
        }
        if (region->in_call)
            recent.in_calls += ticks_within(&recent, region->entered, recent.now);
        const struct recent_wait *wait = recent.wait;
        for (unsigned w = 1; w < AWAITED_PEERS; w++)
            wait = recent.wait[w].ticks > wait->ticks ? &recent.wait[w] : wait;
        double covered = ticks_within(&recent, 0, UINT64_MAX), s = rate * 1e-9;
        twill_job_add_line(
            view, "recent\t%u\t%u\t%.6f\t%llu\t%llu\t%.6f\t%.6f\t%d\t%llu\t%.6f\t%.6f",
            owner->job_rank, owner->number, covered * s, (unsigned long long)recent.calls,
            (unsigned long long)recent.bytes, twill_min(recent.in_calls, covered) * s,
            wait->ticks * s, wait->ticks > 0 ? rank_in_job(view, region, wait->peer) : -1,
            (unsigned long long)recent.steps, recent.step_ticks * s, recent.exposed_ns * 1e-9);
    }
}

/* Append a line on the memory of each region's owner. */
static void list_memory(struct twill_job_view *view)
{
    for (size_t i = 0; i < view->regions; i++) {
        const struct twill_job_region *region = &view->region[i];
        const struct twill_suspend_line *line = &region->view->area->suspend;
        twill_job_add_line(
            view, "memory\t%u\t%u\t%llu\t%llu\t%llu\t%u", region->owner->job_rank,
            region->owner->number, (unsigned long long)region->view->exists,
            (unsigned long long)region->view->most,
            (unsigned long long)atomic_load_explicit(&line->private_bytes, memory_order_relaxed),
            region->owner->root);
    }
}

void twill_job_list(struct twill_job_view *view, size_t events)
{
    list_ranks(view);
    for (size_t i = 0; i < view->regions; i++)
        list_call(view, &view->region[i]);
    list_memory(view);
    list_recent(view);
    for (size_t i = 0; i < view->regions; i++)
        for (uint64_t back = events; back-- > 0;) {
            struct twill_trace_event event;
            uint64_t number;
            if (read_event(&view->region[i], back, &number, &event))
                list_event(view, &view->region[i], number, &event);
        }
}

/* Write the last call of a region's owner to text[bytes]. Returns `text`. */
static const char *call_text(const struct twill_job_region *region, char *text, size_t bytes)
{
    struct twill_call call =
        twill_call_of(region->record.what, region->record.count, region->record.root);
    twill_call_describe(&call, region->record.sequence, text, bytes);
    return text;
}

/* Return whether the process of a region's owner is stopped, by a signal or a debugger. */
static bool is_stopped(const struct twill_job_region *region)
{
    return region->process.state == 'T' || region->process.state == 't';
}

/* Add a finding for each rank that is dead or stopped. */
static void find_dead_and_stopped(struct twill_job_view *view)
{
    char text[160];
    for (size_t i = 0; i < view->regions; i++) {
        const struct twill_job_region *region = &view->region[i];
        if (!twill_job_is_first(view, i))
            continue;
        uint32_t rank = region->owner->job_rank;
        const char *where = region->has_call ? call_text(region, text, sizeof(text)) : "none";
        const char *when = region->in_call ? "was in" : "had left";
        if (region->process.pid == 0)
            twill_job_add_line(view, "finding\trank %u has died; it %s %s", rank, when, where);
        else if (is_stopped(region))
            twill_job_add_line(view, "finding\trank %u (process %d) is stopped; it %s %s", rank,
                               region->process.pid, when, where);
    }
}

/* Return the region whose owner is in the call with the highest number, or NULL if none is in a
 * call. It looks at view->region[from] to region[to - 1]. */
static const struct twill_job_region *find_farthest(const struct twill_job_view *view, size_t from,
                                                    size_t to)
{
    const struct twill_job_region *farthest = NULL;
    for (size_t i = from; i < to; i++)
        if (view->region[i].in_call &&
            (farthest == NULL || view->region[i].record.sequence > farthest->record.sequence))
            farthest = &view->region[i];
    return farthest;
}

/* Write to `text` which of view->region[from .. to-1] are in call `sequence`, by their ranks in the
 * job, as "ranks 0, 2 have" or "rank 0 has". At most NAMED_RANKS are named. At least one region
 * must be in that call. */
static void name_ranks(const struct twill_job_view *view, size_t from, size_t to, uint64_t sequence,
                       char *text, size_t bytes)
{
    unsigned ranks = 0;
    char list[160] = "";
    for (size_t i = from; i < to; i++) {
        const struct twill_job_region *region = &view->region[i];
        if (!region->in_call || region->record.sequence != sequence)
            continue;
        size_t used = strlen(list);
        if (ranks++ < NAMED_RANKS)
            snprintf(list + used, sizeof(list) - used, "%s%u", ranks > 1 ? ", " : "",
                     region->owner->job_rank);
    }
    snprintf(text, bytes, "%s %s%s %s", ranks > 1 ? "ranks" : "rank", list,
             ranks > NAMED_RANKS ? ", ..." : "", ranks > 1 ? "have" : "has");
}

/* Add a finding for each of regions [from, to) whose owner has not begun the latest call that one
 * of their owners is in. Does nothing if none is in a call. */
static void find_behind(struct twill_job_view *view, size_t from, size_t to)
{
    const struct twill_job_region *farthest = find_farthest(view, from, to);
    char call[160], last[160], others[240];
    if (farthest == NULL)
        return;
    double age = age_of(view, farthest, farthest->entered);
    call_text(farthest, call, sizeof(call));
    name_ranks(view, from, to, farthest->record.sequence, others, sizeof(others));
    for (size_t i = from; i < to; i++) {
        const struct twill_job_region *region = &view->region[i];
        uint64_t bytes, ended, behind = farthest->record.sequence - region->record.sequence;
        if (region->record.sequence >= farthest->record.sequence)
            continue;
        if (!region->has_call) {
            twill_job_add_line(view,
                               "finding\trank %u has made no call yet on communicator %u, where "
                               "%s been in %s for %.1f s",
                               region->owner->job_rank, region->owner->number, others, call, age);
            continue;
        }
        call_text(region, last, sizeof(last));
        ended = find_last_call(region, &bytes);
        double since = age_of(view, region, region->in_call || !ended ? region->entered : ended);
        twill_job_add_line(view,
                           "finding\trank %u is %llu call%s behind on communicator %u: %s been in "
                           "%s for %.1f s, but it %s %s %.1f s %s",
                           region->owner->job_rank, (unsigned long long)behind,
                           TWILL_PLURAL(behind), region->owner->number, others, call, age,
                           region->in_call ? "has been in" : "left", last, since,
                           region->in_call ? "so far" : "ago");
    }
}

/* Compare view->region[from] with each of the regions up to `to`, by the last call that both have
 * made. Add a finding for each whose collective, type, operation, count or root differs in it. Skip
 * those of which this call is not known. */
static void find_different(struct twill_job_view *view, size_t from, size_t to)
{
    const struct twill_job_region *first = &view->region[from];
    for (size_t i = from + 1; i < to; i++) {
        const struct twill_job_region *region = &view->region[i];
        struct twill_call_record a, b;
        uint64_t sequence = twill_min(first->record.sequence, region->record.sequence);
        if (sequence == 0 || !twill_node_read_call(&first->view->node, 0, sequence, &a) ||
            !twill_node_read_call(&region->view->node, 0, sequence, &b) ||
            (a.what == b.what && a.count == b.count && a.root == b.root))
            continue;
        char ours[160], theirs[160];
        struct twill_call call = twill_call_of(a.what, a.count, a.root);
        twill_call_describe(&call, sequence, ours, sizeof(ours));
        call = twill_call_of(b.what, b.count, b.root);
        twill_call_describe(&call, sequence, theirs, sizeof(theirs));
        twill_job_add_line(view, "finding\trank %u has called %s where rank %u has called %s",
                           region->owner->job_rank, theirs, first->owner->job_rank, ours);
    }
}

void twill_job_find(struct twill_job_view *view)
{
    find_dead_and_stopped(view);
    for (size_t from = 0, to; from < view->regions; from = to) {
        to = from + 1;
        while (to < view->regions && is_same_comm(&view->region[to], &view->region[from]))
            to++;
        find_behind(view, from, to);
        find_different(view, from, to);
    }
}
