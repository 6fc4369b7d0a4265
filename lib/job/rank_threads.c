/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that share the work of a rank's kernels. Decides how many there are and where they
 * run, and measures from which sizes they pay. One rank of the job measures, and all get its
 * figures, by which they choose algorithms alike, and the lengths of messages that follow. */
#include "lib/job/rank_threads.h"
#include "kernels/thread_pool.h"
#include "lib/base/plural.h"
#include "lib/job/config.h"
#include "lib/job/thread_cache.h"
#include "numa/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AUTO      UINT32_MAX /* as many threads as cores */
#define NOT_BOUND "the rank is not bound to cores"

/* Return the number that OMP_NUM_THREADS sets for the outermost parallel region, or AUTO. */
static uint32_t openmp_threads(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    char *end = NULL;
    unsigned long number = text != NULL ? strtoul(text, &end, 10) : 0;
    return number > 0 && (*end == '\0' || *end == ',') ? (uint32_t)twill_min(number, AUTO) : AUTO;
}

/* Return how many CPUs the launcher says that it gives each rank, or 0. It may not bind ranks. */
static unsigned launcher_cpus(void)
{
    const char *const names[] = {"SLURM_CPUS_PER_TASK", "ALPS_APP_DEPTH"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(names); i++) {
        const char *text = getenv(names[i]);
        unsigned long number = text != NULL ? strtoul(text, NULL, 10) : 0;
        if (number > 1)
            return (unsigned)twill_min(number, TWILL_CPUS_MOST);
    }
    return 0;
}

twill_status twill_context_configure_threads(struct twill_context *context)
{
    const char *text = context->config->text[TWILL_VARIABLE_THREADS];
    struct twill_context_threads *threads = context->machine.threads;
    int64_t number = 0;
    threads->asked = AUTO;
    if (strcmp(text, "auto") == 0)
        threads->why = "TWILL_THREADS=auto";
    else if (text[0] != '\0') {
        if (!twill_read_integer(text, false, &number) || number < 1 || number > TWILL_THREADS_MOST)
            return TWILL_FAIL(&context->error, TWILL_ERR_CONFIG,
                              "TWILL_THREADS=%s: must be auto or a number from 1 to %u", text,
                              TWILL_THREADS_MOST);
        threads->asked = (uint32_t)number;
        threads->why = "TWILL_THREADS";
    }
    return TWILL_OK;
}

uint32_t twill_threads_asked(struct twill_context *context)
{
    struct twill_context_threads *threads = context->machine.threads;
    if (threads->why == NULL) {
        bool bound = twill_topology_is_bound(context->machine.topology);
        threads->implied = true;
        threads->given = bound ? 0 : launcher_cpus();
        threads->asked = bound || threads->given > 0 ? openmp_threads() : 1;
        threads->why = !bound && threads->given == 0 ? NOT_BOUND
                       : threads->asked != AUTO      ? "bound by the launcher, OMP_NUM_THREADS"
                                                     : "bound by the launcher";
    }
    uint32_t cores = twill_topology_cores(context->machine.topology);
    return (uint32_t)twill_min(threads->asked == AUTO ? cores : threads->asked, TWILL_THREADS_MOST);
}

bool twill_threads_are_given(unsigned given, unsigned ranks, const struct twill_cpus *cpus)
{
    uint64_t has = 0;
    for (size_t w = 0; w < TWILL_ARRAY_LENGTH(cpus->word); w++)
        has += (uint64_t)__builtin_popcountll(cpus->word[w]);
    return has > 0 && (uint64_t)given * ranks >= has;
}

/* Return this rank's share of the cores of its host, with its PUs in *cpus. It is 0 if that is
 * unknown, or the rank is not bound and others than its job may use these cores. */
static unsigned find_share(const struct twill_context *context, struct twill_cpus *cpus)
{
    const struct twill_context_job *job = &context->job;
    struct twill_context_threads *threads = context->machine.threads;
    if (threads->asked < 2 || job->host_cpus == NULL || job->host_ranks == 0 ||
        !twill_topology_machine(context->machine.topology)->is_this_machine)
        return 0;
    if (threads->given > 0 && !twill_threads_are_given(threads->given, job->host_ranks,
                                                       &job->host_cpus[job->host_rank])) {
        threads->why = NOT_BOUND;
        return 0;
    }
    return (unsigned)twill_min(twill_topology_share(context->machine.topology, job->host_cpus,
                                                    job->host_ranks, job->host_rank, cpus),
                               TWILL_THREADS_MOST);
}

/* Leave the last of `cores` cores, pu[cores], to the progress thread, if it has no other place.
 * Returns the number of cores that are left. */
static unsigned leave_core(struct twill_context *context, const int *pu, unsigned cores)
{
    struct twill_progress *progress = &context->progress;
    if (!progress->enabled || progress->late || progress->core >= 0 || cores < 3 ||
        context->machine.threads->asked != AUTO)
        return cores;
    progress->core = pu[cores - 1];
    snprintf(progress->how, sizeof(progress->how),
             "a thread on PU %d (on a core that the other threads of this rank leave to it)",
             progress->core);
    return cores - 1;
}

