/* SPDX-License-Identifier: Apache-2.0 */
/* Begins and ends of events become spans on tracks; messages become a counter of bytes. */
#include "lib/report/timeline.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define OPEN_MOST  256u /* of more that overlap, the oldest are shown as instants */
#define LANES_MOST 32u  /* lanes of one kind; further ones share the last */

/* How a begin and its end are recognised. */
enum same { SAME_KIND, SAME_PEER = 1, SAME_SEQUENCE = 2, SAME_DETAIL = 4 };

static const struct row {
    uint8_t ends; /* kind of the end; 0: an instant */
    uint8_t same; /* what the end has in common with the begin */
} rows[TWILL_TRACE_KIND_COUNT] = {
    [TWILL_TRACE_CALL_BEGIN] = {TWILL_TRACE_CALL_END, SAME_SEQUENCE},
    [TWILL_TRACE_POINT_BEGIN] = {TWILL_TRACE_POINT_END, SAME_PEER},
    [TWILL_TRACE_WAIT_BEGIN] = {TWILL_TRACE_WAIT_END, SAME_KIND},
    /* On the fast path a segment begins before its call has a number. Its epoch is unique. */
    [TWILL_TRACE_SEGMENT_BEGIN] = {TWILL_TRACE_SEGMENT_END, SAME_PEER},
    [TWILL_TRACE_SEND_BEGIN] = {TWILL_TRACE_SEND_END, SAME_SEQUENCE | SAME_PEER | SAME_DETAIL},
    [TWILL_TRACE_RECV_BEGIN] = {TWILL_TRACE_RECV_END, SAME_SEQUENCE | SAME_PEER | SAME_DETAIL},
    [TWILL_TRACE_REDUCE_BEGIN] = {TWILL_TRACE_REDUCE_END, SAME_KIND},
    [TWILL_TRACE_BUCKET_BEGIN] = {TWILL_TRACE_BUCKET_END, SAME_PEER},
    [TWILL_TRACE_FUSE_IN_BEGIN] = {TWILL_TRACE_FUSE_IN_END, SAME_PEER},
    [TWILL_TRACE_FUSE_OUT_BEGIN] = {TWILL_TRACE_FUSE_OUT_END, SAME_PEER},
    [TWILL_TRACE_UPDATE_BEGIN] = {TWILL_TRACE_UPDATE_END, SAME_PEER},
};

struct twill_timeline_open_events {
    struct twill_timeline *timeline;
    pthread_mutex_t lock; /* several threads record events of one communicator */
    uint32_t comm;
    char **name; /* [names] of tensors, or NULL */
    size_t names;
    unsigned count;
    uint64_t in_flight[2];                  /* bytes to be sent, received */
    uint32_t lanes[TWILL_TRACE_KIND_COUNT]; /* in use, a bit each */
    uint32_t named[TWILL_TRACE_KIND_COUNT]; /* lanes whose track has a name */
    struct twill_trace_event begun[OPEN_MOST];
    uint8_t lane[OPEN_MOST];
};

struct twill_timeline_open_events *twill_timeline_events_new(struct twill_timeline *timeline,
                                                             uint32_t comm)
{
    struct twill_timeline_open_events *open = calloc(1, sizeof(*open));
    if (open != NULL) {
        open->timeline = timeline;
        open->comm = comm;
        pthread_mutex_init(&open->lock, NULL);
    }
    return open;
}

void twill_timeline_events_free(struct twill_timeline_open_events *open)
{
    if (open == NULL)
        return;
    for (size_t i = 0; i < open->names; i++)
        free(open->name[i]);
    free(open->name);
    pthread_mutex_destroy(&open->lock);
    free(open);
}

void twill_timeline_events_name(struct twill_timeline_open_events *open, uint32_t index,
                                const char *name)
{
    pthread_mutex_lock(&open->lock);
    if (index >= open->names) {
        char **more = realloc(open->name, (index + 1) * sizeof(*more));
        open->name = more != NULL ? more : open->name;
        while (more != NULL && open->names <= index)
            open->name[open->names++] = NULL;
    }
    if (index < open->names && open->name[index] == NULL)
        open->name[index] = strdup(name); /* a name that is given again is kept for old events */
    pthread_mutex_unlock(&open->lock);
}

static struct twill_timeline_event event_of(const struct twill_timeline_open_events *open,
                                            const struct twill_trace_event *event,
                                            enum twill_timeline_phase phase)
{
    return (struct twill_timeline_event){.begin = event->tick,
                                         .end = event->tick,
                                         .bytes = event->bytes,
                                         .comm = open->comm,
                                         .sequence = event->sequence,
                                         .peer = event->peer,
                                         .what = event->what,
                                         .phase = (uint8_t)phase,
                                         .kind = event->kind,
                                         .detail = (uint8_t)event->detail};
}

