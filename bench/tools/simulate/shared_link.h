/* SPDX-License-Identifier: Apache-2.0 */
/* A link that messages share: all of a server's endpoints in one direction. Messages under way get
 * equal rates, as TCP's and as max-min fairness gives them, and none more than its worker's link
 * has. With credits at most that many are under way, and the others wait in the order of arrival.
 */
#ifndef TWILL_SHARED_LINK_H
#define TWILL_SHARED_LINK_H

#include "bench/tools/simulate/event_heap.h"

struct shared_link {
    double capacity, most;   /* bytes per second: of all messages together, of one */
    double length;           /* of a message, bytes; all are as long */
    uint32_t credits;        /* messages under way at most */
    double served;           /* bytes that each message has got which was there all the time */
    double last;             /* time of `served` */
    struct event_heap flows; /* messages under way, by the value of `served` at which they end */
    struct event_heap queue; /* messages without a credit, by their arrival */
    uint64_t arrivals;
};

/* Make a link for messages 0 to messages - 1. Returns false without memory. */
bool shared_link_create(struct shared_link *link, uint32_t messages);
void shared_link_free(struct shared_link *link);
void shared_link_send(struct shared_link *link, uint32_t message, double now);
/* Take a message off the link, wherever it is. */
void shared_link_cancel(struct shared_link *link, uint32_t message, double now);
/* Return when the next message will have crossed; INFINITY if there is none. */
double shared_link_next(const struct shared_link *link);
/* Return the message that has crossed at this time, which is that of shared_link_next(). */
uint32_t shared_link_take(struct shared_link *link, double now);

#endif
