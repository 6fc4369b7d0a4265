/* SPDX-License-Identifier: Apache-2.0 */
/* The lines of a job: its ranks, their calls and last events. */
#include "algorithms/algorithms.h"
#include "lib/report/job_view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int twill_job_rank_of(const struct twill_job_view *view, const struct twill_job_region *region,
                      uint32_t rank)
{
    if (rank >= region->owner->size)
        return -1;
    for (size_t i = 0; i < view->regions; i++)
        if (view->region[i].owner->number == region->owner->number &&
            view->region[i].owner->rank == rank)
            return (int)view->region[i].owner->job_rank;
    return region->owner->size == region->owner->job_size ? (int)rank : -1;
}

double twill_job_age(const struct twill_job_view *view, const struct twill_job_region *region,
                     uint64_t ticks)
{
    return view->ticks > ticks ? (double)(view->ticks - ticks) * region->rate * 1e-9 : 0;
}

/* Read event number n from the end, 0 the last one. Returns false before the first, or if it is
 * not whole. */
static bool read_event(const struct twill_job_region *region, uint64_t back, uint64_t *number,
                       struct twill_trace_event *event)
{
    const struct twill_trace_ring *ring = twill_node_trace(&region->view->node, 0);
    uint64_t first, written = twill_trace_written(ring, false, &first);
    *number = written - 1 - back;
    return written > first + back && twill_trace_read(ring, false, *number, event);
}

uint64_t twill_job_last_call(const struct twill_job_region *region, uint64_t *bytes)
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

int twill_job_awaited(const struct twill_job_view *view, const struct twill_job_region *region)
{
    struct twill_trace_event event;
    uint64_t number;
    for (uint64_t back = 0; region->in_call && back < TWILL_TRACE_EVENTS; back++) {
        if (!read_event(region, back, &number, &event))
            continue;
        if (event.kind == TWILL_TRACE_WAIT_BEGIN)
            return twill_job_rank_of(view, region, event.peer);
        if (event.kind == TWILL_TRACE_WAIT_END || event.kind == TWILL_TRACE_CALL_BEGIN)
            break;
    }
    return -1;
}

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

/* Return the operation's name, "-" for a collective that does not reduce. */
static const char *operation_name(const struct twill_call *call)
{
    bool reduces = (unsigned)call->collective < TWILL_COLLECTIVE_COUNT &&
                   twill_collective_facts(call->collective)->reduces;
    return reduces ? name_or_dash(twill_op_name(call->op)) : "-";
}

static void list_call(struct twill_job_view *view, const struct twill_job_region *region)
{
    const struct twill_node_owner *owner = region->owner;
    const struct twill_abort_line *failure = twill_node_failure(&region->view->node, 0);
    bool failed = atomic_load_explicit(&failure->set, memory_order_acquire) != 0;
    if (!region->has_call) {
        twill_job_add_line(view, "call\t%u\t%u\t%u\t%u\tnone\t0\t-\t0\t-\t-\t0\t0\t0\t-1\t-\t%.*s",
                           owner->job_rank, owner->number, owner->rank, owner->size,
                           (int)sizeof(failure->message), failed ? failure->message : "-");
        return;
    }
    struct twill_call call =
        twill_call_of(region->record.what, region->record.count, region->record.root);
    char words[160];
    uint64_t bytes, ended = twill_job_last_call(region, &bytes);
    uint64_t since = region->in_call || ended == 0 ? region->entered : ended;
    twill_call_describe(&call, region->record.sequence, words, sizeof(words));
    twill_job_add_line(
        view, "call\t%u\t%u\t%u\t%u\t%s\t%llu\t%s\t%zu\t%s\t%s\t%d\t%llu\t%.6f\t%d\t%s\t%.*s",
        owner->job_rank, owner->number, owner->rank, owner->size, region->in_call ? "in" : "out",
        (unsigned long long)region->record.sequence, collective_name(&call), call.count,
        name_or_dash(twill_type_name(call.type)), operation_name(&call), (int)call.root,
        (unsigned long long)bytes, twill_job_age(view, region, since),
        twill_job_awaited(view, region), words, (int)sizeof(failure->message),
        failed ? failure->message : "-");
}

static void list_event(struct twill_job_view *view, const struct twill_job_region *region,
                       uint64_t number, const struct twill_trace_event *event)
{
    struct twill_call call = twill_call_of(event->what, 0, 0);
    bool of_call = event->what != 0 || event->kind == TWILL_TRACE_CALL_BEGIN ||
                   event->kind == TWILL_TRACE_CALL_END;
    bool of_rank = event->kind < TWILL_TRACE_TENSOR_READY;
    int peer = event->peer == TWILL_TRACE_NO_PEER ? -1
               : of_rank                          ? twill_job_rank_of(view, region, event->peer)
                                                  : (int)event->peer;
    char ago[32] = "-";
    if (event->tick != 0)
        twill_print(ago, sizeof(ago), "%.0f", twill_job_age(view, region, event->tick) * 1e9);
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
    uint32_t rank = view->region[index].owner->job_rank; /* others may change it meanwhile */
    while (before < index && view->region[before].owner->job_rank != rank)
        before++;
    return before == index;
}

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

void twill_job_list(struct twill_job_view *view, size_t events)
{
    list_ranks(view);
    for (size_t i = 0; i < view->regions; i++)
        list_call(view, &view->region[i]);
    for (size_t i = 0; i < view->regions; i++)
        for (uint64_t back = events; back-- > 0;) {
            struct twill_trace_event event;
            uint64_t number;
            if (read_event(&view->region[i], back, &number, &event))
                list_event(view, &view->region[i], number, &event);
        }
}
