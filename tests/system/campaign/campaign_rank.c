/* SPDX-License-Identifier: Apache-2.0 */
/* A rank of a campaign's job: works, and after a failure goes on with the survivors. Faults that a
 * process does to itself come by SIGUSR1, between any two instructions. */
#include "lib/twill_recover.h"
#include "tests/system/campaign/campaign.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define FIRST_STEP       1u
#define DESCRIPTORS      256
#define MOST_DESCRIPTORS 4096
#define STACK_BYTES      ((size_t)1 << 20)

static enum campaign_fault own_fault; /* of the handler */

struct campaign_worker {
    struct campaign_job *job;
    struct campaign_rank *shown;
    twill_comm *comm;
    struct campaign_buffers *buffers;
    uint64_t step;
    bool grown; /* or it has failed to */
    bool has_failed;
};

/* Shut down all connections of this process, as a reset by the network does. */
static void reset_connections(void)
{
    for (int fd = 3; fd < DESCRIPTORS; fd++) {
        int listening = 0;
        socklen_t length = sizeof(listening);
        struct sockaddr_storage name;
        socklen_t name_length = sizeof(name);
        if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) == 0 && !listening &&
            getsockname(fd, (struct sockaddr *)&name, &name_length) == 0 &&
            name.ss_family == AF_INET)
            (void)shutdown(fd, SHUT_RDWR);
    }
}

static void limit(int resource, rlim_t to)
{
    struct rlimit most;
    if (getrlimit(resource, &most) == 0) {
        most.rlim_cur = to;
        (void)setrlimit(resource, &most);
    }
}

unsigned char campaign_reserve_stack(void)
{
    volatile unsigned char stack[STACK_BYTES];
    for (size_t i = 0; i < STACK_BYTES; i += 4096)
        stack[i] = 0;
    return stack[0];
}

static void strike(int signal)
{
    (void)signal;
    switch (own_fault) {
    case FAULT_EXIT:
        _exit(7);
    case FAULT_ABORT:
        abort();
    case FAULT_RESET:
        reset_connections();
        break;
    case FAULT_NO_DESCRIPTORS:
        limit(RLIMIT_NOFILE, 8);
        break;
    case FAULT_NO_MEMORY:
        limit(RLIMIT_AS, 1);
        break;
    default:
        break;
    }
}

void campaign_expect_fault(enum campaign_fault fault)
{
    struct sigaction action = {.sa_handler = strike, .sa_flags = SA_RESTART};
    own_fault = fault;
    (void)sigaction(SIGUSR1, &action, NULL);
}

/* Count the descriptors of this process, and print those from the `show`-th on. Takes no memory, of
 * which there may be none any more. Not counted: folders of /sys, which hwloc 2.9 leaves open when
 * fdopendir() has no memory for them. */
static int count_descriptors(int show)
{
    int count = 0;
    char path[64], target[128];
    for (int fd = 0; fd < MOST_DESCRIPTORS; fd++) {
        if (fcntl(fd, F_GETFD) < 0) /* quicker than to look for each in /proc */
            continue;
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, target, sizeof(target));
        if (n < 0 || (n > 5 && memcmp(target, "/sys/", 5) == 0))
            continue;
        if (count >= show)
            fprintf(stderr, "  pid %d: descriptor %d: %.*s\n", (int)getpid(), fd, (int)n, target);
        count++;
    }
    return count;
}

/* Keep the first failure's sentence and time. */
static void note_failure(struct campaign_worker *w)
{
    if (atomic_load(&w->shown->verdict_ns) != 0)
        return;
    snprintf(w->shown->first, CAMPAIGN_TEXT, "%s", campaign_message(w->buffers, w->comm));
    atomic_store(&w->shown->verdict_ns, campaign_now());
    w->shown->begun_ns = campaign_begun(w->buffers);
    w->shown->usage = campaign_usage_of(getpid());
    w->shown->stolen_ns = campaign_stolen_ns();
}

/* All ranks know of the last step that any has done, whether the job has grown, and whether to
 * end. */
