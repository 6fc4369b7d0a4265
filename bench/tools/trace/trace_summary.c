/* SPDX-License-Identifier: Apache-2.0 */
/* Where the time went: shares of each rank, and the ranks that others waited for. A call of several
 * ranks is one with the same number on the same communicator: all of them wait until the last of
 * them begins. */
#include "bench/tools/trace/trace_tool.h"
#include "lib/base/plural.h"

#include <json-c/json.h>
#include <stdlib.h>
#include <string.h>

/* A call of all its ranks. */
struct joint_call {
    const struct trace_span *last; /* the span of the rank that began last */
    double waiting;                /* us, of the others until then, together */
    unsigned ranks;
};

/* What a rank did, and what it has cost others. Times in us. */
struct rank_sum {
    uint32_t rank;
    double phase[TRACE_PHASE_COUNT];
    double waiting; /* for the last rank of calls */
    double caused;  /* waiting of others, in calls that it began last */
    size_t late;    /* those calls */
};

struct trace_summary {
    struct rank_sum *ranks;
    size_t rank_count;
    struct joint_call *calls; /* those that cost most first */
    size_t call_count;
    double span;  /* us */
    double error; /* us: of the clocks; < 0: some rank's is unknown */
};

static const char *const phase_names[] = {
#define X(NOUN, name) name,
    TRACE_PHASES(X)
#undef X
};

static int compare_spans(const void *left, const void *right)
{
    const struct trace_span *a = *(const struct trace_span *const *)left,
                            *b = *(const struct trace_span *const *)right;
    if (a->comm != b->comm)
        return a->comm < b->comm ? -1 : 1;
    if (a->sequence != b->sequence)
        return a->sequence < b->sequence ? -1 : 1;
    return (a->begin > b->begin) - (a->begin < b->begin);
}

static int compare_calls(const void *left, const void *right)
{
    const struct joint_call *a = left, *b = right;
    return (b->waiting > a->waiting) - (b->waiting < a->waiting);
}

static int compare_sums(const void *left, const void *right)
{
    const struct rank_sum *a = left, *b = right;
    return (a->rank > b->rank) - (a->rank < b->rank);
}

static int compare_caused(const void *left, const void *right)
{
    const struct rank_sum *a = left, *b = right;
    return (b->caused > a->caused) - (b->caused < a->caused);
}

static struct rank_sum *sum_of(const struct trace_summary *summary, uint32_t rank)
{
    size_t i = 0;
    while (i + 1 < summary->rank_count && summary->ranks[i].rank != rank)
        i++;
    return &summary->ranks[i];
}

/* Join spans[0 .. n-1], which are one call, in the order in which its ranks began it. */
static struct joint_call join(struct trace_summary *summary, const struct trace_span **spans,
                              size_t n)
{
    struct joint_call call = {.last = spans[n - 1], .ranks = (unsigned)n};
    for (size_t i = 0; i + 1 < n; i++) {
        double until = call.last->begin < spans[i]->end ? call.last->begin : spans[i]->end;
        call.waiting += until - spans[i]->begin;
        sum_of(summary, spans[i]->rank)->waiting += until - spans[i]->begin;
    }
    struct rank_sum *cause = sum_of(summary, call.last->rank);
    cause->caused += call.waiting;
    cause->late += n > 1;
    return call;
}

static bool join_calls(const struct trace_job *job, struct trace_summary *summary)
{
    const struct trace_span **spans = malloc((job->count + 1) * sizeof(const void *));
    size_t n = 0;
    summary->calls = malloc((job->count + 1) * sizeof(*summary->calls));
    if (spans == NULL || summary->calls == NULL) {
        free(spans);
        return false;
    }
    for (size_t i = 0; i < job->count; i++)
        if (job->spans[i].phase == TRACE_CALL)
            spans[n++] = &job->spans[i];
    qsort(spans, n, sizeof(const void *), compare_spans);
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && spans[next]->comm == spans[i]->comm &&
                           spans[next]->sequence == spans[i]->sequence;)
            next++;
        summary->calls[summary->call_count++] = join(summary, spans + i, next - i);
    }
    free(spans);
    qsort(summary->calls, summary->call_count, sizeof(*summary->calls), compare_calls);
    return true;
}

static bool summarize(const struct trace_job *job, struct trace_summary *summary)
{
    *summary = (struct trace_summary){.rank_count = job->rank_count};
    summary->ranks = calloc(job->rank_count + 1, sizeof(*summary->ranks));
    if (summary->ranks == NULL)
        return false;
    for (size_t i = 0; i < job->rank_count; i++) {
        const struct trace_rank *rank = &job->ranks[i];
        summary->ranks[i].rank = rank->rank;
        if (!rank->has_clock)
            summary->error = -1;
        else if (summary->error >= 0 && rank->clock.error * 1e-3 > summary->error)
            summary->error = rank->clock.error * 1e-3;
    }
    qsort(summary->ranks, summary->rank_count, sizeof(*summary->ranks), compare_sums);
    double begin = job->count > 0 ? job->spans[0].begin : 0, end = begin;
    for (size_t i = 0; i < job->count; i++) {
        const struct trace_span *span = &job->spans[i];
        sum_of(summary, span->rank)->phase[span->phase] += span->end - span->begin;
        begin = span->begin < begin ? span->begin : begin;
        end = span->end > end ? span->end : end;
    }
    summary->span = end - begin;
    return join_calls(job, summary);
}

static void summary_free(struct trace_summary *summary)
{
    free(summary->ranks);
    free(summary->calls);
}

