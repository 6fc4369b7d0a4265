/* SPDX-License-Identifier: Apache-2.0 */
/* The file of a timeline, its buffer, and how far the clocks of ranks are apart. */
#include "lib/report/timeline.h"
#include "fabric/bootstrap/bootstrap.h"
#include "lib/base/times.h"
#include "lib/comm/comm.h"
#include "lib/job/config.h"
#include "lib/job/context.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TEXT_BYTES   ((size_t)64 << 10)
#define FILE_END     "\n]\n"
#define ALIGN_ROUNDS 16u

/* The difference between this rank's clock and that of rank 0 (twill_now()), at one time. Both are
 * in ns; offset is this clock minus the other, true within error. */
struct clock_offset {
    uint64_t at; /* twill_now() of this rank; 0: not measured */
    int64_t offset, error;
};

/* Belongs to a context. Its lock protects all but what is constant. */
struct twill_timeline {
    pthread_mutex_t lock;
    const struct twill_log *log; /* constant */
    unsigned rank;               /* in the job; constant */
    int file;                    /* -1 after a failed write */
    off_t end;                   /* where FILE_END begins */
    unsigned count;
    uint64_t flushed;                  /* twill_now() */
    struct twill_timeline_clock clock; /* [0] of the last flush */
    struct clock_offset offset, later; /* at the start, at the end */
    struct twill_timeline_event events[TWILL_TIMELINE_EVENTS];
    char text[TEXT_BYTES + TWILL_TIMELINE_LINE + sizeof(FILE_END)];
};

/* Write text behind what is there, and the end of the array behind it. Has the lock. */
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

/* Write all events that are kept. Has the lock. */
static void flush_events(struct twill_timeline *t)
{
    size_t used = 0;
    t->clock.ticks[1] = twill_ticks();
    t->clock.ns[1] = t->flushed = twill_now();
    for (unsigned i = 0; i < t->count; i++) {
        used += twill_timeline_line(t->text + used, &t->events[i], t->rank, &t->clock);
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

void twill_timeline_add(struct twill_timeline *timeline, const struct twill_timeline_event *event)
{
    pthread_mutex_lock(&timeline->lock);
    timeline->events[timeline->count++] = *event;
    if (timeline->count == TWILL_TIMELINE_EVENTS ||
        (timeline->count % 64 == 0 && twill_now() - timeline->flushed > TWILL_TIMELINE_EVERY_NS))
        flush_events(timeline);
    pthread_mutex_unlock(&timeline->lock);
}

/* Write what is known about the clock, where readers expect it. Has the lock. */
static void write_clock(struct twill_timeline *t)
{
    const struct clock_offset *at = &t->offset, *to = &t->later;
    int n = snprintf(t->text, TWILL_TIMELINE_LINE,
                     ",\n{\"name\":\"twill_clock\",\"ph\":\"M\",\"pid\":%u,\"args\":{\"at\":%lld,"
                     "\"offset\":%lld,\"error\":%lld,\"later\":%lld,\"later_offset\":%lld,"
                     "\"later_error\":%lld}}",
                     t->rank, (long long)((int64_t)at->at - at->offset), (long long)at->offset,
                     (long long)at->error,
                     to->at == 0 ? 0LL : (long long)((int64_t)to->at - to->offset),
                     (long long)to->offset, (long long)to->error);
    write_text(t, (size_t)n);
}

/* --- opening --------------------------------------------------------------------------------- */

/* Write the name of a rank's file: the pattern, with %r replaced by the rank; without %r it goes
 * before the ending, or to the end. */
static void name_timeline(const char *pattern, unsigned number, uint32_t epoch, char path[PATH_MAX])
{
    char rank[32];
    int used = snprintf(rank, sizeof(rank), "%u", number);
    if (epoch > 0) /* ranks have other numbers, and this process may write an earlier file */
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

/* Write whose file it is. The job's number tells twill-trace which files belong together. */
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

/* Open the timeline of a context whose rank is known. Returns NULL after a warning if out of
 * memory; a file that cannot be opened is only a warning, as other ranks go on. */
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

/* Write what is left, and close the file. */
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

/* --- clocks -------------------------------------------------------------------------------- */

/* What a rank contributes to a round: when it began this one, and when it ended the one before. */
struct clock_round {
    uint64_t begun, ended;
};

/* The narrowest bounds of this clock minus that of rank 0 so far. */
struct clock_bounds {
    int64_t least, most;
};

/* Tighten the bounds by one allgather: mine and rank 0's readings before and after it. */
static void tighten(struct clock_bounds *bounds, const struct clock_round *mine,
                    const struct clock_round *theirs)
{
    int64_t least = (int64_t)(mine->begun - theirs->ended),
            most = (int64_t)(mine->ended - theirs->begun);
    bounds->least = least > bounds->least ? least : bounds->least;
    bounds->most = most < bounds->most ? most : bounds->most;
}

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
        if (i > 1) { /* the first makes connections */
            last.ended = own.ended;
            zero.ended = all[0].ended;
            tighten(bounds, &last, &zero);
        }
        last.begun = own.begun;
        zero.begun = all[0].begun;
    }
    return TWILL_OK;
}

/* Measure the offset by some allgathers. Collective; costs some round trips.
 *
 * No rank can end an allgather before every rank has begun it. So what a rank reads at its end is
 * later than what rank 0 read at its begin, and the reverse: each allgather bounds the offset from
 * both sides, as in Cristian's algorithm, and the offset is the middle of the narrowest bounds.
 * Where 0 is within them, the clocks are taken for the same one: they are on ranks of one host. */
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

/* --- communicators --------------------------------------------------------------------------- */

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
    comm->trace.user = t != NULL ? twill_timeline_events_new(t, comm->number) : NULL;
    comm->trace.consumer = comm->trace.user != NULL ? twill_timeline_consume : NULL;
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
    if (comm->context->timeline != NULL && comm->trace.user != NULL)
        twill_timeline_events_name(comm->trace.user, index, name);
}

void twill_timeline_detach(struct twill_comm *comm)
{
    struct twill_timeline *t = comm->context->timeline;
    if (t == NULL)
        return; /* the consumer, if there is one, is not ours */
    pthread_mutex_lock(&t->lock);
    flush_events(t);
    pthread_mutex_unlock(&t->lock);
    twill_timeline_events_free(comm->trace.user);
    comm->trace.consumer = NULL;
    comm->trace.user = NULL;
}
