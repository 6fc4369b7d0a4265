/* SPDX-License-Identifier: Apache-2.0 */
/* TWILL_TIMELINE, for its own files: the events of a rank as Chrome trace JSON, which Perfetto and
 * chrome://tracing open. One file for each rank, which is a process there; the times are those of
 * rank 0's clock.
 *
 * The file is a JSON array, an event a line, and ends with "]" after every write: what has been
 * written stays valid when the rank is killed. Events are kept in memory, and written when the
 * buffer is full, when TWILL_TIMELINE_EVERY_NS have passed, and at the end. */
#ifndef TWILL_TIMELINE_H
#define TWILL_TIMELINE_H

#include "lib/base/trace.h"
#include "lib/report/recording.h"

#define TWILL_TIMELINE_EVENTS 1024u

/* What a line of the timeline shows. */
enum twill_timeline_phase {
    TWILL_TIMELINE_SPAN,    /* from `begin` to `end` */
    TWILL_TIMELINE_INSTANT, /* at `end` */
    TWILL_TIMELINE_BYTES,   /* bytes in flight from `end` on */
    TWILL_TIMELINE_TRACK,   /* the name of a track, at its first use */
};

/* An event of the timeline. */
struct twill_timeline_event {
    uint64_t begin, end;  /* twill_ticks() */
    uint64_t bytes, more; /* more: of BYTES, those to be received */
    uint32_t comm, sequence, peer, what;
    uint8_t phase, kind; /* enum twill_timeline_phase, enum twill_trace_kind: that of its begin */
    uint8_t lane;        /* of the track: events of one kind that overlap have different ones */
    uint8_t detail;
    const char *name; /* of the tensor, kept until the communicator is closed, or NULL */
};

struct twill_timeline;

/* Append an event. Any thread. */
void twill_timeline_add(struct twill_timeline *timeline, const struct twill_timeline_event *event);

/* --- timeline_text.c --- */

/* The clocks between which events are converted, and what is added to this clock's ns. */
struct twill_timeline_clock {
    uint64_t ticks[2], ns[2];
    int64_t offset;
};
#define TWILL_TIMELINE_LINE 384u /* most bytes of an event's line */
/* Write an event as a line ",\n{...}". Returns its length. */
size_t twill_timeline_line(char *text, const struct twill_timeline_event *event, unsigned rank,
                           const struct twill_timeline_clock *clock);

/* --- timeline_events.c --- */

/* The events of a communicator that have begun and not ended. */
struct twill_timeline_open_events;
struct twill_timeline_open_events *twill_timeline_events_new(struct twill_timeline *timeline,
                                                             uint32_t comm);
/* The consumer of a communicator's trace; user: a struct twill_timeline_open_events. */
void twill_timeline_consume(void *user, const struct twill_trace_event *event);
/* Keep a copy of a tensor's name. Not while events come. */
void twill_timeline_events_name(struct twill_timeline_open_events *open, uint32_t index,
                                const char *name);
/* No event of it may be left in the buffer. NULL is allowed. */
void twill_timeline_events_free(struct twill_timeline_open_events *open);

#endif
