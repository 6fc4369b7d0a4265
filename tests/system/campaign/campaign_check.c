/* SPDX-License-Identifier: Apache-2.0 */
/* What is demanded of a job that has ended. */
#include "tests/system/campaign/campaign.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- how long processes have waited for a core: bounds of waits hold for ranks that get one -----
 */

#define STOLEN 8 /* column of "cpu" in /proc/stat */

/* Add what a thread has used. */
static void add_thread(pid_t pid, const char *thread, struct campaign_usage *usage)
{
    char path[64];
    uint64_t ran, waited;
    snprintf(path, sizeof(path), "/proc/%d/task/%.20s/schedstat", (int)pid, thread);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fscanf(file, "%" SCNu64 "%" SCNu64, &ran, &waited) == 2) {
        usage->ran_ns += ran;
        usage->waited_ns += waited;
    }
    (void)fclose(file);
}

struct campaign_usage campaign_usage_of(pid_t pid)
{
    struct campaign_usage usage = {0, 0};
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
    DIR *folder = opendir(path);
    if (folder == NULL)
        return usage;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;)
        if (entry->d_name[0] != '.')
            add_thread(pid, entry->d_name, &usage);
    closedir(folder);
    return usage;
}

uint64_t campaign_stolen_ns(void)
{
    FILE *file = fopen("/proc/stat", "re");
    uint64_t ticks = 0;
    if (file == NULL)
        return 0;
    bool known = fscanf(file, "cpu") == 0;
    for (int column = 1; known && column <= STOLEN; column++)
        known = fscanf(file, "%" SCNu64, &ticks) == 1;
    (void)fclose(file);
    return known ? ticks * (UINT64_C(1000000000) / (uint64_t)sysconf(_SC_CLK_TCK)) : 0;
}

/* --- what the ranks show ------------------------------------------------------------------------
 */

static bool is_dead(const struct campaign_trial *trial, int rank)
{
    return (rank == trial->victim &&
            (campaign_is_death(trial->fault) || trial->fault == FAULT_HOST_LOST)) ||
           rank == trial->second;
}

/* Return whether a sentence has "rank N", also in a list: "rank 1, 3-N". */
static bool names_rank(const char *text, int rank)
{
    for (const char *at = text; (at = strstr(at, "rank ")) != NULL;) {
        char *end;
        at += strlen("rank ");
        do {
            long first = strtol(at, &end, 10), last = first;
            if (end != at && *end == '-')
                last = strtol(end + 1, &end, 10);
            if (end != at && first <= rank && rank <= last)
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
    bool host = campaign_is_cut(trial->fault) || trial->fault == FAULT_HALF_OPEN;
    if (trial->work == WORK_GROW && (host || trial->fault == FAULT_STOP_EVER))
        return bounds->grow;
    if (trial->fault == FAULT_STOP_EVER)
        return bounds->silent;
    return host ? bounds->host : bounds->death;
}

static uint64_t since(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0;
}

#define WORK_NS UINT64_C(100000000) /* most of a rank's own work, and of a process's end */

/* Return how long a rank, from the fault to its error or end, waited for a core or worked: it
 * waits for others only in the rest of the time. */
static uint64_t busy_of(const struct campaign_job *job, int rank)
{
    const struct campaign_usage *at = &job->usage[rank], *to = &job->rank[rank].usage;
    uint64_t ran = since(at->ran_ns, to->ran_ns);
    return since(at->waited_ns, to->waited_ns) + (ran < WORK_NS ? ran : WORK_NS);
}

/* Return how long, from the fault to a rank's error, ranks that it depends on were busy, at most
 * one after the other: the one that dies, one that notices it, and this one. */
static uint64_t delay_of(const struct campaign_job *job, int rank)
{
    uint64_t other = 0, victim = job->trial.victim == rank ? 0 : busy_of(job, job->trial.victim);
    for (int r = 0; r < job->trial.ranks; r++) {
        uint64_t busy = busy_of(job, r);
        if (r != rank && r != job->trial.victim && busy > other)
            other = busy;
    }
    return busy_of(job, rank) + victim + other + job->driver.waited_ns +
           since(job->stolen_ns, job->rank[rank].stolen_ns);
}

/* A busy machine must not fail a trial: all of the delays are deducted, also those that the ranks
 * would have spent waiting. */
double campaign_lateness(const struct campaign_times *times)
{
    return times->own - times->bound - times->delay;
}

static double seconds_to(const struct campaign_job *job, uint64_t when)
{
    return (double)(int64_t)(when - job->fault_ns) * 1e-9;
}

/* Return when the fault had happened and all survivors were in the call that failed. */
static uint64_t all_begun(const struct campaign_job *job)
{
    uint64_t begun = job->fault_ns;
    for (int r = 0; r < job->trial.ranks; r++)
        if (campaign_goes_on(&job->trial, r) && job->rank[r].begun_ns > begun)
            begun = job->rank[r].begun_ns;
    return begun;
}

/* Keep the survivor that was latest. */
static void time_rank(const struct campaign_job *job, int rank, struct campaign_times *latest)
{
    const struct campaign_rank *shown = &job->rank[rank];
    struct campaign_times times = *latest;
    times.rank = rank;
    times.own = (double)(int64_t)(shown->verdict_ns - all_begun(job)) * 1e-9;
    times.bound = bound_of(&job->trial, &shown->bounds);
    times.delay = (double)delay_of(job, rank) * 1e-9;
    if (latest->rank < 0 || campaign_lateness(&times) > campaign_lateness(latest))
        *latest = times;
}

static void keep_most(double *most, double seconds)
{
    *most = seconds > *most ? seconds : *most;
}

bool campaign_time(const struct campaign_job *job, struct campaign_times *times)
{
    const struct campaign_trial *trial = &job->trial;
    *times = (struct campaign_times){.rank = -1};
    if ((!campaign_is_death(trial->fault) && !campaign_is_cut(trial->fault) &&
         trial->fault != FAULT_STOP_EVER) ||
        trial->victim >= trial->ranks || trial->work == WORK_START ||
        trial->work == WORK_FINALIZE || trial->second >= 0)
        return false;
    for (int r = 0; r < trial->ranks; r++) {
        const struct campaign_rank *shown = &job->rank[r];
        if (!campaign_goes_on(trial, r))
            continue;
        if (shown->step_ns == 0)
            return false;
        time_rank(job, r, times);
        keep_most(&times->verdict, seconds_to(job, shown->verdict_ns));
        keep_most(&times->shrunk, seconds_to(job, shown->shrunk_ns));
        keep_most(&times->sum, seconds_to(job, shown->first_sum_ns));
        keep_most(&times->step, seconds_to(job, shown->step_ns));
    }
    return times->rank >= 0; /* else no rank may go on */
}
