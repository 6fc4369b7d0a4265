/* SPDX-License-Identifier: Apache-2.0 */
/* TWILL_TIMELINE, the events of a rank as Chrome trace JSON, which Perfetto and chrome://tracing
 * open. Each rank has a file and is a process there. Times are those of rank 0's clock.
 *
 * The file is a JSON array with one event a line, and ends with "]" after every write, so that it
 * is always valid. Events are kept in memory, and written when the buffer is full, when
 * TWILL_TIMELINE_EVERY_NS have passed, and at the end. */
#include "algorithms/algorithms.h"
#include "fabric/bootstrap/bootstrap.h"
#include "lib/base/times.h"
#include "lib/comm/comm.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/report/recording.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EVENTS_KEPT  1024u
#define LINE_MOST    384u /* most bytes of an event's line */
#define TEXT_BYTES   ((size_t)64 << 10)
#define FILE_END     "\n]\n"
#define ALIGN_ROUNDS 16u
#define NAME_MOST    80u  /* most bytes of a tensor's name */
#define OPEN_MOST    256u /* if more events overlap, the oldest are shown as instants */
#define LANES_MOST   32u  /* most lanes of one kind, the last of which further events share */

/* What a line of the timeline shows. */
enum mark_phase {
    SHOWN_SPAN,    /* an event from `begin` to `end` */
    SHOWN_INSTANT, /* an event at `end` */
    SHOWN_BYTES,   /* the bytes in flight from `end` on */
    SHOWN_TRACK,   /* the name of a track, at its first use */
};

/* An event to show, kept in a timeline until it is written. */
struct shown_event {
    uint64_t begin, end;  /* twill_ticks() */
    uint64_t bytes, more; /* for SHOWN_BYTES, being sent and received; else of the event, and 0 */
    uint32_t comm, sequence, peer, what; /* `comm` is a number, the rest as in the trace's event */
    uint8_t phase, kind; /* enum mark_phase, and enum twill_trace_kind (a span: of its begin) */
    uint8_t lane;     /* lane of the track; events of one kind that overlap have different ones */
    uint8_t detail;   /* as in the trace's event */
    const char *name; /* the tensor's name, kept until the communicator is closed, or NULL */
};

/* Readings of the two clocks between which events are converted. `offset` is subtracted from ns. */
struct clock_pair {
    uint64_t ticks[2], ns[2];
    int64_t offset;
};

/* The difference between this rank's clock and that of rank 0 (twill_now()), in ns, at one time.
 * The offset is this clock minus the other, true within `error`. */
struct clock_offset {
    uint64_t at; /* twill_now() of this rank, or 0 if not measured */
    int64_t offset, error;
};

/* The timeline of a context. Its lock protects all members that are not constant. */
struct twill_timeline {
    pthread_mutex_t lock;
    const struct twill_log *log;       /* constant */
    unsigned rank;                     /* in the job; constant */
    int file;                          /* descriptor, or -1 after a failure */
    off_t end;                         /* offset of FILE_END */
    unsigned count;                    /* number of events kept */
    uint64_t flushed;                  /* twill_now() when events were last written */
    struct clock_pair clock;           /* [0] is of the write before, [1] of the present one */
    struct clock_offset offset, later; /* measured at the start and at the end of the job */
    struct shown_event events[EVENTS_KEPT];
    char text[TEXT_BYTES + LINE_MOST + sizeof(FILE_END)]; /* lines to write, while they are made */
};

/* JSON is written without printf, which costs more than the events. */

static const char *const names[TWILL_TRACE_KIND_COUNT] = {
    [TWILL_TRACE_POINT_BEGIN] = "message",     [TWILL_TRACE_WAIT_BEGIN] = "wait for peer",
    [TWILL_TRACE_FAILURE] = "failure",         [TWILL_TRACE_SEGMENT_BEGIN] = "segment",
    [TWILL_TRACE_SEND_BEGIN] = "send",         [TWILL_TRACE_RECV_BEGIN] = "receive",
    [TWILL_TRACE_REDUCE_BEGIN] = "reduce",     [TWILL_TRACE_TENSOR_READY] = "ready",
    [TWILL_TRACE_BUCKET_BEGIN] = "bucket",     [TWILL_TRACE_FUSE_IN_BEGIN] = "fuse in",
    [TWILL_TRACE_FUSE_OUT_BEGIN] = "fuse out", [TWILL_TRACE_UPDATE_BEGIN] = "update",
    [TWILL_TRACE_STEP_END] = "step",
};

