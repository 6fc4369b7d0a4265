/* SPDX-License-Identifier: Apache-2.0 */
/* The threads that share the work of a rank's kernels. Decides how many there are and where they
 * run, and measures from which sizes they pay. One rank of the job measures, and all get its
 * figures, by which they choose algorithms alike. */
#include "lib/job/rank_threads.h"
#include "kernels/thread_pool.h"
#include "lib/base/plural.h"
#include "lib/job/config.h"
#include "lib/job/thread_cache.h"
#include "numa/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AUTO UINT32_MAX /* as many threads as cores */

/* Return the number that OMP_NUM_THREADS sets for the outermost parallel region, or AUTO. */
static uint32_t openmp_threads(void)
{
    const char *text = getenv("OMP_NUM_THREADS");
    char *end = NULL;
    unsigned long number = text != NULL ? strtoul(text, &end, 10) : 0;
    return number > 0 && (*end == '\0' || *end == ',') ? (uint32_t)twill_min(number, AUTO) : AUTO;
}

/* Return whether the launcher gives each rank several CPUs, though it may not bind it to them. */
static bool has_launcher_cpus(void)
{
    const char *const names[] = {"SLURM_CPUS_PER_TASK", "ALPS_APP_DEPTH"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(names); i++) {
        const char *text = getenv(names[i]);
        if (text != NULL && strtoul(text, NULL, 10) > 1)
            return true;
    }
    return false;
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

void twill_threads_describe(struct twill_context *context, struct twill_threads_info *mine)
{
    struct twill_context_threads *threads = context->machine.threads;
    if (threads->why == NULL) {
        bool given = twill_topology_is_bound(context->machine.topology) || has_launcher_cpus();
        threads->implied = true;
        threads->asked = given ? openmp_threads() : 1;
        threads->why = !given                   ? "the rank is not bound to cores"
                       : threads->asked != AUTO ? "bound by the launcher, OMP_NUM_THREADS"
                                                : "bound by the launcher";
    }
    mine->cores = twill_topology_cores(context->machine.topology);
    mine->asked = threads->asked == AUTO ? mine->cores : threads->asked;
    mine->asked = (uint32_t)twill_min(mine->asked, TWILL_THREADS_MOST);
    mine->thread_bytes = (uint64_t)context->config->number[TWILL_VARIABLE_THREAD_BYTES];
}

/* Return this rank's share of the cores of its host, with its PUs in *cpus. */
static unsigned find_share(const struct twill_context *context, struct twill_cpus *cpus)
{
    const struct twill_context_job *job = &context->job;
    if (job->host_cpus == NULL || job->host_ranks == 0 ||
        !twill_topology_machine(context->machine.topology)->is_this_machine)
        return 0;
    return twill_topology_share(context->machine.topology, job->host_cpus, job->host_ranks,
                                job->host_rank, cpus);
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

/* Make machine.pool of as many threads as are asked for, on the cores of this rank's share. */
static twill_status open_pool(struct twill_context *context, struct twill_error *error)
{
    struct twill_context_threads *threads = context->machine.threads;
    struct twill_cpus cpus;
    uint16_t position[TWILL_CPUS_MOST];
    int pu[TWILL_THREADS_MOST];
    threads->cores = threads->asked > 1 ? find_share(context, &cpus) : 0;
    if (threads->cores > TWILL_THREADS_MOST)
        threads->cores = TWILL_THREADS_MOST;
    threads->count = threads->asked == AUTO ? threads->cores : threads->asked;
    if (threads->implied)
        threads->count = (unsigned)twill_min(threads->count, twill_max(threads->cores, 1));
    if (threads->cores > 0) {
        twill_topology_threads(context->machine.topology, &cpus, threads->count, pu);
        threads->count = leave_core(context, pu, threads->count);
    }
    struct twill_thread_pool_options options = {
        .threads = threads->count,
        .shared = context->job.crowded || threads->count > threads->cores,
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
static void find_rates(struct twill_context *context, struct twill_thread_figures *figures)
{
    enum twill_pool_team team;
    if (twill_thread_cache_read(context, &figures->rates, &figures->team)) {
        context->machine.threads->source = "kept from an earlier job";
        return;
    }
    bool undisturbed = twill_thread_pool_measure(context->machine.pool, context->machine.kernels,
                                                 spins_in_openmp(), &figures->rates, &team);
    figures->team = team;
    context->machine.threads->source =
        undisturbed ? "measured" : "measured while cores were shared";
    if (undisturbed)
        twill_thread_cache_write(context, &figures->rates, figures->team);
}

/* Return the rank whose threads are measured, the first of those with the most, or -1 if no rank
 * has several threads whose number depends on figures. */
static int rank_that_measures(const struct twill_threads_info *all, int size)
{
    uint32_t most = 1;
    int found = -1;
    for (int r = 0; r < size; r++) {
        uint32_t threads = (uint32_t)twill_min(all[r].asked, all[r].cores);
        if (all[r].thread_bytes == 0 && threads > most) {
            most = threads;
            found = r;
        }
    }
    return found;
}

twill_status twill_threads_offer(struct twill_context *context,
                                 struct twill_threads_opening *opening,
                                 const struct twill_threads_info *all,
                                 struct twill_oob_batch *batch)
{
    int size = context->job.oob->size;
    uint32_t fewest = UINT32_MAX, most = 1;
    for (int r = 0; r < size; r++) {
        fewest = (uint32_t)twill_min(fewest, all[r].asked);
        most = (uint32_t)twill_max(most, all[r].asked);
    }
    context->job.piece = fewest > 1 ? fewest * TWILL_THREAD_BYTES : 0;
    opening->measures = rank_that_measures(all, size);
    opening->any = most > 1;
    context->job.rank_threads = 1;
    if (!opening->any)
        return TWILL_OK;
    opening->all = calloc((size_t)size, sizeof(*opening->all));
    twill_status status = open_pool(context, &context->error);
    opening->mine.threads = twill_thread_pool_size(context->machine.pool);
    opening->mine.thread_bytes = all[context->job.oob->rank].thread_bytes;
    if (status == TWILL_OK && context->job.oob->rank == opening->measures)
        find_rates(context, &opening->mine);
    twill_oob_batch_add(batch, &opening->mine, opening->all, sizeof(opening->mine));
    if (status == TWILL_OK && opening->all == NULL)
        status = TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
    return status;
}

/* Return what a rank's threads need so that all of them help: struct twill_context_job. */
static size_t piece_of(const struct twill_thread_rates *rates,
                       const struct twill_thread_figures *of, size_t most)
{
    if (of->threads < 2)
        return 0;
    if (of->thread_bytes > 0 || rates->steps == 0)
        return twill_min(most, of->threads * (of->thread_bytes > 0 ? (size_t)of->thread_bytes
                                                                   : TWILL_THREAD_BYTES));
    uint32_t step = twill_thread_step(rates, of->threads, most, 2 * most, false);
    size_t bytes = 1024;
    while (bytes < most && twill_thread_step(rates, of->threads, bytes, 2 * bytes, false) < step)
        bytes += bytes / 8;
    return step > 0 ? twill_min(twill_round_up(bytes, TWILL_CACHE_LINE), most) : 0;
}

void twill_threads_conclude(struct twill_context *context, struct twill_threads_opening *opening)
{
    struct twill_thread_pool *pool = context->machine.pool;
    if (!opening->any)
        return;
    const struct twill_thread_figures none = {.threads = 1};
    const struct twill_thread_figures *figures =
        opening->measures >= 0 ? &opening->all[opening->measures] : &none;
    const struct twill_thread_rates *rates = &figures->rates;
    context->machine.threads->rates = twill_thread_rates_valid(rates) ? *rates : none.rates;
    size_t piece = context->job.piece, fewest = SIZE_MAX;
    for (int r = 0; r < context->job.oob->size; r++) {
        fewest = twill_min(fewest, opening->all[r].threads);
        piece = twill_min(piece, piece_of(&context->machine.threads->rates, &opening->all[r],
                                          context->job.piece));
    }
    context->job.piece = piece;
    context->job.rank_threads = (uint32_t)fewest;
    if (pool != NULL && opening->mine.thread_bytes == 0)
        twill_thread_pool_use(pool, (enum twill_pool_team)figures->team,
                              &context->machine.threads->rates);
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
