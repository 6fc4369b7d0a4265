/* SPDX-License-Identifier: Apache-2.0 */
/* What waits advance besides their own communicator, and the thread of TWILL_PROGRESS=thread. There
 * is one such thread per context, started when a request is pending for the first time. It advances
 * all communicators of the context that are not held, and sleeps when no request is pending. It
 * runs on a PU that no rank of the host may run on, if there is one, else where the caller may run.
 * It takes no signal, and calls no code of the caller except reduction operations. */
#include "lib/base/rest.h"
#include "lib/base/thread_start.h"
#include "lib/base/times.h"
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/job/rank_threads.h"
#include "lib/wait/wait.h"
#include "numa/topology.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define NAP_YIELDS 64u /* turns without progress before the thread naps */

void twill_advancer_add(struct twill_context *context, struct twill_advancer *advancer)
{
    twill_context_lock(context);
    advancer->context = context;
    advancer->next = context->comms.advancers;
    context->comms.advancers = advancer;
    twill_context_unlock(context);
    atomic_fetch_add(&context->comms.pending, 1);
    if (context->progress.enabled)
        twill_progress_wake(context);
}

/* Take an advancer off its context's list, or do nothing if it is on none. */
static void unlink_advancer(struct twill_advancer *advancer)
{
    struct twill_context *context = advancer->context;
    if (context == NULL)
        return;
    twill_context_lock(context);
    struct twill_advancer **at = &context->comms.advancers;
    while (*at != advancer)
        at = &(*at)->next;
    *at = advancer->next;
    advancer->context = NULL;
    twill_context_unlock(context);
    atomic_fetch_sub_explicit(&context->comms.pending, 1, memory_order_release);
}

/* Return whether no thread is in the advancer `awaited`, for twill_wait_for_thread(). */
static bool is_left(const void *awaited)
{
    const struct twill_advancer *advancer = awaited;
    return atomic_load_explicit(&advancer->calls, memory_order_acquire) == 0;
}

bool twill_advancer_remove(struct twill_advancer *advancer, const struct twill_context *context)
{
    const uint64_t patience = (uint64_t)context->config->number[TWILL_VARIABLE_TIMEOUT];
    unlink_advancer(advancer);
    return twill_context_is_forked(context) ||
           twill_wait_for_thread(is_left, advancer, twill_now() + patience);
}

/* Return advancer number `i`, counting the caller in its `calls`, or NULL if there are fewer. */
static struct twill_advancer *enter_advancer(struct twill_context *context, size_t i)
{
    twill_context_lock(context);
    struct twill_advancer *advancer = context->comms.advancers;
    while (advancer != NULL && i-- > 0)
        advancer = advancer->next;
    if (advancer != NULL)
        atomic_fetch_add_explicit(&advancer->calls, 1, memory_order_relaxed);
    twill_context_unlock(context);
    return advancer;
}

/* Call all advancers of the context, without its lock. Returns how many have made progress. */
static int call_advancers(struct twill_context *context)
{
    int moved = 0;
    struct twill_advancer *advancer;
    for (size_t i = 0; (advancer = enter_advancer(context, i)) != NULL; i++) {
        moved += advancer->advance(advancer->object) ? 1 : 0;
        atomic_fetch_sub_explicit(&advancer->calls, 1, memory_order_release);
    }
    return moved;
}

int twill_context_advance(struct twill_context *context, const struct twill_comm *except)
{
    int (*comms)(struct twill_context *, const struct twill_comm *) =
        atomic_load_explicit(&context->comms.advance, memory_order_acquire);
    int moved = comms != NULL ? comms(context, except) : 0;
    return moved + call_advancers(context);
}

/* Sleep until a request is pending or the thread must stop. No wake-up is lost, as kick()
 * increments kicks and then reads asleep, and this sets asleep and then compares kicks. */
static void sleep_until_kicked(struct twill_context *context)
{
    struct twill_progress *progress = &context->progress;
    uint32_t word = atomic_load(&progress->kicks);
    atomic_store(&progress->asleep, true);
    if (atomic_load(&context->comms.pending) == 0 && !atomic_load(&progress->stop))
        syscall(SYS_futex, &progress->kicks, FUTEX_WAIT_PRIVATE, word, NULL, NULL, 0);
    atomic_store(&progress->asleep, false);
}

/* Sleep for a millisecond, then advance until nothing moves or the thread must stop. For
 * TWILL_PROGRESS=late. */
