/* SPDX-License-Identifier: Apache-2.0 */
/* Creates a context: configuration, machine, memory, bootstrap, job, levels, failure detector. */
#include "algorithms/select/tuning_file.h"
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/detector/detector.h"
#include "fabric/host/interfaces.h"
#include "kernels/kernels.h"
#include "kernels/thread_pool.h"
#include "lib/base/plural.h"
#include "lib/job/config.h"
#include "lib/job/find_levels.h"
#include "lib/job/job_internal.h"
#include "lib/job/log.h"
#include "lib/job/operation.h"
#include "lib/job/rank_threads.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void twill_context_note_of(struct twill_context *context, bool of_rank, const char *format, ...)
{
    va_list arguments;
    unsigned line = context->notes.lines;
    if (line == TWILL_DESCRIBE_LINES)
        return;
    va_start(arguments, format);
    twill_print_list(context->notes.line[line], TWILL_DESCRIBE_BYTES, format, arguments);
    va_end(arguments);
    context->notes.of_rank[line] = of_rank;
    context->notes.lines++;
}

twill_status twill_context_outcome(struct twill_context *context, twill_status status,
                                   const struct twill_error *error)
{
    if (status == TWILL_OK)
        return status;
    twill_context_lock(context);
    context->error = *error;
    twill_context_unlock(context);
    return status;
}

twill_status twill_context_idle(twill_context *context, twill_idle_fn idle, void *user)
{
    if (!twill_context_is_live(context))
        return TWILL_ERR_ARGUMENT;
    context->idle_hook.function = idle;
    context->idle_hook.user = user;
    return TWILL_OK;
}

void twill_context_memory_stats(const struct twill_context *context,
                                struct twill_memory_stats *user, struct twill_memory_stats *library)
{
    struct twill_context *locked = (struct twill_context *)(uintptr_t)context;
    twill_context_lock(locked);
    twill_memory_stats(context->memory->user, user);
    twill_memory_stats(context->memory->library, library);
    twill_context_unlock(locked);
}

/* Create the word context->fork_guard. In a forked child it is 0. Fails only if out of memory. */
static twill_status guard_against_fork(struct twill_context *context)
{
    uint64_t *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
    *page = 1;
    (void)madvise(page, 4096, MADV_WIPEONFORK); /* since Linux 4.14; forks go unnoticed before */
    context->fork_guard = page;
    return TWILL_OK;
}

/* Parse TWILL_PROGRESS into context->progress. Returns TWILL_ERR_CONFIG if it is malformed. */
static twill_status configure_progress(struct twill_context *context)
{
    struct twill_progress *progress = &context->progress;
    const char *text = context->config->text[TWILL_VARIABLE_PROGRESS];
    progress->core = -1;
    progress->late = strcmp(text, "late") == 0;
    progress->enabled = strncmp(text, "thread", 6) == 0 || progress->late;
    if (strcmp(text, "none") == 0 || strcmp(text, "thread") == 0 || progress->late)
        return TWILL_OK;
    const char *number = progress->enabled && text[6] == ':' ? text + 7 : "";
    char *end = NULL;
    long core = *number >= '0' && *number <= '9' ? strtol(number, &end, 10) : -1;
    if (core < 0 || core >= CPU_SETSIZE || *end != '\0')
        return TWILL_FAIL(
            &context->error, TWILL_ERR_CONFIG,
            "TWILL_PROGRESS=%s: must be none, late, thread, or thread:CORE with a CPU's "
            "number below %d",
            text, CPU_SETSIZE);
    progress->core = (int)core;
    return TWILL_OK;
}

void twill_progress_place(struct twill_context *context, const struct twill_cpus *ranks, unsigned n,
                          unsigned me)
{
    struct twill_progress *progress = &context->progress;
    const char *what = "no rank of this host may run there";
    if (!progress->enabled) {
        snprintf(progress->how, sizeof(progress->how),
                 "inside calls, by the threads that make them");
        return;
    }
    if (progress->late) {
        snprintf(progress->how, sizeof(progress->how),
                 "inside calls, and by a thread once per millisecond");
        return;
    }
    if (progress->core >= 0)
        what = "set by TWILL_PROGRESS";
    else if (n > 0 && twill_topology_machine(context->machine.topology)->is_this_machine)
        progress->core = twill_topology_spare(context->machine.topology, ranks, n, me);
    if (progress->core >= 0)
        snprintf(progress->how, sizeof(progress->how),
                 "a thread on PU %d (%s), for all communicators and links of this process",
                 progress->core, what);
    else
        snprintf(progress->how, sizeof(progress->how),
                 "a thread where the caller runs (ranks may run on every PU: none is left for it), "
                 "for all communicators and links of this process");
}

