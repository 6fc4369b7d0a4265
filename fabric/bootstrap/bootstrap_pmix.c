/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap by PMIx, under Open MPI's mpirun, prterun and srun --mpi=pmix. Rank 0 publishes its
 * contact, all ranks enter a fence, and the others get the contact. Only this file includes pmix.h.
 * It opens the library at run time, as programs must also start where there is none. PMIx_Init
 * starts a thread, so PMIx is finalized at the end of set-up. An initialised MPI keeps its own. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"

#ifdef TWILL_WITH_PMIX

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <pmix.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PMIX_SONAME      "libpmix.so.2"
#define PMIX_CONTACT_KEY "twill.card"

/* libpmix, as load_pmix() opened it, with the functions that are used. Part of struct pmix_session,
 * or a local variable. The owner closes `handle`. */
struct pmix_library {
    void *handle;
    __typeof__(PMIx_Init) *init;
    __typeof__(PMIx_Finalize) *finalize;
    __typeof__(PMIx_Put) *put;
    __typeof__(PMIx_Commit) *commit;
    __typeof__(PMIx_Fence_nb) *fence;
    __typeof__(PMIx_Get) *get;
    __typeof__(PMIx_Error_string) *explain;
    __typeof__(PMIx_Value_destruct) *destruct; /* NULL before PMIx 4.2 */
};

struct pmix_session { /* this process's PMIx client, a local variable of pmix_open() */
    struct pmix_library library;
    pmix_proc_t me;
    uint64_t deadline; /* of twill_now() */
};

/* A fence (barrier) in progress, which fence() allocates. Its callback fence_done() and its waiter
 * share it, and the last one frees it. `status` is the result, set before `done` is posted. */
struct fence {
    sem_t done;
    atomic_int users; /* that have not released it, 2 at first */
    pmix_status_t status;
};

/* Open libpmix and set *l, which the caller closes. It stays mapped, as its threads may still be
 * exiting. Returns false if the library is not installed or lacks a function. */
static bool load_pmix(struct pmix_library *l)
{
    l->handle = dlopen(PMIX_SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!l->handle)
        return false;
    l->init = (__typeof__(l->init))dlsym(l->handle, "PMIx_Init");
    l->finalize = (__typeof__(l->finalize))dlsym(l->handle, "PMIx_Finalize");
    l->put = (__typeof__(l->put))dlsym(l->handle, "PMIx_Put");
    l->commit = (__typeof__(l->commit))dlsym(l->handle, "PMIx_Commit");
    l->fence = (__typeof__(l->fence))dlsym(l->handle, "PMIx_Fence_nb");
    l->get = (__typeof__(l->get))dlsym(l->handle, "PMIx_Get");
    l->explain = (__typeof__(l->explain))dlsym(l->handle, "PMIx_Error_string");
    l->destruct = (__typeof__(l->destruct))dlsym(l->handle, "PMIx_Value_destruct");
    if (l->init && l->finalize && l->put && l->commit && l->fence && l->get && l->explain)
        return true;
    dlclose(l->handle);
    return false;
}

const char *twill_pmix_missing(const struct twill_bootstrap_params *params)
{
    struct pmix_library library;
    if (!twill_launch_variable(params, "PMIX_NAMESPACE") ||
        !twill_launch_variable(params, "PMIX_RANK"))
        return "PMIX_NAMESPACE and PMIX_RANK are not set";
    if (!load_pmix(&library))
        return PMIX_SONAME " cannot be loaded (Debian's package: libpmix2)";
    dlclose(library.handle);
    return NULL;
}

/* Return whether a launcher's variables of PMIx are set and libpmix can be loaded. */
static bool pmix_applies(const struct twill_bootstrap_params *params)
{
    return twill_pmix_missing(params) == NULL;
}

/* Return TWILL_OK for PMIX_SUCCESS. Otherwise fail with PMIx's text on the call `what`. */
static twill_status check_pmix(const struct pmix_session *s, pmix_status_t outcome,
                               const char *what, struct twill_error *error)
{
    if (outcome != PMIX_SUCCESS)
        return TWILL_FAIL(error,
                          outcome == PMIX_ERR_TIMEOUT ? TWILL_ERR_TIMEOUT : TWILL_ERR_BOOTSTRAP,
                          "rank %u: %s: %s", s->me.rank, what, s->library.explain(outcome));
    return TWILL_OK;
}

/* Return the whole seconds to the deadline plus 1, so at least 1. */
static int seconds_left(const struct pmix_session *s)
{
    uint64_t now = twill_now(), left = s->deadline > now ? s->deadline - now : 0;
    return (int)twill_min(left / 1000000000 + 1, INT_MAX);
}

