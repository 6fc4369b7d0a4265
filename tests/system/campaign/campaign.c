/* SPDX-License-Identifier: Apache-2.0 */
/* campaign [--trials N] [--seed S] [--trial T] [--jobs J] [--hosts PID,...] [--work NAME]
 * [--fault NAME] [--verbose]: run trials of a fault campaign, check each, and print how long the
 * survivors took. --trial: only trial T, once or N times; --hosts: between network namespaces;
 * --work, --fault: only such; --verbose: each trial, and its verdict. Exit status: 0, or 1 if a
 * trial has failed. */
#include "tests/system/campaign/campaign.h"

#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define HANG_NS       UINT64_C(120000000000) /* from the fault: longer than any deadline of a trial */
#define NO_FAULT_NS   UINT64_C(200000000)    /* of work after a fault that kills no rank */
#define START_SECONDS 60                     /* to find each other, on a machine that is busy */
#define TRACE_SLOW_NS UINT64_C(3000000000)
#define SLOW          1.5 /* seconds until survivors of a death go on that are worth a line */
#define FLAPS         5u
#define TRIALS        500

uint64_t campaign_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void *shared(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("campaign: mmap");
        exit(2);
    }
    return memory;
}

/* --- a job's processes ------------------------------------------------------------------------ */

struct processes {
    pid_t pid[CAMPAIGN_RANKS]; /* 0: has ended */
    int status[CAMPAIGN_RANKS];
};

static void set_number(const char *name, long long number)
{
    char text[32];
    snprintf(text, sizeof(text), "%lld", number);
    setenv(name, text, 1);
}

/* A process that joins knows the job by its handle and key alone. */
static void set_joiner(int listener)
{
    static const char *const names[] = {"RANK",        "WORLD_SIZE",   "MASTER_ADDR",
                                        "MASTER_PORT", "TWILL_LAYOUT", "TWILL_LISTEN_FD"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unsetenv(names[i]);
    close(listener);
}

/* Between hosts each rank finds its node and network by itself. */
static void set_host(const struct campaign_trial *trial, int rank)
{
    if (!campaign_host_enter(campaign_host_of(trial, rank)))
        _exit(1);
    unsetenv("TWILL_LAYOUT");
    unsetenv("TWILL_INTERFACE");
    unsetenv("TWILL_LISTEN_FD");
    setenv("MASTER_ADDR", "10.88.0.1", 1);
    set_number("MASTER_PORT", 20000 + trial->number % 20000);
}

static void set_environment(const struct campaign_trial *trial, int rank, int port, int listener)
{
    char job[33];
    snprintf(job, sizeof(job), "%016llx%016llx", (unsigned long long)trial->seed,
             (unsigned long long)getppid());
    setenv("TWILL_JOB", job, 1);
    setenv("TWILL_LAYOUT", trial->layout, 1);
    const char *provider = getenv("CAMPAIGN_PROVIDER");
    bool is_ours = provider == NULL || strcmp(provider, "tcp") == 0; /* has checksums, encryption */
    setenv("TWILL_PROVIDER", is_ours ? "tcp" : provider, 1);
    setenv("TWILL_INTERFACE", "lo", 1);
    setenv("TWILL_LOG", getenv("CAMPAIGN_TRACE") != NULL ? "warn" : "none", 1);
    static const char *const sums[] = {[PROTECTION_SUMS] = "network",
                                       [PROTECTION_SUMS_ALL] = "all",
                                       [PROTECTION_ENCRYPTED] = NULL};
    const char *summed = is_ours ? sums[trial->protection] : NULL;
    setenv("TWILL_CHECKSUM", summed != NULL ? summed : "none", 1);
    setenv("TWILL_ENCRYPT", is_ours && trial->protection == PROTECTION_ENCRYPTED ? "1" : "0", 1);
    setenv("MASTER_ADDR", "127.0.0.1", 1);
    bool begins =
        rank < trial->ranks && trial->work != WORK_START; /* campaign_rank.c shortens it */
    set_number("TWILL_TIMEOUT", begins ? START_SECONDS : trial->timeout);
    set_number("MASTER_PORT", port);
    set_number("RANK", rank);
    set_number("WORLD_SIZE", trial->ranks);
    if (rank == 0)
        set_number("TWILL_LISTEN_FD", listener);
    if (rank != 0 || trial->hosts > 0)
        close(listener);
    if (trial->hosts > 0)
        set_host(trial, rank);
    if (rank >= trial->ranks)
        set_joiner(listener);
}

static int listen_on_any_port(int *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, 64) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        perror("campaign: listen");
        exit(2);
    }
    *port = ntohs(address.sin_port);
    return fd;
}