/* Set both policies from TWILL_MEMORY=<user>[,<library>] or auto. Returns TWILL_OK or the error. */
static twill_status decide_memory(struct twill_context *context)
{
    const struct twill_machine *machine = twill_topology_machine(context->machine.topology);
    const char *hbw = getenv("MEMKIND_HBW_NODES");
    char *user = strdup(context->config->text[TWILL_VARIABLE_MEMORY]);
    if (user == NULL)
        return TWILL_FAIL(&context->error, TWILL_ERR_MEMORY, "out of memory");
    char *library = strchr(user, ',');
    if (library != NULL)
        *library++ = '\0';
    twill_status status =
        twill_memory_decide(&context->memory->user_policy, user, machine, hbw, &context->error);
    if (status == TWILL_OK)
        status =
            twill_memory_decide(&context->memory->library_policy,
                                library != NULL ? library : "auto", machine, hbw, &context->error);
    free(user);
    return status;
}

/* Parse TWILL_MEMORY, and open two pools of memory placed as it says, memory->user for
 * twill_alloc(), and memory->library for twill's own needs. Not collective. Returns TWILL_OK or the
 * error. */
static twill_status memory_open(struct twill_context *context)
{
    uint64_t budget = (uint64_t)context->config->number[TWILL_VARIABLE_MEMORY_BUDGET];
    TWILL_TRY(&context->error, decide_memory(context));
    TWILL_TRY(&context->error,
              twill_memory_open(&context->memory->user, &context->memory->user_policy, budget,
                                &context->log, &context->error));
    TWILL_TRY(&context->error,
              twill_memory_open(&context->memory->library, &context->memory->library_policy, budget,
                                &context->log, &context->error));
    twill_memory_join(context->memory->user, context->memory->library);
    return TWILL_OK;
}

/* Write a size to text[space] in MiB (`shift` 20) or KiB (10), or "unknown" if `bytes` is 0.
 * Returns `text`. */
static const char *size_text(char *text, size_t space, uint64_t bytes, unsigned shift)
{
    snprintf(text, space, "unknown");
    if (bytes > 0)
        snprintf(text, space, "%llu %s", (unsigned long long)(bytes >> shift),
                 shift == 20 ? "MiB" : "KiB");
    return text;
}

/* Add a line to twill_context_describe() for each NUMA node. */
static void note_memory(struct twill_context *context, const struct twill_machine *m)
{
    static const char *const kinds[] = {"DDR", "MCDRAM/HBM", "CXL", "other"};
    char size[32];
    for (unsigned i = 0; i < m->numa_nodes && i < TWILL_MAX_NUMA; i++)
        twill_context_note(context, "memory: NUMA %u, %s, %s%s%s%s", m->numa[i].os_index,
                           kinds[m->numa[i].kind], m->numa[i].bytes > 0 ? "" : "size ",
                           size_text(size, sizeof(size), m->numa[i].bytes, 20),
                           m->numa[i].has_cpus ? "" : ", no cores",
                           m->numa[i].local ? ", local" : "");
}

/* Add a line about the caches to twill_context_describe(). */
static void note_caches(struct twill_context *context, const struct twill_machine *m)
{
    char l1d[32], l2[32], l3[32], cores[48] = "", count[64] = "none";
    if (m->cores_per_l2 > 0)
        snprintf(cores, sizeof(cores), " (%u core%s each)", m->cores_per_l2,
                 TWILL_PLURAL(m->cores_per_l2));
    if (m->l3_caches > 0)
        snprintf(count, sizeof(count), "%u of %s%s", m->l3_caches,
                 size_text(l3, sizeof(l3), m->l3_bytes, 10), m->l3_bytes > 0 ? "" : " size");
    twill_context_note(context, "caches: L1d %s, L2 %s%s, L3 %s",
                       size_text(l1d, sizeof(l1d), m->l1d_bytes, 10),
                       size_text(l2, sizeof(l2), m->l2_bytes, 10), cores, count);
}