static double share(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

static void print_ranks(const struct trace_summary *summary)
{
    printf("\nShares of the time in percent; spans of a rank may overlap.\n%6s %9s", "rank",
           "late peer");
    for (unsigned p = 0; p < TRACE_PHASE_COUNT; p++)
        printf(" %*s", p == TRACE_WAIT ? 13 : 8, phase_names[p]);
    printf("\n");
    for (size_t i = 0; i < summary->rank_count; i++) {
        const struct rank_sum *sum = &summary->ranks[i];
        printf("%6u %9.1f", sum->rank, share(sum->waiting, summary->span));
        for (unsigned p = 0; p < TRACE_PHASE_COUNT; p++)
            printf(" %*.1f", p == TRACE_WAIT ? 13 : 8, share(sum->phase[p], summary->span));
        printf("\n");
    }
}

void trace_print(const struct trace_job *job, size_t most)
{
    struct trace_summary summary;
    if (!summarize(job, &summary)) {
        fprintf(stderr, "twill-trace: out of memory\n");
        summary_free(&summary);
        return;
    }
    printf("%zu rank%s, %zu event%s, %.6f s; ", summary.rank_count,
           TWILL_PLURAL(summary.rank_count), job->events, TWILL_PLURAL(job->events),
           summary.span * 1e-6);
    if (summary.error < 0)
        printf("clocks unknown: a timeline is not complete\n");
    else
        printf("clocks agree within %.1f us\n", summary.error);
    print_ranks(&summary);
    printf("\nLongest waits for the last rank of a call, of all others together:\n");
    for (size_t i = 0; i < summary.call_count && i < most && summary.calls[i].waiting > 0; i++) {
        const struct joint_call *call = &summary.calls[i];
        printf("%12.1f us  %s #%llu (%llu bytes) of communicator %llu: rank %u came last\n",
               call->waiting, call->last->name, (unsigned long long)call->last->sequence,
               (unsigned long long)call->last->bytes, (unsigned long long)call->last->comm,
               call->last->rank);
    }
    qsort(summary.ranks, summary.rank_count, sizeof(*summary.ranks), compare_caused);
    printf("\nRanks that others waited for:\n");
    for (size_t i = 0; i < summary.rank_count && i < most && summary.ranks[i].caused > 0; i++)
        printf("%12.1f us  rank %u, last in %zu call%s%s\n", summary.ranks[i].caused,
               summary.ranks[i].rank, summary.ranks[i].late, TWILL_PLURAL(summary.ranks[i].late),
               i == 0 ? " (the critical rank)" : "");
    summary_free(&summary);
}

static void add_number(struct json_object *object, const char *name, double number)
{
    json_object_object_add(object, name, json_object_new_double(number));
}

static void add_integer(struct json_object *object, const char *name, uint64_t number)
{
    json_object_object_add(object, name, json_object_new_int64((int64_t)number));
}

static struct json_object *json_ranks(const struct trace_summary *summary)
{
    struct json_object *ranks = json_object_new_array();
    for (size_t i = 0; i < summary->rank_count; i++) {
        const struct rank_sum *sum = &summary->ranks[i];
        struct json_object *rank = json_object_new_object();
        add_integer(rank, "rank", sum->rank);
        add_number(rank, "waiting_seconds", sum->waiting * 1e-6);
        add_number(rank, "caused_seconds", sum->caused * 1e-6);
        add_integer(rank, "last_in_calls", sum->late);
        for (unsigned p = 0; p < TRACE_PHASE_COUNT; p++)
            add_number(rank, phase_names[p], sum->phase[p] * 1e-6);
        json_object_array_add(ranks, rank);
    }
    return ranks;
}

static struct json_object *json_waits(const struct trace_summary *summary, size_t most)
{
    struct json_object *waits = json_object_new_array();
    for (size_t i = 0; i < summary->call_count && i < most && summary->calls[i].waiting > 0; i++) {
        const struct joint_call *call = &summary->calls[i];
        struct json_object *wait = json_object_new_object();
        json_object_object_add(wait, "call", json_object_new_string(call->last->name));
        add_integer(wait, "communicator", call->last->comm);
        add_integer(wait, "sequence", call->last->sequence);
        add_integer(wait, "bytes", call->last->bytes);
        add_integer(wait, "last_rank", call->last->rank);
        add_number(wait, "seconds", call->waiting * 1e-6);
        json_object_array_add(waits, wait);
    }
    return waits;
}

void trace_print_json(const struct trace_job *job, size_t most)
{
    struct trace_summary summary;
    if (!summarize(job, &summary)) {
        fprintf(stderr, "twill-trace: out of memory\n");
        summary_free(&summary);
        return;
    }
    struct json_object *all = json_object_new_object();
    add_integer(all, "events", job->events);
    add_number(all, "seconds", summary.span * 1e-6);
    if (summary.error >= 0)
        add_number(all, "clock_error_seconds", summary.error * 1e-6);
    json_object_object_add(all, "ranks", json_ranks(&summary));
    json_object_object_add(all, "waits", json_waits(&summary, most));
    qsort(summary.ranks, summary.rank_count, sizeof(*summary.ranks), compare_caused);
    if (summary.rank_count > 0 && summary.ranks[0].caused > 0)
        add_integer(all, "critical_rank", summary.ranks[0].rank);
    printf("%s\n", json_object_to_json_string_ext(all, JSON_C_TO_STRING_PRETTY));
    json_object_put(all);
    summary_free(&summary);
}
