/* SPDX-License-Identifier: Apache-2.0 */
/* A binary heap of pending events, one for each slot at most, so that an event can be moved or
 * cancelled in O(log n). */
#ifndef TWILL_EVENT_HEAP_H
#define TWILL_EVENT_HEAP_H

#include <stdbool.h>
#include <stdint.h>

struct pending_event {
    double time;
    uint64_t order; /* of events of equal time the lowest comes first */
    uint32_t slot;
};

struct event_heap {
    struct pending_event *events; /* `count` of them; the first is the earliest */
    uint32_t *place;              /* of each slot in `events`, or EVENT_NONE */
    uint32_t count;
};

#define EVENT_NONE UINT32_MAX

/* Make an empty heap for slots 0 to slots - 1. Returns false without memory; free it even then. */
bool event_heap_create(struct event_heap *heap, uint32_t slots);
void event_heap_free(struct event_heap *heap);
/* Schedule the event of a slot; the one that it had is replaced. */
void event_heap_set(struct event_heap *heap, uint32_t slot, double time, uint64_t order);
/* Cancel the event of a slot, if there is one. Returns whether there was. */
bool event_heap_remove(struct event_heap *heap, uint32_t slot);

#endif
