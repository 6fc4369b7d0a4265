/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the job of a context in two exchanges. The first carries facts about each rank, which are
 * compared here, once. The second opens the heap and connects hosts. If ranks have several threads,
 * a third one carries the figures of one of them. */
#include "algorithms/select/tuning_file.h"
#include "fabric/bootstrap/oob_batch.h"
#include "fabric/detector/detector.h"
#include "fabric/host/host_identity.h"
#include "lib/job/config.h"
#include "lib/job/find_levels.h"
#include "lib/job/job_internal.h"
#include "lib/job/rank_threads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define MOST_HOSTS ((size_t)512) /* most connections of the failure detector to other hosts */

/* Facts about a rank that ranks exchange at start-up. Sent as it is in memory. */
struct peer_info {
    char version[16];
    struct twill_host host;
    struct twill_cpus where; /* CPUs that the rank may run on */
    struct twill_memory_claims memory;
    uint64_t tuning;                     /* hash of the contents of TWILL_TUNING */
    uint64_t timings;                    /* hash of the machine's timings, or 0 if none */
    uint64_t started;                    /* twill_now() on its host */
    uint32_t threads;                    /* that it asks for */
    uint32_t hash[TWILL_VARIABLE_COUNT]; /* of the variables' values */
    struct twill_heap_info heap;
    struct twill_level_info level;
    uint64_t turns;  /* twill_host_turns() */
    uint64_t booted; /* twill_host_booted() */
};

/* Return whether two ranks run on one kernel, in any namespaces. Some containers and tests have
 * boot ids of their own, but clocks are the kernel's. */
static bool on_one_kernel(const struct peer_info *a, const struct peer_info *b)
{
    return strcmp(a->host.boot_id, b->host.boot_id) == 0 ||
           twill_host_booted_together(a->booted, b->booted);
}

/* Compare all ranks. Return TWILL_ERR_MISMATCH if one has another version, or TWILL_ERR_CONFIG if
 * other settings or contents of TWILL_TUNING. Else set all_tuned, if the machine's timings agree,
 * and job.crowded, if more ranks than CPUs run on exactly this rank's CPUs, and job.apart, and
 * return TWILL_OK. */
static twill_status check_agreement(struct twill_context *context, const struct peer_info *all)
{
    const struct peer_info *mine = &all[context->job.oob->rank];
    for (int r = 0; r < context->job.oob->size; r++) {
        if (memcmp(all[r].version, all[0].version, sizeof(all[r].version)) != 0)
            return TWILL_FAIL(&context->error, TWILL_ERR_MISMATCH,
                              "rank %d runs twill %.15s, rank 0 runs %.15s", r, all[r].version,
                              all[0].version);
        for (int v = 0; v < TWILL_VARIABLE_COUNT; v++)
            if (twill_variables[v].agree != TWILL_AGREE_ANY && all[r].hash[v] != all[0].hash[v])
                return TWILL_FAIL(&context->error, TWILL_ERR_CONFIG,
                                  "%s must be the same on all ranks: rank %d differs from rank 0 "
                                  "(rank %d has \"%s\", by %s)",
                                  twill_variables[v].name, r, context->job.oob->rank,
                                  context->config->text[v], context->config->source[v]);
    }
    context->selection.all_tuned = true;
    for (int r = 0; r < context->job.oob->size; r++)
        context->selection.all_tuned =
            context->selection.all_tuned && all[r].timings == all[0].timings;
    for (int r = 0; r < context->job.oob->size; r++)
        if (all[r].tuning != all[0].tuning)
            return TWILL_FAIL(&context->error, TWILL_ERR_CONFIG,
                              "TWILL_TUNING must have the same contents on all ranks: rank %d has "
                              "read other timings than rank 0",
                              r);
    /* Count the ranks of this machine, in any namespace, that run on exactly these CPUs. */
    unsigned sharing = 0, reached = 0;
    for (int r = 0; r < context->job.oob->size; r++) {
        bool shares =
            on_one_kernel(&all[r], mine) && all[r].level.cpuset_hash == mine->level.cpuset_hash;
        sharing += shares;
        reached += shares && all[r].turns == mine->turns;
    }
    uint32_t cpus = mine->level.cpus;
    context->job.crowded = cpus > 0 && sharing > cpus ? (sharing - 1) / cpus + 1 : 0;
    context->job.apart = context->job.crowded != 0 && reached < sharing;
    return TWILL_OK;
}

