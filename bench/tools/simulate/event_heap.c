/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/tools/simulate/simulation.h"

#include <stdlib.h>
#include <string.h>

bool event_heap_create(struct event_heap *heap, uint32_t slots)
{
    *heap = (struct event_heap){
        .events = malloc(slots * sizeof(*heap->events)),
        .place = malloc(slots * sizeof(*heap->place)),
    };
    if (heap->events == NULL || heap->place == NULL)
        return false;
    memset(heap->place, 0xff, slots * sizeof(*heap->place)); /* EVENT_NONE */
    return true;
}

void event_heap_free(struct event_heap *heap)
{
    free(heap->events);
    free(heap->place);
}

/* Return whether event a is before b, by time, then by order. */
static bool earlier(const struct pending_event *a, const struct pending_event *b)
{
    return a->time < b->time || (a->time == b->time && a->order < b->order);
}

/* Store an event in entry `at` of the heap, which may be overwritten, and move it to where it
 * belongs in the order. */
static void sift(struct event_heap *heap, uint32_t at, struct pending_event event)
{
    struct pending_event *events = heap->events;
    for (; at > 0 && earlier(&event, &events[(at - 1) / 2]); at = (at - 1) / 2) {
        events[at] = events[(at - 1) / 2];
        heap->place[events[at].slot] = at;
    }
    for (uint32_t child; (child = 2 * at + 1) < heap->count; at = child) {
        if (child + 1 < heap->count && earlier(&events[child + 1], &events[child]))
            child++;
        if (!earlier(&events[child], &event))
            break;
        events[at] = events[child];
        heap->place[events[at].slot] = at;
    }
    events[at] = event;
    heap->place[event.slot] = at;
}

void event_heap_set(struct event_heap *heap, uint32_t slot, double time, uint64_t order)
{
    uint32_t at = heap->place[slot];
    if (at == EVENT_NONE)
        at = heap->count++;
    sift(heap, at, (struct pending_event){.time = time, .order = order, .slot = slot});
}

bool event_heap_remove(struct event_heap *heap, uint32_t slot)
{
    uint32_t at = heap->place[slot];
    if (at == EVENT_NONE)
        return false;
    heap->place[slot] = EVENT_NONE;
    struct pending_event last = heap->events[--heap->count];
    if (at < heap->count)
        sift(heap, at, last);
    return true;
}