/* Set threads->cores and count to this rank's share of cores and how many threads it has, with the
 * PUs of these threads in pu[TWILL_THREADS_MOST], unless `cores` is 0. */
static void place_threads(struct twill_context *context, int *pu)
{
    struct twill_context_threads *threads = context->machine.threads;
    struct twill_cpus cpus;
    uint32_t asked = threads->asked;
    threads->cores = find_share(context, &cpus);
    threads->count = threads->implied ? (uint32_t)twill_min(asked, threads->cores)
                                      : (asked == AUTO ? threads->cores : asked);
    if (threads->cores > 0 &&
        twill_topology_threads(context->machine.topology, &cpus, threads->count, pu) == 0) {
        threads->cores = 0; /* out of memory, so only those asked for explicitly are started */
        threads->count = threads->implied || asked == AUTO ? 1 : asked;
    }
    if (threads->cores > 0)
        threads->count = leave_core(context, pu, threads->count);
    threads->count = (uint32_t)twill_max(threads->count, 1);
    threads->shared = context->job.crowded != 0 || threads->count > threads->cores;
}

/* Make machine.pool of as many threads as are asked for, on the cores of this rank's share. */
static twill_status open_pool(struct twill_context *context, struct twill_error *error)
{
    struct twill_context_threads *threads = context->machine.threads;
    uint16_t position[TWILL_CPUS_MOST];
    int pu[TWILL_THREADS_MOST];
    place_threads(context, pu);
    struct twill_thread_pool_options options = {
        .threads = threads->count,
        .shared = threads->shared,
        .thread_bytes = (size_t)context->config->number[TWILL_VARIABLE_THREAD_BYTES]};
    if (threads->cores > 0) {
        twill_topology_positions(context->machine.topology, pu, threads->count, position);
        options.cpus = pu;
        options.position = position;
        options.cpu_count = TWILL_CPUS_MOST;
        if (threads->count > 1 && (threads->cpus = calloc(1, sizeof(*threads->cpus))) != NULL)
            for (unsigned cpu = 0; cpu < TWILL_CPUS_MOST; cpu++)
                if (position[cpu] != UINT16_MAX)
                    threads->cpus->word[cpu / 64] |= UINT64_C(1) << cpu % 64;
    }
    twill_status status = twill_thread_pool_open(&context->machine.pool, &options, error);
    if (status == TWILL_OK || !threads->implied)
        return status;
    threads->why = "others could not be started"; /* nobody has asked for them explicitly */
    threads->count = 1;
    twill_error_clear(error);
    return TWILL_OK;
}

/* Return whether the program's own OpenMP threads never sleep. They would take the cores from other
 * threads, so that only their team can work there. */
static bool spins_in_openmp(void)
{
    const char *policy = getenv("OMP_WAIT_POLICY"), *blocktime = getenv("KMP_BLOCKTIME");
    return (policy != NULL && twill_words_equal(policy, "active", 7)) ||
           (blocktime != NULL && strcmp(blocktime, "infinite") == 0);
}

/* Set the figures of this rank's threads, from the cache or by a measurement, which is cached
 * unless it was disturbed. */
static void find_figures(struct twill_context *context, struct twill_thread_figures *figures)
{
    enum twill_pool_team team;
    bool kept = twill_thread_cache_read(context, &figures->rates, &figures->team);
    bool undisturbed =
        !kept && twill_thread_pool_measure(context->machine.pool, context->machine.kernels,
                                           spins_in_openmp(), &figures->rates, &team);
    if (!kept)
        figures->team = team;
    if (undisturbed)
        twill_thread_cache_write(context, &figures->rates, figures->team);
    for (uint32_t s = 0; s < figures->rates.steps; s++)
        figures->piece[s] =
            twill_thread_piece(&figures->rates, figures->rates.step[s].threads, context->job.piece);
    context->machine.threads->source = kept          ? "kept from an earlier job"
                                       : undisturbed ? "measured"
                                                     : "measured while cores were shared";
}

/* Return the rank whose threads are measured, the first of those with a pool that have the most
 * threads with a core each, or -1 if no rank has threads whose number depends on figures. */
static int rank_that_measures(const struct twill_threads_found *all, int size)
{
    uint32_t most = 0;
    int found = -1;
    for (int r = 0; r < size; r++) {
        uint32_t threads = (uint32_t)twill_max(twill_min(all[r].threads, all[r].cores), 1);
        if (all[r].thread_bytes == 0 && all[r].threads > 1 && threads > most) {
            most = threads;
            found = r;
        }
    }
    return found;
}