/* Divide this host's memory and CPUs among its ranks. Limit both memory pools to a share of the
 * free MCDRAM, as untouched allocations are invisible. Choose the CPU of the progress thread, a
 * spare one if there is one. List the host's ranks in job.host_cpus. */
static void share_host(struct twill_context *context, const struct peer_info *all)
{
    const struct peer_info *mine = &all[context->job.oob->rank];
    struct twill_cpus *where = calloc((size_t)context->job.oob->size, sizeof(*where));
    struct twill_memory_claims *claims = calloc((size_t)context->job.oob->size, sizeof(*claims));
    unsigned n = 0, me = 0;
    for (int r = 0; r < context->job.oob->size; r++) {
        if (strcmp(all[r].host.boot_id, mine->host.boot_id) != 0)
            continue;
        me = r == context->job.oob->rank ? n : me;
        if (where != NULL)
            where[n] = all[r].where;
        if (claims != NULL)
            claims[n] = all[r].memory;
        n++;
    }
    uint64_t share = claims != NULL ? twill_memory_share(claims, n, me) : 0;
    twill_memory_limit(context->memory->user, share);
    twill_memory_limit(context->memory->library, share);
    free(claims);
    n = where != NULL ? n : 0;
    twill_progress_place(context, where, n, me);
    context->job.host_cpus = where;
    context->job.host_ranks = n;
    context->job.host_rank = me;
}

/* Compare two process hashes (uint64_t), for qsort() in ascending order. */
static int compare_processes(const void *of, const void *with)
{
    uint64_t a = *(const uint64_t *)of, b = *(const uint64_t *)with;
    return (a > b) - (a < b);
}

/* Set job.threads to the most ranks that one process has. Fails only if out of memory. */
static twill_status count_threads(struct twill_context *context, const struct peer_info *all)
{
    size_t size = (size_t)context->job.oob->size;
    uint64_t *process = calloc(size, sizeof(*process));
    context->job.threads = 1;
    if (process == NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
    for (size_t r = 0; r < size; r++)
        process[r] = twill_host_hash(&all[r].host, all[r].host.pid_namespace);
    qsort(process, size, sizeof(*process), compare_processes);
    for (size_t r = 0, first = 0; r < size; r++) {
        first = process[r] == process[first] ? first : r;
        context->job.threads = twill_max(context->job.threads, (unsigned)(r - first + 1));
    }
    free(process);
    return TWILL_OK;
}

/* Set job.label so that ranks of a node have the same label, by TWILL_LAYOUT=nodes or, without it,
 * by host. Returns TWILL_OK or the error. */
static twill_status label_nodes(struct twill_context *context, const struct peer_info *all)
{
    int size = context->job.oob->size;
    const char *nodes = twill_config_text(context->config, TWILL_VARIABLE_NODES);
    if (nodes != NULL)
        return twill_world_parse_nodes(nodes, (uint32_t)size, context->job.label, &context->error);
    for (int r = 0; r < size; r++) {
        int first = 0;
        while (!twill_host_same_node(&all[first].host, &all[r].host))
            first++;
        context->job.label[r] = (uint32_t)first;
    }
    return TWILL_OK;
}

/* Set *mine to the facts about this rank that all ranks exchange. */
static void describe_rank(struct twill_context *context, struct peer_info *mine)
{
    memset(mine, 0, sizeof(*mine)); /* padding is also sent */
    snprintf(mine->version, sizeof(mine->version), "%s", twill_version());
    twill_host_describe(&mine->host);
    mine->turns = twill_host_turns(&mine->host);
    mine->booted = twill_host_booted();
    twill_topology_cpus(context->machine.topology, &mine->where);
    mine->tuning = twill_tuning_hash(context->selection.tuning);
    mine->started = twill_now();
    mine->threads = twill_threads_asked(context);
    mine->timings =
        context->selection.timings != NULL ? twill_tuning_hash(context->selection.timings) : 0;
    twill_heap_describe(context, &mine->heap);
    twill_memory_claim(context->memory->user, &mine->memory.user);
    twill_memory_claim(context->memory->library, &mine->memory.library);
    for (int v = 0; v < TWILL_VARIABLE_COUNT; v++)
        mine->hash[v] = twill_config_hash(context->config, v);
    twill_levels_describe(context->machine.topology, NULL, &mine->level);
}

/* Begin to open the failure detector, and add its part to the batch. It may use a quarter of this
 * process's descriptors, and connect at most MOST_HOSTS hosts. Returns TWILL_OK or the error. */
static twill_status offer_detector(struct twill_context *context, struct twill_oob_batch *batch)
{
    struct rlimit files;
    size_t most = MOST_HOSTS;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0)
        most = twill_min(most, (size_t)files.rlim_cur / 4);
    return twill_detector_offer(&context->health.detector, context->job.oob, most, batch,
                                &context->error);
}