/* Return the text for a NIC's distance, where 0 is near this rank and 1 in its package. */
static const char *distance_name(unsigned distance)
{
    static const char *const names[] = {"near this rank", "in the same package as this rank",
                                        "far from this rank"};
    return names[twill_min(distance, TWILL_ARRAY_LENGTH(names) - 1)];
}

/* Add a line to twill_context_describe() for each NIC. */
static void note_nics(struct twill_context *context)
{
    struct twill_nic nic;
    struct twill_link *links = NULL;
    struct twill_error ignored = {0};
    size_t count = 0;
    (void)twill_links_read(&links, &count, &ignored);
    for (size_t i = 0; twill_topology_nic(context->machine.topology, i, &nic); i++) {
        char speed[32] = "", place[48] = "";
        for (size_t l = 0; l < count && speed[0] == '\0'; l++)
            if (strcmp(links[l].name, nic.name) == 0 && links[l].mbits > 0)
                snprintf(speed, sizeof(speed), ", %u Mbit/s", links[l].mbits);
        if (nic.package >= 0)
            snprintf(place, sizeof(place), ", package %d, NUMA node %d", nic.package, nic.numa);
        else if (nic.numa >= 0)
            snprintf(place, sizeof(place), ", NUMA node %d", nic.numa);
        twill_context_note(context, "NIC %s: %s%s%s, %s", nic.name, nic.kind, speed, place,
                           nic.numa >= 0 ? distance_name(nic.distance) : "place unknown");
    }
    free(links);
}

/* Add the lines about version, machine, caches, memory and NICs to twill_context_describe(). */
static void note_machine(struct twill_context *context)
{
    const struct twill_machine *m = twill_topology_machine(context->machine.topology);
    twill_context_note(context, "twill %s", twill_version());
    twill_context_note(
        context, "machine: %s%s%s, %u package%s, %u NUMA node%s, %u core%s, %u PU%s (%u allowed)",
        m->source, m->model[0] ? ", " : "", m->model, m->packages, TWILL_PLURAL(m->packages),
        m->numa_nodes, TWILL_PLURAL(m->numa_nodes), m->cores, TWILL_PLURAL(m->cores), m->pus,
        TWILL_PLURAL(m->pus), m->allowed_pus);
    if (m->memory_mode[0] != '\0')
        twill_context_note(context, "KNL modes: memory %s, cluster %s", m->memory_mode,
                           m->cluster_mode);
    note_caches(context, m);
    note_memory(context, m);
    note_nics(context);
}

/* Add a line to twill_context_describe() that says where `whose` memory ("for twill_alloc", say) is
 * placed, by the text `why` of its policy. With several NUMA nodes this differs between ranks. */
static void note_policy(struct twill_context *context, const char *whose, const char *why)
{
    bool differs = twill_topology_machine(context->machine.topology)->numa_nodes > 1;
    twill_context_note_of(context, differs, "memory %s: %s", whose, why);
}

/* Add the lines about ranks, kernels, progress and memory to twill_context_describe(). */
static void note_job(struct twill_context *context)
{
    const struct twill_world *w = &context->job.world;
    int rank = context->job.oob->rank;
    twill_context_note_rank(
        context, "ranks: %u on %u node%s; this is rank %d, %u of %u on node %u%s", w->size,
        w->nodes, TWILL_PLURAL(w->nodes), rank, w->local[rank], w->node_size[w->node[rank]],
        w->node[rank], context->job.crowded != 0 ? "; ranks share cores" : "");
    twill_context_note_rank(context, "bootstrap: %s", context->job.oob->how);
    const struct twill_oob *oob = context->job.oob;
    twill_context_note(context, "interface: %s address %s: %s", oob->interface, oob->address,
                       oob->address_why);
    twill_context_note(context, "kernels: %s", context->machine.kernels->isa);
    twill_threads_note(context);
    twill_context_note(context, "progress: %s", context->progress.how);
    note_policy(context, "for twill_alloc", context->memory->user_policy.why);
    note_policy(context, "of the library", context->memory->library_policy.why);
    twill_heap_note(context);
    if (context->memory->preloaded.serving)
        twill_context_note(context, "memory for malloc: shared, from %zu bytes up",
                           context->memory->preloaded.least);
    twill_levels_log_binding(context);
}