static void start(struct campaign_job *job, struct processes *processes)
{
    int port, listener = listen_on_any_port(&port);
    fflush(NULL);
    campaign_expect_fault(job->trial.fault);
    for (int r = 0; r < campaign_processes(&job->trial); r++) {
        processes->pid[r] = fork();
        if (processes->pid[r] == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            set_environment(&job->trial, r, port, listener);
            campaign_rank_main(job, r);
        }
        if (processes->pid[r] < 0) {
            perror("campaign: fork");
            exit(2);
        }
    }
    close(listener);
}

/* Reap a rank if it has ended. */
static void reap_rank(struct campaign_job *job, struct processes *p, int rank)
{
    siginfo_t ended = {.si_pid = 0};
    if (waitid(P_PID, (id_t)p->pid[rank], &ended, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        ended.si_pid == 0)
        return;
    if (atomic_load(&job->rank[rank].verdict_ns) == 0)
        job->rank[rank].usage = campaign_usage_of(p->pid[rank]);
    if (waitpid(p->pid[rank], &p->status[rank], WNOHANG) == p->pid[rank])
        p->pid[rank] = 0;
}

/* Reap what has ended. Returns the number of those that run. */
static int reap(struct campaign_job *job, struct processes *processes)
{
    int running = 0;
    for (int r = 0; r < campaign_processes(&job->trial); r++) {
        if (processes->pid[r] != 0)
            reap_rank(job, processes, r);
        running += processes->pid[r] != 0;
    }
    return running;
}

static void signal_rank(const struct processes *processes, int rank, int signal)
{
    if (processes->pid[rank] != 0)
        (void)kill(processes->pid[rank], signal);
}

/* --- a trial -------------------------------------------------------------------------------- */

static bool is_running(const struct campaign_job *job, const struct processes *p, int rank,
                       enum campaign_state from)
{
    return p->pid[rank] == 0 || atomic_load(&job->rank[rank].state) >= from;
}

/* Return whether all ranks, or those that must go on, have come to a state or have ended. */
static bool all_are(const struct campaign_job *job, const struct processes *p,
                    enum campaign_state from, bool survivors)
{
    for (int r = 0; r < job->trial.ranks; r++)
        if ((!survivors || campaign_goes_on(&job->trial, r)) && !is_running(job, p, r, from))
            return false;
    return true;
}

/* Make the trial's fault. Returns false if that cannot be done here. */
static bool strike(struct campaign_job *job, const struct processes *p)
{
    const struct campaign_trial *trial = &job->trial;
    static const int signals[FAULT_COUNT] = {[FAULT_KILL] = SIGKILL,
                                             [FAULT_HOST_LOST] = SIGKILL,
                                             [FAULT_HALF_OPEN] = SIGKILL,
                                             [FAULT_STOP_EVER] = SIGSTOP,
                                             [FAULT_STOP_SHORT] = SIGSTOP};
    int signal = signals[trial->fault] != 0 ? signals[trial->fault] : SIGUSR1;
    int host = campaign_host_of(trial, trial->victim);
    for (int r = 0; r < campaign_processes(trial); r++)
        job->usage[r] = campaign_usage_of(p->pid[r]);
    job->stolen_ns = campaign_stolen_ns();
    struct campaign_usage driver = campaign_usage_of(getpid());
    atomic_store(&job->fault_ns, campaign_now());
    bool struck = true;
    if (campaign_is_cut(trial->fault) || trial->fault == FAULT_HALF_OPEN)
        struck = campaign_link(host, false);
    for (unsigned flap = 0; flap < FLAPS && trial->fault == FAULT_LINK_FLAPS; flap++) {
        struck = campaign_link(host, false) && struck;
        usleep(trial->pause_us / FLAPS);
        struck = campaign_link(host, true) && struck;
        usleep(trial->pause_us / FLAPS);
    }
    if (trial->fault == FAULT_LOSS)
        struck = campaign_lose(host, trial->loss);
    if (trial->fault == FAULT_LINK_DOWN || trial->fault == FAULT_LINK_FLAPS ||
        trial->fault == FAULT_LOSS)
        return struck;
    signal_rank(p, trial->victim, signal);
    job->driver = campaign_usage_of(getpid());
    job->driver.waited_ns -= driver.waited_ns;
    if (trial->fault == FAULT_STOP_SHORT) {
        usleep(trial->pause_us);
        signal_rank(p, trial->victim, SIGCONT);
    }
    if (trial->fault == FAULT_HALF_OPEN) { /* its kernel has closed connections unheard */
        usleep(trial->pause_us);
        struck = campaign_link(host, true) && struck;
    }
    return struck;
}

/* Let a second rank die while the others shrink. */
static void strike_again(struct campaign_job *job, struct processes *p)
{
    const struct campaign_trial *trial = &job->trial;
    uint64_t until = campaign_now() + HANG_NS;
    bool shrinking = false;
    while (!shrinking && campaign_now() < until && reap(job, p) > 0) {
        for (int r = 0; r < trial->ranks; r++)
            shrinking = shrinking || (r != trial->victim && r != trial->second &&
                                      atomic_load(&job->rank[r].state) >= STATE_SHRINKING);
        usleep(100);
    }
    usleep(trial->second_delay_us);
    signal_rank(p, trial->second, SIGKILL);
}

/* Return when a fault that kills no rank is over: links flap for twice as long as a rank pauses. */
static uint64_t end_of_fault(const struct campaign_job *job)
{
    const struct campaign_trial *trial = &job->trial;
    uint64_t pause = UINT64_C(1000) * trial->pause_us;
    return job->fault_ns + (trial->fault == FAULT_STOP_SHORT   ? pause
                            : trial->fault == FAULT_LINK_FLAPS ? 2 * pause
                                                               : 0);
}

/* Return whether there is a handle for the process that joins, if one does: packets that are lost,
 * also while a link is down for a moment, may delay it beyond NO_FAULT_NS, and so may a rank that
 * was stopped or has no core. */
static bool has_grown(const struct campaign_job *job)
{
    bool late = job->trial.fault == FAULT_LOSS || job->trial.fault == FAULT_LINK_FLAPS ||
                job->trial.fault == FAULT_STOP_SHORT;
    return !late || job->trial.work != WORK_GROW || atomic_load(&job->has_handle);
}

/* Print the stack of a rank that runs. */
static void print_stack(const struct processes *p, int rank)
{
    char command[128];
    snprintf(command, sizeof(command), "gdb -p %d -batch -ex 'thread apply all bt' >&2 2>/dev/null",
             (int)p->pid[rank]);
    if (p->pid[rank] != 0)
        (void)!system(command);
}

/* With CAMPAIGN_TRACE: print once what all do if survivors of a death have not gone on for long. */
static void trace_slow(const struct campaign_job *job, const struct processes *p, uint64_t now,
                       bool *traced)
{
    if (*traced || !campaign_is_death(job->trial.fault) || now < job->fault_ns + TRACE_SLOW_NS ||
        getenv("CAMPAIGN_TRACE") == NULL || all_are(job, p, STATE_RECOVERED, true))
        return;
    *traced = true;
    fprintf(stderr, "trial %d is slow\n", job->trial.number);
    for (int r = 0; r < campaign_processes(&job->trial); r++)
        print_stack(p, r);
}

/* Wait until the survivors have gone on, then let the job end. Returns false if it hangs. */
static bool finish(struct campaign_job *job, struct processes *p)
{
    const struct campaign_trial *trial = &job->trial;
    bool recovers = campaign_is_death(trial->fault) || campaign_is_cut(trial->fault) ||
                    trial->fault == FAULT_STOP_EVER;
    uint64_t fault = atomic_load(&job->fault_ns);
    bool traced = false;
    for (uint64_t now; (now = campaign_now()) < fault + HANG_NS; usleep(1000)) {
        if (reap(job, p) == 0)
            return true;
        trace_slow(job, p, now, &traced);
        if (trial->work == WORK_FINALIZE ||
            (recovers ? all_are(job, p, STATE_RECOVERED, true)
                      : now > end_of_fault(job) + NO_FAULT_NS && has_grown(job)))
            atomic_store(&job->stop, true);
        /* A stopped rank wakes up when the others are gone, or have gone on for a while. */
        if (trial->fault == FAULT_STOP_EVER && all_are(job, p, STATE_ENDED, true))
            signal_rank(p, trial->victim, SIGCONT);
    }
    return false;
}

static void describe_hang(const struct campaign_job *job, struct processes *p)
{
    for (int r = 0; r < campaign_processes(&job->trial); r++) {
        const struct campaign_rank *shown = &job->rank[r];
        fprintf(stderr, "  rank %d (pid %d): state %d, %lu steps, first \"%s\", last \"%s\"\n", r,
                (int)p->pid[r], (int)atomic_load(&shown->state), atomic_load(&shown->steps),
                shown->first, shown->last);
        if (getenv("CAMPAIGN_TRACE") != NULL)
            print_stack(p, r);
        signal_rank(p, r, SIGKILL);
        if (p->pid[r] != 0)
            (void)waitpid(p->pid[r], &p->status[r], 0);
        p->pid[r] = 0;
    }
}

static void describe(const struct campaign_trial *trial)
{
    static const char *const protections[] = {"", ", checksums", ", all checksums", ", encrypted"};
    fprintf(stderr, "trial %d: %s%s, %s, rank %d %s after %u us%s", trial->number, trial->layout,
            protections[trial->protection], campaign_work_names[trial->work], trial->victim,
            campaign_fault_names[trial->fault], trial->delay_us, trial->second >= 0 ? "" : "\n");
    if (trial->second >= 0)
        fprintf(stderr, ", rank %d after %u us more\n", trial->second, trial->second_delay_us);
}

/* Print what took long. Returns false if an error was later than is stated. */
static bool check_times(const struct campaign_job *job, const struct campaign_times *times,
                        char *why, size_t bytes)
{
    double late = campaign_lateness(times);
    const struct campaign_trial *trial = &job->trial;
    snprintf(
        why, bytes,
        "rank %d: %.3f s from the fault and its call to the error, %.3f s are stated, ranks had "
        "no core or worked for %.3f s: \"%s\"",
        times->rank, times->own, times->bound, times->delay, job->rank[times->rank].first);
    if (times->own > times->bound && late <= 0)
        fprintf(stderr, "trial %d: late: %s\n", trial->number, why);
    if (campaign_is_death(trial->fault) && times->step > SLOW)
        fprintf(stderr,
                "trial %d: slow: error %.2f s, shrunk %.2f s, sum %.2f s, step %.2f s; %s\n",
                trial->number, times->verdict, times->shrunk, times->sum, times->step, why);
    return late <= 0;
}

static void run_trial(struct campaign_job *job, struct campaign_result *result)
{
    const struct campaign_trial *trial = &job->trial;
    struct processes processes = {{0}, {0}};
    char why[2 * CAMPAIGN_TEXT] = "hangs";
    start(job, &processes);
    uint64_t begin = campaign_now();
    while (trial->work != WORK_START && !all_are(job, &processes, STATE_RUNNING, false) &&
           campaign_now() < begin + HANG_NS) {
        (void)reap(job, &processes);
        usleep(100);
    }
    if (trial->work == WORK_FINALIZE)
        atomic_store(&job->stop, true);
    usleep(trial->delay_us);
    bool struck = strike(job, &processes);
    if (trial->second >= 0)
        strike_again(job, &processes);
    bool fine = finish(job, &processes);
    if (!fine)
        describe_hang(job, &processes);
    else
        fine = campaign_check(job, processes.status, why, sizeof(why));
    result->has_times = fine && campaign_time(job, &result->times);
    if (result->has_times)
        fine = check_times(job, &result->times, why, sizeof(why));
    if (fine && !struck) {
        fine = false;
        snprintf(why, sizeof(why), "the fault cannot be made here");
    }
    if (campaign_is_cut(trial->fault))
        (void)campaign_link(campaign_host_of(trial, trial->victim), true);
    if (trial->fault == FAULT_LOSS)
        (void)campaign_lose(campaign_host_of(trial, trial->victim), 0);
    result->failed = !fine;
    result->trial = *trial;
    result->done = true;
    if (!fine) {
        describe(trial);
        fprintf(stderr, "  %s\n", why);
        campaign_report_ranks(job);
    }
}

/* --- the campaign ---------------------------------------------------------------------------- */

struct campaign_share {
    struct campaign_settings settings;
    int first, count, step;
    bool verbose;
};

static void run_share(struct campaign_result *results, const struct campaign_share *share)
{
    struct campaign_job *job = shared(sizeof(*job));
    for (int i = share->first; i < share->count; i += share->step) {
        memset((void *)job, 0, sizeof(*job));
        campaign_plan(&job->trial, &share->settings, results[i].trial.number);
        if (share->verbose)
            describe(&job->trial);
        run_trial(job, &results[i]);
        if (share->verbose)
            campaign_report_trial(&results[i]);
    }
}

/* Return the index of a name; -2: there is none such. */
static int find_name(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -2;
}

/* Returns false if the command line is wrong. */
static bool read_command(struct campaign_share *share, int *only, int argc, char **argv)
{
    static const struct option options[] = {
        {"trials", required_argument, NULL, 'n'},
        {"seed", required_argument, NULL, 's'},
        {"trial", required_argument, NULL, 't'},
        {"jobs", required_argument, NULL, 'j'},
        {"hosts", required_argument, NULL, 'h'},
        {"work", required_argument, NULL, 'w'},
        {"fault", required_argument, NULL, 'f'},
        {"verbose", no_argument, NULL, 'v'},
        {NULL, 0, NULL, 0},
    };
    struct campaign_settings *settings = &share->settings;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == 'v')
            share->verbose = true;
        else if (option == 's')
            settings->seed = strtoull(optarg, NULL, 0);
        else if (option == 'h')
            settings->hosts = campaign_hosts_set(optarg);
        else if (option == 'w')
            settings->work = find_name(campaign_work_names, WORK_COUNT, optarg);
        else if (option == 'f')
            settings->fault = find_name(campaign_fault_names, FAULT_COUNT, optarg);
        else if (option == '?' || atoi(optarg) < 0)
            return false;
        else
            *(option == 'n' ? &share->count : option == 't' ? only : &share->step) = atoi(optarg);
    }
    return settings->hosts >= 0 && settings->work >= -1 && settings->fault >= -1;
}

int main(int argc, char **argv)
{
    int only = -1;
    struct campaign_share share = {
        .settings = {.seed = 1, .work = -1, .fault = -1}, .count = -1, .step = 1};
    if (!read_command(&share, &only, argc, argv))
        return 2;
    uint64_t begin = campaign_now();
    (void)campaign_reserve_stack();
    if (share.count < 0)
        share.count = only >= 0 ? 1 : TRIALS;
    if (share.step < 1 || share.settings.hosts > 0)
        share.step = 1; /* hosts serve one job at a time */
    struct campaign_result *results = shared((size_t)(share.count + 1) * sizeof(*results));
    for (int i = 0; i < share.count; i++)
        results[i].trial.number = only >= 0 ? only : i;
    fflush(NULL);
    for (share.first = 0; share.first < share.step; share.first++)
        if (fork() == 0) {
            /* A session of its own: when the last process outside ends, the kernel continues the
             * stopped ones of its group. */
            (void)setsid();
            if (share.settings.hosts == 0)
                campaign_part_network();
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            run_share(results, &share);
            _exit(0);
        }
    while (wait(NULL) > 0 || errno == EINTR)
        continue;
    return campaign_report(results, share.count, (double)(campaign_now() - begin) * 1e-9);
}