static void add_instant(struct twill_timeline_open_events *open,
                        const struct twill_trace_event *event)
{
    struct twill_timeline_event added = event_of(open, event, TWILL_TIMELINE_INSTANT);
    if (event->kind == TWILL_TRACE_TENSOR_READY && event->peer < open->names)
        added.name = open->name[event->peer];
    twill_timeline_add(open->timeline, &added);
}

/* Show the bytes in flight after a message has begun (by = 1) or ended (-1). */
static void count_bytes(struct twill_timeline_open_events *open,
                        const struct twill_trace_event *event, bool receives, int by)
{
    struct twill_timeline_event added = event_of(open, event, TWILL_TIMELINE_BYTES);
    open->in_flight[receives] += by > 0 ? event->bytes : -event->bytes;
    added.bytes = open->in_flight[0];
    added.more = open->in_flight[1];
    twill_timeline_add(open->timeline, &added);
}

/* Take the lowest free lane of a kind, and name its track when it is used first. */
static uint8_t take_lane(struct twill_timeline_open_events *open,
                         const struct twill_trace_event *event)
{
    uint32_t used = open->lanes[event->kind];
    uint8_t lane = used == UINT32_MAX ? LANES_MOST - 1 : (uint8_t)__builtin_ctz(~used);
    open->lanes[event->kind] |= UINT32_C(1) << lane;
    if ((open->named[event->kind] >> lane & 1) == 0) {
        struct twill_timeline_event name = event_of(open, event, TWILL_TIMELINE_TRACK);
        name.lane = lane;
        open->named[event->kind] |= UINT32_C(1) << lane;
        twill_timeline_add(open->timeline, &name);
    }
    return lane;
}

/* Forget an event that has begun, and free its lane. The oldest stay first. */
static void drop_begun(struct twill_timeline_open_events *open, unsigned i)
{
    open->lanes[open->begun[i].kind] &= ~(UINT32_C(1) << open->lane[i]);
    open->count--;
    for (; i < open->count; i++) {
        open->begun[i] = open->begun[i + 1];
        open->lane[i] = open->lane[i + 1];
    }
}

static void begin_event(struct twill_timeline_open_events *open,
                        const struct twill_trace_event *event)
{
    if (open->count == OPEN_MOST) {
        add_instant(open, &open->begun[0]);
        drop_begun(open, 0);
    }
    open->lane[open->count] = take_lane(open, event);
    open->begun[open->count++] = *event;
    if (event->kind == TWILL_TRACE_SEND_BEGIN || event->kind == TWILL_TRACE_RECV_BEGIN)
        count_bytes(open, event, event->kind == TWILL_TRACE_RECV_BEGIN, 1);
}

static bool are_pair(const struct twill_trace_event *begin, const struct twill_trace_event *end)
{
    const struct row *row = &rows[begin->kind];
    return row->ends == end->kind && ((row->same & SAME_PEER) == 0 || begin->peer == end->peer) &&
           ((row->same & SAME_SEQUENCE) == 0 || begin->sequence == end->sequence) &&
           ((row->same & SAME_DETAIL) == 0 || begin->detail == end->detail);
}

/* Add the span of an event that ends. Returns false if its begin is not known. */
static bool end_event(struct twill_timeline_open_events *open,
                      const struct twill_trace_event *event)
{
    unsigned i = 0;
    while (i < open->count && !are_pair(&open->begun[i], event))
        i++;
    if (i == open->count)
        return false;
    struct twill_trace_event begun = open->begun[i];
    struct twill_timeline_event span = event_of(open, &begun, TWILL_TIMELINE_SPAN);
    span.end = event->tick;
    span.lane = open->lane[i];
    if (begun.kind == TWILL_TRACE_CALL_BEGIN)
        span.detail = (uint8_t)event->detail;
    if (begun.kind == TWILL_TRACE_SEGMENT_BEGIN)
        span.sequence = event->sequence;
    drop_begun(open, i);
    twill_timeline_add(open->timeline, &span);
    if (begun.kind == TWILL_TRACE_SEND_BEGIN || begun.kind == TWILL_TRACE_RECV_BEGIN) {
        begun.tick = event->tick;
        count_bytes(open, &begun, begun.kind == TWILL_TRACE_RECV_BEGIN, -1);
    }
    return true;
}

void twill_timeline_consume(void *user, const struct twill_trace_event *event)
{
    struct twill_timeline_open_events *open = user;
    if (event->kind >= TWILL_TRACE_KIND_COUNT)
        return;
    pthread_mutex_lock(&open->lock);
    if (rows[event->kind].ends != 0)
        begin_event(open, event);
    else if (!end_event(open, event) &&
             (event->kind == TWILL_TRACE_FAILURE || event->kind == TWILL_TRACE_TENSOR_READY ||
              event->kind == TWILL_TRACE_STEP_END))
        add_instant(open, event);
    pthread_mutex_unlock(&open->lock);
}