/* Free a value of PMIx_Get() and what it points to. NULL is allowed. */
static void free_value(const struct pmix_session *s, pmix_value_t *value)
{
    if (value && s->library.destruct)
        s->library.destruct(value);
    else if (value && value->type == PMIX_STRING)
        free(value->data.string);
    free(value);
}

/* Set *value, which the caller frees with free_value(), to what rank `rank` has put at `key`, or
 * the job's for PMIX_RANK_WILDCARD. Waits for it until s->deadline. Fails if PMIx does or the value
 * is not of `type`. */
static twill_status get_pmix(const struct pmix_session *s, pmix_rank_t rank, const char *key,
                             pmix_data_type_t type, pmix_value_t **value, struct twill_error *error)
{
    pmix_proc_t whose = s->me;
    pmix_info_t patience;
    char what[64];
    whose.rank = rank;
    memset(&patience, 0, sizeof(patience));
    snprintf(patience.key, sizeof(patience.key), "%s", PMIX_TIMEOUT);
    patience.value.type = PMIX_INT;
    patience.value.data.integer = seconds_left(s);
    snprintf(what, sizeof(what), "PMIx_Get of %s", key);
    *value = NULL;
    TWILL_TRY(error, check_pmix(s, s->library.get(&whose, key, &patience, 1, value), what, error));
    if (!*value || (*value)->type != type) {
        free_value(s, *value);
        return TWILL_FAIL(error, TWILL_ERR_BOOTSTRAP, "rank %u: %s: PMIx gives a wrong type",
                          s->me.rank, what);
    }
    return TWILL_OK;
}

/* Set *number to the job's value at `key`, which must be a uint32, or fail as get_pmix() does. */
static twill_status get_number(const struct pmix_session *s, const char *key, uint32_t *number,
                               struct twill_error *error)
{
    pmix_value_t *value;
    TWILL_TRY(error, get_pmix(s, PMIX_RANK_WILDCARD, key, PMIX_UINT32, &value, error));
    *number = value->data.uint32;
    free_value(s, value);
    return TWILL_OK;
}

/* Give up one of the two uses of the fence, and free it after the last. */
static void release_fence(struct fence *fence)
{
    if (atomic_fetch_sub(&fence->users, 1) != 1)
        return;
    sem_destroy(&fence->done);
    free(fence);
}

/* Receive the result of the fence from a thread of PMIx, wake the waiter, and release the fence. */
static void fence_done(pmix_status_t status, void *user)
{
    struct fence *fence = user;
    fence->status = status;
    sem_post(&fence->done);
    release_fence(fence);
}

/* Publish this rank's values and wait for those of all others. PMIx_Fence() has no timeout, so the
 * non-blocking call is used. Returns TWILL_ERR_TIMEOUT at the deadline. */
static twill_status fence(const struct pmix_session *s, struct twill_error *error)
{
    pmix_proc_t all = s->me;
    pmix_info_t collect;
    struct timespec until;
    struct fence *fence = calloc(1, sizeof(*fence));
    if (!fence || sem_init(&fence->done, 0, 0) != 0) {
        free(fence);
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "rank %u: no memory", s->me.rank);
    }
    atomic_init(&fence->users, 2);
    all.rank = PMIX_RANK_WILDCARD;
    memset(&collect, 0, sizeof(collect));
    snprintf(collect.key, sizeof(collect.key), "%s", PMIX_COLLECT_DATA);
    collect.value.type = PMIX_BOOL;
    collect.value.data.flag = true;
    pmix_status_t outcome = s->library.fence(&all, 1, &collect, 1, fence_done, fence);
    if (outcome != PMIX_SUCCESS) {
        release_fence(fence); /* for the callback, which will not be called */
        release_fence(fence);
        return check_pmix(s, outcome, "PMIx_Fence", error);
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds_left(s);
    int waited;
    do
        waited = sem_timedwait(&fence->done, &until);
    while (waited != 0 && errno == EINTR);
    outcome = waited == 0 ? fence->status : PMIX_ERR_TIMEOUT;
    release_fence(fence);
    return check_pmix(s, outcome, "PMIx_Fence: not all ranks have called twill_init", error);
}

/* On rank 0, put the contact (address and key) and commit it. The next fence() makes it visible. */
static twill_status publish_pmix(const struct pmix_session *s, const struct twill_job *job,
                                 struct twill_error *error)
{
    char contact[TWILL_JOB_CONTACT];
    pmix_value_t value;
    TWILL_TRY(error, twill_launch_write_contact(job, contact, sizeof(contact), error));
    memset(&value, 0, sizeof(value));
    value.type = PMIX_STRING;
    value.data.string = contact;
    twill_status status =
        check_pmix(s, s->library.put(PMIX_GLOBAL, PMIX_CONTACT_KEY, &value), "PMIx_Put", error);
    twill_secret_wipe(contact, sizeof(contact));
    TWILL_TRY(error, status);
    return check_pmix(s, s->library.commit(), "PMIx_Commit", error);
}