static twill_status synchronise(struct campaign_worker *w, bool *stop)
{
    int64_t shown[] = {(int64_t)w->step, 0, w->grown, twill_comm_rank(w->comm)}, all[4];
    /* The lowest rank decides when to end, so that all do. */
    shown[1] = twill_comm_rank(w->comm) == 0 && atomic_load(&w->job->stop);
    campaign_begin(w->buffers);
    twill_status status = twill_allreduce(w->comm, shown, all, 4, TWILL_I64, TWILL_MAX);
    if (status != TWILL_OK)
        return status;
    atomic_fetch_add(&w->shown->wrong, all[0] < shown[0] || all[3] != twill_comm_size(w->comm) - 1);
    if (atomic_load(&w->shown->shrunk_ns) != 0 && atomic_load(&w->shown->first_sum_ns) == 0)
        atomic_store(&w->shown->first_sum_ns, campaign_now());
    w->step = (uint64_t)all[0];
    *stop = all[1] != 0;
    w->grown = all[2] != 0;
    return TWILL_OK;
}

/* Take in the process that waits. All ranks get the larger communicator, or none does. */
static twill_status grow(struct campaign_worker *w)
{
    twill_comm *larger;
    w->grown = true;
    if (twill_comm_rank(w->comm) == 0 && twill_comm_handle(w->comm, 1, w->job->handle) == TWILL_OK)
        atomic_store(&w->job->has_handle, true);
    campaign_begin(w->buffers);
    twill_status status = twill_comm_grow(&larger, w->comm);
    if (status != TWILL_OK)
        return status;
    twill_comm_leave(w->comm);
    w->comm = larger;
    campaign_buffers_move(w->buffers, twill_comm_context(larger));
    return TWILL_OK;
}

static bool names(const twill_comm *comm, int rank)
{
    for (int i = 0, failed; (failed = twill_comm_failed_rank(comm, i)) >= 0; i++)
        if (failed == rank)
            return true;
    return false;
}

/* List the handles of all survivors. Returns how many there are; 0: one does not come. */
static int await_handles(struct campaign_worker *w, const char **list)
{
    struct campaign_job *job = w->job;
    uint64_t until = campaign_now() + (uint64_t)job->trial.timeout * UINT64_C(2000000000);
    int count = 0;
    for (int r = 0; r < job->trial.ranks; r++) {
        if (!campaign_goes_on(&job->trial, r))
            continue;
        while (!atomic_load(&job->has_own[r]) && campaign_now() < until)
            usleep(500);
        if (!atomic_load(&job->has_own[r]))
            return 0;
        list[count++] = job->own[r];
    }
    return count;
}

/* Make a communicator of the survivors, which the campaign knows, without an agreement. */
static twill_status reconfigure(struct campaign_worker *w, twill_comm **made)
{
    struct campaign_job *job = w->job;
    int rank = (int)(w->shown - job->rank);
    const char *list[CAMPAIGN_RANKS];
    twill_handle *own;
    if (!campaign_goes_on(&job->trial, rank))
        return TWILL_ERR_EXCLUDED;
    twill_status status = twill_handle_create(&own, w->comm, NULL, job->own[rank]);
    if (status != TWILL_OK)
        return status;
    atomic_store(&job->has_own[rank], true);
    twill_reconfiguration how = {
        .handles = list, .count = await_handles(w, list), .ordered = (int)(job->trial.seed % 2)};
    status =
        twill_comm_reconfigure(made, w->comm, own, &how, w->shown->last, sizeof(w->shown->last));
    twill_handle_destroy(own);
    if (status == TWILL_OK)
        campaign_buffers_move(w->buffers, twill_comm_context(*made));
    return status;
}

/* Go on with the survivors. Returns false if this rank cannot. */
static bool recover(struct campaign_worker *w)
{
    twill_comm *smaller;
    bool reconfigures = w->job->trial.work == WORK_RECONFIGURE;
    bool first = !w->has_failed;
    note_failure(w); /* if it has none of its own: what it has agreed on */
    w->has_failed = true;
    campaign_buffers_release(w->buffers);
    atomic_store(&w->shown->state, STATE_SHRINKING);
    twill_status status =
        reconfigures ? reconfigure(w, &smaller) : twill_comm_shrink(&smaller, w->comm);
    if (status != TWILL_OK) {
        w->shown->end = status;
        if (!reconfigures)
            snprintf(w->shown->last, sizeof(w->shown->last), "%s", twill_comm_message(w->comm));
        return false;
    }
    if (reconfigures)
        atomic_store(&w->shown->found_victim, true); /* it is not in the list */
    else if (first)
        atomic_store(&w->shown->found_victim, names(w->comm, w->job->trial.victim));
    twill_comm_leave(w->comm);
    w->comm = smaller;
    if (first)
        atomic_store(&w->shown->shrunk_ns, campaign_now());
    return true;
}