/* Set up a context step by step, until one fails. Collective. Returns TWILL_OK or the error. */
static twill_status create_context(struct twill_context *context,
                                   const struct twill_context_source *source)
{
    struct twill_error *error = &context->error;
    context->log = (struct twill_log){.level = TWILL_LOG_WARN, .rank = -1};
    twill_log_find_launcher(&context->log);
    if (pthread_mutex_init(&context->lock, NULL) != 0 ||
        pthread_mutex_init(&context->health.detector_lock, NULL) != 0 ||
        pthread_mutex_init(&context->transports.alone_lock, NULL) != 0)
        return TWILL_FAIL(error, TWILL_ERR_SYSTEM, "pthread_mutex_init failed");
    context->lockable = true;
    twill_persistent_init(context);
    TWILL_TRY(error, guard_against_fork(context));
    TWILL_TRY(error, source->like != NULL
                         ? twill_config_copy(context->config, source->like->config, error)
                         : twill_config_load(context->config, source->settings, error));
    TWILL_TRY(error, configure_progress(context));
    TWILL_TRY(error, twill_context_configure_threads(context));
    TWILL_TRY(error, twill_log_open(context));
    TWILL_TRY(error,
              twill_kernels_select(&context->machine.kernels,
                                   twill_config_text(context->config, TWILL_VARIABLE_ISA), error));
    TWILL_TRY(error, twill_topology_open(
                         &context->machine.topology,
                         twill_config_text(context->config, TWILL_VARIABLE_TOPOLOGY), error));
    struct twill_cpus bound = {{0}};
    if (twill_openmp_cpus(bound.word, TWILL_CPUS_MOST))
        twill_topology_extend(context->machine.topology, &bound);
    TWILL_TRY(error, twill_context_open_tuning(context));
    TWILL_TRY(error, memory_open(context));
    TWILL_TRY(error, twill_preloaded_open(&context->memory->preloaded,
                                          context->config->text[TWILL_VARIABLE_HEAP], error));
    TWILL_TRY(error, twill_context_open_bootstrap(context, source));
    TWILL_TRY(error, twill_context_open_job(context));
    TWILL_TRY(error, twill_levels_open(context, context->job.level));
    TWILL_TRY(error, twill_context_conclude_detector(context));
    note_machine(context);
    TWILL_TRY(error, twill_context_agree_tuning(context, context->selection.all_tuned));
    twill_levels_log_world(context);
    twill_log_notes(context);
    twill_log_process(context);
    TWILL_TRY(error, twill_context_open_device(context));
    note_job(context);
    twill_log_notes(context);
    context->ready = true;
    return TWILL_OK;
}

/* A context and the objects that its pointers name, in one mapping of twill_context_create_by(). */
struct whole_context {
    struct twill_context context;
    struct twill_config config;
    struct twill_context_memory memory;
    struct twill_operations operations;
    struct twill_context_threads threads;
};

twill_status twill_context_create_by(struct twill_context **context,
                                     const struct twill_context_source *source)
{
    struct whole_context *whole = twill_handle_map(sizeof(*whole));
    if (whole == NULL)
        return TWILL_ERR_MEMORY;
    *context = &whole->context;
    whole->context.config = &whole->config;
    whole->context.memory = &whole->memory;
    whole->context.operations = &whole->operations;
    whole->context.machine.threads = &whole->threads;
    (*context)->live = TWILL_CONTEXT_LIVE;
    (*context)->comms.observer = source->observer != NULL || source->like == NULL
                                     ? source->observer
                                     : source->like->comms.observer;
    twill_fd_guard_begin(&(*context)->fd_guard);
    twill_status status = create_context(*context, source);
    /* A transport between nodes may be a library that opens descriptors at any time. */
    if (status != TWILL_OK || (*context)->job.world.nodes == 1)
        twill_fd_guard_end(&(*context)->fd_guard);
    return status;
}

