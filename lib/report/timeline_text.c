/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a timeline as JSON. Written by hand, since printf would cost more than the events. */
#include "algorithms/algorithms.h"
#include "lib/report/timeline.h"

#include <string.h>

#define NAME_MOST 80u /* bytes of a tensor's name */

static const char *const names[TWILL_TRACE_KIND_COUNT] = {
    [TWILL_TRACE_POINT_BEGIN] = "message",     [TWILL_TRACE_WAIT_BEGIN] = "wait for peer",
    [TWILL_TRACE_FAILURE] = "failure",         [TWILL_TRACE_SEGMENT_BEGIN] = "segment",
    [TWILL_TRACE_SEND_BEGIN] = "send",         [TWILL_TRACE_RECV_BEGIN] = "receive",
    [TWILL_TRACE_REDUCE_BEGIN] = "reduce",     [TWILL_TRACE_TENSOR_READY] = "ready",
    [TWILL_TRACE_BUCKET_BEGIN] = "bucket",     [TWILL_TRACE_FUSE_IN_BEGIN] = "fuse in",
    [TWILL_TRACE_FUSE_OUT_BEGIN] = "fuse out", [TWILL_TRACE_UPDATE_BEGIN] = "update",
    [TWILL_TRACE_STEP_END] = "step",
};

static char *put_text(char *to, const char *text)
{
    size_t length = strlen(text);
    memcpy(to, text, length);
    return to + length;
}

static char *put_number(char *to, uint64_t number)
{
    char digits[20];
    unsigned n = 0;
    do
        digits[n++] = (char)('0' + number % 10);
    while ((number /= 10) != 0);
    while (n > 0)
        *to++ = digits[--n];
    return to;
}

static char *put_member(char *to, const char *name, uint64_t number)
{
    return put_number(put_text(to, name), number);
}

/* Write ns as microseconds with three decimals. */
static char *put_time(char *to, const char *name, int64_t ns)
{
    uint64_t n = ns > 0 ? (uint64_t)ns : 0;
    to = put_number(put_text(to, name), n / 1000);
    *to++ = '.';
    *to++ = (char)('0' + n / 100 % 10);
    *to++ = (char)('0' + n / 10 % 10);
    *to++ = (char)('0' + n % 10);
    return to;
}

/* Write a blank and a name that a program has given, as JSON has it. */
static char *put_name(char *to, const char *name)
{
    *to++ = ' ';
    for (unsigned i = 0; name[i] != '\0' && i < NAME_MOST; i++)
        *to++ = name[i] == '"' || name[i] == '\\' || (signed char)name[i] < ' ' ? '_' : name[i];
    return to;
}

static const char *event_name(const struct twill_timeline_event *event)
{
    if (event->kind == TWILL_TRACE_CALL_BEGIN) {
        enum twill_collective collective = (enum twill_collective)(event->what & 0x7f);
        return collective < TWILL_COLLECTIVE_COUNT ? twill_collective_name(collective) : "set-up";
    }
    return names[event->kind] != NULL ? names[event->kind] : "?";
}

/* The number of a track in its process: communicators, kinds and lanes in this order. */
static uint64_t track_of(const struct twill_timeline_event *event)
{
    return ((uint64_t)event->comm * TWILL_TRACE_KIND_COUNT + event->kind) * 100 + event->lane + 1;
}

static int64_t time_of(const struct twill_timeline_clock *clock, uint64_t ticks)
{
    double rate =
        clock->ticks[1] > clock->ticks[0]
            ? (double)(clock->ns[1] - clock->ns[0]) / (double)(clock->ticks[1] - clock->ticks[0])
            : 0;
    double after = (double)(int64_t)(ticks - clock->ticks[0]) * rate;
    return (int64_t)clock->ns[0] + (int64_t)after - clock->offset;
}

static char *put_arguments(char *to, const struct twill_timeline_event *event)
{
    to = put_member(to, ",\"args\":{\"comm\":", event->comm);
    if (event->sequence != 0)
        to = put_member(to, ",\"seq\":", event->sequence);
    if (event->kind != TWILL_TRACE_WAIT_BEGIN)
        to = put_member(to, ",\"bytes\":", event->bytes);
    if (event->peer != TWILL_TRACE_NO_PEER && event->kind != TWILL_TRACE_SEGMENT_BEGIN)
        to = put_member(to, event->kind >= TWILL_TRACE_TENSOR_READY ? ",\"index\":" : ",\"peer\":",
                        event->peer);
    if (event->kind == TWILL_TRACE_CALL_BEGIN && event->detail != 0)
        to = put_member(to, ",\"failed\":", event->detail);
    return put_text(to, "}}");
}

/* Names of tracks: "call", "send 2" for the third that overlaps; with the communicator, unless it
 * is the first. */
static char *put_track(char *to, const struct twill_timeline_event *event, unsigned rank)
{
    to = put_member(to, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":", rank);
    to = put_member(to, ",\"tid\":", track_of(event));
    to = put_text(put_text(to, ",\"args\":{\"name\":\""),
                  event->kind == TWILL_TRACE_CALL_BEGIN ? "call" : event_name(event));
    if (event->lane > 0)
        to = put_member(to, " ", event->lane);
    return put_text(put_member(to, " (", event->comm), ")\"}}");
}

static char *put_bytes(char *to, const struct twill_timeline_event *event, unsigned rank,
                       const struct twill_timeline_clock *clock)
{
    to = put_member(to, ",\n{\"name\":\"bytes in flight\",\"ph\":\"C\",\"pid\":", rank);
    to = put_time(to, ",\"ts\":", time_of(clock, event->end));
    to = put_member(to, ",\"args\":{\"send\":", event->bytes);
    return put_text(put_member(to, ",\"receive\":", event->more), "}}");
}

size_t twill_timeline_line(char *text, const struct twill_timeline_event *event, unsigned rank,
                           const struct twill_timeline_clock *clock)
{
    if (event->phase == TWILL_TIMELINE_TRACK)
        return (size_t)(put_track(text, event, rank) - text);
    if (event->phase == TWILL_TIMELINE_BYTES)
        return (size_t)(put_bytes(text, event, rank, clock) - text);
    bool spans = event->phase == TWILL_TIMELINE_SPAN;
    int64_t begin = time_of(clock, event->begin), end = time_of(clock, event->end);
    if (event->kind == TWILL_TRACE_WAIT_BEGIN)
        begin -= (int64_t)event->bytes; /* it had begun so long before */
    char *to = put_text(put_text(text, ",\n{\"name\":\""), event_name(event));
    if (event->name != NULL)
        to = put_name(to, event->name);
    to = put_text(to, "\",\"cat\":\"");
    to = put_text(to, event->kind == TWILL_TRACE_CALL_BEGIN ? "call" : event_name(event));
    to = put_text(to, spans ? "\",\"ph\":\"X\",\"pid\":" : "\",\"ph\":\"i\",\"s\":\"p\",\"pid\":");
    to = put_member(put_number(to, rank), ",\"tid\":", track_of(event));
    to = put_time(to, ",\"ts\":", begin);
    if (spans)
        to = put_time(to, ",\"dur\":", end - begin);
    to = put_arguments(to, event);
    return (size_t)(to - text);
}
