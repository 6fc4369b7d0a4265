/* SPDX-License-Identifier: Apache-2.0 */
/* What is demanded of a job that has ended. */
#include "tests/system/campaign/campaign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static bool is_dead(const struct campaign_trial *trial, int rank)
{
    return (rank == trial->victim &&
            (campaign_is_death(trial->fault) || trial->fault == FAULT_HOST_LOST)) ||
           rank == trial->second;
}

/* Return whether a sentence has "rank N", also in a list: "rank 1, N". */
static bool names_rank(const char *text, int rank)
{
    for (const char *at = text; (at = strstr(at, "rank ")) != NULL;) {
        char *end;
        at += strlen("rank ");
        do {
            if (strtol(at, &end, 10) == rank && end != at)
                return true;
            at = end + (strncmp(end, ", ", 2) == 0 ? 2 : 0);
        } while (at != end);
    }
    return false;
}

static bool fails(char *text, size_t bytes, int rank, const char *what, const char *sentence)
{
    snprintf(text, bytes, "rank %d %s: \"%s\"", rank, what, sentence);
    return false;
}

/* Two ranks: the one without the lowest rank may not go on while the other one may. */
static bool may_be_refused(const struct campaign_trial *trial)
{
    return trial->ranks == 2 && trial->fault == FAULT_STOP_EVER;
}

/* Return whether the first sentence of a survivor names a failed rank. A rank that has nothing to
 * complain of finds the failed rank by the agreement alone; so does one whose half of a split
 * communicator is whole: another one has revoked what both are of, or waits in its own half. */
static bool names_failed(const struct campaign_job *job, int rank)
{
    const struct campaign_trial *trial = &job->trial;
    const char *first = job->rank[rank].first;
    for (int r = 0; r < trial->ranks && campaign_is_cut(trial->fault); r++)
        if (campaign_host_of(trial, r) != campaign_host_of(trial, rank) && names_rank(first, r))
            return true;
    return names_rank(first, trial->victim) ||
           (trial->second >= 0 && names_rank(first, trial->second)) ||
           (trial->work == WORK_AGREE && first[0] == '\0') || trial->work == WORK_SPLIT;
}

/* Return how many ranks go on if the job has lost one before or after it has grown. */
static int count_survivors(const struct campaign_trial *trial, bool grown)
{
    int count = 0;
    for (int r = 0; r < (grown ? campaign_processes(trial) : trial->ranks); r++)
        count += campaign_goes_on_in(trial, r, grown);
    return count;
}

/* Return whether ranks have gone on as those of a job that has grown. */
static bool has_grown(const struct campaign_job *job)
{
    const struct campaign_trial *trial = &job->trial;
    int size = count_survivors(trial, true);
    bool found = false;
    for (int r = 0; r < trial->ranks && trial->work == WORK_GROW; r++)
        found = found || (campaign_goes_on_in(trial, r, true) && job->rank[r].final_size == size);
    return found;
}

/* A survivor of a death, or of a rank that is stopped, has gone on with all other survivors. */
static bool check_survivor(const struct campaign_job *job, int rank, char *text, size_t bytes)
{
    const struct campaign_trial *trial = &job->trial;
    const struct campaign_rank *shown = &job->rank[rank];
    int expected = count_survivors(trial, has_grown(job));
    if (rank >= trial->ranks && (shown->final_size == 0 || shown->verdict_ns == 0))
        return true; /* it has not come to join, or only after the fault */
    if (shown->verdict_ns == 0) {
        if (trial->work == WORK_FINALIZE) /* it may have ended before */
            return true;
        return fails(text, bytes, rank, "has not noticed", "");
    }
    if (trial->victim < trial->ranks && !names_failed(job, rank))
        return fails(text, bytes, rank, "does not name the rank", shown->first);
    if (trial->work == WORK_START && shown->final_size == 0 && shown->end != TWILL_OK)
        return true; /* there was no communicator yet on some rank */
    if (may_be_refused(trial) && shown->end == TWILL_ERR_PEER)
        return true;
    if (trial->work == WORK_FINALIZE && shown->end == TWILL_OK && shown->final_size > 0)
        return true;
    if (trial->second >= 0 && shown->final_size == expected + 1 && shown->end == TWILL_OK)
        return true; /* it had gone on, and ended, before the second death */
    if (shown->final_size != expected || expected == 0) {
        char what[64];
        snprintf(what, sizeof(what), "ends with %d of %d ranks, status %d", shown->final_size,
                 expected, shown->end);
        return fails(text, bytes, rank, what, shown->end != TWILL_OK ? shown->last : shown->first);
    }
    if (trial->second < 0 && trial->victim < trial->ranks &&
        !campaign_goes_on(trial, trial->victim) && !shown->found_victim)
        return fails(text, bytes, rank, "does not list the failed rank", shown->first);
    return true;
}