/* Destroy the context's locks, if they were initialised. */
static void close_locks(struct twill_context *context)
{
    if (!context->lockable)
        return;
    pthread_mutex_destroy(&context->lock);
    pthread_mutex_destroy(&context->health.detector_lock);
    pthread_mutex_destroy(&context->transports.alone_lock);
}

/* When a job grows, its ranks get a new context. The old one keeps its memory of twill_alloc(). */

twill_status twill_context_inherit(struct twill_context *context, struct twill_context *from,
                                   struct twill_error *error)
{
    twill_context_lock(from);
    for (size_t i = 0; i < TWILL_OPERATIONS; i++) {
        context->operations->slot[i] = from->operations->slot[i];
        atomic_store(&context->operations->taken[i], atomic_load(&from->operations->taken[i]));
    }
    context->idle_hook = from->idle_hook;
    twill_status status = twill_persistent_inherit(context, from, error);
    twill_context_unlock(from);
    return status;
}

void twill_context_chain(struct twill_context *context, struct twill_context *older)
{
    context->older = older;
    older->newer = context;
}

/* Take a context out of its chain of older and newer contexts. */
static void unchain(struct twill_context *context)
{
    if (context->newer != NULL)
        context->newer->older = context->older;
    if (context->older != NULL)
        context->older->newer = context->newer;
    context->older = context->newer = NULL;
}

void twill_context_drop_older(struct twill_context *context)
{
    if (context->newer == NULL || context->comms.opened > 0 || twill_persistent_is_used(context))
        return;
    unchain(context);
    twill_context_destroy(context);
}

void twill_context_destroy(twill_context *context)
{
    if (context == NULL)
        return;
    if (!twill_context_is_live(context)) {
        twill_handle_warn("twill_context_destroy", "the context has already been destroyed");
        return;
    }
    if (twill_context_is_forked(context))
        return; /* it belongs to the parent */
    if (context->comms.opened > 0) {
        twill_say(&context->log, TWILL_LOG_WARN,
                  "twill_context_destroy: the context has open communicators and is kept: destroy "
                  "them first");
        return;
    }
    struct twill_context *older = context->newer == NULL ? context->older : NULL;
    unchain(context);
    while (context->closers.count > 0)
        context->closers.close[--context->closers.count](context);
    for (size_t t = 0; t < TWILL_TRANSPORTS_MOST; t++)
        if (context->transports.common[t] != NULL)
            context->transports.common[t]->close(context->transports.common[t]);
    twill_thread_pool_close(context->machine.pool);
    free(context->machine.threads->cpus);
    twill_promoted_clear(context);
    struct twill_shm_region *region = context->memory->heap.region;
    if (context->memory->user != NULL)
        twill_heap_destroy(&context->memory->heap);
    twill_shm_region_close(region);
    twill_preloaded_close(&context->memory->preloaded);
    twill_detector_close(context->health.detector);
    free(context->comms.staging);
    if (context->memory->user != NULL)
        twill_memory_close(context->memory->user);
    if (context->memory->library != NULL)
        twill_memory_close(context->memory->library);
    twill_world_destroy(&context->job.world);
    free(context->job.label);
    free(context->job.host_cpus);
    free(context->job.level);
    twill_tuning_destroy(context->selection.tuning);
    twill_tuning_destroy(context->selection.timings);
    free(context->selection.why);
    twill_persistent_clear(context);
    twill_oob_close(context->job.oob);
    if (context->machine.topology != NULL)
        twill_topology_close(context->machine.topology);
    twill_context_close_device(context);
    twill_config_destroy(context->config);
    twill_log_close(context);
    twill_fd_guard_end(&context->fd_guard);
    free(context->comms.open);
    close_locks(context);
    if (context->fork_guard != NULL)
        munmap((void *)(uintptr_t)context->fork_guard, 4096);
    twill_handle_pool_retire(&context->comms.ended);
    twill_handle_pool_retire(&context->comms.slabs);
    twill_handle_retire(context, sizeof(struct whole_context));
    twill_context_destroy(older);
}