/* Write a text without '\0'. Returns its end. */
static char *put_text(char *to, const char *text)
{
    size_t length = strlen(text);
    memcpy(to, text, length);
    return to + length;
}

/* Write a number in decimal. Returns its end. */
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

/* Write `name`, with its quotes and colon, and then a number. Returns the end of the text. */
static char *put_member(char *to, const char *name, uint64_t number)
{
    return put_number(put_text(to, name), number);
}

/* Write `name`, then `ns`, at least 0, as microseconds with three decimals. Returns the end. */
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

/* Write a blank and a tensor's name, with '_' where JSON needs an escape. Returns the end. */
static char *put_name(char *to, const char *name)
{
    *to++ = ' ';
    for (unsigned i = 0; name[i] != '\0' && i < NAME_MOST; i++)
        *to++ = name[i] == '"' || name[i] == '\\' || (signed char)name[i] < ' ' ? '_' : name[i];
    return to;
}

/* Return the name of an event's collective or, in other events, of its kind. */
static const char *event_name(const struct shown_event *event)
{
    if (event->kind == TWILL_TRACE_CALL_BEGIN) {
        enum twill_collective collective = (enum twill_collective)(event->what & 0x7f);
        return collective < TWILL_COLLECTIVE_COUNT ? twill_collective_name(collective) : "set-up";
    }
    return names[event->kind] != NULL ? names[event->kind] : "?";
}

/* Return the number of a track in its process, ordered by communicator, kind and lane. */
static uint64_t track_of(const struct shown_event *event)
{
    return ((uint64_t)event->comm * TWILL_TRACE_KIND_COUNT + event->kind) * 100 + event->lane + 1;
}

/* Return the ns of rank 0's clock at a tick of this rank. */
static int64_t time_of(const struct clock_pair *clock, uint64_t ticks)
{
    double rate =
        clock->ticks[1] > clock->ticks[0]
            ? (double)(clock->ns[1] - clock->ns[0]) / (double)(clock->ticks[1] - clock->ticks[0])
            : 0;
    double after = (double)(int64_t)(ticks - clock->ticks[0]) * rate;
    return (int64_t)clock->ns[0] + (int64_t)after - clock->offset;
}

/* Write the arguments of an event, and its end. Returns the end of the text. */
static char *put_arguments(char *to, const struct shown_event *event)
{
    to = put_member(to, ",\"args\":{\"comm\":", event->comm);
    if (event->sequence != 0)
        to = put_member(to, ",\"seq\":", event->sequence);
    if (event->kind != TWILL_TRACE_WAIT_BEGIN && event->kind != TWILL_TRACE_STEP_END)
        to = put_member(to, ",\"bytes\":", event->bytes);
    if (event->peer != TWILL_TRACE_NO_PEER && event->kind != TWILL_TRACE_SEGMENT_BEGIN)
        to = put_member(to, event->kind >= TWILL_TRACE_TENSOR_READY ? ",\"index\":" : ",\"peer\":",
                        event->peer);
    if (event->kind == TWILL_TRACE_CALL_BEGIN && event->detail != 0)
        to = put_member(to, ",\"failed\":", event->detail);
    return put_text(to, "}}");
}