/* Set rank and size of `job`. On rank 0, listen and publish its contact. On others, read that once
 * all ranks have entered the fence. Collective. */
static twill_status exchange_pmix(const struct pmix_session *s, struct twill_job *job,
                                  const struct twill_bootstrap_params *params,
                                  struct twill_error *error)
{
    uint32_t size = 0, local = 0;
    char rank_text[16], size_text[16];
    pmix_value_t *value;
    TWILL_TRY(error, get_number(s, PMIX_JOB_SIZE, &size, error));
    TWILL_TRY(error, get_number(s, PMIX_LOCAL_SIZE, &local, error));
    snprintf(rank_text, sizeof(rank_text), "%u", s->me.rank);
    snprintf(size_text, sizeof(size_text), "%u", size);
    TWILL_TRY(error, twill_launch_ranks(job, "PMIX_RANK", rank_text, "PMIx's size of the job",
                                        size_text, error));
    if (job->rank == 0) {
        TWILL_TRY(error, twill_launch_listen(job, params, local == size, error));
        TWILL_TRY(error, publish_pmix(s, job, error));
    }
    TWILL_TRY(error, fence(s, error));
    if (job->rank == 0)
        return TWILL_OK;
    TWILL_TRY(error, get_pmix(s, 0, PMIX_CONTACT_KEY, PMIX_STRING, &value, error));
    twill_status status = twill_launch_read_contact(job, params, value->data.string, error);
    twill_secret_wipe(value->data.string, strlen(value->data.string)); /* it contains the key */
    free_value(s, value);
    return status;
}

/* Return the name of the launcher, for messages, by the variables that it sets. */
static const char *pmix_job_name(const struct twill_bootstrap_params *params)
{
    if (twill_launch_variable(params, "OMPI_COMM_WORLD_SIZE"))
        return "Open MPI's mpirun";
    return twill_launch_variable(params, "SLURM_STEP_ID") ? "Slurm" : "a launcher";
}

/* Set *oob to the job that the launcher describes by PMIx, once all ranks have joined, or fail. */
static twill_status pmix_open(struct twill_oob **oob, const struct twill_bootstrap_params *params,
                              struct twill_error *error)
{
    struct twill_job job = {.listener = -1, .source = "PMIx"};
    struct pmix_session s = {.deadline = twill_wire_deadline(params->timeout_ns)};
    const char *missing = twill_pmix_missing(params);
    if (missing || !load_pmix(&s.library))
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_LAUNCHER=pmix, but %s",
                          missing ? missing : "the library cannot be loaded");
    pmix_status_t outcome = s.library.init(&s.me, NULL, 0);
    twill_status status = check_pmix(&s, outcome, "PMIx_Init", error);
    if (status == TWILL_OK) {
        status = exchange_pmix(&s, &job, params, error);
        (void)s.library.finalize(NULL, 0);
    }
    dlclose(s.library.handle);
    if (status != TWILL_OK && job.listener >= 0)
        close(job.listener);
    snprintf(job.how, sizeof(job.how), "PMIx: PMIX_NAMESPACE of %s, rank %d of %d",
             pmix_job_name(params), job.rank, job.size);
    if (status == TWILL_OK)
        status = twill_bootstrap_tcp_open(oob, &twill_bootstrap_pmix, &job, params, error);
    twill_secret_wipe(&job.key, sizeof(job.key));
    return status;
}

#else

const char *twill_pmix_missing(const struct twill_bootstrap_params *params)
{
    (void)params;
    return "this library was built without PMIx (cmake -DTWILL_WITH_PMIX=ON)";
}

/* Return false, as this library was built without PMIx. */
static bool pmix_applies(const struct twill_bootstrap_params *params)
{
    (void)params;
    return false;
}

/* Return TWILL_ERR_CONFIG, as this library was built without PMIx. */
static twill_status pmix_open(struct twill_oob **oob, const struct twill_bootstrap_params *params,
                              struct twill_error *error)
{
    (void)oob;
    return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_LAUNCHER=pmix, but %s",
                      twill_pmix_missing(params));
}

#endif

const struct twill_bootstrap_ops twill_bootstrap_pmix = {
    TWILL_BOOTSTRAP_BY_TCP, .name = "pmix", .applies = pmix_applies, .open = pmix_open};