twill_status twill_threads_offer(struct twill_context *context,
                                 struct twill_threads_opening *opening, const uint32_t *asked,
                                 struct twill_oob_batch *batch)
{
    int size = context->job.oob->size;
    uint32_t fewest = UINT32_MAX, most = 1;
    for (int r = 0; r < size; r++) {
        fewest = (uint32_t)twill_min(fewest, asked[r]);
        most = (uint32_t)twill_max(most, asked[r]);
    }
    context->job.piece = fewest > 1 ? fewest * TWILL_THREAD_BYTES : 0;
    opening->any = most > 1;
    context->job.rank_threads = 1;
    if (!opening->any)
        return TWILL_OK;
    opening->all = calloc((size_t)size, sizeof(*opening->all));
    twill_status status = open_pool(context, &context->error);
    opening->mine = (struct twill_threads_found){
        .threads = twill_thread_pool_size(context->machine.pool),
        .cores = context->machine.threads->cores,
        .thread_bytes = (uint64_t)context->config->number[TWILL_VARIABLE_THREAD_BYTES]};
    twill_oob_batch_add(batch, &opening->mine, opening->all, sizeof(opening->mine));
    if (status == TWILL_OK && opening->all == NULL)
        status = TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
    return status;
}

/* Return what a rank's threads need so that all of them help: struct twill_context_job. The rank
 * that measures has computed it, so that no rank rounds differently. */
static size_t piece_of(const struct twill_thread_figures *figures,
                       const struct twill_threads_found *of, size_t most)
{
    const struct twill_thread_rates *rates = &figures->rates;
    if (of->threads < 2)
        return 0;
    if (of->thread_bytes > 0 || rates->steps == 0)
        return twill_min(most, of->threads * (of->thread_bytes > 0 ? (size_t)of->thread_bytes
                                                                   : TWILL_THREAD_BYTES));
    return twill_min((size_t)figures->piece[twill_thread_last_step(rates, of->threads)], most);
}

/* Use the figures, and set job.piece and job.rank_threads. */
static void use_figures(struct twill_context *context, const struct twill_threads_opening *opening,
                        const struct twill_thread_figures *figures)
{
    struct twill_thread_pool *pool = context->machine.pool;
    size_t piece = context->job.piece, fewest = SIZE_MAX;
    for (int r = 0; r < context->job.oob->size; r++) {
        fewest = twill_min(fewest, opening->all[r].threads);
        piece = twill_min(piece, piece_of(figures, &opening->all[r], context->job.piece));
    }
    context->machine.threads->rates = figures->rates;
    context->job.piece = piece;
    context->job.rank_threads = (uint32_t)fewest;
    if (pool != NULL && opening->mine.thread_bytes == 0)
        twill_thread_pool_use(
            pool, figures->team == TWILL_TEAM_OPENMP ? TWILL_TEAM_OPENMP : TWILL_TEAM_OWN,
            &figures->rates);
}

twill_status twill_threads_agree(struct twill_context *context,
                                 const struct twill_threads_opening *opening, twill_status status)
{
    struct twill_oob *oob = context->job.oob;
    struct twill_thread_figures mine, *all = NULL;
    memset(&mine, 0, sizeof(mine)); /* with the gaps, as it is sent */
    mine.team = TWILL_TEAM_OWN;
    int measures = opening->any ? rank_that_measures(opening->all, oob->size) : -1;
    if (measures >= 0) {
        struct twill_oob_batch batch = {.oob = oob};
        all = calloc((size_t)oob->size, sizeof(*all));
        if (status == TWILL_OK && all == NULL)
            status = TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
        if (status == TWILL_OK && oob->rank == measures)
            find_figures(context, &mine);
        twill_oob_batch_add(&batch, &mine, all, sizeof(mine));
        status = twill_oob_batch_exchange(&batch, status, &context->error);
        if (status == TWILL_OK && twill_thread_rates_valid(&all[measures].rates))
            mine = all[measures];
    }
    if (opening->any && status == TWILL_OK)
        use_figures(context, opening, &mine);
    free(all);
    return status;
}

void twill_threads_opening_end(struct twill_threads_opening *opening)
{
    free(opening->all);
}

void twill_threads_note(struct twill_context *context)
{
    const struct twill_context_threads *threads = context->machine.threads;
    const struct twill_thread_pool *pool = context->machine.pool;
    unsigned count = twill_thread_pool_size(pool);
    char where[96] = "where this rank may run", from[96] = "";
    if (threads->cpus != NULL) {
        size_t length = (size_t)snprintf(where, sizeof(where), "on PUs ");
        (void)twill_cpus_list(threads->cpus, where + length, sizeof(where) - length);
    }
    size_t pays = twill_thread_pays_from(&threads->rates, count);
    if (pool != NULL && threads->rates.steps > 0 && pays == SIZE_MAX)
        snprintf(from, sizeof(from), "; one thread is the fastest for all sizes");
    else if (pool != NULL && threads->rates.steps > 0)
        snprintf(from, sizeof(from), "; two or more pay from %zu KiB (%s)", (pays + 1023) / 1024,
                 threads->source != NULL ? threads->source : "measured by another rank");
    if (pool == NULL)
        twill_context_note_rank(context, "threads: one (%s)", threads->why);
    else
        twill_context_note_rank(context, "threads: %u %s (%s)%s", count, where, threads->why, from);
    if (threads->count > threads->cores && threads->cores > 0)
        twill_context_note_rank(context, "threads: %u of them share %u core%s", threads->count,
                                threads->cores, TWILL_PLURAL(threads->cores));
}
