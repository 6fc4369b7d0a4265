/* SPDX-License-Identifier: Apache-2.0 */
/* What waits advance besides their own communicator. */
#include "lib/job/config.h"
#include "lib/job/context.h"
#include "lib/wait/wait.h"

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

/* Has no thread of this process remained in it? */
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

/* Return the i-th advancer, NULL past the end; count this thread's call of it. */
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
