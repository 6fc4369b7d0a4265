/* SPDX-License-Identifier: Apache-2.0 */
/* All messages in progress have the same rate, so one number orders them, which is what each would
 * have received by now. A message that is as long as the others ends when this number has grown by
 * its length. Joining and leaving cost O(log n) for any number of messages. */
#include "bench/tools/simulate/simulation.h"

#include <math.h>

bool shared_link_create(struct shared_link *link, uint32_t messages)
{
    bool flows = event_heap_create(&link->flows, messages);
    return event_heap_create(&link->queue, messages) && flows;
}

void shared_link_free(struct shared_link *link)
{
    event_heap_free(&link->flows);
    event_heap_free(&link->queue);
}

/* Return the bytes per second that each message gets. */
static double rate_of_each(const struct shared_link *link)
{
    double fair = link->capacity / link->flows.count;
    return fair < link->most ? fair : link->most;
}

/* Set the time of a link to `now`. link->served grows by the bytes that each message in progress
 * receives until then. */
static void advance(struct shared_link *link, double now)
{
    if (link->flows.count > 0)
        link->served += (now - link->last) * rate_of_each(link);
    else
        link->served = 0; /* keeps it small, hence exact */
    link->last = now;
}

/* Give free credits to the messages that have waited longest. */
static void admit(struct shared_link *link)
{
    while (link->flows.count < link->credits && link->queue.count > 0) {
        struct pending_event first = link->queue.events[0];
        event_heap_remove(&link->queue, first.slot);
        event_heap_set(&link->flows, first.slot, link->served + link->length, first.order);
    }
}

void shared_link_send(struct shared_link *link, uint32_t message, double now)
{
    advance(link, now);
    event_heap_set(&link->queue, message, now, link->arrivals++);
    admit(link);
}

void shared_link_cancel(struct shared_link *link, uint32_t message, double now)
{
    advance(link, now);
    if (!event_heap_remove(&link->queue, message))
        event_heap_remove(&link->flows, message);
    admit(link);
}

double shared_link_next(const struct shared_link *link)
{
    if (link->flows.count == 0)
        return INFINITY;
    double left = link->flows.events[0].time - link->served;
    return link->last + (left > 0 ? left / rate_of_each(link) : 0);
}

uint32_t shared_link_take(struct shared_link *link, double now)
{
    advance(link, now);
    uint32_t message = link->flows.events[0].slot;
    event_heap_remove(&link->flows, message);
    admit(link);
    return message;
}