/* Agree whether a step, which has returned `status` here, is complete on all ranks. All agree after
 * each step, as all calls of twill_recover.h are to be in the same order everywhere. */
static twill_status agree(struct campaign_worker *w, twill_status status)
{
    uint64_t flags = status == TWILL_OK ? ~w->step : 0;
    if (status != TWILL_OK)
        note_failure(w);
    campaign_begin(w->buffers);
    twill_status agreed = twill_comm_agree(w->comm, &flags);
    if (agreed != TWILL_OK)
        return agreed;
    atomic_fetch_add(&w->shown->wrong, flags != 0 && flags != ~w->step);
    return flags != 0 ? TWILL_OK : TWILL_ERR_BROKEN;
}

/* Do steps until the driver ends the job. Returns false if this rank cannot go on. */
static bool work(struct campaign_worker *w)
{
    for (bool stop = false; !stop;) {
        twill_status status = synchronise(w, &stop);
        if (status == TWILL_OK && !stop && w->job->trial.work == WORK_GROW && !w->grown)
            status = grow(w);
        else if (status == TWILL_OK && !stop)
            status = campaign_step(w->buffers, w->comm, &w->job->trial, w->step, &w->shown->wrong);
        if (w->job->trial.work == WORK_AGREE)
            status = agree(w, status);
        if (status != TWILL_OK) {
            stop = false;
            if (!recover(w))
                return false;
            continue;
        }
        w->step++;
        atomic_fetch_add(&w->shown->steps, 1);
        if (atomic_load(&w->shown->state) == STATE_SHRINKING) {
            if (atomic_load(&w->shown->step_ns) == 0)
                atomic_store(&w->shown->step_ns, campaign_now());
            atomic_store(&w->shown->state, STATE_RECOVERED);
        }
    }
    return true;
}

static void join(struct campaign_worker *w)
{
    while (!atomic_load(&w->job->has_handle) && !atomic_load(&w->job->stop))
        usleep(500);
    w->grown = true;
    if (atomic_load(&w->job->has_handle))
        w->shown->end = twill_comm_join(&w->comm, w->job->handle, NULL, w->shown->first,
                                        sizeof(w->shown->first));
}

_Noreturn void campaign_rank_main(struct campaign_job *job, int rank)
{
    struct campaign_worker w = {.job = job, .shown = &job->rank[rank], .step = FIRST_STEP};
    int before = count_descriptors(INT_MAX);
    if (rank < job->trial.ranks)
        w.shown->end = twill_init_with(&w.comm, NULL, NULL, w.shown->first, sizeof(w.shown->first));
    else
        join(&w);
    if (w.shown->end != TWILL_OK)
        atomic_store(&w.shown->verdict_ns, campaign_now());
    else if (twill_comm_set_timeout(w.comm, job->trial.timeout) == TWILL_OK)
        (void)twill_comm_bounds(w.comm, &w.shown->bounds);
    twill_context *context = twill_comm_context(w.comm);
    w.buffers = w.comm != NULL ? campaign_buffers_open(context) : NULL;
    if (w.buffers != NULL) {
        atomic_store(&w.shown->state, STATE_RUNNING);
        if (work(&w))
            atomic_store(&w.shown->final_size, twill_comm_size(w.comm));
        else
            campaign_buffers_release(w.buffers);
        campaign_buffers_release(w.buffers);
        campaign_buffers_close(w.buffers);
    }
    w.shown->whole = campaign_usage_of(getpid());
    atomic_store(&w.shown->left_ns, campaign_now());
    twill_finalize(w.comm);
    limit(RLIMIT_NOFILE, DESCRIPTORS);
    limit(RLIMIT_AS, RLIM_INFINITY);
    int after = count_descriptors(getenv("CAMPAIGN_TRACE") != NULL ? before : INT_MAX);
    atomic_store(&w.shown->descriptors, after - before);
    atomic_store(&w.shown->state, STATE_ENDED);
    _exit(0);
}