static void progress_late(struct twill_context *context)
{
    twill_nap(TWILL_PROGRESS_LATE_NS);
    while (twill_context_advance(context, NULL) > 0 && !atomic_load(&context->progress.stop))
        continue;
}

/* The progress thread of the context `argument`, until progress.stop is set. Returns NULL. */
static void *progress_main(void *argument)
{
    struct twill_context *context = argument;
    struct twill_progress *progress = &context->progress;
    uint64_t nap_ns = TWILL_PROGRESS_NAP_LEAST_NS;
    unsigned idle = 0;
    while (!atomic_load(&progress->stop)) {
        if (atomic_load(&context->comms.pending) == 0) {
            sleep_until_kicked(context);
            idle = 0;
        } else if (progress->late) {
            progress_late(context);
        } else if (twill_context_advance(context, NULL) > 0) {
            idle = 0;
            nap_ns = TWILL_PROGRESS_NAP_LEAST_NS;
        } else if (idle++ < NAP_YIELDS) {
            twill_yield();
        } else {
            twill_nap(nap_ns);
            nap_ns =
                nap_ns * 2 < TWILL_PROGRESS_NAP_MOST_NS ? nap_ns * 2 : TWILL_PROGRESS_NAP_MOST_NS;
        }
    }
    return NULL;
}

/* Return a CPU of this rank for helper thread `index` of `count` on a core that the threads of its
 * kernels leave free, or -1 if there are fewer. */
static int beside_pool(const struct twill_context *context, unsigned count, unsigned index)
{
    struct twill_cpus rest = context->job.host_cpus[context->job.host_rank];
    int cpus[TWILL_CPUS_MOST];
    for (size_t w = 0; w < TWILL_ARRAY_LENGTH(rest.word); w++)
        rest.word[w] &= ~context->machine.threads->cpus->word[w];
    if (count > TWILL_CPUS_MOST ||
        twill_topology_threads(context->machine.topology, &rest, count, cpus) < count)
        return -1;
    return cpus[index];
}

int twill_thread_choose_cpu(const struct twill_context *context, unsigned count, unsigned index,
                            bool *own)
{
    const struct twill_topology *topology = context->machine.topology;
    if (context->job.host_cpus == NULL || context->job.host_ranks == 0 ||
        !twill_topology_machine(topology)->is_this_machine)
        return -1;
    unsigned me = context->job.host_rank, ranks = context->job.host_ranks;
    int cpu = twill_topology_helper(topology, context->job.host_cpus, ranks, me, count, index, own);
    if (cpu >= 0 && *own && context->machine.threads->cpus != NULL) {
        int free_cpu = beside_pool(context, count, index);
        return free_cpu >= 0 ? free_cpu : cpu;
    }
    return cpu;
}

/* Count a kick, and wake the progress thread if it sleeps. */
static void kick(struct twill_progress *progress)
{
    atomic_fetch_add(&progress->kicks, 1);
    if (atomic_load(&progress->asleep))
        syscall(SYS_futex, &progress->kicks, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

/* Stop the progress thread and wait until it has ended. */
static void stop_thread(struct twill_context *context)
{
    struct twill_progress *progress = &context->progress;
    atomic_store(&progress->stop, true);
    kick(progress);
    pthread_join(progress->thread, NULL);
    progress->running = false;
}

/* Start the progress thread, or warn that there is none. The caller holds the context's lock. */
static void thread_start(struct twill_context *context)
{
    struct twill_progress *progress = &context->progress;
    int code = twill_thread_start(&progress->thread, "twill-progress", progress->core,
                                  progress_main, context);
    progress->running = code == 0;
    if (progress->running)
        twill_context_at_end(context, stop_thread);
    if (code != 0)
        twill_say(&context->log, TWILL_LOG_WARN,
                  "TWILL_PROGRESS=%s: no thread (%s): progress is made inside calls only",
                  context->config->text[TWILL_VARIABLE_PROGRESS], strerror(code));
}

void twill_progress_wake(struct twill_context *context)
{
    struct twill_progress *progress = &context->progress;
    if (!atomic_load_explicit(&progress->tried, memory_order_acquire)) {
        twill_context_lock(context);
        if (!atomic_load_explicit(&progress->tried, memory_order_relaxed))
            thread_start(context);
        atomic_store_explicit(&progress->tried, true, memory_order_release);
        twill_context_unlock(context);
    }
    kick(progress);
}