/* Write a line that names a track, as "call (COMM)", or "send 2 (COMM)" if its lane is 2, not 0. */
static char *put_track(char *to, const struct shown_event *event, unsigned rank)
{
    to = put_member(to, ",\n{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":", rank);
    to = put_member(to, ",\"tid\":", track_of(event));
    to = put_text(put_text(to, ",\"args\":{\"name\":\""),
                  event->kind == TWILL_TRACE_CALL_BEGIN ? "call" : event_name(event));
    if (event->lane > 0)
        to = put_member(to, " ", event->lane);
    return put_text(put_member(to, " (", event->comm), ")\"}}");
}

/* Write a line with the bytes in flight, sent and received, from event->end on. Returns its end. */
static char *put_bytes(char *to, const struct shown_event *event, unsigned rank,
                       const struct clock_pair *clock)
{
    to = put_member(to, ",\n{\"name\":\"bytes in flight\",\"ph\":\"C\",\"pid\":", rank);
    to = put_time(to, ",\"ts\":", time_of(clock, event->end));
    to = put_member(to, ",\"args\":{\"send\":", event->bytes);
    return put_text(put_member(to, ",\"receive\":", event->more), "}}");
}

/* Write an event as a line ",\n{...}". Returns its length. */
static size_t line_of(char *text, const struct shown_event *event, unsigned rank,
                      const struct clock_pair *clock)
{
    if (event->phase == SHOWN_TRACK)
        return (size_t)(put_track(text, event, rank) - text);
    if (event->phase == SHOWN_BYTES)
        return (size_t)(put_bytes(text, event, rank, clock) - text);
    bool spans = event->phase == SHOWN_SPAN;
    int64_t begin = time_of(clock, event->begin), end = time_of(clock, event->end);
    if (event->kind == TWILL_TRACE_WAIT_BEGIN)
        begin -= (int64_t)event->bytes; /* how long before its record the wait began */
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

/* Write t->text over the array's end in the file, and a new end behind it. After a failure, warn
 * and close the file. The lock is held. */
static void write_text(struct twill_timeline *t, size_t bytes)
{
    if (t->file < 0 || bytes == 0)
        return;
    memcpy(t->text + bytes, FILE_END, strlen(FILE_END));
    size_t all = bytes + strlen(FILE_END), done = 0;
    while (done < all) {
        ssize_t n = pwrite(t->file, t->text + done, all - done, t->end + (off_t)done);
        if (n <= 0 && errno != EINTR) {
            twill_say(t->log, TWILL_LOG_WARN, "TWILL_TIMELINE: cannot write: %s", strerror(errno));
            close(t->file);
            t->file = -1;
            return;
        }
        done += n > 0 ? (size_t)n : 0;
    }
    t->end += (off_t)bytes;
}

/* Write all kept events to the file, so that none is kept any more. The lock is held. */
static void flush_events(struct twill_timeline *t)
{
    size_t used = 0;
    t->clock.ticks[1] = twill_ticks();
    t->clock.ns[1] = t->flushed = twill_now();
    for (unsigned i = 0; i < t->count; i++) {
        used += line_of(t->text + used, &t->events[i], t->rank, &t->clock);
        if (used < TEXT_BYTES)
            continue;
        write_text(t, used);
        used = 0;
    }
    write_text(t, used);
    t->count = 0;
    t->clock.ticks[0] = t->clock.ticks[1];
    t->clock.ns[0] = t->clock.ns[1];
}

/* Keep an event, and write all that are kept if they are many or old. Takes the lock. */
static void add_event(struct twill_timeline *timeline, const struct shown_event *event)
{
    pthread_mutex_lock(&timeline->lock);
    timeline->events[timeline->count++] = *event;
    if (timeline->count == EVENTS_KEPT ||
        (timeline->count % 64 == 0 && twill_now() - timeline->flushed > TWILL_TIMELINE_EVERY_NS))
        flush_events(timeline);
    pthread_mutex_unlock(&timeline->lock);
}

/* Write the measured offsets of the clock as an event, for twill-trace. The lock is held. */
static void write_clock(struct twill_timeline *t)
{
    const struct clock_offset *at = &t->offset, *to = &t->later;
    int n = snprintf(t->text, LINE_MOST,
                     ",\n{\"name\":\"twill_clock\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"at\":%lld,"
                     "\"offset\":%lld,\"error\":%lld,\"later\":%lld,\"later_offset\":%lld,"
                     "\"later_error\":%lld}}",
                     t->rank, (long long)((int64_t)at->at - at->offset), (long long)at->offset,
                     (long long)at->error,
                     to->at == 0 ? 0LL : (long long)((int64_t)to->at - to->offset),
                     (long long)to->offset, (long long)to->error);
    write_text(t, (size_t)n);
}

/* Begins and ends of events become spans on tracks, and messages become a counter of bytes. An end
 * has these members in common with its begin. */
enum same { SAME_KIND, SAME_PEER = 1, SAME_SEQUENCE = 2, SAME_DETAIL = 4 };

/* How the events of a kind end. A constant. */
static const struct row {
    uint8_t ends; /* kind of the end, or 0 for an instant */
    uint8_t same; /* what an end has in common with its begin, a set of enum same */
} rows[TWILL_TRACE_KIND_COUNT] = {
    [TWILL_TRACE_CALL_BEGIN] = {TWILL_TRACE_CALL_END, SAME_SEQUENCE},
    [TWILL_TRACE_POINT_BEGIN] = {TWILL_TRACE_POINT_END, SAME_PEER},
    [TWILL_TRACE_WAIT_BEGIN] = {TWILL_TRACE_WAIT_END, SAME_KIND},
    /* On the fast path a segment begins before its call has a number, but its epoch is unique. */
    [TWILL_TRACE_SEGMENT_BEGIN] = {TWILL_TRACE_SEGMENT_END, SAME_PEER},
    [TWILL_TRACE_SEND_BEGIN] = {TWILL_TRACE_SEND_END, SAME_SEQUENCE | SAME_PEER | SAME_DETAIL},
    [TWILL_TRACE_RECV_BEGIN] = {TWILL_TRACE_RECV_END, SAME_SEQUENCE | SAME_PEER | SAME_DETAIL},
    [TWILL_TRACE_REDUCE_BEGIN] = {TWILL_TRACE_REDUCE_END, SAME_KIND},
    [TWILL_TRACE_BUCKET_BEGIN] = {TWILL_TRACE_BUCKET_END, SAME_PEER},
    [TWILL_TRACE_FUSE_IN_BEGIN] = {TWILL_TRACE_FUSE_IN_END, SAME_PEER},
    [TWILL_TRACE_FUSE_OUT_BEGIN] = {TWILL_TRACE_FUSE_OUT_END, SAME_PEER},
    [TWILL_TRACE_UPDATE_BEGIN] = {TWILL_TRACE_UPDATE_END, SAME_PEER},
};

/* The events of a communicator that have begun and not ended, while it is recorded. */
struct spans {
    struct twill_timeline *timeline;
    pthread_mutex_t lock; /* several threads record events of one communicator */
    uint32_t comm;        /* number of the communicator */
    char **name;          /* [names] names of tensors, each may be NULL */
    size_t names;
    unsigned count;                         /* of begun[] and lane[] that are in use */
    uint64_t in_flight[2];                  /* bytes being sent, and being received */
    uint32_t lanes[TWILL_TRACE_KIND_COUNT]; /* lanes in use, a bit each */
    uint32_t named[TWILL_TRACE_KIND_COUNT]; /* lanes whose track has a name */
    struct twill_trace_event begun[OPEN_MOST];
    uint8_t lane[OPEN_MOST];
};

/* Return what keeps the begun events of communicator `comm`, or NULL if out of memory. */
static struct spans *new_spans(struct twill_timeline *timeline, uint32_t comm)
{
    struct spans *open = calloc(1, sizeof(*open));
    if (open != NULL) {
        open->timeline = timeline;
        open->comm = comm;
        pthread_mutex_init(&open->lock, NULL);
    }
    return open;
}

/* Free what keeps the begun events of a communicator, which may be NULL. */
static void free_spans(struct spans *open)
{
    if (open == NULL)
        return;
    for (size_t i = 0; i < open->names; i++)
        free(open->name[i]);
    free(open->name);
    pthread_mutex_destroy(&open->lock);
    free(open);
}

/* Return an event of a trace in the form to show it, as `phase`. */
static struct shown_event event_of(const struct spans *open, const struct twill_trace_event *event,
                                   enum mark_phase phase)
{
    return (struct shown_event){.begin = event->tick,
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

/* Add an event to the timeline as an instant, with its tensor's name from open->name, if any. */
static void add_instant(struct spans *open, const struct twill_trace_event *event)
{
    struct shown_event added = event_of(open, event, SHOWN_INSTANT);
    if (event->kind == TWILL_TRACE_TENSOR_READY && event->peer < open->names)
        added.name = open->name[event->peer];
    add_event(open->timeline, &added);
}

/* Count a message that begins (by = 1) or ends (-1), and add the bytes in flight as an event. */
static void count_bytes(struct spans *open, const struct twill_trace_event *event, bool receives,
                        int by)
{
    struct shown_event added = event_of(open, event, SHOWN_BYTES);
    open->in_flight[receives] += by > 0 ? event->bytes : -event->bytes;
    added.bytes = open->in_flight[0];
    added.more = open->in_flight[1];
    add_event(open->timeline, &added);
}

/* Take and return the lowest free lane for an event, else the last. A lane is one of the lines on
 * which events of a kind are drawn. At its first use add an event that names it. */
static uint8_t take_lane(struct spans *open, const struct twill_trace_event *event)
{
    uint32_t used = open->lanes[event->kind];
    uint8_t lane = used == UINT32_MAX ? LANES_MOST - 1 : (uint8_t)__builtin_ctz(~used);
    open->lanes[event->kind] |= UINT32_C(1) << lane;
    if ((open->named[event->kind] >> lane & 1) == 0) {
        struct shown_event name = event_of(open, event, SHOWN_TRACK);
        name.lane = lane;
        open->named[event->kind] |= UINT32_C(1) << lane;
        add_event(open->timeline, &name);
    }
    return lane;
}

/* Forget event i that has begun, and free its lane. The others keep their order. */
static void drop_begun(struct spans *open, unsigned i)
{
    open->lanes[open->begun[i].kind] &= ~(UINT32_C(1) << open->lane[i]);
    open->count--;
    for (; i < open->count; i++) {
        open->begun[i] = open->begun[i + 1];
        open->lane[i] = open->lane[i + 1];
    }
}

/* Remember an event that has begun. If OPEN_MOST are remembered, forget the oldest and show it as
 * an instant. */
static void begin_event(struct spans *open, const struct twill_trace_event *event)
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

/* Return whether two events are the begin and the end of the same thing. */
static bool are_pair(const struct twill_trace_event *begin, const struct twill_trace_event *end)
{
    const struct row *row = &rows[begin->kind];
    return row->ends == end->kind && ((row->same & SAME_PEER) == 0 || begin->peer == end->peer) &&
           ((row->same & SAME_SEQUENCE) == 0 || begin->sequence == end->sequence) &&
           ((row->same & SAME_DETAIL) == 0 || begin->detail == end->detail);
}

/* If a remembered event has ended with this one, add its span to the timeline, forget it, and
 * return true. Otherwise return false. */
static bool end_event(struct spans *open, const struct twill_trace_event *event)
{
    unsigned i = 0;
    while (i < open->count && !are_pair(&open->begun[i], event))
        i++;
    if (i == open->count)
        return false;
    struct twill_trace_event begun = open->begun[i];
    struct shown_event span = event_of(open, &begun, SHOWN_SPAN);
    span.end = event->tick;
    span.lane = open->lane[i];
    if (begun.kind == TWILL_TRACE_CALL_BEGIN)
        span.detail = (uint8_t)event->detail;
    if (begun.kind == TWILL_TRACE_SEGMENT_BEGIN)
        span.sequence = event->sequence;
    drop_begun(open, i);
    add_event(open->timeline, &span);
    if (begun.kind == TWILL_TRACE_SEND_BEGIN || begun.kind == TWILL_TRACE_RECV_BEGIN) {
        begun.tick = event->tick;
        count_bytes(open, &begun, begun.kind == TWILL_TRACE_RECV_BEGIN, -1);
    }
    return true;
}

/* Add an event to the timeline. A begin waits in `user`, the struct spans, for its end. An end
 * without begin is ignored. Failures, ready tensors and ends of steps become instants at once. */
static void consume_event(void *user, const struct twill_trace_event *event)
{
    struct spans *open = user;
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

/* Write the name of a rank's file, which is the pattern with %r replaced by `number`, the rank. In
 * a job that has grown, ".eEPOCH" follows the rank. Without %r the rank goes before the ending, or
 * to the end. */
static void name_timeline(const char *pattern, unsigned number, uint32_t epoch, char path[PATH_MAX])
{
    char rank[32];
    int used = snprintf(rank, sizeof(rank), "%u", number);
    if (epoch > 0) /* else ranks that were renumbered could overwrite earlier files */
        snprintf(rank + used, sizeof(rank) - (size_t)used, ".e%u", epoch);
    const char *mark = strstr(pattern, "%r"), *slash = strrchr(pattern, '/');
    const char *dot = strrchr(pattern, '.');
    size_t length = strlen(pattern);
    if (mark != NULL)
        snprintf(path, PATH_MAX, "%.*s%s%s", (int)(mark - pattern), pattern, rank, mark + 2);
    else if (dot == NULL || (slash != NULL && dot < slash))
        snprintf(path, PATH_MAX, "%s.%s", pattern, rank);
    else
        snprintf(path, PATH_MAX, "%.*s.%s%s", (int)(length - strlen(dot)), pattern, rank, dot);
}

/* Begin the file with the rank's metadata. The job's number shows twill-trace which files match. */
static void start_file(struct twill_timeline *t, const struct twill_oob *oob)
{
    char host[HOST_NAME_MAX + 1] = "?", job[2 * TWILL_NONCE_BYTES + 1];
    for (size_t i = 0; i < TWILL_NONCE_BYTES; i++)
        snprintf(job + 2 * i, 3, "%02x", oob->origin[i]);
    (void)gethostname(host, sizeof(host) - 1);
    twill_text_plain(host, strlen(host));
    int n =
        snprintf(t->text, TEXT_BYTES,
                 "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"name\":"
                 "\"rank %u, %s:%d\"}},\n{\"name\":\"process_sort_index\",\"ph\":\"M\","
                 "\"pid\":%u,\"args\":{\"sort_index\":%u}},\n{\"name\":\"twill_job\",\"ph\":\"M\","
                 "\"pid\":%u,\"args\":{\"job\":\"%s\",\"ranks\":%d}}",
                 t->rank, t->rank, host, (int)getpid(), t->rank, t->rank, t->rank, job, oob->size);
    write_text(t, (size_t)n);
}

/* Open the timeline of a context whose rank is known. Returns NULL, after a warning, if out of
 * memory. A file that cannot be opened is only a warning, as other ranks continue without it. */
static struct twill_timeline *open_timeline(const struct twill_context *context)
{
    const char *pattern = twill_config_text(context->config, TWILL_VARIABLE_TIMELINE);
    char path[PATH_MAX];
    struct twill_timeline *t = calloc(1, sizeof(*t));
    if (t == NULL) {
        twill_say(&context->log, TWILL_LOG_WARN, "out of memory for a timeline");
        return NULL;
    }
    pthread_mutex_init(&t->lock, NULL);
    t->log = &context->log;
    t->rank = (unsigned)context->job.oob->rank;
    name_timeline(pattern, t->rank, context->job.oob->epoch, path);
    t->file = twill_fd_move(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666),
                            TWILL_FD_LEAST);
    if (t->file < 0)
        twill_say(t->log, TWILL_LOG_WARN, "TWILL_TIMELINE=%s: %s: %s", pattern, path,
                  strerror(errno));
    t->clock.ticks[0] = twill_ticks();
    t->clock.ns[0] = t->flushed = twill_now();
    start_file(t, context->job.oob);
    return t;
}

/* Write what is left, close the file, and free the timeline. */
static void close_timeline(struct twill_context *context)
{
    struct twill_timeline *timeline = context->timeline;
    flush_events(timeline);
    write_clock(timeline);
    if (timeline->file >= 0)
        close(timeline->file);
    pthread_mutex_destroy(&timeline->lock);
    free(timeline);
    context->timeline = NULL;
}

/* When a rank began a round and when it ended it or, in what it sends, the one before, in ns. */
struct clock_round {
    uint64_t begun, ended;
};

/* The narrowest bounds so far of this clock minus that of rank 0, in ns. */
struct clock_bounds {
    int64_t least, most;
};

/* Tighten the bounds by this rank's and rank 0's readings before and after an allgather. */
static void tighten(struct clock_bounds *bounds, const struct clock_round *mine,
                    const struct clock_round *theirs)
{
    int64_t least = (int64_t)(mine->begun - theirs->ended),
            most = (int64_t)(mine->ended - theirs->begun);
    bounds->least = least > bounds->least ? least : bounds->least;
    bounds->most = most < bounds->most ? most : bounds->most;
}

/* Narrow *bounds by allgathers into all[size], as scratch memory. Returns TWILL_OK or the error. */
static twill_status measure(struct twill_comm *comm, twill_gather_fn gather,
                            struct clock_round *all, struct clock_bounds *bounds)
{
    struct clock_round last = {0}, zero = {0}; /* readings of the round before */
    uint64_t ended = 0;
    for (unsigned i = 0; i <= ALIGN_ROUNDS; i++) {
        struct clock_round own = {twill_now(), ended};
        twill_status status = gather(comm, &own, all, sizeof(own) / sizeof(uint64_t), TWILL_U64);
        if (status != TWILL_OK)
            return status;
        ended = twill_now();
        if (i > 1) { /* the first allgather connects, and gives no bounds */
            last.ended = own.ended;
            zero.ended = all[0].ended;
            tighten(bounds, &last, &zero);
        }
        last.begun = own.begun;
        zero.begun = all[0].begun;
    }
    return TWILL_OK;
}

/* Set *offset, measured by some allgathers. Collective. Returns the status of these.
 *
 * No rank can end an allgather before every rank has begun it. So a rank's reading at the end is
 * later than rank 0's reading at the begin, and the reverse. Each allgather thus bounds the offset
 * from both sides, as in Cristian's algorithm, and the result is the middle of the narrowest
 * bounds. If 0 is within them, the clocks are taken to be the same one, as on ranks of one host. */
static twill_status align_clock(struct twill_comm *comm, twill_gather_fn gather,
                                struct clock_offset *offset)
{
    struct clock_bounds bounds = {INT64_MIN, INT64_MAX};
    *offset = (struct clock_offset){.at = twill_now()};
    if (comm->world->size == 1)
        return TWILL_OK;
    struct clock_round *all = calloc(comm->world->size, sizeof(*all));
    if (all == NULL)
        return TWILL_FAIL(&comm->error, TWILL_ERR_MEMORY, "out of memory for a timeline");
    twill_status status = measure(comm, gather, all, &bounds);
    free(all);
    offset->at = twill_now();
    if (status != TWILL_OK || (bounds.least <= 0 && bounds.most >= 0))
        return status;
    offset->offset = bounds.least + (bounds.most - bounds.least) / 2;
    offset->error = (bounds.most - bounds.least) / 2 + 1;
    return TWILL_OK;
}

void twill_timeline_attach(struct twill_comm *comm, twill_gather_fn gather)
{
    struct twill_context *context = comm->context;
    if (twill_config_text(context->config, TWILL_VARIABLE_TIMELINE) == NULL)
        return;
    if (context->timeline == NULL && (context->timeline = open_timeline(context)) != NULL) {
        twill_context_lock(context);
        twill_context_at_end(context, close_timeline);
        twill_context_unlock(context);
    }
    struct twill_timeline *t = context->timeline;
    if (comm->oob == context->job.oob && (t == NULL || t->offset.at == 0)) {
        struct clock_offset offset = {0};
        (void)align_clock(comm, gather, &offset); /* a failure breaks the communicator */
        if (t != NULL) {
            t->offset = offset;
            t->clock.offset = offset.offset;
        }
    }
    comm->trace.user = t != NULL ? new_spans(t, comm->number) : NULL;
    comm->trace.consumer = comm->trace.user != NULL ? consume_event : NULL;
}

void twill_timeline_align_again(struct twill_comm *comm, twill_gather_fn gather)
{
    if (!twill_comm_is_live(comm) || comm->broken || twill_context_is_forked(comm->context) ||
        comm->oob != comm->context->job.oob ||
        twill_config_text(comm->context->config, TWILL_VARIABLE_TIMELINE) == NULL)
        return;
    struct twill_timeline *t = comm->context->timeline;
    struct clock_offset offset;
    comm->trace.consumer = NULL;
    twill_comm_shorten_deadline(comm);
    (void)align_clock(comm, gather, &offset);
    if (t != NULL)
        t->later = offset;
}

void twill_timeline_name_tensor(struct twill_comm *comm, uint32_t index, const char *name)
{
    struct spans *open = comm->trace.user;
    if (comm->context->timeline == NULL || open == NULL)
        return;
    pthread_mutex_lock(&open->lock);
    if (index >= open->names) {
        char **more = realloc(open->name, (index + 1) * sizeof(*more));
        open->name = more != NULL ? more : open->name;
        while (more != NULL && open->names <= index)
            open->name[open->names++] = NULL;
    }
    if (index < open->names && open->name[index] == NULL)
        open->name[index] = strdup(name); /* old events keep a name that is given again */
    pthread_mutex_unlock(&open->lock);
}

void twill_timeline_detach(struct twill_comm *comm)
{
    struct twill_timeline *t = comm->context->timeline;
    if (t == NULL)
        return; /* if there is a consumer, it is not this one */
    pthread_mutex_lock(&t->lock);
    flush_events(t);
    pthread_mutex_unlock(&t->lock);
    free_spans(comm->trace.user);
    comm->trace.consumer = NULL;
    comm->trace.user = NULL;
}