static bool check_rank(const struct campaign_job *job, int rank, int status, char *text,
                       size_t bytes)
{
    const struct campaign_trial *trial = &job->trial;
    const struct campaign_rank *shown = &job->rank[rank];
    char what[64];
    if (is_dead(trial, rank))
        return true;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        snprintf(what, sizeof(what), "has ended with wait status %#x", (unsigned)status);
        return fails(text, bytes, rank, what, shown->first);
    }
    if (shown->wrong != 0) {
        snprintf(what, sizeof(what), "has %lu wrong results", shown->wrong);
        return fails(text, bytes, rank, what, shown->first);
    }
    if (shown->descriptors != 0) {
        snprintf(what, sizeof(what), "has %d descriptors more than before", shown->descriptors);
        return fails(text, bytes, rank, what, shown->first);
    }
    if (trial->fault == FAULT_STOP_SHORT || trial->fault == FAULT_LINK_FLAPS ||
        trial->fault == FAULT_LOSS) {
        int expected = job->has_handle ? campaign_processes(trial) : trial->ranks;
        if (shown->verdict_ns != 0 || (rank < trial->ranks && shown->final_size != expected))
            return fails(text, bytes, rank, "has failed without a reason", shown->first);
        return true;
    }
    bool fatal = campaign_is_death(trial->fault) || campaign_is_cut(trial->fault) ||
                 trial->fault == FAULT_STOP_EVER;
    if (fatal && campaign_goes_on_in(trial, rank, has_grown(job)))
        return check_survivor(job, rank, text, bytes);
    if (campaign_is_cut(trial->fault) && shown->final_size > 0 && shown->verdict_ns != 0)
        return fails(text, bytes, rank, "goes on, too", shown->first);
    return true;
}

bool campaign_check(const struct campaign_job *job, const int *status, char *text, size_t bytes)
{
    for (int r = 0; r < campaign_processes(&job->trial); r++)
        if (!check_rank(job, r, status[r], text, bytes))
            return false;
    return true;
}

static double bound_of(const struct campaign_trial *trial, const twill_bounds *bounds)
{
    if (trial->fault == FAULT_STOP_EVER)
        return bounds->silent;
    return campaign_is_cut(trial->fault) || trial->fault == FAULT_HALF_OPEN ? bounds->host
                                                                            : bounds->death;
}

bool campaign_time(const struct campaign_job *job, struct campaign_times *times)
{
    uint64_t last_verdict = 0, last_sum = 0;
    const struct campaign_trial *trial = &job->trial;
    if ((!campaign_is_death(trial->fault) && !campaign_is_cut(trial->fault) &&
         trial->fault != FAULT_STOP_EVER) ||
        trial->victim >= trial->ranks || trial->work == WORK_START ||
        trial->work == WORK_FINALIZE || trial->second >= 0)
        return false;
    for (int r = 0; r < trial->ranks; r++) {
        const struct campaign_rank *shown = &job->rank[r];
        if (!campaign_goes_on(trial, r))
            continue;
        if (shown->first_sum_ns == 0)
            return false;
        last_verdict = shown->verdict_ns > last_verdict ? shown->verdict_ns : last_verdict;
        last_sum = shown->first_sum_ns > last_sum ? shown->first_sum_ns : last_sum;
    }
    if (last_verdict == 0) /* no rank may go on */
        return false;
    times->verdict = (double)(int64_t)(last_verdict - job->fault_ns) * 1e-9;
    times->sum = (double)(int64_t)(last_sum - job->fault_ns) * 1e-9;
    times->bound = bound_of(trial, &job->rank[trial->victim == 0].bounds);
    return true;
}