/* Unless there is only one node, start to connect this node's host to others for the detector. Adds
 * to the batch which of these attempts failed at once. Returns TWILL_OK or the error. */
static twill_status connect_detector(struct twill_context *context, struct twill_oob_batch *batch)
{
    const struct twill_world *world = &context->job.world;
    if (world->nodes == 1)
        return TWILL_OK;
    return twill_detector_connect(context->health.detector, context->job.oob, world->node,
                                  context->job.threads, batch, &context->error);
}

/* Close the failure detector and open it again for the nodes of job.world, which have changed.
 * Collective. Returns TWILL_OK or the error. */
static twill_status reopen_detector(struct twill_context *context)
{
    struct twill_oob_batch batch = {.oob = context->job.oob};
    twill_detector_close(context->health.detector);
    twill_status status = offer_detector(context, &batch);
    TWILL_TRY(&context->error, twill_oob_batch_exchange(&batch, status, &context->error));
    status = connect_detector(context, &batch);
    return twill_oob_batch_exchange(&batch, status, &context->error);
}

twill_status twill_context_conclude_detector(struct twill_context *context)
{
    struct twill_detector *detector = context->health.detector;
    char text[320];
    if (context->job.world.nodes == 1) {
        twill_detector_conclude_alone(detector);
        return TWILL_OK;
    }
    uint64_t begin = twill_now();
    TWILL_TRY(&context->error, twill_detector_conclude(detector, &context->error));
    context->job.oob->waited_ns = twill_now() - begin;
    size_t missing = twill_detector_describe(detector, text, sizeof(text));
    twill_context_note(context, "failure detector: %s", text);
    if (missing > 0)
        twill_say(&context->log, TWILL_LOG_WARN,
                  "failure detector: %s: the loss of a host without connection is noticed only "
                  "after TWILL_TIMEOUT",
                  text);
    return TWILL_OK;
}

/* State of twill_context_open_job(), its local variable. It has the facts that the ranks exchange,
 * and the heap opened by them. */
struct job_opening {
    struct peer_info own, *all;   /* [size] */
    struct twill_heap_info *heap; /* [size] */
    uint32_t *asked;              /* [size] threads */
    struct twill_heap_opening opening;
    struct twill_threads_opening threads;
};

/* Begin to open the job. Add to the batch this rank's facts (job->own), and the first parts of the
 * heap and the failure detector. Allocate what holds those of all ranks. Returns TWILL_OK or the
 * first error, with all parts added even then. */
