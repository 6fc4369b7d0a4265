/* SPDX-License-Identifier: Apache-2.0 */
/* What is wrong with a job: ranks that are dead, stopped, behind the others, or in another call. */
#include "lib/base/plural.h"
#include "lib/report/job_view.h"

#include <stdio.h>
#include <string.h>

#define NAMED_RANKS 16 /* in a sentence */

/* Describe the region's last call. */
static const char *call_text(const struct twill_job_region *region, char *text, size_t bytes)
{
    struct twill_call call =
        twill_call_of(region->record.what, region->record.count, region->record.root);
    twill_call_describe(&call, region->record.sequence, text, bytes);
    return text;
}

static bool is_stopped(const struct twill_job_region *region)
{
    return region->process.state == 'T' || region->process.state == 't';
}

/* Name ranks that do not run, each once. */
static void find_dead_and_stopped(struct twill_job_view *view)
{
    char text[160];
    for (size_t i = 0; i < view->regions; i++) {
        const struct twill_job_region *region = &view->region[i];
        if (!twill_job_is_first(view, i))
            continue;
        uint32_t rank = region->owner->job_rank;
        const char *where = region->has_call ? call_text(region, text, sizeof(text)) : "none";
        const char *when = region->in_call ? "was in" : "had left";
        if (region->process.pid == 0)
            twill_job_add_line(view, "finding\trank %u has died; it %s %s", rank, when, where);
        else if (is_stopped(region))
            twill_job_add_line(view, "finding\trank %u (process %d) is stopped; it %s %s", rank,
                               region->process.pid, when, where);
    }
}

/* Return the region that is farthest in its communicator's calls, NULL if none is in a call. */
static const struct twill_job_region *find_farthest(const struct twill_job_view *view, size_t from,
                                                    size_t to)
{
    const struct twill_job_region *farthest = NULL;
    for (size_t i = from; i < to; i++)
        if (view->region[i].in_call &&
            (farthest == NULL || view->region[i].record.sequence > farthest->record.sequence))
            farthest = &view->region[i];
    return farthest;
}

/* Write "ranks 0, 2 have" or "rank 0 has": those in the call of this number. */
static void name_ranks(const struct twill_job_view *view, size_t from, size_t to, uint64_t sequence,
                       char *text, size_t bytes)
{
    unsigned ranks = 0;
    char list[160] = "";
    for (size_t i = from; i < to; i++) {
        const struct twill_job_region *region = &view->region[i];
        if (!region->in_call || region->record.sequence != sequence)
            continue;
        size_t used = strlen(list);
        if (ranks++ < NAMED_RANKS)
            snprintf(list + used, sizeof(list) - used, "%s%u", ranks > 1 ? ", " : "",
                     region->owner->job_rank);
    }
    snprintf(text, bytes, "%s %s%s %s", ranks > 1 ? "ranks" : "rank", list,
             ranks > NAMED_RANKS ? ", ..." : "", ranks > 1 ? "have" : "has");
}

/* Name the ranks that have not begun the farthest call. */
static void find_behind(struct twill_job_view *view, size_t from, size_t to)
{
    const struct twill_job_region *farthest = find_farthest(view, from, to);
    char call[160], last[160], others[240];
    if (farthest == NULL)
        return;
    double age = twill_job_age(view, farthest, farthest->entered);
    call_text(farthest, call, sizeof(call));
    name_ranks(view, from, to, farthest->record.sequence, others, sizeof(others));
    for (size_t i = from; i < to; i++) {
        const struct twill_job_region *region = &view->region[i];
        uint64_t bytes, ended, behind = farthest->record.sequence - region->record.sequence;
        if (region->record.sequence >= farthest->record.sequence)
            continue;
        if (!region->has_call) {
            twill_job_add_line(view,
                               "finding\trank %u has made no call yet on communicator %u, where "
                               "%s been in %s for %.1f s",
                               region->owner->job_rank, region->owner->number, others, call, age);
            continue;
        }
        call_text(region, last, sizeof(last));
        ended = twill_job_last_call(region, &bytes);
        double since =
            twill_job_age(view, region, region->in_call || !ended ? region->entered : ended);
        twill_job_add_line(view,
                           "finding\trank %u is %llu call%s behind on communicator %u: %s been in "
                           "%s for %.1f s, but it %s %s %.1f s %s",
                           region->owner->job_rank, (unsigned long long)behind,
                           TWILL_PLURAL(behind), region->owner->number, others, call, age,
                           region->in_call ? "has been in" : "left", last, since,
                           region->in_call ? "so far" : "ago");
    }
}

/* Compare each rank's last call with the first rank's call of that number. */
static void find_different(struct twill_job_view *view, size_t from, size_t to)
{
    const struct twill_job_region *first = &view->region[from];
    for (size_t i = from + 1; i < to; i++) {
        const struct twill_job_region *region = &view->region[i];
        struct twill_call_record a, b;
        uint64_t sequence = twill_min(first->record.sequence, region->record.sequence);
        if (sequence == 0 || !twill_node_read_call(&first->view->node, 0, sequence, &a) ||
            !twill_node_read_call(&region->view->node, 0, sequence, &b) ||
            (a.what == b.what && a.count == b.count && a.root == b.root))
            continue;
        char ours[160], theirs[160];
        struct twill_call call = twill_call_of(a.what, a.count, a.root);
        twill_call_describe(&call, sequence, ours, sizeof(ours));
        call = twill_call_of(b.what, b.count, b.root);
        twill_call_describe(&call, sequence, theirs, sizeof(theirs));
        twill_job_add_line(view, "finding\trank %u has called %s where rank %u has called %s",
                           region->owner->job_rank, theirs, first->owner->job_rank, ours);
    }
}

void twill_job_find(struct twill_job_view *view)
{
    find_dead_and_stopped(view);
    for (size_t from = 0, to; from < view->regions; from = to) {
        to = from + 1;
        while (to < view->regions &&
               view->region[to].owner->number == view->region[from].owner->number)
            to++;
        find_behind(view, from, to);
        find_different(view, from, to);
    }
}