static twill_status offer_job(struct twill_context *context, struct job_opening *job,
                              struct twill_oob_batch *batch)
{
    size_t size = (size_t)context->job.oob->size;
    describe_rank(context, &job->own);
    job->all = calloc(size, sizeof(*job->all));
    job->heap = calloc(size, sizeof(*job->heap));
    job->asked = calloc(size, sizeof(*job->asked));
    context->job.level = calloc(size, sizeof(*context->job.level));
    context->job.label = calloc(size, sizeof(*context->job.label));
    twill_oob_batch_add(batch, &job->own, job->all, sizeof(job->own));
    twill_status heap = twill_heap_offer(context, &job->opening, batch);
    twill_status detects = offer_detector(context, batch);
    TWILL_TRY(&context->error, heap);
    TWILL_TRY(&context->error, detects);
    if (job->all == NULL || job->heap == NULL || job->asked == NULL || context->job.label == NULL ||
        context->job.level == NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
    return TWILL_OK;
}

/* Compare the facts of all ranks, divide the host among its ranks, and set job.level, id, label and
 * world. The world expects ranks with the same label to share memory. All ranks come to the same
 * result, even an error, unless one is out of memory. */
static twill_status compare_ranks(struct twill_context *context, struct job_opening *job)
{
    for (int r = 0; r < context->job.oob->size; r++) {
        context->job.level[r] = job->all[r].level;
        job->heap[r] = job->all[r].heap;
        job->asked[r] = job->all[r].threads;
    }
    TWILL_TRY(&context->error, check_agreement(context, job->all));
    context->job.id = twill_host_hash(&job->all[0].host, job->all[0].started);
    share_host(context, job->all);
    TWILL_TRY(&context->error, label_nodes(context, job->all));
    return twill_heap_make_world(context);
}

/* After the first exchange, begin to share the heap and to connect hosts, as if all ranks with the
 * same label could share memory. Begin each even if the one before has failed, since all ranks must
 * add the same parts to the batch. Returns TWILL_OK or the first error. */
static twill_status attach_job(struct twill_context *context, struct job_opening *job,
                               struct twill_oob_batch *batch)
{
    twill_status counts = count_threads(context, job->all);
    twill_status threads = twill_threads_offer(context, &job->threads, job->asked, batch);
    twill_status heap = twill_heap_attach(context, &job->opening, job->heap, batch);
    twill_status connects = connect_detector(context, batch);
    TWILL_TRY(&context->error, counts);
    TWILL_TRY(&context->error, threads);
    TWILL_TRY(&context->error, heap);
    return connects;
}

/* After the second exchange, finish the heap. If some ranks could not share memory, job.world then
 * has more nodes. All ranks find that, and open the failure detector again. Returns TWILL_OK or the
 * error. */
static twill_status conclude_job(struct twill_context *context, struct job_opening *job)
{
    uint32_t expected = context->job.world.nodes;
    TWILL_TRY(&context->error, twill_heap_conclude(context, &job->opening));
    if (context->job.world.nodes == expected)
        return TWILL_OK;
    return reopen_detector(context);
}

twill_status twill_context_open_job(struct twill_context *context)
{
    struct twill_error *error = &context->error;
    struct twill_oob_batch batch = {.oob = context->job.oob};
    struct job_opening job = {.all = NULL};
    twill_status status = offer_job(context, &job, &batch);
    status = twill_oob_batch_exchange(&batch, status, error);
    if (status == TWILL_OK)
        status = compare_ranks(context, &job);
    if (status == TWILL_OK)
        status = twill_oob_batch_exchange(&batch, attach_job(context, &job, &batch), error);
    if (status == TWILL_OK) {
        status = conclude_job(context, &job);
        if (status != TWILL_OK) /* tell the others, without waiting for another time limit */
            context->job.oob->waited_ns = context->job.oob->timeout_ns;
        status = twill_threads_agree(context, &job.threads, status);
    }
    twill_heap_opening_end(&job.opening);
    twill_threads_opening_end(&job.threads);
    free(job.all);
    free(job.heap);
    free(job.asked);
    return status;
}
